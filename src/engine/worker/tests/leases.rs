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
            patience: PATIENCE,
        };
        let (_stay, leave) = watch::channel(LeaveRequest::Stay);
        let serving = tokio::spawn(serve_with(
            move |_| Ok(backend),
            (join(), WorkerSlots::new(2)),
            link,
            leave,
        ));
        let lease = AttemptLease {
            unit: unit.clone(),
            attempt: 1,
            fence: 1,
        };
        let start = || {
            let part = EnginePart::Start(Box::new(shipment(&unit, 1)));
            EngineMessage::Attempt {
                lease: lease.clone(),
                part,
            }
        };
        for message in [
            EngineMessage::Welcome(Box::new(engine.host.terms.clone())),
            start(),
            start(),
        ] {
            to_worker.send(message.into()).await.unwrap();
        }
        let is_end = |message: &WorkerMessage| {
            matches!(
                message,
                WorkerMessage::Attempt {
                    part: WorkerPart::Ended(_),
                    ..
                }
            )
        };
        while !is_end(&from_worker.recv().await.unwrap()) {}
        wait(Duration::from_secs(1)).await;
        to_worker.send(start().into()).await.unwrap();
        wait(Duration::from_secs(5)).await;
        serving.abort();
    });
    assert_eq!(lock(&log.started).len(), 1);
    assert_eq!(*lock(&log.repeated), []);
}
