//! The tools of an attempt, with KTX's names, limits and answers.
//!
//! Owns the handling of every call: lookup, validation of the arguments, verification ledger, execution, size limit of
//! the answer, transcript. The modules below implement the tools. This module must not know the caller.

use std::{sync::Arc, time::Instant};

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    connection_scope::ConnectionScope,
    schema,
    skill::Skill,
    transcript::ToolTranscript,
    unsourced::{ReceivedNames, UnsourcedCheck},
    untrusted_text::excerpt,
    work_unit::{MAX_ANSWER_CHARS, WorkUnit},
    workspace::{FileEdit, Workspace, WriteError},
};
use ingestdeck_core::{
    tape::note::attempt_output::{MemoryAction, RecordedWrite, UnmappedFile, UnreadFile},
    units::{ToolCall, ToolReply, ToolSpec, Toolset},
};

mod broken_references;
mod discover_data;
mod entity_details;
mod memory_actions;
mod pagination;
mod raw_files;
mod raw_reads;
mod reconcile_decisions;
mod restored_calls;
mod skills;
mod sl_common;
mod sl_edit;
mod sl_read;
mod sql_execution;
mod stage_index_tools;
mod unmapped_fallback;
mod verification_ledger;
mod wiki_edit;
mod wiki_read;

pub(crate) use memory_actions::transcript_has_work;
pub(crate) use raw_reads::RawReads;
pub(crate) use reconcile_decisions::ReconcileDecision;
pub(crate) use verification_ledger::LedgerEntry;

/// Reason of a declined write that would overwrite a concurrent change.
const PAGE_CHANGED: &str = "page_changed";

/// State that the tools of one attempt share.
#[derive(Debug)]
pub(crate) struct ToolContext {
    pub(crate) unit: WorkUnit,
    pub(crate) workspace: Workspace,
    pub(crate) scope: ConnectionScope,
    /// Skills that can be loaded. The prompt lists those that fit the unit.
    pub(crate) loadable_skills: Vec<Arc<Skill>>,
    pub(crate) records: Mutex<AttemptRecords>,
}

/// Records of the agent in addition to its files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AttemptRecords {
    /// Entries of the verification ledger.
    pub ledger: Vec<LedgerEntry>,
    /// The parts of raw files that the agent has read.
    pub reads: RawReads,
    /// Changes or decisions of earlier attempts in the session were discarded, and the agent was asked to repeat them.
    pub has_lost_work: bool,
    /// Raw files that the agent could not map.
    pub unmapped: Vec<UnmappedFile>,
    /// Decisions about changes of other units.
    pub decisions: Vec<ReconcileDecision>,
    /// Resulting changes of pages and sources.
    pub actions: Vec<MemoryAction>,
    /// The writes of files that made them.
    pub writes: Vec<RecordedWrite>,
    /// The words that the agent received; `None` if they are not collected.
    pub received: Option<ReceivedNames>,
    /// Identifiers in its artifacts that are not among these words, once they were checked.
    pub unsourced: UnsourcedCheck,
    /// References that do not resolve, once they were checked.
    pub dangling: Option<Vec<String>>,
}

impl ToolContext {
    pub(crate) fn records(&self) -> MutexGuard<'_, AttemptRecords> {
        self.records.lock()
    }

    /// True if the agent must read the raw files of the unit. The reconcile step chooses what it reads, and the prompt
    /// contains a captured text.
    pub(crate) fn must_read_files(&self) -> bool {
        self.stage_index().is_none()
            && !self.unit.is_text()
            && !self.unit.planned.raw_files.is_empty()
    }

    /// Raw files of the unit that the agent has neither read completely nor recorded as unmapped.
    pub(crate) fn unread_files(&self) -> Vec<UnreadFile> {
        if !self.must_read_files() {
            return Vec::new();
        }
        let records = self.records();
        let decided = records
            .unmapped
            .iter()
            .map(|file| file.raw_path.as_str())
            .collect();
        records.reads.unread(
            &self.unit.planned.raw_files,
            &decided,
            self.unit.assigned_lines.as_ref(),
        )
    }

    /// Whether the agent has read one of its raw files at least in part, or decided about one. True if it need not.
    pub(crate) fn has_used_raw_files(&self) -> bool {
        let records = self.records();
        let has_used = || {
            records.reads.has_read_any(&self.unit.planned.raw_files) || !records.unmapped.is_empty()
        };
        !self.must_read_files() || has_used()
    }

    /// True if the agent has neither written anything, changed or not, nor recorded a decision.
    pub(crate) fn has_written_nothing(&self) -> bool {
        let records = self.records();
        let has_decided = !records.unmapped.is_empty() || !records.decisions.is_empty();
        records.actions.is_empty() && !has_decided && self.workspace.changes().is_empty()
    }

    /// True if work of earlier attempts in the session was discarded, and the agent has done none since.
    pub(crate) fn lacks_lost_work(&self) -> bool {
        self.records().has_lost_work && self.has_written_nothing()
    }

    /// The question about this work. Only a unit with raw files can record that there is nothing to write.
    fn lost_work_question(&self) -> Option<String> {
        let decide = if self.must_read_files() {
            ", or record a file that cannot be mapped with emit_unmapped_fallback"
        } else {
            ""
        };
        self.lacks_lost_work().then(|| {
            format!(
                "Your earlier changes were discarded, and you have written nothing since. Write again everything that \
                 your result needs{decide}. Then end."
            )
        })
    }

    /// Checks that a change may name `raw_paths` as its basis: they must be raw files of the unit. The reconcile step
    /// may also name deleted files.
    fn check_raw_paths(&self, raw_paths: Option<&[String]>) -> Result<(), String> {
        let stage = self.unit.stage_index.as_deref();
        let is_evicted = |path: &String| {
            stage.is_some_and(|stage| {
                stage
                    .evictions
                    .iter()
                    .any(|eviction| eviction.raw_path == *path)
            })
        };
        let is_own = |path: &String| {
            let mut own = self
                .unit
                .planned
                .raw_files
                .iter()
                .chain(self.unit.reading_aids());
            own.any(|own| own == path) || is_evicted(path)
        };
        let foreign = raw_paths
            .unwrap_or_default()
            .iter()
            .filter(|path| !is_own(path));
        let foreign: Vec<_> = foreign.map(|path| format!("`{}`", excerpt(path))).collect();
        if foreign.is_empty() {
            return Ok(());
        }
        let allowed = match stage {
            Some(_) => "raw files that stage_list or eviction_list lists",
            None if self.unit.is_text() => "none, because a text has no raw files",
            None => "rawFiles of this work unit",
        };
        Err(format!(
            "rawPaths contains {}; name only {allowed}",
            foreign.join(", ")
        ))
    }
}

trait AgentTool {
    /// Name without the prefix of the server.
    const NAME: &'static str;
    /// Description for the model.
    const DESCRIPTION: &'static str;
    /// Whether calls may run concurrently.
    const READ_ONLY: bool;
    /// Whether calls are rejected until the verification ledger has an entry.
    const NEEDS_LEDGER: bool = false;
    type Input: DeserializeOwned + JsonSchema;

    /// Whether this attempt can use the tool.
    fn is_offered(_context: &ToolContext) -> bool {
        true
    }

    fn run(context: &ToolContext, input: Self::Input) -> ToolReply;
}

/// An [`AgentTool`] with its type erased.
#[derive(Debug)]
struct ToolEntry {
    name: &'static str,
    description: &'static str,
    is_read_only: bool,
    needs_ledger: bool,
    is_offered: fn(&ToolContext) -> bool,
    schema: schema::LazyToolInputSchema,
    run: fn(&ToolContext, Value) -> ToolReply,
}

const fn entry<T: AgentTool>() -> ToolEntry {
    ToolEntry {
        name: T::NAME,
        description: T::DESCRIPTION,
        is_read_only: T::READ_ONLY,
        needs_ledger: T::NEEDS_LEDGER,
        is_offered: T::is_offered,
        schema: schema::lazy_schema_for::<T::Input>(),
        run: |context, arguments| match serde_json::from_value(arguments) {
            Ok(input) => T::run(context, input),
            Err(error) => ToolReply::error(format!("{} was not called: {error}", T::NAME)),
        },
    }
}

static TOOLS: [ToolEntry; 25] = [
    entry::<raw_files::ReadRawFile>(),
    entry::<raw_files::ReadRawSpan>(),
    entry::<skills::LoadSkill>(),
    entry::<wiki_read::WikiRead>(),
    entry::<wiki_read::WikiSearch>(),
    entry::<wiki_read::WikiListTags>(),
    entry::<sl_read::SlDiscover>(),
    entry::<sl_read::SlReadSource>(),
    entry::<sl_read::SlValidate>(),
    entry::<discover_data::DiscoverData>(),
    entry::<entity_details::EntityDetails>(),
    entry::<sql_execution::SqlExecution>(),
    entry::<verification_ledger::RecordVerificationLedger>(),
    entry::<wiki_edit::WikiWrite>(),
    entry::<wiki_edit::WikiRemove>(),
    entry::<sl_edit::SlWriteSource>(),
    entry::<sl_edit::SlEditSource>(),
    entry::<sl_edit::SlRollback>(),
    entry::<unmapped_fallback::EmitUnmappedFallback>(),
    entry::<stage_index_tools::StageList>(),
    entry::<stage_index_tools::StageDiff>(),
    entry::<stage_index_tools::EvictionList>(),
    entry::<reconcile_decisions::EmitConflictResolution>(),
    entry::<reconcile_decisions::EmitEvictionDecision>(),
    entry::<reconcile_decisions::EmitArtifactResolution>(),
];

/// The tools for pages, which the agent of a text without a connection has.
const WIKI_TOOLS: [&str; 6] = [
    "load_skill",
    "wiki_read",
    "wiki_search",
    "wiki_list_tags",
    "wiki_write",
    "wiki_remove",
];

/// The tools for sources, which the agent of a text with a connection has in addition.
const SOURCE_TOOLS: [&str; 9] = [
    "sl_discover",
    "sl_read_source",
    "sl_validate",
    "sl_write_source",
    "sl_edit_source",
    "sl_rollback",
    "discover_data",
    "entity_details",
    "sql_execution",
];

/// The tools for a text. It has no raw files to read or to report.
fn text_tools(unit: &WorkUnit) -> Vec<&'static str> {
    let of_sources = if unit.may_write_sources() {
        &SOURCE_TOOLS[..]
    } else {
        &[]
    };
    [&WIKI_TOOLS, of_sources].concat()
}

/// True for the name of one of these tools, whether a unit has it or not.
pub fn is_tool_name(name: &str) -> bool {
    TOOLS.iter().any(|tool| tool.name == name)
}

fn is_offered(tool: &ToolEntry, context: &ToolContext) -> bool {
    (!context.unit.is_text() || text_tools(&context.unit).contains(&tool.name))
        && (tool.is_offered)(context)
}

/// A sentence about the tools that instructions name and the unit does not have; empty if there are none.
pub(crate) fn absent_tools_notice(instructions: &str, context: &ToolContext) -> String {
    let absent = absent_tools(instructions, context);
    if absent.is_empty() {
        return String::new();
    }
    format!(
        "\n\nThis unit does not have {}: skip what needs them.",
        absent.join(", ")
    )
}

/// The tools that `text` names in backquotes and the unit does not have.
fn absent_tools(text: &str, context: &ToolContext) -> Vec<&'static str> {
    let absent = TOOLS.iter().filter(|tool| !is_offered(tool, context));
    absent
        .map(|tool| tool.name)
        .filter(|name| text.contains(&format!("`{name}`")))
        .collect()
}

/// Reports what is wrong with the arguments of a call; empty for an unknown tool.
pub fn argument_problems(name: &str, arguments: &Value) -> Vec<String> {
    let short = name.rsplit("__").next().unwrap_or(name);
    let tool = TOOLS.iter().find(|tool| tool.name == short);
    tool.and_then(|tool| schema::validate(&tool.schema, arguments).err())
        .unwrap_or_default()
}

/// The tools of one attempt.
#[derive(Debug)]
pub(crate) struct AttemptTools {
    context: Arc<ToolContext>,
    transcript: Option<Arc<ToolTranscript>>,
    offered_tools: Vec<&'static ToolEntry>,
    /// Held by a call that may change something, because edits read before they write.
    write_lock: Mutex<()>,
}

impl AttemptTools {
    /// Creates the tools for `context`. Calls are recorded in the transcript, if there is one.
    pub(crate) fn new(context: Arc<ToolContext>, transcript: Option<Arc<ToolTranscript>>) -> Self {
        let offered_tools = TOOLS
            .iter()
            .filter(|tool| is_offered(tool, &context))
            .collect();
        Self {
            context,
            transcript,
            offered_tools,
            write_lock: Mutex::default(),
        }
    }

    /// Records what a call wrote. Only one call writes at a time.
    fn record_writes(&self, call: &ToolCall) {
        let edits = self.context.workspace.take_file_edits();
        let mut records = self.context.records();
        for FileEdit { path, edits } in edits {
            match edits {
                Some(edits) => records.writes.push(RecordedWrite {
                    call: call.tool_use_id.clone(),
                    path,
                    edits,
                }),
                None => records.writes.retain(|write| write.path != path),
            }
        }
    }

    fn answer(&self, call: &ToolCall) -> ToolReply {
        let Some(tool) = self
            .offered_tools
            .iter()
            .find(|tool| tool.name == call.name)
        else {
            let names: Vec<_> = self.offered_tools.iter().map(|tool| tool.name).collect();
            return ToolReply::error(format!(
                "there is no tool `{}`; available tools: {}",
                excerpt(&call.name),
                names.join(", ")
            ));
        };
        let arguments = match schema::validate(&tool.schema, &call.arguments) {
            Ok(arguments) => arguments,
            Err(problems) => {
                return ToolReply::error(format!(
                    "{} was not called: {}. Its fields are: {}. Correct the arguments and call it again.",
                    tool.name,
                    problems.join("; "),
                    schema::describe_fields(&tool.schema),
                ));
            }
        };
        let _guard = (!tool.is_read_only).then(|| self.write_lock.lock());
        // The agent of a text has no ledger, as in KTX.
        if tool.needs_ledger
            && !self.context.unit.is_text()
            && self.context.records().ledger.is_empty()
        {
            let text = format!(
                "{} is locked; call record_verification_ledger first, then repeat this call with the same arguments.",
                tool.name
            );
            let detail = json!({"reason": "verification_ledger_required", "toolName": tool.name});
            return refusal(tool.name, text, detail);
        }
        let mut reply = (tool.run)(&self.context, arguments);
        if !tool.is_read_only {
            self.record_writes(call);
        }
        broken_references::append_broken_references(&self.context, tool.name, &mut reply);
        mark_oversized(reply)
    }
}

impl Toolset for AttemptTools {
    fn specs(&self) -> Vec<ToolSpec> {
        let spec = |tool: &&ToolEntry| ToolSpec {
            name: tool.name,
            description: tool.description.to_owned(),
            input_schema: Arc::clone(&tool.schema),
            read_only: tool.is_read_only,
        };
        self.offered_tools.iter().map(spec).collect()
    }

    fn question_before_stop(&self) -> Option<String> {
        let lost = self.context.lost_work_question();
        let questions: Vec<String> = lost
            .into_iter()
            .chain(raw_reads::question(&self.context.unread_files()))
            .collect();
        (!questions.is_empty()).then(|| questions.join("\n\n"))
    }

    fn stop(&self) {
        self.context.scope.sql_workers.stop();
    }

    fn call(&self, call: &ToolCall) -> ToolReply {
        let (began, clock) = (Timestamp::now(), Instant::now());
        let reply = self.answer(call);
        let mut records = self.context.records();
        memory_actions::record_call(&mut records.actions, call, &reply);
        if let Some(received) = &mut records.received {
            received.add_reply(call, &reply);
        }
        drop(records);
        if let Some(transcript) = &self.transcript {
            transcript.record(call, began, clock.elapsed(), &reply);
        }
        reply
    }
}

/// A declined call: the tool understood it and declines it. `structured.success` is false, as in KTX.
///
/// Only writes and removals of pages and writes and edits of sources count as failed calls, so only those are errors
/// (KTX leaves out edits, see [`FailureRule::Recoverable`](ingestdeck_core::units::failure_tally::FailureRule)). A concurrent change of the file is never an error.
fn refusal(tool: &str, text: String, mut detail: Value) -> ToolReply {
    if let Some(detail) = detail.as_object_mut() {
        detail.shift_insert(0, "success".into(), false.into());
    }
    let is_write = matches!(
        tool,
        "wiki_write" | "wiki_remove" | "sl_write_source" | "sl_edit_source"
    );
    let counts = is_write && detail["reason"] != PAGE_CHANGED;
    ToolReply {
        markdown: text,
        structured: Some(detail),
        is_error: counts,
        declined: true,
    }
}

/// Machine-readable reason of a declined call.
fn decline_reason(error: &WriteError) -> &'static str {
    match error {
        WriteError::ForbiddenPath(_) => "path_not_allowed",
        WriteError::Binary(_) => "binary_content",
        WriteError::TooLarge { .. } => "too_large",
        WriteError::ChangedSinceRead(_) => PAGE_CHANGED,
        WriteError::Closed => "attempt_over",
        WriteError::ReadOnly => "read_only",
        WriteError::Io { .. } => "write_failed",
    }
}

/// Answer of a read tool when there is nothing to read: a text instead of an error, as in KTX.
fn not_found_reply(text: impl std::fmt::Display) -> ToolReply {
    ToolReply::declined(format!("Error: {text}"))
}

/// Truncates a long answer that its tool did not split into pages.
fn mark_oversized(mut reply: ToolReply) -> ToolReply {
    if let Some((cut, _)) = reply.markdown.char_indices().nth(MAX_ANSWER_CHARS) {
        let total = reply.markdown.chars().count();
        reply.markdown.truncate(cut);
        reply.markdown.push_str(&format!(
            "\n\n[truncated: the first {MAX_ANSWER_CHARS} of {total} characters are shown]"
        ));
    }
    reply
}

#[cfg(test)]
mod tests;
