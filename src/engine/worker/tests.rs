//! Engine and worker over a network that delays and interrupts, against what the attempts are known to send. Both sides are those of the program, except that no agent runs.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::{Instant, timeout},
};

use faulty_network::{FaultyNetwork, NetworkFaults, network_faults, run_paused, wait};

use super::{
    connection::{PROGRAM_VERSION, WorkerConnection},
    host::WorkerHost,
    pool::{AttemptPlace, SlotPool},
    protocol::{
        AttemptLease, AttemptResult, AttemptShipment, EngineMessage, PROTOCOL_VERSION, ResultFile,
        RunTerms, ShippedBase, ShippedLimits, WorkerJoin, WorkerMessage,
    },
    remote_attempt::{self, RemoteEnd, RemoteTarget},
    service::{EngineLink, LeaveRequest, ServiceEnd, WorkerBackend, WorkerSlots, serve_with},
    shipment::ShipmentStore,
    uplink::{Uplink, lock},
};
use crate::{
    attempt_limits::AttemptLimits,
    attempt_order::{AttemptOrder, preparation_failed},
    local_attempt::{AttemptSinks, AttemptTask, FinishedAttempt},
    run_meter::RunMeter,
};
use ingestdeck_agent::attempt::{ApprovalDecision, ApprovalGate, ApprovalRequest};
use ingestdeck_core::{
    config::Config,
    run::{NewEntry, Recorder, RunOptions, entry_source::RecordError},
    tape::{
        EntryBody, RunId, UnitKey,
        note::{Amendment, StopMode},
    },
    units::failure_tally::FailureRule,
};
use ingestdeck_ingest::{
    attempt::{WrittenPatch, patch_path},
    git::CommitId,
    job::IngestJob,
    project::{PathPolicy, Project, ProjectSettings},
    repository::Repository,
    work_unit::WorkUnit,
};
use ingestdeck_os::scoped_dir::ScopedDir;

mod faulty_network;
mod leases;
mod misbehaviour;

const BASE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
/// How long the agent of a lost attempt may run: until the longest interruptions are over.
const MAX_OVERRUN: Duration = Duration::from_secs(300);
/// How long a side waits for the other one.
const PATIENCE: Duration = Duration::from_secs(30);

/// What an attempt does.
#[derive(Clone, Debug)]
struct AttemptScript {
    /// Seconds before each entry.
    pauses: Vec<u64>,
    asks: bool,
    awaits_message: bool,
    /// When a person stops it, in seconds, and whether its agent ends then.
    stop: Option<(u64, bool)>,
    result_bytes: usize,
}

impl AttemptScript {
    /// The entries of an attempt that is not interrupted.
    fn entries(&self, unit: &UnitKey, attempt: u32) -> Vec<String> {
        let mut entries: Vec<String> = (0..self.pauses.len())
            .map(|number| format!("{unit} {attempt} {number}"))
            .collect();
        entries.extend(self.asks.then(|| format!("decided {unit}")));
        entries.extend(self.awaits_message.then(|| format!("message for {unit}")));
        entries
    }

    fn patch(&self, unit: &UnitKey, attempt: u32) -> Vec<u8> {
        format!("{unit} {attempt} ")
            .into_bytes()
            .into_iter()
            .cycle()
            .take(self.result_bytes)
            .collect()
    }
}

fn attempt_script() -> impl Strategy<Value = AttemptScript> {
    // Some attempts are over before their start arrives a second time.
    let pauses = prop_oneof![Just(Vec::new()), prop::collection::vec(0..20_u64, 0..8)];
    let stop = prop::option::weighted(0.3, (0..60_u64, any::<bool>()));
    let parts = (pauses, any::<bool>(), any::<bool>(), stop, 1..600_000_usize);
    parts.prop_map(
        |(pauses, asks, awaits_message, stop, result_bytes)| AttemptScript {
            pauses,
            asks,
            awaits_message,
            stop,
            result_bytes,
        },
    )
}

/// Entries by attempt, and when the agents of attempts ended.
#[derive(Debug, Default)]
struct ProtocolLog {
    entries: Mutex<BTreeMap<(UnitKey, u32), Vec<String>>>,
    agents_ended: Mutex<HashMap<(UnitKey, u32), Instant>>,
    started: Mutex<HashSet<(UnitKey, u32)>>,
    repeated: Mutex<Vec<(UnitKey, u32)>>,
    running: Mutex<Vec<(UnitKey, u32)>>,
}

impl Recorder for ProtocolLog {
    fn record(&self, items: &[NewEntry<'_>]) -> Result<(), RecordError> {
        for item in items {
            if let (Some((unit, attempt)), EntryBody::Stderr(text)) = (item.attempt, &item.body) {
                lock(&self.entries)
                    .entry((unit.clone(), attempt))
                    .or_default()
                    .push(text.to_string());
            }
        }
        Ok(())
    }
}

/// Allows every call after a while.
#[derive(Debug)]
struct SlowGate;

impl ApprovalGate for SlowGate {
    fn decide(&self, _: ApprovalRequest) -> BoxFuture<'_, ApprovalDecision> {
        Box::pin(async {
            wait(Duration::from_secs(7)).await;
            ApprovalDecision::Allow
        })
    }
}

/// Attempts that send what their scripts contain.
#[derive(Debug)]
struct ScriptedAttempts {
    scripts: Arc<HashMap<UnitKey, AttemptScript>>,
    log: Arc<ProtocolLog>,
}

/// Notes the end of an agent when it is dropped.
struct AgentInstance(Arc<ProtocolLog>, (UnitKey, u32));

impl Drop for AgentInstance {
    fn drop(&mut self) {
        lock(&self.0.agents_ended).insert(self.1.clone(), Instant::now());
        lock(&self.0.running).retain(|running| *running != self.1);
    }
}

impl WorkerBackend for ScriptedAttempts {
    fn connections(&self) -> Vec<String> {
        Vec::new()
    }

    fn set_limits(&self, _: ShippedLimits) {}

    fn run(
        self: Arc<Self>,
        shipment: AttemptShipment,
        uplink: Arc<Uplink>,
        mut orders: mpsc::Receiver<AttemptOrder>,
    ) -> BoxFuture<'static, AttemptResult> {
        Box::pin(async move {
            let attempt = (shipment.task.unit.clone(), shipment.task.attempt);
            let script = &self.scripts[&attempt.0];
            if !lock(&self.log.started).insert(attempt.clone()) {
                lock(&self.log.repeated).push(attempt.clone());
            }
            lock(&self.log.running).push(attempt.clone());
            let _agent = AgentInstance(Arc::clone(&self.log), attempt.clone());
            let (to_agent, messages) = mpsc::unbounded_channel();
            let stopped = async {
                while let Some(order) = orders.recv().await {
                    match order {
                        AttemptOrder::Message(text) => to_agent.send(text).unwrap(),
                        AttemptOrder::Stop(_) if script.stop.is_some_and(|(_, ends)| ends) => {
                            return;
                        }
                        AttemptOrder::Stop(_) | AttemptOrder::Request(_) => {}
                    }
                }
                std::future::pending().await
            };
            tokio::select! {
                result = play(script, &attempt, &uplink, messages) => result,
                () = stopped => result_of(&attempt, None),
            }
        })
    }
}

/// Sends what an attempt sends until its end.
async fn play(
    script: &AttemptScript,
    attempt: &(UnitKey, u32),
    uplink: &Uplink,
    mut messages: mpsc::UnboundedReceiver<String>,
) -> AttemptResult {
    let say = |text: String| {
        uplink.record(&[NewEntry {
            attempt: None,
            body: EntryBody::Stderr(text.into()),
        }])
    };
    for (number, pause) in script.pauses.iter().enumerate() {
        wait(Duration::from_secs(*pause)).await;
        say(format!("{} {} {number}", attempt.0, attempt.1)).unwrap();
    }
    if script.asks {
        let request = ApprovalRequest {
            tool: "wiki_write".to_owned(),
            tool_use_id: None,
            input: serde_json::json!({}),
            earlier_failures: 0,
            asks_permission: false,
        };
        assert_eq!(
            ApprovalGate::decide(uplink, request).await,
            ApprovalDecision::Allow
        );
        say(format!("decided {}", attempt.0)).unwrap();
    }
    if script.awaits_message {
        say(messages.recv().await.unwrap()).unwrap();
    }
    if script.stop.is_some() {
        // It runs until it is stopped.
        std::future::pending::<()>().await;
    }
    uplink.send_file(ResultFile::Transcript, b"line\n");
    uplink.send_file(ResultFile::Patch, &script.patch(&attempt.0, attempt.1));
    let patch = WrittenPatch {
        base: BASE.to_owned(),
        path: Some("ignored".to_owned()),
        paths: Vec::new(),
    };
    result_of(attempt, Some(patch))
}

fn result_of((unit, attempt): &(UnitKey, u32), patch: Option<WrittenPatch>) -> AttemptResult {
    let FinishedAttempt { ended, warning, .. } =
        FinishedAttempt::without_agent(preparation_failed(format!("{unit} {attempt}")));
    AttemptResult {
        ended,
        patch,
        warning,
    }
}

fn join() -> WorkerJoin {
    WorkerJoin {
        protocol: PROTOCOL_VERSION,
        program: PROGRAM_VERSION.to_owned(),
        agent_release: "2.1.330".to_owned(),
        host: "w".to_owned(),
        slots: 2,
        account: "ann".to_owned(),
        clock_ms: 0,
    }
}

/// A worker that connects again whenever it loses its engine.
async fn keep_serving(
    backend: Arc<ScriptedAttempts>,
    network: Arc<FaultyNetwork>,
    connections: mpsc::UnboundedSender<WorkerConnection>,
) {
    let (_stay, leave) = watch::channel(LeaveRequest::Stay);
    loop {
        let (to_engine, from_worker) = mpsc::unbounded_channel::<WorkerMessage>();
        let (to_worker, from_engine) = mpsc::unbounded_channel::<EngineMessage>();
        let (engine_incoming, incoming_of_engine) = mpsc::channel(64);
        let (worker_incoming, incoming_of_worker) = mpsc::channel(64);
        let (outgoing, mut queued) = mpsc::channel(64);
        // The queue of the engine is bounded, and the network takes everything.
        let feeding = tokio::spawn(async move {
            while let Some(message) = queued.recv().await {
                // The network outlives the engine's end.
                let _ = to_worker.send(message);
            }
        });
        let carrying = [
            tokio::spawn(Arc::clone(&network).carry(from_worker, engine_incoming, true)),
            tokio::spawn(Arc::clone(&network).carry(from_engine, worker_incoming, false)),
        ];
        let connection = WorkerConnection {
            name: None,
            login: None,
            incoming: incoming_of_engine,
            outgoing,
            patience: network.faults.patience.0,
            is_online: None,
            returns: true,
        };
        if connections.send(connection).is_err() {
            return;
        }
        let link = EngineLink {
            incoming: incoming_of_worker,
            outgoing: to_engine,
            patience: network.faults.patience.1,
        };
        let backend = Arc::clone(&backend);
        let end = serve_with(
            move |_| io::Result::Ok(backend),
            (join(), WorkerSlots::new(2)),
            link,
            leave.clone(),
        )
        .await;
        carrying.iter().for_each(|task| task.abort());
        feeding.abort();
        match end {
            // The engine has given the connection up, and takes another one.
            ServiceEnd::Done | ServiceEnd::EngineLost(_) => wait(Duration::from_secs(2)).await,
            ServiceEnd::Refused(reason) | ServiceEnd::Failed(reason) => panic!("{reason}"),
        }
    }
}

/// The side of the engine, in a project.
struct EngineSide {
    host: Arc<WorkerHost>,
    log: Arc<ProtocolLog>,
    project: ScopedDir,
    job: String,
}

impl EngineSide {
    fn new(root: &std::path::Path, repository: &Repository) -> Self {
        let project = Arc::new(Project {
            root: root.to_path_buf(),
            settings: ProjectSettings::default(),
            path_policy: PathPolicy::default(),
            instructions: Arc::default(),
            warnings: Vec::new(),
            sql_workers: Default::default(),
            warehouse: Default::default(),
            facts: Default::default(),
            unit_bytes: u64::MAX,
        });
        let log = Arc::new(ProtocolLog::default());
        let schedule = mpsc::channel(1).0.downgrade();
        let job = IngestJob {
            id: "job".to_owned(),
            sync_id: "sync".to_owned(),
        };
        let terms = RunTerms::new(
            (RunId(uuid::Uuid::from_u128(7)), job.clone()),
            Vec::new(),
            RunOptions::from_config(&Config::default(), 40),
        );
        let recorder = Arc::clone(&log) as Arc<dyn Recorder>;
        let pool = SlotPool::new(0, None, Vec::new(), recorder, schedule.clone());
        pool.add_transport();
        let host = Arc::new(WorkerHost {
            pool,
            store: Arc::new(ShipmentStore::new(Arc::clone(&project), repository.clone())),
            limits: Arc::new(AttemptLimits::new(
                40,
                FailureRule::default(),
                Default::default(),
            )),
            project,
            meter: Arc::new(RunMeter::new(schedule)),
            account: "this machine".to_owned(),
            terms,
        });
        Self {
            host,
            log,
            project: ScopedDir::open(root).unwrap(),
            job: job.id,
        }
    }

    /// Makes attempts at a unit until one ends or is stopped. Returns the number of the one with a patch, and when the
    /// others ended or were given up.
    async fn finish_unit(
        &self,
        unit: &UnitKey,
        stop: Option<u64>,
    ) -> (Option<u32>, Vec<(AttemptLease, Instant)>) {
        let mut others = Vec::new();
        for attempt in 1.. {
            let place = self.host.pool.claim(unit, attempt, None).await.unwrap();
            let AttemptPlace::Worker(mut permit) = place else {
                panic!("a slot of this machine")
            };
            let lease = permit.lease.clone();
            assert!(
                others
                    .iter()
                    .all(|(old, _): &(AttemptLease, _)| old.fence < lease.fence)
            );
            let target = RemoteTarget {
                project: ScopedDir::open(&self.host.project.root).unwrap(),
                job: self.job.clone(),
                patch_path: patch_path(&self.job, 0, unit, attempt),
            };
            let sinks = AttemptSinks {
                recorder: Arc::clone(&self.log) as _,
                observer: None,
                gate: Arc::new(SlowGate),
            };
            let (orders, received) = mpsc::channel(4);
            orders
                .send(AttemptOrder::Message(format!("message for {unit}")))
                .await
                .unwrap();
            let stopping = tokio::spawn(async move {
                if let Some(seconds) = stop {
                    wait(Duration::from_secs(seconds)).await;
                    // The attempt may have been lost.
                    let _ = orders.send(AttemptOrder::Stop(StopMode::Kill)).await;
                }
                std::future::pending::<()>().await;
            });
            let shipment = shipment(unit, attempt);
            let (ready, _) = oneshot::channel();
            let end = remote_attempt::run(
                &mut permit,
                shipment,
                target,
                sinks,
                &self.host.limits,
                (Vec::new(), received),
                ready,
            );
            let end = end.await;
            stopping.abort();
            match end {
                RemoteEnd::Finished(finished) => {
                    assert_eq!(finished.ended.verdict.reason, format!("{unit} {attempt}"));
                    if finished.patch.is_some() {
                        return (Some(attempt), others);
                    }
                    others.push((lease, Instant::now()));
                    return (None, others);
                }
                RemoteEnd::Stopped(_) => {
                    others.push((lease, Instant::now()));
                    return (None, others);
                }
                RemoteEnd::Lost(_) | RemoteEnd::NotTaken(_) => others.push((lease, Instant::now())),
                RemoteEnd::Invalid(reason) | RemoteEnd::NotStored(reason) => panic!("{reason}"),
            }
        }
        unreachable!("attempts are not limited")
    }
}

fn shipment(unit: &UnitKey, attempt: u32) -> AttemptShipment {
    let task = AttemptTask {
        unit: unit.clone(),
        attempt,
        index: 0,
        work_unit: WorkUnit::default(),
        amendment: Amendment::default(),
        feedback: None,
        files_kept: false,
        session: format!("{unit}-{attempt}"),
        model: None,
        step_budget: 40,
        paid_usd: None,
        cut: None,
        traceparent: None,
    };
    let base = ShippedBase {
        commit: CommitId::parse(BASE).unwrap(),
        pack: "pack".to_owned(),
    };
    AttemptShipment {
        task,
        base,
        files: Vec::new(),
        source_dirs: BTreeMap::new(),
    }
}

/// Every unit ends once with all of its entries and its patch, and no agent outlives its lease by much.
async fn check_protocol(
    root: &std::path::Path,
    repository: &Repository,
    scripts: HashMap<UnitKey, AttemptScript>,
    faults: NetworkFaults,
) {
    let engine = Arc::new(EngineSide::new(root, repository));
    let scripts = Arc::new(scripts);
    let network = FaultyNetwork::new(faults);
    let (connections, mut arriving) = mpsc::unbounded_channel();
    let backend = Arc::new(ScriptedAttempts {
        scripts: Arc::clone(&scripts),
        log: Arc::clone(&engine.log),
    });
    let worker = tokio::spawn(keep_serving(backend, network, connections));
    let accepting = tokio::spawn({
        let host = Arc::clone(&engine.host);
        async move {
            while let Some(connection) = arriving.recv().await {
                let host = Arc::clone(&host);
                tokio::spawn(async move { host.serve(connection).await });
            }
        }
    });
    let mut units = JoinSet::new();
    for unit in scripts.keys().cloned() {
        let engine = Arc::clone(&engine);
        let stop = scripts[&unit].stop.map(|(after, _)| after);
        units.spawn(async move { (engine.finish_unit(&unit, stop).await, unit) });
    }
    let all = timeout(Duration::from_secs(3600), units.join_all())
        .await
        .expect("all units end");
    wait(MAX_OVERRUN).await;
    let running = lock(&engine.log.running).clone();
    assert_eq!(running, [], "no agent is left");
    assert_eq!(*lock(&engine.log.repeated), [], "no attempt starts twice");
    for ((attempt, others), unit) in all {
        let (script, entries) = (&scripts[&unit], lock(&engine.log.entries));
        let recorded = |attempt: u32| {
            entries
                .get(&(unit.clone(), attempt))
                .cloned()
                .unwrap_or_default()
        };
        assert_eq!(attempt.is_some(), script.stop.is_none());
        if let Some(attempt) = attempt {
            assert_eq!(recorded(attempt), script.entries(&unit, attempt));
            let patch = engine
                .project
                .read(&patch_path("job", 0, &unit, attempt), 1 << 20)
                .unwrap();
            assert!(
                patch == script.patch(&unit, attempt),
                "the patch of {unit} differs"
            );
        }
        for (lease, given_up) in others {
            let recorded = recorded(lease.attempt);
            assert!(
                script.entries(&unit, lease.attempt).starts_with(&recorded),
                "{recorded:?}"
            );
            // An attempt whose start was lost has no agent.
            if let Some(ended) = lock(&engine.log.agents_ended).get(&(unit.clone(), lease.attempt))
            {
                assert!(
                    *ended <= given_up + MAX_OVERRUN,
                    "the agent ran {:?} longer",
                    *ended - given_up
                );
            }
        }
    }
    engine.host.pool.end();
    accepting.abort();
    worker.abort();
}

/// A project with a private repository.
fn project() -> (tempfile::TempDir, PathBuf, Repository) {
    ingestdeck_ingest::test_projects::ignore_home();
    let place = tempfile::tempdir().unwrap();
    let root = std::fs::canonicalize(place.path()).unwrap();
    let (repository, _) = Repository::open_private(&root).unwrap();
    (place, root, repository)
}

#[test]
fn attempts_survive_any_network() {
    let (_place, root, repository) = project();
    let cases = ProptestConfig {
        cases: 128,
        ..ProptestConfig::default()
    };
    proptest!(cases, |(scripts in prop::collection::vec(attempt_script(), 1..4), faults in network_faults())| {
        let named = scripts.into_iter().enumerate().map(|(number, script)| (format!("unit-{number}").as_str().into(), script));
        run_paused(check_protocol(&root, &repository, named.collect(), faults));
    });
}
