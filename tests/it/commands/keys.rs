//! Unit keys: KTX's keys in every file that KTX reads, and unique keys where connections of one run have the same ones.

use std::fs;

use serde_json::{Value, json};

use super::test_dir::TestDir;

const GOOD: &str = "[[part]]\nsteps = [{ say = \"read\" }]\n";
const BAD: &str = "[[part]]\nsteps = [{ deny = { tool = \"Bash\", with = { command = \"ls\" } } }, { say = \"no\" }]\n";

fn connections(place: &TestDir, ids: &[&str]) {
    let connection = |id: &&str| format!("  {id}: {{driver: docs, source_dir: {id}}}\n");
    place.write(
        "ktx.yaml",
        format!(
            "connections:\n{}",
            ids.iter().map(connection).collect::<String>()
        ),
    );
}

/// The connections `a` and `b`, each with a file of the same name.
fn shared() -> TestDir {
    let place = TestDir::new();
    connections(&place, &["a", "b"]);
    place.write("a/page.md", "# a\n");
    place.write("b/page.md", "# b\n");
    place
}

fn run(place: &TestDir, script: &str, more: &[&str]) -> Option<i32> {
    let claude = place.scripted_claude(script);
    place
        .run(
            &[
                &[
                    "run",
                    "--claude-bin",
                    claude.to_str().unwrap(),
                    "--ui",
                    "none",
                ],
                more,
            ]
            .concat(),
        )
        .code
}

/// Connection, key in the run, KTX's key if it differs, and reason of each planned unit.
fn planned(place: &TestDir, more: &[&str]) -> Vec<[String; 4]> {
    let ran = place.run(&[&["plan", "--ui", "json"], more].concat());
    let objects = ran
        .expect_success()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |object: &Value, key: &str| object[key].as_str().unwrap_or_default().to_owned();
    objects
        .map(|object| ["connection", "unit", "unitKey", "why"].map(|key| text(&object, key)))
        .collect()
}

fn rows(rows: &[[&str; 4]]) -> Vec<[String; 4]> {
    rows.iter().map(|row| row.map(str::to_owned)).collect()
}

#[test]
fn keys_of_one_connection_are_those_of_ktx() {
    let place = shared();
    assert_eq!(
        planned(&place, &["b"]),
        rows(&[["b", "docs-page", "", "new"]])
    );
    let both = rows(&[
        ["a", "docs-page-a", "docs-page", "new"],
        ["b", "docs-page-b", "docs-page", "new"],
    ]);
    assert_eq!(planned(&place, &[]), both);
    assert_eq!(planned(&place, &["--only", "docs-page"]), both);
    assert_eq!(planned(&place, &["--only", "docs-page-b"]), both[1..]);
    let none = place.run(&["plan", "--only", "docs-none"]);
    assert!(
        none.expect_refusal(4)
            .contains("name one of the units: docs-page-a, docs-page-b"),
        "{none:?}"
    );
}

#[test]
fn published_files_use_ktx_keys() {
    let place = shared();
    assert_eq!(run(&place, BAD, &["--only", "docs-page"]), Some(100));
    let values = |text: &str| {
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect::<Vec<Value>>()
    };
    let reports = values(&place.run(&["report", "--format", "json"]).stdout);
    assert_eq!(reports.len(), 2);
    for (report, connection) in reports.iter().zip(["a", "b"]) {
        let body = &report["body"];
        assert_eq!(
            (&report["connectionId"], &body["workUnits"][0]["unitKey"]),
            (&json!(connection), &json!("docs-page"))
        );
        assert_eq!(body["failedWorkUnits"], json!(["docs-page"]));
        assert_eq!(body["toolTranscripts"][0]["unitKey"], "docs-page");
        let path = body["toolTranscripts"][0]["path"].as_str().unwrap();
        assert!(
            path.ends_with(&format!("/docs-page-{connection}.jsonl")) && place.path(path).is_file(),
            "{path}"
        );
        let extras = &body["ingestdeck"]["units"][0];
        assert_eq!(
            (&extras["unitKey"], &extras["unit"]),
            (
                &json!("docs-page"),
                &json!(format!("docs-page-{connection}"))
            )
        );
    }
    let exported = place.run(&["runs", "export", "--format", "memory-flow"]);
    let trace = place.run(&["runs", "export", "--format", "trace"]);
    for text in [exported.expect_success(), trace.expect_success()] {
        assert!(
            text.contains("\"unitKey\":\"docs-page\"")
                && !text.contains("\"unitKey\":\"docs-page-"),
            "{text}"
        );
    }
    let mut job = fs::read_dir(place.path(".ktx/ingest-traces"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let trace =
        fs::read_to_string(job.find(|path| path.is_dir()).unwrap().join("trace.jsonl")).unwrap();
    assert!(
        trace.contains("\"unitKey\":\"docs-page\"") && !trace.contains("docs-page-a"),
        "{trace}"
    );
}

#[test]
fn prior_results_count_with_and_without_other_connections() {
    let place = shared();
    connections(&place, &["a"]);
    assert_eq!(run(&place, BAD, &[]), Some(100));
    // A second connection with the same keys is added.
    connections(&place, &["a", "b"]);
    let both = [
        ["a", "docs-page-a", "docs-page", "failed last time"],
        ["b", "docs-page-b", "docs-page", "new"],
    ];
    assert_eq!(planned(&place, &[]), rows(&both));
    let why = &planned(&place, &["--failed"])[0];
    assert_eq!(
        (why[0].as_str(), why[1].as_str()),
        ("a", "docs-page"),
        "the key of that run"
    );
    assert_eq!(run(&place, GOOD, &["--failed"]), Some(0));
    assert_eq!(planned(&place, &[]), rows(&both[1..]));
    // A run of both connections fails, and one connection is removed.
    assert_eq!(run(&place, BAD, &["--full"]), Some(100));
    connections(&place, &["b"]);
    assert_eq!(
        planned(&place, &[]),
        rows(&[["b", "docs-page", "", "failed last time"]])
    );
    let resumed = planned(&place, &["--resume-run", "latest"]);
    assert_eq!(
        (
            resumed.len(),
            resumed[0][1].as_str(),
            resumed[0][2].as_str()
        ),
        (1, "docs-page-b", "docs-page")
    );
    assert_eq!(run(&place, GOOD, &["--resume-run", "latest"]), Some(0));
    assert_eq!(planned(&place, &[]), rows(&[]));
    // The connection returns. Its last run failed after an earlier success.
    connections(&place, &["a", "b"]);
    assert_eq!(
        planned(&place, &[]),
        rows(&[["a", "docs-page-a", "docs-page", "failed last time"]])
    );
}

#[test]
fn piped_plan_has_complete_keys() {
    let place = TestDir::new();
    let name = "a-long-name-of-a-page-".repeat(6);
    place.notes(&[&name]);
    let key = format!("docs-{}", name.trim_end_matches('-'));
    assert!(key.len() > 120);
    let plan = place.run(&["plan"]);
    assert!(
        plan.expect_success().contains(&format!("\n{key}  ")),
        "{plan:?}"
    );
    assert_eq!(planned(&place, &["--only", &key]).len(), 1);
}
