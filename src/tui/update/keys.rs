//! Looks up keys in the current scopes and dispatches their actions.

use super::{
    MAX_TYPED_CHARS, amend, command, compare, export, failure_groups, find, grid, hold, inspect, listing, navigation,
    run_commands, time, views,
};
use crate::{
    run::{SeekTarget, state::RunView},
    tui::{
        action::{ActionScope, UserAction},
        effect::{ScreenEffect, TimeStep},
        export::ExportTool,
        key::KeyPress,
        keymap::ChordLookup,
        model::{FailureGroupsView, InputPurpose, LineInput, OverlayView, ScreenModel, ScrollList},
    },
};

/// Scopes in which keys are looked up, innermost first.
pub(super) fn scopes(model: &ScreenModel, run_view: &RunView) -> Vec<ActionScope> {
    if model.question.is_some() {
        vec![ActionScope::Question]
    } else if model.amend_form.is_some() {
        vec![ActionScope::Form, ActionScope::Editing]
    } else if model.editor.is_some() {
        vec![ActionScope::Editing]
    } else if model.line_input.is_some() {
        vec![ActionScope::Typing]
    } else {
        let own = hold::subject(model, run_view)
            .map(|unit| if unit.is_held() { ActionScope::Held } else { ActionScope::Live });
        own.into_iter().chain([ActionScope::View]).collect()
    }
}

pub(super) fn press(model: &mut ScreenModel, run_view: &RunView, key: KeyPress) -> Vec<ScreenEffect> {
    let scopes = scopes(model, run_view);
    model.pending.push(key);
    let found = match model.keymap.lookup_in(&scopes, &model.pending) {
        // After an unknown sequence, the last key may still start another chord.
        ChordLookup::Nothing if model.pending.len() > 1 => {
            model.pending = vec![key];
            model.keymap.lookup_in(&scopes, &model.pending)
        }
        found => found,
    };
    match found {
        ChordLookup::Action(UserAction::Tab) => {
            let chord = std::mem::take(&mut model.pending);
            let number = model.keymap.chords(UserAction::Tab).position(|keys| keys == chord);
            let number = number.unwrap_or_default();
            if matches!(model.views.last(), Some(OverlayView::Grid)) {
                model.grid.choose(number);
            } else {
                inspect::select_panel(model, number);
            }
            Vec::new()
        }
        ChordLookup::Action(action) => {
            let chord = std::mem::take(&mut model.pending);
            // If no unit is listed, a key for units must not fall through to another meaning.
            if hold::has_no_listed_unit(model, run_view)
                && let ChordLookup::Action(_) = model.keymap.lookup_in(&[ActionScope::Held, ActionScope::Live], &chord)
            {
                return run_commands::no_unit_selected(model);
            }
            act(model, run_view, action)
        }
        ChordLookup::Pending => Vec::new(),
        ChordLookup::Nothing => {
            model.pending.clear();
            // Global keys such as Ctrl-C always work.
            if !scopes.contains(&ActionScope::View)
                && let ChordLookup::Action(action @ (UserAction::Interrupt | UserAction::Suspend | UserAction::Redraw)) =
                    model.keymap.lookup(ActionScope::View, &[key])
            {
                return act(model, run_view, action);
            }
            if let Some(form) = &mut model.amend_form {
                form.handle_key(key);
            } else if let Some(editor) = &mut model.editor {
                editor.handle_key(key);
            } else if let (Some(typed), Some(char)) = (&mut model.line_input, key.typed())
                && typed.text.len() < MAX_TYPED_CHARS
            {
                typed.text.push(char);
            }
            Vec::new()
        }
    }
}

pub(super) fn act(model: &mut ScreenModel, run_view: &RunView, action: UserAction) -> Vec<ScreenEffect> {
    if grid::act(model, run_view, action) {
        return Vec::new();
    }
    let page = isize::try_from(navigation::page(model, run_view)).unwrap_or(1).max(1);
    if run_commands::refuse_in_past(model, action) {
        return Vec::new();
    }
    match action {
        UserAction::Down => navigation::step(model, run_view, 1),
        UserAction::Up => navigation::step(model, run_view, -1),
        UserAction::HalfDown => navigation::step(model, run_view, (page / 2).max(1)),
        UserAction::HalfUp => navigation::step(model, run_view, -(page / 2).max(1)),
        UserAction::PageDown => navigation::step(model, run_view, page),
        UserAction::PageUp => navigation::step(model, run_view, -page),
        UserAction::Top => navigation::go_to_first_or_last(model, run_view, false),
        UserAction::Bottom => navigation::go_to_first_or_last(model, run_view, true),
        UserAction::Right => navigation::show_adjacent(model, run_view, 1),
        UserAction::Left => navigation::show_adjacent(model, run_view, -1),
        UserAction::NextPane | UserAction::PreviousPane => match model.views.last_mut() {
            Some(OverlayView::Inspect(view)) => inspect::toggle_side(view),
            Some(OverlayView::Compare(view)) => view.side = 1 - view.side,
            Some(_) => {}
            None => model.units_view.focus = navigation::other(model.units_view.focus),
        },
        UserAction::Zoom => match model.views.last_mut() {
            Some(OverlayView::Inspect(view)) => view.zoom = !view.zoom,
            _ => model.units_view.zoom = !model.units_view.zoom,
        },
        UserAction::Inspect => inspect::open(model, run_view),
        UserAction::Compare => compare::open(model, run_view),
        UserAction::Tab => {}
        UserAction::Counterpart => inspect::counterpart(model, run_view),
        UserAction::Open => views::open(model, run_view),
        UserAction::Back => views::back(model, run_view),
        UserAction::NextFailure => find::select_next_failure(model, run_view, true),
        UserAction::PreviousFailure => find::select_next_failure(model, run_view, false),
        UserAction::Search => model.line_input = Some(LineInput::new(InputPurpose::Search)),
        UserAction::NextMatch => return find::repeat_search(model, run_view, true),
        UserAction::PreviousMatch => return find::repeat_search(model, run_view, false),
        UserAction::Filter | UserAction::FilterText | UserAction::Sort | UserAction::Reverse | UserAction::Group => {
            listing::change(model, run_view, action);
        }
        UserAction::Help => {
            views::toggle(model, OverlayView::Help(ScrollList::default()), |view| matches!(view, OverlayView::Help(_)))
        }
        UserAction::Grid => grid::toggle(model),
        UserAction::Causes => views::toggle(model, OverlayView::FailureGroups(FailureGroupsView::default()), |view| {
            matches!(view, OverlayView::FailureGroups(_))
        }),
        UserAction::Log => {
            views::toggle(model, OverlayView::Log(ScrollList::following()), |view| matches!(view, OverlayView::Log(_)))
        }
        UserAction::Retry if matches!(model.views.last(), Some(OverlayView::FailureGroups(_))) => {
            failure_groups::retry(model, run_view)
        }
        UserAction::Retry => return run_commands::retry(model, run_view),
        UserAction::RetryWith => amend::open(model, run_view),
        UserAction::RetryFailed => return run_commands::retry_failed(model, run_view),
        UserAction::Stop if matches!(model.views.last(), Some(OverlayView::Breakpoints(_))) => time::delete(model),
        UserAction::Stop => return run_commands::stop(model, run_view),
        UserAction::LiftLimit => return run_commands::lift_limit(model, run_view),
        UserAction::More => return run_commands::adjust_concurrency(model, run_view, 1),
        UserAction::Fewer => return run_commands::adjust_concurrency(model, run_view, -1),
        UserAction::Hold => return hold::hold(model, run_view),
        UserAction::LetGo => return hold::release(model, run_view),
        UserAction::RunOn => return hold::run_to_breakpoint(model, run_view),
        UserAction::AllowOnce => return hold::allow(model, run_view),
        UserAction::EditCall => hold::edit(model, run_view),
        UserAction::DenyCall => hold::ask_deny_reason(model, run_view),
        UserAction::NextField | UserAction::PreviousField => {
            if let Some(form) = &mut model.amend_form {
                form.next_field(action == UserAction::NextField);
            }
        }
        UserAction::Send if model.amend_form.is_some() => return amend::send(model, run_view),
        UserAction::Send => return hold::send(model, run_view),
        UserAction::Discard if model.amend_form.is_some() => model.amend_form = None,
        UserAction::Discard => model.editor = None,
        UserAction::Play if hold::is_session(model, run_view) => {
            model.show_message("the calls of a session cannot be held; stop the session instead");
        }
        UserAction::Play => return time::play(model),
        UserAction::StepForward => {
            return time::pause_and_seek(model, ScreenEffect::Step(TimeStep::Entry { forward: true }));
        }
        UserAction::StepBack => {
            return time::pause_and_seek(model, ScreenEffect::Step(TimeStep::Entry { forward: false }));
        }
        UserAction::ActionForward => return time::action(model, run_view, true),
        UserAction::ActionBack => return time::action(model, run_view, false),
        UserAction::TurnForward => return time::turn(model, run_view, true),
        UserAction::TurnBack => return time::turn(model, run_view, false),
        UserAction::RunToFailure => {
            return time::pause_and_seek(model, ScreenEffect::Step(TimeStep::Failure { forward: true }));
        }
        UserAction::BackToFailure => {
            return time::pause_and_seek(model, ScreenEffect::Step(TimeStep::Failure { forward: false }));
        }
        UserAction::Faster => return time::faster(model),
        UserAction::Slower => return time::slower(model),
        UserAction::ToStart => return time::pause_and_seek(model, ScreenEffect::Seek(SeekTarget::Entries(0))),
        UserAction::ToEnd => return time::to_end(model),
        UserAction::Breakpoints => {
            views::toggle(model, command::list(), |view| matches!(view, OverlayView::Breakpoints(_)))
        }
        UserAction::CommandLine => command::open(model),
        UserAction::Complete => command::complete(model),
        UserAction::Older => command::recall(model, true),
        UserAction::Newer => command::recall(model, false),
        UserAction::Copy | UserAction::CopyName if model.views.is_empty() && model.unit(run_view).is_none() => {
            return run_commands::no_unit_selected(model);
        }
        UserAction::Copy => return run_commands::copy(model, run_view),
        UserAction::CopyName => return run_commands::copy_name(model, run_view),
        UserAction::Editor => return export::export(model, run_view, ExportTool::Editor),
        UserAction::Pager => return export::export(model, run_view, ExportTool::Pager),
        UserAction::Mouse => {
            model.mouse = !model.mouse;
            model.show_message(if model.mouse {
                "mouse on; with Shift the terminal still selects text"
            } else {
                "mouse off: the terminal selects text"
            });
            return vec![ScreenEffect::Mouse(model.mouse)];
        }
        UserAction::Redraw => return vec![ScreenEffect::Redraw],
        UserAction::Suspend => return vec![ScreenEffect::Suspend],
        UserAction::Quit => return run_commands::quit(model),
        UserAction::Interrupt => return run_commands::interrupt(model),
        UserAction::Confirm => return model.question.take().map(|question| question.then).unwrap_or_default(),
        UserAction::Cancel => model.question = None,
        UserAction::Accept => return accept(model, run_view),
        UserAction::Dismiss => {
            if let Some(LineInput { purpose: InputPurpose::FilterUnits, .. }) = model.line_input.take() {
                listing::filter_by_text(model, run_view, String::new());
            }
        }
        UserAction::Erase => {
            if let Some(typed) = &mut model.line_input
                && typed.text.pop().is_none()
            {
                model.line_input = None;
            }
        }
        UserAction::EraseAll => {
            if let Some(typed) = &mut model.line_input {
                typed.text.clear();
            }
        }
    }
    Vec::new()
}

/// Submits the typed text.
fn accept(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    match model.line_input.take() {
        None => Vec::new(),
        Some(LineInput { text, purpose: InputPurpose::Search }) => find::accept(model, run_view, text),
        Some(LineInput { text, purpose: InputPurpose::Deny(call) }) => hold::deny(model, run_view, call, text),
        Some(LineInput { text, purpose: InputPurpose::Command }) => command::accept(model, run_view, text),
        Some(LineInput { text, purpose: InputPurpose::FilterUnits }) => {
            listing::filter_by_text(model, run_view, text);
            Vec::new()
        }
    }
}
