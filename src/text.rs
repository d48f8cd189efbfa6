//! Text for people that screen, lines and reports share. It must not depend on any other module.

pub(crate) mod commands;

/// For example `1 unit` or `2 units`.
pub(crate) fn pluralize(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
