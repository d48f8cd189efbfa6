//! Unsaved work of a killed run: plans, runs and `doctor` report it until it is saved.

use nix::sys::signal::Signal;

use super::test_dir::{CommandOutput, TestDir};
use crate::support::git::git;

/// Steps that write the page `x` of the unit `docs-x`.
fn writes(unit: &str) -> String {
    let page = unit.trim_start_matches("docs-");
    format!(
        r#"
[[part]]
unit = "{unit}"
steps = [
  {{ call = {{ tool = "record_verification_ledger", with = {{ summary = "Read it." }} }} }},
  {{ call = {{ tool = "wiki_write", with = {{ key = "{page}", summary = "About {page}", content = "Text." }} }} }},
  {{ say = "Done." }},
]
"#
    )
}

/// A git project with three units.
fn project() -> TestDir {
    let place = TestDir::new();
    place.notes(&["one", "two", "three"]);
    git(&place.path(""), &["init", "-q", "-b", "main"]);
    git(&place.path(""), &["add", "ktx.yaml", "notes"]);
    git(&place.path(""), &["commit", "-q", "-m", "sources"]);
    place
}

/// Kills a run once the units `done` have succeeded and while the unit `hangs` works. Returns its short id.
fn kill(place: &TestDir, done: &[&str], hangs: &str, more: &[&str]) -> String {
    let parts = done
        .iter()
        .copied()
        .map(writes)
        .collect::<String>()
        .replace("Text.", "New text.");
    let claude =
        place.scripted_claude(&(parts + "[[part]]\nsteps = [{ say = \"now\" }, \"hang\"]\n"));
    let words = [
        "run",
        "--ui",
        "lines",
        "--claude-bin",
        claude.to_str().unwrap(),
    ];
    let mut running = place.start(place.command(&[&words, more].concat()));
    for unit in done {
        running.wait_for(
            "stdout",
            &format!("{:<24} ✓ succeeded", format!("{unit}#1")),
        );
    }
    running.wait_for("stdout", &format!("{:<24} ● session", format!("{hangs}#1")));
    assert!(
        done.is_empty() || !place.run(&["plan"]).stderr.contains("not saved"),
        "it lives"
    );
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end().code, None);
    latest(place)
}

/// The short id of the newest run.
fn latest(place: &TestDir) -> String {
    let runs = std::fs::read_dir(place.path(".ktx/ingestdeck/runs")).unwrap();
    let run = runs
        .map(|run| run.unwrap().file_name().into_string().unwrap())
        .max()
        .unwrap();
    run[run.len() - 6..].to_owned()
}

/// A git project with three units whose run was killed after the first one succeeded, and the run's short id.
fn killed_run() -> (TestDir, String) {
    let place = project();
    let run = kill(&place, &["docs-one"], "docs-three", &[]);
    (place, run)
}

fn sentence(run: &str) -> String {
    format!(
        "run {run} was cut off with 1 unit done that is not saved; `ingestdeck run --resume-run {run}` resumes it"
    )
}

fn run(place: &TestDir, more: &[&str]) -> CommandOutput {
    let claude =
        place.scripted_claude(&["docs-one", "docs-two", "docs-three"].map(writes).concat());
    let words = [
        "run",
        "--no-reconcile",
        "--ui",
        "lines",
        "--claude-bin",
        claude.to_str().unwrap(),
    ];
    place.run(&[&words, more].concat())
}

#[test]
fn unsaved_run_is_reported_until_it_is_resumed() {
    let (place, short) = killed_run();
    let message = sentence(&short);
    for words in [
        &["plan"][..],
        &["plan", "--ui", "json"],
        &["plan", "--failed"],
        &["plan", "--only", "docs-two"],
    ] {
        let plan = place.run(words);
        assert!(
            plan.expect_success().contains("unit") && plan.stderr.contains(&message),
            "{words:?}: {plan:?}"
        );
    }
    let shown = place.run(&["runs", "show"]);
    assert!(
        shown
            .expect_success()
            .contains("  succeeded   docs-one    1 attempt, not saved\n"),
        "{shown:?}"
    );
    assert!(
        shown
            .stdout
            .contains("  untried     docs-two    0 attempts\n"),
        "{shown:?}"
    );
    let doctor = place.run(&["doctor"]);
    assert!(
        doctor.stdout.contains(&format!("note  {message}\n")),
        "{doctor:?}"
    );
    let elsewhere = place.path("");
    let mut there = place.command(&["plan", "--project-dir", elsewhere.to_str().unwrap()]);
    there.current_dir("/");
    let there = place.ran(there);
    let way = format!(
        "`ingestdeck run --project-dir {} --resume-run {short}`",
        elsewhere.display()
    );
    assert!(there.stderr.contains(&way), "{there:?}");

    let resume = ["--resume-run", short.as_str()];
    let plan = place.run(&[&["plan"][..], &resume].concat());
    assert!(
        plan.expect_success().contains("1 of them reused") && !plan.stderr.contains("not saved"),
        "{plan:?}"
    );
    let ran = run(&place, &resume);
    assert!(
        ran.expect_success().contains("1 reused") && !ran.stderr.contains("not saved"),
        "{ran:?}"
    );
    assert!(place.path("wiki/global/one.md").is_file());
    let plan = place.run(&["plan"]);
    assert!(
        plan.expect_success().contains("0 units planned") && !plan.stderr.contains("not saved"),
        "{plan:?}"
    );
}

#[test]
fn new_run_reports_and_recovers_unsaved_work() {
    let (place, short) = killed_run();
    let other = run(&place, &["--only", "docs-two"]);
    assert!(
        other.expect_success().contains("docs-two") && other.stderr.contains(&sentence(&short)),
        "{other:?}"
    );
    let ran = run(&place, &[]);
    assert!(ran.stderr.contains(&sentence(&short)), "{ran:?}");
    assert!(ran.expect_success().contains("docs-one#1 "), "{ran:?}");
    assert!(place.path("wiki/global/one.md").is_file());
    let plan = place.run(&["plan"]);
    assert!(
        plan.expect_success().contains("0 units planned") && !plan.stderr.contains("not saved"),
        "{plan:?}"
    );
}

/// The unit whose patch waits was done by another run, which does not continue the killed one.
#[test]
fn unit_that_another_run_saved_is_not_resumed() {
    let place = project();
    let short = kill(&place, &["docs-one", "docs-three"], "docs-two", &[]);
    let other = run(&place, &["--only", "docs-one"]);
    assert!(other.expect_success().contains("docs-one#1 "), "{other:?}");
    let plan = place.run(&["plan", "--resume-run", &short]);
    assert!(
        plan.expect_success()
            .contains("2 units planned, 1 of them reused"),
        "{plan:?}"
    );
    assert!(!plan.stdout.contains("docs-one"), "{plan:?}");
    let ran = run(&place, &["--resume-run", &short]);
    assert!(
        ran.expect_success().contains("1 reused") && !ran.stdout.contains("docs-one"),
        "{ran:?}"
    );
    assert!(
        place.path("wiki/global/two.md").is_file() && place.path("wiki/global/three.md").is_file()
    );
    let plan = place.run(&["plan"]);
    assert!(
        plan.expect_success().contains("0 units planned"),
        "{plan:?}"
    );
    let again = run(&place, &["--resume-run", &short]);
    assert!(
        again
            .expect_refusal(2)
            .contains("resume the later run with `--resume-run "),
        "{again:?}"
    );
}

/// An edit after the other run is a reason again.
#[test]
fn unit_that_changed_after_another_run_is_resumed() {
    let (place, short) = killed_run();
    run(&place, &["--only", "docs-one"]).expect_success();
    std::fs::write(place.path("notes/one.md"), "# one\n\nAnother text.\n").unwrap();
    let plan = place.run(&["plan", "--resume-run", &short]);
    assert!(plan.expect_success().contains("docs-one"), "{plan:?}");
}

#[test]
fn superseded_unsaved_work_is_not_reported() {
    let (place, _) = killed_run();
    std::fs::remove_file(place.path("notes/one.md")).unwrap();
    for words in [
        &["plan"][..],
        &["doctor"],
        &["plan", "--only", "docs-two"],
        &["plan", "--failed"],
    ] {
        let ran = place.run(words);
        assert!(
            !format!("{}{}", ran.stdout, ran.stderr).contains("done that is not saved"),
            "{words:?}: {ran:?}"
        );
    }
}

#[test]
fn unfinished_run_without_failures_is_reported() {
    let (place, short) = killed_run();
    let message = format!(
        "no unit failed in run {short}, but 2 units of it are not done, 1 is not saved; `--resume-run {short}` resumes it"
    );
    let plan = place.run(&["plan", "--failed"]);
    assert!(
        plan.expect_success().starts_with(&message)
            || plan
                .stdout
                .contains(&format!("\n{message}\n0 units planned\n")),
        "{plan:?}"
    );
    let named = place.run(&["plan", "--failed", &short]);
    assert!(
        named
            .expect_refusal(2)
            .ends_with(&format!("to name the run, write `--failed={short}`")),
        "{named:?}"
    );
    let ran = run(&place, &["--failed"]);
    assert!(
        ran.expect_success().is_empty() && ran.stderr.contains(&message),
        "{ran:?}"
    );
    run(&place, &["--resume-run", "latest"]).expect_success();
    let plan = place.run(&["plan", "--failed"]);
    assert!(
        plan.expect_success().contains("no unit failed in run ")
            && plan.stdout.contains(": there is nothing to run\n"),
        "{plan:?}"
    );
}

#[test]
fn unsaved_run_with_unchanged_saved_units_is_reported() {
    let place = project();
    run(&place, &[]).expect_success();
    let short = kill(&place, &["docs-one"], "docs-three", &["--full"]);
    for words in [&["plan"][..], &["plan", "--full"], &["doctor"]] {
        let ran = place.run(words);
        assert!(
            format!("{}{}", ran.stdout, ran.stderr).contains(&sentence(&short)),
            "{words:?}: {ran:?}"
        );
    }
    let ran = run(&place, &[]);
    assert!(
        ran.expect_success().is_empty() && ran.stderr.contains(&sentence(&short)),
        "{ran:?}"
    );
    run(&place, &["--resume-run", &short]).expect_success();
    let plan = place.run(&["plan"]);
    assert!(
        plan.expect_success().contains("0 units planned") && !plan.stderr.contains("not saved"),
        "{plan:?}"
    );
}

#[test]
fn run_without_the_unit_does_not_hide_unsaved_work() {
    let (place, short) = killed_run();
    kill(&place, &[], "docs-one", &[]);
    let plan = place.run(&["plan"]);
    assert!(
        plan.expect_success().contains("3 units planned")
            && plan.stderr.contains(&sentence(&short)),
        "{plan:?}"
    );
    kill(&place, &[], "docs-one", &[]);
    let pruned = place.run(&["runs", "prune", "--keep", "1"]);
    pruned.expect_success();
    let resumed = run(&place, &["--resume-run", &short]);
    assert!(
        resumed.expect_success().contains("1 reused"),
        "{pruned:?}\n{resumed:?}"
    );
    let plan = place.run(&["plan"]);
    assert!(
        plan.expect_success().contains("0 units planned") && !plan.stderr.contains("not saved"),
        "{plan:?}"
    );
}

#[test]
fn partly_saved_run_can_be_resumed() {
    let place = project();
    let short = kill(&place, &["docs-one", "docs-three"], "docs-two", &[]);
    let resume = ["--resume-run", short.as_str()];
    let part = run(&place, &[&resume[..], &["--only", "docs-one"]].concat());
    assert!(
        part.expect_success().contains("1 reused") && place.path("wiki/global/one.md").is_file(),
        "{part:?}"
    );
    assert!(!place.path("wiki/global/three.md").exists());
    let plan = place.run(&["plan"]);
    assert!(
        plan.expect_success().contains("2 units planned")
            && plan.stderr.contains(&sentence(&short)),
        "{plan:?}"
    );

    // A change that a person reverted is not applied again.
    git(&place.path(""), &["rm", "-q", "wiki/global/one.md"]);
    git(&place.path(""), &["commit", "-q", "-m", "undone"]);
    let rest = run(&place, &resume);
    assert!(rest.expect_success().contains("2 reused"), "{rest:?}");
    let is_there = |page: &str| place.path(&format!("wiki/global/{page}.md")).is_file();
    assert_eq!(
        ["one", "two", "three"].map(is_there),
        [false, true, true],
        "{rest:?}"
    );
    let plan = place.run(&["plan"]);
    assert!(
        plan.expect_success().contains("0 units planned") && !plan.stderr.contains("not saved"),
        "{plan:?}"
    );
    let again = run(&place, &resume);
    assert!(
        again
            .expect_refusal(2)
            .contains("resume the later run with `--resume-run "),
        "{again:?}"
    );
}
