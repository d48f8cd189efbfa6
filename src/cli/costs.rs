//! `costs`: what runs cost, summed up by day, connection, model, unit or run.
//!
//! Two numbers of the same result lines are compared: the sum over `modelUsage` and `total_cost_usd`. A difference is
//! shown, because it means that the agent reports something that ingestdeck does not understand.

use serde_json::{Map, Value};

use super::{
    args::{CostGrouping, CostsArgs, GlobalArgs, TableFormat},
    audit,
    exit::{CliError, Exit},
    project, runs,
    table::TableWriter,
};
use ingestdeck_core::text::{count, dollars, dollars_of_sum, pluralize};
use ingestdeck_records::store::db::{IndexFilter, IndexView};
use ingestdeck_report::redact::Redactor;

/// Smallest difference in US dollars that is reported to people; smaller ones come from rounding.
const SMALLEST_DIFFERENCE: f64 = 0.000_05;

/// Prints the costs of the attempts that `args` selects.
///
/// # Errors
/// If a filter is invalid, no run matches, or the index cannot be used.
pub(super) fn costs(global: &GlobalArgs, args: &CostsArgs) -> Result<Exit, CliError> {
    let store = &runs::resolve_store(global)?;
    let by = audit::value_name(&args.by);
    let filter = IndexFilter {
        by: by.clone(),
        ..audit::period_filter(store, args.run.as_deref(), &args.period)?
    };
    let format = TableFormat::resolve(args.format, global);
    let mut rows = Vec::new();
    let db = audit::open_index(store)?;
    if let Some(db) = &db {
        db.rows(IndexView::Costs, &filter, &mut |row| {
            rows.push(CostSum(row));
            true
        })?;
    }
    let has_difference = rows.iter().any(|sum| {
        let difference = sum.usd("difference_usd");
        difference.is_some_and(|difference| difference.abs() >= SMALLEST_DIFFERENCE)
    });
    let columns = match format {
        TableFormat::Text => {
            let by = match args.by {
                CostGrouping::Day => "day (UTC)",
                _ => &by,
            };
            let columns = [
                by,
                "attempts",
                "input",
                "output",
                "cache read",
                "cache write",
                "cost",
            ];
            let more = ["by models", "difference"];
            columns
                .into_iter()
                .chain(more.into_iter().filter(|_| has_difference))
                .collect()
        }
        TableFormat::Json | TableFormat::Csv => IndexView::Costs.columns(),
    };
    let redactor = Redactor::for_process(project::resolve_directory(global).ok().as_deref());
    let names = columns.iter().copied().map(str::to_owned).collect();
    let mut table = TableWriter::new(format, names, Some(1), redactor);
    for sum in &rows {
        table.push(match format {
            TableFormat::Text => sum.to_text(has_difference),
            _ => columns.iter().map(|name| sum.get(name).clone()).collect(),
        });
    }
    let note = match rows.last() {
        _ if db.is_none() => "no runs yet; `ingestdeck run` records one\n".to_owned(),
        None => "no attempt matches\n".to_owned(),
        Some(total) => total.note(has_difference),
    };
    table.finish(&note)?;
    Ok(Exit::Ok)
}

/// One sum: a row of [`IndexView::Costs`].
struct CostSum(Map<String, Value>);

impl CostSum {
    fn get(&self, column: &str) -> &Value {
        self.0.get(column).unwrap_or(&Value::Null)
    }

    fn number(&self, column: &str) -> u64 {
        self.get(column).as_u64().unwrap_or_default()
    }

    fn usd(&self, column: &str) -> Option<f64> {
        self.get(column).as_f64()
    }

    /// The row for people.
    fn to_text(&self, has_difference: bool) -> Vec<Value> {
        let tokens = |column| count(self.number(column));
        let sum = |cost, unknown| dollars_of_sum(self.usd(cost), self.number(unknown) > 0);
        let mut row = vec![
            self.get("key").as_str().unwrap_or("total").to_owned(),
            self.number("attempts").to_string(),
            tokens("input_tokens"),
            tokens("output_tokens"),
            tokens("cache_read_tokens"),
            tokens("cache_write_tokens"),
            sum("cost_usd", "unknown_attempts"),
        ];
        if has_difference {
            row.push(sum("model_usage_usd", "unknown_usages"));
            let difference = self.usd("difference_usd");
            row.push(difference.map_or_else(|| "$?".to_owned(), signed_dollars));
        }
        row.into_iter().map(Value::from).collect()
    }

    /// The lines below the table, of which this is the total.
    fn note(&self, has_difference: bool) -> String {
        let mut note = match self.usd("difference_usd") {
            _ if has_difference => {
                "\nthe models do not add up to the cost of the results (`modelUsage`, `total_cost_usd`); cost is that of \
                 the results\n"
            }
            Some(_) => "\nthe costs of the models add up to those of the results\n",
            None if self.usd("cost_usd").is_some() => {
                "\nthe results have no costs of models (`modelUsage`) to compare with\n"
            }
            None => "",
        }
        .to_owned();
        let attempts = |column| match usize::try_from(self.number(column)).unwrap_or(usize::MAX) {
            0 => None,
            number => Some(pluralize(number, "attempt")),
        };
        if let Some(unknown) = attempts("unknown_attempts") {
            note.push_str(&format!("the cost of {unknown} is unknown\n"));
        }
        if let Some(scripted) = attempts("scripted_attempts") {
            let be = if scripted.starts_with("1 ") {
                "is"
            } else {
                "are"
            };
            note.push_str(&format!(
                "{scripted} {be} scripted; no tokens were bought for them\n"
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
