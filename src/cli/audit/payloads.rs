//! Reads arguments and results from the tape of a run where the index has only their beginning.

use std::collections::HashMap;

use super::{super::exit::CliError, AuditedCall};
use crate::{
    engine::recorded_tapes,
    run::{
        PollStatus, SinkEvent, Timeline,
        event::{ActionDetail, AgentEvent, JsonText},
    },
    store::{RunStore, index_rows::MAX_PAYLOAD_CHARS},
    tape::Note,
};

/// Bytes that are folded at a time.
const SLICE: usize = 4 << 20;

/// Unit, attempt and id of a call.
type PayloadKey = (String, u64, String);

/// Arguments and results of one run at a time.
pub(super) struct PayloadReader<'a> {
    store: &'a RunStore,
    run: String,
    /// Arguments and result of each call of that run that is longer than the index keeps.
    payloads: HashMap<PayloadKey, [Option<String>; 2]>,
}

impl<'a> PayloadReader<'a> {
    pub(super) fn new(store: &'a RunStore) -> Self {
        Self { store, run: String::new(), payloads: HashMap::new() }
    }

    /// Replaces the shortened arguments of `call`, and its result if `with_result`.
    ///
    /// # Errors
    /// If the tape cannot be read.
    pub(super) fn complete(&mut self, call: &mut AuditedCall, with_result: bool) -> Result<(), CliError> {
        let columns: &[&str] = if with_result { &["input", "output"] } else { &["input"] };
        let is_cut = |column: &&&str| call.text(column).chars().count() >= MAX_PAYLOAD_CHARS;
        let cut: Vec<&str> = columns.iter().filter(is_cut).copied().collect();
        if cut.is_empty() {
            return Ok(());
        }
        if self.run != call.text("run") {
            self.load(call.text("run"))?;
        }
        let key = (
            call.text("unit").to_owned(),
            call.get("attempt").as_u64().unwrap_or_default(),
            call.text("tool_use_id").to_owned(),
        );
        let Some([input, output]) = self.payloads.get(&key).cloned() else { return Ok(()) };
        for (column, value) in [("input", input), ("output", output)] {
            if let Some(value) = value.filter(|_| cut.contains(&column)) {
                call.set(column, value.into());
            }
        }
        Ok(())
    }

    fn load(&mut self, run: &str) -> Result<(), CliError> {
        self.payloads.clear();
        run.clone_into(&mut self.run);
        let found = self.store.resolve(run)?;
        let source = recorded_tapes::open_source(self.store, &found)?;
        let mut timeline = Timeline::new_forward_only(Box::new(source));
        while timeline.advance(SLICE, &mut |emitted| self.observe(&emitted))? == PollStatus::More {}
        Ok(())
    }

    fn observe(&mut self, emitted: &SinkEvent<'_>) {
        let is_long = |json: &str| json.len() >= MAX_PAYLOAD_CHARS;
        match emitted {
            SinkEvent::Agent { unit, attempt, event: AgentEvent::Action(event), .. } => {
                let ActionDetail::Tool(detail) = &event.action.detail else { return };
                let input = detail.tool_input.as_ref().map(JsonText::raw).map(|raw| raw.0).filter(|raw| is_long(raw));
                let result = detail.result.as_ref().and_then(|result| result.content);
                let output = result.map(|raw| raw.0).filter(|raw| is_long(raw));
                if input.is_none() && output.is_none() {
                    return;
                }
                let key = ((*unit).to_owned(), u64::from(*attempt), event.action.id.clone().into_owned());
                let [known_input, known_output] = self.payloads.entry(key).or_default();
                if known_input.is_none() {
                    *known_input = input.map(str::to_owned);
                }
                if known_output.is_none() {
                    *known_output = output.map(str::to_owned);
                }
            }
            SinkEvent::Note {
                attempt: Some((unit, attempt)),
                note: Note::CallDecided { tool_use_id: Some(id), input: Some(input), .. },
                ..
            } => {
                let key = ((*unit).to_owned(), u64::from(*attempt), id.clone());
                self.payloads.entry(key).or_default()[0] = Some(input.to_string());
            }
            _ => {}
        }
    }
}
