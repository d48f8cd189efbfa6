//! Decoding and translating everything: `replay --ui json` against `jq -c .type`. Whole processes.

use ingestdeck::{
    decode,
    replay::FileSource,
    run::{Progress, Source, Timeline},
    tape::Body,
};

use crate::{
    capture::Capture,
    harness::{Bar, Limit, Outcome, Pairs, Report, pairs, time, timed},
    probe::{Output, argument, ingestdeck, is_installed, run},
};

const FIGURE: &str = "everything decoded and translated: times faster than jq";

pub(crate) fn measure(report: &mut Report, capture: &Capture) -> Outcome<()> {
    report.note(&format!("in process: {}", layers(capture)?));
    if !is_installed("jq") {
        report.absent("jq", FIGURE);
        return Ok(());
    }
    let path = argument(&capture.path)?;
    let ours = || Ok(run(ingestdeck(), &["replay", path, "--ui", "json"], Output::Null)?.seconds);
    let theirs = || Ok(run("jq", &["-c", ".type", path], Output::Null)?.seconds);
    // jq takes ten seconds a round.
    let measured = pairs(5, ours, theirs)?;
    let bar = Bar { hard: Limit::AtLeast(15.0), aim: Limit::AtLeast(40.0) };
    report.ratio(FIGURE, &Pairs { ratio: measured.ratio.inverse(), ..measured }, bar);
    Ok(())
}

/// Where the time goes, layer upon layer.
fn layers(capture: &Capture) -> Outcome<String> {
    let read = timed(|| drain(capture, |_| {}))?;
    let decoded = timed(|| drain(capture, |line| drop(std::hint::black_box(decode::line(line)))))?;
    let mut timeline = Timeline::new(Box::new(FileSource::open(&capture.path)?));
    let folded = timed(|| {
        while timeline.advance(1 << 20, &mut |_| {})? == Progress::More {}
        Ok(())
    })?;
    Ok(format!("read {}, and decoded {}, and folded {}", time(read), time(decoded), time(folded)))
}

fn drain(capture: &Capture, mut each: impl FnMut(&[u8])) -> Outcome<()> {
    let mut source = FileSource::open(&capture.path)?;
    loop {
        let progress = source.poll(1 << 20, &mut |arrived| {
            if let Body::Out(line) = arrived.body {
                each(line);
            }
        })?;
        if progress != Progress::More {
            return Ok(());
        }
    }
}
