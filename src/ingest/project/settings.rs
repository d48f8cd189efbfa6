//! The meaning of the keys of `ktx.yaml`, with KTX's defaults.
//!
//! `key_schema` defines the keys and their types. This module must not read files.

use std::collections::BTreeMap;

use super::{
    key_schema,
    reader::{ProjectSettingsFault, YamlSection, excerpt, nearest_name},
};
use crate::{
    diagnostic::Problem,
    ingest::{source, yaml::YamlNode},
};

/// Settings of a project.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ProjectSettings {
    /// Connections, in the order of the file.
    pub connections: Vec<Connection>,
    /// Agent backend that runs the units.
    pub backend: ModelBackend,
    /// Models by role, as aliases or full ids. Claude Code checks whether they exist.
    pub models: BTreeMap<ModelRole, String>,
    /// Adapters that may run; `None` means all.
    pub adapters: Option<Vec<String>>,
    /// `ingest.allowHidden`: hidden directories of the project that connections may read.
    pub hidden_paths: Vec<String>,
    pub work_units: WorkUnitSettings,
    /// Reaction to usage limits of the service.
    pub rate_limit: RateLimitSettings,
    /// Line in `ktx.yaml` of each value, by dotted key, without the connections.
    pub key_lines: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Connection {
    /// Its key in `connections`.
    pub id: String,
    pub driver: Option<String>,
    /// Location of its files.
    pub source: Option<SourceLocation>,
    /// Folder inside the source, or the file of a database (`path`).
    pub subdir: Option<String>,
    /// Branch that KTX clones. A plan warns if the files belong to another branch.
    pub branch: Option<String>,
    /// `url` of a database.
    pub url: Option<String>,
    /// `mappings.expectedLookerConnectionName`: models that name another connection may not write sources.
    pub looker_connection: Option<String>,
}

/// Location of a connection's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SourceLocation {
    /// `source_dir`: a directory, relative to the project.
    Dir(String),
    /// `repoUrl` or `repo_url`, a remote or `file:` URL.
    Url(String),
}

/// Agent backend that runs the units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ModelBackend {
    /// Claude Code, which is the default.
    #[default]
    ClaudeCode,
    /// A backend of KTX that this program does not support.
    Unsupported {
        /// Key that selects the backend.
        key: &'static str,
        name: String,
        /// Line of the key.
        line: u64,
    },
}

/// Purpose of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ModelRole {
    /// Every role without its own model.
    Default,
    /// Sorting pages before the units run.
    Triage,
    CandidateExtraction,
    Curator,
    Reconcile,
    /// Resolution of conflicts between patches.
    Repair,
}

impl ModelRole {
    /// Every role, in KTX's order.
    pub(crate) const ALL: [Self; 6] =
        [Self::Default, Self::Triage, Self::CandidateExtraction, Self::Curator, Self::Reconcile, Self::Repair];

    /// The key in `llm.models`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Triage => "triage",
            Self::CandidateExtraction => "candidateExtraction",
            Self::Curator => "curator",
            Self::Reconcile => "reconcile",
            Self::Repair => "repair",
        }
    }
}

/// The settings under `ingest.workUnits`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkUnitSettings {
    /// Most turns of one attempt.
    pub step_budget: u32,
    /// Number of units that run concurrently.
    pub max_concurrency: u32,
    /// Effect of a failed unit on the others.
    pub failure_mode: FailureModeSetting,
}

impl Default for WorkUnitSettings {
    fn default() -> Self {
        Self { step_budget: 40, max_concurrency: 1, failure_mode: FailureModeSetting::Continue }
    }
}

/// Effect of a failed unit on the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FailureModeSetting {
    /// No further unit starts.
    Abort,
    /// The others run as planned.
    #[default]
    Continue,
}

impl FailureModeSetting {
    /// The spelling in `ktx.yaml`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Abort => "abort",
            Self::Continue => "continue",
        }
    }
}

/// The settings under `ingest.rateLimit`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RateLimitSettings {
    /// Whether usage limits throttle the run.
    pub enabled: bool,
    /// Fraction of a usage window above which fewer units run.
    pub throttle_threshold: f64,
    /// Concurrency above that fraction.
    pub min_concurrency_under_pressure: u32,
    /// Longest single wait, in milliseconds.
    pub max_wait_ms: Option<u32>,
    /// Retries after the service rejects a request.
    pub retry: RetrySettings,
}

impl Default for RateLimitSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            throttle_threshold: 0.8,
            min_concurrency_under_pressure: 1,
            max_wait_ms: None,
            retry: RetrySettings::default(),
        }
    }
}

/// The settings under `ingest.rateLimit.retry`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RetrySettings {
    /// Number of tries, including the first.
    pub max_attempts: u32,
    /// First wait, in milliseconds.
    pub base_delay_ms: u32,
    /// Longest wait, in milliseconds.
    pub max_delay_ms: u32,
    /// Whether waits vary randomly.
    pub jitter: bool,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self { max_attempts: 6, base_delay_ms: 1_000, max_delay_ms: 60_000, jitter: true }
    }
}

impl ProjectSettings {
    /// The model of `role`, else the default model, with the role that it is configured for. With `None`, Claude Code
    /// chooses the model.
    pub(crate) fn model_with_role(&self, role: ModelRole) -> Option<(ModelRole, &str)> {
        [role, ModelRole::Default].into_iter().find_map(|role| Some((role, self.models.get(&role)?.as_str())))
    }
}

pub(super) const PROVIDER_BACKENDS: &[&str] = &["none", "anthropic", "vertex", "gateway", CLAUDE_CODE, "codex"];
pub(super) const RUNNER_BACKENDS: &[&str] = &[CLAUDE_CODE, "ai-sdk"];

const CLAUDE_CODE: &str = "claude-code";

/// Reads the tree of a `ktx.yaml` and returns the settings and the warnings.
pub(super) fn parse_settings(tree: &YamlNode) -> Result<(ProjectSettings, Vec<Problem>), ProjectSettingsFault> {
    let key_schema::CheckedKeys { mut warnings, lines } = key_schema::check_keys(tree)?;
    let top = YamlSection::from_node(tree);
    let (llm, ingest) = (top.section("llm"), top.section("ingest"));
    if let Some(node) = llm.get("promptCaching") {
        let line = node.line;
        warnings
            .push(format!("line {line}: llm.promptCaching has no effect: Claude Code decides what it caches").into());
    }
    let settings = ProjectSettings {
        connections: top.section("connections").entries().map(|entry| connection(&entry.key, &entry.value)).collect(),
        backend: backend(llm),
        models: models(llm.section("models")),
        adapters: adapters(ingest, &mut warnings),
        hidden_paths: ingest.texts("allowHidden").into_iter().flatten().map(|(path, _)| path.to_owned()).collect(),
        work_units: work_units(ingest.section("workUnits")),
        rate_limit: rate_limit(ingest.section("rateLimit")),
        key_lines: lines,
    };
    Ok((settings, warnings))
}

fn connection(id: &str, node: &YamlNode) -> Connection {
    let section = YamlSection::from_node(node);
    let at = |section: YamlSection<'_>, key: &str| section.text(key).map(|(text, _)| text.to_owned());
    let text = |key: &str| at(section, key);
    // KTX keeps the repository of a MetricFlow connection in the section `metricflow`.
    let flow = section.section("metricflow");
    let url = text("repoUrl").or_else(|| text("repo_url")).or_else(|| at(flow, "repoUrl"));
    Connection {
        id: id.to_owned(),
        driver: text("driver"),
        source: text("source_dir").map(SourceLocation::Dir).or(url.map(SourceLocation::Url)),
        subdir: text("path").or_else(|| at(flow, "path")),
        branch: text("branch").or_else(|| at(flow, "branch")),
        url: text("url"),
        looker_connection: at(section.section("mappings"), "expectedLookerConnectionName"),
    }
}

/// The seeds set the backend in `llm.agentRunner`, KTX in `llm.provider`. The runner is more specific, so it wins.
fn backend(llm: YamlSection<'_>) -> ModelBackend {
    let of = |section| llm.section(section).text("backend");
    let (key, (name, line)) = match (of("agentRunner"), of("provider")) {
        (Some(found), _) => ("llm.agentRunner.backend", found),
        (None, Some(found)) => ("llm.provider.backend", found),
        (None, None) => return ModelBackend::ClaudeCode,
    };
    match name {
        CLAUDE_CODE => ModelBackend::ClaudeCode,
        other => ModelBackend::Unsupported { key, name: other.to_owned(), line },
    }
}

fn models(section: YamlSection<'_>) -> BTreeMap<ModelRole, String> {
    let model = |role: ModelRole| Some((role, section.text(role.as_str())?.0.trim().to_owned()));
    ModelRole::ALL.into_iter().filter_map(model).collect()
}

/// Adapters of KTX that `ingest.adapters` may name even if this program does not have them.
const KTX_ADAPTERS: &[&str] = &[
    "live-database",
    "historic-sql",
    "dbt",
    "metricflow",
    "lookml",
    "looker",
    "metabase",
    "notion",
    "fake",
    "confluence",
    "jira",
    "sharepoint",
    "gdrive",
    "sigma",
    "tableau",
];

fn adapters(ingest: YamlSection<'_>, warnings: &mut Vec<Problem>) -> Option<Vec<String>> {
    let names = ingest.texts("adapters")?;
    let known: Vec<&str> = source::adapter_names().chain(KTX_ADAPTERS.iter().copied()).collect();
    for (name, line) in names.iter().filter(|(name, _)| !known.contains(name)) {
        let hint = nearest_name(name, &known).map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
        warnings.push(format!("line {line}: unknown adapter `{}` in ingest.adapters{hint}", excerpt(name)).into());
    }
    let names: Vec<_> = names.into_iter().map(|(name, _)| name.to_owned()).collect();
    (!names.is_empty()).then_some(names)
}

fn work_units(section: YamlSection<'_>) -> WorkUnitSettings {
    let default = WorkUnitSettings::default();
    let mode =
        |word| [FailureModeSetting::Abort, FailureModeSetting::Continue].into_iter().find(|mode| mode.as_str() == word);
    WorkUnitSettings {
        step_budget: section.integer("stepBudget").unwrap_or(default.step_budget),
        max_concurrency: section.integer("maxConcurrency").unwrap_or(default.max_concurrency),
        failure_mode: section.text("failureMode").and_then(|(word, _)| mode(word)).unwrap_or(default.failure_mode),
    }
}

fn rate_limit(section: YamlSection<'_>) -> RateLimitSettings {
    let retry = section.section("retry");
    let default = RateLimitSettings::default();
    RateLimitSettings {
        enabled: section.boolean("enabled").unwrap_or(default.enabled),
        throttle_threshold: section.number("throttleThreshold").unwrap_or(default.throttle_threshold),
        min_concurrency_under_pressure: section
            .integer("minConcurrencyUnderPressure")
            .unwrap_or(default.min_concurrency_under_pressure),
        max_wait_ms: section.integer("maxWaitMs"),
        retry: RetrySettings {
            max_attempts: retry.integer("maxAttempts").unwrap_or(default.retry.max_attempts),
            base_delay_ms: retry.integer("baseDelayMs").unwrap_or(default.retry.base_delay_ms),
            max_delay_ms: retry.integer("maxDelayMs").unwrap_or(default.retry.max_delay_ms),
            jitter: retry.boolean("jitter").unwrap_or(default.retry.jitter),
        },
    }
}

#[cfg(test)]
mod tests;
