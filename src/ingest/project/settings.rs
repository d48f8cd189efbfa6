//! The meaning of the keys of `ktx.yaml`.
//!
//! `key_schema` defines the keys and their types, `typed_sections` those of the sections that are read as they are. This
//! module must not read files.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    key_schema::{self, CLAUDE_CODE, CheckedKeys},
    reader::{LOCAL_SECTION, excerpt},
    typed_sections::{ModelRole, RateLimitSettings, WorkUnitSettings},
};
use crate::{
    connection::{Connection, ConnectionKeys, SourceLocation},
    source,
    spelling::did_you_mean,
    yaml::{YamlNode, YamlValue},
};
use ingestdeck_core::diagnostic::{self, Problem};

/// Maximum number of faults that are listed individually.
const MAX_FAULTS: usize = 20;

/// Settings of a project.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProjectSettings {
    /// Connections: those of `connections`, then those of `ingestdeck.connections`, in the order of the file.
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

impl ProjectSettings {
    /// The model of `role`, else the default model, with the role that it is configured for. With `None`, Claude Code
    /// chooses the model.
    pub fn model_with_role(&self, role: ModelRole) -> Option<(ModelRole, &str)> {
        [role, ModelRole::Default]
            .into_iter()
            .find_map(|role| Some((role, self.models.get(&role)?.as_str())))
    }
}

/// Reads the tree of a `ktx.yaml` and returns the settings or everything that prevents their use, and the warnings.
pub(super) fn parse_settings(tree: &YamlNode) -> (Result<ProjectSettings, Problem>, Vec<Problem>) {
    let CheckedKeys {
        faults,
        mut warnings,
        lines,
    } = key_schema::check_keys(tree);
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
    let settings = match faults.as_slice() {
        [] => read(&tree.to_json(), adapters, lines),
        [fault] => Err(fault.clone()),
        // Each fault has its own remedy.
        faults => {
            let mut listed = diagnostic::to_lines(faults.iter().take(MAX_FAULTS));
            if let more @ 1.. = faults.len() - listed.len() {
                listed.push(format!("{more} more errors"));
            }
            Err(listed.join("; ").into())
        }
    };
    (settings, warnings)
}

/// Reads a document whose keys and types are valid.
fn read(
    document: &Value,
    adapters: Option<Vec<String>>,
    key_lines: BTreeMap<String, u64>,
) -> Result<ProjectSettings, Problem> {
    let sections = [document, &document[LOCAL_SECTION]].into_iter();
    let connections = sections.filter_map(|section| section["connections"].as_object());
    Ok(ProjectSettings {
        connections: connections
            .flatten()
            .map(|(id, keys)| connection(id, keys))
            .collect(),
        backend: backend(document, &key_lines),
        models: models(document),
        adapters,
        hidden_paths: section(document, "/ingest/allowHidden")?,
        work_units: section(document, "/ingest/workUnits")?,
        rate_limit: section(document, "/ingest/rateLimit")?,
        key_lines,
    })
}

/// The settings at `pointer`, or their defaults.
fn section<T: DeserializeOwned + Default>(document: &Value, pointer: &str) -> Result<T, Problem> {
    let read = document
        .pointer(pointer)
        .map_or_else(|| Ok(T::default()), T::deserialize);
    read.map_err(|error| format!("cannot read {pointer}: {error}").into())
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
