//! Notifications about a run without an attached screen: to a program and to a webhook.
//!
//! It sees the fold of the tape (`tape_follower`), so that it knows what the screen knows. Notifications contain names and
//! states, no texts of agents. A delivery that fails changes nothing but a message of the run.

mod delivery;

use std::{collections::HashSet, sync::Arc, time::Duration};

use serde::Serialize;
use tokio::{task::JoinSet, time::timeout};

pub use self::delivery::NotificationTargets;
use super::{attached_clients::AttachedClients, sink_failures::SinkFailures};
use ingestdeck_core::{
    diagnostic::Diagnostic as _,
    run::{
        Recorder,
        alerts::{AlertKey, AlertKind, RunAlert, alerts},
        state::RunState,
    },
    tape::{Header, Millis, UnitKey},
};

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

/// Notifies the user about the state of a run.
pub(super) struct NotificationSink {
    clients: AttachedClients,
    failures: Arc<SinkFailures>,
    targets: NotificationTargets,
    run: String,
    project: String,
    /// Alerts that were delivered, or seen on an attached screen.
    seen: HashSet<AlertKey>,
    deliveries: JoinSet<()>,
}

impl NotificationSink {
    pub(super) fn new(
        header: &Header,
        targets: NotificationTargets,
        clients: &AttachedClients,
        recorder: &Arc<dyn Recorder>,
    ) -> Self {
        Self {
            clients: clients.clone(),
            failures: SinkFailures::new(recorder),
            targets,
            run: header.run.to_string(),
            project: header.project.clone().unwrap_or_default(),
            seen: HashSet::new(),
            deliveries: JoinSet::new(),
        }
    }

    /// Waits for the deliveries. The tape is closed, so a failure can no longer be recorded.
    pub(super) async fn finish(mut self) {
        self.failures.close();
        let delivered = async { while self.deliveries.join_next().await.is_some() {} };
        if timeout(FINISH_TIMEOUT, delivered).await.is_err() {
            tracing::warn!("the last notifications were not delivered in time");
        }
    }

    /// Delivers what is new in `state`. Needs a runtime.
    pub(super) fn look(&mut self, state: &RunState, now: Millis) {
        let is_watched = self.clients.count() > 0;
        let mut due = Vec::new();
        for alert in alerts(state, now) {
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
        while self.deliveries.try_join_next().is_some() {}
        if self.deliveries.len() >= MAX_DELIVERIES {
            tracing::warn!(
                text = notification.text,
                "a notification is dropped: earlier ones are not delivered yet"
            );
            return;
        }
        let (targets, failures) = (self.targets.clone(), Arc::clone(&self.failures));
        self.deliveries.spawn(async move {
            if let Err(problem) = targets.deliver(&notification).await {
                failures.report(problem.to_line());
            }
        });
    }
}
