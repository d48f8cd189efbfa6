//! Marks the matches of a search in the painted rows: the text where it is visible, otherwise the row at its border.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{DrawContext, RowWriter};
use crate::{
    layout::{self, ScreenLayout},
    model::{FailureGroupsView, OverlayView, matching_cells, recording_failure_lines},
    theme::StyleRole,
};

/// Marks a row that matches in a part that is not visible.
const HIDDEN_MATCH: &str = "/";

pub(crate) fn draw(scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
    let Some(query) = scene.model.shown_query(scene.run_view) else {
        return;
    };
    let Some((rows, first)) = searched_rows(scene, plan) else {
        return;
    };
    let rows = rows.intersection(buf.area);
    let style = scene.theme.style(StyleRole::Match);
    for y in rows.y..rows.bottom() {
        let cells: Vec<&str> = (rows.x..rows.right())
            .map(|x| buf[(x, y)].symbol())
            .collect();
        let visible = matching_cells(&cells, query);
        for range in &visible {
            let (x, width) = (rows.x + range.start as u16, range.len() as u16);
            buf.set_style(
                Rect {
                    x,
                    y,
                    width,
                    height: 1,
                },
                style,
            );
        }
        let place = first.map(|first| first + usize::from(y - rows.y));
        let is_match = |place| {
            scene
                .model
                .search
                .matches
                .as_ref()
                .is_some_and(|matches| matches.contains(place))
        };
        if visible.is_empty() && rows.x > 0 && place.is_some_and(is_match) {
            let border = Rect {
                x: rows.x - 1,
                y,
                width: 1,
                height: 1,
            };
            RowWriter::row(scene, buf, border).put(StyleRole::Match, HIDDEN_MATCH);
        }
    }
}

/// The rows that a search covers, and the place of the first one if each row is a place.
fn searched_rows(scene: &DrawContext<'_>, plan: &ScreenLayout) -> Option<(Rect, Option<usize>)> {
    let (model, body) = (scene.model, plan.body);
    let [.., below_tabs] = layout::inspector_areas(body);
    match model.views.last() {
        Some(OverlayView::Lanes(_)) => Some((layout::inner(body), None)),
        Some(OverlayView::Review(view)) => {
            Some((layout::inner(view.areas(body)[0]), Some(view.list.offset)))
        }
        Some(OverlayView::Transcript(view)) => Some((below_tabs, Some(view.list.offset))),
        Some(OverlayView::Entry(_)) => Some((layout::inner(body), None)),
        Some(OverlayView::Artifacts(view)) => Some((
            layout::inner(body),
            view.document.is_none().then_some(view.list.offset),
        )),
        Some(OverlayView::Inspect(view)) if view.is_list() => {
            Some((view.areas(body).actions?, Some(view.actions.offset)))
        }
        Some(OverlayView::Inspect(view)) => Some((view.areas(body).detail?, None)),
        Some(OverlayView::Log(list)) => {
            let inside = layout::inner(body);
            let above =
                recording_failure_lines(model.connection.recording_failure.as_deref(), inside)
                    .len();
            Some((
                below(inside, u16::try_from(above).unwrap_or(u16::MAX)),
                Some(list.offset),
            ))
        }
        Some(OverlayView::FailureGroups(view)) => {
            let inside = layout::inner(body);
            Some((
                below(inside, FailureGroupsView::header_rows(inside.height)),
                Some(view.list.offset),
            ))
        }
        Some(OverlayView::Find(view)) => Some((layout::inner(body), Some(view.list.offset))),
        // The model decides which views can be searched; the others show no query.
        Some(_) => None,
        None if model.units_view.focus == layout::Pane::Units => {
            Some((layout::unit_list(plan.units?), None))
        }
        None => {
            let attempt = model.attempt(scene.run_view).map(|(_, attempt)| attempt);
            let areas = layout::stream_areas(plan.stream?, attempt);
            Some((areas.rows, Some(model.units_view.stream.offset)))
        }
    }
}

fn below(area: Rect, rows: u16) -> Rect {
    let rows = rows.min(area.height);
    Rect {
        y: area.y + rows,
        height: area.height - rows,
        ..area
    }
}
