//! A unit of work with everything that an attempt at it needs.
//!
//! It must not know how the plan chooses units.

use serde::{Deserialize, Serialize};
use std::{path::PathBuf, sync::Arc};

use super::{
    reconcile::{PriorProvenance, StageIndex},
    source::{AssignedLines, find_adapter},
    source_diff::UnitChanges,
};
use ingestdeck_core::{
    run::state::RECONCILE_KEY,
    tape::{UnitKey, note::PlannedUnit},
};

/// Longest answer of a tool in characters. The agent program truncates answers above 50,000.
pub(crate) const MAX_ANSWER_CHARS: usize = 45_000;

/// A unit with all inputs of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkUnit {
    /// The part that is written to the tape.
    pub planned: PlannedUnit,
    /// Files that the prompt lists but the agent may not read.
    pub peer_file_index: Vec<Arc<str>>,
    /// Notes of the adapter for the agent.
    pub notes: Option<String>,
    /// The lines of one raw file that it ingests, if other units ingest the rest of it.
    #[serde(default)]
    pub assigned_lines: Option<AssignedLines>,
    /// Absolute directory that the paths are relative to.
    pub source_root: PathBuf,
    /// The source is outside the project, so the project's repository contains no copies of its files.
    pub is_external: bool,
    /// What earlier runs wrote from its raw files.
    pub prior_provenance: Vec<PriorProvenance>,
    /// What a reviewer of an earlier run did not accept of its changes.
    pub review_remarks: Option<String>,
    /// Size of the files that it may read in addition to its raw files.
    #[serde(skip)]
    pub dependency_bytes: u64,
    /// The changes because of which it runs.
    #[serde(skip)]
    pub changes: UnitChanges,
    /// Changes of the other units, for the reconcile step.
    pub stage_index: Option<Arc<StageIndex>>,
}

impl WorkUnit {
    /// Creates the work unit of the reconcile step. Its agent may read the raw files of all units.
    pub fn reconcile_step(stage: StageIndex) -> Self {
        let mut raw_files: Vec<String> = stage
            .units
            .iter()
            .flat_map(|unit| unit.raw_files.iter().cloned())
            .collect();
        raw_files.sort_unstable();
        raw_files.dedup();
        let planned = PlannedUnit {
            unit: UnitKey::from(RECONCILE_KEY),
            adapter: RECONCILE_KEY.into(),
            label: Some("Reconciliation".into()),
            raw_files,
            why: "runs after the units and reviews their changes".into(),
            ..PlannedUnit::default()
        };
        Self {
            planned,
            stage_index: Some(Arc::new(stage)),
            ..Self::default()
        }
    }

    /// True if it captures a text that the user gave to the run.
    pub fn is_text(&self) -> bool {
        self.planned.text.is_some()
    }

    /// The connection that it belongs to; `None` for the reconcile step, and for a text that is given without one.
    pub fn own_connection(&self) -> Option<&str> {
        Some(self.planned.connection.as_str()).filter(|connection| !connection.is_empty())
    }

    /// True if it may write sources of the semantic layer. A text without a connection only becomes wiki pages.
    pub fn may_write_sources(&self) -> bool {
        self.planned.sl_disallowed.is_none() && !(self.is_text() && self.own_connection().is_none())
    }

    /// Fewest tool calls that read its raw files completely: one per file, and one for each further page of a long
    /// file.
    pub fn min_read_calls(&self) -> u64 {
        // A text is part of the prompt.
        let bytes = self.planned.bytes.filter(|_| !self.is_text());
        let further = bytes.unwrap_or_default() / MAX_ANSWER_CHARS as u64;
        self.planned.raw_files.len() as u64 + further
    }

    /// Files that it may read for their content only, as the code of the models that its raw files describe.
    pub(crate) fn reading_aids(&self) -> impl Iterator<Item = &String> {
        let adapter = find_adapter(&self.planned.adapter);
        let paths = self.planned.dependency_paths.iter();
        paths.filter(move |path| adapter.is_some_and(|adapter| adapter.is_reading_aid(path)))
    }

    /// Its raw files and reading aids, each with the path of its copy in the commit of `sync`, where KTX stores it. Empty for an
    /// external source, because a push would publish its files.
    pub fn raw_copies(&self, sync: &str) -> impl Iterator<Item = (&str, String)> {
        let PlannedUnit {
            connection,
            adapter,
            raw_files,
            ..
        } = &self.planned;
        let place = format!("raw-sources/{connection}/{adapter}/{sync}");
        let files = raw_files.iter().chain(self.reading_aids());
        let committed = files.filter(|_| !self.is_external);
        committed.map(move |file| (file.as_str(), format!("{place}/{file}")))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::reconcile;

    #[test]
    fn code_of_models_is_copied_like_raw_files() {
        let planned = PlannedUnit {
            connection: "d".into(),
            adapter: "dbt".into(),
            raw_files: vec!["models/m.yml".into()],
            dependency_paths: vec!["dbt_project.yml".into(), "models/m.sql".into()],
            ..PlannedUnit::default()
        };
        let mut unit = WorkUnit {
            planned,
            ..WorkUnit::default()
        };
        let copies: Vec<String> = unit.raw_copies("s").map(|(_, copy)| copy).collect();
        let expected = ["models/m.yml", "models/m.sql"];
        assert_eq!(
            copies,
            expected.map(|file| format!("raw-sources/d/dbt/s/{file}"))
        );
        unit.is_external = true;
        assert_eq!(unit.raw_copies("s").count(), 0);
    }

    #[test]
    fn reconcile_unit_has_all_raw_files() {
        let stage = reconcile::tests::stage(Path::new("/raw"));
        assert_eq!(
            stage.resolve_raw_path("notes/sub/a.md"),
            Some((Path::new("/raw"), "sub/a.md"))
        );
        assert_eq!(
            (
                stage.resolve_raw_path("other/a.md"),
                stage.resolve_raw_path("a.md")
            ),
            (None, None)
        );
        let unit = WorkUnit::reconcile_step(stage);
        assert_eq!(unit.planned.unit.as_str(), RECONCILE_KEY);
        assert_eq!(
            unit.planned.raw_files,
            ["notes/a.md", "notes/b.md", "notes/c.md"]
        );
    }
}
