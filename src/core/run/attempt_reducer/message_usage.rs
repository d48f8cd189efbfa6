//! Turns, tokens and costs of the model's messages. Counts saturate: untrusted counts may have any value.

use crate::{
    decode::{ChatLine, MessageBlock, Usage},
    run::state::{TokenCounts, push_compact},
    token_prices::{PricedModel, find_prices},
};

/// Number of messages whose id and usage are kept; a stream interleaves only a few.
const MAX_RECENT_MESSAGES: u8 = 16;

/// Turns, tokens and costs by distinct message id.
#[derive(Clone, Debug, Default)]
pub(super) struct MessageUsage {
    turns: u32,
    /// Recent messages with the highest usage seen for each, up to [`MAX_RECENT_MESSAGES`].
    recent: Vec<SeenMessage>,
    /// Index of the message that is evicted next.
    oldest: u8,
    /// Tokens of the turns that have ended, as their results report them.
    ended_turns: TokenCounts,
    /// Tokens of messages that are no longer in `recent`, since the last of these results.
    evicted: TokenCounts,
    /// Costs of these messages.
    evicted_costs: MessageCosts,
    /// Costs of the messages that the last report of the agent covers.
    closed_costs: MessageCosts,
    tokens: TokenCounts,
    /// Input tokens of the newest message, cached ones included; 0 if they are unknown.
    context: u32,
    /// A call was answered since the last line of a message.
    call_answered: bool,
}

#[derive(Clone, Debug, Default)]
struct SeenMessage {
    id: Box<str>,
    /// The request that it answers, where session files record it.
    request: Option<Box<str>>,
    usage: Usage,
    prices: Option<&'static PricedModel>,
    /// US dollars that its lines report.
    reported_usd: Option<f64>,
}

/// What several messages cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct MessageCosts {
    /// US dollars of the messages with a reported or an estimated cost.
    usd: f64,
    reported: u32,
    estimated: u32,
    /// Messages whose price is unknown.
    unknown: u32,
}

impl MessageCosts {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            usd: self.usd + other.usd,
            reported: self.reported.saturating_add(other.reported),
            estimated: self.estimated.saturating_add(other.estimated),
            unknown: self.unknown.saturating_add(other.unknown),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            usd: (self.usd - other.usd).max(0.0),
            reported: self.reported.saturating_sub(other.reported),
            estimated: self.estimated.saturating_sub(other.estimated),
            unknown: self.unknown.saturating_sub(other.unknown),
        }
    }

    /// The cost, if every message reports its own.
    pub(super) fn reported(self) -> Option<f64> {
        (self.reported > 0 && self.estimated == 0 && self.unknown == 0).then_some(self.usd)
    }

    /// The cost, if a part of it is an estimate and none is unknown.
    pub(super) fn estimate(self) -> Option<f64> {
        (self.estimated > 0 && self.unknown == 0).then_some(self.usd)
    }
}

impl SeenMessage {
    fn new(id: &str, chat: &ChatLine<'_>) -> Self {
        Self {
            id: id.into(),
            request: chat.request_id.as_deref().map(Into::into),
            usage: chat.usage.unwrap_or_default(),
            prices: chat.model.as_deref().and_then(find_prices),
            reported_usd: chat.cost_usd,
        }
    }

    fn costs(&self) -> MessageCosts {
        let mut costs = MessageCosts::default();
        let estimate = || self.prices?.cost(&self.usage);
        match self.reported_usd {
            Some(usd) => (costs.usd, costs.reported) = (usd, 1),
            None if self.usage == Usage::default() => {}
            None => match estimate() {
                Some(usd) => (costs.usd, costs.estimated) = (usd, 1),
                None => costs.unknown = 1,
            },
        }
        costs
    }
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
        let usage = chat.usage.unwrap_or_default();
        if let size @ 1.. = context_size(usage.into()) {
            self.context = size;
        }
        let id = chat.message_id.as_deref();
        let call_answered = std::mem::take(&mut self.call_answered);
        if let Some(seen) = id.and_then(|id| self.message_mut(id))
            && (answers_other_request(chat, seen)
                || call_answered && begins_message(chat, usage, seen.usage))
        {
            // A relay that gives all messages the same id.
            let next = SeenMessage::new(&seen.id, chat);
            let before = std::mem::replace(seen, next);
            self.evict(&before);
            self.turns = self.turns.saturating_add(1);
        }
        match (id.and_then(|id| self.message_mut(id)), id) {
            (Some(seen), _) => {
                seen.usage = max_per_field(seen.usage, usage);
                seen.reported_usd = chat.cost_usd.or(seen.reported_usd);
            }
            (None, Some(id)) => {
                self.turns = self.turns.saturating_add(1);
                if self.recent.len() == usize::from(MAX_RECENT_MESSAGES) {
                    let oldest = &mut self.recent[usize::from(self.oldest)];
                    let evicted = std::mem::replace(oldest, SeenMessage::new(id, chat));
                    self.evict(&evicted);
                    self.oldest = (self.oldest + 1) % MAX_RECENT_MESSAGES;
                } else {
                    push_compact(&mut self.recent, SeenMessage::new(id, chat));
                }
            }
            // Each line without a message id counts as a turn.
            (None, None) => {
                self.turns = self.turns.saturating_add(1);
                self.evict(&SeenMessage::new("", chat));
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
        seen.usage = max_per_field(seen.usage, usage);
        self.context = self.context.max(context_size(usage.into()));
        self.add_up();
    }

    /// What all messages cost.
    pub(super) fn costs(&self) -> MessageCosts {
        self.recent
            .iter()
            .fold(self.evicted_costs, |sum, seen| sum.plus(seen.costs()))
    }

    /// What the messages cost that no report of the agent covers.
    pub(super) fn open_costs(&self) -> MessageCosts {
        self.costs().minus(self.closed_costs)
    }

    /// The agent reported a cost that covers all messages so far.
    pub(super) fn close_costs(&mut self) {
        self.closed_costs = self.costs();
    }

    fn evict(&mut self, message: &SeenMessage) {
        self.evicted = self.evicted.plus(message.usage.into());
        self.evicted_costs = self.evicted_costs.plus(message.costs());
    }

    fn message_mut(&mut self, id: &str) -> Option<&mut SeenMessage> {
        self.recent
            .iter_mut()
            .find(|known| ids_equal(&known.id, id))
    }

    /// The one before `oldest` in the ring.
    fn newest_mut(&mut self) -> Option<&mut SeenMessage> {
        let index =
            (usize::from(self.oldest) + self.recent.len()).checked_sub(1)? % self.recent.len();
        self.recent.get_mut(index)
    }

    fn add_up(&mut self) {
        let ended = self.ended_turns.plus(self.evicted);
        self.tokens = self
            .recent
            .iter()
            .fold(ended, |total, seen| total.plus(seen.usage.into()));
    }

    /// Replaces the tokens since the last result by the totals of this one, which covers its turn only. A result after an
    /// API failure reports zero although tokens were used.
    pub(super) fn set_totals(&mut self, totals: TokenCounts) {
        if totals == TokenCounts::default() {
            return;
        }
        self.ended_turns = self.ended_turns.plus(totals);
        self.evicted = TokenCounts::default();
        for seen in &mut self.recent {
            self.evicted_costs = self.evicted_costs.plus(seen.costs());
            seen.usage = Usage::default();
            seen.reported_usd = None;
        }
        self.add_up();
    }
}

/// Input tokens of a message, cached ones included.
fn context_size(usage: TokenCounts) -> u32 {
    let input = [usage.cache_read, usage.cache_write].into_iter();
    let input = input.fold(usage.input, u64::saturating_add);
    u32::try_from(input).unwrap_or(u32::MAX)
}

/// True for a line that answers another request than an earlier line with the id of its message.
fn answers_other_request(chat: &ChatLine<'_>, seen: &SeenMessage) -> bool {
    let request = chat.request_id.as_deref().zip(seen.request.as_deref());
    request.is_some_and(|(new, seen)| new != seen)
}

/// True for a line with the id of an earlier message that belongs to another one: a message writes before it calls, and
/// all of its lines have the same input.
fn begins_message(chat: &ChatLine<'_>, usage: Usage, seen: Usage) -> bool {
    let input = |counts: Usage| (counts.input, counts.cache_read, counts.cache_write);
    let writes = |block: &MessageBlock<'_>| {
        matches!(block, MessageBlock::Text(_) | MessageBlock::Thinking(_))
    };
    chat.blocks.iter().any(writes) || usage != Usage::default() && input(usage) != input(seen)
}

fn max_per_field(a: Usage, b: Usage) -> Usage {
    Usage {
        input: a.input.max(b.input),
        output: a.output.max(b.output),
        cache_read: a.cache_read.max(b.cache_read),
        cache_write: a.cache_write.max(b.cache_write),
        cache_write_1h: a.cache_write_1h.max(b.cache_write_1h),
        web_searches: a.web_searches.max(b.web_searches),
        is_fast: a.is_fast || b.is_fast,
        is_us_only: a.is_us_only || b.is_us_only,
    }
}

/// Compares from the end: ids of one kind have the same length and prefix, so most differ in the last bytes.
fn ids_equal(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().rev().eq(b.bytes().rev())
}
