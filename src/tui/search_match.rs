//! Matching of text against a query, and the order in which rows are tried.

use ingestdeck_core::run::state::AttemptId;

/// What a match in a run is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchPlace {
    /// What an agent did or received as a result.
    Action,
    /// What a person, the program or another agent asked of the agent.
    Prompt,
    /// A part of a recorded line that no row shows.
    HiddenLine,
}

/// A row of the run that contains a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRow {
    /// Index of the unit in the state.
    pub unit: usize,
    /// Index of the attempt in its unit.
    pub attempt: usize,
    pub attempt_id: AttemptId,
    /// Index of the row in its attempt.
    pub row: usize,
    pub place: MatchPlace,
    /// The line with the text, or a part of it; not yet escaped for drawing.
    pub line: String,
}

/// The first row after `from` (before it, if not `forward`) that passes, with wrap-around; `from` itself is tried last.
pub(crate) fn nearest(
    len: usize,
    from: usize,
    forward: bool,
    passes: impl Fn(usize) -> bool,
) -> Option<usize> {
    let from = from.min(len.checked_sub(1)?);
    (1..=len)
        .map(|away| {
            if forward {
                (from + away) % len
            } else {
                (from + len - away) % len
            }
        })
        .find(|row| passes(*row))
}

/// Smart case: case-sensitive only if the query contains capitals.
pub(crate) fn matches(text: &str, query: &str) -> bool {
    if query.chars().any(char::is_uppercase) {
        text.contains(query)
    } else {
        text.to_lowercase().contains(query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_wraps_and_tries_the_start_last() {
        let even = |row: usize| row.is_multiple_of(2);
        assert_eq!(nearest(5, 0, true, even), Some(2));
        assert_eq!(nearest(5, 4, true, even), Some(0));
        assert_eq!(nearest(5, 0, false, even), Some(4));
        assert_eq!(nearest(5, 3, true, |row| row == 3), Some(3));
        assert_eq!(nearest(0, 3, true, even), None);
        assert_eq!(nearest(5, 9, true, |_| false), None);
    }

    #[test]
    fn capitals_make_a_search_exact() {
        assert!(matches("Mart_ARR", "arr"));
        assert!(!matches("mart_arr", "ARR"));
    }
}
