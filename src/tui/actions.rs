//! The user actions of the screen: one value for each, with its name, hint, help, availability and effect.
//!
//! Keys, footer hints, the help page, the `:` commands and the key table of the guide are derived from [`ALL`]. Each group
//! of the help has its table in a file below. Actions change the model and return effects as data; they must not read a
//! clock, a file or a terminal.

use super::{
    action::{ActionScope, HelpGroup, UserAction},
    effect::ScreenEffect,
    model::{OverlayView, ScreenModel},
};
use ingestdeck_core::run::state::RunView;

pub(crate) mod amend;
mod bookmarks;
pub(crate) mod command;
pub mod command_line;
mod compare;
mod dialogs;
mod export;
mod failure_groups;
pub(crate) mod find;
pub(crate) mod grid;
pub(crate) mod hints;
pub(crate) mod hold;
mod home;
pub(crate) mod inspect;
pub(crate) mod listing;
pub(crate) mod marks;
pub(crate) mod navigation;
mod rerun;
pub(crate) mod review;
pub(crate) mod screen;
pub(crate) mod time;
pub(crate) mod units;
mod views;

#[derive(Clone, Copy, Debug)]
pub struct ActionSpec {
    pub action: UserAction,
    /// Name in the keymap, in the config and on the command line.
    pub name: &'static str,
    pub scope: ActionScope,
    /// Description for the help.
    pub description: &'static str,
    hint: &'static str,
    /// Another hint, while the action has a special meaning.
    special_hint: fn(&ScreenModel, &RunView) -> Option<&'static str>,
    available: fn(&ScreenModel, &RunView) -> Availability,
    /// True if even a refused attempt selects the unit, so that the selection no longer follows the work.
    selects_unit: bool,
    run: ActionRun,
}

/// The effect of an action.
#[derive(Clone, Copy, Debug)]
enum ActionRun {
    /// Changes only the model.
    Change(fn(&mut ScreenModel, &RunView)),
    Effects(fn(&mut ScreenModel, &RunView) -> Vec<ScreenEffect>),
}

pub(crate) type Availability = Result<(), Unavailable>;

/// Why an action is not available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unavailable {
    /// Its key does nothing here.
    NoEffect,
    /// Its key shows this reason.
    Because(String),
}

impl Unavailable {
    fn because(reason: impl Into<String>) -> Self {
        Self::Because(reason.into())
    }

    fn no_unit_selected() -> Self {
        Self::because("no unit is selected")
    }
}

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

impl ActionSpec {
    const fn new(
        action: UserAction,
        name: &'static str,
        hint: &'static str,
        description: &'static str,
        run: ActionRun,
    ) -> Self {
        Self {
            action,
            name,
            scope: ActionScope::View,
            description,
            hint,
            special_hint: |_, _| None,
            available: |_, _| Ok(()),
            selects_unit: false,
            run,
        }
    }

    const fn scope(self, scope: ActionScope) -> Self {
        Self { scope, ..self }
    }

    const fn when(self, available: fn(&ScreenModel, &RunView) -> Availability) -> Self {
        Self { available, ..self }
    }

    const fn special_hint(self, hint: fn(&ScreenModel, &RunView) -> Option<&'static str>) -> Self {
        Self {
            special_hint: hint,
            ..self
        }
    }

    const fn selects_unit(self) -> Self {
        Self {
            selects_unit: true,
            ..self
        }
    }

    pub(crate) fn is_available(&self, model: &ScreenModel, run_view: &RunView) -> bool {
        self.availability(model, run_view).is_ok()
    }

    fn availability(&self, model: &ScreenModel, run_view: &RunView) -> Availability {
        if model.is_home() && !home::has(self) {
            return Err(Unavailable::NoEffect);
        }
        (self.available)(model, run_view)
    }

    /// Short label for the line of hints.
    pub(crate) fn hint(&self, model: &ScreenModel, run_view: &RunView) -> &'static str {
        (self.special_hint)(model, run_view).unwrap_or(self.hint)
    }

    /// Performs the action, or shows why it is not available.
    pub(crate) fn perform(&self, model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
        match self.availability(model, run_view) {
            Ok(()) => match self.run {
                ActionRun::Change(run) => run(model, run_view),
                ActionRun::Effects(run) => return run(model, run_view),
            },
            Err(Unavailable::NoEffect) => {}
            Err(Unavailable::Because(reason)) => {
                model.units_view.follows_work &= !self.selects_unit;
                model.toasts.show(reason);
            }
        }
        Vec::new()
    }
}

/// An action that changes only the model.
const fn change(
    action: UserAction,
    name: &'static str,
    hint: &'static str,
    description: &'static str,
    run: fn(&mut ScreenModel, &RunView),
) -> ActionSpec {
    ActionSpec::new(action, name, hint, description, ActionRun::Change(run))
}

/// An action with effects outside the model.
const fn effects(
    action: UserAction,
    name: &'static str,
    hint: &'static str,
    description: &'static str,
    run: fn(&mut ScreenModel, &RunView) -> Vec<ScreenEffect>,
) -> ActionSpec {
    ActionSpec::new(action, name, hint, description, ActionRun::Effects(run))
}

/// Scopes in which keys are looked up, innermost first.
pub(crate) fn scopes(model: &ScreenModel, run_view: &RunView) -> Vec<ActionScope> {
    if model.dialogs.question.is_some() {
        vec![ActionScope::Question]
    } else if model.dialogs.amend_form.is_some() || model.dialogs.editor.is_some() {
        vec![ActionScope::Form, ActionScope::Editing]
    } else if model.dialogs.line_input.is_some() {
        vec![ActionScope::Typing]
    } else if model.is_home() {
        vec![ActionScope::Home, ActionScope::View]
    } else if matches!(model.views.last(), Some(OverlayView::Review(_))) {
        vec![ActionScope::Review, ActionScope::View]
    } else {
        let needs_decision = |unit: &ingestdeck_core::run::state::UnitState| {
            unit.is_held() || unit.oldest_held_call().is_some()
        };
        let own = hold::subject(model, run_view).map(|unit| {
            if needs_decision(unit) {
                ActionScope::Held
            } else {
                ActionScope::Live
            }
        });
        own.into_iter().chain([ActionScope::View]).collect()
    }
}

fn is_grid(model: &ScreenModel) -> bool {
    matches!(model.views.last(), Some(OverlayView::Grid))
}

/// `Ok` if the condition holds; otherwise the action does nothing.
fn require(condition: bool) -> Availability {
    if condition {
        Ok(())
    } else {
        Err(Unavailable::NoEffect)
    }
}
