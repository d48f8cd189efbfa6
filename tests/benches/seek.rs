//! Seeking to any point of a folded capture, in both directions. In process; the whole run is in memory, as in the
//! viewer.

use ingestdeck_core::run::{PollStatus, Timeline};
use ingestdeck_records::replay::FileSource;

use crate::{
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
        times.push(timed(|| Ok(timeline.seek(target)?))? / folded);
        if timeline.view().state.entries != target {
            return Err(
                format!("asked for {target}, got {}", timeline.view().state.entries).into(),
            );
        }
    }
    let times = Sample::new(times);
    let bar = FigureGoal {
        required: Threshold::AtMost(0.05),
        goal: Threshold::AtMost(0.02),
    };
    report.figure(
        "seek in a folded capture / folding it once, median",
        &times,
        bar,
    );
    let worst = Sample::new(vec![times.quantile(0.99)]);
    let bar = FigureGoal {
        required: Threshold::AtMost(0.1),
        goal: Threshold::AtMost(0.05),
    };
    report.figure(
        "seek in a folded capture / folding it once, p99",
        &worst,
        bar,
    );
    let [middle, rare] = [0.5, 0.99].map(|part| time(times.quantile(part) * folded));
    report.note(&format!(
        "folding it once took {}; a seek {middle}, p99 {rare}",
        time(folded)
    ));
    Ok(())
}
