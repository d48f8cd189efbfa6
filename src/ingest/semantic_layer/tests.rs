//! Sources as written by people, scans and agents.

use std::fs;

use proptest::prelude::*;
use serde_json::json;

use super::*;

const SCAN_FILE: &str = "tables:
  orders:
    table: shop.orders
    columns:
      - {name: id, type: number}
      - {name: total, type: number}
      - {name: placed_at, type: time}
    joins:
      - {to: customers, on: orders.customer_id = customers.id, relationship: many_to_one, source: inferred}
    descriptions: {ai: Orders of the shop}
  customers:
    columns:
      - {name: id, type: number}
";

fn doc(text: &str) -> SourceDoc {
    parse_source(text).unwrap()
}

fn project(files: &[(&str, &str)]) -> (Workspace, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("semantic-layer/shop");
    fs::create_dir_all(folder.join(SCAN_DIR)).unwrap();
    fs::write(folder.join(SCAN_DIR).join("public.yaml"), SCAN_FILE).unwrap();
    for (name, text) in files {
        fs::write(folder.join(name), text).unwrap();
    }
    (
        Workspace::open_persistent(dir.path(), &dir.path().join("work")).unwrap(),
        dir,
    )
}

#[test]
fn an_overlay_is_seen_over_its_table() {
    let overlay = "name: orders\nexclude_columns: [total]\ndisable_joins: [\"orders.customer_id  = customers.id\"]\nmeasures:\n  - {name: n, expr: count(*)}\n\
        column_overrides:\n  - {name: placed_at, role: time}\ncolumns:\n  - {name: day, type: time, expr: date(placed_at)}\n\
        descriptions: {user: What people ordered}\n";
    let (space, _dir) = project(&[("orders.yaml", overlay)]);
    let sources = SemanticLayer(&space).sources("shop").unwrap();
    let orders = &sources.by_name["orders"].doc;
    assert_eq!(texts(orders, "columns", "name"), ["id", "placed_at", "day"]);
    assert_eq!(
        orders["columns"][1],
        json!({"name": "placed_at", "type": "time", "role": "time"})
    );
    assert_eq!(
        (orders["joins"].clone(), SourceKind::from_doc(orders)),
        (json!([]), SourceKind::Table)
    );
    assert_eq!(first_description(orders), Some("What people ordered"));
    assert_eq!(sources.by_name["customers"].doc["table"], "customers");
    assert_eq!(
        validate_source("orders", &doc(overlay), &sources),
        SourceFindings::default()
    );
}

#[test]
fn large_scan_is_parsed_once_until_it_changes() {
    let (space, dir) = project(&[(
        "orders.yaml",
        "name: orders\nmeasures: [{name: n, expr: count(*)}]\n",
    )]);
    let path = dir.path().join("semantic-layer/shop/_schema/large.yaml");
    let table = |name: &str| {
        format!("  {name}: {{table: mart.{name}, columns: [{{name: id, type: number}}]}}\n")
    };
    let comment = format!("# {}\n", "x".repeat(1 << 20));
    fs::write(
        &path,
        format!("{comment}tables:\n{}{}", table("refunds"), table("orders")),
    )
    .unwrap();
    let layer = SemanticLayer(&space);
    let first = layer.sources("shop").unwrap();
    assert_eq!(first.broken_files, []);
    let again = layer.sources("shop").unwrap();
    let doc = |sources: &SemanticSources, name: &str| Arc::clone(&sources.by_name[name].doc);
    assert!(Arc::ptr_eq(
        &doc(&first, "refunds"),
        &doc(&again, "refunds")
    ));
    // Both tables of that name are known, and the source is that of the last file.
    let found = |reference: &str| Some(first.scanned_table(reference)?.1["table"].clone());
    assert_eq!(found("mart.orders"), Some(json!("mart.orders")));
    assert_eq!(found("shop.orders"), Some(json!("shop.orders")));
    assert_eq!(doc(&first, "orders")["table"], "shop.orders");
    fs::write(&path, format!("{comment}tables:\n{}", table("payments"))).unwrap();
    let changed = layer.sources("shop").unwrap();
    assert!(changed.by_name.contains_key("payments") && !changed.by_name.contains_key("refunds"));
}

#[test]
fn source_name_comes_from_the_file_content() {
    let (space, _dir) = project(&[
        ("renamed.yml", "name: EVENT$LOG\ntable: x\n"),
        ("broken.yaml", "name: half\ncolumns: [\n"),
        ("nameless.yaml", "table: t\n"),
        ("twice.yaml", "name: EVENT$LOG\ntable: y\n"),
        (".hidden.yaml", "name: no\n"),
        ("notes.md", "name: no\n"),
    ]);
    let layer = SemanticLayer(&space);
    let names: Vec<_> = layer
        .files("shop")
        .unwrap()
        .into_iter()
        .map(|file| file.name)
        .collect();
    assert_eq!(names, ["half", "nameless", "EVENT$LOG", "EVENT$LOG"]);
    assert_eq!(
        layer
            .find_source_file("shop", "half")
            .unwrap()
            .unwrap()
            .path,
        "semantic-layer/shop/broken.yaml"
    );
    let error = layer
        .find_source_file("shop", "EVENT$LOG")
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("several files declare it: semantic-layer/shop/renamed.yml, "),
        "{error}"
    );
    assert!(layer.find_source_file("shop", "renamed").unwrap().is_none());
    let broken = layer.sources("shop").unwrap().broken_files;
    assert_eq!(broken.len(), 2, "{broken:?}");
    assert!(layer.files("nowhere").unwrap().is_empty());
}

#[test]
fn files_are_named_as_ktx_names_them() {
    for (name, path) in [
        ("mart_arr_daily", "mart_arr_daily.yaml"),
        ("9_lives", "9_lives.yaml"),
        ("SIGNED_UP", "signed_up-81151caf.yaml"),
        ("con", "con-6d98a82b.yaml"),
        ("com1", "com1-8ae4de1b.yaml"),
        ("../../ktx", "ktx-9e62ed4a.yaml"),
        ("_x", "x-c9e48cbc.yaml"),
        ("日本", "src-"),
    ] {
        let found = new_source_path("c", name);
        let (stem, _) = path.split_once('-').unwrap_or((path, ""));
        assert!(
            found.starts_with(&format!("semantic-layer/c/{stem}")),
            "{name}: {found}"
        );
        assert_eq!(
            found.contains('-'),
            name != "mart_arr_daily" && name != "9_lives" || found.contains("-layer")
        );
    }
    assert_eq!(
        new_source_path("c", "SIGNED_UP").len(),
        "semantic-layer/c/signed_up-.yaml".len() + 8
    );
}

#[test]
fn invalid_sources_are_reported_with_location() {
    let (space, _dir) = project(&[]);
    let cases = [
        "name: a\n",
        "name: order\nmeasures: []\n",
        "name: a\ntable: t\nsql: select 1\ngrain: [id]\ncolumns: [{name: id, type: number}]\n",
        "name: a\ntable: t\n",
        "name: a\ntable: t\ngrain: [x.id, key]\ncolumns:\n  - {name: x.id, type: number}\n  - {name: n}\n  - {name: n, type: text}\n",
        "name: a\ntable: t\ngrain: [x.id, key]\ncolumns:\n  - {name: x.id, type: number}\n  - {name: n}\n  - {name: n, type: string}\n",
        "name: a\ntable: t\ngrain: [id]\ncolumns: [{name: id, type: number}]\njoins:\n  - {to: order, on: id = order.id, relationship: many_to_many}\n",
        "name: a\ntable: t\ngrain: [id]\ncolumns: [{name: id, type: number}]\njoins:\n  - {to: order, on: id = order.id, relationship: many_to_one}\n",
        "name: a\ntable: t\ngrain: [id]\ncolumns: [{name: id, type: number}]\njoins:\n  - {to: orders, on: id = id, relationship: many_to_one}\n",
        "name: a\ntable: t\ngrain: [id]\ncolumns: [{name: id, type: number}]\nmeasures:\n  - {name: m, expr: sum(id), segments: [paid], filtre: x}\n",
        "name: a\ntable: t\ngrain: [id]\ncolumns: [{name: id, type: number}]\nmeasures:\n  - {name: m, expr: sum(id), segments: [paid]}\n  - {name: m, expr: sum(id)}\ncolumn_overrides: []\n",
        "name: orders\ntable: t\ngrain: [id]\ncolumns: [{name: id, type: number}]\n",
        "name: orders\ncolumns:\n  - {name: total, type: number}\n  - {name: total, expr: x, type: number}\nexclude_columns: [totals]\ntags: {}\n",
        "name: a\ntable: t\ngrain: id\ndescriptions: {user: [x]}\ncolumns: {}\n",
    ];
    let mut report = String::new();
    for case in cases {
        let doc = doc(case);
        let name = doc["name"].as_str().unwrap().to_owned();
        let mut sources = SemanticLayer(&space).sources("shop").unwrap();
        sources.insert(&name, doc.clone());
        let SourceFindings {
            errors, warnings, ..
        } = validate_source(&name, &doc, &sources);
        report.push_str(&format!(
            "{}\nwarnings: {}\n\n",
            errors.join("\n"),
            warnings.join("\n")
        ));
    }
    insta::assert_snapshot!(report);
}

#[test]
fn rendered_source_reads_alike_in_yaml_1_1_and_1_2() {
    let source = json!({
        "name": "no", "table": "t", "joins": [{"to": "on", "on": "a = on.b", "relationship": "many_to_one"}],
        "descriptions": {"user": "two\nlines: yes"},
    });
    let Value::Object(source) = source else {
        unreachable!()
    };
    insta::assert_snapshot!(render_source(&order_fields(source)).unwrap());
}

#[test]
fn alias_bombs_and_huge_files_are_broken_sources() {
    let bomb: String = (1..9).fold(
        "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned(),
        |text, level| {
            let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
            format!("{text}a{level}: &a{level} [{aliases}]\n")
        },
    );
    let huge = format!("name: huge\ndescription: {}\n", "x".repeat(2 * 1024 * 1024));
    let (space, _dir) = project(&[
        ("bomb.yaml", &bomb),
        ("huge.yaml", &huge),
        ("deep.yaml", &"[".repeat(9_000)),
    ]);
    let sources = SemanticLayer(&space).sources("shop").unwrap();
    assert_eq!(sources.broken_files.len(), 3, "{:?}", sources.broken_files);
    assert_eq!(sources.by_name.len(), 2, "the scanned tables");
}

fn yaml() -> impl Strategy<Value = Value> {
    let word = "name|table|sql|grain|columns|joins|measures|segments|tables|type|expr|to|on|orders|[a-z]{1,3}|\\PC{0,4}";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        word.prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 32, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(word, inner, 0..5).prop_map(Value::from_iter),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn names_have_distinct_plain_paths(a in "\\PC{1,12}|[./\\\\]{1,6}|[a-zA-Z_]{1,70}", b in "\\PC{1,12}|[a-zA-Z_]{1,70}") {
        for name in [&a, &b] {
            let path = new_source_path("c", name);
            prop_assert!(ingestdeck_os::scoped_dir::validate_relative_path(&path).is_ok(), "{path}");
            let (connection, file) = split_source_path(&path).unwrap();
            prop_assert_eq!(connection, "c");
            prop_assert!(file.len() < 100 && file.is_ascii(), "{}", file);
        }
        // On case-insensitive file systems too.
        prop_assert_eq!(new_source_path("c", &a).to_lowercase() == new_source_path("c", &b).to_lowercase(), a == b);
    }

    #[test]
    fn odd_files_are_read_without_panic(value in yaml(), text in "[ -~\n]{0,80}") {
        let _ = parse_source(&text);
        let Value::Object(doc) = value else { return Ok(()) };
        let mut tables = ScannedTables::default();
        if let Ok(parsed) = scanned_tables::parse_file(Value::Object(doc.clone()).to_string()) {
            tables.extend(&parsed);
        }
        let orders = EffectiveSource {
            name: "orders".into(),
            doc: Arc::new(doc.clone()),
        };
        tables.extend(&[orders]);
        let mut sources = SemanticSources::from_scan(Arc::new(tables));
        sources.insert("orders", doc.clone());
        let _ = validate_source("orders", &doc, &sources);
        if let Ok(text) = render_source(&doc) {
            prop_assert_eq!(parse_source(&text), Ok(doc));
        }
    }
}
