//! The lines that consecutive writes of one file added and removed, compared with the text before the first write.
//! Pure.

use crate::tape::note::attempt_output::LineEdit;

/// Maximum number of edits whose effects are combined. Beyond it, every added and removed line counts.
const MAX_EDITS: usize = 2_000;

/// Added and removed lines of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    pub added: u64,
    pub removed: u64,
}

impl std::iter::Sum for LineCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, next| Self {
            added: sum.added.saturating_add(next.added),
            removed: sum.removed.saturating_add(next.removed),
        })
    }
}

/// Consecutive lines of the same origin.
#[derive(Clone, Copy)]
struct LineRun {
    is_new: bool,
    length: u64,
}

/// Combines the edits of consecutive writes. The edits of a write are ordered from top to bottom.
pub(super) fn net_lines<'a>(writes: impl Iterator<Item = &'a [LineEdit]> + Clone) -> LineCounts {
    let all = writes.clone().flatten();
    if writes.clone().map(<[LineEdit]>::len).sum::<usize>() > MAX_EDITS {
        return all
            .map(|edit| LineCounts {
                added: edit.added.into(),
                removed: edit.removed.into(),
            })
            .sum();
    }
    // The length of the text before the first write is not known.
    let mut text = vec![LineRun {
        is_new: false,
        length: u64::MAX,
    }];
    let mut removed = 0;
    for edit in writes.flat_map(|edits| edits.iter().rev()) {
        let start = split_at(&mut text, edit.start.into());
        let end = split_at(&mut text, u64::from(edit.start) + u64::from(edit.removed));
        let old = text[start..end]
            .iter()
            .filter(|run| !run.is_new)
            .map(|run| run.length);
        removed += old.sum::<u64>();
        let added = LineRun {
            is_new: true,
            length: edit.added.into(),
        };
        text.splice(start..end, (edit.added > 0).then_some(added));
    }
    LineCounts {
        added: text
            .iter()
            .filter(|run| run.is_new)
            .map(|run| run.length)
            .sum(),
        removed,
    }
}

/// Splits `text` after `line` lines, and returns the index of the run that follows.
fn split_at(text: &mut Vec<LineRun>, line: u64) -> usize {
    let mut before = 0_u64;
    for index in 0..text.len() {
        let LineRun { is_new, length } = text[index];
        let rest = line - before;
        if rest == 0 {
            return index;
        }
        if rest < length {
            text[index].length = rest;
            text.insert(
                index + 1,
                LineRun {
                    is_new,
                    length: length - rest,
                },
            );
            return index + 1;
        }
        before += length;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(writes: &[&[[u32; 3]]]) -> (u64, u64) {
        let writes: Vec<Vec<LineEdit>> = writes
            .iter()
            .map(|edits| edits.iter().copied().map(LineEdit::from).collect())
            .collect();
        let LineCounts { added, removed } = net_lines(writes.iter().map(Vec::as_slice));
        (added, removed)
    }

    #[test]
    fn writes_are_combined_to_their_net_effect() {
        assert_eq!(counts(&[&[[0, 0, 10]]]), (10, 0));
        assert_eq!(
            counts(&[&[[0, 0, 10]], &[[2, 3, 1]]]),
            (8, 0),
            "removed lines were new"
        );
        assert_eq!(counts(&[&[[0, 1, 3], [5, 2, 0]], &[[0, 4, 0]]]), (0, 4));
        assert_eq!(counts(&[&[[4, 2, 2]], &[[4, 2, 2]]]), (2, 2));
        assert_eq!(counts(&[]), (0, 0));
    }

    #[test]
    fn hostile_edits_end_without_overflow() {
        let most = [u32::MAX; 3];
        assert!(counts(&[&[most, most], &[[0, u32::MAX, 0]], &[most]]).1 > 0);
        let many: Vec<[u32; 3]> = (0..5_000).map(|line| [line, 1, 1]).collect();
        assert_eq!(counts(&[&many]), (5_000, 5_000));
    }
}
