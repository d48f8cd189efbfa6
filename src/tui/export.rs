//! What leaves the screen for an editor or a pager: the true bytes for the one, the text as people read it for the other.
//!
//! Collects and lays out. It must not know which program gets it, or how.

use super::{
    document::LaidOutDocument,
    load,
    model::{EntryPart, PartContent},
};
use crate::{run::Timeline, tape::Seq};

/// Most bytes that are handed out. Editors choke on more, and reading it must not keep the screen waiting.
const MAX_BYTES: usize = 64 << 20;

/// Bytes that are laid out for a pager.
const MAX_RENDERED_BYTES: usize = 8 << 20;

/// Columns of a text for the pager.
const WIDTH: u16 = 100;

/// What kind of program gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportTool {
    /// `$VISUAL`, `$EDITOR`.
    Editor,
    /// `$PAGER`.
    Pager,
}

/// What is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportRequest {
    /// For which program.
    pub tool: ExportTool,
    /// What it is, for a message.
    pub what: String,
    /// Lines of the record.
    pub entries: Vec<Seq>,
    /// The same as people read it: parts of views, or a text.
    pub pager_content: PagerContent,
    /// Index of the entry that was selected among `entries`.
    pub selected: Option<usize>,
}

/// What a pager shows.
#[derive(Clone, Debug, PartialEq)]
pub enum PagerContent {
    /// Parts of views, laid out.
    Parts(Vec<EntryPart>),
    /// A text.
    Text(String),
    /// The document on screen.
    Document,
}

/// A file that is ready to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// For which program.
    pub tool: ExportTool,
    /// Its content.
    pub bytes: Vec<u8>,
    /// End of its name, by which editors know what it is.
    pub extension: &'static str,
    /// Line to start at, from 1.
    pub line: Option<usize>,
    /// True when there was more than fits.
    pub is_truncated: bool,
}

/// Reads what is wanted.
pub fn build_export(
    timeline: &mut Timeline,
    wish: &ExportRequest,
    document: Option<&LaidOutDocument>,
) -> Result<Export, String> {
    match (wish.tool, &wish.pager_content) {
        (ExportTool::Editor, PagerContent::Parts(_)) => lines(timeline, wish),
        (ExportTool::Pager, PagerContent::Parts(parts)) => rendered(timeline, parts),
        (tool, PagerContent::Text(text)) => Ok(plain(tool, text.clone(), None)),
        (tool, PagerContent::Document) => {
            let document = document.ok_or_else(|| "nothing is laid out yet".to_owned())?;
            let lines = (0..document.lines.len()).map(|line| document.text(line).trim_end().to_owned() + "\n");
            Ok(plain(tool, lines.collect(), wish.selected.map(|line| line + 1)))
        }
    }
}

fn plain(tool: ExportTool, text: String, line: Option<usize>) -> Export {
    Export { tool, bytes: text.into_bytes(), extension: ".txt", line, is_truncated: false }
}

fn lines(timeline: &mut Timeline, wish: &ExportRequest) -> Result<Export, String> {
    let (mut bytes, mut cut) = (Vec::new(), false);
    for seq in &wish.entries {
        load::read(timeline, *seq, |arrived| {
            let line = load::bytes(&arrived.body);
            cut = !bytes.is_empty() && bytes.len() + line.len() > MAX_BYTES;
            if !cut {
                bytes.extend_from_slice(line);
                bytes.push(b'\n');
            }
        })?;
        if cut {
            break;
        }
    }
    let line = wish.selected.map(|at| at + 1);
    Ok(Export { tool: ExportTool::Editor, bytes, extension: ".jsonl", line, is_truncated: cut })
}

fn rendered(timeline: &mut Timeline, parts: &[EntryPart]) -> Result<Export, String> {
    let (mut text, mut cut) = (String::new(), false);
    // A result belongs to the call before it.
    for part in parts.chunk_by(|_, next| next.content == PartContent::Result) {
        cut = text.len() > MAX_RENDERED_BYTES;
        if cut {
            break;
        }
        let document = load::render_document(timeline, part, WIDTH);
        for line in 0..document.lines.len() {
            text.push_str(document.text(line).trim_end());
            text.push('\n');
        }
        text.push('\n');
    }
    Ok(Export { tool: ExportTool::Pager, bytes: text.into_bytes(), extension: ".txt", line: None, is_truncated: cut })
}
