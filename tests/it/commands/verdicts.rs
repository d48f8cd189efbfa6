//! The verdicts of KTX 0.12.0 on 26 units, one scenario each, compared with the verdicts of this program on the same
//! calls, under KTX's rule and under the strict one.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::{Map, Value, json};

use super::{
    end_to_end::{git, orchard_project, run, wiki},
    test_dir::TestDir,
};

/// Units whose verdict differs from KTX's, and why.
const OTHERWISE: [(&str, &str, &str); 4] = [
    (
        "u08",
        "failed",
        "it calls an unknown tool: every rejected call counts here",
    ),
    (
        "u18",
        "failed",
        "it removes a page that another page refers to: KTX finds that only at the end, and the whole job fails",
    ),
    (
        "u22",
        "failed",
        "a measure names an unknown segment: KTX does not check it",
    ),
    (
        "u23",
        "failed",
        "its grain is not a column: KTX does not check it",
    ),
];

/// Units with a refused call that a later call settles, which both `strict` (as `recoverable`) and KTX accept: the
/// refused call, and the call that settles it.
const SETTLED: [(&str, &str, &str); 4] = [
    (
        "u02",
        "a page before the verification ledger",
        "the ledger, and the page again",
    ),
    ("u07", "a page without a summary", "the page with one"),
    (
        "u15",
        "a page under the key `a/p15`",
        "the page under the flat key `a-p15`",
    ),
    (
        "u16",
        "a source with a join to an unknown source",
        "the report that its file cannot be mapped",
    ),
];

/// Ends of a turn that no call causes, which Claude Code handles.
const OF_THE_AGENT: [&str; 2] = ["u19", "u26"];

fn fixture(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/ktx/verdicts")
        .join(name);
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The calls of the model in one turn, as steps of a script.
fn steps(turn: &Value) -> Vec<Value> {
    let Some(blocks) = turn.as_array() else {
        let text = turn["message"].as_str().unwrap_or_default();
        return match turn["status"].as_u64() {
            Some(status) => vec![
                json!({"api_error": {"status": status, "error": "invalid_request", "text": text}}),
            ],
            None => vec![json!({"say": "no"})],
        };
    };
    let step = |block: &Value| match block["type"].as_str().unwrap() {
        "tool_use" => {
            let tool = block["name"]
                .as_str()
                .unwrap()
                .trim_start_matches("mcp__ktx__");
            json!({"call": {"tool": tool, "with": block["input"]}})
        }
        _ => json!({"say": block["text"]}),
    };
    blocks.iter().map(step).collect()
}

/// Outcome and reason of each unit.
fn verdicts(report: &Value) -> BTreeMap<String, (String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let units = report["workUnits"].as_array().unwrap().iter();
    let verdict = |unit: &Value| {
        (
            text(&unit["unitKey"]),
            (text(&unit["status"]), text(&unit["reason"])),
        )
    };
    units
        .map(verdict)
        // KTX has no unit for `dbt_project.yml`.
        .filter(|(key, _)| key != "dbt-project")
        .map(|(key, verdict)| (key.trim_start_matches("dbt-models-").to_owned(), verdict))
        .collect()
}

/// Runs all scenarios under a rule for failed tool calls.
fn judged(tool_failures: &str) -> (TestDir, BTreeMap<String, (String, String)>, Vec<Value>) {
    let scenarios: Map<String, Value> = fixture("scenarios.json").as_object().unwrap().clone();
    let place = TestDir::new();
    let settings = "connections:\n  wh: {driver: postgres}\n  orbit: {driver: dbt, source_dir: dbt}\n\
        ingest:\n  workUnits: {stepBudget: 10, maxConcurrency: 2}\nllm:\n  provider: {backend: claude-code}\n";
    place.write("ktx.yaml", settings);
    place.write(
        "config.toml",
        format!("[ingest]\ntool_failures = \"{tool_failures}\"\n"),
    );
    place.write("dbt/dbt_project.yml", "name: x\nversion: \"1\"\n");
    let page = |summary: &str, refs: &str, body: &str| {
        format!("---\nsummary: {summary}\nrefs: {refs}\n---\n\n{body}\n")
    };
    place.write("wiki/global/base.md", page("Base", "[]", "Base body."));
    place.write(
        "wiki/global/user.md",
        page("User of base", "[base]", "See [[base]]."),
    );
    for number in 1..=26 {
        place.write(
            &format!("dbt/models/u{number:02}.yml"),
            format!("version: 2\nmodels:\n  - name: u{number:02}\n"),
        );
    }
    place.write(".gitignore", "script.toml\n");
    git(&place, &["init", "--quiet", "--initial-branch=main"]);
    git(&place, &["add", "--all"]);
    git(&place, &["commit", "--quiet", "--message=Begin"]);
    let part = |(unit, turns): (&String, &Value)| {
        let mut steps: Vec<Value> = turns.as_array().unwrap().iter().flat_map(steps).collect();
        // KTX does not look at the identifiers in the ledger.
        let names = turns.to_string();
        let ledger = steps
            .iter_mut()
            .filter(|step| step["call"]["tool"] == "record_verification_ledger");
        ledger.for_each(|step| step["call"]["with"]["verifiedIdentifiers"] = json!([names]));
        json!({"unit": unit, "steps": steps})
    };
    let script = json!({"part": scenarios.iter().map(part).collect::<Vec<_>>()});
    let claude = place
        .scripted_claude(&toml::to_string(&script).unwrap())
        .display()
        .to_string();
    let ran = run(
        &place,
        &claude,
        &["--no-reconcile", "--config", "config.toml"],
    );
    assert_eq!(ran.code, Some(100), "{ran:?}");

    let report = place.run(&["report", "--format", "json"]);
    let body = &serde_json::from_str::<Value>(report.expect_success()).unwrap()["body"];
    assert_eq!(body["ingestdeck"]["toolFailures"], tool_failures);
    let verdicts = verdicts(body);
    assert_eq!(verdicts.len(), 26);
    (
        place,
        verdicts,
        body["toolTranscripts"].as_array().unwrap().clone(),
    )
}

#[test]
fn units_are_judged_as_ktx_judges_them() {
    let (place, ours, _) = judged("recoverable");
    let ktx = fixture("report.json");
    let mut theirs = verdicts(&ktx);
    // Errors that KTX finds while it integrates patches are not in the status of the unit.
    let dropped = ktx["failure"]["details"]["unitKey"]
        .as_str()
        .unwrap()
        .trim_start_matches("dbt-models-");
    theirs.get_mut(dropped).unwrap().0 = "failed".to_owned();
    assert_eq!(theirs.len(), 26);
    for (unit, (outcome, reason)) in &ours {
        let otherwise = OTHERWISE.iter().find(|(of, ..)| of == unit);
        if OF_THE_AGENT.contains(&unit.as_str()) {
            continue;
        }
        let (wanted, because) = &theirs[unit];
        match otherwise {
            Some((_, verdict, why)) => {
                assert_eq!(
                    (outcome.as_str(), wanted.as_str()),
                    (*verdict, "success"),
                    "{unit}: {why}: {reason}"
                );
            }
            None => assert_eq!(outcome, wanted, "{unit}: {reason}"),
        }
        // The text of an API error is the agent's own.
        if !because.is_empty() && unit != "u13" {
            assert_eq!(reason, because, "{unit}");
        }
    }
    let dangling = &ours["u04"].1;
    assert_eq!(
        dangling,
        "wiki references target missing page(s): p04 -> missing-page"
    );
    assert!(ours["u05"].1.contains(
        "`missing_source` in sl_refs: there is no such source in the connections orbit, wh"
    ));
    assert!(ours["u18"].1.ends_with("user -> base"), "{:?}", ours["u18"]);
    for key in ["base", "user", "p01", "p21"] {
        assert!(wiki(&place).contains(&format!("{key}.md")), "{key}");
    }
}

#[test]
fn strict_rule_accepts_refusals_that_a_later_call_settles() {
    let (_, mut strict, transcripts) = judged("strict");
    let (_, recoverable, _) = judged("recoverable");
    for (unit, refused, settled) in SETTLED {
        let (outcome, reason) = &strict[unit];
        assert_eq!(
            outcome, "success",
            "{unit}: {settled} settles {refused}: {reason}"
        );
        let transcript = transcripts
            .iter()
            .find(|of| of["unitKey"].as_str().unwrap().ends_with(unit))
            .unwrap();
        assert_eq!(
            (&transcript["errorCount"], &transcript["fatalErrorCount"]),
            (&json!(1), &json!(0)),
            "{unit}"
        );
    }
    let (outcome, reason) = strict
        .insert("u14".into(), recoverable["u14"].clone())
        .unwrap();
    assert_eq!(
        outcome, "failed",
        "KTX does not count the refused edit of a source that does not exist: {reason}"
    );
    assert_eq!(
        strict, recoverable,
        "no other call of the scenarios is settled in another way"
    );
}

/// A run does not change such pages, so only `plan` and `doctor` name them.
#[test]
fn pages_that_ktx_would_refuse_are_named_once() {
    let place = orchard_project();
    assert!(!place.run(&["plan"]).stderr.contains("wiki pages"));
    place.write(
        "wiki/global/p04.md",
        "---\nsummary: s\nsl_refs: [gone]\n---\n\nSee [[missing-page]], `source:none`.\n",
    );
    let message = "wiki pages have broken references (p04 -> missing-page; wiki page p04: `source:none`: there is no such source in connection orchard)";
    let plan = place.run(&["plan"]);
    assert_eq!(plan.stderr.matches(message).count(), 1, "{plan:?}");
    let doctor = place.run(&["doctor"]);
    assert_eq!(doctor.stdout.matches(message).count(), 1, "{doctor:?}");
}

/// Runs once in a git project and once without git.
#[test]
fn references_lost_with_a_source_are_reported() {
    for has_history in [true, false] {
        let place = orchard_project();
        let source =
            "name: crates\ntable: crates\ngrain: [id]\ncolumns: [{name: id, type: number}]\n";
        place.write("semantic-layer/orchard/crates.yaml", source);
        place.write(
            "wiki/global/fan.md",
            "---\nsummary: s\nsl_refs: [crates, never]\n---\n\nText.\n",
        );
        git(&place, &["add", "--all"]);
        git(&place, &["commit", "--quiet", "--message=Know crates"]);
        if !has_history {
            fs::remove_dir_all(place.path(".git")).unwrap();
        }
        let script = r#"
[[part]]
steps = [
  { call = { tool = "record_verification_ledger", with = { summary = "Read it." } } },
  { call = { tool = "sl_write_source", with = { connectionId = "orchard", sourceName = "crates", delete = true } } },
  { say = "Done." },
]
"#;
        let claude = place.scripted_claude(script).display().to_string();
        let ran = run(
            &place,
            &claude,
            &["--no-reconcile", "--only", "docs-crates"],
        );
        let message = "page fan no longer has sl_refs to crates";
        assert!(ran.expect_success().contains(message), "{ran:?}");
        let page = fs::read_to_string(place.path("wiki/global/fan.md")).unwrap();
        assert!(!page.contains("crates") && page.contains("never"), "{page}");
        if has_history {
            let changed = git(
                &place,
                &[
                    "show",
                    "--format=",
                    "--name-only",
                    "HEAD",
                    "--",
                    "wiki",
                    "semantic-layer",
                ],
            );
            assert_eq!(
                changed,
                "semantic-layer/orchard/crates.yaml\nwiki/global/fan.md\n"
            );
            assert_eq!(git(&place, &["status", "--porcelain"]), "");
        }
        let report = place.run(&["report", "--format", "json"]);
        let body = &serde_json::from_str::<Value>(report.expect_success()).unwrap()["body"];
        let repair = json!({"pageKey": "fan", "scopeId": null, "removedRefs": ["crates"], "scope": "GLOBAL"});
        assert_eq!(body["wikiSlRefRepairs"], json!([repair]));
        assert_eq!(body["wikiSlRefRepairWarnings"], json!([message]));
        assert_eq!(
            place.run(&["replay", "latest", "--ui", "json"]).stdout,
            ran.stdout
        );
    }
}
