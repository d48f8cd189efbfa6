//! The rows that a query returned, as a table that fits the width: figures to the right, long cells cut, and the names
//! of the columns for which there is no room.
//!
//! Only an answer that is a table from its first to its last row becomes one; any other text is shown as it is.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{LayoutWriter, StyleRole, char_boundary};
use ingestdeck_core::text::{self, pluralize};

/// Maximum number of rows that are shown.
const MAX_ROWS: usize = 1_000;
/// Maximum number of columns that are kept. A wide screen has room for fewer.
const MAX_COLUMNS: usize = 100;
/// Bytes of a cell that are kept.
const MAX_CELL_BYTES: usize = 1_024;
/// Width that a column of text keeps when others need room.
const MAX_KEPT_TEXT: usize = 8;
/// Width that a column of figures keeps, because the beginning of a figure misleads.
const MAX_KEPT_FIGURE: usize = 20;
/// Columns whose names are listed if they do not fit.
const MAX_NAMED: usize = 5;
/// Separators of columns, in rows and below the header.
const SEPARATORS: [&str; 2] = [" │ ", "─┼─"];
/// Columns that a separator takes.
const GAP: usize = 3;

/// A table, or the beginning of a large one.
#[derive(Clone, Debug)]
pub(crate) struct QueryTable {
    /// Names of the first columns.
    headers: Vec<String>,
    /// The cells of the first columns in the first rows.
    rows: Vec<Vec<String>>,
    column_count: usize,
    row_count: usize,
    /// Text below the rows: their number, and whether there are more.
    note: String,
}

/// An answer in the form of KTX's own server.
#[derive(Deserialize)]
struct StructuredAnswer<'a> {
    headers: Vec<String>,
    #[serde(borrow)]
    rows: Vec<Vec<&'a RawValue>>,
    #[serde(rename = "rowCount")]
    row_count: u64,
}

/// The widths of a column, and how it is aligned.
struct TableColumn {
    width: usize,
    /// Width that it keeps when others need room.
    least: usize,
    /// True if all values are numbers.
    is_figure: bool,
}

impl QueryTable {
    pub(super) fn parse(answer: &str) -> Option<Self> {
        if answer.starts_with('{') {
            Self::from_json(answer)
        } else {
            Self::from_markdown(answer)
        }
    }

    fn from_markdown(answer: &str) -> Option<Self> {
        let mut rest = answer;
        let mut next_row = || {
            let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
            line.starts_with('|').then(|| {
                rest = after;
                split_row(line)
            })
        };
        let (headers, rule) = (next_row()??, next_row()??);
        if rule.len() != headers.len() || rule.iter().any(|cell| *cell != "---") {
            return None;
        }
        let mut table = Self::new(headers.into_iter().map(markdown_cell));
        while let Some(row) = next_row() {
            table.push(row?.into_iter().map(markdown_cell))?;
        }
        // A row below another text is not a row of this table.
        if rest.lines().any(|line| line.starts_with('|')) {
            return None;
        }
        table.note = rest.trim().to_owned();
        Some(table)
    }

    fn from_json(answer: &str) -> Option<Self> {
        let found: StructuredAnswer<'_> = serde_json::from_str(answer).ok()?;
        if found.headers.is_empty() {
            return None;
        }
        let mut table = Self::new(found.headers.iter().map(|name| shortened(name)));
        for row in &found.rows {
            table.push(row.iter().map(json_cell))?;
        }
        table.note = pluralize(table.row_count, "row");
        if found.row_count > table.row_count as u64 {
            table.note.push_str(&format!(" of {}", found.row_count));
        }
        Some(table)
    }

    fn new(headers: impl ExactSizeIterator<Item = String>) -> Self {
        Self {
            column_count: headers.len(),
            headers: headers.take(MAX_COLUMNS).collect(),
            rows: Vec::new(),
            row_count: 0,
            note: String::new(),
        }
    }

    /// Adds a row. `None` if it has another number of cells than the header.
    fn push(&mut self, row: impl ExactSizeIterator<Item = String>) -> Option<()> {
        if row.len() != self.column_count {
            return None;
        }
        self.row_count += 1;
        if self.rows.len() < MAX_ROWS {
            self.rows.push(row.take(MAX_COLUMNS).collect());
        }
        Some(())
    }

    /// Writes the lines of the table, and returns the text below them.
    pub(super) fn write(self, writer: &mut LayoutWriter) -> String {
        let columns = self.fitted_columns(writer.width);
        let left_out = self.column_count - columns.len();
        if left_out > 0 {
            let names = self.headers.iter().skip(columns.len()).take(MAX_NAMED);
            let names: Vec<_> = names.map(|name| text::printable(name, 40)).collect();
            let more = match left_out - names.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let all = pluralize(self.column_count, "column");
            let text = format!("{left_out} of {all} do not fit: {}{more}", names.join(", "));
            writer.spans(0, 0, &[(StyleRole::Warning, text)]);
        }
        writer.row(row_line(StyleRole::Strong, &self.headers, &columns));
        let rule: Vec<String> = columns
            .iter()
            .map(|column| "─".repeat(column.width))
            .collect();
        writer.row(vec![(StyleRole::Dim, rule.join(SEPARATORS[1]))]);
        for row in &self.rows {
            writer.row(row_line(StyleRole::Text, row, &columns));
        }
        if self.row_count > self.rows.len() {
            let more = pluralize(self.row_count - self.rows.len(), "more row");
            writer.line(StyleRole::Warning, &format!("… {more}"));
        }
        self.note
    }

    /// The first columns, as many as fit into `room`. The widest are cut until all of them have room.
    fn fitted_columns(&self, room: usize) -> Vec<TableColumn> {
        let mut columns: Vec<TableColumn> = (0..self.headers.len())
            .map(|index| self.column(index, room))
            .collect();
        let mut used = 0;
        let fitting = columns.iter().take_while(|column| {
            used += column.least + GAP;
            used <= room + GAP
        });
        columns.truncate(fitting.count().max(1));
        let room = room.saturating_sub((columns.len() - 1) * GAP);
        let width = |column: &TableColumn, most: usize| column.width.min(most.max(column.least));
        let fits = |most: &usize| {
            let widths = columns.iter().map(|column| width(column, *most));
            widths.sum::<usize>() <= room
        };
        let most = (1..=room).rev().find(fits).unwrap_or(1);
        for column in &mut columns {
            column.width = width(column, most);
        }
        columns
    }

    /// A column with the width of its widest cell, at most `room`.
    fn column(&self, index: usize, room: usize) -> TableColumn {
        let cells = || self.rows.iter().filter_map(move |row| row.get(index));
        let values = || cells().filter(|cell| !matches!(cell.as_str(), "" | "NULL"));
        let is_figure = values().next().is_some() && values().all(|cell| is_number(cell));
        let widest = |cells: &mut dyn Iterator<Item = &String>| {
            let widths = cells.map(|cell| text::width_up_to(cell, room));
            widths.max().unwrap_or_default().max(1)
        };
        let width = widest(&mut self.headers.get(index).into_iter().chain(cells()));
        let least = match is_figure {
            true => widest(&mut cells()).min(MAX_KEPT_FIGURE),
            false => width.min(MAX_KEPT_TEXT),
        };
        TableColumn {
            width,
            least,
            is_figure,
        }
    }
}

/// A row of safe text, each cell with the width of its column.
fn row_line(
    role: StyleRole,
    cells: &[String],
    columns: &[TableColumn],
) -> Vec<(StyleRole, String)> {
    let mut runs = Vec::new();
    for (cell, column) in cells.iter().zip(columns) {
        if !runs.is_empty() {
            runs.push((StyleRole::Dim, SEPARATORS[0].to_owned()));
        }
        let cell = text::printable(cell, column.width);
        let space = " ".repeat(column.width.saturating_sub(text::width(&cell)));
        let run = if column.is_figure {
            format!("{space}{cell}")
        } else {
            format!("{cell}{space}")
        };
        runs.push((role, run));
    }
    runs
}

/// The cells of a row of Markdown; `None` if the line is not a row. A `|` in a cell has a backslash before it.
fn split_row(line: &str) -> Option<Vec<&str>> {
    let inside = line.strip_prefix("| ")?.strip_suffix(" |")?;
    let (mut cells, mut start) = (Vec::new(), 0);
    for at in memchr::memchr_iter(b'|', inside.as_bytes()) {
        let cell = inside.get(start..at)?;
        if !cell.ends_with('\\') {
            cells.push(cell.strip_suffix(' ')?);
            start = at + 2;
            inside.get(at + 1..start).filter(|space| *space == " ")?;
        }
    }
    cells.push(inside.get(start..)?);
    Some(cells)
}

/// A cell of Markdown as the database has it.
fn markdown_cell(cell: &str) -> String {
    shortened(cell).replace("\\|", "|")
}

/// A value of JSON as people write it.
fn json_cell(value: &&RawValue) -> String {
    match serde_json::from_str::<Option<String>>(value.get()) {
        Ok(Some(text)) => shortened(&text),
        Ok(None) => "NULL".to_owned(),
        Err(_) => shortened(value.get()),
    }
}

fn shortened(cell: &str) -> String {
    match char_boundary(cell, MAX_CELL_BYTES) {
        end if end < cell.len() => format!("{}…", &cell[..end]),
        _ => cell.to_owned(),
    }
}

fn is_number(cell: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    cell.bytes().all(is_part) && cell.parse::<f64>().is_ok()
}
