//! The two prompts of an attempt, in KTX's structure. Contents of files are never inlined.
//!
//! Owns the order and the wording of the parts; the longer texts are among the [`instructions`](super::instructions). It
//! must not read files.

use std::{fmt::Write as _, sync::Arc};

use super::{
    attempt::Job,
    instructions::{Instructions, PromptText},
    plan::{Prior, WorkUnit},
    skill::Skill,
    source::tree::escaped,
};

/// Most names that `peerFileIndex` lists.
const PEERS: usize = 100;
/// Most artifacts that `priorProvenance` lists.
const PRIOR: usize = 200;
/// Longest summary in the wiki index, in characters.
const SUMMARY: usize = 200;

/// What an attempt is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// System prompt.
    pub system: String,
    /// User prompt.
    pub user: String,
}

impl Prompt {
    /// Characters of both, which the limit on prompts counts.
    pub fn chars(&self) -> usize {
        self.system.chars().count() + self.user.chars().count()
    }
}

/// What a person adds to the prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Amended<'a> {
    /// Nothing.
    #[default]
    No,
    /// Words for an attempt that begins anew.
    Told(&'a str),
    /// The session goes on: it has read the prompt already.
    Resumed {
        /// Words of the person, if any.
        feedback: Option<&'a str>,
        /// What the session wrote so far is in the project.
        files_kept: bool,
    },
}

/// What is known of the project when an attempt starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Surroundings {
    /// Key and summary of every wiki page.
    pub(crate) wiki: Vec<(String, String)>,
    /// Connection and names of its semantic layer sources.
    pub(crate) semantic_layer: Vec<(String, Vec<String>)>,
}

/// What a session that goes on has to know about its files: its own writes are in its memory, not in the workspace.
const FILES_START_OVER: &str = "Your files are back as they stand in the project: what you wrote before was not kept. Write again what should stand.";

/// Writes the prompts for `unit`.
pub(crate) fn write(
    unit: &WorkUnit,
    job: &Job,
    told: &Instructions,
    skills: &[Arc<Skill>],
    around: &Surroundings,
    amended: Amended<'_>,
) -> Prompt {
    let task = || match &unit.stage {
        Some(stage) => stage.prompt(),
        None => user(unit, around),
    };
    let user = match amended {
        Amended::No => task(),
        Amended::Told(feedback) => format!("{}\n\n### feedback\n{}", task(), feedback.trim()),
        Amended::Resumed { feedback, files_kept } => go_on(feedback, files_kept),
    };
    Prompt { system: system(unit, job, told, skills), user }
}

fn go_on(feedback: Option<&str>, files_kept: bool) -> String {
    let text = match feedback.map(str::trim).filter(|feedback| !feedback.is_empty()) {
        Some(feedback) => format!("Continue with the following feedback: {feedback}"),
        None => "Continue with the task".to_owned(),
    };
    if files_kept { text } else { format!("{text}\n\n{FILES_START_OVER}") }
}

fn system(unit: &WorkUnit, job: &Job, told: &Instructions, skills: &[Arc<Skill>]) -> String {
    let skills: Vec<_> = skills.iter().map(|skill| format!("- {}: {}", skill.name, skill.description)).collect();
    let task = if unit.stage.is_some() { PromptText::Reconcile } else { PromptText::WorkUnit };
    let mut parts = vec![
        told.prompt(task).to_owned(),
        told.prompt(PromptText::Verification).to_owned(),
        format!("## Skills\nLoad a body with load_skill when it fits.\n{}", skills.join("\n")),
    ];
    parts.extend(pins(&told.pins));
    parts.push(format!(
        "<context>\nsyncId: {}\nsource: {}\nconnection: {}\n</context>",
        job.sync_id, unit.planned.adapter, unit.planned.connection
    ));
    parts.join("\n")
}

/// What was contested once and is settled.
fn pins(pins: &[(String, String)]) -> Option<String> {
    let lines: Vec<_> = pins.iter().map(|(contested, canonical)| format!("- {contested} -> {canonical}")).collect();
    (!lines.is_empty()).then(|| {
        format!(
            "<canonical_pins>\nThese keys were contested, and people have settled which artifact stands for each. Write to \
             that one, refer to it, and make no other.\n{}\n</canonical_pins>",
            lines.join("\n")
        )
    })
}

fn user(unit: &WorkUnit, around: &Surroundings) -> String {
    let planned = &unit.planned;
    let pages: Vec<_> =
        around.wiki.iter().map(|(key, summary)| format!("- {key}: {}", short(&one_line(summary)))).collect();
    let mut layer = String::new();
    for (connection, sources) in &around.semantic_layer {
        // Writing to a String cannot fail.
        let _ = write!(layer, "## {connection}\n{}\n", bullets(sources));
    }
    let parts = [
        format!("# Wiki Index\n{}", or_empty(&pages.join("\n"))),
        format!("# Semantic Layer Sources\n{}", or_empty(layer.trim_end())),
        "---".to_owned(),
        format!("## WorkUnit: {}", planned.unit),
        format!("### rawFiles\n{}", bullets(&planned.raw_files)),
        format!("### dependencyPaths\n{}", bullets(&planned.dependency_paths)),
        format!("### peerFileIndex\n{}", peers(&unit.peer_file_index)),
        format!("### priorProvenance\n{}", provenance(&unit.prior)),
        format!("### notes\n{}", unit.notes.as_deref().map_or("(none)", str::trim)),
    ];
    let parts = parts.into_iter().chain(planned.sl_disallowed.as_deref().map(sources_disallowed));
    parts.collect::<Vec<_>>().join("\n\n")
}

/// What earlier runs made of the unit's files, so that it is brought up to date instead of written twice.
fn provenance(prior: &[Prior]) -> String {
    let line = |prior: &Prior| {
        let Prior { path, run, kind, key, action } = prior;
        format!("{path}: {kind} {key} ({action} in run {run})")
    };
    let mut text = bullets(&prior.iter().take(PRIOR).map(line).collect::<Vec<_>>());
    if let Some(omitted) = prior.len().checked_sub(PRIOR).filter(|omitted| *omitted > 0) {
        let _ = write!(text, "\n{omitted} more artifacts omitted");
    }
    text
}

/// Why two tools are missing, so that nobody looks for a way around it.
fn sources_disallowed(reason: &str) -> String {
    let why = match reason {
        "lookml_connection_mismatch" => {
            "its models are of another connection than the one that the project maps them to"
        }
        _ => "its source says so",
    };
    format!(
        "### slDisallowed\nThis unit writes no semantic layer sources ({}: {why}), so sl_write_source and sl_edit_source are not \
         offered. Keep what it means on wiki pages, and report what would have been a source with emit_unmapped_fallback.",
        one_line(reason)
    )
}

fn peers(peers: &[Arc<str>]) -> String {
    let mut text = bullets(peers.get(..PEERS).unwrap_or(peers));
    if let Some(omitted) = peers.len().checked_sub(PEERS).filter(|omitted| *omitted > 0) {
        let _ = write!(text, "\n{omitted} more peer files omitted");
    }
    text
}

fn bullets<T: AsRef<str>>(names: &[T]) -> String {
    let lines: Vec<_> = names.iter().map(|name| format!("- {}", one_line(name.as_ref()))).collect();
    or_none(&lines.join("\n"))
}

fn or_none(text: &str) -> String {
    if text.is_empty() { "(none)".into() } else { text.into() }
}

fn or_empty(text: &str) -> String {
    if text.is_empty() { "(empty)".into() } else { text.into() }
}

/// Foreign text must not be able to open a section of its own. Space inside file names counts, so only breaks go.
pub(super) fn one_line(text: &str) -> String {
    let breaks = ['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}'];
    escaped(&text.split(breaks).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" "))
}

/// The first [`SUMMARY`] characters.
fn short(text: &str) -> String {
    match text.char_indices().nth(SUMMARY) {
        Some((cut, _)) => format!("{}…", text.get(..cut).unwrap_or_default()),
        None => text.to_owned(),
    }
}
