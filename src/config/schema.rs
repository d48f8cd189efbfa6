//! The table of settings: name, type and default of every key.

use super::value::{FromValue, SettingKind, SettingValue};

/// An entry of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SettingKey {
    /// The dotted key, such as `ui.fps`.
    pub name: &'static str,
    /// Type and range of the value.
    pub kind: SettingKind,
    /// The value if no layer sets it.
    pub default: DefaultValue,
}

/// The default value of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DefaultValue {
    Unset,
    Bool(bool),
    Text(&'static str),
    Integer(i64),
    Float(f64),
    List(&'static [&'static str]),
}

/// How a resumed session with another id is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MismatchPolicy {
    /// As an error that ends the session.
    #[default]
    Error,
    Warn,
}

/// Which failed tool calls fail a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ToolFailures {
    /// All failed calls, except refusals that a later call settled.
    #[default]
    Strict,
    /// Only calls that no later call made good.
    Recoverable,
}

/// How the user is notified while the terminal has no focus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NotifyMode {
    Off,
    /// With the bell of the terminal.
    #[default]
    Bell,
    /// With the sequence `OSC 9`.
    Osc9,
    /// With the sequence `OSC 777`.
    Osc777,
    /// With the program in `ui.notify_command`.
    Command,
}

/// Whether to use a sequence that not every terminal supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ProgressMode {
    /// Only in terminals that are known to support it.
    #[default]
    Auto,
    Always,
    Never,
}

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// Every key, in display order.
pub(crate) const KEYS: &[SettingKey] = &[
    key("claude.model", SettingKind::Text, DefaultValue::Unset),
    key("claude.allowed_tools", SettingKind::List, DefaultValue::List(&["Bash", "Read", "Edit", "Write"])),
    key("claude.dangerously_skip_permissions", SettingKind::Bool, DefaultValue::Bool(false)),
    key("claude.use_api_billing", SettingKind::Bool, DefaultValue::Bool(false)),
    key("claude.session_mismatch", SettingKind::OneOf(&["error", "warn"]), DefaultValue::Text("error")),
    key("claude.pass_env", SettingKind::EnvVarNames, DefaultValue::List(&[])),
    key(
        "agent.allowed_tools",
        SettingKind::List,
        DefaultValue::List(&["Read", "Edit", "Write", "Bash", "Glob", "Grep"]),
    ),
    key("agent.max_turns", SettingKind::Integer(1, 100), DefaultValue::Integer(50)),
    key("agent.model", SettingKind::Text, DefaultValue::Text("claude-sonnet-4-20250514")),
    key("agent.system_prompt", SettingKind::Text, DefaultValue::Unset),
    key("agent.temperature", SettingKind::Float(0.0, 1.0), DefaultValue::Unset),
    key("retry.max_retries", SettingKind::Integer(0, 100), DefaultValue::Integer(3)),
    key("retry.initial_delay_ms", SettingKind::Integer(0, DAY_MS), DefaultValue::Integer(1_000)),
    key("retry.factor", SettingKind::Float(1.0, 100.0), DefaultValue::Float(2.0)),
    key("retry.max_delay_ms", SettingKind::Integer(0, DAY_MS), DefaultValue::Integer(30_000)),
    key("ingest.tool_failures", SettingKind::OneOf(&["strict", "recoverable"]), DefaultValue::Text("strict")),
    key("ingest.partial_messages", SettingKind::Bool, DefaultValue::Bool(true)),
    key("ingest.probe", SettingKind::Bool, DefaultValue::Bool(false)),
    key("ingest.reconcile", SettingKind::Bool, DefaultValue::Bool(true)),
    key("ingest.silence_after", SettingKind::Duration, DefaultValue::Text("60s")),
    key("ingest.silence_timeout", SettingKind::Duration, DefaultValue::Unset),
    key("ingest.unit_timeout", SettingKind::Duration, DefaultValue::Unset),
    key("ingest.allow_paths", SettingKind::Paths, DefaultValue::List(&[])),
    key("ui.theme", SettingKind::Text, DefaultValue::Text("auto")),
    key("ui.mouse", SettingKind::Bool, DefaultValue::Bool(true)),
    key("ui.ascii", SettingKind::Bool, DefaultValue::Bool(false)),
    key("ui.fps", SettingKind::Integer(1, 120), DefaultValue::Integer(30)),
    key("ui.notify", SettingKind::OneOf(&["off", "bell", "osc9", "osc777", "command"]), DefaultValue::Text("bell")),
    key("ui.notify_command", SettingKind::List, DefaultValue::List(&[])),
    key("ui.progress", SettingKind::OneOf(&["auto", "always", "never"]), DefaultValue::Text("auto")),
];

/// The section whose keys are actions, not settings.
pub(crate) const CHORDS_SECTION: &str = "keys";

const fn key(name: &'static str, kind: SettingKind, preset: DefaultValue) -> SettingKey {
    SettingKey { name, kind, default: preset }
}

impl SettingKey {
    /// The environment variable of the key.
    pub(crate) fn variable(&self) -> String {
        format!("INGESTDECK_{}", self.name.replace('.', "_").to_uppercase())
    }
}

impl DefaultValue {
    /// Converts the default to a value.
    pub(crate) fn value(self) -> SettingValue {
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
    pub(crate) fn as_str(self) -> &'static str {
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
    pub(crate) fn as_str(self) -> &'static str {
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

/// Finds the key with this name.
pub(crate) fn find(name: &str) -> Option<&'static SettingKey> {
    KEYS.iter().find(|key| key.name == name)
}

/// True for a section of the table, or the section of chords.
pub(crate) fn is_section(name: &str) -> bool {
    sections().any(|section| section == name)
}

/// The known key that is most similar to an unknown one.
pub(crate) fn suggest_key(name: &str) -> Option<&'static str> {
    closest(name, KEYS.iter().map(|key| key.name))
}

/// The known section that is most similar to an unknown one.
pub(crate) fn suggest_section(name: &str) -> Option<&'static str> {
    closest(name, sections())
}

fn sections() -> impl Iterator<Item = &'static str> {
    KEYS.iter().filter_map(|key| key.name.split_once('.')).map(|(section, _)| section).chain([CHORDS_SECTION])
}

fn closest(name: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    // The distance costs the product of the lengths, and all known names are short.
    if name.len() > 80 {
        return None;
    }
    let distance = |known: &'static str| (strsim::damerau_levenshtein(name, known), known);
    let (distance, known) = known.map(distance).min()?;
    (distance <= known.len() / 3).then_some(known)
}
