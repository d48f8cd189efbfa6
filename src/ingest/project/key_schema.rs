//! Every key that a `ktx.yaml` may have, both KTX's keys and those of this program, with the type of its value.
//!
//! One table is compared with the document once: a value of the wrong type is an error, an unknown key a warning with
//! the nearest known name. This module must not know the purpose of a key. It never quotes values of connections and
//! credentials.

use std::collections::BTreeMap;

use super::reader::{self, ProjectSettingsFault, excerpt, join_key, wrong_type};

const PROVIDER_BACKENDS: &[&str] = &[
    "none",
    "anthropic",
    "vertex",
    "gateway",
    CLAUDE_CODE,
    "codex",
];
const RUNNER_BACKENDS: &[&str] = &[CLAUDE_CODE, "ai-sdk"];

pub(super) const CLAUDE_CODE: &str = "claude-code";
use crate::{
    connection::{KeySpec, ValueType},
    source,
    spelling::nearest_name,
    yaml::{YamlEntry, YamlNode, YamlValue},
};
use ingestdeck_core::diagnostic::Problem;

use ValueType::{
    Any, AnyText, Boolean, BooleanOr, Connections, Fraction, Integer, IntegerOr, Map, OneOf,
    OneOfOrOther, OpenMap, Text, TextList,
};

const TOP_LEVEL: &[KeySpec] = &[
    ("setup", Map(&[("database_connection_ids", TextList)])),
    ("connections", Connections),
    ("storage", Map(STORAGE)),
    ("llm", Map(LLM)),
    ("ingest", Map(INGEST)),
    ("agent", Map(&[("run_research", Map(RESEARCH))])),
    (
        "scan",
        Map(&[
            ("enrichment", Map(ENRICHMENT)),
            ("relationships", Map(RELATIONSHIPS)),
        ]),
    ),
];

const STORAGE: &[KeySpec] = &[
    ("state", OneOfOrOther(&["sqlite", "postgres"])),
    ("search", OneOfOrOther(&["sqlite-fts5", "postgres-hybrid"])),
    ("git", Map(&[("author", Text)])),
];

const LLM: &[KeySpec] = &[
    ("provider", Map(PROVIDER)),
    ("agentRunner", Map(&[("backend", OneOf(RUNNER_BACKENDS))])),
    ("models", Map(MODELS)),
    ("promptCaching", Map(CACHING)),
];

const PROVIDER: &[KeySpec] = &[
    ("backend", OneOf(PROVIDER_BACKENDS)),
    ("vertex", Map(&[("project", Text), ("location", Text)])),
    ("anthropic", Map(CREDENTIALS)),
    ("gateway", Map(CREDENTIALS)),
];

const CREDENTIALS: &[KeySpec] = &[("api_key", Text), ("base_url", Text)];

const MODELS: &[KeySpec] = &[
    ("default", Text),
    ("triage", Text),
    ("candidateExtraction", Text),
    ("curator", Text),
    ("reconcile", Text),
    ("repair", Text),
];

const CACHE_TTL: ValueType = OneOfOrOther(&["5m", "1h"]);

const CACHING: &[KeySpec] = &[
    ("enabled", Boolean),
    ("systemTtl", CACHE_TTL),
    ("toolsTtl", CACHE_TTL),
    ("historyTtl", CACHE_TTL),
    ("vertexFallbackTo5m", Boolean),
];

const INGEST: &[KeySpec] = &[
    ("adapters", TextList),
    ("allowHidden", TextList),
    ("embeddings", Map(EMBEDDINGS)),
    ("workUnits", Map(WORK_UNITS)),
    ("rateLimit", Map(RATE_LIMIT)),
    ("profile", BooleanOr(&["json"])),
];

const EMBEDDINGS: &[KeySpec] = &[
    (
        "backend",
        OneOfOrOther(&["none", "openai", "sentence-transformers"]),
    ),
    ("model", Text),
    ("dimensions", Integer(1)),
    ("openai", Map(CREDENTIALS)),
    (
        "sentenceTransformers",
        Map(&[("base_url", AnyText), ("pathPrefix", AnyText)]),
    ),
    ("batchSize", Integer(1)),
];

const WORK_UNITS: &[KeySpec] = &[
    ("stepBudget", Integer(1)),
    ("maxConcurrency", Integer(1)),
    ("failureMode", OneOf(&["abort", "continue"])),
];

const RATE_LIMIT: &[KeySpec] = &[
    ("enabled", Boolean),
    ("throttleThreshold", Fraction),
    ("minConcurrencyUnderPressure", Integer(1)),
    ("maxWaitMs", Integer(1)),
    ("retry", Map(RETRY)),
];

const RETRY: &[KeySpec] = &[
    ("maxAttempts", Integer(1)),
    ("baseDelayMs", Integer(1)),
    ("maxDelayMs", Integer(1)),
    ("jitter", Boolean),
];

const RESEARCH: &[KeySpec] = &[
    ("enabled", Boolean),
    ("max_iterations", Integer(0)),
    ("default_toolset", TextList),
];

const ENRICHMENT: &[KeySpec] = &[
    ("mode", OneOfOrOther(&["none", "deterministic", "llm"])),
    ("embeddings", Map(EMBEDDINGS)),
];

const RELATIONSHIPS: &[KeySpec] = &[
    ("enabled", Boolean),
    ("llmProposals", Boolean),
    ("validationRequiredForManifest", Boolean),
    ("acceptThreshold", Fraction),
    ("reviewThreshold", Fraction),
    ("maxLlmTablesPerBatch", Integer(1)),
    ("maxCandidatesPerColumn", Integer(1)),
    ("profileSampleRows", Integer(1)),
    ("profileConcurrency", Integer(1)),
    ("validationConcurrency", Integer(1)),
    ("validationBudget", IntegerOr(&["all"])),
    ("detectionBudgetMs", Integer(1)),
];

/// Keys that this program reads from any connection, whatever its driver.
const CONNECTION: &[KeySpec] = &[
    ("driver", Text),
    ("source_dir", Text),
    ("repoUrl", Text),
    ("repo_url", Text),
    ("path", AnyText),
    ("branch", Text),
    ("url", Text),
];

/// Keys in addition to [`CONNECTION`]: those of the adapter, and those of drivers that only KTX reads.
fn driver_keys(driver: &str) -> &'static [KeySpec] {
    if let Some(adapter) = source::find_adapter(driver) {
        return adapter.keys();
    }
    match driver {
        "metabase" => &[
            ("api_url", Text),
            ("api_key", Text),
            ("api_key_ref", Text),
            ("network_proxy", OpenMap(&[])),
            ("networkProxy", OpenMap(&[])),
            ("mappings", OpenMap(&[])),
        ],
        "looker" => &[
            ("base_url", Text),
            ("client_id", Text),
            ("client_secret", Text),
            ("client_secret_ref", Text),
            ("mappings", OpenMap(&[])),
        ],
        "sigma" => &[
            ("api_url", Text),
            ("client_id", Text),
            ("client_secret", Text),
            ("client_secret_ref", Text),
            ("connectionMappings", OpenMap(&[])),
            ("workbookFilter", OpenMap(&[])),
            ("dataModelFilter", OpenMap(&[])),
        ],
        "gdrive" => &[
            ("service_account_key_ref", Text),
            ("folder_id", Text),
            ("recursive", Boolean),
        ],
        "mongodb" => &[
            ("database", Text),
            ("databases", TextList),
            ("enabled_tables", TextList),
            ("sample_size", Integer(1)),
            ("order_by", Text),
        ],
        "postgres" | "mysql" | "snowflake" | "bigquery" | "sqlite" | "duckdb" | "clickhouse"
        | "sqlserver" => &[
            ("enabled_tables", TextList),
            ("query_timeout_ms", Integer(1)),
            ("context", Any),
        ],
        _ => &[],
    }
}

/// Result of checking a valid document.
#[derive(Debug, Default)]
pub(super) struct CheckedKeys {
    /// Oddities, one sentence each, with the line.
    pub(super) warnings: Vec<Problem>,
    /// Line of each value, by dotted key, without the connections.
    pub(super) lines: BTreeMap<String, u64>,
}

/// Compares the document with the table.
pub(super) fn check_keys(tree: &YamlNode) -> Result<CheckedKeys, ProjectSettingsFault> {
    let mut checked = CheckedKeys::default();
    map(
        "",
        tree,
        &[TOP_LEVEL],
        UnknownKeyPolicy::Closed,
        &mut checked,
    )?;
    Ok(checked)
}

/// Whether an unknown key is a warning.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UnknownKeyPolicy {
    Closed,
    /// Only a likely misspelling is a warning.
    Open,
}

fn map(
    path: &str,
    node: &YamlNode,
    tables: &[&'static [KeySpec]],
    strictness: UnknownKeyPolicy,
    checked: &mut CheckedKeys,
) -> Result<(), ProjectSettingsFault> {
    for entry in entries(path, node)? {
        match tables
            .iter()
            .copied()
            .flatten()
            .find(|(name, _)| *name == entry.key)
        {
            Some((_, shape)) => value(&join_key(path, &entry.key), &entry.value, *shape, checked)?,
            None => checked
                .warnings
                .extend(unknown(path, entry, tables, strictness).map(Problem::from)),
        }
    }
    Ok(())
}

fn entries<'a>(path: &str, node: &'a YamlNode) -> Result<&'a [YamlEntry], ProjectSettingsFault> {
    match &node.value {
        YamlValue::Map(entries) => Ok(entries),
        YamlValue::Null => Ok(&[]),
        _ => Err(wrong_type(path, node, "a map of keys")),
    }
}

fn unknown(
    path: &str,
    entry: &YamlEntry,
    tables: &[&'static [KeySpec]],
    strictness: UnknownKeyPolicy,
) -> Option<String> {
    let names: Vec<_> = tables
        .iter()
        .copied()
        .flatten()
        .map(|(name, _)| *name)
        .collect();
    let hint = match (nearest_name(&entry.key, &names), strictness) {
        (Some(name), _) => format!("; did you mean `{name}`?"),
        (None, UnknownKeyPolicy::Open) => return None,
        (None, UnknownKeyPolicy::Closed) => other_location(&entry.key)
            .map(|place| format!("; did you mean `{place}`?"))
            .unwrap_or_default(),
    };
    Some(format!(
        "line {}: unknown key `{}` is ignored{hint}",
        entry.line,
        join_key(path, &entry.key)
    ))
}

/// The only place where a key of this name belongs; `None` if there are several.
fn other_location(name: &str) -> Option<String> {
    fn search(path: &str, table: &'static [KeySpec], name: &str, found: &mut Vec<String>) {
        for (key, shape) in table {
            let place = join_key(path, key);
            if let Map(inner) = shape {
                search(&place, inner, name, found);
            }
            if *key == name {
                found.push(place);
            }
        }
    }
    let mut found = Vec::new();
    search("", TOP_LEVEL, name, &mut found);
    let only = found.pop();
    if found.is_empty() { only } else { None }
}

fn value(
    path: &str,
    node: &YamlNode,
    shape: ValueType,
    checked: &mut CheckedKeys,
) -> Result<(), ProjectSettingsFault> {
    // An empty value counts as absent.
    if node.value == YamlValue::Null {
        return Ok(());
    }
    let number = |least: u32| matches!(&node.value, YamlValue::Int(number) if u32::try_from(*number).is_ok_and(|number| number >= least));
    let word = |words: &[&str]| matches!(&node.value, YamlValue::Text(text) if words.contains(&text.as_str()));
    if !matches!(shape, Map(_) | OpenMap(_) | Connections) && !path.starts_with("connections.") {
        checked.lines.insert(path.to_owned(), node.line);
    }
    let expected = match shape {
        Any => return Ok(()),
        Map(keys) => return map(path, node, &[keys], UnknownKeyPolicy::Closed, checked),
        OpenMap(keys) => return map(path, node, &[keys], UnknownKeyPolicy::Open, checked),
        Connections => return connections(node, checked),
        Text if matches!(&node.value, YamlValue::Text(text) if !text.trim().is_empty()) => {
            return Ok(());
        }
        AnyText if matches!(&node.value, YamlValue::Text(_)) => return Ok(()),
        Text | AnyText => "text".to_owned(),
        Boolean | BooleanOr(_) if matches!(&node.value, YamlValue::Bool(_)) => return Ok(()),
        Boolean => "true or false".to_owned(),
        BooleanOr(words) | IntegerOr(words) | OneOf(words) if word(words) => return Ok(()),
        BooleanOr(words) => format!("true, false or {}", words.join(", ")),
        Integer(least) if number(least) => return Ok(()),
        IntegerOr(_) if number(0) => return Ok(()),
        Integer(least) => format!("a whole number, {least} or more"),
        IntegerOr(words) => format!("a whole number or {}", words.join(", ")),
        Fraction if is_fraction(&node.value) => return Ok(()),
        Fraction => "a number between 0 and 1".to_owned(),
        TextList => return texts(path, node),
        OneOf(words) => format!("one of {}", words.join(", ")),
        OneOfOrOther(words) => match &node.value {
            YamlValue::Text(text) => {
                if !words.contains(&text.as_str()) {
                    let text = excerpt(text);
                    checked.warnings.push(
                        format!(
                            "line {}: {path} is `{text}`, which has no effect here",
                            node.line
                        )
                        .into(),
                    );
                }
                return Ok(());
            }
            _ => format!("one of {}", words.join(", ")),
        },
    };
    Err(wrong_type(path, node, &expected))
}

fn is_fraction(value: &YamlValue) -> bool {
    match value {
        YamlValue::Int(number) => (0..=1).contains(number),
        YamlValue::Float(number) => (0.0..=1.0).contains(number),
        _ => false,
    }
}

fn texts(path: &str, node: &YamlNode) -> Result<(), ProjectSettingsFault> {
    let YamlValue::List(nodes) = &node.value else {
        return Err(wrong_type(path, node, "a list of names"));
    };
    match nodes
        .iter()
        .find(|node| !matches!(&node.value, YamlValue::Text(_)))
    {
        Some(node) => Err(wrong_type(path, node, "a list of names")),
        None => Ok(()),
    }
}

fn connections(node: &YamlNode, checked: &mut CheckedKeys) -> Result<(), ProjectSettingsFault> {
    for entry in entries("connections", node)? {
        reader::check_connection_id(entry)?;
        let path = join_key("connections", &entry.key);
        let fields = entries(&path, &entry.value).map_err(|fault| ProjectSettingsFault {
            problem: fault.problem.with_help(format!(
                "as in `{}: {{driver: docs, source_dir: PATH}}`",
                entry.key
            )),
            ..fault
        })?;
        let driver = fields.iter().find(|field| field.key == "driver");
        let driver = match driver.map(|field| &field.value.value) {
            Some(YamlValue::Text(driver)) => driver.as_str(),
            _ => "",
        };
        map(
            &path,
            &entry.value,
            &[CONNECTION, driver_keys(driver)],
            UnknownKeyPolicy::Open,
            checked,
        )?;
    }
    Ok(())
}
