//! What an attempt saved because it continued the session of earlier ones, as text.

use crate::{
    tape::{Millis, note::ContinuedWork},
    text::count,
};

/// For example `continues attempt 1 of run a1b2c3: saved about 12.3k tokens, 3m 05s`.
pub fn continued_sentence(work: &ContinuedWork) -> String {
    let run = work.run.map(|run| format!(" of run {}", run.short()));
    format!(
        "continues attempt {}{}: {}",
        work.attempt,
        run.unwrap_or_default(),
        savings(work.tokens, work.active_ms)
    )
}

/// For example `saved about 12.3k tokens, 3m 05s`.
pub fn savings(tokens: u64, active_ms: u64) -> String {
    let time = Millis(active_ms);
    format!("saved about {} tokens, {time}", count(tokens))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentence_has_the_attempt_and_the_savings() {
        let work = ContinuedWork {
            attempt: 2,
            tokens: 12_300,
            active_ms: 185_000,
            ..ContinuedWork::default()
        };
        assert_eq!(
            continued_sentence(&work),
            "continues attempt 2: saved about 12.3k tokens, 3m 05s"
        );
    }
}
