//! Lists of limited length: lines that fit into a number of characters of a prompt, and names in a message.
//!
//! It must not know what the lists are about.

/// Longest summary of a page or a source in a list, in characters.
pub(super) const MAX_SUMMARY_CHARS: usize = 200;
/// Space for the line that counts omitted entries, in characters.
pub(super) const OMITTED_LINE_CHARS: usize = 80;

/// All `lines` if they fit into `share` characters; else as many as fit, in their order, and a line about the omitted
/// ones.
pub(super) fn fit_lines(
    lines: Vec<String>,
    share: usize,
    omitted: impl Fn(usize) -> String,
) -> Vec<String> {
    if joined_chars(&lines) <= share {
        return lines;
    }
    let (count, mut budget) = (lines.len(), CharBudget::new(share));
    let mut kept = lines;
    kept.retain(|line| budget.take(line.chars().count() + 1));
    kept.push(omitted(count - kept.len()));
    kept
}

/// The characters that are left for a part of a prompt and a line about what is omitted.
pub(super) struct CharBudget(usize);

impl CharBudget {
    pub(super) fn new(share: usize) -> Self {
        Self(share.saturating_sub(OMITTED_LINE_CHARS))
    }

    /// Takes `chars` characters, if so many are left.
    pub(super) fn take(&mut self, chars: usize) -> bool {
        let rest = self.0.checked_sub(chars);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }
}

pub(super) fn joined_chars(lines: &[String]) -> usize {
    lines
        .iter()
        .map(|line| line.chars().count() + 1)
        .sum::<usize>()
        .saturating_sub(1)
}

/// Truncates to [`MAX_SUMMARY_CHARS`] characters.
pub(super) fn short_summary(text: &str) -> String {
    match text.char_indices().nth(MAX_SUMMARY_CHARS) {
        Some((cut, _)) => format!("{}…", text.get(..cut).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The first `most` names, separated by commas, and the number of the others; `none` without names.
pub(super) fn first_names(names: &[impl AsRef<str>], most: usize) -> String {
    let named = names
        .iter()
        .take(most)
        .map(AsRef::as_ref)
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().saturating_sub(most) {
        _ if names.is_empty() => "none".to_owned(),
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
