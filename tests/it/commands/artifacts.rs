//! `artifacts`: the table, diffs, JSON lines and coverage of runs, and what unsourced identifiers do to a unit.

use std::fs;

use serde_json::{Value, json};

use super::test_dir::{TestDir, tape};

const NOTE: &str = "# Orders\n\nThe table shop.orders has order_id and net_eur.\n";
const PAGE: &str = "wiki/global/orders.md";

/// A script part: reads the note, fills the ledger, and writes a page with `text`. Pages whose keys are the other names in
/// it define them until they are removed again.
fn part(unit: &str, key: &str, text: &str) -> Value {
    let call = |tool: &str, with: Value| json!({"call": {"tool": tool, "with": with}});
    let file = unit.trim_start_matches("docs-");
    let mut steps = vec![
        call("read_raw_file", json!({"path": format!("{file}.md")})),
        call(
            "record_verification_ledger",
            json!({"summary": "read", "unverifiedIdentifiers": ["dim_plan"]}),
        ),
    ];
    let names = ["churn_flag", "fct_orders"].iter();
    let names: Vec<&&str> = names.filter(|name| text.contains(**name)).collect();
    let page = |key: &str, text: &str| {
        let page = json!({"key": key, "summary": "s", "content": text});
        call("wiki_write", page)
    };
    steps.extend(names.iter().map(|name| page(name, "Soon gone.")));
    steps.push(page(key, text));
    let removed = names
        .iter()
        .map(|name| call("wiki_remove", json!({"key": name})));
    steps.extend(removed);
    json!({"unit": unit, "steps": steps})
}

/// A project whose agent writes a page with three identifiers that it never received; one of them is declared.
fn project(unsourced: &str) -> (TestDir, String) {
    let place = TestDir::new();
    place.notes(&["plain"]);
    place.write("notes/orders.md", NOTE);
    place.write(
        "config.toml",
        format!("[ingest]\nunsourced = \"{unsourced}\"\n"),
    );
    let page = "`shop.orders` has `order_id`,\n`churn_flag` and `dim_plan` [unverified - from orders.md]; see fct_orders.";
    let parts = [
        part("docs-orders", "orders", page),
        part("docs-plain", "plain", "Plain text."),
    ];
    let claude = place.scripted_claude(&toml::to_string(&json!({"part": parts})).unwrap());
    (place, claude.display().to_string())
}

fn run(place: &TestDir, claude: &str, code: i32) -> String {
    let args = [
        "run",
        "--config",
        "config.toml",
        "--claude-bin",
        claude,
        "--no-reconcile",
        "--ui",
        "lines",
    ];
    let ran = place.run(&args);
    assert_eq!(ran.code, Some(code), "{ran:?}");
    ran.stdout
}

fn lines(place: &TestDir, args: &[&str]) -> Vec<Value> {
    let ran = place.run(&[&["artifacts", "--ui", "json"], args].concat());
    ran.expect_success()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn flags(artifact: &Value) -> Vec<(String, u64, bool)> {
    let flags = artifact["writers"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|writer| writer["unsourced"].as_array().unwrap());
    let flag = |flag: &Value| {
        let name = flag["name"].as_str().unwrap().to_owned();
        (
            name,
            flag["line"].as_u64().unwrap(),
            flag["declared"].as_bool().unwrap(),
        )
    };
    flags.map(flag).collect()
}

#[test]
fn unsourced_identifiers_are_a_warning() {
    let (place, claude) = project("warn");
    let output = run(&place, &claude, 0);
    let names = "wiki/global/orders.md:8 `churn_flag`, wiki/global/orders.md:8 `dim_plan` (declared as unverified)";
    let words: String = output.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("3 identifiers in its artifacts appeared in nothing that it received:"),
        "{output}"
    );
    assert!(words.contains(&names[..40]), "{output}");
    let [orders, plain] = &lines(&place, &[])[..] else {
        panic!("two artifacts")
    };
    let expected = [
        ("churn_flag", 8, false),
        ("dim_plan", 8, true),
        ("fct_orders", 8, false),
    ];
    assert_eq!(
        flags(orders),
        expected.map(|(name, line, declared)| (name.to_owned(), line, declared))
    );
    assert_eq!(
        (&orders["state"], &orders["unsourced"], &plain["unsourced"]),
        (&json!("saved"), &json!(3), &json!(0))
    );
    assert_eq!(
        orders["raw_files"],
        json!([{"connection": "notes", "path": "orders.md"}])
    );
    assert_eq!(orders["commit"], plain["commit"]);
    let table = place.run(&["artifacts"]);
    for text in [
        "▲ 3 ",
        "docs-orders#1",
        "`fct_orders` was in nothing that the agent received",
        "2 artifacts",
    ] {
        assert!(table.expect_success().contains(text), "{text}: {table:?}");
    }
    for format in ["md", "html"] {
        let report = place.run(&["report", "--format", format]);
        assert!(report.expect_success().contains("churn_flag"), "{report:?}");
    }
}

/// A project with a note and a SQLite connection `shop`, whose agent makes the call `lookup` and then writes a source and a
/// page.
fn shop_project(columns: &str, lookup: &str) -> (TestDir, String) {
    let place = TestDir::new();
    place.notes(&["one"]);
    let settings = fs::read_to_string(place.path("ktx.yaml")).unwrap();
    let more = "connections:\n  shop:\n    driver: sqlite\n    url: sqlite:shop.db\n";
    place.write("ktx.yaml", settings.replace("connections:\n", more));
    if !columns.is_empty() {
        let database = rusqlite::Connection::open(place.path("shop.db")).unwrap();
        let create = format!("CREATE TABLE orders ({columns})");
        database.execute_batch(&create).unwrap();
    }
    let script = format!(
        r#"
[[part]]
steps = [
  {{ call = {{ {lookup} }} }},
  {{ call = {{ tool = "record_verification_ledger", with = {{ summary = "Asked the database.", verifiedIdentifiers = ["orders", "id", "status"] }} }} }},
  {{ call = {{ tool = "sl_write_source", with = {{ connectionId = "shop", sourceName = "sales", rawPaths = ["one.md"], source = {{
    name = "sales", table = "Orders", grain = ["id"], columns = [{{ name = "id", type = "number" }}, {{ name = "status", type = "string" }}],
  }} }} }} }},
  {{ call = {{ tool = "wiki_write", with = {{ key = "sales", summary = "s", content = "Sales.", tables = ["orders"], sl_refs = ["sales"] }} }} }},
  {{ say = "Done." }},
]
"#
    );
    let claude = place.scripted_claude(&script).display().to_string();
    (place, claude)
}

const SHOP_COLUMNS: &str = "id INTEGER PRIMARY KEY, total REAL";
const SHOP_SEARCH: &str = r#"tool = "discover_data", with = { query = "orders id" }"#;
const SHOP_RUN: [&str; 5] = ["run", "--no-reconcile", "--ui", "lines", "--claude-bin"];

#[test]
fn identifiers_are_verified_by_answers_of_calls() {
    let (place, claude) = shop_project(SHOP_COLUMNS, SHOP_SEARCH);
    let ran = place.run(&[&SHOP_RUN[..], &[claude.as_str()]].concat());
    let summary = "tables and columns: 4 verified, 1 unverified";
    assert!(ran.expect_success().contains(summary), "{ran:?}");
    let recorded = fs::read_to_string(tape(&place.path(""))).unwrap();
    assert!(recorded.contains(r#""unproven":["status"]"#), "{recorded}");
    let [source, page] = &lines(&place, &[])[..] else {
        panic!("two artifacts")
    };
    assert_eq!(
        source["verification"],
        json!({"verified": ["Orders", "Orders.id"], "unverified": ["Orders.status"], "contradicted": []})
    );
    assert_eq!(page["verification"]["verified"], json!(["orders", "sales"]));
    let line = "semantic-layer/shop/sales.yaml: 1 unverified (Orders.status); 2 verified (Orders, Orders.id)";
    let table = place.run(&["artifacts"]);
    assert!(table.expect_success().contains(line), "{table:?}");
    for format in ["md", "html", "json"] {
        let report = place.run(&["report", "--format", format]);
        assert!(
            report.expect_success().contains("Orders.status"),
            "{report:?}"
        );
    }
}

#[test]
fn contradicted_identifier_fails_a_unit_on_request() {
    let lookup = r#"tool = "entity_details", with = { connectionId = "shop", targets = [{ display = "orders" }] }"#;
    let (place, claude) = shop_project(SHOP_COLUMNS, lookup);
    let run = |config: &str| {
        place.write(
            "config.toml",
            format!("[ingest]\nunsourced = \"{config}\"\n"),
        );
        let own = [claude.as_str(), "--config", "config.toml", "--full"];
        place.run(&[&SHOP_RUN[..], &own].concat())
    };
    let failed = run("fail");
    assert_eq!(failed.code, Some(100), "{failed:?}");
    let finding = "semantic-layer/shop/sales.yaml `Orders.status`: the table has no such column";
    let words: String = failed
        .stdout
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(words.contains(finding), "{failed:?}");
    let warned = run("warn");
    let words: String = warned
        .expect_success()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(
        words.contains("1 identifier in its artifacts contradicts the answers"),
        "{warned:?}"
    );
    assert!(
        words.contains("tables and columns: 4 verified, 1 contradicted"),
        "{warned:?}"
    );
}

#[test]
fn source_without_a_database_is_not_compared() {
    let (place, claude) = shop_project("", SHOP_SEARCH);
    let ran = place.run(&[&SHOP_RUN[..], &[claude.as_str()]].concat());
    let output = ran.expect_success();
    assert!(
        output.contains("nothing could be checked against `shop`"),
        "{ran:?}"
    );
    assert!(!output.contains("tables and columns:"), "{ran:?}");
    let artifacts = lines(&place, &[]);
    assert!(
        artifacts
            .iter()
            .all(|artifact| artifact.get("verification").is_none()),
        "{artifacts:?}"
    );
}

#[test]
fn unsourced_identifiers_fail_a_unit_on_request() {
    let (place, claude) = project("fail");
    let output = run(&place, &claude, 100);
    let words: String = output.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("wiki/global/orders.md:8 `churn_flag` was in nothing"),
        "{output}"
    );
    assert!(!place.path(PAGE).exists());
    let [orders, _] = &lines(&place, &[])[..] else {
        panic!("two artifacts")
    };
    assert_eq!(
        (orders["path"].as_str(), orders["state"].as_str()),
        (Some(PAGE), Some("discarded"))
    );
    assert!(
        orders["writers"][0]["reason"]
            .as_str()
            .unwrap()
            .contains("`fct_orders`"),
        "{orders}"
    );
    assert!(
        !orders["writers"][0]["reason"]
            .as_str()
            .unwrap()
            .contains("dim_plan"),
        "a declared one does not fail it"
    );
    assert_eq!(flags(orders).len(), 3);
}

#[test]
fn unsourced_identifiers_are_ignored_on_request() {
    let (place, claude) = project("off");
    let output = run(&place, &claude, 0);
    assert!(!output.contains("appeared in nothing"), "{output}");
    assert_eq!(flags(&lines(&place, &[])[0]), []);
}

#[test]
fn diffs_come_from_the_patches_of_the_run() {
    let (place, claude) = project("warn");
    run(&place, &claude, 0);
    let shown = place.run(&["artifacts", "--diff", "--unit", "docs-orders"]);
    for text in [
        "wiki/global/orders.md (docs-orders#1, saved)\n@@ -0,0 +1,8 @@\n",
        "\n+`shop.orders` has `order_id`,\n",
    ] {
        assert!(shown.expect_success().contains(text), "{text}: {shown:?}");
    }
    assert!(!shown.stdout.contains("plain.md"), "{shown:?}");
    let [plain] = &lines(&place, &["--diff", "--path", "wiki/*plain*"])[..] else {
        panic!("one artifact")
    };
    assert!(
        plain["diffs"][0]["hunks"]
            .as_str()
            .unwrap()
            .ends_with("+Plain text.\n"),
        "{plain}"
    );
    fs::remove_dir_all(place.path(".ktx/ingest-patches")).unwrap();
    let missing = place.run(&["artifacts", "--diff"]);
    assert!(
        missing
            .expect_success()
            .contains("plain.patch cannot be read: No such file"),
        "{missing:?}"
    );
    assert_eq!(
        lines(&place, &["--diff"])[0]["diffs"][0]["hunks"],
        Value::Null
    );
    assert_eq!(
        place.run(&["artifacts", "--path", "none"]).expect_success(),
        "no artifact matches\n"
    );
    assert!(
        place
            .run(&["artifacts", "--path", "[", "latest"])
            .expect_refusal(2)
            .starts_with("invalid pattern `[`")
    );
}

#[test]
fn secrets_and_foreign_patches_stay_separate() {
    let (place, claude) = project("warn");
    let key = "Text.\n\n-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA";
    let parts = [
        part("docs-orders", "orders", key),
        part("docs-plain", "plain", "Plain text."),
    ];
    place.scripted_claude(&toml::to_string(&json!({"part": parts})).unwrap());
    run(&place, &claude, 0);
    let shown = lines(&place, &["--diff"]);
    let hunks = |at: usize| shown[at]["diffs"][0]["hunks"].as_str().unwrap();
    assert!(
        !hunks(0).contains("MIIEowIBAAKCAQEA") && hunks(1).contains("+Plain text."),
        "{shown:?}"
    );
    let table = place.run(&["artifacts", "--diff"]);
    assert!(
        table.expect_success().contains("+Plain text.") && !table.stdout.contains("MIIEow"),
        "{table:?}"
    );
    for args in [
        ["--coverage", "--unit=x"],
        ["--coverage", "--path=x"],
        ["--coverage", "--diff"],
    ] {
        let ran = place.run(&[&["artifacts"][..], &args].concat());
        assert!(
            ran.code == Some(2) && ran.stderr.contains("cannot be used with"),
            "{ran:?}"
        );
    }

    let id = lines(&place, &[])[0]["writers"][0]["patch"]
        .as_str()
        .unwrap()
        .to_owned();
    let tape = tape(&place.path(""));
    let text = fs::read_to_string(&tape).unwrap();
    fs::write(&tape, text.replace(&id, "notes/orders.md")).unwrap();
    let error = lines(&place, &["--diff"])[0]["diffs"][0]["error"].to_string();
    assert!(
        error.contains("it is not in .ktx/ingest-patches"),
        "{error}"
    );
}

#[test]
fn coverage_shows_sources_without_page() {
    let (place, claude) = project("warn");
    run(&place, &claude, 0);
    let states = |lines: Vec<Value>| -> Vec<String> {
        let state = |line: &Value| {
            ["path", "change", "state"]
                .map(|key| line[key].as_str().unwrap().to_owned())
                .join(" ")
        };
        lines.iter().map(state).collect()
    };
    assert_eq!(
        states(lines(&place, &["--coverage"])),
        ["orders.md new covered", "plain.md new covered"]
    );
    place.write("notes/orders.md", NOTE.replace("net_eur", "gross_eur"));
    place.write("notes/third.md", "# Third\n");
    let parts = [json!({"unit": "docs-*", "steps": [{"say": "Nothing to do."}]})];
    place.scripted_claude(&toml::to_string(&json!({"part": parts})).unwrap());
    run(&place, &claude, 0);
    let expected = [
        "orders.md changed stale",
        "plain.md unchanged covered",
        "third.md new uncovered",
    ];
    assert_eq!(states(lines(&place, &["--coverage"])), expected);
    let table = place.run(&["artifacts", "--coverage"]);
    assert!(
        table
            .expect_success()
            .ends_with("notes: 3 raw files (docs), 1 covered, 1 stale, 1 uncovered\n"),
        "{table:?}"
    );
    for format in ["md", "html"] {
        let report = place.run(&["report", "--format", format]);
        for text in ["third.md", "1 covered, 1 stale, 1 uncovered"] {
            assert!(report.expect_success().contains(text), "{text}: {report:?}");
        }
    }
}

#[test]
fn secrets_in_names_of_sources_are_masked() {
    let (place, claude) = project("warn");
    run(&place, &claude, 0);
    let text = fs::read_to_string(tape(&place.path(""))).unwrap();
    let secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let connection = format!("\"connection\":\"{secret}\"");
    let hostile = text.replace("\"connection\":\"notes\"", &connection);
    assert_ne!(hostile, text);
    place.write("hostile.jsonl", hostile);
    for args in [
        &["artifacts", "hostile.jsonl", "--coverage"][..],
        &["artifacts", "hostile.jsonl"],
    ] {
        for ui in ["json", "lines"] {
            let shown = place.run(&[args, &["--ui", ui]].concat());
            assert!(
                shown.expect_success().len() > 20 && !shown.stdout.contains(secret),
                "{shown:?}"
            );
        }
    }
    let shown = place.run(&["artifacts", "hostile.jsonl", "--coverage"]);
    assert!(
        shown.expect_success().contains("[masked]: 2 raw files"),
        "{shown:?}"
    );
}

#[test]
fn hostile_tape_is_escaped_and_bounded() {
    let (place, claude) = project("warn");
    run(&place, &claude, 0);
    let text = fs::read_to_string(tape(&place.path(""))).unwrap();
    let hostile = text
        .replace("churn_flag", "x\\u001b]0;t\\u0007")
        .replace("[[0,0,8]]", "[[4294967295,4294967295,4294967295]]");
    assert_ne!(hostile, text);
    place.write(
        "hostile.jsonl",
        hostile.replace("orders.md\"]", "../../../etc/passwd\"]"),
    );
    for args in [
        &["artifacts", "hostile.jsonl"][..],
        &["artifacts", "hostile.jsonl", "--diff"],
    ] {
        let shown = place.run(args);
        assert!(
            !shown.expect_success().contains(['\u{1b}', '\u{7}']),
            "{shown:?}"
        );
    }
    let shown = place.run(&["artifacts", "hostile.jsonl", "--diff", "--path", "*passwd"]);
    assert!(
        shown.expect_success().contains("does not change it"),
        "{shown:?}"
    );
}
