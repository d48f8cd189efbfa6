//! Tables, columns and keys of a warehouse, by queries of its catalogue.

use std::time::Duration;

use super::{QueryError, Warehouse, WarehousePools};
use crate::database::{LookupTarget, TableInfo, TableLookup, catalog::NameMatches};

/// What a warehouse is, for `doctor`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerInfo {
    /// Name and version of the server, in its own words.
    pub version: String,
    /// Name of the user; empty if unknown.
    pub user: String,
    /// Schemas with at least one table.
    pub schemas: Vec<String>,
    /// What the user may do besides reading, such as `create tables in public`; empty if nothing was found.
    pub write_rights: Vec<String>,
}

/// How far the reading of a catalogue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogProgress {
    pub tables: usize,
    pub columns: usize,
}

impl WarehousePools {
    pub(in crate::database) fn server(
        &self,
        warehouse: &Warehouse,
    ) -> Result<ServerInfo, QueryError> {
        let _ = warehouse;
        Err(QueryError::WorkerFailed("is not built yet".into()))
    }

    pub(in crate::database) fn tables(
        &self,
        warehouse: &Warehouse,
        progress: &mut dyn FnMut(CatalogProgress),
    ) -> Result<Vec<TableInfo>, QueryError> {
        let _ = (warehouse, progress);
        Err(QueryError::WorkerFailed("is not built yet".into()))
    }

    pub(in crate::database) fn look_up(
        &self,
        warehouse: &Warehouse,
        time_limit: Duration,
        targets: &[LookupTarget],
    ) -> Result<Vec<TableLookup>, QueryError> {
        let _ = (warehouse, time_limit, targets);
        Err(QueryError::WorkerFailed("is not built yet".into()))
    }

    pub(in crate::database) fn search(
        &self,
        warehouse: &Warehouse,
        time_limit: Duration,
        words: &[String],
        limit: usize,
    ) -> Result<NameMatches, QueryError> {
        let _ = (warehouse, time_limit, words, limit);
        Err(QueryError::WorkerFailed("is not built yet".into()))
    }
}
