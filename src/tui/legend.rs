//! What the signs and columns of the screen mean, for the help.

use ingestdeck_core::run::state::{RowKind, RowOutcome, UnitStatus};

/// The signs of units.
pub(crate) const UNITS: [(UnitStatus, &str); 11] = [
    (UnitStatus::Queued, "queued, or untried"),
    (UnitStatus::Running, "running"),
    (UnitStatus::Waiting, "waits for its next attempt"),
    (UnitStatus::Succeeded, "succeeded"),
    (UnitStatus::Failed, "failed"),
    (UnitStatus::BudgetExhausted, "ran out of turns or budget"),
    (UnitStatus::Held, "a call waits for your decision"),
    (UnitStatus::Silent, "writes nothing"),
    (UnitStatus::Stopped, "stopped"),
    (UnitStatus::Interrupted, "interrupted"),
    (UnitStatus::Reused, "succeeded in an earlier run"),
];

/// The signs of actions.
pub(crate) const ACTIONS: [(RowKind, RowOutcome, &str); 11] = [
    (
        RowKind::Tool,
        RowOutcome::Open,
        "tool call without a result yet",
    ),
    (RowKind::Tool, RowOutcome::Ok, "tool call that succeeded"),
    (RowKind::Tool, RowOutcome::Failed, "tool call that failed"),
    (
        RowKind::Tool,
        RowOutcome::Denied,
        "tool call that was denied",
    ),
    (
        RowKind::Tool,
        RowOutcome::Declined,
        "tool call that the tool declined; no failure",
    ),
    (RowKind::Tool, RowOutcome::Aborted, "cut short"),
    (RowKind::Text, RowOutcome::Ok, "text of the model"),
    (RowKind::Thinking, RowOutcome::Ok, "thinking of the model"),
    (RowKind::Prompt, RowOutcome::Ok, "what the user wrote"),
    (
        RowKind::Warning,
        RowOutcome::Ok,
        "stderr, or a line that is not understood",
    ),
    (RowKind::Note, RowOutcome::Ok, "what ingestdeck did"),
];

/// The sign of a bookmark, which is also drawn at the actions.
pub(crate) const BOOKMARK: &str = "bookmark";

/// The columns of the table.
pub(crate) const COLUMNS: [(&str, &str); 7] = [
    ("TRY", "number of attempts"),
    ("FAIL", "failed or denied calls of the last attempt"),
    ("CALLS", "tool calls of the last attempt"),
    ("TURNS", "turns of the last attempt, and their limit"),
    (
        "COST",
        "of all attempts; + at least, ? unknown, incl. in the session's",
    ),
    ("TIME", "of the last attempt"),
    ("IDLE", "time since the last output"),
];
