//! A host that plays a script of keys and keeps the frames.

use std::{
    collections::VecDeque,
    io::{self, Write as _},
    time::Duration,
};

use ingestdeck_core::{control::RunCommand, diagnostic::Problem, run::Timeline};
use ingestdeck_tui::{
    self as tui, ColorLevel, EngineChannel, FirstPage, KeyOverrides, Keymap, LiveHandle,
    NotifyMethod, Options, Theme, ToolPrograms, TtyOptions,
    export::Export,
    host::{ClockReading, FramePainter, HostInput, ScreenHost, ToolExit, copy_kept_area},
    key::{self},
    notification::{Notification, TerminalProgress},
    view::close_wide_cells,
};
use jiff::Timestamp;
use ratatui::{
    Terminal,
    backend::TestBackend,
    buffer::{Buffer, CellWidth as _},
    style::Style,
};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

/// Start time of every script, and of the tapes of these tests.
pub(crate) const EPOCH: &str = "2026-11-22T10:00:00Z";

/// A record that grows after all inputs are processed.
struct AppendedEntries {
    file: std::fs::File,
    bytes: Vec<u8>,
    changes: watch::Sender<u64>,
}

/// The host of a test.
pub(crate) struct ScriptedHost {
    pub(crate) terminal: Terminal<TestBackend>,
    /// The last frame, unless the terminal was cleared.
    painted: Option<Buffer>,
    inputs: VecDeque<HostInput>,
    /// Keys after the growth of the record.
    late: VecDeque<HostInput>,
    growth: Option<AppendedEntries>,
    /// True if the terminal has the size of the last resize.
    is_resizable: bool,
    /// True if keys arrive while the screen has other work.
    is_immediate: bool,
    last: Duration,
    started: Instant,
    epoch: Timestamp,
    /// Texts that were copied to the clipboard.
    pub(crate) copied: Vec<String>,
    pub(crate) frames: usize,
    /// When the last frame was painted, since the start.
    pub(crate) painted_at: Duration,
    pub(crate) suspended: usize,
    pub(crate) titles: Vec<String>,
    pub(crate) gauges: Vec<TerminalProgress>,
    pub(crate) news: Vec<Notification>,
    /// Files that were opened in an editor or a pager.
    pub(crate) handouts: Vec<Export>,
    /// The result of opening them.
    pub(crate) opened: Result<ToolExit, Problem>,
    /// Number of frames after which each draw fails, with the answer to whether the terminal was closed.
    pub(crate) failure: Option<(usize, bool)>,
}

impl ScriptedHost {
    pub(crate) fn new(keys: &str, (width, height): (u16, u16)) -> Self {
        let keys = if keys.is_empty() {
            Vec::new()
        } else {
            key::parse(keys).unwrap()
        };
        Self {
            terminal: Terminal::new(TestBackend::new(width, height)).unwrap(),
            painted: None,
            inputs: keys.into_iter().map(HostInput::Key).collect(),
            late: VecDeque::new(),
            growth: None,
            is_resizable: false,
            is_immediate: false,
            last: Duration::from_millis(200),
            started: Instant::now(),
            epoch: EPOCH.parse().unwrap(),
            copied: Vec::new(),
            frames: 0,
            painted_at: Duration::ZERO,
            suspended: 0,
            titles: Vec::new(),
            gauges: Vec::new(),
            news: Vec::new(),
            handouts: Vec::new(),
            opened: Ok(ToolExit::default()),
            failure: None,
        }
    }

    /// The run started that long ago.
    pub(crate) fn after(mut self, passed: Duration) -> Self {
        self.epoch = self
            .epoch
            .checked_add(jiff::SignedDuration::try_from(passed).unwrap())
            .unwrap();
        self
    }

    /// Changes the size of the terminal.
    pub(crate) fn resize(mut self, (width, height): (u16, u16)) -> Self {
        self.is_resizable = true;
        self.input(HostInput::Resize(width, height))
    }

    /// The keys arrive while the screen still reads the run.
    pub(crate) fn without_delay(self) -> Self {
        Self {
            is_immediate: true,
            ..self
        }
    }

    /// Appends `bytes` to `file` after the last input.
    pub(crate) fn grows(
        mut self,
        (file, bytes): (std::fs::File, Vec<u8>),
        changes: watch::Sender<u64>,
    ) -> Self {
        self.growth = Some(AppendedEntries {
            file,
            bytes,
            changes,
        });
        self
    }

    /// Keeps the terminal open for that long after the last key.
    pub(crate) fn keep_open_for(mut self, last: Duration) -> Self {
        self.last = last;
        self
    }

    /// Keeps the terminal open until the screen exits.
    pub(crate) fn until_exit(self) -> Self {
        self.keep_open_for(Duration::from_secs(3600))
    }

    pub(crate) fn input(mut self, input: HostInput) -> Self {
        self.inputs.push_back(input);
        self
    }

    pub(crate) fn keys(mut self, keys: &str) -> Self {
        let keys = if keys.is_empty() {
            Vec::new()
        } else {
            key::parse(keys).unwrap()
        };
        self.inputs.extend(keys.into_iter().map(HostInput::Key));
        self
    }

    /// The record grows, and then the keys are pressed.
    pub(crate) fn keys_after_growth(mut self, keys: &str) -> Self {
        let keys = if keys.is_empty() {
            Vec::new()
        } else {
            key::parse(keys).unwrap()
        };
        self.late = keys.into_iter().map(HostInput::Key).collect();
        self
    }

    /// The screen as text.
    pub(crate) fn text(&self) -> String {
        let buffer = self.terminal.backend().buffer();
        let lines = buffer
            .content()
            .chunks(usize::from(buffer.area.width.max(1)));
        let text = lines.map(|line| {
            let mut skip = 0;
            let line = line.iter().filter_map(|cell| {
                let shown = skip == 0;
                skip = if shown {
                    unicode_width(cell.symbol()).saturating_sub(1)
                } else {
                    skip - 1
                };
                shown.then(|| cell.symbol())
            });
            line.collect::<String>().trim_end().to_owned()
        });
        text.collect::<Vec<_>>().join("\n")
    }

    /// The style of the first cell of the first occurrence of `text`.
    pub(crate) fn style_of(&self, text: &str) -> Style {
        let buffer = self.terminal.backend().buffer();
        let wanted: Vec<String> = text.chars().map(String::from).collect();
        let cells = buffer.content();
        let place = (0..cells.len()).find(|at| {
            cells.get(*at..at + wanted.len()).is_some_and(|part| {
                part.iter()
                    .zip(&wanted)
                    .all(|(cell, char)| cell.symbol() == char)
            })
        });
        assert!(
            place.is_some(),
            "`{text}` is not on the screen:\n{}",
            self.text()
        );
        cells[place.unwrap_or_default()].style()
    }
}

fn unicode_width(symbol: &str) -> usize {
    ratatui::text::Span::raw(symbol).width()
}

/// The frame must be as if the wide characters of all its rows were repaired.
fn assert_wide_characters_are_whole(buffer: &Buffer) {
    if buffer
        .content
        .iter()
        .any(|cell| cell.symbol().len() > 2 && cell.cell_width() > 1)
    {
        let mut repaired = buffer.clone();
        close_wide_cells(&mut repaired, 0..buffer.area.height);
        let cells = buffer.content.iter().zip(&repaired.content).enumerate();
        let differs: Vec<_> = cells
            .filter(|(_, (shown, repaired))| shown != repaired)
            .collect();
        assert!(differs.is_empty(), "{differs:?}");
    }
}

impl ScreenHost for ScriptedHost {
    fn clock(&self) -> ClockReading {
        let now = self.started.elapsed();
        ClockReading {
            now,
            wall: self
                .epoch
                .checked_add(jiff::SignedDuration::try_from(now).unwrap())
                .unwrap(),
        }
    }

    async fn input(&mut self) -> HostInput {
        // Time passes only when the loop is idle, so a key arrives when the previous one is processed.
        if self.inputs.is_empty() {
            if let Some(growth) = &mut self.growth
                && !growth.bytes.is_empty()
            {
                tokio::time::sleep_until(self.started + Duration::from_millis(50)).await;
                growth
                    .file
                    .write_all(&std::mem::take(&mut growth.bytes))
                    .unwrap();
                growth.changes.send_modify(|grown| *grown += 1);
            }
            if !self.late.is_empty() {
                // The record is read when it has grown; a call that is abandoned meanwhile starts again.
                tokio::time::sleep_until(self.started + Duration::from_millis(100)).await;
                self.inputs = std::mem::take(&mut self.late);
            }
        }
        if self.inputs.is_empty() {
            // Every call starts again, so the end is counted from the start of the script.
            tokio::time::sleep_until(self.started + self.last).await;
            return HostInput::Closed;
        }
        if !self.is_immediate {
            tokio::time::sleep_until(Instant::now() + Duration::from_millis(1)).await;
        }
        let input = self.inputs.pop_front().unwrap();
        if let (HostInput::Resize(width, height), true) = (&input, self.is_resizable) {
            let (width, height) = (*width, *height);
            self.terminal.backend_mut().resize(width, height);
        }
        if self.inputs.is_empty() {
            self.last += self.started.elapsed();
        }
        input
    }

    fn is_closed(&self) -> bool {
        self.failure.is_some_and(|(_, is_closed)| is_closed)
    }

    fn draw(&mut self, paint: &mut FramePainter<'_>) -> io::Result<()> {
        if self
            .failure
            .is_some_and(|(frames, _)| frames == self.frames)
        {
            return Err(io::Error::from_raw_os_error(nix::libc::EIO));
        }
        self.frames += 1;
        self.painted_at = self.started.elapsed();
        let painted = &mut self.painted;
        let drawn = self.terminal.draw(|frame| {
            let buffer = frame.buffer_mut();
            let last = painted.as_ref().filter(|last| last.area == buffer.area);
            let kept = paint(buffer, last.is_some());
            for position in kept.positions() {
                assert_eq!(
                    buffer[position].symbol(),
                    " ",
                    "painted over the kept area at {position}"
                );
            }
            match last {
                Some(last) => copy_kept_area(last, buffer, kept),
                None => assert!(kept.is_empty(), "{kept}"),
            }
            assert_wide_characters_are_whole(buffer);
            *painted = Some(buffer.clone());
        });
        drawn.map(|_| ()).map_err(io::Error::other)
    }

    fn title(&mut self, title: &str) {
        self.titles.push(title.to_owned());
    }

    fn progress(&mut self, gauge: TerminalProgress) {
        self.gauges.push(gauge);
    }

    fn notify(&mut self, news: &Notification) -> Result<(), Problem> {
        self.news.push(news.clone());
        Ok(())
    }

    fn copy(&mut self, text: &str) {
        self.copied.push(text.to_owned());
    }

    fn mouse(&mut self, _ours: bool) -> io::Result<()> {
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.painted = None;
        self.terminal.clear().map_err(io::Error::other)
    }

    async fn open(&mut self, handout: &Export) -> Result<ToolExit, Problem> {
        self.handouts.push(handout.clone());
        self.opened.clone()
    }

    async fn suspend(&mut self) -> io::Result<()> {
        self.suspended += 1;
        Ok(())
    }
}

pub(crate) fn options() -> Options {
    Options {
        is_session: false,
        theme: Theme::new("dark", ColorLevel::Full, false).unwrap(),
        keymap: Keymap::new(&KeyOverrides::new()).unwrap(),
        terminal: TtyOptions {
            mouse: true,
            notify: NotifyMethod::Bell,
            progress: true,
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
        table: Default::default(),
        bookmarks: Default::default(),
    }
}

/// Connects to a run of this process.
pub(crate) fn live_handle(
    commands: mpsc::Sender<RunCommand>,
    changed: watch::Receiver<u64>,
) -> LiveHandle {
    let (_, outcomes) = mpsc::unbounded_channel();
    LiveHandle {
        engine: Some(EngineChannel {
            commands,
            outcomes,
            leave_action: None,
        }),
        changed,
        failed: None,
    }
}

/// Plays `script` on `timeline`. Returns the script and the reason for the exit.
pub(crate) fn play(
    timeline: Timeline,
    live: Option<LiveHandle>,
    options: Options,
    script: ScriptedHost,
) -> (ScriptedHost, tui::TuiExit) {
    let (script, exit) = try_play(timeline, live, options, script);
    (script, exit.unwrap())
}

/// Plays `script` on `timeline`, on which drawing may fail.
pub(crate) fn try_play(
    timeline: Timeline,
    live: Option<LiveHandle>,
    options: Options,
    mut script: ScriptedHost,
) -> (ScriptedHost, Result<tui::TuiExit, tui::TuiError>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let exit = runtime.block_on(async {
        script.started = Instant::now();
        tui::run_event_loop(timeline, live, options, &mut script).await
    });
    (script, exit)
}
