//! Which actions are worth a hint in a situation, and which ones the help of a page lists first.

use super::{marks, units};
use crate::{action::UserAction, layout::Pane, page::ScreenModel};
use ingestdeck_core::run::state::RunView;

/// The title of the help of the page that is shown, and its actions: the hints, then others that are specific to it.
pub(crate) fn view_actions(
    model: &ScreenModel,
    run_view: &RunView,
) -> (&'static str, Vec<(UserAction, &'static str)>) {
    let (title, more) = model.page().help(model);
    let mut actions = hints(model, run_view);
    for action in more {
        if !actions.contains(action) && action.spec().is_available(model, run_view) {
            actions.push(*action);
        }
    }
    actions.retain(|action| !matches!(action, UserAction::Help | UserAction::Quit));
    let described = |action: UserAction| (action, action.spec().description_on(model.page()));
    (title, actions.into_iter().map(described).collect())
}

/// The actions to show as hints, most useful first.
pub(crate) fn hints(model: &ScreenModel, run_view: &RunView) -> Vec<UserAction> {
    let available = |action: &UserAction| action.spec().is_available(model, run_view);
    let mut actions = model.page().hints(model, run_view).to_vec();
    if model.is_bottom() {
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
