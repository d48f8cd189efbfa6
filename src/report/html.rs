//! A report as one self-contained page without scripts and external resources. Pure.

use std::fmt::Write as _;

use super::{
    escape::{markup_line as escape, markup_lines},
    labels,
    sections::{ReportSection, artifact_sections},
};
use ingestdeck_core::{
    run::{
        RunReport, plain_reason,
        report::{AttemptReport, UnitReport},
        savings::continued_sentence,
        spending::CostFigure,
        state::UnitStatus,
    },
    tape::{Millis, note::AttemptOutcome},
    text::pluralize,
};

/// Maximum widths of names and of sentences, in columns.
pub(crate) const MAX_NAME_WIDTH: usize = 120;
const MAX_SENTENCE_WIDTH: usize = 600;

/// Colours follow the reader's setting. Glyphs and words carry the meaning; colour only repeats it.
const STYLE: &str = include_str!("../../assets/report.css");

/// Prevents all loading, whatever the page contains.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

pub(super) fn render(report: &RunReport) -> String {
    let title = escape(&labels::title(report), MAX_NAME_WIDTH);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{CONTENT_SECURITY_POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n"
    );
    let word = report.outcome.as_str();
    let _ = writeln!(
        out,
        "<h1>{title} <span class=\"outcome {word}\">{}</span></h1>",
        labels::outcome(report)
    );
    for sentence in [
        labels::incomplete(report),
        report.is_scripted().then(|| labels::SCRIPTED.to_owned()),
    ]
    .into_iter()
    .flatten()
    {
        let _ = writeln!(out, "<p class=\"note\">{sentence}</p>");
    }
    figures(&mut out, report);
    if let Some(next) = labels::resume_hint(report) {
        let _ = writeln!(
            out,
            "<p><code>{}</code> resumes the run</p>",
            escape(&next, MAX_SENTENCE_WIDTH)
        );
    }
    failures(&mut out, report);
    timeline(&mut out, report);
    details(&mut out, report);
    saved(&mut out, report);
    projected_sources(&mut out, report);
    decisions(&mut out, report);
    shared_files(&mut out, report);
    artifacts(&mut out, report);
    tools(&mut out, report);
    remarks(&mut out, report);
    out.push_str("</body>\n</html>\n");
    out
}

fn figures(out: &mut String, report: &RunReport) {
    let totals = &report.totals;
    let figures = [
        (
            "units",
            format!("{}{}", report.units.len(), labels::statuses(totals)),
        ),
        (
            "attempts",
            format!("{}, {} of them retries", totals.attempts, totals.retries),
        ),
        (
            "tool calls",
            format!(
                "{}, {} failed, {} denied",
                totals.calls, totals.failures, totals.denials
            ),
        ),
        ("turns", totals.turns.to_string()),
        ("time", labels::time(report.duration)),
        ("cost", totals.shown_cost.to_string()),
        ("tokens", labels::tokens(totals.tokens)),
        (
            "agent release",
            labels::release_list(report).unwrap_or_else(|| "?".to_owned()),
        ),
        (
            "began",
            labels::started_at(report).unwrap_or_else(|| "?".to_owned()),
        ),
        ("read from", report.origin.format.to_owned()),
        ("saved", saved_as(report)),
    ];
    out.push_str("<dl class=\"figures\">\n");
    for (name, value) in figures {
        let _ = writeln!(
            out,
            "<div><dt>{name}</dt><dd>{}</dd></div>",
            escape(&value, MAX_SENTENCE_WIDTH)
        );
    }
    out.push_str("</dl>\n");
}

fn saved_as(report: &RunReport) -> String {
    let error = report
        .publication
        .save_error
        .as_ref()
        .map(|reason| format!("not saved: {reason}"));
    let parts: Vec<String> = error.into_iter().chain(labels::commits(report)).collect();
    match parts.is_empty() {
        false => parts.join("; "),
        // Earlier versions published artifacts one by one to a project without git.
        true => match report.units.iter().map(|unit| unit.changes().len()).sum() {
            0 => "nothing".to_owned(),
            saved => format!("{}, in no commit", pluralize(saved, "change")),
        },
    }
}

fn failures(out: &mut String, report: &RunReport) {
    if report.failure_groups.is_empty() {
        return;
    }
    out.push_str("<h2>Failures by cause</h2>\n<ul class=\"causes\">\n");
    for group in &report.failure_groups {
        let count = pluralize(group.units.len(), "unit");
        let _ = writeln!(
            out,
            "<li><b>{}</b> ({count})",
            escape(&group.cause, MAX_NAME_WIDTH)
        );
        let _ = writeln!(out, "<pre>{}</pre>", markup_lines(&group.example));
        if let Some(remedy) = &group.remedy {
            let _ = writeln!(out, "<p>remedy: {}</p>", escape(remedy, MAX_SENTENCE_WIDTH));
        }
        let named = group
            .units
            .iter()
            .filter_map(|unit| Some((unit, report.units.get(*unit)?)));
        let links: Vec<String> = named
            .map(|(index, unit)| {
                format!(
                    "<a href=\"#u{index}\"><code>{}</code></a>",
                    escape(&unit.key, MAX_NAME_WIDTH)
                )
            })
            .collect();
        let _ = writeln!(out, "<p>{}</p></li>", links.join(", "));
    }
    out.push_str("</ul>\n");
}

/// Units by importance: failed, unfinished, out of budget, others.
fn by_interest(report: &RunReport) -> Vec<(usize, &UnitReport)> {
    let rank = |unit: &UnitReport| match unit.status {
        UnitStatus::Failed => 0,
        UnitStatus::Interrupted | UnitStatus::Stopped => 1,
        UnitStatus::Running | UnitStatus::Silent | UnitStatus::Held | UnitStatus::Waiting => 2,
        UnitStatus::BudgetExhausted => 3,
        UnitStatus::Queued | UnitStatus::NotStarted => 4,
        UnitStatus::Succeeded => 5,
        UnitStatus::Reused => 6,
    };
    let mut units: Vec<(usize, &UnitReport)> = report.units.iter().enumerate().collect();
    units.sort_by_key(|(_, unit)| rank(unit));
    units
}

fn timeline(out: &mut String, report: &RunReport) {
    out.push_str("<h2>Time</h2>\n");
    if !report.origin.has_times {
        out.push_str(
            "<p class=\"note\">The record has no times; its entries are spread evenly.</p>\n",
        );
    }
    out.push_str("<div class=\"timeline\">\n");
    for (index, unit) in by_interest(report) {
        let mark = mark(unit);
        let _ = write!(
            out,
            "<a class=\"name\" href=\"#u{index}\">{mark} {}</a><div class=\"track\">",
            key(unit)
        );
        for attempt in &unit.attempts {
            bar(out, attempt, report.duration);
        }
        out.push_str("</div>\n");
    }
    let _ = writeln!(
        out,
        "<span></span><div class=\"scale\"><span>0</span><span>{}</span></div>",
        labels::time(report.duration)
    );
    out.push_str("</div>\n");
}

fn bar(out: &mut String, attempt: &AttemptReport, whole: Millis) {
    let left = percent(attempt.state.started_at, whole);
    let width = percent(attempt.duration, whole)
        .max(0.4)
        .min(100.0 - left.min(99.6));
    let (class, word) = state(attempt);
    let tip = format!(
        "attempt {}: {word}, {}",
        attempt.state.number,
        labels::time(attempt.duration)
    );
    let _ = write!(
        out,
        "<span class=\"bar {class}\" style=\"left:{left:.2}%;width:{width:.2}%\" title=\"{}\">{}</span>",
        escape(&tip, MAX_NAME_WIDTH),
        attempt.state.number
    );
    for call in &attempt.failed_calls {
        let tip = format!("{} {}: {}", labels::time(call.at), call.tool, call.error);
        let at = percent(call.at, whole);
        let _ = write!(
            out,
            "<span class=\"tick\" style=\"left:{at:.2}%\" title=\"{}\"></span>",
            escape(&tip, MAX_SENTENCE_WIDTH)
        );
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "milliseconds of a run fit a double many times over"
)]
fn percent(part: Millis, whole: Millis) -> f64 {
    if whole.0 == 0 {
        0.0
    } else {
        (part.0 as f64 / whole.0 as f64 * 100.0).clamp(0.0, 100.0)
    }
}

fn details(out: &mut String, report: &RunReport) {
    out.push_str("<h2>Units</h2>\n");
    for (index, unit) in by_interest(report) {
        let open = if unit.status == UnitStatus::Failed {
            " open"
        } else {
            ""
        };
        let (made, failed) = labels::calls(unit);
        let _ = writeln!(
            out,
            "<details id=\"u{index}\"{open}><summary>{} {} <span class=\"what\">{} · {} · {}, {failed} failed · {} · {}</span></summary>",
            mark(unit),
            key(unit),
            labels::unit_state(unit),
            pluralize(unit.attempts.len(), "attempt"),
            pluralize(made as usize, "call"),
            labels::time(unit.spending.active_time),
            labels::cost(unit),
        );
        if let Some(planned) = &unit.planned {
            let files: Vec<String> = planned
                .raw_files
                .iter()
                .map(|file| format!("<code>{}</code>", escape(file, MAX_NAME_WIDTH)))
                .collect();
            let _ = writeln!(
                out,
                "<p>{} / {}: {}</p>",
                escape(&planned.connection, MAX_NAME_WIDTH),
                escape(&planned.adapter, MAX_NAME_WIDTH),
                files.join(", ")
            );
        }
        if let (Some(reason), true) = (&unit.reason, unit.attempts.is_empty()) {
            let _ = writeln!(out, "<p>{}</p>", escape(reason, MAX_SENTENCE_WIDTH));
        }
        if let Some(remedy) = &unit.remedy {
            let _ = writeln!(out, "<p>remedy: {}</p>", escape(remedy, MAX_SENTENCE_WIDTH));
        }
        for attempt in &unit.attempts {
            self::attempt(out, attempt);
        }
        out.push_str("</details>\n");
    }
}

fn attempt(out: &mut String, attempt: &AttemptReport) {
    let (class, word) = state(attempt);
    let reason = attempt
        .state
        .verdict
        .as_ref()
        .map_or(word.into(), |verdict| plain_reason(&verdict.reason));
    let _ = writeln!(
        out,
        "<section class=\"{class}\"><h3>attempt {}: {}</h3>",
        attempt.state.number,
        escape(&reason, MAX_SENTENCE_WIDTH)
    );
    let facts = [
        Some(format!(
            "from {} for {}",
            labels::time(attempt.state.started_at),
            labels::time(attempt.duration)
        )),
        Some(match attempt.state.setup.step_budget {
            Some(most) => format!(
                "{} of {}",
                attempt.state.counts.turns,
                pluralize(most as usize, "turn")
            ),
            None => pluralize(attempt.state.counts.turns as usize, "turn"),
        }),
        Some(format!(
            "{}, {} failed, {} denied",
            pluralize(attempt.state.counts.calls as usize, "call"),
            attempt.state.counts.failures,
            attempt.state.counts.denials
        )),
        Some(format!(
            "cost {}",
            CostFigure::of_attempt(&attempt.state).dollars()
        )),
        labels::model_costs(attempt.state.setup.models()),
        Some(format!(
            "tokens {}",
            labels::tokens(attempt.state.counts.tokens)
        )),
        Some(format!(
            "model {}",
            attempt.state.setup.model_name().unwrap_or("?")
        )),
        attempt
            .state
            .setup
            .release
            .as_ref()
            .map(|release| format!("release {release}")),
        Some(format!(
            "session {}",
            attempt.state.setup.session.as_deref().unwrap_or("?")
        )),
        attempt
            .state
            .setup
            .continued()
            .map(continued_sentence)
            .or_else(|| {
                let amendment = attempt.state.setup.amendment()?;
                Some(format!("changed on request: {amendment}"))
            }),
        attempt
            .transcript()
            .map(|path| format!("transcript {path}")),
        attempt
            .state
            .delivery
            .patch_path()
            .map(|path| format!("patch {path}")),
    ];
    let facts: Vec<String> = facts
        .into_iter()
        .flatten()
        .map(|fact| escape(&fact, MAX_SENTENCE_WIDTH))
        .collect();
    let _ = writeln!(out, "<p>{}</p>", facts.join(" · "));
    if !attempt.tools.is_empty() {
        let tools = attempt.tools.iter().map(|(tool, calls)| {
            format!(
                "<code>{}</code> ×{}{}",
                escape(tool, MAX_NAME_WIDTH),
                calls.total,
                labels::call_outcomes(*calls)
            )
        });
        let _ = writeln!(out, "<p>{}</p>", tools.collect::<Vec<_>>().join(" · "));
    }
    if !attempt.failed_calls.is_empty() {
        out.push_str("<ul class=\"calls\">\n");
        for call in &attempt.failed_calls {
            let _ = writeln!(
                out,
                "<li>✗ {} <code>{}</code><pre>{}</pre></li>",
                labels::time(call.at),
                escape(&call.tool, MAX_NAME_WIDTH),
                markup_lines(&call.error)
            );
        }
        out.push_str("</ul>\n");
    }
    out.push_str("</section>\n");
}

fn saved(out: &mut String, report: &RunReport) {
    let actions: Vec<_> = report
        .units
        .iter()
        .flat_map(|unit| unit.changes().into_iter().map(move |action| (unit, action)))
        .collect();
    if actions.is_empty() {
        return;
    }
    let _ = writeln!(out, "<h2>Saved ({})</h2>\n<ul>", actions.len());
    for (unit, action) in &actions {
        let connection = action
            .target_connection_id
            .as_deref()
            .map(|id| format!("{id}/"))
            .unwrap_or_default();
        let _ = writeln!(
            out,
            "<li>{} <code>{}</code> {} by {} <span class=\"what\">{}</span></li>",
            action.target.as_str(),
            escape(&format!("{connection}{}", action.key), MAX_NAME_WIDTH),
            action.change.as_str(),
            key(unit),
            escape(&action.detail, MAX_SENTENCE_WIDTH)
        );
    }
    out.push_str("</ul>\n");
}

fn projected_sources(out: &mut String, report: &RunReport) {
    if report.inputs.projected.is_empty() {
        return;
    }
    out.push_str("<h2>Sources written without an agent</h2>\n<ul>\n");
    for projected in &report.inputs.projected {
        let _ = writeln!(
            out,
            "<li>{}</li>",
            escape(&projected.to_string(), MAX_SENTENCE_WIDTH)
        );
    }
    out.push_str("</ul>\n");
}

fn decisions(out: &mut String, report: &RunReport) {
    for (title, decisions) in labels::decisions(report) {
        if decisions.is_empty() {
            continue;
        }
        let _ = writeln!(out, "<h2>{title} ({})</h2>\n<ul>", decisions.len());
        for decision in &decisions {
            let (flag, about) = (
                labels::flag(decision),
                escape(&decision.about, MAX_NAME_WIDTH),
            );
            let _ = writeln!(
                out,
                "<li>{flag}<code>{about}</code>: {}</li>",
                escape(&decision.text, MAX_SENTENCE_WIDTH)
            );
        }
        out.push_str("</ul>\n");
    }
}

fn shared_files(out: &mut String, report: &RunReport) {
    if report.shared_files.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "<h2>Written by several units ({})</h2>\n<ul>",
        report.shared_files.len()
    );
    for file in &report.shared_files {
        let units: Vec<String> = file
            .units
            .iter()
            .map(|unit| format!("<code>{}</code>", escape(unit, MAX_NAME_WIDTH)))
            .collect();
        let path = escape(&file.path, MAX_NAME_WIDTH);
        let _ = writeln!(
            out,
            "<li><code>{path}</code>: {} – {}</li>",
            units.join(", "),
            file.resolution()
        );
    }
    out.push_str("</ul>\n");
}

fn artifacts(out: &mut String, report: &RunReport) {
    for ReportSection { title, items } in artifact_sections(report) {
        let _ = writeln!(out, "<h2>{title}</h2>\n<ul>");
        for (name, text) in &items {
            let (name, text) = (
                escape(name, MAX_NAME_WIDTH),
                escape(text, MAX_SENTENCE_WIDTH),
            );
            let _ = writeln!(out, "<li><code>{name}</code>: {text}</li>");
        }
        out.push_str("</ul>\n");
    }
}

fn tools(out: &mut String, report: &RunReport) {
    let tools = report.tools();
    if tools.is_empty() {
        return;
    }
    out.push_str("<h2>Tools</h2>\n<table>\n<thead><tr><th>tool</th>");
    let heads = labels::TOOL_HEADS.map(|head| format!("<th>{head}</th>"));
    let _ = writeln!(out, "{}</tr></thead>\n<tbody>", heads.concat());
    for (tool, calls) in tools {
        let cells = labels::tool_cells(calls).map(|count| format!("<td>{count}</td>"));
        let _ = writeln!(
            out,
            "<tr><td><code>{}</code></td>{}</tr>",
            escape(tool, MAX_NAME_WIDTH),
            cells.concat()
        );
    }
    out.push_str("</tbody>\n</table>\n");
}

fn remarks(out: &mut String, report: &RunReport) {
    let (messages, more) = (&report.log.messages, &report.log.more_messages);
    let lost = labels::lost(report);
    if messages.is_empty() && lost.is_none() {
        return;
    }
    out.push_str("<h2>Remarks</h2>\n<ul>\n");
    for (at, text) in messages {
        let _ = writeln!(
            out,
            "<li>{}: {}</li>",
            labels::time(*at),
            escape(text, MAX_SENTENCE_WIDTH)
        );
    }
    if *more > 0 {
        let _ = writeln!(out, "<li>and {more} more</li>");
    }
    if let Some(lost) = lost {
        let _ = writeln!(out, "<li>{lost}</li>");
    }
    out.push_str("</ul>\n");
}

/// CSS class and label of an attempt.
fn state(attempt: &AttemptReport) -> (&'static str, &'static str) {
    let Some(verdict) = &attempt.state.verdict else {
        return ("open", "no verdict");
    };
    match (verdict.outcome, verdict.stop) {
        (AttemptOutcome::Succeeded, ingestdeck_core::tape::note::StopReason::Budget) => {
            ("budget", "budget")
        }
        (AttemptOutcome::Succeeded, _) => ("good", "succeeded"),
        (AttemptOutcome::Failed, _) => ("bad", "failed"),
        (AttemptOutcome::Stopped, _) => ("budget", "stopped"),
    }
}

fn mark(unit: &UnitReport) -> String {
    format!(
        "<span class=\"{}\">{}</span>",
        unit.status.as_str(),
        unit.status.glyph()
    )
}

fn key(unit: &UnitReport) -> String {
    format!("<code>{}</code>", escape(&unit.key, MAX_NAME_WIDTH))
}
