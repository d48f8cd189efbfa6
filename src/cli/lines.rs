//! `--ui lines`: one line an event, for logs and pipes. Everything that was not written by us is escaped.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt::Write as _,
    io::{self, Write},
};

use crate::{
    actions::{
        ActionPhase, AgentEvent,
        event::{ActionDetail, ActionEvent},
        label,
    },
    cli::{
        output::{AnsiColor, EscapingWriter},
        summary::pluralize,
    },
    decode::content_text,
    run::{FoldEvent, OutcomeDetail, RunChange, state::UnitStatus},
    tape::{Millis, note::Severity},
    tui::text,
};

/// Longest text of a line, in columns; the whole is in the tape.
const MAX_TEXT_WIDTH: usize = 160;

/// Columns of the lane: no fewer, so that short records look alike, and no more, so that texts have room.
const LANE_WIDTH_RANGE: std::ops::RangeInclusive<usize> = 24..=40;

/// Writes events as lines.
#[derive(Debug)]
pub struct LinesWriter<W> {
    out: EscapingWriter<W>,
    color: bool,
    lane_width: usize,
    /// When each open action began, by unit, attempt and id.
    open: HashMap<(String, u32, String), Millis>,
    result: io::Result<()>,
}

impl<W: Write> LinesWriter<W> {
    /// A writer.
    pub fn new(out: W, color: bool) -> Self {
        Self {
            out: EscapingWriter::text(out),
            color,
            lane_width: *LANE_WIDTH_RANGE.start(),
            open: HashMap::new(),
            result: Ok(()),
        }
    }

    /// Writes what one entry led to.
    pub fn write_event(&mut self, emitted: &FoldEvent<'_>) {
        match emitted {
            FoldEvent::Event { at, unit, attempt, event, aside, .. } => self.event(*at, unit, *attempt, event, *aside),
            FoldEvent::Unit { at, unit, attempt, status, reason } => {
                if matches!(status, UnitStatus::Queued | UnitStatus::NotStarted) && *attempt == 0 {
                    return;
                }
                let mut text = status.as_str().to_owned();
                // A success gives no reason that its word does not give.
                if let Some(reason) = reason.filter(|_| *status != UnitStatus::Succeeded) {
                    let _ = write!(text, ": {reason}");
                }
                self.line(*at, &attempt_label(unit, *attempt), status_glyph(*status), &text);
            }
            FoldEvent::Patch { at, unit, attempt, result, reason, shared } => {
                let glyph = if result.keeps_success() { '✓' } else { '✗' };
                let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                self.line(*at, &attempt_label(unit, *attempt), glyph, &format!("{}{reason}", result.label()));
                for shared in *shared {
                    self.line(
                        *at,
                        &attempt_label(unit, *attempt),
                        if shared.merged { '▲' } else { '·' },
                        &shared.to_string(),
                    );
                }
            }
            FoldEvent::Message { at, unit, attempt, level, text } => {
                self.line(*at, &attempt_label(unit, *attempt), message_glyph(*level), text);
            }
            FoldEvent::Run { at, change } => self.write_run_change(*at, change),
        }
    }

    /// True once nobody reads any more.
    pub fn is_closed(&self) -> bool {
        self.result.is_err()
    }

    /// Writes `text` and ends.
    pub fn finish(mut self, text: &str) -> io::Result<()> {
        self.result.and_then(|()| self.out.write_all(text.as_bytes())).and_then(|()| self.out.flush())
    }

    /// Hands everything to the system.
    pub fn flush(&mut self) {
        if self.result.is_ok() {
            self.result = self.out.flush();
        }
    }

    fn event(&mut self, at: Millis, unit: &str, attempt: u32, event: &AgentEvent<'_>, aside: Option<OutcomeDetail>) {
        match event {
            AgentEvent::Started(started) => {
                self.line(
                    at,
                    &attempt_label(unit, attempt),
                    '●',
                    &format!("session {} ({})", started.resume, started.title),
                );
            }
            AgentEvent::Action(action) => self.action(at, unit, attempt, action, aside),
            AgentEvent::Completed(completed) => {
                let (glyph, text) = if completed.ok {
                    ('✓', completed.answer.as_ref())
                } else {
                    ('✗', completed.error.as_deref().map_or("failed", label::readable_error))
                };
                let glyph = match aside {
                    Some(OutcomeDetail::BudgetExhausted) => '◆',
                    Some(OutcomeDetail::Aborted) => '■',
                    Some(OutcomeDetail::Declined) | None => glyph,
                };
                self.line(at, &attempt_label(unit, attempt), glyph, &format!("completed: {text}"));
            }
        }
    }

    fn action(&mut self, at: Millis, unit: &str, attempt: u32, event: &ActionEvent<'_>, aside: Option<OutcomeDetail>) {
        let key = (unit.to_owned(), attempt, event.action.id.to_string());
        match event.phase {
            ActionPhase::Started => {
                self.open.insert(key, at);
            }
            ActionPhase::Updated => {}
            ActionPhase::Completed => {
                let took = self.open.remove(&key).map(|began| at.since(began));
                let glyph = match (aside, event.ok, event.level) {
                    (Some(OutcomeDetail::Declined), ..) => '△',
                    (Some(OutcomeDetail::Aborted), ..) => '■',
                    (_, Some(false), Some(_)) => '▲',
                    (_, Some(false), None) => '✗',
                    (..) => '✓',
                };
                let mut text = label::action_label(&event.action).to_string();
                if let Some(took) = took {
                    let _ = write!(text, "  {:.1}s", seconds(took));
                }
                let message = event.message.as_deref().filter(|message| *message != event.action.title);
                let said = match aside {
                    Some(OutcomeDetail::Aborted) => None,
                    Some(OutcomeDetail::Declined) => tool_result_text(event),
                    Some(OutcomeDetail::BudgetExhausted) | None => message
                        .map(Cow::Borrowed)
                        .or_else(|| tool_result_text(event).filter(|_| event.ok == Some(false))),
                };
                if let Some(aside) = aside {
                    let _ = write!(text, "  {}", aside.as_str());
                }
                if let Some(said) = said {
                    let colon = if aside.is_some() { ": " } else { "  " };
                    let _ = write!(text, "{colon}{}", said.strip_prefix("Error: ").unwrap_or(&said));
                }
                self.line(at, &attempt_label(unit, attempt), glyph, &text);
            }
        }
    }

    fn write_run_change(&mut self, at: Millis, change: &RunChange<'_>) {
        let (glyph, text) = match change {
            RunChange::Planned(planned) => {
                let widest = planned.units.iter().map(|unit| text::width(&attempt_label(&unit.unit, 1))).max();
                self.lane_width = widest.unwrap_or_default().clamp(*LANE_WIDTH_RANGE.start(), *LANE_WIDTH_RANGE.end());
                for skipped in &planned.skipped {
                    self.line(at, "run", '▲', &skipped.why);
                }
                let scripted = if planned.scripted { ", scripted agent" } else { "" };
                let units = pluralize(planned.units.len(), "unit");
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
            RunChange::Integrating(units) => ('●', format!("integrating {}", pluralize(*units, "unit"))),
            RunChange::Saved(saved) => match saved.short_commit() {
                Some(commit) => ('●', format!("saved as commit {commit}: {}", saved.subject)),
                None => ('●', "nothing to save".into()),
            },
            RunChange::SaveFailed(reason) => ('✗', format!("not saved: {reason}")),
            RunChange::Resumed => ('●', "resumed".into()),
            RunChange::Message { level, text } => (message_glyph(*level), (*text).to_owned()),
            RunChange::Ended(ended) => ('●', format!("run ended: {}", ended.outcome)),
        };
        self.line(at, "run", glyph, &text);
    }

    fn line(&mut self, at: Millis, lane: &str, glyph: char, text: &str) {
        if self.result.is_err() {
            return;
        }
        let seconds = seconds(at);
        let text = single_line(text);
        let pad = self.lane_width.saturating_sub(text::width(lane));
        let lane = text::printable(lane, *LANE_WIDTH_RANGE.end());
        let color = match glyph {
            '✓' => AnsiColor::Green,
            '✗' => AnsiColor::Red,
            '▲' | '△' | '◆' | '■' | '◌' | '!' => AnsiColor::Yellow,
            _ => AnsiColor::Cyan,
        };
        let out = &mut self.out;
        self.result = write!(out, "{seconds:>7.1}s  {lane}{:pad$} ", "")
            .and_then(|()| out.paint(self.color.then_some(color), glyph.encode_utf8(&mut [0; 4])))
            .and_then(|()| writeln!(out, " {text}"));
    }
}

fn message_glyph(level: Severity) -> char {
    if level >= Severity::Warning { '▲' } else { '·' }
}

/// A session id is told by its first eight characters; other keys are shown whole.
fn attempt_label(unit: &str, attempt: u32) -> String {
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
        UnitStatus::Queued | UnitStatus::NotStarted => '○',
        UnitStatus::Running => '▸',
        UnitStatus::Silent => '!',
        UnitStatus::Held => '‖',
        UnitStatus::Waiting => '◐',
        UnitStatus::Succeeded => '✓',
        UnitStatus::BudgetExhausted => '◆',
        UnitStatus::Stopped => '■',
        UnitStatus::Interrupted => '◌',
        UnitStatus::Failed => '✗',
        UnitStatus::Reused => '≡',
    }
}

/// What the tool said.
fn tool_result_text<'a>(event: &ActionEvent<'a>) -> Option<Cow<'a, str>> {
    match &event.action.detail {
        ActionDetail::Tool(detail) => detail.result.as_ref()?.content.map(content_text),
        _ => None,
    }
}

/// One line, nothing in it that a terminal would obey.
fn single_line(text: &str) -> String {
    // More than fits, because the squeezing counts bytes.
    text::printable(&text::one_row(text, MAX_TEXT_WIDTH * 4), MAX_TEXT_WIDTH).into_owned()
}
