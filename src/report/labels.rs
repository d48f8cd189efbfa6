//! Formats figures and statuses for reports. Pure.

use ingestdeck_core::{
    run::{
        RunOutcome,
        recorded_decisions::{RecordedDecision, RecordedDecisionKind},
        report::{ReportTotals, RunReport, ToolCallCounts, UnitReport},
        saved_commits::{newest_commits, saved_commits},
        state::{LossCounts, ModelSpending, TokenCounts, UnitStatus},
    },
    tape::Millis,
    text::{self, commands, pluralize},
};

/// What the run used of each model, over all attempts.
pub(super) fn models(report: &RunReport) -> Vec<ModelSpending> {
    let mut sum: Vec<ModelSpending> = Vec::new();
    let attempts = report.units.iter().flat_map(|unit| &unit.attempts);
    for model in attempts.flat_map(|attempt| attempt.state.setup.models()) {
        match sum.iter_mut().find(|known| known.model == model.model) {
            Some(known) => *known = known.clone().plus(model),
            None => sum.push(model.clone()),
        }
    }
    sum
}

/// Releases of the agent's program with the number of their attempts, in the order of their appearance.
pub(super) fn releases(report: &RunReport) -> Vec<(&str, usize)> {
    let mut releases: Vec<(&str, usize)> = Vec::new();
    let attempts = report.units.iter().flat_map(|unit| &unit.attempts);
    for release in attempts.filter_map(|attempt| attempt.state.setup.release.as_deref()) {
        match releases.iter_mut().find(|(known, _)| *known == release) {
            Some((_, count)) => *count += 1,
            None => releases.push((release, 1)),
        }
    }
    releases
}

/// The releases of the attempts, if they are known: `2.1.332`, or `2.1.332 (2 attempts), 2.1.330 (1 attempt)`.
pub(super) fn release_list(report: &RunReport) -> Option<String> {
    match &releases(report)[..] {
        [] => None,
        [(release, _)] => Some((*release).to_owned()),
        several => {
            let parts = several
                .iter()
                .map(|(release, count)| format!("{release} ({})", pluralize(*count, "attempt")));
            Some(parts.collect::<Vec<_>>().join(", "))
        }
    }
}

/// The releases of the attempts at one unit, without repetitions.
pub(super) fn unit_releases(unit: &UnitReport) -> String {
    let mut releases: Vec<&str> = unit
        .attempts
        .iter()
        .map(|it| it.state.setup.release.as_deref().unwrap_or("?"))
        .collect();
    releases.dedup();
    releases.join(", ")
}

/// The cost of each model, if there are several.
pub(super) fn model_costs(models: &[ModelSpending]) -> Option<String> {
    let parts = models
        .iter()
        .map(|model| format!("{} {}", model.model, text::dollars(model.cost_usd)));
    (models.len() > 1).then(|| parts.collect::<Vec<_>>().join(", "))
}

/// For example `12.3s` or `1m 01s`.
pub(super) fn time(span: Millis) -> String {
    text::seconds(span)
}

/// Input, output and both directions of the cache.
pub(super) fn tokens(tokens: TokenCounts) -> String {
    if tokens == TokenCounts::default() {
        return "?".to_owned();
    }
    let TokenCounts {
        input,
        output,
        cache_read,
        cache_write,
    } = tokens;
    format!("{input} in, {output} out, {cache_read} cache read, {cache_write} cache written")
}

/// For example `: 3 succeeded, 1 failed`, to follow the total number.
pub(super) fn statuses(totals: &ReportTotals) -> String {
    let idle = match totals.nothing_written {
        0 => String::new(),
        count => format!(" ({count} {NOTHING_WRITTEN})"),
    };
    let count = |(status, count): &(UnitStatus, usize)| {
        let idle = if *status == UnitStatus::Succeeded {
            idle.as_str()
        } else {
            ""
        };
        format!("{count} {}{idle}", status.as_str())
    };
    let counts: Vec<String> = totals.statuses.iter().map(count).collect();
    if counts.is_empty() {
        String::new()
    } else {
        format!(": {}", counts.join(", "))
    }
}

/// What a unit did that succeeded and neither changed nor decided anything.
pub(super) const NOTHING_WRITTEN: &str = "read, nothing written";

/// For example `orbit · run a1b2c3`, or the name of a capture.
pub(super) fn title(report: &RunReport) -> String {
    match &report.origin.header {
        Some(header) => format!(
            "{} · run {}",
            header.project.as_deref().unwrap_or("ingest"),
            header.run.short()
        ),
        None => report.origin.name.clone(),
    }
}

/// For example `partial, 1 unit failed, 1 unit out of budget`: a spent budget does not count as a failure, but is
/// mentioned.
pub(super) fn outcome(report: &RunReport) -> String {
    if report.is_empty {
        return "empty".to_owned();
    }
    let mut words = report.outcome.text().to_owned();
    for (status, what) in [
        (UnitStatus::Failed, "failed"),
        (UnitStatus::BudgetExhausted, "out of budget"),
    ] {
        let count = report
            .units
            .iter()
            .filter(|unit| unit.status == status)
            .count();
        if count > 0 {
            words.push_str(&format!(", {} {what}", pluralize(count, "unit")));
        }
    }
    words
}

/// A sentence for each of the newest commits with the results, after one about the earlier commits.
pub(super) fn commits(report: &RunReport) -> Vec<String> {
    let commits = saved_commits(&report.inputs, &report.publication);
    let (earlier, newest) = newest_commits(&commits);
    earlier
        .into_iter()
        .chain(newest.iter().map(ToString::to_string))
        .collect()
}

/// When the run started, to the second.
pub(super) fn started_at(report: &RunReport) -> Option<String> {
    report.origin.started_at.map(|at| format!("{at:.0}"))
}

/// The sentence about an incomplete record.
pub(super) fn incomplete(report: &RunReport) -> Option<String> {
    let sentence = match report.outcome {
        RunOutcome::Reviewed(by) if !report.is_empty => {
            return Some(format!(
                "The changes waited for a review, which run {} finished.",
                by.short()
            ));
        }
        _ if report.is_empty => Some("Nothing is recorded in it."),
        RunOutcome::Running => {
            Some("The run is still active: units that are queued or running have no outcome yet.")
        }
        RunOutcome::WaitingApproval => {
            Some("The changes wait for a review: no commit contains them.")
        }
        RunOutcome::Interrupted => {
            Some("The record breaks off: what happened after its last entry is not known.")
        }
        _ => None,
    };
    sentence.map(str::to_owned)
}

/// The command that resumes the run, if units remain and it is a run of a project's units.
pub(super) fn resume_hint(report: &RunReport) -> Option<String> {
    let header = report.origin.header.as_ref()?;
    let plan = report
        .planned
        .as_ref()
        .filter(|plan| !plan.scripted && !header.scripted)?;
    let is_reviewed = matches!(report.outcome, RunOutcome::Reviewed(_));
    let is_left = report
        .units
        .iter()
        .any(|unit| !unit.is_successful() || unit.is_unsaved && !is_reviewed);
    if report.outcome == RunOutcome::WaitingApproval {
        return Some(commands::review_command(
            None,
            &header.run.short().to_string(),
        ));
    }
    (plan.has_project_units() && is_left && report.outcome != RunOutcome::Running)
        .then(|| commands::resume_command(None, &header.run.short().to_string()))
}

/// The sentence about a scripted agent.
pub(super) const SCRIPTED: &str =
    "A scripted agent played the model: costs, tokens and models are invented.";

/// A figure of attempts that a unit without any does not have.
pub(super) const NONE: &str = "–";

/// What the attempts of a unit cost. A reused unit has none.
pub(super) fn cost(unit: &UnitReport) -> String {
    match unit.attempts.is_empty() {
        true => NONE.to_owned(),
        false => unit.spending.shown.to_string(),
    }
}

/// Turns, with the limit.
pub(super) fn turns(unit: &UnitReport) -> String {
    let turns: u32 = unit
        .attempts
        .iter()
        .map(|attempt| attempt.state.counts.turns)
        .sum();
    match unit.latest() {
        Some(latest) if unit.attempts.len() == 1 => latest
            .state
            .setup
            .step_budget
            .map_or_else(|| turns.to_string(), |most| format!("{turns}/{most}")),
        Some(_) => turns.to_string(),
        None => NONE.to_owned(),
    }
}

/// State of a unit, as on the screen, and whether its changes are missing in the project.
pub(super) fn unit_state(unit: &UnitReport) -> &'static str {
    match (unit.status, unit.integration) {
        (UnitStatus::Failed, Some(patch)) if !patch.keeps_success() => patch.label(),
        (UnitStatus::Succeeded, _) if unit.is_unsaved => "succeeded, not saved",
        (UnitStatus::BudgetExhausted, _) if unit.is_unsaved => "budget, not saved",
        (UnitStatus::Reused, _) if unit.is_unsaved => "reused, not saved",
        (UnitStatus::Succeeded, _) if unit.has_written_nothing() => {
            "succeeded (read, nothing written)"
        }
        (status, _) => status.as_str(),
    }
}

/// What the agents recorded in addition to their changes, under the heading of each list. Lists may be empty.
pub(super) fn decisions(report: &RunReport) -> [(&'static str, Vec<RecordedDecision>); 3] {
    let step = report
        .reconcile_unit()
        .filter(|step| !report.units.iter().any(|unit| unit.key == step.key));
    let all = report
        .units
        .iter()
        .chain(step)
        .flat_map(UnitReport::decisions);
    let mut lists = [
        ("Decisions", Vec::new()),
        ("Not mapped", Vec::new()),
        ("Left unread", Vec::new()),
    ];
    for decision in all {
        let list = match decision.kind {
            RecordedDecisionKind::Fallback => 1,
            RecordedDecisionKind::Unread => 2,
            RecordedDecisionKind::Conflict
            | RecordedDecisionKind::Eviction
            | RecordedDecisionKind::Resolution => 0,
        };
        lists[list].1.push(decision);
    }
    lists
}

/// The mark of a decision that a person should review.
pub(super) fn flag(decision: &RecordedDecision) -> &'static str {
    if decision.is_flagged {
        "▲ flagged for a person: "
    } else {
        ""
    }
}

/// The unreadable parts of the record, if any.
pub(super) fn lost(report: &RunReport) -> Option<String> {
    let LossCounts {
        malformed,
        unknown,
        unknown_notes,
        corrupt_entries: torn,
    } = report.lost;
    (malformed + unknown + unknown_notes + torn > 0).then(|| {
        format!(
            "not understood: {malformed} malformed, {unknown} unknown lines, {unknown_notes} unknown notes, {torn} torn"
        )
    })
}

/// Columns of a table of tools, after the name column.
pub(super) const TOOL_HEADS: [&str; 4] = ["calls", "failed or denied", "declined", "cut short"];

/// The cells of these columns.
pub(super) fn tool_cells(calls: ToolCallCounts) -> [u32; 4] {
    [calls.total, calls.failed, calls.declined, calls.aborted]
}

/// The outcomes of unsuccessful calls, to follow their total number.
pub(super) fn call_outcomes(calls: ToolCallCounts) -> String {
    let ends = [
        (calls.failed, "✗", "failed or denied"),
        (calls.declined, "△", "declined"),
        (calls.aborted, "■", "cut short"),
    ];
    ends.into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, sign, word)| format!(", {sign} {count} {word}"))
        .collect()
}

/// Made and failed calls of all attempts.
pub(super) fn calls(unit: &UnitReport) -> (u32, u32) {
    unit.attempts
        .iter()
        .fold((0, 0), |(made, failed), attempt| {
            (
                made.saturating_add(attempt.state.counts.calls),
                failed.saturating_add(attempt.state.counts.failures),
            )
        })
}
