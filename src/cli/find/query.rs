//! A search that is ready to be compared with entries.

use globset::{Glob, GlobMatcher};
use serde_json::Value;

use super::{
    super::exit::CliError,
    place::{SoughtText, TextPlace, snippet},
    terms::FindTerms,
};
use ingestdeck_core::{
    run::{EntryRef, EntryScope},
    tape::{EntryBody, Millis, RunId, Seq},
    units::failure_tally::bare_name,
};
use ingestdeck_records::store::{RunStore, text_index::has_word, text_record::TextRecord};

/// Maximum length of all texts in bytes.
const MAX_TEXT_BYTES: usize = 10_000;

/// What is looked for.
#[derive(Debug)]
pub(crate) struct FindQuery {
    /// All texts, for the index.
    pub words: String,
    /// All of these texts must be in the entry.
    texts: Vec<SoughtText>,
    pub run: Option<RunId>,
    unit: Option<GlobMatcher>,
    tool: Option<GlobMatcher>,
    only_failed: bool,
    without_sessions: bool,
    /// The period, in milliseconds since 1970.
    since: Option<i64>,
    until: Option<i64>,
}

impl FindQuery {
    /// # Errors
    /// If a text or a filter is invalid, or no run matches.
    pub(crate) fn new(store: &RunStore, terms: &FindTerms) -> Result<Self, CliError> {
        let (since, until) = terms.period().resolve()?;
        let run = terms.run.as_deref().map(|run| store.resolve(run));
        let run = run.transpose()?.map(|found| found.id);
        let last = terms.texts.last();
        let has_beginning = last.is_some_and(|text| text.ends_with('*'));
        let count = terms.texts.len();
        let matcher = |(place, text): (usize, &str)| {
            let is_beginning = has_beginning && place + 1 == count;
            SoughtText::new(text, is_beginning)
                .map_err(|error| CliError::usage(format!("the text cannot be searched: {error}")))
        };
        let glob = |given: &Option<String>| {
            let parse = |given: &String| {
                let glob = Glob::new(given).map(|glob| glob.compile_matcher());
                glob.map_err(|error| CliError::usage(format!("invalid pattern: {error}")))
            };
            given.as_ref().map(parse).transpose()
        };
        let words = terms.texts.join(" ");
        if words.len() > MAX_TEXT_BYTES {
            return Err(
                CliError::usage(format!("the text has {} bytes", words.len()))
                    .with_help(format!("find a part of at most {MAX_TEXT_BYTES} bytes")),
            );
        }
        if !has_word(&words) {
            let help = match terms.only_failed {
                true => "name at least one word; between quotes, \"failed\" is a text",
                false => "name at least one word",
            };
            return Err(CliError::usage("the text has no word").with_help(help));
        }
        let texts = terms.plain_texts().enumerate();
        let texts = texts.filter(|(_, text)| !text.is_empty());
        Ok(Self {
            words,
            texts: texts.map(matcher).collect::<Result<_, _>>()?,
            run,
            unit: glob(&terms.unit)?,
            tool: glob(&terms.tool)?,
            only_failed: terms.only_failed,
            without_sessions: terms.without_sessions,
            since,
            until,
        })
    }

    /// False for a record of which no entry is looked for. `modified` is when it was written last, in milliseconds since 1970.
    pub(super) fn wants(&self, record: &TextRecord) -> bool {
        match record {
            TextRecord::Run(id) => {
                let began = i64::try_from(id.started_at_ms()).unwrap_or(i64::MAX);
                self.run.is_none_or(|run| run == *id)
                    && self.until.is_none_or(|until| began < until)
            }
            TextRecord::Session(_) => self.run.is_none() && !self.without_sessions,
        }
    }

    /// True if a record that was written last at this time, in milliseconds since 1970, can have a wanted entry.
    pub(super) fn reaches(&self, modified: i64) -> bool {
        self.since.is_none_or(|since| since <= modified)
    }
}

/// An entry that contains the texts.
#[derive(Clone, Debug)]
pub(crate) struct FoundMoment {
    pub record: TextRecord,
    pub seq: Seq,
    /// In milliseconds since 1970, if it is known.
    pub at: Option<i64>,
    pub unit: Option<String>,
    pub attempt: Option<u32>,
    /// `call`, `result`, `answer`, `prompt`, `stderr`, `note`, or the type of the line.
    pub kind: String,
    pub tool: Option<String>,
    pub has_failed: bool,
    /// The found text, and what is around it.
    pub text: String,
}

impl FoundMoment {
    /// The entry, if it is what the query looks for. `began` is when its record began, and `tool` finds the tool of a call.
    pub(super) fn new(
        entry: &EntryRef<'_>,
        (record, began): (&TextRecord, Option<i64>),
        query: &FindQuery,
        tool: &mut dyn FnMut(&str) -> Option<String>,
    ) -> Option<Self> {
        let bytes = entry.body.bytes();
        if !query.texts.iter().all(|text| text.is_in(bytes)) {
            return None;
        }
        let Millis(at) = entry.at;
        let at = began.map(|began| began.saturating_add(i64::try_from(at).unwrap_or(i64::MAX)));
        let is_before = |limit: Option<i64>| at.zip(limit).is_some_and(|(at, limit)| at < limit);
        if is_before(query.since) || (query.until.is_some() && !is_before(query.until)) {
            return None;
        }
        let (unit, attempt) = match entry.scope {
            EntryScope::Attempt(unit, attempt) => (Some(unit.to_owned()), Some(attempt)),
            EntryScope::Run | EntryScope::BySession => (None, None),
        };
        let matches = |glob: &Option<GlobMatcher>, name: Option<&str>| {
            glob.as_ref()
                .is_none_or(|glob| name.is_some_and(|name| glob.is_match(name)))
        };
        if !matches(&query.unit, unit.as_deref()) {
            return None;
        }
        let first = query.texts.first()?;
        let place = match &entry.body {
            EntryBody::Stdout(json) | EntryBody::Stdin(json) | EntryBody::Note(json) => {
                serde_json::from_slice::<Value>(json)
                    .ok()
                    .and_then(|value| TextPlace::find(&value, first))
            }
            EntryBody::StdoutRaw(_) | EntryBody::Stderr(_) => None,
        };
        let place = place.unwrap_or_else(|| TextPlace {
            text: snippet(&String::from_utf8_lossy(bytes), first),
            ..TextPlace::default()
        });
        let kind = match (&entry.body, place.kind.as_deref()) {
            (EntryBody::Stderr(_), _) => "stderr",
            (EntryBody::StdoutRaw(_), _) => "stdout",
            (EntryBody::Note(_), _) => "note",
            (_, Some("tool_use")) => "call",
            (_, Some("tool_result")) => "result",
            (_, Some("assistant" | "text" | "thinking")) => "answer",
            (EntryBody::Stdin(_), _) | (_, Some("user")) => "prompt",
            (_, kind) => kind.unwrap_or("line"),
        };
        if query.only_failed && !place.has_failed {
            return None;
        }
        let tool = place.tool.or_else(|| tool(&place.call?));
        let is_named = matches(&query.tool, tool.as_deref())
            || matches(&query.tool, tool.as_deref().map(bare_name));
        is_named.then(|| Self {
            record: record.clone(),
            seq: entry.seq,
            at,
            unit,
            attempt,
            kind: kind.to_owned(),
            tool,
            has_failed: place.has_failed,
            text: place.text,
        })
    }
}
