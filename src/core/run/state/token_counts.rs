//! Tokens by their kind, and what an attempt used of one model.

use std::sync::Arc;

use crate::decode::Usage;

/// What an attempt used of one model, as its agent reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpending {
    pub model: Arc<str>,
    /// US dollars; `None` if the agent reported none for this model.
    pub cost_usd: Option<f64>,
    pub tokens: TokenCounts,
}

impl ModelSpending {
    /// The sum of two parts. The cost is unknown if one of them is.
    pub fn plus(self, other: &Self) -> Self {
        let cost_usd = self
            .cost_usd
            .zip(other.cost_usd)
            .map(|(one, other)| one + other);
        Self {
            cost_usd,
            tokens: self.tokens.plus(other.tokens),
            ..self
        }
    }
}

/// Tokens of an attempt: the highest value per message while it runs, the result's totals afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Input tokens that were not cached.
    pub input: u64,
    pub output: u64,
    /// Read from the cache.
    pub cache_read: u64,
    /// Written to the cache.
    pub cache_write: u64,
}

impl From<Usage> for TokenCounts {
    fn from(usage: Usage) -> Self {
        let Usage {
            input,
            output,
            cache_read,
            cache_write,
            ..
        } = usage;
        Self {
            input,
            output,
            cache_read,
            cache_write,
        }
    }
}

impl TokenCounts {
    pub fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
        }
    }

    pub fn total(&self) -> u64 {
        [self.output, self.cache_read, self.cache_write]
            .into_iter()
            .fold(self.input, u64::saturating_add)
    }
}

/// How much of the context of its model the last message of the main loop used. Zero is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextUsage {
    /// Input tokens of the message, cached ones included.
    pub(in crate::run) used: u32,
    /// Tokens that the model can read.
    pub(in crate::run) window: u32,
}

impl ContextUsage {
    /// The used part in percent, at most 100; `None` if one of the numbers is unknown.
    pub fn percent(self) -> Option<u8> {
        let (used, window) = (u64::from(self.used), u64::from(self.window));
        let percent = (used * 100).checked_div(window).filter(|_| used > 0)?;
        u8::try_from(percent.min(100)).ok()
    }
}
