//! A report for CI systems: a suite a connection, a test a unit. Pure.

use std::fmt::Write as _;

use super::{
    escape::{line, lines, markup},
    words,
};
use crate::{
    run::{
        Report, RunOutcome,
        report::{AttemptReport, UnitReport},
        state::UnitStatus,
    },
    tape::Millis,
};

/// Longest attribute, in columns.
const ATTRIBUTE: usize = 400;

/// What a test came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    Error,
    Skipped,
}

/// Writes it.
pub(super) fn write(report: &Report) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let mut all: Vec<&UnitReport> = report.units.iter().collect();
    // A connection that only lost files has no unit of its own, but the reconcile step dealt with them.
    let step = report.pass().filter(|_| all.is_empty());
    all.extend(step);
    let name = attribute(&words::title(report));
    let _ = writeln!(out, "<testsuites name=\"{name}\" {}>", sums(&all, report.outcome, report.duration));
    for (connection, adapter) in report.connections() {
        let units: Vec<&UnitReport> =
            all.iter().filter(|unit| (unit.connection(), unit.adapter()) == (connection, adapter)).copied().collect();
        let adapter = adapter.or_else(|| units.iter().find_map(|unit| step_name(report, unit)));
        suite(&mut out, report, connection.unwrap_or("ingest"), adapter, &units);
    }
    if let Some(step) = step {
        suite(&mut out, report, "ingest", step_name(report, step), &[step]);
    }
    out.push_str("</testsuites>\n");
    out
}

/// The name of the reconcile step, which no adapter planned, if `unit` is that.
fn step_name<'a>(report: &Report, unit: &'a UnitReport) -> Option<&'a str> {
    report.pass().is_some_and(|step| step.key == unit.key).then(|| unit.key.as_str())
}

fn suite(out: &mut String, report: &Report, connection: &str, adapter: Option<&str>, units: &[&UnitReport]) {
    let worked = units.iter().map(|unit| unit.spent.worked.0).fold(0, u64::saturating_add);
    let began = report.started_at.map(|at| format!(" timestamp=\"{}\"", at.strftime("%Y-%m-%dT%H:%M:%S")));
    let name = attribute(connection);
    let _ = writeln!(
        out,
        "  <testsuite name=\"{name}\" {}{}>",
        sums(units, report.outcome, Millis(worked)),
        began.as_deref().unwrap_or_default()
    );
    out.push_str("    <properties>\n");
    let mut property = |name: &str, value: &str| {
        let _ = writeln!(out, "      <property name=\"{name}\" value=\"{}\"/>", attribute(value));
    };
    property("run", &report.name);
    property("outcome", report.outcome.word());
    property("adapter", adapter.unwrap_or("?"));
    if let Some(sentence) = words::incomplete(report) {
        property("incomplete", sentence);
    }
    if report.is_scripted() {
        property("scripted", words::SCRIPTED);
    }
    out.push_str("    </properties>\n");
    for unit in units {
        case(out, report, connection, unit);
    }
    out.push_str("  </testsuite>\n");
}

fn case(out: &mut String, report: &Report, connection: &str, unit: &UnitReport) {
    let (name, class) = (attribute(&unit.key), attribute(connection));
    let time = seconds(unit.spent.worked);
    let _ = writeln!(out, "    <testcase name=\"{name}\" classname=\"{class}\" time=\"{time}\">");
    let not_saved = not_saved(report, unit);
    let reason = not_saved.as_deref().or(unit.reason.as_deref()).unwrap_or("no reason is on record");
    let kind = if not_saved.is_some() { "not saved" } else { unit.cause.as_deref().unwrap_or(unit.status.word()) };
    let kind = attribute(kind);
    match judged(unit, report.outcome) {
        Verdict::Passed => {}
        Verdict::Skipped => {
            let text = unit.reason.as_deref().unwrap_or(unit.status.word());
            let _ = writeln!(out, "      <skipped message=\"{}\"/>", attribute(text));
        }
        verdict @ (Verdict::Failed | Verdict::Error) => {
            let element = if verdict == Verdict::Failed { "failure" } else { "error" };
            let message = attribute(reason);
            let text = markup(&lines(&failure_text(unit, reason)));
            let _ = writeln!(out, "      <{element} message=\"{message}\" type=\"{kind}\">{text}</{element}>");
        }
    }
    let reused = unit.reason.clone().filter(|_| unit.status == UnitStatus::Reused);
    let attempts = reused.into_iter().chain(unit.attempts.iter().map(attempt));
    let decisions = unit.decisions().into_iter().map(|decision| format!("{}: {decision}", decision.kind.word()));
    let lines_out: Vec<String> = attempts.chain(decisions).collect();
    if !lines_out.is_empty() {
        let _ = writeln!(out, "      <system-out>{}</system-out>", markup(&lines(&lines_out.join("\n"))));
    }
    out.push_str("    </testcase>\n");
}

/// Why the changes of a good unit are not saved.
fn not_saved(report: &Report, unit: &UnitReport) -> Option<String> {
    let why = report.unsaved.as_deref().unwrap_or("the run ended before that");
    (unit.is_good() && unit.unsaved).then(|| format!("what it wrote was not saved: {why}"))
}

/// The reason of a failure, its remedy, and the calls that failed.
fn failure_text(unit: &UnitReport, reason: &str) -> String {
    let mut text = reason.to_owned();
    if let Some(remedy) = &unit.remedy {
        let _ = write!(text, "\nremedy: {remedy}");
    }
    for call in unit.latest().map(|attempt| attempt.failed.as_slice()).unwrap_or_default() {
        let _ = write!(text, "\n{} {}: {}", words::time(call.at), call.tool, call.error);
    }
    text
}

fn attempt(attempt: &AttemptReport) -> String {
    let outcome = attempt.verdict.as_ref().map_or("no verdict", |verdict| verdict.reason.as_str());
    let session = attempt.session.as_deref().unwrap_or("?");
    let model = attempt.model.as_deref().unwrap_or("?");
    let cost = words::dollars(attempt.cost, false);
    format!(
        "attempt {}: {outcome} · {} · {} turns, {} calls, {} failed · {cost} · model {model} · session {session}",
        attempt.number,
        words::time(attempt.ran),
        attempt.turns,
        attempt.calls,
        attempt.failures,
    )
}

/// Verdict of a unit. A success whose changes are missing in the project after the run is over must not be green.
fn judged(unit: &UnitReport, outcome: RunOutcome) -> Verdict {
    match unit.status {
        UnitStatus::Succeeded | UnitStatus::Budget | UnitStatus::Reused
            if unit.unsaved && outcome != RunOutcome::Running =>
        {
            Verdict::Error
        }
        UnitStatus::Succeeded | UnitStatus::Budget | UnitStatus::Reused => Verdict::Passed,
        UnitStatus::Failed => Verdict::Failed,
        UnitStatus::Interrupted => Verdict::Error,
        UnitStatus::Queued
        | UnitStatus::Untried
        | UnitStatus::Running
        | UnitStatus::Silent
        | UnitStatus::Held
        | UnitStatus::Waiting
        | UnitStatus::Stopped => Verdict::Skipped,
    }
}

fn sums(units: &[&UnitReport], outcome: RunOutcome, time: Millis) -> String {
    let count = |wanted| units.iter().filter(|unit| judged(unit, outcome) == wanted).count();
    format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{}\"",
        units.len(),
        count(Verdict::Failed),
        count(Verdict::Error),
        count(Verdict::Skipped),
        seconds(time)
    )
}

fn seconds(span: Millis) -> String {
    format!("{}.{:03}", span.0 / 1000, span.0 % 1000)
}

fn attribute(text: &str) -> String {
    markup(&line(text, ATTRIBUTE))
}
