//! How an attempt ends: by itself after the result, or by steps that become firmer.

use nix::sys::signal::Signal;

use super::{AttemptEffect, AttemptMachine, AttemptPhase, AttemptTimer};
use crate::{control::ControlRequest, process::EscalationStep};
use ingestdeck_core::tape::{Note, note::Severity};

/// Requests to the model that a question leads to at least: one that reads, and one that ends.
const TURNS_OF_A_QUESTION: u32 = 2;

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

    /// True while the agent can be asked to continue: once, and not if the turn limit would then end its work.
    pub(super) fn may_be_asked(&self) -> bool {
        let is_working = self.phase == AttemptPhase::Working && self.escalation.is_none();
        is_working && !self.control.has_asked() && self.stats.has_turns_left(TURNS_OF_A_QUESTION)
    }

    /// Answers an agent that is about to end its turn: with the question of the tools, or by letting it end.
    pub(in crate::attempt) fn handle_stop_question(
        &mut self,
        request_id: &str,
        question: Option<String>,
    ) -> Vec<AttemptEffect> {
        let answer =
            AttemptEffect::WriteFrame(self.control.answer_stop(request_id, question.as_deref()));
        let Some(text) = question else {
            return vec![answer];
        };
        let text = format!("asked the agent before it ended: {text}");
        vec![
            AttemptEffect::RecordNote(Note::Message {
                level: Severity::Info,
                text,
            }),
            answer,
        ]
    }

    /// Performs an escalation step, unless it or a firmer one was performed.
    pub(super) fn escalate_to(&mut self, step: EscalationStep) -> Vec<AttemptEffect> {
        if self.has_exited || self.escalation.is_some_and(|taken| taken >= step) {
            return Vec::new();
        }
        self.escalation = Some(step);
        self.stats.mark_interrupted();
        let effect = match step {
            EscalationStep::Interrupt if !self.is_two_way => {
                AttemptEffect::SignalGroup(Signal::SIGINT)
            }
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
