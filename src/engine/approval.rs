//! Approval of tool calls: held units, the calls that wait for a person, and the person's decisions.
//!
//! One [`ApprovalQueue`] serves every attempt of a run. Requests and decisions are recorded on the tape before they
//! take effect. The module must not know how calls reach it or who decides.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::sync::oneshot;

use self::run_until::RunUntil;
use super::run_meter::RunMeter;
use ingestdeck_agent::attempt::{ApprovalDecision, ApprovalGate, ApprovalRequest};
use ingestdeck_core::{
    actions::input_form::{answered_input, takes_answer},
    control::{BreakCondition, UserDecision},
    run::{NewEntry, Recorder, entry_source::RecordError},
    tape::{EntryBody, Note, UnitKey, note::CallDecision},
    units::call_policy::{CallPolicy, PolicyAction, PolicyDecision},
};

mod run_until;

/// The held units of a run and their waiting calls.
#[derive(Debug)]
pub(crate) struct ApprovalQueue {
    recorder: Arc<dyn Recorder>,
    meter: Arc<RunMeter>,
    policy: CallPolicy,
    /// False if no person watches the run, so that a rule that holds a call denies it.
    can_ask: bool,
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

impl UnitApprovals {
    fn queue(
        &mut self,
        call: &ApprovalRequest,
        met_condition: Option<String>,
        needs_decision: bool,
        is_paused_only: bool,
    ) -> ApprovalTicket {
        let (reply, outcome) = oneshot::channel();
        let number = self.next_number;
        self.next_number += 1;
        self.queued.push(QueuedCall {
            number,
            is_paused_only,
            needs_decision,
            call: call.clone(),
            reply,
        });
        ApprovalTicket {
            number,
            met_condition,
            outcome,
        }
    }
}

impl fmt::Debug for UnitApprovals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            is_held: held,
            until,
            queued: waiting,
            ..
        } = self;
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
    /// A rule or a request for permission holds it, so only a decision about this call ends the wait.
    needs_decision: bool,
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
        let policy = CallPolicy::default();
        Self {
            recorder,
            meter,
            policy,
            can_ask: true,
            units: Mutex::default(),
            is_paused: AtomicBool::new(false),
        }
    }

    /// Applies `policy` to every call. `can_ask` is false if no person watches the run: a rule that
    /// holds a call then denies it.
    pub(crate) fn with_policy(self, policy: CallPolicy, can_ask: bool) -> Self {
        Self {
            policy,
            can_ask,
            ..self
        }
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
        Arc::new(AttemptApprovalGate {
            approvals: Arc::clone(self),
            unit: unit.clone(),
            attempt,
        })
    }

    /// Holds `unit` at its next tool call.
    pub(crate) fn hold(&self, unit: &UnitKey) {
        let mut units = self.units();
        let hold = units.entry(unit.clone()).or_default();
        if hold.until.take().is_some() || hold.leash.take().is_some() || !hold.is_held {
            hold.is_held = true;
            hold.queued
                .iter_mut()
                .for_each(|waiting| waiting.is_paused_only = false);
            self.note_or_log(unit, hold.attempt, &Note::HoldRequested);
        }
    }

    /// Lets `unit` run until a call meets one of `conditions` and waits. The current call `from` passes even if it
    /// meets one. Other waiting calls pass too, unless one of them meets a condition; then the unit stops there
    /// immediately.
    pub(crate) fn run_until(
        &self,
        unit: &UnitKey,
        from: Option<&str>,
        conditions: Vec<BreakCondition>,
    ) {
        let mut units = self.units();
        let hold = units.entry(unit.clone()).or_default();
        let until = RunUntil::new(conditions, hold.failed_calls);
        let spent = self.meter.total_usd();
        let stays = |waiting: &QueuedCall| {
            waiting.needs_decision
                || waiting.call.tool_use_id.as_deref() != from
                    && until.met_condition(&waiting.call, spent).is_some()
        };
        let (there, gone): (Vec<_>, Vec<_>) = hold.queued.drain(..).partition(stays);
        hold.queued = there;
        (hold.is_held, hold.leash) = (true, None);
        hold.queued
            .iter_mut()
            .for_each(|waiting| waiting.is_paused_only = false);
        if hold.queued.iter().all(|waiting| waiting.needs_decision) {
            self.note_or_log(
                unit,
                hold.attempt,
                &Note::RunUntil {
                    condition: until.to_text(),
                },
            );
            hold.until = Some(until);
        }
        for waiting in gone {
            // A person has seen the current call only.
            let is_current = waiting.call.tool_use_id.as_deref() == from;
            let decided = ApprovalWaitOutcome::Decided(UserDecision::Allow);
            // A closed channel means that the attempt no longer waits.
            let _ = waiting.reply.send(if is_current {
                decided
            } else {
                ApprovalWaitOutcome::Released
            });
        }
    }

    /// Holds `unit` at every Nth call; those between pass. Calls that wait still wait.
    pub(crate) fn leash(&self, unit: &UnitKey, every: u32) {
        let mut units = self.units();
        let hold = units.entry(unit.clone()).or_default();
        let leash = Leash { every, left: every };
        hold.queued
            .iter_mut()
            .for_each(|waiting| waiting.is_paused_only = false);
        (hold.is_held, hold.until, hold.leash) = (true, None, Some(leash));
        self.note_or_log(
            unit,
            hold.attempt,
            &Note::RunUntil {
                condition: leash.to_text(),
            },
        );
    }

    /// Shows that a unit on a leash continues after a decision.
    fn note_leash(&self, unit: &UnitKey) {
        let units = self.units();
        if let Some(hold) = units.get(unit)
            && let Some(leash) = hold.leash.filter(|_| hold.queued.is_empty())
        {
            self.note_or_log(
                unit,
                hold.attempt,
                &Note::RunUntil {
                    condition: leash.to_text(),
                },
            );
        }
    }

    /// Stops holding `unit`; its waiting calls are made unchanged.
    pub(crate) fn release(&self, unit: &UnitKey) {
        let mut units = self.units();
        let Some(hold) = units.get_mut(unit).filter(|hold| hold.is_held) else {
            return;
        };
        (hold.is_held, hold.until, hold.leash) = (false, None, None);
        self.note_or_log(unit, hold.attempt, &Note::HoldReleased);
        for waiting in hold
            .queued
            .extract_if(.., |waiting| !waiting.needs_decision)
        {
            // A closed channel means that the attempt no longer waits.
            let _ = waiting.reply.send(ApprovalWaitOutcome::Released);
        }
    }

    /// The tool of the call that [`decide_call`](Self::decide_call) would decide.
    pub(crate) fn waiting_tool(&self, unit: &UnitKey, tool_use_id: Option<&str>) -> Option<String> {
        let units = self.units();
        let mut queued = units.get(unit)?.queued.iter();
        let is_meant = |call: &ApprovalRequest| {
            tool_use_id.is_none() || call.tool_use_id.as_deref() == tool_use_id
        };
        queued
            .find(|waiting| is_meant(&waiting.call))
            .map(|waiting| waiting.call.tool.clone())
    }

    /// Decides the call with this id, or the call that has waited longest. Returns false if no such call waits; the
    /// decision then has no effect.
    pub(crate) fn decide_call(
        &self,
        unit: &UnitKey,
        tool_use_id: Option<&str>,
        ruling: UserDecision,
    ) -> bool {
        let mut units = self.units();
        let Some(hold) = units.get_mut(unit) else {
            return false;
        };
        let place = hold.queued.iter().position(|waiting| {
            tool_use_id.is_none() || waiting.call.tool_use_id.as_deref() == tool_use_id
        });
        place.is_some_and(|place| {
            hold.queued
                .remove(place)
                .reply
                .send(ApprovalWaitOutcome::Decided(ruling))
                .is_ok()
        })
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

    /// Queues a call of a held unit or of a paused run, or one that needs a decision for the reason `must_wait`. Returns
    /// `None` if the call may pass.
    fn enqueue(
        &self,
        unit: &UnitKey,
        call: &ApprovalRequest,
        must_wait: Option<String>,
    ) -> Option<ApprovalTicket> {
        let mut units = self.units();
        let hold = units.get_mut(unit)?;
        hold.failed_calls = call.earlier_failures;
        if must_wait.is_some() {
            return Some(hold.queue(call, must_wait, true, false));
        }
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
        let met = hold
            .until
            .as_ref()
            .map(|until| until.met_condition(call, self.meter.total_usd()));
        let reached = match met {
            Some(None) if !is_paused => return None,
            Some(met) => met.map(|condition| condition.to_string()),
            None => leashed.flatten(),
        };
        if met.is_some_and(|met| met.is_some()) {
            hold.until = None;
        }
        let is_paused_only = !hold.is_held || hold.until.is_some() || is_between;
        Some(hold.queue(call, reached, false, is_paused_only))
    }

    fn dequeue(&self, unit: &UnitKey, number: u64) {
        if let Some(hold) = self.units().get_mut(unit) {
            hold.queued.retain(|waiting| waiting.number != number);
        }
    }

    /// The map stays valid if a thread panics while it holds the lock.
    fn units(&self) -> MutexGuard<'_, HashMap<UnitKey, UnitApprovals>> {
        self.units.lock()
    }

    fn record_note(&self, unit: &UnitKey, attempt: u32, note: &Note) -> Result<(), RecordError> {
        let json = note.to_json();
        self.recorder.record(&[NewEntry {
            attempt: Some((unit, attempt)),
            body: EntryBody::Note(&json),
        }])
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

    fn passes_calls(&self) -> bool {
        let units = self.approvals.units();
        let is_held = units.get(&self.unit).is_some_and(|unit| unit.is_held);
        let is_paused = self.approvals.is_paused.load(Ordering::Relaxed);
        !is_held && !is_paused && !self.approvals.policy.has_rules()
    }
}

impl AttemptApprovalGate {
    /// Records the decision of a rule before it takes effect.
    fn record_rule(
        &self,
        call: ApprovalRequest,
        decision: CallDecision,
        rule: String,
        reason: Option<String>,
    ) -> ApprovalDecision {
        let rule = Some(rule);
        let note = Note::CallDecided {
            tool_use_id: call.tool_use_id,
            decision,
            input: None,
            reason: reason.clone(),
            rule,
        };
        match (
            self.approvals.record_note(&self.unit, self.attempt, &note),
            reason,
        ) {
            (Ok(()), Some(reason)) => ApprovalDecision::DenyByPolicy(reason),
            (Ok(()), None) => ApprovalDecision::Allow,
            (Err(error), _) => {
                ApprovalDecision::DenyByPolicy(format!("the decision cannot be recorded: {error}"))
            }
        }
    }

    async fn wait_for_decision(&self, call: ApprovalRequest) -> ApprovalDecision {
        let spent = self.approvals.meter.total_usd();
        let by_policy = self.approvals.policy.decide(&call.tool, &call.input, spent);
        let (must_wait, allowed_by) = match by_policy {
            Some(PolicyDecision {
                action: PolicyAction::Allow,
                rule,
                ..
            }) => (None, Some(rule)),
            Some(PolicyDecision {
                action: PolicyAction::Hold,
                rule,
                ..
            }) if self.approvals.can_ask => (Some(rule), None),
            Some(PolicyDecision { rule, refusal, .. }) => {
                return self.record_rule(call, CallDecision::Denied, rule, Some(refusal));
            }
            None if call.asks_permission && !self.approvals.can_ask => {
                let refusal = "No person answers requests for permission in this run.".to_owned();
                return self.record_rule(
                    call,
                    CallDecision::Denied,
                    "no person".to_owned(),
                    Some(refusal),
                );
            }
            None => (
                call.asks_permission
                    .then(|| "permission request".to_owned()),
                None,
            ),
        };
        let needs_decision = must_wait.is_some();
        let Some(ApprovalTicket {
            number,
            met_condition: reached,
            outcome: said,
        }) = self.approvals.enqueue(&self.unit, &call, must_wait)
        else {
            return match allowed_by {
                Some(rule) => self.record_rule(call, CallDecision::Allowed, rule, None),
                None => ApprovalDecision::Pass,
            };
        };
        let ApprovalRequest {
            tool,
            tool_use_id,
            input,
            ..
        } = call;
        let asked = takes_answer(&tool).then(|| (tool.clone(), input.clone()));
        let mut wait = PendingApproval {
            gate: self,
            number,
            tool_use_id: tool_use_id.clone(),
            is_decided: false,
        };
        let held = Note::CallHeld {
            tool,
            tool_use_id,
            input,
            reached,
            needs_decision,
        };
        if let Err(error) = self.approvals.record_note(&self.unit, self.attempt, &held) {
            wait.is_decided = true;
            return ApprovalDecision::DenyByPolicy(format!("the call cannot be held: {error}"));
        }
        // The sender is dropped only after an answer, or with the whole run.
        let Ok(said) = said.await else {
            return ApprovalDecision::DenyByPolicy("the run is over".into());
        };
        let (decision, outcome, answer) = match said {
            ApprovalWaitOutcome::Released => (CallDecision::Released, ApprovalDecision::Pass, None),
            ApprovalWaitOutcome::Decided(UserDecision::Allow) => {
                (CallDecision::Allowed, ApprovalDecision::Allow, None)
            }
            ApprovalWaitOutcome::Decided(UserDecision::Edit(input)) => (
                CallDecision::Edited,
                ApprovalDecision::AllowEdited(Value::Object(input)),
                None,
            ),
            ApprovalWaitOutcome::Decided(UserDecision::Answer(answer)) => {
                let answered =
                    asked.and_then(|(tool, input)| answered_input(&tool, input, answer.clone()));
                match answered {
                    Some(input) => (
                        CallDecision::Answered,
                        ApprovalDecision::AllowEdited(input),
                        Some(Value::Object(answer)),
                    ),
                    None => {
                        let reason = "the call takes no answer".to_owned();
                        (
                            CallDecision::Denied,
                            ApprovalDecision::DenyByPolicy(reason),
                            None,
                        )
                    }
                }
            }
            ApprovalWaitOutcome::Decided(UserDecision::Cancel) => {
                (CallDecision::Cancelled, ApprovalDecision::Cancel, None)
            }
            ApprovalWaitOutcome::Decided(UserDecision::Deny(reason)) => {
                (CallDecision::Denied, ApprovalDecision::Deny(reason), None)
            }
        };
        match wait.resolve(decision, &outcome, answer) {
            Ok(()) => {
                self.approvals.note_leash(&self.unit);
                outcome
            }
            Err(error) => {
                ApprovalDecision::DenyByPolicy(format!("the decision cannot be recorded: {error}"))
            }
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
    fn resolve(
        mut self,
        decision: CallDecision,
        outcome: &ApprovalDecision,
        answer: Option<Value>,
    ) -> Result<(), RecordError> {
        self.is_decided = true;
        let (input, reason) = match outcome {
            ApprovalDecision::Pass | ApprovalDecision::Allow | ApprovalDecision::Cancel => {
                (None, None)
            }
            // The questions are in the arguments of the call.
            ApprovalDecision::AllowEdited(_) if answer.is_some() => (answer, None),
            ApprovalDecision::AllowEdited(input) => (Some(input.clone()), None),
            ApprovalDecision::Deny(reason) | ApprovalDecision::DenyByPolicy(reason) => {
                (None, Some(reason.clone()))
            }
        };
        let note = Note::CallDecided {
            tool_use_id: self.tool_use_id.take(),
            decision,
            input,
            reason,
            rule: None,
        };
        self.gate
            .approvals
            .record_note(&self.gate.unit, self.gate.attempt, &note)
    }
}

impl Drop for PendingApproval<'_> {
    fn drop(&mut self) {
        let AttemptApprovalGate {
            approvals,
            unit,
            attempt,
        } = self.gate;
        approvals.dequeue(unit, self.number);
        if !self.is_decided {
            let note = Note::CallDecided {
                tool_use_id: self.tool_use_id.take(),
                decision: CallDecision::Withdrawn,
                input: None,
                reason: None,
                rule: None,
            };
            approvals.note_or_log(unit, *attempt, &note);
        }
    }
}

#[cfg(test)]
mod tests;
