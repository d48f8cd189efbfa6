//! `config show`: the settings with their origins, and those of `ktx.yaml`.

use std::io::Write as _;

use super::{
    args::GlobalArgs,
    exit::{CliError, Exit},
    output, playback_output, project, settings,
};
use ingestdeck_ingest::project::{ModelRole, PROJECT_FILE, Project};

/// `config show`: every value with its origin, and the effective settings of the project, if there is one.
///
/// # Errors
/// If the settings cannot be read.
pub(crate) fn show(global: &GlobalArgs) -> Result<Exit, CliError> {
    let config = settings::load(global)?;
    let mut out = output::stdout();
    let project = project::find(global)?;
    for line in config
        .lines()
        .into_iter()
        .chain(project.iter().flat_map(effective_settings))
    {
        writeln!(out, "{line}").map_err(|error| playback_output::stdout_failed(&error))?;
    }
    Ok(Exit::Ok)
}

/// The effective settings of `ktx.yaml`, as lines of `key = value  # origin`. Lines are TOML, like those of the
/// settings.
fn effective_settings(project: &Project) -> Vec<String> {
    let settings = &project.settings;
    let (units, limits, retry) = (
        &settings.work_units,
        &settings.rate_limit,
        &settings.rate_limit.retry,
    );
    let origin = |key: &str| match settings.key_lines.get(key) {
        Some(line) => format!(
            "project {}:{line}",
            project.root.join(PROJECT_FILE).display()
        ),
        None => "default".to_owned(),
    };
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let models = ModelRole::ALL.into_iter().map(|role| {
        let key = format!("llm.models.{}", role.as_str());
        match settings.model_with_role(role) {
            Some((named, model)) if named == role => {
                format!("{key} = {}  # {}", quoted(model), origin(&key))
            }
            Some((_, model)) => format!("{key} = {}  # llm.models.default", quoted(model)),
            None => format!("# {key} is not set  # Claude Code's own choice"),
        }
    });
    let values = [
        ("ingest.workUnits.stepBudget", units.step_budget.to_string()),
        (
            "ingest.workUnits.maxConcurrency",
            units.max_concurrency.to_string(),
        ),
        (
            "ingest.workUnits.failureMode",
            quoted(units.failure_mode.as_str()),
        ),
        ("ingest.rateLimit.enabled", limits.enabled.to_string()),
        (
            "ingest.rateLimit.throttleThreshold",
            format!("{:?}", limits.throttle_threshold),
        ),
        (
            "ingest.rateLimit.minConcurrencyUnderPressure",
            limits.min_concurrency_under_pressure.to_string(),
        ),
        (
            "ingest.rateLimit.maxWaitMs",
            limits
                .max_wait_ms
                .map(|wait| wait.to_string())
                .unwrap_or_default(),
        ),
        (
            "ingest.rateLimit.retry.maxAttempts",
            retry.max_attempts.to_string(),
        ),
        (
            "ingest.rateLimit.retry.baseDelayMs",
            retry.base_delay_ms.to_string(),
        ),
        (
            "ingest.rateLimit.retry.maxDelayMs",
            retry.max_delay_ms.to_string(),
        ),
        ("ingest.rateLimit.retry.jitter", retry.jitter.to_string()),
    ];
    let values = values.into_iter().map(|(key, value)| match value.as_str() {
        "" => format!("# {key} is not set  # {}", origin(key)),
        value => format!("{key} = {value}  # {}", origin(key)),
    });
    let brought = project
        .instructions
        .overrides
        .iter()
        .map(|brought| format!("# {brought}"));
    models.chain(values).chain(brought).collect()
}
