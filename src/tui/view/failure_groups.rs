//! The forecast of the remaining work, and the failure groups: the number of units, their keys and the possible
//! actions.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{DrawContext, RowWriter, pane};
use crate::run::state::UnitStatus;
use crate::{
    run::{
        failure_groups,
        run_forecast::{AdapterForecast, RunForecast},
    },
    tape::Millis,
    text::{self, dollars, pluralize},
    tui::{
        model::{FailureGroupLine, FailureGroupsView, is_failure},
        theme::{StyleRole, status_role},
    },
    units::forecast::{Forecast, QuantileEstimate},
};

/// Rows above the failures, in a body of this height.
pub(crate) fn header_rows(height: u16) -> u16 {
    if height >= 10 { 3 } else { 1 }
}

pub(crate) fn draw(scene: &DrawContext<'_>, view: &FailureGroupsView, area: Rect, buf: &mut Buffer) {
    let failed: usize = view.groups.iter().map(|group| group.units.len()).sum();
    let units =
        view.groups.iter().flat_map(|group| &group.units).filter_map(|unit| scene.run_view.state.units.get(*unit));
    let all_failed = units.map(|unit| unit.status).all(is_failure);
    let what = if all_failed { "failed unit" } else { "unfinished unit" };
    let title = format!(" {} of {}", pluralize(failed, what), pluralize(view.groups.len(), "kind"));
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
    let above = header_rows(inside.height).min(inside.height);
    for (y, (role, line)) in (inside.y..inside.y + above).zip(forecast_lines(scene)) {
        RowWriter::row(scene, buf, Rect { y, height: 1, ..inside }).put(role, &line);
    }
    let rows = Rect { y: inside.y + above, height: inside.height - above, ..inside };
    if view.lines.is_empty() {
        RowWriter::row(scene, buf, rows).put(StyleRole::Dim, "no unit has failed");
    }
    for (y, (index, line)) in (rows.y..rows.bottom()).zip(view.lines.iter().enumerate().skip(view.list.offset)) {
        let row = Rect { y, height: 1, ..rows };
        self::line(scene, view, *line, row, buf);
        if index == view.list.selected {
            buf.set_style(row, scene.theme.style(StyleRole::Selected));
        }
    }
}

fn line(scene: &DrawContext<'_>, view: &FailureGroupsView, line: FailureGroupLine, area: Rect, buf: &mut Buffer) {
    let mut pen = RowWriter::row(scene, buf, area);
    let Some(group) = view.groups.get(line.group()) else { return };
    match line {
        FailureGroupLine::Group(_) => {
            let first = group.units.first().and_then(|unit| scene.run_view.state.units.get(*unit));
            let status = first.map_or(UnitStatus::Failed, |unit| unit.status);
            let role = status_role(status);
            pen.cell(role, scene.theme.glyphs.status(status), 2);
            let units = pluralize(group.units.len(), "unit");
            pen.put(role, &format!("{} {} {units}  ", group.cause, scene.theme.glyphs.dot));
            // The common pattern of a group, or the full error of a single unit.
            let error = if group.units.len() > 1 { &group.pattern } else { &group.example };
            pen.put(StyleRole::Strong, &text::one_row(error, 300));
        }
        FailureGroupLine::Remedy(_) => {
            pen.skip(2);
            pen.cell(StyleRole::Text, scene.theme.glyphs.arrow, 2);
            pen.put(StyleRole::Text, &text::one_row(group.remedy.as_deref().unwrap_or_default(), 300));
        }
        FailureGroupLine::Unit { unit, .. } => {
            let Some(unit) = scene.run_view.state.units.get(unit) else { return };
            pen.skip(4);
            pen.cell(status_role(unit.status), scene.theme.glyphs.unit(unit), 2);
            let width = (usize::from(area.width) * 2 / 5).min(40);
            pen.cell(StyleRole::Text, &text::fit_middle(&unit.key, width, scene.theme.glyphs.cut), width);
            if let Some(attempt) = unit.latest() {
                pen.cell_right(StyleRole::Dim, &format!("try {}", attempt.number), 8);
                pen.skip(2);
            }
            // The error of a single unit is already shown in the line of the cause.
            if group.units.len() > 1 {
                pen.put(
                    StyleRole::Dim,
                    &text::one_row(&failure_groups::representative_error(&scene.run_view.state, unit), 300),
                );
            }
        }
    }
}

/// Lines about the remaining work, most important first.
fn forecast_lines(scene: &DrawContext<'_>) -> Vec<(StyleRole, String)> {
    let run_forecast = scene.model.forecast();
    let forecast = &run_forecast.forecast;
    if forecast.units == 0 {
        let failed = scene.run_view.state.units.iter().any(|unit| unit.status.is_retryable());
        let text = match (failed, scene.model.accepts_commands()) {
            (false, _) => "no work remains",
            (true, true) => "nothing is queued; unfinished units can be retried",
            (true, false) => "nothing is queued",
        };
        return vec![(StyleRole::Dim, text.to_owned())];
    }
    let mut first = format!(
        "{} left: cost {}, done in {}, concurrency {}",
        pluralize(forecast.units, "unit"),
        cost_words(forecast),
        time_words(run_forecast, scene.model.time),
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
            let name = if kind.name.is_empty() { "units" } else { &kind.name };
            format!("{name}: {} left, {} finished", kind.remaining, kind.finished)
        })
        .collect();
    let known = !run_forecast.adapters.iter().any(AdapterForecast::is_unknown);
    let why = if known { "based on finished units" } else { "unknown until three of each kind have finished" };
    let without = if run_forecast.reconcile_follows { "; without reconcile" } else { "" };
    let mut lines =
        vec![(StyleRole::Strong, first), (StyleRole::Dim, format!("{} ({why}{without})", kinds.join(" · ")))];
    if let Some(budget_forecast) = BudgetForecast::from_context(scene) {
        let (role, sign) = match budget_forecast.verdict(scene) {
            Some((role, sign)) => (role, format!("  {sign}")),
            None => (StyleRole::Text, String::new()),
        };
        let all = format!("{}{}", dollars(budget_forecast.high), if forecast.covers_all_costs() { "" } else { "+?" });
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
        let high = if left.units == 0 { Some(0.0) } else { left.cost.map(|cost| cost.p90) };
        Some(Self { budget, spent: state.spent_usd, high: high.map(|high| state.spent_usd + high) })
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
            self.high.is_some_and(dear).then(|| (StyleRole::Warning, format!("{sign} will be exceeded")))
        }
    }
}

/// Formats a forecast cost: `$0.40, P90 $0.90`, with `+?` if a part is unknown.
fn cost_words(forecast: &Forecast) -> String {
    let more = if forecast.covers_all_costs() { "" } else { " +?" };
    match forecast.cost {
        None => "$?".to_owned(),
        Some(cost) => format!("{}, P90 {}{more}", dollars(Some(cost.p50)), dollars(Some(cost.p90))),
    }
}

/// Formats a forecast time: `5m 10s, P90 9m 02s`, with `+?` if a part is unknown, or `overdue` if the time has passed.
fn time_words(run_forecast: &RunForecast, now: Millis) -> String {
    let more = if run_forecast.forecast.covers_all_times() { "" } else { " +?" };
    match time_left(run_forecast, now) {
        None if run_forecast.forecast.overdue_units > 0 => "?, overdue".to_owned(),
        None => "?".to_owned(),
        Some(time) => format!("{}, P90 {}{more}", time.p50, time.p90),
    }
}

/// The forecast remaining time; at least one second while work remains.
fn time_left(run_forecast: &RunForecast, now: Millis) -> Option<QuantileEstimate<Millis>> {
    const SECOND: Millis = Millis(1000);
    let time = run_forecast.remaining_time(now)?;
    Some(QuantileEstimate { p50: time.p50.max(SECOND), p90: time.p90.max(SECOND) })
}

/// The forecast in the question before a retry: `Forecast: $0.14–$0.17 for 7; reconcile unknown.`
pub(crate) fn forecast_words(run_forecast: &RunForecast) -> String {
    let forecast = &run_forecast.forecast;
    if forecast.cost.is_none() && forecast.time.is_none() {
        return "Forecast: $?, since fewer than three units like them have finished.".to_owned();
    }
    let unknown: Vec<String> = run_forecast.adapters.iter().filter(|kind| kind.is_unknown()).map(kind_words).collect();
    if unknown.is_empty() && forecast.covers_all_costs() {
        return format!("Forecast: {}; {}.", cost_words(forecast), time_words(run_forecast, run_forecast.at));
    }
    let cost = forecast.cost.map_or_else(
        || "$?".to_owned(),
        |cost| {
            let cost = range_text(&dollars(Some(cost.p50)), &dollars(Some(cost.p90)), "–");
            format!("{cost} for {}", forecast.units_with_cost)
        },
    );
    let time = forecast.time.map_or_else(
        || "?".to_owned(),
        |time| {
            format!(
                "{} for {}",
                range_text(&coarse_duration(time.p50), &coarse_duration(time.p90), "–"),
                forecast.units_with_time
            )
        },
    );
    let unknown = if unknown.is_empty() { "some costs".to_owned() } else { unknown.join(", ") };
    format!("Forecast: {cost}; {time}; {unknown} unknown.")
}

/// Label of an adapter's units: the unit if there is one, otherwise the count.
fn kind_words(kind: &AdapterForecast) -> String {
    match (&kind.first, kind.remaining) {
        (Some(unit), 1) => text::printable(unit, 40).into_owned(),
        _ => format!("{} of {}", kind.remaining, if kind.name.is_empty() { "an unknown kind" } else { &kind.name }),
    }
}

/// The forecast in the header: `left $0.40-0.90 in 5m-9m`, with `+?` for unknown parts; `None` if no work remains.
pub(crate) fn short_forecast(run_forecast: &RunForecast, now: Millis) -> Option<String> {
    let forecast = &run_forecast.forecast;
    if forecast.units == 0 {
        return None;
    }
    let more = |whole| if whole { "" } else { "+?" };
    let cost = forecast.cost.map(|cost| {
        let cost = range_text(&dollars(Some(cost.p50)), &dollars(Some(cost.p90)), "-");
        format!("{cost}{}", more(forecast.covers_all_costs()))
    });
    let time = time_left(run_forecast, now).map(|time| {
        let time = range_text(&coarse_duration(time.p50), &coarse_duration(time.p90), "-");
        format!("{time}{}", more(forecast.covers_all_times()))
    });
    let late = match forecast.overdue_units {
        0 => None,
        late if late == forecast.units => Some("overdue".to_owned()),
        late => Some(format!("{late} overdue")),
    };
    let left = match (cost, time, &late) {
        (None, None, None) => "left ?".to_owned(),
        (None, None, Some(_)) => "left $?".to_owned(),
        (Some(cost), None, Some(_)) => format!("left {cost}"),
        (cost, time, _) => {
            format!("left {} in {}", cost.as_deref().unwrap_or("$?"), time.as_deref().unwrap_or("?"))
        }
    };
    Some([Some(left), late].into_iter().flatten().collect::<Vec<_>>().join(", "))
}

fn range_text(low: &str, high: &str, dash: &str) -> String {
    if low == high { low.to_owned() } else { format!("{low}{dash}{high}") }
}

/// Formats a duration with the precision of a forecast: `40s`, `5m`, `2h 10m`.
fn coarse_duration(time: Millis) -> String {
    if time.0 < 60_000 || time.0 >= 3_600_000 { time.to_string() } else { format!("{}m", (time.0 + 30_000) / 60_000) }
}
