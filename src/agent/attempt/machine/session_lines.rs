//! The lines of a session: a lock on the session, and ids and modes that must not change.

use super::{AttemptEffect, AttemptMachine, AttemptPhase, AttemptTimer, error_note};
use crate::{
    attempt::session_monitor::{SessionLineFinding, SessionMonitor},
    process::EscalationStep,
};
use ingestdeck_core::{
    decode::{AgentLine, LineBody},
    tape::Note,
};

impl AttemptMachine {
    pub(super) fn handle_session_line(&mut self, line: &AgentLine<'_>) -> Vec<AttemptEffect> {
        let Some(session) = &mut self.session else {
            return Vec::new();
        };
        let mut steps = Vec::new();
        let finding = session.push_line(line);
        let (is_complete, has_begun) = (session.is_complete(), session.has_begun());
        if !self.has_exited {
            steps.extend(
                session
                    .take_session_to_lock()
                    .map(AttemptEffect::LockSession),
            );
        }
        if session.mismatch().is_none() {
            steps.extend(self.stats.push_line(line).map(AttemptEffect::RecordNote));
        }
        match finding {
            SessionLineFinding::Nothing => {}
            SessionLineFinding::Message(level, text) => {
                steps.insert(0, AttemptEffect::RecordNote(Note::Message { level, text }));
            }
            SessionLineFinding::Mismatch(text) | SessionLineFinding::Breach(text) => {
                steps.insert(0, error_note(text));
                steps.extend(self.escalate_to(EscalationStep::Terminate));
            }
        }
        if let LineBody::Control { .. } = line.body {
            steps.extend(self.handle_line_body(line));
            return steps;
        }
        if self.is_two_way && is_complete && self.phase != AttemptPhase::Finished {
            steps.extend(self.finish());
            return steps;
        }
        if self.phase == AttemptPhase::Initializing {
            return steps;
        }
        // A background task may start another turn after a result.
        self.phase = if is_complete || self.has_exited {
            AttemptPhase::Finished
        } else {
            AttemptPhase::Working
        };
        if self.escalation.is_none() && !self.has_exited {
            let timer = match (is_complete, has_begun) {
                (true, _) => Some(AttemptTimer::Exit),
                (false, false) => Some(AttemptTimer::Startup),
                (false, true) => None,
            };
            steps.extend(timer.map(AttemptEffect::SetTimer));
        }
        steps
    }

    /// Handles a session that cannot be locked: another process may continue it and split its history.
    pub(in crate::attempt) fn handle_lock_error(&mut self, error: String) -> Vec<AttemptEffect> {
        self.session
            .iter_mut()
            .for_each(SessionMonitor::stop_locking);
        self.stats.facts.process.start_error = Some(error.clone());
        let mut steps = vec![error_note(error)];
        steps.extend(self.escalate_to(EscalationStep::Terminate));
        steps
    }
}
