//! The forecast of `plan`: cost and time from finished units of the same adapter, else tokens and cost from the sizes of the
//! units.

use std::collections::HashMap;

use serde_json::{Value, json};

use ingestdeck_core::{
    decode::Usage,
    tape::{Millis, UnitKey},
    text::{self, dollars},
    token_prices::{ModelPrices, PricedModel, find_prices, priced_models},
    units::{
        forecast::{FinishedUnit, Forecast, QuantileEstimate, RemainingUnit, forecast},
        token_estimate::{EstimateRange, MAX_RATIO, TokenEstimate, sum_estimates},
    },
};
use ingestdeck_ingest::{measure_units, project::Project, work_unit::WorkUnit};
use ingestdeck_records::store::db::{ModelPrice, PriorEfforts};

/// What a plan may cost.
pub(crate) struct PlanForecast {
    adapters: Vec<String>,
    /// Efforts of earlier units, by adapter.
    finished: Vec<Vec<FinishedUnit>>,
    concurrency: usize,
    /// Estimates from the sizes of the units.
    estimates: HashMap<UnitKey, TokenEstimate>,
    price: Option<ModelPriceRange>,
}

/// The prices of the model, or of the models that it may be.
#[derive(Clone, Debug, PartialEq)]
struct ModelPriceRange {
    prices: EstimateRange<ModelPrices>,
    /// Where they are from: the end of a sentence.
    origin: String,
}

impl ModelPriceRange {
    /// The price that earlier runs reported, else the list price; without a `model` those of the models that Claude Code may
    /// choose.
    fn find(model: Option<&str>, reported: &[ModelPrice]) -> Option<Self> {
        let one = |price: ModelPrices, origin: String| Self {
            prices: EstimateRange {
                low: price,
                high: price,
            },
            origin,
        };
        let model = model.map(|model| model.trim_end_matches("[1m]"));
        let alias = model.map(|model| format!("-{model}-"));
        let is_model = |name: &str| match (model, &alias) {
            // A reported name may end with a date.
            (Some(model), Some(alias)) => {
                format!("{name}-").contains(alias) || name.starts_with(model)
            }
            _ => true,
        };
        if let Some(known) = reported.iter().find(|price| is_model(&price.model)) {
            let origin = format!("at what {} cost in earlier runs", known.model);
            return Some(one(ModelPrices::usual(known.usd_per_million), origin));
        }
        let Some(model) = model else {
            let [low, high] = UNCHOSEN_MODELS;
            return Some(Self {
                prices: EstimateRange {
                    low: find_prices(low)?.prices,
                    high: find_prices(high)?.prices,
                },
                origin: format!("at list prices from {low} to {high}"),
            });
        };
        let is_alias = |priced: &&PricedModel| is_model(&priced.name);
        let priced = find_prices(model).or_else(|| priced_models().iter().find(is_alias))?;
        let origin = format!("at the list price of {}", priced.name);
        Some(one(priced.prices, origin))
    }

    fn cost(&self, estimate: &TokenEstimate) -> EstimateRange<f64> {
        let TokenEstimate {
            input, new, output, ..
        } = *estimate;
        let usage = |input: u64, new: u64, output| Usage {
            cache_read: input.saturating_sub(new),
            cache_write: new,
            output,
            ..Usage::default()
        };
        let least = usage(input.low, new.low, output.low);
        let EstimateRange { low, high } = self.prices;
        let most = high.cost(&usage(input.high, new.high, output.high));
        #[expect(clippy::cast_precision_loss, reason = "a small ratio")]
        let limit = high.cost(&least) * MAX_RATIO as f64;
        EstimateRange {
            low: low.cost(&least),
            high: most.min(limit),
        }
    }
}

/// The cheapest and the dearest of the models that Claude Code usually chooses.
const UNCHOSEN_MODELS: [&str; 2] = ["claude-sonnet-5-5", "claude-opus-5-5"];

impl PlanForecast {
    /// The forecast of `units` with `model`.
    pub(crate) fn new(
        project: &Project,
        units: &[WorkUnit],
        efforts: &PriorEfforts,
        model: Option<&str>,
        slots: u32,
    ) -> Self {
        let sizes = measure_units(project, units);
        let estimates = units.iter().zip(&sizes);
        let mut outlook = Self {
            adapters: Vec::new(),
            finished: Vec::new(),
            concurrency: usize::try_from(slots).unwrap_or(usize::MAX),
            estimates: estimates
                .map(|(unit, size)| (unit.planned.unit.clone(), size.estimate()))
                .collect(),
            price: ModelPriceRange::find(model, &efforts.prices),
        };
        for effort in &efforts.units {
            let kind = outlook.adapter_index(&effort.adapter).unwrap_or_else(|| {
                outlook.adapters.push(effort.adapter.clone());
                outlook.finished.push(Vec::new());
                outlook.adapters.len() - 1
            });
            if let Some(finished) = outlook.finished.get_mut(kind) {
                finished.push(FinishedUnit {
                    cost: effort.cost_usd,
                    active_time: effort.worked,
                });
            }
        }
        outlook
    }

    fn adapter_index(&self, adapter: &str) -> Option<usize> {
        self.adapters.iter().position(|known| known == adapter)
    }

    /// An adapter without finished units has no history to estimate from.
    fn remaining(&self, unit: &WorkUnit) -> RemainingUnit {
        RemainingUnit {
            kind: self
                .adapter_index(&unit.planned.adapter)
                .unwrap_or(usize::MAX),
            running: None,
        }
    }

    /// The forecast of reused units: zero.
    pub(super) fn for_reused() -> Forecast {
        let nothing = Millis(0);
        Forecast {
            cost: Some(QuantileEstimate { p50: 0.0, p90: 0.0 }),
            time: Some(QuantileEstimate {
                p50: nothing,
                p90: nothing,
            }),
            ..Forecast::default()
        }
    }

    fn for_unit(&self, unit: &WorkUnit) -> Forecast {
        forecast(&self.finished, &[self.remaining(unit)], 1)
    }

    /// One forecast per adapter: its units are considered equal.
    pub(super) fn by_adapter<'a>(&self, units: &'a [WorkUnit]) -> Vec<(&'a str, Forecast)> {
        let mut known: Vec<(&str, Forecast)> = Vec::new();
        for unit in units {
            let adapter = unit.planned.adapter.as_str();
            if !known.iter().any(|(name, _)| *name == adapter) {
                known.push((adapter, self.for_unit(unit)));
            }
        }
        known
    }

    pub(super) fn estimate(&self, unit: &UnitKey) -> TokenEstimate {
        self.estimates.get(unit).copied().unwrap_or_default()
    }

    /// The forecast of a unit for a row of the table.
    pub(super) fn row_text(&self, unit: &UnitKey, measured: Option<&Forecast>) -> String {
        match measured.filter(|forecast| forecast.cost.is_some() || forecast.time.is_some()) {
            Some(forecast) => forecast_text(forecast),
            None => self.cost_text(&self.estimate(unit)),
        }
    }

    fn cost_text(&self, estimate: &TokenEstimate) -> String {
        let cost = self.price.as_ref().map(|price| price.cost(estimate));
        cost.map_or_else(
            || "?".into(),
            |EstimateRange { low, high }| {
                format!("~{}", range_text(dollars(Some(low)), dollars(Some(high))))
            },
        )
    }

    /// The forecast of `units` together: of those with finished ones of their kind, and of the others.
    pub(crate) fn sum_text<'a>(&self, units: impl Iterator<Item = &'a WorkUnit>) -> String {
        let units: Vec<&WorkUnit> = units.collect();
        let left: Vec<RemainingUnit> = units.iter().map(|unit| self.remaining(unit)).collect();
        let measured = forecast(&self.finished, &left, self.concurrency);
        let measured_text =
            (measured.cost.is_some() || measured.time.is_some()).then(|| forecast_text(&measured));
        let has_cost = |unit: &&&WorkUnit| self.for_unit(unit).cost.is_some();
        let others: Vec<TokenEstimate> = match measured.cost {
            Some(_) if measured.covers_all_costs() => Vec::new(),
            Some(_) => units
                .iter()
                .filter(|unit| !has_cost(unit))
                .map(|unit| self.estimate(&unit.planned.unit))
                .collect(),
            None => units
                .iter()
                .map(|unit| self.estimate(&unit.planned.unit))
                .collect(),
        };
        let sized = (!others.is_empty()).then(|| {
            let sum = sum_estimates(others.iter().copied());
            let tokens = range_text(text::count(sum.input.low), text::count(sum.input.high));
            let origin = self
                .price
                .as_ref()
                .map_or("the price of the model is not known", |price| &price.origin);
            format!(
                "{tokens} input tokens, {}, {origin}; from sizes, with a guess of the output",
                self.cost_text(&sum)
            )
        });
        match (measured_text, sized) {
            (None, None) => "?".into(),
            (Some(measured), Some(sized)) => format!("{measured}; the others {sized}"),
            (one, other) => one.or(other).unwrap_or_default(),
        }
    }
}

impl PlanForecast {
    /// The estimate from the size of a unit, for programs.
    pub(super) fn estimate_json(&self, unit: &UnitKey) -> Value {
        let estimate = self.estimate(unit);
        let range =
            |EstimateRange { low, high }: EstimateRange<u64>| json!({"low": low, "high": high});
        let cost = self.price.as_ref().map(|price| price.cost(&estimate));
        let rounded = |cost: f64| (cost * 1e4).round() / 1e4;
        json!({
            "contextTokens": estimate.context, "inputTokens": range(estimate.input), "outputTokens": range(estimate.output),
            "costUsd": cost.map(|cost| json!({"low": rounded(cost.low), "high": rounded(cost.high)})),
        })
    }
}

/// P50 and P90; null without an estimate.
pub(super) fn forecast_json(forecast: &Forecast) -> Value {
    json!({
        "costUsd": forecast.cost.map(|cost| json!({"p50": cost.p50, "p90": cost.p90})),
        "seconds": forecast.time.map(|time| json!({"p50": time.p50.0 / 1000, "p90": time.p90.0 / 1000})),
    })
}

/// Both ends, or one of them if both look alike.
fn range_text(low: String, high: String) -> String {
    if low == high {
        low
    } else {
        format!("{low}–{high}")
    }
}

/// For example `$0.10–$0.30, 40s–2m 05s`: the median and the 90th percentile, or one of them if both look alike. A trailing `+?` means that some units
/// have no estimate.
fn forecast_text(forecast: &Forecast) -> String {
    let more = |whole| if whole { "" } else { " +?" };
    let cost = forecast.cost.map(
        |QuantileEstimate {
             p50: likely,
             p90: high,
         }| {
            let more = more(forecast.covers_all_costs());
            format!(
                "{}{more}",
                range_text(dollars(Some(likely)), dollars(Some(high)))
            )
        },
    );
    let time = forecast.time.map(
        |QuantileEstimate {
             p50: likely,
             p90: high,
         }: QuantileEstimate<Millis>| {
            format!(
                "{}{}",
                range_text(likely.to_string(), high.to_string()),
                more(forecast.covers_all_times())
            )
        },
    );
    match (cost, time) {
        (None, None) => "?".into(),
        (cost, time) => format!(
            "{}, {}",
            cost.unwrap_or_else(|| "$?".into()),
            time.unwrap_or_else(|| "?".into())
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_with_equal_ends_is_one_value() {
        let forecast = |p50, p90, times: [u64; 2]| Forecast {
            cost: Some(QuantileEstimate { p50, p90 }),
            time: Some(QuantileEstimate {
                p50: Millis(times[0]),
                p90: Millis(times[1]),
            }),
            ..Forecast::default()
        };
        assert_eq!(
            forecast_text(&forecast(0.06, 0.06, [200, 400])),
            "$0.06, 0s"
        );
        assert_eq!(
            forecast_text(&forecast(0.06, 0.16, [4_000, 9_000])),
            "$0.06–$0.16, 4s–9s"
        );
        assert_eq!(forecast_text(&Forecast::default()), "?");
    }

    #[test]
    fn price_is_the_reported_one_else_the_list_price() {
        let reported = [ModelPrice {
            model: "claude-haiku-4-5-20251001".into(),
            usd_per_million: 1.5,
        }];
        let find = |model, reported: &[ModelPrice]| {
            let found = ModelPriceRange::find(model, reported)?;
            Some((found.prices.low.input, found.prices.high.input))
        };
        assert_eq!(find(Some("haiku"), &reported), Some((1.5, 1.5)));
        assert_eq!(find(Some("claude-haiku-4-5"), &reported), Some((1.5, 1.5)));
        assert_eq!(find(Some("haiku"), &[]), Some((0.1, 0.1)));
        assert_eq!(find(Some("sonnet[1m]"), &reported), Some((2.0, 2.0)));
        assert_eq!(
            find(Some("claude-sonnet-4-5-20250929"), &[]),
            Some((3.0, 3.0))
        );
        assert_eq!(find(Some("claude-opus-6"), &[]), None);
        assert_eq!(find(None, &[]), Some((2.0, 4.0)));
        assert_eq!(find(None, &reported), Some((1.5, 1.5)));
    }
}
