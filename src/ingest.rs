//! The ingest stage: a project, its sources cut into units, and the files and tools of one attempt at a unit.
//!
//! The steps, in order: [`project`] finds and reads `ktx.yaml`; [`mod@plan`] cuts the sources of its connections into
//! units with the adapters of [`source`]; [`instructions`] are the prompts, skills and pins that agents get in addition
//! to their unit; [`attempt`] provides the prompt and the tools of one attempt, which works in a [`worktree`] of the
//! [`repository`], checks the result and writes a patch; [`mod@integrate`] makes one commit of the patches, and
//! [`mod@branch_update`] brings it into the project, completely or not at all. [`standalone_tools`] provides the same
//! tools without an attempt.
//!
//! This module must not depend on how agents run, on the tape or on the screen.

mod capture_signals;
pub(crate) mod connection_scope;
mod database;
mod line_budget;
mod local_record;
mod project_context;
mod references;
mod schema;
mod semantic_layer;
mod skill;
mod sl_ref_repair;
mod slug;
mod spelling;
mod untrusted_text;
mod wiki;
mod yaml;

pub(crate) mod attempt;
pub(crate) mod baseline;
pub(crate) mod branch_update;
pub(crate) mod committed_changes;
pub(crate) mod content_digest;
pub(crate) mod git;
pub(crate) mod init;
pub(crate) mod instructions;
pub(crate) mod integrate;
pub(crate) mod job;
pub(crate) mod line_history;
pub(crate) mod lock;
pub(crate) mod plan;
pub(crate) mod project;
pub(crate) mod project_snapshot;
pub(crate) mod projection;
pub(crate) mod prompt;
pub(crate) mod reconcile;
pub(crate) mod repository;
pub(crate) mod shipped_base;
pub(crate) mod source;
pub(crate) mod source_diff;
pub(crate) mod staged_copies;
pub(crate) mod standalone_tools;
pub(crate) mod standard_tools;
pub(crate) mod text_input;
pub(crate) mod tool;
pub(crate) mod transcript;
pub(crate) mod unsourced;
pub(crate) mod work_unit;
pub(crate) mod workspace;
pub(crate) mod workspace_check;
pub(crate) mod worktree;

pub(crate) use database::{
    DamagedRows, KTX_DATABASE, KtxArtifact, KtxFile, KtxHistory, ktx_history,
};
pub(crate) use database::{SQL_WORKER, SqlWorkers, run_sql_worker};
pub(crate) use local_record::{is_run_marked, mark_run};
pub(crate) use plan::{UnitSelection, plan};
pub(crate) use project::Project;
pub(crate) use project_context::truncated_index_warnings;
pub(crate) use work_unit::WorkUnit;
