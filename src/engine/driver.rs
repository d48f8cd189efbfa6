//! The I/O driver of [`units::schedule`](ingestdeck_core::units::schedule): performs its effects and feeds the results back as
//! events.
//!
//! Decides nothing. Every effect becomes a task, a timer or a note; the end of each becomes an event.

use std::{
    collections::HashMap,
    future::Future,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use jiff::Timestamp;

use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
};

use super::{
    attempt_limits::AttemptLimits, attempt_order::AttemptOrder, worker::host::WorkerTransports,
};
use ingestdeck_core::{
    control::RunCommand,
    diagnostic::Diagnostic,
    run::{NewEntry, Recorder, entry_source::RecordError},
    tape::{
        EntryBody, Millis, Note, UnitKey,
        note::{Amendment, RunEnded, Severity, Verdict, VerdictCause},
    },
    units::{
        limits::{LimitObservation, LimitStatus, resets_in_ms},
        retry::RetryMode,
        schedule::{
            IntegratedUnit, IntegrationReport, PersonWait, Schedule, ScheduleEffect, ScheduleEvent,
            TimerId,
        },
    },
};

/// How often a long wait checks the wall clock. Timers of tokio do not advance while the machine is suspended.
const WALL_CLOCK_POLL: Duration = Duration::from_secs(30);

/// Capacity of the queue of requests to an attempt, and the part of it that only stop requests use.
const ORDER_QUEUE_CAPACITY: usize = 16;
const STOP_REQUESTS: usize = 4;

/// The result of an attempt.
#[derive(Clone, Debug)]
pub(crate) struct AttemptEnd {
    pub verdict: Verdict,
    /// How the attempt may be retried automatically.
    pub repeat: RetryMode,
    /// Messages of a person that the agent of a session did not receive: its next turn.
    pub undelivered: Vec<String>,
}

/// The result of an attempt that left nothing behind.
impl From<Verdict> for AttemptEnd {
    fn from(verdict: Verdict) -> Self {
        Self {
            verdict,
            repeat: RetryMode::FromStart,
            undelivered: Vec::new(),
        }
    }
}

/// Whether the integrated patches are on the project's branch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SaveOutcome {
    Saved,
    /// They are, except for files of these units, which wait for another review.
    Partly(Vec<UnitKey>),
    Failed,
    /// They are not, and their review is open again.
    ReviewOpen,
}

/// Runs attempts: with one process each in the program, from a script in tests.
pub(crate) trait Executor: Send + Sync + 'static {
    /// Runs an attempt, as planned except for `amendment`, and returns its verdict after recording it. Fires `ready`
    /// when start-up is over, and ends soon after `orders` receives a stop request.
    fn run(
        &self,
        unit: UnitKey,
        attempt: u32,
        amendment: Option<Arc<Amendment>>,
        orders: mpsc::Receiver<AttemptOrder>,
        ready: oneshot::Sender<()>,
    ) -> impl Future<Output = AttemptEnd> + Send;

    /// Writes the sources that units build on, and records the result. Called only if there are such sources.
    fn write_projections(&self) -> impl Future<Output = bool> + Send {
        std::future::ready(false)
    }

    /// Integrates the patches of these attempts in this order, and records the result of each. Called only if attempts
    /// produce patches.
    fn integrate(
        &self,
        units: Vec<(UnitKey, u32)>,
    ) -> impl Future<Output = IntegrationReport> + Send {
        let taken = |(unit, attempt)| IntegratedUnit {
            unit,
            attempt,
            verdict: None,
            has_changes: true,
        };
        std::future::ready(IntegrationReport {
            results: units.into_iter().map(taken).collect(),
            ok: true,
        })
    }

    /// Begins to integrate the patches of these attempts, after the first `kept` of those that were announced before.
    fn integrate_ahead(&self, _kept: usize, _units: Vec<(UnitKey, u32)>) {}

    /// Records the changes of the integrated patches for a review. Returns false if there are none. Called only if the
    /// run has a review.
    fn request_review(&self) -> impl Future<Output = bool> + Send {
        std::future::ready(false)
    }

    /// A person changed the number of attempts that may run on this machine.
    fn set_local_slots(&self, _slots: u32) {}

    /// Refuses further decisions about the changes: the run ends, or a unit works again.
    fn close_review(&self) {}

    /// The workers that attempts run on, if there are any.
    fn workers(&self) -> Option<Arc<WorkerTransports>> {
        None
    }

    /// The run is over: releases what attempts ran on.
    fn close(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Puts the integrated patches on the project's branch, and records the result.
    fn save(&self, _failed: Vec<UnitKey>) -> impl Future<Output = SaveOutcome> + Send {
        std::future::ready(SaveOutcome::Saved)
    }
}

/// Why a run was aborted. Results are recorded up to that moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// The tape cannot be written. The cause comes first because paths are long.
    #[error("{}: cannot write {}, so running units were ended", .0.cause, .0.path)]
    TapeWrite(#[from] RecordError),
    /// An internal task panicked.
    #[error("internal error of ingestdeck: {0}, so running units were ended")]
    TaskPanicked(String),
}

impl Diagnostic for DriverError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::TapeWrite(error) => return error.help(),
            Self::TaskPanicked(_) => "run the remaining units again, with --debug for a log".into(),
        })
    }
}

/// How long a run waits for a person.
#[derive(Debug)]
pub(crate) struct PersonTimeouts {
    /// Number of attached clients; also changes when a client sends a command, which restarts the wait.
    pub clients: watch::Receiver<usize>,
    pub limits: Arc<AttemptLimits>,
    /// Longest wait for a review while no client is attached.
    pub review: Option<Duration>,
}

impl PersonTimeouts {
    fn limit(&self, wait: PersonWait) -> Option<Duration> {
        let has_screen = *self.clients.borrow() > 0;
        match wait {
            PersonWait::Decision => self.limits.approval_timeout(has_screen),
            PersonWait::Review => self.review.filter(|_| !has_screen),
        }
    }
}

/// A run in progress.
#[derive(Debug)]
pub(crate) struct ScheduleDriver<E> {
    schedule: Schedule,
    executor: Arc<E>,
    recorder: Arc<dyn Recorder>,
    order_senders: HashMap<(UnitKey, u32), mpsc::Sender<AttemptOrder>>,
    /// Tasks, each with the events at its end.
    attempts: JoinSet<Vec<ScheduleEvent>>,
    timers: JoinSet<TimerId>,
    ready: JoinSet<Option<ScheduleEvent>>,
    ended: Option<RunEnded>,
    began: Instant,
    person: Option<PersonTimeouts>,
    /// The current wait for a person, and when it began.
    person_wait: Option<(PersonWait, tokio::time::Instant)>,
}

impl<E: Executor> ScheduleDriver<E> {
    /// Drives `schedule` and writes notes to `recorder`.
    pub(crate) fn new(schedule: Schedule, executor: Arc<E>, recorder: Arc<dyn Recorder>) -> Self {
        Self {
            schedule,
            executor,
            recorder,
            order_senders: HashMap::new(),
            attempts: JoinSet::new(),
            timers: JoinSet::new(),
            ready: JoinSet::new(),
            ended: None,
            began: Instant::now(),
            person: None,
            person_wait: None,
        }
    }

    /// Ends waits for a person after a time. Without it, they do not end.
    pub(crate) fn with_person_timeouts(self, person: Option<PersonTimeouts>) -> Self {
        Self { person, ..self }
    }

    /// Runs until no work remains. While clients are attached, a person may still request more, so it returns only when
    /// the last one has left or `inputs` is closed. `blown` reports that the tape cannot be written.
    ///
    /// # Errors
    /// If the tape cannot be written or an attempt panicked. All running attempts have been ended by then.
    pub(crate) async fn run(
        mut self,
        inputs: mpsc::Receiver<ScheduleEvent>,
        attached: watch::Receiver<usize>,
        blown: watch::Receiver<Option<RecordError>>,
    ) -> Result<RunEnded, DriverError> {
        let ended = self.run_loop(inputs, attached, blown).await;
        if ended.is_err() {
            // Further results could not be recorded. Dropping an attempt kills its process group.
            self.attempts.shutdown().await;
        }
        self.executor.close().await;
        ended
    }

    async fn run_loop(
        &mut self,
        mut inputs: mpsc::Receiver<ScheduleEvent>,
        mut attached: watch::Receiver<usize>,
        mut blown: watch::Receiver<Option<RecordError>>,
    ) -> Result<RunEnded, DriverError> {
        let mut open = true;
        let mut next = Some(ScheduleEvent::RunStarted);
        loop {
            if let Some(input) = next.take() {
                self.handle(input)?;
            }
            // A retry that waits, and saving again, keep the run open.
            if let Some(ended) = self.ended.as_ref().filter(|_| self.schedule.is_finished())
                && !(open && *attached.borrow_and_update() > 0)
            {
                return Ok(ended.clone());
            }
            let expiry = self.person_wait_expiry();
            next = tokio::select! {
                // Check for a failed tape first and then for user input: a stop must not wait behind many finished
                // attempts.
                biased;
                error = first_record_error(&mut blown), if open || !self.attempts.is_empty() || !self.timers.is_empty() => {
                    return Err(error.into());
                }
                input = inputs.recv(), if open => {
                    open = input.is_some();
                    input
                }
                Ok(()) = attached.changed(), if self.ended.is_some() => None,
                () = person_changed(&mut self.person) => {
                    self.person_wait = None;
                    None
                }
                wait = wait_until_expiry(expiry), if expiry.is_some() => Some(wait),
                Some(ready) = self.ready.join_next() => ready.ok().flatten(),
                Some(done) = self.attempts.join_next() => {
                    let mut events = done.map_err(|error| DriverError::TaskPanicked(error.to_string()))?;
                    let last = events.pop();
                    events.into_iter().try_for_each(|event| self.handle(event))?;
                    last
                }
                Some(fired) = self.timers.join_next() => fired.ok().map(ScheduleEvent::TimerFired),
                else => return Ok(self.ended.take().unwrap_or_default()),
            };
        }
    }

    /// When the current wait for a person ends, and the event of its end.
    fn person_wait_expiry(&mut self) -> Option<(tokio::time::Instant, PersonWait, Duration)> {
        let person = self.person.as_ref()?;
        let wait = self.schedule.person_wait();
        if self.person_wait.map(|(wait, _)| wait) != wait {
            self.person_wait = wait.map(|wait| (wait, tokio::time::Instant::now()));
        }
        let (wait, since) = self.person_wait?;
        let limit = person.limit(wait)?;
        Some((since + limit, wait, limit))
    }

    fn handle(&mut self, input: ScheduleEvent) -> Result<(), RecordError> {
        if let ScheduleEvent::AttemptEnded {
            unit,
            attempt,
            verdict,
            repeat,
        } = &input
        {
            self.order_senders.remove(&(unit.clone(), *attempt));
            // The limit of another account does not concern the run.
            if let Some(seen) = self
                .limit_from_verdict(verdict)
                .filter(|_| *repeat != RetryMode::Elsewhere)
            {
                for order in self.schedule.handle(ScheduleEvent::LimitObserved(seen)) {
                    self.execute_order(order)?;
                }
            }
        }
        for order in self.schedule.handle(input) {
            self.execute_order(order)?;
        }
        Ok(())
    }

    /// The reset time that a verdict contains. Early releases report it only in their last message.
    fn limit_from_verdict(&self, verdict: &Verdict) -> Option<LimitObservation> {
        let VerdictCause::UsageLimit {
            resets_at: Some(at),
        } = verdict.cause
        else {
            return None;
        };
        Some(LimitObservation {
            at: Millis(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)),
            name: verdict.cause.label().to_owned(),
            status: LimitStatus::Rejected,
            utilization: None,
            resets_in_ms: Some(resets_in_ms(at, Timestamp::now().as_millisecond())),
        })
    }

    fn execute_order(&mut self, order: ScheduleEffect) -> Result<(), RecordError> {
        match order {
            ScheduleEffect::StartAttempt {
                unit,
                attempt,
                amendment,
            } => {
                self.executor.close_review();
                self.start_attempt(unit, attempt, amendment);
            }
            ScheduleEffect::StopAttempt { unit, attempt, how } => {
                if let Some(orders) = self.order_senders.get(&(unit, attempt)) {
                    // A full channel holds stop requests already, since messages leave room for them; a closed one
                    // means that the attempt is over.
                    let _ = orders.try_send(AttemptOrder::Stop(how));
                }
            }
            ScheduleEffect::MessageAttempt {
                unit,
                attempt,
                text,
            } => self.pass(unit, attempt, AttemptOrder::Message(text), "message")?,
            ScheduleEffect::RequestAttempt {
                unit,
                attempt,
                request,
            } => self.pass(unit, attempt, AttemptOrder::Request(request), "request")?,
            ScheduleEffect::Project => {
                let executor = Arc::clone(&self.executor);
                self.attempts.spawn(async move {
                    vec![ScheduleEvent::Projected {
                        is_unsaved: executor.write_projections().await,
                    }]
                });
            }
            ScheduleEffect::Integrate { units } => {
                let executor = Arc::clone(&self.executor);
                self.attempts.spawn(async move {
                    vec![ScheduleEvent::Integrated(executor.integrate(units).await)]
                });
            }
            ScheduleEffect::IntegrateAhead { kept, units } => {
                self.executor.integrate_ahead(kept, units);
            }
            ScheduleEffect::RequestReview => {
                let executor = Arc::clone(&self.executor);
                self.attempts.spawn(async move {
                    vec![ScheduleEvent::ReviewRequested {
                        waits: executor.request_review().await,
                    }]
                });
            }
            ScheduleEffect::Save { failed } => {
                let executor = Arc::clone(&self.executor);
                self.attempts.spawn(async move {
                    vec![match executor.save(failed).await {
                        SaveOutcome::Saved => ScheduleEvent::Saved { ok: true },
                        SaveOutcome::Partly(left) => ScheduleEvent::PartlySaved { left },
                        SaveOutcome::Failed => ScheduleEvent::Saved { ok: false },
                        SaveOutcome::ReviewOpen => ScheduleEvent::ReviewReopened,
                    }]
                });
            }
            ScheduleEffect::SetTimer { id, after_ms } => {
                self.timers.spawn(async move {
                    sleep_by_wall_clock(Duration::from_millis(after_ms), SystemTime::now).await;
                    id
                });
            }
            ScheduleEffect::RecordNote { attempt, note } => {
                if let Note::ConcurrencyChanged { slots, .. } = note {
                    self.executor.set_local_slots(slots);
                }
                let attempt = attempt.as_ref().map(|(unit, attempt)| (unit, *attempt));
                self.record_note(attempt, &note)?;
            }
            ScheduleEffect::EndRun(ended) => {
                self.executor.close_review();
                self.record_note(None, &Note::RunEnded(ended.clone()))?;
                self.ended = Some(ended);
            }
        }
        Ok(())
    }

    /// Passes what a person sends to a running attempt, or records that the `what` did not reach it.
    fn pass(
        &self,
        unit: UnitKey,
        attempt: u32,
        order: AttemptOrder,
        what: &str,
    ) -> Result<(), RecordError> {
        let orders = self.order_senders.get(&(unit.clone(), attempt));
        // Messages leave room for stop requests.
        let orders = orders.filter(|orders| orders.capacity() > STOP_REQUESTS);
        if orders.is_none_or(|orders| orders.try_send(order).is_err()) {
            let text = format!("a {what} did not reach the agent; send it again");
            let note = Note::Message {
                level: Severity::Warning,
                text,
            };
            self.record_note(Some((&unit, attempt)), &note)?;
        }
        Ok(())
    }

    fn start_attempt(&mut self, unit: UnitKey, attempt: u32, amendment: Option<Arc<Amendment>>) {
        self.ended = None;
        let (orders, received) = mpsc::channel(ORDER_QUEUE_CAPACITY);
        let (ready, is_ready) = oneshot::channel();
        self.order_senders.insert((unit.clone(), attempt), orders);
        let (executor, key) = (Arc::clone(&self.executor), unit.clone());
        self.attempts.spawn(async move {
            let AttemptEnd {
                verdict,
                repeat,
                undelivered,
            } = executor
                .run(key.clone(), attempt, amendment, received, ready)
                .await;
            let ended = ScheduleEvent::AttemptEnded {
                unit: key.clone(),
                attempt,
                verdict,
                repeat,
            };
            let again = |text| {
                ScheduleEvent::Requested(RunCommand::Say {
                    unit: key.clone(),
                    text,
                })
            };
            std::iter::once(ended)
                .chain(undelivered.into_iter().map(again))
                .collect()
        });
        self.ready.spawn(async move {
            is_ready
                .await
                .ok()
                .map(|()| ScheduleEvent::AttemptReady { unit, attempt })
        });
    }

    fn record_note(
        &self,
        attempt: Option<(&UnitKey, u32)>,
        note: &Note,
    ) -> Result<(), RecordError> {
        let json = note.to_json();
        self.recorder.record(&[NewEntry {
            attempt,
            body: EntryBody::Note(&json),
        }])
    }
}

/// Waits for `after`, and also follows the wall `clock`: a limit does not last longer because the machine was
/// suspended.
async fn sleep_by_wall_clock(after: Duration, clock: impl Fn() -> SystemTime) {
    let (began, until) = (tokio::time::Instant::now(), clock().checked_add(after));
    loop {
        let left = after.saturating_sub(began.elapsed());
        if left.is_zero() || until.is_some_and(|until| clock() >= until) {
            return;
        }
        tokio::time::sleep(left.min(WALL_CLOCK_POLL)).await;
    }
}

/// Waits until a client attaches, leaves or sends a command. Cancel-safe.
async fn person_changed(person: &mut Option<PersonTimeouts>) {
    let Some(PersonTimeouts { clients, .. }) = person else {
        return std::future::pending().await;
    };
    if clients.changed().await.is_err() {
        *person = None;
    }
}

async fn wait_until_expiry(
    expiry: Option<(tokio::time::Instant, PersonWait, Duration)>,
) -> ScheduleEvent {
    let Some((at, wait, limit)) = expiry else {
        return std::future::pending().await;
    };
    tokio::time::sleep_until(at).await;
    ScheduleEvent::PersonWaitExpired(
        wait,
        Millis(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
    )
}

/// The first failure to record; pending forever if the sender is gone.
async fn first_record_error(blown: &mut watch::Receiver<Option<RecordError>>) -> RecordError {
    let error = blown
        .wait_for(Option::is_some)
        .await
        .ok()
        .and_then(|error| error.clone());
    match error {
        Some(error) => error,
        None => std::future::pending().await,
    }
}

/// Logs the outcome of an attempt, without the agent's text.
pub(crate) fn log_verdict(
    unit: &UnitKey,
    attempt: u32,
    verdict: &Verdict,
    exit_code: Option<i32>,
    signal: Option<i32>,
) {
    let (unit, outcome, cause) = (unit.as_str(), verdict.outcome, verdict.cause.label());
    tracing::debug!(
        unit,
        attempt,
        ?outcome,
        cause,
        ?exit_code,
        ?signal,
        "verdict"
    );
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::attempt_order::preparation_failed;
    use ingestdeck_agent::attempt::time_limits::{TimeLimitSettings, UNATTENDED_WAIT};
    use ingestdeck_core::{
        tape::note::AttemptOutcome,
        units::{failure_tally::FailureRule, schedule::ScheduleSettings},
    };

    #[derive(Debug, Default)]
    struct NoteLog(parking_lot::Mutex<Vec<Note>>);

    impl Recorder for NoteLog {
        fn record(&self, items: &[NewEntry<'_>]) -> Result<(), RecordError> {
            for item in items {
                if let EntryBody::Note(json) = item.body {
                    self.0.lock().push(Note::parse(json));
                }
            }
            Ok(())
        }
    }

    /// Attempts of `name-fails` fail; those of `name-waits` end when they are stopped.
    #[derive(Debug, Default)]
    struct ScriptedExecutor {
        /// Number of finished attempts, including cancelled ones.
        dropped: Arc<AtomicUsize>,
    }

    struct DropCounter(Arc<AtomicUsize>);

    impl Drop for DropCounter {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Executor for ScriptedExecutor {
        async fn run(
            &self,
            unit: UnitKey,
            attempt: u32,
            _amendment: Option<Arc<Amendment>>,
            mut orders: mpsc::Receiver<AttemptOrder>,
            ready: oneshot::Sender<()>,
        ) -> AttemptEnd {
            let _ = ready.send(());
            let _dropped = DropCounter(Arc::clone(&self.dropped));
            assert!(!unit.ends_with("panics"), "on purpose");
            let outcome = if unit.ends_with("waits") {
                orders.recv().await;
                AttemptOutcome::Stopped
            } else if unit.ends_with("fails") && attempt == 1 {
                AttemptOutcome::Failed
            } else {
                AttemptOutcome::Succeeded
            };
            Verdict {
                outcome,
                cause: VerdictCause::ToolFailures,
                ..preparation_failed("as scripted")
            }
            .into()
        }
    }

    fn drive(units: &[&str]) -> (ScheduleDriver<ScriptedExecutor>, Arc<NoteLog>) {
        let notes = Arc::new(NoteLog::default());
        let units = units.iter().map(|unit| UnitKey::from(*unit)).collect();
        let schedule = Schedule::new(units, ScheduleSettings::new(2, 2));
        (
            ScheduleDriver::new(
                schedule,
                Arc::default(),
                Arc::clone(&notes) as Arc<dyn Recorder>,
            ),
            notes,
        )
    }

    /// One client, which never leaves.
    fn attached() -> watch::Receiver<usize> {
        watch::channel(1).1
    }

    #[tokio::test(start_paused = true)]
    async fn run_ends_when_its_last_client_leaves() {
        let (drive, notes) = drive(&["a", "b-fails"]);
        let (person, inputs) = mpsc::channel(1);
        let (clients, attached) = watch::channel(2);
        let run = tokio::spawn(drive.run(inputs, attached, watch::channel(None).1));
        while !matches!(notes.0.lock().last(), Some(Note::RunEnded(_))) {
            tokio::task::yield_now().await;
        }
        clients.send_replace(1);
        person
            .send(ScheduleEvent::Requested(RunCommand::Retry {
                unit: "b-fails".into(),
                amendment: None,
            }))
            .await
            .unwrap();
        clients.send_replace(0);
        assert_eq!(run.await.unwrap().unwrap().succeeded, 2);
        assert!(person.is_closed());
    }

    #[tokio::test(start_paused = true)]
    async fn run_ends_when_inputs_are_closed() {
        let (drive, notes) = drive(&["a", "b-fails", "c"]);
        let (_, inputs) = mpsc::channel(1);
        let ended = drive
            .run(inputs, attached(), watch::channel(None).1)
            .await
            .unwrap();
        assert_eq!((ended.succeeded, ended.failed), (2, 1));
        assert!(matches!(notes.0.lock().last(), Some(Note::RunEnded(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_run_end_runs_only_the_failed_unit() {
        let (drive, notes) = drive(&["a", "b-fails"]);
        let (person, inputs) = mpsc::channel(1);
        let run = tokio::spawn(drive.run(inputs, attached(), watch::channel(None).1));
        while !matches!(notes.0.lock().last(), Some(Note::RunEnded(_))) {
            tokio::task::yield_now().await;
        }
        person
            .send(ScheduleEvent::Requested(RunCommand::Retry {
                unit: "b-fails".into(),
                amendment: None,
            }))
            .await
            .unwrap();
        drop(person);
        let ended = run.await.unwrap().unwrap();
        assert_eq!((ended.succeeded, ended.failed), (2, 0));
        let ends = notes
            .0
            .lock()
            .iter()
            .filter(|note| matches!(note, Note::RunEnded(_)))
            .count();
        assert_eq!(ends, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn wait_ends_by_timer_or_by_wall_clock() {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let wall = SystemTime::UNIX_EPOCH;
        let took = |slept: Duration| async move {
            let began = tokio::time::Instant::now();
            // The first wait suspends the machine for the whole time.
            let looks = std::cell::Cell::new(0);
            let clock = || {
                let looked = looks.replace(looks.get() + 1);
                wall + began.elapsed() + if looked == 0 { Duration::ZERO } else { slept }
            };
            sleep_by_wall_clock(hours(5), clock).await;
            began.elapsed()
        };
        assert_eq!(took(Duration::ZERO).await, hours(5));
        assert!(took(hours(4)).await <= hours(1) + WALL_CLOCK_POLL);
        assert_eq!(took(hours(6)).await, Duration::ZERO);
        // A clock that does not advance, or is set back, delays nothing.
        let began = tokio::time::Instant::now();
        sleep_by_wall_clock(hours(5), || wall).await;
        assert_eq!(began.elapsed(), hours(5));
        sleep_by_wall_clock(Duration::from_millis(1), || wall).await;
    }

    #[tokio::test(start_paused = true)]
    async fn panicking_attempt_ends_the_run_with_a_driver_error() {
        let (drive, _) = drive(&["a-waits", "b-panics"]);
        let dropped = Arc::clone(&drive.executor.dropped);
        let (_person, inputs) = mpsc::channel(1);
        let error = drive
            .run(inputs, attached(), watch::channel(None).1)
            .await
            .unwrap_err();
        assert_eq!(
            dropped.load(Ordering::SeqCst),
            2,
            "nothing runs on when this returns"
        );
        let said = error.to_line();
        assert!(
            said.contains("on purpose")
                && said.contains("--debug")
                && !said.contains("free some space"),
            "{said}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn record_error_stops_running_attempts() {
        let (drive, notes) = drive(&["a-waits", "b-waits", "c"]);
        let (blown, is_blown) = watch::channel(None);
        let (_person, inputs) = mpsc::channel(1);
        let run = tokio::spawn(drive.run(inputs, attached(), is_blown));
        let error = RecordError::new("tape.jsonl", &std::io::ErrorKind::StorageFull.into());
        blown.send_replace(Some(error.clone()));
        assert_eq!(run.await.unwrap(), Err(error.into()));
        assert!(notes.0.lock().is_empty(), "no note is written about it");
    }

    #[tokio::test(start_paused = true)]
    async fn paused_run_without_a_screen_ends_after_the_timeout() {
        let (drive, notes) = drive(&["a-waits", "b-waits", "c"]);
        let (person, inputs) = mpsc::channel(4);
        let (clients, seen) = watch::channel(1);
        let limits = Arc::new(AttemptLimits::new(
            20,
            FailureRule::Strict,
            TimeLimitSettings::default(),
        ));
        let drive = drive.with_person_timeouts(Some(PersonTimeouts {
            clients: seen,
            limits,
            review: None,
        }));
        let (_, keep_open) = watch::channel(0);
        person
            .send(ScheduleEvent::Requested(RunCommand::Pause))
            .await
            .unwrap();
        for unit in ["a-waits", "b-waits"] {
            person
                .send(ScheduleEvent::Requested(RunCommand::Stop {
                    unit: unit.into(),
                }))
                .await
                .unwrap();
        }
        let began = tokio::time::Instant::now();
        let run = tokio::spawn(drive.run(inputs, keep_open, watch::channel(None).1));
        // A screen is attached for a week.
        tokio::time::sleep(UNATTENDED_WAIT * 7).await;
        clients.send_replace(0);
        let ended = run.await.unwrap().unwrap();
        assert_eq!(
            (ended.outcome.as_str(), ended.stopped, ended.not_run),
            ("limit", 2, 1)
        );
        assert_eq!(began.elapsed().as_secs(), UNATTENDED_WAIT.as_secs() * 8);
        let text = notes.0.lock().iter().find_map(|note| match note {
            Note::Message { text, .. } => Some(text.clone()),
            _ => None,
        });
        assert!(
            text.is_some_and(|text| text.contains("waited for a decision for 24h")),
            "{notes:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn pause_for_a_usage_limit_is_no_wait_for_a_person() {
        let (drive, notes) = drive(&["a", "b", "c"]);
        let (person, inputs) = mpsc::channel(4);
        let limits = Arc::new(AttemptLimits::new(
            20,
            FailureRule::Strict,
            TimeLimitSettings::default(),
        ));
        let clients = watch::channel(0).1;
        let drive = drive.with_person_timeouts(Some(PersonTimeouts {
            clients,
            limits,
            review: None,
        }));
        let wait = UNATTENDED_WAIT * 4;
        let window = LimitObservation {
            at: Millis(0),
            name: "seven_day".into(),
            status: LimitStatus::Rejected,
            utilization: None,
            resets_in_ms: Some(u64::try_from(wait.as_millis()).unwrap()),
        };
        person
            .send(ScheduleEvent::LimitObserved(window))
            .await
            .unwrap();
        let began = tokio::time::Instant::now();
        let ended = drive
            .run(inputs, watch::channel(0).1, watch::channel(None).1)
            .await
            .unwrap();
        assert_eq!(
            (ended.outcome.as_str(), ended.succeeded),
            ("done", 3),
            "{notes:?}"
        );
        assert!(
            began.elapsed() >= wait,
            "the last unit waited for the reset"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn stop_all_reaches_running_attempts() {
        let (drive, _) = drive(&["a-waits", "b-waits", "c"]);
        let (person, inputs) = mpsc::channel(1);
        let run = tokio::spawn(drive.run(inputs, attached(), watch::channel(None).1));
        person
            .send(ScheduleEvent::Requested(RunCommand::StopAll))
            .await
            .unwrap();
        drop(person);
        let ended = run.await.unwrap().unwrap();
        assert_eq!((ended.stopped, ended.not_run), (2, 1));
    }
}
