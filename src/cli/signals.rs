//! Signals, as orders of a person: the first Ctrl-C drains, the second stops, the third kills, and whoever asks once more
//! does not even wait for that; being told to go means going at once, without leaving anybody behind.

use std::{io, pin::pin, sync::Arc};

use nix::sys::signal::Signal as Unix;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{
    exit::{Exit, Failure},
    show,
};
use crate::{tui::terminal::EndingSignals, units::schedule::Input};

/// Number of a hang-up.
pub const SIGHUP: u8 = 1;
/// Number of Ctrl-C.
pub const SIGINT: u8 = 2;

/// Lets a write beyond the file size limit fail (`EFBIG`) instead of ending the program without a word.
///
/// # Errors
/// When the system does not allow it.
pub fn survive_file_limit() -> Result<(), Failure> {
    // Whoever writes sees the error, so nobody looks at the flag. Programs that are started get the default back.
    let registered = signal_hook::flag::register(Unix::SIGXFSZ as i32, Arc::default());
    registered.map(drop).map_err(|error| Failure::internal(format!("cannot handle signals: {error}")))
}

/// The signals that ask a program to end. Once somebody listens, they end it no longer by themselves.
#[derive(Debug)]
pub struct Signals {
    interrupts: Signal,
    hangups: Signal,
    endings: EndingSignals,
}

impl Signals {
    /// Listens from now on.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn listen() -> Result<Self, Failure> {
        let listen = || -> io::Result<Self> {
            Ok(Self {
                interrupts: signal(SignalKind::interrupt())?,
                hangups: signal(SignalKind::hangup())?,
                endings: EndingSignals::listen()?,
            })
        };
        listen().map_err(|error| Failure::internal(format!("cannot listen to signals: {error}")))
    }

    async fn next(&mut self) -> u8 {
        tokio::select! {
            ending = self.endings.next() => u8::try_from(ending as i32).unwrap_or(0),
            _ = self.hangups.recv() => SIGHUP,
            _ = self.interrupts.recv() => SIGINT,
        }
    }

    /// Waits until something has `ended`, and hands on what its person wants meanwhile. Returns the exit code that a
    /// signal asked for, if one did.
    ///
    /// # Errors
    /// When somebody does not want to wait for it.
    pub async fn until<T>(
        mut self,
        mut will: Will,
        ended: impl Future<Output = T>,
        order: impl AsyncFn(Input),
    ) -> Result<(T, Option<Exit>), Failure> {
        let mut ended = pin!(ended);
        loop {
            let heard = tokio::select! {
                biased;
                ended = &mut ended => return Ok((ended, will.exit)),
                heard = self.next() => heard,
            };
            match will.hear(heard) {
                Answer::Order(input, words) => {
                    show::tell(words);
                    order(input).await;
                }
                Answer::Leave => {
                    let exit = Exit::Signal(heard);
                    return Err(Failure::new(exit, "left before what runs had ended; what it did so far is recorded"));
                }
                Answer::Nothing => {}
            }
        }
    }
}

/// What somebody wants to become of what runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Will {
    stage: Wanted,
    exit: Option<Exit>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wanted {
    #[default]
    Work,
    Drained,
    Stopped,
    Killed,
}

#[derive(Clone, Debug, PartialEq)]
enum Answer {
    /// Wanted of the run, and what is said about it.
    Order(Input, &'static str),
    /// It is not waited for.
    Leave,
    Nothing,
}

impl Will {
    /// There is nothing that could start yet, so that not starting it would be no answer.
    pub fn at_work() -> Self {
        Self { stage: Wanted::Drained, exit: None }
    }

    /// It has been told to stop, and may take its time.
    pub fn stopped() -> Self {
        Self { stage: Wanted::Stopped, exit: None }
    }

    /// It has been killed.
    pub fn killed() -> Self {
        Self { stage: Wanted::Killed, exit: None }
    }

    fn hear(&mut self, signal: u8) -> Answer {
        const KILLING: &str = "killing what runs; Ctrl-C again leaves at once";
        let before = self.stage;
        self.exit = match (self.exit, signal) {
            // Who was told to go was told so, whatever else is asked.
            (Some(exit), SIGINT) => Some(exit),
            (_, signal) => Some(Exit::Signal(signal)),
        };
        self.stage = match before {
            Wanted::Work if signal == SIGINT => Wanted::Drained,
            Wanted::Drained if signal == SIGINT => Wanted::Stopped,
            _ => Wanted::Killed,
        };
        match self.stage {
            // A terminal that goes, and a system that shuts down, hang up beside everything else: nobody insists.
            Wanted::Killed if before == Wanted::Killed && signal == SIGHUP => Answer::Nothing,
            Wanted::Killed if before == Wanted::Killed => Answer::Leave,
            Wanted::Killed => Answer::Order(Input::KillAll, KILLING),
            Wanted::Stopped => Answer::Order(Input::StopAll, "stopping what runs; Ctrl-C again kills it"),
            Wanted::Work | Wanted::Drained => {
                Answer::Order(Input::Drain, "draining: nothing new starts; Ctrl-C again stops what runs")
            }
        }
    }
}

/// The exit code of a run during which a signal asked for `heard`, or none did. What an interrupt makes of it depends on
/// whether it cut anything short.
pub fn exit_of(heard: Option<Exit>, interrupted: impl FnOnce(bool) -> Exit) -> Exit {
    match heard {
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

    fn answers(mut will: Will, signals: &[u8]) -> (Vec<Option<Input>>, Option<Exit>) {
        let mut said = Vec::new();
        for signal in signals {
            match will.hear(*signal) {
                Answer::Order(input, _) => said.push(Some(input)),
                Answer::Leave => said.push(None),
                Answer::Nothing => {}
            }
        }
        (said, will.exit)
    }

    #[test]
    fn each_interrupt_asks_for_more_and_the_last_does_not_wait() {
        let all = [Some(Input::Drain), Some(Input::StopAll), Some(Input::KillAll), None];
        assert_eq!(answers(Will::default(), &[SIGINT; 4]), (all.to_vec(), Some(Exit::Signal(SIGINT))));
        assert_eq!(answers(Will::at_work(), &[SIGINT; 2]).0, all[1..3]);
        assert_eq!(answers(Will::stopped(), &[SIGINT; 2]).0, all[2..]);
        assert_eq!(answers(Will::killed(), &[SIGINT]).0, all[3..]);
        assert_eq!(answers(Will::default(), &[]), (vec![], None));
    }

    #[test]
    fn being_told_to_go_is_going_at_once() {
        for signal in [SIGTERM, SIGHUP, SIGQUIT] {
            for before in [&[][..], &[SIGINT], &[SIGINT; 2]] {
                let (said, exit) = answers(Will::default(), &[before, &[signal]].concat());
                assert_eq!((said.last(), exit), (Some(&Some(Input::KillAll)), Some(Exit::Signal(signal))));
            }
        }
        assert_eq!(answers(Will::default(), &[SIGTERM, SIGINT]).1, Some(Exit::Signal(SIGTERM)));
        assert_eq!(answers(Will::default(), &[SIGTERM, SIGTERM]).0, [Some(Input::KillAll), None]);
    }

    #[test]
    fn a_hang_up_that_comes_twice_insists_on_nothing() {
        for signals in [[SIGHUP, SIGHUP], [SIGTERM, SIGHUP]] {
            assert_eq!(answers(Will::default(), &signals).0, [Some(Input::KillAll)]);
        }
    }
}
