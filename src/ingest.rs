//! The ingest stage: a project, its sources cut into units, and the files and tools of one attempt at a unit.
//!
//! The steps, in order: [`project`] finds and reads `ktx.yaml`; [`mod@plan`] cuts the sources of its connections into
//! units with the adapters of [`source`]; [`instructions`] are the prompts, skills and pins that agents get in addition
//! to their unit; [`attempt`] provides the prompt and the tools of one attempt, checks the result and moves it into the
//! project, completely or not at all. In a project with a [`repository`], an attempt works in a [`worktree`] and
//! produces a patch; [`mod@integrate`] makes one commit of the patches. [`standalone_tools`] provides the same tools
//! without an attempt.
//!
//! This module must not depend on how agents run, on the tape or on the screen.

mod connection_scope;
mod database;
mod local_record;
mod project_context;
mod references;
mod schema;
mod semantic_layer;
mod skill;
mod sl_ref_repair;
mod wiki;
mod yaml;

pub mod attempt;
pub mod branch_update;
pub mod check;
pub mod content_digest;
pub mod diff;
pub mod git;
pub mod init;
pub mod instructions;
pub mod integrate;
pub mod lock;
pub mod plan;
pub mod project;
pub mod projection;
pub mod prompt;
pub mod reconcile;
pub mod repository;
pub mod source;
pub mod staging;
pub mod standalone_tools;
pub mod tool;
pub mod transcript;
pub mod workspace;
pub mod worktree;

pub use attempt::{AttemptPreparationError, DeliveredArtifact, KtxJob, UnitAttempt, WorkspaceSpec};
pub use check::CheckReport;
pub(crate) use database::{DamagedRows, KTX_DATABASE, KtxArtifact, KtxFile, KtxHistory, ktx_history};
pub use database::{SQL_WORKER, SqlWorkers, run_sql_worker};
pub use local_record::{is_run_marked, mark_run};
pub use plan::{IngestPlan, PlanError, Selection, WorkUnit, plan};
pub use project::{Project, ProjectError, ProjectLookup, find_project_dir};
pub use project_context::truncated_index_warnings;
pub use prompt::Prompt;
pub use transcript::{RejectedCall, ToolTranscript};
pub use workspace::{PublishError, RecoveredPublication, recover_publication};
