//! Messages → changes of the state and wishes to the world. Synchronous, total, and the only place that decides.
//!
//! It must not read a clock, a file or a terminal: what it needs comes in the message, what it wants goes out as data.

use super::{
    action::{Action, Scope},
    effect::{Effect, Step},
    handout::Tool,
    key::Key,
    keymap::Lookup,
    model::{Causes, EntryView, List, Model, Pane, Purpose, Subject, Transcript, Typing, View},
    msg::Msg,
};
use crate::run::{
    Moment,
    state::{RowEnd, Story},
};

mod amend;
mod causes;
pub(super) mod command;
mod compare;
pub(super) mod find;
pub(super) mod grid;
mod handout;
pub(super) mod hold;
mod inspect;
mod listing;
mod mouse;
mod orders;
mod time;

/// Characters of a typed line.
const MOST_TYPED: usize = 200;

/// Takes one message.
pub fn update(model: &mut Model, story: &Story, msg: Msg) -> Vec<Effect> {
    let effects = match msg {
        Msg::Key(key) => press(model, story, key),
        Msg::Paste(text) => {
            if let Some(form) = &mut model.amending {
                form.paste(&text);
            } else if let Some(editor) = &mut model.editor {
                editor.paste(&text);
            } else if let Some(typed) = &mut model.typing {
                typed.text.extend(text.chars().filter(|char| !char.is_control()).take(MOST_TYPED));
            }
            Vec::new()
        }
        Msg::Click { x, y } => mouse::click(model, story, x, y),
        Msg::Drag { x } => mouse::drag(model, story, x),
        Msg::Wheel { x, y, down } => mouse::wheel(model, story, x, y, down),
        Msg::Resize { width, height } => {
            model.size = (width, height);
            Vec::new()
        }
        Msg::Tick { now, time, present } => {
            model.now = now;
            model.time = time;
            model.extent.now = present;
            model.toasts.retain(|toast| toast.until > now);
            Vec::new()
        }
        Msg::Found(place) => {
            find::found(model, story, place);
            Vec::new()
        }
        Msg::Stopped(hit) => {
            time::stopped(model, story, &hit);
            Vec::new()
        }
        Msg::Say(text) => {
            model.say(text);
            Vec::new()
        }
    };
    listing::follow_typing(model, story);
    model.settle(story);
    effects
}

/// Where keys are looked up, the nearest first.
fn scopes(model: &Model, story: &Story) -> Vec<Scope> {
    if model.question.is_some() {
        vec![Scope::Question]
    } else if model.amending.is_some() {
        vec![Scope::Form, Scope::Editing]
    } else if model.editor.is_some() {
        vec![Scope::Editing]
    } else if model.typing.is_some() {
        vec![Scope::Typing]
    } else {
        let own = hold::subject(model, story).map(|unit| if unit.holding { Scope::Held } else { Scope::Live });
        own.into_iter().chain([Scope::View]).collect()
    }
}

fn press(model: &mut Model, story: &Story, key: Key) -> Vec<Effect> {
    let scopes = scopes(model, story);
    model.pending.push(key);
    let found = match model.keymap.lookup_in(&scopes, &model.pending) {
        // The end of no chord may still begin another one.
        Lookup::Nothing if model.pending.len() > 1 => {
            model.pending = vec![key];
            model.keymap.lookup_in(&scopes, &model.pending)
        }
        found => found,
    };
    match found {
        Lookup::Action(Action::Tab) => {
            let chord = std::mem::take(&mut model.pending);
            let number = model.keymap.chords(Action::Tab).position(|keys| keys == chord);
            let number = number.unwrap_or_default();
            if matches!(model.views.last(), Some(View::Grid)) {
                model.grid.choose(number);
            } else {
                inspect::panel(model, number);
            }
            Vec::new()
        }
        Lookup::Action(action) => {
            model.pending.clear();
            act(model, story, action)
        }
        Lookup::Pending => Vec::new(),
        Lookup::Nothing => {
            model.pending.clear();
            // Ctrl-C and the like work whatever is open.
            if !scopes.contains(&Scope::View)
                && let Lookup::Action(action @ (Action::Interrupt | Action::Suspend | Action::Redraw)) =
                    model.keymap.lookup(Scope::View, &[key])
            {
                return act(model, story, action);
            }
            if let Some(form) = &mut model.amending {
                form.press(key);
            } else if let Some(editor) = &mut model.editor {
                editor.press(key);
            } else if let (Some(typed), Some(char)) = (&mut model.typing, key.typed())
                && typed.text.len() < MOST_TYPED
            {
                typed.text.push(char);
            }
            Vec::new()
        }
    }
}

fn act(model: &mut Model, story: &Story, action: Action) -> Vec<Effect> {
    if grid::act(model, story, action) {
        return Vec::new();
    }
    let page = isize::try_from(page(model, story)).unwrap_or(1).max(1);
    if orders::is_too_late(model, action) {
        return Vec::new();
    }
    match action {
        Action::Down => step(model, story, 1),
        Action::Up => step(model, story, -1),
        Action::HalfDown => step(model, story, (page / 2).max(1)),
        Action::HalfUp => step(model, story, -(page / 2).max(1)),
        Action::PageDown => step(model, story, page),
        Action::PageUp => step(model, story, -page),
        Action::Top => ends(model, story, false),
        Action::Bottom => ends(model, story, true),
        Action::Right => sideways(model, story, 1),
        Action::Left => sideways(model, story, -1),
        Action::NextPane | Action::PreviousPane => match model.views.last_mut() {
            Some(View::Inspect(view)) => inspect::other_side(view),
            Some(View::Compare(view)) => view.side = 1 - view.side,
            Some(_) => {}
            None => model.deck.focus = other(model.deck.focus),
        },
        Action::Zoom => match model.views.last_mut() {
            Some(View::Inspect(view)) => view.zoom = !view.zoom,
            _ => model.deck.zoom = !model.deck.zoom,
        },
        Action::Inspect => inspect::open(model, story),
        Action::Compare => compare::open(model, story),
        Action::Tab => {}
        Action::Counterpart => inspect::counterpart(model, story),
        Action::Open => open(model, story),
        Action::Back => back(model, story),
        Action::NextFailure => find::failure(model, story, true),
        Action::PreviousFailure => find::failure(model, story, false),
        Action::Search => model.typing = Some(Typing::new(Purpose::Search)),
        Action::NextMatch => return find::again(model, story, true),
        Action::PreviousMatch => return find::again(model, story, false),
        Action::Filter | Action::FilterText | Action::Sort | Action::Reverse | Action::Group => {
            listing::change(model, story, action);
        }
        Action::Help => toggle(model, View::Help(List::default()), |view| matches!(view, View::Help(_))),
        Action::Grid => grid::toggle(model),
        Action::Causes => toggle(model, View::Causes(Causes::default()), |view| matches!(view, View::Causes(_))),
        Action::Log => toggle(model, View::Log(List::following()), |view| matches!(view, View::Log(_))),
        Action::Retry if matches!(model.views.last(), Some(View::Causes(_))) => causes::retry(model, story),
        Action::Retry => return orders::retry(model, story),
        Action::RetryWith => amend::open(model, story),
        Action::RetryFailed => return orders::retry_failed(model, story),
        Action::Stop if matches!(model.views.last(), Some(View::Breakpoints(_))) => time::delete(model),
        Action::Stop => return orders::stop(model, story),
        Action::More => return orders::slots(model, story, 1),
        Action::Fewer => return orders::slots(model, story, -1),
        Action::Hold => return hold::hold(model, story),
        Action::LetGo => return hold::let_go(model, story),
        Action::AllowOnce => return hold::allow(model, story),
        Action::EditCall => hold::edit(model, story),
        Action::DenyCall => hold::ask_why(model, story),
        Action::NextField | Action::PreviousField => {
            if let Some(form) = &mut model.amending {
                form.turn(action == Action::NextField);
            }
        }
        Action::Send if model.amending.is_some() => return amend::send(model, story),
        Action::Send => return hold::send(model, story),
        Action::Discard if model.amending.is_some() => model.amending = None,
        Action::Discard => model.editor = None,
        Action::Play => return time::play(model),
        Action::StepForward => return time::moved(model, Effect::Step(Step::Entry { forward: true })),
        Action::StepBack => return time::moved(model, Effect::Step(Step::Entry { forward: false })),
        Action::ActionForward => return time::action(model, true),
        Action::ActionBack => return time::action(model, false),
        Action::TurnForward => return time::turn(model, true),
        Action::TurnBack => return time::turn(model, false),
        Action::RunToFailure => return time::moved(model, Effect::Step(Step::Failure { forward: true })),
        Action::BackToFailure => return time::moved(model, Effect::Step(Step::Failure { forward: false })),
        Action::Faster => return time::faster(model),
        Action::Slower => return time::slower(model),
        Action::ToStart => return time::moved(model, Effect::Go(Moment::Entries(0))),
        Action::ToEnd => return time::to_end(model),
        Action::Breakpoints => toggle(model, command::list(), |view| matches!(view, View::Breakpoints(_))),
        Action::CommandLine => command::open(model),
        Action::Complete => command::complete(model),
        Action::Older => command::recall(model, true),
        Action::Newer => command::recall(model, false),
        Action::Copy => return orders::copy(model, story),
        Action::CopyName => return orders::copy_name(model, story),
        Action::Editor => return handout::hand_out(model, story, Tool::Editor),
        Action::Pager => return handout::hand_out(model, story, Tool::Pager),
        Action::Mouse => {
            model.mouse = !model.mouse;
            model.say(if model.mouse {
                "mouse on; with Shift the terminal still selects text"
            } else {
                "mouse off: the terminal selects text"
            });
            return vec![Effect::Mouse(model.mouse)];
        }
        Action::Redraw => return vec![Effect::Redraw],
        Action::Suspend => return vec![Effect::Suspend],
        Action::Quit => return orders::quit(model),
        Action::Interrupt => return orders::interrupt(model),
        Action::Confirm => return model.question.take().map(|question| question.then).unwrap_or_default(),
        Action::Cancel => model.question = None,
        Action::Accept => return accept(model, story),
        Action::Dismiss => {
            if let Some(Typing { purpose: Purpose::FilterUnits, .. }) = model.typing.take() {
                listing::search(model, story, String::new());
            }
        }
        Action::Erase => {
            if let Some(typed) = &mut model.typing
                && typed.text.pop().is_none()
            {
                model.typing = None;
            }
        }
        Action::EraseAll => {
            if let Some(typed) = &mut model.typing {
                typed.text.clear();
            }
        }
    }
    Vec::new()
}

/// What was typed is complete.
fn accept(model: &mut Model, story: &Story) -> Vec<Effect> {
    match model.typing.take() {
        None => Vec::new(),
        Some(Typing { text, purpose: Purpose::Search }) => find::accept(model, story, text),
        Some(Typing { text, purpose: Purpose::Deny(call) }) => hold::deny(model, story, call, text),
        Some(Typing { text, purpose: Purpose::Command }) => command::accept(model, story, text),
        Some(Typing { text, purpose: Purpose::FilterUnits }) => {
            listing::search(model, story, text);
            Vec::new()
        }
    }
}

fn other(pane: Pane) -> Pane {
    match pane {
        Pane::Units => Pane::Stream,
        Pane::Stream => Pane::Units,
    }
}

/// Rows of the pane with the focus.
fn page(model: &Model, story: &Story) -> usize {
    let plan = model.plan(story);
    match (model.views.last(), model.deck.focus) {
        (Some(View::Inspect(view)), _) => inspect::page(view, plan.body),
        (Some(View::Compare(view)), _) => usize::from(view.areas(plan.body).calls.height),
        (Some(_), _) => usize::from(plan.body_rows()),
        (None, Pane::Units) => plan.unit_rows(),
        (None, Pane::Stream) => plan.stream_rows(model.attempt(story).map(|(_, attempt)| attempt)),
    }
}

fn step(model: &mut Model, story: &Story, by: isize) {
    match model.views.last_mut() {
        Some(View::Transcript(view)) => {
            let len = view.lane(story).map_or(0, |lane| story.entries(lane).len());
            view.list.step(by, len);
        }
        Some(View::Inspect(view)) => inspect::step(view, story, by),
        Some(View::Compare(view)) => {
            let len = view.known();
            view.list.step(by, len);
        }
        Some(View::Entry(view)) => view.scroll = view.scroll.saturating_add_signed(by),
        Some(View::Log(list)) => list.step(by, story.remarks().len()),
        Some(View::Breakpoints(list)) => list.step(by, model.breakpoints.len()),
        Some(View::Causes(view)) => view.list.step(by, view.lines.len()),
        // Its keys are its own.
        Some(View::Grid) => {}
        Some(View::Help(list)) => list.offset = list.offset.saturating_add_signed(by),
        None if model.deck.focus == Pane::Units => {
            let row = model.unit_row().saturating_add_signed(by);
            choose(model, story, row);
        }
        None => {
            let len = model.deck.lane.map_or(0, |lane| story.rows(lane).len());
            model.deck.stream.step(by, len);
        }
    }
}

/// Selects a row of the unit table.
fn choose(model: &mut Model, story: &Story, row: usize) {
    model.deck.auto = false;
    let row = row.min(model.listed(story).saturating_sub(1));
    if let Some(unit) = model.listed_unit(row)
        && unit != model.deck.unit
    {
        model.deck.unit = unit;
        model.deck.attempt = None;
    }
}

fn ends(model: &mut Model, story: &Story, last: bool) {
    let go = |list: &mut List, len: usize| if last { list.end(len) } else { list.select(0, len) };
    match model.views.last_mut() {
        Some(View::Transcript(view)) => {
            let len = view.lane(story).map_or(0, |lane| story.entries(lane).len());
            go(&mut view.list, len);
        }
        Some(View::Inspect(view)) => inspect::ends(view, story, last),
        Some(View::Compare(view)) => compare::ends(view, last),
        Some(View::Entry(view)) => view.scroll = if last { view.lines } else { 0 },
        Some(View::Log(list)) => go(list, story.remarks().len()),
        Some(View::Breakpoints(list)) => go(list, model.breakpoints.len()),
        Some(View::Causes(view)) => go(&mut view.list, view.lines.len()),
        Some(View::Grid) => {}
        Some(View::Help(list)) => list.offset = if last { usize::MAX } else { 0 },
        None if model.deck.focus == Pane::Units => choose(model, story, if last { usize::MAX } else { 0 }),
        None => {
            let len = model.deck.lane.map_or(0, |lane| story.rows(lane).len());
            go(&mut model.deck.stream, len);
        }
    }
}

/// Attempts of a unit, or neighbours of an entry.
fn sideways(model: &mut Model, story: &Story, by: isize) {
    match model.views.last_mut() {
        Some(View::Transcript(view)) => {
            if let Some((index, _)) = view.attempt(story) {
                let next = index.saturating_add_signed(by);
                if next != view.attempt {
                    view.attempt = next;
                    view.list = List::following();
                }
            }
        }
        Some(View::Inspect(view)) => inspect::sideways(view, story, by),
        Some(View::Compare(_)) => compare::sideways(model, story, by > 0),
        Some(View::Entry(view)) => view.turn(story, by),
        Some(View::Help(_) | View::Log(_) | View::Causes(_) | View::Breakpoints(_) | View::Grid) => {}
        None => {
            model.deck.auto = false;
            if let (Some((index, _)), Some(unit)) = (model.attempt(story), model.unit(story)) {
                let next = index.saturating_add_signed(by).min(unit.attempts.len().saturating_sub(1));
                // At the newest one, newer ones are shown as they come.
                model.deck.attempt = (next + 1 < unit.attempts.len()).then_some(next);
            }
        }
    }
}

fn open(model: &mut Model, story: &Story) {
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
            let Some(unit) = model.unit(story) else { return };
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

fn back(model: &mut Model, story: &Story) {
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

fn toggle(model: &mut Model, view: View, is_it: impl Fn(&View) -> bool) {
    if model.views.last().is_some_and(&is_it) {
        model.views.pop();
    } else {
        model.views.retain(|view| !is_it(view));
        model.views.push(view);
    }
}

/// True for rows that a person has to look at.
fn is_bad(end: RowEnd) -> bool {
    matches!(end, RowEnd::Failed | RowEnd::Denied)
}
