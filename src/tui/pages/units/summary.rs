//! The summary of a recorded run of the project, at its end, until a unit is selected: what it cost and wrote, what needs
//! a person, and the keys that finish it.

use ratatui::{buffer::Buffer, layout::Rect};

use crate::{
    action::UserAction,
    forecast_text::forecast_words,
    model::short_date_time,
    page::DrawContext,
    theme::{StyleRole, status_role},
    widgets::{RowWriter, key_names, pane},
};
use ingestdeck_core::{
    run::{RunOutcome, failure_groups::FailureGroup, state::UnitStatus},
    tape::Millis,
    text::{self, clock, commands::review_command, pluralize},
};

/// A line, and the actions whose keys are at its end.
struct SummaryLine {
    role: StyleRole,
    text: String,
    actions: &'static [UserAction],
}

impl SummaryLine {
    fn new(role: StyleRole, text: String, actions: &'static [UserAction]) -> Self {
        Self {
            role,
            text,
            actions,
        }
    }
}

pub(super) fn draw(scene: &DrawContext<'_>, area: Rect, buf: &mut Buffer) {
    let run = scene.model.connection.recorded_run.as_ref();
    let name = run.map_or("run".to_owned(), |run| format!("run {}", run.short));
    let title = [
        (StyleRole::Strong, name.as_str()),
        (StyleRole::Dim, " summary"),
    ];
    let inside = pane(scene, area, false, &title, &[], buf);
    let (first, rest) = (results(scene), next_steps(scene));
    // What the table does not show of the causes takes the rows that are left.
    let free = usize::from(inside.height).saturating_sub(first.len() + rest.len());
    let causes = scene.model.connection.results.causes.iter().take(free);
    let mut rows = (inside.y..inside.bottom()).map(|y| Rect {
        y,
        height: 1,
        ..inside
    });
    for (line, row) in first.iter().zip(rows.by_ref()) {
        self::line(scene, line, row, buf);
    }
    for (group, row) in causes.zip(rows.by_ref()) {
        cause(scene, group, row, buf);
    }
    for (line, row) in rest.iter().zip(rows) {
        self::line(scene, line, row, buf);
    }
}

fn line(scene: &DrawContext<'_>, line: &SummaryLine, area: Rect, buf: &mut Buffer) {
    let mut pen = RowWriter::row(scene, buf, area);
    let keys = keys(scene, line.actions);
    let keys: Vec<_> = keys
        .iter()
        .map(|(role, text)| (*role, text.as_str()))
        .collect();
    pen.end_with(&keys);
    pen.put(line.role, &text::one_row(&line.text, 600));
}

/// The number of units with a cause, the reason and the remedy.
fn cause(scene: &DrawContext<'_>, group: &FailureGroup, area: Rect, buf: &mut Buffer) {
    let units = &scene.run_view.state.units;
    let first = group.units.first().and_then(|unit| units.get(*unit));
    let status = first.map_or(UnitStatus::Failed, |unit| unit.status);
    let glyphs = scene.theme.glyphs;
    let mut pen = RowWriter::row(scene, buf, area);
    pen.cell(status_role(status), glyphs.status(status), 2);
    pen.cell_right(StyleRole::Strong, &group.units.len().to_string(), 4);
    pen.skip(2);
    // A remedy needs another attempt, which the run of a script cannot have.
    let plan = scene.run_view.state.planned.as_deref();
    let is_scripted = plan.is_some_and(|plan| plan.scripted);
    let remedy = group.remedy.as_deref().filter(|_| !is_scripted);
    let remedy = remedy.unwrap_or_default();
    let width = match remedy {
        "" => pen.room(),
        _ => pen.room() / 2,
    };
    pen.cell(StyleRole::Text, &text::one_row(&group.reason, 300), width);
    pen.skip(2);
    if !remedy.is_empty() {
        pen.cell(StyleRole::Text, glyphs.arrow, 2);
        pen.put(StyleRole::Text, &text::one_row(remedy, 300));
    }
}

/// What the run took, what it wrote, and how many units need a person.
fn results(scene: &DrawContext<'_>) -> Vec<SummaryLine> {
    let causes = &scene.model.connection.results.causes;
    let failed: usize = causes.iter().map(|group| group.units.len()).sum();
    let effort = SummaryLine::new(StyleRole::Strong, effort(scene), &[UserAction::Lanes]);
    let mut lines = vec![effort, publication(scene)];
    if failed > 0 {
        let verb = if failed == 1 { "needs" } else { "need" };
        let text = format!(
            "{} {verb} you, for {}",
            pluralize(failed, "unit"),
            pluralize(causes.len(), "reason")
        );
        let actions = &[UserAction::Causes];
        lines.push(SummaryLine::new(StyleRole::Failed, text, actions));
    }
    lines
}

/// What can be done, with the keys; without what is not available.
fn next_steps(scene: &DrawContext<'_>) -> Vec<SummaryLine> {
    use UserAction::*;
    let unfinished = &scene.model.connection.results.unfinished;
    let count = pluralize(unfinished.forecast.units, "unit");
    let resume = format!("{count} unfinished. {}", forecast_words(unfinished));
    let retry = "the selected unit or cause in a new run".to_owned();
    let read = "the actions of the selected unit".to_owned();
    let mut lines = vec![
        SummaryLine::new(StyleRole::Text, resume, &[RetryFailed]),
        SummaryLine::new(StyleRole::Text, retry, &[Retry, RetryWith]),
        SummaryLine::new(StyleRole::Dim, read, &[NextPane, Open]),
    ];
    lines.retain(|line| !keys(scene, line.actions).is_empty());
    lines
}

/// How it ended, when, how long it took and what it cost.
fn effort(scene: &DrawContext<'_>) -> String {
    let (model, state) = (scene.model, &scene.run_view.state);
    let bounds = &model.playhead.bounds;
    let (end, dot) = (bounds.last_at, scene.theme.glyphs.dot);
    let day = |at| short_date_time(bounds.started_at?, at, &bounds.zone);
    let times = match day(Millis(0)).zip(day(end)) {
        Some((start, end)) => {
            // The day of the end is that of the start, or another one.
            let (day, time) = end.rsplit_once(' ').unwrap_or(("", &end));
            let until = if start.starts_with(day) { time } else { &end };
            match start == end {
                true => start,
                false => format!("{start} to {until}"),
            }
        }
        None => clock(end),
    };
    let turns = usize::try_from(model.totals.turns).unwrap_or(usize::MAX);
    let outcome = RunOutcome::from_state(state, false);
    let by = state.limits.stopped_by.as_deref();
    let by = by.filter(|_| outcome == RunOutcome::Stopped);
    let by = by.map_or_else(String::new, |by| format!(" by {}", text::one_row(by, 60)));
    format!(
        "{}{by}, {times} {dot} {} {dot} {} {dot} {}",
        outcome.text(),
        state.duration_text(end),
        state.cost_figure(),
        pluralize(turns, "turn")
    )
}

/// What it wrote, and where that is.
fn publication(scene: &DrawContext<'_>) -> SummaryLine {
    use UserAction::*;
    let publication = &scene.run_view.state.publication;
    let results = &scene.model.connection.results;
    let written = match results.written.as_str() {
        "" => "no page or source",
        written => written,
    };
    if let Some(why) = &publication.save_error {
        let text = format!("{written} written, not saved: {why}");
        return SummaryLine::new(StyleRole::Failed, text, &[Log]);
    }
    let run = scene.model.connection.recorded_run.as_ref();
    let text = match (&results.commit, run) {
        (Some(commit), _) => format!("{written} written: {commit}"),
        (None, Some(run)) if publication.is_reviewed => {
            let review = review_command(None, &run.short);
            format!("{written} written, in no commit before `{review}`")
        }
        (None, _) if results.written.is_empty() => format!("{written} written"),
        (None, _) => format!("{written} written, in no commit"),
    };
    SummaryLine::new(StyleRole::Text, text, &[Artifacts])
}

fn keys(scene: &DrawContext<'_>, actions: &[UserAction]) -> Vec<(StyleRole, String)> {
    let (model, run_view) = (scene.model, scene.run_view);
    let available = actions
        .iter()
        .filter(|action| action.spec().is_available(model, run_view));
    let named = available.filter_map(|action| {
        let key = model.keymap.first(*action)?;
        let key = key_names(scene, &key).into_owned();
        Some((key, action.spec().hint(model, run_view)))
    });
    named
        .flat_map(|(key, hint)| {
            [
                (StyleRole::Key, format!("  {key}")),
                (StyleRole::Dim, format!(" {hint}")),
            ]
        })
        .collect()
}
