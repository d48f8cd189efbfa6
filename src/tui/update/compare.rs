//! Moving about between two attempts: which two, which call, from one difference to the next.

use super::find;
use crate::{
    run::state::Story,
    tui::{
        effect::Effect,
        load::align::How,
        model::{Compare, EntryView, Inspect, Model, Transcript, View},
    },
};

/// Opens the comparison of the selected unit's last two attempts, or closes it.
pub(super) fn open(model: &mut Model, story: &Story) {
    let unit = match model.views.last() {
        Some(View::Compare(_)) => {
            model.views.pop();
            return;
        }
        Some(View::Help(_) | View::Log(_) | View::Breakpoints(_)) => return,
        Some(View::Inspect(view)) => view.unit(story),
        Some(View::Transcript(Transcript { unit, .. }) | View::Entry(EntryView { unit, .. })) => {
            story.state.units.iter().find(|known| known.key == *unit)
        }
        Some(View::Causes(_) | View::Grid) => super::orders::target(model, story),
        None => model.unit(story),
    };
    let Some(unit) = unit else {
        super::orders::nobody(model);
        return;
    };
    let (key, attempts) = (unit.key.clone(), unit.attempts.len());
    model.deck.auto = false;
    match attempts {
        0 => model.say(format!("{key} has not run yet")),
        1 => model.say(format!("{key} has one attempt; there is nothing to compare it with")),
        attempts => model.views.push(View::Compare(Box::new(Compare::new(key, attempts)))),
    }
}

pub(super) fn ends(view: &mut Compare, last: bool) {
    let len = view.known();
    view.list.select(if last { len } else { 0 }, len);
}

pub(super) fn sideways(model: &mut Model, story: &Story, forward: bool) {
    let Some(View::Compare(view)) = model.views.last_mut() else { return };
    if !view.turn(story, forward) {
        model.say(if forward { "there is no newer attempt" } else { "there is no older attempt" });
    }
}

/// The next or the previous pair that differs.
pub(super) fn difference(model: &mut Model, forward: bool) {
    let Some(View::Compare(view)) = model.views.last_mut() else { return };
    let pairs = view.pairs.as_deref().unwrap_or_default();
    let hit = find::nearest(pairs.len(), view.list.selected, forward, |pair| pairs[pair].how != How::Same);
    match hit {
        Some(hit) => view.list.select(hit, pairs.len()),
        None => model.say("their calls do not differ"),
    }
}

/// The row of the selected pair on the side that has the keys, else on the other one: side and row.
pub(super) fn chosen(view: &Compare) -> Option<(usize, usize)> {
    let pair = view.pairs.as_ref()?.get(view.list.selected)?;
    let rows = [pair.left, pair.right];
    [view.side, 1 - view.side].into_iter().find_map(|side| Some((side, rows[side]?)))
}

/// Opens the selected call in the inspector.
pub(super) fn enter(model: &mut Model) {
    let Some(View::Compare(view)) = model.views.last() else { return };
    let Some((side, row)) = chosen(view) else { return };
    let inspect = Inspect::new(view.unit.clone(), view.sides[side], Some(row));
    model.views.push(View::Inspect(Box::new(inspect)));
}

/// The lines behind the selected call.
pub(super) fn copy(view: &Compare, story: &Story) -> Vec<Effect> {
    let found = chosen(view).and_then(|(side, row)| {
        let lane = view.attempts(story)?[side].lane;
        story.rows(lane).get(row)
    });
    found.map_or_else(Vec::new, |row| super::orders::copy_row(story, row))
}
