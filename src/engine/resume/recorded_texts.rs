//! Texts of a prior run. No source contains them, so they are planned from its record. Must not judge units.

use crate::{
    diagnostic::Problem,
    ingest::{
        plan::UnitSelection,
        text_input::{TextInput, TextInputs},
    },
    run::RunState,
};

/// The texts of a run and the selection of their connection; `None` if the run had none.
///
/// # Errors
/// If the record contains an invalid text.
pub(super) fn find(state: &RunState) -> Result<Option<(UnitSelection, TextInputs)>, Problem> {
    let mut texts = Vec::new();
    let mut selection = UnitSelection::default();
    for unit in state.units.iter().filter_map(|unit| unit.planned.as_deref()) {
        let Some(text) = &unit.text else { continue };
        texts.push(TextInput::recorded(unit.label.as_deref().unwrap_or(unit.unit.as_str()), text)?);
        if selection.connections.is_empty() && !unit.connection.is_empty() {
            selection.connections.push(unit.connection.clone());
        }
    }
    Ok(if texts.is_empty() { None } else { Some((selection, TextInputs::collect(texts)?)) })
}
