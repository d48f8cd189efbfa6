//! Plans of texts that the user gave to a run: to this one, or to the prior run that it continues. No source contains
//! them, so those of a prior run are read from its record. Must not judge units.

use super::{ResumeError, RunPlan};
use ingestdeck_core::{diagnostic::Problem, run::RunState};
use ingestdeck_ingest::{
    plan::{UnitSelection, plan_texts},
    project::Project,
    text_input::{TextInput, TextInputs, TextMode},
};

/// Plans new texts. Prior runs do not affect them: who gives a text again wants it captured again.
///
/// # Errors
/// If the selection names something that does not exist.
pub fn plan_new_texts(
    project: &Project,
    selection: &UnitSelection,
    texts: TextInputs,
) -> Result<RunPlan, ResumeError> {
    let planned = plan_texts(project, selection, texts)?;
    let is_empty = planned.units.is_empty() && planned.documents.is_empty();
    Ok(RunPlan {
        planned,
        continues: None,
        efforts: Default::default(),
        unsaved_run: None,
        empty_reason: is_empty.then(|| "there is nothing to capture".to_owned()),
        is_ktx_locked: false,
        review: None,
        branch: None,
        is_reviewed: false,
        projected: Vec::new(),
        committed: None,
        sessions: Vec::new(),
    })
}

/// The texts of a run and the selection of their connection; `None` if the run had none.
///
/// # Errors
/// If the record contains an invalid text.
pub(super) fn find_recorded(
    state: &RunState,
) -> Result<Option<(UnitSelection, TextInputs)>, Problem> {
    let mut texts = Vec::new();
    let mut selection = UnitSelection::default();
    for unit in state
        .units
        .iter()
        .filter_map(|unit| unit.planned.as_deref())
    {
        let Some(text) = &unit.text else { continue };
        texts.push(TextInput::recorded(
            unit.label.as_deref().unwrap_or(unit.unit.as_str()),
            text,
        )?);
        if selection.connections.is_empty() && !unit.connection.is_empty() {
            selection.connections.push(unit.connection.clone());
        }
    }
    Ok(if texts.is_empty() {
        None
    } else {
        Some((selection, TextInputs::collect(texts, TextMode::Captured)?))
    })
}
