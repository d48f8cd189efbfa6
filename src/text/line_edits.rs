//! The lines that differ between two texts.

use std::time::Duration;

use similar::{Algorithm, DiffOp, TextDiff};

/// Time limit of a comparison. After it, the result is correct but may not be minimal.
const DIFF_TIMEOUT: Duration = Duration::from_millis(100);

/// Consecutive lines that one text has in place of the other's, counted from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LineChange {
    /// Lines of the old text.
    pub old: std::ops::Range<usize>,
    /// Lines of the new text.
    pub new: std::ops::Range<usize>,
}

/// Lines with their line breaks; only `\n` ends a line.
pub(crate) fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// The changes that make `new` out of `old`, from top to bottom.
pub(crate) fn line_changes(old: &[&str], new: &[&str]) -> Vec<LineChange> {
    let diff = TextDiff::configure().algorithm(Algorithm::Myers).timeout(DIFF_TIMEOUT).diff_slices(old, new);
    // The positions in deletions and insertions are not reliable, but the lengths are.
    let (mut changes, mut old_at, mut new_at): (Vec<LineChange>, _, _) = (Vec::new(), 0, 0);
    for op in diff.ops() {
        let (old, new) = (old_at..old_at + op.old_range().len(), new_at..new_at + op.new_range().len());
        (old_at, new_at) = (old.end, new.end);
        match changes.last_mut() {
            _ if matches!(op, DiffOp::Equal { .. }) => {}
            Some(last) if last.old.end == old.start && last.new.end == new.start => {
                (last.old.end, last.new.end) = (old.end, new.end);
            }
            _ => changes.push(LineChange { old, new }),
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn changes_turn_the_old_text_into_the_new(old in "([abc]\n?){0,12}", new in "([abc]\n?){0,12}") {
            let (old, new) = (lines(&old), lines(&new));
            let (mut made, mut at) = (Vec::new(), 0);
            for change in line_changes(&old, &new) {
                prop_assert!(change.old.start >= at && !(change.old.is_empty() && change.new.is_empty()));
                made.extend_from_slice(&old[at..change.old.start]);
                prop_assert_eq!(made.len(), change.new.start);
                made.extend_from_slice(&new[change.new.clone()]);
                at = change.old.end;
            }
            made.extend_from_slice(&old[at..]);
            prop_assert_eq!(made, new);
        }
    }
}
