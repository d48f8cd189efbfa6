//! Reads arguments and results from the tape of a run where the index has only their beginning.

use std::collections::HashMap;

use super::{super::exit::CliError, AuditedCall};
use ingestdeck_core::{
    run::{
        PollStatus, SinkEvent, Timeline,
        event::{ActionDetail, AgentEvent, JsonText},
    },
    tape::Note,
};
use ingestdeck_engine::recorded_tapes;
use ingestdeck_records::store::{RunStore, index_rows::MIN_CUT_CHARS};

/// Bytes that are folded at a time.
const SLICE: usize = 4 << 20;

/// Unit, attempt and id of a call.
type PayloadKey = (String, u64, String);

/// Arguments and result, as far as they were read.
type Payload = [Option<String>; 2];

/// Arguments and results of the calls that are printed, until they are printed.
pub(super) struct PayloadReader<'a> {
    store: &'a RunStore,
    has_results: bool,
    /// The calls of each run of which the index has only the beginning.
    runs: HashMap<String, CutCalls>,
}

/// The calls of one run whose payloads are needed.
#[derive(Default)]
struct CutCalls {
    has_results: bool,
    is_read: bool,
    payloads: HashMap<PayloadKey, Payload>,
}

impl<'a> PayloadReader<'a> {
    /// Reads results only if `has_results`.
    pub(super) fn new(store: &'a RunStore, has_results: bool) -> Self {
        Self {
            store,
            has_results,
            runs: HashMap::new(),
        }
    }

    /// Notes a call that will be completed, so that each tape is read once.
    pub(super) fn expect(&mut self, call: &AuditedCall) {
        if !self.cut_columns(call).is_empty() {
            let has_results = self.has_results;
            let run = self.runs.entry(call.text("run").to_owned());
            let calls = run.or_insert_with(|| CutCalls {
                has_results,
                ..CutCalls::default()
            });
            calls.payloads.insert(key(call), Payload::default());
        }
    }

    /// Replaces the shortened arguments of a call that was expected, and its result if results are read.
    ///
    /// # Errors
    /// If the tape cannot be read.
    pub(super) fn complete(&mut self, call: &mut AuditedCall) -> Result<(), CliError> {
        let cut = self.cut_columns(call);
        let Some(calls) = self
            .runs
            .get_mut(call.text("run"))
            .filter(|_| !cut.is_empty())
        else {
            return Ok(());
        };
        if !std::mem::replace(&mut calls.is_read, true) {
            let found = self.store.resolve(call.text("run"))?;
            let source = recorded_tapes::open_source(self.store, &found)?;
            let mut timeline = Timeline::new_forward_only(Box::new(source));
            while timeline.advance(SLICE, &mut |emitted| calls.observe(&emitted))?
                == PollStatus::More
            {}
        }
        let Some([input, output]) = calls.payloads.remove(&key(call)) else {
            return Ok(());
        };
        for (column, value) in [("input", input), ("output", output)] {
            if let Some(value) = value.filter(|_| cut.contains(&column)) {
                call.0.insert(column.to_owned(), value.into());
            }
        }
        Ok(())
    }

    fn cut_columns(&self, call: &AuditedCall) -> Vec<&'static str> {
        let columns: &[&str] = if self.has_results {
            &["input", "output"]
        } else {
            &["input"]
        };
        columns
            .iter()
            .filter(|column| call.text(column).chars().count() >= MIN_CUT_CHARS)
            .copied()
            .collect()
    }
}

fn key(call: &AuditedCall) -> PayloadKey {
    let attempt = call.get("attempt").as_u64().unwrap_or_default();
    (
        call.text("unit").to_owned(),
        attempt,
        call.text("tool_use_id").to_owned(),
    )
}

impl CutCalls {
    fn observe(&mut self, emitted: &SinkEvent<'_>) {
        match emitted {
            SinkEvent::Agent {
                unit,
                attempt,
                event: AgentEvent::Action(event),
                ..
            } => {
                let ActionDetail::Tool(detail) = &event.action.detail else {
                    return;
                };
                let key = (
                    (*unit).to_owned(),
                    u64::from(*attempt),
                    event.action.id.clone().into_owned(),
                );
                let Some([known_input, known_output]) = self.payloads.get_mut(&key) else {
                    return;
                };
                if known_input.is_none() {
                    *known_input = detail
                        .tool_input
                        .as_ref()
                        .map(JsonText::raw)
                        .map(|raw| raw.0.to_owned());
                }
                if known_output.is_none() && self.has_results {
                    let content = detail.result.as_ref().and_then(|result| result.content);
                    *known_output = content.map(|raw| raw.0.to_owned());
                }
            }
            SinkEvent::Note {
                attempt: Some((unit, attempt)),
                note:
                    Note::CallDecided {
                        tool_use_id: Some(id),
                        input: Some(input),
                        ..
                    },
                ..
            } => {
                if let Some(payload) =
                    self.payloads
                        .get_mut(&((*unit).to_owned(), u64::from(*attempt), id.clone()))
                {
                    payload[0] = Some(input.to_string());
                }
            }
            _ => {}
        }
    }
}
