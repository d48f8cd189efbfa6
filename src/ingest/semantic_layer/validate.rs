//! Rules for a source, alone and among the other sources of its connection.
//!
//! Every finding is one sentence that starts with the name of its source and can be acted on. This module must not
//! change anything.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    SemanticSources, SourceDoc, SourceKind,
    definition::{self, SourceDefinition},
    overlay::{normalize_whitespace, texts},
    physical, table_check,
};
use crate::{
    spelling::{did_you_mean, did_you_mean_in_brackets},
    untrusted_text::excerpt,
};

/// Result of a validation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceFindings {
    /// Problems that make the source unusable.
    pub(crate) errors: Vec<String>,
    /// The errors with which KTX cannot load the source. Until they are corrected, KTX also refuses to edit the other
    /// sources of the connection.
    pub(crate) load_errors: Vec<String>,
    /// Problems that may be intended.
    pub(crate) warnings: Vec<String>,
}

impl SourceFindings {
    /// Turns the errors that `before` has too into warnings, except those with which KTX cannot load the source.
    pub(crate) fn excuse_known(&mut self, before: &Self) {
        let mut known: BTreeMap<String, usize> = BTreeMap::new();
        for error in &before.errors {
            *known.entry(without_indices(error)).or_default() += 1;
        }
        let (excused, errors) = std::mem::take(&mut self.errors)
            .into_iter()
            .partition(|error| {
                let is_fatal = self.load_errors.contains(error);
                let times = known
                    .get_mut(&without_indices(error))
                    .filter(|times| **times > 0 && !is_fatal);
                times.map(|times| *times -= 1).is_some()
            });
        self.errors = errors;
        let excused: Vec<String> = excused;
        self.warnings.extend(
            excused
                .into_iter()
                .map(|error| format!("{error} (unchanged by this edit)")),
        );
    }
}

/// `text` without the numbers in brackets, which change when a list gets another item.
fn without_indices(text: &str) -> String {
    let mut parts = text.split('[');
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept.push('[');
        kept.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    kept
}

/// Validates the source `name` with the content `doc` among `sources`, which already include it.
pub(crate) fn validate_source(
    name: &str,
    doc: &SourceDoc,
    sources: &SemanticSources,
) -> SourceFindings {
    let mut findings = SourceFindings::default();
    let (definition, problems) = definition::parse_definition(doc);
    for problem in problems {
        let text = format!("{}: {}", excerpt(name), problem.text);
        if problem.is_fatal {
            findings.load_errors.push(text.clone());
        }
        findings.errors.push(text);
    }
    let Some(definition) = definition else {
        return findings;
    };
    let mut validator = SourceValidator {
        name,
        definition: &definition,
        sources,
        findings: &mut findings,
    };
    match SourceKind::from_doc(doc) {
        SourceKind::Overlay => validator.overlay(),
        SourceKind::Table | SourceKind::Sql => validator.standalone(),
    }
    validator.check_names();
    validator.measures();
    validator.joins();
    findings
        .errors
        .extend(physical::missing_columns(name, sources));
    table_check::check(name, doc, sources, &mut findings);
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
        self.findings
            .errors
            .push(format!("{}: {text}", excerpt(self.name)));
    }

    /// Reports an error with which KTX cannot load the source.
    fn load_error(&mut self, text: impl std::fmt::Display) {
        let text = format!("{}: {text}", excerpt(self.name));
        self.findings.load_errors.push(text.clone());
        self.findings.errors.push(text);
    }

    fn warn(&mut self, text: impl std::fmt::Display) {
        self.findings
            .warnings
            .push(format!("{}: {text}", excerpt(self.name)));
    }

    fn overlay(&mut self) {
        let definition = self.definition;
        let Some(table) = self.sources.scanned_tables.named(self.name) else {
            let tables = self.sources.scanned_tables.sources();
            let names: Vec<&str> = tables.map(|table| table.name.as_str()).collect();
            let hint = did_you_mean_in_brackets(self.name, &names);
            self.error(format_args!(
                "without table and sql it is an overlay, but no scanned table has that name{hint}; give exactly one of \
                 table and sql, a grain and columns"
            ));
            return;
        };
        let standalone_only = [
            ("table", definition.table.is_some()),
            ("sql", definition.sql.is_some()),
            ("source_type", definition.source_type.is_some()),
            (
                "inherits_columns_from",
                definition.inherits_columns_from.is_some(),
            ),
            ("tags", definition.tags.is_some()),
            ("freshness", definition.freshness.is_some()),
        ];
        for (field, _) in standalone_only.iter().filter(|(_, is_there)| *is_there) {
            self.load_error(format_args!(
                "`{field}` is not allowed in an overlay; leave it out"
            ));
        }
        if definition.grain.as_ref().is_some_and(Vec::is_empty) {
            self.load_error("its grain is empty; leave it out to use that of the scanned table, or list the columns");
        }
        self.overlay_columns(table);
        self.disabled_joins(table);
    }

    /// Columns that an overlay adds, changes or leaves out. KTX ignores the case of names, except in `exclude_columns`.
    fn overlay_columns(&mut self, table: &SourceDoc) {
        let definition = self.definition;
        let names = texts(table, "columns", "name");
        let known: BTreeSet<String> = names.iter().map(|name| name.to_lowercase()).collect();
        for (index, column) in definition.columns.iter().flatten().enumerate() {
            let label = format!("columns[{index}] `{}`", excerpt(&column.name));
            let computed = format_args!(
                "{label} has no expr or no type, but columns of an overlay are computed; give both, or \
                 describe a scanned column in column_overrides"
            );
            match column.expr.as_deref() {
                None | Some("") => self.load_error(computed),
                Some(_) if column.kind.is_none() => self.load_error(computed),
                Some(expr) if expr.trim().is_empty() => self.error(computed),
                Some(_) => {}
            }
            let standalone_only = [
                ("natural_granularity", column.natural_granularity.is_some()),
                ("constraints", column.constraints.is_some()),
                ("enum_values", column.enum_values.is_some()),
                ("tests", column.tests.is_some()),
            ];
            for (field, _) in standalone_only.iter().filter(|(_, is_there)| *is_there) {
                self.load_error(format_args!(
                    "{label}: `{field}` is not allowed in a computed column of an overlay; leave it out"
                ));
            }
            if known.contains(&column.name.to_lowercase()) {
                self.load_error(format_args!(
                    "{label} exists in the scanned table; choose another name, or use column_overrides"
                ));
            }
        }
        let hint = |name: &str| did_you_mean_in_brackets(name, &names);
        let excluded: BTreeSet<&str> = definition
            .exclude_columns
            .iter()
            .flatten()
            .map(String::as_str)
            .collect();
        let overrides = definition
            .column_overrides
            .iter()
            .flatten()
            .map(|column| column.name.as_str());
        for name in overrides {
            if !known.contains(&name.to_lowercase()) {
                self.load_error(format_args!(
                    "the scanned table has no column `{}`{}; use a column of the table",
                    excerpt(name),
                    hint(name)
                ));
            }
            if excluded.contains(name) {
                self.load_error(format_args!(
                    "`{}` is in exclude_columns and in column_overrides; remove it from one of them",
                    excerpt(name)
                ));
            }
        }
        for name in excluded.iter().filter(|name| !names.contains(name)) {
            self.error(format_args!(
                "the scanned table has no column `{}`{}; use a column of the table",
                excerpt(name),
                hint(name)
            ));
        }
        if definition.columns.iter().flatten().next().is_none()
            && names.iter().all(|name| excluded.contains(name))
        {
            self.load_error("exclude_columns leaves no column; keep at least one");
        }
    }

    /// KTX finds a scanned join by its `on` clause.
    fn disabled_joins(&mut self, table: &SourceDoc) {
        let clauses: Vec<String> = texts(table, "joins", "on")
            .into_iter()
            .map(normalize_whitespace)
            .collect();
        for entry in self.definition.disable_joins.iter().flatten() {
            if !clauses.contains(&normalize_whitespace(entry)) {
                let named: Vec<String> = clauses
                    .iter()
                    .map(|clause| format!("`{}`", excerpt(clause)))
                    .collect();
                let valid = match named.is_empty() {
                    true => "the table has no scanned joins, so leave disable_joins out".to_owned(),
                    false => format!("write the `on` clause of one: {}", named.join(", ")),
                };
                self.error(format_args!(
                    "disable_joins names no scanned join with `{}`; {valid}",
                    excerpt(entry)
                ));
            }
        }
    }

    fn standalone(&mut self) {
        let definition = self.definition;
        if self.sources.scanned_tables.named(self.name).is_some() {
            self.error(
                "a scanned table has that name, and a standalone source would hide its columns and joins; leave out \
                 table, sql, grain and plain columns to make it an overlay, or choose another name",
            );
        }
        let given =
            |text: &Option<String>| text.as_deref().is_some_and(|text| !text.trim().is_empty());
        if given(&definition.table) && given(&definition.sql) {
            self.load_error("it has both table and sql; give exactly one of them");
        }
        for (field, text) in [("table", &definition.table), ("sql", &definition.sql)] {
            if text
                .as_deref()
                .is_some_and(|text| !text.is_empty() && text.trim().is_empty())
            {
                self.load_error(format_args!("its `{field}` is blank; leave it out"));
            }
        }
        let overlay_only = [
            ("column_overrides", definition.column_overrides.is_some()),
            ("exclude_columns", definition.exclude_columns.is_some()),
            ("disable_joins", definition.disable_joins.is_some()),
        ];
        for (field, _) in overlay_only.iter().filter(|(_, is_there)| *is_there) {
            self.load_error(format_args!(
                "`{field}` is allowed only in an overlay; leave it out"
            ));
        }
        let columns: Vec<&str> = definition
            .columns
            .iter()
            .flatten()
            .map(|column| column.name.as_str())
            .collect();
        if columns.is_empty() {
            self.load_error("it has no columns; list every column with its type");
        }
        let grain = definition.grain.as_deref().unwrap_or_default();
        if grain.is_empty() {
            self.load_error("it has no grain; list the columns that identify one row");
        }
        for name in grain
            .iter()
            .filter(|name| !columns.is_empty() && !columns.contains(&name.as_str()))
        {
            self.error(format_args!(
                "grain contains `{}`, which is not a column; add the column, or correct grain",
                excerpt(name)
            ));
        }
        self.inherited_types();
    }

    /// Every column has a type, its own or that of the scanned column of the same name.
    fn inherited_types(&mut self) {
        let definition = self.definition;
        let from = definition.inherits_columns_from.as_deref();
        let table = from.and_then(|from| self.sources.scanned_table(from));
        let scanned: Vec<&str> = table
            .map(|(_, table)| texts(table, "columns", "name"))
            .unwrap_or_default();
        for (index, column) in definition
            .columns
            .iter()
            .flatten()
            .enumerate()
            .filter(|(_, c)| c.kind.is_none())
        {
            let why = match (from, table) {
                (None, _) => String::new(),
                (Some(from), None) => {
                    format!(
                        ", as inherits_columns_from names `{}`, which is not a scanned table",
                        excerpt(from)
                    )
                }
                (Some(_), Some(_)) if scanned.contains(&column.name.as_str()) => continue,
                (Some(_), Some((name, _))) => {
                    let hint = did_you_mean_in_brackets(&column.name, &scanned);
                    format!(
                        ", as the scanned table `{}` has no such column{hint}",
                        excerpt(name)
                    )
                }
            };
            self.load_error(format_args!(
                "columns[{index}] `{}` needs a type: string, number, time or boolean{why}",
                excerpt(&column.name)
            ));
        }
    }

    /// Names are unique, and names of columns are unqualified.
    fn check_names(&mut self) {
        let definition = self.definition;
        let columns: Vec<&str> = definition
            .columns
            .iter()
            .flatten()
            .map(|column| column.name.as_str())
            .collect();
        let measures: Vec<&str> = definition
            .measures
            .iter()
            .flatten()
            .map(|measure| measure.name.as_str())
            .collect();
        let segments: Vec<&str> = definition
            .segments
            .iter()
            .flatten()
            .map(|segment| segment.name.as_str())
            .collect();
        for (what, names) in [
            ("column", &columns),
            ("measure", &measures),
            ("segment", &segments),
        ] {
            let mut seen = BTreeSet::new();
            for name in names.iter().filter(|name| !seen.insert(**name)) {
                self.error(format_args!(
                    "duplicate {what} name `{}`; rename or remove one of them",
                    excerpt(name)
                ));
            }
        }
        let grain = definition.grain.iter().flatten().map(String::as_str);
        let overrides = definition
            .column_overrides
            .iter()
            .flatten()
            .map(|column| column.name.as_str());
        for name in columns
            .into_iter()
            .chain(grain)
            .chain(overrides)
            .filter(|name| name.contains('.'))
        {
            self.load_error(format_args!(
                "`{}` must be unqualified: use the name of the output column",
                excerpt(name)
            ));
        }
    }

    fn measures(&mut self) {
        let definition = self.definition;
        let scanned = self
            .sources
            .by_name
            .get(self.name)
            .map(|source| texts(&source.doc, "segments", "name"));
        let own = definition
            .segments
            .iter()
            .flatten()
            .map(|segment| segment.name.as_str());
        let segments: BTreeSet<&str> = own.chain(scanned.into_iter().flatten()).collect();
        for measure in definition.measures.iter().flatten() {
            for name in measure
                .segments
                .iter()
                .flatten()
                .filter(|name| !segments.contains(name.as_str()))
            {
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
pub(crate) fn dangling_joins(
    name: &str,
    doc: &SourceDoc,
    sources: &SemanticSources,
) -> Vec<(String, String)> {
    let targets = texts(doc, "joins", "to").into_iter();
    targets
        .filter_map(|target| Some((target.to_owned(), missing_target(name, target, sources)?)))
        .collect()
}

fn missing_target(name: &str, target: &str, sources: &SemanticSources) -> Option<String> {
    if sources.by_name.contains_key(target) {
        return None;
    }
    let names: Vec<&str> = sources.by_name.keys().map(String::as_str).collect();
    let hint = did_you_mean(target, &names);
    Some(format!(
        "{}: join target `{}` is not a source of this connection{hint}",
        excerpt(name),
        excerpt(target)
    ))
}
