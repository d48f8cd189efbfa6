//! What follows an attempt without anybody asking, and how it is made again: what the tools of an attempt did outside of a
//! workspace is not done twice.

use super::{Schedule, ScheduleEffect, push_message};
use crate::{
    tape::note::{Severity, Verdict},
    units::retry::{RetryDecision, RetryMode},
};

impl Schedule {
    /// What follows `verdict` of the unit at `at`.
    pub(super) fn decide_retry(
        &mut self,
        at: usize,
        verdict: &Verdict,
        repeat: RetryMode,
        asked_to_stop: bool,
        orders: &mut Vec<ScheduleEffect>,
    ) -> RetryDecision {
        let next = match self.settings.retry.decide(verdict, self.board.units()[at].retries) {
            RetryDecision::AwaitLimit if !self.settings.throttle_policy.enabled => RetryDecision::Final,
            RetryDecision::AwaitCapacity if self.runs_alone(at) => RetryDecision::Final,
            next => next,
        };
        match repeat {
            _ if next == RetryDecision::Final => next,
            RetryMode::FromStart => next,
            RetryMode::ResumeSession(session) => {
                self.board.set_resume_session(at, session);
                next
            }
            RetryMode::Never => {
                if !asked_to_stop && self.halt.is_none() {
                    let key = &self.board.units()[at].key;
                    let text = format!("{key} is not retried: its tools have run, and its session id is unknown");
                    push_message(Severity::Warning, text, orders);
                }
                RetryDecision::Final
            }
        }
    }
}
