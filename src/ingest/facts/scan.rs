//! The snapshot that KTX's scan of a database leaves below `raw-sources`, with the values of its relationship profile.
//!
//! A file that cannot be used is left out, and the scan then no longer proves that a table is missing.

use std::{collections::HashMap, io};

use jiff::Timestamp;
use serde::Deserialize;

use super::{
    ScanDirs,
    table_name::TableName,
    table_set::{FactOrigin, MAX_TABLES, ScanCoverage, TableCollector, TableSet},
};
use crate::{
    database::{ColumnInfo, ForeignKey, TableInfo},
    untrusted_text::excerpt,
};
use ingestdeck_core::diagnostic::Problem;
use ingestdeck_os::scoped_dir::{FileKind, ScopedDir};

/// File with the properties of a scan. A folder without it is not a scan.
pub(super) const PROPERTIES_FILE: &str = "connection.json";
/// Values of columns, relative to the scan.
pub(super) const PROFILE_FILE: &str = "enrichment/relationship-profile.json";
/// Folder with a file for each table, relative to the scan.
pub(super) const TABLES_DIR: &str = "tables";
/// Largest file about one table, in bytes.
const MAX_TABLE_BYTES: u64 = 16 << 20;
/// Largest profile, in bytes.
const MAX_PROFILE_BYTES: u64 = 256 << 20;
/// Bytes of all files about tables that are read.
const MAX_SCAN_BYTES: u64 = 1 << 30;
/// Most values of a column that are kept.
const MAX_SAMPLES: usize = 5;
/// Longest value that is kept, in characters.
const MAX_SAMPLE_CHARS: usize = 60;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ScanProperties {
    extracted_at: Option<String>,
    #[serde(default)]
    scope: ScanScope,
    table_count: Option<usize>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ScanScope {
    #[serde(default)]
    catalogs: Vec<String>,
    #[serde(default)]
    schemas: Vec<String>,
    #[serde(default)]
    datasets: Vec<String>,
    /// Tables that it was limited to, empty for none. KTX does not record them.
    enabled_tables: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ScannedTable {
    catalog: Option<String>,
    db: Option<String>,
    name: String,
    #[serde(default)]
    kind: Option<String>,
    comment: Option<String>,
    estimated_rows: Option<f64>,
    columns: Vec<ScannedColumn>,
    #[serde(default)]
    foreign_keys: Vec<ScannedKey>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ScannedColumn {
    name: String,
    #[serde(default)]
    native_type: String,
    #[serde(default)]
    nullable: bool,
    #[serde(default)]
    primary_key: bool,
    comment: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ScannedKey {
    from_column: String,
    to_catalog: Option<String>,
    to_db: Option<String>,
    to_table: String,
    to_column: Option<String>,
}

#[derive(Default, Deserialize)]
struct ScanProfile {
    #[serde(default)]
    tables: Vec<ProfiledTable>,
    #[serde(default)]
    columns: HashMap<String, ProfiledColumn>,
}

#[derive(Deserialize)]
struct TablePlace {
    catalog: Option<String>,
    db: Option<String>,
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProfiledTable {
    table: TablePlace,
    row_count: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProfiledColumn {
    table: TablePlace,
    column: String,
    #[serde(default)]
    sample_values: Vec<serde_json::Value>,
}

/// Path of the newest scan, relative to the project: the last by name, as KTX chooses it.
pub(super) fn latest(root: &ScopedDir, dirs: &ScanDirs) -> Option<String> {
    let folder = root.dir_if_exists(&dirs.snapshots).ok()??;
    let mut names: Vec<String> = folder
        .entries()
        .ok()?
        .into_iter()
        .filter(|(_, kind)| *kind == FileKind::Directory)
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| crate::slug::is_plain_name(name))
        .collect();
    names.sort_unstable();
    let newest = names
        .into_iter()
        .rfind(|name| folder.is_file(&format!("{name}/{PROPERTIES_FILE}")))?;
    Some(format!("{}/{newest}", dirs.snapshots))
}

fn read_properties(root: &ScopedDir, path: &str) -> io::Result<ScanProperties> {
    let bytes = root.read(&format!("{path}/{PROPERTIES_FILE}"), MAX_TABLE_BYTES)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// When the scan at `path` read the database; `None` if it does not contain that.
pub(super) fn date(root: &ScopedDir, path: &str) -> Option<Timestamp> {
    let properties = read_properties(root, path).ok()?;
    properties.extracted_at?.parse().ok()
}

/// Reads the scan at `path`. Of several problems, the first of each kind is a warning.
pub(super) fn read(
    root: &ScopedDir,
    path: &str,
    is_limited_now: bool,
    warnings: &mut Vec<Problem>,
) -> Option<TableSet> {
    let mut warn = |why: String| {
        let what = format!("{}: {why}", excerpt(path));
        warnings.push(Problem::new(what).with_help("scan the database again"));
    };
    let properties = match read_properties(root, path) {
        Ok(properties) => properties,
        Err(error) => {
            warn(format!(
                "the scan is not used, as {PROPERTIES_FILE} cannot be read: {error}"
            ));
            return None;
        }
    };
    let mut collector = TableCollector::default();
    let unread = match read_tables(root, path, &mut collector) {
        Ok(unread) => unread,
        Err(error) => {
            warn(format!("the scan is not used: {error}"));
            return None;
        }
    };
    if let Some((count, first)) = &unread {
        warn(format!(
            "{count} files about tables are not used, such as {first}"
        ));
    }
    let found = collector.tables.len();
    let is_whole = unread.is_none()
        && collector.left_out == 0
        && properties.table_count.is_none_or(|count| count == found);
    if unread.is_none() && !is_whole {
        let expected = properties.table_count.unwrap_or_default();
        warn(format!(
            "the scan is incomplete: {found} usable tables of {expected}"
        ));
    }
    match read_profile(root, path) {
        Ok(profile) => add_profile(&mut collector.tables, profile),
        Err(error) => warn(format!("{PROFILE_FILE} is not used: {error}")),
    }
    let ScanScope {
        catalogs,
        mut schemas,
        datasets,
        enabled_tables,
    } = properties.scope;
    schemas.extend(datasets);
    // Without a record, a limit of today leaves open which tables the scan was limited to.
    let enabled = enabled_tables.or_else(|| (!is_limited_now).then(Vec::new));
    let coverage = enabled.filter(|_| is_whole).map(|enabled| ScanCoverage {
        catalogs,
        schemas,
        tables: enabled
            .iter()
            .map(|table| TableName::parse(table))
            .collect(),
    });
    let read_at = properties.extracted_at.and_then(|text| text.parse().ok());
    Some(TableSet::new(
        FactOrigin::Scan,
        read_at,
        collector.tables,
        coverage,
    ))
}

/// Adds the tables in the files of the scan. Returns the number of files that cannot be used, and what is wrong with the
/// first.
fn read_tables(
    root: &ScopedDir,
    path: &str,
    collector: &mut TableCollector,
) -> io::Result<Option<(usize, String)>> {
    let Some(folder) = root.dir_if_exists(&format!("{path}/{TABLES_DIR}"))? else {
        return Ok(None);
    };
    let mut names: Vec<(String, FileKind)> = folder
        .entries()?
        .into_iter()
        .filter_map(|(name, kind)| Some((name.into_string().ok()?, kind)))
        .filter(|(name, _)| name.ends_with(".json"))
        .collect();
    if names.len() > MAX_TABLES {
        return Err(io::Error::other(format!(
            "it has more than {MAX_TABLES} tables"
        )));
    }
    names.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let mut unread: Option<(usize, String)> = None;
    let mut bytes_left = MAX_SCAN_BYTES;
    for (name, _) in names {
        let read = folder
            .read(&name, MAX_TABLE_BYTES.min(bytes_left))
            .and_then(|bytes| {
                bytes_left = bytes_left.saturating_sub(bytes.len() as u64);
                Ok(serde_json::from_slice::<ScannedTable>(&bytes)?)
            });
        match read {
            Ok(table) => collector.add(table.into()).map_err(io::Error::other)?,
            Err(error) => {
                let (count, _) =
                    unread.get_or_insert_with(|| (0, format!("{}: {error}", excerpt(&name))));
                *count += 1;
            }
        }
    }
    Ok(unread)
}

impl From<ScannedTable> for TableInfo {
    fn from(table: ScannedTable) -> Self {
        let kind = table
            .kind
            .filter(|kind| ["view", "external"].contains(&kind.as_str()));
        Self {
            catalog: table.catalog,
            schema: table.db,
            name: table.name,
            kind: kind.unwrap_or_else(|| "table".into()),
            comment: table.comment,
            rows: table.estimated_rows.and_then(row_count),
            columns: table.columns.into_iter().map(ColumnInfo::from).collect(),
            foreign_keys: table
                .foreign_keys
                .into_iter()
                .map(ForeignKey::from)
                .collect(),
            error: None,
        }
    }
}

impl From<ScannedColumn> for ColumnInfo {
    fn from(column: ScannedColumn) -> Self {
        Self {
            name: column.name,
            declared_type: column.native_type,
            nullable: column.nullable,
            is_key: column.primary_key,
            comment: column.comment,
            samples: Vec::new(),
        }
    }
}

impl From<ScannedKey> for ForeignKey {
    fn from(key: ScannedKey) -> Self {
        Self {
            column: key.from_column,
            to_catalog: key.to_catalog,
            to_schema: key.to_db,
            to_table: key.to_table,
            to_column: key.to_column,
        }
    }
}

/// A number of rows; `None` for a negative one, which means unknown.
pub(super) fn row_count(count: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the number is not negative, and an estimate may be cut"
    )]
    (count >= 0.0).then_some(count as u64)
}

fn read_profile(root: &ScopedDir, path: &str) -> io::Result<ScanProfile> {
    let bytes = root.read_if_exists(&format!("{path}/{PROFILE_FILE}"), MAX_PROFILE_BYTES)?;
    bytes.map_or_else(
        || Ok(ScanProfile::default()),
        |bytes| Ok(serde_json::from_slice(&bytes)?),
    )
}

/// Adds row counts and sample values to the tables.
fn add_profile(tables: &mut [TableInfo], profile: ScanProfile) {
    let lower = |text: &Option<String>| text.as_deref().unwrap_or_default().to_lowercase();
    let place = |of: &TablePlace| (lower(&of.catalog), lower(&of.db), of.name.to_lowercase());
    let mut rows: HashMap<_, u64> = HashMap::new();
    for table in &profile.tables {
        if let Some(count) = table.row_count.and_then(row_count) {
            rows.insert(place(&table.table), count);
        }
    }
    let mut values: HashMap<_, HashMap<String, Vec<String>>> = HashMap::new();
    for column in profile.columns.into_values() {
        let samples = column
            .sample_values
            .iter()
            .take(MAX_SAMPLES)
            .map(sample_text);
        let of_table = values.entry(place(&column.table)).or_default();
        of_table.insert(column.column.to_lowercase(), samples.collect());
    }
    if rows.is_empty() && values.is_empty() {
        return;
    }
    for table in tables {
        let key = (
            lower(&table.catalog),
            lower(&table.schema),
            table.name.to_lowercase(),
        );
        table.rows = rows.get(&key).copied().or(table.rows);
        let Some(of_table) = values.get_mut(&key) else {
            continue;
        };
        for column in &mut table.columns {
            column.samples = of_table
                .remove(&column.name.to_lowercase())
                .unwrap_or_default();
        }
    }
}

fn sample_text(value: &serde_json::Value) -> String {
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    text.chars().take(MAX_SAMPLE_CHARS).collect()
}
