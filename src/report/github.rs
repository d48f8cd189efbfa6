//! A report as workflow commands of GitHub Actions, which its runner shows as annotations: an error for each cause of
//! failures, a warning for each budget that ran out, and a notice with the outcome. Pure.

use std::fmt::Write as _;

use super::{
    escape::{command_lines, command_property},
    labels,
};
use ingestdeck_core::{
    run::{RunOutcome, RunReport, report::UnitReport, state::UnitStatus},
    text::pluralize,
};

/// Maximum number of annotations of a kind: a step of a workflow shows no more.
const MAX_ANNOTATIONS: usize = 10;
/// Maximum number of units that an annotation names.
const MAX_NAMED: usize = 30;
/// Maximum number of characters of a message. GitHub cuts longer ones.
const MAX_MESSAGE_CHARS: usize = 3_000;
/// Maximum width of a title, in columns.
const MAX_TITLE_WIDTH: usize = 200;

pub(super) fn render(report: &RunReport) -> String {
    let mut out = String::new();
    let causes = report.failure_groups.iter().filter_map(|group| {
        let units = group
            .units
            .iter()
            .filter_map(|unit| report.units.get(*unit));
        // Others may still succeed, and a spent budget is a warning.
        let failed = units
            .filter(|unit| matches!(unit.status, UnitStatus::Failed | UnitStatus::Interrupted));
        let units: Vec<&str> = failed.map(|unit| unit.key.as_str()).collect();
        let title = format!("{}: {}", named(&units)?, group.reason);
        Some((
            title,
            message(&group.example, group.remedy.as_deref(), &units),
        ))
    });
    let is_lost = |unit: &&UnitReport| unit.is_successful() && unit.is_unsaved;
    let not_saved = report.units.iter().filter(is_lost);
    let not_saved: Vec<&str> = not_saved.map(|unit| unit.key.as_str()).collect();
    let may_be_saved = matches!(
        report.outcome,
        RunOutcome::Running | RunOutcome::WaitingApproval | RunOutcome::Reviewed(_)
    );
    let not_saved = (!may_be_saved && !not_saved.is_empty()).then(|| {
        let why = report.publication.save_error.as_deref();
        let why = why.unwrap_or("the run ended before its changes were saved");
        let title = format!("{} not saved", pluralize(not_saved.len(), "unit"));
        (title, message(why, None, &not_saved))
    });
    annotations(&mut out, "error", causes.chain(not_saved).collect());
    let spent = report.units.iter();
    let spent = spent.filter(|unit| unit.status == UnitStatus::BudgetExhausted);
    let spent = spent.map(|unit| {
        let reason = unit.reason.as_deref().unwrap_or("its budget ran out");
        let title = format!("{}: {reason}", unit.key);
        (title, message(reason, unit.remedy.as_deref(), &[]))
    });
    annotations(&mut out, "warning", spent.collect());
    let outcome = format!(
        "{}{}",
        pluralize(report.units.len(), "unit"),
        labels::statuses(&report.totals)
    );
    let sentences = labels::incomplete(report)
        .into_iter()
        .chain(report.is_scripted().then(|| labels::SCRIPTED.to_owned()))
        .chain(labels::commits(report))
        .chain(labels::resume_hint(report).map(|command| format!("resume: {command}")));
    let lines: Vec<String> = std::iter::once(outcome).chain(sentences).collect();
    let title = format!("{}: {}", labels::title(report), labels::outcome(report));
    annotation(&mut out, "notice", &title, &lines.join("\n"));
    out
}

/// The name of one unit, or the number of several.
fn named(units: &[&str]) -> Option<String> {
    match units {
        [] => None,
        [unit] => Some((*unit).to_owned()),
        units => Some(pluralize(units.len(), "unit")),
    }
}

/// The units, the remedy and the reason, which may be long.
fn message(reason: &str, remedy: Option<&str>, units: &[&str]) -> String {
    let named = units.iter().take(MAX_NAMED).copied().collect::<Vec<_>>();
    let more = match units.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let units = (!units.is_empty()).then(|| format!("units: {}{more}", named.join(", ")));
    let remedy = remedy.map(|remedy| format!("remedy: {remedy}"));
    let lines = units.into_iter().chain(remedy).chain([reason.to_owned()]);
    lines.collect::<Vec<_>>().join("\n")
}

/// The last of too many annotations contains the titles of the rest.
fn annotations(out: &mut String, level: &str, mut all: Vec<(String, String)>) {
    if all.len() > MAX_ANNOTATIONS {
        let rest = all.split_off(MAX_ANNOTATIONS - 1);
        let titles: Vec<String> = rest
            .iter()
            .map(|(title, _)| title.replace('\n', " "))
            .collect();
        all.push((format!("{} more", rest.len()), titles.join("\n")));
    }
    for (title, text) in all {
        annotation(out, level, &title, &text);
    }
}

fn annotation(out: &mut String, level: &str, title: &str, text: &str) {
    let _ = writeln!(
        out,
        "::{level} title={}::{}",
        command_property(title, MAX_TITLE_WIDTH),
        command_lines(text, MAX_MESSAGE_CHARS)
    );
}
