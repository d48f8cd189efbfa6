//! One attempt at a unit, from the ingest side: provides prompt and tools to the runner, then checks the result and
//! writes its patch, or discards it.
//!
//! It must not know how the agent runs, nor decide whether the attempt succeeded.

use std::{io, path::PathBuf, sync::Arc};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{
    connection_scope::ConnectionScope,
    content_digest,
    git::GitError,
    instructions::Instructions,
    job::IngestJob,
    project::Project,
    project_context,
    prompt::{self, Prompt, PromptAmendment},
    repository::PATCHES_DIR,
    skill::Skill,
    tool::{self, AttemptRecords, AttemptTools, RawReads, ReconcileDecision, ToolContext},
    transcript::{self, RecordedCalls, ToolTranscript},
    unsourced::{self, ReceivedNames, UnsourcedCheck},
    work_unit::WorkUnit,
    workspace::{Workspace, WorktreePatch},
    workspace_check::{self, WorkspaceCheckReport},
    worktree::{WorktreeError, Worktrees, safe_name},
};
use ingestdeck_core::{
    diagnostic::Diagnostic,
    tape::{
        UnitKey,
        note::{AttemptOutput, ContentDigests},
    },
    units::{Toolset, verdict::WorkEvidence},
};
use ingestdeck_os::scoped_dir::{self, PRIVATE_MODE, ScopedDir};

/// Largest transcript of earlier attempts that is read.
const MAX_TRANSCRIPT_BYTES: u64 = 64 * 1024 * 1024;

/// The changes of a successful attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenPatch {
    /// The commit that the patch applies to.
    pub base: String,
    /// Path of the patch, relative to the project; `None` if the attempt changed nothing.
    pub path: Option<String>,
    /// Changed paths, project-relative and sorted.
    pub paths: Vec<String>,
}

/// The patch of a successful attempt could not be written.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// git cannot create the patch.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The patch file cannot be written.
    #[error("cannot write the patch {path}: {cause}")]
    Io {
        /// Relative to the project.
        path: String,
        cause: io::Error,
    },
}

impl Diagnostic for PatchError {
    fn help(&self) -> Option<String> {
        match self {
            Self::Git(error) => error.help(),
            Self::Io { .. } => None,
        }
    }
}

/// One attempt at a unit. If it is dropped before [`write_patch`](Self::write_patch), only its transcript remains.
#[derive(Debug)]
pub struct UnitAttempt {
    prompt: Prompt,
    instructions: Arc<Instructions>,
    /// The skills that the prompt lists.
    skills: Vec<Arc<Skill>>,
    tool_context: Arc<ToolContext>,
    tools: Arc<AttemptTools>,
    transcript: Arc<ToolTranscript>,
    root: PathBuf,
    /// Path for the patch, relative to the project.
    patch_path: String,
}

/// The attempt cannot be prepared.
#[derive(Debug, thiserror::Error)]
#[error("cannot prepare {part}: {cause}")]
pub struct AttemptPreparationError {
    part: String,
    #[source]
    cause: io::Error,
}

impl Diagnostic for AttemptPreparationError {
    fn help(&self) -> Option<String> {
        let worktree = self
            .cause
            .get_ref()
            .and_then(|cause| cause.downcast_ref::<WorktreeError>());
        worktree.map_or_else(
            || scoped_dir::remedy(&self.cause).map(str::to_owned),
            Diagnostic::help,
        )
    }
}

impl UnitAttempt {
    /// Prepares attempt number `attempt` (from 1) at a unit, given with its index in the plan. `amended` is the user's
    /// addition to the prompt.
    pub fn open(
        project: &Project,
        (index, unit): (usize, &WorkUnit),
        job: &IngestJob,
        attempt: u32,
        amended: PromptAmendment<'_>,
        worktrees: &Arc<Worktrees>,
    ) -> Result<Self, AttemptPreparationError> {
        let failed = |what: &str| {
            let what = format!("{what} of {}", unit.planned.unit);
            move |cause| AttemptPreparationError { part: what, cause }
        };
        let workspace = workspace(unit, worktrees).map_err(failed("the workspace"))?;
        let transcript = ToolTranscript::open(&project.root, &job.id, &unit.planned.unit, attempt);
        let transcript = Arc::new(transcript.map_err(failed("the transcript"))?);
        let skills = prompt::choose_skills(unit, &project.instructions);
        let scope = ConnectionScope::new(project, unit.own_connection());
        // The index counts as the attempt's first read of every page and source: later changes conflict with its
        // writes.
        let around =
            project_context::read_context(project, &scope, &workspace, unit.stage_index.as_deref())
                .map_err(failed("the prompt"))?;
        let mut prompt =
            prompt::build_prompt(unit, job, &project.instructions, &skills, &around, amended);
        let (mut received, mut reads, mut has_lost_work) =
            (ReceivedNames::default(), RawReads::default(), false);
        // The session of a resumed attempt contains the task, too. Remarks of reviewers quote the agent.
        received.add_text(&prompt::project_text(
            unit,
            job,
            &project.instructions,
            &skills,
            &around,
        ));
        if let Some(remarks) = &unit.review_remarks {
            received.add_feedback(remarks);
        }
        if let PromptAmendment::Feedback(feedback)
        | PromptAmendment::Resumed {
            feedback: Some(feedback),
            ..
        } = amended
        {
            received.add_feedback(feedback);
        }
        if let PromptAmendment::Resumed { files_kept, .. } = amended {
            // The session contains the replies to all earlier calls.
            let root = ScopedDir::open(&project.root).map_err(failed("the transcript"))?;
            match root.read_if_exists(transcript.relative_path(), MAX_TRANSCRIPT_BYTES) {
                Ok(earlier) => {
                    let earlier = earlier.unwrap_or_default();
                    received.add_transcript(&earlier);
                    reads.add_transcript(&earlier);
                    has_lost_work = !files_kept && tool::transcript_has_work(&earlier);
                }
                Err(_) => {
                    received.mark_incomplete();
                    reads.mark_incomplete();
                }
            }
        }
        let records = AttemptRecords {
            received: Some(received),
            reads,
            has_lost_work,
            ..AttemptRecords::default()
        };
        let loadable = project.instructions.loadable_skills();
        let context = ToolContext {
            unit: unit.clone(),
            workspace,
            scope,
            loadable_skills: loadable,
            records: Mutex::new(records),
        };
        let context = Arc::new(context);
        let tools = Arc::new(AttemptTools::new(
            Arc::clone(&context),
            Some(Arc::clone(&transcript)),
        ));
        if let PromptAmendment::Continued(calls) = amended {
            restore_calls(&tools, project, &unit.planned.unit, calls)
                .map_err(failed("the earlier changes"))?;
        }
        prompt.system += &tool::absent_tools_notice(&prompt.system, &context);
        let instructions = Arc::clone(&project.instructions);
        Ok(Self {
            prompt,
            instructions,
            skills,
            tool_context: context,
            tools,
            transcript,
            root: project.root.clone(),
            patch_path: patch_path(&job.id, index, &unit.planned.unit, attempt),
        })
    }

    pub fn prompt(&self) -> &Prompt {
        &self.prompt
    }

    pub fn tools(&self) -> Arc<dyn Toolset> {
        Arc::clone(&self.tools) as _
    }

    /// Digests of the unit's content, with `model` planned for it. Reads its files.
    ///
    /// # Errors
    /// When one of its files cannot be read.
    pub fn content(&self, model: Option<&str>) -> io::Result<ContentDigests> {
        content_digest::digest_unit_with(
            &self.tool_context.unit,
            &self.instructions,
            &self.skills,
            &self.tools.specs(),
            model,
        )
    }

    /// The transcript, for recording calls that failed before they reached the tools.
    pub fn transcript(&self) -> &Arc<ToolTranscript> {
        &self.transcript
    }

    /// Validates the changes made so far, and records the references that do not resolve.
    pub fn check(&self) -> WorkspaceCheckReport {
        let checked = workspace_check::check_changes(
            &self.tool_context.workspace,
            &self.tool_context.scope.target_ids(),
            &self.tool_context.scope,
        );
        self.tool_context.records().dangling = checked.dangling_references.clone();
        checked
    }

    /// Adds a text that a person wrote to the agent to what it received.
    pub fn record_message(&self, text: &str) {
        if let Some(received) = &mut self.tool_context.records().received {
            received.add_feedback(text);
        }
    }

    /// The identifiers in the artifacts that were in nothing that the agent received, once they were looked for.
    pub fn unsourced(&self) -> UnsourcedCheck {
        self.tool_context.records().unsourced.clone()
    }

    /// Finds and records the identifiers in the artifacts that were in nothing that the agent received, and what answers
    /// prove about tables and columns.
    pub fn find_unsourced(&self) -> io::Result<UnsourcedCheck> {
        let ToolContext {
            workspace, scope, ..
        } = &*self.tool_context;
        let mut kept = self.tool_context.records();
        let Some(received) = &kept.received else {
            return Ok(UnsourcedCheck::default());
        };
        let stated = kept.ledger.iter().flat_map(|it| &it.verified_identifiers);
        let stated = stated.map(String::as_str);
        let found = unsourced::find_unsourced((workspace, scope), received, stated)?;
        kept.unsourced.clone_from(&found);
        Ok(found)
    }

    /// What the agent, which ended by itself, did with its raw files. `unread_fails` is the setting.
    pub fn evidence(&self, unread_fails: bool) -> WorkEvidence {
        let context = &self.tool_context;
        let raw_files = context.unit.planned.raw_files.len();
        WorkEvidence {
            has_used_files: context.has_used_raw_files(),
            raw_files,
            unread: context.unread_files(),
            unread_fails,
            nothing_written: context.must_read_files() && context.has_written_nothing(),
            lacks_lost_work: context.must_read_files() && context.lacks_lost_work(),
        }
    }

    /// What remains on record of an attempt that failed.
    pub fn discarded_work(&self) -> AttemptOutput {
        let discarded = self.tool_context.workspace.changes().into_keys().collect();
        let kept = self.tool_context.records();
        let (unsourced, dangling) = (kept.unsourced.found.clone(), kept.dangling.clone());
        AttemptOutput {
            discarded,
            unsourced,
            dangling,
            verification: kept.unsourced.verification.clone(),
            ..AttemptOutput::default()
        }
    }

    /// Actions, unmapped items and reconcile decisions so far.
    pub fn work(&self) -> AttemptOutput {
        let kept = self.tool_context.records();
        let (actions, writes, unmapped) = (
            kept.actions.clone(),
            kept.writes.clone(),
            kept.unmapped.clone(),
        );
        let (unsourced, dangling) = (kept.unsourced.found.clone(), kept.dangling.clone());
        let mut work = AttemptOutput {
            actions,
            writes,
            unsourced,
            dangling,
            verification: kept.unsourced.verification.clone(),
            unmapped,
            ..AttemptOutput::default()
        };
        for decision in &kept.decisions {
            let list = match decision {
                ReconcileDecision::Conflict(_) => &mut work.conflicts,
                ReconcileDecision::Eviction(_) => &mut work.evictions,
                ReconcileDecision::Artifact(_) => &mut work.resolutions,
            };
            list.extend(serde_json::to_value(decision));
        }
        work
    }

    /// Writes the changes to a patch. Tool calls after this fail because the workspace is closed.
    pub fn write_patch(&self) -> Result<WrittenPatch, PatchError> {
        let workspace = &self.tool_context.workspace;
        let failed = |cause| PatchError::Io {
            path: self.patch_path.clone(),
            cause,
        };
        let patch = workspace.create_patch()?;
        let WorktreePatch { base, patch, paths } =
            patch.ok_or_else(|| failed(io::Error::other("the attempt has no worktree")))?;
        workspace.discard();
        if patch.is_empty() {
            return Ok(WrittenPatch {
                base,
                path: None,
                paths: Vec::new(),
            });
        }
        let root = ScopedDir::open(&self.root).map_err(failed)?;
        root.write(&self.patch_path, &patch, PRIVATE_MODE, 0o600)
            .map_err(failed)?;
        Ok(WrittenPatch {
            base,
            path: Some(self.patch_path.clone()),
            paths,
        })
    }

    pub fn discard(&self) {
        self.tool_context.workspace.discard();
    }
}

/// Closes the workspace for tools that are still in use.
impl Drop for UnitAttempt {
    fn drop(&mut self) {
        self.discard();
    }
}

/// Makes the changes of earlier attempts again, in the order of the attempts.
fn restore_calls(
    tools: &AttemptTools,
    project: &Project,
    unit: &UnitKey,
    calls: &[RecordedCalls],
) -> io::Result<()> {
    let root = ScopedDir::open(&project.root)?;
    for RecordedCalls { job, attempt } in calls {
        let path = transcript::transcript_path(job, unit);
        let lines = root.read(&path, MAX_TRANSCRIPT_BYTES)?;
        tools.restore(&lines, *attempt).map_err(io::Error::other)?;
    }
    Ok(())
}

fn workspace(unit: &WorkUnit, worktrees: &Arc<Worktrees>) -> io::Result<Workspace> {
    let base = worktrees.base();
    let worktree = worktrees
        .open(Some(&unit.planned.unit), &base)
        .map_err(io::Error::other)?;
    Ok(Workspace::from_worktree(worktree, base))
}

/// KTX's name for the patch of a unit. Later attempts get a suffix so that they do not overwrite it.
pub fn patch_path(job: &str, index: usize, unit: &str, attempt: u32) -> String {
    let again = if attempt > 1 {
        format!(".try{attempt}")
    } else {
        String::new()
    };
    format!(
        "{PATCHES_DIR}/{}/{index:04}-{}{again}.patch",
        safe_name(job),
        safe_name(unit)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_are_named_by_place_and_unit() {
        assert_eq!(
            patch_path("local-x", 0, "dbt-all", 1),
            ".ktx/ingest-patches/local-x/0000-dbt-all.patch"
        );
        let again = patch_path("local-x", 12, "../up", 2);
        assert!(
            again.starts_with(".ktx/ingest-patches/local-x/0012-___up."),
            "{again}"
        );
        assert!(again.ends_with(".try2.patch"), "{again}");
    }
}
