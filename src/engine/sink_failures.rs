//! What a sink of the tape reports to the user when it fails.

use std::sync::Arc;

use parking_lot::Mutex;

use ingestdeck_core::{
    run::Recorder,
    tape::{Note, note::Severity},
};

/// Records the first failure of a sink, so that the user learns of a wrong setting.
#[derive(Debug)]
pub(super) struct SinkFailures(Mutex<Option<Arc<dyn Recorder>>>);

impl SinkFailures {
    pub(super) fn new(recorder: &Arc<dyn Recorder>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(Arc::clone(recorder)))))
    }

    pub(super) fn report(&self, text: String) {
        tracing::warn!(text);
        if let Some(recorder) = self.0.lock().take() {
            let level = Severity::Warning;
            // A tape that cannot be written ends the run anyway.
            let _ = recorder.record_note(None, &Note::Message { level, text });
        }
    }

    /// Records nothing from now on, because the tape is closed.
    pub(super) fn close(&self) {
        self.0.lock().take();
    }
}
