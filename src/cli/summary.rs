//! What is left to say when a run or a replay is over: counts, failed units, and the next command.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::{
    cli::exit::Exit,
    run::{
        Origin, RunState,
        state::{Unit, UnitStatus},
    },
};

/// Totals of a run at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Units by status.
    pub counts: Vec<(UnitStatus, usize)>,
    /// Cost of all attempts that said one.
    pub cost_usd: Option<f64>,
    /// Turns of all attempts.
    pub turns: u64,
    /// Tool calls of all attempts.
    pub calls: u64,
    /// Failed units: key, sentence, remedy.
    pub failed: Vec<(String, String, Option<String>)>,
    /// Session ids in order of their attempts.
    pub sessions: Vec<String>,
    outcome: Option<String>,
    lost: [u64; 4],
    limited: bool,
}

impl Summary {
    /// The totals of `state`.
    pub fn of(state: &RunState) -> Self {
        let attempts = || state.units.iter().flat_map(|unit| &unit.attempts);
        let costs: Vec<f64> = attempts().filter_map(|attempt| attempt.cost_usd).collect();
        let mut counts: Vec<(UnitStatus, usize)> = Vec::new();
        for unit in &state.units {
            match counts.iter_mut().find(|(status, _)| *status == unit.status) {
                Some((_, count)) => *count += 1,
                None => counts.push((unit.status, 1)),
            }
        }
        Self {
            counts,
            cost_usd: (!costs.is_empty()).then(|| costs.iter().sum()),
            turns: attempts().map(|attempt| u64::from(attempt.turns)).sum(),
            calls: attempts().map(|attempt| u64::from(attempt.calls)).sum(),
            failed: state.units.iter().filter(|unit| unit.status == UnitStatus::Failed).map(failure_of).collect(),
            sessions: attempts().filter_map(|attempt| attempt.session.as_deref().map(str::to_owned)).collect(),
            outcome: state.ended.as_ref().map(|ended| ended.outcome.clone()),
            lost: [state.lost.malformed, state.lost.unknown, state.lost.unknown_notes, state.lost.torn],
            limited: state.ended.as_ref().is_some_and(|ended| ended.outcome == "limit"),
        }
    }

    fn count(&self, status: UnitStatus) -> usize {
        self.counts.iter().find(|(known, _)| *known == status).map_or(0, |(_, count)| *count)
    }

    /// The exit code of a run that ended so.
    pub fn exit(&self) -> Exit {
        if self.limited {
            Exit::Limit
        } else if self.count(UnitStatus::Failed) + self.count(UnitStatus::Stopped) > 0 {
            Exit::UnitFailed
        } else {
            Exit::Ok
        }
    }

    /// The event that ends a JSON stream.
    pub fn to_json(&self) -> Value {
        let units: serde_json::Map<String, Value> =
            self.counts.iter().map(|(status, count)| (status.word().to_owned(), Value::from(*count))).collect();
        let [malformed, unknown, unknown_notes, torn] = self.lost;
        json!({
            "type": "run", "state": "summary", "outcome": self.outcome, "units": units, "turns": self.turns,
            "calls": self.calls, "cost_usd": self.cost_usd,
            "failed": self.failed.iter().map(|(unit, reason, _)| json!({"unit": unit, "reason": reason})).collect::<Vec<_>>(),
            "lost": {"malformed": malformed, "unknown": unknown, "unknown_notes": unknown_notes, "torn": torn},
        })
    }

    /// Lines for the scrollback, without colour.
    pub fn to_text(&self, origin: &Origin, state: &RunState) -> String {
        let mut text = String::new();
        let name = origin.header.as_ref().map_or_else(
            || origin.name.clone(),
            |header| format!("{} · run {}", header.project.as_deref().unwrap_or("ingest"), header.run.short()),
        );
        let outcome = match (&self.outcome, state.units.iter().all(|unit| unit.status.is_over())) {
            (Some(outcome), _) => outcome.as_str(),
            (None, true) => "ended",
            (None, false) => "still running",
        };
        let counts: Vec<String> =
            self.counts.iter().map(|(status, count)| format!("{count} {}", status.word())).collect();
        let units = state.units.len();
        let plural = if units == 1 { "" } else { "s" };
        let _ = writeln!(text, "{name} · {outcome} after {} · {units} unit{plural}: {}", state.now, counts.join(", "));
        let cost = self.cost_usd.map_or_else(|| "cost ?".into(), |cost| format!("${cost:.2}"));
        let scripted = if state.units.iter().any(|unit| unit.attempts.iter().any(|attempt| attempt.scripted)) {
            " (scripted agent: invented numbers)"
        } else {
            ""
        };
        let _ = writeln!(text, "{} tool calls · {} turns · {cost}{scripted}", self.calls, self.turns);
        for (unit, reason, remedy) in &self.failed {
            let _ = writeln!(text, "  ✗ {unit}: {reason}");
            if let Some(remedy) = remedy {
                let _ = writeln!(text, "    {remedy}");
            }
        }
        if self.lost.iter().any(|lost| *lost > 0) {
            let [malformed, unknown, notes, torn] = self.lost;
            let _ = writeln!(
                text,
                "not understood: {malformed} malformed, {unknown} unknown lines, {notes} unknown notes, {torn} torn"
            );
        }
        text
    }
}

fn failure_of(unit: &Unit) -> (String, String, Option<String>) {
    let verdict = unit.latest().and_then(|attempt| attempt.verdict.as_ref());
    (
        unit.key.to_string(),
        verdict.map_or_else(|| "no verdict".into(), |verdict| verdict.reason.clone()),
        verdict.and_then(|verdict| verdict.remedy.clone()),
    )
}
