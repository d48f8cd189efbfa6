//! A session with a running process: handles its lines, holds its lock and ends it.
//!
//! Every end begins with SIGINT or SIGTERM: Claude Code runs shell commands in separate process groups and ends them
//! itself if it has time. The module must not depend on how the process was started.

use std::{borrow::Cow, sync::Arc};

use tokio::{
    process::ChildStdout,
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{
    SessionRecorder,
    monitor::{SessionLineFinding, SessionMonitor},
};
use crate::{
    agent::{
        facts_collector::AttemptFactsCollector,
        line_reader::LineReader,
        process::{Child, EscalationStep, ProcessExit, ProcessTimeouts, StreamLimits},
        session_lock::{SessionLock, SessionLockError, SessionLocks},
        stderr_limit::StderrLimit,
        unit::{LineObserver, StopCommand},
    },
    decode,
    diagnostic::Diagnostic,
    run::entry_source::RecordError,
    tape::{
        EntryBody, Note,
        note::{Severity, StopMode},
    },
    units::verdict::AttemptFacts,
};

/// A session with a running process.
pub(super) struct SessionDriver {
    tape: SessionRecorder,
    timeouts: ProcessTimeouts,
    limits: StreamLimits,
    child: Child,
    monitor: SessionMonitor,
    stats: AttemptFactsCollector,
    observer: Option<Arc<dyn LineObserver>>,
    locks: SessionLocks,
    lock: Option<SessionLock>,
    /// False once locking has failed: it would fail again.
    can_lock: bool,
    /// Deadline for the first turn, until it has begun.
    startup_deadline: Option<Instant>,
    /// The last escalation step, and the time of the next one.
    escalation: Option<(EscalationStep, Instant)>,
    /// When a process without further work is ended.
    exit_deadline: Option<Instant>,
    /// When to stop reading the pipes of a process that has exited.
    drain_deadline: Option<Instant>,
    /// True if the driver waits for nothing more.
    is_done: bool,
}

enum SessionEvent {
    StdoutReady,
    StderrReady,
    Exited(ProcessExit),
    Command(Option<StopCommand>),
    Locked(Result<SessionLock, SessionLockError>),
    DeadlineReached,
}

impl SessionDriver {
    /// A process that has its prompt. `stats` has the facts from before the start.
    pub(super) fn new(
        tape: SessionRecorder,
        child: Child,
        watch: SessionMonitor,
        stats: AttemptFactsCollector,
        timeouts: ProcessTimeouts,
        limits: StreamLimits,
        (locks, lock): (SessionLocks, Option<SessionLock>),
    ) -> Self {
        Self {
            tape,
            timeouts,
            limits,
            child,
            monitor: watch,
            stats,
            observer: None,
            locks,
            lock,
            can_lock: true,
            startup_deadline: Some(Instant::now() + timeouts.startup),
            escalation: None,
            exit_deadline: None,
            drain_deadline: None,
            is_done: false,
        }
    }

    /// Shows each counted line to `observer`.
    pub(super) fn observed_by(self, observer: Option<Arc<dyn LineObserver>>) -> Self {
        Self { observer, ..self }
    }

    /// Handles the output of the process until it has ended, and returns its facts.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<StopCommand>) -> (SessionMonitor, AttemptFacts) {
        let (Some(stdout), Some(stderr)) = (self.child.stdout.take(), self.child.stderr.take()) else {
            self.stats.facts.process.start_error = Some("the process has no pipes".into());
            return (self.monitor, self.stats.into_facts());
        };
        let mut stdout = LineReader::with_limit(stdout, self.limits.line);
        let mut stderr = LineReader::with_limit(stderr, self.limits.stderr_line);
        let mut recorded_stderr = StderrLimit::new(self.limits.stderr);
        let (mut running, mut commanded) = (true, true);
        while !self.is_done && (running || !stdout.is_finished() || !stderr.is_finished()) {
            let alarm = self.next_deadline();
            let wanted = self.session_to_lock().filter(|_| running).map(str::to_owned);
            let locks = self.locks.clone();
            let event = tokio::select! {
                // An error ends the pipe; the data before it is used.
                _ = stdout.fill(), if !stdout.is_finished() => SessionEvent::StdoutReady,
                _ = stderr.fill(), if !stderr.is_finished() => SessionEvent::StderrReady,
                ended = self.child.wait(), if running => SessionEvent::Exited(ended),
                command = commands.recv(), if commanded => SessionEvent::Command(command),
                locked = locks.lock(wanted.as_deref().unwrap_or_default(), |_| ()), if wanted.is_some() => {
                    SessionEvent::Locked(locked)
                }
                () = sleep_until(alarm.unwrap_or_else(Instant::now)), if alarm.is_some() => SessionEvent::DeadlineReached,
            };
            match event {
                SessionEvent::StdoutReady => self.handle_lines(&mut stdout),
                SessionEvent::StderrReady => {
                    let mut lines: Vec<Cow<'_, str>> =
                        stderr.take_lines().lines().map(String::from_utf8_lossy).collect();
                    lines.iter().for_each(|line| self.stats.push_stderr_line(line));
                    let had_dropped = recorded_stderr.has_dropped();
                    lines.retain(|line| recorded_stderr.admits(line.len()));
                    let recorded = self.tape.record(lines.into_iter().map(EntryBody::Stderr));
                    let dropped = recorded_stderr.limit_reached_note(had_dropped);
                    self.check_recorded(recorded.and_then(|()| dropped.map_or(Ok(()), |note| self.tape.note(&note))));
                }
                SessionEvent::Exited(ended) => {
                    running = false;
                    self.stats.facts.process.exit_code = ended.code;
                    self.stats.facts.process.signal = ended.signal;
                    self.stats.facts.process.terminated_by_us =
                        self.escalation.is_some_and(|(step, _)| step >= EscalationStep::Terminate);
                    // A descendant may have inherited the pipes. Their present content is read; the rest is ignored.
                    self.drain_deadline = Some(Instant::now() + self.timeouts.pipe_drain);
                }
                SessionEvent::Command(Some(command)) => {
                    let (how, step) = match command {
                        StopCommand::Interrupt => (StopMode::Stop, EscalationStep::Interrupt),
                        // SIGKILL follows; before that, the agent can end its child processes.
                        StopCommand::Kill => (StopMode::Kill, EscalationStep::Terminate),
                    };
                    if self.monitor.is_complete() && self.stats.facts.interruption.stopped.is_none() {
                        // After the result, the request only speeds up the exit; the result stays valid.
                        self.escalate_to(step.max(EscalationStep::Terminate));
                    } else {
                        self.stats.facts.interruption.stopped = Some(how);
                        self.escalate_to(step);
                    }
                }
                SessionEvent::Command(None) => commanded = false,
                SessionEvent::Locked(Ok(lock)) => self.lock = Some(lock),
                SessionEvent::Locked(Err(error)) => {
                    self.can_lock = false;
                    let message = Note::Message { level: Severity::Error, text: error.to_line() };
                    let recorded = self.tape.note(&message);
                    self.check_recorded(recorded);
                    // Without a lock, another resume may split the session, so it must not continue.
                    self.stats.facts.process.start_error = Some(error.to_line());
                    self.escalate_to(EscalationStep::Terminate);
                }
                SessionEvent::DeadlineReached if !running => self.is_done = true,
                SessionEvent::DeadlineReached => match self.escalation {
                    Some((step, _)) => self.escalate_to(step.next_step()),
                    None => self.terminate_if_overdue(),
                },
            }
        }
        if let Some(note) = recorded_stderr.summary_note() {
            let recorded = self.tape.note(&note);
            self.check_recorded(recorded);
        }
        (self.monitor, self.stats.into_facts())
    }

    /// Ends a process that has not begun in time, or has no further work.
    fn terminate_if_overdue(&mut self) {
        if self.exit_deadline.is_none() && self.startup_deadline.take().is_some() {
            let seconds = self.timeouts.startup.as_secs();
            self.stats.facts.process.start_error = Some(format!("claude did not begin to work within {seconds} s"));
        }
        self.escalate_to(EscalationStep::Terminate);
    }

    /// The session that has to be locked: the running one, even if another one was requested.
    fn session_to_lock(&self) -> Option<&str> {
        let session = self.monitor.session().filter(|_| self.can_lock)?;
        self.lock.as_ref().is_none_or(|lock| lock.session() != session).then_some(session)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.drain_deadline.or(self.escalation.map(|(_, due)| due)).or(self.exit_deadline).or(self.startup_deadline)
    }

    /// Performs an escalation step, unless a firmer one was performed.
    fn escalate_to(&mut self, step: EscalationStep) {
        if self.escalation.is_some_and(|(taken, _)| taken >= step) {
            return;
        }
        match step.signal() {
            Some(signal) => {
                self.child.signal(signal);
                self.escalation = Some((step, Instant::now() + self.timeouts.escalation_step));
            }
            // Even SIGKILL had no effect.
            None => self.is_done = true,
        }
    }

    /// Ends the session if the tape cannot be written.
    fn check_recorded(&mut self, recorded: Result<(), RecordError>) {
        if let Err(error) = recorded {
            self.stats.facts.interruption.record_error.get_or_insert_with(|| error.to_string());
            self.escalate_to(EscalationStep::Terminate);
        }
    }

    fn handle_lines(&mut self, stdout: &mut LineReader<ChildStdout>) {
        let batch = stdout.take_lines();
        if let Err(error) = self.tape.record(batch.bodies()) {
            self.check_recorded(Err(error));
            return;
        }
        if batch.is_piece() {
            self.stats.facts.interruption.oversized_line = Some(self.limits.line);
            self.escalate_to(EscalationStep::Interrupt);
            return;
        }
        for line in batch.lines() {
            let line = decode::decode_line(line);
            match self.monitor.push_line(&line) {
                SessionLineFinding::Nothing => {}
                SessionLineFinding::Message(level, text) => {
                    let recorded = self.tape.note(&Note::Message { level, text });
                    self.check_recorded(recorded);
                }
                SessionLineFinding::Mismatch(text) | SessionLineFinding::Breach(text) => {
                    let recorded = self.tape.note(&Note::Message { level: Severity::Error, text });
                    self.check_recorded(recorded);
                    self.escalate_to(EscalationStep::Terminate);
                }
            }
            let later = Instant::now() + self.timeouts.startup;
            self.startup_deadline = self.startup_deadline.filter(|_| !self.monitor.has_begun()).map(|_| later);
            if self.monitor.mismatch().is_none() {
                let warning = self.stats.push_line(&line);
                if let Some(observer) = &self.observer {
                    observer.observe(self.tape.attempt(), &line, self.stats.reducer());
                }
                if let Some(note) = warning {
                    let recorded = self.tape.note(&note);
                    self.check_recorded(recorded);
                }
            }
        }
        // The session is complete with its result, or when its stdout is closed. A process that keeps running after
        // that is ended.
        let is_done = self.monitor.is_complete() || stdout.is_finished();
        self.exit_deadline = is_done.then(|| Instant::now() + self.timeouts.exit);
    }
}
