//! Units on workers over SSH: an `ssh` that starts the worker on this machine.

use std::{collections::BTreeMap, fs, path::PathBuf, process::Command, time::Instant};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use super::{
    end_to_end::{git, orchard_project, writes},
    test_dir::{CommandOutput, DEADLINE, TestDir, parse_json_events, tape},
};
use crate::support::{LOCAL_SSH, program};

/// Units of the orchard project, with the file and the page of each.
pub(super) const UNITS: [(&str, &str); 4] = [
    ("docs-crates", "crates.md"),
    ("docs-growers", "growers.md"),
    ("docs-juice", "juice.md"),
    ("docs-payments", "payments.md"),
];

/// A project whose units each write a page, slowly enough to be interrupted.
pub(super) fn project() -> TestDir {
    let place = orchard_project();
    let parts: String = UNITS
        .iter()
        .map(|(unit, file)| writes(unit, file, &unit[5..], "As it has it."))
        .collect();
    place.write(
        "script.toml",
        format!("[pace]\nmessage_ms = 40\nchunk_ms = 1\n{parts}"),
    );
    place.script("ssh", LOCAL_SSH);
    place_nats_server(&place);
    place
}

/// Puts the nats-server of the tests on the `PATH` of the project.
fn place_nats_server(place: &TestDir) {
    if let Some(server) = std::env::var_os("INGESTDECK_TEST_NATS") {
        let body = format!("exec '{}' \"$@\"", PathBuf::from(server).display());
        place.script("nats-server", &body);
    }
}

/// A `claude` of the account `name` that plays `script` of the project.
pub(super) fn claude_of(place: &TestDir, name: &str, script: &str) -> PathBuf {
    let body = format!(
        r#"case "$1" in
--version) echo "2.1.330 (Claude Code)"; exit 0;;
auth) echo '{{"loggedIn":true,"authMethod":"claude.ai","email":"{name}@example.com"}}'; exit 0;;
esac
exec '{}' scripted-agent --script '{}' -- "$@""#,
        program(),
        place.path(script).display()
    );
    place.script(&format!("claude-{name}"), &body)
}

/// The URL of a worker that uses `claude`.
fn worker(place: &TestDir, name: &str, claude: &std::path::Path, slots: u32) -> String {
    let body = format!(
        "exec '{}' --claude-bin '{}' \"$@\"",
        program(),
        claude.display()
    );
    format!(
        "ssh://{name}?slots={slots}&program={}",
        place.script(name, &body).display()
    )
}

pub(super) fn run_command(place: &TestDir, args: &[&str]) -> Command {
    let mut command = place.command(&["--ui", "json", "run", "--no-reconcile"]);
    if !args.contains(&"--concurrency") {
        command.args(["--concurrency", "0"]);
    }
    command.args(args);
    let bin = place.temporary().parent().unwrap().join("bin");
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    command
}

/// The notes of a kind on the tape.
pub(super) fn notes(place: &TestDir, kind: &str) -> Vec<Value> {
    let text = fs::read_to_string(tape(&place.path(""))).unwrap();
    let entries = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    entries
        .filter(|entry| entry["note"]["kind"] == kind)
        .collect()
}

/// Every unit succeeded once, its patch was integrated once, and all pages are in one commit.
pub(super) fn assert_complete(place: &TestDir, output: &CommandOutput) {
    assert_eq!(output.code, Some(0), "{output:?}");
    let last = parse_json_events(&output.stdout).pop().unwrap();
    assert_eq!(last["event"]["units"]["succeeded"], 4, "{last}");
    assert_eq!(git(place, &["rev-list", "--count", "HEAD"]).trim(), "2");
    let integrated = notes(place, "patch_integrated");
    for (unit, _) in UNITS {
        assert!(
            place
                .path(&format!("wiki/global/{}.md", &unit[5..]))
                .is_file(),
            "{unit}"
        );
        assert_eq!(
            integrated
                .iter()
                .filter(|entry| entry["unit"] == unit)
                .count(),
            1,
            "{unit}"
        );
    }
}

/// The events of the last attempt of each unit, without what differs between any two runs.
pub(super) fn last_attempts(output: &CommandOutput) -> BTreeMap<String, Vec<String>> {
    let mut attempts: BTreeMap<String, (u64, Vec<String>)> = BTreeMap::new();
    for line in parse_json_events(&output.stdout) {
        let (Some(unit), Some(attempt)) = (line["unit"].as_str(), line["try"].as_u64()) else {
            continue;
        };
        let known = attempts.entry(unit.to_owned()).or_default();
        if known.0 != attempt {
            *known = (attempt, Vec::new());
        }
        let mut event = line["event"].clone();
        mask(&mut event);
        known.1.push(event.to_string());
    }
    attempts
        .into_iter()
        .map(|(unit, (_, events))| (unit, events))
        .collect()
}

/// Replaces ids and directories.
fn mask(value: &mut Value) {
    match value {
        Value::String(text)
            if ["toolu_", "msg_"]
                .iter()
                .any(|prefix| text.starts_with(prefix))
                || uuid::Uuid::parse_str(text).is_ok() =>
        {
            *text = "ID".to_owned();
        }
        Value::Array(values) => values.iter_mut().for_each(mask),
        Value::Object(map) => {
            for (key, value) in map {
                match key.as_str() {
                    "cwd" => *value = Value::Null,
                    _ => mask(value),
                }
            }
        }
        _ => {}
    }
}

/// Processes of workers: their ids.
pub(super) fn worker_processes(place: &TestDir) -> Vec<i32> {
    let root = place
        .temporary()
        .parent()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_worker = |pid: &i32| {
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.contains(&root)
            && words.split('\0').any(|word| word == "worker")
            && words.starts_with(program())
    };
    pids.filter_map(|pid| pid.parse().ok())
        .filter(is_worker)
        .collect()
}

/// Waits until the tape has this many lines.
pub(super) fn wait_for_lines(place: &TestDir, count: usize) {
    let deadline = Instant::now() + DEADLINE;
    let runs = place.path(".ktx/ingestdeck/runs");
    let lines = || {
        let run = fs::read_dir(&runs).ok()?.next()?.ok()?;
        Some(
            fs::read_to_string(run.path().join("tape.jsonl"))
                .ok()?
                .lines()
                .count(),
        )
    };
    while lines().unwrap_or_default() < count {
        assert!(Instant::now() < deadline, "the tape does not grow");
        crate::support::pause_before_check();
    }
}

#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn units_run_on_workers_only() {
    let place = project();
    let claude = claude_of(&place, "ann", "script.toml");
    let (one, two) = (
        worker(&place, "build-1", &claude, 1),
        worker(&place, "build-2", &claude, 2),
    );
    let output = place.ran(run_command(&place, &["--worker", &one, "--worker", &two]));
    assert_complete(&place, &output);
    let joined = notes(&place, "worker_joined");
    assert_eq!(joined.len(), 2);
    assert!(
        joined
            .iter()
            .all(|entry| entry["note"]["account"] == "ann@example.com"),
        "{joined:?}"
    );
    let used: Vec<String> = notes(&place, "attempt_started")
        .iter()
        .map(|entry| entry["note"]["worker"].to_string())
        .collect();
    assert!(
        used.iter().all(|worker| worker.starts_with("\"build-")),
        "{used:?}"
    );
    assert!(
        used.iter().any(|worker| *worker != used[0]),
        "both are used: {used:?}"
    );
    place.wait_until_no_process_left();
    let left: Vec<_> = fs::read_dir(place.temporary()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    // The transcript is where that of a local attempt is.
    let ended = notes(&place, "attempt_ended");
    for entry in &ended {
        let path = entry["note"]["work"]["transcript"].as_str().unwrap();
        assert!(
            fs::read_to_string(place.path(path))
                .unwrap()
                .contains("wiki_write"),
            "{path}"
        );
    }
}

/// The result of the units of [`project`] without workers.
pub(super) fn local_result() -> (BTreeMap<String, Vec<String>>, String) {
    let place = project();
    let claude = claude_of(&place, "ann", "script.toml");
    let mut command = run_command(&place, &["--concurrency", "2"]);
    command.arg("--claude-bin").arg(&claude);
    let output = place.ran(command);
    assert_complete(&place, &output);
    (
        last_attempts(&output),
        git(&place, &["rev-parse", "HEAD:wiki"]),
    )
}

#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn remote_and_local_runs_agree() {
    let place = project();
    let claude = claude_of(&place, "ann", "script.toml");
    let (one, two) = (
        worker(&place, "build-1", &claude, 1),
        worker(&place, "build-2", &claude, 1),
    );
    let output = place.ran(run_command(&place, &["--worker", &one, "--worker", &two]));
    let (events, pages) = local_result();
    assert!(
        events.values().all(|events| events.len() > 3),
        "{events:#?}"
    );
    assert_eq!(last_attempts(&output), events);
    assert_eq!(git(&place, &["rev-parse", "HEAD:wiki"]), pages);
}

#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn killed_workers_lose_no_unit() {
    let (events, pages) = local_result();
    for lines in [8, 30, 45, 60, 75, 90] {
        let place = project();
        let claude = claude_of(&place, "ann", "script.toml");
        let (one, two) = (
            worker(&place, "build-1", &claude, 1),
            worker(&place, "build-2", &claude, 1),
        );
        let running = place.start(run_command(&place, &["--worker", &one, "--worker", &two]));
        wait_for_lines(&place, lines);
        if let Some(pid) = worker_processes(&place).first() {
            // It may have ended meanwhile.
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        let output = running.end();
        assert_complete(&place, &output);
        assert_eq!(last_attempts(&output), events);
        assert_eq!(git(&place, &["rev-parse", "HEAD:wiki"]), pages);
        place.wait_until_no_process_left();
    }
}

/// A session that has spent its usage window for an hour.
const USAGE_LIMIT: &str = "[[part]]\nsteps = [{ rate_limit = { status = \"rejected\", resets_in_s = 3600 } }, { api_error = { status = 429, error = \"rate_limit\", text = \"You've hit your session limit\", api_error = \"usage_limit_reached\" } }]\n";

/// One account hits its limit; the units of its worker go to the other one, and the run does not wait for the reset.
#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn spent_account_pauses_only_its_workers() {
    let place = project();
    place.write("limit.toml", USAGE_LIMIT);
    let (spent, rich) = (
        claude_of(&place, "spent", "limit.toml"),
        claude_of(&place, "rich", "script.toml"),
    );
    let (one, two) = (
        worker(&place, "a-spent", &spent, 1),
        worker(&place, "b-rich", &rich, 1),
    );
    let output = place.ran(run_command(&place, &["--worker", &one, "--worker", &two]));
    assert_complete(&place, &output);
    assert_eq!(
        notes(&place, "limit_paused").len(),
        0,
        "the run does not wait"
    );
    let ended = notes(&place, "attempt_ended");
    let limited: Vec<_> = ended
        .iter()
        .filter(|entry| entry["note"]["verdict"]["outcome"] == "failed")
        .collect();
    assert_eq!(limited.len(), 1, "{limited:?}");
    let retries = notes(&place, "retry_scheduled");
    assert_eq!(
        (retries.len(), &retries[0]["note"]["delay_ms"]),
        (1, &0.into())
    );
}

/// A `claude` whose starts are refused while `condition` of a shell holds, and that plays the script otherwise.
fn refusing_claude(place: &TestDir, condition: &str) -> PathBuf {
    let well = claude_of(place, "well", "script.toml");
    let body = format!(
        r#"case "$1" in
--version|auth) exec '{well}' "$@";;
esac
if {condition}; then
  echo 'Configuration error in /h/.claude.json: Unexpected EOF' >&2
  exit 1
fi
exec '{well}' "$@""#,
        well = well.display()
    );
    place.script("claude-refusing", &body)
}

/// Texts of the messages on the tape.
fn message_texts(place: &TestDir) -> Vec<String> {
    let text = |entry: &Value| {
        entry["note"]["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    notes(place, "said").iter().map(text).collect()
}

/// The program of the only machine does not start; it is tried once more before the run ends.
#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn worker_whose_agent_refuses_twice_is_drained() {
    let place = project();
    let worker = worker(&place, "a-broken", &refusing_claude(&place, "true"), 2);
    let output = place.ran(run_command(&place, &["--worker", &worker]));
    let drained = notes(&place, "worker_drained");
    assert_eq!(drained.len(), 1, "{drained:?}");
    assert_eq!(drained[0]["note"]["worker"], "a-broken");
    let named = "worker a-broken: Claude Code did not start: /h/.claude.json is not valid JSON";
    let messages = message_texts(&place);
    assert!(
        messages
            .iter()
            .any(|text| text.contains(named) && text.contains("nothing more starts")),
        "{messages:?}"
    );
    let ended = notes(&place, "run_ended");
    let remedy = notes(&place, "attempt_ended")[0]["note"]["verdict"]["remedy"].clone();
    assert!(
        remedy
            .as_str()
            .unwrap()
            .starts_with("on worker a-broken: correct its JSON"),
        "{remedy}"
    );
    assert_eq!(ended[0]["note"]["outcome"], "limit", "{ended:?}");
    assert_eq!(
        ended[0]["note"]["failed"],
        0,
        "{ended:?}\n{:?}",
        notes(&place, "attempt_ended")
    );
    assert_eq!(output.code, Some(102), "{output:?}");
}

/// Another process of Claude Code was writing the settings, so the first starts were refused.
#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn worker_whose_agent_refuses_once_keeps_its_units() {
    let place = project();
    let first = place.path("refused");
    let claude = refusing_claude(&place, &format!("mkdir '{}' 2>/dev/null", first.display()));
    let worker = worker(&place, "a-writing", &claude, 1);
    let output = place.ran(run_command(&place, &["--worker", &worker]));
    assert_complete(&place, &output);
    assert_eq!(notes(&place, "worker_drained").len(), 0);
    let causes: Vec<_> = notes(&place, "attempt_ended")
        .iter()
        .map(|entry| entry["note"]["verdict"]["cause"].clone())
        .collect();
    assert!(
        causes.contains(&"worker_lost".into()) && !causes.contains(&"start_failed".into()),
        "{causes:?}"
    );
}

/// The account of the engine's own machine hits its limit: the worker has another one and continues.
#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn spent_account_of_this_machine_leaves_units_to_workers() {
    let place = project();
    place.write("limit.toml", USAGE_LIMIT);
    let (spent, rich) = (
        claude_of(&place, "spent", "limit.toml"),
        claude_of(&place, "rich", "script.toml"),
    );
    let worker = worker(&place, "b-rich", &rich, 1);
    // The limit is hit after the worker has joined.
    let wait = wait_for_note(&place, "worker_joined");
    let body = format!(
        "case \"$1\" in -p) {wait};; esac\nexec '{}' \"$@\"",
        spent.display()
    );
    let mut command = run_command(&place, &["--worker", &worker, "--concurrency", "1"]);
    command
        .arg("--claude-bin")
        .arg(place.script("claude-waiting", &body));
    assert_complete(&place, &place.ran(command));
    assert_eq!(
        notes(&place, "limit_paused").len(),
        0,
        "the run does not wait"
    );
}

/// A shell command that ends when the tape has a note of this kind.
fn wait_for_note(place: &TestDir, kind: &str) -> String {
    format!(
        "until grep -qs {kind} '{}'/*/tape.jsonl; do sleep 0.05; done",
        place.path(".ktx/ingestdeck/runs").display()
    )
}

/// The run waits for the limit of this machine's account until a worker with another account joins.
#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn worker_that_joins_ends_the_wait_for_a_limit() {
    let place = project();
    place.write("limit.toml", USAGE_LIMIT);
    let (spent, rich) = (
        claude_of(&place, "spent", "limit.toml"),
        claude_of(&place, "rich", "script.toml"),
    );
    let wait = wait_for_note(&place, "limit_paused");
    let body = format!(
        "{wait}\nexec '{}' --claude-bin '{}' \"$@\"",
        program(),
        rich.display()
    );
    let worker = format!(
        "ssh://late?program={}",
        place.script("late", &body).display()
    );
    let mut command = run_command(&place, &["--worker", &worker, "--concurrency", "1"]);
    command.arg("--claude-bin").arg(&spent);
    assert_complete(&place, &place.ran(command));
    assert_eq!(
        (
            notes(&place, "limit_paused").len(),
            notes(&place, "limit_lifted").len()
        ),
        (1, 1)
    );
}

/// A program that knows no sessions: another version.
fn other_version(place: &TestDir) -> String {
    let join = r#"{"protocol":4,"program":"0.0.1","agent_release":"2.1.330","host":"h","slots":1,"account":"a","clock_ms":0}"#;
    let body = format!(
        "case \"$*\" in *--describe*) echo '{join}';; *) echo \"error: unexpected argument '--session' found\" >&2; exit 2;; esac"
    );
    format!(
        "ssh://other?program={}",
        place.script("other-version", &body).display()
    )
}

/// The run ended like a limit because of `reason`.
fn assert_ended_without_workers(place: &TestDir, output: &CommandOutput, reason: &str) {
    assert_eq!(output.code, Some(102), "{output:?}");
    let messages = notes(place, "said");
    assert!(
        messages
            .iter()
            .any(|entry| entry["note"]["text"].as_str().unwrap().contains(reason)),
        "{messages:?}"
    );
    let summary = parse_json_events(&output.stdout).pop().unwrap();
    assert_eq!(
        summary["event"]["units"]["succeeded"],
        Value::Null,
        "{summary}"
    );
}

/// Connections are refused for a while.
#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn run_waits_while_all_workers_are_away() {
    let place = project();
    let claude = claude_of(&place, "ann", "script.toml");
    let [one, two] = ["build-1", "build-2"].map(|name| worker(&place, name, &claude, 1));
    place.script(
        "ssh",
        "echo 'ssh: connect to host build: Connection refused' >&2; exit 255",
    );
    let running = place.start(run_command(&place, &["--worker", &one, "--worker", &two]));
    wait_for_lines(&place, 2);
    let deadline = Instant::now() + DEADLINE;
    while notes(&place, "workers_awaited").is_empty() {
        assert!(
            Instant::now() < deadline,
            "the run does not wait for workers"
        );
        crate::support::pause_before_check();
    }
    let status: Value =
        serde_json::from_str(&place.run(&["ctl", "status", "--json"]).stdout).unwrap();
    assert!(status["waiting_for_workers"]["since"].is_u64(), "{status}");
    let status = place.run(&["ctl", "status"]).stdout;
    assert!(status.contains("waiting for workers since "), "{status}");
    place.script("ssh", LOCAL_SSH);
    let output = running.end();
    assert_complete(&place, &output);
    assert!(output.stdout.contains("waiting_for_workers"), "{output:?}");
    assert_eq!(notes(&place, "worker_wait_ended").len(), 1);
    let ended = notes(&place, "attempt_ended");
    let causes = ended
        .iter()
        .map(|entry| entry["note"]["verdict"]["cause"].as_str().unwrap());
    assert!(
        causes
            .into_iter()
            .all(|cause| ["completed", "worker_lost"].contains(&cause)),
        "{ended:?}"
    );
    place.wait_until_no_process_left();
}

#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn wait_for_workers_has_an_end_and_is_resumed() {
    let place = project();
    let claude = claude_of(&place, "ann", "script.toml");
    let worker = worker(&place, "build-1", &claude, 1);
    place.script(
        "ssh",
        "echo 'ssh: connect to host build-1: Connection refused' >&2; exit 255",
    );
    let mut command = run_command(&place, &["--worker", &worker]);
    command.env("INGESTDECK_INGEST_WORKER_WAIT", "1s");
    let output = place.ran(command);
    assert_ended_without_workers(
        &place,
        &output,
        "no worker has come for 1s; `worker_wait` in [ingest]",
    );
    assert_eq!(notes(&place, "attempt_ended"), [] as [Value; 0]);
    place.script("ssh", LOCAL_SSH);
    let run = tape(&place.path(""))
        .parent()
        .unwrap()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let resumed = place.ran(run_command(
        &place,
        &["--worker", &worker, "--resume-run", &run],
    ));
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
}

#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn unusable_workers_are_named_with_the_remedy() {
    let place = project();
    let other_version = other_version(&place);
    let missing = "ssh://build-1?program=/nowhere/ingestdeck".to_owned();
    let logged_out = place.script(
        "claude-out",
        "case \"$1\" in --version) echo '2.1.330 (Claude Code)';; auth) echo '{\"loggedIn\":false}';; esac",
    );
    let logged_out = worker(&place, "out", &logged_out, 1);
    let noise = format!(
        "ssh://noise?program={}",
        place
            .script("noise", "echo 'Welcome to build-7'; cat >/dev/null")
            .display()
    );
    let cases = [
        (other_version.clone(), "install the same version there"),
        (missing, "is not installed there"),
        (logged_out, "not logged in"),
        (noise, "Welcome to build-7"),
    ];
    for (worker, reason) in cases {
        let mut command = place.command(&["doctor", "--worker", &worker]);
        let bin = place.temporary().parent().unwrap().join("bin");
        command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        let output = place.ran(command);
        assert_eq!(output.code, Some(96), "{output:?}");
        assert!(output.stdout.contains(reason), "{reason}: {output:?}");
    }
    // A run that can use none of its workers ends with the reason.
    let output = place.ran(run_command(&place, &["--worker", &other_version]));
    assert_ended_without_workers(&place, &output, "no worker is left");
    let messages = notes(&place, "said");
    assert!(
        messages.iter().any(|entry| entry["note"]["text"]
            .as_str()
            .unwrap()
            .contains("same version")),
        "{messages:?}"
    );
}

/// An agent on a worker that never ends by itself cannot keep the run from ending.
#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn hanging_agent_of_a_worker_does_not_survive_a_stop() {
    let place = project();
    place.write(
        "hangs.toml",
        "[[part]]\nsteps = [{ say = \"Wait.\" }, \"hang\"]\n",
    );
    let hangs = claude_of(&place, "hangs", "hangs.toml");
    let worker = worker(&place, "slow", &hangs, 1);
    let running = place.start(run_command(&place, &["--worker", &worker]));
    wait_for_lines(&place, 12);
    running.signal(Signal::SIGTERM);
    let output = running.end();
    assert_eq!(output.code, Some(143), "{output:?}");
    assert!(!notes(&place, "attempt_ended").is_empty(), "{output:?}");
    place.wait_until_no_process_left();
}

/// The run ends with the reason if the only worker may start nothing.
#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn run_without_a_usable_worker_ends() {
    let place = project();
    let (place, worker) = {
        let settings = fs::read_to_string(place.path("ktx.yaml")).unwrap();
        let database = settings.replace(
            "connections:\n",
            "connections:\n  db: {driver: sqlite, path: x.db}\n",
        );
        place.write("ktx.yaml", database);
        place.write("x.db", "");
        git(&place, &["add", "--all"]);
        git(&place, &["commit", "--quiet", "--message=Database"]);
        let claude = claude_of(&place, "ann", "script.toml");
        let worker = worker(&place, "build-1", &claude, 1);
        (place, worker)
    };
    let output = place.ran(run_command(&place, &["orchard", "--worker", &worker]));
    assert_ended_without_workers(&place, &output, "ingest.allow_paths");
}

/// A text needs no raw file, and each is saved before the next one starts.
#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn texts_run_on_a_worker() {
    let place = project();
    let page = |key: &str, pages: &str| {
        format!(
            "[[part]]\nprompt = \"The {key} rule\"\nsteps = [{{ call = {{ tool = \"wiki_write\", with = {{ key = \"{key}\", summary = \"S\", content = \"{pages}\" }} }} }}, {{ say = \"Done.\" }}]\n"
        )
    };
    place.write(
        "texts.toml",
        page("first", "One.") + &page("second", "Two, after [[first]]."),
    );
    let claude = claude_of(&place, "ann", "texts.toml");
    let worker = worker(&place, "build-1", &claude, 4);
    let mut command = place.command(&[
        "--ui",
        "json",
        "run",
        "--concurrency",
        "0",
        "--worker",
        &worker,
    ]);
    command.args(["--text", "The first rule.", "--text", "The second rule."]);
    let bin = place.temporary().parent().unwrap().join("bin");
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    let output = place.ran(command);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(
        git(&place, &["rev-list", "--count", "HEAD"]).trim(),
        "3",
        "one commit for each text"
    );
    assert!(
        fs::read_to_string(place.path("wiki/global/second.md"))
            .unwrap()
            .contains("Two, after"),
        "{output:?}"
    );
    let used = notes(&place, "attempt_started");
    assert!(
        used.iter()
            .all(|entry| entry["note"]["worker"] == "build-1"),
        "{used:?}"
    );
}

/// A worker answers queries about a database that its own settings allow.
#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn database_of_a_worker_is_queried() {
    let place = project();
    let settings = fs::read_to_string(place.path("ktx.yaml")).unwrap();
    let data = place.temporary().parent().unwrap().join("data");
    fs::create_dir(&data).unwrap();
    let path = data.join("shop.db");
    let more = format!(
        "connections:\n  shop: {{driver: sqlite, path: {}}}\n",
        path.display()
    );
    place.write("ktx.yaml", settings.replace("connections:\n", &more));
    git(
        &place,
        &["commit", "--quiet", "--all", "--message=Database"],
    );
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch("CREATE TABLE t (n); INSERT INTO t VALUES (1234)")
        .unwrap();
    place.write(
        "../home/.config/ingestdeck/config.toml",
        format!("[ingest]\nallow_paths = [\"{}\"]\n", data.display()),
    );
    place.write("query.toml", "[[part]]\nsteps = [{ call = { tool = \"sql_execution\", with = { connectionId = \"shop\", sql = \"SELECT n FROM t\" } } }, { say = \"Done.\" }]\n");
    let settings = fs::read(place.path("../home/.config/ingestdeck/config.toml")).unwrap();
    let home = place.path("../home-of-worker");
    fs::create_dir_all(home.join(".config/ingestdeck")).unwrap();
    fs::write(home.join(".config/ingestdeck/config.toml"), settings).unwrap();
    let claude = claude_of(&place, "ann", "query.toml");
    let body = format!(
        "HOME='{}' exec '{}' --claude-bin '{}' \"$@\"",
        home.display(),
        program(),
        claude.display()
    );
    let worker = format!(
        "ssh://build-1?program={}",
        place.script("build-1", &body).display()
    );
    let output = place.ran(run_command(
        &place,
        &["orchard", "--only", "docs-juice", "--worker", &worker],
    ));
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.contains("| 1234 |"), "{output:?}");
    assert_eq!(
        notes(&place, "attempt_started")[0]["note"]["worker"],
        "build-1"
    );
}

#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn workers_are_listed_drained_and_stopped() {
    let place = project();
    place.write(
        "hangs.toml",
        "[[part]]\nsteps = [{ say = \"Wait.\" }, \"hang\"]\n",
    );
    let (slow, quick) = (
        claude_of(&place, "slow", "hangs.toml"),
        claude_of(&place, "quick", "script.toml"),
    );
    let (one, two) = (
        worker(&place, "a-slow", &slow, 1),
        worker(&place, "b-quick", &quick, 1),
    );
    let running = place.start(run_command(&place, &["--worker", &one, "--worker", &two]));
    let deadline = Instant::now() + DEADLINE;
    let listed = loop {
        let output = place.run(&["ctl", "workers", "--json"]);
        let workers: Vec<Value> = output
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        if workers.len() == 2
            && workers[0]["units"]
                .as_array()
                .is_some_and(|units| !units.is_empty())
        {
            break workers;
        }
        assert!(Instant::now() < deadline, "{workers:?}");
        crate::support::pause_before_check();
    };
    assert_eq!(listed[0]["worker"], "a-slow");
    assert_eq!(listed[0]["account"], "slow@example.com");
    assert!(
        place
            .run(&["ctl", "drain-worker", "unknown"])
            .stderr
            .contains("the run has no worker `unknown`")
    );
    place
        .run(&["ctl", "stop-worker", "a-slow", "--reason", "too slow"])
        .expect_success();
    assert_complete(&place, &running.end());
    let drained = notes(&place, "worker_drained");
    assert_eq!(
        (drained.len(), &drained[0]["note"]["worker"]),
        (1, &"a-slow".into())
    );
    let commands = notes(&place, "command");
    assert!(
        commands
            .iter()
            .any(|entry| entry["note"]["command"] == "stop_worker"),
        "{commands:?}"
    );
    place.wait_until_no_process_left();
}

#[test]
fn worker_addresses_are_checked_before_anything_starts() {
    let place = project();
    for (args, expected) in [
        (
            &["run", "--worker", "build-1"][..],
            "it does not begin with ssh://",
        ),
        (
            &["run", "--worker", "ssh://-oProxyCommand=id"],
            "the host is wrong",
        ),
        (&["run", "--concurrency", "0"], "--worker"),
        (&["run", "--nats", "http://host"], "nats://"),
        (&["worker"], "--nats"),
        (&["worker", "--describe", "--slots", "0"], "--slots"),
    ] {
        let output = place.run(args);
        assert_eq!(output.code, Some(2), "{args:?}: {output:?}");
        assert!(output.stderr.contains(expected), "{args:?}: {output:?}");
    }
    assert!(!place.path(".ktx/ingestdeck/runs").exists());
}

/// The engine and its worker wait for a review that no client reads.
#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
#[cfg(target_os = "linux")]
fn review_without_a_person_ends_and_keeps_its_decisions() {
    let place = project();
    let claude = claude_of(&place, "a", "script.toml");
    let url = worker(&place, "one", &claude, 2);
    let mut command = run_command(&place, &["--review", "--detach", "--worker", &url]);
    command.env("INGESTDECK_INGEST_REVIEW_IDLE_TIMEOUT", "6s");
    place.ran(command).expect_success();
    let local = claude.display().to_string();
    let review = |more: &[&str]| {
        place.run(&[&["review", "--ui", "json", "--claude-bin", &local], more].concat())
    };
    let began = Instant::now();
    while review(&["--list"]).code != Some(103) {
        assert!(
            began.elapsed() < DEADLINE,
            "the run does not wait for a review"
        );
    }
    assert_eq!(review(&["--reject", "*/juice.md"]).code, Some(103));
    place.wait_until_no_process_left();
    let messages = notes(&place, "said");
    let text = "the changes waited for a review for 6s without a screen";
    assert!(
        messages.iter().any(|entry| entry["note"]["text"]
            .as_str()
            .is_some_and(|it| it.starts_with(text))),
        "{messages:?}"
    );
    let decided = notes(&place, "review_decided");
    assert_eq!(decided.len(), 1, "{decided:?}");
    // The lock is free, and the decision counts.
    let saved = review(&["--accept", "*"]);
    assert_eq!(saved.code, Some(0), "{saved:?}");
    let has_page = |page: &str| place.path(&format!("wiki/global/{page}.md")).is_file();
    assert_eq!(
        UNITS.map(|(unit, _)| has_page(&unit[5..])),
        [true, true, false, true]
    );
}
