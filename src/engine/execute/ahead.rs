//! The integration of patches in the background while units run. Nothing is recorded about single patches, and no
//! branch changes: that is done by the integration at the end, which uses what is applied here.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::{ingest_run::IngestRun, integration::record_note};
use ingestdeck_agent::caught_panics;
use ingestdeck_core::{
    diagnostic::Diagnostic,
    run::Recorder,
    tape::{Note, note::IntegrationAdvanced},
};
use ingestdeck_ingest::integrate::{IntegrationError, PatchIntegrator, UnitPatch};

/// How often the state that the integration began with is compared with the current one.
const CURRENT_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// A note reports the progress after this number of patches, or after this time.
const NOTED_PATCHES: usize = 50;
const NOTE_INTERVAL: Duration = Duration::from_secs(10);

/// Integrates the first patches of a run while others are still being written.
#[derive(Debug)]
pub(super) struct AheadIntegration {
    run: Arc<IngestRun>,
    recorder: Arc<dyn Recorder>,
    queue: Mutex<AheadQueue>,
    /// Locked while a patch is applied.
    begun: Mutex<Option<BegunIntegration>>,
}

/// The patches that are known to come first.
#[derive(Debug, Default)]
struct AheadQueue {
    /// In plan order, with those that are applied.
    patches: Vec<UnitPatch>,
    /// Number of them that are the same as at the last look of the worker.
    kept: Option<usize>,
    /// Applies patches until none is left.
    worker: Option<JoinHandle<()>>,
    is_working: bool,
    /// It failed, which the integration at the end repeats and reports, or the run is over.
    is_stopped: bool,
}

/// An integration, with the time when its beginning was checked last.
#[derive(Debug)]
struct BegunIntegration {
    integrator: PatchIntegrator,
    checked: Instant,
    /// When its progress was noted last, and the number of patches then.
    noted: (Instant, usize),
}

/// What the worker does next.
enum AheadStep {
    /// Take back all patches but this many.
    Keep(usize),
    Apply(UnitPatch),
}

impl AheadIntegration {
    pub(super) fn new(run: Arc<IngestRun>, recorder: Arc<dyn Recorder>) -> Arc<Self> {
        Arc::new(Self {
            run,
            recorder,
            queue: Mutex::default(),
            begun: Mutex::default(),
        })
    }

    /// Adds patches after the first `kept`, and applies them in the background.
    pub(super) fn extend(self: &Arc<Self>, kept: usize, patches: Vec<UnitPatch>) {
        let mut queue = self.queue.lock();
        // The review of commits begins in another way.
        if queue.is_stopped || self.run.committed.is_some() {
            return;
        }
        // A unit that was tried again and failed again changes nothing.
        let before = queue.patches.iter().skip(kept);
        let same = before.zip(&patches).take_while(|(old, new)| old == new);
        let same = same.count();
        let kept = kept + same;
        queue.patches.truncate(kept);
        queue.patches.extend(patches.into_iter().skip(same));
        queue.kept = Some(queue.kept.map_or(kept, |before| before.min(kept)));
        if !queue.is_working {
            queue.is_working = true;
            let ahead = Arc::clone(self);
            queue.worker = Some(tokio::spawn(async move {
                let work = caught_panics::spawn_blocking_caught(move || ahead.work());
                if let Err(error) = work.await {
                    tracing::error!(%error, "integration in the background broke off");
                }
            }));
        }
    }

    /// Takes what is applied so far; nothing more is applied.
    pub(super) fn take(&self) -> Option<PatchIntegrator> {
        let mut queue = self.queue.lock();
        (queue.patches, queue.kept) = (Vec::new(), None);
        queue.is_stopped = false;
        drop(queue);
        // Waits for the patch that is being applied.
        self.begun.lock().take().map(|begun| begun.integrator)
    }

    /// Ends the work, and removes its worktree.
    pub(super) async fn close(&self) {
        let worker = {
            let mut queue = self.queue.lock();
            (queue.patches, queue.is_stopped) = (Vec::new(), true);
            queue.worker.take()
        };
        if let Some(worker) = worker {
            // It catches panics.
            let _ = worker.await;
        }
        self.begun.lock().take();
    }

    fn work(&self) {
        loop {
            let mut slot = self.begun.lock();
            let Some(step) = self.next_step(slot.as_ref()) else {
                return;
            };
            // If it panics, the worktree is in an unknown state and dropped.
            let begun = slot.take();
            match self.perform(begun, step) {
                Ok(begun) => *slot = begun,
                Err(error) => {
                    tracing::warn!(error = %error.to_line(), "patches are integrated at the end only");
                    let mut queue = self.queue.lock();
                    (queue.is_stopped, queue.is_working) = (true, false);
                    return;
                }
            }
        }
    }

    fn next_step(&self, begun: Option<&BegunIntegration>) -> Option<AheadStep> {
        let mut queue = self.queue.lock();
        let applied = begun.map_or(0, |begun| begun.integrator.applied_count());
        if let Some(kept) = queue.kept.take()
            && kept < applied
        {
            return Some(AheadStep::Keep(kept));
        }
        let next = queue.patches.get(applied).cloned().map(AheadStep::Apply);
        queue.is_working = next.is_some();
        next
    }

    fn perform(
        &self,
        begun: Option<BegunIntegration>,
        step: AheadStep,
    ) -> Result<Option<BegunIntegration>, IntegrationError> {
        let mut begun = match begun {
            Some(begun) => begun,
            None => BegunIntegration {
                integrator: self.run.open_integrator()?,
                checked: Instant::now(),
                noted: (Instant::now(), 0),
            },
        };
        match step {
            AheadStep::Keep(count) => begun.integrator.keep_first(count)?,
            AheadStep::Apply(_) if !begun.is_current()? => return Ok(None),
            AheadStep::Apply(patch) => begun.integrator.apply_next(&patch)?,
        }
        if let Some(advanced) = begun.progress_to_note() {
            let note = Note::IntegrationAdvanced(advanced);
            record_note(self.recorder.as_ref(), None, &note);
        }
        Ok(Some(begun))
    }
}

impl BegunIntegration {
    /// The progress, if a note about it is due.
    fn progress_to_note(&mut self) -> Option<IntegrationAdvanced> {
        let (at, before) = self.noted;
        let patches = self.integrator.applied_count();
        if patches.abs_diff(before) < NOTED_PATCHES
            && (patches == before || at.elapsed() < NOTE_INTERVAL)
        {
            return None;
        }
        self.noted = (Instant::now(), patches);
        let refused = self.integrator.refused_count();
        Some(IntegrationAdvanced { patches, refused })
    }

    /// False if the branch or the facts have changed, as far as that is checked again.
    fn is_current(&mut self) -> Result<bool, IntegrationError> {
        if self.checked.elapsed() < CURRENT_CHECK_INTERVAL {
            return Ok(true);
        }
        self.checked = Instant::now();
        self.integrator.is_current()
    }
}
