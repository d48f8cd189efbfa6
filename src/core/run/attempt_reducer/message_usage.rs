//! Turns and tokens of the model's messages. Counts saturate: untrusted counts may have any value.

use crate::{
    decode::{ChatLine, MessageBlock, Usage},
    run::state::{TokenCounts, push_compact},
};

/// Number of messages whose id and usage are kept; a stream interleaves only a few.
const MAX_RECENT_MESSAGES: u8 = 16;

/// Turns and tokens by distinct message id.
#[derive(Clone, Debug, Default)]
pub(super) struct MessageUsage {
    turns: u32,
    /// Recent messages with the highest usage seen for each, up to [`MAX_RECENT_MESSAGES`].
    recent: Vec<(Box<str>, TokenCounts)>,
    /// Index of the message that is evicted next.
    oldest: u8,
    /// Tokens of messages that are no longer in `recent`.
    evicted: TokenCounts,
    tokens: TokenCounts,
    /// Input tokens of the newest message, cached ones included; 0 if they are unknown.
    context: u32,
    /// A call was answered since the last line of a message.
    call_answered: bool,
}

impl MessageUsage {
    pub(super) fn turns(&self) -> u32 {
        self.turns
    }

    pub(super) fn tokens(&self) -> TokenCounts {
        self.tokens
    }

    pub(super) fn context_tokens(&self) -> u32 {
        self.context
    }

    /// The context was compacted or cleared. The next message reports its new size.
    pub(super) fn forget_context(&mut self) {
        self.context = 0;
    }

    /// A call was answered. Calls may run while their message is still being written.
    pub(super) fn add_answer(&mut self) {
        self.call_answered = true;
    }

    /// Adds a line of a message of the main loop. Several lines may belong to one message.
    pub(super) fn add_message(&mut self, chat: &ChatLine<'_>) {
        let usage = chat.usage.map(TokenCounts::from).unwrap_or_default();
        if let size @ 1.. = context_size(usage) {
            self.context = size;
        }
        let id = chat.message_id.as_deref();
        if std::mem::take(&mut self.call_answered)
            && let Some(seen) = id.and_then(|id| self.message_mut(id))
            && begins_message(chat, usage, *seen)
        {
            // A relay that gives all messages the same id.
            let before = std::mem::take(seen);
            self.evicted = self.evicted.plus(before);
            self.turns = self.turns.saturating_add(1);
        }
        match (id.and_then(|id| self.message_mut(id)), id) {
            (Some(seen), _) => *seen = max_per_field(*seen, usage),
            (None, Some(id)) => {
                self.turns = self.turns.saturating_add(1);
                if self.recent.len() == usize::from(MAX_RECENT_MESSAGES) {
                    let oldest = &mut self.recent[usize::from(self.oldest)];
                    let (_, evicted) = std::mem::replace(oldest, (id.into(), usage));
                    self.evicted = self.evicted.plus(evicted);
                    self.oldest = (self.oldest + 1) % MAX_RECENT_MESSAGES;
                } else {
                    push_compact(&mut self.recent, (id.into(), usage));
                }
            }
            // Each line without a message id counts as a turn.
            (None, None) => {
                self.turns = self.turns.saturating_add(1);
                self.evicted = self.evicted.plus(usage);
            }
        }
        self.add_up();
    }

    /// Adds the final counts of a message of the main loop, by default of the newest. Those of a message without lines
    /// are ignored.
    pub(super) fn add_final_counts(&mut self, id: Option<&str>, usage: Usage) {
        let message = match id {
            Some(id) => self.message_mut(id),
            None => self.newest_mut(),
        };
        let Some(seen) = message else { return };
        *seen = max_per_field(*seen, usage.into());
        self.context = self.context.max(context_size(usage.into()));
        self.add_up();
    }

    fn message_mut(&mut self, id: &str) -> Option<&mut TokenCounts> {
        self.recent
            .iter_mut()
            .find(|(known, _)| ids_equal(known, id))
            .map(|(_, usage)| usage)
    }

    /// The one before `oldest` in the ring.
    fn newest_mut(&mut self) -> Option<&mut TokenCounts> {
        let index =
            (usize::from(self.oldest) + self.recent.len()).checked_sub(1)? % self.recent.len();
        Some(&mut self.recent[index].1)
    }

    fn add_up(&mut self) {
        self.tokens = self
            .recent
            .iter()
            .fold(self.evicted, |total, (_, usage)| total.plus(*usage));
    }

    /// Sets the totals of a result. A result after an API failure reports zero although tokens were used.
    pub(super) fn set_totals(&mut self, totals: TokenCounts) {
        if totals != TokenCounts::default() {
            self.tokens = totals;
        }
    }
}

/// Input tokens of a message, cached ones included.
fn context_size(usage: TokenCounts) -> u32 {
    let input = [usage.cache_read, usage.cache_write].into_iter();
    let input = input.fold(usage.input, u64::saturating_add);
    u32::try_from(input).unwrap_or(u32::MAX)
}

/// True for a line with the id of an earlier message that belongs to another one: a message writes before it calls, and
/// all of its lines have the same input.
fn begins_message(chat: &ChatLine<'_>, usage: TokenCounts, seen: TokenCounts) -> bool {
    let input = |counts: TokenCounts| (counts.input, counts.cache_read, counts.cache_write);
    let writes = |block: &MessageBlock<'_>| {
        matches!(block, MessageBlock::Text(_) | MessageBlock::Thinking(_))
    };
    chat.blocks.iter().any(writes) || usage != TokenCounts::default() && input(usage) != input(seen)
}

fn max_per_field(a: TokenCounts, b: TokenCounts) -> TokenCounts {
    TokenCounts {
        input: a.input.max(b.input),
        output: a.output.max(b.output),
        cache_read: a.cache_read.max(b.cache_read),
        cache_write: a.cache_write.max(b.cache_write),
    }
}

/// Compares from the end: ids of one kind have the same length and prefix, so most differ in the last bytes.
fn ids_equal(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().rev().eq(b.bytes().rev())
}
