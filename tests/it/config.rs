//! Settings as the composition root puts them together: directories from the environment, the file found there, the
//! environment, and flags on top.

use std::fs;

use crate::support::program;
use ingestdeck_core::config::{Config, ConfigError, ConfigLayers, EnvVars, SettingValue};
use ingestdeck_os::user_dirs::UserDirs;

struct ConfigHome {
    dir: tempfile::TempDir,
    vars: EnvVars,
}

impl ConfigHome {
    fn new(file: Option<&str>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let vars = EnvVars::from([("XDG_CONFIG_HOME".to_owned(), dir.path().into())]);
        if let Some(text) = file {
            let path = UserDirs::from_vars(&vars).config_file().unwrap();
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self { dir, vars }
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.vars.insert(name.to_owned(), value.into());
        self
    }

    fn load(&self, model: Option<&str>) -> Result<Config, ConfigError> {
        let file = UserDirs::from_vars(&self.vars).config_file().unwrap();
        let mut layers = ConfigLayers::new();
        if let Ok(text) = fs::read_to_string(&file) {
            layers = layers.user_file(&file, &text)?;
        }
        layers = layers.environment(&self.vars)?;
        if let Some(model) = model {
            layers = layers.flag(
                "--model",
                "claude.model",
                SettingValue::Text(model.to_owned()),
            )?;
        }
        Ok(layers.finish())
    }

    /// Replaces the directory of this test by the name of its variable.
    fn redact(&self, text: &str) -> String {
        text.replace(&self.dir.path().display().to_string(), "$XDG_CONFIG_HOME")
    }
}

#[test]
fn all_layers_together_are_shown_with_their_origins() {
    let file = "[claude]\nmodel = \"sonnet\"\nallowed_tools = []\n\n[retry]\nmax_retries = 1\n[ui]\nfps = 30\n[keys]\nretry = [\"r\"]\n";
    let home = ConfigHome::new(Some(file))
        .with("INGESTDECK_UI_FPS", "20")
        .with("INGESTDECK_UI_ASCII", "true");
    let config = home.load(Some("opus")).unwrap();
    insta::assert_snapshot!(home.redact(&config.lines().join("\n")), @r#"
    claude.model = "opus"  # flag --model
    claude.allowed_tools = []  # user $XDG_CONFIG_HOME/ingestdeck/config.toml:3
    claude.dangerously_skip_permissions = false  # default
    claude.use_api_billing = false  # default
    claude.session_mismatch = "error"  # default
    claude.pass_env = []  # default
    claude.prices = []  # default
    agent.allowed_tools = ["Read", "Edit", "Write", "Bash", "Glob", "Grep"]  # default
    agent.max_turns = 50  # default
    # agent.model is not set  # default
    # agent.system_prompt is not set  # default
    # agent.temperature is not set  # default
    retry.max_retries = 1  # user $XDG_CONFIG_HOME/ingestdeck/config.toml:6
    retry.initial_delay_ms = 1000  # default
    retry.factor = 2.0  # default
    retry.max_delay_ms = 30000  # default
    ingest.tool_failures = "strict"  # default
    ingest.partial_messages = true  # default
    ingest.probe = false  # default
    ingest.reconcile = true  # default
    ingest.silence_after = "60s"  # default
    # ingest.silence_timeout is not set: 10m without a screen and on workers, else none  # default
    # ingest.unit_timeout is not set: 2h without a screen and on workers, else none  # default
    # ingest.approval_timeout is not set: 24h without a screen, else none  # default
    # ingest.review_idle_timeout is not set: 8h  # default
    ingest.worker_wait = "2h"  # default
    ingest.allow_paths = []  # default
    ingest.allow_git = []  # default
    ingest.turn_limit = "finish"  # default
    ingest.review = false  # default
    ingest.unsourced = "warn"  # default
    ingest.unread = "warn"  # default
    ingest.continue = "auto"  # default
    ingest.max_unit_share = 25  # default
    warehouse.allow = []  # default
    warehouse.drivers = []  # default
    warehouse.query_timeout = "30s"  # default
    warehouse.max_connections = 4  # default
    warehouse.max_scan_age = "168h"  # default
    find.max_index_mb = 512  # default
    find.exclude = []  # default
    # notify.url is not set  # default
    # otel.endpoint is not set  # default
    otel.content = false  # default
    policy.allow = []  # default
    policy.hold = []  # default
    policy.deny = []  # default
    ui.theme = "auto"  # default
    ui.mouse = true  # default
    ui.ascii = true  # environment INGESTDECK_UI_ASCII
    ui.fps = 20  # environment INGESTDECK_UI_FPS
    ui.notify = "bell"  # default
    ui.notify_command = []  # default
    ui.progress = "auto"  # default
    ui.on_disconnect = "continue"  # default
    keys.retry = ["r"]  # user $XDG_CONFIG_HOME/ingestdeck/config.toml:10
    "#);
    assert_eq!(config.warnings, []);
}

#[test]
fn missing_file_and_template_give_the_defaults() {
    let template = include_str!("../../assets/config.toml");
    let (without, with) = (
        ConfigHome::new(None).load(None).unwrap(),
        ConfigHome::new(Some(template)).load(None).unwrap(),
    );
    assert_eq!(without.lines(), with.lines());
}

#[test]
fn config_error_names_file_line_key_and_expectation() {
    let home = ConfigHome::new(Some("[claude]\nuse_api_billing = \"true\"\n"));
    let error = home.load(None).unwrap_err().to_string();
    insta::assert_snapshot!(home.redact(&error), @r#"
    $XDG_CONFIG_HOME/ingestdeck/config.toml:2: claude.use_api_billing must be true or false, not "true"
    "#);
}

#[test]
fn unreadable_settings_file_is_an_error_with_its_path() {
    let home = ConfigHome::new(None);
    // A directory in its place cannot be read by any user, not even by root.
    fs::create_dir_all(home.dir.path().join("ingestdeck/config.toml")).unwrap();
    let output = std::process::Command::new(program())
        .args(["config", "show"])
        .env("XDG_CONFIG_HOME", home.dir.path())
        .current_dir(home.dir.path())
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        home.redact(&error)
            .contains("cannot read the settings $XDG_CONFIG_HOME/ingestdeck/config.toml: "),
        "{error}"
    );
}
