//! The side of the engine: finds a place for each attempt, and runs those of workers.
//!
//! It must not know which attempts the schedule starts.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::Instant,
};

use super::{
    nats::NatsServer,
    own_server::OwnServer,
    pool::{AttemptPlace, SessionLost, SlotPool, WorkerPermit},
    prior_attempts::PriorTape,
    protocol::RunTerms,
    remote_attempt::{self, RemoteEnd, RemoteTarget},
    shipment::ShipmentStore,
    ssh::SshWorker,
};
use crate::{
    attempt_limits::AttemptLimits,
    attempt_order::{AttemptOrder, preparation_failed},
    local_attempt::{AttemptSinks, AttemptTask, FinishedAttempt},
    run_meter::RunMeter,
};
use ingestdeck_agent::{attempt::LineObserver, caught_panics};
use ingestdeck_core::{
    decode::{AgentLine, LineBody, line::RateLimitEvent},
    diagnostic::{Diagnostic as _, Problem},
    run::{Recorder, attempt_reducer::AttemptReducer},
    tape::{
        UnitKey,
        note::{Severity, StopMode, Verdict, VerdictCause},
    },
    units::{
        limits::LimitStatus,
        retry::RetryMode,
        verdict::{AttemptFacts, InterruptionFacts, judge_attempt},
    },
};
use ingestdeck_ingest::{attempt, git::CommitId, project::Project, repository::Repository};
use ingestdeck_os::scoped_dir::ScopedDir;

/// How long the connections may take to end after the run.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(8);

/// What the engine gives to its workers.
#[derive(Debug)]
pub(crate) struct WorkerHost {
    pub pool: Arc<SlotPool>,
    pub store: Arc<ShipmentStore>,
    pub limits: Arc<AttemptLimits>,
    pub project: Arc<Project>,
    pub meter: Arc<RunMeter>,
    /// The account of this machine.
    pub account: String,
    /// The terms of the run; the name of the worker and the limits are set for each.
    pub terms: RunTerms,
}

/// Where the workers of a run come from.
#[derive(Debug, Default)]
pub struct WorkerSources {
    /// Workers that are started over SSH, and the server where they meet the run.
    pub ssh: Option<(OwnServer, Vec<SshWorker>)>,
    /// A server where workers wait for runs.
    pub nats: Option<NatsServer>,
}

impl WorkerSources {
    pub fn is_empty(&self) -> bool {
        self.ssh.is_none() && self.nats.is_none()
    }
}

/// The connections to the workers of a run. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct WorkerTransports {
    pub host: Arc<WorkerHost>,
    tasks: Mutex<JoinSet<()>>,
    /// Takes workers for the server of the run, if it has one.
    added: Mutex<Option<mpsc::UnboundedSender<SshWorker>>>,
}

impl WorkerTransports {
    /// Starts to look for workers. `prior` is the run that this one continues, whose attempts may still run.
    pub(crate) fn start(
        host: Arc<WorkerHost>,
        sources: WorkerSources,
        prior: Option<PriorTape>,
    ) -> Self {
        let (mut tasks, mut added) = (JoinSet::new(), None);
        let prior = prior.map(Arc::new);
        let begin = || {
            if prior.is_some() {
                host.pool.await_adoption();
            }
            (Arc::clone(&host), prior.clone())
        };
        if let Some((server, workers)) = sources.ssh {
            workers.iter().for_each(|_| host.pool.add_transport());
            let (host, prior) = begin();
            let (more, arriving) = mpsc::unbounded_channel();
            added = Some(more);
            tasks.spawn(server.serve((workers, arriving), host, prior));
        }
        if let Some(server) = sources.nats {
            host.pool.add_transport();
            let (host, prior) = begin();
            tasks.spawn(server.keep_listening(host, prior, None));
        }
        Self {
            host,
            tasks: Mutex::new(tasks),
            added: Mutex::new(added),
        }
    }

    /// Starts a worker over SSH, too.
    ///
    /// # Errors
    /// If the run has not started a NATS server, and none can be started.
    pub(crate) fn add(&self, worker: SshWorker) -> Result<(), Problem> {
        let mut added = self.added.lock();
        self.host.pool.add_transport();
        if let Some(added) = &*added
            && added.send(worker.clone()).is_ok()
        {
            return Ok(());
        }
        let server = OwnServer::prepare(&self.host.project.root)
            .inspect_err(|_| self.host.pool.remove_transport())?;
        let (more, arriving) = mpsc::unbounded_channel();
        *added = Some(more);
        let serving = server.serve((vec![worker], arriving), Arc::clone(&self.host), None);
        self.tasks.lock().spawn(serving);
        Ok(())
    }

    /// Reports the end of the run to the workers, and waits a moment for the end of the connections.
    pub(crate) async fn close(&self) {
        self.host.pool.end();
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        let ending = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(CLOSE_TIMEOUT, ending).await.is_err() {
            tracing::warn!("a connection to a worker did not end in time");
        }
    }
}

/// Why an attempt got no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClaimError {
    /// A person stopped it meanwhile.
    Stopped(StopMode),
    SessionLost(SessionLost),
}

impl WorkerHost {
    /// The side of the engine for the workers of a run. `local` are the slots and the account of this machine.
    pub(crate) fn new(
        (project, repository): (Arc<Project>, Repository),
        terms: RunTerms,
        (slots, account): (u32, Option<String>),
        limits: Arc<AttemptLimits>,
        (recorder, meter): (Arc<dyn Recorder>, Arc<RunMeter>),
    ) -> Arc<Self> {
        let readable = terms.connections.iter().filter(|of| of.database.is_some());
        let databases = readable.map(|of| of.id.clone()).collect();
        let account = account.unwrap_or_else(|| "this machine".to_owned());
        let pool = SlotPool::new(
            slots,
            Some(account.clone()),
            databases,
            recorder,
            meter.schedule(),
        );
        let store = Arc::new(ShipmentStore::new(Arc::clone(&project), repository));
        Arc::new(Self {
            pool,
            store,
            limits,
            project,
            meter,
            account,
            terms,
        })
    }

    /// Waits for a place for an attempt. Messages that arrive meanwhile are added to `early`.
    pub(crate) async fn claim(
        &self,
        task: &AttemptTask,
        orders: &mut mpsc::Receiver<AttemptOrder>,
        early: &mut Vec<AttemptOrder>,
    ) -> Result<AttemptPlace, ClaimError> {
        let session = task.amendment.resume.as_deref();
        let mut claiming = std::pin::pin!(self.pool.claim(&task.unit, task.attempt, session));
        loop {
            tokio::select! {
                place = &mut claiming => return place.map_err(ClaimError::SessionLost),
                Some(order) = orders.recv() => match order {
                    AttemptOrder::Stop(StopMode::Drain) => {}
                    AttemptOrder::Stop(how) => return Err(ClaimError::Stopped(how)),
                    message @ AttemptOrder::Message(_) => early.push(message),
                    // Only sessions take requests.
                    AttemptOrder::Request(_) => {}
                },
            }
        }
    }

    /// Runs an attempt on a worker. The second part is how it may be repeated. The caller drops the permit once the end of
    /// the attempt is recorded.
    pub(crate) async fn run_attempt(
        &self,
        permit: &mut WorkerPermit,
        task: AttemptTask,
        base: &CommitId,
        sinks: AttemptSinks,
        orders: (Vec<AttemptOrder>, mpsc::Receiver<AttemptOrder>),
        ready: oneshot::Sender<()>,
    ) -> (FinishedAttempt, RetryMode) {
        let failed = |reason: String| {
            (
                FinishedAttempt::without_agent(preparation_failed(reason)),
                RetryMode::FromStart,
            )
        };
        let unit = task.work_unit.planned.ktx_key().clone();
        let patch_path =
            attempt::patch_path(&self.terms.job.id, task.index, &task.unit, task.attempt);
        let project = match ScopedDir::open(&self.project.root) {
            Ok(project) => project,
            Err(error) => return failed(format!("cannot open the project: {error}")),
        };
        let (store, base_commit, session) =
            (Arc::clone(&self.store), base.clone(), task.session.clone());
        let shipped =
            caught_panics::spawn_blocking_caught(move || store.shipment(task, &base_commit)).await;
        let shipment = match shipped {
            Ok(Ok(shipment)) => shipment,
            Ok(Err(error)) => return failed(error.to_line()),
            Err(error) => return failed(error.to_string()),
        };
        if let Some(adopted) = &permit.adopted
            && adopted.content != shipment.content_digest()
        {
            // Dropping the permit ends the attempt on the worker.
            let reason = "what the attempt of the earlier run reads has changed since it began";
            return (
                FinishedAttempt::without_agent(worker_lost(reason.to_owned())),
                RetryMode::Elsewhere,
            );
        }
        let target = RemoteTarget {
            project,
            job: self.terms.job.id.clone(),
            patch_path,
        };
        let (worker, account, began) = (
            permit.worker.clone(),
            permit.account.clone(),
            Instant::now(),
        );
        self.pool.record_session(&session, &worker);
        let sinks = AttemptSinks {
            observer: Some(self.observer(&account, Some(&worker))),
            ..sinks
        };
        let ended =
            remote_attempt::run(permit, shipment, target, sinks, &self.limits, orders, ready).await;
        if let RemoteEnd::Invalid(reason) = &ended {
            self.pool.warn(
                Severity::Error,
                format!("{reason}; nothing more starts there"),
            );
            self.pool.ban(
                &worker,
                "it, or another worker of its machine, sent something invalid",
            );
        }
        match ended {
            RemoteEnd::Finished(finished) => {
                let FinishedAttempt {
                    mut ended,
                    patch,
                    warning,
                    ..
                } = *finished;
                if ended.verdict.cause == VerdictCause::StartFailed {
                    // The cause is on that machine, and the others can run the unit.
                    let reason = format!("worker {worker}: {}", ended.verdict.reason);
                    if self.pool.record_refusal(&worker, began) {
                        self.pool.warn(
                            Severity::Warning,
                            format!("{reason}; trying once more after a moment"),
                        );
                    } else {
                        self.pool.warn(
                            Severity::Error,
                            format!("{reason}; nothing more starts there"),
                        );
                        self.pool.drain(&worker, "its agent refused to start");
                    }
                    let remedy = ended
                        .verdict
                        .remedy
                        .map(|remedy| format!("on worker {worker}: {remedy}"));
                    ended.verdict = Verdict {
                        cause: VerdictCause::WorkerLost,
                        reason,
                        remedy,
                        ..ended.verdict
                    };
                    return (
                        FinishedAttempt::of_worker(ended, patch, warning),
                        RetryMode::Elsewhere,
                    );
                }
                self.pool.clear_refusal(&worker);
                // The patch is for a commit with the same files.
                let patch = patch.map(|patch| attempt::WrittenPatch {
                    base: base.to_string(),
                    ..patch
                });
                let repeat = self.repeat_of(&ended.verdict, (&account, Some(&worker)));
                (FinishedAttempt::of_worker(ended, patch, warning), repeat)
            }
            RemoteEnd::Stopped(how) => {
                let interruption = InterruptionFacts {
                    stopped: Some(how),
                    ..InterruptionFacts::default()
                };
                let facts = AttemptFacts {
                    interruption,
                    ..AttemptFacts::default()
                };
                let verdict = judge_attempt(&unit, &facts, self.limits.current().rule);
                (
                    FinishedAttempt::without_agent(verdict),
                    RetryMode::FromStart,
                )
            }
            RemoteEnd::NotStored(reason) => failed(reason),
            RemoteEnd::NotTaken(reason) => {
                self.pool.drain(&worker, "it does not begin attempts");
                (
                    FinishedAttempt::without_agent(worker_lost(reason)),
                    RetryMode::Elsewhere,
                )
            }
            RemoteEnd::Lost(reason) | RemoteEnd::Invalid(reason) => (
                FinishedAttempt::without_agent(worker_lost(reason)),
                RetryMode::Elsewhere,
            ),
        }
    }

    /// Observes the lines of an attempt with this account on `worker`, or on this machine.
    pub(crate) fn observer(&self, account: &str, worker: Option<&str>) -> Arc<dyn LineObserver> {
        let (meter, pool) = (Arc::clone(&self.meter), Arc::clone(&self.pool));
        Arc::new(AccountObserver {
            meter,
            pool,
            account: account.to_owned(),
            worker: worker.map(str::to_owned),
        })
    }

    /// An attempt that ended at the limit of its account is repeated elsewhere, if another account has room.
    pub(crate) fn repeat_of(&self, verdict: &Verdict, place: (&str, Option<&str>)) -> RetryMode {
        let VerdictCause::UsageLimit { resets_at } = verdict.cause else {
            return RetryMode::FromStart;
        };
        let resets_in = resets_at.map(|at| {
            let seconds = at.saturating_sub(Timestamp::now().as_second());
            Duration::from_secs(u64::try_from(seconds).unwrap_or(0).max(1))
        });
        match self.pool.record_limit(place, resets_in) {
            true => RetryMode::Elsewhere,
            false => RetryMode::FromStart,
        }
    }
}

/// The verdict of an attempt whose worker was lost.
fn worker_lost(reason: String) -> Verdict {
    Verdict {
        cause: VerdictCause::WorkerLost,
        ..preparation_failed(reason)
    }
}

/// Observes the lines of one account: its limits are not those of the run.
#[derive(Debug)]
struct AccountObserver {
    meter: Arc<RunMeter>,
    pool: Arc<SlotPool>,
    account: String,
    /// The worker that the lines come from; `None` for this machine.
    worker: Option<String>,
}

impl LineObserver for AccountObserver {
    fn observe(&self, attempt: (&UnitKey, u32), line: &AgentLine<'_>, state: &AttemptReducer) {
        let is_rejected = |limit: &RateLimitEvent<'_>| {
            LimitStatus::parse(&limit.status) == Some(LimitStatus::Rejected)
        };
        let goes_on = match &line.body {
            LineBody::RateLimit(limit) if is_rejected(limit) => {
                let now = Timestamp::now().as_second();
                let resets_in = limit
                    .resets_at
                    .map(|at| u64::try_from(at.saturating_sub(now)).unwrap_or(0).max(1));
                let place = (self.account.as_str(), self.worker.as_deref());
                self.pool
                    .record_limit(place, resets_in.map(Duration::from_secs))
            }
            // A limit that is near throttles the whole run only if it is the account of the whole run.
            LineBody::RateLimit(_) => self.pool.has_other_account(&self.account),
            _ => false,
        };
        if !goes_on {
            self.meter
                .observe_on(self.worker.as_deref(), attempt, line, state);
            if matches!(&line.body, LineBody::RateLimit(limit) if is_rejected(limit)) {
                self.pool.recheck_limit();
            }
        }
    }
}
