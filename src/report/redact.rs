//! Masks and counts secrets in what leaves the project: by the rules of `assets/redaction.toml`, by names, and by the
//! values that this process knows. It is a help, not a proof: `assets/guide/security.md` lists what it finds.
//!
//! Works on decoded strings: in a line of JSON, it searches the strings at every depth, also those of JSON text inside a
//! string. A line without secrets keeps its bytes. [`rules`] has the shapes of tokens and secrets in the syntax of commands
//! and files, [`names`] `name = value`, [`tables`] and [`columns`] tables, [`known_values`] the values of this process,
//! [`fragments`] streamed text. [`encodings`] undoes what hides a secret from all of them.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    ops::Range,
    path::Path,
    sync::LazyLock,
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use regex::bytes::Regex;

use self::{
    columns::JsonColumns,
    encodings::AssembledText,
    fragments::{DeltaAssembler, DeltaEdits},
    json::{JsonPathFrame, JsonVisitor, TextEdit},
    known_values::KnownValues,
    rules::RuleMatches,
};
use ingestdeck_core::tape::TapeEntry;

mod columns;
mod encodings;
mod fragments;
mod json;
mod known_values;
mod names;
mod rules;
mod tables;

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

/// Texts that may continue a private key.
const KEY_LINES: u32 = 400;

/// The beginning of a private key whose end is missing.
static OPEN_KEY: LazyLock<Option<Regex>> = LazyLock::new(|| {
    rules::regex(
        r"(?:BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|Private-Lines: ?[0-9]+|LS0tLS1CRUdJTiB(?:[SPFE]|Q[UR])[A-Za-z0-9+/]{40,64})(?:[A-Za-z0-9+/=\s:,]|-[A-Z0-9])*$",
    )
    .ok()
});

/// A line of a private key, also after a line number; the first group is the last one. Or its end.
static KEY_LINE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    rules::regex(
        r#"(?m)[A-Za-z0-9+/=]{40,}|^[>|#+"', \t-]*(?:[0-9]+(?:\t|:|\||→) *)?["']?([A-Za-z0-9+/=]{4,39})["', \t]*$|-{4,5} ?END |Private-MAC:"#,
    )
    .ok()
});

/// An attempt, and the field of its entries whose lines follow each other.
type StreamKey = (Option<(String, u32)>, &'static str);

/// How many of the next texts may continue a private key.
type OpenKey = u32;

/// Masks secrets, and counts them.
#[derive(Debug, Default)]
pub struct Redactor {
    /// Number of masked secrets.
    pub masked: usize,
    known: KnownValues,
    /// Private keys whose lines are separate entries.
    open: HashMap<StreamKey, OpenKey>,
    /// Cached results of [`names::kind_of`].
    kinds: HashMap<String, Option<usize>>,
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
        assembly.push_line(number, line, &mut |text| self.edits(text, &mut 0, 0));
        self.assembly = assembly;
    }

    /// Ends the first pass.
    pub(super) fn finish_collection(&mut self) {
        let assembly = std::mem::take(&mut self.assembly);
        self.fragments = assembly.finish(&mut |text| self.edits(text, &mut 0, 0));
    }

    /// Second pass: returns a line of a tape without its secrets.
    pub(super) fn tape_line<'a>(&mut self, number: u64, line: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(text) = std::str::from_utf8(line)
            .ok()
            .filter(|text| json::is_document(text))
        else {
            return match self.text(&String::from_utf8_lossy(line)) {
                Cow::Borrowed(_) => line.into(),
                Cow::Owned(text) => text.into_bytes().into(),
            };
        };
        let attempt = TapeEntry::parse(line).ok().and_then(|entry| entry.attempt);
        let mut document = JsonDocumentVisitor::new(self, text, 0);
        document.entry = Some(EntryContext {
            number,
            attempt: attempt.map(|(unit, attempt)| (unit.into_owned(), attempt)),
            has_delta: fragments::may_hold_delta(line),
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
        let edits = self.edits(text, &mut 0, 0);
        if edits.is_empty() {
            text.into()
        } else {
            json::apply(text, &edits).into()
        }
    }

    /// Returns a function that masks one text after the other. A key may be divided between several.
    pub(super) fn consecutive_texts(&mut self) -> impl FnMut(&str) -> String {
        let mut open = 0;
        move |text| json::apply(text, &self.edits(text, &mut open, 0))
    }

    /// Returns the edits that mask a text at `depth` in JSON. The text continues the key `open`.
    fn edits(&mut self, text: &str, open: &mut OpenKey, depth: usize) -> Vec<TextEdit> {
        if text.len() < SHORTEST && *open == 0 {
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
    fn spans(&self, text: &str, open: &mut OpenKey, depth: usize) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        self.encoded(text, depth, &mut found);
        if text.len() >= FILE && is_one_word_of_base64(text) {
            self.known.find(text, &mut found);
            return merged(text, found);
        }
        continue_key(text, open, &mut found);
        self.search(text, &mut found);
        // A complete token ends with its line, unless that is full.
        let is_complete = |span: &&Range<usize>| {
            let mut line = text[..span.end]
                .bytes()
                .rev()
                .take_while(|byte| *byte != b'\n');
            text[span.end..].starts_with(['\r', '\n']) && line.nth(FULL_LINE - 1).is_none()
        };
        let complete: HashSet<usize> = found
            .iter()
            .filter(is_complete)
            .map(|span| span.start)
            .collect();
        let mut add = |assembled: &AssembledText, spans: Vec<Range<usize>>| {
            let spans = spans.iter().filter(|span| !span.is_empty());
            let sources = spans.map(|span| (assembled.source(span), span.len()));
            let hidden = sources.filter(|(source, length)| {
                source.len() > *length && !complete.contains(&source.start)
            });
            found.extend(hidden.map(|(source, _)| source));
        };
        if let Some(normalized) = encodings::normalized(text) {
            let mut spans = Vec::new();
            self.search(&normalized.text, &mut spans);
            add(&normalized, spans);
        }
        if let Some(joined) = encodings::joined_lines(text) {
            let mut spans = Vec::new();
            RuleMatches::new(&joined.text).find(&joined.text, true, &mut spans);
            self.encoded(&joined.text, depth, &mut spans);
            add(&joined, spans);
        }
        merged(text, found)
    }

    /// Adds the ranges of secrets in a text that hides nothing.
    fn search(&self, text: &str, found: &mut Vec<Range<usize>>) {
        self.known.find(text, found);
        let matches = RuleMatches::new(text);
        matches.find(text, false, found);
        if matches.may_hold_name() {
            names::find(text, found);
            tables::find(text, found);
        }
    }

    /// Adds base64 of secrets.
    fn encoded(&self, text: &str, depth: usize, found: &mut Vec<Range<usize>>) {
        if depth < DEEPEST_CODE {
            let words = encodings::decoded_words(text);
            let secrets = words.filter(|(_, word)| !self.spans(word, &mut 0, depth + 1).is_empty());
            found.extend(secrets.map(|(range, _)| range));
        }
    }

    fn kind_of(&mut self, name: &str) -> Option<usize> {
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

/// Adds the lines of a private key that began in an earlier text, and decides whether the key continues after this one.
fn continue_key(text: &str, open: &mut OpenKey, spans: &mut Vec<Range<usize>>) {
    let lines = KEY_LINE
        .iter()
        .flat_map(|line| line.captures_iter(text.as_bytes()));
    for line in lines {
        if *open == 0 {
            break;
        }
        let last = line.get(1);
        let Some(body) = last
            .or(line.get(0))
            .filter(|body| !body.as_bytes().contains(&b'-'))
        else {
            *open = 0;
            break;
        };
        spans.push(body.range());
        if last.is_some() {
            *open = 0;
        }
    }
    *open = open.saturating_sub(1);
    if OPEN_KEY
        .as_ref()
        .is_some_and(|key| key.is_match(text.as_bytes()))
    {
        *open = KEY_LINES;
    }
}

/// Sorts spans and joins those that overlap. Widens those that cut a character.
fn merged(text: &str, mut spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
    spans.sort_unstable_by_key(|span| span.start);
    let mut merged: Vec<Range<usize>> = Vec::with_capacity(spans.len());
    for mut span in spans.into_iter().filter(|span| !span.is_empty()) {
        while !text.is_char_boundary(span.start) {
            span.start -= 1;
        }
        while !text.is_char_boundary(span.end) {
            span.end += 1;
        }
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
    /// A private key whose lines are separate strings.
    open: OpenKey,
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
            open: 0,
            columns: None,
            entry: None,
        }
    }

    fn columns(&mut self) -> &JsonColumns {
        self.columns
            .get_or_insert_with(|| JsonColumns::parse(self.text))
    }

    /// The kind and the name of the value at `path`.
    fn named(&mut self, path: &[JsonPathFrame<'_>]) -> Option<(usize, String)> {
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

    /// The edits of a string of the document.
    fn edits(&mut self, path: &[JsonPathFrame<'_>], text: &str) -> Vec<TextEdit> {
        /// A shorter string of an object is not a line of a key.
        const LINE: usize = 24;
        let frame = path.last();
        let is_line = text.len() >= LINE || frame.is_some_and(|frame| frame.is_array);
        let mut spans = self.member_secrets(path, text);
        let mut none = 0;
        let open = if is_line { &mut self.open } else { &mut none };
        if spans.is_empty() {
            return self.redactor.edits(text, open, self.depth);
        }
        spans.extend(self.redactor.spans(text, open, 0));
        let spans = merged(text, spans);
        self.redactor.masked += spans.len();
        masks(&spans)
    }

    /// The ranges of secrets in a string that a rule recognises by its key, or a JSON Web Key by the other members.
    fn member_secrets(&mut self, path: &[JsonPathFrame<'_>], text: &str) -> Vec<Range<usize>> {
        let Some(frame) = path.last().filter(|frame| !frame.is_array) else {
            return Vec::new();
        };
        let key = frame.key.trim_start_matches('_');
        let may_be_key = columns::may_be_key_member(frame, text);
        if may_be_key && self.columns().is_web_key(frame) {
            let all = 0..text.len();
            return vec![all];
        }
        let is_context = may_be_key
            || key == "auth"
            || ["mnemonic", "seed", "phrase"]
                .iter()
                .any(|part| key.contains(part));
        if !is_context || json::is_document(text) {
            return Vec::new();
        }
        let start = format!("\"{key}\":\"");
        let member = format!("{start}{text}\"");
        let mut spans = Vec::new();
        RuleMatches::new(&member).find(&member, false, &mut spans);
        spans
            .into_iter()
            .filter(|span| span.start >= start.len())
            .map(|span| span.start - start.len()..(span.end - start.len()).min(text.len()))
            .collect()
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
        let mut open = self.redactor.open.remove(&stream).unwrap_or_default();
        let edits = self.redactor.edits(text, &mut open, self.depth);
        if open > 0 {
            self.redactor.open.insert(stream, open);
        }
        Self::changed(text, &edits)
    }

    /// Masks the exact bytes of a line that is not UTF-8. A line with a secret becomes UTF-8.
    fn bytes(&mut self, base64: &str) -> Option<String> {
        if let Some(raw) = self.entry.as_ref().and_then(|entry| entry.raw.as_ref()) {
            return Some(BASE64.encode(raw));
        }
        let bytes = BASE64.decode(base64).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let edits = self.redactor.edits(&text, &mut 0, self.depth);
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
}

impl JsonVisitor for JsonDocumentVisitor<'_> {
    fn key(&mut self, key: &str) -> Option<String> {
        let edits = self.redactor.edits(key, &mut 0, DEEPEST);
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
        let named = self.named(path);
        let secret = named
            .and_then(|(kind, name)| names::secret(kind, &name, text, names::ValueEnd::Delimiter));
        if let Some(secret) = secret {
            self.redactor.masked += 1;
            return Some(json::apply(text, &masks(&[secret])));
        }
        let edits = self.edits(path, text);
        Self::changed(text, &edits)
    }

    fn number(&mut self, path: &[JsonPathFrame<'_>], text: &str) -> Option<String> {
        let (kind, name) = self.named(path)?;
        names::secret(kind, &name, text, names::ValueEnd::Delimiter)?;
        self.redactor.masked += 1;
        Some(MASK.to_owned())
    }
}

#[cfg(test)]
mod tests;
