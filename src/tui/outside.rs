//! What is told outside of the screen: the terminal's title, its progress mark, and news for whoever looks elsewhere.
//!
//! Decides what is news and whether somebody sees it anyway. How it reaches a person is the world's business; no
//! sequence of a terminal is known here.

use std::{collections::HashSet, sync::Arc, time::Duration};

use super::{
    model::{Model, Totals, is_failure},
    text,
};
use crate::{
    run::{
        Origin,
        state::{RunState, UnitStatus},
    },
    tape::{Millis, UnitKey},
};

/// Where nobody tells about the focus, a person who touched a key so recently is taken to be looking.
const AT_IT: Duration = Duration::from_secs(60);

/// Columns of a notification and of the name in the title.
const WIDTH: usize = 160;
const NAME: usize = 40;

/// Progress of a run, for the terminal's own mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gauge {
    /// None is shown.
    #[default]
    None,
    /// So much is done.
    Share {
        /// 0 to 100.
        percent: u8,
        /// Something failed.
        failed: bool,
    },
}

/// Something that a person wants to hear while looking elsewhere. Safe text, on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// Which run.
    pub title: String,
    /// What about it.
    pub text: String,
}

/// What is to be told now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// The title, if it is another one.
    pub title: Option<String>,
    /// Progress, if it moved.
    pub gauge: Option<Gauge>,
    /// News that nobody saw on the screen.
    pub news: Vec<News>,
}

/// What can be news, each once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Fact {
    /// The first failure.
    Failure,
    /// The end of the run, after so many attempts.
    Ended(usize),
    /// A silence of an attempt, since when.
    Silent(UnitKey, Millis),
    /// A call that waits for a person.
    Waits(UnitKey, Option<Arc<str>>),
}

/// Remembers what was told.
#[derive(Debug, Default)]
pub struct Herald {
    title: Option<String>,
    gauge: Option<Gauge>,
    told: HashSet<Fact>,
    /// The moment that was looked at last: entries and second.
    looked: Option<(u64, u64)>,
    /// `None` while the terminal has not said.
    focus: Option<bool>,
    touched: Duration,
}

impl Herald {
    /// The terminal got or lost the focus.
    pub fn focus(&mut self, gained: bool) {
        self.focus = Some(gained);
    }

    /// Somebody touched a key.
    pub fn touched(&mut self, now: Duration) {
        self.touched = now;
    }

    /// The terminal was handed back in between: whatever it was told is gone.
    pub fn forget(&mut self) {
        (self.title, self.gauge) = (None, None);
    }

    /// What is to be told about this moment.
    pub fn tell(&mut self, model: &Model, origin: &Origin, state: &RunState, caught_up: bool) -> Outside {
        // Somebody who looks back sees the past; the run outside of the screen does not go back with it.
        let totals = if model.live { &model.extent.present } else { &model.totals };
        let title = title(origin, state, totals);
        let mut outside = Outside::default();
        if self.title.as_ref() != Some(&title) {
            outside.title = Some(title.clone());
            self.title = Some(title);
        }
        if model.live {
            let gauge = gauge(state, totals);
            if self.gauge.unwrap_or_default() != gauge {
                outside.gauge = Some(gauge);
                self.gauge = Some(gauge);
            }
            if caught_up {
                outside.news = self.news(model, origin, state);
            }
        }
        outside
    }

    fn news(&mut self, model: &Model, origin: &Origin, state: &RunState) -> Vec<News> {
        let moment = (state.entries, model.extent.now.0 / 1000);
        let first = self.looked.is_none();
        if self.looked.replace(moment) == Some(moment) {
            return Vec::new();
        }
        let attended = self.focus.unwrap_or(model.now.saturating_sub(self.touched) < AT_IT);
        let mut news = Vec::new();
        for (fact, text) in facts(state, &model.extent.present, model.extent.now) {
            // What was so before the screen came up is no news; what happens before somebody's eyes is none either.
            if self.told.insert(fact) && !first && !attended {
                let title = format!("ingestdeck {}", text::safe(name(origin), NAME));
                news.push(News { title, text: text::safe(&text, WIDTH).into_owned() });
            }
        }
        news
    }
}

/// Everything that is worth telling about a moment.
fn facts(state: &RunState, totals: &Totals, now: Millis) -> Vec<(Fact, String)> {
    let mut facts = Vec::new();
    if totals.count(UnitStatus::Failed) + totals.count(UnitStatus::Interrupted) > 0
        && let Some(unit) = state.units.iter().find(|unit| is_failure(unit.status))
    {
        let reason = unit.latest().and_then(|attempt| attempt.verdict.as_ref()).map(|verdict| verdict.reason.as_str());
        facts.push((Fact::Failure, format!("{} {}: {}", unit.key, unit.word(), reason.unwrap_or("?"))));
    }
    if totals.active() > 0 {
        for unit in &state.units {
            let Some(attempt) = unit.latest() else { continue };
            if let Some(call) = unit.held() {
                let text = format!("{} waits for you: {}", unit.key, call.tool);
                facts.push((Fact::Waits(unit.key.clone(), call.tool_use_id.clone()), text));
            }
            if let (UnitStatus::Silent, Some(since)) = (unit.status, attempt.quiet_since) {
                let text = format!("{} has been silent for {}", unit.key, now.since(since));
                facts.push((Fact::Silent(unit.key.clone(), since), text));
            }
        }
    }
    if let Some(ended) = &state.ended {
        let text = format!("{} after {now}: {} of {} units failed", ended.outcome, failures(totals), state.units.len());
        facts.push((Fact::Ended(totals.attempts), text));
    }
    facts
}

fn failures(totals: &Totals) -> usize {
    totals.count(UnitStatus::Failed) + totals.count(UnitStatus::Interrupted)
}

fn gauge(state: &RunState, totals: &Totals) -> Gauge {
    let (units, failed) = (state.units.len(), failures(totals) > 0);
    if units == 0 || (state.ended.is_some() && !failed) {
        return Gauge::None;
    }
    let percent = u8::try_from(totals.over().saturating_mul(100) / units).unwrap_or(100).min(100);
    Gauge::Share { percent, failed }
}

fn name(origin: &Origin) -> &str {
    match &origin.header {
        Some(header) => header.project.as_deref().unwrap_or("run"),
        None => origin.name.rsplit('/').next().unwrap_or("record"),
    }
}

/// The title of the terminal: what a person wants to know from another window.
fn title(origin: &Origin, state: &RunState, totals: &Totals) -> String {
    let failed = failures(totals);
    let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
    let name = text::safe(name(origin), NAME);
    format!("ingestdeck {name}: {}/{} done{failed}", totals.over(), state.units.len())
}
