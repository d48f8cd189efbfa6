//! The attempts of a recorded run as a model that repeats itself: its messages, and the answers of tools that it saw.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use ingestdeck_core::{
    run::{EntryScope, EntrySource, EntrySourceError, PollStatus},
    tape::{
        EntryBody, Note, UnitKey,
        note::{AttemptStarted, ContentDigests, Verdict},
    },
};

/// Bytes of a tape that are read at a time.
const SLICE: usize = 4 << 20;
/// Most messages of an attempt that are kept.
const MAX_MESSAGES: usize = 10_000;
/// Most bytes of lines that are kept of a record. What is beyond them counts as its end.
const MAX_BYTES: usize = 512 << 20;

/// A recorded attempt from the start of a session to its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedModel {
    pub number: u32,
    pub prompt: String,
    pub content: Option<ContentDigests>,
    pub messages: Vec<RecordedMessage>,
    /// What tools answered, by the id of the call.
    pub answers: HashMap<String, RecordedAnswer>,
    pub verdict: Option<Verdict>,
}

/// One message of the model.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedMessage {
    pub id: String,
    pub blocks: Vec<Value>,
    pub usage: Value,
}

/// The answer to one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordedAnswer {
    pub text: String,
    pub is_error: bool,
}

impl RecordedAnswer {
    /// The answer in a `tool_result` block.
    pub(crate) fn of_block(block: &Value) -> Self {
        let content = &block["content"];
        let blocks = content.as_array().into_iter().flatten();
        let texts: Vec<&str> = blocks.filter_map(|block| block["text"].as_str()).collect();
        Self {
            text: content
                .as_str()
                .map_or_else(|| texts.join("\n"), str::to_owned),
            is_error: block["is_error"] == true,
        }
    }
}

impl RecordedModel {
    fn begin(number: u32, started: &AttemptStarted) -> Self {
        Self {
            number,
            prompt: started.prompt.clone(),
            content: started.content.clone(),
            ..Self::default()
        }
    }

    /// Tool and number (from 1) of each call, by its id.
    pub(crate) fn calls(&self) -> HashMap<&str, (usize, &str)> {
        let blocks = self.messages.iter().flat_map(|message| &message.blocks);
        let calls = blocks.filter(|block| block["type"] == "tool_use");
        let named = calls.enumerate().filter_map(|(at, call)| {
            Some((call["id"].as_str()?, (at + 1, call["name"].as_str()?)))
        });
        named.collect()
    }

    fn push_line(&mut self, line: &[u8]) {
        let Ok(line) = serde_json::from_slice::<Value>(line) else {
            return;
        };
        if !line["parent_tool_use_id"].is_null() {
            return;
        }
        let message = &line["message"];
        let blocks = message["content"].as_array().into_iter().flatten();
        match line["type"].as_str() {
            Some("assistant") if message["model"] != "<synthetic>" => {
                let id = message["id"].as_str().unwrap_or_default();
                if self.messages.last().is_none_or(|last| last.id != id) {
                    if self.messages.len() >= MAX_MESSAGES {
                        return;
                    }
                    self.messages.push(RecordedMessage {
                        id: id.to_owned(),
                        ..RecordedMessage::default()
                    });
                }
                if let Some(last) = self.messages.last_mut() {
                    last.blocks.extend(blocks.cloned());
                    last.usage = message["usage"].clone();
                }
            }
            Some("user") => {
                for block in blocks.filter(|block| block["type"] == "tool_result") {
                    let id = block["tool_use_id"].as_str().unwrap_or_default();
                    self.answers
                        .insert(id.to_owned(), RecordedAnswer::of_block(block));
                }
            }
            _ => {}
        }
    }
}

/// The last attempt at each of `units` that began a session, and the commit that the run began from, if it shows it.
///
/// # Errors
/// If the record cannot be read.
pub(crate) fn read_attempts(
    source: &mut dyn EntrySource,
    units: &[UnitKey],
) -> Result<(BTreeMap<UnitKey, RecordedModel>, Option<String>), EntrySourceError> {
    let mut attempts = BTreeMap::<UnitKey, RecordedModel>::new();
    let (mut base, mut bytes) = (None, 0_usize);
    loop {
        let status = source.poll(SLICE, &mut |entry| {
            let EntryScope::Attempt(unit, number) = entry.scope else {
                return;
            };
            let key = UnitKey::from(unit);
            let is_wanted = units.contains(&key);
            match entry.body {
                EntryBody::Note(json) => match Note::parse(json) {
                    Note::AttemptStarted(started) if is_wanted => {
                        let resumes = started.amendment.as_ref().and_then(|it| it.resume.as_ref());
                        if resumes.is_none() {
                            attempts.insert(key, RecordedModel::begin(number, &started));
                        }
                    }
                    Note::AttemptEnded(ended) => {
                        let attempt = attempts.get_mut(&key);
                        if let Some(attempt) = attempt.filter(|it| it.number == number) {
                            attempt.verdict = Some(ended.verdict);
                        }
                    }
                    // Units of a run begin from the same commit, those that wrote no patch as well.
                    Note::PatchWritten(written) => {
                        base.get_or_insert(written.base);
                    }
                    _ => {}
                },
                EntryBody::Stdout(line) => {
                    let attempt = attempts.get_mut(&key);
                    if let Some(attempt) = attempt.filter(|it| it.number == number) {
                        bytes = bytes.saturating_add(line.len());
                        if bytes <= MAX_BYTES {
                            attempt.push_line(line);
                        }
                    }
                }
                _ => {}
            }
        })?;
        if status != PollStatus::More {
            break;
        }
    }
    attempts.retain(|_, attempt| !attempt.messages.is_empty());
    Ok((attempts, base))
}
