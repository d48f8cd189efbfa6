//! Laws of the spine: any way to a moment leads to the same moment.

mod ends;

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{
    run::{
        Lane, Mark, Origin,
        state::{Row, RowEnd, RowKind, UnitStatus},
    },
    tape::{
        Body, Millis, Note, UnitKey, entry,
        note::{
            Amendment, AttemptEnded, AttemptStarted, CallDecision, Cause, Integrating, Integration, Outcome,
            PatchIntegrated, PatchWritten, PlannedUnit, RunEnded, RunPlanned, SaveFailed, Saved, StopReason, Verdict,
        },
    },
};

/// Lane (`None` for the run, or for whatever session the line names), bytes, and whether they are a note.
type Recorded = (Option<(String, u32)>, Vec<u8>, bool);

/// Entries in memory, handed out a few at a time.
struct Memory {
    origin: Origin,
    entries: Arc<Vec<Recorded>>,
    by_session: bool,
    next: usize,
    at_once: usize,
}

impl Memory {
    fn arrived(&self, seq: usize) -> Option<Arrived<'_>> {
        let (lane, bytes, is_note) = self.entries.get(seq)?;
        let lane = match lane {
            Some((unit, number)) => Lane::Attempt(unit, *number),
            None if self.by_session => Lane::BySession,
            None => Lane::Run,
        };
        let body = if *is_note { Body::Note(bytes) } else { entry::stdout_body(bytes, crate::decode::is_json(bytes)) };
        Some(Arrived { seq: Seq(seq as u64), at: Millis(seq as u64 * 100), lane, body, intact: true, line: None })
    }
}

impl Source for Memory {
    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn poll(&mut self, _: usize, sink: &mut dyn FnMut(Arrived<'_>)) -> Result<Progress, SourceError> {
        for _ in 0..self.at_once {
            let Some(arrived) = self.arrived(self.next) else { return Ok(Progress::End) };
            sink(arrived);
            self.next += 1;
        }
        Ok(if self.next < self.entries.len() { Progress::More } else { Progress::End })
    }

    fn rewind(&mut self, seq: Seq) -> Result<(), SourceError> {
        self.next = usize::try_from(seq.0).unwrap();
        Ok(())
    }

    fn read(&mut self, seq: Seq, sink: &mut dyn FnMut(Arrived<'_>)) -> Result<bool, SourceError> {
        Ok(self.arrived(usize::try_from(seq.0).unwrap()).map(sink).is_some())
    }

    /// Large enough steps that every poll leaves a checkpoint.
    fn position(&self) -> (u64, Option<u64>) {
        (self.next as u64 * FIRST_SPACING, None)
    }
}

fn timeline(entries: Vec<Recorded>, at_once: usize, by_session: bool) -> Timeline {
    let origin = Origin {
        name: "memory".into(),
        format: "tape",
        header: None,
        started_at: None,
        has_times: true,
        fallback_unit: UnitKey::from("memory"),
    };
    Timeline::new(Box::new(Memory { origin, entries: Arc::new(entries), by_session, next: 0, at_once }))
}

fn played(mut timeline: Timeline) -> Timeline {
    while timeline.advance(1, &mut |_| {}).unwrap() == Progress::More {}
    timeline
}

fn note(lane: Option<(&str, u32)>, note: &Note) -> Recorded {
    (lane.map(|(unit, number)| (unit.to_owned(), number)), note.to_json(), true)
}

fn out(unit: &str, number: u32, line: &str) -> Recorded {
    (Some((unit.to_owned(), number)), line.as_bytes().to_vec(), false)
}

fn ended(outcome: Outcome) -> Note {
    let (stop, cause) = (StopReason::Natural, Cause::Completed);
    Note::AttemptEnded(Box::new(AttemptEnded {
        verdict: Verdict { outcome, stop, cause, reason: "said so".into(), remedy: None },
        tool_failures: 0,
        failed_call: None,
        exit_code: Some(0),
        signal: None,
        stderr_tail: vec![],
        wrote: vec![],
        work: Default::default(),
        more: serde_json::Map::default(),
    }))
}

fn call(id: &str) -> String {
    format!(
        r#"{{"type":"assistant","session_id":"s","message":{{"id":"m-{id}","model":"x","content":[{{"type":"tool_use","id":"{id}","name":"mcp__ktx__wiki_read","input":{{"key":"a"}}}}]}}}}"#
    )
}

fn answer(id: &str, failed: bool) -> String {
    format!(
        r#"{{"type":"user","session_id":"s","message":{{"content":[{{"type":"tool_result","tool_use_id":"{id}","content":"x","is_error":{failed}}}]}}}}"#
    )
}

const INIT: &str = r#"{"type":"system","subtype":"init","session_id":"s","model":"sonnet","cwd":"/p","tools":[]}"#;
const RESULT: &str = r#"{"type":"result","subtype":"success","is_error":false,"result":"ok","session_id":"s","total_cost_usd":0.5,"usage":{"input_tokens":7}}"#;

fn a_run() -> Vec<Recorded> {
    let planned = Note::RunPlanned(Box::new(RunPlanned {
        units: vec![
            PlannedUnit { unit: "a".into(), ..PlannedUnit::default() },
            PlannedUnit { unit: "b".into(), ..PlannedUnit::default() },
        ],
        ..RunPlanned::default()
    }));
    let started = Note::AttemptStarted(Box::new(AttemptStarted { step_budget: 40, ..AttemptStarted::default() }));
    vec![
        note(None, &planned),
        note(Some(("a", 1)), &started),
        out("a", 1, INIT),
        out("a", 1, &call("t1")),
        note(Some(("b", 1)), &started),
        out("b", 1, INIT),
        out("a", 1, &answer("t1", true)),
        out("a", 1, "garbage"),
        out("a", 1, RESULT),
        note(Some(("a", 1)), &ended(Outcome::Failed)),
        note(Some(("a", 2)), &Note::RetryRequested { next: 2, amendment: None }),
        note(Some(("a", 2)), &started),
        out("a", 2, INIT),
        out("a", 2, &call("t1")),
        out("a", 2, &answer("t1", false)),
        out("a", 2, RESULT),
        note(Some(("a", 2)), &ended(Outcome::Succeeded)),
        out("b", 1, &call("t9")),
    ]
}

/// An attempt in session `s`, billed by a release.
fn billed(number: u32, release: &str, resume: Option<&str>, bill: f64) -> Vec<Recorded> {
    let amendment = resume.map(|resume| Amendment { resume: Some(resume.into()), ..Amendment::default() });
    let started = Note::AttemptStarted(Box::new(AttemptStarted { amendment, ..AttemptStarted::default() }));
    let init = format!(
        r#"{{"type":"system","subtype":"init","session_id":"s","claude_code_version":"{release}","tools":[],"mcp_servers":[]}}"#
    );
    let result =
        format!(r#"{{"type":"result","subtype":"success","is_error":false,"session_id":"s","total_cost_usd":{bill}}}"#);
    vec![note(Some(("a", number)), &started), out("a", number, &init), out("a", number, &result)]
}

#[test]
fn what_a_session_had_cost_before_is_not_counted_again() {
    let cents = |cost: Option<f64>| cost.map(|cost| (cost * 100.0).round() as u32);
    let costs = |release: &str, resume: Option<&str>| -> Vec<u32> {
        let attempts =
            [billed(1, release, None, 0.25), billed(2, release, resume, 0.75), billed(3, release, resume, 1.0)];
        let timeline = played(timeline(attempts.concat(), 3, false));
        let attempts = &timeline.story().state.units[0].attempts;
        attempts.iter().map(|attempt| cents(attempt.cost_usd).unwrap()).collect()
    };
    assert_eq!(costs("2.1.330", Some("s")), [25, 50, 25]);
    assert_eq!(costs("2.1.277 (Claude Code)", Some("s")), [25, 50, 25]);
    assert_eq!(costs("2.1.223", Some("s")), [25, 75, 100], "older releases begin anew");
    assert_eq!(costs("2.1.330", None), [25, 75, 100]);
    // Nobody knows what the session had cost before.
    let alone = |release: &str| {
        let timeline = played(timeline(billed(1, release, Some("s"), 0.75), 1, false));
        cents(timeline.story().state.units[0].attempts[0].cost_usd)
    };
    assert_eq!([alone("2.1.300"), alone("2.1.223"), alone("?")], [None, Some(75), None]);
    assert_eq!(costs("?", Some("s")), [25, 50, 25], "never more than it was");
}

#[test]
fn what_a_person_denies_is_a_denial_and_no_failure() {
    let decided = |decision| {
        let note_of = Note::CallDecided { tool_use_id: Some("t1".into()), decision, input: None, reason: None };
        vec![
            out("a", 1, INIT),
            out("a", 1, &call("t1")),
            note(Some(("a", 1)), &note_of),
            out("a", 1, &answer("t1", true)),
        ]
    };
    for (decision, counts, end) in
        [(CallDecision::Denied, (0, 1), RowEnd::Denied), (CallDecision::Allowed, (1, 0), RowEnd::Failed)]
    {
        let timeline = played(timeline(decided(decision), 3, false));
        let story = timeline.story();
        let attempt = &story.state.units[0].attempts[0];
        assert_eq!((attempt.failures, attempt.denials), counts, "{decision:?}");
        let row = story.rows(attempt.lane).iter().find(|row| row.kind == RowKind::Tool).unwrap();
        assert_eq!(row.end(story.state.entries), end);
    }
}

#[test]
fn a_run_is_told_unit_by_unit() {
    let timeline = played(timeline(a_run(), 3, false));
    let state = &timeline.story().state;
    let [a, b] = &state.units[..] else { panic!("two units") };
    assert_eq!((a.status, a.attempts.len()), (UnitStatus::Succeeded, 2));
    assert_eq!((a.attempts[0].failures, a.attempts[0].calls, a.attempts[0].turns), (1, 1, 1));
    assert_eq!(a.attempts[0].completed, Some(true), "the agent was content; the verdict was not");
    assert_eq!(a.attempts[0].verdict.as_ref().unwrap().outcome, Outcome::Failed);
    assert_eq!(a.attempts[1].cost_usd, Some(0.5));
    assert_eq!(b.status, UnitStatus::Interrupted, "its record breaks off");
    assert_eq!(b.attempts[0].open_calls, 0);
    assert_eq!(state.lost.malformed, 1);
}

#[test]
fn the_past_shows_open_calls_open() {
    let mut timeline = played(timeline(a_run(), 2, false));
    let lane = timeline.story().state.units[0].attempts[0].lane;
    let ends = |timeline: &Timeline| -> Vec<RowEnd> {
        let story = timeline.story();
        story.rows(lane).iter().map(|row: &Row| row.end(story.state.entries)).collect()
    };
    let all = ends(&timeline);
    timeline.seek(5).unwrap();
    assert_eq!(ends(&timeline).last(), Some(&RowEnd::Open));
    assert_eq!(timeline.story().state.units[0].status, UnitStatus::Running);
    timeline.seek(u64::MAX).unwrap();
    assert_eq!(ends(&timeline), all);
}

#[test]
fn a_capture_is_judged_by_its_result() {
    let lines = [INIT, RESULT].map(|line| (None, line.as_bytes().to_vec(), false));
    let timeline = played(timeline(lines.to_vec(), 1, true));
    let unit = &timeline.story().state.units[0];
    assert_eq!((unit.key.as_str(), unit.status), ("s", UnitStatus::Succeeded));
}

#[test]
fn a_capture_without_a_result_is_interrupted_and_still_completes_once() {
    let lines = [INIT, &call("t1")].map(|line| (None, line.as_bytes().to_vec(), false));
    let mut timeline = timeline(lines.to_vec(), 1, true);
    let mut completed = 0;
    let mut count = |emitted: Emitted<'_>| {
        if let Emitted::Event { event: crate::actions::Event::Completed(event), .. } = emitted {
            assert!(!event.ok);
            completed += 1;
        }
    };
    while timeline.advance(1, &mut count).unwrap() == Progress::More {}
    timeline.advance(1, &mut count).unwrap();
    assert_eq!(completed, 1);
    assert_eq!(timeline.story().state.units[0].status, UnitStatus::Interrupted);
}

#[test]
fn frames_before_the_first_session_id_belong_to_it() {
    let hello = r#"{"type":"control_request","request_id":"r","request":{"subtype":"initialize"}}"#;
    let lines = [hello, INIT, RESULT].map(|line| (None, line.as_bytes().to_vec(), false));
    let timeline = played(timeline(lines.to_vec(), 1, true));
    let units = &timeline.story().state.units;
    assert_eq!(units.len(), 1);
    assert_eq!(units[0].key.as_str(), "s");
}

#[test]
fn the_largest_numbers_of_a_stranger_are_only_large() {
    let most = u64::MAX;
    let tokens = format!(
        r#"{{"type":"assistant","message":{{"content":[],"usage":{{"input_tokens":{most},"output_tokens":{most}}}}}}}"#
    );
    let scheduled = Note::RetryScheduled { next: u32::MAX, delay_ms: most, cause: Cause::Transient };
    let scheduled = note(Some(("u", u32::MAX)), &scheduled);
    let entries = vec![out("u", 1, &tokens), out("u", 1, &tokens), scheduled, note(None, &Note::LimitLifted)];
    let mut timeline = timeline(entries, 1, false);
    timeline.seek(3).unwrap();
    let unit = &timeline.story().state.units[0];
    assert_eq!(unit.attempts[0].tokens.input, most);
    assert_eq!(unit.retry_at, Some(Millis(most)));
}

fn fresh(entries: u64, at_once: usize) -> (RunState, Vec<Vec<(Row, RowEnd)>>) {
    let mut timeline = timeline(a_run(), at_once, false);
    while timeline.story().state.entries < entries {
        timeline.seek(timeline.story().state.entries + 1).unwrap();
    }
    seen(&timeline)
}

/// Everything a screen could show of the moment. A row's end beyond the moment must not matter.
fn seen(timeline: &Timeline) -> (RunState, Vec<Vec<(Row, RowEnd)>>) {
    let story = timeline.story();
    let entries = story.state.entries;
    let lanes = story.state.units.iter().flat_map(|unit| &unit.attempts).map(|attempt| {
        story
            .rows(attempt.lane)
            .iter()
            .map(|row| (Row::new(row.first(), row.block, row.kind, RowEnd::Ok, row.depth), row.end(entries)))
            .collect()
    });
    (story.state.clone(), lanes.collect())
}

/// Stops before a moment, or behind an entry.
struct Bound {
    upto: Moment,
    behind: Option<u64>,
}

impl Guide for Bound {
    fn is_beyond(&mut self, arrived: &Arrived<'_>) -> bool {
        !self.upto.takes(arrived)
    }

    fn stops_behind(&mut self, arrived: &Arrived<'_>, story: &Story) -> bool {
        assert_eq!(story.state.entries, arrived.seq.0 + 1);
        self.behind == Some(arrived.seq.0)
    }
}

proptest! {
    #[test]
    fn every_way_to_a_moment_leads_to_the_same_moment(
        jumps in prop::collection::vec(0..19_u64, 1..8),
        at_once in 1..6_usize,
    ) {
        let mut timeline = timeline(a_run(), at_once, false);
        for jump in jumps {
            timeline.seek(jump).unwrap();
            prop_assert_eq!(timeline.story().state.entries, jump.min(18));
            prop_assert_eq!(seen(&timeline), fresh(jump.min(18), 1));
        }
    }

    #[test]
    fn reading_ahead_and_going_by_time_lead_to_the_same_moment(
        moves in prop::collection::vec((0..19_u64, 0..4_u8, 0..4_usize), 1..12),
        at_once in 1..6_usize,
    ) {
        let mut timeline = timeline(a_run(), at_once, false);
        for (to, how, ahead) in moves {
            let shown = seen(&timeline);
            for _ in 0..ahead {
                timeline.scout(1).unwrap();
            }
            prop_assert_eq!(seen(&timeline), shown, "what is shown stays");
            let before = timeline.story().state.entries;
            let there = match how {
                0 => {
                    timeline.seek(to).unwrap();
                    to
                }
                1 => {
                    timeline.seek_moment(Moment::Time(Millis(to * 100 + 50))).unwrap();
                    to + 1
                }
                2 => {
                    let mut guide = Bound { upto: Moment::Entries(to), behind: None };
                    while timeline.advance_guided(1, &mut guide).unwrap() == Advance::More {}
                    to.max(before)
                }
                _ => {
                    let mut guide = Bound { upto: Moment::Entries(99), behind: Some(to) };
                    while timeline.advance_guided(1, &mut guide).unwrap() == Advance::More {}
                    if before <= to { to + 1 } else { 18 }
                }
            };
            prop_assert_eq!(timeline.story().state.entries, there.min(18));
            prop_assert_eq!(seen(&timeline), fresh(there.min(18), 1));
            let present = timeline.present();
            prop_assert!(present.entries == timeline.known() || timeline.reaches(Moment::Entries(99)));
        }
        while timeline.scout(1).unwrap() == Progress::More {}
        let chronicle = timeline.chronicle();
        let straight = played(super::tests::timeline(a_run(), 1, false));
        prop_assert_eq!(chronicle.cells(7), straight.chronicle().cells(7));
        prop_assert_eq!(Mark::ALL.map(|mark| chronicle.count(mark)), [3, 0, 0, 1]);
    }

    #[test]
    fn how_entries_arrive_does_not_matter(at_once in 1..19_usize) {
        prop_assert_eq!(seen(&played(timeline(a_run(), at_once, false))), seen(&played(timeline(a_run(), 1, false))));
    }

    #[test]
    fn any_bytes_fold(lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..12)) {
        let entries = lines.into_iter().map(|line| (None, line, false)).collect();
        let timeline = played(timeline(entries, 2, true));
        prop_assert!(timeline.at_end());
    }
}

fn held(id: &str) -> Note {
    Note::CallHeld {
        tool: "wiki_write".into(),
        tool_use_id: Some(id.into()),
        input: serde_json::json!({"key": "a"}),
        reached: None,
    }
}

fn decided(id: &str, decision: CallDecision) -> Note {
    Note::CallDecided { tool_use_id: Some(id.into()), decision, input: None, reason: None }
}

/// Unit `a` is held from before its first attempt; two calls wait at once, and a third when the record breaks off.
fn a_held_run() -> Vec<Recorded> {
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
        note(Some(("a", 1)), &ended(Outcome::Stopped)),
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
        let [a, _] = &timeline.story().state.units[..] else { panic!("two units") };
        let waits: Vec<_> = a.latest().iter().flat_map(|attempt| &attempt.held).map(|call| &*call.tool).collect();
        seen.push(format!("{} {} {}", a.status.word(), waits.len(), a.is_held()));
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
    assert_eq!(timeline.story().state.units[1].status, UnitStatus::Interrupted, "its record breaks off");
    assert!(timeline.story().state.units[1].held().is_none());
}

#[test]
fn a_hold_is_told() {
    let mut timeline = timeline(a_held_run(), 3, false);
    let mut told = Vec::new();
    let mut tell = |emitted: Emitted<'_>| {
        if let Emitted::Unit { unit: "a", status, reason, .. } = emitted {
            told.push(format!("{}: {}", status.word(), reason.unwrap_or_default()));
        }
    };
    while timeline.advance(1, &mut tell).unwrap() == Progress::More {}
    let expected = ["queued: ", "running: ", "held: wiki_write", "running: ", "held: wiki_write", "stopped: said so"];
    assert_eq!(told, expected);
    let lane = timeline.story().state.units[0].attempts[0].lane;
    let story = timeline.story();
    let rows = story.rows(lane);
    let denied: Vec<_> = rows.iter().filter(|row| row.end(99) == RowEnd::Denied).map(|row| row.kind).collect();
    assert_eq!(denied, [RowKind::Tool], "what was denied is told by the call's own row");
    assert_eq!(timeline.chronicle().count(Mark::Denial), 1);
}

#[test]
fn a_moment_before_something_is_found_without_folding() {
    let mut timeline = timeline(a_run(), 1, false);
    timeline.seek(u64::MAX).unwrap();
    let attempts = |state: &RunState| state.units.iter().map(|unit| unit.attempts.len()).sum::<usize>();
    let all = attempts(&timeline.story().state);
    assert!(all > 1);
    for least in (1..=all).rev() {
        timeline.fall_back(|state| attempts(state) < least).unwrap();
        assert!(attempts(&timeline.story().state) < least);
        timeline.seek(timeline.story().state.entries + 1).unwrap();
        assert_eq!(attempts(&timeline.story().state), least, "the last moment before it");
    }
    timeline.fall_back(|_| false).unwrap();
    assert_eq!(timeline.story().state.entries, 0);
}

#[test]
fn a_held_moment_is_the_same_whichever_way_it_is_reached() {
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

/// A round broke off, or was killed; the next one is about another unit.
#[test]
fn what_was_put_together_in_vain_is_not_saved_by_a_later_round() {
    let (a, b) = (Some(("a", 1)), Some(("b", 1)));
    let patch = || Note::PatchWritten(PatchWritten { path: Some("x.patch".into()), ..PatchWritten::default() });
    let begun = |unit: &str| Note::Integrating(Integrating { units: vec![unit.into()], ..Integrating::default() });
    let accepted = || {
        let result = Integration::Accepted;
        Note::PatchIntegrated(Box::new(PatchIntegrated { result, ..PatchIntegrated::default() }))
    };
    let unseen = vec![UnitKey::from("b")];
    for vain in [Note::SaveFailed(SaveFailed::default()), Note::RunEnded(RunEnded::default())] {
        let mut entries = vec![note(None, &Note::RunPlanned(Box::default()))];
        for lane in [a, b] {
            entries.extend([note(lane, &patch()), note(lane, &ended(Outcome::Succeeded))]);
        }
        entries.extend([note(None, &begun("a")), note(a, &accepted()), note(None, &vain)]);
        entries.extend([note(None, &begun("b")), note(b, &accepted())]);
        let saved = Saved { commit: Some("c".into()), unreconciled: unseen.clone(), ..Saved::default() };
        entries.push(note(None, &Note::Saved(saved)));
        let state = played(timeline(entries, 3, false)).story().state.clone();
        let unsaved = |at: usize| state.units[at].attempts[0].is_unsaved();
        assert!(unsaved(0) && !unsaved(1), "after {vain:?}: {:?}", state.units);
        assert_eq!(*state.unreconciled, unseen);
    }
}
