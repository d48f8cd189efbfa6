//! Units whose agent did nothing, read only a part of its files, or wrote nothing.

use serde_json::{Value, json};

use super::{
    end_to_end::{newest_tape, orchard_project, run, states, summary, wiki, writes},
    test_dir::{TestDir, parse_json_events},
};

/// A part for `unit` that ends with an answer, and does `if_asked` when it is asked to continue.
fn answers_only(unit: &str, if_asked: &str) -> String {
    format!(
        "\n[[part]]\nunit = \"{unit}\"\nsteps = [{{ say = \"ok\" }}]\nif_asked = [{if_asked}]\n"
    )
}

/// The note of the end of the last attempt of `unit` in the newest run.
fn ended(place: &TestDir, unit: &str) -> Value {
    let tape = newest_tape(place);
    let entries = tape
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut ends =
        entries.filter(|entry| entry["unit"] == unit && entry["note"]["kind"] == "attempt_ended");
    ends.next_back().unwrap()["note"].take()
}

/// The planned units with their reasons.
fn planned(place: &TestDir) -> Vec<(String, String)> {
    let plan = place.run(&["plan", "--ui", "json"]);
    let lines = plan
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let units = lines.filter(|line| line["rawFiles"].is_array());
    units
        .map(|unit| (text(&unit["unit"]), text(&unit["why"])))
        .collect()
}

#[test]
fn agent_that_only_answers_has_done_nothing() {
    let place = orchard_project();
    let mut script: String = ["crates", "growers", "juice"]
        .map(|name| writes(&format!("docs-{name}"), &format!("{name}.md"), name, "x"))
        .concat();
    script.push_str(&answers_only(
        "docs-payments",
        "{ say = \"I have nothing to add.\" }",
    ));
    let claude = place.scripted_claude(&script).display().to_string();
    let ran = run(&place, &claude, &["--no-reconcile"]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    let lines = parse_json_events(&ran.stdout);
    assert_eq!(
        states(&lines, "docs-payments").last().map(String::as_str),
        Some("failed")
    );
    assert_eq!(
        summary(&lines)["units"],
        json!({"succeeded": 3, "failed": 1})
    );
    let end = ended(&place, "docs-payments");
    assert_eq!(
        (&end["verdict"]["cause"], &end["verdict"]["stop"]),
        (&json!("nothing_done"), &json!("natural"))
    );
    assert_eq!(end["work"]["unread"], json!([{"path": "payments.md"}]));
    let tape = newest_tape(&place);
    assert!(tape.contains("You have not read 1 raw file of this work unit: `payments.md`"));
    let asked = tape
        .lines()
        .filter(|line| line.contains(r#""decision":"block""#));
    assert_eq!(asked.count(), 1, "one question, in the same session");
    assert_eq!(
        wiki(&place),
        ["crates.md", "growers.md", "juice.md"],
        "the other units are saved"
    );
    assert_eq!(
        planned(&place),
        [("docs-payments".to_owned(), "failed last time".to_owned())]
    );
}

#[test]
fn idle_unit_succeeds_when_it_is_retried_with_feedback() {
    let place = orchard_project();
    let feedback = "Read payments.md before you answer.";
    let again = writes("docs-payments", "payments.md", "payments", "x");
    let again = again.replace(
        "[[part]]\n",
        &format!("[[part]]\nprompt = \"{feedback}\"\n"),
    );
    let first = answers_only("docs-payments", "{ say = \"I have nothing to add.\" }");
    let hangs = "\n[[part]]\nunit = \"docs-juice\"\nsteps = [{ say = \"now\" }, \"hang\"]\n";
    let claude = place
        .scripted_claude(&[again.as_str(), &first, hangs].concat())
        .display()
        .to_string();
    let only = [
        "--only",
        "docs-payments",
        "--only",
        "docs-juice",
        "--concurrency",
        "2",
        "--no-reconcile",
    ];
    let command = place.command(
        &[
            &["run", "--ui", "lines", "--claude-bin", &claude],
            &only[..],
        ]
        .concat(),
    );
    let mut running = place.start(command);
    running.wait_for("stdout", "docs-payments#1          ✗ failed");
    running.wait_for("stdout", "docs-juice#1             ● session");
    let retried = place.run(&["ctl", "retry", "docs-payments", "--feedback", feedback]);
    assert_eq!(retried.code, Some(0), "{retried:?}");
    running.wait_for("stdout", "docs-payments#2          ✓ succeeded");
    assert_eq!(place.run(&["ctl", "stop", "docs-juice"]).code, Some(0));
    let ran = running.end();
    assert_eq!(ran.code, Some(100), "a stopped unit is not done: {ran:?}");
    let end = ended(&place, "docs-payments");
    assert_eq!(
        (&end["verdict"]["outcome"], &end["work"]["unread"]),
        (&json!("succeeded"), &Value::Null),
        "{end}"
    );
    assert_eq!(wiki(&place), ["payments.md"]);
    let left = planned(&place)
        .into_iter()
        .filter(|(unit, _)| only.contains(&unit.as_str()));
    assert_eq!(
        left.map(|(unit, _)| unit).collect::<Vec<_>>(),
        ["docs-juice"]
    );
    // Without a feedback, in a later run.
    let reads = "[[part]]\nsteps = [{ say = \"read\" }]\n";
    let claude = place.scripted_claude(reads).display().to_string();
    assert_eq!(run(&place, &claude, &["--no-reconcile"]).code, Some(0));
    assert_eq!(planned(&place), []);
}

#[test]
fn idle_unit_succeeds_in_a_later_run() {
    for again in [
        &["--failed"][..],
        &["--only", "docs-crates"],
        &["--resume-run", "latest"],
    ] {
        let place = orchard_project();
        let claude = place
            .scripted_claude(&answers_only("docs-crates", "{ say = \"ok\" }"))
            .display()
            .to_string();
        assert_eq!(
            run(
                &place,
                &claude,
                &["--no-reconcile", "--only", "docs-crates"]
            )
            .code,
            Some(100)
        );
        let claude = place
            .scripted_claude(&writes("docs-crates", "crates.md", "crates", "x"))
            .display()
            .to_string();
        let ran = run(&place, &claude, &[&["--no-reconcile"], again].concat());
        assert_eq!(ran.code, Some(0), "{again:?}: {ran:?}");
        assert_eq!(wiki(&place), ["crates.md"]);
        assert!(
            planned(&place)
                .iter()
                .all(|(unit, _)| unit != "docs-crates"),
            "{again:?}"
        );
    }
}

#[test]
fn agent_that_reads_when_it_is_asked_succeeds() {
    let place = orchard_project();
    let read = r#"{ call = { tool = "read_raw_file", with = { path = "crates.md" } } }, { say = "Nothing new." }"#;
    let claude = place
        .scripted_claude(&answers_only("docs-crates", read))
        .display()
        .to_string();
    let ran = run(&place, &claude, &["--only", "docs-crates"]);
    let lines = parse_json_events(&ran.stdout);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(summary(&lines)["nothing_written"], json!(["docs-crates"]));
    let end = ended(&place, "docs-crates");
    assert_eq!(end["verdict"]["reason"], "completed; read, nothing written");
    assert_eq!(
        (&end["work"]["nothing_written"], &end["work"]["unread"]),
        (&json!(true), &Value::Null)
    );
    let shown = place.run(&["replay", "latest", "--ui", "lines"]);
    let counted = "1 succeeded (1 read, nothing written)";
    assert!(shown.stdout.contains(counted), "{shown:?}");
    // It is counted apart wherever units are counted.
    let listed = place.run(&["runs", "list"]);
    assert!(
        listed
            .expect_success()
            .contains(&format!("1 unit: {counted}")),
        "{listed:?}"
    );
    let listed: Value = serde_json::from_str(
        place
            .run(&["runs", "list", "--ui", "json"])
            .expect_success(),
    )
    .unwrap();
    assert_eq!(listed["index"]["nothing_written"], 1, "{listed}");
    for format in ["md", "html"] {
        let report = place.run(&["report", "--format", format]);
        assert!(report.expect_success().contains(counted), "{report:?}");
        assert!(
            report.stdout.contains("succeeded (read, nothing written)"),
            "{report:?}"
        );
    }
    let junit = place.run(&["report", "--format", "junit"]);
    assert!(
        junit
            .expect_success()
            .contains(r#"<property name="read, nothing written" value="1"/>"#),
        "{junit:?}"
    );
}

#[test]
fn decision_about_a_file_counts_as_evidence() {
    let place = orchard_project();
    let decides = r#"{ call = { tool = "record_verification_ledger", with = { summary = "Odd." } } },
        { call = { tool = "emit_unmapped_fallback", with = { rawPath = "crates.md", reason = "parse_error", fallback = "flagged" } } }"#;
    let claude = place
        .scripted_claude(&answers_only("docs-crates", decides))
        .display()
        .to_string();
    let ran = run(&place, &claude, &["--only", "docs-crates"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(
        ended(&place, "docs-crates")["work"]["nothing_written"],
        Value::Null,
        "it has decided something"
    );
}

#[test]
fn failed_read_and_read_of_another_file_are_no_evidence() {
    let place = orchard_project();
    let other = r#"{ call = { tool = "read_raw_file", with = { path = "juice.md" } } }"#;
    let claude = place
        .scripted_claude(&answers_only("docs-crates", other))
        .display()
        .to_string();
    let ran = run(&place, &claude, &["--only", "docs-crates"]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    assert_eq!(
        ended(&place, "docs-crates")["verdict"]["cause"],
        "nothing_done"
    );
}

/// A manifest with one unit of three files, of which the agent reads the first one and the beginning of the second.
fn partial_project() -> (TestDir, String) {
    let place = orchard_project();
    place.write(
        "units.json",
        r#"[{"unitKey": "all", "rawFiles": ["a.md", "b.md", "c.md"]}]"#,
    );
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
    assert_eq!(
        end["work"]["unread"],
        json!([{"path": "b.md", "part": part}, {"path": "c.md"}])
    );
    assert_eq!(
        end["verdict"]["reason"],
        "completed; read, nothing written; 2 of 3 raw files unread: b.md (2 of 3 lines read), c.md"
    );
    let unread = json!([{"unit": "all", "path": "b.md", "part": part}, {"unit": "all", "path": "c.md", "part": null}]);
    assert_eq!(summary(&parse_json_events(&ran.stdout))["unread"], unread);
    for format in ["md", "html"] {
        let report = place.run(&["report", "--format", format]);
        let report = report.expect_success();
        assert!(
            report.contains("Left unread (2)") && report.contains("read in part (2 of 3 lines)"),
            "{report}"
        );
    }
    assert_eq!(planned(&place), [], "they are settled");
}

/// The text of the plan, and its object about unread files.
fn unread_in_plan(place: &TestDir, more: &[&str]) -> (String, Value) {
    let text = place
        .run(&[&["plan"], more].concat())
        .expect_success()
        .to_owned();
    let plan = place.run(&[&["plan", "--ui", "json"], more].concat());
    let mut lines = plan
        .expect_success()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let object = lines.find(|line| line.get("unit").is_none() && line.get("unread").is_some());
    (
        text,
        object.map_or(Value::Null, |object| object["unread"].clone()),
    )
}

const SENTENCE: &str =
    "  2 files were left unread (plan --unread): b.md (2 of 3 lines read), c.md\n";

#[test]
fn plan_names_unread_files_and_plans_them_on_request() {
    let (place, claude) = partial_project();
    assert_eq!(
        unread_in_plan(&place, &["--unread"]).1,
        Value::Null,
        "nothing is recorded"
    );
    assert_eq!(run(&place, &claude, &["--no-reconcile"]).code, Some(0));
    let part = json!({"read": 2, "of": 3, "unit": "lines"});
    let unread = json!([{"unit": "all", "path": "b.md", "part": part}, {"unit": "all", "path": "c.md", "part": null}]);
    let (text, object) = unread_in_plan(&place, &[]);
    assert!(
        text.contains(&format!(
            "m +0/~0/-0/=3, 1 unit unchanged\n{SENTENCE}nothing to do: "
        )),
        "{text}"
    );
    assert_eq!(object, unread);
    // The index can be deleted, because it is rebuilt from the tapes.
    std::fs::remove_file(place.path(".ktx/ingestdeck/db.sqlite")).unwrap();
    assert_eq!(unread_in_plan(&place, &[]), (text, object));
    let nothing = run(&place, &claude, &["--no-reconcile"]);
    let sentence = SENTENCE.trim().replace("plan", "run");
    assert!(
        nothing
            .stderr
            .contains(&format!("ingestdeck: connection m: {sentence}\n")),
        "{nothing:?}"
    );

    let (text, object) = unread_in_plan(&place, &["--unread"]);
    assert!(
        text.contains("m +0/~0/-0/=3, 1 unit left files unread\n")
            && text.contains("1 unit planned"),
        "{text}"
    );
    assert!(
        text.contains("2 files left unread") && !text.contains("(plan --unread)"),
        "{text}"
    );
    assert_eq!(object, Value::Null, "all of them are planned");
    let plan = place.run(&["plan", "--unread", "--ui", "json"]);
    let unit: Value = serde_json::from_str(plan.expect_success().lines().next().unwrap()).unwrap();
    assert_eq!(
        unit["unread"],
        json!([{"path": "b.md", "part": part}, {"path": "c.md", "part": null}])
    );
    assert_eq!(
        (&unit["rawFiles"], &unit["dependencyPaths"]),
        (&json!(["b.md", "c.md"]), &json!(["a.md"]))
    );
    assert_eq!(
        (&unit["changedFiles"], &unit["why"]),
        (&Value::Null, &json!("2 files left unread"))
    );

    // An edited file is changed; `--unread` adds the others of its unit.
    place.write("b.md", "# b\n\nAnother text.\n");
    let (text, object) = unread_in_plan(&place, &[]);
    assert!(
        text.contains("  1 file was left unread (plan --unread): c.md\n"),
        "{text}"
    );
    assert_eq!(
        object,
        json!([{"unit": "all", "path": "c.md", "part": null}])
    );
    let whys = |more: &[&str]| {
        unread_in_plan(&place, more)
            .0
            .lines()
            .nth(1)
            .unwrap()
            .to_owned()
    };
    assert!(
        whys(&[]).ends_with("1 file modified")
            && whys(&["--unread"]).ends_with("1 file modified, 1 file left unread")
    );
    place.write("b.md", "# b\n\nA text.\n");

    let read = |paths: &[&str]| -> String {
        let call = |path: &&str| {
            format!("{{ call = {{ tool = \"read_raw_file\", with = {{ path = \"{path}\" }} }} }}, ")
        };
        let calls: String = paths.iter().map(call).collect();
        place
            .scripted_claude(&format!(
                "[[part]]\nsteps = [{calls}{{ say = \"Done.\" }}]\n"
            ))
            .display()
            .to_string()
    };
    assert_eq!(
        run(
            &place,
            &read(&["b.md", "c.md"]),
            &["--no-reconcile", "--unread"]
        )
        .code,
        Some(0)
    );
    assert_eq!(
        unread_in_plan(&place, &[]).1,
        Value::Null,
        "a later success read them"
    );
    assert_eq!(planned(&place), []);
    assert!(
        unread_in_plan(&place, &["--unread"])
            .0
            .contains("nothing to do: ")
    );
}

#[test]
fn unread_files_of_reused_results_are_still_named() {
    let (place, _) = partial_project();
    place.write(
        "units.json",
        r#"[{"unitKey": "all", "rawFiles": ["a.md", "b.md"]}, {"unitKey": "x", "rawFiles": ["c.md"]}]"#,
    );
    super::end_to_end::git(
        &place,
        &["commit", "--quiet", "--all", "--message=Two units"],
    );
    let script = |x: &str| {
        let all =
            r#"{ call = { tool = "read_raw_file", with = { path = "a.md" } } }, { say = "Done." }"#;
        let all = format!(
            "[[part]]\nunit = \"all\"\nsteps = [{all}]\nif_asked = [{{ say = \"No.\" }}]\n"
        );
        let x = format!("[[part]]\nunit = \"x\"\nsteps = [{x}]\n");
        place.scripted_claude(&(all + &x)).display().to_string()
    };
    let fails =
        script(r#"{ deny = { tool = "Bash", with = { command = "ls" } } }, { say = "no" }"#);
    assert_eq!(run(&place, &fails, &["--no-reconcile"]).code, Some(100));
    let unread = json!([{"unit": "all", "path": "b.md", "part": null}]);
    assert_eq!(unread_in_plan(&place, &[]).1, unread);
    assert_eq!(
        unread_in_plan(&place, &["--resume-run", "latest"]).1,
        Value::Null,
        "it compares with older records"
    );
    let reads = script(
        r#"{ call = { tool = "read_raw_file", with = { path = "c.md" } } }, { say = "Done." }"#,
    );
    assert_eq!(
        run(
            &place,
            &reads,
            &["--no-reconcile", "--resume-run", "latest"]
        )
        .code,
        Some(0)
    );
    assert_eq!(
        unread_in_plan(&place, &[]).1,
        unread,
        "the result of the first run is reused"
    );
    assert_eq!(
        unread_in_plan(&place, &["--only", "x"]).1,
        Value::Null,
        "it is not asked for"
    );
    // A later success of the unit with another file, after which only the first run knows what was left.
    place.write("a.md", "# a\n\nAnother text.\n");
    assert_eq!(run(&place, &reads, &["--no-reconcile"]).code, Some(0));
    assert_eq!(unread_in_plan(&place, &[]).1, unread);
    place
        .run(&["runs", "prune", "--keep", "0"])
        .expect_success();
    assert_eq!(unread_in_plan(&place, &[]).1, unread);
    std::fs::remove_file(place.path("b.md")).unwrap();
    place.write(
        "units.json",
        r#"[{"unitKey": "all", "rawFiles": ["a.md"]}, {"unitKey": "x", "rawFiles": ["c.md"]}]"#,
    );
    assert_eq!(unread_in_plan(&place, &[]).1, Value::Null, "it vanished");
}

#[test]
fn unread_files_fail_a_unit_if_the_setting_requires_it() {
    let (place, claude) = partial_project();
    place.write("config.toml", "[ingest]\nunread = \"fail\"\n");
    let ran = run(
        &place,
        &claude,
        &["--no-reconcile", "--config", "config.toml"],
    );
    assert_eq!(ran.code, Some(100), "{ran:?}");
    assert_eq!(ended(&place, "all")["verdict"]["cause"], "unread");
    assert_eq!(
        planned(&place),
        [("all".to_owned(), "failed last time".to_owned())]
    );
    place.write("config.toml", "[ingest]\nunread = \"fial\"\n");
    let refused = place.run(&["plan", "--config", "config.toml"]);
    assert!(
        refused.expect_refusal(2).contains("ingest.unread"),
        "{refused:?}"
    );
}
