//! Opening a huge capture: first screen, complete index, memory. Whole processes, against `wc -l`.

use crate::{
    capture::Capture,
    harness::{Bar, Limit, Outcome, Report, Sample, pairs},
    probe::{Output, argument, ingestdeck, run},
};

const PAIRS: usize = 9;

pub(crate) fn measure(report: &mut Report, capture: &Capture) -> Outcome<()> {
    let path = argument(&capture.path)?;
    let count = || Ok(run("wc", &["-l", path], Output::Null)?.seconds);
    let until = |step: &'static str| {
        let arguments = ["replay", path, "--ui", "tui", "--until", step];
        move || run(ingestdeck(), &arguments, Output::Terminal)
    };

    let first = until("first-frame");
    let measured = pairs(PAIRS, || Ok(first()?.seconds), count)?;
    let bar = Bar { hard: Limit::AtMost(0.25), aim: Limit::AtMost(0.05) };
    report.ratio("first screen / wc -l", &measured, bar);

    let indexed = until("indexed");
    let mut peaks = Vec::new();
    let measured = pairs(
        PAIRS,
        || {
            let run = indexed()?;
            peaks.push(run.peak_kib);
            Ok(run.seconds)
        },
        count,
    )?;
    let bar = Bar { hard: Limit::AtMost(1.25), aim: Limit::AtMost(1.0) };
    report.ratio("first screen and complete index / wc -l", &measured, bar);

    let lines = capture.lines as f64;
    let allowed = |mebibytes: f64, a_line: f64| (mebibytes * 1024.0 + lines * a_line / 1024.0) / 1024.0;
    let peaks = Sample::new(peaks.into_iter().map(|kib| kib / 1024.0).collect());
    let bar = Bar { hard: Limit::AtMost(allowed(32.0, 16.0).round()), aim: Limit::AtMost(allowed(16.0, 8.0).round()) };
    report.figure("peak memory, open and indexed, MiB", &peaks, bar);
    report.note("bars are 32 MiB and 16 bytes a line, 16 MiB and 8 bytes a line");

    let end = until("end");
    let measured = pairs(5, || Ok(end()?.seconds), count)?;
    let bar = Bar { hard: Limit::AtMost(5.0), aim: Limit::AtMost(2.0) };
    report.ratio("facts of the whole file (everything folded) / wc -l", &measured, bar);
    Ok(())
}
