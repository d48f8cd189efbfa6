//! The part of a report that concerns one connection. Pure.
//!
//! Items that name no connection of the run are part of every connection's report. It must not depend on how a report
//! is written.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::Value;

use super::{RunReport, UnitReport, totals};
use crate::tape::note::{
    AttemptOutput, SlRefRepair,
    attempt_output::{ArtifactChange, ArtifactTarget, MemoryAction},
};

/// Decides which actions and decisions of the reconcile step concern a connection.
struct ConnectionFilter<'a> {
    connection: &'a str,
    /// All connections of the run.
    known: BTreeSet<&'a str>,
    /// Connection of each planned unit.
    units: HashMap<&'a str, &'a str>,
}

impl<'a> ConnectionFilter<'a> {
    fn new(report: &'a RunReport, connection: &'a str) -> Self {
        let planned = report.planned.iter().flat_map(|plan| &plan.units);
        let units: HashMap<_, _> = planned
            .map(|unit| (unit.unit.as_str(), unit.connection.as_str()))
            .collect();
        let sources = report
            .inputs
            .sources
            .iter()
            .map(|source| source.connection.as_str());
        let known = units
            .values()
            .copied()
            .chain(sources)
            .filter(|id| !id.is_empty())
            .collect();
        Self {
            connection,
            known,
            units,
        }
    }

    /// The connection that `connection/path` names.
    fn of_path(&self, path: &str) -> Option<&'a str> {
        let (connection, _) = path.split_once('/')?;
        self.known.get(connection).copied()
    }

    fn covers(&self, named: Option<&str>) -> bool {
        named.is_none_or(|named| named == self.connection)
    }

    fn covers_path(&self, path: Option<&str>) -> bool {
        self.covers(path.and_then(|path| self.of_path(path)))
    }

    fn covers_conflict(&self, conflict: &Value) -> bool {
        self.covers(
            conflict["unitKey"]
                .as_str()
                .and_then(|unit| self.units.get(unit))
                .copied(),
        )
    }

    fn covers_action(&self, action: &MemoryAction) -> bool {
        let mut named = self.of_action(action).peekable();
        named.peek().is_none() || named.any(|named| named == self.connection)
    }

    /// Connections of the raw files that an action of the reconcile step names.
    fn of_action(&self, action: &MemoryAction) -> impl Iterator<Item = &'a str> {
        action
            .raw_paths
            .iter()
            .flatten()
            .filter_map(|path| self.of_path(path))
    }

    fn work(&self, work: &AttemptOutput) -> AttemptOutput {
        let mut work = work.clone();
        work.actions.retain(|action| self.covers_action(action));
        work.unmapped
            .retain(|file| self.covers_path(Some(&file.raw_path)));
        work.conflicts
            .retain(|conflict| self.covers_conflict(conflict));
        for decisions in [&mut work.evictions, &mut work.resolutions] {
            decisions.retain(|decision| self.covers_path(decision["rawPath"].as_str()));
        }
        work
    }

    fn step(&self, step: &UnitReport) -> UnitReport {
        let mut step = step.clone();
        if let Some(work) = &mut step.prior_work {
            **work = self.work(work);
        }
        for attempt in &mut step.attempts {
            let has_actions = !attempt.actions().is_empty();
            let delivery = &mut attempt.state.delivery;
            delivery.output = delivery
                .output
                .take()
                .map(|output| Arc::new(self.work(&output)));
            if has_actions && attempt.actions().is_empty() {
                // The paths are used if a tape has no actions, so they must be removed as well.
                attempt.state.delivery.published = Vec::new();
            }
        }
        step
    }

    /// True if a unit of the connection removed a source that `repair` deleted from a page, or if no change of the run
    /// removed it.
    fn covers_repair(&self, report: &RunReport, repair: &SlRefRepair) -> bool {
        let is_removal = |action: &MemoryAction| {
            let is_of = |entry: &String| names_source(entry, action);
            action.change == ArtifactChange::Removed
                && action.target == ArtifactTarget::SemanticLayer
                && repair.removed_refs.iter().any(is_of)
        };
        let mut removed_by = BTreeSet::new();
        for unit in report.units.iter().chain(report.reconcile_unit.as_ref()) {
            for action in unit.actions().iter().filter(|action| is_removal(action)) {
                removed_by.extend(unit.connection());
                if unit.connection().is_none() {
                    removed_by.extend(self.of_action(action));
                }
            }
        }
        removed_by.is_empty() || removed_by.contains(self.connection)
    }
}

/// True if an entry of `sl_refs` (`source`, `connection/source`, either with `.entity`) may refer to the source of
/// `action`.
fn names_source(entry: &str, action: &MemoryAction) -> bool {
    let (connection, name) = entry
        .split_once('/')
        .map_or((None, entry), |(connection, name)| (Some(connection), name));
    let is_target = |connection| {
        action
            .target_connection_id
            .as_deref()
            .is_none_or(|target| target == connection)
    };
    name.split('.').next() == Some(action.key.as_str()) && connection.is_none_or(is_target)
}

impl RunReport {
    /// Connections with their adapters, in plan order. Units without a connection yield `None`.
    pub fn connections(&self) -> Vec<(Option<&str>, Option<&str>)> {
        let mut found = Vec::new();
        for unit in &self.units {
            let of = (unit.connection(), unit.adapter());
            if !found.contains(&of) {
                found.push(of);
            }
        }
        found
    }

    /// Connections with their adapters that the run affected: those of its units, and those with deleted files only. If
    /// the reconcile step is the only unit and no file was deleted, all sources of the run.
    pub fn affected_connections(&self) -> Vec<(Option<&str>, Option<&str>)> {
        let mut found = self.connections();
        if self.reconcile_unit().is_none() {
            return found;
        }
        // The reconcile step belongs to no connection.
        found.retain(|of| *of != (None, None));
        let has_units = !found.is_empty();
        let any_gone = self
            .inputs
            .sources
            .iter()
            .any(|source| !source.deleted.is_empty());
        for source in &self.inputs.sources {
            let of = (
                Some(source.connection.as_str()),
                Some(source.adapter.as_str()),
            );
            let is_concerned = !source.deleted.is_empty() || (!has_units && !any_gone);
            if is_concerned && !found.contains(&of) {
                found.push(of);
            }
        }
        if found.is_empty() {
            vec![(None, None)]
        } else {
            found
        }
    }

    /// Limits the report to one connection.
    ///
    /// # Errors
    ///
    /// Returns the connections of the run if it did not affect `connection`.
    pub fn into_connection(mut self, connection: &str) -> Result<Self, Vec<String>> {
        let concerned = self.affected_connections();
        if !concerned
            .iter()
            .any(|(known, _)| *known == Some(connection))
        {
            return Err(concerned
                .into_iter()
                .filter_map(|(known, _)| known.map(str::to_owned))
                .collect());
        }
        let is_of = |unit: Option<&UnitReport>| {
            unit.is_some_and(|unit| unit.connection() == Some(connection))
        };
        let mut places = Vec::with_capacity(self.units.len());
        let mut next = 0;
        for unit in &self.units {
            places.push(next);
            next += usize::from(is_of(Some(unit)));
        }
        for failures in &mut self.failure_groups {
            failures.units.retain(|unit| is_of(self.units.get(*unit)));
            failures
                .units
                .iter_mut()
                .for_each(|unit| *unit = places.get(*unit).copied().unwrap_or_default());
        }
        self.failure_groups
            .retain(|failures| !failures.units.is_empty());
        let step = self.reconcile_step_of(Some(connection));
        self.publication.sl_ref_repairs = self.sl_ref_repairs_of(Some(connection));
        self.reconcile_unit = step;
        self.inputs
            .projected
            .retain(|projected| projected.is_of(Some(connection)));
        self.units.retain(|unit| is_of(Some(unit)));
        self.inputs
            .sources
            .retain(|source| source.connection == connection);
        self.shared_files
            .retain(|file| self.units.iter().any(|unit| file.units.contains(&unit.key)));
        let is_own = |unit: &str| self.units.iter().any(|own| own.key.as_str() == unit);
        let sources = format!("semantic-layer/{connection}/");
        self.artifacts.list.retain(|artifact| {
            artifact.path.starts_with(&sources)
                || artifact.writers.iter().any(|writer| is_own(&writer.unit))
        });
        self.artifacts
            .coverage
            .retain(|source| source.connection == connection);
        self.totals = totals(&self.units);
        Ok(self)
    }

    /// The reconcile step with its actions and decisions that concern `connection`; with all of them if `connection` is
    /// `None`.
    pub fn reconcile_step_of(&self, connection: Option<&str>) -> Option<UnitReport> {
        let step = self.reconcile_unit()?;
        Some(connection.map_or_else(
            || step.clone(),
            |connection| ConnectionFilter::new(self, connection).step(step),
        ))
    }

    /// References that were deleted from pages because of `connection`.
    pub fn sl_ref_repairs_of(&self, connection: Option<&str>) -> Vec<Arc<SlRefRepair>> {
        let Some(connection) = connection else {
            return self.publication.sl_ref_repairs.clone();
        };
        let filter = ConnectionFilter::new(self, connection);
        self.publication
            .sl_ref_repairs
            .iter()
            .filter(|repair| filter.covers_repair(self, repair))
            .cloned()
            .collect()
    }
}
