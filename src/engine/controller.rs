//! Carries out the commands of clients: decisions about calls go to the approval queue, everything else to the schedule.
//!
//! The one way by which a client changes a run. Each command becomes a note with its sender before it takes effect, and
//! commands of several clients take effect in the order of these notes. The module must not depend on the kind of a
//! client, or on its transport.

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
};

use nix::unistd::{Uid, User};
use serde_json::Value;
use tokio::sync::{Mutex, mpsc};

use super::{
    attempt_limits::AttemptLimits,
    started_run::StartedRun,
    worker::{host::WorkerTransports, pool::SlotPool, ssh::SshWorker},
};
use ingestdeck_core::{
    actions::input_form,
    control::{CommandOrigin, CommandReply, RefusalReason, RunCommand, RunLimit, UserDecision},
    diagnostic::{Diagnostic as _, Problem},
    run::Recorder,
    tape::{Note, UnitKey, note::CommandReceived},
    text,
    units::schedule::ScheduleEvent,
};
use ingestdeck_ingest::tool;

/// Access of clients to a run. The run stays open for commands until the last clone is dropped.
#[derive(Clone, Debug)]
pub struct RunController {
    shared: Arc<SharedAccess>,
    schedule: mpsc::Sender<ScheduleEvent>,
}

/// Access to a run that may be over.
#[derive(Clone, Debug)]
pub(super) struct WeakRunController {
    shared: Weak<SharedAccess>,
    schedule: mpsc::WeakSender<ScheduleEvent>,
}

/// What all clients of a run share.
#[derive(Debug)]
struct SharedAccess {
    units: HashSet<UnitKey>,
    /// The limits of attempts; `None` for a session, whose calls do not ask the approval queue.
    limits: Option<Arc<AttemptLimits>>,
    started: StartedRun,
    /// The workers; `None` if the run has none.
    workers: Option<Arc<WorkerTransports>>,
    /// Name of the user on whose behalf this process runs; only that user can send commands.
    user: Option<String>,
    /// Held while a command is recorded and carried out.
    order: Mutex<()>,
}

impl WeakRunController {
    /// Carries out `command` as [`RunController::execute`] does.
    pub(super) async fn execute(&self, command: RunCommand, origin: CommandOrigin) -> CommandReply {
        match (self.shared.upgrade(), self.schedule.upgrade()) {
            (Some(shared), Some(schedule)) => {
                RunController { shared, schedule }
                    .execute(command, origin)
                    .await
            }
            _ => CommandReply::Refused {
                reason: RefusalReason::RunEnded,
            },
        }
    }
}

impl RunController {
    pub(super) fn new(
        units: HashSet<UnitKey>,
        limits: Option<Arc<AttemptLimits>>,
        started: StartedRun,
        workers: Option<Arc<WorkerTransports>>,
        schedule: mpsc::Sender<ScheduleEvent>,
    ) -> Self {
        let user = User::from_uid(Uid::current())
            .ok()
            .flatten()
            .map(|user| user.name);
        let order = Mutex::default();
        let shared = SharedAccess {
            units,
            limits,
            started,
            workers,
            user,
            order,
        };
        Self {
            shared: Arc::new(shared),
            schedule,
        }
    }

    /// Access that does not keep the run open.
    pub(super) fn downgrade(&self) -> WeakRunController {
        WeakRunController {
            shared: Arc::downgrade(&self.shared),
            schedule: self.schedule.downgrade(),
        }
    }

    /// Carries out `command`, and waits while the schedule has no room for it.
    pub async fn execute(&self, command: RunCommand, origin: CommandOrigin) -> CommandReply {
        match self.try_execute(command, origin).await {
            Ok(()) => CommandReply::Accepted,
            Err(reason) => CommandReply::Refused { reason },
        }
    }

    async fn try_execute(
        &self,
        command: RunCommand,
        origin: CommandOrigin,
    ) -> Result<(), RefusalReason> {
        let SharedAccess { started, order, .. } = self.shared.as_ref();
        let (approvals, review) = (&started.approvals, &started.review);
        self.check(&command)?;
        let _order = order.lock().await;
        if let RunCommand::Decide {
            unit,
            call,
            decision,
        } = &command
        {
            let Some(tool) = approvals.waiting_tool(unit, call.as_deref()) else {
                return Err(RefusalReason::CallNotWaiting { unit: unit.clone() });
            };
            let takes_decision = match decision {
                UserDecision::Answer(_) => input_form::takes_answer(&tool),
                UserDecision::Cancel => tool == input_form::ELICITATION,
                UserDecision::Allow => tool != input_form::ELICITATION,
                UserDecision::Edit(_) | UserDecision::Deny(_) => true,
            };
            if !takes_decision {
                let tool = text::one_row(&tool, 80);
                let problem = format!("`{tool}` does not take this decision");
                return Err(RefusalReason::InvalidArgument { problem });
            }
            // A session may have other tools with these names.
            if let (UserDecision::Edit(arguments), Some(_)) = (decision, &self.shared.limits) {
                let problems = tool::argument_problems(&tool, &Value::Object(arguments.clone()));
                if !problems.is_empty() {
                    return Err(RefusalReason::InvalidArgument {
                        problem: format!("{tool}: {}", problems.join("; ")),
                    });
                }
            }
        }
        match &command {
            RunCommand::FinishReview { .. } => review.check_finished()?,
            RunCommand::UndoReview { known } => review.check_undo(*known)?,
            _ => {}
        }
        if let RunCommand::FinishReview {
            branch: Some(branch),
            ..
        } = &command
        {
            let (review, branch) = (Arc::clone(review), branch.clone());
            let selected = tokio::task::spawn_blocking(move || review.select_branch(&branch)).await;
            let failed = |error: tokio::task::JoinError| RefusalReason::InvalidArgument {
                problem: error.to_string(),
            };
            selected.map_err(failed)??;
        }
        self.record(&command, origin);
        match command {
            RunCommand::Hold { unit } => approvals.hold(&unit),
            RunCommand::Release { unit } => approvals.release(&unit),
            RunCommand::RunUntil {
                unit,
                call,
                conditions,
            } => {
                approvals.run_until(&unit, call.as_deref(), conditions);
            }
            RunCommand::Review { decisions } => review.decide(decisions)?,
            RunCommand::UndoReview { .. } => review.undo()?,
            RunCommand::FinishReview {
                branch,
                leave_blocked,
            } => {
                review.set_leaves_blocked(leave_blocked);
                self.send(ScheduleEvent::ReviewFinished {
                    sent_back: review.finish(branch.is_some())?,
                })
                .await?;
            }
            RunCommand::Leash { unit, calls } => approvals.leash(&unit, calls),
            RunCommand::Decide {
                unit,
                call,
                decision,
            } => {
                // The attempt may have ended since the check.
                if !approvals.decide_call(&unit, call.as_deref(), decision) {
                    return Err(RefusalReason::CallNotWaiting { unit });
                }
            }
            RunCommand::AddWorker { url } => self.add_worker(&url)?,
            RunCommand::DrainWorker { worker } => {
                self.change_worker(worker, |pool, name| pool.drain(name, "drain-worker"))?
            }
            RunCommand::UndrainWorker { worker } => {
                self.change_worker(worker, SlotPool::undrain)?
            }
            RunCommand::StopWorker { worker } => {
                self.change_worker(worker, |pool, name| pool.stop(name, "stop-worker"))?
            }
            command => {
                match &command {
                    RunCommand::LiftLimit => self
                        .shared
                        .workers
                        .iter()
                        .for_each(|workers| workers.host.pool.lift_limits()),
                    RunCommand::Pause => approvals.pause(),
                    RunCommand::Set { limit } => self.set(limit),
                    _ => {}
                }
                // Running units cannot finish while their calls wait.
                let resumes = matches!(command, RunCommand::Drain | RunCommand::Resume);
                self.send(ScheduleEvent::Requested(command)).await?;
                if resumes {
                    approvals.resume();
                }
            }
        }
        Ok(())
    }

    /// Refuses commands that have no effect in any state of the run.
    fn check(&self, command: &RunCommand) -> Result<(), RefusalReason> {
        let SharedAccess { units, limits, .. } = self.shared.as_ref();
        if self.schedule.is_closed() {
            return Err(RefusalReason::RunEnded);
        }
        if let Some(unit) = command.units().iter().find(|unit| !units.contains(*unit)) {
            return Err(RefusalReason::UnknownUnit { unit: unit.clone() });
        }
        if let Some(problem) = command.problem() {
            return Err(RefusalReason::InvalidArgument { problem });
        }
        let is_concurrency = matches!(
            command,
            RunCommand::AdjustConcurrency { .. }
                | RunCommand::Set {
                    limit: RunLimit::Concurrency(_)
                }
        );
        if is_concurrency
            && self
                .shared
                .workers
                .as_ref()
                .is_some_and(|workers| workers.host.pool.is_remote_only())
        {
            let problem = "units cannot run on this machine: claude was not usable here when the run began; \
                 `ingestdeck doctor` shows why, and `run --resume-run --concurrency N` continues with this machine"
                .to_owned();
            return Err(RefusalReason::InvalidArgument { problem });
        }
        if command.needs_units() && limits.is_none() {
            return Err(RefusalReason::CannotHold);
        }
        Ok(())
    }

    fn change_worker(
        &self,
        worker: String,
        change: impl Fn(&SlotPool, &str) -> bool,
    ) -> Result<(), RefusalReason> {
        let is_known = self
            .shared
            .workers
            .as_ref()
            .is_some_and(|workers| change(&workers.host.pool, &worker));
        is_known
            .then_some(())
            .ok_or(RefusalReason::UnknownWorker { worker })
    }

    fn add_worker(&self, url: &str) -> Result<(), RefusalReason> {
        let refused = |problem: Problem| RefusalReason::InvalidArgument {
            problem: problem.to_line(),
        };
        let worker: SshWorker = url.parse().map_err(refused)?;
        let Some(workers) = &self.shared.workers else {
            let text = "the run began without workers, which it cannot get later";
            return Err(refused(Problem::new(text).with_help(
                "stop it, and continue it with `run --resume-run RUN --worker URL`",
            )));
        };
        workers.add(worker).map_err(refused)
    }

    fn record(&self, command: &RunCommand, origin: CommandOrigin) {
        let SharedAccess { started, user, .. } = self.shared.as_ref();
        let CommandOrigin { client, reason } = origin;
        let (command, units) = (command.name().to_owned(), command.units().to_vec());
        let note = CommandReceived {
            command,
            units,
            client,
            user: user.clone(),
            reason,
        };
        record_or_log(
            started.recorder.as_ref(),
            &Note::CommandReceived(Box::new(note)),
        );
    }

    fn set(&self, limit: &RunLimit) {
        let SharedAccess {
            limits, started, ..
        } = self.shared.as_ref();
        if let Some(changed) = limits.as_ref().and_then(|limits| limits.change(limit)) {
            record_or_log(started.recorder.as_ref(), &Note::LimitChanged(changed));
        }
    }

    async fn send(&self, event: ScheduleEvent) -> Result<(), RefusalReason> {
        self.schedule
            .send(event)
            .await
            .map_err(|_| RefusalReason::RunEnded)
    }
}

/// A failed write only needs a log entry: the next record of an attempt fails in the same way and ends the run.
fn record_or_log(recorder: &dyn Recorder, note: &Note) {
    if let Err(error) = recorder.record_note(None, note) {
        tracing::error!(%error, "a note is lost");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::approval::ApprovalQueue;
    use crate::attempt_limits::UNLIMITED_TIME;
    use crate::review::RunReview;
    use crate::run_meter::RunMeter;
    use ingestdeck_agent::attempt::{ApprovalDecision, ApprovalRequest};
    use ingestdeck_core::{
        control::UserDecision,
        run::{NewEntry, Recorder, entry_source::RecordError},
        tape::{EntryBody, RunId},
        units::failure_tally::FailureRule,
    };

    #[derive(Debug, Default)]
    struct NoteRecorder(parking_lot::Mutex<Vec<Note>>);

    impl Recorder for NoteRecorder {
        fn record(&self, items: &[NewEntry<'_>]) -> Result<(), RecordError> {
            let notes = items.iter().filter_map(|item| match item.body {
                EntryBody::Note(json) => Some(Note::parse(json)),
                _ => None,
            });
            self.0.lock().extend(notes);
            Ok(())
        }
    }

    fn origin() -> CommandOrigin {
        CommandOrigin {
            client: Some("ctl".into()),
            reason: Some("enough".into()),
        }
    }

    fn unit() -> UnitKey {
        "page".into()
    }

    struct TestRun {
        controller: RunController,
        approvals: Arc<ApprovalQueue>,
        tape: Arc<NoteRecorder>,
        events: mpsc::Receiver<ScheduleEvent>,
    }

    impl TestRun {
        fn new(is_of_units: bool) -> Self {
            let (schedule, events) = mpsc::channel(8);
            let meter = Arc::new(RunMeter::new(schedule.downgrade()));
            let tape = Arc::new(NoteRecorder::default());
            let approvals = Arc::new(ApprovalQueue::new(Arc::clone(&tape) as _, meter));
            let limits = is_of_units
                .then(|| Arc::new(AttemptLimits::new(20, FailureRule::Strict, UNLIMITED_TIME)));
            let review = Arc::new(RunReview::new(Arc::clone(&tape) as _, None));
            let started = StartedRun {
                id: RunId(uuid::Uuid::nil()),
                recorder: Arc::clone(&tape) as _,
                approvals: Arc::clone(&approvals),
                review,
                trace: None,
            };
            let controller =
                RunController::new(HashSet::from([unit()]), limits, started, None, schedule);
            Self {
                controller,
                approvals,
                tape,
                events,
            }
        }

        async fn execute(&self, command: RunCommand) -> CommandReply {
            self.controller.execute(command, origin()).await
        }
    }

    fn refused(reason: RefusalReason) -> CommandReply {
        CommandReply::Refused { reason }
    }

    #[tokio::test]
    async fn commands_reach_the_schedule() {
        let mut run = TestRun::new(true);
        for command in [
            RunCommand::Drain,
            RunCommand::Stop { unit: unit() },
            RunCommand::AdjustConcurrency { by: -1 },
        ] {
            assert_eq!(run.execute(command.clone()).await, CommandReply::Accepted);
            let sent = run.events.try_recv().ok();
            assert_eq!(sent, Some(ScheduleEvent::Requested(command)));
        }
    }

    #[tokio::test]
    async fn accepted_commands_are_recorded_with_their_sender() {
        let run = TestRun::new(true);
        run.execute(RunCommand::Stop { unit: unit() }).await;
        run.execute(RunCommand::Stop {
            unit: "other".into(),
        })
        .await;
        run.execute(RunCommand::Hold { unit: unit() }).await;
        let notes = run.tape.0.lock();
        let [
            Note::CommandReceived(stop),
            Note::CommandReceived(hold),
            Note::HoldRequested,
        ] = notes.as_slice()
        else {
            panic!("{notes:?}")
        };
        let user = User::from_uid(Uid::current())
            .unwrap()
            .map(|user| user.name);
        let expected = CommandReceived {
            command: "stop".into(),
            units: vec![unit()],
            client: Some("ctl".into()),
            user,
            reason: Some("enough".into()),
        };
        assert_eq!(**stop, expected);
        assert_eq!(hold.command, "hold");
    }

    #[tokio::test]
    async fn limits_reach_their_owner() {
        let mut run = TestRun::new(true);
        let set = |limit| RunCommand::Set { limit };
        assert_eq!(
            run.execute(set(RunLimit::Turns(30))).await,
            CommandReply::Accepted
        );
        assert_eq!(
            run.execute(set(RunLimit::Retries(1))).await,
            CommandReply::Accepted
        );
        let problem = refused(RefusalReason::InvalidArgument {
            problem: "invalid turns; expected 1 to 10000".into(),
        });
        assert_eq!(run.execute(set(RunLimit::Turns(0))).await, problem);
        let changed: Vec<_> = std::iter::from_fn(|| run.events.try_recv().ok()).collect();
        assert_eq!(
            changed,
            [RunLimit::Turns(30), RunLimit::Retries(1)]
                .map(|limit| ScheduleEvent::Requested(set(limit)))
        );
        let notes = run.tape.0.lock();
        let changed = notes
            .iter()
            .filter(|note| matches!(note, Note::LimitChanged(of) if of.limit == "turns"));
        assert_eq!(changed.count(), 1);
    }

    #[tokio::test]
    async fn unknown_units_are_refused() {
        let mut run = TestRun::new(true);
        let unknown = || UnitKey::from("other");
        let several = RunCommand::RetryUnits {
            units: vec![unit(), unknown()],
            amendment: None,
        };
        for command in [
            RunCommand::Stop { unit: unknown() },
            RunCommand::Hold { unit: unknown() },
            several,
        ] {
            let reason = RefusalReason::UnknownUnit { unit: unknown() };
            assert_eq!(run.execute(command).await, refused(reason));
        }
        assert!(run.events.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_call_can_be_decided_once() {
        let run = TestRun::new(true);
        let gate = run.approvals.gate(&unit(), 1);
        assert_eq!(
            run.execute(RunCommand::Hold { unit: unit() }).await,
            CommandReply::Accepted
        );
        let call = ApprovalRequest {
            tool: "wiki_write".into(),
            tool_use_id: Some("t1".into()),
            input: json!({}),
            earlier_failures: 0,
            asks_permission: false,
        };
        let waiting = tokio::spawn(async move { gate.decide(call).await });
        let decide = || RunCommand::Decide {
            unit: unit(),
            call: Some("t1".into()),
            decision: UserDecision::Allow,
        };
        // A call that asks nothing takes no answer.
        for decision in [
            UserDecision::Answer(Map::from_iter([("?".to_owned(), json!("a"))])),
            UserDecision::Cancel,
        ] {
            let answer = || RunCommand::Decide {
                unit: unit(),
                call: Some("t1".into()),
                decision: decision.clone(),
            };
            let not_waiting = refused(RefusalReason::CallNotWaiting { unit: unit() });
            let mut reply = run.execute(answer()).await;
            // The call waits once the task has run up to its first pause.
            while reply == not_waiting {
                tokio::task::yield_now().await;
                reply = run.execute(answer()).await;
            }
            let problem = "`wiki_write` does not take this decision".to_owned();
            assert_eq!(reply, refused(RefusalReason::InvalidArgument { problem }));
        }
        while run.execute(decide()).await != CommandReply::Accepted {
            tokio::task::yield_now().await;
        }
        assert_eq!(waiting.await.unwrap(), ApprovalDecision::Allow);
        assert_eq!(
            run.execute(decide()).await,
            refused(RefusalReason::CallNotWaiting { unit: unit() })
        );
        let notes = run.tape.0.lock();
        let decisions = notes
            .iter()
            .filter(|note| matches!(note, Note::CommandReceived(of) if of.command == "decide"));
        assert_eq!(decisions.count(), 1);
    }

    #[tokio::test]
    async fn ended_run_refuses_commands() {
        let TestRun {
            controller, events, ..
        } = TestRun::new(true);
        drop(events);
        for command in [RunCommand::Drain, RunCommand::Hold { unit: unit() }] {
            assert_eq!(
                controller.execute(command, origin()).await,
                refused(RefusalReason::RunEnded)
            );
        }
    }

    #[tokio::test]
    async fn calls_of_sessions_cannot_be_held() {
        let session = TestRun::new(false);
        let set = RunCommand::Set {
            limit: RunLimit::Turns(3),
        };
        for command in [
            RunCommand::Hold { unit: unit() },
            RunCommand::Release { unit: unit() },
            RunCommand::Pause,
            set,
        ] {
            assert_eq!(
                session.execute(command).await,
                refused(RefusalReason::CannotHold)
            );
        }
    }
}
