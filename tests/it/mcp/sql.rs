//! Statements of the agent run in child processes that are limited, end on time and leave nothing behind.

use std::{os::unix::fs::symlink, time::Instant};

use futures_util::future::join_all;
use nix::{
    sys::{
        signal::{Signal, kill},
        stat::Mode,
    },
    unistd::{Pid, mkfifo},
};

use super::*;
use crate::commands::test_dir::DEADLINE;

/// An expression without a jump: SQLite checks no deadline until it has computed all columns.
fn uninterruptible() -> String {
    let columns: Vec<String> = (0..40)
        .map(|index| format!("instr(a, b || '{index}')"))
        .collect();
    format!(
        "SELECT {} FROM (SELECT hex(zeroblob(500000)) a, substr(hex(zeroblob(500000)), 1, 400000) || '1' b)",
        columns.join(", ")
    )
}

const ENDLESS: &str =
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t";

async fn ask(client: &McpClient, sql: &str) -> String {
    client
        .call("sql_execution", json!({"connectionId": "shop", "sql": sql}))
        .await
        .0
}

async fn answers(client: &McpClient) {
    let rows = ask(client, "SELECT total FROM orders").await;
    assert!(rows.contains("| 9.5 |"), "{rows}");
}

fn names(place: &TestDir) -> Vec<String> {
    let mut names = files(&place.path(""));
    names.retain(|name| name.starts_with("shop.db"));
    names
}

/// Running child processes of `parent`.
#[cfg(target_os = "linux")]
fn children(parent: u32) -> Vec<i32> {
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        fields.next() != Some("Z") && fields.next() == Some(parent.to_string().as_str())
    };
    pids.filter(is_child).collect()
}

/// Waits until `found` finds something, while other tasks can run.
async fn found<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "never found");
        crate::support::pause_task_before_check().await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn uninterruptible_statement_leaves_no_process_behind() {
    let place = place();
    let client = McpClient::start(&place, &[]).await;
    let stopped = ask(&client, &uninterruptible()).await;
    assert_eq!(
        stopped,
        "SQL execution failed: stopped after 10 s; ask for less, with a WHERE or a smaller table"
    );
    assert_eq!(children(client.1), [0; 0]);
    answers(&client).await;
    client.0.cancel().await.unwrap();
}

#[tokio::test]
async fn materialised_join_ends_at_the_memory_limit() {
    let place = place();
    let client = McpClient::start(&place, &[]).await;
    let rows = "WITH RECURSIVE t(n, x) AS (SELECT 1, zeroblob(1000000) UNION ALL SELECT n + 1, zeroblob(1000000) FROM t)";
    for sql in [
        format!("{rows}, u AS MATERIALIZED (SELECT * FROM t) SELECT count(*) FROM u a, u b"),
        format!("{rows} SELECT * FROM t ORDER BY x DESC"),
        format!("{rows} SELECT count(DISTINCT x || n) FROM t"),
    ] {
        let stopped = ask(&client, &sql).await;
        assert!(
            stopped.contains("stopped because it needs more than 256 MiB of memory"),
            "{sql}: {stopped}"
        );
    }
    // Smaller data is sorted and joined as usual.
    let sql = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t LIMIT 20000), \
        u AS MATERIALIZED (SELECT n, hex(n) h FROM t ORDER BY h) SELECT count(*) FROM u a JOIN u b ON a.h = b.h";
    let rows = ask(&client, sql).await;
    assert!(rows.contains("| 20000 |"), "{rows}");
    assert_eq!(names(&place), ["shop.db"]);
    client.0.cancel().await.unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn worker_is_limited_and_its_death_fails_one_call() {
    let place = place();
    let client = McpClient::start(&place, &[]).await;
    let inspected = async {
        let worker = found(|| children(client.1).first().copied()).await;
        // The worker limits itself first. Once the last limit is set, all of them are.
        let limits = found(|| {
            let limits = fs::read_to_string(format!("/proc/{worker}/limits")).unwrap();
            let has_all = limits
                .lines()
                .any(|line| line.starts_with("Max address space") && line.contains("1073741824"));
            has_all.then_some(limits)
        })
        .await;
        for (name, value) in [
            ("Max file size", "0"),
            ("Max core file size", "0"),
            ("Max cpu time", "20"),
            ("Max open files", "24"),
        ] {
            let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
            assert_eq!(
                line[name.len()..].split_whitespace().next(),
                Some(value),
                "{line}"
            );
        }
        let environment = fs::read(format!("/proc/{worker}/environ")).unwrap();
        let environment = environment
            .split(|byte| *byte == 0)
            .filter(|entry| !entry.is_empty());
        let entries: Vec<_> = environment
            .filter(|entry| !entry.starts_with(b"TZ="))
            .collect();
        assert_eq!(entries, [b"INGESTDECK_AGENT="]);
        assert_eq!(
            fs::read_link(format!("/proc/{worker}/cwd")).unwrap(),
            Path::new("/")
        );
        let names = fs::read_dir(format!("/proc/{worker}/fd"))
            .unwrap()
            .map(|entry| entry.unwrap().path());
        for file in names.filter_map(|name| fs::read_link(name).ok()) {
            let file = file.to_str().unwrap().to_owned();
            let expected = ["pipe:", "/dev/null"]
                .iter()
                .any(|known| file.starts_with(known))
                || file.ends_with("shop.db");
            assert!(expected, "{file}");
        }
        kill(Pid::from_raw(worker), Signal::SIGKILL).unwrap();
    };
    let (killed, ()) = tokio::join!(ask(&client, ENDLESS), inspected);
    assert_eq!(
        killed,
        "SQL execution failed: the SQL worker process ended without an answer (signal: 9 (SIGKILL)); \
         send the statement again"
    );
    answers(&client).await;
    assert_eq!(children(client.1), [0; 0]);
    client.0.cancel().await.unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn worker_ends_when_its_parent_is_killed() {
    let place = place();
    let client = McpClient::start(&place, &[]).await;
    let sql = uninterruptible();
    let params = json!({"connectionId": "shop", "sql": sql})
        .as_object()
        .unwrap()
        .clone();
    let call = client
        .0
        .call_tool(CallToolRequestParams::new("sql_execution").with_arguments(params));
    let parent_killed = async {
        let worker = found(|| children(client.1).first().copied()).await;
        kill(
            Pid::from_raw(i32::try_from(client.1).unwrap()),
            Signal::SIGKILL,
        )
        .unwrap();
        worker
    };
    let (answer, worker) = tokio::join!(call, parent_killed);
    assert!(answer.is_err(), "{answer:?}");
    let ended = || {
        let stat = fs::read_to_string(format!("/proc/{worker}/stat"));
        stat.map_or(true, |stat| {
            stat.contains(") Z ") || !stat.contains("ingestdeck")
        })
        .then_some(())
    };
    found(ended).await;
}

#[tokio::test]
async fn concurrent_statements_are_all_answered() {
    let place = place();
    let client = McpClient::start(&place, &[]).await;
    join_all((0..64).map(|_| answers(&client))).await;
    client.0.cancel().await.unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn removed_program_still_reads_databases() {
    let place = place();
    // The copy is next to the program, because a hard link cannot cross file systems.
    let original = Path::new(crate::support::program());
    let dir = tempfile::tempdir_in(original.parent().unwrap()).unwrap();
    let program = dir.path().join("ingestdeck");
    fs::hard_link(original, &program).unwrap();
    let original = place.command(&["mcp"]);
    let mut command = std::process::Command::new(&program);
    command
        .args(original.get_args())
        .current_dir(original.get_current_dir().unwrap())
        .env_clear();
    command.envs(
        original
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let client = McpClient::start_command(command).await;
    fs::remove_file(&program).unwrap();
    answers(&client).await;
    client.0.cancel().await.unwrap();
}

#[tokio::test]
async fn log_of_a_running_writer_is_read_and_unchanged() {
    let place = place();
    let writer = rusqlite::Connection::open(place.path("shop.db")).unwrap();
    writer.pragma_update(None, "journal_mode", "WAL").unwrap();
    writer
        .execute_batch("INSERT INTO orders VALUES (2, 20.0)")
        .unwrap();
    let client = McpClient::start(&place, &[]).await;
    let count = async || ask(&client, "SELECT 'rows', count(*) FROM orders").await;
    assert!(count().await.contains("| rows | 2 |"), "{}", count().await);
    writer
        .execute_batch("INSERT INTO orders VALUES (3, 30.0)")
        .unwrap();
    assert!(count().await.contains("| rows | 3 |"), "{}", count().await);
    assert_eq!(names(&place), ["shop.db", "shop.db-shm", "shop.db-wal"]);
    // The last writer can remove both files, so no other process has them open.
    drop(writer);
    assert_eq!(names(&place), ["shop.db"]);
    assert!(count().await.contains("| rows | 3 |"), "{}", count().await);
    assert_eq!(names(&place), ["shop.db"]);
    client.0.cancel().await.unwrap();
}

#[tokio::test]
async fn file_that_became_special_is_refused() {
    let place = place();
    let client = McpClient::start(&place, &[]).await;
    let path = place.path("shop.db");
    let elsewhere = place.path("elsewhere.db");
    fs::rename(&path, &elsewhere).unwrap();
    let refused = async |why: &str| {
        let text = ask(&client, "SELECT 1").await;
        assert!(
            text.starts_with("SQL execution failed: unable to open the database file: ")
                && text.contains(why),
            "{text}"
        );
        fs::remove_file(&path).unwrap();
    };
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    refused("it is not a regular file").await;
    symlink(&elsewhere, &path).unwrap();
    refused("it is a symbolic link").await;
    fs::create_dir(&path).unwrap();
    let text = ask(&client, "SELECT 1").await;
    assert!(text.contains("it is not a regular file"), "{text}");
    client.0.cancel().await.unwrap();
}

#[test]
fn worker_command_is_not_shown() {
    let place = place();
    for args in [&["--help"][..], &["completions", "bash"], &["man"]] {
        assert!(
            !place.run(args).expect_success().contains("sql-worker"),
            "{args:?}"
        );
    }
    let ended = place.run(&["sql-worker"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended
            .stdout
            .starts_with("{\"Err\":{\"WorkerFailed\":\"cannot read its request: "),
        "{ended:?}"
    );
}
