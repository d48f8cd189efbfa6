//! The meaning of the keys of `ktx.yaml`, with KTX's defaults.
//!
//! `key_schema` defines the keys and their types. This module must not read files.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

use super::{
    key_schema::{self, CLAUDE_CODE},
    reader::{ProjectSettingsFault, excerpt},
};
use crate::{
    connection::{Connection, ConnectionKeys, SourceLocation},
    source,
    spelling::did_you_mean,
    yaml::{YamlNode, YamlValue},
};
use ingestdeck_core::{diagnostic::Problem, units::schedule::FailureMode};

/// Settings of a project.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProjectSettings {
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

/// Agent backend that runs the units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ModelBackend {
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
pub enum ModelRole {
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
    pub const ALL: [Self; 6] = [
        Self::Default,
        Self::Triage,
        Self::CandidateExtraction,
        Self::Curator,
        Self::Reconcile,
        Self::Repair,
    ];

    /// The key in `llm.models`.
    pub fn as_str(self) -> &'static str {
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
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WorkUnitSettings {
    /// Most turns of one attempt.
    pub step_budget: u32,
    /// Number of units that run concurrently.
    pub max_concurrency: u32,
    /// Effect of a failed unit on the others.
    #[serde(deserialize_with = "failure_mode")]
    pub failure_mode: FailureMode,
}

impl Default for WorkUnitSettings {
    fn default() -> Self {
        Self {
            step_budget: 40,
            max_concurrency: 1,
            failure_mode: FailureMode::Continue,
        }
    }
}

/// The settings under `ingest.rateLimit`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RateLimitSettings {
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
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RetrySettings {
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
        Self {
            max_attempts: 6,
            base_delay_ms: 1_000,
            max_delay_ms: 60_000,
            jitter: true,
        }
    }
}

impl ProjectSettings {
    /// The model of `role`, else the default model, with the role that it is configured for. With `None`, Claude Code
    /// chooses the model.
    pub fn model_with_role(&self, role: ModelRole) -> Option<(ModelRole, &str)> {
        [role, ModelRole::Default]
            .into_iter()
            .find_map(|role| Some((role, self.models.get(&role)?.as_str())))
    }
}

/// Reads the tree of a `ktx.yaml` and returns the settings and the warnings.
pub(super) fn parse_settings(
    tree: &YamlNode,
) -> Result<(ProjectSettings, Vec<Problem>), ProjectSettingsFault> {
    let key_schema::CheckedKeys {
        mut warnings,
        lines,
    } = key_schema::check_keys(tree)?;
    let given = |section: &str, key: &str| {
        tree.get(section)
            .and_then(|section| section.get(key))
            .filter(|node| node.value != YamlValue::Null)
    };
    if let Some(YamlNode { line, .. }) = given("llm", "promptCaching") {
        warnings.push(
            format!(
                "line {line}: llm.promptCaching has no effect: Claude Code decides what it caches"
            )
            .into(),
        );
    }
    let adapters = given("ingest", "adapters").and_then(|names| adapters(names, &mut warnings));
    let document = tree.to_json();
    let connections = document["connections"].as_object().into_iter().flatten();
    let settings = ProjectSettings {
        connections: connections.map(|(id, keys)| connection(id, keys)).collect(),
        backend: backend(&document, &lines),
        models: models(&document),
        adapters,
        hidden_paths: section(&document, "/ingest/allowHidden"),
        work_units: section(&document, "/ingest/workUnits"),
        rate_limit: section(&document, "/ingest/rateLimit"),
        key_lines: lines,
    };
    Ok((settings, warnings))
}

/// The settings at `pointer`. Their types were checked, so a value that does not fit is absent.
fn section<T: DeserializeOwned + Default>(document: &Value, pointer: &str) -> T {
    document
        .pointer(pointer)
        .and_then(|value| T::deserialize(value).ok())
        .unwrap_or_default()
}

fn failure_mode<'de, D: Deserializer<'de>>(value: D) -> Result<FailureMode, D::Error> {
    Ok(FailureMode::parse(&String::deserialize(value)?).unwrap_or_default())
}

fn connection(id: &str, keys: &Value) -> Connection {
    let text = |pointer: &str| {
        keys.pointer(pointer)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let driver = text("/driver");
    let adapter = driver.as_deref().and_then(source::find_adapter);
    let section = adapter.and_then(|adapter| adapter.section());
    let in_section = |key: &str| text(&format!("/{}/{key}", section?));
    let url = text("/repoUrl")
        .or_else(|| text("/repo_url"))
        .or_else(|| in_section("repoUrl"));
    Connection {
        id: id.to_owned(),
        source: text("/source_dir")
            .map(SourceLocation::Dir)
            .or(url.map(SourceLocation::Url)),
        subdir: text("/path").or_else(|| in_section("path")),
        branch: text("/branch").or_else(|| in_section("branch")),
        url: text("/url"),
        driver,
        keys: ConnectionKeys(keys.clone()),
    }
}

/// The seeds set the backend in `llm.agentRunner`, KTX in `llm.provider`. The runner is more specific, so it wins.
fn backend(document: &Value, lines: &BTreeMap<String, u64>) -> ModelBackend {
    let selected = ["llm.agentRunner.backend", "llm.provider.backend"]
        .into_iter()
        .find_map(|key| {
            let name = document
                .pointer(&format!("/{}", key.replace('.', "/")))?
                .as_str()?;
            Some((key, name))
        });
    match selected {
        None | Some((_, CLAUDE_CODE)) => ModelBackend::ClaudeCode,
        Some((key, name)) => ModelBackend::Unsupported {
            key,
            name: name.to_owned(),
            line: lines.get(key).copied().unwrap_or_default(),
        },
    }
}

fn models(document: &Value) -> BTreeMap<ModelRole, String> {
    let models = &document["llm"]["models"];
    let model = |role: ModelRole| Some((role, models[role.as_str()].as_str()?.trim().to_owned()));
    ModelRole::ALL.into_iter().filter_map(model).collect()
}

fn adapters(names: &YamlNode, warnings: &mut Vec<Problem>) -> Option<Vec<String>> {
    let YamlValue::List(nodes) = &names.value else {
        return None;
    };
    let named = || {
        nodes
            .iter()
            .filter_map(|node| Some((node.as_text()?, node.line)))
    };
    let known: Vec<&str> = source::known_adapters().collect();
    for (name, line) in named().filter(|(name, _)| !known.contains(name)) {
        let hint = did_you_mean(name, &known);
        warnings.push(
            format!(
                "line {line}: unknown adapter `{}` in ingest.adapters{hint}",
                excerpt(name)
            )
            .into(),
        );
    }
    let names: Vec<_> = named().map(|(name, _)| name.to_owned()).collect();
    (!names.is_empty()).then_some(names)
}

#[cfg(test)]
mod tests;
