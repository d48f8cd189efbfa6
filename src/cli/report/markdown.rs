//! A report to paste into a pull request. Pure.

use std::fmt::Write as _;

use super::{
    escape::{code, words as plain},
    words,
};
use crate::{
    cli::{lines::status_glyph, summary::counted},
    run::{Report, report::UnitReport, state::UnitStatus},
};

/// Longest sentence, in columns.
const SENTENCE: usize = 400;

/// Longest name.
const NAME: usize = 120;

/// Most names of one failure group, most saved changes, most messages: a pull request is not a log.
const NAMED: usize = 30;

/// Writes it.
pub(super) fn write(report: &Report) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "## Ingest {}: {}\n", words::outcome(report), plain(&words::title(report), NAME));
    for sentence in [words::incomplete(report), report.is_scripted().then_some(words::SCRIPTED)].into_iter().flatten() {
        let _ = writeln!(out, "> {sentence}\n");
    }
    totals(&mut out, report);
    failures(&mut out, report);
    notable(&mut out, report);
    units(&mut out, report);
    saved(&mut out, report);
    decided(&mut out, report);
    shared(&mut out, report);
    tools(&mut out, report);
    remarks(&mut out, report);
    out
}

fn totals(out: &mut String, report: &Report) {
    let totals = &report.totals;
    let _ = writeln!(out, "* **{}**{}", counted(report.units.len(), "unit"), words::statuses(totals));
    let calls = usize::try_from(totals.calls).unwrap_or(usize::MAX);
    let turns = usize::try_from(totals.turns).unwrap_or(usize::MAX);
    let _ = writeln!(
        out,
        "* {} ({}) · {} ({} failed, {} denied) · {}",
        counted(totals.attempts, "attempt"),
        if totals.retries == 1 { "1 retry".to_owned() } else { format!("{} retries", totals.retries) },
        counted(calls, "tool call"),
        totals.failures,
        totals.denials,
        counted(turns, "turn"),
    );
    let cost = words::dollars(totals.cost, totals.cost_partial);
    let _ = writeln!(out, "* {} · cost {cost} · tokens {}", words::time(report.duration), words::tokens(totals.tokens));
    if let Some(began) = words::began(report) {
        let _ = writeln!(out, "* began {began}");
    }
    for projected in report.projected.iter().filter(|projected| projected.reason.is_none()) {
        let _ = writeln!(out, "* {}", plain(&projected.to_string(), SENTENCE));
    }
    if let Some((commit, branch)) = words::commit(report) {
        let branch = branch.map(|branch| format!(" on {}", code(branch, NAME))).unwrap_or_default();
        let _ = writeln!(out, "* saved as commit {}{branch}", code(commit, NAME));
    }
    if let Some(unsaved) = &report.unsaved {
        let _ = writeln!(out, "* **not saved**: {}", plain(unsaved, SENTENCE));
    }
    if let Some(next) = words::next(report) {
        let _ = writeln!(out, "* {} resumes the run", code(&next, NAME));
    }
    out.push('\n');
}

fn failures(out: &mut String, report: &Report) {
    if report.failures.is_empty() {
        return;
    }
    out.push_str("### Failures by cause\n\n");
    for group in &report.failures {
        let count = counted(group.units.len(), "unit");
        let _ = writeln!(out, "* **{}** ({count}): {}", plain(&group.cause, NAME), plain(&group.example, SENTENCE));
        if let Some(remedy) = &group.remedy {
            let _ = writeln!(out, "  * remedy: {}", plain(remedy, SENTENCE));
        }
        let keys = group.units.iter().filter_map(|unit| report.units.get(*unit));
        let named: Vec<String> = keys.take(NAMED).map(name).collect();
        let more = group.units.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let _ = writeln!(out, "  * {}{more}", named.join(", "));
    }
    out.push('\n');
}

/// Units that count and still want to be looked at.
fn notable(out: &mut String, report: &Report) {
    let spent: Vec<&UnitReport> = report.units.iter().filter(|unit| unit.status == UnitStatus::Budget).collect();
    if spent.is_empty() {
        return;
    }
    out.push_str("### Budgets that ran out\n\n");
    for unit in &spent {
        let reason = unit.reason.as_deref().unwrap_or("no reason is on record");
        let remedy = unit.remedy.as_deref().map(|remedy| format!(" – {remedy}")).unwrap_or_default();
        let _ = writeln!(out, "* ◆ {}: {}", name(unit), plain(&format!("{reason}{remedy}"), SENTENCE));
    }
    out.push('\n');
}

fn units(out: &mut String, report: &Report) {
    out.push_str("### Units\n\n| unit | outcome | attempts | turns | calls | failed | time | cost | model |\n");
    out.push_str("|---|---|--:|--:|--:|--:|--:|--:|---|\n");
    for unit in &report.units {
        let (made, failed) = words::calls(unit);
        let model = unit.latest().and_then(|attempt| attempt.model.as_deref()).unwrap_or("?");
        let _ = writeln!(
            out,
            "| {} | {} {} | {} | {} | {made} | {failed} | {} | {} | {} |",
            name(unit),
            status_glyph(unit.status),
            words::unit_state(unit),
            unit.attempts.len(),
            words::turns(unit),
            words::time(unit.spent.worked),
            words::dollars(unit.spent.cost, unit.spent.partial),
            code(model, NAME),
        );
    }
    out.push('\n');
}

fn saved(out: &mut String, report: &Report) {
    let actions: Vec<_> =
        report.units.iter().flat_map(|unit| unit.changes().into_iter().map(move |action| (unit, action))).collect();
    if !actions.is_empty() {
        let _ = writeln!(out, "### Saved ({})\n", actions.len());
    }
    for (unit, action) in actions.iter().take(NAMED * 2) {
        let connection = action.target_connection_id.as_deref().map(|id| format!("{id}/")).unwrap_or_default();
        let key = code(&format!("{connection}{}", action.key), NAME);
        let detail =
            if action.detail.is_empty() { String::new() } else { format!(" – {}", plain(&action.detail, NAME)) };
        let (target, change) = (action.target.word(), action.change.word());
        let _ = writeln!(out, "* {target} {key} {change} by {}{}", name(unit), detail);
    }
    if actions.len() > NAMED * 2 {
        let _ = writeln!(out, "* and {} more", actions.len() - NAMED * 2);
    }
    if !actions.is_empty() {
        out.push('\n');
    }
}

fn decided(out: &mut String, report: &Report) {
    let (decided, unmapped) = words::decisions(report);
    for (title, decisions) in [("Decisions", decided), ("Not mapped", unmapped)] {
        if decisions.is_empty() {
            continue;
        }
        let _ = writeln!(out, "### {title} ({})\n", decisions.len());
        for decision in decisions.iter().take(NAMED) {
            let (flag, about) = (words::flag(decision), code(&decision.about, NAME));
            let _ = writeln!(out, "* {flag}{about}: {}", plain(&decision.text, SENTENCE));
        }
        if decisions.len() > NAMED {
            let _ = writeln!(out, "* and {} more", decisions.len() - NAMED);
        }
        out.push('\n');
    }
}

fn shared(out: &mut String, report: &Report) {
    if report.shared.is_empty() {
        return;
    }
    let _ = writeln!(out, "### Written by several units ({})\n", report.shared.len());
    for file in report.shared.iter().take(NAMED) {
        let units: Vec<String> = file.units.iter().map(|unit| code(unit, NAME)).collect();
        let _ = writeln!(out, "* {}: {} – {}", code(&file.path, NAME), units.join(", "), file.came_of_it());
    }
    if report.shared.len() > NAMED {
        let _ = writeln!(out, "* and {} more", report.shared.len() - NAMED);
    }
    out.push('\n');
}

fn tools(out: &mut String, report: &Report) {
    let tools = report.tools();
    if tools.is_empty() {
        return;
    }
    let _ = writeln!(out, "### Tools\n\n| tool | {} |\n|---|--:|--:|--:|--:|", words::TOOL_HEADS.join(" | "));
    for (tool, calls) in tools {
        let cells = words::tool_cells(calls).map(|count| count.to_string());
        let _ = writeln!(out, "| {} | {} |", code(tool, NAME), cells.join(" | "));
    }
    out.push('\n');
}

fn remarks(out: &mut String, report: &Report) {
    let (messages, more) = &report.remarks;
    let lost = words::lost(report);
    if messages.is_empty() && lost.is_none() {
        return;
    }
    out.push_str("### Remarks\n\n");
    for (at, text) in messages.iter().take(NAMED) {
        let _ = writeln!(out, "* {}: {}", words::time(*at), plain(text, SENTENCE));
    }
    let more = more + messages.len().saturating_sub(NAMED);
    if more > 0 {
        let _ = writeln!(out, "* and {more} more");
    }
    if let Some(lost) = lost {
        let _ = writeln!(out, "* {lost}");
    }
    out.push('\n');
}

fn name(unit: &UnitReport) -> String {
    code(&unit.key, NAME)
}
