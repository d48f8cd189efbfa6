//! The scripted agent: plays a script over the protocol of `claude -p`, calling the host's real tools on the way.
//!
//! It is the model of the demo and the stand-in of the tests: no account, no network. It always shows as scripted:
//! model `scripted`, version `0.0.0 (scripted)`. It must not know who drives it: everything goes through stdin, stdout
//! and signals, as with the real program. [`script`] documents the format.
//!
//! ```text
//! ingestdeck scripted-agent --script FILE [--attempt N] [--unit KEY] [--speed F] [claude's own arguments…]
//! ```

use std::{process::ExitCode, sync::Arc};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    task::JoinSet,
};

use self::{
    actor::{Actor, Totals},
    args::{Args, Request, Run},
    host::{Cues, Host},
    script::{Ignorable, Script},
    wire::{VERSION, Wire},
};

mod actor;
pub mod args;
mod call;
mod host;
pub mod script;
mod turn;
mod wire;

/// A signal that the process got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT: say how far it got, then exit with 0.
    Interrupt,
    /// SIGTERM: exit with 143 at once.
    Terminate,
}

/// The subcommand: reads `words` (the arguments after its name), plays on the process's own streams.
pub fn run(words: impl IntoIterator<Item = String>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&format!("scripted-agent: cannot start: {error}")),
    };
    let args = match Args::parse(words) {
        Ok(args) => args,
        Err(error) => return complain(&error.to_string()),
    };
    let code = runtime.block_on(on_process_streams(args));
    // A thread that still reads stdin would otherwise keep the process.
    runtime.shutdown_background();
    code
}

async fn on_process_streams(args: Args) -> ExitCode {
    let run = match args.request {
        Request::Version => return say(VERSION),
        Request::AuthStatus => {
            return say(r#"{"loggedIn":true,"authMethod":"scripted","apiProvider":"scripted"}"#);
        }
        Request::Run(run) => *run,
    };
    let file = args.script.display();
    let script = match std::fs::read_to_string(&args.script) {
        Ok(text) => Script::parse(&text),
        Err(error) => return complain(&format!("scripted-agent: cannot read {file}: {error}")),
    };
    let script = match script {
        Ok(script) => script,
        Err(error) => return complain(&format!("scripted-agent: {file}: {error}")),
    };
    let part = Casting { attempt: args.attempt, unit: args.unit, speed: args.speed, run };
    let code = match signals() {
        Ok(signals) => {
            perform(script, part, tokio::io::stdin(), tokio::io::stdout(), tokio::io::stderr(), signals).await
        }
        Err(error) => return complain(&format!("scripted-agent: cannot listen to signals: {error}")),
    };
    ExitCode::from(code)
}

/// Who plays what, and how fast.
#[derive(Clone, Debug)]
pub struct Casting {
    /// Number of the attempt.
    pub attempt: u32,
    /// Unit key; else the prompt's heading says.
    pub unit: Option<String>,
    /// Times are divided by this.
    pub speed: f64,
    /// What the command line of `claude` asks.
    pub run: Run,
}

/// Plays `script` on any streams and gives the exit code. `stdin` is read only in two-way mode.
pub async fn perform(
    script: Script,
    casting: Casting,
    stdin: impl AsyncRead + Send + Unpin + 'static,
    stdout: impl AsyncWrite + Send + Unpin + 'static,
    stderr: impl AsyncWrite + Send + Unpin + 'static,
    mut signals: mpsc::Receiver<Signal>,
) -> u8 {
    let Casting { attempt, unit, speed, run } = casting;
    let wire = Arc::new(Wire::new(stdout, stderr));
    let cues = Arc::new(Cues::default());
    // Unbounded, so that a queue of prompts never keeps back the reply that a running call waits for.
    let (sender, prompts) = mpsc::unbounded_channel();
    let host = run.two_way.then(|| Arc::new(Host::new(Arc::clone(&wire), Arc::clone(&cues))));
    // Dropped with this function, and the reader with it: else its half of the streams would stay open.
    let mut reader = JoinSet::new();
    if let Some(host) = host.clone() {
        reader.spawn(host.listen(stdin, sender));
    }
    let totals = Totals::default().into();
    let actor = Actor { script, attempt, unit, speed, run, wire, host: host.clone(), cues: Arc::clone(&cues), totals };
    let mut performance = std::pin::pin!(actor.perform(prompts));
    let code = loop {
        tokio::select! {
            code = &mut performance => break code,
            () = cues.dead.cancelled() => break 1,
            Some(signal) = signals.recv() => match signal {
                Signal::Terminate if !cues.ignores(Ignorable::Sigterm) => break 128 + 15,
                Signal::Interrupt if !cues.ignores(Ignorable::Sigint) => {
                    cues.quit.cancel();
                    cues.interrupt();
                }
                Signal::Terminate | Signal::Interrupt => {}
            },
        }
    };
    if let Some(host) = host {
        host.close();
    }
    code
}

fn signals() -> std::io::Result<mpsc::Receiver<Signal>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let got = tokio::select! {
                Some(()) = interrupts.recv() => Signal::Interrupt,
                Some(()) = terminations.recv() => Signal::Terminate,
                else => return,
            };
            if sender.send(got).await.is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

#[expect(clippy::print_stdout, reason = "stdout is this subcommand's protocol")]
fn say(line: &str) -> ExitCode {
    println!("{line}");
    ExitCode::SUCCESS
}

#[expect(clippy::print_stderr, reason = "stderr is where the real program complains")]
fn complain(line: &str) -> ExitCode {
    eprintln!("{line}");
    ExitCode::FAILURE
}
