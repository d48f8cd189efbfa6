//! The beginning of a run: sources that units build on are written before the first of them starts, if there are any.

use super::{RunStage, Schedule, ScheduleEffect};

impl Schedule {
    /// The same run, which writes sources before its first unit starts if it `projects` any.
    pub fn projecting(self, projects: bool) -> Self {
        Self { projects, ..self }
    }

    pub(super) fn begin(&mut self, orders: &mut Vec<ScheduleEffect>) {
        if self.stage != RunStage::Planned {
            return;
        }
        if self.projects {
            self.stage = RunStage::Projecting;
            orders.push(ScheduleEffect::Project);
        } else {
            self.stage = RunStage::Running;
        }
    }

    pub(super) fn projected(&mut self) {
        if self.stage == RunStage::Projecting {
            self.stage = RunStage::Running;
        }
    }
}
