//! A frame of 200×60 over a million rows, against one over ten thousand. In process, with the real screen over a
//! recorded capture and the real terminal writer; the output is discarded.

use std::{
    io::{self, Write as _},
    time::Instant,
};

use ingestdeck_core::run::Timeline;
use ingestdeck_records::replay::FileSource;
use ingestdeck_tui::{
    app::{App, RunAccess},
    host::ClockReading,
    key,
    screen_message::ScreenMessage,
    terminal::FrameWriter,
};
use ratatui::layout::Rect;

use crate::{
    harness::{BenchReport, BenchResult, FigureGoal, Sample, Threshold, timed},
    views,
};

const SIZE: Rect = Rect {
    x: 0,
    y: 0,
    width: 200,
    height: 60,
};
const ROUNDS: usize = 9;
const FRAMES: usize = 60;

pub(crate) fn measure(report: &mut BenchReport) -> BenchResult<()> {
    let (mut many, mut few) = (ScrollBench::new(1_000_000)?, ScrollBench::new(10_000)?);
    let (mut times, mut ratios) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (ours, theirs) = (many.frames()?, few.frames()?);
        // The first round only fills caches.
        if round > 0 {
            ratios.push(ours.median() / theirs.median());
            times.push(ours.median() * 1000.0);
        }
    }
    let bar = FigureGoal {
        required: Threshold::AtMost(1.2),
        goal: Threshold::AtMost(1.05),
    };
    report.figure(
        "scrolling frame, 1 M rows / 10 k rows",
        &Sample::new(ratios),
        bar,
    );
    let bar = FigureGoal {
        required: Threshold::AtMost(1.5),
        goal: Threshold::AtMost(0.9),
    };
    report.figure("scrolling frame, 1 M rows, ms", &Sample::new(times), bar);
    Ok(())
}

struct ScrollBench {
    app: App,
    terminal: FrameWriter<io::Sink>,
    started: Instant,
    step: usize,
}

impl ScrollBench {
    fn new(rows: u64) -> BenchResult<Self> {
        let mut capture = io::BufWriter::new(tempfile::NamedTempFile::new_in(env!(
            "CARGO_TARGET_TMPDIR"
        ))?);
        for row in 0..rows {
            writeln!(
                capture,
                r#"{{"type":"assistant","session_id":"s","message":{{"content":[{{"type":"text","text":"model {row}"}}]}}}}"#
            )?;
        }
        let capture = capture.into_inner()?;
        let timeline = Timeline::new(Box::new(FileSource::open(capture.path())?));
        let started = Instant::now();
        let app = App::new(
            timeline,
            RunAccess::Replay,
            views::options()?,
            clock(started),
        );
        let terminal = FrameWriter::new(io::sink(), SIZE);
        let mut bench = Self {
            app,
            terminal,
            started,
            step: 0,
        };
        while bench.app.is_busy() {
            bench.app.work();
        }
        // Focus the pane of actions, so that the keys below scroll it.
        bench.press("<tab>")?;
        Ok(bench)
    }

    /// Seconds per frame. The list moves by one row before each.
    fn frames(&mut self) -> BenchResult<Sample> {
        let mut times = Vec::with_capacity(FRAMES);
        for _ in 0..FRAMES {
            self.step += 1;
            self.press(if self.step % 200 < 100 {
                "<up>"
            } else {
                "<down>"
            })?;
            let (app, terminal) = (&mut self.app, &mut self.terminal);
            times.push(timed(|| {
                Ok(terminal.draw(|buffer, shown| app.paint(buffer, shown))?)
            })?);
        }
        Ok(Sample::new(times))
    }

    fn press(&mut self, keys: &str) -> BenchResult<()> {
        self.app.tick(clock(self.started));
        for key in key::parse(keys).map_err(|error| format!("{error:?}"))? {
            self.app.input(ScreenMessage::Key(key));
        }
        Ok(())
    }
}

fn clock(started: Instant) -> ClockReading {
    ClockReading {
        now: started.elapsed(),
        wall: jiff::Timestamp::UNIX_EPOCH,
    }
}
