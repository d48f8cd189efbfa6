//! Workers and engines that take more than they may: time, bytes, slots and places.

use super::{
    super::{
        connection::ConnectionEnd,
        pool::WorkerPermit,
        protocol::{Delivery, EnginePart, HEARTBEAT_INTERVAL, WorkerLoad, WorkerPart},
        remote_attempt::MAX_ENTRY_BYTES,
    },
    *,
};
use ingestdeck_core::{control::RunLimit, tape::Millis};

/// A worker that only the test moves.
struct FalseWorker {
    to_engine: mpsc::Sender<Delivery<WorkerMessage>>,
    _from_engine: mpsc::Receiver<EngineMessage>,
    serving: tokio::task::JoinHandle<(ConnectionEnd, bool)>,
}

impl FalseWorker {
    /// Joins with the name that the user gave it, or else that of its machine.
    async fn join(engine: &EngineSide, name: Option<&str>) -> Self {
        let (to_engine, incoming) = mpsc::channel(64);
        let (outgoing, from_engine) = mpsc::channel(4096);
        let connection = WorkerConnection {
            name: name.map(str::to_owned),
            login: None,
            incoming,
            outgoing,
            patience: PATIENCE,
            is_online: None,
            returns: false,
        };
        let host = Arc::clone(&engine.host);
        let serving = tokio::spawn(async move { host.serve(connection).await });
        for message in [
            WorkerMessage::Join(Box::new(join())),
            WorkerMessage::Ready {
                connections: Vec::new(),
            },
        ] {
            to_engine.send(message.into()).await.unwrap();
        }
        Self {
            to_engine,
            _from_engine: from_engine,
            serving,
        }
    }
}

fn heartbeat() -> WorkerMessage {
    WorkerMessage::Heartbeat(WorkerLoad::default())
}

async fn claim(engine: &EngineSide, unit: &str) -> WorkerPermit {
    let AttemptPlace::Worker(permit) = engine.host.pool.claim(&unit.into(), 1, None).await.unwrap()
    else {
        panic!("a slot of this machine")
    };
    *permit
}

/// Runs an attempt with a permit, without any order to it.
async fn run(engine: &EngineSide, mut permit: WorkerPermit) -> RemoteEnd {
    run_with(engine, &mut permit).await
}

/// Runs an attempt, and leaves its permit to the caller.
async fn run_with(engine: &EngineSide, permit: &mut WorkerPermit) -> RemoteEnd {
    let unit = permit.lease.unit.clone();
    let target = RemoteTarget {
        project: ScopedDir::open(&engine.host.project.root).unwrap(),
        job: engine.job.clone(),
        patch_path: patch_path(&engine.job, 0, &unit, 1),
    };
    let sinks = AttemptSinks {
        recorder: Arc::clone(&engine.log) as _,
        observer: None,
        gate: Arc::new(SlowGate),
    };
    let (_orders, received) = mpsc::channel(1);
    let (ready, _) = oneshot::channel();
    remote_attempt::run(
        permit,
        shipment(&unit, 1),
        target,
        sinks,
        &engine.host.limits,
        (Vec::new(), received),
        ready,
    )
    .await
}

fn invalid(end: RemoteEnd) -> String {
    let RemoteEnd::Invalid(reason) = end else {
        panic!("{end:?}")
    };
    reason
}

#[test]
fn heartbeats_alone_do_not_keep_an_attempt() {
    let (_place, root, repository) = project();
    let engine = EngineSide::new(&root, &repository);
    run_paused(async move {
        let worker = FalseWorker::join(&engine, None).await;
        let permit = claim(&engine, "unit").await;
        let to_engine = worker.to_engine.clone();
        let taken = WorkerMessage::Attempt {
            lease: permit.lease.clone(),
            part: WorkerPart::Taken,
        };
        to_engine.send(taken.into()).await.unwrap();
        let beating = tokio::spawn(async move {
            while to_engine.send(heartbeat().into()).await.is_ok() {
                wait(HEARTBEAT_INTERVAL).await;
            }
        });
        let began = Instant::now();
        let reason = invalid(run(&engine, permit).await);
        assert!(
            reason.contains("the limit of its silence, 600 s"),
            "{reason}"
        );
        assert!(began.elapsed() < Duration::from_secs(12 * 60));
        beating.abort();
        worker.serving.abort();
    });
}

#[test]
fn running_tool_of_a_worker_counts_for_no_limit() {
    let (_place, root, repository) = project();
    let engine = EngineSide::new(&root, &repository);
    run_paused(async move {
        let worker = FalseWorker::join(&engine, None).await;
        let permit = claim(&engine, "unit").await;
        let (lease, to_engine) = (permit.lease.clone(), worker.to_engine.clone());
        let taken = WorkerMessage::Attempt {
            lease: lease.clone(),
            part: WorkerPart::Taken,
        };
        to_engine.send(taken.into()).await.unwrap();
        let calling = tokio::spawn(async move {
            let call = r#"{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"t","name":"x","input":{}}]}}"#;
            let reply = r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":"ok"}]}}"#;
            for number in 0..200 {
                // The tool runs for eight minutes.
                let line = [(0, call), (160, reply)]
                    .into_iter()
                    .find(|(at, _)| *at == number);
                let message = line.map_or(heartbeat(), |(_, line)| {
                    let entry = format!(r#"{{"seq":0,"at":0,"unit":"unit","try":1,"out":{line}}}"#);
                    let entry = serde_json::value::RawValue::from_string(entry).unwrap();
                    let part = WorkerPart::Entries {
                        lines_before: u64::from(number > 0),
                        entries: vec![entry],
                    };
                    WorkerMessage::Attempt {
                        lease: lease.clone(),
                        part,
                    }
                });
                to_engine.send(message.into()).await.unwrap();
                wait(Duration::from_secs(3)).await;
            }
            while to_engine.send(heartbeat().into()).await.is_ok() {
                wait(HEARTBEAT_INTERVAL).await;
            }
        });
        engine
            .host
            .limits
            .change(&RunLimit::SilenceTimeout(Some(Millis(120_000))));
        let began = Instant::now();
        let reason = invalid(run(&engine, permit).await);
        assert!(
            reason.contains("the limit of its silence, 120 s"),
            "{reason}"
        );
        let minutes = began.elapsed().as_secs() / 60;
        assert!(
            (11..12).contains(&minutes),
            "8 min in the tool, 2 min of silence and 1 min of grace: {minutes}"
        );
        calling.abort();
        worker.serving.abort();
    });
}

#[test]
fn entries_of_an_attempt_are_bounded() {
    let (_place, root, repository) = project();
    let engine = EngineSide::new(&root, &repository);
    run_paused(async move {
        let worker = FalseWorker::join(&engine, None).await;
        let permit = claim(&engine, "unit").await;
        let (lease, to_engine) = (permit.lease.clone(), worker.to_engine.clone());
        let flooding = tokio::spawn(async move {
            let text = "x".repeat(1 << 20);
            let entry =
                format!("{{\"seq\":0,\"at\":0,\"unit\":\"unit\",\"try\":1,\"err\":\"{text}\"}}");
            for lines_before in 0.. {
                let entry = serde_json::value::RawValue::from_string(entry.clone()).unwrap();
                let entries = vec![entry];
                let part = WorkerPart::Entries {
                    lines_before,
                    entries,
                };
                let message = WorkerMessage::Attempt {
                    lease: lease.clone(),
                    part,
                };
                if to_engine.send(message.into()).await.is_err() {
                    return;
                }
                // Give the engine a turn.
                wait(Duration::from_millis(1)).await;
            }
        });
        let reason = invalid(run(&engine, permit).await);
        assert!(
            reason.contains("MiB of entries for one attempt"),
            "{reason}"
        );
        flooding.abort();
        worker.serving.abort();
        // The engine serves others.
        let other = FalseWorker::join(&engine, None).await;
        claim(&engine, "other").await;
        other.serving.abort();
    });
}

#[test]
fn worker_ends_an_attempt_that_produces_too_much() {
    let lease = AttemptLease {
        unit: "unit".into(),
        attempt: 1,
        fence: 1,
    };
    let (outgoing, _incoming) = mpsc::unbounded_channel();
    let uplink = Uplink::new(lease, outgoing);
    let text = "x".repeat(MAX_ENTRY_BYTES / 4);
    let record = || {
        uplink.record(&[NewEntry {
            attempt: None,
            body: EntryBody::Stderr(text.as_str().into()),
        }])
    };
    assert!((0..3).all(|_| record().is_ok()));
    let error = record().unwrap_err().to_string();
    assert!(error.contains("the attempt produced more than"), "{error}");
}

#[test]
fn worker_runs_no_more_attempts_than_it_has_slots() {
    let (_place, root, repository) = project();
    let engine = EngineSide::new(&root, &repository);
    let script = AttemptScript {
        pauses: vec![1_000],
        asks: false,
        awaits_message: false,
        stop: None,
        result_bytes: 1,
    };
    let units: Vec<UnitKey> = (0..12)
        .map(|n| UnitKey::from(format!("unit-{n}").as_str()))
        .collect();
    let scripts = Arc::new(
        units
            .iter()
            .map(|unit| (unit.clone(), script.clone()))
            .collect(),
    );
    let log = Arc::clone(&engine.log);
    let backend = Arc::new(ScriptedAttempts {
        scripts,
        log: Arc::clone(&log),
    });
    run_paused(async move {
        let (to_worker, incoming) = mpsc::channel(64);
        let (outgoing, mut from_worker) = mpsc::unbounded_channel();
        let link = EngineLink {
            incoming,
            outgoing,
            patience: PATIENCE,
        };
        let (_stay, leave) = watch::channel(LeaveRequest::Stay);
        let serving = tokio::spawn(serve_with(
            move |_| Ok(backend),
            (join(), WorkerSlots::new(2)),
            link,
            leave,
        ));
        to_worker
            .send(EngineMessage::Welcome(Box::new(engine.host.terms.clone())).into())
            .await
            .unwrap();
        for unit in &units {
            let lease = AttemptLease {
                unit: unit.clone(),
                attempt: 1,
                fence: 1,
            };
            let part = EnginePart::Start(Box::new(shipment(unit, 1)));
            to_worker
                .send(EngineMessage::Attempt { lease, part }.into())
                .await
                .unwrap();
        }
        wait(Duration::from_secs(5)).await;
        assert_eq!(lock(&log.running).len(), 2);
        let mut refused = 0;
        while let Ok(message) = from_worker.try_recv() {
            if let WorkerMessage::Attempt {
                part: WorkerPart::Ended(result),
                ..
            } = message
            {
                assert!(
                    result
                        .ended
                        .verdict
                        .reason
                        .contains("the worker offers 2 slots"),
                    "{result:?}"
                );
                refused += 1;
            }
        }
        assert_eq!(refused, 8, "two run and two wait");
        serving.abort();
    });
}

/// A name that a worker gives itself does not take its namesakes away.
#[test]
fn ban_is_for_a_connection_or_a_named_machine() {
    let (_place, root, repository) = project();
    let engine = EngineSide::new(&root, &repository);
    run_paused(async move {
        let workers = [
            FalseWorker::join(&engine, None).await,
            FalseWorker::join(&engine, None).await,
        ];
        wait(Duration::from_secs(1)).await;
        engine.host.pool.ban("w", "it sent something invalid");
        assert_eq!(claim(&engine, "unit").await.worker, "w-2");
        let again = FalseWorker::join(&engine, None).await;
        wait(Duration::from_secs(1)).await;
        assert!(
            !again.serving.is_finished(),
            "another worker of that name may join"
        );
        let named = FalseWorker::join(&engine, Some("build-1")).await;
        wait(Duration::from_secs(1)).await;
        engine.host.pool.ban("build-1", "it sent something invalid");
        let (end, has_joined) = FalseWorker::join(&engine, Some("build-1"))
            .await
            .serving
            .await
            .unwrap();
        assert!(
            matches!(end, ConnectionEnd::Refused(_)) && !has_joined,
            "{end:?}"
        );
        workers
            .into_iter()
            .chain([again, named])
            .for_each(|worker| worker.serving.abort());
    });
}

#[test]
fn number_of_workers_is_bounded() {
    let (_place, root, repository) = project();
    let pool = &EngineSide::new(&root, &repository).host.pool;
    let names: Vec<_> = (0..4).map(|_| pool.reserve_name("w", 3)).collect();
    assert_eq!(
        names,
        [
            Some("w".to_owned()),
            Some("w-2".to_owned()),
            Some("w-3".to_owned()),
            None
        ]
    );
    pool.release_name("w-2");
    assert_eq!(pool.reserve_name("w", 3).as_deref(), Some("w-2"));
}

#[test]
fn drained_worker_can_be_used_again() {
    let (_place, root, repository) = project();
    let engine = EngineSide::new(&root, &repository);
    run_paused(async move {
        let worker = FalseWorker::join(&engine, None).await;
        wait(Duration::from_secs(1)).await;
        let pool = &engine.host.pool;
        assert!(pool.drain("w", "drain-worker"));
        let claimed = timeout(Duration::from_secs(10), claim(&engine, "unit")).await;
        assert!(claimed.is_err(), "nothing starts on a drained worker");
        assert!(pool.undrain("w") && !pool.undrain("unknown"));
        assert_eq!(claim(&engine, "unit").await.worker, "w");
        worker.serving.abort();
    });
}

/// The account of a worker is its claim: its report makes others of the account rest for a while only.
#[test]
fn limit_that_a_worker_reports_is_its_own() {
    let (_place, root, repository) = project();
    let engine = EngineSide::new(&root, &repository);
    run_paused(async move {
        let workers = [
            FalseWorker::join(&engine, None).await,
            FalseWorker::join(&engine, None).await,
        ];
        wait(Duration::from_secs(1)).await;
        let pool = &engine.host.pool;
        let account = join().account;
        let week = Some(Duration::from_secs(7 * 24 * 60 * 60));
        assert!(pool.record_limit((&account, Some("w")), week));
        let beating = tokio::spawn(async move {
            loop {
                for worker in &workers {
                    worker.to_engine.send(heartbeat().into()).await.unwrap();
                }
                wait(HEARTBEAT_INTERVAL).await;
            }
        });
        let early = timeout(Duration::from_secs(30), claim(&engine, "unit")).await;
        assert!(early.is_err(), "all workers of the account rest");
        let permit = claim(&engine, "unit").await;
        assert_eq!(permit.worker, "w-2");
        assert!(!pool.record_limit((&account, Some("w-2")), week));
        beating.abort();
    });
}

/// A run that continues this one must find the whole result, if this one is killed before it has recorded the end.
#[test]
fn result_is_confirmed_with_the_end_of_its_attempt() {
    let (_place, root, repository) = project();
    let engine = EngineSide::new(&root, &repository);
    run_paused(async move {
        let worker = FalseWorker::join(&engine, None).await;
        let mut permit = claim(&engine, "unit").await;
        let result = result_of(&("unit".into(), 1), None);
        let parts = [
            WorkerPart::Taken,
            WorkerPart::ResultPiece {
                file: ResultFile::Transcript,
                data: String::new(),
            },
            WorkerPart::Ended(Box::new(result)),
        ];
        let mut confirmations = Vec::new();
        for part in parts {
            let (handled, is_handled) = oneshot::channel();
            confirmations.push(is_handled);
            let lease = permit.lease.clone();
            let delivery = Delivery {
                message: WorkerMessage::Attempt { lease, part },
                handled: Some(handled),
                slot: None,
            };
            worker.to_engine.send(delivery).await.unwrap();
        }
        let end = run_with(&engine, &mut permit).await;
        assert!(matches!(end, RemoteEnd::Finished(_)), "{end:?}");
        let mut are_confirmed = || {
            let confirmed = confirmations
                .iter_mut()
                .map(|of| matches!(of.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
            confirmed.collect::<Vec<_>>()
        };
        assert_eq!(are_confirmed(), [true, false, false]);
        drop(permit);
        assert_eq!(are_confirmed(), [true, true, true]);
        worker.serving.abort();
    });
}

/// A part of a worker, as JSON.
fn forged(part: serde_json::Value) -> WorkerPart {
    serde_json::from_value(part).unwrap()
}

/// What a worker sends is checked.
#[test]
fn forged_parts_are_refused() {
    let verdict = serde_json::json!({"outcome": "succeeded", "stop": "natural", "cause": "completed", "reason": "done"});
    let patch = serde_json::json!({"base": "0123456789012345678901234567890123456789", "path": "p", "paths": ["wiki/global/x.md"]});
    let entry = |entry: serde_json::Value| serde_json::json!({"entries": {"lines_before": 0, "entries": [entry]}});
    let foreign = serde_json::json!({"seq": 0, "at": 0, "unit": "unit", "try": 1, "note": {"kind": "run_ended", "outcome": "done"}});
    let cases = [
        (
            serde_json::json!({"ended": {"ended": {"verdict": verdict}, "patch": patch, "warning": null}}),
            "sent a patch for another base",
        ),
        (entry(foreign), "sent a note that an agent cannot cause"),
        (
            entry(serde_json::json!({"no": "entry"})),
            "sent an invalid entry",
        ),
        (
            serde_json::json!({"result_piece": {"file": "patch", "data": "%%%%"}}),
            "sent a file that is not Base64",
        ),
    ];
    for (part, reason) in cases {
        let (_place, root, repository) = project();
        let engine = EngineSide::new(&root, &repository);
        run_paused(async move {
            let worker = FalseWorker::join(&engine, None).await;
            let permit = claim(&engine, "unit").await;
            for part in [WorkerPart::Taken, forged(part)] {
                let lease = permit.lease.clone();
                let message = WorkerMessage::Attempt { lease, part };
                worker.to_engine.send(message.into()).await.unwrap();
            }
            let found = invalid(run(&engine, permit).await);
            assert!(found.contains(reason), "{found}");
        });
    }
}

/// Parts for another lease change nothing, whatever they state.
#[test]
fn parts_of_another_lease_have_no_effect() {
    let (_place, root, repository) = project();
    let engine = EngineSide::new(&root, &repository);
    run_paused(async move {
        let worker = FalseWorker::join(&engine, None).await;
        let permit = claim(&engine, "unit").await;
        let verdict = serde_json::json!({"outcome": "succeeded", "stop": "natural", "cause": "completed", "reason": "old"});
        let part = forged(
            serde_json::json!({"ended": {"ended": {"verdict": verdict}, "patch": null, "warning": null}}),
        );
        let lease = AttemptLease {
            fence: permit.lease.fence + 98,
            ..permit.lease.clone()
        };
        let message = WorkerMessage::Attempt { lease, part };
        worker.to_engine.send(message.into()).await.unwrap();
        worker
            .to_engine
            .send(WorkerMessage::Gone.into())
            .await
            .unwrap();
        let ended = run(&engine, permit).await;
        assert!(matches!(ended, RemoteEnd::Lost(_)), "{ended:?}");
    });
}
