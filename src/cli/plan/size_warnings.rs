//! Warnings of `plan` about units that are too large.

use ingestdeck_core::{
    text::{self, pluralize},
    units::token_estimate::BYTES_PER_TOKEN,
};
use ingestdeck_engine::resume::RunPlan;
use ingestdeck_ingest::{project::Project, work_unit::WorkUnit};

use super::MAX_NAMED;

/// What a unit can use.
#[derive(Clone, Copy)]
pub(super) struct UnitLimits {
    /// Turns of its agent.
    turns: u32,
    /// Size of its raw files.
    bytes: u64,
}

impl UnitLimits {
    pub(super) fn new(project: &Project) -> Self {
        Self {
            turns: project.settings.work_units.step_budget,
            bytes: project.unit_bytes,
        }
    }
}

/// A warning if `unit` might need more than `turns`. It is only an estimate, because an agent may read several files in
/// a turn.
fn turn_warning(unit: &WorkUnit, turns: u32) -> Option<String> {
    let (planned, calls) = (&unit.planned, unit.min_read_calls());
    (calls > u64::from(turns)).then(|| {
        let (files, bytes) =
            (pluralize(planned.raw_files.len(), "file"), planned.bytes.map_or_else(|| "?".into(), text::size));
        format!(
            "unit {} might need more than {}: reading its {files} ({bytes}) takes {calls} calls; raise \
             ingest.workUnits.stepBudget in ktx.yaml",
            planned.unit,
            pluralize(turns as usize, "turn")
        )
    })
}

/// A warning if the files of `unit` exceed the share of the context and cannot be split.
fn size_warning(unit: &WorkUnit, limit: u64) -> Option<String> {
    let bytes = unit.planned.bytes?;
    (bytes > limit).then(|| {
        format!(
            "unit {} has {} of files, about {} tokens, more than ingest.max_unit_share of the context of a model, and cannot be \
             split: the agent reads them in parts and may lose what it read first; divide the files",
            unit.planned.unit,
            text::size(bytes),
            text::count(bytes / BYTES_PER_TOKEN)
        )
    })
}

/// What may be wrong with the size of a unit.
pub(super) fn unit_warnings(unit: &WorkUnit, limits: UnitLimits) -> impl Iterator<Item = String> {
    let turns = turn_warning(unit, limits.turns);
    size_warning(unit, limits.bytes).into_iter().chain(turns)
}

/// Warnings about the first units that are too large, and the number of the others.
pub(super) fn all_unit_warnings(taken: &RunPlan, limits: UnitLimits) -> Vec<String> {
    let units = taken.units_to_run();
    let mut warnings: Vec<String> = units.flat_map(|unit| unit_warnings(unit, limits)).collect();
    let more = warnings.len().saturating_sub(MAX_NAMED);
    warnings.truncate(MAX_NAMED);
    if more > 0 {
        warnings.push(format!(
            "{} about the size of units",
            pluralize(more, "more warning")
        ));
    }
    warnings
}
