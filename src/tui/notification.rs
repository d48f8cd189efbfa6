//! What is told outside of the screen: the terminal's title, its progress mark, and news for whoever looks elsewhere.
//!
//! Decides what is news and whether somebody sees it anyway. How it reaches a person is the world's business; no
//! sequence of a terminal is known here.

use std::{collections::HashSet, sync::Arc, time::Duration};

use super::{
    model::{ScreenModel, StatusTotals, is_failure},
    text,
};
use crate::{
    run::{
        SourceInfo,
        state::{RunState, UnitStatus},
    },
    tape::{Millis, UnitKey},
};

/// Where nobody tells about the focus, a person who touched a key so recently is taken to be looking.
const ATTENDED_WITHIN: Duration = Duration::from_secs(60);

/// Columns of a notification and of the name in the title.
const WIDTH: usize = 160;
const NAME: usize = 40;

/// Progress of a run, for the terminal's own mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TerminalProgress {
    /// None is shown.
    #[default]
    None,
    /// So much is done.
    Percent {
        /// 0 to 100.
        percent: u8,
        /// Something failed.
        failed: bool,
    },
}

/// Something that a person wants to hear while looking elsewhere. Safe text, on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Which run.
    pub title: String,
    /// What about it.
    pub text: String,
}

/// What is to be told now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalStatus {
    /// The title, if it is another one.
    pub title: Option<String>,
    /// Progress, if it moved.
    pub progress: Option<TerminalProgress>,
    /// News that nobody saw on the screen.
    pub notifications: Vec<Notification>,
}

/// What can be news, each once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum NotificationKey {
    /// The first failure.
    Failure,
    /// The end of the run, after so many attempts.
    Ended(usize),
    /// A silence of an attempt, since when.
    Silent(UnitKey, Millis),
    /// A call that waits for a person.
    HeldCall(UnitKey, Option<Arc<str>>),
}

/// Remembers what was told.
#[derive(Debug, Default)]
pub struct Notifier {
    title: Option<String>,
    progress: Option<TerminalProgress>,
    sent: HashSet<NotificationKey>,
    /// The moment that was looked at last: entries and second.
    last_checked: Option<(u64, u64)>,
    /// `None` while the terminal has not said.
    focus: Option<bool>,
    last_key_at: Duration,
}

impl Notifier {
    /// The terminal got or lost the focus.
    pub fn focus(&mut self, gained: bool) {
        self.focus = Some(gained);
    }

    /// Somebody touched a key.
    pub fn key_pressed(&mut self, now: Duration) {
        self.last_key_at = now;
    }

    /// The terminal was handed back in between: whatever it was told is gone.
    pub fn reset(&mut self) {
        (self.title, self.progress) = (None, None);
    }

    /// What is to be told about this moment.
    pub fn poll_status(
        &mut self,
        model: &ScreenModel,
        origin: &SourceInfo,
        state: &RunState,
        caught_up: bool,
    ) -> TerminalStatus {
        // Somebody who looks back sees the past; the run outside of the screen does not go back with it.
        let totals = if model.is_live { &model.bounds.present_totals } else { &model.totals };
        let title = title(origin, state, totals);
        let mut outside = TerminalStatus::default();
        if self.title.as_ref() != Some(&title) {
            outside.title = Some(title.clone());
            self.title = Some(title);
        }
        if model.is_live {
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

    fn new_notifications(&mut self, model: &ScreenModel, origin: &SourceInfo, state: &RunState) -> Vec<Notification> {
        let moment = (state.entries, model.bounds.now.0 / 1000);
        let first = self.last_checked.is_none();
        if self.last_checked.replace(moment) == Some(moment) {
            return Vec::new();
        }
        let attended = self.focus.unwrap_or(model.now.saturating_sub(self.last_key_at) < ATTENDED_WITHIN);
        let mut news = Vec::new();
        for (fact, text) in pending_notifications(state, &model.bounds.present_totals, model.bounds.now) {
            // What was so before the screen came up is no news; what happens before somebody's eyes is none either.
            if self.sent.insert(fact) && !first && !attended {
                let title = format!("ingestdeck {}", text::printable(name(origin), NAME));
                news.push(Notification { title, text: text::printable(&text, WIDTH).into_owned() });
            }
        }
        news
    }
}

/// Everything that is worth telling about a moment.
fn pending_notifications(state: &RunState, totals: &StatusTotals, now: Millis) -> Vec<(NotificationKey, String)> {
    let mut facts = Vec::new();
    if totals.count(UnitStatus::Failed) + totals.count(UnitStatus::Interrupted) > 0
        && let Some(unit) = state.units.iter().find(|unit| is_failure(unit.status))
    {
        let reason = unit.latest().and_then(|attempt| attempt.verdict.as_ref()).map(|verdict| verdict.reason.as_str());
        facts.push((
            NotificationKey::Failure,
            format!("{} {}: {}", unit.key, unit.status_text(), reason.unwrap_or("?")),
        ));
    }
    if totals.active_units() > 0 {
        for unit in &state.units {
            let Some(attempt) = unit.latest() else { continue };
            if let Some(call) = unit.oldest_held_call() {
                let text = format!("{} waits for you: {}", unit.key, call.tool);
                facts.push((NotificationKey::HeldCall(unit.key.clone(), call.tool_use_id.clone()), text));
            }
            if let (UnitStatus::Silent, Some(since)) = (unit.status, attempt.silent_since) {
                let text = format!("{} has been silent for {}", unit.key, now.since(since));
                facts.push((NotificationKey::Silent(unit.key.clone(), since), text));
            }
        }
    }
    if let Some(ended) = &state.ended {
        let text = format!("{} after {now}: {} of {} units failed", ended.outcome, failures(totals), state.units.len());
        facts.push((NotificationKey::Ended(totals.attempts), text));
    }
    facts
}

fn failures(totals: &StatusTotals) -> usize {
    totals.count(UnitStatus::Failed) + totals.count(UnitStatus::Interrupted)
}

fn terminal_progress(state: &RunState, totals: &StatusTotals) -> TerminalProgress {
    let (units, failed) = (state.units.len(), failures(totals) > 0);
    if units == 0 || (state.ended.is_some() && !failed) {
        return TerminalProgress::None;
    }
    let percent = u8::try_from(totals.finished_units().saturating_mul(100) / units).unwrap_or(100).min(100);
    TerminalProgress::Percent { percent, failed }
}

fn name(origin: &SourceInfo) -> &str {
    match &origin.header {
        Some(header) => header.project.as_deref().unwrap_or("run"),
        None => origin.name.rsplit('/').next().unwrap_or("record"),
    }
}

/// The title of the terminal: what a person wants to know from another window.
fn title(origin: &SourceInfo, state: &RunState, totals: &StatusTotals) -> String {
    let failed = failures(totals);
    let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
    let name = text::printable(name(origin), NAME);
    format!("ingestdeck {name}: {}/{} done{failed}", totals.finished_units(), state.units.len())
}
