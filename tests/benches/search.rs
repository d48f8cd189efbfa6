//! Full-text search for a word of the last line, against `grep -cF` and `rg -cF`. The search runs inside an open
//! viewer, as in normal use; the others are whole processes, which adds about a millisecond.

use crate::{
    replay::{
        FileSource,
        search::{Direction, EscapedNeedle},
    },
    run::entry_source::PollStatus,
    tape::Seq,
};

use crate::bars::{
    capture::{BenchCapture, LAST_WORD},
    harness::{BenchReport, BenchResult, FigureGoal, Threshold, pairs, timed},
    measured_process::{ProbeOutput, argument, is_installed, run},
};

const PAIRS: usize = 9;

pub(crate) fn measure(report: &mut BenchReport, capture: &BenchCapture) -> BenchResult<()> {
    let path = argument(&capture.path)?;
    let needle = EscapedNeedle::new(LAST_WORD).ok_or("an empty word")?;
    let index = FileSource::open(&capture.path)?.index();
    while index.advance(4 << 20)? == PollStatus::More {}
    let last = Seq(index.len() - 1);
    for (program, arguments) in [("grep", ["-cF", LAST_WORD, path]), ("rg", ["-cF", LAST_WORD, path])] {
        let figure = format!("search for the last line / {program} -cF");
        if !is_installed(program) {
            report.note_missing_program(program, &figure);
            continue;
        }
        let ours = || {
            timed(|| match index.find(&needle, Seq(0), Direction::Forward, &|| true)? {
                Some(hit) if hit == last => Ok(()),
                other => Err(format!("found {other:?} instead of the last line").into()),
            })
        };
        let theirs = || Ok(run(program, &arguments, ProbeOutput::Null)?.seconds);
        let measured = pairs(PAIRS, ours, theirs)?;
        report.ratio(&figure, &measured, FigureGoal { required: Threshold::AtMost(1.5), goal: Threshold::AtMost(1.1) });
    }
    Ok(())
}
