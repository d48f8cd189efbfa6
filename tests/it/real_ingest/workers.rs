//! The real CLI on two workers with different accounts.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use serde_json::json;

use super::test_project::{LIMIT, TestProject, asked_by, good_turns};
use crate::support::{
    LOCAL_SSH,
    api::{ApiTurn, FakeApi},
    program,
};
use ingestdeck_core::tape::{Note, note::VerdictCause};

const ONLY: [(&str, &str); 3] = [
    ("docs-crates", "crates.md"),
    ("docs-juice", "juice.md"),
    ("docs-growers", "growers.md"),
];

fn script(deck: &TestProject, name: &str, body: &str) -> PathBuf {
    let folder = deck.home.path().join("bin");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// The first account has spent its window for an hour: its unit moves to the other worker, and the run ends alone.
#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE and INGESTDECK_TEST_NATS"]
fn spent_account_leaves_its_units_to_the_other() {
    let deck = TestProject::new(ONLY.map(|(unit, file)| asked_by(unit, good_turns(unit, file))))
        .subscribed();
    let spent = FakeApi::start(ONLY.map(|(unit, _)| asked_by(unit, [ApiTurn::usage_limit(3_600)])));
    script(&deck, "ssh", LOCAL_SSH);
    let server = std::env::var("INGESTDECK_TEST_NATS").expect("the path of a nats-server");
    script(&deck, "nats-server", &format!("exec '{server}' \"$@\""));
    let exe = program();
    let one = format!(
        "export ANTHROPIC_BASE_URL='{}'\nexec '{exe}' \"$@\" --account spent",
        spent.url()
    );
    let (one, two) = (
        script(&deck, "one", &one),
        script(&deck, "two", &format!("exec '{exe}' \"$@\" --account rich")),
    );
    let url = |name: &str, program: &PathBuf| format!("ssh://{name}?program={}", program.display());
    let (one, two) = (url("a-spent", &one), url("b-rich", &two));
    let mut command = deck.command([
        "run",
        "--ui",
        "json",
        "--concurrency",
        "0",
        "--worker",
        &one,
        "--worker",
        &two,
    ]);
    command.args(ONLY.iter().flat_map(|(unit, _)| ["--only", unit]));
    let path = format!(
        "{}:{}",
        deck.home.path().join("bin").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let output = assert_cmd::Command::from_std(command)
        .env("PATH", path)
        .timeout(LIMIT)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let summary: serde_json::Value =
        serde_json::from_slice(output.stdout.rsplit(|byte| *byte == b'\n').nth(1).unwrap())
            .unwrap();
    assert_eq!(
        summary["event"]["units"],
        json!({"succeeded": 3}),
        "{summary}"
    );
    assert_eq!(deck.names("wiki/global").len(), 3);
    let notes = deck.notes();
    let limited = |note: &&Note| matches!(note, Note::AttemptEnded(ended) if matches!(ended.verdict.cause, VerdictCause::UsageLimit { .. }));
    assert_eq!(
        notes.iter().filter(limited).count(),
        1,
        "the spent account is tried once"
    );
    assert!(
        !notes
            .iter()
            .any(|note| matches!(note, Note::LimitPaused { .. })),
        "the run does not wait"
    );
    let workers: Vec<Option<String>> = deck
        .started()
        .into_iter()
        .map(|started| started.worker)
        .collect();
    assert_eq!(
        workers
            .iter()
            .filter(|worker| worker.as_deref() == Some("b-rich"))
            .count(),
        3,
        "{workers:?}"
    );
    assert!(deck.started().iter().all(|started| !started.scripted));
}
