//! The attempts of a worker: what the engine shipped for them, and running them.
//!
//! It must not know how messages travel, or which of them are repeated.

use std::{io, panic::AssertUnwindSafe, sync::Arc};

use futures_util::{FutureExt as _, future::BoxFuture};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::{
    protocol::{AttemptResult, AttemptShipment, ResultFile, RunTerms, ShippedLimits, WorkerPart},
    service::{WorkerBackend, WorkerSetup},
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

/// Largest patch of an attempt.
const MAX_PATCH_BYTES: u64 = 256 << 20;
/// Largest file that an engine ships, and most bytes of all files that an attempt lacks.
pub(super) const MAX_SHIPPED_BYTES: usize = 512 << 20;
const MAX_ARRIVING_BYTES: usize = 1 << 30;
/// Largest transcript of an attempt.
const MAX_TRANSCRIPT_BYTES: u64 = 64 << 20;

/// Where the files are that an engine ships.
pub(super) trait ShippedFiles: Send + Sync {
    /// The content of the file with this digest; the reason if it cannot be had.
    fn read<'a>(&'a self, digest: &'a str) -> BoxFuture<'a, Result<Vec<u8>, String>>;
}

/// Runs attempts with the files that an engine ships.
pub(super) struct ShippedAttempts {
    setup: WorkerSetup,
    terms: RunTerms,
    dir: WorkerDir,
    limits: Arc<AttemptLimits>,
    files: Arc<dyn ShippedFiles>,
    /// Locked while files are read.
    fetching: tokio::sync::Mutex<()>,
    /// Set with the first attempt, since the project needs the shipped instructions.
    attempts: Mutex<Option<Arc<LocalAttempts>>>,
}

impl WorkerBackend for ShippedAttempts {
    fn connections(&self) -> Vec<String> {
        self.setup
            .machine
            .reachable(&self.dir.project_dir(), &self.terms.connections)
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
    pub(super) fn new(
        setup: WorkerSetup,
        terms: RunTerms,
        files: Arc<dyn ShippedFiles>,
    ) -> io::Result<Self> {
        let ShippedLimits {
            step_budget,
            rule,
            timeouts,
        } = terms.limits;
        Ok(Self {
            dir: WorkerDir::new(&terms.job.id)?,
            limits: Arc::new(AttemptLimits::new(step_budget, rule, timeouts.into())),
            files,
            fetching: tokio::sync::Mutex::default(),
            attempts: Mutex::default(),
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
            shipment = self.fetch_files(shipment).await?;
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

    /// Gets all files of an attempt that are not here.
    async fn fetch_files(
        self: &Arc<Self>,
        shipment: AttemptShipment,
    ) -> Result<AttemptShipment, String> {
        // Attempts that need the same files get them once.
        let _fetching = self.fetching.lock().await;
        let looking = Arc::clone(self);
        let looked = tokio::task::spawn_blocking(move || {
            let digests = looking.dir.missing(&shipment);
            (shipment, digests)
        });
        let (shipment, digests) = looked.await.map_err(|error| error.to_string())?;
        let mut size = 0;
        for digest in digests {
            let failed = |reason: &str| format!("a file of the unit is not available: {reason}");
            let content = self.files.read(&digest).await;
            let content = content.map_err(|reason| failed(&reason))?;
            size += content.len();
            if size > MAX_ARRIVING_BYTES {
                return Err(failed(&format!(
                    "all files exceed {} MiB",
                    MAX_ARRIVING_BYTES >> 20
                )));
            }
            if !self.dir.receive(&digest, content) {
                return Err(failed("its content changed on the way"));
            }
        }
        Ok(shipment)
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
}

fn transcript_bytes(root: &std::path::Path, path: &str) -> Vec<u8> {
    let read =
        ScopedDir::open(root).and_then(|root| root.read_if_exists(path, MAX_TRANSCRIPT_BYTES));
    read.ok().flatten().unwrap_or_default()
}
