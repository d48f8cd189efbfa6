//! The environment of a unit's `claude`. Pure functions: they derive one environment from another and list the names of
//! changed variables.
//!
//! Values are only passed to the child.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    path::Path,
};

/// Variables that isolate the agent. A setting cannot change them.
const ISOLATION_VARS: [(&str, &str); 7] = [
    // Either of the two keeps MEMORY.md out of the request; the second also CLAUDE.md and rules.
    ("CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1"),
    ("CLAUDE_CODE_DISABLE_CLAUDE_MDS", "1"),
    // Without it, the request contains a placeholder tool.
    (TOOL_SEARCH, "false"),
    ("CLAUDE_AGENT_SDK_DISABLE_BUILTIN_AGENTS", "1"),
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("DISABLE_TELEMETRY", "1"),
    // Reports every known start failure as a result, not on stderr alone.
    ("CLAUDE_CODE_STARTUP_FAILURE_RESULTS", "1"),
];

/// Makes the agent search for tools instead of offering them.
const TOOL_SEARCH: &str = "ENABLE_TOOL_SEARCH";

/// The span of the attempt, in the form of W3C Trace Context.
const TRACEPARENT: &str = "TRACEPARENT";

/// Directory for the agent's temporary files.
const TMPDIR: &str = "TMPDIR";

/// Variables that limit silence. A user's own value takes precedence if `pass_env` names the variable.
const TIMEOUT_VARS: [(&str, &str); 6] = [
    // The default of ten takes three minutes to report a bad key.
    ("CLAUDE_CODE_MAX_RETRIES", "3"),
    // For a server that accepts and never answers: the default is six minutes of silence.
    ("API_TIMEOUT_MS", "240000"),
    // For a stream that stalls midway: the default is five minutes of silence.
    ("CLAUDE_ENABLE_BYTE_WATCHDOG", "1"),
    ("CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS", "120000"),
    ("MCP_TIMEOUT", "10000"),
    ("MCP_TOOL_TIMEOUT", "600000"),
];

/// Variables that every agent inherits unchanged. All others are withheld, because a shell has secrets and switches
/// under any name.
const INHERITED_VARS: [&str; 28] = [
    // User and home directory.
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "PATH",
    "XDG_*",
    // Language, time and terminal.
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TZDIR",
    "TERM",
    "COLORTERM",
    // Network path to the service.
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    // Login.
    "CLAUDE_CONFIG_DIR",
    "CLAUDE_CODE_OAUTH_TOKEN",
    // macOS keeps the login in the keychain of a session.
    "SECURITYSESSIONID",
    "__CF_USER_TEXT_ENCODING",
];

/// Withheld variables that are reported: they would select the account, the service, the model or the code that runs.
const REPORTED_VARS: [&str; 22] = [
    "ANTHROPIC_*",
    "AWS_*",
    "AZURE_*",
    "CLAUDE_*",
    "CLAUDECODE",
    "CLOUDSDK_*",
    "CLOUD_ML_REGION",
    "GCLOUD_*",
    "GOOGLE_*",
    "VERTEX_*",
    "NODE_OPTIONS",
    "NODE_TLS_REJECT_UNAUTHORIZED",
    "BUN_*",
    "DYLD_*",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    // Version managers and Nix store programs and libraries there; a `claude` installed by them may not start
    // otherwise.
    "ASDF_*",
    "FNM_*",
    "MISE_*",
    "NIX_LD*",
    "NVM_*",
    "VOLTA_HOME",
];

/// The environment of a child, and the changes from the parent's. Names are sorted.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AgentEnvironment {
    /// All variables of the child.
    pub vars: Vec<(OsString, OsString)>,
    /// Names that were set or changed.
    pub set: Vec<String>,
    /// Names that were withheld and would have changed what runs or who pays. Other withheld names are not listed.
    pub stripped: Vec<String>,
    /// Names that a setting passed, although they would have been withheld or replaced.
    pub passed: Vec<String>,
}

impl AgentEnvironment {
    /// Sets the span that the agent's own spans belong to. Does nothing without one.
    pub(crate) fn set_traceparent(&mut self, value: Option<&str>) {
        if let Some(value) = value {
            self.set_variable(TRACEPARENT, value);
        }
    }

    /// Offers all tools from the first request on.
    pub(crate) fn disable_tool_search(&mut self) {
        self.set_variable(TOOL_SEARCH, "false");
    }

    fn set_variable(&mut self, key: &str, value: &str) {
        self.vars.retain(|(name, _)| name != key);
        self.vars.push((key.into(), value.into()));
        self.vars.sort();
        self.set.push(key.to_owned());
        self.set.sort_unstable();
        self.passed.retain(|name| name != key);
    }

    /// Names of the variables that the child inherits unchanged without a setting. Sorted.
    pub fn inherited(&self) -> Vec<String> {
        let names = self
            .vars
            .iter()
            .map(|(name, _)| name.to_string_lossy().into_owned());
        names
            .filter(|name| !self.set.contains(name) && !self.passed.contains(name))
            .collect()
    }
}

/// Shows names only, because values may be secrets.
impl std::fmt::Debug for AgentEnvironment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentEnvironment")
            .field(
                "vars",
                &self.vars.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            )
            .field("set", &self.set)
            .field("stripped", &self.stripped)
            .field("passed", &self.passed)
            .finish()
    }
}

/// The environment of a unit's agent. `pass` has additional variables to inherit, as a name or `PREFIX_*`; `tmp` is the
/// agent's private directory for temporary files.
pub fn unit_environment(
    parent: impl IntoIterator<Item = (OsString, OsString)>,
    pass: &[String],
    tmp: &Path,
) -> AgentEnvironment {
    let mut child: BTreeMap<OsString, OsString> = BTreeMap::new();
    let mut done = AgentEnvironment::default();
    for (name, value) in parent {
        let Some(key) = name.to_str() else { continue };
        if is_isolation_var(key) {
            continue;
        }
        if !matches_any(&INHERITED_VARS, key) {
            if !matches_any(pass, key) {
                if matches_any(&REPORTED_VARS, key)
                    && !TIMEOUT_VARS.iter().any(|(bound, _)| *bound == key)
                {
                    done.stripped.push(key.to_owned());
                }
                continue;
            }
            done.passed.push(key.to_owned());
        }
        child.insert(name, value);
    }
    for (name, value) in TIMEOUT_VARS {
        if !child.contains_key(OsStr::new(name)) {
            child.insert(name.into(), value.into());
            done.set.push(name.to_owned());
        }
    }
    for (name, value) in ISOLATION_VARS {
        child.insert(name.into(), value.into());
        done.set.push(name.to_owned());
    }
    child.insert(TMPDIR.into(), tmp.into());
    done.set.push(TMPDIR.to_owned());

    done.vars = child.into_iter().collect();
    for names in [&mut done.set, &mut done.stripped, &mut done.passed] {
        names.sort_unstable();
    }
    done
}

/// True if `name` equals one of `patterns`, or matches one that ends in `*`.
fn matches_any(patterns: &[impl AsRef<str>], name: &str) -> bool {
    patterns
        .iter()
        .any(|pattern| match pattern.as_ref().strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == pattern.as_ref(),
        })
}

/// True if no setting can change the variable.
fn is_isolation_var(name: &str) -> bool {
    name == TMPDIR || ISOLATION_VARS.iter().any(|(fixed, _)| *fixed == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::time_limits::LONGEST_TOOL_WAIT;

    /// Reported variables, and secrets that shells often have.
    const WITHHELD: [&str; 22] = [
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_BEDROCK_BASE_URL",
        "ANTHROPIC_CUSTOM_HEADERS",
        "ANTHROPIC_DEFAULT_SONNET_MODEL",
        "ANTHROPIC_FOUNDRY_API_KEY",
        "ANTHROPIC_MODEL",
        "ANTHROPIC_SMALL_FAST_MODEL",
        "AWS_BEARER_TOKEN_BEDROCK",
        "AWS_PROFILE",
        "BUN_OPTIONS",
        "CLAUDECODE",
        "CLAUDE_CODE_EFFORT_LEVEL",
        "CLAUDE_CODE_EXTRA_BODY",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
        "CLAUDE_CODE_USE_BEDROCK",
        "CLAUDE_CODE_USE_FOUNDRY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "LD_PRELOAD",
        "NODE_OPTIONS",
        "NODE_TLS_REJECT_UNAUTHORIZED",
    ];

    fn parent() -> Vec<(OsString, OsString)> {
        let mut vars: Vec<_> = WITHHELD
            .iter()
            .map(|name| (OsString::from(name), OsString::from("secret")))
            .collect();
        for (name, value) in [
            ("HOME", "/home/dev"),
            ("PATH", "/usr/bin"),
            ("TMPDIR", "/var/tmp"),
            ("API_TIMEOUT_MS", "5"),
            ("CLAUDE_CODE_DISABLE_CLAUDE_MDS", "0"),
            ("CLAUDE_CONFIG_DIR", "/home/dev/.claude-work"),
            ("DATABASE_URL", "secret"),
            ("GITHUB_TOKEN", "secret"),
            ("OPENAI_API_KEY", "secret"),
            ("SSH_AUTH_SOCK", "secret"),
        ] {
            vars.push((name.into(), value.into()));
        }
        vars
    }

    fn value<'a>(environment: &'a AgentEnvironment, name: &str) -> Option<&'a str> {
        environment
            .vars
            .iter()
            .find(|(key, _)| key == name)
            .and_then(|(_, value)| value.to_str())
    }

    #[test]
    fn inherited_variables_are_listed_by_name() {
        let environment =
            unit_environment(parent(), &["NODE_OPTIONS".into()], Path::new("/private"));
        assert_eq!(
            environment.inherited(),
            ["CLAUDE_CONFIG_DIR", "HOME", "PATH"]
        );
        assert_eq!(environment.passed, ["NODE_OPTIONS"]);
    }

    #[test]
    fn agent_waits_for_tools_as_long_as_its_limits_assume() {
        let longest = LONGEST_TOOL_WAIT.as_millis().to_string();
        let vars = unit_environment(parent(), &[], Path::new("/private")).vars;
        assert!(
            vars.iter()
                .any(|(name, value)| name == "MCP_TOOL_TIMEOUT" && *value == *longest)
        );
    }

    #[test]
    fn the_environment_of_a_unit() {
        let environment = unit_environment(parent(), &[], Path::new("/private"));
        let lines: Vec<String> = environment
            .vars
            .iter()
            .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()))
            .collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        API_TIMEOUT_MS=240000
        CLAUDE_AGENT_SDK_DISABLE_BUILTIN_AGENTS=1
        CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS=120000
        CLAUDE_CODE_DISABLE_AUTO_MEMORY=1
        CLAUDE_CODE_DISABLE_CLAUDE_MDS=1
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
        CLAUDE_CODE_MAX_RETRIES=3
        CLAUDE_CODE_STARTUP_FAILURE_RESULTS=1
        CLAUDE_CONFIG_DIR=/home/dev/.claude-work
        CLAUDE_ENABLE_BYTE_WATCHDOG=1
        DISABLE_TELEMETRY=1
        ENABLE_TOOL_SEARCH=false
        HOME=/home/dev
        MCP_TIMEOUT=10000
        MCP_TOOL_TIMEOUT=600000
        PATH=/usr/bin
        TMPDIR=/private
        ");
        let kept = ["CLAUDE_CONFIG_DIR", "HOME", "PATH"];
        assert_eq!(environment.set.len() + kept.len(), environment.vars.len());
        assert_eq!(environment.stripped, WITHHELD);
        assert!(environment.vars.iter().all(|(_, value)| value != "secret"));
        assert!(environment.passed.is_empty());
    }

    #[test]
    fn pass_env_passes_withheld_variables() {
        let pass = [
            "ANTHROPIC_BASE_URL".to_owned(),
            "API_TIMEOUT_MS".to_owned(),
            "NOT_THERE".to_owned(),
        ];
        let environment = unit_environment(parent(), &pass, Path::new("/private"));
        assert_eq!(environment.passed, ["ANTHROPIC_BASE_URL", "API_TIMEOUT_MS"]);
        assert_eq!(value(&environment, "ANTHROPIC_BASE_URL"), Some("secret"));
        assert_eq!(value(&environment, "API_TIMEOUT_MS"), Some("5"));
        assert_eq!(value(&environment, "ANTHROPIC_API_KEY"), None);
    }

    #[test]
    fn pattern_passes_every_name_with_its_prefix() {
        let environment = unit_environment(
            parent(),
            &["AWS_*".to_owned(), "GITHUB_TOKEN".to_owned()],
            Path::new("/private"),
        );
        assert_eq!(
            environment.passed,
            ["AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE", "GITHUB_TOKEN"]
        );
        assert_eq!(value(&environment, "GITHUB_TOKEN"), Some("secret"));
        assert_eq!(value(&environment, "ANTHROPIC_MODEL"), None);
    }

    #[test]
    fn network_language_and_login_are_inherited() {
        let names = [
            "https_proxy",
            "NO_PROXY",
            "NODE_EXTRA_CA_CERTS",
            "LC_ALL",
            "XDG_CONFIG_HOME",
            "CLAUDE_CODE_OAUTH_TOKEN",
        ];
        let environment = unit_environment(
            names.map(|name| (name.into(), "x".into())),
            &[],
            Path::new("/private"),
        );
        assert!(
            names
                .iter()
                .all(|name| value(&environment, name) == Some("x"))
        );
        assert_eq!(environment.inherited().len(), names.len());
        assert!(environment.stripped.is_empty());
    }

    #[test]
    fn pass_env_cannot_override_isolation_variables() {
        let pass = ["CLAUDE_CODE_DISABLE_*".to_owned(), "TMPDIR".to_owned()];
        let environment = unit_environment(parent(), &pass, Path::new("/private"));
        assert_eq!(
            value(&environment, "CLAUDE_CODE_DISABLE_CLAUDE_MDS"),
            Some("1")
        );
        assert_eq!(value(&environment, "TMPDIR"), Some("/private"));
        assert!(environment.passed.is_empty());
    }

    #[test]
    fn debug_output_holds_no_values() {
        let shown = format!(
            "{:?}",
            unit_environment(parent(), &["AWS_PROFILE".to_owned()], Path::new("/private"))
        );
        assert!(
            shown.contains("AWS_PROFILE") && !shown.contains("secret"),
            "{shown}"
        );
    }
}
