//! The unit table: headings, and one row for each unit with columns depending on the width.

use ratatui::{buffer::Buffer, layout::Rect};

use crate::page::DrawContext;
use crate::widgets::{RowWriter, pane, progress};
use crate::{
    action::UserAction,
    layout::{Pane, ScreenLayout},
    model::{
        ClickAction, ConnectionProgress, GroupKey, Grouping, RunTotals, StatusFilter, TableLine,
        UnitCounts, UnitGroup, UnitListing, UnitSort,
    },
    theme::{StyleRole, status_role},
    unit_row::{
        TableContent, UnitColumn, UnitColumns, age, columns, cost, failed_and_refused_calls, idle,
        last_action_label, turns, turns_role, why,
    },
};
use ingestdeck_core::{
    run::state::{UnitNeed, UnitState, UnitStatus},
    text,
};

pub(crate) fn draw(scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
    let (Some(area), Some(rows)) = (plan.units, plan.unit_list()) else {
        return;
    };
    let (model, run_view) = (scene.model, scene.run_view);
    let view = &model.units_view;
    let focus = view.focus == Pane::Units;
    let title = title(&view.listing, view.marked.len());
    let name = if focus {
        StyleRole::Strong
    } else {
        StyleRole::Dim
    };
    let title: Vec<_> = [(name, "units")]
        .into_iter()
        .chain(title.iter().map(|(role, text)| (*role, text.as_str())))
        .collect();
    let place = place(scene, area.width);
    let place: Vec<_> = place
        .iter()
        .map(|(role, text)| (*role, text.as_str()))
        .collect();
    let inside = match plan.has_table_frame() {
        true => pane(scene, area, focus, &title, &place, buf),
        false => area,
    };
    if rows.is_empty() {
        return;
    }
    let state = &scene.run_view.state;
    let content = TableContent {
        key: view.listing.longest(),
        has_retries: model.totals.has_retries || state.planned.is_some(),
        is_open: state.ended.is_none() && !state.is_closed,
        has_workers: state.workers.had_any(),
    };
    let columns = columns(usize::from(rows.width), &content);
    let mut visible = model.visible_lines(usize::from(rows.height)).peekable();
    if visible.peek().is_none() {
        RowWriter::row(scene, buf, inside).put(StyleRole::Dim, &empty_table_text(scene));
        return;
    }
    if rows.y > inside.y {
        headings(scene, &columns, inside, buf);
    }
    let selected = model.selected_line();
    for (y, (line, content)) in (rows.y..rows.bottom()).zip(visible) {
        let area = Rect {
            y,
            height: 1,
            ..rows
        };
        match content {
            TableLine::Group(group) => self::group(scene, group, area, buf),
            TableLine::Connection(connection) => self::connection(scene, connection, area, buf),
            TableLine::Unit(unit) => {
                let is_marked = view.marked.contains(&unit);
                let Some(unit) = run_view.state.units.get(unit) else {
                    continue;
                };
                self::row(scene, unit, is_marked, &columns, area, buf);
            }
        }
        if line == selected {
            let role = if focus && model.is_bottom() {
                StyleRole::Selected
            } else {
                StyleRole::Resting
            };
            buf.set_style(area, scene.theme.style(role));
        }
    }
}

/// Number of units that need a person, and the position of the selection.
fn place(scene: &DrawContext<'_>, width: u16) -> Vec<(StyleRole, String)> {
    let (model, units) = (scene.model, scene.run_view.state.units.len());
    let listing = &model.units_view.listing;
    if units == 0 {
        return Vec::new();
    }
    let mut pieces = vec![(StyleRole::Dim, " ".to_owned())];
    let need = model.totals.with_need(UnitNeed::Person);
    if need > 0 && width >= 60 {
        let verb = if need == 1 { "needs" } else { "need" };
        pieces.push((StyleRole::Failed, format!("{need} {verb} you")));
        pieces.push((StyleRole::Dim, format!(" {} ", scene.theme.glyphs.dot)));
    }
    let listed = listing.listed_count();
    let rank = match model.heading() {
        Some(_) => String::new(),
        None if listed > 0 => format!("{}/", model.unit_rank() + 1),
        None => "0/".to_owned(),
    };
    let of = if listing.is_filtered() && width >= 60 {
        format!(" of {units}")
    } else {
        String::new()
    };
    pieces.push((StyleRole::Dim, format!("{rank}{listed}{of} ")));
    pieces
}

/// Filters, order and groups of the listing. Always shown, since a filtered list could be mistaken for a complete one.
fn title(listing: &UnitListing, marked: usize) -> Vec<(StyleRole, String)> {
    let mut title = Vec::new();
    if marked > 0 {
        title.push((StyleRole::Match, format!(" {marked} marked")));
    }
    if listing.is_filtered() {
        title.push((StyleRole::Paused, listing.filter_words()));
    }
    match (listing.sort, listing.is_reversed) {
        (UnitSort::Plan, false) => {}
        (sort, false) => title.push((StyleRole::Focus, format!(" by {}", sort.label()))),
        (sort, true) => title.push((StyleRole::Focus, format!(" by {} reversed", sort.label()))),
    }
    match listing.grouping {
        Grouping::Need => {}
        Grouping::Connection => title.push((StyleRole::Focus, " by connection".to_owned())),
        Grouping::Flat if listing.sort == UnitSort::Plan && !listing.is_reversed => {
            title.push((StyleRole::Focus, " by plan".to_owned()));
        }
        Grouping::Flat => {}
    }
    title
}

fn empty_table_text(scene: &DrawContext<'_>) -> String {
    let listing = &scene.model.units_view.listing;
    match listing.filter {
        _ if scene.run_view.state.units.is_empty() && !scene.source.at_end => "reading…".to_owned(),
        _ if scene.run_view.state.units.is_empty() => "no unit yet".to_owned(),
        StatusFilter::All => format!("no unit fulfils \"{}\"; Esc shows all", listing.text),
        filter if listing.text.is_empty() => {
            format!("no unit under `{}`; Esc shows all", filter.label())
        }
        filter => format!(
            "no unit under `{}` fulfils \"{}\"; Esc shows all",
            filter.label(),
            listing.text
        ),
    }
}

fn headings(scene: &DrawContext<'_>, columns: &UnitColumns, area: Rect, buf: &mut Buffer) {
    let sort = scene.model.units_view.listing.sort;
    let role = |is_order: bool| {
        if is_order {
            StyleRole::Focus
        } else {
            StyleRole::Dim
        }
    };
    let mut pen = RowWriter::row(scene, buf, area);
    pen.skip(2);
    let start = pen.next_column();
    pen.cell(role(sort == UnitSort::Key), "UNIT", columns.key);
    scene
        .targets
        .add(pen.area_since(start), ClickAction::Sort(UnitSort::Key));
    for column in &columns.shown {
        let start = pen.next_column();
        let order = order_of(*column);
        let role = role(order == Some(sort));
        if matches!(column, UnitColumn::State | UnitColumn::Worker) {
            pen.skip(2);
            pen.cell(role, column.heading(), column.width() - 2);
        } else {
            pen.cell_right(role, column.heading(), column.width());
        }
        if let Some(order) = order {
            scene
                .targets
                .add(pen.area_since(start), ClickAction::Sort(order));
        }
    }
    pen.skip(2);
    pen.cell(StyleRole::Dim, "WHY", columns.why);
}

/// The order of the units by a column.
fn order_of(column: UnitColumn) -> Option<UnitSort> {
    Some(match column {
        UnitColumn::Cost => UnitSort::Cost,
        UnitColumn::Age => UnitSort::Age,
        UnitColumn::Failures => UnitSort::Failures,
        UnitColumn::State => UnitSort::Plan,
        UnitColumn::Worker
        | UnitColumn::Attempts
        | UnitColumn::Calls
        | UnitColumn::Turns
        | UnitColumn::Idle => {
            return None;
        }
    })
}

/// Paints a heading: what its units have in common, and the keys that act on them.
fn group(scene: &DrawContext<'_>, group: &UnitGroup, area: Rect, buf: &mut Buffer) {
    let glyphs = scene.theme.glyphs;
    let mut pen = RowWriter::row(scene, buf, area);
    let (role, name) = match &group.key {
        GroupKey::Need(need) => (need_role(*need), need.label()),
        GroupKey::Connection(name) if name.is_empty() => (StyleRole::Strong, "no connection"),
        GroupKey::Connection(name) => (StyleRole::Strong, name.as_str()),
        GroupKey::Cause(_) => return cause(scene, group, area, buf),
    };
    let is_shown = |action: UserAction| action.spec().is_available(scene.model, scene.run_view);
    let keys = if group.key == GroupKey::Need(UnitNeed::Person) && area.width >= 60 {
        let hint = |action: UserAction, word: String| {
            let key = scene.model.keymap.first(action).unwrap_or_default();
            [
                (StyleRole::Key, key),
                (StyleRole::Dim, format!(" {word}  ")),
            ]
        };
        let retry = if is_shown(UserAction::RetryFailed) {
            hint(
                UserAction::RetryFailed,
                UserAction::RetryFailed
                    .spec()
                    .hint(scene.model, scene.run_view)
                    .to_owned(),
            )
            .to_vec()
        } else {
            Vec::new()
        };
        hint(UserAction::Causes, "causes".to_owned())
            .into_iter()
            .chain(retry)
            .collect()
    } else {
        Vec::new()
    };
    let keys: Vec<_> = keys
        .iter()
        .map(|(role, text)| (*role, text.as_str()))
        .collect();
    pen.end_with(&keys);
    pen.put_in(role, name, usize::from(area.width) / 2);
    pen.put(StyleRole::Dim, &format!(" {} {}", glyphs.dot, group.units));
    if group.causes > 0 {
        let causes = text::pluralize(group.causes, "shared cause");
        pen.put(StyleRole::Dim, &format!(", {causes}"));
    }
    if matches!(group.key, GroupKey::Connection(_)) {
        put_counts(scene, &group.counts, &mut pen);
    }
    if group.hidden > 0 {
        let key = scene
            .model
            .keymap
            .first(UserAction::Open)
            .unwrap_or_default();
        let hidden = if group.hidden == group.units {
            "folded".to_owned()
        } else {
            format!("{} folded", group.hidden)
        };
        pen.put(StyleRole::Dim, &format!(", {hidden} ({key} unfolds)"));
    }
}

/// Paints what failed units have in common, and the name of the first one.
fn cause(scene: &DrawContext<'_>, group: &UnitGroup, area: Rect, buf: &mut Buffer) {
    let glyphs = scene.theme.glyphs;
    let listing = &scene.model.units_view.listing;
    let units = listing.units_of(group);
    let is_hidden = |unit: &&usize| listing.line_of(**unit).is_none();
    let Some(first) = units
        .iter()
        .find(is_hidden)
        .or(units.first())
        .and_then(|unit| scene.run_view.state.units.get(*unit))
    else {
        return;
    };
    let role = status_role(first.status);
    let mut pen = RowWriter::row(scene, buf, area);
    pen.cell(role, glyphs.unit(first), 2);
    pen.cell_right(StyleRole::Strong, &group.units.to_string(), 4);
    pen.skip(2);
    let more = match group.hidden {
        0 => String::new(),
        1 => first.key.to_string(),
        hidden => format!("{} and {} more", first.key, hidden - 1),
    };
    let room = pen.room();
    let names = match group.hidden {
        0 => 0,
        _ => text::width(&more).min(room / 3),
    };
    let reason = text::one_row(&group.reason, 300);
    pen.cell(role, &reason, room.saturating_sub(names + 2));
    pen.skip(2);
    pen.cell(
        StyleRole::Dim,
        &text::fit_middle(&more, names, glyphs.cut),
        names,
    );
}

fn need_role(need: UnitNeed) -> StyleRole {
    match need {
        UnitNeed::Person => StyleRole::Failed,
        UnitNeed::Running => StyleRole::Running,
        UnitNeed::Next => StyleRole::Queued,
        UnitNeed::Done => StyleRole::Succeeded,
    }
}

/// Paints the progress of a connection, with what is not simply done or queued.
fn connection(
    scene: &DrawContext<'_>,
    connection: &ConnectionProgress,
    area: Rect,
    buf: &mut Buffer,
) {
    let mut pen = RowWriter::row(scene, buf, area);
    let names = (usize::from(area.width) / 4).clamp(10, 24);
    let bar = (usize::from(area.width) / 5).clamp(8, 40);
    let finished = connection.counts.finished();
    pen.skip(2);
    let name = if connection.name.is_empty() {
        "no connection"
    } else {
        &connection.name
    };
    pen.cell(
        StyleRole::Text,
        &text::fit_middle(name, names - 1, scene.theme.glyphs.cut),
        names,
    );
    progress(scene, finished, connection.units, bar, &mut pen);
    pen.put(
        StyleRole::Text,
        &format!("  {finished}/{}", connection.units),
    );
    put_counts(scene, &connection.counts, &mut pen);
}

/// Writes the number of units of each status, and their cost.
fn put_counts(scene: &DrawContext<'_>, counts: &UnitCounts, pen: &mut RowWriter<'_>) {
    for (status, number) in statuses(counts).filter(|(_, number)| *number > 0) {
        pen.put(
            status_role(status),
            &format!("  {}{number}", scene.theme.glyphs.status(status)),
        );
    }
    if counts.cost.usd.is_some() {
        pen.put(StyleRole::Dim, &format!("  {}", counts.cost.dollars()));
    }
}

fn statuses(counts: &UnitCounts) -> impl Iterator<Item = (UnitStatus, usize)> {
    RunTotals::ORDER.into_iter().zip(counts.statuses)
}

fn row(
    scene: &DrawContext<'_>,
    unit: &UnitState,
    is_marked: bool,
    columns: &UnitColumns,
    area: Rect,
    buf: &mut Buffer,
) {
    let (role, state) = (status_role(unit.status), &scene.run_view.state);
    let now = scene.model.playhead.time;
    let attempt = unit.latest();
    let mut pen = RowWriter::row(scene, buf, area);
    pen.cell(role, scene.theme.glyphs.unit(unit), 1);
    pen.cell(StyleRole::Match, if is_marked { "*" } else { "" }, 1);
    let key = if unit.status.need() == UnitNeed::Next {
        StyleRole::Queued
    } else {
        StyleRole::Text
    };
    // Keys share their beginning; their end identifies the unit.
    pen.cell(
        key,
        &text::fit_middle(&unit.key, columns.key, scene.theme.glyphs.cut),
        columns.key,
    );
    for column in &columns.shown {
        let width = column.width();
        let (role, text) = match (column, attempt) {
            (UnitColumn::State, _) => {
                pen.skip(2);
                pen.cell(role, unit.status_text(), width - 2);
                continue;
            }
            (UnitColumn::Age, attempt) => age(unit, attempt, now),
            (_, None) => (StyleRole::Dim, String::new()),
            (UnitColumn::Worker, Some(attempt)) => {
                pen.skip(2);
                let (role, name) = match attempt
                    .setup
                    .worker
                    .and_then(|worker| state.workers.name(worker))
                {
                    Some(worker) => (StyleRole::Text, worker),
                    None => (StyleRole::Dim, "here"),
                };
                pen.cell(
                    role,
                    &text::fit_middle(name, width - 2, scene.theme.glyphs.cut),
                    width - 2,
                );
                continue;
            }
            (UnitColumn::Attempts, Some(attempt)) => (StyleRole::Text, attempt.number.to_string()),
            (UnitColumn::Failures, Some(attempt)) => {
                let bad = failed_and_refused_calls(attempt, scene.theme.glyphs).next();
                bad.unwrap_or_else(|| (StyleRole::Dim, scene.theme.glyphs.dot.to_owned()))
            }
            (UnitColumn::Calls, Some(attempt)) => {
                (StyleRole::Text, attempt.counts.calls.to_string())
            }
            (UnitColumn::Turns, Some(attempt)) => (turns_role(attempt), turns(attempt)),
            (UnitColumn::Cost, Some(_)) => (StyleRole::Text, cost(unit, now)),
            (UnitColumn::Idle, Some(_)) if scene.source.is_catching_up => {
                (StyleRole::Dim, String::new())
            }
            (UnitColumn::Idle, Some(attempt)) => {
                idle(unit, attempt, now, scene.source.origin.has_times)
            }
        };
        pen.cell_right(role, &text, width);
    }
    pen.skip(2);
    let label = last_action_label(scene.cache, scene.run_view, unit);
    let (role, text) = why(state, unit, label, scene.source.origin.has_times);
    pen.cell(role, &text, columns.why);
}
