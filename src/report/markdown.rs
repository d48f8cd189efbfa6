//! A report for a pull request. Pure.

use std::fmt::Write as _;

use super::{
    escape::{markdown_code, markdown_text as plain},
    labels,
    sections::{ReportSection, artifact_sections},
};
use ingestdeck_core::{
    run::{RunReport, report::UnitReport, state::UnitStatus},
    text::pluralize,
};

/// Maximum width of a sentence, in columns.
const MAX_SENTENCE_WIDTH: usize = 400;

pub(crate) const MAX_NAME_WIDTH: usize = 120;

/// Maximum number of names per failure group, of saved changes and of messages.
const MAX_NAMED: usize = 30;

pub(super) fn render(report: &RunReport) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "## Ingest {}: {}\n",
        labels::outcome(report),
        plain(&labels::title(report), MAX_NAME_WIDTH)
    );
    for sentence in [
        labels::incomplete(report),
        report.is_scripted().then(|| labels::SCRIPTED.to_owned()),
    ]
    .into_iter()
    .flatten()
    {
        let _ = writeln!(out, "> {sentence}\n");
    }
    totals(&mut out, report);
    failures(&mut out, report);
    notable(&mut out, report);
    units(&mut out, report);
    saved(&mut out, report);
    decisions(&mut out, report);
    shared_files(&mut out, report);
    artifacts(&mut out, report);
    tools(&mut out, report);
    remarks(&mut out, report);
    out
}

fn totals(out: &mut String, report: &RunReport) {
    let totals = &report.totals;
    let _ = writeln!(
        out,
        "* **{}**{}",
        pluralize(report.units.len(), "unit"),
        labels::statuses(totals)
    );
    let calls = usize::try_from(totals.calls).unwrap_or(usize::MAX);
    let turns = usize::try_from(totals.turns).unwrap_or(usize::MAX);
    let _ = writeln!(
        out,
        "* {} ({}) · {} ({} failed, {} denied) · {}",
        pluralize(totals.attempts, "attempt"),
        if totals.retries == 1 {
            "1 retry".to_owned()
        } else {
            format!("{} retries", totals.retries)
        },
        pluralize(calls, "tool call"),
        totals.failures,
        totals.denials,
        pluralize(turns, "turn"),
    );
    let cost = totals.shown_cost;
    let _ = writeln!(
        out,
        "* {} · cost {cost} · tokens {}",
        labels::time(report.duration),
        labels::tokens(totals.tokens)
    );
    if let Some(models) = labels::model_costs(&labels::models(report)) {
        let _ = writeln!(
            out,
            "* cost by model: {}",
            plain(&models, MAX_SENTENCE_WIDTH)
        );
    }
    if let Some(releases) = labels::release_list(report) {
        let _ = writeln!(
            out,
            "* agent release {}",
            plain(&releases, MAX_SENTENCE_WIDTH)
        );
    }
    if let Some(began) = labels::started_at(report) {
        let _ = writeln!(out, "* began {began}");
    }
    for projected in report
        .inputs
        .projected
        .iter()
        .filter(|projected| projected.reason.is_none())
    {
        let _ = writeln!(
            out,
            "* {}",
            plain(&projected.to_string(), MAX_SENTENCE_WIDTH)
        );
    }
    for commit in labels::commits(report) {
        let _ = writeln!(out, "* saved: {}", plain(&commit, MAX_SENTENCE_WIDTH));
    }
    if let Some(unsaved) = &report.publication.save_error {
        let _ = writeln!(
            out,
            "* **not saved**: {}",
            plain(unsaved, MAX_SENTENCE_WIDTH)
        );
    }
    if let Some(next) = labels::resume_hint(report) {
        let _ = writeln!(
            out,
            "* {} resumes the run",
            markdown_code(&next, MAX_NAME_WIDTH)
        );
    }
    out.push('\n');
}

fn failures(out: &mut String, report: &RunReport) {
    if report.failure_groups.is_empty() {
        return;
    }
    out.push_str("### Failures by cause\n\n");
    for group in &report.failure_groups {
        let count = pluralize(group.units.len(), "unit");
        let _ = writeln!(
            out,
            "* **{}** ({count}): {}",
            plain(&group.cause, MAX_NAME_WIDTH),
            plain(&group.example, MAX_SENTENCE_WIDTH)
        );
        if let Some(remedy) = &group.remedy {
            let _ = writeln!(out, "  * remedy: {}", plain(remedy, MAX_SENTENCE_WIDTH));
        }
        let keys = group
            .units
            .iter()
            .filter_map(|unit| report.units.get(*unit));
        let named: Vec<String> = keys.take(MAX_NAMED).map(name).collect();
        let more = group.units.len().saturating_sub(MAX_NAMED);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let _ = writeln!(out, "  * {}{more}", named.join(", "));
    }
    out.push('\n');
}

/// Succeeded units with something to review.
fn notable(out: &mut String, report: &RunReport) {
    let spent: Vec<&UnitReport> = report
        .units
        .iter()
        .filter(|unit| unit.status == UnitStatus::BudgetExhausted)
        .collect();
    if spent.is_empty() {
        return;
    }
    out.push_str("### Budgets that ran out\n\n");
    for unit in &spent {
        let reason = unit.reason.as_deref().unwrap_or("no reason is on record");
        let remedy = unit
            .remedy
            .as_deref()
            .map(|remedy| format!(" – {remedy}"))
            .unwrap_or_default();
        let _ = writeln!(
            out,
            "* ◆ {}: {}",
            name(unit),
            plain(&format!("{reason}{remedy}"), MAX_SENTENCE_WIDTH)
        );
    }
    out.push('\n');
}

fn units(out: &mut String, report: &RunReport) {
    // The releases matter in the table only if they differ.
    let differ = labels::releases(report).len() > 1;
    let (head, rule) = if differ {
        (" release |", "---|")
    } else {
        ("", "")
    };
    let _ = writeln!(
        out,
        "### Units\n\n| unit | outcome | attempts | turns | calls | failed | time | cost | model |{head}\n\
         |---|---|--:|--:|--:|--:|--:|--:|---|{rule}"
    );
    for unit in &report.units {
        let (made, failed) = labels::calls(unit);
        let model = match unit.latest() {
            Some(attempt) => attempt.state.setup.model_name().unwrap_or("?"),
            None => labels::NONE,
        };
        let release = if differ {
            format!(
                " {} |",
                markdown_code(&labels::unit_releases(unit), MAX_NAME_WIDTH)
            )
        } else {
            String::new()
        };
        let _ = writeln!(
            out,
            "| {} | {} {} | {} | {} | {made} | {failed} | {} | {} | {} |{release}",
            name(unit),
            unit.status.glyph(),
            labels::unit_state(unit),
            unit.attempts.len(),
            labels::turns(unit),
            labels::time(unit.spending.active_time),
            labels::cost(unit),
            markdown_code(model, MAX_NAME_WIDTH),
        );
    }
    out.push('\n');
}

fn saved(out: &mut String, report: &RunReport) {
    let actions: Vec<_> = report
        .units
        .iter()
        .flat_map(|unit| unit.changes().into_iter().map(move |action| (unit, action)))
        .collect();
    if !actions.is_empty() {
        let _ = writeln!(out, "### Saved ({})\n", actions.len());
    }
    for (unit, action) in actions.iter().take(MAX_NAMED * 2) {
        let connection = action
            .target_connection_id
            .as_deref()
            .map(|id| format!("{id}/"))
            .unwrap_or_default();
        let key = markdown_code(&format!("{connection}{}", action.key), MAX_NAME_WIDTH);
        let detail = if action.detail.is_empty() {
            String::new()
        } else {
            format!(" – {}", plain(&action.detail, MAX_NAME_WIDTH))
        };
        let (target, change) = (action.target.as_str(), action.change.as_str());
        let _ = writeln!(out, "* {target} {key} {change} by {}{}", name(unit), detail);
    }
    if actions.len() > MAX_NAMED * 2 {
        let _ = writeln!(out, "* and {} more", actions.len() - MAX_NAMED * 2);
    }
    if !actions.is_empty() {
        out.push('\n');
    }
}

fn decisions(out: &mut String, report: &RunReport) {
    for (title, decisions) in labels::decisions(report) {
        if decisions.is_empty() {
            continue;
        }
        let _ = writeln!(out, "### {title} ({})\n", decisions.len());
        for decision in decisions.iter().take(MAX_NAMED) {
            let (flag, about) = (
                labels::flag(decision),
                markdown_code(&decision.about, MAX_NAME_WIDTH),
            );
            let _ = writeln!(
                out,
                "* {flag}{about}: {}",
                plain(&decision.text, MAX_SENTENCE_WIDTH)
            );
        }
        if decisions.len() > MAX_NAMED {
            let _ = writeln!(out, "* and {} more", decisions.len() - MAX_NAMED);
        }
        out.push('\n');
    }
}

fn shared_files(out: &mut String, report: &RunReport) {
    if report.shared_files.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "### Written by several units ({})\n",
        report.shared_files.len()
    );
    for file in report.shared_files.iter().take(MAX_NAMED) {
        let units: Vec<String> = file
            .units
            .iter()
            .map(|unit| markdown_code(unit, MAX_NAME_WIDTH))
            .collect();
        let _ = writeln!(
            out,
            "* {}: {} – {}",
            markdown_code(&file.path, MAX_NAME_WIDTH),
            units.join(", "),
            file.resolution()
        );
    }
    if report.shared_files.len() > MAX_NAMED {
        let _ = writeln!(out, "* and {} more", report.shared_files.len() - MAX_NAMED);
    }
    out.push('\n');
}

fn artifacts(out: &mut String, report: &RunReport) {
    for ReportSection { title, items } in artifact_sections(report) {
        let _ = writeln!(out, "### {title}\n");
        for (name, text) in items.iter().take(MAX_NAMED * 2) {
            let _ = writeln!(
                out,
                "* {}: {}",
                markdown_code(name, MAX_NAME_WIDTH),
                plain(text, MAX_SENTENCE_WIDTH)
            );
        }
        if items.len() > MAX_NAMED * 2 {
            let _ = writeln!(out, "* and {} more", items.len() - MAX_NAMED * 2);
        }
        out.push('\n');
    }
}

fn tools(out: &mut String, report: &RunReport) {
    let tools = report.tools();
    if tools.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "### Tools\n\n| tool | {} |\n|---|--:|--:|--:|--:|",
        labels::TOOL_HEADS.join(" | ")
    );
    for (tool, calls) in tools {
        let cells = labels::tool_cells(calls).map(|count| count.to_string());
        let _ = writeln!(
            out,
            "| {} | {} |",
            markdown_code(tool, MAX_NAME_WIDTH),
            cells.join(" | ")
        );
    }
    out.push('\n');
}

fn remarks(out: &mut String, report: &RunReport) {
    let (messages, more) = (&report.log.messages, &report.log.more_messages);
    let lost = labels::lost(report);
    if messages.is_empty() && lost.is_none() {
        return;
    }
    out.push_str("### Remarks\n\n");
    for (at, text) in messages.iter().take(MAX_NAMED) {
        let _ = writeln!(
            out,
            "* {}: {}",
            labels::time(*at),
            plain(text, MAX_SENTENCE_WIDTH)
        );
    }
    let more = more + messages.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        let _ = writeln!(out, "* and {more} more");
    }
    if let Some(lost) = lost {
        let _ = writeln!(out, "* {lost}");
    }
    out.push('\n');
}

fn name(unit: &UnitReport) -> String {
    markdown_code(&unit.key, MAX_NAME_WIDTH)
}
