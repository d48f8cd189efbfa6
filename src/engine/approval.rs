//! Approval of tool calls: held units, the calls that wait for a person, and the person's decisions.
//!
//! One [`ApprovalQueue`] serves every attempt of a run. Requests and decisions are recorded on the tape before they
//! take effect. The module must not know how calls reach it or who decides.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::sync::oneshot;

use self::run_until::RunUntil;
use super::run_meter::RunMeter;
use crate::{
    agent::attempt::{ApprovalDecision, ApprovalGate, ApprovalRequest},
    control::{BreakCondition, UserDecision},
    run::{NewEntry, Recorder, entry_source::RecordError},
    tape::{EntryBody, Note, UnitKey, note::CallDecision},
};

mod run_until;

/// The held units of a run and their waiting calls.
#[derive(Debug)]
pub(crate) struct ApprovalQueue {
    recorder: Arc<dyn Recorder>,
    meter: Arc<RunMeter>,
    units: Mutex<HashMap<UnitKey, UnitApprovals>>,
    /// While the run is paused, the calls of all units wait. Changes only under the lock of the units.
    is_paused: AtomicBool,
}

#[derive(Default)]
struct UnitApprovals {
    is_held: bool,
    /// Calls of the held unit pass until one of them meets this condition.
    until: Option<RunUntil>,
    /// Calls of the held unit pass until this many have been made.
    leash: Option<Leash>,
    /// Failed calls of the attempt when it last made a call.
    failed_calls: usize,
    /// Number of the current or most recent attempt; 0 before the first.
    attempt: u32,
    queued: Vec<QueuedCall>,
    /// Number of the next waiting call.
    next_number: u64,
}

impl fmt::Debug for UnitApprovals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_held: held, until, queued: waiting, .. } = self;
        let waiting = waiting.len();
        f.debug_struct("UnitApprovals")
            .field("is_held", held)
            .field("until", until)
            .field("queued", &waiting)
            .finish_non_exhaustive()
    }
}

/// Lets calls pass and holds every so many.
#[derive(Clone, Copy, Debug)]
struct Leash {
    every: u32,
    /// Calls until the next one waits, including that one.
    left: u32,
}

impl Leash {
    fn to_text(self) -> String {
        match self.every {
            1 => "every call".to_owned(),
            every => format!("every {every} calls"),
        }
    }
}

struct QueuedCall {
    number: u64,
    /// Only the pause of the run holds it.
    is_paused_only: bool,
    call: ApprovalRequest,
    reply: oneshot::Sender<ApprovalWaitOutcome>,
}

/// A call that was added to the queue.
struct ApprovalTicket {
    number: u64,
    /// The condition that the call met, if the unit was running until one.
    met_condition: Option<String>,
    outcome: oneshot::Receiver<ApprovalWaitOutcome>,
}

enum ApprovalWaitOutcome {
    Decided(UserDecision),
    Released,
}

impl ApprovalQueue {
    /// Starts without held units. Notes are written to `recorder`; `meter` provides the cost of the run.
    pub(crate) fn new(recorder: Arc<dyn Recorder>, meter: Arc<RunMeter>) -> Self {
        Self { recorder, meter, units: Mutex::default(), is_paused: AtomicBool::new(false) }
    }

    /// The costs of the run.
    pub(crate) fn meter(&self) -> &Arc<RunMeter> {
        &self.meter
    }

    /// Returns the gate of an attempt.
    pub(crate) fn gate(self: &Arc<Self>, unit: &UnitKey, attempt: u32) -> Arc<dyn ApprovalGate> {
        let mut units = self.units();
        let hold = units.entry(unit.clone()).or_default();
        (hold.attempt, hold.failed_calls) = (attempt, 0);
        if let Some(until) = &mut hold.until {
            until.reset_failures();
        }
        drop(units);
        Arc::new(AttemptApprovalGate { approvals: Arc::clone(self), unit: unit.clone(), attempt })
    }

    /// Holds `unit` at its next tool call.
    pub(crate) fn hold(&self, unit: &UnitKey) {
        let mut units = self.units();
        let hold = units.entry(unit.clone()).or_default();
        if hold.until.take().is_some() || hold.leash.take().is_some() || !hold.is_held {
            hold.is_held = true;
            hold.queued.iter_mut().for_each(|waiting| waiting.is_paused_only = false);
            self.note_or_log(unit, hold.attempt, &Note::HoldRequested);
        }
    }

    /// Lets `unit` run until a call meets one of `conditions` and waits. The current call `from` passes even if it
    /// meets one. Other waiting calls pass too, unless one of them meets a condition; then the unit stops there
    /// immediately.
    pub(crate) fn run_until(&self, unit: &UnitKey, from: Option<&str>, conditions: Vec<BreakCondition>) {
        let mut units = self.units();
        let hold = units.entry(unit.clone()).or_default();
        let until = RunUntil::new(conditions, hold.failed_calls);
        let spent = self.meter.total_usd();
        let stays = |waiting: &QueuedCall| {
            waiting.call.tool_use_id.as_deref() != from && until.met_condition(&waiting.call, spent).is_some()
        };
        let (there, gone): (Vec<_>, Vec<_>) = hold.queued.drain(..).partition(stays);
        hold.queued = there;
        (hold.is_held, hold.leash) = (true, None);
        hold.queued.iter_mut().for_each(|waiting| waiting.is_paused_only = false);
        if hold.queued.is_empty() {
            self.note_or_log(unit, hold.attempt, &Note::RunUntil { condition: until.to_text() });
            hold.until = Some(until);
        }
        for waiting in gone {
            // A closed channel means that the attempt no longer waits.
            let _ = waiting.reply.send(ApprovalWaitOutcome::Decided(UserDecision::Allow));
        }
    }

    /// Holds `unit` at every Nth call; those between pass. Calls that wait still wait.
    pub(crate) fn leash(&self, unit: &UnitKey, every: u32) {
        let mut units = self.units();
        let hold = units.entry(unit.clone()).or_default();
        let leash = Leash { every, left: every };
        hold.queued.iter_mut().for_each(|waiting| waiting.is_paused_only = false);
        (hold.is_held, hold.until, hold.leash) = (true, None, Some(leash));
        self.note_or_log(unit, hold.attempt, &Note::RunUntil { condition: leash.to_text() });
    }

    /// Shows that a unit on a leash continues after a decision.
    fn note_leash(&self, unit: &UnitKey) {
        let units = self.units();
        if let Some(hold) = units.get(unit)
            && let Some(leash) = hold.leash.filter(|_| hold.queued.is_empty())
        {
            self.note_or_log(unit, hold.attempt, &Note::RunUntil { condition: leash.to_text() });
        }
    }

    /// Stops holding `unit`; its waiting calls are made unchanged.
    pub(crate) fn release(&self, unit: &UnitKey) {
        let mut units = self.units();
        let Some(hold) = units.get_mut(unit).filter(|hold| hold.is_held) else { return };
        (hold.is_held, hold.until, hold.leash) = (false, None, None);
        self.note_or_log(unit, hold.attempt, &Note::HoldReleased);
        for waiting in hold.queued.drain(..) {
            // A closed channel means that the attempt no longer waits.
            let _ = waiting.reply.send(ApprovalWaitOutcome::Released);
        }
    }

    /// True if the call with this id waits for a decision, or any call of the unit without an id.
    pub(crate) fn is_waiting(&self, unit: &UnitKey, tool_use_id: Option<&str>) -> bool {
        let units = self.units();
        let mut queued = units.get(unit).into_iter().flat_map(|hold| &hold.queued);
        queued.any(|waiting| tool_use_id.is_none() || waiting.call.tool_use_id.as_deref() == tool_use_id)
    }

    /// Decides the call with this id, or the call that has waited longest. Returns false if no such call waits; the
    /// decision then has no effect.
    pub(crate) fn decide_call(&self, unit: &UnitKey, tool_use_id: Option<&str>, ruling: UserDecision) -> bool {
        let mut units = self.units();
        let Some(hold) = units.get_mut(unit) else { return false };
        let place = hold
            .queued
            .iter()
            .position(|waiting| tool_use_id.is_none() || waiting.call.tool_use_id.as_deref() == tool_use_id);
        place.is_some_and(|place| hold.queued.remove(place).reply.send(ApprovalWaitOutcome::Decided(ruling)).is_ok())
    }

    /// Makes all further calls wait.
    pub(crate) fn pause(&self) {
        let _units = self.units();
        self.is_paused.store(true, Ordering::SeqCst);
    }

    /// Ends a pause: the calls that wait because of it are made unchanged.
    pub(crate) fn resume(&self) {
        let mut units = self.units();
        self.is_paused.store(false, Ordering::SeqCst);
        for hold in units.values_mut() {
            for waiting in hold.queued.extract_if(.., |waiting| waiting.is_paused_only) {
                // A closed channel means that the attempt no longer waits.
                let _ = waiting.reply.send(ApprovalWaitOutcome::Released);
            }
        }
    }

    /// Queues a call of a held unit or of a paused run. Returns `None` if the call may pass.
    fn enqueue(&self, unit: &UnitKey, call: &ApprovalRequest) -> Option<ApprovalTicket> {
        let mut units = self.units();
        let hold = units.get_mut(unit)?;
        hold.failed_calls = call.earlier_failures;
        let is_paused = self.is_paused.load(Ordering::SeqCst);
        if !hold.is_held && !is_paused {
            return None;
        }
        let leashed = hold.leash.as_mut().map(|leash| {
            leash.left = leash.left.saturating_sub(1);
            let is_reached = leash.left == 0;
            if is_reached {
                leash.left = leash.every;
            }
            is_reached.then(|| leash.to_text())
        });
        let is_between = matches!(leashed, Some(None));
        if is_between && !is_paused {
            return None;
        }
        let met = hold.until.as_ref().map(|until| until.met_condition(call, self.meter.total_usd()));
        let reached = match met {
            Some(None) if !is_paused => return None,
            Some(met) => met.map(|condition| condition.to_string()),
            None => leashed.flatten(),
        };
        if met.is_some_and(|met| met.is_some()) {
            hold.until = None;
        }
        let (answer, said) = oneshot::channel();
        let number = hold.next_number;
        hold.next_number += 1;
        let is_paused_only = !hold.is_held || hold.until.is_some() || is_between;
        hold.queued.push(QueuedCall { number, is_paused_only, call: call.clone(), reply: answer });
        Some(ApprovalTicket { number, met_condition: reached, outcome: said })
    }

    fn dequeue(&self, unit: &UnitKey, number: u64) {
        if let Some(hold) = self.units().get_mut(unit) {
            hold.queued.retain(|waiting| waiting.number != number);
        }
    }

    /// The map stays valid if a thread panics while it holds the lock.
    fn units(&self) -> MutexGuard<'_, HashMap<UnitKey, UnitApprovals>> {
        self.units.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record_note(&self, unit: &UnitKey, attempt: u32, note: &Note) -> Result<(), RecordError> {
        let json = note.to_json();
        self.recorder.record(&[NewEntry { attempt: Some((unit, attempt)), body: EntryBody::Note(&json) }])
    }

    /// A failed write only needs a log entry: the next record of the attempt fails in the same way and ends it.
    fn note_or_log(&self, unit: &UnitKey, attempt: u32, note: &Note) {
        if let Err(error) = self.record_note(unit, attempt, note) {
            tracing::error!(%error, "a note is lost");
        }
    }
}

/// The gate of one attempt.
#[derive(Debug)]
struct AttemptApprovalGate {
    approvals: Arc<ApprovalQueue>,
    unit: UnitKey,
    attempt: u32,
}

impl ApprovalGate for AttemptApprovalGate {
    fn decide(&self, call: ApprovalRequest) -> BoxFuture<'_, ApprovalDecision> {
        Box::pin(self.wait_for_decision(call))
    }
}

impl AttemptApprovalGate {
    async fn wait_for_decision(&self, call: ApprovalRequest) -> ApprovalDecision {
        let Some(ApprovalTicket { number, met_condition: reached, outcome: said }) =
            self.approvals.enqueue(&self.unit, &call)
        else {
            return ApprovalDecision::Allow;
        };
        let ApprovalRequest { tool, tool_use_id, input, .. } = call;
        let mut wait = PendingApproval { gate: self, number, tool_use_id: tool_use_id.clone(), is_decided: false };
        let held = Note::CallHeld { tool, tool_use_id, input, reached };
        if let Err(error) = self.approvals.record_note(&self.unit, self.attempt, &held) {
            wait.is_decided = true;
            return ApprovalDecision::DenyByPolicy(format!("the call cannot be held: {error}"));
        }
        // The sender is dropped only after an answer, or with the whole run.
        let Ok(said) = said.await else { return ApprovalDecision::DenyByPolicy("the run is over".into()) };
        let (decision, outcome) = match said {
            ApprovalWaitOutcome::Released => (CallDecision::Released, ApprovalDecision::Allow),
            ApprovalWaitOutcome::Decided(UserDecision::Allow) => (CallDecision::Allowed, ApprovalDecision::Allow),
            ApprovalWaitOutcome::Decided(UserDecision::Edit(input)) => {
                (CallDecision::Edited, ApprovalDecision::AllowEdited(Value::Object(input)))
            }
            ApprovalWaitOutcome::Decided(UserDecision::Deny(reason)) => {
                (CallDecision::Denied, ApprovalDecision::Deny(reason))
            }
        };
        match wait.resolve(decision, &outcome) {
            Ok(()) => {
                self.approvals.note_leash(&self.unit);
                outcome
            }
            Err(error) => ApprovalDecision::DenyByPolicy(format!("the decision cannot be recorded: {error}")),
        }
    }
}

/// A waiting call. If it is dropped without a decision, it leaves the queue and a note on the tape records that.
struct PendingApproval<'a> {
    gate: &'a AttemptApprovalGate,
    number: u64,
    tool_use_id: Option<String>,
    is_decided: bool,
}

impl PendingApproval<'_> {
    fn resolve(mut self, decision: CallDecision, outcome: &ApprovalDecision) -> Result<(), RecordError> {
        self.is_decided = true;
        let (input, reason) = match outcome {
            ApprovalDecision::Allow => (None, None),
            ApprovalDecision::AllowEdited(input) => (Some(input.clone()), None),
            ApprovalDecision::Deny(reason) | ApprovalDecision::DenyByPolicy(reason) => (None, Some(reason.clone())),
        };
        let note = Note::CallDecided { tool_use_id: self.tool_use_id.take(), decision, input, reason };
        self.gate.approvals.record_note(&self.gate.unit, self.gate.attempt, &note)
    }
}

impl Drop for PendingApproval<'_> {
    fn drop(&mut self) {
        let AttemptApprovalGate { approvals, unit, attempt } = self.gate;
        approvals.dequeue(unit, self.number);
        if !self.is_decided {
            let note = Note::CallDecided {
                tool_use_id: self.tool_use_id.take(),
                decision: CallDecision::Withdrawn,
                input: None,
                reason: None,
            };
            approvals.note_or_log(unit, *attempt, &note);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use tokio::time::timeout;

    use crate::control::NamePattern;

    use super::*;
    use crate::{
        actions::TurnTracker, agent::attempt::LineObserver as _, decode, run::attempt_reducer::AttemptReducer,
    };

    #[derive(Debug, Default)]
    struct NoteTape(Mutex<Vec<(UnitKey, u32, Note)>>, Mutex<bool>);

    impl Recorder for NoteTape {
        fn record(&self, items: &[NewEntry<'_>]) -> Result<(), RecordError> {
            if *self.1.lock().unwrap() {
                return Err(RecordError::new("tape.jsonl", &std::io::ErrorKind::StorageFull.into()));
            }
            for item in items {
                let (Some((unit, attempt)), EntryBody::Note(json)) = (item.attempt, &item.body) else {
                    panic!("a note")
                };
                self.0.lock().unwrap().push((unit.clone(), attempt, Note::parse(json)));
            }
            Ok(())
        }
    }

    impl NoteTape {
        /// Kinds of notes with their decisions.
        fn words(&self) -> Vec<String> {
            let notes = self.0.lock().unwrap();
            let word = |note: &Note| match note {
                Note::HoldRequested => "hold".to_owned(),
                Note::HoldReleased => "let go".to_owned(),
                Note::RunUntil { condition } => format!("until {condition}"),
                Note::CallHeld { tool, reached: Some(condition), .. } => format!("held {tool} at {condition}"),
                Note::CallHeld { tool, .. } => format!("held {tool}"),
                Note::CallDecided { tool_use_id, decision, .. } => {
                    format!("{decision:?} {}", tool_use_id.as_deref().unwrap_or("?")).to_lowercase()
                }
                other => panic!("{other:?}"),
            };
            notes.iter().map(|(unit, attempt, note)| format!("{}#{attempt} {}", unit.as_str(), word(note))).collect()
        }
    }

    fn approvals() -> (Arc<ApprovalQueue>, Arc<NoteTape>) {
        let tape = Arc::new(NoteTape::default());
        let meter = Arc::new(RunMeter::new(tokio::sync::mpsc::channel(1).0.downgrade()));
        (Arc::new(ApprovalQueue::new(Arc::clone(&tape) as Arc<dyn Recorder>, meter)), tape)
    }

    fn call(id: &str) -> ApprovalRequest {
        ApprovalRequest {
            tool: "wiki_write".into(),
            tool_use_id: Some(id.into()),
            input: json!({"key": "a"}),
            earlier_failures: 0,
        }
    }

    fn unit() -> UnitKey {
        "u".into()
    }

    /// Asks the gate about a call in a separate task.
    fn ask(gate: &Arc<dyn ApprovalGate>, id: &str) -> tokio::task::JoinHandle<ApprovalDecision> {
        let (gate, call) = (Arc::clone(gate), call(id));
        tokio::spawn(async move { gate.decide(call).await })
    }

    async fn until(tape: &NoteTape, word: &str) {
        while !tape.words().iter().any(|known| known.ends_with(word)) {
            tokio::task::yield_now().await;
        }
    }

    async fn last(tape: &NoteTape, word: &str) {
        while !tape.words().last().is_some_and(|known| known.ends_with(word)) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn call_of_unheld_unit_passes_without_a_note() {
        let (approvals, tape) = approvals();
        assert_eq!(approvals.gate(&unit(), 1).decide(call("a")).await, ApprovalDecision::Allow);
        approvals.release(&unit());
        assert!(!approvals.decide_call(&unit(), Some("a"), UserDecision::Allow));
        assert_eq!(tape.words(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn step_allows_one_call_and_holds_the_next() {
        let (approvals, tape) = approvals();
        approvals.hold(&unit());
        let gate = approvals.gate(&unit(), 1);
        let first = ask(&gate, "a");
        until(&tape, "held wiki_write").await;
        assert!(approvals.decide_call(&unit(), Some("a"), UserDecision::Allow));
        assert_eq!(first.await.unwrap(), ApprovalDecision::Allow);
        let mut second = ask(&gate, "b");
        assert!(timeout(Duration::from_secs(3 * 3600), &mut second).await.is_err(), "it waits");
        approvals.release(&unit());
        assert_eq!(second.await.unwrap(), ApprovalDecision::Allow);
        assert_eq!(gate.decide(call("c")).await, ApprovalDecision::Allow);
        let expected =
            ["u#0 hold", "u#1 held wiki_write", "u#1 allowed a", "u#1 held wiki_write", "u#1 let go", "u#1 released b"];
        assert_eq!(tape.words(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn pause_holds_all_units_until_it_ends() {
        let (approvals, tape) = approvals();
        let (held, other) = (unit(), UnitKey::from("other"));
        approvals.hold(&held);
        approvals.pause();
        let calls = [ask(&approvals.gate(&held, 1), "a"), ask(&approvals.gate(&other, 1), "b")];
        while tape.words().iter().filter(|word| word.ends_with("held wiki_write")).count() < 2 {
            tokio::task::yield_now().await;
        }
        assert!(approvals.is_waiting(&other, Some("b")) && !approvals.is_waiting(&other, Some("a")));
        approvals.resume();
        let [mut first, second] = calls;
        assert_eq!(second.await.unwrap(), ApprovalDecision::Allow);
        assert!(timeout(Duration::from_secs(3600), &mut first).await.is_err(), "its unit is held");
        assert_eq!(approvals.gate(&other, 1).decide(call("c")).await, ApprovalDecision::Allow);
    }

    #[tokio::test(start_paused = true)]
    async fn leash_holds_every_third_call() {
        let (approvals, tape) = approvals();
        let gate = approvals.gate(&unit(), 1);
        approvals.leash(&unit(), 3);
        for round in 0..2 {
            for id in ["a", "b"] {
                assert_eq!(gate.decide(call(id)).await, ApprovalDecision::Allow, "round {round}");
            }
            let third = ask(&gate, "c");
            until(&tape, "held wiki_write at every 3 calls").await;
            while !approvals.decide_call(&unit(), Some("c"), UserDecision::Allow) {
                tokio::task::yield_now().await;
            }
            assert_eq!(third.await.unwrap(), ApprovalDecision::Allow);
        }
        let words = tape.words();
        assert_eq!(words.iter().filter(|word| word.ends_with("until every 3 calls")).count(), 3, "{words:?}");
        approvals.release(&unit());
        for id in ["d", "e", "f", "g"] {
            assert_eq!(gate.decide(call(id)).await, ApprovalDecision::Allow);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn resume_keeps_calls_that_met_a_condition() {
        let (approvals, tape) = approvals();
        let gate = approvals.gate(&unit(), 1);
        approvals.pause();
        let mut waiting = ask(&gate, "a");
        until(&tape, "held wiki_write").await;
        approvals.run_until(&unit(), None, vec![tool("wiki_*")]);
        approvals.resume();
        assert!(timeout(Duration::from_secs(3600), &mut waiting).await.is_err(), "it waits for a person");
    }

    #[tokio::test(start_paused = true)]
    async fn resume_keeps_calls_that_a_leash_holds() {
        let (approvals, tape) = approvals();
        let gate = approvals.gate(&unit(), 1);
        approvals.leash(&unit(), 2);
        approvals.pause();
        let first = ask(&gate, "a");
        until(&tape, "held wiki_write").await;
        approvals.resume();
        assert_eq!(first.await.unwrap(), ApprovalDecision::Allow, "the leash lets it pass");
        let mut second = ask(&gate, "b");
        until(&tape, "at every 2 calls").await;
        approvals.resume();
        assert!(timeout(Duration::from_secs(3600), &mut second).await.is_err(), "it waits for a person");
    }

    #[tokio::test(start_paused = true)]
    async fn pause_does_not_end_a_run_until() {
        let (approvals, tape) = approvals();
        let gate = approvals.gate(&unit(), 1);
        approvals.run_until(&unit(), None, vec![tool("sl_*")]);
        approvals.pause();
        let waiting = ask(&gate, "a");
        until(&tape, "held wiki_write").await;
        approvals.resume();
        assert_eq!(waiting.await.unwrap(), ApprovalDecision::Allow);
        assert_eq!(gate.decide(call("b")).await, ApprovalDecision::Allow);
        let met = called("c", "sl_read_source", json!({}), 0);
        let stopped = tokio::spawn(async move { gate.decide(met).await });
        until(&tape, "held sl_read_source at tool sl_*").await;
        stopped.abort();
    }

    fn tool(name: &str) -> BreakCondition {
        BreakCondition::Tool(NamePattern::new(name).unwrap())
    }

    fn called(id: &str, tool: &str, input: Value, failures: usize) -> ApprovalRequest {
        ApprovalRequest { tool: tool.into(), tool_use_id: Some(id.into()), input, earlier_failures: failures }
    }

    #[tokio::test(start_paused = true)]
    async fn run_until_holds_at_the_first_matching_call() {
        let (approvals, tape) = approvals();
        approvals.hold(&unit());
        let gate = approvals.gate(&unit(), 1);
        let first = ask(&gate, "a");
        until(&tape, "held wiki_write").await;
        let path = BreakCondition::Path(NamePattern::new("*.sql").unwrap());
        approvals.run_until(&unit(), Some("a"), vec![tool("sl_*"), path]);
        assert_eq!(first.await.unwrap(), ApprovalDecision::Allow, "the current call passes");
        for passes in [called("b", "wiki_write", json!({}), 0), called("c", "read", json!({"path": "a.yml"}), 3)] {
            assert_eq!(gate.decide(passes).await, ApprovalDecision::Allow);
        }
        let met = called("d", "read", json!({"path": "models/a.sql"}), 3);
        let waits = tokio::spawn({
            let gate = Arc::clone(&gate);
            async move { gate.decide(met).await }
        });
        until(&tape, "held read at path *.sql").await;
        // From here on the unit is held at every call again.
        assert!(approvals.decide_call(&unit(), Some("d"), UserDecision::Deny("no".into())));
        assert_eq!(waits.await.unwrap(), ApprovalDecision::Deny("no".into()));
        let next = ask(&gate, "e");
        last(&tape, "held wiki_write").await;
        approvals.release(&unit());
        assert_eq!(next.await.unwrap(), ApprovalDecision::Allow);
        let words = [
            "u#1 until tool sl_*, path *.sql",
            "u#1 allowed a",
            "u#1 held read at path *.sql",
            "u#1 denied d",
            "u#1 held wiki_write",
            "u#1 let go",
            "u#1 released e",
        ];
        assert_eq!(tape.words()[2..], words);
    }

    #[tokio::test(start_paused = true)]
    async fn run_until_failure_counts_from_release_and_ends_on_hold() {
        let (approvals, tape) = approvals();
        let gate = approvals.gate(&unit(), 1);
        assert_eq!(gate.decide(called("a", "read", json!({}), 2)).await, ApprovalDecision::Allow);
        approvals.run_until(&unit(), None, vec![BreakCondition::Failure]);
        assert_eq!(gate.decide(called("b", "read", json!({}), 2)).await, ApprovalDecision::Allow);
        // The next attempt starts without failed calls.
        let gate = approvals.gate(&unit(), 2);
        assert_eq!(gate.decide(called("c", "read", json!({}), 0)).await, ApprovalDecision::Allow);
        let waits = tokio::spawn(async move { gate.decide(called("d", "read", json!({}), 1)).await });
        until(&tape, "held read at failure").await;
        approvals.release(&unit());
        assert_eq!(waits.await.unwrap(), ApprovalDecision::Allow);
        approvals.run_until(&unit(), None, vec![BreakCondition::Failure]);
        approvals.hold(&unit());
        let gate = approvals.gate(&unit(), 3);
        let _waits = ask(&gate, "e");
        until(&tape, "u#3 held wiki_write").await;
        let last = ["u#2 let go", "u#2 released d", "u#2 until failure", "u#2 hold", "u#3 held wiki_write"];
        assert_eq!(tape.words()[2..], last);
    }

    #[tokio::test(start_paused = true)]
    async fn run_until_cost_holds_once_the_cost_is_reached() {
        let (approvals, tape) = approvals();
        let gate = approvals.gate(&unit(), 1);
        approvals.run_until(&unit(), None, vec![BreakCondition::Cost(0.5)]);
        assert_eq!(gate.decide(call("a")).await, ApprovalDecision::Allow);
        let line = decode::decode_line(br#"{"type":"result","total_cost_usd":0.5}"#);
        let mut reducer = AttemptReducer::new(TurnTracker::for_one_prompt());
        reducer.push(&line);
        approvals.meter.observe((&"other".into(), 1), &line, &reducer);
        let _waits = ask(&gate, "b");
        until(&tape, "held wiki_write at cost $0.5").await;
    }

    #[tokio::test(start_paused = true)]
    async fn run_until_releases_other_waiting_calls_unless_they_match() {
        let (approvals, tape) = approvals();
        approvals.hold(&unit());
        let gate = approvals.gate(&unit(), 1);
        let (a, b) = (ask(&gate, "a"), ask(&gate, "b"));
        let c = tokio::spawn({
            let gate = Arc::clone(&gate);
            async move { gate.decide(called("c", "sl_edit", json!({}), 0)).await }
        });
        while tape.words().len() < 4 {
            tokio::task::yield_now().await;
        }
        approvals.run_until(&unit(), Some("a"), vec![tool("sl_edit")]);
        assert_eq!((a.await.unwrap(), b.await.unwrap()), (ApprovalDecision::Allow, ApprovalDecision::Allow));
        assert!(!tape.words().iter().any(|word| word.contains("until")), "it is there already: {:?}", tape.words());
        assert!(approvals.decide_call(&unit(), Some("c"), UserDecision::Allow), "it still waits");
        c.await.unwrap();
        // The current call passes even if it meets the condition.
        let d = ask(&gate, "d");
        until(&tape, "allowed c").await;
        last(&tape, "held wiki_write").await;
        approvals.run_until(&unit(), Some("d"), vec![tool("wiki_write")]);
        assert_eq!(d.await.unwrap(), ApprovalDecision::Allow);
        let _e = ask(&gate, "e");
        until(&tape, "held wiki_write at tool wiki_write").await;
    }

    #[tokio::test(start_paused = true)]
    async fn decision_reaches_its_call() {
        let (approvals, tape) = approvals();
        let gate = approvals.gate(&unit(), 2);
        approvals.hold(&unit());
        approvals.hold(&unit());
        let (a, b) = (ask(&gate, "a"), ask(&gate, "b"));
        while tape.words().len() < 3 {
            tokio::task::yield_now().await;
        }
        let Value::Object(edited) = json!({"key": "b"}) else { unreachable!() };
        assert!(approvals.decide_call(&unit(), Some("b"), UserDecision::Edit(edited.clone())));
        assert!(!approvals.decide_call(&unit(), Some("b"), UserDecision::Allow), "once is enough");
        assert!(!approvals.decide_call(&"other".into(), Some("a"), UserDecision::Allow));
        assert!(approvals.decide_call(&unit(), Some("a"), UserDecision::Deny("not this page".into())));
        assert_eq!(b.await.unwrap(), ApprovalDecision::AllowEdited(Value::Object(edited.clone())));
        assert_eq!(a.await.unwrap(), ApprovalDecision::Deny("not this page".into()));
        let notes = tape.0.lock().unwrap();
        let decided = |id: &str| {
            notes.iter().find_map(|(.., note)| match note {
                Note::CallDecided { tool_use_id, input, reason, .. } if tool_use_id.as_deref() == Some(id) => {
                    Some((input.clone(), reason.clone()))
                }
                _ => None,
            })
        };
        assert_eq!(decided("b"), Some((Some(Value::Object(edited)), None)));
        assert_eq!(decided("a"), Some((None, Some("not this page".into()))));
    }

    #[tokio::test(start_paused = true)]
    async fn ended_attempt_withdraws_its_pending_approval() {
        let (approvals, tape) = approvals();
        approvals.hold(&unit());
        let gate = approvals.gate(&unit(), 1);
        let waiting = ask(&gate, "a");
        until(&tape, "held wiki_write").await;
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        assert!(!approvals.decide_call(&unit(), Some("a"), UserDecision::Allow));
        assert_eq!(tape.words().last().map(String::as_str), Some("u#1 withdrawn a"));
    }

    #[tokio::test(start_paused = true)]
    async fn unrecordable_held_call_is_refused() {
        let (approvals, tape) = approvals();
        approvals.hold(&unit());
        *tape.1.lock().unwrap() = true;
        let ApprovalDecision::DenyByPolicy(why) = approvals.gate(&unit(), 1).decide(call("a")).await else {
            panic!("it passed")
        };
        assert!(why.contains("tape.jsonl"), "{why}");
    }
}
