//! The bar that shows how full the context of a session is.

use super::HeaderItem;
use crate::{page::DrawContext, theme::StyleRole};

/// Columns of the bar.
const WIDTH: usize = 8;
/// Percentages from which the context is nearly full, and from which Claude Code compacts it.
const HIGH: (usize, usize) = (70, 90);

/// For a record of one unit, if the window of its model is known.
pub(super) fn context_bar(scene: &DrawContext<'_>) -> Option<HeaderItem> {
    let [unit] = scene.run_view.state.units.as_slice() else {
        return None;
    };
    let percent = usize::from(unit.latest()?.counts.context.percent()?);
    let [full, rest, ..] = scene.theme.glyphs.progress;
    let filled = (WIDTH * percent).div_ceil(100).min(WIDTH);
    let role = match percent {
        _ if percent >= HIGH.1 => StyleRole::Failed,
        _ if percent >= HIGH.0 => StyleRole::Warning,
        _ => StyleRole::Succeeded,
    };
    Some(HeaderItem {
        spans: vec![
            (StyleRole::Dim, "context ".to_owned()),
            (role, full.repeat(filled)),
            (StyleRole::Border, rest.repeat(WIDTH - filled)),
            (StyleRole::Text, format!(" {percent} %")),
        ],
        rank: 3,
        min_width: None,
    })
}
