//! Decoding and translating everything: `replay --ui json` against `jq -c .type`. Measures whole processes.

use ingestdeck_core::{
    decode,
    run::{EntrySource, PollStatus, Timeline},
    tape::EntryBody,
};
use ingestdeck_records::replay::FileSource;

use crate::{
    capture::BenchCapture,
    harness::{BenchReport, BenchResult, FigureGoal, PairedSamples, Threshold, pairs, time, timed},
    measured_process::{ProbeOutput, argument, ingestdeck, is_installed, run},
};

const FIGURE: &str = "everything decoded and translated: times faster than jq";

pub(crate) fn measure(report: &mut BenchReport, capture: &BenchCapture) -> BenchResult<()> {
    report.note(&format!("in process: {}", layers(capture)?));
    if !is_installed("jq") {
        report.note_missing_program("jq", FIGURE);
        return Ok(());
    }
    let path = argument(&capture.path)?;
    let ours = || {
        Ok(run(
            ingestdeck(),
            &["replay", path, "--ui", "json"],
            ProbeOutput::Null,
        )?
        .seconds)
    };
    let theirs = || Ok(run("jq", &["-c", ".type", path], ProbeOutput::Null)?.seconds);
    // jq takes ten seconds per round.
    let measured = pairs(5, ours, theirs)?;
    let bar = FigureGoal {
        required: Threshold::AtLeast(12.0),
        goal: Threshold::AtLeast(25.0),
    };
    report.ratio(
        FIGURE,
        &PairedSamples {
            ratio: measured.ratio.inverse(),
            ..measured
        },
        bar,
    );
    Ok(())
}

/// Time of each layer.
fn layers(capture: &BenchCapture) -> BenchResult<String> {
    let read = timed(|| drain(capture, |_| {}))?;
    let decoded = timed(|| {
        drain(capture, |line| {
            drop(std::hint::black_box(decode::decode_line(line)))
        })
    })?;
    let mut timeline = Timeline::new(Box::new(FileSource::open(&capture.path)?));
    let folded = timed(|| {
        while timeline.advance(1 << 20, &mut |_| {})? == PollStatus::More {}
        Ok(())
    })?;
    Ok(format!(
        "read {}, and decoded {}, and folded {}",
        time(read),
        time(decoded),
        time(folded)
    ))
}

fn drain(capture: &BenchCapture, mut each: impl FnMut(&[u8])) -> BenchResult<()> {
    let mut source = FileSource::open(&capture.path)?;
    loop {
        let progress = source.poll(1 << 20, &mut |arrived| {
            if let EntryBody::Stdout(line) = arrived.body {
                each(line);
            }
        })?;
        if progress != PollStatus::More {
            return Ok(());
        }
    }
}
