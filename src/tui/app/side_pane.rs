//! The pane next to a list: shows the selected item once the selection stops moving.
//!
//! With a key held down, the user reads only the list. Painting the pane for every line would send ten times as many
//! bytes, and on a slow connection the list would lag behind the key. It must not know what panes show.

use std::time::Duration;

use ratatui::{buffer::Buffer, layout::Rect};

use crate::tui::model::SidePane;

/// Longer than the repeat interval of a held key, and shorter than a noticeable delay.
const SETTLE_DELAY: Duration = Duration::from_millis(60);

/// Remembers which pane the last frame showed next to a list.
#[derive(Debug, Default)]
pub(super) struct SidePaneFollower {
    shown: Option<SidePane>,
    /// The new selection, and the time at which it counts as settled.
    pending_move: Option<(usize, Duration)>,
}

impl SidePaneFollower {
    /// When the pane must be painted; `None` while it is up to date.
    pub(super) fn due(&self) -> Option<Duration> {
        self.pending_move.map(|(_, until)| until)
    }

    /// True while the selection moves, so that the previous content of the pane stays.
    pub(super) fn is_kept(&mut self, now: Duration, beside: Option<SidePane>) -> bool {
        if let (Some(beside), Some(before)) = (beside, &self.shown)
            && beside.is_selection_move_from(before)
        {
            let known = self.pending_move.filter(|(selected, _)| *selected == beside.selected);
            let (_, until) = *self.pending_move.insert(known.unwrap_or((beside.selected, now + SETTLE_DELAY)));
            return now < until;
        }
        false
    }

    /// Restores the content of a kept pane from the last frame, `kept`; otherwise remembers the pane.
    pub(super) fn finish(&mut self, beside: Option<SidePane>, kept: Option<&Buffer>, buf: &mut Buffer) {
        match (beside, kept) {
            (None, _) => *self = Self::default(),
            (Some(beside), Some(kept)) => copy(kept, buf, beside.area),
            (Some(beside), None) => *self = Self { shown: Some(beside), pending_move: None },
        }
    }
}

fn copy(from: &Buffer, to: &mut Buffer, area: Rect) {
    let area = area.intersection(from.area).intersection(to.area);
    if area.is_empty() {
        return;
    }
    let width = usize::from(area.width);
    for y in area.y..area.bottom() {
        let (source, target) = (from.index_of(area.x, y), to.index_of(area.x, y));
        to.content[target..target + width].clone_from_slice(&from.content[source..source + width]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::state::AttemptId;

    const AREA: Rect = Rect { x: 2, y: 0, width: 3, height: 1 };

    fn beside(list: u32, selected: usize) -> Option<SidePane> {
        Some(SidePane { list: Some(AttemptId(list)), selected, area: AREA })
    }

    /// Paints `text` next to the list and returns the screen content.
    fn painted(
        (follower, shown): &mut (SidePaneFollower, Buffer),
        ms: u64,
        beside: Option<SidePane>,
        text: &str,
    ) -> String {
        let mut buf = Buffer::with_lines([text]);
        let is_kept = follower.is_kept(Duration::from_millis(ms), beside);
        follower.finish(beside, is_kept.then_some(&*shown), &mut buf);
        *shown = buf;
        shown.content().iter().map(ratatui::buffer::Cell::symbol).collect()
    }

    #[test]
    fn side_pane_follows_a_settled_selection() {
        let mut follower = Default::default();
        assert_eq!(painted(&mut follower, 0, beside(1, 0), "1 one"), "1 one");
        assert_eq!(painted(&mut follower, 10, beside(1, 1), "2 two"), "2 one", "the list is painted immediately");
        assert_eq!(painted(&mut follower, 50, beside(1, 2), "3 thr"), "3 one", "it moved on");
        assert_eq!(follower.0.due(), Some(Duration::from_millis(110)));
        assert_eq!(painted(&mut follower, 100, beside(1, 2), "3 thr"), "3 one", "a frame for another reason");
        assert_eq!(painted(&mut follower, 110, beside(1, 2), "3 thr"), "3 thr");
        assert_eq!(follower.0.due(), None);
        assert_eq!(painted(&mut follower, 111, beside(1, 2), "3 new"), "3 new", "what is selected grows");
    }

    #[test]
    fn pane_without_columns_is_accepted() {
        let mut follower = SidePaneFollower::default();
        let empty = |selected| Some(SidePane { list: None, selected, area: Rect { x: 0, y: 6, width: 0, height: 2 } });
        let mut buf = Buffer::empty(Rect { x: 0, y: 0, width: 0, height: 9 });
        for selected in [0, 1] {
            let is_kept = follower.is_kept(Duration::from_millis(1), empty(selected));
            follower.finish(empty(selected), is_kept.then_some(&buf.clone()), &mut buf);
        }
        assert!(follower.due().is_some());
    }

    #[test]
    fn other_changes_are_painted_immediately() {
        let mut follower = Default::default();
        painted(&mut follower, 0, beside(1, 0), "1 one");
        assert_eq!(painted(&mut follower, 1, beside(2, 4), "5 fiv"), "5 fiv", "another list");
        assert_eq!(painted(&mut follower, 2, None, "dialog"), "dialog");
        assert_eq!(painted(&mut follower, 3, beside(2, 5), "6 six"), "6 six", "the pane was not painted in between");
        painted(&mut follower, 4, beside(2, 6), "7 sev");
        assert_eq!(painted(&mut follower, 5, beside(2, 5), "6 six"), "6 six", "the selection moved back");
        assert_eq!(follower.0.due(), None);
    }
}
