//! Hostile statements and hostile files.

use std::{fs, os::unix::fs::symlink, path::PathBuf, time::Duration};

use proptest::prelude::*;

use super::*;

const ALL: RowLimits = RowLimits {
    rows: 100,
    chars: 40_000,
};

/// A database with customers, orders, odd names and a broken view.
fn shop() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap().join("shop.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "PRAGMA synchronous = OFF;
             CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
             CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers(id), total REAL, raw BLOB);
             CREATE TABLE \"odd \"\"name.x\" (\"select\" TEXT);
             CREATE VIEW big_orders AS SELECT id, total FROM orders WHERE total > 10;
             CREATE VIEW broken AS SELECT missing FROM nowhere;
             INSERT INTO customers VALUES (1, 'Ann'), (2, 'Bob | and \n co');
             INSERT INTO orders VALUES (1, 1, 9.5, x'00ff'), (2, 2, 20, zeroblob(100)), (3, NULL, NULL, NULL);
             CREATE TRIGGER boom AFTER INSERT ON orders BEGIN DELETE FROM customers; END;",
        )
        .unwrap();
    (dir, path)
}

pub(super) fn run(path: &Path, sql: &str, limits: RowLimits) -> Result<QueryRows, QueryError> {
    let database = Database::Sqlite(path.to_path_buf());
    let answer = SqlWorkers::default().query(&database, STATEMENT_TIMEOUT, sql, limits)?;
    Ok(answer.rows)
}

fn shown(rows: &QueryRows) -> Vec<String> {
    rows.rows
        .iter()
        .map(|row| {
            row.iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(";")
        })
        .collect()
}

#[test]
fn statements_name_the_tables_and_columns_that_they_read() {
    let (_dir, path) = shop();
    let database = Database::Sqlite(path);
    let read = |sql: &str| {
        let answer = SqlWorkers::default().query(&database, STATEMENT_TIMEOUT, sql, ALL);
        let answer = answer.unwrap();
        let columns = answer.columns.iter();
        let columns = columns.map(|(table, column)| format!("{table}.{column}"));
        format!(
            "{}: {}",
            answer.tables.join(" "),
            columns.collect::<Vec<_>>().join(" ")
        )
    };
    for (sql, expected) in [
        ("SELECT 1", ": "),
        ("SELECT count(*) FROM main.Orders", "orders: "),
        ("SELECT rowid FROM \"odd \"\"name.x\"", "odd \"name.x: "),
        (
            "WITH customers AS (SELECT total AS t FROM orders) SELECT t FROM customers",
            "orders: orders.total",
        ),
        (
            "SELECT name FROM customers c WHERE EXISTS (SELECT 1 FROM orders WHERE customer_id = c.id)",
            "customers orders: customers.id customers.name orders.customer_id",
        ),
        (
            "SELECT id FROM big_orders",
            "big_orders orders: big_orders.id orders.id orders.total",
        ),
        ("SELECT name FROM pragma_table_info('orders')", ": "),
        ("SELECT name FROM sqlite_schema", ": "),
        ("SELECT key FROM json_each('[1]')", ": "),
    ] {
        assert_eq!(read(sql), expected, "{sql}");
    }
}

#[test]
fn rows_come_back_with_every_kind_of_value() {
    let (_dir, path) = shop();
    let rows = run(&path, "SELECT * FROM orders; -- all", ALL).unwrap();
    assert_eq!(rows.headers, ["id", "customer_id", "total", "raw"]);
    assert_eq!(
        shown(&rows),
        [
            "1;1;9.5;<blob of 2 bytes: 00ff>",
            "2;2;20;<blob of 100 bytes: 00000000000000000000000000000000…>",
            "3;NULL;NULL;NULL"
        ]
    );
    assert!(!rows.truncated);
    let odd = run(
        &path,
        "SELECT name, CAST(x'61ff62' AS TEXT), 9e999, x'' FROM customers WHERE id = 2",
        ALL,
    )
    .unwrap();
    assert_eq!(
        shown(&odd),
        ["Bob \\| and \\n co;a\u{fffd}b;inf;<blob of 0 bytes>"]
    );
    assert_eq!(odd.rows[0][2].to_json(), serde_json::Value::Null);
    assert_eq!(
        run(
            &path,
            "WITH t(n) AS (VALUES (1), (2)) SELECT sum(n) AS s FROM t",
            ALL
        )
        .unwrap()
        .headers,
        ["s"]
    );
    assert_eq!(
        run(&path, "SELECT * FROM orders WHERE 0", ALL)
            .unwrap()
            .rows
            .len(),
        0
    );
    assert_eq!(
        run(&path, "SELECT name FROM pragma_table_info('orders')", ALL)
            .unwrap()
            .rows
            .len(),
        4
    );
    assert_eq!(
        run(&path, "EXPLAIN QUERY PLAN SELECT * FROM orders", ALL)
            .unwrap()
            .rows
            .len(),
        1
    );
}

#[test]
fn writing_statements_are_rejected_and_change_nothing() {
    let (dir, path) = shop();
    let before = fs::read(&path).unwrap();
    let other = dir.path().join("other.db");
    let attach = format!("ATTACH DATABASE '{}' AS x", other.display());
    let vacuum = format!("VACUUM INTO '{}'", other.display());
    for sql in [
        "INSERT INTO orders VALUES (9, 1, 1, NULL)",
        "UPDATE orders SET total = 0",
        "DELETE FROM orders",
        "REPLACE INTO customers VALUES (1, 'x')",
        "INSERT INTO orders VALUES (9, 1, 1, NULL) RETURNING id",
        "WITH x AS (SELECT 1) DELETE FROM orders",
        "DROP TABLE orders",
        "CREATE TABLE t (a)",
        "CREATE TEMP TABLE t (a)",
        "CREATE VIRTUAL TABLE t USING fts5(a)",
        "CREATE TEMP TRIGGER t AFTER INSERT ON orders BEGIN SELECT 1; END",
        "ALTER TABLE orders ADD COLUMN x",
        "REINDEX",
        "ANALYZE",
        "VACUUM",
        &vacuum,
        &attach,
        "ATTACH ':memory:' AS x",
        "DETACH main",
        "BEGIN IMMEDIATE",
        "COMMIT",
        "SAVEPOINT s",
        "PRAGMA query_only = 0",
        "PRAGMA journal_mode = WAL",
        "PRAGMA writable_schema = 1",
        "PRAGMA user_version = 7",
        "PRAGMA database_list",
        "SELECT * FROM pragma_user_version",
        "SELECT load_extension('x')",
        "SELECT LOAD_EXTENSION('x')",
        "SELECT fts3_tokenizer('simple')",
        "EXPLAIN DELETE FROM orders",
        "SELECT writefile('x', 'y')",
        "RELEASE s",
        "INSERT INTO sqlite_schema VALUES (1, 2, 3, 4, 5)",
        "SELECT 1; DELETE FROM orders",
        "DELETE FROM orders; SELECT 1",
    ] {
        let error = run(&path, sql, ALL).unwrap_err();
        let refused = matches!(
            error,
            QueryError::NotReadOnly | QueryError::MultipleStatements
        );
        let has_no_such_function = ["no such function", "not authorized to use function"];
        let says = |text: &&str| error.to_string().contains(text);
        assert!(
            refused || has_no_such_function.iter().any(says),
            "{sql}: {error}"
        );
    }
    assert_eq!(
        run(&path, "SELECT 1; SELECT 2", ALL),
        Err(QueryError::MultipleStatements)
    );
    assert_eq!(
        run(&path, " ;; -- nothing\n/* at all */", ALL),
        Err(QueryError::EmptyStatement)
    );
    assert_eq!(
        run(&path, "SELEC 1", ALL).unwrap_err().to_string(),
        "near \"SELEC\": syntax error at offset 0"
    );
    assert!(
        run(&path, "SELECT nosuch FROM orders", ALL)
            .unwrap_err()
            .to_string()
            .starts_with("no such column: nosuch")
    );
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        1,
        "no other file is created"
    );
}

#[test]
fn endless_query_is_interrupted() {
    let (_dir, path) = shop();
    for sql in [
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT n FROM t WHERE n < 0",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t LIMIT 100000) SELECT count(*) FROM t a, t b, t c",
    ] {
        let found = SqlWorkers::default().query(
            &Database::Sqlite(path.clone()),
            Duration::from_millis(150),
            sql,
            ALL,
        );
        assert_eq!(found, Err(QueryError::TimedOut(1)));
    }
}

#[test]
fn large_result_is_limited_to_requested_rows() {
    let (_dir, path) = shop();
    let million = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t LIMIT 1000000) SELECT n, 'x' FROM t";
    let rows = run(&path, million, ALL).unwrap();
    assert_eq!((rows.rows.len(), rows.truncated), (100, true));
    let wide = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT hex(zeroblob(900)) FROM t";
    let rows = run(
        &path,
        wide,
        RowLimits {
            rows: 1_000,
            chars: 10_000,
        },
    )
    .unwrap();
    assert_eq!((rows.rows.len(), rows.truncated), (5, true));
    assert!(
        !run(
            &path,
            "SELECT * FROM orders LIMIT 2",
            RowLimits {
                rows: 2,
                chars: 9_999
            }
        )
        .unwrap()
        .truncated
    );
}

#[test]
fn huge_values_are_cut_or_refused() {
    let (_dir, path) = shop();
    let rows = run(&path, "SELECT hex(zeroblob(400000)), 'é'", ALL).unwrap();
    let text = rows.rows[0][0].to_string();
    assert!(
        text.ends_with("0… [800000 characters]") && text.len() < 2_100,
        "{}",
        text.len()
    );
    for sql in [
        "SELECT zeroblob(1000000000)",
        "SELECT randomblob(2000000)",
        "SELECT printf('%.*c', 2000000, 'x')",
    ] {
        assert_eq!(
            run(&path, sql, ALL),
            Err(QueryError::ValueTooLarge(1024 * 1024)),
            "{sql}"
        );
    }
    let columns: Vec<String> = (0..1_500)
        .map(|n| format!("'{}' AS c{n}", "y".repeat(50)))
        .collect();
    let rows = run(&path, &format!("SELECT {}", columns.join(", ")), ALL).unwrap();
    assert!(
        rows.rows[0]
            .iter()
            .all(|cell| cell.to_string().chars().count() < 40)
    );
}

#[test]
fn tables_are_described() {
    let (_dir, path) = shop();
    let workers = SqlWorkers::default();
    let names = workers
        .search(&Database::Sqlite(path.clone()), STATEMENT_TIMEOUT, &[], 10)
        .unwrap();
    let names: Vec<String> = names.first.into_iter().map(|(_, name)| name).collect();
    assert_eq!(
        names,
        [
            "big_orders",
            "broken",
            "customers",
            "odd \"name.x",
            "orders"
        ]
    );
    let targets = names
        .into_iter()
        .map(|name| vec![(vec![name], None)])
        .collect();
    let found = workers
        .look_up(&Database::Sqlite(path.clone()), STATEMENT_TIMEOUT, targets)
        .unwrap();
    let tables: Vec<TableInfo> = found
        .into_iter()
        .map(|found| match found {
            TableLookup::Found(table) => table,
            other => panic!("{other:?}"),
        })
        .collect();
    insta::assert_debug_snapshot!(tables);
}

#[test]
fn non_database_files_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    fs::write(
        root.join("text.db"),
        "not a database, but long enough to look like one".repeat(40),
    )
    .unwrap();
    fs::write(root.join("empty.db"), "").unwrap();
    assert_eq!(
        run(&root.join("text.db"), "SELECT 1", ALL)
            .unwrap_err()
            .to_string(),
        "file is not a database"
    );
    assert!(
        run(&root.join("none.db"), "SELECT 1", ALL)
            .unwrap_err()
            .to_string()
            .contains("unable to open")
    );
    assert_eq!(
        run(&root.join("empty.db"), "SELECT 1", ALL)
            .unwrap()
            .rows
            .len(),
        1,
        "SQLite treats it as a new database"
    );
    let (shop_dir, path) = shop();
    symlink(&path, shop_dir.path().join("link.db")).unwrap();
    let linked = shop_dir.path().canonicalize().unwrap().join("link.db");
    assert!(
        run(&linked, "SELECT 1", ALL).is_err(),
        "callers must resolve symbolic links"
    );
    let mut bytes = fs::read(&path).unwrap();
    bytes[5_000..].iter_mut().for_each(|byte| *byte = 0x5a);
    fs::write(&path, bytes).unwrap();
    assert!(run(&path, "SELECT * FROM orders, customers", ALL).is_err());
}

#[test]
fn non_utf8_names_are_rejected_without_panic() {
    let (_dir, path) = shop();
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch("CREATE TABLE zzzz (a)")
        .unwrap();
    let bytes = fs::read(&path).unwrap();
    let broken: Vec<u8> = bytes
        .iter()
        .map(|byte| if *byte == b'z' { 0xff } else { *byte })
        .collect();
    fs::write(&path, broken).unwrap();
    assert_eq!(run(&path, "SELECT 1", ALL), Err(QueryError::InvalidNames));
}

#[test]
fn a_database_in_use_can_be_read() {
    let (_dir, path) = shop();
    let writer = rusqlite::Connection::open(&path).unwrap();
    writer.pragma_update(None, "journal_mode", "WAL").unwrap();
    writer
        .execute_batch("BEGIN; INSERT INTO customers VALUES (3, 'Cy')")
        .unwrap();
    assert_eq!(
        shown(&run(&path, "SELECT count(*) FROM customers", ALL).unwrap()),
        ["2"]
    );
    writer.execute_batch("COMMIT").unwrap();
    assert_eq!(
        shown(&run(&path, "SELECT count(*) FROM customers", ALL).unwrap()),
        ["3"]
    );
}

/// A database in WAL mode whose newest row is only in the log, as after a killed writer.
fn crashed(with_index: bool) -> (tempfile::TempDir, PathBuf) {
    let (from, path) = shop();
    let writer = rusqlite::Connection::open(&path).unwrap();
    writer.pragma_update(None, "journal_mode", "WAL").unwrap();
    writer
        .execute_batch("INSERT INTO customers VALUES (3, 'Cy')")
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for name in ["shop.db", "shop.db-wal", "shop.db-shm"] {
        if with_index || !name.ends_with("-shm") {
            fs::copy(from.path().join(name), root.join(name)).unwrap();
        }
    }
    (dir, root.join("shop.db"))
}

fn contents(dir: &tempfile::TempDir) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let entries = fs::read_dir(dir.path()).unwrap().map(Result::unwrap);
    let mut contents: Vec<_> = entries
        .map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap()))
        .collect();
    contents.sort();
    contents
}

#[test]
fn wal_database_without_log_gets_no_files_beside_it() {
    let (dir, path) = shop();
    rusqlite::Connection::open(&path)
        .unwrap()
        .pragma_update(None, "journal_mode", "WAL")
        .unwrap();
    let before = contents(&dir);
    assert_eq!(before.len(), 1, "the last writer removes the log");
    assert_eq!(
        shown(&run(&path, "SELECT count(*) FROM customers", ALL).unwrap()),
        ["2"]
    );
    assert_eq!(contents(&dir), before);
}

#[test]
fn log_of_a_killed_writer_is_read_and_left_alone() {
    for with_index in [false, true] {
        let (dir, path) = crashed(with_index);
        let before = contents(&dir);
        assert_eq!(before.len(), if with_index { 3 } else { 2 });
        assert_eq!(
            shown(&run(&path, "SELECT count(*) FROM customers", ALL).unwrap()),
            ["3"]
        );
        assert!(contents(&dir) == before, "with index: {with_index}");
    }
}

#[test]
fn journal_of_a_killed_writer_names_the_remedy() {
    let (from, path) = shop();
    let writer = rusqlite::Connection::open(&path).unwrap();
    writer
        .execute_batch("PRAGMA synchronous = OFF; BEGIN; INSERT INTO customers VALUES (3, 'Cy')")
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for name in ["shop.db", "shop.db-journal"] {
        fs::copy(from.path().join(name), root.join(name)).unwrap();
    }
    let before = contents(&dir);
    let error = run(&root.join("shop.db"), "SELECT 1 FROM customers", ALL)
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("interrupted; open it once with the program that writes it"),
        "{error}"
    );
    assert!(contents(&dir) == before);
}

#[test]
fn names_with_uri_characters_are_opened() {
    let (dir, path) = shop();
    rusqlite::Connection::open(&path)
        .unwrap()
        .pragma_update(None, "journal_mode", "WAL")
        .unwrap();
    let odd = dir
        .path()
        .canonicalize()
        .unwrap()
        .join("a?mode=rw&b#c%41 é.db");
    fs::rename(&path, &odd).unwrap();
    assert_eq!(run(&odd, "SELECT 1", ALL).unwrap().rows.len(), 1);
    assert_eq!(contents(&dir).len(), 1);
}

#[test]
fn special_files_are_refused_without_hanging() {
    use nix::{sys::stat::Mode, unistd::mkfifo};

    let (dir, path) = shop();
    let root = dir.path().canonicalize().unwrap();
    mkfifo(&root.join("pipe.db"), Mode::S_IRWXU).unwrap();
    symlink(&path, root.join("link.db")).unwrap();
    for name in ["pipe.db", "link.db", "", "no/such.db"] {
        let error = run(&root.join(name), "SELECT 1", ALL).unwrap_err();
        assert!(
            matches!(error, QueryError::Unreadable(_)),
            "{name}: {error}"
        );
    }
    for suffix in ["-wal", "-shm", "-journal"] {
        let beside = root.join(format!("shop.db{suffix}"));
        mkfifo(&beside, Mode::S_IRWXU).unwrap();
        let error = run(&path, "SELECT 1", ALL).unwrap_err();
        assert!(
            matches!(&error, QueryError::Unreadable(why) if why.contains(suffix)),
            "{error}"
        );
        fs::remove_file(beside).unwrap();
    }
}

#[test]
fn numbers_cross_the_process_boundary_exactly() {
    let (_dir, path) = shop();
    let rows = run(
        &path,
        "SELECT 0.1 + 0.2, -9e999, 9223372036854775807, 5e-324",
        ALL,
    )
    .unwrap();
    let expected = [
        SqlCell::Real(0.1 + 0.2),
        SqlCell::Real(f64::NEG_INFINITY),
        SqlCell::Int(i64::MAX),
        SqlCell::Real(5e-324),
    ];
    assert_eq!(rows.rows, [expected]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn no_statement_changes_the_file(
        words in prop::collection::vec(prop::sample::select(vec![
            "SELECT", "DELETE", "FROM", "INSERT INTO", "orders", "customers", "VALUES", "(1)", "1", "*", ";", "WITH x AS (SELECT 1)",
            "PRAGMA", "user_version", "=", "DROP TABLE", "ATTACH", "':memory:'", "AS", "x", "UPDATE", "SET", "total", ",", "--", "'",
            "CREATE TABLE", "t(a)", "RETURNING", "BEGIN", "VACUUM", "INTO", "'/tmp/ingestdeck-never'", "UNION", "WHERE", "\u{0}",
        ]), 1..9),
    ) {
        let (dir, path) = shop();
        let before = fs::read(&path).unwrap();
        let _ = run(&path, &words.join(" "), ALL);
        prop_assert_eq!(fs::read(&path).unwrap(), before);
        prop_assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        prop_assert!(!Path::new("/tmp/ingestdeck-never").exists());
    }
}
