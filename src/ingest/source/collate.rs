//! KTX's sort order of names. The order determines which of several owners a shared file belongs to.
//!
//! For common characters it is alphabetical: `_`, `-` and `.` before digits, digits before letters, case only as a
//! tie-breaker. This module must not know what the names refer to.

use std::cmp::Ordering;

pub(super) fn compare_names(a: &str, b: &str) -> Ordering {
    a.chars()
        .map(weight)
        .cmp(b.chars().map(weight))
        .then_with(|| case(a, b))
        .then_with(|| a.cmp(b))
}

/// Lower case sorts first.
fn case(a: &str, b: &str) -> Ordering {
    a.chars()
        .map(char::is_uppercase)
        .cmp(b.chars().map(char::is_uppercase))
}

fn weight(c: char) -> (u8, char) {
    match c {
        '_' => (0, c),
        '-' => (1, c),
        c if c.is_ascii_punctuation() => (2, c),
        c if c.is_numeric() => (3, c),
        c => (4, c.to_lowercase().next().unwrap_or(c)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_in_dictionary_order() {
        let mut given = [
            "orders2",
            "Orders",
            "orders",
            "orders_v2",
            "orders-v2",
            "b",
            "A",
            "a",
        ];
        given.sort_by(|a, b| compare_names(a, b));
        assert_eq!(
            given,
            [
                "a",
                "A",
                "b",
                "orders",
                "Orders",
                "orders_v2",
                "orders-v2",
                "orders2"
            ]
        );
    }
}
