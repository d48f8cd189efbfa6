//! The semantic layer of one attempt: the sources of a connection, one YAML file each, merged with the tables that a
//! database scan stored below `_schema/`.
//!
//! The `name:` inside a file identifies its source; the file name is only derived from it, so users may rename files.
//! This module must not know about tools or prompts.

use std::{collections::BTreeMap, io, sync::Arc};

use serde_json::{Map, Value};

use super::{
    facts::KnownTables,
    slug,
    untrusted_text::excerpt,
    workspace::{self, Workspace},
    yaml::{self, QuotingStyle},
};
use ingestdeck_core::diagnostic::{Diagnostic as _, Problem};

mod defaults;
#[expect(
    dead_code,
    reason = "the schema is made of every field, the rules read some of them"
)]
mod definition;
mod overlay;
mod physical;
mod scanned_tables;
mod table_check;
mod validate;

pub(crate) use defaults::{append_missing_lists, fill_defaults};
pub(crate) use definition::{SourceDefinition, order_fields};
pub(crate) use overlay::{first_description, maps_at, texts};
pub(crate) use physical::referenced_columns;
pub(crate) use scanned_tables::ScannedTables;
pub(crate) use validate::{SourceFindings, dangling_joins, validate_source};

/// Folder of the semantic layer.
const LAYER_DIR: &str = "semantic-layer";
/// Folder with the scan results of a connection.
const SCAN_DIR: &str = "_schema";

/// Content of a source file.
pub(crate) type SourceDoc = Map<String, Value>;

/// How a source is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceKind {
    /// A table or view of the database.
    Table,
    Sql,
    /// Additions to a scanned table.
    Overlay,
}

impl SourceKind {
    /// The kind of `doc`.
    pub(crate) fn from_doc(doc: &SourceDoc) -> Self {
        let has = |key| {
            doc.get(key)
                .and_then(Value::as_str)
                .is_some_and(|text| !text.trim().is_empty())
        };
        match (has("table"), has("sql")) {
            (_, true) => Self::Sql,
            (true, false) => Self::Table,
            (false, false) => Self::Overlay,
        }
    }
}

/// A file of the semantic layer.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    /// Path relative to the project.
    pub(crate) path: String,
    /// Name of its source.
    pub(crate) name: String,
    /// Its content, or the reason why it cannot be read.
    pub(crate) doc: Result<SourceDoc, SourceTextError>,
}

/// Why the text of a source cannot be used, as the end of a sentence about its file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SourceTextError {
    /// The file cannot be read; contains the error of the system call.
    #[error("{0}")]
    Unreadable(String),
    #[error("it is gone")]
    Missing,
    #[error("it is not UTF-8 text")]
    NotUtf8,
    #[error("{}", .0.to_line())]
    InvalidYaml(Problem),
    #[error("it holds no map of keys")]
    NotAMap,
    /// No style of YAML keeps its values.
    #[error("it cannot be written as YAML")]
    NotWritable,
}

/// A source that can be queried, from a file, a scanned table, or both.
#[derive(Clone, Debug)]
pub(crate) struct EffectiveSource {
    pub(crate) name: String,
    /// All fields; an overlay is merged with its table.
    pub(crate) doc: Arc<SourceDoc>,
}

/// The sources of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct SemanticSources {
    pub(crate) by_name: BTreeMap<String, EffectiveSource>,
    pub(crate) scanned_tables: Arc<ScannedTables>,
    /// The files, sorted by path.
    pub(crate) files: Vec<SourceFile>,
    /// Paths of files that define no source or a duplicate one, with the reason.
    pub(crate) broken_files: Vec<(String, String)>,
    /// The known tables of the database, if sources are checked against them.
    pub(crate) known_tables: Option<KnownTables>,
}

/// Why the file of a source cannot be found by name.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FindSourceError {
    /// Several files declare the same source.
    #[error("several files declare it: {}; keep one of them", .0.join(", "))]
    Ambiguous(Vec<String>),
    /// Error of the system call.
    #[error("the semantic layer cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// The semantic layer of a workspace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SemanticLayer<'a>(pub(crate) &'a Workspace);

impl SemanticLayer<'_> {
    /// The files of `connection`, sorted by path.
    pub(crate) fn files(self, connection: &str) -> io::Result<Vec<SourceFile>> {
        let paths = self.paths(&connection_dir(connection))?;
        Ok(paths.into_iter().map(|path| self.file(path)).collect())
    }

    fn paths(self, folder: &str) -> io::Result<Vec<String>> {
        let mut names = self.0.names(folder, ".yaml")?;
        names.extend(self.0.names(folder, ".yml")?);
        names.sort_unstable();
        Ok(names
            .into_iter()
            .map(|name| format!("{folder}/{name}"))
            .collect())
    }

    fn text(self, path: &str, limit: u64) -> Result<String, SourceTextError> {
        match self.0.peek_up_to(path, limit) {
            Ok(Some(bytes)) => String::from_utf8(bytes).map_err(|_| SourceTextError::NotUtf8),
            Ok(None) => Err(SourceTextError::Missing),
            Err(error) => Err(SourceTextError::Unreadable(error.to_string())),
        }
    }

    fn file(self, path: String) -> SourceFile {
        let text = self.text(&path, workspace::MAX_FILE_BYTES);
        let name = source_name(text.as_deref().unwrap_or_default(), &path);
        SourceFile {
            doc: text.and_then(|text| parse_source(&text)),
            name,
            path,
        }
    }

    /// The file of the source `name`.
    pub(crate) fn find_source_file(
        self,
        connection: &str,
        name: &str,
    ) -> Result<Option<SourceFile>, FindSourceError> {
        let mut found: Vec<_> = self
            .files(connection)?
            .into_iter()
            .filter(|file| file.name == name)
            .collect();
        if found.len() > 1 {
            return Err(FindSourceError::Ambiguous(
                found.into_iter().map(|file| file.path).collect(),
            ));
        }
        Ok(found.pop())
    }

    /// Every source of `connection`, overlays merged with their tables.
    pub(crate) fn sources(self, connection: &str) -> io::Result<SemanticSources> {
        let mut scanned = ScannedTables::default();
        let mut broken = Vec::new();
        for path in self.paths(&format!("{}/{SCAN_DIR}", connection_dir(connection)))? {
            let text = self.text(&path, scanned_tables::MAX_FILE_BYTES);
            match text.and_then(scanned_tables::parse_file) {
                Ok(tables) => scanned.extend(&tables),
                Err(why) => broken.push((path, why.to_string())),
            }
        }
        let mut sources = SemanticSources::from_scan(Arc::new(scanned));
        sources.broken_files = broken;
        let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
        let files = self.files(connection)?;
        for file in &files {
            if let Some(first) = owners.insert(&file.name, &file.path) {
                let why = format!("{first} declares source `{}` too", excerpt(&file.name));
                sources.broken_files.push((file.path.clone(), why));
            }
            match &file.doc {
                Err(why) => sources
                    .broken_files
                    .push((file.path.clone(), why.to_string())),
                Ok(doc) => sources.insert(&file.name, doc.clone()),
            }
        }
        sources.files = files;
        Ok(sources)
    }
}

impl SemanticSources {
    /// The sources that are scanned tables without further files.
    pub(crate) fn from_scan(scanned_tables: Arc<ScannedTables>) -> Self {
        let sources = scanned_tables.sources();
        let by_name = sources.map(|source| (source.name.clone(), source.clone()));
        Self {
            by_name: by_name.collect(),
            scanned_tables,
            ..Self::default()
        }
    }

    /// The scanned table that `reference` names: by its name, or by its table in the database, whose leading parts may
    /// be left out.
    pub(crate) fn scanned_table(&self, reference: &str) -> Option<(&str, &SourceDoc)> {
        let table = self.scanned_tables.find(reference)?;
        Some((&table.name, &table.doc))
    }

    /// Adds the source `name`, or replaces it.
    pub(crate) fn insert(&mut self, name: &str, doc: SourceDoc) {
        let doc = match (SourceKind::from_doc(&doc), self.scanned_tables.named(name)) {
            (SourceKind::Overlay, Some(table)) => overlay::merge_overlay(table, &doc),
            (SourceKind::Overlay | SourceKind::Table | SourceKind::Sql, _) => doc,
        };
        self.by_name.insert(
            name.to_owned(),
            EffectiveSource {
                name: name.to_owned(),
                doc: Arc::new(doc),
            },
        );
    }
}

/// The connection and file name of a path in the semantic layer; `None` for scan results.
pub(crate) fn split_source_path(path: &str) -> Option<(&str, &str)> {
    let (connection, file) = path
        .strip_prefix(LAYER_DIR)?
        .strip_prefix('/')?
        .split_once('/')?;
    let is_yaml = file.ends_with(".yaml") || file.ends_with(".yml");
    (is_yaml && !file.contains('/')).then_some((connection, file))
}

/// Folder of the sources of `connection`.
fn connection_dir(connection: &str) -> String {
    format!("{LAYER_DIR}/{connection}")
}

/// Project-relative path of a new source: `<name>.yaml` if the name is plain, else a slug and eight digits of a hash,
/// so that names that differ only in case or punctuation never share a file.
pub(crate) fn new_source_path(connection: &str, name: &str) -> String {
    const MAX_SLUG_BYTES: usize = 64;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_plain = !name.is_empty()
        && name.len() <= MAX_SLUG_BYTES
        && name.chars().all(plain)
        && !name.starts_with('_');
    if is_plain && !slug::is_device_name(name) {
        return format!("{LAYER_DIR}/{connection}/{name}.yaml");
    }
    let words: Vec<String> = name
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    let short: String = words.join("_").chars().take(MAX_SLUG_BYTES).collect();
    let short = if short.is_empty() { "src" } else { &short };
    format!(
        "{LAYER_DIR}/{connection}/{short}-{}.yaml",
        slug::short_hash(name, 8)
    )
}

/// Reads the text of a source.
pub(crate) fn parse_source(text: &str) -> Result<SourceDoc, SourceTextError> {
    to_doc(text, yaml::from_str(text))
}

fn to_doc(
    text: &str,
    parsed: Result<Value, yaml::YamlError>,
) -> Result<SourceDoc, SourceTextError> {
    match parsed {
        Ok(Value::Object(doc)) => Ok(doc),
        Ok(_) => Err(SourceTextError::NotAMap),
        Err(error) => Err(SourceTextError::InvalidYaml(yaml::explain(text, &error))),
    }
}

/// Formats a source as YAML in KTX's style: readers of YAML 1.1 (where `on` is true) and of 1.2 get the same values.
pub(crate) fn render_source(doc: &SourceDoc) -> Result<String, SourceTextError> {
    let value = Value::Object(doc.clone());
    let mut texts = [QuotingStyle::Yaml11, QuotingStyle::All]
        .into_iter()
        .map(|quoting| yaml::render(&value, quoting));
    let text = texts.find(|text| parse_source(text).as_ref() == Ok(doc));
    text.ok_or(SourceTextError::NotWritable)
}

/// Name of the source that `text`, the content of `path`, defines: the declared name, else the file name.
pub(crate) fn source_name(text: &str, path: &str) -> String {
    let stem = || {
        path.rsplit('/')
            .next()
            .and_then(|name| name.rsplit_once('.'))
            .map_or("", |(stem, _)| stem)
            .to_owned()
    };
    declared_name(text).unwrap_or_else(stem)
}

/// The `name:` that a text declares, even if the text after it is invalid YAML.
fn declared_name(text: &str) -> Option<String> {
    let name = |doc: SourceDoc| {
        doc.get("name")
            .and_then(Value::as_str)
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
    };
    match parse_source(text) {
        Ok(doc) => name(doc),
        Err(_) => text
            .lines()
            .find(|line| line.starts_with("name:"))
            .and_then(|line| parse_source(line).ok())
            .and_then(name),
    }
}

#[cfg(test)]
mod tests;
