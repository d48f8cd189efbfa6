//! Converts names and expressions of MetricFlow to those of sources. It must not know whole models or metrics.

use std::{collections::HashMap, sync::LazyLock};

use regex_lite::Regex;

use super::MetricInput;
use crate::yaml::{YamlNode, YamlValue};

/// Longest filter, and longest expression with its inputs substituted, in bytes. Substitution may make an expression
/// much longer.
pub(super) const MAX_EXPR_BYTES: usize = 10_000;

/// Replaces the inputs in `expr` by their measures, simultaneously; `None` if the result is too long.
pub(super) fn substitute_inputs(
    expr: &str,
    inputs: &[MetricInput],
    substitute: impl Fn(&MetricInput) -> String,
) -> Option<String> {
    static WORD: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\w+").ok());
    if expr.len() > MAX_EXPR_BYTES {
        return None;
    }
    let called = |input: &MetricInput| input.alias.clone().unwrap_or_else(|| input.name.clone());
    let measures: HashMap<String, String> = inputs
        .iter()
        .rev()
        .map(|input| (called(input), substitute(input)))
        .collect();
    let (mut renamed, mut end) = (String::new(), 0);
    for word in WORD.as_ref()?.find_iter(expr) {
        let measure = measures
            .get(word.as_str())
            .map_or(word.as_str(), String::as_str);
        renamed.push_str(&expr[end..word.start()]);
        renamed.push_str(measure);
        end = word.end();
        if renamed.len() > MAX_EXPR_BYTES {
            return None;
        }
    }
    renamed.push_str(&expr[end..]);
    (renamed.len() <= MAX_EXPR_BYTES).then_some(renamed)
}

/// Replaces MetricFlow's calls in a filter by column names; `None` if it refers to anything else.
pub(super) fn filter_sql(
    filter: &str,
    column_called: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    static CALL: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r#"\{\{\s*(?:Dimension|TimeDimension|Entity)\s*\(\s*['"]([^'"]+)['"]\s*(?:,[^)]*)?\)\s*\}\}"#).ok()
    });
    let call = CALL.as_ref()?;
    let (mut sql, mut end) = (String::new(), 0);
    for found in call.captures_iter(filter) {
        let (whole, path) = (found.get(0)?, found.get(1)?.as_str());
        sql.push_str(filter.get(end..whole.start())?);
        sql.push_str(&column_called(path.rsplit("__").next().unwrap_or(path))?);
        if sql.len() > MAX_EXPR_BYTES {
            return None;
        }
        end = whole.end();
    }
    sql.push_str(filter.get(end..)?);
    if sql.len() > MAX_EXPR_BYTES {
        return None;
    }
    let sql = sql.trim();
    (!["{{", "{%"].iter().any(|call| sql.contains(call))).then(|| sql.to_owned())
}

/// The dbt model or table of a semantic model: `orders` of `ref('orders')` and of `source('shop', 'orders')`.
pub(super) fn table_name(model: &str) -> String {
    static CALL: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r#"(?:ref|source)\s*\(\s*(?:['"][^'"]+['"]\s*,\s*)?['"]([^'"]+)['"]\s*\)"#).ok()
    });
    let found = CALL.as_ref().and_then(|call| call.captures(model));
    found
        .and_then(|found| Some(found.get(1)?.as_str()))
        .unwrap_or(model)
        .trim()
        .to_owned()
}

/// Name of the source of a table: its last part in lower-case letters, digits and single underscores.
pub(super) fn identifier(table: &str) -> String {
    let last = table.rsplit('.').next().unwrap_or(table);
    let words = last
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty());
    words
        .map(str::to_ascii_lowercase)
        .collect::<Vec<_>>()
        .join("_")
}

/// The column of a dimension or an entity, and the expression that computes it unless it is a plain column.
pub(super) fn column_and_expr(node: &YamlNode) -> Option<(String, Option<String>)> {
    let expr = expression(node)?;
    let is_plain = expr.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    match node.text_at("name") {
        Some(name) if !is_plain => Some((name.to_owned(), Some(expr))),
        _ => Some((expr, None)),
    }
}

/// The column or expression of a dimension, an entity or a measure.
pub(super) fn expression(node: &YamlNode) -> Option<String> {
    let column = scalar_text(node, "expr").or_else(|| node.text_at("name").map(str::to_owned))?;
    let column = column.trim();
    (!column.is_empty()).then(|| column.to_owned())
}

pub(super) fn description(node: &YamlNode) -> Option<String> {
    node.text_at("description")
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
}

pub(super) fn scalar_text(node: &YamlNode, key: &str) -> Option<String> {
    match &node.get(key)?.value {
        YamlValue::Text(text) => Some(text.clone()),
        YamlValue::Int(number) => Some(number.to_string()),
        YamlValue::Float(number) => Some(number.to_string()),
        YamlValue::Bool(is) => Some(is.to_string()),
        YamlValue::Null | YamlValue::List(_) | YamlValue::Map(_) => None,
    }
}
