//! Every key that a `ktx.yaml` may have, KTX's own and those of this program, with what each of them takes.
//!
//! One table, walked once over the document: a value of the wrong type is a fault, an unknown key a warning with the
//! nearest known name. It must not know what a key is used for. Values of connections and credentials are never quoted.

use std::collections::BTreeMap;

use super::reader::{self, Fault, join, nearest, shown, wrong};
use crate::ingest::yaml::{Entry, Node, Value};

/// What a key takes.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Anything.
    Any,
    /// Text, not empty.
    Text,
    /// Text that may be empty.
    Blank,
    /// True or false.
    Switch,
    /// A whole number, at least this.
    Whole(u32),
    /// A number between 0 and 1.
    Share,
    /// A list of texts.
    Texts,
    /// One of these words.
    Word(&'static [&'static str]),
    /// One of these words in today's KTX. Nothing here depends on it, so another one is only remarked on.
    Foreign(&'static [&'static str]),
    /// True, false or one of these words.
    SwitchOr(&'static [&'static str]),
    /// A whole number or one of these words.
    WholeOr(&'static [&'static str]),
    /// A map with exactly these keys.
    Map(&'static [Key]),
    /// A map with these keys and others; only a likely misspelling is told.
    Loose(&'static [Key]),
    /// The connections.
    Connections,
}

type Key = (&'static str, Shape);

use Shape::{Any, Blank, Connections, Foreign, Loose, Map, Share, Switch, SwitchOr, Text, Texts, Whole, WholeOr, Word};

const TOP: &[Key] = &[
    ("setup", Map(&[("database_connection_ids", Texts)])),
    ("connections", Connections),
    ("storage", Map(STORAGE)),
    ("llm", Map(LLM)),
    ("ingest", Map(INGEST)),
    ("agent", Map(&[("run_research", Map(RESEARCH))])),
    ("scan", Map(&[("enrichment", Map(ENRICHMENT)), ("relationships", Map(RELATIONSHIPS))])),
];

const STORAGE: &[Key] = &[
    ("state", Foreign(&["sqlite", "postgres"])),
    ("search", Foreign(&["sqlite-fts5", "postgres-hybrid"])),
    ("git", Map(&[("author", Text)])),
];

const LLM: &[Key] = &[
    ("provider", Map(PROVIDER)),
    ("agentRunner", Map(&[("backend", Word(super::settings::RUNNERS))])),
    ("models", Map(MODELS)),
    ("promptCaching", Map(CACHING)),
];

const PROVIDER: &[Key] = &[
    ("backend", Word(super::settings::PROVIDERS)),
    ("vertex", Map(&[("project", Text), ("location", Text)])),
    ("anthropic", Map(CREDENTIALS)),
    ("gateway", Map(CREDENTIALS)),
];

const CREDENTIALS: &[Key] = &[("api_key", Text), ("base_url", Text)];

const MODELS: &[Key] = &[
    ("default", Text),
    ("triage", Text),
    ("candidateExtraction", Text),
    ("curator", Text),
    ("reconcile", Text),
    ("repair", Text),
];

const TTL: Shape = Foreign(&["5m", "1h"]);

const CACHING: &[Key] =
    &[("enabled", Switch), ("systemTtl", TTL), ("toolsTtl", TTL), ("historyTtl", TTL), ("vertexFallbackTo5m", Switch)];

const INGEST: &[Key] = &[
    ("adapters", Texts),
    ("allowHidden", Texts),
    ("embeddings", Map(EMBEDDINGS)),
    ("workUnits", Map(WORK_UNITS)),
    ("rateLimit", Map(RATE_LIMIT)),
    ("profile", SwitchOr(&["json"])),
];

const EMBEDDINGS: &[Key] = &[
    ("backend", Foreign(&["none", "openai", "sentence-transformers"])),
    ("model", Text),
    ("dimensions", Whole(1)),
    ("openai", Map(CREDENTIALS)),
    ("sentenceTransformers", Map(&[("base_url", Blank), ("pathPrefix", Blank)])),
    ("batchSize", Whole(1)),
];

const WORK_UNITS: &[Key] =
    &[("stepBudget", Whole(1)), ("maxConcurrency", Whole(1)), ("failureMode", Word(&["abort", "continue"]))];

const RATE_LIMIT: &[Key] = &[
    ("enabled", Switch),
    ("throttleThreshold", Share),
    ("minConcurrencyUnderPressure", Whole(1)),
    ("maxWaitMs", Whole(1)),
    ("retry", Map(RETRY)),
];

const RETRY: &[Key] =
    &[("maxAttempts", Whole(1)), ("baseDelayMs", Whole(1)), ("maxDelayMs", Whole(1)), ("jitter", Switch)];

const RESEARCH: &[Key] = &[("enabled", Switch), ("max_iterations", Whole(0)), ("default_toolset", Texts)];

const ENRICHMENT: &[Key] = &[("mode", Foreign(&["none", "deterministic", "llm"])), ("embeddings", Map(EMBEDDINGS))];

const RELATIONSHIPS: &[Key] = &[
    ("enabled", Switch),
    ("llmProposals", Switch),
    ("validationRequiredForManifest", Switch),
    ("acceptThreshold", Share),
    ("reviewThreshold", Share),
    ("maxLlmTablesPerBatch", Whole(1)),
    ("maxCandidatesPerColumn", Whole(1)),
    ("profileSampleRows", Whole(1)),
    ("profileConcurrency", Whole(1)),
    ("validationConcurrency", Whole(1)),
    ("validationBudget", WholeOr(&["all"])),
    ("detectionBudgetMs", Whole(1)),
];

/// Keys that any connection may have: what this program reads of them, whatever the driver.
const CONNECTION: &[Key] = &[
    ("driver", Text),
    ("source_dir", Text),
    ("repoUrl", Text),
    ("repo_url", Text),
    ("path", Blank),
    ("branch", Text),
    ("url", Text),
];

/// Keys of a driver beside those.
fn of_driver(driver: &str) -> &'static [Key] {
    match driver {
        "dbt" => &[("auth_token_ref", Text), ("profiles_path", Blank), ("target", Text), ("project_name", Text)],
        "lookml" => &[("auth_token_ref", Text), ("mappings", Loose(&[("expectedLookerConnectionName", Text)]))],
        "metricflow" => {
            &[("metricflow", Loose(&[("repoUrl", Text), ("branch", Text), ("path", Blank), ("auth_token_ref", Text)]))]
        }
        "notion" => &[
            ("auth_token", Text),
            ("auth_token_ref", Text),
            ("crawl_mode", Foreign(&["selected_roots", "all_accessible"])),
            ("root_page_ids", Texts),
            ("root_database_ids", Texts),
            ("root_data_source_ids", Texts),
            ("max_pages_per_run", Whole(1)),
            ("max_knowledge_creates_per_run", Whole(0)),
            ("max_knowledge_updates_per_run", Whole(0)),
        ],
        "metabase" => &[
            ("api_url", Text),
            ("api_key", Text),
            ("api_key_ref", Text),
            ("network_proxy", Loose(&[])),
            ("networkProxy", Loose(&[])),
            ("mappings", Loose(&[])),
        ],
        "looker" => &[
            ("base_url", Text),
            ("client_id", Text),
            ("client_secret", Text),
            ("client_secret_ref", Text),
            ("mappings", Loose(&[])),
        ],
        "sigma" => &[
            ("api_url", Text),
            ("client_id", Text),
            ("client_secret", Text),
            ("client_secret_ref", Text),
            ("connectionMappings", Loose(&[])),
            ("workbookFilter", Loose(&[])),
            ("dataModelFilter", Loose(&[])),
        ],
        "gdrive" => &[("service_account_key_ref", Text), ("folder_id", Text), ("recursive", Switch)],
        "mongodb" => &[
            ("database", Text),
            ("databases", Texts),
            ("enabled_tables", Texts),
            ("sample_size", Whole(1)),
            ("order_by", Text),
        ],
        "postgres" | "mysql" | "snowflake" | "bigquery" | "sqlite" | "duckdb" | "clickhouse" | "sqlserver" => {
            &[("enabled_tables", Texts), ("query_timeout_ms", Whole(1)), ("context", Any)]
        }
        _ => &[],
    }
}

/// What is known of a document that holds.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// What is odd about it, one sentence each, with the line.
    pub(super) warnings: Vec<String>,
    /// Where each value is set, by dotted key; the connections apart.
    pub(super) lines: BTreeMap<String, u64>,
}

/// Holds the document against the table.
pub(super) fn check(tree: &Node) -> Result<Checked, Fault> {
    let mut checked = Checked::default();
    map("", tree, &[TOP], Strictness::Closed, &mut checked)?;
    Ok(checked)
}

/// Whether keys that nobody knows deserve a warning.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Strictness {
    Closed,
    /// Only a likely misspelling does.
    Open,
}

fn map(
    path: &str,
    node: &Node,
    tables: &[&'static [Key]],
    strictness: Strictness,
    checked: &mut Checked,
) -> Result<(), Fault> {
    for entry in entries(path, node)? {
        match tables.iter().copied().flatten().find(|(name, _)| *name == entry.key) {
            Some((_, shape)) => value(&join(path, &entry.key), &entry.value, *shape, checked)?,
            None => checked.warnings.extend(unknown(path, entry, tables, strictness)),
        }
    }
    Ok(())
}

fn entries<'a>(path: &str, node: &'a Node) -> Result<&'a [Entry], Fault> {
    match &node.value {
        Value::Map(entries) => Ok(entries),
        Value::Null => Ok(&[]),
        _ => Err(wrong(path, node, "a map of keys")),
    }
}

fn unknown(path: &str, entry: &Entry, tables: &[&'static [Key]], strictness: Strictness) -> Option<String> {
    let names: Vec<_> = tables.iter().copied().flatten().map(|(name, _)| *name).collect();
    let hint = match (nearest(&entry.key, &names), strictness) {
        (Some(name), _) => format!("; did you mean `{name}`?"),
        (None, Strictness::Open) => return None,
        (None, Strictness::Closed) => {
            elsewhere(&entry.key).map(|place| format!("; did you mean `{place}`?")).unwrap_or_default()
        }
    };
    Some(format!("line {}: unknown key `{}` is ignored{hint}", entry.line, join(path, &entry.key)))
}

/// The one place where a key of this name belongs, if there is just one.
fn elsewhere(name: &str) -> Option<String> {
    fn search(path: &str, table: &'static [Key], name: &str, found: &mut Vec<String>) {
        for (key, shape) in table {
            let place = join(path, key);
            if let Map(inner) = shape {
                search(&place, inner, name, found);
            }
            if *key == name {
                found.push(place);
            }
        }
    }
    let mut found = Vec::new();
    search("", TOP, name, &mut found);
    let only = found.pop();
    if found.is_empty() { only } else { None }
}

fn value(path: &str, node: &Node, shape: Shape, checked: &mut Checked) -> Result<(), Fault> {
    // An empty value counts as absent.
    if node.value == Value::Null {
        return Ok(());
    }
    let number = |least: u32| matches!(&node.value, Value::Int(number) if u32::try_from(*number).is_ok_and(|number| number >= least));
    let word = |words: &[&str]| matches!(&node.value, Value::Text(text) if words.contains(&text.as_str()));
    if !matches!(shape, Map(_) | Loose(_) | Connections) && !path.starts_with("connections.") {
        checked.lines.insert(path.to_owned(), node.line);
    }
    let expected = match shape {
        Any => return Ok(()),
        Map(keys) => return map(path, node, &[keys], Strictness::Closed, checked),
        Loose(keys) => return map(path, node, &[keys], Strictness::Open, checked),
        Connections => return connections(node, checked),
        Text if matches!(&node.value, Value::Text(text) if !text.trim().is_empty()) => return Ok(()),
        Blank if matches!(&node.value, Value::Text(_)) => return Ok(()),
        Text | Blank => "text".to_owned(),
        Switch | SwitchOr(_) if matches!(&node.value, Value::Bool(_)) => return Ok(()),
        Switch => "true or false".to_owned(),
        SwitchOr(words) | WholeOr(words) | Word(words) if word(words) => return Ok(()),
        SwitchOr(words) => format!("true, false or {}", words.join(", ")),
        Whole(least) if number(least) => return Ok(()),
        WholeOr(_) if number(0) => return Ok(()),
        Whole(least) => format!("a whole number, {least} or more"),
        WholeOr(words) => format!("a whole number or {}", words.join(", ")),
        Share if is_share(&node.value) => return Ok(()),
        Share => "a number between 0 and 1".to_owned(),
        Texts => return texts(path, node),
        Word(words) => format!("one of {}", words.join(", ")),
        Foreign(words) => match &node.value {
            Value::Text(text) => {
                if !words.contains(&text.as_str()) {
                    let text = shown(text);
                    checked.warnings.push(format!("line {}: {path} is `{text}`, which has no meaning here", node.line));
                }
                return Ok(());
            }
            _ => format!("one of {}", words.join(", ")),
        },
    };
    Err(wrong(path, node, &expected))
}

fn is_share(value: &Value) -> bool {
    match value {
        Value::Int(number) => (0..=1).contains(number),
        Value::Float(number) => (0.0..=1.0).contains(number),
        _ => false,
    }
}

fn texts(path: &str, node: &Node) -> Result<(), Fault> {
    let Value::List(nodes) = &node.value else { return Err(wrong(path, node, "a list of names")) };
    match nodes.iter().find(|node| !matches!(&node.value, Value::Text(_))) {
        Some(node) => Err(wrong(path, node, "a list of names")),
        None => Ok(()),
    }
}

fn connections(node: &Node, checked: &mut Checked) -> Result<(), Fault> {
    for entry in entries("connections", node)? {
        reader::connection_id(entry)?;
        let path = join("connections", &entry.key);
        let fields = entries(&path, &entry.value).map_err(|fault| Fault {
            problem: format!("{}; as in `{}: {{driver: docs, source_dir: PATH}}`", fault.problem, entry.key),
            ..fault
        })?;
        let driver = fields.iter().find(|field| field.key == "driver");
        let driver = match driver.map(|field| &field.value.value) {
            Some(Value::Text(driver)) => driver.as_str(),
            _ => "",
        };
        map(&path, &entry.value, &[CONNECTION, of_driver(driver)], Strictness::Open, checked)?;
    }
    Ok(())
}
