//! Signals as requests to stop: the first Ctrl-C drains, the second stops, the third kills, and the fourth exits
//! without waiting. SIGTERM and SIGHUP kill immediately, without leaving child processes behind.

use std::{io, pin::pin, sync::Arc, time::Duration};

use nix::sys::signal::Signal as Unix;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{
    exit::{CliError, Exit, SIGHUP, SIGINT},
    playback_output,
};
use ingestdeck_core::control::RunCommand;
use ingestdeck_tui::terminal::TerminationSignals;

/// Maximum time between a signal and its message.
const ACCEPTANCE_LIMIT: Duration = Duration::from_secs(1);

/// Makes a write beyond the file size limit fail with `EFBIG` instead of killing the program.
///
/// # Errors
/// If the system does not allow it.
pub(crate) fn ignore_sigxfsz() -> Result<(), CliError> {
    // Writers see the error, so the flag is never read. Child processes get the default handler back.
    let registered = signal_hook::flag::register(Unix::SIGXFSZ as i32, Arc::default());
    registered
        .map(drop)
        .map_err(|error| CliError::failed(format!("cannot handle signals: {error}")))
}

/// The signals that end a program by default. While a listener exists, they do not.
#[derive(Debug)]
pub(crate) struct SignalListener {
    interrupts: Signal,
    hangups: Signal,
    endings: TerminationSignals,
}

impl SignalListener {
    /// Starts listening.
    ///
    /// # Errors
    /// If the system does not allow it.
    pub(crate) fn listen() -> Result<Self, CliError> {
        let listen = || -> io::Result<Self> {
            Ok(Self {
                interrupts: signal(SignalKind::interrupt())?,
                hangups: signal(SignalKind::hangup())?,
                endings: TerminationSignals::listen()?,
            })
        };
        listen().map_err(|error| CliError::failed(format!("cannot listen to signals: {error}")))
    }

    async fn next(&mut self) -> u8 {
        tokio::select! {
            ending = self.endings.next() => u8::try_from(ending as i32).unwrap_or(0),
            _ = self.hangups.recv() => SIGHUP,
            _ = self.interrupts.recv() => SIGINT,
        }
    }

    /// Waits for `ended`, and passes requests of the user on meanwhile. Returns the exit code that a signal requires,
    /// if one arrived.
    ///
    /// # Errors
    /// If the user does not want to wait any longer.
    pub(crate) async fn wait_for<T>(
        mut self,
        mut shutdown: ShutdownState,
        ended: impl Future<Output = T>,
        order: impl AsyncFn(RunCommand),
    ) -> Result<(T, Option<Exit>), CliError> {
        let mut ended = pin!(ended);
        loop {
            let signal = tokio::select! {
                biased;
                ended = &mut ended => return Ok((ended, shutdown.exit)),
                signal = self.next() => signal,
            };
            match shutdown.on_signal(signal) {
                SignalAction::Send(input, words) => {
                    let mut ordered = pin!(order(input));
                    // A reader can rely on the request having been accepted, unless that takes long.
                    let is_accepted = tokio::time::timeout(ACCEPTANCE_LIMIT, &mut ordered)
                        .await
                        .is_ok();
                    playback_output::print_stderr(words);
                    if !is_accepted {
                        tokio::select! {
                            biased;
                            ended = &mut ended => return Ok((ended, shutdown.exit)),
                            () = ordered => {}
                        }
                    }
                }
                SignalAction::ExitNow => {
                    let exit = Exit::Signal(signal);
                    return Err(CliError::new(
                        exit,
                        "exited before all running units had ended, but their progress so far is recorded",
                    ));
                }
                SignalAction::Ignore => {}
            }
        }
    }
}

/// The current stage of a shutdown, and the exit code of its signal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShutdownState {
    level: ShutdownLevel,
    exit: Option<Exit>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ShutdownLevel {
    #[default]
    Running,
    Draining,
    Stopping,
    Killing,
}

#[derive(Clone, Debug, PartialEq)]
enum SignalAction {
    /// Sends a command to the run and prints a message about it.
    Send(RunCommand, &'static str),
    ExitNow,
    Ignore,
}

impl ShutdownState {
    /// Skips the drain stage: a session has no queued units, so a drain would have no effect.
    pub(crate) fn without_drain() -> Self {
        Self {
            level: ShutdownLevel::Draining,
            exit: None,
        }
    }

    /// The run was asked to stop and may take its time.
    pub(crate) fn stopping() -> Self {
        Self {
            level: ShutdownLevel::Stopping,
            exit: None,
        }
    }

    /// The run was killed.
    pub(crate) fn killing() -> Self {
        Self {
            level: ShutdownLevel::Killing,
            exit: None,
        }
    }

    fn on_signal(&mut self, signal: u8) -> SignalAction {
        const KILLING: &str = "killing running units; Ctrl-C again exits immediately";
        let before = self.level;
        self.exit = match (self.exit, signal) {
            // A termination signal keeps its exit code, even if Ctrl-C follows.
            (Some(exit), SIGINT) => Some(exit),
            (_, signal) => Some(Exit::Signal(signal)),
        };
        self.level = match before {
            ShutdownLevel::Running if signal == SIGINT => ShutdownLevel::Draining,
            ShutdownLevel::Draining if signal == SIGINT => ShutdownLevel::Stopping,
            _ => ShutdownLevel::Killing,
        };
        match self.level {
            // A closing terminal or a shutdown sends SIGHUP in addition to other signals, so it does not count as
            // impatience.
            ShutdownLevel::Killing if before == ShutdownLevel::Killing && signal == SIGHUP => {
                SignalAction::Ignore
            }
            ShutdownLevel::Killing if before == ShutdownLevel::Killing => SignalAction::ExitNow,
            ShutdownLevel::Killing => SignalAction::Send(RunCommand::KillAll, KILLING),
            ShutdownLevel::Stopping => SignalAction::Send(
                RunCommand::StopAll,
                "stopping running units; Ctrl-C again kills them",
            ),
            ShutdownLevel::Running | ShutdownLevel::Draining => SignalAction::Send(
                RunCommand::Drain,
                "draining: nothing new starts; Ctrl-C again stops running units",
            ),
        }
    }
}

/// The exit code of a run during which a signal required `signal`, if one did. An interrupt changes the exit code only
/// if it cut something short.
pub(crate) fn exit_for_signal(
    signal: Option<Exit>,
    interrupted: impl FnOnce(bool) -> Exit,
) -> Exit {
    match signal {
        Some(Exit::Signal(SIGINT)) => interrupted(true),
        Some(exit) => exit,
        None => interrupted(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGQUIT: u8 = Unix::SIGQUIT as u8;
    const SIGTERM: u8 = Unix::SIGTERM as u8;

    fn answers(
        mut shutdown: ShutdownState,
        signals: &[u8],
    ) -> (Vec<Option<RunCommand>>, Option<Exit>) {
        let mut said = Vec::new();
        for signal in signals {
            match shutdown.on_signal(*signal) {
                SignalAction::Send(input, _) => said.push(Some(input)),
                SignalAction::ExitNow => said.push(None),
                SignalAction::Ignore => {}
            }
        }
        (said, shutdown.exit)
    }

    #[test]
    fn repeated_sigint_drains_stops_kills_then_exits() {
        let all = [
            Some(RunCommand::Drain),
            Some(RunCommand::StopAll),
            Some(RunCommand::KillAll),
            None,
        ];
        assert_eq!(
            answers(ShutdownState::default(), &[SIGINT; 4]),
            (all.to_vec(), Some(Exit::Signal(SIGINT)))
        );
        assert_eq!(
            answers(ShutdownState::without_drain(), &[SIGINT; 2]).0,
            all[1..3]
        );
        assert_eq!(answers(ShutdownState::stopping(), &[SIGINT; 2]).0, all[2..]);
        assert_eq!(answers(ShutdownState::killing(), &[SIGINT]).0, all[3..]);
        assert_eq!(answers(ShutdownState::default(), &[]), (vec![], None));
    }

    #[test]
    fn sigterm_kills_immediately() {
        for signal in [SIGTERM, SIGHUP, SIGQUIT] {
            for before in [&[][..], &[SIGINT], &[SIGINT; 2]] {
                let (said, exit) = answers(ShutdownState::default(), &[before, &[signal]].concat());
                assert_eq!(
                    (said.last(), exit),
                    (Some(&Some(RunCommand::KillAll)), Some(Exit::Signal(signal)))
                );
            }
        }
        assert_eq!(
            answers(ShutdownState::default(), &[SIGTERM, SIGINT]).1,
            Some(Exit::Signal(SIGTERM))
        );
        assert_eq!(
            answers(ShutdownState::default(), &[SIGTERM, SIGTERM]).0,
            [Some(RunCommand::KillAll), None]
        );
    }

    #[test]
    fn second_sighup_is_ignored() {
        for signals in [[SIGHUP, SIGHUP], [SIGTERM, SIGHUP]] {
            assert_eq!(
                answers(ShutdownState::default(), &signals).0,
                [Some(RunCommand::KillAll)]
            );
        }
    }
}
