//! The part of a database that a scan covers: the schemas of the connection and its `enabled_tables`.

use std::collections::HashMap;

use super::tables::ScannedTableName;
use crate::{
    database::{Database, TableInfo},
    facts::TableName,
    project::Connection,
    spelling::nearest_name,
    untrusted_text::excerpt,
};
use ingestdeck_core::diagnostic::Problem;

/// Most entries of `enabled_tables` without a table that are named, each in a warning.
const MAX_WARNINGS: usize = 20;

/// The tables that a scan of a connection is limited to.
#[derive(Debug, Default)]
pub(super) struct ScanReach {
    /// Schemas or datasets; empty for all.
    schemas: Vec<String>,
    /// The entries of KTX's key `enabled_tables`; empty for all tables.
    enabled: Vec<EnabledTable>,
}

/// A table by its name, with or without the parts in front of it.
#[derive(Debug)]
struct EnabledTable {
    /// As `ktx.yaml` has it.
    text: String,
    name: TableName,
}

/// Compares two parts of a name.
type SamePart = fn(&str, &str) -> bool;

impl ScanReach {
    pub(super) fn of(connection: &Connection, database: &Database) -> Self {
        let entries = connection.keys.0.get("enabled_tables");
        let entries = entries
            .and_then(|names| names.as_array())
            .into_iter()
            .flatten();
        let texts = entries.filter_map(|entry| Some(entry.as_str()?.trim()));
        let enabled = texts
            .filter(|text| !text.is_empty())
            .map(|text| EnabledTable {
                text: text.to_owned(),
                name: TableName::parse(text),
            });
        Self {
            schemas: match database {
                Database::Sqlite(_) => Vec::new(),
                Database::Warehouse(warehouse) => warehouse.schemas(),
            },
            enabled: enabled.collect(),
        }
    }

    /// The entries of `enabled_tables`; empty for all tables.
    pub(super) fn enabled_tables(&self) -> impl Iterator<Item = &str> {
        self.enabled.iter().map(|entry| entry.text.as_str())
    }

    /// Whether the scan would have found a table of this name.
    pub(super) fn covers(&self, name: &ScannedTableName) -> bool {
        let is_in_schema = self.schemas.is_empty()
            || self.schemas.iter().any(|schema| {
                name.schema()
                    .is_none_or(|own| own.eq_ignore_ascii_case(schema))
            });
        let is_enabled = self.enabled.is_empty()
            || self
                .enabled
                .iter()
                .any(|entry| is_named(name, &entry.name, is_same_folded));
        is_in_schema && is_enabled
    }

    /// Keeps the tables that `enabled_tables` names. Case decides only between tables that differ in nothing else. Returns a
    /// problem about each entry that no table has.
    pub(super) fn keep_enabled(&self, tables: &mut Vec<TableInfo>) -> Vec<Problem> {
        if self.enabled.is_empty() {
            return Vec::new();
        }
        let names: Vec<ScannedTableName> = tables.iter().map(ScannedTableName::of).collect();
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, name) in names.iter().enumerate() {
            by_name
                .entry(name.table().to_lowercase())
                .or_default()
                .push(at);
        }
        let mut is_enabled = vec![false; tables.len()];
        let mut problems = Vec::new();
        for entry in &self.enabled {
            let alike = by_name.get(&entry.name.table().to_lowercase());
            let named = |is_same: SamePart| {
                let alike = alike.into_iter().flatten().copied();
                let is_meant = |at: &usize| {
                    names
                        .get(*at)
                        .is_some_and(|name| is_named(name, &entry.name, is_same))
                };
                alike.filter(is_meant).collect::<Vec<usize>>()
            };
            let mut found = named(|one, other| one == other);
            if found.is_empty() {
                found = named(is_same_folded);
            }
            if found.is_empty() && problems.len() < MAX_WARNINGS {
                problems.push(missing(entry, &names));
            }
            for at in found {
                if let Some(is_enabled) = is_enabled.get_mut(at) {
                    *is_enabled = true;
                }
            }
        }
        let mut is_enabled = is_enabled.into_iter();
        tables.retain(|_| is_enabled.next().unwrap_or_default());
        problems
    }
}

fn missing(entry: &EnabledTable, names: &[ScannedTableName]) -> Problem {
    let tables: Vec<&str> = names.iter().map(ScannedTableName::table).collect();
    let nearest = nearest_name(entry.name.table(), &tables);
    let nearest = names
        .iter()
        .find(|name| Some(name.table()) == nearest)
        .map(|name| format!("; did you mean `{}`?", excerpt(&name.reference())));
    let text = format!(
        "`{}` of enabled_tables names no table of the database{}",
        excerpt(&entry.text),
        nearest.unwrap_or_default()
    );
    Problem::new(text).with_help("correct the entry in ktx.yaml, or remove it")
}

fn is_same_folded(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

/// Whether `wanted` names the table: the name, with or without the parts in front of it.
fn is_named(name: &ScannedTableName, wanted: &TableName, is_same: SamePart) -> bool {
    let own = [
        name.table(),
        name.schema().unwrap_or_default(),
        name.catalog().unwrap_or_default(),
    ];
    let wanted = wanted.parts();
    let mut pairs = wanted.iter().rev().zip(own);
    wanted.len() <= own.len() && pairs.all(|(wanted, own)| is_same(wanted, own))
}
