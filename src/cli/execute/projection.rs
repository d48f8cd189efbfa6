//! Sources that follow from raw files alone, written before the first attempt.

use std::sync::Arc;

use super::{Attempts, Ground, patches::record};
use crate::{
    claude::contained,
    ingest::{
        attempt::Place,
        projection::{self, DueProjection},
    },
    tape::{Note, note::Projected},
};

impl Attempts {
    /// The same attempts, which start from what is `due` for each connection. Where that cannot be written, units run
    /// without it.
    pub fn projecting(self, due: Vec<DueProjection>) -> Self {
        Self { projections: due, ..self }
    }

    /// Writes what is due, one connection after the other: the next one starts from the branch that this one leaves, and
    /// one that cannot be written costs no other.
    pub(super) async fn write_projections(&self) {
        for due in &self.projections {
            let place = match &self.ground {
                Ground::Overlay(work) => Place::Overlay(work.join("projection")),
                Ground::Worktrees(trees) => Place::Worktree { trees: Arc::clone(trees), index: 0 },
            };
            let (project, job, connection) = (Arc::clone(&self.project), self.job.clone(), due.connection.clone());
            let due = due.clone();
            let work = contained::blocking(move || {
                let targets = project.targets(Some(&due.connection));
                projection::project(&project.root, &place, &job, &due, &targets).map_err(|error| error.to_string())
            });
            let written = work.await.unwrap_or_else(|error| Err(error.to_string()));
            let projected = written.unwrap_or_else(|reason| Projected {
                connection: Some(connection),
                reason: Some(reason),
                ..Projected::default()
            });
            let Projected { actions, reason, left_out, .. } = &projected;
            if !actions.is_empty() || reason.is_some() || !left_out.is_empty() {
                record(self.recorder.as_ref(), None, &Note::Projected(Box::new(projected)));
            }
        }
    }
}
