//! Automatic retries: whether one follows an attempt, and how the attempt is repeated. Tool effects outside of a
//! workspace must not be repeated.

use super::{Schedule, ScheduleEffect, push_message};
use crate::{
    tape::{
        Note,
        note::{Severity, Verdict, VerdictCause},
    },
    units::retry::{MAX_LOST_ATTEMPTS, RetryDecision, RetryMode},
};

impl Schedule {
    pub(super) fn push_retry_note(
        &self,
        at: usize,
        delay_ms: u64,
        cause: &VerdictCause,
        effects: &mut Vec<ScheduleEffect>,
    ) {
        let unit = &self.table.units()[at];
        let note = Note::RetryScheduled {
            next: unit.attempts + 1,
            delay_ms,
            cause: cause.clone(),
        };
        effects.push(unit.note_effect(note));
    }

    /// Asks [`RetryPolicy`](crate::units::retry::RetryPolicy) what follows `verdict` of the unit at `at`.
    pub(super) fn decide_retry(
        &mut self,
        at: usize,
        verdict: &Verdict,
        repeat: RetryMode,
        asked_to_stop: bool,
        effects: &mut Vec<ScheduleEffect>,
    ) -> RetryDecision {
        let retries = self.table.units()[at].repeated.retries;
        if repeat == RetryMode::Elsewhere {
            self.table.set_resume_session(at, None);
            let is_hopeless = self.table.count_lost_attempt(at) >= MAX_LOST_ATTEMPTS;
            return if is_hopeless {
                RetryDecision::Final
            } else {
                RetryDecision::Elsewhere
            };
        }
        if repeat == RetryMode::LostSession {
            self.table.set_resume_session(at, None);
            let key = &self.table.units()[at].key;
            let text = format!("{key} begins from the start: its session cannot be read");
            push_message(Severity::Warning, text, effects);
            return RetryDecision::Elsewhere;
        }
        if let RetryMode::NewSession(message) = repeat {
            if retries >= self.settings.retry.max_retries {
                return RetryDecision::Final;
            }
            self.table.set_message(at, message);
            return RetryDecision::Retry { delay_ms: 0 };
        }
        let next = match self.settings.retry.decide(verdict, retries) {
            RetryDecision::AwaitLimit if !self.settings.throttle_policy.enabled => {
                RetryDecision::Final
            }
            RetryDecision::AwaitCapacity if self.runs_alone(at) => RetryDecision::Final,
            next => next,
        };
        match repeat {
            _ if next == RetryDecision::Final => next,
            RetryMode::FromStart => {
                // The next turn of a session continues it, whatever its last one did.
                if !self.settings.is_session {
                    self.table.set_resume_session(at, None);
                }
                next
            }
            RetryMode::ResumeSession(session) => {
                self.table.set_resume_session(at, Some(session));
                next
            }
            RetryMode::NewSession(_)
            | RetryMode::Elsewhere
            | RetryMode::LostSession
            | RetryMode::Never => {
                if !asked_to_stop && self.halt.is_none() {
                    let key = &self.table.units()[at].key;
                    let text = format!(
                        "{key} is not retried: its tools have run, and its session id is unknown"
                    );
                    push_message(Severity::Warning, text, effects);
                }
                RetryDecision::Final
            }
        }
    }
}
