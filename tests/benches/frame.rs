//! A frame of 200×60 over a run view of a million rows, against one of ten thousand. In process, with the real views
//! and the real terminal writer; the output is discarded.

use std::io;

use crate::{
    run::{
        RunState,
        state::{AttemptId, AttemptRows, AttemptState, RowKind, RowOutcome, RunView, StreamRow, UnitState, UnitStatus},
    },
    tape::Seq,
    tui::{Options, UiPreferences, cache::RowLine, key, static_screen::StaticScreen},
};
use ratatui::{Terminal, TerminalOptions, Viewport, backend::CrosstermBackend, layout::Rect};

use crate::bars::harness::{BenchReport, BenchResult, FigureGoal, Sample, Threshold, timed};

const SIZE: Rect = Rect { x: 0, y: 0, width: 200, height: 60 };
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
    let bar = FigureGoal { required: Threshold::AtMost(1.2), goal: Threshold::AtMost(1.05) };
    report.figure("scrolling frame, 1 M rows / 10 k rows", &Sample::new(ratios), bar);
    let bar = FigureGoal { required: Threshold::AtMost(1.5), goal: Threshold::AtMost(0.9) };
    report.figure("scrolling frame, 1 M rows, ms", &Sample::new(times), bar);
    Ok(())
}

struct ScrollBench {
    view: RunView,
    still: StaticScreen,
    terminal: Terminal<CrosstermBackend<io::Sink>>,
    step: usize,
}

impl ScrollBench {
    fn new(rows: u64) -> BenchResult<Self> {
        let kinds = [RowKind::Tool, RowKind::Text, RowKind::Thinking];
        let row = |seq: u64| StreamRow::new(Seq(seq), 0, kinds[seq as usize % 3], RowOutcome::Ok, 0);
        let attempt_rows = AttemptRows { rows: (0..rows).map(row).collect(), entries: (0..rows as u32).collect() };
        let attempt = AttemptState { number: 1, id: AttemptId(0), ..AttemptState::default() };
        let unit = UnitState {
            key: "dbt-all".into(),
            planned: None,
            status: UnitStatus::Running,
            attempts: vec![attempt],
            retry_at: None,
            hold_mode: Default::default(),
        };
        let state = RunState { units: vec![unit], entries: rows, ..RunState::default() };
        let view = RunView::new(state, vec![attempt_rows], Vec::new());
        let options = TerminalOptions { viewport: Viewport::Fixed(SIZE) };
        let terminal = Terminal::with_options(CrosstermBackend::new(io::sink()), options)?;
        let mut still = StaticScreen::new("bench", Options::new(&UiPreferences::default(), |_| None)?);
        // Focus the pane of actions, so that the keys below scroll it.
        press(&mut still, &view, "<tab>")?;
        Ok(Self { view, still, terminal, step: 0 })
    }

    /// Seconds per frame. The list moves by one row before each.
    fn frames(&mut self) -> BenchResult<Sample> {
        let mut times = Vec::with_capacity(FRAMES);
        for _ in 0..FRAMES {
            self.step += 1;
            press(&mut self.still, &self.view, if self.step % 200 < 100 { "<up>" } else { "<down>" })?;
            let (view, still, terminal) = (&self.view, &mut self.still, &mut self.terminal);
            times.push(timed(|| {
                terminal.draw(|frame| still.draw(view, words, frame.buffer_mut()))?;
                Ok(())
            })?);
        }
        Ok(Sample::new(times))
    }
}

fn press(still: &mut StaticScreen, view: &RunView, keys: &str) -> BenchResult<()> {
    for key in key::parse(keys).map_err(|error| format!("{error:?}"))? {
        still.press(view, key);
    }
    Ok(())
}

fn words(row: &StreamRow) -> RowLine {
    RowLine {
        label: format!("mcp__ktx__read_raw_file models/mart_{}.sql", row.first()),
        outcome: format!("{} KB", row.first().0 % 97),
        ..RowLine::default()
    }
}
