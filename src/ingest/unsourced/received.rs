//! The words that an agent received: in its prompt, in replies of tools and in messages of a person.
//!
//! Only hashes are kept. A word that the agent wrote first is not received because a tool repeats it.

use std::{
    borrow::Cow,
    collections::HashSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    iter,
    sync::LazyLock,
};

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

use super::sql_words::sql_names;
use crate::{skill, verification::CatalogFacts};
use ingestdeck_core::{
    tape::note::attempt_output::{UNSOURCED_FINDING, UNSOURCED_LIST},
    units::{ToolCall, ToolReply},
};

/// Maximum number of words that are kept, each 8 bytes.
const MAX_WORDS: usize = 1_000_000;

/// Tools whose replies contain raw files or the content of databases, and nothing that the agent wrote.
const EVIDENCE_TOOLS: [&str; 4] = [
    "read_raw_file",
    "read_raw_span",
    "sql_execution",
    "entity_details",
];

/// Beginnings of lines by which tools deny that something exists, in lower case. These lines repeat what was asked.
const DENIALS: [&str; 5] = [
    "not found:",
    "column not found:",
    "no wiki page",
    "no semantic layer sources found",
    "no sources found",
];
/// Other parts of such lines.
const DENIAL_PARTS: [&str; 2] = ["there is no ", "no match"];

/// Tools whose arguments become the content of artifacts.
const WRITE_TOOLS: [&str; 3] = ["wiki_write", "sl_write_source", "sl_edit_source"];

/// The words that an agent received, without regard to case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReceivedNames {
    words: HashSet<u64>,
    /// Words that the agent used in an artifact before it received them.
    invented: HashSet<u64>,
    /// Words that the verification ledger lists as unverified.
    declared: HashSet<u64>,
    /// Tables and columns that answers prove.
    facts: CatalogFacts,
    is_incomplete: bool,
}

/// A line of the transcript of an earlier attempt.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedCall {
    tool_name: String,
    #[serde(default)]
    input: Value,
    #[serde(default)]
    output: Option<RecordedReply>,
    #[serde(default)]
    error: Option<RecordedFailure>,
}

#[derive(Deserialize)]
struct RecordedReply {
    markdown: String,
    #[serde(default)]
    structured: Value,
}

#[derive(Deserialize)]
struct RecordedFailure {
    message: String,
}

/// Arguments of a call that adds an entry to the verification ledger.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RecordedLedgerEntry {
    verified_identifiers: Vec<String>,
    unverified_identifiers: Vec<String>,
}

impl RecordedReply {
    /// True for a call that failed or was declined. A transcript has no mark for this, as in KTX.
    fn is_failed(&self) -> bool {
        let Self {
            markdown,
            structured,
        } = self;
        match structured {
            Value::Null => markdown.starts_with("Error: "),
            structured => structured["success"] == false || structured["error"].is_string(),
        }
    }
}

impl ReceivedNames {
    /// True if more was received than is recorded, so that nothing can be concluded from a missing word.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.is_incomplete || self.facts.is_full()
    }

    /// What the answers to its calls prove.
    pub(crate) fn facts(&self) -> &CatalogFacts {
        &self.facts
    }

    /// True if all words of `name` were received.
    pub(super) fn contains(&self, name: &str) -> bool {
        words(name).all(|word| self.words.contains(&hash_word(word)))
    }

    /// True if the agent declared `name` as unverified.
    pub(super) fn is_declared(&self, name: &str) -> bool {
        words(name).all(|word| self.declared.contains(&hash_word(word)))
    }

    /// Records that the agent received more than is known.
    pub(crate) fn mark_incomplete(&mut self) {
        self.is_incomplete = true;
    }

    /// Adds a text that the agent received.
    pub(crate) fn add_text(&mut self, text: &str) {
        for text in spellings(text) {
            words(&text).for_each(|word| self.insert(word));
        }
    }

    /// Adds what a person wrote. The added lines that it quotes are the agent's, and so are the names in findings of
    /// this check that it quotes.
    pub(crate) fn add_feedback(&mut self, feedback: &str) {
        let words = feedback
            .lines()
            .filter(|line| !line.starts_with('+'))
            .flat_map(str::split_whitespace);
        let text = words.collect::<Vec<_>>().join(" ");
        match findings_regex() {
            Some(findings) => self.add_text(&findings.replace_all(&text, " ")),
            None => self.add_text(&text),
        }
    }

    /// Adds the entries of the verification ledger.
    pub(crate) fn add_ledger(&mut self, verified: &[String], unverified: &[String]) {
        verified.iter().for_each(|name| self.add_text(name));
        self.declared.extend(
            unverified
                .iter()
                .flat_map(|name| words(name))
                .map(hash_word),
        );
    }

    /// Adds what the agent received by a call.
    pub(crate) fn add_reply(&mut self, call: &ToolCall, reply: &ToolReply) {
        let failed = reply.is_error || reply.declined;
        self.add_answer(&call.name, &call.arguments, &reply.markdown, failed);
        if let (false, Some(structured)) = (failed, &reply.structured) {
            self.add_facts(&call.name, &call.arguments, structured);
        }
    }

    /// Adds what the structured answer of a successful call proves. It has no text of the agent.
    fn add_facts(&mut self, tool: &str, arguments: &Value, structured: &Value) {
        let names = self.facts.add_answer(tool, arguments, structured);
        names.iter().for_each(|name| self.add_text(name));
    }

    /// Adds the replies and ledger entries in the transcript of earlier attempts, for an agent that continues their
    /// session.
    pub(crate) fn add_transcript(&mut self, transcript: &[u8]) {
        for line in transcript.split(|byte| *byte == b'\n') {
            let Ok(RecordedCall {
                tool_name,
                input,
                output,
                error,
            }) = serde_json::from_slice(line)
            else {
                continue;
            };
            if let Some(RecordedFailure { message }) = error {
                self.add_answer(&tool_name, &input, &message, true);
            }
            let Some(reply) = output else { continue };
            let failed = reply.is_failed();
            self.add_answer(&tool_name, &input, &reply.markdown, failed);
            if !failed {
                self.add_facts(&tool_name, &input, &reply.structured);
            }
            if let ("record_verification_ledger", false, Ok(entry)) = (
                tool_name.as_str(),
                failed,
                serde_json::from_value::<RecordedLedgerEntry>(input),
            ) {
                self.add_ledger(&entry.verified_identifiers, &entry.unverified_identifiers);
            }
        }
    }

    fn add_answer(&mut self, tool: &str, arguments: &Value, answer: &str, failed: bool) {
        // The examples in the skills of this program do not exist in the project. A skill may be followed by names of tools.
        if tool == "load_skill"
            && skill::bundled_skills()
                .iter()
                .any(|skill| answer.starts_with(&skill.body))
        {
            return;
        }
        let mut sent = HashSet::new();
        collect_words(arguments, &mut sent);
        if WRITE_TOOLS.contains(&tool) && self.invented.len() < MAX_WORDS {
            self.invented.extend(sent.difference(&self.words));
        }
        let is_evidence = EVIDENCE_TOOLS.contains(&tool);
        let own = if tool == "sql_execution" {
            query_words(arguments)
        } else {
            HashSet::new()
        };
        for line in answer.lines() {
            let denies = failed || is_denial(line);
            for line in spellings(line) {
                for word in words(&line) {
                    let hash = hash_word(word);
                    let is_echo = own.contains(&hash)
                        || (denies && sent.contains(&hash))
                        || (!is_evidence && self.invented.contains(&hash));
                    if !is_echo {
                        self.insert(word);
                    }
                }
            }
        }
    }

    fn insert(&mut self, word: &str) {
        match self.words.len() < MAX_WORDS {
            true => drop(self.words.insert(hash_word(word))),
            false => self.is_incomplete = true,
        }
    }
}

/// The findings of this check, in one line of text: a sentence about each name, or a list.
fn findings_regex() -> Option<&'static Regex> {
    static FINDINGS: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let name = r"\S+:\d+ `[^`]*`(?: \(declared as unverified\))?";
        Regex::new(&format!(
            "{name} {UNSOURCED_FINDING}|{UNSOURCED_LIST} {name}(?:, {name})*"
        ))
        .ok()
    });
    FINDINGS.as_ref()
}

/// True for a line of a tool which denies that something exists.
fn is_denial(line: &str) -> bool {
    let line = line
        .trim_start()
        .trim_start_matches(['-', '*', ' '])
        .to_ascii_lowercase();
    DENIALS.iter().any(|denial| line.starts_with(denial))
        || DENIAL_PARTS.iter().any(|part| line.contains(part))
}

/// The aliases and texts of a query, which its result repeats as names of columns and as values.
fn query_words(arguments: &Value) -> HashSet<u64> {
    let names = sql_names(arguments["sql"].as_str().unwrap_or_default());
    names
        .defined
        .iter()
        .chain(&names.texts)
        .flat_map(|text| words(text))
        .map(hash_word)
        .collect()
}

/// The text, followed by the text without escape sequences if it has some. In JSON inside a text, the letter of an
/// escape sequence would be a part of the next word, and Markdown may escape `_`.
fn spellings(text: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let unescaped = text.contains('\\').then(|| {
        let spaces = ["\\n", "\\t", "\\r"]
            .iter()
            .fold(text.to_owned(), |text, escape| text.replace(escape, " "));
        Cow::Owned(spaces.replace("\\_", "_"))
    });
    iter::once(Cow::Borrowed(text)).chain(unescaped)
}

/// The words of `text`: letters, digits, `_` and `-`, without `_` at the ends. A word with hyphens is followed by its
/// parts.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_in_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let whole = text
        .split(move |c| !is_in_word(c))
        .map(|word| word.trim_matches(['-', '_']));
    whole.flat_map(|word| {
        let parts = word.split('-').map(|part| part.trim_matches('_'));
        iter::once(word)
            .chain(parts.filter(move |part| part.len() < word.len()))
            .filter(|word| !word.is_empty())
    })
}

/// Collects the hashes of all words in the texts of `value`.
fn collect_words(value: &Value, found: &mut HashSet<u64>) {
    match value {
        Value::String(text) => {
            for text in spellings(text) {
                found.extend(words(&text).map(hash_word));
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_words(item, found)),
        Value::Object(fields) => fields
            .values()
            .for_each(|field| collect_words(field, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn hash_word(word: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    match word.is_ascii() {
        true => word
            .bytes()
            .for_each(|byte| hasher.write_u8(byte.to_ascii_lowercase())),
        false => word.to_lowercase().hash(&mut hasher),
    }
    hasher.finish()
}
