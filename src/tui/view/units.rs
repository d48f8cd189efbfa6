//! The table of units: one row each, columns as the width allows.

use std::borrow::Cow;

use ratatui::{buffer::Buffer, layout::Rect};

use super::{Pen, Scene, dollars, pane};
use crate::{
    run::{
        spent::Spent,
        state::{Attempt, Row, RowEnd, RowKind, Story, Unit, UnitStatus},
    },
    tape::{Millis, note::Outcome},
    tui::{
        cache::RowId,
        layout,
        model::{Filter, Group, Line, Listing, Pane, Sort, Totals},
        text,
        theme::{Glyphs, Role, status_role},
    },
};

/// Columns of the pane from which on the last action of a unit is shown.
const ROOMY: u16 = 90;
/// Columns of the border.
const BORDERS: usize = 2;
/// Columns of the sign before a name.
const GLYPH: usize = 2;
/// Columns that a name takes at least, and at most.
const SHORTEST: usize = 8;
const LONGEST: usize = 48;
/// Columns of most states; only the longest take more.
const WORD: usize = 9;
/// Columns of a long name that still tell it from others.
const READABLE: usize = 16;
/// Silence of a running unit that is worth a warning.
pub const SILENCE: u64 = 10_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Word,
    Try,
    Failures,
    Calls,
    Turns,
    Cost,
    Age,
    Idle,
}

impl Column {
    /// In the order of the screen.
    const ALL: [Self; 8] =
        [Self::Word, Self::Try, Self::Failures, Self::Calls, Self::Turns, Self::Cost, Self::Age, Self::Idle];
    /// Worth more than the middle of a long name, the most telling first.
    const NEEDED: [Self; 4] = [Self::Word, Self::Failures, Self::Cost, Self::Age];
    /// Shown where names have room, the most telling first.
    const FURTHER: [Self; 4] = [Self::Idle, Self::Turns, Self::Calls, Self::Try];

    fn heading(self) -> &'static str {
        match self {
            Self::Word => "STATE",
            Self::Try => "TRY",
            Self::Failures => "FAIL",
            Self::Calls => "CALLS",
            Self::Turns => "TURNS",
            Self::Cost => "COST",
            Self::Age => "TIME",
            Self::Idle => "IDLE",
        }
    }

    /// Columns with the gap before it; `word` is that of the longest state.
    fn width(self, word: usize) -> usize {
        match self {
            Self::Word => word + 1,
            Self::Try => 4,
            Self::Failures => 5,
            Self::Calls | Self::Idle => 6,
            Self::Turns | Self::Age => 7,
            Self::Cost => 8,
        }
    }

    fn orders_by(self, sort: Sort) -> bool {
        matches!(
            (self, sort),
            (Self::Word, Sort::State)
                | (Self::Cost, Sort::Cost)
                | (Self::Age, Sort::Age)
                | (Self::Failures, Sort::Failures)
        )
    }
}

struct Columns {
    key: usize,
    word: usize,
    shown: Vec<Column>,
    last: usize,
}

/// What the units on screen have in common, as far as columns depend on it.
#[derive(Default)]
struct Seen {
    /// Columns of the longest key.
    key: usize,
    /// Columns of the longest state.
    word: usize,
    /// Some unit had more than one attempt.
    again: bool,
    /// Some unit runs.
    running: bool,
}

/// Columns of a pane that shows whole names of `key` columns and what matters most beside them; and anything else that
/// fits into `most`.
pub fn wanted(key: usize, most: u16) -> u16 {
    let needed = Column::NEEDED.into_iter().chain([Column::Try]).map(|column| column.width(WORD));
    let needed = BORDERS + GLYPH + key.clamp(SHORTEST, LONGEST) + needed.sum::<usize>();
    let further = Column::FURTHER.into_iter().filter(|column| *column != Column::Try);
    let wanted = further.fold(needed, |wanted, column| match wanted + column.width(WORD) {
        more if more <= usize::from(most) => more,
        _ => wanted,
    });
    u16::try_from(wanted).unwrap_or(u16::MAX)
}

/// Widths for a pane. What matters most takes room from the names, of which a third of the width is left; anything else
/// comes after them. Attempts matter when there are several, and silence is only told of what runs.
fn columns(width: usize, seen: &Seen, roomy: bool) -> Columns {
    let key = seen.key.clamp(SHORTEST, LONGEST);
    let word = seen.word.max(WORD);
    let again = seen.again.then_some(Column::Try);
    let mut shown: Vec<Column> = Vec::new();
    let mut room = width.saturating_sub(GLYPH + key.min((width / 3).max(READABLE)));
    for column in Column::NEEDED.into_iter().chain(again) {
        if column.width(word) <= room {
            room -= column.width(word);
            shown.push(column);
        }
    }
    let taken: usize = shown.iter().map(|column| column.width(word)).sum();
    let mut room = width.saturating_sub(GLYPH + taken + key);
    let further = Column::FURTHER.into_iter().filter(|column| *column != Column::Idle || seen.running);
    for column in further.filter(|column| Some(*column) != again) {
        if column.width(word) > room {
            break;
        }
        room -= column.width(word);
        shown.push(column);
    }
    let fixed: usize = shown.iter().map(|column| column.width(word)).sum();
    let free = width.saturating_sub(GLYPH + fixed);
    let shown = Column::ALL.into_iter().filter(|column| shown.contains(column)).collect();
    if roomy && free > key + 18 {
        Columns { key, word, shown, last: free - key - 2 }
    } else {
        Columns { key: free, word, shown, last: 0 }
    }
}

/// True when a pane of that width shows the last action of its units.
pub fn shows_last_action(width: u16) -> bool {
    width >= ROOMY
}

/// The row that tells what an attempt does: the last call, or the last thing said.
pub fn last_action(story: &Story, attempt: &Attempt) -> Option<Row> {
    let rows = story.rows(attempt.lane);
    let telling = |row: &&Row| matches!(row.kind, RowKind::Tool | RowKind::Text | RowKind::Denial | RowKind::Warning);
    // Only the end is looked at: a draw may not cost what a transcript has.
    rows.iter().rev().take(16).find(telling).or(rows.last()).copied()
}

/// Paints the table.
pub fn draw(scene: &Scene<'_>, area: Rect, buf: &mut Buffer) {
    let (model, story) = (scene.model, scene.story);
    let focus = model.deck.focus == Pane::Units;
    let listed = model.listed(story);
    let of = if model.deck.listing.is_filtered() && area.width >= 60 {
        format!(" of {}", story.state.units.len())
    } else {
        String::new()
    };
    let row = if listed > 0 { model.unit_row() + 1 } else { 0 };
    let place = if story.state.units.is_empty() { String::new() } else { format!(" {row}/{listed}{of} ") };
    let title = title(&model.deck.listing);
    let name = if focus { Role::Strong } else { Role::Dim };
    let title: Vec<_> =
        [(name, "units")].into_iter().chain(title.iter().map(|(role, text)| (*role, text.as_str()))).collect();
    let inside = pane(scene, area, focus, &title, &[(Role::Dim, &place)], buf);
    let rows = layout::unit_list(area);
    if rows.is_empty() {
        return;
    }
    let visible: Vec<_> = model.visible_lines(story, usize::from(rows.height)).collect();
    if visible.is_empty() {
        Pen::row(scene, buf, inside).put(Role::Dim, &nothing(scene));
        return;
    }
    let units = visible.iter().filter_map(|(_, line)| match line {
        Line::Unit { unit, .. } => story.state.units.get(*unit),
        Line::Group(_) => None,
    });
    let mut seen = Seen::default();
    for unit in units {
        seen.key = seen.key.max(text::width(&unit.key));
        seen.word = seen.word.max(text::width(&state_text(unit, scene.model.time)));
        seen.again |= unit.attempts.len() > 1;
        seen.running |= unit.status == UnitStatus::Running;
    }
    let columns = columns(usize::from(rows.width), &seen, shows_last_action(area.width));
    if rows.y > inside.y {
        headings(scene, &columns, inside, buf);
    }
    for (y, (_, line)) in (rows.y..rows.bottom()).zip(&visible) {
        let area = Rect { y, height: 1, ..rows };
        match line {
            Line::Group(group) => self::group(scene, group, area, buf),
            Line::Unit { row, unit } => {
                let Some(unit) = story.state.units.get(*unit) else { continue };
                self::row(scene, unit, &columns, area, buf);
                if *row == model.unit_row() {
                    let role = if focus && model.views.is_empty() { Role::Selected } else { Role::Resting };
                    buf.set_style(area, scene.theme.style(role));
                }
            }
        }
    }
}

/// What is left out, and what orders the rest: always said, since a list that hides something looks like one that
/// has nothing.
fn title(listing: &Listing) -> Vec<(Role, String)> {
    let mut title = Vec::new();
    if listing.is_filtered() {
        let state = if listing.filter == Filter::All { String::new() } else { format!(" {}", listing.filter.word()) };
        let text =
            if listing.text.is_empty() { String::new() } else { format!(" \"{}\"", text::safe(&listing.text, 20)) };
        title.push((Role::Paused, format!("{state}{text} only")));
    }
    match (listing.sort, listing.reverse) {
        (Sort::Plan, false) => {}
        (sort, false) => title.push((Role::Focus, format!(" by {}", sort.word()))),
        (sort, true) => title.push((Role::Focus, format!(" by {} reversed", sort.word()))),
    }
    if listing.grouped {
        title.push((Role::Focus, " grouped".to_owned()));
    }
    title
}

fn nothing(scene: &Scene<'_>) -> String {
    let listing = &scene.model.deck.listing;
    match listing.filter {
        _ if scene.story.state.units.is_empty() && !scene.source.at_end => "reading…".to_owned(),
        _ if scene.story.state.units.is_empty() => "no unit yet".to_owned(),
        Filter::All => format!("no unit contains \"{}\"; Esc shows all", listing.text),
        filter if listing.text.is_empty() => format!("no unit under `{}`; Esc shows all", filter.word()),
        filter => format!("no unit under `{}` contains \"{}\"; Esc shows all", filter.word(), listing.text),
    }
}

fn headings(scene: &Scene<'_>, columns: &Columns, area: Rect, buf: &mut Buffer) {
    let sort = scene.model.deck.listing.sort;
    let role = |orders: bool| if orders { Role::Focus } else { Role::Dim };
    let mut pen = Pen::row(scene, buf, area);
    pen.skip(2);
    pen.cell(role(sort == Sort::Key), "UNIT", columns.key);
    for column in &columns.shown {
        let role = role(column.orders_by(sort));
        if *column == Column::Word {
            pen.skip(1);
            pen.cell(role, column.heading(), columns.word);
        } else {
            pen.cell_right(role, column.heading(), column.width(columns.word));
        }
    }
    if columns.last > 0 {
        pen.skip(2);
        pen.cell(Role::Dim, "LAST", columns.last);
    }
}

/// A connection, and how its units stand.
fn group(scene: &Scene<'_>, group: &Group, area: Rect, buf: &mut Buffer) {
    let mut pen = Pen::row(scene, buf, area);
    let name = if group.name.is_empty() { "no connection" } else { &group.name };
    let units = if group.units == 1 { "1 unit".to_owned() } else { format!("{} units", group.units) };
    pen.put_in(Role::Strong, name, usize::from(area.width) / 2);
    pen.put(Role::Dim, &format!("  {units}"));
    for (status, number) in Totals::ORDER.into_iter().zip(group.statuses).filter(|(_, number)| *number > 0) {
        pen.put(status_role(status), &format!("  {}{number}", scene.theme.glyphs.status(status)));
    }
    if group.cost.is_some() {
        pen.put(Role::Dim, &format!("  {}", dollars(group.cost)));
    }
}

fn row(scene: &Scene<'_>, unit: &Unit, columns: &Columns, area: Rect, buf: &mut Buffer) {
    let role = status_role(unit.status);
    let attempt = unit.latest();
    let mut pen = Pen::row(scene, buf, area);
    pen.cell(role, scene.theme.glyphs.unit(unit), 2);
    let key = if matches!(unit.status, UnitStatus::Queued | UnitStatus::Untried) { Role::Queued } else { Role::Text };
    // The beginning of keys is what units share; their end tells them apart.
    pen.cell(key, &text::middle(&unit.key, columns.key, scene.theme.glyphs.cut), columns.key);
    for column in &columns.shown {
        let width = column.width(columns.word);
        let (role, text) = match (column, attempt) {
            (Column::Word, _) => {
                pen.skip(1);
                pen.cell(role, &state_text(unit, scene.model.time), width - 1);
                continue;
            }
            (Column::Age, attempt) => age(unit, attempt, scene.model.time),
            (_, None) => (Role::Dim, String::new()),
            (Column::Try, Some(attempt)) => (Role::Text, attempt.number.to_string()),
            (Column::Failures, Some(attempt)) => {
                let bad = bad_calls(attempt, scene.theme.glyphs).next();
                bad.unwrap_or_else(|| (Role::Dim, scene.theme.glyphs.dot.to_owned()))
            }
            (Column::Calls, Some(attempt)) => (Role::Text, attempt.calls.to_string()),
            (Column::Turns, Some(attempt)) => (turns_role(attempt), turns(attempt)),
            (Column::Cost, Some(_)) => (Role::Text, cost(unit, scene.model.time)),
            (Column::Idle, Some(attempt)) => idle(unit, attempt, scene),
        };
        pen.cell_right(role, &text, width);
    }
    if columns.last > 0 {
        pen.skip(2);
        let (role, text) = last(scene, unit);
        pen.cell(role, &text, columns.last.saturating_sub(1));
    }
}

/// Calls that failed, and those that were refused beside them. A refused call counts as failed unless a person refused it,
/// so where some failed only the latter are told apart: no call is in both numbers.
pub(super) fn bad_calls(attempt: &Attempt, glyphs: &Glyphs) -> impl Iterator<Item = (Role, String)> {
    let refused = if attempt.failures == 0 { attempt.denials } else { attempt.refused };
    let failed = (Role::Failed, RowEnd::Failed, attempt.failures);
    let calls = [failed, (Role::Denied, RowEnd::Denied, refused)].into_iter().filter(|(_, _, calls)| *calls > 0);
    calls.map(|(role, end, calls)| (role, format!("{}{calls}", glyphs.row(RowKind::Tool, end))))
}

/// What all attempts cost; `+` where some did not say.
fn cost(unit: &Unit, now: Millis) -> String {
    let spent = Spent::of(unit, now);
    let more = if spent.cost.is_some() && spent.partial { "+" } else { "" };
    format!("{}{more}", dollars(spent.cost))
}

/// Its state, and how long it has been silent.
pub fn state_text(unit: &Unit, now: Millis) -> Cow<'static, str> {
    match unit.latest().and_then(|attempt| attempt.quiet_since) {
        Some(since) if unit.status == UnitStatus::Silent => Cow::Owned(format!("{} {}", unit.word(), now.since(since))),
        _ => Cow::Borrowed(unit.word()),
    }
}

/// How long nothing has come from a unit that runs.
fn idle(unit: &Unit, attempt: &Attempt, scene: &Scene<'_>) -> (Role, String) {
    if unit.status != UnitStatus::Running || !scene.source.origin.has_times {
        return (Role::Dim, String::new());
    }
    let Some(since) = attempt.quiet_since else { return (Role::Dim, String::new()) };
    let silent = scene.model.time.since(since);
    (if silent.0 >= SILENCE { Role::Warning } else { Role::Dim }, silent.to_string())
}

/// `9/40`, or `9` when the budget is not known.
pub fn turns(attempt: &Attempt) -> String {
    match attempt.step_budget {
        Some(budget) => format!("{}/{budget}", attempt.turns),
        None => attempt.turns.to_string(),
    }
}

/// The warning of the turn limit is at four fifths.
pub fn turns_role(attempt: &Attempt) -> Role {
    match attempt.step_budget {
        Some(budget) if budget > 0 && u64::from(attempt.turns) * 5 >= u64::from(budget) * 4 => Role::Warning,
        _ => Role::Text,
    }
}

/// How long it ran or runs; how long it is silent; when it starts again.
fn age(unit: &Unit, attempt: Option<&Attempt>, now: Millis) -> (Role, String) {
    match (unit.status, attempt) {
        (UnitStatus::Waiting, _) => {
            let wait = unit.retry_at.map_or_else(|| "?".to_owned(), |at| at.since(now).to_string());
            // Of a long wait, the larger unit is enough.
            let short = if wait.len() > 3 { wait.split(' ').next().unwrap_or_default() } else { &wait };
            (Role::Waiting, format!("in {short}"))
        }
        (_, None) => (Role::Dim, String::new()),
        (status, Some(attempt)) if status.is_in_flight() => {
            (Role::Text, attempt.ended_at.unwrap_or(now).since(attempt.started_at).to_string())
        }
        (_, Some(attempt)) => {
            (Role::Dim, attempt.ended_at.unwrap_or(attempt.last_at).since(attempt.started_at).to_string())
        }
    }
}

/// What it does, or why it ended.
fn last(scene: &Scene<'_>, unit: &Unit) -> (Role, String) {
    let attempt = unit.latest();
    let verdict = scene.story.state.verdict(unit);
    if let Some(verdict) = verdict.filter(|verdict| verdict.outcome != Outcome::Succeeded) {
        return (status_role(unit.status), text::one_row(&verdict.reason, 200));
    }
    let Some(attempt) = attempt else {
        let why = unit.planned.as_ref().map(|planned| planned.why.as_str()).unwrap_or_default();
        return (Role::Dim, text::one_row(why, 200));
    };
    if let Some(call) = attempt.held.first() {
        let waits = scene.model.time.since(call.since);
        return (Role::Paused, format!("waits {waits} for you: {}", text::one_row(&call.tool, 80)));
    }
    let line = last_action(scene.story, attempt)
        .and_then(|row| scene.cache.row(RowId::of(&row, scene.story)))
        .map_or("", |line| line.label.as_str());
    (Role::Dim, line.to_owned())
}
