//! What dbt wrote about the tables of its project: `catalog.json`, read from the database, and `manifest.json`, which
//! names what dbt builds.
//!
//! Both may have hundreds of megabytes, so they are parsed while they are read, and only what is needed is kept.

use std::{
    collections::HashMap,
    fmt,
    io::{BufReader, Read as _},
    path::Path,
};

use jiff::Timestamp;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor},
};

use super::{
    found_files::DbtFile,
    scan::row_count,
    table_set::{FactOrigin, TableCollector, TableSet},
};
use crate::{
    database::{ColumnInfo, TableInfo},
    untrusted_text::excerpt,
    yaml,
};
use ingestdeck_core::diagnostic::Problem;
use ingestdeck_os::scoped_dir::{FileKind, ScopedDir};

/// Largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 512 << 20;
/// Largest `dbt_project.yml` that is read, in bytes.
const MAX_PROJECT_BYTES: u64 = 1 << 20;
/// Most folders that are searched for projects.
const MAX_FOLDERS: usize = 200;
/// How far below the source projects are searched.
const MAX_DEPTH: usize = 2;
/// Size of the read buffer.
const BUFFER_BYTES: usize = 256 << 10;
/// Folders that are not searched for projects.
const SKIPPED_FOLDERS: [&str; 4] = ["dbt_packages", "dbt_modules", "node_modules", "target"];
/// Statistics with the number of rows, which adapters name differently.
const ROW_STATS: [&str; 3] = ["row_count", "num_rows", "rows"];

/// Names of the files, with what they are.
const FILES: [(&str, FactOrigin); 2] = [
    ("catalog.json", FactOrigin::DbtCatalog),
    ("manifest.json", FactOrigin::DbtManifest),
];

/// The files of the source in `dir`.
pub(super) fn list(dir: &Path) -> Vec<DbtFile> {
    let Ok(root) = ScopedDir::open(dir) else {
        return Vec::new();
    };
    let targets = target_dirs(&root);
    let paths = targets
        .iter()
        .flat_map(|target| FILES.map(|(name, origin)| (format!("{target}/{name}"), origin)));
    let file = |(path, origin): (String, FactOrigin)| {
        let kind = root.kind(&path).ok()??;
        Some(DbtFile {
            source: dir.to_owned(),
            path,
            origin,
            kind,
        })
    };
    paths.filter_map(file).collect()
}

/// Reads the files that [`list`] found.
pub(super) fn read(files: &[DbtFile], warnings: &mut Vec<Problem>) -> Vec<TableSet> {
    let mut sets = Vec::new();
    for file in files {
        match read_file(file) {
            Ok(set) => sets.push(set),
            Err(why) => {
                let what = format!("dbt's {} is not used: {why}", excerpt(&file.path));
                let help = "let dbt write it again with `dbt docs generate`";
                warnings.push(Problem::new(what).with_help(help));
            }
        }
    }
    sets
}

/// The folders with dbt's results, one for each project in the source.
fn target_dirs(root: &ScopedDir) -> Vec<String> {
    let mut folders = vec![(String::new(), 0)];
    let mut targets = Vec::new();
    let mut next = 0;
    while let Some((folder, depth)) = folders.get(next).cloned() {
        next += 1;
        let Ok(dir) = root.dir(&folder, None) else {
            continue;
        };
        let below = |name: &str| match folder.is_empty() {
            true => name.to_owned(),
            false => format!("{folder}/{name}"),
        };
        if let Some(target) = ["dbt_project.yml", "dbt_project.yaml"]
            .iter()
            .find_map(|name| target_path(&dir, name))
        {
            targets.push(below(&target));
            continue;
        }
        if depth == MAX_DEPTH {
            continue;
        }
        let entries = dir.entries().unwrap_or_default().into_iter();
        let mut names: Vec<String> = entries
            .filter(|(_, kind)| *kind == FileKind::Directory)
            .filter_map(|(name, _)| name.into_string().ok())
            .filter(|name| !name.starts_with('.') && !SKIPPED_FOLDERS.contains(&name.as_str()))
            .collect();
        names.sort_unstable();
        let room = MAX_FOLDERS.saturating_sub(folders.len());
        folders.extend(names.iter().take(room).map(|name| (below(name), depth + 1)));
    }
    targets
}

/// The `target-path` of the project file `name`, relative to it; `None` if there is no such file.
fn target_path(dir: &ScopedDir, name: &str) -> Option<String> {
    const DEFAULT: &str = "target";
    let bytes = dir.read_if_exists(name, MAX_PROJECT_BYTES).ok()??;
    let settings = yaml::parse_source_file(&String::from_utf8_lossy(&bytes)).ok();
    let named = settings
        .as_ref()
        .and_then(|settings| settings.text_at("target-path"));
    // dbt renders Jinja, which is not done here.
    let named = named.filter(|path| !path.contains('{'));
    let plain = named
        .unwrap_or(DEFAULT)
        .trim_start_matches("./")
        .trim_end_matches('/');
    Some(if plain.is_empty() { DEFAULT } else { plain }.to_owned())
}

/// Reads one file. The error is the end of a sentence about it.
fn read_file(file: &DbtFile) -> Result<TableSet, String> {
    let origin = file.origin;
    let root = ScopedDir::open(&file.source).map_err(|error| error.to_string())?;
    let opened = root.open_file(&file.path);
    let (file, bytes) = opened.map_err(|error| error.to_string())?;
    if bytes > MAX_FILE_BYTES {
        let [size, limit] = [bytes, MAX_FILE_BYTES].map(|bytes| bytes.div_ceil(1 << 20));
        return Err(format!("it has {size} MiB, the limit is {limit} MiB"));
    }
    let mut artifact = DbtArtifact::default();
    let reader = BufReader::with_capacity(BUFFER_BYTES, file.take(MAX_FILE_BYTES));
    let mut json = serde_json::Deserializer::from_reader(reader);
    let parsed = match origin {
        FactOrigin::DbtCatalog => {
            ArtifactReader::<CatalogNode>::new(&mut artifact).deserialize(&mut json)
        }
        _ => ArtifactReader::<ManifestNode>::new(&mut artifact).deserialize(&mut json),
    };
    parsed
        .and_then(|()| json.end())
        .map_err(|error| error.to_string())?;
    let tables = artifact.collector.tables;
    Ok(TableSet::new(origin, artifact.generated_at, tables, None))
}

#[derive(Default)]
struct DbtArtifact {
    generated_at: Option<Timestamp>,
    collector: TableCollector,
}

/// An entry of `nodes` or `sources`.
trait DbtNode: DeserializeOwned {
    /// Its table; `None` if it is none.
    fn into_table(self) -> Option<TableInfo>;
}

#[derive(Deserialize)]
struct CatalogNode {
    metadata: CatalogTable,
    #[serde(default)]
    columns: HashMap<String, CatalogColumn>,
    #[serde(default)]
    stats: HashMap<String, CatalogStat>,
}

#[derive(Deserialize)]
struct CatalogTable {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    database: Option<String>,
    schema: Option<String>,
    name: String,
    comment: Option<String>,
}

#[derive(Deserialize)]
struct CatalogColumn {
    name: String,
    #[serde(default, rename = "type")]
    kind: Option<String>,
    index: Option<i64>,
    comment: Option<String>,
}

#[derive(Deserialize)]
struct CatalogStat {
    value: Option<serde_json::Value>,
}

impl DbtNode for CatalogNode {
    fn into_table(self) -> Option<TableInfo> {
        let mut columns: Vec<CatalogColumn> = self.columns.into_values().collect();
        columns.sort_by(|one, other| (one.index, &one.name).cmp(&(other.index, &other.name)));
        let rows = ROW_STATS
            .iter()
            .find_map(|name| self.stats.get(*name)?.value.as_ref()?.as_f64());
        let kind = self.metadata.kind.unwrap_or_default().to_lowercase();
        Some(TableInfo {
            catalog: self.metadata.database,
            schema: self.metadata.schema,
            name: self.metadata.name,
            kind: table_kind(&kind).into(),
            comment: self.metadata.comment,
            rows: rows.and_then(row_count),
            columns: columns
                .into_iter()
                .map(|column| dbt_column(column.name, column.kind, column.comment))
                .collect(),
            foreign_keys: Vec::new(),
            error: None,
        })
    }
}

#[derive(Deserialize)]
struct ManifestNode {
    #[serde(default)]
    resource_type: String,
    database: Option<String>,
    schema: Option<String>,
    /// Name of the table of a model, seed or snapshot.
    alias: Option<String>,
    /// Name of the table of a source.
    identifier: Option<String>,
    #[serde(default)]
    name: String,
    description: Option<String>,
    #[serde(default)]
    config: ManifestConfig,
    #[serde(default)]
    columns: HashMap<String, ManifestColumn>,
}

#[derive(Default, Deserialize)]
struct ManifestConfig {
    materialized: Option<String>,
}

#[derive(Deserialize)]
struct ManifestColumn {
    name: String,
    data_type: Option<String>,
    description: Option<String>,
}

impl DbtNode for ManifestNode {
    fn into_table(self) -> Option<TableInfo> {
        let materialized = self.config.materialized.unwrap_or_default();
        let is_table =
            ["model", "seed", "snapshot", "source"].contains(&self.resource_type.as_str());
        if !is_table || materialized == "ephemeral" {
            return None;
        }
        let named = self
            .alias
            .or(self.identifier)
            .filter(|name| !name.is_empty());
        let mut columns: Vec<ManifestColumn> = self.columns.into_values().collect();
        columns.sort_by(|one, other| one.name.cmp(&other.name));
        Some(TableInfo {
            catalog: self.database,
            schema: self.schema,
            name: named.unwrap_or(self.name),
            kind: table_kind(&materialized).into(),
            comment: self.description,
            rows: None,
            columns: columns
                .into_iter()
                .map(|column| dbt_column(column.name, column.data_type, column.description))
                .collect(),
            foreign_keys: Vec::new(),
            error: None,
        })
    }
}

fn dbt_column(name: String, kind: Option<String>, comment: Option<String>) -> ColumnInfo {
    ColumnInfo {
        name,
        declared_type: kind.unwrap_or_default(),
        nullable: true,
        comment,
        ..ColumnInfo::default()
    }
}

fn table_kind(kind: &str) -> &'static str {
    match kind {
        kind if kind.contains("view") => "view",
        kind if kind.contains("external") => "external",
        _ => "table",
    }
}

/// Reads an artifact with nodes of type `N`.
struct ArtifactReader<'a, N> {
    artifact: &'a mut DbtArtifact,
    node: std::marker::PhantomData<N>,
}

impl<'a, N> ArtifactReader<'a, N> {
    fn new(artifact: &'a mut DbtArtifact) -> Self {
        Self {
            artifact,
            node: std::marker::PhantomData,
        }
    }
}

impl<'de, N: DbtNode> DeserializeSeed<'de> for ArtifactReader<'_, N> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, N: DbtNode> Visitor<'de> for ArtifactReader<'_, N> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an artifact of dbt")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        #[derive(Deserialize)]
        struct ArtifactMetadata {
            generated_at: Option<String>,
        }
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "metadata" => {
                    let metadata: ArtifactMetadata = map.next_value()?;
                    self.artifact.generated_at =
                        metadata.generated_at.and_then(|text| text.parse().ok());
                }
                "nodes" | "sources" => map.next_value_seed(NodeReader::<N> {
                    collector: &mut self.artifact.collector,
                    node: std::marker::PhantomData,
                })?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Reads the map of nodes, one after the other.
struct NodeReader<'a, N> {
    collector: &'a mut TableCollector,
    node: std::marker::PhantomData<N>,
}

impl<'de, N: DbtNode> DeserializeSeed<'de> for NodeReader<'_, N> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, N: DbtNode> Visitor<'de> for NodeReader<'_, N> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of nodes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_key::<IgnoredAny>()?.is_some() {
            if let Some(table) = map.next_value::<N>()?.into_table() {
                self.collector.add(table).map_err(A::Error::custom)?;
            }
        }
        Ok(())
    }
}
