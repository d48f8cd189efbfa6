//! `run --review` and `review`: nothing becomes a commit before a person has decided about it.

use std::{fs, time::Instant};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use super::{
    end_to_end::newest_tape,
    test_dir::{CommandOutput, DEADLINE, TestDir, parse_json_events},
};
use crate::support::git::git;

/// A unit `docs-NAME` that writes the page NAME, with other content if the prompt contains feedback.
pub(super) fn part(name: &str) -> String {
    let write = |condition: &str, content: &str| {
        format!(
            r#"
[[part]]
unit = "docs-{name}"
{condition}
steps = [
  {{ call = {{ tool = "read_raw_file", with = {{ path = "{name}.md" }} }} }},
  {{ call = {{ tool = "record_verification_ledger", with = {{ summary = "Read it." }} }} }},
  {{ call = {{ tool = "wiki_write", with = {{ key = "{name}", summary = "About {name}", content = "{content}" }} }} }},
  {{ say = "Done." }},
]
"#
        )
    };
    [
        write("prompt = \"Make it longer\"", "Second text."),
        write("", "First text."),
    ]
    .concat()
}

pub(super) const NAMES: [&str; 3] = ["one", "two", "three"];

/// A project in a git repository with a unit for each of [`NAMES`].
pub(super) fn place() -> (TestDir, String) {
    let place = TestDir::new();
    place.notes(&NAMES);
    commit_all(&place);
    let claude = place
        .scripted_claude(&NAMES.map(part).concat())
        .display()
        .to_string();
    (place, claude)
}

fn commit_all(place: &TestDir) {
    let root = place.path("");
    git(&root, &["init", "--quiet"]);
    git(&root, &["add", "."]);
    git(&root, &["commit", "--quiet", "-m", "start"]);
}

pub(super) fn run(place: &TestDir, claude: &str) -> CommandOutput {
    place.run(&[
        "run",
        "--review",
        "--no-reconcile",
        "--ui",
        "json",
        "--claude-bin",
        claude,
    ])
}

pub(super) fn review(place: &TestDir, claude: &str, more: &[&str]) -> CommandOutput {
    place.run(&[&["review", "--ui", "json", "--claude-bin", claude], more].concat())
}

pub(super) fn pages(place: &TestDir) -> Vec<String> {
    let pages = fs::read_dir(place.path("wiki/global"))
        .into_iter()
        .flatten();
    let mut names: Vec<String> = pages
        .map(|page| page.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub(super) fn subjects(place: &TestDir) -> usize {
    git(&place.path(""), &["log", "--format=%s"])
        .lines()
        .count()
}

/// The JSON lines of a listing: the changes, then the counts.
pub(super) fn listed(output: &CommandOutput) -> (Vec<Value>, Value) {
    let mut lines: Vec<Value> = output
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let counts = lines
        .pop()
        .unwrap_or_else(|| panic!("nothing is listed: {output:?}"));
    (lines, counts)
}

#[test]
fn headless_run_ends_and_waits_for_its_review() {
    let (place, claude) = place();
    let output = run(&place, &claude);
    assert_eq!(output.code, Some(103), "{output:?}");
    let events = parse_json_events(&output.stdout);
    let summary = &events.last().unwrap()["event"];
    assert_eq!(
        (&summary["outcome"], &summary["commit"]),
        (&"waiting_approval".into(), &Value::Null)
    );
    assert!(
        events
            .iter()
            .any(|line| line["event"]["state"] == "waiting_approval")
    );
    assert_eq!(
        (pages(&place), subjects(&place)),
        (Vec::new(), 1),
        "nothing reaches the project"
    );
    let (changes, counts) = listed(&review(&place, &claude, &["--list", "--diff"]));
    assert_eq!(changes.len(), 3);
    assert!(
        changes.iter().all(|change| change["decision"] == "open"),
        "{changes:?}"
    );
    assert!(
        changes[0]["diff"]
            .as_str()
            .unwrap()
            .contains("+First text."),
        "{changes:?}"
    );
    assert_eq!(
        (&counts["open"], &counts["accepted"]),
        (&3.into(), &0.into())
    );
}

#[test]
fn accepted_changes_become_one_commit_and_rejected_ones_none() {
    let (place, claude) = place();
    run(&place, &claude);
    let output = review(
        &place,
        &claude,
        &["--accept", "wiki/*", "--reject", "*/two.md"],
    );
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(
        (pages(&place), subjects(&place)),
        (vec!["one.md".to_owned(), "three.md".into()], 2)
    );
    let shown = git(&place.path(""), &["show", "--stat", "HEAD", "--", "wiki"]);
    assert!(
        shown.contains("one.md") && !shown.contains("two.md"),
        "{shown}"
    );
    let report = place.run(&["report", "latest"]);
    let report = report.expect_success();
    assert!(
        report.contains("### Saved (2)") && !report.contains("wiki `two` created"),
        "{report}"
    );
    let report: Value = serde_json::from_str(
        place
            .run(&["report", "latest", "--format", "json"])
            .expect_success(),
    )
    .unwrap();
    let rows = report["body"]["provenanceRows"].as_array().unwrap();
    let keys: Vec<_> = rows
        .iter()
        .map(|row| (row["artifactKey"].as_str(), row["actionType"].as_str()))
        .collect();
    assert!(
        keys.contains(&(Some("one"), Some("wiki_written")))
            && keys.contains(&(None, Some("skipped"))),
        "{keys:?}"
    );
    assert!(!keys.iter().any(|(key, _)| *key == Some("two")), "{keys:?}");
    let again = review(&place, &claude, &["--list"]);
    assert!(
        again
            .expect_refusal(4)
            .starts_with("no run of this project waits for a review")
    );
}

#[test]
fn change_sent_back_is_made_again_and_reviewed_again() {
    let (place, claude) = place();
    run(&place, &claude);
    let back = [
        "--send-back",
        "unit:docs-two",
        "--feedback",
        "Make it longer.",
        "--accept",
        "*",
    ];
    let output = review(&place, &claude, &back);
    assert_eq!(output.code, Some(0), "{output:?}");
    let page =
        |name: &str| fs::read_to_string(place.path(&format!("wiki/global/{name}.md"))).unwrap();
    assert!(page("two").contains("Second text.") && page("one").contains("First text."));
    assert_eq!(subjects(&place), 2, "one commit for everything");
    let events = parse_json_events(&output.stdout);
    let asked = events
        .iter()
        .filter(|line| line["event"]["state"] == "waiting_approval");
    assert_eq!(asked.count(), 2);
    let why = place.run(&["why", "wiki/global/two.md:6", "--ui", "json"]);
    let why: Value = serde_json::from_str(why.expect_success()).unwrap();
    assert_eq!(
        (&why["origin"], &why["attempt"]["attempt"]),
        (&"attempt".into(), &1.into()),
        "{why}"
    );
    let decided = why["review"].as_array().unwrap().iter();
    let decided: Vec<_> = decided
        .map(|note| (note["decision"].as_str(), note["feedback"].as_str()))
        .collect();
    assert_eq!(
        decided,
        [
            (Some("sent_back"), Some("Make it longer.")),
            (Some("accepted"), None)
        ]
    );
}

/// Its earlier page is no longer in the project, so an answer alone is not enough.
#[test]
fn sent_back_unit_that_writes_nothing_again_fails() {
    let (place, claude) = place();
    let args = [
        "run",
        "--review",
        "--no-reconcile",
        "--detach",
        "--ui",
        "json",
        "--claude-bin",
        &claude,
    ];
    let idle = "[[part]]\nprompt = \"Make it shorter\"\nsteps = [{ say = \"ok\" }]\nif_asked = [{ say = \"No.\" }]\n";
    place.scripted_claude(&format!("{idle}{}", NAMES.map(part).concat()));
    place.run(&args).expect_success();
    let began = Instant::now();
    let wait_until = |what: &str, is_so: &dyn Fn() -> bool| {
        while !is_so() {
            assert!(began.elapsed() < DEADLINE, "{what}");
        }
    };
    wait_until("it waits for the review", &|| listed_open(&place) == 3);
    let back = place.run(&[
        "review",
        "--send-back",
        "unit:docs-two",
        "--feedback",
        "Make it shorter.",
        "--accept",
        "*",
    ]);
    assert!(matches!(back.code, Some(0 | 100 | 103)), "{back:?}");
    let reason = "its earlier changes were discarded, and it made none again and decided nothing";
    wait_until(&format!("the unit fails: {back:?}"), &|| {
        newest_tape(&place).contains(reason)
    });
    assert!(
        newest_tape(&place).contains("you have written nothing since"),
        "it was asked"
    );
    wait_until("the run ends", &|| {
        place.run(&["ctl", "stop-all"]).code != Some(0)
    });
    wait_until("its file is not settled", &|| {
        place.run(&["plan"]).stdout.contains("docs-two")
    });
}

/// Number of open changes in the review that waits.
fn listed_open(place: &TestDir) -> u64 {
    let list = place.run(&["review", "--list", "--ui", "json"]);
    let counts = list
        .stdout
        .lines()
        .next_back()
        .and_then(|line| serde_json::from_str::<Value>(line).ok());
    counts
        .and_then(|counts| counts["open"].as_u64())
        .unwrap_or_default()
}

#[test]
fn change_sent_back_stays_so_until_the_review_is_finished() {
    let (place, claude) = place();
    run(&place, &claude);
    let back = review(
        &place,
        &claude,
        &["--send-back", "*/one.md", "--feedback", "Make it longer."],
    );
    assert_eq!(back.code, Some(103), "{back:?}");
    assert_eq!(
        review(&place, &claude, &["--accept", "*/three.md"]).code,
        Some(103)
    );
    let (changes, counts) = listed(&review(&place, &claude, &["--list"]));
    assert_eq!(
        (&counts["open"], &counts["accepted"], &counts["sent_back"]),
        (&1.into(), &1.into(), &1.into())
    );
    assert_eq!(
        changes[0]["hunks"][0]["feedback"], "Make it longer.",
        "{changes:?}"
    );
    let last = review(&place, &claude, &["--accept", "*/two.md"]);
    assert_eq!(last.code, Some(103), "{last:?}");
    let (changes, counts) = listed(&review(&place, &claude, &["--list", "--diff"]));
    assert_eq!(
        (&counts["open"], &counts["accepted"]),
        (&1.into(), &2.into())
    );
    assert!(
        changes[0]["diff"]
            .as_str()
            .unwrap()
            .contains("+Second text."),
        "{changes:?}"
    );
    assert_eq!(review(&place, &claude, &["--accept", "*"]).code, Some(0));
    assert_eq!(pages(&place).len(), 3);
    let plan = place.run(&["plan"]);
    assert!(plan.expect_success().contains("nothing to do"), "{plan:?}");
}

#[test]
fn review_waits_while_a_unit_works_again() {
    let (place, claude) = place();
    run(&place, &claude);
    let hangs = "[[part]]\nunit = \"docs-one\"\nprompt = \"Make it longer\"\nsteps = [{ say = \"now\" }, \"hang\"]\n";
    place.scripted_claude(&format!("{hangs}{}", NAMES.map(part).concat()));
    let decide = [
        "--send-back",
        "*/one.md",
        "--feedback",
        "Make it longer.",
        "--accept",
        "*",
    ];
    let args = [
        &["review", "--ui", "json", "--claude-bin", &claude],
        &decide[..],
    ]
    .concat();
    let mut running = place.start(place.command(&args));
    running.wait_for("stdout", "\"type\":\"started\"");
    let list = || review(&place, &claude, &["--list"]);
    assert!(
        list().expect_refusal(4).contains("its units work again"),
        "the review before it is out of date"
    );
    running.signal(Signal::SIGKILL);
    running.end();
    assert!(
        list().expect_refusal(4).contains("run --resume-run"),
        "{:?}",
        list()
    );
}

/// The files of the units count as ingested, also if an earlier run had ingested others.
#[test]
fn accepted_units_are_not_planned_again() {
    let (place, claude) = place();
    place
        .run(&[
            "run",
            "--no-reconcile",
            "--ui",
            "none",
            "--claude-bin",
            &claude,
        ])
        .expect_success();
    place.scripted_claude(&updates());
    place.write("notes/one.md", "Changed.");
    commit_all(&place);
    assert_eq!(run(&place, &claude).code, Some(103));
    place.run(&[
        "run",
        "--text",
        "A note.",
        "--ui",
        "none",
        "--claude-bin",
        &claude,
    ]);
    let (changes, _) = listed(&review(&place, &claude, &["--list"]));
    assert_eq!(
        changes.len(),
        1,
        "a later run does not hide the review: {changes:?}"
    );
    assert_eq!(review(&place, &claude, &["--accept", "*"]).code, Some(0));
    let plan = place.run(&["plan"]);
    assert!(plan.expect_success().contains("nothing to do"), "{plan:?}");
}

/// What a later run processed outlasts the review of an earlier one.
#[test]
fn results_of_later_runs_outlast_a_review() {
    for is_unit_of_the_review in [false, true] {
        let (place, claude) = place();
        if !is_unit_of_the_review {
            place
                .run(&[
                    "run",
                    "--no-reconcile",
                    "--ui",
                    "none",
                    "--claude-bin",
                    &claude,
                ])
                .expect_success();
        }
        let leaves =
            "[[part]]\nunit = \"docs-two\"\nsteps = [{ say = \"I leave it as it was.\" }]\n";
        place.scripted_claude(&format!("{}{leaves}{}", updates(), part("three")));
        let two = fs::read_to_string(place.path("notes/two.md")).unwrap();
        place.write("notes/one.md", "Changed.");
        commit_all(&place);
        assert_eq!(run(&place, &claude).code, Some(103));
        place.write("notes/two.md", "Changed.");
        let only = [
            "run",
            "--no-reconcile",
            "--only",
            "docs-two",
            "--ui",
            "none",
            "--claude-bin",
            &claude,
        ];
        place.run(&only).expect_success();
        place.write("notes/two.md", &two);
        assert_eq!(review(&place, &claude, &["--accept", "*"]).code, Some(0));
        let plan = place.run(&["plan", "--ui", "json"]);
        assert!(
            plan.expect_success().contains("\"docs-two\""),
            "{is_unit_of_the_review}: {plan:?}"
        );
    }
}

pub(super) fn newest_run(place: &TestDir) -> String {
    let newest = place.run(&["runs", "list", "--ui", "json"]).stdout;
    let newest: Value = serde_json::from_str(newest.lines().next().unwrap()).unwrap();
    newest["run"].as_str().unwrap().to_owned()
}

#[test]
fn review_that_a_later_run_finished_is_refused() {
    let (place, claude) = place();
    run(&place, &claude);
    let first = newest_run(&place);
    assert_eq!(review(&place, &claude, &["--reject", "*"]).code, Some(0));
    for more in [&["--list"][..], &["--accept", "*"]] {
        let refused = review(&place, &claude, &[&[first.as_str()], more].concat());
        assert!(
            refused.expect_refusal(4).contains("was finished by run"),
            "{refused:?}"
        );
    }
}

#[test]
fn changes_that_a_later_run_did_not_take_are_reviewed() {
    let (place, claude) = place();
    place.scripted_claude(&[part("one"), part("three")].concat());
    run(&place, &claude);
    let first = newest_run(&place);
    place.scripted_claude(&NAMES.map(part).concat());
    let only = [
        "run",
        "--resume-run",
        &first,
        "--only",
        "docs-two",
        "--no-reconcile",
        "--ui",
        "none",
    ];
    let resumed = place.run(&[&only[..], &["--claude-bin", &claude]].concat());
    assert_eq!(resumed.code, Some(103), "{resumed:?}");
    assert_eq!(review(&place, &claude, &["--accept", "*"]).code, Some(0));
    assert_eq!(pages(&place), ["two.md"]);
    for name in [&[][..], &[first.as_str()]] {
        assert_eq!(
            listed(&review(&place, &claude, &[name, &["--list"]].concat()))
                .0
                .len(),
            2,
            "{name:?}"
        );
    }
    assert_eq!(review(&place, &claude, &["--accept", "*"]).code, Some(0));
    assert_eq!(pages(&place).len(), 3);
}

/// With a spent budget, no unit can make its changes again.
#[test]
fn changes_stay_sent_back_if_no_unit_may_start() {
    let (place, claude) = place();
    let paid = "{ say = \"Done.\" }, { result = { cost_usd = 1.0 } }";
    place.scripted_claude(
        &NAMES
            .map(part)
            .concat()
            .replace("{ say = \"Done.\" }", paid),
    );
    let args = [
        "run",
        "--review",
        "--no-reconcile",
        "--detach",
        "--ui",
        "json",
        "--claude-bin",
        &claude,
    ];
    place.run(&args).expect_success();
    let began = Instant::now();
    let list = || listed(&review(&place, &claude, &["--list"]));
    while place.run(&["review", "--list", "--ui", "json"]).code != Some(103) {
        assert!(
            began.elapsed() < DEADLINE,
            "the run does not wait for a review"
        );
    }
    place
        .run(&["ctl", "set", "run-budget", "1"])
        .expect_success();
    let decide = [
        "--send-back",
        "*/one.md",
        "--feedback",
        "Make it longer.",
        "--accept",
        "*",
    ];
    let output = review(&place, &claude, &decide);
    assert_eq!(output.code, Some(103), "{output:?}");
    let (changes, counts) = list();
    assert_eq!(
        (&counts["sent_back"], &counts["accepted"]),
        (&1.into(), &2.into()),
        "{counts}"
    );
    assert_eq!(
        changes[0]["hunks"][0]["feedback"], "Make it longer.",
        "{changes:?}"
    );
    let output = review(&place, &claude, &["--accept", "*/two.md"]);
    assert_eq!(
        (output.code, pages(&place).len()),
        (Some(103), 0),
        "{output:?}"
    );
    place.run(&["ctl", "stop-all"]).expect_success();
    #[cfg(target_os = "linux")]
    place.wait_until_no_process_left();
}

/// The agent knows a column only from the feedback for its second attempt, and its third one continues the session. The
/// transcript of the session is too large for the fourth one.
#[test]
fn feedback_counts_in_later_attempts_of_its_session() {
    let place = TestDir::new();
    place.notes(&["one"]);
    commit_all(&place);
    let write = |prompt: &str, content: &str| {
        let ledger = "{ call = { tool = \"record_verification_ledger\", with = { summary = \"Read it.\", unverifiedIdentifiers = [\"dim_plan\"] } } }";
        format!(
            "[[part]]\nprompt = \"{prompt}\"\nsteps = [{ledger}, {{ call = {{ tool = \"wiki_write\", with = {{ key = \"one\", summary = \"One\", content = \"{content}\" }} }} }}, {{ say = \"Done.\" }}]\n"
        )
    };
    let script = [
        ("Name dim_owner", "`dim_owner`"),
        (
            "Name both",
            "Both: `dim_owner`, `dim_plan` [unverified - from one.md]",
        ),
        ("Name a region", "`dim_region`"),
        ("", "First text."),
    ];
    let claude = place.scripted_claude(
        &script
            .map(|(prompt, content)| write(prompt, content))
            .concat(),
    );
    let args = [
        "run",
        "--review",
        "--no-reconcile",
        "--detach",
        "--ui",
        "json",
        "--claude-bin",
        claude.to_str().unwrap(),
    ];
    place.run(&args).expect_success();
    let began = Instant::now();
    let wait_for = |text: &str| {
        while !place
            .run(&["review", "--list", "--diff", "--ui", "json"])
            .stdout
            .contains(text)
        {
            assert!(began.elapsed() < DEADLINE, "{text} is not in the review");
        }
    };
    wait_for("First text.");
    let send_back = |feedback: &str, text: &str| {
        let sent = place.run(&["review", "--send-back", "*", "--feedback", feedback]);
        assert!(matches!(sent.code, Some(0 | 103)), "{sent:?}");
        wait_for(text);
    };
    send_back("Name dim_owner.", "`dim_owner`");
    send_back("Name both.", "Both: `dim_owner`");
    let jobs = fs::read_dir(place.path(".ktx/ingest-transcripts"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let transcript = jobs
        .map(|job| job.join("docs-one.jsonl"))
        .find(|path| path.is_file())
        .unwrap();
    fs::OpenOptions::new()
        .write(true)
        .open(transcript)
        .unwrap()
        .set_len(65 << 20)
        .unwrap();
    send_back("Name a region.", "`dim_region`");
    place.run(&["review", "--accept", "*"]).expect_success();
    let artifact: Value =
        serde_json::from_str(place.run(&["artifacts", "--ui", "json"]).expect_success()).unwrap();
    let names = |attempt: u64| -> Vec<&str> {
        let mut writers = artifact["writers"].as_array().unwrap().iter();
        let writer = writers.find(|writer| writer["attempt"] == attempt).unwrap();
        writer["unsourced"]
            .as_array()
            .unwrap()
            .iter()
            .map(|flag| flag["name"].as_str().unwrap())
            .collect()
    };
    assert_eq!(
        [names(2), names(3), names(4)],
        [vec![], vec!["dim_plan"], vec![]],
        "{artifact}"
    );
    let skipped = "unsourced identifiers were not looked for in wiki/global/one.md: the agent received more text";
    assert!(
        newest_tape(&place).contains(skipped),
        "the warning is on the tape"
    );
}

#[test]
fn decisions_survive_the_end_of_the_program() {
    let (place, claude) = place();
    run(&place, &claude);
    let output = review(&place, &claude, &["--reject", "*/two.md"]);
    assert_eq!(output.code, Some(103), "{output:?}");
    assert_eq!(pages(&place), Vec::<String>::new());
    let (_, counts) = listed(&review(&place, &claude, &["--list"]));
    assert_eq!(
        (&counts["open"], &counts["rejected"]),
        (&2.into(), &1.into())
    );
    let output = review(
        &place,
        &claude,
        &["--accept", "*/one.md", "--accept", "*/three.md"],
    );
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(pages(&place), ["one.md", "three.md"]);
}

#[test]
fn moved_branch_keeps_the_decisions() {
    let (place, claude) = place();
    run(&place, &claude);
    review(&place, &claude, &["--reject", "*/two.md"]);
    place.write("README.md", "Moved.");
    git(&place.path(""), &["add", "README.md"]);
    git(&place.path(""), &["commit", "--quiet", "-m", "moved"]);
    let output = review(
        &place,
        &claude,
        &["--accept", "*/one.md", "--accept", "*/three.md"],
    );
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(
        (pages(&place), subjects(&place)),
        (vec!["one.md".to_owned(), "three.md".into()], 3)
    );
}

#[test]
fn page_written_by_hand_meanwhile_is_not_overwritten() {
    let (place, claude) = place();
    run(&place, &claude);
    let page = place.write("wiki/global/one.md", "Mine.");
    let output = review(&place, &claude, &["--accept", "*"]);
    assert_eq!(output.code, Some(103), "{output:?}");
    assert!(
        output
            .stdout
            .contains("wiki/global/one.md exists, but is not in the last commit"),
        "{output:?}"
    );
    assert_eq!(fs::read_to_string(&page).unwrap(), "Mine.");
    assert_eq!(
        (pages(&place), subjects(&place)),
        (vec!["one.md".to_owned()], 1),
        "nothing is half committed"
    );
    fs::remove_file(page).unwrap();
    let output = review(&place, &claude, &["--accept", "*"]);
    assert_eq!(
        (output.code, pages(&place).len()),
        (Some(0), 3),
        "{output:?}"
    );
}

#[test]
fn part_that_is_not_valid_alone_is_refused() {
    let place = TestDir::new();
    place.notes(&["one"]);
    commit_all(&place);
    let write = |key: &str, content: &str| {
        format!(
            r#"{{ call = {{ tool = "wiki_write", with = {{ key = "{key}", summary = "About {key}", content = "{content}" }} }} }},"#
        )
    };
    let ledger =
        r#"{ call = { tool = "record_verification_ledger", with = { summary = "Read it." } } },"#;
    let writes = [write("two", "Text."), write("one", "See [[two]].")].concat();
    let script =
        format!("[[part]]\nunit = \"docs-one\"\nsteps = [{ledger}{writes}{{ say = \"Done.\" }}]\n");
    let claude = place.scripted_claude(&script).display().to_string();
    assert_eq!(run(&place, &claude).code, Some(103));
    let output = review(
        &place,
        &claude,
        &["--accept", "*/one.md", "--reject", "*/two.md"],
    );
    assert_eq!(output.code, Some(100), "{output:?}");
    assert!(
        output.stdout.contains("not valid without the others"),
        "{output:?}"
    );
    assert_eq!((pages(&place), subjects(&place)), (Vec::new(), 1));
    let output = review(
        &place,
        &claude,
        &["--accept", "*/one.md", "--accept", "wiki/global/two.md"],
    );
    assert_eq!(
        (output.code, pages(&place).len()),
        (Some(0), 2),
        "{output:?}"
    );
}

#[test]
fn later_run_learns_what_was_rejected() {
    let (place, claude) = place();
    run(&place, &claude);
    review(&place, &claude, &["--accept", "*", "--reject", "*/two.md"]);
    place.write("notes/two.md", "Changed.");
    place.write("notes/one.md", "Changed.");
    commit_all(&place);
    let again = run(&place, &claude);
    assert_eq!(again.code, Some(103), "{again:?}");
    let prompt = |unit: &str| {
        let runs = fs::read_dir(place.path(".ktx/ingestdeck/runs")).unwrap();
        let newest = runs.map(|run| run.unwrap().path()).max().unwrap();
        let tape = fs::read_to_string(newest.join("tape.jsonl")).unwrap();
        let started = tape
            .lines()
            .find(|line| line.contains("\"attempt_started\"") && line.contains(unit));
        started.unwrap().to_owned()
    };
    assert!(
        prompt("\"docs-two\"").contains("wiki/global/two.md, rejected"),
        "{}",
        prompt("\"docs-two\"")
    );
    assert!(!prompt("\"docs-one\"").contains("review of an earlier run"));
}

/// A unit that updates the page `one`, and writes nothing if the prompt contains feedback.
fn updates() -> String {
    let write = r#"{ tool = "wiki_write", with = { key = "one", summary = "About one", content = "New text." } }"#;
    format!(
        r#"
[[part]]
unit = "docs-one"
prompt = "Leave it"
steps = [{{ say = "I leave it as it was." }}]

[[part]]
unit = "docs-one"
steps = [
  {{ call = {{ tool = "record_verification_ledger", with = {{ summary = "Read it." }} }} }},
  {{ call = {{ tool = "wiki_read", with = {{ key = "one" }} }} }},
  {{ call = {write} }},
  {{ say = "Done." }},
]
"#
    )
}

#[test]
fn page_is_kept_if_its_unit_gives_up_the_change() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let page = place.write(
        "wiki/global/one.md",
        "---\nsummary: One\nusage_mode: auto\n---\n\nOld text.\n",
    );
    commit_all(&place);
    let claude = place.scripted_claude(&updates()).display().to_string();
    assert_eq!(run(&place, &claude).code, Some(103));
    let output = review(
        &place,
        &claude,
        &["--send-back", "*", "--feedback", "Leave it."],
    );
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(
        fs::read_to_string(&page).unwrap().contains("Old text."),
        "the page is as before"
    );
    assert_eq!(subjects(&place), 1);
}

#[test]
fn sending_back_without_an_agent_decides_nothing() {
    let (place, claude) = place();
    run(&place, &claude);
    let recorded = newest_run(&place);
    let missing = place.path("no-claude").display().to_string();
    let rules = [
        "--send-back",
        "*/one.md",
        "--feedback",
        "Shorter.",
        "--accept",
        "*",
    ];
    let refused = review(&place, &missing, &rules);
    assert!(
        refused.code == Some(96) && refused.stderr.contains("no-claude"),
        "{refused:?}"
    );
    assert_eq!(
        (newest_run(&place), subjects(&place)),
        (recorded, 1),
        "no run began"
    );
    let (_, counts) = listed(&review(&place, &claude, &["--list"]));
    assert_eq!(
        (&counts["open"], &counts["accepted"]),
        (&3.into(), &0.into())
    );
    // Without anything to make again, no agent is needed.
    let accepted = review(&place, &missing, &["--accept", "*"]);
    assert_eq!(
        (accepted.code, subjects(&place)),
        (Some(0), 2),
        "{accepted:?}"
    );
}

#[test]
fn plan_names_the_review_of_a_waiting_run_only() {
    let (place, claude) = place();
    run(&place, &claude);
    let run = newest_run(&place);
    let short = &run[run.len() - 6..];
    let sentence = format!(
        "the changes of 3 units of run {short} wait for a review; `ingestdeck review {short}` decides"
    );
    for args in [
        &["plan"][..],
        &["plan", "--ui", "json"],
        &["doctor", "--ui", "json"],
    ] {
        let ran = place.run(args);
        let text = format!("{}{}", ran.stdout, ran.stderr);
        assert!(
            !text.contains("--resume-run") && text.contains("wait for a review"),
            "{args:?}: {text}"
        );
        assert_eq!(
            text.matches("wait for a review").count(),
            1,
            "{args:?}: {text}"
        );
        assert!(
            args[0] == "doctor" || text.contains(&sentence),
            "{args:?}: {text}"
        );
    }
    assert_eq!(review(&place, &claude, &["--accept", "*"]).code, Some(0));
    assert!(!place.run(&["plan"]).stderr.contains("review"));
}

#[test]
fn commit_that_was_refused_first_is_recorded() {
    let (place, claude) = place();
    let args = [
        "run",
        "--review",
        "--no-reconcile",
        "--detach",
        "--ui",
        "json",
        "--claude-bin",
        &claude,
    ];
    place.run(&args).expect_success();
    while review(&place, &claude, &["--list"]).code != Some(103) {}
    let page = place.write("wiki/global/one.md", "Mine.");
    let refused = review(&place, &claude, &["--accept", "*"]);
    assert_eq!(refused.code, Some(103), "{refused:?}");
    assert!(
        refused.stdout.contains("one.md") && refused.stdout.contains("--skip-blocked"),
        "{refused:?}"
    );
    fs::remove_file(page).unwrap();
    let output = review(&place, &claude, &["--accept", "*"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    #[cfg(target_os = "linux")]
    place.wait_until_no_process_left();
    let artifacts = place.run(&["artifacts", "--ui", "json"]);
    let lines: Vec<Value> = artifacts
        .expect_success()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let states: Vec<_> = lines
        .iter()
        .filter(|line| line["type"] == "artifact")
        .map(|line| &line["state"])
        .collect();
    assert_eq!(states, ["saved", "saved", "saved"]);
}

#[test]
fn branch_that_moves_during_the_review_keeps_the_decisions() {
    let (place, claude) = place();
    let args = [
        "run",
        "--review",
        "--no-reconcile",
        "--detach",
        "--ui",
        "json",
        "--claude-bin",
        &claude,
    ];
    place.run(&args).expect_success();
    while review(&place, &claude, &["--list"]).code != Some(103) {}
    // The page conflicts with the change of a unit.
    place.write(
        "wiki/global/one.md",
        "---\nsummary: Mine\nusage_mode: auto\n---\n\nMine.\n",
    );
    git(&place.path(""), &["add", "."]);
    git(&place.path(""), &["commit", "--quiet", "-m", "mine"]);
    review(&place, &claude, &["--accept", "*", "--reject", "*/two.md"]);
    let (changes, counts) = loop {
        match review(&place, &claude, &["--list"]) {
            output if output.code == Some(103) => break listed(&output),
            _ => continue,
        }
    };
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let decisions: Vec<_> = changes
        .iter()
        .map(|change| (text(&change["path"]), text(&change["decision"])))
        .collect();
    let expected = [
        ("wiki/global/three.md", "accepted"),
        ("wiki/global/two.md", "rejected"),
    ];
    assert_eq!(
        decisions,
        expected.map(|(path, decision)| (path.to_owned(), decision.to_owned()))
    );
    assert_eq!(counts["open"], 0);
    assert_eq!(
        review(&place, &claude, &["--accept", "*/three.md"]).code,
        Some(0)
    );
    assert!(
        fs::read_to_string(place.path("wiki/global/one.md"))
            .unwrap()
            .contains("Mine.")
    );
    assert_eq!(pages(&place), ["one.md", "three.md"]);
}

#[test]
fn resumed_run_keeps_the_decisions_of_its_review() {
    let (place, claude) = place();
    let good = NAMES.map(part).concat();
    let broken = "[[part]]\nunit = \"docs-three\"\nsteps = [{ call = { tool = \"wiki_write\", with = { no = 1 } } }, { say = \"Done.\" }]\n";
    let failing = place
        .scripted_claude(&format!("{broken}{good}"))
        .display()
        .to_string();
    assert_eq!(run(&place, &failing).code, Some(103));
    assert_eq!(
        review(&place, &claude, &["--reject", "*/two.md"]).code,
        Some(103)
    );
    place.scripted_claude(&good);
    let resumed = place.run(&[
        "run",
        "--resume-run",
        "latest",
        "--no-reconcile",
        "--ui",
        "json",
        "--claude-bin",
        &claude,
    ]);
    assert_eq!(
        (resumed.code, subjects(&place)),
        (Some(103), 1),
        "{resumed:?}"
    );
    let (changes, _) = listed(&review(&place, &claude, &["--list"]));
    let rejected = changes
        .iter()
        .find(|change| change["path"] == "wiki/global/two.md")
        .unwrap();
    assert_eq!(rejected["decision"], "rejected");
}

#[test]
fn feedback_survives_the_end_of_the_attempt_that_it_started() {
    resumes_with_feedback(None);
}

#[test]
fn feedback_survives_an_end_before_its_attempt_has_started() {
    for note in ["attempt_started", "retry_requested"] {
        resumes_with_feedback(Some(note));
    }
}

/// Sends a page back, kills the run while the unit works again, and resumes it. `end` is the first note that was not
/// recorded any longer.
fn resumes_with_feedback(end: Option<&str>) {
    let (place, claude) = place();
    run(&place, &claude);
    let good = NAMES.map(part).concat();
    let hangs = "[[part]]\nprompt = \"Make it longer\"\nsteps = [{ say = \"Well.\" }, \"hang\"]\n";
    place.scripted_claude(&format!("{hangs}{good}"));
    let send = [
        "review",
        "--send-back",
        "*/two.md",
        "--feedback",
        "Make it longer.",
        "--accept",
        "*e.md",
    ];
    let running = place.start(place.command(&[&send[..], &["--claude-bin", &claude]].concat()));
    let began = Instant::now();
    let has_started = || {
        let runs = fs::read_dir(place.path(".ktx/ingestdeck/runs")).unwrap();
        let newest = runs.map(|run| run.unwrap().path().join("tape.jsonl")).max();
        // The directory of a run is older than its tape.
        let tape = newest
            .and_then(|tape| fs::read_to_string(tape).ok())
            .unwrap_or_default();
        tape.contains("\"review_finished\"") && tape.contains("\"attempt_started\"")
    };
    while !has_started() {
        assert!(began.elapsed() < DEADLINE, "no attempt starts");
    }
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end().code, None);
    #[cfg(target_os = "linux")]
    place.wait_until_no_process_left();
    if let Some(note) = end {
        let runs = fs::read_dir(place.path(".ktx/ingestdeck/runs")).unwrap();
        let tape = runs.map(|run| run.unwrap().path()).max().unwrap();
        let tape = tape.join("tape.jsonl");
        let text = fs::read_to_string(&tape).unwrap();
        let lines = text.split_inclusive('\n');
        let kept = lines.take_while(|line| !line.contains(&format!("\"{note}\"")));
        fs::write(&tape, kept.collect::<String>()).unwrap();
    }
    place.scripted_claude(&good);
    let resumed = place.run(&[
        "run",
        "--resume-run",
        "latest",
        "--no-reconcile",
        "--claude-bin",
        &claude,
    ]);
    assert_eq!(resumed.code, Some(103), "{resumed:?}");
    let listed = review(&place, &claude, &["--list", "--diff"]);
    assert!(
        listed.stdout.contains("+Second text."),
        "the agent heard it: {listed:?}"
    );
    let (changes, _) = self::listed(&listed);
    assert_eq!(
        changes
            .iter()
            .filter(|change| change["decision"] == "accepted")
            .count(),
        2,
        "{changes:?}"
    );
}

#[test]
fn file_that_changed_before_its_review_is_left_to_the_next_run() {
    let (place, claude) = place();
    run(&place, &claude);
    place.write("notes/one.md", "Changed.");
    git(&place.path(""), &["commit", "--quiet", "-am", "changed"]);
    let output = review(&place, &claude, &["--accept", "*"]);
    output.expect_success();
    assert!(
        output.stderr.contains("are left to the next one: docs-one"),
        "{output:?}"
    );
    let plan = place.run(&["plan"]);
    assert!(
        plan.expect_success().contains("docs-one") && !plan.stdout.contains("docs-two"),
        "{plan:?}"
    );
}

#[test]
fn file_that_its_unit_read_again_is_not_left_out() {
    let (place, claude) = place();
    run(&place, &claude);
    place.write("notes/two.md", "Changed.");
    git(&place.path(""), &["commit", "--quiet", "-am", "changed"]);
    let back = [
        "--send-back",
        "*/two.md",
        "--feedback",
        "Make it longer.",
        "--accept",
        "*",
    ];
    review(&place, &claude, &back).expect_success();
    let plan = place.run(&["plan"]);
    assert!(!plan.expect_success().contains("docs-two"), "{plan:?}");
}

#[test]
fn mistaken_patterns_are_refused() {
    let (place, claude) = place();
    run(&place, &claude);
    let refused = |more: &[&str], code| {
        review(&place, &claude, more)
            .expect_refusal(code)
            .to_owned()
    };
    assert!(refused(&["--accept", "["], 2).contains("invalid pattern"));
    assert!(refused(&["--send-back", "*"], 2).contains("--feedback"));
    assert!(refused(&["nonsense", "--list"], 4).contains("nonsense"));
    let output = review(&place, &claude, &["--accept", "wiki/other/*"]);
    assert_eq!(output.code, Some(4), "{output:?}");
    assert_eq!(subjects(&place), 1);
}

#[test]
fn killed_engine_loses_no_decision() {
    let (place, claude) = place();
    let args = [
        "run",
        "--review",
        "--no-reconcile",
        "--detach",
        "--ui",
        "json",
        "--claude-bin",
        &claude,
    ];
    let launched: Value = serde_json::from_str(place.run(&args).expect_success()).unwrap();
    let pid = i32::try_from(launched["pid"].as_i64().unwrap()).unwrap();
    while review(&place, &claude, &["--list"]).code != Some(103) {}
    let output = review(&place, &claude, &["--reject", "*/two.md"]);
    assert_eq!(output.code, Some(103), "{output:?}");
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    #[cfg(target_os = "linux")]
    place.wait_until_no_process_left();
    let (_, counts) = listed(&review(&place, &claude, &["--list"]));
    assert_eq!(
        (&counts["open"], &counts["rejected"]),
        (&2.into(), &1.into())
    );
    let output = review(
        &place,
        &claude,
        &["--accept", "*/one.md", "--accept", "*/three.md"],
    );
    assert_eq!(
        (output.code, pages(&place)),
        (Some(0), vec!["one.md".to_owned(), "three.md".into()]),
        "{output:?}"
    );
}

/// Every decision that the program confirmed is kept, whenever it is killed: while it plans, integrates, waits for the
/// review, or records decisions.
#[test]
fn killed_review_keeps_what_it_confirmed() {
    const PAGES: usize = 20;
    const MOMENTS: [&str; 4] = ["planned", "integrating", "waiting_approval", "rejected"];
    let place = TestDir::new();
    place.notes(&["one"]);
    commit_all(&place);
    let write = |page: usize| {
        format!(
            r#"{{ call = {{ tool = "wiki_write", with = {{ key = "p{page:02}", summary = "About", content = "Text." }} }} }},"#
        )
    };
    let ledger =
        r#"{ call = { tool = "record_verification_ledger", with = { summary = "Read it." } } },"#;
    let writes: String = (0..PAGES).map(write).collect();
    let script =
        format!("[[part]]\nunit = \"docs-one\"\nsteps = [{ledger}{writes}{{ say = \"Done.\" }}]\n");
    let claude = place.scripted_claude(&script).display().to_string();
    assert_eq!(run(&place, &claude).code, Some(103));
    let mut killed = 0;
    for page in 0..PAGES {
        let pattern = format!("*/p{page:02}.md");
        let args = [
            "review",
            "--ui",
            "json",
            "--claude-bin",
            &claude,
            "--reject",
            &pattern,
        ];
        let mut running = place.start(place.command(&args));
        running.wait_for("stdout", MOMENTS[page % MOMENTS.len()]);
        running.kill();
        killed += usize::from(running.end().code.is_none());
        #[cfg(target_os = "linux")]
        place.wait_until_no_process_left();
        let (changes, _) = listed(&review(&place, &claude, &["--list"]));
        let is_rejected = |page: usize| changes[page]["decision"] == "rejected";
        // The last moment is the line about the decision.
        let confirmed = (0..=page).filter(|page| page % MOMENTS.len() == MOMENTS.len() - 1);
        confirmed.for_each(|page| assert!(is_rejected(page), "page {page}: {changes:?}"));
    }
    assert!(killed > 0, "every review ended before it was killed");
    let output = review(&place, &claude, &["--accept", "*"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(subjects(&place), 2);
}

#[test]
fn accept_pattern_leaves_earlier_decisions_alone() {
    let (place, claude) = place();
    run(&place, &claude);
    let rejected = review(
        &place,
        &claude,
        &["--reject", "*/two.md", "--reason", "wrong source"],
    );
    assert_eq!(rejected.code, Some(103), "{rejected:?}");
    let (changes, _) = listed(&review(&place, &claude, &["--list"]));
    let two = changes
        .iter()
        .find(|change| change["path"] == "wiki/global/two.md")
        .unwrap();
    assert_eq!(
        (&two["decision"], &two["hunks"][0]["reason"]),
        (&"rejected".into(), &"wrong source".into()),
        "{two}"
    );
    let accepted = review(&place, &claude, &["--accept", "*"]);
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
    assert!(
        accepted
            .stderr
            .contains("1 file with another decision: left as decided"),
        "{accepted:?}"
    );
    assert_eq!(
        (pages(&place), subjects(&place)),
        (vec!["one.md".to_owned(), "three.md".into()], 2)
    );
}

#[test]
fn accepted_name_replaces_an_earlier_decision() {
    let (place, claude) = place();
    run(&place, &claude);
    assert_eq!(
        review(&place, &claude, &["--reject", "*/two.md"]).code,
        Some(103)
    );
    let output = review(
        &place,
        &claude,
        &["--accept", "wiki/global/two.md", "--accept", "*"],
    );
    assert_eq!(
        (output.code, pages(&place).len()),
        (Some(0), 3),
        "{output:?}"
    );
}

/// The other files of a unit, and of the units that wrote one of these, wait with a blocked file.
#[test]
fn decisions_about_files_that_wait_with_a_blocked_one_are_kept() {
    let place = TestDir::new();
    place.notes(&NAMES);
    commit_all(&place);
    let pages = [
        ("one", ["one", "one-b", "shared"]),
        ("two", ["two", "two-b", "shared"]),
        ("three", ["three", "three-b", "three-c"]),
    ];
    let script = pages.map(|(unit, pages)| {
        let ledger = r#"{ call = { tool = "record_verification_ledger", with = { summary = "Read it." } } },"#;
        let write = |page: &str| {
            let text = if page == "shared" { "Shared." } else { "Text." };
            format!(
                r#"{{ call = {{ tool = "wiki_write", with = {{ key = "{page}", summary = "About {page}", content = "{text}" }} }} }},"#
            )
        };
        let writes: String = pages.iter().map(|page| write(page)).collect();
        let read = format!(r#"{{ call = {{ tool = "read_raw_file", with = {{ path = "{unit}.md" }} }} }},"#);
        format!("[[part]]\nunit = \"docs-{unit}\"\nsteps = [{read}{ledger}{writes}{{ say = \"Done.\" }}]\n")
    });
    let claude = place
        .scripted_claude(&script.concat())
        .display()
        .to_string();
    assert_eq!(run(&place, &claude).code, Some(103));
    let rejected = [
        "--reject",
        "*/one.md",
        "--reject",
        "*/three-c.md",
        "--reason",
        "wrong",
    ];
    assert_eq!(review(&place, &claude, &rejected).code, Some(103));
    let mine = place.path("wiki/global/one-b.md");
    fs::create_dir_all(&mine).unwrap();
    fs::write(mine.join("x"), "").unwrap();
    let partly = review(&place, &claude, &["--accept", "*", "--skip-blocked"]);
    assert_eq!(
        (partly.code, subjects(&place)),
        (Some(103), 2),
        "{partly:?}"
    );
    let committed = || git(&place.path(""), &["ls-files", "wiki"]);
    assert_eq!(
        committed(),
        "wiki/global/three-b.md\nwiki/global/three.md\n"
    );
    let (changes, _) = listed(&review(&place, &claude, &["--list"]));
    let decisions: Vec<_> = changes
        .iter()
        .map(|change| {
            (
                change["path"].as_str().unwrap(),
                change["decision"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("one-b", "accepted"),
        ("one", "rejected"),
        ("shared", "accepted"),
        ("two-b", "accepted"),
        ("two", "accepted"),
    ]
    .map(|(page, decision)| (format!("wiki/global/{page}.md"), decision));
    assert_eq!(
        decisions,
        expected
            .each_ref()
            .map(|(path, decision)| (&**path, *decision))
    );
    fs::remove_dir_all(&mine).unwrap();
    let saved = review(&place, &claude, &["--accept", "*"]);
    assert_eq!((saved.code, subjects(&place)), (Some(0), 3), "{saved:?}");
    assert!(
        committed().contains("shared.md") && committed().contains("one-b.md"),
        "{}",
        committed()
    );
    assert!(
        !committed().contains("/one.md"),
        "a rejected file is in no commit: {}",
        committed()
    );
    // Nor does anything state that one is saved.
    let query = "select distinct key from artifacts where key like '%one' or key like '%three%' order by key";
    let keys = place.run(&["runs", "query", query, "--ui", "json"]);
    let keys = keys.expect_success();
    assert!(
        keys.contains("three-b") && !keys.contains("three-c") && !keys.contains("\"one\""),
        "{keys}"
    );
}

#[test]
fn blocked_file_is_left_out_on_request_and_waits() {
    let (place, claude) = place();
    run(&place, &claude);
    let mine = place.path("wiki/global/two.md");
    fs::create_dir_all(mine.parent().unwrap()).unwrap();
    fs::write(&mine, "mine\n").unwrap();
    let refused = review(&place, &claude, &["--accept", "*"]);
    assert_eq!(
        (refused.code, subjects(&place)),
        (Some(103), 1),
        "{refused:?}"
    );
    assert!(
        refused
            .stdout
            .contains("wiki/global/two.md exists, but is not in the last commit"),
        "{refused:?}"
    );
    let partly = review(&place, &claude, &["--accept", "*", "--skip-blocked"]);
    assert_eq!(
        (partly.code, subjects(&place)),
        (Some(103), 2),
        "{partly:?}"
    );
    let committed = git(
        &place.path(""),
        &["show", "--name-only", "--format=", "HEAD", "--", "wiki"],
    );
    assert_eq!(committed, "wiki/global/one.md\nwiki/global/three.md\n");
    let diff = || {
        let subject = git(&place.path(""), &["log", "-1", "--format=%s"]);
        subject
            .trim_end()
            .rsplit_once(" diff=")
            .map(|(_, counts)| counts.to_owned())
    };
    assert_eq!(
        diff().as_deref(),
        Some("+2/~0/-0/=0"),
        "the commit has two of three raw files"
    );
    assert_eq!(fs::read_to_string(&mine).unwrap(), "mine\n");
    let (changes, counts) = listed(&review(&place, &claude, &["--list"]));
    assert_eq!(
        changes
            .iter()
            .map(|change| &change["path"])
            .collect::<Vec<_>>(),
        ["wiki/global/two.md"],
        "{changes:?}"
    );
    assert_eq!(
        (&counts["open"], &counts["accepted"]),
        (&0.into(), &1.into())
    );
    // Nothing else is left that could be committed without it.
    let again = review(&place, &claude, &["--accept", "*", "--skip-blocked"]);
    assert_eq!((again.code, subjects(&place)), (Some(103), 2), "{again:?}");
    fs::remove_file(&mine).unwrap();
    let saved = review(&place, &claude, &["--accept", "*"]);
    assert_eq!(
        (saved.code, subjects(&place), pages(&place).len()),
        (Some(0), 3, 3),
        "{saved:?}"
    );
    assert_eq!(diff().as_deref(), Some("+1/~0/-0/=0"));
    assert!(fs::read_to_string(&mine).unwrap().contains("First text."));
    assert!(
        review(&place, &claude, &["--list"])
            .expect_refusal(4)
            .starts_with("no run of this project waits")
    );
}
