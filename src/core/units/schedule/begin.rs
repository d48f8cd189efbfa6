//! The start of a run: if there are sources that units build on, they are written before the first unit starts.

use super::{RunStage, Schedule, ScheduleEffect};

/// Sources that the run itself writes.
#[derive(Clone, Debug, Default)]
pub(super) struct Projection {
    /// They must be written before the first unit starts.
    is_due: bool,
    /// Changes that belong to no unit wait to be integrated.
    pub(super) is_unsaved: bool,
}

impl Schedule {
    /// Writes sources before the first unit starts, if it `is_due`.
    pub fn projecting(mut self, is_due: bool) -> Self {
        self.projection.is_due = is_due;
        self
    }

    /// Integrates what a prior run did not save apart from its units, even if no unit has a patch.
    pub fn with_prior_changes(mut self, is_unsaved: bool) -> Self {
        self.projection.is_unsaved = is_unsaved;
        self
    }

    pub(super) fn begin(&mut self, effects: &mut Vec<ScheduleEffect>) {
        if self.stage != RunStage::Planned {
            return;
        }
        if self.projection.is_due {
            self.stage = RunStage::Projecting;
            effects.push(ScheduleEffect::Project);
        } else {
            self.stage = RunStage::Running;
        }
    }

    pub(super) fn projected(&mut self, is_unsaved: bool) {
        if self.stage == RunStage::Projecting {
            self.projection.is_unsaved |= is_unsaved;
            self.stage = RunStage::Running;
        }
    }
}
