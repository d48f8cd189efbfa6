//! Settings in layers: flag > environment > user file > default. Every value knows its origin.
//!
//! One table ([`schema`]) lists every key with its type and default. Reading, validation, output and documentation use
//! it. The module must not know the meaning of a setting.

pub mod file;
pub mod schema;
pub mod time_limit;
pub mod value;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use self::{
    schema::{
        DisconnectAction, FailureRule, MismatchPolicy, NotifyMode, ProgressMode, TurnLimitAction,
        UnreadAction, UnsourcedAction,
    },
    value::SettingValue,
};
use self::{
    schema::{KEYS, SettingKey},
    time_limit::TimeLimitSetting,
    value::SettingKind,
};
use crate::diagnostic::{Diagnostic, Problem};

/// Maximum number of warnings that are listed individually.
const MAX_WARNINGS: usize = 20;

/// Environment variables, collected by the composition root.
pub type EnvVars = BTreeMap<String, OsString>;

/// The origin of a value. Later variants take precedence.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettingOrigin {
    #[default]
    Default,
    /// The user's settings file.
    User {
        path: PathBuf,
        /// Line number, counted from 1.
        line: usize,
    },
    Environment {
        name: String,
    },
    /// A flag of the command line.
    Flag {
        name: String,
    },
}

impl SettingOrigin {
    fn rank(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::User { .. } => 1,
            Self::Environment { .. } => 2,
            Self::Flag { .. } => 3,
        }
    }

    /// The place of the value, for the head of a message.
    fn location(&self) -> String {
        match self {
            Self::Default => "default".to_owned(),
            Self::User { path, line } => format!("{}:{line}", path.display()),
            Self::Environment { name } => format!("${name}"),
            Self::Flag { name } => name.clone(),
        }
    }
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::User { path, line } => write!(f, "user {}:{line}", path.display()),
            Self::Environment { name } => write!(f, "environment {name}"),
            Self::Flag { name } => write!(f, "flag {name}"),
        }
    }
}

/// A value and its origin. The serialized form is the value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Setting<T> {
    pub value: T,
    #[serde(skip)]
    pub origin: SettingOrigin,
}

impl<T> std::ops::Deref for Setting<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// The values of all keys, by their names in the table.
type MergedSettings = BTreeMap<&'static str, Setting<SettingValue>>;

/// Reads a key of the table. A test reads every key, so the fallback is never used.
fn read_setting<T: DeserializeOwned + Default>(merged: &MergedSettings, name: &str) -> Setting<T> {
    let setting = merged.get(name);
    let json = setting
        .zip(schema::find(name))
        .map(|(setting, key)| key.kind.to_json(&setting.value));
    Setting {
        value: json
            .and_then(|json| serde_json::from_value(json).ok())
            .unwrap_or_default(),
        origin: setting.map_or(SettingOrigin::Default, |setting| setting.origin.clone()),
    }
}

/// Declares a section of the settings: each field is the key of its name in the table.
macro_rules! settings_section {
    ($(#[$doc:meta])* $name:ident = $section:literal {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: Setting<$type>,)*
        }

        impl $name {
            fn from_merged(merged: &MergedSettings) -> Self {
                Self {
                    $($field: read_setting(merged, concat!($section, ".", stringify!($field))),)*
                }
            }
        }
    };
}

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Section `[claude]`: plain sessions.
    pub claude: ClaudeSettings,
    /// Section `[agent]`: sessions with the agent profile.
    pub agent: AgentSettings,
    /// Section `[retry]`: automatic retries.
    pub retry: AutoRetrySettings,
    /// Section `[ingest]`: work units.
    pub ingest: IngestSettings,
    /// Section `[notify]`: notifications while no screen is attached.
    pub notify: NotifySettings,
    /// Section `[otel]`: export of spans to an OpenTelemetry collector.
    pub otel: OtelSettings,
    /// Section `[policy]`: rules about tool calls.
    pub policy: PolicySettings,
    /// Section `[ui]`: the screen.
    pub ui: UiSettings,
    /// Section `[keys]`: chords by action. Actions and chords are not validated here.
    pub keys: BTreeMap<String, Setting<Vec<String>>>,
    /// Settings that are ignored or have no effect, one sentence each.
    pub warnings: Vec<Problem>,
    merged: MergedSettings,
}

settings_section! {
    /// Section `[claude]`: plain sessions.
    ClaudeSettings = "claude" {
        /// Model; Claude Code's own choice if unset.
        model: Option<String>,
        /// Tools that need no permission. If the list is empty, the flag is omitted.
        allowed_tools: Vec<String>,
        /// Pass `--dangerously-skip-permissions`. Never for work units.
        dangerously_skip_permissions: bool,
        /// Keep `ANTHROPIC_API_KEY` in the environment.
        use_api_billing: bool,
        /// How a resumed session with another id is reported.
        session_mismatch: MismatchPolicy,
        /// Names of variables that the deny list would withhold.
        pass_env: Vec<String>,
    }
}

settings_section! {
    /// Section `[agent]`: sessions with the agent profile.
    AgentSettings = "agent" {
        /// Tools that the agent may call.
        allowed_tools: Vec<String>,
        /// Maximum number of turns, 1 to 100.
        max_turns: u32,
        /// `None`: Claude Code chooses one.
        model: Option<String>,
        /// System prompt that replaces Claude Code's own.
        system_prompt: Option<String>,
        /// Between 0 and 1. Validated, but Claude Code has no such option.
        temperature: Option<f64>,
    }
}

settings_section! {
    /// Section `[retry]`: automatic retries.
    AutoRetrySettings = "retry" {
        /// Maximum number of attempts after the first one.
        max_retries: u32,
        /// First delay, in milliseconds.
        initial_delay_ms: u64,
        /// Factor between consecutive delays, at least 1.
        factor: f64,
        /// Maximum delay, in milliseconds.
        max_delay_ms: u64,
    }
}

settings_section! {
    /// Section `[ingest]`: work units.
    IngestSettings = "ingest" {
        /// Which failed tool calls fail a unit.
        tool_failures: FailureRule,
        /// Stream text while it is written.
        partial_messages: bool,
        /// Send a one-turn request before a run.
        probe: bool,
        /// Run the reconcile step after the units.
        reconcile: bool,
        /// Time without output after which a unit is shown as silent.
        silence_after: Duration,
        /// Time without output after which an attempt ends.
        silence_timeout: TimeLimitSetting,
        /// Maximum duration of an attempt.
        unit_timeout: TimeLimitSetting,
        /// Longest wait of a call for a decision.
        approval_timeout: TimeLimitSetting,
        /// Longest wait of a run for its review without a screen.
        review_idle_timeout: TimeLimitSetting,
        /// How long a run that has no place for its units waits for workers.
        worker_wait: Duration,
        /// Paths outside a project that its connections may read: absolute, or below `~/`.
        allow_paths: Vec<String>,
        /// What follows a unit that has used its turns.
        turn_limit: TurnLimitAction,
        /// Wait for a review before the commit.
        review: bool,
        /// What unsourced identifiers do to a unit.
        unsourced: UnsourcedAction,
        /// What raw files that the agent left unread do to a unit.
        unread: UnreadAction,
    }
}

settings_section! {
    /// Section `[notify]`: notifications while no screen is attached.
    NotifySettings = "notify" {
        /// Address that receives each notification as JSON.
        url: Option<String>,
    }
}

settings_section! {
    /// Section `[otel]`: export of spans to an OpenTelemetry collector.
    OtelSettings = "otel" {
        /// Address of the collector, which accepts OTLP as JSON.
        endpoint: Option<String>,
        /// Also send arguments and results of tool calls.
        content: bool,
    }
}

settings_section! {
    /// Section `[policy]`: rules about tool calls, which are not validated here.
    PolicySettings = "policy" {
        /// Calls that need no permission.
        allow: Vec<String>,
        /// Calls that wait for a person.
        hold: Vec<String>,
        /// Calls that are refused.
        deny: Vec<String>,
    }
}

settings_section! {
    /// Section `[ui]`: the screen.
    UiSettings = "ui" {
        /// Name of a theme, path of a theme file, or `auto`.
        theme: String,
        mouse: bool,
        /// Draw with ASCII characters only.
        ascii: bool,
        /// Maximum number of frames per second, except frames after a key.
        fps: u32,
        /// How the user is notified while the terminal has no focus.
        notify: NotifyMode,
        /// Program and arguments for notifications; title and text are appended.
        notify_command: Vec<String>,
        /// Report progress with `OSC 9;4`.
        progress: ProgressMode,
        /// What happens to a run when its last screen disappears.
        on_disconnect: DisconnectAction,
    }
}

/// Invalid settings: one sentence with the place, the key and the expected value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The value does not fit its key.
    #[error("{place}: {key} must be {expected}, not {found}")]
    InvalidValue {
        /// File with line, variable or flag.
        place: String,
        key: String,
        /// Description of the expected value.
        expected: String,
        /// Description of the actual value.
        found: String,
    },
    /// The file is not valid TOML.
    #[error("{place}: not valid TOML: {cause}")]
    Syntax {
        place: String,
        /// Message of the parser.
        cause: String,
    },
    /// The file cannot be read.
    #[error("cannot read the settings {}: {cause}", path.display())]
    Unreadable {
        path: PathBuf,
        /// Message of the operating system.
        cause: String,
    },
    /// The file exceeds the size limit.
    #[error("the settings {} are larger than {} bytes", path.display(), file::MAX_BYTES)]
    TooLarge { path: PathBuf },
}

impl Diagnostic for ConfigError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::InvalidValue { .. } => return None,
            Self::Syntax { .. } => {
                "correct the line, or move the file away to use the defaults".into()
            }
            Self::Unreadable { .. } => "check the path and its permissions".into(),
            Self::TooLarge { .. } => "check the path".into(),
        })
    }
}

/// Collects layers. The call order does not matter: the origin determines the precedence.
#[derive(Clone, Debug)]
pub struct ConfigLayers {
    merged: MergedSettings,
    keys: BTreeMap<String, Setting<Vec<String>>>,
    warnings: Vec<Problem>,
    suppressed_warnings: usize,
}

impl Default for ConfigLayers {
    fn default() -> Self {
        Self::new()
    }
}

impl ConfigLayers {
    /// Starts with the defaults.
    pub fn new() -> Self {
        let setting = |key: &SettingKey| Setting {
            value: key.default_value(),
            origin: SettingOrigin::Default,
        };
        let merged = KEYS.iter().map(|key| (key.name, setting(key))).collect();
        Self {
            merged,
            keys: BTreeMap::new(),
            warnings: Vec::new(),
            suppressed_warnings: 0,
        }
    }

    /// Adds the text of the user's file. `path` is its origin and used in messages.
    pub fn user_file(mut self, path: &Path, text: &str) -> Result<Self, ConfigError> {
        let content = file::parse(path, text)?;
        for warning in content.warnings {
            self.warn(|| warning);
        }
        for entry in content.entries {
            let origin = SettingOrigin::User {
                path: path.to_owned(),
                line: entry.line,
            };
            self.set(&entry.key, entry.value, origin)?;
        }
        for (action, entry) in content.chords {
            let origin = SettingOrigin::User {
                path: path.to_owned(),
                line: entry.line,
            };
            self.keys.insert(
                action,
                Setting {
                    value: entry.chords,
                    origin,
                },
            );
        }
        Ok(self)
    }

    /// Adds variables: `INGESTDECK_` and the key in capitals (`INGESTDECK_UI_FPS`). Empty variables count as unset.
    pub fn environment(mut self, vars: &EnvVars) -> Result<Self, ConfigError> {
        for key in KEYS {
            let name = key.variable();
            let Some(text) = vars.get(&name).filter(|text| !text.is_empty()) else {
                continue;
            };
            let origin = SettingOrigin::Environment { name };
            let value = text
                .to_str()
                .and_then(|text| key.kind.parse(text))
                .ok_or_else(|| ConfigError::InvalidValue {
                    place: origin.location(),
                    key: key.name.to_owned(),
                    expected: key.kind.expected(),
                    found: value::quote(&text.to_string_lossy()),
                })?;
            self.set(key.name, value, origin)?;
        }
        Ok(self)
    }

    /// Adds a flag of the command line.
    pub fn flag(mut self, flag: &str, key: &str, value: SettingValue) -> Result<Self, ConfigError> {
        self.set(
            key,
            value,
            SettingOrigin::Flag {
                name: flag.to_owned(),
            },
        )?;
        Ok(self)
    }

    pub fn finish(mut self) -> Config {
        let temperature = self
            .merged
            .get("agent.temperature")
            .filter(|setting| setting.value != SettingValue::Unset);
        if let Some(origin) = temperature.map(|setting| setting.origin.clone()) {
            self.warn(|| {
                format!(
                    "agent.temperature ({origin}) is not supported by Claude Code and has no effect"
                )
            });
        }
        if self.suppressed_warnings > 0 {
            self.warnings
                .push(format!("{} more warnings about settings", self.suppressed_warnings).into());
        }
        Config::from_merged(self.merged, self.keys, self.warnings)
    }

    fn set(
        &mut self,
        name: &str,
        value: SettingValue,
        origin: SettingOrigin,
    ) -> Result<(), ConfigError> {
        let Some(key) = schema::find(name) else {
            self.warn(|| {
                let hint = schema::suggest_key(name)
                    .map(|near| format!("; did you mean {near}?"))
                    .unwrap_or_default();
                format!(
                    "{}: unknown key {} is ignored{hint}",
                    origin.location(),
                    value::escape_excerpt(name)
                )
            });
            return Ok(());
        };
        let found = value.describe();
        let value = key
            .kind
            .validate(value)
            .ok_or_else(|| ConfigError::InvalidValue {
                place: origin.location(),
                key: key.name.to_owned(),
                expected: key.kind.expected(),
                found,
            })?;
        let weaker = self
            .merged
            .get(key.name)
            .is_none_or(|known| known.origin.rank() <= origin.rank());
        if weaker {
            self.merged.insert(key.name, Setting { value, origin });
        }
        Ok(())
    }

    /// Adds a warning, or counts it if there are too many.
    fn warn<T: Into<Problem>>(&mut self, warning: impl FnOnce() -> T) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(warning().into());
        } else {
            self.suppressed_warnings += 1;
        }
    }
}

impl Config {
    /// Every setting in the order of the table, then the chords, as lines of `key = value  # origin`. The lines are
    /// TOML; an unset key is a comment.
    pub fn lines(&self) -> Vec<String> {
        let line = |key: &SettingKey| {
            let setting = self.merged.get(key.name)?;
            Some(match setting.value.to_toml() {
                Some(value) => format!("{} = {value}  # {}", key.name, setting.origin),
                None => match key.kind {
                    SettingKind::TimeLimit(unset) => {
                        format!("# {} is not set: {unset}  # {}", key.name, setting.origin)
                    }
                    _ => format!("# {} is not set  # {}", key.name, setting.origin),
                },
            })
        };
        let chord = |(action, setting): (&String, &Setting<Vec<String>>)| {
            let chords = SettingValue::List(setting.value.clone())
                .to_toml()
                .unwrap_or_default();
            format!(
                "keys.{} = {chords}  # {}",
                value::toml_key(action),
                setting.origin
            )
        };
        KEYS.iter()
            .filter_map(line)
            .chain(self.keys.iter().map(chord))
            .collect()
    }

    /// Chords by action, for a keymap.
    pub fn chords(&self) -> BTreeMap<String, Vec<String>> {
        self.keys
            .iter()
            .map(|(action, setting)| (action.clone(), setting.value.clone()))
            .collect()
    }

    fn from_merged(
        merged: MergedSettings,
        keys: BTreeMap<String, Setting<Vec<String>>>,
        warnings: Vec<Problem>,
    ) -> Self {
        Self {
            claude: ClaudeSettings::from_merged(&merged),
            agent: AgentSettings::from_merged(&merged),
            retry: AutoRetrySettings::from_merged(&merged),
            ingest: IngestSettings::from_merged(&merged),
            notify: NotifySettings::from_merged(&merged),
            otel: OtelSettings::from_merged(&merged),
            policy: PolicySettings::from_merged(&merged),
            ui: UiSettings::from_merged(&merged),
            keys,
            warnings,
            merged,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        ConfigLayers::new().finish()
    }
}

#[cfg(test)]
mod tests;
