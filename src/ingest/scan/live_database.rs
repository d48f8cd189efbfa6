//! The files of `raw-sources/<connection>/live-database/<sync>`: each table as JSON, as KTX's scan stores it.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    PlannedFiles, ScanError, ScannedConnection, column_type,
    tables::{ScannedTableName, StagedTable, TableIndex},
};
use crate::{database::TableInfo, slug};
use ingestdeck_os::scoped_dir::{FileKind, ScopedDir};

/// The file that KTX and this program look for to find a scan.
pub(super) const CONNECTION_FILE: &str = "connection.json";
const TABLES_DIR: &str = "tables";
const FOREIGN_KEYS_FILE: &str = "foreign-keys.json";
const WARNINGS_FILE: &str = "warnings.json";

/// Largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Longest name of a file in bytes.
const MAX_NAME_BYTES: usize = 200;

/// Folder of the scans of `connection`, relative to the project.
pub(super) fn scans_dir(connection: &str) -> String {
    format!("raw-sources/{connection}/live-database")
}

/// The name of the newest scan of `connection`.
pub(super) fn newest(project: &ScopedDir, connection: &str) -> Result<Option<String>, ScanError> {
    let folder = scans_dir(connection);
    let failed = |cause| ScanError::io(&folder, cause);
    let Some(dir) = project.dir_if_exists(&folder).map_err(failed)? else {
        return Ok(None);
    };
    let entries = dir.entries().map_err(failed)?.into_iter();
    let folders = entries.filter(|(_, kind)| *kind == FileKind::Directory);
    let names = folders
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| slug::is_plain_name(name));
    let is_scan = |name: &String| dir.is_file(&format!("{name}/{CONNECTION_FILE}"));
    Ok(names.filter(is_scan).max())
}

/// A scan that is stored already.
#[derive(Default)]
pub(super) struct StoredScan {
    /// Content of its files by their paths below the folder of the scan.
    files: BTreeMap<String, Vec<u8>>,
    /// The JSON of its tables.
    pub(super) tables: BTreeMap<ScannedTableName, Value>,
}

impl StoredScan {
    /// Reads the scan in `folder`; empty if there is none.
    pub(super) fn read(project: &ScopedDir, folder: &str) -> Result<Self, ScanError> {
        let mut scan = Self::default();
        let failed = |path: &str, cause| ScanError::io(&format!("{folder}/{path}"), cause);
        let Some(dir) = project
            .dir_if_exists(folder)
            .map_err(|cause| failed("", cause))?
        else {
            return Ok(scan);
        };
        let mut paths: Vec<String> = [CONNECTION_FILE, FOREIGN_KEYS_FILE, WARNINGS_FILE]
            .map(str::to_owned)
            .into();
        if let Some(tables) = dir
            .dir_if_exists(TABLES_DIR)
            .map_err(|cause| failed(TABLES_DIR, cause))?
        {
            let entries = tables
                .entries()
                .map_err(|cause| failed(TABLES_DIR, cause))?;
            let names = entries
                .into_iter()
                .filter_map(|(name, _)| name.into_string().ok());
            let files = names.filter(|name| name.ends_with(".json"));
            paths.extend(files.map(|name| format!("{TABLES_DIR}/{name}")));
        }
        for path in paths {
            let read = dir.read_if_exists(&path, MAX_FILE_BYTES);
            let Some(bytes) = read.map_err(|cause| failed(&path, cause))? else {
                continue;
            };
            if path.starts_with(TABLES_DIR)
                && let Ok(table) = serde_json::from_slice::<Value>(&bytes)
                && let Some(name) = ScannedTableName::from_json(&table)
            {
                scan.tables.insert(name, table);
            }
            scan.files.insert(path, bytes);
        }
        Ok(scan)
    }
}

/// Adds the files of a scan in `folder` to `planned`: those whose content differs from `stored`, and those to delete.
pub(super) fn plan_files(
    planned: &mut PlannedFiles,
    folder: &str,
    stored: &StoredScan,
    about: ScannedConnection<'_>,
    tables: &[StagedTable<'_>],
    now: Timestamp,
) {
    let mut files: BTreeMap<String, Value> = BTreeMap::new();
    for table in tables {
        files.insert(table.path.clone(), table.json.clone());
    }
    files.insert(FOREIGN_KEYS_FILE.to_owned(), foreign_keys(tables));
    files.insert(WARNINGS_FILE.to_owned(), warnings(tables));
    let gone = stored
        .files
        .keys()
        .filter(|path| path.starts_with(TABLES_DIR) && !files.contains_key(*path));
    for path in gone {
        planned.delete(format!("{folder}/{path}"));
    }
    for (path, value) in files {
        let bytes = stable_json(&value);
        if stored.files.get(&path) != Some(&bytes) {
            planned.write(format!("{folder}/{path}"), bytes);
        }
    }
    let settings = connection_json(about, tables, now);
    planned.finish_with(
        format!("{folder}/{CONNECTION_FILE}"),
        stable_json(&settings),
    );
}

fn connection_json(
    about: ScannedConnection<'_>,
    tables: &[StagedTable<'_>],
    now: Timestamp,
) -> Value {
    let set = |part: fn(&TableInfo) -> Option<&String>| {
        let found: BTreeSet<&String> = tables.iter().filter_map(|table| part(table.info)).collect();
        (!found.is_empty()).then(|| json!(found))
    };
    let schemas = match about.driver {
        "bigquery" => "datasets",
        _ => "schemas",
    };
    let parts = [
        ("catalogs", set(|table| table.catalog.as_ref())),
        (schemas, set(|table| table.schema.as_ref())),
    ];
    let mut scope: serde_json::Map<String, Value> = parts
        .into_iter()
        .filter_map(|(key, names)| Some((key.to_owned(), names?)))
        .collect();
    let mut metadata = scope.clone();
    let columns: usize = tables.iter().map(|table| table.info.columns.len()).sum();
    metadata.insert("table_count".into(), tables.len().into());
    metadata.insert("total_columns".into(), columns.into());
    // Not in scans of KTX, which keeps such a key.
    let enabled: Vec<&str> = about.reach.enabled_tables().collect();
    scope.insert("enabledTables".into(), json!(enabled));
    json!({
        "connectionId": about.id,
        "driver": about.driver,
        "extractedAt": format!("{now:.3}"),
        "scope": scope,
        "metadata": metadata,
        "tableCount": tables.len(),
    })
}

/// The JSON of a table.
pub(super) fn table_json(driver: &str, table: &TableInfo, index: &TableIndex<'_>) -> Value {
    let columns = table.columns.iter().map(|column| {
        json!({
            "name": column.name,
            "nativeType": column.declared_type,
            "normalizedType": column_type::normalized_type(driver, &column.declared_type),
            "dimensionType": column_type::dimension_type(driver, &column.declared_type),
            "nullable": column.nullable,
            "primaryKey": column.is_key,
            "comment": column.comment,
        })
    });
    let keys = table.foreign_keys.iter().filter_map(|key| {
        let (_, to) = index.target(table, key)?;
        Some(json!({
            "fromColumn": key.column,
            "toCatalog": key.to_catalog,
            "toDb": key.to_schema,
            "toTable": key.to_table,
            "toColumn": to,
            "constraintName": null,
        }))
    });
    let kind = match table.kind.as_str() {
        kind @ ("view" | "external") => kind,
        _ => "table",
    };
    json!({
        "catalog": table.catalog,
        "db": table.schema,
        "name": table.name,
        "kind": kind,
        "comment": table.comment,
        "estimatedRows": table.rows,
        "columns": columns.collect::<Vec<_>>(),
        "foreignKeys": keys.collect::<Vec<_>>(),
    })
}

/// The paths of the files of `tables`, below the folder of the scan. KTX encodes the three names; a name that is too long
/// for a file, or equal to another one on a disk that ignores case, becomes a hash, which KTX reads as well.
pub(super) fn table_paths(tables: &[TableInfo]) -> Vec<String> {
    let encoded = |part: Option<&str>| URL_SAFE_NO_PAD.encode(part.unwrap_or("_"));
    let name = |table: &TableInfo| {
        [
            encoded(table.catalog.as_deref()),
            encoded(table.schema.as_deref()),
            encoded(Some(&table.name)),
        ]
        .join(".")
    };
    let names: Vec<String> = tables.iter().map(name).collect();
    let mut folded: BTreeMap<String, usize> = BTreeMap::new();
    for name in &names {
        *folded.entry(name.to_lowercase()).or_default() += 1;
    }
    let is_unusable = |name: &String| {
        name.len() > MAX_NAME_BYTES
            || folded
                .get(&name.to_lowercase())
                .is_some_and(|count| *count > 1)
    };
    let path = |name: &String| match is_unusable(name) {
        true => format!("{TABLES_DIR}/{}.json", slug::short_hash(name, 32)),
        false => format!("{TABLES_DIR}/{name}.json"),
    };
    names.iter().map(path).collect()
}

fn foreign_keys(tables: &[StagedTable<'_>]) -> Value {
    let mut keys: Vec<Value> = Vec::new();
    for table in tables {
        let of_table = table.json["foreignKeys"].as_array().into_iter().flatten();
        keys.extend(of_table.map(|key| {
            json!({
                "fromTable": table.info.name,
                "fromTablePath": table.path,
                "fromColumn": key["fromColumn"],
                "toCatalog": key["toCatalog"],
                "toDb": key["toDb"],
                "toTable": key["toTable"],
                "toColumn": key["toColumn"],
                "constraintName": key["constraintName"],
            })
        }));
    }
    let order = |key: &Value| {
        [
            "fromTable",
            "fromColumn",
            "toTable",
            "toColumn",
            "fromTablePath",
        ]
        .map(|name| key[name].as_str().unwrap_or_default().to_owned())
    };
    keys.sort_by_cached_key(order);
    json!({ "foreignKeys": keys })
}

/// Tables that could not be read. The code is one that KTX accepts.
fn warnings(tables: &[StagedTable<'_>]) -> Value {
    let warnings = tables.iter().filter_map(|table| {
        Some(json!({
            "code": "sampling_failed",
            "message": table.info.error.as_ref()?,
            "recoverable": true,
            "table": table.info.name,
        }))
    });
    json!({ "warnings": warnings.collect::<Vec<_>>() })
}

/// JSON as KTX formats it.
fn stable_json(value: &Value) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}
