//! Carries out the commands of clients: decisions about calls go to the approval queue, everything else to the schedule.
//!
//! The one way by which a client changes a run. It must not know what kind of client sends a command.

use std::{collections::HashSet, sync::Arc};

use tokio::sync::mpsc;

use super::approval::ApprovalQueue;
use crate::{
    control::{CommandReply, RefusalReason, RunCommand},
    tape::UnitKey,
    units::schedule::ScheduleEvent,
};

/// Access of clients to a run. The run stays open for commands until the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct RunController {
    units: Arc<HashSet<UnitKey>>,
    /// Calls ask the approval queue before they run.
    can_hold: bool,
    approvals: Arc<ApprovalQueue>,
    schedule: mpsc::Sender<ScheduleEvent>,
}

/// Access to a run that may be over.
#[derive(Clone, Debug)]
pub(super) struct WeakRunController {
    units: Arc<HashSet<UnitKey>>,
    can_hold: bool,
    approvals: Arc<ApprovalQueue>,
    schedule: mpsc::WeakSender<ScheduleEvent>,
}

impl WeakRunController {
    /// Carries out `command` as [`RunController::execute`] does.
    pub(super) async fn execute(&self, command: RunCommand) -> CommandReply {
        let Some(schedule) = self.schedule.upgrade() else {
            return CommandReply::Refused { reason: RefusalReason::RunEnded };
        };
        let (units, approvals) = (Arc::clone(&self.units), Arc::clone(&self.approvals));
        RunController { units, can_hold: self.can_hold, approvals, schedule }.execute(command).await
    }
}

impl RunController {
    pub(super) fn new(
        units: HashSet<UnitKey>,
        can_hold: bool,
        approvals: Arc<ApprovalQueue>,
        schedule: mpsc::Sender<ScheduleEvent>,
    ) -> Self {
        Self { units: Arc::new(units), can_hold, approvals, schedule }
    }

    /// Access that does not keep the run open.
    pub(super) fn downgrade(&self) -> WeakRunController {
        let Self { units, can_hold, approvals, schedule } = self;
        let (units, approvals) = (Arc::clone(units), Arc::clone(approvals));
        WeakRunController { units, can_hold: *can_hold, approvals, schedule: schedule.downgrade() }
    }

    /// Carries out `command`, and waits while the schedule has no room for it.
    pub(crate) async fn execute(&self, command: RunCommand) -> CommandReply {
        match self.try_execute(command).await {
            Ok(()) => CommandReply::Accepted,
            Err(reason) => CommandReply::Refused { reason },
        }
    }

    async fn try_execute(&self, command: RunCommand) -> Result<(), RefusalReason> {
        if self.schedule.is_closed() {
            return Err(RefusalReason::RunEnded);
        }
        if let Some(unit) = command.units().iter().find(|unit| !self.units.contains(*unit)) {
            return Err(RefusalReason::UnknownUnit { unit: unit.clone() });
        }
        if let Some(problem) = command.problem() {
            return Err(RefusalReason::InvalidArgument { problem });
        }
        let holds = matches!(
            command,
            RunCommand::Hold { .. }
                | RunCommand::Release { .. }
                | RunCommand::RunUntil { .. }
                | RunCommand::Decide { .. }
        );
        if holds && !self.can_hold {
            return Err(RefusalReason::CannotHold);
        }
        match command {
            RunCommand::Hold { unit } => self.approvals.hold(&unit),
            RunCommand::Release { unit } => self.approvals.release(&unit),
            RunCommand::RunUntil { unit, call, conditions } => {
                self.approvals.run_until(&unit, call.as_deref(), conditions);
            }
            RunCommand::Decide { unit, call, decision } => {
                if !self.approvals.decide_call(&unit, call.as_deref(), decision) {
                    return Err(RefusalReason::CallNotWaiting { unit });
                }
            }
            RunCommand::RetryUnits { units, amendment } => {
                for unit in units {
                    let amendment = amendment.clone();
                    self.send(ScheduleEvent::RetryRequested { unit, amendment }).await?;
                }
            }
            RunCommand::Retry { unit, amendment } => {
                self.send(ScheduleEvent::RetryRequested { unit, amendment }).await?;
            }
            RunCommand::RetryUnsuccessful => self.send(ScheduleEvent::RetryUnsuccessfulRequested).await?,
            RunCommand::LiftLimit => self.send(ScheduleEvent::LimitOverridden).await?,
            RunCommand::Stop { unit } => self.send(ScheduleEvent::StopRequested { unit }).await?,
            RunCommand::Drain => self.send(ScheduleEvent::DrainRequested).await?,
            RunCommand::AdjustConcurrency { by } => self.send(ScheduleEvent::ConcurrencyChanged { by }).await?,
            RunCommand::StopAll => self.send(ScheduleEvent::StopAllRequested).await?,
            RunCommand::KillAll => self.send(ScheduleEvent::KillAllRequested).await?,
        }
        Ok(())
    }

    async fn send(&self, event: ScheduleEvent) -> Result<(), RefusalReason> {
        self.schedule.send(event).await.map_err(|_| RefusalReason::RunEnded)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        agent::attempt::{ApprovalDecision, ApprovalRequest},
        control::UserDecision,
        engine::run_meter::RunMeter,
        run::{NewEntry, Recorder, entry_source::RecordError},
    };

    #[derive(Debug)]
    struct DiscardingRecorder;

    impl Recorder for DiscardingRecorder {
        fn record(&self, _: &[NewEntry<'_>]) -> Result<(), RecordError> {
            Ok(())
        }
    }

    fn unit() -> UnitKey {
        "page".into()
    }

    fn controller() -> (RunController, Arc<ApprovalQueue>, mpsc::Receiver<ScheduleEvent>) {
        let (schedule, events) = mpsc::channel(8);
        let meter = Arc::new(RunMeter::new(schedule.downgrade()));
        let approvals = Arc::new(ApprovalQueue::new(Arc::new(DiscardingRecorder), meter));
        (RunController::new(HashSet::from([unit()]), true, Arc::clone(&approvals), schedule), approvals, events)
    }

    fn refused(reason: RefusalReason) -> CommandReply {
        CommandReply::Refused { reason }
    }

    #[tokio::test]
    async fn commands_become_schedule_events() {
        let (controller, _, mut events) = controller();
        for (command, event) in [
            (RunCommand::Drain, ScheduleEvent::DrainRequested),
            (RunCommand::Stop { unit: unit() }, ScheduleEvent::StopRequested { unit: unit() }),
            (RunCommand::AdjustConcurrency { by: -1 }, ScheduleEvent::ConcurrencyChanged { by: -1 }),
        ] {
            assert_eq!(controller.execute(command).await, CommandReply::Accepted);
            assert_eq!(events.try_recv(), Ok(event));
        }
    }

    #[tokio::test]
    async fn unknown_units_are_refused() {
        let (controller, _, mut events) = controller();
        let unknown = || UnitKey::from("other");
        let several = RunCommand::RetryUnits { units: vec![unit(), unknown()], amendment: None };
        for command in [RunCommand::Stop { unit: unknown() }, RunCommand::Hold { unit: unknown() }, several] {
            let reason = RefusalReason::UnknownUnit { unit: unknown() };
            assert_eq!(controller.execute(command).await, refused(reason));
        }
        assert!(events.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_call_can_be_decided_once() {
        let (controller, approvals, _events) = controller();
        let gate = approvals.gate(&unit(), 1);
        assert_eq!(controller.execute(RunCommand::Hold { unit: unit() }).await, CommandReply::Accepted);
        let call = ApprovalRequest {
            tool: "wiki_write".into(),
            tool_use_id: Some("t1".into()),
            input: json!({}),
            earlier_failures: 0,
        };
        let waiting = tokio::spawn(async move { gate.decide(call).await });
        let decide = || RunCommand::Decide { unit: unit(), call: Some("t1".into()), decision: UserDecision::Allow };
        // The call waits once the task has run up to its first pause.
        while controller.execute(decide()).await != CommandReply::Accepted {
            tokio::task::yield_now().await;
        }
        assert_eq!(waiting.await.unwrap(), ApprovalDecision::Allow);
        assert_eq!(controller.execute(decide()).await, refused(RefusalReason::CallNotWaiting { unit: unit() }));
    }

    #[tokio::test]
    async fn ended_run_refuses_commands() {
        let (controller, _, events) = controller();
        drop(events);
        for command in [RunCommand::Drain, RunCommand::Hold { unit: unit() }] {
            assert_eq!(controller.execute(command).await, refused(RefusalReason::RunEnded));
        }
    }

    #[tokio::test]
    async fn calls_of_sessions_cannot_be_held() {
        let (controller, _, _events) = controller();
        let session = RunController { can_hold: false, ..controller };
        for command in [RunCommand::Hold { unit: unit() }, RunCommand::Release { unit: unit() }] {
            assert_eq!(session.execute(command).await, refused(RefusalReason::CannotHold));
        }
    }
}
