//! Sessions that were cut from outside, and what the next attempt at their unit continues: after a limit or an error of the
//! service in this run, or after the end of the engine of a prior run.
//!
//! The changes of such a session are made again from its transcript, in a new worktree. This module must not know how.

use std::{collections::HashMap, fs::Metadata, path::Path};

use parking_lot::Mutex;

use ingestdeck_core::tape::{UnitKey, note::ContinuedWork};
use ingestdeck_ingest::transcript::RecordedCalls;
use ingestdeck_os::user_dirs;
use ingestdeck_records::replay::claude_sessions;

/// The session of a unit that was cut.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CutSession {
    pub session: String,
    /// The effort so far.
    pub work: ContinuedWork,
    /// Where its calls are recorded, the oldest attempt first.
    pub calls: Vec<RecordedCalls>,
    /// Length of its file in bytes when it was cut, if that was in this run.
    pub file_bytes: Option<u64>,
}

/// The sessions that the next attempts of a run can continue.
#[derive(Debug, Default)]
pub(crate) struct CutSessions {
    by_unit: Mutex<HashMap<UnitKey, CutSession>>,
    /// Costs of sessions in prior runs, in US dollars; `None` where it is unknown.
    prior_costs: HashMap<String, Option<f64>>,
}

impl CutSessions {
    pub(crate) fn new(prior: Vec<(UnitKey, CutSession)>) -> Self {
        let costs = prior
            .iter()
            .map(|(_, cut)| (cut.session.clone(), cut.work.cost_usd));
        Self {
            prior_costs: costs.collect(),
            by_unit: Mutex::new(prior.into_iter().collect()),
        }
    }

    /// The cost of a session that cost `own` in this run: with that of prior runs, if it is known.
    pub(crate) fn whole_cost(&self, session: &str, own: f64) -> Option<f64> {
        match self.prior_costs.get(session) {
            None => Some(own),
            Some(prior) => prior.map(|prior| prior + own),
        }
    }

    /// What an attempt at `unit` that resumes `session` continues.
    pub(crate) fn of(&self, unit: &UnitKey, session: &str) -> Option<CutSession> {
        let cut = self.by_unit.lock().get(unit).cloned();
        cut.filter(|cut| cut.session == session)
    }

    /// An attempt at `unit` has ended: its session was `cut`, or nothing can continue.
    pub(crate) fn set(&self, unit: &UnitKey, cut: Option<CutSession>) {
        let mut sessions = self.by_unit.lock();
        match cut {
            Some(cut) => _ = sessions.insert(unit.clone(), cut),
            None => _ = sessions.remove(unit),
        }
    }
}

/// The length and the times of the file of a session that ran in `directory`, if Claude Code still has it.
pub(crate) fn session_file(directory: &Path, session: &str) -> Option<Metadata> {
    let file = claude_sessions::open_session(&user_dirs::claude_dir()?, directory, session)?;
    file.metadata().ok()
}
