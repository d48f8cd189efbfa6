//! Opening a very large capture: first screen, complete index, memory. Measures whole processes, against `wc -l`.

use std::fs;

use crate::{
    capture::BenchCapture,
    harness::{BenchReport, BenchResult, FigureGoal, Sample, Threshold, pairs},
    measured_process::{ProbeOutput, argument, ingestdeck, run},
};

const PAIRS: usize = 9;

pub(crate) fn measure(report: &mut BenchReport, capture: &BenchCapture) -> BenchResult<()> {
    let path = argument(&capture.path)?;
    let count = || Ok(run("wc", &["-l", path], ProbeOutput::Null)?.seconds);
    let until = |step: &'static str| {
        let arguments = ["replay", path, "--ui", "tui", "--until", step];
        move || run(ingestdeck(), &arguments, ProbeOutput::Terminal)
    };

    let first = until("first-frame");
    let measured = pairs(PAIRS, || Ok(first()?.seconds), count)?;
    let bar = FigureGoal {
        required: Threshold::AtMost(0.25),
        goal: Threshold::AtMost(0.05),
    };
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
    let bar = FigureGoal {
        required: Threshold::AtMost(1.25),
        goal: Threshold::AtMost(0.5),
    };
    report.ratio("first screen and complete index / wc -l", &measured, bar);

    let lines = capture.lines as f64;
    let allowed =
        |mebibytes: f64, a_line: f64| (mebibytes * 1024.0 + lines * a_line / 1024.0) / 1024.0;
    let peaks = Sample::new(peaks.into_iter().map(|kib| kib / 1024.0).collect());
    let bar = FigureGoal {
        required: Threshold::AtMost(allowed(32.0, 16.0).round()),
        goal: Threshold::AtMost(allowed(16.0, 8.0).round()),
    };
    report.figure("peak memory, open and indexed, MiB", &peaks, bar);
    report.note("bars are 32 MiB and 16 bytes a line, 16 MiB and 8 bytes a line");

    let end = until("end");
    let measured = pairs(5, || Ok(end()?.seconds), count)?;
    let bar = FigureGoal {
        required: Threshold::AtMost(5.0),
        goal: Threshold::AtMost(2.0),
    };
    report.ratio(
        "facts of the whole file (everything folded) / wc -l",
        &measured,
        bar,
    );
    giant_line(report, capture)
}

/// Bytes of a giant line.
const GIANT: usize = 100 << 20;

/// Opens a capture with a line of 100 MB and folds it to its end, against `wc -l` of the same file.
fn giant_line(report: &mut BenchReport, capture: &BenchCapture) -> BenchResult<()> {
    let path = capture.path.with_file_name("giant.jsonl");
    let session = r#""session_id":"11111111-1111-4111-8111-111111111111""#;
    let call = r#"{"type":"tool_use","id":"t1","name":"Read","input":{"file_path":"big.txt"}}"#;
    let text = "all work and no play ".repeat(GIANT / 21);
    let lines = [
        format!(r#"{{"type":"system","subtype":"init",{session},"tools":["Read"],"model":"m"}}"#),
        format!(
            r#"{{"type":"assistant","message":{{"id":"m1","role":"assistant","content":[{call}]}},{session}}}"#
        ),
        format!(
            r#"{{"type":"user","message":{{"role":"user","content":[{{"tool_use_id":"t1","type":"tool_result","content":"{text}"}}]}},{session}}}"#
        ),
        format!(
            r#"{{"type":"result","subtype":"success","is_error":false,"result":"Read.",{session}}}"#
        ),
    ];
    fs::write(&path, lines.join("\n") + "\n")?;
    let giant = argument(&path)?;
    let mut peaks = Vec::new();
    let measured = pairs(
        PAIRS,
        || {
            let run = run(
                ingestdeck(),
                &["replay", giant, "--ui", "tui", "--until", "end"],
                ProbeOutput::Terminal,
            )?;
            peaks.push(run.peak_kib / 1024.0);
            Ok(run.seconds)
        },
        || Ok(run("wc", &["-l", giant], ProbeOutput::Null)?.seconds),
    )?;
    fs::remove_file(&path)?;
    let bar = FigureGoal {
        required: Threshold::AtMost(4.0),
        goal: Threshold::AtMost(1.5),
    };
    report.ratio(
        "a line of 100 MB, start to the frame with its head / wc -l",
        &measured,
        bar,
    );
    let bar = FigureGoal {
        required: Threshold::AtMost(48.0),
        goal: Threshold::AtMost(32.0),
    };
    report.figure(
        "a line of 100 MB: peak memory, MiB",
        &Sample::new(peaks),
        bar,
    );
    Ok(())
}
