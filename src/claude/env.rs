//! What a unit's `claude` inherits. Pure: from one environment to another, with the names of what changed.
//!
//! Values never leave this module except into the child.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    path::Path,
};

/// Variables that isolate the agent. A setting cannot change them.
const ISOLATION: [(&str, &str); 6] = [
    // Either of the two keeps MEMORY.md out of the request; the second also CLAUDE.md and rules.
    ("CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1"),
    ("CLAUDE_CODE_DISABLE_CLAUDE_MDS", "1"),
    // Without it the request carries a placeholder tool.
    ("ENABLE_TOOL_SEARCH", "false"),
    ("CLAUDE_AGENT_SDK_DISABLE_BUILTIN_AGENTS", "1"),
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("DISABLE_TELEMETRY", "1"),
];

/// Variables that bound silence. Named in `pass_env`, the user's own value wins.
const BOUNDS: [(&str, &str); 6] = [
    // The default of ten means three minutes until a bad key is reported.
    ("CLAUDE_CODE_MAX_RETRIES", "3"),
    // A server that accepts and never answers: by default six minutes of silence.
    ("API_TIMEOUT_MS", "240000"),
    // A stream that stalls midway: by default five minutes of silence.
    ("CLAUDE_ENABLE_BYTE_WATCHDOG", "1"),
    ("CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS", "120000"),
    ("MCP_TIMEOUT", "10000"),
    ("MCP_TOOL_TIMEOUT", "600000"),
];

/// Variables that would send the agent to another account, service or model, or make it believe that it runs inside
/// another agent.
const DENIED: [&str; 17] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_MODEL",
    "ANTHROPIC_VERTEX_PROJECT_ID",
    "CLOUD_ML_REGION",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_PROJECT",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_PROFILE",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDECODE",
    "NODE_OPTIONS",
];

/// The environment of a child, and what was done to the parent's. Names are sorted.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// Every variable of the child.
    pub vars: Vec<(OsString, OsString)>,
    /// Names that were set or changed.
    pub set: Vec<String>,
    /// Names that were withheld.
    pub stripped: Vec<String>,
    /// Names that a setting passed although they would have been withheld or replaced.
    pub passed: Vec<String>,
}

impl Environment {
    /// Names of the variables that the child gets as the parent has them, and nobody decided about. Sorted.
    pub fn inherited(&self) -> Vec<String> {
        let names = self.vars.iter().map(|(name, _)| name.to_string_lossy().into_owned());
        names.filter(|name| !self.set.contains(name) && !self.passed.contains(name)).collect()
    }
}

/// Values may be secrets: only names are shown.
impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment")
            .field("vars", &self.vars.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("set", &self.set)
            .field("stripped", &self.stripped)
            .field("passed", &self.passed)
            .finish()
    }
}

/// The environment of a unit's agent. `pass` names variables that are kept although the list would withhold them;
/// `tmp` is its private directory for temporary files.
pub fn unit(parent: impl IntoIterator<Item = (OsString, OsString)>, pass: &[String], tmp: &Path) -> Environment {
    let passes = |name: &str| pass.iter().any(|passed| passed == name);
    let mut child: BTreeMap<OsString, OsString> = parent.into_iter().collect();
    let mut done = Environment::default();

    for name in DENIED.into_iter().filter(|name| child.contains_key(OsStr::new(name))).collect::<Vec<_>>() {
        if passes(name) {
            done.passed.push(name.to_owned());
        } else {
            child.remove(OsStr::new(name));
            done.stripped.push(name.to_owned());
        }
    }
    for (name, value) in BOUNDS {
        if passes(name) && child.contains_key(OsStr::new(name)) {
            done.passed.push(name.to_owned());
        } else {
            child.insert(name.into(), value.into());
            done.set.push(name.to_owned());
        }
    }
    for (name, value) in ISOLATION {
        child.insert(name.into(), value.into());
        done.set.push(name.to_owned());
    }
    child.insert("TMPDIR".into(), tmp.into());
    done.set.push("TMPDIR".to_owned());

    done.vars = child.into_iter().collect();
    for names in [&mut done.set, &mut done.stripped, &mut done.passed] {
        names.sort_unstable();
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent() -> Vec<(OsString, OsString)> {
        let mut vars: Vec<_> = DENIED.iter().map(|name| (OsString::from(name), OsString::from("secret"))).collect();
        for (name, value) in [
            ("HOME", "/home/dev"),
            ("PATH", "/usr/bin"),
            ("TMPDIR", "/var/tmp"),
            ("API_TIMEOUT_MS", "5"),
            ("CLAUDE_CODE_DISABLE_CLAUDE_MDS", "0"),
            ("CLAUDE_CONFIG_DIR", "/home/dev/.claude-work"),
        ] {
            vars.push((name.into(), value.into()));
        }
        vars
    }

    fn value<'a>(environment: &'a Environment, name: &str) -> Option<&'a str> {
        environment.vars.iter().find(|(key, _)| key == name).and_then(|(_, value)| value.to_str())
    }

    #[test]
    fn what_is_inherited_is_told_by_name() {
        let environment = unit(parent(), &["NODE_OPTIONS".into()], Path::new("/private"));
        assert_eq!(environment.inherited(), ["CLAUDE_CONFIG_DIR", "HOME", "PATH"]);
        assert_eq!(environment.passed, ["NODE_OPTIONS"]);
    }

    #[test]
    fn the_environment_of_a_unit() {
        let environment = unit(parent(), &[], Path::new("/private"));
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
        assert_eq!(environment.stripped.len(), DENIED.len());
        assert!(environment.passed.is_empty());
    }

    #[test]
    fn a_setting_passes_what_the_list_withholds() {
        let pass = ["ANTHROPIC_BASE_URL".to_owned(), "API_TIMEOUT_MS".to_owned(), "NOT_THERE".to_owned()];
        let environment = unit(parent(), &pass, Path::new("/private"));
        assert_eq!(environment.passed, ["ANTHROPIC_BASE_URL", "API_TIMEOUT_MS"]);
        assert_eq!(value(&environment, "ANTHROPIC_BASE_URL"), Some("secret"));
        assert_eq!(value(&environment, "API_TIMEOUT_MS"), Some("5"));
        assert_eq!(value(&environment, "ANTHROPIC_API_KEY"), None);
    }

    #[test]
    fn no_setting_passes_what_isolates() {
        let pass = ["CLAUDE_CODE_DISABLE_CLAUDE_MDS".to_owned(), "TMPDIR".to_owned()];
        let environment = unit(parent(), &pass, Path::new("/private"));
        assert_eq!(value(&environment, "CLAUDE_CODE_DISABLE_CLAUDE_MDS"), Some("1"));
        assert_eq!(value(&environment, "TMPDIR"), Some("/private"));
        assert!(environment.passed.is_empty());
    }

    #[test]
    fn debug_output_holds_no_values() {
        let shown = format!("{:?}", unit(parent(), &["AWS_PROFILE".to_owned()], Path::new("/private")));
        assert!(shown.contains("AWS_PROFILE") && !shown.contains("secret"), "{shown}");
    }
}
