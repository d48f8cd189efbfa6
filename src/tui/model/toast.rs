//! Messages that go away by themselves, and those that go as soon as they are not true any more.

use std::time::Duration;

use super::ScreenModel;
use crate::{
    run::state::{RunView, UnitStatus},
    tape::UnitKey,
};

/// How long a message stays.
const TOAST_DURATION: Duration = Duration::from_secs(5);

/// How long one stays that nobody waits for.
const ANNOUNCEMENT_DURATION: Duration = Duration::from_secs(20);

/// A message that goes away by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toast {
    /// Text.
    pub text: String,
    /// When it goes.
    pub until: Duration,
    topic: ToastTopic,
}

/// What a message is about, as far as it can be overtaken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tui) enum ToastTopic {
    /// Something that stays true.
    Other,
    /// A unit that will wait at its next call.
    Holding(UnitKey),
    /// How the run is brought to its end.
    Ending,
    /// How many units run at once.
    Slots,
}

impl ScreenModel {
    /// Tells something for a while.
    pub fn show_message(&mut self, text: impl Into<String>) {
        self.show_message_about(ToastTopic::Other, text);
    }

    /// Tells something that nobody asked for, and that is worth more than a glance.
    pub fn announce(&mut self, text: impl Into<String>) {
        self.toasts.push(Toast {
            text: text.into(),
            until: self.now + ANNOUNCEMENT_DURATION,
            topic: ToastTopic::Other,
        });
    }

    /// Tells something for a while, in place of what was told about the same.
    pub(in crate::tui) fn show_message_about(&mut self, about: ToastTopic, text: impl Into<String>) {
        let text = text.into();
        self.toasts.retain(|toast| toast.text != text && (about == ToastTopic::Other || toast.topic != about));
        self.toasts.push(Toast { text, until: self.now + TOAST_DURATION, topic: about });
        let excess = self.toasts.len().saturating_sub(3);
        self.toasts.drain(..excess);
    }

    /// Takes back what was told about something.
    pub(in crate::tui) fn dismiss_message(&mut self, about: &ToastTopic) {
        self.toasts.retain(|toast| toast.topic != *about);
    }

    /// What is not true any more need not be read.
    pub(super) fn drop_stale_toasts(&mut self, story: &RunView) {
        let ended = story.state.ended.is_some() || !self.is_live;
        let waits = |key: &UnitKey| {
            let unit = story.state.units.iter().find(|unit| unit.key == *key);
            unit.is_some_and(|unit| !unit.status.is_finished() && unit.status != UnitStatus::Held)
        };
        self.toasts.retain(|toast| match &toast.topic {
            ToastTopic::Other | ToastTopic::Slots => true,
            ToastTopic::Holding(unit) => waits(unit),
            ToastTopic::Ending => !ended,
        });
    }

    /// The answer to whoever changed the number of units at once is what the run made of it.
    pub(super) fn announce_concurrency(&mut self, story: &RunView) {
        if !self.accepts_commands() || self.is_in_past() {
            return;
        }
        let Some(slots) = story.state.planned.as_ref().map(|plan| plan.concurrency) else { return };
        if self.shown_concurrency.replace(slots).is_some_and(|before| before != slots) {
            self.show_message_about(ToastTopic::Slots, format!("{slots} at once"));
        }
    }
}
