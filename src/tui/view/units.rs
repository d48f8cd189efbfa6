//! The table of units: one row each, columns as the width allows.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{Pen, Scene, dollars, pane};
use crate::{
    run::state::{Attempt, Row, RowKind, Story, Unit, UnitStatus},
    tape::{Millis, note::Outcome},
    tui::{
        cache::RowId,
        layout,
        model::{Filter, Pane},
        text,
        theme::{Role, status_role},
    },
};

/// Columns of the pane from which on the last action of a unit is shown.
const ROOMY: u16 = 90;
/// Silence of a running unit that is worth telling.
const SILENCE: u64 = 10_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Word,
    Try,
    Failures,
    Turns,
    Calls,
    Cost,
    Age,
}

impl Column {
    /// In the order of the screen.
    const ALL: [Self; 7] = [Self::Word, Self::Try, Self::Failures, Self::Calls, Self::Turns, Self::Cost, Self::Age];
    /// The most telling first.
    const RANKED: [Self; 7] = [Self::Age, Self::Failures, Self::Try, Self::Word, Self::Turns, Self::Cost, Self::Calls];

    fn heading(self) -> &'static str {
        match self {
            Self::Word => "STATE",
            Self::Try => "TRY",
            Self::Failures => "FAIL",
            Self::Calls => "CALLS",
            Self::Turns => "TURNS",
            Self::Cost => "COST",
            Self::Age => "TIME",
        }
    }

    /// Columns with the gap before it.
    fn width(self) -> usize {
        match self {
            Self::Word => 12,
            Self::Try => 4,
            Self::Failures => 5,
            Self::Calls | Self::Turns => 7,
            Self::Cost => 8,
            Self::Age => 8,
        }
    }
}

struct Columns {
    key: usize,
    shown: Vec<Column>,
    last: usize,
}

/// Widths for a pane whose keys are at most `key` wide. Where room is short, tries are shown only if `again`: if some
/// unit had more than one.
fn columns(width: usize, key: usize, again: bool, roomy: bool) -> Columns {
    const AMPLE: usize = 70;
    const GLYPH: usize = 2;
    let key = key.clamp(8, 48);
    let mut room = width.saturating_sub(GLYPH + key.min(24));
    let mut shown = Vec::new();
    for column in Column::RANKED {
        if column == Column::Try && !again && width < AMPLE {
            continue;
        }
        if column.width() <= room {
            room -= column.width();
            shown.push(column);
        } else {
            break;
        }
    }
    let fixed: usize = shown.iter().map(|column| column.width()).sum();
    let free = width.saturating_sub(GLYPH + fixed);
    let shown = Column::ALL.into_iter().filter(|column| shown.contains(column)).collect();
    if roomy && free > key + 18 {
        Columns { key, shown, last: free - key - 2 }
    } else {
        Columns { key: free, shown, last: 0 }
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
    let filter = match model.deck.filter {
        Filter::All => String::new(),
        filter => format!(" {} only: {listed} of {} ", filter.word(), story.state.units.len()),
    };
    let place = if listed > 0 { format!(" {}/{listed} ", model.unit_row() + 1) } else { String::new() };
    let title = if focus { Role::Strong } else { Role::Dim };
    let inside = pane(scene, area, focus, &[(title, "units"), (Role::Paused, &filter)], &[(Role::Dim, &place)], buf);
    let rows = layout::unit_list(area);
    if rows.is_empty() {
        return;
    }
    let visible = (0..usize::from(rows.height)).map(|row| model.deck.offset + row);
    let visible: Vec<_> =
        visible.filter_map(|row| story.state.units.get(model.listed_unit(row)?).map(|unit| (row, unit))).collect();
    if visible.is_empty() {
        let empty = match model.deck.filter {
            _ if story.state.units.is_empty() && !scene.source.at_end => "reading…",
            _ if story.state.units.is_empty() => "no unit yet",
            Filter::All => "",
            Filter::Failed => "no unit has failed; Esc shows all",
            Filter::Running => "no unit is running; Esc shows all",
        };
        Pen::row(scene, buf, inside).put(Role::Dim, empty);
        return;
    }
    let longest = visible.iter().map(|(_, unit)| text::width(&unit.key)).max().unwrap_or(0);
    let again = visible.iter().any(|(_, unit)| unit.attempts.len() > 1);
    let columns = columns(usize::from(rows.width), longest, again, shows_last_action(area.width));
    if rows.y > inside.y {
        headings(scene, &columns, inside, buf);
    }
    for (y, (row, unit)) in (rows.y..rows.bottom()).zip(&visible) {
        let line = Rect { y, height: 1, ..rows };
        self::row(scene, unit, &columns, line, buf);
        if *row == model.unit_row() {
            let role = if focus && model.views.is_empty() { Role::Selected } else { Role::Resting };
            buf.set_style(line, scene.theme.style(role));
        }
    }
}

fn headings(scene: &Scene<'_>, columns: &Columns, area: Rect, buf: &mut Buffer) {
    let mut pen = Pen::row(scene, buf, area);
    pen.skip(2);
    pen.cell(Role::Dim, "UNIT", columns.key);
    for column in &columns.shown {
        if *column == Column::Word {
            pen.skip(1);
            pen.cell(Role::Dim, column.heading(), column.width() - 1);
        } else {
            pen.cell_right(Role::Dim, column.heading(), column.width());
        }
    }
    pen.skip(2);
    pen.cell(Role::Dim, "LAST", columns.last);
}

fn row(scene: &Scene<'_>, unit: &Unit, columns: &Columns, area: Rect, buf: &mut Buffer) {
    let role = status_role(unit.status);
    let attempt = unit.latest();
    let mut pen = Pen::row(scene, buf, area);
    pen.cell(role, scene.theme.glyphs.status(unit.status), 2);
    let key = if matches!(unit.status, UnitStatus::Queued) { Role::Queued } else { Role::Text };
    pen.cell(key, &unit.key, columns.key);
    for column in &columns.shown {
        let width = column.width();
        let (role, text) = match (column, attempt) {
            (Column::Word, _) => {
                pen.skip(1);
                pen.cell(role, unit.status.word(), width - 1);
                continue;
            }
            (Column::Age, attempt) => age(unit, attempt, scene.model.time),
            (_, None) => (Role::Dim, String::new()),
            (Column::Try, Some(attempt)) => (Role::Text, attempt.number.to_string()),
            (Column::Failures, Some(attempt)) => match (attempt.failures, attempt.denials) {
                (0, 0) => (Role::Dim, "·".to_owned()),
                (0, denials) => (Role::Denied, format!("▲{denials}")),
                (failures, _) => (Role::Failed, format!("✗{failures}")),
            },
            (Column::Calls, Some(attempt)) => (Role::Text, attempt.calls.to_string()),
            (Column::Turns, Some(attempt)) => (turns_role(attempt), turns(attempt)),
            (Column::Cost, Some(attempt)) => (Role::Text, dollars(attempt.cost_usd)),
        };
        pen.cell_right(role, &text, width);
    }
    if columns.last > 0 {
        pen.skip(2);
        let (role, text) = last(scene, unit);
        pen.cell(role, &text, columns.last.saturating_sub(1));
    }
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
        Some(budget) if budget > 0 && attempt.turns * 5 >= budget * 4 => Role::Warning,
        _ => Role::Text,
    }
}

/// How long it ran or runs; how long it is silent; when it starts again.
fn age(unit: &Unit, attempt: Option<&Attempt>, now: Millis) -> (Role, String) {
    match (unit.status, attempt) {
        (UnitStatus::Waiting, _) => {
            let wait = unit.retry_at.map_or_else(|| "?".to_owned(), |at| at.since(now).to_string());
            (Role::Waiting, format!("in {wait}"))
        }
        (_, None) => (Role::Dim, String::new()),
        (UnitStatus::Running, Some(attempt)) => {
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
    let verdict = attempt.and_then(|attempt| attempt.verdict.as_ref());
    if let Some(verdict) = verdict.filter(|verdict| verdict.outcome != Outcome::Succeeded) {
        return (status_role(unit.status), text::one_row(&verdict.reason, 200));
    }
    let Some(attempt) = attempt else {
        let why = unit.planned.as_ref().map(|planned| planned.why.as_str()).unwrap_or_default();
        return (Role::Dim, text::one_row(why, 200));
    };
    let line = last_action(scene.story, attempt)
        .and_then(|row| scene.cache.row(RowId::of(&row, scene.story.state.entries)))
        .map_or("", |line| line.label.as_str());
    let silent = scene.model.time.since(attempt.last_at);
    if unit.status == UnitStatus::Running && silent.0 >= SILENCE {
        return (Role::Warning, format!("{silent} silent: {line}"));
    }
    (Role::Dim, line.to_owned())
}
