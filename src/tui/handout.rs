//! What leaves the screen for an editor or a pager: the true bytes for the one, the text as people read it for the other.
//!
//! Collects and lays out. It must not know which program gets it, or how.

use super::{
    document::Document,
    load,
    model::{Of, Part},
};
use crate::{run::Timeline, tape::Seq};

/// Most bytes that are handed out. Editors choke on more, and reading it must not keep the screen waiting.
const MOST: usize = 64 << 20;

/// Bytes that are laid out for a pager.
const MOST_LAID: usize = 8 << 20;

/// Columns of a text for the pager.
const WIDTH: u16 = 100;

/// What kind of program gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// `$VISUAL`, `$EDITOR`.
    Editor,
    /// `$PAGER`.
    Pager,
}

/// What is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// For which program.
    pub tool: Tool,
    /// What it is, for a message.
    pub what: String,
    /// Lines of the record.
    pub entries: Vec<Seq>,
    /// The same as people read it: parts of views, or a text.
    pub reading: Reading,
    /// Index of the entry that was selected among `entries`.
    pub at: Option<usize>,
}

/// What a pager shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// Parts of views, laid out.
    Parts(Vec<Part>),
    /// A text.
    Text(String),
    /// The document on screen.
    Document,
}

/// A file that is ready to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handout {
    /// For which program.
    pub tool: Tool,
    /// Its content.
    pub bytes: Vec<u8>,
    /// End of its name, by which editors know what it is.
    pub extension: &'static str,
    /// Line to start at, from 1.
    pub line: Option<usize>,
    /// True when there was more than fits.
    pub cut: bool,
}

/// Reads what is wanted.
pub fn collect(timeline: &mut Timeline, wish: &Wish, document: Option<&Document>) -> Result<Handout, String> {
    match (wish.tool, &wish.reading) {
        (Tool::Editor, Reading::Parts(_)) => lines(timeline, wish),
        (Tool::Pager, Reading::Parts(parts)) => laid(timeline, parts),
        (tool, Reading::Text(text)) => Ok(plain(tool, text.clone(), None)),
        (tool, Reading::Document) => {
            let document = document.ok_or_else(|| "nothing is laid out yet".to_owned())?;
            let lines = (0..document.lines.len()).map(|line| document.text(line).trim_end().to_owned() + "\n");
            Ok(plain(tool, lines.collect(), wish.at.map(|line| line + 1)))
        }
    }
}

fn plain(tool: Tool, text: String, line: Option<usize>) -> Handout {
    Handout { tool, bytes: text.into_bytes(), extension: ".txt", line, cut: false }
}

fn lines(timeline: &mut Timeline, wish: &Wish) -> Result<Handout, String> {
    let (mut bytes, mut cut) = (Vec::new(), false);
    for seq in &wish.entries {
        load::read(timeline, *seq, |arrived| {
            let line = load::bytes(&arrived.body);
            cut = !bytes.is_empty() && bytes.len() + line.len() > MOST;
            if !cut {
                bytes.extend_from_slice(line);
                bytes.push(b'\n');
            }
        })?;
        if cut {
            break;
        }
    }
    let line = wish.at.map(|at| at + 1);
    Ok(Handout { tool: Tool::Editor, bytes, extension: ".jsonl", line, cut })
}

fn laid(timeline: &mut Timeline, parts: &[Part]) -> Result<Handout, String> {
    let (mut text, mut cut) = (String::new(), false);
    // A result belongs to the call before it.
    for part in parts.chunk_by(|_, next| next.of == Of::Result) {
        cut = text.len() > MOST_LAID;
        if cut {
            break;
        }
        let document = load::laid(timeline, part, WIDTH);
        for line in 0..document.lines.len() {
            text.push_str(document.text(line).trim_end());
            text.push('\n');
        }
        text.push('\n');
    }
    Ok(Handout { tool: Tool::Pager, bytes: text.into_bytes(), extension: ".txt", line: None, cut })
}
