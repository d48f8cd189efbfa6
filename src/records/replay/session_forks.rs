//! Sessions that were forked from other ones: Claude Code copies the conversation, and the recorded cost includes
//! that of the parent. Must not list directories.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
};

use ingestdeck_core::decode::{
    self, LineBody, MessageBlock, line::SessionFileLine, line_fields::line_fields,
    user_text::UserText,
};

use super::file_lines::read_range;

/// Maximum size of a session that is compared with others.
const MAX_BYTES: u64 = 64 << 20;
/// Maximum number of sessions that are compared with each other.
const MAX_FAMILY: usize = 16;
/// Bytes of a text that determine who wrote it.
const MAX_MARKUP_BYTES: usize = 4096;

/// A fork, and what belongs to it alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Fork {
    /// Index of the parent.
    pub(super) parent: usize,
    /// US dollars that the parent had cost before the fork.
    pub(super) paid_usd: f64,
    /// The first prompt after the fork.
    pub(super) prompt: Option<String>,
}

/// The messages and the costs of a session.
#[derive(Debug, Default)]
struct SessionHistory {
    /// `uuid` of each message.
    messages: Vec<String>,
    /// Recorded totals in US dollars, each with the number of messages before it.
    costs: Vec<(usize, f64)>,
    /// Prompts by the index of their message.
    prompts: Vec<(usize, String)>,
}

impl SessionHistory {
    fn read(file: &File) -> Option<Self> {
        let length = file.metadata().ok()?.len();
        if length > MAX_BYTES {
            return None;
        }
        let text = read_range(file, 0, usize::try_from(length).ok()?).ok()?;
        let mut history = Self::default();
        for line in text.split(|byte| *byte == b'\n') {
            let decoded = decode::decode_line(line);
            let prompt = match &decoded.body {
                _ if decoded.is_sidechain => continue,
                LineBody::Assistant(_) => None,
                LineBody::User(chat) if !chat.synthetic => {
                    chat.blocks.iter().find_map(|block| match block {
                        MessageBlock::Text(text) => {
                            let (text, _) = text.prefix(MAX_MARKUP_BYTES);
                            match UserText::parse(chat.author, &text) {
                                UserText::Prompt(prompt) => Some(prompt.into_owned()),
                                UserText::Command(_) | UserText::Report(_) => None,
                            }
                        }
                        _ => None,
                    })
                }
                LineBody::User(_) => None,
                LineBody::SessionFile(SessionFileLine::Cost {
                    total_usd: Some(total),
                    ..
                }) => {
                    history.costs.push((history.messages.len(), *total));
                    continue;
                }
                _ => continue,
            };
            if let Some(uuid) = line_fields(line).uuid {
                if let Some(prompt) = prompt {
                    history.prompts.push((history.messages.len(), prompt));
                }
                history.messages.push(uuid.into_owned());
            }
        }
        Some(history)
    }

    /// The total before the first message of a fork that has these messages.
    fn cost_before_fork(&self, fork: &HashSet<&str>) -> f64 {
        let shared = self
            .messages
            .iter()
            .rposition(|message| fork.contains(message.as_str()))
            .map_or(0, |last| last + 1);
        let before = self.costs.iter().rev().find(|(count, _)| *count <= shared);
        before.map_or(0.0, |(_, total)| *total)
    }
}

/// Finds the forks among sessions whose costs began at the same time, in milliseconds since 1970. `open` opens one of
/// them. The result has an entry for each fork.
pub(super) fn find_forks(
    started: &[Option<u64>],
    open: &dyn Fn(usize) -> Option<File>,
) -> HashMap<usize, Fork> {
    let mut families: HashMap<u64, Vec<usize>> = HashMap::new();
    for (index, started) in started.iter().enumerate() {
        if let Some(started) = started {
            families.entry(*started).or_default().push(index);
        }
    }
    let mut forks = HashMap::new();
    for family in families.into_values().filter(|family| family.len() > 1) {
        let histories = family.iter().take(MAX_FAMILY).filter_map(|index| {
            let history = SessionHistory::read(&open(*index)?)?;
            let (_, first) = *history.costs.first()?;
            Some((*index, first, history))
        });
        let mut histories: Vec<_> = histories.collect();
        // A fork is dearer than its parent from its first turn on.
        histories.sort_by(|one, other| one.1.total_cmp(&other.1));
        for (position, (index, _, history)) in histories.iter().enumerate() {
            let messages: HashSet<&str> = history.messages.iter().map(String::as_str).collect();
            let shared = |other: &SessionHistory| {
                let known = |message: &&String| messages.contains(message.as_str());
                other.messages.iter().filter(known).count()
            };
            let mut parent: Option<(usize, usize, &SessionHistory)> = None;
            for (earlier, _, other) in &histories[..position] {
                let count = shared(other);
                if count > parent.map_or(0, |(count, ..)| count) {
                    parent = Some((count, *earlier, other));
                }
            }
            let Some((_, parent, other)) = parent else {
                continue;
            };
            let copied: HashSet<&str> = other.messages.iter().map(String::as_str).collect();
            let own = history.prompts.iter().find(|(at, _)| {
                history
                    .messages
                    .get(*at)
                    .is_some_and(|message| !copied.contains(message.as_str()))
            });
            let fork = Fork {
                parent,
                paid_usd: other.cost_before_fork(&messages),
                prompt: own.map(|(_, prompt)| prompt.clone()),
            };
            forks.insert(*index, fork);
        }
    }
    forks
}
