//! Rules that every cell of a bench must meet. Pure.

use super::{BenchFigure, Estimate, rounded};

/// Comparison of a rule, longest first.
const COMPARISONS: [(&str, GateComparison); 4] = [
    (">=", GateComparison::AtLeast),
    ("<=", GateComparison::AtMost),
    (">", GateComparison::Above),
    ("<", GateComparison::Below),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GateComparison {
    AtLeast,
    AtMost,
    Above,
    Below,
}

/// A rule such as `coverage>=0.8`, about the mean of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct GateRule {
    figure: BenchFigure,
    comparison: GateComparison,
    limit: f64,
    /// The rule as the user wrote it.
    pub text: String,
}

/// Whether a cell meets a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct GateResult {
    pub is_met: bool,
    /// The figure of the cell, as the end of a sentence about the cell.
    pub found: String,
}

impl GateRule {
    /// Parses `FIGURE OP VALUE`.
    ///
    /// # Errors
    /// Returns what is expected instead of the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let split = |(sign, comparison)| {
            text.split_once(sign)
                .map(|(key, limit)| (key, comparison, limit))
        };
        let Some((key, comparison, limit)) = COMPARISONS.into_iter().find_map(split) else {
            return Err(
                "expected a figure, one of >= <= > <, and a number, such as `coverage>=0.8`"
                    .to_owned(),
            );
        };
        let figure = BenchFigure::parse(key.trim()).ok_or_else(|| {
            let keys: Vec<&str> = BenchFigure::all().map(BenchFigure::key).collect();
            format!("expected one of the figures {}", keys.join(", "))
        })?;
        let limit = limit
            .trim()
            .parse()
            .ok()
            .filter(|limit: &f64| limit.is_finite());
        let limit = limit
            .ok_or_else(|| "expected a number after the comparison, such as 0.8".to_owned())?;
        Ok(Self {
            figure,
            comparison,
            limit,
            text: text.to_owned(),
        })
    }

    /// The rule that a figure is not worse than `before`: not beyond the end of its interval, or else its mean. `None` if
    /// it was unknown, or if no value is better than another.
    pub(crate) fn not_worse_than(before: &Estimate) -> Option<Self> {
        let (mean, figure) = (before.mean?, before.figure);
        let (low, high) = before.interval.unwrap_or((mean, mean));
        let (comparison, sign, limit) = match figure.prefers_more()? {
            true => (GateComparison::AtLeast, ">=", rounded(low)),
            false => (GateComparison::AtMost, "<=", rounded(high)),
        };
        Some(Self {
            figure,
            comparison,
            limit,
            text: format!("{}{sign}{limit}", figure.key()),
        })
    }

    /// Checks the score of a cell. An unknown figure does not meet the rule.
    pub fn check(&self, score: &[Estimate]) -> GateResult {
        let mean = score
            .iter()
            .find(|estimate| estimate.figure == self.figure)
            .and_then(|estimate| estimate.mean);
        // The number that is shown is the number that is compared, without the rounding errors of a mean.
        let mean = mean.map(rounded);
        let is_met = mean.is_some_and(|mean| match self.comparison {
            GateComparison::AtLeast => mean >= self.limit,
            GateComparison::AtMost => mean <= self.limit,
            GateComparison::Above => mean > self.limit,
            GateComparison::Below => mean < self.limit,
        });
        let found = match mean {
            Some(mean) => format!("{} is {mean}", self.figure.key()),
            None => format!("{} is unknown", self.figure.key()),
        };
        GateResult { is_met, found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: &str, mean: Option<f64>) -> GateResult {
        let rule = GateRule::parse(rule).unwrap();
        rule.check(&[Estimate {
            figure: rule.figure,
            mean,
            interval: None,
        }])
    }

    #[test]
    fn rules_compare_the_mean() {
        for (rule, mean, is_met) in [
            ("coverage>=0.8", 0.8, true),
            ("coverage > 0.8", 0.8, false),
            ("unsourced<=0", 0.0, true),
            ("unsourced < 1", 1.0, false),
            ("cost<=2.5", 2.6, false),
            ("agreement>0.5", 0.51, true),
            // The mean of three times 0.7, and ten times 0.1.
            ("coverage>=0.7", (0.7 + 0.7 + 0.7) / 3.0, true),
            ("cost<=1", [0.1; 10].iter().sum(), true),
            ("cost<1", [0.1; 10].iter().sum(), false),
        ] {
            assert_eq!(check(rule, Some(mean)).is_met, is_met, "{rule} {mean}");
        }
        assert_eq!(check("cost<=2.5", Some(2.6)).found, "cost_usd is 2.6");
    }

    #[test]
    fn earlier_score_becomes_a_rule() {
        let rule = |key: &str, mean, interval| {
            let figure = BenchFigure::parse(key).unwrap();
            GateRule::not_worse_than(&Estimate {
                figure,
                mean,
                interval,
            })
            .map(|rule| rule.text)
        };
        assert_eq!(
            rule("coverage", Some(0.9), Some((0.85, 0.95))).as_deref(),
            Some("coverage>=0.85")
        );
        assert_eq!(
            rule("cost", Some(1.0), Some((0.5, 1.5))).as_deref(),
            Some("cost_usd<=1.5")
        );
        assert_eq!(
            rule("agreement", Some(2.0 / 3.0), None).as_deref(),
            Some("agreement>=0.666667")
        );
        assert_eq!(rule("unsourced", None, None), None);
        assert_eq!(
            (
                rule("seconds", Some(1.0), None),
                rule("churn", Some(1.0), None)
            ),
            (None, None)
        );
    }

    #[test]
    fn unknown_figure_does_not_meet_a_rule() {
        for rule in ["cost<=9", "cost>=0"] {
            let result = check(rule, None);
            assert_eq!(
                (result.is_met, result.found.as_str()),
                (false, "cost_usd is unknown")
            );
        }
    }

    #[test]
    fn invalid_rules_name_what_is_expected() {
        for (rule, expected) in [
            ("", "such as `coverage>=0.8`"),
            ("coverage=1", "such as `coverage>=0.8`"),
            ("beauty>=1", "figures success, reconciled,"),
            ("coverage>=", "a number after the comparison"),
            ("coverage>=NaN", "a number after the comparison"),
            ("coverage>=80%", "a number after the comparison"),
            ("coverage>==1", "a number after the comparison"),
        ] {
            let error = GateRule::parse(rule).unwrap_err();
            assert!(error.contains(expected), "{rule}: {error}");
        }
    }
}
