//! Everything that people and scripts write: arguments, settings, variables, `ktx.yaml`, key bindings, themes and the
//! command line on the screen.

use std::{collections::BTreeSet, ffi::OsString, fs, path::Path};

use clap::{Arg, Command};
use ingestdeck_agent::claude::agent_env;
use ingestdeck_core::config::{
    Config,
    schema::{KEYS, SettingKey},
};
use ingestdeck_ingest::Project;
use ingestdeck_tui::{
    ColorLevel, KeyOverrides, Keymap, Theme,
    action_spec::ActionSpec,
    actions::{
        self,
        command_line::{self, CommandRequest},
    },
    key,
    theme::StyleRole,
};
use regex_lite::Regex;

use super::golden::{assert_published, path, read};

fn argument(arg: &Arg) -> String {
    let mut line = match (arg.get_long(), arg.get_short()) {
        (Some(long), Some(short)) => format!("--{long} -{short}"),
        (Some(long), None) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => "(argument)".to_owned(),
    };
    if arg.get_action().takes_values() {
        for name in arg.get_value_names().unwrap_or_default() {
            line.push_str(&format!(" <{name}>"));
        }
        if let Some(count) = arg.get_num_args() {
            line.push_str(&format!(" {count}"));
        }
        let words: Vec<String> = arg
            .get_possible_values()
            .iter()
            .map(|value| value.get_name().to_owned())
            .collect();
        if !words.is_empty() {
            line.push_str(&format!(" [{}]", words.join(", ")));
        }
    }
    line.push_str(&format!(" {:?}", arg.get_action()));
    for value in arg.get_default_values() {
        line.push_str(&format!(" default={}", value.to_string_lossy()));
    }
    if let Some(variable) = arg.get_env() {
        line.push_str(&format!(" env={}", variable.to_string_lossy()));
    }
    let marks = [
        (arg.is_required_set(), "required"),
        (arg.is_global_set(), "everywhere"),
        (arg.is_hide_set(), "hidden"),
        (arg.is_last_set(), "after --"),
        (arg.is_require_equals_set(), "needs ="),
    ];
    for (is_set, mark) in marks {
        if is_set {
            line.push_str(&format!(" ({mark})"));
        }
    }
    line
}

fn describe(command: &Command, above: &str, out: &mut String) {
    let path = format!("{above}{}", command.get_name());
    out.push_str(&path);
    command
        .get_all_aliases()
        .for_each(|alias| out.push_str(&format!(" = {alias}")));
    out.push_str(if command.is_hide_set() {
        " (hidden)\n"
    } else {
        "\n"
    });
    for arg in command.get_arguments() {
        out.push_str(&format!("    {}\n", argument(arg)));
        for rival in command.get_arg_conflicts_with(arg) {
            out.push_str(&format!(
                "        not with --{}\n",
                rival.get_long().unwrap_or_default()
            ));
        }
    }
    for sub in command.get_subcommands() {
        describe(sub, &format!("{path} "), out);
    }
}

#[test]
fn commands_and_arguments_are_as_published() {
    let mut out = String::new();
    describe(&ingestdeck::command(), "", &mut out);
    assert_published("command-line.txt", &out);
}

/// A short form of the description of valid values.
fn kind(expected: &str) -> String {
    match expected {
        "a text in quotes" => "text".into(),
        _ if expected.starts_with("a list of names") => "list of names".into(),
        _ if expected.starts_with("a list of prices") => "list of prices".into(),
        _ if expected.starts_with("a list of absolute") => "list of paths".into(),
        _ if expected.ends_with("or none, in quotes") => "duration or none".into(),
        _ if expected.starts_with("a time") => "duration".into(),
        _ => expected
            .trim_start_matches("a ")
            .replace(" from ", ", ")
            .replace('"', ""),
    }
}

#[test]
fn settings_are_as_published() {
    let defaults = Config::default();
    let setting = |key: &SettingKey| {
        let (unset, preset) = match (key.to_toml)(&defaults) {
            Ok(value) => (String::new(), value),
            Err("") => (String::new(), "not set".into()),
            Err(unset) => (format!("; if not set: {unset}"), "not set".into()),
        };
        format!(
            "{}  {}  {}{unset}  default: {preset}\n",
            key.name,
            key.variable(),
            kind(&(key.expected)())
        )
    };
    assert_published(
        "settings.txt",
        &KEYS.iter().map(setting).collect::<String>(),
    );
}

/// Rust files of the program, without their tests and the build script.
fn sources(dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if name.ends_with(".rs") && !["build.rs", "tests.rs"].contains(&name) {
            let text = fs::read_to_string(&path).unwrap();
            found.push(
                text.split("#[cfg(test)]\nmod tests {")
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            );
        }
    }
}

#[test]
fn environment_variables_are_as_published() {
    let mut files = Vec::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut files,
    );
    let published = read("environment.txt");
    let named = |section: &str| -> Vec<&str> {
        let lines = published
            .lines()
            .skip_while(|line| *line != section)
            .skip(1);
        lines
            .take_while(|line| !line.is_empty())
            .map(|line| line.split(' ').next().unwrap())
            .collect()
    };
    let read_by_us = named("read by the program:");
    for name in &read_by_us {
        let literal = format!("\"{name}\"");
        assert!(
            files.iter().any(|text| text.contains(&literal)),
            "{name} is no longer read"
        );
    }
    let reads =
        r#"\b(?:var|var_os|variable|set|try_from_env|absolute|dir|of)\(\s*"([A-Z][A-Z0-9_]*)""#;
    let reads = Regex::new(reads).unwrap();
    let found: BTreeSet<&str> = files
        .iter()
        .flat_map(|text| reads.captures_iter(text))
        .map(|found| found.get(1).unwrap().as_str())
        .collect();
    let unknown: Vec<&&str> = found
        .iter()
        .filter(|name| !read_by_us.contains(name))
        .collect();
    assert!(
        unknown.is_empty(),
        "not in tests/fixtures/formats/environment.txt: {unknown:?}"
    );

    let agents = |section: &str| -> Vec<(OsString, OsString)> {
        named(section)
            .iter()
            .map(|name| (name.replace('*', "X").into(), "x".into()))
            .collect()
    };
    let parent = [
        agents("inherited by agents of units:"),
        agents("withheld from agents of units and reported:"),
    ];
    let environment = agent_env::unit_environment(parent.concat(), &[], Path::new("/tmp"));
    let sorted = |section: &str| {
        let mut names: Vec<String> = named(section)
            .iter()
            .map(|name| name.replace('*', "X"))
            .collect();
        names.sort_unstable();
        names
    };
    assert_eq!(
        environment.inherited(),
        sorted("inherited by agents of units:")
    );
    assert_eq!(
        environment.stripped,
        sorted("withheld from agents of units and reported:")
    );
    assert_eq!(environment.set, sorted("set for agents of units:"));
}

#[test]
fn every_key_of_a_project_is_known() {
    let place = tempfile::tempdir().unwrap();
    fs::copy(path("ktx.yaml"), place.path().join("ktx.yaml")).unwrap();
    let project = Project::open(place.path()).unwrap();
    let warnings = ingestdeck_core::diagnostic::to_lines(&project.warnings);
    let unknown: Vec<&String> = warnings
        .iter()
        .filter(|warning| warning.contains("unknown key"))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let settings = &project.settings;
    // Every value outside of the connections is in the table of keys.
    let text = read("ktx.yaml");
    let (outside, _) = text.split_once("connections:\n  notes:").unwrap();
    for (line, text) in (1..)
        .zip(outside.lines())
        .filter(|(_, text)| !text.starts_with('#') && !text.ends_with(':'))
    {
        let key = text.trim().split(':').next().unwrap();
        let is_known =
            |(known, at): (&String, &u64)| *at == line && known.rsplit('.').next() == Some(key);
        assert!(
            settings.key_lines.iter().any(is_known),
            "line {line}: {text}"
        );
    }
    let mut models = String::new();
    for role in ingestdeck_ingest::project::ModelRole::ALL {
        models.push_str(&format!(
            "{}={} ",
            role.as_str(),
            settings.model_with_role(role).unwrap().1
        ));
    }
    let expected = "default=m-default triage=m-triage candidateExtraction=m-extraction curator=m-curator \
                    reconcile=m-reconcile repair=m-repair ";
    assert_eq!(models, expected);
    let units = &settings.work_units;
    assert_eq!(
        (
            units.step_budget,
            units.max_concurrency,
            units.failure_mode.as_str()
        ),
        (41, 2, "abort")
    );
    let limits = &settings.rate_limit;
    let values = (
        limits.enabled,
        limits.throttle_threshold,
        limits.min_concurrency_under_pressure,
        limits.max_wait_ms,
    );
    assert_eq!(values, (false, 0.5, 2, Some(5)));
    let retry = &limits.retry;
    let values = (
        retry.max_attempts,
        retry.base_delay_ms,
        retry.max_delay_ms,
        retry.jitter,
    );
    assert_eq!(values, (7, 8, 9, false));
    assert_eq!(settings.hidden_paths, [".hidden"]);
    assert_eq!(settings.adapters.as_ref().map(Vec::len), Some(7));
    let connections = settings.connections.iter().map(|connection| {
        // How the program stores values is not published; that it reads them is.
        let texts = [
            &connection.driver,
            &connection.subdir,
            &connection.branch,
            &connection.url,
        ];
        let texts = texts.map(|text| text.as_deref().unwrap_or("-"));
        let (source, looker) = (
            &connection.source,
            connection
                .text("/mappings/expectedLookerConnectionName")
                .unwrap_or("-"),
        );
        let source = source
            .as_ref()
            .map(|source| format!("{source:?}"))
            .unwrap_or_default();
        let source = source.split('"').nth(1).unwrap_or("-").to_owned();
        format!("{} {} {source} {looker}", connection.id, texts.join(" "))
    });
    let expected = [
        "notes docs - - - notes -",
        "code dbt models main - file:code -",
        "looks lookml - - - file:looks cellar",
        "flow metricflow semantic dev - file:flow -",
        "warehouse sqlite - - sqlite:shop.db - -",
        "pages docs - - - pages -",
    ];
    assert_eq!(connections.collect::<Vec<_>>(), expected);
}

#[test]
fn names_of_keys_are_as_published() {
    let keymap = Keymap::new(&KeyOverrides::new()).unwrap();
    let row = |ActionSpec { action, name, .. }: &ActionSpec| {
        let chords: Vec<String> = keymap.chords(*action).map(key::display_chord).collect();
        format!("{:<18}{}\n", name, chords.join("  "))
    };
    assert_published(
        "keys.txt",
        &actions::ALL.iter().map(row).collect::<String>(),
    );
}

#[test]
fn published_theme_file_is_accepted() {
    let text = read("theme.toml");
    Theme::parse("published", &text, ColorLevel::Full, false).unwrap();
    let named = text
        .lines()
        .filter_map(|line| line.split_once(" = "))
        .map(|(role, _)| role)
        .filter(|role| !role.contains('#'));
    assert_eq!(
        named.collect::<Vec<_>>(),
        StyleRole::ALL
            .iter()
            .map(|role| role.name())
            .collect::<Vec<_>>()
    );
    let mut names: Vec<&str> = Theme::names().collect();
    names.sort_unstable();
    assert_eq!(names, ["color-blind", "dark", "high-contrast", "light"]);
}

/// Conditions are also on tapes, in the note of a unit that runs until one is met.
#[test]
fn published_screen_commands_are_accepted() {
    for line in read("screen-commands.txt").lines() {
        let request = command_line::parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        if let CommandRequest::Until(condition) | CommandRequest::Break(condition) = request {
            assert_eq!(condition.to_string(), line.split_once(' ').unwrap().1);
        }
    }
}
