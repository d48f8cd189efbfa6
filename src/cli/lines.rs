//! `--ui lines`: one line per event, for logs and pipes. All text from outside the program is escaped.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    fmt::Write as _,
    io::{self, Write},
};

use jiff::{SignedDuration, Timestamp};

use crate::cli::output::{AnsiColor, EscapingWriter};
use ingestdeck_core::{
    actions::{
        ActionPhase, AgentEvent,
        event::{ActionDetail, ActionEvent, ActionKind},
        label,
        system_notice::workflow_agent,
    },
    decode::{RawJson, content_text},
    run::{
        OutcomeDetail, RunEvent, SinkEvent, TaskChange,
        state::{AgentTask, TaskState, UnitStatus},
    },
    tape::{Millis, Note, note::Severity},
    text::{self, pluralize},
    units::limits::window_name,
};

/// Minimum width of the attempt column, which aligns short records.
const MIN_LABEL_WIDTH: usize = 24;

/// The form of the lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineFormat {
    pub color: bool,
    /// Maximum width of the attempt column.
    pub label_width: usize,
    /// Maximum width of a text, in columns; the tape has the complete text.
    pub text_width: usize,
    /// Start of the record, if each line begins with its time of day.
    pub clock: Option<LineClock>,
}

/// The time of day of the lines of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineClock {
    /// `None` if the record does not name it.
    pub started_at: Option<Timestamp>,
}

impl LineFormat {
    /// For a terminal of unknown width, whose lines should not wrap often.
    pub(crate) const TERMINAL: Self = Self {
        color: false,
        label_width: 40,
        text_width: 160,
        clock: None,
    };
    /// For a pipe or a file. Keys are complete; texts are bounded, since a model writes them.
    pub(crate) const PIPE: Self = Self {
        label_width: usize::MAX,
        text_width: 1_000,
        ..Self::TERMINAL
    };
}

impl LineClock {
    /// RFC 3339 in UTC, or `-`.
    fn text(self, at: Millis) -> String {
        let passed = SignedDuration::from_millis(i64::try_from(at.0).unwrap_or(i64::MAX));
        let time = self
            .started_at
            .and_then(|start| start.checked_add(passed).ok());
        time.map_or_else(
            || "-".to_owned(),
            |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        )
    }
}

/// Writes events as lines.
#[derive(Debug)]
pub(crate) struct LinesWriter<W> {
    out: EscapingWriter<W>,
    format: LineFormat,
    label_width: usize,
    /// Start time of each open action, by unit, attempt and id.
    open: HashMap<OpenCallKey, Millis>,
    /// Arguments with which a person replaced those of the model, until the call has ended.
    edited: HashMap<OpenCallKey, String>,
    progress: Progress,
    result: io::Result<()>,
}

/// A call: its unit, attempt and id.
type OpenCallKey = (String, u32, String);

/// How many units of the plan have ended.
#[derive(Debug, Default)]
struct Progress {
    /// Number of units; 0 without a plan.
    planned: usize,
    ended: HashSet<String>,
}

impl Progress {
    fn update(&mut self, unit: &str, status: UnitStatus) {
        if !status.is_finished() || status == UnitStatus::NotStarted {
            self.ended.remove(unit);
        } else if !self.ended.contains(unit) {
            self.ended.insert(unit.to_owned());
        }
    }

    /// ` [37/200]` for a unit that ended, if there are several; otherwise nothing.
    fn suffix(&self, status: UnitStatus) -> String {
        let (ended, all) = (self.ended.len(), self.planned.max(self.ended.len()));
        let is_shown = status.is_finished() && status != UnitStatus::NotStarted && self.planned > 1;
        if is_shown {
            format!(" [{ended}/{all}]")
        } else {
            String::new()
        }
    }
}

impl<W: Write> LinesWriter<W> {
    pub(crate) fn new(out: W, format: LineFormat) -> Self {
        Self {
            out: EscapingWriter::text(out),
            format,
            label_width: MIN_LABEL_WIDTH,
            open: HashMap::new(),
            edited: HashMap::new(),
            progress: Progress::default(),
            result: Ok(()),
        }
    }

    /// Writes the events of one entry.
    pub(crate) fn write_event(&mut self, emitted: &SinkEvent<'_>) {
        match emitted {
            SinkEvent::Agent {
                at,
                unit,
                attempt,
                event,
                outcome_detail,
                ..
            } => self.event(*at, unit, *attempt, event, *outcome_detail),
            SinkEvent::Unit {
                at,
                unit,
                attempt,
                status,
                reason,
                cause,
            } => {
                self.progress.update(unit, *status);
                if matches!(status, UnitStatus::Queued | UnitStatus::NotStarted) && *attempt == 0 {
                    return;
                }
                let mut text = format!("{}{}", status.as_str(), self.progress.suffix(*status));
                // The reason of a success adds only its details to its status.
                let detail = match *status {
                    UnitStatus::Succeeded => {
                        reason.and_then(|reason| Some(reason.split_once("; ")?.1))
                    }
                    _ => cause.or(*reason),
                };
                if let Some(reason) = detail {
                    let _ = write!(text, ": {reason}");
                }
                self.line(*at, &attempt_label(unit, *attempt), status.glyph(), &text);
            }
            SinkEvent::Patch {
                at,
                unit,
                attempt,
                result,
                reason,
                shared,
            } => {
                let glyph = if result.keeps_success() { '✓' } else { '✗' };
                let reason = reason
                    .map(|reason| format!(": {reason}"))
                    .unwrap_or_default();
                self.line(
                    *at,
                    &attempt_label(unit, *attempt),
                    glyph,
                    &format!("{}{reason}", result.label()),
                );
                for shared in *shared {
                    self.line(
                        *at,
                        &attempt_label(unit, *attempt),
                        if shared.was_merged { '▲' } else { '·' },
                        &shared.to_string(),
                    );
                }
            }
            SinkEvent::Task {
                at,
                unit,
                attempt,
                task,
                change,
            } => {
                if let Some((glyph, text)) = task_line(task, *change) {
                    self.line(*at, &attempt_label(unit, *attempt), glyph, &text);
                }
            }
            SinkEvent::Message {
                at,
                unit,
                attempt,
                level,
                text,
            } => {
                self.line(
                    *at,
                    &attempt_label(unit, *attempt),
                    message_glyph(*level),
                    text,
                );
            }
            SinkEvent::Run { at, change } => self.write_run_change(*at, change),
            SinkEvent::Note {
                attempt: Some((unit, attempt)),
                note:
                    Note::CallDecided {
                        tool_use_id: Some(id),
                        input: Some(input),
                        ..
                    },
                ..
            } => drop(self.edited.insert(
                ((*unit).to_owned(), *attempt, id.clone()),
                input.to_string(),
            )),
            SinkEvent::Line { .. } | SinkEvent::Note { .. } => {}
        }
    }

    /// True once the reader closed the pipe.
    pub(crate) fn is_closed(&self) -> bool {
        self.result.is_err()
    }

    /// Writes `text` and flushes.
    pub(crate) fn finish(mut self, text: &str) -> io::Result<()> {
        self.result
            .and_then(|()| self.out.write_all(text.as_bytes()))
            .and_then(|()| self.out.flush())
    }

    /// Passes everything to the system.
    pub(crate) fn flush(&mut self) {
        if self.result.is_ok() {
            self.result = self.out.flush();
        }
    }

    fn event(
        &mut self,
        at: Millis,
        unit: &str,
        attempt: u32,
        event: &AgentEvent<'_>,
        outcome_detail: Option<OutcomeDetail>,
    ) {
        match event {
            AgentEvent::Started(started) => {
                self.line(
                    at,
                    &attempt_label(unit, attempt),
                    '●',
                    &format!("session {} ({})", started.resume, started.title),
                );
            }
            AgentEvent::Action(action) => self.action(at, unit, attempt, action, outcome_detail),
            AgentEvent::Completed(completed) => {
                let (glyph, text) = if completed.ok {
                    ('✓', completed.answer.as_ref())
                } else {
                    (
                        '✗',
                        completed
                            .error
                            .as_deref()
                            .map_or("failed", label::readable_error),
                    )
                };
                let glyph = match outcome_detail {
                    Some(OutcomeDetail::BudgetExhausted) => '◆',
                    Some(OutcomeDetail::Aborted) => '■',
                    Some(OutcomeDetail::Declined | OutcomeDetail::Background) | None => glyph,
                };
                self.line(
                    at,
                    &attempt_label(unit, attempt),
                    glyph,
                    &format!("completed: {text}"),
                );
            }
        }
    }

    fn action(
        &mut self,
        at: Millis,
        unit: &str,
        attempt: u32,
        event: &ActionEvent<'_>,
        outcome_detail: Option<OutcomeDetail>,
    ) {
        let key = (unit.to_owned(), attempt, event.action.id.to_string());
        match event.phase {
            ActionPhase::Started => {
                self.open.insert(key, at);
            }
            ActionPhase::Updated => {}
            ActionPhase::Completed => {
                let took = self.open.remove(&key).map(|began| at.since(began));
                let edited = self.edited.remove(&key);
                let glyph = match (outcome_detail, event.ok) {
                    (Some(OutcomeDetail::Declined), _) => '△',
                    (Some(OutcomeDetail::Aborted), _) => '■',
                    (Some(OutcomeDetail::Background), _) => '▸',
                    (_, Some(false)) if event.action.kind == ActionKind::Warning => '▲',
                    (_, Some(false)) => '✗',
                    (..) => '✓',
                };
                let name = match &event.action.detail {
                    ActionDetail::Tool(tool) => tool.tool_name.as_deref(),
                    _ => None,
                };
                let mut text = match name.zip(edited.as_deref()) {
                    Some((name, input)) => format!(
                        "{} (edited)",
                        label::call_label(name, Some(RawJson(input)), None)
                    ),
                    None => label::action_label(&event.action).to_string(),
                };
                if let Some(took) = took {
                    let _ = write!(text, "  {:.1}s", seconds(took));
                }
                let message = event
                    .message
                    .as_deref()
                    .filter(|message| *message != event.action.title);
                let detail_text = match outcome_detail {
                    Some(OutcomeDetail::Aborted | OutcomeDetail::Background) => None,
                    Some(OutcomeDetail::Declined) => tool_result_text(event),
                    Some(OutcomeDetail::BudgetExhausted) | None => message
                        .map(Cow::Borrowed)
                        .or_else(|| tool_result_text(event).filter(|_| event.ok == Some(false))),
                };
                if let Some(outcome_detail) = outcome_detail {
                    let _ = write!(text, "  {}", outcome_detail.as_str());
                }
                if let Some(detail_text) = detail_text {
                    let colon = if outcome_detail.is_some() { ": " } else { "  " };
                    let _ = write!(
                        text,
                        "{colon}{}",
                        detail_text.strip_prefix("Error: ").unwrap_or(&detail_text)
                    );
                }
                self.line(at, &attempt_label(unit, attempt), glyph, &text);
            }
        }
    }

    fn write_run_change(&mut self, at: Millis, change: &RunEvent<'_>) {
        let (glyph, text) = match change {
            RunEvent::Planned(planned) => {
                self.progress.planned = planned.units.len();
                let widest = planned
                    .units
                    .iter()
                    .map(|unit| text::width(&attempt_label(&unit.unit, 1)))
                    .max();
                self.label_width = widest
                    .unwrap_or_default()
                    .clamp(MIN_LABEL_WIDTH, self.format.label_width);
                for skipped in &planned.skipped {
                    self.line(at, "run", '▲', &skipped.why);
                }
                let scripted = if planned.scripted {
                    ", scripted agent"
                } else {
                    ""
                };
                let units = pluralize(planned.units.len(), "unit");
                let continues = planned.continues.as_ref();
                let continues =
                    continues.map(|before| format!(", continues run {}", before.run.short()));
                let continues = continues.unwrap_or_default();
                (
                    '●',
                    format!(
                        "{units} planned, concurrency {}{scripted}{continues}",
                        planned.concurrency
                    ),
                )
            }
            RunEvent::Paused { until, limit } => {
                let wait = until
                    .map(|until| format!(" for {}", until.since(at)))
                    .unwrap_or_default();
                ('▲', format!("paused{wait}: {} limit", window_name(limit)))
            }
            RunEvent::IntegrationAdvanced(advanced) => ('●', advanced.to_string()),
            RunEvent::Integrating(0) => (
                '●',
                "no patches to integrate before the reconcile step".to_owned(),
            ),
            RunEvent::Integrating(units) => {
                ('●', format!("integrating {}", pluralize(*units, "unit")))
            }
            RunEvent::ReviewRequested(review) => ('‖', review.request.to_string()),
            RunEvent::Saved(saved) => match saved.short_commit() {
                Some(commit) => ('●', format!("saved as commit {commit}: {}", saved.subject)),
                None => ('●', "nothing to save".into()),
            },
            RunEvent::SaveFailed(reason) => ('✗', format!("not saved: {reason}")),
            RunEvent::WorkersAwaited { until } => (
                '▲',
                format!(
                    "waiting for workers, at most {}: no unit can run",
                    until.since(at)
                ),
            ),
            RunEvent::Resumed => ('●', "the wait is over".into()),
            RunEvent::Message { level, text } => (message_glyph(*level), (*text).to_owned()),
            RunEvent::Ended(ended) => ('●', format!("run ended: {}", ended.outcome)),
        };
        self.line(at, "run", glyph, &text);
    }

    fn line(&mut self, at: Millis, label: &str, glyph: char, text: &str) {
        if self.result.is_err() {
            return;
        }
        let seconds = seconds(at);
        let text = single_line(text, self.format.text_width);
        let label = text::fit_middle(label, self.format.label_width, "…");
        let pad = self.label_width.saturating_sub(text::width(&label));
        let clock = self
            .format
            .clock
            .map(|clock| clock.text(at) + " ")
            .unwrap_or_default();
        let color = match glyph {
            '✓' => AnsiColor::Green,
            '✗' => AnsiColor::Red,
            '▲' | '△' | '◆' | '■' | '◌' | '!' => AnsiColor::Yellow,
            _ => AnsiColor::Cyan,
        };
        let out = &mut self.out;
        self.result = write!(out, "{clock}{seconds:>7.1}s  {label}{:pad$} ", "")
            .and_then(|()| {
                out.paint(
                    self.format.color.then_some(color),
                    glyph.encode_utf8(&mut [0; 4]),
                )
            })
            .and_then(|()| writeln!(out, " {text}"));
    }
}

/// The line of a change of a task; `None` for its start, which the line of its call shows.
fn task_line(task: &AgentTask, change: TaskChange<'_>) -> Option<(char, String)> {
    let name = format!("{} {} ({})", task.kind, task.title, task.id);
    match change {
        TaskChange::Started => None,
        TaskChange::Ended => {
            let glyph = match task.state {
                TaskState::Failed => '✗',
                TaskState::Stopped => '■',
                TaskState::Running | TaskState::Completed => '✓',
            };
            let summary = task.summary.as_deref().map(|text| format!(": {text}"));
            Some((
                glyph,
                format!(
                    "task {}: {name}{}",
                    task.state.as_str(),
                    summary.unwrap_or_default()
                ),
            ))
        }
        TaskChange::AgentEnded(agent) => {
            let glyph = match agent.outcome() {
                Some(false) => '✗',
                _ => '✓',
            };
            Some((glyph, format!("{}: {}", task.title, workflow_agent(agent))))
        }
    }
}

fn message_glyph(level: Severity) -> char {
    if level >= Severity::Warning {
        '▲'
    } else {
        '·'
    }
}

/// Session ids are shortened to eight characters; other keys are shown completely.
fn attempt_label(unit: &str, attempt: u32) -> String {
    let is_uuid = unit.len() == 36 && uuid::Uuid::try_parse(unit).is_ok();
    let name = if is_uuid {
        unit.get(..8).unwrap_or(unit)
    } else {
        unit
    };
    format!("{name}#{attempt}")
}

#[expect(
    clippy::cast_precision_loss,
    reason = "milliseconds of a run fit a double many times over"
)]
fn seconds(millis: Millis) -> f64 {
    millis.0 as f64 / 1000.0
}

/// The text of a tool result.
fn tool_result_text<'a>(event: &ActionEvent<'a>) -> Option<Cow<'a, str>> {
    match &event.action.detail {
        ActionDetail::Tool(detail) => detail.result.as_ref()?.content.map(content_text),
        _ => None,
    }
}

/// Reduces a text to one line without control characters.
fn single_line(text: &str, width: usize) -> String {
    // More than fits, because shortening counts bytes.
    text::printable(&text::one_row(text, width * 4), width).into_owned()
}
