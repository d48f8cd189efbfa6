//! Units whose agent did nothing, read only a part of its files, or wrote nothing.

use serde_json::{Value, json};

use super::{
    end_to_end::{newest_tape, orchard_project, run, states, summary, wiki, writes},
    test_dir::{TestDir, parse_json_events},
};

/// A part for `unit` that ends with an answer, and does `if_asked` when it is asked to continue.
fn answers_only(unit: &str, if_asked: &str) -> String {
    format!("\n[[part]]\nunit = \"{unit}\"\nsteps = [{{ say = \"ok\" }}]\nif_asked = [{if_asked}]\n")
}

/// The note of the end of the last attempt of `unit` in the newest run.
fn ended(place: &TestDir, unit: &str) -> Value {
    let tape = newest_tape(place);
    let entries = tape.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut ends = entries.filter(|entry| entry["unit"] == unit && entry["note"]["kind"] == "attempt_ended");
    ends.next_back().unwrap()["note"].take()
}

/// The planned units with their reasons.
fn planned(place: &TestDir) -> Vec<(String, String)> {
    let plan = place.run(&["plan", "--ui", "json"]);
    let lines = plan.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let units = lines.filter(|line| line["rawFiles"].is_array());
    units.map(|unit| (text(&unit["unit"]), text(&unit["why"]))).collect()
}

#[test]
fn agent_that_only_answers_has_done_nothing() {
    let place = orchard_project();
    let mut script: String = ["crates", "growers", "juice"]
        .map(|name| writes(&format!("docs-{name}"), &format!("{name}.md"), name, "x"))
        .concat();
    script.push_str(&answers_only("docs-payments", "{ say = \"I have nothing to add.\" }"));
    let claude = place.scripted_claude(&script).display().to_string();
    let ran = run(&place, &claude, &["--no-reconcile"]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    let lines = parse_json_events(&ran.stdout);
    assert_eq!(states(&lines, "docs-payments").last().map(String::as_str), Some("failed"));
    assert_eq!(summary(&lines)["units"], json!({"succeeded": 3, "failed": 1}));
    let end = ended(&place, "docs-payments");
    assert_eq!((&end["verdict"]["cause"], &end["verdict"]["stop"]), (&json!("nothing_done"), &json!("natural")));
    assert_eq!(end["work"]["unread"], json!([{"path": "payments.md"}]));
    let tape = newest_tape(&place);
    assert!(tape.contains("You have not read 1 raw file of this work unit: `payments.md`"));
    let asked = tape.lines().filter(|line| line.contains(r#""decision":"block""#));
    assert_eq!(asked.count(), 1, "one question, in the same session");
    assert_eq!(wiki(&place), ["crates.md", "growers.md", "juice.md"], "the other units are saved");
    assert_eq!(planned(&place), [("docs-payments".to_owned(), "failed last time".to_owned())]);
}

#[test]
fn agent_that_reads_when_it_is_asked_succeeds() {
    let place = orchard_project();
    let read = r#"{ call = { tool = "read_raw_file", with = { path = "crates.md" } } }, { say = "Nothing new." }"#;
    let claude = place.scripted_claude(&answers_only("docs-crates", read)).display().to_string();
    let ran = run(&place, &claude, &["--only", "docs-crates"]);
    let lines = parse_json_events(&ran.stdout);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(summary(&lines)["nothing_written"], json!(["docs-crates"]));
    let end = ended(&place, "docs-crates");
    assert_eq!(end["verdict"]["reason"], "completed; read, nothing written");
    assert_eq!((&end["work"]["nothing_written"], &end["work"]["unread"]), (&json!(true), &Value::Null));
    let shown = place.run(&["replay", "latest", "--ui", "lines"]);
    assert!(shown.stdout.contains("1 succeeded (1 read, nothing written)"), "{shown:?}");
}

#[test]
fn decision_about_a_file_counts_as_evidence() {
    let place = orchard_project();
    let decides = r#"{ call = { tool = "record_verification_ledger", with = { summary = "Odd." } } },
        { call = { tool = "emit_unmapped_fallback", with = { rawPath = "crates.md", reason = "parse_error", fallback = "flagged" } } }"#;
    let claude = place.scripted_claude(&answers_only("docs-crates", decides)).display().to_string();
    let ran = run(&place, &claude, &["--only", "docs-crates"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ended(&place, "docs-crates")["work"]["nothing_written"], Value::Null, "it has decided something");
}

#[test]
fn failed_read_and_read_of_another_file_are_no_evidence() {
    let place = orchard_project();
    let other = r#"{ call = { tool = "read_raw_file", with = { path = "juice.md" } } }"#;
    let claude = place.scripted_claude(&answers_only("docs-crates", other)).display().to_string();
    let ran = run(&place, &claude, &["--only", "docs-crates"]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    assert_eq!(ended(&place, "docs-crates")["verdict"]["cause"], "nothing_done");
}

/// A manifest with one unit of three files, of which the agent reads the first one and the beginning of the second.
fn partial_project() -> (TestDir, String) {
    let place = orchard_project();
    place.write("units.json", r#"[{"unitKey": "all", "rawFiles": ["a.md", "b.md", "c.md"]}]"#);
    for name in ["a", "b", "c"] {
        place.write(&format!("{name}.md"), format!("# {name}\n\nA text.\n"));
    }
    place.write(
        "ktx.yaml",
        "connections:\n  m: {driver: manifest, path: units.json}\nllm:\n  provider: {backend: claude-code}\n",
    );
    super::end_to_end::git(&place, &["add", "--all"]);
    super::end_to_end::git(&place, &["commit", "--quiet", "--message=Manifest"]);
    let script = r#"
[[part]]
steps = [
  { call = { tool = "read_raw_file", with = { path = "a.md" } } },
  { call = { tool = "read_raw_span", with = { path = "b.md", startLine = 1, endLine = 2 } } },
  { say = "Done." },
]
if_asked = [{ say = "That is enough." }]
"#;
    let claude = place.scripted_claude(script).display().to_string();
    (place, claude)
}

#[test]
fn unread_files_of_a_success_are_named() {
    let (place, claude) = partial_project();
    let ran = run(&place, &claude, &["--no-reconcile"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let end = ended(&place, "all");
    let part = json!({"read": 2, "of": 3, "unit": "lines"});
    assert_eq!(end["work"]["unread"], json!([{"path": "b.md", "part": part}, {"path": "c.md"}]));
    assert_eq!(
        end["verdict"]["reason"],
        "completed; read, nothing written; 2 of 3 raw files unread: b.md (2 of 3 lines read), c.md"
    );
    let unread = json!([{"unit": "all", "path": "b.md", "part": part}, {"unit": "all", "path": "c.md", "part": null}]);
    assert_eq!(summary(&parse_json_events(&ran.stdout))["unread"], unread);
    for format in ["md", "html"] {
        let report = place.run(&["report", "--format", format]);
        let report = report.expect_success();
        assert!(report.contains("Left unread (2)") && report.contains("read in part (2 of 3 lines)"), "{report}");
    }
    assert_eq!(planned(&place), [], "they are settled");
}

#[test]
fn unread_files_fail_a_unit_if_the_setting_requires_it() {
    let (place, claude) = partial_project();
    place.write("config.toml", "[ingest]\nunread = \"fail\"\n");
    let ran = run(&place, &claude, &["--no-reconcile", "--config", "config.toml"]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    assert_eq!(ended(&place, "all")["verdict"]["cause"], "unread");
    assert_eq!(planned(&place), [("all".to_owned(), "failed last time".to_owned())]);
    place.write("config.toml", "[ingest]\nunread = \"fial\"\n");
    let refused = place.run(&["plan", "--config", "config.toml"]);
    assert!(refused.expect_refusal(2).contains("ingest.unread"), "{refused:?}");
}
