//! Untrusted text in all output: it is visible, and terminals do not interpret it.

use std::{
    fs,
    os::unix::{ffi::OsStrExt as _, fs::symlink},
};

use serde_json::json;

use super::test_dir::{CommandOutput, TestDir};

/// Clipboard, title, colours, an 8-bit CSI, text direction, an invisible marker, and cursor movement.
const EVIL: &str =
    "x\u{1b}]52;c;UFdO\u{7}\u{1b}]0;t\u{7}\u{1b}[31m\u{9b}2J\u{202e}\u{2066}\u{200b}\r\u{8}\u{7f}y";

/// True for characters that a terminal interprets or that are invisible.
fn is_obeyed(char: char) -> bool {
    (char.is_control() && !matches!(char, '\n' | '\t'))
        || matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn check(what: &str, ran: &CommandOutput) {
    for (stream, text) in [("stdout", &ran.stdout), ("stderr", &ran.stderr)] {
        let obeyed: String = text.chars().filter(|char| is_obeyed(*char)).collect();
        assert_eq!(obeyed, "", "{what}, {stream}: {text:?}");
    }
}

fn check_commands(place: &TestDir, commands: &[&[&str]]) {
    for words in commands {
        check(&format!("{words:?}"), &place.run(words));
    }
}

/// `EVIL` as a JSON string, which is also a YAML string.
fn quoted() -> String {
    json!(EVIL)
        .to_string()
        .replace('\u{9b}', "\\u009b")
        .replace('\u{7f}', "\\u007f")
}

const OF_A_PROJECT: &[&[&str]] = &[
    &["plan"],
    &["plan", "--ui", "json"],
    &["run", "--claude-bin", "/bin/false"],
    &["doctor", "--claude-bin", "/bin/false"],
    &["doctor", "--ui", "json", "--claude-bin", "/bin/false"],
    &["config", "show"],
    &["runs", "list"],
    &["mcp"],
];

#[test]
fn values_of_a_project_are_escaped() {
    let evil = quoted();
    let connections = [
        format!("{evil}: {{driver: docs, source_dir: notes}}"),
        format!("n: {{driver: {evil}}}"),
        format!("n: {{driver: docs, source_dir: {evil}}}"),
        format!("n: {{driver: docs, source_dir: notes, {evil}: 1}}"),
        format!("n: {{driver: sqlite, path: {evil}}}"),
        format!("n: {{driver: manifest, source_dir: notes, path: {evil}}}"),
        format!("n: {{driver: dbt, repoUrl: {evil}, source_dir: gone}}"),
        format!("n: {{driver: lookml, repoUrl: {evil}}}"),
        format!("n: {{driver: notion, source_dir: {evil}}}"),
        format!("n: {{driver: metricflow, source_dir: {evil}}}"),
    ];
    for connection in connections {
        let place = TestDir::new();
        place.write("notes/a.md", "# A\n");
        place.write(
            "ktx.yaml",
            format!(
                "connections: {{{connection}}}\n{evil}: 1\nllm: {{models: {{default: {evil}}}}}\n"
            ),
        );
        check_commands(&place, OF_A_PROJECT);
    }
}

#[test]
fn names_of_files_and_units_are_escaped() {
    let place = TestDir::new();
    place.notes(&["one", EVIL]);
    place.write(
        "units.json",
        json!([{"unitKey": EVIL, "rawFiles": [EVIL], "notes": EVIL}]).to_string(),
    );
    place.write(
        "mine.json",
        json!([{"unitKey": "mine", "rawFiles": ["one.md"], "displayLabel": EVIL}]).to_string(),
    );
    let yaml = fs::read_to_string(place.path("ktx.yaml")).unwrap();
    let more = "  units: {driver: manifest, path: units.json, source_dir: notes}\n  \
                mine: {driver: manifest, path: mine.json, source_dir: notes}\n";
    place.write(
        "ktx.yaml",
        yaml.replace("connections:\n", &format!("connections:\n{more}")),
    );
    symlink("nowhere", place.path(&format!("notes/{EVIL}-link.md"))).unwrap();
    place.write(&format!("wiki/global/{EVIL}.md"), "no page");
    place.write(&format!(".ktx/prompts/{EVIL}.md"), "no prompt");
    check_commands(&place, OF_A_PROJECT);
    let player = place.scripted_claude("[[part]]\nsteps = [{ say = \"done\" }]");
    check(
        "run",
        &place.run(&["run", "--claude-bin", player.to_str().unwrap()]),
    );
}

/// Linux allows names that are not UTF-8.
#[test]
#[cfg(target_os = "linux")]
fn project_directory_may_have_any_name() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let player = place.scripted_claude(
        "[[part]]\nsteps = [{ call = { tool = \"read_raw_file\", with = { path = \"one.md\" } } }, { say = \"done\" }]",
    );
    let project = place
        .path(".")
        .join(std::ffi::OsStr::from_bytes(b"latin\xe9"));
    fs::create_dir(&project).unwrap();
    for name in ["ktx.yaml", "notes"] {
        fs::rename(place.path(name), project.join(name)).unwrap();
    }
    let mut command = place.command(&[
        "run",
        "--ui",
        "lines",
        "--claude-bin",
        player.to_str().unwrap(),
    ]);
    command.current_dir(&project);
    let ran = place.ran(command);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn names_of_directories_and_arguments_are_escaped() {
    let place = TestDir::new();
    place.write(
        &format!("{EVIL}/ktx.yaml"),
        "connections: {n: {driver: docs, source_dir: gone}}\n",
    );
    place.write(&format!("{EVIL}/a.md"), "# A\n");
    for command in [
        &["plan"][..],
        &["doctor"],
        &["runs", "list"],
        &["run"],
        &["config", "show"],
    ] {
        check_commands(&place, &[&[command, &["--project-dir", EVIL]].concat()]);
        let mut inside = place.command(command);
        inside.current_dir(place.path(EVIL));
        check("inside", &place.ran(inside));
    }
    check_commands(
        &place,
        &[
            &[EVIL],
            &[&format!("--{EVIL}")],
            &["plan", "--ui", EVIL],
            &["plan", "--only", EVIL],
            &["plan", "--project-dir", &format!("{EVIL}-gone")],
            &["plan", "--config", EVIL],
            &["run", "--claude-bin", EVIL],
            &["doctor", "--claude-bin", EVIL],
            &["init", EVIL],
            &["init", &format!("{EVIL}-gone")],
            &["replay", EVIL],
            &["replay", EVIL, "--speed", EVIL],
            &["runs", "show", EVIL],
            &["runs", "prune", "--older-than", EVIL],
            &["report", EVIL],
            &["diff", EVIL, EVIL],
            &["watch", EVIL],
            &["mcp", "--unit", EVIL],
            &["completions", EVIL],
            &["man", "--out", &format!("{EVIL}/a.md/x")],
        ],
    );
    for variable in [
        "INGESTDECK_CLAUDE_BIN",
        "KTX_PROJECT_DIR",
        "XDG_CONFIG_HOME",
        "INGESTDECK_UI_THEME",
        "HOME",
    ] {
        for command in [
            &["plan"][..],
            &["doctor"],
            &["run", "-h"],
            &["config", "show"],
        ] {
            let mut command = place.command(command);
            command.env(variable, std::ffi::OsStr::from_bytes(EVIL.as_bytes()));
            check(variable, &place.ran(command));
        }
    }
}

#[test]
fn texts_of_a_record_are_escaped() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let id = "01890000-0000-7000-8000-000000000001";
    let planned =
        json!({"unit": EVIL, "connection": EVIL, "adapter": EVIL, "rawFiles": [EVIL], "why": EVIL});
    let verdict = json!({"outcome": "failed", "stop": "error", "cause": EVIL, "reason": EVIL, "remedy": EVIL});
    let run = [
        json!({"kind": "run_planned", "units": [planned, {"unit": "next"}], "model": EVIL,
            "skipped": [{"connection": EVIL, "why": EVIL}]}),
        json!({"kind": "limit_paused", "limit": EVIL}),
        json!({"kind": "throttled", "slots": 1, "limit": EVIL}),
        json!({"kind": "said", "level": "warning", "text": EVIL}),
        json!({"kind": "save_failed", "reason": EVIL, "cause": EVIL}),
        json!({"kind": "sl_refs_repaired", "repairs": [{"pageKey": EVIL, "scopeId": EVIL, "removedRefs": [EVIL]}]}),
        json!({"kind": "saved", "commit": EVIL, "branch": EVIL, "subject": EVIL, "paths": [EVIL]}),
        json!({"kind": EVIL}),
    ];
    let attempt = [
        json!({"note": {"kind": "attempt_started", "argv": [EVIL], "cwd": EVIL, "model": EVIL, "prompt": EVIL}}),
        json!({"out": {"type": "system", "subtype": "init", "session_id": EVIL, "model": EVIL, "tools": [EVIL]}}),
        json!({"out": {"type": "assistant", "session_id": EVIL, "message": {"id": EVIL, "model": EVIL, "content": [
            {"type": "text", "text": EVIL}, {"type": "thinking", "thinking": EVIL},
            {"type": "tool_use", "id": EVIL, "name": EVIL, "input": {EVIL: EVIL}},
            {"type": "tool_use", "id": "2", "name": "Bash", "input": {"command": EVIL}}]}}}),
        json!({"out": {"type": "user", "message": {"content": [
            {"type": "tool_result", "tool_use_id": EVIL, "is_error": true, "content": EVIL}]}}}),
        json!({"out": {"type": "system", "subtype": EVIL, "text": EVIL}}),
        json!({"raw": EVIL}),
        json!({"err": EVIL}),
        json!({"note": {"kind": "tool_failed", "tool": EVIL, "tool_use_id": EVIL, "message": EVIL}}),
        json!({"out": {"type": "result", "subtype": EVIL, "is_error": true, "result": EVIL, "errors": [EVIL]}}),
        json!({"note": {"kind": "attempt_ended", "verdict": verdict, "stderr_tail": [EVIL]}}),
    ];
    let mut tape = format!(
        "{}\n",
        json!({"tape": 1, "program": EVIL, "run": id, "started_at": "2026-01-01T00:00:00Z", "project": EVIL})
    );
    let run = run
        .into_iter()
        .map(|note| json!({"note": note}).to_string());
    let attempt = attempt.into_iter().map(|body| {
        let body = body.to_string();
        format!("{{\"unit\":{},\"try\":1,{}", json!(EVIL), &body[1..])
    });
    for (seq, body) in run.chain(attempt).enumerate() {
        tape.push_str(&format!("{{\"seq\":{seq},\"at\":{seq},{}\n", &body[1..]));
    }
    tape.push_str(
        "{\"seq\":99,\"at\":99,\"note\":{\"kind\":\"run_ended\",\"outcome\":\"\\u001b[31m\"}}\n",
    );
    place.write(&format!(".ktx/ingestdeck/runs/{id}/tape.jsonl"), &tape);
    place.write(&format!("{EVIL}.jsonl"), &tape);
    let file = format!("{EVIL}.jsonl");
    check_commands(
        &place,
        &[
            &["runs", "list"],
            &["runs", "list", "--ui", "json"],
            &["runs", "show", "latest"],
            &["runs", "show", "latest", "--ui", "json"],
            &["replay", "latest", "--ui", "lines"],
            &["replay", "latest", "--ui", "json"],
            &["replay", &file, "--ui", "lines"],
            &["replay", &file, "--ui", "json"],
            &["report", "latest"],
            &["report", "latest", "--ui", "json"],
            &["report", "latest", "--format", "html"],
            &["report", "latest", "--format", "junit"],
            &["diff", "latest", &file],
            &["diff", "latest", &file, "--ui", "json"],
            &["plan", "--resume-run", "latest"],
            &[
                "run",
                "--resume-run",
                "latest",
                "--claude-bin",
                "/bin/false",
            ],
            &["doctor", "--claude-bin", "/bin/false"],
            &["runs", "reindex"],
            &["runs", "prune", "--keep", "0", "--dry-run"],
        ],
    );
    let replayed = place.run(&["replay", "latest", "--ui", "lines"]);
    assert!(
        replayed.expect_success().contains("\\e]52;c;UFdO"),
        "the text is shown: {replayed:?}"
    );
}

#[test]
fn colours_of_lines_are_the_only_sequences() {
    let place = TestDir::new();
    place.write(
        "capture.jsonl",
        format!(
            "{}\n",
            json!({"type": "system", "subtype": "init", "session_id": EVIL})
        ),
    );
    let ran = place.run(&[
        "replay",
        "capture.jsonl",
        "--ui",
        "lines",
        "--color",
        "always",
    ]);
    let own = [
        "\u{1b}[32m",
        "\u{1b}[31m",
        "\u{1b}[33m",
        "\u{1b}[36m",
        "\u{1b}[0m",
    ];
    assert!(
        own.iter()
            .any(|sequence| ran.expect_success().contains(sequence)),
        "{ran:?}"
    );
    let stripped = own.iter().fold(ran.stdout.clone(), |text, sequence| {
        text.replace(sequence, "")
    });
    check(
        "colours",
        &CommandOutput {
            stdout: stripped,
            ..ran
        },
    );
}

#[test]
fn debug_log_is_not_written_through_a_link() {
    let place = TestDir::new();
    place.notes(&["one"]);
    place.write("target", "");
    symlink("target", place.path("ingestdeck-debug.log")).unwrap();
    let ran = place.run(&["plan", "--debug"]);
    assert!(
        ran.expect_refusal(2)
            .contains("`ingestdeck-debug.log`: it is a symbolic link"),
        "{ran:?}"
    );
    assert_eq!(fs::read(place.path("target")).unwrap(), b"");
}
