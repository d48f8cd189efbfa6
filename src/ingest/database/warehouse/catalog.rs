//! Tables, columns and keys of a warehouse, by queries of its catalogue.
//!
//! The queries are data, one file of `assets/warehouse` for each driver. They return the same columns everywhere: catalog,
//! schema and name first.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    QueryError, RunningStatements, StatementKind, Warehouse, WarehouseDriver, WarehousePools,
    WarehouseStatement,
};
use crate::{
    database::{
        ColumnInfo, ForeignKey, LookupTarget, QueryRows, RowLimits, SqlCell, TableInfo,
        TableLookup, catalog::NameMatches,
    },
    spelling::nearest_name,
};

/// Time limit of one query of the catalogue.
const CATALOG_TIMEOUT: Duration = Duration::from_secs(300);
/// Largest catalogue: columns, and characters of all their names, types and comments.
const CATALOG_LIMITS: RowLimits = RowLimits {
    rows: 400_000,
    chars: 40_000_000,
};
/// Time for which the names of tables, and the whole catalogue for a search, are reused.
const NAMES_LIFETIME: Duration = Duration::from_secs(30);
const CATALOG_LIFETIME: Duration = Duration::from_secs(600);
/// Most rights that [`ServerInfo`] names.
const MAX_RIGHTS: usize = 5;

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

/// Tables of a warehouse that were read before.
#[derive(Debug, Default)]
pub(super) struct CatalogCache {
    /// Tables, each without its columns.
    names: Option<(Instant, Arc<Vec<TableInfo>>)>,
    all: Option<(Instant, Arc<Vec<TableInfo>>)>,
}

/// Catalog, schema and name of a table.
type TableKey = (Option<String>, Option<String>, String);

impl WarehousePools {
    /// Connects and asks what the server is.
    pub(in crate::database) fn server(
        &self,
        warehouse: &Warehouse,
    ) -> Result<ServerInfo, QueryError> {
        let mut info = ServerInfo::default();
        for row in self.section(warehouse, "server", &[])?.rows {
            info.version = text(&row, 0).unwrap_or_default();
            info.user = text(&row, 1).unwrap_or_default();
        }
        let tables = self.names(warehouse)?;
        let schemas: BTreeSet<&str> = tables
            .iter()
            .filter_map(|table| table.schema.as_deref())
            .collect();
        info.schemas = schemas.into_iter().map(str::to_owned).collect();
        // The rights are not worth an error: a user may be unable to see them.
        let rights = self.section(warehouse, "rights", &[]).unwrap_or_default();
        let rights = rights.rows.iter().filter_map(|row| text(row, 0));
        info.write_rights = rights.take(MAX_RIGHTS).collect();
        Ok(info)
    }

    /// Every table with its columns and keys.
    pub(in crate::database) fn tables(
        &self,
        warehouse: &Warehouse,
        progress: &mut dyn FnMut(CatalogProgress),
    ) -> Result<Vec<TableInfo>, QueryError> {
        let tables: Vec<TableInfo> = self.names(warehouse)?.to_vec();
        progress(CatalogProgress {
            tables: tables.len(),
            columns: 0,
        });
        let tables = self.with_details(warehouse, tables, &[])?;
        progress(CatalogProgress {
            tables: tables.len(),
            columns: tables.iter().map(|table| table.columns.len()).sum(),
        });
        Ok(tables)
    }

    /// One answer for each of `targets`.
    pub(in crate::database) fn look_up(
        &self,
        warehouse: &Warehouse,
        targets: &[LookupTarget],
    ) -> Result<Vec<TableLookup>, QueryError> {
        let names = self.names(warehouse)?;
        let found: Vec<_> = targets.iter().map(|target| find(&names, target)).collect();
        let wanted: BTreeMap<TableKey, &TableInfo> = found
            .iter()
            .flatten()
            .map(|(table, _)| (key_of(table), *table))
            .collect();
        let only: Vec<TableInfo> = wanted.values().map(|table| (*table).clone()).collect();
        let detailed = match only.is_empty() {
            true => Vec::new(),
            false => self.with_details(warehouse, only.clone(), &only)?,
        };
        let detailed: HashMap<TableKey, TableInfo> = detailed
            .into_iter()
            .map(|table| (key_of(&table), table))
            .collect();
        let answer = |(target, found): (&LookupTarget, Option<(&TableInfo, Option<&String>)>)| {
            let known = found
                .and_then(|(table, column)| Some((detailed.get(&key_of(table))?.clone(), column)));
            match known {
                None => TableLookup::MissingTable {
                    closest: closest(&names, target),
                },
                Some((table, None)) => TableLookup::Found(table),
                Some((mut table, Some(column))) => {
                    let is_wanted = |known: &ColumnInfo| known.name.eq_ignore_ascii_case(column);
                    match table.columns.iter().position(is_wanted) {
                        Some(index) => {
                            table.columns = vec![table.columns.swap_remove(index)];
                            TableLookup::Found(table)
                        }
                        None => TableLookup::MissingColumn(table),
                    }
                }
            }
        };
        Ok(targets.iter().zip(found).map(answer).collect())
    }

    /// The first `limit` tables and columns whose names contain one of `words`; all tables if `words` is empty.
    pub(in crate::database) fn search(
        &self,
        warehouse: &Warehouse,
        words: &[String],
        limit: usize,
    ) -> Result<NameMatches, QueryError> {
        let holds = |name: &str| {
            let name = name.to_lowercase();
            words.iter().any(|word| name.contains(word.as_str()))
        };
        let mut matches = NameMatches::default();
        let mut add = |kind: &str, name: String| {
            matches.total += 1;
            if matches.first.len() < limit {
                matches.first.push((kind.to_owned(), name));
            }
        };
        if words.is_empty() {
            for table in self.names(warehouse)?.iter() {
                add(&table.kind, table.display());
            }
            return Ok(matches);
        }
        let tables = self.all(warehouse)?;
        for table in tables.iter().filter(|table| holds(&table.name)) {
            add(&table.kind, table.display());
        }
        for table in tables.iter() {
            for column in table.columns.iter().filter(|column| holds(&column.name)) {
                add("column", format!("{}.{}", table.display(), column.name));
            }
        }
        Ok(matches)
    }

    /// Tables without columns, perhaps as they were a moment ago.
    fn names(&self, warehouse: &Warehouse) -> Result<Arc<Vec<TableInfo>>, QueryError> {
        let pool = self.pool(warehouse);
        if let Some((at, names)) = &pool.cache.lock().names
            && at.elapsed() < NAMES_LIFETIME
        {
            return Ok(Arc::clone(names));
        }
        let rows = self.section(warehouse, "tables", &[])?.rows;
        let table = |row: &Vec<SqlCell>| TableInfo {
            catalog: text(row, 0),
            schema: text(row, 1),
            name: text(row, 2).unwrap_or_default(),
            kind: text(row, 3).unwrap_or_default(),
            comment: text(row, 4).filter(|comment| !comment.is_empty()),
            rows: text(row, 5).and_then(|rows| rows.parse().ok()),
            ..TableInfo::default()
        };
        let schemas = configured_schemas(warehouse);
        let is_configured = |table: &TableInfo| {
            let schema = table.schema.as_deref().unwrap_or_default();
            schemas.is_empty() || schemas.iter().any(|name| name.eq_ignore_ascii_case(schema))
        };
        let names: Vec<TableInfo> = rows.iter().map(table).filter(is_configured).collect();
        let names = Arc::new(names);
        pool.cache.lock().names = Some((Instant::now(), Arc::clone(&names)));
        Ok(names)
    }

    /// The whole catalogue, perhaps as it was some minutes ago.
    fn all(&self, warehouse: &Warehouse) -> Result<Arc<Vec<TableInfo>>, QueryError> {
        let pool = self.pool(warehouse);
        if let Some((at, all)) = &pool.cache.lock().all
            && at.elapsed() < CATALOG_LIFETIME
        {
            return Ok(Arc::clone(all));
        }
        let all = Arc::new(self.tables(warehouse, &mut |_| {})?);
        pool.cache.lock().all = Some((Instant::now(), Arc::clone(&all)));
        Ok(all)
    }

    /// `tables` with their columns and keys; `only` limits the query to these tables.
    fn with_details(
        &self,
        warehouse: &Warehouse,
        mut tables: Vec<TableInfo>,
        only: &[TableInfo],
    ) -> Result<Vec<TableInfo>, QueryError> {
        let places: HashMap<TableKey, usize> = tables
            .iter()
            .enumerate()
            .map(|(index, table)| (key_of(table), index))
            .collect();
        let place = |row: &[SqlCell]| {
            let key = (text(row, 0), text(row, 1), text(row, 2).unwrap_or_default());
            places.get(&key).copied()
        };
        for row in self.section(warehouse, "columns", only)?.rows {
            let column = ColumnInfo {
                name: text(&row, 3).unwrap_or_default(),
                declared_type: text(&row, 4).unwrap_or_default(),
                nullable: text(&row, 5).is_none_or(|value| is_true(&value)),
                comment: text(&row, 6).filter(|comment| !comment.is_empty()),
                ..ColumnInfo::default()
            };
            if let Some(table) = place(&row).and_then(|index| tables.get_mut(index)) {
                table.columns.push(column);
            }
        }
        for row in self.section(warehouse, "keys", only)?.rows {
            let Some(table) = place(&row).and_then(|index| tables.get_mut(index)) else {
                continue;
            };
            let column = text(&row, 3).unwrap_or_default();
            match (text(&row, 4).as_deref(), text(&row, 7)) {
                (Some("PK"), _) => {
                    let mut columns = table.columns.iter_mut();
                    if let Some(key) = columns.find(|known| known.name == column) {
                        key.is_key = true;
                    }
                }
                (_, Some(to_table)) => table.foreign_keys.push(ForeignKey {
                    column,
                    to_catalog: text(&row, 5),
                    to_schema: text(&row, 6),
                    to_table,
                    to_column: text(&row, 8),
                }),
                (_, None) => {}
            }
        }
        Ok(tables)
    }

    /// The rows of one query of the catalogue; none if the driver has no such query.
    fn section(
        &self,
        warehouse: &Warehouse,
        name: &str,
        only: &[TableInfo],
    ) -> Result<QueryRows, QueryError> {
        let mut all = QueryRows::default();
        let Some(sql) = section_text(warehouse.driver, name) else {
            return Ok(all);
        };
        let scopes = match sql.contains("{scope}") {
            true => bigquery_scopes(warehouse),
            false => vec![String::new()],
        };
        for scope in scopes {
            let statement = WarehouseStatement {
                sql: filled(warehouse.driver, &sql.replace("{scope}", &scope), only),
                limits: CATALOG_LIMITS,
                time_limit: CATALOG_TIMEOUT,
                kind: StatementKind::Catalog,
            };
            let found = self
                .run(warehouse, &statement, &RunningStatements::default())?
                .rows;
            if found.truncated {
                return Err(QueryError::AnswerTooLarge(CATALOG_LIMITS.chars as u64));
            }
            all.rows.extend(found.rows);
        }
        Ok(all)
    }
}

/// The query `name` of a driver.
fn section_text(driver: WarehouseDriver, name: &str) -> Option<String> {
    let text = match driver {
        WarehouseDriver::Postgres => include_str!("../../../../assets/warehouse/postgres.sql"),
        WarehouseDriver::Redshift => include_str!("../../../../assets/warehouse/redshift.sql"),
        WarehouseDriver::DuckDb => include_str!("../../../../assets/warehouse/duckdb.sql"),
        WarehouseDriver::Snowflake => include_str!("../../../../assets/warehouse/snowflake.sql"),
        WarehouseDriver::BigQuery => include_str!("../../../../assets/warehouse/bigquery.sql"),
        WarehouseDriver::Databricks => include_str!("../../../../assets/warehouse/databricks.sql"),
        WarehouseDriver::MySql => include_str!("../../../../assets/warehouse/mysql.sql"),
        WarehouseDriver::SqlServer => include_str!("../../../../assets/warehouse/sqlserver.sql"),
    };
    let mut lines = text.lines();
    lines.find(|line| line.strip_prefix("-- ") == Some(name))?;
    let lines: Vec<&str> = lines.take_while(|line| !line.starts_with("-- ")).collect();
    Some(lines.join("\n"))
}

/// `sql` with each `{only:SCHEMA,TABLE}` replaced by a condition for the tables `only`; none stands for all.
fn filled(driver: WarehouseDriver, sql: &str, only: &[TableInfo]) -> String {
    let mut filled = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some((before, after)) = rest.split_once("{only:") {
        let (expressions, after) = after.split_once('}').unwrap_or((after, ""));
        let (schema, table) = expressions.rsplit_once(',').unwrap_or(("", expressions));
        let conditions: Vec<String> = only
            .iter()
            .map(|of| {
                let name = literal(driver, &of.name);
                match &of.schema {
                    Some(of) => {
                        format!("({schema} = {} AND {table} = {name})", literal(driver, of))
                    }
                    None => format!("({table} = {name})"),
                }
            })
            .collect();
        filled.push_str(before);
        filled.push_str(&match conditions.is_empty() {
            true => "1 = 1".to_owned(),
            false => format!("({})", conditions.join(" OR ")),
        });
        rest = after;
    }
    filled.push_str(rest);
    filled
}

/// `text` as a literal of SQL.
fn literal(driver: WarehouseDriver, text: &str) -> String {
    let text = match driver {
        WarehouseDriver::BigQuery | WarehouseDriver::Databricks => {
            text.replace('\\', "\\\\").replace('\'', "\\'")
        }
        WarehouseDriver::Snowflake | WarehouseDriver::MySql | WarehouseDriver::Redshift => {
            text.replace('\\', "\\\\").replace('\'', "''")
        }
        _ => text.replace('\'', "''"),
    };
    format!("'{text}'")
}

/// The schemas that the connection names; all of them if it names none.
fn configured_schemas(warehouse: &Warehouse) -> Vec<String> {
    texts(warehouse, "schemas")
}

/// Where the catalogue of BigQuery is: the datasets of the connection, or its region.
fn bigquery_scopes(warehouse: &Warehouse) -> Vec<String> {
    let quoted = |name: &str| format!("`{}`.", name.replace(['`', '\\'], ""));
    let datasets = texts(warehouse, "dataset_ids");
    if datasets.is_empty() {
        let location = texts(warehouse, "location").into_iter().next();
        let location = location.unwrap_or_else(|| "us".to_owned()).to_lowercase();
        return vec![quoted(&format!("region-{location}"))];
    }
    datasets.iter().map(|dataset| quoted(dataset)).collect()
}

/// The names in the list `key` of the connection.
fn texts(warehouse: &Warehouse, key: &str) -> Vec<String> {
    let list = warehouse.keys.get(key).map(String::as_str);
    let names = list.unwrap_or_default().split(',').map(str::trim);
    names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

impl TableInfo {
    /// Its name as SQL has it: schema and name, with the catalog in front if there is one.
    pub fn display(&self) -> String {
        let parts = [&self.catalog, &self.schema].into_iter().flatten();
        let parts: Vec<&str> = parts
            .map(String::as_str)
            .chain([self.name.as_str()])
            .collect();
        parts.join(".")
    }
}

fn key_of(table: &TableInfo) -> TableKey {
    (
        table.catalog.clone(),
        table.schema.clone(),
        table.name.clone(),
    )
}

/// The table that `target` most likely means, and the column.
fn find<'a>(
    tables: &'a [TableInfo],
    target: &'a LookupTarget,
) -> Option<(&'a TableInfo, Option<&'a String>)> {
    let matching = |wanted: &String, is_same: &dyn Fn(&str, &str) -> bool| {
        tables.iter().find(|table| {
            let display = table.display();
            let tail = display
                .len()
                .checked_sub(wanted.len())
                .filter(|start| display.is_char_boundary(*start))
                .map(|start| display.split_at(start));
            tail.is_some_and(|(front, tail)| {
                is_same(tail, wanted) && (front.is_empty() || front.ends_with('.'))
            })
        })
    };
    let exact = |a: &str, b: &str| a == b;
    let folded = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    target.iter().find_map(|(wanted, column)| {
        let table = matching(wanted, &exact).or_else(|| matching(wanted, &folded))?;
        Some((table, column.as_ref()))
    })
}

fn closest(tables: &[TableInfo], target: &LookupTarget) -> Option<String> {
    let names: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let nearest = target
        .iter()
        .find_map(|(name, _)| nearest_name(&last(name), &names).map(str::to_owned))?;
    let table = tables.iter().find(|table| table.name == nearest);
    table.map(TableInfo::display)
}

/// The text of a cell; `None` for NULL.
fn text(row: &[SqlCell], index: usize) -> Option<String> {
    match row.get(index)? {
        SqlCell::Null => None,
        SqlCell::Text { head, full_chars } => Some(match full_chars {
            Some(_) => format!("{head}…"),
            None => head.clone(),
        }),
        other => Some(other.to_string()),
    }
}

fn is_true(text: &str) -> bool {
    ["true", "1", "t", "YES"].contains(&text)
}
