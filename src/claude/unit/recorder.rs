//! The tape, as one attempt sees it.

use std::sync::Arc;

use crate::{
    run::entry_source::{NewEntry, RecordError, Recorder},
    tape::{Note, UnitKey, entry::EntryBody},
};

/// Records under the name of one attempt. After the first failure nothing more is recorded: a tape may end early, but
/// it has no holes.
#[derive(Debug)]
pub(super) struct AttemptRecorder {
    recorder: Arc<dyn Recorder>,
    unit: UnitKey,
    attempt: u32,
    failed: Option<RecordError>,
}

impl AttemptRecorder {
    pub(super) fn new(recorder: Arc<dyn Recorder>, unit: UnitKey, attempt: u32) -> Self {
        Self { recorder, unit, attempt, failed: None }
    }

    /// Appends `bodies`, in one go.
    pub(super) fn record<'a>(&'a mut self, bodies: impl Iterator<Item = EntryBody<'a>>) -> Result<(), RecordError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let lane = Some((&self.unit, self.attempt));
        let items: Vec<NewEntry<'a>> = bodies.map(|body| NewEntry { attempt: lane, body }).collect();
        let recorded = if items.is_empty() { Ok(()) } else { self.recorder.record(&items) };
        self.failed = recorded.clone().err();
        recorded
    }

    /// Appends a note.
    pub(super) fn note(&mut self, note: &Note) -> Result<(), RecordError> {
        let json = note.to_json();
        self.record(std::iter::once(EntryBody::Note(&json)))
    }
}
