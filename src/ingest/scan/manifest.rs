//! The files of `semantic-layer/<connection>/_schema`, one per schema: each table as KTX's semantic layer and that of this
//! program read it. What people and KTX's other commands wrote into them is kept.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{
    PlannedFiles, ScanError, column_type, manifest_text,
    tables::{ScannedTableName, StagedTable, TableIndex},
};
use crate::{
    database::{ForeignKey, TableInfo},
    semantic_layer::maps_at,
    slug,
    untrusted_text::excerpt,
    yaml::{self, YamlNode},
};
use ingestdeck_core::diagnostic::Problem;
use ingestdeck_os::scoped_dir::ScopedDir;

/// Largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Longest name of a schema that names a file, in bytes.
const MAX_NAME_BYTES: usize = 100;

/// Folder of the files of `connection`, relative to the project.
pub(super) fn folder(connection: &str) -> String {
    format!("semantic-layer/{connection}/_schema")
}

/// The files that are stored already.
#[derive(Default)]
pub(super) struct StoredManifest {
    /// Text of each file by its name.
    texts: BTreeMap<String, String>,
    /// Tables by the text of `table`.
    tables: BTreeMap<String, Map<String, Value>>,
}

impl StoredManifest {
    /// Reads the files of `connection`.
    ///
    /// # Errors
    /// If one of them cannot be read as YAML: what people wrote into it would be lost.
    pub(super) fn read(project: &ScopedDir, connection: &str) -> Result<Self, ScanError> {
        let folder = folder(connection);
        let failed = |path: &str, cause| ScanError::io(&format!("{folder}/{path}"), cause);
        let mut stored = Self::default();
        let Some(dir) = project
            .dir_if_exists(&folder)
            .map_err(|cause| failed("", cause))?
        else {
            return Ok(stored);
        };
        let entries = dir
            .entries()
            .map_err(|cause| failed("", cause))?
            .into_iter();
        let names = entries.filter_map(|(name, _)| name.into_string().ok());
        for name in names.filter(|name| name.ends_with(".yaml") || name.ends_with(".yml")) {
            let path = format!("{folder}/{name}");
            let invalid = |problem: Problem| ScanError::InvalidFile {
                path: path.clone(),
                problem,
            };
            let bytes = dir
                .read(&name, MAX_FILE_BYTES)
                .map_err(|cause| failed(&name, cause))?;
            let text = String::from_utf8(bytes)
                .map_err(|_| invalid(Problem::new("it is not UTF-8 text")))?;
            let tree =
                yaml::parse_scan(&text).map_err(|error| invalid(yaml::explain(&text, &error)))?;
            for (name, table) in tables_of(&tree) {
                let reference = table.get("table").and_then(Value::as_str).unwrap_or(&name);
                stored.tables.insert(reference.to_owned(), table);
            }
            stored.texts.insert(name, text);
        }
        Ok(stored)
    }

    #[cfg(test)]
    pub(super) fn has_table(&self, reference: &str) -> bool {
        self.tables.contains_key(reference)
    }
}

/// The tables of a file, by their names.
pub(super) fn tables_of(tree: &YamlNode) -> impl Iterator<Item = (String, Map<String, Value>)> {
    let tables = match tree.get("tables").map(YamlNode::to_json) {
        Some(Value::Object(tables)) => tables,
        _ => Map::new(),
    };
    tables.into_iter().filter_map(|(name, table)| match table {
        Value::Object(table) => Some((name, table)),
        _ => None,
    })
}

/// Adds the files with `tables` to `planned`: those whose content differs from `stored`, and those to delete. Returns
/// what people wrote that no longer fits the database.
pub(super) fn plan_files(
    planned: &mut PlannedFiles,
    stored: &StoredManifest,
    (connection, driver): (&str, &str),
    tables: &[StagedTable<'_>],
    index: &TableIndex<'_>,
) -> Result<Vec<Problem>, ScanError> {
    let folder = folder(connection);
    let mut problems = Vec::new();
    let mut joins = formal_joins(tables, index);
    let columns = columns_by_table(tables);
    let mut shards: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for table in tables {
        let reference = table.name.reference();
        let nothing = Map::new();
        let old = stored.tables.get(&reference).unwrap_or(&nothing);
        let mut joins = joins.remove(&table.name).unwrap_or_default();
        problems.extend(keep_joins(&mut joins, table.info, old, &columns));
        let entry = table_entry(driver, table.info, &reference, old, joins);
        let shard = shards.entry(shard_key(driver, table.info)).or_default();
        shard.insert(table.info.name.clone(), entry);
    }
    let names = file_names(shards.keys());
    for old in stored.texts.keys() {
        if !names.iter().any(|name| name == old) {
            planned.delete(format!("{folder}/{old}"));
        }
    }
    for (name, shard) in names.into_iter().zip(shards.into_values()) {
        let path = format!("{folder}/{name}");
        let old = stored.texts.get(&name).map(String::as_str);
        let text = manifest_text::render(old, shard)
            .ok_or_else(|| ScanError::NotWritable { path: path.clone() })?;
        if old != Some(&text) {
            planned.write(path, text.into_bytes());
        }
    }
    Ok(problems)
}

/// Which file the table belongs to, as in KTX.
fn shard_key(driver: &str, table: &TableInfo) -> String {
    let (catalog, schema) = (table.catalog.as_deref(), table.schema.as_deref());
    match driver {
        "snowflake" | "databricks" => format!(
            "{}.{}",
            catalog.unwrap_or("default"),
            schema.unwrap_or("public")
        ),
        "bigquery" | "mysql" | "clickhouse" => schema.or(catalog).unwrap_or("default").to_owned(),
        _ => schema.unwrap_or("public").to_owned(),
    }
}

/// The names of the files for `keys`. A key that cannot name a file everywhere, or that differs from another one in case
/// only, gets a hash.
fn file_names<'a>(keys: impl Iterator<Item = &'a String> + Clone) -> Vec<String> {
    let mut folded: BTreeMap<String, usize> = BTreeMap::new();
    for key in keys.clone() {
        *folded.entry(key.to_lowercase()).or_default() += 1;
    }
    let is_plain = |key: &str| {
        let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '$');
        key.len() <= MAX_NAME_BYTES
            && key.chars().all(is_safe)
            && !key.starts_with('.')
            && !key.split('.').any(slug::is_device_name)
            && folded.get(&key.to_lowercase()) == Some(&1)
    };
    keys.map(|key| match key.as_str() {
        key if is_plain(key) => format!("{key}.yaml"),
        key => {
            let short: String = slug::slugify(key).chars().take(MAX_NAME_BYTES).collect();
            format!("{short}-{}.yaml", slug::short_hash(key, 8))
        }
    })
    .collect()
}

/// The entry of a table, with what `old` has in addition.
fn table_entry(
    driver: &str,
    table: &TableInfo,
    reference: &str,
    old: &Map<String, Value>,
    joins: Vec<Value>,
) -> Value {
    let mut old_columns: BTreeMap<&str, &Map<String, Value>> = BTreeMap::new();
    for column in maps_at(old, "columns") {
        if let Some(name) = column.get("name").and_then(Value::as_str) {
            old_columns.insert(name, column);
        }
    }
    let nothing = Map::new();
    let columns = table.columns.iter().map(|column| {
        let old = old_columns.get(column.name.as_str()).copied();
        let mut entry = Map::new();
        entry.insert("name".into(), column.name.as_str().into());
        let kind = column_type::dimension_type(driver, &column.declared_type);
        entry.insert("type".into(), kind.into());
        if column.is_key {
            entry.insert("pk".into(), true.into());
        }
        if !column.nullable {
            entry.insert("nullable".into(), false.into());
        }
        let old = old.unwrap_or(&nothing);
        describe(&mut entry, column.comment.as_deref(), old);
        keep_others(&mut entry, old, &["name", "type", "pk", "nullable"]);
        Value::Object(entry)
    });
    let mut entry = Map::new();
    entry.insert("table".into(), reference.into());
    entry.insert("columns".into(), columns.collect());
    describe(&mut entry, table.comment.as_deref(), old);
    if let Some(usage) = old.get("usage") {
        entry.insert("usage".into(), usage.clone());
    }
    if !joins.is_empty() {
        entry.insert("joins".into(), joins.into());
    }
    keep_others(&mut entry, old, &["joins"]);
    Value::Object(entry)
}

/// Adds the description of the database, and those of others. A scan does not write the description `ai`, so it keeps it.
fn describe(entry: &mut Map<String, Value>, comment: Option<&str>, old: &Map<String, Value>) {
    let old = old.get("descriptions").and_then(Value::as_object);
    let mut descriptions = old.cloned().unwrap_or_default();
    descriptions.shift_remove("db");
    if let Some(comment) = comment.filter(|comment| !comment.is_empty()) {
        descriptions.insert("db".into(), comment.into());
    }
    if !descriptions.is_empty() {
        entry.insert("descriptions".into(), descriptions.into());
    }
}

/// Adds the keys of `old` that a scan does not write.
fn keep_others(entry: &mut Map<String, Value>, old: &Map<String, Value>, written: &[&str]) {
    for (key, value) in old {
        if !entry.contains_key(key) && key != "descriptions" && !written.contains(&key.as_str()) {
            entry.insert(key.clone(), value.clone());
        }
    }
}

/// The joins of each table that follow from foreign keys, in both directions.
fn formal_joins(
    tables: &[StagedTable<'_>],
    index: &TableIndex<'_>,
) -> BTreeMap<ScannedTableName, Vec<Value>> {
    let mut joins: BTreeMap<ScannedTableName, Vec<Value>> = BTreeMap::new();
    let mut add = |table: &TableInfo, to: &TableInfo, on: String, relationship: &str| {
        let join = json!({
            "to": to.name, "on": on, "relationship": relationship, "source": "formal",
        });
        add_once(joins.entry(ScannedTableName::of(table)).or_default(), join);
    };
    for table in tables {
        for key in &table.info.foreign_keys {
            let Some((Some(to), column)) = index.target(table.info, key) else {
                continue;
            };
            let ForeignKey { column: from, .. } = key;
            let (own, other) = (&table.info.name, &to.name);
            let on = format!("{own}.{from} = {other}.{column}");
            add(table.info, to, on, "many_to_one");
            let on = format!("{other}.{column} = {own}.{from}");
            add(to, table.info, on, "one_to_many");
        }
    }
    joins
}

fn add_once(joins: &mut Vec<Value>, join: Value) {
    let is_same = |other: &Value| other["to"] == join["to"] && other["on"] == join["on"];
    if !joins.iter().any(is_same) {
        joins.push(join);
    }
}

fn columns_by_table<'a>(tables: &[StagedTable<'a>]) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut columns: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for table in tables {
        let of_table = columns.entry(&table.info.name).or_default();
        of_table.extend(table.info.columns.iter().map(|column| column.name.as_str()));
    }
    columns
}

/// Adds the joins of `old` that do not follow from foreign keys. Returns a problem about each that no longer fits.
fn keep_joins(
    joins: &mut Vec<Value>,
    table: &TableInfo,
    old: &Map<String, Value>,
    columns: &BTreeMap<&str, BTreeSet<&str>>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let kept = maps_at(old, "joins")
        .filter(|join| join.get("source").and_then(Value::as_str) != Some("formal"));
    for join in kept {
        let text = |key: &str| join.get(key).and_then(Value::as_str).unwrap_or_default();
        let missing = match columns.contains_key(text("to")) {
            false => Some(text("to").to_owned()),
            true => missing_column(text("on"), columns),
        };
        match missing {
            None => add_once(joins, Value::Object(join.clone())),
            Some(missing) => {
                let (from, to) = (excerpt(&table.name), excerpt(text("to")));
                problems.push(
                    Problem::new(format!(
                        "the join from `{from}` to `{to}` is removed: the database has no `{}`",
                        excerpt(&missing)
                    ))
                    .with_help("write it again for the new columns, if it is still needed"),
                );
            }
        }
    }
    problems
}

/// The first column of a condition such as `a.x = b.y AND a.v = b.w` that its table lacks. Other conditions are not
/// understood, so they have none.
fn missing_column(on: &str, columns: &BTreeMap<&str, BTreeSet<&str>>) -> Option<String> {
    let is_word = |text: &str| text.chars().all(|c| c.is_alphanumeric() || c == '_');
    let words: Vec<&str> = on.split_whitespace().collect();
    for term in words.split(|word| word.eq_ignore_ascii_case("and")) {
        for side in term.concat().split('=') {
            let (table, column) = side.split_once('.')?;
            if !is_word(table) || !is_word(column) {
                return None;
            }
            if columns
                .get(table)
                .is_some_and(|known| !known.contains(column))
            {
                return Some(side.to_owned());
            }
        }
    }
    None
}
