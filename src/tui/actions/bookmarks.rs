//! Bookmarks: marking the selected row or the moment that is shown, and the list.

use super::{Availability, Unavailable, listing, navigation::select_unit, require, time, units};
use crate::{
    effect::ScreenEffect,
    layout::Pane,
    model::{InputPurpose, LineInput, OverlayView, ScreenModel, ScrollList},
};
use ingestdeck_core::{
    run::{
        SeekTarget,
        bookmark::{Bookmark, BookmarkChange, MAX_BOOKMARKS},
        state::{AttemptId, RunView, UnitState},
    },
    tape::{Millis, Seq},
};

/// The entry that a bookmark marks now, and its unit with the number of the attempt.
type BookmarkedPlace<'a> = (Seq, Option<(&'a UnitState, Option<u32>)>);

pub(super) fn can_bookmark(model: &ScreenModel, run_view: &RunView) -> Availability {
    let is_list = matches!(
        model.views.last(),
        Some(
            OverlayView::Help(_)
                | OverlayView::Breakpoints(_)
                | OverlayView::Bookmarks(_)
                | OverlayView::Home(_)
                // A file of a review is not a moment of the run.
                | OverlayView::Review(_)
        )
    );
    require(!is_list)?;
    let Some(place) = place(model, run_view) else {
        return Err(Unavailable::because("nothing is recorded yet"));
    };
    match model.playhead.bookmarks.list.len() >= MAX_BOOKMARKS && known(model, &at(place)).is_none()
    {
        true => Err(Unavailable::because(format!(
            "there are {MAX_BOOKMARKS} bookmarks already; delete one first"
        ))),
        false => Ok(()),
    }
}

/// The selected row, where rows are selected; otherwise the moment that is shown, with the unit that commands apply to.
fn place<'a>(model: &ScreenModel, run_view: &'a RunView) -> Option<BookmarkedPlace<'a>> {
    let now = run_view.state.entries;
    let row = |attempt_id: AttemptId, index: usize| {
        let row = run_view.rows(attempt_id).get(index)?;
        // A call is marked with its result.
        Some((
            row.last(now).unwrap_or(row.first()),
            owner(run_view, attempt_id),
        ))
    };
    let entry = |attempt_id: AttemptId, index: usize| {
        let entry = run_view.entries(attempt_id).get(index)?;
        Some((Seq(u64::from(*entry)), owner(run_view, attempt_id)))
    };
    let selected = match model.views.last() {
        Some(OverlayView::Transcript(view)) => view
            .attempt_id(run_view)
            .and_then(|attempt_id| entry(attempt_id, view.list.selected)),
        Some(OverlayView::Entry(view)) => entry(view.attempt_id, view.entry),
        Some(OverlayView::Inspect(view)) => view
            .attempt_id(run_view)
            .and_then(|attempt_id| row(attempt_id, view.actions.selected)),
        Some(OverlayView::Log(list)) => run_view.messages().get(list.selected).map(|message| {
            let unit = run_view
                .state
                .units
                .iter()
                .find(|unit| Some(&unit.key) == message.unit.as_ref());
            (message.seq, unit.map(|unit| (unit, None)))
        }),
        None if model.units_view.focus == Pane::Stream => model
            .units_view
            .attempt_id
            .and_then(|attempt_id| row(attempt_id, model.units_view.stream.selected)),
        _ => None,
    };
    selected.or_else(|| {
        let unit = units::target(model, run_view);
        let unit = unit.map(|unit| (unit, unit.latest().map(|attempt| attempt.number)));
        Some((Seq(now.checked_sub(1)?), unit))
    })
}

fn owner(run_view: &RunView, id: AttemptId) -> Option<(&UnitState, Option<u32>)> {
    run_view.state.units.iter().find_map(|unit| {
        let attempt = unit.attempts.iter().find(|attempt| attempt.id == id)?;
        Some((unit, Some(attempt.number)))
    })
}

/// A bookmark at a place. Its time is read when it is saved.
fn at((entry, unit): BookmarkedPlace<'_>) -> Bookmark {
    let attempt = unit.and_then(|(_, attempt)| attempt);
    Bookmark {
        entry,
        at: Millis(0),
        unit: unit.map(|(unit, _)| unit.key.clone()),
        attempt,
        note: String::new(),
    }
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
pub(super) fn edit(model: &mut ScreenModel, run_view: &RunView) {
    let Some(bookmark) = place(model, run_view).map(at) else {
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
pub(super) fn save(model: &mut ScreenModel, bookmark: Bookmark, note: &str) -> Vec<ScreenEffect> {
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
        .first(crate::action::UserAction::Bookmarks)
        .unwrap_or_default();
    model.toasts.show(format!("{what}; {key} lists all"));
    vec![ScreenEffect::ChangeBookmarks(BookmarkChange::Set(bookmark))]
}

/// Adds a bookmark here with a note from the command line.
pub(super) fn add(model: &mut ScreenModel, run_view: &RunView, note: &str) -> Vec<ScreenEffect> {
    place(model, run_view)
        .map(at)
        .map_or_else(Vec::new, |bookmark| save(model, bookmark, note))
}

/// The selected bookmark, while the list is shown.
fn selected(model: &ScreenModel) -> Option<&Bookmark> {
    match model.views.last() {
        Some(OverlayView::Bookmarks(list)) => model.playhead.bookmarks.list.get(list.selected),
        _ => None,
    }
}

/// True while the list is shown.
pub(super) fn is_shown(model: &ScreenModel) -> bool {
    matches!(model.views.last(), Some(OverlayView::Bookmarks(_)))
}

/// `Ok` if a bookmark is selected in the list.
pub(super) fn is_selected(model: &ScreenModel) -> Availability {
    require(selected(model).is_some())
}

/// Edits the note of the selected bookmark.
pub(super) fn edit_selected(model: &mut ScreenModel) {
    if let Some(bookmark) = selected(model).cloned() {
        ask(model, bookmark);
    }
}

pub(super) fn delete_selected(model: &mut ScreenModel) -> Vec<ScreenEffect> {
    let bookmark = selected(model).cloned();
    bookmark
        .map(|bookmark| ScreenEffect::ChangeBookmarks(BookmarkChange::Remove(bookmark)))
        .into_iter()
        .collect()
}

/// Shows the moment of the selected bookmark in the main view, with its unit selected.
pub(super) fn go_to_selected(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let Some(bookmark) = selected(model).cloned() else {
        return Vec::new();
    };
    model.views.clear();
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
        select_unit(model, place);
        if model.units_view.listing.rank(place).is_none() {
            listing::clear(model, run_view);
        }
        // The newest attempt is followed.
        model.units_view.attempt = attempt.filter(|index| index + 1 < unit.attempts.len());
        model.units_view.stream = ScrollList::following();
    }
    time::pause_and_seek(
        model,
        ScreenEffect::Seek(SeekTarget::Entries(bookmark.entry.0.saturating_add(1))),
    )
}
