//! What the table of units lists: filters, order and headings, by keys and by what is typed.

use crate::{
    run::state::Story,
    tui::{
        action::Action,
        model::{Filter, Model, Pane, Purpose, Typing},
    },
};

/// Another filter or order. Does nothing where no table is shown.
pub(super) fn change(model: &mut Model, story: &Story, action: Action) {
    if !model.views.is_empty() {
        return;
    }
    let listing = &mut model.deck.listing;
    match action {
        Action::Filter => listing.filter = listing.filter.next(),
        Action::FilterText => {
            model.typing = Some(Typing { text: listing.text.clone(), purpose: Purpose::FilterUnits });
        }
        Action::Sort => {
            listing.sort = listing.sort.next();
            listing.reverse = false;
        }
        Action::Reverse => listing.reverse = !listing.reverse,
        Action::Group => listing.grouped = !listing.grouped,
        _ => return,
    }
    model.deck.focus = Pane::Units;
    model.deck.listing.refresh(&story.state);
}

/// Lists the units that contain `text`.
pub(super) fn search(model: &mut Model, story: &Story, text: String) {
    if model.deck.listing.text != text {
        model.deck.listing.text = text;
        model.deck.listing.refresh(&story.state);
    }
}

/// The table follows what is typed, letter by letter.
pub(super) fn follow_typing(model: &mut Model, story: &Story) {
    if let Some(Typing { text, purpose: Purpose::FilterUnits }) = &model.typing {
        let text = text.clone();
        search(model, story, text);
    }
}

/// Lists all units again. False when all are listed.
pub(super) fn clear(model: &mut Model, story: &Story) -> bool {
    let listing = &mut model.deck.listing;
    let filtered = listing.is_filtered();
    if filtered {
        listing.filter = Filter::All;
        listing.text.clear();
        listing.refresh(&story.state);
    }
    filtered
}
