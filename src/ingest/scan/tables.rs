//! The tables of a scan, and how they differ from those of the scan before.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::database::{ForeignKey, TableInfo};

/// Full name of a table; the missing parts are empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ScannedTableName([String; 3]);

impl ScannedTableName {
    pub(super) fn of(table: &TableInfo) -> Self {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        Self([
            text(&table.catalog),
            text(&table.schema),
            table.name.clone(),
        ])
    }

    /// The name of a table in a file of a scan.
    pub(super) fn from_json(table: &Value) -> Option<Self> {
        let text = |key: &str| table[key].as_str().unwrap_or_default().to_owned();
        table["name"]
            .is_string()
            .then(|| Self([text("catalog"), text("db"), text("name")]))
    }

    /// Whether `text` names the table: the name, with or without the parts in front of it.
    pub(super) fn is_named(&self, text: &str) -> bool {
        let mut parts = text.rsplit('.').zip(self.0.iter().rev());
        text.split('.').count() <= self.0.len() && parts.all(|(named, own)| named == own)
    }

    /// The parts, separated by dots: what `table:` of a source contains.
    pub(super) fn reference(&self) -> String {
        let parts = self.0.iter().filter(|part| !part.is_empty());
        parts.map(String::as_str).collect::<Vec<_>>().join(".")
    }
}

/// A table, and its file.
pub(super) struct StagedTable<'a> {
    pub(super) info: &'a TableInfo,
    pub(super) name: ScannedTableName,
    /// Path of its file, below the folder of the scan.
    pub(super) path: String,
    /// Content of its file.
    pub(super) json: Value,
}

/// Finds tables by their names.
pub(super) struct TableIndex<'a>(BTreeMap<String, Vec<&'a TableInfo>>);

impl<'a> TableIndex<'a> {
    pub(super) fn new(tables: &'a [TableInfo]) -> Self {
        let mut index: BTreeMap<String, Vec<&TableInfo>> = BTreeMap::new();
        for table in tables {
            let name = table.name.to_ascii_lowercase();
            index.entry(name).or_default().push(table);
        }
        Self(index)
    }

    /// The table, if it is scanned, and the column that `key` of `table` refers to; `None` if the column is unknown.
    pub(super) fn target<'k>(
        &self,
        table: &TableInfo,
        key: &'k ForeignKey,
    ) -> Option<(Option<&'a TableInfo>, &'k str)>
    where
        'a: 'k,
    {
        let is_same = |wanted: &Option<String>, own: &Option<String>, found: &Option<String>| {
            wanted.as_ref().or(own.as_ref()) == found.as_ref()
        };
        // SQLite compares names without case.
        let ignores_case = table.schema.is_none() && table.catalog.is_none();
        let is_named = |other: &&&TableInfo| {
            (ignores_case || other.name == key.to_table)
                && is_same(&key.to_schema, &table.schema, &other.schema)
                && is_same(&key.to_catalog, &table.catalog, &other.catalog)
        };
        let named = self.0.get(&key.to_table.to_ascii_lowercase());
        let other = named.and_then(|tables| tables.iter().find(is_named).copied());
        if let Some(column) = &key.to_column {
            return Some((other, column));
        }
        let mut keys = other?.columns.iter().filter(|column| column.is_key);
        match (keys.next(), keys.next()) {
            (Some(only), None) => Some((other, &only.name)),
            _ => None,
        }
    }
}

/// Whether two descriptions of a table differ in more than the number of rows.
pub(super) fn is_changed(before: &Value, after: &Value) -> bool {
    let structure = |table: &Value| {
        let mut table = table.clone();
        if let Some(map) = table.as_object_mut() {
            map.shift_remove("estimatedRows");
        }
        table
    };
    structure(before) != structure(after)
}
