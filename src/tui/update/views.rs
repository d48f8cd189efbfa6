//! The stack of views: what is opened on top of what, and the way back.

use super::{causes, compare, inspect, listing, orders, time};
use crate::{
    run::state::Story,
    tui::model::{EntryView, List, Model, Pane, Subject, Transcript, View},
};

pub(super) fn open(model: &mut Model, story: &Story) {
    if let Some(View::Inspect(view)) = model.views.last_mut() {
        inspect::enter(view);
        return;
    }
    if let Some(View::Compare(_)) = model.views.last() {
        compare::enter(model);
        return;
    }
    let view = match model.views.last() {
        Some(View::Transcript(view)) => {
            let Some(lane) = view.lane(story).filter(|lane| !story.entries(*lane).is_empty()) else { return };
            View::Entry(EntryView::new(view.unit.clone(), lane, Subject::Entry(view.list.selected)))
        }
        Some(View::Entry(_) | View::Help(_) | View::Inspect(_) | View::Compare(_)) => return,
        Some(View::Causes(_)) => return causes::open(model, story),
        Some(View::Breakpoints(_)) => {
            time::toggle(model);
            return;
        }
        Some(View::Log(list)) => {
            // To the unit that the remark is about.
            let about = story.remarks().get(list.selected).and_then(|remark| remark.unit.clone());
            if let Some(place) = about.and_then(|key| story.state.units.iter().position(|unit| unit.key == key)) {
                model.views.pop();
                model.deck.auto = false;
                (model.deck.unit, model.deck.attempt) = (place, None);
            }
            return;
        }
        Some(View::Grid) | None => {
            model.deck.auto = false;
            let Some(unit) = model.unit(story) else {
                orders::nobody(model);
                return;
            };
            let Some((index, attempt)) = model.attempt(story) else {
                let text = format!("{} has not run yet", unit.key);
                model.say(text);
                return;
            };
            match model.deck.focus {
                _ if !model.views.is_empty() => {
                    model.grid.look(Some(unit));
                    View::Transcript(Transcript { unit: unit.key.clone(), attempt: index, list: List::following() })
                }
                Pane::Units => {
                    View::Transcript(Transcript { unit: unit.key.clone(), attempt: index, list: List::following() })
                }
                Pane::Stream if story.rows(attempt.lane).is_empty() => return,
                Pane::Stream => View::Entry(EntryView::new(
                    unit.key.clone(),
                    attempt.lane,
                    Subject::Row(model.deck.stream.selected),
                )),
            }
        }
    };
    model.views.push(view);
}

pub(super) fn back(model: &mut Model, story: &Story) {
    model.pending.clear();
    if let Some(View::Inspect(view)) = model.views.last_mut()
        && inspect::back(view)
    {
        return;
    }
    if model.views.pop().is_some() {
        return;
    }
    if model.search.take().is_some() {
        model.searching = false;
    } else if listing::clear(model, story) {
        // The filter is gone, and that is enough for one key.
    } else if model.deck.zoom {
        model.deck.zoom = false;
    } else {
        model.deck.focus = Pane::Units;
    }
}

pub(super) fn toggle(model: &mut Model, view: View, is_it: impl Fn(&View) -> bool) {
    if model.views.last().is_some_and(&is_it) {
        model.views.pop();
    } else {
        model.views.retain(|view| !is_it(view));
        model.views.push(view);
    }
}
