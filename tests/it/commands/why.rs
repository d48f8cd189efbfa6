//! `why`: answers about lines of files that runs wrote.

mod oracle;

use std::{fs, path::PathBuf};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{
    end_to_end::{git, orchard_project},
    test_dir::TestDir,
};

pub(crate) const PAGE: &str = "wiki/global/crates.md";

/// One unit that writes its page twice.
const SCRIPT: &str = r##"
[[part]]
unit = "docs-crates"
steps = [
  { call = { tool = "read_raw_file", with = { path = "crates.md" } } },
  { call = { tool = "wiki_read", with = { key = "none" } } },
  { call = { tool = "wiki_search", with = { query = "crates" } } },
  { call = { tool = "record_verification_ledger", with = { summary = "Read it." } } },
  { call = { tool = "wiki_write", with = { key = "crates", summary = "About crates", content = "One.\n\nTwo.\n\nThree." } } },
  { call = { tool = "read_raw_span", with = { path = "crates.md", startLine = 1, endLine = 2 } } },
  { call = { tool = "wiki_write", with = { key = "crates", summary = "About crates", replacements = [{ oldText = "Two.", newText = "Second." }], rawPaths = ["crates.md"] } } },
  { say = "Done." },
]
"##;

/// A git project in which one unit wrote a page.
pub(crate) fn project_with_page() -> TestDir {
    let place = orchard_project();
    let claude = place.scripted_claude(SCRIPT).display().to_string();
    let ran = place.run(&[
        "run",
        "--ui",
        "none",
        "--no-reconcile",
        "--only",
        "docs-crates",
        "--claude-bin",
        &claude,
    ]);
    ran.expect_success();
    place
}

fn groups(place: &TestDir, what: &str) -> Vec<Value> {
    let ran = place.run(&["why", what, "--ui", "json"]);
    ran.expect_success()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The only group of an answer.
fn group(place: &TestDir, what: &str) -> Value {
    let mut groups = groups(place, what);
    assert_eq!(groups.len(), 1, "{groups:?}");
    groups.remove(0)
}

fn run_dir(place: &TestDir) -> PathBuf {
    fs::read_dir(place.path(".ktx/ingestdeck/runs"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path()
}

/// Number of the line of the page with this text.
fn line_of(place: &TestDir, text: &str) -> usize {
    let page = fs::read_to_string(place.path(PAGE)).unwrap();
    page.lines()
        .position(|line| line == text)
        .unwrap_or_else(|| panic!("{text} is not in {page}"))
        + 1
}

#[test]
fn line_names_its_call_and_the_reads_before() {
    let place = project_with_page();
    let of = |text: &str| group(&place, &format!("{PAGE}:{}", line_of(&place, text)));
    let (first, second) = (of("One."), of("Second."));
    for (group, turns, reads, raw_paths) in [
        (
            &first,
            5,
            json!([["search", "crates", null], ["raw_file", "crates.md", null]]),
            json!([]),
        ),
        (
            &second,
            7,
            json!([
                ["raw_file", "crates.md", 1],
                ["search", "crates", null],
                ["raw_file", "crates.md", null]
            ]),
            json!(["crates.md"]),
        ),
    ] {
        let call = &group["call"];
        assert_eq!(
            (&group["origin"], &group["attempt"]["unit"]),
            (&json!("attempt"), &json!("docs-crates")),
            "{group}"
        );
        assert_eq!(
            (&call["tool"], &call["turn"]),
            (&json!("wiki_write"), &json!(turns)),
            "{group}"
        );
        let shown = call["reads"].as_array().unwrap().iter();
        let shown: Value = shown
            .map(|read| json!([read["kind"], read["target"], read["first_line"]]))
            .collect();
        assert_eq!(
            (shown, &call["raw_paths"]),
            (reads, &raw_paths),
            "failed reads are not listed: {group}"
        );
        assert_eq!(group["missing"], json!([]), "{group}");
    }
    assert_ne!(first["call"]["id"], second["call"]["id"]);
    let tape = fs::read_to_string(run_dir(&place).join("tape.jsonl")).unwrap();
    let entry = tape
        .lines()
        .nth(second["call"]["entry"].as_u64().unwrap() as usize + 1)
        .unwrap();
    assert!(
        entry.contains(second["call"]["id"].as_str().unwrap()) && entry.contains("Second."),
        "{entry}"
    );
    let run = second["run"].as_str().unwrap();
    assert_eq!(
        second["replay"],
        format!(
            "ingestdeck replay {run} --entry {}",
            second["call"]["entry"]
        )
    );
    assert_eq!(
        second["commit"]["id"],
        git(&place, &["rev-parse", "HEAD"]).trim()
    );
}

#[test]
fn text_answer_groups_lines_of_one_call() {
    let place = project_with_page();
    let ran = place.run(&["why", PAGE]);
    let text = ran.expect_success();
    let heads: Vec<&str> = text.lines().filter(|line| line.starts_with(PAGE)).collect();
    let second = line_of(&place, "Second.");
    let last = line_of(&place, "Three.");
    assert_eq!(
        heads,
        [
            format!("{PAGE}:1-{}", second - 1),
            format!("{PAGE}:{second}"),
            format!("{PAGE}:{}-{last}", second + 1)
        ]
    );
    for expected in [
        "  unit      docs-crates, attempt 1\n",
        "  call      wiki_write in turn 7, entry ",
        "  based on  crates.md\n",
        "  had read  raw file crates.md, lines 1-2\n            search crates\n            raw file crates.md\n",
        "  commit    ",
        "  replay    ingestdeck replay ",
    ] {
        assert!(text.contains(expected), "{expected} is missing in\n{text}");
    }
    let below = {
        let mut command = place.command(&["why", "crates.md:1-3"]);
        command.current_dir(place.path("wiki/global"));
        place.ran(command)
    };
    assert!(
        below.expect_success().starts_with(&format!("{PAGE}:1-3\n")),
        "{below:?}"
    );
    assert_eq!(
        place.run(&["why", PAGE, "--ui", "none"]).expect_success(),
        ""
    );
}

#[test]
fn lines_of_the_user_name_commit_or_change() {
    let place = project_with_page();
    let page = fs::read_to_string(place.path(PAGE)).unwrap();
    place.write(PAGE, page.replace("Three.", "Third.") + "By hand.\n");
    git(
        &place,
        &["commit", "--quiet", "--all", "--message=Correct it"],
    );
    let page = fs::read_to_string(place.path(PAGE)).unwrap();
    place.write(PAGE, page + "Not committed.\n");
    let of = |text: &str| group(&place, &format!("{PAGE}:{}", line_of(&place, text)));
    let (third, open) = (of("Third."), of("Not committed."));
    assert_eq!(
        (&third["origin"], &third["commit"]["subject"]),
        (&json!("commit"), &json!("Correct it")),
        "{third}"
    );
    assert_eq!(
        (&third["commit"]["author"], &third["run"]),
        (&json!("Somebody"), &json!(null)),
        "{third}"
    );
    assert_eq!(
        (&open["origin"], &open["commit"]),
        (&json!("uncommitted"), &json!(null)),
        "{open}"
    );
    assert_eq!(of("Second.")["origin"], "attempt");
    let shown = place.run(&["why", &format!("{PAGE}:{}", line_of(&place, "Third."))]);
    assert!(
        shown.expect_success().contains("no run made this commit"),
        "{shown:?}"
    );
    assert_eq!(
        group(&place, "ktx.yaml:1")["origin"],
        "commit",
        "any file of the project has an answer"
    );
    place.write("wiki/global/new.md", "New.\n");
    assert_eq!(group(&place, "wiki/global/new.md")["origin"], "uncommitted");
    place.write("wiki/global/empty.md", "");
    assert_eq!(
        place.run(&["why", "wiki/global/empty.md"]).expect_success(),
        "wiki/global/empty.md is empty\n"
    );
}

#[test]
fn missing_parts_of_the_record_are_named() {
    let place = project_with_page();
    let what = format!("{PAGE}:{}", line_of(&place, "Second."));
    let complete = group(&place, &what);
    let tape = run_dir(&place).join("tape.jsonl");
    let text = fs::read_to_string(&tape).unwrap();
    let missing = |group: &Value| group["missing"].to_string();

    // Without the patch, the commit shows what the only attempt wrote.
    fs::rename(place.path(".ktx/ingest-patches"), place.path("../patches")).unwrap();
    assert_eq!(group(&place, &what)["call"], complete["call"]);
    fs::rename(place.path("../patches"), place.path(".ktx/ingest-patches")).unwrap();

    let replaced = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        fs::write(&tape, text.replace(from, to)).unwrap();
        group(&place, &what)
    };
    let unread = replaced(
        "{\"kind\":\"patch_written\"",
        "{\"kind\":\"patch_left_out\"",
    );
    assert_eq!(
        (&unread["attempt"], &unread["call"]),
        (&complete["attempt"], &json!(null)),
        "{unread}"
    );
    assert!(
        missing(&unread).contains("does not name the patch"),
        "{unread}"
    );
    let old = replaced("\"writes\":[", "\"from_elsewhere\":[");
    assert_eq!(
        (&old["attempt"], &old["call"]),
        (&complete["attempt"], &json!(null)),
        "{old}"
    );
    assert!(
        missing(&old).contains("does not contain the writes"),
        "{old}"
    );
    let odd = replaced("\"edits\":[[", "\"edits\":[[9999,1,1],[");
    assert!(missing(&odd).contains("do not fit"), "{odd}");
    let torn = text.find("{\"kind\":\"attempt_ended\"").unwrap();
    fs::write(&tape, &text[..torn]).unwrap();
    let torn = group(&place, &what);
    assert!(
        torn["attempt"] == complete["attempt"] && missing(&torn).contains("ends before"),
        "{torn}"
    );
    fs::write(
        &tape,
        text.replace(
            complete["run"].as_str().unwrap(),
            "01a20000-0000-7000-8000-0000000000aa",
        ),
    )
    .unwrap();
    let other = group(&place, &what);
    assert!(missing(&other).contains("another run"), "{other}");

    // A clone has the commit but no record.
    git(&place, &["clone", "--quiet", ".", "../clone"]);
    let ran = place.run(&["why", PAGE, "--ui", "json", "--project-dir", "../clone"]);
    let clone: Value = serde_json::from_str(ran.expect_success()).unwrap();
    assert_eq!(
        (&clone["attempt"], &clone["run"]),
        (&complete["attempt"], &complete["run"]),
        "{clone}"
    );
    assert!(
        missing(&clone).contains("is not recorded in this project"),
        "{clone}"
    );
}

#[test]
fn rewritten_history_keeps_the_answer() {
    let place = project_with_page();
    let what = |text: &str| format!("{PAGE}:{}", line_of(&place, text));
    let before = group(&place, &what("Second."));
    let page = fs::read_to_string(place.path(PAGE)).unwrap();
    place.write(PAGE, page + "Added while amending.\n");
    let message = git(&place, &["log", "-1", "--format=%B"]) + "Signed-off-by: me\n";
    git(
        &place,
        &["commit", "--quiet", "--all", "--amend", "-m", &message],
    );
    let after = group(&place, &what("Second."));
    assert_ne!(before["commit"]["id"], after["commit"]["id"]);
    assert_eq!(before["call"], after["call"]);
    assert_eq!(
        group(&place, &what("Added while amending."))["origin"],
        "run"
    );
    let second = line_of(&place, "Second.");
    git(&place, &["mv", PAGE, "wiki/global/boxes.md"]);
    git(&place, &["commit", "--quiet", "--message=Rename it"]);
    let moved = group(&place, &format!("wiki/global/boxes.md:{second}"));
    assert_eq!(
        (&moved["call"], &moved["commit"]["path"]),
        (&before["call"], &json!(PAGE)),
        "{moved}"
    );
}

#[test]
fn attempts_of_a_large_commit_are_in_its_note() {
    let place = project_with_page();
    let what = format!("{PAGE}:{}", line_of(&place, "Second."));
    let before = group(&place, &what);
    let message = git(&place, &["log", "-1", "--format=%B"]);
    let (rest, attempts) = message.split_once("Ingest-Unit: ").unwrap();
    let run = rest
        .lines()
        .find(|line| line.starts_with("Ingest-Run: "))
        .unwrap();
    let noted = format!("{rest}Ingest-Attempts: 2000 in refs/notes/ingestdeck\n");
    git(&place, &["commit", "--quiet", "--amend", "-m", &noted]);

    let without = group(&place, &what);
    assert_eq!(
        (&without["origin"], &without["run"]),
        (&json!("unknown_attempt"), &before["run"]),
        "{without}"
    );
    let missing = without["missing"][0].as_str().unwrap();
    assert!(
        missing.contains("`git fetch origin refs/notes/ingestdeck:refs/notes/ingestdeck`"),
        "{missing}"
    );
    assert!(
        place
            .run(&["why", &what])
            .expect_success()
            .contains("2000 attempts")
    );
    let note = format!("{run}\nIngest-Unit: {attempts}");
    git(
        &place,
        &[
            "notes",
            "--ref",
            "ingestdeck",
            "add",
            "-m",
            "Ingest-Run: latest",
            "HEAD",
        ],
    );
    assert_eq!(
        group(&place, &what)["missing"],
        without["missing"],
        "a note of another run"
    );
    git(
        &place,
        &[
            "notes",
            "--ref",
            "ingestdeck",
            "add",
            "--force",
            "-m",
            &note,
            "HEAD",
        ],
    );
    let after = group(&place, &what);
    assert_eq!(
        (&after["attempt"], &after["call"]),
        (&before["attempt"], &before["call"]),
        "{after}"
    );
    assert_eq!(after["missing"], json!([]));
}

#[test]
fn hostile_trailers_are_answered_within_limits() {
    let place = project_with_page();
    let what = format!("{PAGE}:{}", line_of(&place, "Second."));
    let before = group(&place, &what);
    let message = git(&place, &["log", "-1", "--format=%B"]);
    let amend = |message: String| {
        fs::write(place.path("../message"), message).unwrap();
        git(
            &place,
            &["commit", "--quiet", "--amend", "--file", "../message"],
        );
        group(&place, &what)
    };
    let attempt = "Ingest-Unit: docs-crates\nIngest-Attempt: 1\n";
    let repeated = amend(format!("{message}{}", attempt.repeat(5_000)));
    assert_eq!(
        (&repeated["call"], &repeated["missing"]),
        (&before["call"], &json!([])),
        "{repeated}"
    );
    let other =
        |number: u32| format!("Ingest-Run: 01a20000-0000-7000-8000-{number:012x}\n{attempt}");
    let many = amend(format!(
        "{message}{}",
        (0..300).map(other).collect::<String>()
    ));
    assert_eq!(many["call"], before["call"], "{many}");
    // Without the known attempt, the line may be that of any other one.
    let unknown = amend(format!(
        "{}\n\n{}",
        "x".repeat(5_000),
        (0..300).map(other).collect::<String>()
    ));
    assert_eq!(unknown["origin"], "unknown_attempt", "{unknown}");
    assert_eq!(unknown["candidates"].as_array().unwrap().len(), 20);
    let missing = unknown["missing"].as_array().unwrap();
    assert_eq!(
        (missing.len(), &missing[20]),
        (21, &json!("45 more problems about the records"))
    );
    assert_eq!(unknown["commit"]["subject"].as_str().unwrap().len(), 400);
}

/// Several attempts that claim the page, each with a patch of 15 MiB.
#[test]
fn large_patches_are_read_within_a_limit() {
    let place = project_with_page();
    let second = format!("{PAGE}:{}", line_of(&place, "Second."));
    let before = group(&place, &second);
    let large = format!("+{}\n", "x".repeat(1 << 20)).repeat(15);
    let header = format!(
        "diff --git a/{PAGE} b/{PAGE}\nnew file mode 100644\n--- /dev/null\n+++ b/{PAGE}\n"
    );
    place.write(
        ".ktx/ingest-patches/large.patch",
        format!("{header}@@ -0,0 +1,15 @@\n{large}"),
    );
    let tape = run_dir(&place).join("tape.jsonl");
    let mut text = fs::read_to_string(&tape).unwrap();
    let written: Value = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .find(is_patch)
        .expect("the note of the patch");
    let mut message = git(&place, &["log", "-1", "--format=%B"]);
    for number in 2..=7 {
        let mut written = written.clone();
        (written["seq"], written["try"]) = (json!(text.lines().count() - 1), json!(number));
        written["note"]["path"] = json!(".ktx/ingest-patches/large.patch");
        text += &format!("{written}\n");
        message += &format!("Ingest-Unit: docs-crates\nIngest-Attempt: {number}\n");
    }
    fs::write(&tape, text).unwrap();
    let page = fs::read_to_string(place.path(PAGE)).unwrap();
    place.write(PAGE, page + "Added while amending.\n");
    fs::write(place.path("../message"), message).unwrap();
    git(
        &place,
        &[
            "commit",
            "--quiet",
            "--all",
            "--amend",
            "--file",
            "../message",
        ],
    );
    assert_eq!(group(&place, &second)["call"], before["call"]);
    let added = group(
        &place,
        &format!("{PAGE}:{}", line_of(&place, "Added while amending.")),
    );
    assert_eq!(
        added["origin"], "attempt",
        "only the last attempt was not compared: {added}"
    );
    assert_eq!(
        (&added["attempt"]["attempt"], &added["call"]),
        (&json!(7), &json!(null)),
        "{added}"
    );
    let missing = added["missing"].to_string();
    assert!(
        missing.contains("only 128 MiB of the patches and texts of attempts are compared"),
        "{missing}"
    );
}

fn is_patch(entry: &Value) -> bool {
    entry["note"]["kind"] == "patch_written"
}

#[test]
fn shallow_clone_is_named_as_incomplete() {
    let place = project_with_page();
    place.write("note.md", "x\n");
    git(&place, &["add", "note.md"]);
    git(&place, &["commit", "--quiet", "--message=More"]);
    git(
        &place,
        &[
            "clone",
            "--quiet",
            "--depth=1",
            &format!("file://{}", place.path("").display()),
            "../shallow",
        ],
    );
    let of = |what: &str| {
        let ran = place.run(&["why", what, "--ui", "json", "--project-dir", "../shallow"]);
        serde_json::from_str::<Value>(ran.expect_success()).unwrap()
    };
    let page = of(PAGE);
    assert_eq!(page["commit"]["subject"], "More", "{page}");
    assert!(
        page["missing"]
            .to_string()
            .contains("are not in this clone"),
        "{page}"
    );
    let complete = group(&place, "ktx.yaml");
    assert_eq!(
        complete["missing"],
        json!([]),
        "the first commit has no parents: {complete}"
    );
}

#[test]
fn place_that_does_not_exist_is_refused() {
    let place = project_with_page();
    place.write("wiki/global/a:3", "x\n");
    place.write("wiki/global/zero.bin", [0; 9]);
    let large = fs::File::create(place.path("wiki/global/large.md")).unwrap();
    large.set_len(17 << 20).unwrap();
    for (what, code, expected) in [
        (
            "wiki/global/none.md",
            4,
            "there is no file `wiki/global/none.md`",
        ),
        ("wiki/global/crates.md/x", 4, "there is no file"),
        ("wiki/global/crates.md:999", 4, "and line 999 was asked for"),
        ("wiki/global/crates.md:0", 2, "invalid lines `0`"),
        ("wiki/global/crates.md:3-2", 2, "invalid lines `3-2`"),
        ("wiki/global/crates.md:3-", 2, "invalid lines `3-`"),
        (
            "wiki/global/crates.md:99999999999999999999",
            2,
            "invalid lines",
        ),
        ("wiki", 2, "is not a regular file"),
        ("..", 2, "is not in the project"),
        ("/etc/passwd", 2, "is not in the project"),
        ("wiki/global/zero.bin", 2, "is a binary file"),
        ("wiki/global/large.md", 2, "is larger than 16 MiB"),
    ] {
        let ran = place.run(&["why", what]);
        let refusal = ran.expect_refusal(code);
        assert!(refusal.contains(expected), "{what}: {refusal}");
    }
    assert_eq!(
        group(&place, "wiki/global/a:3")["origin"],
        "uncommitted",
        "the whole name is a file"
    );
    let bare = TestDir::new();
    bare.notes(&["one"]);
    assert!(
        bare.run(&["why", "notes/one.md"])
            .expect_refusal(2)
            .contains("no git repository")
    );
}

#[test]
fn programs_of_the_repository_do_not_run() {
    let place = project_with_page();
    let trap = place.script(
        "trap",
        &format!("touch '{}'\ncat \"$@\"", place.path("PWNED").display()),
    );
    let trap = trap.display();
    place.write(".gitattributes", "*.md diff=trap filter=trap\n");
    place.write(
        ".mailmap",
        "Another <another@example.com> <local@ktx.local>\n",
    );
    place.write(".ignored", git(&place, &["rev-parse", "HEAD"]));
    for (key, value) in [
        ("diff.trap.textconv", trap.to_string()),
        ("filter.trap.clean", trap.to_string()),
        ("core.fsmonitor", trap.to_string()),
        ("core.pager", trap.to_string()),
        ("blame.ignoreRevsFile", ".ignored".to_owned()),
        ("color.ui", "always".to_owned()),
        ("blame.coloring", "highlightRecent".to_owned()),
    ] {
        git(&place, &["config", key, &value]);
    }
    let answer = group(&place, &format!("{PAGE}:{}", line_of(&place, "Second.")));
    assert_eq!(
        (&answer["origin"], &answer["commit"]["author"]),
        (&json!("attempt"), &json!("ktx Local")),
        "{answer}"
    );
    assert!(!place.path("PWNED").exists());
}

#[test]
fn files_that_git_cannot_read_are_named_with_a_remedy() {
    let place = project_with_page();
    git(&place, &["config", "blame.ignoreRevsFile", ".missing"]);
    let answer = place.run(&["why", PAGE]);
    let sentence = answer.expect_refusal(1);
    assert!(
        sentence.contains(".missing") && sentence.contains("correct `blame.ignoreRevsFile`"),
        "{answer:?}"
    );
    for line in ["a private line".to_owned(), "private ".repeat(100)] {
        place.write(".missing", format!("{line}\n"));
        let answer = place.run(&["why", PAGE]);
        let sentence = answer.expect_refusal(1);
        assert!(
            sentence.contains("not a list of commits") && !sentence.contains("private"),
            "{answer:?}"
        );
    }
    git(&place, &["config", "--unset", "blame.ignoreRevsFile"]);
    nix::unistd::mkfifo(&place.path(".mailmap"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let answer = place.run(&["why", PAGE]);
    assert!(
        answer
            .expect_refusal(2)
            .contains("`.mailmap` is not a regular file"),
        "{answer:?}"
    );
}

/// The commit of a run that continues another one contains the patch of that one.
#[test]
fn patch_of_a_prior_run_names_its_attempt() {
    let place = orchard_project();
    let hangs = "[[part]]\nsteps = [{ say = \"now\" }, \"hang\"]\n";
    let claude = place
        .scripted_claude(&format!("{SCRIPT}{hangs}"))
        .display()
        .to_string();
    let args = [
        "run",
        "--ui",
        "lines",
        "--only",
        "docs-{crates,growers}",
        "--claude-bin",
        &claude,
    ];
    let mut running = place.start(place.command(&args));
    running.wait_for("stdout", &format!("{:<24} ✓ succeeded", "docs-crates#1"));
    running.wait_for("stdout", &format!("{:<24} ● session", "docs-growers#1"));
    running.signal(Signal::SIGKILL);
    running.end();
    let prior = run_dir(&place)
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    place.scripted_claude(
        SCRIPT
            .replace("docs-crates", "docs-growers")
            .replace("crates", "growers")
            .as_str(),
    );
    place
        .run(&[
            "run",
            "--ui",
            "none",
            "--no-reconcile",
            "--resume-run",
            "latest",
            "--claude-bin",
            &claude,
        ])
        .expect_success();
    let message = git(&place, &["log", "-1", "--format=%B"]);
    let trailers = format!(
        "Ingest-Unit: docs-crates\nIngest-Attempt: 1 of {prior}\nIngest-Unit: docs-growers\nIngest-Attempt: 1\n"
    );
    assert!(message.contains(&trailers), "{message}");
    let answer = group(&place, &format!("{PAGE}:{}", line_of(&place, "Second.")));
    assert_eq!(
        answer["attempt"],
        json!({"run": prior, "unit": "docs-crates", "attempt": 1}),
        "{answer}"
    );
    assert!(
        answer["run"] != prior.as_str() && answer["call"]["turn"] == 7,
        "{answer}"
    );
    assert!(
        answer["replay"].as_str().unwrap().contains(&prior),
        "{answer}"
    );
}

/// Texts are saved one by one, so the first one is committed while the second one runs.
#[test]
fn active_run_is_named_as_active() {
    let place = orchard_project();
    let script = r#"
[[part]]
prompt = "stands for"
steps = [
  { call = { tool = "wiki_write", with = { key = "nrr", summary = "s", content = "It is a text." } } },
  { say = "Captured." },
]
[[part]]
steps = [{ say = "now" }, "hang"]
"#;
    let claude = place.scripted_claude(script).display().to_string();
    let args = [
        "run",
        "--ui",
        "lines",
        "--claude-bin",
        &claude,
        "--text",
        "NRR stands for net.",
        "--text",
        "Other.",
    ];
    let mut running = place.start(place.command(&args));
    running.wait_for("stdout", "saved as commit");
    let answer = group(&place, "wiki/global/nrr.md");
    running.signal(Signal::SIGKILL);
    running.end();
    assert_eq!(answer["call"]["tool"], "wiki_write", "{answer}");
    assert!(
        answer["missing"].to_string().contains("is still active"),
        "{answer}"
    );
}
