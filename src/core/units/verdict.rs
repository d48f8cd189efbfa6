//! How an attempt ended: facts in, one verdict out.
//!
//! The checks have KTX's order; the first match decides. The module must not depend on streams or processes: the caller
//! fills [`AttemptFacts`].

mod cause;
mod remedy;
mod start_failure;

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::Value;

use crate::tape::{
    Millis, UnitKey,
    note::{
        AttemptOutcome, StopMode, StopReason, Verdict, VerdictCause, attempt_output::UnreadFile,
    },
};

pub use self::{remedy::session_remedy, start_failure::StartFailure};
pub use super::failure_tally::FailureRule;
use super::{failure_tally::FailureTally, reuse::SpentBudget};

/// Maximum length of the prompt, system and user together, in characters. KTX's limit: no process starts above it.
pub const MAX_PROMPT_CHARS: usize = 240_000;

/// Maximum length of untrusted text in a reason, in characters. The tape has the full text.
const MAX_QUOTE_CHARS: usize = 600;

/// Facts that decide the verdict. The Claude backend adds what it observed, the ingest stage adds its checks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttemptFacts {
    /// Characters of the system and user prompt together.
    pub prompt_chars: usize,
    /// Whether the agent has exactly the tools and settings of its unit.
    pub isolation: IsolationStatus,
    pub process: ProcessFacts,
    pub interruption: InterruptionFacts,
    pub reported: ReportedFacts,
    pub work: WorkFacts,
}

/// How the process of an attempt started and ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessFacts {
    /// Why it could not be started.
    pub start_error: Option<String>,
    /// Kind of the start failure, if known.
    pub start_fault: AgentStartFault,
    pub exit_code: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<i32>,
    /// It was started and wrote no JSON line.
    pub is_mute: bool,
    /// It did not exit by itself, so we sent the signal.
    pub terminated_by_us: bool,
    /// Last lines of stderr.
    pub stderr_tail: Vec<String>,
}

/// Why an attempt was ended from outside.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InterruptionFacts {
    /// A person ended the attempt.
    pub stopped: Option<StopMode>,
    /// The tape could not be written.
    pub record_error: Option<String>,
    /// A time limit ended the attempt.
    pub timed_out: Option<TimeLimit>,
    /// The agent wrote a line longer than this number of bytes.
    pub oversized_line: Option<usize>,
    /// The agent did not read its stdin while more than this number of bytes waited.
    pub unread_stdin: Option<usize>,
    /// Message about an agent that resumed another session than the requested one.
    pub session_mismatch: Option<String>,
    /// The agent's release is not supported: the message, and the remedy.
    pub unsupported_release: Option<(String, Option<String>)>,
}

/// What the agent's lines report about the end of the attempt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportedFacts {
    /// The last result line, if there was one.
    pub result: Option<ResultFacts>,
    /// `error` of the last synthetic assistant line (`authentication_failed`, `rate_limit`, …).
    pub error_class: Option<String>,
    /// `api_error` of the same line (`usage_limit_reached`, `connection_failed`, …).
    pub api_error: Option<String>,
    pub api_status: Option<u64>,
    /// Text of the same line, or the last text of the model.
    pub last_text: Option<String>,
    /// Messages of the model.
    pub turns: u32,
    /// Tokens of these messages, cached ones included.
    pub tokens: u64,
    /// US dollars, as far as the agent reported the cost.
    pub cost_usd: Option<f64>,
    /// Reset time of a rejected usage window, in Unix seconds.
    pub limit_resets_at: Option<i64>,
}

/// The work of the attempt, and the checks of its output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkFacts {
    pub tally: FailureTally,
    /// Arguments of failed and refused calls, by call id, if the agent showed them.
    pub failed_inputs: BTreeMap<String, Value>,
    /// Wiki references without a page, as `page -> missing`.
    pub dangling_refs: Vec<String>,
    /// Artifacts that failed validation, each with its subject (`wiki page orders: no summary`).
    pub invalid_artifacts: Vec<String>,
    /// What shows that the agent worked on its unit; `None` if that is not required.
    pub evidence: Option<WorkEvidence>,
    /// The patch with the artifacts could not be written.
    pub patch_error: Option<String>,
}

/// What an agent that ended by itself did with its raw files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkEvidence {
    /// It read one of them at least in part, or decided about one; also true if it need not read any.
    pub has_used_files: bool,
    /// Number of raw files of the unit.
    pub raw_files: usize,
    /// Those that it left unread.
    pub unread: Vec<UnreadFile>,
    /// Unread files fail the unit.
    pub unread_fails: bool,
    /// It neither changed nor decided anything.
    pub nothing_written: bool,
    /// Its work in earlier attempts of the session was discarded, and it did none again.
    pub lacks_lost_work: bool,
}

impl WorkEvidence {
    /// The unread files in one phrase: `2 of 5 raw files unread: a.yml, b.md (1 of 3 pages read)`.
    fn unread_phrase(&self) -> Option<String> {
        const MAX_NAMED: usize = 5;
        let named = self.unread.iter().take(MAX_NAMED);
        let named: Vec<String> = named
            .map(|file| format!("{}{}", quote_foreign(&file.path), file.part_note()))
            .collect();
        let more = match self.unread.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let count = match (self.unread.len(), self.raw_files) {
            (0, _) => return None,
            (1, 1) => "its raw file is unread".to_owned(),
            (unread, all) => format!("{unread} of {all} raw files unread"),
        };
        Some(format!("{count}: {}{more}", named.join(", ")))
    }
}

/// Error of Claude Code for an unknown session id.
pub(crate) const UNKNOWN_SESSION: &str = "No conversation found with session ID";
/// A time limit that an attempt exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeLimit {
    /// The agent wrote nothing for this time.
    Silence(Millis),
    /// The attempt took this time, not counting waits for a person and for our tools.
    Attempt(Millis),
    /// It waited this long for a decision of a person.
    Approval(Millis),
}

impl AttemptFacts {
    /// The attempt was to continue a session that Claude Code does not have.
    pub fn is_unknown_session(&self) -> bool {
        let errors = self
            .reported
            .result
            .as_ref()
            .and_then(|result| result.errors.as_deref());
        let stderr = self.process.stderr_tail.iter().map(String::as_str);
        errors
            .into_iter()
            .chain(stderr)
            .any(|text| text.contains(UNKNOWN_SESSION))
    }

    /// Message about an isolation breach.
    pub fn isolation_breach(&self) -> Option<&str> {
        match &self.isolation {
            IsolationStatus::Breached(sentence) => Some(sentence),
            IsolationStatus::NotRequired
            | IsolationStatus::Unverified
            | IsolationStatus::Verified => None,
        }
    }
}

/// Why a process could not be started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentStartFault {
    /// The error message has the reason.
    #[default]
    Other,
    /// Too many files are open.
    OpenFiles,
    /// The program is missing or not completely installed.
    ProgramMissing,
    /// The interpreter that a script names is missing.
    InterpreterMissing,
}

/// Whether the agent proved that it has exactly the tools and settings of its unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum IsolationStatus {
    /// Isolation is not required: a plain session may have whatever its user configures.
    #[default]
    NotRequired,
    /// The agent has not announced its tools and settings yet.
    Unverified,
    /// The agent announced exactly the allowed tools and settings.
    Verified,
    /// The agent has something else; the message.
    Breached(String),
}

/// Owned facts of a result line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResultFacts {
    /// The result reports a failure, as the contract defines it.
    pub failed: bool,
    pub subtype: Option<String>,
    pub terminal_reason: Option<String>,
    pub stop_reason: Option<String>,
    pub text: Option<String>,
    /// `error`, `errors[]` joined by `; `.
    pub errors: Option<String>,
    pub api_status: Option<u64>,
    /// Why the agent refused to start.
    pub start_failure: Option<StartFailure>,
}

/// Judges an attempt. The first match decides: prompt too large, isolation breach, agent loop (stopped, not recorded,
/// time limit, line too long, stdin not read, not started, missing or bad result), unproved isolation, tool failures,
/// nothing done, dangling references, validation, patch. A spent budget is a success with a note in its reason.
///
/// A call that a person refused is not a tool failure under any rule. The rule measures whether the model worked well;
/// the person has already judged this call, given the model a reason and let the attempt continue. Refused calls are
/// counted in the reason of a success.
pub fn judge_attempt(unit: &UnitKey, facts: &AttemptFacts, rule: FailureRule) -> Verdict {
    let stop = facts
        .reported
        .result
        .as_ref()
        .map_or(StopReason::Error, stop_reason);
    start_verdict(unit, facts)
        .or_else(|| loop_verdict(facts, stop))
        .or_else(|| work_verdict(unit, facts, rule, stop))
        .unwrap_or_else(|| success_verdict(stop, &facts.work))
}

/// The verdict of an attempt that could not start because too many files are open.
pub fn open_files_verdict(what: &str) -> Verdict {
    failure_verdict(
        StopReason::Error,
        VerdictCause::OpenFiles,
        format!("too many open files: {}", quote_foreign(what)),
    )
}

/// KTX's three stop reasons for a result. Turn and cost budgets come first, with or without an error flag: releases
/// before 2.1.88 report a spent budget without one. Unlike in KTX, an absent or unknown subtype is not an error,
/// because the contract defines such results as successes.
pub fn stop_reason(result: &ResultFacts) -> StopReason {
    if spent_budget(result).is_some() {
        return StopReason::Budget;
    }
    let terminal = result.terminal_reason.as_deref();
    let names_error = result
        .subtype
        .as_deref()
        .is_some_and(|subtype| subtype.starts_with("error"));
    let natural = !result.failed && !names_error && matches!(terminal, None | Some("completed"));
    if natural {
        StopReason::Natural
    } else {
        StopReason::Error
    }
}

/// The budget that a result reports as spent.
pub(crate) fn spent_budget(result: &ResultFacts) -> Option<SpentBudget> {
    let subtype = result.subtype.as_deref();
    let terminal = result.terminal_reason.as_deref();
    if subtype == Some("error_max_turns")
        || [terminal, result.stop_reason.as_deref()].contains(&Some("max_turns"))
    {
        return Some(SpentBudget::Turns);
    }
    (subtype == Some("error_max_budget_usd") || terminal == Some("budget_exhausted"))
        .then_some(SpentBudget::Cost)
}

fn start_verdict(unit: &UnitKey, facts: &AttemptFacts) -> Option<Verdict> {
    if facts.prompt_chars > MAX_PROMPT_CHARS {
        let reason = format!(
            "prompt too large for WorkUnit {unit}: {} chars exceeds {MAX_PROMPT_CHARS}",
            facts.prompt_chars
        );
        return Some(failure_verdict(
            StopReason::Error,
            VerdictCause::PromptTooLarge,
            reason,
        ));
    }
    let breach = facts.isolation_breach()?;
    Some(failure_verdict(
        StopReason::Error,
        VerdictCause::Isolation,
        quote_foreign(breach),
    ))
}

fn loop_verdict(facts: &AttemptFacts, stop: StopReason) -> Option<Verdict> {
    // Draining lets an attempt end normally; only the firmer modes end it.
    if matches!(
        facts.interruption.stopped,
        Some(StopMode::Stop | StopMode::Kill)
    ) {
        let verdict = failure_verdict(
            StopReason::Error,
            VerdictCause::Cancelled,
            "stopped before it was done".to_owned(),
        );
        return Some(Verdict {
            outcome: AttemptOutcome::Stopped,
            ..verdict
        });
    }
    if let Some(error) = &facts.interruption.record_error {
        let reason = format!("the tape could not be written: {}", quote_foreign(error));
        return Some(failure_verdict(
            StopReason::Error,
            VerdictCause::Internal,
            reason,
        ));
    }
    match facts.interruption.timed_out {
        Some(TimeLimit::Silence(limit)) => {
            let reason = format!("Claude Code wrote nothing for {limit} (silence timeout)");
            return Some(failure_verdict(
                StopReason::Error,
                VerdictCause::SilenceTimeout,
                reason,
            ));
        }
        Some(TimeLimit::Attempt(limit)) => {
            let reason = format!("the attempt took longer than {limit} (unit timeout)");
            return Some(failure_verdict(
                StopReason::Error,
                VerdictCause::UnitTimeout,
                reason,
            ));
        }
        Some(TimeLimit::Approval(limit)) => {
            let reason = format!("a call waited for a decision for {limit} (approval timeout)");
            let verdict = failure_verdict(StopReason::Error, VerdictCause::ApprovalTimeout, reason);
            return Some(Verdict {
                outcome: AttemptOutcome::Stopped,
                ..verdict
            });
        }
        None => {}
    }
    if let Some(limit) = facts.interruption.oversized_line {
        let reason = format!(
            "Claude Code wrote a line longer than {}",
            format_byte_limit(limit)
        );
        return Some(failure_verdict(
            StopReason::Error,
            VerdictCause::OversizedLine,
            reason,
        ));
    }
    if let Some(limit) = facts.interruption.unread_stdin {
        let reason = format!(
            "Claude Code stopped reading: more than {} of input is unread",
            format_byte_limit(limit)
        );
        let verdict = failure_verdict(StopReason::Error, VerdictCause::LoopError, reason);
        return Some(Verdict {
            remedy: Some(remedy::UNREAD_REMEDY.to_owned()),
            ..verdict
        });
    }
    if let Some(error) = &facts.process.start_error {
        return Some(not_started(facts.process.start_fault, error));
    }
    if let Some(verdict) = start_failure::start_failure_verdict(facts) {
        return Some(verdict);
    }
    if let Some(strayed) = &facts.interruption.session_mismatch {
        let verdict = failure_verdict(
            StopReason::Error,
            VerdictCause::LoopError,
            quote_foreign(strayed),
        );
        return Some(Verdict {
            remedy: Some(remedy::NEW_SESSION_REMEDY.to_owned()),
            ..verdict
        });
    }
    if stop == StopReason::Error
        && let Some(result) = facts
            .reported
            .result
            .as_ref()
            .filter(|result| !result.failed)
    {
        // Neither success nor failure: the agent reports an early end that is not an error.
        let verdict = failure_verdict(
            stop,
            cause::loop_failure_cause(facts),
            incomplete_result_reason(result),
        );
        return Some(Verdict {
            outcome: AttemptOutcome::Stopped,
            ..verdict
        });
    }
    (stop == StopReason::Error).then(|| {
        if let Some(verdict) = start_failure::mute_process_verdict(facts) {
            return verdict;
        }
        let verdict = failure_verdict(stop, cause::loop_failure_cause(facts), loop_reason(facts));
        let remedy = if facts.is_unknown_session() {
            Some(remedy::NEW_SESSION_REMEDY.to_owned())
        } else {
            verdict.remedy
        };
        Verdict { remedy, ..verdict }
    })
}

fn not_started(fault: AgentStartFault, error: &str) -> Verdict {
    let (cause, remedy) = match fault {
        AgentStartFault::OpenFiles => return open_files_verdict(error),
        AgentStartFault::Other => (VerdictCause::Internal, remedy::SPAWN_REMEDY),
        AgentStartFault::ProgramMissing => {
            (VerdictCause::ProgramMissing, remedy::MISSING_PROGRAM_REMEDY)
        }
        AgentStartFault::InterpreterMissing => (
            VerdictCause::ProgramMissing,
            remedy::MISSING_INTERPRETER_REMEDY,
        ),
    };
    let verdict = failure_verdict(
        StopReason::Error,
        cause,
        format!("Claude Code could not be started: {}", quote_foreign(error)),
    );
    Verdict {
        remedy: Some(remedy.to_owned()),
        ..verdict
    }
}

fn work_verdict(
    unit: &UnitKey,
    facts: &AttemptFacts,
    rule: FailureRule,
    stop: StopReason,
) -> Option<Verdict> {
    if facts.isolation == IsolationStatus::Unverified {
        let reason =
            "Claude Code runtime isolation failed: the agent never announced its tools".to_owned();
        return Some(failure_verdict(stop, VerdictCause::Isolation, reason));
    }
    let failed = facts.work.tally.count(rule);
    if failed > 0 {
        let verdict = failure_verdict(
            stop,
            VerdictCause::ToolFailures,
            format!("{failed} tool call(s) failed during WorkUnit {unit}"),
        );
        let recovered = facts
            .work
            .tally
            .all_recovered()
            .then(|| remedy::RECOVERED_REMEDY.to_owned());
        return Some(Verdict {
            remedy: recovered.or(verdict.remedy),
            ..verdict
        });
    }
    if let Some(verdict) = evidence_verdict(facts, stop) {
        return Some(verdict);
    }
    if !facts.work.dangling_refs.is_empty() {
        let reason = format!(
            "wiki references target missing page(s): {}",
            quote_foreign(&facts.work.dangling_refs.join(", "))
        );
        return Some(failure_verdict(
            stop,
            VerdictCause::DanglingReferences,
            reason,
        ));
    }
    if !facts.work.invalid_artifacts.is_empty() {
        let reason = format!(
            "validation failed for: {}",
            quote_foreign(&facts.work.invalid_artifacts.join(", "))
        );
        return Some(failure_verdict(stop, VerdictCause::Validation, reason));
    }
    let error = facts.work.patch_error.as_deref()?;
    let reason = format!(
        "its changes could not be saved as a patch: {}",
        quote_foreign(error)
    );
    Some(failure_verdict(stop, VerdictCause::Internal, reason))
}

/// The verdict of an attempt that succeeded, but whose patch could not be integrated.
pub fn integration_failure(cause: VerdictCause, reason: String) -> Verdict {
    failure_verdict(StopReason::Natural, cause, reason)
}

/// The failure of an agent that ended by itself without having worked on its unit.
fn evidence_verdict(facts: &AttemptFacts, stop: StopReason) -> Option<Verdict> {
    let evidence = facts
        .work
        .evidence
        .as_ref()
        .filter(|_| stop == StopReason::Natural)?;
    let fails = |cause, reason| Some(failure_verdict(stop, cause, reason));
    if facts.reported.turns == 0 {
        return fails(
            VerdictCause::NothingDone,
            "the model wrote no message".to_owned(),
        );
    }
    if !evidence.has_used_files {
        return fails(
            VerdictCause::NothingDone,
            "read none of its raw files and decided nothing".to_owned(),
        );
    }
    if evidence.lacks_lost_work {
        let reason =
            "its earlier changes were discarded, and it made none again and decided nothing"
                .to_owned();
        return fails(VerdictCause::NothingDone, reason);
    }
    let unread = evidence.unread_phrase().filter(|_| evidence.unread_fails)?;
    fails(VerdictCause::UnreadFiles, unread)
}

fn success_verdict(stop: StopReason, work: &WorkFacts) -> Verdict {
    let (cause, reason) = match stop {
        StopReason::Budget => (
            VerdictCause::Budget,
            "the turn or cost budget was spent before the model was done",
        ),
        StopReason::Natural | StopReason::Error => (VerdictCause::Completed, "completed"),
    };
    let refused = match work.tally.refusals().len() {
        0 => None,
        1 => Some("a person denied 1 call".to_owned()),
        refused => Some(format!("a person denied {refused} calls")),
    };
    let idle = work
        .evidence
        .as_ref()
        .filter(|evidence| evidence.nothing_written && stop == StopReason::Natural);
    let idle = idle.map(|_| "read, nothing written".to_owned());
    let unread = work.evidence.as_ref().and_then(WorkEvidence::unread_phrase);
    let details = [idle, unread, refused].into_iter().flatten();
    let reason = details.fold(reason.to_owned(), |reason, detail| {
        format!("{reason}; {detail}")
    });
    let remedy = remedy::remedy_for(&cause);
    Verdict {
        outcome: AttemptOutcome::Succeeded,
        stop,
        cause,
        reason,
        remedy,
    }
}

fn failure_verdict(stop: StopReason, cause: VerdictCause, reason: String) -> Verdict {
    let remedy = remedy::remedy_for(&cause);
    Verdict {
        outcome: AttemptOutcome::Failed,
        stop,
        cause,
        reason,
        remedy,
    }
}

fn terminal_reason(result: &ResultFacts) -> Option<&str> {
    result
        .terminal_reason
        .as_deref()
        .filter(|terminal| *terminal != "completed")
}

fn incomplete_result_reason(result: &ResultFacts) -> String {
    let word = terminal_reason(result)
        .or(result.subtype.as_deref())
        .unwrap_or("no reason given");
    format!(
        "Claude Code ended before it was done ({})",
        quote_foreign(word)
    )
}

fn loop_reason(facts: &AttemptFacts) -> String {
    let Some(result) = &facts.reported.result else {
        return missing_result_reason(facts);
    };
    let terminal = terminal_reason(result);
    if let Some(aborted @ ("aborted_streaming" | "aborted_tools")) = terminal {
        return format!("Claude Code was interrupted ({aborted})");
    }
    let subtype = result
        .subtype
        .as_deref()
        .filter(|subtype| *subtype != "success");
    let label = subtype
        .or(terminal)
        .map(|label| format!(" ({})", quote_foreign(label)))
        .unwrap_or_default();
    let texts = [&result.errors, &result.text, &facts.reported.last_text]
        .into_iter()
        .flatten();
    let text = texts
        .map(|text| quote_foreign(&readable_error(text)))
        .find(|text| !text.is_empty());
    let text = text.map(|text| format!(": {text}")).unwrap_or_default();
    format!("Claude Code query failed{label}{text}")
}

/// Makes an error of the agent readable: replaces diagnostics about the internals of its loop.
fn readable_error(text: &str) -> Cow<'_, str> {
    if !cause::is_diagnostic(text) {
        return text.into();
    }
    if cause::is_empty_message_diagnostic(text) {
        "the API answered without content"
    } else {
        "the agent's loop was cut short"
    }
    .into()
}

/// Reason for a process without a result line: its last stderr line, if there is one.
fn missing_result_reason(facts: &AttemptFacts) -> String {
    let end = match (facts.process.exit_code, facts.process.signal) {
        (_, Some(_)) if facts.process.terminated_by_us => {
            "it closed its output, did not exit and was terminated".to_owned()
        }
        (_, Some(signal)) => format!("ended by {}", signal_name(signal)),
        (Some(code), None) => format!("exit code {code}"),
        (None, None) => "end unknown".to_owned(),
    };
    let synthetic = facts
        .reported
        .error_class
        .as_ref()
        .and(facts.reported.last_text.as_deref());
    let last = synthetic.or_else(|| {
        facts
            .process
            .stderr_tail
            .iter()
            .rev()
            .map(String::as_str)
            .find(|line| !line.trim().is_empty())
    });
    match last {
        Some(line) => format!(
            "Claude Code query returned no result message ({end}): {}",
            quote_foreign(line)
        ),
        None => format!("Claude Code query returned no result message ({end})"),
    }
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        6 => "SIGABRT",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}

/// Formats a limit in bytes.
fn format_byte_limit(bytes: usize) -> String {
    const MIB: usize = 1024 * 1024;
    if bytes.is_multiple_of(MIB) {
        format!("{} MiB", bytes / MIB)
    } else {
        format!("{bytes} bytes")
    }
}

/// Quotes untrusted text inside a message: on one line, with limited length.
fn quote_foreign(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(MAX_QUOTE_CHARS) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

#[cfg(test)]
mod tests;
