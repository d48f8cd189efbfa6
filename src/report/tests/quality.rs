//! The figures of the quality of recorded runs.

use serde_json::{Value, json};

use ingestdeck_core::run::{
    RunReport,
    quality::{QualityFigure, RunQuality},
};
use ingestdeck_records::replay::FileSource;

const HEADER: &str = r#"{"tape":1,"program":"p","run":"01a20000-0000-7000-8000-0000000000aa","started_at":"2026-11-22T01:02:03Z"}"#;

/// Folds a tape of entries without `seq` and `at`.
fn report_of(entries: &[Value]) -> RunReport {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut text = format!("{HEADER}\n");
    for (seq, entry) in entries.iter().enumerate() {
        let body = entry.to_string();
        text.push_str(&format!("{{\"seq\":{seq},\"at\":{seq},{}\n", &body[1..]));
    }
    std::fs::write(file.path(), text).unwrap();
    crate::fold_report(FileSource::open(file.path()).unwrap(), false, None).unwrap()
}

fn planned(units: &[&str]) -> Value {
    let unit = |key: &&str| json!({"unit": key, "connection": "notes", "adapter": "docs", "rawFiles": [format!("{key}.md")]});
    let units: Vec<Value> = units.iter().map(unit).collect();
    json!({"note": {"kind": "run_planned", "job": "local-1", "units": units}})
}

/// A successful attempt that writes the page of its unit: `added` lines, and one line replaced.
fn attempt(unit: &str, number: u32, added: u32, cost: Option<f64>, work: Value) -> Vec<Value> {
    let path = format!("wiki/global/{unit}.md");
    let mut ended = json!({
        "actions": [{"target": "wiki", "type": "updated", "key": unit}],
        "writes": [{"call": "c", "path": path, "edits": [[0, 1, added]]}],
    });
    ended
        .as_object_mut()
        .unwrap()
        .extend(work.as_object().unwrap().clone());
    let verdict =
        json!({"outcome": "succeeded", "stop": "natural", "cause": "completed", "reason": "done"});
    let result = json!({"type": "result", "subtype": "success", "is_error": false, "total_cost_usd": cost, "num_turns": 1});
    // The body is the last key of an entry.
    let of = |body: Value| {
        let mut entry = json!({"unit": unit, "try": number});
        entry
            .as_object_mut()
            .unwrap()
            .extend(body.as_object().unwrap().clone());
        entry
    };
    vec![
        of(json!({"note": {"kind": "attempt_started"}})),
        of(json!({"out": result})),
        of(
            json!({"note": {"kind": "patch_written", "path": ".ktx/ingest-patches/p", "paths": [path]}}),
        ),
        of(
            json!({"note": {"kind": "attempt_ended", "verdict": verdict, "tool_failures": 0, "exit_code": 0,
                           "signal": null, "stderr_tail": [], "wrote": [], "work": ended}}),
        ),
    ]
}

fn values(entries: &[Value]) -> Vec<String> {
    let quality = RunQuality::new(&report_of(entries));
    QualityFigure::ALL
        .iter()
        .map(|figure| format!("{} {}", figure.key(), quality.text(*figure)))
        .collect()
}

#[test]
fn quality_counts_artifacts_that_count() {
    let checked =
        |unsourced: Value, dangling: Value| json!({"unsourced": unsourced, "dangling": dangling});
    let flag = json!([{"path": "wiki/global/a.md", "line": 1, "name": "fct_arr"}]);
    let mut entries = vec![planned(&["a", "b", "c"])];
    entries.extend(attempt("a", 1, 9, Some(0.5), checked(json!([]), json!([]))));
    entries.extend(attempt("a", 2, 4, Some(0.25), checked(flag, json!([]))));
    entries.extend(attempt(
        "b",
        1,
        3,
        Some(0.25),
        checked(json!([]), json!(["b -> lost"])),
    ));
    insta::assert_snapshot!(values(&entries).join("\n"), @r"
    created 0
    updated 2
    removed 0
    coverage 67% (2 of 3 raw files)
    unsourced 1
    dangling 1
    churn 9 lines (+7 -2)
    replaced 9
    cost_usd $1.00
    cost_per_artifact_usd $0.50 (2 artifacts)
    ");
}

#[test]
fn figures_without_a_record_are_unknown() {
    let mut entries = vec![planned(&["a"])];
    entries.extend(attempt(
        "a",
        1,
        4,
        None,
        json!({"writes": [], "actions": []}),
    ));
    insta::assert_snapshot!(values(&entries).join("\n"), @r"
    created ?
    updated ?
    removed ?
    coverage ?
    unsourced ?
    dangling ?
    churn ?
    replaced 0
    cost_usd $?
    cost_per_artifact_usd $? (1 artifact)
    ");
}
