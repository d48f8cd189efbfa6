//! How a run as a whole stands, in one word that every summary, list and report agrees on. Pure.

use super::state::{RunState, UnitStatus};

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
        let any = |wanted: &[UnitStatus]| state.units.iter().any(|unit| wanted.contains(&unit.status));
        let ended = state.ended.as_ref().map(|ended| ended.outcome.as_str());
        if let Some(said) = ended {
            return Self::parse(said).unwrap_or_else(|| Self::of_units(state));
        }
        if live || any(&[UnitStatus::Running, UnitStatus::Held, UnitStatus::Waiting]) {
            return Self::Running;
        }
        if any(&[UnitStatus::Queued, UnitStatus::Interrupted]) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{run::state::Unit, tape::note::RunEnded};

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
        assert_eq!(word(&[Running, Succeeded], None, false), "running");
        assert_eq!(word(&[], None, false), "done");
    }
}
