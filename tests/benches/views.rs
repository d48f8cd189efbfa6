//! Stream, grid and inspector over a capture of the full size with a thousand units: keys through the real event loop,
//! the real views and the real terminal writer; the output is counted and discarded. Each frame is compared with a
//! minimal ratatui program that draws the same cells right after it.

use std::{
    cell::Cell,
    collections::VecDeque,
    future::poll_fn,
    io::{self, Write},
    rc::Rc,
    task::Poll,
    time::{Duration, Instant},
};

use ingestdeck_core::{diagnostic::Problem, run::Timeline};
use ingestdeck_records::replay::FileSource;
use ingestdeck_tui::{
    self as tui, ColorChoice, FirstPage, KeyOverrides, Keymap, NotifyMethod, Options, Theme,
    ToolPrograms, TtyOptions,
    export::Export,
    host::{ClockReading, FramePainter, HostInput, ScreenHost, ToolExit},
    key::{self, KeyPress},
    notification::{Notification, TerminalProgress},
    terminal::FrameWriter,
};
use ratatui::{
    Terminal, TerminalOptions, Viewport, backend::CrosstermBackend, buffer::Buffer, layout::Rect,
};

use crate::{
    capture,
    harness::{BenchReport, BenchResult, FigureGoal, Sample, Threshold},
};

const UNITS: u64 = 1000;
const SIZE: Rect = Rect {
    x: 0,
    y: 0,
    width: 200,
    height: 60,
};
/// Number of moves of the selection in each view.
const MOVES: usize = 60;
/// Interval between two keys, in which the pane next to the list is updated.
const BETWEEN: Duration = Duration::from_millis(100);
/// Time at the end without any frame.
const REST: Duration = Duration::from_secs(2);

/// A part of the script: keys that open a view, and a key whose frames are measured.
struct ViewBenchPart {
    name: &'static str,
    way: &'static str,
    moves: &'static str,
}

const PARTS: [ViewBenchPart; 4] = [
    ViewBenchPart {
        name: "units",
        way: "gg",
        moves: "j",
    },
    ViewBenchPart {
        name: "stream of a unit",
        way: "<tab>",
        moves: "k",
    },
    ViewBenchPart {
        name: "grid",
        way: "<tab>v",
        moves: "j",
    },
    ViewBenchPart {
        name: "inspector",
        way: "<esc>ggi",
        moves: "j",
    },
];

pub(crate) fn measure(report: &mut BenchReport) -> BenchResult<()> {
    let capture = capture::of_units(UNITS)?;
    report.note(&format!("capture: {capture}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    for part in &PARTS {
        let mut keys = key::parse(part.way).map_err(|error| format!("{error:?}"))?;
        let measured = keys.len();
        let moves = key::parse(part.moves).map_err(|error| format!("{error:?}"))?;
        keys.extend(moves.into_iter().cycle().take(MOVES));
        let timeline = Timeline::new(Box::new(FileSource::open(&capture.path)?));
        let mut world = MeasuredHost::new(keys)?;
        let exit = runtime.block_on(tui::run_event_loop(timeline, None, options()?, &mut world))?;
        let units = exit.timeline.view().state.units.len() as u64;
        if units < UNITS {
            return Err(format!("the capture has {units} units").into());
        }
        let frames = world.frames.get(measured..).ok_or("keys without frames")?;
        figures(report, part.name, frames);
        let bar = FigureGoal {
            required: Threshold::AtMost(0.0),
            goal: Threshold::AtMost(0.0),
        };
        report.figure(
            &format!("{}: frames at rest", part.name),
            &Sample::new(vec![world.at_rest as f64]),
            bar,
        );
    }
    Ok(())
}

/// The screen as on a terminal that shows every colour.
pub(crate) fn options() -> BenchResult<Options> {
    Ok(Options {
        is_session: false,
        theme: Theme::new("dark", ColorChoice::Always.resolve(|_| None), false)?,
        keymap: Keymap::new(&KeyOverrides::new()).map_err(|errors| format!("{errors:?}"))?,
        terminal: TtyOptions {
            mouse: true,
            notify: NotifyMethod::Off,
            progress: false,
            tmux: false,
            programs: ToolPrograms::from_env(|_| None),
        },
        fps: 30,
        paused_after: None,
        speed: None,
        check_arguments: None,
        project: None,
        startup_messages: Vec::new(),
        zone: jiff::tz::TimeZone::UTC,
        exit_when: None,
        first_page: FirstPage::Units,
        bookmarks: Default::default(),
        table: Default::default(),
    })
}

fn figures(report: &mut BenchReport, view: &str, frames: &[FrameCost]) {
    let sample = |of: fn(&FrameCost) -> f64| Sample::new(frames.iter().map(of).collect());
    let bar = FigureGoal {
        required: Threshold::AtMost(2.5),
        goal: Threshold::AtMost(1.3),
    };
    report.figure(
        &format!("{view}: a frame / bare ratatui"),
        &sample(|frame| frame.painted / frame.bare),
        bar,
    );
    let medians = (
        sample(|frame| frame.painted).median(),
        sample(|frame| frame.bare).median(),
    );
    report.note(&format!(
        "ours {:.2} ms, theirs {:.2} ms",
        medians.0, medians.1
    ));
    let bar = FigureGoal {
        required: Threshold::AtMost(33.0),
        goal: Threshold::AtMost(16.0),
    };
    let worst = sample(|frame| frame.waited).quantile(0.99);
    report.figure(
        &format!("{view}: key to frame, p99, ms"),
        &Sample::new(vec![worst]),
        bar,
    );
    let bar = FigureGoal {
        required: Threshold::AtMost(1024.0),
        goal: Threshold::AtMost(512.0),
    };
    report.figure(
        &format!("{view}: bytes of a frame"),
        &sample(|frame| frame.bytes),
        bar,
    );
    let followed = sample(|frame| frame.followed);
    report.note(&format!(
        "{view}: once the selection rests, another {followed} bytes"
    ));
}

/// Cost of the frame after a key.
struct FrameCost {
    /// Milliseconds for painting and writing.
    painted: f64,
    /// Milliseconds of a minimal ratatui program for the same cells.
    bare: f64,
    /// Milliseconds from the key to the end of its frame.
    waited: f64,
    bytes: f64,
    /// Bytes that were written after the frame, before the next key.
    followed: f64,
}

/// Counts the bytes written to it.
#[derive(Clone, Default)]
struct ByteCounter(Rc<Cell<u64>>);

impl Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.set(self.0.get() + bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A terminal that sends each key when the program is idle.
struct MeasuredHost {
    terminal: FrameWriter<ByteCounter>,
    bare: Terminal<CrosstermBackend<io::Sink>>,
    written: ByteCounter,
    keys: VecDeque<KeyPress>,
    pressed: Option<Instant>,
    frames: Vec<FrameCost>,
    started: Instant,
    drawn: tokio::time::Instant,
    rests: bool,
    at_rest: u64,
}

impl MeasuredHost {
    fn new(keys: Vec<KeyPress>) -> BenchResult<Self> {
        let written = ByteCounter::default();
        let options = TerminalOptions {
            viewport: Viewport::Fixed(SIZE),
        };
        Ok(Self {
            terminal: FrameWriter::new(written.clone(), SIZE),
            bare: Terminal::with_options(CrosstermBackend::new(io::sink()), options)?,
            written,
            keys: keys.into(),
            pressed: None,
            frames: Vec::new(),
            started: Instant::now(),
            drawn: tokio::time::Instant::now(),
            rests: false,
            at_rest: 0,
        })
    }
}

/// Completes when the event loop is idle: pending work completes within one turn of the loop, and its wait for this
/// future is then cancelled.
async fn yield_until_idle() {
    let mut turns = 0;
    poll_fn(|context| {
        turns += 1;
        if turns > 2 {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The minimal program: copies each cell to the screen.
fn copy_cells(cells: &Buffer, buffer: &mut Buffer) {
    for position in cells.area.positions() {
        if let (Some(from), Some(to)) = (cells.cell(position), buffer.cell_mut(position)) {
            to.set_symbol(from.symbol()).set_style(from.style());
        }
    }
}

impl ScreenHost for MeasuredHost {
    fn clock(&self) -> ClockReading {
        ClockReading {
            now: self.started.elapsed(),
            wall: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    async fn input(&mut self) -> HostInput {
        yield_until_idle().await;
        // The last frames are not part of the idle time either.
        if !self.rests {
            let _ =
                tokio::time::timeout_at(self.drawn + BETWEEN, std::future::pending::<()>()).await;
        }
        match self.keys.pop_front() {
            Some(key) => {
                self.pressed = Some(Instant::now());
                HostInput::Key(key)
            }
            None => {
                self.rests = true;
                let _ = tokio::time::timeout(REST, std::future::pending::<()>()).await;
                HostInput::Closed
            }
        }
    }

    fn draw(&mut self, paint: &mut FramePainter<'_>) -> io::Result<()> {
        let before = self.written.0.get();
        let started = Instant::now();
        self.terminal.draw(paint)?;
        let painted = started.elapsed();
        let waited = self.pressed.take().map(|pressed| pressed.elapsed());
        let cells = self.terminal.shown().clone();
        self.drawn = tokio::time::Instant::now();
        let started = Instant::now();
        self.bare
            .draw(|frame| copy_cells(&cells, frame.buffer_mut()))?;
        let bare = started.elapsed();
        let bytes = (self.written.0.get() - before) as f64;
        if let Some(waited) = waited {
            let ms = |duration: Duration| duration.as_secs_f64() * 1000.0;
            let (painted, bare, waited) = (ms(painted), ms(bare), ms(waited));
            self.frames.push(FrameCost {
                painted,
                bare,
                waited,
                bytes,
                followed: 0.0,
            });
        } else if let Some(last) = self.frames.last_mut() {
            self.at_rest += u64::from(self.rests);
            last.followed += bytes;
        }
        Ok(())
    }

    fn title(&mut self, _title: &str) {}

    fn progress(&mut self, _gauge: TerminalProgress) {}

    fn notify(&mut self, _news: &Notification) -> Result<(), Problem> {
        Ok(())
    }

    fn copy(&mut self, _text: &str) {}

    fn mouse(&mut self, _ours: bool) -> io::Result<()> {
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        Ok(())
    }

    async fn open(&mut self, _handout: &Export) -> Result<ToolExit, Problem> {
        Ok(ToolExit::default())
    }

    async fn suspend(&mut self) -> io::Result<()> {
        Ok(())
    }
}
