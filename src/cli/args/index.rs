//! The arguments of the commands that read the index: `audit`, `costs`, `runs list` and `runs query`.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

/// Format of a table on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormat {
    /// An aligned table for people.
    Text,
    /// One JSON object per line.
    Json,
    /// Comma-separated values with a header.
    Csv,
}

/// Selects recorded runs by time.
#[derive(Clone, Debug, Args)]
pub(crate) struct PeriodArgs {
    /// From this time on: 2026-01-31, 2026-01-31T12:00Z, or a time ago such as 12h, 7d
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only before this time
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
}

/// Arguments of the command `audit`.
#[derive(Clone, Debug, Args)]
pub(crate) struct AuditArgs {
    /// Only this run: id (or a unique part of it) or `latest`
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Only units whose key matches this pattern
    #[arg(long, value_name = "GLOB")]
    pub unit: Option<String>,
    /// Only tools whose name matches this pattern, with or without the prefix of the server
    #[arg(long, value_name = "GLOB")]
    pub tool: Option<String>,
    /// Only calls with this decision
    #[arg(long, value_enum)]
    pub decision: Option<AuditDecision>,
    /// Only failed and denied calls
    #[arg(long)]
    pub failed: bool,
    /// Selects calls by time.
    #[command(flatten)]
    pub period: PeriodArgs,
    /// Only the N newest calls
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Print arguments in full, and errors and reasons as the index has them
    #[arg(long)]
    pub full: bool,
    /// Also print what the tools returned
    #[arg(long)]
    pub results: bool,
    /// Format [default: text, or json with --ui json]
    #[arg(long, value_enum)]
    pub format: Option<TableFormat>,
}

/// Arguments of the command `find`.
#[derive(Clone, Debug, Args)]
pub(crate) struct FindArgs {
    /// Texts that an entry contains, each as it is; a last word with `*` is the beginning of words
    #[arg(required = true)]
    pub text: Vec<String>,
    /// Only this run: id (or a unique part of it) or `latest`
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Only units whose key matches this pattern
    #[arg(long, value_name = "GLOB")]
    pub unit: Option<String>,
    /// Only calls and results of tools whose name matches this pattern, with or without the prefix of the server
    #[arg(long, value_name = "GLOB")]
    pub tool: Option<String>,
    /// Only results of failed calls
    #[arg(long)]
    pub failed: bool,
    /// Selects entries by time.
    #[command(flatten)]
    pub period: PeriodArgs,
    /// Leave out Claude Code's own sessions of this project
    #[arg(long)]
    pub no_sessions: bool,
    /// Only the N newest entries
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: u64,
    /// Read all runs and sessions that are not searched yet, however long it takes
    #[arg(long)]
    pub all: bool,
    /// Format [default: text, or json with --ui json]
    #[arg(long, value_enum)]
    pub format: Option<TableFormat>,
}

/// A decision about a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AuditDecision {
    /// A rule or a person allowed it.
    Allowed,
    /// A person changed its arguments.
    Edited,
    /// A rule or a person denied it.
    Denied,
    /// A person released its unit.
    Released,
    /// Its attempt ended before a decision.
    Withdrawn,
    /// It waits for a person.
    Held,
}

/// Arguments of the command `costs`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CostsArgs {
    /// What each line sums up
    #[arg(long, value_enum, default_value_t = CostGrouping::Run)]
    pub by: CostGrouping,
    /// Only this run: id (or a unique part of it) or `latest`
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Selects attempts by the time at which they started.
    #[command(flatten)]
    pub period: PeriodArgs,
    /// Format [default: text, or json with --ui json]
    #[arg(long, value_enum)]
    pub format: Option<TableFormat>,
}

/// What a line of `costs` sums up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CostGrouping {
    /// The day on which attempts started, in UTC.
    Day,
    /// The connection of the unit.
    Connection,
    /// The model, as the agent reports its usage.
    Model,
    /// The unit, over all runs.
    Unit,
    /// Each run by itself.
    Run,
}

/// Arguments of the command `runs query`.
#[derive(Clone, Debug, Args)]
pub(crate) struct QueryArgs {
    /// A SELECT statement over the views that `help audit` describes
    #[arg(value_name = "SQL")]
    pub sql: String,
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub limit: u64,
    /// Format [default: text, or json with --ui json]
    #[arg(long, value_enum)]
    pub format: Option<TableFormat>,
}

/// Order of the list of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunSort {
    /// The newest run first
    #[default]
    Started,
    /// The highest cost first
    Cost,
    /// The longest run first
    Duration,
    /// The most units first
    Units,
    /// The most failed units first
    Failed,
}

/// Arguments of the command `runs list`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RunsListArgs {
    /// Only runs that fulfil all of these: outcome:partial, since:7d, until:2026-01-31, 'cost>0.50', 'duration>5m',
    /// unit:orders, source:dbt
    #[arg(value_name = "CONDITION")]
    pub conditions: Vec<String>,
    /// Order of the runs
    #[arg(long, value_enum)]
    pub sort: Option<RunSort>,
    /// In the reverse order
    #[arg(long)]
    pub reverse: bool,
    /// Show a saved view; conditions narrow it
    #[arg(long, value_name = "NAME")]
    pub view: Option<String>,
    /// Save conditions and order under a name, for this project
    #[arg(long, value_name = "NAME")]
    pub save_view: Option<String>,
    /// Delete a saved view
    #[arg(long, value_name = "NAME", exclusive = true)]
    pub delete_view: Option<String>,
}
