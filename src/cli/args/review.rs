//! Arguments of the review of changes.

use clap::Args;

/// Arguments of `review`, on the screen and without one.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ReviewArgs {
    /// Run id or a unique part of it, also of a run whose changes are in commits [default: the newest run that waits for a review]
    pub run: Option<String>,
    /// Accept the changes of files that match this pattern: a path, `unit:KEY` or `connection:NAME`; only the
    /// path of a file itself replaces a decision; can be repeated
    #[arg(long, value_name = "GLOB")]
    pub accept: Vec<String>,
    /// Reject them; outranks the other two; can be repeated
    #[arg(long, value_name = "GLOB")]
    pub reject: Vec<String>,
    /// Why they are rejected; recorded with the decision, and named to later attempts
    #[arg(long, value_name = "TEXT", requires = "reject")]
    pub reason: Option<String>,
    /// Send them back to their units, which try again; can be repeated
    #[arg(long, value_name = "GLOB")]
    pub send_back: Vec<String>,
    /// What the units should change
    #[arg(long, value_name = "TEXT", requires = "send_back")]
    pub feedback: Option<String>,
    /// Commit without the changes that your own files block; they still wait for a review
    #[arg(long, requires = "accept")]
    pub skip_blocked: bool,
    /// List the changes and the decisions so far, also on a terminal
    #[arg(long, conflicts_with_all = ["accept", "reject", "send_back"])]
    pub list: bool,
    /// List the changed lines, too
    #[arg(long)]
    pub diff: bool,
    /// Commit to this branch, which is created if it does not exist; files and the current branch stay as they are
    #[arg(long, value_name = "NAME", conflicts_with_all = ["list", "diff"])]
    pub branch: Option<String>,
}
