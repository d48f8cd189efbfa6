//! The differences between two runs, for people and for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::snapshot::quality_json;
use ingestdeck_core::{
    run::{
        RunReport,
        artifacts::LineCounts,
        diff::{ArtifactDiff, ArtifactSnapshot, DiffStatus, RunDiff, UnitDiff, UnitSnapshot},
        quality::{QualityFigure, RunQuality},
    },
    tape::note::attempt_output::ArtifactChange,
    text::{self, dollars, pluralize},
};

/// Maximum width of names on a terminal, in columns.
pub const MAX_NAME_WIDTH: usize = 60;

/// Writes one line per unit, the figures of quality, and one line per artifact. If not `all`, unchanged units and
/// artifacts are only counted. Keys are at most `width` columns wide, and paths and lists twice that.
pub fn render_text(
    before: &RunReport,
    after: &RunReport,
    diff: &RunDiff,
    all: bool,
    width: usize,
) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{} → {}", title(before, width), title(after, width));
    let pairs = [
        Some(format_change(&before.outcome.text(), &after.outcome.text())),
        Some(format!(
            "{} units",
            format_change(&before.units.len(), &after.units.len())
        )),
        Some(format!(
            "{} failed calls",
            format_change(&before.totals.failures, &after.totals.failures)
        )),
        Some(format_change(
            &before.totals.shown_cost.dollars(),
            &after.totals.shown_cost.dollars(),
        )),
        Some(format_change(
            &before.duration.to_string(),
            &after.duration.to_string(),
        )),
    ];
    let _ = writeln!(
        out,
        "{}",
        pairs.into_iter().flatten().collect::<Vec<_>>().join(" · ")
    );
    let shown: Vec<&UnitDiff> = diff
        .units
        .iter()
        .filter(|unit| all || unit.change() != DiffStatus::Same)
        .collect();
    let widest = shown
        .iter()
        .map(|unit| text::width(&unit.key))
        .max()
        .unwrap_or_default()
        .min(width);
    let words = shown.iter().map(|unit| unit_mark(unit.change()).1.len());
    let word_width = words.max().unwrap_or_default().max(7);
    for unit in &shown {
        let key = text::fit_middle(&unit.key, width, "…");
        let pad = widest.saturating_sub(text::width(&key));
        let (glyph, word) = unit_mark(unit.change());
        let _ = writeln!(
            out,
            "  {glyph} {word:<word_width$} {key}{:pad$}  {}",
            "",
            facts(unit, width)
        );
    }
    let same = diff.count(DiffStatus::Same);
    if same > 0 && !all {
        let same = pluralize(same, "unit");
        let _ = writeln!(out, "  = {:<word_width$} {same}", "same");
    }
    if !diff.artifacts.is_empty() {
        push_quality(&mut out, before, after);
        push_artifacts(&mut out, diff, all, width);
    }
    out
}

fn push_quality(out: &mut String, before: &RunReport, after: &RunReport) {
    let (before, after) = (RunQuality::new(before), RunQuality::new(after));
    let widest = QualityFigure::ALL
        .iter()
        .map(|figure| text::width(figure.label()))
        .max()
        .unwrap_or_default();
    out.push_str("quality\n");
    for figure in QualityFigure::ALL {
        let (label, change) = (
            figure.label(),
            format_change(&before.text(figure), &after.text(figure)),
        );
        let _ = writeln!(out, "  {label:widest$}  {change}");
    }
}

fn push_artifacts(out: &mut String, diff: &RunDiff, all: bool, width: usize) {
    out.push_str("artifacts\n");
    let shown = diff
        .artifacts
        .iter()
        .filter(|artifact| all || artifact.change() != DiffStatus::Same);
    for artifact in shown {
        let (glyph, word) = mark(artifact.change());
        let path = text::fit_middle(&artifact.path, width * 2, "…");
        let _ = writeln!(
            out,
            "  {glyph} {word:<7} {path}  {}",
            artifact_facts(artifact)
        );
    }
    let same = diff.count_artifacts(DiffStatus::Same);
    if same > 0 && !all {
        let _ = writeln!(out, "  = same    {}", pluralize(same, "artifact"));
    }
}

fn artifact_facts(artifact: &ArtifactDiff) -> String {
    let change = |side: &ArtifactSnapshot| side.change.map_or("?", ArtifactChange::as_str);
    let lines = |side: &ArtifactSnapshot| {
        side.lines.map_or_else(
            || "? lines".to_owned(),
            |lines| format!("+{} -{}", lines.added, lines.removed),
        )
    };
    let facts = |before: &ArtifactSnapshot, after: &ArtifactSnapshot| {
        let mut facts = vec![
            format_change(&change(before), &change(after)),
            format_change(&before.state, &after.state),
            format_change(&lines(before), &lines(after)),
        ];
        if before.unsourced + after.unsourced > 0 {
            facts.push(format!(
                "unsourced {}",
                format_change(&before.unsourced, &after.unsourced)
            ));
        }
        facts.join(" · ")
    };
    match (&artifact.before, &artifact.after) {
        (Some(before), Some(after)) => facts(before, after),
        (Some(side), None) | (None, Some(side)) => facts(side, side),
        (None, None) => String::new(),
    }
}

fn mark(change: DiffStatus) -> (char, &'static str) {
    let glyph = match change {
        DiffStatus::New => '+',
        DiffStatus::Removed => '-',
        DiffStatus::Changed => '~',
        DiffStatus::Same => '=',
    };
    (glyph, change.as_str())
}

/// The glyph and word of a unit. The second run may have planned a part of the units of the first.
fn unit_mark(change: DiffStatus) -> (char, &'static str) {
    match change {
        DiffStatus::Removed => ('-', "not planned"),
        change => mark(change),
    }
}

fn facts(unit: &UnitDiff, width: usize) -> String {
    match (&unit.before, &unit.after) {
        (Some(before), Some(after)) => {
            let mut facts = vec![format_change(
                &outcome(before, width),
                &outcome(after, width),
            )];
            let mut fact = |name: &str, before: u64, after: u64| {
                if before != after {
                    facts.push(format!("{name} {before} → {after}"));
                }
            };
            fact("attempts", before.attempts as u64, after.attempts as u64);
            fact("calls", before.calls, after.calls);
            fact("failed calls", before.failures, after.failures);
            if before.saved != after.saved {
                facts.push(format!("saved {}", saved(before, after, width)));
            }
            facts.push(format_change(&dollars(before.cost), &dollars(after.cost)));
            facts.push(format_change(
                &before.active_time.to_string(),
                &after.active_time.to_string(),
            ));
            facts.join(" · ")
        }
        (Some(side), None) | (None, Some(side)) => {
            let attempts = pluralize(side.attempts, "attempt");
            format!(
                "{} · {attempts} · {} · {}",
                outcome(side, width),
                dollars(side.cost),
                side.active_time
            )
        }
        (None, None) => String::new(),
    }
}

/// Items that only the second run saved, with a plus, and items that only the first run saved, with a minus.
fn saved(before: &UnitSnapshot, after: &UnitSnapshot, width: usize) -> String {
    let more = after
        .saved
        .iter()
        .filter(|key| !before.saved.contains(key))
        .map(|key| format!("+{key}"));
    let less = before
        .saved
        .iter()
        .filter(|key| !after.saved.contains(key))
        .map(|key| format!("-{key}"));
    text::printable(&more.chain(less).collect::<Vec<_>>().join(", "), width * 2).into_owned()
}

fn outcome(side: &UnitSnapshot, width: usize) -> String {
    match &side.cause {
        Some(cause) if cause != "completed" => {
            format!(
                "{} ({})",
                side.status.as_str(),
                text::printable(cause, width)
            )
        }
        Some(_) | None => side.status.as_str().to_owned(),
    }
}

fn format_change<T: PartialEq + std::fmt::Display>(before: &T, after: &T) -> String {
    if before == after {
        after.to_string()
    } else {
        format!("{before} → {after}")
    }
}

fn title(report: &RunReport, width: usize) -> String {
    let title = match &report.origin.header {
        Some(header) => format!(
            "{} · run {}",
            header.project.as_deref().unwrap_or("ingest"),
            header.run.short()
        ),
        None => report.origin.name.clone(),
    };
    text::printable(&title, width * 2).into_owned()
}

/// Writes one object per unit, one per artifact, and then one about the runs.
pub fn render_json(before: &RunReport, after: &RunReport, diff: &RunDiff) -> String {
    let mut out = String::new();
    for unit in &diff.units {
        let (before, after) = (
            unit.before.as_ref().map(side),
            unit.after.as_ref().map(side),
        );
        let object = json!({"unit": unit.key, "change": unit.change().as_str(), "before": before, "after": after});
        let _ = writeln!(out, "{object}");
    }
    for artifact in &diff.artifacts {
        let (before, after) = (
            artifact.before.as_ref().map(artifact_side),
            artifact.after.as_ref().map(artifact_side),
        );
        let change = artifact.change().as_str();
        let _ = writeln!(
            out,
            "{}",
            json!({"artifact": artifact.path, "change": change, "before": before, "after": after})
        );
    }
    let run = |report: &RunReport| {
        json!({
            "run": report.origin.name, "outcome": report.outcome.as_str(), "units": report.units.len(),
            "calls": report.totals.calls, "failures": report.totals.failures, "cost_usd": report.totals.cost,
            "duration_ms": report.duration.0, "quality": quality_json(&RunQuality::new(report)),
        })
    };
    let counts = |count: &dyn Fn(DiffStatus) -> usize| -> serde_json::Map<String, Value> {
        [
            DiffStatus::New,
            DiffStatus::Removed,
            DiffStatus::Changed,
            DiffStatus::Same,
        ]
        .into_iter()
        .map(|change| (change.as_str().to_owned(), count(change).into()))
        .collect()
    };
    let (units, artifacts) = (
        counts(&|change| diff.count(change)),
        counts(&|change| diff.count_artifacts(change)),
    );
    let runs =
        json!({"before": run(before), "after": run(after), "units": units, "artifacts": artifacts});
    let _ = writeln!(out, "{runs}");
    out
}

fn artifact_side(side: &ArtifactSnapshot) -> Value {
    let lines = side
        .lines
        .map(|LineCounts { added, removed }| json!({"added": added, "removed": removed}));
    json!({"change": side.change, "state": side.state, "lines": lines, "unsourced": side.unsourced})
}

fn side(side: &UnitSnapshot) -> Value {
    json!({
        "state": side.status.as_str(), "cause": side.cause, "attempts": side.attempts, "calls": side.calls,
        "failures": side.failures, "cost_usd": side.cost, "worked_ms": side.active_time.0, "saved": side.saved,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use ingestdeck_core::run::state::UnitStatus;
    use ingestdeck_records::replay::FileSource;

    fn report_of(name: &str) -> RunReport {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .join("tests/fixtures/tapes")
            .join(name);
        crate::fold_report(FileSource::open(&path).unwrap(), false, None).unwrap()
    }

    #[test]
    fn diff_of_a_run_with_itself_has_no_changes() {
        let report = report_of("real.jsonl");
        let diff = RunDiff::new(&report, &report);
        assert_eq!(diff.count(DiffStatus::Same), report.units.len());
        insta::assert_snapshot!(render_text(&report, &report, &diff, false, MAX_NAME_WIDTH));
    }

    #[test]
    fn diff_reports_new_gone_changed_and_same_units() {
        let before = report_of("real.jsonl");
        let mut after = before.clone();
        after.units.remove(0);
        after.units[0].status = UnitStatus::Succeeded;
        after.units[0].cause = Some("completed".into());
        let retry = after.units[0].attempts[0].clone();
        after.units[0].attempts.push(retry);
        after.units[1].key = "docs-\u{1b}[31mnew".into();
        after.units[2].attempts[0]
            .state
            .delivery
            .published
            .push("wiki/global/more.md".into());
        let diff = RunDiff::new(&before, &after);
        insta::assert_snapshot!(render_text(&before, &after, &diff, true, MAX_NAME_WIDTH));
        let objects = render_json(&before, &after, &diff);
        let parsed: Vec<Value> = objects
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(parsed.len(), diff.units.len() + diff.artifacts.len() + 1);
        assert_eq!(
            parsed.last().unwrap()["units"],
            json!({"new": 1, "gone": 2, "changed": 2, "same": 4})
        );
    }
}
