//! The options of a run: one value from the command line to the process of an agent, on this machine or on a worker.

use serde::{Deserialize, Serialize};

use crate::{
    config::{Config, IngestSettings},
    units::retry::RetryPolicy,
};

/// What flags and settings determine about a run. Fixed for the whole run: the engine keeps the current values of the
/// limits that clients change. It is sent to workers as it is, so a field without default needs a new version of their
/// protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunOptions {
    /// Model of units; `None` means the agent's default.
    pub model: Option<String>,
    /// Model of the reconcile step; `None` means the agent's default.
    pub reconcile_model: Option<String>,
    /// Maximum number of turns of an attempt.
    pub step_budget: u32,
    /// Cost limit of an attempt, in US dollars.
    pub max_budget_usd: Option<f64>,
    /// Cost limit of all attempts together, in US dollars.
    pub run_budget_usd: Option<f64>,
    /// What the first attempts at units should do differently than in an earlier run.
    pub feedback: Option<String>,
    /// Variables that agents inherit although they would be withheld by default, by name or as `PREFIX_*`.
    pub pass_env: Vec<String>,
    /// How failed attempts are repeated automatically.
    pub retry: RetryPolicy,
    /// Section `[ingest]` of the settings, with the flags that override it.
    pub ingest: IngestSettings,
}

impl RunOptions {
    /// The options of a run without flags.
    pub fn from_config(config: &Config, step_budget: u32) -> Self {
        Self {
            model: None,
            reconcile_model: None,
            step_budget,
            max_budget_usd: None,
            run_budget_usd: None,
            feedback: None,
            pass_env: config.claude.pass_env.value.clone(),
            retry: RetryPolicy::from(&config.retry),
            ingest: config.ingest.clone(),
        }
    }
}
