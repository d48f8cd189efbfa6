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

/// Texts with `§` for a secret, its alphabet and its length.
const KINDS: &[(&str, &str, usize)] = &[
    ("AKIA§ is wrong", UPPER, 16),
    ("seed SU§", UPPER, 56),
    ("{\"accountKey\": \"§==\"}", BASE64, 86),
    ("DD_APPLICATION_KEY=§", HEX, 40),
    ("xoxc-§", ALNUM, 24),
    (".x.example\tTRUE\t/\tTRUE\t0\tsid\t§", ALNUM, 24),
    ("openssl enc -k § -in a", ALNUM, 14),
    ("Private-Lines: 1\n§\nPrivate-MAC: 00", BASE64, 44),
    ("postgres://svc:§@db/x", ALNUM, 14),
    ("curl -u svc:§ https://x.example", ALNUM, 14),
    ("Authorization: Bearer §", ALNUM, 40),
    ("{\"password\":\"Summer(§)!\"}", ALNUM, 14),
    ("{\"password\":\":§!\"}", ALNUM, 14),
    ("{\"api_key\":\"req.§\"}", ALNUM, 14),
    ("launchpad_token=§", HEX, 24),
    ("Subscription key: §", HEX, 24),
    ("SMTPPass: §", ALNUM, 14),
    ("task-sk-§", ALNUM, 24),
    ("{\"kty\":\"oct\",\"k\":\"§\"}", ALNUM, 22),
    ("{\"k\":\"§\",\"kty\":\"oct\"}", ALNUM, 22),
    ("DB.example.com:5432:app:svc:§", ALNUM, 14),
    ("ENV DB_PASSWORD §", ALNUM, 14),
    ("setx DB_PASSWORD §", ALNUM, 14),
    ("zip -P § a.zip b", ALNUM, 14),
    ("7z a -p§ a.7z b", ALNUM, 14),
    ("sqlcmd -S h -P § -Q x", ALNUM, 14),
    ("bcp t out f -P §", ALNUM, 14),
    ("keytool -storepass changeit -keypass §", ALNUM, 14),
    ("htpasswd -b file user §", ALNUM, 14),
    ("sshpass -p § ssh host", ALNUM, 14),
    ("define('DB_PASSWORD', '§');", ALNUM, 14),
    ("<entry key=\"db.password\">§</entry>", ALNUM, 14),
    ("<add key=\"ApiKey\" value=\"§\"/>", ALNUM, 24),
    ("password: >-\n  §\n", ALNUM, 14),
];

const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const HEX: &str = "0123456789abcdef";
const ALNUM: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const BASE64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Secrets of each kind.
const ROUNDS: usize = 10;

/// A text with a generated secret of each kind for each round, and the secrets.
fn planted() -> (Vec<String>, Vec<String>) {
    let (mut state, mut texts, mut secrets) = (0x9E37_79B9_7F4A_7C15_u64, Vec::new(), Vec::new());
    let mut letter = |alphabet: &str| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(alphabet.as_bytes()[usize::try_from(state % alphabet.len() as u64).unwrap()])
    };
    for _ in 0..ROUNDS {
        let mut text = String::new();
        for (kind, alphabet, length) in KINDS {
            let mut secret: String = (1..*length).map(|_| letter(alphabet)).collect();
            // A secret of letters alone is a word.
            secret.push(if *alphabet == UPPER { '7' } else { '8' });
            text.push_str(&kind.replace('§', &secret));
            text.push('\n');
            secrets.push(secret);
        }
        texts.push(text);
    }
    (texts, secrets)
}

/// Every command that masks what it writes.
const EXPORTS: &[&[&str]] = &[
    &["runs", "export", "--format", "tape"],
    &["runs", "export", "--format", "trace"],
    &["runs", "export", "--format", "memory-flow"],
    &["runs", "export", "--format", "otlp", "--content"],
    &["report", "--format", "md"],
    &["report", "--format", "json"],
    &["report", "--format", "junit"],
    &["report", "--format", "html"],
    &["audit", "--results", "--format", "json"],
];

/// Entries of an attempt with `text` on stderr, in a call of a tool, in its result, and in the verdict.
fn attempt(number: usize, text: &str) -> Vec<Value> {
    let call = format!("toolu_{number}");
    let tool = json!({"type": "tool_use", "id": call, "name": "mcp__ktx__wiki_write", "input": {"key": "k", "content": text}});
    let result = json!({"type": "tool_result", "tool_use_id": call, "content": [{"type": "text", "text": text}]});
    let verdict =
        json!({"outcome": "failed", "stop": "error", "cause": "tool_failures", "reason": text});
    let bodies = [
        ("note", json!({"kind": "attempt_started"})),
        ("err", json!(text)),
        (
            "out",
            json!({"type": "assistant", "session_id": "s", "parent_tool_use_id": null,
            "message": {"id": call, "role": "assistant", "content": [tool]}}),
        ),
        (
            "out",
            json!({"type": "user", "session_id": "s", "parent_tool_use_id": null,
            "message": {"role": "user", "content": [result]}}),
        ),
        (
            "note",
            json!({"kind": "attempt_ended", "verdict": verdict, "work": {}}),
        ),
    ];
    let first = 90_000 + 10 * number;
    let entries = bodies.into_iter().enumerate().map(|(at, (key, body))| {
        let seq = first + at;
        json!({"seq": seq, "at": 900_000 + seq, "unit": "docs-juice", "try": number, (key): body})
    });
    entries.collect()
}

#[test]
fn exports_and_reports_are_without_secrets() {
    let (texts, mut secrets) = planted();
    let known = "hunter2secret and v4lue-of-env and djRsdWUtb2YtZW52";
    secrets.extend(known.split(" and ").map(str::to_owned));
    let attempts = (9..).zip(&texts);
    let entries: Vec<Value> = attempts
        .flat_map(|(number, text)| attempt(number, &format!("{text}{known}")))
        .collect();
    let place = recorded(&entries);
    place.write(
        "ktx.yaml",
        "connections:\n  w:\n    driver: postgres\n    url: postgres://a:hunter2secret@db/x\n",
    );
    let run = |args: &[&str]| {
        let mut command = place.command(args);
        command.env("SOME_TOKEN", "v4lue-of-env");
        place.ran(command)
    };
    let mut survivors = Vec::new();
    let mut check = |export: &str, text: &str| {
        let found = secrets.iter().zip(KINDS.iter().cycle());
        let found = found.filter(|(secret, _)| {
            text.contains(&secret[..10]) || text.contains(&secret[secret.len() - 10..])
        });
        survivors.extend(found.map(|(secret, kind)| format!("{export}: {secret} {}", kind.0)));
        let masked = text.matches("[masked]").count();
        assert!(masked >= ROUNDS, "{export}: {masked}");
    };
    for args in EXPORTS {
        let ran = run(args);
        check(&args.join(" "), ran.expect_success());
        let has_count = ran.stderr.contains("of known kinds");
        assert!(
            has_count || args[0] == "audit" || args.contains(&"otlp"),
            "{ran:?}"
        );
    }
    run(&["runs", "show", &texts.concat(), "--debug"]).expect_refusal(4);
    let log = fs::read_to_string(place.path("ingestdeck-debug.log")).unwrap();
    check("debug", &log);
    assert!(
        survivors.is_empty(),
        "{}\n{}",
        survivors.len(),
        survivors.join("\n")
    );
}

#[test]
fn exports_of_ordinary_lines_mask_nothing() {
    let lines = include_str!("../../../src/report/redact/tests/ordinary.txt");
    let place = recorded(&attempt(9, lines));
    for args in EXPORTS {
        let ran = place.run(args);
        assert!(!ran.expect_success().contains("[masked]"), "{args:?}");
        let is_counted = ran.stderr.contains("of known kinds");
        assert!(
            !is_counted || ran.stderr.contains(" 0 values of known kinds"),
            "{ran:?}"
        );
        if args.contains(&"tape") {
            let tape = format!(".ktx/ingestdeck/runs/{RUN}/tape.jsonl");
            assert!(
                ran.stdout == fs::read_to_string(place.path(&tape)).unwrap(),
                "the bytes differ"
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
