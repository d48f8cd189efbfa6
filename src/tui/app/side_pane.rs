//! The pane next to a list: shows the selected item once the selection stops moving.
//!
//! With a key held down, the user reads only the list. Painting the pane for every line would send ten times as many
//! bytes, and on a slow connection the list would lag behind the key. It must not know what panes show.

use std::time::Duration;

use ratatui::layout::Rect;

use crate::model::SidePane;

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
            let known = self
                .pending_move
                .filter(|(selected, _)| *selected == beside.selected);
            let (_, until) = *self
                .pending_move
                .insert(known.unwrap_or((beside.selected, now + SETTLE_DELAY)));
            return now < until;
        }
        false
    }

    /// Returns the area of a kept pane; otherwise remembers the pane, and returns an empty area.
    pub(super) fn finish(&mut self, pane: Option<SidePane>, is_kept: bool) -> Rect {
        match pane {
            None => *self = Self::default(),
            Some(pane) if is_kept => return pane.area,
            Some(pane) => {
                *self = Self {
                    shown: Some(pane),
                    pending_move: None,
                }
            }
        }
        Rect::default()
    }
}

#[cfg(test)]
mod tests {
    use ratatui::buffer::Buffer;

    use super::*;
    use crate::host::copy_kept_area;
    use ingestdeck_core::run::state::AttemptId;

    const AREA: Rect = Rect {
        x: 2,
        y: 0,
        width: 3,
        height: 1,
    };

    fn beside(list: u32, selected: usize) -> Option<SidePane> {
        Some(SidePane {
            list: Some(AttemptId(list)),
            selected,
            moves_by_itself: false,
            area: AREA,
        })
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
        copy_kept_area(shown, &mut buf, follower.finish(beside, is_kept));
        *shown = buf;
        shown
            .content()
            .iter()
            .map(ratatui::buffer::Cell::symbol)
            .collect()
    }

    #[test]
    fn side_pane_follows_a_settled_selection() {
        let mut follower = Default::default();
        assert_eq!(painted(&mut follower, 0, beside(1, 0), "1 one"), "1 one");
        assert_eq!(
            painted(&mut follower, 10, beside(1, 1), "2 two"),
            "2 one",
            "the list is painted immediately"
        );
        assert_eq!(
            painted(&mut follower, 50, beside(1, 2), "3 thr"),
            "3 one",
            "it moved on"
        );
        assert_eq!(follower.0.due(), Some(Duration::from_millis(110)));
        assert_eq!(
            painted(&mut follower, 100, beside(1, 2), "3 thr"),
            "3 one",
            "a frame for another reason"
        );
        assert_eq!(painted(&mut follower, 110, beside(1, 2), "3 thr"), "3 thr");
        assert_eq!(follower.0.due(), None);
        assert_eq!(
            painted(&mut follower, 111, beside(1, 2), "3 new"),
            "3 new",
            "what is selected grows"
        );
    }

    #[test]
    fn pane_without_columns_is_accepted() {
        let mut follower = SidePaneFollower::default();
        let empty = |selected| {
            Some(SidePane {
                list: None,
                selected,
                moves_by_itself: false,
                area: Rect {
                    x: 0,
                    y: 6,
                    width: 0,
                    height: 2,
                },
            })
        };
        for selected in [0, 1] {
            let is_kept = follower.is_kept(Duration::from_millis(1), empty(selected));
            assert!(follower.finish(empty(selected), is_kept).is_empty());
        }
        assert!(follower.due().is_some());
    }

    #[test]
    fn other_changes_are_painted_immediately() {
        let mut follower = Default::default();
        painted(&mut follower, 0, beside(1, 0), "1 one");
        assert_eq!(
            painted(&mut follower, 1, beside(2, 4), "5 fiv"),
            "5 fiv",
            "another list"
        );
        assert_eq!(painted(&mut follower, 2, None, "dialog"), "dialog");
        assert_eq!(
            painted(&mut follower, 3, beside(2, 5), "6 six"),
            "6 six",
            "the pane was not painted in between"
        );
        painted(&mut follower, 4, beside(2, 6), "7 sev");
        assert_eq!(
            painted(&mut follower, 5, beside(2, 5), "6 six"),
            "6 six",
            "the selection moved back"
        );
        assert_eq!(follower.0.due(), None);
    }
}
