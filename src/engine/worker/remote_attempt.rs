//! One attempt on a worker, from the side of the engine: sends what it needs, records its entries, asks for decisions,
//! and stores its patch.
//!
//! The worker is not trusted with more than its attempt: it can add entries of that attempt only, and its patch is
//! checked again when it is integrated.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
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
    pool::{AttemptPart, WorkerPermit},
    prior_attempts::AdoptedAttempt,
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

/// How often to look for limits that are exceeded.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a worker may take to end an attempt that a person stops or kills.
const STOP_PATIENCE: Duration = Duration::from_secs(20);
const KILL_PATIENCE: Duration = Duration::from_secs(5);
/// How long a worker may leave an attempt that has a slot there, if it is heard: its files may be on their way.
const TAKE_PATIENCE: Duration = Duration::from_secs(15 * 60);
/// A check that is late by this much means that this process, or its machine, was asleep.
const SLEEP_THRESHOLD: Duration = Duration::from_secs(5);
/// By how much an attempt may exceed its time limits, which its worker enforces.
const TIME_LIMIT_GRACE: Duration = Duration::from_secs(60);
/// How long a worker may take to accept a message.
const SEND_PATIENCE: Duration = Duration::from_secs(30);

/// Most bytes of the files of a result.
pub(super) const MAX_RESULT_BYTES: usize = 256 << 20;
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
    /// The worker does not begin it. Reads as a sentence.
    NotTaken(String),
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
    /// What another run recorded of the attempt is not on its tape.
    Incomplete,
}

impl PartError {
    fn into_end(self, worker: &str) -> RemoteEnd {
        match self {
            Self::Invalid(reason) => RemoteEnd::Invalid(format!("worker {worker} {reason}")),
            Self::NotStored(reason) => RemoteEnd::NotStored(format!("worker {worker} {reason}")),
            Self::Incomplete => RemoteEnd::Lost(
                "the tape of the earlier run lacks a part of the attempt".to_owned(),
            ),
        }
    }
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
    permit: &mut WorkerPermit,
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
        number: shipment.task.attempt,
        base: shipment.base.commit.to_string(),
        target,
        reducer,
        entry_bytes: 0,
        lines: 0,
        is_adopted: permit.adopted.is_some(),
        last_notes: Vec::new(),
        files: BTreeMap::new(),
        ready: Some(ready),
    };
    let mut tick = tokio::time::interval(CHECK_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let adopted = permit.adopted.take();
    let mut is_taken = adopted.is_some();
    let mut first = Vec::new();
    match adopted {
        None => first.push(EnginePart::Start(Box::new(shipment))),
        Some(AdoptedAttempt { entries, .. }) => {
            if let Err(error) = attempt.replay(&entries, &sinks) {
                return error.into_end(&permit.worker);
            }
            first.push(EnginePart::Adopted);
        }
    }
    first.extend(early.into_iter().filter_map(part_of));
    first.push(EnginePart::Unattended {
        passes_calls: sinks.gate.passes_calls(),
    });
    for part in first {
        // What a worker that is gone has stored arrives all the same.
        if send(permit, part).await.is_err() && !attempt.is_adopted {
            return RemoteEnd::Lost(worker_lost(permit));
        }
    }
    let mut timeouts = limits.remote_timeouts();
    let mut applied = *timeouts.borrow_and_update();
    let mut decisions = FuturesUnordered::new();
    let mut handles: HashMap<u64, AbortHandle> = HashMap::new();
    // A call that an earlier engine asked about may arrive twice.
    let mut known_calls = HashSet::new();
    let (mut has_orders, mut has_limits) = (true, true);
    let (mut began, mut heard) = (Instant::now(), Instant::now());
    let (mut last_tick, mut limits_since) = (Instant::now(), Instant::now());
    // Since when the worker could begin, but for these times.
    let (ordered, mut waiting) = (Instant::now(), Duration::ZERO);
    let mut passes_calls = sinks.gate.passes_calls();
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
                Some(part) => RemoteEvent::Part(part),
                None => return RemoteEnd::Lost(worker_lost(permit)),
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
            RemoteEvent::Part(AttemptPart { part, handled }) => {
                heard = Instant::now();
                let is_result =
                    matches!(part, WorkerPart::ResultPiece { .. } | WorkerPart::Ended(_));
                let done = match part {
                    WorkerPart::Taken => {
                        is_taken = true;
                        began = heard;
                        None
                    }
                    WorkerPart::Unknown => {
                        return RemoteEnd::Lost("the worker no longer has the attempt".to_owned());
                    }
                    WorkerPart::Call { call, request } => {
                        if known_calls.insert(call) {
                            let (handle, registration) = AbortHandle::new_pair();
                            handles.insert(call, handle);
                            let gate = Arc::clone(&sinks.gate);
                            let deciding = async move { (call, gate.decide(request).await) };
                            decisions.push(Abortable::new(deciding, registration));
                        }
                        None
                    }
                    WorkerPart::CallCancelled { call } => {
                        handles.remove(&call).iter().for_each(AbortHandle::abort);
                        None
                    }
                    part => attempt.take(part, &sinks).transpose(),
                };
                // Confirmed after it is recorded: a result with the end of the attempt.
                permit.unconfirmed.extend(handled.filter(|_| is_result));
                match done {
                    Some(Ok(finished)) => return RemoteEnd::Finished(Box::new(finished)),
                    Some(Err(error)) => {
                        let lease = permit.lease.clone();
                        // The lease ends with the permit in any case.
                        let _ = pass_on(permit, EngineMessage::Revoked { lease }).await;
                        return error.into_end(&permit.worker);
                    }
                    None => Ok(()),
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
                    Some(part) => send(permit, part).await,
                    None => Ok(()),
                }
            }
            RemoteEvent::Decided(Ok((call, decision))) => {
                handles.remove(&call);
                send(permit, EnginePart::Decision { call, decision }).await
            }
            RemoteEvent::Decided(Err(Aborted)) => Ok(()),
            RemoteEvent::Send(part) => send(permit, part).await,
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
                // A call that waits for a person, for any time, or for a tool counts for no limit; neither does the time
                // before the attempt has a slot, without a connection to the worker, or in the sleep of this machine.
                let is_away = *permit.is_away.borrow();
                let has_slept = since_tick >= CHECK_INTERVAL + SLEEP_THRESHOLD;
                if is_away || has_slept || !permit.could_be_taken() {
                    waiting += since_tick;
                }
                if !handles.is_empty() || is_in_tool || is_away || has_slept || !is_taken {
                    (began, heard) = (began + since_tick, heard + since_tick);
                }
                let passes = sinks.gate.passes_calls();
                let is_new = std::mem::replace(&mut passes_calls, passes) != passes;
                if !is_taken && ordered.elapsed() >= TAKE_PATIENCE + waiting {
                    return RemoteEnd::NotTaken(format!(
                        "worker {} has a slot and does not begin the attempt",
                        permit.worker
                    ));
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
                match is_new {
                    true => {
                        let passes_calls = passes;
                        send(permit, EnginePart::Unattended { passes_calls }).await
                    }
                    false => Ok(()),
                }
            }
        };
        if sent.is_err() {
            return RemoteEnd::Lost(worker_lost(permit));
        }
    }
}

enum RemoteEvent {
    Part(AttemptPart),
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
    /// Bytes of all entries so far.
    entry_bytes: usize,
    /// Number of lines so far. Notes are not lines.
    lines: u64,
    /// Another run began the attempt.
    is_adopted: bool,
    /// The notes after the last line that another run recorded.
    last_notes: Vec<Vec<u8>>,
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
            WorkerPart::Entries {
                lines_before,
                entries,
            } => {
                let entries: Vec<&[u8]> =
                    entries.iter().map(|entry| entry.get().as_bytes()).collect();
                let new = self.new_entries(lines_before, &entries)?;
                self.record(&new, sinks)?;
            }
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
            WorkerPart::Taken
            | WorkerPart::Unknown
            | WorkerPart::Call { .. }
            | WorkerPart::CallCancelled { .. } => {}
        }
        Ok(None)
    }

    /// Records what another run recorded of the attempt.
    fn replay(&mut self, entries: &[Vec<u8>], sinks: &AttemptSinks) -> Result<(), PartError> {
        let entries: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
        self.record(&entries, sinks)?;
        let notes = entries.iter().rev().take_while(|entry| !is_line(entry));
        self.last_notes = notes.map(|entry| body_of(entry)).collect();
        Ok(())
    }

    /// Those of `entries` that are not recorded yet. What an engine recorded before it was killed may arrive again.
    fn new_entries<'e>(
        &self,
        lines_before: u64,
        entries: &[&'e [u8]],
    ) -> Result<Vec<&'e [u8]>, PartError> {
        let mut line = lines_before;
        if line > self.lines {
            return Err(match self.is_adopted {
                true => PartError::Incomplete,
                false => "left out entries".into(),
            });
        }
        let mut new = Vec::with_capacity(entries.len());
        for entry in entries {
            let is_line = is_line(entry);
            let is_known = line < self.lines
                || (!is_line && line == self.lines && self.last_notes.contains(&body_of(entry)));
            if !is_known {
                new.push(*entry);
            }
            line += u64::from(is_line);
        }
        Ok(new)
    }

    /// Appends entries to the tape, and shows its lines to the observer.
    fn record(&mut self, entries: &[&[u8]], sinks: &AttemptSinks) -> Result<(), PartError> {
        let attempt = Some((&self.unit, self.number));
        self.entry_bytes += entries.iter().map(|entry| entry.len()).sum::<usize>();
        if self.entry_bytes > MAX_ENTRY_BYTES {
            let reason = format!(
                "sent more than {} MiB of entries for one attempt",
                MAX_ENTRY_BYTES >> 20
            );
            return Err(PartError::Invalid(reason));
        }
        let mut new = Vec::with_capacity(entries.len());
        for entry in entries {
            let entry = TapeEntry::parse(entry).map_err(|_| "sent an invalid entry")?;
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
            if !matches!(entry.body, EntryBody::Note(_)) {
                self.lines += 1;
                self.last_notes.clear();
            }
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

/// True for an entry that is not a note.
fn is_line(entry: &[u8]) -> bool {
    !TapeEntry::parse(entry).is_ok_and(|entry| matches!(entry.body, EntryBody::Note(_)))
}

/// An entry without its number, its time and its attempt, which differ between runs.
fn body_of(entry: &[u8]) -> Vec<u8> {
    match TapeEntry::parse(entry).map(|entry| entry.body) {
        Ok(EntryBody::Note(note)) => serde_json::to_vec(&note).unwrap_or_default(),
        _ => entry.to_vec(),
    }
}

/// True for the notes that running an agent causes.
pub(super) fn is_note_of_an_agent(note: &Note) -> bool {
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

async fn send(permit: &WorkerPermit, part: EnginePart) -> Result<(), ()> {
    let lease = permit.lease.clone();
    pass_on(permit, EngineMessage::Attempt { lease, part }).await
}

/// Queues a message for the worker; fails if the worker is gone or accepts nothing.
async fn pass_on(permit: &WorkerPermit, message: EngineMessage) -> Result<(), ()> {
    tokio::time::timeout(SEND_PATIENCE, permit.outgoing.send(message))
        .await
        .map_err(drop)?
        .map_err(drop)
}
