//! The child processes of warehouses.

use super::{QueryError, StatementAnswer, Warehouse, WarehouseStatement};

/// The child processes of every warehouse of a project.
#[derive(Debug, Default)]
pub(in crate::database) struct WarehousePools {}

impl WarehousePools {
    /// Sends `statement` to a child process of `warehouse`. Blocks.
    pub(in crate::database) fn run(
        &self,
        warehouse: &Warehouse,
        statement: &WarehouseStatement,
    ) -> Result<StatementAnswer, QueryError> {
        let _ = (warehouse, statement);
        Err(QueryError::WorkerFailed("is not built yet".into()))
    }
}
