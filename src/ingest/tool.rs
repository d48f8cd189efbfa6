//! The tools of an attempt, with KTX's names, limits and answers.
//!
//! Owns the way of every call: look-up, arguments against the schema, verification ledger, the tool, the size of its
//! answer, the transcript. What the single tools do is in the files below. It must not know who calls.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    plan::WorkUnit,
    reach::Reach,
    schema::{self, shown},
    skill::Skill,
    transcript::Transcript,
    workspace::{Workspace, WriteError},
};
use crate::{
    tape::note::work::{MemoryAction, Unmapped},
    units::{ToolCall, ToolReply, ToolSpec, Toolset},
};

mod discover;
mod emit;
mod fallback;
mod ledger;
mod memory;
mod page;
mod raw;
mod semantic;
mod skills;
mod sl_edit;
mod sl_read;
mod sql;
mod stage;
mod unresolved;
mod wiki_edit;
mod wiki_read;

pub use emit::Decision;
pub use ledger::LedgerEntry;

/// Longest answer in characters; the agent's program cuts above 50,000.
pub(super) const LONGEST: usize = 45_000;

/// Why a write is declined that would go over the work of somebody else.
const CHANGED: &str = "page_changed";

/// What the tools of one attempt work on.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) unit: WorkUnit,
    pub(crate) workspace: Workspace,
    pub(crate) reach: Reach,
    /// Those that can be loaded; the prompt lists the ones that fit the unit.
    pub(crate) skills: Vec<Arc<Skill>>,
    pub(crate) kept: Mutex<Kept>,
}

/// What the agent put on record beside its writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Entries of the verification ledger.
    pub ledger: Vec<LedgerEntry>,
    /// Raw files that could not be mapped.
    pub fallbacks: Vec<Unmapped>,
    /// Decisions about what other units wrote.
    pub decisions: Vec<Decision>,
    /// What its writes come to.
    pub actions: Vec<MemoryAction>,
}

impl Bench {
    pub(crate) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a change may name `raw_paths` as what it rests on, or why not: they are raw files of the unit. The pass
    /// acts on those that are gone as well.
    fn admits(&self, raw_paths: Option<&[String]>) -> Result<(), String> {
        let stage = self.unit.stage.as_deref();
        let is_gone =
            |path: &String| stage.is_some_and(|stage| stage.evictions.iter().any(|gone| gone.raw_path == *path));
        let is_own = |path: &String| self.unit.planned.raw_files.contains(path) || is_gone(path);
        let foreign = raw_paths.unwrap_or_default().iter().filter(|path| !is_own(path));
        let foreign: Vec<_> = foreign.map(|path| format!("`{}`", shown(path))).collect();
        if foreign.is_empty() {
            return Ok(());
        }
        let what = match stage {
            Some(_) => "rawFiles of the work units, as stage_list names them, and files of eviction_list",
            None => "rawFiles of this work unit",
        };
        Err(format!("rawPaths may name only {what}, not {}", foreign.join(", ")))
    }
}

/// One tool.
trait Tool {
    /// Name without server prefix.
    const NAME: &'static str;
    /// What the model is told.
    const ABOUT: &'static str;
    /// Calls may run side by side.
    const READ_ONLY: bool;
    /// Locked until the verification ledger has an entry.
    const GUARDED: bool = false;
    /// Its arguments.
    type Input: DeserializeOwned + JsonSchema;

    /// Whether it is of any use at this bench.
    fn offered(_bench: &Bench) -> bool {
        true
    }

    /// Does the work.
    fn run(bench: &Bench, input: Self::Input) -> ToolReply;
}

/// A tool whose type is forgotten.
#[derive(Debug)]
struct Entry {
    name: &'static str,
    about: &'static str,
    read_only: bool,
    guarded: bool,
    offered: fn(&Bench) -> bool,
    schema: fn() -> schema::Schema,
    run: fn(&Bench, Value) -> ToolReply,
}

const fn entry<T: Tool>() -> Entry {
    Entry {
        name: T::NAME,
        about: T::ABOUT,
        read_only: T::READ_ONLY,
        guarded: T::GUARDED,
        offered: T::offered,
        schema: schema::of::<T::Input>,
        run: |bench, arguments| match serde_json::from_value(arguments) {
            Ok(input) => T::run(bench, input),
            Err(error) => ToolReply::error(format!("{} was not called: {error}", T::NAME)),
        },
    }
}

static TOOLS: [Entry; 25] = [
    entry::<raw::ReadRawFile>(),
    entry::<raw::ReadRawSpan>(),
    entry::<skills::LoadSkill>(),
    entry::<wiki_read::WikiRead>(),
    entry::<wiki_read::WikiSearch>(),
    entry::<wiki_read::WikiListTags>(),
    entry::<sl_read::SlDiscover>(),
    entry::<sl_read::SlReadSource>(),
    entry::<sl_read::SlValidate>(),
    entry::<discover::DiscoverData>(),
    entry::<sql::EntityDetails>(),
    entry::<sql::SqlExecution>(),
    entry::<ledger::RecordVerificationLedger>(),
    entry::<wiki_edit::WikiWrite>(),
    entry::<wiki_edit::WikiRemove>(),
    entry::<sl_edit::SlWriteSource>(),
    entry::<sl_edit::SlEditSource>(),
    entry::<sl_edit::SlRollback>(),
    entry::<fallback::EmitUnmappedFallback>(),
    entry::<stage::StageList>(),
    entry::<stage::StageDiff>(),
    entry::<stage::EvictionList>(),
    entry::<emit::EmitConflictResolution>(),
    entry::<emit::EmitEvictionDecision>(),
    entry::<emit::EmitArtifactResolution>(),
];

/// The tools of one attempt.
#[derive(Debug)]
pub(crate) struct Tools {
    bench: Arc<Bench>,
    transcript: Option<Arc<Transcript>>,
    offer: Vec<(&'static Entry, schema::Schema)>,
    /// Held by the one call that may change something: edits read before they write.
    turn: Mutex<()>,
}

impl Tools {
    /// The tools of `bench`; calls are put on the transcript, if there is one.
    pub(crate) fn new(bench: Arc<Bench>, transcript: Option<Arc<Transcript>>) -> Self {
        let useful = TOOLS.iter().filter(|tool| (tool.offered)(&bench));
        let offer = useful.map(|tool| (tool, (tool.schema)())).collect();
        Self { bench, transcript, offer, turn: Mutex::default() }
    }

    fn answer(&self, call: &ToolCall) -> ToolReply {
        let Some((tool, schema)) = self.offer.iter().find(|(tool, _)| tool.name == call.name) else {
            let names: Vec<_> = self.offer.iter().map(|(tool, _)| tool.name).collect();
            return ToolReply::error(format!(
                "there is no tool `{}`; there are {}",
                shown(&call.name),
                names.join(", ")
            ));
        };
        let arguments = match schema::check(schema, &call.arguments) {
            Ok(arguments) => arguments,
            Err(problems) => {
                return ToolReply::error(format!(
                    "{} was not called: {}. Its fields are: {}. Correct the arguments and call it again.",
                    tool.name,
                    problems.join("; "),
                    schema::fields(schema),
                ));
            }
        };
        let _turn = (!tool.read_only).then(|| self.turn.lock().unwrap_or_else(PoisonError::into_inner));
        if tool.guarded && self.bench.kept().ledger.is_empty() {
            let text = format!(
                "{} is locked: call record_verification_ledger first, then call it again with the same arguments.",
                tool.name
            );
            let detail = json!({"reason": "verification_ledger_required", "toolName": tool.name});
            return refusal(tool.name, text, detail);
        }
        let mut reply = (tool.run)(&self.bench, arguments);
        unresolved::tell(&self.bench, tool.name, &mut reply);
        bounded(reply)
    }
}

impl Toolset for Tools {
    fn specs(&self) -> Vec<ToolSpec> {
        let spec = |(tool, schema): &(&Entry, schema::Schema)| ToolSpec {
            name: tool.name,
            description: tool.about.to_owned(),
            input_schema: schema.clone(),
            read_only: tool.read_only,
        };
        self.offer.iter().map(spec).collect()
    }

    fn call(&self, call: &ToolCall) -> ToolReply {
        let (began, clock) = (Timestamp::now(), Instant::now());
        let reply = self.answer(call);
        memory::note(&mut self.bench.kept().actions, call, &reply);
        if let Some(transcript) = &self.transcript {
            transcript.record(call, began, clock.elapsed(), &reply);
        }
        reply
    }
}

/// The tool understood the call and declines it: `structured.success` is false, as KTX has it.
///
/// KTX counts that as a failed call for writes and removals of pages and for writes of sources only, so only there is it
/// an error. That others changed the file meanwhile is nobody's failure.
fn refusal(tool: &str, text: String, mut detail: Value) -> ToolReply {
    if let Some(detail) = detail.as_object_mut() {
        detail.shift_insert(0, "success".into(), false.into());
    }
    let counts = matches!(tool, "wiki_write" | "wiki_remove" | "sl_write_source") && detail["reason"] != CHANGED;
    ToolReply { markdown: text, structured: Some(detail), is_error: counts, declined: true }
}

/// The word that a refusal gives as its reason.
fn word(error: &WriteError) -> &'static str {
    match error {
        WriteError::Forbidden(_) => "path_not_allowed",
        WriteError::Binary(_) => "binary_content",
        WriteError::TooLarge { .. } => "too_large",
        WriteError::Stale(_) => CHANGED,
        WriteError::Sealed => "attempt_over",
        WriteError::ReadOnly => "read_only",
        WriteError::Io { .. } => "write_failed",
    }
}

/// What a read tool answers when there is nothing to read: a text, not a failed call, as KTX has it.
fn miss(text: impl std::fmt::Display) -> ToolReply {
    ToolReply::declined(format!("Error: {text}"))
}

/// Declares an answer large that no tool has paged.
fn bounded(mut reply: ToolReply) -> ToolReply {
    if let Some((cut, _)) = reply.markdown.char_indices().nth(LONGEST) {
        let all = reply.markdown.chars().count();
        reply.markdown.truncate(cut);
        reply.markdown.push_str(&format!("\n\n[cut: the first {LONGEST} of {all} characters are shown]"));
    }
    reply
}

#[cfg(test)]
mod tests;
