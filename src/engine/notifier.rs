//! Notifications about a run without an attached screen: to a program and to a webhook.
//!
//! The recorder in front of the tape sees every note; a task decides what is worth a notification and delivers it while
//! no client is attached. A notification contains names and states, no texts of agents. A delivery that fails changes
//! nothing but the log.

mod delivery;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use serde::Serialize;
use tokio::{
    sync::mpsc,
    task::{JoinHandle, JoinSet},
    time::{Instant, MissedTickBehavior, interval, timeout},
};

pub(crate) use self::delivery::NotificationTargets;
use super::attached_clients::AttachedClients;
use crate::{
    run::{NewEntry, Recorder, entry_source::RecordError},
    tape::{
        EntryBody, Note, RunId, UnitKey,
        note::{AttemptOutcome, RunEnded},
    },
};

/// How often silence is checked.
const SILENCE_POLL: Duration = Duration::from_secs(5);
/// Maximum number of notifications that are being delivered.
const MAX_DELIVERIES: usize = 8;
/// How long the last deliveries may delay the end of the run.
const FINISH_TIMEOUT: Duration = Duration::from_secs(30);

/// What a notification is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NotificationKind {
    /// A tool call waits for a decision.
    NeedsApproval,
    FirstFailure,
    /// An agent has not written anything for a while.
    Silent,
    /// The run waits for a limit of the service.
    Limit,
    Ended,
}

/// One notification, as the webhook receives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct RunNotification {
    pub event: NotificationKind,
    /// Id of the run.
    pub run: String,
    /// Name of the project.
    pub project: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<UnitKey>,
    /// One sentence for people.
    pub text: String,
}

/// An entry that may cause a notification.
#[derive(Debug)]
enum ObservedEntry {
    /// An agent wrote something.
    Output(UnitKey),
    Note(Option<UnitKey>, Box<Note>),
    /// The run is over, and the task ends.
    Finished,
}

/// Passes entries on, and reports those that may cause a notification.
#[derive(Debug)]
pub(super) struct NotifyingRecorder {
    inner: Arc<dyn Recorder>,
    observed: mpsc::UnboundedSender<ObservedEntry>,
}

impl Recorder for NotifyingRecorder {
    fn record(&self, items: &[NewEntry<'_>]) -> Result<(), RecordError> {
        self.inner.record(items)?;
        let mut output = None;
        for item in items {
            let unit = item.attempt.map(|(unit, _)| unit);
            match item.body {
                EntryBody::Note(json) => {
                    let note = Box::new(Note::parse(json));
                    // The task has ended if it panicked; the run does not depend on it.
                    let _ = self.observed.send(ObservedEntry::Note(unit.cloned(), note));
                }
                _ if output != unit => {
                    output = unit;
                    if let Some(unit) = unit {
                        let _ = self.observed.send(ObservedEntry::Output(unit.clone()));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The task that notifies.
#[derive(Debug)]
pub(super) struct NotifierTask {
    observed: mpsc::UnboundedSender<ObservedEntry>,
    task: JoinHandle<()>,
}

impl NotifierTask {
    /// Starts the task, and returns the recorder that it observes.
    pub(super) fn start(
        inner: Arc<dyn Recorder>,
        clients: AttachedClients,
        (run, project): (RunId, String),
        targets: NotificationTargets,
    ) -> (Self, Arc<NotifyingRecorder>) {
        let (observed, entries) = mpsc::unbounded_channel();
        let silence_after = targets.silence_after;
        let state = NotificationState { run: run.to_string(), project, silence_after, ..NotificationState::default() };
        let task = tokio::spawn(notify(entries, clients, state, targets));
        let recorder = Arc::new(NotifyingRecorder { inner, observed: observed.clone() });
        (Self { observed, task }, recorder)
    }

    /// Delivers what is still pending.
    pub(super) async fn finish(self) {
        let _ = self.observed.send(ObservedEntry::Finished);
        if timeout(FINISH_TIMEOUT, self.task).await.is_err() {
            tracing::warn!("the last notifications were not delivered in time");
        }
    }
}

async fn notify(
    mut entries: mpsc::UnboundedReceiver<ObservedEntry>,
    clients: AttachedClients,
    mut state: NotificationState,
    targets: NotificationTargets,
) {
    let mut deliveries = JoinSet::new();
    let mut poll = interval(SILENCE_POLL);
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let due = tokio::select! {
            entry = entries.recv() => match entry {
                None | Some(ObservedEntry::Finished) => break,
                Some(ObservedEntry::Output(unit)) => {
                    state.last_output.insert(unit, Instant::now());
                    continue;
                }
                Some(ObservedEntry::Note(unit, note)) => state.on_note(unit, &note),
            },
            _ = poll.tick() => state.silent_unit(Instant::now()),
        };
        let Some(notification) = due else { continue };
        while deliveries.try_join_next().is_some() {}
        // Attached screens show it.
        if clients.count() > 0 {
            continue;
        }
        if deliveries.len() >= MAX_DELIVERIES {
            tracing::warn!(text = notification.text, "a notification is dropped: earlier ones are not delivered yet");
            continue;
        }
        let targets = targets.clone();
        deliveries.spawn(async move { targets.deliver(&notification).await });
    }
    while deliveries.join_next().await.is_some() {}
}

/// What was notified, and when the agents last wrote something.
#[derive(Debug, Default)]
struct NotificationState {
    run: String,
    project: String,
    silence_after: Duration,
    last_output: HashMap<UnitKey, Instant>,
    /// Running units whose silence was reported.
    silent: HashSet<UnitKey>,
    has_failed: bool,
}

impl NotificationState {
    fn on_note(&mut self, unit: Option<UnitKey>, note: &Note) -> Option<RunNotification> {
        let (event, text) = match note {
            Note::CallHeld { tool, .. } => {
                let unit = unit.as_ref()?;
                self.last_output.remove(unit);
                (NotificationKind::NeedsApproval, format!("{unit}: {tool} waits for approval"))
            }
            Note::CallDecided { .. } | Note::AttemptStarted(_) => {
                self.silent.remove(unit.as_ref()?);
                self.last_output.insert(unit?, Instant::now());
                return None;
            }
            Note::AttemptEnded(ended) => {
                let unit = unit.as_ref()?;
                self.last_output.remove(unit);
                self.silent.remove(unit);
                if ended.verdict.outcome != AttemptOutcome::Failed || std::mem::replace(&mut self.has_failed, true) {
                    return None;
                }
                (NotificationKind::FirstFailure, format!("{unit} failed: {}", ended.verdict.cause.label()))
            }
            Note::LimitPaused { limit, .. } => {
                (NotificationKind::Limit, format!("waiting for the {} limit", limit.replace('_', " ")))
            }
            Note::RunEnded(ended) => (NotificationKind::Ended, end_text(ended)),
            _ => return None,
        };
        Some(self.notification(event, unit, text))
    }

    /// A unit that has become silent.
    fn silent_unit(&mut self, now: Instant) -> Option<RunNotification> {
        let is_silent = |since: &Instant| now.saturating_duration_since(*since) >= self.silence_after;
        let mut found =
            self.last_output.iter().filter(|(unit, since)| is_silent(since) && !self.silent.contains(*unit));
        let unit = found.next()?.0.clone();
        self.silent.insert(unit.clone());
        let text = format!("{unit} has been silent for {} s", self.silence_after.as_secs());
        Some(self.notification(NotificationKind::Silent, Some(unit), text))
    }

    fn notification(&self, event: NotificationKind, unit: Option<UnitKey>, text: String) -> RunNotification {
        RunNotification { event, run: self.run.clone(), project: self.project.clone(), unit, text }
    }
}

fn end_text(ended: &RunEnded) -> String {
    let counts = [(ended.failed, "failed"), (ended.stopped, "stopped"), (ended.not_run, "not run")];
    let counts = counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!(", {count} {word}"));
    format!("run ended: {}, {} succeeded{}", ended.outcome, ended.succeeded, counts.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{engine::driver::preparation_failed, tape::note::AttemptEnded};

    fn state() -> NotificationState {
        NotificationState { silence_after: Duration::from_secs(60), ..NotificationState::default() }
    }

    fn unit() -> Option<UnitKey> {
        Some("docs-a".into())
    }

    fn held() -> Note {
        Note::CallHeld { tool: "wiki_write".into(), tool_use_id: None, input: serde_json::json!({}), reached: None }
    }

    fn failed() -> Note {
        Note::AttemptEnded(Box::new(AttemptEnded {
            verdict: preparation_failed("text of an agent"),
            tool_failures: 0,
            failed_call: None,
            exit_code: None,
            signal: None,
            stderr_tail: Vec::new(),
            wrote: Vec::new(),
            work: Default::default(),
            extra: serde_json::Map::default(),
        }))
    }

    #[test]
    fn only_the_first_failure_is_notified() {
        let mut state = state();
        let first = state.on_note(unit(), &failed()).unwrap();
        assert_eq!((first.event, first.unit.clone()), (NotificationKind::FirstFailure, unit()));
        assert!(!first.text.contains("text of an agent"), "{}", first.text);
        assert_eq!(state.on_note(unit(), &failed()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_notified_once_per_attempt() {
        let mut state = state();
        state.last_output.insert(unit().unwrap(), Instant::now());
        assert_eq!(state.silent_unit(Instant::now()), None);
        let later = Instant::now() + Duration::from_secs(61);
        assert_eq!(state.silent_unit(later).unwrap().event, NotificationKind::Silent);
        assert_eq!(state.silent_unit(later), None);
        state.on_note(unit(), &held());
        assert_eq!(state.silent_unit(later), None, "it waits for a person");
    }

    #[test]
    fn held_calls_limits_and_the_end_are_notified() {
        let mut state = state();
        let event = |note: &Note, state: &mut NotificationState| state.on_note(unit(), note).map(|it| it.event);
        assert_eq!(event(&held(), &mut state), Some(NotificationKind::NeedsApproval));
        let limit = Note::LimitPaused { until: None, limit: "five_hour".into(), wait_ms: None };
        assert_eq!(event(&limit, &mut state), Some(NotificationKind::Limit));
        assert_eq!(event(&Note::RunEnded(RunEnded::default()), &mut state), Some(NotificationKind::Ended));
        assert_eq!(event(&Note::LimitLifted, &mut state), None);
    }
}
