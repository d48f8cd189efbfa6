//! Messages about sessions and about runs that are still running.

use serde_json::Value;

use super::test_dir::{TestDir, parse_json_events};

/// A session that answers with the id `other`, whatever id was requested.
const OTHER: &str = r#"
echo '{"type":"system","subtype":"init","session_id":"other","model":"m"}'
echo '{"type":"result","subtype":"success","is_error":false,"result":"hi","session_id":"other"}'
"#;

fn events(stdout: &str, kind: &str) -> Vec<Value> {
    let events = stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["event"].take());
    events.filter(|event| event["type"] == kind).collect()
}

#[test]
fn session_that_resumes_another_one_ends_by_the_contract() {
    let place = TestDir::new();
    let claude = place.claude(OTHER).display().to_string();
    let session = |ui| {
        place.run(&[
            "session",
            "--ui",
            ui,
            "--claude-bin",
            &claude,
            "--resume",
            "abc",
            "--",
            "hello",
        ])
    };
    let ran = session("json");
    assert_eq!(ran.code, Some(100), "{ran:?}");
    parse_json_events(&ran.stdout);
    let text = "claude emitted session id other but expected abc";
    let [completed] = &events(&ran.stdout, "completed")[..] else {
        panic!("{ran:?}")
    };
    assert_eq!(
        (&completed["ok"], &completed["error"]),
        (&Value::from(false), &Value::from(text))
    );
    assert_eq!(completed["resume"]["value"], "abc");
    assert_eq!(events(&ran.stdout, "started").len(), 0);
    let ran = session("lines");
    assert_eq!(
        ran.stdout.matches(text).count(),
        3,
        "completed, failed, and in the summary: {ran:?}"
    );
    assert!(
        ran.stdout.trim_end().ends_with("`claude --resume abc`"),
        "{ran:?}"
    );
}

#[test]
fn session_mismatch_is_warned_about_once() {
    let place = TestDir::new();
    let claude = place.claude(OTHER).display().to_string();
    place.write(
        "../home/.config/ingestdeck/config.toml",
        "[claude]\nsession_mismatch = \"warn\"\n",
    );
    let session = |ui| {
        place.run(&[
            "session",
            "--ui",
            ui,
            "--claude-bin",
            &claude,
            "--resume",
            "abc",
            "--",
            "hello",
        ])
    };
    let ran = session("json");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let text = "claude emitted session id other but expected abc";
    assert_eq!(
        (
            ran.stdout.matches(text).count(),
            events(&ran.stdout, "action").len()
        ),
        (2, 1),
        "title and message"
    );
    assert_eq!(
        events(&ran.stdout, "completed")[0]["resume"]["value"],
        "other"
    );
    let ran = session("lines");
    assert_eq!(ran.stdout.matches(text).count(), 1, "{ran:?}");
    assert!(
        ran.stdout.trim_end().ends_with("`claude --resume other`"),
        "{ran:?}"
    );
}

#[test]
fn messages_about_a_unit_reach_lines_and_json() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let call = "{ call = { tool = \"wiki_list_tags\", with = {} } }, ";
    let script = format!("[[part]]\nsteps = [{}{{ say = \"done\" }}]", call.repeat(8));
    let claude = place.scripted_claude(&script).display().to_string();
    let run = |ui| {
        place
            .run(&[
                "run",
                "--ui",
                ui,
                "--full",
                "--step-budget",
                "10",
                "--claude-bin",
                &claude,
            ])
            .stdout
    };
    let json = run("json");
    parse_json_events(&json);
    let messages = events(&json, "message");
    assert_eq!(messages.len(), 1, "{json}");
    assert_eq!(messages[0]["level"], "warning");
    assert_eq!(messages[0]["text"], "Approaching turn limit: 8/10");
    let lines = run("lines");
    assert_eq!(
        lines.matches("▲ Approaching turn limit: 8/10").count(),
        1,
        "{lines}"
    );
}

#[test]
fn replay_of_a_running_run_shows_running() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let claude = place
        .scripted_claude("[[part]]\nsteps = [{ say = \"now\" }, \"hang\"]")
        .display()
        .to_string();
    let mut running =
        place.start(place.command(&["run", "--ui", "lines", "--claude-bin", &claude]));
    running.wait_for("stdout", "docs-one#1               ● session");
    let json = place
        .run(&["replay", "latest", "--ui", "json"])
        .expect_success()
        .to_owned();
    let summary = events(&json, "run").pop().unwrap();
    assert_eq!(
        (
            summary["outcome"].as_str(),
            summary["units"]["running"].as_u64()
        ),
        (Some("running"), Some(1))
    );
    assert!(
        !json.contains("interrupted") && events(&json, "completed").is_empty(),
        "{json}"
    );
    let lines = place
        .run(&["replay", "latest", "--ui", "lines"])
        .expect_success()
        .to_owned();
    assert!(
        lines.contains("still running after") && lines.contains("1 running"),
        "{lines}"
    );
    let shown = place
        .run(&["runs", "show", "latest"])
        .expect_success()
        .to_owned();
    assert!(
        shown.contains("still running after") && !shown.contains("interrupted"),
        "{shown}"
    );
    let listed = place.run(&["runs", "list"]).expect_success().to_owned();
    assert!(listed.contains("  running "), "{listed}");
    running.signal(nix::sys::signal::Signal::SIGKILL);
    running.end();
    let late = place
        .run(&["replay", "latest", "--ui", "lines"])
        .expect_success()
        .to_owned();
    assert!(
        late.contains("1 interrupted") && !late.contains("still running"),
        "{late}"
    );
}

#[test]
fn lines_begin_with_the_time_of_day_on_request() {
    let place = TestDir::new();
    let tape = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/tapes/harbor.jsonl"
    );
    let plain = place.run(&["replay", tape, "--ui", "lines"]);
    let timed = place.run(&["replay", tape, "--ui", "lines", "--timestamps"]);
    let is_event = |line: &&str| {
        line.trim_start()
            .split_once("s  ")
            .is_some_and(|(at, _)| at.parse::<f64>().is_ok())
    };
    let events: Vec<&str> = plain.stdout.lines().filter(is_event).collect();
    let timed: Vec<&str> = timed.stdout.lines().take(events.len()).collect();
    assert!(events.len() > 10, "{plain:?}");
    for (event, timed) in events.iter().zip(timed) {
        let (time, rest) = timed.split_once(' ').unwrap();
        assert!(
            time.len() == 20 && time.parse::<jiff::Timestamp>().is_ok(),
            "{timed}"
        );
        assert_eq!(rest, *event);
    }
}

#[test]
fn pipes_have_complete_keys_and_paths() {
    let place = TestDir::new();
    let names = ["one", "two"].map(|end| format!("{}-{end}", "long-name-of-a-page".repeat(5)));
    place.notes(&names.each_ref().map(String::as_str));
    let script = "[[part]]\nsteps = [{ call = { tool = \"read_raw_file\", with = { path = \"x.md\" } } }, { say = \"done\" }]";
    let claude = place.scripted_claude(script).display().to_string();
    let lines = place.run(&[
        "run",
        "--ui",
        "lines",
        "--no-reconcile",
        "--claude-bin",
        &claude,
    ]);
    let keys = names.each_ref().map(|name| format!("docs-{name}"));
    for (what, shown) in [
        ("run", lines.stdout),
        ("plan", place.run(&["plan", "--full"]).stdout),
        ("runs show", place.run(&["runs", "show"]).stdout),
        ("audit", place.run(&["audit"]).stdout),
        ("costs", place.run(&["costs", "--by", "unit"]).stdout),
        ("coverage", place.run(&["artifacts", "--coverage"]).stdout),
    ] {
        for (key, name) in keys.iter().zip(&names) {
            let expected = if what == "coverage" {
                format!("{name}.md")
            } else {
                key.clone()
            };
            assert!(shown.contains(&expected), "{what}: {shown}");
        }
    }
}
