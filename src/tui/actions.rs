//! The user actions of the screen: one value for each, with its name, hint, help, availability and effect.
//!
//! Keys, footer hints, the help page, the `:` commands and the key table of the guide are derived from [`ALL`]. Each group
//! of the help has its table in a file below. Actions change the model and return effects as data; they must not read a
//! clock, a file or a terminal.

use super::{
    action::{ActionScope, HelpGroup, UserAction},
    action_spec::ActionSpec,
    page::ScreenModel,
    pages::{home::actions as home, review::actions as review},
};
use ingestdeck_core::run::state::RunView;

pub(crate) mod amend;
pub(crate) mod answer;
pub(crate) mod command;
pub mod command_line;
pub(crate) mod dialogs;
mod export;
pub(crate) mod find;
pub(crate) mod group_retry;
pub(crate) mod hints;
pub(crate) mod hold;
pub(crate) mod listing;
pub(crate) mod marks;
pub(crate) mod navigation;
mod refusal;
mod rerun;
pub(crate) mod screen;
pub(crate) mod time;
pub(crate) mod units;

/// The actions of each heading of the help.
pub(crate) const GROUPS: [(HelpGroup, &[ActionSpec]); HelpGroup::COUNT] = [
    (HelpGroup::Move, navigation::ACTIONS),
    (HelpGroup::Units, units::ACTIONS),
    (HelpGroup::Find, find::ACTIONS),
    (HelpGroup::Time, time::ACTIONS),
    (HelpGroup::Screen, screen::ACTIONS),
    (HelpGroup::Home, home::ACTIONS),
    (HelpGroup::Review, review::ACTIONS),
    (HelpGroup::Dialogs, dialogs::ACTIONS),
];

/// All actions, in the order of the help and of [`UserAction`].
pub static ALL: [ActionSpec; UserAction::COUNT] = {
    let mut all = [GROUPS[0].1[0]; UserAction::COUNT];
    let (mut group, mut next) = (0, 0);
    while group < GROUPS.len() {
        let mut place = 0;
        while place < GROUPS[group].1.len() {
            all[next] = GROUPS[group].1[place];
            assert!(
                all[next].action as usize == next,
                "the tables must have the order of `UserAction`"
            );
            (place, next) = (place + 1, next + 1);
        }
        group += 1;
    }
    assert!(
        next == UserAction::COUNT,
        "an action is missing in the tables"
    );
    all
};

impl UserAction {
    pub(crate) fn spec(self) -> &'static ActionSpec {
        &ALL[self as usize]
    }
}

/// Scopes in which keys are looked up, innermost first.
pub(crate) fn scopes(model: &ScreenModel, run_view: &RunView) -> Vec<ActionScope> {
    if model.dialogs.question.is_some() {
        vec![ActionScope::Question]
    } else if model.dialogs.is_editing() {
        vec![ActionScope::Form, ActionScope::Editing]
    } else if model.dialogs.line_input.is_some() {
        vec![ActionScope::Typing]
    } else if model.is_home {
        vec![ActionScope::Home, ActionScope::View]
    } else if model.page().scope() == ActionScope::Review {
        vec![ActionScope::Review, ActionScope::View]
    } else {
        let own = hold::subject(model, run_view).map(|unit| {
            if hold::is_or_will_be_held(model, unit) || unit.oldest_held_call().is_some() {
                ActionScope::Held
            } else {
                ActionScope::Live
            }
        });
        own.into_iter().chain([ActionScope::View]).collect()
    }
}
