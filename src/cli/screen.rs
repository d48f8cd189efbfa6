//! Shows records and live runs on the screen.

use nix::{errno::Errno, sys::termios};
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    args::{GlobalArgs, MeasuredStep, ReplayArgs},
    bookmarks,
    exit::{CliError, Exit, SIGHUP},
    output, project, runs, settings,
    summary::RunSummary,
    table_memory,
};
use std::path::PathBuf;

use ingestdeck_core::{
    control::{CommandOrigin, CommandReply},
    run::Timeline,
};
use ingestdeck_engine::{controller::RunController, launch::runtime};
use ingestdeck_tui::{self as tui, EngineChannel, ExitReason, HomeChoice, LiveHandle};

/// Capacity of the queue of commands from the user.
const COMMAND_QUEUE_CAPACITY: usize = 4096;

/// Shows a record. Returns the run that the user chose to start, too.
///
/// # Errors
/// If the terminal cannot be used.
pub(crate) fn show_record(
    global: &GlobalArgs,
    args: &ReplayArgs,
    speed: Option<f64>,
    timeline: Timeline,
) -> Result<(Exit, Option<HomeChoice>), CliError> {
    let config = settings::load(global)?;
    let mut options = settings::screen_options(global, &config)?;
    options.project = project_of(global, &timeline);
    options.paused_after = args.paused_after();
    options.speed = speed;
    options.exit_when = args.until.map(exit_condition);
    // A record of another program is a session, which is read; a run has units.
    let is_session = timeline.source().info().header.is_none();
    if args.is_from_home {
        options.first_page = tui::FirstPage::FromHome { is_session };
    } else if is_session {
        options.first_page = tui::FirstPage::Session;
    }
    bookmarks::attach_to_record(&mut options, global, &args.what, timeline.source().info());
    let is_ascii = options.theme.is_ascii();
    let runtime = runtime(1)?;
    let left = runtime.block_on(table_memory::run(timeline, None, options));
    // The reader of a closed terminal may block forever.
    runtime.shutdown_background();
    let left = left.map_err(|error| terminal_error(&error))?;
    let exit = exit_after(&left.reason, Exit::Ok);
    if left.reason == ExitReason::Quit {
        print_partial_summary(is_ascii, left.timeline)?;
    }
    let choice = match left.reason {
        ExitReason::Chosen(choice) => Some(choice),
        _ => None,
    };
    Ok((exit, choice))
}

/// Shows a session that another process writes. `polling` runs meanwhile.
///
/// # Errors
/// If the terminal cannot be used.
pub(crate) fn show_session(
    global: &GlobalArgs,
    what: &str,
    timeline: Timeline,
    live: LiveHandle,
    polling: impl Future<Output = ()> + Send + 'static,
    configure: impl FnOnce(&mut tui::Options),
) -> Result<Exit, CliError> {
    let config = settings::load(global)?;
    let mut options = settings::screen_options(global, &config)?;
    configure(&mut options);
    bookmarks::attach_to_record(&mut options, global, what, timeline.source().info());
    let runtime = runtime(1)?;
    let left = runtime.block_on(async {
        tokio::spawn(polling);
        table_memory::run(timeline, Some(live), options).await
    });
    // The reader of a closed terminal may block forever.
    runtime.shutdown_background();
    let left = left.map_err(|error| terminal_error(&error))?;
    Ok(exit_after(&left.reason, Exit::Ok))
}

/// When a measured screen closes.
pub(super) fn exit_condition(until: MeasuredStep) -> tui::ExitCondition {
    match until {
        MeasuredStep::FirstFrame => tui::ExitCondition::FirstFrame,
        MeasuredStep::Indexed => tui::ExitCondition::Indexed,
        MeasuredStep::End => tui::ExitCondition::End,
    }
}

/// The directory of the project, if the record is one of its runs; other records belong to other directories.
fn project_of(global: &GlobalArgs, timeline: &Timeline) -> Option<PathBuf> {
    let run = timeline.source().info().header.as_ref()?.run.to_string();
    runs::resolve_store(global).ok()?.resolve(&run).ok()?;
    project::resolve_directory(global).ok()
}

/// The sender of the commands of a screen.
pub(super) fn origin() -> CommandOrigin {
    CommandOrigin {
        client: Some("screen".to_owned()),
        reason: None,
    }
}

/// Shows a live run. Returns how the user left the screen, and the timeline for a summary.
///
/// # Errors
/// If the terminal cannot be used.
pub(crate) async fn show_live(
    options: tui::Options,
    timeline: Timeline,
    controller: RunController,
    changed: watch::Receiver<u64>,
    broken: oneshot::Receiver<String>,
) -> Result<tui::TuiExit, CliError> {
    let (commands, mut received) = mpsc::channel(COMMAND_QUEUE_CAPACITY);
    let (answer, outcomes) = mpsc::unbounded_channel();
    let executing = tokio::spawn(async move {
        while let Some(command) = received.recv().await {
            let outcome = match controller.execute(command, origin()).await {
                CommandReply::Refused { reason } => Err(reason),
                _ => Ok(()),
            };
            // A screen that is gone does not need to know.
            let _ = answer.send(outcome);
        }
    });
    let engine = Some(EngineChannel {
        commands,
        outcomes,
        leave_action: None,
    });
    let left = table_memory::run(
        timeline,
        Some(LiveHandle {
            engine,
            changed,
            failed: Some(broken),
        }),
        options,
    )
    .await
    .map_err(|error| terminal_error(&error));
    // The screen's sender is gone, so this carries out its last command before returning.
    let _ = executing.await;
    left
}

/// The exit code after the screen: a signal's, or that of the run.
pub(crate) fn exit_after(how: &ExitReason, run: Exit) -> Exit {
    match how {
        ExitReason::Quit
        | ExitReason::Detached
        | ExitReason::Chosen(_)
        | ExitReason::ConditionMet => run,
        ExitReason::Signal(number) => Exit::Signal(u8::try_from(*number).unwrap_or(0)),
        // A closed terminal counts as a hang-up.
        ExitReason::Closed => Exit::Signal(SIGHUP),
    }
}

/// A failed frame may report a hang-up before the signal arrives, also by another error than that of the terminal.
pub(crate) fn terminal_error(error: &tui::TuiError) -> CliError {
    let tui::TuiError::Terminal(cause) = error;
    let is_gone = || matches!(termios::tcgetattr(std::io::stdin()), Err(Errno::EIO));
    let gone = cause.raw_os_error() == Some(Errno::EIO as i32) || is_gone();
    CliError::from_error(
        if gone {
            Exit::Signal(SIGHUP)
        } else {
            Exit::Internal
        },
        error,
    )
}

/// The text with the characters of the screen, which may be limited to ASCII.
fn in_screen_characters(is_ascii: bool, text: String) -> String {
    match is_ascii {
        true => ascii_signs(&text),
        false => text,
    }
}

/// Replaces the signs of a summary by those of the screen in ASCII.
fn ascii_signs(text: &str) -> String {
    const SIGNS: [(char, &str); 13] = [
        ('·', "-"),
        ('≥', ">="),
        ('…', "~"),
        ('→', ">"),
        ('▲', "!"),
        ('✗', "x"),
        ('✓', "v"),
        ('◆', "B"),
        ('■', "#"),
        ('◌', "/"),
        ('○', "o"),
        ('‖', "="),
        ('≡', "^"),
    ];
    let mut ascii = text.to_owned();
    for (sign, plain) in SIGNS {
        ascii = ascii.replace(sign, plain);
    }
    ascii
}

/// Prints a summary of the entries that were read so far. Reads nothing more, because the record may be large.
fn print_partial_summary(is_ascii: bool, timeline: Timeline) -> Result<(), CliError> {
    use std::io::Write as _;
    if timeline.is_fully_read() {
        return print_summary(is_ascii, timeline).map(drop);
    }
    let state = timeline.latest_state();
    let summary = RunSummary::from_state(state).with_open_end(timeline.is_open_ended());
    let mut text = summary.to_text(timeline.source().info(), state);
    text.push_str(&format!(
        "the record was not read completely; this summary covers its first {} entries\n",
        state.entries
    ));
    let _ = output::stdout().write_all(in_screen_characters(is_ascii, text).as_bytes());
    Ok(())
}

/// Prints a summary of the whole record to the scrollback, with the characters of the screen.
///
/// # Errors
/// If the record cannot be read.
pub(crate) fn print_summary(
    is_ascii: bool,
    mut timeline: Timeline,
) -> Result<(RunSummary, Timeline), CliError> {
    use std::io::Write as _;
    timeline.seek(u64::MAX)?;
    let state = &timeline.view().state;
    let summary = RunSummary::from_state(state)
        .with_open_end(timeline.is_open_ended() || !timeline.is_fully_read());
    let text = summary.to_text(timeline.source().info(), state);
    // A closed terminal cannot show the summary; the exit reason already reports that.
    let _ = output::stdout().write_all(in_screen_characters(is_ascii, text).as_bytes());
    Ok((summary, timeline))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingestdeck_core::run::state::UnitStatus;

    #[test]
    fn signs_of_a_summary_have_an_ascii_form() {
        use UnitStatus::*;
        let ended = [
            NotStarted,
            Held,
            Succeeded,
            BudgetExhausted,
            Stopped,
            Interrupted,
            Failed,
            Reused,
        ];
        let signs: String = ended.iter().map(|status| status.glyph()).collect();
        let text = format!("{signs} a · ≥ $1 → é…");
        assert_eq!(ascii_signs(&text), "o=vB#/x^ a - >= $1 > é~");
    }
}
