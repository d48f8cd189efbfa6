//! The real CLI, if there is one to test with, and a home of its own for it.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use ingestdeck::claude::version::ClaudeVersion;
use tempfile::TempDir;

use super::api::FakeApi;

/// The CLI named by `INGESTDECK_TEST_CLAUDE`. Tests that need it pass silently without it; `.ci/run` sets it.
pub(crate) fn claude_bin() -> Option<PathBuf> {
    let path = PathBuf::from(env::var_os("INGESTDECK_TEST_CLAUDE")?);
    assert!(path.exists(), "INGESTDECK_TEST_CLAUDE names {}, which does not exist", path.display());
    Some(path)
}

/// The release of [`claude_bin`].
pub(crate) fn claude_version() -> ClaudeVersion {
    let claude = claude_bin().expect("INGESTDECK_TEST_CLAUDE names the CLI");
    let said = Command::new(claude).arg("--version").stdin(Stdio::null()).output().expect("it starts");
    ClaudeVersion::parse(&String::from_utf8_lossy(&said.stdout)).expect("it says its version")
}

/// First release whose bill for a resumed session has the session's earlier cost in it.
pub(crate) const BILLS_WHOLE_SESSION: ClaudeVersion = ClaudeVersion(2, 1, 277);

/// A home directory and a project directory that nobody else uses, gone at the end of the test.
#[derive(Debug)]
pub(crate) struct TestHome {
    root: TempDir,
}

impl TestHome {
    /// Makes the directories.
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

    /// Where the child runs.
    pub(crate) fn project(&self) -> PathBuf {
        self.root.path().join("project")
    }

    /// Everything that the CLI needs to talk to `api`, and nothing of the developer's own environment.
    pub(crate) fn env(&self, api: &FakeApi) -> Vec<(String, String)> {
        let mut env = vec![("ANTHROPIC_BASE_URL".to_owned(), api.url())];
        env.extend(self.env_offline());
        env
    }

    /// The same without an API.
    pub(crate) fn env_offline(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        [
            ("HOME", text(&self.path())),
            ("TMPDIR", text(&self.root.path().join("tmp"))),
            ("PATH", env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".into())),
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
