//! Groups failures that have the same cause and the same normalized error.
//!
//! The module works on texts and does not depend on units: the caller passes causes and errors and gets indices back.

use std::{borrow::Cow, collections::HashMap};

/// Maximum number of characters of an error that are compared.
const MAX_INPUT_CHARS: usize = 600;
/// Maximum length of a normalized error, in characters.
pub(crate) const MAX_ERROR_CHARS: usize = 160;

/// A failure, reduced to the fields that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitFailure<'a> {
    pub cause: &'a str,
    /// Error text from outside, such as the API's.
    pub error: &'a str,
    /// Unit that failed. Its name is removed from the error.
    pub unit: &'a str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ErrorGroup {
    pub cause: String,
    /// The error without its variable parts: the key of the group, not a text for people.
    pub error: String,
    /// Indices of the failures in the input.
    pub members: Vec<usize>,
}

/// Groups failures, largest group first. Groups of equal size keep the order of their first failure.
pub(crate) fn group_failures<'a>(
    failures: impl IntoIterator<Item = UnitFailure<'a>>,
) -> Vec<ErrorGroup> {
    let mut groups: Vec<ErrorGroup> = Vec::new();
    let mut known: HashMap<(String, String), usize> = HashMap::new();
    for (position, failure) in failures.into_iter().enumerate() {
        let error = normalize_error(failure.error, failure.unit);
        let group = *known
            .entry((failure.cause.to_owned(), error.clone()))
            .or_insert_with(|| {
                groups.push(ErrorGroup {
                    cause: failure.cause.to_owned(),
                    error,
                    members: Vec::new(),
                });
                groups.len() - 1
            });
        if let Some(group) = groups.get_mut(group) {
            group.members.push(position);
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.members.len()));
    groups
}

/// The first line of an error. If it ends with a colon, the next line is included.
pub(crate) fn headline(error: &str) -> Cow<'_, str> {
    let mut lines = error.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut line = Cow::Borrowed(lines.next().unwrap_or_default());
    while line.ends_with(':')
        && line.len() < MAX_INPUT_CHARS
        && let Some(next) = lines.next()
    {
        line = Cow::Owned(format!("{line} {}", next.trim_start_matches("- ")));
    }
    line
}

/// Removes from an error what differs between units: unit names, numbers, ids, paths, quoted values and bold names.
pub(crate) fn normalize_error(error: &str, unit: &str) -> String {
    let line = headline(error);
    let end = line
        .char_indices()
        .nth(MAX_INPUT_CHARS)
        .map_or(line.len(), |(end, _)| end);
    let mut line = line[..end].to_owned();
    let bold = line
        .split_once("**")
        .and_then(|(_, rest)| rest.split_once("**"))
        .map_or("", |(name, _)| name)
        .to_owned();
    // A short name may be part of any word.
    for name in [unit, &bold].into_iter().filter(|name| name.len() >= 3) {
        line = line.replace(name, "…");
    }
    let words: Vec<String> = strip_quoted(&line)
        .split_whitespace()
        .map(normalize_word)
        .collect();
    words.join(" ").chars().take(MAX_ERROR_CHARS).collect()
}

/// Removes quoted text from a line. A quote that is not closed, or is inside a word, is kept.
fn strip_quoted(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(['"', '\'', '`', '“', '‘']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let mut chars = from.chars();
        let open = chars.next().unwrap_or_default();
        rest = chars.as_str();
        out.push(open);
        let close = match open {
            '“' => '”',
            '‘' => '’',
            same => same,
        };
        let inside_word = open == '\'' && before.ends_with(char::is_alphanumeric);
        if let Some(end) = rest.find(close).filter(|_| !inside_word) {
            out.push('…');
            out.push(close);
            rest = &rest[end + close.len_utf8()..];
        }
    }
    out.push_str(rest);
    out
}

/// Removes the digits of a word. Paths and ids become a placeholder.
fn normalize_word(word: &str) -> String {
    let core =
        word.trim_matches(|char: char| !char.is_alphanumeric() && char != '/' && char != '.');
    let is_path = core.contains('/') && core.chars().any(char::is_alphanumeric);
    let is_id = core.len() >= 8
        && core.chars().any(|char| char.is_ascii_digit())
        && core.chars().any(|char| char.is_ascii_alphabetic())
        && core
            .chars()
            .all(|char| char.is_ascii_alphanumeric() || char == '-' || char == '_');
    if is_path || is_id {
        return word.replacen(core, "…", 1);
    }
    let mut out = String::with_capacity(word.len());
    for char in word.chars() {
        match char.is_ascii_digit() {
            true if out.ends_with('#') => {}
            true => out.push('#'),
            false => out.push(char),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn failure<'a>(cause: &'a str, error: &'a str, unit: &'a str) -> UnitFailure<'a> {
        UnitFailure { cause, error, unit }
    }

    #[test]
    fn unit_specific_parts_are_normalized_away() {
        let same = |a: (&str, &str), b: (&str, &str)| {
            normalize_error(a.0, a.1) == normalize_error(b.0, b.1)
        };
        assert!(same(
            ("2 tool call(s) failed during WorkUnit dbt-all", "dbt-all"),
            ("13 tool call(s) failed during WorkUnit docs-b", "docs-b")
        ));
        assert!(same(
            ("no file models/a.yml at line 3", "a"),
            ("no file raw/b/c.sql at line 41", "b")
        ));
        assert!(same(
            ("page \"arr\" has no title", "a"),
            ("page \"net churn\" has no title", "b")
        ));
        assert!(same(
            ("API error req_011CabcDEF retry", "a"),
            ("API error req_9zz8yyXXX retry", "b")
        ));
        assert!(!same(
            ("front matter is missing a title", "a"),
            ("front matter is missing a summary", "a")
        ));
        let refused = |name: &str, why: &str| {
            format!("Source **{name}** was NOT saved, 1 error(s):\n- {name}: {why}\n- more")
        };
        assert!(same(
            (&refused("orders", "no grain"), "a"),
            (&refused("customers", "no grain"), "b")
        ));
        assert!(!same(
            (&refused("orders", "no grain"), "a"),
            (&refused("orders", "no columns"), "a")
        ));
        assert_eq!(
            headline(&refused("a", "no grain")),
            "Source **a** was NOT saved, 1 error(s): a: no grain"
        );
        assert_eq!(
            normalize_error("can't read 'a' and 'b'", "u"),
            "can't read '…' and '…'"
        );
        assert_eq!(
            normalize_error("\n  first line \n second", "u"),
            "first line"
        );
        assert_eq!(
            normalize_error("open \" quote stays", "u"),
            "open \" quote stays"
        );
        assert_eq!(normalize_error("", "u"), "");
    }

    #[test]
    fn groups_are_sorted_by_size_and_keep_their_members() {
        let groups = group_failures([
            failure("network", "connection 1 refused", "a"),
            failure("tool_failures", "wiki_write: no title", "b"),
            failure("tool_failures", "wiki_write: no title", "c"),
            failure("transient", "wiki_write: no title", "d"),
        ]);
        let causes: Vec<_> = groups
            .iter()
            .map(|group| (group.cause.as_str(), group.members.clone()))
            .collect();
        assert_eq!(
            causes,
            [
                ("tool_failures", vec![1, 2]),
                ("network", vec![0]),
                ("transient", vec![3])
            ]
        );
        assert_eq!(groups[1].error, "connection # refused");
    }

    proptest! {
        #[test]
        fn every_failure_is_in_exactly_one_group(errors in prop::collection::vec((any::<String>(), "[a-z0-9-]{0,6}"), 0..40)) {
            let groups = group_failures(errors.iter().map(|(error, unit)| failure("cause", error, unit)));
            let mut members: Vec<usize> = groups.iter().flat_map(|group| group.members.clone()).collect();
            members.sort_unstable();
            prop_assert_eq!(members, (0..errors.len()).collect::<Vec<_>>());
            prop_assert!(groups.iter().all(|group| group.error.chars().count() <= MAX_ERROR_CHARS));
        }

        #[test]
        fn numbers_do_not_split_groups(a in 0..u32::MAX, b in 0..u32::MAX) {
            prop_assert_eq!(
                normalize_error(&format!("HTTP {a} after {a} ms"), "u"),
                normalize_error(&format!("HTTP {b} after {b} ms"), "u")
            );
        }
    }
}
