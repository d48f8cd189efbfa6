//! A unit becomes silent by the times of entries and the displayed moment only.

use super::*;
use crate::{
    run::state::UnitStatus,
    tape::note::{AttemptStarted, RunPlanned},
};

const TEXT: &str = r#"{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"x"}]},"session_id":"s"}"#;
const INIT: &str = r#"{"type":"system","subtype":"init","session_id":"s"}"#;
const RESULT: &str =
    r#"{"type":"result","subtype":"success","is_error":false,"result":"x","session_id":"s"}"#;
const ASKS: &str =
    r#"{"type":"control_request","request_id":"r1","request":{"subtype":"mcp_message"}}"#;
const ANSWERS: &str = r#"{"type":"control_response","response":{"subtype":"success","request_id":"r1","response":{}}}"#;
const CANCELS: &str = r#"{"type":"control_cancel_request","request_id":"r1"}"#;

/// A fold over entries that arrive when the test pushes them.
struct FoldHarness {
    fold: Fold,
    view: RunView,
    statuses: Vec<(u64, UnitStatus, Option<String>)>,
}

impl FoldHarness {
    /// Starts with the running unit `u`.
    fn new() -> Self {
        let mut clock = Self {
            fold: Fold::new("?".into()),
            view: RunView::default(),
            statuses: Vec::new(),
        };
        clock.note(0, "u", &Note::AttemptStarted(Box::default()));
        clock.statuses.clear();
        clock
    }

    fn entry(&mut self, at: u64, unit: &str, body: EntryBody<'_>) {
        let (seq, statuses) = (Seq(self.view.state.entries), &mut self.statuses);
        let scope = if unit.is_empty() {
            EntryScope::Run
        } else {
            EntryScope::Attempt(unit, 1)
        };
        let entry = EntryRef {
            seq,
            at: Millis(at * 1000),
            scope,
            body,
            is_well_formed: true,
            decoded: None,
        };
        self.fold.apply(&mut self.view, &entry, &mut |emitted| {
            statuses.extend(of_unit(&emitted))
        });
    }

    fn note(&mut self, at: u64, unit: &str, note: &Note) {
        self.entry(at, unit, EntryBody::Note(&note.to_json()));
    }

    fn out(&mut self, at: u64, line: &str) {
        self.entry(at, "u", EntryBody::Stdout(line.as_bytes()));
    }

    fn status_at(&mut self, seconds: u64) -> UnitStatus {
        let statuses = &mut self.statuses;
        self.fold
            .advance_clock(&mut self.view, Millis(seconds * 1000), &mut |emitted| {
                statuses.extend(of_unit(&emitted))
            });
        self.view.state.units[0].status
    }

    fn log(&self) -> Vec<String> {
        self.view
            .messages()
            .iter()
            .map(|message| format!("{} {}", message.at.0 / 1000, message.text))
            .collect()
    }
}

fn of_unit(emitted: &SinkEvent<'_>) -> Option<(u64, UnitStatus, Option<String>)> {
    match emitted {
        SinkEvent::Unit {
            at,
            unit: "u",
            status,
            reason,
            ..
        } => Some((at.0 / 1000, *status, reason.map(str::to_owned))),
        _ => None,
    }
}

#[test]
fn silence_begins_after_a_minute_and_ends_with_output() {
    let mut clock = FoldHarness::new();
    clock.out(10, TEXT);
    assert_eq!(clock.status_at(69), UnitStatus::Running);
    assert_eq!(clock.status_at(70), UnitStatus::Silent);
    assert_eq!(
        clock.view.state.units[0].attempts[0].silent_since,
        Some(Millis(10_000))
    );
    clock.out(166, TEXT);
    assert_eq!(clock.status_at(166), UnitStatus::Running);
    let expected = [
        (
            70,
            UnitStatus::Silent,
            Some("no output for 1m 00s".to_owned()),
        ),
        (
            166,
            UnitStatus::Running,
            Some("output again after 2m 36s".to_owned()),
        ),
    ];
    assert_eq!(clock.statuses, expected);
    assert_eq!(
        clock.log(),
        [
            "70 silent: no output for 1m 00s",
            "166 output again after 2m 36s"
        ]
    );
    assert_eq!(clock.status_at(346), UnitStatus::Silent, "a second time");
}

#[test]
fn record_alone_shows_what_the_live_screen_showed() {
    let mut live = FoldHarness::new();
    live.status_at(100);
    live.note(120, "", &Note::LimitLifted);
    live.out(130, TEXT);
    let mut record = FoldHarness::new();
    record.note(120, "", &Note::LimitLifted);
    record.out(130, TEXT);
    assert_eq!(
        (live.statuses, live.view.state),
        (record.statuses, record.view.state)
    );
    assert_eq!(live.view.messages, record.view.messages);
}

#[test]
fn notes_and_orders_are_no_output() {
    let mut clock = FoldHarness::new();
    clock.note(50, "u", &Note::HoldRequested);
    clock.entry(55, "u", EntryBody::Stdin(INTERRUPT.as_bytes()));
    assert_eq!(clock.status_at(60), UnitStatus::Silent);
}

#[test]
fn stderr_is_output() {
    let mut clock = FoldHarness::new();
    clock.entry(50, "u", EntryBody::Stderr("warning".into()));
    assert_eq!(clock.status_at(100), UnitStatus::Running);
}

#[test]
fn agent_that_waits_for_us_is_not_silent() {
    let mut clock = FoldHarness::new();
    clock.out(10, ASKS);
    assert_eq!(clock.status_at(500), UnitStatus::Running);
    clock.entry(600, "u", EntryBody::Stdin(ANSWERS.as_bytes()));
    assert_eq!(
        clock.status_at(659),
        UnitStatus::Running,
        "counted from the answer"
    );
    assert_eq!(clock.status_at(660), UnitStatus::Silent);
    clock.out(700, ASKS);
    clock.out(710, CANCELS);
    assert_eq!(
        clock.status_at(860),
        UnitStatus::Silent,
        "it waits no longer"
    );
}

#[test]
fn agent_is_not_silent_after_its_last_result() {
    let mut clock = FoldHarness::new();
    for line in [INIT, TEXT, RESULT] {
        clock.out(10, line);
    }
    clock.entry(11, "u", EntryBody::Stderr("bye".into()));
    assert_eq!(clock.status_at(500), UnitStatus::Running);
    assert_eq!(clock.view.state.units[0].attempts[0].silent_since, None);
    assert_eq!(clock.log(), Vec::<String>::new());
}

#[test]
fn result_with_open_background_task_is_not_the_last() {
    let task = r#"{"type":"system","subtype":"task_started","session_id":"s","task_id":"t","is_backgrounded":true}"#;
    let mut clock = FoldHarness::new();
    for line in [INIT, task, RESULT] {
        clock.out(10, line);
    }
    assert_eq!(clock.status_at(70), UnitStatus::Silent);
}

#[test]
fn call_of_a_tool_inside_the_agent_can_be_silent() {
    let mut clock = FoldHarness::new();
    clock.out(10, &CALL.replace("ID", "a"));
    assert_eq!(clock.status_at(70), UnitStatus::Silent);
}

#[test]
fn going_back_in_time_undoes_a_silence() {
    let mut clock = FoldHarness::new();
    assert_eq!(clock.status_at(100), UnitStatus::Silent);
    assert_eq!(clock.log().len(), 1);
    assert_eq!(clock.status_at(30), UnitStatus::Running);
    assert_eq!(clock.log(), Vec::<String>::new());
    assert_eq!(clock.status_at(100), UnitStatus::Silent);
    // Its output was already written when the screen checked.
    clock.out(59, TEXT);
    assert_eq!(
        (clock.status_at(59), clock.log().len()),
        (UnitStatus::Running, 0)
    );
    assert_eq!(clock.status_at(120), UnitStatus::Silent);
}

#[test]
fn silences_that_end_by_themselves_become_normal() {
    let mut clock = FoldHarness::new();
    assert_eq!(clock.status_at(70), UnitStatus::Silent);
    clock.out(80, TEXT);
    // Half more than the 80 seconds.
    assert_eq!(clock.status_at(199), UnitStatus::Running);
    assert_eq!(clock.status_at(200), UnitStatus::Silent);
    clock.out(10_080, TEXT);
    assert_eq!(clock.status_at(10_259), UnitStatus::Running);
    assert_eq!(clock.status_at(10_260), UnitStatus::Silent);
    assert_eq!(clock.log().len(), 5);
    // An earlier moment undoes only what came after it.
    assert_eq!(clock.status_at(10_100), UnitStatus::Running);
    assert_eq!(clock.log().len(), 4);
}

#[test]
fn silence_threshold_is_read_from_the_tape() {
    let mut clock = FoldHarness::new();
    let planned = RunPlanned {
        silence_after_ms: Some(5_000),
        ..RunPlanned::default()
    };
    clock.note(1, "", &Note::RunPlanned(Box::new(planned)));
    clock.note(
        2,
        "other",
        &Note::AttemptStarted(Box::<AttemptStarted>::default()),
    );
    clock.status_at(8);
    assert_eq!(clock.view.state.units[1].status, UnitStatus::Silent);
}

#[test]
fn extreme_times_terminate() {
    let mut clock = FoldHarness::new();
    let planned = RunPlanned {
        silence_after_ms: Some(0),
        ..RunPlanned::default()
    };
    clock.note(0, "", &Note::RunPlanned(Box::new(planned)));
    clock.out(1, ASKS);
    assert_eq!(clock.status_at(u64::MAX / 1000), UnitStatus::Running);
    clock.note(u64::MAX / 1000, "v", &Note::AttemptStarted(Box::default()));
    clock.entry(u64::MAX / 1000, "u", EntryBody::Stdin(ANSWERS.as_bytes()));
    clock.out(u64::MAX / 1000, TEXT);
}
