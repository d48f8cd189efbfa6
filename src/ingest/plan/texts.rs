//! The plan of texts that the user gives to a run: one unit for each text, whatever the connections contain.

use super::{
    IngestPlan, PlanError, Project, UnitSelection, UnitSelector, WorkUnit, check_connections_exist,
    known_names,
};
use crate::{
    capture_signals,
    source::VerbatimDocument,
    text_input::{TEXT_ADAPTER, TextInput, TextInputs, TextMode},
    verbatim::{PageState, page_state},
    wiki::{Wiki, page_path},
    workspace::Workspace,
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
    if inputs.mode == TextMode::Verbatim {
        return plan_documents(project, selection, inputs);
    }
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
    for (TextInput { label, content, .. }, key) in inputs.texts.into_iter().zip(keys) {
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

/// Plans a page for each text. Those whose page holds them already are warnings.
fn plan_documents(
    project: &Project,
    selection: &UnitSelection,
    inputs: TextInputs,
) -> Result<IngestPlan, PlanError> {
    let mut planned = IngestPlan {
        selection: selection.clone(),
        is_of_texts: true,
        ..IngestPlan::default()
    };
    let current = Workspace::read_only(&project.root);
    let duplicates = inputs.duplicates.into_iter().map(Problem::new);
    planned.warnings.extend(duplicates);
    for text in inputs.texts {
        let connection = selection.connections.first().map(String::as_str);
        let document =
            VerbatimDocument::of_text(&text.label, text.is_file, &text.content, connection)
                .map_err(PlanError::UnusableText)?;
        let page = &document.page;
        let refused = |why: &str| {
            let problem = format!("cannot keep {} verbatim: page `{page}`: {why}", text.label);
            PlanError::UnusableText(Problem::new(problem).with_help(TEXT_PAGE_HELP))
        };
        if let Some(other) = planned.documents.iter().find(|other| other.page == *page) {
            return Err(refused(&format!("it would hold {} too", other.path)));
        }
        let failed = |error: std::io::Error| refused(&error.to_string());
        let existing = current.peek(&page_path(page)).map_err(failed)?;
        let new = document.text.as_deref().unwrap_or_default();
        match existing.map(|existing| page_state(&existing, new, None)) {
            None => match Wiki(&current).key_conflict(page).map_err(failed)? {
                Some(why) => return Err(refused(&why)),
                None => planned.documents.push(document),
            },
            Some(PageState::Other(why)) => return Err(refused(&why)),
            // Without the name of a document, no page is outdated.
            Some(PageState::Current | PageState::Outdated) => {
                let held = format!("{} is left out: page `{page}` holds it already", text.label);
                planned.warnings.push(Problem::new(held));
            }
        }
    }
    Ok(planned)
}

/// The remedy for a text whose page exists.
const TEXT_PAGE_HELP: &str = "remove the page or give the text another name; pages of a `docs` connection with \
    `verbatim: true` follow edits of their files";
