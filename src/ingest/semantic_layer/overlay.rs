//! Merging an overlay with its table into the source that a query uses.
//!
//! Files come from people and other programs, so values of an unexpected shape are ignored.

use serde_json::{Map, Value};

use super::SourceDoc;

/// The maps in the list at `key`.
pub(crate) fn maps_at<'a>(
    doc: &'a SourceDoc,
    key: &str,
) -> impl Iterator<Item = &'a Map<String, Value>> + use<'a> {
    doc.get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
}

/// The texts at `field` of the maps in the list at `key`; if `field` is empty, the texts in the list.
pub(crate) fn texts<'a>(doc: &'a SourceDoc, key: &str, field: &str) -> Vec<&'a str> {
    let list = doc.get(key).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|item| {
        if field.is_empty() {
            item.as_str()
        } else {
            item.get(field)?.as_str()
        }
    })
    .collect()
}

/// The source that results from applying `overlay` to `table`.
pub(super) fn merge_overlay(table: &SourceDoc, overlay: &SourceDoc) -> SourceDoc {
    let mut doc = table.clone();
    let excluded = texts(overlay, "exclude_columns", "");
    let disabled: Vec<String> = texts(overlay, "disable_joins", "")
        .into_iter()
        .map(normalize_whitespace)
        .collect();
    retain(&mut doc, "columns", "name", |name| {
        !excluded.contains(&name)
    });
    retain(&mut doc, "joins", "on", |on| {
        !disabled.contains(&normalize_whitespace(on))
    });
    let lower = |of: &SourceDoc| {
        of.get("name")
            .and_then(Value::as_str)
            .map(str::to_lowercase)
    };
    for over in maps_at(overlay, "column_overrides") {
        let columns = doc
            .get_mut("columns")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten();
        let named = columns
            .filter_map(Value::as_object_mut)
            .filter(|column| lower(column) == lower(over));
        named.for_each(|column| column.extend(over.clone()));
    }
    for key in ["columns", "joins", "measures", "segments"] {
        let Some(Value::Array(more)) = overlay.get(key) else {
            continue;
        };
        match doc.get_mut(key) {
            Some(Value::Array(list)) => list.extend(more.iter().cloned()),
            _ => {
                doc.insert(key.into(), Value::Array(more.clone()));
            }
        }
    }
    for (key, value) in overlay {
        match (key.as_str(), value) {
            ("columns" | "joins" | "measures" | "segments" | "column_overrides", _) => {}
            ("exclude_columns" | "disable_joins", _) => {}
            ("descriptions", Value::Object(more)) => match doc.get_mut(key) {
                Some(Value::Object(texts)) => texts.extend(more.clone()),
                _ => {
                    doc.insert(key.clone(), value.clone());
                }
            },
            _ => {
                doc.insert(key.clone(), value.clone());
            }
        }
    }
    doc
}

/// Keeps the maps in the list at `key` whose `field` is to be kept, or is missing.
fn retain(doc: &mut SourceDoc, key: &str, field: &str, is_kept: impl Fn(&str) -> bool) {
    if let Some(Value::Array(list)) = doc.get_mut(key) {
        list.retain(|item| item.get(field).and_then(Value::as_str).is_none_or(&is_kept));
    }
}

/// KTX compares `on` clauses of joins in this form.
pub(super) fn normalize_whitespace(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// One description of `doc`: the user's, else any.
pub(crate) fn first_description(doc: &SourceDoc) -> Option<&str> {
    let texts = doc.get("descriptions").and_then(Value::as_object);
    let by = |who: &str| {
        texts
            .and_then(|texts| texts.get(who))
            .and_then(Value::as_str)
    };
    let any = || {
        texts
            .into_iter()
            .flatten()
            .find_map(|(_, text)| text.as_str())
    };
    by("user")
        .or_else(|| by("dbt"))
        .or_else(any)
        .or_else(|| doc.get("description")?.as_str())
}
