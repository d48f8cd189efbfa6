//! The arguments of the command `artifacts`.

use clap::Args;

/// Arguments of the command `artifacts`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ArtifactsArgs {
    /// Run: id (or a unique part of it), `latest`, or a file
    #[arg(default_value = "latest")]
    pub run: String,
    /// Only artifacts that a unit with a matching key wrote
    #[arg(long, value_name = "GLOB")]
    pub unit: Option<String>,
    /// Only artifacts with a matching path; `*` also matches `/`
    #[arg(long, value_name = "GLOB")]
    pub path: Option<String>,
    /// Also print the changed lines of each artifact, from the patches of the run
    #[arg(long)]
    pub diff: bool,
    /// Show which raw files have artifacts that rest on them, instead of the artifacts
    #[arg(long, conflicts_with_all = ["diff", "unit", "path"])]
    pub coverage: bool,
}
