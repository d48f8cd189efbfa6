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
    WarehouseStatement, pool::WarehousePool,
};
use crate::{
    database::{
        ColumnInfo, ForeignKey, LookupTarget, QueryRows, RowLimits, SqlCell, TableInfo,
        TableLookup, catalog::NameMatches,
    },
    spelling::nearest_name,
};

/// Time limit of one query of the catalogue, for a scan.
pub(in crate::database) const CATALOG_TIMEOUT: Duration = Duration::from_secs(300);
/// Largest catalogue: columns, and characters of all their names, types and comments.
const CATALOG_LIMITS: RowLimits = RowLimits {
    rows: 400_000,
    chars: 40_000_000,
};
/// Time for which the names of tables, and the whole catalogue for a search, are reused.
const NAMES_LIFETIME: Duration = Duration::from_secs(30);
const CATALOG_LIFETIME: Duration = Duration::from_secs(600);
/// Most tables that an answer lists for one name.
const MAX_AMBIGUOUS: usize = 50;
/// The error of a table that the queries for columns do not find.
const NO_COLUMNS: &str = "it has no visible columns, or was removed meanwhile";
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
    names: CachedTables,
    all: CachedTables,
}

/// One reading at a time, whose result all that wait share.
#[derive(Debug, Default)]
struct CachedTables {
    found: Option<(Instant, Arc<Vec<TableInfo>>)>,
    is_being_read: bool,
    /// Why the last reading failed, if another attempt would fail as well.
    failure: Option<QueryError>,
}

/// Which tables of the cache.
type CachePart = fn(&mut CatalogCache) -> &mut CachedTables;

/// A reading of tables for the cache. Dropping it lets another attempt read.
struct CatalogReading<'a> {
    pool: &'a WarehousePool,
    part: CachePart,
    result: Result<Arc<Vec<TableInfo>>, QueryError>,
}

impl Drop for CatalogReading<'_> {
    fn drop(&mut self) {
        self.pool.cache.change(|cache| {
            let tables = (self.part)(cache);
            tables.is_being_read = false;
            tables.failure = None;
            match &self.result {
                Ok(found) => tables.found = Some((Instant::now(), Arc::clone(found))),
                // The others may have more time.
                Err(QueryError::Stopped | QueryError::TimedOut(_)) => {}
                Err(error) => tables.failure = Some(error.clone()),
            }
        });
    }
}

/// Who reads the catalogue: the attempt that ends the reading with it, and the time limit of each query.
#[derive(Clone, Copy)]
pub(in crate::database) struct CatalogReader<'a> {
    pub(in crate::database) warehouse: &'a Warehouse,
    pub(in crate::database) running: &'a RunningStatements,
    pub(in crate::database) time_limit: Duration,
}

/// Catalog, schema and name of a table.
type TableKey = (Option<String>, Option<String>, String);

impl WarehousePools {
    /// Connects and asks what the server is.
    pub(in crate::database) fn server(
        &self,
        reader: CatalogReader<'_>,
    ) -> Result<ServerInfo, QueryError> {
        let mut info = ServerInfo::default();
        for row in self.section(reader, "server", &[])?.rows {
            info.version = text(&row, 0).unwrap_or_default();
            info.user = text(&row, 1).unwrap_or_default();
        }
        let tables = self.names(reader)?;
        let schemas: BTreeSet<&str> = tables
            .iter()
            .filter_map(|table| table.schema.as_deref())
            .collect();
        info.schemas = schemas.into_iter().map(str::to_owned).collect();
        // The rights are not worth an error: a user may be unable to see them.
        let rights = self.section(reader, "rights", &[]).unwrap_or_default();
        let rights = rights.rows.iter().filter_map(|row| text(row, 0));
        info.write_rights = rights.take(MAX_RIGHTS).collect();
        Ok(info)
    }

    /// Every table with its columns and keys.
    pub(in crate::database) fn tables(
        &self,
        reader: CatalogReader<'_>,
        progress: &mut dyn FnMut(CatalogProgress),
    ) -> Result<Vec<TableInfo>, QueryError> {
        let tables: Vec<TableInfo> = self.names(reader)?.to_vec();
        progress(CatalogProgress {
            tables: tables.len(),
            columns: 0,
        });
        let tables = self.with_details(reader, tables, &[])?;
        progress(CatalogProgress {
            tables: tables.len(),
            columns: tables.iter().map(|table| table.columns.len()).sum(),
        });
        Ok(tables)
    }

    /// One answer for each of `targets`.
    pub(in crate::database) fn look_up(
        &self,
        reader: CatalogReader<'_>,
        targets: &[LookupTarget],
    ) -> Result<Vec<TableLookup>, QueryError> {
        let warehouse = reader.warehouse;
        let names = self.names(reader)?;
        let schema = default_schema(warehouse.driver);
        let database = warehouse.database();
        let database = database.as_deref();
        let readable: Vec<LookupTarget> = targets
            .iter()
            .map(|target| in_database(&names, target, database))
            .collect();
        let found: Vec<_> = readable
            .iter()
            .map(|target| find(&names, target, schema))
            .collect();
        let one = |found: &NameFinding<'_>| match found {
            NameFinding::One(table, _) => Some((key_of(table), (*table).clone())),
            NameFinding::Several(_) | NameFinding::None => None,
        };
        let wanted: BTreeMap<TableKey, TableInfo> = found.iter().filter_map(one).collect();
        let only: Vec<TableInfo> = wanted.into_values().collect();
        let detailed = match only.is_empty() {
            true => Vec::new(),
            false => self.with_details(reader, only.clone(), &only)?,
        };
        let detailed: HashMap<TableKey, TableInfo> = detailed
            .into_iter()
            .map(|table| (key_of(&table), table))
            .collect();
        let schemas = warehouse.schemas();
        let answer = |(target, found): (&LookupTarget, NameFinding<'_>)| {
            let known = match found {
                NameFinding::One(table, column) => detailed
                    .get(&key_of(table))
                    .map(|table| (table.clone(), column)),
                NameFinding::Several(tables) => {
                    let tables = tables.into_iter().take(MAX_AMBIGUOUS).cloned();
                    return TableLookup::Ambiguous(tables.collect());
                }
                NameFinding::None => None,
            };
            match known {
                None => TableLookup::MissingTable {
                    closest: closest(&names, target),
                    is_covered: is_covered(&names, (&schemas, database), target, schema),
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
        reader: CatalogReader<'_>,
        words: &[String],
        limit: usize,
    ) -> Result<NameMatches, QueryError> {
        let tables = match words.is_empty() {
            true => self.names(reader)?,
            false => self.all(reader)?,
        };
        Ok(NameMatches::find(&tables, words, limit))
    }

    /// Tables without columns, perhaps as they were a moment ago.
    fn names(&self, reader: CatalogReader<'_>) -> Result<Arc<Vec<TableInfo>>, QueryError> {
        self.cached(
            reader,
            |cache| &mut cache.names,
            NAMES_LIFETIME,
            || {
                let rows = self.section(reader, "tables", &[])?.rows;
                let table = |row: &Vec<SqlCell>| TableInfo {
                    catalog: text(row, 0),
                    schema: text(row, 1),
                    name: text(row, 2).unwrap_or_default(),
                    kind: text(row, 3).unwrap_or_default(),
                    comment: text(row, 4).filter(|comment| !comment.is_empty()),
                    rows: text(row, 5).and_then(|rows| rows.parse().ok()),
                    ..TableInfo::default()
                };
                let schemas = reader.warehouse.schemas();
                let is_configured = |table: &TableInfo| {
                    let schema = table.schema.as_deref().unwrap_or_default();
                    schemas.is_empty()
                        || schemas.iter().any(|name| name.eq_ignore_ascii_case(schema))
                };
                Ok(rows.iter().map(table).filter(is_configured).collect())
            },
        )
    }

    /// The whole catalogue, perhaps as it was some minutes ago.
    fn all(&self, reader: CatalogReader<'_>) -> Result<Arc<Vec<TableInfo>>, QueryError> {
        let read = || self.tables(reader, &mut |_| {});
        self.cached(reader, |cache| &mut cache.all, CATALOG_LIFETIME, read)
    }

    /// The tables of `part` if they are younger than `lifetime`; otherwise those of `read`, which one attempt calls while the
    /// others wait for its result.
    fn cached(
        &self,
        reader: CatalogReader<'_>,
        part: CachePart,
        lifetime: Duration,
        read: impl FnOnce() -> Result<Vec<TableInfo>, QueryError>,
    ) -> Result<Arc<Vec<TableInfo>>, QueryError> {
        let pool = self.pool(reader.warehouse);
        let mut has_waited = false;
        let is_ready = |cache: &mut CatalogCache| {
            let is_being_read = part(cache).is_being_read;
            has_waited |= is_being_read;
            !is_being_read
        };
        let mut cache = pool.cache.wait(reader.running, is_ready)?;
        let tables = part(&mut cache);
        match (&tables.found, &tables.failure) {
            (_, Some(failure)) if has_waited => return Err(failure.clone()),
            (Some((at, found)), _) if at.elapsed() < lifetime => return Ok(Arc::clone(found)),
            _ => tables.is_being_read = true,
        }
        drop(cache);
        let mut reading = CatalogReading {
            pool: &pool,
            part,
            result: Err(QueryError::Stopped),
        };
        reading.result = read().map(Arc::new);
        reading.result.clone()
    }

    /// `tables` with their columns and keys; `only` limits the query to these tables.
    fn with_details(
        &self,
        reader: CatalogReader<'_>,
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
        for row in self.section(reader, "columns", only)?.rows {
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
        for row in self.section(reader, "keys", only)?.rows {
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
        for table in tables.iter_mut().filter(|table| table.columns.is_empty()) {
            table.error = Some(NO_COLUMNS.to_owned());
        }
        Ok(tables)
    }

    /// The rows of one query of the catalogue; none if the driver has no such query.
    fn section(
        &self,
        reader: CatalogReader<'_>,
        name: &str,
        only: &[TableInfo],
    ) -> Result<QueryRows, QueryError> {
        let warehouse = reader.warehouse;
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
                time_limit: reader.time_limit,
                kind: StatementKind::Catalog,
            };
            let found = self.run(warehouse, &statement, reader.running)?.rows;
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

/// `sql` with each `{only:SCHEMA,TABLE}` replaced by a condition for the tables `only`; no table means all of them.
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

impl Warehouse {
    /// The schemas or datasets that the connection names; all of them if it names none.
    pub(crate) fn schemas(&self) -> Vec<String> {
        match self.driver {
            WarehouseDriver::BigQuery => texts(self, "dataset_ids"),
            _ => texts(self, "schemas"),
        }
    }
}

/// Where the catalogue of BigQuery is: the datasets of the connection, or its region.
fn bigquery_scopes(warehouse: &Warehouse) -> Vec<String> {
    let quoted = |name: &str| format!("`{}`.", name.replace(['`', '\\'], ""));
    let datasets = warehouse.schemas();
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

fn key_of(table: &TableInfo) -> TableKey {
    (
        table.catalog.clone(),
        table.schema.clone(),
        table.name.clone(),
    )
}

/// What a target means among the names of tables, with the column that it names.
enum NameFinding<'a> {
    One(&'a TableInfo, Option<&'a String>),
    /// Several tables, none of which is in the schema where the database looks first.
    Several(Vec<&'a TableInfo>),
    None,
}

/// The tables of the first reading that means one. Other case decides only if no table is written exactly so.
fn find<'a>(
    tables: &'a [TableInfo],
    target: &'a LookupTarget,
    default_schema: Option<&str>,
) -> NameFinding<'a> {
    let exact = |own: &str, wanted: &str| own == wanted;
    let folded = |own: &str, wanted: &str| own.to_lowercase() == wanted.to_lowercase();
    let by_parts: NameRule = has_parts;
    let rules: [(NameRule, SameText<'_>); 4] = [
        (by_parts, &exact),
        (by_parts, &folded),
        (is_displayed, &exact),
        (is_displayed, &folded),
    ];
    for (parts, column) in target {
        let found = rules.iter().find_map(|(rule, is_same)| {
            let named = tables.iter().filter(|table| rule(table, parts, is_same));
            let named: Vec<&TableInfo> = named.collect();
            (!named.is_empty()).then_some(named)
        });
        let Some(found) = found else { continue };
        let is_default = |table: &&TableInfo| match (default_schema, &table.schema) {
            (Some(default), Some(schema)) => default.eq_ignore_ascii_case(schema),
            _ => false,
        };
        let mut preferred = found.iter().copied().filter(is_default);
        return match (&found[..], preferred.next(), preferred.next()) {
            (&[only], ..) | (_, Some(only), None) => NameFinding::One(only, column.as_ref()),
            _ => NameFinding::Several(found),
        };
    }
    NameFinding::None
}

/// The target without the readings that are in another database than the one whose tables these are. Tables of a server
/// that shows one database do not name it.
fn in_database(
    tables: &[TableInfo],
    target: &LookupTarget,
    database: Option<&str>,
) -> LookupTarget {
    let named = tables.iter().any(|table| table.catalog.is_some());
    let is_elsewhere = |parts: &[String]| match (parts, database) {
        ([catalog, _, _], Some(database)) => !named && !database.eq_ignore_ascii_case(catalog),
        _ => false,
    };
    let kept = target.iter().filter(|(parts, _)| !is_elsewhere(parts));
    kept.cloned().collect()
}

/// Compares a name of the database with a wanted one.
type SameText<'a> = &'a dyn Fn(&str, &str) -> bool;
/// Whether a table is meant by the parts of a name.
type NameRule = fn(&TableInfo, &[String], SameText<'_>) -> bool;

/// Compares the parts from the last one, as far as both have them.
fn has_parts(table: &TableInfo, parts: &[String], is_same: SameText<'_>) -> bool {
    let own = [
        Some(&table.name),
        table.schema.as_ref(),
        table.catalog.as_ref(),
    ];
    let mut pairs = parts.iter().rev().zip(own);
    parts.len() <= 3 && pairs.all(|(wanted, own)| own.is_none_or(|own| is_same(own, wanted)))
}

/// Compares the whole text with the name as lists write it, without quotes.
fn is_displayed(table: &TableInfo, parts: &[String], is_same: SameText<'_>) -> bool {
    let wanted = parts.join(".");
    let schema = table.schema.as_deref().unwrap_or_default();
    is_same(&table.display(), &wanted) || is_same(&format!("{schema}.{}", table.name), &wanted)
}

/// The schema in which the database looks for a name without one.
fn default_schema(driver: WarehouseDriver) -> Option<&'static str> {
    match driver {
        WarehouseDriver::Postgres | WarehouseDriver::Redshift | WarehouseDriver::Snowflake => {
            Some("public")
        }
        WarehouseDriver::DuckDb => Some("main"),
        WarehouseDriver::SqlServer => Some("dbo"),
        WarehouseDriver::BigQuery | WarehouseDriver::Databricks | WarehouseDriver::MySql => None,
    }
}

/// Whether `tables` would have the target: they are those of `schemas`, or of all schemas if there are none, in the
/// database of that name, if it is known.
fn is_covered(
    tables: &[TableInfo],
    (schemas, database): (&[String], Option<&str>),
    target: &LookupTarget,
    default_schema: Option<&str>,
) -> bool {
    let is_in = |schema: &str| {
        schemas.is_empty() || schemas.iter().any(|one| one.eq_ignore_ascii_case(schema))
    };
    let has_catalog = |wanted: &str| {
        let catalogs = tables.iter().filter_map(|table| table.catalog.as_deref());
        catalogs
            .chain(database)
            .any(|catalog| catalog.eq_ignore_ascii_case(wanted))
    };
    // The whole text is one part, whatever it contains.
    let tables_only = target.iter().filter(|(_, column)| column.is_none());
    let longest = tables_only.max_by_key(|(parts, _)| parts.len());
    longest.is_some_and(|(parts, _)| match &parts[..] {
        [_] => default_schema.map_or(schemas.len() < 2, is_in),
        [schema, _] => is_in(schema),
        [catalog, schema, _] => has_catalog(catalog) && is_in(schema),
        _ => false,
    })
}

fn closest(tables: &[TableInfo], target: &LookupTarget) -> Option<String> {
    let names: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
    let last = |parts: &[String]| parts.last().cloned().unwrap_or_default();
    let nearest = target
        .iter()
        .find_map(|(parts, _)| nearest_name(&last(parts), &names).map(str::to_owned))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn table(schema: &str, name: &str) -> TableInfo {
        TableInfo {
            schema: Some(schema.into()),
            name: name.into(),
            ..TableInfo::default()
        }
    }

    fn reading(parts: &[&str]) -> (Vec<String>, Option<String>) {
        (parts.iter().map(|part| (*part).to_owned()).collect(), None)
    }

    fn found(tables: &[TableInfo], parts: &[&str]) -> String {
        match find(tables, &vec![reading(parts)], Some("public")) {
            NameFinding::One(table, _) => table.display(),
            NameFinding::Several(tables) => {
                let names: Vec<String> = tables.iter().map(|table| table.display()).collect();
                names.join(" | ")
            }
            NameFinding::None => "-".into(),
        }
    }

    #[test]
    fn names_are_compared_part_by_part() {
        let odd = "Größe \"x\" 100%";
        let tables = [
            table("mart", "orders"),
            table("public", "orders"),
            table("mart", "raw.events"),
            table("mart", odd),
            table("mart", "users"),
            table("stage", "users"),
            table("stage", "Users"),
        ];
        for (parts, expected) in [
            (&["orders"][..], "public.orders"),
            (&["ORDERS"], "public.orders"),
            (&["MART", "orders"], "mart.orders"),
            (&["shop", "public", "orders"], "public.orders"),
            (&["ders"], "-"),
            (&["events"], "-"),
            (&["raw", "events"], "-"),
            (&["raw.events"], "mart.raw.events"),
            (&["mart.raw.events"], "mart.raw.events"),
            (&["mart", "raw.events"], "mart.raw.events"),
            (&["mart", odd], "mart.Größe \"x\" 100%"),
            (&["mart.GRÖSSE \"x\" 100%"], "-"),
            (&["mart.GRÖßE \"X\" 100%"], "mart.Größe \"x\" 100%"),
            (&["users"], "mart.users | stage.users"),
            (&["Users"], "stage.Users"),
            (&["a", "shop", "mart", "users"], "-"),
        ] {
            assert_eq!(found(&tables, parts), expected, "{parts:?}");
        }
    }

    #[test]
    fn other_databases_are_neither_found_nor_covered() {
        let tables = [table("mart", "orders")];
        let found = |database: Option<&str>, name: &str| {
            let parts: Vec<&str> = name.split('.').collect();
            let target = vec![reading(&parts)];
            let readable = in_database(&tables, &target, database);
            match find(&tables, &readable, Some("public")) {
                NameFinding::One(..) => "found",
                _ if is_covered(&tables, (&[], database), &target, Some("public")) => "missing",
                _ => "unknown",
            }
        };
        for (database, name, expected) in [
            (Some("shop"), "SHOP.mart.orders", "found"),
            (Some("shop"), "shop.mart.gone", "missing"),
            (Some("shop"), "other.mart.orders", "unknown"),
            (Some("shop"), "other.mart.gone", "unknown"),
            (Some("shop"), "mart.orders", "found"),
            (None, "shop.mart.orders", "found"),
            (None, "shop.mart.gone", "unknown"),
        ] {
            assert_eq!(found(database, name), expected, "{database:?} {name}");
        }
    }

    #[test]
    fn absence_is_covered_in_listed_places_only() {
        let mut tables = [table("mart", "orders")];
        let covers = |tables: &[TableInfo], schemas: &[&str], parts: &[&str]| {
            let schemas: Vec<String> = schemas.iter().map(|one| (*one).to_owned()).collect();
            let target = vec![reading(&["the whole text"]), reading(parts)];
            is_covered(tables, (&schemas, None), &target, Some("public"))
        };
        assert!(covers(&tables, &[], &["gone"]) && covers(&tables, &[], &["any", "gone"]));
        assert!(covers(&tables, &["mart"], &["Mart", "gone"]));
        assert!(!covers(&tables, &["mart"], &["gone"]));
        assert!(!covers(&tables, &["mart"], &["stage", "gone"]));
        assert!(!covers(&tables, &[], &["shop", "mart", "gone"]));
        for table in &mut tables {
            table.catalog = Some("Shop".into());
        }
        assert!(covers(&tables, &[], &["shop", "mart", "gone"]));
        assert!(!covers(&tables, &[], &["other", "mart", "gone"]));
    }
}
