//! Leases that have ended: what arrives late, and what revokes them.

use super::{
    super::protocol::{EnginePart, WorkerPart},
    *,
};

/// A start that arrives again after its attempt is over, and is forgotten, starts nothing.
#[test]
fn late_repetition_of_a_start_has_no_effect() {
    let (_place, root, repository) = project();
    let engine = EngineSide::new(&root, &repository);
    let unit = UnitKey::from("unit");
    let script = AttemptScript {
        pauses: vec![1],
        asks: false,
        awaits_message: false,
        stop: None,
        result_bytes: 1,
    };
    let (log, scripts) = (
        Arc::clone(&engine.log),
        Arc::new(HashMap::from([(unit.clone(), script)])),
    );
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
            resend_after: Some(RESEND_AFTER),
        };
        let (_stay, leave) = watch::channel(LeaveRequest::Stay);
        let serving = tokio::spawn(serve_with(move |_, _| Ok(backend), join(), link, leave));
        let lease = AttemptLease {
            unit: unit.clone(),
            attempt: 1,
            fence: 1,
        };
        let start = || {
            let part = EnginePart::Start(Box::new(shipment(&unit, 1)));
            EngineMessage::Attempt {
                lease: lease.clone(),
                number: 0,
                part,
            }
        };
        for message in [
            EngineMessage::Welcome(Box::new(engine.host.terms.clone())),
            start(),
            start(),
        ] {
            to_worker.send(message).await.unwrap();
        }
        let count = loop {
            let message = from_worker.recv().await.unwrap();
            if let WorkerMessage::Attempt {
                number,
                part: WorkerPart::Ended(_),
                ..
            } = message
            {
                break number + 1;
            }
        };
        to_worker
            .send(EngineMessage::Received {
                lease: lease.clone(),
                count,
            })
            .await
            .unwrap();
        wait(Duration::from_secs(1)).await;
        to_worker.send(start()).await.unwrap();
        wait(Duration::from_secs(5)).await;
        serving.abort();
    });
    assert_eq!(lock(&log.started).len(), 1);
    assert_eq!(*lock(&log.repeated), []);
}

/// What revokes a lease may be lost, so heartbeats without it follow each second.
#[test]
fn end_of_a_lease_is_announced_each_second() {
    let (_place, root, repository) = project();
    let engine = EngineSide::new(&root, &repository);
    run_paused(async move {
        let (from_worker, incoming) = mpsc::channel(64);
        let (outgoing, mut to_worker) = mpsc::channel(64);
        let connection = WorkerConnection {
            name: None,
            incoming,
            outgoing,
            resend_after: Some(RESEND_AFTER),
            reading: None,
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
            from_worker.send(message).await.unwrap();
        }
        let place = engine
            .host
            .pool
            .claim(&"unit".into(), 1, None)
            .await
            .unwrap();
        wait(Duration::from_millis(1500)).await;
        while to_worker.try_recv().is_ok() {}
        drop(place);
        wait(Duration::from_secs(8)).await;
        let mut heartbeats = 0;
        while let Ok(EngineMessage::Heartbeat(valid)) = to_worker.try_recv() {
            assert!(!valid.contains(&AttemptLease {
                unit: "unit".into(),
                attempt: 1,
                fence: 1
            }));
            heartbeats += 1;
        }
        assert!(heartbeats >= 7, "{heartbeats} in 8 s");
        serving.abort();
    });
}
