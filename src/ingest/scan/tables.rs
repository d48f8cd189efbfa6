//! The tables of a scan, and how they differ from those of the scan before.

use std::collections::HashMap;

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

    /// The name of a table by the text of `table:`.
    pub(super) fn from_reference(text: &str) -> Self {
        let mut parts = text.rsplitn(3, '.').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        let (name, schema) = (next(), next());
        Self([next(), schema, name])
    }

    /// The catalog; `None` if the database has none.
    pub(super) fn catalog(&self) -> Option<&str> {
        let [catalog, ..] = &self.0;
        Some(catalog.as_str()).filter(|catalog| !catalog.is_empty())
    }

    /// The schema; `None` if the database has none.
    pub(super) fn schema(&self) -> Option<&str> {
        let [_, schema, _] = &self.0;
        Some(schema.as_str()).filter(|schema| !schema.is_empty())
    }

    /// The name, without the parts in front of it.
    pub(super) fn table(&self) -> &str {
        let [.., table] = &self.0;
        table
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
pub(super) struct TableIndex<'a>(HashMap<IndexedName<'a>, Vec<&'a TableInfo>>);

/// Catalog, schema, and name in lower case.
type IndexedName<'a> = (Option<&'a str>, Option<&'a str>, String);

impl<'a> TableIndex<'a> {
    pub(super) fn new(tables: &'a [TableInfo]) -> Self {
        let mut index: HashMap<IndexedName<'_>, Vec<&TableInfo>> = HashMap::new();
        for table in tables {
            let name = table.name.to_ascii_lowercase();
            let place = (table.catalog.as_deref(), table.schema.as_deref(), name);
            index.entry(place).or_default().push(table);
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
        // SQLite compares names without case.
        let ignores_case = table.schema.is_none() && table.catalog.is_none();
        let place = (
            key.to_catalog.as_deref().or(table.catalog.as_deref()),
            key.to_schema.as_deref().or(table.schema.as_deref()),
            key.to_table.to_ascii_lowercase(),
        );
        let mut named = self.0.get(&place).into_iter().flatten();
        let other = named.find(|other| ignores_case || other.name == key.to_table);
        let other = other.copied();
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
