//! The script of a scripted agent: parses TOML into validated parts. The module must not depend on streams.
//!
//! ```toml
//! [pace]                       # timing of messages; all times are divided by --speed
//! message_ms = 600             # before each message
//! chunk_chars = 24
//! chunk_ms = 30
//!
//! [usd_per_million]            # price of tokens; 0 by default
//! input = 2.0
//! output = 10.0
//!
//! [[part]]                     # the first part that matches plays
//! unit = "docs-*"              # glob on the unit key; absent = any
//! attempt = 1                  # absent = any
//! steps = [
//!   { think = "What is there?" },
//!   { say = "I read the file first." },
//!   { call = { tool = "read_raw_file", with = { path = "a.md" } } },
//!   { calls = [{ tool = "wiki_search", with = { query = "a" } }, { tool = "wiki_list_tags" }] },
//!   { say = "Done." },
//! ]
//! ```
//!
//! `think` and `say` add a block to the current message. `call` and `calls` end it and wait for the results. The last
//! `say` is the answer. [`ScriptStep`] lists all steps.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use globset::{Glob, GlobMatcher};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentScript {
    #[serde(default)]
    pub pace: MessagePacing,
    #[serde(default)]
    pub usd_per_million: TokenPrices,
    #[serde(default, rename = "part")]
    pub parts: Vec<ScriptPart>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MessagePacing {
    /// Milliseconds before the first block of each message.
    pub message_ms: u64,
    /// Characters of one delta.
    pub chunk_chars: usize,
    /// Milliseconds after each delta.
    pub chunk_ms: u64,
}

impl Default for MessagePacing {
    fn default() -> Self {
        Self {
            message_ms: 0,
            chunk_chars: 24,
            chunk_ms: 30,
        }
    }
}

/// Price of a million tokens, in US dollars.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TokenPrices {
    pub input: f64,
    pub output: f64,
    /// Read from the cache.
    pub cache_read: f64,
    /// Written to the cache.
    pub cache_write: f64,
}

/// Tokens of one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MessageTokens {
    pub input: u64,
    pub output: u64,
    /// Read from the cache.
    pub cache_read: u64,
    /// Written to the cache.
    pub cache_write: u64,
}

/// The steps of one attempt, and the condition for playing them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptPart {
    /// Glob on the unit key.
    #[serde(default)]
    pub unit: Option<UnitGlob>,
    /// Number of the attempt.
    #[serde(default)]
    pub attempt: Option<u32>,
    /// Text that the prompt contains.
    #[serde(default)]
    pub prompt: Option<String>,
    /// Session id to report instead of the requested one.
    #[serde(default)]
    pub session_id: Option<String>,
    /// Tokens of every message, instead of an estimate from its length.
    #[serde(default)]
    pub tokens: Option<MessageTokens>,
    /// Steps in the order of playing.
    pub steps: Vec<ScriptStep>,
    /// Steps that follow if the host asks the agent to continue instead of ending its turn. By default, it reads the files
    /// that the question names.
    #[serde(default)]
    pub if_asked: Option<Vec<ScriptStep>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptStep {
    Think(String),
    Say(String),
    /// One tool call; ends the message.
    Call(ScriptedCall),
    /// Several calls in one message; concurrent if all of them only read.
    Calls(Vec<ScriptedCall>),
    /// A call that the permission mode refuses, as for a built-in tool.
    Deny(ScriptedCall),
    /// A stdout line, verbatim.
    Line(String),
    /// Raw bytes for stdout, in base64.
    Bytes(Base64Bytes),
    Stderr(String),
    Wait(u64),
    /// An `api_retry` line, and its wait.
    ApiRetry(ApiRetryStep),
    RateLimit(RateLimitStep),
    /// An API failure: the synthetic message and the failed result.
    ApiError(ApiErrorStep),
    /// A custom result line. Steps may follow it.
    Result(ScriptedResult),
    /// Writes nothing until the process is interrupted or killed.
    Hang,
    /// Ignores these events from now on; as the first step, from before the first line.
    Ignore(Vec<IgnoredEvent>),
    /// Exits immediately with this code and without a result.
    Exit(u8),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// Tool name; the server's prefix is added if the server offers it.
    pub tool: String,
    #[serde(default, rename = "with")]
    pub arguments: Map<String, Value>,
    /// Arguments that are not JSON, sent instead.
    #[serde(default, rename = "garbled")]
    pub raw_arguments: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Base64Bytes(pub Vec<u8>);

impl TryFrom<String> for Base64Bytes {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        BASE64
            .decode(text)
            .map(Self)
            .map_err(|error| format!("bytes must be base64: {error}"))
    }
}

/// A glob on unit keys.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct UnitGlob(GlobMatcher);

impl TryFrom<String> for UnitGlob {
    type Error = String;

    fn try_from(glob: String) -> Result<Self, String> {
        Glob::new(&glob)
            .map(|glob| Self(glob.compile_matcher()))
            .map_err(|error| error.to_string())
    }
}

/// A visible API retry.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApiRetryStep {
    /// Number of this retry.
    pub attempt: u32,
    pub max_retries: u32,
    pub delay_ms: u64,
    /// HTTP status; absent for a network error.
    pub status: Option<u16>,
    pub error: String,
}

impl Default for ApiRetryStep {
    fn default() -> Self {
        Self {
            attempt: 1,
            max_retries: 3,
            delay_ms: 1_000,
            status: Some(529),
            error: "overloaded".into(),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimitStep {
    pub status: String,
    #[serde(default = "default_rate_limit_name")]
    pub limit: String,
    #[serde(default)]
    pub utilization: Option<f64>,
    /// Seconds until the window resets.
    #[serde(default)]
    pub resets_in_s: i64,
}

fn default_rate_limit_name() -> String {
    "five_hour".into()
}

/// An API failure after all retries.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiErrorStep {
    /// Class: `authentication_failed`, `rate_limit`, `billing_error`, …
    pub error: String,
    /// Error text for the user.
    pub text: String,
    #[serde(default)]
    pub status: Option<u16>,
    /// Finer class: `usage_limit_reached`, `connection_failed`, …
    #[serde(default)]
    pub api_error: Option<String>,
    /// `terminal_reason` of the result.
    #[serde(default = "default_terminal_reason")]
    pub terminal_reason: String,
}

fn default_terminal_reason() -> String {
    "api_error".into()
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptedResult {
    pub subtype: String,
    pub is_error: bool,
    /// `terminal_reason`; empty = absent.
    pub terminal_reason: String,
    pub stop_reason: Option<String>,
    /// `result`; by default the last text. Only with subtype `success`.
    pub text: Option<String>,
    /// `errors[]`, with any other subtype.
    pub errors: Vec<String>,
    /// Cost in US dollars, instead of the cost of the tokens.
    pub cost_usd: Option<f64>,
}

impl Default for ScriptedResult {
    fn default() -> Self {
        Self {
            subtype: "success".into(),
            is_error: false,
            terminal_reason: "completed".into(),
            stop_reason: Some("end_turn".into()),
            text: None,
            errors: Vec::new(),
            cost_usd: None,
        }
    }
}

/// Events that a process can ignore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IgnoredEvent {
    Sigint,
    Sigterm,
    Interrupt,
    /// The end of stdin.
    Eof,
}

/// A script that cannot be played.
#[derive(Debug, thiserror::Error)]
#[error("the script cannot be played: {0}")]
pub struct ScriptError(#[from] toml::de::Error);

impl AgentScript {
    /// Parses and validates a script.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        Ok(toml::from_str(text)?)
    }

    /// The first part that matches this unit, attempt and prompt.
    pub fn find_part(&self, unit: &str, attempt: u32, prompt: &str) -> Option<&ScriptPart> {
        self.parts.iter().find(|part| {
            part.unit
                .as_ref()
                .is_none_or(|pattern| pattern.0.is_match(unit))
                && part.attempt.is_none_or(|number| number == attempt)
                && part
                    .prompt
                    .as_ref()
                    .is_none_or(|text| prompt.contains(text))
        })
    }
}

/// The key in a prompt's `## WorkUnit: <key>` heading; empty if there is none.
pub(crate) fn unit_key(prompt: &str) -> &str {
    prompt
        .lines()
        .find_map(|line| line.strip_prefix("## WorkUnit:"))
        .map_or("", str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_part_that_matches_plays() {
        let script = AgentScript::parse(
            r#"
            [[part]]
            unit = "docs-*"
            attempt = 2
            steps = [{ say = "again" }]

            [[part]]
            unit = "docs-*"
            steps = ["hang", { wait = 5 }, { bytes = "//79" }]

            [[part]]
            prompt = "hello"
            steps = []
            "#,
        )
        .unwrap();
        let found = |unit, attempt, prompt| {
            script
                .find_part(unit, attempt, prompt)
                .map(|part| part.steps.len())
        };
        assert_eq!(found("docs-a", 2, ""), Some(1));
        assert_eq!(found("docs-a", 1, ""), Some(3));
        assert_eq!(found("dbt-all", 1, "write hello"), Some(0));
        assert_eq!(found("dbt-all", 1, ""), None);
        assert!(
            matches!(&script.parts[1].steps[2], ScriptStep::Bytes(bytes) if bytes.0 == [0xff, 0xfe, 0xfd])
        );
    }

    #[test]
    fn script_errors_name_their_location() {
        let wrong = |text: &str| AgentScript::parse(text).unwrap_err().to_string();
        assert!(wrong("[[part]]\nsteps = [{ shout = \"x\" }]").contains("unknown variant `shout`"));
        assert!(wrong("[[part]]\nsteps = []\nunits = \"x\"").contains("unknown field `units`"));
        assert!(wrong("[[part]]\nsteps = []\nunit = \"[\"").contains("unclosed"));
        assert!(wrong("[[part]]\nsteps = [{ bytes = \"!\" }]").contains("base64"));
        assert!(wrong("[[part]]").contains("missing field `steps`"));
    }

    #[test]
    fn the_unit_key_is_in_its_heading() {
        assert_eq!(
            unit_key("# Wiki Index\n\n## WorkUnit: dbt-all \n### rawFiles"),
            "dbt-all"
        );
        assert_eq!(unit_key("no heading ## WorkUnit: x"), "");
    }
}
