//! `watch`: showing a run that another process started.

use nix::sys::signal::Signal;

use super::test_dir::{TestDir, parse_json_events};

const GOOD: &str = "[[part]]\nsteps = [{ call = { tool = \"read_raw_file\", with = { path = \"one.md\" } } }, { wait = 1500 }, { say = \"read\" }]";

#[test]
fn watch_shows_the_whole_run() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let claude = place.scripted_claude(GOOD).display().to_string();
    let mut running = place.start(place.command(&["run", "--ui", "json", "--claude-bin", &claude]));
    running.wait_for("stdout", "\"started\"");
    // It shows the entries from before it started, and new ones.
    let seen = place.run(&["watch", "--ui", "json"]);
    let ran = running.end();
    assert_eq!((seen.code, seen.stderr.as_str()), (Some(0), ""), "{seen:?}");
    assert!(
        seen.stdout == ran.stdout,
        "another stream:\n{}\n{}",
        seen.stdout,
        ran.stdout
    );
    parse_json_events(&seen.stdout);
    // A finished run is shown, and the exit code is the run's.
    assert_eq!(
        place
            .run(&["watch", "latest", "--ui", "json"])
            .expect_success(),
        ran.stdout
    );
    // A file of that name does not hide it.
    std::fs::write(place.path("latest"), "{}\n").unwrap();
    assert_eq!(
        place
            .run(&["watch", "latest", "--ui", "json"])
            .expect_success(),
        ran.stdout
    );
}

#[test]
fn watch_exits_with_the_exit_code_of_the_run() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let bad = "[[part]]\nsteps = [{ call = { tool = \"wiki_list_tags\", with = { path = 1 } } }, { say = \"tried\" }]";
    let claude = place.scripted_claude(bad).display().to_string();
    assert_eq!(
        place
            .run(&["run", "--ui", "none", "--claude-bin", &claude])
            .code,
        Some(100)
    );
    let seen = place.run(&["watch", "--ui", "lines"]);
    assert_eq!(
        (seen.code, seen.stderr.as_str()),
        (Some(100), ""),
        "{seen:?}"
    );
    assert!(
        seen.stdout.contains("1 failed") && seen.stdout.contains("ingestdeck run --resume-run "),
        "{seen:?}"
    );
}

#[test]
fn watch_reports_a_dead_writer() {
    let place = TestDir::new();
    place.notes(&["one", "two"]);
    let claude = place
        .scripted_claude("[[part]]\nsteps = [{ say = \"now\" }, \"hang\"]")
        .display()
        .to_string();
    let mut running =
        place.start(place.command(&["run", "--ui", "lines", "--claude-bin", &claude]));
    running.wait_for("stdout", "docs-one#1               ● session");
    let mut watching = place.start(place.command(&["watch", "--ui", "lines"]));
    watching.wait_for("stdout", "docs-one#1               ● session");
    running.signal(Signal::SIGKILL);
    running.end();
    let seen = watching.end();
    assert_eq!(seen.code, Some(130), "{seen:?}");
    assert!(
        seen.stderr
            .contains(": writer gone: the process of this run has ended"),
        "{seen:?}"
    );
    assert!(
        seen.stdout.contains("2 units: 1 interrupted, 1 untried"),
        "{seen:?}"
    );
    // A `watch` that starts later shows the same.
    let late = place.run(&["watch", "--ui", "none"]);
    assert!(
        late.code == Some(130) && late.stderr.contains("writer gone"),
        "{late:?}"
    );
}

#[test]
fn watch_without_a_run_is_an_error() {
    let place = TestDir::new();
    place.notes(&["one"]);
    assert!(
        place
            .run(&["watch"])
            .expect_refusal(4)
            .contains("no run is recorded")
    );
    assert!(
        place
            .run(&["watch", "abc"])
            .expect_refusal(4)
            .contains("no run matches")
    );
    let missing = place.run(&["watch", "./abc.jsonl"]);
    assert!(
        missing
            .expect_refusal(4)
            .contains("there is no file ./abc.jsonl, and no run matches"),
        "{missing:?}"
    );
}
