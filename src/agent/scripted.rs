//! The scripted agent: plays a script over the protocol of `claude -p` and calls the host's real tools.
//!
//! It replaces the model in the demo and in tests, so that they need no account and no network. It always identifies
//! itself as scripted: model `scripted`, version `0.0.0 (scripted)`. The module must not depend on its host: all input
//! and output uses stdin, stdout and signals, as in the real program. [`script`] documents the format.
//!
//! ```text
//! ingestdeck scripted-agent --script FILE [--attempt N] [--unit KEY] [--speed F] [claude's own arguments…]
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "the script that the command line names"
)]

use std::{ffi::OsString, process::ExitCode, sync::Arc};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    task::JoinSet,
};

use self::{
    agent::{ScriptedAgent, UsageTotals},
    args::{ClaudeFlags, ScriptedAgentArgs, ScriptedCommand},
    host::{HostConnection, TurnControl},
    output::{OutputLines, VERSION},
    script::{AgentScript, IgnoredEvent},
};

mod agent;
pub mod args;
mod host;
mod output;
pub mod script;

/// The subcommand of this program that plays a script.
pub const SUBCOMMAND: &str = "scripted-agent";

/// A signal that the process received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentSignal {
    /// SIGINT: report the progress, then exit with 0.
    Interrupt,
    /// SIGTERM: exit with 143 immediately.
    Terminate,
}

/// The subcommand: parses `words` (the arguments after its name) and plays on the process's own streams.
pub fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return print_error(&format!("scripted-agent: cannot start: {error}")),
    };
    let args = match ScriptedAgentArgs::parse(words) {
        Ok(args) => args,
        Err(error) => return print_error(&error.to_string()),
    };
    let code = runtime.block_on(play_on_process_streams(args));
    // A thread that still reads stdin would otherwise keep the process alive.
    runtime.shutdown_background();
    code
}

async fn play_on_process_streams(args: ScriptedAgentArgs) -> ExitCode {
    let run = match args.request {
        ScriptedCommand::Version => return print_line(VERSION),
        ScriptedCommand::AuthStatus => {
            return print_line(
                r#"{"loggedIn":true,"authMethod":"scripted","apiProvider":"scripted"}"#,
            );
        }
        ScriptedCommand::Run(run) => *run,
    };
    let file = args.script.display();
    let script = match std::fs::read_to_string(&args.script) {
        Ok(text) => AgentScript::parse(&text),
        Err(error) => return print_error(&format!("scripted-agent: cannot read {file}: {error}")),
    };
    let script = match script {
        Ok(script) => script,
        Err(error) => return print_error(&format!("scripted-agent: {file}: {error}")),
    };
    let part = ScriptedAgentOptions {
        attempt: args.attempt,
        unit: args.unit,
        speed: args.speed,
        run,
    };
    let code = match signals() {
        Ok(signals) => {
            play_script(
                script,
                part,
                tokio::io::stdin(),
                tokio::io::stdout(),
                tokio::io::stderr(),
                signals,
            )
            .await
        }
        Err(error) => {
            return print_error(&format!(
                "scripted-agent: cannot listen to signals: {error}"
            ));
        }
    };
    ExitCode::from(code)
}

/// Identity and speed of the agent.
#[derive(Clone, Debug)]
pub struct ScriptedAgentOptions {
    pub attempt: u32,
    /// Unit key; by default from the heading of the prompt.
    pub unit: Option<String>,
    /// All times are divided by this.
    pub speed: f64,
    /// Flags from the command line of `claude`.
    pub run: ClaudeFlags,
}

/// Plays `script` on any streams and returns the exit code. `stdin` is read only in two-way mode.
pub async fn play_script(
    script: AgentScript,
    casting: ScriptedAgentOptions,
    stdin: impl AsyncRead + Send + Unpin + 'static,
    stdout: impl AsyncWrite + Send + Unpin + 'static,
    stderr: impl AsyncWrite + Send + Unpin + 'static,
    mut signals: mpsc::Receiver<AgentSignal>,
) -> u8 {
    let ScriptedAgentOptions {
        attempt,
        unit,
        speed,
        run,
    } = casting;
    let lines = Arc::new(OutputLines::new(stdout, stderr));
    let turn_control = Arc::new(TurnControl::default());
    // Unbounded, so that queued prompts never block the reply that a running call waits for.
    let (sender, prompts) = mpsc::unbounded_channel();
    let host = run.stream_input.then(|| {
        Arc::new(HostConnection::new(
            Arc::clone(&lines),
            Arc::clone(&turn_control),
        ))
    });
    // Dropped with this function, and the reader with it; otherwise its half of the streams would stay open.
    let mut reader = JoinSet::new();
    if let Some(host) = host.clone() {
        reader.spawn(host.listen(stdin, sender));
    }
    let totals = UsageTotals::default().into();
    let actor = ScriptedAgent {
        script,
        attempt,
        unit,
        speed,
        run,
        output: lines,
        host: host.clone(),
        turn_control: Arc::clone(&turn_control),
        totals,
        prompts: prompts.into(),
    };
    let mut performance = std::pin::pin!(actor.run());
    let code = loop {
        tokio::select! {
            code = &mut performance => break code,
            () = turn_control.exit_now.cancelled() => break 1,
            Some(signal) = signals.recv() => match signal {
                AgentSignal::Terminate if !turn_control.ignores(IgnoredEvent::Sigterm) => break 128 + 15,
                AgentSignal::Interrupt if !turn_control.ignores(IgnoredEvent::Sigint) => {
                    turn_control.exit_after_turn.cancel();
                    turn_control.interrupt();
                }
                AgentSignal::Terminate | AgentSignal::Interrupt => {}
            },
        }
    };
    if let Some(host) = host {
        host.close();
    }
    code
}

fn signals() -> std::io::Result<mpsc::Receiver<AgentSignal>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let got = tokio::select! {
                Some(()) = interrupts.recv() => AgentSignal::Interrupt,
                Some(()) = terminations.recv() => AgentSignal::Terminate,
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
fn print_line(line: &str) -> ExitCode {
    println!("{line}");
    ExitCode::SUCCESS
}

#[expect(
    clippy::print_stderr,
    reason = "stderr is where the real program complains"
)]
fn print_error(line: &str) -> ExitCode {
    eprintln!("{line}");
    ExitCode::FAILURE
}
