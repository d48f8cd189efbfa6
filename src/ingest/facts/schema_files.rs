//! The tables of a scan as KTX's semantic layer has them: YAML files below `_schema`, with KTX's types.

use std::{collections::BTreeMap, io, thread};

use jiff::Timestamp;
use serde::Deserialize;

use super::{
    ScanDirs,
    table_name::TableName,
    table_set::{FactOrigin, ScanCoverage, TableCollector, TableSet},
};
use crate::{
    database::{ColumnInfo, ForeignKey, TableInfo},
    untrusted_text::excerpt,
    yaml,
};
use ingestdeck_core::diagnostic::{Diagnostic as _, Problem};
use ingestdeck_os::scoped_dir::{FileKind, ScopedDir};

/// Bytes of all files that are read.
const MAX_BYTES: u64 = 128 << 20;
/// Most files that are read.
const MAX_FILES: usize = 20_000;
/// Most threads that parse files.
const MAX_THREADS: usize = 4;

#[derive(Deserialize)]
struct SchemaFile {
    #[serde(default)]
    tables: BTreeMap<String, Option<SchemaTable>>,
}

#[derive(Deserialize)]
struct SchemaTable {
    table: Option<String>,
    #[serde(default)]
    descriptions: BTreeMap<String, Option<String>>,
    #[serde(default)]
    columns: Vec<SchemaColumn>,
    #[serde(default)]
    joins: Vec<SchemaJoin>,
}

#[derive(Deserialize)]
struct SchemaColumn {
    name: String,
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    pk: bool,
    #[serde(default = "is_true")]
    nullable: bool,
    #[serde(default)]
    descriptions: BTreeMap<String, Option<String>>,
}

#[derive(Deserialize)]
struct SchemaJoin {
    #[serde(default)]
    to: String,
    #[serde(default)]
    on: String,
    #[serde(default)]
    relationship: String,
    #[serde(default)]
    source: String,
}

fn is_true() -> bool {
    true
}

/// Paths of the files of a connection, sorted.
pub(super) fn list(root: &ScopedDir, dirs: &ScanDirs) -> io::Result<Vec<String>> {
    let Some(folder) = root.dir_if_exists(&dirs.schema_files)? else {
        return Ok(Vec::new());
    };
    let is_yaml = |name: &String| {
        (name.ends_with(".yaml") || name.ends_with(".yml")) && !name.starts_with('.')
    };
    let entries = folder.entries()?.into_iter();
    let mut names: Vec<String> = entries
        .filter(|(_, kind)| *kind != FileKind::Directory)
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(is_yaml)
        .map(|name| format!("{}/{name}", dirs.schema_files))
        .collect();
    names.sort_unstable();
    Ok(names)
}

/// Reads the files at `paths`, which are in `folder`. `read_at` is the time of the scan, if it is known.
pub(super) fn read(
    root: &ScopedDir,
    (folder, paths): (&str, &[String]),
    is_limited_now: bool,
    read_at: Option<Timestamp>,
    warnings: &mut Vec<Problem>,
) -> Option<TableSet> {
    let mut warn = |why: String| {
        let what = format!("{}: {why}", excerpt(folder));
        warnings.push(Problem::new(what).with_help("scan the database again"));
    };
    let texts = match read_texts(root, folder, paths) {
        Ok(texts) if texts.is_empty() => return None,
        Ok(texts) => texts,
        Err(error) => {
            warn(format!("the scan is not used: {error}"));
            return None;
        }
    };
    let mut collector = TableCollector::default();
    let parsed = parse_all(&texts);
    let mut is_whole = parsed.len() == texts.len();
    for ((name, _), parsed) in texts.iter().zip(parsed) {
        let added = parsed.and_then(|file| {
            let mut tables = file.tables.into_iter();
            tables.try_for_each(|(name, table)| match table {
                Some(table) => collector.add(table.into_info(&name)),
                None => Ok(()),
            })
        });
        if let Err(why) = added {
            is_whole = false;
            warn(format!("{} is not used: {why}", excerpt(name)));
        }
    }
    // The files do not record which tables the scan was limited to.
    is_whole &= collector.left_out == 0 && !is_limited_now;
    let coverage = is_whole.then(|| observed_coverage(&collector.tables));
    Some(TableSet::new(
        FactOrigin::SchemaFiles,
        read_at,
        collector.tables,
        coverage,
    ))
}

/// Name and text of a file, or why it cannot be read.
type FileText = (String, Result<String, String>);

fn read_texts(root: &ScopedDir, folder: &str, paths: &[String]) -> io::Result<Vec<FileText>> {
    if paths.len() > MAX_FILES {
        return Err(io::Error::other(format!(
            "there are more than {MAX_FILES} files"
        )));
    }
    let dir = root.dir(folder, None)?;
    let mut left = MAX_BYTES;
    let names = paths.iter().filter_map(|path| path.rsplit('/').next());
    let texts = names.map(|name| {
        let text = dir.read(name, left).map_err(|error| error.to_string());
        let text = text.and_then(|bytes| {
            left = left.saturating_sub(bytes.len() as u64);
            String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
        });
        (name.to_owned(), text)
    });
    Ok(texts.collect())
}

/// Parses the files, in their order. Each thread parses a part of them.
fn parse_all(texts: &[FileText]) -> Vec<Result<SchemaFile, String>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let share = texts.len().div_ceil(threads.min(MAX_THREADS)).max(1);
    let parse_part = |part: &[FileText]| part.iter().map(parse_file).collect::<Vec<_>>();
    thread::scope(|scope| {
        let parts: Vec<_> = texts
            .chunks(share)
            .map(|part| scope.spawn(move || parse_part(part)))
            .collect();
        // A thread that panicked leaves fewer results, and its files then count as unread.
        parts
            .into_iter()
            .flat_map(|part| part.join().unwrap_or_default())
            .collect()
    })
}

fn parse_file((_, text): &FileText) -> Result<SchemaFile, String> {
    let text = text.as_deref().map_err(Clone::clone)?;
    yaml::from_large_str(text).map_err(|error| yaml::explain(text, &error).to_line())
}

impl SchemaTable {
    fn into_info(self, name: &str) -> TableInfo {
        let place = TableName::parse(self.table.as_deref().unwrap_or(name));
        let is_key =
            |join: &SchemaJoin| join.source == "formal" && join.relationship == "many_to_one";
        TableInfo {
            catalog: place.catalog().map(str::to_owned),
            schema: place.schema().map(str::to_owned),
            name: place.table().to_owned(),
            kind: "table".into(),
            comment: description(self.descriptions),
            rows: None,
            foreign_keys: self
                .joins
                .iter()
                .filter(|join| is_key(join))
                .filter_map(SchemaJoin::to_key)
                .collect(),
            columns: self.columns.into_iter().map(ColumnInfo::from).collect(),
            error: None,
        }
    }
}

impl From<SchemaColumn> for ColumnInfo {
    fn from(column: SchemaColumn) -> Self {
        Self {
            name: column.name,
            declared_type: column.kind,
            nullable: column.nullable,
            is_key: column.pk,
            comment: description(column.descriptions),
            samples: Vec::new(),
        }
    }
}

impl SchemaJoin {
    /// The key behind a join with `on: orders.customer_id = customers.id`.
    fn to_key(&self) -> Option<ForeignKey> {
        let (own, other) = self.on.split_once('=')?;
        let column = |side: &str| Some(side.trim().rsplit_once('.')?.1.to_owned());
        Some(ForeignKey {
            column: column(own)?,
            to_table: self.to.clone(),
            to_column: Some(column(other)?),
            ..ForeignKey::default()
        })
    }
}

/// The comment in the database, else any description.
fn description(mut texts: BTreeMap<String, Option<String>>) -> Option<String> {
    texts
        .remove("db")
        .flatten()
        .or_else(|| texts.into_values().flatten().next())
}

/// The files do not record what the scan read, so these are the schemas in which it found tables.
fn observed_coverage(tables: &[TableInfo]) -> ScanCoverage {
    let distinct = |place: &dyn Fn(&TableInfo) -> &Option<String>| {
        let mut places: Vec<String> = tables
            .iter()
            .filter_map(|table| place(table).clone())
            .collect();
        places.sort_unstable();
        places.dedup();
        places
    };
    ScanCoverage {
        catalogs: distinct(&|table| &table.catalog),
        schemas: distinct(&|table| &table.schema),
        tables: Vec::new(),
    }
}
