//! Semantic-layer tools as a model uses them.

use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::*;

mod loading;

const SCAN: &str = "tables:\n  orders:\n    table: shop.orders\n    columns: [{name: id, type: number}, {name: total, type: number}]\n    descriptions: {ai: Orders of the shop}\n";
const CUSTOMERS: &str = "# by hand\nname: customers\ntable: shop.customers\ngrain: [id]\ncolumns:\n  - name: id # key\n    type: number\n";

/// A fixture with a ledger entry, in a project with a scan and a source.
fn layered() -> ToolFixture {
    let fixture = ToolFixture::unlocked();
    let folder = fixture.root().join("semantic-layer/warehouse");
    fs::create_dir_all(folder.join("_schema")).unwrap();
    fs::write(folder.join("_schema/public.yaml"), SCAN).unwrap();
    fs::write(folder.join("customers.yaml"), CUSTOMERS).unwrap();
    fixture
}

fn on(source: &str, more: Value) -> Value {
    let mut arguments = json!({"connectionId": "warehouse", "sourceName": source});
    arguments
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    arguments
}

fn table(name: &str, more: Value) -> Value {
    let mut source = json!({"name": name, "table": name, "grain": ["id"], "columns": [{"name": "id", "type": "number"}]});
    source
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    on(name, json!({"source": source}))
}

#[test]
fn sources_are_found_described_and_read() {
    let fixture = layered();
    let texts = [
        fixture.text("sl_discover", json!({})),
        fixture.text("sl_discover", json!({"query": "order total"})),
        fixture.text("sl_discover", json!({"sourceName": "customers"})),
        fixture.text("sl_discover", json!({"query": "zebra"})),
        fixture.text("sl_discover", json!({"connectionId": "notes"})),
        fixture.text("sl_discover", json!({"connectionId": "warehuose"})),
        fixture.text(
            "sl_discover",
            json!({"sourceName": "custmers", "connectionId": "warehouse"}),
        ),
        fixture.text("sl_read_source", on("customers", json!({}))),
        fixture.text("sl_read_source", on("orders", json!({}))),
        fixture.text("sl_read_source", on("order", json!({}))),
        fixture.text("sl_validate", json!({"connectionId": "warehouse"})),
        fixture.text("sl_validate", json!({"connectionId": "notes"})),
    ];
    insta::assert_snapshot!(texts.join("\n----\n"));
}

#[test]
fn sources_are_written_edited_removed_and_put_back() {
    let fixture = layered();
    let overlay = json!({"name": "orders", "measures": [{"name": "revenue", "expr": "sum(total)"}],
        "joins": [{"to": "customers", "on": "orders.id = customers.id", "relationship": "many_to_one", "alias": null}]});
    let texts = [
        fixture.text("sl_write_source", on("orders", json!({"source": overlay, "rawPaths": ["a.md"]}))),
        fixture.text("sl_read_source", on("orders", json!({}))),
        fixture.text("sl_read_source", on("customers", json!({}))),
        fixture.text(
            "sl_edit_source",
            on(
                "customers",
                json!({"yaml_edits": [
                    {"oldText": "[id]", "newText": "[id, since]", "reason": "history"},
                    {"oldText": "    type: number\n", "newText": "    type: number\n  - {name: since, type: time}\n"},
                ]}),
            ),
        ),
        fixture.text("sl_read_source", on("customers", json!({}))),
        fixture.text("sl_validate", json!({"connectionId": "warehouse"})),
        fixture.text("sl_edit_source", on("customers", json!({"delete": true}))),
        fixture.text("sl_validate", json!({"connectionId": "warehouse"})),
        fixture.text("sl_rollback", json!({"sourceName": "customers"})),
        fixture.text("sl_read_source", on("customers", json!({}))),
        fixture.text("sl_rollback", json!({"sourceName": "orders"})),
        fixture.text("sl_rollback", json!({"sourceName": "orders"})),
    ];
    insta::assert_snapshot!(texts.join("\n----\n"));
    assert!(fixture.tools.context.workspace.changes().is_empty());
    assert_eq!(
        fs::read_to_string(
            fixture
                .root()
                .join("semantic-layer/warehouse/customers.yaml")
        )
        .unwrap(),
        CUSTOMERS
    );
}

#[test]
fn rollback_prefers_the_unit_connection() {
    let fixture = layered();
    let name = "twin";
    let write = |connection: &str| {
        let mut source = table(name, json!({}));
        source["connectionId"] = connection.into();
        fixture.text("sl_write_source", source);
    };
    write("warehouse");
    write("notes");
    fixture.text("sl_rollback", json!({"sourceName": name}));
    let left: Vec<_> = fixture
        .tools
        .context
        .workspace
        .changes()
        .into_keys()
        .collect();
    assert_eq!(left, ["semantic-layer/warehouse/twin.yaml"]);
    fixture.text("sl_rollback", json!({"sourceName": name}));
    assert!(fixture.tools.context.workspace.changes().is_empty());
}

#[test]
fn invalid_changes_are_declined_with_a_reason() {
    let fixture = layered();
    let before = fixture.tools.context.workspace.changes();
    let write = |arguments: Value| fixture.decline("sl_write_source", arguments);
    let edit = |old: &str, new: &str| {
        fixture.decline(
            "sl_edit_source",
            on(
                "customers",
                json!({"yaml_edits": [{"oldText": old, "newText": new}]}),
            ),
        )
    };
    let counted = |reason: &str| (reason.to_owned(), true);
    assert_eq!(write(on("x", json!({}))), counted("source_required"));
    assert_eq!(
        write(on("x", json!({"source": {"name": "y"}}))),
        counted("name_mismatch")
    );
    assert_eq!(
        write(on("x", json!({"source": {"name": "x"}}))),
        counted("validation_failed")
    );
    assert_eq!(
        write(on("x", json!({"delete": true}))),
        counted("source_not_found")
    );
    assert_eq!(
        write(on("orders", json!({"delete": true}))),
        counted("no_overlay_yet")
    );
    assert_eq!(
        write(on("x", json!({"delete": true, "source": {"name": "x"}}))),
        counted("source_and_delete")
    );
    assert_eq!(write(table("a\u{7}", json!({}))), counted("invalid_name"));
    let peer = {
        let mut source = table("x", json!({}));
        source["rawPaths"] = json!(["peer.md"]);
        source
    };
    assert_eq!(write(peer), counted("raw_paths_not_allowed"));
    for connection in ["../warehouse", "warehouse/..", "ghost", "."] {
        let mut source = table("x", json!({}));
        source["connectionId"] = connection.into();
        assert_eq!(
            write(source),
            counted("connection_not_allowed"),
            "{connection}"
        );
    }
    // KTX does not count refused edits.
    assert_eq!(edit("nowhere", ""), counted("edit_not_unique"));
    assert_eq!(edit("id", "key"), counted("edit_not_unique"));
    assert_eq!(edit("grain: [id]", "grain: [id"), counted("invalid_yaml"));
    assert_eq!(
        edit("grain: [id]", "grain: []"),
        counted("validation_failed")
    );
    assert_eq!(
        edit("name: customers", "name: clients"),
        counted("name_mismatch")
    );
    assert_eq!(edit(CUSTOMERS, ""), counted("invalid_yaml"));
    assert_eq!(
        fixture.decline("sl_edit_source", on("customers", json!({}))),
        counted("edits_required")
    );
    assert_eq!(
        fixture.decline("sl_edit_source", on("ghost", json!({"delete": true}))),
        counted("source_not_found")
    );
    assert_eq!(fixture.tools.context.workspace.changes(), before);
}

/// The scan of a table with a join, as KTX's oracle had it.
const JOINED_SCAN: &str = "tables:
  customers:
    table: public.customers
    columns: [{name: ID, type: number, pk: true}, {name: NAME, type: string}]
    joins: [{to: regions, on: customers.ID =  regions.region_id, relationship: many_to_one}]
  regions:
    table: public.regions
    columns: [{name: region_id, type: number, pk: true}]
";

fn joined(source: &str) -> ToolFixture {
    let fixture = layered();
    let folder = fixture.root().join("semantic-layer/warehouse");
    fs::write(folder.join("_schema/public.yaml"), JOINED_SCAN).unwrap();
    fs::write(folder.join("customers.yaml"), source).unwrap();
    // A file may be rewritten after it was read.
    fixture.text("sl_read_source", on("customers", json!({})));
    fixture
}

#[test]
fn sources_are_locked_until_the_ledger_has_an_entry() {
    let fixture = ToolFixture::new();
    assert_eq!(
        fixture.decline("sl_write_source", table("x", json!({}))),
        ("verification_ledger_required".into(), true)
    );
    assert_eq!(
        fixture.decline("sl_edit_source", on("x", json!({}))),
        ("verification_ledger_required".into(), true)
    );
}

#[test]
fn declined_connection_lists_writable_ones() {
    let refused = |connection: &str| {
        let mut elsewhere = table("x", json!({}));
        elsewhere["connectionId"] = connection.into();
        ToolFixture::unlocked()
            .call("sl_write_source", elsewhere)
            .markdown
    };
    // A read-only connection, and one that does not exist.
    for (connection, hint) in [("bi", ""), ("warehuose", " (did you mean `warehouse`?)")] {
        let end = format!(
            "- Connection \"{connection}\" is not available to this ingest stage{hint}; sources may be written for \
             warehouse, notes"
        );
        let text = refused(connection);
        assert!(text.ends_with(&end), "{text}");
    }
}

#[test]
fn discovery_lists_target_connections() {
    let fixture = ToolFixture::new();
    let targets =
        "Sources may be written for these connections: warehouse (postgres), notes (docs).";
    let calls = [
        ("sl_discover", json!({})),
        ("sl_discover", json!({"query": "zebra"})),
        ("sl_discover", json!({"connectionId": "bi"})),
        ("discover_data", json!({})),
        ("discover_data", json!({"query": "zebra"})),
        ("discover_data", json!({"query": "arr"})),
    ];
    for (tool, arguments) in calls {
        let text = fixture.text(tool, arguments.clone());
        assert!(
            text.ends_with(&format!("\n\n{targets}")),
            "{tool} {arguments}: {text}"
        );
    }
    let (mut context, _dir) = tool_context();
    context.unit.planned.sl_disallowed = Some("lookml_connection_mismatch".into());
    let tools = AttemptTools::new(Arc::new(context), None);
    let call = ToolCall {
        name: "sl_discover".into(),
        arguments: json!({}),
        tool_use_id: None,
    };
    assert!(
        !tools.call(&call).markdown.contains("may be written"),
        "the unit writes no sources"
    );
}

fn unmapped(reason: &str, more: Value) -> Value {
    let mut arguments = json!({"rawPath": "a.md", "reason": reason, "fallback": "wiki_only"});
    arguments
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    arguments
}

#[test]
fn table_with_a_source_is_not_unmapped() {
    let fixture = layered();
    let emit = |reason: &str, table: &str| {
        fixture.call(
            "emit_unmapped_fallback",
            unmapped(reason, json!({"tableRef": table})),
        )
    };
    for table in [
        "customers",
        "shop.customers",
        "Shop.\"Customers\"",
        " `customers` ",
        "orders",
        "[shop].[orders]",
    ] {
        for reason in ["no_physical_table", "missing_target_table"] {
            let reply = emit(reason, table);
            assert!(
                reply.declined && !reply.is_error,
                "{table}: {}",
                reply.markdown
            );
            assert_eq!(
                reply.structured.unwrap()["reason"],
                "source_exists",
                "{table}"
            );
        }
    }
    assert!(fixture.tools.context.records().unmapped.is_empty());
    // A qualified name matches only that table, and other reasons do not claim that a source is missing.
    for (reason, table) in [
        ("no_physical_table", "finance.orders"),
        ("missing_target_table", "rders"),
        ("parse_error", "orders"),
    ] {
        let reply = emit(reason, table);
        assert_eq!(
            reply.structured.unwrap()["success"],
            true,
            "{table}: {}",
            reply.markdown
        );
    }
    assert_eq!(fixture.tools.context.records().unmapped.len(), 3);
}

#[test]
fn an_unmapped_file_is_on_record_once_with_its_table() {
    let fixture = layered();
    let emit = |more: Value| {
        fixture.text(
            "emit_unmapped_fallback",
            unmapped("no_physical_table", more),
        )
    };
    let text = emit(json!({"tableRef": "marts.x", "clarification": " Ask Maya. "}));
    let detail = "`marts.x` is described, but no connection has a source for it. Ask Maya.";
    assert_eq!(
        text,
        format!("Recorded `a.md` as unmapped (wiki_only): {detail}")
    );
    emit(json!({"tableRef": "marts.x", "clarification": "Ask Maya."}));
    emit(json!({"tableRef": "marts.y"}));
    emit(json!({}));
    let kept = fixture.tools.context.records().unmapped.clone();
    let [record] = &kept[..] else {
        panic!("{kept:?}")
    };
    let others = "`marts.y` is described, but no connection has a source for it. The referenced object is described";
    assert!(
        record
            .detail
            .as_deref()
            .unwrap()
            .starts_with(&format!("{detail} {others}")),
        "{record:?}"
    );
    for _ in 0..100 {
        emit(json!({"clarification": "x".repeat(90)}));
        emit(json!({"clarification": "y".repeat(10_000)}));
    }
    assert!(
        fixture.tools.context.records().unmapped[0]
            .detail
            .as_ref()
            .unwrap()
            .len()
            < 4_000
    );
    fixture.text("emit_unmapped_fallback", unmapped("parse_error", json!({})));
    assert_eq!(
        fixture.tools.context.records().unmapped.len(),
        2,
        "a different reason adds a record"
    );
}

#[test]
fn hostile_source_names_stay_in_connection_dir() {
    let fixture = layered();
    for name in [
        "../../ktx",
        "/etc/passwd",
        "..",
        "a/b",
        "con",
        "_schema/public",
        "Orders",
        "é",
        "x.yaml",
    ] {
        let reply = fixture.call("sl_write_source", table(name, json!({})));
        assert!(!reply.is_error, "{name}: {}", reply.markdown);
        assert!(
            fixture
                .text("sl_read_source", on(name, json!({})))
                .contains("grain"),
            "{name}"
        );
    }
    let paths: Vec<_> = fixture
        .tools
        .context
        .workspace
        .changes()
        .into_keys()
        .collect();
    assert_eq!(paths.len(), 9, "{paths:?}");
    for path in paths {
        let file = path.strip_prefix("semantic-layer/warehouse/").unwrap();
        assert!(!file.contains('/') && file.ends_with(".yaml"), "{path}");
    }
}

#[test]
fn links_are_neither_read_nor_written_through() {
    let fixture = layered();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("s.yaml"), "name: secret\ntable: t\n").unwrap();
    let folder = fixture.root().join("semantic-layer");
    symlink(
        outside.path().join("s.yaml"),
        folder.join("warehouse/s.yaml"),
    )
    .unwrap();
    symlink(outside.path(), folder.join("notes")).unwrap();
    let seen = fixture.text("sl_discover", json!({}));
    assert!(
        seen.contains("customers") && !seen.contains("secret"),
        "{seen}"
    );
    assert!(
        fixture
            .text("sl_read_source", on("s", json!({})))
            .starts_with("Error: ")
    );
    let mut source = table("x", json!({}));
    source["connectionId"] = "notes".into();
    assert!(
        fixture
            .call("sl_write_source", source)
            .markdown
            .contains("NOT saved")
    );
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn source_changed_since_read_is_not_overwritten() {
    let fixture = layered();
    let (name, declined) = ("customers", (super::super::PAGE_CHANGED.to_owned(), false));
    // This attempt has not read the file yet.
    assert_eq!(
        fixture.decline("sl_write_source", table(name, json!({}))),
        declined
    );
    fixture.text("sl_read_source", on(name, json!({})));
    fs::write(
        fixture
            .root()
            .join("semantic-layer/warehouse/customers.yaml"),
        CUSTOMERS.replace("hand", "them"),
    )
    .unwrap();
    assert_eq!(
        fixture.decline("sl_write_source", table(name, json!({}))),
        declined
    );
    fixture.text(
        "sl_edit_source",
        on(
            name,
            json!({"yaml_edits": [{"oldText": "by them", "newText": "by both"}]}),
        ),
    );
    assert!(
        fixture
            .text("sl_read_source", on(name, json!({})))
            .contains("# by both")
    );
}

#[test]
fn concurrent_edits_are_all_applied() {
    let fixture = layered();
    std::thread::scope(|scope| {
        for n in 0..8 {
            let fixture = &fixture;
            scope.spawn(move || {
                let edits = json!([{"oldText": "columns:\n", "newText": format!("columns:\n  - {{name: c{n}, type: time}}\n")}]);
                fixture.text("sl_edit_source", on("customers", json!({"yaml_edits": edits})));
            });
        }
    });
    let text = fixture.text("sl_read_source", on("customers", json!({})));
    assert!(
        (0..8).all(|n| text.contains(&format!("name: c{n},"))),
        "{text}"
    );
}

#[test]
fn long_sources_are_paged_without_loss() {
    let fixture = layered();
    let columns: String = (0..3_000)
        .map(|n| format!("  - {{name: c{n}, type: number}}\n"))
        .collect();
    let whole = format!("name: wide\ntable: t\ngrain: [c1]\ncolumns:\n{columns}");
    fs::write(
        fixture.root().join("semantic-layer/warehouse/wide.yaml"),
        &whole,
    )
    .unwrap();
    let (mut joined, mut next) = (String::new(), Some(on("wide", json!({}))));
    while let Some(arguments) = next {
        let text = fixture.text("sl_read_source", arguments);
        assert!(text.chars().count() <= MAX_ANSWER_CHARS);
        let (page, rest) = text
            .split_once("```yaml\n")
            .unwrap()
            .1
            .split_once("```")
            .unwrap();
        joined.push_str(page);
        next = rest
            .split_once("continue with sl_read_source ")
            .map(|(_, rest)| serde_json::from_str(rest.trim_end_matches(']')).unwrap());
    }
    assert_eq!(joined, whole);
    let seen = fixture.text("sl_discover", json!({"sourceName": "wide"}));
    assert!(seen.chars().count() < MAX_ANSWER_CHARS && seen.contains('…'));
}

#[test]
fn long_source_list_is_truncated_with_notice() {
    let fixture = layered();
    for n in 0..300 {
        let text = CUSTOMERS.replace("customers", &format!("s{n:03}"));
        fs::write(
            fixture
                .root()
                .join(format!("semantic-layer/warehouse/s{n:03}.yaml")),
            text,
        )
        .unwrap();
    }
    let seen = fixture.text("sl_discover", json!({}));
    assert!(seen.starts_with("**302 source(s) found**"), "{seen}");
    assert!(
        seen.contains("\n\n102 more sources; narrow the query or give connectionId.\n\n"),
        "{seen}"
    );
}

#[test]
fn discover_finds_pages_sources_and_raw_lines() {
    let fixture = layered();
    fs::write(
        fixture.root().join("source/a.md"),
        "one\nOrders | count when paid\n",
    )
    .unwrap();
    let texts = [
        fixture.text("discover_data", json!({"query": "orders"})),
        fixture.text("discover_data", json!({"query": "arr", "limit": 1})),
        fixture.text("discover_data", json!({})),
        fixture.text("discover_data", json!({"sourceName": "orders"})),
        fixture.text("discover_data", json!({"query": "zebra"})),
        fixture.text(
            "discover_data",
            json!({"query": "x", "connectionId": "../x"}),
        ),
    ];
    insta::assert_snapshot!(texts.join("\n----\n"));
    let structured = fixture
        .call("discover_data", json!({"query": "orders"}))
        .structured
        .unwrap();
    assert_eq!(structured["wiki"], Value::Null);
    assert_eq!(
        (
            &structured["sl"]["totalSources"],
            &structured["raw"]["hits"][0]["line"]
        ),
        (&json!(1), &json!(2))
    );
    assert!(
        !fixture
            .text("discover_data", json!({"query": "peer not for you"}))
            .contains("peer.md"),
        "names only"
    );
}

#[test]
fn raw_files_that_are_binary_or_huge_are_passed_over() {
    let fixture = layered();
    fs::write(
        fixture.root().join("source/a.md"),
        vec![0xff; 5 * 1024 * 1024],
    )
    .unwrap();
    fs::write(
        fixture.root().join("source/sub/dep.yml"),
        b"needle \xff\x00\n",
    )
    .unwrap();
    let text = fixture.text("discover_data", json!({"query": "needle"}));
    assert!(
        text.contains("sub/dep.yml:1: needle")
            && text.contains("1 files were not searched: they are too large"),
        "{text}"
    );
    let nothing = fixture.text("discover_data", json!({"query": "zebra"}));
    assert!(
        nothing.contains("No other raw file matches.\n1 files were not searched"),
        "{nothing}"
    );
}

#[test]
fn changed_sources_are_checked_at_the_end() {
    let fixture = layered();
    fixture.text(
        "sl_write_source",
        table(
            "visits",
            json!({"joins": [
        {"to": "customers", "on": "id = customers.id", "relationship": "many_to_one"}]}),
        ),
    );
    let context = &fixture.tools.context;
    fixture.text("sl_read_source", on("customers", json!({})));
    assert_eq!(
        crate::workspace_check::check_changes(
            &context.workspace,
            &context.scope.target_ids(),
            &context.scope,
        )
        .invalid,
        [] as [&str; 0]
    );
    fixture.text("sl_edit_source", on("customers", json!({"delete": true})));
    let invalid = crate::workspace_check::check_changes(
        &context.workspace,
        &context.scope.target_ids(),
        &context.scope,
    )
    .invalid;
    assert_eq!(
        invalid,
        ["warehouse:visits: join target `customers` is not a source of this connection"]
    );
}

#[test]
fn broken_references_are_reported_by_the_write() {
    let fixture = layered();
    let page = |key: &str, content: &str, sl_refs: Value| json!({"key": key, "summary": "s", "content": content, "refs": ["No Key"], "sl_refs": sl_refs});
    let links = page(
        "p1",
        "See [[p2]], `source:visits` and `customers.id`.",
        json!(["customers"]),
    );
    let reply = fixture.text("wiki_write", links);
    assert!(reply.starts_with("Wiki page `p1` created."), "{reply}");
    assert!(
        reply.contains("- wiki page p1 -> p2: there is no such page"),
        "{reply}"
    );
    assert!(
        reply.contains("- wiki page p1: `source:visits`: there is no such source"),
        "{reply}"
    );
    // A reference to a page that is written later is valid.
    assert!(
        !fixture
            .text("wiki_write", page("p2", "x", json!([])))
            .contains("p1 -> p2")
    );
    let done = fixture
        .call("sl_write_source", table("visits", json!({})))
        .structured
        .unwrap();
    assert!(done.get("unresolved").is_none(), "{done}");
    // Pages of other units are reported as well, including repairs in them.
    fixture.text("wiki_read", json!({"key": "arr"}));
    fixture.text(
        "wiki_write",
        page(
            "arr",
            "`customers.id`",
            json!(["customers", "customers.id"]),
        ),
    );
    fixture.text("sl_read_source", on("customers", json!({})));
    let reply = fixture.call("sl_edit_source", on("customers", json!({"delete": true})));
    let unresolved = reply.structured.unwrap()["unresolved"].to_string();
    assert!(
        !reply.is_error
            && unresolved.contains("wiki page p1: `customers` in sl_refs: there is no such source"),
        "{unresolved}"
    );
    fixture.text("sl_rollback", json!({"sourceName": "customers"}));
    let reply = fixture.text("wiki_write", page("p2", "y", json!([])));
    assert!(
        reply.contains("page arr no longer has sl_refs to customers.id"),
        "{reply}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// For any arguments, only files of the semantic layer are written, and they can be read again.
    #[test]
    fn any_source_is_valid_yaml_below_the_connection_or_declined(
        connection in "warehouse|notes|\\.\\./x|[a-z/.]{0,6}", name in "\\PC{1,12}|[a-zA-Z0-9_./]{1,12}",
        about in "\\PC{0,30}|[ -~\n]{0,60}", column in "\\PC{1,8}|on|yes|1e3",
    ) {
        let fixture = layered();
        let source = json!({"name": name, "sql": about, "grain": [column], "descriptions": {"user": about},
            "columns": [{"name": column, "type": "string"}]});
        let arguments = json!({"connectionId": connection, "sourceName": name, "source": source});
        let reply = fixture.call("sl_write_source", arguments);
        let changes = fixture.tools.context.workspace.changes();
        prop_assert_eq!(reply.markdown.contains("saved successfully"), changes.len() == 1, "{}", reply.markdown);
        for path in changes.keys() {
            prop_assert!(crate::semantic_layer::split_source_path(path).is_some_and(|(id, _)| id == connection), "{}", path);
            let file = fixture.tools.context.semantic_layer().find_source_file(&connection, &name).unwrap().unwrap();
            let Value::Object(source) = source.clone() else { unreachable!() };
            prop_assert_eq!(file.doc.unwrap(), crate::semantic_layer::fill_defaults(source));
        }
    }
}
