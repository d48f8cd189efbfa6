//! Evidence for the isolation of an attempt: command line, environment, tools, servers, settings and paths.
//!
//! It shows evidence and must not judge it: the judgement is on the tape. Only names of variables are shown; their
//! values are never recorded.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{ABSENT, init, listed, read, read_progress, started};
use crate::{
    attempt_summary::{AttemptSummary, CallAccessKind},
    cache::ScreenCache,
    document::DocumentBlock,
    theme::StyleRole,
};
use ingestdeck_core::{
    run::{
        Timeline,
        state::{AttemptState, RecordedIsolation, RowOutcome},
    },
    tape::{EntryBody, Note, Seq, note::AttemptStarted},
    text::clock,
};

/// Largest number of listed paths of one kind.
const PATHS: usize = 500;
/// Width of a tool's name in columns.
const NAME: usize = 44;

/// The announcement of the agent, owned.
#[derive(Default)]
struct InitFacts {
    seq: Option<Seq>,
    facts: Vec<(&'static str, Option<String>)>,
    tools: BTreeSet<String>,
    servers: Vec<(String, String)>,
    plugins: Vec<(String, String)>,
    lists: Vec<(&'static str, Vec<String>)>,
}

pub(super) fn isolation_blocks(
    timeline: &mut Timeline,
    cache: &ScreenCache,
    attempt: &AttemptState,
) -> Vec<DocumentBlock> {
    let started = started(timeline, attempt);
    let announced = init_facts(timeline, attempt);
    let nothing = AttemptSummary::default();
    let gathered = cache.summary(attempt.id).unwrap_or(&nothing);
    let rows = timeline.view().rows(attempt.id).len();
    let mut pieces = isolation_summary(timeline, attempt, started.as_ref(), gathered);
    pieces.push(DocumentBlock::BlankLine);
    pieces.extend(tools(
        timeline,
        attempt,
        started.as_ref(),
        announced.as_ref(),
        gathered,
    ));
    read_progress(&mut pieces, cache, attempt, rows);
    pieces.push(DocumentBlock::BlankLine);
    pieces.extend(paths(
        timeline,
        attempt,
        started.as_ref(),
        announced.as_ref(),
        gathered,
    ));
    read_progress(&mut pieces, cache, attempt, rows);
    pieces.push(DocumentBlock::BlankLine);
    pieces.extend(session(attempt, started.as_ref(), announced.as_ref()));
    pieces.push(DocumentBlock::BlankLine);
    pieces.extend(environment(started.as_ref()));
    pieces.push(DocumentBlock::BlankLine);
    pieces.extend(command(started.as_ref()));
    pieces
}

fn init_facts(timeline: &mut Timeline, attempt: &AttemptState) -> Option<InitFacts> {
    init(timeline, attempt, |init, seq| {
        let owned = |text: &Option<std::borrow::Cow<'_, str>>| text.as_deref().map(str::to_owned);
        let names = |names: &[std::borrow::Cow<'_, str>]| {
            names.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let pairs = |pairs: &[(std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)]| {
            pairs
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect()
        };
        InitFacts {
            seq: Some(seq),
            facts: vec![
                ("model", owned(&init.model)),
                ("version", owned(&init.version)),
                ("directory", owned(&init.cwd)),
                ("permissions", owned(&init.permission_mode)),
                ("key from", owned(&init.api_key_source)),
                ("output style", owned(&init.output_style)),
            ],
            tools: init.tools.iter().map(ToString::to_string).collect(),
            servers: pairs(&init.mcp_servers),
            plugins: pairs(&init.plugins),
            lists: vec![
                ("agents", names(&init.agents)),
                ("skills", names(&init.skills)),
                ("commands", names(&init.slash_commands)),
            ],
        }
    })
}

fn isolation_summary(
    timeline: &mut Timeline,
    attempt: &AttemptState,
    started: Option<&AttemptStarted>,
    gathered: &AttemptSummary,
) -> Vec<DocumentBlock> {
    let (role, words) = match &attempt.setup.isolation {
        RecordedIsolation::Breached(breach) => (StyleRole::Failed, format!("breached: {breach}")),
        RecordedIsolation::Verified => (
            StyleRole::Succeeded,
            "holds: the agent announced exactly what it may use, and nothing else".to_owned(),
        ),
        RecordedIsolation::Unproven if started.is_none() => (
            StyleRole::Dim,
            format!("{ABSENT}: offered and allowed tools were not compared"),
        ),
        RecordedIsolation::Unproven if attempt.ended_at.is_none() => {
            (StyleRole::Waiting, "not proven yet".to_owned())
        }
        RecordedIsolation::Unproven => (
            StyleRole::Warning,
            "not proven: no check is on this record".to_owned(),
        ),
    };
    let mut pieces = vec![
        DocumentBlock::section("isolation", Some(words.as_str().into())),
        DocumentBlock::fact("proof", role, words),
    ];
    let run_view = timeline.view();
    let entries = run_view.state.entries;
    // The first row covers a check that found no breach.
    let first_row = run_view
        .rows(attempt.id)
        .first()
        .map(|row| run_view.row_entries(row));
    let first_row = first_row
        .into_iter()
        .flatten()
        .flatten()
        .filter(|seq| !gathered.isolation_entries.contains(seq));
    let checks: Vec<_> = first_row
        .chain(gathered.isolation_entries.iter().copied())
        .collect();
    for seq in checks.into_iter().filter(|seq| seq.0 < entries) {
        let check = read(timeline, seq, |arrived| match arrived.body {
            EntryBody::Note(json) => match Note::parse(json) {
                Note::IsolationChecked(check) => Some((arrived.at, check)),
                _ => None,
            },
            _ => None,
        });
        let Ok(Some((at, check))) = check else {
            continue;
        };
        let (role, sources) = match check.settings_sources.as_deref() {
            None => (
                StyleRole::Warning,
                "settings not observable: the agent did not report its sources".to_owned(),
            ),
            Some([]) => (StyleRole::Succeeded, "no settings were read".to_owned()),
            Some(sources) => (
                StyleRole::Failed,
                format!(
                    "settings were read: {}",
                    listed(sources.iter().map(String::as_str))
                ),
            ),
        };
        pieces.push(DocumentBlock::fact(
            &format!("at +{}", clock(at)),
            role,
            sources,
        ));
    }
    pieces
}

#[derive(Default)]
struct ToolUsage {
    offered: bool,
    allowed: bool,
    calls: usize,
    failed: usize,
    denied: usize,
    declined: usize,
    aborted: usize,
}

fn tools(
    timeline: &Timeline,
    attempt: &AttemptState,
    started: Option<&AttemptStarted>,
    announced: Option<&InitFacts>,
    gathered: &AttemptSummary,
) -> Vec<DocumentBlock> {
    let mut tools: BTreeMap<&str, ToolUsage> = BTreeMap::new();
    for name in announced.into_iter().flat_map(|announced| &announced.tools) {
        tools.entry(name).or_default().offered = true;
    }
    for name in started.into_iter().flat_map(|started| &started.tools) {
        tools.entry(name).or_default().allowed = true;
    }
    let (entries, rows) = (
        timeline.view().state.entries,
        timeline.view().rows(attempt.id),
    );
    for call in &gathered.calls {
        let Some(row) = rows.get(call.row) else {
            continue;
        };
        let tool = tools.entry(gathered.tool(call)).or_default();
        tool.calls += 1;
        tool.failed += usize::from(row.end(entries) == RowOutcome::Failed);
        tool.denied += usize::from(row.end(entries) == RowOutcome::Denied);
        tool.declined += usize::from(row.end(entries) == RowOutcome::Declined);
        tool.aborted += usize::from(row.end(entries) == RowOutcome::Aborted);
    }
    let facts = vec![
        (
            StyleRole::Text,
            format!(
                "{} offered",
                announced.map_or_else(|| "?".into(), |announced| announced.tools.len().to_string())
            ),
        ),
        (
            StyleRole::Text,
            format!(
                "{} allowed",
                started.map_or_else(|| "?".into(), |started| started.tools.len().to_string())
            ),
        ),
        (
            StyleRole::Text,
            format!(
                "{} used",
                tools.values().filter(|tool| tool.calls > 0).count()
            ),
        ),
    ];
    let names: Vec<&str> = tools.keys().copied().collect();
    let mut pieces = vec![DocumentBlock::titled(
        "tools",
        "tools".to_owned(),
        facts,
        Some(names.join("\n").into()),
    )];
    let longest = names
        .iter()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0)
        .min(NAME);
    let is_foreign = |tool: &ToolUsage| {
        (announced.is_some() && !tool.offered && tool.calls > 0)
            || (started.is_some() && !tool.allowed)
            || tool.denied > 0
    };
    // Tools that should not be there come first.
    let (foreign, own): (Vec<_>, Vec<_>) = tools.iter().partition(|(_, tool)| is_foreign(tool));
    let (used, idle): (Vec<_>, Vec<_>) = own.into_iter().partition(|(_, tool)| tool.calls > 0);
    for (name, tool) in foreign.into_iter().chain(used).chain(idle) {
        let known = (announced.is_some(), started.is_some());
        let (role, word) = match (tool.offered, tool.allowed, known) {
            (true, true, _) => (StyleRole::Succeeded, "offered, allowed"),
            (true, false, (_, true)) => (StyleRole::Failed, "offered, not allowed"),
            (false, true, (true, _)) => (StyleRole::Failed, "allowed, not offered"),
            (true, false, (_, false)) => (StyleRole::Text, "offered"),
            (false, true, (false, _)) => (StyleRole::Text, "allowed"),
            (false, false, (true, _) | (_, true)) => {
                (StyleRole::Failed, "neither offered nor allowed")
            }
            (false, false, (false, false)) => (StyleRole::Text, "?"),
        };
        let mut used = match tool.calls {
            0 => String::new(),
            1 => ", used once".to_owned(),
            calls => format!(", used {calls} times"),
        };
        let counts = [
            (tool.failed, "failed"),
            (tool.denied, "denied"),
            (tool.declined, "declined"),
            (tool.aborted, "cut short"),
        ];
        for (count, what) in counts {
            if count > 0 {
                used.push_str(&format!(", {count} {what}"));
            }
        }
        let bad = if tool.failed + tool.denied > 0 {
            StyleRole::Failed
        } else {
            StyleRole::Text
        };
        pieces.push(DocumentBlock::Spans {
            indent: 2,
            hang: 4,
            runs: vec![
                (StyleRole::Text, format!("{name:<longest$}  ")),
                (role, word.to_owned()),
                (bad, used),
            ],
        });
    }
    if tools.is_empty() {
        pieces.push(DocumentBlock::line(StyleRole::Dim, format!("  {ABSENT}")));
    }
    pieces
}

fn paths(
    timeline: &Timeline,
    attempt: &AttemptState,
    started: Option<&AttemptStarted>,
    announced: Option<&InitFacts>,
    gathered: &AttemptSummary,
) -> Vec<DocumentBlock> {
    let rows = timeline.view().rows(attempt.id);
    let entries = timeline.view().state.entries;
    let mut touched: BTreeMap<(CallAccessKind, bool), BTreeMap<&str, usize>> = BTreeMap::new();
    for call in &gathered.calls {
        let (Some(row), Some((touch, what))) = (rows.get(call.row), &call.access) else {
            continue;
        };
        let went = matches!(row.end(entries), RowOutcome::Ok | RowOutcome::Open);
        *touched
            .entry((*touch, went))
            .or_default()
            .entry(what)
            .or_default() += 1;
    }
    let home = started.map(|started| started.cwd.as_str()).or_else(|| {
        announced?
            .facts
            .iter()
            .find(|(name, _)| *name == "directory")
            .and_then(|(_, value)| value.as_deref())
    });
    let all: BTreeSet<&str> = touched.values().flat_map(BTreeMap::keys).copied().collect();
    let count = all.len();
    let all: Vec<&str> = all.into_iter().collect();
    let facts = vec![(StyleRole::Dim, format!("{count}, as the calls name them"))];
    let mut pieces = vec![DocumentBlock::titled(
        "paths",
        "touched".to_owned(),
        facts,
        Some(all.join("\n").into()),
    )];
    let kinds = [
        ((CallAccessKind::Write, true), "writes"),
        ((CallAccessKind::Read, true), "reads"),
        ((CallAccessKind::Run, true), "runs"),
        ((CallAccessKind::Write, false), "failed to write"),
        ((CallAccessKind::Read, false), "failed to read"),
        ((CallAccessKind::Run, false), "failed to run"),
    ];
    for (kind, word) in kinds {
        for (path, times) in touched.get(&kind).into_iter().flatten().take(PATHS) {
            let outside = kind.0 != CallAccessKind::Run && is_outside(path, home);
            let role = if outside {
                StyleRole::Failed
            } else {
                StyleRole::Text
            };
            let times = if *times > 1 {
                format!(" ×{times}")
            } else {
                String::new()
            };
            let note = if outside {
                " outside of the directory"
            } else {
                ""
            };
            pieces.push(DocumentBlock::fact(
                word,
                role,
                format!("{path}{times}{note}"),
            ));
        }
        let more = touched
            .get(&kind)
            .map_or(0, BTreeMap::len)
            .saturating_sub(PATHS);
        if more > 0 {
            pieces.push(DocumentBlock::line(
                StyleRole::Dim,
                format!("  and {more} more"),
            ));
        }
    }
    let limit = match touched.contains_key(&(CallAccessKind::Run, true)) {
        true => "other paths that a shell command accesses are not observable",
        false => "other paths that a server accesses are not observable",
    };
    pieces.push(DocumentBlock::line(StyleRole::Dim, format!("  {limit}")));
    pieces
}

/// True for an absolute path outside of `home`, and for a path with `..` components.
fn is_outside(path: &str, home: Option<&str>) -> bool {
    let climbs = path.split('/').any(|part| part == "..");
    let Some(home) = home
        .map(|home| home.trim_end_matches('/'))
        .filter(|home| !home.is_empty())
    else {
        return climbs;
    };
    let inside = path
        .strip_prefix(home)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    climbs || (path.starts_with('/') && !inside)
}

fn session(
    attempt: &AttemptState,
    started: Option<&AttemptStarted>,
    announced: Option<&InitFacts>,
) -> Vec<DocumentBlock> {
    let mut pieces = vec![DocumentBlock::section(
        "session",
        attempt.setup.session.as_deref().map(Arc::from),
    )];
    let mut fact = |name: &str, value: Option<String>| {
        let known = value.filter(|value| !value.is_empty());
        let role = if known.is_some() {
            StyleRole::Text
        } else {
            StyleRole::Dim
        };
        pieces.push(DocumentBlock::fact(
            name,
            role,
            known.unwrap_or_else(|| ABSENT.to_owned()),
        ));
    };
    fact(
        "session",
        attempt.setup.session.as_deref().map(str::to_owned),
    );
    if started.is_some_and(|started| started.scripted) {
        fact("agent", Some("scripted: no model is used".to_owned()));
    }
    let asked = |model: &Option<String>| {
        model
            .clone()
            .unwrap_or_else(|| "the agent's default".to_owned())
    };
    fact(
        "requested model",
        started.map(|started| asked(&started.model)),
    );
    for (name, value) in announced.into_iter().flat_map(|announced| &announced.facts) {
        fact(name, value.clone());
    }
    if announced.is_none() {
        fact("announcement", None);
    }
    if let Some(announced) = announced {
        let servers = announced
            .servers
            .iter()
            .map(|(name, status)| format!("{name} {status}"));
        fact("servers", Some(none(servers.collect())));
        let plugins = announced
            .plugins
            .iter()
            .map(|(name, path)| format!("{name} ({path})"));
        fact("plugins", Some(none(plugins.collect())));
        for (name, values) in &announced.lists {
            fact(name, Some(none(values.clone())));
        }
        if let Some(seq) = announced.seq {
            fact("as in", Some(format!("line {seq}")));
        }
    }
    pieces
}

fn none(values: Vec<String>) -> String {
    if values.is_empty() {
        "none".to_owned()
    } else {
        values.join(", ")
    }
}

fn environment(started: Option<&AttemptStarted>) -> Vec<DocumentBlock> {
    let Some(started) = started else {
        return vec![
            DocumentBlock::section("environment", None),
            DocumentBlock::fact("variables", StyleRole::Dim, ABSENT),
        ];
    };
    let lists = [
        ("withheld", &started.env_stripped, StyleRole::Succeeded),
        ("set", &started.env_set, StyleRole::Text),
        ("passed explicitly", &started.env_passed, StyleRole::Warning),
        ("inherited", &started.env_inherited, StyleRole::Text),
    ];
    let all = lists
        .map(|(name, names, _)| format!("{name}: {}", names.join(" ")))
        .join("\n");
    let mut pieces = vec![DocumentBlock::titled(
        "environment",
        "environment".to_owned(),
        vec![(StyleRole::Dim, "names only".to_owned())],
        Some(all.into()),
    )];
    for (name, names, role) in lists {
        let unknown = name == "inherited" && names.is_empty();
        let role = if names.is_empty() {
            StyleRole::Dim
        } else {
            role
        };
        let value = if unknown {
            ABSENT.to_owned()
        } else {
            listed(names.iter().map(String::as_str))
        };
        pieces.push(DocumentBlock::fact(name, role, value));
    }
    pieces
}

/// The command line, one line per argument with its value.
fn command(started: Option<&AttemptStarted>) -> Vec<DocumentBlock> {
    let Some(started) = started.filter(|started| !started.argv.is_empty()) else {
        let why = match started {
            Some(_) => "no process was started",
            None => ABSENT,
        };
        return vec![
            DocumentBlock::section("command", None),
            DocumentBlock::line(StyleRole::Dim, format!("  {why}")),
        ];
    };
    let quoted: Vec<String> = started.argv.iter().map(|word| quoted(word)).collect();
    let facts = started
        .pid
        .map(|pid| (StyleRole::Dim, format!("process {pid}")))
        .into_iter()
        .collect();
    let mut pieces = vec![DocumentBlock::titled(
        "command line",
        "command".to_owned(),
        facts,
        Some(quoted.join(" ").into()),
    )];
    pieces.push(DocumentBlock::fact("in", StyleRole::Text, &started.cwd));
    let mut words = quoted.iter().peekable();
    while let Some(word) = words.next() {
        let mut line = word.clone();
        if word.starts_with('-') && !word.contains('=') {
            while let Some(value) = words.next_if(|next| !next.starts_with('-')) {
                line.push(' ');
                line.push_str(value);
            }
        }
        pieces.push(DocumentBlock::Spans {
            indent: 2,
            hang: 6,
            runs: vec![(StyleRole::Text, line)],
        });
    }
    pieces
}

/// An argument quoted for a shell.
fn quoted(word: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || "-_./=:,@%+".contains(char);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_leave_the_directory_are_told() {
        let home = Some("/home/dev/project/");
        for inside in [
            "models/a.yml",
            "/home/dev/project/a",
            "/home/dev/project",
            "wiki page arr",
        ] {
            assert!(!is_outside(inside, home), "{inside}");
        }
        for outside in [
            "/etc/passwd",
            "/home/dev/project-b/a",
            "../a",
            "/home/dev/project/../b",
        ] {
            assert!(is_outside(outside, home), "{outside}");
        }
        assert!(
            !is_outside("/etc/passwd", None),
            "without a directory nothing is known to be outside"
        );
    }

    #[test]
    fn a_command_line_can_be_pasted() {
        assert_eq!(quoted("--model=sonnet"), "--model=sonnet");
        assert_eq!(quoted("it's here"), r"'it'\''s here'");
        assert_eq!(quoted(""), "''");
    }
}
