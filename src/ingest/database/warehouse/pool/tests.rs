//! Children that are shell scripts: what ends them, and how often a catalogue is read.

use std::{collections::BTreeMap, fs, path::Path, sync::Barrier};

use super::*;
use crate::database::{
    QueryRows, SqlCell,
    warehouse::{CatalogReader, ServerInfo},
};

/// A child that never answers, and ends when its stdin closes.
const SILENT: &str = "while read line; do :; done; exit";

fn shell(script: &str) -> WorkerCommand {
    WorkerCommand::new("/bin/sh".into(), vec!["-c".into(), script.into()])
}

fn warehouse() -> Warehouse {
    Warehouse {
        id: "wh".into(),
        driver: WarehouseDriver::Postgres,
        keys: BTreeMap::new(),
        file: None,
        drivers: Vec::new(),
        query_timeout: Duration::from_secs(7),
        max_connections: 8,
    }
}

/// A command of a shell that answers with one row of a catalogue.
fn answer() -> String {
    let cells = ["", "public", "orders"].map(|text| SqlCell::text(text, 100));
    let rows = QueryRows {
        rows: vec![cells.to_vec()],
        ..QueryRows::default()
    };
    let answer = StatementAnswer {
        rows,
        ..StatementAnswer::default()
    };
    let line = serde_json::to_string(&Ok::<_, QueryError>(answer)).unwrap();
    format!("echo '{line}'")
}

fn reader<'a>(warehouse: &'a Warehouse, running: &'a RunningStatements) -> CatalogReader<'a> {
    CatalogReader {
        warehouse,
        running,
        time_limit: warehouse.query_timeout,
    }
}

fn schemas(pools: &WarehousePools, running: &RunningStatements) -> Result<Vec<String>, QueryError> {
    let names = pools.search(reader(&warehouse(), running), &[], 10)?;
    Ok(names.first.into_iter().map(|(_, name)| name).collect())
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).unwrap().lines().count()
}

/// Waits until something of `running` can be stopped.
fn wait_for(running: &RunningStatements) {
    while running.0.lock().stops.is_empty() {
        thread::yield_now();
    }
}

#[test]
fn end_of_an_attempt_ends_what_reads_and_waits() {
    let pools = WarehousePools::new(shell(SILENT));
    let [first, second] = [(); 2].map(|()| RunningStatements::default());
    thread::scope(|scope| {
        let reads = scope.spawn(|| schemas(&pools, &first));
        wait_for(&first);
        let waits = scope.spawn(|| schemas(&pools, &second));
        wait_for(&second);
        second.stop();
        assert_eq!(waits.join().unwrap(), Err(QueryError::Stopped));
        assert!(!reads.is_finished());
        first.stop();
        assert_eq!(reads.join().unwrap(), Err(QueryError::Stopped));
    });
    assert_eq!(schemas(&pools, &first), Err(QueryError::Stopped));
}

#[test]
fn end_of_an_attempt_ends_its_wait_for_a_connection() {
    let pools = WarehousePools::new(shell(SILENT));
    let pool = pools.pool(&warehouse());
    pool.children.change(|state| state.busy = 8);
    let running = RunningStatements::default();
    thread::scope(|scope| {
        let waits = scope.spawn(|| pool.acquire(8, &running).map(|_| ()));
        wait_for(&running);
        running.stop();
        assert_eq!(waits.join().unwrap(), Err(QueryError::Stopped));
    });
}

#[test]
fn eight_attempts_read_a_catalogue_once() {
    let dir = tempfile::tempdir().unwrap();
    let asked = dir.path().join("asked");
    let script = format!(
        "read w; while read s; do echo x >> {}; {}; done",
        asked.display(),
        answer()
    );
    let pools = WarehousePools::new(shell(&script));
    let start = Barrier::new(8);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                let found = schemas(&pools, &RunningStatements::default());
                assert_eq!(found, Ok(vec![".public.orders".to_owned()]));
            });
        }
    });
    assert_eq!(lines(&asked), 1);
}

#[test]
fn reading_that_is_stopped_is_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let asked = dir.path().join("asked");
    // The first child never answers.
    let script = format!(
        "if mkdir {} 2> /dev/null; then {SILENT}; fi; read w; while read s; do {}; done",
        asked.display(),
        answer()
    );
    let pools = WarehousePools::new(shell(&script));
    let [first, second] = [(); 2].map(|()| RunningStatements::default());
    thread::scope(|scope| {
        let reads = scope.spawn(|| schemas(&pools, &first));
        while !asked.exists() {
            thread::yield_now();
        }
        let waits = scope.spawn(|| schemas(&pools, &second));
        wait_for(&second);
        first.stop();
        assert_eq!(reads.join().unwrap(), Err(QueryError::Stopped));
        assert_eq!(waits.join().unwrap().unwrap().len(), 1);
    });
}

#[test]
fn queries_of_a_catalogue_have_the_time_limit_of_statements() {
    // Ends without an answer to a statement with another limit.
    let script = format!(
        "read w; while read s; do case $s in *'\"time_limit\":{{\"secs\":7,'*) {};; *) exit 3;; esac; done",
        answer()
    );
    let pools = WarehousePools::new(shell(&script));
    let (warehouse, running) = (warehouse(), RunningStatements::default());
    let info: ServerInfo = pools.server(reader(&warehouse, &running)).unwrap();
    assert_eq!(info.schemas, ["public"]);
    let found = pools.look_up(reader(&warehouse, &running), &[]).unwrap();
    assert!(found.is_empty());
}

#[test]
fn unused_children_end_by_themselves() {
    let pool = WarehousePool::default();
    let start = || shell(SILENT).start_with(&[]).unwrap();
    let (child, other) = (start(), start());
    let (stop, other_stop) = (child.stop(), other.stop());
    let now = Instant::now();
    pool.keep(child, now);
    pool.keep(other, now + IDLE_TIME);
    let running = RunningStatements::default();
    let state = pool.children.wait(&running, |state| state.idle.len() == 1);
    let mut state = state.unwrap();
    assert!(state.has_reaper);
    assert!(state.take_unused(now + IDLE_TIME / 2).is_empty());
    assert_eq!(state.take_unused(now + IDLE_TIME).len(), 1);
    drop(state);
    pool.children.change(|_| ());
    drop(pool.children.wait(&running, |state| !state.has_reaper));
    for stop in [stop, other_stop] {
        assert!(
            stop.send(LineReply::Stopped).is_err(),
            "the child is dropped"
        );
    }
}
