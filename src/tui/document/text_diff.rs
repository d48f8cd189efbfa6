//! Line-based differences between two texts, with some context lines.

use std::time::Duration;

use similar::{Algorithm, ChangeTag, TextDiff};

use super::{DocumentBlock, StyleRole};

/// Longest text that is compared line by line, in bytes.
pub(crate) const MAX_BYTES: usize = 512 * 1024;
/// Time limit of a comparison. After it, the result is correct but may not be minimal.
const DIFF_TIMEOUT: Duration = Duration::from_millis(40);
/// Unchanged lines around a change.
const CONTEXT_LINES: usize = 3;

/// The lines that differ between `old` and `new`.
pub(crate) fn diff_blocks(old: &str, new: &str) -> Vec<DocumentBlock> {
    if old.len().max(new.len()) > MAX_BYTES {
        return vec![DocumentBlock::line(
            StyleRole::Warning,
            "too large to be compared line by line",
        )];
    }
    let (old, new) = (ended(old), ended(new));
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .timeout(DIFF_TIMEOUT)
        .diff_lines(&old, &new);
    let mut pieces = Vec::new();
    for (index, group) in diff.grouped_ops(CONTEXT_LINES).iter().enumerate() {
        if index > 0 {
            pieces.push(DocumentBlock::line(StyleRole::Dim, "  …"));
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let (role, sign) = match change.tag() {
                ChangeTag::Equal => (StyleRole::Dim, "  "),
                ChangeTag::Delete => (StyleRole::Failed, "- "),
                ChangeTag::Insert => (StyleRole::Succeeded, "+ "),
            };
            let line = change.value().trim_end_matches(['\n', '\r']);
            pieces.push(DocumentBlock::Spans {
                indent: 0,
                hang: 2,
                runs: vec![(role, sign.to_owned()), (role, line.to_owned())],
            });
        }
    }
    if pieces.is_empty() {
        pieces.push(DocumentBlock::line(StyleRole::Dim, "nothing differs"));
    }
    pieces
}

/// Number of added and removed lines.
pub(crate) fn count(old: &str, new: &str) -> (usize, usize) {
    if old.len().max(new.len()) > MAX_BYTES {
        return (0, 0);
    }
    let (old, new) = (ended(old), ended(new));
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .timeout(DIFF_TIMEOUT)
        .diff_lines(&old, &new);
    let changed = |tag| {
        diff.iter_all_changes()
            .filter(|change| change.tag() == tag)
            .count()
    };
    (changed(ChangeTag::Insert), changed(ChangeTag::Delete))
}

/// Adds a missing final line break, because readers do not care about the difference.
fn ended(text: &str) -> String {
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() {
        String::new()
    } else {
        format!("{text}\n")
    }
}
