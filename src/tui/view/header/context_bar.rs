//! The bar that shows how full the context of a session is.

use super::HeaderItem;
use crate::{page::DrawContext, theme::StyleRole};

/// Columns of the bar in a narrow and in a wide terminal.
const WIDTHS: (usize, usize) = (4, 8);
/// Percentages from which the context is nearly full, and from which Claude Code compacts it.
const HIGH: (usize, usize) = (70, 90);

/// For a record of one unit, if the window of its model is known.
pub(super) fn context_bar(scene: &DrawContext<'_>) -> Option<HeaderItem> {
    let [unit] = scene.run_view.state.units.as_slice() else {
        return None;
    };
    let percent = usize::from(unit.latest()?.counts.context.percent()?);
    let width = match scene.model.size.0 {
        0..100 => WIDTHS.0,
        _ => WIDTHS.1,
    };
    let [full, rest, ..] = scene.theme.glyphs.progress;
    let filled = (width * percent).div_ceil(100).min(width);
    let number = match percent {
        0 => " <1 %".to_owned(),
        percent => format!(" {percent} %"),
    };
    let role = match percent {
        _ if percent >= HIGH.1 => StyleRole::Failed,
        _ if percent >= HIGH.0 => StyleRole::Warning,
        _ => StyleRole::Succeeded,
    };
    Some(HeaderItem {
        spans: vec![
            (StyleRole::Dim, "context ".to_owned()),
            (role, full.repeat(filled)),
            (StyleRole::Border, rest.repeat(width - filled)),
            (StyleRole::Text, number),
        ],
        rank: 3,
        min_width: None,
    })
}
