//! The summary at the end of a run or a replay: counts, failed units, and the next command.

use std::{collections::HashMap, fmt::Write as _, path::Path, sync::Arc};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli::{
    exit::{Exit, SIGINT},
    output,
};
use ingestdeck_core::{
    run::{
        RunOutcome, RunState, SourceInfo,
        failure_groups::{FailureGroup, failure_groups},
        outcome::REVIEWED,
        recorded_decisions::{self, RecordedDecision},
        saved_commits::{SavedCommit, commits_json, newest_commits, saved_commits},
        savings::savings,
        shared_files::{self, SharedFile},
        spending::{CostFigure, UnitSpending, run_cost},
        state::{RECONCILE_KEY, UnitState, UnitStatus},
        verification::RunVerification,
    },
    tape::{
        Millis,
        note::{
            BlockedFile, ContinuedWork, ProjectionCause, RunEndOutcome, SourcesProjected,
            VerdictCause, attempt_output::UnreadFile,
        },
    },
    text::{
        self,
        commands::{
            project_dir_flag, pull_request_commands, resume_command, review_command, shell_quote,
        },
        pluralize,
    },
};

/// Maximum width of a sentence about a unit, in columns. The tape has the complete text.
const MAX_SENTENCE_WIDTH: usize = 300;

/// Maximum number of units that are named for one reason.
const MAX_GROUP_UNITS: usize = 6;

/// Maximum number of unread files that are named.
const MAX_UNREAD_FILES: usize = 5;

/// What to do about a usage limit that has been reset.
const RESET_REMEDY: &str = "the limit has been reset since: resume the run";

/// Maximum number of shared files that are named.
const MAX_SHARED_FILES: usize = 5;

/// The next commands for a record once its run is over.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NextSteps<'a> {
    /// The record was deleted with its directory.
    Temporary,
    /// The record is that of the last demo, with its project.
    Demo(&'a Path),
    /// The record is not a run of a project's units, or no unit can be tried again.
    Replay(&'a Path),
    /// The record is a run of a project.
    Project {
        tape: &'a Path,
        flag: Option<&'a Path>,
        run: &'a str,
        /// True if `run` can try units again.
        retry: bool,
    },
}

/// The summary of a unit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UnitSummary {
    pub unit: String,
    /// The sentence of its verdict.
    pub reason: String,
}

/// Totals of a run at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RunSummary {
    pub counts: Vec<(UnitStatus, usize)>,
    effort: EffortSummary,
    pub failed: Vec<UnitSummary>,
    /// Units whose budget ran out. They do not count as failed.
    pub budget: Vec<UnitSummary>,
    use_of_files: FileUseSummary,
    verification: RunVerification,
    /// Session ids in order of their attempts.
    pub sessions: Vec<String>,
    /// Units that neither succeeded nor spent their budget, in plan order; they prevent a successful exit code.
    pub unfinished: Vec<String>,
    /// The time of the run now, at least that of its last entry; `None` if the record cannot grow.
    pub open_until: Option<Millis>,
    /// True if a script played the model.
    is_scripted: bool,
    outcome: Option<String>,
    lost: [u64; 4],
    publication: PublicationSummary,
    documents: DocumentSummary,
    /// The cause that kept every unit from running.
    blocking_cause: Option<VerdictCause>,
}

/// What all attempts of a run took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct EffortSummary {
    /// Sum of the known costs, in US dollars.
    cost_usd: Option<f64>,
    /// True if some attempt has not reported its cost.
    is_cost_partial: bool,
    shown_cost: CostFigure,
    turns: u64,
    calls: u64,
    continued: ContinuedSummary,
}

/// What units saved because they continued in their sessions. A session that was cut again counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ContinuedSummary {
    units: usize,
    tokens: u64,
    active_ms: u64,
}

impl ContinuedSummary {
    fn from_state(state: &RunState) -> Self {
        fn last(unit: &UnitState) -> Option<&ContinuedWork> {
            let mut attempts = unit.attempts.iter().rev();
            attempts.find_map(|attempt| {
                // Without a turn, the session was not continued.
                let has_turns = attempt.counts.turns > 0;
                attempt.setup.continued().filter(|_| has_turns)
            })
        }
        let continued = state.units.iter().filter_map(last);
        continued.fold(Self::default(), |sum, work| Self {
            units: sum.units + 1,
            tokens: sum.tokens.saturating_add(work.tokens),
            active_ms: sum.active_ms.saturating_add(work.active_ms),
        })
    }
}

/// What successful units did with their raw files.
#[derive(Clone, Debug, Default, PartialEq)]
struct FileUseSummary {
    /// Keys of units that neither changed nor decided anything.
    nothing_written: Vec<String>,
    /// Raw files that units left unread, with the keys of these units.
    unread: Vec<(String, UnreadFile)>,
}

/// What became of documents that a run keeps verbatim.
#[derive(Clone, Debug, Default, PartialEq)]
struct DocumentSummary {
    /// Number of documents whose pages hold them.
    kept: usize,
    /// The others, with the reasons.
    refused: Vec<(String, String)>,
}

impl DocumentSummary {
    fn from_state(state: &RunState) -> Self {
        let mut summary = Self::default();
        let notes: Vec<&SourcesProjected> = state
            .inputs
            .projected
            .iter()
            .map(AsRef::as_ref)
            .filter(|note: &&SourcesProjected| note.cause == ProjectionCause::Verbatim)
            .collect();
        // A continued run may have several notes about a document; the last one counts.
        let documents = notes.iter().flat_map(|note| {
            let documents = note.documents.iter();
            documents.map(move |document| {
                let name = (note.connection.as_deref(), document.path.as_str());
                (name, document.refused.as_deref())
            })
        });
        let mut last: HashMap<(Option<&str>, &str), Option<&str>> = documents.clone().collect();
        summary.kept = last.values().filter(|refused| refused.is_none()).count();
        for (place, note) in notes.iter().enumerate() {
            let mut later = notes.iter().skip(place + 1);
            let is_repeated =
                later.any(|later| later.connection == note.connection && later.reason.is_none());
            if let Some(reason) = note.reason.as_ref().filter(|_| !is_repeated) {
                let connection = note
                    .connection
                    .clone()
                    .unwrap_or_else(|| "texts".to_owned());
                summary.refused.push((connection, reason.clone()));
            }
        }
        for (name, _) in documents {
            if let Some(why) = last.remove(&name).flatten() {
                summary.refused.push((name.1.to_owned(), why.to_owned()));
            }
        }
        summary
    }

    fn is_empty(&self) -> bool {
        self.kept == 0 && self.refused.is_empty()
    }
}

impl FileUseSummary {
    fn from_state(state: &RunState) -> Self {
        let mut summary = Self::default();
        for unit in state
            .units
            .iter()
            .filter(|unit| unit.status == UnitStatus::Succeeded)
        {
            let Some(work) = unit
                .latest()
                .and_then(|attempt| attempt.delivery.output.as_deref())
            else {
                continue;
            };
            summary
                .nothing_written
                .extend(work.nothing_written.then(|| unit.key.to_string()));
            summary.unread.extend(
                work.unread
                    .iter()
                    .map(|file| (unit.key.to_string(), file.clone())),
            );
        }
        summary
    }
}

/// What a run left on the project's branch.
#[derive(Clone, Debug, Default, PartialEq)]
struct PublicationSummary {
    /// Every commit of the run, oldest first.
    commits: Vec<SavedCommit>,
    /// Abbreviated hash of the last commit with changes of units.
    last_commit: Option<String>,
    /// Why the results are not saved.
    save_error: Option<String>,
    /// Files of the user that keep changes out of the commits.
    blocked: Arc<[BlockedFile]>,
    /// True if other changes can be committed without those.
    can_skip_blocked: bool,
    /// True if the changes wait until those are away.
    is_review_blocked: bool,
    /// The branch of the commit and the first line of its message, if the run does not commit to the current branch.
    pull_request: Option<(String, String)>,
    /// Files that several units wrote and git merged.
    shared: Vec<SharedFile>,
    /// Conflicts that the reconcile step flagged for a person.
    flagged: Vec<RecordedDecision>,
}

impl PublicationSummary {
    fn from_state(state: &RunState) -> Self {
        let saved = state.publication.saved.as_ref();
        Self {
            commits: saved_commits(&state.inputs, &state.publication),
            last_commit: saved
                .and_then(|saved| saved.short_commit())
                .map(str::to_owned),
            save_error: state.publication.save_error.as_deref().map(str::to_owned),
            blocked: Arc::clone(&state.publication.blocked),
            can_skip_blocked: state.publication.count_without_blocked() > 0,
            is_review_blocked: state.publication.is_review_blocked(),
            pull_request: saved
                .filter(|saved| {
                    saved.commit.is_some()
                        && saved.branch.as_deref() == state.publication.target_branch.as_deref()
                })
                .zip(state.publication.target_branch.as_deref())
                .map(|(saved, branch)| (branch.to_owned(), saved.subject.clone())),
            shared: shared_files::find_shared_files(state)
                .into_iter()
                .filter(|file| file.was_merged)
                .collect(),
            flagged: recorded_decisions::flagged_conflicts(state),
        }
    }
}

impl RunSummary {
    /// The totals of `state`.
    pub(crate) fn from_state(state: &RunState) -> Self {
        let attempts = || state.units.iter().flat_map(|unit| &unit.attempts);
        let mut counts: Vec<(UnitStatus, usize)> = Vec::new();
        for unit in &state.units {
            match counts.iter_mut().find(|(status, _)| *status == unit.status) {
                Some((_, count)) => *count += 1,
                None => counts.push((unit.status, 1)),
            }
        }
        Self {
            counts,
            effort: EffortSummary {
                cost_usd: run_cost(state),
                is_cost_partial: state
                    .units
                    .iter()
                    .any(|unit| UnitSpending::new(unit, state.last_entry_at).partial),
                shown_cost: state.cost_figure(),
                turns: attempts()
                    .map(|attempt| u64::from(attempt.counts.turns))
                    .sum(),
                calls: attempts()
                    .map(|attempt| u64::from(attempt.counts.calls))
                    .sum(),
                continued: ContinuedSummary::from_state(state),
            },
            failed: units_with_status(state, UnitStatus::Failed),
            budget: units_with_status(state, UnitStatus::BudgetExhausted),
            use_of_files: FileUseSummary::from_state(state),
            verification: RunVerification::from_state(state),
            sessions: attempts()
                .filter_map(|attempt| attempt.setup.session.as_deref().map(str::to_owned))
                .collect(),
            unfinished: state
                .units
                .iter()
                .filter(|unit| has_no_result(unit.status) || state.is_unsaved(unit))
                .map(|unit| unit.key.to_string())
                .chain(pending_reconcile_step(state))
                .collect(),
            open_until: None,
            is_scripted: state.planned.as_ref().is_some_and(|plan| plan.scripted),
            outcome: state
                .ended
                .as_ref()
                .map(|ended| ended.outcome.as_str().to_owned()),
            lost: [
                state.loss_counts.malformed,
                state.loss_counts.unknown,
                state.loss_counts.unknown_notes,
                state.loss_counts.corrupt_entries,
            ],
            publication: PublicationSummary::from_state(state),
            documents: DocumentSummary::from_state(state),
            blocking_cause: blocking_cause(state),
        }
    }

    /// The totals of a record that may still grow, if it `is_active`.
    #[must_use]
    pub(crate) fn with_open_end(self, is_active: bool) -> Self {
        Self {
            open_until: is_active.then_some(Millis(0)),
            ..self
        }
    }

    /// The exit of a session: turns or a budget that were spent without an answer are a limit.
    pub(crate) fn session_exit(&self, exit: Exit) -> Exit {
        let is_cut = exit == Exit::Ok && self.count(UnitStatus::BudgetExhausted) > 0;
        if is_cut { Exit::Limit } else { exit }
    }

    fn count(&self, status: UnitStatus) -> usize {
        self.counts
            .iter()
            .find(|(known, _)| *known == status)
            .map_or(0, |(_, count)| *count)
    }

    /// The exit code of a finished run after the user `interrupted` it, or did not. An interrupt that cut nothing short
    /// does not change the exit code.
    pub(crate) fn exit_after_interrupt(&self, interrupted: bool) -> Exit {
        let over = [
            UnitStatus::Succeeded,
            UnitStatus::BudgetExhausted,
            UnitStatus::Failed,
            UnitStatus::Reused,
        ];
        let cut_short = self
            .counts
            .iter()
            .any(|(status, count)| *count > 0 && !over.contains(status));
        if interrupted && cut_short {
            Exit::Signal(SIGINT)
        } else {
            self.exit()
        }
    }

    /// True if the run ended with changes that wait for a review.
    fn waits_for_review(&self) -> bool {
        self.outcome.as_deref() == Some(RunOutcome::WaitingApproval.as_str())
    }

    /// The summary of a run whose waiting changes a later run settled: it shows what is left besides them.
    pub(crate) fn with_settled_review(mut self) -> Self {
        if self.waits_for_review() {
            self.outcome = Some(REVIEWED.to_owned());
        }
        if !self.has_unfinished_units() {
            self.unfinished.clear();
        }
        self
    }

    /// True if units have no result, apart from changes that are in no commit.
    fn has_unfinished_units(&self) -> bool {
        self.counts
            .iter()
            .any(|(status, count)| *count > 0 && has_no_result(*status))
    }

    /// The exit code of a finished run.
    pub(crate) fn exit(&self) -> Exit {
        if self.waits_for_review()
            && (self.publication.save_error.is_none() || self.publication.is_review_blocked)
        {
            Exit::ReviewOpen
        } else if self.outcome.as_deref() == Some("limit") {
            Exit::Limit
        } else if let Some(cause) = &self.blocking_cause {
            Exit::from_cause(cause)
        } else if self.count(UnitStatus::Failed) + self.count(UnitStatus::Stopped) > 0
            || self.publication.save_error.is_some()
            || !self.documents.refused.is_empty()
        {
            Exit::UnitFailed
        } else if !self.unfinished.is_empty() {
            // The run was drained: no unit failed, but some did not run.
            Exit::Signal(SIGINT)
        } else {
            Exit::Ok
        }
    }

    /// The event that ends a JSON stream.
    pub(crate) fn to_json(&self) -> Value {
        let units: serde_json::Map<String, Value> = self
            .counts
            .iter()
            .map(|(status, count)| (status.as_str().to_owned(), Value::from(*count)))
            .collect();
        let [malformed, unknown, unknown_notes, torn] = self.lost;
        let running = self.open_until.map(|_| RunOutcome::Running.as_str());
        let outcome = self.outcome.as_deref().or(running);
        let mut event = json!({
            "type": "run", "state": "summary", "outcome": outcome, "units": units, "turns": self.effort.turns,
            "calls": self.effort.calls, "cost_usd": self.effort.cost_usd, "cost_partial": self.effort.is_cost_partial,
            "commit": self.publication.last_commit, "not_saved": self.publication.save_error,
            "merged": self.publication.shared.iter().map(|file| json!({"path": file.path, "units": file.units})).collect::<Vec<_>>(),
            "flagged": self.publication.flagged.iter().map(|it| json!({"artifact": it.about, "text": it.text})).collect::<Vec<_>>(),
            "failed": self.failed.iter().map(UnitSummary::to_json).collect::<Vec<_>>(),
            "budget": self.budget.iter().map(UnitSummary::to_json).collect::<Vec<_>>(),
            "nothing_written": self.use_of_files.nothing_written,
            "unread": self.use_of_files.unread.iter().map(|(unit, file)| json!({"unit": unit, "path": file.path, "part": file.part})).collect::<Vec<_>>(),
            "lost": {"malformed": malformed, "unknown": unknown, "unknown_notes": unknown_notes, "torn": torn},
        });
        if let Some(estimate) = self.effort.shown_cost.estimate() {
            event["cost_estimate_usd"] = json!(estimate);
        }
        let ContinuedSummary {
            units,
            tokens,
            active_ms,
        } = self.effort.continued;
        if units > 0 {
            event["continued"] = json!({"units": units, "tokens": tokens, "active_ms": active_ms});
        }
        if !self.documents.is_empty() {
            let refused = self.documents.refused.iter();
            let refused = refused.map(|(path, why)| json!({"path": path, "reason": why}));
            event["documents"] =
                json!({"kept": self.documents.kept, "refused": refused.collect::<Vec<_>>()});
        }
        if self.verification != RunVerification::default() {
            let RunVerification { counts, unchecked } = &self.verification;
            let [verified, unverified, contradicted] = counts;
            event["verification"] = json!({
                "verified": verified, "unverified": unverified, "contradicted": contradicted, "unchecked": unchecked,
            });
        }
        if !self.publication.commits.is_empty() {
            event["commits"] = commits_json(&self.publication.commits);
        }
        event
    }

    /// Lines for the scrollback, without colour.
    pub(crate) fn to_text(&self, origin: &SourceInfo, state: &RunState) -> String {
        let mut text = String::new();
        let name = origin.header.as_ref().map_or_else(
            || origin.title.clone().unwrap_or_else(|| origin.name.clone()),
            |header| {
                format!(
                    "{} · run {}",
                    header.project.as_deref().unwrap_or("ingest"),
                    header.run.short()
                )
            },
        );
        let name = text::printable(&name, output::max_width(MAX_SENTENCE_WIDTH));
        if state.entries == 0 {
            let _ = writeln!(text, "{name} · nothing is recorded in it");
            return text;
        }
        let idle = match self.use_of_files.nothing_written.len() {
            0 => String::new(),
            idle => format!(" ({idle} read, nothing written)"),
        };
        let count = |(status, count): &(UnitStatus, usize)| {
            let idle = if *status == UnitStatus::Succeeded {
                idle.as_str()
            } else {
                ""
            };
            format!("{count} {}{idle}", status.as_str())
        };
        let counts: Vec<String> = self.counts.iter().map(count).collect();
        let outcome = self.outcome_label(state);
        let units = pluralize(state.units.len(), "unit");
        let colon = if counts.is_empty() { "" } else { ": " };
        let documents = match self.documents.kept {
            0 => String::new(),
            kept => format!(" · {} kept verbatim", pluralize(kept, "document")),
        };
        let duration =
            state.duration_text(self.open_until.unwrap_or_default().max(state.last_entry_at));
        let _ = writeln!(
            text,
            "{name} · {outcome} after {} · {units}{colon}{}{documents}",
            duration,
            counts.join(", ")
        );
        for (path, why) in &self.documents.refused {
            let sentence = format!("{path} is not kept: {why}");
            let width = output::max_width(MAX_SENTENCE_WIDTH);
            let _ = writeln!(text, "{}", text::printable(&sentence, width));
        }
        let cost = self.effort.shown_cost;
        let scripted = if state.units.iter().any(|unit| {
            unit.attempts
                .iter()
                .any(|attempt| attempt.setup.is_scripted)
        }) {
            " (scripted agent: invented numbers)"
        } else {
            ""
        };
        let calls = pluralize(
            usize::try_from(self.effort.calls).unwrap_or(usize::MAX),
            "tool call",
        );
        let turns = pluralize(
            usize::try_from(self.effort.turns).unwrap_or(usize::MAX),
            "turn",
        );
        let _ = writeln!(text, "{calls} · {turns} · {cost}{scripted}");
        let continued = self.effort.continued;
        if continued.units > 0 {
            let units = pluralize(continued.units, "unit");
            let savings = savings(continued.tokens, continued.active_ms);
            let _ = writeln!(text, "{units} continued in the session: {savings}");
        }
        let (earlier, newest) = newest_commits(&self.publication.commits);
        for line in earlier
            .into_iter()
            .chain(newest.iter().map(ToString::to_string))
        {
            let _ = writeln!(
                text,
                "{}",
                text::printable(&line, output::max_width(MAX_SENTENCE_WIDTH))
            );
        }
        if let Some(why) = &self.publication.save_error {
            let _ = writeln!(
                text,
                "  ✗ {}",
                text::printable(
                    &format!("not saved: {why}"),
                    output::max_width(MAX_SENTENCE_WIDTH)
                )
            );
            if state.units.iter().any(|unit| state.work(unit).is_some()) {
                let _ = writeln!(
                    text,
                    "    the patches of the units are kept in .ktx/ingest-patches/"
                );
            }
        }
        for left in self
            .publication
            .blocked
            .iter()
            .filter(|_| self.publication.save_error.is_none())
        {
            let line = format!("left out of the commit: {} {}", left.path, left.reason);
            let _ = writeln!(
                text,
                "  ▲ {}",
                text::printable(&line, output::max_width(MAX_SENTENCE_WIDTH))
            );
        }
        for group in failure_groups(state) {
            write_failure_group(&mut text, state, &group);
        }
        let unread = &self.use_of_files.unread;
        if !unread.is_empty() {
            let named = unread.iter().take(MAX_UNREAD_FILES);
            let named: Vec<String> = named
                .map(|(unit, file)| format!("{}{} ({unit})", file.path, file.part_note()))
                .collect();
            let more = match unread.len().saturating_sub(MAX_UNREAD_FILES) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let count = pluralize(unread.len(), "raw file");
            let line = format!(
                "{count} left unread (plan --unread): {}{more}",
                named.join(", ")
            );
            let _ = writeln!(text, "  ▲ {}", text::printable(&line, MAX_SENTENCE_WIDTH));
        }
        let [.., contradicted] = self.verification.counts;
        let mark = if contradicted > 0 { "▲" } else { "·" };
        for sentence in self.verification.sentences() {
            let width = output::max_width(MAX_SENTENCE_WIDTH);
            let _ = writeln!(text, "  {mark} {}", text::printable(&sentence, width));
        }
        for file in self.publication.shared.iter().take(MAX_SHARED_FILES) {
            let _ = writeln!(
                text,
                "  ▲ {}",
                text::printable(&file.to_string(), output::max_width(MAX_SENTENCE_WIDTH))
            );
        }
        if self.publication.shared.len() > MAX_SHARED_FILES {
            let _ = writeln!(
                text,
                "  ▲ and {} more that several units wrote",
                self.publication.shared.len() - MAX_SHARED_FILES
            );
        }
        if let Some(sentence) = recorded_decisions::conflicts_summary(&self.publication.flagged) {
            let _ = writeln!(
                text,
                "  ▲ {}",
                text::printable(&sentence, output::max_width(MAX_SENTENCE_WIDTH))
            );
        }
        if origin.recovered > 0 {
            let records = text::pluralize(
                usize::try_from(origin.recovered).unwrap_or(usize::MAX),
                "record",
            );
            let _ = writeln!(text, "recovered from damaged lines: {records}");
        }
        if self.lost.iter().any(|lost| *lost > 0) {
            let [malformed, unknown, notes, torn] = self.lost;
            let _ = writeln!(
                text,
                "not understood: {malformed} malformed, {unknown} unknown lines, {notes} unknown notes, {torn} torn"
            );
        }
        text
    }

    /// Lines with the location of the record and the next commands.
    pub(crate) fn next_steps(&self, next: NextSteps<'_>) -> String {
        match next {
            NextSteps::Temporary => {
                "the record was temporary; `ingestdeck demo --keep DIR` keeps it, and everything the demo wrote\n"
                    .into()
            }
            NextSteps::Demo(project) => {
                let flag = project_dir_flag(Some(project));
                format!(
                    "kept until the next demo:\n  ingestdeck replay demo\n  ingestdeck report demo\n  \
                     ingestdeck why{flag} wiki/global/net-revenue.md\n"
                )
            }
            NextSteps::Replay(tape) => {
                let path = tape.display().to_string();
                format!("recorded in {path}\n  ingestdeck replay {}\n", shell_quote(&path))
            }
            NextSteps::Project { tape, flag, run, retry } => {
                let replay = format!("ingestdeck replay {run}{}", project_dir_flag(flag));
                let path = tape.display().to_string().replace('\n', "\\n");
                let mut text = format!("recorded in {path}\n  {replay}\n");
                if let Some((branch, subject)) = &self.publication.pull_request {
                    let _ = write!(text, "{}", pull_request_commands(branch, subject, tape));
                }
                if self.waits_for_review() && retry {
                    let review = review_command(flag, run);
                    let _ = writeln!(text, "  {review}");
                    if self.publication.can_skip_blocked && self.publication.save_error.is_some() {
                        let _ = writeln!(text, "  {review} --accept '*' --skip-blocked");
                    }
                } else if self.waits_for_review() && self.is_scripted {
                    text.push_str("a script played it; `ingestdeck demo --review` on a terminal shows such a review\n");
                }
                if retry
                    && (!self.waits_for_review() || self.has_unfinished_units())
                    && !(self.unfinished.is_empty() && self.budget.is_empty())
                {
                    let _ = writeln!(text, "  {}", resume_command(flag, run));
                }
                text
            }
        }
    }

    /// How the run ended; for a record without an end, whether it is running or was interrupted.
    fn outcome_label(&self, state: &RunState) -> &str {
        let is_active =
            |unit: &UnitState| unit.status.is_in_flight() || unit.status == UnitStatus::Waiting;
        match (
            &self.outcome,
            RunOutcome::from_state(
                state,
                self.open_until.is_some() || state.units.iter().any(is_active),
            ),
        ) {
            (Some(_), _) if self.waits_for_review() => RunOutcome::WaitingApproval.text(),
            (Some(outcome), _) => outcome,
            (None, RunOutcome::Running) if state.limits.is_paused => "paused",
            (None, RunOutcome::Running) => "still running",
            (None, RunOutcome::Interrupted) => "interrupted",
            (None, _) => "ended",
        }
    }
}

/// The cause that kept every unit of `state` from running, if its run ended for that reason.
fn blocking_cause(state: &RunState) -> Option<VerdictCause> {
    state
        .ended
        .as_ref()
        .filter(|ended| ended.outcome == RunEndOutcome::Unusable)?;
    let causes = state
        .units
        .iter()
        .filter_map(|unit| Some(&unit.latest()?.verdict.as_ref()?.cause));
    let is_in_the_way = |cause: &&VerdictCause| {
        matches!(
            cause,
            VerdictCause::Auth
                | VerdictCause::Credit
                | VerdictCause::Model
                | VerdictCause::Network
                | VerdictCause::ProgramMissing
                | VerdictCause::StartFailed
        )
    };
    let mut causes = causes.filter(is_in_the_way);
    causes.next().cloned()
}

/// True for a unit without a result. A unit that ran out of turns is unfinished, but its changes count.
fn has_no_result(status: UnitStatus) -> bool {
    status.needs_retry() && status != UnitStatus::BudgetExhausted
}

/// The reconcile step, if saved patches wait for it although it never ran.
fn pending_reconcile_step(state: &RunState) -> Option<String> {
    let is_shown = state
        .units
        .iter()
        .any(|unit| unit.key.as_str() == RECONCILE_KEY && has_no_result(unit.status));
    (state.ended.is_some() && !is_shown && !state.publication.unreconciled.is_empty())
        .then(|| RECONCILE_KEY.to_owned())
}

/// Writes the units that failed or ran out of turns for the same reason, with the reason and the remedy.
fn write_failure_group(text: &mut String, state: &RunState, group: &FailureGroup) {
    let ended = |unit: &&UnitState| {
        matches!(
            unit.status,
            UnitStatus::Failed | UnitStatus::BudgetExhausted | UnitStatus::NotStarted
        )
    };
    let units: Vec<&UnitState> = group
        .units
        .iter()
        .filter_map(|unit| state.units.get(*unit))
        .filter(ended)
        .collect();
    // A refused start is a fault of the run, not of its units.
    let is_refused = units
        .first()
        .is_some_and(|unit| unit.status == UnitStatus::NotStarted);
    let (glyph, sentence) = match units.as_slice() {
        [] => return,
        _ if is_refused => (UnitStatus::Failed.glyph(), group.example.clone()),
        [unit] => (
            unit.status.glyph(),
            format!("{}: {}", unit.key, group.example),
        ),
        [unit, ..] => (
            unit.status.glyph(),
            format!("{}: {}", pluralize(units.len(), "unit"), group.reason),
        ),
    };
    let _ = writeln!(
        text,
        "  {glyph} {}",
        text::printable(&sentence, output::max_width(MAX_SENTENCE_WIDTH))
    );
    if units.len() > 1 && !is_refused {
        let mut names: Vec<&str> = units
            .iter()
            .take(MAX_GROUP_UNITS)
            .map(|unit| &*unit.key)
            .collect();
        let more = units.len().saturating_sub(names.len());
        let more_text = format!("{more} more");
        names.extend((more > 0).then_some(more_text.as_str()));
        let _ = writeln!(
            text,
            "    {}",
            text::printable(&names.join(", "), output::max_width(MAX_SENTENCE_WIDTH))
        );
    }
    let remedy = if is_limit_over(state, &units) {
        Some(RESET_REMEDY)
    } else {
        group.remedy.as_deref()
    };
    if let Some(remedy) = remedy {
        let _ = writeln!(
            text,
            "    {}",
            text::printable(remedy, output::max_width(MAX_SENTENCE_WIDTH))
        );
    }
}

/// True if the usage limits that ended `units` have been reset since, so that waiting for it does not help.
fn is_limit_over(state: &RunState, units: &[&UnitState]) -> bool {
    let is_over = |unit: &&UnitState| match state.verdict(unit).map(|verdict| &verdict.cause) {
        Some(VerdictCause::UsageLimit {
            resets_at: Some(at),
        }) => *at <= Timestamp::now().as_second(),
        _ => false,
    };
    units.iter().all(is_over)
}

/// The summaries of all units with a status.
fn units_with_status(state: &RunState, status: UnitStatus) -> Vec<UnitSummary> {
    state
        .units
        .iter()
        .filter(|unit| unit.status == status)
        .map(|unit| UnitSummary::from_unit(state, unit))
        .collect()
}

impl UnitSummary {
    fn from_unit(state: &RunState, unit: &UnitState) -> Self {
        let verdict = state.verdict(unit);
        Self {
            unit: unit.key.to_string(),
            reason: verdict.map_or_else(|| "no verdict".into(), |verdict| verdict.reason.clone()),
        }
    }

    fn to_json(&self) -> Value {
        json!({"unit": self.unit, "reason": self.reason})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingestdeck_core::{
        run::state::AttemptState,
        tape::note::{AttemptOutcome, KeptDocument, StopReason, Verdict},
    };

    #[test]
    fn document_of_several_notes_counts_once() {
        let note = |refused: Option<&str>| {
            let document = |path: &str, refused: Option<&str>| KeptDocument {
                path: path.into(),
                page: path.into(),
                refused: refused.map(str::to_owned),
            };
            Arc::new(SourcesProjected {
                connection: Some("notes".into()),
                cause: ProjectionCause::Verbatim,
                documents: vec![document("a.md", None), document("b.md", refused)],
                ..SourcesProjected::default()
            })
        };
        let mut state = RunState::default();
        state.inputs.projected = vec![note(None), note(Some("it was edited"))];
        let summary = DocumentSummary::from_state(&state);
        assert_eq!(summary.kept, 1);
        assert_eq!(
            summary.refused,
            [("b.md".to_owned(), "it was edited".to_owned())]
        );
    }

    #[test]
    fn blocking_cause_has_its_own_exit_code() {
        let ended = |cause| {
            RunSummary {
                blocking_cause: Some(cause),
                ..left(&["a"])
            }
            .exit()
        };
        assert_eq!(ended(VerdictCause::Auth), Exit::Setup);
        assert_eq!(ended(VerdictCause::Credit), Exit::Setup);
        assert_eq!(ended(VerdictCause::Network), Exit::Setup);
        assert_eq!(ended(VerdictCause::ProgramMissing), Exit::Setup);
        assert_eq!(ended(VerdictCause::Model), Exit::Usage);
    }

    fn project(flag: Option<&Path>, retry: bool) -> NextSteps<'_> {
        NextSteps::Project {
            tape: Path::new("/p/tape.jsonl"),
            flag,
            run: "a1b2c3",
            retry,
        }
    }

    fn left(units: &[&str]) -> RunSummary {
        RunSummary {
            unfinished: units.iter().map(|unit| (*unit).to_owned()).collect(),
            ..RunSummary::default()
        }
    }

    #[test]
    fn next_steps_are_valid_shell_commands() {
        let steps =
            left(&["docs-a", "docs-b"]).next_steps(project(Some(Path::new("/my project")), true));
        let expected = "recorded in /p/tape.jsonl
  ingestdeck replay a1b2c3 --project-dir '/my project'
  ingestdeck run --project-dir '/my project' --resume-run a1b2c3
";
        assert_eq!(steps, expected);
    }

    #[test]
    fn resume_command_is_offered_only_for_unfinished_units() {
        let replay = "recorded in /p/tape.jsonl\n  ingestdeck replay a1b2c3\n";
        assert_eq!(left(&[]).next_steps(project(None, true)), replay);
        assert_eq!(left(&["a"]).next_steps(project(None, false)), replay);
    }

    #[test]
    fn review_command_is_offered_only_for_runs_that_continue() {
        let waiting = RunSummary {
            outcome: Some("waiting_approval".to_owned()),
            ..left(&[])
        };
        assert!(
            waiting
                .next_steps(project(None, true))
                .contains("ingestdeck review a1b2c3")
        );
        assert!(!waiting.next_steps(project(None, false)).contains("review"));
        let scripted = RunSummary {
            is_scripted: true,
            ..waiting
        }
        .next_steps(project(None, false));
        assert!(
            !scripted.contains("ingestdeck review")
                && scripted.contains("ingestdeck demo --review"),
            "{scripted}"
        );
    }

    #[test]
    fn reset_in_the_past_is_not_waited_for() {
        let ended = |resets_at| {
            let verdict = Verdict {
                outcome: AttemptOutcome::Failed,
                stop: StopReason::Error,
                cause: VerdictCause::UsageLimit { resets_at },
                reason: "usage limit".into(),
                remedy: Some("wait for the reset".into()),
            };
            let attempts = vec![AttemptState {
                verdict: Some(verdict),
                ..AttemptState::default()
            }];
            let status = UnitStatus::Failed;
            let (key, hold_mode) = ("docs-a".into(), Default::default());
            let unit = UnitState {
                key,
                planned: None,
                status,
                attempts,
                retry_at: None,
                hold_mode,
            };
            let state = RunState {
                units: vec![unit],
                ..RunState::default()
            };
            let mut text = String::new();
            write_failure_group(&mut text, &state, &failure_groups(&state)[0]);
            text
        };
        assert!(
            ended(Some(1_000)).contains(RESET_REMEDY) && !ended(Some(1_000)).contains("wait for")
        );
        for open in [None, Some(i64::MAX)] {
            assert!(
                ended(open).contains("wait for the reset"),
                "{}",
                ended(open)
            );
        }
    }

    #[test]
    fn drained_run_exits_with_sigint() {
        assert_eq!(left(&[]).exit(), Exit::Ok);
        assert_eq!(left(&["a"]).exit(), Exit::Signal(SIGINT));
    }

    #[test]
    fn interrupt_sets_the_exit_code_only_if_units_were_cut_short() {
        let ended = |status| RunSummary {
            counts: vec![(UnitStatus::Failed, 1), (status, 1)],
            ..left(&["a", "b"])
        };
        assert_eq!(
            ended(UnitStatus::Stopped).exit_after_interrupt(true),
            Exit::Signal(SIGINT)
        );
        assert_eq!(
            ended(UnitStatus::Queued).exit_after_interrupt(true),
            Exit::Signal(SIGINT)
        );
        assert_eq!(
            ended(UnitStatus::Stopped).exit_after_interrupt(false),
            Exit::UnitFailed
        );
        assert_eq!(
            ended(UnitStatus::Succeeded).exit_after_interrupt(true),
            Exit::UnitFailed
        );
    }
}
