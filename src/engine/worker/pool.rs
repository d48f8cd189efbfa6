//! The places where attempts of a run can run: the slots of this machine and those of its workers.
//!
//! An attempt claims a place and gives it back at its end. A worker is offered an attempt only if it can read every
//! database that the engine can read, and while the usage limit of its account is not spent. The pool must not know how
//! workers are connected, nor what attempts do.

mod limits;
mod members;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use self::limits::is_ahead;
use super::{
    names::free_name,
    prior_attempts::AdoptedAttempt,
    protocol::{AttemptLease, EngineMessage, PROTOCOL_VERSION, WorkerJoin, WorkerLoad, WorkerPart},
};
use ingestdeck_core::{
    run::Recorder,
    tape::{
        Note, UnitKey,
        note::{PoolUse, Severity},
    },
    units::schedule::ScheduleEvent,
};

/// Why a session can continue on no machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SessionLost {
    #[error("the session is on worker {0}, where nothing starts any longer")]
    Draining(String),
    #[error("the session is on worker {0}, which has left")]
    Left(String),
    #[error("no worker has the session, and this machine runs nothing")]
    Nowhere,
    #[error("the file of the session is gone, or has changed since the session was cut")]
    Unusable,
}

/// Messages of a worker that wait for their attempt. Further ones wait in the connection.
const MESSAGE_QUEUE_CAPACITY: usize = 256;
/// The same for an attempt that no unit has claimed yet: those of other attempts must not wait behind them.
const ADOPTED_QUEUE_CAPACITY: usize = 100_000;
/// How long a worker rests whose agent refused to start.
const REFUSAL_REST: Duration = Duration::from_secs(1);

/// The workers of a run, and the places that are in use.
#[derive(Debug)]
pub(crate) struct SlotPool {
    state: Mutex<PoolState>,
    /// Counts changes that may free a place.
    changed: watch::Sender<u64>,
    /// True once the run is over.
    ended: watch::Sender<bool>,
    recorder: Arc<dyn Recorder>,
    /// Weak: it does not keep a run open.
    schedule: mpsc::WeakSender<ScheduleEvent>,
}

#[derive(Debug, Default)]
struct PoolState {
    local: LocalPlaces,
    workers: BTreeMap<String, PoolWorker>,
    /// Names of workers that are present or about to join.
    names: HashSet<String>,
    /// Until when workers of an account rest because another place reported its usage limit as spent.
    spent: HashMap<String, Instant>,
    /// The worker of each session, which only that worker can continue.
    sessions: HashMap<String, String>,
    /// Logins of workers over SSH that have joined.
    joined_logins: HashSet<String>,
    /// Sessions whose worker has left, with its name: their files are gone.
    lost_sessions: HashMap<String, String>,
    /// Machines that the user named and whose workers sent something invalid.
    banned: HashSet<String>,
    /// Connections whose databases the engine can read.
    databases: Vec<String>,
    next_fence: u64,
    /// Number of transports that may still bring a worker. One that returns may join before its loss is noticed.
    pending_transports: i64,
    adoption: AdoptionState,
}

/// Attempts of the run that this one continues, which still run on workers, or whose results wait.
#[derive(Debug, Default)]
struct AdoptionState {
    /// Servers whose attempts are not known yet, so nothing may start.
    pending: u32,
    attempts: HashMap<UnitKey, AdoptableAttempt>,
}

#[derive(Debug)]
struct AdoptableAttempt {
    worker: String,
    lease: AttemptLease,
    incoming: mpsc::Receiver<AttemptPart>,
    adopted: AdoptedAttempt,
}

#[derive(Debug, Default)]
struct LocalPlaces {
    slots: u32,
    running: u32,
    /// The agent was found to be usable here.
    is_usable: bool,
    /// Whose usage limits apply; `None` if that is unknown.
    account: Option<String>,
    /// Until when the usage limit is spent, as an attempt here has found.
    limit_rest: Option<Instant>,
}

#[derive(Debug)]
struct PoolWorker {
    /// What its machine calls itself, or what the user calls it. Several workers may be on one.
    machine: String,
    is_named_by_user: bool,
    /// Its login at the server of the run, if it came over SSH.
    login: Option<String>,
    join: WorkerJoin,
    connections: Vec<String>,
    /// Nothing new starts there.
    is_draining: bool,
    outgoing: mpsc::Sender<EngineMessage>,
    /// Its transport connects again when it is lost.
    returns: bool,
    /// It only ends the attempts of an earlier run.
    is_adopted: bool,
    /// What other runs do there.
    load: WorkerLoad,
    /// It is not heard at the moment.
    away: watch::Sender<bool>,
    /// Where the parts of its attempts go.
    attempts: HashMap<AttemptLease, mpsc::Sender<AttemptPart>>,
    /// Until when it rests, because its agent refused to start and has not started since.
    refusal_rest: Option<Instant>,
    /// Until when the usage limit is spent, as an attempt there has found.
    limit_rest: Option<Instant>,
}

impl PoolWorker {
    /// True if an attempt may start there, or is the next one to start: a worker runs attempts in the order in which runs
    /// ask for them, so each run may use its share although others use more.
    fn has_room(&self) -> bool {
        let share = self.join.slots / self.load.runs.max(1);
        let free = self.join.slots.saturating_sub(self.load.others);
        self.attempts.len() < free.max(share).max(1) as usize
            && self
                .refusal_rest
                .is_none_or(|until| until <= Instant::now())
    }

    /// How much of it is in use, in thousandths.
    fn use_permille(&self) -> usize {
        (self.attempts.len() + self.load.others as usize) * 1_000 / self.join.slots.max(1) as usize
    }

    fn reaches(&self, databases: &[String]) -> bool {
        databases
            .iter()
            .all(|database| self.connections.contains(database))
    }
}

/// A part of an attempt that has arrived.
#[derive(Debug)]
pub(crate) struct AttemptPart {
    pub part: WorkerPart,
    /// Dropped once the part is recorded.
    pub handled: Option<oneshot::Sender<()>>,
}

/// Where an attempt runs.
#[derive(Debug)]
pub(crate) enum AttemptPlace {
    Local(#[expect(dead_code, reason = "gives the slot back when it is dropped")] LocalPermit),
    Worker(Box<WorkerPermit>),
}

/// A slot of this machine, given back on drop.
#[derive(Debug)]
pub(crate) struct LocalPermit {
    pool: Arc<SlotPool>,
}

/// A slot of a worker, given back on drop.
#[derive(Debug)]
pub(crate) struct WorkerPermit {
    pool: Arc<SlotPool>,
    pub worker: String,
    pub account: String,
    pub lease: AttemptLease,
    pub outgoing: mpsc::Sender<EngineMessage>,
    /// Messages of the worker about the attempt, until it is lost.
    pub incoming: mpsc::Receiver<AttemptPart>,
    /// The worker is not heard at the moment.
    pub is_away: watch::Receiver<bool>,
    /// The attempt began in an earlier run.
    pub adopted: Option<AdoptedAttempt>,
    /// Parts of the result, confirmed with the permit: when the end of the attempt is recorded.
    pub unconfirmed: Vec<oneshot::Sender<()>>,
}

impl SlotPool {
    /// A pool with `slots` of this machine, for a run that reads the databases of these connections.
    pub(crate) fn new(
        slots: u32,
        account: Option<String>,
        databases: Vec<String>,
        recorder: Arc<dyn Recorder>,
        schedule: mpsc::WeakSender<ScheduleEvent>,
    ) -> Arc<Self> {
        let local = LocalPlaces {
            slots,
            running: 0,
            is_usable: slots > 0,
            account,
            limit_rest: None,
        };
        let state = Mutex::new(PoolState {
            local,
            databases,
            next_fence: 1,
            ..PoolState::default()
        });
        let (changed, ended) = (watch::channel(0).0, watch::channel(false).0);
        Arc::new(Self {
            state,
            changed,
            ended,
            recorder,
            schedule,
        })
    }

    /// Waits for a place for an attempt at `unit`. `session` is the session that it continues: only the worker that has
    /// it may continue it.
    ///
    /// # Errors
    /// If the session is on no machine that can continue it.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        unit: &UnitKey,
        attempt: u32,
        session: Option<&str>,
    ) -> Result<AttemptPlace, SessionLost> {
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            let wake = match self.try_claim(unit, attempt, session)? {
                ClaimOutcome::Place(place) => return Ok(place),
                ClaimOutcome::Wait(until) => until,
            };
            let timer = async {
                match wake {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = changed.changed() => {}
                () = timer => {}
            }
        }
    }

    fn try_claim(
        self: &Arc<Self>,
        unit: &UnitKey,
        attempt: u32,
        session: Option<&str>,
    ) -> Result<ClaimOutcome, SessionLost> {
        let mut state = self.state();
        let now = Instant::now();
        if state.adoption.pending > 0 {
            return Ok(ClaimOutcome::Wait(None));
        }
        if session.is_none()
            && let Some(found) = state.adoption.attempts.remove(unit)
        {
            return Ok(ClaimOutcome::Place(self.grant_adopted(&state, found)));
        }
        state.spent.retain(|_, until| *until > now);
        let rests = state
            .workers
            .values()
            .flat_map(|of| [of.refusal_rest, of.limit_rest])
            .chain([state.local.limit_rest])
            .flatten()
            .filter(|until| *until > now);
        let wake = rests.chain(state.spent.values().copied()).min();
        if let Some(worker) = session
            .and_then(|session| state.sessions.get(session))
            .cloned()
        {
            return match state.workers.get(&worker) {
                Some(of) if of.is_draining => Err(SessionLost::Draining(worker)),
                Some(of) if of.has_room() && !state.rests(of) => Ok(ClaimOutcome::Place(
                    self.grant(&mut state, &worker, unit, attempt),
                )),
                Some(_) => Ok(ClaimOutcome::Wait(wake)),
                None => Err(SessionLost::Left(worker)),
            };
        }
        let is_free = |of: &PoolWorker| {
            !of.is_draining && of.has_room() && of.reaches(&state.databases) && !state.rests(of)
        };
        // The emptiest worker first. A session that no worker has continues here.
        let free = state
            .workers
            .iter()
            .filter(|(_, of)| session.is_none() && is_free(of));
        let emptiest = free.min_by_key(|(_, of)| of.use_permille());
        if let Some(worker) = emptiest.map(|(name, _)| name.clone()) {
            return Ok(ClaimOutcome::Place(
                self.grant(&mut state, &worker, unit, attempt),
            ));
        }
        let is_spent = is_ahead(state.local.limit_rest);
        if state.local.running < state.local.slots && !is_spent {
            state.local.running += 1;
            return Ok(ClaimOutcome::Place(AttemptPlace::Local(LocalPermit {
                pool: Arc::clone(self),
            })));
        }
        if state.local.slots == 0 && session.is_some() {
            return Err(SessionLost::Nowhere);
        }
        Ok(ClaimOutcome::Wait(wake))
    }

    fn grant(
        self: &Arc<Self>,
        state: &mut PoolState,
        worker: &str,
        unit: &UnitKey,
        attempt: u32,
    ) -> AttemptPlace {
        let lease = AttemptLease {
            unit: unit.clone(),
            attempt,
            fence: state.next_fence,
        };
        state.next_fence += 1;
        let (parts, incoming) = mpsc::channel(MESSAGE_QUEUE_CAPACITY);
        if let Some(of) = state.workers.get_mut(worker) {
            of.attempts.insert(lease.clone(), parts);
        }
        self.permit(state, worker, lease, incoming, None)
    }

    fn grant_adopted(self: &Arc<Self>, state: &PoolState, found: AdoptableAttempt) -> AttemptPlace {
        let AdoptableAttempt {
            worker,
            lease,
            incoming,
            adopted,
        } = found;
        self.permit(state, &worker, lease, incoming, Some(adopted))
    }

    /// The permit for an attempt on `worker`; it counts as lost without one.
    fn permit(
        self: &Arc<Self>,
        state: &PoolState,
        worker: &str,
        lease: AttemptLease,
        incoming: mpsc::Receiver<AttemptPart>,
        adopted: Option<AdoptedAttempt>,
    ) -> AttemptPlace {
        let (outgoing, account, is_away) = match state.workers.get(worker) {
            Some(of) => (
                of.outgoing.clone(),
                of.join.account.clone(),
                of.away.subscribe(),
            ),
            None => (
                mpsc::channel(1).0,
                String::new(),
                watch::channel(false).0.subscribe(),
            ),
        };
        AttemptPlace::Worker(Box::new(WorkerPermit {
            pool: Arc::clone(self),
            worker: worker.to_owned(),
            account,
            lease,
            outgoing,
            incoming,
            is_away,
            adopted,
            unconfirmed: Vec::new(),
        }))
    }

    /// Nothing starts until the attempts of an earlier run at one more server are known.
    pub(super) fn await_adoption(&self) {
        self.state().adoption.pending += 1;
    }

    /// The attempts of an earlier run at a server are known, or cannot be.
    pub(super) fn end_adoption(&self) {
        let mut state = self.state();
        state.adoption.pending = state.adoption.pending.saturating_sub(1);
        self.send_slots(&state);
        drop(state);
    }

    /// Adds a worker that only ends these attempts of an earlier run. Returns its name.
    pub(super) fn add_adopted(
        &self,
        machine: &str,
        attempts: Vec<(AttemptLease, AdoptedAttempt)>,
        outgoing: &mpsc::Sender<EngineMessage>,
    ) -> String {
        let mut state = self.state();
        let name = free_name(machine, |name| state.names.contains(name));
        state.names.insert(name.clone());
        let mut worker = PoolWorker {
            machine: machine.to_owned(),
            is_named_by_user: false,
            login: None,
            join: WorkerJoin {
                protocol: PROTOCOL_VERSION,
                program: String::new(),
                agent_release: String::new(),
                host: name.clone(),
                slots: 0,
                account: machine.to_owned(),
                clock_ms: 0,
            },
            connections: Vec::new(),
            is_draining: true,
            outgoing: outgoing.clone(),
            returns: false,
            is_adopted: true,
            load: WorkerLoad::default(),
            away: watch::channel(false).0,
            attempts: HashMap::new(),
            refusal_rest: None,
            limit_rest: None,
        };
        for (lease, adopted) in attempts {
            let (parts, incoming) = mpsc::channel(ADOPTED_QUEUE_CAPACITY);
            worker.attempts.insert(lease.clone(), parts);
            worker.join.account.clone_from(&adopted.account);
            let found = AdoptableAttempt {
                worker: name.clone(),
                lease: lease.clone(),
                incoming,
                adopted,
            };
            state.adoption.attempts.insert(lease.unit, found);
        }
        state.workers.insert(name.clone(), worker);
        drop(state);
        name
    }

    /// True if a worker was only to end attempts, and they are over.
    pub(super) fn is_collected(&self, name: &str) -> bool {
        let state = self.state();
        let worker = state.workers.get(name);
        worker.is_some_and(|of| of.is_adopted && of.attempts.is_empty())
    }

    /// What other runs do on a worker.
    pub(super) fn set_load(&self, name: &str, load: WorkerLoad) {
        if let Some(worker) = self.state().workers.get_mut(name) {
            worker.load = load;
        }
        self.mark_changed();
    }

    /// Slots that other runs hold, by worker.
    pub(super) fn slots_of_others(&self) -> BTreeMap<String, u32> {
        let state = self.state();
        let workers = state.workers.iter();
        workers
            .filter(|(_, of)| !of.is_adopted && of.load.others > 0)
            .map(|(name, of)| (name.clone(), of.load.others))
            .collect()
    }

    /// Records what other runs of the pool do.
    pub(super) fn record_use(&self, pool: PoolUse) {
        self.record(&Note::PoolUse(pool));
    }

    /// Whether a worker is not heard at the moment.
    pub(super) fn set_away(&self, name: &str, is_away: bool) {
        if let Some(worker) = self.state().workers.get_mut(name) {
            let _ = worker
                .away
                .send_if_modified(|known| std::mem::replace(known, is_away) != is_away);
        }
    }

    /// A transport starts to look for a worker.
    pub(crate) fn add_transport(&self) {
        self.state().pending_transports += 1;
    }

    /// A transport has given up: it brings no further worker.
    pub(crate) fn remove_transport(&self) {
        let mut state = self.state();
        state.pending_transports -= 1;
        self.send_slots(&state);
        drop(state);
    }

    /// The worker that had a session which can no longer continue.
    pub(crate) fn worker_of_lost_session(&self, session: &str) -> Option<String> {
        let state = self.state();
        if let Some(worker) = state.lost_sessions.get(session) {
            return Some(worker.clone());
        }
        let worker = state.sessions.get(session)?;
        let is_gone = state.workers.get(worker).is_none_or(|of| of.is_draining);
        is_gone.then(|| worker.clone())
    }

    /// Units may run on this machine later although it begins without slots.
    pub(crate) fn allow_local(&self) {
        self.state().local.is_usable = true;
    }

    /// True if units cannot run on this machine.
    pub(crate) fn is_remote_only(&self) -> bool {
        !self.state().local.is_usable
    }

    /// Where the messages about an attempt go; `None` if the lease is not valid.
    pub(super) fn attempt(
        &self,
        worker: &str,
        lease: &AttemptLease,
    ) -> Option<mpsc::Sender<AttemptPart>> {
        self.state()
            .workers
            .get(worker)?
            .attempts
            .get(lease)
            .cloned()
    }

    /// The account of the worker that has a lease.
    pub(super) fn account_of(&self, lease: &AttemptLease) -> String {
        let state = self.state();
        let worker = state
            .workers
            .values()
            .find(|of| of.attempts.contains_key(lease));
        worker.map(|of| of.join.account.clone()).unwrap_or_default()
    }

    /// Sets the number of slots of this machine.
    pub(crate) fn set_local_slots(&self, slots: u32) {
        self.state().local.slots = slots;
        self.mark_changed();
    }

    /// Remembers which worker has a session.
    pub(crate) fn record_session(&self, session: &str, worker: &str) {
        self.state()
            .sessions
            .insert(session.to_owned(), worker.to_owned());
    }

    /// The run is over: connections end, and nothing more is recorded.
    pub(crate) fn end(&self) {
        self.ended.send_replace(true);
    }

    /// True once the run is over.
    pub(super) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Waits until the run is over.
    pub(super) async fn ended(&self) {
        // The pool owns the sender.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Records a message about a worker that has not joined.
    pub(super) fn warn(&self, level: Severity, text: String) {
        self.record(&Note::Message { level, text });
    }

    fn record(&self, note: &Note) {
        if *self.ended.borrow() {
            return;
        }
        if let Err(error) = self.recorder.record_note(None, note) {
            tracing::error!(%error, "a note is lost");
        }
    }

    /// Sends the slots of all workers. The caller holds the lock, so that the last value arrives last.
    fn send_slots(&self, state: &PoolState) {
        let event = ScheduleEvent::WorkerSlotsChanged {
            slots: state.offered_slots(),
            lack: state.lack_of_workers(),
        };
        self.mark_changed();
        if let Some(schedule) = self.schedule.upgrade()
            && schedule.try_send(event).is_err()
        {
            tracing::warn!("a change of workers was not sent to the schedule");
        }
    }

    fn mark_changed(&self) {
        self.changed
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    /// The state stays valid if a thread panics while it holds the lock.
    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock()
    }
}

enum ClaimOutcome {
    Place(AttemptPlace),
    /// Nothing is free; a limit is reset or a rest ends then.
    Wait(Option<Instant>),
}

impl PoolState {
    /// The slots of all workers that can run attempts.
    fn offered_slots(&self) -> u32 {
        let usable = self
            .workers
            .values()
            .filter(|of| !of.is_draining && of.reaches(&self.databases));
        let adopted = self.workers.values().filter(|of| of.is_adopted);
        // The results of a worker that is gone may have arrived.
        let is_gone = |of: &&AdoptableAttempt| !self.workers.contains_key(&of.worker);
        let adopted: usize = adopted.map(|of| of.attempts.len()).sum::<usize>()
            + self.adoption.attempts.values().filter(is_gone).count();
        usable.map(|of| of.join.slots).sum::<u32>() + u32::try_from(adopted).unwrap_or(u32::MAX)
    }

    /// Why no worker can ever run an attempt; `None` if one may.
    fn lack_of_workers(&self) -> Option<String> {
        if self.pending_transports > 0 || self.offered_slots() > 0 {
            return None;
        }
        Some(match self.workers.values().find(|of| !of.is_draining) {
            None => {
                "no worker is left that starts units, and this machine runs none; set --concurrency"
                    .to_owned()
            }
            Some(_) => {
                let databases = self.databases.join(" and ");
                format!(
                    "no worker can read the database of {databases}; name it in ingest.allow_paths there, or set --concurrency"
                )
            }
        })
    }
}

impl Drop for LocalPermit {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        state.local.running = state.local.running.saturating_sub(1);
        drop(state);
        self.pool.mark_changed();
    }
}

impl WorkerPermit {
    /// True if the worker has a free slot for the attempt, by what it reports.
    pub(super) fn could_be_taken(&self) -> bool {
        let state = self.pool.state();
        state.workers.get(&self.worker).is_some_and(|of| {
            of.attempts.len() + (of.load.others as usize) <= of.join.slots as usize
        })
    }
}

impl Drop for WorkerPermit {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        let lease = self.lease.clone();
        // It only ends the record of the lease, also that of a worker that is gone.
        let _ = self.outgoing.try_send(EngineMessage::Over { lease });
        if let Some(worker) = state.workers.get_mut(&self.worker)
            && worker.attempts.remove(&self.lease).is_some()
            && worker.is_adopted
        {
            self.pool.send_slots(&state);
        }
        drop(state);
        self.pool.mark_changed();
    }
}
