//! One user action: its name, hint, help, availability and effect.

use crate::{
    action::{ActionScope, Availability, Unavailable, UserAction, require},
    effect::ScreenEffect,
    layout::MIN_DIALOG_ROWS,
    page::{Page, PageKey, ScreenModel},
};
use ingestdeck_core::run::state::RunView;

#[derive(Clone, Copy, Debug)]
pub struct ActionSpec {
    pub action: UserAction,
    /// Name in the keymap, in the config and on the command line.
    pub name: &'static str,
    pub scope: ActionScope,
    /// Description for the help.
    pub description: &'static str,
    pub(crate) hint: &'static str,
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

    pub(crate) const fn scope(self, scope: ActionScope) -> Self {
        Self { scope, ..self }
    }

    pub(crate) const fn when(self, available: fn(&ScreenModel, &RunView) -> Availability) -> Self {
        Self { available, ..self }
    }

    pub(crate) const fn special_hint(
        self,
        hint: fn(&ScreenModel, &RunView) -> Option<&'static str>,
    ) -> Self {
        Self {
            special_hint: hint,
            ..self
        }
    }

    pub(crate) const fn selects_unit(self) -> Self {
        Self {
            selects_unit: true,
            ..self
        }
    }

    pub(crate) fn is_available(&self, model: &ScreenModel, run_view: &RunView) -> bool {
        self.availability(model, run_view).is_ok()
    }

    /// What the action means on the page that is shown, if that is not its general meaning.
    fn page_key(&self, model: &ScreenModel) -> Option<&'static PageKey> {
        let mut keys = model.page().keys().iter();
        keys.find(|key| key.action == self.action)
    }

    fn availability(&self, model: &ScreenModel, run_view: &RunView) -> Availability {
        if self.scope == ActionScope::View {
            if let Some(key) = self.page_key(model) {
                return (key.available)(model, run_view);
            }
            require(!model.is_home || self.action.works_at_home())?;
            require(model.page().offers(self.action))?;
        }
        let decides = matches!(self.scope, ActionScope::Held | ActionScope::Review);
        if decides && model.is_too_low_to_decide() {
            return Err(Unavailable::because(format!(
                "what is decided must be seen: {MIN_DIALOG_ROWS} rows are needed, the terminal has {}",
                model.size.1
            )));
        }
        (self.available)(model, run_view)
    }

    /// Short label for the line of hints.
    pub(crate) fn hint(&self, model: &ScreenModel, run_view: &RunView) -> &'static str {
        match self.page_key(model) {
            Some(key) => key.hint,
            None => (self.special_hint)(model, run_view).unwrap_or(self.hint),
        }
    }

    /// What it does on the page that is shown, for the help.
    pub(crate) fn description_on(&self, page: &dyn Page) -> &'static str {
        let here = page.keys().iter().find(|key| key.action == self.action);
        here.and_then(|key| key.description)
            .unwrap_or(self.description)
    }

    /// Performs the action, or shows why it is not available.
    pub(crate) fn perform(&self, model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
        match self.availability(model, run_view) {
            Ok(()) => match (self.page_key(model), self.run) {
                (Some(key), _) => return (key.run)(model, run_view),
                (None, ActionRun::Change(run)) => run(model, run_view),
                (None, ActionRun::Effects(run)) => return run(model, run_view),
            },
            Err(reason) => {
                let is_shown = model.show_reason(reason);
                model.units_view.follows_work &= !(is_shown && self.selects_unit);
            }
        }
        Vec::new()
    }
}

/// An action that changes only the model.
pub(crate) const fn change(
    action: UserAction,
    name: &'static str,
    hint: &'static str,
    description: &'static str,
    run: fn(&mut ScreenModel, &RunView),
) -> ActionSpec {
    ActionSpec::new(action, name, hint, description, ActionRun::Change(run))
}

/// An action with effects outside the model.
pub(crate) const fn effects(
    action: UserAction,
    name: &'static str,
    hint: &'static str,
    description: &'static str,
    run: fn(&mut ScreenModel, &RunView) -> Vec<ScreenEffect>,
) -> ActionSpec {
    ActionSpec::new(action, name, hint, description, ActionRun::Effects(run))
}
