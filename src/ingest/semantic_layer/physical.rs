//! References to columns that a scanned table lacks, by KTX's rules: KTX refuses edits of all sources of a connection
//! while one of them has such a reference.
//!
//! KTX takes every word of an expression for a column that is neither an SQL keyword, a function call nor a column of
//! another source. Without a scan of the table there is nothing to compare with.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    SemanticSources, SourceDoc,
    overlay::{maps_at, texts},
};
use crate::{spelling::nearest_name, untrusted_text::excerpt};

/// Words that KTX does not take for columns.
const KEYWORDS: &str = "and as asc avg between bigint bool boolean by case cast char character coalesce count current \
    current_date current_time current_timestamp date day decimal desc distinct double else end extract false filter \
    float from if in int integer interval is json jsonb like localtime localtimestamp max min month not null nullif \
    numeric or over partition quarter range real row rows smallint string sum text then time timestamp true uuid \
    varchar week when where year";

/// The references of the source `name` to columns that its scanned table lacks, a sentence about each.
pub(super) fn missing_columns(name: &str, sources: &SemanticSources) -> Vec<String> {
    let found = || {
        let doc = &sources.by_name.get(name)?.doc;
        let table = doc
            .get("table")
            .and_then(Value::as_str)
            .filter(|table| !table.trim().is_empty())?;
        Some((doc, sources.scanned_table(table)?))
    };
    let Some((doc, (label, scan))) = found() else {
        return Vec::new();
    };
    let scanned: Vec<&str> = texts(scan, "columns", "name");
    let table = format!("the scanned table `{}`", excerpt(label));
    missing_among((name, doc), &table, &scanned, sources)
}

/// The references of a source to columns that `table`, with the columns `known`, lacks, a sentence about each.
pub(super) fn missing_among(
    (name, doc): (&str, &SourceDoc),
    table: &str,
    known: &[&str],
    sources: &SemanticSources,
) -> Vec<String> {
    let mut checker = ColumnChecker {
        name,
        table,
        sources,
        scanned: known,
        errors: Vec::new(),
    };
    checker.check(doc);
    checker.errors
}

struct ColumnChecker<'a> {
    name: &'a str,
    /// The table as a sentence names it.
    table: &'a str,
    sources: &'a SemanticSources,
    scanned: &'a [&'a str],
    errors: Vec<String>,
}

impl ColumnChecker<'_> {
    fn check(&mut self, doc: &SourceDoc) {
        let scanned = lower(self.scanned);
        let is_computed =
            |column: &SourceDoc| text(column, "expr").is_some_and(|expr| !expr.is_empty());
        let mut computed = BTreeSet::new();
        let mut output = BTreeSet::new();
        for column in maps_at(doc, "columns") {
            let Some(name) = text(column, "name") else {
                continue;
            };
            if is_computed(column) {
                computed.insert(name.to_lowercase());
            } else if !scanned.contains(&name.to_lowercase()) {
                self.report(
                    format_args!("column `{}` is not in", excerpt(name)),
                    name,
                    "; leave it out, or give it expr",
                );
                continue;
            }
            output.insert(name.to_lowercase());
        }
        for name in texts(doc, "grain", "") {
            let lower = name.to_lowercase();
            // A name that is not a column of the source either is reported elsewhere.
            if !output.contains(&lower) && !computed.contains(&lower) && !scanned.contains(&lower) {
                self.report(
                    format_args!("grain names `{}`, which is not in", excerpt(name)),
                    name,
                    "",
                );
            }
        }
        let all: BTreeSet<String> = scanned.iter().chain(&output).cloned().collect();
        let measures: BTreeSet<String> = lower(&texts(doc, "measures", "name"));
        let with_measures: BTreeSet<String> = output.iter().chain(&measures).cloned().collect();
        let parts: [(&str, &str, &str, &BTreeSet<String>); 4] = [
            ("columns", "column", "expr", &all),
            ("segments", "segment", "expr", &output),
            ("measures", "measure", "expr", &with_measures),
            ("measures", "filter of measure", "filter", &output),
        ];
        for (list, what, field, valid) in parts {
            for map in maps_at(doc, list) {
                let label = format!(
                    "{what} `{}`",
                    excerpt(text(map, "name").unwrap_or_default())
                );
                self.expression(&label, text(map, field).unwrap_or_default(), valid);
            }
        }
        for join in maps_at(doc, "joins") {
            if let (Some(to), Some(on)) = (text(join, "to"), text(join, "on")) {
                self.join(to, on, &output);
            }
        }
    }

    fn expression(&mut self, label: &str, expr: &str, valid: &BTreeSet<String>) {
        let is_source = |name: &str| {
            self.sources
                .by_name
                .keys()
                .any(|source| source.eq_ignore_ascii_case(name))
        };
        let is_own = |reference: &ColumnReference| {
            let qualifier = reference.qualifier.as_deref();
            qualifier.is_none_or(|of| of.eq_ignore_ascii_case(self.name) || !is_source(of))
        };
        let missing: BTreeSet<String> = column_references(expr)
            .into_iter()
            .filter(|reference| {
                is_own(reference) && !valid.contains(&reference.name.to_lowercase())
            })
            .map(|reference| reference.name)
            .collect();
        for name in missing {
            self.unknown_column(label, &name);
        }
    }

    fn join(&mut self, to: &str, on: &str, output: &BTreeSet<String>) {
        let Some((local, target)) = join_columns(on, self.name, to) else {
            return;
        };
        if !output.contains(&local.to_lowercase()) {
            self.unknown_column(&format!("the join to `{}`", excerpt(to)), &local);
        }
        let own = self
            .sources
            .by_name
            .iter()
            .find(|(name, _)| name.to_lowercase() == to.to_lowercase());
        let joined = own
            .map(|(_, source)| &*source.doc)
            .or_else(|| Some(self.sources.scanned_table(to)?.1));
        let Some(columns) = joined.map(|doc| texts(doc, "columns", "name")) else {
            return;
        };
        if !lower(&columns).contains(&target.to_lowercase()) {
            self.errors.push(format!(
                "{0}: the join to `{1}` uses `{2}`, which is not a column of `{1}`{3}",
                excerpt(self.name),
                excerpt(to),
                excerpt(&target),
                hint(&target, &columns)
            ));
        }
    }

    fn unknown_column(&mut self, label: &str, name: &str) {
        let shown = excerpt(name);
        if lower(self.scanned).contains(&name.to_lowercase()) {
            self.report(
                format_args!(
                    "{label} uses `{shown}`, which is not among its columns; add it: it is in"
                ),
                name,
                "",
            );
        } else {
            self.report(
                format_args!("{label} uses `{shown}`, which is not a column of"),
                name,
                "",
            );
        }
    }

    fn report(&mut self, text: std::fmt::Arguments<'_>, name: &str, advice: &str) {
        let hint = hint(name, self.scanned);
        let (own, table) = (excerpt(self.name), self.table);
        self.errors
            .push(format!("{own}: {text} {table}{hint}{advice}"));
    }
}

fn hint(name: &str, names: &[&str]) -> String {
    let nearest = nearest_name(name, names).filter(|nearest| !nearest.eq_ignore_ascii_case(name));
    nearest.map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"))
}

pub(super) fn text<'a>(doc: &'a SourceDoc, key: &str) -> Option<&'a str> {
    doc.get(key)?.as_str()
}

fn lower(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| name.to_lowercase()).collect()
}

/// The columns that `expr` may use, in its order.
pub(crate) fn referenced_columns(expr: &str) -> Vec<String> {
    let references = column_references(expr).into_iter();
    references.map(|reference| reference.name).collect()
}

/// A word of an expression that may be a column.
#[derive(Debug, PartialEq, Eq)]
struct ColumnReference {
    qualifier: Option<String>,
    name: String,
}

fn column_references(expr: &str) -> Vec<ColumnReference> {
    let chars: Vec<char> = without_literals(expr).chars().collect();
    let is_start = |c: &char| c.is_ascii_alphabetic() || *c == '_';
    let is_word = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$');
    let skip_spaces = |mut at: usize| {
        while chars.get(at).is_some_and(|c| c.is_whitespace()) {
            at += 1;
        }
        at
    };
    let word_end = |mut at: usize| {
        while chars.get(at).is_some_and(is_word) {
            at += 1;
        }
        at
    };
    let slice = |from: usize, to: usize| {
        chars
            .get(from..to)
            .unwrap_or_default()
            .iter()
            .collect::<String>()
    };
    let is_keyword = |word: &str| {
        KEYWORDS
            .split(' ')
            .any(|keyword| keyword.eq_ignore_ascii_case(word))
    };
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(char) = chars.get(at) {
        if !is_start(char) {
            // A number such as `1e5` is one word.
            at = if is_word(char) { word_end(at) } else { at + 1 };
            continue;
        }
        let end = word_end(at);
        let first = slice(at, end);
        let dot = skip_spaces(end);
        let second = skip_spaces(dot + 1);
        let (qualifier, name, end) = match (chars.get(dot), chars.get(second)) {
            (Some('.'), Some(char)) if is_start(char) => {
                let end = word_end(second);
                (Some(first), slice(second, end), end)
            }
            _ => (None, first, end),
        };
        at = end;
        let is_call = qualifier.is_none() && chars.get(skip_spaces(end)) == Some(&'(');
        if !is_call && !is_keyword(&name) && !qualifier.as_deref().is_some_and(is_keyword) {
            found.push(ColumnReference { qualifier, name });
        }
    }
    found
}

/// `expr` without comments, texts and casts; quoted identifiers lose their quotes.
fn without_literals(expr: &str) -> String {
    let mut rest = expr;
    let mut kept = String::with_capacity(expr.len());
    while let Some(char) = rest.chars().next() {
        let after = rest.get(char.len_utf8()..).unwrap_or_default();
        let until = |close: &str| after.split_once(close);
        rest = match char {
            '-' if after.starts_with('-') => after
                .find('\n')
                .and_then(|end| after.get(end..))
                .unwrap_or_default(),
            '/' if after.starts_with('*') => until("*/").map_or("", |(_, rest)| rest),
            '\'' => until("'").map_or("", |(_, rest)| rest),
            ':' if after.starts_with(':') => without_type(after.trim_start_matches(':')),
            '"' | '`' | '[' => {
                kept.push(' ');
                let close = if char == '[' { "]" } else { &rest[..1] };
                match until(close) {
                    Some((name, rest)) => {
                        kept.push_str(name);
                        rest
                    }
                    None => after,
                }
            }
            char => {
                kept.push(char);
                after
            }
        };
        if matches!(char, '-' | '/' | '\'' | ':') && !kept.ends_with(char) {
            kept.push(' ');
        }
    }
    kept
}

/// What follows the type of a cast, such as `numeric(10, 2)`.
fn without_type(text: &str) -> &str {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$');
    let rest = text.trim_start().trim_start_matches(is_word);
    let arguments = rest
        .trim_start()
        .strip_prefix('(')
        .and_then(|arguments| arguments.split_once(')'));
    arguments.map_or(rest, |(_, rest)| rest)
}

/// The local and the target column of an `on` clause of the form `a.x = b.y`.
pub(super) fn join_columns(on: &str, source: &str, target: &str) -> Option<(String, String)> {
    let is_word = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let side = |side: &str| {
        let side = side.trim();
        let (qualifier, column) = side
            .split_once('.')
            .map_or((None, side), |(of, column)| (Some(of), column));
        let is_plain = is_word(column) && qualifier.is_none_or(is_word);
        is_plain.then(|| (qualifier.map(str::to_lowercase), column.to_owned()))
    };
    let (left, right) = on
        .split_once('=')
        .filter(|(_, right)| !right.contains('='))?;
    let ((left_of, left), (right_of, right)) = (side(left)?, side(right)?);
    let is = |qualifier: &Option<String>, name: &str| {
        qualifier.as_deref() == Some(name.to_lowercase().as_str())
    };
    Some(if is(&left_of, target) || is(&right_of, source) {
        (right, left)
    } else {
        (left, right)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(expr: &str) -> Vec<String> {
        let name = |of: ColumnReference| {
            of.qualifier.map_or_else(String::new, |of| format!("{of}.")) + &of.name
        };
        column_references(expr).into_iter().map(name).collect()
    }

    #[test]
    fn columns_of_an_expression_are_found() {
        for (expr, expected) in [
            (
                "sum(case when status = 'paid''s' then amount else 0 end)",
                "status amount",
            ),
            ("count(distinct orders.id) -- net of x\n + 1e5", "orders.id"),
            ("\"Net\" / `gross` /* old */ - [tax]", "Net gross tax"),
            ("amount::numeric(10, 2) * rate :: float", "amount rate"),
            ("date_trunc('day', placed_at)", "placed_at"),
            ("a.b.c", "a.b c"),
            ("x - y / z : w", "x y z w"),
            ("'open", ""),
            ("größe", "gr e"),
        ] {
            assert_eq!(names(expr).join(" "), expected, "{expr}");
        }
    }

    #[test]
    fn join_columns_follow_qualifiers() {
        let columns = |on: &str| {
            join_columns(on, "Orders", "customers").map(|(local, to)| format!("{local} {to}"))
        };
        assert_eq!(
            columns("orders.customer_id = customers.id").as_deref(),
            Some("customer_id id")
        );
        assert_eq!(
            columns("customers.id = orders.customer_id").as_deref(),
            Some("customer_id id")
        );
        assert_eq!(
            columns("id = orders.customer_id").as_deref(),
            Some("customer_id id")
        );
        assert_eq!(
            columns("customer_id = id").as_deref(),
            Some("customer_id id")
        );
        for other in ["a = b and c = d", "lower(a) = b", "a >= b.c.d", "true"] {
            assert_eq!(columns(other), None, "{other}");
        }
    }
}
