//! The names in an SQL query or expression, by a tokenizer that accepts every dialect and templates.
//!
//! It must not know artifacts.

use std::{collections::HashSet, sync::LazyLock};

/// Words that are not names in any dialect, in lower case.
const KEYWORDS: &str = "\
    all and any array as asc at begin between bigint bool boolean both by case cast collate column \
    create cross cube current current_date current_time current_timestamp current_user date datetime day \
    decimal default delete desc distinct double drop else end epoch escape except exclude exists extract \
    false filter first float float64 following for from full global group grouping groups having hour if \
    ignore ilike in inner insert int int64 integer intersect interval into is isodow join json jsonb \
    last lateral leading left like limit local materialized merge microsecond millisecond minute month \
    natural next no not null nulls numeric of offset on only or order ordinality others outer over \
    overlaps partition pivot preceding precision qualify quarter range real recursive replace respect \
    right rollup row rows sample second select set sets similar smallint some string struct symmetric \
    table tablesample temp temporary text then ties time timestamp timestamptz to top trailing true \
    truncate unbounded union unknown unnest unpivot update using utc value values varchar view week when \
    where window with within without year zone";

/// Functions of templates whose texts are names.
const NAMING_FUNCTIONS: [&str; 2] = ["ref", "source"];

/// The names in a text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SqlNames<'a> {
    /// Names of tables and columns.
    pub(super) used: Vec<&'a str>,
    /// Names that the text defines: aliases, and names of common table expressions.
    pub(super) defined: Vec<&'a str>,
    /// Texts in single quotes, such as values and arguments.
    pub(super) texts: Vec<&'a str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SqlToken<'a> {
    /// A word that may be a keyword.
    Word(&'a str),
    /// A name in quotes.
    Quoted(&'a str),
    Text(&'a str),
    Number,
    /// The operator `::`, which a type follows.
    Cast,
    Symbol(char),
}

impl SqlToken<'_> {
    fn is_word(self, word: &str) -> bool {
        matches!(self, SqlToken::Word(own) if own.eq_ignore_ascii_case(word))
    }

    /// True if a name that follows directly is an alias of what this token ends.
    fn ends_expression(self) -> bool {
        match self {
            SqlToken::Word(word) => !is_keyword(word) || word.eq_ignore_ascii_case("end"),
            SqlToken::Quoted(_) | SqlToken::Text(_) | SqlToken::Number => true,
            SqlToken::Symbol(symbol) => matches!(symbol, ')' | '}' | ']'),
            SqlToken::Cast => false,
        }
    }
}

/// True for a word that is not a name in SQL.
pub(super) fn is_keyword(word: &str) -> bool {
    static WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| KEYWORDS.split(' ').collect());
    WORDS.contains(word.to_ascii_lowercase().as_str())
}

/// Finds the names in `text`. Names of functions and types are left out.
pub(super) fn sql_names(text: &str) -> SqlNames<'_> {
    let tokens = tokens(text);
    let at = |index: Option<usize>| index.and_then(|index| tokens.get(index)).copied();
    let mut names = SqlNames::default();
    // Whether the next token may be an argument of a function whose texts are names, and whether the last one was:
    // `source('shop', 'orders')`.
    let (mut expects_argument, mut was_argument) = (false, false);
    for (index, token) in tokens.iter().enumerate() {
        let (before, after) = (at(index.checked_sub(1)), at(Some(index + 1)));
        let is_part = before == Some(SqlToken::Symbol('.'));
        let is_argument = expects_argument && matches!(token, SqlToken::Text(_));
        expects_argument = match token {
            SqlToken::Symbol('(') => {
                before.is_some_and(|token| NAMING_FUNCTIONS.iter().any(|name| token.is_word(name)))
            }
            SqlToken::Symbol(',') => was_argument,
            _ => false,
        };
        was_argument = is_argument;
        if let SqlToken::Text(text) = token {
            names.texts.push(text);
        }
        let name = match token {
            SqlToken::Word(word) if is_part || !is_keyword(word) => *word,
            SqlToken::Quoted(name) => *name,
            SqlToken::Text(text) if is_argument => *text,
            _ => continue,
        };
        let is_function = after == Some(SqlToken::Symbol('('));
        let starts_query = after.is_some_and(|token| token.is_word("as"))
            && at(Some(index + 2)) == Some(SqlToken::Symbol('('));
        match before {
            _ if is_function => {}
            Some(SqlToken::Cast) => {}
            _ if starts_query => names.defined.push(name),
            Some(token) if token.is_word("as") || token.ends_expression() => {
                names.defined.push(name)
            }
            _ => names.used.push(name),
        }
    }
    names
}

fn tokens(text: &str) -> Vec<SqlToken<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            _ if rest.starts_with("::") => {
                found.push(SqlToken::Cast);
                2
            }
            '\'' | '"' | '`' => {
                let inside = &rest[1..];
                let end = inside.find(first).unwrap_or(inside.len());
                match (first, &inside[..end]) {
                    ('\'', text) => found.push(SqlToken::Text(text)),
                    (_, name) => push_quoted(name, &mut found),
                }
                (1 + end + 1).min(rest.len())
            }
            _ if is_name_start(first) => {
                let end = rest.find(|c| !is_in_name(c)).unwrap_or(rest.len());
                found.push(SqlToken::Word(&rest[..end]));
                end
            }
            _ if first.is_ascii_digit() => {
                found.push(SqlToken::Number);
                rest.find(|c: char| !c.is_alphanumeric() && c != '_')
                    .unwrap_or(rest.len())
            }
            _ => {
                if !first.is_whitespace() {
                    found.push(SqlToken::Symbol(first));
                }
                first.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    found
}

/// Adds the parts of a quoted name, which dots may separate.
fn push_quoted<'a>(name: &'a str, found: &mut Vec<SqlToken<'a>>) {
    for (index, part) in name.split('.').enumerate() {
        if index > 0 {
            found.push(SqlToken::Symbol('.'));
        }
        found.push(SqlToken::Quoted(part.trim()));
    }
}

pub(super) fn is_name_start(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

pub(super) fn is_in_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_separated_from_aliases_and_functions() {
        let names = sql_names(
            "with paid as (select o.id, sum(o.amount)::numeric(10, 2) total, \"Net Value\" AS net, status = 'open' -- x.y\n \
             from {{ source('shop', 'raw_orders') }} o join `proj.set.items` i on i.order = o.id where day > date '2024-01-01')",
        );
        assert_eq!(names.defined, ["paid", "total", "net", "o", "i"]);
        assert_eq!(
            names.used,
            [
                "o",
                "id",
                "o",
                "amount",
                "Net Value",
                "status",
                "shop",
                "raw_orders",
                "proj",
                "set",
                "items",
                "i",
                "order",
                "o",
                "id"
            ]
        );
    }

    #[test]
    fn arguments_are_found_in_one_pass() {
        assert_eq!(
            sql_names("ref('a', 'b') || upper('c', 'd') || ref(x, 'e')").used,
            ["a", "b", "x"]
        );
        let many = format!("source({}'last')", "'a', ".repeat(100_000));
        assert_eq!(sql_names(&many).used.len(), 100_001);
    }

    #[test]
    fn garbage_is_tokenized_to_its_end() {
        for text in [
            "'",
            "\"a",
            "`",
            "/*",
            "--",
            "::",
            "ä'ö",
            "${TABLE}.",
            "\u{0}\u{ffff}é1_",
            "1a::",
        ] {
            sql_names(text);
        }
    }
}
