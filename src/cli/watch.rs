//! `watch`: a run of another process, as it goes on. Only looked at: whoever runs it is not disturbed, nor told.

use std::{
    fs,
    time::{Duration, Instant},
};

use tokio::sync::{oneshot, watch};

use super::{
    args::{Global, Ui, WatchArgs},
    exit::{Exit, Failure},
    output, replay, runs, screen, settings, show,
    show::Plain,
    summary::{Next, Summary},
};
use crate::{
    replay::file::Finish,
    run::{Progress, RunState, Timeline},
    store::{Found, Runs, Standing},
    tui::{self, LiveHandle},
};

/// Bytes folded before anything else gets a turn.
const SLICE: usize = 1 << 20;

/// How often the tape is looked at: nobody tells when another process writes.
const LOOK_AGAIN: Duration = Duration::from_millis(150);

/// How often it is asked whether the process still lives.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What is said of a record without an end that nobody writes to any more.
const GONE: &str = "writer gone: the process that ran this is no more, and its record breaks off here";

/// Follows a run until it ends.
///
/// # Errors
/// When there is no such run, or its tape cannot be read.
pub fn watch(global: &Global, args: &WatchArgs) -> Result<Exit, Failure> {
    let runs = runs::place(global)?;
    let found = runs.resolve(&args.run).map_err(|error| runs::unknown(&error))?;
    let (source, finish) = runs::follow(&runs, &found)?;
    let writer = Writer { runs, found };
    let ui = show::resolve(global.ui);
    let source = replay::for_ui(source, ui);
    match ui {
        Ui::Tui => on_screen(global, &writer, Timeline::new(Box::new(source)), finish),
        ui => plainly(global, ui, &writer, Timeline::forward(Box::new(source)), &finish),
    }
}

/// Who writes the tape.
#[derive(Clone, Debug)]
struct Writer {
    runs: Runs,
    found: Found,
}

impl Writer {
    /// What cannot be asked is taken for alive: a lock that cannot be read says nothing.
    fn is_alive(&self) -> bool {
        self.runs.is_alive(self.found.id).unwrap_or(true)
    }

    fn broke_off(&self) -> bool {
        self.runs.standing(&self.found).is_ok_and(|standing| standing == Standing::Interrupted)
    }

    /// Wakes `grown` whenever the tape has grown. Returns once nobody writes to it any more.
    async fn follow(self, finish: Finish, grown: watch::Sender<u64>, gone: oneshot::Sender<String>) {
        let mut asked = Instant::now();
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            let length = fs::metadata(&self.found.tape).map_or(0, |metadata| metadata.len());
            grown.send_if_modified(|known| std::mem::replace(known, length) != length);
            if asked.elapsed() < ASK_AGAIN {
                continue;
            }
            asked = Instant::now();
            if !self.is_alive() {
                finish.finish();
                if self.broke_off() {
                    // Whoever has left does not need to hear it.
                    let _ = gone.send(GONE.to_owned());
                }
                return;
            }
        }
    }
}

fn on_screen(global: &Global, writer: &Writer, timeline: Timeline, finish: Finish) -> Result<Exit, Failure> {
    let config = settings::load(global)?;
    let options = settings::screen(global, &config)?;
    let runtime = screen::runtime(1)?;
    let left = runtime.block_on(async {
        let ((grown, changed), (gone, broken)) = (watch::channel(0), oneshot::channel());
        tokio::spawn(writer.clone().follow(finish, grown, gone));
        tui::run(timeline, Some(LiveHandle::watching(changed, broken)), options).await
    });
    // A reader of a terminal that is gone may never come back.
    runtime.shutdown_background();
    let left = left.map_err(|error| screen::unusable(&error))?;
    let (summary, timeline) = screen::leave_summary(left.timeline)?;
    // Whoever leaves a run that goes on says nothing about it.
    let goes_on = timeline.story().state.ended.is_none() && writer.is_alive();
    Ok(screen::after(&left.how, if goes_on { Exit::Ok } else { summary.exit() }))
}

fn plainly(global: &Global, ui: Ui, writer: &Writer, mut timeline: Timeline, finish: &Finish) -> Result<Exit, Failure> {
    let origin = timeline.source().origin().clone();
    let mut sink = Plain::new(ui, global, &origin);
    loop {
        let progress = timeline.advance(SLICE, &mut |emitted| sink.emitted(&emitted)).map_err(Failure::internal)?;
        match progress {
            _ if sink.is_closed() => break,
            Progress::More => {}
            Progress::End => break,
            Progress::Waiting => {
                show::tell_silence(&mut timeline, &mut sink);
                sink.flush();
                // A run that has ended may be opened again by its person; whoever waits for its end waits no longer.
                if timeline.story().state.ended.is_some() || !writer.is_alive() {
                    finish.finish();
                } else {
                    std::thread::sleep(LOOK_AGAIN);
                }
            }
        }
    }
    let state = &timeline.story().state;
    let summary = Summary::of(state);
    sink.end(&origin, state, false)?;
    if state.ended.is_none() {
        show::tell(&format!("ingestdeck: run {}: {GONE}", writer.found.id.short()));
    }
    if ui == Ui::Lines {
        say_next(global, writer, state, &summary);
    }
    Ok(summary.exit())
}

/// Advice, not a result: nothing depends on whether anybody takes it.
fn say_next(global: &Global, writer: &Writer, state: &RunState, summary: &Summary) {
    let next = Next::Project {
        tape: &writer.found.tape,
        flag: global.project_dir.as_deref(),
        run: &writer.found.id.short(),
        retry: super::resume::unfit(state).is_none(),
    };
    let _ = output::stdout().write_linked(&summary.next_steps(next), &writer.found.tape);
}
