//! The table of settings: name, type and default of every key.

use serde::{Deserialize, Serialize};

use super::value::{SettingKind, SettingValue};

/// An entry of the table.
#[derive(Clone, Copy, Debug)]
pub struct SettingKey {
    /// The dotted key, such as `ui.fps`.
    pub name: &'static str,
    /// Type and range of the value.
    pub kind: SettingKind,
    /// The value if no layer sets it, written as in an environment variable; `None` if the key is then unset.
    pub default: Option<&'static str>,
}

/// How a resumed session with another id is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MismatchPolicy {
    /// As an error that ends the session.
    #[default]
    Error,
    Warn,
}

/// Which failed tool calls fail a unit.
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ToolFailures"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureRule {
    /// All failed calls, except refusals that a later call settled.
    #[default]
    Strict,
    /// Only calls that no later call made good.
    Recoverable,
}

impl FailureRule {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Recoverable => "recoverable",
        }
    }
}

/// What happens to a unit whose artifacts contain identifiers that were in nothing that the agent received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnsourcedAction {
    /// They are not looked for.
    Off,
    /// They are recorded and shown.
    #[default]
    Warn,
    /// They also fail the unit, except those that the agent declared as unverified.
    Fail,
}

/// What happens to a unit whose agent left raw files unread although it was asked to read them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnreadAction {
    /// They are recorded and shown.
    #[default]
    Warn,
    /// They also fail the unit.
    Fail,
}

/// What follows a unit that has used its turns or its budget, in a run that a person watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TurnLimitAction {
    /// Its result is used as it is.
    #[default]
    Finish,
    /// The run waits for a decision before it uses the result.
    Wait,
}

/// How the user is notified while the terminal has no focus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NotifyMode {
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProgressMode {
    /// Only in terminals that are known to support it.
    #[default]
    Auto,
    Always,
    Never,
}

/// What happens to a run when its last attached client disappears without detaching.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DisconnectAction {
    #[default]
    Continue,
    /// Running units are stopped, and no more are started.
    Stop,
}

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// Every key, in display order.
pub const KEYS: &[SettingKey] = &[
    key("claude.model", SettingKind::Text, None),
    key(
        "claude.allowed_tools",
        SettingKind::List,
        Some("Bash,Read,Edit,Write"),
    ),
    key(
        "claude.dangerously_skip_permissions",
        SettingKind::Bool,
        Some("false"),
    ),
    key("claude.use_api_billing", SettingKind::Bool, Some("false")),
    key(
        "claude.session_mismatch",
        SettingKind::OneOf(&["error", "warn"]),
        Some("error"),
    ),
    key("claude.pass_env", SettingKind::EnvVarNames, Some("")),
    key(
        "agent.allowed_tools",
        SettingKind::List,
        Some("Read,Edit,Write,Bash,Glob,Grep"),
    ),
    key("agent.max_turns", SettingKind::Integer(1, 100), Some("50")),
    key("agent.model", SettingKind::Text, None),
    key("agent.system_prompt", SettingKind::Text, None),
    key("agent.temperature", SettingKind::Float(0.0, 1.0), None),
    key("retry.max_retries", SettingKind::Integer(0, 100), Some("3")),
    key(
        "retry.initial_delay_ms",
        SettingKind::Integer(0, DAY_MS),
        Some("1000"),
    ),
    key("retry.factor", SettingKind::Float(1.0, 100.0), Some("2.0")),
    key(
        "retry.max_delay_ms",
        SettingKind::Integer(0, DAY_MS),
        Some("30000"),
    ),
    key(
        "ingest.tool_failures",
        SettingKind::OneOf(&["strict", "recoverable"]),
        Some("strict"),
    ),
    key("ingest.partial_messages", SettingKind::Bool, Some("true")),
    key("ingest.probe", SettingKind::Bool, Some("false")),
    key("ingest.reconcile", SettingKind::Bool, Some("true")),
    key("ingest.silence_after", SettingKind::Duration, Some("60s")),
    key(
        "ingest.silence_timeout",
        SettingKind::TimeLimit("10m without a screen and on workers, else none"),
        None,
    ),
    key(
        "ingest.unit_timeout",
        SettingKind::TimeLimit("2h without a screen and on workers, else none"),
        None,
    ),
    key(
        "ingest.approval_timeout",
        SettingKind::TimeLimit("24h without a screen, else none"),
        None,
    ),
    key(
        "ingest.review_idle_timeout",
        SettingKind::TimeLimit("8h"),
        None,
    ),
    key("ingest.worker_wait", SettingKind::Duration, Some("2h")),
    key("ingest.allow_paths", SettingKind::Paths, Some("")),
    key(
        "ingest.turn_limit",
        SettingKind::OneOf(&["finish", "wait"]),
        Some("finish"),
    ),
    key("ingest.review", SettingKind::Bool, Some("false")),
    key(
        "ingest.unsourced",
        SettingKind::OneOf(&["off", "warn", "fail"]),
        Some("warn"),
    ),
    key(
        "ingest.unread",
        SettingKind::OneOf(&["warn", "fail"]),
        Some("warn"),
    ),
    key("notify.url", SettingKind::Text, None),
    key("otel.endpoint", SettingKind::Text, None),
    key("otel.content", SettingKind::Bool, Some("false")),
    key("policy.allow", SettingKind::List, Some("")),
    key("policy.hold", SettingKind::List, Some("")),
    key("policy.deny", SettingKind::List, Some("")),
    key("ui.theme", SettingKind::Text, Some("auto")),
    key("ui.mouse", SettingKind::Bool, Some("true")),
    key("ui.ascii", SettingKind::Bool, Some("false")),
    key("ui.fps", SettingKind::Integer(1, 120), Some("30")),
    key(
        "ui.notify",
        SettingKind::OneOf(&["off", "bell", "osc9", "osc777", "command"]),
        Some("bell"),
    ),
    key("ui.notify_command", SettingKind::List, Some("")),
    key(
        "ui.progress",
        SettingKind::OneOf(&["auto", "always", "never"]),
        Some("auto"),
    ),
    key(
        "ui.on_disconnect",
        SettingKind::OneOf(&["continue", "stop"]),
        Some("continue"),
    ),
];

/// The section whose keys are actions, not settings.
pub(crate) const CHORDS_SECTION: &str = "keys";

const fn key(name: &'static str, kind: SettingKind, default: Option<&'static str>) -> SettingKey {
    SettingKey {
        name,
        kind,
        default,
    }
}

impl SettingKey {
    /// The value if no layer sets it.
    pub fn default_value(&self) -> SettingValue {
        self.default
            .and_then(|text| self.kind.parse(text))
            .unwrap_or(SettingValue::Unset)
    }

    /// The environment variable of the key.
    pub fn variable(&self) -> String {
        format!("INGESTDECK_{}", self.name.replace('.', "_").to_uppercase())
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
    KEYS.iter()
        .filter_map(|key| key.name.split_once('.'))
        .map(|(section, _)| section)
        .chain([CHORDS_SECTION])
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
