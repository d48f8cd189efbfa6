//! Seeking to any point of a folded capture, in both directions. In process; the whole run is in memory, as in the
//! viewer.

use crate::{
    replay::FileSource,
    run::{PollStatus, Timeline},
};

use crate::bars::{
    capture::BenchCapture,
    harness::{BenchReport, BenchResult, FigureGoal, Sample, Threshold, time, timed},
};

const JUMPS: u64 = 200;

pub(crate) fn measure(report: &mut BenchReport, capture: &BenchCapture) -> BenchResult<()> {
    let mut timeline = Timeline::new(Box::new(FileSource::open(&capture.path)?));
    let folded = timed(|| {
        while timeline.advance(1 << 20, &mut |_| {})? == PollStatus::More {}
        Ok(())
    })?;
    let entries = timeline.known_entries();
    let mut times = Vec::new();
    for jump in 0..JUMPS {
        // A fixed large stride: forward and back, near and far.
        let target = (jump * 7_919 * entries / JUMPS) % (entries + 1);
        times.push(timed(|| Ok(timeline.seek(target)?))? * 1000.0);
        if timeline.view().state.entries != target {
            return Err(format!("asked for {target}, got {}", timeline.view().state.entries).into());
        }
    }
    let times = Sample::new(times);
    let bar = FigureGoal { required: Threshold::AtMost(50.0), goal: Threshold::AtMost(10.0) };
    report.figure("seek in a folded capture, median, ms", &times, bar);
    let worst = Sample::new(vec![times.quantile(0.99)]);
    report.figure("seek in a folded capture, p99, ms", &worst, bar);
    report.note(&format!("folding it once took {}", time(folded)));
    Ok(())
}
