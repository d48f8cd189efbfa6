//! `diff`: two runs side by side, for people and for programs.

use std::{fmt::Write as _, io::Write as _};

use serde_json::{Value, json};

use super::{
    args::{DiffArgs, Global, Ui},
    exit::{Exit, Failure},
    output, report, runs, show,
    summary::counted,
};
use crate::{
    run::{
        Report,
        diff::{Change, Diff, Side, UnitDiff},
    },
    tui::{text, view::dollars},
};

/// Widest key, in columns.
const KEY: usize = 60;

/// Compares the runs.
///
/// # Errors
/// When there is no such run, or it cannot be read.
pub fn diff(global: &Global, args: &DiffArgs) -> Result<Exit, Failure> {
    let before = report::gather(global, &args.before)?;
    let after = report::gather(global, args.after.as_deref().unwrap_or("latest"))?;
    if args.after.is_none()
        && let Some(why) = same(global, &before, &after)?
    {
        return Err(why);
    }
    let diff = Diff::of(&before, &after);
    let text = match global.ui {
        Ui::Json => objects(&before, &after, &diff),
        Ui::None => String::new(),
        Ui::Auto | Ui::Tui | Ui::Lines => lines(&before, &after, &diff, args.all),
    };
    let mut out = output::stdout_for(global.ui);
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| show::stdout_failed(&error))?;
    Ok(Exit::Ok)
}

/// Why the newest run is not compared with itself, where nobody asked for that.
fn same(global: &Global, before: &Report, after: &Report) -> Result<Option<Failure>, Failure> {
    let run = |report: &Report| report.header.as_ref().map(|header| header.run);
    let Some(run) = run(after).filter(|after| run(before) == Some(*after)) else { return Ok(None) };
    let run = run.short();
    Ok(Some(match runs::place(global)?.list().map_err(Failure::internal)?.len() {
        1 => Failure::not_found(format!(
            "there is only one run, {run}: nothing is recorded that it can be compared with; name a file as the second"
        )),
        _ => Failure::usage(format!("run {run} is the newest one; name an earlier one, which it is compared with")),
    }))
}

fn lines(before: &Report, after: &Report, diff: &Diff, all: bool) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{} → {}", title(before), title(after));
    let pairs = [
        Some(changed(&before.outcome.word(), &after.outcome.word())),
        Some(format!("{} units", changed(&before.units.len(), &after.units.len()))),
        Some(format!("{} failed calls", changed(&before.totals.failures, &after.totals.failures))),
        Some(changed(&dollars(before.totals.cost), &dollars(after.totals.cost))),
        Some(changed(&before.duration.to_string(), &after.duration.to_string())),
    ];
    let _ = writeln!(out, "{}", pairs.into_iter().flatten().collect::<Vec<_>>().join(" · "));
    let shown: Vec<&UnitDiff> = diff.units.iter().filter(|unit| all || unit.change() != Change::Same).collect();
    let widest = shown.iter().map(|unit| text::width(&unit.key)).max().unwrap_or_default().min(KEY);
    for unit in &shown {
        let pad = widest.saturating_sub(text::width(&unit.key));
        let key = text::safe(&unit.key, KEY);
        let (glyph, word) = mark(unit.change());
        let _ = writeln!(out, "  {glyph} {word:<7} {key}{:pad$}  {}", "", facts(unit));
    }
    let same = diff.count(Change::Same);
    if same > 0 && !all {
        let _ = writeln!(out, "  = same    {}", counted(same, "unit"));
    }
    out
}

fn mark(change: Change) -> (char, &'static str) {
    let glyph = match change {
        Change::New => '+',
        Change::Gone => '-',
        Change::Changed => '~',
        Change::Same => '=',
    };
    (glyph, change.word())
}

fn facts(unit: &UnitDiff) -> String {
    match (&unit.before, &unit.after) {
        (Some(before), Some(after)) => {
            let mut facts = vec![changed(&outcome(before), &outcome(after))];
            let mut fact = |name: &str, before: u64, after: u64| {
                if before != after {
                    facts.push(format!("{name} {before} → {after}"));
                }
            };
            fact("attempts", before.attempts as u64, after.attempts as u64);
            fact("calls", before.calls, after.calls);
            fact("failed calls", before.failures, after.failures);
            if before.saved != after.saved {
                facts.push(format!("saved {}", saved(before, after)));
            }
            facts.push(changed(&dollars(before.cost), &dollars(after.cost)));
            facts.push(changed(&before.worked.to_string(), &after.worked.to_string()));
            facts.join(" · ")
        }
        (Some(side), None) | (None, Some(side)) => {
            let attempts = counted(side.attempts, "attempt");
            format!("{} · {attempts} · {} · {}", outcome(side), dollars(side.cost), side.worked)
        }
        (None, None) => String::new(),
    }
}

/// What is saved now and was not, with a plus, and what is not any more, with a minus.
fn saved(before: &Side, after: &Side) -> String {
    let more = after.saved.iter().filter(|key| !before.saved.contains(key)).map(|key| format!("+{key}"));
    let less = before.saved.iter().filter(|key| !after.saved.contains(key)).map(|key| format!("-{key}"));
    text::safe(&more.chain(less).collect::<Vec<_>>().join(", "), KEY * 2).into_owned()
}

fn outcome(side: &Side) -> String {
    match &side.cause {
        Some(cause) if cause != "completed" => format!("{} ({})", side.status.word(), text::safe(cause, KEY)),
        Some(_) | None => side.status.word().to_owned(),
    }
}

fn changed<T: PartialEq + std::fmt::Display>(before: &T, after: &T) -> String {
    if before == after { after.to_string() } else { format!("{before} → {after}") }
}

fn title(report: &Report) -> String {
    let title = match &report.header {
        Some(header) => format!("{} · run {}", header.project.as_deref().unwrap_or("ingest"), header.run.short()),
        None => report.name.clone(),
    };
    text::safe(&title, KEY * 2).into_owned()
}

/// One object a unit, then one about the runs.
fn objects(before: &Report, after: &Report, diff: &Diff) -> String {
    let mut out = String::new();
    for unit in &diff.units {
        let (before, after) = (unit.before.as_ref().map(side), unit.after.as_ref().map(side));
        let object = json!({"unit": unit.key, "change": unit.change().word(), "before": before, "after": after});
        let _ = writeln!(out, "{object}");
    }
    let run = |report: &Report| {
        json!({
            "run": report.name, "outcome": report.outcome.word(), "units": report.units.len(),
            "calls": report.totals.calls, "failures": report.totals.failures, "cost_usd": report.totals.cost,
            "duration_ms": report.duration.0,
        })
    };
    let counts: serde_json::Map<String, Value> = [Change::New, Change::Gone, Change::Changed, Change::Same]
        .into_iter()
        .map(|change| (change.word().to_owned(), diff.count(change).into()))
        .collect();
    let _ = writeln!(out, "{}", json!({"before": run(before), "after": run(after), "units": counts}));
    out
}

fn side(side: &Side) -> Value {
    json!({
        "state": side.status.word(), "cause": side.cause, "attempts": side.attempts, "calls": side.calls,
        "failures": side.failures, "cost_usd": side.cost, "worked_ms": side.worked.0, "saved": side.saved,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{replay::FileSource, run::state::UnitStatus};

    fn report_of(name: &str) -> Report {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tapes").join(name);
        report::fold(FileSource::open(&path).unwrap(), false).unwrap()
    }

    #[test]
    fn a_run_is_like_itself() {
        let report = report_of("real.jsonl");
        let diff = Diff::of(&report, &report);
        assert_eq!(diff.count(Change::Same), report.units.len());
        insta::assert_snapshot!(lines(&report, &report, &diff, false));
    }

    #[test]
    fn units_are_new_gone_changed_or_the_same() {
        let before = report_of("real.jsonl");
        let mut after = before.clone();
        after.units.remove(0);
        after.units[0].status = UnitStatus::Succeeded;
        after.units[0].cause = Some("completed".into());
        let retry = after.units[0].attempts[0].clone();
        after.units[0].attempts.push(retry);
        after.units[1].key = "docs-\u{1b}[31mnew".into();
        after.units[2].attempts[0].published.push("wiki/global/more.md".into());
        let diff = Diff::of(&before, &after);
        insta::assert_snapshot!(lines(&before, &after, &diff, true));
        let objects = objects(&before, &after, &diff);
        let parsed: Vec<Value> = objects.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(parsed.len(), diff.units.len() + 1);
        assert_eq!(parsed.last().unwrap()["units"], json!({"new": 1, "gone": 2, "changed": 2, "same": 4}));
    }
}
