//! Chooses the part of the tape that is exported to an editor or a pager: the selected or opened content.

use super::{Availability, require, units};
use crate::{
    effect::{ExportRequest, ExportTool, PagerContent, ScreenEffect},
    entry_part::{EntryPart, PartContent, row_parts},
    layout::Pane,
    model::{EntryView, InspectPanel, OverlayView, ScreenModel},
};
use ingestdeck_core::{
    run::bookmark,
    run::state::{AttemptId, AttemptState, RowKind, RunView, UnitState},
    tape::Seq,
};

pub(crate) fn export(
    model: &mut ScreenModel,
    run_view: &RunView,
    tool: ExportTool,
) -> Vec<ScreenEffect> {
    let request = match model.views.last() {
        Some(OverlayView::Help(_)) => {
            let text = model.keymap.markdown();
            Some(ExportRequest {
                tool,
                what: "help".into(),
                entries: Vec::new(),
                pager_content: PagerContent::Text(text),
                selected: None,
            })
        }
        Some(OverlayView::Log(_)) => Some(log(run_view, tool)),
        Some(list @ (OverlayView::Breakpoints(_) | OverlayView::Bookmarks(_))) => {
            let breakpoints = model
                .playhead
                .breakpoints
                .iter()
                .map(|breakpoint| format!("{}\n", breakpoint.condition));
            let (what, text) = match list {
                OverlayView::Bookmarks(_) => (
                    "bookmarks",
                    bookmark::to_lines(&model.playhead.bookmarks.list),
                ),
                _ => ("breakpoints", breakpoints.collect()),
            };
            Some(ExportRequest {
                tool,
                what: what.into(),
                entries: Vec::new(),
                pager_content: PagerContent::Text(text),
                selected: None,
            })
        }
        Some(OverlayView::Transcript(view)) => view
            .attempt_id(run_view)
            .map(|attempt_id| attempt(run_view, attempt_id, Some(view.list.selected), tool)),
        Some(OverlayView::Entry(view)) => Some(entry(view, tool)),
        Some(OverlayView::Home(_) | OverlayView::Review(_)) => None,
        Some(OverlayView::Artifacts(view)) => {
            let content = match view.document {
                Some(_) => PagerContent::Document,
                None => PagerContent::Text(
                    view.listed
                        .iter()
                        .map(|artifact| format!("{}\n", artifact.path))
                        .collect(),
                ),
            };
            let what = if view.document.is_some() {
                "artifact"
            } else {
                "artifacts"
            }
            .to_owned();
            Some(ExportRequest {
                tool,
                what,
                entries: Vec::new(),
                pager_content: content,
                selected: None,
            })
        }
        Some(
            OverlayView::FailureGroups(_)
            | OverlayView::Find(_)
            | OverlayView::Lanes(_)
            | OverlayView::Grid,
        ) => {
            let latest = units::target(model, run_view).and_then(UnitState::latest);
            latest.map(|shown| attempt(run_view, shown.id, None, tool))
        }
        Some(OverlayView::Compare(view)) => {
            super::compare::selected_row(view).and_then(|(side, index)| {
                let attempt_id = view.attempts(run_view)?[side].id;
                row(run_view, attempt_id, index, tool)
            })
        }
        Some(OverlayView::Inspect(view)) if view.panel == InspectPanel::Actions => view
            .attempt_id(run_view)
            .and_then(|attempt_id| row(run_view, attempt_id, view.actions.selected, tool)),
        Some(OverlayView::Inspect(view)) => Some(ExportRequest {
            tool,
            what: view.panel.label().into(),
            entries: Vec::new(),
            pager_content: PagerContent::Document,
            selected: Some(view.lines.selected),
        }),
        None if model.units_view.focus == Pane::Units => model
            .attempt(run_view)
            .map(|(_, shown)| attempt(run_view, shown.id, None, tool)),
        None => model.units_view.attempt_id.and_then(|attempt_id| {
            row(run_view, attempt_id, model.units_view.stream.selected, tool)
        }),
    };
    match request {
        Some(request) => vec![ScreenEffect::Export(request)],
        None => {
            let Some(unit) = units::target(model, run_view) else {
                units::no_unit_selected(model);
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
    let (attempt, row) = match model.views.last() {
        Some(OverlayView::Inspect(view)) if view.panel == InspectPanel::Actions => {
            (view.attempt(run_view)?.1, view.actions.selected)
        }
        None if model.units_view.focus == Pane::Stream => {
            (model.attempt(run_view)?.1, model.units_view.stream.selected)
        }
        _ => return None,
    };
    run_view
        .rows(attempt.id)
        .get(row)
        .filter(|row| row.kind == RowKind::Tool)
        .map(|_| (attempt, row))
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

/// Exports a whole attempt: all lines for an editor, messages and calls for a pager.
fn attempt(
    run_view: &RunView,
    attempt_id: AttemptId,
    at: Option<usize>,
    tool: ExportTool,
) -> ExportRequest {
    let entries = run_view
        .entries(attempt_id)
        .iter()
        .map(|seq| Seq(u64::from(*seq)))
        .collect();
    let rows = 0..if tool == ExportTool::Pager {
        run_view.rows(attempt_id).len()
    } else {
        0
    };
    let parts = rows
        .flat_map(|row| without_raw_lines(row_parts(run_view, attempt_id, row)))
        .collect();
    ExportRequest {
        tool,
        what: "transcript".into(),
        entries,
        pager_content: PagerContent::Parts(parts),
        selected: at,
    }
}

/// Removes the raw lines below parts that already show their content.
fn without_raw_lines(mut parts: Vec<EntryPart>) -> Vec<EntryPart> {
    if parts.iter().any(|part| part.content != PartContent::Line) {
        parts.retain(|part| part.content != PartContent::Line);
    }
    parts
}

fn entry(view: &EntryView, tool: ExportTool) -> ExportRequest {
    of_parts("line", &view.parts, tool)
}

fn row(
    run_view: &RunView,
    attempt_id: AttemptId,
    index: usize,
    tool: ExportTool,
) -> Option<ExportRequest> {
    let parts = row_parts(run_view, attempt_id, index);
    (!parts.is_empty()).then(|| of_parts("action", &parts, tool))
}

pub(crate) fn of_parts(what: &str, parts: &[EntryPart], tool: ExportTool) -> ExportRequest {
    let lines = parts
        .iter()
        .filter(|part| part.content == PartContent::Line);
    ExportRequest {
        tool,
        what: what.to_owned(),
        entries: lines.map(|part| part.seq).collect(),
        pager_content: PagerContent::Parts(parts.to_vec()),
        selected: None,
    }
}

fn log(run_view: &RunView, tool: ExportTool) -> ExportRequest {
    let line = |message: &ingestdeck_core::run::state::LogMessage| {
        let unit = message
            .unit
            .as_ref()
            .map(|unit| format!("{unit}: "))
            .unwrap_or_default();
        format!("+{} {}{}\n", message.at, unit, message.text)
    };
    let text = run_view.messages().iter().map(line).collect();
    ExportRequest {
        tool,
        what: "log".into(),
        entries: Vec::new(),
        pager_content: PagerContent::Text(text),
        selected: None,
    }
}
