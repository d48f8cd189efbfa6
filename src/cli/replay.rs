//! `replay`: any record, through the same path as a live run.

use std::path::Path;

use super::{
    args::{Global, ReplayArgs, Ui},
    exit::{Exit, Failure},
    show::{self, Plain},
};
use crate::{
    replay::{self, FileSource, OpenError},
    run::Timeline,
};

/// Replays a file, a run or stdin.
///
/// # Errors
/// When it cannot be found or is nothing that can be replayed.
pub fn replay(global: &Global, args: &ReplayArgs) -> Result<Exit, Failure> {
    let speed = args.speed.as_deref().map(pace).transpose()?;
    let ui = show::resolve(global.ui);
    let source = for_ui(open(global, &args.what)?, ui);
    let goes_on = super::runs::running(global, &args.what, &source)?.is_some();
    if ui != Ui::Tui && args.paused {
        return Err(Failure::usage("--paused needs the screen; add --ui tui, or leave it out"));
    }
    if ui == Ui::Tui {
        return super::screen::recorded(global, args, speed, Timeline::new(Box::new(source)).going_on(goes_on));
    }
    plain(global, ui, Timeline::forward(Box::new(source)).going_on(goes_on), speed.filter(|speed| speed.is_finite()))
}

/// Reads a pace: a number above 0, or `max`, which is infinity.
fn pace(text: &str) -> Result<f64, Failure> {
    match text.trim_start_matches(['x', '×']) {
        "max" => Ok(f64::INFINITY),
        number => number.parse().ok().filter(|speed: &f64| speed.is_finite() && *speed > 0.0).ok_or_else(|| {
            Failure::usage(format!("--speed {text} is no pace; give a number above 0, such as 4, or max"))
        }),
    }
}

fn plain(global: &Global, ui: Ui, mut timeline: Timeline, speed: Option<f64>) -> Result<Exit, Failure> {
    let origin = timeline.source().origin().clone();
    let mut sink = Plain::new(ui, global, &origin);
    show::play(&mut timeline, &mut sink, speed)?;
    sink.end(&origin, &timeline.story().state, timeline.goes_on())?;
    Ok(Exit::Ok)
}

/// What `ui` needs of a source: only programs get every byte.
pub fn for_ui(source: FileSource, ui: Ui) -> FileSource {
    if ui == Ui::Json { source } else { source.shortened() }
}

/// Opens what the user named: stdin, a file, or a recorded run of the project.
///
/// # Errors
/// When there is no such thing, or it cannot be replayed.
pub fn open(global: &Global, what: &str) -> Result<FileSource, Failure> {
    if what == "-" {
        return replay::stdin().map_err(|error| failure(&error));
    }
    let path = Path::new(what);
    let looks_like_a_path = what.contains(std::path::MAIN_SEPARATOR) || what.contains('.');
    if looks_like_a_path || path.exists() {
        return FileSource::open(path).map_err(|error| failure(&error));
    }
    let (found, tape) = super::runs::tape_of(global, what).map_err(|failure| match failure.exit {
        // Whoever named a file by a bare name must not be told about runs alone.
        Exit::NotFound if what != "latest" => {
            Failure { message: format!("there is no file {what}, and {}", failure.message), ..failure }
        }
        _ => failure,
    })?;
    FileSource::from_file(&found.tape, tape).map_err(|error| failure(&error))
}

/// Sorts a refusal into exit codes.
pub fn failure(error: &OpenError) -> Failure {
    let exit = match error {
        OpenError::NotFound { .. } => Exit::NotFound,
        OpenError::Directory { .. } | OpenError::Refused { .. } => Exit::Usage,
        OpenError::Unreadable { .. } => Exit::Internal,
    };
    Failure::new(exit, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_a_number_or_as_fast_as_possible() {
        assert_eq!(["0.25", "×4", "x4"].map(|text| pace(text).unwrap()), [0.25, 4.0, 4.0]);
        assert_eq!(pace("max").unwrap(), f64::INFINITY);
        for no in ["", "0", "-1", "NaN", "inf", "fast"] {
            assert!(pace(no).is_err(), "{no}");
        }
    }
}
