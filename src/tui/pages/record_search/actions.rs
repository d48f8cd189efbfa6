//! The search of all runs and sessions: typing the text, and opening what was found.

use super::RecordSearchPage;
use crate::{
    action::{Availability, require},
    effect::ScreenEffect,
    home_choice::{ChosenMoment, HomeChoice},
    model::{InputPurpose, LineInput},
    page::ScreenModel,
    record_matches::OpenSearch,
};
use ingestdeck_core::run::state::RunView;

/// Types the text of the page, which opens if it is not shown.
pub(crate) fn type_text(model: &mut ScreenModel, _: &RunView) {
    let text = match model.top::<RecordSearchPage>() {
        Some(page) => page.query.clone(),
        None => {
            model.close_every::<RecordSearchPage>();
            model.open(RecordSearchPage::default());
            String::new()
        }
    };
    model.dialogs.line_input = Some(LineInput {
        text,
        purpose: InputPurpose::FindInRecords,
    });
}

/// Searches for what was typed.
pub(crate) fn search_while_typing(model: &mut ScreenModel) -> Option<ScreenEffect> {
    let typed = model.dialogs.line_input.as_ref();
    let typed = typed.filter(|typed| typed.purpose == InputPurpose::FindInRecords)?;
    let text = typed.text.clone();
    let page = model.top_mut::<RecordSearchPage>()?;
    (page.query != text).then(|| {
        page.query.clone_from(&text);
        ScreenEffect::FindInRecords(text)
    })
}

/// Ends typing, and closes a page that has nothing to show.
pub(crate) fn dismiss(model: &mut ScreenModel) {
    let page = model.top::<RecordSearchPage>();
    if page.is_some_and(|page| page.found.rows.is_empty()) {
        model.close();
    }
}

/// Selects the next or previous row while the text is typed.
pub(crate) fn step(model: &mut ScreenModel, forward: bool) {
    if let Some(page) = model.top_mut::<RecordSearchPage>() {
        let len = page.found.rows.len();
        page.list.step(if forward { 1 } else { -1 }, len);
    }
}

pub(super) fn has_rows(model: &ScreenModel, _: &RunView) -> Availability {
    let page = model.top::<RecordSearchPage>();
    require(page.is_some_and(|page| page.selected().is_some()))
}

/// Opens the record of the selected row at that moment.
pub(crate) fn open(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    let Some(page) = model.top::<RecordSearchPage>() else {
        return Vec::new();
    };
    // Rows of an earlier text are not what was looked for.
    let Some(row) = page.selected().filter(|_| !page.is_outdated()) else {
        return Vec::new();
    };
    let moment = ChosenMoment {
        run: row.run.clone(),
        session: row.session.clone(),
        entry: row.entry,
        search: OpenSearch {
            found: page.found.clone(),
            selected: page.list.selected,
        },
    };
    vec![ScreenEffect::Choose(HomeChoice::Moment(Box::new(moment)))]
}
