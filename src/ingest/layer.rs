//! The semantic layer as one attempt sees it: the sources of a connection, each a YAML file of its own, over the tables
//! that a scan of the database left below `_schema/`.
//!
//! A source is what the `name:` inside its file says; the file's own name is only derived from it, so people may rename
//! files freely. It must not know about tools or prompts.

use std::{collections::BTreeMap, io};

use serde_json::{Map, Value};

use super::{
    schema::shown,
    source::slug,
    workspace::Workspace,
    yaml::{self, Quoting},
};

mod complete;
mod compose;
mod faults;
#[expect(dead_code, reason = "the schema is made of every field, the rules read some of them")]
mod shape;

pub(crate) use complete::{completed, with_lists};
pub(crate) use compose::{description, maps, texts};
pub(crate) use faults::{Findings, dangling, judge};
pub(crate) use shape::{Definition, ordered};

/// Folder of the semantic layer.
const FOLDER: &str = "semantic-layer";
/// Folder of a connection that holds what a scan found.
const SCAN: &str = "_schema";

/// A source as YAML holds it.
pub(crate) type Doc = Map<String, Value>;

/// What a source is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A table or view.
    Table,
    /// A query.
    Sql,
    /// Additions to a scanned table.
    Overlay,
}

impl Kind {
    /// The kind of `doc`.
    pub(crate) fn of(doc: &Doc) -> Self {
        let has = |key| doc.get(key).and_then(Value::as_str).is_some_and(|text| !text.trim().is_empty());
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
    /// Project-relative path.
    pub(crate) path: String,
    /// Name of its source.
    pub(crate) name: String,
    /// What is in it, or why it cannot be read.
    pub(crate) doc: Result<Doc, String>,
}

/// A source that can be queried: a file, a scanned table, or both.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Its name.
    pub(crate) name: String,
    /// Everything known about it; an overlay is merged with its table.
    pub(crate) doc: Doc,
}

/// The sources of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// By name.
    pub(crate) all: BTreeMap<String, Source>,
    /// Tables that a scan found, by name.
    pub(crate) scanned: BTreeMap<String, Doc>,
    /// The files, sorted by path.
    pub(crate) files: Vec<SourceFile>,
    /// Paths that hold no source, or one too many, and why.
    pub(crate) broken: Vec<(String, String)>,
}

/// A file cannot be found by the name of its source.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FindError {
    /// More than one file says that it is the source.
    #[error("several files declare it: {}; keep one of them", .0.join(", "))]
    Several(Vec<String>),
    /// The system refuses.
    #[error("the semantic layer cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// The semantic layer of a workspace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer<'a>(pub(crate) &'a Workspace);

impl Layer<'_> {
    /// The files of `connection`, sorted by path.
    pub(crate) fn files(self, connection: &str) -> io::Result<Vec<SourceFile>> {
        let paths = self.paths(&folder_of(connection))?;
        Ok(paths.into_iter().map(|path| self.file(path)).collect())
    }

    fn paths(self, folder: &str) -> io::Result<Vec<String>> {
        let mut names = self.0.names(folder, ".yaml")?;
        names.extend(self.0.names(folder, ".yml")?);
        names.sort_unstable();
        Ok(names.into_iter().map(|name| format!("{folder}/{name}")).collect())
    }

    fn file(self, path: String) -> SourceFile {
        let text = match self.0.peek(&path) {
            Ok(Some(bytes)) => String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned()),
            Ok(None) => Err("it is gone".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let name = name_in(text.as_deref().unwrap_or_default(), &path);
        SourceFile { doc: text.and_then(|text| parse(&text)), name, path }
    }

    /// The file of the source `name`.
    pub(crate) fn find(self, connection: &str, name: &str) -> Result<Option<SourceFile>, FindError> {
        let mut found: Vec<_> = self.files(connection)?.into_iter().filter(|file| file.name == name).collect();
        if found.len() > 1 {
            return Err(FindError::Several(found.into_iter().map(|file| file.path).collect()));
        }
        Ok(found.pop())
    }

    /// Every source of `connection`, overlays merged with their tables.
    pub(crate) fn sources(self, connection: &str) -> io::Result<Sources> {
        let mut sources = Sources::default();
        for path in self.paths(&format!("{}/{SCAN}", folder_of(connection)))? {
            let file = self.file(path);
            match file.doc {
                Ok(doc) => sources.scanned.extend(compose::tables(&doc)),
                Err(why) => sources.broken.push((file.path, why)),
            }
        }
        for (name, doc) in &sources.scanned {
            sources.all.insert(name.clone(), Source { name: name.clone(), doc: doc.clone() });
        }
        let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
        let files = self.files(connection)?;
        for file in &files {
            if let Some(first) = owners.insert(&file.name, &file.path) {
                let why = format!("{first} declares source `{}` too", shown(&file.name));
                sources.broken.push((file.path.clone(), why));
            }
            match &file.doc {
                Err(why) => sources.broken.push((file.path.clone(), why.clone())),
                Ok(doc) => sources.put(&file.name, doc.clone()),
            }
        }
        sources.files = files;
        Ok(sources)
    }
}

impl Sources {
    /// Adds the source `name`, or replaces it.
    pub(crate) fn put(&mut self, name: &str, doc: Doc) {
        let doc = match (Kind::of(&doc), self.scanned.get(name)) {
            (Kind::Overlay, Some(table)) => compose::merged(table, &doc),
            (Kind::Overlay | Kind::Table | Kind::Sql, _) => doc,
        };
        self.all.insert(name.to_owned(), Source { name: name.to_owned(), doc });
    }
}

/// The connection and the file name of a path of the semantic layer, scans left out.
pub(crate) fn place_of(path: &str) -> Option<(&str, &str)> {
    let (connection, file) = path.strip_prefix(FOLDER)?.strip_prefix('/')?.split_once('/')?;
    let is_yaml = file.ends_with(".yaml") || file.ends_with(".yml");
    (is_yaml && !file.contains('/')).then_some((connection, file))
}

/// Folder of the sources of `connection`.
fn folder_of(connection: &str) -> String {
    format!("{FOLDER}/{connection}")
}

/// Project-relative path that a new source gets: `<name>.yaml` where the name is plain, else a slug and eight digits
/// of a hash, so that names that differ by case or by signs never share a file.
pub(crate) fn path_of(connection: &str, name: &str) -> String {
    const LONGEST: usize = 64;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_plain = !name.is_empty() && name.len() <= LONGEST && name.chars().all(plain) && !name.starts_with('_');
    if is_plain && !slug::is_device(name) {
        return format!("{FOLDER}/{connection}/{name}.yaml");
    }
    let words: Vec<String> = name
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    let short: String = words.join("_").chars().take(LONGEST).collect();
    let short = if short.is_empty() { "src" } else { &short };
    format!("{FOLDER}/{connection}/{short}-{}.yaml", slug::hash(name, 8))
}

/// Reads the text of a source.
pub(crate) fn parse(text: &str) -> Result<Doc, String> {
    match yaml::from_str::<Value>(text) {
        Ok(Value::Object(doc)) => Ok(doc),
        Ok(_) => Err("it holds no map of keys".into()),
        Err(error) => Err(yaml::explain(text, &error)),
    }
}

/// Writes a source as text, in the style of KTX: a reader of YAML 1.1 (where `on` is true) and one of 1.2 see the same.
pub(crate) fn render(doc: &Doc) -> Result<String, String> {
    let value = Value::Object(doc.clone());
    let mut texts = [Quoting::Yaml11, Quoting::All].into_iter().map(|quoting| yaml::render(&value, quoting));
    let text = texts.find(|text| parse(text).as_ref() == Ok(doc));
    text.ok_or_else(|| "it cannot be written as YAML".into())
}

/// Name of the source that `text`, the content of `path`, defines: the one that it declares, else that of the file.
pub(crate) fn name_in(text: &str, path: &str) -> String {
    let stem =
        || path.rsplit('/').next().and_then(|name| name.rsplit_once('.')).map_or("", |(stem, _)| stem).to_owned();
    declared(text).unwrap_or_else(stem)
}

/// The `name:` that a text declares, even if what comes after it is broken.
fn declared(text: &str) -> Option<String> {
    let name = |doc: Doc| doc.get("name").and_then(Value::as_str).filter(|name| !name.is_empty()).map(str::to_owned);
    match parse(text) {
        Ok(doc) => name(doc),
        Err(_) => text.lines().find(|line| line.starts_with("name:")).and_then(|line| parse(line).ok()).and_then(name),
    }
}

#[cfg(test)]
mod tests;
