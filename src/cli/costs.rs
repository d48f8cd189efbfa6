//! `costs`: what runs cost, summed up by day, connection, model, unit or run.
//!
//! Two numbers of the same result lines are compared: the sum over `modelUsage` and `total_cost_usd`. A difference is
//! shown, because it means that the agent reports something that ingestdeck does not understand.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    args::{CostGrouping, CostsArgs, GlobalArgs, TableFormat},
    audit,
    exit::{CliError, Exit},
    project, runs,
    table::TableWriter,
};
use ingestdeck_core::{
    run::{spending::round_cost, state::TokenCounts},
    text::{count, dollars, dollars_of_sum, pluralize},
};
use ingestdeck_records::store::db::{AttemptCostRow, CostFilter};
use ingestdeck_report::redact::Redactor;

const COLUMNS: [&str; 11] = [
    "by",
    "key",
    "attempts",
    "unknown_attempts",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "model_usage_usd",
    "total_cost_usd",
    "difference_usd",
];

/// Smallest difference in US dollars that is reported to people; smaller ones come from rounding.
const SMALLEST_DIFFERENCE: f64 = 0.000_05;

/// Prints the costs of the attempts that `args` selects.
///
/// # Errors
/// If a filter is invalid, no run matches, or the index cannot be used.
pub(super) fn costs(global: &GlobalArgs, args: &CostsArgs) -> Result<Exit, CliError> {
    let (since_ms, until_ms) = args.period.resolve()?;
    let store = &runs::resolve_store(global)?;
    let run = args
        .run
        .as_deref()
        .map(|run| store.resolve(run))
        .transpose()?
        .map(|found| found.id);
    let format = TableFormat::resolve(args.format, global);
    let mut sums = CostSums {
        by: args.by,
        groups: BTreeMap::new(),
        total: CostSum::default(),
        scripted: 0,
    };
    let db = audit::open_index(store)?;
    if let Some(db) = &db {
        db.attempt_costs(
            CostFilter {
                run,
                since_ms,
                until_ms,
            },
            &mut |attempt| sums.add(&attempt),
        )?;
    }
    let redactor = Redactor::for_process(project::resolve_directory(global).ok().as_deref());
    let is_text = format == TableFormat::Text;
    let columns = if is_text {
        sums.text_columns()
    } else {
        COLUMNS.map(str::to_owned).to_vec()
    };
    let mut table = TableWriter::new(format, columns, Some(1), redactor);
    for (key, sum) in &sums.groups {
        table.push(if is_text {
            sums.text_row(key, sum)
        } else {
            sums.row(Some(key), sum)
        });
    }
    if sums.total.attempts > 0 {
        table.push(if is_text {
            sums.text_row("total", &sums.total)
        } else {
            sums.row(None, &sums.total)
        });
    }
    let note = if db.is_none() {
        "no runs yet; `ingestdeck run` records one\n".to_owned()
    } else {
        sums.note()
    };
    table.finish(&note)?;
    Ok(Exit::Ok)
}

/// Sum over attempts or parts of attempts.
#[derive(Clone, Copy, Debug, Default)]
struct CostSum {
    attempts: u64,
    /// Attempts without a known cost.
    unknown: u64,
    tokens: TokenCounts,
    /// Sum of the costs in `modelUsage`; `None` if none is known.
    model_usage: Option<f64>,
    /// True if the cost of a model is unknown.
    is_usage_partial: bool,
    /// Sum of the costs of the results; `None` if none is known.
    total: Option<f64>,
    /// The part of the costs of results that no model accounts for; `None` if no attempt has both costs.
    difference: Option<f64>,
    /// The cost to show: that of the results, or of the model in a group for a model.
    cost: Option<f64>,
    /// True if some attempt is divided among several groups.
    is_divided: bool,
}

struct CostSums {
    by: CostGrouping,
    groups: BTreeMap<String, CostSum>,
    total: CostSum,
    /// Number of attempts of scripted runs.
    scripted: usize,
}

fn add(sum: &mut Option<f64>, cost: Option<f64>) {
    if let Some(cost) = cost {
        *sum = Some(sum.unwrap_or_default() + cost);
    }
}

impl CostSum {
    fn add_attempt(&mut self, attempt: &AttemptCostRow) {
        let models = model_sum(attempt);
        self.attempts += 1;
        self.unknown += u64::from(attempt.cost_usd.is_none());
        self.tokens = self.tokens.plus(attempt.tokens);
        add(&mut self.model_usage, models);
        self.is_usage_partial |= models.is_none();
        add(&mut self.total, attempt.cost_usd);
        add(&mut self.difference, difference(attempt));
        add(&mut self.cost, attempt.cost_usd);
    }
}

/// Sum of the costs in `modelUsage`; `None` if one is unknown.
fn model_sum(attempt: &AttemptCostRow) -> Option<f64> {
    let costs: Option<Vec<f64>> = attempt.models.iter().map(|model| model.cost_usd).collect();
    costs
        .filter(|costs| !costs.is_empty())
        .map(|costs| costs.iter().sum())
}

fn difference(attempt: &AttemptCostRow) -> Option<f64> {
    Some(attempt.cost_usd? - model_sum(attempt)?)
}

impl CostSums {
    fn add(&mut self, attempt: &AttemptCostRow) {
        self.total.add_attempt(attempt);
        self.scripted += usize::from(attempt.is_scripted);
        let unknown = || "?".to_owned();
        let key = match self.by {
            CostGrouping::Model => return self.add_models(attempt),
            CostGrouping::Day => Timestamp::from_millisecond(attempt.started_ms)
                .map_or_else(|_| unknown(), |at| at.strftime("%Y-%m-%d").to_string()),
            CostGrouping::Connection => attempt.connection.clone().unwrap_or_else(unknown),
            CostGrouping::Unit => attempt.unit.clone(),
            CostGrouping::Run => attempt.run.clone(),
        };
        self.groups.entry(key).or_default().add_attempt(attempt);
    }

    /// An attempt whose agent reported no models belongs to the model of its session.
    fn add_models(&mut self, attempt: &AttemptCostRow) {
        for model in &attempt.models {
            let sum = self.groups.entry(model.model.to_string()).or_default();
            sum.attempts += 1;
            sum.unknown += u64::from(model.cost_usd.is_none());
            sum.tokens = sum.tokens.plus(model.tokens);
            add(&mut sum.model_usage, model.cost_usd);
            sum.is_usage_partial |= model.cost_usd.is_none();
            add(&mut sum.cost, model.cost_usd);
            if let [_] = attempt.models.as_slice() {
                add(&mut sum.total, attempt.cost_usd);
                add(&mut sum.difference, difference(attempt));
            } else {
                sum.is_divided = true;
            }
        }
        if attempt.models.is_empty() {
            let key = attempt.model.clone().unwrap_or_else(|| "?".to_owned());
            self.groups.entry(key).or_default().add_attempt(attempt);
        }
    }

    /// The row for programs; `key` is `None` for the sum over everything.
    fn row(&self, key: Option<&str>, sum: &CostSum) -> Vec<Value> {
        let by = match self.by {
            CostGrouping::Day => "day",
            CostGrouping::Connection => "connection",
            CostGrouping::Model => "model",
            CostGrouping::Unit => "unit",
            CostGrouping::Run => "run",
        };
        let usd = |cost: Option<f64>| cost.map(round_cost);
        // The cost of a result cannot be divided among models.
        let whole = |cost: Option<f64>| usd(cost.filter(|_| !sum.is_divided));
        let TokenCounts {
            input,
            output,
            cache_read,
            cache_write,
        } = sum.tokens;
        vec![
            json!(by),
            json!(key),
            json!(sum.attempts),
            json!(sum.unknown),
            json!(input),
            json!(output),
            json!(cache_read),
            json!(cache_write),
            json!(usd(sum.model_usage)),
            json!(whole(sum.total)),
            json!(whole(sum.difference)),
        ]
    }

    /// True if the results and their models disagree. Attempts without one of the costs are not compared.
    fn has_difference(&self) -> bool {
        let is_visible = |sum: &CostSum| {
            sum.difference.is_some_and(|difference| {
                !sum.is_divided && difference.abs() >= SMALLEST_DIFFERENCE
            })
        };
        is_visible(&self.total) || self.groups.values().any(is_visible)
    }

    fn text_columns(&self) -> Vec<String> {
        let key = match self.by {
            CostGrouping::Day => "day (UTC)",
            CostGrouping::Connection => "connection",
            CostGrouping::Model => "model",
            CostGrouping::Unit => "unit",
            CostGrouping::Run => "run",
        };
        let columns = [
            key,
            "attempts",
            "input",
            "output",
            "cache read",
            "cache write",
            "cost",
        ];
        let more = ["by models", "difference"]
            .into_iter()
            .filter(|_| self.has_difference());
        columns.into_iter().chain(more).map(str::to_owned).collect()
    }

    fn text_row(&self, key: &str, sum: &CostSum) -> Vec<Value> {
        let at_least = |cost: Option<f64>| dollars_of_sum(cost, sum.unknown > 0);
        let TokenCounts {
            input,
            output,
            cache_read,
            cache_write,
        } = sum.tokens;
        let mut row = vec![json!(key), json!(sum.attempts.to_string())];
        row.extend([input, output, cache_read, cache_write].map(|tokens| json!(count(tokens))));
        row.push(json!(at_least(sum.cost)));
        if self.has_difference() {
            let difference = sum.difference.filter(|_| !sum.is_divided);
            row.push(json!(dollars_of_sum(sum.model_usage, sum.is_usage_partial)));
            row.push(json!(
                difference.map_or_else(|| "$?".to_owned(), signed_dollars)
            ));
        }
        row
    }

    /// The lines below the table.
    fn note(&self) -> String {
        if self.total.attempts == 0 {
            return "no attempt matches\n".to_owned();
        }
        let mut note = match self.total.difference {
            None if self.total.total.is_some() => {
                "\nthe results have no costs of models (`modelUsage`) to compare with\n".to_owned()
            }
            _ if self.has_difference() => {
                "\nthe models do not add up to the cost of the results (`modelUsage`, `total_cost_usd`); cost is that of \
                 the results\n"
                    .to_owned()
            }
            Some(_) => "\nthe costs of the models add up to those of the results\n".to_owned(),
            None => String::new(),
        };
        if self.total.unknown > 0 {
            let unknown = usize::try_from(self.total.unknown).unwrap_or(usize::MAX);
            note.push_str(&format!(
                "the cost of {} is unknown\n",
                pluralize(unknown, "attempt")
            ));
        }
        if self.scripted > 0 {
            note.push_str(&format!(
                "{} scripted; no tokens were bought for them\n",
                match self.scripted {
                    1 => "1 attempt is".to_owned(),
                    more => format!("{more} attempts are"),
                }
            ));
        }
        note
    }
}

fn signed_dollars(cost: f64) -> String {
    match cost {
        cost if cost.abs() < SMALLEST_DIFFERENCE => "$0.00".to_owned(),
        cost if cost < 0.0 => format!("-{}", dollars(Some(-cost))),
        cost => dollars(Some(cost)),
    }
}
