//! One attempt, from its workspace to its verdict: the place where the ingest stage and the Claude backend meet.

mod pass;
mod patches;
mod projection;

use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    task,
};
use uuid::Uuid;

pub use self::pass::PassTerms;
use self::{pass::Material, patches::Round};
use super::{
    debug, descriptors,
    drive::{AttemptEnd, Executor, unprepared},
    gate::Holds,
};
use crate::{
    claude::{
        contained,
        lock::{Locks, SessionLock, Tried},
        process::StreamLimits,
        unit::{self, AttemptTimeouts, Command, Program, UnitLaunch},
    },
    ingest::{
        attempt::{Attempt, AttemptError, DeliverError, Delivered, Job, Place},
        plan::WorkUnit,
        project::Project,
        projection::DueProjection,
        prompt::Amended,
        reconcile::RECONCILE,
        transcript::RejectedCall,
        workspace::PublishError,
        worktree::Worktrees,
    },
    run::{Item, Recorder},
    scoped_dir,
    tape::{
        Body, Note, UnitKey,
        note::{
            Amendment, AttemptEnded, Content, CountedFailure, Outcome, PatchWritten, SlRefsRepaired, StopHow, Verdict,
            Work,
        },
    },
    units::{
        schedule::Together,
        tally::FailureRule,
        verdict::{self, Facts},
    },
};

/// Who plays the model.
#[derive(Clone, Debug)]
pub enum Agent {
    /// The user's Claude Code.
    Claude(PathBuf),
    /// A script.
    Scripted {
        /// This program.
        exe: PathBuf,
        /// The script file.
        script: PathBuf,
        /// Times as fast.
        speed: f64,
    },
}

impl Agent {
    /// True for a script.
    pub fn is_scripted(&self) -> bool {
        matches!(self, Self::Scripted { .. })
    }

    fn program(&self, unit: &UnitKey, attempt: u32) -> Program {
        match self {
            Self::Claude(exe) => Program { exe: exe.clone(), prefix: Vec::new(), scripted: false },
            Self::Scripted { exe, script, speed } => {
                let mut prefix: Vec<OsString> = vec!["scripted-agent".into(), "--script".into(), script.into()];
                prefix.extend(["--attempt".into(), attempt.to_string().into()]);
                prefix.extend(["--unit".into(), unit.as_str().into()]);
                prefix.extend(["--speed".into(), speed.to_string().into(), "--".into()]);
                Program { exe: exe.clone(), prefix, scripted: true }
            }
        }
    }
}

/// What is the same for every attempt of a run.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Model, or the agent's default.
    pub model: Option<String>,
    /// Turns of an attempt.
    pub step_budget: u32,
    /// Cost of an attempt.
    pub max_budget_usd: Option<f64>,
    /// Cost of all attempts together.
    pub run_budget_usd: Option<f64>,
    /// Time without output after which an attempt is shown as silent.
    pub silence_after: Duration,
    /// Time limits of an attempt.
    pub timeouts: AttemptTimeouts,
    /// Stream text while it is written.
    pub partial_messages: bool,
    /// Variables kept although they would be withheld.
    pub pass_env: Vec<String>,
    /// Which failed calls fail a unit.
    pub rule: FailureRule,
}

/// Where the attempts of a run write.
#[derive(Clone, Debug)]
pub enum Ground {
    /// Over the project, each in a directory of its own below this one; what a good one wrote is published at once.
    Overlay(PathBuf),
    /// In worktrees; what the good ones wrote becomes one commit.
    Worktrees(Arc<Worktrees>),
}

/// Runs the attempts of one run.
#[derive(Debug)]
pub struct Attempts {
    project: Arc<Project>,
    /// With their places in the plan.
    units: Arc<HashMap<UnitKey, (usize, WorkUnit)>>,
    /// What changed in their sources, as KTX writes it.
    diff: String,
    job: Job,
    ground: Ground,
    round: Arc<Mutex<Round>>,
    agent: Agent,
    terms: Terms,
    recorder: Arc<dyn Recorder>,
    holds: Arc<Holds>,
    locks: Locks,
    published: Mutex<HashSet<UnitKey>>,
    /// Attempts that run now.
    running: Arc<()>,
    /// Held by the attempt whose work is checked and published: nothing may change in between.
    publishing: Arc<Mutex<()>>,
    pass: Option<PassTerms>,
    projections: Vec<DueProjection>,
}

/// Why an attempt could not be prepared.
enum NotPrepared {
    /// There are too many open files; what was to be opened.
    OutOfFiles(String),
    /// One sentence, and what to do about it where that is known.
    Failed(String, Option<String>),
}

impl NotPrepared {
    fn by(error: &(dyn std::error::Error + 'static)) -> Self {
        let why = error.to_string();
        if scoped_dir::is_out_of_files(error) {
            return Self::OutOfFiles(why);
        }
        let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
        let remedy = cause.map(scoped_dir::remedy).unwrap_or_default().trim_start_matches("; ");
        Self::Failed(why, (!remedy.is_empty()).then(|| format!("{remedy}, then retry")))
    }

    fn verdict(self) -> Verdict {
        match self {
            Self::OutOfFiles(why) => verdict::out_of_files(&why),
            Self::Failed(why, remedy) => Verdict { remedy, ..unprepared(why) },
        }
    }
}

impl Attempts {
    /// Attempts at `units`, on `ground`.
    #[expect(clippy::too_many_arguments, reason = "the parts of a run, each named once")]
    pub fn new(
        project: Arc<Project>,
        units: &[WorkUnit],
        diff: String,
        job: Job,
        ground: Ground,
        agent: Agent,
        terms: Terms,
        recorder: Arc<dyn Recorder>,
        holds: Arc<Holds>,
        locks: Locks,
    ) -> Self {
        let placed = |(index, unit): (usize, &WorkUnit)| (unit.planned.unit.clone(), (index, unit.clone()));
        let units = Arc::new(units.iter().enumerate().map(placed).collect());
        let (round, published, running, publishing) = Default::default();
        let (pass, projections) = Default::default();
        Self {
            project,
            units,
            diff,
            job,
            ground,
            round,
            agent,
            terms,
            recorder,
            holds,
            locks,
            published,
            running,
            publishing,
            pass,
            projections,
        }
    }

    async fn attempt(
        &self,
        unit: &UnitKey,
        attempt: u32,
        amendment: &Amendment,
        mut stop: mpsc::Receiver<StopHow>,
        ready: oneshot::Sender<()>,
    ) -> (Verdict, Facts, Work) {
        let running = Arc::clone(&self.running);
        // What runs must not fail for want of descriptors that a newcomer takes. Alone, an attempt takes what there is.
        if Arc::strong_count(&running) > 2 && !descriptors::has_room() {
            return (verdict::out_of_files("no room for one more unit"), Facts::default(), Work::default());
        }
        // Known before anything starts, so that it is ours from its first word on.
        let session = amendment.resume.clone().unwrap_or_else(|| Uuid::new_v4().to_string());
        let prepared = self.prepare(unit, attempt, amendment, &session).await;
        if let Ok(how) = stop.try_recv() {
            let facts = Facts { stopped: Some(how), ..Facts::default() };
            return (verdict::decide(self.ktx_key(unit), &facts, self.terms.rule), facts, Work::default());
        }
        let (_lock, opened, content) = match prepared {
            Ok((lock, (opened, content))) => (lock, Arc::new(opened), content),
            Err(error) => return (error.verdict(), Facts::default(), Work::default()),
        };
        let launch = UnitLaunch { content, ..self.launch(unit, attempt, amendment, &opened, session) };
        let (forward, commands) = mpsc::channel(4);
        let forwarding = task::spawn(pass_on(stop, forward));
        let mut facts = unit::run_unit(launch, commands, ready).await;
        forwarding.abort();
        file_rejected(&opened, &facts);
        let (key, rule) = (self.ktx_key(unit).clone(), self.terms.rule);
        let closing = Arc::clone(&opened);
        let publishing = matches!(self.ground, Ground::Overlay(_)).then(|| Arc::clone(&self.publishing));
        let closed = contained::blocking(move || {
            let _turn = publishing.as_ref().map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner));
            let (verdict, delivered) = close(&closing, &key, &mut facts, rule);
            (verdict, delivered, facts)
        });
        let (verdict, delivered, facts) = match closed.await {
            Ok(closed) => closed,
            Err(error) => (unprepared(format!("checking what {unit} wrote failed: {error}")), None, Facts::default()),
        };
        match delivered {
            Some(Delivered::Published { paths, repairs }) if !paths.is_empty() => {
                self.note(unit, attempt, &Note::Published { paths });
                if !repairs.is_empty() {
                    self.note(unit, attempt, &Note::SlRefsRepaired(SlRefsRepaired { repairs }));
                }
            }
            Some(Delivered::Patch { base, path, paths }) => {
                self.round().written(unit, attempt, path.as_ref().map(|path| self.project.root.join(path)));
                self.note(unit, attempt, &Note::PatchWritten(PatchWritten { base, path, paths }));
            }
            Some(Delivered::Published { .. }) | None => {}
        }
        let work = work_of(&opened, &verdict, &facts);
        if let Some(pass) = self.pass.as_ref().filter(|_| unit.as_str() == RECONCILE)
            && verdict.outcome == Outcome::Succeeded
        {
            self.round().left.passed(verdict.stop, &work, &pass.resting);
        }
        (verdict, facts, work)
    }

    /// KTX's key of `unit`, which is in the reasons of verdicts.
    fn ktx_key<'a>(&'a self, unit: &'a UnitKey) -> &'a UnitKey {
        self.units.get(unit).map_or(unit, |(_, planned)| planned.planned.ktx_key())
    }

    async fn prepare(
        &self,
        unit: &UnitKey,
        attempt: u32,
        amendment: &Amendment,
        session: &str,
    ) -> Result<(SessionLock, (Attempt, Option<Content>)), NotPrepared> {
        let lock = self.lock(session)?;
        Ok((lock, self.open(unit, attempt, amendment).await?))
    }

    /// A session is ours alone: two writers would split its history.
    fn lock(&self, session: &str) -> Result<SessionLock, NotPrepared> {
        match self.locks.try_lock(session).map_err(|error| NotPrepared::by(&error))? {
            Tried::Ours(lock) => Ok(lock),
            Tried::Taken(holder) => {
                let holder = holder.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
                let why = format!("session {session} is in use by {holder}: end that, or retry in a new session");
                Err(NotPrepared::Failed(why, None))
            }
        }
    }

    /// The attempt, and what its unit is made of. Files that cannot be read are the agent's business, not ours.
    async fn open(
        &self,
        unit: &UnitKey,
        attempt: u32,
        amendment: &Amendment,
    ) -> Result<(Attempt, Option<Content>), NotPrepared> {
        let Some(Material { index, work_unit, base }) = self.material(unit) else {
            return Err(NotPrepared::Failed(format!("unit {unit} is not part of the plan"), None));
        };
        let (project, job) = (Arc::clone(&self.project), self.job.clone());
        let place = match &self.ground {
            Ground::Overlay(work) => Place::Overlay(work.join(format!("{attempt:02}-{}", folder_name(unit)))),
            Ground::Worktrees(trees) => {
                let trees = base.map_or_else(|| Arc::clone(trees), |commit| trees.at(&commit));
                Place::Worktree { trees, index }
            }
        };
        let (amendment, files_kept) = (amendment.clone(), self.published().contains(unit));
        // What a person wants otherwise of one attempt makes no other unit of it.
        let model = self.terms.model.clone();
        contained::blocking(move || {
            let amended = amended(&amendment, files_kept);
            let opened = Attempt::open(&project, &work_unit, &job, attempt, amended, &place)?;
            let content = opened.content(model.as_deref()).ok();
            Ok::<_, AttemptError>((opened, content))
        })
        .await
        .map_err(|error| NotPrepared::Failed(error.to_string(), None))?
        .map_err(|error| NotPrepared::by(&error))
    }

    /// Patches, and what is being made of them. A thread that panicked left a state that the next round replaces.
    fn round(&self) -> MutexGuard<'_, Round> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Units whose last attempt was moved into the project. A thread that panicked left a set that is still a set.
    fn published(&self) -> MutexGuard<'_, HashSet<UnitKey>> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn launch(
        &self,
        unit: &UnitKey,
        attempt: u32,
        amendment: &Amendment,
        opened: &Attempt,
        new_session: String,
    ) -> UnitLaunch {
        let (model, step_budget) = self.terms_of(unit);
        UnitLaunch {
            program: self.agent.program(unit, attempt),
            cwd: self.project.root.clone(),
            unit: unit.clone(),
            attempt,
            system_prompt: opened.prompt().system.clone(),
            prompt: opened.prompt().user.clone(),
            new_session,
            model: amendment.model.clone().or(model),
            step_budget: amendment.step_budget.unwrap_or(step_budget),
            max_budget_usd: self.terms.max_budget_usd,
            partial_messages: self.terms.partial_messages,
            pass_env: self.terms.pass_env.clone(),
            timeouts: self.terms.timeouts,
            limits: StreamLimits::default(),
            tools: opened.tools(),
            recorder: Arc::clone(&self.recorder),
            gate: self.holds.gate(unit, attempt),
            amendment: (!amendment.is_empty()).then(|| amendment.clone()),
            content: None,
        }
    }

    /// A note that cannot be written is no verdict's business: the next record of the attempt fails the same way.
    fn note(&self, unit: &UnitKey, attempt: u32, note: &Note) {
        let json = note.to_json();
        let item = Item { lane: Some((unit, attempt)), body: Body::Note(&json) };
        if let Err(error) = self.recorder.record(&[item]) {
            tracing::error!(%error, "a note is lost");
        }
    }
}

impl Executor for Attempts {
    async fn run(
        &self,
        unit: UnitKey,
        attempt: u32,
        amendment: Option<Arc<Amendment>>,
        stop: mpsc::Receiver<StopHow>,
        ready: oneshot::Sender<()>,
    ) -> AttemptEnd {
        let amendment = amendment.as_deref().cloned().unwrap_or_default();
        let (verdict, facts, work) = self.attempt(&unit, attempt, &amendment, stop, ready).await;
        debug::log_verdict(&unit, attempt, &verdict, facts.exit_code, facts.signal);
        if verdict.outcome == Outcome::Succeeded && matches!(self.ground, Ground::Overlay(_)) {
            self.published().insert(unit.clone());
        } else {
            self.published().remove(&unit);
        }
        let ended = AttemptEnded {
            verdict: verdict.clone(),
            tool_failures: u32::try_from(facts.tally.calls().len()).unwrap_or(u32::MAX),
            failed_call: facts
                .tally
                .counted(self.terms.rule)
                .next()
                .map(|call| CountedFailure { tool: call.tool.clone(), message: call.message.clone() }),
            exit_code: facts.exit_code,
            signal: facts.signal,
            stderr_tail: facts.stderr_tail,
            wrote: Vec::new(),
            work,
            more: serde_json::Map::default(),
        };
        self.note(&unit, attempt, &Note::AttemptEnded(Box::new(ended)));
        verdict.into()
    }

    async fn project(&self) {
        self.write_projections().await;
    }

    async fn integrate(&self, units: Vec<(UnitKey, u32)>) -> Together {
        self.put_together(units).await
    }

    async fn save(&self, failed: Vec<UnitKey>) -> bool {
        self.put_on_branch(failed).await
    }
}

/// What a person adds to the prompt.
fn amended(amendment: &Amendment, files_kept: bool) -> Amended<'_> {
    match (&amendment.resume, amendment.feedback.as_deref()) {
        (Some(_), feedback) => Amended::Resumed { feedback, files_kept },
        (None, Some(feedback)) => Amended::Told(feedback),
        (None, None) => Amended::No,
    }
}

/// Passes orders to stop on to an agent. A drain is none: what runs may end.
pub async fn pass_on(mut stop: mpsc::Receiver<StopHow>, commands: mpsc::Sender<Command>) {
    while let Some(how) = stop.recv().await {
        let command = match how {
            StopHow::Drain => continue,
            StopHow::Stop => Command::Interrupt,
            StopHow::Kill => Command::Kill,
        };
        if commands.send(command).await.is_err() {
            return;
        }
    }
}

/// Judges; checks and delivers what a good attempt wrote, and throws away what another one did.
fn close(attempt: &Attempt, unit: &UnitKey, facts: &mut Facts, rule: FailureRule) -> (Verdict, Option<Delivered>) {
    let mut verdict = verdict::decide(unit, facts, rule);
    let mut delivered = None;
    if verdict.outcome == Outcome::Succeeded {
        let checked = attempt.check();
        facts.dangling = checked.dangling;
        facts.invalid = checked.invalid;
        verdict = verdict::decide(unit, facts, rule);
    }
    if verdict.outcome == Outcome::Succeeded {
        match attempt.deliver() {
            Ok(done) => delivered = Some(done),
            Err(error) => {
                match &error {
                    DeliverError::Publish(PublishError::Conflict { .. }) => facts.conflict = Some(error.to_string()),
                    _ => facts.publish_error = Some(error.to_string()),
                }
                verdict = verdict::decide(unit, facts, rule);
            }
        }
    }
    if verdict.outcome != Outcome::Succeeded {
        attempt.discard();
    }
    (verdict, delivered)
}

/// What the attempt leaves on record. A failed one has saved nothing, whatever it wrote.
fn work_of(attempt: &Attempt, verdict: &Verdict, facts: &Facts) -> Work {
    let fatal = facts.tally.count(FailureRule::Recoverable);
    let done = if verdict.outcome == Outcome::Succeeded { attempt.work() } else { Work::default() };
    Work {
        transcript: attempt.transcript().name().map(str::to_owned),
        fatal_failures: Some(u32::try_from(fatal).unwrap_or(u32::MAX)),
        ..done
    }
}

/// Puts calls that failed before they reached the tools on the transcript, each once.
fn file_rejected(attempt: &Attempt, facts: &Facts) {
    for call in facts.tally.calls().iter().chain(facts.tally.refusals()) {
        let input = call.tool_use_id.as_ref().and_then(|id| facts.failed_inputs.get(id));
        attempt.transcript().record_failure(&RejectedCall {
            tool: &call.tool,
            tool_use_id: call.tool_use_id.as_deref(),
            input: input.unwrap_or(&serde_json::Value::Null),
            message: &call.message,
            duration_ms: 0,
        });
    }
}

/// A directory name for a unit: readable where the key is, one component, and different for different keys.
fn folder_name(unit: &UnitKey) -> String {
    let name: String =
        unit.chars().take(80).map(|c| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' }).collect();
    if name == unit.as_str() {
        return name;
    }
    let mut hash = DefaultHasher::new();
    unit.hash(&mut hash);
    format!("{name}~{:016x}", hash.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_different_units_differ() {
        let names = ["dbt-all", "a/b", "a_b", "a b"].map(|key| folder_name(&key.into()));
        assert_eq!((names[0].as_str(), names[2].as_str()), ("dbt-all", "a_b"));
        assert!(names[1].starts_with("a_b~") && names[1] != names[3], "{names:?}");
        let long = "x".repeat(90);
        assert_ne!(folder_name(&long.as_str().into()), folder_name(&long[..85].into()));
    }
}
