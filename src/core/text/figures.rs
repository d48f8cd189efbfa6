//! Formats counts, sizes, costs and times.

use crate::tape::Millis;

/// For example `1 unit` or `2 units`.
pub fn pluralize(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The first names of a list, separated by commas, and the number of the others.
pub fn list_some(names: &[impl std::ops::Deref<Target = str>]) -> String {
    const MAX_NAMED: usize = 5;
    let shown: Vec<&str> = names.iter().take(MAX_NAMED).map(|name| &**name).collect();
    let more = names.len().saturating_sub(MAX_NAMED);
    let more = if more == 0 {
        String::new()
    } else {
        format!(" and {more} more")
    };
    format!("{}{more}", shown.join(", "))
}

/// Formats a number of bytes: `812 B`, `15.7 KB`, `1.2 MB`.
pub fn size(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64, "B");
    for larger in ["KB", "MB", "GB"] {
        // A value that would be shown as 1024.0 uses the next unit.
        if value < 1023.95 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if unit == "B" {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {unit}")
    }
}

/// Formats a run time: `00:03`, `03:12`, `1:03:12`.
pub fn clock(at: Millis) -> String {
    let seconds = at.0 / 1000;
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{rest:02}")
    } else {
        format!("{minutes:02}:{rest:02}")
    }
}

/// Formats the duration of a call: `4ms`, `0.1s`, `12.0s`, `1m 01s`.
pub fn latency(took: Millis) -> String {
    if took.0 < 100 {
        format!("{}ms", took.0)
    } else {
        seconds(took)
    }
}

/// Formats a moment or a duration of a report: `0.0s`, `12.0s`, `1m 01s`.
pub fn seconds(span: Millis) -> String {
    if span.0 < 60_000 {
        format!("{}.{}s", span.0 / 1000, span.0 % 1000 / 100)
    } else {
        span.to_string()
    }
}

/// Formats a cost in US dollars: `$0.42`, `$0.0015`, `$1.0e12`, or `$?` if unknown.
pub fn dollars(cost: Option<f64>) -> String {
    match cost {
        None => "$?".to_owned(),
        // Only a damaged record has such a cost.
        Some(cost) if cost >= 1e9 => format!("${cost:.1e}"),
        Some(cost) if cost >= 100.0 => format!("${cost:.0}"),
        Some(cost) if cost > 0.0 && cost < 0.01 => format!("${cost:.4}"),
        Some(cost) => format!("${cost:.2}"),
    }
}

/// [`dollars`] of a sum: `≥ $0.42` if a part of it is unknown.
pub fn dollars_of_sum(cost: Option<f64>, is_partial: bool) -> String {
    let mark = if cost.is_some() && is_partial {
        "≥ "
    } else {
        ""
    };
    format!("{mark}{}", dollars(cost))
}

/// Formats a count: `84`, `12.3k`, `4.5M`.
pub fn count(number: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
    let value = number as f64;
    match number {
        0..10_000 => number.to_string(),
        10_000..1_000_000 => format!("{:.1}k", value / 1e3),
        _ => format!("{:.1}M", value / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_one_decimal_and_a_unit() {
        for (bytes, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KB"),
            (1024 * 1024 - 1, "1.0 MB"),
            (5 * 1024 * 1024 * 1024, "5.0 GB"),
            (5 << 40, "5120.0 GB"),
        ] {
            assert_eq!(size(bytes), shown);
        }
    }

    #[test]
    fn costs_of_any_size_stay_short() {
        let costs = [
            (0.0, "$0.00"),
            (0.0015, "$0.0015"),
            (99.5, "$99.50"),
            (123.4, "$123"),
            (1e308, "$1.0e308"),
        ];
        for (cost, shown) in costs {
            assert_eq!(dollars(Some(cost)), shown);
        }
    }
}
