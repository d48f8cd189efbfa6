//! A report as one page that needs nothing else: no script, nothing from outside. Pure.

use std::fmt::Write as _;

use super::{
    escape::{line, lines, markup},
    words,
};
use crate::{
    cli::{lines::status_glyph, summary::counted},
    run::{
        Report,
        report::{AttemptReport, UnitReport},
        state::UnitStatus,
    },
    tape::{Millis, note::Outcome},
};

/// Longest name and longest sentence, in columns.
const NAME: usize = 120;
const SENTENCE: usize = 600;

/// Colours follow the reader's setting. Marks carry their meaning in glyph and word; colour only repeats it.
const STYLE: &str = include_str!("../../../assets/report.css");

/// Nothing may be loaded, whatever got into the page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Writes it.
pub(super) fn write(report: &Report) -> String {
    let title = shown(&words::title(report), NAME);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n"
    );
    let word = report.outcome.word();
    let _ = writeln!(out, "<h1>{title} <span class=\"outcome {word}\">{}</span></h1>", words::outcome(report));
    for sentence in [words::incomplete(report), report.is_scripted().then_some(words::SCRIPTED)].into_iter().flatten() {
        let _ = writeln!(out, "<p class=\"note\">{sentence}</p>");
    }
    figures(&mut out, report);
    if let Some(next) = words::next(report) {
        let _ = writeln!(out, "<p><code>{}</code> resumes the run</p>", shown(&next, SENTENCE));
    }
    failures(&mut out, report);
    timeline(&mut out, report);
    details(&mut out, report);
    saved(&mut out, report);
    decided(&mut out, report);
    shared(&mut out, report);
    tools(&mut out, report);
    remarks(&mut out, report);
    out.push_str("</body>\n</html>\n");
    out
}

fn figures(out: &mut String, report: &Report) {
    let totals = &report.totals;
    let figures = [
        ("units", format!("{}{}", report.units.len(), words::statuses(totals))),
        ("attempts", format!("{}, {} of them retries", totals.attempts, totals.retries)),
        ("tool calls", format!("{}, {} failed, {} denied", totals.calls, totals.failures, totals.denials)),
        ("turns", totals.turns.to_string()),
        ("time", words::time(report.duration)),
        ("cost", words::dollars(totals.cost, totals.cost_partial)),
        ("tokens", words::tokens(totals.tokens)),
        ("began", words::began(report).unwrap_or_else(|| "?".to_owned())),
        ("read from", report.format.to_owned()),
        ("saved", saved_as(report)),
    ];
    out.push_str("<dl class=\"figures\">\n");
    for (name, value) in figures {
        let _ = writeln!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", shown(&value, SENTENCE));
    }
    out.push_str("</dl>\n");
}

fn saved_as(report: &Report) -> String {
    match (&report.unsaved, words::commit(report)) {
        (Some(reason), _) => format!("not saved: {reason}"),
        (None, Some((commit, branch))) => {
            format!("commit {commit}{}", branch.map(|branch| format!(" on {branch}")).unwrap_or_default())
        }
        // Without a repository pages go into the project one by one.
        (None, None) => match report.units.iter().map(|unit| unit.changes().len()).sum() {
            0 => "nothing".to_owned(),
            saved => format!("{}, in no commit", counted(saved, "change")),
        },
    }
}

fn failures(out: &mut String, report: &Report) {
    if report.failures.is_empty() {
        return;
    }
    out.push_str("<h2>Failures by cause</h2>\n<ul class=\"causes\">\n");
    for group in &report.failures {
        let count = counted(group.units.len(), "unit");
        let _ = writeln!(out, "<li><b>{}</b> ({count})", shown(&group.cause, NAME));
        let _ = writeln!(out, "<pre>{}</pre>", markup(&lines(&group.example)));
        if let Some(remedy) = &group.remedy {
            let _ = writeln!(out, "<p>remedy: {}</p>", shown(remedy, SENTENCE));
        }
        let named = group.units.iter().filter_map(|unit| Some((unit, report.units.get(*unit)?)));
        let links: Vec<String> = named
            .map(|(index, unit)| format!("<a href=\"#u{index}\"><code>{}</code></a>", shown(&unit.key, NAME)))
            .collect();
        let _ = writeln!(out, "<p>{}</p></li>", links.join(", "));
    }
    out.push_str("</ul>\n");
}

/// Units in the order of interest: what went wrong, what is not done, what ran out of budget, the rest.
fn by_interest(report: &Report) -> Vec<(usize, &UnitReport)> {
    let rank = |unit: &UnitReport| match unit.status {
        UnitStatus::Failed => 0,
        UnitStatus::Interrupted | UnitStatus::Stopped => 1,
        UnitStatus::Running | UnitStatus::Silent | UnitStatus::Held | UnitStatus::Waiting => 2,
        UnitStatus::Budget => 3,
        UnitStatus::Queued | UnitStatus::Untried => 4,
        UnitStatus::Succeeded => 5,
        UnitStatus::Reused => 6,
    };
    let mut units: Vec<(usize, &UnitReport)> = report.units.iter().enumerate().collect();
    units.sort_by_key(|(_, unit)| rank(unit));
    units
}

fn timeline(out: &mut String, report: &Report) {
    out.push_str("<h2>Time</h2>\n");
    if !report.has_times {
        out.push_str("<p class=\"note\">The record has no times; its entries are spread evenly.</p>\n");
    }
    out.push_str("<div class=\"timeline\">\n");
    for (index, unit) in by_interest(report) {
        let mark = mark(unit);
        let _ = write!(out, "<a class=\"name\" href=\"#u{index}\">{mark} {}</a><div class=\"track\">", key(unit));
        for attempt in &unit.attempts {
            bar(out, attempt, report.duration);
        }
        out.push_str("</div>\n");
    }
    let _ = writeln!(
        out,
        "<span></span><div class=\"scale\"><span>0</span><span>{}</span></div>",
        words::time(report.duration)
    );
    out.push_str("</div>\n");
}

fn bar(out: &mut String, attempt: &AttemptReport, whole: Millis) {
    let left = percent(attempt.started, whole);
    let width = percent(attempt.ran, whole).max(0.4).min(100.0 - left.min(99.6));
    let (class, word) = state(attempt);
    let tip = format!("attempt {}: {word}, {}", attempt.number, words::time(attempt.ran));
    let _ = write!(
        out,
        "<span class=\"bar {class}\" style=\"left:{left:.2}%;width:{width:.2}%\" title=\"{}\">{}</span>",
        shown(&tip, NAME),
        attempt.number
    );
    for call in &attempt.failed {
        let tip = format!("{} {}: {}", words::time(call.at), call.tool, call.error);
        let at = percent(call.at, whole);
        let _ = write!(out, "<span class=\"tick\" style=\"left:{at:.2}%\" title=\"{}\"></span>", shown(&tip, SENTENCE));
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of a run fit a double many times over")]
fn percent(part: Millis, whole: Millis) -> f64 {
    if whole.0 == 0 { 0.0 } else { (part.0 as f64 / whole.0 as f64 * 100.0).clamp(0.0, 100.0) }
}

fn details(out: &mut String, report: &Report) {
    out.push_str("<h2>Units</h2>\n");
    for (index, unit) in by_interest(report) {
        let open = if unit.status == UnitStatus::Failed { " open" } else { "" };
        let (made, failed) = words::calls(unit);
        let _ = writeln!(
            out,
            "<details id=\"u{index}\"{open}><summary>{} {} <span class=\"what\">{} · {} · {}, {failed} failed · {} · {}</span></summary>",
            mark(unit),
            key(unit),
            words::unit_state(unit),
            counted(unit.attempts.len(), "attempt"),
            counted(made as usize, "call"),
            words::time(unit.spent.worked),
            words::dollars(unit.spent.cost, unit.spent.partial),
        );
        if let Some(planned) = &unit.planned {
            let files: Vec<String> =
                planned.raw_files.iter().map(|file| format!("<code>{}</code>", shown(file, NAME))).collect();
            let _ = writeln!(
                out,
                "<p>{} / {}: {}</p>",
                shown(&planned.connection, NAME),
                shown(&planned.adapter, NAME),
                files.join(", ")
            );
        }
        if let (Some(reason), true) = (&unit.reason, unit.attempts.is_empty()) {
            let _ = writeln!(out, "<p>{}</p>", shown(reason, SENTENCE));
        }
        if let Some(remedy) = &unit.remedy {
            let _ = writeln!(out, "<p>remedy: {}</p>", shown(remedy, SENTENCE));
        }
        for attempt in &unit.attempts {
            self::attempt(out, attempt);
        }
        out.push_str("</details>\n");
    }
}

fn attempt(out: &mut String, attempt: &AttemptReport) {
    let (class, word) = state(attempt);
    let reason = attempt.verdict.as_ref().map_or(word, |verdict| verdict.reason.as_str());
    let _ =
        writeln!(out, "<section class=\"{class}\"><h3>attempt {}: {}</h3>", attempt.number, shown(reason, SENTENCE));
    let facts = [
        Some(format!("from {} for {}", words::time(attempt.started), words::time(attempt.ran))),
        Some(match attempt.step_budget {
            Some(most) => format!("{} of {}", attempt.turns, counted(most as usize, "turn")),
            None => counted(attempt.turns as usize, "turn"),
        }),
        Some(format!(
            "{}, {} failed, {} denied",
            counted(attempt.calls as usize, "call"),
            attempt.failures,
            attempt.denials
        )),
        Some(format!("cost {}", words::dollars(attempt.cost, false))),
        Some(format!("tokens {}", words::tokens(attempt.tokens))),
        Some(format!("model {}", attempt.model.as_deref().unwrap_or("?"))),
        Some(format!("session {}", attempt.session.as_deref().unwrap_or("?"))),
        attempt.amendment.as_deref().map(|amendment| format!("asked for otherwise: {amendment}")),
        attempt.transcript.as_deref().map(|path| format!("transcript {path}")),
        attempt.patch.as_ref().and_then(|patch| patch.path.as_deref()).map(|path| format!("patch {path}")),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().map(|fact| shown(&fact, SENTENCE)).collect();
    let _ = writeln!(out, "<p>{}</p>", facts.join(" · "));
    if !attempt.tools.is_empty() {
        let tools = attempt
            .tools
            .iter()
            .map(|(tool, calls)| format!("<code>{}</code> ×{}{}", shown(tool, NAME), calls.made, words::ends(*calls)));
        let _ = writeln!(out, "<p>{}</p>", tools.collect::<Vec<_>>().join(" · "));
    }
    if !attempt.failed.is_empty() {
        out.push_str("<ul class=\"calls\">\n");
        for call in &attempt.failed {
            let _ = writeln!(
                out,
                "<li>✗ {} <code>{}</code><pre>{}</pre></li>",
                words::time(call.at),
                shown(&call.tool, NAME),
                markup(&lines(&call.error))
            );
        }
        out.push_str("</ul>\n");
    }
    out.push_str("</section>\n");
}

fn saved(out: &mut String, report: &Report) {
    let actions: Vec<_> =
        report.units.iter().flat_map(|unit| unit.changes().into_iter().map(move |action| (unit, action))).collect();
    if actions.is_empty() {
        return;
    }
    let _ = writeln!(out, "<h2>Saved ({})</h2>\n<ul>", actions.len());
    for (unit, action) in &actions {
        let connection = action.target_connection_id.as_deref().map(|id| format!("{id}/")).unwrap_or_default();
        let _ = writeln!(
            out,
            "<li>{} <code>{}</code> {} by {} <span class=\"what\">{}</span></li>",
            action.target.word(),
            shown(&format!("{connection}{}", action.key), NAME),
            action.change.word(),
            key(unit),
            shown(&action.detail, SENTENCE)
        );
    }
    out.push_str("</ul>\n");
}

fn decided(out: &mut String, report: &Report) {
    let (decided, unmapped) = words::decisions(report);
    for (title, decisions) in [("Decisions", decided), ("Not mapped", unmapped)] {
        if decisions.is_empty() {
            continue;
        }
        let _ = writeln!(out, "<h2>{title} ({})</h2>\n<ul>", decisions.len());
        for decision in &decisions {
            let (flag, about) = (words::flag(decision), shown(&decision.about, NAME));
            let _ = writeln!(out, "<li>{flag}<code>{about}</code>: {}</li>", shown(&decision.text, SENTENCE));
        }
        out.push_str("</ul>\n");
    }
}

fn shared(out: &mut String, report: &Report) {
    if report.shared.is_empty() {
        return;
    }
    let _ = writeln!(out, "<h2>Written by several units ({})</h2>\n<ul>", report.shared.len());
    for file in &report.shared {
        let units: Vec<String> = file.units.iter().map(|unit| format!("<code>{}</code>", shown(unit, NAME))).collect();
        let path = shown(&file.path, NAME);
        let _ = writeln!(out, "<li><code>{path}</code>: {} – {}</li>", units.join(", "), file.came_of_it());
    }
    out.push_str("</ul>\n");
}

fn tools(out: &mut String, report: &Report) {
    let tools = report.tools();
    if tools.is_empty() {
        return;
    }
    out.push_str("<h2>Tools</h2>\n<table>\n<thead><tr><th>tool</th>");
    let heads = words::TOOL_HEADS.map(|head| format!("<th>{head}</th>"));
    let _ = writeln!(out, "{}</tr></thead>\n<tbody>", heads.concat());
    for (tool, calls) in tools {
        let cells = words::tool_cells(calls).map(|count| format!("<td>{count}</td>"));
        let _ = writeln!(out, "<tr><td><code>{}</code></td>{}</tr>", shown(tool, NAME), cells.concat());
    }
    out.push_str("</tbody>\n</table>\n");
}

fn remarks(out: &mut String, report: &Report) {
    let (messages, more) = &report.remarks;
    let lost = words::lost(report);
    if messages.is_empty() && lost.is_none() {
        return;
    }
    out.push_str("<h2>Remarks</h2>\n<ul>\n");
    for (at, text) in messages {
        let _ = writeln!(out, "<li>{}: {}</li>", words::time(*at), shown(text, SENTENCE));
    }
    if *more > 0 {
        let _ = writeln!(out, "<li>and {more} more</li>");
    }
    if let Some(lost) = lost {
        let _ = writeln!(out, "<li>{lost}</li>");
    }
    out.push_str("</ul>\n");
}

/// Class and word of an attempt.
fn state(attempt: &AttemptReport) -> (&'static str, &'static str) {
    let Some(verdict) = &attempt.verdict else { return ("open", "no verdict") };
    match (verdict.outcome, verdict.stop) {
        (Outcome::Succeeded, crate::tape::note::StopReason::Budget) => ("budget", "budget"),
        (Outcome::Succeeded, _) => ("good", "succeeded"),
        (Outcome::Failed, _) => ("bad", "failed"),
        (Outcome::Stopped, _) => ("budget", "stopped"),
    }
}

fn mark(unit: &UnitReport) -> String {
    format!("<span class=\"{}\">{}</span>", unit.status.word(), status_glyph(unit.status))
}

fn key(unit: &UnitReport) -> String {
    format!("<code>{}</code>", shown(&unit.key, NAME))
}

fn shown(text: &str, most: usize) -> String {
    markup(&line(text, most))
}
