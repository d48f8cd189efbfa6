//! Messages that disappear after a time, or as soon as they no longer apply.

use std::time::Duration;

use super::SharedModel;
use ingestdeck_core::{
    run::state::{RunView, UnitStatus},
    tape::UnitKey,
};

/// Time that the answer to a command is shown.
const TOAST_DURATION: Duration = Duration::from_secs(5);

/// Time that an unsolicited message is shown.
const ANNOUNCEMENT_DURATION: Duration = Duration::from_secs(20);

/// A message that disappears by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Toast {
    pub text: String,
    /// Time since the screen was opened at which it disappears.
    pub until: Duration,
    topic: ToastTopic,
}

/// Topic of a message. A newer message replaces an older one on the same topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToastTopic {
    /// The answer to a key, until the next key.
    Other,
    /// A message that no key caused.
    Announcement,
    /// A unit that will wait at its next call.
    Holding(UnitKey),
    /// The way in which the run is being stopped.
    Ending,
    /// Concurrency of the run.
    Slots,
}

impl Toast {
    pub(crate) fn is_announcement(&self) -> bool {
        self.topic == ToastTopic::Announcement
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Toasts {
    pub list: Vec<Toast>,
    /// Time since the screen was opened.
    pub now: Duration,
}

impl Toasts {
    /// Shows a message for `TOAST_DURATION`.
    pub(crate) fn show(&mut self, text: impl Into<String>) {
        self.show_about(ToastTopic::Other, text);
    }

    /// Shows an unsolicited message for `ANNOUNCEMENT_DURATION`.
    pub(crate) fn announce(&mut self, text: impl Into<String>) {
        let until = self.now + ANNOUNCEMENT_DURATION;
        self.list.push(Toast {
            text: text.into(),
            until,
            topic: ToastTopic::Announcement,
        });
    }

    /// Shows a message for a while, replacing the one about the same topic.
    pub(crate) fn show_about(&mut self, about: ToastTopic, text: impl Into<String>) {
        let text = text.into();
        self.list.retain(|toast| {
            toast.text != text && (about == ToastTopic::Other || toast.topic != about)
        });
        self.list.push(Toast {
            text,
            until: self.now + TOAST_DURATION,
            topic: about,
        });
        let excess = self.list.len().saturating_sub(3);
        self.list.drain(..excess);
    }

    /// Removes the answers to earlier keys.
    pub(crate) fn dismiss_answers(&mut self) {
        self.list
            .retain(|toast| !matches!(toast.topic, ToastTopic::Other | ToastTopic::Slots));
    }

    /// Removes the message about a topic.
    pub(crate) fn dismiss(&mut self, about: &ToastTopic) {
        self.list.retain(|toast| toast.topic != *about);
    }
}

impl SharedModel {
    /// Removes messages that no longer apply.
    pub(super) fn drop_stale_toasts(&mut self, run_view: &RunView) {
        let ended = run_view.state.ended.is_some() || !self.connection.is_live;
        let waits = |key: &UnitKey| {
            let unit = run_view.state.units.iter().find(|unit| unit.key == *key);
            unit.is_some_and(|unit| !unit.status.is_finished() && unit.status != UnitStatus::Held)
        };
        self.toasts.list.retain(|toast| match &toast.topic {
            ToastTopic::Other | ToastTopic::Announcement | ToastTopic::Slots => true,
            ToastTopic::Holding(unit) => waits(unit),
            ToastTopic::Ending => !ended,
        });
    }

    /// Shows the concurrency that resulted from a request of the user to change it.
    pub(super) fn announce_concurrency(&mut self, run_view: &RunView) {
        if !self.connection.accepts_commands() || self.is_in_past() {
            return;
        }
        let Some(slots) = run_view.state.planned.as_ref().map(|plan| plan.concurrency) else {
            return;
        };
        if self
            .connection
            .shown_concurrency
            .replace(slots)
            .is_some_and(|before| before != slots)
        {
            self.toasts
                .show_about(ToastTopic::Slots, format!("concurrency {slots}"));
        }
    }
}
