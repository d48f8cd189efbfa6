//! The beginning of a run: sources that units build on are written before the first of them starts, if there are any.

use super::{Order, Schedule, Stage};

impl Schedule {
    /// The same run, which writes sources before its first unit starts if it `projects` any.
    pub fn projecting(self, projects: bool) -> Self {
        Self { projects, ..self }
    }

    pub(super) fn begin(&mut self, orders: &mut Vec<Order>) {
        if self.stage != Stage::Planned {
            return;
        }
        if self.projects {
            self.stage = Stage::Projecting;
            orders.push(Order::Project);
        } else {
            self.stage = Stage::Open;
        }
    }

    pub(super) fn projected(&mut self) {
        if self.stage == Stage::Projecting {
            self.stage = Stage::Open;
        }
    }
}
