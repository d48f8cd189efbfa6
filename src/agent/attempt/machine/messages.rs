//! Messages of a person to the agent. They are sent while a call is open: Claude Code then adds them to the running turn.
//! At another time they could become a turn after the result.

use super::{AttemptEffect, AttemptMachine, AttemptPhase, warning_note};
use crate::control::user_message_frame;
use ingestdeck_core::tape::Note;

impl AttemptMachine {
    pub(super) fn handle_message(&mut self, text: String) -> Vec<AttemptEffect> {
        self.outbox.push(text);
        if self.phase == AttemptPhase::Finished || !self.is_two_way || self.escalation.is_some() {
            return self.undelivered_messages();
        }
        let is_call_open =
            self.phase == AttemptPhase::Working && self.control.has_pending_agent_requests();
        if is_call_open {
            self.send_messages()
        } else {
            Vec::new()
        }
    }

    /// Sends the messages that wait, unless the turn limit allows no further request to the model: Claude Code would
    /// start another turn with them.
    pub(super) fn send_messages(&mut self) -> Vec<AttemptEffect> {
        if self.stats.is_at_turn_limit() {
            return self.undelivered_messages();
        }
        let messages = std::mem::take(&mut self.outbox).into_iter();
        let send = |text: String| {
            let frame = user_message_frame(&text);
            [
                AttemptEffect::RecordNote(Note::MessageSent { text }),
                AttemptEffect::WriteFrame(frame),
            ]
        };
        messages.flat_map(send).collect()
    }

    /// The messages that the agent did not receive.
    pub(crate) fn take_undelivered(&mut self) -> Vec<String> {
        std::mem::take(&mut self.outbox)
    }

    /// Reports the messages that the agent can no longer receive. In a session they become the next turn.
    pub(super) fn undelivered_messages(&mut self) -> Vec<AttemptEffect> {
        if self.session.is_some() || std::mem::take(&mut self.outbox).is_empty() {
            return Vec::new();
        }
        let text = "a message did not reach the agent, which makes no further request; retry the unit with feedback";
        vec![warning_note(text)]
    }
}
