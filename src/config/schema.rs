//! The one table of settings: name, type, default, and whether a project may set it.

use super::value::{FromValue, Kind, Value};

/// A key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Dotted name.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What it is if nobody sets it.
    pub preset: Preset,
    /// A project may set it. False for whatever costs money, opens a door or is a matter of taste.
    pub project: bool,
}

/// A default.
#[derive(Clone, Copy, Debug)]
pub enum Preset {
    /// Not set.
    Unset,
    /// True or false.
    Switch(bool),
    /// Text.
    Text(&'static str),
    /// Whole number.
    Whole(i64),
    /// Number.
    Number(f64),
    /// Texts.
    List(&'static [&'static str]),
}

/// What a resumed session with another id is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mismatch {
    /// An error that ends the session.
    #[default]
    Error,
    /// A warning.
    Warn,
}

/// Which failed tool calls fail a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolFailures {
    /// All but refusals that a later call settled.
    #[default]
    Strict,
    /// Those that no later call made good.
    Recoverable,
}

/// How somebody is told who looks at another window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Notify {
    /// Not at all.
    Off,
    /// The terminal's bell.
    #[default]
    Bell,
    /// `OSC 9`.
    Osc9,
    /// `OSC 777`.
    Osc777,
    /// The program that `ui.notify_command` names.
    Command,
}

/// Whether something is shown that not every terminal understands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// Where it is known to be understood.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// Every key, in the order that they are shown in.
pub const KEYS: &[Key] = &[
    user("claude.model", Kind::Text, Preset::Unset),
    user("claude.allowed_tools", Kind::List, Preset::List(&["Bash", "Read", "Edit", "Write"])),
    user("claude.dangerously_skip_permissions", Kind::Switch, Preset::Switch(false)),
    user("claude.use_api_billing", Kind::Switch, Preset::Switch(false)),
    user("claude.session_mismatch", Kind::Word(&["error", "warn"]), Preset::Text("error")),
    user("claude.pass_env", Kind::Names, Preset::List(&[])),
    user("agent.allowed_tools", Kind::List, Preset::List(&["Read", "Edit", "Write", "Bash", "Glob", "Grep"])),
    user("agent.max_turns", Kind::Whole(1, 100), Preset::Whole(50)),
    user("agent.model", Kind::Text, Preset::Text("claude-sonnet-4-20250514")),
    user("agent.system_prompt", Kind::Text, Preset::Unset),
    user("agent.temperature", Kind::Number(0.0, 1.0), Preset::Unset),
    shared("retry.max_retries", Kind::Whole(0, 100), Preset::Whole(3)),
    shared("retry.initial_delay_ms", Kind::Whole(0, DAY_MS), Preset::Whole(1_000)),
    shared("retry.factor", Kind::Number(1.0, 100.0), Preset::Number(2.0)),
    shared("retry.max_delay_ms", Kind::Whole(0, DAY_MS), Preset::Whole(30_000)),
    shared("ingest.tool_failures", Kind::Word(&["strict", "recoverable"]), Preset::Text("strict")),
    shared("ingest.partial_messages", Kind::Switch, Preset::Switch(true)),
    user("ingest.probe", Kind::Switch, Preset::Switch(false)),
    shared("ingest.reconcile", Kind::Switch, Preset::Switch(true)),
    shared("ingest.silence_after", Kind::Duration, Preset::Text("60s")),
    shared("ingest.silence_timeout", Kind::Duration, Preset::Unset),
    shared("ingest.unit_timeout", Kind::Duration, Preset::Unset),
    user("ingest.allow_paths", Kind::Paths, Preset::List(&[])),
    user("ui.theme", Kind::Text, Preset::Text("auto")),
    user("ui.mouse", Kind::Switch, Preset::Switch(true)),
    user("ui.ascii", Kind::Switch, Preset::Switch(false)),
    user("ui.fps", Kind::Whole(1, 120), Preset::Whole(30)),
    user("ui.notify", Kind::Word(&["off", "bell", "osc9", "osc777", "command"]), Preset::Text("bell")),
    user("ui.notify_command", Kind::List, Preset::List(&[])),
    user("ui.progress", Kind::Word(&["auto", "always", "never"]), Preset::Text("auto")),
];

/// The section whose keys are actions, not settings.
pub const CHORDS: &str = "keys";

const fn user(name: &'static str, kind: Kind, preset: Preset) -> Key {
    Key { name, kind, preset, project: false }
}

const fn shared(name: &'static str, kind: Kind, preset: Preset) -> Key {
    Key { name, kind, preset, project: true }
}

impl Key {
    /// Its environment variable.
    pub fn variable(&self) -> String {
        format!("INGESTDECK_{}", self.name.replace('.', "_").to_uppercase())
    }
}

impl Preset {
    /// As a value.
    pub fn value(self) -> Value {
        match self {
            Self::Unset => Value::Unset,
            Self::Switch(value) => Value::Switch(value),
            Self::Text(text) => Value::Text(text.to_owned()),
            Self::Whole(number) => Value::Whole(number),
            Self::Number(number) => Value::Number(number),
            Self::List(texts) => Value::List(texts.iter().map(|text| (*text).to_owned()).collect()),
        }
    }
}

impl Mismatch {
    /// The setting's value.
    pub fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
        }
    }
}

impl FromValue for Mismatch {
    fn from_value(value: &Value) -> Option<Self> {
        let Value::Text(text) = value else { return None };
        [Self::Error, Self::Warn].into_iter().find(|mismatch| mismatch.word() == text)
    }
}

impl FromValue for Notify {
    fn from_value(value: &Value) -> Option<Self> {
        let Value::Text(text) = value else { return None };
        Some(match text.as_str() {
            "off" => Self::Off,
            "bell" => Self::Bell,
            "osc9" => Self::Osc9,
            "osc777" => Self::Osc777,
            "command" => Self::Command,
            _ => return None,
        })
    }
}

impl FromValue for When {
    fn from_value(value: &Value) -> Option<Self> {
        let Value::Text(text) = value else { return None };
        Some(match text.as_str() {
            "auto" => Self::Auto,
            "always" => Self::Always,
            "never" => Self::Never,
            _ => return None,
        })
    }
}

impl ToolFailures {
    /// The setting's value.
    pub fn word(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Recoverable => "recoverable",
        }
    }
}

impl FromValue for ToolFailures {
    fn from_value(value: &Value) -> Option<Self> {
        let Value::Text(text) = value else { return None };
        [Self::Strict, Self::Recoverable].into_iter().find(|rule| rule.word() == text)
    }
}

/// The key of this name.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// True for a section of the table, or that of the chords.
pub fn is_section(name: &str) -> bool {
    sections().any(|section| section == name)
}

/// The known key that a mistyped one was probably meant to be.
pub fn nearest(name: &str) -> Option<&'static str> {
    closest(name, KEYS.iter().map(|key| key.name))
}

/// The known section that a mistyped one was probably meant to be.
pub fn nearest_section(name: &str) -> Option<&'static str> {
    closest(name, sections())
}

fn sections() -> impl Iterator<Item = &'static str> {
    KEYS.iter().filter_map(|key| key.name.split_once('.')).map(|(section, _)| section).chain([CHORDS])
}

fn closest(name: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    // Distances cost the product of the lengths, and no name is long.
    if name.len() > 80 {
        return None;
    }
    let distance = |known: &'static str| (strsim::damerau_levenshtein(name, known), known);
    let (distance, known) = known.map(distance).min()?;
    (distance <= known.len() / 3).then_some(known)
}
