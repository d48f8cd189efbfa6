//! How a run as a whole stands, in one word that every summary, list and report agrees on. Pure.

use super::state::{RunState, Unit, UnitStatus};

/// How a run stands or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunOutcome {
    /// It goes on.
    Running,
    /// Every unit is done.
    Done,
    /// Some are, and others failed.
    Partial,
    /// Nothing is done, or a failure ended it.
    Error,
    /// Nothing but Claude Code itself was in the way.
    Unusable,
    /// A limit ended it.
    Limit,
    /// A person ended it.
    Stopped,
    /// Its record breaks off.
    Interrupted,
}

impl RunOutcome {
    /// Reads `state`, which is that of a `live` run or of a record that will not grow.
    pub fn of(state: &RunState, live: bool) -> Self {
        let ended = state.ended.as_ref().map(|ended| ended.outcome.as_str());
        if let Some(said) = ended {
            return Self::parse(said).unwrap_or_else(|| Self::of_units(state));
        }
        if live {
            return Self::Running;
        }
        // What was not on the branch when the record broke off is in no project.
        let is_left = |unit: &Unit| !unit.status.is_over() || is_cut_off(unit.status) || state.is_unsaved(unit);
        if state.integrating || state.units.iter().any(is_left) {
            return Self::Interrupted;
        }
        Self::of_units(state)
    }

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Partial => "partial",
            Self::Error => "error",
            Self::Unusable => "unusable",
            Self::Limit => "limit",
            Self::Stopped => "stopped",
            Self::Interrupted => "interrupted",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        let all = [
            Self::Running,
            Self::Done,
            Self::Partial,
            Self::Error,
            Self::Unusable,
            Self::Limit,
            Self::Stopped,
            Self::Interrupted,
        ];
        all.into_iter().find(|outcome| outcome.word() == word)
    }

    fn of_units(state: &RunState) -> Self {
        let is_good = |status| matches!(status, UnitStatus::Succeeded | UnitStatus::Budget | UnitStatus::Reused);
        let good = state.units.iter().filter(|unit| is_good(unit.status)).count();
        match good {
            _ if good == state.units.len() => Self::Done,
            0 => Self::Error,
            _ => Self::Partial,
        }
    }
}

fn is_cut_off(status: UnitStatus) -> bool {
    matches!(status, UnitStatus::Interrupted | UnitStatus::Untried)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeMap, sync::Arc};

    use crate::{
        run::state::{Attempt, TakenOver},
        tape::{
            RunId,
            note::{Continues, Earlier, Integration, PatchWritten, Reused, RunEnded, RunPlanned},
        },
    };

    fn state(units: &[UnitStatus], ended: Option<&str>) -> RunState {
        let unit = |status: &UnitStatus| Unit {
            key: "u".into(),
            planned: None,
            status: *status,
            attempts: Vec::new(),
            retry_at: None,
            holding: Default::default(),
        };
        RunState {
            units: units.iter().map(unit).collect(),
            ended: ended.map(|outcome| RunEnded { outcome: outcome.into(), ..RunEnded::default() }),
            ..RunState::default()
        }
    }

    #[test]
    fn what_the_run_said_stands_and_the_units_speak_where_it_said_nothing() {
        use UnitStatus::{Budget, Failed, Interrupted, Queued, Running, Succeeded};
        let word = |units: &[UnitStatus], ended, live| RunOutcome::of(&state(units, ended), live).word();
        assert_eq!(word(&[Succeeded, Failed], Some("limit"), false), "limit");
        assert_eq!(word(&[Succeeded, Failed], Some("of the future"), false), "partial");
        assert_eq!(word(&[Succeeded, Budget], None, false), "done");
        assert_eq!(word(&[Failed], None, false), "error");
        assert_eq!(word(&[Succeeded, Interrupted], None, false), "interrupted");
        assert_eq!(word(&[Queued], None, false), "interrupted");
        assert_eq!(word(&[Queued], None, true), "running");
        assert_eq!(word(&[Running, Succeeded], None, false), "interrupted");
        assert_eq!(word(&[Running, Succeeded], None, true), "running");
        assert_eq!(word(&[], None, false), "done");
    }

    #[test]
    fn a_run_that_was_cut_off_before_its_commit_is_not_done() {
        let word = |state: &RunState| RunOutcome::of(state, false).word();
        let mut cut = state(&[UnitStatus::Succeeded], None);
        cut.integrating = true;
        assert_eq!(word(&cut), "interrupted");
        cut.integrating = false;
        let patch = PatchWritten { path: Some("0000-u.patch".into()), ..PatchWritten::default() };
        cut.units[0].attempts = vec![Attempt { patch: Some(Arc::new(patch)), ..Attempt::default() }];
        assert_eq!(word(&cut), "interrupted");
        cut.units[0].attempts[0].saved = true;
        assert_eq!(word(&cut), "done");
    }

    #[test]
    fn nor_is_one_that_was_to_put_the_patches_of_an_earlier_run_on_the_branch() {
        let run = RunId(uuid::Uuid::from_u128(1));
        let reused = |patch: Option<&str>| {
            let patch = patch.map(str::to_owned);
            let reused = Some(Reused {
                attempt: 1,
                budget: false,
                content: Default::default(),
                patch,
                work: Default::default(),
            });
            let units = BTreeMap::from([("u".into(), Earlier { run, attempts: 1, cost_usd: None, reused })]);
            let continues =
                Some(Continues { run, outcome: None, cost_usd: None, units, unreconciled: BTreeMap::new() });
            let planned = Some(Arc::new(RunPlanned { continues, ..RunPlanned::default() }));
            RunState { planned, ..state(&[UnitStatus::Reused], None) }
        };
        let word = |state: &RunState| RunOutcome::of(state, false).word();
        assert_eq!(word(&reused(None)), "done");
        let mut left = reused(Some("0000-u.patch"));
        assert_eq!(word(&left), "interrupted");
        let taken = TakenOver { result: Integration::Accepted, verdict: None, saved: true, shared: Arc::default() };
        left.taken_over.insert("u".into(), taken);
        assert_eq!(word(&left), "done");
    }
}
