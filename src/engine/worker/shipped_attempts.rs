//! The attempts of a worker: what the engine shipped for them, and running them.
//!
//! It must not know how messages travel, or which of them are repeated.

use std::{collections::HashMap, io, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::{FutureExt as _, future::BoxFuture};
use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use super::{
    protocol::{
        AttemptResult, AttemptShipment, ResultFile, RunTerms, ShippedLimits, WorkerMessage,
        WorkerPart,
    },
    service::{EngineLink, WorkerBackend, WorkerSetup},
    uplink::{Uplink, lock},
    workspace::WorkerDir,
};
use crate::{
    attempt_limits::{AttemptLimits, LimitValues},
    attempt_order::{AttemptOrder, preparation_failed},
    local_attempt::{AttemptSinks, FinishedAttempt, LocalAttempts},
};
use ingestdeck_core::{diagnostic::Diagnostic as _, run::RunOptions};
use ingestdeck_ingest::{project::Project, transcript};
use ingestdeck_os::scoped_dir::ScopedDir;

/// How long to wait for files before they are asked for again.
const FILE_PATIENCE: Duration = Duration::from_secs(15);
/// Largest patch of an attempt.
const MAX_PATCH_BYTES: u64 = 256 << 20;
/// Largest file that an engine ships, and most bytes of all files that are arriving.
pub(super) const MAX_SHIPPED_BYTES: usize = 512 << 20;
const MAX_ARRIVING_BYTES: usize = 1 << 30;
/// Largest transcript of an attempt.
const MAX_TRANSCRIPT_BYTES: u64 = 64 << 20;

/// Runs attempts with the files that an engine ships.
pub(super) struct ShippedAttempts {
    setup: WorkerSetup,
    terms: RunTerms,
    dir: WorkerDir,
    limits: Arc<AttemptLimits>,
    outgoing: mpsc::UnboundedSender<WorkerMessage>,
    /// Set with the first attempt, since the project needs the shipped instructions.
    attempts: Mutex<Option<Arc<LocalAttempts>>>,
    /// Files whose pieces are arriving.
    arriving: Mutex<HashMap<String, Vec<u8>>>,
    /// Counts files that have arrived.
    arrivals: watch::Sender<u64>,
    /// When files were asked for, or the last piece of them arrived.
    requested: Mutex<HashMap<String, Instant>>,
    /// Why files with these digests cannot arrive.
    missing: Mutex<HashMap<String, String>>,
}

impl WorkerBackend for ShippedAttempts {
    fn connections(&self) -> Vec<String> {
        self.setup
            .machine
            .reachable(&self.dir.project_dir(), &self.terms.connections)
    }

    fn receive_piece(&self, digest: String, offset: u64, data: &str, is_last: bool) {
        // Only what an attempt asked for is kept.
        if !lock(&self.requested).contains_key(&digest) {
            return;
        }
        let mut arriving = lock(&self.arriving);
        let others: usize = arriving
            .iter()
            .filter(|(of, _)| **of != digest)
            .map(|(_, content)| content.len())
            .sum();
        let content = arriving.entry(digest.clone()).or_default();
        if offset == 0 {
            content.clear();
        }
        // Pieces that are lost or repeated make the digest wrong, or the file is asked for again.
        let Ok(data) = BASE64_STANDARD.decode(data) else {
            return;
        };
        if content.len() as u64 != offset {
            return;
        }
        let size = content.len() + data.len();
        if size > MAX_SHIPPED_BYTES || others + size > MAX_ARRIVING_BYTES {
            arriving.remove(&digest);
            drop(arriving);
            return self.mark_missing(
                digest,
                format!("it exceeds {} MiB", MAX_SHIPPED_BYTES >> 20),
            );
        }
        content.extend(data);
        lock(&self.requested).insert(digest.clone(), Instant::now());
        if is_last {
            let content = arriving.remove(&digest).unwrap_or_default();
            lock(&self.requested).remove(&digest);
            if !self.dir.receive(&digest, content) {
                lock(&self.missing).insert(digest, "its content changed on the way".to_owned());
            }
            self.mark_arrival();
        }
    }

    fn mark_missing(&self, digest: String, reason: String) {
        if lock(&self.requested).remove(&digest).is_some() {
            lock(&self.missing).insert(digest, reason);
        }
        self.mark_arrival();
    }

    fn set_limits(
        &self,
        ShippedLimits {
            step_budget,
            rule,
            timeouts,
        }: ShippedLimits,
    ) {
        self.limits
            .set(LimitValues { step_budget, rule }, timeouts.into());
    }

    fn run(
        self: Arc<Self>,
        shipment: AttemptShipment,
        uplink: Arc<Uplink>,
        orders: mpsc::Receiver<AttemptOrder>,
    ) -> BoxFuture<'static, AttemptResult> {
        Box::pin(async move {
            let running = AssertUnwindSafe(self.try_run_attempt(shipment, &uplink, orders));
            match running.catch_unwind().await {
                Ok(Ok(result)) => result,
                Ok(Err(reason)) => self.failed(&reason),
                Err(_) => {
                    self.failed("internal error of ingestdeck; its log has more with --debug")
                }
            }
        })
    }
}

impl ShippedAttempts {
    pub(super) fn new(setup: WorkerSetup, terms: RunTerms, link: &EngineLink) -> io::Result<Self> {
        let ShippedLimits {
            step_budget,
            rule,
            timeouts,
        } = terms.limits;
        Ok(Self {
            dir: WorkerDir::new(&terms.job.id)?,
            limits: Arc::new(AttemptLimits::new(step_budget, rule, timeouts.into())),
            outgoing: link.outgoing.clone(),
            attempts: Mutex::default(),
            arriving: Mutex::default(),
            arrivals: watch::channel(0).0,
            requested: Mutex::default(),
            missing: Mutex::default(),
            setup,
            terms,
        })
    }

    /// The result of an attempt that could not run.
    fn failed(&self, reason: &str) -> AttemptResult {
        let why = format!("worker {}: {reason}", self.terms.worker);
        let FinishedAttempt {
            ended,
            patch,
            warning,
            ..
        } = FinishedAttempt::without_agent(preparation_failed(why));
        AttemptResult {
            ended,
            patch,
            warning,
        }
    }

    async fn try_run_attempt(
        self: &Arc<Self>,
        shipment: AttemptShipment,
        uplink: &Arc<Uplink>,
        orders: mpsc::Receiver<AttemptOrder>,
    ) -> Result<AttemptResult, String> {
        let mut shipment = shipment;
        let worktrees = loop {
            shipment = self.await_files(shipment).await?;
            let placing = Arc::clone(self);
            let (placed, worktrees) = tokio::task::spawn_blocking(move || {
                let worktrees = placing.dir.place(&shipment);
                (shipment, worktrees)
            })
            .await
            .map_err(|error| error.to_string())?;
            shipment = placed;
            // Another attempt may have used what had arrived.
            if let Some(worktrees) = worktrees.map_err(|problem| problem.to_line())? {
                break worktrees;
            }
        };
        let AttemptShipment {
            mut task,
            source_dirs,
            ..
        } = shipment;
        self.dir.localize(&mut task, &source_dirs);
        let attempts = self.local_attempts()?;
        let root = self.dir.project_dir();
        let path = transcript::transcript_path(&self.terms.job.id, &task.unit);
        let before = transcript_bytes(&root, &path).len();
        let (ready, is_ready) = oneshot::channel();
        let reporting = tokio::spawn({
            let uplink = Arc::clone(uplink);
            async move {
                if is_ready.await.is_ok() {
                    uplink.send(WorkerPart::Ready);
                }
            }
        });
        let sinks = AttemptSinks {
            recorder: Arc::clone(uplink) as _,
            observer: None,
            gate: Arc::clone(uplink) as _,
        };
        let FinishedAttempt {
            ended,
            patch,
            warning,
            ..
        } = attempts
            .run(&task, &worktrees, sinks, (Vec::new(), orders), ready)
            .await;
        reporting.abort();
        let transcript = transcript_bytes(&root, &path);
        uplink.send_file(
            ResultFile::Transcript,
            transcript.get(before..).unwrap_or_default(),
        );
        if let Some(path) = patch.as_ref().and_then(|patch| patch.path.as_ref()) {
            let read = ScopedDir::open(&root).and_then(|root| root.read(path, MAX_PATCH_BYTES));
            uplink.send_file(
                ResultFile::Patch,
                &read.map_err(|error| format!("cannot read its patch: {error}"))?,
            );
        }
        Ok(AttemptResult {
            ended,
            patch,
            warning,
        })
    }

    /// Waits until all files of an attempt have arrived.
    async fn await_files(
        self: &Arc<Self>,
        mut shipment: AttemptShipment,
    ) -> Result<AttemptShipment, String> {
        let mut arrivals = self.arrivals.subscribe();
        loop {
            arrivals.borrow_and_update();
            let shared = Arc::clone(self);
            let looked = tokio::task::spawn_blocking(move || {
                let digests = shared.dir.missing(&shipment);
                (shipment, digests)
            });
            let digests;
            (shipment, digests) = looked.await.map_err(|error| error.to_string())?;
            if digests.is_empty() {
                return Ok(shipment);
            }
            if let Some(reason) = digests
                .iter()
                .find_map(|digest| lock(&self.missing).remove(digest))
            {
                return Err(format!("a file of the unit is not available: {reason}"));
            }
            let due = self.due_requests(digests);
            if !due.is_empty() {
                self.send(WorkerMessage::WantFiles { digests: due });
            }
            // Either something arrives, or it is time to look for what was lost.
            let _ = tokio::time::timeout(FILE_PATIENCE, arrivals.changed()).await;
        }
    }

    /// Those of `digests` that were not requested, or of which nothing has arrived for a while.
    fn due_requests(&self, digests: Vec<String>) -> Vec<String> {
        let mut requested = lock(&self.requested);
        let now = Instant::now();
        let is_due = |digest: &String| {
            requested
                .get(digest)
                .is_none_or(|at| now.duration_since(*at) >= FILE_PATIENCE)
        };
        let due: Vec<String> = digests.into_iter().filter(is_due).collect();
        requested.extend(due.iter().map(|digest| (digest.clone(), now)));
        due
    }

    fn local_attempts(&self) -> Result<Arc<LocalAttempts>, String> {
        let mut attempts = lock(&self.attempts);
        if let Some(attempts) = &*attempts {
            return Ok(Arc::clone(attempts));
        }
        let project: Project = self
            .dir
            .project(&self.terms.connections, &self.setup.machine)
            .map_err(|problem| problem.to_line())?;
        let new = LocalAttempts::new(
            Arc::new(project),
            self.terms.job.clone(),
            Arc::clone(&self.setup.agent),
            // The machine decides which variables its agents get.
            Arc::new(RunOptions {
                pass_env: self.setup.pass_env.clone(),
                ..self.terms.options.clone()
            }),
            Arc::clone(&self.limits),
            self.setup.locks.clone(),
        );
        Ok(Arc::clone(
            attempts.insert(Arc::new(new.on_worker(&self.terms.worker))),
        ))
    }

    fn send(&self, message: WorkerMessage) {
        // The end of the connection is noticed where messages are received.
        let _ = self.outgoing.send(message);
    }

    fn mark_arrival(&self) {
        self.arrivals
            .send_modify(|count| *count = count.wrapping_add(1));
    }
}

fn transcript_bytes(root: &std::path::Path, path: &str) -> Vec<u8> {
    let read =
        ScopedDir::open(root).and_then(|root| root.read_if_exists(path, MAX_TRANSCRIPT_BYTES));
    read.ok().flatten().unwrap_or_default()
}
