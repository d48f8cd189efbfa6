//! Signals, as orders of a person: the first Ctrl-C drains, the second stops, the third kills; being told to go means
//! going at once, without leaving anybody behind.

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use super::{exit::Exit, show};
use crate::units::schedule::Input;

/// Number of a hang-up.
pub const SIGHUP: u8 = 1;
/// Number of Ctrl-C.
pub const SIGINT: u8 = 2;
/// Number of a plain `kill`.
const SIGTERM: u8 = 15;

/// Listens until the run is over. Returns the exit code that a signal asks for, if one does.
///
/// # Errors
/// When the system does not let us listen.
pub fn listen(inputs: mpsc::Sender<Input>) -> std::io::Result<tokio::task::JoinHandle<Option<Exit>>> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    let mut hangups = signal(SignalKind::hangup())?;
    Ok(tokio::spawn(async move {
        let mut asked = 0_u8;
        loop {
            let (input, exit) = tokio::select! {
                _ = interrupts.recv() => {
                    asked += 1;
                    say(asked);
                    match asked {
                        1 => (Input::Drain, None),
                        2 => (Input::StopAll, None),
                        _ => (Input::KillAll, Some(Exit::Signal(SIGINT))),
                    }
                }
                _ = terminations.recv() => (Input::KillAll, Some(Exit::Signal(SIGTERM))),
                _ = hangups.recv() => (Input::KillAll, Some(Exit::Signal(SIGHUP))),
                () = inputs.closed() => return (asked > 0).then_some(Exit::Signal(SIGINT)),
            };
            // Nobody listens any more once the run is over.
            if inputs.send(input).await.is_err() || exit.is_some() {
                return exit.or_else(|| (asked > 0).then_some(Exit::Signal(SIGINT)));
            }
        }
    }))
}

fn say(asked: u8) {
    show::tell(match asked {
        1 => "draining: nothing new starts; Ctrl-C again stops what runs",
        2 => "stopping what runs; Ctrl-C again kills it",
        _ => "killing what runs",
    });
}
