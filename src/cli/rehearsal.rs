//! `run --rehearse`: would the recorded attempts end in the same way with the program of today? Prints a row per unit.

use std::path::Path;

use globset::{Glob, GlobSetBuilder};
use serde_json::{Value, json};

use super::{
    args::{GlobalArgs, SelectArgs, TableFormat},
    exit::{CliError, Exit},
    export::fixture::OpenedFixture,
    launch, playback_output, policy, project, runs,
    table::TableWriter,
};
use ingestdeck_bench::rehearsal::{Rehearsal, RehearsalResult, RehearsedUnit, RequestDifference};
use ingestdeck_core::{
    tape::{UnitKey, note::Verdict},
    text::{one_row, pluralize},
};
use ingestdeck_engine::resume::not_resumable_reason;
use ingestdeck_report::redact::Redactor;

/// Maximum number of characters of a reason or an answer.
const MAX_TEXT: usize = 300;
const PROJECT_FILE: &str = "ktx.yaml";
const COLUMNS: [&str; 8] = [
    "unit",
    "result",
    "then",
    "now",
    "call",
    "tool",
    "difference",
    "request",
];
const TEXT_COLUMNS: [&str; 4] = ["unit", "result", "then", "now"];

/// Rehearses the units of `run` that `select` names, and prints the result.
///
/// # Errors
/// If the run or the project cannot be used, or the rehearsal cannot run.
pub(super) fn rehearse(
    global: &GlobalArgs,
    run: &str,
    select: &SelectArgs,
) -> Result<Exit, CliError> {
    let fixture = OpenedFixture::open(Path::new(run))?;
    let in_fixture = fixture.as_ref().map(|fixture| GlobalArgs {
        project_dir: Some(fixture.project.clone()),
        ..global.clone()
    });
    let global = in_fixture.as_ref().unwrap_or(global);
    let run = if fixture.is_some() { "latest" } else { run };
    let project = project::open(global)?;
    let store = runs::resolve_store(global)?;
    let found = store.resolve(run)?;
    let state = ingestdeck_engine::recorded_tapes::fold(&store, &found)?;
    if let Some(why) = not_resumable_reason(&state) {
        let why = why.prefixed(format_args!("run {} ", found.id.short()));
        return Err(CliError::from_error(Exit::Usage, &why));
    }
    let mut patterns = GlobSetBuilder::new();
    for pattern in select.connections.iter().chain(&select.only) {
        let glob = Glob::new(pattern).map_err(|error| CliError::usage(error.to_string()))?;
        patterns.add(glob);
    }
    let patterns = patterns
        .build()
        .map_err(|error| CliError::usage(error.to_string()))?;
    let keys = state.units.iter().map(|unit| unit.key.clone());
    let units: Vec<UnitKey> = keys
        .filter(|key| patterns.is_empty() || patterns.is_match(key.as_str()))
        .collect();
    let claude = launch::find_claude(global)?;
    let rehearsal = Rehearsal {
        project: &project.root,
        run: &found,
        units: &units,
        current_files: &[PROJECT_FILE, policy::PROJECT_FILE],
        config: global.config.as_deref(),
        claude: &claude,
    };
    let units = rehearsal.run()?;
    let others = units.iter().filter(|unit| !unit.request.is_empty()).count();
    if others > 0 {
        playback_output::print_stderr(&format!(
            "ingestdeck: the requests of {} differ from the record, and no record has what a model answers to them",
            pluralize(others, "unit")
        ));
    }
    let redactor = Redactor::for_process(Some(&project.root));
    let format = TableFormat::resolve(None, global);
    let is_text = format == TableFormat::Text;
    let columns: &[&str] = if is_text { &TEXT_COLUMNS } else { &COLUMNS };
    let names = columns.iter().copied().map(str::to_owned).collect();
    let mut table = TableWriter::new(format, names, Some(1), redactor);
    // A person reads what would be different.
    let is_shown = |unit: &&RehearsedUnit| !is_text || unit.result() != RehearsalResult::Same;
    for unit in units.iter().filter(is_shown) {
        table.push(if is_text {
            text_row(unit)
        } else {
            row(unit).to_vec()
        });
    }
    table.finish(&summary(&units))?;
    Ok(Exit::Ok)
}

/// A row for people: the last column has the verdict of today, or where the record ends.
fn text_row(unit: &RehearsedUnit) -> Vec<Value> {
    let [unit, result, then, now, call, tool, difference, _] = row(unit);
    let is_cut = !difference.is_null();
    let result = match call.as_u64() {
        Some(call) => json!(format!("record ends at call {call}")),
        None => result,
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let cut = format!("{} {}", text(&tool), text(&difference));
    vec![
        unit,
        result,
        then,
        if is_cut { json!(cut.trim()) } else { now },
    ]
}

fn row(unit: &RehearsedUnit) -> [Value; 8] {
    let verdict = |verdict: Option<&Verdict>| {
        verdict.map_or(Value::Null, |verdict| {
            let reason = format!("{}: {}", verdict.cause.label(), verdict.reason);
            one_row(&reason, MAX_TEXT).into()
        })
    };
    let is_cut = unit.result() == RehearsalResult::RecordEnds;
    let end = unit.end.as_ref();
    [
        json!(unit.unit),
        json!(unit.result().as_str()),
        verdict(unit.then.as_ref()),
        verdict(unit.now.as_ref().filter(|_| !is_cut)),
        json!(end.and_then(|end| end.call)),
        json!(end.and_then(|end| end.tool.as_deref())),
        end.map_or(Value::Null, |end| {
            let [then, now] = [&end.then, &end.now].map(|text| one_row(text, MAX_TEXT));
            json!(format!("{then} → {now}"))
        }),
        request(&unit.request),
    ]
}

/// For example `prompt +3 -1, instructions`; null if nothing differs.
fn request(difference: &RequestDifference) -> Value {
    let (added, removed) = difference.prompt_lines;
    let prompt = (added + removed > 0).then(|| format!("prompt +{added} -{removed}"));
    let instructions = difference
        .has_other_instructions
        .then(|| "instructions".to_owned());
    let parts: Vec<String> = prompt.into_iter().chain(instructions).collect();
    match parts.is_empty() {
        true => Value::Null,
        false => parts.join(", ").into(),
    }
}

/// For example `36 units rehearsed: 2 would change, 1 whose record ends, 33 the same`.
fn summary(units: &[RehearsedUnit]) -> String {
    let count = |result| units.iter().filter(|unit| unit.result() == result).count();
    let counts = [
        (count(RehearsalResult::Changes), "would change"),
        (count(RehearsalResult::RecordEnds), "whose record ends"),
        (count(RehearsalResult::NotPlanned), "not planned"),
        (count(RehearsalResult::Same), "the same"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    format!(
        "{} rehearsed: {}\n",
        pluralize(units.len(), "unit"),
        counts.join(", ")
    )
}
