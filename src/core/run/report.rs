//! The data of reports and of comparisons of runs. Pure.
//!
//! It is collected in one pass over the entries and must not depend on output formats. `connection` contains the part
//! that selects one connection.

mod connection;

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use jiff::{Timestamp, tz::TimeZone};

use super::{
    OutcomeDetail, RunEvent, SinkEvent, SourceInfo,
    artifacts::{self, RunArtifact},
    coverage::{self, PriorFileResults, SourceCoverage},
    event::{ActionDetail, ActionPhase, AgentEvent},
    failure_groups::{self, FailureGroup},
    outcome::RunOutcome,
    recorded_decisions::{RecordedDecision, recorded_decisions},
    shared_files::{self, SharedFile},
    spending::{CostFigure, UnitSpending, attempt_duration, sum_costs},
    state::{
        self, AttemptState, LogMessage, LossCounts, Publication, RECONCILE_KEY, RunInputs, RunView,
        TokenCounts, UnitStatus,
    },
};
use crate::{
    actions::label::strip_error_tags,
    decode::content_text,
    tape::{
        Millis, UnitKey,
        note::{
            AttemptOutput, Note, PatchResult, PlannedUnit, RunPlanned, Severity, SourceRead,
            attempt_output::{MemoryAction, UnmappedFile},
        },
    },
    units::failure_tally::bare_name,
};

/// Maximum number of failed calls per attempt that are kept with their errors. All are counted.
const NAMED_FAILURES: usize = 40;

/// Maximum length of such an error in characters. It ends with a whole word: reports do not recognise the beginning of a
/// secret.
const MAX_ERROR_CHARS: usize = 600;

/// Maximum number of messages that are kept.
const MAX_MESSAGES: usize = 200;

/// Maximum number of warnings of a unit that are kept.
const MAX_UNIT_WARNINGS: usize = 20;

/// Maximum number of limits that are kept.
const MAX_LIMITS: usize = 200;

/// The data of a report about one run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunReport {
    pub origin: SourceInfo,
    /// True if the source has no entries.
    pub is_empty: bool,
    pub outcome: RunOutcome,
    /// Time of the last entry.
    pub duration: Millis,
    pub planned: Option<Arc<RunPlanned>>,
    pub units: Vec<UnitReport>,
    /// Groups of failed units, largest first.
    pub failure_groups: Vec<FailureGroup>,
    pub totals: ReportTotals,
    pub log: RunLog,
    pub inputs: RunInputs,
    pub publication: Publication,
    pub shared_files: Vec<SharedFile>,
    pub artifacts: ArtifactsReport,
    /// Entries and lines that could not be read.
    pub lost: LossCounts,
    /// The reconcile step, in a report that is limited to the units of one connection.
    reconcile_unit: Option<UnitReport>,
}

/// Warnings, errors and limits of a run, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunLog {
    /// Warnings and errors of the run itself.
    pub messages: Vec<(Millis, String)>,
    /// Number of messages beyond the limit.
    pub more_messages: usize,
    /// The first limits that the run waited for.
    pub limits: Vec<LimitWait>,
    /// Number of all limits that the run waited for.
    pub limit_count: usize,
}

/// A usage or rate limit that the run waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitWait {
    pub at: Millis,
    /// Its name, as the service reports it.
    pub limit: String,
    /// When it resets, if that is known.
    pub until: Option<Millis>,
}

/// The artifacts of a run, and the raw files that they rest on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArtifactsReport {
    /// The artifacts, sorted by path.
    pub list: Vec<RunArtifact>,
    /// By connection and adapter.
    pub coverage: Vec<SourceCoverage>,
}

/// Sums over all attempts of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportTotals {
    /// Number of units in each status, in order of first appearance.
    pub statuses: Vec<(UnitStatus, usize)>,
    /// Units that succeeded and neither changed nor decided anything.
    pub nothing_written: usize,
    /// In US dollars, over the attempts that reported a cost.
    pub cost: Option<f64>,
    /// True if some attempt did not report its cost.
    pub is_cost_partial: bool,
    /// The cost to show.
    pub shown_cost: CostFigure,
    pub tokens: TokenCounts,
    pub attempts: usize,
    pub retries: usize,
    pub turns: u64,
    pub calls: u64,
    pub failures: u64,
    pub denials: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct UnitReport {
    pub key: UnitKey,
    /// Its part of the plan; `None` in captures.
    pub planned: Option<Arc<PlannedUnit>>,
    pub status: UnitStatus,
    /// Why it is in that state, if a reason is known.
    pub reason: Option<String>,
    /// How a person can fix it, if known.
    pub remedy: Option<String>,
    /// Label of the cause of its verdict.
    pub cause: Option<String>,
    /// Its attempts, oldest first.
    pub attempts: Vec<AttemptReport>,
    pub spending: UnitSpending,
    /// True for a success whose changes are not in the project.
    pub is_unsaved: bool,
    /// Paths of files, of any unit, that a review left as they were before the run.
    pub rejected_paths: Arc<[String]>,
    /// Output of a prior run whose patch this run puts on the branch.
    pub prior_work: Option<Box<AttemptOutput>>,
    /// Result of integrating its patch, whichever run left the patch.
    pub integration: Option<PatchResult>,
    /// Its first warnings and errors, oldest first.
    pub warnings: Vec<(Millis, String)>,
}

impl UnitReport {
    /// KTX's key, which is unique in the connection.
    pub fn ktx_key(&self) -> &UnitKey {
        self.planned
            .as_ref()
            .and_then(|planned| planned.ktx_key.as_ref())
            .unwrap_or(&self.key)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct AttemptReport {
    /// The attempt at the end of the run.
    pub state: AttemptState,
    pub duration: Millis,
    /// Counts of calls by tool.
    pub tools: BTreeMap<String, ToolCallCounts>,
    /// The first calls that failed or were denied.
    pub failed_calls: Vec<FailedCallReport>,
    /// The worker that ran it, and its account; `None` for the machine of the engine.
    pub worker: Option<(String, Option<Arc<str>>)>,
}

impl AttemptReport {
    /// Its decisions and other output besides the files.
    pub fn output(&self) -> Option<&AttemptOutput> {
        self.state.delivery.output.as_deref()
    }

    pub fn actions(&self) -> &[MemoryAction] {
        self.output()
            .map(|output| output.actions.as_slice())
            .unwrap_or_default()
    }

    /// Path of its tool transcript.
    pub fn transcript(&self) -> Option<&str> {
        self.output()?.transcript.as_deref()
    }

    /// Skills that were offered to it, if they are recorded.
    pub fn skills(&self) -> &[String] {
        self.state
            .setup
            .content
            .as_ref()
            .map(|content| content.skills.as_slice())
            .unwrap_or_default()
    }
}

/// Counts of the calls of one tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolCallCounts {
    pub total: u32,
    pub failed: u32,
    /// Declined by their tool, which is not a failure.
    pub declined: u32,
    /// Calls without a result, because their attempt was ended or the tape ends.
    pub aborted: u32,
}

impl ToolCallCounts {
    fn add(&mut self, other: Self) {
        let Self {
            total: made,
            failed,
            declined,
            aborted: cut,
        } = other;
        let sums = [(&mut self.total, made), (&mut self.failed, failed)];
        let rest = [(&mut self.declined, declined), (&mut self.aborted, cut)];
        sums.into_iter()
            .chain(rest)
            .for_each(|(sum, more)| *sum = sum.saturating_add(more));
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCallReport {
    /// Time of its end.
    pub at: Millis,
    /// Id of the call in the stream.
    pub id: String,
    /// Tool name without the prefix of its server.
    pub tool: String,
    pub error: String,
}

/// Collects the details that the state does not contain.
#[derive(Debug, Default)]
pub struct ReportBuilder {
    /// Results of prior runs, if the run is part of a project whose index is available.
    prior: Option<PriorFileResults>,
    attempts: HashMap<UnitKey, HashMap<u32, AttemptCalls>>,
    limits: Vec<LimitWait>,
    limit_count: usize,
    /// Accounts of all workers so far, by name.
    accounts: HashMap<String, Arc<str>>,
}

#[derive(Debug, Default)]
struct AttemptCalls {
    tools: BTreeMap<String, ToolCallCounts>,
    failed: Vec<FailedCallReport>,
    /// Tools of calls without a result, by call id.
    open: HashMap<String, String>,
}

impl AttemptCalls {
    fn calls(&mut self, tool: &str) -> &mut ToolCallCounts {
        self.tools.entry(tool.to_owned()).or_default()
    }

    /// Handles the end of an attempt: open calls get no result.
    fn close(&mut self) {
        for tool in std::mem::take(&mut self.open).into_values() {
            self.calls(&tool).aborted += 1;
        }
    }
}

impl ReportBuilder {
    /// Compares the raw files with the results of prior runs.
    pub fn with_prior_results(self, prior: Option<PriorFileResults>) -> Self {
        Self { prior, ..self }
    }

    /// Processes an effect of an entry.
    pub fn observe(&mut self, emitted: &SinkEvent<'_>) {
        match emitted {
            SinkEvent::Run {
                at,
                change: RunEvent::Paused { until, limit },
            } => {
                self.limit_count += 1;
                if self.limits.len() < MAX_LIMITS {
                    self.limits.push(LimitWait {
                        at: *at,
                        limit: (*limit).to_owned(),
                        until: *until,
                    });
                }
            }
            SinkEvent::Note {
                note: Note::WorkerJoined(joined),
                ..
            } if !joined.account.is_empty() => {
                let account = joined.account.as_str().into();
                self.accounts.insert(joined.worker.clone(), account);
            }
            _ => {}
        }
        let SinkEvent::Agent {
            at,
            unit,
            attempt,
            event: AgentEvent::Action(event),
            outcome_detail,
            ..
        } = emitted
        else {
            return;
        };
        let ActionDetail::Tool(detail) = &event.action.detail else {
            return;
        };
        let tool = bare_name(detail.tool_name.as_deref().unwrap_or("?"));
        let (id, gathered) = (event.action.id.as_ref(), self.attempt_calls(unit, *attempt));
        if event.phase == ActionPhase::Started {
            gathered.calls(tool).total += 1;
            gathered.open.insert(id.to_owned(), tool.to_owned());
        }
        if event.phase != ActionPhase::Completed {
            return;
        }
        gathered.open.remove(id);
        match (outcome_detail, event.ok) {
            (Some(OutcomeDetail::Aborted | OutcomeDetail::BudgetExhausted), _) => {
                gathered.calls(tool).aborted += 1
            }
            (Some(OutcomeDetail::Declined), _) => gathered.calls(tool).declined += 1,
            (None, Some(false)) => {
                gathered.calls(tool).failed += 1;
                if gathered.failed.len() < NAMED_FAILURES {
                    let content = detail.result.as_ref().and_then(|result| result.content);
                    let error = content
                        .map(content_text)
                        .or_else(|| event.message.clone())
                        .unwrap_or_default();
                    let error = whole_words(strip_error_tags(&error), MAX_ERROR_CHARS).into_owned();
                    let (id, tool) = (id.to_owned(), tool.to_owned());
                    gathered.failed.push(FailedCallReport {
                        at: *at,
                        id,
                        tool,
                        error,
                    });
                }
            }
            (Some(OutcomeDetail::Background) | None, _) => {}
        }
    }

    /// Builds the report after the last entry. `live` is true while the run is active.
    pub fn finish(mut self, origin: &SourceInfo, view: &RunView, live: bool) -> RunReport {
        let state = &view.state;
        let rejected: Arc<[String]> = state
            .publication
            .rejected_paths()
            .map(str::to_owned)
            .collect();
        let units: Vec<UnitReport> = state
            .units
            .iter()
            .map(|unit| self.unit(view, unit, live, &rejected))
            .collect();
        let list = artifacts::run_artifacts(state);
        let coverage = coverage::coverage(state, &list, self.prior.as_ref());
        RunReport {
            origin: origin.clone(),
            is_empty: state.entries == 0,
            outcome: RunOutcome::from_state(state, live),
            duration: state.last_entry_at,
            planned: state.planned.clone(),
            failure_groups: failure_groups::failure_groups(state),
            totals: totals(&units),
            units,
            log: self.log(view),
            inputs: RunInputs {
                projected: artifacts::accepted_projections(state),
                ..state.inputs.clone()
            },
            publication: state.publication.clone(),
            shared_files: shared_files::find_shared_files(state),
            artifacts: ArtifactsReport { list, coverage },
            lost: state.loss_counts,
            reconcile_unit: None,
        }
    }

    fn attempt_calls(&mut self, unit: &str, attempt: u32) -> &mut AttemptCalls {
        if !self.attempts.contains_key(unit) {
            self.attempts.insert(UnitKey::from(unit), HashMap::new());
        }
        let attempts = self.attempts.entry(UnitKey::from(unit)).or_default();
        attempts.entry(attempt).or_default()
    }

    fn unit(
        &mut self,
        view: &RunView,
        unit: &state::UnitState,
        live: bool,
        rejected_paths: &Arc<[String]>,
    ) -> UnitReport {
        let now = view.state.last_entry_at;
        let state = &view.state;
        let verdict = state.verdict(unit);
        let reason = match (verdict, unit.status) {
            (Some(verdict), _) => Some(verdict.reason.clone()),
            (None, UnitStatus::Interrupted) => Some(state.failure_reason(unit).into_owned()),
            (None, UnitStatus::Stopped) => Some("stopped before it began".to_owned()),
            (None, UnitStatus::Reused) => reused(view, unit),
            (None, _) => None,
        };
        let mut gathered = self.attempts.remove(&unit.key).unwrap_or_default();
        let attempts = unit.attempts.iter().map(|attempt| {
            let mut gathered = gathered.remove(&attempt.number).unwrap_or_default();
            if !live || attempt.verdict.is_some() {
                gathered.close();
            }
            let worker = attempt.setup.worker.and_then(|it| state.workers.name(it));
            AttemptReport {
                state: attempt.clone(),
                duration: attempt_duration(unit, attempt, now),
                tools: gathered.tools,
                failed_calls: gathered.failed,
                worker: worker.map(|name| (name.to_owned(), self.accounts.get(name).cloned())),
            }
        });
        UnitReport {
            key: unit.key.clone(),
            planned: unit.planned.clone(),
            status: unit.status,
            reason,
            remedy: verdict.and_then(|verdict| verdict.remedy.clone()),
            cause: verdict.map(|verdict| verdict.cause.label().to_owned()),
            attempts: attempts.collect(),
            spending: UnitSpending::new(unit, now),
            is_unsaved: state.is_unsaved(unit),
            rejected_paths: Arc::clone(rejected_paths),
            prior_work: match unit.status {
                UnitStatus::Reused => state.work(unit).cloned().map(Box::new),
                _ => None,
            },
            integration: match unit.latest() {
                Some(attempt) => attempt.delivery.integration,
                None => state
                    .publication
                    .prior_patches
                    .get(&unit.key)
                    .map(|taken| taken.result),
            },
            warnings: warnings_and_errors(view, Some(&unit.key))
                .take(MAX_UNIT_WARNINGS)
                .collect(),
        }
    }

    fn log(&mut self, view: &RunView) -> RunLog {
        let mut all = warnings_and_errors(view, None);
        let messages: Vec<_> = all.by_ref().take(MAX_MESSAGES).collect();
        RunLog {
            messages,
            more_messages: all.count(),
            limits: std::mem::take(&mut self.limits),
            limit_count: self.limit_count,
        }
    }
}

/// Describes which prior run produced the result of a unit that this run reused.
fn reused(view: &RunView, unit: &state::UnitState) -> Option<String> {
    let earlier = view.state.prior_unit_summary(&unit.key)?;
    let reused = earlier.reused.as_ref()?;
    let budget = if reused.is_budget_exhausted {
        ", budget exhausted"
    } else {
        ""
    };
    Some(format!(
        "succeeded in run {} (attempt {}{budget}); its inputs have not changed",
        earlier.run.short(),
        reused.attempt
    ))
}

fn totals(units: &[UnitReport]) -> ReportTotals {
    let mut totals = ReportTotals::default();
    for unit in units {
        match totals
            .statuses
            .iter_mut()
            .find(|(status, _)| *status == unit.status)
        {
            Some((_, count)) => *count += 1,
            None => totals.statuses.push((unit.status, 1)),
        }
        totals.nothing_written += usize::from(unit.has_written_nothing());
        totals.is_cost_partial |= unit.spending.partial;
        totals.retries += unit.attempts.len().saturating_sub(1);
        totals.attempts += unit.attempts.len();
        for attempt in &unit.attempts {
            totals.tokens = totals.tokens.plus(attempt.state.counts.tokens);
            totals.turns += u64::from(attempt.state.counts.turns);
            totals.calls += u64::from(attempt.state.counts.calls);
            totals.failures += u64::from(attempt.state.counts.failures);
            totals.denials += u64::from(attempt.state.counts.denials);
        }
    }
    let costs = units
        .iter()
        .flat_map(|unit| &unit.attempts)
        .filter_map(|attempt| attempt.state.counts.cost_usd);
    totals.shown_cost = CostFigure::of(
        units
            .iter()
            .flat_map(|unit| &unit.attempts)
            .map(|attempt| &attempt.state),
    );
    totals.cost = if totals.attempts == 0 {
        totals.shown_cost.usd = Some(0.0);
        Some(0.0)
    } else {
        sum_costs(costs)
    };
    totals
}

/// Those of a unit, or of the run itself.
fn warnings_and_errors<'a>(
    view: &'a RunView,
    unit: Option<&'a UnitKey>,
) -> impl Iterator<Item = (Millis, String)> + 'a {
    let is_wanted = move |message: &&LogMessage| {
        message.unit.as_ref() == unit && message.level >= Severity::Warning
    };
    let all = view.messages().iter().filter(is_wanted);
    all.map(|message| (message.at, message.text.clone()))
}

impl UnitReport {
    /// The output of a successful unit besides its changes.
    pub fn work(&self) -> Option<&AttemptOutput> {
        match (&self.prior_work, self.latest()) {
            (Some(work), _) => Some(work),
            (None, Some(attempt)) if self.is_successful() => attempt.output(),
            (None, _) => None,
        }
    }

    /// True if it succeeded and neither changed nor decided anything.
    pub fn has_written_nothing(&self) -> bool {
        self.status == UnitStatus::Succeeded && self.work().is_some_and(|work| work.nothing_written)
    }

    /// The raw files of a successful unit that could not be mapped.
    pub fn unmapped(&self) -> &[UnmappedFile] {
        self.work()
            .map(|work| work.unmapped.as_slice())
            .unwrap_or_default()
    }

    /// The decisions of a successful unit, flagged conflicts first.
    pub fn decisions(&self) -> Vec<RecordedDecision> {
        self.work().map(recorded_decisions).unwrap_or_default()
    }

    pub fn latest(&self) -> Option<&AttemptReport> {
        self.attempts.last()
    }

    /// True if the unit succeeded, so that its work counts.
    pub fn is_successful(&self) -> bool {
        matches!(
            self.status,
            UnitStatus::Succeeded | UnitStatus::BudgetExhausted | UnitStatus::Reused
        )
    }

    /// The connection, if the plan names one.
    pub fn connection(&self) -> Option<&str> {
        self.planned
            .as_ref()
            .map(|planned| planned.connection.as_str())
            .filter(|connection| !connection.is_empty())
    }

    /// The adapter, if the plan names one.
    pub fn adapter(&self) -> Option<&str> {
        self.planned
            .as_ref()
            .map(|planned| planned.adapter.as_str())
            .filter(|adapter| !adapter.is_empty())
    }

    /// Its changes in the project, even if the project already contained the same content.
    pub fn changes(&self) -> Vec<MemoryAction> {
        let left_none = self
            .latest()
            .and_then(|attempt| attempt.state.delivery.patch.as_ref())
            .is_some_and(|patch| patch.path.is_none());
        if left_none || self.integration == Some(PatchResult::Noop) {
            Vec::new()
        } else {
            self.actions()
        }
    }

    /// The changes of the unit that this run put into the project. A tape of an older program contains only their
    /// paths.
    pub fn actions(&self) -> Vec<MemoryAction> {
        if self.is_unsaved {
            return Vec::new();
        }
        artifacts::changes_except(self.written(), &self.rejected_paths)
    }

    /// The changes before a review.
    fn written(&self) -> Vec<MemoryAction> {
        if let Some(work) = &self.prior_work {
            return work.actions.clone();
        }
        let good = self
            .latest()
            .filter(|_| self.is_successful() && self.status != UnitStatus::Reused);
        let known = good
            .map(|attempt| attempt.actions().to_vec())
            .unwrap_or_default();
        if !known.is_empty() {
            return known;
        }
        good.into_iter()
            .flat_map(|attempt| &attempt.state.delivery.published)
            .filter_map(|path| artifacts::action_at(path))
            .collect()
    }
}

/// The whole words among the first `most` characters of `text`, and the number of characters after them.
fn whole_words(text: &str, most: usize) -> Cow<'_, str> {
    let Some((end, _)) = text.char_indices().nth(most) else {
        return text.into();
    };
    let (head, rest) = text.split_at(end);
    let head = match head.rfind(char::is_whitespace) {
        _ if rest.starts_with(char::is_whitespace) => head,
        Some(space) => head.get(..space).unwrap_or_default(),
        None => "",
    };
    format!(
        "{head} … ({} more characters)",
        text[head.len()..].chars().count()
    )
    .into()
}

impl RunReport {
    /// The id of the plan's job, if there is one.
    pub fn job(&self) -> Option<&str> {
        self.planned
            .as_ref()
            .map(|planned| planned.job.as_str())
            .filter(|job| !job.is_empty())
    }

    /// KTX's sync id, if there is a job: the start time in UTC and the job id.
    pub fn sync_id(&self) -> Option<String> {
        let date = self
            .origin
            .started_at?
            .to_zoned(TimeZone::UTC)
            .strftime("%Y-%m-%d-%H%M%S")
            .to_string();
        Some(format!("{date}-{}", self.job()?))
    }

    /// Converts a time of the run to wall-clock time.
    pub fn wall_clock(&self, at: Millis) -> Option<Timestamp> {
        at.to_timestamp(self.origin.started_at?)
            .filter(|_| self.origin.has_times)
    }

    /// The reconcile step, if it ran. No plan names this unit.
    pub fn reconcile_unit(&self) -> Option<&UnitReport> {
        let is_pass =
            |unit: &&UnitReport| unit.planned.is_none() && unit.key.as_str() == RECONCILE_KEY;
        self.units
            .iter()
            .chain(&self.reconcile_unit)
            .find(is_pass)
            .filter(|_| self.planned.is_some())
    }

    /// Returns the source of a connection and an adapter as the run read it.
    pub fn source(&self, connection: Option<&str>, adapter: Option<&str>) -> Option<&SourceRead> {
        let is_of = |read: &&Arc<SourceRead>| {
            Some(read.connection.as_str()) == connection && Some(read.adapter.as_str()) == adapter
        };
        self.inputs
            .sources
            .iter()
            .rev()
            .find(is_of)
            .map(Arc::as_ref)
    }

    /// Counts of the calls of each tool, over all attempts.
    pub fn tools(&self) -> BTreeMap<&str, ToolCallCounts> {
        let mut tools: BTreeMap<&str, ToolCallCounts> = BTreeMap::new();
        for (tool, calls) in self
            .units
            .iter()
            .flat_map(|unit| &unit.attempts)
            .flat_map(|attempt| &attempt.tools)
        {
            tools.entry(tool).or_default().add(*calls);
        }
        tools
    }

    /// True if a script played the model in any attempt.
    pub fn is_scripted(&self) -> bool {
        self.units
            .iter()
            .flat_map(|unit| &unit.attempts)
            .any(|attempt| attempt.state.setup.is_scripted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_errors_end_with_a_whole_word() {
        let cases = [
            ("ab cd", 5, "ab cd"),
            ("ab cd", 4, "ab … (3 more characters)"),
            ("ab cd", 2, "ab … (3 more characters)"),
            ("abcd", 3, " … (4 more characters)"),
            ("é\té é", 3, "é\té … (2 more characters)"),
        ];
        for (text, most, expected) in cases {
            assert_eq!(whole_words(text, most), expected, "{text}, {most}");
        }
    }
}
