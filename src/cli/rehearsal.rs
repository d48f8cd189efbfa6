//! `run --rehearse`: would the recorded attempts end in the same way with the program of today? Prints a row per unit.

use globset::{Glob, GlobSetBuilder};
use serde_json::{Value, json};

use super::{
    args::{GlobalArgs, SelectArgs, TableFormat},
    exit::{CliError, Exit},
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

/// Rehearses the units of `run` that `select` names, and prints the result.
///
/// # Errors
/// If the run or the project cannot be used, or the rehearsal cannot run.
pub(super) fn rehearse(
    global: &GlobalArgs,
    run: &str,
    select: &SelectArgs,
) -> Result<Exit, CliError> {
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
    let names = COLUMNS.map(str::to_owned).to_vec();
    let mut table = TableWriter::new(TableFormat::resolve(None, global), names, Some(1), redactor);
    for unit in &units {
        table.push(row(unit));
    }
    table.finish(&summary(&units))?;
    Ok(Exit::Ok)
}

fn row(unit: &RehearsedUnit) -> Vec<Value> {
    let verdict = |verdict: Option<&Verdict>| {
        verdict.map_or(Value::Null, |verdict| {
            let reason = format!("{}: {}", verdict.cause.label(), verdict.reason);
            one_row(&reason, MAX_TEXT).into()
        })
    };
    let is_cut = unit.result() == RehearsalResult::RecordEnds;
    let end = unit.end.as_ref();
    vec![
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

/// For example `36 units rehearsed: 2 change, 1 record ends, 33 same`.
fn summary(units: &[RehearsedUnit]) -> String {
    let count = |result| units.iter().filter(|unit| unit.result() == result).count();
    let results = [
        RehearsalResult::Changes,
        RehearsalResult::RecordEnds,
        RehearsalResult::NotPlanned,
        RehearsalResult::Same,
    ];
    let counts = results.map(|result| (count(result), result.as_str()));
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
