//! Sources that follow from raw files without an agent, written before the first attempt.

use std::sync::Arc;

use super::{AttemptExecutor, integration::record_note};
use crate::{
    agent::caught_panics,
    diagnostic::Diagnostic,
    ingest::projection::{self, PendingProjection},
    tape::{Note, note::SourcesProjected},
};

impl AttemptExecutor {
    /// Sets the pending projections of each connection. If one cannot be written, units run without it.
    pub(crate) fn with_projections(self, due: Vec<PendingProjection>) -> Self {
        Self { projections: due, ..self }
    }

    /// Writes the pending projections one after the other: each starts from the branch that the previous one leaves. A
    /// failed projection does not affect the others.
    pub(super) async fn write_pending_projections(&self) {
        for due in &self.projections {
            let worktrees = Arc::clone(&self.worktrees);
            let (project, job, connection) = (Arc::clone(&self.project), self.job.clone(), due.connection.clone());
            let due = due.clone();
            let work = caught_panics::spawn_blocking_caught(move || {
                let targets = project.target_ids(Some(&due.connection));
                projection::write_projections(&project.root, &worktrees, &job, &due, &targets)
                    .map_err(|error| error.to_line())
            });
            let written = work.await.unwrap_or_else(|error| Err(error.to_string()));
            let projected = written.unwrap_or_else(|reason| SourcesProjected {
                connection: Some(connection),
                reason: Some(reason),
                ..SourcesProjected::default()
            });
            let SourcesProjected { actions, reason, left_out, .. } = &projected;
            if !actions.is_empty() || reason.is_some() || !left_out.is_empty() {
                record_note(self.recorder.as_ref(), None, &Note::SourcesProjected(Box::new(projected)));
            }
        }
    }
}
