//! `replay` and `runs` with every kind of argument that a user may pass.

use std::{fs, path::Path, process::Stdio};

use nix::sys::signal::Signal;

use super::test_dir::{CommandOutput, TestDir, parse_json_events};

fn fixtures(folder: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/captures")
        .join(folder);
    let mut files: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| path.to_str().unwrap().to_owned())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

#[test]
fn every_capture_is_replayed() {
    let place = TestDir::new();
    for file in fixtures("").into_iter().chain(fixtures("versions")) {
        let json = place.run(&["replay", &file, "--ui", "json"]);
        if file.ends_with(".json") {
            assert!(
                json.expect_refusal(2)
                    .contains("none of its lines belongs to a transcript"),
                "{json:?}"
            );
            continue;
        }
        assert_eq!(json.stderr, "", "{file}");
        let lines = parse_json_events(json.expect_success());
        // One capture is of a process that printed nothing.
        if file.ends_with(".jsonl") && fs::metadata(&file).unwrap().len() > 0 {
            assert!(
                lines
                    .iter()
                    .any(|line| line["event"]["type"] == "completed"),
                "{file} completes nothing"
            );
        }
        let plain = place.run(&["replay", &file]);
        assert!(
            !plain
                .expect_success()
                .chars()
                .any(|c| c.is_control() && c != '\n'),
            "{file} reaches the terminal"
        );
        assert_eq!(plain.stderr, "", "{file}");
    }
}

#[test]
fn stdin_is_replayed_like_a_file() {
    let place = TestDir::new();
    let file = fixtures("")
        .into_iter()
        .find(|file| file.ends_with("/success_tools.jsonl"))
        .unwrap();
    let mut command = place.command(&["replay", "-", "--ui", "json"]);
    command.stdin(fs::File::open(&file).unwrap());
    assert_eq!(
        place.ran(command).expect_success(),
        place
            .run(&["replay", &file, "--ui", "json"])
            .expect_success()
    );
    let mut piped = place.command(&["replay", "-"]);
    piped.stdin(Stdio::null());
    assert_eq!(
        place.ran(piped).expect_success(),
        "stdin · nothing is recorded in it\n"
    );
}

#[test]
fn tape_of_an_unknown_agent_is_replayed_without_decoding() {
    let place = TestDir::new();
    let tape = |agent: &str| {
        format!(
            r#"{{"tape":1,"program":"p","run":"00000000-0000-7000-8000-000000000007","started_at":"2026-01-01T00:00:00Z"{agent}}}
{{"seq":0,"at":1,"unit":"a","try":1,"out":{{"type":"assistant","message":{{"content":[{{"type":"text","text":"hello"}}]}}}}}}
{{"seq":1,"at":2,"unit":"a","try":1,"out":{{"type":"result","subtype":"success","is_error":false,"result":"hello"}}}}
"#
        )
    };
    place.write("old.jsonl", tape(""));
    place.write("codex.jsonl", tape(r#","agent":"codex""#));
    let old = place.run(&["replay", "old.jsonl", "--ui", "json"]);
    assert!(
        old.expect_success().contains("\"completed\"") && old.stderr.is_empty(),
        "old tapes mean Claude Code"
    );
    let codex = place.run(&["replay", "codex.jsonl", "--ui", "json"]);
    assert!(!codex.expect_success().contains("hello"), "{codex:?}");
    assert!(
        codex
            .stderr
            .contains("the agent `codex`, which this program does not know"),
        "{}",
        codex.stderr
    );
}

#[test]
fn unsupported_files_are_refused() {
    let place = TestDir::new();
    place.write("binary", [0_u8, 159, 146, 150, 0, 1, 2, 3].repeat(500));
    place.write("empty", "");
    place.write(
        "newer",
        "{\"tape\":2,\"program\":\"ingestdeck 9\",\"run\":\"x\",\"started_at\":\"tomorrow\"}\n",
    );
    fs::create_dir(place.path("folder")).unwrap();
    let replay = |what: &str| place.run(&["replay", what]);
    for (what, code, sentence) in [
        ("binary", 2, "it is a binary file"),
        ("folder", 2, "has no record; records are tapes"),
        (
            "newer",
            2,
            "tape format 2 is newer than this program reads (1); use a newer ingestdeck",
        ),
        ("missing.jsonl", 4, "there is no file missing.jsonl"),
        (
            "missing",
            4,
            "there is no file missing, and no run matches \"missing\"",
        ),
        ("latest", 4, "no run is recorded in this project yet"),
    ] {
        let ran: CommandOutput = replay(what);
        let refusal = ran.expect_refusal(code);
        assert!(refusal.contains(sentence), "{what}: {refusal}");
    }
    assert_eq!(
        replay("empty").expect_success(),
        "empty · nothing is recorded in it\n"
    );
    assert_eq!(
        place
            .run(&["replay", "empty", "--paused"])
            .expect_refusal(2),
        "--paused needs the screen; add --ui tui, or leave it out"
    );
    assert!(
        place
            .run(&["replay", "empty", "--speed", "0"])
            .expect_refusal(2)
            .starts_with("invalid --speed `0`")
    );
}

#[test]
fn empty_run_list_is_not_an_error() {
    let place = TestDir::new();
    for command in ["list", "reindex", "prune"] {
        assert_eq!(
            place.run(&["runs", command]).expect_success(),
            "no runs yet; `ingestdeck run` records one\n"
        );
    }
    assert_eq!(
        place
            .run(&["runs", "list", "--ui", "json"])
            .expect_success(),
        ""
    );
    assert!(
        place
            .run(&["runs", "show"])
            .expect_refusal(4)
            .contains("start one with `ingestdeck run`")
    );
    assert!(!place.path(".ktx").exists(), "reading creates no files");
    place.notes(&["one"]);
    for command in [
        &["list"][..],
        &["list", "--ui", "json"],
        &["reindex"],
        &["prune"],
    ] {
        place.run(&[&["runs"], command].concat()).expect_success();
        assert!(
            !place.path(".ktx").exists(),
            "{command:?} in a project creates no files"
        );
    }
}

/// Runs whose ids have the same ends, as tapes that contain only a header.
#[test]
fn ambiguous_run_id_is_refused() {
    let place = TestDir::new();
    let ids = [
        "01a20141-a13e-713f-b820-144f51fc451a",
        "01a20142-a13e-713f-b820-144f51fc451a",
    ];
    for id in ids {
        place.write(
            &format!(".ktx/ingestdeck/runs/{id}/tape.jsonl"),
            format!(
                "{{\"tape\":1,\"program\":\"ingestdeck 0\",\"run\":\"{id}\",\"started_at\":\"2026-01-01T00:00:00Z\"}}\n"
            ),
        );
    }
    for words in [
        ["runs", "show", "fc451a"],
        ["replay", "fc451a", "--ui=json"],
    ] {
        let ran = place.run(&words);
        let refusal = ran.expect_refusal(2);
        assert!(
            refusal.contains("fc451a") && ids.iter().all(|id| refusal.contains(&id[..8])),
            "{refusal}"
        );
    }
    assert!(
        place
            .run(&["runs", "show", "01a20142"])
            .expect_success()
            .starts_with(&format!("run {}", ids[1]))
    );
    let ran = place.run(&["runs", "show", "ffffff"]);
    assert_eq!(
        ran.expect_refusal(4),
        "no run matches \"ffffff\"; list the recorded runs with `ingestdeck runs list`"
    );
}

#[test]
fn session_outside_a_project_is_listed() {
    let place = TestDir::new();
    let claude = place.claude(
        r#"echo '{"type":"result","subtype":"success","is_error":false,"result":"hi","session_id":"71e0375d-663a-410d-af87-d38db70b0683"}'"#,
    );
    let ran = place.run(&[
        "session",
        "--claude-bin",
        claude.to_str().unwrap(),
        "--",
        "hello",
    ]);
    ran.expect_success();
    assert!(
        !place.path(".ktx").exists(),
        "there is no project here: {ran:?}"
    );
    assert!(
        place
            .run(&["runs", "list"])
            .expect_success()
            .contains("1 succeeded")
    );
    assert!(
        place
            .run(&["replay", "latest"])
            .expect_success()
            .contains("completed: hi")
    );
    let ran = place.run(&["runs", "list", "--project-dir", "no-such"]);
    assert!(
        ran.expect_refusal(2).contains("no-such is not a directory"),
        "{ran:?}"
    );
}

/// The agent answers an interrupt with the text of a person's refusal, and prints nothing else.
#[test]
fn first_sigint_stops_the_session_and_is_recorded() {
    let place = TestDir::new();
    let init = r#"{"type":"system","subtype":"init","session_id":"s1","model":"m","tools":[],"mcp_servers":[]}"#;
    let call = r#"{"type":"assistant","session_id":"s1","message":{"id":"m1","role":"assistant","model":"m","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"sleep 9"}}]}}"#;
    let refused = r#"{"type":"user","session_id":"s1","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":"The user does not want to proceed"}]}}"#;
    let claude = place.claude(&format!(
        "refused() {{ echo '{refused}'; exit 0; }}\ntrap refused INT\nprintf '%s\\n%s\\n' '{init}' '{call}'\nsleep 60 & wait"
    ));
    let mut running = place.start(place.command(&[
        "session",
        "--claude-bin",
        claude.to_str().unwrap(),
        "--",
        "Wait.",
    ]));
    running.wait_for("stdout", "session s1");
    running.signal(Signal::SIGINT);
    let ran = running.end();
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(
        ran.stderr
            .contains("stopping running units; Ctrl-C again kills them")
            && !ran.stderr.contains("draining"),
        "{ran:?}"
    );
    let tape = ran
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("recorded in "))
        .unwrap()
        .to_owned();
    let replayed = place.run(&["replay", &tape, "--ui", "lines"]);
    for shown in [&ran, &replayed] {
        assert!(
            shown.stdout.contains("■ sleep 9  ") && shown.stdout.contains("  cut short\n"),
            "{shown:?}"
        );
        assert!(
            shown
                .stdout
                .contains("■ stopped: stopped before it was done"),
            "{shown:?}"
        );
        assert!(
            shown.stdout.contains("session · run ") && shown.stdout.contains(" · stopped after "),
            "{shown:?}"
        );
    }
    assert!(
        fs::read_to_string(tape)
            .unwrap()
            .contains(r#"{"kind":"stop_requested","how":"stop"}"#)
    );
}
