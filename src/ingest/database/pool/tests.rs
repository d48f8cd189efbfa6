//! Concurrency of reads, and workers that fail.

use super::*;

#[test]
fn queue_admits_as_many_readings_as_it_has_slots() {
    let queue = WorkerQueue::new(2);
    let admitted = || queue.acquire(Duration::ZERO);
    let (first, second) = (admitted().unwrap(), admitted().unwrap());
    assert_eq!(admitted().unwrap_err(), QueryError::QueueFull);
    drop(first);
    drop(admitted().unwrap());
    drop(second);
    assert_eq!(*queue.state(), WorkerQueueState::default());
    assert!(
        (CONCURRENCY_RANGE.0..=CONCURRENCY_RANGE.1).contains(&WorkerQueue::default().max_running)
    );
}

#[test]
fn full_queue_refuses_immediately() {
    let queue = WorkerQueue::new(1);
    let slot = queue.acquire(Duration::ZERO).unwrap();
    queue.state().waiting = MAX_QUEUED;
    assert_eq!(
        queue.acquire(MAX_QUEUE_WAIT).unwrap_err(),
        QueryError::QueueFull
    );
    drop(slot);
    queue.acquire(MAX_QUEUE_WAIT).unwrap();
}

#[test]
fn queue_under_load_serves_all_within_its_bounds() {
    let queue = WorkerQueue::new(2);
    thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                let _slot = queue.acquire(MAX_QUEUE_WAIT).unwrap();
                assert!((1..=2).contains(&queue.state().running));
                thread::yield_now();
            });
        }
    });
    assert_eq!(*queue.state(), WorkerQueueState::default());
}

/// The error of a worker that runs the shell script `script`.
fn outcome(script: &str) -> QueryError {
    let command = WorkerCommand::new("/bin/sh".into(), vec!["-c".into(), script.into()]);
    let limits = RowLimits {
        rows: 1,
        chars: 100,
    };
    let workers = SqlWorkers::with_command(command);
    workers
        .query(
            &Database::Sqlite("/x.db".into()),
            Duration::from_secs(20),
            "SELECT 1",
            limits,
        )
        .unwrap_err()
}

#[test]
fn worker_that_fails_is_reported_with_its_cause() {
    for (script, cause) in [
        (
            "kill -9 $$",
            "ended without an answer (signal: 9 (SIGKILL))",
        ),
        (
            "read line; kill -6 $$",
            "ended without an answer (signal: 6",
        ),
        ("exit 3", "ended without an answer (exit status: 3)"),
        ("read line; printf '{\"Ok\":'", "ended without an answer"),
        ("read line; echo nonsense", "sent an invalid answer"),
        (
            "read line; echo '{\"Ok\":{\"rows\":7}}'",
            "sent an invalid answer",
        ),
        ("printf '\\377\\n'", "sent an invalid answer"),
    ] {
        let error = outcome(script);
        assert!(
            matches!(&error, QueryError::WorkerFailed(why) if why.starts_with(cause)),
            "{script}: {error}"
        );
    }
    assert_eq!(outcome("kill -XCPU $$"), QueryError::TimedOut(20));
    assert_eq!(
        outcome("exec cat /dev/zero"),
        QueryError::AnswerTooLarge(worker::MAX_REPLY_BYTES)
    );
}

#[test]
fn worker_program_that_is_gone_names_the_remedy() {
    let program = ingestdeck_test_support::missing("ingestdeck");
    let workers = SqlWorkers::new(program.clone().into());
    let error = workers
        .search(&Database::Sqlite("/x.db".into()), STATEMENT_TIMEOUT, &[], 1)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with(&format!(
            "the SQL worker process cannot start: `{program}`: "
        )),
        "{error}"
    );
    assert!(
        error.ends_with("if ingestdeck was updated, start it again"),
        "{error}"
    );
}
