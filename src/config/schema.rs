//! The one table of settings: name, type, default, and whether a project may set it.

use super::value::{FromValue, SettingKind, SettingValue};

/// A key.
#[derive(Clone, Copy, Debug)]
pub struct SettingKey {
    /// Dotted name.
    pub name: &'static str,
    /// What it takes.
    pub kind: SettingKind,
    /// What it is if nobody sets it.
    pub default: DefaultValue,
    /// A project may set it. False for whatever costs money, opens a door or is a matter of taste.
    pub is_allowed_in_project: bool,
}

/// A default.
#[derive(Clone, Copy, Debug)]
pub enum DefaultValue {
    /// Not set.
    Unset,
    /// True or false.
    Bool(bool),
    /// Text.
    Text(&'static str),
    /// Whole number.
    Integer(i64),
    /// Number.
    Float(f64),
    /// Texts.
    List(&'static [&'static str]),
}

/// What a resumed session with another id is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MismatchPolicy {
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
pub enum NotifyMode {
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
pub enum ProgressMode {
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
pub const KEYS: &[SettingKey] = &[
    user_key("claude.model", SettingKind::Text, DefaultValue::Unset),
    user_key("claude.allowed_tools", SettingKind::List, DefaultValue::List(&["Bash", "Read", "Edit", "Write"])),
    user_key("claude.dangerously_skip_permissions", SettingKind::Bool, DefaultValue::Bool(false)),
    user_key("claude.use_api_billing", SettingKind::Bool, DefaultValue::Bool(false)),
    user_key("claude.session_mismatch", SettingKind::OneOf(&["error", "warn"]), DefaultValue::Text("error")),
    user_key("claude.pass_env", SettingKind::EnvVarNames, DefaultValue::List(&[])),
    user_key(
        "agent.allowed_tools",
        SettingKind::List,
        DefaultValue::List(&["Read", "Edit", "Write", "Bash", "Glob", "Grep"]),
    ),
    user_key("agent.max_turns", SettingKind::Integer(1, 100), DefaultValue::Integer(50)),
    user_key("agent.model", SettingKind::Text, DefaultValue::Text("claude-sonnet-4-20250514")),
    user_key("agent.system_prompt", SettingKind::Text, DefaultValue::Unset),
    user_key("agent.temperature", SettingKind::Float(0.0, 1.0), DefaultValue::Unset),
    project_key("retry.max_retries", SettingKind::Integer(0, 100), DefaultValue::Integer(3)),
    project_key("retry.initial_delay_ms", SettingKind::Integer(0, DAY_MS), DefaultValue::Integer(1_000)),
    project_key("retry.factor", SettingKind::Float(1.0, 100.0), DefaultValue::Float(2.0)),
    project_key("retry.max_delay_ms", SettingKind::Integer(0, DAY_MS), DefaultValue::Integer(30_000)),
    project_key("ingest.tool_failures", SettingKind::OneOf(&["strict", "recoverable"]), DefaultValue::Text("strict")),
    project_key("ingest.partial_messages", SettingKind::Bool, DefaultValue::Bool(true)),
    user_key("ingest.probe", SettingKind::Bool, DefaultValue::Bool(false)),
    project_key("ingest.reconcile", SettingKind::Bool, DefaultValue::Bool(true)),
    project_key("ingest.silence_after", SettingKind::Duration, DefaultValue::Text("60s")),
    project_key("ingest.silence_timeout", SettingKind::Duration, DefaultValue::Unset),
    project_key("ingest.unit_timeout", SettingKind::Duration, DefaultValue::Unset),
    user_key("ingest.allow_paths", SettingKind::Paths, DefaultValue::List(&[])),
    user_key("ui.theme", SettingKind::Text, DefaultValue::Text("auto")),
    user_key("ui.mouse", SettingKind::Bool, DefaultValue::Bool(true)),
    user_key("ui.ascii", SettingKind::Bool, DefaultValue::Bool(false)),
    user_key("ui.fps", SettingKind::Integer(1, 120), DefaultValue::Integer(30)),
    user_key(
        "ui.notify",
        SettingKind::OneOf(&["off", "bell", "osc9", "osc777", "command"]),
        DefaultValue::Text("bell"),
    ),
    user_key("ui.notify_command", SettingKind::List, DefaultValue::List(&[])),
    user_key("ui.progress", SettingKind::OneOf(&["auto", "always", "never"]), DefaultValue::Text("auto")),
];

/// The section whose keys are actions, not settings.
pub const CHORDS_SECTION: &str = "keys";

const fn user_key(name: &'static str, kind: SettingKind, preset: DefaultValue) -> SettingKey {
    SettingKey { name, kind, default: preset, is_allowed_in_project: false }
}

const fn project_key(name: &'static str, kind: SettingKind, preset: DefaultValue) -> SettingKey {
    SettingKey { name, kind, default: preset, is_allowed_in_project: true }
}

impl SettingKey {
    /// Its environment variable.
    pub fn variable(&self) -> String {
        format!("INGESTDECK_{}", self.name.replace('.', "_").to_uppercase())
    }
}

impl DefaultValue {
    /// As a value.
    pub fn value(self) -> SettingValue {
        match self {
            Self::Unset => SettingValue::Unset,
            Self::Bool(value) => SettingValue::Bool(value),
            Self::Text(text) => SettingValue::Text(text.to_owned()),
            Self::Integer(number) => SettingValue::Integer(number),
            Self::Float(number) => SettingValue::Float(number),
            Self::List(texts) => SettingValue::List(texts.iter().map(|text| (*text).to_owned()).collect()),
        }
    }
}

impl MismatchPolicy {
    /// The setting's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
        }
    }
}

impl FromValue for MismatchPolicy {
    fn from_value(value: &SettingValue) -> Option<Self> {
        let SettingValue::Text(text) = value else { return None };
        [Self::Error, Self::Warn].into_iter().find(|mismatch| mismatch.as_str() == text)
    }
}

impl FromValue for NotifyMode {
    fn from_value(value: &SettingValue) -> Option<Self> {
        let SettingValue::Text(text) = value else { return None };
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

impl FromValue for ProgressMode {
    fn from_value(value: &SettingValue) -> Option<Self> {
        let SettingValue::Text(text) = value else { return None };
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
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Recoverable => "recoverable",
        }
    }
}

impl FromValue for ToolFailures {
    fn from_value(value: &SettingValue) -> Option<Self> {
        let SettingValue::Text(text) = value else { return None };
        [Self::Strict, Self::Recoverable].into_iter().find(|rule| rule.as_str() == text)
    }
}

/// The key of this name.
pub fn find(name: &str) -> Option<&'static SettingKey> {
    KEYS.iter().find(|key| key.name == name)
}

/// True for a section of the table, or that of the chords.
pub fn is_section(name: &str) -> bool {
    sections().any(|section| section == name)
}

/// The known key that a mistyped one was probably meant to be.
pub fn suggest_key(name: &str) -> Option<&'static str> {
    closest(name, KEYS.iter().map(|key| key.name))
}

/// The known section that a mistyped one was probably meant to be.
pub fn suggest_section(name: &str) -> Option<&'static str> {
    closest(name, sections())
}

fn sections() -> impl Iterator<Item = &'static str> {
    KEYS.iter().filter_map(|key| key.name.split_once('.')).map(|(section, _)| section).chain([CHORDS_SECTION])
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
