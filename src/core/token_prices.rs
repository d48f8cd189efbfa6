//! The one table of token prices: built in, and preceded by those of the user's settings. It prices messages whose cost
//! the agent has not reported. Budgets and rules must not use it: they count reported costs only.
//!
//! The built-in prices are Anthropic's list prices as Claude Code 2.1.332 (November 2026) has them. Its totals for
//! scripted usage on 2026-11-30 confirmed 20 of the 24 models. Not confirmed: `claude-opus-4` and `claude-opus-4-1`, which
//! that release only lists, `claude-mythos-5-1` and `claude-mythos-5-2`, and the prices of fast mode of
//! `claude-opus-4-7` and `claude-opus-4-8`.

use std::{borrow::Cow, sync::OnceLock};

use crate::decode::Usage;

/// Share that tokens cost more if they must be processed in the United States.
const US_ONLY_FACTOR: f64 = 1.1;

/// Usual prices relative to that of an input token: read from the cache, written to the cache, output.
pub const USUAL_RATIOS: [f64; 3] = [0.1, 1.25, 5.0];

/// The syntax of an entry in the settings.
pub(crate) const ENTRY_SYNTAX: &str =
    "MODEL input:USD output:USD [cache_read:USD] [write_5m:USD] [write_1h:USD] [web_search:USD]";

/// Prices of a million tokens in US dollars.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelPrices {
    pub input: f64,
    pub output: f64,
    pub cache_read: f64,
    /// Written to the cache for five minutes.
    pub cache_write: f64,
    /// Written to the cache for one hour.
    pub cache_write_1h: f64,
}

/// A model and its prices.
#[derive(Clone, Debug, PartialEq)]
pub struct PricedModel {
    /// Name without provider and date.
    pub name: Cow<'static, str>,
    pub prices: ModelPrices,
    /// Prices in fast mode, for models that have one.
    fast: Option<ModelPrices>,
    /// Prices of a request with more input tokens than this, cached ones included.
    long_prompt: Option<(u64, ModelPrices)>,
    /// US dollars for a thousand web searches.
    web_search: f64,
}

/// The newest model of each family is first.
const BUILT_IN: [PricedModel; 24] = [
    PricedModel::listed("claude-fable-5-2", 8.0, 0.2).with_fast(16.0, 0.4),
    PricedModel::listed("claude-fable-5-1", 10.0, 0.25),
    PricedModel::listed("claude-fable-5", 10.0, 1.0),
    PricedModel::listed("claude-mythos-5-2", 8.0, 0.2).with_fast(16.0, 0.4),
    PricedModel::listed("claude-mythos-5-1", 10.0, 0.25),
    PricedModel::listed("claude-mythos-5", 10.0, 1.0),
    PricedModel::listed("claude-opus-5-5", 4.0, 0.2).with_fast(8.0, 0.4),
    PricedModel::listed("claude-opus-5", 5.0, 0.5).with_fast(10.0, 1.0),
    PricedModel::listed("claude-opus-4-8", 5.0, 0.5).with_fast(10.0, 1.0),
    PricedModel::listed("claude-opus-4-7", 5.0, 0.5).with_fast(30.0, 3.0),
    PricedModel::listed("claude-opus-4-6", 5.0, 0.5).with_fast(30.0, 3.0),
    PricedModel::listed("claude-opus-4-5", 5.0, 0.5),
    PricedModel::listed("claude-opus-4-1", 15.0, 1.5),
    PricedModel::listed("claude-opus-4", 15.0, 1.5),
    PricedModel::listed("claude-sonnet-5-5", 2.0, 0.1),
    PricedModel::listed("claude-sonnet-5", 2.0, 0.2),
    PricedModel::listed("claude-sonnet-4-6", 3.0, 0.3),
    PricedModel::listed("claude-sonnet-4-5", 3.0, 0.3),
    PricedModel::listed("claude-sonnet-4", 3.0, 0.3),
    PricedModel::listed("claude-3-7-sonnet", 3.0, 0.3),
    PricedModel::listed("claude-3-5-sonnet", 3.0, 0.3),
    PricedModel::listed("claude-haiku-5-5", 0.1, 0.01).with_long_prompt(100_000, 0.5, 0.05),
    PricedModel::listed("claude-haiku-4-5", 1.0, 0.1),
    PricedModel::listed("claude-3-5-haiku", 0.8, 0.08),
];

/// The table, from its first use on.
static TABLE: OnceLock<Vec<PricedModel>> = OnceLock::new();

/// Puts the entries of the user's settings before the built-in prices. Has no effect once the table is in use, so that a
/// message has the same cost in every view; the program calls it first.
pub fn set_user_prices(entries: &[String]) {
    let user = entries.iter().filter_map(|entry| PricedModel::parse(entry));
    TABLE.get_or_init(|| user.chain(BUILT_IN).collect());
}

/// All models with prices, those of the settings first.
pub fn priced_models() -> &'static [PricedModel] {
    TABLE.get_or_init(|| BUILT_IN.to_vec())
}

/// The prices of the model that a message names; `None` if they are unknown.
pub fn find_prices(model: &str) -> Option<&'static PricedModel> {
    let base = base_name(model);
    priced_models()
        .iter()
        .find(|priced| priced.name == model || priced.name == base)
}

/// The name of a model without provider, context size, version of the provider, and date: `claude-sonnet-4` for
/// `us.anthropic.claude-sonnet-4-20250514-v1:0` and `claude-sonnet-4@20250514`.
fn base_name(model: &str) -> &str {
    let name = model.find("claude-").map_or(model, |at| &model[at..]);
    let name = name.split(['[', '@', ':']).next().unwrap_or(name);
    let name = without_version(name);
    let name = match name.rsplit_once('-') {
        Some((base, date)) if date.len() == 8 && date.bytes().all(|it| it.is_ascii_digit()) => base,
        Some((base, "latest" | "0")) => base,
        _ => name,
    };
    without_version(name.strip_suffix("-0").unwrap_or(name))
}

/// The name without the version that a provider adds, such as `-v2`.
fn without_version(name: &str) -> &str {
    match name.rsplit_once("-v") {
        Some((base, version)) if version.bytes().all(|it| it.is_ascii_digit()) => base,
        _ => name,
    }
}

impl ModelPrices {
    /// Prices with the usual ratios to that of input tokens.
    pub const fn usual(input: f64) -> Self {
        let [read, write, output] = USUAL_RATIOS;
        Self {
            input,
            output: output * input,
            cache_read: read * input,
            cache_write: write * input,
            cache_write_1h: 2.0 * input,
        }
    }

    /// List prices: only that of reading from the cache may have another ratio.
    const fn listed(input: f64, cache_read: f64) -> Self {
        let mut prices = Self::usual(input);
        prices.cache_read = cache_read;
        prices
    }

    /// What the tokens cost in US dollars.
    #[expect(clippy::cast_precision_loss, reason = "tokens are far below 2^52")]
    pub fn cost(&self, usage: &Usage) -> f64 {
        let one_hour = usage.cache_write_1h.min(usage.cache_write);
        let parts = [
            (usage.input, self.input),
            (usage.output, self.output),
            (usage.cache_read, self.cache_read),
            (usage.cache_write - one_hour, self.cache_write),
            (one_hour, self.cache_write_1h),
        ];
        parts
            .into_iter()
            .map(|(tokens, price)| tokens as f64 * price / 1e6)
            .sum()
    }
}

impl PricedModel {
    const fn listed(name: &'static str, input: f64, cache_read: f64) -> Self {
        Self {
            name: Cow::Borrowed(name),
            prices: ModelPrices::listed(input, cache_read),
            fast: None,
            long_prompt: None,
            web_search: 10.0,
        }
    }

    const fn with_fast(mut self, input: f64, cache_read: f64) -> Self {
        self.fast = Some(ModelPrices::listed(input, cache_read));
        self
    }

    const fn with_long_prompt(mut self, above: u64, input: f64, cache_read: f64) -> Self {
        self.long_prompt = Some((above, ModelPrices::listed(input, cache_read)));
        self
    }

    /// Parses an entry of the settings, see [`ENTRY_SYNTAX`]. Prices that it omits have the usual ratio to that of input
    /// tokens.
    pub(crate) fn parse(entry: &str) -> Option<Self> {
        let mut words = entry.split_whitespace();
        let name = words.next().filter(|name| !name.contains(':'))?;
        let mut given = [None; 6];
        for word in words {
            let (key, usd) = word.split_once(':')?;
            let keys = [
                "input",
                "output",
                "cache_read",
                "write_5m",
                "write_1h",
                "web_search",
            ];
            let place = keys.iter().position(|known| *known == key)?;
            let usd: f64 = usd.parse().ok()?;
            let slot = given.get_mut(place).filter(|slot| slot.is_none())?;
            *slot = Some(usd).filter(|usd| (0.0..=1e6).contains(usd));
            (*slot)?;
        }
        let [input, output, cache_read, write_5m, write_1h, web_search] = given;
        let input = input?;
        let usual = Self::listed("", input, ModelPrices::usual(input).cache_read);
        Some(Self {
            name: Cow::Owned(name.to_owned()),
            prices: ModelPrices {
                input,
                output: output?,
                cache_read: cache_read.unwrap_or(usual.prices.cache_read),
                cache_write: write_5m.unwrap_or(usual.prices.cache_write),
                cache_write_1h: write_1h.unwrap_or(usual.prices.cache_write_1h),
            },
            web_search: web_search.unwrap_or(usual.web_search),
            ..usual
        })
    }

    /// What a message costs in US dollars; `None` if the model has no price for its mode.
    pub(crate) fn cost(&self, usage: &Usage) -> Option<f64> {
        let prompt = [usage.cache_read, usage.cache_write]
            .into_iter()
            .fold(usage.input, u64::saturating_add);
        let prices = match self.long_prompt {
            _ if usage.is_fast => self.fast?,
            Some((above, prices)) if prompt > above => prices,
            _ => self.prices,
        };
        let factor = if usage.is_us_only {
            US_ONLY_FACTOR
        } else {
            1.0
        };
        #[expect(clippy::cast_precision_loss, reason = "searches are far below 2^52")]
        let searches = usage.web_searches as f64 * self.web_search / 1e3;
        Some(prices.cost(usage) * factor + searches)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The usage that the totals below are for.
    fn usage() -> Usage {
        Usage {
            input: 10_007,
            output: 2_003,
            cache_read: 50_021,
            cache_write: 7_013,
            cache_write_1h: 3_000,
            web_searches: 3,
            ..Usage::default()
        }
    }

    fn cost(model: &str, usage: Usage) -> Option<f64> {
        find_prices(model)?
            .cost(&usage)
            .map(|cost| (cost * 1e9).round() / 1e9)
    }

    #[test]
    fn costs_are_the_totals_of_claude_code() {
        for (model, total) in [
            ("claude-3-5-haiku-20241022", 0.058_832_28),
            ("claude-haiku-4-5-20251001", 0.066_040_35),
            ("claude-haiku-5-5", 0.033_604_035),
            ("claude-3-7-sonnet-20250219", 0.138_121_05),
            ("claude-sonnet-4-20250514", 0.138_121_05),
            ("claude-sonnet-5", 0.102_080_7),
            ("claude-sonnet-5-5", 0.097_078_6),
            ("claude-opus-4-5-20251101", 0.210_201_75),
            ("claude-opus-5", 0.210_201_75),
            ("claude-opus-5-5", 0.164_157_2),
            ("claude-fable-5", 0.390_403_5),
            ("claude-fable-5-1", 0.352_887_75),
            ("claude-fable-5-2", 0.288_310_2),
        ] {
            assert_eq!(cost(model, usage()), Some(total), "{model}");
        }
        let fast = Usage {
            is_fast: true,
            ..usage()
        };
        assert_eq!(cost("claude-opus-5-5", fast), Some(0.298_314_4));
        assert_eq!(cost("claude-opus-4-6", fast), Some(1.111_210_5));
        assert_eq!(cost("claude-sonnet-5-5", fast), None);
        let us_only = Usage {
            is_us_only: true,
            ..usage()
        };
        assert_eq!(cost("claude-sonnet-5-5", us_only), Some(0.103_786_46));
        let long = Usage {
            cache_read: 90_000,
            ..usage()
        };
        assert_eq!(cost("claude-haiku-5-5", long), Some(0.050_019_125));
    }

    #[test]
    fn models_are_found_by_every_spelling_of_their_name() {
        let found = |model| find_prices(model).map(|priced| priced.name.as_ref());
        for (model, name) in [
            ("claude-opus-5-5[1m]", "claude-opus-5-5"),
            (
                "us.anthropic.claude-sonnet-4-20250514-v1:0",
                "claude-sonnet-4",
            ),
            ("claude-sonnet-4@20250514", "claude-sonnet-4"),
            ("anthropic/claude-3-7-sonnet-latest", "claude-3-7-sonnet"),
            ("claude-opus-4-0", "claude-opus-4"),
        ] {
            assert_eq!(found(model), Some(name), "{model}");
        }
        for unknown in [
            "claude-opus-4-9",
            "claude-opus-6",
            "gpt-5",
            "<synthetic>",
            "",
        ] {
            assert_eq!(found(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn entry_of_the_settings_needs_input_and_output_prices() {
        let entry =
            PricedModel::parse("my/model input:2 output:8 write_1h:5 web_search:0").unwrap();
        assert_eq!(entry.name, "my/model");
        let prices = ModelPrices {
            input: 2.0,
            output: 8.0,
            cache_read: 0.2,
            cache_write: 2.5,
            cache_write_1h: 5.0,
        };
        assert_eq!((entry.prices, entry.web_search), (prices, 0.0));
        for invalid in [
            "",
            "m",
            "m input:1",
            "input:1 output:2",
            "m input:1 output:x",
            "m input:-1 output:1",
            "m input:NaN output:1",
            "m input:1 input:1 output:2",
            "m input:1 output:2 cached:1",
        ] {
            assert_eq!(PricedModel::parse(invalid), None, "{invalid}");
        }
    }

    proptest! {
        #[test]
        fn cost_of_two_messages_is_the_sum_of_their_costs(
            counts in prop::array::uniform6(0..40_000_u64), model in 0..BUILT_IN.len(),
        ) {
            let [input, output, cache_read, cache_write, cache_write_1h, web_searches] = counts;
            let usage = |times: u64| Usage {
                input: input / 4 * times, output: output * times, cache_read: cache_read / 4 * times,
                cache_write: cache_write / 4 * times, cache_write_1h: cache_write_1h / 4 * times,
                web_searches: web_searches * times, ..Usage::default()
            };
            let priced = &BUILT_IN[model];
            let [one, two] = [1, 2].map(|times| priced.cost(&usage(times)).unwrap());
            prop_assert!((two - 2.0 * one).abs() <= 1e-9 * two);
        }

        #[test]
        fn any_usage_has_a_finite_cost(counts in prop::array::uniform6(any::<u64>()), model in 0..BUILT_IN.len()) {
            let [input, output, cache_read, cache_write, cache_write_1h, web_searches] = counts;
            let usage = Usage { input, output, cache_read, cache_write, cache_write_1h, web_searches, ..Usage::default() };
            let cost = BUILT_IN[model].cost(&usage).unwrap();
            prop_assert!(cost.is_finite() && cost >= 0.0);
        }
    }
}
