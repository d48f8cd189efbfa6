//! Suggestions for misspelled names: the most similar known one.
//!
//! It must not know what the names refer to.

/// The known name that `name` most likely misspells.
pub(crate) fn nearest_name<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    similar_names(name, known)
        .into_iter()
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Up to `limit` known names that are similar to `name`: misspellings first, then names that contain it or that it
/// contains.
pub(crate) fn nearest_names<'k>(name: &str, known: &[&'k str], limit: usize) -> Vec<&'k str> {
    /// Shortest name that is looked for in others, in bytes.
    const MIN_PART_BYTES: usize = 4;
    let mut similar = similar_names(name, known);
    similar.sort_by_key(|(distance, _)| *distance);
    let mut nearest: Vec<&str> = similar.into_iter().map(|(_, name)| name).collect();
    nearest.dedup();
    let wanted = name.to_lowercase();
    let is_part = |candidate: &&&str| {
        let candidate = candidate.to_lowercase();
        let contains =
            |one: &str, other: &str| other.len() >= MIN_PART_BYTES && one.contains(other);
        contains(&candidate, &wanted) || contains(&wanted, &candidate)
    };
    for candidate in known.iter().filter(is_part) {
        if nearest.len() >= limit {
            break;
        }
        if !nearest.contains(candidate) {
            nearest.push(candidate);
        }
    }
    nearest.truncate(limit);
    nearest
}

/// The known names that `name` may misspell, in their order, each with its distance.
fn similar_names<'k>(name: &str, known: &[&'k str]) -> Vec<(usize, &'k str)> {
    // Names come from untrusted files, and comparing two names costs the product of their lengths. The total work is
    // limited to a fraction of a second; names after that are not suggested.
    const MAX_NAME_BYTES: usize = 200;
    const MAX_COMPARISON_STEPS: usize = 16_000_000;
    if name.len() > MAX_NAME_BYTES {
        return Vec::new();
    }
    let plain = |text: &str| {
        text.chars()
            .filter(|c| c.is_alphanumeric())
            .collect::<String>()
            .to_lowercase()
    };
    let wanted = plain(name);
    let length = wanted.chars().count();
    let mut steps = MAX_COMPARISON_STEPS;
    let mut similar = Vec::new();
    for candidate in known
        .iter()
        .copied()
        .filter(|candidate| candidate.len() <= MAX_NAME_BYTES)
    {
        let other = plain(candidate);
        let (others, farthest) = (
            other.chars().count(),
            length.min(candidate.chars().count()) / 3,
        );
        // A distance is at least the difference of the lengths.
        let is_possible = length.abs_diff(others) <= farthest;
        let cost = candidate.len() + if is_possible { length * others } else { 0 };
        match steps.checked_sub(cost + 1) {
            Some(left) => steps = left,
            None => break,
        }
        let distance = if is_possible {
            strsim::osa_distance(&wanted, &other)
        } else {
            usize::MAX
        };
        if distance <= farthest {
            similar.push((distance, candidate));
        }
    }
    similar
}

/// A question about the known name that `name` most likely misspells, to append to a sentence; empty if there is none.
pub(crate) fn did_you_mean(name: &str, known: &[&str]) -> String {
    nearest_name(name, known).map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

/// As [`did_you_mean`], in brackets, for the middle of a sentence.
pub(crate) fn did_you_mean_in_brackets(name: &str, known: &[&str]) -> String {
    nearest_name(name, known).map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_finds_a_misspelling_among_few_names() {
        assert_eq!(
            nearest_name("ordrs", &["users", "orders", "order_items"]),
            Some("orders")
        );
        assert_eq!(nearest_name("orders", &["a", "", "customers"]), None);
    }

    #[test]
    fn nearest_names_are_misspellings_then_parts() {
        let known = ["fct_orders", "order", "users", "orders", "ab"];
        assert_eq!(nearest_names("ordrs", &known, 5), ["orders"]);
        assert_eq!(nearest_names("orders", &known, 2), ["orders", "order"]);
        assert_eq!(
            nearest_names("stg_orders", &known, 5),
            ["fct_orders", "order", "orders"]
        );
        assert!(nearest_names("zebra", &known, 5).is_empty());
    }

    #[test]
    fn nearest_stops_after_a_bounded_number_of_steps() {
        let names: Vec<String> = (0..100_000).map(|n| format!("{n:0>200}")).collect();
        let mut known: Vec<&str> = names.iter().map(String::as_str).collect();
        let wanted = "x".repeat(200);
        known.push(&wanted);
        assert_eq!(
            nearest_name(&wanted, &known),
            None,
            "names beyond the limit are ignored"
        );
        known.rotate_right(1);
        assert_eq!(nearest_name(&wanted, &known), Some(wanted.as_str()));
        // A table of an ordinary database is found at any position.
        let names: Vec<String> = (0..100_000).map(|n| format!("stg_{n}")).collect();
        let mut known: Vec<&str> = names.iter().map(String::as_str).collect();
        known.push("customers");
        assert_eq!(nearest_name("custmers", &known), Some("customers"));
    }
}
