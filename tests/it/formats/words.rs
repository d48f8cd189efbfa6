//! Words for states, causes and kinds in JSON, tapes, the index and reports, and the exit codes. One line per value, by
//! its meaning; names of types and variants are internal.

use ingestdeck::Exit;
use ingestdeck_core::{
    actions::{ActionPhase, event::ActionKind},
    run::{
        OutcomeDetail, RunOutcome,
        diff::DiffStatus,
        outcome::REVIEWED,
        recorded_decisions::RecordedDecisionKind,
        state::{TaskState, UnitStatus},
        trace::TraceLevel,
    },
    tape::note::{
        PatchResult, VerdictCause,
        attempt_output::{ArtifactChange, ArtifactTarget},
    },
};
use ingestdeck_records::store::RunStatus;

use super::{golden::assert_published, notes::every_cause};

/// Every value of an enum with its word, under a heading. A new variant does not compile until it is added here.
macro_rules! words {
    ($out:ident, $heading:literal, $type:ident { $($variant:ident),+ $(,)? }) => {
        words!($out, $heading, as_str, $type { $($variant),+ });
    };
    ($out:ident, $heading:literal, $type:ident { $($variant:ident),+ $(,)? } and $other:pat) => {
        words!($out, $heading, as_str, $type { $($variant),+ } and $other);
    };
    ($out:ident, $heading:literal, $method:ident, $type:ident { $($variant:ident),+ $(,)? } $(and $other:pat)?) => {{
        let _exhaustive = |value: &$type| match value { $($type::$variant => (),)+ $($other => (),)? };
        let words: Vec<String> = [$($type::$variant),+].iter().map(|value| value.$method().to_owned()).collect();
        $out.push_str(&format!("{}: {}\n", $heading, words.join(", ")));
    }};
}

#[test]
fn words_of_states_and_kinds_are_as_published() {
    let mut out = String::new();
    words!(
        out,
        "unit states",
        UnitStatus {
            Queued,
            NotStarted,
            Running,
            Silent,
            Held,
            Waiting,
            Succeeded,
            BudgetExhausted,
            Failed,
            Stopped,
            Interrupted,
            Reused,
        }
    );
    words!(
        out,
        "run outcomes",
        RunOutcome { Running, Done, Partial, Error, AgentUnusable, Limit, Stopped, WaitingApproval, Interrupted }
        and RunOutcome::Reviewed(_)
    );
    out.push_str(&format!("run outcome in lists and reports: {REVIEWED}\n"));
    words!(
        out,
        "run states in lists",
        RunStatus {
            Running,
            Finished,
            Interrupted
        }
    );
    words!(
        out,
        "results of patches",
        label,
        PatchResult {
            Accepted,
            Noop,
            TextualConflict,
            SemanticConflict,
            ForbiddenPaths,
            PatchUnreadable
        }
    );
    words!(
        out,
        "calls beside their event",
        OutcomeDetail {
            Declined,
            Aborted,
            BudgetExhausted
        } and OutcomeDetail::Background
    );
    words!(
        out,
        "states of tasks",
        TaskState {
            Running,
            Completed,
            Failed,
            Stopped
        }
    );
    words!(
        out,
        "units in comparisons",
        DiffStatus {
            New,
            Removed,
            Changed,
            Same
        }
    );
    words!(
        out,
        "decisions",
        label,
        RecordedDecisionKind {
            Conflict,
            Eviction,
            Resolution,
            Fallback,
            Unread
        }
    );
    words!(
        out,
        "artifacts",
        ArtifactTarget {
            Wiki,
            SemanticLayer
        }
    );
    words!(
        out,
        "changes of artifacts",
        ArtifactChange {
            Created,
            Updated,
            Removed
        }
    );
    words!(
        out,
        "actions",
        ActionKind {
            Command,
            Tool,
            FileChange,
            WebSearch,
            Subagent,
            Note,
            Warning
        }
    );
    words!(
        out,
        "phases of actions",
        ActionPhase {
            Started,
            Updated,
            Completed
        }
    );
    let levels = [
        TraceLevel::Error,
        TraceLevel::Info,
        TraceLevel::Debug,
        TraceLevel::Trace,
    ];
    assert_eq!(
        ["error", "info", "debug", "trace"].map(TraceLevel::parse),
        levels
    );
    out.push_str(
        "levels of traces: error, info, debug, trace\n\ncauses in comparisons and reports:\n",
    );
    for cause in every_cause() {
        out.push_str(&format!(
            "{} = {}\n",
            serde_json::to_string(&cause).unwrap(),
            cause.label()
        ));
    }
    assert_published("words.txt", &out);
}

fn meaning(exit: Exit) -> &'static str {
    match exit {
        Exit::Ok => "every unit succeeded, or there was nothing to do",
        Exit::Internal => "the program itself failed",
        Exit::Usage => "bad usage or configuration",
        Exit::NotFound => "no such unit, run or file",
        Exit::Setup => "set-up failed: no Claude Code, not logged in",
        Exit::UnitFailed => "a unit failed",
        Exit::Limit => "stopped by a limit; can be resumed",
        Exit::ReviewOpen => "changes wait for a review",
        Exit::GateFailed => "a cell of a bench does not meet a rule",
        Exit::Signal(_) => "ended by a signal: 128 and its number",
    }
}

#[test]
fn exit_codes_are_as_published() {
    let exits = [
        Exit::Ok,
        Exit::Internal,
        Exit::Usage,
        Exit::NotFound,
        Exit::Setup,
        Exit::UnitFailed,
        Exit::Limit,
        Exit::ReviewOpen,
        Exit::GateFailed,
        Exit::Signal(2),
        Exit::Signal(15),
    ];
    let mut out: String = exits
        .iter()
        .map(|exit| format!("{:>3}  {}\n", exit.code(), meaning(*exit)))
        .collect();
    out.push_str("\nwhen nothing but this kept every unit from running:\n");
    let in_the_way = [
        ("login", VerdictCause::Auth),
        ("credit", VerdictCause::Credit),
        ("model", VerdictCause::Model),
        ("network", VerdictCause::Network),
        ("program", VerdictCause::ProgramMissing),
        ("usage limit", VerdictCause::UsageLimit { resets_at: None }),
        ("rate limit", VerdictCause::RateLimited),
        ("service busy", VerdictCause::Transient),
    ];
    for (what, cause) in in_the_way {
        out.push_str(&format!("{:>3}  {what}\n", Exit::from_cause(&cause).code()));
    }
    assert_published("exit-codes.txt", &out);
}
