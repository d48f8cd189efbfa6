//! The plan of texts that the user gives to a run: one unit for each text, whatever the connections contain.

use super::{
    IngestPlan, PlanError, Project, UnitSelection, UnitSelector, WorkUnit, check_connections_exist,
    known_names,
};
use crate::{
    capture_signals,
    text_input::{TEXT_ADAPTER, TextInput, TextInputs},
};
use ingestdeck_core::{diagnostic::Problem, tape::note::PlannedUnit};

/// Plans a unit for each text that `selection` includes. Its connection, if it names one, is that of the sources that
/// the units may write.
///
/// # Errors
/// If the connection or a selected unit does not exist.
pub fn plan_texts(
    project: &Project,
    selection: &UnitSelection,
    inputs: TextInputs,
) -> Result<IngestPlan, PlanError> {
    check_connections_exist(project, &selection.connections)?;
    let wanted = UnitSelector::from_selection(selection)?;
    let connection = selection.connections.first().cloned().unwrap_or_default();
    let keys = inputs.keys();
    let mut planned = IngestPlan {
        selection: selection.clone(),
        is_of_texts: true,
        ..IngestPlan::default()
    };
    planned
        .warnings
        .extend(inputs.duplicates.into_iter().map(Problem::new));
    if !selection.only.is_empty() && !keys.iter().any(|key| wanted.selects((key, key))) {
        let units = known_names(keys.iter().map(String::as_str));
        return Err(PlanError::NoSuchUnit {
            patterns: selection.only.join(", "),
            units,
        });
    }
    for (TextInput { label, content }, key) in inputs.texts.into_iter().zip(keys) {
        if !wanted.selects((&key, &key)) {
            continue;
        }
        if let Some(reason) = capture_signals::skip_reason(&content) {
            planned
                .warnings
                .push(Problem::new(format!("{label} is skipped: {reason}")));
            continue;
        }
        let unit = PlannedUnit {
            unit: key.as_str().into(),
            connection: connection.clone(),
            adapter: TEXT_ADAPTER.to_owned(),
            label: Some(label),
            why: "the text was given to the run".to_owned(),
            bytes: Some(content.len() as u64),
            text: Some(content),
            ..PlannedUnit::default()
        };
        planned.units.push(WorkUnit {
            planned: unit,
            ..WorkUnit::default()
        });
    }
    Ok(planned)
}
