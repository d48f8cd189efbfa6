//! The tables and columns that the structured answers of successful calls have. Nothing else proves that something exists:
//! neither the texts of answers, nor arguments, nor anything that an agent wrote.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::name_parts;
use crate::facts::FactOrigin;

/// Most tables, columns and missing names that are kept.
const MAX_FACTS: usize = 200_000;

/// Parts of a name in lower case.
type NameParts = Vec<String>;

/// What answers prove, by connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CatalogFacts {
    by_connection: BTreeMap<String, ConnectionProofs>,
    count: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ConnectionProofs {
    /// By the parts of the name that the answer has.
    tables: BTreeMap<NameParts, ProvenTable>,
    /// Tables and columns that do not exist, as they were asked for.
    missing: BTreeSet<NameParts>,
}

/// A table that exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProvenTable {
    /// Native types of the columns that exist by their names in lower case; `None` if the type is not known.
    columns: BTreeMap<String, Option<String>>,
    /// Whether these are all columns.
    has_all_columns: bool,
}

/// What the answers prove about a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TableProof {
    Exists(ProvenTable),
    /// No answer has it, or the name may mean several tables.
    Unknown,
    /// The connection does not have it.
    Missing,
}

/// What the answers prove about a column of a table that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnProof<'a> {
    /// It exists, with this native type if it is known.
    Exists(Option<&'a str>),
    Unknown,
    Missing,
}

/// The answer of `entity_details`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DetailsAnswer {
    resolved: Vec<ResolvedTable>,
    missing: Vec<MissingTarget>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResolvedTable {
    connection_id: String,
    catalog: Option<String>,
    db: Option<String>,
    name: String,
    columns: Vec<ResolvedColumn>,
    origin: String,
    /// Whether a column that the table lacks does not exist. Older versions did not record it.
    proven: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResolvedColumn {
    name: String,
    native_type: Option<String>,
}

#[derive(Deserialize)]
struct MissingTarget {
    target: String,
    /// Whether what lacks it is complete.
    #[serde(default)]
    proven: bool,
}

/// The answer of `sql_execution`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct QueryAnswer {
    connection_id: String,
    /// Tables that the statement read.
    tables: Vec<String>,
    /// Columns of these tables that the result has.
    #[serde(default)]
    columns: Vec<QueriedColumn>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct QueriedColumn {
    table: String,
    column: String,
}

/// The answer of `discover_data`.
#[derive(Deserialize)]
struct DiscoverAnswer {
    tables: Option<DiscoveredTables>,
}

#[derive(Deserialize)]
struct DiscoveredTables {
    hits: Vec<DiscoveredName>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DiscoveredName {
    connection_id: String,
    kind: String,
    display: String,
    /// Older versions searched databases only.
    origin: Option<String>,
}

/// True for an origin that has only what exists. What dbt declares in its manifest may not exist.
fn has_existing(origin: &str) -> bool {
    let existing = [
        FactOrigin::Scan,
        FactOrigin::DbtCatalog,
        FactOrigin::Connection,
    ];
    existing.iter().any(|existing| existing.name() == origin)
}

impl CatalogFacts {
    /// True if there were more facts than are kept, so that nothing can be concluded from a missing one.
    pub(crate) fn is_full(&self) -> bool {
        self.count > MAX_FACTS
    }

    /// True if an answer is about `connection`.
    pub(super) fn has_connection(&self, connection: &str) -> bool {
        self.by_connection.contains_key(connection)
    }

    /// Adds what the structured answer of a successful call proves. Returns the names that exist.
    pub(crate) fn add_answer(
        &mut self,
        tool: &str,
        arguments: &Value,
        structured: &Value,
    ) -> Vec<String> {
        match tool {
            "entity_details" => match DetailsAnswer::deserialize(structured) {
                Ok(answer) => self.add_details(arguments, answer),
                Err(_) => Vec::new(),
            },
            "sql_execution" => match QueryAnswer::deserialize(structured) {
                Ok(answer) if answer.error.is_none() => self.add_query(answer),
                Ok(_) | Err(_) => Vec::new(),
            },
            "discover_data" => match DiscoverAnswer::deserialize(structured) {
                Ok(DiscoverAnswer {
                    tables: Some(found),
                }) => self.add_discovered(found.hits),
                Ok(_) | Err(_) => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    fn add_details(&mut self, arguments: &Value, answer: DetailsAnswer) -> Vec<String> {
        let mut names = Vec::new();
        let proven = answer.resolved.into_iter();
        for table in proven.filter(|table| has_existing(&table.origin)) {
            let parts = [table.catalog, table.db, Some(table.name)];
            let parts: Vec<String> = parts
                .into_iter()
                .flatten()
                .filter(|it| !it.is_empty())
                .collect();
            names.extend(parts.iter().cloned());
            let is_answer = || table.origin == FactOrigin::Connection.name();
            // The lookup of one column lists only that column.
            let has_all_columns = table.columns.len() > 1 && table.proven.unwrap_or_else(is_answer);
            let columns = table.columns.into_iter().map(|column| {
                names.push(column.name.clone());
                (column.name.to_lowercase(), column.native_type)
            });
            let columns: BTreeMap<String, Option<String>> = columns.collect();
            let parts = parts.iter().map(|part| part.to_lowercase()).collect();
            self.add_table(table.connection_id, parts, columns, has_all_columns);
        }
        let connection = arguments["connectionId"].as_str().unwrap_or_default();
        for MissingTarget { target, .. } in answer.missing.into_iter().filter(|it| it.proven) {
            let Some(parts) = name_parts(&target).filter(|_| !self.is_full()) else {
                continue;
            };
            self.count += 1;
            let facts = self.by_connection.entry(connection.to_owned());
            facts.or_default().missing.insert(parts);
        }
        names
    }

    fn add_query(&mut self, answer: QueryAnswer) -> Vec<String> {
        let mut names = Vec::new();
        for table in &answer.tables {
            let Some(parts) = name_parts(table) else {
                continue;
            };
            names.push(table.clone());
            let of_table = answer
                .columns
                .iter()
                .filter(|column| column.table == *table);
            let columns = of_table.map(|QueriedColumn { column, .. }| {
                names.push(column.clone());
                (column.to_lowercase(), None)
            });
            let columns = columns.collect();
            self.add_table(answer.connection_id.clone(), parts, columns, false);
        }
        names
    }

    fn add_discovered(&mut self, hits: Vec<DiscoveredName>) -> Vec<String> {
        let mut names = Vec::new();
        for hit in hits
            .into_iter()
            .filter(|hit| hit.origin.as_deref().is_none_or(has_existing))
        {
            let Some(mut parts) = name_parts(&hit.display) else {
                continue;
            };
            let column = match hit.kind.as_str() {
                "column" => parts.pop(),
                _ => None,
            };
            if !parts.is_empty() {
                names.push(hit.display);
                let columns = column.map(|column| (column, None)).into_iter().collect();
                self.add_table(hit.connection_id, parts, columns, false);
            }
        }
        names
    }

    fn add_table(
        &mut self,
        connection: String,
        parts: NameParts,
        columns: BTreeMap<String, Option<String>>,
        has_all_columns: bool,
    ) {
        self.count += 1 + columns.len();
        if self.is_full() {
            return;
        }
        let facts = self.by_connection.entry(connection).or_default();
        facts.tables.entry(parts).or_default().merge(&ProvenTable {
            columns,
            has_all_columns,
        });
    }

    /// What is proven about the table `parts` of `connection`, or of any connection. Leading parts may be left out if only
    /// one table is meant then.
    pub(super) fn table(&self, connection: Option<&str>, parts: &[String]) -> TableProof {
        let of_connection = |id: &&String| connection.is_none_or(|connection| connection == *id);
        let searched: Vec<&ConnectionProofs> = self
            .by_connection
            .iter()
            .filter(|(id, _)| of_connection(id))
            .map(|(_, facts)| facts)
            .collect();
        let found: Vec<ProvenTable> = searched
            .iter()
            .filter_map(|facts| facts.find(parts))
            .collect();
        match found.as_slice() {
            [table] => TableProof::Exists(table.clone()),
            [] if searched.iter().any(|facts| facts.is_ambiguous(parts)) => TableProof::Unknown,
            [] if connection.is_some() && searched.iter().any(|it| it.missing.contains(parts)) => {
                TableProof::Missing
            }
            _ => TableProof::Unknown,
        }
    }

    /// What is proven about the column `name` of a `table` that exists, whose name has `parts`.
    pub(super) fn column<'a>(
        &self,
        connection: &str,
        (parts, table): (&[String], &'a ProvenTable),
        name: &str,
    ) -> ColumnProof<'a> {
        let name = name.to_lowercase();
        if let Some(kind) = table.columns.get(&name) {
            return ColumnProof::Exists(kind.as_deref());
        }
        let mut full = parts.to_vec();
        full.push(name);
        let facts = self.by_connection.get(connection);
        let is_missing = facts.is_some_and(|facts| facts.missing.contains(&full));
        match table.has_all_columns || is_missing {
            true => ColumnProof::Missing,
            false => ColumnProof::Unknown,
        }
    }

    /// True if `parts` names a table, a column of one, or a column that only one table has.
    pub(super) fn has_name(&self, connection: Option<&str>, parts: &[String]) -> bool {
        if let TableProof::Exists(_) = self.table(connection, parts) {
            return true;
        }
        let Some((column, table)) = parts.split_last() else {
            return false;
        };
        if !table.is_empty() {
            let table = self.table(connection, table);
            return matches!(table, TableProof::Exists(it) if it.columns.contains_key(column));
        }
        let facts = self.by_connection.iter();
        let searched =
            facts.filter(|(id, _)| connection.is_none_or(|connection| connection == *id));
        let owners = searched
            .map(|(_, facts)| facts.tables_with_column(column))
            .sum::<usize>();
        owners == 1
    }
}

impl ConnectionProofs {
    /// The names of tables that end with `parts`, without those that are a shorter spelling of another one.
    fn candidates(&self, parts: &[String]) -> Vec<&NameParts> {
        let named: Vec<&NameParts> = self
            .tables
            .keys()
            .filter(|path| path.ends_with(parts))
            .collect();
        let is_shorter = |path: &NameParts| {
            named
                .iter()
                .any(|it| it.len() > path.len() && it.ends_with(path))
        };
        named
            .iter()
            .copied()
            .filter(|path| !is_shorter(path))
            .collect()
    }

    fn is_ambiguous(&self, parts: &[String]) -> bool {
        self.candidates(parts).len() > 1
    }

    /// The table that `parts` name, with what is proven under its shorter names. `None` if several are meant and no
    /// answer has exactly this name.
    fn find(&self, parts: &[String]) -> Option<ProvenTable> {
        let candidates = self.candidates(parts);
        let [only] = candidates.as_slice() else {
            return self.tables.get(parts).cloned();
        };
        let mut found = ProvenTable::default();
        let spellings = self.tables.iter();
        spellings
            .filter(|(path, _)| path.ends_with(parts) && only.ends_with(path))
            .for_each(|(_, table)| found.merge(table));
        Some(found)
    }

    /// Number of tables with a column, without those that are a shorter spelling of another one.
    fn tables_with_column(&self, column: &str) -> usize {
        let with_column: Vec<&NameParts> = self
            .tables
            .iter()
            .filter(|(_, table)| table.columns.contains_key(column))
            .map(|(path, _)| path)
            .collect();
        let is_shorter = |path: &NameParts| {
            with_column
                .iter()
                .any(|it| it.len() > path.len() && it.ends_with(path))
        };
        with_column.iter().filter(|path| !is_shorter(path)).count()
    }
}

impl ProvenTable {
    fn merge(&mut self, other: &Self) {
        for (name, kind) in &other.columns {
            let known = self.columns.entry(name.clone()).or_default();
            if known.is_none() {
                known.clone_from(kind);
            }
        }
        self.has_all_columns |= other.has_all_columns;
    }
}

#[cfg(test)]
mod tests;
