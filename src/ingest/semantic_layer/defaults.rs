//! Values that KTX adds to a source before it saves it: required lists, and a description of the source and of each
//! column that has none.

use std::sync::LazyLock;

use regex_lite::Regex;
use serde_json::{Map, Value};

use super::{SourceDoc, SourceKind, definition, parse_source};

/// Lists that a standalone source always has.
const REQUIRED_LISTS: [&str; 3] = ["columns", "joins", "measures"];

/// `doc` with KTX's defaults, with its fields in the order of the definition.
pub(crate) fn fill_defaults(mut doc: SourceDoc) -> SourceDoc {
    if SourceKind::from_doc(&doc) != SourceKind::Overlay {
        for list in REQUIRED_LISTS {
            doc.entry(list).or_insert_with(|| Value::Array(Vec::new()));
        }
    }
    let mut doc = definition::order_fields(doc);
    let name = non_empty_text(doc.get("name"))
        .unwrap_or("source")
        .to_owned();
    let fallback = default_source_description(&doc, &name);
    fill_description(&mut doc, fallback);
    for column in doc
        .get_mut("columns")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(column) = column.as_object_mut() {
            let fallback = default_column_description(column, &name);
            fill_description(column, fallback);
        }
    }
    doc
}

/// The text of a standalone source with its missing lists appended; the unchanged text if lists cannot be appended to
/// it.
pub(crate) fn append_missing_lists(text: String, doc: &SourceDoc) -> (String, SourceDoc) {
    let mut completed = doc.clone();
    let mut longer = text.clone();
    if !longer.ends_with('\n') {
        longer.push('\n');
    }
    for list in REQUIRED_LISTS
        .into_iter()
        .filter(|list| !doc.contains_key(*list))
    {
        longer.push_str(list);
        longer.push_str(": []\n");
        completed.insert(list.to_owned(), Value::Array(Vec::new()));
    }
    let is_needed = SourceKind::from_doc(doc) != SourceKind::Overlay && completed.len() > doc.len();
    if is_needed && parse_source(&longer).as_ref() == Ok(&completed) {
        (longer, completed)
    } else {
        (text, doc.clone())
    }
}

/// Removes blank descriptions, and adds `fallback` as KTX's description if none remains.
fn fill_description(of: &mut Map<String, Value>, fallback: String) {
    let given = of
        .get("descriptions")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let said = given
        .filter_map(|(who, text)| Some((who.clone(), Value::from(non_empty_text(Some(text))?))));
    let mut descriptions: Map<String, Value> = said.collect();
    if descriptions.is_empty() {
        descriptions.insert("ktx".into(), fallback.into());
    }
    of.insert("descriptions".into(), Value::Object(descriptions));
}

fn default_source_description(doc: &SourceDoc, name: &str) -> String {
    if let Some(table) = non_empty_text(doc.get("table")) {
        return format!("Semantic-layer source for {name} backed by {table}.");
    }
    if non_empty_text(doc.get("sql")).is_some() {
        return format!("Semantic-layer source for {name} backed by curated SQL.");
    }
    let count =
        |key: &str, what: &str| match doc.get(key).and_then(Value::as_array).map_or(0, Vec::len) {
            0 => None,
            1 => Some(format!("1 {what}")),
            count => Some(format!("{count} {what}s")),
        };
    let counts = [
        count("measures", "measure"),
        count("segments", "segment"),
        count("columns", "computed column"),
    ];
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    match counts.is_empty() {
        true => format!("Semantic-layer overlay for {name}."),
        false => format!(
            "Semantic-layer overlay for {name} defining {}.",
            counts.join(", ")
        ),
    }
}

fn default_column_description(column: &Map<String, Value>, source: &str) -> String {
    static TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new("(?i)(?:^|_)(?:date|time|timestamp|created_at|updated_at|week_start|month_start)(?:$|_)").ok()
    });
    let name = non_empty_text(column.get("name")).unwrap_or("column");
    let words = words(name);
    let label = if words.is_empty() { name } else { &words };
    if non_empty_text(column.get("expr")).is_some() {
        return format!("Computed {label} value for {source}.");
    }
    let lower = name.to_ascii_lowercase();
    if lower == "id" {
        return format!("Identifier column for {source}.");
    }
    if let Some(entity) = lower
        .strip_suffix("_id")
        .and_then(|entity| name.get(..entity.len()))
        .filter(|e| !e.is_empty())
    {
        return match self::words(entity) {
            entity if entity.is_empty() => format!("Identifier column for {source}."),
            entity => format!("Identifier for the related {entity} on {source}."),
        };
    }
    if TIME.as_ref().is_some_and(|time| time.is_match(name)) {
        return format!("Date or time value for {label} on {source}.");
    }
    format!("Column {label} from {source}.")
}

/// Splits `orderId` and `order_id` into `order id`.
fn words(name: &str) -> String {
    let mut spaced = String::with_capacity(name.len());
    let mut before = ' ';
    for char in name.chars() {
        if char.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit()) {
            spaced.push(' ');
        }
        spaced.push(if matches!(char, '_' | '-') { ' ' } else { char });
        before = char;
    }
    spaced
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .to_lowercase()
}

fn non_empty_text(value: Option<&Value>) -> Option<&str> {
    value?
        .as_str()
        .map(str::trim)
        .filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn described(source: Value) -> Vec<String> {
        let Value::Object(source) = source else {
            panic!("not an object")
        };
        let doc = fill_defaults(source);
        let columns = doc["columns"].as_array().unwrap().iter();
        let all = std::iter::once(&doc["descriptions"])
            .chain(columns.map(|column| &column["descriptions"]));
        all.map(|texts| texts["ktx"].as_str().unwrap_or("its own").to_owned())
            .collect()
    }

    #[test]
    fn descriptions_are_filled_in_as_by_ktx() {
        let column = |name: &str| json!({"name": name, "type": "string"});
        let columns = [
            "ID",
            "customer_id",
            "orderItem_Id",
            "_id",
            "created_at",
            "week_start_day",
            "grossAmount2Eur",
            "-",
        ];
        let mut columns: Vec<Value> = columns.into_iter().map(column).collect();
        columns.push(json!({"name": "day_no", "expr": "x"}));
        columns.push(json!({"name": "a", "descriptions": {"dbt": " ", "user": " Own "}}));
        assert_eq!(
            described(json!({"name": "s", "table": "t", "columns": columns})),
            [
                "Semantic-layer source for s backed by t.",
                "Identifier column for s.",
                "Identifier for the related customer on s.",
                "Identifier for the related order item on s.",
                "Column id from s.",
                "Date or time value for created at on s.",
                "Date or time value for week start day on s.",
                "Column gross amount2 eur from s.",
                "Column - from s.",
                "Computed day no value for s.",
                "its own",
            ]
        );
        let sources = [
            (
                json!({"name": "s", "sql": "select 1"}),
                "Semantic-layer source for s backed by curated SQL.",
            ),
            (
                json!({"name": "s", "columns": []}),
                "Semantic-layer overlay for s.",
            ),
            (
                json!({"name": "s", "columns": [{}], "measures": [{}, {}], "segments": [{}]}),
                "Semantic-layer overlay for s defining 2 measures, 1 segment, 1 computed column.",
            ),
        ];
        for (source, text) in sources {
            assert_eq!(described(source)[0], text);
        }
        let own = json!({"name": "a", "table": "t", "columns": [{"name": "a", "descriptions": {"dbt": " ", "user": " Own "}}]});
        let Value::Object(own) = own else {
            unreachable!()
        };
        assert_eq!(
            fill_defaults(own)["columns"][0]["descriptions"],
            json!({"user": "Own"})
        );
    }

    #[test]
    fn lists_are_appended_only_where_the_text_takes_them() {
        let text =
            |text: &str| append_missing_lists(text.to_owned(), &parse_source(text).unwrap()).0;
        let base = "name: a\ntable: t\ncolumns: []";
        assert_eq!(text(base), format!("{base}\njoins: []\nmeasures: []\n"));
        for same in [
            "name: a # overlay\nmeasures: []",
            "{name: a, table: t}",
            "name: a\ntable: t\ncolumns: [x]\njoins: []\nmeasures: []",
        ] {
            assert_eq!(text(same), same);
        }
    }
}
