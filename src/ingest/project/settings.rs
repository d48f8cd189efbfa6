//! What the keys of `ktx.yaml` mean, with KTX's defaults.
//!
//! A wrong type is a fault with its line; an unknown key is a warning. It must not read files.

use std::{collections::BTreeMap, sync::LazyLock};

use regex_lite::Regex;

use super::reader::{Fault, Keys, Section, nearest, shown};
use crate::ingest::{source, yaml::Node};

/// Settings of a project.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Connections, in the order of the file.
    pub connections: Vec<Connection>,
    /// What runs the units.
    pub backend: Backend,
    /// Models by role.
    pub models: BTreeMap<Role, String>,
    /// Adapters that may run; `None` means all.
    pub adapters: Option<Vec<String>>,
    /// How units run.
    pub work_units: WorkUnits,
    /// How limits of the service are met.
    pub rate_limit: RateLimit,
}

/// One connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// Its key.
    pub id: String,
    /// Its driver, if it names one.
    pub driver: Option<String>,
    /// Where its files are.
    pub source: Option<SourceAt>,
    /// Folder inside the source, if only a part is meant, or the file of a database (`path`).
    pub subdir: Option<String>,
    /// `url` of a database.
    pub url: Option<String>,
    /// `mappings.expectedLookerConnectionName`: models that name another connection may not write sources.
    pub looker_connection: Option<String>,
}

/// Where the files of a connection are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceAt {
    /// `source_dir`: a directory, relative to the project.
    Dir(String),
    /// `repoUrl` or `repo_url`.
    Url(String),
}

/// What runs the units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Claude Code, also when the file does not say.
    #[default]
    ClaudeCode,
    /// A backend of KTX that does not run here.
    Other {
        /// The key that says so.
        key: &'static str,
        /// Its value.
        name: String,
        /// Where.
        line: u64,
    },
}

/// What a model is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Whatever has no model of its own.
    Default,
    /// Sorting pages before the units.
    Triage,
    /// Work units.
    CandidateExtraction,
    /// Curation of documents.
    Curator,
    /// The pass after the units.
    Reconcile,
    /// Mending of conflicts.
    Repair,
}

impl Role {
    const ALL: [(&'static str, Self); 6] = [
        ("default", Self::Default),
        ("triage", Self::Triage),
        ("candidateExtraction", Self::CandidateExtraction),
        ("curator", Self::Curator),
        ("reconcile", Self::Reconcile),
        ("repair", Self::Repair),
    ];
}

/// `ingest.workUnits`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkUnits {
    /// Turns of one attempt.
    pub step_budget: u32,
    /// Units that may run at once.
    pub max_concurrency: u32,
    /// What a failed unit means for the others.
    pub failure_mode: FailureMode,
}

impl Default for WorkUnits {
    fn default() -> Self {
        Self { step_budget: 40, max_concurrency: 1, failure_mode: FailureMode::Continue }
    }
}

/// What a failed unit means for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailureMode {
    /// Nothing new is started.
    Abort,
    /// Nothing.
    #[default]
    Continue,
}

impl FailureMode {
    /// As `ktx.yaml` spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Abort => "abort",
            Self::Continue => "continue",
        }
    }
}

/// `ingest.rateLimit`.
#[derive(Clone, Debug, PartialEq)]
pub struct RateLimit {
    /// Whether limits pace the run at all.
    pub enabled: bool,
    /// Share of a usage window from which on fewer units run.
    pub throttle_threshold: f64,
    /// Units that may run then.
    pub min_concurrency_under_pressure: u32,
    /// Longest single wait, in milliseconds.
    pub max_wait_ms: Option<u32>,
    /// Retries after a refusal.
    pub retry: Retry,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self {
            enabled: true,
            throttle_threshold: 0.8,
            min_concurrency_under_pressure: 1,
            max_wait_ms: None,
            retry: Retry::default(),
        }
    }
}

/// `ingest.rateLimit.retry`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Tries in all, the first included.
    pub max_attempts: u32,
    /// First wait, in milliseconds.
    pub base_delay_ms: u32,
    /// Longest wait, in milliseconds.
    pub max_delay_ms: u32,
    /// Whether waits vary at random.
    pub jitter: bool,
}

impl Default for Retry {
    fn default() -> Self {
        Self { max_attempts: 6, base_delay_ms: 1_000, max_delay_ms: 60_000, jitter: true }
    }
}

impl Settings {
    /// The model of `role`, else the default one; `None` leaves the choice to Claude Code.
    pub fn model(&self, role: Role) -> Option<&str> {
        self.models.get(&role).or_else(|| self.models.get(&Role::Default)).map(String::as_str)
    }
}

const TOP: &[&str] = &["setup", "connections", "storage", "llm", "ingest", "agent", "scan"];
const LLM: &[&str] = &["provider", "agentRunner", "models", "promptCaching"];
const PROMPT_CACHING: &[&str] = &["enabled", "systemTtl", "toolsTtl", "historyTtl", "vertexFallbackTo5m"];
const INGEST: &[&str] = &["adapters", "embeddings", "workUnits", "rateLimit", "profile"];
const WORK_UNITS: &[&str] = &["stepBudget", "maxConcurrency", "failureMode"];
const RATE_LIMIT: &[&str] = &["enabled", "throttleThreshold", "minConcurrencyUnderPressure", "maxWaitMs", "retry"];
const RETRY: &[&str] = &["maxAttempts", "baseDelayMs", "maxDelayMs", "jitter"];
const CONNECTION: &[&str] =
    &["driver", "source_dir", "repoUrl", "repo_url", "path", "branch", "url", "mappings", "metricflow"];

/// Reads the tree of a `ktx.yaml`; the second part are warnings.
pub(super) fn read(tree: &Node) -> Result<(Settings, Vec<String>), Fault> {
    let mut warnings = Vec::new();
    let top = Section::new("", tree, TOP, Keys::Closed, &mut warnings)?;
    let llm = top.section("llm", LLM, Keys::Closed, &mut warnings)?;
    llm.section("promptCaching", PROMPT_CACHING, Keys::Closed, &mut warnings)?;
    let ingest = top.section("ingest", INGEST, Keys::Closed, &mut warnings)?;
    let settings = Settings {
        connections: connections(&top, &mut warnings)?,
        backend: backend(&llm, &mut warnings)?,
        models: models(&llm, &mut warnings)?,
        adapters: adapters(&ingest, &mut warnings)?,
        work_units: work_units(&ingest, &mut warnings)?,
        rate_limit: rate_limit(&ingest, &mut warnings)?,
    };
    Ok((settings, warnings))
}

fn connections(top: &Section<'_>, warnings: &mut Vec<String>) -> Result<Vec<Connection>, Fault> {
    static ID: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("^[a-zA-Z0-9][a-zA-Z0-9_-]*$").ok());
    let Some(node) = top.get("connections") else { return Ok(Vec::new()) };
    let section = Section::new("connections", node, &[], Keys::Open, warnings)?;
    section
        .entries()
        .map(|entry| {
            let id = entry.key.as_str();
            if !ID.as_ref().is_some_and(|regex| regex.is_match(id)) {
                let problem = format!(
                    "`{}` is no connection id; use letters, digits, `-` and `_`, starting with a letter or digit",
                    shown(id)
                );
                return Err(Fault { line: entry.line, problem });
            }
            connection(id, &entry.value, warnings)
        })
        .collect()
}

fn connection(id: &str, node: &Node, warnings: &mut Vec<String>) -> Result<Connection, Fault> {
    let section = Section::new(&format!("connections.{id}"), node, CONNECTION, Keys::Open, warnings)?;
    let text = |key| Ok(section.text(key)?.map(|(text, _)| text.to_owned()));
    let url = match text("repoUrl")? {
        Some(url) => Some(url),
        None => text("repo_url")?,
    };
    // KTX keeps the repository of a MetricFlow connection in a section of its own.
    let flow = section.section("metricflow", &["repoUrl", "branch", "path"], Keys::Open, warnings)?;
    let flow_text = |key| Ok(flow.text(key)?.map(|(text, _)| text.to_owned()));
    let url = url.or(flow_text("repoUrl")?);
    let mappings = section.section("mappings", &["expectedLookerConnectionName"], Keys::Open, warnings)?;
    Ok(Connection {
        id: id.to_owned(),
        driver: text("driver")?,
        source: text("source_dir")?.map(SourceAt::Dir).or(url.map(SourceAt::Url)),
        subdir: text("path")?.or(flow_text("path")?),
        url: text("url")?,
        looker_connection: mappings.text("expectedLookerConnectionName")?.map(|(name, _)| name.to_owned()),
    })
}

/// The seeds put the choice in `llm.agentRunner`, KTX in `llm.provider`. The runner is the more exact of the two.
fn backend(llm: &Section<'_>, warnings: &mut Vec<String>) -> Result<Backend, Fault> {
    const PROVIDERS: &[(&str, &str)] = &[
        ("none", "none"),
        ("anthropic", "anthropic"),
        ("vertex", "vertex"),
        ("gateway", "gateway"),
        ("claude-code", "claude-code"),
        ("codex", "codex"),
    ];
    const RUNNERS: &[(&str, &str)] = &[("claude-code", "claude-code"), ("ai-sdk", "ai-sdk")];
    let provider = llm.section("provider", &["backend"], Keys::Open, warnings)?.choice("backend", PROVIDERS)?;
    let runner = llm.section("agentRunner", &["backend"], Keys::Closed, warnings)?.choice("backend", RUNNERS)?;
    let (key, (name, line)) = match (runner, provider) {
        (Some(found), _) => ("llm.agentRunner.backend", found),
        (None, Some(found)) => ("llm.provider.backend", found),
        (None, None) => return Ok(Backend::ClaudeCode),
    };
    match name {
        "claude-code" => Ok(Backend::ClaudeCode),
        other => Ok(Backend::Other { key, name: other.to_owned(), line }),
    }
}

fn models(llm: &Section<'_>, warnings: &mut Vec<String>) -> Result<BTreeMap<Role, String>, Fault> {
    let names = Role::ALL.map(|(name, _)| name);
    let section = llm.section("models", &names, Keys::Closed, warnings)?;
    let mut models = BTreeMap::new();
    for (name, role) in Role::ALL {
        if let Some((model, _)) = section.text(name)? {
            models.insert(role, model.to_owned());
        }
    }
    Ok(models)
}

/// Adapters of KTX that may stand in `ingest.adapters` whether or not they exist here.
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

fn adapters(ingest: &Section<'_>, warnings: &mut Vec<String>) -> Result<Option<Vec<String>>, Fault> {
    let Some(names) = ingest.texts("adapters")? else { return Ok(None) };
    let known: Vec<&str> = source::names().chain(KTX_ADAPTERS.iter().copied()).collect();
    for (name, line) in names.iter().filter(|(name, _)| !known.contains(name)) {
        let hint = nearest(name, &known).map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
        warnings.push(format!("line {line}: ingest.adapters names `{}`, which nobody knows{hint}", shown(name)));
    }
    let names: Vec<_> = names.into_iter().map(|(name, _)| name.to_owned()).collect();
    Ok((!names.is_empty()).then_some(names))
}

fn work_units(ingest: &Section<'_>, warnings: &mut Vec<String>) -> Result<WorkUnits, Fault> {
    let section = ingest.section("workUnits", WORK_UNITS, Keys::Closed, warnings)?;
    let default = WorkUnits::default();
    let modes = [("abort", FailureMode::Abort), ("continue", FailureMode::Continue)];
    Ok(WorkUnits {
        step_budget: section.whole("stepBudget", 1)?.unwrap_or(default.step_budget),
        max_concurrency: section.whole("maxConcurrency", 1)?.unwrap_or(default.max_concurrency),
        failure_mode: section.choice("failureMode", &modes)?.map_or(default.failure_mode, |(mode, _)| mode),
    })
}

fn rate_limit(ingest: &Section<'_>, warnings: &mut Vec<String>) -> Result<RateLimit, Fault> {
    let section = ingest.section("rateLimit", RATE_LIMIT, Keys::Closed, warnings)?;
    let retry = section.section("retry", RETRY, Keys::Closed, warnings)?;
    let default = RateLimit::default();
    Ok(RateLimit {
        enabled: section.boolean("enabled")?.unwrap_or(default.enabled),
        throttle_threshold: section.share("throttleThreshold")?.unwrap_or(default.throttle_threshold),
        min_concurrency_under_pressure: section
            .whole("minConcurrencyUnderPressure", 1)?
            .unwrap_or(default.min_concurrency_under_pressure),
        max_wait_ms: section.whole("maxWaitMs", 0)?,
        retry: Retry {
            max_attempts: retry.whole("maxAttempts", 1)?.unwrap_or(default.retry.max_attempts),
            base_delay_ms: retry.whole("baseDelayMs", 0)?.unwrap_or(default.retry.base_delay_ms),
            max_delay_ms: retry.whole("maxDelayMs", 0)?.unwrap_or(default.retry.max_delay_ms),
            jitter: retry.boolean("jitter")?.unwrap_or(default.retry.jitter),
        },
    })
}
