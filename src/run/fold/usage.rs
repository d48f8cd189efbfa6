//! Arithmetic on tokens: a stranger's numbers may be as large as they like.

use crate::{decode::Usage, run::state::Tokens};

pub(super) fn tokens(usage: Usage) -> Tokens {
    let Usage { input, output, cache_read, cache_write } = usage;
    Tokens { input, output, cache_read, cache_write }
}

pub(super) fn larger(a: Tokens, b: Tokens) -> Tokens {
    Tokens {
        input: a.input.max(b.input),
        output: a.output.max(b.output),
        cache_read: a.cache_read.max(b.cache_read),
        cache_write: a.cache_write.max(b.cache_write),
    }
}
