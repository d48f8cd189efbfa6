//! The tape, as one attempt uses it.

use std::sync::Arc;

use ingestdeck_core::{
    run::entry_source::{NewEntry, RecordError, Recorder},
    tape::{Note, UnitKey, entry::EntryBody},
};

/// Records entries of one attempt. Stops after the first failure, because a tape may end early but must not have gaps.
#[derive(Debug)]
pub(crate) struct AttemptRecorder {
    recorder: Arc<dyn Recorder>,
    unit: UnitKey,
    attempt: u32,
    failed: Option<RecordError>,
}

impl AttemptRecorder {
    pub(crate) fn new(recorder: Arc<dyn Recorder>, unit: UnitKey, attempt: u32) -> Self {
        Self {
            recorder,
            unit,
            attempt,
            failed: None,
        }
    }

    /// Appends all `bodies` together.
    pub(crate) fn record<'a>(
        &'a mut self,
        bodies: impl Iterator<Item = EntryBody<'a>>,
    ) -> Result<(), RecordError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let attempt = Some((&self.unit, self.attempt));
        let items: Vec<NewEntry<'a>> = bodies.map(|body| NewEntry { attempt, body }).collect();
        let recorded = if items.is_empty() {
            Ok(())
        } else {
            self.recorder.record(&items)
        };
        self.failed = recorded.clone().err();
        recorded
    }

    pub(crate) fn note(&mut self, note: &Note) -> Result<(), RecordError> {
        let json = note.to_json();
        self.record(std::iter::once(EntryBody::Note(&json)))
    }
}
