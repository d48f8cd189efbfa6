//! Actions of the whole screen: views, copying and exporting, the mouse, and quitting with its confirmation.

use super::{command, export, hints};
use crate::{
    action::{Availability, Unavailable, UserAction},
    action_spec::{ActionSpec, change, effects},
    effect::{ExportTool, ScreenEffect},
    model::{AnswerMeaning, ConfirmQuestion, QuestionAnswer, ToastTopic},
    page::ScreenModel,
    pages::{
        artifacts::ArtifactsPage, grid::actions as grid, help::HelpPage, log::LogPage,
        review::actions as review,
    },
};
use ingestdeck_core::{
    control::RunCommand,
    run::state::{RunView, UnitStatus},
    text::pluralize,
};

pub(super) const ACTIONS: &[ActionSpec] = &[
    change(
        UserAction::CommandLine,
        "command",
        "command",
        "type a time, a condition or any action",
        command::open,
    ),
    change(
        UserAction::Help,
        "help",
        "help",
        "the keys of this page; again: all keys and signs",
        |model, run_view| {
            if model.top_mut::<HelpPage>().is_some_and(HelpPage::complete) {
                return;
            }
            let (about, actions) = hints::view_actions(model, run_view);
            model.toggle(HelpPage::new(about, actions));
        },
    ),
    change(
        UserAction::Grid,
        "grid",
        "grid",
        "live panes of units; and back",
        grid::toggle,
    ),
    change(
        UserAction::Log,
        "log",
        "log",
        "messages of the run",
        |model, _| model.toggle(LogPage::new()),
    ),
    change(
        UserAction::Review,
        "review",
        "review",
        "changes that wait for a review; Esc closes",
        review::open,
    )
    .when(review::has_review),
    change(
        UserAction::Artifacts,
        "artifacts",
        "artifacts",
        "pages and sources of the run; Enter opens one",
        |model, _| model.toggle(ArtifactsPage::default()),
    ),
    effects(UserAction::Copy, "copy", "copy", "copy the selection", copy).when(has_subject),
    effects(
        UserAction::CopyName,
        "copy-name",
        "copy name",
        "copy the unit's key or resume line",
        copy_name,
    )
    .when(has_subject),
    effects(
        UserAction::OpenFile,
        "open-file",
        "open file",
        "open the file that a call wrote",
        export::open_file,
    )
    .when(export::has_written_file),
    effects(
        UserAction::Editor,
        "editor",
        "editor",
        "open a copy of the selection in $EDITOR",
        |model, run_view| export::export(model, run_view, ExportTool::Editor),
    ),
    effects(
        UserAction::Pager,
        "pager",
        "pager",
        "open the selection in $PAGER",
        |model, run_view| export::export(model, run_view, ExportTool::Pager),
    ),
    effects(
        UserAction::Mouse,
        "mouse",
        "mouse",
        "mouse on; off to select text",
        |model, _| {
            model.mouse.is_captured = !model.mouse.is_captured;
            let is_captured = model.mouse.is_captured;
            model.toasts.show(if is_captured {
                "mouse on; with Shift the terminal still selects text"
            } else {
                "mouse off: the terminal selects text"
            });
            vec![ScreenEffect::Mouse(is_captured)]
        },
    ),
    effects(
        UserAction::Redraw,
        "redraw",
        "redraw",
        "redraw the screen",
        |_, _| vec![ScreenEffect::Redraw],
    ),
    effects(
        UserAction::Suspend,
        "suspend",
        "suspend",
        "suspend; fg resumes",
        |_, _| vec![ScreenEffect::Suspend],
    ),
    effects(
        UserAction::Detach,
        "detach",
        "detach",
        "leave the screen; the run continues",
        detach,
    )
    .when(can_detach),
    effects(
        UserAction::Quit,
        "quit",
        "quit",
        "quit; asks while units run",
        quit,
    ),
    effects(
        UserAction::Interrupt,
        "interrupt",
        "interrupt",
        "drain; again: stop all; again: kill all",
        interrupt,
    ),
];

fn has_subject(model: &ScreenModel, run_view: &RunView) -> Availability {
    if model.is_bottom() && model.unit(run_view).is_none() {
        return Err(Unavailable::no_unit_selected());
    }
    Ok(())
}

/// True if the run has work that would end with this screen, or continue without it.
fn has_unfinished_work(model: &ScreenModel) -> bool {
    let (active, queued) = unfinished_units(model);
    let is_waiting = model.connection.leave_action.is_some() && queued > 0
        || model.playhead.bounds.is_review_open;
    model.connection.accepts_commands() && (active > 0 || is_waiting)
}

/// The way out that changes nothing about the run; `None` if the run ends with its screen.
fn harmless_exit(model: &ScreenModel) -> Option<ScreenEffect> {
    if !has_unfinished_work(model) {
        return Some(ScreenEffect::Quit);
    }
    model.connection.leave_action.map(|_| ScreenEffect::Detach)
}

/// What the run does after the screen is left.
fn what_the_run_does(model: &ScreenModel, run_view: &RunView) -> &'static str {
    let (active, queued) = unfinished_units(model);
    match () {
        () if active + queued == 0 => "the run still waits",
        () if run_view.state.limits.is_paused => "the run stays paused",
        () => "the run continues",
    }
}

/// Leaves a screen that has no room to ask.
pub(crate) fn leave_unseen(model: &ScreenModel) -> Vec<ScreenEffect> {
    harmless_exit(model).into_iter().collect()
}

/// The keys that work while the screen has no room to show anything, and their effects.
pub(crate) fn unseen_hints(model: &ScreenModel, run_view: &RunView) -> Vec<(UserAction, String)> {
    if model.dialogs.line_input.is_some() {
        return vec![(UserAction::Dismiss, "discards the text".to_owned())];
    }
    if model.dialogs.is_editing() {
        return vec![(UserAction::Discard, "discards the edits".to_owned())];
    }
    let exit = harmless_exit(model).map(|exit| match exit {
        ScreenEffect::Quit => (UserAction::Quit, "quits".to_owned()),
        _ => (
            UserAction::Quit,
            format!("leaves; {}", what_the_run_does(model, run_view)),
        ),
    });
    let (active, queued) = unfinished_units(model);
    let interrupt = match model.connection.interrupts {
        _ if active + queued == 0 => "stops the run and quits",
        0 => "starts no more units",
        1 => "stops all units",
        _ => "kills all units and quits",
    };
    let interrupt =
        has_unfinished_work(model).then(|| (UserAction::Interrupt, interrupt.to_owned()));
    let question = model.dialogs.question.as_ref();
    let cancel = question.map(|_| (UserAction::Cancel, "closes the question".to_owned()));
    cancel.into_iter().chain(exit).chain(interrupt).collect()
}

fn quit(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    if !has_unfinished_work(model) {
        return vec![ScreenEffect::Quit];
    }
    let (active, queued) = unfinished_units(model);
    let can_detach = model.connection.leave_action.is_some();
    let is_review_open = model.playhead.bounds.is_review_open;
    let waits_for_review = active + queued == 0 && is_review_open;
    let text = match waits_for_review {
        true => "The run waits for a review.".to_owned(),
        false => {
            let verb = if active == 1 { "runs" } else { "run" };
            let waiting = if queued == 1 { "waits" } else { "wait" };
            format!("{} {verb}, {queued} {waiting}.", pluralize(active, "unit"))
        }
    };
    let mut answers = Vec::new();
    if can_detach {
        let label = format!("leave; {}", what_the_run_does(model, run_view));
        let then = vec![ScreenEffect::Detach];
        answers.push(QuestionAnswer {
            meaning: AnswerMeaning::Leave,
            label,
            then,
        });
    }
    // The run of a script cannot be resumed.
    let is_scripted = run_view
        .state
        .planned
        .as_ref()
        .is_some_and(|plan| plan.scripted);
    let label = match (waits_for_review, is_scripted) {
        (true, true) => "stop the run and quit; its changes are in no commit",
        (true, false) => "stop the run and quit; `ingestdeck review` continues",
        (false, _) => "stop all and quit; the tape keeps what they did",
    };
    let then = vec![
        ScreenEffect::Command(RunCommand::StopAll),
        ScreenEffect::Quit,
    ];
    answers.push(QuestionAnswer {
        meaning: AnswerMeaning::Stop,
        label: label.to_owned(),
        then,
    });
    model.dialogs.question = Some(ConfirmQuestion {
        text,
        details: Vec::new(),
        answers,
    });
    Vec::new()
}

fn detach(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let is_over = run_view.state.ended.is_some() && !model.is_in_past();
    vec![if is_over {
        ScreenEffect::Quit
    } else {
        ScreenEffect::Detach
    }]
}

fn can_detach(model: &ScreenModel, _: &RunView) -> Availability {
    match model.connection.leave_action {
        Some(_) if model.connection.accepts_commands() => Ok(()),
        _ if model.connection.accepts_commands() => {
            Err(Unavailable::because("this run ends with its screen"))
        }
        _ => Err(Unavailable::because(
            "quit leaves this screen; there is no run to detach from",
        )),
    }
}

/// Number of running and of queued units at the present.
fn unfinished_units(model: &ScreenModel) -> (usize, usize) {
    let totals = &model.playhead.bounds.present_totals;
    (totals.active_units(), totals.count(UnitStatus::Queued))
}

fn interrupt(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    let (active, queued) = unfinished_units(model);
    if !model.connection.accepts_commands() {
        return vec![ScreenEffect::Quit];
    }
    if active + queued == 0 {
        // A run that waits for a review does not end by itself.
        let stop = model
            .playhead
            .bounds
            .is_review_open
            .then_some(ScreenEffect::Command(RunCommand::StopAll));
        return stop.into_iter().chain([ScreenEffect::Quit]).collect();
    }
    model.dialogs.question = None;
    model.connection.interrupts = model.connection.interrupts.saturating_add(1);
    match model.connection.interrupts {
        1 => {
            let finishing = format!(
                "{} finishing, nothing new starts; again to stop them",
                pluralize(active, "unit")
            );
            model.toasts.show_about(ToastTopic::Ending, finishing);
            vec![ScreenEffect::Command(RunCommand::Drain)]
        }
        2 => {
            model
                .toasts
                .show_about(ToastTopic::Ending, "stopping all; again to kill and quit");
            vec![ScreenEffect::Command(RunCommand::StopAll)]
        }
        _ => vec![
            ScreenEffect::Command(RunCommand::KillAll),
            ScreenEffect::Quit,
        ],
    }
}

fn copy(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    model.page().copy(model, run_view)
}

fn copy_name(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    model.page().copy_name(model, run_view)
}
