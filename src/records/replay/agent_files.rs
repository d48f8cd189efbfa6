//! Finds the transcripts of a session's sub-agents and workflow runs, and names their units.
//!
//! The files are untrusted: links are not followed, and names, numbers and sizes are bounded. It reads
//! transcripts only for the calls that started other agents; [`super::session_tape`] merges them.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::File,
    io,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::file_lines::read_range;
use ingestdeck_core::decode::{self, LineBody, MessageBlock};
use ingestdeck_os::scoped_dir::{FileKind, ScopedDir};

/// Maximum number of transcripts of one session.
pub(super) const MAX_AGENTS: usize = 1000;
/// Maximum number of workflow runs of one session.
const MAX_WORKFLOWS: usize = 100;
/// Maximum size of a description of a sub-agent.
const MAX_META_BYTES: u64 = 64 << 10;
/// Maximum size of a workflow's journal and of its result.
const MAX_JOURNAL_BYTES: u64 = 16 << 20;
/// Bytes of a transcript that are searched for the calls that started other agents.
const MAX_CALLER_BYTES: usize = 16 << 20;
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
    /// Transcripts that were opened, as paths below the directory.
    known: HashSet<String>,
    /// Paths whose problem was reported. Their transcripts may still appear.
    reported: HashSet<String>,
    /// Units by the call in a workflow's journal, or by the agent.
    units: HashMap<String, String>,
    /// Names of units, each with the number of the next unit that would have the same name.
    used_names: HashMap<String, u32>,
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
    /// The call that started it.
    tool_use_id: Option<String>,
    /// 1 for an agent of the session, 2 for an agent of such an agent.
    spawn_depth: Option<u32>,
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
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        Some(Self {
            parent: parent.to_owned(),
            session,
            known: HashSet::new(),
            reported: HashSet::new(),
            units: HashMap::new(),
            used_names: HashMap::new(),
        })
    }

    /// Finds transcripts that earlier calls did not find. Without a directory there are none. Only the last search reports
    /// missing transcripts, because the file of an agent may appear after its entry in the journal.
    pub(super) fn find_new(&mut self, is_last: bool) -> FoundAgents {
        let mut found = FoundAgents::default();
        let Ok(parent) = ScopedDir::open(&self.parent) else {
            return found;
        };
        let opened = parent.dir_if_exists(&self.session);
        // A session file without an extension has the name of the directory.
        if opened.is_err() && parent.is_file(&self.session) {
            return found;
        }
        let Some(root) = self.opened("", opened, &mut found) else {
            return found;
        };
        if let Some(agents) = self.opened("subagents", root.dir_if_exists("subagents"), &mut found)
        {
            let listed = self.list_unknown(&agents, "", &mut found);
            self.open_listed(&agents, "", listed, None, &mut found);
        }
        let runs = self.opened(
            "subagents/workflows",
            root.dir_if_exists("subagents/workflows"),
            &mut found,
        );
        let mut names: Vec<String> = runs.as_ref().map(directories).unwrap_or_default();
        if names.len() > MAX_WORKFLOWS {
            let problem = format!(
                "only {MAX_WORKFLOWS} of {} workflow runs are shown",
                names.len()
            );
            self.report("workflows/", problem, &mut found);
        }
        names.truncate(MAX_WORKFLOWS);
        for (run, runs) in names.iter().filter_map(|run| Some((run, runs.as_ref()?))) {
            let prefix = format!("workflows/{run}/");
            let Some(dir) = self.opened(&prefix, runs.dir_if_exists(run), &mut found) else {
                continue;
            };
            let listed = self.list_unknown(&dir, &prefix, &mut found);
            if listed.is_empty() && !is_last {
                continue;
            }
            let journal = dir.read_if_exists("journal.jsonl", MAX_JOURNAL_BYTES);
            let journal = self.opened(&format!("{prefix}journal.jsonl"), journal, &mut found);
            let journal = Journal::parse(&journal.unwrap_or_default());
            let name = workflow_name(&root, run);
            self.open_listed(&dir, &prefix, listed, Some((&name, &journal)), &mut found);
            if is_last {
                self.report_missing(&prefix, &name, &journal, &mut found);
            }
        }
        found
    }

    /// Reports a problem of the path, unless one was reported before.
    fn report(&mut self, path: &str, problem: String, found: &mut FoundAgents) {
        if self.reported.len() < MAX_AGENTS && self.reported.insert(path.to_owned()) {
            found.problems.push(problem);
        }
    }

    /// The result of opening `path`. An error is reported.
    fn opened<T>(
        &mut self,
        path: &str,
        result: io::Result<Option<T>>,
        found: &mut FoundAgents,
    ) -> Option<T> {
        result.unwrap_or_else(|error| {
            let shown = format!("{}/{path}", self.session);
            self.report(
                path,
                format!("cannot read `{}`: {error}", shown.trim_end_matches('/')),
                found,
            );
            None
        })
    }

    /// The agents in one directory whose transcripts are not open, oldest first.
    fn list_unknown(
        &mut self,
        dir: &ScopedDir,
        prefix: &str,
        found: &mut FoundAgents,
    ) -> Vec<(i64, String)> {
        let mut listed: Vec<(i64, String)> = Vec::new();
        let entries = dir.entries().map(Some);
        for (name, kind) in self
            .opened(&format!("{prefix}*"), entries, found)
            .unwrap_or_default()
        {
            let Some(agent) = name.to_str().and_then(agent_id) else {
                continue;
            };
            let path = format!("{prefix}{agent}");
            if self.known.contains(&path) {
                continue;
            }
            match (
                kind,
                name.to_str().and_then(|name| dir.entry_stat(name).ok()),
            ) {
                (FileKind::File, Some(stat)) => listed.push((stat.st_mtime, agent.to_owned())),
                (FileKind::Symlink, _) => {
                    let problem = format!(
                        "the transcript of sub-agent `{agent}` is a symbolic link, so it is not shown"
                    );
                    self.report(&path, problem, found);
                }
                _ => {}
            }
        }
        if !listed.is_empty() && self.known.len() >= MAX_AGENTS {
            self.report(
                "agents/",
                format!("only {MAX_AGENTS} sub-agents are shown"),
                found,
            );
            return Vec::new();
        }
        listed.sort();
        listed
    }

    /// Opens transcripts in one directory.
    fn open_listed(
        &mut self,
        dir: &ScopedDir,
        prefix: &str,
        listed: Vec<(i64, String)>,
        workflow: Option<(&str, &Journal)>,
        found: &mut FoundAgents,
    ) {
        let mut opened = Vec::new();
        for (_, agent) in listed {
            if self.known.len() >= MAX_AGENTS {
                self.report(
                    "agents/",
                    format!("only {MAX_AGENTS} sub-agents are shown"),
                    found,
                );
                break;
            }
            let path = format!("{prefix}{agent}");
            let file = match dir.open_entry(&format!("agent-{agent}.jsonl")) {
                Ok((file, _)) => file,
                // It was deleted after it was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    let problem =
                        format!("cannot read the transcript of sub-agent `{agent}`: {error}");
                    self.report(&path, problem, found);
                    continue;
                }
            };
            self.known.insert(path);
            let meta = dir
                .read_if_exists(&format!("agent-{agent}.meta.json"), MAX_META_BYTES)
                .ok()
                .flatten();
            let meta: AgentMeta =
                serde_json::from_slice(&meta.unwrap_or_default()).unwrap_or_default();
            opened.push((agent, file, meta));
        }
        // The unit of an agent's parent comes before its own.
        opened.sort_by_key(|(.., meta)| meta.spawn_depth);
        let mut callers = CallingUnits::default();
        for (agent, file, mut meta) in opened {
            let caller = meta
                .tool_use_id
                .as_deref()
                .filter(|_| meta.spawn_depth > Some(1))
                .and_then(|call| callers.unit_of_call(&found.files, call));
            if let Some(caller) = caller {
                let name = agent_name(&meta, &agent);
                meta.description = Some(format!("{caller} › {name}"));
            }
            let (unit, attempt) = self.unit_of(prefix, &agent, meta, workflow);
            found.files.push(AgentFile {
                file,
                agent,
                unit,
                attempt,
            });
        }
    }

    /// Reports agents in the journal that have no transcript.
    fn report_missing(
        &mut self,
        prefix: &str,
        name: &str,
        journal: &Journal,
        found: &mut FoundAgents,
    ) {
        for (_, label, agents) in &journal.calls {
            for agent in agents {
                let path = format!("{prefix}{agent}");
                if self.known.len() < MAX_AGENTS && !self.known.contains(&path) {
                    let unit = unit_name(&format!("{name}: {}", label.as_deref().unwrap_or(agent)));
                    self.report(
                        &path,
                        format!("the transcript of `{unit}` is missing"),
                        found,
                    );
                }
            }
        }
    }

    /// Unit and attempt of an agent. Two runs of one workflow have the same calls, so the run is part of the key.
    fn unit_of(
        &mut self,
        prefix: &str,
        agent: &str,
        meta: AgentMeta,
        workflow: Option<(&str, &Journal)>,
    ) -> (String, u32) {
        let agent_key = format!("{prefix}agent/{agent}");
        let name = |meta: AgentMeta| agent_name(&meta, agent);
        let Some((workflow, journal)) = workflow else {
            let name = name(meta);
            return (self.unique_unit(&agent_key, &name), 1);
        };
        let call = journal.calls.iter().find_map(|(key, label, agents)| {
            let attempt = agents.iter().position(|started| started == agent)?;
            Some((key, label.clone(), attempt))
        });
        match call {
            Some((key, label, attempt)) => {
                let label = label.unwrap_or_else(|| name(meta));
                let unit = self.unique_unit(
                    &format!("{prefix}call/{key}"),
                    &format!("{workflow}: {label}"),
                );
                (
                    unit,
                    u32::try_from(attempt).unwrap_or(u32::MAX).saturating_add(1),
                )
            }
            None => {
                let label = name(meta);
                (
                    self.unique_unit(&agent_key, &format!("{workflow}: {label}")),
                    1,
                )
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
        let mut number = self.used_names.get(&name).copied().unwrap_or(2);
        while self.used_names.contains_key(&unit) {
            unit = format!("{name} ({number})");
            number += 1;
        }
        self.used_names.insert(unit.clone(), 2);
        self.used_names.insert(name, number);
        self.units.insert(key.to_owned(), unit.clone());
        unit
    }
}

impl Journal {
    fn parse(bytes: &[u8]) -> Self {
        let mut journal = Self::default();
        let mut positions: BTreeMap<String, usize> = BTreeMap::new();
        let lines = bytes
            .strip_prefix(b"\xef\xbb\xbf")
            .unwrap_or(bytes)
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok());
        for JournalLine {
            r#type,
            key,
            agent_id,
            label,
        } in lines
        {
            let (true, Some(key), Some(agent)) = (r#type == "started", key, agent_id) else {
                continue;
            };
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

/// The units whose agents made calls, by the ids of the calls.
#[derive(Debug, Default)]
struct CallingUnits {
    units: HashMap<String, String>,
    /// Number of transcripts that were read.
    read: usize,
}

impl CallingUnits {
    /// The unit of the agent that made a call, among the agents of `files`.
    fn unit_of_call(&mut self, files: &[AgentFile], call: &str) -> Option<String> {
        for file in &files[self.read.min(files.len())..] {
            let text = read_range(&file.file, 0, MAX_CALLER_BYTES).unwrap_or_default();
            for line in text.split(|byte| *byte == b'\n') {
                let LineBody::Assistant(chat) = decode::decode_line(line).body else {
                    continue;
                };
                for block in &chat.blocks {
                    if let MessageBlock::ToolUse(call) = block {
                        self.units.insert(call.id.to_string(), file.unit.clone());
                    }
                }
            }
        }
        self.read = files.len();
        self.units.get(call).cloned()
    }
}

/// The name of an agent: its task, else its type, else its id.
fn agent_name(meta: &AgentMeta, agent: &str) -> String {
    let name = meta.description.as_ref().or(meta.agent_type.as_ref());
    name.cloned().unwrap_or_else(|| match helper_name(agent) {
        Some(helper) => format!("Claude Code: {helper} ({agent})"),
        None => format!("sub-agent {agent}"),
    })
}

/// What Claude Code itself uses an agent for. The ids of such agents contain it: `acompact-fffbd0`.
fn helper_name(agent: &str) -> Option<String> {
    let (name, number) = agent.strip_prefix('a')?.rsplit_once('-')?;
    let is_name = name.starts_with(|char: char| char.is_ascii_lowercase())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_name && is_number).then(|| name.replace('_', " "))
}

/// The id of an agent from the name of its transcript.
fn agent_id(name: &str) -> Option<&str> {
    let id = name.strip_prefix("agent-")?.strip_suffix(".jsonl")?;
    (!id.is_empty() && id.len() <= MAX_NAME_CHARS).then_some(id)
}

fn directories(dir: &ScopedDir) -> Vec<String> {
    let entries = dir.entries().unwrap_or_default().into_iter();
    let names = entries
        .filter(|(_, kind)| *kind == FileKind::Directory)
        .filter_map(|(name, _)| name.into_string().ok());
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
    let result = root
        .read_if_exists(&format!("workflows/{run}.json"), MAX_JOURNAL_BYTES)
        .ok()
        .flatten();
    if let Some(result) =
        result.and_then(|json| serde_json::from_slice::<WorkflowResult>(&json).ok())
    {
        return result.workflow_name;
    }
    let scripts = root.dir_if_exists("workflows/scripts").ok().flatten();
    let scripts = scripts
        .and_then(|scripts| scripts.entries().ok())
        .unwrap_or_default();
    let suffix = format!("-{run}.js");
    let name = scripts
        .iter()
        .find_map(|(name, _)| name.to_str()?.strip_suffix(&suffix));
    name.unwrap_or(run).to_owned()
}

/// A name without line breaks and control characters, bounded.
fn unit_name(name: &str) -> String {
    let words = name
        .split(|char: char| char.is_whitespace() || char.is_control())
        .filter(|word| !word.is_empty());
    let name = words.collect::<Vec<_>>().join(" ");
    match name.char_indices().nth(MAX_NAME_CHARS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None if name.is_empty() => "unnamed".to_owned(),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_of_claude_code_itself_are_named() {
        for (id, name) in [
            ("acompact-fffbd0", Some("compact")),
            ("aprompt_suggestion-1d2e3f", Some("prompt suggestion")),
            ("ab67a6f478ef1ccbc", None),
            ("a-1", None),
            ("link", None),
            ("areview-lane", None),
        ] {
            assert_eq!(helper_name(id).as_deref(), name, "{id}");
        }
    }
}
