//! Widths of the columns of `plan`, so that its rows fit into the terminal.

/// Maximum width of a key in a table on a terminal, in columns. In other output keys are complete and can be copied.
const MAX_KEY_WIDTH: usize = 60;

/// Widths of the columns of the table, in columns of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowWidths {
    pub key: usize,
    pub forecast: usize,
    pub why: usize,
    /// Whether there is room for the tokens.
    pub has_tokens: bool,
}

impl RowWidths {
    /// Number of files, size, and the gaps between the columns.
    const FIXED: usize = 25;
    /// Tokens, and the gap before them.
    const TOKENS: usize = 9;
    /// Minimum room for the key and the reason: in a narrower terminal, rows wrap.
    const MIN_ROOM: usize = 24;

    /// The widths for the widest `key`, `forecast` and `why`. Rows fit into a terminal with this number of `columns`.
    pub(super) fn new(key: usize, forecast: usize, why: usize, columns: Option<usize>) -> Self {
        let Some(columns) = columns else {
            return Self {
                key,
                forecast: forecast.max(23),
                why: usize::MAX,
                has_tokens: true,
            };
        };
        let has_tokens = columns >= Self::FIXED + Self::TOKENS + forecast + 2 * Self::MIN_ROOM;
        let tokens = if has_tokens { Self::TOKENS } else { 0 };
        let room = columns
            .saturating_sub(Self::FIXED + tokens + forecast)
            .max(Self::MIN_ROOM);
        let key = key.min(MAX_KEY_WIDTH).min(room - why.min(room / 2));
        Self {
            key,
            forecast,
            why: room - key,
            has_tokens,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fit_into_the_terminal() {
        let total = |widths: RowWidths| {
            let tokens = if widths.has_tokens {
                RowWidths::TOKENS
            } else {
                0
            };
            widths.key + RowWidths::FIXED + tokens + widths.forecast + widths.why
        };
        for columns in [62, 80, 100, 250] {
            for (key, forecast, why) in [
                (10, 1, 3),
                (90, 13, 16),
                (90, 13, 200),
                (20, 13, 200),
                (200, 5, 3),
            ] {
                let widths = RowWidths::new(key, forecast, why, Some(columns));
                assert!(total(widths) <= columns, "{columns}: {widths:?}");
                assert!(
                    widths.key >= key.min(12) && widths.why >= why.min(12),
                    "{columns}: {widths:?}"
                );
            }
        }
        let piped = RowWidths {
            key: 200,
            forecast: 23,
            why: usize::MAX,
            has_tokens: true,
        };
        assert_eq!(
            RowWidths::new(200, 13, 300, None),
            piped,
            "other output is complete"
        );
        assert_eq!(
            RowWidths::new(90, 13, 16, Some(80)),
            RowWidths {
                key: 26,
                forecast: 13,
                why: 16,
                has_tokens: false
            }
        );
    }
}
