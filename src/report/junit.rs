//! A report for CI systems: one suite per connection, one test per unit. Pure.

use std::fmt::Write as _;

use super::{
    escape::{markup_line, markup_lines},
    labels,
};
use ingestdeck_core::{
    run::{
        RunOutcome, RunReport,
        report::{AttemptReport, UnitReport},
        spending::CostFigure,
        state::UnitStatus,
    },
    tape::Millis,
};

/// Maximum width of an attribute, in columns.
const MAX_ATTRIBUTE_WIDTH: usize = 400;

/// The result of a test.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JunitResult {
    Passed,
    Failed,
    Error,
    Skipped,
}

pub(super) fn render(report: &RunReport) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let mut all: Vec<&UnitReport> = report.units.iter().collect();
    // If a connection only lost files, it has no units, and the reconcile step handled the files.
    let step = report.reconcile_unit().filter(|_| all.is_empty());
    all.extend(step);
    let name = attribute(&labels::title(report));
    let _ = writeln!(
        out,
        "<testsuites name=\"{name}\" {}>",
        suite_attributes(&all, report.outcome, report.duration)
    );
    for (connection, adapter) in report.connections() {
        let units: Vec<&UnitReport> = all
            .iter()
            .filter(|unit| (unit.connection(), unit.adapter()) == (connection, adapter))
            .copied()
            .collect();
        let adapter = adapter.or_else(|| units.iter().find_map(|unit| step_name(report, unit)));
        suite(
            &mut out,
            report,
            connection.unwrap_or("ingest"),
            adapter,
            &units,
        );
    }
    if let Some(step) = step {
        suite(&mut out, report, "ingest", step_name(report, step), &[step]);
    }
    out.push_str("</testsuites>\n");
    out
}

/// The name of the reconcile step, which belongs to no adapter, if `unit` is that.
fn step_name<'a>(report: &RunReport, unit: &'a UnitReport) -> Option<&'a str> {
    report
        .reconcile_unit()
        .is_some_and(|step| step.key == unit.key)
        .then(|| unit.key.as_str())
}

fn suite(
    out: &mut String,
    report: &RunReport,
    connection: &str,
    adapter: Option<&str>,
    units: &[&UnitReport],
) {
    let worked = units
        .iter()
        .map(|unit| unit.spending.active_time.0)
        .fold(0, u64::saturating_add);
    let began = report
        .origin
        .started_at
        .map(|at| format!(" timestamp=\"{}\"", at.strftime("%Y-%m-%dT%H:%M:%S")));
    let name = attribute(connection);
    let _ = writeln!(
        out,
        "  <testsuite name=\"{name}\" {}{}>",
        suite_attributes(units, report.outcome, Millis(worked)),
        began.as_deref().unwrap_or_default()
    );
    out.push_str("    <properties>\n");
    let mut property = |name: &str, value: &str| {
        let _ = writeln!(
            out,
            "      <property name=\"{name}\" value=\"{}\"/>",
            attribute(value)
        );
    };
    property("run", &report.origin.name);
    property("outcome", report.outcome.as_str());
    property("adapter", adapter.unwrap_or("?"));
    let idle = units
        .iter()
        .filter(|unit| unit.has_written_nothing())
        .count();
    if idle > 0 {
        property(labels::NOTHING_WRITTEN, &idle.to_string());
    }
    if let Some(sentence) = labels::incomplete(report) {
        property("incomplete", &sentence);
    }
    if report.is_scripted() {
        property("scripted", labels::SCRIPTED);
    }
    out.push_str("    </properties>\n");
    for unit in units {
        case(out, report, connection, unit);
    }
    out.push_str("  </testsuite>\n");
}

fn case(out: &mut String, report: &RunReport, connection: &str, unit: &UnitReport) {
    let (name, class) = (attribute(&unit.key), attribute(connection));
    let time = seconds(unit.spending.active_time);
    let _ = writeln!(
        out,
        "    <testcase name=\"{name}\" classname=\"{class}\" time=\"{time}\">"
    );
    let not_saved = not_saved(report, unit);
    let reason = not_saved
        .as_deref()
        .or(unit.reason.as_deref())
        .unwrap_or("no reason is on record");
    let kind = if not_saved.is_some() {
        "not saved"
    } else {
        unit.cause.as_deref().unwrap_or(unit.status.as_str())
    };
    let kind = attribute(kind);
    match test_result(unit, report.outcome) {
        JunitResult::Passed => {}
        JunitResult::Skipped => {
            let text = unit.reason.as_deref().unwrap_or(unit.status.as_str());
            let _ = writeln!(out, "      <skipped message=\"{}\"/>", attribute(text));
        }
        verdict @ (JunitResult::Failed | JunitResult::Error) => {
            let element = if verdict == JunitResult::Failed {
                "failure"
            } else {
                "error"
            };
            let message = attribute(reason);
            let text = markup_lines(&failure_text(unit, reason));
            let _ = writeln!(
                out,
                "      <{element} message=\"{message}\" type=\"{kind}\">{text}</{element}>"
            );
        }
    }
    let reused = unit
        .reason
        .clone()
        .filter(|_| unit.status == UnitStatus::Reused);
    let attempts = reused.into_iter().chain(unit.attempts.iter().map(attempt));
    let decisions = unit
        .decisions()
        .into_iter()
        .map(|decision| format!("{}: {decision}", decision.kind.label()));
    let lines_out: Vec<String> = attempts.chain(decisions).collect();
    if !lines_out.is_empty() {
        let _ = writeln!(
            out,
            "      <system-out>{}</system-out>",
            markup_lines(&lines_out.join("\n"))
        );
    }
    out.push_str("    </testcase>\n");
}

/// Why the changes of a successful unit are not saved.
fn not_saved(report: &RunReport, unit: &UnitReport) -> Option<String> {
    let why = report
        .publication
        .save_error
        .as_deref()
        .unwrap_or("the run ended before that");
    (unit.is_successful() && unit.is_unsaved).then(|| format!("its changes were not saved: {why}"))
}

/// The reason of a failure, its remedy, and the failed calls.
fn failure_text(unit: &UnitReport, reason: &str) -> String {
    let mut text = reason.to_owned();
    if let Some(remedy) = &unit.remedy {
        let _ = write!(text, "\nremedy: {remedy}");
    }
    for call in unit
        .latest()
        .map(|attempt| attempt.failed_calls.as_slice())
        .unwrap_or_default()
    {
        let _ = write!(
            text,
            "\n{} {}: {}",
            labels::time(call.at),
            call.tool,
            call.error
        );
    }
    text
}

fn attempt(attempt: &AttemptReport) -> String {
    let outcome = attempt
        .state
        .verdict
        .as_ref()
        .map_or("no verdict", |verdict| verdict.reason.as_str());
    let session = attempt.state.setup.session.as_deref().unwrap_or("?");
    let model = attempt.state.setup.model_name().unwrap_or("?");
    let cost = CostFigure::of_attempt(&attempt.state).dollars();
    format!(
        "attempt {}: {outcome} · {} · {} turns, {} calls, {} failed · {cost} · model {model} · session {session}",
        attempt.state.number,
        labels::time(attempt.duration),
        attempt.state.counts.turns,
        attempt.state.counts.calls,
        attempt.state.counts.failures,
    )
}

/// The result of a unit. A success whose changes are missing in the project after the run must not pass.
fn test_result(unit: &UnitReport, outcome: RunOutcome) -> JunitResult {
    match unit.status {
        UnitStatus::Succeeded | UnitStatus::BudgetExhausted | UnitStatus::Reused
            if unit.is_unsaved && outcome != RunOutcome::Running =>
        {
            JunitResult::Error
        }
        UnitStatus::Succeeded | UnitStatus::BudgetExhausted | UnitStatus::Reused => {
            JunitResult::Passed
        }
        UnitStatus::Failed => JunitResult::Failed,
        UnitStatus::Interrupted => JunitResult::Error,
        UnitStatus::Queued
        | UnitStatus::NotStarted
        | UnitStatus::Running
        | UnitStatus::Silent
        | UnitStatus::Held
        | UnitStatus::Waiting
        | UnitStatus::Stopped => JunitResult::Skipped,
    }
}

fn suite_attributes(units: &[&UnitReport], outcome: RunOutcome, time: Millis) -> String {
    let count = |wanted| {
        units
            .iter()
            .filter(|unit| test_result(unit, outcome) == wanted)
            .count()
    };
    format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{}\"",
        units.len(),
        count(JunitResult::Failed),
        count(JunitResult::Error),
        count(JunitResult::Skipped),
        seconds(time)
    )
}

fn seconds(span: Millis) -> String {
    format!("{}.{:03}", span.0 / 1000, span.0 % 1000)
}

fn attribute(text: &str) -> String {
    markup_line(text, MAX_ATTRIBUTE_WIDTH)
}
