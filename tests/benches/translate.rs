//! Decoding and translating everything: `replay --ui json` against `jq -c .type`. Whole processes.

use crate::{
    capture::Capture,
    harness::{Bar, Limit, Outcome, Report, Sample, pairs},
    probe::{Output, argument, ingestdeck, is_installed, run},
};

const FIGURE: &str = "everything decoded and translated: times faster than jq";

pub(crate) fn measure(report: &mut Report, capture: &Capture) -> Outcome<()> {
    if !is_installed("jq") {
        report.absent("jq", FIGURE);
        return Ok(());
    }
    let path = argument(&capture.path)?;
    let ours = || Ok(run(ingestdeck(), &["replay", path, "--ui", "json"], Output::Null)?.seconds);
    let theirs = || Ok(run("jq", &["-c", ".type", path], Output::Null)?.seconds);
    // jq takes ten seconds a round.
    let measured = pairs(5, ours, theirs)?;
    let faster = [1.0, 0.5, 0.0].map(|share| 1.0 / measured.ratio.quantile(share));
    let bar = Bar { hard: Limit::AtLeast(15.0), aim: Limit::AtLeast(40.0) };
    report.ratio(FIGURE, &crate::harness::Pairs { ratio: Sample::new(faster.to_vec()), ..measured }, bar);
    Ok(())
}
