//! The listing of the unit table: filters, order and headings, by keys and by typed text.

use super::command_line::ViewRequest;
use crate::{
    action::{Availability, require},
    layout::Pane,
    model::{InputPurpose, LineInput, UnitSort},
    page::ScreenModel,
    pages::{artifacts::ArtifactsPage, recent::RecentPage},
};
use ingestdeck_core::{
    diagnostic::{Diagnostic as _, Problem},
    run::state::RunView,
    text,
};

/// Largest number of saved views of a project, and of characters in the name of one.
const MAX_VIEWS: usize = 50;
const MAX_NAME_CHARS: usize = 40;

pub(crate) fn is_shown(model: &ScreenModel, _: &RunView) -> Availability {
    require(model.is_bottom())
}

/// True if the filter of the table decides what is shown.
pub(crate) fn filters_units(model: &ScreenModel, _: &RunView) -> Availability {
    require(model.is_bottom() || model.top::<RecentPage>().is_some())
}

/// Selects the next filter of the table.
pub(crate) fn cycle_filter(model: &mut ScreenModel, run_view: &RunView) {
    model.change_listing(run_view, |listing| listing.filter = listing.filter.cycle());
}

/// Orders by a column, or reverses its order.
pub(crate) fn sort_by(model: &mut ScreenModel, run_view: &RunView, sort: UnitSort) {
    model.change_listing(run_view, |listing| {
        let is_repeated = listing.sort == sort;
        (listing.sort, listing.is_reversed) = (sort, is_repeated && !listing.is_reversed);
    });
}

/// Lets the user type the text that listed units contain.
pub(crate) fn type_filter(model: &mut ScreenModel, _: &RunView) {
    let text = model.units_view.listing.text.to_string();
    model.dialogs.line_input = Some(LineInput {
        text,
        purpose: InputPurpose::FilterUnits,
    });
    model.units_view.focus = Pane::Units;
}

/// Lists the units or artifacts that contain `text`.
pub(crate) fn filter_by_text(model: &mut ScreenModel, run_view: &RunView, text: String) {
    if let Some(page) = model.top_mut::<ArtifactsPage>() {
        page.set_filter(page.filter, text);
        return;
    }
    if model.units_view.listing.text.as_str() != text {
        model.units_view.listing.text = text.into();
        model.search.matches = None;
        model.units_view.listing.refresh(&run_view.state);
    }
}

/// Shows, saves, deletes or lists saved arrangements of the table.
///
/// # Errors
/// If there is no view with the name, there are too many, or the table is not shown.
pub(crate) fn view(
    model: &mut ScreenModel,
    run_view: &RunView,
    request: ViewRequest,
) -> Result<(), Problem> {
    let names = |model: &ScreenModel| {
        let names: Vec<&str> = model.dialogs.views.keys().map(String::as_str).collect();
        match names.as_slice() {
            [] => "no view is saved; `view save NAME` saves one".to_owned(),
            names => format!("views: {}", names.join(", ")),
        }
    };
    let unknown = |model: &ScreenModel, name: &str| {
        Problem::new(format!(
            "no view `{}`",
            text::printable(name, MAX_NAME_CHARS)
        ))
        .with_help(names(model))
    };
    let (name, done) = match request {
        ViewRequest::List => {
            let names = names(model);
            model.toasts.show(names);
            return Ok(());
        }
        ViewRequest::Show(name) => {
            let Some(settings) = model.dialogs.views.get(&name).cloned() else {
                return Err(unknown(model, &name));
            };
            model.close_all();
            model.change_listing(run_view, |listing| listing.arrange(settings));
            return Ok(());
        }
        ViewRequest::Save(name) => {
            let is_known = model.dialogs.views.contains_key(&name);
            if name.chars().count() > MAX_NAME_CHARS {
                return Err(Problem::new(format!(
                    "the name is too long; the limit is {MAX_NAME_CHARS} characters"
                )));
            }
            if !is_known && model.dialogs.views.len() >= MAX_VIEWS {
                return Err(Problem::new(format!("there are {MAX_VIEWS} views already"))
                    .with_help("delete one first with `view delete NAME`"));
            }
            let settings = model.units_view.listing.settings();
            model.dialogs.views.insert(name.clone(), settings);
            (name, "saved")
        }
        ViewRequest::Delete(name) => {
            if model.dialogs.views.remove(&name).is_none() {
                return Err(unknown(model, &name));
            }
            (name, "deleted")
        }
    };
    model.toasts.show(format!("view `{name}` is {done}"));
    Ok(())
}

/// Filters by the typed text and closes its line. With an error, the line remains open.
pub(crate) fn accept_filter(model: &mut ScreenModel, run_view: &RunView, text: String) {
    filter_by_text(model, run_view, text.clone());
    if model.top::<ArtifactsPage>().is_some() {
        return;
    }
    let Some(error) = model.units_view.listing.text.error() else {
        return;
    };
    let error = error.to_line();
    model.dialogs.line_input = Some(LineInput {
        text,
        purpose: InputPurpose::FilterUnits,
    });
    model.toasts.show(error);
}

/// Filters the table while the user types.
pub(crate) fn filter_while_typing(model: &mut ScreenModel, run_view: &RunView) {
    if let Some(LineInput {
        text,
        purpose: InputPurpose::FilterUnits,
    }) = &model.dialogs.line_input
    {
        let text = text.clone();
        filter_by_text(model, run_view, text);
    }
}
