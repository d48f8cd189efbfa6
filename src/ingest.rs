//! The ingest stage: a project, its sources cut into units, and what one attempt at a unit may read, call and write.
//!
//! The way through it, in order: [`project`] finds and reads `ktx.yaml`; [`mod@plan`] cuts the sources of its connections
//! into units with the adapters of [`source`]; [`instructions`] are what agents are told beside them; [`attempt`] gives a
//! runner the prompt and the tools of one try, checks what it wrote and moves it into the project, whole or not at all. In
//! a project with a [`repository`] an attempt works in a [`worktree`] and leaves a patch; [`mod@integrate`] makes one
//! commit of them. [`standalone_tools`] has the same tools without an attempt.
//!
//! It must not know who runs the agent, nor that there is a tape or a screen.

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

pub use attempt::{AttemptError, DeliveredArtifact, KtxJob, UnitAttempt, WorkspaceSpec};
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
