//! Every key that a `ktx.yaml` may have, both KTX's keys and those of this program, with the type of its value.
//!
//! One table is compared with the document once: a value of the wrong type is an error, an unknown key a warning with
//! the nearest known name. All of them are found. This module must not know the purpose of a key. It never quotes values
//! of connections and credentials.

use std::collections::BTreeMap;

use super::{
    reader::{LOCAL_SECTION, check_connection_id, excerpt, is_connection, join_key, wrong_type},
    typed_sections::{ModelRole, ProjectValue as _, RateLimitSettings, WorkUnitSettings},
};

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
    (LOCAL_SECTION, Map(&[("connections", Connections)])),
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

const MODELS: &[KeySpec] = &{
    let mut keys = [("", Text); ModelRole::ALL.len()];
    let mut at = 0;
    while at < keys.len() {
        keys[at].0 = ModelRole::ALL[at].as_str();
        at += 1;
    }
    keys
};

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
    ("workUnits", WorkUnitSettings::TYPE),
    ("rateLimit", RateLimitSettings::TYPE),
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

/// Compares the document with the table.
pub(super) fn check_keys(tree: &YamlNode) -> CheckedKeys {
    let mut checked = CheckedKeys::default();
    checked.map("", tree, &[TOP_LEVEL], UnknownKeyPolicy::Closed);
    let [first, second] = connection_sections(tree);
    for entry in second {
        if let Some(other) = first.iter().find(|other| other.key == entry.key) {
            let (line, id, other) = (entry.line, excerpt(&entry.key), other.line);
            let problem = format!("line {line}: connection `{id}` is also on line {other}");
            let help = "keep one of them, or give one another id";
            checked.faults.push(Problem::new(problem).with_help(help));
        }
    }
    checked
}

/// The entries of the two sections with connections.
fn connection_sections(tree: &YamlNode) -> [&[YamlEntry]; 2] {
    [Some(tree), tree.get(LOCAL_SECTION)].map(|section| {
        match section.and_then(|section| section.get("connections")) {
            Some(YamlNode {
                value: YamlValue::Map(entries),
                ..
            }) => &entries[..],
            _ => &[],
        }
    })
}

/// What a document contains, one sentence each, with the line.
#[derive(Debug, Default)]
pub(super) struct CheckedKeys {
    /// Errors, which prevent the use of the document.
    pub(super) faults: Vec<Problem>,
    /// Unknown keys, and values without effect.
    pub(super) warnings: Vec<Problem>,
    /// Line of each value, by dotted key, without the connections.
    pub(super) lines: BTreeMap<String, u64>,
}

/// Whether an unknown key is a warning.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UnknownKeyPolicy {
    Closed,
    /// Only a likely misspelling is a warning.
    Open,
}

impl CheckedKeys {
    fn map(
        &mut self,
        path: &str,
        node: &YamlNode,
        tables: &[&'static [KeySpec]],
        strictness: UnknownKeyPolicy,
    ) {
        let known = || tables.iter().copied().flatten();
        for entry in self.valid(entries(path, node)).unwrap_or_default() {
            match known().find(|(name, _)| *name == entry.key) {
                Some((_, shape)) => {
                    self.value(&join_key(path, &entry.key), &entry.value, *shape);
                }
                None => {
                    let names: Vec<_> = known().map(|(name, _)| *name).collect();
                    self.warnings
                        .extend(unknown(path, entry, &names, strictness));
                }
            }
        }
    }

    /// The value, unless it is a fault.
    fn valid<T>(&mut self, checked: Result<T, Problem>) -> Option<T> {
        checked.map_err(|fault| self.faults.push(fault)).ok()
    }

    fn value(&mut self, path: &str, node: &YamlNode, shape: ValueType) {
        // An empty value counts as absent.
        if node.value == YamlValue::Null {
            return;
        }
        let is_boolean = matches!(node.value, YamlValue::Bool(_));
        let text = node.as_text();
        let is_word = |words: &[&str]| text.is_some_and(|text| words.contains(&text));
        let (is_valid, expected) = match shape {
            Map(keys) => return self.map(path, node, &[keys], UnknownKeyPolicy::Closed),
            OpenMap(keys) => return self.map(path, node, &[keys], UnknownKeyPolicy::Open),
            Connections => return self.connections(path, node),
            Any => (true, String::new()),
            Text => (
                text.is_some_and(|text| !text.trim().is_empty()),
                "text".into(),
            ),
            AnyText => (text.is_some(), "text".into()),
            Boolean => (is_boolean, "true or false".into()),
            BooleanOr(words) => (
                is_boolean || is_word(words),
                format!("true, false or {}", words.join(", ")),
            ),
            Integer(least) => (
                is_number(node, least),
                format!("a whole number, {least} or more"),
            ),
            IntegerOr(words) => (
                is_number(node, 0) || is_word(words),
                format!("a whole number or {}", words.join(", ")),
            ),
            Fraction => (is_fraction(&node.value), "a number between 0 and 1".into()),
            TextList => {
                self.valid(check_texts(path, node));
                (true, String::new())
            }
            OneOf(words) => (is_word(words), format!("one of {}", words.join(", "))),
            OneOfOrOther(words) => {
                if let Some(text) = text.filter(|_| !is_word(words)) {
                    let (line, text) = (node.line, excerpt(text));
                    let warning =
                        format!("line {line}: {path} is `{text}`, which has no effect here");
                    self.warnings.push(warning.into());
                }
                (text.is_some(), format!("one of {}", words.join(", ")))
            }
        };
        if !is_valid {
            self.faults.push(wrong_type(path, node, &expected));
        } else if !is_connection(path) {
            self.lines.insert(path.to_owned(), node.line);
        }
    }

    fn connections(&mut self, section: &str, node: &YamlNode) {
        for entry in self.valid(entries(section, node)).unwrap_or_default() {
            let path = join_key(section, &entry.key);
            let fields = check_connection_id(entry).and_then(|()| {
                entries(&path, &entry.value).map_err(|fault| {
                    let example = format!("{}: {{driver: docs, source_dir: PATH}}", entry.key);
                    fault.with_help(format!("as in `{example}`"))
                })
            });
            if self.valid(fields).is_some() {
                let driver = entry.value.text_at("driver").unwrap_or_default();
                let tables = [CONNECTION, driver_keys(driver)];
                // Of others, KTX has keys that are not known here.
                let strictness = match source::find_adapter(driver) {
                    Some(_) => UnknownKeyPolicy::Closed,
                    None => UnknownKeyPolicy::Open,
                };
                self.map(&path, &entry.value, &tables, strictness);
            }
        }
    }
}

fn entries<'a>(path: &str, node: &'a YamlNode) -> Result<&'a [YamlEntry], Problem> {
    match &node.value {
        YamlValue::Map(entries) => Ok(entries),
        YamlValue::Null => Ok(&[]),
        _ => Err(wrong_type(path, node, "a map of keys")),
    }
}

/// The warning about an unknown key, if there is one.
fn unknown(
    path: &str,
    entry: &YamlEntry,
    names: &[&str],
    strictness: UnknownKeyPolicy,
) -> Option<Problem> {
    let nearest = nearest_name(&entry.key, names).map(str::to_owned);
    if nearest.is_none() && strictness == UnknownKeyPolicy::Open {
        return None;
    }
    let hint = nearest
        .or_else(|| other_location(&entry.key))
        .map(|name| format!("; did you mean `{name}`?"))
        .unwrap_or_default();
    let (line, key) = (entry.line, join_key(path, &entry.key));
    Some(format!("line {line}: unknown key `{key}` is ignored{hint}").into())
}

/// The only place where a key of this name belongs; `None` if there are several.
fn other_location(name: &str) -> Option<String> {
    fn search(path: &str, table: &'static [KeySpec], name: &str, found: &mut Vec<String>) {
        for (key, shape) in table {
            let place = join_key(path, key);
            if let Map(inner) = shape
                && *key != LOCAL_SECTION
            {
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

fn is_number(node: &YamlNode, least: u32) -> bool {
    matches!(node.value, YamlValue::Int(number) if u32::try_from(number).is_ok_and(|number| number >= least))
}

fn is_fraction(value: &YamlValue) -> bool {
    match value {
        YamlValue::Int(number) => (0..=1).contains(number),
        YamlValue::Float(number) => (0.0..=1.0).contains(number),
        _ => false,
    }
}

fn check_texts(path: &str, node: &YamlNode) -> Result<(), Problem> {
    let wrong = match &node.value {
        YamlValue::List(nodes) => nodes.iter().find(|node| node.as_text().is_none()),
        _ => Some(node),
    };
    wrong.map_or(Ok(()), |node| {
        Err(wrong_type(path, node, "a list of names"))
    })
}
