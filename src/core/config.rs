//! Settings in layers: flag > environment > user file > default. Every value knows its origin.
//!
//! [`schema`] declares every key once, with its type, limits and default; reading, validation and output follow from it.
//! [`value`] defines the types. The module must not know the meaning of a setting.

pub mod file;
pub mod schema;
pub mod time_limit;
pub mod value;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use self::schema::{KEYS, SettingKey};
pub use self::{
    schema::{
        AgentSettings, AutoRetrySettings, ClaudeSettings, Config, ContinueAction, DisconnectAction,
        FailureRule, IngestSettings, MismatchPolicy, NotifyMode, NotifySettings, OtelSettings,
        PolicySettings, ProgressMode, TurnLimitAction, UiSettings, UnreadAction, UnsourcedAction,
    },
    value::SettingValue,
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

impl<T: Default> Default for Setting<T> {
    fn default() -> Self {
        Self {
            value: T::default(),
            origin: SettingOrigin::Default,
        }
    }
}

impl<T> std::ops::Deref for Setting<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
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
#[derive(Clone, Debug, Default)]
pub struct ConfigLayers {
    config: Config,
    suppressed_warnings: usize,
}

impl ConfigLayers {
    /// Starts with the defaults.
    pub fn new() -> Self {
        Self::default()
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
            self.config.keys.insert(
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
                .map_or(SettingValue::Other("bytes that are not UTF-8"), key.parse);
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
        let temperature = &self.config.agent.temperature;
        if temperature.is_some() {
            let origin = temperature.origin.clone();
            self.warn(|| {
                format!(
                    "agent.temperature ({origin}) is not supported by Claude Code and has no effect"
                )
            });
        }
        if self.suppressed_warnings > 0 {
            let more = format!("{} more warnings about settings", self.suppressed_warnings);
            self.config.warnings.push(more.into());
        }
        self.config
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
        let (found, place) = (value.describe(), origin.location());
        if (key.set)(&mut self.config, value, origin) {
            return Ok(());
        }
        Err(ConfigError::InvalidValue {
            place,
            key: key.name.to_owned(),
            expected: (key.expected)(),
            found,
        })
    }

    /// Adds a warning, or counts it if there are too many.
    fn warn<T: Into<Problem>>(&mut self, warning: impl FnOnce() -> T) {
        if self.config.warnings.len() < MAX_WARNINGS {
            self.config.warnings.push(warning().into());
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
            let (name, origin) = (key.name, (key.origin)(self));
            match (key.to_toml)(self) {
                Ok(value) => format!("{name} = {value}  # {origin}"),
                Err("") => format!("# {name} is not set  # {origin}"),
                Err(instead) => format!("# {name} is not set: {instead}  # {origin}"),
            }
        };
        let chord = |(action, setting): (&String, &Setting<Vec<String>>)| {
            format!(
                "keys.{} = {}  # {}",
                value::toml_key(action),
                value::toml_list(&setting.value),
                setting.origin
            )
        };
        KEYS.iter()
            .map(line)
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
}

#[cfg(test)]
mod tests;
