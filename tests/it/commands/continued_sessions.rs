//! Units that continue in their sessions: after a usage limit, and after the end of their engine.

use std::{
    fs::{self, File},
    io::Write as _,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::test_dir::{CommandOutput, TestDir, parse_json_events};

/// Steps that read the file of `docs-one` and write its page.
const WORK: &str = r#"
  { call = { tool = "read_raw_file", with = { path = "one.md" } } },
  { call = { tool = "record_verification_ledger", with = { summary = "Read it." } } },
  { call = { tool = "wiki_write", with = { key = "one", summary = "About one", content = "Text." } } },
"#;

/// What a continued session does: it only ends.
const CONTINUED: &str =
    "[[part]]\nprompt = \"Continue with the task\"\nsteps = [{ say = \"Done.\" }]\n";

/// A `claude` with a file for each session, as the real one. It does `steps` after [`WORK`].
fn claude(place: &TestDir, continued: &str, steps: &str) -> String {
    let script = format!(
        "[usd_per_million]\ninput = 1000.0\noutput = 1000.0\n{continued}[[part]]\nunit = \"docs-one\"\nsteps = [{WORK}{steps}]\n"
    );
    let script = place.write("script.toml", script);
    let exe = crate::support::program();
    let play = format!(
        r#"folder="$HOME/.claude/projects/$(pwd -P | tr -c 'A-Za-z0-9\n' '-')"
for word in "$@"; do case "$word" in
--session-id=*) mkdir -p "$folder"; : > "$folder/${{word#--session-id=}}.jsonl";;
esac; done
exec '{exe}' scripted-agent --script '{}' -- "$@""#,
        script.display()
    );
    place.claude(&play).display().to_string()
}

const LIMIT: &str = r#"
  { rate_limit = { status = "rejected", resets_in_s = 1 } },
  { api_error = { status = 429, error = "rate_limit", text = "You've hit your session limit", api_error = "usage_limit_reached" } },
"#;

fn run(place: &TestDir, claude: &str, more: &[&str]) -> CommandOutput {
    let args = ["run", "--no-reconcile", "--ui", "json", "--claude-bin"];
    place.run(&[&args[..], &[claude], more].concat())
}

fn project() -> TestDir {
    let place = TestDir::new();
    place.notes(&["one"]);
    place
}

/// The notes of a kind on the newest tape.
fn notes(place: &TestDir, kind: &str) -> Vec<Value> {
    let runs = fs::read_dir(place.path(".ktx/ingestdeck/runs")).unwrap();
    let mut tapes: Vec<PathBuf> = runs
        .map(|run| run.unwrap().path().join("tape.jsonl"))
        .collect();
    tapes.sort();
    let text = fs::read_to_string(tapes.pop().unwrap()).unwrap();
    let entries = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let notes = entries.map(|mut entry| entry["note"].take());
    notes.filter(|note| note["kind"] == kind).collect()
}

fn prompts(place: &TestDir) -> Vec<String> {
    let started = notes(place, "attempt_started").into_iter();
    let prompt = |note: Value| note["prompt"].as_str().unwrap().to_owned();
    started.map(prompt).collect()
}

fn why(place: &TestDir) -> String {
    let plan = place.run(&["plan", "--ui", "json", "--resume-run", "latest"]);
    let unit: Value = serde_json::from_str(plan.expect_success().trim()).unwrap();
    unit["why"].as_str().unwrap().to_owned()
}

/// A project whose engine was killed after the agent had written its page.
fn killed() -> TestDir {
    let place = project();
    let claude = claude(&place, CONTINUED, "\"hang\"");
    let mut running =
        place.start(place.command(&["run", "--ui", "lines", "--claude-bin", &claude]));
    running.wait_for("stdout", "✓ wiki_write one");
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end().code, None);
    #[cfg(target_os = "linux")]
    place.wait_until_no_process_left();
    place
}

#[test]
fn limited_unit_continues_and_the_summary_shows_savings() {
    let place = project();
    let claude = claude(&place, CONTINUED, LIMIT);
    let ran = run(&place, &claude, &["--step-budget", "7"]);
    let lines = parse_json_events(ran.expect_success());
    let summary = &lines.last().unwrap()["event"];
    assert_eq!(summary["units"], json!({"succeeded": 1}));
    assert_eq!(summary["continued"]["units"], 1);
    let [work] = &notes(&place, "continued")[..] else {
        panic!("one attempt continues: {ran:?}")
    };
    assert_eq!((&work["attempt"], &work["turns"]), (&json!(1), &json!(3)));
    assert_eq!(summary["continued"]["tokens"], work["tokens"]);
    let prompts = prompts(&place);
    assert_eq!((prompts.len(), &*prompts[1]), (2, "Continue with the task"));
    assert_eq!(notes(&place, "attempt_started")[1]["step_budget"], 4);
    assert!(place.path("wiki/global/one.md").is_file());
    let shown = place.run(&["runs", "show"]);
    let line = "1 unit continued in the session: saved about ";
    assert!(shown.expect_success().contains(line), "{shown:?}");
    let replayed = place.run(&["replay", "latest", "--ui", "json"]);
    assert_eq!(replayed.expect_success(), ran.stdout);
}

#[test]
fn limit_right_after_a_continuation_loses_nothing() {
    let place = project();
    let again = format!(
        "[[part]]\nprompt = \"Continue with the task\"\nsteps = [{}]\n",
        LIMIT.replace("resets_in_s = 1", "resets_in_s = 0")
    );
    let stop = claude(&place, &again, LIMIT);
    let args = [
        "run",
        "--no-reconcile",
        "--ui",
        "lines",
        "--claude-bin",
        &stop,
    ];
    let mut running = place.start(place.command(&args));
    running.wait_for("stdout", "continues attempt 2");
    claude(&place, CONTINUED, LIMIT);
    running.end().expect_success();
    let notes = notes(&place, "continued");
    let turns = notes.iter().map(|note| note["turns"].as_u64().unwrap());
    assert!(notes.len() >= 2 && turns.clone().all(|turns| turns == 3));
    assert!(place.path("wiki/global/one.md").is_file());
}

#[test]
fn unit_of_a_killed_engine_continues_with_its_changes() {
    let place = killed();
    assert!(why(&place).ends_with("; continues in its session"));
    let claude = claude(&place, CONTINUED, "");
    let ran = run(&place, &claude, &["--resume-run", "latest"]);
    let lines = parse_json_events(ran.expect_success());
    assert_eq!(
        lines.last().unwrap()["event"]["units"],
        json!({"succeeded": 1})
    );
    assert_eq!(prompts(&place), ["Continue with the task"]);
    let work = &notes(&place, "continued")[0];
    assert!(work["run"].is_string() && work["turns"] == 3, "{work}");
    assert!(place.path("wiki/global/one.md").is_file());
}

#[test]
fn deleted_session_or_setting_begins_from_the_start() {
    let place = killed();
    let never = place.path("never");
    let mut command = place.command(&["plan", "--ui", "json", "--resume-run", "latest"]);
    command.env("INGESTDECK_INGEST_CONTINUE", "never");
    let plan = place.ran(command);
    assert!(!plan.expect_success().contains("continues"), "{plan:?}");
    assert!(!never.exists() && why(&place).contains("continues"));
    fs::remove_dir_all(place.path("../home/.claude")).unwrap();
    assert!(!why(&place).contains("continues"));
    let claude = claude(&place, CONTINUED, "");
    let ran = run(&place, &claude, &["--resume-run", "latest"]);
    parse_json_events(ran.expect_success());
    assert!(prompts(&place)[0].contains("## WorkUnit: docs-one"));
    assert_eq!(notes(&place, "continued"), [] as [Value; 0]);
}

#[test]
fn changed_project_begins_from_the_start() {
    let place = killed();
    let page = "---\nsummary: mine\n---\n\nMine.\n";
    place.write("wiki/global/one.md", page);
    let claude = claude(&place, CONTINUED, "");
    let ran = run(&place, &claude, &["--resume-run", "latest"]);
    let lines = parse_json_events(ran.expect_success());
    let messages: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["event"]["text"].as_str())
        .collect();
    let restarted = "wiki_write has another answer now: the attempt begins from the start";
    assert!(
        messages.iter().any(|text| text.contains(restarted)),
        "{messages:?}"
    );
    assert!(prompts(&place)[0].contains("## WorkUnit: docs-one"));
    place.write("notes/one.md", "# one, revised\n");
    assert!(!why(&place).contains("continues"));
}

/// The only session file of the project, open for appending.
fn session_file(place: &TestDir) -> File {
    let projects = place.path("../home/.claude/projects");
    let folder = fs::read_dir(projects).unwrap().next().unwrap().unwrap();
    let mut files = fs::read_dir(folder.path()).unwrap();
    let file = files.next().unwrap().unwrap().path();
    File::options().append(true).open(file).unwrap()
}

#[test]
fn session_that_a_person_continued_begins_from_the_start() {
    let place = killed();
    assert!(why(&place).contains("continues"));
    let later = SystemTime::now() + Duration::from_secs(600);
    session_file(&place).set_modified(later).unwrap();
    assert!(!why(&place).contains("continues"));

    let place = project();
    let limited = claude(
        &place,
        CONTINUED,
        &LIMIT.replace("resets_in_s = 1", "resets_in_s = 5"),
    );
    let args = ["run", "--no-reconcile", "--ui", "lines", "--claude-bin"];
    let mut running = place.start(place.command(&[&args[..], &[&limited]].concat()));
    running.wait_for("stdout", "You've hit your session limit");
    writeln!(session_file(&place), "{{}}").unwrap();
    claude(&place, CONTINUED, "");
    let ended = running.end();
    let changed = "the file of the session has changed since the session was cut: a new session";
    assert!(ended.expect_success().contains(changed), "{ended:?}");
    assert_eq!(notes(&place, "continued"), [] as [Value; 0]);
}
