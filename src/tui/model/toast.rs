//! Messages that go away by themselves, and those that go as soon as they are not true any more.

use std::time::Duration;

use super::Model;
use crate::{
    run::state::{Story, UnitStatus},
    tape::UnitKey,
};

/// How long a message stays.
const TOAST: Duration = Duration::from_secs(5);

/// How long one stays that nobody waits for.
const ANNOUNCED: Duration = Duration::from_secs(20);

/// A message that goes away by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toast {
    /// Text.
    pub text: String,
    /// When it goes.
    pub until: Duration,
    about: About,
}

/// What a message is about, as far as it can be overtaken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tui) enum About {
    /// Something that stays true.
    Other,
    /// A unit that will wait at its next call.
    Holding(UnitKey),
    /// How the run is brought to its end.
    Ending,
    /// How many units run at once.
    Slots,
}

impl Model {
    /// Tells something for a while.
    pub fn say(&mut self, text: impl Into<String>) {
        self.say_about(About::Other, text);
    }

    /// Tells something that nobody asked for, and that is worth more than a glance.
    pub fn announce(&mut self, text: impl Into<String>) {
        self.toasts.push(Toast { text: text.into(), until: self.now + ANNOUNCED, about: About::Other });
    }

    /// Tells something for a while, in place of what was told about the same.
    pub(in crate::tui) fn say_about(&mut self, about: About, text: impl Into<String>) {
        let text = text.into();
        self.toasts.retain(|toast| toast.text != text && (about == About::Other || toast.about != about));
        self.toasts.push(Toast { text, until: self.now + TOAST, about });
        let excess = self.toasts.len().saturating_sub(3);
        self.toasts.drain(..excess);
    }

    /// Takes back what was told about something.
    pub(in crate::tui) fn unsay(&mut self, about: &About) {
        self.toasts.retain(|toast| toast.about != *about);
    }

    /// What is not true any more need not be read.
    pub(super) fn drop_stale_toasts(&mut self, story: &Story) {
        let ended = story.state.ended.is_some() || !self.live;
        let waits = |key: &UnitKey| {
            let unit = story.state.units.iter().find(|unit| unit.key == *key);
            unit.is_some_and(|unit| !unit.status.is_over() && unit.status != UnitStatus::Held)
        };
        self.toasts.retain(|toast| match &toast.about {
            About::Other | About::Slots => true,
            About::Holding(unit) => waits(unit),
            About::Ending => !ended,
        });
    }

    /// The answer to whoever changed the number of units at once is what the run made of it.
    pub(super) fn tell_slots(&mut self, story: &Story) {
        if !self.takes_orders() || self.looks_back() {
            return;
        }
        let Some(slots) = story.state.planned.as_ref().map(|plan| plan.concurrency) else { return };
        if self.slots.replace(slots).is_some_and(|before| before != slots) {
            self.say_about(About::Slots, format!("{slots} at once"));
        }
    }
}
