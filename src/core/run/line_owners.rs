//! Which write of an attempt made each line of a file, and which attempt made each line of a commit.
//!
//! Pure. The writes are on the tape as replaced lines without their text, see
//! [`RecordedWrite`](crate::tape::note::attempt_output::RecordedWrite). A tape is untrusted, so the work is bounded.

use crate::{
    tape::note::attempt_output::LineEdit,
    text::{self, LineChange},
};

/// Most lines of a file whose writes are followed.
const MAX_LINES: usize = 1 << 20;
/// Most lines that are visited while writes are followed.
const MAX_WORK: usize = 1 << 28;

/// The writes do not fit the text: the tape is damaged, or the text is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the recorded writes do not fit the text")]
pub struct InconsistentWrites;

/// The index of the write that made each line of a file which had `base_lines` lines before `writes`; `None` for a line
/// that was there before.
pub fn line_owners<'a>(
    base_lines: usize,
    writes: impl IntoIterator<Item = &'a [LineEdit]>,
) -> Result<Vec<Option<usize>>, InconsistentWrites> {
    let (mut owners, mut work) = (vec![None; base_lines.min(MAX_LINES + 1)], 0_usize);
    for (write, edits) in writes.into_iter().enumerate() {
        let added: usize = edits.iter().map(|edit| edit.added as usize).sum();
        work = work.saturating_add(owners.len()).saturating_add(added);
        if owners.len() > MAX_LINES
            || owners.len().saturating_add(added) > 2 * MAX_LINES
            || work > MAX_WORK
        {
            return Err(InconsistentWrites);
        }
        let (mut after, mut at) = (Vec::with_capacity(owners.len() + added), 0);
        for LineEdit {
            start,
            removed,
            added,
        } in edits
        {
            let start = *start as usize;
            after.extend_from_slice(owners.get(at..start).ok_or(InconsistentWrites)?);
            after.extend(std::iter::repeat_n(Some(write), *added as usize));
            at = start + *removed as usize;
        }
        after.extend_from_slice(owners.get(at..).ok_or(InconsistentWrites)?);
        owners = after;
    }
    Ok(owners)
}

/// A file before and after an attempt.
#[derive(Clone, Debug)]
pub struct AttemptText {
    pub base: String,
    pub written: String,
    /// The write that made each line of `written`; `None` if the writes are not recorded.
    pub owners: Option<Vec<Option<usize>>>,
}

/// The origin of a line of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LineWriter {
    /// Index of the attempt.
    pub attempt: usize,
    /// Index of the write among those of the attempt to the file, if it is known.
    pub write: Option<usize>,
}

/// The attempt that wrote each line of `committed`, a file of the commit that contains the patches of `attempts`; `None`
/// for a line that no attempt wrote. If several wrote a line, the first one counts: git keeps the line when it merges the
/// same line again. The text of an attempt is `None` if it is not known.
pub fn line_writers<'a>(
    committed: &str,
    attempts: impl IntoIterator<Item = Option<&'a AttemptText>>,
) -> Vec<Option<LineWriter>> {
    let committed = text::lines(committed);
    let mut writers = vec![None; committed.len()];
    for (attempt, text) in attempts.into_iter().enumerate() {
        let Some(AttemptText {
            base,
            written,
            owners,
        }) = text
        else {
            continue;
        };
        let (base, written) = (text::lines(base), text::lines(written));
        let mut is_changed = vec![false; written.len()];
        for LineChange { new, .. } in text::line_changes(&base, &written) {
            is_changed[new].fill(true);
        }
        let same = same_lines(&written, &committed);
        for (line, own) in same.into_iter().filter(|(_, own)| is_changed[*own]) {
            let write = owners
                .as_ref()
                .and_then(|owners| owners.get(own).copied().flatten());
            writers[line].get_or_insert(LineWriter { attempt, write });
        }
    }
    writers
}

/// The pairs of lines that `old` and `new` share, as positions in `new` and in `old`.
fn same_lines(old: &[&str], new: &[&str]) -> Vec<(usize, usize)> {
    let (mut same, mut old_at, mut new_at) = (Vec::new(), 0, 0);
    let end = LineChange {
        old: old.len()..old.len(),
        new: new.len()..new.len(),
    };
    for LineChange { old, new } in text::line_changes(old, new).into_iter().chain([end]) {
        same.extend((new_at..new.start).zip(old_at..old.start));
        (old_at, new_at) = (old.end, new.end);
    }
    same
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn edit(start: u32, removed: u32, added: u32) -> LineEdit {
        LineEdit {
            start,
            removed,
            added,
        }
    }

    fn owners(
        base: usize,
        writes: &[&[LineEdit]],
    ) -> Result<Vec<Option<usize>>, InconsistentWrites> {
        line_owners(base, writes.iter().copied())
    }

    #[test]
    fn later_write_owns_only_the_lines_that_it_replaced() {
        let created = owners(0, &[&[edit(0, 0, 3)], &[edit(1, 1, 2)]]);
        assert_eq!(created, Ok(vec![Some(0), Some(1), Some(1), Some(0)]));
        let changed = owners(3, &[&[edit(0, 1, 0), edit(2, 1, 1)]]);
        assert_eq!(changed, Ok(vec![None, Some(0)]));
        assert_eq!(
            owners(2, &[&[edit(0, 2, 0)], &[edit(0, 0, 1)]]),
            Ok(vec![Some(1)]),
            "deleted and created again"
        );
        assert_eq!(owners(2, &[]), Ok(vec![None, None]));
    }

    #[test]
    fn writes_that_do_not_fit_are_refused() {
        let huge = u32::MAX;
        for writes in [
            &[edit(3, 0, 1)][..],
            &[edit(1, 2, 0)],
            &[edit(1, 1, 0), edit(0, 1, 0)],
            &[edit(0, 0, huge)],
            &[edit(0, huge, 0)],
            &[edit(huge, huge, huge)],
        ] {
            assert_eq!(owners(2, &[writes]), Err(InconsistentWrites), "{writes:?}");
        }
        assert_eq!(
            owners(usize::MAX, &[&[edit(0, 0, 1)]]),
            Err(InconsistentWrites)
        );
        let million = [edit(0, 0, 1 << 20)];
        assert!(owners(0, &[&million]).is_ok());
        assert_eq!(
            owners(0, &[&million, &million, &million]),
            Err(InconsistentWrites)
        );
    }

    fn attempt(base: &str, written: &str, owners: Option<Vec<Option<usize>>>) -> AttemptText {
        AttemptText {
            base: base.into(),
            written: written.into(),
            owners,
        }
    }

    #[test]
    fn merged_lines_keep_their_attempts() {
        let base = "1\n2\n3\n4\n";
        let first = attempt(
            base,
            "0\n1\n2\n3\n4\n",
            Some(vec![Some(0), None, None, None, None]),
        );
        let second = attempt(base, "1\n2\n3\n4\n5\n0\n", None);
        let writers = line_writers(
            "0\n1\n2\n3\n4\n5\nby hand\n",
            [None, Some(&first), Some(&second)],
        );
        let of = |attempt, write| Some(LineWriter { attempt, write });
        assert_eq!(
            writers,
            [of(1, Some(0)), None, None, None, None, of(2, None), None]
        );
    }

    #[test]
    fn line_that_two_attempts_wrote_belongs_to_the_first() {
        let text = |number| attempt("", "same\n", Some(vec![Some(number)]));
        assert_eq!(
            line_writers("same\n", [&text(3), &text(4)].map(Some)),
            [Some(LineWriter {
                attempt: 0,
                write: Some(3)
            })]
        );
    }

    /// A text whose lines have a tag each, which is the oracle: edits move the tags together with the lines.
    fn tagged(
        base: usize,
        writes: &[Vec<(usize, usize, usize)>],
    ) -> (Vec<Vec<LineEdit>>, Vec<Option<usize>>) {
        let mut text: Vec<Option<usize>> = vec![None; base];
        let mut recorded = Vec::new();
        for (write, edits) in writes.iter().enumerate() {
            let (mut at, mut shift, mut of_write) = (0, 0_isize, Vec::new());
            let old = text.len();
            for (skip, removed, added) in edits {
                let start = at + skip;
                let removed = (*removed).min(old.saturating_sub(start));
                if start > old {
                    break;
                }
                let place = start.checked_add_signed(shift).unwrap();
                text.splice(
                    place..place + removed,
                    std::iter::repeat_n(Some(write), *added),
                );
                of_write.push(edit(start as u32, removed as u32, *added as u32));
                shift += *added as isize - removed as isize;
                at = start + removed;
            }
            recorded.push(of_write);
        }
        (recorded, text)
    }

    proptest! {
        #[test]
        fn owners_are_those_of_a_text_with_tags(
            base in 0_usize..12,
            writes in prop::collection::vec(prop::collection::vec((0_usize..6, 0_usize..5, 0_usize..5), 0..5), 0..8),
        ) {
            let (recorded, tags) = tagged(base, &writes);
            prop_assert_eq!(line_owners(base, recorded.iter().map(Vec::as_slice)), Ok(tags));
        }

        #[test]
        fn any_writes_are_followed_or_refused(
            base in 0_usize..9,
            writes in prop::collection::vec(prop::collection::vec(any::<[u32; 3]>(), 0..3), 0..4),
        ) {
            let writes: Vec<Vec<LineEdit>> =
                writes.iter().map(|edits| edits.iter().map(|edit| LineEdit::from(edit.map(|n| n % 12))).collect()).collect();
            let _ = line_owners(base, writes.iter().map(Vec::as_slice));
        }

        /// The text of one attempt is the committed text: every changed line belongs to the write that made it.
        #[test]
        fn writers_of_an_unmerged_commit_are_the_owners(base in "([abc]\n){0,9}", texts in prop::collection::vec("([abc]\n){0,9}", 1..5)) {
            let (mut before, mut recorded) = (base.clone(), Vec::new());
            for text in &texts {
                let changes = text::line_changes(&text::lines(&before), &text::lines(text));
                recorded.push(changes.iter().map(|change| edit(
                    change.old.start as u32, change.old.len() as u32, change.new.len() as u32,
                )).collect::<Vec<_>>());
                before.clone_from(text);
            }
            let owners = line_owners(text::lines(&base).len(), recorded.iter().map(Vec::as_slice)).unwrap();
            prop_assert_eq!(owners.len(), text::lines(&before).len());
            let writers = line_writers(&before, [Some(&attempt(&base, &before, Some(owners.clone())))]);
            for (writer, owner) in writers.iter().zip(&owners) {
                // A line that was removed and written again is unchanged for git.
                prop_assert!(writer.is_none_or(|writer| writer.write.is_none() || writer.write == *owner));
            }
        }
    }
}
