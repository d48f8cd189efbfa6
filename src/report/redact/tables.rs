//! Columns of secrets in tables that are text: CSV, Markdown, and what database clients print. Pure.

use std::ops::Range;

use super::names::{NameKind, NamedValue, is_secret, kind_of};

/// A longer line is not the head of a table.
const WIDEST: usize = 4 << 10;

/// Bytes of the longest name of a column.
const LONGEST_NAME: usize = 40;

/// Words of the longest name of a column.
const NAME_WORDS: usize = 4;

/// Separators of columns. Those with a frame have a line of dashes between the head and the rows.
const SEPARATORS: &[char] = &['|', '│', '\t', ';', ','];
const FRAMED: &[char] = &['|', '│'];

/// First words of lines of a program that separate names with commas.
const KEYWORDS: &[&str] = &[
    "select", "from", "where", "and", "or", "by", "group", "order", "join", "on", "set", "values",
    "insert", "update", "delete", "with", "create", "import", "return", "let", "const", "var",
    "def", "fn", "use", "export", "for", "if", "in", "as", "case", "when",
];

/// Adds the cells of secret columns of the table whose head has a name at `at`. The end of that table; `None` if there
/// is none.
pub(super) fn find(text: &str, at: usize, spans: &mut Vec<Range<usize>>) -> Option<usize> {
    let start = line_start(text, at)?;
    let head = Some(line(text, start)).filter(|head| head.len() <= WIDEST)?;
    SEPARATORS
        .iter()
        .find_map(|separator| table(text, head.clone(), *separator, spans))
}

fn table(
    text: &str,
    head: Range<usize>,
    separator: char,
    spans: &mut Vec<Range<usize>>,
) -> Option<usize> {
    let is_framed = FRAMED.contains(&separator);
    let names = cells(text, head.clone(), separator);
    if names.len() < 2
        || !names
            .iter()
            .all(|name| is_column(&text[name.clone()], is_framed))
    {
        return None;
    }
    let kinds: Vec<(Option<NameKind>, &str)> = names
        .iter()
        .map(|name| (kind_of(&text[name.clone()]), &text[name.clone()]))
        .collect();
    if kinds.iter().all(|(kind, _)| kind.is_none()) {
        return None;
    }
    let indent = indent_of(&text[head.clone()]);
    let (mut end, mut from, mut has_rule) = (head.end, next_line(text, head.end)?, !is_framed);
    while let Some(row) = Some(line(text, from)).filter(|row| !row.is_empty()) {
        let is_rule = text[row.clone()]
            .chars()
            .all(|char| "+-|: =│├┼┤─═╪╞╡┌┬┐└┴┘".contains(char));
        let values = cells(text, row.clone(), separator);
        let is_row =
            values.len() == names.len() && (is_framed || indent_of(&text[row.clone()]) == indent);
        if !is_row && !is_rule {
            break;
        }
        // DuckDB prints the types between the names and the rule.
        if !is_rule
            && !has_rule
            && next_line(text, row.end).is_none_or(|next| !is_rule_at(text, next))
        {
            return None;
        }
        if is_row && !is_rule && has_rule {
            for (value, (kind, name)) in values.iter().zip(&kinds) {
                let judged = NamedValue {
                    text: &text[value.clone()],
                    quoted: true,
                    alone: true,
                };
                if kind.is_some_and(|kind| is_secret(kind, name, judged)) {
                    spans.push(value.clone());
                }
            }
        }
        has_rule |= is_rule;
        end = row.end;
        match next_line(text, row.end) {
            Some(next) => from = next,
            None => break,
        }
    }
    Some(end)
}

fn is_rule_at(text: &str, from: usize) -> bool {
    let line = &text[line(text, from)];
    line.contains(['-', '─', '═']) && line.chars().all(|char| "+-|: =│├┼┤─═╪╞╡".contains(char))
}

/// True for the name of a column.
fn is_column(name: &str, is_framed: bool) -> bool {
    let words = name.split(' ').count();
    let first = name.chars().next().unwrap_or_default();
    let is_name = |char: char| char.is_alphanumeric() || " _-./".contains(char);
    let is_keyword = || {
        let word = name
            .split(' ')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase();
        words > 1 && KEYWORDS.contains(&&*word)
    };
    (1..=LONGEST_NAME).contains(&name.len())
        && (first.is_alphabetic() || first == '_')
        && name.chars().all(is_name)
        && (words == 1 || words <= NAME_WORDS && (is_framed || first.is_uppercase()))
        && !is_keyword()
}

/// The cells of a line, without blanks and quotes around them.
fn cells(text: &str, line: Range<usize>, separator: char) -> Vec<Range<usize>> {
    let mut line = trimmed(text, line);
    if FRAMED.contains(&separator) {
        let inner = text[line.clone()].trim_start_matches(separator);
        line.start = line.end - inner.len();
        line.end = line.start + inner.trim_end_matches(separator).len();
    }
    let (mut cells, mut start, mut is_quoted) = (Vec::new(), line.start, false);
    for (at, char) in text[line.clone()].char_indices() {
        let at = line.start + at;
        match char {
            '"' if is_quoted || text[start..at].trim_start().is_empty() => is_quoted = !is_quoted,
            char if char == separator && !is_quoted => {
                cells.push(trimmed(text, start..at));
                start = at + char.len_utf8();
            }
            _ => {}
        }
    }
    cells.push(trimmed(text, start..line.end));
    for cell in &mut cells {
        let inner = text[cell.clone()].trim_matches(['`', '*', '\\']);
        cell.start += text[cell.clone()].find(inner).unwrap_or(0);
        cell.end = cell.start + inner.len();
        for quote in ['"', '\''] {
            if text[cell.clone()].len() > 1
                && text[cell.clone()].starts_with(quote)
                && text[cell.clone()].ends_with(quote)
            {
                *cell = cell.start + 1..cell.end - 1;
            }
        }
    }
    cells
}

fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let part = &text[range.clone()];
    let start = range.start + (part.len() - part.trim_start().len());
    start..start + part.trim().len()
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '\t']).len()
}

/// Where the line around `at` begins; `None` if it is too long.
fn line_start(text: &str, at: usize) -> Option<usize> {
    let from = at.saturating_sub(WIDEST);
    let before = &text.as_bytes()[from..at];
    let real = memchr::memrchr(b'\n', before).map(|newline| from + newline + 1);
    let start = real.unwrap_or(from);
    // A line end may be written as an escape.
    let escaped =
        memchr::memmem::rfind(&text.as_bytes()[start..at], b"\\n").map(|escape| start + escape + 2);
    escaped.or(real).or((from == 0).then_some(0))
}

/// The line from `from` on.
fn line(text: &str, from: usize) -> Range<usize> {
    let rest = &text.as_bytes()[from..];
    let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
    let end = memchr::memmem::find(&rest[..end], b"\\n").unwrap_or(end);
    from..from + end
}

/// Where the line after the one that ends at `end` begins.
fn next_line(text: &str, end: usize) -> Option<usize> {
    let rest = text.as_bytes().get(end..)?;
    let length = if rest.starts_with(b"\n") {
        1
    } else if rest.starts_with(b"\\n") {
        2
    } else {
        return None;
    };
    (end + length < text.len()).then_some(end + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str) -> String {
        let mut spans = Vec::new();
        let at = text
            .to_ascii_lowercase()
            .find("password")
            .or(text.find("Secret"))
            .unwrap();
        find(text, at, &mut spans);
        spans
            .into_iter()
            .rev()
            .fold(text.to_owned(), |mut text, span| {
                text.replace_range(span, "#");
                text
            })
    }

    #[test]
    fn cells_of_secret_columns_are_found() {
        for (text, expected) in [
            (
                "id,password,n\n1,hunter2!x,3\n2,\"a,b \"\"9x\",4\n\nnext,hunter2,x",
                "id,password,n\n1,#,3\n2,\"#\",4\n\nnext,hunter2,x",
            ),
            (
                "Access key ID,Secret access key\r\nAKIAX,wJalrXUtnFEMI/K7MDENG\r\n",
                "Access key ID,Secret access key\r\nAKIAX,#\r\n",
            ),
            ("user\tpassword\na\thunter22", "user\tpassword\na\t#"),
            (
                "x:\n\"user\";\"password\"\n\"a\";\"hunter22\"\n",
                "x:\n\"user\";\"password\"\n\"a\";\"#\"\n",
            ),
            (
                "| id | password |\n|---:|:---|\n| 1 | `hunter22` |\n",
                "| id | password |\n|---:|:---|\n| 1 | `#` |\n",
            ),
            (
                " id | password \n----+----------\n  1 | hunter22\n(1 row)",
                " id | password \n----+----------\n  1 | #\n(1 row)",
            ),
            (
                "+----+----------+\n| id | password |\n+----+----------+\n| 1  | hunter22 |\n+----+----------+",
                "+----+----------+\n| id | password |\n+----+----------+\n| 1  | # |\n+----+----------+",
            ),
            (
                "│ id │ password │\n│ int │ varchar │\n├────┼────┤\n│ 1 │ hunter22 │",
                "│ id │ password │\n│ int │ varchar │\n├────┼────┤\n│ 1 │ # │",
            ),
            ("id,password\\n1,hunter22\\nend", "id,password\\n1,#\\nend"),
        ] {
            assert_eq!(masked(text), expected);
        }
    }

    #[test]
    fn other_lines_with_separators_are_not_tables() {
        for text in [
            "SELECT id, password\nFROM users, tokens2024\n",
            "from x import token, password\nfrom y import foo2, bar_2",
            "| password | the hash9 of it |\n| token | see docs2 |",
            "user, password = login()\nuser, name2 = other()",
            "Give a name, then a password\nand wait2, then go9on",
            "id, password, x\n  one2, two2, three2",
            "| password | type |\n|---|---|\n| required | varchar(20) |",
        ] {
            assert_eq!(masked(text), text);
        }
    }
}
