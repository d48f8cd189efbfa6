//! Layout of text for reading: JSON is indented, coloured and folded, Markdown is rendered, rows of queries are aligned,
//! and everything else is wrapped.
//!
//! Layout works in slices, so that a result of megabytes does not block the keyboard, and accepts a prefix of a value.
//! A document does not own recorded bytes: its lines are safe text cut to the width; the text of each section is kept
//! for copying.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::theme::StyleRole;
use ingestdeck_core::text;

mod json;
mod markdown;
pub(crate) mod query;
mod query_table;
pub(crate) mod text_diff;

pub(crate) use json::JsonFormatter;
use query_table::QueryTable;

/// Cost of a grapheme relative to one ASCII byte.
const NON_ASCII_COST: usize = 12;
/// Additional cost of a line.
const LINE: usize = 16;
/// Bytes of a text that are laid out before the budget is checked again.
const CHUNK: usize = 8 * 1024;

/// Lines that are ready to draw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaidOutDocument {
    /// Lines of (role, safe text).
    pub lines: Vec<Vec<(StyleRole, String)>>,
    /// Sections with the lines at which they begin.
    pub sections: Vec<DocumentSection>,
    /// Lines with a JSON value that can be folded.
    pub folds: BTreeMap<usize, JsonNodeId>,
}

/// The beginning of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DocumentSection {
    /// Line of the heading.
    pub line: usize,
    /// Name of the content, shown after copying it.
    pub what: &'static str,
    /// The original text of the section, for copying.
    pub text: Option<Arc<str>>,
}

/// Position of a JSON value in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct JsonNodeId {
    /// Number of the JSON text in the document.
    pub part: u32,
    /// Byte offset in that text.
    pub at: u32,
}

impl LaidOutDocument {
    /// The text of a line, without roles.
    pub(crate) fn text(&self, line: usize) -> String {
        self.lines
            .get(line)
            .into_iter()
            .flatten()
            .map(|(_, text)| text.as_str())
            .collect()
    }

    /// The section that contains a line.
    pub(crate) fn section(&self, line: usize) -> Option<&DocumentSection> {
        let place = self
            .sections
            .partition_point(|section| section.line <= line);
        self.sections.get(place.checked_sub(1)?)
    }
}

/// A block that is to be laid out.
#[derive(Clone, Debug)]
pub(crate) enum DocumentBlock {
    /// A section: a heading with facts, and the text that can be copied.
    Section {
        /// Name of the content, shown after copying it.
        what: &'static str,
        title: String,
        /// Facts next to the heading.
        facts: Vec<(StyleRole, String)>,
        /// The original text of the section, for copying.
        text: Option<Arc<str>>,
    },
    /// One line of several roles, wrapped between words; continuation rows are indented.
    Spans {
        /// Columns before the first row.
        indent: usize,
        /// Columns before the continuation rows.
        hang: usize,
        /// Texts with their roles.
        runs: Vec<(StyleRole, String)>,
    },
    /// Text, line by line.
    Text {
        role: StyleRole,
        text: Arc<str>,
        /// Bytes that are already laid out.
        at: usize,
    },
    /// JSON, or the beginning of it.
    Json(JsonFormatter),
    /// Text in Markdown syntax.
    Markdown {
        text: Arc<str>,
    },
    /// The rows of a query.
    Table(QueryTable),
    BlankLine,
}

impl DocumentBlock {
    /// The heading of a section that is titled `what`.
    pub(crate) fn section(what: &'static str, text: Option<Arc<str>>) -> Self {
        Self::titled(what, what.to_owned(), Vec::new(), text)
    }

    /// The heading of a section with another title, followed by facts.
    pub(crate) fn titled(
        what: &'static str,
        title: String,
        facts: Vec<(StyleRole, String)>,
        text: Option<Arc<str>>,
    ) -> Self {
        Self::Section {
            what,
            title,
            facts,
            text,
        }
    }

    /// A line of one role.
    pub(crate) fn line(role: StyleRole, text: impl Into<String>) -> Self {
        Self::Spans {
            indent: 0,
            hang: 0,
            runs: vec![(role, text.into())],
        }
    }

    /// A line with a name and its value.
    pub(crate) fn fact(name: &str, role: StyleRole, value: impl Into<String>) -> Self {
        const NAMES: usize = 16;
        let name = format!("{name:<NAMES$} ");
        Self::Spans {
            indent: 2,
            hang: 2 + NAMES + 1,
            runs: vec![(StyleRole::Dim, name), (role, value.into())],
        }
    }

    pub(crate) fn text(role: StyleRole, text: impl Into<Arc<str>>) -> Self {
        Self::Text {
            role,
            text: text.into(),
            at: 0,
        }
    }
}

/// The layout of a document, in progress or complete.
#[derive(Debug)]
pub(crate) struct DocumentLayout {
    writer: LayoutWriter,
    /// Blocks that are not laid out yet, in reverse order.
    blocks: Vec<DocumentBlock>,
    /// Folds that the user opened or closed.
    toggled_folds: BTreeSet<JsonNodeId>,
    parts: u32,
}

impl DocumentLayout {
    /// A layout of `pieces` at a width in columns. No block is laid out yet.
    pub(crate) fn new(
        mut pieces: Vec<DocumentBlock>,
        turned: BTreeSet<JsonNodeId>,
        width: u16,
    ) -> Self {
        pieces.reverse();
        Self {
            writer: LayoutWriter::new(width),
            blocks: pieces,
            toggled_folds: turned,
            parts: 0,
        }
    }

    /// The lines that are laid out so far.
    pub(crate) fn document(&self) -> &LaidOutDocument {
        &self.writer.document
    }

    /// The lines that are laid out so far, when no more are needed.
    pub(crate) fn into_document(self) -> LaidOutDocument {
        self.writer.finish()
    }

    /// True when every block is laid out.
    pub(crate) fn is_complete(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Lays out about `budget` more bytes.
    pub(crate) fn step(&mut self, budget: usize) {
        self.writer.cost = 0;
        while self.writer.cost < budget {
            let Some(piece) = self.blocks.pop() else {
                return;
            };
            if let Some(rest) = self.layout_block(piece) {
                self.blocks.push(rest);
            }
        }
    }

    /// Lays out a block or the beginning of it, and returns the rest.
    fn layout_block(&mut self, piece: DocumentBlock) -> Option<DocumentBlock> {
        let writer = &mut self.writer;
        match piece {
            DocumentBlock::BlankLine => writer.line(StyleRole::Text, ""),
            DocumentBlock::Section {
                what,
                title,
                facts,
                text,
            } => {
                let line = writer.document.lines.len();
                writer
                    .document
                    .sections
                    .push(DocumentSection { line, what, text });
                writer.put(StyleRole::Strong, &title);
                for (role, fact) in facts {
                    writer.put(StyleRole::Dim, " · ");
                    writer.wrapped_text(role, &fact);
                }
                writer.end_line();
            }
            DocumentBlock::Spans { indent, hang, runs } => writer.spans(indent, hang, &runs),
            DocumentBlock::Text { role, text, at } => {
                let at = writer.text(role, &text, at);
                return (at < text.len()).then_some(DocumentBlock::Text { role, text, at });
            }
            DocumentBlock::Json(mut pretty) => {
                if pretty.part.is_none() {
                    pretty.part = Some(self.parts);
                    self.parts += 1;
                }
                return pretty
                    .step(writer, &self.toggled_folds)
                    .then_some(DocumentBlock::Json(pretty));
            }
            DocumentBlock::Markdown { text } => self
                .blocks
                .extend(markdown::markdown_blocks(&text).into_iter().rev()),
            DocumentBlock::Table(table) => {
                let below = table.write(writer);
                let has_more = !below.is_empty();
                return has_more.then(|| DocumentBlock::text(StyleRole::Dim, below));
            }
        }
        None
    }
}

/// Lays out blocks one below the other.
#[derive(Debug)]
pub(crate) struct LayoutWriter {
    document: LaidOutDocument,
    line: Vec<(StyleRole, String)>,
    used: usize,
    indent: usize,
    width: usize,
    cost: usize,
}

impl LayoutWriter {
    /// A writer for lines of `width` columns.
    pub(crate) fn new(width: u16) -> Self {
        let width = usize::from(width).max(4);
        Self {
            document: LaidOutDocument::default(),
            line: Vec::new(),
            used: 0,
            indent: 0,
            width,
            cost: 0,
        }
    }

    /// Ends the last line and returns the document.
    pub(crate) fn finish(mut self) -> LaidOutDocument {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.document
    }

    /// Writes a text on a separate line.
    pub(crate) fn line(&mut self, role: StyleRole, text: &str) {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.indent = 0;
        self.put(role, text);
        self.end_line();
    }

    /// Writes a row of safe text that fits the width.
    fn row(&mut self, row: Vec<(StyleRole, String)>) {
        self.cost += row.iter().map(|(_, text)| text.len()).sum::<usize>();
        self.line = row;
        self.end_line();
    }

    /// Lays out text from `at` on until a chunk is full, and returns where it stopped.
    fn text(&mut self, role: StyleRole, text: &str, mut at: usize) -> usize {
        let until = at.saturating_add(CHUNK);
        self.indent = 0;
        while at < text.len() && at < until {
            let rest = &text[at..];
            let (line, next) = match memchr::memchr(b'\n', rest.as_bytes()) {
                Some(end) => (&rest[..end], at + end + 1),
                None => (rest, text.len()),
            };
            if line.len() > CHUNK {
                // The line is longer than a chunk; its rest continues in the same row.
                let end = char_boundary(line, CHUNK);
                self.put(role, &line[..end]);
                return at + end;
            }
            self.wrapped_text(role, line.strip_suffix('\r').unwrap_or(line));
            self.end_line();
            at = next;
        }
        at
    }

    /// One line of several roles.
    fn spans(&mut self, indent: usize, hang: usize, runs: &[(StyleRole, String)]) {
        self.indent = indent.min(self.width / 2);
        for (role, text) in runs {
            self.wrapped_text(*role, text);
            if self.used > 0 {
                self.indent = hang.min(self.width / 2);
            }
        }
        self.end_line();
        self.indent = 0;
    }

    /// Lays out text, broken between words if possible.
    fn wrapped_text(&mut self, role: StyleRole, text: &str) {
        for word in text.split_inclusive(' ') {
            let wide = text::width(word.trim_end_matches(' '));
            if self.used > self.indent
                && self.used + wide > self.width
                && wide <= self.width - self.indent
            {
                self.end_line();
            }
            let text = word.trim_end_matches(' ');
            self.put(role, text);
            // A space that does not fit is the end of the line.
            let room = self.width - self.used.min(self.width);
            let spaces = word.len() - text.len();
            self.put(role, &word[text.len()..][..spaces.min(room)]);
        }
    }

    fn new_line(&mut self, depth: usize) {
        /// Largest indent that is drawn.
        const DEEPEST: usize = 24;
        self.end_line();
        self.indent = (depth.min(DEEPEST) * 2).min(self.width / 2);
    }

    fn end_line(&mut self) {
        self.document.lines.push(std::mem::take(&mut self.line));
        self.used = 0;
        self.cost += LINE;
    }

    fn put(&mut self, role: StyleRole, mut text: &str) {
        while !text.is_empty() {
            let plain = plain_prefix(text);
            if plain > 0 {
                self.begin(1);
                let fits = plain.min(self.width - self.used).max(1);
                self.push(role, &text[..fits], fits);
                self.cost += fits;
                text = &text[fits..];
            } else {
                let end = non_plain_prefix(text);
                for piece in text::printable_pieces(&text[..end]) {
                    match text::column_count(&piece) {
                        wide if wide <= self.width => self.place(role, &piece, wide),
                        // An escape that is wider than the line continues in the next one.
                        _ => text::graphemes(&piece)
                            .for_each(|part| self.place(role, part, text::column_count(part))),
                    }
                    self.cost += NON_ASCII_COST;
                }
                text = &text[end..];
            }
        }
    }

    fn place(&mut self, role: StyleRole, part: &str, wide: usize) {
        let wide = wide.min(self.width);
        self.begin(wide);
        self.push(role, part, wide);
    }

    /// Ensures that `wide` columns are free, on a new line if necessary.
    fn begin(&mut self, wide: usize) {
        if self.used > 0 && self.used + wide > self.width {
            self.end_line();
        }
        if self.used == 0 && self.indent > 0 {
            self.used = self.indent.min(self.width - wide);
            self.line.push((StyleRole::Text, " ".repeat(self.used)));
        }
    }

    fn push(&mut self, role: StyleRole, text: &str, wide: usize) {
        match self.line.last_mut() {
            Some((last, line)) if *last == role => line.push_str(text),
            _ => self.line.push((role, text.to_owned())),
        }
        self.used += wide;
    }
}

/// Number of leading bytes that take one column each, whatever follows them.
fn plain_prefix(text: &str) -> usize {
    let bytes = text.as_bytes();
    let end = bytes
        .iter()
        .position(|byte| !(b' '..=b'~').contains(byte))
        .unwrap_or(bytes.len());
    // The last character may be combined with a following mark.
    if end < bytes.len() {
        end.saturating_sub(usize::from(bytes[end] >= 0x80))
    } else {
        end
    }
}

/// Number of leading bytes up to two adjacent plain characters; no grapheme cluster extends beyond them.
fn non_plain_prefix(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_plain = |byte: u8| (b' '..=b'~').contains(&byte);
    let end = (1..bytes.len().saturating_sub(1))
        .find(|at| is_plain(bytes[*at]) && is_plain(bytes[*at + 1]));
    end.unwrap_or(bytes.len())
}

/// The largest character boundary up to `most`, before a plain character if there is one nearby.
fn char_boundary(text: &str, most: usize) -> usize {
    if text.len() <= most {
        return text.len();
    }
    let bytes = text.as_bytes();
    let near = (most.saturating_sub(64)..=most)
        .rev()
        .find(|at| bytes[*at].is_ascii_graphic() && *at > 0);
    near.or_else(|| (1..=most).rev().find(|at| text.is_char_boundary(*at)))
        .unwrap_or(text.len())
}

#[cfg(test)]
mod tests;
