//! `plan`: what would run, why, and what it is likely to take.

use std::{
    collections::HashSet,
    io::{self, Write as _},
};

use serde_json::{Value, json};

use super::{
    args::{Global, SelectArgs, Ui},
    exit::{Exit, Failure},
    ground,
    model::Choice,
    output,
    pass::Pass,
    project,
    resume::{self, Taken},
    settings, show,
    summary::counted,
};
use crate::{
    actions::label,
    ingest::{
        cut_indexes,
        plan::{Planned, SourcePlan, WorkUnit},
        project::Role,
        projection::DueProjection,
        reconcile::RestingArtifact,
    },
    store::db::PastEffort,
    tape::{Millis, UnitKey, note::Skipped},
    tui::{text, view::dollars},
    units::forecast::{Finished, Forecast, Left, Range, forecast},
};

/// Paths of one connection that a table names.
const NAMED: usize = 10;
/// Widest key of a table on a terminal, in columns. Elsewhere keys are whole: they are copied from there.
const KEY: usize = 60;

/// Prints the plan.
///
/// # Errors
/// When there is no project, or nothing in it that matches.
pub fn plan(global: &Global, select: &SelectArgs) -> Result<Exit, Failure> {
    let project = project::open(global)?;
    let choice = Choice::of(&project, Role::CandidateExtraction, None);
    let taken = resume::planned(global, &project, select, choice.model.as_deref())?;
    let is_json = global.ui == Ui::Json;
    project::warn(&if is_json { taken.planned.warnings.clone() } else { taken.planned.folded_warnings() });
    let turns = project.settings.work_units.step_budget;
    if taken.units_to_run().next().is_some() {
        project::warn(&wide_units(&taken, turns));
        project::warn(&cut_indexes(&project));
    }
    project::warn(&project.runnable().err().map(|error| error.to_string()).into_iter().collect::<Vec<_>>());
    project::warn(project::stale_pages(&project).as_slice());
    project::warn(&taken.left.iter().map(|left| left.sentence(global)).collect::<Vec<_>>());
    let ground = ground::sentence(&project, Some(&taken.planned)).map_err(|error| error.to_string());
    project::warn(ground.as_ref().err().map(std::slice::from_ref).unwrap_or_default());
    let slots = usize::try_from(project.settings.work_units.max_concurrency).unwrap_or(usize::MAX);
    let outlook = Outlook::new(&taken.efforts, slots);
    let pass = Pass::of(*settings::load(global)?.ingest.reconcile, ground::has_history(&project.root));
    let is_all = pass.is_enough(&taken, select);
    let unusable = unusable(&taken).filter(|_| !is_all);
    let is_empty = taken.planned.units.is_empty() && !is_all;
    let nothing = (is_empty && unusable.is_none()).then(|| nothing(&taken));
    if let Some(nothing) = nothing.as_ref().filter(|_| is_json) {
        show::tell(&format!("ingestdeck: {nothing}"));
    }
    // What the failure says need not be said twice.
    let all_told = unusable.is_some() && gives_nothing(&taken.planned);
    let fine = skipped(&taken.planned, |skipped| !skipped.fault && !all_told);
    let after = After { sentences: pass.sentences(&taken), is_all, nothing, skipped: fine };
    let printed = match global.ui {
        Ui::Json => objects(&taken, &choice, &outlook, turns),
        Ui::None => Ok(()),
        Ui::Auto | Ui::Tui | Ui::Lines => table(&taken, &choice, &outlook, &after, ground.ok().as_deref()),
    };
    printed.map_err(|error| show::stdout_failed(&error))?;
    match unusable {
        Some(failure) => Err(failure),
        None => {
            project::warn(&faults(&taken.planned));
            Ok(Exit::Ok)
        }
    }
}

/// What to say when nothing is planned.
pub fn nothing(taken: &Taken) -> String {
    let planned = &taken.planned;
    if let Some(nothing) = &taken.nothing {
        return nothing.clone();
    }
    if let Some(continues) = taken.continues.as_ref().filter(|_| !planned.units.is_empty()) {
        let (units, run) = (counted(planned.units.len(), "unit"), continues.run.short());
        return format!("all {units} of run {run} stand: there is nothing to run");
    }
    match unchanged(planned) {
        Some(why) => format!("nothing to do: {why}"),
        None => "there is nothing to run".into(),
    }
}

/// A plan that is empty because something is wrong with a connection, or because none gives units, is no success.
pub fn unusable(taken: &Taken) -> Option<Failure> {
    let planned = &taken.planned;
    let whys = if gives_nothing(planned) { skipped(planned, |_| true) } else { faults(planned) };
    let is_empty = planned.units.is_empty() && taken.continues.is_none() && !whys.is_empty();
    is_empty.then(|| Failure::usage(format!("nothing is planned: {}", whys.join("; "))))
}

/// What somebody should mend about the connections.
fn faults(planned: &Planned) -> Vec<String> {
    skipped(planned, |skipped| skipped.fault)
}

fn skipped(planned: &Planned, is_told: impl Fn(&Skipped) -> bool) -> Vec<String> {
    planned
        .skipped
        .iter()
        .chain(&planned.targets)
        .filter(|skipped| is_told(skipped))
        .map(|skipped| skipped.why.clone())
        .collect()
}

/// True if no connection can be cut into units.
fn gives_nothing(planned: &Planned) -> bool {
    planned.sources.is_empty()
}

/// Why no unit is planned, unless there is none.
fn unchanged(planned: &Planned) -> Option<String> {
    match planned.sources.iter().map(|source| source.unchanged_units).sum() {
        0 => None,
        1 => Some("its one unit is unchanged since it last succeeded; --full plans it all the same".into()),
        count => {
            Some(format!("all {count} units are unchanged since they last succeeded; --full plans them all the same"))
        }
    }
}

/// What units took, by adapter.
struct Outlook {
    adapters: Vec<String>,
    finished: Vec<Vec<Finished>>,
    slots: usize,
}

impl Outlook {
    fn new(efforts: &[PastEffort], slots: usize) -> Self {
        let mut outlook = Self { adapters: Vec::new(), finished: Vec::new(), slots };
        for effort in efforts {
            let kind = outlook.kind(&effort.adapter).unwrap_or_else(|| {
                outlook.adapters.push(effort.adapter.clone());
                outlook.finished.push(Vec::new());
                outlook.adapters.len() - 1
            });
            if let Some(finished) = outlook.finished.get_mut(kind) {
                finished.push(Finished { cost: effort.cost_usd, worked: effort.worked });
            }
        }
        outlook
    }

    fn kind(&self, adapter: &str) -> Option<usize> {
        self.adapters.iter().position(|known| known == adapter)
    }

    /// An adapter that never finished a unit is of a kind that has no past.
    fn left(&self, unit: &WorkUnit) -> Left {
        Left { kind: self.kind(&unit.planned.adapter).unwrap_or(usize::MAX), running: None }
    }

    /// What units cost that an earlier run did: nothing.
    fn of_reused() -> Forecast {
        let nothing = Millis(0);
        Forecast {
            cost: Some(Range { likely: 0.0, high: 0.0 }),
            time: Some(Range { likely: nothing, high: nothing }),
            ..Forecast::default()
        }
    }

    fn of(&self, unit: &WorkUnit) -> Forecast {
        forecast(&self.finished, &[self.left(unit)], 1)
    }

    fn of_all<'a>(&self, units: impl Iterator<Item = &'a WorkUnit>) -> Forecast {
        let left: Vec<Left> = units.map(|unit| self.left(unit)).collect();
        forecast(&self.finished, &left, self.slots)
    }

    /// One forecast for each adapter: its units are all alike.
    fn by_adapter<'a>(&self, units: &'a [WorkUnit]) -> Vec<(&'a str, Forecast)> {
        let mut known: Vec<(&str, Forecast)> = Vec::new();
        for unit in units {
            let adapter = unit.planned.adapter.as_str();
            if !known.iter().any(|(name, _)| *name == adapter) {
                known.push((adapter, self.of(unit)));
            }
        }
        known
    }
}

/// Why `unit` might need more than its `turns`, if so. An agent may read several files in a turn, so it is no certainty.
fn wide_unit(unit: &WorkUnit, turns: u32) -> Option<String> {
    let (planned, calls) = (&unit.planned, unit.reading_calls());
    (calls > u64::from(turns)).then(|| {
        let (files, bytes) = (counted(planned.raw_files.len(), "file"), planned.bytes.map_or_else(|| "?".into(), size));
        format!(
            "unit {} might need more than {}: reading its {files} ({bytes}) takes {calls} calls; raise \
             ingest.workUnits.stepBudget in ktx.yaml",
            planned.unit,
            counted(turns as usize, "turn")
        )
    })
}

/// A warning for each of the first units that might need more than their turns, and how many more there are.
fn wide_units(taken: &Taken, turns: u32) -> Vec<String> {
    let mut warnings: Vec<String> = taken.units_to_run().filter_map(|unit| wide_unit(unit, turns)).collect();
    let more = warnings.len().saturating_sub(NAMED);
    warnings.truncate(NAMED);
    if more > 0 {
        warnings.push(format!("the same holds for {}", counted(more, "more unit")));
    }
    warnings
}

fn objects(taken: &Taken, choice: &Choice, outlook: &Outlook, turns: u32) -> io::Result<()> {
    let mut out = output::stdout_for(Ui::Json);
    let planned = &taken.planned;
    let reused: HashSet<&UnitKey> = taken.reused().collect();
    let forecasts = outlook.by_adapter(&planned.units);
    for work_unit in &planned.units {
        let unit = &work_unit.planned;
        let is_reused = reused.contains(&unit.unit);
        let forecast = forecasts.iter().find(|(adapter, _)| *adapter == unit.adapter).map(|(_, forecast)| *forecast);
        let forecast = if is_reused { Some(Outlook::of_reused()) } else { forecast };
        let mut object = json!({
            "unit": unit.unit, "connection": unit.connection, "adapter": unit.adapter, "rawFiles": unit.raw_files,
            "dependencyPaths": unit.dependency_paths, "why": unit.why, "model": choice.model, "bytes": unit.bytes,
            "forecast": forecast.as_ref().map(in_json),
        });
        let source = planned.sources.iter().find(|source| source.connection == unit.connection);
        if let Some(outside) = source.and_then(|source| source.outside.as_ref()) {
            object["outsideProject"] = json!(outside.to_string_lossy());
        }
        if let Some(key) = &unit.ktx_key {
            object["unitKey"] = json!(key);
        }
        if is_reused {
            object["reused"] = true.into();
        }
        if let Some(reason) = &unit.sl_disallowed {
            object["slDisallowedReason"] = json!(reason);
        }
        if let Some(warning) = wide_unit(work_unit, turns).filter(|_| !is_reused) {
            object["warnings"] = json!([warning]);
        }
        writeln!(out, "{object}")?;
    }
    for due in planned.due_projections(|unit| reused.contains(unit)) {
        let names: Vec<&str> = due.sources.iter().map(|source| source.name.as_str()).collect();
        let object = json!({
            "connection": due.connection, "adapter": due.adapter, "projected": names,
            "why": "written from semantic models before the units run",
        });
        writeln!(out, "{object}")?;
    }
    for source in planned.sources.iter().filter(|source| !source.diff.deleted.is_empty()) {
        let object = json!({
            "connection": source.connection, "adapter": source.adapter, "evicted": source.diff.deleted,
            "why": "gone from the source",
        });
        writeln!(out, "{object}")?;
    }
    Ok(())
}

/// P50 and P90; null where nothing can be said.
fn in_json(forecast: &Forecast) -> Value {
    json!({
        "costUsd": forecast.cost.map(|cost| json!({"p50": cost.likely, "p90": cost.high})),
        "seconds": forecast.time.map(|time| json!({"p50": time.likely.0 / 1000, "p90": time.high.0 / 1000})),
    })
}

/// What comes after the units.
struct After {
    sentences: Vec<String>,
    /// It is run even if no unit is.
    is_all: bool,
    /// Why no unit is planned, if none is.
    nothing: Option<String>,
    /// Connections that give no units, as they should.
    skipped: Vec<String>,
}

fn table(taken: &Taken, choice: &Choice, outlook: &Outlook, after: &After, ground: Option<&str>) -> io::Result<()> {
    let mut out = output::stdout();
    let planned = &taken.planned;
    let reused: HashSet<&UnitKey> = taken.reused().collect();
    let forecasts = outlook.by_adapter(&planned.units);
    let longest = if output::is_terminal() { KEY } else { usize::MAX };
    let widest = planned.units.iter().map(|unit| text::width(&unit.planned.unit)).max().unwrap_or(0).min(longest);
    for unit in planned.units.iter().map(|unit| &unit.planned) {
        let key = text::safe(&unit.unit, longest);
        let pad = widest.saturating_sub(text::width(&unit.unit));
        let files = unit.raw_files.len();
        let plural = if files == 1 { " " } else { "s" };
        let bytes = unit.bytes.map_or_else(|| "?".into(), size);
        let forecast = forecasts.iter().find(|(adapter, _)| *adapter == unit.adapter);
        let forecast = match forecast {
            _ if reused.contains(&unit.unit) => "reused".into(),
            Some((_, forecast)) => in_words(forecast),
            None => "?".into(),
        };
        let why = text::safe(&unit.why, 100);
        let limits = unit.sl_disallowed.as_ref().map(|reason| format!(" (no sources: {})", text::safe(reason, 60)));
        writeln!(
            out,
            "{key}{:pad$}  {files:>3} file{plural} {bytes:>9}  {forecast:<23}  {why}{}",
            "",
            limits.unwrap_or_default()
        )?;
    }
    // Where nothing of an earlier run is left to do, the sources were compared with what was before that run.
    for source in planned.sources.iter().filter(|_| taken.nothing.is_none()) {
        about(&mut out, source)?;
    }
    for due in planned.due_projections(|unit| reused.contains(unit)) {
        projects(&mut out, &due)?;
    }
    for sentence in &after.sentences {
        writeln!(out, "{sentence}")?;
    }
    if !planned.units.is_empty() {
        for line in choice.lines() {
            writeln!(out, "{}", text::safe(&line, 200))?;
        }
        if taken.units_to_run().next().is_some() {
            let forecast = outlook.of_all(taken.units_to_run());
            let unknown = forecast.cost.is_none() && forecast.time.is_none();
            let why = if unknown { ", until three units of each kind have finished" } else { "" };
            writeln!(out, "forecast: {}{why}", in_words(&forecast))?;
        }
    } else if after.is_all {
        unchanged(planned).map_or(Ok(()), |why| writeln!(out, "{why}"))?;
    } else if let Some(nothing) = &after.nothing {
        writeln!(out, "{nothing}")?;
    }
    if let Some(ground) = ground.filter(|_| !planned.units.is_empty()) {
        writeln!(out, "{}", text::safe(ground, 200))?;
    }
    let count = reused.len();
    let reused = if count > 0 { format!(", {count} of them reused") } else { String::new() };
    let pass = if after.is_all { ", and the pass" } else { "" };
    writeln!(out, "{} planned{reused}{pass}", counted(planned.units.len(), "unit"))?;
    for why in &after.skipped {
        writeln!(out, "{}", text::safe(why, 400))?;
    }
    Ok(())
}

/// Where the files of a connection are, if that is outside the project.
pub fn outside(source: &SourcePlan) -> Option<String> {
    let place = source.outside.as_ref()?.to_string_lossy();
    Some(format!("its files are outside the project, in `{}`, and are not committed", text::safe(&place, 400)))
}

fn size(bytes: u64) -> String {
    label::size(usize::try_from(bytes).unwrap_or(usize::MAX))
}

fn about(out: &mut impl io::Write, source: &SourcePlan) -> io::Result<()> {
    let unchanged = match source.unchanged_units {
        0 => String::new(),
        count => format!(", {} unchanged", counted(count, "unit")),
    };
    writeln!(out, "{} {}{unchanged}", source.connection, source.counts())?;
    if let Some(place) = outside(source) {
        writeln!(out, "  {place}")?;
    }
    let gone = &source.diff.deleted;
    for path in gone.iter().take(NAMED) {
        let names: Vec<String> = source.resting.get(path).into_iter().flatten().map(RestingArtifact::name).collect();
        let resting = if names.is_empty() { String::new() } else { format!(" (it supports {})", names.join(", ")) };
        writeln!(out, "  gone: {}{}", text::safe(path, 120), text::safe(&resting, 400))?;
    }
    if gone.len() > NAMED {
        writeln!(out, "  and {} more that are gone", gone.len() - NAMED)?;
    }
    Ok(())
}

/// The sources that are written before the units run.
fn projects(out: &mut impl io::Write, due: &DueProjection) -> io::Result<()> {
    let named: Vec<&str> = due.sources.iter().take(NAMED).map(|source| source.name.as_str()).collect();
    let more = due.sources.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let (count, named) = (counted(due.sources.len(), "source"), text::safe(&named.join(", "), 400).into_owned());
    writeln!(
        out,
        "{}: up to {count} written from semantic models before the units run: {named}{more}",
        due.connection
    )?;
    for why in due.left_out.iter().take(NAMED) {
        writeln!(out, "  left to the units: {}", text::safe(why, 200))?;
    }
    match due.left_out.len().saturating_sub(NAMED) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more"),
    }
}

/// `$0.10–$0.30, 40s–2m 05s`: in half of all cases no more than the first, in nine of ten no more than the second. `+?`
/// stands for units that nothing is known of.
fn in_words(forecast: &Forecast) -> String {
    let more = |whole| if whole { "" } else { " +?" };
    let cost = forecast.cost.map(|Range { likely, high }| {
        let more = more(forecast.is_cost_whole());
        format!("{}–{}{more}", dollars(Some(likely)), dollars(Some(high)))
    });
    let time = forecast
        .time
        .map(|Range { likely, high }: Range<Millis>| format!("{likely}–{high}{}", more(forecast.is_time_whole())));
    match (cost, time) {
        (None, None) => "?".into(),
        (cost, time) => format!("{}, {}", cost.unwrap_or_else(|| "$?".into()), time.unwrap_or_else(|| "?".into())),
    }
}
