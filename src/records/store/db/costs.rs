//! What attempts cost: their models as the agent reports them, and the cost of their results.

use rusqlite::{Row, named_params};

use super::{Db, DbError, DbFault, to_u64};
use ingestdeck_core::{
    run::state::{ModelSpending, TokenCounts},
    tape::RunId,
};

/// The cost of one attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptCostRow {
    pub run: String,
    /// Start of the attempt, in milliseconds since 1970.
    pub started_ms: i64,
    /// True if a script played the model.
    pub is_scripted: bool,
    pub unit: String,
    pub connection: Option<String>,
    /// The model that the session announced.
    pub model: Option<String>,
    /// Cost of its results in US dollars; `None` if it is unknown.
    pub cost_usd: Option<f64>,
    pub tokens: TokenCounts,
    /// Cost and tokens for each model; empty if the agent reported none.
    pub models: Vec<ModelSpending>,
}

/// Which attempts are selected by their start.
#[derive(Clone, Copy, Debug, Default)]
pub struct CostFilter {
    pub run: Option<RunId>,
    /// First moment, in milliseconds since 1970.
    pub since_ms: Option<i64>,
    /// First moment that is not included.
    pub until_ms: Option<i64>,
}

impl Db {
    /// Passes the cost of each selected attempt, oldest run first.
    pub fn attempt_costs(
        &self,
        filter: CostFilter,
        take: &mut dyn FnMut(AttemptCostRow),
    ) -> Result<(), DbError> {
        let at = super::moment("a.started_ms");
        // One row for each model, and one for an attempt without models. Rows of an attempt follow each other.
        let sql = format!(
            "SELECT a.run, {at}, r.scripted, a.unit, u.connection, a.model, a.cost_usd, a.input_tokens,
                a.output_tokens, a.cache_read, a.cache_write, m.model, m.cost_usd, m.input_tokens, m.output_tokens,
                m.cache_read, m.cache_write, a.attempt
             FROM attempts a JOIN runs r USING (run) LEFT JOIN units u USING (run, unit)
                LEFT JOIN model_usage m ON m.run = a.run AND m.unit = a.unit AND m.attempt = a.attempt
             WHERE (:run IS NULL OR a.run = :run) AND (:since IS NULL OR {at} >= :since)
                AND (:until IS NULL OR {at} < :until)
             ORDER BY a.run, a.unit, a.attempt, m.model"
        );
        let mut read = || -> Result<(), rusqlite::Error> {
            let mut statement = self.connection.prepare_cached(&sql)?;
            let run = filter.run.map(|run| run.to_string());
            let parameters =
                named_params! { ":run": run, ":since": filter.since_ms, ":until": filter.until_ms };
            let mut rows = statement.query(parameters)?;
            let mut current: Option<(i64, AttemptCostRow)> = None;
            while let Some(row) = rows.next()? {
                let (number, next) = (row.get(17)?, read_attempt(row)?);
                match &mut current {
                    Some((last, known))
                        if *last == number
                            && (&known.run, &known.unit) == (&next.run, &next.unit) =>
                    {
                        known.models.extend(next.models);
                    }
                    _ => {
                        if let Some((_, done)) = current.replace((number, next)) {
                            take(done);
                        }
                    }
                }
            }
            current.into_iter().for_each(|(_, done)| take(done));
            Ok(())
        };
        read().map_err(|error| DbFault::from(error).into_db_error(&self.path))
    }
}

fn read_attempt(row: &Row<'_>) -> Result<AttemptCostRow, rusqlite::Error> {
    let tokens = |first: usize| -> Result<TokenCounts, rusqlite::Error> {
        let count = |index: usize| {
            Ok::<_, rusqlite::Error>(to_u64(row.get::<_, Option<i64>>(index)?.unwrap_or(0)))
        };
        Ok(TokenCounts {
            input: count(first)?,
            output: count(first + 1)?,
            cache_read: count(first + 2)?,
            cache_write: count(first + 3)?,
        })
    };
    let model: Option<String> = row.get(11)?;
    let models = match model {
        Some(model) => vec![ModelSpending {
            model: model.into(),
            cost_usd: row.get(12)?,
            tokens: tokens(13)?,
        }],
        None => Vec::new(),
    };
    Ok(AttemptCostRow {
        run: row.get(0)?,
        started_ms: row.get(1)?,
        is_scripted: row.get(2)?,
        unit: row.get(3)?,
        connection: row.get(4)?,
        model: row.get(5)?,
        cost_usd: row.get(6)?,
        tokens: tokens(7)?,
        models,
    })
}
