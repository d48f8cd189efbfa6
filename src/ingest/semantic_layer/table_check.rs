//! Compares a source with the known tables of the database: whether its table exists, its columns, and the
//! types of the columns that it joins.
//!
//! Files may be old, so only a table that a recent and complete scan lacks is an error. This module must not open a
//! connection.

use super::{
    SemanticSources, SourceDoc, SourceFindings, SourceKind,
    overlay::maps_at,
    physical::{self, join_columns, text},
};
use crate::{
    facts::{FactOrigin, KnownTables, TableFinding, full_name},
    type_kind::TypeKind,
    untrusted_text::excerpt,
};

/// Adds what the facts contradict to the findings about the source `name`.
pub(super) fn check(
    name: &str,
    doc: &SourceDoc,
    sources: &SemanticSources,
    findings: &mut SourceFindings,
) {
    let Some(known) = &sources.known_tables else {
        return;
    };
    if SourceKind::from_doc(doc) == SourceKind::Table
        && let Some(table) = text(doc, "table").map(str::trim)
        && sources.scanned_table(table).is_none()
    {
        let finding = |why: String| format!("{}: table `{}`: {why}", excerpt(name), excerpt(table));
        match known.judge(table) {
            TableFinding::Missing(why) => findings.errors.push(finding(why)),
            TableFinding::Doubtful(why) => findings.warnings.push(finding(why)),
            TableFinding::Fine => {}
        }
        findings
            .warnings
            .extend(missing_columns((name, doc), table, known, sources));
    }
    findings
        .warnings
        .extend(different_types(name, doc, known, sources));
}

/// References to columns that the table lacks. dbt's manifest has only the columns that someone described.
fn missing_columns(
    source: (&str, &SourceDoc),
    table: &str,
    known: &KnownTables,
    sources: &SemanticSources,
) -> Vec<String> {
    let Some((set, info)) = known.columns_of(table) else {
        return Vec::new();
    };
    // The database was asked for its columns, too, and they are newer.
    let is_answered = known.answers.get(table) == Some(&true);
    if is_answered || set.origin == FactOrigin::DbtManifest || info.columns.is_empty() {
        return Vec::new();
    }
    let label = full_name(info).to_string();
    let table = format!("`{}`, from {}", excerpt(&label), set.describe(known.now));
    let columns: Vec<&str> = info
        .columns
        .iter()
        .map(|column| column.name.as_str())
        .collect();
    physical::missing_among(source, &table, &columns, sources)
}

/// Joins of columns whose types differ in kind.
fn different_types(
    name: &str,
    doc: &SourceDoc,
    known: &KnownTables,
    sources: &SemanticSources,
) -> Vec<String> {
    let mut found = Vec::new();
    for join in maps_at(doc, "joins") {
        let (Some(to), Some(on)) = (text(join, "to"), text(join, "on")) else {
            continue;
        };
        let Some(target) = sources.by_name.get(to) else {
            continue;
        };
        for on in conditions(on) {
            let Some((local, other)) = join_columns(on, name, to) else {
                continue;
            };
            let types = (
                column_type(
                    sources.by_name.get(name).map_or(doc, |own| &own.doc),
                    &local,
                    known,
                ),
                column_type(&target.doc, &other, known),
            );
            if let (Some((own, own_kind)), Some((other_type, other_kind))) = types
                && own_kind != other_kind
            {
                found.push(format!(
                    "{}: the join to `{}` compares `{}` ({}) with `{}` ({}), which are of different kinds; cast one of them",
                    excerpt(name),
                    excerpt(to),
                    excerpt(&local),
                    excerpt(&own),
                    excerpt(&other),
                    excerpt(&other_type),
                ));
            }
        }
    }
    found
}

/// The parts of an `on` clause between `and`.
fn conditions(on: &str) -> Vec<&str> {
    let lower = on.to_ascii_lowercase();
    let (mut parts, mut from) = (Vec::new(), 0);
    for (at, and) in lower.match_indices(" and ") {
        parts.extend(on.get(from..at));
        from = at + and.len();
    }
    parts.extend(on.get(from..));
    parts
}

/// The type of a column and its kind: that of the table, else the one that the source declares. `None` if neither is
/// known.
fn column_type(doc: &SourceDoc, name: &str, known: &KnownTables) -> Option<(String, TypeKind)> {
    let declared = maps_at(doc, "columns").find(|column| {
        text(column, "name").is_some_and(|column| column.eq_ignore_ascii_case(name))
    });
    let is_computed =
        declared.is_some_and(|column| text(column, "expr").is_some_and(|expr| !expr.is_empty()));
    let physical = || {
        let (set, table) = known.columns_of(text(doc, "table")?)?;
        if !set.origin.has_native_types() {
            return None;
        }
        let column = table
            .columns
            .iter()
            .find(|column| column.name.to_lowercase() == name.to_lowercase())?;
        Some(column.declared_type.clone())
    };
    let of_table = if is_computed || SourceKind::from_doc(doc) == SourceKind::Sql {
        None
    } else {
        physical()
    };
    let declared = || {
        declared
            .and_then(|column| text(column, "type"))
            .map(str::to_owned)
    };
    [of_table, declared()].into_iter().flatten().find_map(|of| {
        let kind = TypeKind::of(&of)?;
        Some((of, kind))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_split_between_and() {
        assert_eq!(
            conditions("a.x = b.y AND a.z=b.z"),
            ["a.x = b.y", "a.z=b.z"]
        );
    }
}
