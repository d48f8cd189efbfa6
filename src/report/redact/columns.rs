//! Context of a value of JSON from other members: the names of columns, for tables whose rows are arrays, and the type of
//! a JSON Web Key. Pure.

use std::collections::{HashMap, HashSet};

use super::json::{self, JsonPathFrame, JsonVisitor};

/// Members that hold the names of columns.
const HEADS: &[&str] = &[
    "headers",
    "header",
    "columns",
    "column_names",
    "columnNames",
    "cols",
    "fields",
];

/// Members of an object with the name of a column.
const COLUMN: &[&str] = &["name", "column", "field", "column_name", "columnName"];

/// Private members of a JSON Web Key, and the shortest value of one.
const KEY_MEMBERS: &[&str] = &["d", "p", "q", "dp", "dq", "qi", "k"];
const SHORTEST_KEY: usize = 16;

/// Columns of the widest table.
const MOST: usize = 10_000;

/// Properties of the objects of a text, by the offset at which each begins.
#[derive(Debug, Default)]
pub(super) struct JsonColumns {
    names: HashMap<usize, Vec<String>>,
    web_keys: HashSet<usize>,
}

impl JsonColumns {
    pub(super) fn parse(json: &str) -> Self {
        let mut columns = Self::default();
        json::edits(json, &mut columns);
        columns
    }

    /// The name of the column that the value at `path` belongs to.
    pub(super) fn name(&self, path: &[JsonPathFrame<'_>]) -> Option<&str> {
        let [.., table, rows, row] = path else {
            return None;
        };
        if table.is_array || !rows.is_array || !row.is_array {
            return None;
        }
        self.names
            .get(&table.start)?
            .get(row.index)
            .map(String::as_str)
    }

    /// True if the object is a JSON Web Key.
    pub(super) fn is_web_key(&self, object: &JsonPathFrame<'_>) -> bool {
        self.web_keys.contains(&object.start)
    }
}

/// True if `text` may be a private member of a JSON Web Key.
pub(super) fn may_be_key_member(object: &JsonPathFrame<'_>, text: &str) -> bool {
    KEY_MEMBERS.contains(&&*object.key)
        && text.len() >= SHORTEST_KEY
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+/=_-".contains(&byte))
}

/// True if the value at `path` may belong to a column.
pub(super) fn is_cell(path: &[JsonPathFrame<'_>]) -> bool {
    matches!(path, [.., table, rows, row] if !table.is_array && rows.is_array && row.is_array)
}

impl JsonVisitor for JsonColumns {
    fn key(&mut self, _: &str) -> Option<String> {
        None
    }

    fn string(&mut self, path: &[JsonPathFrame<'_>], text: &str) -> Option<String> {
        let key = path.last().filter(|frame| frame.key == "kty");
        self.web_keys.extend(key.map(|frame| frame.start));
        let is_head = |frame: &JsonPathFrame<'_>| !frame.is_array && HEADS.contains(&&*frame.key);
        let (table, index) = match path {
            [.., table, list, column]
                if is_head(table)
                    && list.is_array
                    && !column.is_array
                    && COLUMN.contains(&&*column.key) =>
            {
                (table, list.index)
            }
            [.., table, list] if is_head(table) && list.is_array => (table, list.index),
            _ => return None,
        };
        let names = self.names.entry(table.start).or_default();
        if index < MOST {
            names.resize(names.len().max(index + 1), String::new());
            names[index] = text.to_owned();
        }
        None
    }

    fn number(&mut self, _: &[JsonPathFrame<'_>], _: &str) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects the [`JsonColumns`] of a document.
    struct Named(JsonColumns, Vec<String>);

    impl JsonVisitor for Named {
        fn key(&mut self, _: &str) -> Option<String> {
            None
        }

        fn string(&mut self, path: &[JsonPathFrame<'_>], text: &str) -> Option<String> {
            self.1
                .extend(self.0.name(path).map(|name| format!("{name}={text}")));
            None
        }

        fn number(&mut self, path: &[JsonPathFrame<'_>], digits: &str) -> Option<String> {
            self.string(path, digits)
        }
    }

    #[test]
    fn cells_have_the_names_of_their_columns() {
        for json in [
            r#"{"headers":["id","pw"],"rows":[[1,"x"],[2,"y"]]}"#,
            r#"{"rows":[[1,"x"],[2,"y"]],"n":{"rows":[["z"]]},"columns":["id","pw"]}"#,
            r#"[{"fields":[{"name":"id","type":"int"},{"type":"text","name":"pw"}],"data":[[1,"x"],[2,"y"]]}]"#,
        ] {
            let mut named = Named(JsonColumns::parse(json), Vec::new());
            json::edits(json, &mut named);
            assert_eq!(named.1, ["id=1", "pw=x", "id=2", "pw=y"], "{json}");
        }
    }
}
