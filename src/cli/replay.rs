//! `replay`: any record, through the same code path as a live run.

#![expect(clippy::disallowed_methods, reason = "whether an argument is a path")]

use std::path::Path;

use super::{
    args::{Cli, GlobalArgs, ReplayArgs, Ui},
    exit::{self, CliError, Exit},
    home,
    playback_output::{self, EventSink},
    runs, session_files,
    session_watch::{self, RunningSession},
};
use ingestdeck_core::{
    run::{Timeline, entry_source::EntrySource as _},
    tape::Header,
};
use ingestdeck_engine::recorded_tapes;
use ingestdeck_records::replay::{FileSource, OpenError, SessionProcess};

/// Replays a file, a run or stdin.
///
/// # Errors
/// If the record cannot be found or cannot be replayed.
pub(crate) fn replay(
    global: &GlobalArgs,
    args: &ReplayArgs,
    run: fn(&Cli) -> Result<Exit, CliError>,
) -> Result<Exit, CliError> {
    let speed = args.speed.as_deref().map(parse_speed).transpose()?;
    let ui = playback_output::resolve_ui(global.ui);
    if ui != Ui::Tui && args.paused_after().is_some() {
        let option = if args.paused { "--paused" } else { "--entry" };
        return Err(CliError::usage(format!("{option} needs the screen"))
            .with_help("add --ui tui, or leave it out"));
    }
    if args.what != "-" && Path::new(&args.what).is_dir() {
        return replay_directory(global, ui, args, run);
    }
    if ui == Ui::Tui
        && speed.is_none()
        && let Some(session) = RunningSession::open(&args.what)?
    {
        return session_watch::show(global, &args.what, session, |options| {
            options.paused_after = args.paused_after();
            options.exit_when = args.until.map(super::screen::exit_condition);
        });
    }
    let is_shown_from_start = ui == Ui::Tui && speed.is_none() && args.paused_after().is_none();
    let source = match is_shown_from_start {
        true => open_with(global, &args.what, FileSource::open_early)?,
        false => open(global, &args.what)?,
    };
    let source = playback_output::for_ui(source, ui);
    let is_active = runs::find_running(global, &args.what, &source)?.is_some()
        || is_running_session(&args.what, &source);
    if ui == Ui::Tui {
        let timeline = Timeline::new(Box::new(source)).with_open_end(is_active);
        return match super::screen::show_record(global, args, speed, timeline)? {
            (_, Some(choice)) => home::start_chosen(global, &choice, run),
            (exit, None) => Ok(exit),
        };
    }
    replay_plain(
        global,
        ui,
        Timeline::new_forward_only(Box::new(source)).with_open_end(is_active),
        speed.filter(|speed| speed.is_finite()),
    )
}

/// Lists the records in a directory; on the screen, the user opens them from the list.
fn replay_directory(
    global: &GlobalArgs,
    ui: Ui,
    args: &ReplayArgs,
    run: fn(&Cli) -> Result<Exit, CliError>,
) -> Result<Exit, CliError> {
    if args.paused_after().is_some() || args.speed.is_some() || args.until.is_some() {
        return Err(CliError::usage(format!(
            "{} is a directory, and these options need one record",
            args.what
        ))
        .with_help("name one of its files, or leave the options out"));
    }
    let directory = Path::new(&args.what);
    if ui == Ui::Tui {
        home::choose_session(global, directory, run)
    } else {
        session_files::print_list(global, ui, directory)
    }
}

/// True for a session file whose process runs: the end of the file is not the end of the session.
fn is_running_session(what: &str, source: &FileSource) -> bool {
    source.is_session_file()
        && SessionProcess::of_file(Path::new(what)).is_some_and(|process| process.is_alive())
}

/// Parses a speed: a number above 0, or `max`, which is infinity.
fn parse_speed(text: &str) -> Result<f64, CliError> {
    match text.trim_start_matches(['x', '×']) {
        "max" => Ok(f64::INFINITY),
        number => number
            .parse()
            .ok()
            .filter(|speed: &f64| speed.is_finite() && *speed > 0.0)
            .ok_or_else(|| {
                CliError::usage(format!(
                    "invalid --speed `{text}`; expected a number above 0, such as 4, or max"
                ))
            }),
    }
}

fn replay_plain(
    global: &GlobalArgs,
    ui: Ui,
    mut timeline: Timeline,
    speed: Option<f64>,
) -> Result<Exit, CliError> {
    let origin = timeline.source().info().clone();
    let mut sink = EventSink::new(ui, global, &origin);
    playback_output::play(&mut timeline, &mut sink, speed)?;
    sink.finish(&origin, &timeline.view().state, timeline.is_open_ended())?;
    Ok(Exit::Ok)
}

/// Opens the record that the user named: stdin, a file, or a recorded run of the project. Warns about a tape whose lines
/// cannot be decoded.
///
/// # Errors
/// If it does not exist or cannot be replayed.
pub(crate) fn open(global: &GlobalArgs, what: &str) -> Result<FileSource, CliError> {
    open_with(global, what, FileSource::open)
}

/// Like [`open`], and `open_file` opens a file.
fn open_with(
    global: &GlobalArgs,
    what: &str,
    open_file: fn(&Path) -> Result<FileSource, OpenError>,
) -> Result<FileSource, CliError> {
    let source = open_source(global, what, open_file)?;
    source
        .info()
        .header
        .iter()
        .filter_map(Header::agent_problem)
        .for_each(|problem| exit::print_warning(&problem));
    Ok(source)
}

fn open_source(
    global: &GlobalArgs,
    what: &str,
    open_file: fn(&Path) -> Result<FileSource, OpenError>,
) -> Result<FileSource, CliError> {
    if what == "-" {
        return Ok(FileSource::from_stdin()?);
    }
    let path = Path::new(what);
    let looks_like_a_path = what.contains(std::path::MAIN_SEPARATOR) || what.contains('.');
    if looks_like_a_path || path.exists() {
        return Ok(open_file(path)?);
    }
    let (found, tape) = runs::resolve_tape(global, what).map_err(|failure| match failure.exit {
        // The name may be meant as a file, so the error mentions files too.
        Exit::NotFound if what != "latest" => {
            failure.prefixed(&format!("there is no file {what}, and "))
        }
        _ => failure,
    })?;
    Ok(FileSource::from_file(&found.tape, tape)?)
}

/// The record, and whether its run or its session is still active. If so, the end of the record is not the end of the run.
///
/// # Errors
/// If the record does not exist or cannot be read.
pub(crate) fn open_record(global: &GlobalArgs, what: &str) -> Result<(FileSource, bool), CliError> {
    // A report shows only a small part of the longest strings.
    let source = open(global, what)?.with_shortened_lines();
    let Some(found) = runs::find_running(global, what, &source)? else {
        let is_active = is_running_session(what, &source);
        return Ok((source, is_active));
    };
    let (source, _) = recorded_tapes::follow(&runs::resolve_store(global)?, &found)?;
    Ok((source.with_shortened_lines(), true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_a_positive_number_or_max() {
        assert_eq!(
            ["0.25", "×4", "x4"].map(|text| parse_speed(text).unwrap()),
            [0.25, 4.0, 4.0]
        );
        assert_eq!(parse_speed("max").unwrap(), f64::INFINITY);
        for no in ["", "0", "-1", "NaN", "inf", "fast"] {
            assert!(parse_speed(no).is_err(), "{no}");
        }
    }
}
