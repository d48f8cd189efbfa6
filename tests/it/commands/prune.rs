//! `runs prune`: which runs it deletes, which it keeps, and that the planning history survives.

use std::fs;

use serde_json::Value;

use super::test_dir::TestDir;

/// Two documents, and an agent that writes a page for each.
fn handbook() -> (TestDir, String) {
    let place = TestDir::new();
    for name in ["one", "two"] {
        place.write(&format!("docs/{name}.md"), format!("# {name}\n"));
    }
    let settings = "connections:\n  handbook: {driver: docs, source_dir: docs}\nllm:\n  provider: {backend: claude-code}\n";
    place.write("ktx.yaml", settings);
    let part = |name: &str| {
        format!(
            r#"
[[part]]
unit = "docs-{name}"
steps = [
  {{ call = {{ tool = "read_raw_file", with = {{ path = "{name}.md" }} }} }},
  {{ call = {{ tool = "record_verification_ledger", with = {{ summary = "Read it." }} }} }},
  {{ call = {{ tool = "wiki_write", with = {{ key = "{name}", summary = "About {name}", content = "Text.", rawPaths = ["{name}.md"] }} }} }},
  {{ say = "Done." }},
]
"#
        )
    };
    let claude = place
        .scripted_claude(&[part("one"), part("two")].concat())
        .display()
        .to_string();
    (place, claude)
}

fn records(place: &TestDir) -> usize {
    fs::read_dir(place.path(".ktx/ingestdeck/runs"))
        .unwrap()
        .count()
}

#[test]
fn prune_keeps_source_history() {
    let (place, claude) = handbook();
    let run = |more: &[&str]| {
        place
            .run(
                &[
                    &[
                        "run",
                        "--no-reconcile",
                        "--ui",
                        "none",
                        "--claude-bin",
                        &claude,
                    ],
                    more,
                ]
                .concat(),
            )
            .code
    };
    assert_eq!((run(&[]), run(&["--full"])), (Some(0), Some(0)));
    place.write("docs/one.md", "# one, and more\n");
    assert_eq!((run(&[]), records(&place)), (Some(0), 3));
    // Without the forecast, which is from the times of the runs that are left.
    let known = |place: &TestDir| -> Vec<Value> {
        let plan = place.run(&["plan", "--full", "--ui", "json"]);
        let units = plan.expect_success().lines().map(|line| {
            let mut unit: Value = serde_json::from_str(line).unwrap();
            unit.as_object_mut().unwrap().remove("forecast");
            unit
        });
        units.collect()
    };
    let before = known(&place);

    let dry = place.run(&["runs", "prune", "--keep", "0", "--dry-run"]);
    assert!(
        dry.expect_success().contains("would remove 1 run, "),
        "{dry:?}"
    );
    assert_eq!(records(&place), 3, "no deletion was requested");
    let kept = place.run(&["runs", "prune"]);
    assert_eq!(
        kept.expect_success(),
        "removed 0 runs, 0 B; 3 kept\n",
        "ten are kept unless fewer are asked for"
    );
    let young = place.run(&["runs", "prune", "--keep", "0", "--older-than", "1h"]);
    assert!(
        young.expect_success().starts_with("removed 0 runs, "),
        "{young:?}"
    );
    assert_eq!(
        place
            .run(&["runs", "prune", "--older-than=-1h"])
            .expect_refusal(2),
        "invalid --older-than `1h ago`; expected an age such as 30d, 12h or \"2 weeks\""
    );
    let nonsense = place.run(&["runs", "prune", "--older-than", "nonsense"]);
    let text =
        "'nonsense' for '--older-than <AGE>': expected an age such as 30d, 12h or \"2 weeks\"";
    assert!(
        nonsense.code == Some(2) && nonsense.stderr.contains(text),
        "{nonsense:?}"
    );

    // The second run repeats all units of the first one; the third repeats only half of them.
    let pruned = place.run(&["runs", "prune", "--keep", "0"]);
    assert!(
        pruned.expect_success().contains("removed 1 run, "),
        "{pruned:?}"
    );
    assert!(
        pruned
            .stdout
            .contains("2 kept: needed for incremental planning"),
        "{pruned:?}"
    );
    assert_eq!((records(&place), known(&place)), (2, before));
    let nothing = place.run(&[
        "run",
        "--no-reconcile",
        "--ui",
        "none",
        "--claude-bin",
        &claude,
    ]);
    assert!(nothing.stderr.contains("nothing to do"), "{nothing:?}");
    place.run(&["runs", "reindex"]).expect_success();
    assert_eq!(
        place
            .run(&["runs", "prune", "--keep", "0", "--ui", "json"])
            .expect_success(),
        ""
    );
    assert_eq!(
        place
            .run(&["runs", "list"])
            .expect_success()
            .lines()
            .count(),
        2
    );
}

#[test]
fn interrupted_prune_is_completed() {
    let (place, claude) = handbook();
    assert_eq!(
        place
            .run(&[
                "run",
                "--no-reconcile",
                "--ui",
                "none",
                "--claude-bin",
                &claude
            ])
            .code,
        Some(0)
    );
    let left = ".ktx/ingestdeck/runs/.leaving-01a20141-a13e-713f-b820-144f51fc451a";
    place.write(&format!("{left}/tape.jsonl"), "{");
    assert_eq!(
        place
            .run(&["runs", "list"])
            .expect_success()
            .lines()
            .count(),
        1,
        "a partly deleted run is not listed"
    );
    place.run(&["runs", "prune", "--dry-run"]).expect_success();
    assert!(place.path(left).exists());
    place.run(&["runs", "prune"]).expect_success();
    assert!(!place.path(left).exists());
}

#[test]
fn unreadable_tape_is_kept() {
    let place = TestDir::new();
    let id = "01a20141-a13e-713f-b820-144f51fc451a";
    place.write(
        &format!(".ktx/ingestdeck/runs/{id}/tape.jsonl"),
        "{\"tape\":2,\"program\":\"ingestdeck 9\"}\n",
    );
    let ran = place.run(&["runs", "prune", "--keep", "0"]);
    assert!(
        ran.stderr.contains("is left out") && ran.stderr.contains("; it is kept"),
        "{ran:?}"
    );
    assert!(
        ran.stdout.contains("removed 0 runs") && ran.stdout.contains("1 kept: the tape"),
        "{ran:?}"
    );
}

#[test]
fn active_run_is_kept() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let claude = place
        .scripted_claude("[[part]]\nsteps = [{ say = \"now\" }, \"hang\"]\n")
        .display()
        .to_string();
    let mut running = place.start(place.command(&[
        "run",
        "--no-reconcile",
        "--ui",
        "lines",
        "--claude-bin",
        &claude,
    ]));
    running.wait_for("stdout", "● session");
    let pruned = place.run(&["runs", "prune", "--keep", "0"]);
    assert!(
        pruned.expect_success().starts_with("removed 0 runs, "),
        "{pruned:?}"
    );
    assert!(
        pruned.stdout.contains("1 kept: still running"),
        "{pruned:?}"
    );
    assert_eq!(place.run(&["ctl", "stop-all", "--kill"]).code, Some(0));
    running.end();
    // No unit has succeeded, but the next plan names what happened.
    let before = place.run(&["plan", "--ui", "json"]).stdout;
    place
        .run(&["runs", "prune", "--keep", "0"])
        .expect_success();
    assert_eq!(place.run(&["plan", "--ui", "json"]).stdout, before);
}

/// The run has no unit whose result a plan needs.
#[test]
fn run_that_waits_for_a_review_is_kept() {
    let (place, claude) = handbook();
    let run = |claude: &str, more: &[&str]| {
        place.run(&[&["run", "--ui", "none", "--claude-bin", claude], more].concat())
    };
    assert_eq!(run(&claude, &["--no-reconcile"]).code, Some(0));
    fs::remove_file(place.path("docs/one.md")).unwrap();
    let reconcile = r#"
[[part]]
steps = [
  { call = { tool = "eviction_list" } },
  { call = { tool = "wiki_read", with = { key = "one" } } },
  { call = { tool = "record_verification_ledger", with = { summary = "Nothing else supports it." } } },
  { call = { tool = "wiki_remove", with = { key = "one", rawPaths = ["handbook/one.md"] } } },
  { call = { tool = "emit_eviction_decision", with = { rawPath = "handbook/one.md", artifactKind = "wiki", artifactKey = "one", action = "removed", reason = "its file is gone" } } },
  { say = "Removed." },
]
"#;
    let claude = place.scripted_claude(reconcile).display().to_string();
    let waiting = run(&claude, &["--review"]);
    assert_eq!(
        (waiting.code, records(&place)),
        (Some(103), 2),
        "{waiting:?}"
    );
    let listed = || {
        let list = place.run(&["review", "--list", "--ui", "json"]);
        assert_eq!(list.code, Some(103), "{list:?}");
        list.stdout
    };
    let before = listed();
    assert!(before.contains("wiki/global/one.md"), "{before}");
    let pruned = place.run(&["runs", "prune", "--keep", "0"]);
    assert!(
        pruned
            .expect_success()
            .contains("1 kept: waiting for a review"),
        "{pruned:?}"
    );
    assert_eq!(listed(), before);

    // Once it is decided, only the deletion is left to be known.
    let decided = place.run(&[
        "review",
        "--accept",
        "*",
        "--ui",
        "none",
        "--claude-bin",
        &claude,
    ]);
    decided.expect_success();
    assert!(!place.path("wiki/global/one.md").exists());
    let pruned = place.run(&["runs", "prune", "--keep", "0"]);
    assert!(
        !pruned.expect_success().contains("waiting for a review"),
        "{pruned:?}"
    );
    assert!(
        !place.run(&["plan"]).expect_success().contains("gone"),
        "the deletion is decided"
    );
}
