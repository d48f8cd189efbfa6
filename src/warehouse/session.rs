//! A connection to a warehouse: opened read-only, one statement at a time, nothing left behind.

use std::sync::Arc;

use adbc_core::{
    CancelHandle, Connection as _, Database as _, Driver as _, Optionable as _, Statement as _,
    error::Status,
    options::{OptionDatabase, OptionStatement, OptionValue},
};
use adbc_driver_manager::{ManagedConnection, ManagedStatement};
use arrow_array::RecordBatchReader;
use parking_lot::Mutex;

use super::{
    cells, drivers,
    options::{self, Secrets},
    read_only::{self, CheckedQuery},
};
use ingestdeck_ingest::{
    QueryError, QueryRows, RowLimits, SqlCell, StatementAnswer, StatementKind, Warehouse,
    WarehouseDriver, WarehouseStatement,
};

/// Longest error text of a warehouse, in characters.
const MAX_ERROR_CHARS: usize = 2_000;
/// Longest name of a column of an answer, in characters.
const MAX_HEADER_CHARS: usize = 200;
/// Batches that are read and thrown away after a statement was cancelled, before the connection is given up.
const MAX_DRAINED_BATCHES: usize = 64;

/// What ends the statement that runs now.
pub(crate) type Cancellation = Arc<Mutex<Option<Box<dyn CancelHandle>>>>;

/// A connection whose statements cannot change anything, as far as the warehouse offers that.
pub(crate) struct WarehouseSession {
    driver: WarehouseDriver,
    connection: ManagedConnection,
    secrets: Secrets,
    is_broken: bool,
}

impl WarehouseSession {
    /// Loads the driver and connects.
    pub(crate) fn open(warehouse: &Warehouse) -> Result<Self, QueryError> {
        let mut secrets = Secrets::default();
        let options = options::database_options(warehouse, &mut secrets)?;
        let mut driver = drivers::load(warehouse)?;
        let unreachable = |error: adbc_core::error::Error| {
            let words = secrets.words(&error.message);
            let words: Vec<&str> = words.split_whitespace().collect();
            QueryError::Unreachable(words.join(" "))
        };
        let options = options.into_iter().map(|(key, value)| {
            (
                OptionDatabase::from(key.as_str()),
                OptionValue::String(value),
            )
        });
        let database = driver
            .new_database_with_opts(options)
            .map_err(unreachable)?;
        let connection = database.new_connection().map_err(unreachable)?;
        let mut session = Self {
            driver: warehouse.driver,
            connection,
            secrets,
            is_broken: false,
        };
        for sql in options::session_statements(warehouse) {
            session.execute_update(&sql).map_err(|error| match error {
                QueryError::Reported(words) => QueryError::Unreachable(words),
                other => other,
            })?;
        }
        Ok(session)
    }

    /// True if no other statement can run on this connection.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Runs one statement. Nothing that it changed in its session remains.
    pub(crate) fn run(
        &mut self,
        statement: &WarehouseStatement,
        cancellation: &Cancellation,
    ) -> Result<StatementAnswer, QueryError> {
        let checked = match statement.kind {
            StatementKind::Agent => read_only::check(self.driver, &statement.sql)?,
            StatementKind::Catalog => CheckedQuery::trusted(&statement.sql),
        };
        let transaction = options::read_only_transaction(self.driver);
        if let Some((begin, _)) = transaction {
            self.execute_update(begin)?;
        }
        let rows = self.query(&checked.sql, statement, cancellation);
        if let Some((_, end)) = transaction
            && self.execute_update(end).is_err()
        {
            self.is_broken = true;
        }
        let rows = rows?;
        Ok(StatementAnswer {
            columns: checked.columns(&rows.headers),
            tables: checked.tables,
            rows,
        })
    }

    fn query(
        &mut self,
        sql: &str,
        statement: &WarehouseStatement,
        cancellation: &Cancellation,
    ) -> Result<QueryRows, QueryError> {
        let mut running = self.statement(sql)?;
        for (key, value) in options::statement_options(self.driver, statement.time_limit) {
            // A driver of another release may lack the option.
            let _ = running.set_option(OptionStatement::from(key), OptionValue::String(value));
        }
        *cancellation.lock() = Some(running.get_cancel_handle());
        let result = match running.execute() {
            Ok(mut rows) => self.read(rows.as_mut(), statement.limits, &mut running),
            Err(error) => Err(self.reported(&error)),
        };
        *cancellation.lock() = None;
        result
    }

    fn read(
        &mut self,
        reader: &mut dyn RecordBatchReader,
        limits: RowLimits,
        running: &mut ManagedStatement,
    ) -> Result<QueryRows, QueryError> {
        let schema = reader.schema();
        let headers: Vec<String> = schema
            .fields()
            .iter()
            .map(|field| field.name().chars().take(MAX_HEADER_CHARS).collect())
            .collect();
        if headers.is_empty() {
            return Err(QueryError::NotReadOnly);
        }
        let widest = SqlCell::max_chars(limits.chars, headers.len());
        let mut found = QueryRows {
            headers,
            ..QueryRows::default()
        };
        let mut used = 0;
        while let Some(batch) = reader.next() {
            let batch = batch.map_err(|error| self.secrets.error(&error.to_string()))?;
            for row in 0..batch.num_rows() {
                let cells: Vec<SqlCell> = batch
                    .columns()
                    .iter()
                    .zip(schema.fields())
                    .map(|(column, field)| cells::cell(column.as_ref(), field, row, widest))
                    .collect();
                used += cells.iter().map(SqlCell::width).sum::<usize>();
                let is_full = found.rows.len() == limits.rows
                    || (used > limits.chars && !found.rows.is_empty());
                if is_full {
                    found.truncated = true;
                    self.stop(reader, running);
                    return Ok(found);
                }
                found.rows.push(cells);
            }
        }
        Ok(found)
    }

    /// Cancels a statement of which enough rows were read. The connection is given up if rows keep coming.
    fn stop(&mut self, reader: &mut dyn RecordBatchReader, running: &mut ManagedStatement) {
        let is_cancelled = running.get_cancel_handle().try_cancel().is_ok();
        let mut drained = 0;
        while drained < MAX_DRAINED_BATCHES && matches!(reader.next(), Some(Ok(_))) {
            drained += 1;
        }
        self.is_broken |= drained == MAX_DRAINED_BATCHES || !is_cancelled && drained > 0;
    }

    fn statement(&mut self, sql: &str) -> Result<ManagedStatement, QueryError> {
        let mut statement = self
            .connection
            .new_statement()
            .map_err(|error| self.secrets.reported(&error))?;
        statement
            .set_sql_query(sql)
            .map_err(|error| self.secrets.reported(&error))?;
        Ok(statement)
    }

    fn execute_update(&mut self, sql: &str) -> Result<(), QueryError> {
        let mut statement = self.statement(sql)?;
        statement
            .execute_update()
            .map_err(|error| self.reported(&error))?;
        Ok(())
    }

    fn reported(&mut self, error: &adbc_core::error::Error) -> QueryError {
        self.is_broken |= error.status == Status::IO;
        self.secrets.reported(error)
    }
}

impl Secrets {
    fn reported(&self, error: &adbc_core::error::Error) -> QueryError {
        match error.status {
            Status::Cancelled | Status::Timeout => QueryError::TimedOut(0),
            _ => self.error(&error.message),
        }
    }

    /// An error of the warehouse in its own words.
    fn error(&self, message: &str) -> QueryError {
        if message.contains("due to statement timeout") {
            QueryError::TimedOut(0)
        } else {
            QueryError::Reported(self.words(message))
        }
    }

    /// An error text of a driver: bounded, without the statement that it repeats, and without secrets.
    fn words(&self, message: &str) -> String {
        let message = message.split("\n\nQuery was:").next().unwrap_or_default();
        // What the driver puts in front of the words of PostgreSQL.
        let message = message
            .split_once(": ERROR:  ")
            .or_else(|| message.split_once("[libpq] Failed to connect: "))
            .map_or(message, |(_, words)| words);
        let masked = self.mask(message);
        masked.trim().chars().take(MAX_ERROR_CHARS).collect()
    }
}
