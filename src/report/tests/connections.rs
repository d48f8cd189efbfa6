//! Reports of runs with two connections: each has its own entries and those without a connection.

use std::sync::Arc;

use super::*;
use ingestdeck_core::tape::note::{SlRefRepair, SourcesProjected};

const DBT: &str = "orchard-dbt";
const HANDBOOK: &str = "orchard-handbook";

fn action(
    target: ArtifactTarget,
    change: ArtifactChange,
    key: &str,
    connection: Option<&str>,
    path: Option<&str>,
) -> MemoryAction {
    MemoryAction {
        target,
        change,
        key: key.into(),
        detail: String::new(),
        target_connection_id: connection.map(Into::into),
        raw_paths: path.map(|path| vec![path.into()]),
    }
}

fn set_actions(unit: &mut UnitReport, actions: Vec<MemoryAction>) {
    let output = &mut unit.attempts.last_mut().unwrap().state.delivery.output;
    Arc::make_mut(output.get_or_insert_default()).actions = actions;
}

/// A run whose reconcile step decided about files of both connections and of none. Every text names its connection.
fn both() -> RunReport {
    let mut report = report_of("tapes/real.jsonl");
    let of = |connection: &str| {
        report
            .units
            .iter()
            .position(|unit| unit.connection() == Some(connection))
            .unwrap()
    };
    let (dbt, handbook) = (of(DBT), of(HANDBOOK));
    let conflict = |unit: Option<&str>, key: &str| json!({"unitKey": unit, "kind": "near_duplicate", "artifactKey": key, "detail": "d", "flaggedForHuman": false});
    let eviction = |path: &str, key: &str| json!({"rawPath": path, "artifactKind": "wiki", "artifactKey": key, "action": "removed", "reason": "r"});
    let merge = |path: &str, key: &str| json!({"rawPath": path, "artifactKind": "wiki", "artifactKey": key, "actionType": "merged", "reason": "r"});
    let unmapped = |path: &str, detail: &str| UnmappedFile {
        raw_path: path.into(),
        reason: "parse_error".into(),
        detail: Some(detail.into()),
        fallback: "flagged".into(),
    };
    let keys = [dbt, handbook].map(|at| report.units[at].key.as_str().to_owned());
    let step = AttemptOutput {
        conflicts: vec![
            conflict(Some(&keys[0]), "conflict-dbt"),
            conflict(Some(&keys[1]), "conflict-handbook"),
            conflict(Some("unit-of-an-earlier-run"), "conflict-any"),
        ],
        evictions: vec![
            eviction("orchard-dbt/a.yml", "eviction-dbt"),
            eviction("orchard-handbook/b.md", "eviction-handbook"),
            eviction("c.md", "eviction-any"),
        ],
        resolutions: vec![
            merge("orchard-dbt/a.yml", "merge-dbt"),
            merge("orchard-handbook/b.md", "merge-handbook"),
            merge("elsewhere/c.md", "merge-any"),
        ],
        unmapped: vec![
            unmapped("orchard-dbt/a.yml", "unmapped-dbt"),
            unmapped("orchard-handbook/b.md", "unmapped-handbook"),
            unmapped("c.md", "unmapped-any"),
        ],
        ..AttemptOutput::default()
    };
    let page = |key: &str, path: Option<&str>| {
        action(
            ArtifactTarget::Wiki,
            ArtifactChange::Updated,
            key,
            None,
            path,
        )
    };
    let actions = vec![
        page("page-dbt", Some("orchard-dbt/a.yml")),
        page("page-handbook", Some("orchard-handbook/b.md")),
        page("page-any", None),
    ];
    let mut pass = UnitReport {
        key: "reconcile".into(),
        planned: None,
        ..hostile("step", true)
    };
    pass.status = UnitStatus::Succeeded;
    pass.attempts[0].state.delivery.output = Some(Arc::new(AttemptOutput { actions, ..step }));
    report.units.push(pass);
    let gone = |key: &str| {
        action(
            ArtifactTarget::SemanticLayer,
            ArtifactChange::Removed,
            key,
            Some("warehouse"),
            None,
        )
    };
    for (at, key) in [(dbt, "repair-dbt"), (handbook, "repair-handbook")] {
        let unit = &mut report.units[at];
        (unit.status, unit.is_unsaved) = (UnitStatus::Succeeded, false);
        set_actions(unit, vec![gone(key)]);
    }
    let repair = |entry: &str| {
        Arc::new(SlRefRepair {
            page_key: "fan".into(),
            removed_refs: vec![entry.into()],
            ..SlRefRepair::default()
        })
    };
    report.publication.sl_ref_repairs = vec![
        repair("warehouse/repair-dbt.rows"),
        repair("repair-handbook"),
        repair("repair-any"),
    ];
    let projected = |connection: &str, name: &str| {
        Arc::new(SourcesProjected {
            connection: Some(connection.into()),
            actions: vec![action(
                ArtifactTarget::SemanticLayer,
                ArtifactChange::Created,
                &format!("projected-{name}"),
                Some(connection),
                None,
            )],
            left_out: vec![format!("left-{name}")],
            commit: Some("c0ffee".into()),
            ..SourcesProjected::default()
        })
    };
    report.inputs.projected = vec![projected(DBT, "dbt"), projected(HANDBOOK, "handbook")];
    report
}

/// The `kinds` that a text names with `suffix` (`dbt`, `handbook` or `any`), each once.
fn named(text: &str, kinds: &[&str], suffix: &str) -> Vec<usize> {
    kinds
        .iter()
        .map(|kind| text.matches(&format!("{kind}-{suffix}")).count())
        .collect()
}

#[test]
fn report_of_a_connection_has_its_decisions_only() {
    let kinds = ["conflict", "eviction", "merge", "unmapped"];
    for (connection, own, other) in [(DBT, "dbt", "handbook"), (HANDBOOK, "handbook", "dbt")] {
        let one = both().into_connection(connection).unwrap();
        let [md, _, junit, html, _] = written(&one);
        for text in [&md, &html] {
            assert_eq!(named(text, &kinds, own), [1; 4], "{connection}: {text}");
            assert_eq!(named(text, &kinds, "any"), [1; 4], "{connection}: {text}");
        }
        for text in [&md, &junit, &html] {
            assert_eq!(named(text, &kinds, other), [0; 4], "{connection}: {text}");
        }
        assert_eq!(named(&md, &["projected"], own), [1], "{md}");
        assert_eq!(named(&md, &["projected"], other), [0], "{md}");
        assert_eq!(named(&html, &["projected"], own), [1], "{html}");
        assert_eq!(named(&html, &["projected"], other), [0], "{html}");
    }
    let [md, _, junit, html, _] = written(&both());
    for text in [&md, &html, &junit] {
        for of in ["dbt", "handbook", "any"] {
            assert_eq!(named(text, &kinds, of), [1; 4], "all of them: {text}");
        }
    }
}

#[test]
fn snapshot_of_a_connection_has_its_own_records_once() {
    let snapshots = written(&both())[1].clone();
    for (line, own, other) in [(0, "dbt", "handbook"), (1, "handbook", "dbt")] {
        let line = snapshots.lines().nth(line).unwrap();
        let snapshot: Value = serde_json::from_str(line).unwrap();
        let body = &snapshot["body"];
        let mut records = json!([
            body["conflictsResolved"],
            body["evictionsApplied"],
            body["artifactResolutions"],
            body["reconciliationActions"],
            body["wikiSlRefRepairs"],
            body["ingestdeck"]["projection"],
            body["ingestdeck"]["unmapped"],
        ]);
        records[5]["commit"].take();
        let text = records.to_string();
        for kind in [
            "conflict", "eviction", "merge", "page", "unmapped", "repair",
        ] {
            assert_eq!(named(&text, &[kind], own), [1], "{kind} of {own}: {text}");
            assert_eq!(named(&text, &[kind], "any"), [1], "{kind} of none: {text}");
            assert_eq!(
                named(&text, &[kind], other),
                [0],
                "{kind} of {other}: {text}"
            );
        }
        assert_eq!(named(&text, &["projected", "left"], own), [1, 1]);
        assert_eq!(named(&text, &["projected", "left"], other), [0, 0]);
        assert_eq!(body["wikiSlRefRepairWarnings"].as_array().unwrap().len(), 2);
        let alone = both()
            .into_connection(snapshot["connectionId"].as_str().unwrap())
            .unwrap();
        let alone: Value = serde_json::from_str(&written(&alone)[1]).unwrap();
        for key in [
            "conflictsResolved",
            "evictionDecisions",
            "artifactResolutions",
            "reconciliationActions",
            "provenanceRows",
            "wikiSlRefRepairs",
        ] {
            assert_eq!(alone["body"][key], body[key], "{key}");
        }
        assert_eq!(
            alone["body"]["ingestdeck"]["projection"],
            body["ingestdeck"]["projection"]
        );
    }
}

/// KTX has words for written and merged artifacts; removed ones count as written or changed.
#[test]
fn provenance_rows_have_the_words_of_ktx() {
    let mut report = report_of("tapes/real.jsonl");
    let unit = report
        .units
        .iter_mut()
        .find(|unit| unit.connection() == Some(DBT))
        .unwrap();
    (unit.status, unit.is_unsaved) = (UnitStatus::Succeeded, false);
    let actions = vec![
        action(
            ArtifactTarget::Wiki,
            ArtifactChange::Created,
            "page",
            None,
            Some("a"),
        ),
        action(
            ArtifactTarget::Wiki,
            ArtifactChange::Removed,
            "old",
            None,
            Some("a"),
        ),
        action(
            ArtifactTarget::SemanticLayer,
            ArtifactChange::Created,
            "new",
            Some("warehouse"),
            Some("a"),
        ),
        action(
            ArtifactTarget::SemanticLayer,
            ArtifactChange::Updated,
            "known",
            None,
            Some("a"),
        ),
        action(
            ArtifactTarget::SemanticLayer,
            ArtifactChange::Removed,
            "gone",
            None,
            Some("a"),
        ),
    ];
    set_actions(unit, actions);
    report.units.retain(|unit| unit.connection() == Some(DBT));
    let snapshot: Value =
        serde_json::from_str(written(&report)[1].lines().next().unwrap()).unwrap();
    let rows = snapshot["body"]["provenanceRows"]
        .as_array()
        .unwrap()
        .iter();
    let rows_of_a = rows.filter(|row| row["rawPath"] == "a").map(|row| {
        let text = |key: &str| row[key].as_str().unwrap_or("-").to_owned();
        format!(
            "{} {} {}",
            text("artifactKey"),
            text("actionType"),
            text("targetConnectionId")
        )
    });
    assert_eq!(
        rows_of_a.collect::<Vec<_>>(),
        [
            "page wiki_written -",
            "old wiki_written -",
            "new source_created warehouse",
            "known measure_added orchard-dbt",
            "gone measure_added orchard-dbt",
        ]
    );
}
