//! Scans of SQLite files and of made-up catalogues, in projects with and without git.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::json;

use super::*;
use crate::{
    database::{ColumnInfo, ForeignKey},
    facts::{FactFiles, ProjectFacts},
    git::Git,
    test_projects::{self, write},
    yaml,
};

const SETTINGS: &str = "connections:\n  shop: {driver: sqlite, path: shop.db}\n  wh: {driver: duckdb, path: wh.db}\n  \
    dbt: {driver: dbt, source_dir: .}\n  lake: {driver: trino}\n  far: {driver: postgres, url: \"env:URL\"}\n  \
    gone: {driver: sqlite, path: gone.db}\n";

const SHOP: &str = "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, joined DATE);
    CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers, amount NUMERIC(10,2), on_hold BOOL);
    CREATE VIEW big_orders AS SELECT * FROM orders WHERE amount > 100;";

fn with_git() -> (tempfile::TempDir, PathBuf) {
    let (dir, root) = test_projects::project(&[
        ("ktx.yaml", SETTINGS),
        (".gitignore", ".ktx/\n*.db\n"),
        ("wiki/global/a.md", "a\n"),
    ]);
    change_shop(&root, SHOP);
    fs::write(root.join("wh.db"), "").unwrap();
    (dir, root)
}

fn without_git() -> (tempfile::TempDir, PathBuf) {
    test_projects::ignore_home();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    write(&root, "ktx.yaml", SETTINGS);
    change_shop(&root, SHOP);
    fs::write(root.join("wh.db"), "").unwrap();
    (dir, root)
}

fn change_shop(root: &Path, sql: &str) {
    let connection = rusqlite::Connection::open(root.join("shop.db")).unwrap();
    connection.execute_batch(sql).unwrap();
}

fn at(day: i8) -> Timestamp {
    format!("2026-03-{day:02}T15:30:01.5Z").parse().unwrap()
}

fn scan_shop(root: &Path, day: i8) -> Result<ScanChanges, ScanError> {
    let project = Project::open(root).unwrap();
    let mut scan = DatabaseScan::prepare(&project, "shop")?;
    let tables = scan.read(&mut |_| {})?;
    scan.write(&tables, at(day))
}

fn write_warehouse(root: &Path, tables: &[TableInfo]) -> Result<ScanChanges, ScanError> {
    let project = Project::open(root).unwrap();
    DatabaseScan::prepare(&project, "wh")?.write(tables, at(1))
}

fn refusal(root: &Path, id: &str) -> String {
    let project = Project::open(root).unwrap();
    DatabaseScan::prepare(&project, id).unwrap_err().to_line()
}

fn table(schema: &str, name: &str, columns: &[&str]) -> TableInfo {
    let columns = columns.iter().map(|name| ColumnInfo {
        name: (*name).to_owned(),
        declared_type: "INTEGER".to_owned(),
        nullable: true,
        ..ColumnInfo::default()
    });
    TableInfo {
        schema: Some(schema.to_owned()),
        name: name.to_owned(),
        kind: "table".to_owned(),
        columns: columns.collect(),
        ..TableInfo::default()
    }
}

fn read(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap()
}

/// Files below the directories that a scan writes.
fn files(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root.join("semantic-layer"), root.join("raw-sources")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path.strip_prefix(root).unwrap().display().to_string()),
            }
        }
    }
    found.sort();
    found
}

fn git(root: &Path, args: &[&str]) -> String {
    let output = Git::open(root).unwrap().run(args).unwrap();
    String::from_utf8(output).unwrap()
}

#[test]
fn first_scan_is_one_commit_of_the_files_of_ktx() {
    let (_dir, root) = with_git();
    let result = scan_shop(&root, 1).unwrap();
    assert_eq!((result.tables, result.columns), (3, 11));
    assert_eq!(result.added, ["big_orders", "customers", "orders"]);
    assert_eq!((result.files_written, result.files_deleted), (7, 0));
    let folder = "raw-sources/shop/live-database/2026-03-01-153001-local-mm7wp21o";
    assert_eq!(result.folder, folder);
    insta::assert_snapshot!(read(&root, "semantic-layer/shop/_schema/public.yaml"));
    insta::assert_snapshot!(read(&root, &format!("{folder}/tables/Xw.Xw.b3JkZXJz.json")));
    insta::assert_snapshot!(read(&root, &format!("{folder}/connection.json")));
    insta::assert_snapshot!(read(&root, &format!("{folder}/foreign-keys.json")));
    assert_eq!(
        read(&root, &format!("{folder}/warnings.json")),
        "{\n  \"warnings\": []\n}\n"
    );
    assert_eq!(git(&root, &["status", "--porcelain"]), "");
    assert_eq!(
        git(&root, &["log", "-1", "--format=%B%an <%ae>"]),
        "scan(live-database): shop: 3 added\n\nsyncId=2026-03-01-153001-local-mm7wp21o\nktx Local <local@ktx.local>\n"
    );
    let (commit, branch) = result.commit.unwrap();
    assert_eq!(git(&root, &["rev-parse", "HEAD"]).trim_end(), commit);
    assert_eq!(branch.as_deref(), Some("main"));
    assert_eq!(
        git(&root, &["for-each-ref", "--format=%(refname)"]),
        "refs/heads/main\n"
    );
}

#[test]
fn second_scan_of_an_unchanged_database_changes_only_the_date() {
    let (_dir, root) = with_git();
    scan_shop(&root, 1).unwrap();
    let before = files(&root);
    let result = scan_shop(&root, 2).unwrap();
    assert_eq!(files(&root), before);
    assert!(result.added.is_empty() && result.changed.is_empty() && result.removed.is_empty());
    let changed = git(&root, &["show", "--format=", "-U0", "HEAD"]);
    let changed: Vec<&str> = changed
        .lines()
        .filter(|line| {
            line.starts_with(['+', '-']) && !line.starts_with("+++") && !line.starts_with("---")
        })
        .collect();
    assert_eq!(
        changed,
        [
            "-  \"extractedAt\": \"2026-03-01T15:30:01.500Z\",",
            "+  \"extractedAt\": \"2026-03-02T15:30:01.500Z\","
        ]
    );
}

#[test]
fn texts_of_people_survive_a_changed_database() {
    let (_dir, root) = with_git();
    scan_shop(&root, 1).unwrap();
    let path = "semantic-layer/shop/_schema/public.yaml";
    let text = read(&root, path)
        .replace("tables:\n", "# Ask Ada.\ntables:\n")
        .replace("  customers:\n", "  # Kept by hand.\n  customers:\n")
        .replace(
            "    table: orders\n",
            "    table: orders\n    descriptions:\n      user: All orders # even test orders\n      db: old\n      ai: Orders\n    \
             owner: ada\n    usage:\n      narrative: often\n",
        )
        .replace(
            "      - name: amount\n",
            "      - name: amount\n        descriptions: {user: In euros}\n        unit: eur\n",
        )
        .replace(
            "        relationship: many_to_one\n        source: formal\n",
            "        relationship: many_to_one\n        source: formal\n      - {to: customers, on: orders.id = \
             customers.id, relationship: one_to_one, source: manual}\n      - {to: customers, on: orders.on_hold = customers.id, \
             relationship: one_to_one}\n",
        );
    write(&root, path, &text);
    git(&root, &["commit", "--quiet", "--all", "-m", "describe"]);
    change_shop(
        &root,
        "DROP VIEW big_orders; ALTER TABLE orders DROP COLUMN on_hold; ALTER TABLE orders ADD COLUMN placed_at TIMESTAMP",
    );
    let result = scan_shop(&root, 2).unwrap();
    assert_eq!(result.changed, ["orders"]);
    assert_eq!(result.removed, ["big_orders"]);
    assert_eq!(result.files_deleted, 1);
    let warnings: Vec<String> = result
        .warnings
        .iter()
        .map(|warning| warning.to_line())
        .collect();
    assert_eq!(
        warnings,
        [
            "the join from `orders` to `customers` is removed: the database has no `orders.on_hold`; write it again for the new \
          columns, if it is still needed"
        ]
    );
    insta::assert_snapshot!(read(&root, path));
}

#[test]
fn other_changes_of_the_user_are_not_committed() {
    let (_dir, root) = with_git();
    scan_shop(&root, 1).unwrap();
    write(&root, "wiki/global/a.md", "staged\n");
    git(&root, &["add", "wiki"]);
    write(&root, "wiki/global/a.md", "and changed\n");
    write(&root, "semantic-layer/shop/orders.yaml", "name: orders\n");
    change_shop(&root, "CREATE TABLE refunds (id INTEGER)");
    scan_shop(&root, 2).unwrap();
    assert_eq!(
        git(&root, &["status", "--porcelain"]),
        "MM wiki/global/a.md\n?? semantic-layer/shop/orders.yaml\n"
    );
    assert_eq!(git(&root, &["show", "HEAD:wiki/global/a.md"]), "a\n");
}

#[test]
fn uncommitted_edit_of_a_scan_is_refused_before_reading() {
    let (_dir, root) = with_git();
    scan_shop(&root, 1).unwrap();
    let path = "semantic-layer/shop/_schema/public.yaml";
    let edited = format!("# Mine.\n{}", read(&root, path));
    write(&root, path, &edited);
    assert_eq!(
        refusal(&root, "shop"),
        format!("{path} is not committed; commit or stash it, then try again")
    );
    assert_eq!(read(&root, path), edited);
}

#[test]
fn project_without_git_gets_the_same_files() {
    let (_dir, root) = without_git();
    let result = scan_shop(&root, 1).unwrap();
    assert_eq!(result.commit, None);
    let (_other, with) = with_git();
    scan_shop(&with, 1).unwrap();
    assert_eq!(files(&root), files(&with));
    for path in files(&root) {
        assert_eq!(read(&root, &path), read(&with, &path), "{path}");
    }
}

#[test]
fn ignored_raw_files_are_written_and_not_committed() {
    let (_dir, root) = with_git();
    write(&root, ".gitignore", ".ktx/\n*.db\nraw-sources/\n");
    git(&root, &["commit", "--quiet", "--all", "-m", "ignore"]);
    for day in [1, 2] {
        let result = scan_shop(&root, day).unwrap();
        assert!(
            result.warnings[0]
                .to_line()
                .starts_with("git ignores raw-sources/shop/live-database/2026-")
        );
        assert_eq!(result.commit.is_some(), day == 1);
    }
    assert_eq!(git(&root, &["ls-files", "raw-sources"]), "");
    assert_eq!(files(&root).len(), 7);
}

#[test]
fn interrupted_scan_keeps_its_old_date() {
    let (_dir, root) = without_git();
    let result = scan_shop(&root, 1).unwrap();
    // A directory in the way stops the second scan at its first file of the semantic layer.
    fs::remove_file(root.join("semantic-layer/shop/_schema/public.yaml")).unwrap();
    fs::create_dir_all(root.join("semantic-layer/shop/_schema/public.yaml/x")).unwrap();
    change_shop(&root, "CREATE TABLE refunds (id INTEGER)");
    scan_shop(&root, 2).unwrap_err();
    let settings = read(&root, &format!("{}/connection.json", result.folder));
    assert!(settings.contains("2026-03-01"), "{settings}");
    fs::remove_dir_all(root.join("semantic-layer/shop/_schema")).unwrap();
    assert_eq!(scan_shop(&root, 3).unwrap().added, ["refunds"]);
}

#[test]
fn links_in_the_way_are_refused() {
    for link in [
        "semantic-layer/shop",
        "raw-sources/shop",
        "raw-sources/shop/live-database",
    ] {
        for kind in [with_git, without_git] {
            let (dir, root) = kind();
            let outside = dir.path().canonicalize().unwrap().join("outside");
            fs::create_dir(&outside).unwrap();
            fs::create_dir_all(root.join(link).parent().unwrap()).unwrap();
            symlink(&outside, root.join(link)).unwrap();
            let error = scan_shop(&root, 1).unwrap_err().to_string();
            let is_refused = error.contains("symbolic link") || error.contains("is not committed");
            assert!(is_refused, "{link}: {error}");
            assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{link}");
        }
    }
}

#[test]
fn hostile_names_neither_escape_nor_collide() {
    let (_dir, root) = with_git();
    let long = "x".repeat(1000);
    let names = [
        "../../ktx",
        "a\nb: c",
        "\u{1b}[31m",
        "Orders",
        "orders",
        "on",
        "1",
        "",
        "#",
        "- x",
        "a.b.c",
        "\"'`\\",
        "GRÖSSE 日本",
        "\u{2028}\u{feff}",
        &"n".repeat(500),
        &long,
    ];
    let schemas = [
        "../..",
        "Sales",
        "sales",
        "con",
        ".git",
        "\0",
        "",
        &long,
        "..",
        "_schema",
        "con/../x",
        "größe",
        "a\nb: {c: d}",
        "\"'`",
        "x.yaml",
        "a.b",
        &"x".repeat(500),
        &"ö".repeat(500),
    ];
    let mut tables: Vec<TableInfo> = names
        .iter()
        .map(|name| table("public", name, names.as_slice()))
        .collect();
    tables.extend(schemas.map(|schema| table(schema, "t", &["a"])));
    // Their encoded names differ in case only.
    tables.extend(["aaa", "aac"].map(|name| table("fold", name, &[])));
    let result = write_warehouse(&root, &tables).unwrap();
    assert_eq!(result.tables, tables.len());
    let found = files(&root);
    let folded: std::collections::BTreeSet<String> =
        found.iter().map(|path| path.to_lowercase()).collect();
    assert_eq!(folded.len(), found.len());
    assert_eq!(
        found
            .iter()
            .filter(|path| path.contains("/tables/"))
            .count(),
        tables.len()
    );
    assert_eq!(git(&root, &["status", "--porcelain"]), "");
    let project = ScopedDir::open(&root).unwrap();
    let stored = StoredManifest::read(&project, "wh").unwrap();
    let references: Vec<String> = tables
        .iter()
        .map(|table| ScannedTableName::of(table).reference())
        .collect();
    for reference in &references {
        assert!(stored.table(reference).is_some(), "{reference:?}");
    }
    let stays = |path: &String| {
        path.starts_with("semantic-layer/wh/_schema/")
            || path.starts_with("raw-sources/wh/live-database/")
    };
    assert!(found.iter().all(stays), "{found:?}");
    let again = write_warehouse(&root, &tables).unwrap();
    assert_eq!((again.files_written, again.files_deleted), (1, 0));
}

#[test]
fn keys_between_schemas_are_joins_in_both_directions() {
    let (_dir, root) = without_git();
    let mut orders = table("sales", "orders", &["id", "customer"]);
    orders.foreign_keys = vec![
        ForeignKey {
            column: "customer".into(),
            to_schema: Some("crm".into()),
            to_table: "customers".into(),
            ..ForeignKey::default()
        },
        ForeignKey {
            column: "id".into(),
            to_table: "elsewhere".into(),
            to_column: Some("id".into()),
            ..ForeignKey::default()
        },
    ];
    let mut customers = table("crm", "customers", &["id"]);
    customers.columns[0].is_key = true;
    let other = table("sales", "customers", &["id"]);
    write_warehouse(&root, &[orders, customers, other]).unwrap();
    let tree = |name: &str| {
        yaml::parse_scan(&read(
            &root,
            &format!("semantic-layer/wh/_schema/{name}.yaml"),
        ))
        .unwrap()
        .to_json()
    };
    assert_eq!(
        tree("sales")["tables"]["orders"]["joins"],
        json!([{"to": "customers", "on": "orders.customer = customers.id", "relationship": "many_to_one", "source": "formal"}])
    );
    assert_eq!(tree("sales")["tables"]["customers"].get("joins"), None);
    assert_eq!(
        tree("crm")["tables"]["customers"]["joins"][0]["relationship"],
        "one_to_many"
    );
}

/// The tables that the facts of the connection `wh` have, with the warnings about its files.
fn known_tables(root: &Path) -> (Vec<String>, Vec<String>) {
    let facts = ProjectFacts::default().of("wh", || FactFiles {
        project: root.to_owned(),
        connection: "wh".into(),
        ..FactFiles::default()
    });
    let loaded = facts.load();
    let tables = loaded.sets.iter().flat_map(|set| &set.tables);
    let mut names: Vec<String> = tables.map(TableInfo::display).collect();
    names.sort();
    let warnings = loaded.warnings.iter().map(|warning| warning.to_line());
    (names, warnings.collect())
}

#[test]
fn scan_of_odd_names_is_read_again() {
    let (_dir, root) = without_git();
    let long = "n".repeat(500);
    let odd = [
        "a.b",
        "\"quoted\"",
        "it's",
        "größe",
        "a\nb: c",
        "..",
        "con/../x",
        "_schema",
        "#",
        &long,
    ];
    let mut tables: Vec<TableInfo> = Vec::new();
    for schema in odd {
        tables.push(table(schema, "t", &odd));
        tables.push(table("public", schema, &odd));
    }
    write_warehouse(&root, &tables).unwrap();
    let mut expected: Vec<String> = tables.iter().map(TableInfo::display).collect();
    expected.sort();
    assert_eq!(known_tables(&root), (expected.clone(), Vec::new()));
    fs::remove_dir_all(root.join("raw-sources")).unwrap();
    // The files of the semantic layer have no quotes, so two dots are a part without a name, and the table is left out.
    let (found, warnings) = known_tables(&root);
    expected.retain(|name| !name.contains(".."));
    assert_eq!((found.len(), warnings), (expected.len(), Vec::new()));
}

fn warnings(result: &ScanChanges) -> Vec<String> {
    result.warnings.iter().map(|one| one.to_line()).collect()
}

#[test]
fn only_files_of_earlier_scans_are_deleted() {
    let (_dir, root) = with_git();
    let folder = "semantic-layer/wh/_schema";
    let public = table("public", "orders", &["id"]);
    let mart = table("mart", "sales", &["id"]);
    write_warehouse(&root, &[public.clone(), mart]).unwrap();
    let own = "# Mine.\ntables:\n  notes:\n    table: hand.notes\n    columns: []\n";
    let doubled = "tables:\n  orders: {table: public.orders, columns: []}\n";
    let other = "names: {}\n";
    for (name, text) in [
        ("own.yaml", own),
        ("two.yml", doubled),
        ("other.yaml", other),
    ] {
        write(&root, &format!("{folder}/{name}"), text);
    }
    git(&root, &["add", "."]);
    git(&root, &["commit", "--quiet", "-m", "mine"]);
    let result = write_warehouse(&root, &[public]).unwrap();
    assert_eq!(result.removed, ["mart.sales"]);
    assert_eq!(
        warnings(&result),
        [
            format!(
                "{folder}/mart.yaml is deleted: none of its tables is there, or all are in other files now"
            ),
            format!(
                "{folder}/own.yaml keeps 1 table, such as `hand.notes`: the database has no such table, and neither has an \
                 earlier scan; delete the entries if they are obsolete"
            ),
        ]
    );
    assert!(!root.join(folder).join("mart.yaml").exists());
    for (name, text) in [
        ("own.yaml", own),
        ("two.yml", doubled),
        ("other.yaml", other),
    ] {
        assert_eq!(read(&root, &format!("{folder}/{name}")), text);
    }
}

#[test]
fn file_that_ktx_named_otherwise_is_replaced() {
    let (_dir, root) = without_git();
    let old = "tables:\n  sales:\n    table: Größe.sales\n    columns: []\n    owner: ada\n";
    write(&root, "semantic-layer/wh/_schema/Größe.yaml", old);
    let result = write_warehouse(&root, &[table("Größe", "sales", &["id"])]).unwrap();
    assert_eq!(result.files_deleted, 1);
    let project = ScopedDir::open(&root).unwrap();
    let stored = StoredManifest::read(&project, "wh").unwrap();
    assert_eq!(stored.table("Größe.sales").unwrap()["owner"], "ada");
}

#[test]
fn tables_outside_of_the_scope_are_kept() {
    let (_dir, root) = without_git();
    let tables = [
        table("public", "orders", &["id"]),
        table("public", "users", &["id"]),
        table("mart", "sales", &["id"]),
    ];
    write_warehouse(&root, &tables).unwrap();
    let file = |name: &str| read(&root, &format!("semantic-layer/wh/_schema/{name}.yaml"));
    let before = (file("public"), file("mart"));
    let settings = SETTINGS.replace(
        "path: wh.db",
        "path: wh.db, enabled_tables: [PUBLIC.orders]",
    );
    write(&root, "ktx.yaml", &settings);
    let result = write_warehouse(&root, &tables[..1]).unwrap();
    assert_eq!((file("public"), file("mart")), before);
    assert!(result.removed.is_empty() && warnings(&result).is_empty());
    // A scan of everything replaces all of them again.
    write(&root, "ktx.yaml", SETTINGS);
    let result = write_warehouse(&root, &tables).unwrap();
    assert_eq!((file("public"), file("mart")), before);
    assert_eq!(result.added, ["mart.sales", "public.users"]);
}

#[test]
fn schemas_outside_of_the_connection_are_kept() {
    let database = Database::Warehouse(
        crate::database::Warehouse {
            id: "wh".into(),
            driver: crate::database::WarehouseDriver::Postgres,
            keys: [("schemas".to_owned(), "public, Mart".to_owned())].into(),
            file: None,
            drivers: Vec::new(),
            query_timeout: Duration::from_secs(1),
            max_connections: 1,
        }
        .into(),
    );
    let (_dir, root) = without_git();
    let project = Project::open(&root).unwrap();
    let connection = find_connection(&project, "wh").unwrap();
    let reach = ScanReach::of(connection, &database);
    let covers = |schema| reach.covers(&ScannedTableName::of(&table(schema, "t", &[])));
    assert_eq!(["public", "mart", "stage"].map(covers), [true, true, false]);
}

#[test]
fn table_that_vanishes_during_a_scan_is_a_warning() {
    let (_dir, root) = without_git();
    let mut gone = table("public", "gone", &[]);
    gone.error = Some("it was removed".into());
    let result = write_warehouse(&root, &[gone, table("public", "orders", &["id"])]).unwrap();
    assert_eq!(
        warnings(&result),
        [
            "1 table without a description, such as `public.gone`: it was removed; scan again if the database changed meanwhile"
        ]
    );
    let stored = read(&root, &format!("{}/warnings.json", result.folder));
    assert!(stored.contains("it was removed"), "{stored}");
}

/// Joins are found in steps that do not depend on the number of tables of the same name, or of joins.
#[test]
fn many_tables_of_one_name_and_a_hub_are_joined() {
    let tables: Vec<TableInfo> = (0..20_000)
        .flat_map(|at| {
            let schema = format!("s{at}");
            let mut orders = table(&schema, "orders", &["id"]);
            let key = |schema: &str, column: &str| ForeignKey {
                column: column.into(),
                to_schema: Some(schema.into()),
                to_table: if schema == "hub" { "all" } else { "users" }.into(),
                to_column: Some(format!("id{at}")),
                ..ForeignKey::default()
            };
            orders.foreign_keys = vec![key(&schema, "id"), key("hub", "id")];
            [orders, table(&schema, "users", &["id"])]
        })
        .chain([table("hub", "all", &["id"])])
        .collect();
    let index = TableIndex::new(&tables);
    let staged: Vec<StagedTable<'_>> = tables
        .iter()
        .map(|info| StagedTable {
            name: ScannedTableName::of(info),
            json: serde_json::Value::Null,
            info,
            path: String::new(),
        })
        .collect();
    let joins = manifest::formal_joins(&staged, &index);
    let hub = ScannedTableName::from_reference("hub.all");
    assert_eq!(joins[&hub].joins.len(), 20_000);
    assert_eq!(joins.len(), tables.len());
}

#[test]
fn enabled_tables_are_compared_as_databases_do() {
    let (_dir, root) = without_git();
    let entries = "enabled_tables: [ORDERS, mart.Sales, \"a.b\", gone, stage.ordrs, 'raw.\"x.y\"']";
    let settings = SETTINGS.replace("path: wh.db", &format!("path: wh.db, {entries}"));
    write(&root, "ktx.yaml", &settings);
    let project = Project::open(&root).unwrap();
    let scan = DatabaseScan::prepare(&project, "wh").unwrap();
    let mut tables: Vec<TableInfo> = [
        ("public", "orders"),
        ("stage", "Orders"),
        ("mart", "sales"),
        ("mart", "Sales"),
        ("raw", "x.y"),
        ("raw", "users"),
    ]
    .map(|(schema, name)| table(schema, name, &[]))
    .into();
    let problems = scan.reach.keep_enabled(&mut tables);
    let kept: Vec<String> = tables.iter().map(TableInfo::display).collect();
    assert_eq!(
        kept,
        ["public.orders", "stage.Orders", "mart.Sales", "raw.x.y"]
    );
    let problems: Vec<String> = problems.iter().map(|problem| problem.to_line()).collect();
    assert_eq!(
        problems,
        [
            "`a.b` of enabled_tables names no table of the database; correct the entry in ktx.yaml, or remove it",
            "`gone` of enabled_tables names no table of the database; correct the entry in ktx.yaml, or remove it",
            "`stage.ordrs` of enabled_tables names no table of the database; did you mean `public.orders`?; correct the entry in \
             ktx.yaml, or remove it",
        ]
    );
}

#[test]
fn only_enabled_tables_are_scanned() {
    let (_dir, root) = without_git();
    let settings = SETTINGS.replace(
        "path: shop.db",
        "path: shop.db, enabled_tables: [orders, a.b]",
    );
    write(&root, "ktx.yaml", &settings);
    let result = scan_shop(&root, 1).unwrap();
    assert_eq!(result.added, ["orders"]);
    assert!(
        warnings(&result)[0]
            .starts_with("`a.b` of enabled_tables names no table of the database; ")
    );
    let properties = read(&root, &format!("{}/connection.json", result.folder));
    let properties: serde_json::Value = serde_json::from_str(&properties).unwrap();
    assert_eq!(
        properties["scope"]["enabledTables"],
        json!(["orders", "a.b"])
    );
}

#[test]
fn database_without_tables_keeps_the_scan() {
    let (_dir, root) = with_git();
    write_warehouse(&root, &[table("public", "t", &["a"])]).unwrap();
    let before = files(&root);
    let error = write_warehouse(&root, &[]).unwrap_err().to_string();
    assert!(
        error.contains("shows no tables to this user, but the last scan has 1"),
        "{error}"
    );
    assert_eq!(files(&root), before);
}

#[test]
fn unreadable_edit_of_a_person_is_not_overwritten() {
    let (_dir, root) = without_git();
    let path = "semantic-layer/shop/_schema/public.yaml";
    write(&root, path, "tables:\n  a: [\n");
    let error = scan_shop(&root, 1).unwrap_err();
    assert!(
        error.to_line().starts_with(&format!("{path}: line ")),
        "{}",
        error.to_line()
    );
    assert_eq!(files(&root), [path]);
}

#[test]
fn connections_that_cannot_be_scanned_are_explained() {
    let (_dir, root) = without_git();
    let explained = ["shp", "dbt", "lake", "far", "gone"].map(|id| refusal(&root, id));
    insta::assert_snapshot!(explained.join("\n"));
}

#[test]
fn a_scan_waits_for_no_run() {
    let (_dir, root) = without_git();
    let _lock = lock::acquire(&root).unwrap();
    assert!(refusal(&root, "shop").contains("is being ingested by process"));
}
