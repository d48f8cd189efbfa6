//! Matching of text against a query, and the order in which rows are tried.

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
