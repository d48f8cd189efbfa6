//! What runs now and may change without a key: runs of the project, and sessions of Claude Code. The home screen compares
//! two of these values, which is much faster than listing everything.

use super::{args::GlobalArgs, exit::CliError, project, runs};
use ingestdeck_core::tape::RunId;
use ingestdeck_os::user_dirs;
use ingestdeck_records::replay::{ActiveSession, running_sessions};

/// Number of the newest runs of which one may be active.
const MAX_RUNS: usize = 100;

/// The runs and sessions whose processes run now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Activity {
    runs: Vec<RunId>,
    sessions: Vec<ActiveSession>,
}

impl Activity {
    /// The runs of the project, and the sessions in its directory.
    pub(super) fn in_project(global: &GlobalArgs) -> Self {
        let directory = project::resolve_directory(global).ok();
        #[expect(
            clippy::disallowed_methods,
            reason = "the name of the project's directory is compared, nothing is opened"
        )]
        let directory = directory.and_then(|directory| directory.canonicalize().ok());
        let claude = user_dirs::claude_dir();
        let mut sessions = claude.map_or_else(Vec::new, |claude| running_sessions(&claude));
        sessions.retain(|session| directory.as_ref() == Some(&session.directory));
        sessions.sort_by(|one, other| one.id.cmp(&other.id));
        Self {
            runs: active_runs(global).unwrap_or_default(),
            sessions,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.sessions.is_empty()
    }
}

fn active_runs(global: &GlobalArgs) -> Result<Vec<RunId>, CliError> {
    let store = runs::resolve_store(global)?;
    let newest = store.list()?.into_iter().take(MAX_RUNS);
    let active = newest.filter(|run| store.is_alive(run.id).unwrap_or(false));
    Ok(active.map(|run| run.id).collect())
}
