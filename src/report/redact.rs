//! Masks and counts secrets in what leaves the project: tokens by their shape, values by their context, and values that
//! this process knows.
//!
//! Works on decoded strings: in a line of JSON, it searches the strings at every depth, also those of JSON text inside a
//! string. A line without secrets keeps its bytes. [`rules`] has the shapes of tokens, [`context`] names and addresses,
//! [`tables`] and [`columns`] tables, [`phrases`] commands and file formats, [`key_block`] keys of several lines,
//! [`known_values`] the values of this process, [`fragments`] streamed text. [`normalize`] and [`words`] undo encodings
//! that hide a secret from all of them.

use std::{borrow::Cow, collections::HashMap, ops::Range, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};

use self::{
    columns::JsonColumns,
    fragments::{DeltaAssembler, DeltaEdits},
    json::{JsonPathFrame, JsonVisitor, TextEdit},
    key_block::OpenBlock,
    known_values::KnownValues,
    names::{NameKind, NamedValue},
};
use ingestdeck_core::tape::TapeEntry;

mod columns;
mod context;
mod fragments;
mod json;
mod key_block;
mod known_values;
mod names;
mod normalize;
mod phrases;
mod rules;
mod tables;
mod words;

/// The replacement of a secret.
pub(super) const MASK: &str = "[masked]";

/// The deepest JSON text inside strings of JSON that is parsed.
const DEEPEST: usize = 12;

/// The deepest base64 inside base64 that is decoded.
const DEEPEST_CODE: usize = 3;

/// Shorter texts hold no secret.
const SHORTEST: usize = 4;

/// One word of base64 of at least this length is a file: only its content is searched.
const FILE: usize = 4096;

/// A program may break a line of this length.
const FULL_LINE: usize = 60;

/// An attempt, and the field of its entries whose lines follow each other.
type StreamKey = (Option<(String, u32)>, &'static str);

/// Masks secrets, and counts them.
#[derive(Debug, Default)]
pub struct Redactor {
    /// Number of masked secrets.
    pub masked: usize,
    known: KnownValues,
    /// Key blocks whose lines are separate entries.
    open: HashMap<StreamKey, OpenBlock>,
    /// Cached results of [`names::kind_of`].
    kinds: HashMap<String, Option<NameKind>>,
    assembly: DeltaAssembler,
    fragments: DeltaEdits,
}

impl Redactor {
    /// Masks secrets of known kinds, and those of the environment and of the project's settings.
    pub fn for_process(project: Option<&Path>) -> Self {
        Self::new(KnownValues::gather(std::env::vars_os(), project))
    }

    fn new(known: KnownValues) -> Self {
        Self {
            known,
            ..Self::default()
        }
    }

    /// First pass: collects the streamed text of a line of a tape.
    pub(super) fn collect_deltas(&mut self, number: u64, line: &[u8]) {
        let mut assembly = std::mem::take(&mut self.assembly);
        assembly.push_line(number, line, &mut |text| self.edits(text, &mut None, 0));
        self.assembly = assembly;
    }

    /// Ends the first pass.
    pub(super) fn finish_collection(&mut self) {
        let assembly = std::mem::take(&mut self.assembly);
        self.fragments = assembly.finish(&mut |text| self.edits(text, &mut None, 0));
    }

    /// Second pass: returns a line of a tape without its secrets.
    pub(super) fn tape_line<'a>(&mut self, number: u64, line: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(text) = std::str::from_utf8(line)
            .ok()
            .filter(|text| json::is_document(text))
        else {
            let text = String::from_utf8_lossy(line);
            let edits = self.edits(&text, &mut None, 0);
            return if edits.is_empty() {
                line.into()
            } else {
                json::apply(&text, &edits).into_bytes().into()
            };
        };
        let has_piece = fragments::may_hold_delta(line);
        let attempt = TapeEntry::parse(line).ok().and_then(|entry| {
            entry
                .attempt
                .map(|(unit, attempt)| (unit.into_owned(), attempt))
        });
        let mut document = JsonDocumentVisitor::new(self, text, 0);
        document.entry = Some(EntryContext {
            number,
            attempt,
            has_delta: has_piece,
            raw: None,
        });
        let edits = json::edits(text, &mut document);
        if edits.is_empty() {
            line.into()
        } else {
            json::apply(text, &edits).into_bytes().into()
        }
    }

    /// Returns text or JSON without its secrets.
    pub fn text<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        let edits = self.edits(text, &mut None, 0);
        if edits.is_empty() {
            text.into()
        } else {
            json::apply(text, &edits).into()
        }
    }

    /// Returns a function that masks one text after the other. A key may be divided between several.
    pub(super) fn consecutive_texts(&mut self) -> impl FnMut(&str) -> String {
        let mut open = None;
        move |text| json::apply(text, &self.edits(text, &mut open, 0))
    }

    /// Returns the edits that mask a text at `depth` in JSON. The text continues the block `open`.
    fn edits(&mut self, text: &str, open: &mut Option<OpenBlock>, depth: usize) -> Vec<TextEdit> {
        if text.len() < SHORTEST && open.is_none() {
            return Vec::new();
        }
        if depth < DEEPEST && json::is_document(text) {
            return json::edits(text, &mut JsonDocumentVisitor::new(self, text, depth + 1));
        }
        let spans = self.spans(text, open, 0);
        self.masked += spans.len();
        masks(&spans)
    }

    /// The ranges of secrets in a text, sorted and without overlaps. `depth` counts the base64 around it.
    fn spans(&self, text: &str, open: &mut Option<OpenBlock>, depth: usize) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        if depth < DEEPEST_CODE {
            self.encoded(text, depth, &mut found);
        }
        if text.len() >= FILE && is_one_word_of_base64(text) {
            self.known.find(text, &mut found);
            return merged(found);
        }
        let mut open_before = *open;
        self.search(text, open, &mut found);
        if let Some(normalized) = normalize::normalized(text) {
            let mut spans = Vec::new();
            self.search(&normalized.text, &mut open_before, &mut spans);
            found.extend(spans.iter().map(|span| normalized.source(span)));
            *open = open.or(open_before);
        }
        merged(found)
    }

    /// Adds the ranges of secrets in a text that hides nothing.
    fn search(&self, text: &str, open: &mut Option<OpenBlock>, found: &mut Vec<Range<usize>>) {
        self.known.find(text, found);
        key_block::find(text, open, found);
        rules::find(text, found);
        phrases::find(text, found);
        context::find(text, found);
    }

    /// Adds base64 of secrets, and tokens that continue on the next line.
    fn encoded(&self, text: &str, depth: usize, found: &mut Vec<Range<usize>>) {
        let is_secret = |code: &str| {
            words::decoded(code)
                .is_some_and(|decoded| !self.spans(&decoded, &mut None, depth + 1).is_empty())
        };
        for word in words::long(text) {
            if let Some(code) =
                words::candidates(text, word).find(|code| is_secret(&text[code.clone()]))
            {
                let padding = text.as_bytes()[code.end..]
                    .iter()
                    .take_while(|byte| **byte == b'=')
                    .count();
                found.push(code.start..code.end + padding);
            }
        }
        for word in words::broken(text) {
            let mut tokens = Vec::new();
            rules::find(&word.text, &mut tokens);
            for token in tokens {
                let parts: Vec<Range<usize>> = word.sources(&token).collect();
                let mut complete = Vec::new();
                rules::find(&text[parts[0].clone()], &mut complete);
                // A complete token has no rest, unless its line is full or the rest cannot be a word.
                let line = text[..parts[0].end]
                    .rfind('\n')
                    .map_or(0, |newline| newline + 1);
                let is_broken = complete.is_empty() || parts[0].end - line >= FULL_LINE;
                let is_part =
                    |part: &Range<usize>| is_broken || words::is_random(&text[part.clone()]);
                let rest: Vec<Range<usize>> = parts[1..]
                    .iter()
                    .take_while(|part| is_part(part))
                    .cloned()
                    .collect();
                if !rest.is_empty() {
                    found.push(parts[0].clone());
                    found.extend(rest);
                }
            }
            let code = words::code(&word.text);
            if is_secret(&word.text[code.clone()]) {
                found.extend(word.sources(&code));
            }
        }
    }

    fn kind_of(&mut self, name: &str) -> Option<NameKind> {
        /// Bounds the cache, as a hostile tape may have any number of names.
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

fn masks(spans: &[Range<usize>]) -> Vec<TextEdit> {
    spans
        .iter()
        .map(|span| TextEdit {
            range: span.clone(),
            replacement: Cow::Borrowed(MASK),
        })
        .collect()
}

/// Sorts spans and joins those that overlap.
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
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
}

/// A visitor of a JSON text.
struct JsonDocumentVisitor<'a> {
    redactor: &'a mut Redactor,
    text: &'a str,
    depth: usize,
    /// A key block whose lines are separate strings.
    open: Option<OpenBlock>,
    /// Read when the first value asks for it.
    columns: Option<JsonColumns>,
    entry: Option<EntryContext>,
}

/// The entry of a tape that a document is.
struct EntryContext {
    number: u64,
    attempt: Option<(String, u32)>,
    has_delta: bool,
    /// The replacement of `raw`.
    raw: Option<String>,
}

impl<'a> JsonDocumentVisitor<'a> {
    fn new(redactor: &'a mut Redactor, text: &'a str, depth: usize) -> Self {
        Self {
            redactor,
            text,
            depth,
            open: None,
            columns: None,
            entry: None,
        }
    }

    fn columns(&mut self) -> &JsonColumns {
        self.columns
            .get_or_insert_with(|| JsonColumns::parse(self.text))
    }

    /// The kind and the name of the value at `path`.
    fn named(&mut self, path: &[JsonPathFrame<'_>]) -> Option<(NameKind, String)> {
        let frame = path.last()?;
        let named =
            |name: &str, redactor: &mut Redactor| Some((redactor.kind_of(name)?, name.to_owned()));
        if !frame.is_array {
            let is_value = matches!(&*frame.key, "value" | "Value");
            return named(
                if is_value { &frame.label } else { &frame.key },
                self.redactor,
            );
        }
        if frame.label.starts_with('-') && !frame.label.contains('=') {
            return named(&frame.label, self.redactor);
        }
        if columns::is_cell(path)
            && let Some(column) = self.columns().name(path).map(str::to_owned)
        {
            return named(&column, self.redactor);
        }
        let around = path.iter().rev().find(|frame| !frame.is_array)?;
        named(&around.key, self.redactor)
    }

    /// True for a value that the key or the other members of its object make a secret.
    fn is_secret_member(&mut self, path: &[JsonPathFrame<'_>], text: &str) -> bool {
        let Some(frame) = path.last().filter(|frame| !frame.is_array) else {
            return false;
        };
        match frame.key.trim_start_matches('_') {
            "auth" => phrases::is_basic(text),
            key if key.len() <= "mnemonic_phrase".len() && phrases::is_mnemonic_name(key) => {
                phrases::is_mnemonic(text)
            }
            _ => columns::may_be_web_key(path, text) && self.columns().is_web_key(path),
        }
    }

    /// The edits of a string of the document.
    fn edits(&mut self, path: &[JsonPathFrame<'_>], text: &str) -> Vec<TextEdit> {
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

    /// Returns `text` with `edits`; `None` if there are none.
    fn changed(text: &str, edits: &[TextEdit]) -> Option<String> {
        (!edits.is_empty()).then(|| json::apply(text, edits))
    }

    /// Masks a line of output of the agent that is not JSON. It may continue the previous one.
    fn stream(&mut self, field: &'static str, text: &str) -> Option<String> {
        let stream = (
            self.entry.as_ref().and_then(|entry| entry.attempt.clone()),
            field,
        );
        let mut open = self.redactor.open.remove(&stream);
        let edits = self.redactor.edits(text, &mut open, self.depth);
        self.redactor.open.extend(open.map(|open| (stream, open)));
        Self::changed(text, &edits)
    }

    /// Masks the exact bytes of a line that is not UTF-8. A line with a secret becomes UTF-8.
    fn bytes(&mut self, base64: &str) -> Option<String> {
        if let Some(raw) = self.entry.as_ref().and_then(|entry| entry.raw.as_ref()) {
            return Some(BASE64.encode(raw));
        }
        let bytes = BASE64.decode(base64).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let edits = self.redactor.edits(&text, &mut None, self.depth);
        Self::changed(&text, &edits).map(|text| BASE64.encode(text))
    }

    /// Masks a fragment of streamed text with the edits of the first pass; `None` if that did not see it.
    fn mask_delta(&self, field: &str, text: &str) -> Option<Option<String>> {
        let entry = self.entry.as_ref()?;
        let edits = self.redactor.fragments.edits_of(entry.number, field)?;
        // The tape may have changed since.
        let fits = edits
            .iter()
            .all(|edit| text.get(edit.range.clone()).is_some());
        Some(if fits {
            Self::changed(text, edits)
        } else {
            Some(MASK.to_owned())
        })
    }

    fn mask(&mut self) -> Option<String> {
        self.redactor.masked += 1;
        Some(MASK.to_owned())
    }
}

impl JsonVisitor for JsonDocumentVisitor<'_> {
    fn key(&mut self, key: &str) -> Option<String> {
        let edits = self.redactor.edits(key, &mut None, DEEPEST);
        Self::changed(key, &edits)
    }

    fn string(&mut self, path: &[JsonPathFrame<'_>], text: &str) -> Option<String> {
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
                [_, out, event, delta]
                    if entry.has_delta && out.key == "event" && event.key == "delta" =>
                {
                    if let Some(piece) = self.mask_delta(&delta.key, text) {
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
            Some((kind, name))
                if names::is_secret(
                    kind,
                    &name,
                    NamedValue {
                        text,
                        quoted: true,
                        alone: true,
                    },
                ) =>
            {
                return self.mask();
            }
            _ if self.is_secret_member(path, text) => return self.mask(),
            _ => {}
        }
        let edits = self.edits(path, text);
        Self::changed(text, &edits)
    }

    fn number(&mut self, path: &[JsonPathFrame<'_>], digits: &str) -> Option<String> {
        let (kind, _) = self.named(path)?;
        if names::is_secret_number(kind, digits) {
            self.mask()
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests;
