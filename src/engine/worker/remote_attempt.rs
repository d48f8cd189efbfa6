//! One attempt on a worker, from the side of the engine: sends what it needs, records its entries, asks for decisions,
//! and stores its patch.
//!
//! The worker is not trusted with more than its attempt: it can add entries of that attempt only, and its patch is
//! checked again when it is integrated.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::{
    StreamExt as _,
    future::{AbortHandle, Abortable, Aborted},
    stream::FuturesUnordered,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, MissedTickBehavior},
};

use super::{
    delivery::{Inbox, Outbox, PartArrival},
    pool::{AttemptMessage, WorkerPermit},
    protocol::{
        AttemptResult, AttemptShipment, EngineMessage, EnginePart, ResultFile, ShippedLimits,
        WorkerPart,
    },
};
use crate::{
    attempt_limits::AttemptLimits,
    attempt_order::AttemptOrder,
    local_attempt::{AttemptSinks, FinishedAttempt},
};
use ingestdeck_agent::attempt::{
    ApprovalDecision,
    time_limits::{AttemptTimeouts, LONGEST_TOOL_WAIT},
};
use ingestdeck_core::{
    actions::TurnTracker,
    decode,
    run::{NewEntry, attempt_reducer::AttemptReducer},
    tape::{EntryBody, Note, TapeEntry, UnitKey, note::StopMode},
};
use ingestdeck_ingest::{attempt::WrittenPatch, transcript};
use ingestdeck_os::scoped_dir::{PRIVATE_MODE, ScopedDir};

/// How often to look for parts that are not confirmed, and for limits that are exceeded.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a worker may take to end an attempt that a person stops or kills.
const STOP_PATIENCE: Duration = Duration::from_secs(20);
const KILL_PATIENCE: Duration = Duration::from_secs(5);
/// By how much an attempt may exceed its time limits, which its worker enforces.
const TIME_LIMIT_GRACE: Duration = Duration::from_secs(60);
/// How long a worker may take to accept a message.
const SEND_PATIENCE: Duration = Duration::from_secs(30);

/// Most bytes of the files of a result.
const MAX_RESULT_BYTES: usize = 256 << 20;
/// Most bytes of the entries of one attempt. Less in tests, which send as much.
pub(super) const MAX_ENTRY_BYTES: usize = if cfg!(test) { 4 << 20 } else { 256 << 20 };

/// How an attempt on a worker ended.
#[derive(Debug)]
pub(crate) enum RemoteEnd {
    Finished(Box<FinishedAttempt>),
    /// A person stopped it, and the worker did not end it in time.
    Stopped(StopMode),
    /// The worker was lost. Reads as a sentence.
    Lost(String),
    /// The worker sent something that no worker of this program sends. Reads as a sentence.
    Invalid(String),
    /// What the worker sent could not be written on this machine. Reads as a sentence.
    NotStored(String),
}

/// Why a part of an attempt cannot be used, as the end of a sentence about the worker.
enum PartError {
    /// No worker of this program sends it.
    Invalid(String),
    /// It could not be written on this machine.
    NotStored(String),
}

impl From<&str> for PartError {
    fn from(reason: &str) -> Self {
        Self::Invalid(reason.to_owned())
    }
}

/// Where the results of a remote attempt go.
#[derive(Debug)]
pub(crate) struct RemoteTarget {
    pub project: ScopedDir,
    pub job: String,
    /// Path for the patch, relative to the project.
    pub patch_path: String,
}

/// Runs an attempt on the worker of `permit`.
pub(crate) async fn run(
    mut permit: WorkerPermit,
    shipment: AttemptShipment,
    target: RemoteTarget,
    sinks: AttemptSinks,
    limits: &AttemptLimits,
    (early, mut orders): (Vec<AttemptOrder>, mpsc::Receiver<AttemptOrder>),
    ready: oneshot::Sender<()>,
) -> RemoteEnd {
    let mut reducer = AttemptReducer::new(TurnTracker::for_one_prompt());
    if shipment.task.amendment.resume.is_some() {
        reducer.resume_session(shipment.task.paid_usd);
    }
    let mut attempt = RemoteAttempt {
        unit: permit.lease.unit.clone(),
        number: permit.lease.attempt,
        base: shipment.base.commit.to_string(),
        target,
        reducer,
        inbox: Inbox::default(),
        entry_bytes: 0,
        files: BTreeMap::new(),
        ready: Some(ready),
    };
    let mut outbox = Outbox::default();
    let mut tick = tokio::time::interval(CHECK_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // When the worker confirmed something, or was last reminded.
    let mut progress = Instant::now();
    let mut first = vec![EnginePart::Start(Box::new(shipment))];
    first.extend(early.into_iter().filter_map(part_of));
    for part in first {
        if send(&permit, &mut outbox, part).await.is_err() {
            return RemoteEnd::Lost(worker_lost(&permit));
        }
    }
    let mut timeouts = limits.remote_timeouts();
    let mut applied = *timeouts.borrow_and_update();
    let mut decisions = FuturesUnordered::new();
    let mut handles: HashMap<u64, AbortHandle> = HashMap::new();
    let (mut has_orders, mut has_limits) = (true, true);
    let (mut began, mut heard) = (Instant::now(), Instant::now());
    let (mut last_tick, mut limits_since) = (Instant::now(), Instant::now());
    // How many calls are open, and since when.
    let (mut open_calls, mut in_tool_since) = (0, None);
    let mut stop: Option<(StopMode, Instant)> = None;
    loop {
        if let Some((how, _)) = stop.filter(|(_, until)| Instant::now() >= *until) {
            // The worker is also informed when it sends something about the attempt.
            let _ = permit.outgoing.try_send(EngineMessage::Revoked {
                lease: permit.lease.clone(),
            });
            return RemoteEnd::Stopped(how);
        }
        let event = tokio::select! {
            part = permit.incoming.recv() => match part {
                Some(AttemptMessage::Part { number, part }) => RemoteEvent::Part(number, part),
                Some(AttemptMessage::Received(count)) => {
                    outbox.confirm(count);
                    progress = Instant::now();
                    continue;
                }
                None => return RemoteEnd::Lost(worker_lost(&permit)),
            },
            order = orders.recv(), if has_orders => RemoteEvent::Order(order),
            Some(decided) = decisions.next() => RemoteEvent::Decided(decided),
            changed = timeouts.changed(), if has_limits => {
                has_limits = changed.is_ok();
                // As the worker does: a limit that did not apply counts from now. It also needs time to apply the others.
                let new = *timeouts.borrow();
                let now = Instant::now();
                (heard, limits_since) = (now, now);
                if std::mem::replace(&mut applied, new).total.is_none() {
                    began = now;
                }
                RemoteEvent::Send(EnginePart::Limits(shipped_limits(limits)))
            }
            _ = tick.tick() => RemoteEvent::Tick,
        };
        let sent = match event {
            RemoteEvent::Part(number, part) => {
                heard = Instant::now();
                let arrival = attempt.inbox.take(number);
                let done = match (arrival, part) {
                    (PartArrival::Next, WorkerPart::Call { call, request }) => {
                        let (handle, registration) = AbortHandle::new_pair();
                        handles.insert(call, handle);
                        let gate = Arc::clone(&sinks.gate);
                        let deciding = async move { (call, gate.decide(request).await) };
                        decisions.push(Abortable::new(deciding, registration));
                        None
                    }
                    (PartArrival::Next, WorkerPart::CallCancelled { call }) => {
                        handles.remove(&call).iter().for_each(AbortHandle::abort);
                        None
                    }
                    (PartArrival::Next, part) => attempt.take(part, &sinks).transpose(),
                    (PartArrival::Repeated | PartArrival::Early, _) => None,
                };
                // Confirmed after it is recorded.
                let received = EngineMessage::Received {
                    lease: permit.lease.clone(),
                    count: attempt.inbox.received(),
                };
                let confirmed = pass_on(&permit, received).await;
                match done {
                    Some(Ok(finished)) => return RemoteEnd::Finished(Box::new(finished)),
                    Some(Err(error)) => {
                        let lease = permit.lease.clone();
                        // The lease ends with the permit in any case.
                        let _ = pass_on(&permit, EngineMessage::Revoked { lease }).await;
                        return match error {
                            PartError::Invalid(reason) => {
                                RemoteEnd::Invalid(format!("worker {} {reason}", permit.worker))
                            }
                            PartError::NotStored(reason) => {
                                RemoteEnd::NotStored(format!("worker {} {reason}", permit.worker))
                            }
                        };
                    }
                    None => confirmed,
                }
            }
            RemoteEvent::Order(order) => {
                has_orders = order.is_some();
                if let Some(AttemptOrder::Stop(how @ (StopMode::Stop | StopMode::Kill))) = order {
                    let patience = if how == StopMode::Kill {
                        KILL_PATIENCE
                    } else {
                        STOP_PATIENCE
                    };
                    stop = Some((how, Instant::now() + patience));
                }
                match order.and_then(part_of) {
                    Some(part) => send(&permit, &mut outbox, part).await,
                    None => Ok(()),
                }
            }
            RemoteEvent::Decided(Ok((call, decision))) => {
                handles.remove(&call);
                send(
                    &permit,
                    &mut outbox,
                    EnginePart::Decision { call, decision },
                )
                .await
            }
            RemoteEvent::Decided(Err(Aborted)) => Ok(()),
            RemoteEvent::Send(part) => send(&permit, &mut outbox, part).await,
            RemoteEvent::Tick => {
                let since_tick = last_tick.elapsed();
                last_tick = Instant::now();
                let open = attempt.reducer.calls().open_count();
                // When one of several calls ends, the next one begins.
                if std::mem::replace(&mut open_calls, open) != open {
                    in_tool_since = (open > 0).then(Instant::now);
                }
                let is_in_tool =
                    in_tool_since.is_some_and(|since| since.elapsed() < LONGEST_TOOL_WAIT);
                // A call that waits for a person, for any time, or for a tool counts for no limit.
                if !handles.is_empty() || is_in_tool {
                    (began, heard) = (began + since_tick, heard + since_tick);
                }
                let AttemptTimeouts { silence, total, .. } = applied;
                let is_late = |since: Instant, limit: Duration| {
                    since.elapsed() >= limit + TIME_LIMIT_GRACE
                        && limits_since.elapsed() >= TIME_LIMIT_GRACE
                };
                let exceeded = |since: Instant, limit: Option<Duration>| {
                    limit.filter(|limit| is_late(since, *limit))
                };
                let late = [
                    (exceeded(heard, silence), "silence"),
                    (exceeded(began, total), "duration"),
                ];
                if let Some((limit, of)) =
                    late.into_iter().find_map(|(limit, of)| Some((limit?, of)))
                {
                    return RemoteEnd::Invalid(format!(
                        "worker {} does not end the attempt at the limit of its {of}, {} s",
                        permit.worker,
                        limit.as_secs()
                    ));
                }
                if permit
                    .resend_after
                    .is_some_and(|patience| progress.elapsed() >= patience)
                {
                    progress = Instant::now();
                    repeat(&permit, &outbox).await
                } else {
                    Ok(())
                }
            }
        };
        if sent.is_err() {
            return RemoteEnd::Lost(worker_lost(&permit));
        }
    }
}

enum RemoteEvent {
    Part(u64, WorkerPart),
    Order(Option<AttemptOrder>),
    Decided(Result<(u64, ApprovalDecision), Aborted>),
    Send(EnginePart),
    Tick,
}

struct RemoteAttempt {
    unit: UnitKey,
    number: u32,
    /// The commit that its patch must apply to.
    base: String,
    target: RemoteTarget,
    reducer: AttemptReducer,
    inbox: Inbox,
    /// Bytes of all entries so far.
    entry_bytes: usize,
    files: BTreeMap<ResultFile, Vec<u8>>,
    ready: Option<oneshot::Sender<()>>,
}

impl RemoteAttempt {
    /// Handles a part. Returns the end of the attempt after the last one.
    fn take(
        &mut self,
        part: WorkerPart,
        sinks: &AttemptSinks,
    ) -> Result<Option<FinishedAttempt>, PartError> {
        match part {
            WorkerPart::Entries(entries) => self.record(&entries, sinks)?,
            // The receiver is gone if the run is ending.
            WorkerPart::Ready => drop(self.ready.take().map(|ready| ready.send(()))),
            WorkerPart::ResultPiece { file, data } => {
                let data = BASE64_STANDARD
                    .decode(data)
                    .map_err(|_| "sent a file that is not Base64")?;
                let size: usize = self.files.values().map(Vec::len).sum();
                if size + data.len() > MAX_RESULT_BYTES {
                    return Err("sent a result that is too large".into());
                }
                self.files.entry(file).or_default().extend(data);
            }
            WorkerPart::Ended(result) => return self.finish(*result).map(Some),
            WorkerPart::Call { .. } | WorkerPart::CallCancelled { .. } => {}
        }
        Ok(None)
    }

    /// Appends entries to the tape, and shows its lines to the observer.
    fn record(
        &mut self,
        entries: &[Box<serde_json::value::RawValue>],
        sinks: &AttemptSinks,
    ) -> Result<(), PartError> {
        let attempt = Some((&self.unit, self.number));
        self.entry_bytes += entries.iter().map(|entry| entry.get().len()).sum::<usize>();
        if self.entry_bytes > MAX_ENTRY_BYTES {
            let reason = format!(
                "sent more than {} MiB of entries for one attempt",
                MAX_ENTRY_BYTES >> 20
            );
            return Err(PartError::Invalid(reason));
        }
        let mut new = Vec::with_capacity(entries.len());
        for entry in entries {
            let entry =
                TapeEntry::parse(entry.get().as_bytes()).map_err(|_| "sent an invalid entry")?;
            if let EntryBody::Note(note) = &entry.body
                && !is_note_of_an_agent(&Note::parse(note))
            {
                return Err("sent a note that an agent cannot cause".into());
            }
            new.push(NewEntry {
                attempt,
                body: entry.body,
            });
        }
        sinks.recorder.record(&new).map_err(|error| {
            PartError::NotStored(format!("sent entries that cannot be recorded: {error}"))
        })?;
        for entry in &new {
            if let EntryBody::Stdout(line) = &entry.body {
                let line = decode::decode_line(line);
                self.reducer.push(&line);
                sinks.observer.iter().for_each(|observer| {
                    observer.observe((&self.unit, self.number), &line, &self.reducer);
                });
            }
        }
        Ok(())
    }

    /// Stores the files of the result.
    fn finish(&mut self, result: AttemptResult) -> Result<FinishedAttempt, PartError> {
        let AttemptResult {
            mut ended,
            patch,
            warning,
        } = result;
        let RemoteTarget {
            project,
            job,
            patch_path,
            ..
        } = &self.target;
        let failed = |path: &str| {
            let path = path.to_owned();
            move |error: std::io::Error| {
                PartError::NotStored(format!(
                    "sent a result that cannot be stored in {path}: {error}"
                ))
            }
        };
        if let Some(lines) = self.files.remove(&ResultFile::Transcript) {
            let path = transcript::transcript_path(job, &self.unit);
            let appended = project
                .append_to(&path)
                .and_then(|mut file| std::io::Write::write_all(&mut file, &lines));
            appended.map_err(failed(&path))?;
            ended.work.transcript = Some(path);
        } else {
            // Only the engine chooses paths.
            ended.work.transcript = None;
        }
        ended.wrote.clear();
        let patch = match patch {
            None => None,
            Some(WrittenPatch { base, .. }) if base != self.base => {
                return Err("sent a patch for another base".into());
            }
            Some(WrittenPatch {
                base,
                path: None,
                paths,
            }) => Some(WrittenPatch {
                base,
                path: None,
                paths,
            }),
            Some(WrittenPatch {
                base,
                path: Some(_),
                paths,
            }) => {
                let bytes = self
                    .files
                    .remove(&ResultFile::Patch)
                    .ok_or("sent no patch")?;
                project
                    .write(patch_path, &bytes, PRIVATE_MODE, 0o600)
                    .map_err(failed(patch_path))?;
                Some(WrittenPatch {
                    base,
                    path: Some(patch_path.clone()),
                    paths,
                })
            }
        };
        Ok(FinishedAttempt::of_worker(ended, patch, warning))
    }
}

/// True for the notes that running an agent causes.
fn is_note_of_an_agent(note: &Note) -> bool {
    matches!(
        note,
        Note::AttemptStarted(_)
            | Note::Message { .. }
            | Note::MessageSent { .. }
            | Note::ToolFailed { .. }
            | Note::ToolDeclined { .. }
            | Note::IsolationChecked(_)
    )
}

/// The limits of a run, for a worker.
pub(super) fn shipped_limits(limits: &AttemptLimits) -> ShippedLimits {
    let (current, timeouts) = (limits.current(), *limits.remote_timeouts().borrow());
    ShippedLimits {
        step_budget: current.step_budget,
        rule: current.rule,
        timeouts,
    }
}

fn worker_lost(permit: &WorkerPermit) -> String {
    format!("worker {} was lost", permit.worker)
}

/// A drain is not passed on: running attempts may finish.
fn part_of(order: AttemptOrder) -> Option<EnginePart> {
    match order {
        // Only sessions take requests.
        AttemptOrder::Stop(StopMode::Drain) | AttemptOrder::Request(_) => None,
        AttemptOrder::Stop(how) => Some(EnginePart::Stop(how)),
        AttemptOrder::Message(text) => Some(EnginePart::Message { text }),
    }
}

async fn send(
    permit: &WorkerPermit,
    outbox: &mut Outbox<EnginePart>,
    part: EnginePart,
) -> Result<(), ()> {
    let number = outbox.push(part.clone());
    if permit.resend_after.is_none() {
        outbox.confirm(number + 1);
    }
    pass_on(
        permit,
        EngineMessage::Attempt {
            lease: permit.lease.clone(),
            number,
            part,
        },
    )
    .await
}

/// Queues a message for the worker; fails if the worker is gone or accepts nothing.
async fn pass_on(permit: &WorkerPermit, message: EngineMessage) -> Result<(), ()> {
    tokio::time::timeout(SEND_PATIENCE, permit.outgoing.send(message))
        .await
        .map_err(drop)?
        .map_err(drop)
}

async fn repeat(permit: &WorkerPermit, outbox: &Outbox<EnginePart>) -> Result<(), ()> {
    for (number, part) in outbox.unconfirmed() {
        pass_on(
            permit,
            EngineMessage::Attempt {
                lease: permit.lease.clone(),
                number,
                part: part.clone(),
            },
        )
        .await?;
    }
    Ok(())
}
