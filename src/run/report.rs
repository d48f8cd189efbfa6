//! The data of reports and of comparisons of runs. Pure.
//!
//! It is collected in one pass over the entries and must not depend on output formats. `connection` contains the part
//! that selects one connection.

mod connection;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use jiff::{Timestamp, tz::TimeZone};

use super::{
    OutcomeDetail, SinkEvent, SourceInfo,
    event::{ActionDetail, ActionPhase, AgentEvent},
    failure_groups::{self, FailureGroup},
    outcome::RunOutcome,
    recorded_decisions::{RecordedDecision, recorded_decisions},
    shared_files::{self, SharedFile},
    spending::{UnitSpending, attempt_duration},
    state::{self, LossCounts, RECONCILE_KEY, RunView, TokenCounts, UnitStatus},
};
use crate::{
    actions::label::strip_error_tags,
    decode::content_text,
    tape::{
        Header, Millis, UnitKey,
        note::{
            AttemptOutput, PatchResult, PatchWritten, PlannedUnit, RunPlanned, RunSaved, Severity, SlRefRepair,
            SourceRead, SourcesProjected, Verdict,
            attempt_output::{MemoryAction, UnmappedFile},
        },
    },
    units::failure_tally::bare_name,
};

/// Maximum number of failed calls per attempt that are kept with their errors. All are counted.
const NAMED_FAILURES: usize = 40;

/// Maximum length of such an error in characters.
const MAX_ERROR_CHARS: usize = 600;

/// Maximum number of messages that are kept.
const MAX_MESSAGES: usize = 200;

/// The data of a report about one run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunReport {
    /// Run id, or the name of a capture.
    pub name: String,
    /// Name of the source's format.
    pub format: &'static str,
    pub header: Option<Header>,
    /// Wall-clock time of its beginning.
    pub started_at: Option<Timestamp>,
    /// False if the source has no times.
    pub has_times: bool,
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
    /// Warnings and errors of the run itself, and the number of those beyond the limit.
    pub messages: (Vec<(Millis, String)>, usize),
    /// Its sources as they were when the run read them.
    pub sources: Vec<Arc<SourceRead>>,
    /// Semantic-layer sources that were projected before any unit ran.
    pub projected: Vec<Arc<SourcesProjected>>,
    /// The commit that contains the integrated changes.
    pub saved: Option<Arc<RunSaved>>,
    /// Why the integrated changes are not on the branch.
    pub save_error: Option<Arc<str>>,
    /// References to removed sources that were deleted from pages.
    pub sl_ref_repairs: Vec<Arc<SlRefRepair>>,
    pub shared_files: Vec<SharedFile>,
    /// Entries and lines that could not be read.
    pub lost: LossCounts,
    /// The reconcile step, in a report that is limited to the units of one connection.
    reconcile_unit: Option<UnitReport>,
}

/// Sums over all attempts of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ReportTotals {
    /// Number of units in each status, in order of first appearance.
    pub statuses: Vec<(UnitStatus, usize)>,
    /// In US dollars, over the attempts that reported a cost.
    pub cost: Option<f64>,
    /// True if some attempt did not report its cost.
    pub is_cost_partial: bool,
    pub tokens: TokenCounts,
    pub attempts: usize,
    pub retries: usize,
    pub turns: u64,
    pub calls: u64,
    pub failures: u64,
    pub denials: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UnitReport {
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
    /// Output of a prior run whose patch this run puts on the branch.
    pub prior_work: Option<Box<AttemptOutput>>,
    /// Result of integrating its patch, whichever run left the patch.
    pub integration: Option<PatchResult>,
}

impl UnitReport {
    /// KTX's key, which is unique in the connection.
    pub(crate) fn ktx_key(&self) -> &UnitKey {
        self.planned.as_ref().and_then(|planned| planned.ktx_key.as_ref()).unwrap_or(&self.key)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AttemptReport {
    pub number: u32,
    /// Time since the beginning of the run.
    pub started: Millis,
    pub duration: Millis,
    /// Its verdict; `None` while it runs, or where the tape ends before the verdict.
    pub verdict: Option<Verdict>,
    pub session: Option<Arc<str>>,
    /// Model that answered, else the requested model.
    pub model: Option<Arc<str>>,
    /// How a person changed this attempt compared to the plan.
    pub amendment: Option<String>,
    /// True if a script plays the model.
    pub scripted: bool,
    /// Skills that were offered to it, if they are recorded.
    pub skills: Vec<String>,
    /// Maximum number of turns.
    pub step_budget: Option<u32>,
    pub turns: u32,
    pub calls: u32,
    pub failures: u32,
    pub denials: u32,
    /// Calls that their tool declined, which are not failures.
    pub declined: u32,
    pub cost: Option<f64>,
    pub tokens: TokenCounts,
    /// Counts of calls by tool.
    pub tools: BTreeMap<String, ToolCallCounts>,
    /// The first calls that failed or were denied.
    pub failed_calls: Vec<FailedCallReport>,
    /// Files that it published to the project.
    pub published: Vec<String>,
    pub actions: Vec<MemoryAction>,
    /// Its decisions and other output besides the changes.
    pub work: Option<Arc<AttemptOutput>>,
    /// Path of its tool transcript.
    pub transcript: Option<String>,
    /// Number of failed calls without a later success, if they were counted.
    pub fatal_failures: Option<u32>,
    pub patch: Option<Arc<PatchWritten>>,
    /// Result of integrating the patch.
    pub integration: Option<PatchResult>,
    /// True while its patch is not in the project.
    pub is_unsaved: bool,
}

/// Counts of the calls of one tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ToolCallCounts {
    pub total: u32,
    pub failed: u32,
    /// Declined by their tool, which is not a failure.
    pub declined: u32,
    /// Calls without a result, because their attempt was ended or the tape ends.
    pub aborted: u32,
}

impl ToolCallCounts {
    fn add(&mut self, other: Self) {
        let Self { total: made, failed, declined, aborted: cut } = other;
        let sums = [(&mut self.total, made), (&mut self.failed, failed)];
        let rest = [(&mut self.declined, declined), (&mut self.aborted, cut)];
        sums.into_iter().chain(rest).for_each(|(sum, more)| *sum = sum.saturating_add(more));
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedCallReport {
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
pub(crate) struct ReportBuilder {
    attempts: HashMap<UnitKey, HashMap<u32, AttemptCalls>>,
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
    /// Processes an effect of an entry.
    pub(crate) fn observe(&mut self, emitted: &SinkEvent<'_>) {
        let SinkEvent::Agent { at, unit, attempt, event: AgentEvent::Action(event), outcome_detail, .. } = emitted
        else {
            return;
        };
        let ActionDetail::Tool(detail) = &event.action.detail else { return };
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
            (Some(OutcomeDetail::Aborted | OutcomeDetail::BudgetExhausted), _) => gathered.calls(tool).aborted += 1,
            (Some(OutcomeDetail::Declined), _) => gathered.calls(tool).declined += 1,
            (None, Some(false)) => {
                gathered.calls(tool).failed += 1;
                if gathered.failed.len() < NAMED_FAILURES {
                    let content = detail.result.as_ref().and_then(|result| result.content);
                    let error = content.map(content_text).or_else(|| event.message.clone()).unwrap_or_default();
                    let error = strip_error_tags(&error).chars().take(MAX_ERROR_CHARS).collect();
                    let (id, tool) = (id.to_owned(), tool.to_owned());
                    gathered.failed.push(FailedCallReport { at: *at, id, tool, error });
                }
            }
            (None, _) => {}
        }
    }

    /// Builds the report after the last entry. `live` is true while the run is active.
    pub(crate) fn finish(mut self, origin: &SourceInfo, view: &RunView, live: bool) -> RunReport {
        let state = &view.state;
        let units: Vec<UnitReport> = state.units.iter().map(|unit| self.unit(view, unit, live)).collect();
        RunReport {
            name: origin.name.clone(),
            format: origin.format,
            header: origin.header.clone(),
            started_at: origin.started_at,
            has_times: origin.has_times,
            is_empty: state.entries == 0,
            outcome: RunOutcome::from_state(state, live),
            duration: state.last_entry_at,
            planned: state.planned.clone(),
            failure_groups: failure_groups::failure_groups(state),
            totals: totals(&units),
            units,
            messages: warnings_and_errors(view),
            sources: state.sources.clone(),
            projected: state.projected.clone(),
            saved: state.saved.clone(),
            save_error: state.save_error.clone(),
            sl_ref_repairs: state.sl_ref_repairs.clone(),
            shared_files: shared_files::find_shared_files(state),
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

    fn unit(&mut self, view: &RunView, unit: &state::UnitState, live: bool) -> UnitReport {
        let now = view.state.last_entry_at;
        let state = &view.state;
        let verdict = state.verdict(unit);
        let reason = match (verdict, unit.status) {
            (Some(verdict), _) => Some(verdict.reason.clone()),
            (None, UnitStatus::Interrupted) => Some(failure_groups::representative_error(state, unit).into_owned()),
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
            attempt_report(unit, attempt, gathered, now)
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
            prior_work: match unit.status {
                UnitStatus::Reused => state.work(unit).cloned().map(Box::new),
                _ => None,
            },
            integration: match unit.latest() {
                Some(attempt) => attempt.integration,
                None => state.prior_patches.get(&unit.key).map(|taken| taken.result),
            },
        }
    }
}

/// Describes which prior run produced the result of a unit that this run reused.
fn reused(view: &RunView, unit: &state::UnitState) -> Option<String> {
    let earlier = view.state.prior_unit_summary(&unit.key)?;
    let reused = earlier.reused.as_ref()?;
    let budget = if reused.is_budget_exhausted { ", budget exhausted" } else { "" };
    Some(format!(
        "succeeded in run {} (attempt {}{budget}); its inputs have not changed",
        earlier.run.short(),
        reused.attempt
    ))
}

fn attempt_report(
    unit: &state::UnitState,
    attempt: &state::AttemptState,
    gathered: AttemptCalls,
    now: Millis,
) -> AttemptReport {
    let work = attempt.output.clone();
    let (transcript, fatal_failures) =
        work.as_ref().map(|work| (work.transcript.clone(), work.fatal_failures)).unwrap_or_default();
    AttemptReport {
        number: attempt.number,
        started: attempt.started_at,
        duration: attempt_duration(unit, attempt, now),
        verdict: attempt.verdict.clone(),
        session: attempt.session.clone(),
        model: attempt.model.clone().or_else(|| attempt.requested_model.clone()),
        amendment: attempt.amendment.as_ref().map(ToString::to_string),
        scripted: attempt.is_scripted,
        skills: attempt.content.as_ref().map(|content| content.skills.clone()).unwrap_or_default(),
        step_budget: attempt.step_budget,
        turns: attempt.turns,
        calls: attempt.calls,
        failures: attempt.failures,
        denials: attempt.denials,
        declined: attempt.declined,
        cost: attempt.cost_usd,
        tokens: attempt.tokens,
        tools: gathered.tools,
        failed_calls: gathered.failed,
        published: attempt.published.clone(),
        actions: work.as_ref().map(|work| work.actions.clone()).unwrap_or_default(),
        work,
        transcript,
        fatal_failures,
        patch: attempt.patch.clone(),
        integration: attempt.integration,
        is_unsaved: attempt.is_unsaved(),
    }
}

fn totals(units: &[UnitReport]) -> ReportTotals {
    let mut totals = ReportTotals::default();
    for unit in units {
        match totals.statuses.iter_mut().find(|(status, _)| *status == unit.status) {
            Some((_, count)) => *count += 1,
            None => totals.statuses.push((unit.status, 1)),
        }
        totals.is_cost_partial |= unit.spending.partial;
        totals.retries += unit.attempts.len().saturating_sub(1);
        totals.attempts += unit.attempts.len();
        for attempt in &unit.attempts {
            if let Some(cost) = attempt.cost {
                totals.cost = Some(totals.cost.unwrap_or_default() + cost);
            }
            totals.tokens = totals.tokens.plus(attempt.tokens);
            totals.turns += u64::from(attempt.turns);
            totals.calls += u64::from(attempt.calls);
            totals.failures += u64::from(attempt.failures);
            totals.denials += u64::from(attempt.denials);
        }
    }
    totals
}

fn warnings_and_errors(view: &RunView) -> (Vec<(Millis, String)>, usize) {
    let of_run = view.messages().iter().filter(|message| message.unit.is_none() && message.level >= Severity::Warning);
    let mut all = of_run.map(|message| (message.at, message.text.clone()));
    let first: Vec<_> = all.by_ref().take(MAX_MESSAGES).collect();
    (first, all.count())
}

impl UnitReport {
    /// The output of a successful unit besides its changes.
    pub(crate) fn work(&self) -> Option<&AttemptOutput> {
        match (&self.prior_work, self.latest()) {
            (Some(work), _) => Some(work),
            (None, Some(attempt)) if self.is_successful() => attempt.work.as_deref(),
            (None, _) => None,
        }
    }

    /// The raw files of a successful unit that could not be mapped.
    pub(crate) fn unmapped(&self) -> &[UnmappedFile] {
        self.work().map(|work| work.unmapped.as_slice()).unwrap_or_default()
    }

    /// The decisions of a successful unit, flagged conflicts first.
    pub(crate) fn decisions(&self) -> Vec<RecordedDecision> {
        self.work().map(recorded_decisions).unwrap_or_default()
    }

    pub(crate) fn latest(&self) -> Option<&AttemptReport> {
        self.attempts.last()
    }

    /// True if the unit succeeded, so that its work counts.
    pub(crate) fn is_successful(&self) -> bool {
        matches!(self.status, UnitStatus::Succeeded | UnitStatus::BudgetExhausted | UnitStatus::Reused)
    }

    /// The connection, if the plan names one.
    pub(crate) fn connection(&self) -> Option<&str> {
        self.planned.as_ref().map(|planned| planned.connection.as_str()).filter(|connection| !connection.is_empty())
    }

    /// The adapter, if the plan names one.
    pub(crate) fn adapter(&self) -> Option<&str> {
        self.planned.as_ref().map(|planned| planned.adapter.as_str()).filter(|adapter| !adapter.is_empty())
    }

    /// Its changes in the project, even if the project already contained the same content.
    pub(crate) fn changes(&self) -> Vec<MemoryAction> {
        let left_none =
            self.latest().and_then(|attempt| attempt.patch.as_ref()).is_some_and(|patch| patch.path.is_none());
        if left_none || self.integration == Some(PatchResult::Noop) { Vec::new() } else { self.actions() }
    }

    /// The changes of the unit that this run put into the project. A tape of an older program contains only their
    /// paths.
    pub(crate) fn actions(&self) -> Vec<MemoryAction> {
        if self.is_unsaved {
            return Vec::new();
        }
        if let Some(work) = &self.prior_work {
            return work.actions.clone();
        }
        let good = self.latest().filter(|_| self.is_successful() && self.status != UnitStatus::Reused);
        let known = good.map(|attempt| attempt.actions.clone()).unwrap_or_default();
        if !known.is_empty() {
            return known;
        }
        good.into_iter().flat_map(|attempt| &attempt.published).filter_map(|path| action_at(path)).collect()
    }
}

/// Returns the page or source at a path. The path does not show whether it is new.
fn action_at(path: &str) -> Option<MemoryAction> {
    use crate::tape::note::attempt_output::{ArtifactChange, ArtifactTarget};
    let (target, key, connection) = if let Some(page) = path.strip_prefix("wiki/global/") {
        (ArtifactTarget::Wiki, page.strip_suffix(".md")?, None)
    } else {
        let (connection, file) = path.strip_prefix("semantic-layer/")?.split_once('/')?;
        (
            ArtifactTarget::SemanticLayer,
            file.strip_suffix(".yaml").or_else(|| file.strip_suffix(".yml"))?,
            Some(connection.to_owned()),
        )
    };
    Some(MemoryAction {
        target,
        change: ArtifactChange::Updated,
        key: key.to_owned(),
        detail: String::new(),
        target_connection_id: connection,
        raw_paths: None,
    })
}

impl RunReport {
    /// The id of the plan's job, if there is one.
    pub(crate) fn job(&self) -> Option<&str> {
        self.planned.as_ref().map(|planned| planned.job.as_str()).filter(|job| !job.is_empty())
    }

    /// KTX's sync id, if there is a job: the start time in UTC and the job id.
    pub(crate) fn sync_id(&self) -> Option<String> {
        let date = self.started_at?.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d-%H%M%S").to_string();
        Some(format!("{date}-{}", self.job()?))
    }

    /// Converts a time of the run to wall-clock time.
    pub(crate) fn wall_clock(&self, at: Millis) -> Option<Timestamp> {
        at.to_timestamp(self.started_at?).filter(|_| self.has_times)
    }

    /// The reconcile step, if it ran. No plan names this unit.
    pub(crate) fn reconcile_unit(&self) -> Option<&UnitReport> {
        let is_pass = |unit: &&UnitReport| unit.planned.is_none() && unit.key.as_str() == RECONCILE_KEY;
        self.units.iter().chain(&self.reconcile_unit).find(is_pass).filter(|_| self.planned.is_some())
    }

    /// Returns the source of a connection and an adapter as the run read it.
    pub(crate) fn source(&self, connection: Option<&str>, adapter: Option<&str>) -> Option<&SourceRead> {
        let is_of = |read: &&Arc<SourceRead>| {
            Some(read.connection.as_str()) == connection && Some(read.adapter.as_str()) == adapter
        };
        self.sources.iter().rev().find(is_of).map(Arc::as_ref)
    }

    /// Counts of the calls of each tool, over all attempts.
    pub(crate) fn tools(&self) -> BTreeMap<&str, ToolCallCounts> {
        let mut tools: BTreeMap<&str, ToolCallCounts> = BTreeMap::new();
        for (tool, calls) in self.units.iter().flat_map(|unit| &unit.attempts).flat_map(|attempt| &attempt.tools) {
            tools.entry(tool).or_default().add(*calls);
        }
        tools
    }

    /// True if a script played the model in any attempt.
    pub(crate) fn is_scripted(&self) -> bool {
        self.units.iter().flat_map(|unit| &unit.attempts).any(|attempt| attempt.scripted)
    }
}
