//! Text laid out for reading: JSON indented, coloured and folded, Markdown rendered, everything wrapped.
//!
//! Works in slices, so that a result of megabytes never stalls a key, and on a prefix as well as on a whole value. Owns
//! no bytes of a record: what it shows is safe text, cut to the width; what it was made of is kept to be copied.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{text, theme::StyleRole};

mod json;
mod markdown;
pub mod text_diff;

pub use json::JsonFormatter;

/// What a grapheme costs beside a byte of plain ASCII.
const NON_ASCII_COST: usize = 12;
/// What a line costs on its own.
const LINE: usize = 16;
/// Bytes of a text that are laid out without looking at the budget.
const CHUNK: usize = 8 * 1024;

/// Lines that are ready to draw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaidOutDocument {
    /// Lines of (role, safe text).
    pub lines: Vec<Vec<(StyleRole, String)>>,
    /// Lines that begin a section, with what the section is made of.
    pub sections: Vec<DocumentSection>,
    /// Lines with a JSON value that can be folded.
    pub folds: BTreeMap<usize, FoldId>,
}

/// The beginning of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentSection {
    /// Line of the heading.
    pub line: usize,
    /// What it is.
    pub what: &'static str,
    /// The true text of it, to be copied.
    pub text: Option<Arc<str>>,
}

/// A JSON value in a document: which of its JSON texts, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FoldId {
    /// Number of the JSON text.
    pub part: u32,
    /// Byte in it.
    pub at: u32,
}

impl LaidOutDocument {
    /// The text of a line.
    pub fn text(&self, line: usize) -> String {
        self.lines.get(line).into_iter().flatten().map(|(_, text)| text.as_str()).collect()
    }

    /// The section that a line is in.
    pub fn section(&self, line: usize) -> Option<&DocumentSection> {
        let place = self.sections.partition_point(|section| section.line <= line);
        self.sections.get(place.checked_sub(1)?)
    }
}

/// Something to be laid out.
#[derive(Clone, Debug)]
pub enum DocumentBlock {
    /// A heading: a name, facts beside it, and what the section is made of.
    Section {
        /// What it is, for whoever copies it.
        what: &'static str,
        /// The heading.
        title: String,
        /// Facts beside the heading.
        facts: Vec<(StyleRole, String)>,
        /// What it is made of.
        text: Option<Arc<str>>,
    },
    /// One line of several roles, wrapped between words; later rows are indented.
    Spans {
        /// Columns before the first row.
        indent: usize,
        /// Columns before the later ones.
        hang: usize,
        /// What stands in it.
        runs: Vec<(StyleRole, String)>,
    },
    /// Text, line by line.
    Text {
        /// Its role.
        role: StyleRole,
        /// The text.
        text: Arc<str>,
        /// Bytes that are laid out already.
        at: usize,
    },
    /// JSON, or the beginning of it.
    Json(JsonFormatter),
    /// Markdown.
    Markdown {
        /// The text.
        text: Arc<str>,
    },
    /// An empty line.
    BlankLine,
}

impl DocumentBlock {
    /// A heading.
    pub fn section(what: &'static str, text: Option<Arc<str>>) -> Self {
        Self::titled(what, what.to_owned(), Vec::new(), text)
    }

    /// A heading with facts beside it.
    pub fn titled(what: &'static str, title: String, facts: Vec<(StyleRole, String)>, text: Option<Arc<str>>) -> Self {
        Self::Section { what, title, facts, text }
    }

    /// A line of one role.
    pub fn line(role: StyleRole, text: impl Into<String>) -> Self {
        Self::Spans { indent: 0, hang: 0, runs: vec![(role, text.into())] }
    }

    /// A name and its value.
    pub fn fact(name: &str, role: StyleRole, value: impl Into<String>) -> Self {
        const NAMES: usize = 16;
        let name = format!("{name:<NAMES$} ");
        Self::Spans { indent: 2, hang: 2 + NAMES + 1, runs: vec![(StyleRole::Dim, name), (role, value.into())] }
    }

    /// Text.
    pub fn text(role: StyleRole, text: impl Into<Arc<str>>) -> Self {
        Self::Text { role, text: text.into(), at: 0 }
    }
}

/// A document that is being laid out.
#[derive(Debug)]
pub struct DocumentLayout {
    writer: LayoutWriter,
    /// What is still to come, the next one last.
    blocks: Vec<DocumentBlock>,
    /// Folds that a person turned over.
    toggled_folds: BTreeSet<FoldId>,
    parts: u32,
}

impl DocumentLayout {
    /// A document of `pieces` for so many columns. Nothing is laid out yet.
    pub fn new(mut pieces: Vec<DocumentBlock>, turned: BTreeSet<FoldId>, width: u16) -> Self {
        pieces.reverse();
        Self { writer: LayoutWriter::new(width), blocks: pieces, toggled_folds: turned, parts: 0 }
    }

    /// What is laid out so far.
    pub fn document(&self) -> &LaidOutDocument {
        &self.writer.document
    }

    /// What is laid out, when no more of it is wanted.
    pub fn into_document(self) -> LaidOutDocument {
        self.writer.finish()
    }

    /// True when nothing more comes.
    pub fn is_complete(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Lays out about `budget` bytes more.
    pub fn step(&mut self, budget: usize) {
        self.writer.cost = 0;
        while self.writer.cost < budget {
            let Some(piece) = self.blocks.pop() else { return };
            if let Some(rest) = self.layout_block(piece) {
                self.blocks.push(rest);
            }
        }
    }

    /// Lays out a piece, or the beginning of it. Gives what is left.
    fn layout_block(&mut self, piece: DocumentBlock) -> Option<DocumentBlock> {
        let writer = &mut self.writer;
        match piece {
            DocumentBlock::BlankLine => writer.line(StyleRole::Text, ""),
            DocumentBlock::Section { what, title, facts, text } => {
                let line = writer.document.lines.len();
                writer.document.sections.push(DocumentSection { line, what, text });
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
                return pretty.step(writer, &self.toggled_folds).then_some(DocumentBlock::Json(pretty));
            }
            DocumentBlock::Markdown { text } => self.blocks.extend(markdown::markdown_blocks(&text).into_iter().rev()),
        }
        None
    }
}

/// Lays out parts one below the other.
#[derive(Debug)]
pub struct LayoutWriter {
    document: LaidOutDocument,
    line: Vec<(StyleRole, String)>,
    used: usize,
    indent: usize,
    width: usize,
    cost: usize,
}

impl LayoutWriter {
    /// A writer for so many columns.
    pub fn new(width: u16) -> Self {
        let width = usize::from(width).max(4);
        Self { document: LaidOutDocument::default(), line: Vec::new(), used: 0, indent: 0, width, cost: 0 }
    }

    /// The document.
    pub fn finish(mut self) -> LaidOutDocument {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.document
    }

    /// A line of its own.
    pub fn line(&mut self, role: StyleRole, text: &str) {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.indent = 0;
        self.put(role, text);
        self.end_line();
    }

    /// JSON, or the beginning of it, unfolded.
    pub fn json(&mut self, json: &str) {
        let mut pretty = JsonFormatter::unfolded(json);
        while pretty.step(self, &BTreeSet::new()) {}
    }

    /// Lays out text from `at` on, until a chunk is full. Gives where it stopped.
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
                // A line that is longer than any screen: the rest of it goes on in the same row.
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

    /// Text that is broken between words where that is possible.
    fn wrapped_text(&mut self, role: StyleRole, text: &str) {
        for word in text.split_inclusive(' ') {
            let wide = text::width(word.trim_end_matches(' '));
            if self.used > self.indent && self.used + wide > self.width && wide <= self.width - self.indent {
                self.end_line();
            }
            self.put(role, word);
        }
    }

    fn new_line(&mut self, depth: usize) {
        /// Deepest indent that is shown.
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
                        // An escape that is longer than the line goes on in the next one.
                        _ => text::graphemes(&piece).for_each(|part| self.place(role, part, text::column_count(part))),
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

    /// Makes room for so many columns, on a new line if need be.
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

/// Bytes at the beginning that take one column each, whatever comes after them.
fn plain_prefix(text: &str) -> usize {
    let bytes = text.as_bytes();
    let end = bytes.iter().position(|byte| !(b' '..=b'~').contains(byte)).unwrap_or(bytes.len());
    // The last one may carry a mark that follows it.
    if end < bytes.len() { end.saturating_sub(usize::from(bytes[end] >= 0x80)) } else { end }
}

/// Bytes at the beginning up to where two plain characters stand side by side: no cluster ends later.
fn non_plain_prefix(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_plain = |byte: u8| (b' '..=b'~').contains(&byte);
    let end = (1..bytes.len().saturating_sub(1)).find(|at| is_plain(bytes[*at]) && is_plain(bytes[*at + 1]));
    end.unwrap_or(bytes.len())
}

/// The largest boundary of characters up to `most`, before a plain character if there is one near.
fn char_boundary(text: &str, most: usize) -> usize {
    if text.len() <= most {
        return text.len();
    }
    let bytes = text.as_bytes();
    let near = (most.saturating_sub(64)..=most).rev().find(|at| bytes[*at].is_ascii_graphic() && *at > 0);
    near.or_else(|| (1..=most).rev().find(|at| text.is_char_boundary(*at))).unwrap_or(text.len())
}

#[cfg(test)]
mod tests;
