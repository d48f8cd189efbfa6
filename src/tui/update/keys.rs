//! What a key means where it was pressed, and who does what it means.

use super::{
    MOST_TYPED, amend, causes, command, compare, find, grid, handout, hold, inspect, listing, moves, orders, time,
    views,
};
use crate::{
    run::{Moment, state::Story},
    tui::{
        action::{Action, Scope},
        effect::{Effect, Step},
        handout::Tool,
        key::Key,
        keymap::Lookup,
        model::{Causes, List, Model, Purpose, Typing, View},
    },
};

/// Where keys are looked up, the nearest first.
pub(super) fn scopes(model: &Model, story: &Story) -> Vec<Scope> {
    if model.question.is_some() {
        vec![Scope::Question]
    } else if model.amending.is_some() {
        vec![Scope::Form, Scope::Editing]
    } else if model.editor.is_some() {
        vec![Scope::Editing]
    } else if model.typing.is_some() {
        vec![Scope::Typing]
    } else {
        let own = hold::subject(model, story).map(|unit| if unit.is_held() { Scope::Held } else { Scope::Live });
        own.into_iter().chain([Scope::View]).collect()
    }
}

pub(super) fn press(model: &mut Model, story: &Story, key: Key) -> Vec<Effect> {
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
            let chord = std::mem::take(&mut model.pending);
            // Where no unit is listed, a key that means something to a unit must not turn into another one.
            if hold::lacks_unit(model, story)
                && let Lookup::Action(_) = model.keymap.lookup_in(&[Scope::Held, Scope::Live], &chord)
            {
                return orders::nobody(model);
            }
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

pub(super) fn act(model: &mut Model, story: &Story, action: Action) -> Vec<Effect> {
    if grid::act(model, story, action) {
        return Vec::new();
    }
    let page = isize::try_from(moves::page(model, story)).unwrap_or(1).max(1);
    if orders::is_too_late(model, action) {
        return Vec::new();
    }
    match action {
        Action::Down => moves::step(model, story, 1),
        Action::Up => moves::step(model, story, -1),
        Action::HalfDown => moves::step(model, story, (page / 2).max(1)),
        Action::HalfUp => moves::step(model, story, -(page / 2).max(1)),
        Action::PageDown => moves::step(model, story, page),
        Action::PageUp => moves::step(model, story, -page),
        Action::Top => moves::ends(model, story, false),
        Action::Bottom => moves::ends(model, story, true),
        Action::Right => moves::sideways(model, story, 1),
        Action::Left => moves::sideways(model, story, -1),
        Action::NextPane | Action::PreviousPane => match model.views.last_mut() {
            Some(View::Inspect(view)) => inspect::other_side(view),
            Some(View::Compare(view)) => view.side = 1 - view.side,
            Some(_) => {}
            None => model.deck.focus = moves::other(model.deck.focus),
        },
        Action::Zoom => match model.views.last_mut() {
            Some(View::Inspect(view)) => view.zoom = !view.zoom,
            _ => model.deck.zoom = !model.deck.zoom,
        },
        Action::Inspect => inspect::open(model, story),
        Action::Compare => compare::open(model, story),
        Action::Tab => {}
        Action::Counterpart => inspect::counterpart(model, story),
        Action::Open => views::open(model, story),
        Action::Back => views::back(model, story),
        Action::NextFailure => find::failure(model, story, true),
        Action::PreviousFailure => find::failure(model, story, false),
        Action::Search => model.typing = Some(Typing::new(Purpose::Search)),
        Action::NextMatch => return find::again(model, story, true),
        Action::PreviousMatch => return find::again(model, story, false),
        Action::Filter | Action::FilterText | Action::Sort | Action::Reverse | Action::Group => {
            listing::change(model, story, action);
        }
        Action::Help => views::toggle(model, View::Help(List::default()), |view| matches!(view, View::Help(_))),
        Action::Grid => grid::toggle(model),
        Action::Causes => views::toggle(model, View::Causes(Causes::default()), |view| matches!(view, View::Causes(_))),
        Action::Log => views::toggle(model, View::Log(List::following()), |view| matches!(view, View::Log(_))),
        Action::Retry if matches!(model.views.last(), Some(View::Causes(_))) => causes::retry(model, story),
        Action::Retry => return orders::retry(model, story),
        Action::RetryWith => amend::open(model, story),
        Action::RetryFailed => return orders::retry_failed(model, story),
        Action::Stop if matches!(model.views.last(), Some(View::Breakpoints(_))) => time::delete(model),
        Action::Stop => return orders::stop(model, story),
        Action::LiftLimit => return orders::lift(model, story),
        Action::More => return orders::slots(model, story, 1),
        Action::Fewer => return orders::slots(model, story, -1),
        Action::Hold => return hold::hold(model, story),
        Action::LetGo => return hold::let_go(model, story),
        Action::RunOn => return hold::run_on(model, story),
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
        Action::Play if hold::is_session(model, story) => {
            model.say("the calls of a session cannot be held; stop the session instead");
        }
        Action::Play => return time::play(model),
        Action::StepForward => return time::moved(model, Effect::Step(Step::Entry { forward: true })),
        Action::StepBack => return time::moved(model, Effect::Step(Step::Entry { forward: false })),
        Action::ActionForward => return time::action(model, story, true),
        Action::ActionBack => return time::action(model, story, false),
        Action::TurnForward => return time::turn(model, story, true),
        Action::TurnBack => return time::turn(model, story, false),
        Action::RunToFailure => return time::moved(model, Effect::Step(Step::Failure { forward: true })),
        Action::BackToFailure => return time::moved(model, Effect::Step(Step::Failure { forward: false })),
        Action::Faster => return time::faster(model),
        Action::Slower => return time::slower(model),
        Action::ToStart => return time::moved(model, Effect::Go(Moment::Entries(0))),
        Action::ToEnd => return time::to_end(model),
        Action::Breakpoints => views::toggle(model, command::list(), |view| matches!(view, View::Breakpoints(_))),
        Action::CommandLine => command::open(model),
        Action::Complete => command::complete(model),
        Action::Older => command::recall(model, true),
        Action::Newer => command::recall(model, false),
        Action::Copy | Action::CopyName if model.views.is_empty() && model.unit(story).is_none() => {
            return orders::nobody(model);
        }
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
