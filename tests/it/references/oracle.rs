//! KTX's final gates over the pages of a project, implemented on the files alone, without code of the program.
//!
//! The gates check all pages as soon as a source was changed or a page removed. Before that, KTX removes entries of
//! `sl_refs` that are not a source, measure or segment.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use regex_lite::Regex;
use serde_json::Value;

/// The files of a project.
#[derive(Debug)]
pub(super) struct ReferenceOracle {
    pages: BTreeMap<String, OraclePage>,
    /// By connection, then by name.
    sources: BTreeMap<String, BTreeMap<String, OracleSource>>,
}

#[derive(Debug)]
struct OraclePage {
    front: Value,
    body: String,
}

#[derive(Debug)]
struct OracleSource {
    table: String,
    columns: Vec<String>,
    /// Names of its measures and segments.
    entities: Vec<String>,
}

impl ReferenceOracle {
    /// Reads the project at `root`. Its semantic layer has no scans.
    pub(super) fn read(root: &Path) -> Self {
        let pages = files(&root.join("wiki/global"))
            .into_iter()
            .map(|(name, bytes)| {
                let text = String::from_utf8(bytes).unwrap();
                let (front, body) = text
                    .strip_prefix("---\n")
                    .unwrap()
                    .split_once("\n---\n")
                    .unwrap();
                let front = serde_saphyr::from_str(front).unwrap();
                (
                    name.trim_end_matches(".md").to_owned(),
                    OraclePage {
                        front,
                        body: body.to_owned(),
                    },
                )
            });
        let pages = pages.collect();
        let connections = fs::read_dir(root.join("semantic-layer"))
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap());
        let sources = connections.map(|folder| {
            let sources = files(&folder.path()).into_iter().map(|(_, bytes)| {
                let source: Value =
                    serde_saphyr::from_str(&String::from_utf8(bytes).unwrap()).unwrap();
                let names = |key: &str| texts(&source[key], "name");
                let table = source["table"].as_str().unwrap_or_default().to_owned();
                let entities = [names("measures"), names("segments")].concat();
                let name = source["name"].as_str().unwrap().to_owned();
                (
                    name,
                    OracleSource {
                        table,
                        columns: names("columns"),
                        entities,
                    },
                )
            });
            (folder.file_name().into_string().unwrap(), sources.collect())
        });
        Self {
            pages,
            sources: sources.collect(),
        }
    }

    /// True if both have the same page `key`, apart from its `sl_refs`.
    pub(super) fn has_same(&self, other: &Self, key: &str) -> bool {
        let Some((page, other)) = self.pages.get(key).zip(other.pages.get(key)) else {
            return false;
        };
        let same = |field: &str| page.front[field] == other.front[field];
        page.body.trim() == other.body.trim() && same("summary") && same("refs")
    }

    /// References that the gates refuse for an ingest into `connections`: page and reason.
    pub(super) fn refused(&self, connections: &[&str]) -> BTreeSet<(String, String)> {
        let repaired = self.repaired(connections);
        let mut refused = BTreeSet::new();
        for (key, page) in &self.pages {
            let mut refuse = |why: String| refused.insert((key.clone(), why));
            for link in links(page)
                .into_iter()
                .filter(|link| link != key && !self.pages.contains_key(link))
            {
                refuse(format!("-> {link}"));
            }
            // The remaining entries of `sl_refs` exist in some source, but the gates check the first source of that
            // name.
            for entry in texts(&page.front["sl_refs"], "")
                .into_iter()
                .filter(|entry| !repaired.contains(&(key.clone(), entry.clone())))
            {
                let (name, entity) = entry.split_once('.').unwrap_or((&entry, ""));
                let source = connections
                    .iter()
                    .find_map(|of| self.sources.get(*of)?.get(name))
                    .unwrap();
                if !entity.is_empty()
                    && !source
                        .columns
                        .iter()
                        .chain(&source.entities)
                        .any(|name| name == entity)
                {
                    refuse(format!("sl_refs {entry}"));
                }
            }
            for code in inline_code(&page.body) {
                let (own, rest) = match code.find('/') {
                    Some(at) if at > 0 => (Some(&code[..at]), &code[at + 1..]),
                    _ => (None, code.as_str()),
                };
                let within: Vec<&str> = own.map_or_else(|| connections.to_vec(), |own| vec![own]);
                let named = |name: &str| {
                    within
                        .iter()
                        .find_map(|of| self.sources.get(*of)?.get(name))
                };
                let is_ok = if let Some(name) = rest.strip_prefix("source:") {
                    name.trim().is_empty() || named(name.trim()).is_some()
                } else if let Some(table) = rest.strip_prefix("table:") {
                    let sources = within
                        .iter()
                        .filter_map(|of| self.sources.get(*of))
                        .flatten();
                    table.trim().is_empty()
                        || sources
                            .into_iter()
                            .any(|(name, of)| is_table(name, of, table))
                } else {
                    match Regex::new(r"^([A-Za-z_]\w*)\.([A-Za-z_]\w*)$")
                        .unwrap()
                        .captures(rest)
                    {
                        Some(parts) => named(&parts[1]).is_none_or(|of| {
                            of.columns
                                .iter()
                                .chain(&of.entities)
                                .any(|name| *name == parts[2])
                        }),
                        None => true,
                    }
                };
                if !is_ok {
                    refuse(code);
                }
            }
        }
        refused
    }

    /// Entries that KTX removes from `sl_refs` first: page and entry.
    pub(super) fn repaired(&self, connections: &[&str]) -> BTreeSet<(String, String)> {
        let sources = connections
            .iter()
            .filter_map(|of| self.sources.get(*of))
            .flatten();
        let of_source = |(name, source): (&String, &OracleSource)| {
            let entities: Vec<String> = source
                .entities
                .iter()
                .map(|entity| format!("{name}.{entity}"))
                .collect();
            [vec![name.clone()], entities].concat()
        };
        let known: BTreeSet<String> = sources.flat_map(of_source).collect();
        let entries = self.pages.iter().flat_map(|(key, page)| {
            texts(&page.front["sl_refs"], "")
                .into_iter()
                .map(|entry| (key.clone(), entry))
        });
        entries
            .filter(|(_, entry)| !known.contains(entry))
            .collect()
    }
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap());
    entries
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                fs::read(entry.path()).unwrap(),
            )
        })
        .collect()
}

fn texts(list: &Value, field: &str) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.map(|item| {
        if field.is_empty() { item } else { &item[field] }
            .as_str()
            .unwrap()
            .to_owned()
    })
    .collect()
}

fn links(page: &OraclePage) -> BTreeSet<String> {
    let inline = Regex::new(r"\[\[([^\]\n]+)\]\]").unwrap();
    let is_key = Regex::new("^[a-z0-9][a-z0-9_-]*$").unwrap();
    let found = inline
        .captures_iter(&page.body)
        .map(|link| link[1].split('|').next().unwrap().trim().to_owned());
    texts(&page.front["refs"], "")
        .into_iter()
        .chain(found)
        .filter(|link| is_key.is_match(link))
        .collect()
}

fn inline_code(body: &str) -> Vec<String> {
    let (code, fence) = (
        Regex::new("`([^`\n]+)`").unwrap(),
        Regex::new(r"^\s*```").unwrap(),
    );
    let mut is_open = true;
    let mut found = Vec::new();
    for line in body.split('\n') {
        if fence.is_match(line) {
            is_open = !is_open;
        } else if is_open {
            found.extend(
                code.captures_iter(line)
                    .map(|code| code[1].trim().to_owned()),
            );
        }
    }
    found
}

fn is_table(name: &str, source: &OracleSource, table: &str) -> bool {
    let plain = |text: &str| text.trim().replace(['"', '`', '[', ']'], "").to_lowercase();
    let (name, own, wanted) = (plain(name), plain(&source.table), plain(table));
    let by_last = !wanted.contains('.') && own.split('.').next_back() == Some(&wanted);
    !wanted.is_empty()
        && (name == wanted || own == wanted || own.ends_with(&format!(".{wanted}")) || by_last)
}
