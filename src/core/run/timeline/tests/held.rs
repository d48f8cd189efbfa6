//! Calls that wait for a decision, and how they are shown at each moment of the timeline.

use super::*;

fn held(id: &str) -> Note {
    Note::CallHeld {
        needs_decision: false,
        tool: "wiki_write".into(),
        tool_use_id: Some(id.into()),
        input: serde_json::json!({"key": "a"}),
        reached: None,
    }
}

fn decided(id: &str, decision: CallDecision) -> Note {
    Note::CallDecided {
        tool_use_id: Some(id.into()),
        decision,
        input: None,
        reason: None,
        rule: None,
    }
}

/// Unit `a` is held from before its first attempt; two calls wait at the same time, and a third one when the tape ends.
fn a_held_run() -> Vec<RecordedEntry> {
    let mut run = a_run()[..1].to_vec();
    run.push(note(Some(("a", 0)), &Note::HoldRequested));
    run.extend(a_run()[1..4].to_vec());
    run.extend([
        note(Some(("a", 1)), &held("t1")),
        note(Some(("a", 1)), &held("t2")),
        note(Some(("a", 1)), &decided("t1", CallDecision::Denied)),
        note(Some(("a", 1)), &decided("t2", CallDecision::Released)),
        note(Some(("a", 1)), &Note::HoldReleased),
        note(Some(("a", 1)), &held("t3")),
        note(Some(("a", 1)), &ended(AttemptOutcome::Stopped)),
        note(Some(("a", 1)), &decided("t3", CallDecision::Withdrawn)),
        note(Some(("b", 1)), &Note::AttemptStarted(Box::default())),
        note(Some(("b", 1)), &held("t4")),
    ]);
    run
}

#[test]
fn a_unit_is_held_while_a_call_waits() {
    let mut timeline = timeline(a_held_run(), 1, false);
    let mut seen = Vec::new();
    for entries in 2..=14 {
        timeline.seek(entries).unwrap();
        let [a, _] = &timeline.view().state.units[..] else {
            panic!("two units")
        };
        let waits: Vec<_> = a
            .latest()
            .iter()
            .flat_map(|attempt| &attempt.held_calls)
            .map(|call| &*call.tool)
            .collect();
        seen.push(format!(
            "{} {} {}",
            a.status.as_str(),
            waits.len(),
            a.is_held()
        ));
    }
    let expected = [
        "queued 0 true",
        "running 0 true",
        "running 0 true",
        "running 0 true",
        "held 1 true",
        "held 2 true",
        "held 1 true",
        "running 0 true",
        "running 0 false",
        "held 1 false",
        "stopped 0 false",
        "stopped 0 false",
        "stopped 0 false",
    ];
    assert_eq!(seen, expected);
    timeline.seek(15).unwrap();
    assert_eq!(
        timeline.view().state.units[1].status,
        UnitStatus::Interrupted,
        "the tape ends before the run"
    );
    assert!(timeline.view().state.units[1].oldest_held_call().is_none());
}

#[test]
fn hold_emits_status_changes() {
    let mut timeline = timeline(a_held_run(), 3, false);
    let mut statuses = Vec::new();
    let mut emit = |emitted: SinkEvent<'_>| {
        if let SinkEvent::Unit {
            unit: "a",
            status,
            reason,
            ..
        } = emitted
        {
            statuses.push(format!(
                "{}: {}",
                status.as_str(),
                reason.unwrap_or_default()
            ));
        }
    };
    while timeline.advance(1, &mut emit).unwrap() == PollStatus::More {}
    let expected = [
        "queued: ",
        "running: ",
        "held: wiki_write",
        "running: ",
        "held: wiki_write",
        "stopped: a reason",
    ];
    assert_eq!(statuses, expected);
    let attempt_id = timeline.view().state.units[0].attempts[0].id;
    let view = timeline.view();
    let rows = view.rows(attempt_id);
    let denied: Vec<_> = rows
        .iter()
        .filter(|row| row.end(99) == RowOutcome::Denied)
        .map(|row| row.kind)
        .collect();
    assert_eq!(
        denied,
        [RowKind::Tool],
        "the row of the call shows the denial"
    );
    assert_eq!(timeline.activity().count(ActivityMark::Denial), 1);
}

#[test]
fn held_state_is_the_same_on_every_path() {
    let straight = |entries| {
        let mut timeline = timeline(a_held_run(), 1, false);
        timeline.seek(entries).unwrap();
        seen(&timeline)
    };
    let mut back = timeline(a_held_run(), 4, false);
    for entries in (0..=15).rev() {
        back.seek(entries).unwrap();
        assert_eq!(seen(&back), straight(entries), "after {entries}");
    }
}
