//! The keymap: chords and their lookup.
//!
//! It must not know what an action does; [`super::key_table`] builds it from the table of actions and the user's keys.

use super::{
    action::{ActionScope, UserAction},
    key::{self, KeyPress},
};

/// A chord and its action.
#[derive(Clone, Debug)]
pub(crate) struct KeyBinding {
    pub keys: Vec<KeyPress>,
    pub action: UserAction,
    pub scope: ActionScope,
}

/// Result of a key lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChordLookup {
    Action(UserAction),
    /// The keys are the start of a longer chord.
    Pending,
    Nothing,
}

#[derive(Clone, Debug)]
pub struct Keymap {
    bindings: Vec<KeyBinding>,
}

impl Keymap {
    pub(crate) fn from_bindings(bindings: Vec<KeyBinding>) -> Self {
        Self { bindings }
    }

    pub(crate) fn bindings(&self) -> &[KeyBinding] {
        &self.bindings
    }

    /// Looks up the typed `keys` in the first of `scopes` that binds them.
    pub(crate) fn lookup_in(&self, scopes: &[ActionScope], keys: &[KeyPress]) -> ChordLookup {
        let mut found = ChordLookup::Nothing;
        for scope in scopes {
            match self.lookup(*scope, keys) {
                ChordLookup::Action(action) => return ChordLookup::Action(action),
                ChordLookup::Pending => found = ChordLookup::Pending,
                ChordLookup::Nothing => {}
            }
        }
        found
    }

    /// Looks up the typed `keys` in `scope`.
    pub(crate) fn lookup(&self, scope: ActionScope, keys: &[KeyPress]) -> ChordLookup {
        let mut pending = false;
        for binding in self
            .bindings
            .iter()
            .filter(|binding| binding.scope == scope)
        {
            if binding.keys == keys {
                return ChordLookup::Action(binding.action);
            }
            pending |= binding.keys.starts_with(keys);
        }
        if pending {
            ChordLookup::Pending
        } else {
            ChordLookup::Nothing
        }
    }

    /// The bindings of which `keys` are only the beginning.
    pub(crate) fn continuations(&self, keys: &[KeyPress]) -> impl Iterator<Item = &KeyBinding> {
        self.bindings.iter().filter(move |binding| {
            binding.keys.len() > keys.len() && binding.keys.starts_with(keys)
        })
    }

    pub fn chords(&self, action: UserAction) -> impl Iterator<Item = &[KeyPress]> {
        self.bindings
            .iter()
            .filter(move |binding| binding.action == action)
            .map(|binding| binding.keys.as_slice())
    }

    /// The first chord of an action, formatted for display.
    pub fn first(&self, action: UserAction) -> Option<String> {
        self.chords(action).next().map(key::display_chord)
    }
}
