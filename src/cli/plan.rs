//! `plan`: shows which units would run, why, and a forecast of cost and time.

mod row_widths;

use std::{
    collections::{BTreeSet, HashSet},
    io::{self, Write as _},
};

use serde_json::{Value, json};

use self::row_widths::RowWidths;
use super::{
    args::{GlobalArgs, SelectArgs, Ui},
    exit::{self, CliError, Exit},
    model_choice::ModelChoice,
    output, playback_output, policy, project, runs, settings,
};
use ingestdeck_core::{
    diagnostic::{Diagnostic, Problem, to_lines},
    tape::{
        Millis, UnitKey,
        note::{PlannedUnit, attempt_output::UnreadFile},
    },
    text::{self, dollars, pluralize},
    units::forecast::{FinishedUnit, Forecast, QuantileEstimate, RemainingUnit, forecast},
};
use ingestdeck_engine::{prepare, reconcile_policy::ReconcilePolicy, resume::RunPlan};
use ingestdeck_ingest::{
    plan::{IngestPlan, SourcePlan, UnplannedConnection},
    project::ModelRole,
    projection::PendingProjection,
    reconcile::EvictionCandidate,
    source_diff::UnitChanges,
    truncated_index_warnings,
    work_unit::WorkUnit,
};
use ingestdeck_records::store::db::UnitEffort;

/// Maximum number of paths per connection in a table.
const MAX_NAMED: usize = 10;

/// Prints the plan.
///
/// # Errors
/// If there is no project, or if nothing in it matches the selection.
pub(crate) fn plan(global: &GlobalArgs, select: &SelectArgs) -> Result<Exit, CliError> {
    let project = project::open(global)?;
    let choice = ModelChoice::resolve(&project, ModelRole::CandidateExtraction, None);
    let taken = project::plan_run(global, &project, select, choice.model.as_deref())?;
    let is_json = global.ui == Ui::Json;
    exit::print_warnings(&if is_json {
        taken.planned.warnings.clone()
    } else {
        taken.planned.folded_warnings()
    });
    let turns = project.settings.work_units.step_budget;
    if taken.units_to_run().next().is_some() {
        exit::print_warnings(&all_unit_warnings(&taken, turns));
        exit::print_warnings(&truncated_index_warnings(&project));
    }
    if let Err(error) = project.check_backend() {
        exit::print_warning(&error);
    }
    if let Err(error) = policy::check_project_rules(&project.root) {
        exit::print_warning(&Problem::new(error.to_line()));
    }
    project::blocking_files_problems(&project)
        .iter()
        .for_each(exit::print_warning);
    runs::active_run_problem(global)
        .iter()
        .for_each(exit::print_warning);
    taken
        .unsaved_run
        .iter()
        .for_each(|left| exit::print_warning(&left.problem(global.project_dir.as_deref())));
    let repository_text = prepare::describe_repository(&project, Some(&taken.planned));
    if let Err(error) = &repository_text {
        exit::print_warning(error);
    }
    let slots = usize::try_from(project.settings.work_units.max_concurrency).unwrap_or(usize::MAX);
    let outlook = PlanForecast::new(&taken.efforts, slots);
    let pass = ReconcilePolicy::new(*settings::load(global)?.ingest.reconcile);
    let is_all = pass.justifies_a_run(&taken, select.is_everything());
    let unusable = unusable_plan_error(&taken).filter(|_| !is_all);
    let is_empty = taken.planned.units.is_empty() && !is_all;
    let nothing = (is_empty && unusable.is_none()).then(|| empty_plan_message(&taken));
    if let Some(nothing) = nothing.as_ref().filter(|_| is_json) {
        playback_output::print_stderr(&format!("ingestdeck: {nothing}"));
    }
    // The error contains these sentences already.
    let all_told = unusable.is_some() && has_no_sources(&taken.planned);
    let fine = skipped_reasons(&taken.planned, |skipped| !skipped.fault && !all_told);
    let fine = to_lines(fine);
    let after = PlanFooter {
        sentences: pass.messages(&taken),
        is_reconcile_only: is_all,
        empty_reason: nothing,
        skipped: fine,
    };
    let printed = match global.ui {
        Ui::Json => write_json(&taken, &choice, &outlook, turns),
        Ui::None => Ok(()),
        Ui::Auto | Ui::Tui | Ui::Lines => write_table(
            &taken,
            &choice,
            &outlook,
            &after,
            repository_text.ok().as_deref(),
        ),
    };
    printed.map_err(|error| playback_output::stdout_failed(&error))?;
    match unusable {
        Some(failure) => Err(failure),
        None => {
            connection_faults(&taken.planned)
                .into_iter()
                .for_each(exit::print_warning);
            Ok(Exit::Ok)
        }
    }
}

/// The message for an empty plan.
pub(crate) fn empty_plan_message(taken: &RunPlan) -> String {
    let planned = &taken.planned;
    if let Some(nothing) = &taken.empty_reason {
        return nothing.clone();
    }
    if let Some(continues) = taken
        .continues
        .as_ref()
        .filter(|_| !planned.units.is_empty())
    {
        let (units, run) = (
            pluralize(planned.units.len(), "unit"),
            continues.run.short(),
        );
        return format!("all {units} of run {run} are reused: there is nothing to run");
    }
    match unchanged_message(planned) {
        Some(why) => format!("nothing to do: {why}"),
        None => "there is nothing to run".into(),
    }
}

/// An error for a plan that is empty because a connection has a fault, or because no connection has units.
pub(crate) fn unusable_plan_error(taken: &RunPlan) -> Option<CliError> {
    let planned = &taken.planned;
    let whys = if has_no_sources(planned) {
        skipped_reasons(planned, |_| true)
    } else {
        connection_faults(planned)
    };
    let is_empty = planned.units.is_empty() && taken.continues.is_none() && !whys.is_empty();
    is_empty.then(|| match whys.as_slice() {
        [why] => CliError::from_error(Exit::Usage, *why).context("nothing is planned"),
        // Each problem has its own remedy.
        whys => {
            let lines: Vec<String> = whys.iter().map(|why| why.to_line()).collect();
            CliError::usage("nothing is planned").with_cause(lines.join("; "))
        }
    })
}

/// The faults of connections that a person should fix.
fn connection_faults(planned: &IngestPlan) -> Vec<&Problem> {
    skipped_reasons(planned, |skipped| skipped.fault)
}

fn skipped_reasons(
    planned: &IngestPlan,
    is_reported: impl Fn(&UnplannedConnection) -> bool,
) -> Vec<&Problem> {
    planned
        .skipped
        .iter()
        .chain(&planned.targets)
        .filter(|skipped| is_reported(skipped))
        .map(|skipped| &skipped.problem)
        .collect()
}

/// True if no connection can be split into units.
fn has_no_sources(planned: &IngestPlan) -> bool {
    planned.sources.is_empty()
}

/// The sentence about unchanged units, if there are any.
fn unchanged_message(planned: &IngestPlan) -> Option<String> {
    match planned
        .sources
        .iter()
        .map(|source| source.unchanged.count)
        .sum()
    {
        0 => None,
        1 => {
            Some("its one unit is unchanged since it last succeeded; --full plans it anyway".into())
        }
        count => Some(format!(
            "all {count} units are unchanged since they last succeeded; --full plans them anyway"
        )),
    }
}

/// Efforts of earlier units, by adapter.
struct PlanForecast {
    adapters: Vec<String>,
    finished: Vec<Vec<FinishedUnit>>,
    concurrency: usize,
}

/// Forecasts `rounds` times the units of `units` for people, from earlier units of the same adapters.
pub(super) fn forecast_rounds(
    efforts: &[UnitEffort],
    slots: u32,
    units: &[WorkUnit],
    rounds: usize,
) -> String {
    let slots = usize::try_from(slots).unwrap_or(usize::MAX);
    let forecast =
        PlanForecast::new(efforts, slots).for_units(std::iter::repeat_n(units, rounds).flatten());
    format!("{}{}", forecast_text(&forecast), unknown_reason(&forecast))
}

impl PlanForecast {
    fn new(efforts: &[UnitEffort], slots: usize) -> Self {
        let mut outlook = Self {
            adapters: Vec::new(),
            finished: Vec::new(),
            concurrency: slots,
        };
        for effort in efforts {
            let kind = outlook.adapter_index(&effort.adapter).unwrap_or_else(|| {
                outlook.adapters.push(effort.adapter.clone());
                outlook.finished.push(Vec::new());
                outlook.adapters.len() - 1
            });
            if let Some(finished) = outlook.finished.get_mut(kind) {
                finished.push(FinishedUnit {
                    cost: effort.cost_usd,
                    active_time: effort.worked,
                });
            }
        }
        outlook
    }

    fn adapter_index(&self, adapter: &str) -> Option<usize> {
        self.adapters.iter().position(|known| known == adapter)
    }

    /// An adapter without finished units has no history to estimate from.
    fn remaining(&self, unit: &WorkUnit) -> RemainingUnit {
        RemainingUnit {
            kind: self
                .adapter_index(&unit.planned.adapter)
                .unwrap_or(usize::MAX),
            running: None,
        }
    }

    /// The forecast of reused units: zero.
    fn for_reused() -> Forecast {
        let nothing = Millis(0);
        Forecast {
            cost: Some(QuantileEstimate { p50: 0.0, p90: 0.0 }),
            time: Some(QuantileEstimate {
                p50: nothing,
                p90: nothing,
            }),
            ..Forecast::default()
        }
    }

    fn for_unit(&self, unit: &WorkUnit) -> Forecast {
        forecast(&self.finished, &[self.remaining(unit)], 1)
    }

    fn for_units<'a>(&self, units: impl Iterator<Item = &'a WorkUnit>) -> Forecast {
        let left: Vec<RemainingUnit> = units.map(|unit| self.remaining(unit)).collect();
        forecast(&self.finished, &left, self.concurrency)
    }

    /// One forecast per adapter: its units are considered equal.
    fn by_adapter<'a>(&self, units: &'a [WorkUnit]) -> Vec<(&'a str, Forecast)> {
        let mut known: Vec<(&str, Forecast)> = Vec::new();
        for unit in units {
            let adapter = unit.planned.adapter.as_str();
            if !known.iter().any(|(name, _)| *name == adapter) {
                known.push((adapter, self.for_unit(unit)));
            }
        }
        known
    }
}

/// A warning if `unit` might need more than `turns`. It is only an estimate, because an agent may read several files in
/// a turn.
fn turn_warning(unit: &WorkUnit, turns: u32) -> Option<String> {
    let (planned, calls) = (&unit.planned, unit.min_read_calls());
    (calls > u64::from(turns)).then(|| {
        let (files, bytes) =
            (pluralize(planned.raw_files.len(), "file"), planned.bytes.map_or_else(|| "?".into(), text::size));
        format!(
            "unit {} might need more than {}: reading its {files} ({bytes}) takes {calls} calls; raise \
             ingest.workUnits.stepBudget in ktx.yaml",
            planned.unit,
            pluralize(turns as usize, "turn")
        )
    })
}

/// Bytes of English text or code for a token, roughly.
const BYTES_PER_TOKEN: u64 = 4;
/// Half of the smallest context of a current model, in tokens.
const LARGE_UNIT_TOKENS: u64 = 100_000;

/// A warning if the files of `unit` fill most of the context of a model.
fn size_warning(unit: &WorkUnit) -> Option<String> {
    let bytes = unit.planned.bytes?;
    let tokens = bytes / BYTES_PER_TOKEN;
    (tokens > LARGE_UNIT_TOKENS).then(|| {
        format!(
            "unit {} has {} of files, about {}k tokens, which fill most of the context of a model: the agent may lose what it \
             read first; add a connection with a deeper source_dir for each part of it",
            unit.planned.unit,
            text::size(bytes),
            tokens / 1_000
        )
    })
}

/// What may be wrong with the size of a unit.
fn unit_warnings(unit: &WorkUnit, turns: u32) -> impl Iterator<Item = String> {
    let turns = turn_warning(unit, turns);
    size_warning(unit).into_iter().chain(turns)
}

/// Warnings about the first units that are too large, and the number of the others.
fn all_unit_warnings(taken: &RunPlan, turns: u32) -> Vec<String> {
    let units = taken.units_to_run();
    let mut warnings: Vec<String> = units.flat_map(|unit| unit_warnings(unit, turns)).collect();
    let more = warnings.len().saturating_sub(MAX_NAMED);
    warnings.truncate(MAX_NAMED);
    if more > 0 {
        warnings.push(format!(
            "{} about the size of units",
            pluralize(more, "more warning")
        ));
    }
    warnings
}

/// Prints the plan as `--ui json`: an object per unit, written by hand because programs read it. `formats.md` documents
/// each field, and `tests/fixtures/formats/plan.jsonl` guards it.
fn write_json(
    taken: &RunPlan,
    choice: &ModelChoice,
    outlook: &PlanForecast,
    turns: u32,
) -> io::Result<()> {
    let mut out = output::stdout_for(Ui::Json);
    let planned = &taken.planned;
    let reused: HashSet<&UnitKey> = taken.reused_units().collect();
    let forecasts = outlook.by_adapter(&planned.units);
    for work_unit in &planned.units {
        let unit = &work_unit.planned;
        let is_reused = reused.contains(&unit.unit);
        let forecast = forecasts
            .iter()
            .find(|(adapter, _)| *adapter == unit.adapter)
            .map(|(_, forecast)| *forecast);
        let forecast = if is_reused {
            Some(PlanForecast::for_reused())
        } else {
            forecast
        };
        let mut object = json!({
            "unit": unit.unit, "connection": unit.connection, "adapter": unit.adapter, "rawFiles": unit.raw_files,
            "dependencyPaths": unit.dependency_paths, "why": unit.why, "model": choice.model, "bytes": unit.bytes,
            "forecast": forecast.as_ref().map(forecast_json),
        });
        let source = planned
            .sources
            .iter()
            .find(|source| source.connection == unit.connection);
        if let Some(outside) = source.and_then(|source| source.external_dir.as_ref()) {
            object["outsideProject"] = json!(outside.to_string_lossy());
        }
        if let Some(key) = &unit.ktx_key {
            object["unitKey"] = json!(key);
        }
        for (key, paths) in [
            ("changedFiles", &work_unit.changes.own),
            ("refersTo", &work_unit.changes.referred),
        ] {
            if !paths.is_empty() && !is_reused {
                object[key] = json!(paths);
            }
        }
        if !work_unit.changes.unread.is_empty() && !is_reused {
            let unread = work_unit
                .changes
                .unread
                .iter()
                .map(|file| json!({"path": file.path, "part": file.part}));
            object["unread"] = unread.collect();
        }
        if is_reused {
            object["reused"] = true.into();
        }
        if let Some(reason) = &unit.sl_disallowed {
            object["slDisallowedReason"] = json!(reason);
        }
        let warnings: Vec<String> = unit_warnings(work_unit, turns).collect();
        if !warnings.is_empty() && !is_reused {
            object["warnings"] = json!(warnings);
        }
        writeln!(out, "{object}")?;
    }
    for due in planned.pending_projections(|unit| reused.contains(unit)) {
        let names: Vec<&str> = due
            .sources
            .iter()
            .map(|source| source.name.as_str())
            .collect();
        let mut object = json!({
            "connection": due.connection, "adapter": due.adapter, "projected": names,
            "leftOut": due.skipped,
            "why": "written from semantic models before the units run",
        });
        if due.target != due.connection {
            object["target"] = json!(due.target);
        }
        writeln!(out, "{object}")?;
    }
    for source in planned
        .sources
        .iter()
        .filter(|source| !source.unread.is_empty())
    {
        let unread = source
            .unread
            .iter()
            .map(|(unit, file)| json!({"unit": unit, "path": file.path, "part": file.part}));
        let object = json!({
            "connection": source.connection, "adapter": source.adapter, "unread": unread.collect::<Vec<_>>(),
            "why": "left unread by units that succeeded",
        });
        writeln!(out, "{object}")?;
    }
    for source in planned
        .sources
        .iter()
        .filter(|source| !source.diff.deleted.is_empty())
    {
        let object = json!({
            "connection": source.connection, "adapter": source.adapter, "evicted": source.diff.deleted,
            "why": "gone from the source",
        });
        writeln!(out, "{object}")?;
    }
    Ok(())
}

/// P50 and P90; null without an estimate.
fn forecast_json(forecast: &Forecast) -> Value {
    json!({
        "costUsd": forecast.cost.map(|cost| json!({"p50": cost.p50, "p90": cost.p90})),
        "seconds": forecast.time.map(|time| json!({"p50": time.p50.0 / 1000, "p90": time.p90.0 / 1000})),
    })
}

/// The part of the output after the units.
struct PlanFooter {
    sentences: Vec<String>,
    /// True if only the reconcile step runs.
    is_reconcile_only: bool,
    /// Why no unit is planned, if none is.
    empty_reason: Option<String>,
    /// Connections that have no units, without a fault.
    skipped: Vec<String>,
}

fn write_table(
    taken: &RunPlan,
    choice: &ModelChoice,
    outlook: &PlanForecast,
    after: &PlanFooter,
    repository_text: Option<&str>,
) -> io::Result<()> {
    let mut out = output::stdout();
    let planned = &taken.planned;
    let reused: HashSet<&UnitKey> = taken.reused_units().collect();
    let forecasts = outlook.by_adapter(&planned.units);
    let forecast_of = |unit: &PlannedUnit| {
        let forecast = forecasts
            .iter()
            .find(|(adapter, _)| *adapter == unit.adapter);
        match forecast {
            _ if reused.contains(&unit.unit) => "reused".into(),
            Some((_, forecast)) => forecast_text(forecast),
            None => "?".into(),
        }
    };
    let rows = || planned.units.iter().map(|unit| &unit.planned);
    let widest = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    let widths = RowWidths::new(
        widest(&mut rows().map(|unit| text::width(&unit.unit))),
        widest(&mut rows().map(|unit| text::width(&forecast_of(unit)))),
        widest(&mut rows().map(|unit| text::width(&unit.why))),
        output::columns(),
    );
    for unit in rows() {
        let key = text::fit_middle(&unit.unit, widths.key, "…");
        let pad = widths.key.saturating_sub(text::width(&key));
        let files = unit.raw_files.len();
        let plural = if files == 1 { " " } else { "s" };
        let bytes = unit.bytes.map_or_else(|| "?".into(), text::size);
        let forecast = forecast_of(unit);
        let why = text::printable(&unit.why, widths.why);
        let limits = unit
            .sl_disallowed
            .as_ref()
            .map(|reason| format!(" (no sources: {})", text::printable(reason, 60)));
        writeln!(
            out,
            "{key}{:pad$}  {files:>3} file{plural} {bytes:>9}  {forecast:<width$}  {why}{}",
            "",
            limits.unwrap_or_default(),
            width = widths.forecast,
        )?;
    }
    // If a prior run leaves nothing to do, the sources were compared with the state before that run.
    for source in planned
        .sources
        .iter()
        .filter(|_| taken.empty_reason.is_none())
    {
        let units = planned
            .units
            .iter()
            .filter(|unit| unit.planned.connection == source.connection);
        write_source(&mut out, source, &changed_units(units))?;
    }
    for due in planned.pending_projections(|unit| reused.contains(unit)) {
        write_projection(&mut out, &due)?;
    }
    for sentence in &after.sentences {
        writeln!(out, "{sentence}")?;
    }
    if !planned.units.is_empty() {
        for line in choice.lines() {
            writeln!(out, "{}", text::printable(&line, output::max_width(200)))?;
        }
        if taken.units_to_run().next().is_some() {
            let forecast = outlook.for_units(taken.units_to_run());
            writeln!(
                out,
                "forecast: {}{}",
                forecast_text(&forecast),
                unknown_reason(&forecast)
            )?;
        }
    } else if after.is_reconcile_only {
        unchanged_message(planned).map_or(Ok(()), |why| writeln!(out, "{why}"))?;
    } else if let Some(nothing) = &after.empty_reason {
        writeln!(out, "{nothing}")?;
    }
    if let Some(repository_text) = repository_text.filter(|_| !planned.units.is_empty()) {
        writeln!(
            out,
            "{}",
            text::printable(repository_text, output::max_width(200))
        )?;
    }
    let count = reused.len();
    let reused = if count > 0 {
        format!(", {count} of them reused")
    } else {
        String::new()
    };
    let pass = if after.is_reconcile_only {
        ", and the reconcile step"
    } else {
        ""
    };
    writeln!(
        out,
        "{} planned{reused}{pass}",
        pluralize(planned.units.len(), "unit")
    )?;
    for why in &after.skipped {
        writeln!(out, "{}", text::printable(why, output::max_width(400)))?;
    }
    Ok(())
}

/// The sentence about files of a connection that are outside the project.
pub(crate) fn outside_project_message(source: &SourcePlan) -> Option<String> {
    let place = source.external_dir.as_ref()?.to_string_lossy();
    Some(format!(
        "its files are outside the project, in `{}`, and are not committed",
        text::printable(&place, output::max_width(400))
    ))
}

/// How many units run for changes of files that they contain, again without such a change, for changes around their files
/// and for unread files; empty if all run for the first reason.
fn changed_units<'a>(units: impl Iterator<Item = &'a WorkUnit>) -> String {
    let (mut changed, mut repeated, mut referring, mut around, mut unread) = (0, 0, 0, 0, 0);
    for changes in units.map(|unit| &unit.changes) {
        let UnitChanges {
            own,
            referred,
            around: others,
            unread: left,
            ..
        } = changes;
        match (
            own.is_empty(),
            referred.is_empty(),
            others.is_empty(),
            left.is_empty(),
        ) {
            (false, _, _, _) if changes.is_repeated => repeated += 1,
            (false, _, _, _) => changed += 1,
            (true, false, _, _) => referring += 1,
            (true, true, false, _) => around += 1,
            (true, true, true, false) => unread += 1,
            (true, true, true, true) => {}
        }
    }
    let verb =
        |count: usize, one: &'static str, more: &'static str| if count == 1 { one } else { more };
    let parts = [
        (changed, "changed".to_owned()),
        (repeated, format!("{} again", verb(repeated, "runs", "run"))),
        (
            referring,
            format!("{} to a change", verb(referring, "refers", "refer")),
        ),
        (
            around,
            format!("{} around a change", verb(around, "is", "are")),
        ),
        (unread, "left files unread".to_owned()),
    ];
    let parts = parts
        .iter()
        .filter(|(count, _)| *count > 0 && repeated + referring + around + unread > 0);
    parts
        .map(|(count, what)| format!(", {} {what}", pluralize(*count, "unit")))
        .collect()
}

fn write_source(out: &mut impl io::Write, source: &SourcePlan, changed: &str) -> io::Result<()> {
    let unchanged = match source.unchanged.count {
        0 => String::new(),
        count => format!(", {} unchanged", pluralize(count, "unit")),
    };
    writeln!(
        out,
        "{} {}{changed}{unchanged}",
        source.connection, source.diff.shown
    )?;
    if let Some(place) = outside_project_message(source) {
        writeln!(out, "  {place}")?;
    }
    if let Some(unread) =
        unread_message(source.unread.iter().map(|(_, file)| file), "plan --unread")
    {
        writeln!(out, "  {unread}")?;
    }
    let gone = &source.diff.deleted;
    for path in gone.iter().take(MAX_NAMED) {
        let names: Vec<String> = source
            .eviction_candidates
            .get(path)
            .into_iter()
            .flatten()
            .map(EvictionCandidate::name)
            .collect();
        let artifacts_by_deleted_file = if names.is_empty() {
            String::new()
        } else {
            format!(" (it supports {})", names.join(", "))
        };
        writeln!(
            out,
            "  gone: {}{}",
            text::printable(path, output::max_width(120)),
            text::printable(&artifacts_by_deleted_file, output::max_width(400))
        )?;
    }
    if gone.len() > MAX_NAMED {
        writeln!(out, "  and {} more that are gone", gone.len() - MAX_NAMED)?;
    }
    Ok(())
}

/// The sentence about files that units left unread, if there are any. `command` plans them.
fn unread_message<'a>(
    unread: impl Iterator<Item = &'a UnreadFile> + Clone,
    command: &str,
) -> Option<String> {
    let were = match unread
        .clone()
        .map(|file| &file.path)
        .collect::<HashSet<_>>()
        .len()
    {
        0 => return None,
        1 => "1 file was".to_owned(),
        count => format!("{count} files were"),
    };
    // Units that share a file may have read different parts of it.
    let named: BTreeSet<String> = unread
        .map(|file| format!("{}{}", file.path, file.part_note()))
        .collect();
    let named = text::list_some(&named.into_iter().collect::<Vec<_>>());
    Some(format!(
        "{were} left unread ({command}): {}",
        text::printable(&named, output::max_width(400))
    ))
}

/// The sentences about files of each connection that units left unread.
pub(crate) fn unread_messages(planned: &IngestPlan) -> impl Iterator<Item = String> {
    planned.sources.iter().filter_map(|source| {
        let unread = unread_message(source.unread.iter().map(|(_, file)| file), "run --unread")?;
        Some(format!("connection {}: {unread}", source.connection))
    })
}

/// Writes the sources that are generated before the units run.
fn write_projection(out: &mut impl io::Write, due: &PendingProjection) -> io::Result<()> {
    let named: Vec<&str> = due
        .sources
        .iter()
        .take(MAX_NAMED)
        .map(|source| source.name.as_str())
        .collect();
    let more = due.sources.len().saturating_sub(MAX_NAMED);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let (count, named) = (
        pluralize(due.sources.len(), "source"),
        text::printable(&named.join(", "), output::max_width(400)).into_owned(),
    );
    let target = match due.target != due.connection {
        true => format!(" for {}", due.target),
        false => String::new(),
    };
    writeln!(
        out,
        "{}: up to {count} written{target} from semantic models before the units run: {named}{more}",
        due.connection
    )?;
    for why in due.skipped.iter().take(MAX_NAMED) {
        writeln!(
            out,
            "  left to the units: {}",
            text::printable(why, output::max_width(200))
        )?;
    }
    match due.skipped.len().saturating_sub(MAX_NAMED) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more"),
    }
}

/// The end of a sentence about a forecast that has no estimate.
fn unknown_reason(forecast: &Forecast) -> &'static str {
    let is_unknown = forecast.cost.is_none() && forecast.time.is_none();
    if is_unknown {
        ", until three units of each kind have finished"
    } else {
        ""
    }
}

/// For example `$0.10–$0.30, 40s–2m 05s`: the median and the 90th percentile, or one of them if both look alike. A trailing `+?` means that some units
/// have no estimate.
fn forecast_text(forecast: &Forecast) -> String {
    let more = |whole| if whole { "" } else { " +?" };
    let range = |low: String, high: String| {
        if low == high {
            low
        } else {
            format!("{low}–{high}")
        }
    };
    let cost = forecast.cost.map(
        |QuantileEstimate {
             p50: likely,
             p90: high,
         }| {
            let more = more(forecast.covers_all_costs());
            format!(
                "{}{more}",
                range(dollars(Some(likely)), dollars(Some(high)))
            )
        },
    );
    let time = forecast.time.map(
        |QuantileEstimate {
             p50: likely,
             p90: high,
         }: QuantileEstimate<Millis>| {
            format!(
                "{}{}",
                range(likely.to_string(), high.to_string()),
                more(forecast.covers_all_times())
            )
        },
    );
    match (cost, time) {
        (None, None) => "?".into(),
        (cost, time) => format!(
            "{}, {}",
            cost.unwrap_or_else(|| "$?".into()),
            time.unwrap_or_else(|| "?".into())
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_with_equal_ends_is_one_value() {
        let forecast = |p50, p90, times: [u64; 2]| Forecast {
            cost: Some(QuantileEstimate { p50, p90 }),
            time: Some(QuantileEstimate {
                p50: Millis(times[0]),
                p90: Millis(times[1]),
            }),
            ..Forecast::default()
        };
        assert_eq!(
            forecast_text(&forecast(0.06, 0.06, [200, 400])),
            "$0.06, 0s"
        );
        assert_eq!(
            forecast_text(&forecast(0.06, 0.16, [4_000, 9_000])),
            "$0.06–$0.16, 4s–9s"
        );
        assert_eq!(forecast_text(&Forecast::default()), "?");
    }
}
