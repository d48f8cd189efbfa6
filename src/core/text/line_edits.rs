//! The lines that differ between two texts.

use std::time::Duration;

use similar::{Algorithm, DiffOp, TextDiff};

/// Time limit of a comparison. After it, the result is correct but may not be minimal.
const DIFF_TIMEOUT: Duration = Duration::from_millis(100);

/// Consecutive lines that one text has in place of the other's, counted from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineChange {
    /// Lines of the old text.
    pub old: std::ops::Range<usize>,
    /// Lines of the new text.
    pub new: std::ops::Range<usize>,
}

/// Lines with their line breaks; only `\n` ends a line.
pub fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// The changes that make `new` out of `old`, from top to bottom.
///
/// Where several sets of changes are possible, most choices are those of git: `git blame` then names the same lines as
/// changed. Texts are compared from their ends, and a change whose place is ambiguous is as low as possible.
pub fn line_changes(old: &[&str], new: &[&str]) -> Vec<LineChange> {
    let [old_up, new_up]: [Vec<&str>; 2] =
        [old, new].map(|lines| lines.iter().rev().copied().collect());
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .timeout(DIFF_TIMEOUT)
        .diff_slices(&old_up, &new_up);
    // The positions in deletions and insertions are not reliable, but the lengths are.
    let (mut changes, mut old_at, mut new_at): (Vec<LineChange>, _, _) =
        (Vec::new(), old.len(), new.len());
    for op in diff.ops() {
        let of = |at: usize, range: std::ops::Range<usize>| at - range.len()..at;
        let (old, new) = (of(old_at, op.old_range()), of(new_at, op.new_range()));
        (old_at, new_at) = (old.start, new.start);
        match changes.last_mut() {
            _ if matches!(op, DiffOp::Equal { .. }) => {}
            Some(next) if next.old.start == old.end && next.new.start == new.end => {
                (next.old.start, next.new.start) = (old.start, new.start);
            }
            _ => changes.push(LineChange { old, new }),
        }
    }
    let mut moved: Vec<LineChange> = Vec::with_capacity(changes.len());
    for change in changes {
        let change = moved_down(change, &mut moved, old, new);
        moved.push(change);
    }
    moved.reverse();
    moved
}

/// Moves a pure insertion or deletion down over equal lines. If it reaches the change below, the last of `below`, both
/// become one.
fn moved_down(
    mut change: LineChange,
    below: &mut Vec<LineChange>,
    old: &[&str],
    new: &[&str],
) -> LineChange {
    loop {
        let LineChange {
            old: removed,
            new: added,
        } = &mut change;
        if let Some(next) =
            below.pop_if(|next| next.old.start == removed.end && next.new.start == added.end)
        {
            (removed.end, added.end) = (next.old.end, next.new.end);
            continue;
        }
        let can_move = match (removed.len(), added.len()) {
            (0, 1..) => new.get(added.end) == Some(&new[added.start]),
            (1.., 0) => old.get(removed.end) == Some(&old[removed.start]),
            _ => false,
        };
        if !can_move {
            return change;
        }
        for range in [removed, added] {
            *range = range.start + 1..range.end + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn added(old: &str, new: &str) -> Vec<(usize, usize)> {
        let changes = line_changes(&lines(old), &lines(new));
        changes
            .into_iter()
            .map(|change| (change.new.start, change.new.end))
            .collect()
    }

    #[test]
    fn ambiguous_changes_are_placed_as_in_git() {
        assert_eq!(
            added("a\n\nb\n\nc\n", "b\n\na\n\nc\n"),
            [(0, 0), (2, 4)],
            "the first paragraph moved down"
        );
        assert_eq!(added("a\n", "a\na\na\n"), [(1, 3)]);
        assert_eq!(added("a\n\nb\n", "a\n\nx\n\nb\n"), [(2, 4)]);
        assert_eq!(added("x\na\nb\n", "a\nx\nb\n"), [(0, 0), (1, 2)]);
    }

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
