//! How an attempt ends: by itself after the result, or by steps that become firmer.

use nix::sys::signal::Signal;

use super::{AttemptEffect, AttemptMachine, AttemptPhase, AttemptTimer};
use crate::agent::{control::ControlRequest, process::EscalationStep};

impl AttemptMachine {
    /// No more work follows: lets the process exit by itself.
    pub(super) fn finish(&mut self) -> Vec<AttemptEffect> {
        self.phase = AttemptPhase::Finished;
        let mut steps = self.undelivered_messages();
        steps.push(AttemptEffect::CloseStdin);
        // A running escalation has its own, shorter timeout.
        if self.escalation.is_none() && !self.has_exited {
            steps.push(AttemptEffect::SetTimer(AttemptTimer::Exit));
        }
        steps
    }

    /// Performs an escalation step, unless it or a firmer one was performed.
    pub(super) fn escalate_to(&mut self, step: EscalationStep) -> Vec<AttemptEffect> {
        if self.has_exited || self.escalation.is_some_and(|taken| taken >= step) {
            return Vec::new();
        }
        self.escalation = Some(step);
        self.stats.mark_interrupted();
        let effect = match step {
            EscalationStep::Interrupt if !self.is_two_way => AttemptEffect::SignalGroup(Signal::SIGINT),
            EscalationStep::Interrupt if self.phase == AttemptPhase::Working => {
                AttemptEffect::WriteFrame(self.control.start_request(ControlRequest::Interrupt))
            }
            // No turn is running that an interrupt could end.
            EscalationStep::Interrupt => AttemptEffect::CloseStdin,
            EscalationStep::Terminate => AttemptEffect::SignalGroup(Signal::SIGTERM),
            EscalationStep::Kill => AttemptEffect::SignalGroup(Signal::SIGKILL),
            EscalationStep::GiveUp => return vec![AttemptEffect::StopWaiting],
        };
        vec![effect, AttemptEffect::SetTimer(AttemptTimer::Escalation)]
    }
}
