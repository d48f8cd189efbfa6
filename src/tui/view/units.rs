//! The unit table: one row for each unit, with columns depending on the width.

use std::borrow::Cow;

use ratatui::{buffer::Buffer, layout::Rect};

use super::{DrawContext, RowWriter, pane};
use crate::{
    run::{
        spending::UnitSpending,
        state::{AttemptState, RowKind, RowOutcome, RunView, StreamRow, UnitState, UnitStatus},
    },
    tape::{Millis, note::AttemptOutcome},
    text::{self, dollars},
    tui::{
        cache::RowId,
        layout,
        model::{Pane, RunTotals, StatusFilter, TableLine, UnitGroup, UnitListing, UnitSort},
        theme::{GlyphSet, StyleRole, status_role},
    },
};

/// Minimum columns of a pane that shows the last action of a unit.
const MIN_ACTION_PANE_COLUMNS: u16 = 90;
/// Columns of the border.
const BORDERS: usize = 2;
/// Columns of the sign before a name.
const GLYPH_COLUMNS: usize = 2;
/// Minimum and maximum columns of a name.
const MIN_NAME_COLUMNS: usize = 8;
const MAX_NAME_COLUMNS: usize = 48;
/// Columns of most states; only the longest states need more.
const STATE_COLUMNS: usize = 9;
/// Columns of a long name that still identify it.
const MIN_READABLE_COLUMNS: usize = 16;
/// Milliseconds of silence after which a running unit gets a warning.
pub(crate) const SILENCE_WARNING_MS: u64 = 10_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum UnitColumn {
    State,
    Attempts,
    Failures,
    Calls,
    Turns,
    Cost,
    Age,
    Idle,
}

impl UnitColumn {
    /// All columns, in screen order.
    const ALL: [Self; 8] =
        [Self::State, Self::Attempts, Self::Failures, Self::Calls, Self::Turns, Self::Cost, Self::Age, Self::Idle];
    /// Columns with priority over the middle of a long name, most important first.
    const NEEDED: [Self; 4] = [Self::State, Self::Failures, Self::Cost, Self::Age];
    /// Columns for the remaining room, most important first.
    const FURTHER: [Self; 4] = [Self::Idle, Self::Turns, Self::Calls, Self::Attempts];

    fn heading(self) -> &'static str {
        match self {
            Self::State => "STATE",
            Self::Attempts => "TRY",
            Self::Failures => "FAIL",
            Self::Calls => "CALLS",
            Self::Turns => "TURNS",
            Self::Cost => "COST",
            Self::Age => "TIME",
            Self::Idle => "IDLE",
        }
    }

    /// Columns including the gap before them; `word` is the width of the longest state.
    fn width(self, word: usize) -> usize {
        match self {
            Self::State => word + 1,
            Self::Attempts => 4,
            Self::Failures => 5,
            Self::Calls | Self::Idle => 6,
            Self::Turns | Self::Age => 7,
            Self::Cost => 8,
        }
    }

    fn orders_by(self, sort: UnitSort) -> bool {
        matches!(
            (self, sort),
            (Self::State, UnitSort::State)
                | (Self::Cost, UnitSort::Cost)
                | (Self::Age, UnitSort::Age)
                | (Self::Failures, UnitSort::Failures)
        )
    }
}

struct UnitColumns {
    key: usize,
    state_width: usize,
    shown: Vec<UnitColumn>,
    last: usize,
}

/// Properties of the visible units that determine the columns.
#[derive(Default)]
struct VisibleWidths {
    /// Columns of the longest key.
    key: usize,
    /// Columns of the longest state.
    state_width: usize,
    /// True if some unit had more than one attempt.
    has_retries: bool,
    /// True if some unit runs.
    running: bool,
}

/// Columns of a pane that shows whole names of `key` columns with the most important columns, and further columns that
/// fit into `most`.
pub(crate) fn preferred_width(key: usize, most: u16) -> u16 {
    let needed = UnitColumn::NEEDED.into_iter().chain([UnitColumn::Attempts]).map(|column| column.width(STATE_COLUMNS));
    let needed = BORDERS + GLYPH_COLUMNS + key.clamp(MIN_NAME_COLUMNS, MAX_NAME_COLUMNS) + needed.sum::<usize>();
    let further = UnitColumn::FURTHER.into_iter().filter(|column| *column != UnitColumn::Attempts);
    let wanted = further.fold(needed, |wanted, column| match wanted + column.width(STATE_COLUMNS) {
        more if more <= usize::from(most) => more,
        _ => wanted,
    });
    u16::try_from(wanted).unwrap_or(u16::MAX)
}

/// Column widths for a pane. The most important columns take room from the names, which keep at least a third of the
/// width; further columns come after the names. Attempts are shown if a unit has several, and silence only if a unit
/// runs.
fn columns(width: usize, seen: &VisibleWidths, roomy: bool) -> UnitColumns {
    let key = seen.key.clamp(MIN_NAME_COLUMNS, MAX_NAME_COLUMNS);
    let word = seen.state_width.max(STATE_COLUMNS);
    let again = seen.has_retries.then_some(UnitColumn::Attempts);
    let mut shown: Vec<UnitColumn> = Vec::new();
    let mut room = width.saturating_sub(GLYPH_COLUMNS + key.min((width / 3).max(MIN_READABLE_COLUMNS)));
    for column in UnitColumn::NEEDED.into_iter().chain(again) {
        if column.width(word) <= room {
            room -= column.width(word);
            shown.push(column);
        }
    }
    let taken: usize = shown.iter().map(|column| column.width(word)).sum();
    let mut room = width.saturating_sub(GLYPH_COLUMNS + taken + key);
    let further = UnitColumn::FURTHER.into_iter().filter(|column| *column != UnitColumn::Idle || seen.running);
    for column in further.filter(|column| Some(*column) != again) {
        if column.width(word) > room {
            break;
        }
        room -= column.width(word);
        shown.push(column);
    }
    let fixed: usize = shown.iter().map(|column| column.width(word)).sum();
    let free = width.saturating_sub(GLYPH_COLUMNS + fixed);
    let shown = UnitColumn::ALL.into_iter().filter(|column| shown.contains(column)).collect();
    if roomy && free > key + 18 {
        UnitColumns { key, state_width: word, shown, last: free - key - 2 }
    } else {
        UnitColumns { key: free, state_width: word, shown, last: 0 }
    }
}

/// True if a pane of this width shows the last action of its units.
pub(crate) fn shows_last_action(width: u16) -> bool {
    width >= MIN_ACTION_PANE_COLUMNS
}

/// The row with the current activity of an attempt: the last call or the last text.
pub(crate) fn last_action(run_view: &RunView, attempt: &AttemptState) -> Option<StreamRow> {
    let rows = run_view.rows(attempt.id);
    let telling =
        |row: &&StreamRow| matches!(row.kind, RowKind::Tool | RowKind::Text | RowKind::Denial | RowKind::Warning);
    // Only the last rows are searched, since the cost of a draw must not depend on the transcript.
    rows.iter().rev().take(16).find(telling).or(rows.last()).copied()
}

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
        seen.state_width = seen.state_width.max(text::width(&state_text(unit, scene.model.time)));
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
        let role = role(column.orders_by(sort));
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
                pen.cell(role, &state_text(unit, scene.model.time), width - 1);
                continue;
            }
            (UnitColumn::Age, attempt) => age(unit, attempt, scene.model.time),
            (_, None) => (StyleRole::Dim, String::new()),
            (UnitColumn::Attempts, Some(attempt)) => (StyleRole::Text, attempt.number.to_string()),
            (UnitColumn::Failures, Some(attempt)) => {
                let bad = failed_and_refused_calls(attempt, scene.theme.glyphs).next();
                bad.unwrap_or_else(|| (StyleRole::Dim, scene.theme.glyphs.dot.to_owned()))
            }
            (UnitColumn::Calls, Some(attempt)) => (StyleRole::Text, attempt.counts.calls.to_string()),
            (UnitColumn::Turns, Some(attempt)) => (turns_role(attempt), turns(attempt)),
            (UnitColumn::Cost, Some(_)) => (StyleRole::Text, cost(unit, scene.model.time)),
            (UnitColumn::Idle, Some(attempt)) => idle(unit, attempt, scene),
        };
        pen.cell_right(role, &text, width);
    }
    if columns.last > 0 {
        pen.skip(2);
        let (role, text) = last_action_text(scene, unit);
        pen.cell(role, &text, columns.last.saturating_sub(1));
    }
}

/// Counts failed calls, and separately refused calls. A refused call counts as failed unless a person refused it; if
/// some calls failed, only the calls that a person refused are counted separately, so that no call is counted twice.
pub(super) fn failed_and_refused_calls(
    attempt: &AttemptState,
    glyphs: &GlyphSet,
) -> impl Iterator<Item = (StyleRole, String)> {
    let refused = if attempt.counts.failures == 0 { attempt.counts.denials } else { attempt.counts.refused_by_person };
    let failed = (StyleRole::Failed, RowOutcome::Failed, attempt.counts.failures);
    let calls =
        [failed, (StyleRole::Denied, RowOutcome::Denied, refused)].into_iter().filter(|(_, _, calls)| *calls > 0);
    calls.map(|(role, end, calls)| (role, format!("{}{calls}", glyphs.row(RowKind::Tool, end))))
}

/// The cost of all attempts, with `+` if the cost of some is unknown.
fn cost(unit: &UnitState, now: Millis) -> String {
    let spent = UnitSpending::new(unit, now);
    let more = if spent.cost.is_some() && spent.partial { "+" } else { "" };
    format!("{}{more}", dollars(spent.cost))
}

/// The state, and the duration of a silence.
pub(crate) fn state_text(unit: &UnitState, now: Millis) -> Cow<'static, str> {
    match unit.latest().and_then(|attempt| attempt.silent_since) {
        Some(since) if unit.status == UnitStatus::Silent => {
            Cow::Owned(format!("{} {}", unit.status_text(), now.since(since)))
        }
        _ => Cow::Borrowed(unit.status_text()),
    }
}

/// Time since the last output of a running unit.
fn idle(unit: &UnitState, attempt: &AttemptState, scene: &DrawContext<'_>) -> (StyleRole, String) {
    if unit.status != UnitStatus::Running || !scene.source.origin.has_times {
        return (StyleRole::Dim, String::new());
    }
    let Some(since) = attempt.silent_since else { return (StyleRole::Dim, String::new()) };
    let silent = scene.model.time.since(since);
    (if silent.0 >= SILENCE_WARNING_MS { StyleRole::Warning } else { StyleRole::Dim }, silent.to_string())
}

/// `9/40`, or `9` if the budget is unknown.
pub(crate) fn turns(attempt: &AttemptState) -> String {
    match attempt.setup.step_budget {
        Some(budget) => format!("{}/{budget}", attempt.counts.turns),
        None => attempt.counts.turns.to_string(),
    }
}

/// Warns from four fifths of the turn budget.
pub(crate) fn turns_role(attempt: &AttemptState) -> StyleRole {
    match attempt.setup.step_budget {
        Some(budget) if budget > 0 && u64::from(attempt.counts.turns) * 5 >= u64::from(budget) * 4 => {
            StyleRole::Warning
        }
        _ => StyleRole::Text,
    }
}

/// Duration of the attempt, of a silence, or until the retry.
fn age(unit: &UnitState, attempt: Option<&AttemptState>, now: Millis) -> (StyleRole, String) {
    match (unit.status, attempt) {
        (UnitStatus::Waiting, _) => {
            let wait = unit.retry_at.map_or_else(|| "?".to_owned(), |at| at.since(now).to_string());
            // For a long wait, the larger unit of time is enough.
            let short = if wait.len() > 3 { wait.split(' ').next().unwrap_or_default() } else { &wait };
            (StyleRole::Waiting, format!("in {short}"))
        }
        (_, None) => (StyleRole::Dim, String::new()),
        (status, Some(attempt)) if status.is_in_flight() => {
            (StyleRole::Text, attempt.ended_at.unwrap_or(now).since(attempt.started_at).to_string())
        }
        (_, Some(attempt)) => {
            (StyleRole::Dim, attempt.ended_at.unwrap_or(attempt.last_at).since(attempt.started_at).to_string())
        }
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
        let waits = scene.model.time.since(call.since);
        return (StyleRole::Paused, format!("waits {waits} for you: {}", text::one_row(&call.tool, 80)));
    }
    let line = last_action(scene.run_view, attempt)
        .and_then(|row| scene.cache.row(RowId::new(&row, scene.run_view)))
        .map_or("", |line| line.label.as_str());
    (StyleRole::Dim, line.to_owned())
}
