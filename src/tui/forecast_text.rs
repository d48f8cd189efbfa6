//! The texts of a forecast: cost and time of the remaining work, of a retry, and in the header.
//!
//! Pure. It must not know where a text is painted.

use ingestdeck_core::{
    run::run_forecast::{AdapterForecast, RunForecast},
    tape::Millis,
    text::{self, dollars},
    units::forecast::{Forecast, QuantileEstimate},
};

/// Formats a forecast cost: `$0.40, P90 $0.90`, with `+?` if a part is unknown.
pub(crate) fn cost_words(forecast: &Forecast) -> String {
    let more = if forecast.covers_all_costs() {
        ""
    } else {
        " +?"
    };
    match forecast.cost {
        None => "$?".to_owned(),
        Some(cost) => format!(
            "{}, P90 {}{more}",
            dollars(Some(cost.p50)),
            dollars(Some(cost.p90))
        ),
    }
}

/// Formats a forecast time: `5m 10s, P90 9m 02s`, with `+?` if a part is unknown, or `overdue` if the time has passed.
pub(crate) fn time_words(run_forecast: &RunForecast, now: Millis) -> String {
    let more = if run_forecast.forecast.covers_all_times() {
        ""
    } else {
        " +?"
    };
    match time_left(run_forecast, now) {
        None if run_forecast.forecast.overdue_units > 0 => "?, overdue".to_owned(),
        None => "?".to_owned(),
        Some(time) => format!(
            "{}, P90 {}{more}{}",
            time.p50,
            time.p90,
            after_pause(run_forecast)
        ),
    }
}

/// What a remaining time begins with.
fn after_pause(run_forecast: &RunForecast) -> &'static str {
    if run_forecast.is_paused {
        " after the pause"
    } else {
        ""
    }
}

/// The forecast remaining time; at least one second while work remains.
fn time_left(run_forecast: &RunForecast, now: Millis) -> Option<QuantileEstimate<Millis>> {
    const SECOND: Millis = Millis(1000);
    let time = run_forecast.remaining_time(now)?;
    Some(QuantileEstimate {
        p50: time.p50.max(SECOND),
        p90: time.p90.max(SECOND),
    })
}

/// The forecast in the question before a retry: `Forecast: $0.14–$0.17 for 7; reconcile unknown.`
pub(crate) fn forecast_words(run_forecast: &RunForecast) -> String {
    let forecast = &run_forecast.forecast;
    if forecast.cost.is_none() && forecast.time.is_none() {
        return "Forecast: $?, since fewer than three units like them have finished.".to_owned();
    }
    let unknown: Vec<String> = run_forecast
        .adapters
        .iter()
        .filter(|kind| kind.is_unknown())
        .map(kind_words)
        .collect();
    if unknown.is_empty() && forecast.covers_all_costs() {
        return format!(
            "Forecast: {}; {}.",
            cost_words(forecast),
            time_words(run_forecast, run_forecast.at)
        );
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
    let unknown = if unknown.is_empty() {
        "some costs".to_owned()
    } else {
        unknown.join(", ")
    };
    format!("Forecast: {cost}; {time}; {unknown} unknown.")
}

/// Label of an adapter's units: the unit if there is one, otherwise the count.
fn kind_words(kind: &AdapterForecast) -> String {
    match (&kind.first, kind.remaining) {
        (Some(unit), 1) => text::printable(unit, 40).into_owned(),
        _ => format!(
            "{} of {}",
            kind.remaining,
            if kind.name.is_empty() {
                "an unknown kind"
            } else {
                &kind.name
            }
        ),
    }
}

/// The forecast of the remaining time in the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemainingTime {
    /// `5m–9m`, with `+?` for unknown parts, and `overdue` for units beyond their forecast.
    pub text: String,
    /// Run time at which the run probably ends (P90), if no part is unknown.
    pub end: Option<Millis>,
}

/// Returns the remaining time; `None` if no work remains.
pub(crate) fn remaining_time(run_forecast: &RunForecast, now: Millis) -> Option<RemainingTime> {
    let forecast = &run_forecast.forecast;
    if forecast.units == 0 {
        return None;
    }
    let left = time_left(run_forecast, now);
    let is_whole =
        forecast.covers_all_times() && forecast.overdue_units == 0 && !run_forecast.is_paused;
    let end = left
        .filter(|_| is_whole)
        .map(|left| Millis(now.0.saturating_add(left.p90.0)));
    let time = left.map_or_else(
        || "?".to_owned(),
        |time| {
            let more = if forecast.covers_all_times() {
                ""
            } else {
                "+?"
            };
            format!(
                "{}{more}",
                range_text(&coarse_duration(time.p50), &coarse_duration(time.p90), "–")
            )
        },
    );
    let text = match forecast.overdue_units {
        0 => time,
        late if late == forecast.units && left.is_none() => "?, overdue".to_owned(),
        late => format!("{time}, {late} overdue"),
    };
    let text = format!("{text}{}", after_pause(run_forecast));
    Some(RemainingTime { text, end })
}

fn range_text(low: &str, high: &str, dash: &str) -> String {
    if low == high {
        low.to_owned()
    } else {
        format!("{low}{dash}{high}")
    }
}

/// Formats a duration with the precision of a forecast: `40s`, `5m`, `2h 10m`.
fn coarse_duration(time: Millis) -> String {
    if time.0 < 60_000 || time.0 >= 3_600_000 {
        time.to_string()
    } else {
        format!("{}m", (time.0 + 30_000) / 60_000)
    }
}
