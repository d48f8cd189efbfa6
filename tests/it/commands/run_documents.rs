//! `report --format run` about runs that the program made, one of each outcome.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::resume::{SPENT, claude, part, place, run, writes};
use super::test_dir::TestDir;
use crate::formats::run_document::assert_run_document;

fn document(place: &TestDir) -> Value {
    let ran = place.run(&["report", "--format", "run"]);
    assert_run_document(ran.expect_success())
}

#[test]
fn document_of_each_outcome_has_its_exit_code() {
    let good = || ["one", "two", "three"].map(|name| writes(&format!("docs-{name}")));
    let bad = part(
        "docs-t*",
        "{ call = { tool = \"wiki_list_tags\", with = { path = 1 } } }, { say = \"tried\" }",
    );
    let spent = "ingest:\n  rateLimit:\n    maxWaitMs: 5000\n";
    for (parts, flags, settings, outcome, exit) in [
        (good().to_vec(), &[][..], "", "done", 0),
        (vec![writes("docs-one"), bad], &[], "", "partial", 100),
        (
            vec![writes("docs-one"), SPENT.to_owned()],
            &[],
            spent,
            "limit",
            102,
        ),
        (good().to_vec(), &["--review"], "", "waiting_approval", 103),
    ] {
        let place = place();
        let before = std::fs::read_to_string(place.path("ktx.yaml")).unwrap();
        place.write("ktx.yaml", before + settings);
        let ran = run(&place, &claude(&place, &parts), flags);
        assert_eq!(ran.code, Some(exit), "{ran:?}");
        let document = document(&place);
        assert_eq!(
            [&document["outcome"], &document["exit_code"]],
            [&json!(outcome), &json!(exit)]
        );
        let user = nix::unistd::User::from_uid(nix::unistd::Uid::current()).unwrap();
        assert_eq!(
            document["started_by"]["user"],
            json!(user.map(|user| user.name))
        );
        assert!(document["ended_at"].is_string());
        let units = document["units"].as_array().unwrap();
        assert_eq!(units.len(), 3);
        let one = units.iter().find(|it| it["unit"] == "docs-one").unwrap();
        assert_eq!(one["artifacts"][0]["path"], "wiki/global/one.md");
        assert_eq!(one["artifacts"][0]["change"], "created");
        match outcome {
            "done" => assert_eq!(document["totals"]["states"], json!({"succeeded": 3})),
            "partial" => assert_eq!(document["failures"][0]["units"], 2),
            "limit" => assert_eq!(document["publication"]["review"], Value::Null),
            _ => assert_eq!(document["publication"]["review"]["open"], 3),
        }
    }
}

#[test]
fn document_of_a_stopped_run_and_of_one_that_breaks_off() {
    for (signal, outcome, exit) in [
        (Signal::SIGINT, "stopped", json!(100)),
        (Signal::SIGKILL, "interrupted", Value::Null),
    ] {
        let place = place();
        let claude = claude(
            &place,
            &[
                writes("docs-one"),
                part("docs-*", "{ say = \"now\" }, \"hang\""),
            ],
        );
        let command = place.command(&["run", "--ui", "lines", "--claude-bin", &claude]);
        let mut running = place.start(command);
        running.wait_for("stdout", "docs-one#1               ✓ succeeded");
        running.wait_for("stdout", "docs-three#1             ● session");
        running.signal(signal);
        if signal == Signal::SIGINT {
            running.wait_for("stderr", "draining");
            running.signal(signal);
        }
        let ended = running.end();
        let own = (signal == Signal::SIGINT).then_some(130);
        assert_eq!(ended.code, own, "{ended:?}");
        #[cfg(target_os = "linux")]
        place.wait_until_no_process_left();
        let document = document(&place);
        assert_eq!(
            [&document["outcome"], &document["exit_code"]],
            [&json!(outcome), &exit]
        );
    }
}

#[test]
fn document_names_the_ci_job_that_started_the_run() {
    let place = place();
    let claude = claude(&place, &[writes("docs-one")]);
    let mut command = place.command(&[
        "run",
        "--only",
        "docs-one",
        "--no-reconcile",
        "--claude-bin",
        &claude,
    ]);
    command
        .env("GITHUB_SERVER_URL", "https://github.com")
        .env("GITHUB_REPOSITORY", "o/r")
        .env("GITHUB_RUN_ID", "7")
        .env("CI_JOB_URL", "https://gitlab.example/1");
    place.ran(command).expect_success();
    let url = "https://github.com/o/r/actions/runs/7";
    assert_eq!(document(&place)["started_by"]["job_url"], url);
}
