//! The options that all commands with attempts share.

use clap::Args;

use ingestdeck_core::config::{time_limit::TimeLimitSetting, value};

/// Model and limits of the attempts of a command.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AttemptArgs {
    /// Model [default: from ktx.yaml]
    #[arg(long)]
    pub model: Option<String>,
    /// Turn limit of an attempt [default: from ktx.yaml, 30 for texts]
    #[arg(long, value_name = "N")]
    pub step_budget: Option<u32>,
    /// Cost limit of an attempt
    #[arg(long, value_name = "USD")]
    pub max_budget_usd: Option<f64>,
    /// Cost limit of the run: no attempt starts after it is reached; the run can be resumed
    #[arg(long, value_name = "USD")]
    pub max_run_budget_usd: Option<f64>,
    /// End and retry (`[retry]`) an attempt that has not written anything for this long (90s, 5m, none) [default: 10m without a screen and on workers]
    #[arg(long, value_name = "DURATION", value_parser = time_limit)]
    pub silence_timeout: Option<TimeLimitSetting>,
    /// End and retry (`[retry]`) an attempt that takes this long (10m, 1h, none), not counting its waits for you and for tools [default: 2h without a screen and on workers]
    #[arg(long, value_name = "DURATION", value_parser = time_limit)]
    pub unit_timeout: Option<TimeLimitSetting>,
    /// Stop a unit whose call waits for your decision for this long (1h, none) [default: 24h without a screen]
    #[arg(long, value_name = "DURATION", value_parser = time_limit)]
    pub approval_timeout: Option<TimeLimitSetting>,
    /// Send a one-turn request first to check sign-in, credit, limit and model
    #[arg(long)]
    pub probe: bool,
}

pub(super) fn time_limit(text: &str) -> Result<TimeLimitSetting, String> {
    value::parse_time_limit(text)
        .ok_or_else(|| format!("expected a {}, or none", value::DURATION_SYNTAX))
}
