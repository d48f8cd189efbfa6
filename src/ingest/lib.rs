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

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the documentation is for developers and includes private items"
)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests prepare files")
)]

mod capture_signals;
mod connection;
pub mod connection_scope;
mod database;
mod facts;
mod line_budget;
mod local_record;
mod path_policy;
mod project_context;
mod references;
mod schema;
mod semantic_layer;
mod skill;
mod sl_ref_repair;
mod slug;
mod spelling;
#[cfg(any(test, feature = "test-projects"))]
pub mod test_projects;
mod type_kind;
mod untrusted_text;
mod verbatim;
mod verification;
mod wiki;
mod yaml;

pub mod attempt;
pub mod baseline;
pub mod branch_update;
pub mod committed_changes;
pub mod content_digest;
pub mod git;
pub mod git_source;
pub mod init;
pub mod instructions;
pub mod integrate;
pub mod job;
pub mod line_history;
pub mod lock;
pub mod plan;
pub mod project;
pub mod project_snapshot;
pub mod projection;
pub mod prompt;
pub mod reconcile;
pub mod repository;
pub mod scan;
pub mod shipped_base;
pub mod source;
pub mod source_diff;
pub mod staged_copies;
pub mod standalone_tools;
pub mod standard_tools;
pub mod text_input;
pub mod tool;
pub mod transcript;
pub(crate) mod unit_size;
pub mod unsourced;
mod warehouse_access;
pub mod work_unit;
pub(crate) mod workspace;
pub mod workspace_check;
pub mod worktree;

pub use database::{
    CatalogProgress, ColumnInfo, Database, ForeignKey, QueryError, QueryRows, RowLimits,
    SQL_WORKER, ServerInfo, SqlCell, SqlWorkers, StatementAnswer, StatementKind, TableInfo,
    WAREHOUSE_WORKER, Warehouse, WarehouseDriver, WarehouseSettings, WarehouseStatement,
    confine_process, run_sql_worker,
};
pub use database::{DamagedRows, KTX_DATABASE, KtxArtifact, KtxFile, KtxHistory, ktx_history};
pub use facts::{AvailableFacts, ProjectFacts, StoredScanDate};
pub use local_record::{is_run_marked, mark_run};
pub use plan::{UnitSelection, plan};
pub use project::Project;
pub use project_context::truncated_index_warnings;
pub use unit_size::measure_units;
pub use work_unit::WorkUnit;
