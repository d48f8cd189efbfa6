//! A session whose process runs: takes in its lines, holds its lock and ends it.
//!
//! Every end begins with SIGINT or SIGTERM: Claude Code runs shell commands in groups of their own and ends them itself, if
//! it is given the time. It must not know how the process was started.

use std::borrow::Cow;

use tokio::{
    process::ChildStdout,
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{
    Tape,
    watch::{Seen, Watch},
};
use crate::{
    claude::{
        gather::Gather,
        lock::{LockError, Locks, SessionLock},
        process::{Child, Ended, Patience, Rung, StreamLimits},
        reader::LineReader,
        stderr_limit::StderrLimit,
        unit::Command,
    },
    decode,
    run::source::RecordError,
    tape::{
        Body, Note,
        note::{Level, StopHow},
    },
    units::verdict::Facts,
};

/// A session whose process runs.
pub(super) struct Talk {
    tape: Tape,
    patience: Patience,
    limits: StreamLimits,
    child: Child,
    watch: Watch,
    gather: Gather,
    locks: Locks,
    lock: Option<SessionLock>,
    /// False once that has failed: it would fail again.
    lockable: bool,
    /// When it must have begun, until it has.
    opening: Option<Instant>,
    /// The step that was taken last, and when the next one is due.
    ladder: Option<(Rung, Instant)>,
    /// When a process that has nothing more to say is ended.
    linger: Option<Instant>,
    /// When nobody waits any longer for the pipes of a process that has ended.
    closing: Option<Instant>,
    /// Nothing more is waited for.
    over: bool,
}

enum Event {
    Out,
    Err,
    Exited(Ended),
    Command(Option<Command>),
    Locked(Result<SessionLock, LockError>),
    Alarm,
}

impl Talk {
    /// A process that has its prompt. `facts` are those from before the start.
    pub(super) fn new(
        tape: Tape,
        child: Child,
        watch: Watch,
        facts: Facts,
        patience: Patience,
        limits: StreamLimits,
        (locks, lock): (Locks, Option<SessionLock>),
    ) -> Self {
        Self {
            tape,
            patience,
            limits,
            child,
            watch,
            gather: Gather::new(facts),
            locks,
            lock,
            lockable: true,
            opening: Some(Instant::now() + patience.opening),
            ladder: None,
            linger: None,
            closing: None,
            over: false,
        }
    }

    /// Takes in everything that it says until it has ended. What is known of it then.
    pub(super) async fn listen(mut self, mut commands: mpsc::Receiver<Command>) -> (Watch, Facts) {
        let (Some(stdout), Some(stderr)) = (self.child.stdout.take(), self.child.stderr.take()) else {
            self.gather.facts.spawn_error = Some("the process has no pipes".into());
            return (self.watch, self.gather.finish());
        };
        let mut stdout = LineReader::with_limit(stdout, self.limits.line);
        let mut stderr = LineReader::with_limit(stderr, self.limits.stderr_line);
        let mut recorded_stderr = StderrLimit::new(self.limits.stderr);
        let (mut running, mut commanded) = (true, true);
        while !self.over && (running || !stdout.is_over() || !stderr.is_over()) {
            let alarm = self.alarm();
            let wanted = self.wanted().filter(|_| running).map(str::to_owned);
            let locks = self.locks.clone();
            let event = tokio::select! {
                // An error ends the pipe; what came before it is taken all the same.
                _ = stdout.fill(), if !stdout.is_over() => Event::Out,
                _ = stderr.fill(), if !stderr.is_over() => Event::Err,
                ended = self.child.wait(), if running => Event::Exited(ended),
                command = commands.recv(), if commanded => Event::Command(command),
                locked = locks.lock(wanted.as_deref().unwrap_or_default(), |_| ()), if wanted.is_some() => {
                    Event::Locked(locked)
                }
                () = sleep_until(alarm.unwrap_or_else(Instant::now)), if alarm.is_some() => Event::Alarm,
            };
            match event {
                Event::Out => self.lines(&mut stdout),
                Event::Err => {
                    let mut lines: Vec<Cow<'_, str>> = stderr.take().lines().map(String::from_utf8_lossy).collect();
                    lines.iter().for_each(|line| self.gather.stderr(line));
                    let had_dropped = recorded_stderr.has_dropped();
                    lines.retain(|line| recorded_stderr.admits(line.len()));
                    let recorded = self.tape.record(lines.into_iter().map(Body::Err));
                    let dropped = recorded_stderr.begins(had_dropped);
                    self.keep(recorded.and_then(|()| dropped.map_or(Ok(()), |note| self.tape.note(&note))));
                }
                Event::Exited(ended) => {
                    running = false;
                    self.gather.facts.exit_code = ended.code;
                    self.gather.facts.signal = ended.signal;
                    self.gather.facts.ended_by_us = self.ladder.is_some_and(|(rung, _)| rung >= Rung::Terminate);
                    // Somebody may have inherited its pipes; what is in them by now is read, the rest never comes.
                    self.closing = Some(Instant::now() + self.patience.drain);
                }
                Event::Command(Some(command)) => {
                    let (how, rung) = match command {
                        Command::Interrupt => (StopHow::Stop, Rung::Interrupt),
                        // SIGKILL follows; before it the agent ends what it has started.
                        Command::Kill => (StopHow::Kill, Rung::Terminate),
                    };
                    if self.watch.is_complete() && self.gather.facts.stopped.is_none() {
                        // After its result it only ends faster; the result stands.
                        self.climb(rung.max(Rung::Terminate));
                    } else {
                        self.gather.facts.stopped = Some(how);
                        self.climb(rung);
                    }
                }
                Event::Command(None) => commanded = false,
                Event::Locked(Ok(lock)) => self.lock = Some(lock),
                Event::Locked(Err(error)) => {
                    self.lockable = false;
                    let said = Note::Said { level: Level::Error, text: error.to_string() };
                    let recorded = self.tape.note(&said);
                    self.keep(recorded);
                    // Without a lock it may be split by another resume, so it does not go on.
                    self.gather.facts.spawn_error = Some(error.to_string());
                    self.climb(Rung::Terminate);
                }
                Event::Alarm if !running => self.over = true,
                Event::Alarm => match self.ladder {
                    Some((rung, _)) => self.climb(rung.next()),
                    None => self.end_idle(),
                },
            }
        }
        if let Some(note) = recorded_stderr.ends() {
            let recorded = self.tape.note(&note);
            self.keep(recorded);
        }
        (self.watch, self.gather.finish())
    }

    /// It has not begun in time, or has nothing more to say.
    fn end_idle(&mut self) {
        if self.linger.is_none() && self.opening.take().is_some() {
            let seconds = self.patience.opening.as_secs();
            self.gather.facts.spawn_error = Some(format!("claude did not begin to work within {seconds} s"));
        }
        self.climb(Rung::Terminate);
    }

    /// The session that has to be locked: the one that is on, also where it is not the one that was asked for.
    fn wanted(&self) -> Option<&str> {
        let session = self.watch.session().filter(|_| self.lockable)?;
        self.lock.as_ref().is_none_or(|lock| lock.session() != session).then_some(session)
    }

    fn alarm(&self) -> Option<Instant> {
        self.closing.or(self.ladder.map(|(_, due)| due)).or(self.linger).or(self.opening)
    }

    /// Takes a step of the kill ladder, unless a firmer one was taken already.
    fn climb(&mut self, rung: Rung) {
        if self.ladder.is_some_and(|(taken, _)| taken >= rung) {
            return;
        }
        match rung.signal() {
            Some(signal) => {
                self.child.signal(signal);
                self.ladder = Some((rung, Instant::now() + self.patience.rung));
            }
            // Not even SIGKILL helped; it is left to the kernel.
            None => self.over = true,
        }
    }

    /// Goes on only while everything gets onto the tape.
    fn keep(&mut self, recorded: Result<(), RecordError>) {
        if let Err(error) = recorded {
            self.gather.facts.record_error.get_or_insert_with(|| error.to_string());
            self.climb(Rung::Terminate);
        }
    }

    fn lines(&mut self, stdout: &mut LineReader<ChildStdout>) {
        let batch = stdout.take();
        if let Err(error) = self.tape.record(batch.bodies()) {
            self.keep(Err(error));
            return;
        }
        if batch.is_piece() {
            self.gather.facts.oversized_line = Some(self.limits.line);
            self.climb(Rung::Interrupt);
            return;
        }
        for line in batch.lines() {
            let line = decode::line(line);
            match self.watch.line(&line) {
                Seen::Nothing => {}
                Seen::Said(level, text) => {
                    let recorded = self.tape.note(&Note::Said { level, text });
                    self.keep(recorded);
                }
                Seen::Mismatch(text) | Seen::Breach(text) => {
                    let recorded = self.tape.note(&Note::Said { level: Level::Error, text });
                    self.keep(recorded);
                    self.climb(Rung::Terminate);
                }
            }
            let later = Instant::now() + self.patience.opening;
            self.opening = self.opening.filter(|_| !self.watch.has_begun()).map(|_| later);
            if self.watch.mismatch().is_none() {
                self.gather.line(&line);
            }
        }
        // It is complete with its result, or has closed its mouth; whoever lingers after that is ended.
        let is_done = self.watch.is_complete() || stdout.is_over();
        self.linger = is_done.then(|| Instant::now() + self.patience.linger);
    }
}
