//! `plan`: shows which units would run, why, and a forecast of cost and time.

mod documents;
mod forecast;
mod row_widths;
mod size_warnings;

use std::{
    collections::{BTreeSet, HashSet},
    io::{self, Write as _},
};

use jiff::Timestamp;
use serde_json::json;

pub(super) use self::forecast::PlanForecast;
use self::{
    forecast::forecast_json,
    row_widths::RowWidths,
    size_warnings::{UnitLimits, all_unit_warnings, unit_warnings},
};
use super::{
    args::{GlobalArgs, PlanArgs, Ui},
    exit::{self, CliError, Exit},
    failed_from, git_sources,
    model_choice::ModelChoice,
    output, playback_output, policy,
    project::{self, PlannedAttempts},
    runs, settings,
};
use ingestdeck_core::{
    diagnostic::{Diagnostic, Problem, to_lines},
    tape::{
        UnitKey,
        note::{PlannedUnit, attempt_output::UnreadFile},
    },
    text::{self, pluralize},
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

/// Maximum number of paths per connection in a table.
const MAX_NAMED: usize = 10;

/// Prints the plan.
///
/// # Errors
/// If there is no project, or if nothing in it matches the selection.
pub(crate) fn plan(global: &GlobalArgs, args: &PlanArgs) -> Result<Exit, CliError> {
    let select = &args.select;
    if args.fetch {
        git_sources::fetch(global, select)?;
    }
    let project = project::open(global)?;
    let choice = ModelChoice::resolve(&project, ModelRole::CandidateExtraction, None);
    let config = settings::load(global)?;
    let attempts = PlannedAttempts::new(choice.model.as_deref(), &config.ingest);
    let planned = failed_from::plan_run(global, &project, select, attempts)?;
    let Some(taken) = planned else {
        return Ok(Exit::Ok);
    };
    let is_json = global.ui == Ui::Json;
    exit::print_warnings(&if is_json {
        taken.planned.warnings.clone()
    } else {
        taken.planned.folded_warnings()
    });
    let limits = UnitLimits::new(&project);
    if taken.units_to_run().next().is_some() {
        exit::print_warnings(&all_unit_warnings(&taken, limits));
        exit::print_warnings(&truncated_index_warnings(&project));
        exit::print_warnings(&project.fact_warnings(Timestamp::now()));
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
    let outlook = PlanForecast::new(
        &project,
        &taken.planned.units,
        &taken.efforts,
        choice.model.as_deref(),
        project.settings.work_units.max_concurrency,
    );
    let pass = ReconcilePolicy::new(*config.ingest.reconcile);
    let is_all = pass.justifies_a_run(&taken, select.is_everything());
    let unusable = unusable_plan_error(&taken).filter(|_| !is_all);
    let is_empty = taken.planned.units.is_empty() && !taken.planned.has_documents() && !is_all;
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
        Ui::Json => write_json(&taken, &choice, &outlook, limits),
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
    let is_empty = planned.units.is_empty()
        && !planned.has_documents()
        && taken.continues.is_none()
        && !whys.is_empty();
    is_empty.then(|| match whys.as_slice() {
        [why] => CliError::from_error(Exit::Usage, *why).context("nothing is planned"),
        whys => CliError::usage("nothing is planned").with_list(whys.iter().copied().cloned()),
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

/// Prints the plan as `--ui json`: an object per unit, written by hand because programs read it. `formats.md` documents
/// each field, and `tests/fixtures/formats/plan.jsonl` guards it.
fn write_json(
    taken: &RunPlan,
    choice: &ModelChoice,
    outlook: &PlanForecast,
    limits: UnitLimits,
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
        if let Some(clone) = source.and_then(|source| source.version.clone.as_ref()) {
            object["commit"] = json!(clone.commit.as_str());
        }
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
        } else {
            object["estimate"] = outlook.estimate_json(&unit.unit);
        }
        if let Some(reason) = &unit.sl_disallowed {
            object["slDisallowedReason"] = json!(reason);
        }
        let warnings: Vec<String> = unit_warnings(work_unit, limits).collect();
        if !warnings.is_empty() && !is_reused {
            object["warnings"] = json!(warnings);
        }
        writeln!(out, "{object}")?;
    }
    for due in planned.pending_projections(|unit| reused.contains(unit)) {
        if !due.documents.is_empty() {
            writeln!(out, "{}", documents::to_json(&due))?;
            continue;
        }
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
    // The text of a warning names only the first files.
    for warning in &planned.warnings {
        if !warning.files().is_empty() {
            let object = json!({"warning": warning.to_string(), "files": warning.files()});
            writeln!(out, "{object}")?;
        }
    }
    Ok(())
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
        match reused.contains(&unit.unit) {
            true => "reused".into(),
            false => outlook.row_text(&unit.unit, forecast.map(|(_, forecast)| forecast)),
        }
    };
    let rows = || planned.units.iter().map(|unit| &unit.planned);
    let widest = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    let widths = RowWidths::new(
        widest(&mut rows().map(|unit| text::width(&unit.unit))),
        widest(&mut rows().map(|unit| text::width(&forecast_of(unit)))).max("forecast".len()),
        widest(&mut rows().map(|unit| text::width(&unit.why))),
        output::columns(),
    );
    if rows().next().is_some() {
        let [key, forecast] = ["unit", "forecast"];
        let (key_width, forecast_width) = (widths.key, widths.forecast);
        let tokens = if widths.has_tokens { "   tokens" } else { "" };
        writeln!(
            out,
            "{key:<key_width$}  {:>9} {:>9}{tokens}  {forecast:<forecast_width$}  why",
            "files", "size"
        )?;
    }
    for unit in rows() {
        let key = text::fit_middle(&unit.unit, widths.key, "…");
        let pad = widths.key.saturating_sub(text::width(&key));
        let files = unit.raw_files.len();
        let plural = if files == 1 { " " } else { "s" };
        let bytes = unit.bytes.map_or_else(|| "?".into(), text::size);
        let tokens = match widths.has_tokens {
            true => format!(" {:>8}", text::count(outlook.estimate(&unit.unit).context)),
            false => String::new(),
        };
        let forecast = forecast_of(unit);
        let why = text::printable(&unit.why, widths.why);
        let limits = unit
            .sl_disallowed
            .as_ref()
            .map(|reason| format!(" (no sources: {})", text::printable(reason, 60)));
        writeln!(
            out,
            "{key}{:pad$}  {files:>3} file{plural} {bytes:>9}{tokens}  {forecast:<width$}  {why}{}",
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
        match due.documents.is_empty() {
            true => write_projection(&mut out, &due)?,
            false => documents::write(&mut out, &due)?,
        }
    }
    for sentence in &after.sentences {
        writeln!(out, "{sentence}")?;
    }
    if !planned.units.is_empty() {
        for line in choice.lines() {
            writeln!(out, "{}", text::printable(&line, output::max_width(200)))?;
        }
        if taken.units_to_run().next().is_some() {
            let forecast = outlook.sum_text(taken.units_to_run());
            writeln!(out, "forecast: {forecast}")?;
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
    if let Some(clone) = &source.version.clone {
        writeln!(out, "  {}", git_sources::describe_clone(clone))?;
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
