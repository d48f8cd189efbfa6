//! The other runs of a pool, as far as they announce themselves: whose they are, and what they hold.
//!
//! What they announce is text of other machines. The module must not know connections.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
    time::Duration,
};

use nix::unistd::{self, Uid, User};
use tokio::time::Instant;

use super::{super::names::plain_name, Announcement};
use ingestdeck_core::tape::{
    RunId,
    note::{PoolRun, PoolUse},
};

/// How long a run counts without an announcement.
const ANNOUNCED_FOR: Duration = Duration::from_secs(15);
/// Shortest time between two records.
const RECORD_INTERVAL: Duration = Duration::from_secs(10);
/// Most runs that are known.
const MAX_RUNS: usize = 100;

/// How a run names itself.
pub(super) fn owner_of(project: &Path) -> PoolRun {
    let user = User::from_uid(Uid::current()).ok().flatten();
    let user = user.map_or_else(|| "unknown".to_owned(), |user| user.name);
    let host = unistd::gethostname().unwrap_or_default();
    PoolRun {
        project: project
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        user: format!("{user}@{}", host.to_string_lossy()),
    }
}

/// The other runs that are announced.
#[derive(Debug, Default)]
pub(super) struct OtherRuns {
    known: HashMap<RunId, (PoolRun, Instant)>,
    recorded: PoolUse,
    recorded_at: Option<Instant>,
}

impl OtherRuns {
    /// Takes an announcement, unless it is of one of the `own` runs.
    pub(super) fn hear(&mut self, announcement: &[u8], own: &HashSet<RunId>) {
        let Ok(Announcement {
            run, owner, joins, ..
        }) = serde_json::from_slice(announcement)
        else {
            return;
        };
        let has_room = self.known.len() < MAX_RUNS || self.known.contains_key(&run);
        if joins && has_room && !own.contains(&run) {
            let owner = PoolRun {
                project: plain_name(&owner.project),
                user: plain_name(&owner.user),
            };
            self.known.insert(run, (owner, Instant::now()));
        }
    }

    /// What is to be recorded if the others hold `slots`; `None` if that is known, or was recorded just now.
    pub(super) fn change(&mut self, slots: BTreeMap<String, u32>) -> Option<PoolUse> {
        self.known
            .retain(|_, (_, heard)| heard.elapsed() < ANNOUNCED_FOR);
        let runs = self.known.iter();
        let now = PoolUse {
            runs: runs
                .map(|(run, (owner, _))| (run.short(), owner.clone()))
                .collect(),
            slots,
        };
        let is_early = self
            .recorded_at
            .is_some_and(|at| at.elapsed() < RECORD_INTERVAL);
        if is_early || now == self.recorded {
            return None;
        }
        self.recorded_at = Some(Instant::now());
        self.recorded = now.clone();
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announcement(run: RunId, joins: bool) -> Vec<u8> {
        let announcement = Announcement {
            run,
            protocol: 1,
            program: String::new(),
            joins,
            owner: PoolRun {
                project: "orbit\u{1b}[2J".to_owned(),
                user: "ann@host".to_owned(),
            },
        };
        serde_json::to_vec(&announcement).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn changes_are_recorded_once_and_not_too_often() {
        let (own, other) = (RunId(uuid::Uuid::new_v4()), RunId(uuid::Uuid::new_v4()));
        let mut runs = OtherRuns::default();
        let own_runs = HashSet::from([own]);
        assert_eq!(runs.change(BTreeMap::new()), None);
        for heard in [own, other, other] {
            runs.hear(&announcement(heard, true), &own_runs);
        }
        runs.hear(&announcement(RunId(uuid::Uuid::new_v4()), false), &own_runs);
        runs.hear(b"{", &own_runs);
        let held = BTreeMap::from([("build-1".to_owned(), 2)]);
        let found = runs.change(held.clone()).unwrap();
        assert_eq!(found.slots, held);
        let owners: Vec<_> = found.runs.values().collect();
        assert_eq!((owners.len(), owners[0].project.as_str()), (1, "orbit2J"));
        assert_eq!(runs.change(held), None);
        assert_eq!(runs.change(BTreeMap::new()), None, "too early");
        tokio::time::advance(ANNOUNCED_FOR).await;
        let ended = runs.change(BTreeMap::new());
        assert_eq!(ended, Some(PoolUse::default()));
    }
}
