//! Compares the tables and columns that artifacts and the ledger name with what the answers to the agent's calls prove.
//!
//! [`facts`] keeps what answers prove. This module must not decide the consequences. The module `unsourced`
//! compares the words of artifacts with everything that the agent received.

mod facts;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use serde_json::Value;

pub(crate) use self::facts::CatalogFacts;
use self::facts::{ColumnProof, TableProof};
use super::{
    connection_scope::{ConnectionAccess, ConnectionScope},
    facts::TableName,
    semantic_layer::{self, SemanticLayer, SemanticSources, SourceDoc, SourceKind, maps_at, texts},
    type_kind::TypeKind,
    untrusted_text::one_line,
    wiki::{self, WikiPage},
    workspace::Workspace,
};
use ingestdeck_core::tape::note::verification::{
    ArtifactVerification, ContradictedIdentifier, VerificationRecord,
};

/// Longest recorded name in characters.
const MAX_NAME_CHARS: usize = 120;
/// Driver whose columns accept values of every type.
const UNTYPED_DRIVER: &str = "sqlite";

/// The facts that an attempt has, and what it could have had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verifier<'a> {
    pub(crate) workspace: &'a Workspace,
    pub(crate) scope: &'a ConnectionScope,
    pub(crate) facts: &'a CatalogFacts,
}

impl Verifier<'_> {
    /// Compares the artifacts, given by path and text, and the identifiers that the ledger lists as verified.
    pub(crate) fn verify<'t, 's>(
        self,
        artifacts: impl Iterator<Item = (&'t str, &'t str)>,
        stated: impl Iterator<Item = &'s str>,
    ) -> io::Result<VerificationRecord> {
        let mut record = VerificationRecord::default();
        let mut sources = SourceCache::default();
        let mut unchecked = BTreeSet::new();
        let can_check_any = self.can_check_any();
        for (path, text) in artifacts {
            let states = if let Some((connection, _)) = semantic_layer::split_source_path(path) {
                if !self.can_check(connection) {
                    unchecked.insert(connection.to_owned());
                    continue;
                }
                self.check_source(connection, (path, text), &mut sources)?
            } else if let (Some(_), true) = (wiki::page_key(path), can_check_any) {
                match WikiPage::parse(text.as_bytes()) {
                    Ok(page) => self.check_page(&page, &mut sources)?,
                    // Other checks report it.
                    Err(_) => continue,
                }
            } else {
                continue;
            };
            record.artifacts.push(states.into_record(path));
        }
        record.unchecked = unchecked.into_iter().collect();
        record.unproven = self.unproven(stated);
        record.truncate();
        Ok(record)
    }

    /// The names among `stated` that are in no answer, each once. Texts that are not names of tables or columns are left
    /// out, and so is everything if there is nothing to compare with.
    pub(crate) fn unproven<'t>(self, stated: impl Iterator<Item = &'t str>) -> Vec<String> {
        if !self.can_check_any() {
            return Vec::new();
        }
        let mut seen = BTreeSet::new();
        let is_unproven = |stated: &&str| {
            let (connection, name) = split_connection(stated);
            let Some(parts) = name_parts(name) else {
                return false;
            };
            let short = self.without_database(connection, &parts);
            let has = |parts: &Vec<String>| self.facts.has_name(connection, parts);
            let is_proven = has(&parts) || short.as_ref().is_some_and(has);
            !is_proven && seen.insert((connection.map(str::to_owned), parts))
        };
        stated.filter(is_unproven).map(recorded_name).collect()
    }

    /// What is proven about the table `parts`, and the parts that the answers use.
    fn table(self, connection: Option<&str>, parts: Vec<String>) -> (TableProof, Vec<String>) {
        let proof = self.facts.table(connection, &parts);
        match self.without_database(connection, &parts) {
            Some(short) if proof == TableProof::Unknown => {
                (self.facts.table(connection, &short), short)
            }
            _ => (proof, parts),
        }
    }

    /// The name without the database of the connection, which answers leave out if the server shows one database. `None`
    /// if the name does not begin with it.
    fn without_database(self, connection: Option<&str>, parts: &[String]) -> Option<Vec<String>> {
        let (first, rest) = parts.split_first()?;
        let is_database = |access: &ConnectionAccess| {
            connection.is_none_or(|id| id == access.id)
                && access
                    .facts
                    .database_name()
                    .is_some_and(|name| name.to_lowercase() == *first)
        };
        let is_own = self.scope.connections.iter().any(is_database);
        (rest.len() > 1 && is_own).then(|| rest.to_vec())
    }

    /// Whether tables of `connection` can be looked up, or were.
    fn can_check(self, connection: &str) -> bool {
        let access = self.scope.get(connection);
        access.is_some_and(ConnectionAccess::knows_tables) || self.facts.has_connection(connection)
    }

    fn can_check_any(self) -> bool {
        let connections = self.scope.connections.iter();
        connections
            .into_iter()
            .any(|access| self.can_check(&access.id))
    }

    /// Compares the table and the columns of a source, which an overlay has from the scan.
    fn check_source(
        self,
        connection: &str,
        (path, text): (&str, &str),
        sources: &mut SourceCache,
    ) -> io::Result<IdentifierStates> {
        let mut states = IdentifierStates::default();
        let Ok(doc) = semantic_layer::parse_source(text) else {
            return Ok(states);
        };
        let table = match SourceKind::from_doc(&doc) {
            SourceKind::Table => table_of(&doc),
            SourceKind::Sql => None,
            SourceKind::Overlay => {
                let name = semantic_layer::source_name(text, path);
                let sources = sources.of(self.workspace, connection)?;
                let table = sources.scanned_tables.named(&name);
                table.and_then(|table| table_of(table))
            }
        };
        let Some((table, parts)) = table.and_then(|table| Some((table, name_parts(table)?))) else {
            return Ok(states);
        };
        let (proof, parts) = self.table(Some(connection), parts);
        states.add_table(table, &proof, connection);
        for (column, kind) in named_columns(&doc) {
            let name = format!("{table}.{column}");
            let proven = match &proof {
                TableProof::Exists(found) => self.facts.column(connection, (&parts, found), column),
                TableProof::Unknown | TableProof::Missing => ColumnProof::Unknown,
            };
            let conflict = match proven {
                ColumnProof::Exists(native) => self.type_conflict(connection, kind, native),
                ColumnProof::Unknown | ColumnProof::Missing => None,
            };
            match conflict {
                Some(conflict) => states.contradict(&name, conflict),
                None => states.add_column(&name, proven),
            }
        }
        Ok(states)
    }

    /// Why a column of the type `native` cannot have the type `stated`.
    fn type_conflict(
        self,
        connection: &str,
        stated: Option<&str>,
        native: Option<&str>,
    ) -> Option<String> {
        let driver = self.scope.get(connection)?.driver.as_deref();
        let (stated, native) = (stated?, native?);
        let kind = TypeKind::of(native)?;
        let differs = driver != Some(UNTYPED_DRIVER) && kind.contradicts(stated);
        differs.then(|| format!("its type is `{}`, not {stated}", recorded_name(native)))
    }

    /// Compares the tables in the frontmatter of a page, and the tables of the sources in its `sl_refs`.
    fn check_page(
        self,
        page: &WikiPage,
        sources: &mut SourceCache,
    ) -> io::Result<IdentifierStates> {
        let mut states = IdentifierStates::default();
        for table in page.frontmatter.tables.iter().flatten() {
            let (connection, name) = split_connection(table);
            if let Some(parts) = name_parts(name) {
                let (proof, _) = self.table(connection, parts);
                states.add_table(table, &proof, connection.unwrap_or_default());
            }
        }
        for reference in page.frontmatter.sl_refs.iter().flatten() {
            self.add_reference(reference, sources, &mut states)?;
        }
        Ok(states)
    }

    /// Adds a reference to a source, which counts as its table, or to a column of one. References to nothing are dangling.
    fn add_reference(
        self,
        reference: &str,
        sources: &mut SourceCache,
        states: &mut IdentifierStates,
    ) -> io::Result<()> {
        let (connection, name) = split_connection(reference);
        let (name, entity) = match name.split_once('.') {
            Some((name, entity)) => (name, Some(entity)),
            None => (name, None),
        };
        let targets = self.scope.target_ids();
        let is_meant = |target: &&String| connection.is_none_or(|connection| connection == *target);
        for target in targets.iter().filter(is_meant) {
            let Some(source) = sources.of(self.workspace, target)?.by_name.get(name) else {
                continue;
            };
            let table = (SourceKind::from_doc(&source.doc) == SourceKind::Table)
                .then(|| table_of(&source.doc))
                .flatten();
            let Some(parts) = table.and_then(name_parts) else {
                return Ok(());
            };
            if !self.can_check(target) {
                return Ok(());
            }
            let column = named_columns(&source.doc)
                .map(|(column, _)| column)
                .find(|column| Some(*column) == entity);
            let (proof, parts) = self.table(Some(target), parts);
            match (&proof, column) {
                (TableProof::Exists(found), Some(column)) => {
                    states.add_column(
                        reference,
                        self.facts.column(target, (&parts, found), column),
                    );
                }
                _ => states.add_table(reference, &proof, target),
            }
            return Ok(());
        }
        Ok(())
    }
}

/// The states of the identifiers of one artifact, each name once.
#[derive(Debug, Default)]
struct IdentifierStates {
    verified: BTreeSet<String>,
    unverified: BTreeSet<String>,
    /// With what was found instead.
    contradicted: BTreeMap<String, String>,
}

impl IdentifierStates {
    fn add_table(&mut self, name: &str, proof: &TableProof, connection: &str) {
        match proof {
            TableProof::Exists(_) => drop(self.verified.insert(recorded_name(name))),
            TableProof::Unknown => drop(self.unverified.insert(recorded_name(name))),
            TableProof::Missing => {
                self.contradict(name, format!("there is no such table in `{connection}`"));
            }
        }
    }

    fn add_column(&mut self, name: &str, proof: ColumnProof<'_>) {
        match proof {
            ColumnProof::Exists(_) => drop(self.verified.insert(recorded_name(name))),
            ColumnProof::Unknown => drop(self.unverified.insert(recorded_name(name))),
            ColumnProof::Missing => {
                self.contradict(name, "the table has no such column".to_owned());
            }
        }
    }

    fn contradict(&mut self, name: &str, found: String) {
        self.contradicted.insert(recorded_name(name), found);
    }

    fn into_record(self, path: &str) -> ArtifactVerification {
        let contradicted = self.contradicted.into_iter();
        let contradicted = contradicted.map(|(name, found)| ContradictedIdentifier { name, found });
        ArtifactVerification {
            path: path.to_owned(),
            verified: self.verified.into_iter().collect(),
            unverified: self.unverified.into_iter().collect(),
            contradicted: contradicted.collect(),
        }
    }
}

/// The semantic layers of connections, each read once.
#[derive(Default)]
struct SourceCache(BTreeMap<String, SemanticSources>);

impl SourceCache {
    fn of(&mut self, workspace: &Workspace, connection: &str) -> io::Result<&SemanticSources> {
        if !self.0.contains_key(connection) {
            let sources = SemanticLayer(workspace).sources(connection)?;
            self.0.insert(connection.to_owned(), sources);
        }
        Ok(self.0.entry(connection.to_owned()).or_default())
    }
}

fn table_of(doc: &SourceDoc) -> Option<&str> {
    doc.get("table").and_then(Value::as_str)
}

/// The columns that a source names as existing in its table, with their types.
fn named_columns(doc: &SourceDoc) -> impl Iterator<Item = (&str, Option<&str>)> {
    let plain = maps_at(doc, "columns").filter(|column| column.get("expr").is_none());
    let columns = plain.chain(maps_at(doc, "column_overrides"));
    let named = columns.filter_map(|column| {
        let kind = column.get("type").and_then(Value::as_str);
        Some((column.get("name")?.as_str()?, kind))
    });
    let excluded = texts(doc, "exclude_columns", "").into_iter();
    named.chain(excluded.map(|name| (name, None)))
}

/// The parts of the name of a table or column in lower case; `None` for another text.
fn name_parts(name: &str) -> Option<Vec<String>> {
    TableName::parse_exact(name).map(TableName::into_parts)
}

/// The connection in `connection/name`, and the name.
fn split_connection(name: &str) -> (Option<&str>, &str) {
    let name = name.trim();
    match name.split_once('/') {
        Some((connection, rest)) if !connection.contains(['"', '`', '[']) => {
            (Some(connection).filter(|it| !it.is_empty()), rest)
        }
        _ => (None, name),
    }
}

/// The name on one line, shortened.
fn recorded_name(name: &str) -> String {
    one_line(name).chars().take(MAX_NAME_CHARS).collect()
}

#[cfg(test)]
mod tests;
