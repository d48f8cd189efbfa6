//! What a row of the unit table shows: which columns at which width, and the text of each.
//!
//! Pure. It must not know how a row is painted; [`super::view`] paints it, and [`super::layout`] uses its widths.

use std::borrow::Cow;

use super::theme::{GlyphSet, StyleRole};
use crate::{
    run::{
        spending::UnitSpending,
        state::{AttemptState, RowKind, RowOutcome, RunView, StreamRow, UnitState, UnitStatus},
    },
    tape::Millis,
    text::dollars,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitColumn {
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

    pub(crate) fn heading(self) -> &'static str {
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
    pub(crate) fn width(self, word: usize) -> usize {
        match self {
            Self::State => word + 1,
            Self::Attempts => 4,
            Self::Failures => 5,
            Self::Calls | Self::Idle => 6,
            Self::Turns | Self::Age => 7,
            Self::Cost => 8,
        }
    }
}

#[derive(Debug)]
pub(crate) struct UnitColumns {
    pub key: usize,
    pub state_width: usize,
    pub shown: Vec<UnitColumn>,
    /// Columns of the last action; 0 if it is not shown.
    pub last: usize,
}

/// Properties of the visible units that determine the columns.
#[derive(Debug, Default)]
pub(crate) struct VisibleWidths {
    /// Columns of the longest key.
    pub key: usize,
    /// Columns of the longest state.
    pub state_width: usize,
    /// True if some unit had more than one attempt.
    pub has_retries: bool,
    /// True if some unit runs.
    pub running: bool,
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
pub(crate) fn columns(width: usize, seen: &VisibleWidths, roomy: bool) -> UnitColumns {
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

/// Counts failed calls, and separately refused calls. A refused call counts as failed unless a person refused it; if
/// some calls failed, only the calls that a person refused are counted separately, so that no call is counted twice.
pub(crate) fn failed_and_refused_calls(
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
pub(crate) fn cost(unit: &UnitState, now: Millis) -> String {
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
pub(crate) fn idle(unit: &UnitState, attempt: &AttemptState, now: Millis, has_times: bool) -> (StyleRole, String) {
    if unit.status != UnitStatus::Running || !has_times {
        return (StyleRole::Dim, String::new());
    }
    let Some(since) = attempt.silent_since else { return (StyleRole::Dim, String::new()) };
    let silent = now.since(since);
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
pub(crate) fn age(unit: &UnitState, attempt: Option<&AttemptState>, now: Millis) -> (StyleRole, String) {
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
