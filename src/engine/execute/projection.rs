//! Sources and pages that follow from raw files without an agent, written before the first attempt.

use std::sync::Arc;

use super::{AttemptExecutor, integration::record_note};
use ingestdeck_agent::caught_panics;
use ingestdeck_core::{
    diagnostic::Diagnostic,
    tape::{Note, note::SourcesProjected},
};
use ingestdeck_ingest::projection;

impl AttemptExecutor {
    /// Writes the pending projections one after the other: each starts from the branch that the previous one leaves. A
    /// failed projection does not affect the others.
    pub(super) async fn write_pending_projections(&self) {
        self.restore_prior_projections().await;
        for due in &self.run.projections {
            let (run, due, about) = (Arc::clone(&self.run), due.clone(), due.to_note());
            let work = caught_panics::spawn_blocking_caught(move || {
                let connection = Some(due.connection.as_str()).filter(|id| !id.is_empty());
                let targets = run.project.target_ids(connection);
                let about = (run.id, &run.job, run.is_reviewed);
                projection::write_projections(
                    &run.project.root,
                    &run.worktrees,
                    about,
                    &due,
                    &targets,
                )
                .map_err(|error| error.to_line())
            });
            let written = work.await.unwrap_or_else(|error| Err(error.to_string()));
            let projected = written.unwrap_or_else(|reason| SourcesProjected {
                reason: Some(reason),
                ..about
            });
            let SourcesProjected {
                actions,
                reason,
                left_out,
                documents,
                ..
            } = &projected;
            let is_empty = actions.is_empty() && left_out.is_empty() && documents.is_empty();
            if !is_empty || reason.is_some() {
                record_note(
                    self.started.recorder.as_ref(),
                    None,
                    &Note::SourcesProjected(Box::new(projected)),
                );
            }
        }
    }

    /// Lets attempts start from the projections of a prior run that are in no commit.
    async fn restore_prior_projections(&self) {
        if self.run.worktrees.base_patches().is_empty() {
            return;
        }
        let run = Arc::clone(&self.run);
        let work = caught_panics::spawn_blocking_caught(move || {
            projection::restore_base_patches(&run.worktrees, run.all_targets())
                .map_err(|error| error.to_line())
        });
        if let Err(reason) = work.await.unwrap_or_else(|error| Err(error.to_string())) {
            self.run.worktrees.drop_base_patches();
            for about in &self.run.prior_projections {
                let what = about.cause.noun();
                let option = match about.is_about_texts() {
                    true => "--verbatim",
                    false => "--full",
                };
                let reason = format!(
                    "the {what} of the prior run no longer fit ({reason}); `run {option}` writes them again"
                );
                let lost = SourcesProjected {
                    reason: Some(reason),
                    ..about.clone()
                };
                record_note(
                    self.started.recorder.as_ref(),
                    None,
                    &Note::SourcesProjected(Box::new(lost)),
                );
            }
        }
    }
}
