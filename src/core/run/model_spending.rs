//! The cost and tokens of an attempt for each model, from `modelUsage` of its results. Pure.
//!
//! It follows the rules of [`AttemptCost`](super::spending::AttemptCost), so that the sum over the models is the cost of
//! the attempt wherever the agent reports consistent numbers. It must not correct a difference: the reports show it.

use super::state::{ModelSpending, TokenCounts};
use crate::decode::{RawJson, ResultLine};

/// Maximum number of models of one attempt; more are ignored, and their costs appear as a difference.
const MAX_MODELS: usize = 64;

/// Maximum length of a model name in characters.
const MAX_NAME_CHARS: usize = 200;

/// The models of one attempt over its results.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ModelLedger {
    /// Sum over the turns that reported their usage.
    turns: Option<Vec<ModelSpending>>,
    /// Sum of the totals of earlier processes.
    finished: Vec<ModelSpending>,
    /// The last total of the current process.
    total: Vec<ModelSpending>,
    /// True if an earlier process had totals that contain a prior cost.
    is_unknown: bool,
}

impl ModelLedger {
    /// Adds a result. `is_new_process` is true if its totals start at zero again, `were_totals_own` if those before
    /// contain nothing that was spent before the attempt.
    pub(crate) fn add_result(
        &mut self,
        result: &ResultLine<'_>,
        is_new_process: bool,
        were_totals_own: bool,
    ) {
        if let Some(usage) = result.model_usage_since_last_result {
            add_all(self.turns.get_or_insert_default(), parse_usage(usage));
        }
        if is_new_process {
            self.is_unknown |= !were_totals_own;
            add_all(&mut self.finished, std::mem::take(&mut self.total));
        }
        if let Some(usage) = result.model_usage {
            self.total = parse_usage(usage);
        }
    }

    /// The models in order of appearance. Without reports for each turn, the totals count if `are_totals_own`: they
    /// contain nothing that was spent before the attempt.
    pub(crate) fn models(&self, are_totals_own: bool) -> Vec<ModelSpending> {
        if let Some(turns) = &self.turns {
            return turns.clone();
        }
        let mut sum = Vec::new();
        if are_totals_own && !self.is_unknown {
            add_all(&mut sum, self.finished.clone());
            add_all(&mut sum, self.total.clone());
        }
        sum
    }
}

fn add_all(sum: &mut Vec<ModelSpending>, added: Vec<ModelSpending>) {
    for model in added {
        if let Some(known) = sum.iter_mut().find(|known| known.model == model.model) {
            *known = known.clone().plus(&model);
        } else if sum.len() < MAX_MODELS {
            sum.push(model);
        }
    }
}

/// Reads an object with one entry per model. Entries that are not objects are ignored.
fn parse_usage(usage: RawJson<'_>) -> Vec<ModelSpending> {
    let serde_json::Value::Object(models) = usage.value() else {
        return Vec::new();
    };
    let mut parsed = Vec::new();
    for (name, values) in models.iter().filter(|(_, values)| values.is_object()) {
        let tokens = |key: &str| values[key].as_u64().unwrap_or_default();
        let model = ModelSpending {
            model: name.chars().take(MAX_NAME_CHARS).collect::<String>().into(),
            cost_usd: values["costUSD"]
                .as_f64()
                .filter(|cost| cost.is_finite() && *cost >= 0.0),
            tokens: TokenCounts {
                input: tokens("inputTokens"),
                output: tokens("outputTokens"),
                cache_read: tokens("cacheReadInputTokens"),
                cache_write: tokens("cacheCreationInputTokens"),
            },
        };
        add_all(&mut parsed, vec![model]);
    }
    parsed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result<'a>(usage: &'a str, since: Option<&'a str>) -> ResultLine<'a> {
        ResultLine {
            model_usage: Some(RawJson(usage)),
            model_usage_since_last_result: since.map(RawJson),
            ..ResultLine::default()
        }
    }

    fn costs(ledger: &ModelLedger) -> Vec<(String, Option<f64>)> {
        ledger
            .models(true)
            .iter()
            .map(|model| (model.model.to_string(), model.cost_usd))
            .collect()
    }

    #[test]
    fn turns_are_summed_and_totals_replaced() {
        let (one, two) = (
            r#"{"a":{"costUSD":1.0},"b":{"costUSD":0.5}}"#,
            r#"{"a":{"costUSD":3.0}}"#,
        );
        let mut ledger = ModelLedger::default();
        ledger.add_result(&result(one, None), false, true);
        ledger.add_result(&result(two, None), false, true);
        assert_eq!(costs(&ledger), [("a".to_owned(), Some(3.0))]);
        ledger.add_result(&result(one, None), true, true);
        assert_eq!(
            costs(&ledger),
            [("a".to_owned(), Some(4.0)), ("b".to_owned(), Some(0.5))],
            "another process"
        );
        let mut resumed = ledger.clone();
        resumed.add_result(&result(two, None), true, false);
        assert_eq!(
            costs(&resumed),
            [],
            "totals of the last process contain a prior cost"
        );
        assert_eq!(
            ledger.models(false),
            [],
            "totals of a resumed session contain earlier costs"
        );
        ledger.add_result(&result(two, Some(one)), false, true);
        ledger.add_result(&result(two, Some(one)), false, true);
        assert_eq!(
            costs(&ledger),
            [("a".to_owned(), Some(2.0)), ("b".to_owned(), Some(1.0))]
        );
    }

    #[test]
    fn unusable_usage_is_unknown_not_zero() {
        for (usage, expected) in [
            (r#"{"a":{"costUSD":-1}}"#, Some(None)),
            (r#"{"a":{"costUSD":"1"}}"#, Some(None)),
            (r#"{"a":{"costUSD":1e999}}"#, None),
            (r#"{"a":{}}"#, Some(None)),
            (r#"{"a":7}"#, None),
            ("[1]", None),
            ("null", None),
        ] {
            let mut ledger = ModelLedger::default();
            ledger.add_result(&result(usage, None), false, true);
            assert_eq!(
                ledger.models(true).first().map(|model| model.cost_usd),
                expected,
                "{usage}"
            );
        }
        let many: Vec<String> = (0..1000)
            .map(|index| format!(r#""m{index}":{{"costUSD":1.0}}"#))
            .collect();
        let mut ledger = ModelLedger::default();
        ledger.add_result(
            &result(&format!("{{{}}}", many.join(",")), None),
            false,
            true,
        );
        assert_eq!(ledger.models(true).len(), MAX_MODELS);
    }
}
