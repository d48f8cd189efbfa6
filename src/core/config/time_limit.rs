//! The value of a setting that limits a time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A time limit as a person set it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeLimitSetting {
    /// Not set: a default applies where no person can intervene.
    #[default]
    Unset,
    Unlimited,
    After(Duration),
}

impl TimeLimitSetting {
    /// The effective limit, with `default` for one that is not set.
    pub fn or(self, default: Option<Duration>) -> Option<Duration> {
        match self {
            Self::Unset => default,
            Self::Unlimited => None,
            Self::After(limit) => Some(limit),
        }
    }
}

impl From<Option<Duration>> for TimeLimitSetting {
    fn from(limit: Option<Duration>) -> Self {
        limit.map_or(Self::Unlimited, Self::After)
    }
}
