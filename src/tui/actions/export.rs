//! Chooses the part of the tape that is exported to an editor or a pager: the selected or opened content.

use crate::{
    action::{Availability, require},
    effect::{ExportTool, ScreenEffect},
    page::ScreenModel,
};
use ingestdeck_core::run::state::{AttemptState, RowKind, RunView};

pub(crate) fn export(
    model: &mut ScreenModel,
    run_view: &RunView,
    tool: ExportTool,
) -> Vec<ScreenEffect> {
    let request = model.page().export(model, run_view, tool);
    match request {
        Some(request) => vec![ScreenEffect::Export(request)],
        None => {
            let Some(unit) = model.unit_of_page(run_view) else {
                model.toasts.show("no unit is selected");
                return Vec::new();
            };
            let text = format!("{} has no transcript yet", unit.key);
            model.toasts.show(text);
            Vec::new()
        }
    }
}

/// The selected call, if it may have written a file: its attempt and its row.
fn selected_call<'a>(
    model: &ScreenModel,
    run_view: &'a RunView,
) -> Option<(&'a AttemptState, usize)> {
    let (attempt, row) = model.page().row(model, run_view)?;
    let is_call = run_view.rows(attempt.id).get(row)?.kind == RowKind::Tool;
    is_call.then_some((attempt, row))
}

pub(crate) fn has_written_file(model: &ScreenModel, run_view: &RunView) -> Availability {
    require(selected_call(model, run_view).is_some())
}

/// Opens the file that the selected call wrote: in the project if its version is there, otherwise a copy.
pub(crate) fn open_file(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let Some((attempt, row)) = selected_call(model, run_view) else {
        return Vec::new();
    };
    let is_present = !model.is_in_past() && (model.connection.is_live || model.playhead.at_end);
    let delivery = &attempt.delivery;
    let saved = if delivery.is_saved {
        delivery
            .patch
            .as_ref()
            .map_or(&[][..], |patch| &patch.paths)
    } else {
        &[]
    };
    let paths = delivery
        .published
        .iter()
        .chain(saved)
        .filter(|_| is_present)
        .cloned()
        .collect();
    vec![ScreenEffect::OpenFile {
        attempt_id: attempt.id,
        row,
        paths,
    }]
}
