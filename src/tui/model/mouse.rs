//! The mouse: what it captures, and what a click on the painted screen means.

use std::{cell::RefCell, time::Duration};

use ratatui::layout::{Position, Rect};

use super::{UnitSort, layout::ScreenLayout};
use crate::action::UserAction;
use ingestdeck_core::run::SeekTarget;

/// Maximum time between the clicks of a double click.
const DOUBLE_CLICK: Duration = Duration::from_millis(400);

#[derive(Clone, Debug)]
pub(crate) struct MouseState {
    /// True when the program captures the mouse.
    pub is_captured: bool,
    /// True while the mouse button that was pressed on the timeline bar may still be down.
    pub is_dragging_bar: bool,
    /// What the last frame has painted for the mouse, in the order of painting.
    pub targets: Vec<ClickTarget>,
    /// Place and time of the last click on a row.
    pub last_click: Option<(Position, Duration)>,
}

/// A part of the screen that a click acts on, other than rows and the timeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ClickTarget {
    pub area: Rect,
    pub action: ClickAction,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ClickAction {
    /// The action of a hint.
    Perform(UserAction),
    /// A panel of the inspector, by its number from 0.
    Panel(usize),
    /// An attempt in the inspector, by its index.
    Attempt(usize),
    /// The column that orders the units.
    Sort(UnitSort),
    /// A mark of the timeline.
    Seek(SeekTarget),
}

/// Collects the targets while a frame is painted, so that they are exactly where they are visible.
#[derive(Debug, Default)]
pub(crate) struct ClickTargets(RefCell<Vec<ClickTarget>>);

impl ClickTargets {
    pub(crate) fn add(&self, area: Rect, action: ClickAction) {
        if !area.is_empty() {
            self.0.borrow_mut().push(ClickTarget { area, action });
        }
    }

    pub(crate) fn into_targets(self) -> Vec<ClickTarget> {
        self.0.into_inner()
    }
}

impl MouseState {
    pub(super) fn new() -> Self {
        Self {
            is_captured: true,
            is_dragging_bar: false,
            targets: Vec::new(),
            last_click: None,
        }
    }

    /// The action of what is painted at a place. What a dialog covers has none.
    pub(crate) fn target(
        &self,
        at: Position,
        plan: &ScreenLayout,
        is_covered: bool,
    ) -> Option<ClickAction> {
        let is_reachable = !is_covered || plan.footer.contains(at);
        let found = self
            .targets
            .iter()
            .rev()
            .find(|target| target.area.contains(at))
            .filter(|_| is_reachable)?;
        Some(found.action)
    }

    /// Records a click on a row. Returns true for the second one of a double click.
    pub(crate) fn is_double_click(&mut self, at: Position, now: Duration) -> bool {
        let last = self.last_click.replace((at, now));
        let is_double = last
            .is_some_and(|(place, time)| place == at && now.saturating_sub(time) <= DOUBLE_CLICK);
        if is_double {
            self.last_click = None;
        }
        is_double
    }
}
