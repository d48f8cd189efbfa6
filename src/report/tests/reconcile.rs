//! The reconcile step in reports: its decisions, its failures, and conflicts that it did not resolve.

use super::*;

#[test]
fn reconcile_decisions_are_in_the_report_of_their_connection() {
    let mut report = report_of("tapes/real.jsonl");
    let mut pass = UnitReport {
        key: "reconcile".into(),
        planned: None,
        ..hostile("orders", true)
    };
    pass.status = UnitStatus::Succeeded;
    let eviction = |path: &str, action: &str| json!({"rawPath": path, "artifactKind": "wiki", "artifactKey": "k", "action": action, "reason": "gone"});
    let conflict = json!({"unitKey": "dbt-all", "kind": "near_duplicate", "artifactKey": "k", "detail": "d", "flaggedForHuman": false});
    let output = &mut pass.attempts[0].state.delivery.output;
    *output = Some(std::sync::Arc::new(AttemptOutput {
        actions: output.as_ref().unwrap().actions.clone(),
        conflicts: vec![conflict],
        evictions: vec![
            eviction("orchard-dbt/a.yml", "removed"),
            eviction("orchard-handbook/b.md", "removed"),
            eviction("orchard-handbook/c.md", "kept"),
        ],
        ..AttemptOutput::default()
    }));
    report.units.push(pass);
    let [_, json, junit, ..] = written(&report);
    let one = report.into_connection("orchard-handbook").unwrap();
    let alone: Value = serde_json::from_str(&written(&one)[1]).unwrap();
    let snapshots: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        snapshots.len(),
        2,
        "the reconcile step belongs to no connection"
    );
    let of = |at: usize, key: &str| snapshots[at]["body"][key].clone();
    assert_eq!(
        (
            of(0, "reconciliationSkipped"),
            of(0, "reconciliationActions").as_array().unwrap().len()
        ),
        (json!(false), 1)
    );
    assert_eq!(of(0, "conflictsResolved").as_array().unwrap().len(), 1);
    assert_eq!(of(1, "conflictsResolved"), json!([]));
    assert_eq!(of(0, "evictionsApplied")[0]["rawPath"], "a.yml");
    assert_eq!(of(1, "evictionsApplied")[0]["rawPath"], "b.md");
    assert_eq!(of(1, "evictionsApplied").as_array().unwrap().len(), 1);
    assert_eq!(
        of(1, "evictionDecisions")[1],
        json!({"rawPath": "c.md", "artifactKind": "wiki", "artifactKey": "k", "action": "kept", "reason": "gone"})
    );
    for key in [
        "reconciliationSkipped",
        "reconciliationActions",
        "evictionsApplied",
        "evictionDecisions",
    ] {
        assert_eq!(
            alone["body"][key],
            of(1, key),
            "the same for a connection alone: {key}"
        );
    }
    assert!(
        junit.contains("<testcase name=\"reconcile\""),
        "it is a test like any other"
    );
}

#[test]
fn failed_reconcile_step_alone_fails_the_job() {
    let mut report = report_of("tapes/real.jsonl");
    report.units = vec![UnitReport {
        key: "reconcile".into(),
        planned: None,
        ..hostile("no luck", false)
    }];
    let body = |report: &RunReport| -> Value {
        let json = written(report)[1].clone();
        serde_json::from_str::<Value>(json.lines().next().unwrap()).unwrap()["body"].take()
    };
    let failed = body(&report);
    assert_eq!(
        failed["failure"],
        json!({"phase": "reconciliation", "message": "no luck"})
    );
    assert_eq!(
        (&failed["status"], &failed["ingestdeck"]["outcome"]),
        (&json!("failed"), &json!("error"))
    );
    report.inputs.sources.clear();
    assert_eq!(
        body(&report)["workUnits"],
        json!([]),
        "a tape without sources has one report all the same"
    );
}

#[test]
fn conflicts_of_units_of_earlier_runs_are_kept() {
    let mut report = report_of("tapes/real.jsonl");
    let mut step = UnitReport {
        key: "reconcile".into(),
        planned: None,
        ..hostile("k", true)
    };
    step.status = UnitStatus::Succeeded;
    let conflict = |unit: &str| json!({"unitKey": unit, "kind": "near_duplicate", "artifactKey": "k", "detail": "d", "flaggedForHuman": true});
    let conflicts = vec![conflict("dbt-all"), conflict("docs-of-an-earlier-run")];
    step.attempts[0].state.delivery.output = Some(std::sync::Arc::new(AttemptOutput {
        conflicts,
        ..AttemptOutput::default()
    }));
    report.units.push(step);
    let json = written(&report)[1].clone();
    let found: Vec<usize> = json
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["body"]["conflictsResolved"]
                .as_array()
                .unwrap()
                .len()
        })
        .collect();
    assert_eq!(found, [2, 1]);
}

#[test]
fn reconcile_step_that_ended_the_run_fails_no_unit() {
    let mut report = report_of("tapes/real.jsonl");
    for unit in &mut report.units {
        unit.status = UnitStatus::Succeeded;
    }
    report.outcome = RunOutcome::Error;
    report.planned = Some(
        RunPlanned {
            failure_mode: "abort".into(),
            ..report.planned.as_deref().cloned().unwrap_or_default()
        }
        .into(),
    );
    let failures = |report: &RunReport| -> Vec<Value> {
        let json = written(report)[1].clone();
        json.lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["body"]["failure"].take())
            .collect()
    };
    let of_others = "a unit of another connection failed, and the failure mode is abort";
    report.units.push(UnitReport {
        key: "reconcile".into(),
        planned: None,
        ..hostile("no luck", false)
    });
    let expected = json!({"phase": "reconciliation", "message": "no luck"});
    assert_eq!(failures(&report), [expected.clone(), expected]);
    (report.units[0].status, report.units[0].reason) = (UnitStatus::Failed, Some("its own".into()));
    let own = json!({"phase": "work_units", "message": "its own"});
    assert_eq!(
        failures(&report),
        [own, json!({"phase": "work_units", "message": of_others})]
    );
}
