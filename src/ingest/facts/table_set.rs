//! The tables that one origin knows, with an index of their names.

use std::collections::{HashMap, HashSet};

use jiff::{Timestamp, tz::TimeZone};

use super::table_name::TableName;
use crate::database::TableInfo;

/// Most tables of one origin.
pub(super) const MAX_TABLES: usize = 100_000;
/// Most columns of all tables of one origin.
pub(super) const MAX_COLUMNS: usize = 1_000_000;
/// Longest name of a table or column, in bytes.
const MAX_NAME_BYTES: usize = 1_000;
/// Longest comment that is kept, in characters.
const MAX_COMMENT_CHARS: usize = 1_000;

/// Where facts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FactOrigin {
    /// The snapshot of KTX's scan, with the types of the database.
    Scan,
    /// The files of a scan below `_schema`, with KTX's types.
    SchemaFiles,
    /// `catalog.json`, which dbt reads from the database.
    DbtCatalog,
    /// `manifest.json`: what dbt builds, whether it exists or not.
    DbtManifest,
    /// The database itself, asked now.
    Connection,
}

impl FactOrigin {
    /// Its name in structured answers.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Scan | Self::SchemaFiles => "scan",
            Self::DbtCatalog => "dbt-catalog",
            Self::DbtManifest => "dbt-manifest",
            Self::Connection => "connection",
        }
    }

    /// Whether it has the types of the database, and only tables that exist.
    pub(crate) fn is_exact(self) -> bool {
        matches!(self, Self::Scan | Self::DbtCatalog | Self::Connection)
    }

    /// Whether its types are those of the database or of dbt, not KTX's kinds of types.
    pub(crate) fn has_native_types(self) -> bool {
        self != Self::SchemaFiles
    }

    /// Whether it knows keys, and which columns may be null.
    pub(crate) fn has_keys(self) -> bool {
        !matches!(self, Self::DbtCatalog | Self::DbtManifest)
    }
}

/// The part of a database that a scan reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ScanCoverage {
    /// Catalogs; empty if the scan does not list them.
    pub(super) catalogs: Vec<String>,
    /// Schemas; empty means all.
    pub(super) schemas: Vec<String>,
    /// Tables that `enabled_tables` names; empty means all.
    pub(super) tables: Vec<TableName>,
}

impl ScanCoverage {
    /// Schemas in which a database looks for a name without a schema.
    const DEFAULT_SCHEMAS: [&str; 3] = ["public", "dbo", "main"];

    /// Whether the scan would have found this table.
    fn includes(&self, name: &TableName) -> bool {
        let is_in = |list: &[String], part: &str| {
            list.is_empty() || list.iter().any(|one| one.eq_ignore_ascii_case(part))
        };
        let is_enabled =
            self.tables.is_empty() || self.tables.iter().any(|of| of.agrees_with(name));
        let schema = match name.schema() {
            Some(schema) => is_in(&self.schemas, schema),
            None => {
                self.schemas.is_empty()
                    || Self::DEFAULT_SCHEMAS
                        .iter()
                        .any(|schema| is_in(&self.schemas, schema))
            }
        };
        is_enabled
            && schema
            && name
                .catalog()
                .is_none_or(|catalog| is_in(&self.catalogs, catalog))
    }
}

/// The tables that one origin knows.
#[derive(Debug)]
pub(crate) struct TableSet {
    pub(crate) origin: FactOrigin,
    /// When they were read from the database; `None` if that is unknown.
    pub(crate) read_at: Option<Timestamp>,
    pub(crate) tables: Vec<TableInfo>,
    /// Name of the database that tables without a catalog are in, if it is known.
    database: Option<String>,
    /// What a complete scan reads; `None` if this is not one.
    coverage: Option<ScanCoverage>,
    /// Positions in `tables` by the lower-case name.
    by_name: HashMap<String, Vec<usize>>,
}

/// What a name means among the tables of one origin.
#[derive(Debug)]
pub(crate) enum TableMatch<'a> {
    One(&'a TableInfo),
    /// Several tables, in different schemas or of different case.
    Several(Vec<&'a TableInfo>),
    None,
}

impl TableSet {
    pub(super) fn new(
        origin: FactOrigin,
        read_at: Option<Timestamp>,
        tables: Vec<TableInfo>,
        coverage: Option<ScanCoverage>,
    ) -> Self {
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::with_capacity(tables.len());
        let mut kept: Vec<TableInfo> = Vec::with_capacity(tables.len());
        for table in tables {
            let same_name = by_name.entry(table.name.to_lowercase()).or_default();
            let is_known = same_name
                .iter()
                .filter_map(|index| kept.get(*index))
                .any(|known| is_same_table(known, &table));
            if !is_known {
                same_name.push(kept.len());
                kept.push(table);
            }
        }
        Self {
            origin,
            read_at,
            tables: kept,
            database: None,
            coverage,
            by_name,
        }
    }

    /// The same with the name of the database that tables without a catalog are in.
    pub(super) fn in_database(mut self, database: Option<String>) -> Self {
        self.database = database;
        self
    }

    /// The same without the tables that `keeps` refuses.
    pub(super) fn filtered(self, keeps: impl Fn(&TableInfo) -> bool) -> Self {
        let tables = self.tables.into_iter().filter(keeps).collect();
        Self::new(self.origin, self.read_at, tables, self.coverage).in_database(self.database)
    }

    /// Names of the databases that its tables are in, in lower case; empty if no table names one.
    pub(super) fn databases(&self) -> HashSet<String> {
        let named = self
            .tables
            .iter()
            .filter_map(|table| table.catalog.as_deref());
        named.map(str::to_lowercase).collect()
    }

    /// The table that `name` means. Case decides only between names that differ in nothing else.
    pub(crate) fn find(&self, name: &TableName) -> TableMatch<'_> {
        let mut found = self.find_all(name);
        if found.is_empty() {
            found = name
                .split_whole()
                .map_or_else(Vec::new, |parts| self.find_all(&parts));
        }
        if found.len() > 1 {
            let exact: Vec<&TableInfo> = found
                .iter()
                .copied()
                .filter(|table| name.is_spelling_of(table))
                .collect();
            if !exact.is_empty() {
                found = exact;
            }
        }
        match found[..] {
            [] => TableMatch::None,
            [table] => TableMatch::One(table),
            _ => TableMatch::Several(found),
        }
    }

    fn find_all(&self, name: &TableName) -> Vec<&TableInfo> {
        let positions = self.by_name.get(&name.table().to_lowercase());
        positions
            .into_iter()
            .flatten()
            .filter_map(|index| self.tables.get(*index))
            .filter(|table| name.is_place_of(table, self.database.as_deref()))
            .collect()
    }

    /// Whether this is a complete scan, so that what it lacks did not exist.
    pub(super) fn is_complete(&self) -> bool {
        self.coverage.is_some()
    }

    /// Whether the scan read the part of the database that the table would be in.
    pub(super) fn covers(&self, name: &TableName) -> bool {
        let is_known = |catalog: &str| {
            let of_tables = self
                .tables
                .iter()
                .filter_map(|table| table.catalog.as_deref());
            let mut known = of_tables.chain(self.database.as_deref());
            known.any(|known| known.eq_ignore_ascii_case(catalog))
        };
        self.coverage.as_ref().is_some_and(|coverage| {
            // A scan without a list of catalogs need not have read all of them.
            let is_catalog =
                || !coverage.catalogs.is_empty() || name.catalog().is_none_or(is_known);
            coverage.includes(name) && is_catalog()
        })
    }

    /// Whether this is a complete scan that would have the table, and does not.
    pub(super) fn proves_missing(&self, name: &TableName) -> bool {
        self.covers(name) && matches!(self.find(name), TableMatch::None)
    }

    /// The origin and its age, to continue a sentence after `from`.
    pub(crate) fn describe(&self, now: Timestamp) -> String {
        let what = match self.origin {
            FactOrigin::Scan | FactOrigin::SchemaFiles => "the scan",
            FactOrigin::DbtCatalog => "dbt's catalog.json",
            FactOrigin::DbtManifest => "dbt's manifest.json",
            FactOrigin::Connection => return "the database".into(),
        };
        match self.read_at {
            Some(at) => format!("{what} of {}", age_in_words(at, now)),
            None => format!("{what} of unknown age"),
        }
    }
}

fn is_same_table(one: &TableInfo, other: &TableInfo) -> bool {
    (&one.name, &one.schema, &one.catalog) == (&other.name, &other.schema, &other.catalog)
}

/// `3 days ago (2026-11-26)`.
fn age_in_words(at: Timestamp, now: Timestamp) -> String {
    const HOUR: i64 = 60 * 60;
    let date = at.to_zoned(TimeZone::UTC).date();
    let seconds = now.duration_since(at).as_secs();
    let plural = |count: i64, unit: &str| {
        let s = if count == 1 { "" } else { "s" };
        format!("{count} {unit}{s} ago ({date})")
    };
    match seconds {
        ..0 => format!("{date} (in the future)"),
        0..HOUR => format!("less than an hour ago ({date})"),
        HOUR..172_800 => plural(seconds / HOUR, "hour"),
        _ => plural(seconds / (24 * HOUR), "day"),
    }
}

/// Collects tables within the limits.
#[derive(Debug, Default)]
pub(super) struct TableCollector {
    pub(super) tables: Vec<TableInfo>,
    columns: usize,
    /// Number of tables and columns that were left out because their names are too long.
    pub(super) left_out: usize,
}

impl TableCollector {
    /// Adds a table. The error is the limit that it would exceed, as the end of a sentence about the files.
    pub(super) fn add(&mut self, mut table: TableInfo) -> Result<(), String> {
        let is_usable = |name: &str| !name.is_empty() && name.len() <= MAX_NAME_BYTES;
        let names = [
            Some(&table.name),
            table.schema.as_ref(),
            table.catalog.as_ref(),
        ];
        if !names.into_iter().flatten().all(|name| is_usable(name)) {
            self.left_out += 1;
            return Ok(());
        }
        let before = table.columns.len();
        table.columns.retain(|column| is_usable(&column.name));
        self.left_out += before - table.columns.len();
        shorten(&mut table.comment);
        for column in &mut table.columns {
            shorten(&mut column.comment);
        }
        self.columns += table.columns.len();
        if self.tables.len() == MAX_TABLES || self.columns > MAX_COLUMNS {
            return Err(format!(
                "more than {MAX_TABLES} tables or {MAX_COLUMNS} columns"
            ));
        }
        self.tables.push(table);
        Ok(())
    }
}

/// Cuts a long comment; an empty one is none.
fn shorten(comment: &mut Option<String>) {
    if let Some(text) = comment {
        if let Some((cut, _)) = text.char_indices().nth(MAX_COMMENT_CHARS) {
            text.truncate(cut);
            text.shrink_to_fit();
        }
        if text.trim().is_empty() {
            *comment = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(schema: Option<&str>, name: &str) -> TableInfo {
        TableInfo {
            schema: schema.map(str::to_owned),
            name: name.into(),
            ..TableInfo::default()
        }
    }

    fn found(set: &TableSet, name: &str) -> String {
        let full = |table: &TableInfo| super::super::full_name(table).to_string();
        match set.find(&TableName::parse(name)) {
            TableMatch::One(table) => full(table),
            TableMatch::Several(tables) => {
                tables.into_iter().map(full).collect::<Vec<_>>().join(" | ")
            }
            TableMatch::None => "-".into(),
        }
    }

    #[test]
    fn names_are_found_by_their_trailing_parts() {
        let mut tables = vec![
            table(Some("public"), "orders"),
            table(Some("staging"), "ORDERS"),
            table(Some("staging"), "raw.events"),
            table(None, "local"),
            table(Some("public"), "orders"),
        ];
        if let Some(first) = tables.first_mut() {
            first.catalog = Some("shop".into());
        }
        let set = TableSet::new(FactOrigin::Scan, None, tables, None);
        assert_eq!(set.tables.len(), 5, "the catalogs differ");
        for (name, expected) in [
            ("PUBLIC.ORDERS", "shop.public.orders | public.orders"),
            ("shop.public.orders", "shop.public.orders | public.orders"),
            ("Staging.Orders", "staging.ORDERS"),
            ("ORDERS", "staging.ORDERS"),
            (
                "Orders",
                "shop.public.orders | staging.ORDERS | public.orders",
            ),
            ("other.orders", "-"),
            ("\"staging\".\"raw.events\"", "staging.\"raw.events\""),
            ("`staging.orders`", "staging.ORDERS"),
            ("main.local", "local"),
            ("x.local", "-"),
            ("a.b.c.local", "-"),
        ] {
            assert_eq!(found(&set, name), expected, "{name}");
        }
    }

    #[test]
    fn coverage_of_a_scan_is_its_schemas_and_tables() {
        let coverage = |schemas: &[&str], tables: &[&str]| ScanCoverage {
            schemas: schemas.iter().map(|schema| (*schema).to_owned()).collect(),
            tables: tables.iter().map(|table| TableName::parse(table)).collect(),
            ..ScanCoverage::default()
        };
        let includes = |of: &ScanCoverage, name: &str| of.includes(&TableName::parse(name));
        let all = coverage(&[], &[]);
        assert!(includes(&all, "any.thing") && includes(&all, "thing"));
        let two = coverage(&["a", "b"], &[]);
        assert!(includes(&two, "A.x") && !includes(&two, "c.x") && !includes(&two, "x"));
        assert!(includes(&coverage(&["a", "public"], &[]), "x"));
        let some = coverage(&["a"], &["a.x"]);
        assert!(includes(&some, "a.x") && !includes(&some, "a.y"));
        assert!(!includes(&some, "x"), "it may be in the schema `public`");
    }

    #[test]
    fn ages_are_in_hours_and_days() {
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        for (at, words) in [
            ("2026-11-26T10:00:00Z", "3 days ago (2026-11-26)"),
            ("2026-11-28T11:00:00Z", "25 hours ago (2026-11-28)"),
            ("2026-11-29T11:00:00Z", "1 hour ago (2026-11-29)"),
            ("2026-11-29T11:59:00Z", "less than an hour ago (2026-11-29)"),
            ("2027-01-01T00:00:00Z", "2027-01-01 (in the future)"),
        ] {
            assert_eq!(age_in_words(at.parse().unwrap(), now), words);
        }
    }
}
