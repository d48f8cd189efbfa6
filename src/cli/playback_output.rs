//! Plain output: plays a timeline into lines, JSON or nothing. The screen is in `tui`.

#![expect(
    clippy::disallowed_methods,
    reason = "the sinks of `--ui lines` and `--ui json` do their own escaping"
)]

use std::{
    io::{self, BufWriter, Stdout, Write},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use nix::errno::Errno;
use tokio::{
    sync::{oneshot, watch},
    task,
};

pub(crate) use super::output::print_stderr;
use super::{
    args::{Color, GlobalArgs, Ui},
    exit::{CliError, Exit, SIGPIPE},
    json::JsonWriter,
    lines::{LineClock, LineFormat, LinesWriter},
    output,
    summary::RunSummary,
};
use ingestdeck_core::{
    run::{PollStatus, RunState, SinkEvent, SourceInfo, Timeline},
    tape::Millis,
};
use ingestdeck_records::replay::FileSource;

/// Bytes that are folded before other tasks get a turn.
const SLICE: usize = 1 << 20;

/// Delay after each read of a growing record: waking for each line costs more than the reading.
const COALESCE_DELAY: Duration = Duration::from_millis(50);

/// Poll interval for a source that does not report its growth.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Number of the signal that reports a closed terminal.
const SIGHUP: u8 = 1;

/// A plain sink on stdout.
#[derive(Debug)]
pub(crate) enum EventSink {
    Lines(LinesWriter<BufWriter<BlockingWriter>>),
    Json(JsonWriter<BlockingWriter>),
    None,
}

/// Stdout that may block without stopping the agents, whose lines the same threads read. The protection costs more than
/// reading most entries, so it is used only if there is output.
#[derive(Debug)]
pub(crate) struct BlockingWriter {
    out: Stdout,
    /// True if some output may not have reached the system yet.
    is_unflushed: bool,
}

impl BlockingWriter {
    fn new() -> Self {
        Self {
            out: output::raw_stdout(),
            is_unflushed: false,
        }
    }
}

impl Write for BlockingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.is_unflushed = true;
        task::block_in_place(|| self.out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.is_unflushed) {
            return Ok(());
        }
        task::block_in_place(|| self.out.flush())
    }
}

/// Resolves `--ui` for the current environment.
pub(crate) fn resolve_ui(ui: Ui) -> Ui {
    match ui {
        Ui::Auto if output::is_terminal() && !is_dumb() => Ui::Tui,
        Ui::Auto => Ui::Lines,
        chosen => chosen,
    }
}

/// Configures a source for `ui`: only JSON output needs the complete lines.
pub(crate) fn for_ui(source: FileSource, ui: Ui) -> FileSource {
    if ui == Ui::Json {
        source
    } else {
        source.with_shortened_lines()
    }
}

/// True for a terminal that supports only plain lines.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Whether plain output is coloured.
pub(crate) fn uses_color(color: Color) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto if set("NO_COLOR") => false,
        Color::Auto if set("CLICOLOR_FORCE") => true,
        Color::Auto => output::is_terminal() && !is_dumb(),
    }
}

impl EventSink {
    /// The sink for `ui`, which must not be the screen.
    pub(crate) fn new(ui: Ui, global: &GlobalArgs, origin: &SourceInfo) -> Self {
        match ui {
            Ui::Json => Self::Json(JsonWriter::new(
                BlockingWriter::new(),
                origin,
                global.events,
            )),
            Ui::None => Self::None,
            Ui::Lines | Ui::Auto | Ui::Tui => {
                let form = if output::is_terminal() {
                    LineFormat::TERMINAL
                } else {
                    LineFormat::PIPE
                };
                let clock = global.timestamps.then_some(LineClock {
                    started_at: origin.started_at,
                });
                let format = LineFormat {
                    color: uses_color(global.color),
                    clock,
                    ..form
                };
                Self::Lines(LinesWriter::new(
                    BufWriter::new(BlockingWriter::new()),
                    format,
                ))
            }
        }
    }

    /// Shows the events of one entry.
    pub(super) fn write_event(&mut self, emitted: &SinkEvent<'_>) {
        match self {
            Self::Lines(lines) => lines.write_event(emitted),
            Self::Json(json) => json.write_event(emitted),
            Self::None => {}
        }
    }

    /// Passes everything to the system.
    pub(super) fn flush(&mut self) {
        match self {
            Self::Lines(lines) => lines.flush(),
            Self::Json(json) => json.flush(),
            Self::None => {}
        }
    }

    /// True once the reader closed the pipe.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Lines(lines) => lines.is_closed(),
            Self::Json(json) => json.is_closed(),
            Self::None => false,
        }
    }

    /// Prints the end of the output for a record, whose run is active if `is_active`.
    ///
    /// # Errors
    /// If stdout was closed by its reader, or cannot be written.
    pub(crate) fn finish(
        self,
        origin: &SourceInfo,
        state: &RunState,
        is_active: bool,
    ) -> Result<(), CliError> {
        let summary = RunSummary::from_state(state).with_open_end(is_active);
        let result = match self {
            Self::Lines(lines) => lines.finish(&summary.to_text(origin, state)),
            Self::Json(json) => json.finish(state, &summary),
            Self::None => Ok(()),
        };
        result.map_err(|error| stdout_failed(&error))
    }
}

/// The error for a failed write to stdout.
pub(crate) fn stdout_failed(error: &io::Error) -> CliError {
    if error.kind() == io::ErrorKind::BrokenPipe {
        CliError::new(
            Exit::Signal(SIGPIPE),
            "stdout was closed by its reader, so the rest was not printed",
        )
    } else if error.raw_os_error() == Some(Errno::EIO as i32) {
        // SIGHUP is on its way.
        CliError::new(
            Exit::Signal(SIGHUP),
            "the terminal was closed, so the rest was not printed",
        )
    } else {
        CliError::failed("cannot write to stdout")
            .with_cause(error)
            .with_help("free some space or choose another target")
    }
}

/// Plays a source to its end, as fast as possible or at `speed` times its recorded speed.
///
/// # Errors
/// If the source cannot be read.
pub(crate) fn play(
    timeline: &mut Timeline,
    sink: &mut EventSink,
    speed: Option<f64>,
) -> Result<(), CliError> {
    let mut clock = speed.map(|speed| PlaybackClock {
        began: Instant::now(),
        speed,
    });
    loop {
        let progress = match &mut clock {
            None => timeline.advance(SLICE, &mut |emitted| sink.write_event(&emitted)),
            // One entry at a time, so that each can be delayed.
            Some(clock) => {
                let progress = timeline.advance(1, &mut |emitted| {
                    clock.wait_for(event_time(&emitted));
                    sink.write_event(&emitted);
                });
                sink.flush();
                progress
            }
        };
        match progress? {
            _ if sink.is_closed() => return Ok(()),
            PollStatus::More => {}
            PollStatus::Waiting => {
                sink.flush();
                std::thread::sleep(POLL_INTERVAL);
            }
            PollStatus::End => return Ok(()),
        }
    }
}

/// Follows a growing tape. Returns when it ends, or when the reader closed the pipe. `ended` fires once the tape is
/// complete, because the end of a tape does not change the file.
///
/// # Errors
/// If the tape cannot be read.
pub(crate) async fn follow(
    timeline: &mut Timeline,
    sink: &mut EventSink,
    mut changed: watch::Receiver<u64>,
    mut ended: oneshot::Receiver<()>,
) -> Result<(), CliError> {
    let mut open = true;
    loop {
        let looked = Instant::now();
        let progress = timeline.advance(SLICE, &mut |emitted| sink.write_event(&emitted))?;
        if progress == PollStatus::Waiting {
            sink.flush();
        }
        match progress {
            _ if sink.is_closed() => return Ok(()),
            // Let the agents' tasks run, too.
            PollStatus::More => task::yield_now().await,
            PollStatus::End => return Ok(()),
            PollStatus::Waiting => {
                let silence = time_until_silence(timeline);
                // Once the tape is complete, the next poll finds its end.
                tokio::select! {
                    _ = &mut ended, if open => open = false,
                    changed = changed.changed(), if open => {
                        open = changed.is_ok();
                        let rest = COALESCE_DELAY.saturating_sub(looked.elapsed());
                        if !rest.is_zero() {
                            tokio::time::sleep(rest).await;
                        }
                    }
                    () = tokio::time::sleep(POLL_INTERVAL), if !open => {}
                    () = tokio::time::sleep(silence.unwrap_or_default()), if silence.is_some() && open => {
                        emit_silence(timeline, sink);
                        sink.flush();
                    }
                }
            }
        }
    }
}

/// The time of a live run, from the wall clock.
pub(super) fn run_time(timeline: &Timeline) -> Option<Millis> {
    let passed = Timestamp::now().duration_since(timeline.source().info().started_at?);
    u64::try_from(passed.as_millis()).ok().map(Millis)
}

/// Delay after which the output of an agent has certainly been read.
const DELIVERY_GRACE: Millis = Millis(250);

/// How long to wait until a unit may be silent.
fn time_until_silence(timeline: &Timeline) -> Option<Duration> {
    let due = timeline.next_silence_at()?.since(run_time(timeline)?);
    Some(Duration::from_millis(due.0 + DELIVERY_GRACE.0))
}

/// Shows units that have become silent meanwhile.
pub(super) fn emit_silence(timeline: &mut Timeline, sink: &mut EventSink) {
    advance_to_now(timeline, &mut |emitted| sink.write_event(&emitted));
}

/// Advances the clock of an active run to the present, so that silent units are recognized.
pub(super) fn advance_to_now(timeline: &mut Timeline, emit: &mut dyn FnMut(SinkEvent<'_>)) {
    if let Some(now) = run_time(timeline) {
        let now = now.since(DELIVERY_GRACE);
        timeline.advance_clock(now, now, emit);
    }
}

fn event_time(emitted: &SinkEvent<'_>) -> Millis {
    match emitted {
        SinkEvent::Agent { at, .. }
        | SinkEvent::Unit { at, .. }
        | SinkEvent::Patch { at, .. }
        | SinkEvent::Task { at, .. }
        | SinkEvent::Message { at, .. }
        | SinkEvent::Run { at, .. }
        | SinkEvent::Line { at, .. }
        | SinkEvent::Note { at, .. } => *at,
    }
}

struct PlaybackClock {
    began: Instant,
    speed: f64,
}

impl PlaybackClock {
    #[expect(
        clippy::cast_precision_loss,
        reason = "milliseconds of a run fit a double many times over"
    )]
    fn wait_for(&mut self, at: Millis) {
        let due =
            Duration::try_from_secs_f64(at.0 as f64 / 1000.0 / self.speed).unwrap_or_default();
        std::thread::sleep(due.saturating_sub(self.began.elapsed()));
    }
}
