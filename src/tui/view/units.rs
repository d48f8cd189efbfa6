//! The unit table: one row for each unit, with columns depending on the width.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{DrawContext, RowWriter, pane};
use crate::{
    run::state::{UnitState, UnitStatus},
    tape::note::AttemptOutcome,
    text::{self, dollars},
    tui::{
        cache::RowId,
        layout::{self, Pane},
        model::{RunTotals, StatusFilter, TableLine, UnitGroup, UnitListing, UnitSort},
        theme::{StyleRole, status_role},
        unit_row::{
            UnitColumn, UnitColumns, VisibleWidths, age, columns, cost, failed_and_refused_calls, idle, last_action,
            shows_last_action, state_text, turns, turns_role,
        },
    },
};

pub(crate) fn draw(scene: &DrawContext<'_>, area: Rect, buf: &mut Buffer) {
    let (model, run_view) = (scene.model, scene.run_view);
    let focus = model.units_view.focus == Pane::Units;
    let listed = model.listed_count(run_view);
    let of = if model.units_view.listing.is_filtered() && area.width >= 60 {
        format!(" of {}", run_view.state.units.len())
    } else {
        String::new()
    };
    let row = if listed > 0 { model.unit_row() + 1 } else { 0 };
    let place = if run_view.state.units.is_empty() { String::new() } else { format!(" {row}/{listed}{of} ") };
    let title = title(&model.units_view.listing);
    let name = if focus { StyleRole::Strong } else { StyleRole::Dim };
    let title: Vec<_> =
        [(name, "units")].into_iter().chain(title.iter().map(|(role, text)| (*role, text.as_str()))).collect();
    let inside = pane(scene, area, focus, &title, &[(StyleRole::Dim, &place)], buf);
    let rows = layout::unit_list(area);
    if rows.is_empty() {
        return;
    }
    let visible: Vec<_> = model.visible_lines(run_view, usize::from(rows.height)).collect();
    if visible.is_empty() {
        RowWriter::row(scene, buf, inside).put(StyleRole::Dim, &empty_table_text(scene));
        return;
    }
    let units = visible.iter().filter_map(|(_, line)| match line {
        TableLine::Unit { unit, .. } => run_view.state.units.get(*unit),
        TableLine::Group(_) => None,
    });
    let mut seen = VisibleWidths::default();
    for unit in units {
        seen.key = seen.key.max(text::width(&unit.key));
        seen.state_width = seen.state_width.max(text::width(&state_text(unit, scene.model.playhead.time)));
        seen.has_retries |= unit.attempts.len() > 1;
        seen.running |= unit.status == UnitStatus::Running;
    }
    let columns = columns(usize::from(rows.width), &seen, shows_last_action(area.width));
    if rows.y > inside.y {
        headings(scene, &columns, inside, buf);
    }
    for (y, (_, line)) in (rows.y..rows.bottom()).zip(&visible) {
        let area = Rect { y, height: 1, ..rows };
        match line {
            TableLine::Group(group) => self::group(scene, group, area, buf),
            TableLine::Unit { row, unit } => {
                let Some(unit) = run_view.state.units.get(*unit) else { continue };
                self::row(scene, unit, &columns, area, buf);
                if *row == model.unit_row() {
                    let role = if focus && model.views.is_empty() { StyleRole::Selected } else { StyleRole::Resting };
                    buf.set_style(area, scene.theme.style(role));
                }
            }
        }
    }
}

/// Filters and order of the listing. Always shown, since a filtered list could be mistaken for a complete one.
fn title(listing: &UnitListing) -> Vec<(StyleRole, String)> {
    let mut title = Vec::new();
    if listing.is_filtered() {
        let state =
            if listing.filter == StatusFilter::All { String::new() } else { format!(" {}", listing.filter.label()) };
        let text = if listing.text.is_empty() {
            String::new()
        } else {
            format!(" \"{}\"", text::printable(&listing.text, 20))
        };
        title.push((StyleRole::Paused, format!("{state}{text} only")));
    }
    match (listing.sort, listing.is_reversed) {
        (UnitSort::Plan, false) => {}
        (sort, false) => title.push((StyleRole::Focus, format!(" by {}", sort.label()))),
        (sort, true) => title.push((StyleRole::Focus, format!(" by {} reversed", sort.label()))),
    }
    if listing.is_grouped {
        title.push((StyleRole::Focus, " grouped".to_owned()));
    }
    title
}

fn empty_table_text(scene: &DrawContext<'_>) -> String {
    let listing = &scene.model.units_view.listing;
    match listing.filter {
        _ if scene.run_view.state.units.is_empty() && !scene.source.at_end => "reading…".to_owned(),
        _ if scene.run_view.state.units.is_empty() => "no unit yet".to_owned(),
        StatusFilter::All => format!("no unit contains \"{}\"; Esc shows all", listing.text),
        filter if listing.text.is_empty() => format!("no unit under `{}`; Esc shows all", filter.label()),
        filter => format!("no unit under `{}` contains \"{}\"; Esc shows all", filter.label(), listing.text),
    }
}

fn headings(scene: &DrawContext<'_>, columns: &UnitColumns, area: Rect, buf: &mut Buffer) {
    let sort = scene.model.units_view.listing.sort;
    let role = |is_order: bool| if is_order { StyleRole::Focus } else { StyleRole::Dim };
    let mut pen = RowWriter::row(scene, buf, area);
    pen.skip(2);
    pen.cell(role(sort == UnitSort::Key), "UNIT", columns.key);
    for column in &columns.shown {
        let role = role(orders_by(*column, sort));
        if *column == UnitColumn::State {
            pen.skip(1);
            pen.cell(role, column.heading(), columns.state_width);
        } else {
            pen.cell_right(role, column.heading(), column.width(columns.state_width));
        }
    }
    if columns.last > 0 {
        pen.skip(2);
        pen.cell(StyleRole::Dim, "LAST", columns.last);
    }
}

fn orders_by(column: UnitColumn, sort: UnitSort) -> bool {
    matches!(
        (column, sort),
        (UnitColumn::State, UnitSort::State)
            | (UnitColumn::Cost, UnitSort::Cost)
            | (UnitColumn::Age, UnitSort::Age)
            | (UnitColumn::Failures, UnitSort::Failures)
    )
}

/// Paints a connection with the states of its units.
fn group(scene: &DrawContext<'_>, group: &UnitGroup, area: Rect, buf: &mut Buffer) {
    let mut pen = RowWriter::row(scene, buf, area);
    let name = if group.name.is_empty() { "no connection" } else { &group.name };
    let units = if group.units == 1 { "1 unit".to_owned() } else { format!("{} units", group.units) };
    pen.put_in(StyleRole::Strong, name, usize::from(area.width) / 2);
    pen.put(StyleRole::Dim, &format!("  {units}"));
    for (status, number) in RunTotals::ORDER.into_iter().zip(group.statuses).filter(|(_, number)| *number > 0) {
        pen.put(status_role(status), &format!("  {}{number}", scene.theme.glyphs.status(status)));
    }
    if group.cost.is_some() {
        pen.put(StyleRole::Dim, &format!("  {}", dollars(group.cost)));
    }
}

fn row(scene: &DrawContext<'_>, unit: &UnitState, columns: &UnitColumns, area: Rect, buf: &mut Buffer) {
    let role = status_role(unit.status);
    let attempt = unit.latest();
    let mut pen = RowWriter::row(scene, buf, area);
    pen.cell(role, scene.theme.glyphs.unit(unit), 2);
    let key = if matches!(unit.status, UnitStatus::Queued | UnitStatus::NotStarted) {
        StyleRole::Queued
    } else {
        StyleRole::Text
    };
    // Keys share their beginning; their end identifies the unit.
    pen.cell(key, &text::fit_middle(&unit.key, columns.key, scene.theme.glyphs.cut), columns.key);
    for column in &columns.shown {
        let width = column.width(columns.state_width);
        let (role, text) = match (column, attempt) {
            (UnitColumn::State, _) => {
                pen.skip(1);
                pen.cell(role, &state_text(unit, scene.model.playhead.time), width - 1);
                continue;
            }
            (UnitColumn::Age, attempt) => age(unit, attempt, scene.model.playhead.time),
            (_, None) => (StyleRole::Dim, String::new()),
            (UnitColumn::Attempts, Some(attempt)) => (StyleRole::Text, attempt.number.to_string()),
            (UnitColumn::Failures, Some(attempt)) => {
                let bad = failed_and_refused_calls(attempt, scene.theme.glyphs).next();
                bad.unwrap_or_else(|| (StyleRole::Dim, scene.theme.glyphs.dot.to_owned()))
            }
            (UnitColumn::Calls, Some(attempt)) => (StyleRole::Text, attempt.counts.calls.to_string()),
            (UnitColumn::Turns, Some(attempt)) => (turns_role(attempt), turns(attempt)),
            (UnitColumn::Cost, Some(_)) => (StyleRole::Text, cost(unit, scene.model.playhead.time)),
            (UnitColumn::Idle, Some(attempt)) => {
                idle(unit, attempt, scene.model.playhead.time, scene.source.origin.has_times)
            }
        };
        pen.cell_right(role, &text, width);
    }
    if columns.last > 0 {
        pen.skip(2);
        let (role, text) = last_action_text(scene, unit);
        pen.cell(role, &text, columns.last.saturating_sub(1));
    }
}

/// The current activity, or why the unit ended.
fn last_action_text(scene: &DrawContext<'_>, unit: &UnitState) -> (StyleRole, String) {
    let attempt = unit.latest();
    let verdict = scene.run_view.state.verdict(unit);
    if let Some(verdict) = verdict.filter(|verdict| verdict.outcome != AttemptOutcome::Succeeded) {
        return (status_role(unit.status), text::one_row(&verdict.reason, 200));
    }
    let Some(attempt) = attempt else {
        let why = unit.planned.as_ref().map(|planned| planned.why.as_str()).unwrap_or_default();
        return (StyleRole::Dim, text::one_row(why, 200));
    };
    if let Some(call) = attempt.held_calls.first() {
        let waits = scene.model.playhead.time.since(call.since);
        return (StyleRole::Paused, format!("waits {waits} for you: {}", text::one_row(&call.tool, 80)));
    }
    let line = last_action(scene.run_view, attempt)
        .and_then(|row| scene.cache.row(RowId::new(&row, scene.run_view)))
        .map_or("", |line| line.label.as_str());
    (StyleRole::Dim, line.to_owned())
}
