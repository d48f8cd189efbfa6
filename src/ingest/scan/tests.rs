//! Scans of SQLite files and of made-up catalogues, in projects with and without git.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use serde_json::json;

use super::*;
use crate::{
    database::{ColumnInfo, ForeignKey},
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
    let scan = DatabaseScan::prepare(&project, "shop")?;
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
        &long,
    ];
    let schemas = ["../..", "Sales", "sales", "con", ".git", "\0", "", &long];
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
        assert!(stored.has_table(reference), "{reference:?}");
    }
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

#[test]
fn only_enabled_tables_are_scanned() {
    let (_dir, root) = without_git();
    let settings = SETTINGS.replace(
        "path: shop.db",
        "path: shop.db, enabled_tables: [orders, a.b]",
    );
    write(&root, "ktx.yaml", &settings);
    assert_eq!(scan_shop(&root, 1).unwrap().added, ["orders"]);
    let name = ScannedTableName::of(&table("sales", "orders", &[]));
    assert!(name.is_named("orders") && name.is_named("sales.orders"));
    assert!(!name.is_named("crm.orders") && !name.is_named("a.b.sales.orders"));
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
