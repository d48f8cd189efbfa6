//! `--ui lines`: one line an event, for logs and pipes. Everything that was not written by us is escaped.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt::Write as _,
    io::{self, Write},
};

use crate::{
    actions::{
        Event, Phase,
        event::{ActionEvent, Detail},
        label,
    },
    cli::{
        output::{Color, EscapingWriter},
        summary::counted,
    },
    decode::content_text,
    run::{Aside, Emitted, RunChange, state::UnitStatus},
    tape::{Millis, note::Level},
    tui::text,
};

/// Longest text of a line, in columns; the whole is in the tape.
const WIDTH: usize = 160;

/// Columns of the lane: no fewer, so that short records look alike, and no more, so that texts have room.
const LANES: std::ops::RangeInclusive<usize> = 24..=40;

/// Writes events as lines.
#[derive(Debug)]
pub struct Lines<W> {
    out: EscapingWriter<W>,
    color: bool,
    lane_width: usize,
    /// When each open action began, by unit, attempt and id.
    open: HashMap<(String, u32, String), Millis>,
    result: io::Result<()>,
}

impl<W: Write> Lines<W> {
    /// A writer.
    pub fn new(out: W, color: bool) -> Self {
        Self { out: EscapingWriter::text(out), color, lane_width: *LANES.start(), open: HashMap::new(), result: Ok(()) }
    }

    /// Writes what one entry led to.
    pub fn emitted(&mut self, emitted: &Emitted<'_>) {
        match emitted {
            Emitted::Event { at, unit, attempt, event, aside, .. } => self.event(*at, unit, *attempt, event, *aside),
            Emitted::Unit { at, unit, attempt, status, reason } => {
                if matches!(status, UnitStatus::Queued | UnitStatus::Untried) && *attempt == 0 {
                    return;
                }
                let mut text = status.word().to_owned();
                // A success gives no reason that its word does not give.
                if let Some(reason) = reason.filter(|_| *status != UnitStatus::Succeeded) {
                    let _ = write!(text, ": {reason}");
                }
                self.line(*at, &lane(unit, *attempt), status_glyph(*status), &text);
            }
            Emitted::Patch { at, unit, attempt, result, reason, shared } => {
                let glyph = if result.is_taken() { '✓' } else { '✗' };
                let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                self.line(*at, &lane(unit, *attempt), glyph, &format!("{}{reason}", result.word()));
                for shared in *shared {
                    self.line(*at, &lane(unit, *attempt), if shared.merged { '▲' } else { '·' }, &shared.to_string());
                }
            }
            Emitted::Message { at, unit, attempt, level, text } => {
                self.line(*at, &lane(unit, *attempt), message_glyph(*level), text);
            }
            Emitted::Run { at, change } => self.change(*at, change),
        }
    }

    /// True once nobody reads any more.
    pub fn is_closed(&self) -> bool {
        self.result.is_err()
    }

    /// Writes `text` and ends.
    pub fn end(mut self, text: &str) -> io::Result<()> {
        self.result.and_then(|()| self.out.write_all(text.as_bytes())).and_then(|()| self.out.flush())
    }

    /// Hands everything to the system.
    pub fn flush(&mut self) {
        if self.result.is_ok() {
            self.result = self.out.flush();
        }
    }

    fn event(&mut self, at: Millis, unit: &str, attempt: u32, event: &Event<'_>, aside: Option<Aside>) {
        match event {
            Event::Started(started) => {
                self.line(at, &lane(unit, attempt), '●', &format!("session {} ({})", started.resume, started.title));
            }
            Event::Action(action) => self.action(at, unit, attempt, action, aside),
            Event::Completed(completed) => {
                let (glyph, text) = if completed.ok {
                    ('✓', completed.answer.as_ref())
                } else {
                    ('✗', completed.error.as_deref().map_or("failed", label::error))
                };
                let glyph = match aside {
                    Some(Aside::Spent) => '◆',
                    Some(Aside::Cut) => '■',
                    Some(Aside::Declined) | None => glyph,
                };
                self.line(at, &lane(unit, attempt), glyph, &format!("completed: {text}"));
            }
        }
    }

    fn action(&mut self, at: Millis, unit: &str, attempt: u32, event: &ActionEvent<'_>, aside: Option<Aside>) {
        let key = (unit.to_owned(), attempt, event.action.id.to_string());
        match event.phase {
            Phase::Started => {
                self.open.insert(key, at);
            }
            Phase::Updated => {}
            Phase::Completed => {
                let took = self.open.remove(&key).map(|began| at.since(began));
                let glyph = match (aside, event.ok, event.level) {
                    (Some(Aside::Declined), ..) => '△',
                    (Some(Aside::Cut), ..) => '■',
                    (_, Some(false), Some(_)) => '▲',
                    (_, Some(false), None) => '✗',
                    (..) => '✓',
                };
                let mut text = label::of(&event.action).to_string();
                if let Some(took) = took {
                    let _ = write!(text, "  {:.1}s", seconds(took));
                }
                let message = event.message.as_deref().filter(|message| *message != event.action.title);
                let said = match aside {
                    Some(Aside::Cut) => None,
                    Some(Aside::Declined) => said(event),
                    Some(Aside::Spent) | None => {
                        message.map(Cow::Borrowed).or_else(|| said(event).filter(|_| event.ok == Some(false)))
                    }
                };
                if let Some(aside) = aside {
                    let _ = write!(text, "  {}", aside.word());
                }
                if let Some(said) = said {
                    let colon = if aside.is_some() { ": " } else { "  " };
                    let _ = write!(text, "{colon}{}", said.strip_prefix("Error: ").unwrap_or(&said));
                }
                self.line(at, &lane(unit, attempt), glyph, &text);
            }
        }
    }

    fn change(&mut self, at: Millis, change: &RunChange<'_>) {
        let (glyph, text) = match change {
            RunChange::Planned(planned) => {
                let widest = planned.units.iter().map(|unit| text::width(&lane(&unit.unit, 1))).max();
                self.lane_width = widest.unwrap_or_default().clamp(*LANES.start(), *LANES.end());
                for skipped in &planned.skipped {
                    self.line(at, "run", '▲', &skipped.why);
                }
                let scripted = if planned.scripted { ", scripted agent" } else { "" };
                let units = counted(planned.units.len(), "unit");
                let continues = planned.continues.as_ref();
                let continues = continues.map(|before| format!(", continues run {}", before.run.short()));
                let continues = continues.unwrap_or_default();
                ('●', format!("{units} planned, {} at once{scripted}{continues}", planned.concurrency))
            }
            RunChange::Paused { until, limit } => {
                let wait = until.map(|until| format!(" for {}", until.since(at))).unwrap_or_default();
                ('▲', format!("paused{wait}: {limit}"))
            }
            RunChange::Integrating(0) => ('●', "nothing to integrate but what the pass makes".to_owned()),
            RunChange::Integrating(units) => ('●', format!("integrating {}", counted(*units, "unit"))),
            RunChange::Saved(saved) => match saved.short() {
                Some(commit) => ('●', format!("saved as commit {commit}: {}", saved.subject)),
                None => ('●', "nothing to save".into()),
            },
            RunChange::SaveFailed(reason) => ('✗', format!("not saved: {reason}")),
            RunChange::Resumed => ('●', "resumed".into()),
            RunChange::Said { level, text } => (message_glyph(*level), (*text).to_owned()),
            RunChange::Ended(ended) => ('●', format!("run ended: {}", ended.outcome)),
        };
        self.line(at, "run", glyph, &text);
    }

    fn line(&mut self, at: Millis, lane: &str, glyph: char, text: &str) {
        if self.result.is_err() {
            return;
        }
        let seconds = seconds(at);
        let text = escaped(text);
        let pad = self.lane_width.saturating_sub(text::width(lane));
        let lane = text::safe(lane, *LANES.end());
        let color = match glyph {
            '✓' => Color::Green,
            '✗' => Color::Red,
            '▲' | '△' | '◆' | '■' | '◌' | '!' => Color::Yellow,
            _ => Color::Cyan,
        };
        let out = &mut self.out;
        self.result = write!(out, "{seconds:>7.1}s  {lane}{:pad$} ", "")
            .and_then(|()| out.paint(self.color.then_some(color), glyph.encode_utf8(&mut [0; 4])))
            .and_then(|()| writeln!(out, " {text}"));
    }
}

fn message_glyph(level: Level) -> char {
    if level >= Level::Warning { '▲' } else { '·' }
}

/// A session id is told by its first eight characters; other keys are shown whole.
fn lane(unit: &str, attempt: u32) -> String {
    let is_uuid = unit.len() == 36 && uuid::Uuid::try_parse(unit).is_ok();
    let name = if is_uuid { unit.get(..8).unwrap_or(unit) } else { unit };
    format!("{name}#{attempt}")
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of a run fit a double many times over")]
fn seconds(millis: Millis) -> f64 {
    millis.0 as f64 / 1000.0
}

/// Glyph of a status, as on the screen; its word stands beside it.
pub(super) fn status_glyph(status: UnitStatus) -> char {
    match status {
        UnitStatus::Queued | UnitStatus::Untried => '○',
        UnitStatus::Running => '▸',
        UnitStatus::Silent => '!',
        UnitStatus::Held => '‖',
        UnitStatus::Waiting => '◐',
        UnitStatus::Succeeded => '✓',
        UnitStatus::Budget => '◆',
        UnitStatus::Stopped => '■',
        UnitStatus::Interrupted => '◌',
        UnitStatus::Failed => '✗',
        UnitStatus::Reused => '≡',
    }
}

/// What the tool said.
fn said<'a>(event: &ActionEvent<'a>) -> Option<Cow<'a, str>> {
    match &event.action.detail {
        Detail::Tool(detail) => detail.result.as_ref()?.content.map(content_text),
        _ => None,
    }
}

/// One line, nothing in it that a terminal would obey.
fn escaped(text: &str) -> String {
    // More than fits, because the squeezing counts bytes.
    text::safe(&text::one_row(text, WIDTH * 4), WIDTH).into_owned()
}
