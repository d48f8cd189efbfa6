//! Keys and their text form in the keymap, the user's config and the tests.
//!
//! `j`, `gg`, `<c-d>`, `<s-tab>`, `<enter>`, `<f1>`, `<lt>`: one parser for all three. It must not know what a key
//! does.

use std::fmt;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use ingestdeck_core::diagnostic::Diagnostic;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyPress {
    pub code: KeyCode,
    /// Modifiers. Shift is folded into characters.
    pub modifiers: KeyModifiers,
}

/// Why a text cannot be parsed as keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("empty key")]
    Empty,
    /// A `<` without a `>`.
    #[error("`<` without `>` in key `{0}`")]
    Open(String),
    /// `<…>` with an unknown name.
    #[error("unknown key `<{0}>`")]
    Unknown(String),
}

impl Diagnostic for KeyError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::Empty => "write a key such as `j`, `gg` or `<c-d>`".into(),
            Self::Open(_) => "write `<lt>` for the character itself".into(),
            Self::Unknown(_) => "write one such as `<enter>`, `<c-d>` or `<f1>`".into(),
        })
    }
}

impl KeyPress {
    /// Creates a key without modifiers.
    pub fn plain(code: KeyCode) -> Self {
        Self {
            code,
            modifiers: KeyModifiers::NONE,
        }
    }

    /// Converts a terminal event, keeping the relevant modifiers.
    pub(crate) fn from_event(event: KeyEvent) -> Self {
        let mut modifiers = event.modifiers
            & (KeyModifiers::CONTROL
                | KeyModifiers::ALT
                | KeyModifiers::SHIFT
                | KeyModifiers::SUPER);
        let mut code = event.code;
        match code {
            KeyCode::Char(char) => {
                modifiers.remove(KeyModifiers::SHIFT);
                if modifiers.contains(KeyModifiers::CONTROL) {
                    code = KeyCode::Char(char.to_ascii_lowercase());
                }
            }
            KeyCode::BackTab => {
                code = KeyCode::Tab;
                modifiers.insert(KeyModifiers::SHIFT);
            }
            _ => {}
        }
        Self { code, modifiers }
    }

    /// The character that this key types, if any.
    pub(crate) fn typed(self) -> Option<char> {
        match self.code {
            KeyCode::Char(char)
                if !self
                    .modifiers
                    .intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) =>
            {
                Some(char)
            }
            _ => None,
        }
    }
}

/// Parses a text such as `jj<enter>/arr<enter>n`.
pub fn parse(text: &str) -> Result<Vec<KeyPress>, KeyError> {
    let mut keys = Vec::new();
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        rest = &rest[char.len_utf8()..];
        if char != '<' {
            keys.push(KeyPress::plain(KeyCode::Char(char)));
            continue;
        }
        let Some((name, after)) = rest.split_once('>') else {
            return Err(KeyError::Open(text.to_owned()));
        };
        keys.push(key_named(name)?);
        rest = after;
    }
    if keys.is_empty() {
        Err(KeyError::Empty)
    } else {
        Ok(keys)
    }
}

const NAMES: &[(&str, KeyCode, &str)] = &[
    ("enter", KeyCode::Enter, "Enter"),
    ("esc", KeyCode::Esc, "Esc"),
    ("tab", KeyCode::Tab, "Tab"),
    ("space", KeyCode::Char(' '), "Space"),
    ("lt", KeyCode::Char('<'), "<"),
    ("gt", KeyCode::Char('>'), ">"),
    ("backspace", KeyCode::Backspace, "Backspace"),
    ("del", KeyCode::Delete, "Del"),
    ("ins", KeyCode::Insert, "Ins"),
    ("home", KeyCode::Home, "Home"),
    ("end", KeyCode::End, "End"),
    ("pageup", KeyCode::PageUp, "PgUp"),
    ("pagedown", KeyCode::PageDown, "PgDn"),
    ("up", KeyCode::Up, "↑"),
    ("down", KeyCode::Down, "↓"),
    ("left", KeyCode::Left, "←"),
    ("right", KeyCode::Right, "→"),
];

fn key_named(name: &str) -> Result<KeyPress, KeyError> {
    let unknown = || KeyError::Unknown(name.to_owned());
    let mut modifiers = KeyModifiers::NONE;
    let mut rest = name;
    while let Some((modifier, after)) = rest.split_once('-').filter(|(_, after)| !after.is_empty())
    {
        modifiers |= match modifier.to_ascii_lowercase().as_str() {
            "c" => KeyModifiers::CONTROL,
            "a" | "m" => KeyModifiers::ALT,
            "s" => KeyModifiers::SHIFT,
            _ => return Err(unknown()),
        };
        rest = after;
    }
    let lower = rest.to_ascii_lowercase();
    let number = lower
        .strip_prefix('f')
        .and_then(|digits| digits.parse::<u8>().ok());
    let mut chars = rest.chars();
    let code = match (
        NAMES.iter().find(|(known, ..)| *known == lower),
        number,
        chars.next(),
        chars.next(),
    ) {
        (Some((_, code, _)), ..) => *code,
        (None, Some(number @ 1..=24), ..) => KeyCode::F(number),
        (None, None, Some(char), None) if !modifiers.is_empty() => KeyCode::Char(char),
        _ => return Err(unknown()),
    };
    if let KeyCode::Char(char) = code {
        if modifiers.contains(KeyModifiers::SHIFT) {
            modifiers.remove(KeyModifiers::SHIFT);
            return Ok(KeyPress {
                code: KeyCode::Char(char.to_ascii_uppercase()),
                modifiers,
            });
        }
        if modifiers.contains(KeyModifiers::CONTROL) {
            return Ok(KeyPress {
                code: KeyCode::Char(char.to_ascii_lowercase()),
                modifiers,
            });
        }
    }
    Ok(KeyPress { code, modifiers })
}

/// Formats keys for display: `j`, `Ctrl-d`, `Shift-Tab`, `Enter`.
impl fmt::Display for KeyPress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (flag, word) in [
            (KeyModifiers::CONTROL, "Ctrl-"),
            (KeyModifiers::ALT, "Alt-"),
            (KeyModifiers::SHIFT, "Shift-"),
        ] {
            if self.modifiers.contains(flag) {
                f.write_str(word)?;
            }
        }
        if let Some((.., display_chord)) = NAMES.iter().find(|(_, code, _)| *code == self.code) {
            return f.write_str(display_chord);
        }
        match self.code {
            KeyCode::Char(char) => write!(f, "{char}"),
            KeyCode::F(number) => write!(f, "F{number}"),
            other => write!(f, "{other}"),
        }
    }
}

/// Formats the keys of one chord for display.
pub fn display_chord(chord: &[KeyPress]) -> String {
    chord.iter().map(KeyPress::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_a_list_of_keys() {
        let keys = parse("jG<c-d><s-tab><lt><f1>").unwrap();
        let words: Vec<_> = keys.iter().map(KeyPress::to_string).collect();
        assert_eq!(words, ["j", "G", "Ctrl-d", "Shift-Tab", "<", "F1"]);
    }

    #[test]
    fn unknown_keys_suggest_a_fix() {
        assert_eq!(parse("<bad>"), Err(KeyError::Unknown("bad".into())));
        assert_eq!(parse("j<c-d"), Err(KeyError::Open("j<c-d".into())));
        assert_eq!(parse(""), Err(KeyError::Empty));
        assert!(parse("<>").is_err());
        assert!(parse("<x-d>").is_err());
    }

    #[test]
    fn terminal_events_lose_what_does_not_matter() {
        let event = KeyEvent::new(KeyCode::Char('G'), KeyModifiers::SHIFT);
        assert_eq!(vec![KeyPress::from_event(event)], parse("G").unwrap());
        let event = KeyEvent::new(KeyCode::BackTab, KeyModifiers::SHIFT);
        assert_eq!(vec![KeyPress::from_event(event)], parse("<s-tab>").unwrap());
        let event = KeyEvent::new(
            KeyCode::Char('C'),
            KeyModifiers::CONTROL | KeyModifiers::SHIFT,
        );
        assert_eq!(vec![KeyPress::from_event(event)], parse("<c-c>").unwrap());
    }
}
