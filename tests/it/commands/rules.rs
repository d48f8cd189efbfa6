//! Rules about tool calls in runs without a screen: a call that a rule denies counts as failed, wherever it is counted.

use serde_json::{Value, json};

use super::{reviews::place, test_dir::CommandOutput};

fn lines(output: &CommandOutput) -> Vec<Value> {
    output
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn denied_call_fails_its_unit() {
    for rules in ["deny = [\"wiki_write\"]", "hold = [\"wiki_write\"]"] {
        let (place, claude) = place();
        place.write("ingestdeck.toml", format!("[policy]\n{rules}\n"));
        let ran = place.run(&[
            "run",
            "--only",
            "docs-one",
            "--no-reconcile",
            "--ui",
            "none",
            "--claude-bin",
            &claude,
        ]);
        assert_eq!(ran.code, Some(100), "{rules}: {ran:?}");
        let sql = "SELECT outcome, cause, failures, denials, decided_by, status FROM attempts JOIN tool_calls
            USING (run, unit, attempt) WHERE decision = 'denied'";
        let row = &lines(&place.run(&["runs", "query", sql, "--ui", "json"]))[0];
        let expected = json!({"outcome": "failed", "cause": "tool_failures", "failures": 1, "denials": 1,
            "decided_by": "rule", "status": "denied"});
        assert_eq!(row, &expected, "{rules}");
        let report = place.run(&["report", "latest", "--format", "json"]);
        let report: Value = serde_json::from_str(report.expect_success()).unwrap();
        assert_eq!(
            report["body"]["workUnits"][0]["status"], "failed",
            "{rules}"
        );
        let plan = place.run(&["plan"]);
        assert!(
            plan.expect_success().contains("docs-one"),
            "{rules}: {plan:?}"
        );
    }
}

#[test]
fn file_with_a_mistake_is_reported_before_a_run() {
    let (place, claude) = place();
    place.write(
        "ingestdeck.toml",
        "[policy]\ndeny = [\"wiki_write path:*.md\"\n",
    );
    let doctor = place.run(&["doctor", "--ui", "json", "--claude-bin", &claude]);
    let failed = lines(&doctor).into_iter().any(|line| {
        line["result"] == "fail"
            && line["text"]
                .as_str()
                .is_some_and(|text| text.contains("ingestdeck.toml:2"))
    });
    assert!(failed && doctor.code == Some(96), "{doctor:?}");
    assert!(place.run(&["plan"]).stderr.contains("ingestdeck.toml:2"));
}
