//! Verifies the isolation of each turn: the tools that the agent announces, and the settings that it has read.

use super::{AttemptEffect, AttemptMachine, AttemptPhase, AttemptTimer, warning_note};
use crate::{
    claude::{
        isolation,
        version::{ClaudeVersion, ReleaseSupport},
    },
    control::ControlRequest,
    process::EscalationStep,
};
use ingestdeck_core::{
    decode::line::InitLine,
    diagnostic::Diagnostic as _,
    tape::{Note, note::IsolationChecked},
    units::verdict::IsolationStatus,
};

impl AttemptMachine {
    /// Handles the start of a turn, with the tools that the agent announces.
    pub(super) fn handle_init(&mut self, init: &InitLine<'_>) -> Vec<AttemptEffect> {
        if let Some(release) = init
            .version
            .as_deref()
            .and_then(ClaudeVersion::parse_announced)
            && release.support() == ReleaseSupport::Unsupported
            && let Some(problem) = release.support().problem(release)
        {
            // The program was replaced since it was checked.
            self.stats
                .facts
                .interruption
                .unsupported_release
                .get_or_insert((problem.to_string(), problem.help()));
            return self.escalate_to(EscalationStep::Interrupt);
        }
        if let Some(sentence) = self.proof.init_breach(init) {
            return self.record_breach(sentence);
        }
        // The messages of a person that came too late for the last request start another turn. Its settings cannot be
        // verified, since stdin is closed, and its work would be beyond the limits of the unit.
        if self.stats.is_complete() && !self.is_awaiting_settings() {
            let text = "another turn began after the result and was ended; to send a message, retry the unit with feedback";
            let mut steps = vec![warning_note(text)];
            steps.extend(self.escalate_to(EscalationStep::Terminate));
            return steps;
        }
        let mut steps = vec![self.isolation_note(None)];
        let is_first = !std::mem::replace(&mut self.has_announced_turn, true);
        self.update_isolation();
        if is_first {
            steps.push(AttemptEffect::StartupFinished);
        } else if !self.control.is_request_pending(&ControlRequest::Settings) {
            steps.push(AttemptEffect::WriteFrame(
                self.control.start_request(ControlRequest::Settings),
            ));
            if self.escalation.is_none() {
                steps.push(AttemptEffect::SetTimer(AttemptTimer::Settings));
            }
        }
        steps
    }

    /// True if a later turn has started and its settings are not reported yet.
    pub(super) fn is_awaiting_settings(&self) -> bool {
        let is_later = self.has_announced_turn && self.settings_sources.is_some();
        is_later
            && self.control.is_request_pending(&ControlRequest::Settings)
            && self.escalation.is_none()
    }

    /// Marks the isolation as verified once the agent has reported its tools and settings without a breach.
    fn update_isolation(&mut self) {
        let isolation = &mut self.stats.facts.isolation;
        if *isolation == IsolationStatus::Unverified
            && self.has_announced_turn
            && self.settings_sources.is_some()
        {
            *isolation = IsolationStatus::Verified;
        }
    }

    pub(super) fn record_breach(&mut self, sentence: String) -> Vec<AttemptEffect> {
        let mut steps = vec![self.isolation_note(Some(sentence.clone()))];
        // Keep the first breach.
        if self.stats.facts.isolation_breach().is_none() {
            self.stats.facts.isolation = IsolationStatus::Breached(sentence);
        }
        steps.extend(self.escalate_to(EscalationStep::Interrupt));
        steps
    }

    fn isolation_note(&self, breach: Option<String>) -> AttemptEffect {
        AttemptEffect::RecordNote(Note::IsolationChecked(IsolationChecked {
            breach,
            settings_sources: self.settings_sources.clone(),
        }))
    }

    /// No reply can follow: a turn without a settings reply is not verified.
    pub(super) fn fail_missing_settings(&mut self) -> Vec<AttemptEffect> {
        let is_unproved = self.stats.has_result() && self.is_awaiting_settings();
        if is_unproved {
            self.handle_settings(None)
        } else {
            Vec::new()
        }
    }

    /// Handles the reply about settings; `None` if the agent does not report them.
    pub(super) fn handle_settings(&mut self, sources: Option<Vec<String>>) -> Vec<AttemptEffect> {
        if let Some(sentence) = isolation::settings_breach(sources.as_deref()) {
            self.settings_sources = sources;
            return self.record_breach(sentence);
        }
        self.settings_sources = sources;
        self.update_isolation();
        if self.phase == AttemptPhase::VerifyingIsolation && self.escalation.is_none() {
            self.send_prompt()
        } else {
            Vec::new()
        }
    }
}
