//! The name of a table as SQL, YAML or a person writes it, in its parts.

use crate::database::TableInfo;

/// Schema that every SQLite file and every DuckDB database has; sources may name it.
const MAIN_SCHEMA: &str = "main";
/// Most parts of an exact name: catalog, schema, table and column, and one more for nested fields.
const MAX_EXACT_PARTS: usize = 5;

/// The parts of a name without their quotes, the table last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableName(Vec<String>);

impl TableName {
    /// Reads `orders`, `public.orders`, `"Public"."Orders"`, `` `shop.public.orders` `` or `[dbo].[orders]`.
    pub(crate) fn parse(text: &str) -> Self {
        let mut parts = vec![String::new()];
        let mut rest = text.trim();
        while let Some(char) = rest.chars().next() {
            let after = rest.get(char.len_utf8()..).unwrap_or_default();
            let quoted = closing_quote(char).and_then(|close| quoted_part(after, close));
            let part = match quoted {
                Some((part, behind)) => {
                    rest = behind;
                    part
                }
                None if char == '.' => {
                    rest = after;
                    parts.push(String::new());
                    continue;
                }
                None => {
                    rest = after;
                    char.to_string()
                }
            };
            if let Some(last) = parts.last_mut() {
                last.push_str(&part);
            }
        }
        for part in &mut parts {
            *part = part.trim().to_owned();
        }
        Self(parts)
    }

    /// Reads the name of a table or column in lower case: `Shop."Order Lines"` has `shop` and `order lines`. Backquotes may
    /// enclose several parts. `None` for a text that is not such a name.
    pub(crate) fn parse_exact(text: &str) -> Option<Self> {
        let mut parts = Vec::new();
        let mut rest = text.trim();
        loop {
            let first = rest.chars().next()?;
            let behind = match closing_quote(first) {
                Some(close) => {
                    let (part, behind) = quoted_part(rest.get(1..)?, close)?;
                    match first {
                        '`' => parts.extend(part.split('.').map(str::to_lowercase)),
                        _ => parts.push(part.to_lowercase()),
                    }
                    behind
                }
                None => {
                    let end = rest.find('.').unwrap_or(rest.len());
                    let (part, behind) = rest.split_at(end);
                    if !part.chars().all(is_plain) {
                        return None;
                    }
                    parts.push(part.to_lowercase());
                    behind
                }
            };
            if parts.iter().any(String::is_empty) || parts.len() > MAX_EXACT_PARTS {
                return None;
            }
            match behind.strip_prefix('.') {
                Some(next) => rest = next,
                None => return behind.is_empty().then_some(Self(parts)),
            }
        }
    }

    pub(crate) fn into_parts(self) -> Vec<String> {
        self.0
    }

    /// The table `name` in these places.
    pub(crate) fn from_parts(places: [Option<&str>; 2], name: &str) -> Self {
        let places = places.into_iter().flatten().filter(|part| !part.is_empty());
        Self(places.chain([name]).map(str::to_owned).collect())
    }

    /// The text as the name of a table, with its dots.
    pub(crate) fn whole(text: &str) -> Self {
        Self(vec![text.trim().to_owned()])
    }

    /// The parts without their quotes, the table last.
    pub(crate) fn parts(&self) -> &[String] {
        &self.0
    }

    /// The table and the column, if the last part is a column.
    pub(crate) fn split_column(&self) -> Option<(Self, &str)> {
        let (column, table) = self.0.split_last()?;
        (!table.is_empty()).then(|| (Self(table.to_vec()), column.as_str()))
    }

    /// The table, without its schema.
    pub(crate) fn table(&self) -> &str {
        self.0.last().map_or("", String::as_str)
    }

    pub(crate) fn schema(&self) -> Option<&str> {
        self.place(1)
    }

    pub(crate) fn catalog(&self) -> Option<&str> {
        self.place(2)
    }

    /// The part this far before the table.
    fn place(&self, before: usize) -> Option<&str> {
        let index = self.0.len().checked_sub(before + 1)?;
        self.0.get(index).map(String::as_str)
    }

    /// The parts of a name that is quoted as a whole, as BigQuery allows.
    pub(super) fn split_whole(&self) -> Option<Self> {
        let [only] = &self.0[..] else { return None };
        let parts: Vec<String> = only.split('.').map(str::to_owned).collect();
        (parts.len() > 1).then_some(Self(parts))
    }

    /// Whether the schema and catalog of the name are those of `table`, as far as both name them. A table without a catalog
    /// is in `database`, if that is known. Case is ignored.
    pub(super) fn is_place_of(&self, table: &TableInfo, database: Option<&str>) -> bool {
        let is_same = |own: &str, other: &str| own.to_lowercase() == other.to_lowercase();
        let schema = match (self.schema(), table.schema.as_deref()) {
            (Some(own), Some(other)) => is_same(own, other),
            (Some(own), None) => is_same(own, MAIN_SCHEMA),
            (None, _) => true,
        };
        let catalog = match (self.catalog(), table.catalog.as_deref().or(database)) {
            (Some(own), Some(other)) => is_same(own, other),
            (Some(_) | None, _) => true,
        };
        schema && catalog && self.0.len() <= 3
    }

    /// Whether both name the same table, as far as both name its places. Case is ignored.
    pub(super) fn agrees_with(&self, other: &Self) -> bool {
        let (own, other) = (self.0.iter().rev(), other.0.iter().rev());
        own.zip(other)
            .all(|(own, other)| own.to_lowercase() == other.to_lowercase())
    }

    /// Whether `table` is written exactly so.
    pub(super) fn is_spelling_of(&self, table: &TableInfo) -> bool {
        let is_same = |own: Option<&str>, other: &Option<String>| {
            own.is_none_or(|own| other.as_deref().is_none_or(|other| own == other))
        };
        self.table() == table.name
            && is_same(self.schema(), &table.schema)
            && is_same(self.catalog(), &table.catalog)
    }
}

/// The name with its dots; parts that contain dots are quoted.
impl std::fmt::Display for TableName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let part = |part: &String| match part.contains('.') {
            true => format!("\"{part}\""),
            false => part.clone(),
        };
        let parts: Vec<String> = self.0.iter().map(part).collect();
        f.write_str(&parts.join("."))
    }
}

/// The character that ends a part which begins with `open`; `None` if `open` is not a quote.
fn closing_quote(open: char) -> Option<char> {
    match open {
        '"' | '`' => Some(open),
        '[' => Some(']'),
        _ => None,
    }
}

/// True for a character of a name without quotes. Names of projects may contain `-`.
fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | '#' | '@')
}

/// What is before the closing quote, in which two quotes are one, and what follows it.
fn quoted_part(text: &str, close: char) -> Option<(String, &str)> {
    let mut part = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once(close)?;
        part.push_str(before);
        match after.strip_prefix(close) {
            Some(more) => {
                part.push(close);
                rest = more;
            }
            None => return Some((part, after)),
        }
    }
}

/// The name of `table` with its schema and catalog.
pub(crate) fn full_name(table: &TableInfo) -> TableName {
    TableName::from_parts(
        [table.catalog.as_deref(), table.schema.as_deref()],
        &table.name,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_names_are_split_into_their_parts() {
        for (text, parts) in [
            ("orders", &["orders"][..]),
            (" public.orders ", &["public", "orders"]),
            ("\"Public\".\"Or\"\"ders\"", &["Public", "Or\"ders"]),
            ("`my-shop`.`a.b`", &["my-shop", "a.b"]),
            ("[dbo].[order lines]", &["dbo", "order lines"]),
            ("shop . public . orders", &["shop", "public", "orders"]),
            ("\"open.x", &["\"open", "x"]),
            ("", &[""]),
        ] {
            assert_eq!(TableName::parse(text).0, parts, "{text}");
        }
    }

    #[test]
    fn exact_names_are_split_at_dots_outside_of_quotes() {
        let cases: [(&str, &[&str]); 8] = [
            ("orders", &["orders"]),
            (" Public.\"Order.Lines\" ", &["public", "order.lines"]),
            ("\"Or\"\"ders\".x", &["or\"ders", "x"]),
            ("`my-proj.set.Items`", &["my-proj", "set", "items"]),
            ("`p`.`s`.t", &["p", "s", "t"]),
            ("[dbo].[Sales Order]", &["dbo", "sales order"]),
            ("ÄRGER.größe", &["ärger", "größe"]),
            ("a.b.c.d.e", &["a", "b", "c", "d", "e"]),
        ];
        for (name, expected) in cases {
            assert_eq!(TableName::parse_exact(name).unwrap().0, expected, "{name}");
        }
    }

    #[test]
    fn other_texts_are_not_exact_names() {
        for text in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "sum(total)",
            "two words",
            "\"open",
            "\"a\"b",
            "a.b.c.d.e.f",
            "\"\"",
            "`a..b`",
            "{{ ref('x') }}",
        ] {
            assert_eq!(TableName::parse_exact(text), None, "{text}");
        }
    }
}
