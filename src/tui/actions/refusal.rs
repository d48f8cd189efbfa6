//! Why a unit cannot be retried, or the run accepts no commands from this screen.

use super::rerun;
use crate::page::ScreenModel;
use ingestdeck_core::run::state::{RunView, UnitState, UnitStatus};

pub(super) const WATCHING: &str = "this run belongs to another process; use `ingestdeck ctl`";

/// Why the run accepts no commands from this screen.
pub(super) fn read_only(model: &ScreenModel, run_view: &RunView) -> String {
    if model.connection.is_watching {
        WATCHING.to_owned()
    } else {
        rerun::refusal(model, run_view)
    }
}

/// Why the unit cannot be retried now.
pub(super) fn retry(model: &ScreenModel, run_view: &RunView, unit: &UnitState) -> Option<String> {
    match unit.status {
        _ if rerun::is_possible(model) => rerun::unit_refusal(run_view, unit),
        _ if !model.connection.accepts_commands() => Some(read_only(model, run_view)),
        UnitStatus::Running | UnitStatus::Silent | UnitStatus::Held => Some(format!(
            "{} is {}; stop it first",
            unit.key,
            unit.status_text()
        )),
        UnitStatus::Queued if run_view.state.limits.is_stopping => Some(format!(
            "{} cannot start: the run is ending; retry it afterwards",
            unit.key
        )),
        UnitStatus::Queued => Some(format!("{} is queued and starts automatically", unit.key)),
        UnitStatus::NotStarted
        | UnitStatus::Waiting
        | UnitStatus::Succeeded
        | UnitStatus::BudgetExhausted
        | UnitStatus::Failed
        | UnitStatus::Stopped
        | UnitStatus::Interrupted
        | UnitStatus::Reused => None,
    }
}
