//! Tables on stdout: aligned text for people, JSON lines and CSV for programs. It must not know what a table contains.

use std::{
    borrow::Cow,
    io::{self, StdoutLock, Write},
};

use serde_json::{Map, Value};

use super::{
    args::{GlobalArgs, TableFormat, Ui},
    exit::CliError,
    output::{self, EscapingWriter},
    playback_output,
};
use ingestdeck_core::text;
use ingestdeck_report::redact::Redactor;

/// Rows that are read before the widths of a text table are decided.
const MEASURED_ROWS: usize = 1_000;
/// Maximum width of a column of a text table on a terminal, except the last one.
const MAX_WIDTH: usize = 48;

/// Writes one table, row by row. Secrets of known kinds are masked.
pub(super) struct TableWriter {
    out: EscapingWriter<StdoutLock<'static>>,
    format: TableFormat,
    columns: Vec<String>,
    /// `v` of each JSON object, if the format has a version.
    version: Option<u64>,
    redactor: Redactor,
    /// Rows of a text table whose widths are not decided yet.
    measured: Vec<Vec<String>>,
    /// Width of each column, and whether it is aligned to the right.
    layout: Option<Vec<(usize, bool)>>,
    /// Maximum width of a column, except the last one.
    max_width: usize,
    result: io::Result<()>,
}

impl TableFormat {
    /// The requested format, or the one that fits `--ui`.
    pub(super) fn resolve(requested: Option<Self>, global: &GlobalArgs) -> Self {
        requested.unwrap_or(if global.ui == Ui::Json {
            Self::Json
        } else {
            Self::Text
        })
    }
}

impl TableWriter {
    pub(super) fn new(
        format: TableFormat,
        columns: Vec<String>,
        version: Option<u64>,
        redactor: Redactor,
    ) -> Self {
        let out = output::stdout_for(if format == TableFormat::Json {
            Ui::Json
        } else {
            Ui::Lines
        });
        let (measured, layout, max_width, result) =
            (Vec::new(), None, output::max_width(MAX_WIDTH), Ok(()));
        let mut table = Self {
            out,
            format,
            columns,
            version,
            redactor,
            measured,
            layout,
            max_width,
            result,
        };
        if format == TableFormat::Csv {
            let header = csv_record(
                table
                    .columns
                    .iter()
                    .map(|name| Cow::Borrowed(name.as_str())),
            );
            table.write(header.as_bytes());
        }
        table
    }

    /// Writes a row with one value per column. Returns false once the output is closed.
    pub(super) fn push(&mut self, mut row: Vec<Value>) -> bool {
        row.iter_mut().for_each(|value| self.mask(value));
        match self.format {
            TableFormat::Json => {
                let version = self.version.map(|version| ("v".to_owned(), version.into()));
                let object: Map<String, Value> = version
                    .into_iter()
                    .chain(self.columns.iter().cloned().zip(row))
                    .collect();
                self.write(format!("{}\n", Value::Object(object)).as_bytes());
            }
            TableFormat::Csv => self.write(csv_record(row.iter().map(csv_field)).as_bytes()),
            TableFormat::Text => {
                self.measured.push(row.iter().map(display).collect());
                if self.layout.is_some() || self.measured.len() >= MEASURED_ROWS {
                    self.write_measured();
                }
            }
        }
        self.result.is_ok()
    }

    /// Writes an object with this name, which is not a row, for programs that read JSON.
    pub(super) fn push_object(&mut self, name: &str, object: Value) {
        if self.format == TableFormat::Json {
            let version = self.version.map(|version| ("v".to_owned(), version.into()));
            let line: Map<String, Value> = version
                .into_iter()
                .chain([(name.to_owned(), object)])
                .collect();
            self.write(format!("{}\n", Value::Object(line)).as_bytes());
        }
    }

    /// Writes the rest of the table, and then `note` if it is for people.
    pub(super) fn finish(mut self, note: &str) -> Result<(), CliError> {
        if self.format == TableFormat::Text {
            self.write_measured();
            self.write(note.as_bytes());
        }
        self.result
            .and_then(|()| self.out.flush())
            .map_err(|error| playback_output::stdout_failed(&error))
    }

    /// Masks secrets. A caller that shortens texts does so before.
    pub(super) fn mask(&mut self, value: &mut Value) {
        if let Value::String(text) = value {
            *text = self.redactor.text(text).to_string();
        }
    }

    fn write_measured(&mut self) {
        let rows = std::mem::take(&mut self.measured);
        let layout = match self.layout.take() {
            Some(layout) => layout,
            None if rows.is_empty() => return,
            None => {
                let layout = measure(&self.columns, &rows, self.max_width);
                self.write(text_line(&self.columns, &layout, self.max_width).as_bytes());
                layout
            }
        };
        rows.iter()
            .for_each(|row| self.write(text_line(row, &layout, self.max_width).as_bytes()));
        self.layout = Some(layout);
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.result.is_ok() {
            self.result = self.out.write_all(bytes);
        }
    }
}

fn measure(columns: &[String], rows: &[Vec<String>], max_width: usize) -> Vec<(usize, bool)> {
    let is_figure = |cell: &String| {
        let cell = cell.trim_start_matches(['$', '-', '≥', ' ']);
        let is_number =
            cell.starts_with(|first: char| first.is_ascii_digit()) && !cell.contains(['-', ':']);
        cell.is_empty() || cell == "?" || is_number
    };
    let measure_column = |(index, name): (usize, &String)| {
        let cells = || rows.iter().filter_map(|row| row.get(index));
        let widest = cells()
            .map(|cell| text::width(cell))
            .max()
            .unwrap_or_default();
        (
            widest.max(text::width(name)).min(max_width),
            cells().all(is_figure),
        )
    };
    columns.iter().enumerate().map(measure_column).collect()
}

/// A row. Cells of rows that were not measured may be wider than their column, up to `max_width`.
fn text_line(cells: &[String], layout: &[(usize, bool)], max_width: usize) -> String {
    let mut line = String::new();
    for (index, (cell, (width, is_right))) in cells.iter().zip(layout).enumerate() {
        let is_last = index + 1 == layout.len();
        let cell = match is_last && !is_right {
            true => text::printable(cell, usize::MAX),
            false => text::fit_middle(cell, max_width, "…"),
        };
        let pad = width.saturating_sub(text::width(&cell));
        match (is_right, is_last) {
            (true, _) => line.push_str(&format!("{:pad$}{cell}", "")),
            (false, true) => line.push_str(&cell),
            (false, false) => line.push_str(&format!("{cell}{:pad$}", "")),
        }
        if !is_last {
            line.push_str("  ");
        }
    }
    line.truncate(line.trim_end().len());
    line.push('\n');
    line
}

fn display(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The text of a field. A spreadsheet must not run text as a formula, so such a text gets an apostrophe in front.
fn csv_field(value: &Value) -> Cow<'_, str> {
    match value {
        Value::Null => "".into(),
        Value::String(text) if text.starts_with(['=', '+', '-', '@', '\t', '\r']) => {
            format!("'{text}").into()
        }
        Value::String(text) => text.as_str().into(),
        other => other.to_string().into(),
    }
}

/// A record of CSV as RFC 4180 describes it, with a line feed at its end.
fn csv_record<'a>(fields: impl Iterator<Item = Cow<'a, str>>) -> String {
    let quoted = fields.map(|field| {
        if field.contains([',', '"', '\n', '\r']) || field.starts_with(' ') || field.ends_with(' ')
        {
            format!("\"{}\"", field.replace('"', "\"\"")).into()
        } else {
            field
        }
    });
    quoted.collect::<Vec<_>>().join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn csv_fields_are_quoted_and_never_formulas() {
        let row = [
            json!("a,b"),
            json!("a \"x\""),
            json!("=1+1"),
            json!(null),
            json!(-1.5),
            json!("two\nlines"),
        ];
        let expected = "\"a,b\",\"a \"\"x\"\"\",'=1+1,,-1.5,\"two\nlines\"\n";
        assert_eq!(csv_record(row.iter().map(csv_field)), expected);
    }

    #[test]
    fn figures_are_aligned_to_the_right() {
        let rows =
            [["a", "$1.00", "x"], ["long", "$?", "yy"]].map(|row| row.map(str::to_owned).to_vec());
        let columns = ["name", "cost", "last"].map(str::to_owned);
        let layout = measure(&columns, &rows, MAX_WIDTH);
        assert_eq!(
            text_line(&columns, &layout, MAX_WIDTH),
            "name   cost  last\n"
        );
        assert_eq!(text_line(&rows[1], &layout, MAX_WIDTH), "long     $?  yy\n");
        let wide = ["w".repeat(100), String::new(), "z".repeat(100)];
        let layout = measure(&columns, &[wide.to_vec()], MAX_WIDTH);
        assert_eq!(
            text::width(&text_line(&wide, &layout, MAX_WIDTH)),
            MAX_WIDTH + 2 + 4 + 2 + 100 + 2
        );
    }

    #[test]
    fn only_a_terminal_cuts_names_and_keeps_their_ends() {
        let rows =
            ["one", "two"].map(|end| vec![format!("{}-{end}", "a".repeat(90)), "x".to_owned()]);
        let columns = ["unit", "last"].map(str::to_owned);
        let lines = |max_width| {
            let layout = measure(&columns, &rows, max_width);
            rows.each_ref()
                .map(|row| text_line(row, &layout, max_width))
        };
        let [one, two] = lines(MAX_WIDTH);
        assert!(
            one.contains("…") && one != two && text::width(&one) == MAX_WIDTH + 2 + 1 + 2,
            "{one}"
        );
        let [one, _] = lines(usize::MAX);
        assert_eq!(one, format!("{}-one  x\n", "a".repeat(90)));
    }
}
