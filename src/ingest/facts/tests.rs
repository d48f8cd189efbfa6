//! Facts as KTX and dbt leave them, and hostile files.

use std::{fs, os::unix::fs::symlink, path::Path};

use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-11-29T12:00:00Z";

fn write(root: &Path, path: &str, text: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Writes a scan of connection `wh` with these tables.
fn write_scan(root: &Path, sync: &str, properties: Value, tables: &[Value]) {
    let folder = format!("raw-sources/wh/live-database/{sync}");
    write(
        root,
        &format!("{folder}/connection.json"),
        properties.to_string(),
    );
    for (index, table) in tables.iter().enumerate() {
        write(
            root,
            &format!("{folder}/tables/{index}.json"),
            table.to_string(),
        );
    }
}

fn table(schema: &str, name: &str) -> Value {
    json!({
        "catalog": null, "db": schema, "name": name, "kind": "table", "comment": "About it", "estimatedRows": 12,
        "columns": [
            {"name": "id", "nativeType": "bigint", "normalizedType": "bigint", "dimensionType": "number",
                "nullable": false, "primaryKey": true, "comment": null},
            {"name": "state", "nativeType": "varchar(8)", "nullable": true, "primaryKey": false, "comment": "Its state"},
        ],
        "foreignKeys": [{"fromColumn": "id", "toCatalog": null, "toDb": "public", "toTable": "users", "toColumn": "id"}],
    })
}

fn properties(at: &str, tables: usize) -> Value {
    json!({"connectionId": "wh", "extractedAt": at, "scope": {"schemas": ["public"]}, "tableCount": tables})
}

fn facts(root: &Path, dbt: Option<&str>, has_enabled_tables: bool) -> Arc<ConnectionFacts> {
    ProjectFacts::default().of("wh", || FactFiles {
        project: root.to_owned(),
        connection: "wh".into(),
        dbt_sources: dbt.map(|dir| root.join(dir)).into_iter().collect(),
        database: None,
        has_enabled_tables,
    })
}

fn warnings(facts: &ConnectionFacts) -> String {
    let warnings: Vec<String> = facts
        .load()
        .warnings
        .iter()
        .map(ToString::to_string)
        .collect();
    warnings.join("\n")
}

fn names(facts: &ConnectionFacts) -> Vec<String> {
    let facts = facts.load();
    let tables = facts.distinct_tables();
    tables
        .map(|(set, table)| format!("{} {}", set.origin.name(), full_name(table)))
        .collect()
}

fn known(facts: &Arc<ConnectionFacts>) -> KnownTables {
    let week = Duration::from_secs(7 * 24 * 60 * 60);
    KnownTables::new(facts, NOW.parse().unwrap(), week)
}

#[test]
fn newest_scan_is_read_with_its_profile() {
    let dir = tempfile::tempdir().unwrap();
    write_scan(
        dir.path(),
        "2026-01",
        properties("2026-01-01T00:00:00Z", 1),
        &[table("public", "old")],
    );
    write_scan(
        dir.path(),
        "2026-11",
        properties("2026-11-26T10:00:00Z", 1),
        &[table("public", "orders")],
    );
    write(
        dir.path(),
        "raw-sources/wh/live-database/2026-11/enrichment/relationship-profile.json",
        json!({
            "tables": [{"table": {"catalog": null, "db": "public", "name": "Orders"}, "rowCount": 99}],
            "columns": {"orders.state": {"table": {"catalog": null, "db": "public", "name": "orders"},
                "column": "STATE", "sampleValues": ["paid", 7]}},
        })
        .to_string(),
    );
    write(
        dir.path(),
        "semantic-layer/wh/_schema/public.yaml",
        "tables: {other: {columns: []}}\n",
    );
    let facts = facts(dir.path(), None, false);
    assert!(facts.exist());
    assert_eq!(
        (names(&facts), warnings(&facts)),
        (vec!["scan public.orders".into()], String::new())
    );
    insta::assert_debug_snapshot!(facts.load().sets[0].tables[0]);
}

#[test]
fn changed_files_are_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    write(root, "dbt/dbt_project.yml", "name: shop\n");
    let facts = facts(root, Some("dbt"), false);
    assert!(!facts.exist() && names(&facts).is_empty());
    let catalog = catalog_of("2026-01-01T00:00:00Z", &[["shop", "raw", "events"]]);
    write(root, "dbt/target/catalog.json", catalog);
    assert_eq!(names(&facts), ["dbt-catalog shop.raw.events"]);
    let of_dbt = facts.load();
    assert!(Arc::ptr_eq(&of_dbt, &facts.load()));
    write(
        root,
        "semantic-layer/wh/_schema/public.yaml",
        "tables: {public.a: {columns: []}}\n",
    );
    assert_eq!(names(&facts)[0], "scan public.a");
    write_scan(
        root,
        "1",
        properties("2026-01-01T00:00:00Z", 1),
        &[table("public", "b")],
    );
    assert_eq!(names(&facts)[0], "scan public.b");
    write_scan(
        root,
        "1",
        properties("2026-01-01T00:00:00.5Z", 1),
        &[table("public", "c")],
    );
    assert_eq!(names(&facts)[0], "scan public.c");
    fs::remove_dir_all(root.join("raw-sources")).unwrap();
    fs::remove_dir_all(root.join("semantic-layer")).unwrap();
    fs::remove_dir_all(root.join("dbt")).unwrap();
    assert!(!facts.exist() && names(&facts).is_empty());
    assert_eq!(of_dbt.sets.len(), 1, "an earlier answer stays as it is");
}

#[test]
fn tables_of_other_databases_are_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let scan = properties("2026-11-28T12:00:00Z", 1);
    write_scan(dir.path(), "1", scan, &[table("public", "orders")]);
    let judge = |database: Option<&str>, name: &str| {
        let facts = ProjectFacts::default().of("wh", || FactFiles {
            project: dir.path().to_owned(),
            connection: "wh".into(),
            database: database.map(str::to_owned),
            ..FactFiles::default()
        });
        match known(&facts).judge(name) {
            TableFinding::Fine => "fine",
            TableFinding::Missing(_) => "missing",
            TableFinding::Doubtful(_) => "doubtful",
        }
    };
    for (database, name, expected) in [
        (Some("shop"), "\"Shop\".\"public\".\"orders\"", "fine"),
        (Some("shop"), "shop.public.gone", "missing"),
        (Some("shop"), "other.public.orders", "doubtful"),
        (Some("shop"), "public.gone", "missing"),
        (None, "shop.public.orders", "fine"),
        (None, "shop.public.gone", "doubtful"),
        (None, "public.gone", "missing"),
    ] {
        assert_eq!(judge(database, name), expected, "{database:?} {name}");
    }
}

#[test]
fn schema_files_answer_without_a_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let text = "tables:
  orders:
    table: shop.public.orders
    descriptions: {ai: Guess, db: From the database}
    usage: {narrative: x}
    columns:
      - {name: id, type: number, pk: true, nullable: false}
      - {name: customer_id, type: number, descriptions: {user: Who}}
    joins:
      - {to: customers, on: orders.customer_id = customers.id, relationship: many_to_one, source: formal}
      - {to: guess, on: orders.id = guess.id, relationship: many_to_one, source: inferred}
  empty:
";
    write(dir.path(), "semantic-layer/wh/_schema/public.yaml", text);
    write(dir.path(), "semantic-layer/wh/_schema/.hidden.yaml", ":");
    let found = facts(dir.path(), None, false);
    assert_eq!(
        (names(&found), warnings(&found)),
        (vec!["scan shop.public.orders".into()], String::new())
    );
    let set = &found.load().sets[0];
    assert_eq!((set.read_at, set.is_complete()), (None, true));
    insta::assert_debug_snapshot!(set.tables[0]);
    write(
        dir.path(),
        "semantic-layer/wh/_schema/bad.yaml",
        "tables: [\n",
    );
    write(
        dir.path(),
        "semantic-layer/wh/_schema/latin.yaml",
        b"tables: {\xff: 1}\n",
    );
    let damaged = facts(dir.path(), None, false);
    assert!(!damaged.load().sets[0].is_complete());
    insta::assert_snapshot!(warnings(&damaged));
}

#[test]
fn damaged_scan_no_longer_proves_absence() {
    let dir = tempfile::tempdir().unwrap();
    let at = "2026-11-26T10:00:00Z";
    write_scan(
        dir.path(),
        "1",
        properties(at, 3),
        &[table("public", "orders"), table("public", "orders")],
    );
    let folder = dir.path().join("raw-sources/wh/live-database/1");
    write(&folder, "tables/x\u{1b}.json", b"\xff");
    write(&folder, "tables/y.json", "[".repeat(100_000));
    symlink("/etc/passwd", folder.join("tables/z.json")).unwrap();
    let found = facts(dir.path(), None, false);
    assert_eq!(
        names(&found),
        ["scan public.orders"],
        "duplicates are one table"
    );
    assert!(!found.load().sets[0].is_complete());
    insta::assert_snapshot!(warnings(&found));
    fs::write(folder.join("connection.json"), "{").unwrap();
    let found = facts(dir.path(), None, false);
    assert!(names(&found).is_empty());
    insta::assert_snapshot!(warnings(&found), @"raw-sources/wh/live-database/1: the scan is not used, as connection.json cannot be read: EOF while parsing an object at line 1 column 1");
}

fn catalog(nodes: Value) -> String {
    json!({
        "metadata": {"generated_at": "2026-11-28T10:00:00.123456Z", "env": {}},
        "nodes": nodes,
        "sources": {"source.shop.raw.events": {
            "metadata": {"type": "VIEW", "schema": "RAW", "name": "EVENTS", "database": "SHOP", "comment": null},
            "columns": {}, "stats": {}, "unique_id": "x",
        }},
        "errors": null,
    })
    .to_string()
}

const PROJECT_FILE: &str = "name: shop\ntarget-path: ./build/out\n";

#[test]
fn artifacts_of_dbt_are_read_from_its_target_path() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "dbt/shop/dbt_project.yml", PROJECT_FILE);
    let nodes = json!({"model.shop.orders": {
        "metadata": {"type": "BASE TABLE", "schema": "MART", "name": "ORDERS", "database": "SHOP", "comment": "Orders"},
        "columns": {
            "STATE": {"type": "TEXT", "index": 2, "name": "STATE", "comment": "Its state"},
            "ID": {"type": "NUMBER", "index": 1, "name": "ID", "comment": null},
        },
        "stats": {"row_count": {"id": "row_count", "value": 12.0, "include": true}},
    }});
    write(
        dir.path(),
        "dbt/shop/build/out/catalog.json",
        catalog(nodes),
    );
    let model = |name: &str, more: Value| {
        let mut node = json!({"resource_type": "model", "database": "SHOP", "schema": "MART", "alias": name, "name": "m",
            "raw_code": "x".repeat(10_000)});
        node.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        node
    };
    let manifest = json!({
        "metadata": {"generated_at": "2026-11-29T10:00:00Z"},
        "macros": {"m": {"deep": [[[1]]]}},
        "nodes": {
            "model.shop.orders": model("orders", json!({})),
            "model.shop.new": model("new", json!({"config": {"materialized": "view"}, "description": "Soon",
                "columns": {"id": {"name": "id", "data_type": "int"}, "at": {"name": "at"}}})),
            "model.shop.inner": model("inner", json!({"config": {"materialized": "ephemeral"}})),
            "test.shop.t": model("t", json!({"resource_type": "test"})),
        },
        "sources": {"source.shop.raw.seen": {"resource_type": "source", "schema": "raw", "identifier": "seen"}},
    });
    write(
        dir.path(),
        "dbt/shop/build/out/manifest.json",
        manifest.to_string(),
    );
    let facts = facts(dir.path(), Some("dbt"), false);
    assert!(facts.exist());
    assert_eq!(warnings(&facts), "");
    assert_eq!(
        names(&facts),
        [
            "dbt-catalog SHOP.MART.ORDERS",
            "dbt-catalog SHOP.RAW.EVENTS",
            "dbt-manifest SHOP.MART.new",
            "dbt-manifest raw.seen",
        ]
    );
    insta::assert_debug_snapshot!(facts.load().sets[0].tables[0]);
    assert_eq!(
        facts.load().sets[0].describe(NOW.parse().unwrap()),
        "dbt's catalog.json of 25 hours ago (2026-11-28)"
    );
}

#[test]
fn hostile_artifacts_are_warnings_without_facts() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    write(
        root,
        "dbt/dbt_project.yml",
        "target-path: \"{{ env_var('X') }}\"\n",
    );
    type MakeFile<'a> = &'a dyn Fn(&Path);
    let cases: [(&str, MakeFile<'_>); 6] = [
        ("nested", &|path| {
            fs::write(
                path,
                format!(
                    "{{\"nodes\": {{\"a\": {{\"stats\": {{\"x\": {{\"value\": {}",
                    "[".repeat(1_000_000)
                ),
            )
            .unwrap()
        }),
        ("not UTF-8", &|path| {
            fs::write(
                path,
                b"{\"nodes\": {\"a\": {\"metadata\": {\"name\": \"\xff\"}}}}",
            )
            .unwrap()
        }),
        ("not JSON", &|path| fs::write(path, "nodes:").unwrap()),
        ("a link", &|path| symlink("/etc/passwd", path).unwrap()),
        ("too large", &|path| {
            let file = fs::File::create(path).unwrap();
            file.set_len((512 << 20) + 1).unwrap();
        }),
        ("too many tables", &|path| {
            let node = |n: usize| format!("\"{n}\": {{\"metadata\": {{\"name\": \"t{n}\"}}}}");
            let nodes: Vec<String> = (0..100_001).map(node).collect();
            fs::write(path, format!("{{\"nodes\": {{{}}}}}", nodes.join(","))).unwrap();
        }),
    ];
    let mut found = Vec::new();
    for (what, make) in cases {
        let path = root.join("dbt/target/catalog.json");
        let _ = fs::remove_file(&path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        make(&path);
        let facts = facts(root, Some("dbt"), false);
        assert!(names(&facts).is_empty(), "{what}");
        found.push(format!("{what}: {}", warnings(&facts)));
    }
    insta::assert_snapshot!(found.join("\n"));
}

#[test]
fn target_path_outside_of_the_source_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "dbt/dbt_project.yml", "target-path: ../out\n");
    write(dir.path(), "out/catalog.json", catalog(json!({})));
    let facts = facts(dir.path(), Some("dbt"), false);
    assert!(!facts.exist() && names(&facts).is_empty());
}

#[test]
fn hostile_names_are_left_out_or_kept_raw() {
    let dir = tempfile::tempdir().unwrap();
    let tables = [
        table("public", &"x".repeat(2_000)),
        table("public", ""),
        table("public", "a\u{1b}[2J\nb"),
    ];
    write_scan(
        dir.path(),
        "1",
        properties("2026-11-26T10:00:00Z", 3),
        &tables,
    );
    let facts = facts(dir.path(), None, false);
    assert_eq!(names(&facts), ["scan public.a\u{1b}[2J\nb"]);
    assert!(!facts.load().sets[0].is_complete());
}

#[test]
fn missing_tables_are_judged_by_the_age_of_the_scan() {
    let dir = tempfile::tempdir().unwrap();
    let judge = |at: Option<&str>, table_name: &str, answer: Option<bool>| {
        let properties = json!({"scope": {"schemas": ["public"]}, "extractedAt": at});
        write_scan(dir.path(), "1", properties, &[table("public", "orders")]);
        let mut known = known(&facts(dir.path(), None, false));
        known.answers = answer
            .map(|exists| (table_name.to_owned(), exists))
            .into_iter()
            .collect();
        match known.judge(table_name) {
            TableFinding::Fine => "fine".to_owned(),
            TableFinding::Missing(why) => format!("missing: {why}"),
            TableFinding::Doubtful(why) => format!("doubtful: {why}"),
        }
    };
    let (young, old) = (Some("2026-11-28T12:00:00Z"), Some("2026-10-01T12:00:00Z"));
    let found = [
        judge(young, "\"PUBLIC\".Orders", None),
        judge(young, "public.ordrs", None),
        judge(young, "public.ordrs", Some(true)),
        judge(old, "public.ordrs", Some(false)),
        judge(old, "public.ordrs", None),
        judge(None, "public.ordrs", None),
        judge(Some("2030-01-01T00:00:00Z"), "public.ordrs", None),
        judge(young, "staging.zebra", None),
    ];
    insta::assert_snapshot!(found.join("\n"));
}

#[test]
fn enabled_tables_of_the_scan_decide_what_it_covers() {
    let dir = tempfile::tempdir().unwrap();
    let judge = |recorded: Value, is_limited_now: bool, name: &str| {
        let mut properties = properties("2026-11-28T12:00:00Z", 1);
        properties["scope"]["enabledTables"] = recorded;
        write_scan(dir.path(), "1", properties, &[table("public", "orders")]);
        let finding = known(&facts(dir.path(), None, is_limited_now)).judge(name);
        match finding {
            TableFinding::Fine => "fine",
            TableFinding::Missing(_) => "missing",
            TableFinding::Doubtful(_) => "doubtful",
        }
    };
    let two = || json!(["public.orders", "public.gone"]);
    for is_limited_now in [false, true] {
        assert_eq!(judge(two(), is_limited_now, "public.users"), "doubtful");
        assert_eq!(judge(two(), is_limited_now, "public.gone"), "missing");
        assert_eq!(judge(json!([]), is_limited_now, "public.gone"), "missing");
    }
    assert_eq!(judge(json!(null), false, "public.gone"), "missing");
    assert_eq!(judge(json!(null), true, "public.gone"), "fine");
}

#[test]
fn table_of_the_manifest_only_is_doubtful() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "dbt/dbt_project.yml", "name: shop\n");
    let manifest = json!({"nodes": {"model.shop.new": {"resource_type": "model", "schema": "public", "name": "new"}}});
    write(dir.path(), "dbt/target/manifest.json", manifest.to_string());
    let alone = known(&facts(dir.path(), Some("dbt"), false));
    assert_eq!(alone.judge("public.new"), TableFinding::Fine);
    write_scan(
        dir.path(),
        "1",
        properties("2026-11-28T12:00:00Z", 1),
        &[table("public", "orders")],
    );
    let with_a_scan = known(&facts(dir.path(), Some("dbt"), false));
    assert_eq!(
        with_a_scan.judge("public.new"),
        TableFinding::Doubtful(
            "only dbt's manifest.json of unknown age knows it, so it will exist after `dbt build`"
                .into()
        )
    );
}

#[test]
fn scan_age_is_that_of_the_newest_commit_of_a_scan() {
    let dir = tempfile::tempdir().unwrap();
    let git_at = |day: u8, args: &[&str]| {
        let output = std::process::Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@example.com"])
            .args(args)
            .current_dir(dir.path())
            .env("GIT_COMMITTER_DATE", format!("2026-11-{day}T12:00:00Z"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let path = "semantic-layer/wh/_schema/public.yaml";
    let commit = |day: u8, table: &str, message: &str| {
        let text = format!("tables: {{{table}: {{columns: []}}}}\n");
        write(dir.path(), path, &text);
        git_at(day, &["add", "."]);
        git_at(day, &["commit", "-qm", message]);
    };
    let age = || {
        facts(dir.path(), None, false).load().sets[0]
            .read_at
            .map(|at| at.to_string())
    };
    git_at(10, &["init", "-q"]);
    commit(10, "users", "ingest(dbt): users");
    assert_eq!(age(), None, "no scan wrote it");
    commit(11, "orders", "scan(live-database): wh: 1 added");
    assert_eq!(age().as_deref(), Some("2026-11-11T12:00:00Z"));
    commit(
        12,
        "refunds",
        "scan(live-database): write manifest shard public",
    );
    commit(
        13,
        "described",
        "Describe orders\n\nAfter scan(live-database): wh",
    );
    assert_eq!(age().as_deref(), Some("2026-11-12T12:00:00Z"));
    write(dir.path(), path, "tables: {x: {columns: []}}\n");
    assert_eq!(age(), None, "uncommitted changes have no known age");
}

/// The catalog of dbt with the tables `DATABASE.SCHEMA.NAME`.
fn catalog_of(at: &str, tables: &[[&str; 3]]) -> String {
    let mut nodes = serde_json::Map::new();
    for [database, schema, name] in tables {
        let metadata =
            json!({"type": "BASE TABLE", "schema": schema, "name": name, "database": database});
        let columns = json!({"DEV_ONLY": {"type": "TEXT", "index": 1, "name": "DEV_ONLY"}});
        let node = json!({"metadata": metadata, "columns": columns, "stats": {}});
        nodes.insert(format!("model.{schema}.{name}"), node);
    }
    json!({"metadata": {"generated_at": at}, "nodes": nodes, "sources": {}}).to_string()
}

#[test]
fn scan_comes_before_artifacts_of_another_target() {
    let dir = tempfile::tempdir().unwrap();
    let mut orders = table("ANALYTICS", "ORDERS");
    orders["catalog"] = json!("PROD");
    let properties = json!({"extractedAt": "2026-11-20T10:00:00Z", "scope": {}, "tableCount": 1});
    write_scan(dir.path(), "1", properties, &[orders]);
    write(dir.path(), "dbt/dbt_project.yml", "name: shop\n");
    let found = [
        ["DEV", "DBT_ME", "ORDERS"],
        ["DEV", "DBT_ME", "OTHERS"],
        ["prod", "ANALYTICS", "ORDERS"],
        ["prod", "RAW", "EVENTS"],
    ];
    write(
        dir.path(),
        "dbt/target/catalog.json",
        catalog_of("2026-11-28T10:00:00Z", &found),
    );
    let facts = facts(dir.path(), Some("dbt"), false);
    assert_eq!(
        names(&facts),
        ["scan PROD.ANALYTICS.ORDERS", "dbt-catalog prod.RAW.EVENTS"]
    );
    let reading = [(TableName::parse("orders"), None)];
    assert!(
        matches!(facts.load().find(&reading), FactLookup::Found(set, _) if set.origin == FactOrigin::Scan)
    );
}

#[test]
fn table_of_an_old_catalog_is_gone_if_a_newer_scan_lacks_it() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "dbt/dbt_project.yml", "name: shop\n");
    let scanned = [table("public", "orders")];
    write_scan(
        dir.path(),
        "1",
        properties("2026-11-26T10:00:00Z", 1),
        &scanned,
    );
    let judge = |generated_at: &str, name: &str, exists: Option<bool>| {
        let found = [["shop", "public", "gone"], ["shop", "stage", "gone"]];
        let text = catalog_of(generated_at, &found);
        write(dir.path(), "dbt/target/catalog.json", text);
        let mut known = known(&facts(dir.path(), Some("dbt"), false));
        known.answers = exists
            .map(|exists| (name.to_owned(), exists))
            .into_iter()
            .collect();
        match known.judge(name) {
            TableFinding::Fine => "fine".to_owned(),
            TableFinding::Missing(why) => format!("missing: {why}"),
            TableFinding::Doubtful(why) => format!("doubtful: {why}"),
        }
    };
    let (older, newer) = ("2026-11-25T10:00:00Z", "2026-11-27T10:00:00Z");
    let found = [
        judge(older, "public.gone", None),
        judge("unknown", "public.gone", None),
        judge(newer, "public.gone", None),
        judge(older, "stage.gone", None),
        judge(newer, "public.gone", Some(false)),
        judge(newer, "public.orders", Some(false)),
        judge(newer, "elsewhere.orders", Some(false)),
        judge(older, "public.gone", Some(true)),
    ];
    insta::assert_snapshot!(found.join("\n"), @"
    missing: the scan of 3 days ago (2026-11-26) does not have it; did you mean `shop.stage.gone`?
    missing: the scan of 3 days ago (2026-11-26) does not have it; did you mean `shop.stage.gone`?
    fine
    fine
    missing: the database does not have it, only dbt's catalog.json of 2 days ago (2026-11-27) does
    missing: the database does not have it, only the scan of 3 days ago (2026-11-26) does
    missing: the database does not have it; did you mean `public.orders`?
    fine
    ");
}
