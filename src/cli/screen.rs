//! The screen, for records and for runs that go on.

use std::sync::Arc;

use nix::errno::Errno;
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    args::{Global, ReplayArgs, Until},
    exit::{Exit, Failure},
    gate::{Holds, Ruling},
    output, settings, signals,
    summary::Summary,
};
use crate::{
    claude::unit,
    run::Timeline,
    tui::{self, Command, Left, LiveHandle},
    units::schedule::Input,
};

/// Orders of a person that may wait to be carried out.
const ORDERS: usize = 64;

/// Shows a record.
///
/// # Errors
/// When the terminal cannot be used.
pub fn recorded(global: &Global, args: &ReplayArgs, speed: Option<f64>, timeline: Timeline) -> Result<Exit, Failure> {
    let config = settings::load(global)?;
    let mut options = settings::screen(global, &config)?;
    options.paused = args.paused;
    options.speed = speed;
    options.until = args.until.map(|until| match until {
        Until::FirstFrame => tui::Until::FirstFrame,
        Until::Indexed => tui::Until::Indexed,
        Until::End => tui::Until::End,
    });
    let runtime = runtime(1)?;
    let left = runtime.block_on(tui::run(timeline, None, options));
    // A reader of a terminal that is gone may never come back.
    runtime.shutdown_background();
    let left = left.map_err(|error| unusable(&error))?;
    let exit = after(&left.how, Exit::Ok);
    if left.how == Left::Quit {
        leave_words(left.timeline)?;
    }
    Ok(exit)
}

/// Shows a run while it goes on. Returns how the screen was left, and the timeline for a summary.
///
/// # Errors
/// When the terminal cannot be used.
pub async fn live(
    options: tui::Options,
    timeline: Timeline,
    inputs: mpsc::Sender<Input>,
    holds: Arc<Holds>,
    changed: watch::Receiver<u64>,
    broken: oneshot::Receiver<String>,
) -> Result<tui::Exit, Failure> {
    let (commands, mut orders) = mpsc::channel(ORDERS);
    let translating = tokio::spawn(async move {
        while let Some(command) = orders.recv().await {
            for input in passed_on(command, &holds) {
                if inputs.send(input).await.is_err() {
                    return;
                }
            }
        }
    });
    let left =
        tui::run(timeline, Some(LiveHandle { commands: Some(commands), changed, broken: Some(broken) }), options)
            .await
            .map_err(|error| unusable(&error));
    // The screen's end of the channel is gone, so what it said last is passed on before this returns.
    let _ = translating.await;
    left
}

/// Carries out what is about held calls; the rest is for the schedule.
fn passed_on(command: Command, holds: &Holds) -> Vec<Input> {
    let rule = |unit, call: Option<Arc<str>>, ruling| {
        if !holds.rule(&unit, call.as_deref(), ruling) {
            tracing::debug!(unit = unit.as_str(), "a decision came too late: the call waits no longer");
        }
        Vec::new()
    };
    match command {
        Command::Retry { unit, amendment } => vec![Input::RetryRequested { unit, amendment }],
        Command::RetryAll => vec![Input::RetryFailed],
        Command::LiftLimit => vec![Input::LiftLimit],
        Command::RetryFailed { units } => {
            units.into_iter().map(|unit| Input::RetryRequested { unit, amendment: None }).collect()
        }
        Command::Stop { unit } => vec![Input::StopRequested { unit }],
        Command::Drain => vec![Input::Drain],
        Command::Slots { by } => vec![Input::SlotsChanged { by }],
        Command::StopAll => vec![Input::StopAll],
        Command::KillAll => vec![Input::KillAll],
        Command::Hold { unit } => {
            holds.hold(&unit);
            Vec::new()
        }
        Command::LetGo { unit } => {
            holds.let_go(&unit);
            Vec::new()
        }
        Command::RunUntil { unit, call, conditions } => {
            holds.run_until(&unit, call.as_deref(), conditions);
            Vec::new()
        }
        Command::Step { unit, call } => rule(unit, call, Ruling::Allow),
        Command::Deny { unit, call, reason } => rule(unit, call, Ruling::Deny(reason)),
        Command::Edit { unit, call, input } => rule(unit, call, Ruling::Edit(input)),
    }
}

/// The exit code after the screen: a signal's, or that of the run.
pub fn after(how: &Left, run: Exit) -> Exit {
    match how {
        Left::Quit | Left::Reached => run,
        Left::Signal(number) => Exit::Signal(u8::try_from(*number).unwrap_or(0)),
        // As if the terminal had hung up, which it has.
        Left::Closed => Exit::Signal(signals::SIGHUP),
    }
}

/// A terminal that hangs up may be noticed by a frame before its signal comes.
pub fn unusable(error: &tui::TuiError) -> Failure {
    let tui::TuiError::Terminal(cause) = error;
    let gone = cause.raw_os_error() == Some(Errno::EIO as i32);
    Failure::new(if gone { Exit::Signal(signals::SIGHUP) } else { Exit::Internal }, error.to_string())
}

/// Leaves a summary of a record that somebody looked at: of all that was read. Nothing more is read for it, as a record may
/// be larger than anybody wants to wait for.
fn leave_words(timeline: Timeline) -> Result<(), Failure> {
    use std::io::Write as _;
    if timeline.is_read() {
        return leave_summary(timeline).map(drop);
    }
    let state = timeline.present();
    let summary = Summary::of(state).going_on(timeline.goes_on());
    let mut text = summary.to_text(timeline.source().origin(), state);
    text.push_str(&format!("left before all of it was read; this is about its first {} entries\n", state.entries));
    let _ = output::stdout().write_all(text.as_bytes());
    Ok(())
}

/// Leaves a summary of the whole record in the scrollback.
///
/// # Errors
/// When the record cannot be read.
pub fn leave_summary(mut timeline: Timeline) -> Result<(Summary, Timeline), Failure> {
    use std::io::Write as _;
    timeline.seek(u64::MAX).map_err(Failure::internal)?;
    let state = &timeline.story().state;
    let mut summary = Summary::of(state);
    summary.open = timeline.goes_on() || !timeline.is_read();
    let text = summary.to_text(timeline.source().origin(), state);
    // A terminal that hung up takes no last words. How the screen was left says so already.
    let _ = output::stdout().write_all(text.as_bytes());
    Ok((summary, timeline))
}

/// A runtime with that many threads beside the caller's.
///
/// # Errors
/// When the system gives no threads.
pub fn runtime(workers: usize) -> Result<tokio::runtime::Runtime, Failure> {
    unit::first_beat();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("cannot start threads: {error}")))
}
