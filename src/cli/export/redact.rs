//! Secrets in what leaves the project: found by their shape, by what surrounds them, or because this process knows
//! them; masked and counted.
//!
//! Works on decoded strings: of a line of JSON, its strings at every depth are looked at, also those of JSON that is
//! text inside a string. A line without secrets stays as it is, to the byte. [`rules`] knows the shapes of tokens,
//! [`context`] names, addresses and commands, [`key_block`] keys of several lines, [`known_values`] what the process
//! knows itself, and [`fragments`] what arrived in pieces.

use std::{borrow::Cow, collections::HashMap, ops::Range};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};

pub(super) use self::known_values::KnownValues;
use self::{
    fragments::{Assembly, Fragments},
    json::{Edit, Frame, Visitor},
    key_block::OpenBlock,
    names::{NameKind, Value},
};
use crate::tape::Entry;

mod context;
mod fragments;
mod json;
mod key_block;
mod known_values;
mod names;
mod rules;

/// What stands in the place of a secret.
const MASK: &str = "[masked]";

/// JSON inside strings of JSON inside strings is looked at so deep.
const DEEPEST: usize = 12;

/// Shorter texts hold no secret.
const SHORTEST: usize = 4;

/// From this length on, one word of base64 is a file.
const FILE: usize = 4096;

/// Whose lines belong together: the attempt, and the field of the entry.
type Stream = (Option<(String, u32)>, &'static str);

/// Masks secrets, and counts them.
#[derive(Debug, Default)]
pub(super) struct Redactor {
    /// How many were masked.
    pub(super) masked: usize,
    known: KnownValues,
    /// Keys whose lines come one by one.
    open: HashMap<Stream, OpenBlock>,
    /// What names were found to be.
    kinds: HashMap<String, Option<NameKind>>,
    assembly: Assembly,
    fragments: Fragments,
}

impl Redactor {
    /// One that also masks `known`.
    pub(super) fn new(known: KnownValues) -> Self {
        Self { known, ..Self::default() }
    }

    /// First pass: takes in a line of a tape.
    pub(super) fn survey(&mut self, number: u64, line: &[u8]) {
        let mut assembly = std::mem::take(&mut self.assembly);
        assembly.take(number, line, &mut |text| self.edits(text, &mut None, 0));
        self.assembly = assembly;
    }

    /// The first pass is over.
    pub(super) fn surveyed(&mut self) {
        let assembly = std::mem::take(&mut self.assembly);
        self.fragments = assembly.finish(&mut |text| self.edits(text, &mut None, 0));
    }

    /// A line of a tape without its secrets.
    pub(super) fn tape_line<'a>(&mut self, number: u64, line: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(text) = std::str::from_utf8(line).ok().filter(|text| json::is_document(text)) else {
            let text = String::from_utf8_lossy(line);
            let edits = self.edits(&text, &mut None, 0);
            return if edits.is_empty() { line.into() } else { json::apply(&text, &edits).into_bytes().into() };
        };
        let has_piece = fragments::may_hold_a_piece(line);
        let lane =
            Entry::parse(line).ok().and_then(|entry| entry.lane.map(|(unit, attempt)| (unit.into_owned(), attempt)));
        let mut document = Document::new(self, 0);
        document.entry = Some(TapeEntry { number, lane, has_piece, raw: None });
        let edits = json::edits(text, &mut document);
        if edits.is_empty() { line.into() } else { json::apply(text, &edits).into_bytes().into() }
    }

    /// Text or JSON without its secrets.
    pub(super) fn text<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        let edits = self.edits(text, &mut None, 0);
        if edits.is_empty() { text.into() } else { json::apply(text, &edits).into() }
    }

    /// What to mask in a text that stands `depth` deep in JSON and continues the block `open`.
    fn edits(&mut self, text: &str, open: &mut Option<OpenBlock>, depth: usize) -> Vec<Edit> {
        if text.len() < SHORTEST && open.is_none() {
            return Vec::new();
        }
        if depth < DEEPEST && json::is_document(text) {
            return json::edits(text, &mut Document::new(self, depth + 1));
        }
        let before = *open;
        let spans = self.spans(text, open);
        // Escapes and gaps hide from the patterns what a reader would see.
        if let Some(plain) = simplified(text) {
            let mut open_after = before;
            let found = self.spans(&plain, &mut open_after);
            if found.len() > spans.len() {
                *open = open_after;
                self.masked += found.len();
                let with = json::apply(&plain, &masks(&found));
                return vec![Edit { range: 0..text.len(), with: Cow::Owned(with) }];
            }
        }
        self.masked += spans.len();
        masks(&spans)
    }

    /// Where secrets are in a text, in order and apart from each other.
    fn spans(&self, text: &str, open: &mut Option<OpenBlock>) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        self.known.find(text, &mut found);
        if is_one_word_of_base64(text) {
            if let Some(decoded) = BASE64.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok())
                && !self.spans(&decoded, &mut None).is_empty()
            {
                found.push(0..text.len());
                return merged(found);
            }
            if text.len() >= FILE {
                return merged(found);
            }
        }
        key_block::find(text, open, &mut found);
        rules::find(text, &mut found);
        context::find(text, &mut found);
        merged(found)
    }

    fn kind_of(&mut self, name: &str) -> Option<NameKind> {
        /// Names of a tape are few; those of a hostile one need not be.
        const MOST: usize = 10_000;
        if let Some(kind) = self.kinds.get(name) {
            return *kind;
        }
        let kind = names::kind_of(name);
        if self.kinds.len() < MOST {
            self.kinds.insert(name.to_owned(), kind);
        }
        kind
    }
}

fn masks(spans: &[Range<usize>]) -> Vec<Edit> {
    spans.iter().map(|span| Edit { range: span.clone(), with: Cow::Borrowed(MASK) }).collect()
}

/// Spans in order, those that overlap as one.
fn merged(mut spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
    spans.sort_unstable_by_key(|span| span.start);
    let mut merged: Vec<Range<usize>> = Vec::with_capacity(spans.len());
    for span in spans.into_iter().filter(|span| !span.is_empty()) {
        match merged.last_mut() {
            Some(last) if span.start < last.end => last.end = last.end.max(span.end),
            _ => merged.push(span),
        }
    }
    merged
}

fn is_one_word_of_base64(text: &str) -> bool {
    const SHORTEST: usize = 24;
    text.len() >= SHORTEST
        && text.len().is_multiple_of(4)
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
}

/// The text with `\u0041` for `A`, and without NUL; `None` if it has neither.
fn simplified(text: &str) -> Option<String> {
    let has_nul = memchr::memchr(0, text.as_bytes()).is_some();
    if !has_nul && memchr::memmem::find(text.as_bytes(), b"\\u00").is_none() {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        let unit = if char == '\\' { json::code_unit(text, at) } else { None };
        match unit.and_then(|unit| u8::try_from(unit).ok()).filter(|byte| (0x20..0x7f).contains(byte)) {
            Some(byte) => {
                out.push(char::from(byte));
                chars.nth(4);
            }
            None if char == '\0' => {}
            None => out.push(char),
        }
    }
    Some(out)
}

/// A JSON text that is looked at.
struct Document<'a> {
    redactor: &'a mut Redactor,
    depth: usize,
    /// A key whose lines are strings of their own.
    open: Option<OpenBlock>,
    entry: Option<TapeEntry>,
}

/// An entry of a tape that is looked at.
struct TapeEntry {
    number: u64,
    lane: Option<(String, u32)>,
    has_piece: bool,
    /// What became of `raw`, if it was changed.
    raw: Option<String>,
}

impl<'a> Document<'a> {
    fn new(redactor: &'a mut Redactor, depth: usize) -> Self {
        Self { redactor, depth, open: None, entry: None }
    }

    /// What the names say that a value has.
    fn named(&mut self, path: &[Frame<'_>]) -> Option<(NameKind, String)> {
        let frame = path.last()?;
        let named = |name: &str, redactor: &mut Redactor| Some((redactor.kind_of(name)?, name.to_owned()));
        if !frame.is_array {
            let is_value = matches!(&*frame.key, "value" | "Value");
            return named(if is_value { &frame.label } else { &frame.key }, self.redactor);
        }
        if frame.label.starts_with('-') && !frame.label.contains('=') {
            return named(&frame.label, self.redactor);
        }
        let around = path.iter().rev().find(|frame| !frame.is_array)?;
        named(&around.key, self.redactor)
    }

    /// A text of the document.
    fn edits(&mut self, path: &[Frame<'_>], text: &str) -> Vec<Edit> {
        /// A shorter string of an object is not a line of a key.
        const LINE: usize = 24;
        let is_line = text.len() >= LINE || path.last().is_some_and(|frame| frame.is_array);
        let mut open = self.open.filter(|_| is_line);
        let was_open = open.is_some();
        let edits = self.redactor.edits(text, &mut open, self.depth);
        if was_open || open.is_some() {
            self.open = open;
        }
        edits
    }

    /// `text` with `edits`; `None` if there are none.
    fn changed(text: &str, edits: &[Edit]) -> Option<String> {
        (!edits.is_empty()).then(|| json::apply(text, edits))
    }

    /// Output of the agent that is no JSON: a line may continue the one before.
    fn stream(&mut self, field: &'static str, text: &str) -> Option<String> {
        let stream = (self.entry.as_ref().and_then(|entry| entry.lane.clone()), field);
        let mut open = self.redactor.open.remove(&stream);
        let edits = self.redactor.edits(text, &mut open, self.depth);
        self.redactor.open.extend(open.map(|open| (stream, open)));
        Self::changed(text, &edits)
    }

    /// The exact bytes of a line that is no text. They become text if there is a secret in it.
    fn bytes(&mut self, base64: &str) -> Option<String> {
        if let Some(raw) = self.entry.as_ref().and_then(|entry| entry.raw.as_ref()) {
            return Some(BASE64.encode(raw));
        }
        let bytes = BASE64.decode(base64).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let edits = self.redactor.edits(&text, &mut None, self.depth);
        Self::changed(&text, &edits).map(|text| BASE64.encode(text))
    }

    /// The part of a message that is still being written: what the first pass found of it.
    fn piece(&self, field: &str, text: &str) -> Option<Option<String>> {
        let entry = self.entry.as_ref()?;
        let edits = self.redactor.fragments.of(entry.number, field)?;
        // The tape may have changed since.
        let fits = edits.iter().all(|edit| text.get(edit.range.clone()).is_some());
        Some(if fits { Self::changed(text, edits) } else { Some(MASK.to_owned()) })
    }
}

impl Visitor for Document<'_> {
    fn key(&mut self, key: &str) -> Option<String> {
        let edits = self.redactor.edits(key, &mut None, DEEPEST);
        Self::changed(key, &edits)
    }

    fn string(&mut self, path: &[Frame<'_>], text: &str) -> Option<String> {
        if let Some(entry) = &self.entry {
            match path {
                [top] if top.key == "err" => return self.stream("err", text),
                [top] if top.key == "raw" => {
                    let raw = self.stream("raw", text);
                    if let Some(entry) = &mut self.entry {
                        entry.raw.clone_from(&raw);
                    }
                    return raw;
                }
                [top] if top.key == "b64" => return self.bytes(text),
                [_, out, event, delta] if entry.has_piece && out.key == "event" && event.key == "delta" => {
                    if let Some(piece) = self.piece(&delta.key, text) {
                        return piece;
                    }
                }
                _ => {}
            }
        }
        match self.named(path) {
            Some((NameKind::Header, _)) => {
                if let Some(secret) = names::header_secret(text) {
                    self.redactor.masked += 1;
                    return Some(json::apply(text, &masks(&[secret])));
                }
            }
            Some((kind, name)) if names::is_secret(kind, &name, Value { text, quoted: true, alone: true }) => {
                self.redactor.masked += 1;
                return Some(MASK.to_owned());
            }
            _ => {}
        }
        let edits = self.edits(path, text);
        Self::changed(text, &edits)
    }

    fn number(&mut self, path: &[Frame<'_>], digits: &str) -> Option<String> {
        let (kind, _) = self.named(path)?;
        names::is_secret_number(kind, digits).then(|| {
            self.redactor.masked += 1;
            MASK.to_owned()
        })
    }
}

#[cfg(test)]
mod tests;
