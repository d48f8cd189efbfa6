//! Ends other than success, and their cost: budgets, invalid keys, killed processes.

use std::time::Duration;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;

use super::{
    all_gone,
    test_project::{TestProject, UNITS, all_good, asked_by, good_turns, ktx},
};
use crate::support::api::{ApiFault, ApiRoute, ApiTurn};

/// A model that calls tools for ever.
fn endless() -> ApiTurn {
    ApiTurn::blocks([ktx("wiki_list_tags", json!({}))])
}

/// An API that accepts every request and answers none.
fn silent() -> TestProject {
    TestProject::new([ApiRoute::any([ApiTurn::answer("").fault(ApiFault::Stall)])])
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}

/// Process ids of the agents, once that many have been started and have sent a request to the model.
fn pids(deck: &TestProject, count: usize) -> Vec<u32> {
    deck.api
        .wait_for_requests(count, super::test_project::LIMIT);
    deck.wait_for("the start of every agent", |deck| {
        let pids: Vec<u32> = deck
            .started()
            .iter()
            .filter_map(|started| started.pid)
            .collect();
        (pids.len() == count).then_some(pids)
    })
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn spent_budget_is_reported_but_not_a_failure() {
    let deck = TestProject::new([asked_by("docs-crates", [endless()])]);
    let run = deck.run("docs-crates", &["--step-budget", "2"]);
    assert_eq!(run.code, Some(0), "{run:#?}");
    let states = run.states("docs-crates");
    assert!(
        states.ends_with(&["budget".into(), "unchanged".into()]),
        "{states:?}"
    );
    assert_eq!(run.summary()["units"], json!({"budget": 1}));
    let lines = deck.play(&["replay", "latest", "--ui", "lines"]);
    assert!(lines.stdout.contains("budget"), "{lines:#?}");
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn run_over_budget_starts_no_more_units() {
    let deck = TestProject::new(all_good());
    let run = deck.run(
        "docs-{crates,juice,seasons}",
        &["--concurrency", "1", "--max-run-budget-usd", "0.0000001"],
    );
    assert_eq!(run.code, Some(102), "{run:#?}");
    assert_eq!(
        run.summary()["units"],
        json!({"succeeded": 1, "untried": 2}),
        "{run:#?}"
    );
    assert_eq!(deck.started().len(), 1);
    let lines = deck.play(&["replay", "latest", "--ui", "lines"]);
    assert!(
        lines.stdout.contains("budget of $0.00 is spent"),
        "{lines:#?}"
    );
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn bad_api_key_fails_all_units_quickly_with_a_remedy() {
    let deck = TestProject::new([ApiRoute::any([ApiTurn::unauthorized()])]);
    let run = deck.run("docs-{crates,juice}", &[]);
    assert_eq!(run.code, Some(96), "{run:#?}");
    assert_eq!(run.summary()["units"], json!({"failed": 2}), "{run:#?}");
    let ends = deck
        .entries()
        .into_iter()
        .map(|mut entry| entry["note"].take());
    let ends: Vec<_> = ends
        .filter(|note| note["kind"] == "attempt_ended")
        .collect();
    assert_eq!(ends.len(), 2, "a bad key is not retried");
    for end in ends {
        assert_eq!(end["verdict"]["cause"], "auth", "{end}");
        assert!(
            end["verdict"]["remedy"]
                .as_str()
                .is_some_and(|remedy| remedy.contains("/login")),
            "{end}"
        );
    }
    assert!(run.duration < Duration::from_secs(60), "{:?}", run.duration);
    let lines = deck.play(&["replay", "latest", "--ui", "lines"]);
    assert!(
        (lines.stdout + &lines.stderr).contains("/login"),
        "the output for people names the remedy, too"
    );
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn externally_killed_agent_is_a_crash_and_run_continues() {
    let deck = TestProject::new([
        asked_by("docs-crates", [ApiTurn::answer("").fault(ApiFault::Stall)]),
        asked_by("docs-juice", good_turns("docs-juice", "juice.md")),
    ]);
    let mut command = deck.command([
        "run",
        "--ui",
        "json",
        "--only",
        "docs-{crates,juice}",
        "--concurrency",
        "1",
    ]);
    let running = command.spawn().unwrap();
    let victims = pids(&deck, 1);
    signal(victims[0], Signal::SIGKILL);
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(100));
    let stdout = String::from_utf8(output.stdout).unwrap();
    let summary: serde_json::Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    assert_eq!(
        summary["event"]["units"],
        json!({"failed": 1, "succeeded": 1}),
        "{stdout}"
    );
    let reason = "Claude Code query returned no result message (ended by SIGKILL)";
    assert_eq!(
        summary["event"]["failed"],
        json!([{"unit": "docs-crates", "reason": reason}])
    );
    let crashed = deck
        .entries()
        .iter()
        .any(|entry| entry["note"]["verdict"]["cause"] == "crashed");
    assert!(crashed, "{stdout}");
    assert_eq!(deck.names("wiki/global"), ["page-docs-juice.md"]);
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn killed_program_leaves_no_agent_and_a_readable_tape() {
    let deck = silent();
    let mut running = deck
        .command(["run", "--ui", "none", "--concurrency", "2"])
        .spawn()
        .unwrap();
    let agents = pids(&deck, 2);
    running.kill().unwrap();
    running.wait().unwrap();
    all_gone(&deck, &agents);

    let shown = deck.play(&["runs", "show"]);
    assert!(
        shown.code == Some(0) && shown.stdout.contains("interrupted"),
        "{shown:#?}"
    );
    let listed = deck.play(&["runs", "list"]);
    assert!(listed.stdout.contains("interrupted"), "{listed:#?}");
    let replayed = deck.play(&["replay", "latest", "--ui", "json"]);
    assert!(
        replayed.states("dbt-all").contains(&"running".to_owned()),
        "{replayed:#?}"
    );
    assert_eq!(deck.names("wiki/global"), [] as [&str; 0]);
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn signals_end_the_run_and_are_recorded() {
    for (sent, code) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let deck = silent();
        let running = deck
            .command(["run", "--ui", "json", "--concurrency", "2"])
            .spawn()
            .unwrap();
        let agents = pids(&deck, 2);
        signal(running.id(), sent);
        let output = running.wait_with_output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(code),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        all_gone(&deck, &agents);
        let stdout = String::from_utf8(output.stdout).unwrap();
        let summary: serde_json::Value =
            serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
        assert_eq!(summary["event"]["outcome"], "stopped", "{stdout}");
        let units = &summary["event"]["units"];
        assert_eq!(units["stopped"], 2, "{units}");
        assert_eq!(
            units
                .as_object()
                .unwrap()
                .values()
                .filter_map(serde_json::Value::as_u64)
                .sum::<u64>(),
            UNITS.len() as u64
        );
    }
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn unit_whose_agent_only_answers_needs_a_person() {
    let deck = TestProject::new([
        asked_by("docs-crates", [ApiTurn::answer("ok")]),
        asked_by("docs-juice", good_turns("docs-juice", "juice.md")),
    ]);
    let run = deck.run("docs-{crates,juice}", &[]);
    assert_eq!(run.code, Some(100), "{run:#?}");
    assert_eq!(
        run.summary()["units"],
        json!({"failed": 1, "succeeded": 1}),
        "{run:#?}"
    );
    let ends: Vec<_> = deck
        .entries()
        .into_iter()
        .map(|mut entry| entry["note"].take())
        .collect();
    let end = ends
        .iter()
        .find(|note| note["verdict"]["cause"] == "nothing_done")
        .expect("a verdict");
    assert_eq!(end["work"]["unread"], json!([{"path": "crates.md"}]));
    let asked = deck
        .api
        .requests()
        .iter()
        .filter(|request| request.json().to_string().contains("You have not read"))
        .count();
    assert_eq!(asked, 1, "one question, in the same session");
    assert_eq!(deck.names("wiki/global"), ["page-docs-juice.md"]);

    let plan = deck.play(&["plan", "--ui", "json", "--only", "docs-{crates,juice}"]);
    assert!(
        plan.stdout.contains(r#""why":"failed last time""#),
        "{plan:#?}"
    );
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn idle_unit_is_retried_with_feedback_in_its_session() {
    let feedback = "Read crates.md before you answer.";
    let juice = [ApiTurn::answer("").fault(ApiFault::Stall)]
        .into_iter()
        .chain(good_turns("docs-juice", "juice.md"));
    let deck = TestProject::new([
        ApiRoute::on(feedback, good_turns("docs-crates", "crates.md")),
        asked_by("docs-crates", [ApiTurn::answer("ok")]),
        asked_by("docs-juice", juice),
    ]);
    let only = "docs-{crates,juice}";
    let mut command = deck.command(["run", "--ui", "json", "--only", only, "--concurrency", "2"]);
    let running = command.spawn().unwrap();
    let ends_of = |deck: &TestProject, unit: &str| -> Vec<serde_json::Value> {
        let of_unit = deck
            .entries()
            .into_iter()
            .filter(|entry| entry["unit"] == unit);
        of_unit
            .map(|mut entry| entry["note"].take())
            .filter(|note| note["kind"] == "attempt_ended")
            .collect()
    };
    deck.wait_for("the first attempt of both units", |deck| {
        (ends_of(deck, "docs-crates").len() == 1 && deck.started().len() == 2).then_some(())
    });
    let retried = deck.play(&["ctl", "retry", "docs-crates", "--feedback", feedback]);
    assert_eq!(retried.code, Some(0), "{retried:#?}");
    let ends = deck.wait_for("the second attempt", |deck| {
        Some(ends_of(deck, "docs-crates")).filter(|ends| ends.len() == 2)
    });
    assert_eq!(ends[0]["verdict"]["cause"], "nothing_done");
    assert_eq!(
        (&ends[1]["verdict"]["outcome"], &ends[1]["work"]["unread"]),
        (&json!("succeeded"), &json!(null))
    );
    assert_eq!(deck.play(&["ctl", "stop", "docs-juice"]).code, Some(0));
    let output = running.wait_with_output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(100),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(deck.names("wiki/global"), ["page-docs-crates.md"]);
    let again = deck.run(only, &[]);
    assert_eq!(
        (again.code, again.summary()["units"].clone()),
        (Some(0), json!({"succeeded": 1})),
        "{again:#?}"
    );
    let plan = deck.play(&["plan", "--ui", "json", "--only", only]);
    assert_eq!(
        (plan.code, plan.stdout.as_str()),
        (Some(0), ""),
        "{plan:#?}"
    );
}
