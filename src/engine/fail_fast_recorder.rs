//! A recorder that reports its first write failure. A run whose tape cannot be written must end immediately, because
//! the further work of its agents could not be recorded.

use std::sync::Arc;

use tokio::sync::watch;

use ingestdeck_core::run::{NewEntry, Recorder, entry_source::RecordError};

/// Records, and keeps the first failure.
#[derive(Debug)]
pub(crate) struct FailFastRecorder {
    inner: Arc<dyn Recorder>,
    first_error: watch::Sender<Option<RecordError>>,
}

impl FailFastRecorder {
    pub(crate) fn new(inner: Arc<dyn Recorder>) -> Self {
        Self {
            inner,
            first_error: watch::channel(None).0,
        }
    }

    /// A channel with the first failure, once there is one.
    pub(crate) fn first_error(&self) -> watch::Receiver<Option<RecordError>> {
        self.first_error.subscribe()
    }
}

impl Recorder for FailFastRecorder {
    fn record(&self, items: &[NewEntry<'_>]) -> Result<(), RecordError> {
        let recorded = self.inner.record(items);
        if let Err(error) = &recorded {
            self.first_error.send_if_modified(|blown| {
                let first = blown.is_none();
                blown.get_or_insert_with(|| error.clone());
                first
            });
        }
        recorded
    }
}
