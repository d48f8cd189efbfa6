//! Status outside the screen: the terminal's title, its progress indicator, and notifications for a user in another
//! window.
//!
//! Decides what is worth a notification and whether the user has already seen it. Delivery is the responsibility of the
//! host; this module knows no terminal sequences.

use std::{collections::HashSet, time::Duration};

use super::model::{RunTotals, SharedModel};
use ingestdeck_core::{
    run::{
        SourceInfo,
        alerts::{AlertKey, RunAlert, alerts},
        plain_reason,
        state::{RunState, UnitStatus},
    },
    text,
};

/// If the terminal does not report focus, the user is considered present for this time after a key press.
const ATTENDED_WITHIN: Duration = Duration::from_secs(60);

/// Maximum columns of a notification and of the name in the title.
const WIDTH: usize = 160;
const NAME: usize = 40;

/// Progress of a run, for the terminal's own indicator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TerminalProgress {
    #[default]
    None,
    Percent {
        /// Progress from 0 to 100.
        percent: u8,
        failed: bool,
    },
}

/// A message for a user who is in another window. Printable text on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Name of the run.
    pub title: String,
    pub text: String,
}

/// Changes to publish outside the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TerminalStatus {
    /// New title, if it changed.
    pub title: Option<String>,
    /// New progress, if it changed.
    pub progress: Option<TerminalProgress>,
    /// Events that the user has not seen on the screen.
    pub notifications: Vec<Notification>,
}

/// Remembers what was published.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    title: Option<String>,
    progress: Option<TerminalProgress>,
    sent: HashSet<AlertKey>,
    /// The moment of the last check: number of entries and second.
    last_checked: Option<(u64, u64)>,
    /// `None` until the terminal reports it.
    focus: Option<bool>,
    last_key_at: Duration,
}

impl Notifier {
    /// Records that the terminal gained or lost the focus.
    pub(crate) fn focus(&mut self, gained: bool) {
        self.focus = Some(gained);
    }

    pub(crate) fn key_pressed(&mut self, now: Duration) {
        self.last_key_at = now;
    }

    /// The terminal was released in between, so its title and progress must be sent again.
    pub(crate) fn reset(&mut self) {
        (self.title, self.progress) = (None, None);
    }

    /// Returns the changes since the last call.
    pub(crate) fn poll_status(
        &mut self,
        model: &SharedModel,
        origin: &SourceInfo,
        state: &RunState,
        caught_up: bool,
    ) -> TerminalStatus {
        // The screen may show an earlier moment; the status outside of it always shows the present.
        let totals = if model.connection.is_live {
            &model.playhead.bounds.present_totals
        } else {
            &model.totals
        };
        let title = if model.is_home {
            "ingestdeck".to_owned()
        } else {
            title(origin, state, totals)
        };
        let mut outside = TerminalStatus::default();
        if self.title.as_ref() != Some(&title) {
            outside.title = Some(title.clone());
            self.title = Some(title);
        }
        if model.connection.is_live {
            let gauge = terminal_progress(state, totals);
            if self.progress.unwrap_or_default() != gauge {
                outside.progress = Some(gauge);
                self.progress = Some(gauge);
            }
            if caught_up {
                outside.notifications = self.new_notifications(model, origin, state);
            }
        }
        outside
    }

    fn new_notifications(
        &mut self,
        model: &SharedModel,
        origin: &SourceInfo,
        state: &RunState,
    ) -> Vec<Notification> {
        let moment = (state.entries, model.playhead.bounds.now.0 / 1000);
        let first = self.last_checked.is_none();
        if self.last_checked.replace(moment) == Some(moment) {
            return Vec::new();
        }
        let attended = self
            .focus
            .unwrap_or(model.toasts.now.saturating_sub(self.last_key_at) < ATTENDED_WITHIN);
        let mut notifications = Vec::new();
        for alert in alerts(state, model.playhead.bounds.now) {
            let text = alert_text(&alert);
            // Conditions from before the screen opened, and changes that the user has just seen, are not notified.
            if self.sent.insert(alert.key) && !first && !attended {
                let title = format!("ingestdeck {}", text::printable(name(origin), NAME));
                notifications.push(Notification {
                    title,
                    text: text::printable(&text, WIDTH).into_owned(),
                });
            }
        }
        notifications
    }
}

/// The text of an alert, with the reason of a failure.
fn alert_text(alert: &RunAlert<'_>) -> String {
    let verdict = alert
        .unit
        .and_then(|unit| unit.latest())
        .and_then(|attempt| attempt.verdict.as_ref());
    match (&alert.key, verdict) {
        (AlertKey::Failure, verdict) => {
            let reason = verdict.map_or("?".into(), |verdict| plain_reason(&verdict.reason));
            format!("{}: {reason}", alert.text)
        }
        _ => alert.text.clone(),
    }
}

fn failures(totals: &RunTotals) -> usize {
    totals.count(UnitStatus::Failed) + totals.count(UnitStatus::Interrupted)
}

fn terminal_progress(state: &RunState, totals: &RunTotals) -> TerminalProgress {
    let (units, failed) = (state.units.len(), failures(totals) > 0);
    if units == 0 || (state.ended.is_some() && !failed) {
        return TerminalProgress::None;
    }
    let percent = u8::try_from(totals.finished_units().saturating_mul(100) / units)
        .unwrap_or(100)
        .min(100);
    TerminalProgress::Percent { percent, failed }
}

fn name(origin: &SourceInfo) -> &str {
    match &origin.header {
        Some(header) => header.project.as_deref().unwrap_or("run"),
        None => origin.name.rsplit('/').next().unwrap_or("record"),
    }
}

/// The title of the terminal: the main facts for a user in another window.
fn title(origin: &SourceInfo, state: &RunState, totals: &RunTotals) -> String {
    let failed = failures(totals);
    let failed = if failed > 0 {
        format!(", {failed} failed")
    } else {
        String::new()
    };
    let name = text::printable(name(origin), NAME);
    format!(
        "ingestdeck {name}: {}/{} done{failed}",
        totals.finished_units(),
        state.units.len()
    )
}
