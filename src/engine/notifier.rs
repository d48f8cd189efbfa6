//! Notifications about a run without an attached screen: to a program and to a webhook.
//!
//! The task follows the tape as a replay does, so that it knows what the screen knows. Notifications contain names and
//! states, no texts of agents. A delivery that fails changes nothing but a message of the run.

mod delivery;

use std::{
    collections::HashSet,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use serde::Serialize;
use tokio::{
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};

pub use self::delivery::NotificationTargets;
use super::attached_clients::AttachedClients;
use ingestdeck_core::{
    run::{
        PollStatus, Recorder, Timeline,
        alerts::{AlertKey, AlertKind, RunAlert, alerts},
    },
    tape::{Millis, Note, RunId, UnitKey, note::Severity},
};
use ingestdeck_records::replay::{FileSource, OpenError, file::FollowHandle};

/// Bytes that are folded before other tasks get a turn.
const SLICE: usize = 256 << 10;
/// Minimum interval between two looks at a growing tape.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How often silence is checked while units run.
const SILENCE_POLL: Duration = Duration::from_secs(5);
/// How long the last deliveries may delay the end of the process.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of notifications that are being delivered.
const MAX_DELIVERIES: usize = 8;

/// One notification, as the webhook receives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct RunNotification {
    pub event: AlertKind,
    /// Id of the run.
    pub run: String,
    /// Name of the project.
    pub project: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<UnitKey>,
    /// One sentence for people.
    pub text: String,
}

/// The task that notifies.
#[derive(Debug)]
pub(super) struct NotifierTask {
    finish: FollowHandle,
    finished: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl NotifierTask {
    /// Starts to follow the tape at `path`, of which `growth` reports the length.
    ///
    /// # Errors
    /// If the tape cannot be opened.
    pub(super) fn start(
        (path, growth): (&Path, watch::Receiver<u64>),
        recorder: Arc<dyn Recorder>,
        clients: AttachedClients,
        (run, project): (RunId, String),
        targets: NotificationTargets,
    ) -> Result<Self, OpenError> {
        let (source, finish) = FileSource::follow(path)?;
        let timeline = Timeline::new_forward_only(Box::new(source.with_shortened_lines()));
        let finished = watch::Sender::new(false);
        let notifier = RunNotifier {
            timeline,
            clients,
            recorder,
            targets,
            run: run.to_string(),
            project,
            seen: HashSet::new(),
            deliveries: JoinSet::new(),
            began: Instant::now(),
        };
        let task = tokio::spawn(notifier.run(growth, finished.subscribe()));
        Ok(Self {
            finish,
            finished,
            task,
        })
    }

    /// Delivers what is still pending.
    pub(super) async fn finish(self) {
        self.finish.finish();
        self.finished.send_replace(true);
        if timeout(FINISH_TIMEOUT, self.task).await.is_err() {
            tracing::warn!("the last notifications were not delivered in time");
        }
    }
}

struct RunNotifier {
    timeline: Timeline,
    clients: AttachedClients,
    recorder: Arc<dyn Recorder>,
    targets: NotificationTargets,
    run: String,
    project: String,
    /// Alerts that were delivered, or seen on an attached screen.
    seen: HashSet<AlertKey>,
    deliveries: JoinSet<Result<(), String>>,
    /// Start of the run's clock.
    began: Instant,
}

impl RunNotifier {
    async fn run(mut self, mut growth: watch::Receiver<u64>, mut finished: watch::Receiver<bool>) {
        let mut attached = self.clients.subscribe();
        loop {
            self.look().await;
            let is_finished = *finished.borrow_and_update();
            if is_finished {
                break;
            }
            let can_be_silent = self
                .timeline
                .view()
                .state
                .units
                .iter()
                .any(|unit| unit.status.is_in_flight());
            tokio::select! {
                _ = finished.changed() => {}
                changed = growth.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    tokio::select! {
                        _ = finished.changed() => {}
                        () = sleep(LOOK_INTERVAL) => {}
                    }
                }
                Some(delivered) = self.deliveries.join_next(), if !self.deliveries.is_empty() => self.report(delivered),
                // The last screen may have disappeared.
                _ = attached.changed() => {}
                () = sleep(SILENCE_POLL), if can_be_silent => {}
            }
        }
        // The run is over, so a failure can no longer be recorded.
        while let Some(delivered) = self.deliveries.join_next().await {
            if let Ok(Err(text)) = delivered {
                tracing::warn!(text, "a notification was not delivered");
            }
        }
    }

    /// Reads the tape, and delivers what is new.
    async fn look(&mut self) {
        loop {
            match self.timeline.advance(SLICE, &mut |_| {}) {
                Ok(PollStatus::More) => tokio::task::yield_now().await,
                Ok(PollStatus::Waiting | PollStatus::End) => break,
                Err(error) => {
                    tracing::warn!(%error, "the tape cannot be read for notifications");
                    break;
                }
            }
        }
        let now = Millis(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX));
        self.timeline.advance_clock(now, now, &mut |_| {});
        let is_watched = self.clients.count() > 0;
        let mut due = Vec::new();
        for alert in alerts(&self.timeline.view().state, now) {
            // A call that still waits when the last screen disappears is new to the user.
            if is_watched && matches!(alert.key, AlertKey::HeldCall(..))
                || !self.seen.insert(alert.key.clone())
            {
                continue;
            }
            if !is_watched {
                due.push(self.notification(&alert));
            }
        }
        due.into_iter()
            .for_each(|notification| self.deliver(notification));
    }

    fn notification(&self, alert: &RunAlert<'_>) -> RunNotification {
        let verdict = alert
            .unit
            .and_then(|unit| unit.latest())
            .and_then(|attempt| attempt.verdict.as_ref());
        let text = match (&alert.key, verdict) {
            (AlertKey::Failure, Some(verdict)) => {
                format!("{}: {}", alert.text, verdict.cause.label())
            }
            _ => alert.text.clone(),
        };
        RunNotification {
            event: alert.key.kind(),
            run: self.run.clone(),
            project: self.project.clone(),
            unit: alert.unit.map(|unit| unit.key.clone()),
            text,
        }
    }

    fn deliver(&mut self, notification: RunNotification) {
        if self.deliveries.len() >= MAX_DELIVERIES {
            tracing::warn!(
                text = notification.text,
                "a notification is dropped: earlier ones are not delivered yet"
            );
            return;
        }
        let targets = self.targets.clone();
        self.deliveries
            .spawn(async move { targets.deliver(&notification).await });
    }

    /// Records the first delivery that fails, so that the user learns of a wrong setting.
    fn report(&mut self, delivered: Result<Result<(), String>, tokio::task::JoinError>) {
        let Ok(Err(text)) = delivered else { return };
        tracing::warn!(text, "a notification was not delivered");
        if !std::mem::replace(&mut self.targets.has_failed, true) {
            // A tape that cannot be written ends the run anyway.
            let _ = self.recorder.record_note(
                None,
                &Note::Message {
                    level: Severity::Warning,
                    text,
                },
            );
        }
    }
}
