//! Runs with too few file descriptors: units wait for each other instead of failing.

use std::process::Command;

use serde_json::Value;

use super::test_dir::{CommandOutput, TestDir, parse_json_events};

/// Runs the program with a soft and hard limit of `files` descriptors.
fn run_with(place: &TestDir, files: u32, args: &[&str]) -> CommandOutput {
    run_after(place, &format!("ulimit -n {files}"), args)
}

/// Runs the program from a shell after the commands `before`.
fn run_after(place: &TestDir, before: &str, args: &[&str]) -> CommandOutput {
    let program = place.command(args);
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("{before} && exec \"$0\" \"$@\"")]);
    command
        .arg(program.get_program())
        .args(program.get_args())
        .env_clear();
    command.envs(
        program
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    command.current_dir(program.get_current_dir().unwrap());
    place.ran(command)
}

fn project(place: &TestDir, units: usize) {
    let names: Vec<String> = (0..units).map(|unit| format!("unit-{unit}")).collect();
    place.notes(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let yaml = std::fs::read_to_string(place.path("ktx.yaml")).unwrap();
    place.write(
        "ktx.yaml",
        format!("{yaml}ingest: {{workUnits: {{maxConcurrency: {units}}}}}\n"),
    );
}

/// Units that hold their descriptors until all units of the run have been asked to start.
const SCRIPT: &str =
    "[[part]]\nsteps = [{ call = { tool = \"wiki_list_tags\", with = {} } }, { say = \"done\" }]";

#[test]
fn units_wait_for_file_descriptors_instead_of_failing() {
    let place = TestDir::new();
    project(&place, 8);
    let claude = place.scripted_claude(SCRIPT);
    let ran = run_with(
        &place,
        64,
        &[
            "run",
            "--ui",
            "json",
            "--claude-bin",
            claude.to_str().unwrap(),
        ],
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines = parse_json_events(&ran.stdout);
    assert_eq!(
        lines.last().unwrap()["event"]["units"],
        serde_json::json!({"succeeded": 8})
    );
    let is_waiting =
        |line: &Value| line["event"]["type"] == "unit" && line["event"]["state"] == "waiting";
    let is_throttled = |line: &Value| line.to_string().contains("the limit of open files");
    assert!(
        lines.iter().any(is_waiting) && lines.iter().any(is_throttled),
        "{ran:?}"
    );
}

#[test]
fn too_few_descriptors_for_one_unit_name_the_limit() {
    let place = TestDir::new();
    project(&place, 3);
    let claude = place.scripted_claude(SCRIPT);
    let ran = run_with(
        &place,
        25,
        &["run", "--claude-bin", claude.to_str().unwrap()],
    );
    assert!(ran.code == Some(100), "{ran:?}");
    assert!(
        ran.stdout.contains("too many open files") && ran.stdout.contains("raise `ulimit -n`"),
        "{ran:?}"
    );
    assert!(
        !ran.stdout.contains("make the directory writable"),
        "{ran:?}"
    );
}

#[test]
fn agent_has_the_file_limit_of_the_users_shell() {
    let place = TestDir::new();
    let seen = place.path("seen");
    let result =
        r#"{"type":"result","subtype":"success","is_error":false,"result":"hi","session_id":"s1"}"#;
    let script = format!(
        "echo \"$(ulimit -S -n) $(ulimit -H -n)\" > '{}'; echo '{result}'",
        seen.display()
    );
    let claude = place.claude(&script);
    let args = [
        "session",
        "--claude-bin",
        claude.to_str().unwrap(),
        "--",
        "hello",
    ];
    run_after(&place, "ulimit -S -n 200 && ulimit -H -n 512", &args).expect_success();
    assert_eq!(std::fs::read_to_string(seen).unwrap(), "200 512\n");
}
