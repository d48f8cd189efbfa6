//! The page below all others: the table of units, and the action stream of the selected one.

use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
};

use crate::{
    action::{Unavailable, UserAction},
    cache::CacheRequest,
    effect::{ExportRequest, ExportTool, ScreenEffect, SearchScope},
    export_request::{self, copy_row},
    layout::{self, Pane, ScreenLayout},
    model::{SharedModel, SidePane, TableLine, is_problem_end},
    page::{
        ContentContext, DrawContext, InspectPlace, Page, SearchPlace, clicked_row, initial_action,
        selected_attempt,
    },
    reading_order::single_session,
    search_match::{matches, nearest},
    unit_row::last_action,
    widgets::stream,
};
use ingestdeck_core::run::state::{AttemptState, RunView, UnitNeed, UnitState, UnitStatus};

mod summary;
mod view;

#[derive(Clone, Copy, Debug)]
pub(crate) struct UnitsPage;

/// Rows of the attempt that is shown.
fn stream_len(model: &SharedModel, run_view: &RunView) -> usize {
    let attempt_id = model.units_view.attempt_id;
    attempt_id.map_or(0, |attempt_id| run_view.rows(attempt_id).len())
}

fn is_table(model: &SharedModel) -> bool {
    model.units_view.focus == Pane::Units
}

impl Page for UnitsPage {
    fn name(&self) -> &'static str {
        "the units"
    }

    fn hints(&self, model: &SharedModel, run_view: &RunView) -> &'static [UserAction] {
        use UserAction::*;
        let status = model.unit(run_view).map(|unit| unit.status);
        let is_retryable = status.is_some_and(UnitStatus::is_retryable);
        let connection = &model.connection;
        match status {
            _ if !model.units_view.marked.is_empty() && connection.accepts_commands() => {
                &[Retry, RetryWith, Stop, Mark, Back]
            }
            _ if model.heading().is_some() => &[Open, Retry, RetryWith, RetryFailed, Causes],
            _ if !connection.is_live && is_retryable => &[
                Open,
                Retry,
                RetryWith,
                RetryFailed,
                Play,
                StepForward,
                NextPane,
            ],
            _ if !connection.is_live
                && connection.recorded_run.is_none()
                && single_session(&run_view.state).is_some() =>
            {
                &[Open, Read, Play, StepForward, NextPane]
            }
            _ if !connection.is_live => &[Open, Play, StepForward, NextPane],
            _ if model.is_in_past() => &[Play, StepForward, Open, NextPane],
            _ if connection.is_watching => &[Open, NextPane, NextFailure],
            _ if connection.is_session => &[Say, Stop, Open, Retry, NextPane],
            _ if is_retryable => &[Retry, RetryWith, Open, RetryFailed, NextPane, NextFailure],
            None => &[],
            Some(status) if status.is_finished() => &[Open, Retry, RetryWith, NextPane],
            // A silent unit can only be stopped and then retried.
            Some(UnitStatus::Silent) => &[Stop, Open, NextPane],
            Some(_) => &[Open, Stop, NextPane],
        }
    }

    fn help(&self, model: &SharedModel) -> (&'static str, &'static [UserAction]) {
        use UserAction::*;
        if !is_table(model) {
            return (
                "the actions",
                &[
                    ScrollDown,
                    ScrollUp,
                    NextAttempt,
                    NextMatch,
                    NextFailure,
                    PreviousFailure,
                    Bookmark,
                    Bookmarks,
                    Copy,
                    Editor,
                    Pager,
                ],
            );
        }
        (
            self.name(),
            &[
                NextFailure,
                PreviousFailure,
                Down,
                Up,
                RetryFailed,
                Causes,
                Read,
                Mark,
                More,
                Fewer,
                Compare,
                NextAttempt,
                ScrollDown,
                ScrollUp,
                FilterText,
                Sort,
                Reverse,
                Group,
                Grid,
                Lanes,
                Artifacts,
                Bookmark,
                Bookmarks,
                CommandLine,
            ],
        )
    }

    fn unit<'a>(&self, model: &SharedModel, run_view: &'a RunView) -> Option<&'a UnitState> {
        model.unit(run_view)
    }

    fn step(&mut self, model: &mut SharedModel, run_view: &RunView, by: isize) {
        if is_table(model) {
            let line = model.selected_line().saturating_add_signed(by);
            model.select_line(line, by > 0);
        } else {
            let len = stream_len(model, run_view);
            model.units_view.stream.step(by, len);
        }
    }

    fn go_to_end(&mut self, model: &mut SharedModel, run_view: &RunView, last: bool) {
        if is_table(model) {
            model.select_line(if last { usize::MAX } else { 0 }, !last);
        } else {
            let len = stream_len(model, run_view);
            model.units_view.stream.go_to_end(len, last);
        }
    }

    fn page_rows(&self, model: &SharedModel, run_view: &RunView, plan: &ScreenLayout) -> usize {
        if is_table(model) {
            plan.unit_rows()
        } else {
            let attempt = model.attempt(run_view).map(|(_, attempt)| attempt);
            plan.stream_rows(attempt, &model.dialogs.held_changes)
        }
    }

    /// Scrolls the actions also while the table has the focus.
    fn scroll(&mut self, model: &mut SharedModel, run_view: &RunView, by: isize) {
        model.units_view.follows_work &= !model.shows_results(run_view);
        let len = stream_len(model, run_view);
        model.units_view.stream.step(by, len);
    }

    /// On a heading, unfolds or folds its group.
    fn sideways(&mut self, model: &mut SharedModel, _: &RunView, right: bool) {
        let focus = model.units_view.focus;
        if focus == Pane::Units && model.fold(Some(!right)) {
            return;
        }
        match (focus, right) {
            (_, true) if model.heading().is_some() => {}
            (_, true) => model.units_view.focus = Pane::Stream,
            (Pane::Stream, false) => model.units_view.focus = Pane::Units,
            (Pane::Units, false) => {
                let deck = &mut model.units_view;
                let group = deck.listing.group_of(deck.unit);
                if let Some(key) = group.map(|group| group.key.clone()) {
                    (deck.heading, deck.follows_work) = (Some(key), false);
                }
            }
        }
    }

    /// The units of a selected group are only listed in the other pane.
    fn next_pane(&mut self, model: &mut SharedModel, _: bool) {
        let is_heading = model.heading().is_some();
        model.units_view.focus = match model.units_view.focus {
            Pane::Units if !is_heading => Pane::Stream,
            Pane::Units | Pane::Stream => Pane::Units,
        };
    }

    fn zoom(&mut self, model: &mut SharedModel) {
        model.units_view.zoom = !model.units_view.zoom;
    }

    fn next_failure(
        &mut self,
        model: &mut SharedModel,
        run_view: &RunView,
        forward: bool,
    ) -> Result<(), &'static str> {
        let entries = run_view.state.entries;
        if is_table(model) {
            let listing = &model.units_view.listing;
            let len = listing.listed_count();
            // From a heading, the first unit of its group is the next one.
            let needs_person = |rank| {
                let unit = listing.unit(rank);
                unit.and_then(|unit| run_view.state.units.get(unit))
                    .is_some_and(|unit| unit.status.need() == UnitNeed::Person)
            };
            // A problem that the user has not selected is the next one, too.
            let is_found = forward
                && model.units_view.follows_work
                && model.heading().is_none()
                && needs_person(model.unit_rank());
            let from = match model.heading() {
                // The summary shows no selection, so the first problem is the next one.
                _ if model.shows_results(run_view) => match forward {
                    true => len.saturating_sub(1),
                    false => 0,
                },
                Some(_) if forward => {
                    let before = model.unit_rank().checked_sub(1);
                    before.unwrap_or(len.saturating_sub(1))
                }
                _ if is_found => {
                    let before = model.unit_rank().checked_sub(1);
                    before.unwrap_or(len.saturating_sub(1))
                }
                _ => model.unit_rank(),
            };
            let rank = nearest(len, from, forward, needs_person);
            model.select_rank(rank.ok_or("no unit needs you")?);
            return Ok(());
        }
        let deck = &mut model.units_view;
        let rows = deck
            .attempt_id
            .map_or(&[][..], |attempt_id| run_view.rows(attempt_id));
        let hit = nearest(rows.len(), deck.stream.selected, forward, |row| {
            is_problem_end(rows[row].end(entries))
        });
        deck.stream
            .select(hit.ok_or("no failure here")?, rows.len());
        Ok(())
    }

    fn attempt(&self, model: &SharedModel, run_view: &RunView) -> Option<usize> {
        model.attempt(run_view).map(|(index, _)| index)
    }

    /// With the newest attempt selected, later attempts are shown automatically.
    fn show_attempt(&mut self, model: &mut SharedModel, run_view: &RunView, attempt: usize) {
        let count = model.unit(run_view).map_or(0, |unit| unit.attempts.len());
        model.units_view.follows_work = false;
        model.units_view.attempt = (attempt + 1 < count).then_some(attempt);
    }

    fn row<'a>(
        &self,
        model: &SharedModel,
        run_view: &'a RunView,
    ) -> Option<(&'a AttemptState, usize)> {
        let (_, attempt) = model.attempt(run_view)?;
        (!is_table(model)).then_some((attempt, model.units_view.stream.selected))
    }

    fn inspected(
        &self,
        model: &SharedModel,
        run_view: &RunView,
    ) -> Result<InspectPlace, Unavailable> {
        let (unit, index, attempt) = selected_attempt(model, run_view)?;
        let stream = &model.units_view.stream;
        let action = if !is_table(model) || !stream.follow {
            Some(stream.selected)
        } else {
            initial_action(run_view, attempt)
        };
        Ok(InspectPlace {
            unit: unit.key.clone(),
            attempt: index,
            action,
        })
    }

    fn copy(&self, model: &SharedModel, run_view: &RunView) -> Vec<ScreenEffect> {
        if is_table(model) {
            return self.copy_name(model, run_view);
        }
        let row = self
            .row(model, run_view)
            .and_then(|(attempt, row)| run_view.rows(attempt.id).get(row));
        row.map_or_else(Vec::new, |row| copy_row(run_view, row))
    }

    fn export(
        &self,
        model: &SharedModel,
        run_view: &RunView,
        tool: ExportTool,
    ) -> Option<ExportRequest> {
        let (_, attempt) = model.attempt(run_view)?;
        match self.row(model, run_view) {
            Some((attempt, row)) => export_request::row(run_view, attempt.id, row, tool),
            None => Some(export_request::attempt(run_view, attempt.id, None, tool)),
        }
    }

    fn search(&self, model: &SharedModel, run_view: &RunView) -> Option<SearchPlace> {
        let deck = &model.units_view;
        if is_table(model) {
            return Some(SearchPlace::new(
                SearchScope::Page(self.name()),
                model.unit_rank(),
                deck.listing.listed_count(),
            ));
        }
        let attempt_id = deck.attempt_id?;
        Some(SearchPlace::new(
            SearchScope::Rows(attempt_id),
            deck.stream.selected,
            run_view.rows(attempt_id).len(),
        ))
    }

    fn is_match(&self, model: &SharedModel, run_view: &RunView, place: usize, query: &str) -> bool {
        let unit = model.units_view.listing.unit(place);
        unit.and_then(|unit| run_view.state.units.get(unit))
            .is_some_and(|unit| {
                let label = unit
                    .planned
                    .as_ref()
                    .and_then(|planned| planned.label.as_deref());
                matches(&unit.key, query) || label.is_some_and(|label| matches(label, query))
            })
    }

    fn select_match(&mut self, model: &mut SharedModel, run_view: &RunView, place: usize) {
        if is_table(model) {
            model.select_rank(place);
        } else {
            let len = stream_len(model, run_view);
            model.units_view.stream.select(place, len);
        }
    }

    fn searched_rows(
        &self,
        model: &SharedModel,
        run_view: &RunView,
        plan: &ScreenLayout,
    ) -> Option<(Rect, Option<usize>)> {
        if is_table(model) {
            return Some((plan.unit_list()?, None));
        }
        let attempt = model.attempt(run_view).map(|(_, attempt)| attempt);
        let held = &model.dialogs.held_changes;
        let rows = layout::stream_areas(plan.stream?, attempt, held).rows;
        Some((rows, Some(model.units_view.stream.offset)))
    }

    fn click(
        &mut self,
        model: &mut SharedModel,
        run_view: &RunView,
        plan: &ScreenLayout,
        at: Position,
    ) -> bool {
        if plan.units.is_some_and(|pane| pane.contains(at)) {
            model.units_view.focus = Pane::Units;
            let row = plan.unit_list().and_then(|rows| clicked_row(rows, at));
            let line = row.map(|row| model.units_view.offset + row);
            let is_heading = match line.and_then(|line| model.units_view.listing.at(line)) {
                Some(TableLine::Unit(_)) => false,
                Some(TableLine::Group(_)) => true,
                Some(TableLine::Connection(_)) | None => return row.is_some(),
            };
            let line = line.unwrap_or_default();
            // The first click selects a heading, the next one folds it.
            if !is_heading || line != model.selected_line() || !model.fold(None) {
                model.select_line(line, true);
            }
            return !is_heading;
        }
        let is_stream = |pane: &Rect| pane.contains(at) && model.heading().is_none();
        let Some(pane) = plan.stream.filter(is_stream) else {
            return false;
        };
        model.units_view.focus = Pane::Stream;
        let attempt = model.attempt(run_view).map(|(_, attempt)| attempt);
        let areas = layout::stream_areas(pane, attempt, &model.dialogs.held_changes);
        let row = clicked_row(areas.rows, at);
        let len = stream_len(model, run_view);
        let place = row.map(|row| model.units_view.stream.offset + row);
        if let Some(place) = place.filter(|place| *place < len) {
            model.units_view.stream.select(place, len);
        }
        row.is_some()
    }

    /// The focus does not change.
    fn wheel(
        &mut self,
        model: &mut SharedModel,
        run_view: &RunView,
        plan: &ScreenLayout,
        at: Position,
        by: isize,
    ) {
        let under = [(plan.units, Pane::Units), (plan.stream, Pane::Stream)];
        let mut under = under.into_iter();
        if let Some((_, pane)) = under.find(|(area, _)| area.is_some_and(|area| area.contains(at)))
        {
            let focus = std::mem::replace(&mut model.units_view.focus, pane);
            self.step(model, run_view, by);
            model.units_view.focus = focus;
        }
    }

    fn refresh(&mut self, _: &mut SharedModel, _: &RunView, _: &ScreenLayout) {}

    fn add_content(&self, scene: &ContentContext<'_>, wants: &mut CacheRequest) {
        let (model, run_view, plan) = (scene.model, scene.run_view, scene.plan);
        if let (Some(pane), Some((_, attempt))) = (plan.stream, model.attempt(run_view)) {
            let list = &model.units_view.stream;
            let areas = layout::stream_areas(pane, Some(attempt), &model.dialogs.held_changes);
            let rows = run_view.rows(attempt.id).iter().skip(list.offset);
            wants.rows.extend(rows.take(usize::from(areas.rows.height)));
            let result = stream::result_below(list, run_view, attempt, &areas);
            wants.reading.extend(result.map(|(key, _)| key));
        }
        if let (Some(pane), Some(group)) = (plan.stream, model.heading()) {
            let units = model.units_view.listing.units_of(group).iter();
            let units = units
                .take(usize::from(layout::inner(pane).height))
                .filter_map(|unit| run_view.state.units.get(*unit)?.latest());
            wants
                .rows
                .extend(units.filter_map(|attempt| last_action(run_view, attempt)));
        }
        if plan.units.is_some() {
            let rows = plan.unit_rows();
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

    fn side_pane(&self, model: &SharedModel, _: &RunView, plan: &ScreenLayout) -> Option<SidePane> {
        is_table(model).then_some(())?;
        Some(SidePane {
            list: None,
            selected: model.units_view.unit,
            moves_by_itself: model.units_view.follows_work,
            area: plan.units.and(plan.stream)?,
        })
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
        view::draw(scene, plan, buf);
        if let Some(area) = plan.stream.filter(|_| !scene.is_side_pane_kept) {
            match scene.model.shows_results(scene.run_view) {
                true => summary::draw(scene, area, buf),
                false => stream::draw(scene, area, buf),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyOverrides, Keymap, cache::ScreenCache, page::ScreenModel};
    use ingestdeck_core::{
        run::state::{
            AttemptId, AttemptRows, HoldMode, RowKind, RowOutcome, RunState, StreamRow, UnitState,
        },
        tape::Seq,
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
        let keymap = Keymap::new(&KeyOverrides::new()).unwrap();
        let mut model = ScreenModel::new(SharedModel::new(keymap, false), UnitsPage);
        model.size = (200, 60);
        model.refresh(&run_view);
        let requested = model
            .content(&model.layout(), &run_view, &ScreenCache::default())
            .rows
            .len();
        assert!((40..120).contains(&requested), "{requested} rows");
    }
}
