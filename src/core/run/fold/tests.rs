//! How the fold counts calls that were answered after their attempt had been ended.

use super::*;
use crate::{
    run::{
        ActivityIndex, ActivityMark,
        state::{RowKind, RowOutcome, StreamRow},
    },
    tape::note::StopMode,
};

const CALL: &str = r#"{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"ID","name":"mcp__ktx__wiki_read","input":{}}]},"session_id":"s"}"#;
const ANSWER: &str = r#"{"type":"user","message":{"role":"user","content":[{"type":"tool_result","content":"The user doesn't want to proceed with this tool use.","is_error":true,"tool_use_id":"ID"}]},"session_id":"s","tool_use_result":"User rejected tool use","tool_result_meta":[{"id":"ID","non_execution_kind":"user-rejected"}]}"#;
const RESULT: &str =
    r#"{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"s"}"#;
const INTERRUPT: &str =
    r#"{"type":"control_request","request_id":"deck-3","request":{"subtype":"interrupt"}}"#;

/// Folds entries of one attempt; returns its failures, its denials, and how its calls ended.
fn folded(entries: &[(char, String)]) -> (u32, u32, Vec<RowOutcome>) {
    let (mut fold, mut view) = (Fold::new("?".into()), RunView::default());
    let started = Note::AttemptStarted(Box::default()).to_json();
    let started = ('n', String::from_utf8(started).unwrap());
    for (seq, (kind, text)) in std::iter::once(&started).chain(entries).enumerate() {
        let body = match kind {
            'i' => EntryBody::Stdin(text.as_bytes()),
            'n' => EntryBody::Note(text.as_bytes()),
            _ => EntryBody::Stdout(text.as_bytes()),
        };
        let scope = EntryScope::Attempt("u", 1);
        let seq = seq as u64;
        let entry = EntryRef {
            seq: Seq(seq),
            at: Millis(seq),
            scope,
            body,
            is_well_formed: true,
            decoded: None,
        };
        fold.apply(&mut view, &entry, &mut |_| {});
    }
    let attempt = &view.state.units[0].attempts[0];
    let rows = view
        .rows(attempt.id)
        .iter()
        .filter(|row| row.kind == RowKind::Tool);
    let ends = rows.map(|row| row.end(view.state.entries)).collect();
    (attempt.counts.failures, attempt.counts.denials, ends)
}

fn call(id: &str) -> (char, String) {
    ('o', CALL.replace("ID", id))
}

fn answer(id: &str) -> (char, String) {
    ('o', ANSWER.replace("ID", id))
}

#[test]
fn call_aborted_by_interrupt_is_neither_failed_nor_denied() {
    let end = [
        ('i', INTERRUPT.to_owned()),
        answer("b"),
        ('o', RESULT.to_owned()),
    ];
    let lines = [
        vec![call("a"), answer("a"), call("b"), call("c")],
        end.to_vec(),
    ]
    .concat();
    assert_eq!(
        folded(&lines),
        (
            1,
            1,
            vec![RowOutcome::Denied, RowOutcome::Aborted, RowOutcome::Aborted]
        )
    );
}

#[test]
fn call_aborted_by_stop_is_neither_failed_nor_denied() {
    for (how, counted, end) in [
        (StopMode::Stop, 0, RowOutcome::Aborted),
        (StopMode::Kill, 0, RowOutcome::Aborted),
        (StopMode::Drain, 1, RowOutcome::Denied),
    ] {
        let stop = (
            'n',
            String::from_utf8(Note::StopRequested { how }.to_json()).unwrap(),
        );
        assert_eq!(
            folded(&[call("a"), stop, answer("a")]),
            (counted, counted, vec![end]),
            "{how:?}"
        );
    }
}

#[test]
fn other_agent_input_ends_no_call() {
    for written in [
        INTERRUPT.replace("interrupt", "get_settings"),
        "interrupt".into(),
        "{}".into(),
        String::new(),
    ] {
        assert_eq!(
            folded(&[call("a"), ('i', written), answer("a")]),
            (1, 1, vec![RowOutcome::Denied])
        );
    }
}

/// Returns the rows of an attempt after these lines, and the marked failures, denials and limits.
fn rows_and_marks(lines: &[String]) -> (Vec<(RowKind, RowOutcome)>, [u64; 3]) {
    let (_, view, activity) = read(lines);
    let rows = rows(&view)
        .iter()
        .map(|row| (row.kind, row.end(view.state.entries)))
        .collect();
    (
        rows,
        [
            ActivityMark::Failure,
            ActivityMark::Denial,
            ActivityMark::Limit,
        ]
        .map(|mark| activity.count(mark)),
    )
}

fn rows(view: &RunView) -> &[StreamRow] {
    view.rows(view.state.units[0].attempts[0].id)
}

fn read(lines: &[String]) -> (Fold, RunView, ActivityIndex) {
    let (mut fold, mut view) = (Fold::new("?".into()), RunView::default());
    let mut activity = ActivityIndex::default();
    for (seq, line) in (0..).zip(lines) {
        let body = EntryBody::Stdout(line.as_bytes());
        let entry = EntryRef {
            seq: Seq(seq),
            at: Millis(seq),
            scope: EntryScope::BySession,
            body,
            is_well_formed: true,
            decoded: None,
        };
        fold.apply(&mut view, &entry, &mut |_| {});
        activity.record(Seq(seq), Millis(seq), view.last_change);
    }
    (fold, view, activity)
}

const DENIED: &str = r#"{"type":"system","subtype":"permission_denied","tool_name":"Bash","tool_use_id":"ID","message":"no","session_id":"s"}"#;
const REFUSED: &str = r#"{"type":"user","message":{"role":"user","content":[{"type":"tool_result","content":"no","is_error":true,"tool_use_id":"ID"}]},"session_id":"s","tool_result_meta":[{"id":"ID","non_execution_kind":"permission-denied"}]}"#;
const LISTED: &str = r#"{"type":"result","subtype":"success","is_error":false,"permission_denials":[{"tool_name":"Bash","tool_use_id":"ID"}],"session_id":"s"}"#;

#[test]
fn denial_is_counted_once_in_any_order() {
    let lines = |all: &[&str]| {
        all.iter()
            .map(|line| line.replace("ID", "a"))
            .collect::<Vec<_>>()
    };
    let denied = (RowKind::Tool, RowOutcome::Denied);
    let completed = (RowKind::Completed, RowOutcome::Ok);
    for told_by in [
        vec![DENIED, REFUSED],
        vec![REFUSED, DENIED],
        vec![DENIED, REFUSED, LISTED],
        vec![REFUSED, LISTED],
    ] {
        let (mut rows, marks) = rows_and_marks(&lines(&[&[CALL][..], &told_by].concat()));
        rows.retain(|row| *row != completed);
        assert_eq!((rows, marks), (vec![denied], [0, 1, 0]), "{told_by:?}");
    }
    let (rows, marks) = rows_and_marks(&lines(&[CALL, LISTED]));
    assert_eq!(
        (rows, marks),
        (vec![denied, completed], [0, 1, 0]),
        "no result ever came"
    );
    let (rows, marks) = rows_and_marks(&lines(&[DENIED, LISTED]));
    assert_eq!(
        (rows, marks),
        (
            vec![(RowKind::Denial, RowOutcome::Denied), completed],
            [0, 1, 0]
        ),
        "no call was seen"
    );
}

#[test]
fn failing_session_is_counted_once() {
    let error = r#"{"type":"assistant","message":{"id":"m","model":"<synthetic>","content":[{"type":"text","text":"Invalid API key"}]},"error":"authentication_failed","session_id":"s"}"#;
    let result = r#"{"type":"result","subtype":"success","is_error":true,"result":"Invalid API key","session_id":"s"}"#;
    let (rows, marks) = rows_and_marks(&[error.to_owned(), result.to_owned()]);
    let failed = [
        (RowKind::Text, RowOutcome::Failed),
        (RowKind::Completed, RowOutcome::Failed),
    ];
    assert_eq!((rows.as_slice(), marks), (&failed[..], [1, 0, 0]));
    let (rows, marks) = rows_and_marks(&[result.to_owned()]);
    assert_eq!(
        (rows.as_slice(), marks),
        (&failed[1..], [1, 0, 0]),
        "it was not reported before"
    );
    // A failure that the session recovered from is reported separately from its end.
    let without_class = error.replace(r#","error":"authentication_failed""#, "");
    let (_, marks) = rows_and_marks(&[error.to_owned(), without_class, result.to_owned()]);
    assert_eq!(marks, [2, 0, 0]);
}

#[test]
fn exhausted_budget_is_a_limit_not_a_failure() {
    let result = r#"{"type":"result","subtype":"error_max_turns","is_error":true,"num_turns":2,"session_id":"s"}"#;
    let (rows, marks) = rows_and_marks(&[result.to_owned()]);
    assert_eq!(
        (rows, marks),
        (vec![(RowKind::Completed, RowOutcome::Aborted)], [0, 0, 1])
    );
}

#[test]
fn exhausted_budget_before_another_turn_is_not_a_failure() {
    let init = r#"{"type":"system","subtype":"init","session_id":"s"}"#;
    let task = r#"{"type":"system","subtype":"task_started","task_id":"t","is_backgrounded":true,"session_id":"s"}"#;
    let result = r#"{"type":"result","subtype":"error_max_turns","is_error":true,"num_turns":2,"session_id":"s"}"#;
    let (mut fold, mut view, _) = read(&[init, task, init, result].map(str::to_owned));
    let completed = |view: &RunView| {
        let rows = rows(view)
            .iter()
            .filter(|row| row.kind == RowKind::Completed);
        rows.map(|row| row.end(view.state.entries))
            .collect::<Vec<_>>()
    };
    assert_eq!(completed(&view), [RowOutcome::Aborted]);
    fold.finish(&mut view, &mut |_| {});
    assert_eq!(completed(&view), [RowOutcome::Aborted], "once");
}

/// Returns the events that sinks receive for these lines, as text, and the units afterwards.
fn emitted(lines: &[&str]) -> (Vec<String>, Vec<(String, UnitStatus, usize)>) {
    let (mut fold, mut view, mut words) = (Fold::new("?".into()), RunView::default(), Vec::new());
    let mut emit = |emitted: SinkEvent<'_>| {
        words.push(match emitted {
            SinkEvent::Agent {
                unit,
                attempt,
                event,
                ..
            } => {
                let mut json = Vec::new();
                event.write_json(&mut json);
                let word: serde_json::Value = serde_json::from_slice(&json).unwrap();
                let word = word["answer"]
                    .as_str()
                    .map_or_else(|| word["type"].to_string(), str::to_owned);
                format!("{unit}#{attempt} {}", word.trim_matches('"'))
            }
            SinkEvent::Unit {
                unit,
                attempt,
                status,
                ..
            } => format!("{unit}#{attempt} {}", status.as_str()),
            SinkEvent::Line { .. } | SinkEvent::Note { .. } => return,
            _ => String::new(),
        });
    };
    for (seq, line) in (0..).zip(lines) {
        let (scope, body) = (EntryScope::BySession, EntryBody::Stdout(line.as_bytes()));
        let entry = EntryRef {
            seq: Seq(seq),
            at: Millis(seq),
            scope,
            body,
            is_well_formed: true,
            decoded: None,
        };
        fold.apply(&mut view, &entry, &mut emit);
    }
    fold.finish(&mut view, &mut emit);
    let units = view
        .state
        .units
        .iter()
        .map(|unit| (unit.key.to_string(), unit.status, unit.attempts.len()));
    (words, units.collect())
}

#[test]
fn sessions_of_one_record_complete_one_after_the_other() {
    let line = |body: &str, session: &str| format!(r#"{{"session_id":"{session}",{body}}}"#);
    let init = |session| line(r#""type":"system","subtype":"init""#, session);
    let result = |text: &str, session| {
        line(
            &format!(r#""type":"result","is_error":false,"result":"{text}""#),
            session,
        )
    };
    let lines = [
        init("a"),
        result("1", "a"),
        init("a"),
        result("2", "a"),
        init("b"),
        result("3", "b"),
        init("a"),
    ];
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    let (words, units) = emitted(&lines[..6]);
    assert_eq!(
        words,
        [
            "a#1 running",
            "a#1 started",
            "a#1 2",
            "a#1 succeeded",
            "b#1 running",
            "b#1 started",
            "b#1 3",
            "b#1 succeeded"
        ]
    );
    assert_eq!(
        units,
        [
            ("a".into(), UnitStatus::Succeeded, 1),
            ("b".into(), UnitStatus::Succeeded, 1)
        ]
    );
    // A session that is resumed later has another attempt, and the first one is interrupted.
    let (words, units) = emitted(&lines);
    assert_eq!(
        words[6..],
        [
            "a#2 running",
            "a#2 started",
            "b#1 3",
            "b#1 succeeded",
            "a#2 ",
            "a#2 interrupted"
        ]
    );
    assert_eq!(units[0], ("a".into(), UnitStatus::Interrupted, 2));
}

/// Folds one line of each attempt of each unit.
fn fold_attempts(units: u64, attempts: u32, line: &str) -> (Fold, RunView) {
    let (mut fold, mut view) = (Fold::new("?".into()), RunView::default());
    let mut seq = 0;
    for unit in 0..units {
        for number in 1..=attempts {
            let (key, body) = (format!("u{unit}"), EntryBody::Stdout(line.as_bytes()));
            let scope = EntryScope::Attempt(&key, number);
            let entry = EntryRef {
                seq: Seq(seq),
                at: Millis(seq),
                scope,
                body,
                is_well_formed: true,
                decoded: None,
            };
            fold.apply(&mut view, &entry, &mut |_| {});
            seq += 1;
        }
    }
    (fold, view)
}

#[test]
fn attempts_of_one_unit_are_found_by_their_number() {
    let (fold, view) = fold_attempts(1, 2_000, RESULT);
    let attempts = &fold.attempts_by_unit[&UnitKey::from("u0")];
    assert_eq!(
        (attempts.len(), attempts[&1], attempts[&2_000]),
        (2_000, AttemptId(0), AttemptId(1_999))
    );
    let attempts = &view.state.units[0].attempts;
    assert!(attempts.iter().map(|attempt| attempt.number).eq(1..=2_000));
    assert!(attempts.capacity() <= attempts.len() * 5 / 4);
}

#[test]
fn units_take_little_memory_each() {
    let sizes = [
        size_of::<UnitState>(),
        size_of::<AttemptState>(),
        size_of::<AttemptFold>(),
        size_of::<AttemptRows>(),
    ];
    assert!(sizes.iter().sum::<usize>() <= 1_568, "{sizes:?}");
    let (_, view) = fold_attempts(100, 1, CALL);
    assert!(
        view.state
            .units
            .iter()
            .all(|unit| unit.attempts.capacity() == 1)
    );
    assert!(
        view.attempts
            .iter()
            .all(|scope| scope.entries.capacity() == 1 && scope.rows.capacity() <= 2)
    );
}

#[test]
fn malformed_lines_beyond_the_limit_get_no_row() {
    let lines = vec![('o', "{}".to_owned()); 3];
    let (mut fold, mut view) = (Fold::new("?".into()), RunView::default());
    view.state.loss_counts.malformed = attempt::MAX_MALFORMED_ROWS - 2;
    for (seq, (_, text)) in lines.iter().enumerate() {
        let (scope, body) = (EntryScope::BySession, EntryBody::Stdout(text.as_bytes()));
        let seq = seq as u64;
        let entry = EntryRef {
            seq: Seq(seq),
            at: Millis(seq),
            scope,
            body,
            is_well_formed: true,
            decoded: None,
        };
        fold.apply(&mut view, &entry, &mut |_| {});
    }
    assert_eq!(
        (view.attempts[0].rows.len(), view.attempts[0].entries.len()),
        (2, 3)
    );
    assert_eq!(
        view.state.loss_counts.malformed,
        attempt::MAX_MALFORMED_ROWS + 1
    );
}

#[test]
fn attempts_beyond_the_limit_are_counted_as_lost() {
    let (mut fold, mut view) = fold_attempts(1, 3, "{}");
    let known = Arc::clone(&fold.attempts[0]);
    fold.attempts.resize(MAX_ATTEMPTS, known);
    view.attempts.resize(MAX_ATTEMPTS, AttemptRows::default());
    let mut messages = Vec::new();
    for (seq, number) in [(3, 4), (4, 5), (5, 2)] {
        let (scope, body) = (EntryScope::Attempt("u0", number), EntryBody::Stdout(b"{}"));
        let entry = EntryRef {
            seq: Seq(seq),
            at: Millis(seq),
            scope,
            body,
            is_well_formed: true,
            decoded: None,
        };
        fold.apply(&mut view, &entry, &mut |emitted| {
            if let SinkEvent::Run {
                change: RunEvent::Message { text, .. },
                ..
            } = emitted
            {
                messages.push(text.to_owned());
            }
        });
    }
    assert_eq!(
        (
            view.state.units[0].attempts.len(),
            view.state.loss_counts.unknown,
            view.messages.len()
        ),
        (3, 2, 1)
    );
    assert_eq!(
        messages,
        ["too many attempts: only the first 100000 are shown"]
    );
}

mod silence;
mod start_row;
mod tasks;
