//! Determines which content the next frame shows, so that [`super::load`] reads nothing else.

use ratatui::layout::Rect;

use super::{
    cache::{
        CacheRequest, DocumentContent, DocumentRequest, MAX_PROLOGUE_ENTRIES, PanelPage, RowId,
        ScreenCache,
    },
    layout::{ScreenLayout, inner, stream_areas, unit_list},
    model::{CompareView, InspectPanel, InspectView, OverlayView, ScreenModel, TableLine},
    unit_row::last_action,
};
use ingestdeck_core::{run::state::RunView, tape::Seq};

/// Content that the next frame shows.
pub(crate) fn cache_request(
    model: &ScreenModel,
    plan: &ScreenLayout,
    run_view: &RunView,
    cache: &ScreenCache,
) -> CacheRequest {
    let mut wants = CacheRequest::default();
    if plan.is_too_small() {
        return wants;
    }
    let body = usize::from(plan.body_rows());
    match model.views.last() {
        Some(OverlayView::Transcript(view)) => {
            if let Some(attempt_id) = view.attempt_id(run_view) {
                let seqs = run_view
                    .entries(attempt_id)
                    .iter()
                    .skip(view.list.offset)
                    .take(body);
                wants.entries = seqs.map(|seq| Seq(u64::from(*seq))).collect();
            }
        }
        Some(OverlayView::Entry(view)) => {
            let width = plan.body.width.saturating_sub(2);
            wants.document = Some(DocumentRequest {
                content: DocumentContent::Parts(view.parts.clone()),
                width,
            });
        }
        Some(OverlayView::Artifacts(view)) => {
            if let (Some(_), Some(artifact)) = (&view.document, view.selected()) {
                let content = DocumentContent::Artifact(Box::new(artifact.clone()));
                wants.document = Some(DocumentRequest {
                    content,
                    width: plan.body.width.saturating_sub(2),
                });
            }
        }
        Some(OverlayView::Compare(view)) => compare(view, run_view, cache, plan.body, &mut wants),
        Some(OverlayView::Inspect(view)) => inspect(view, run_view, cache, plan.body, &mut wants),
        Some(OverlayView::Grid) => {
            for (place, area) in model.grid.panes(plan.body) {
                let Some(slot) = model.grid.panes.get(place) else {
                    continue;
                };
                let Some((_, Some(attempt))) = slot.subject(run_view) else {
                    continue;
                };
                let height = usize::from(stream_areas(area, Some(attempt)).rows.height);
                wants.rows.extend(
                    run_view
                        .rows(attempt.id)
                        .iter()
                        .skip(slot.list.offset)
                        .take(height),
                );
            }
        }
        Some(OverlayView::Find(view)) => {
            let hits = view.hits.iter().skip(view.list.offset).take(body);
            let first = hits.filter_map(|hits| run_view.rows(hits.attempt_id).get(hits.first));
            wants.entries = first.map(|row| row.first()).collect();
        }
        Some(
            OverlayView::Help(_)
            | OverlayView::Log(_)
            | OverlayView::FailureGroups(_)
            | OverlayView::Breakpoints(_)
            | OverlayView::Bookmarks(_)
            | OverlayView::Home(_)
            | OverlayView::Lanes(_)
            | OverlayView::Review(_),
        ) => {}
        None => {
            if let (Some(_), Some((_, attempt))) = (plan.stream, model.attempt(run_view)) {
                let rows = run_view
                    .rows(attempt.id)
                    .iter()
                    .skip(model.units_view.stream.offset);
                wants
                    .rows
                    .extend(rows.take(plan.stream_rows(Some(attempt))));
            }
            if let (Some(pane), Some(group)) = (plan.stream, model.heading()) {
                let units = model
                    .units_view
                    .listing
                    .units_of(group)
                    .iter()
                    .take(usize::from(inner(pane).height));
                let units = units.filter_map(|unit| run_view.state.units.get(*unit)?.latest());
                wants
                    .rows
                    .extend(units.filter_map(|attempt| last_action(run_view, attempt)));
            }
            if let Some(pane) = plan.units {
                let rows = usize::from(unit_list(pane).height);
                let units = model
                    .visible_lines(rows)
                    .filter_map(|(_, line)| match line {
                        TableLine::Unit(unit) => run_view.state.units.get(unit),
                        TableLine::Group(_) | TableLine::Connection(_) => None,
                    });
                let last = units
                    .filter_map(|unit| unit.latest())
                    .filter_map(|attempt| last_action(run_view, attempt));
                wants.rows.extend(last);
            }
        }
    }
    wants
}

fn compare(
    view: &CompareView,
    run_view: &RunView,
    cache: &ScreenCache,
    body: Rect,
    wants: &mut CacheRequest,
) {
    let Some(attempts) = view.attempts(run_view) else {
        return;
    };
    wants.summaries = attempts.map(|attempt| attempt.id).to_vec();
    wants.comparison = Some(attempts.map(|attempt| {
        let version = cache
            .summary(attempt.id)
            .map_or(0, |gathered| gathered.version);
        (attempt.id, run_view.rows(attempt.id).len(), version)
    }));
    let visible = usize::from(view.areas(body).calls.height);
    for pair in view
        .pairs
        .iter()
        .flatten()
        .skip(view.list.offset)
        .take(visible)
    {
        for (attempt, row) in attempts.into_iter().zip([pair.left, pair.right]) {
            wants
                .rows
                .extend(row.and_then(|row| run_view.rows(attempt.id).get(row)));
        }
    }
}

fn inspect(
    view: &InspectView,
    run_view: &RunView,
    cache: &ScreenCache,
    body: Rect,
    wants: &mut CacheRequest,
) {
    let Some(unit) = run_view
        .state
        .units
        .iter()
        .position(|unit| unit.key == view.unit)
    else {
        return;
    };
    let Some((index, attempt)) = view.attempt(run_view) else {
        return;
    };
    let (rows, areas) = (run_view.rows(attempt.id), view.areas(body));
    if let Some(area) = areas.actions {
        wants.rows.extend(
            rows.iter()
                .skip(view.actions.offset)
                .take(usize::from(area.height)),
        );
    }
    let mut page = PanelPage {
        unit,
        attempt: index,
        panel: view.panel,
        action: None,
        toggled_folds: view.toggled_folds.clone(),
        version: (0, 0, 0),
        second: None,
    };
    match view.panel {
        InspectPanel::Actions => {
            let Some(row) = rows.get(view.actions.selected) else {
                return;
            };
            page.action = Some((view.actions.selected, RowId::new(row, run_view)));
        }
        // The prompts are among the first entries.
        InspectPanel::Prompt => {
            page.version.0 = run_view.entries(attempt.id).len().min(MAX_PROLOGUE_ENTRIES)
        }
        InspectPanel::Isolation | InspectPanel::Stderr | InspectPanel::Verdict => {
            wants.summaries.push(attempt.id);
            let version = cache
                .summary(attempt.id)
                .map_or(0, |gathered| gathered.version);
            let ends = attempt
                .counts
                .open_calls
                .wrapping_mul(2)
                .wrapping_add(u32::from(attempt.ended_at.is_some()));
            page.version = (rows.len(), ends, version);
            let runs = view.panel == InspectPanel::Verdict && attempt.ended_at.is_none();
            page.second = runs.then_some(run_view.state.clock.0 / 1000);
        }
    }
    if let Some(area) = areas.detail {
        wants.document = Some(DocumentRequest {
            content: DocumentContent::InspectPanel(page),
            width: area.width,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyOverrides, Keymap};
    use ingestdeck_core::run::state::{
        AttemptId, AttemptRows, AttemptState, HoldMode, RowKind, RowOutcome, RunState, StreamRow,
        UnitState, UnitStatus,
    };

    #[test]
    fn only_visible_rows_are_requested() {
        let rows = 1_000_000_u64;
        let row = |seq| StreamRow::new(Seq(seq), 0, RowKind::Text, RowOutcome::Ok, 0);
        let attempt = AttemptState {
            number: 1,
            id: AttemptId(0),
            ..AttemptState::default()
        };
        let unit = UnitState {
            key: "big".into(),
            planned: None,
            status: UnitStatus::Running,
            attempts: vec![attempt],
            retry_at: None,
            hold_mode: HoldMode::Off,
        };
        let run_view = RunView {
            state: RunState {
                units: vec![unit],
                entries: rows,
                ..RunState::default()
            },
            attempts: vec![AttemptRows {
                rows: (0..rows).map(row).collect(),
                entries: Vec::new(),
            }],
            ..RunView::default()
        };
        let mut model = ScreenModel::new(Keymap::new(&KeyOverrides::new()).unwrap(), false);
        model.size = (200, 60);
        model.refresh(&run_view);
        let requested = cache_request(&model, &model.layout(), &run_view, &ScreenCache::default())
            .rows
            .len();
        assert!((40..120).contains(&requested), "{requested} rows");
    }
}
