//! Which actions are worth a hint in a situation, and which ones the help of a view lists first.

use super::{marks, units};
use crate::{
    action::UserAction,
    layout::Pane,
    model::{OverlayView, ScreenModel},
};
use ingestdeck_core::run::state::{RunView, UnitStatus};

/// The name of the view that is shown, and its actions: the hints, then others that are specific to it.
pub(crate) fn view_actions(
    model: &ScreenModel,
    run_view: &RunView,
) -> (&'static str, Vec<UserAction>) {
    use UserAction::*;
    let (name, more): (_, &[UserAction]) = match model.views.last() {
        Some(OverlayView::Transcript(_)) => (
            "the wire",
            &[
                Inspect,
                PreviousAttempt,
                Tab,
                NextMatch,
                CopyName,
                Editor,
                Pager,
            ],
        ),
        Some(OverlayView::Entry(_)) => (
            "a line of the wire",
            &[Left, Inspect, NextMatch, Editor, Pager],
        ),
        Some(OverlayView::Inspect(_)) => {
            let more = &[
                Open,
                Tab,
                PreviousAttempt,
                RetryWith,
                NextMatch,
                PreviousFailure,
                Zoom,
                Bookmark,
                CopyName,
                Compare,
                OpenFile,
                Editor,
                Pager,
            ];
            ("the inspector", more)
        }
        Some(OverlayView::Compare(_)) => (
            "the comparison",
            &[NextFailure, PreviousFailure, CopyName, Editor, Pager],
        ),
        Some(OverlayView::Help(_)) => ("the help", &[]),
        Some(OverlayView::Log(_)) => (
            "the log",
            &[NextMatch, PreviousFailure, Copy, Editor, Pager],
        ),
        Some(OverlayView::Grid) => (
            "the live panes",
            &[Right, Left, Tab, PreviousPane, PreviousFailure],
        ),
        Some(OverlayView::Breakpoints(_)) => ("the breakpoints", &[]),
        Some(OverlayView::Bookmarks(_)) => ("the bookmarks", &[]),
        Some(OverlayView::FailureGroups(_)) => (
            "the causes",
            &[RetryWith, RetryFailed, PreviousFailure, Copy],
        ),
        Some(OverlayView::Home(_)) => ("the home screen", &[]),
        Some(OverlayView::Review(_)) => ("the review", &[ScrollDown, ScrollUp]),
        Some(OverlayView::Lanes(_)) => (
            "the lanes",
            &[Up, Left, NextFailure, PreviousFailure, Search, NextMatch],
        ),
        Some(OverlayView::Artifacts(view)) if view.document.is_some() => {
            ("an artifact", &[Left, Inspect, NextMatch, Copy])
        }
        Some(OverlayView::Artifacts(_)) => (
            "the artifacts",
            &[FilterText, NextFailure, PreviousFailure, Copy, NextMatch],
        ),
        Some(OverlayView::Find(_)) => ("the search of the run", &[Inspect, NextMatch]),
        None if model.units_view.focus == Pane::Units => (
            "the units",
            &[
                RetryFailed,
                Causes,
                Mark,
                More,
                Fewer,
                Compare,
                NextAttempt,
                ScrollDown,
                ScrollUp,
                PreviousFailure,
                FilterText,
                Sort,
                Reverse,
                Group,
                Grid,
                Lanes,
                Artifacts,
                Bookmark,
                Bookmarks,
                CommandLine,
            ],
        ),
        None => (
            "the actions",
            &[
                ScrollDown,
                ScrollUp,
                NextAttempt,
                NextMatch,
                PreviousFailure,
                Bookmark,
                Bookmarks,
                Copy,
                Editor,
                Pager,
            ],
        ),
    };
    let mut actions = hints(model, run_view);
    for action in more {
        if !actions.contains(action) && action.spec().is_available(model, run_view) {
            actions.push(*action);
        }
    }
    actions.retain(|action| !matches!(action, Help | Quit));
    (name, actions)
}

/// The actions that can be shown as hints in this situation, most useful first.
fn candidates(model: &ScreenModel, run_view: &RunView) -> &'static [UserAction] {
    use UserAction::*;
    let status = model.unit(run_view).map(|unit| unit.status);
    let failed = status.is_some_and(UnitStatus::is_retryable);
    match model.views.last() {
        Some(OverlayView::Help(_)) => &[Back],
        Some(OverlayView::Grid) if failed => &[Back, Open, Retry, NextPane, Zoom, NextFailure],
        Some(OverlayView::Grid) => &[Back, Open, Stop, NextPane, Zoom, NextFailure],
        Some(OverlayView::Breakpoints(_)) => &[Back, Open, Stop, CommandLine],
        Some(OverlayView::Bookmarks(_)) => &[Back, Open, RetryWith, Stop],
        Some(OverlayView::Find(_)) => &[Back, Open, Search],
        Some(OverlayView::Lanes(_)) => &[Back, Open, Down, Right],
        Some(OverlayView::Artifacts(view)) if view.document.is_some() => {
            &[Back, Right, Inspect, Search]
        }
        Some(OverlayView::Artifacts(_)) => &[Back, Open, Filter, FilterText, Inspect, Search],
        Some(OverlayView::Home(_)) => &[Open, ResumeRun, DiffRuns, StartRun],
        Some(OverlayView::Review(_))
            if run_view
                .state
                .publication
                .open_review()
                .is_some_and(|review| review.counts().open == 0) =>
        {
            &[
                FinishReview,
                UndoDecision,
                AcceptChange,
                RejectChange,
                SendBack,
                EditChange,
                WhyLine,
                NextPane,
                Back,
            ]
        }
        Some(OverlayView::Review(_)) => &[
            AcceptChange,
            RejectChange,
            SendBack,
            EditChange,
            AcceptRest,
            FinishReview,
            UndoDecision,
            WhyLine,
            NextPane,
            Back,
        ],
        Some(OverlayView::FailureGroups(_)) => &[Back, Open, Retry, RetryWith, NextFailure, Search],
        Some(OverlayView::Log(_)) => &[Back, Open, Search, NextFailure],
        Some(OverlayView::Transcript(_)) => {
            &[Back, Open, Retry, NextAttempt, Search, NextFailure, Copy]
        }
        Some(OverlayView::Compare(_)) => &[Back, Open, Left, NextPane, Copy],
        Some(OverlayView::Inspect(_)) => &[
            Back,
            NextPane,
            Retry,
            NextAttempt,
            Counterpart,
            Search,
            NextFailure,
            Copy,
        ],
        Some(OverlayView::Entry(_)) => &[Back, Right, Search, Copy, NextFailure],
        None if !model.units_view.marked.is_empty() && model.connection.accepts_commands() => {
            &[Retry, RetryWith, Stop, Mark, Back]
        }
        None if model.heading().is_some() => &[Open, Retry, RetryWith, RetryFailed, Causes],
        None if !model.connection.is_live && failed => &[
            Open,
            Retry,
            RetryWith,
            RetryFailed,
            Play,
            StepForward,
            NextPane,
        ],
        None if !model.connection.is_live => &[Open, Play, StepForward, NextPane],
        None if model.is_in_past() => &[Play, StepForward, Open, NextPane],
        None if model.connection.is_watching => &[Open, NextPane, NextFailure],
        None if model.connection.is_session => &[Say, Stop, Open, Retry, NextPane],
        None if failed => &[Retry, RetryWith, Open, RetryFailed, NextPane, NextFailure],
        None if status.is_some_and(UnitStatus::is_finished) => &[Open, Retry, RetryWith, NextPane],
        None if status.is_none() => &[],
        // A silent unit can only be stopped and then retried.
        None if status == Some(UnitStatus::Silent) => &[Stop, Open, NextPane],
        None => &[Open, Stop, NextPane],
    }
}

/// The actions to show as hints, most useful first.
pub(crate) fn hints(model: &ScreenModel, run_view: &RunView) -> Vec<UserAction> {
    let available = |action: &UserAction| action.spec().is_available(model, run_view);
    let mut actions = candidates(model, run_view).to_vec();
    if model.views.is_empty() {
        let view = &model.units_view;
        let urgent = [
            (
                UserAction::Bottom,
                view.focus == Pane::Stream && !view.stream.follow,
            ),
            (UserAction::ToEnd, model.is_in_past()),
            (
                UserAction::Review,
                run_view.state.publication.open_review().is_some(),
            ),
            (
                UserAction::RetryFailed,
                units::is_only_unsaved(&run_view.state),
            ),
            (UserAction::PauseRun, run_view.state.limits.is_paused),
            (UserAction::LiftLimit, true),
            (
                UserAction::Back,
                view.listing.is_filtered() || model.shown_query(run_view).is_some(),
            ),
        ];
        actions.splice(
            0..0,
            urgent
                .into_iter()
                .filter(|(_, is_urgent)| *is_urgent)
                .map(|(action, _)| action),
        );
        actions.extend([UserAction::Search, UserAction::Filter, UserAction::Log]);
    }
    actions.retain(available);
    // A pending approval comes first.
    let decisions = [
        UserAction::AllowOnce,
        UserAction::EditCall,
        UserAction::DenyCall,
        UserAction::RunOn,
    ];
    let decisions = if available(&UserAction::AllowOnce) && !marks::has_marks(model) {
        &decisions[..]
    } else {
        &[]
    };
    let at = if available(&UserAction::LetGo) {
        0
    } else {
        1.min(actions.len())
    };
    let hold = [UserAction::LetGo, UserAction::Hold].into_iter();
    actions.splice(
        at..at,
        decisions.iter().copied().chain(hold).filter(available),
    );
    actions.extend([UserAction::Help, UserAction::Quit]);
    actions
}
