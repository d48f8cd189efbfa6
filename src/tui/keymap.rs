//! The keymap: the built-in table, the user's overrides, and their validation.
//!
//! Owns chords and their lookup. It must not know what an action does.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    action::{ActionScope, HelpGroup, UserAction},
    key::{self, KeyError, KeyPress},
};
use crate::diagnostic::Diagnostic;

const BUILT_IN: &str = include_str!("../../assets/keymap.toml");

/// Chords by action name, as in `[keys]` of the config.
pub(crate) type KeyOverrides = BTreeMap<String, ChordList>;

/// One chord or several.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum ChordList {
    One(String),
    /// Several chords; an empty list unbinds the action.
    Many(Vec<String>),
}

/// A problem of a keymap.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeymapError {
    /// The table cannot be parsed.
    #[error("the key table is not valid TOML: {0}")]
    Toml(String),
    #[error("unknown action `{0}` in [keys]")]
    UnknownAction(String),
    /// A chord of the action cannot be parsed.
    #[error("action `{action}` in [keys]: {cause}")]
    Key { action: String, cause: KeyError },
    /// Two actions have the same chord.
    #[error("key `{chord}` is bound to both `{first}` and `{second}`")]
    Conflict { chord: String, first: &'static str, second: &'static str },
    /// A required action has no key.
    #[error("action `{0}` must keep a key")]
    Unbound(&'static str),
}

impl Diagnostic for KeymapError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::Toml(_) => return None,
            Self::UnknownAction(_) => "the help (`?`) lists the names".into(),
            Self::Key { cause, .. } => return cause.help(),
            Self::Conflict { .. } => "give one of them another key in [keys]".into(),
            Self::Unbound(_) => "give it one in [keys]".into(),
        })
    }
}

impl KeymapError {
    /// Names of the affected actions, to locate where their keys were set.
    pub(crate) fn actions(&self) -> Vec<&str> {
        match self {
            Self::Toml(_) => Vec::new(),
            Self::UnknownAction(action) | Self::Key { action, .. } => vec![action],
            Self::Conflict { first, second, .. } => vec![first, second],
            Self::Unbound(action) => vec![action],
        }
    }
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
pub(crate) struct Keymap {
    bindings: Vec<(Vec<KeyPress>, UserAction)>,
}

impl Keymap {
    /// Applies `overrides` to the built-in keys. Returns all problems; conflicts are never resolved silently.
    pub(crate) fn new(overrides: &KeyOverrides) -> Result<Self, Vec<KeymapError>> {
        let built_in: KeyOverrides =
            toml::from_str(BUILT_IN).map_err(|error| vec![KeymapError::Toml(error.to_string())])?;
        let mut errors: Vec<_> = overrides
            .keys()
            .chain(built_in.keys())
            .filter(|name| !UserAction::ALL.iter().any(|action| action.name() == *name))
            .map(|name| KeymapError::UnknownAction(name.clone()))
            .collect();
        let mut bindings = Vec::new();
        for action in UserAction::ALL {
            let Some(chords) = overrides.get(action.name()).or_else(|| built_in.get(action.name())) else { continue };
            for chord in chords.iter() {
                match key::parse(chord) {
                    Ok(keys) => bindings.push((keys, *action)),
                    Err(cause) => errors.push(KeymapError::Key { action: action.name().into(), cause }),
                }
            }
        }
        let keymap = Self { bindings };
        errors.extend(keymap.conflicts());
        errors.extend(
            [
                UserAction::Quit,
                UserAction::Interrupt,
                UserAction::Help,
                UserAction::Confirm,
                UserAction::Cancel,
                UserAction::Dismiss,
                UserAction::Discard,
            ]
            .into_iter()
            .filter(|action| keymap.chords(*action).next().is_none())
            .map(|action| KeymapError::Unbound(action.name())),
        );
        if errors.is_empty() { Ok(keymap) } else { Err(errors) }
    }

    fn conflicts(&self) -> impl Iterator<Item = KeymapError> {
        self.bindings.iter().enumerate().flat_map(|(index, (chord, action))| {
            self.bindings[index + 1..]
                .iter()
                .filter(move |(other, rival)| {
                    action != rival
                        && can_conflict(*action, *rival)
                        && (other.starts_with(chord) || chord.starts_with(other))
                })
                .map(move |(_, rival)| KeymapError::Conflict {
                    chord: key::display_chord(chord),
                    first: action.name(),
                    second: rival.name(),
                })
        })
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
        for (chord, action) in self.bindings.iter().filter(|(_, action)| action.scope() == scope) {
            if chord == keys {
                return ChordLookup::Action(*action);
            }
            pending |= chord.starts_with(keys);
        }
        if pending { ChordLookup::Pending } else { ChordLookup::Nothing }
    }

    pub(crate) fn chords(&self, action: UserAction) -> impl Iterator<Item = &[KeyPress]> {
        self.bindings.iter().filter(move |(_, bound)| *bound == action).map(|(chord, _)| chord.as_slice())
    }

    /// The first chord of an action, formatted for display.
    pub(crate) fn first(&self, action: UserAction) -> Option<String> {
        self.chords(action).next().map(key::display_chord)
    }

    /// Rows of the help by heading: (keys, description).
    pub(crate) fn help(&self) -> impl Iterator<Item = (HelpGroup, Vec<(String, &'static str)>)> {
        HelpGroup::ALL.into_iter().map(|group| {
            let rows = UserAction::ALL.iter().filter(|action| action.group() == group);
            (group, rows.map(|action| (self.all(*action), action.description())).collect())
        })
    }

    fn all(&self, action: UserAction) -> String {
        let chords: Vec<_> = self.chords(action).map(key::display_chord).collect();
        if chords.is_empty() { "unbound".to_owned() } else { chords.join("  ") }
    }

    /// The key table as Markdown, for the documentation.
    pub(crate) fn markdown(&self) -> String {
        let mut out = String::new();
        for (group, rows) in self.help() {
            out.push_str(&format!("### {}\n\n| keys | action |\n|---|---|\n", group.title()));
            for (keys, about) in rows {
                let keys: Vec<_> = keys.split("  ").map(|chord| format!("`{chord}`")).collect();
                out.push_str(&format!("| {} | {about} |\n", keys.join(" ").replace('|', "\\|")));
            }
            out.push('\n');
        }
        out
    }
}

/// True if one key press could mean both actions. Some actions share a key by design: hold and play, edit a waiting
/// call and retry a finished unit, run a held unit and play time to the next failure.
fn can_conflict(one: UserAction, other: UserAction) -> bool {
    let on_view = |scope: ActionScope| matches!(scope, ActionScope::View | ActionScope::Live | ActionScope::Held);
    match (one.scope(), other.scope()) {
        (a, b) if a == b => true,
        (ActionScope::Live, ActionScope::Held) | (ActionScope::Held, ActionScope::Live) => false,
        (a, b) if on_view(a) && on_view(b) => {
            let share = |view: UserAction, own: &[UserAction]| {
                [one, other].contains(&view) && [one, other].iter().any(|action| own.contains(action))
            };
            !share(UserAction::Play, &[UserAction::Hold, UserAction::LetGo])
                && !share(UserAction::RetryWith, &[UserAction::EditCall])
                && !share(UserAction::RunToFailure, &[UserAction::RunOn])
        }
        (ActionScope::Form, ActionScope::Editing) | (ActionScope::Editing, ActionScope::Form) => true,
        _ => false,
    }
}

impl ChordList {
    fn iter(&self) -> impl Iterator<Item = &str> {
        match self {
            Self::One(chord) => std::slice::from_ref(chord),
            Self::Many(chords) => chords.as_slice(),
        }
        .iter()
        .map(String::as_str)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn built_in() -> Keymap {
        Keymap::new(&KeyOverrides::new()).unwrap()
    }

    fn overrides(text: &str) -> KeyOverrides {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn every_action_has_a_key_and_a_line_in_the_help() {
        let keymap = built_in();
        let help: Vec<_> = keymap.help().flat_map(|(_, rows)| rows).collect();
        assert_eq!(help.len(), UserAction::ALL.len());
        for action in UserAction::ALL {
            let chord = keymap.chords(*action).next().unwrap_or_else(|| panic!("{action:?} has no key"));
            assert_eq!(keymap.lookup(action.scope(), chord), ChordLookup::Action(*action));
        }
        assert!(help.iter().all(|(keys, about)| keys != "unbound" && !about.is_empty()));
    }

    #[test]
    fn incomplete_chord_is_pending() {
        let keymap = built_in();
        let g = key::parse("g").unwrap();
        assert_eq!(keymap.lookup(ActionScope::View, &g), ChordLookup::Pending);
        assert_eq!(keymap.lookup(ActionScope::Question, &g), ChordLookup::Nothing);
        assert_eq!(keymap.lookup(ActionScope::View, &key::parse("gg").unwrap()), ChordLookup::Action(UserAction::Top));
        assert_eq!(keymap.lookup(ActionScope::View, &key::parse("gx").unwrap()), ChordLookup::Nothing);
    }

    #[test]
    fn overrides_move_keys_and_report_conflicts() {
        let keymap = Keymap::new(&overrides("retry = 'T'\nquit = ['Q', '<c-q>']")).unwrap();
        assert_eq!(keymap.first(UserAction::Retry).as_deref(), Some("T"));
        assert_eq!(keymap.lookup(ActionScope::View, &key::parse("r").unwrap()), ChordLookup::Nothing);
        let errors =
            Keymap::new(&overrides("retry = 'j'\nzoom = 'g'\nfly = 'F'\nstop = '<no>'\nquit = []")).unwrap_err();
        let words: Vec<_> = errors.iter().map(Diagnostic::to_line).collect();
        insta::assert_snapshot!(words.join("\n"));
    }

    #[test]
    fn keys_of_held_units_conflict_with_those_of_the_view() {
        let errors = Keymap::new(&overrides("deny = 'j'\nhold = 'gx'\nlet-go = 'G'")).unwrap_err();
        let words: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(words.len(), 2, "{words:?}");
        assert!(words.iter().any(|word| word.contains("`down` and `deny`")), "{words:?}");
        assert!(words.iter().any(|word| word.contains("`bottom` and `let-go`")), "{words:?}");
        assert!(Keymap::new(&overrides("hold = 'H'\nlet-go = 'H'\ndeny = 'D'")).is_ok());
    }

    #[test]
    fn documented_key_table_is_current() {
        insta::assert_snapshot!(built_in().markdown());
    }
}
