//! The schema of a database: tables and views, their columns, and sample values.

use std::fmt;

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::{QueryError, RowLimits, SqlCell, read_only_connection};
use crate::spelling::nearest_name;

/// Rows that are read for sample values.
const SAMPLE_ROWS: usize = 20;
/// Most sample values of one column.
const MAX_SAMPLES: usize = 3;

/// A table or view.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TableInfo {
    /// Database or project that the schema belongs to, where the warehouse has several.
    pub catalog: Option<String>,
    /// Schema or dataset; `None` in SQLite.
    pub schema: Option<String>,
    pub name: String,
    /// `table`, `view` or `external`.
    pub kind: String,
    /// Comment in the database.
    pub comment: Option<String>,
    /// Estimated number of rows.
    pub rows: Option<u64>,
    /// Columns in declaration order.
    pub columns: Vec<ColumnInfo>,
    pub foreign_keys: Vec<ForeignKey>,
    /// Why the table cannot be read, such as a view over a missing table.
    pub error: Option<String>,
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

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ColumnInfo {
    pub name: String,
    /// Declared type; may be empty.
    pub declared_type: String,
    pub nullable: bool,
    /// Part of the primary key.
    pub is_key: bool,
    /// Comment in the database.
    pub comment: Option<String>,
    /// Up to [`MAX_SAMPLES`] distinct values.
    pub samples: Vec<String>,
}

/// A column that refers to a column of another table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignKey {
    pub column: String,
    /// Catalog and schema of the other table, where they are known.
    pub to_catalog: Option<String>,
    pub to_schema: Option<String>,
    pub to_table: String,
    /// `None` means the primary key of the other table.
    pub to_column: Option<String>,
}

/// Shows the key as `column → table.column`.
impl fmt::Display for ForeignKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {}", self.column, self.to_table)?;
        self.to_column
            .as_ref()
            .map_or(Ok(()), |column| write!(f, ".{column}"))
    }
}

/// Parts of the names of tables, each with an optional column, that a target may mean; the likeliest first.
pub(crate) type LookupTarget = Vec<(Vec<String>, Option<String>)>;

/// Result of looking up one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum TableLookup {
    /// A table. If the target names a column, only that column is included.
    Found(TableInfo),
    /// The table exists and has no such column.
    MissingColumn(TableInfo),
    /// Several tables have that name. They have no columns here.
    Ambiguous(Vec<TableInfo>),
    MissingTable {
        /// The most similar table name.
        closest: Option<String>,
        /// Whether the list of tables covers the place that the target names.
        is_covered: bool,
    },
}

/// Tables and columns that match a search.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NameMatches {
    /// Kind (`table`, `view`, `column`) and name of the first matches, tables before columns.
    pub(crate) first: Vec<(String, String)>,
    /// Number of all matches.
    pub(crate) total: usize,
}

impl NameMatches {
    /// The first `limit` of `tables` and their columns whose names contain one of `words` (lower case); all tables if
    /// `words` is empty.
    pub(super) fn find(tables: &[TableInfo], words: &[String], limit: usize) -> Self {
        let holds = |name: &str| {
            let name = name.to_lowercase();
            words.iter().any(|word| name.contains(word.as_str()))
        };
        let mut matches = Self::default();
        let mut add = |kind: &str, name: String| {
            matches.total += 1;
            if matches.first.len() < limit {
                matches.first.push((kind.to_owned(), name));
            }
        };
        for table in tables {
            if words.is_empty() || holds(&table.name) {
                add(&table.kind, table.display());
            }
        }
        for table in tables {
            for column in table.columns.iter().filter(|column| holds(&column.name)) {
                add("column", format!("{}.{}", table.display(), column.name));
            }
        }
        matches
    }
}

pub(super) fn look_up(
    connection: &Connection,
    targets: &[LookupTarget],
) -> Result<Vec<TableLookup>, QueryError> {
    let names = list_tables(connection)?;
    targets
        .iter()
        .map(|target| look_up_one(connection, &names, target))
        .collect()
}

fn look_up_one(
    connection: &Connection,
    names: &[(String, String)],
    target: &LookupTarget,
) -> Result<TableLookup, QueryError> {
    let mut missing_column = None;
    for (parts, column) in target {
        let wanted = &file_name(parts);
        // SQLite compares names without case, but another program may have created names that differ in case only.
        let exact = names.iter().find(|(name, _)| name == wanted);
        let Some((name, kind)) = exact.or_else(|| {
            names
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
        }) else {
            continue;
        };
        let mut table = describe_table(connection, name, kind)?;
        let Some(column) = column else {
            return Ok(TableLookup::Found(table));
        };
        match table
            .columns
            .iter()
            .position(|known| known.name.eq_ignore_ascii_case(column))
        {
            Some(index) => {
                table.columns = vec![table.columns.swap_remove(index)];
                return Ok(TableLookup::Found(table));
            }
            None => missing_column = Some(TableLookup::MissingColumn(table)),
        }
    }
    Ok(missing_column.unwrap_or_else(|| {
        let known: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
        let closest = target
            .iter()
            .find_map(|(parts, _)| nearest_name(&file_name(parts), &known))
            .map(str::to_owned);
        TableLookup::MissingTable {
            closest,
            is_covered: true,
        }
    }))
}

/// The table as SQLite names it. It has one schema, which a name may contain.
fn file_name(parts: &[String]) -> String {
    match parts {
        [schema, table] if schema == "main" => table.clone(),
        _ => parts.join("."),
    }
}

/// The first `limit` tables and columns whose names contain one of `words` (lower case); all tables if `words` is
/// empty.
pub(super) fn search(
    connection: &Connection,
    words: &[String],
    limit: usize,
) -> Result<NameMatches, QueryError> {
    let mut tables = Vec::new();
    for (name, kind) in list_tables(connection)? {
        let columns = match words.is_empty() {
            true => Vec::new(),
            // A view over a missing table has no columns.
            false => match columns(connection, &name) {
                Err(QueryError::Reported(_)) => Vec::new(),
                other => other?,
            },
        };
        tables.push(TableInfo {
            name,
            kind,
            columns,
            ..TableInfo::default()
        });
    }
    Ok(NameMatches::find(&tables, words, limit))
}

/// The tables and views of the sorted list from `first` on, at most `limit`, without sample values. An empty answer is the
/// end.
pub(super) fn describe_page(
    connection: &Connection,
    first: usize,
    limit: usize,
) -> Result<Vec<TableInfo>, QueryError> {
    let names = list_tables(connection)?;
    let page = names.iter().skip(first).take(limit);
    page.map(|(name, kind)| describe(connection, name, kind, read_structure))
        .collect()
}

/// Name and kind of every table and view, sorted by name.
pub(super) fn list_tables(connection: &Connection) -> Result<Vec<(String, String)>, QueryError> {
    const ALL: &str = "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') \
        AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY name";
    let mut statement = connection.prepare(ALL)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn columns(connection: &Connection, table: &str) -> Result<Vec<ColumnInfo>, QueryError> {
    const COLUMNS: &str =
        "SELECT name, type, \"notnull\", pk FROM pragma_table_xinfo(?1) WHERE hidden <> 1";
    let mut statement = connection.prepare(COLUMNS)?;
    let rows = statement.query_map([table], |row| {
        Ok(ColumnInfo {
            name: row.get(0)?,
            declared_type: row.get(1)?,
            nullable: !row.get::<_, bool>(2)?,
            is_key: row.get::<_, i64>(3)? > 0,
            ..ColumnInfo::default()
        })
    })?;
    let mut columns: Vec<ColumnInfo> = rows.collect::<Result<_, _>>()?;
    let mut keys = columns.iter_mut().filter(|column| column.is_key);
    // A single integer primary key is an alias of the rowid, which is never null.
    if let (Some(only), None) = (keys.next(), keys.next())
        && only.declared_type.eq_ignore_ascii_case("INTEGER")
    {
        only.nullable = false;
    }
    Ok(columns)
}

/// Columns, foreign keys and sample values of the table or view `name`.
pub(super) fn describe_table(
    connection: &Connection,
    name: &str,
    kind: &str,
) -> Result<TableInfo, QueryError> {
    describe(connection, name, kind, read_details)
}

fn describe(
    connection: &Connection,
    name: &str,
    kind: &str,
    read: impl Fn(&Connection, &mut TableInfo) -> Result<(), QueryError>,
) -> Result<TableInfo, QueryError> {
    let mut table = TableInfo {
        name: name.to_owned(),
        kind: kind.to_owned(),
        ..TableInfo::default()
    };
    match read(connection, &mut table) {
        // A view over a missing table is still listed, with the error.
        Err(QueryError::Reported(problem)) => table.error = Some(problem),
        other => other?,
    }
    Ok(table)
}

fn read_structure(connection: &Connection, table: &mut TableInfo) -> Result<(), QueryError> {
    table.columns = columns(connection, &table.name)?;
    table.foreign_keys = keys(connection, &table.name)?;
    Ok(())
}

fn read_details(connection: &Connection, table: &mut TableInfo) -> Result<(), QueryError> {
    read_structure(connection, table)?;
    let rows = match sample(connection, &table.name) {
        // The description is useful without samples.
        Err(QueryError::ValueTooLarge(_)) => Vec::new(),
        other => other?,
    };
    for (index, column) in table.columns.iter_mut().enumerate() {
        column.samples = distinct_samples(rows.iter().filter_map(|row| row.get(index)));
    }
    Ok(())
}

fn keys(connection: &Connection, table: &str) -> Result<Vec<ForeignKey>, QueryError> {
    const KEYS: &str =
        "SELECT \"from\", \"table\", \"to\" FROM pragma_foreign_key_list(?1) ORDER BY id, seq";
    let mut statement = connection.prepare(KEYS)?;
    let rows = statement.query_map([table], |row| {
        Ok(ForeignKey {
            column: row.get(0)?,
            to_table: row.get(1)?,
            to_column: row.get(2)?,
            ..ForeignKey::default()
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn sample(connection: &Connection, table: &str) -> Result<Vec<Vec<SqlCell>>, QueryError> {
    let sql = format!(
        "SELECT * FROM \"{}\" LIMIT {SAMPLE_ROWS}",
        table.replace('"', "\"\"")
    );
    Ok(read_only_connection::query(
        connection,
        &sql,
        RowLimits {
            rows: SAMPLE_ROWS,
            chars: 20_000,
        },
    )?
    .rows)
}

fn distinct_samples<'a>(cells: impl Iterator<Item = &'a SqlCell>) -> Vec<String> {
    const MAX_SAMPLE_CHARS: usize = 60;
    let mut samples = Vec::new();
    for cell in cells.filter(|cell| **cell != SqlCell::Null) {
        let text = match cell {
            SqlCell::Text { head, .. } => head.chars().take(MAX_SAMPLE_CHARS).collect(),
            other => other.to_string(),
        };
        if !samples.contains(&text) {
            samples.push(text);
        }
        if samples.len() == MAX_SAMPLES {
            break;
        }
    }
    samples
}
