//! The table of keys: the built-in keys, the user's overrides, their validation, and the help.
//!
//! Builds a [`Keymap`] from [`super::actions`]. It must not know what an action does.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    action::{ActionScope, HelpGroup, UserAction},
    action_spec::ActionSpec,
    actions,
    key::{self, KeyError},
    keymap::{KeyBinding, Keymap},
};
use ingestdeck_core::diagnostic::Diagnostic;

/// The keys of all actions, in `assets/keymap.toml`.
const BUILT_IN: &str = include_str!("../../assets/keymap.toml");

/// Names of former actions, which settings may still contain. They have no effect.
const RETIRED: [&str; 1] = ["choose-other"];

/// Chords by action name, as in `[keys]` of the config.
pub type KeyOverrides = BTreeMap<String, ChordList>;

/// One chord or several.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum ChordList {
    One(String),
    /// Several chords; an empty list unbinds the action.
    Many(Vec<String>),
}

/// A problem of a keymap.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeymapError {
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
    Conflict {
        chord: String,
        first: &'static str,
        second: &'static str,
    },
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
    pub fn actions(&self) -> Vec<&str> {
        match self {
            Self::Toml(_) => Vec::new(),
            Self::UnknownAction(action) | Self::Key { action, .. } => vec![action],
            Self::Conflict { first, second, .. } => vec![first, second],
            Self::Unbound(action) => vec![action],
        }
    }
}

impl Keymap {
    /// Applies `overrides` to the built-in keys. Returns all problems; conflicts are never resolved silently.
    pub fn new(overrides: &KeyOverrides) -> Result<Self, Vec<KeymapError>> {
        let built_in: KeyOverrides =
            toml::from_str(BUILT_IN).map_err(|error| vec![KeymapError::Toml(error.to_string())])?;
        let mut errors: Vec<_> = overrides
            .keys()
            .chain(built_in.keys())
            .filter(|name| {
                !actions::ALL.iter().any(|spec| spec.name == *name)
                    && !RETIRED.contains(&name.as_str())
            })
            .map(|name| KeymapError::UnknownAction(name.clone()))
            .collect();
        let mut bindings = Vec::new();
        for ActionSpec {
            action,
            name,
            scope,
            ..
        } in &actions::ALL
        {
            let Some(chords) = overrides.get(*name).or_else(|| built_in.get(*name)) else {
                continue;
            };
            for chord in chords.iter() {
                match key::parse(chord) {
                    Ok(keys) => bindings.push(KeyBinding {
                        keys,
                        action: *action,
                        scope: *scope,
                    }),
                    Err(cause) => errors.push(KeymapError::Key {
                        action: (*name).into(),
                        cause,
                    }),
                }
            }
        }
        let keymap = Self::from_bindings(bindings);
        errors.extend(keymap.conflicts());
        errors.extend(
            [
                UserAction::Quit,
                UserAction::Interrupt,
                UserAction::Help,
                UserAction::Confirm,
                UserAction::LeaveRun,
                UserAction::StopRun,
                UserAction::Cancel,
                UserAction::Dismiss,
                UserAction::Discard,
            ]
            .into_iter()
            .filter(|action| keymap.chords(*action).next().is_none())
            .map(|action| KeymapError::Unbound(action.spec().name)),
        );
        if errors.is_empty() {
            Ok(keymap)
        } else {
            Err(errors)
        }
    }

    fn conflicts(&self) -> impl Iterator<Item = KeymapError> {
        self.bindings()
            .iter()
            .enumerate()
            .flat_map(|(index, binding)| {
                self.bindings()[index + 1..]
                    .iter()
                    .filter(move |rival| {
                        binding.action != rival.action
                            && can_conflict(binding, rival)
                            && (rival.keys.starts_with(&binding.keys)
                                || binding.keys.starts_with(&rival.keys))
                    })
                    .map(move |rival| KeymapError::Conflict {
                        chord: key::display_chord(&binding.keys),
                        first: binding.action.spec().name,
                        second: rival.action.spec().name,
                    })
            })
    }

    /// Rows of the help by heading: (keys, description).
    pub(crate) fn help(&self) -> impl Iterator<Item = (HelpGroup, Vec<(String, &'static str)>)> {
        actions::GROUPS.iter().map(|(group, actions)| {
            (
                *group,
                actions
                    .iter()
                    .map(|spec| (self.all(spec.action), spec.description))
                    .collect(),
            )
        })
    }

    /// All keys of an action.
    pub(crate) fn all(&self, action: UserAction) -> String {
        let chords: Vec<_> = self.chords(action).map(key::display_chord).collect();
        if chords.is_empty() {
            "unbound".to_owned()
        } else {
            chords.join("  ")
        }
    }

    /// The key table as Markdown, for the documentation.
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        for (group, rows) in self.help() {
            out.push_str(&format!(
                "### {}\n\n| keys | action |\n|---|---|\n",
                group.title()
            ));
            for (keys, about) in rows {
                let keys: Vec<_> = keys.split("  ").map(|chord| format!("`{chord}`")).collect();
                out.push_str(&format!(
                    "| {} | {about} |\n",
                    keys.join(" ").replace('|', "\\|")
                ));
            }
            out.push('\n');
        }
        out
    }
}

/// True if one key press could mean both actions. Some actions share a key by design: hold and play, edit a waiting
/// call and retry a finished unit, run a held unit and play time to the next failure.
fn can_conflict(one: &KeyBinding, other: &KeyBinding) -> bool {
    let on_view = |scope: ActionScope| {
        matches!(
            scope,
            ActionScope::View | ActionScope::Live | ActionScope::Held
        )
    };
    match (one.scope, other.scope) {
        (a, b) if a == b => true,
        (ActionScope::Live, ActionScope::Held) | (ActionScope::Held, ActionScope::Live) => false,
        (a, b) if on_view(a) && on_view(b) => {
            let share = |view: UserAction, own: &[UserAction]| {
                [one.action, other.action].contains(&view)
                    && [one.action, other.action]
                        .iter()
                        .any(|action| own.contains(action))
            };
            !share(UserAction::Play, &[UserAction::Hold, UserAction::LetGo])
                && !share(UserAction::RetryWith, &[UserAction::EditCall])
                && !share(UserAction::RunToFailure, &[UserAction::RunOn])
        }
        (ActionScope::Form, ActionScope::Editing) | (ActionScope::Editing, ActionScope::Form) => {
            true
        }
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
    use crate::keymap::ChordLookup;

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
        assert_eq!(help.len(), actions::ALL.len());
        for ActionSpec { action, scope, .. } in &actions::ALL {
            let chord = keymap
                .chords(*action)
                .next()
                .unwrap_or_else(|| panic!("{action:?} has no key"));
            assert_eq!(keymap.lookup(*scope, chord), ChordLookup::Action(*action));
        }
        assert!(
            help.iter()
                .all(|(keys, about)| keys != "unbound" && !about.is_empty())
        );
    }

    #[test]
    fn incomplete_chord_is_pending() {
        let keymap = built_in();
        let g = key::parse("g").unwrap();
        assert_eq!(keymap.lookup(ActionScope::View, &g), ChordLookup::Pending);
        assert_eq!(
            keymap.lookup(ActionScope::Question, &g),
            ChordLookup::Nothing
        );
        assert_eq!(
            keymap.lookup(ActionScope::View, &key::parse("gg").unwrap()),
            ChordLookup::Action(UserAction::Top)
        );
        assert_eq!(
            keymap.lookup(ActionScope::View, &key::parse("gx").unwrap()),
            ChordLookup::Nothing
        );
    }

    #[test]
    fn overrides_move_keys_and_report_conflicts() {
        let keymap = Keymap::new(&overrides("retry = 'T'\nquit = ['Q', '<c-q>']")).unwrap();
        assert_eq!(keymap.first(UserAction::Retry).as_deref(), Some("T"));
        assert_eq!(
            keymap.lookup(ActionScope::View, &key::parse("r").unwrap()),
            ChordLookup::Nothing
        );
        let errors = Keymap::new(&overrides(
            "retry = 'j'\nzoom = 'g'\nfly = 'F'\nstop = '<no>'\nquit = []",
        ))
        .unwrap_err();
        let words: Vec<_> = errors.iter().map(Diagnostic::to_line).collect();
        insta::assert_snapshot!(words.join("\n"));
    }

    #[test]
    fn keys_of_held_units_conflict_with_those_of_the_view() {
        let errors = Keymap::new(&overrides("deny = 'j'\nhold = 'gx'\nlet-go = 'G'")).unwrap_err();
        let words: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(words.len(), 2, "{words:?}");
        assert!(
            words.iter().any(|word| word.contains("`down` and `deny`")),
            "{words:?}"
        );
        assert!(
            words
                .iter()
                .any(|word| word.contains("`bottom` and `let-go`")),
            "{words:?}"
        );
        assert!(Keymap::new(&overrides("hold = 'H'\nlet-go = 'H'\ndeny = 'X'")).is_ok());
    }

    #[test]
    fn former_keys_are_a_valid_settings_file() {
        #[derive(Deserialize)]
        struct Settings {
            keys: KeyOverrides,
        }
        let text = include_str!("../../assets/keymaps/former.toml");
        let settings: Settings = toml::from_str(text).unwrap();
        let keymap = Keymap::new(&settings.keys).unwrap();
        let lookup = |key| keymap.lookup(ActionScope::View, &key::parse(key).unwrap());
        assert_eq!(lookup("l"), ChordLookup::Action(UserAction::NextAttempt));
        assert_eq!(lookup("<right>"), ChordLookup::Action(UserAction::Right));
        assert!(
            actions::ALL
                .iter()
                .all(|spec| keymap.chords(spec.action).next().is_some()),
            "every action has a key"
        );
        // The guide has the same table.
        let guide = include_str!("../../assets/guide/keys.md");
        let table = text.split_once("[keys]").unwrap().1.trim();
        assert!(guide.contains(&format!("[keys]\n{table}\n")), "{table}");
    }

    #[test]
    fn documented_key_table_is_current() {
        insta::assert_snapshot!(built_in().markdown());
    }
}
