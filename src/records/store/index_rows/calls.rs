//! Builds the index rows for tool calls: each call with its result and with the decision about it.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::RowsError;
use ingestdeck_core::{
    run::{
        OutcomeDetail, SinkEvent, Timeline,
        event::{ActionDetail, ActionEvent, ActionPhase, AgentAction, AgentEvent, ToolDetail},
    },
    tape::{
        EntryBody, Millis, Note, Seq, UnitKey,
        note::{CallDecision, CommandReceived},
    },
};

/// Maximum characters of an input or output in the index. The complete value is on the tape, at `seq`.
const MAX_PAYLOAD_CHARS: usize = 4 << 10;

/// Maximum characters of a word that is left out where a text is cut. It may be the beginning of a secret, which would
/// not be recognized when the text is printed.
const MAX_CUT_WORD: usize = 512;

/// Minimum characters of an input or output that was truncated.
pub const MIN_CUT_CHARS: usize = MAX_PAYLOAD_CHARS - MAX_CUT_WORD;

/// Maximum characters of an error in the index.
const MAX_ERROR_CHARS: usize = 2 << 10;

/// `decided_by` of a call that no person decided.
const BY_RULE: &str = "rule";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallIndexRow {
    pub unit: String,
    pub attempt: u32,
    /// Turn of the call in its attempt, from 1.
    pub turn_number: u32,
    pub tool_use_id: String,
    /// The call that started the sub-agent, for a call of a sub-agent.
    pub parent_tool_use_id: Option<String>,
    /// Tool name as written by the model.
    pub tool: String,
    pub status: CallStatus,
    /// Entry that contains the call.
    pub seq: Seq,
    /// Entry that contains the result.
    pub result_seq: Option<Seq>,
    pub times: CallTimes,
    /// Arguments as JSON, truncated.
    pub input: Option<String>,
    /// Result as JSON, truncated.
    pub output: Option<String>,
    /// Length of the complete result in bytes.
    pub output_bytes: Option<u64>,
    /// First text of a failed result, truncated.
    pub error: Option<String>,
    pub ruling: CallRuling,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTimes {
    /// Time of the call.
    pub started: Millis,
    /// Time until the result.
    pub duration: Option<Millis>,
    /// Part of it before the decision of a person.
    pub waited: Option<Millis>,
}

/// The decision about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRuling {
    pub decision: RecordedRuling,
    /// `rule`, or a person and the client; `None` if none decided or the tape does not name the person.
    pub decided_by: Option<String>,
    /// Why the call was denied, or the condition for which it waits.
    pub reason: Option<String>,
}

/// Whether a call was permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordedRuling {
    Allowed,
    /// Allowed with other arguments.
    Edited,
    /// A person answered what it asked.
    Answered,
    /// A person gave no answer to a tool server.
    Cancelled,
    Denied,
    /// Allowed together with all that follow.
    Released,
    /// The attempt ended before a decision.
    Withdrawn,
    /// It waits for a person.
    Held,
}

impl RecordedRuling {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Edited => "edited",
            Self::Answered => "answered",
            Self::Cancelled => "cancelled",
            Self::Denied => "denied",
            Self::Released => "released",
            Self::Withdrawn => "withdrawn",
            Self::Held => "held",
        }
    }
}

impl From<CallDecision> for RecordedRuling {
    fn from(decision: CallDecision) -> Self {
        match decision {
            CallDecision::Allowed => Self::Allowed,
            CallDecision::Edited => Self::Edited,
            CallDecision::Answered => Self::Answered,
            CallDecision::Cancelled => Self::Cancelled,
            CallDecision::Denied => Self::Denied,
            CallDecision::Released => Self::Released,
            CallDecision::Withdrawn => Self::Withdrawn,
        }
    }
}

/// Status of a call in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallStatus {
    /// The call has no result yet.
    Open,
    Complete,
    Error,
    Denied,
}

impl CallStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Complete => "complete",
            Self::Error => "error",
            Self::Denied => "denied",
        }
    }
}

/// Unit, attempt and id of a call.
type CallKey = (String, u32, String);

/// Pairs calls with their results and decisions.
#[derive(Debug, Default)]
pub(super) struct CallIndexRowBuilder {
    rows: Vec<CallIndexRow>,
    /// Row of each call by unit, attempt and id.
    row_by_call: HashMap<CallKey, usize>,
    call_counts: HashMap<(String, u32), u32>,
    /// Calls that were held, with the time and the rulings so far. A note may precede the line with the call.
    held: HashMap<CallKey, (Millis, CallRuling, Option<Millis>)>,
    /// Unit, attempt and tool of held calls whose id is not on the tape, so that their decision is unknown.
    unnamed: HashSet<CallKey>,
    /// Who sent the last command about each unit, and why; `None` is the whole run.
    senders: HashMap<Option<UnitKey>, (String, Option<String>)>,
}

impl CallIndexRowBuilder {
    pub(super) fn observe(&mut self, emitted: &SinkEvent<'_>) {
        match emitted {
            SinkEvent::Agent {
                entry,
                at,
                unit,
                attempt,
                event: AgentEvent::Action(event),
                outcome_detail,
            } => {
                self.observe_action((*entry, *at), (unit, *attempt), event, *outcome_detail);
            }
            SinkEvent::Note {
                note: Note::CommandReceived(command),
                ..
            } => self.observe_command(command),
            SinkEvent::Note {
                at,
                attempt: Some(attempt),
                note,
            } => self.observe_decision(*at, *attempt, note),
            _ => {}
        }
    }

    /// The rows, with the arguments that a person edited, since the calls ran with them.
    pub(super) fn finish(
        mut self,
        timeline: &mut Timeline,
    ) -> Result<Vec<CallIndexRow>, RowsError> {
        for (call, note) in timeline.view().all_argument_edits() {
            let mut decided = None;
            timeline.read(note, &mut |arrived| {
                if let EntryBody::Note(json) = arrived.body
                    && let Note::CallDecided {
                        tool_use_id: Some(id),
                        input: Some(input),
                        ..
                    } = Note::parse(json)
                {
                    decided = Some((id, input.to_string()));
                }
            })?;
            let Some((id, input)) = decided else { continue };
            if let Some(row) = self
                .rows
                .iter_mut()
                .find(|row| row.seq == call && row.tool_use_id == id)
            {
                row.input = Some(truncate_chars(&input, MAX_PAYLOAD_CHARS));
            }
        }
        for row in &mut self.rows {
            if self.unnamed.contains(&(
                row.unit.clone(),
                row.attempt,
                without_server(&row.tool).to_owned(),
            )) {
                row.ruling.decided_by = None;
            }
        }
        for (key, (_, ruling, waited)) in self.held {
            if let Some(row) = self
                .row_by_call
                .get(&key)
                .and_then(|position| self.rows.get_mut(*position))
            {
                row.times.waited = waited;
                // Claude Code may deny a call that a person allowed before.
                if row.status != CallStatus::Denied || ruling.decision == RecordedRuling::Denied {
                    row.ruling = ruling;
                }
            }
        }
        Ok(self.rows)
    }

    fn observe_action(
        &mut self,
        (entry, at): (Seq, Millis),
        (unit, attempt): (&str, u32),
        event: &ActionEvent<'_>,
        outcome_detail: Option<OutcomeDetail>,
    ) {
        match &event.action.detail {
            ActionDetail::Tool(detail) => {
                let row = self.row(unit, attempt, entry, at, &event.action, detail);
                if event.phase == ActionPhase::Completed
                    && outcome_detail != Some(OutcomeDetail::Aborted)
                {
                    complete_row(row, entry, at, event, detail);
                }
            }
            ActionDetail::Denial {
                tool_use_id: Some(id),
                ..
            } => {
                let known =
                    self.row_by_call
                        .get(&(unit.to_owned(), attempt, id.clone().into_owned()));
                if let Some(row) = known.and_then(|position| self.rows.get_mut(*position)) {
                    row.status = CallStatus::Denied;
                    row.ruling.decision = RecordedRuling::Denied;
                    row.ruling.reason = event
                        .message
                        .as_deref()
                        .map(|message| truncate_chars(message, MAX_ERROR_CHARS));
                }
            }
            ActionDetail::Empty
            | ActionDetail::Thinking { .. }
            | ActionDetail::Prompt(_)
            | ActionDetail::Denial {
                tool_use_id: None, ..
            }
            | ActionDetail::MalformedLine(_) => {}
        }
    }

    fn observe_command(&mut self, command: &CommandReceived) {
        let sender = match (&command.user, &command.client) {
            (Some(user), Some(client)) => format!("{user} ({client})"),
            (Some(name), None) | (None, Some(name)) => name.clone(),
            (None, None) => return,
        };
        let sender = (sender, command.reason.clone());
        if command.units.is_empty() {
            // A later command about the whole run also counts for every unit.
            self.senders.clear();
            self.senders.insert(None, sender);
        } else {
            self.senders.extend(
                command
                    .units
                    .iter()
                    .map(|unit| (Some(unit.clone()), sender.clone())),
            );
        }
    }

    fn observe_decision(&mut self, at: Millis, (unit, attempt): (&str, u32), note: &Note) {
        let key = |id: &str| (unit.to_owned(), attempt, id.to_owned());
        match note {
            Note::CallHeld {
                tool_use_id: Some(id),
                reached,
                ..
            } => {
                let ruling = CallRuling {
                    decision: RecordedRuling::Held,
                    decided_by: None,
                    reason: reached.clone(),
                };
                self.held.insert(key(id), (at, ruling, None));
            }
            Note::CallHeld {
                tool_use_id: None,
                tool,
                ..
            } => {
                self.unnamed.insert(key(without_server(tool)));
            }
            Note::CallDecided {
                tool_use_id: Some(id),
                decision,
                rule: Some(rule),
                ..
            } => {
                let decided_by = Some(BY_RULE.to_owned());
                let ruling = CallRuling {
                    decision: (*decision).into(),
                    decided_by,
                    reason: Some(rule.clone()),
                };
                self.held.insert(key(id), (at, ruling, Some(Millis(0))));
            }
            Note::CallDecided {
                tool_use_id: Some(id),
                decision,
                reason,
                ..
            } => {
                let sender = self
                    .senders
                    .get(&Some(UnitKey::from(unit)))
                    .or_else(|| self.senders.get(&None));
                let sender = sender
                    .filter(|_| *decision != CallDecision::Withdrawn)
                    .cloned();
                let (decided_by, why) =
                    sender.map_or((None, None), |(sender, why)| (Some(sender), why));
                let reason = reason.clone().or(why);
                let ruling = CallRuling {
                    decision: (*decision).into(),
                    decided_by,
                    reason,
                };
                let (since, known, waited) = self
                    .held
                    .entry(key(id))
                    .or_insert_with(|| (at, ruling.clone(), Some(Millis(0))));
                (*known, *waited) = (ruling, Some(at.since(*since)));
            }
            _ => {}
        }
    }

    fn row(
        &mut self,
        unit: &str,
        attempt: u32,
        seq: Seq,
        at: Millis,
        action: &AgentAction<'_>,
        detail: &ToolDetail<'_>,
    ) -> &mut CallIndexRow {
        let id = action.id.clone().into_owned();
        let position = *self
            .row_by_call
            .entry((unit.to_owned(), attempt, id))
            .or_insert_with_key(|(_, _, id)| {
                let number = self
                    .call_counts
                    .entry((unit.to_owned(), attempt))
                    .or_default();
                *number += 1;
                self.rows.push(CallIndexRow {
                    unit: unit.to_owned(),
                    attempt,
                    turn_number: *number,
                    tool_use_id: id.clone(),
                    parent_tool_use_id: detail.parent_tool_use_id.as_deref().map(str::to_owned),
                    tool: detail.tool_name.as_deref().unwrap_or("?").to_owned(),
                    status: CallStatus::Open,
                    seq,
                    result_seq: None,
                    times: CallTimes {
                        started: at,
                        duration: None,
                        waited: None,
                    },
                    input: detail
                        .tool_input
                        .as_ref()
                        .map(|input| truncate_chars(input.raw().0, MAX_PAYLOAD_CHARS)),
                    output: None,
                    output_bytes: None,
                    error: None,
                    ruling: CallRuling {
                        decision: RecordedRuling::Allowed,
                        decided_by: Some(BY_RULE.to_owned()),
                        reason: None,
                    },
                });
                self.rows.len() - 1
            });
        &mut self.rows[position]
    }
}

/// Ignore further results of the same call.
fn complete_row(
    row: &mut CallIndexRow,
    entry: Seq,
    at: Millis,
    event: &ActionEvent<'_>,
    detail: &ToolDetail<'_>,
) {
    if row.times.duration.is_some() {
        return;
    }
    row.times.duration = Some(at.since(row.times.started));
    let failed = event.ok == Some(false);
    if row.status == CallStatus::Open {
        row.status = if failed {
            CallStatus::Error
        } else {
            CallStatus::Complete
        };
    }
    let Some(result) = &detail.result else {
        row.error = event
            .message
            .as_deref()
            .filter(|_| failed)
            .map(|message| truncate_chars(message, MAX_ERROR_CHARS));
        return;
    };
    row.result_seq = Some(entry);
    row.output_bytes = Some(result.result_len as u64);
    row.output = result
        .content
        .map(|content| truncate_chars(content.0, MAX_PAYLOAD_CHARS));
    if failed {
        row.error = result
            .content
            .map(|content| truncate_chars(&first_text(&content.value()), MAX_ERROR_CHARS));
    }
}

fn first_text(content: &Value) -> String {
    let text = |value: &Value| {
        value
            .as_str()
            .or_else(|| value.get("text")?.as_str())
            .map(str::to_owned)
    };
    match content {
        Value::Array(blocks) => blocks.iter().find_map(text).unwrap_or_default(),
        other => text(other).unwrap_or_else(|| other.to_string()),
    }
}

/// The name of a tool without the prefix of its server, as notes have it.
fn without_server(tool: &str) -> &str {
    tool.rsplit("__").next().unwrap_or(tool)
}

/// The beginning of a long text, without the word at the cut.
fn truncate_chars(text: &str, most: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(most) else {
        return text.to_owned();
    };
    let is_part = |c: &char| !c.is_whitespace() && !matches!(c, '"' | '\'' | '`');
    let cut_word = text[..end]
        .chars()
        .rev()
        .take_while(is_part)
        .take(MAX_CUT_WORD)
        .count();
    text.chars().take(most - cut_word).collect()
}
