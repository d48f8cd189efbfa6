//! The words that an agent received: in its prompt, in replies of tools and in messages of a person.
//!
//! Only hashes are kept. A word that the agent wrote first is not received because a tool repeats it.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    iter,
};

use serde::Deserialize;
use serde_json::Value;

use crate::{
    ingest::skill,
    units::{ToolCall, ToolReply},
};

/// Maximum number of words that are kept, each 8 bytes.
const MAX_WORDS: usize = 1_000_000;

/// Tools whose replies contain raw files or the content of databases, and nothing that the agent wrote.
const EVIDENCE_TOOLS: [&str; 4] = ["read_raw_file", "read_raw_span", "sql_execution", "entity_details"];

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
    is_incomplete: bool,
}

/// A line of the transcript of an earlier attempt.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedCall {
    tool_name: String,
    #[serde(default)]
    input: Value,
    output: RecordedReply,
}

#[derive(Deserialize)]
struct RecordedReply {
    markdown: String,
}

impl ReceivedNames {
    /// True if more was received than is recorded, so that nothing can be concluded from a missing word.
    pub(super) fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// True if all words of `name` were received.
    pub(super) fn contains(&self, name: &str) -> bool {
        words(name).all(|word| self.words.contains(&hash_word(word)))
    }

    /// True if the agent declared `name` as unverified.
    pub(super) fn is_declared(&self, name: &str) -> bool {
        self.declared.contains(&hash_word(name))
    }

    /// Records that the agent received more than is known.
    pub(crate) fn mark_incomplete(&mut self) {
        self.is_incomplete = true;
    }

    /// Adds a text that the agent received.
    pub(crate) fn add_text(&mut self, text: &str) {
        words(text).for_each(|word| self.insert(word));
        if text.contains('\\') {
            // In JSON inside a text, the letter of an escape sequence would be a part of the next word.
            let unescaped =
                ["\\n", "\\t", "\\r"].iter().fold(text.to_owned(), |text, escape| text.replace(escape, " "));
            words(&unescaped).for_each(|word| self.insert(word));
        }
    }

    /// Adds the entries of the verification ledger.
    pub(crate) fn add_ledger(&mut self, verified: &[String], unverified: &[String]) {
        verified.iter().for_each(|name| self.add_text(name));
        self.declared.extend(unverified.iter().flat_map(|name| words(name)).map(hash_word));
    }

    /// Adds what the agent received by a call.
    pub(crate) fn add_reply(&mut self, call: &ToolCall, reply: &ToolReply) {
        let failed = reply.is_error || reply.declined;
        self.add_answer(&call.name, &call.arguments, &reply.markdown, failed);
    }

    /// Adds the replies in the transcript of earlier attempts, for an agent that continues their session.
    pub(crate) fn add_transcript(&mut self, transcript: &[u8]) {
        for line in transcript.split(|byte| *byte == b'\n') {
            if let Ok(RecordedCall { tool_name, input, output }) = serde_json::from_slice(line) {
                self.add_answer(&tool_name, &input, &output.markdown, false);
            }
        }
    }

    fn add_answer(&mut self, tool: &str, arguments: &Value, answer: &str, failed: bool) {
        // The examples in the skills of this program do not exist in the project.
        if tool == "load_skill" && skill::bundled_skills().iter().any(|skill| skill.body == answer) {
            return;
        }
        let mut sent = HashSet::new();
        collect_words(arguments, &mut sent);
        if WRITE_TOOLS.contains(&tool) && self.invented.len() < MAX_WORDS {
            self.invented.extend(sent.difference(&self.words));
        }
        let is_evidence = EVIDENCE_TOOLS.contains(&tool);
        for line in answer.lines() {
            // A line that denies that something exists repeats what was asked.
            let denies = failed || words(line).any(|word| ["no", "not"].iter().any(|no| word.eq_ignore_ascii_case(no)));
            for word in words(line) {
                let hash = hash_word(word);
                let is_echo = (denies && sent.contains(&hash)) || (!is_evidence && self.invented.contains(&hash));
                if !is_echo {
                    self.insert(word);
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

/// The words of `text`: letters, digits, `_`, `$` and `-`. A word with hyphens is followed by its parts.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_in_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '-');
    let whole = text.split(move |c| !is_in_word(c)).map(|word| word.trim_matches('-'));
    whole
        .filter(|word| !word.is_empty())
        .flat_map(|word| iter::once(word).chain(word.split('-').filter(move |part| part.len() < word.len())))
}

/// Collects the hashes of all words in the texts of `value`.
fn collect_words(value: &Value, found: &mut HashSet<u64>) {
    match value {
        Value::String(text) => found.extend(words(text).map(hash_word)),
        Value::Array(items) => items.iter().for_each(|item| collect_words(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| collect_words(field, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn hash_word(word: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    match word.is_ascii() {
        true => word.bytes().for_each(|byte| hasher.write_u8(byte.to_ascii_lowercase())),
        false => word.to_lowercase().hash(&mut hasher),
    }
    hasher.finish()
}
