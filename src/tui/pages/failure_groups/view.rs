//! The forecast of the remaining work, and the failure groups: the number of units, their keys and the possible
//! actions.

use ratatui::{buffer::Buffer, layout::Rect};

use super::FailureGroupLine;
use super::FailureGroupsPage;
use super::state::group_heading;
use crate::page::DrawContext;
use crate::widgets::{RowWriter, key_names, pane};
use crate::{
    action::UserAction,
    forecast_text::{cost_words, time_words},
    theme::{StyleRole, status_role},
};
use ingestdeck_core::{
    run::{
        run_forecast::AdapterForecast,
        state::{UnitState, UnitStatus},
    },
    text::{self, commands::resume_command, dollars, pluralize},
};

pub(crate) fn draw(
    scene: &DrawContext<'_>,
    view: &FailureGroupsPage,
    area: Rect,
    buf: &mut Buffer,
) {
    let units: usize = view.groups.iter().map(|group| group.units.len()).sum();
    let verb = if units == 1 { "needs" } else { "need" };
    let title = format!(
        " {} {verb} you, for {}",
        pluralize(units, "unit"),
        pluralize(view.groups.len(), "reason")
    );
    let place = if view.lines.is_empty() {
        String::new()
    } else {
        format!(" {}/{} ", view.list.selected + 1, view.lines.len())
    };
    let inside = pane(
        scene,
        area,
        true,
        &[(StyleRole::Strong, "causes"), (StyleRole::Dim, &title)],
        &[(StyleRole::Dim, &place)],
        buf,
    );
    let above = FailureGroupsPage::header_rows(inside.height).min(inside.height);
    for (y, (role, line)) in (inside.y..inside.y + above).zip(forecast_lines(scene)) {
        RowWriter::row(
            scene,
            buf,
            Rect {
                y,
                height: 1,
                ..inside
            },
        )
        .put(role, &line);
    }
    let rows = Rect {
        y: inside.y + above,
        height: inside.height - above,
        ..inside
    };
    if view.lines.is_empty() {
        RowWriter::row(scene, buf, rows).put(StyleRole::Dim, "no unit needs you");
    }
    for (y, (index, line)) in
        (rows.y..rows.bottom()).zip(view.lines.iter().enumerate().skip(view.list.offset))
    {
        let row = Rect {
            y,
            height: 1,
            ..rows
        };
        self::line(scene, view, *line, row, buf);
        if index == view.list.selected {
            buf.set_style(row, scene.theme.style(StyleRole::Selected));
        }
    }
}

fn line(
    scene: &DrawContext<'_>,
    view: &FailureGroupsPage,
    line: FailureGroupLine,
    area: Rect,
    buf: &mut Buffer,
) {
    let mut pen = RowWriter::row(scene, buf, area);
    let Some(group) = view.groups.get(line.group()) else {
        return;
    };
    match line {
        FailureGroupLine::Group(_) => {
            let first = group
                .units
                .first()
                .and_then(|unit| scene.run_view.state.units.get(*unit));
            let status = first.map_or(UnitStatus::Failed, |unit| unit.status);
            let role = status_role(status);
            pen.cell(role, scene.theme.glyphs.status(status), 2);
            pen.put(role, &group_heading(group, scene.theme.glyphs.dot));
            if let Some(reason) = view.heading_reason(line.group()) {
                pen.put(StyleRole::Strong, &reason);
            }
        }
        FailureGroupLine::Reason { group, line } => {
            pen.skip(4);
            pen.put(
                StyleRole::Strong,
                view.reason_line(group, line).unwrap_or_default(),
            );
        }
        FailureGroupLine::Remedy(_) => {
            pen.skip(2);
            pen.cell(StyleRole::Text, scene.theme.glyphs.arrow, 2);
            pen.put(
                StyleRole::Text,
                &text::one_row(group.remedy.as_deref().unwrap_or_default(), 300),
            );
        }
        FailureGroupLine::Unit { unit, .. } => {
            let Some(unit) = scene.run_view.state.units.get(unit) else {
                return;
            };
            pen.skip(4);
            pen.cell(status_role(unit.status), scene.theme.glyphs.unit(unit), 2);
            let width = (usize::from(area.width) * 2 / 5).min(40);
            pen.cell(
                StyleRole::Text,
                &text::fit_middle(&unit.key, width, scene.theme.glyphs.cut),
                width,
            );
            if let Some(attempt) = unit.latest() {
                pen.cell_right(StyleRole::Dim, &format!("try {}", attempt.number), 8);
                pen.skip(2);
            }
            // What the heading shows is not repeated.
            let reason = text::one_row(&scene.run_view.state.failure_reason(unit), 300);
            pen.put(
                StyleRole::Dim,
                &view.own_reason(line.group(), &reason, scene.theme.glyphs.cut),
            );
        }
    }
}

/// Lines about the remaining work, most important first.
fn forecast_lines(scene: &DrawContext<'_>) -> Vec<(StyleRole, String)> {
    let run_forecast = scene.model.forecast();
    let forecast = &run_forecast.forecast;
    if let Some(percent) = scene.source.percent_read() {
        return vec![(
            StyleRole::Paused,
            format!("no forecast yet: the run is still being read ({percent} %)"),
        )];
    }
    if forecast.units == 0 {
        let units = &scene.run_view.state.units;
        let failed = units.iter().any(|unit| unit.status.is_retryable());
        let untried = |unit: &&UnitState| unit.status == UnitStatus::NotStarted;
        let untried = match units.iter().filter(untried).count() {
            0 => String::new(),
            count => format!("; {count} untried"),
        };
        let can_retry = scene.model.connection.accepts_commands();
        let text = match (failed, untried.as_str()) {
            (false, "") => "no work remains".to_owned(),
            (false, _) => format!("nothing failed{untried}"),
            (true, _) if can_retry => {
                format!("nothing is queued{untried}; unfinished units can be retried")
            }
            (true, _) => format!("nothing is queued{untried}"),
        };
        let resume = resume_line(scene).filter(|_| failed || !untried.is_empty());
        let resume = resume.map(|line| (StyleRole::Text, line));
        return [(StyleRole::Dim, text)].into_iter().chain(resume).collect();
    }
    let mut first = format!(
        "{} left: cost {}, done in {}, concurrency {}",
        pluralize(forecast.units, "unit"),
        cost_words(forecast),
        time_words(run_forecast, scene.model.playhead.time),
        run_forecast.concurrency,
    );
    if forecast.overdue_units > 0 && forecast.time.is_some() {
        first.push_str(&format!(", {} overdue", forecast.overdue_units));
    }
    let kinds: Vec<_> = run_forecast
        .adapters
        .iter()
        .filter(|kind| kind.remaining > 0)
        .map(|kind| {
            let name = if kind.name.is_empty() {
                "units"
            } else {
                &kind.name
            };
            format!(
                "{name}: {} left, {} finished",
                kind.remaining, kind.finished
            )
        })
        .collect();
    let known = !run_forecast
        .adapters
        .iter()
        .any(AdapterForecast::is_unknown);
    let why = if known {
        "based on finished units"
    } else {
        "unknown until three of each kind have finished"
    };
    let without = if run_forecast.reconcile_follows {
        "; without reconcile"
    } else {
        ""
    };
    let mut lines = vec![
        (StyleRole::Strong, first),
        (
            StyleRole::Dim,
            format!("{} ({why}{without})", kinds.join(" · ")),
        ),
    ];
    if let Some(budget_forecast) = BudgetForecast::from_context(scene) {
        let (role, sign) = match budget_forecast.verdict(scene) {
            Some((role, sign)) => (role, format!("  {sign}")),
            None => (StyleRole::Text, String::new()),
        };
        let all = format!(
            "{}{}",
            dollars(budget_forecast.high),
            if forecast.covers_all_costs() {
                ""
            } else {
                "+?"
            }
        );
        lines.push((
            role,
            format!(
                "budget: {} spent, P90 {all} of {}{sign}",
                dollars(Some(budget_forecast.spent)),
                budget_forecast.budget()
            ),
        ));
    }
    lines
}

/// How the units of a recorded run run again; `None` for a live run, and for a script, which cannot be resumed.
fn resume_line(scene: &DrawContext<'_>) -> Option<String> {
    let connection = &scene.model.connection;
    let run = connection.recorded_run.as_ref()?;
    let plan = scene.run_view.state.planned.as_ref()?;
    if connection.is_live || plan.scripted {
        return None;
    }
    let command = resume_command(None, &run.short);
    if !run.is_of_project {
        return Some(format!("`{command}` in its project resumes the run"));
    }
    let key = |action| scene.model.keymap.first(action);
    let keys = key(UserAction::Retry).zip(key(UserAction::RetryFailed));
    let Some((retry, resume)) = keys else {
        return Some(format!("`{command}` resumes the run"));
    };
    let (retry, resume) = (key_names(scene, &retry), key_names(scene, &resume));
    Some(format!(
        "{retry} starts a new run for the selected cause; {resume} resumes the run, as `{command}`"
    ))
}

/// Budget, cost and forecast cost of the whole run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BudgetForecast {
    budget: f64,
    spent: f64,
    high: Option<f64>,
}

impl BudgetForecast {
    /// Returns `None` if the run has no budget.
    pub(crate) fn from_context(scene: &DrawContext<'_>) -> Option<Self> {
        let state = &scene.run_view.state;
        let budget = state.planned.as_ref()?.run_budget_usd?;
        let left = scene.model.forecast().forecast;
        let high = if scene.source.percent_read().is_some() {
            // Of the part that is read.
            None
        } else if left.units == 0 {
            Some(0.0)
        } else {
            left.cost.map(|cost| cost.p90)
        };
        Some(Self {
            budget,
            spent: state.spent_usd,
            high: high.map(|high| state.spent_usd + high),
        })
    }

    /// Formats the budget: `$1.00 budget`.
    pub(crate) fn budget(&self) -> String {
        format!("{} budget", dollars(Some(self.budget)))
    }

    /// Warns if the budget may be too small.
    pub(crate) fn verdict(&self, scene: &DrawContext<'_>) -> Option<(StyleRole, String)> {
        let sign = scene.theme.glyphs.status(UnitStatus::BudgetExhausted);
        let dear = |dollars: f64| dollars > self.budget;
        if self.spent >= self.budget {
            Some((StyleRole::Failed, format!("{sign} spent")))
        } else {
            self.high
                .is_some_and(dear)
                .then(|| (StyleRole::Warning, format!("{sign} will be exceeded")))
        }
    }
}
