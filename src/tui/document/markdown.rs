//! Markdown layout: headings, lists, quotes, code and tables, with their syntax dimmed or removed.
//!
//! Unknown syntax is shown as text. It must not follow links or read files.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::{DocumentBlock, StyleRole};
use ingestdeck_core::text;

/// Longest text that is rendered; a longer one is shown as source.
const MAX_BYTES: usize = 256 * 1024;
/// Columns to which a column of a table is filled at most.
const MAX_COLUMN: usize = 40;
/// Columns per level of a list.
const STEP: usize = 2;

/// Lays out `text` as Markdown.
pub(super) fn markdown_blocks(text: &str) -> Vec<DocumentBlock> {
    if text.len() > MAX_BYTES {
        return vec![DocumentBlock::text(StyleRole::Text, text)];
    }
    let mut page = MarkdownRenderer::default();
    for event in Parser::new_ext(
        text,
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS,
    ) {
        page.event(event);
    }
    page.end_line();
    page.pieces
}

/// Texts of a line or of a cell.
type Runs = Vec<(StyleRole, String)>;

#[derive(Default)]
struct MarkdownRenderer {
    pieces: Vec<DocumentBlock>,
    spans: Runs,
    /// Next numbers of the open lists; `None` for bullets.
    lists: Vec<Option<u64>>,
    /// The marker of the item that begins.
    item_marker: Option<String>,
    quotes: usize,
    strong: usize,
    heading: bool,
    code: bool,
    /// Target of the open link.
    link: Option<String>,
    /// Rows of the open table, each with its cells.
    table: Option<Vec<Vec<Runs>>>,
    /// True once a block was written, so that the next one needs a gap.
    started: bool,
}

impl MarkdownRenderer {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.code => self.code_lines(&text),
            Event::Text(text) => self.push(self.role(), &text),
            Event::Code(code) => self.push(StyleRole::JsonText, &code),
            Event::Html(html) | Event::InlineHtml(html) => {
                for line in html.split_inclusive('\n') {
                    self.push(StyleRole::Text, line.trim_end_matches('\n'));
                    if line.ends_with('\n') {
                        self.end_line();
                    }
                }
            }
            Event::SoftBreak => self.push(self.role(), " "),
            Event::HardBreak => self.end_line(),
            Event::Rule => {
                self.blank_line();
                self.push(StyleRole::Dim, "───");
                self.end_line();
            }
            Event::TaskListMarker(done) => {
                self.push(StyleRole::Dim, if done { "[x] " } else { "[ ] " })
            }
            Event::FootnoteReference(name) | Event::InlineMath(name) | Event::DisplayMath(name) => {
                self.push(StyleRole::Text, &name);
            }
        }
    }

    fn role(&self) -> StyleRole {
        if self.strong > 0 || self.heading {
            StyleRole::Strong
        } else {
            StyleRole::Text
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph if self.item_marker.is_none() => self.blank_line(),
            Tag::Heading { level, .. } => {
                self.blank_line();
                self.heading = true;
                self.push(StyleRole::Dim, &format!("{} ", "#".repeat(depth(level))));
            }
            Tag::BlockQuote(_) => {
                self.blank_line();
                self.quotes += 1;
            }
            Tag::CodeBlock(kind) => {
                self.blank_line();
                if let CodeBlockKind::Fenced(language) = kind
                    && !language.is_empty()
                {
                    self.push(StyleRole::Dim, &language);
                    self.end_line();
                }
                self.code = true;
            }
            Tag::List(first) => {
                self.end_line();
                if self.lists.is_empty() {
                    self.blank_line();
                }
                self.lists.push(first);
            }
            Tag::Item => {
                self.end_line();
                self.item_marker = Some(match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    _ => "• ".to_owned(),
                });
            }
            Tag::Table(_) => {
                self.blank_line();
                self.table = Some(Vec::new());
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(rows) = &mut self.table {
                    rows.push(Vec::new());
                }
            }
            Tag::TableCell => {
                if let Some(row) = self.table.as_mut().and_then(|rows| rows.last_mut()) {
                    row.push(Vec::new());
                }
            }
            Tag::Strong | Tag::Emphasis => self.strong += 1,
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.link = Some(dest_url.into_string())
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph => self.end_line(),
            TagEnd::Heading(_) => {
                self.end_line();
                self.heading = false;
            }
            TagEnd::BlockQuote(_) => {
                self.end_line();
                self.quotes = self.quotes.saturating_sub(1);
            }
            TagEnd::CodeBlock => {
                self.end_line();
                self.code = false;
            }
            TagEnd::List(_) => {
                self.end_line();
                self.lists.pop();
            }
            TagEnd::Item => {
                self.end_line();
                self.item_marker = None;
            }
            TagEnd::Table => self.end_table(),
            TagEnd::Strong | TagEnd::Emphasis => self.strong = self.strong.saturating_sub(1),
            TagEnd::Link | TagEnd::Image => {
                if let Some(to) = self.link.take()
                    && self.spans.last().is_none_or(|(_, text)| *text != to)
                {
                    self.push(StyleRole::Dim, &format!(" ({to})"));
                }
            }
            _ => {}
        }
    }

    /// Writes the rows of the table with aligned columns, and a rule below the first one.
    fn end_table(&mut self) {
        let rows = self.table.take().unwrap_or_default();
        let width = |cell: &Runs| {
            cell.iter()
                .map(|(_, text)| text::width(text))
                .sum::<usize>()
        };
        let count = rows.iter().map(Vec::len).max().unwrap_or(0);
        let widest = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(width).max().unwrap_or(0).min(MAX_COLUMN)
        };
        let widths: Vec<usize> = (0..count).map(widest).collect();
        let rule = widths.iter().map(|width| "─".repeat(*width));
        let rule = rule.collect::<Vec<_>>().join("─┼─");
        for (number, row) in rows.into_iter().enumerate() {
            let last = row.len().saturating_sub(1);
            for (column, (cell, most)) in row.into_iter().zip(&widths).enumerate() {
                let gap = most.saturating_sub(width(&cell));
                cell.into_iter()
                    .for_each(|(role, text)| self.push(role, &text));
                if column < last {
                    self.push(StyleRole::Dim, &format!("{} │ ", " ".repeat(gap)));
                }
            }
            self.end_line();
            if number == 0 {
                self.push(StyleRole::Dim, &rule);
                self.end_line();
            }
        }
    }

    fn code_lines(&mut self, text: &str) {
        for line in text.split_inclusive('\n') {
            self.push(StyleRole::Dim, "  ");
            self.push(StyleRole::JsonText, line.trim_end_matches('\n'));
            self.end_line();
        }
    }

    fn push(&mut self, role: StyleRole, text: &str) {
        let cell = self
            .table
            .as_mut()
            .and_then(|rows| rows.last_mut()?.last_mut());
        let runs = cell.unwrap_or(&mut self.spans);
        match runs.last_mut() {
            Some((last, run)) if *last == role => run.push_str(text),
            _ => runs.push((role, text.to_owned())),
        }
    }

    /// An empty line before a block, unless it is the first one.
    fn blank_line(&mut self) {
        self.end_line();
        if std::mem::replace(&mut self.started, true) && self.lists.is_empty() {
            self.pieces.push(DocumentBlock::BlankLine);
        }
    }

    fn end_line(&mut self) {
        if self.spans.is_empty() {
            return;
        }
        let mut runs = std::mem::take(&mut self.spans);
        let level = self.lists.len().saturating_sub(1) * STEP;
        let (mut indent, mut hang) = (level, level);
        if !self.lists.is_empty() {
            let sign = self.item_marker.take();
            hang += STEP;
            match sign {
                Some(sign) => runs.insert(0, (StyleRole::Dim, sign)),
                None => indent = hang,
            }
        }
        if self.quotes > 0 {
            runs.insert(0, (StyleRole::Dim, "▏ ".repeat(self.quotes)));
            hang += STEP * self.quotes;
        }
        self.started = true;
        self.pieces
            .push(DocumentBlock::Spans { indent, hang, runs });
    }
}

fn depth(level: HeadingLevel) -> usize {
    match level {
        HeadingLevel::H1 => 1,
        HeadingLevel::H2 => 2,
        HeadingLevel::H3 => 3,
        HeadingLevel::H4 => 4,
        HeadingLevel::H5 => 5,
        HeadingLevel::H6 => 6,
    }
}
