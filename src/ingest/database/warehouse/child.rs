//! What is sent to the child process of a warehouse and back: one line of JSON each.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::database::{QueryRows, RowLimits};

/// First argument that starts the program as the child process of a warehouse. Not a command for users.
pub const SUBCOMMAND: &str = "warehouse-worker";

/// One statement, after the line with the [`Warehouse`](super::Warehouse).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WarehouseStatement {
    pub sql: String,
    pub limits: RowLimits,
    pub time_limit: Duration,
    pub kind: StatementKind,
}

/// Who wrote a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StatementKind {
    /// An agent. The text is parsed and must be one query that only reads.
    Agent,
    /// This program, for the catalogue. The session is read-only as well.
    Catalog,
}

/// The answer to a statement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatementAnswer {
    pub rows: QueryRows,
    /// Tables that the statement reads, as it names them; empty if they are not known.
    pub tables: Vec<String>,
    /// Tables and columns of theirs that the result proves to exist.
    pub columns: Vec<(String, String)>,
}
