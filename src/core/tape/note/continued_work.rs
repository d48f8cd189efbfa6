//! What an attempt continues: the session and the changes of earlier attempts that were cut from outside.

use serde::{Deserialize, Serialize};

use crate::tape::RunId;

/// The effort of the earlier attempts in a session, which need not be made again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContinuedWork {
    /// The run of the last of them, if it is another run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Number of the last of them.
    pub attempt: u32,
    /// Turns of the model so far. They count against the limit of the attempt.
    pub turns: u32,
    /// Tokens of these turns, cached ones included.
    pub tokens: u64,
    /// Time in which these attempts ran, in milliseconds.
    pub active_ms: u64,
    /// Their cost in US dollars; `None` if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

impl ContinuedWork {
    /// Adds what an attempt continued itself.
    #[must_use]
    pub fn after(self, earlier: Option<&Self>) -> Self {
        let Some(earlier) = earlier else { return self };
        Self {
            turns: self.turns.saturating_add(earlier.turns),
            tokens: self.tokens.saturating_add(earlier.tokens),
            active_ms: self.active_ms.saturating_add(earlier.active_ms),
            cost_usd: self
                .cost_usd
                .zip(earlier.cost_usd)
                .map(|(own, before)| own + before),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn efforts_of_a_chain_add_up() {
        let first = ContinuedWork {
            attempt: 1,
            turns: 3,
            tokens: 12_000,
            active_ms: 60_000,
            cost_usd: Some(0.25),
            ..ContinuedWork::default()
        };
        let second = ContinuedWork {
            attempt: 2,
            turns: 2,
            tokens: 300,
            active_ms: 125_000,
            cost_usd: Some(0.5),
            ..ContinuedWork::default()
        };
        let both = second.clone().after(Some(&first));
        assert_eq!((both.turns, both.cost_usd), (5, Some(0.75)));
        assert_eq!(
            (both.attempt, both.tokens, both.active_ms),
            (2, 12_300, 185_000)
        );
        let unknown = ContinuedWork {
            cost_usd: None,
            ..first
        };
        assert_eq!(second.clone().after(Some(&unknown)).cost_usd, None);
        assert_eq!(second.clone().after(None), second);
    }
}
