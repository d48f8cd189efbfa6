//! Saturating arithmetic on token counts: untrusted counts may have any value.

use crate::{decode::Usage, run::state::TokenCounts};

pub(super) fn tokens(usage: Usage) -> TokenCounts {
    let Usage { input, output, cache_read, cache_write } = usage;
    TokenCounts { input, output, cache_read, cache_write }
}

pub(super) fn max_per_field(a: TokenCounts, b: TokenCounts) -> TokenCounts {
    TokenCounts {
        input: a.input.max(b.input),
        output: a.output.max(b.output),
        cache_read: a.cache_read.max(b.cache_read),
        cache_write: a.cache_write.max(b.cache_write),
    }
}
