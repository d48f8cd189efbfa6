//! The built program on a copy of a project, with the real CLI and a scripted API.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use ingestdeck_core::tape::{Note, note::AttemptStarted, shared_value::EarlierValues};
use serde_json::{Value, json};

use crate::support::{
    api::{ApiRoute, ApiTurn, FakeApi, text, tool},
    cli::{TestHome, claude_bin},
};

/// Longest wait for anything.
pub(super) const LIMIT: Duration = Duration::from_secs(120);

/// Every unit of the project with its raw file, in plan order.
pub(super) const UNITS: [(&str, &str); 8] = [
    ("dbt-all", "models/harvest.yml"),
    ("docs-cold-store", "cold-store.md"),
    ("docs-crates", "crates.md"),
    ("docs-growers", "growers.md"),
    ("docs-juice", "juice.md"),
    ("docs-payments", "payments.md"),
    ("docs-seasons", "seasons.md"),
    ("docs-varieties", "varieties.md"),
];

/// A call of one of the program's tools.
pub(super) fn ktx(name: &str, input: Value) -> Value {
    tool(&format!("mcp__ktx__{name}"), input)
}

/// The three calls of a good attempt, one per turn, and its final text.
pub(super) fn good_turns(unit: &str, file: &str) -> [ApiTurn; 4] {
    let ledger =
        json!({"summary": "Read it.", "verifiedIdentifiers": [], "unverifiedIdentifiers": []});
    let page = json!({
        "key": format!("page-{unit}"), "summary": format!("Page of {unit}"), "content": format!("# {unit}\n\nText.\n"),
        "tags": ["orchard"], "rawPaths": [file],
    });
    [
        ApiTurn::blocks([
            text("I read the source first."),
            ktx("read_raw_file", json!({"path": file})),
        ]),
        ApiTurn::blocks([ktx("record_verification_ledger", ledger)]),
        ApiTurn::blocks([ktx("wiki_write", page)]),
        ApiTurn::answer("Written down."),
    ]
}

/// The route for the requests of `unit`.
pub(super) fn asked_by(unit: &str, turns: impl IntoIterator<Item = ApiTurn>) -> ApiRoute {
    ApiRoute::on(&format!("## WorkUnit: {unit}\\n"), turns)
}

/// A route for every unit that makes it succeed.
pub(super) fn all_good() -> Vec<ApiRoute> {
    UNITS
        .iter()
        .map(|(unit, file)| asked_by(unit, good_turns(unit, file)))
        .collect()
}

/// A home, a project and an API.
#[derive(Debug)]
pub(super) struct TestProject {
    pub(super) home: TestHome,
    pub(super) api: FakeApi,
    env: Vec<(String, String)>,
}

/// The result of a command.
#[derive(Debug)]
pub(super) struct PlayedCommand {
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
    pub(super) duration: Duration,
}

impl TestProject {
    /// A fresh copy of the project `orchard`, and a home with only the settings of this test.
    pub(super) fn new(routes: impl IntoIterator<Item = ApiRoute>) -> Self {
        Self::with_project("orchard", routes)
    }

    /// The same with a copy of another project.
    pub(super) fn with_project(project: &str, routes: impl IntoIterator<Item = ApiRoute>) -> Self {
        let (home, api) = (TestHome::new(), FakeApi::start(routes));
        copy(
            &Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/fixtures/projects")
                .join(project),
            &home.project(),
        );
        let settings = home.path().join(".config/ingestdeck");
        fs::create_dir_all(&settings).unwrap();
        let pass = "[claude]\npass_env = [\"ANTHROPIC_BASE_URL\", \"ANTHROPIC_API_KEY\"]\nuse_api_billing = true\n";
        fs::write(settings.join("config.toml"), pass).unwrap();
        let claude = claude_bin().expect("INGESTDECK_TEST_CLAUDE names the CLI");
        let mut env = home.env(&api);
        env.push((
            "INGESTDECK_CLAUDE_BIN".into(),
            claude.to_string_lossy().into_owned(),
        ));
        // Most tests have no answers for the reconcile step.
        env.push(("INGESTDECK_INGEST_RECONCILE".into(), "false".into()));
        Self { home, api, env }
    }

    /// Signed in with a subscription instead of a key: only then does the CLI have usage windows.
    pub(super) fn subscribed(mut self) -> Self {
        self.env.retain(|(name, _)| name != "ANTHROPIC_API_KEY");
        self.env
            .push(("CLAUDE_CODE_OAUTH_TOKEN".into(), "test-token".into()));
        self
    }

    /// Runs have a reconcile step.
    pub(super) fn with_reconcile_step(mut self) -> Self {
        self.env
            .retain(|(name, _)| name != "INGESTDECK_INGEST_RECONCILE");
        self
    }

    /// Adds to the settings of the user.
    pub(super) fn set(self, toml: &str) -> Self {
        let path = self.home.path().join(".config/ingestdeck/config.toml");
        fs::write(&path, fs::read_to_string(&path).unwrap() + toml).unwrap();
        self
    }

    /// The environment of the program.
    pub(super) fn env(&self) -> &[(String, String)] {
        &self.env
    }

    /// The program with these arguments, not started yet.
    pub(super) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(crate::support::program());
        command
            .args(args)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(self.home.project())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs a command to its end.
    pub(super) fn play(&self, args: &[&str]) -> PlayedCommand {
        let began = Instant::now();
        let output = assert_cmd::Command::from_std(self.command(args))
            .timeout(LIMIT)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let played = PlayedCommand {
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
            duration: began.elapsed(),
        };
        assert!(played.duration < LIMIT, "no end: {played:#?}");
        played
    }

    /// `run --ui json` of the units that `only` matches.
    pub(super) fn run(&self, only: &str, more: &[&str]) -> PlayedCommand {
        self.play(&[["run", "--ui", "json", "--only", only].as_slice(), more].concat())
    }

    /// The text of a file of the project.
    pub(super) fn read(&self, path: &str) -> String {
        let path = self.home.project().join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Sorted names in a directory of the project; none if there is no such directory.
    pub(super) fn names(&self, folder: &str) -> Vec<String> {
        let listed = fs::read_dir(self.home.project().join(folder))
            .into_iter()
            .flatten();
        let mut names: Vec<String> = listed
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// The tapes of the project, oldest first.
    pub(super) fn tapes(&self) -> Vec<PathBuf> {
        let runs = ".ktx/ingestdeck/runs";
        let tapes = self
            .names(runs)
            .into_iter()
            .map(|run| self.home.project().join(runs).join(run).join("tape.jsonl"));
        tapes.filter(|tape| tape.is_file()).collect()
    }

    /// Complete entries of the newest tape; none if there is no tape yet.
    pub(super) fn entries(&self) -> Vec<Value> {
        let tape = self
            .tapes()
            .pop()
            .map(|tape| fs::read_to_string(tape).unwrap())
            .unwrap_or_default();
        let mut values = EarlierValues::default();
        let lines =
            tape.lines()
                .skip(1)
                .filter_map(|line| match values.complete(line.as_bytes()) {
                    Some(complete) => serde_json::from_slice(&complete).ok(),
                    None => serde_json::from_str(line).ok(),
                });
        lines.collect()
    }

    /// Notes of the newest tape.
    pub(super) fn notes(&self) -> Vec<Note> {
        self.entries()
            .iter()
            .filter_map(|entry| entry.get("note"))
            .map(|n| Note::parse(n.to_string().as_bytes()))
            .collect()
    }

    /// The `attempt_started` note of every attempt on the newest tape.
    pub(super) fn started(&self) -> Vec<AttemptStarted> {
        let notes = self.notes().into_iter();
        notes
            .filter_map(|note| {
                if let Note::AttemptStarted(started) = note {
                    Some(*started)
                } else {
                    None
                }
            })
            .collect()
    }

    /// `Some` once the run was asked to stop `count` times.
    pub(super) fn asked_to_stop(&self, count: usize) -> Option<()> {
        let notes = self.notes();
        let asked = notes
            .iter()
            .filter(|note| matches!(note, Note::StopRequested { .. }))
            .count();
        (asked >= count).then_some(())
    }

    /// Waits until `found` finds something.
    pub(super) fn wait_for<T>(&self, what: &str, mut found: impl FnMut(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            if let Some(found) = found(self) {
                return found;
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
        panic!("{what} never came: {:#?}", self.entries())
    }
}

impl PlayedCommand {
    /// The JSON stream, checked against its contract.
    pub(super) fn events(&self) -> Vec<Value> {
        let events: Vec<Value> = self
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        for (seq, event) in events.iter().enumerate() {
            assert_eq!(
                (&event["v"], &event["seq"]),
                (&json!(1), &json!(seq)),
                "{event}"
            );
        }
        let last = events.last().map(|event| &event["event"]["state"]);
        assert_eq!(last, Some(&json!("summary")), "{self:#?}");
        events
    }

    /// States of a unit in order of time.
    pub(super) fn states(&self, unit: &str) -> Vec<String> {
        let events = self.events();
        let of_unit = events
            .iter()
            .filter(|event| event["unit"] == unit && event["event"]["type"] == "unit");
        of_unit
            .map(|event| event["event"]["state"].as_str().unwrap().to_owned())
            .collect()
    }

    /// States of the run in order of time.
    pub(super) fn run_states(&self) -> Vec<String> {
        let events = self.events();
        let of_run = events
            .iter()
            .filter(|event| event["event"]["type"] == "run");
        of_run
            .map(|event| event["event"]["state"].as_str().unwrap().to_owned())
            .collect()
    }

    /// The last line of the stream.
    pub(super) fn summary(&self) -> Value {
        self.events().pop().unwrap()["event"].take()
    }
}

/// True when no process with this id runs.
pub(super) fn gone(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    !stat.is_ok_and(|stat| !stat.contains(") Z "))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
