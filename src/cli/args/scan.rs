//! The arguments of `scan`.

use clap::Args;

/// Arguments of the command `scan`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ScanArgs {
    /// A connection to a database, by its name in ktx.yaml
    #[arg(value_name = "CONNECTION")]
    pub connection: String,
    /// Print JSON; the same as --ui json
    #[arg(long)]
    pub json: bool,
}
