//! `run --text` and `--file`: texts become units, one after the other, up to a commit for each.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::{PermissionsExt as _, symlink},
    process::Stdio,
};

use serde_json::{Value, json};

use super::{
    end_to_end::{git, orchard_project, states, summary},
    test_dir::{CommandOutput, TestDir, parse_json_events, tape},
};

/// The first text creates a page, the second one edits it, the third one fails at its first attempt.
const SCRIPT: &str = r##"
[[part]]
prompt = "stands for"
steps = [
  { call = { tool = "load_skill", with = { name = "wiki_capture" } } },
  { call = { tool = "wiki_write", with = { key = "nrr", summary = "Net revenue retention", content = "# NRR" } } },
  { say = "Captured." },
]
[[part]]
prompt = "yearly"
steps = [
  { call = { tool = "wiki_write", with = { key = "nrr", summary = "Yearly", replacements = [{ oldText = "# NRR", newText = "Yearly NRR" }] } } },
  { say = "Updated." },
]
[[part]]
steps = [{ call = { tool = "wiki_remove", with = { key = "none" } } }, { say = "Gone." }]
"##;

const FIRST: &str = "NRR stands for net revenue retention.";
const KEY: &str = "text-nrr-stands-for-net-revenue-1aceb26b";

fn run_text(place: &TestDir, claude: &str, args: &[&str]) -> CommandOutput {
    place.run(&[&["run", "--ui", "json", "--claude-bin", claude], args].concat())
}

fn subjects(place: &TestDir) -> Vec<String> {
    git(place, &["log", "--format=%an: %s"])
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn each_text_builds_on_the_previous_one() {
    let place = orchard_project();
    let claude = place.scripted_claude(SCRIPT).display().to_string();
    place.write("notes/second.md", "It is a yearly figure.");
    let output = run_text(
        &place,
        &claude,
        &["--text", FIRST, "--file", "notes/second.md"],
    );
    let events = parse_json_events(&output.stdout);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(summary(&events)["units"], json!({"succeeded": 2}));
    assert_eq!(events[0]["event"]["step_budget"], 30);
    let page = fs::read_to_string(place.path("wiki/global/nrr.md")).unwrap();
    assert!(
        page.contains("summary: Yearly") && page.contains("Yearly NRR"),
        "{page}"
    );
    let subjects = subjects(&place);
    assert_eq!(subjects.len(), 3, "one commit for each text: {subjects:?}");
    for subject in &subjects[..2] {
        assert!(
            subject.starts_with("ktx Local: Memory ingest (external_ingest): 1 wiki, 0 sl [chat="),
            "{subject}"
        );
    }
    let changed = git(&place, &["diff", "--name-only", "HEAD~2"]);
    assert_eq!(
        changed, "wiki/global/nrr.md\n",
        "texts are not copied into the repository"
    );
}

#[test]
fn failed_text_is_resumed_from_the_record() {
    let place = TestDir::new();
    place.write("ktx.yaml", "llm: {provider: {backend: claude-code}}\n");
    let claude = place.scripted_claude(SCRIPT).display().to_string();
    let mut command = place.command(&[
        "run",
        "--ui",
        "json",
        "--claude-bin",
        &claude,
        "--text",
        FIRST,
        "--file",
        "-",
    ]);
    command.stdin(Stdio::from(
        fs::File::open(place.write("input.txt", "Remove it.")).unwrap(),
    ));
    let output = place.ran(command);
    assert_eq!(output.code, Some(100), "{output:?}");
    assert!(output.stderr.contains("no git repository"), "{output:?}");
    assert!(
        place.path("wiki/global/nrr.md").exists(),
        "the first text is saved"
    );
    fs::remove_file(place.path("input.txt")).unwrap();
    let record = fs::read_dir(place.path(".ktx/ingestdeck/runs"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let mode = |path: &str| {
        fs::metadata(record.join(path))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!((mode(""), mode("tape.jsonl")), (0o700, 0o600));
    place.scripted_claude("[[part]]\nsteps = [{ say = \"Nothing to capture.\" }]\n");
    let resumed = run_text(&place, &claude, &["--resume-run", "latest"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    let events = parse_json_events(&resumed.stdout);
    assert_eq!(
        summary(&events)["units"],
        json!({"reused": 1, "succeeded": 1}),
        "{resumed:?}"
    );
    let stdin = "text-stdin-95ff5835";
    assert_eq!(
        states(&events, stdin).last().map(String::as_str),
        Some("unchanged"),
        "{resumed:?}"
    );
    let kept = place.run(&["runs", "prune", "--keep", "1", "--dry-run"]);
    let first = record.file_name().unwrap().to_str().unwrap();
    assert!(
        kept.expect_success().contains(&first[first.len() - 6..]),
        "no plan needs its run: {kept:?}"
    );
    let again = place.run(&["run", "--failed", "--claude-bin", &claude]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.stderr.contains("no unit failed in run"), "{again:?}");
    let report = place.run(&["report", "--format", "json"]);
    assert!(report.expect_success().contains(KEY), "{report:?}");
}

/// A text with a connection writes a source; others edit the page that refers to it, or leave a broken reference.
const SOURCES: &str = r##"
[[part]]
prompt = "Treat orders"
steps = [
  { call = { tool = "sl_write_source", with = { connectionId = "wh", sourceName = "orders", source = { name = "orders", table = "shop.orders", grain = ["id"], columns = [{ name = "id", type = "number" }] } } } },
  { call = { tool = "wiki_write", with = { key = "rules", summary = "Rules", content = "Text.", sl_refs = ["orders"] } } },
  { say = "Done." },
]
[[part]]
prompt = "page only"
steps = [
  { call = { tool = "wiki_write", with = { key = "rules", summary = "Rules, edited" } } },
  { call = { tool = "wiki_write", with = { key = "more", summary = "More", content = "Text.", refs = ["rules"], sl_refs = ["orders"] } } },
  { say = "Done." },
]
[[part]]
steps = [
  { call = { tool = "wiki_write", with = { key = "loose", summary = "Loose", content = "Text.", refs = ["nowhere"] } } },
  { say = "Done." },
]
"##;

#[test]
fn texts_pass_the_gates_of_units() {
    let place = orchard_project();
    place.write(
        "ktx.yaml",
        "connections: {wh: {driver: postgres}}\nllm: {provider: {backend: claude-code}}\n",
    );
    git(
        &place,
        &["commit", "--quiet", "--all", "--message=Settings"],
    );
    let claude = place.scripted_claude(SOURCES).display().to_string();
    let first = run_text(&place, &claude, &["wh", "--text", "Treat orders as paid."]);
    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(
        subjects(&place)[0].contains(": Memory ingest (external_ingest): 1 wiki, 1 sl ["),
        "{first:?}"
    );
    let query = "SELECT connection FROM attempts WHERE unit LIKE 'text-%'";
    let connections = place.run(&["runs", "query", query, "--format", "csv"]);
    assert_eq!(connections.expect_success(), "connection\nwh\n");
    let others = run_text(
        &place,
        &claude,
        &["--text", "page only", "--text", "A loose end."],
    );
    assert_eq!(others.code, Some(100), "{others:?}");
    let events = parse_json_events(&others.stdout);
    assert_eq!(
        summary(&events)["units"],
        json!({"succeeded": 1, "failed": 1}),
        "{others:?}"
    );
    assert!(
        others
            .stdout
            .contains("wiki references target missing page(s): loose -> nowhere"),
        "{others:?}"
    );
    let changed = git(&place, &["diff", "--name-only", "HEAD~1"]);
    assert_eq!(changed, "wiki/global/more.md\nwiki/global/rules.md\n");
}

#[test]
fn detached_run_receives_its_texts() {
    let place = TestDir::new();
    place.write(
        "ktx.yaml",
        "connections: {wh: {driver: postgres}}\nllm: {provider: {backend: claude-code}}\n",
    );
    let claude = place.scripted_claude(SCRIPT).display().to_string();
    let args = [
        "run",
        "--detach",
        "--ui",
        "json",
        "--claude-bin",
        &claude,
        "wh",
        "--file",
        "-",
        "--text",
        FIRST,
    ];
    let mut command = place.command(&args);
    command.stdin(Stdio::piped());
    let long = format!("It is a yearly figure. {}", "Filler. ".repeat(5_000));
    let (reader, mut writer) = std::io::pipe().unwrap();
    command.stdin(Stdio::from(reader));
    let running = place.start(command);
    writer.write_all(long.as_bytes()).unwrap();
    drop(writer);
    let output = running.end();
    let launched: Value = serde_json::from_str(output.expect_success()).unwrap();
    assert_eq!(launched["type"], "launched");
    place.wait_until_no_process_left();
    let page = fs::read_to_string(place.path("wiki/global/nrr.md")).unwrap();
    assert!(page.contains("Yearly NRR"), "{page}");
    let planned = fs::read_to_string(tape(&place.path(""))).unwrap();
    let planned: Value = serde_json::from_str(planned.lines().nth(1).unwrap()).unwrap();
    let units = planned["note"]["units"].as_array().unwrap();
    assert_eq!(
        (units[0]["unit"].as_str(), units[0]["connection"].as_str()),
        (Some(KEY), Some("wh"))
    );
    assert_eq!(
        units[1]["text"],
        long.as_str(),
        "stdin is read once, by the client"
    );
}

#[test]
fn unusable_texts_are_refused_before_a_run() {
    let place = TestDir::new();
    place.write(
        "ktx.yaml",
        "connections: {a: {driver: postgres}, b: {driver: postgres}}\n",
    );
    place.write("nul.md", "a\0b");
    place.write("a.md", "Some text.");
    symlink("/etc/hostname", place.path("link.md")).unwrap();
    let cases: [(&[&str], i32, &str); 12] = [
        (
            &["--text", " "],
            2,
            "cannot use the text of --text: it is empty",
        ),
        (
            &["--file", "nul.md"],
            2,
            "cannot use `nul.md`: it is not text",
        ),
        (&["--file", "."], 2, "cannot read `.`: it is a directory"),
        (
            &["--file", "link.md"],
            2,
            "cannot read `link.md`: it is a link that leads outside the project",
        ),
        (
            &["--file", "none.md"],
            2,
            "cannot read `none.md`: No such file",
        ),
        (&["--file", "-"], 2, "cannot use stdin: it is empty"),
        (&["--file", "-", "--file", "-"], 2, "stdin is named twice"),
        (
            &["--text", "a text", "--full"],
            2,
            "--full selects recorded or planned units, not texts",
        ),
        (
            &["--text", "a text", "--failed"],
            2,
            "--failed selects recorded or planned units, not texts",
        ),
        (
            &["a", "b", "--text", "a text"],
            2,
            "texts belong to one connection, but there are several: a, b",
        ),
        (
            &["c", "--text", "a text"],
            4,
            "ktx.yaml has no connection `c`",
        ),
        (
            &["--text", "a text", "--only", "docs-*"],
            4,
            "no unit matches `docs-*`",
        ),
    ];
    for ui in ["lines", "json"] {
        for (args, code, message) in cases {
            let output = place.run(&[&["run", "--ui", ui], args].concat());
            assert!(
                output.expect_refusal(code).starts_with(message),
                "{args:?}: {output:?}"
            );
        }
    }
    let detached = place.run(&["run", "--detach", "--file", "none.md"]);
    assert!(
        detached
            .expect_refusal(2)
            .starts_with("cannot read `none.md`"),
        "{detached:?}"
    );
    assert!(
        !place.path(".ktx/ingestdeck/runs").exists(),
        "nothing is recorded"
    );
}

#[test]
fn texts_without_content_start_no_agent() {
    let place = TestDir::new();
    place.write("ktx.yaml", "llm: {provider: {backend: claude-code}}\n");
    let output = place.run(&[
        "run",
        "--ui",
        "lines",
        "--text",
        "hi",
        "--text",
        "hi",
        "--claude-bin",
        "/bin/false",
    ]);
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (Some(0), ""),
        "{output:?}"
    );
    let expected = "warning: \"hi\" is left out: an earlier text, \"hi\", is equal\n\
                    warning: \"hi\" is skipped: it is too short to contain knowledge\n\
                    ingestdeck: there is nothing to capture\n";
    assert_eq!(output.stderr, expected);
}
