//! The files of `semantic-layer/<connection>/_schema`, one per schema: each table as KTX's semantic layer and that of this
//! program read it. What people and KTX's other commands wrote into them is kept.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::{Map, Value, json};

use super::{
    PlannedFiles, ScanError, ScannedConnection, column_type,
    live_database::StoredScan,
    manifest_text,
    reach::ScanReach,
    tables::{ScannedTableName, StagedTable, TableIndex},
};
use crate::{
    database::{ForeignKey, TableInfo},
    semantic_layer::maps_at,
    slug,
    untrusted_text::{excerpt, one_line},
    yaml::{self, YamlNode, YamlValue},
};
use ingestdeck_core::{diagnostic::Problem, text::pluralize};
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
    /// The entries of the file, by their names.
    files: BTreeMap<String, StoredFile>,
    /// File and key of each table, by the text of `table`.
    places: BTreeMap<String, (String, String)>,
}

struct StoredFile {
    text: String,
    tables: Map<String, Value>,
    /// Whether it has more than tables.
    has_other_keys: bool,
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
            let tables = match tree.get("tables").map(YamlNode::to_json) {
                Some(Value::Object(tables)) => tables,
                _ => Map::new(),
            };
            for (key, table) in tables.iter().filter(|(_, table)| table.is_object()) {
                let place = (name.clone(), key.clone());
                stored
                    .places
                    .insert(reference(key, table).to_owned(), place);
            }
            let has_other_keys = match &tree.value {
                YamlValue::Map(keys) => keys.iter().any(|key| key.key != "tables"),
                _ => true,
            };
            let file = StoredFile {
                text,
                tables,
                has_other_keys,
            };
            stored.files.insert(name, file);
        }
        Ok(stored)
    }

    /// The entry of a table, by the text of `table`.
    pub(super) fn table(&self, reference: &str) -> Option<&Map<String, Value>> {
        let (file, key) = self.places.get(reference)?;
        self.files.get(file)?.tables.get(key)?.as_object()
    }
}

/// What `table` contains in an entry of a file.
fn reference<'a>(key: &'a str, table: &'a Value) -> &'a str {
    table.get("table").and_then(Value::as_str).unwrap_or(key)
}

/// Adds the files with `tables` to `planned`: those whose content differs from `stored`, and those to delete. Returns
/// what the user should know: what people wrote that no longer fits the database, and which files are deleted.
pub(super) fn plan_files(
    planned: &mut PlannedFiles,
    stored: &StoredManifest,
    about: ScannedConnection<'_>,
    tables: &[StagedTable<'_>],
    index: &TableIndex<'_>,
    before: &StoredScan,
) -> Result<Vec<Problem>, ScanError> {
    let driver = about.driver;
    let folder = folder(about.id);
    let mut problems = Vec::new();
    let mut joins = formal_joins(tables, index);
    let columns = columns_by_table(tables);
    let mut shards: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for table in tables {
        let reference = table.name.reference();
        let nothing = Map::new();
        let old = stored.table(&reference).unwrap_or(&nothing);
        let mut joins = joins.remove(&table.name).unwrap_or_default();
        problems.extend(keep_joins(&mut joins, table.info, old, &columns));
        let entry = table_entry(driver, table.info, &reference, old, joins.joins);
        let shard = shards.entry(shard_key(driver, &table.name)).or_default();
        shard.insert(table.info.name.clone(), entry);
    }
    let names = file_names(shards.keys());
    let mut files: BTreeMap<String, Map<String, Value>> =
        names.into_iter().zip(shards.into_values()).collect();
    let history = ScanHistory::new(driver, tables, before);
    for (name, file) in &stored.files {
        let path = format!("{folder}/{name}");
        let (kept, unknown) = history.kept_tables(name, file, about.reach);
        if let Some(first) = unknown.first() {
            problems.push(
                Problem::new(format!(
                    "{} keeps {}, such as `{}`: the database has no such table, and neither has an earlier scan",
                    one_line(&path),
                    pluralize(unknown.len(), "table"),
                    excerpt(first)
                ))
                .with_help("delete the entries if they are obsolete"),
            );
        }
        match files.get_mut(name) {
            Some(written) => {
                for (key, table) in kept {
                    if !written.contains_key(&key) {
                        written.insert(key, table);
                    }
                }
            }
            None if kept.len() == file.tables.len() => {}
            None if kept.is_empty() && !file.has_other_keys => {
                let text = format!(
                    "{} is deleted: none of its tables is there, or all are in other files now",
                    one_line(&path)
                );
                problems.push(Problem::new(text));
                planned.delete(path);
            }
            None => {
                files.insert(name.clone(), kept);
            }
        }
    }
    for (name, tables) in files {
        let path = format!("{folder}/{name}");
        let old = stored.files.get(&name).map(|file| file.text.as_str());
        let text = manifest_text::render(old, tables)
            .ok_or_else(|| ScanError::NotWritable { path: path.clone() })?;
        if old != Some(&text) {
            planned.write(path, text.into_bytes());
        }
    }
    Ok(problems)
}

/// What scans wrote, now and before.
struct ScanHistory {
    /// The tables that are there now, by the text of `table`.
    scanned: BTreeSet<String>,
    /// Tables of this scan and of the one before, by the text of `table`, with the files that a scan writes them to.
    written: BTreeMap<String, (ScannedTableName, BTreeSet<String>)>,
}

impl ScanHistory {
    fn new(driver: &str, tables: &[StagedTable<'_>], before: &StoredScan) -> Self {
        let now = || tables.iter().map(|table| &table.name);
        let mut written: BTreeMap<String, (ScannedTableName, BTreeSet<String>)> = BTreeMap::new();
        for names in [
            now().collect::<Vec<_>>(),
            before.tables.keys().collect::<Vec<_>>(),
        ] {
            let keys: BTreeSet<String> = names.iter().map(|name| shard_key(driver, name)).collect();
            let files: BTreeMap<&String, String> =
                keys.iter().zip(file_names(keys.iter())).collect();
            for name in names {
                let key = shard_key(driver, name);
                let places = written
                    .entry(name.reference())
                    .or_insert_with(|| (name.clone(), BTreeSet::new()));
                places.1.extend(files.get(&key).cloned());
                // KTX uses the key as it is.
                places.1.insert(format!("{key}.yaml"));
            }
        }
        Self {
            scanned: now().map(ScannedTableName::reference).collect(),
            written,
        }
    }

    /// The tables of the file `name` that this scan does not replace: those that it does not cover, and those that no scan
    /// wrote. The second list names those that the database should have and does not.
    fn kept_tables(
        &self,
        name: &str,
        file: &StoredFile,
        reach: &ScanReach,
    ) -> (Map<String, Value>, Vec<String>) {
        let mut unknown = Vec::new();
        let mut kept = Map::new();
        for (key, table) in &file.tables {
            let reference = reference(key, table);
            let written = self.written.get(reference);
            let is_of_scan = written.is_some_and(|(_, files)| files.contains(name));
            let is_there = self.scanned.contains(reference);
            let is_covered = is_there
                || match written {
                    Some((name, _)) => reach.covers(name),
                    None => reach.covers(&ScannedTableName::from_reference(reference)),
                };
            if is_of_scan && is_covered {
                continue;
            }
            if is_covered && !is_there {
                unknown.push(reference.to_owned());
            }
            kept.insert(key.clone(), table.clone());
        }
        (kept, unknown)
    }
}

/// Which file the table belongs to, as in KTX.
fn shard_key(driver: &str, table: &ScannedTableName) -> String {
    let (catalog, schema) = (table.catalog(), table.schema());
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

/// The joins of a table, each once.
#[derive(Default)]
pub(super) struct TableJoins {
    pub(super) joins: Vec<Value>,
    /// `to` and `on` of each.
    known: HashSet<(String, String)>,
}

impl TableJoins {
    fn add(&mut self, join: Value) {
        let text = |key: &str| join[key].as_str().unwrap_or_default().to_owned();
        if self.known.insert((text("to"), text("on"))) {
            self.joins.push(join);
        }
    }
}

/// The joins of each table that follow from foreign keys, in both directions.
pub(super) fn formal_joins(
    tables: &[StagedTable<'_>],
    index: &TableIndex<'_>,
) -> BTreeMap<ScannedTableName, TableJoins> {
    let mut joins: BTreeMap<ScannedTableName, TableJoins> = BTreeMap::new();
    let mut add = |table: &TableInfo, to: &TableInfo, on: String, relationship: &str| {
        let join = json!({
            "to": to.name, "on": on, "relationship": relationship, "source": "formal",
        });
        let joins = joins.entry(ScannedTableName::of(table)).or_default();
        joins.add(join);
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
    joins: &mut TableJoins,
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
            None => joins.add(Value::Object(join.clone())),
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
