//! The parts of the name of a table or column, as SQL and answers of tools spell it.

/// Most parts of a name: catalog, schema, table and column, and one more for nested fields.
const MAX_PARTS: usize = 5;

/// The parts of `name` in lower case: `Shop."Order Lines"` has `shop` and `order lines`. Backquotes may enclose several
/// parts. `None` for a text that is not such a name.
pub(super) fn name_parts(name: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut rest = name.trim();
    loop {
        let close = match rest.chars().next()? {
            '"' => Some('"'),
            '`' => Some('`'),
            '[' => Some(']'),
            _ => None,
        };
        let (part, after) = match close {
            None => rest.split_at(rest.find('.').unwrap_or(rest.len())),
            Some(close) => rest.get(1..)?.split_once(close)?,
        };
        match close {
            Some('`') => parts.extend(part.split('.').map(str::to_lowercase)),
            Some(_) => parts.push(part.to_lowercase()),
            None if part.chars().all(is_plain) => parts.push(part.to_lowercase()),
            None => return None,
        }
        let is_valid = parts.iter().all(|part| !part.is_empty()) && parts.len() <= MAX_PARTS;
        match (is_valid, after.strip_prefix('.')) {
            (false, _) => return None,
            (true, Some(next)) => rest = next,
            (true, None) => return after.is_empty().then_some(parts),
        }
    }
}

/// The connection in `connection/name`, and the name.
pub(super) fn split_connection(name: &str) -> (Option<&str>, &str) {
    let name = name.trim();
    match name.split_once('/') {
        Some((connection, rest)) if !connection.contains(['"', '`', '[']) => {
            (Some(connection).filter(|it| !it.is_empty()), rest)
        }
        _ => (None, name),
    }
}

/// True for a character of a name without quotes. Names of projects may contain `-`.
fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | '#' | '@')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_at_dots_outside_of_quotes() {
        let cases: [(&str, &[&str]); 7] = [
            ("orders", &["orders"]),
            (" Public.\"Order.Lines\" ", &["public", "order.lines"]),
            ("`my-proj.set.Items`", &["my-proj", "set", "items"]),
            ("`p`.`s`.t", &["p", "s", "t"]),
            ("[dbo].[Sales Order]", &["dbo", "sales order"]),
            ("ÄRGER.größe", &["ärger", "größe"]),
            ("a.b.c.d.e", &["a", "b", "c", "d", "e"]),
        ];
        for (name, expected) in cases {
            assert_eq!(name_parts(name).unwrap(), expected, "{name}");
        }
    }

    #[test]
    fn other_texts_are_not_names() {
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
            assert_eq!(name_parts(text), None, "{text}");
        }
    }

    #[test]
    fn connection_precedes_a_slash() {
        assert_eq!(
            split_connection("wh/public.orders"),
            (Some("wh"), "public.orders")
        );
        assert_eq!(split_connection("/orders"), (None, "orders"));
        assert_eq!(split_connection("\"a/b\""), (None, "\"a/b\""));
    }
}
