//! Decides when a failed attempt is retried automatically, and after which wait. The module must not depend on timers
//! or workspaces.

use serde::{Deserialize, Serialize};

use crate::{
    config::AutoRetrySettings,
    tape::note::{AttemptOutcome, Verdict, VerdictCause},
};

/// Number of attempts at a unit that may be lost with their workers or end at the limit of an account before it fails: it
/// may be what ends them.
pub(crate) const MAX_LOST_ATTEMPTS: u32 = 10;

/// Retries with growing waits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Attempts after the first one.
    pub max_retries: u32,
    /// First wait, in milliseconds.
    pub initial_delay_ms: u64,
    /// Factor from one wait to the next.
    pub factor: f64,
    /// Longest wait, in milliseconds.
    pub max_delay_ms: u64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_retries: 3,
            initial_delay_ms: 1_000,
            factor: 2.0,
            max_delay_ms: 30_000,
        }
    }
}

impl From<&AutoRetrySettings> for RetryPolicy {
    fn from(settings: &AutoRetrySettings) -> Self {
        Self {
            max_retries: *settings.max_retries,
            initial_delay_ms: *settings.initial_delay_ms,
            factor: *settings.factor,
            max_delay_ms: *settings.max_delay_ms,
        }
    }
}

/// What follows an attempt automatically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    /// Nothing: the verdict is final.
    Final,
    /// Another attempt after a wait.
    Retry { delay_ms: u64 },
    /// Another attempt after the run has waited for its limit. Does not count as a retry.
    AwaitLimit,
    /// Another attempt once fewer units run. Does not count as a retry.
    AwaitCapacity,
    /// Another attempt once the agent's program is available again. Does not count as a retry.
    AwaitProgram,
    /// Another attempt in another place or another session. Does not count as a retry.
    Elsewhere,
}

/// How an attempt may be repeated automatically.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RetryMode {
    /// From the start: the attempt left nothing behind.
    #[default]
    FromStart,
    /// Only by continuing this session, because its tools had lasting effects.
    ResumeSession(String),
    /// In a new session with this message, because the context of the session is full.
    NewSession(String),
    /// From the start in another place: its worker was lost, or its account has spent its limit. This counts as no retry.
    Elsewhere,
    /// From the start, because Claude Code does not have the session that was cut. This counts as no retry: the session is
    /// not continued again.
    LostSession,
    /// Not at all: its tools had lasting effects, and there is no session to continue.
    Never,
}

/// Whether the session of a failed attempt can be continued: it was cut from outside, not by what the model did. Counted
/// failures would fail the unit in the same session again.
pub fn is_cut_from_outside(cause: &VerdictCause, counted_failures: usize) -> bool {
    let is_external = matches!(
        cause,
        VerdictCause::UsageLimit { .. }
            | VerdictCause::RateLimited
            | VerdictCause::Transient
            | VerdictCause::Network
            | VerdictCause::SilenceTimeout
    );
    is_external && counted_failures == 0
}

impl RetryPolicy {
    /// Decides what follows `verdict` for a unit that has used `used` retries. Without remaining retries, the failure
    /// is final. Only failures are retried, by their cause: a new rule is a cause here. Success whose patch cannot be
    /// integrated does not come here.
    pub(crate) fn decide(&self, verdict: &Verdict, used: u32) -> RetryDecision {
        if verdict.outcome != AttemptOutcome::Failed {
            return RetryDecision::Final;
        }
        match verdict.cause {
            VerdictCause::UsageLimit { .. } | VerdictCause::RateLimited => {
                RetryDecision::AwaitLimit
            }
            VerdictCause::OpenFiles => RetryDecision::AwaitCapacity,
            VerdictCause::ProgramMissing | VerdictCause::StartFailed => RetryDecision::AwaitProgram,
            VerdictCause::Transient
            | VerdictCause::Network
            | VerdictCause::SilenceTimeout
            | VerdictCause::UnitTimeout
                if used < self.max_retries =>
            {
                RetryDecision::Retry {
                    delay_ms: self.delay_ms(used),
                }
            }
            _ => RetryDecision::Final,
        }
    }

    /// The wait before retry number `used + 1`: `initial · factor^used`, capped, in milliseconds.
    pub(crate) fn delay_ms(&self, used: u32) -> u64 {
        #[expect(clippy::cast_precision_loss, reason = "waits are far below 2^53 ms")]
        let initial = self.initial_delay_ms as f64;
        let grown = initial
            * self
                .factor
                .max(1.0)
                .powi(i32::try_from(used).unwrap_or(i32::MAX));
        // Float casts saturate, and NaN becomes 0.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, and is not negative"
        )]
        let grown = grown as u64;
        grown.min(self.max_delay_ms)
    }
}

/// Whether the other units of the run would fail in the same way: because of the account, the common model, or the
/// network if no attempt got through.
pub(crate) fn affects_every_unit(cause: &VerdictCause, own_model: bool, got_through: bool) -> bool {
    match cause {
        VerdictCause::Auth
        | VerdictCause::Credit
        | VerdictCause::ProgramMissing
        | VerdictCause::StartFailed => true,
        VerdictCause::Model => !own_model,
        VerdictCause::Network => !got_through,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tape::note::StopReason;

    fn failed(cause: VerdictCause) -> Verdict {
        Verdict {
            outcome: AttemptOutcome::Failed,
            stop: StopReason::Error,
            cause,
            reason: "x".into(),
            remedy: None,
        }
    }

    #[test]
    fn waits_double_up_to_the_cap() {
        let waits: Vec<u64> = (0..7)
            .map(|used| RetryPolicy::default().delay_ms(used))
            .collect();
        assert_eq!(waits, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
    }

    #[test]
    fn only_clean_sessions_cut_from_outside_continue() {
        let limit = VerdictCause::UsageLimit { resets_at: None };
        for cause in [
            &limit,
            &VerdictCause::RateLimited,
            &VerdictCause::Transient,
            &VerdictCause::Network,
            &VerdictCause::SilenceTimeout,
        ] {
            assert!(is_cut_from_outside(cause, 0), "{cause:?}");
        }
        for cause in [
            VerdictCause::UnitTimeout,
            VerdictCause::ToolFailures,
            VerdictCause::NothingDone,
            VerdictCause::Isolation,
            VerdictCause::LoopError,
            VerdictCause::Cancelled,
        ] {
            assert!(!is_cut_from_outside(&cause, 0), "{cause:?}");
        }
        assert!(!is_cut_from_outside(&limit, 1));
    }

    #[test]
    fn only_transient_causes_are_retried() {
        let policy = RetryPolicy::default();
        for cause in [
            VerdictCause::Transient,
            VerdictCause::Network,
            VerdictCause::SilenceTimeout,
            VerdictCause::UnitTimeout,
        ] {
            assert_eq!(
                policy.decide(&failed(cause.clone()), 2),
                RetryDecision::Retry { delay_ms: 4_000 }
            );
            assert_eq!(policy.decide(&failed(cause), 3), RetryDecision::Final);
        }
        for cause in [
            VerdictCause::UsageLimit { resets_at: None },
            VerdictCause::RateLimited,
        ] {
            assert_eq!(policy.decide(&failed(cause), 99), RetryDecision::AwaitLimit);
        }
        assert_eq!(
            policy.decide(&failed(VerdictCause::OpenFiles), 99),
            RetryDecision::AwaitCapacity
        );
        assert_eq!(
            policy.decide(&failed(VerdictCause::ProgramMissing), 99),
            RetryDecision::AwaitProgram
        );
        assert_eq!(
            policy.decide(&failed(VerdictCause::StartFailed), 99),
            RetryDecision::AwaitProgram
        );
        for cause in [
            VerdictCause::Auth,
            VerdictCause::ToolFailures,
            VerdictCause::Crashed,
            VerdictCause::Isolation,
            VerdictCause::LoopError,
        ] {
            assert_eq!(policy.decide(&failed(cause), 0), RetryDecision::Final);
        }
        for outcome in [AttemptOutcome::Stopped, AttemptOutcome::Succeeded] {
            assert_eq!(
                policy.decide(
                    &Verdict {
                        outcome,
                        ..failed(VerdictCause::Transient)
                    },
                    0
                ),
                RetryDecision::Final
            );
        }
    }

    proptest! {
        #[test]
        fn waits_never_shrink_and_never_pass_the_cap(
            initial in 0..100_000u64, factor in prop::num::f64::ANY, cap in 0..1_000_000u64, used in any::<u32>(),
        ) {
            let policy = RetryPolicy { max_retries: 3, initial_delay_ms: initial, factor, max_delay_ms: cap };
            let (now, next) = (policy.delay_ms(used), policy.delay_ms(used.saturating_add(1)));
            prop_assert!(now <= next && next <= cap, "{now} {next}");
            prop_assert!(now >= initial.min(cap));
        }
    }
}
