//! Actions of questions, typed lines, the editor of arguments and the retry form.

use super::{amend, answer, command, find, hold, listing};
use crate::{
    action::{ActionScope, Availability, UserAction, require},
    action_spec::{ActionSpec, change, effects},
    effect::ScreenEffect,
    model::{AnswerForm, AnswerMeaning, ArgumentsEditor, ConfirmQuestion, InputPurpose, LineInput},
    page::ScreenModel,
    pages::{
        bookmarks::actions as bookmarks, find::find_in_run, home::actions as home,
        record_search::actions as record_search, review::actions as review,
    },
};
use ingestdeck_core::{control::RunCommand, run::state::RunView};

pub(super) const ACTIONS: &[ActionSpec] = &[
    effects(
        UserAction::Confirm,
        "confirm",
        "yes",
        "yes: do what the question asks about",
        answer_confirm,
    )
    .scope(ActionScope::Question)
    .when(|model, _| has_answer(model, AnswerMeaning::Confirm)),
    effects(
        UserAction::LeaveRun,
        "leave-run",
        "leave",
        "leave the screen; the run continues",
        |model, _| take_answer(model, AnswerMeaning::Leave),
    )
    .scope(ActionScope::Question)
    .when(|model, _| has_answer(model, AnswerMeaning::Leave)),
    effects(
        UserAction::StopRun,
        "stop-run",
        "stop",
        "stop the run and quit",
        |model, _| take_answer(model, AnswerMeaning::Stop),
    )
    .scope(ActionScope::Question)
    .when(|model, _| has_answer(model, AnswerMeaning::Stop)),
    change(
        UserAction::Cancel,
        "cancel",
        "no",
        "no; everything stays as it is",
        |model, _| {
            model.dialogs.question = None;
        },
    )
    .scope(ActionScope::Question)
    .special_hint(|model, _| {
        model
            .dialogs
            .question
            .as_ref()
            .map(ConfirmQuestion::cancel_word)
    }),
    effects(
        UserAction::HarmlessAnswer,
        "harmless-answer",
        "harmless",
        "the harmless answer: leave, else no",
        |model, run_view| {
            let action = model
                .dialogs
                .question
                .as_ref()
                .map(ConfirmQuestion::harmless_action);
            action.map_or_else(Vec::new, |action| action.spec().perform(model, run_view))
        },
    )
    .scope(ActionScope::Question),
    effects(
        UserAction::Accept,
        "accept",
        "accept",
        "accept the text",
        accept,
    )
    .scope(ActionScope::Typing)
    .special_hint(accept_hint),
    effects(
        UserAction::Complete,
        "complete",
        "complete",
        "complete a command; find a searched text in all actions",
        complete,
    )
    .special_hint(|model, _| searched_text(model).map(|_| "in all actions"))
    .scope(ActionScope::Typing),
    change(
        UserAction::Older,
        "older",
        "older",
        "previous command, or what is found above",
        recall::<true>,
    )
    .scope(ActionScope::Typing),
    change(
        UserAction::Newer,
        "newer",
        "newer",
        "next command, or what is found below",
        recall::<false>,
    )
    .scope(ActionScope::Typing),
    change(
        UserAction::Dismiss,
        "dismiss",
        "dismiss",
        "discard the text",
        dismiss,
    )
    .scope(ActionScope::Typing),
    change(
        UserAction::Erase,
        "erase",
        "erase",
        "erase a character",
        |model, _| {
            if model
                .dialogs
                .line_input
                .as_mut()
                .is_some_and(|typed| typed.text.pop().is_none())
                && let Some(typed) = model.dialogs.line_input.take()
                && typed.purpose == InputPurpose::FindInRecords
            {
                record_search::dismiss(model);
            }
        },
    )
    .scope(ActionScope::Typing),
    change(
        UserAction::EraseAll,
        "erase-all",
        "clear",
        "erase everything",
        |model, _| {
            model
                .dialogs
                .line_input
                .iter_mut()
                .for_each(|typed| typed.text.clear());
        },
    )
    .scope(ActionScope::Typing),
    change(
        UserAction::NextField,
        "next-field",
        "field",
        "next field; a long text as plain text",
        next_field::<true>,
    )
    .scope(ActionScope::Form)
    .when(has_fields),
    change(
        UserAction::PreviousField,
        "previous-field",
        "field",
        "previous field",
        next_field::<false>,
    )
    .scope(ActionScope::Form)
    .when(has_fields),
    effects(
        UserAction::Send,
        "send",
        "send",
        "send the arguments or the form",
        |model, run_view| {
            if model.dialogs.amend_form.is_some() {
                amend::send(model, run_view)
            } else if model.dialogs.answer_form.is_some() {
                answer::send(model, run_view)
            } else {
                hold::send(model, run_view)
            }
        },
    )
    .scope(ActionScope::Editing),
    effects(
        UserAction::EditText,
        "edit-text",
        "$EDITOR",
        "edit the text in $EDITOR",
        |model, _| {
            let form = model
                .dialogs
                .amend_form
                .as_ref()
                .map(|form| form.feedback.lines().join("\n"));
            let answer = model.dialogs.answer_form.as_ref();
            let text = form
                .or_else(|| model.dialogs.editor.as_ref().map(ArgumentsEditor::exported))
                .or_else(|| Some(answer?.text()?.lines().join("\n")));
            text.map(ScreenEffect::EditText).into_iter().collect()
        },
    )
    .scope(ActionScope::Editing),
    change(
        UserAction::Discard,
        "discard",
        "cancel",
        "discard the edits",
        |model, _| {
            if model.dialogs.amend_form.take().is_none() {
                (model.dialogs.editor, model.dialogs.answer_form) = (None, None);
            }
        },
    )
    .scope(ActionScope::Editing),
];

fn has_answer(model: &ScreenModel, meaning: AnswerMeaning) -> Availability {
    require(
        model
            .dialogs
            .question
            .as_ref()
            .is_some_and(|question| question.has(meaning)),
    )
}

fn take_answer(model: &mut ScreenModel, meaning: AnswerMeaning) -> Vec<ScreenEffect> {
    model
        .dialogs
        .question
        .take()
        .map(|question| question.into_effects(meaning))
        .unwrap_or_default()
}

fn answer_confirm(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let then = take_answer(model, AnswerMeaning::Confirm);
    for effect in &then {
        if let ScreenEffect::Command(RunCommand::Retry { unit, .. }) = effect {
            model.await_attempt(run_view, unit);
        }
    }
    let is_of_marks = |effect: &ScreenEffect| {
        matches!(
            effect,
            ScreenEffect::Command(RunCommand::RetryUnits { .. } | RunCommand::Stop { .. })
        )
    };
    if model.is_bottom() && then.iter().any(is_of_marks) {
        model.units_view.marked.clear();
    }
    then
}

/// The form for an answer may have one field.
fn has_fields(model: &ScreenModel, _: &RunView) -> Availability {
    let is_only = |form: &AnswerForm| form.form.fields.len() == 1;
    require(!model.dialogs.answer_form.as_ref().is_some_and(is_only))
}

fn next_field<const FORWARD: bool>(model: &mut ScreenModel, _: &RunView) {
    let dialogs = &mut model.dialogs;
    match (&mut dialogs.amend_form, &mut dialogs.editor) {
        (Some(form), _) => form.next_field(FORWARD),
        (None, Some(editor)) => editor.next_field(FORWARD),
        (None, None) => dialogs
            .answer_form
            .iter_mut()
            .for_each(|form| form.next_field(FORWARD)),
    }
}

/// What Enter does with the typed text.
fn accept_hint(model: &ScreenModel, run_view: &RunView) -> Option<&'static str> {
    match &model.dialogs.line_input.as_ref()?.purpose {
        InputPurpose::Reject(_) => Some("reject"),
        InputPurpose::SendBack(_) => Some("send back"),
        InputPurpose::Say(_) => Some("send"),
        InputPurpose::Bookmark(_) => Some("save"),
        purpose @ (InputPurpose::Deny(_) | InputPurpose::DenyNext(_)) => {
            let call = hold::denied_call(run_view, purpose);
            Some(call.map_or("deny", |call| answer::deny_word(run_view, &call)))
        }
        InputPurpose::Search
        | InputPurpose::Command
        | InputPurpose::FilterUnits
        | InputPurpose::OpenPath => None,
        InputPurpose::FindInRecords => Some("open"),
    }
}

/// Submits the typed text.
fn accept(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let Some(LineInput { text, purpose }) = model.dialogs.line_input.take() else {
        return Vec::new();
    };
    match purpose {
        InputPurpose::Search => return find::accept(model, run_view, text),
        InputPurpose::Deny(_) | InputPurpose::DenyNext(_) => {
            return match (hold::denied_call(run_view, &purpose), purpose) {
                (Some(call), _) => answer::deny(model, run_view, call, text),
                (None, InputPurpose::DenyNext(unit)) => {
                    hold::remember_denial(model, unit, text);
                    Vec::new()
                }
                (None, _) => Vec::new(),
            };
        }
        InputPurpose::Say(unit) => return hold::say(model, run_view, unit, text),
        InputPurpose::Command => return command::accept(model, run_view, text),
        InputPurpose::OpenPath => return home::open_path(&text),
        InputPurpose::FindInRecords => return record_search::open(model, run_view),
        InputPurpose::FilterUnits => listing::accept_filter(model, run_view, text),
        InputPurpose::Reject(_) | InputPurpose::SendBack(_) => {
            return review::submit(model, run_view, purpose, text);
        }
        InputPurpose::Bookmark(bookmark) => return bookmarks::save(model, *bookmark, &text),
    }
    Vec::new()
}

/// The text that is being searched in a pane of a run.
pub(crate) fn searched_text(model: &ScreenModel) -> Option<&str> {
    let typed = model.dialogs.line_input.as_ref();
    let typed = typed.filter(|typed| typed.purpose == InputPurpose::Search && !model.is_home);
    let text = &typed?.text;
    (!text.is_empty()).then_some(text)
}

/// Completes a command, or lists where the text of a search occurs in the whole run.
fn complete(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let Some(text) = searched_text(model).map(str::to_owned) else {
        command::complete(model, run_view);
        return Vec::new();
    };
    model.dialogs.line_input = None;
    model.discard_search();
    find_in_run(model, text)
}

/// A line of the history, or a row of what is found for the typed text.
fn recall<const OLDER: bool>(model: &mut ScreenModel, run_view: &RunView) {
    let typed = model.dialogs.line_input.as_ref();
    match typed.map(|typed| &typed.purpose) {
        Some(InputPurpose::FindInRecords) => record_search::step(model, !OLDER),
        _ => command::recall::<OLDER>(model, run_view),
    }
}

fn dismiss(model: &mut ScreenModel, run_view: &RunView) {
    match model.dialogs.line_input.take().map(|typed| typed.purpose) {
        Some(InputPurpose::FilterUnits) => listing::filter_by_text(model, run_view, String::new()),
        Some(InputPurpose::FindInRecords) => record_search::dismiss(model),
        _ => {}
    }
}
