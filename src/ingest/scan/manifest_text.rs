//! The text of a file of scanned tables. Tables that are unchanged keep their text, with its comments and its style.

use serde_json::{Map, Value};

use crate::yaml::{self, QuotingStyle, YamlNode, YamlValue};

const INDENT: &str = "  ";

/// The text of a file with `tables`; `old` is its current text. `None` if no style of YAML keeps the values.
pub(super) fn render(old: Option<&str>, tables: Map<String, Value>) -> Option<String> {
    let old = old.and_then(|text| Some((text, yaml::parse_scan(text).ok()?)));
    let mut document = match old.as_ref().map(|(_, tree)| tree.to_json()) {
        Some(Value::Object(document)) => document,
        _ => Map::new(),
    };
    if let Some((text, _)) = &old
        && document.get("tables").and_then(Value::as_object) == Some(&tables)
    {
        return Some((*text).to_owned());
    }
    let kept = old.and_then(|(text, tree)| replace_changed(text, &tree, &tables));
    document.insert("tables".into(), Value::Object(tables));
    let document = Value::Object(document);
    let written = [QuotingStyle::Yaml11, QuotingStyle::All].into_iter();
    let written = written.map(|style| yaml::render(&document, style));
    let has_values =
        |text: &String| yaml::parse_scan(text).is_ok_and(|tree| tree.to_json() == document);
    kept.into_iter().chain(written).find(has_values)
}

/// `text` with the entries of changed tables replaced, if each table has its own lines.
fn replace_changed(text: &str, tree: &YamlNode, tables: &Map<String, Value>) -> Option<String> {
    let YamlValue::Map(keys) = &tree.value else {
        return None;
    };
    let (last, others) = keys.split_last()?;
    let YamlValue::Map(entries) = &last.value.value else {
        return None;
    };
    if last.key != "tables" || others.iter().any(|key| key.key == "tables") {
        return None;
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let is_comment = |at: usize| {
        lines
            .get(at)
            .is_some_and(|line| line.trim_start().starts_with('#'))
    };
    // The lines of an entry begin with the comments in front of it.
    let mut starts = Vec::new();
    for entry in entries {
        let mut start = usize::try_from(entry.line).ok()?.checked_sub(1)?;
        while start > 0 && is_comment(start - 1) {
            start -= 1;
        }
        starts.push(start);
    }
    let header = lines.get(..*starts.first()?)?.concat();
    let mut ends = starts.iter().skip(1).copied().chain([lines.len()]);
    let mut kept: Map<String, Value> = Map::new();
    for (entry, start) in entries.iter().zip(&starts) {
        let same = tables.get(&entry.key) == Some(&entry.value.to_json());
        let lines = lines.get(*start..ends.next()?)?.concat();
        if same && lines.ends_with('\n') {
            kept.insert(entry.key.clone(), lines.into());
        }
    }
    let mut result = header;
    for (name, table) in tables {
        match kept.get(name).and_then(Value::as_str) {
            Some(lines) => result.push_str(lines),
            None => {
                let mut entry = Map::new();
                entry.insert(name.clone(), table.clone());
                let text = yaml::render(&Value::Object(entry), QuotingStyle::Yaml11);
                for line in text.split_inclusive('\n') {
                    if line != "\n" {
                        result.push_str(INDENT);
                    }
                    result.push_str(line);
                }
            }
        }
    }
    Some(result)
}
