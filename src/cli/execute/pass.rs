//! The pass over what the units wrote: what its attempts are made of, and on what terms they run.

use std::{collections::BTreeMap, sync::PoisonError};

use super::{Attempts, patches::Round};
use crate::{
    ingest::{
        plan::WorkUnit,
        reconcile::{self, Eviction, RECONCILE, STEP_BUDGET, Stage, StagedUnit, staged_path},
    },
    tape::UnitKey,
};

/// What holds for the pass alone.
#[derive(Clone, Debug, Default)]
pub struct PassTerms {
    /// Model, or the agent's default.
    pub model: Option<String>,
    /// Raw files that are gone, by connection.
    pub evictions: Vec<(String, String)>,
}

/// What an attempt is made of.
pub(super) struct Material {
    /// Place in the plan.
    pub(super) index: usize,
    pub(super) work_unit: WorkUnit,
    /// The commit that it starts from, if that is not the one that all start from.
    pub(super) base: Option<String>,
}

impl Attempts {
    /// The same attempts, and those of a pass over what they wrote.
    pub fn reconciling(self, pass: Option<PassTerms>) -> Self {
        Self { pass, ..self }
    }

    /// What an attempt at `unit` is made of; `None` for a unit that nobody planned.
    pub(super) fn material(&self, unit: &UnitKey) -> Option<Material> {
        if let Some((index, work_unit)) = self.units.get(unit) {
            return Some(Material { index: *index, work_unit: work_unit.clone(), base: None });
        }
        let pass = self.pass.as_ref().filter(|_| unit.as_str() == RECONCILE)?;
        let round = self.round.lock().unwrap_or_else(PoisonError::into_inner);
        let work_unit = self.staged(&round, pass).into_unit();
        Some(Material { index: self.units.len(), work_unit, base: round.head.clone() })
    }

    /// Model and turns of an attempt at `unit`.
    pub(super) fn terms_of(&self, unit: &UnitKey) -> (Option<String>, u32) {
        match &self.pass {
            Some(pass) if unit.as_str() == RECONCILE => (pass.model.clone(), STEP_BUDGET),
            _ => (self.terms.model.clone(), self.terms.step_budget),
        }
    }

    /// What the units wrote, as far as it is put together.
    fn staged(&self, round: &Round, pass: &PassTerms) -> Stage {
        let mut units: Vec<&(usize, WorkUnit)> = self.units.values().collect();
        units.sort_by_key(|(index, _)| *index);
        let folders: BTreeMap<_, _> =
            units.iter().map(|(_, unit)| (unit.planned.connection.clone(), unit.source_root.clone())).collect();
        let units = units.into_iter().map(|(_, unit)| self.staged_unit(round, unit)).collect();
        let evictions = pass.evictions.iter().map(|(of, path)| Eviction { raw_path: staged_path(of, path) }).collect();
        Stage { units, evictions, folders }
    }

    fn staged_unit(&self, round: &Round, unit: &WorkUnit) -> StagedUnit {
        let planned = &unit.planned;
        let patch = round.patches.get(&planned.unit);
        let (status, changes) = match round.lost.get(&planned.unit) {
            Some(reason) => (format!("failed: {reason}"), Vec::new()),
            None if round.taken.contains(&planned.unit) => {
                let path = patch.and_then(|(_, file)| file.as_ref()?.strip_prefix(&self.project.root).ok()?.to_str());
                let changes = path.map(|path| reconcile::changes_of(&self.project.root, path));
                ("success".to_owned(), changes.unwrap_or_default())
            }
            None => ("no part of this commit".to_owned(), Vec::new()),
        };
        let raw_files = planned.raw_files.iter().map(|path| staged_path(&planned.connection, path)).collect();
        StagedUnit { unit: planned.unit.as_str().to_owned(), status, raw_files, changes }
    }
}
