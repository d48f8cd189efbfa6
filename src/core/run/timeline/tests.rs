//! Properties of the timeline: every path to a moment yields the same state.

mod ends;
mod held;

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{
    run::{
        ActivityMark, EntryScope, SourceInfo,
        state::{RowKind, RowOutcome, StreamRow, UnitStatus},
    },
    tape::{
        EntryBody, Millis, Note, RunId, UnitKey, entry,
        note::{
            Amendment, AttemptEnded, AttemptOutcome, AttemptStarted, CallDecision, ContinuedWork,
            IntegrationStarted, PatchIntegrated, PatchResult, PatchWritten, PlannedUnit, RunEnded,
            RunPlanned, RunSaved, SaveFailed, StopReason, Verdict, VerdictCause,
        },
    },
};

/// Unit and attempt (`None` for the run, or for the session that the line names), bytes, and whether the entry is a
/// note.
type RecordedEntry = (Option<(String, u32)>, Vec<u8>, bool);

/// Entries in memory, passed on a few at a time.
struct MemorySource {
    origin: SourceInfo,
    entries: Arc<Vec<RecordedEntry>>,
    by_session: bool,
    next: usize,
    at_once: usize,
}

impl MemorySource {
    fn entry(&self, seq: usize) -> Option<EntryRef<'_>> {
        let (attempt, bytes, is_note) = self.entries.get(seq)?;
        let attempt = match attempt {
            Some((unit, number)) => EntryScope::Attempt(unit, *number),
            None if self.by_session => EntryScope::BySession,
            None => EntryScope::Run,
        };
        let body = if *is_note {
            EntryBody::Note(bytes)
        } else {
            entry::stdout_body(bytes, crate::decode::is_json(bytes))
        };
        Some(EntryRef {
            seq: Seq(seq as u64),
            at: Millis(seq as u64 * 100),
            scope: attempt,
            body,
            is_well_formed: true,
            decoded: None,
        })
    }
}

impl EntrySource for MemorySource {
    fn info(&self) -> &SourceInfo {
        &self.origin
    }

    fn poll(
        &mut self,
        _: usize,
        sink: &mut dyn FnMut(EntryRef<'_>),
    ) -> Result<PollStatus, EntrySourceError> {
        for _ in 0..self.at_once {
            let Some(entry) = self.entry(self.next) else {
                return Ok(PollStatus::End);
            };
            sink(entry);
            self.next += 1;
        }
        Ok(if self.next < self.entries.len() {
            PollStatus::More
        } else {
            PollStatus::End
        })
    }

    fn rewind(&mut self, seq: Seq) -> Result<(), EntrySourceError> {
        self.next = usize::try_from(seq.0).unwrap();
        Ok(())
    }

    fn read(
        &mut self,
        seq: Seq,
        sink: &mut dyn FnMut(EntryRef<'_>),
    ) -> Result<bool, EntrySourceError> {
        Ok(self
            .entry(usize::try_from(seq.0).unwrap())
            .map(sink)
            .is_some())
    }

    /// Positions grow in steps that are large enough for a checkpoint after each poll.
    fn position(&self) -> (u64, Option<u64>) {
        (self.next as u64 * INITIAL_CHECKPOINT_SPACING, None)
    }
}

fn timeline(entries: Vec<RecordedEntry>, at_once: usize, by_session: bool) -> Timeline {
    let origin = SourceInfo {
        title: None,
        name: "memory".into(),
        format: "tape",
        header: None,
        started_at: None,
        has_times: true,
        fallback_unit: UnitKey::from("memory"),
        recovered: 0,
    };
    Timeline::new(Box::new(MemorySource {
        origin,
        entries: Arc::new(entries),
        by_session,
        next: 0,
        at_once,
    }))
}

fn played(mut timeline: Timeline) -> Timeline {
    while timeline.advance(1, &mut |_| {}).unwrap() == PollStatus::More {}
    timeline
}

fn note(attempt: Option<(&str, u32)>, note: &Note) -> RecordedEntry {
    (
        attempt.map(|(unit, number)| (unit.to_owned(), number)),
        note.to_json(),
        true,
    )
}

fn out(unit: &str, number: u32, line: &str) -> RecordedEntry {
    (
        Some((unit.to_owned(), number)),
        line.as_bytes().to_vec(),
        false,
    )
}

fn ended(outcome: AttemptOutcome) -> Note {
    let (stop, cause) = (StopReason::Natural, VerdictCause::Completed);
    Note::AttemptEnded(Box::new(AttemptEnded {
        verdict: Verdict {
            outcome,
            stop,
            cause,
            reason: "a reason".into(),
            remedy: None,
        },
        tool_failures: 0,
        failed_call: None,
        exit_code: Some(0),
        signal: None,
        stderr_tail: vec![],
        wrote: vec![],
        work: Default::default(),
        extra: serde_json::Map::default(),
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

const INIT: &str =
    r#"{"type":"system","subtype":"init","session_id":"s","model":"sonnet","cwd":"/p","tools":[]}"#;
const RESULT: &str = r#"{"type":"result","subtype":"success","is_error":false,"result":"ok","session_id":"s","total_cost_usd":0.5,"usage":{"input_tokens":7}}"#;

fn a_run() -> Vec<RecordedEntry> {
    let planned = Note::RunPlanned(Box::new(RunPlanned {
        units: vec![
            PlannedUnit {
                unit: "a".into(),
                ..PlannedUnit::default()
            },
            PlannedUnit {
                unit: "b".into(),
                ..PlannedUnit::default()
            },
        ],
        ..RunPlanned::default()
    }));
    let started = Note::AttemptStarted(Box::new(AttemptStarted {
        step_budget: 40,
        ..AttemptStarted::default()
    }));
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
        note(Some(("a", 1)), &ended(AttemptOutcome::Failed)),
        note(
            Some(("a", 2)),
            &Note::RetryRequested {
                next: 2,
                amendment: None,
            },
        ),
        note(Some(("a", 2)), &started),
        out("a", 2, INIT),
        out("a", 2, &call("t1")),
        out("a", 2, &answer("t1", false)),
        out("a", 2, RESULT),
        note(Some(("a", 2)), &ended(AttemptOutcome::Succeeded)),
        out("b", 1, &call("t9")),
    ]
}

/// An attempt in session `s` with the costs as a release reports them.
fn billed(number: u32, release: &str, resume: Option<&str>, cost: f64) -> Vec<RecordedEntry> {
    let amendment = resume.map(|resume| Amendment {
        resume: Some(resume.into()),
        ..Amendment::default()
    });
    let started = Note::AttemptStarted(Box::new(AttemptStarted {
        amendment,
        ..AttemptStarted::default()
    }));
    let init = format!(
        r#"{{"type":"system","subtype":"init","session_id":"s","claude_code_version":"{release}","tools":[],"mcp_servers":[]}}"#
    );
    let result = format!(
        r#"{{"type":"result","subtype":"success","is_error":false,"session_id":"s","total_cost_usd":{cost}}}"#
    );
    vec![
        note(Some(("a", number)), &started),
        out("a", number, &init),
        out("a", number, &result),
    ]
}

#[test]
fn closed_rows_are_another_version() {
    let open = played(timeline(a_run(), 1, false).with_open_end(true));
    let mut closed = played(timeline(a_run(), 1, false));
    let version = closed.view().state.version();
    assert_eq!(version.0, open.view().state.version().0);
    assert_ne!(version, open.view().state.version());
    closed.seek(1).unwrap();
    assert!(!closed.view().state.is_closed);
}

#[test]
fn prior_session_cost_is_not_counted_again() {
    let cents = |cost: Option<f64>| cost.map(|cost| (cost * 100.0).round() as u32);
    let costs = |release: &str, resume: Option<&str>| -> Vec<u32> {
        let attempts = [
            billed(1, release, None, 0.25),
            billed(2, release, resume, 0.75),
            billed(3, release, resume, 1.0),
        ];
        let timeline = played(timeline(attempts.concat(), 3, false));
        let attempts = &timeline.view().state.units[0].attempts;
        attempts
            .iter()
            .map(|attempt| cents(attempt.counts.cost_usd).unwrap())
            .collect()
    };
    assert_eq!(costs("2.1.330", Some("s")), [25, 50, 25]);
    assert_eq!(costs("2.1.277 (Claude Code)", Some("s")), [25, 50, 25]);
    assert_eq!(
        costs("2.1.223", Some("s")),
        [25, 75, 100],
        "totals of older releases start at zero"
    );
    assert_eq!(costs("2.1.330", None), [25, 75, 100]);
    // The cost of the session before this attempt is unknown.
    let alone = |release: &str| {
        let timeline = played(timeline(billed(1, release, Some("s"), 0.75), 1, false));
        cents(timeline.view().state.units[0].attempts[0].counts.cost_usd)
    };
    assert_eq!(
        [alone("2.1.300"), alone("2.1.223"), alone("?")],
        [None, Some(75), None]
    );
    assert_eq!(
        costs("?", Some("s")),
        [25, 50, 25],
        "never more than it was"
    );
}

#[test]
fn cost_of_a_session_in_a_prior_run_is_not_counted_again() {
    let costs = |prior: Option<f64>| -> Vec<Option<u32>> {
        let work = ContinuedWork {
            run: Some(RunId(uuid::Uuid::from_u128(7))),
            attempt: 1,
            cost_usd: prior,
            ..ContinuedWork::default()
        };
        let entries = [
            vec![note(Some(("a", 1)), &Note::WorkContinued(work))],
            billed(1, "2.1.330", Some("s"), 0.75),
            billed(2, "2.1.330", Some("s"), 1.0),
        ];
        let timeline = played(timeline(entries.concat(), 3, false));
        let attempts = timeline.view().state.units[0].attempts.iter();
        attempts
            .map(|attempt| Some((attempt.counts.cost_usd? * 100.0).round() as u32))
            .collect()
    };
    assert_eq!(costs(Some(0.25)), [Some(50), Some(25)]);
    assert_eq!(costs(None), [None, None]);
}

#[test]
fn denial_by_a_person_is_not_a_failure() {
    let decided = |decision| {
        let note_of = Note::CallDecided {
            tool_use_id: Some("t1".into()),
            decision,
            input: None,
            reason: None,
            rule: None,
        };
        vec![
            out("a", 1, INIT),
            out("a", 1, &call("t1")),
            note(Some(("a", 1)), &note_of),
            out("a", 1, &answer("t1", true)),
        ]
    };
    for (decision, counts, end) in [
        (CallDecision::Denied, (0, 1), RowOutcome::Denied),
        (CallDecision::Allowed, (1, 0), RowOutcome::Failed),
    ] {
        let timeline = played(timeline(decided(decision), 3, false));
        let view = timeline.view();
        let attempt = &view.state.units[0].attempts[0];
        assert_eq!(
            (attempt.counts.failures, attempt.counts.denials),
            counts,
            "{decision:?}"
        );
        let row = view
            .rows(attempt.id)
            .iter()
            .find(|row| row.kind == RowKind::Tool)
            .unwrap();
        assert_eq!(row.end(view.state.entries), end);
    }
}

#[test]
fn run_emits_status_changes_per_unit() {
    let timeline = played(timeline(a_run(), 3, false));
    let state = &timeline.view().state;
    let [a, b] = &state.units[..] else {
        panic!("two units")
    };
    assert_eq!((a.status, a.attempts.len()), (UnitStatus::Succeeded, 2));
    assert_eq!(
        (
            a.attempts[0].counts.failures,
            a.attempts[0].counts.calls,
            a.attempts[0].counts.turns
        ),
        (1, 1, 1)
    );
    assert_eq!(
        a.attempts[0].reported_ok,
        Some(true),
        "the agent was content; the verdict was not"
    );
    assert_eq!(
        a.attempts[0].verdict.as_ref().unwrap().outcome,
        AttemptOutcome::Failed
    );
    assert_eq!(a.attempts[1].counts.cost_usd, Some(0.5));
    assert_eq!(
        b.status,
        UnitStatus::Interrupted,
        "the tape ends before the run"
    );
    assert_eq!(b.attempts[0].counts.open_calls, 0);
    assert_eq!(state.loss_counts.malformed, 1);
}

#[test]
fn seeking_back_shows_calls_as_open() {
    let mut timeline = played(timeline(a_run(), 2, false));
    let attempt_id = timeline.view().state.units[0].attempts[0].id;
    let ends = |timeline: &Timeline| -> Vec<RowOutcome> {
        let view = timeline.view();
        view.rows(attempt_id)
            .iter()
            .map(|row: &StreamRow| row.end(view.state.entries))
            .collect()
    };
    let all = ends(&timeline);
    timeline.seek(5).unwrap();
    assert_eq!(ends(&timeline).last(), Some(&RowOutcome::Open));
    assert_eq!(timeline.view().state.units[0].status, UnitStatus::Running);
    timeline.seek(u64::MAX).unwrap();
    assert_eq!(ends(&timeline), all);
}

#[test]
fn a_capture_is_judged_by_its_result() {
    let lines = [INIT, RESULT].map(|line| (None, line.as_bytes().to_vec(), false));
    let timeline = played(timeline(lines.to_vec(), 1, true));
    let unit = &timeline.view().state.units[0];
    assert_eq!(
        (unit.key.as_str(), unit.status),
        ("s", UnitStatus::Succeeded)
    );
}

#[test]
fn capture_without_result_is_interrupted_once() {
    let lines = [INIT, &call("t1")].map(|line| (None, line.as_bytes().to_vec(), false));
    let mut timeline = timeline(lines.to_vec(), 1, true);
    let mut completed = 0;
    let mut count = |emitted: SinkEvent<'_>| {
        if let SinkEvent::Agent {
            event: crate::actions::AgentEvent::Completed(event),
            ..
        } = emitted
        {
            assert!(!event.ok);
            completed += 1;
        }
    };
    while timeline.advance(1, &mut count).unwrap() == PollStatus::More {}
    timeline.advance(1, &mut count).unwrap();
    assert_eq!(completed, 1);
    assert_eq!(
        timeline.view().state.units[0].status,
        UnitStatus::Interrupted
    );
}

#[test]
fn frames_before_the_first_session_id_belong_to_it() {
    let hello = r#"{"type":"control_request","request_id":"r","request":{"subtype":"initialize"}}"#;
    let lines = [hello, INIT, RESULT].map(|line| (None, line.as_bytes().to_vec(), false));
    let timeline = played(timeline(lines.to_vec(), 1, true));
    let units = &timeline.view().state.units;
    assert_eq!(units.len(), 1);
    assert_eq!(units[0].key.as_str(), "s");
}

#[test]
fn untrusted_numbers_saturate() {
    let most = u64::MAX;
    let tokens = format!(
        r#"{{"type":"assistant","message":{{"content":[],"usage":{{"input_tokens":{most},"output_tokens":{most}}}}}}}"#
    );
    let scheduled = Note::RetryScheduled {
        next: u32::MAX,
        delay_ms: most,
        cause: VerdictCause::Transient,
    };
    let scheduled = note(Some(("u", u32::MAX)), &scheduled);
    let entries = vec![
        out("u", 1, &tokens),
        out("u", 1, &tokens),
        scheduled,
        note(None, &Note::LimitLifted),
    ];
    let mut timeline = timeline(entries, 1, false);
    timeline.seek(3).unwrap();
    let unit = &timeline.view().state.units[0];
    assert_eq!(unit.attempts[0].counts.tokens.input, most);
    assert_eq!(unit.retry_at, Some(Millis(most)));
}

fn fresh(entries: u64, at_once: usize) -> (RunState, Vec<Vec<(StreamRow, RowOutcome)>>) {
    let mut timeline = timeline(a_run(), at_once, false);
    while timeline.view().state.entries < entries {
        timeline.seek(timeline.view().state.entries + 1).unwrap();
    }
    seen(&timeline)
}

/// Everything that a screen could show at the moment. The end of a row after the moment must not matter.
fn seen(timeline: &Timeline) -> (RunState, Vec<Vec<(StreamRow, RowOutcome)>>) {
    let view = timeline.view();
    let entries = view.state.entries;
    let attempts = view
        .state
        .units
        .iter()
        .flat_map(|unit| &unit.attempts)
        .map(|attempt| {
            view.rows(attempt.id)
                .iter()
                .map(|row| {
                    (
                        StreamRow::new(row.first(), row.block, row.kind, RowOutcome::Ok, row.depth),
                        row.end(entries),
                    )
                })
                .collect()
        });
    (view.state.clone(), attempts.collect())
}

/// Stops before a moment, or after an entry.
struct StopAt {
    upto: SeekTarget,
    behind: Option<u64>,
}

impl StopCondition for StopAt {
    fn stops_before(&mut self, entry: &EntryRef<'_>) -> bool {
        !self.upto.includes_entry(entry)
    }

    fn stops_after(&mut self, entry: &EntryRef<'_>, view: &RunView) -> bool {
        assert_eq!(view.state.entries, entry.seq.0 + 1);
        self.behind == Some(entry.seq.0)
    }
}

proptest! {
    #[test]
    fn seek_gives_the_same_state_on_every_path(
        jumps in prop::collection::vec(0..19_u64, 1..8),
        at_once in 1..6_usize,
    ) {
        let mut timeline = timeline(a_run(), at_once, false);
        for jump in jumps {
            timeline.seek(jump).unwrap();
            prop_assert_eq!(timeline.view().state.entries, jump.min(18));
            prop_assert_eq!(seen(&timeline), fresh(jump.min(18), 1));
        }
    }

    #[test]
    fn prefetch_and_clock_do_not_change_the_state(
        moves in prop::collection::vec((0..19_u64, 0..4_u8, 0..4_usize), 1..12),
        at_once in 1..6_usize,
    ) {
        let mut timeline = timeline(a_run(), at_once, false);
        for (to, how, ahead) in moves {
            let shown = seen(&timeline);
            for _ in 0..ahead {
                timeline.prefetch(1).unwrap();
            }
            prop_assert_eq!(seen(&timeline), shown, "the shown moment does not change");
            let before = timeline.view().state.entries;
            let there = match how {
                0 => {
                    timeline.seek(to).unwrap();
                    to
                }
                1 => {
                    timeline.seek_to(SeekTarget::Time(Millis(to * 100 + 50))).unwrap();
                    to + 1
                }
                2 => {
                    let mut guide = StopAt { upto: SeekTarget::Entries(to), behind: None };
                    while timeline.advance_until(1, &mut guide).unwrap() == AdvanceStatus::More {}
                    to.max(before)
                }
                _ => {
                    let mut guide = StopAt { upto: SeekTarget::Entries(99), behind: Some(to) };
                    while timeline.advance_until(1, &mut guide).unwrap() == AdvanceStatus::More {}
                    if before <= to { to + 1 } else { 18 }
                }
            };
            prop_assert_eq!(timeline.view().state.entries, there.min(18));
            prop_assert_eq!(seen(&timeline), fresh(there.min(18), 1));
            let present = timeline.latest_state();
            prop_assert!(present.entries == timeline.known_entries() || timeline.has_read(SeekTarget::Entries(99)));
        }
        while timeline.prefetch(1).unwrap() == PollStatus::More {}
        let activity = timeline.activity();
        let straight = played(super::tests::timeline(a_run(), 1, false));
        prop_assert_eq!(activity.resample(7), straight.activity().resample(7));
        prop_assert_eq!(ActivityMark::ALL.map(|mark| activity.count(mark)), [3, 0, 0, 1, 0]);
    }

    #[test]
    fn batch_size_does_not_change_the_state(at_once in 1..19_usize) {
        prop_assert_eq!(seen(&played(timeline(a_run(), at_once, false))), seen(&played(timeline(a_run(), 1, false))));
    }

    #[test]
    fn any_bytes_fold(lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..12)) {
        let entries = lines.into_iter().map(|line| (None, line, false)).collect();
        let timeline = played(timeline(entries, 2, true));
        prop_assert!(timeline.finished);
    }
}

#[test]
fn first_entry_at_a_time_is_found_wherever_the_cursor_is() {
    let entries = a_run().len() as u64;
    let mut timeline = played(timeline(a_run(), 3, false));
    for cursor in [entries, 2] {
        timeline.seek(cursor).unwrap();
        // Entries are 100 ms apart.
        for at in 0..entries * 100 + 50 {
            let expected = at.div_ceil(100).min(entries);
            let found = timeline.first_entry_at(Millis(at)).unwrap();
            assert_eq!(found, Seq(expected), "{at}");
        }
        assert_eq!(timeline.view().state.entries, cursor);
    }
}

#[test]
fn seek_to_checkpoint_folds_nothing() {
    let mut timeline = timeline(a_run(), 1, false);
    timeline.seek(u64::MAX).unwrap();
    let attempts = |state: &RunState| {
        state
            .units
            .iter()
            .map(|unit| unit.attempts.len())
            .sum::<usize>()
    };
    let all = attempts(&timeline.view().state);
    assert!(all > 1);
    for least in (1..=all).rev() {
        timeline
            .seek_to_checkpoint(|state| attempts(state) < least)
            .unwrap();
        assert!(attempts(&timeline.view().state) < least);
        timeline.seek(timeline.view().state.entries + 1).unwrap();
        assert_eq!(
            attempts(&timeline.view().state),
            least,
            "the last moment before it"
        );
    }
    timeline.seek_to_checkpoint(|_| false).unwrap();
    assert_eq!(timeline.view().state.entries, 0);
}

/// The first integration is abandoned; the next one is about another unit.
#[test]
fn abandoned_integration_is_not_saved_by_the_next_one() {
    let (a, b) = (Some(("a", 1)), Some(("b", 1)));
    let patch = || {
        Note::PatchWritten(PatchWritten {
            path: Some("x.patch".into()),
            ..PatchWritten::default()
        })
    };
    let begun = |unit: &str| {
        Note::IntegrationStarted(IntegrationStarted {
            units: vec![unit.into()],
            ..IntegrationStarted::default()
        })
    };
    let accepted = || {
        let result = PatchResult::Accepted;
        Note::PatchIntegrated(Box::new(PatchIntegrated {
            result,
            ..PatchIntegrated::default()
        }))
    };
    let unseen = vec![UnitKey::from("b")];
    for vain in [
        Note::SaveFailed(SaveFailed::default()),
        Note::RunEnded(RunEnded::default()),
    ] {
        let mut entries = vec![note(None, &Note::RunPlanned(Box::default()))];
        for unit in [a, b] {
            entries.extend([
                note(unit, &patch()),
                note(unit, &ended(AttemptOutcome::Succeeded)),
            ]);
        }
        entries.extend([
            note(None, &begun("a")),
            note(a, &accepted()),
            note(None, &vain),
        ]);
        entries.extend([note(None, &begun("b")), note(b, &accepted())]);
        let saved = RunSaved {
            commit: Some("c".into()),
            unreconciled: unseen.clone(),
            ..RunSaved::default()
        };
        entries.push(note(None, &Note::RunSaved(saved)));
        let state = played(timeline(entries, 3, false)).view().state.clone();
        let unsaved = |at: usize| state.units[at].attempts[0].delivery.is_unsaved();
        assert!(
            unsaved(0) && !unsaved(1),
            "after {vain:?}: {:?}",
            state.units
        );
        assert_eq!(*state.publication.unreconciled, unseen);
    }
}
