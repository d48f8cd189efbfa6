//! The arguments of the command `bench`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of the command `bench`.
#[derive(Clone, Debug, Args)]
pub struct BenchArgs {
    /// Only units whose key matches a pattern [default: all]
    #[arg(value_name = "UNIT_PATTERN")]
    pub units: Vec<String>,
    /// Model; can be repeated [default: from ktx.yaml]
    #[arg(long, value_name = "MODEL")]
    pub model: Vec<String>,
    /// File with instructions that replace those of the prompt `work_unit`; can be repeated [default: those of the project]
    #[arg(long, value_name = "FILE")]
    pub prompt: Vec<PathBuf>,
    /// Number of runs with each model and prompt; agreement and intervals need 2 or more
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: u32,
    /// Cost limit of all runs together; attempts that run when it is reached can exceed it
    #[arg(long, value_name = "USD")]
    pub max_cost: Option<f64>,
    /// Rule that every model and prompt must meet: a figure, one of >= <= > <, and a number, such as `coverage>=0.8`; can be repeated
    #[arg(long, value_name = "RULE")]
    pub gate: Vec<String>,
    /// Result of an earlier bench, `result.json`: no figure of the same model and prompt may be worse
    #[arg(long, value_name = "FILE")]
    pub gate_against: Option<PathBuf>,
    /// Keep the clones of all runs, and print where they are
    #[arg(long)]
    pub keep: bool,
}
