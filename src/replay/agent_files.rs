//! Finds the transcripts of a session's sub-agents and workflow runs, and names their units.
//!
//! The files are untrusted: links are not followed, and names, numbers and sizes are bounded. Must not read the
//! transcripts; [`super::session_tape`] merges them.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::File,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::scoped_dir::{FileKind, ScopedDir};

/// Maximum number of transcripts of one session.
const MAX_AGENTS: usize = 1000;
/// Maximum number of workflow runs of one session.
const MAX_WORKFLOWS: usize = 100;
/// Maximum size of a description of a sub-agent.
const MAX_META_BYTES: u64 = 64 << 10;
/// Maximum size of a workflow's journal and of its result.
const MAX_JOURNAL_BYTES: u64 = 16 << 20;
/// Maximum length of the name of a unit in characters.
const MAX_NAME_CHARS: usize = 80;

/// The transcript of one sub-agent.
#[derive(Debug)]
pub(super) struct AgentFile {
    pub(super) file: File,
    /// `agentId` in its lines.
    pub(super) agent: String,
    pub(super) unit: String,
    /// Number of the attempt: a workflow starts an agent again after a failure.
    pub(super) attempt: u32,
}

/// The directory next to a session file with the same name.
#[derive(Debug)]
pub(super) struct AgentFiles {
    /// The directory of the session file.
    parent: PathBuf,
    /// Name of the session file without its extension.
    session: String,
    /// Transcripts that were found, as paths below the directory.
    known: HashSet<String>,
    /// Units by the key of a call in a journal, or by the id of an agent outside of workflows.
    units: HashMap<String, String>,
    used_names: HashSet<String>,
    has_overflowed: bool,
}

/// What a search found.
#[derive(Debug, Default)]
pub(super) struct FoundAgents {
    pub(super) files: Vec<AgentFile>,
    /// One sentence per problem.
    pub(super) problems: Vec<String>,
}

/// The content of `agent-….meta.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AgentMeta {
    description: Option<String>,
    agent_type: Option<String>,
}

/// One line of a workflow's journal.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JournalLine {
    r#type: String,
    key: Option<String>,
    agent_id: Option<String>,
    label: Option<String>,
}

/// The calls of a workflow run, in the order of their first starts.
#[derive(Debug, Default)]
struct Journal {
    /// Per call: its key, its label, and the agents that it started.
    calls: Vec<(String, Option<String>, Vec<String>)>,
}

impl AgentFiles {
    /// The files of the session in `path`.
    pub(super) fn new(path: &Path) -> Option<Self> {
        let session = path.file_stem()?.to_str()?.to_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(Self {
            parent: parent.to_owned(),
            session,
            known: HashSet::new(),
            units: HashMap::new(),
            used_names: HashSet::new(),
            has_overflowed: false,
        })
    }

    /// Finds transcripts that earlier calls did not find. Without a directory there are none.
    pub(super) fn find_new(&mut self) -> FoundAgents {
        let mut found = FoundAgents::default();
        let opened = ScopedDir::open(&self.parent).and_then(|parent| parent.dir_if_exists(&self.session));
        let Ok(Some(root)) = opened else { return found };
        if let Ok(Some(agents)) = root.dir_if_exists("subagents") {
            self.find_in(&agents, "", None, &mut found);
        }
        let runs = root.dir_if_exists("subagents/workflows").ok().flatten();
        let mut names: Vec<String> = runs.as_ref().map(directories).unwrap_or_default();
        if names.len() > MAX_WORKFLOWS && !std::mem::replace(&mut self.has_overflowed, true) {
            found.problems.push(format!("only {MAX_WORKFLOWS} of {} workflow runs are shown", names.len()));
        }
        names.truncate(MAX_WORKFLOWS);
        for (run, dir) in names.iter().filter_map(|run| Some((run, runs.as_ref()?.dir(run, None).ok()?))) {
            let journal = dir.read_if_exists("journal.jsonl", MAX_JOURNAL_BYTES).ok().flatten();
            let journal = Journal::parse(&journal.unwrap_or_default());
            let name = workflow_name(&root, run);
            self.find_in(&dir, &format!("workflows/{run}/"), Some((&name, &journal)), &mut found);
        }
        found
    }

    /// Finds the transcripts in one directory.
    fn find_in(&mut self, dir: &ScopedDir, prefix: &str, workflow: Option<(&str, &Journal)>, found: &mut FoundAgents) {
        let mut listed: Vec<(i64, String)> = Vec::new();
        for (name, kind) in dir.entries().unwrap_or_default() {
            let Some(agent) = name.to_str().and_then(agent_id) else { continue };
            if self.known.contains(&format!("{prefix}{agent}")) {
                continue;
            }
            match (kind, name.to_str().and_then(|name| dir.entry_stat(name).ok())) {
                (FileKind::File, Some(stat)) => listed.push((stat.st_mtime, agent.to_owned())),
                (FileKind::Symlink, _) => {
                    self.known.insert(format!("{prefix}{agent}"));
                    found
                        .problems
                        .push(format!("the transcript of sub-agent `{agent}` is a symbolic link, so it is not shown"));
                }
                _ => {}
            }
        }
        listed.sort();
        for (_, agent) in listed {
            if self.known.len() >= MAX_AGENTS {
                if !std::mem::replace(&mut self.has_overflowed, true) {
                    found.problems.push(format!("only {MAX_AGENTS} sub-agents are shown"));
                }
                return;
            }
            // It may have been deleted since it was listed.
            let Ok((file, _)) = dir.open_entry(&format!("agent-{agent}.jsonl")) else { continue };
            self.known.insert(format!("{prefix}{agent}"));
            let meta = dir.read_if_exists(&format!("agent-{agent}.meta.json"), MAX_META_BYTES).ok().flatten();
            let meta: AgentMeta = serde_json::from_slice(&meta.unwrap_or_default()).unwrap_or_default();
            let (unit, attempt) = self.unit_of(&agent, meta, workflow);
            found.files.push(AgentFile { file, agent, unit, attempt });
        }
        self.report_missing(prefix, workflow, found);
    }

    /// Reports agents in the journal that have no transcript.
    fn report_missing(&mut self, prefix: &str, workflow: Option<(&str, &Journal)>, found: &mut FoundAgents) {
        let Some((name, journal)) = workflow else { return };
        for (_, label, agents) in &journal.calls {
            for agent in agents {
                if self.known.len() < MAX_AGENTS && self.known.insert(format!("{prefix}{agent}")) {
                    let label = label.as_deref().unwrap_or(agent);
                    found
                        .problems
                        .push(format!("the transcript of `{}` is missing", unit_name(&format!("{name}: {label}"))));
                }
            }
        }
    }

    /// Unit and attempt of an agent.
    fn unit_of(&mut self, agent: &str, meta: AgentMeta, workflow: Option<(&str, &Journal)>) -> (String, u32) {
        let name =
            |meta: AgentMeta| meta.description.or(meta.agent_type).unwrap_or_else(|| format!("sub-agent {agent}"));
        let Some((workflow, journal)) = workflow else {
            let name = name(meta);
            return (self.unique_unit(agent, &name), 1);
        };
        let call = journal.calls.iter().find_map(|(key, label, agents)| {
            let attempt = agents.iter().position(|started| started == agent)?;
            Some((key, label.clone(), attempt))
        });
        match call {
            Some((key, label, attempt)) => {
                let label = label.unwrap_or_else(|| name(meta));
                let unit = self.unique_unit(key, &format!("{workflow}: {label}"));
                (unit, u32::try_from(attempt).unwrap_or(u32::MAX).saturating_add(1))
            }
            None => {
                let label = name(meta);
                (self.unique_unit(agent, &format!("{workflow}: {label}")), 1)
            }
        }
    }

    /// The unit of the call or agent with this key. Two units never share a name.
    pub(super) fn unique_unit(&mut self, key: &str, name: &str) -> String {
        if let Some(known) = self.units.get(key) {
            return known.clone();
        }
        let name = unit_name(name);
        let mut unit = name.clone();
        let mut number = 2;
        while !self.used_names.insert(unit.clone()) {
            unit = format!("{name} ({number})");
            number += 1;
        }
        self.units.insert(key.to_owned(), unit.clone());
        unit
    }
}

impl Journal {
    fn parse(bytes: &[u8]) -> Self {
        let mut journal = Self::default();
        let mut positions: BTreeMap<String, usize> = BTreeMap::new();
        let lines = bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        for JournalLine { r#type, key, agent_id, label } in lines {
            let (true, Some(key), Some(agent)) = (r#type == "started", key, agent_id) else { continue };
            let position = *positions.entry(key.clone()).or_insert(journal.calls.len());
            if position == journal.calls.len() {
                journal.calls.push((key, None, Vec::new()));
            }
            let (_, known, agents) = &mut journal.calls[position];
            *known = label.or_else(|| known.take());
            if !agents.contains(&agent) && agents.len() < MAX_AGENTS {
                agents.push(agent);
            }
        }
        journal
    }
}

/// The id of an agent from the name of its transcript.
fn agent_id(name: &str) -> Option<&str> {
    let id = name.strip_prefix("agent-")?.strip_suffix(".jsonl")?;
    (!id.is_empty() && id.len() <= MAX_NAME_CHARS).then_some(id)
}

fn directories(dir: &ScopedDir) -> Vec<String> {
    let entries = dir.entries().unwrap_or_default().into_iter();
    let names =
        entries.filter(|(_, kind)| *kind == FileKind::Directory).filter_map(|(name, _)| name.into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// The name of a workflow: in its result, or before its end in the name of its script.
fn workflow_name(root: &ScopedDir, run: &str) -> String {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct WorkflowResult {
        workflow_name: String,
    }
    let result = root.read_if_exists(&format!("workflows/{run}.json"), MAX_JOURNAL_BYTES).ok().flatten();
    if let Some(result) = result.and_then(|json| serde_json::from_slice::<WorkflowResult>(&json).ok()) {
        return result.workflow_name;
    }
    let scripts = root.dir_if_exists("workflows/scripts").ok().flatten();
    let scripts = scripts.and_then(|scripts| scripts.entries().ok()).unwrap_or_default();
    let suffix = format!("-{run}.js");
    let name = scripts.iter().find_map(|(name, _)| name.to_str()?.strip_suffix(&suffix));
    name.unwrap_or(run).to_owned()
}

/// A name without line breaks and control characters, bounded.
fn unit_name(name: &str) -> String {
    let words = name.split(|char: char| char.is_whitespace() || char.is_control()).filter(|word| !word.is_empty());
    let name = words.collect::<Vec<_>>().join(" ");
    match name.char_indices().nth(MAX_NAME_CHARS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None if name.is_empty() => "unnamed".to_owned(),
        None => name,
    }
}
