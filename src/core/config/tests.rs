//! Files, variables and flags, and the effective settings.

use std::time::Duration;

use proptest::prelude::*;

use super::{time_limit::TimeLimitSetting, *};

/// Path of the settings file in messages.
const FILE: &str = "/config.toml";

fn load(text: &str) -> Result<Config, String> {
    ConfigLayers::new()
        .user_file(Path::new(FILE), text)
        .map(ConfigLayers::finish)
        .map_err(|error| error.to_line())
}

fn vars(pairs: &[(&str, &str)]) -> EnvVars {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).into()))
        .collect()
}

/// The value of every key as TOML.
fn values(config: &Config) -> Vec<Result<String, &'static str>> {
    KEYS.iter().map(|key| (key.to_toml)(config)).collect()
}

fn text(value: &str) -> SettingValue {
    SettingValue::Text(value.into())
}

#[test]
fn default_config_has_documented_values() {
    insta::assert_snapshot!(Config::default().lines().join("\n"), @r#"
    # claude.model is not set  # default
    claude.allowed_tools = ["Bash", "Read", "Edit", "Write"]  # default
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
    retry.max_retries = 3  # default
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
    ui.ascii = false  # default
    ui.fps = 30  # default
    ui.notify = "bell"  # default
    ui.notify_command = []  # default
    ui.progress = "auto"  # default
    ui.on_disconnect = "continue"  # default
    "#);
    assert_eq!(Config::default().warnings, []);
}

#[test]
fn values_of_every_type_reach_their_fields() {
    let config = load(
        r#"
        [claude]
        model = "opus"
        session_mismatch = "warn"
        [agent]
        allowed_tools = "Read"
        temperature = 0.5
        [retry]
        factor = 3
        max_delay_ms = 0x20
        [ingest]
        silence_after = "30s"
        silence_timeout = "1m 30s"
        approval_timeout = "none"
        allow_paths = ["/data/dbt", "~/warehouse.db"]
        review = true
        [keys]
        retry = "r"
        quit = ["q", "ctrl-c"]
        mouse = []
        "#,
    )
    .unwrap();
    assert_eq!(config.claude.model.as_deref(), Some("opus"));
    assert_eq!(*config.claude.session_mismatch, MismatchPolicy::Warn);
    assert_eq!(*config.agent.allowed_tools, ["Read"]);
    assert_eq!(*config.agent.temperature, Some(0.5));
    assert_eq!(
        (*config.retry.factor, *config.retry.max_delay_ms),
        (3.0, 32)
    );
    assert_eq!(config.ingest.silence_after.as_secs(), 30);
    let after = TimeLimitSetting::After(Duration::from_secs(90));
    assert_eq!(*config.ingest.silence_timeout, after);
    assert_eq!(*config.ingest.approval_timeout, TimeLimitSetting::Unlimited);
    assert_eq!(*config.ingest.unit_timeout, TimeLimitSetting::Unset);
    assert_eq!(*config.ingest.allow_paths, ["/data/dbt", "~/warehouse.db"]);
    assert!(*config.ingest.review);
    let chords = [
        ("mouse", vec![]),
        ("quit", vec!["q", "ctrl-c"]),
        ("retry", vec!["r"]),
    ];
    let chords = chords.map(|(action, chords)| (action.into(), schema::words(&chords)));
    assert_eq!(config.chords(), chords.into());
}

#[test]
fn invalid_value_error_names_location_key_and_expectation() {
    let table = [
        "[claude]\n\nuse_api_billing = \"yes\"",
        "[claude]\nuse_api_billing = 1",
        "[claude]\nmodel = \"\"",
        "[claude]\nsession_mismatch = \"ignore\"",
        "[claude]\npass_env = [\"A B\"]",
        "[claude]\nallowed_tools = [1]",
        "[claude.model]\nname = \"x\"",
        "claude = 3",
        "[agent]\nmax_turns = 101",
        "[agent]\nmax_turns = 0",
        "[agent]\ntemperature = 1.5",
        "[agent]\ntemperature = nan",
        "[retry]\nfactor = 0.5",
        "[ingest]\nsilence_timeout = \"90\"",
        "[ingest]\nunit_timeout = 90",
        "[retry]\nmax_retries = 99999999999999999999",
        "[keys]\nretry = 5",
        "[keys]\nretry = [1]",
        "[ui]\nfps = 2026-01-01",
        "[ui\nfps = 3",
        "[ui]\nfps = 3\nfps = 4",
    ];
    let messages: Vec<String> = table.iter().map(|text| load(text).unwrap_err()).collect();
    insta::assert_snapshot!(messages.join("\n"), @r#"
    /config.toml:3: claude.use_api_billing must be true or false, not "yes"
    /config.toml:2: claude.use_api_billing must be true or false, not 1
    /config.toml:2: claude.model must be a text in quotes, not an empty text
    /config.toml:2: claude.session_mismatch must be "error" or "warn", not "ignore"
    /config.toml:2: claude.pass_env must be a list of names or prefixes (`AWS_*`) of environment variables, not ["A B"]
    /config.toml:2: claude.allowed_tools must be a list of texts, not a list of other things
    /config.toml:1: claude.model must be a text in quotes, not a section
    /config.toml:1: claude must be a section, not a number
    /config.toml:2: agent.max_turns must be a whole number from 1 to 100, not 101
    /config.toml:2: agent.max_turns must be a whole number from 1 to 100, not 0
    /config.toml:2: agent.temperature must be a number from 0 to 1, not 1.5
    /config.toml:2: agent.temperature must be a number from 0 to 1, not NaN
    /config.toml:2: retry.factor must be a number from 1 to 100, not 0.5
    /config.toml:2: ingest.silence_timeout must be a time of at least one second, as in 90s, 10m or "1h 30m", or none, in quotes, not "90"
    /config.toml:2: ingest.unit_timeout must be a time of at least one second, as in 90s, 10m or "1h 30m", or none, in quotes, not 90
    /config.toml:2: retry.max_retries must be a whole number from 0 to 100, not a number beyond 64 bits
    /config.toml:2: keys.retry must be a key in quotes or a list of them, not a number
    /config.toml:2: keys.retry must be a key in quotes or a list of them, not a list
    /config.toml:2: ui.fps must be a whole number from 1 to 120, not a date
    /config.toml:1: not valid TOML: unclosed table, expected `]`; correct the line, or move the file away to use the defaults
    /config.toml:3: not valid TOML: duplicate key; correct the line, or move the file away to use the defaults
    "#);
}

#[test]
fn unknown_key_is_ignored_with_a_warning() {
    let messages =
        load("[claude]\nmodle = \"x\"\nzzz = 1\n[agnet]\nmodel = \"x\"\n\"\\u001b[2J\" = 1\n[ui]\n\"fp\\u0007\" = 3")
            .unwrap();
    let messages = crate::diagnostic::to_lines(&messages.warnings);
    let messages = messages
        .iter()
        .map(|warning| warning.rsplit('/').next().unwrap())
        .collect::<Vec<_>>();
    insta::assert_snapshot!(messages.join("\n"), @r"
    config.toml:4: unknown section agnet is ignored; did you mean [agent]?
    config.toml:2: unknown key claude.modle is ignored; did you mean claude.model?
    config.toml:3: unknown key claude.zzz is ignored
    config.toml:8: unknown key ui.fp\u{7} is ignored; did you mean ui.fps?
    ");
}

#[test]
fn temperature_setting_warns_that_it_has_no_effect() {
    let config = load("[agent]\ntemperature = 0").unwrap();
    assert_eq!(*config.agent.temperature, Some(0.0));
    assert!(
        config.warnings[0].to_string().contains("not supported"),
        "{:?}",
        config.warnings
    );
}

#[test]
fn stronger_origin_wins_in_any_call_order() {
    let (path, text_of_file) = (
        Path::new(FILE),
        "[ui]\nfps = 1\nmouse = false\n[retry]\nmax_retries = 9\n[ingest]\ntool_failures = \"recoverable\"",
    );
    let environment = vars(&[
        ("INGESTDECK_UI_FPS", "3"),
        ("INGESTDECK_RETRY_MAX_RETRIES", ""),
        ("INGESTDECK_CLAUDE_MODEL", "opus"),
    ]);
    let forward = ConfigLayers::new()
        .user_file(path, text_of_file)
        .and_then(|layers| layers.environment(&environment))
        .and_then(|layers| layers.flag("--model", "claude.model", text("haiku")))
        .unwrap()
        .finish();
    let backward = ConfigLayers::new()
        .flag("--model", "claude.model", text("haiku"))
        .and_then(|layers| layers.environment(&environment))
        .and_then(|layers| layers.user_file(path, text_of_file))
        .unwrap()
        .finish();
    assert_eq!(forward, backward);
    let shown = forward
        .lines()
        .into_iter()
        .filter(|line| !line.ends_with("# default"))
        .collect::<Vec<_>>()
        .join("\n");
    insta::assert_snapshot!(shown.replace(&path.display().to_string(), "/config.toml"), @r#"
    claude.model = "haiku"  # flag --model
    retry.max_retries = 9  # user /config.toml:5
    ingest.tool_failures = "recoverable"  # user /config.toml:7
    ui.mouse = false  # user /config.toml:3
    ui.fps = 3  # environment INGESTDECK_UI_FPS
    "#);
    assert_eq!(forward.warnings, []);
}

#[test]
fn environment_variable_is_parsed_by_key_type() {
    let read = |name: &str, value: &str| {
        let messages = ConfigLayers::new()
            .environment(&vars(&[(name, value)]))
            .map(ConfigLayers::finish);
        messages.map_err(|error| error.to_string())
    };
    assert_eq!(
        *read("INGESTDECK_CLAUDE_ALLOWED_TOOLS", "Read, Grep,")
            .unwrap()
            .claude
            .allowed_tools,
        ["Read", "Grep"]
    );
    assert_eq!(
        *read("INGESTDECK_RETRY_FACTOR", "1.5").unwrap().retry.factor,
        1.5
    );
    assert!(*read("INGESTDECK_UI_ASCII", "true").unwrap().ui.ascii);
    assert_eq!(
        *read("INGESTDECK_CLAUDE_BIN", "/x").unwrap().claude.model,
        None
    );
    let errors = [
        read("INGESTDECK_UI_ASCII", "1").unwrap_err(),
        read("INGESTDECK_UI_FPS", "fast").unwrap_err(),
        read("INGESTDECK_UI_FPS", "0").unwrap_err(),
        read("INGESTDECK_CLAUDE_PASS_ENV", "A=1").unwrap_err(),
    ];
    insta::assert_snapshot!(errors.join("\n"), @r#"
    $INGESTDECK_UI_ASCII: ui.ascii must be true or false, not "1"
    $INGESTDECK_UI_FPS: ui.fps must be a whole number from 1 to 120, not "fast"
    $INGESTDECK_UI_FPS: ui.fps must be a whole number from 1 to 120, not 0
    $INGESTDECK_CLAUDE_PASS_ENV: claude.pass_env must be a list of names or prefixes (`AWS_*`) of environment variables, not ["A=1"]
    "#);
}

#[cfg(unix)]
#[test]
fn non_utf8_environment_variable_is_an_error() {
    use std::os::unix::ffi::OsStringExt as _;
    let vars = EnvVars::from([(
        "INGESTDECK_CLAUDE_MODEL".to_owned(),
        OsString::from_vec(vec![0xff]),
    )]);
    assert!(ConfigLayers::new().environment(&vars).is_err());
}

#[test]
fn hostile_settings_file_is_parsed_within_limits() {
    let unknown: String = (0..5_000)
        .map(|n| format!("[x{n}]\nkey_{n} = {n}\n"))
        .collect();
    let config = load(&unknown).unwrap();
    assert_eq!(config.warnings.len(), MAX_WARNINGS + 1);
    let unknown: String = (0..5_000)
        .map(|n| format!("some_rather_long_key_without_meaning_{n} = {n}\n"))
        .collect();
    assert_eq!(
        load(&format!("[ui]\n{unknown}")).unwrap().warnings.len(),
        MAX_WARNINGS + 1
    );
    assert!(load(&format!("[ui]\nfps = {}", "[".repeat(100_000))).is_err());
    assert!(load(&format!("[{}ui]", "a.".repeat(250_000))).is_err());
}

/// The template lists every key, with its default if it has one.
#[test]
fn template_file_matches_the_defaults() {
    let template = include_str!("../../../assets/config.toml");
    let uncomment = |line: &str| match line.strip_prefix("# ") {
        Some(rest)
            if rest
                .split_once(" = ")
                .is_some_and(|(key, _)| !key.contains(' ')) =>
        {
            rest.to_owned()
        }
        _ => line.to_owned(),
    };
    let set = template
        .lines()
        .map(uncomment)
        .collect::<Vec<_>>()
        .join("\n");
    let config = load(&set).unwrap();
    let defaults = Config::default();
    for key in KEYS {
        let origin = (key.origin)(&config);
        assert_ne!(*origin, SettingOrigin::Default, "{} is missing", key.name);
        if let default @ Ok(_) = (key.to_toml)(&defaults) {
            assert_eq!((key.to_toml)(&config), default, "{}", key.name);
        }
    }
    assert_eq!(load(template).unwrap(), defaults);
}

#[test]
fn default_values_are_within_their_limits() {
    let lines = Config::default().lines().join("\n");
    assert_eq!(values(&load(&lines).unwrap()), values(&Config::default()));
}

proptest! {
    /// Every file gives settings or an error of one line.
    #[test]
    fn any_settings_text_parses_without_panic(text in prop_oneof![
        ".{0,200}",
        "(\\[(claude|agent|retry|ui|keys|x)\\]\n([a-z_]{1,20} = (1|true|\"x\"|\\[\\]|\\[\"a\"\\]|0\\.5|\\{a=1\\})\n){0,4}){0,4}",
    ]) {
        match load(&text) {
            Ok(config) => prop_assert_eq!(config.lines().len(), KEYS.len() + config.keys.len()),
            Err(sentence) => prop_assert!(!sentence.contains('\n'), "{sentence}"),
        }
    }

    /// TOML output gives the same settings when it is read again.
    #[test]
    fn config_lines_parse_back(
        model in prop::option::of("[a-z0-9\"\\\\ é\u{7}-]{1,20}"),
        tools in prop::collection::vec(".{0,10}", 0..4),
        turns in 1..=100u32,
        factor in 1.0..50.0f64,
        chords in prop::collection::btree_map(".{0,8}", prop::collection::vec(".{0,5}", 0..3), 0..3),
    ) {
        let mut layers = ConfigLayers::new()
            .flag("f", "claude.allowed_tools", SettingValue::List(tools)).unwrap()
            .flag("f", "agent.max_turns", SettingValue::Integer(turns.into())).unwrap()
            .flag("f", "retry.factor", SettingValue::Float(factor)).unwrap();
        if let Some(model) = model {
            layers = layers.flag("f", "claude.model", SettingValue::Text(model)).unwrap();
        }
        for (action, chords) in chords {
            let origin = SettingOrigin::Flag { name: "f".into() };
            layers.config.keys.insert(action, Setting { value: chords, origin });
        }
        let config = layers.finish();
        let again = load(&config.lines().join("\n")).unwrap();
        prop_assert_eq!(values(&config), values(&again));
        prop_assert_eq!(config.chords(), again.chords());
    }
}
