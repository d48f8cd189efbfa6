//! Sources that follow from raw files alone, written before the first attempt.

use std::{collections::BTreeSet, sync::Arc};

use super::{Attempts, Ground, patches::record};
use crate::{
    ingest::{
        attempt::Place,
        projection::{self, DueProjection},
    },
    tape::{Note, note::Projected},
};

impl Attempts {
    /// The same attempts, which start from what is `due`. Where that cannot be written, units run without it.
    pub fn projecting(self, due: &[DueProjection]) -> Self {
        if due.is_empty() {
            return self;
        }
        let place = match &self.ground {
            Ground::Overlay(work) => Place::Overlay(work.join("projection")),
            Ground::Worktrees(trees) => Place::Worktree { trees: Arc::clone(trees), index: 0 },
        };
        let targets = due.iter().flat_map(|due| self.project.targets(Some(&due.connection)));
        let targets: Vec<String> = targets.collect::<BTreeSet<_>>().into_iter().collect();
        let projected = projection::project(&self.project.root, &place, &self.job, due, &targets);
        let projected =
            projected.unwrap_or_else(|error| Projected { reason: Some(error.to_string()), ..Projected::default() });
        let Projected { actions, reason, left_out, .. } = &projected;
        if !actions.is_empty() || reason.is_some() || !left_out.is_empty() {
            record(self.recorder.as_ref(), None, &Note::Projected(Box::new(projected)));
        }
        self
    }
}
