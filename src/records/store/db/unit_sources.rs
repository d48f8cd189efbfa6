//! The units of all runs with their sources, by which a list of runs is filtered.

use std::collections::HashMap;

use super::{Db, DbError, run_id};
use ingestdeck_core::tape::RunId;

/// A unit of a run, and the source that it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitSource {
    pub unit: String,
    pub connection: Option<String>,
    pub adapter: Option<String>,
}

impl Db {
    /// The units of each run with their sources.
    pub fn unit_sources(&self) -> Result<HashMap<RunId, Vec<UnitSource>>, DbError> {
        let rows: Vec<(RunId, UnitSource)> = self.select(
            "SELECT run, unit, connection, adapter FROM units",
            [],
            |row| {
                let source = UnitSource {
                    unit: row.get(1)?,
                    connection: row.get(2)?,
                    adapter: row.get(3)?,
                };
                Ok(run_id(row, 0)?.map(|run| (run, source)))
            },
        )?;
        let mut units = HashMap::<_, Vec<_>>::new();
        for (run, unit) in rows {
            units.entry(run).or_default().push(unit);
        }
        Ok(units)
    }
}
