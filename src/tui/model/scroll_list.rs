//! A list that is scrolled row by row and follows its end until the user scrolls back.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScrollList {
    pub selected: usize,
    /// First row on screen.
    pub offset: usize,
    /// True to select the last row as rows arrive.
    pub follow: bool,
    /// Number of rows when following ended.
    pub seen: usize,
}

impl ScrollList {
    /// A list that follows its end.
    pub(crate) fn following() -> Self {
        Self {
            follow: true,
            ..Self::default()
        }
    }

    /// Number of rows that arrived since following ended.
    pub(crate) fn new_rows(&self, len: usize) -> usize {
        if self.follow {
            0
        } else {
            len.saturating_sub(self.seen.max(1))
        }
    }

    /// Selects a row. Following ends, unless it is a move to the end of a followed list.
    pub(crate) fn select(&mut self, row: usize, len: usize) {
        let row = row.min(len.saturating_sub(1));
        if self.follow && row + 1 < len {
            self.follow = false;
            self.seen = len;
        }
        self.selected = row;
    }

    /// Moves the selection by `by` rows.
    pub(crate) fn step(&mut self, by: isize, len: usize) {
        self.select(self.selected.saturating_add_signed(by), len);
    }

    /// Selects the last row and follows new ones.
    pub(crate) fn end(&mut self, len: usize) {
        self.follow = true;
        self.selected = len.saturating_sub(1);
    }

    /// Selects the first row, or the last one and follows new ones.
    pub(crate) fn go_to_end(&mut self, len: usize, last: bool) {
        if last {
            self.end(len);
        } else {
            self.select(0, len);
        }
    }

    /// Scrolls by `by` rows. The selection moves only to remain visible.
    pub(crate) fn scroll(&mut self, by: isize, len: usize, height: usize) {
        let height = height.max(1);
        self.offset = self
            .offset
            .saturating_add_signed(by)
            .min(len.saturating_sub(height));
        let last = (self.offset + height).min(len).saturating_sub(1);
        self.select(self.selected.clamp(self.offset.min(last), last), len);
    }

    /// Like `clamp`, but new rows move a selection that follows only to the last row that `passes`.
    pub(crate) fn clamp_to_last(
        &mut self,
        len: usize,
        height: usize,
        passes: impl Fn(usize) -> bool,
    ) {
        let (follow, seen) = (self.follow, self.seen);
        let selected = self.selected;
        self.clamp(len, height);
        if follow && len > 0 {
            self.selected = match len == seen {
                true => selected.min(len - 1),
                false => (0..len).rev().find(|row| passes(*row)).unwrap_or(len - 1),
            };
            // The rows after the selection remain visible.
            self.offset = scrolled(len, self.selected, len, height);
        }
    }

    /// Brings selection and offset into range.
    pub(crate) fn clamp(&mut self, len: usize, height: usize) {
        if self.follow {
            self.selected = len.saturating_sub(1);
            self.seen = len;
        }
        self.seen = self.seen.min(len);
        self.selected = self.selected.min(len.saturating_sub(1));
        self.offset = scrolled(self.offset, self.selected, len, height);
    }
}

/// The offset nearest to `offset` that shows `selected` and leaves no gap at the end.
pub(crate) fn scrolled(offset: usize, selected: usize, len: usize, height: usize) -> usize {
    let height = height.max(1);
    offset
        .min(len.saturating_sub(height))
        .min(selected)
        .max((selected + 1).saturating_sub(height))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn step_up_ends_following_and_counts_new_rows() {
        let mut list = ScrollList::following();
        list.clamp(10, 4);
        assert_eq!((list.selected, list.offset, list.new_rows(10)), (9, 6, 0));
        list.step(-1, 10);
        list.clamp(47, 4);
        assert_eq!(
            (list.selected, list.offset, list.new_rows(47), list.follow),
            (8, 6, 37, false)
        );
        list.end(47);
        list.clamp(47, 4);
        assert_eq!(
            (list.selected, list.new_rows(47), list.follow),
            (46, 0, true)
        );
    }

    #[test]
    fn new_rows_move_a_following_selection_to_those_that_pass() {
        let mut list = ScrollList::following();
        list.clamp_to_last(6, 3, |row| row < 4);
        assert_eq!((list.selected, list.offset), (3, 3));
        list.clamp_to_last(7, 3, |row| row < 4);
        assert_eq!((list.selected, list.offset, list.follow), (3, 3, true));
        list.end(7);
        list.clamp_to_last(7, 3, |row| row < 4);
        assert_eq!(list.selected, 6, "the user chose the end");
        list.clamp_to_last(8, 3, |row| row == 7);
        assert_eq!((list.selected, list.offset), (7, 5));
        list.clamp_to_last(2, 3, |_| false);
        assert_eq!((list.selected, list.offset), (1, 0));
    }

    #[test]
    fn a_step_down_at_the_end_keeps_following() {
        let mut list = ScrollList::following();
        list.clamp(3, 9);
        list.step(1, 3);
        assert!(list.follow);
    }

    proptest! {
        #[test]
        fn the_selection_is_always_on_screen(offset in 0..99_usize, selected in 0..99_usize, len in 0..99_usize, height in 0..20_usize) {
            let mut list = ScrollList { selected, offset, follow: false, seen: 0 };
            list.clamp(len, height);
            prop_assert!(list.offset <= list.selected);
            prop_assert!(list.selected < list.offset + height.max(1));
            prop_assert!(len == 0 || list.selected < len);
        }
    }
}
