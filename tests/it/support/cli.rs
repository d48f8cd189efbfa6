//! The real CLI, if the environment provides one, and a private home for it.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use ingestdeck_agent::claude::version::ClaudeVersion;
use tempfile::TempDir;

use super::api::FakeApi;

/// The CLI in `INGESTDECK_TEST_CLAUDE`. Tests that need it pass silently if the variable is not set; `.ci/run` sets it.
pub(crate) fn claude_bin() -> Option<PathBuf> {
    let path = PathBuf::from(env::var_os("INGESTDECK_TEST_CLAUDE")?);
    assert!(
        path.exists(),
        "INGESTDECK_TEST_CLAUDE names {}, which does not exist",
        path.display()
    );
    Some(path)
}

pub(crate) fn claude_version() -> ClaudeVersion {
    let claude = claude_bin().expect("INGESTDECK_TEST_CLAUDE names the CLI");
    let output = Command::new(claude)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    ClaudeVersion::parse(&String::from_utf8_lossy(&output.stdout)).expect("it prints its version")
}

/// First release that includes the earlier cost of a session when it reports the cost of a resumed one.
pub(crate) const BILLS_WHOLE_SESSION: ClaudeVersion = ClaudeVersion(2, 1, 277);

/// A home directory and a project directory for one test, removed at its end.
#[derive(Debug)]
pub(crate) struct TestHome {
    root: TempDir,
}

impl TestHome {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().expect("a temporary directory");
        for name in ["home", "project", "tmp"] {
            std::fs::create_dir(root.path().join(name)).expect("a directory in it");
        }
        Self { root }
    }

    /// `$HOME` of the child.
    pub(crate) fn path(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// Working directory of the child.
    pub(crate) fn project(&self) -> PathBuf {
        self.root.path().join("project")
    }

    /// Environment in which the CLI uses `api` and nothing of the developer's own environment.
    pub(crate) fn env(&self, api: &FakeApi) -> Vec<(String, String)> {
        let mut env = vec![("ANTHROPIC_BASE_URL".to_owned(), api.url())];
        env.extend(self.env_offline());
        env
    }

    /// The same environment without an API.
    pub(crate) fn env_offline(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        [
            ("HOME", text(&self.path())),
            ("TMPDIR", text(&self.root.path().join("tmp"))),
            (
                "PATH",
                env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".into()),
            ),
            ("TERM", "xterm".into()),
            ("ANTHROPIC_API_KEY", "test-key".into()),
            ("CLAUDE_CODE_MAX_RETRIES", "1".into()),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".into()),
            ("DISABLE_TELEMETRY", "1".into()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}
