//! Rules for a source, alone and among the other sources of its connection.
//!
//! Every finding is one sentence that starts with the name of its source and can be acted on. This module must not
//! change anything.

use std::collections::BTreeSet;

use super::{
    SemanticSources, SourceDoc, SourceKind,
    definition::{self, SourceDefinition},
    overlay::texts,
};
use crate::ingest::{project::nearest_name, schema::excerpt};

/// Result of a validation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceFindings {
    /// Problems that make the source unusable.
    pub(crate) errors: Vec<String>,
    /// Problems that may be intended.
    pub(crate) warnings: Vec<String>,
}

/// Validates the source `name` with the content `doc` among `sources`, which already include it.
pub(crate) fn validate_source(name: &str, doc: &SourceDoc, sources: &SemanticSources) -> SourceFindings {
    let mut findings = SourceFindings::default();
    let definition = match definition::parse_definition(doc) {
        Ok(definition) => definition,
        Err(problems) => {
            findings.errors = problems.into_iter().map(|problem| format!("{}: {problem}", excerpt(name))).collect();
            return findings;
        }
    };
    let mut validator = SourceValidator { name, definition: &definition, sources, findings: &mut findings };
    match SourceKind::from_doc(doc) {
        SourceKind::Overlay => validator.overlay(),
        SourceKind::Table | SourceKind::Sql => validator.standalone(),
    }
    validator.check_names();
    validator.measures();
    validator.joins();
    findings
}

struct SourceValidator<'a> {
    name: &'a str,
    definition: &'a SourceDefinition,
    sources: &'a SemanticSources,
    findings: &'a mut SourceFindings,
}

impl SourceValidator<'_> {
    fn error(&mut self, text: impl std::fmt::Display) {
        self.findings.errors.push(format!("{}: {text}", excerpt(self.name)));
    }

    fn warn(&mut self, text: impl std::fmt::Display) {
        self.findings.warnings.push(format!("{}: {text}", excerpt(self.name)));
    }

    fn overlay(&mut self) {
        let definition = self.definition;
        let Some(table) = self.sources.scanned_tables.get(self.name) else {
            let names: Vec<&str> = self.sources.scanned_tables.keys().map(String::as_str).collect();
            let hint =
                nearest_name(self.name, &names).map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"));
            self.error(format_args!(
                "without table and sql it is an overlay, but no scanned table has that name{hint}; give exactly one of \
                 table and sql, a grain and columns"
            ));
            return;
        };
        let standalone_only = [
            ("source_type", definition.source_type.is_some()),
            ("inherits_columns_from", definition.inherits_columns_from.is_some()),
            ("tags", definition.tags.is_some()),
            ("freshness", definition.freshness.is_some()),
        ];
        for (field, _) in standalone_only.iter().filter(|(_, is_given)| *is_given) {
            self.error(format_args!("`{field}` is not allowed in an overlay; leave it out"));
        }
        let known: BTreeSet<&str> = texts(table, "columns", "name").into_iter().collect();
        for (index, column) in definition.columns.iter().flatten().enumerate() {
            if column.expr.as_deref().is_none_or(|expr| expr.trim().is_empty()) || column.kind.is_none() {
                self.error(format_args!(
                    "columns[{index}] `{}` has no expr or no type, but columns of an overlay are computed; give both, \
                     or describe a scanned column in column_overrides",
                    excerpt(&column.name)
                ));
            }
            if known.contains(column.name.as_str()) {
                self.error(format_args!(
                    "columns[{index}] `{}` exists in the scanned table; choose another name, or use column_overrides",
                    excerpt(&column.name)
                ));
            }
        }
        let overrides = definition.column_overrides.iter().flatten().map(|column| column.name.as_str());
        let excluded = definition.exclude_columns.iter().flatten().map(String::as_str);
        for name in overrides.chain(excluded).filter(|name| !known.contains(name)) {
            let names: Vec<&str> = known.iter().copied().collect();
            let hint = nearest_name(name, &names).map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"));
            self.error(format_args!(
                "the scanned table has no column `{}`{hint}; use a column of the table",
                excerpt(name)
            ));
        }
    }

    fn standalone(&mut self) {
        let definition = self.definition;
        if self.sources.scanned_tables.contains_key(self.name) {
            self.error(
                "a scanned table has that name, and a standalone source would hide its columns and joins; leave out \
                 table, sql, grain and plain columns to make it an overlay, or choose another name",
            );
        }
        let given = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.trim().is_empty());
        if given(&definition.table) && given(&definition.sql) {
            self.error("it has both table and sql; give exactly one of them");
        }
        let overlay_only = [
            ("column_overrides", definition.column_overrides.is_some()),
            ("exclude_columns", definition.exclude_columns.is_some()),
            ("disable_joins", definition.disable_joins.is_some()),
        ];
        for (field, _) in overlay_only.iter().filter(|(_, is_given)| *is_given) {
            self.error(format_args!("`{field}` is allowed only in an overlay; leave it out"));
        }
        let columns: Vec<&str> = definition.columns.iter().flatten().map(|column| column.name.as_str()).collect();
        if columns.is_empty() {
            self.error("it has no columns; list every column with its type");
        }
        let grain = definition.grain.as_deref().unwrap_or_default();
        if grain.is_empty() {
            self.error("it has no grain; list the columns that identify one row");
        }
        for name in grain.iter().filter(|name| !columns.is_empty() && !columns.contains(&name.as_str())) {
            self.error(format_args!(
                "grain contains `{}`, which is not a column; add the column, or correct grain",
                excerpt(name)
            ));
        }
        if definition.inherits_columns_from.is_none() {
            for (index, column) in definition.columns.iter().flatten().enumerate().filter(|(_, c)| c.kind.is_none()) {
                self.error(format_args!(
                    "columns[{index}] `{}` has no type; give string, number, time or boolean",
                    excerpt(&column.name)
                ));
            }
        }
    }

    /// Names are unique, and names of columns are unqualified.
    fn check_names(&mut self) {
        let definition = self.definition;
        let columns: Vec<&str> = definition.columns.iter().flatten().map(|column| column.name.as_str()).collect();
        let measures: Vec<&str> = definition.measures.iter().flatten().map(|measure| measure.name.as_str()).collect();
        let segments: Vec<&str> = definition.segments.iter().flatten().map(|segment| segment.name.as_str()).collect();
        for (what, names) in [("column", &columns), ("measure", &measures), ("segment", &segments)] {
            let mut seen = BTreeSet::new();
            for name in names.iter().filter(|name| !seen.insert(**name)) {
                self.error(format_args!("duplicate {what} name `{}`; rename or remove one of them", excerpt(name)));
            }
        }
        let grain = definition.grain.iter().flatten().map(String::as_str);
        for name in columns.into_iter().chain(grain).filter(|name| name.contains('.')) {
            self.error(format_args!(
                "column name `{}` is qualified; use the unqualified name of the output column",
                excerpt(name)
            ));
        }
    }

    fn measures(&mut self) {
        let definition = self.definition;
        let scanned = self.sources.by_name.get(self.name).map(|source| texts(&source.doc, "segments", "name"));
        let own = definition.segments.iter().flatten().map(|segment| segment.name.as_str());
        let segments: BTreeSet<&str> = own.chain(scanned.into_iter().flatten()).collect();
        for measure in definition.measures.iter().flatten() {
            for name in measure.segments.iter().flatten().filter(|name| !segments.contains(name.as_str())) {
                self.error(format_args!(
                    "measure `{}` uses the segment `{}`, which this source does not define; define the segment, or use filter",
                    excerpt(&measure.name),
                    excerpt(name)
                ));
            }
        }
    }

    fn joins(&mut self) {
        for join in self.definition.joins.iter().flatten() {
            if let Some(text) = missing_target(self.name, &join.to, self.sources) {
                self.findings.errors.push(text);
            } else if !join.on.contains(join.alias.as_deref().unwrap_or(&join.to)) {
                self.warn(format_args!(
                    "`on` of the join to `{0}` does not contain `{0}`; write `local_column = {0}.column`",
                    excerpt(&join.to)
                ));
            }
        }
    }
}

/// The joins of the source `name` with an unknown target: the target, and a sentence about it.
pub(crate) fn dangling_joins(name: &str, doc: &SourceDoc, sources: &SemanticSources) -> Vec<(String, String)> {
    let targets = texts(doc, "joins", "to").into_iter();
    targets.filter_map(|target| Some((target.to_owned(), missing_target(name, target, sources)?))).collect()
}

fn missing_target(name: &str, target: &str, sources: &SemanticSources) -> Option<String> {
    if sources.by_name.contains_key(target) {
        return None;
    }
    let names: Vec<&str> = sources.by_name.keys().map(String::as_str).collect();
    let hint = nearest_name(target, &names).map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
    Some(format!("{}: join target `{}` is not a source of this connection{hint}", excerpt(name), excerpt(target)))
}
