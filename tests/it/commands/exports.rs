//! `runs export` and files named by `--out`: their content and their permissions.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::Command,
};

use ingestdeck_core::text;
use serde_json::{Value, json};

use super::test_dir::{CommandOutput, TestDir};

const RUN: &str = "01a201f6-387b-7555-8146-4e95c4811a8c";

/// A project with a run, with `lines` appended to its tape.
fn recorded(lines: &[Value]) -> TestDir {
    let place = TestDir::new();
    let tape = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tapes/real.jsonl");
    let mut tape = fs::read_to_string(tape).unwrap();
    for line in lines {
        tape.push_str(&format!("{line}\n"));
    }
    place.write(&format!(".ktx/ingestdeck/runs/{RUN}/tape.jsonl"), tape);
    place
}

/// Runs the program with an umask that makes new files readable by everyone.
fn run_with_open_umask(place: &TestDir, args: &[&str]) -> CommandOutput {
    let program = place.command(args);
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", "umask 022; exec \"$0\" \"$@\""])
        .arg(program.get_program())
        .args(program.get_args());
    shell
        .env_clear()
        .current_dir(program.get_current_dir().unwrap());
    shell.envs(
        program
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    place.ran(shell)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn files_that_out_names_are_private() {
    let place = recorded(&[]);
    for (name, args) in [
        ("tape.jsonl", &["runs", "export", "--out"][..]),
        ("report.md", &["report", "--out"][..]),
    ] {
        let path = place.path(name);
        let args = [args, &[path.to_str().unwrap()]].concat();
        run_with_open_umask(&place, &args).expect_success();
        assert_eq!(mode(&path), 0o600, "{name}");
        let first = fs::read(&path).unwrap();
        fs::write(&path, [&first[..], b"more"].concat()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        run_with_open_umask(&place, &args).expect_success();
        assert_eq!(
            (mode(&path), fs::read(&path).unwrap() == first),
            (0o600, true),
            "{name} is overwritten"
        );
    }
}

#[test]
fn link_within_the_project_is_not_written_through() {
    let place = recorded(&[]);
    let target = place.path("../home/profile");
    fs::write(&target, "kept").unwrap();
    symlink(&target, place.path("out")).unwrap();
    for args in [
        ["runs", "export", "--out", "out"].as_slice(),
        &["report", "--out", "out"],
    ] {
        let ran = place.run(args);
        assert!(
            ran.expect_refusal(1)
                .contains("out is a symbolic link within the project"),
            "{ran:?}"
        );
    }
    assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
}

#[test]
fn exports_and_reports_are_without_secrets() {
    let key = format!("AKIA{}", "ABCDEFG2".repeat(2));
    let seed = format!("SU{}", "ABCDEFG2".repeat(7));
    let azure = format!("{}==", "aB3+dE5/gH".repeat(9)[..86].to_owned());
    let datadog = "0123456789abcdef".repeat(2) + "01234567";
    let of_kinds = [
        &*key,
        &seed,
        &azure,
        &datadog,
        "xoxc-1a2b3c4d5e6f",
        "c00kieOfTheJar9",
        "pAss4openssl",
        "AAAAIEi3nRPzCkUTRTnKu4zdYk4mBDqGcZ6g3S2nRPzC",
    ];
    let [.., cookie, openssl, putty] = of_kinds;
    let reason = format!(
        "the service answered:\n{key} is wrong, hunter2secret and v4lue-of-env as well\n{{\"accountKey\": \"{azure}\"}}\n\
        DD_APPLICATION_KEY={datadog}\nseed {seed}\nxoxc-1a2b3c4d5e6f\n.x.example\tTRUE\t/\tTRUE\t0\tsid\t{cookie}\n\
        openssl enc -k {openssl}\nPrivate-Lines: 1\n{putty}\nPrivate-MAC: 00"
    );
    let verdict =
        json!({"outcome": "failed", "stop": "error", "cause": "tool_failures", "reason": reason});
    let entry = |seq: u64, key: &str, body: Value| json!({"seq": seq, "at": 900_000 + seq, "unit": "docs-juice", "try": 9, (key): body});
    let place = recorded(&[
        entry(90_000, "note", json!({"kind": "attempt_started"})),
        entry(
            90_001,
            "err",
            json!(format!("{reason} {}", "djRsdWUtb2YtZW52")),
        ),
        entry(
            90_002,
            "note",
            json!({"kind": "attempt_ended", "verdict": verdict, "work": {}}),
        ),
    ]);
    place.write(
        "ktx.yaml",
        "connections:\n  w:\n    driver: postgres\n    url: postgres://a:hunter2secret@db/x\n",
    );
    for format in ["tape", "trace", "memory-flow"] {
        let mut command = place.command(&["runs", "export", "--format", format]);
        command.env("SOME_TOKEN", "v4lue-of-env");
        let ran = place.ran(command);
        let masked = ran.expect_success().matches("[masked]").count();
        assert!(masked >= 3, "{format}: {}", ran.stderr);
        for secret in of_kinds
            .iter()
            .chain(&["hunter2secret", "v4lue-of-env", "djRsdWUtb2YtZW52"])
        {
            assert!(!ran.stdout.contains(*secret), "{format}: {secret}");
        }
        assert!(
            ran.stderr.contains("values of known kinds were masked"),
            "{ran:?}"
        );
    }
    for format in ["md", "json", "junit", "html"] {
        let mut command = place.command(&["report", "--format", format]);
        command.env("SOME_TOKEN", "v4lue-of-env");
        let ran = place.ran(command);
        for secret in of_kinds.iter().chain(&["hunter2secret", "v4lue-of-env"]) {
            assert!(
                !ran.expect_success().contains(*secret),
                "{format}: {secret}"
            );
        }
        assert!(
            ran.stdout.contains("[masked]") && ran.stderr.contains("of known kinds"),
            "{format}: {ran:?}"
        );
    }
    let spans = ["runs", "export", "--format", "otlp", "--content"];
    for args in [
        spans.as_slice(),
        &["audit", "--results", "--format", "json"],
    ] {
        let mut command = place.command(args);
        command.env("SOME_TOKEN", "v4lue-of-env");
        let ran = place.ran(command);
        for secret in of_kinds.iter().chain(&["hunter2secret", "v4lue-of-env"]) {
            assert!(
                !ran.expect_success().contains(*secret),
                "{args:?}: {secret}"
            );
        }
    }
}

#[test]
fn exported_trace_has_no_terminal_controls() {
    let reason = "x\u{9b}2J\u{202e}\u{2066}\u{200b}\u{e0041}\u{7f}y";
    let verdict =
        json!({"outcome": "failed", "stop": "error", "cause": "tool_failures", "reason": reason});
    let entry = |seq: u64, note: Value| json!({"seq": seq, "at": 900_000 + seq, "unit": "docs-juice", "try": 9, "note": note});
    let place = recorded(&[
        entry(90_000, json!({"kind": "attempt_started"})),
        entry(
            90_001,
            json!({"kind": "said", "level": "warning", "text": reason}),
        ),
        entry(
            90_002,
            json!({"kind": "attempt_ended", "verdict": verdict, "work": {}}),
        ),
    ]);
    let (mut lines, mut escapes) = (0, 0);
    for format in ["trace", "memory-flow"] {
        let ran = place.run(&["runs", "export", "--format", format]);
        let hidden = |char: &char| *char != '\n' && text::is_hidden(*char);
        assert_eq!(ran.expect_success().chars().find(hidden), None, "{format}");
        let parsed = ran
            .stdout
            .lines()
            .map(serde_json::from_str::<Value>)
            .collect::<Result<Vec<_>, _>>()
            .unwrap();
        lines += parsed.len();
        escapes += ran.stdout.matches("\\u009b").count();
    }
    assert!(lines > 2 && escapes > 0, "{lines} lines, {escapes} escapes");

    // The tape has the same values, to a pipe and in a file.
    let tape = place.run(&["runs", "export"]);
    place
        .run(&["runs", "export", "--out", "out.jsonl"])
        .expect_success();
    assert_eq!(
        fs::read_to_string(place.path("out.jsonl")).unwrap(),
        tape.expect_success()
    );
    assert_eq!(
        tape.stdout
            .chars()
            .find(|char| *char != '\n' && text::is_hidden(*char)),
        None
    );
    let parsed: Vec<Value> = tape
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(
        parsed.iter().any(|entry| entry["note"]["text"] == reason)
            && tape.stdout.contains("\\u009b2J")
    );
}

#[test]
fn export_of_an_unknown_run_leaves_its_file_alone() {
    let place = recorded(&[]);
    fs::write(place.path("out.jsonl"), "kept").unwrap();
    place
        .run(&["runs", "export", "nosuch", "--out", "out.jsonl"])
        .expect_refusal(4);
    assert_eq!(fs::read_to_string(place.path("out.jsonl")).unwrap(), "kept");
}

#[test]
fn export_without_secrets_is_the_tape_itself() {
    let place = recorded(&[]);
    let tape = fs::read(place.path(&format!(".ktx/ingestdeck/runs/{RUN}/tape.jsonl"))).unwrap();
    let ran = place.run(&["runs", "export"]);
    assert!(ran.expect_success().as_bytes() == tape, "the bytes differ");
    assert!(
        ran.stderr.contains("0 values of known kinds were masked"),
        "{}",
        ran.stderr
    );
}
