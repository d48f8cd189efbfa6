//! `/` on the screen for a word of the last line, against `grep -cF` and `rg -cF`: from the last key to the end of the
//! search, with all frames in between. The screen has read the capture before; the others are whole processes, which
//! adds about a millisecond.

use std::time::Instant;

use ingestdeck_core::run::Timeline;
use ingestdeck_records::replay::FileSource;
use ingestdeck_tui::{
    app::{App, RunAccess},
    host::ClockReading,
    key,
    screen_message::ScreenMessage,
};
use ratatui::{buffer::Buffer, layout::Rect};

use crate::{
    capture::{self, BenchCapture, LAST_WORD},
    harness::{BenchReport, BenchResult, FigureGoal, Threshold, pairs, time, timed},
    measured_process::{ProbeOutput, argument, is_installed, run},
    views,
};

const PAIRS: usize = 9;
const SIZE: Rect = Rect {
    x: 0,
    y: 0,
    width: 200,
    height: 60,
};

pub(crate) fn measure(report: &mut BenchReport) -> BenchResult<()> {
    // A search ends with the attempt, so the capture is one attempt.
    let capture = capture::of_one_session()?;
    report.note(&format!("capture: {capture}"));
    let path = argument(&capture.path)?;
    let mut screen = SearchScreen::new(&capture)?;
    for (program, arguments) in [
        ("grep", ["-cF", LAST_WORD, path]),
        ("rg", ["-cF", LAST_WORD, path]),
    ] {
        let figure = format!("/ for the last line / {program} -cF");
        if !is_installed(program) {
            report.note_missing_program(program, &figure);
            continue;
        }
        let ours = || screen.seconds_to_find(LAST_WORD);
        let theirs = || Ok(run(program, &arguments, ProbeOutput::Null)?.seconds);
        let measured = pairs(PAIRS, ours, theirs)?;
        report.ratio(
            &figure,
            &measured,
            FigureGoal {
                required: Threshold::AtMost(1.5),
                goal: Threshold::AtMost(1.1),
            },
        );
    }
    let seconds = screen.seconds_to_find(&LAST_WORD.to_lowercase())?;
    report.note(&format!(
        "in lower case, which ignores the case: {}",
        time(seconds)
    ));
    Ok(())
}

/// The screen with all lines of a capture.
struct SearchScreen {
    app: App,
    started: Instant,
}

impl SearchScreen {
    fn new(capture: &BenchCapture) -> BenchResult<Self> {
        let timeline = Timeline::new(Box::new(FileSource::open(&capture.path)?));
        let started = Instant::now();
        let app = App::new(
            timeline,
            RunAccess::Replay,
            views::options()?,
            clock(started),
        );
        let mut screen = Self { app, started };
        screen.work();
        // The panel with every line: an action may also match by its end, which may be the last line for any call.
        screen.press("<enter>6")?;
        Ok(screen)
    }

    /// Seconds that a search from the first line to the last takes.
    fn seconds_to_find(&mut self, word: &str) -> BenchResult<f64> {
        self.press("gg")?;
        self.work();
        self.press(&format!("/{word}"))?;
        let seconds = timed(|| {
            self.press("<enter>")?;
            self.work();
            Ok(())
        })?;
        let shown = self.frame();
        let is_found = shown.matches(LAST_WORD).count() > usize::from(word == LAST_WORD);
        if is_found {
            Ok(seconds)
        } else {
            Err(format!("{word} was not found; the screen shows\n{shown}").into())
        }
    }

    fn press(&mut self, keys: &str) -> BenchResult<()> {
        self.app.tick(clock(self.started));
        for key in key::parse(keys).map_err(|error| format!("{error:?}"))? {
            self.app.input(ScreenMessage::Key(key));
        }
        Ok(())
    }

    /// Works and draws like the event loop until there is nothing to do.
    fn work(&mut self) {
        loop {
            self.app.tick(clock(self.started));
            if self.app.is_due() {
                self.frame();
                self.app.frame_drawn();
            }
            if !self.app.is_busy() {
                return;
            }
            self.app.work();
        }
    }

    /// The text of a frame.
    fn frame(&mut self) -> String {
        let mut buffer = Buffer::empty(SIZE);
        self.app.paint(&mut buffer, false);
        buffer
            .content()
            .chunks(SIZE.width.into())
            .map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>() + "\n")
            .collect()
    }
}

fn clock(started: Instant) -> ClockReading {
    ClockReading {
        now: started.elapsed(),
        wall: jiff::Timestamp::UNIX_EPOCH,
    }
}
