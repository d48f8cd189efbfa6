//! The settings: name, type, limits and default of every key, declared once.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    Setting, SettingOrigin,
    time_limit::TimeLimitSetting,
    value::{ListItems, SettingType, SettingValue, toml_text},
};
use crate::diagnostic::Problem;

/// Declares settings that are one of a few words.
macro_rules! word_settings {
    ($($(#[$attribute:meta])* $name:ident {
        $($(#[$variant_attribute:meta])* $variant:ident = $word:literal,)*
    })*) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_attribute])* #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }

        impl SettingType for $name {
            type Limits = ();

            fn expected((): ()) -> String {
                [$(concat!("\"", $word, "\"")),*].join(" or ")
            }

            fn read(value: SettingValue, (): ()) -> Option<Self> {
                match value {
                    SettingValue::Text(text) => match text.as_str() {
                        $($word => Some(Self::$variant),)*
                        _ => None,
                    },
                    _ => None,
                }
            }

            fn to_toml(&self, (): ()) -> Result<String, &'static str> {
                Ok(toml_text(self.as_str()))
            }
        }
    )*};
}

word_settings! {
    /// How a resumed session with another id is reported.
    MismatchPolicy {
        /// As an error that ends the session.
        #[default]
        Error = "error",
        Warn = "warn",
    }

    /// Which failed tool calls fail a unit.
    #[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ToolFailures"))]
    FailureRule {
        /// All failed calls, except refusals that a later call settled.
        #[default]
        Strict = "strict",
        /// Only calls that no later call made good.
        Recoverable = "recoverable",
    }

    /// What happens to a unit whose artifacts contain identifiers that were in nothing that the agent received.
    UnsourcedAction {
        /// They are not looked for.
        Off = "off",
        /// They are recorded and shown.
        #[default]
        Warn = "warn",
        /// They also fail the unit, except those that the agent declared as unverified.
        Fail = "fail",
    }

    /// What happens to a unit whose agent left raw files unread although it was asked to read them.
    UnreadAction {
        /// They are recorded and shown.
        #[default]
        Warn = "warn",
        /// They also fail the unit.
        Fail = "fail",
    }

    /// What becomes of the session of a unit whose attempt was cut from outside.
    ContinueAction {
        /// The next attempt continues it, if it and its changes can be restored.
        #[default]
        Auto = "auto",
        /// Every attempt begins from the start.
        Never = "never",
    }

    /// What follows a unit that has used its turns or its budget, in a run that a person watches.
    TurnLimitAction {
        /// Its result is used as it is.
        #[default]
        Finish = "finish",
        /// The run waits for a decision before it uses the result.
        Wait = "wait",
    }

    /// How the user is notified while the terminal has no focus.
    NotifyMode {
        Off = "off",
        /// With the bell of the terminal.
        #[default]
        Bell = "bell",
        /// With the sequence `OSC 9`.
        Osc9 = "osc9",
        /// With the sequence `OSC 777`.
        Osc777 = "osc777",
        /// With the program in `ui.notify_command`.
        Command = "command",
    }

    /// Whether to use a sequence that not every terminal supports.
    ProgressMode {
        /// Only in terminals that are known to support it.
        #[default]
        Auto = "auto",
        Always = "always",
        Never = "never",
    }

    /// What happens to a run when its last attached client disappears without detaching.
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    DisconnectAction {
        #[default]
        Continue = "continue",
        /// Running units are stopped, and no more are started.
        Stop = "stop",
    }
}

/// A key, which reads and writes its field of [`Config`].
#[derive(Clone, Copy, Debug)]
pub struct SettingKey {
    /// The dotted key, such as `ui.fps`.
    pub name: &'static str,
    /// Describes valid values; the text follows "must be".
    pub expected: fn() -> String,
    /// Types the text of a variable.
    pub(super) parse: fn(&str) -> SettingValue,
    /// Sets the value, unless its origin is weaker than that of the present one. Returns false if the value is invalid.
    pub(super) set: fn(&mut Config, SettingValue, SettingOrigin) -> bool,
    /// The value as TOML, or what applies because it is not set.
    pub to_toml: fn(&Config) -> Result<String, &'static str>,
    pub(super) origin: fn(&Config) -> &SettingOrigin,
}

/// The given expression, or the default of its type.
macro_rules! given_or_default {
    () => {
        Default::default()
    };
    ($given:expr) => {
        $given
    };
}

/// The name of a key, which may differ from that of its field.
macro_rules! key_name {
    ($key:ident) => {
        stringify!($key)
    };
    ($key:ident, $name:literal) => {
        $name
    };
}

/// Declares all settings: `key: Type [limits] = default`. Without limits or a default, those of the type apply. A key that
/// is a keyword of Rust has another field: `field as "key": Type`.
macro_rules! settings {
    ($($(#[$doc:meta])* $section:ident: $name:ident {
        $($(#[$key_doc:meta])* $key:ident $(as $word:literal)?: $type:ty $([$limits:expr])? $(= $default:expr)?,)*
    })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
            pub struct $name {
                $($(#[$key_doc])* pub $key: Setting<$type>,)*
            }

            impl Default for $name {
                fn default() -> Self {
                    Self {
                        $($key: Setting {
                            value: given_or_default!($($default)?),
                            origin: SettingOrigin::Default,
                        },)*
                    }
                }
            }
        )*

        /// The effective settings, each with its origin.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Config {
            $($(#[$doc])* pub $section: $name,)*
            /// Section `[keys]`: chords by action. Actions and chords are not validated here.
            pub keys: BTreeMap<String, Setting<Vec<String>>>,
            /// Settings that are ignored or have no effect, one sentence each.
            pub warnings: Vec<Problem>,
        }

        /// Every key, in display order.
        pub const KEYS: &[SettingKey] = &[$($(SettingKey {
            name: concat!(stringify!($section), ".", key_name!($key $(, $word)?)),
            expected: || <$type>::expected(given_or_default!($($limits)?)),
            parse: <$type>::parse,
            set: |config, value, origin| {
                let limits = given_or_default!($($limits)?);
                SettingType::set(&mut config.$section.$key, value, origin, limits)
            },
            to_toml: |config| {
                config.$section.$key.value.to_toml(given_or_default!($($limits)?))
            },
            origin: |config| &config.$section.$key.origin,
        },)*)*];
    };
}

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

settings! {
    /// Section `[claude]`: plain sessions.
    claude: ClaudeSettings {
        /// Model; Claude Code's own choice if unset.
        model: Option<String>,
        /// Tools that need no permission. If the list is empty, the flag is omitted.
        allowed_tools: Vec<String> = words(&["Bash", "Read", "Edit", "Write"]),
        /// Pass `--dangerously-skip-permissions`. Never for work units.
        dangerously_skip_permissions: bool,
        /// Keep `ANTHROPIC_API_KEY` in the environment.
        use_api_billing: bool,
        /// How a resumed session with another id is reported.
        session_mismatch: MismatchPolicy,
        /// Names of variables that the deny list would withhold.
        pass_env: Vec<String> [ListItems::Variables],
        /// Prices of models, which precede the built-in ones.
        prices: Vec<String> [ListItems::Prices],
    }

    /// Section `[agent]`: sessions with the agent profile.
    agent: AgentSettings {
        /// Tools that the agent may call.
        allowed_tools: Vec<String> = words(&["Read", "Edit", "Write", "Bash", "Glob", "Grep"]),
        /// Maximum number of turns, 1 to 100.
        max_turns: u32 [1..=100] = 50,
        /// `None`: Claude Code chooses one.
        model: Option<String>,
        /// System prompt that replaces Claude Code's own.
        system_prompt: Option<String>,
        /// Between 0 and 1. Validated, but Claude Code has no such option.
        temperature: Option<f64> [0.0..=1.0],
    }

    /// Section `[retry]`: automatic retries.
    retry: AutoRetrySettings {
        /// Maximum number of attempts after the first one.
        max_retries: u32 [0..=100] = 3,
        /// First delay, in milliseconds.
        initial_delay_ms: u64 [0..=DAY_MS] = 1_000,
        /// Factor between consecutive delays, at least 1.
        factor: f64 [1.0..=100.0] = 2.0,
        /// Maximum delay, in milliseconds.
        max_delay_ms: u64 [0..=DAY_MS] = 30_000,
    }

    /// Section `[ingest]`: work units.
    ingest: IngestSettings {
        /// Which failed tool calls fail a unit.
        tool_failures: FailureRule,
        /// Stream text while it is written.
        partial_messages: bool = true,
        /// Send a one-turn request before a run.
        probe: bool,
        /// Run the reconcile step after the units.
        reconcile: bool = true,
        /// Time without output after which a unit is shown as silent.
        silence_after: Duration = Duration::from_secs(60),
        /// Time without output after which an attempt ends.
        silence_timeout: TimeLimitSetting ["10m without a screen and on workers, else none"],
        /// Maximum duration of an attempt.
        unit_timeout: TimeLimitSetting ["2h without a screen and on workers, else none"],
        /// Longest wait of a call for a decision.
        approval_timeout: TimeLimitSetting ["24h without a screen, else none"],
        /// Longest wait of a run for its review without a screen.
        review_idle_timeout: TimeLimitSetting ["8h"],
        /// How long a run that has no place for its units waits for workers.
        worker_wait: Duration = Duration::from_secs(2 * 60 * 60),
        /// Paths outside a project that its connections may read: absolute, or below `~/`.
        allow_paths: Vec<String> [ListItems::Paths],
        /// Repositories that git may fetch for connections, each with the token that it may send.
        allow_git: Vec<String>,
        /// What follows a unit that has used its turns.
        turn_limit: TurnLimitAction,
        /// Wait for a review before the commit.
        review: bool,
        /// What unsourced identifiers do to a unit.
        unsourced: UnsourcedAction,
        /// What raw files that the agent left unread do to a unit.
        unread: UnreadAction,
        /// Whether a unit whose attempt was cut from outside continues in its session.
        #[serde(default)]
        continue_cut as "continue": ContinueAction,
        /// Share of the context of a model that the raw files of a unit may fill, in percent; larger units are split.
        max_unit_share: u32 [1..=90] = 25,
    }

    /// Section `[warehouse]`: databases that agents may query.
    warehouse: WarehouseConfig {
        /// Connections of `ktx.yaml` that may be used, each with the secrets that it names.
        allow: Vec<String>,
        /// Files and directories with ADBC driver libraries: absolute, or below `~/`.
        drivers: Vec<String> [ListItems::Paths],
        /// Time limit of a statement of an agent.
        query_timeout: Duration = Duration::from_secs(30),
        /// Most connections to one warehouse that are open concurrently.
        max_connections: u32 [1..=64] = 4,
        /// Age from which the scan of a database no longer proves that a table is missing.
        max_scan_age: Duration = Duration::from_secs(7 * 24 * 60 * 60),
    }

    /// Section `[find]`: the index of words of `find`.
    find: FindSettings {
        /// Maximum size of the index in MiB; the words of the oldest runs and sessions leave first.
        max_index_mb: u32 [1..=1_048_576] = 512,
        /// What is not searched: patterns of units, runs and sessions.
        exclude: Vec<String>,
    }

    /// Section `[notify]`: notifications while no screen is attached.
    notify: NotifySettings {
        /// Address that receives each notification as JSON.
        url: Option<String>,
    }

    /// Section `[otel]`: export of spans to an OpenTelemetry collector.
    otel: OtelSettings {
        /// Address of the collector, which accepts OTLP as JSON.
        endpoint: Option<String>,
        /// Also send arguments and results of tool calls.
        content: bool,
    }

    /// Section `[policy]`: rules about tool calls, which are not validated here.
    policy: PolicySettings {
        /// Calls that need no permission.
        allow: Vec<String>,
        /// Calls that wait for a person.
        hold: Vec<String>,
        /// Calls that are refused.
        deny: Vec<String>,
    }

    /// Section `[ui]`: the screen.
    ui: UiSettings {
        /// Name of a theme, path of a theme file, or `auto`.
        theme: String = "auto".to_owned(),
        mouse: bool = true,
        /// Draw with ASCII characters only.
        ascii: bool,
        /// Maximum number of frames per second, except frames after a key.
        fps: u32 [1..=120] = 30,
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

pub(super) fn words(words: &[&str]) -> Vec<String> {
    words.iter().copied().map(str::to_owned).collect()
}

/// The section whose keys are actions, not settings.
pub(crate) const CHORDS_SECTION: &str = "keys";

impl SettingKey {
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
