//! The tools of the reconcile step for the changes of the units.

use super::*;
use crate::reconcile::{self, PriorProvenance};

fn staged() -> ToolFixture {
    let (mut context, dir) = tool_context();
    context.unit = WorkUnit::reconcile_step(reconcile::tests::stage(&dir.path().join("source")));
    context
        .scope
        .connections
        .retain(|connection| connection.is_target);
    ToolFixture {
        tools: AttemptTools::new(Arc::new(context), None),
        dir,
    }
}

fn ask(fixture: &ToolFixture, name: &str, arguments: Value) -> ToolReply {
    fixture.tools.call(&ToolCall {
        name: name.into(),
        arguments,
        tool_use_id: None,
    })
}

#[test]
fn reconcile_unit_has_its_own_tools() {
    let names: Vec<&str> = staged()
        .tools
        .specs()
        .iter()
        .map(|spec| spec.name)
        .collect();
    for name in [
        "stage_list",
        "stage_diff",
        "eviction_list",
        "emit_conflict_resolution",
        "emit_eviction_decision",
        "emit_artifact_resolution",
        "emit_unmapped_fallback",
        "read_raw_span",
        "record_verification_ledger",
        "load_skill",
        "wiki_write",
        "wiki_remove",
        "sl_write_source",
        "sl_validate",
    ] {
        assert!(names.contains(&name), "{name} is missing: {names:?}");
    }
    assert!(!names.contains(&"read_raw_file"), "{names:?}");
    let (context, _dir) = tool_context();
    let of_a_unit = AttemptTools::new(Arc::new(context), None);
    let other: Vec<&str> = of_a_unit.specs().iter().map(|spec| spec.name).collect();
    assert!(
        !other
            .iter()
            .any(|name| name.starts_with("stage_") || name.starts_with("emit_conflict")),
        "{other:?}"
    );
}

#[test]
fn unit_changes_can_be_listed_and_compared() {
    let fixture = staged();
    let list = ask(&fixture, "stage_list", json!({})).markdown;
    assert!(
        list.contains("## docs-a (success)\nraw files: notes/a.md\nchanges: sl shop/orders removed, wiki arr created")
    );
    assert!(
        list.contains("## docs-c (failed: no luck)") && list.contains("changes: none"),
        "{list}"
    );
    let diff = ask(
        &fixture,
        "stage_diff",
        json!({"unitKeyA": "docs-a", "unitKeyB": "docs-b"}),
    );
    insta::assert_snapshot!(diff.markdown);
    assert_eq!(
        diff.structured.unwrap()["both"],
        json!(["wiki/global/arr.md"])
    );
    let apart = ask(
        &fixture,
        "stage_diff",
        json!({"unitKeyA": "docs-a", "unitKeyB": "docs-c"}),
    )
    .markdown;
    assert!(
        apart.starts_with("No page or source was changed by both."),
        "{apart}"
    );
    let unknown = ask(
        &fixture,
        "stage_diff",
        json!({"unitKeyA": "docs-a", "unitKeyB": "../x"}),
    );
    assert!(
        unknown
            .markdown
            .starts_with("Error: there is no unit `../x`")
            && !unknown.is_error
    );
}

#[test]
fn evictions_are_listed_with_their_artifacts() {
    let list = ask(&staged(), "eviction_list", json!({}));
    assert!(list.markdown.starts_with(
        "- notes/gone.md\n  - wiki gone (created in run a1b2c3)\n  - sl shop/orders ("
    ));
    let counts = json!({"deletedFiles": 2, "artifacts": 2, "startLine": 1, "totalLines": 5});
    assert_eq!(
        list.structured,
        Some(counts),
        "the list itself is in the text alone"
    );
}

#[test]
fn raw_files_of_every_unit_can_be_read_in_parts() {
    let fixture = staged();
    let span = |path: &str| {
        ask(
            &fixture,
            "read_raw_span",
            json!({"path": path, "startLine": 2, "endLine": 3}),
        )
        .markdown
    };
    assert!(span("notes/a.md").contains("two"), "{}", span("notes/a.md"));
    for path in [
        "a.md",
        "notes/peer.md",
        "other/a.md",
        "notes/../peer.md",
        "/etc/passwd",
    ] {
        assert!(span(path).starts_with("Error:"), "{path}: {}", span(path));
    }
}

#[test]
fn decisions_on_unknown_subjects_are_declined() {
    let fixture = staged();
    let conflict = |unit: &str| json!({"unitKey": unit, "kind": "near_duplicate", "artifactKey": "arr", "detail": "merged", "flaggedForHuman": false});
    assert_eq!(
        ask(&fixture, "emit_conflict_resolution", conflict("docs-b"))
            .structured
            .unwrap()["success"],
        true
    );
    assert_eq!(
        ask(&fixture, "emit_conflict_resolution", conflict("docs-z"))
            .structured
            .unwrap()["success"],
        false
    );
    let gone = |path: &str| json!({"rawPath": path, "artifactKind": "wiki", "artifactKey": "gone", "action": "removed", "reason": "its file is gone"});
    assert_eq!(
        ask(&fixture, "emit_eviction_decision", gone("notes/gone.md"))
            .structured
            .unwrap()["success"],
        true
    );
    assert_eq!(
        ask(&fixture, "emit_eviction_decision", gone("notes/a.md"))
            .structured
            .unwrap()["success"],
        false
    );
    let merged = |path: &str| json!({"rawPath": path, "artifactKind": "sl", "artifactKey": "orders", "actionType": "merged", "reason": "into arr"});
    assert_eq!(
        ask(&fixture, "emit_artifact_resolution", merged("notes/c.md"))
            .structured
            .unwrap()["success"],
        true
    );
    assert_eq!(
        ask(&fixture, "emit_artifact_resolution", merged("c.md"))
            .structured
            .unwrap()["success"],
        false
    );
    assert!(ask(&fixture, "emit_conflict_resolution", json!({"kind": "war"})).is_error);
    assert_eq!(fixture.tools.context.records().decisions.len(), 3);
}

#[test]
fn stage_list_without_units_answers_with_a_sentence() {
    let (mut context, dir) = tool_context();
    context.unit = WorkUnit::reconcile_step(Default::default());
    let fixture = ToolFixture {
        tools: AttemptTools::new(Arc::new(context), None),
        dir,
    };
    let reply = ask(&fixture, "stage_list", json!({}));
    assert!(
        reply.markdown.starts_with("This ingest has no units"),
        "{reply:?}"
    );
}

#[test]
fn eviction_decision_needs_an_artifact_that_exists_or_rests() {
    let fixture = staged();
    let decide = |kind: &str, key: &str, action: &str| {
        let about = json!({"rawPath": "notes/gone.md", "artifactKind": kind, "artifactKey": key, "action": action, "reason": "gone"});
        let reply = ask(&fixture, "emit_eviction_decision", about);
        let structured = reply.structured.unwrap();
        (
            structured["success"] == true,
            structured["reason"].as_str().unwrap_or_default().to_owned(),
            reply.markdown,
        )
    };
    let (accepted, reason, text) = decide("wiki", "nonsense-key", "removed");
    assert_eq!(
        (accepted, reason.as_str()),
        (false, "artifact_not_found"),
        "{text}"
    );
    assert!(
        text.contains("decide about an artifact of that file: wiki gone, sl shop/orders"),
        "{text}"
    );
    assert!(!decide("sl", "gone", "kept").0 && !decide("wiki", "../../ktx", "kept").0);
    for (kind, key) in [("wiki", "gone"), ("sl", "orders"), ("sl", "shop/orders")] {
        assert!(decide(kind, key, "removed").0, "{kind} {key}");
    }
    ask(
        &fixture,
        "record_verification_ledger",
        json!({"summary": "Seen."}),
    );
    ask(
        &fixture,
        "wiki_write",
        json!({"key": "gone", "summary": "Gone.", "content": "Still here."}),
    );
    ask(
        &fixture,
        "wiki_write",
        json!({"key": "other", "summary": "Other.", "content": "Text."}),
    );
    for key in ["gone", "other"] {
        assert_eq!(
            decide("wiki", key, "removed").1,
            "artifact_not_removed",
            "{key}"
        );
        assert!(decide("wiki", key, "kept").0, "{key}");
        ask(&fixture, "wiki_remove", json!({"key": key}));
    }
    assert!(decide("wiki", "gone", "removed").0);
}

fn with_evictions(artifacts: &[(&str, String)]) -> ToolFixture {
    let (mut context, dir) = tool_context();
    let artifact = |(kind, key): &(&str, String)| reconcile::EvictionCandidate {
        provenance: PriorProvenance {
            artifact_kind: (*kind).into(),
            artifact_key: key.clone(),
            ..PriorProvenance::default()
        },
        ..reconcile::EvictionCandidate::default()
    };
    let gone = reconcile::Eviction {
        raw_path: "notes/gone.md".into(),
        artifacts: artifacts.iter().map(artifact).collect(),
    };
    context.unit = WorkUnit::reconcile_step(reconcile::StageIndex {
        evictions: vec![gone],
        ..Default::default()
    });
    ToolFixture {
        tools: AttemptTools::new(Arc::new(context), None),
        dir,
    }
}

#[test]
fn only_the_page_of_a_deleted_document_is_removed() {
    let fixture = with_evictions(&[("wiki", "gone".into())]);
    for key in ["gone", "kept"] {
        let page = format!(
            "---\nsummary: Leave\nverbatim:\n  document: notes/{key}.md\n  sha256: ab\n---\n\nTen days.\n"
        );
        fs::write(fixture.dir.path().join(wiki::page_path(key)), page).unwrap();
        fixture.text("wiki_read", json!({"key": key}));
    }
    fixture.text("record_verification_ledger", json!({"summary": "checked"}));
    let kept = fixture.decline("wiki_remove", json!({"key": "kept"}));
    assert_eq!(kept.0, "page_is_document");
    fixture.text("wiki_remove", json!({"key": "gone"}));
}

#[test]
fn eviction_decision_with_an_ambiguous_key_is_refused() {
    let long = format!("notes/{}", "k".repeat(200));
    let fixture = with_evictions(&[
        ("sl", "shop/orders".into()),
        ("sl", "web/orders".into()),
        ("sl", long.clone()),
    ]);
    let decide = |key: &str| {
        let about = json!({"rawPath": "notes/gone.md", "artifactKind": "sl", "artifactKey": key, "action": "kept", "reason": "x"});
        ask(&fixture, "emit_eviction_decision", about)
    };
    let refused = decide("orders");
    assert_eq!(
        refused.structured.as_ref().unwrap()["reason"],
        "ambiguous_artifact_key",
        "{refused:?}"
    );
    assert!(
        refused.markdown.contains("shop/orders, web/orders"),
        "{refused:?}"
    );
    for key in ["shop/orders", "web/orders", &long, &"k".repeat(200)] {
        assert_eq!(decide(key).structured.unwrap()["success"], true, "{key}");
    }
}

#[test]
fn long_eviction_list_is_read_in_parts() {
    let artifacts: Vec<_> = (0..2_000)
        .map(|page| ("wiki", format!("page-{page:0>40}")))
        .collect();
    let fixture = with_evictions(&artifacts);
    let (mut seen, mut start, mut pages) = (String::new(), 1, 0);
    while start > 0 {
        let text = ask(&fixture, "eviction_list", json!({"startLine": start})).markdown;
        let next = text
            .rsplit_once("{\"startLine\":")
            .and_then(|(_, rest)| rest.split_once('}'));
        start = next.map_or(0, |(line, _)| line.parse::<u32>().unwrap());
        assert_eq!(
            pages > 0,
            text.starts_with("[continued: notes/gone.md]\n"),
            "page {pages}"
        );
        seen.push_str(&text);
        pages += 1;
        assert!(pages < 100, "the list does not end");
    }
    assert!(
        pages > 1 && artifacts.iter().all(|(_, key)| seen.contains(key)),
        "{pages} pages"
    );
    let behind = ask(&fixture, "eviction_list", json!({"startLine": 9_000})).markdown;
    assert!(behind.contains("the list has 2001 lines"), "{behind}");
}

#[test]
fn conflicts_are_unflagged_by_default() {
    let fixture = staged();
    let conflict = json!({"kind": "near_duplicate", "artifactKey": "arr", "detail": "merged"});
    let reply = ask(&fixture, "emit_conflict_resolution", conflict);
    assert!(!reply.is_error, "{}", reply.markdown);
    let decision = serde_json::to_value(&fixture.tools.context.records().decisions[0]).unwrap();
    assert_eq!(decision["flaggedForHuman"], false);
}

#[test]
fn change_may_name_raw_files_of_all_units_and_evictions() {
    let fixture = staged();
    ask(
        &fixture,
        "record_verification_ledger",
        json!({"summary": "Seen."}),
    );
    let write = |path: &str| json!({"key": "trees", "summary": "Trees.", "content": "They grow.", "rawPaths": ["notes/b.md", path]});
    for path in ["notes/a.md", "notes/gone.md"] {
        let reply = ask(&fixture, "wiki_write", write(path));
        assert!(!reply.is_error, "{path}: {}", reply.markdown);
    }
    let foreign = ask(&fixture, "wiki_write", write("gone.md"));
    assert!(
        foreign.is_error
            && foreign
                .markdown
                .contains("rawPaths contains `gone.md`; name only raw files that stage_list or eviction_list lists"),
        "{foreign:?}"
    );
    let removed = ask(
        &fixture,
        "wiki_remove",
        json!({"key": "trees", "rawPaths": ["notes/gone.md"]}),
    );
    assert!(!removed.is_error, "{}", removed.markdown);
}
