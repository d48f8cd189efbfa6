//! A grid of panes: the newest rows of several units, one pane for each unit.

use ratatui::{buffer::Buffer, layout::Rect};

use crate::page::DrawContext;
use crate::widgets::{RowWriter, pane, stream};
use crate::{
    model::GridPane,
    theme::{StyleRole, status_role},
    unit_row::{
        SILENCE_WARNING_MS, attempt_cost, failed_and_refused_calls, state_text, turns, turns_role,
    },
};
use ingestdeck_core::{
    run::state::{UnitState, UnitStatus},
    text,
};

pub(crate) fn draw(scene: &DrawContext<'_>, body: Rect, buf: &mut Buffer) {
    let grid = &scene.model.grid;
    let panes = grid.panes(body);
    if panes.is_empty() {
        let inside = pane(scene, body, true, &[(StyleRole::Strong, "grid")], &[], buf);
        RowWriter::row(scene, buf, inside).put(StyleRole::Dim, "no unit yet");
        return;
    }
    let alone = panes.len() == 1 && grid.panes.len() > 1;
    for (place, area) in panes {
        let Some(slot) = grid.panes.get(place) else {
            continue;
        };
        let Some((unit, attempt)) = slot.subject(scene.run_view) else {
            continue;
        };
        let focus = place == grid.focus;
        let right = right(
            scene,
            slot,
            unit,
            alone.then_some((place + 1, grid.panes.len())),
        );
        let taken: usize = right.iter().map(|(_, text)| text::width(text)).sum();
        let title = title(
            scene,
            place,
            unit,
            usize::from(area.width).saturating_sub(taken),
        );
        let pieces: Vec<_> = title
            .iter()
            .map(|(role, text)| (*role, text.as_str()))
            .collect();
        let right: Vec<_> = right
            .iter()
            .map(|(role, text)| (*role, text.as_str()))
            .collect();
        let inside = pane(scene, area, focus, &pieces, &right, buf);
        match attempt {
            Some(attempt) => stream::rows(scene, attempt, &slot.list, focus, area, buf),
            None => stream::waiting(scene, unit, inside, buf),
        }
    }
    let elsewhere = scene
        .run_view
        .state
        .units
        .len()
        .saturating_sub(grid.panes.len());
    if elsewhere > 0 && !alone {
        hidden_units(scene, body, elsewhere, buf);
    }
}

/// Paints into the lower border how many units have no pane.
fn hidden_units(scene: &DrawContext<'_>, body: Rect, count: usize, buf: &mut Buffer) {
    let text = format!(" {} without a pane ", text::pluralize(count, "unit"));
    let width = u16::try_from(text::width(&text)).unwrap_or(u16::MAX);
    if width + 4 > body.width || body.height < 2 {
        return;
    }
    let area = Rect {
        x: body.right() - width - 2,
        y: body.bottom() - 1,
        width,
        height: 1,
    };
    RowWriter::row(scene, buf, area).put(StyleRole::Dim, &text);
}

fn title(
    scene: &DrawContext<'_>,
    place: usize,
    unit: &UnitState,
    width: usize,
) -> Vec<(StyleRole, String)> {
    let glyphs = scene.theme.glyphs;
    let role = status_role(unit.status);
    // The sign shows the state, so the name may take its place.
    let room = width.saturating_sub(9).max(8);
    let mut title = vec![
        (StyleRole::Key, format!("{} ", place + 1)),
        (role, format!("{} ", glyphs.unit(unit))),
        (
            StyleRole::Strong,
            text::fit_middle(&unit.key, room, glyphs.cut).into_owned(),
        ),
    ];
    let state = format!(" {}", state_text(unit, scene.model.playhead.time));
    if text::width(&unit.key) + text::width(&state) <= room {
        title.push((role, state));
    }
    let Some(attempt) = unit.latest() else {
        return title;
    };
    let mut facts = Vec::new();
    if attempt.number > 1 {
        facts.push((StyleRole::Text, format!("try {}", attempt.number)));
    }
    facts.extend(failed_and_refused_calls(attempt, glyphs));
    facts.push((turns_role(attempt), turns(attempt)));
    facts.push((StyleRole::Text, attempt_cost(attempt)));
    if unit.status == UnitStatus::Running
        && scene.source.origin.has_times
        && let Some(since) = attempt.silent_since
    {
        let silent = scene.model.playhead.time.since(since);
        let role = if silent.0 >= SILENCE_WARNING_MS {
            StyleRole::Warning
        } else {
            StyleRole::Dim
        };
        facts.push((role, format!("{silent} ago")));
    }
    stream::title_with_facts(title, facts, glyphs.dot, width)
}

/// New failures, pause state and position, at the right end of a pane's title.
fn right(
    scene: &DrawContext<'_>,
    slot: &GridPane,
    unit: &UnitState,
    alone: Option<(usize, usize)>,
) -> Vec<(StyleRole, String)> {
    let mut right = Vec::new();
    if scene.model.grid.has_unseen_failure(unit) {
        right.push((StyleRole::Failed, " new ".to_owned()));
    }
    if !slot.list.follow {
        let new_rows = slot.list.new_rows(slot.len(scene.run_view));
        let text = if new_rows > 0 {
            format!(" SCROLLED, {new_rows} new ")
        } else {
            " SCROLLED ".to_owned()
        };
        right.push((StyleRole::Paused, text));
    }
    if let Some((place, of)) = alone {
        right.push((StyleRole::Dim, format!(" {place}/{of} ")));
    }
    right
}
