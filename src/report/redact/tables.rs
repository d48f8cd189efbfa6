//! Columns of secrets in tables that are text: CSV, Markdown, and what database clients print. Pure.

use std::ops::Range;

use super::names;

/// A longer line is not the head of a table.
const WIDEST: usize = 4 << 10;

/// Bytes and words of the longest name of a column.
const LONGEST_NAME: usize = 40;
const NAME_WORDS: usize = 4;

/// First words of names of columns in capital letters, which a statement does not begin with.
const ACRONYMS: &[&str] = &["API ", "AWS ", "DB ", "SSH "];

/// Separators of columns. Those with a frame have a line of dashes between the head and the rows.
const SEPARATORS: &[char] = &['|', '│', '\t', ';', ','];
const FRAMED: &[char] = &['|', '│'];

/// Characters of the lines between rows.
const RULE: &str = "+-|: =│├┼┤─═╪╞╡┌┬┐└┴┘";

/// Adds the cells of the secret columns of the tables in `text`, whose heads have no secret.
pub(super) fn find(text: &str, spans: &mut Vec<Range<usize>>) {
    let lines = lines(text);
    let mut secrets: Vec<usize> = spans.iter().map(|span| span.start).collect();
    secrets.sort_unstable();
    let mut at = 0;
    while at + 1 < lines.len() {
        let head = &lines[at];
        let before = |end: usize| secrets.partition_point(|secret| *secret < end);
        if before(head.start) < before(head.end) {
            at += 1;
            continue;
        }
        let rows = SEPARATORS
            .iter()
            .filter(|separator| head.len() <= WIDEST && text[head.clone()].contains(**separator))
            .find_map(|separator| table(text, &lines[at..], *separator, spans));
        at += rows.unwrap_or(1);
    }
}

/// Adds the secret cells of the table whose head is the first of `lines`, and returns the number of its lines.
fn table(
    text: &str,
    lines: &[Range<usize>],
    separator: char,
    spans: &mut Vec<Range<usize>>,
) -> Option<usize> {
    let is_framed = FRAMED.contains(&separator);
    let columns = cells(text, lines[0].clone(), separator);
    let columns: Vec<&str> = columns.into_iter().map(|name| &text[name]).collect();
    if columns.len() < 2 || !columns.iter().all(|name| is_column(name, is_framed)) {
        return None;
    }
    let kinds: Vec<_> = columns.iter().map(|name| names::kind_of(name)).collect();
    if kinds.iter().all(Option::is_none) {
        return None;
    }
    let indent =
        |line: &Range<usize>| line.len() - text[line.clone()].trim_start_matches([' ', '\t']).len();
    let is_rule = |line: &Range<usize>| text[line.clone()].chars().all(|char| RULE.contains(char));
    // DuckDB prints the types between the names and the line of dashes.
    let first = match is_framed {
        true => {
            1 + lines
                .iter()
                .take(3)
                .skip(1)
                .position(|line| is_rule(line) && !line.is_empty())?
        }
        false => 1,
    };
    for (at, line) in lines.iter().enumerate().skip(first) {
        let values = cells(text, line.clone(), separator);
        let is_row =
            values.len() == columns.len() && (is_framed || indent(line) == indent(&lines[0]));
        if line.is_empty() || !is_row && !is_rule(line) {
            return Some(at);
        }
        for ((value, kind), name) in values.into_iter().zip(&kinds).zip(&columns) {
            let secret = kind.and_then(|kind| {
                names::secret(kind, name, &text[value.clone()], names::ValueEnd::Delimiter)
            });
            spans.extend(secret.map(|secret| value.start + secret.start..value.start + secret.end));
        }
    }
    Some(lines.len())
}

/// True for the name of a column; several words begin with a capital letter.
fn is_column(name: &str, is_framed: bool) -> bool {
    let words = name.split(' ').count();
    let first = name.chars().next().unwrap_or_default();
    let is_name = |char: char| char.is_alphanumeric() || " _-./".contains(char);
    let is_statement = words > 1
        && !ACRONYMS.iter().any(|start| name.starts_with(start))
        && name.starts_with(|char: char| char.is_ascii_uppercase())
        && name[1..].starts_with(|char: char| char.is_ascii_uppercase());
    (1..=LONGEST_NAME).contains(&name.len())
        && (first.is_alphabetic() || first == '_')
        && name.chars().all(is_name)
        && (words == 1 || words <= NAME_WORDS && (is_framed || first.is_uppercase()))
        && !is_statement
}

/// The cells of a line, without blanks and quotes around them.
fn cells(text: &str, line: Range<usize>, separator: char) -> Vec<Range<usize>> {
    let content = text[line.clone()].trim();
    let content = match FRAMED.contains(&separator) {
        true => content.trim_matches(separator),
        false => content,
    };
    let start = line.start + text[line].find(content).unwrap_or(0);
    let (mut cells, mut from, mut is_quoted) = (Vec::new(), 0, false);
    for (at, char) in content.char_indices().chain([(content.len(), separator)]) {
        if char == '"' && (is_quoted || content[from..at].trim().is_empty()) {
            is_quoted = !is_quoted;
        } else if char == separator && (!is_quoted || at == content.len()) {
            let cell = content[from..at].trim().trim_matches(['`', '*', '\\']);
            let inner = ['"', '\'']
                .iter()
                .find_map(|quote| cell.strip_prefix(*quote)?.strip_suffix(*quote));
            let cell = inner.unwrap_or(cell);
            let at_cell = start + (cell.as_ptr() as usize - content.as_ptr() as usize);
            cells.push(at_cell..at_cell + cell.len());
            from = (at + char.len_utf8()).min(content.len());
        }
    }
    cells
}

/// The lines of a text, whose ends may be written as escapes.
fn lines(text: &str) -> Vec<Range<usize>> {
    let (bytes, mut lines, mut start) = (text.as_bytes(), Vec::new(), 0);
    for at in memchr::memchr2_iter(b'\n', b'\\', bytes) {
        let length = if bytes[at] == b'\n' { 1 } else { 2 };
        if at >= start && (length == 1 || bytes.get(at + 1) == Some(&b'n')) {
            lines.push(start..at);
            start = at + length;
        }
    }
    lines.push(start..text.len());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str) -> String {
        let mut spans = Vec::new();
        find(text, &mut spans);
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
