//! Sections of `ktx.yaml` that this program reads: each key is declared once, with its type and KTX's default.
//!
//! `key_schema` checks the keys and types, `settings` reads the values.

use ingestdeck_core::units::schedule::FailureMode;
use serde::Deserialize;

use crate::connection::ValueType;

/// Purpose of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ModelRole {
    /// Every role without its own model.
    Default,
    /// Sorting pages before the units run.
    Triage,
    CandidateExtraction,
    Curator,
    Reconcile,
    /// Resolution of conflicts between patches.
    Repair,
}

impl ModelRole {
    /// Every role, in KTX's order.
    pub const ALL: [Self; 6] = [
        Self::Default,
        Self::Triage,
        Self::CandidateExtraction,
        Self::Curator,
        Self::Reconcile,
        Self::Repair,
    ];

    /// The key in `llm.models`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Triage => "triage",
            Self::CandidateExtraction => "candidateExtraction",
            Self::Curator => "curator",
            Self::Reconcile => "reconcile",
            Self::Repair => "repair",
        }
    }
}

/// A type of settings, and which values of `ktx.yaml` it accepts.
pub(super) trait ProjectValue {
    const TYPE: ValueType;
}

impl ProjectValue for bool {
    const TYPE: ValueType = ValueType::Boolean;
}

impl ProjectValue for u32 {
    const TYPE: ValueType = ValueType::Integer(1);
}

impl ProjectValue for Option<u32> {
    const TYPE: ValueType = u32::TYPE;
}

impl ProjectValue for f64 {
    const TYPE: ValueType = ValueType::Fraction;
}

impl ProjectValue for FailureMode {
    const TYPE: ValueType = ValueType::OneOf(&["abort", "continue"]);
}

/// Declares sections: `field: Type = "key", default;`.
macro_rules! typed_sections {
    ($($(#[$doc:meta])* $name:ident {
        $($(#[$key_doc:meta])* $field:ident: $type:ty = $key:literal, $default:expr;)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[$key_doc])* #[serde(rename = $key)] pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl ProjectValue for $name {
            const TYPE: ValueType = ValueType::Map(&[$(($key, <$type>::TYPE)),*]);
        }
    )*};
}

typed_sections! {
    /// The settings under `ingest.workUnits`.
    WorkUnitSettings {
        /// Most turns of one attempt.
        step_budget: u32 = "stepBudget", 40;
        /// Number of units that run concurrently.
        max_concurrency: u32 = "maxConcurrency", 1;
        /// Effect of a failed unit on the others.
        failure_mode: FailureMode = "failureMode", FailureMode::Continue;
    }

    /// The settings under `ingest.rateLimit`.
    RateLimitSettings {
        /// Whether usage limits throttle the run.
        enabled: bool = "enabled", true;
        /// Fraction of a usage window above which fewer units run.
        throttle_threshold: f64 = "throttleThreshold", 0.8;
        /// Concurrency above that fraction.
        min_concurrency_under_pressure: u32 = "minConcurrencyUnderPressure", 1;
        /// Longest single wait, in milliseconds.
        max_wait_ms: Option<u32> = "maxWaitMs", None;
        /// Retries after the service rejects a request.
        retry: RetrySettings = "retry", RetrySettings::default();
    }

    /// The settings under `ingest.rateLimit.retry`.
    RetrySettings {
        /// Number of tries, including the first.
        max_attempts: u32 = "maxAttempts", 6;
        /// First wait, in milliseconds.
        base_delay_ms: u32 = "baseDelayMs", 1_000;
        /// Longest wait, in milliseconds.
        max_delay_ms: u32 = "maxDelayMs", 60_000;
        /// Whether waits vary randomly.
        jitter: bool = "jitter", true;
    }
}
