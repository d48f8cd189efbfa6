//! Bookmarks: marking the selected row or the moment that is shown, and the list.

use super::BookmarksPage;
use crate::{
    action::{Availability, Unavailable, UserAction, require},
    effect::ScreenEffect,
    model::{InputPurpose, LineInput, ScrollList},
    moment,
    page::ScreenModel,
};
use ingestdeck_core::run::{
    SeekTarget,
    bookmark::{Bookmark, BookmarkChange, MAX_BOOKMARKS},
    state::RunView,
};

pub(crate) fn can_bookmark(model: &ScreenModel, run_view: &RunView) -> Availability {
    have_numbers(model)?;
    let Some(bookmark) = here(model, run_view) else {
        return Err(Unavailable::because("nothing is recorded yet"));
    };
    match model.playhead.bookmarks.list.len() >= MAX_BOOKMARKS && known(model, &bookmark).is_none()
    {
        true => Err(Unavailable::because(format!(
            "there are {MAX_BOOKMARKS} bookmarks already; delete one first"
        ))),
        false => Ok(()),
    }
}

/// Of the selected row, where rows are selected; otherwise of the moment that is shown.
fn here(model: &ScreenModel, run_view: &RunView) -> Option<Bookmark> {
    let page = model.page();
    page.moment(model, run_view)
        .or_else(|| moment::of_now(run_view, page.unit(model, run_view)))
}

/// The bookmark at the same moment.
fn known<'a>(model: &'a ScreenModel, bookmark: &Bookmark) -> Option<&'a Bookmark> {
    model
        .playhead
        .bookmarks
        .list
        .iter()
        .find(|known| known.is_same_moment(bookmark))
}

/// Asks for the note of a bookmark here; a bookmark that exists keeps its note as the start.
pub(crate) fn edit(model: &mut ScreenModel, run_view: &RunView) {
    let Some(bookmark) = here(model, run_view) else {
        return;
    };
    let bookmark = known(model, &bookmark).cloned().unwrap_or(bookmark);
    ask(model, bookmark);
}

fn ask(model: &mut ScreenModel, bookmark: Bookmark) {
    let text = bookmark.note.clone();
    model.dialogs.line_input = Some(LineInput {
        text,
        purpose: InputPurpose::Bookmark(Box::new(bookmark)),
    });
}

/// Adds a bookmark with this note, or changes the note.
pub(crate) fn save(model: &mut ScreenModel, bookmark: Bookmark, note: &str) -> Vec<ScreenEffect> {
    let bookmark = Bookmark {
        note: note.trim().to_owned(),
        ..bookmark
    };
    let what = if known(model, &bookmark).is_some() {
        "bookmark changed"
    } else {
        "bookmark added"
    };
    let key = model
        .keymap
        .first(UserAction::Bookmarks)
        .unwrap_or_default();
    model.toasts.show(format!("{what}; {key} lists all"));
    vec![ScreenEffect::ChangeBookmarks(BookmarkChange::Set(bookmark))]
}

/// Adds a bookmark here with a note from the command line.
pub(crate) fn add(model: &mut ScreenModel, run_view: &RunView, note: &str) -> Vec<ScreenEffect> {
    here(model, run_view).map_or_else(Vec::new, |bookmark| save(model, bookmark, note))
}

/// The selected bookmark, while the list is shown.
fn selected(model: &ScreenModel) -> Option<&Bookmark> {
    let page = model.top::<BookmarksPage>()?;
    model.playhead.bookmarks.list.get(page.0.selected)
}

/// `Ok` if a bookmark is selected in the list.
pub(super) fn is_selected(model: &ScreenModel, _: &RunView) -> Availability {
    require(selected(model).is_some())
}

/// `Ok` if the moment of the selected bookmark is known.
pub(super) fn can_go_to_selected(model: &ScreenModel, run_view: &RunView) -> Availability {
    have_numbers(model)?;
    is_selected(model, run_view)
}

/// `Ok` once the numbers of the entries are certain.
fn have_numbers(model: &ScreenModel) -> Availability {
    match model.playhead.bounds.is_provisional {
        true => Err(Unavailable::because("the session is still being read")),
        false => Ok(()),
    }
}

/// Edits the note of the selected bookmark.
pub(super) fn edit_selected(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    if let Some(bookmark) = selected(model).cloned() {
        ask(model, bookmark);
    }
    Vec::new()
}

pub(super) fn delete_selected(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    let bookmark = selected(model).cloned();
    bookmark
        .map(|bookmark| ScreenEffect::ChangeBookmarks(BookmarkChange::Remove(bookmark)))
        .into_iter()
        .collect()
}

/// Shows the moment of the selected bookmark on the page of units, with its unit selected.
pub(super) fn go_to_selected(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let Some(bookmark) = selected(model).cloned() else {
        return Vec::new();
    };
    model.close_all();
    let place = bookmark
        .unit
        .and_then(|key| run_view.state.units.iter().position(|unit| unit.key == key));
    if let Some((place, unit)) =
        place.and_then(|place| Some((place, run_view.state.units.get(place)?)))
    {
        let attempt = unit
            .attempts
            .iter()
            .position(|attempt| Some(attempt.number) == bookmark.attempt);
        model.select_unit(place);
        if model.units_view.listing.rank(place).is_none() {
            model.clear_filter(run_view);
        }
        // The newest attempt is followed.
        model.units_view.attempt = attempt.filter(|index| index + 1 < unit.attempts.len());
        model.units_view.stream = ScrollList::following();
    }
    let target = SeekTarget::Entries(bookmark.entry.0.saturating_add(1));
    model.pause_and_seek(ScreenEffect::Seek(target))
}
