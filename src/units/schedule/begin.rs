//! The start of a run: if there are sources that units build on, they are written before the first unit starts.

use super::{RunStage, Schedule, ScheduleEffect};

impl Schedule {
    /// Writes sources before the first unit starts, if `projects` is true.
    pub(crate) fn projecting(self, projects: bool) -> Self {
        Self { projects, ..self }
    }

    /// Integrates what a prior run did not save apart from its units, even if no unit has a patch.
    pub(crate) fn with_prior_changes(self, has_prior_changes: bool) -> Self {
        Self { has_prior_changes, ..self }
    }

    pub(super) fn begin(&mut self, effects: &mut Vec<ScheduleEffect>) {
        if self.stage != RunStage::Planned {
            return;
        }
        if self.projects {
            self.stage = RunStage::Projecting;
            effects.push(ScheduleEffect::Project);
        } else {
            self.stage = RunStage::Running;
        }
    }

    pub(super) fn projected(&mut self, is_unsaved: bool) {
        if self.stage == RunStage::Projecting {
            self.has_prior_changes |= is_unsaved;
            self.stage = RunStage::Running;
        }
    }
}
