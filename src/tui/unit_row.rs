//! What a row of the unit table shows: which columns at which width, and the text of each.
//!
//! Pure. It must not know how a row is painted; [`super::view`] paints it, and [`super::layout`] uses its widths.

use std::borrow::Cow;

use super::{
    cache::{RowId, ScreenCache},
    theme::{GlyphSet, StyleRole, status_role},
};
use ingestdeck_core::{
    actions::input_form::{PLAN_TOOL, QUESTION_TOOL},
    run::{
        spending::{CostFigure, UnitSpending},
        state::{
            AttemptState, HoldMode, RowKind, RowOutcome, RunState, RunView, StreamRow, UnitState,
            UnitStatus,
        },
    },
    tape::{
        Millis,
        note::{AttemptOutput, attempt_output::ArtifactTarget},
    },
    text,
};

/// Columns of the sign before a name, and of the gap before a reason.
const GLYPH_COLUMNS: usize = 2;
const GAP_COLUMNS: usize = 2;
/// Minimum and maximum columns of a name.
const MIN_NAME_COLUMNS: usize = 8;
const MAX_NAME_COLUMNS: usize = 48;
/// Columns that a reason has before the middle of a name is cut less, and before other columns are added.
const MIN_WHY_COLUMNS: usize = 24;
const ROOMY_WHY_COLUMNS: usize = 40;
/// Columns that a reason has before the state is shown as a word.
const WIDE_WHY_COLUMNS: usize = 60;
/// Number of rows, from the end, among which the last action is searched: the cost of a draw must not depend on the
/// length of the stream.
const RECENT_ROWS: usize = 16;
/// Milliseconds of silence after which a running unit gets a warning.
pub(crate) const SILENCE_WARNING_MS: u64 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitColumn {
    State,
    Worker,
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
    const ALL: [Self; 9] = [
        Self::State,
        Self::Worker,
        Self::Attempts,
        Self::Failures,
        Self::Calls,
        Self::Turns,
        Self::Cost,
        Self::Age,
        Self::Idle,
    ];
    /// The columns in the order in which they are added when there is more room.
    const BY_IMPORTANCE: [Self; 9] = [
        Self::Age,
        Self::Worker,
        Self::Turns,
        Self::Cost,
        Self::Failures,
        Self::Attempts,
        Self::Calls,
        Self::Idle,
        Self::State,
    ];

    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::State => "STATE",
            Self::Worker => "WORKER",
            Self::Attempts => "TRY",
            Self::Failures => "FAIL",
            Self::Calls => "CALLS",
            Self::Turns => "TURNS",
            Self::Cost => "COST",
            Self::Age => "TIME",
            Self::Idle => "IDLE",
        }
    }

    /// Columns including a gap before them.
    pub(crate) fn width(self) -> usize {
        match self {
            Self::State => 13,
            Self::Worker => 14,
            Self::Attempts => 4,
            Self::Failures => 5,
            Self::Calls => 6,
            Self::Turns | Self::Age | Self::Idle => 8,
            Self::Cost => 9,
        }
    }
}

#[derive(Debug, PartialEq)]
pub(crate) struct UnitColumns {
    pub key: usize,
    pub shown: Vec<UnitColumn>,
    /// Columns of the reason or the current activity.
    pub why: usize,
}

/// Properties of all units that determine the columns, so that columns keep their places while the table scrolls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TableContent {
    /// Columns of the longest key.
    pub key: usize,
    /// True if units may have more than one attempt.
    pub has_retries: bool,
    /// True until the run has ended.
    pub is_open: bool,
    /// True once the run has had workers.
    pub has_workers: bool,
}

/// Column widths for a pane whose inside has `width` columns. Names and reasons share the room; the other columns are
/// added once both are readable. A wider pane never shows less: it has the same columns, and names and reasons of at
/// least the same width, up to `ROOMY_WHY_COLUMNS`. Attempts are shown if a unit may have several, silence until the run
/// has ended, workers once there are any: the columns before the reason remain as they are during a run.
pub(crate) fn columns(width: usize, seen: &TableContent) -> UnitColumns {
    let texts = width.saturating_sub(GLYPH_COLUMNS + GAP_COLUMNS);
    let longest = seen.key.clamp(MIN_NAME_COLUMNS, MAX_NAME_COLUMNS);
    let key = longest.min(texts.saturating_sub(MIN_WHY_COLUMNS).max(texts / 2));
    let mut why = texts - key;
    let mut added = Vec::new();
    if key == longest {
        for column in UnitColumn::BY_IMPORTANCE {
            let is_empty = match column {
                UnitColumn::Attempts => !seen.has_retries,
                UnitColumn::Idle => !seen.is_open,
                UnitColumn::Worker => !seen.has_workers,
                _ => false,
            };
            if !is_empty {
                let least = match column {
                    // The sign before the name shows it, too. It does not appear when the silence disappears.
                    UnitColumn::State if seen.is_open => WIDE_WHY_COLUMNS,
                    UnitColumn::State => WIDE_WHY_COLUMNS + UnitColumn::Idle.width(),
                    _ => ROOMY_WHY_COLUMNS,
                };
                if why < column.width() + least {
                    break;
                }
                why -= column.width();
                added.push(column);
            }
        }
    }
    let shown = UnitColumn::ALL
        .into_iter()
        .filter(|column| added.contains(column))
        .collect();
    UnitColumns { key, shown, why }
}

/// Why a unit needs a person, or what it does, did or waits for. `label` is the text of its last action, if any.
pub(crate) fn why(
    state: &RunState,
    unit: &UnitState,
    label: &str,
    has_times: bool,
) -> (StyleRole, String) {
    let (role, attempt, now) = (status_role(unit.status), unit.latest(), state.clock);
    let lasted = |since: Millis| {
        if has_times {
            format!(" {}", now.since(since))
        } else {
            String::new()
        }
    };
    let planned = || {
        unit.planned
            .as_ref()
            .map(|planned| text::one_row(&planned.why, 200))
            .unwrap_or_default()
    };
    if let (UnitStatus::Held, Some(call)) = (unit.status, unit.oldest_held_call()) {
        let tool = text::one_row(&call.tool, 80);
        // With several calls, the last action may be another one.
        let is_only = unit
            .latest()
            .is_some_and(|attempt| attempt.held_calls.len() == 1);
        let is_of_call = label.starts_with(&tool) || call.tool.as_ref() == QUESTION_TOOL;
        let call_text = match &*call.tool {
            PLAN_TOOL => "a plan waits for your approval",
            _ if is_only && is_of_call => label,
            _ => &tool,
        };
        return (role, format!("held{}: {call_text}", lasted(call.since)));
    }
    if let (UnitStatus::Silent, Some(since)) = (
        unit.status,
        attempt.and_then(|attempt| attempt.silent_since),
    ) {
        let after = if label.is_empty() { "its start" } else { label };
        return (role, format!("silent{} after {after}", lasted(since)));
    }
    let doing = if label.is_empty() { "starting" } else { label };
    match (unit.status, &unit.hold_mode) {
        (UnitStatus::Queued | UnitStatus::NotStarted | UnitStatus::Reused, _) => {
            let next = attempt.and_then(AttemptState::requested_retry);
            (StyleRole::Dim, next.unwrap_or_else(planned))
        }
        (UnitStatus::Waiting, _) => (role, text::one_row(&state.failure_reason(unit), 300)),
        (UnitStatus::Running, HoldMode::EachCall) => (
            StyleRole::Paused,
            format!("holds at the next call, now: {doing}"),
        ),
        (UnitStatus::Running, HoldMode::Until(condition)) => (
            StyleRole::Paused,
            format!("runs until {}, now: {doing}", text::one_row(condition, 60)),
        ),
        (UnitStatus::Running | UnitStatus::Silent | UnitStatus::Held, _) => {
            (StyleRole::Text, doing.to_owned())
        }
        (UnitStatus::Succeeded, _) => {
            let output = attempt.and_then(|attempt| attempt.delivery.output.as_deref());
            let is_unchanged = attempt.is_some_and(|attempt| attempt.delivery.is_unchanged());
            (
                StyleRole::Dim,
                output.map_or_else(|| label.to_owned(), |output| written(output, is_unchanged)),
            )
        }
        (UnitStatus::BudgetExhausted, _) => {
            let reason = state.failure_reason(unit);
            let output = attempt.and_then(|attempt| attempt.delivery.output.as_deref());
            let text = match output.filter(|output| !output.actions.is_empty()) {
                Some(output) => format!("{reason}, wrote {}", written(output, false)),
                None => reason.into_owned(),
            };
            (role, text::one_row(&text, 300))
        }
        _ => (role, text::one_row(&state.failure_reason(unit), 300)),
    }
}

/// What an attempt wrote: `2 pages: orders, refunds; 1 source: orders`, or `1 unchanged page: orders` if it is as before.
/// Empty if its record does not contain it.
fn written(output: &AttemptOutput, is_unchanged: bool) -> String {
    if output.is_empty() {
        return String::new();
    }
    let kinds = match is_unchanged {
        true => [
            (ArtifactTarget::Wiki, "unchanged page"),
            (ArtifactTarget::SemanticLayer, "unchanged source"),
        ],
        false => [
            (ArtifactTarget::Wiki, "page"),
            (ArtifactTarget::SemanticLayer, "source"),
        ],
    };
    let parts = kinds.into_iter().filter_map(|(target, noun)| {
        let keys: Vec<_> = output
            .actions
            .iter()
            .filter(|action| action.target == target)
            .map(|action| action.key.as_str())
            .collect();
        let listed = text::one_row(&keys.join(", "), 200);
        (!keys.is_empty()).then(|| format!("{}: {listed}", text::pluralize(keys.len(), noun)))
    });
    let unmapped = (!output.unmapped.is_empty()).then(|| {
        format!(
            "{} not mapped",
            text::pluralize(output.unmapped.len(), "file")
        )
    });
    let unread = (!output.unread.is_empty())
        .then(|| format!("{} unread", text::pluralize(output.unread.len(), "file")));
    let nothing = if output.nothing_written {
        "read, nothing written"
    } else {
        "wrote nothing"
    };
    let wrote: Vec<_> = parts.chain(unmapped).collect();
    let wrote = if wrote.is_empty() {
        nothing.to_owned()
    } else {
        wrote.join("; ")
    };
    std::iter::once(wrote)
        .chain(unread)
        .collect::<Vec<_>>()
        .join("; ")
}

/// The text of the last action of a unit, empty before the first.
pub(crate) fn last_action_label<'a>(
    cache: &'a ScreenCache,
    run_view: &RunView,
    unit: &UnitState,
) -> &'a str {
    unit.latest()
        .and_then(|attempt| last_action(run_view, attempt))
        .and_then(|row| cache.row(RowId::new(&row, run_view)))
        .map_or("", |line| line.label.as_str())
}

/// The row with the current activity of an attempt: the last call or the last text, once there is one.
pub(crate) fn last_action(run_view: &RunView, attempt: &AttemptState) -> Option<StreamRow> {
    let rows = run_view.rows(attempt.id);
    let telling = |row: &&StreamRow| {
        matches!(
            row.kind,
            RowKind::Tool | RowKind::Text | RowKind::Denial | RowKind::Warning
        )
    };
    let recent = rows.iter().rev().take(RECENT_ROWS);
    recent
        .clone()
        .find(telling)
        .or_else(|| rows.last().filter(|_| recent.len() == RECENT_ROWS))
        .copied()
}

/// Counts failed calls, and separately refused calls. A refused call counts as failed unless a person refused it; if
/// some calls failed, only the calls that a person refused are counted separately, so that no call is counted twice.
pub(crate) fn failed_and_refused_calls(
    attempt: &AttemptState,
    glyphs: &GlyphSet,
) -> impl Iterator<Item = (StyleRole, String)> {
    let refused = if attempt.counts.failures == 0 {
        attempt.counts.denials
    } else {
        attempt.counts.refused_by_person
    };
    let failed = (
        StyleRole::Failed,
        RowOutcome::Failed,
        attempt.counts.failures,
    );
    let calls = [failed, (StyleRole::Denied, RowOutcome::Denied, refused)]
        .into_iter()
        .filter(|(_, _, calls)| *calls > 0);
    calls.map(|(role, end, calls)| (role, format!("{}{calls}", glyphs.row(RowKind::Tool, end))))
}

/// The cost of all attempts, with `+` if the cost of some is unknown.
pub(crate) fn cost(unit: &UnitState, now: Millis) -> String {
    let cost = UnitSpending::new(unit, now).shown;
    if let (None, Some(attempt)) = (cost.usd, unit.latest()) {
        return attempt_cost(attempt);
    }
    let more = if cost.is_partial { "+" } else { "" };
    format!("{}{more}", cost.dollars())
}

/// The cost of one attempt. That of a sub-agent is included in the cost that its session reports.
pub(crate) fn attempt_cost(attempt: &AttemptState) -> String {
    let cost = CostFigure::of_attempt(attempt);
    if cost.usd.is_none() && attempt.setup.is_cost_included() {
        "incl.".to_owned()
    } else {
        cost.dollars()
    }
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

/// Time since the last output of a running unit, once it is long.
pub(crate) fn idle(
    unit: &UnitState,
    attempt: &AttemptState,
    now: Millis,
    has_times: bool,
) -> (StyleRole, String) {
    let silent = attempt
        .silent_since
        .filter(|_| unit.status == UnitStatus::Running && has_times)
        .map(|since| now.since(since))
        .filter(|silent| silent.0 >= SILENCE_WARNING_MS);
    let text = silent.map_or_else(String::new, |silent| silent.to_string());
    (StyleRole::Warning, text)
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
        Some(budget)
            if budget > 0 && u64::from(attempt.counts.turns) * 5 >= u64::from(budget) * 4 =>
        {
            StyleRole::Warning
        }
        _ => StyleRole::Text,
    }
}

/// Duration of the last attempt, or until the next one.
pub(crate) fn age(
    unit: &UnitState,
    attempt: Option<&AttemptState>,
    now: Millis,
) -> (StyleRole, String) {
    match (unit.status, attempt) {
        (UnitStatus::Waiting, _) => {
            let wait = unit
                .retry_at
                .map_or_else(|| "?".to_owned(), |at| at.since(now).to_string());
            // For a long wait, the larger unit of time is enough.
            let short = if wait.len() > 3 {
                wait.split(' ').next().unwrap_or_default()
            } else {
                &wait
            };
            (StyleRole::Waiting, format!("in {short}"))
        }
        (_, None) => (StyleRole::Dim, String::new()),
        (status, Some(attempt)) if status.is_in_flight() => (
            StyleRole::Text,
            attempt
                .ended_at
                .unwrap_or(now)
                .since(attempt.started_at)
                .to_string(),
        ),
        (_, Some(attempt)) => (
            StyleRole::Dim,
            attempt
                .ended_at
                .unwrap_or(attempt.last_at)
                .since(attempt.started_at)
                .to_string(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use ingestdeck_core::{run::state::AttemptDelivery, tape::note::PatchResult};

    proptest! {
        #[test]
        fn wider_table_never_shows_less(key in 1..120_usize, has_retries: bool, is_open: bool, has_workers: bool) {
            let seen = TableContent { key, has_retries, is_open, has_workers };
            let mut before = columns(20, &seen);
            for width in 20..=300 {
                let now = columns(width, &seen);
                let used: usize = now.shown.iter().map(|column| column.width()).sum();
                prop_assert_eq!(GLYPH_COLUMNS + now.key + GAP_COLUMNS + used + now.why, width, "every column is used");
                prop_assert!(now.key >= before.key, "{width}: name");
                prop_assert!(now.why >= before.why.min(ROOMY_WHY_COLUMNS), "{width}: reason");
                prop_assert!(before.shown.iter().all(|column| now.shown.contains(column)), "{width}: columns");
                before = now;
            }
        }
    }

    #[test]
    fn reason_of_an_unchanged_page_does_not_claim_a_change() {
        let page = serde_json::json!({"target": "wiki", "type": "updated", "key": "orders"});
        let output: AttemptOutput =
            serde_json::from_value(serde_json::json!({"actions": [page]})).unwrap();
        assert_eq!(written(&output, false), "1 page: orders");
        assert_eq!(written(&output, true), "1 unchanged page: orders");
        let mut delivery = AttemptDelivery {
            output: Some(output.into()),
            ..AttemptDelivery::default()
        };
        assert!(!delivery.is_unchanged(), "its patch is not known");
        delivery.integration = Some(PatchResult::Noop);
        assert!(delivery.is_unchanged());
        delivery.integration = Some(PatchResult::Accepted);
        assert!(!delivery.is_unchanged());
    }
}
