//! The cost of a run so far, read from the lines while they are recorded.
//!
//! Counts like the fold, but without folding, because the schedule and the gates need the cost while lines arrive. The
//! cost of an attempt is known only from its results.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use memchr::memmem;

use crate::{
    decode,
    run::spending::{self, AttemptCost},
    tape::UnitKey,
};

/// Bytes at the beginning of a line that identify it. In a result, the type comes last and the cost early.
const HEAD_BYTES: usize = 512;

/// Markers in the head of the lines that the meter decodes.
const MARKERS: [&[u8]; 3] = [b"\"total_cost_usd\"", b"\"result\"", b"\"init\""];

/// The costs of a run's attempts.
#[derive(Debug, Default)]
pub struct CostMeter {
    attempts: Mutex<HashMap<UnitKey, Vec<MeteredAttempt>>>,
}

/// The cost of an attempt.
#[derive(Debug)]
struct MeteredAttempt {
    attempt: u32,
    session: Option<String>,
    bill: AttemptCost,
}

impl CostMeter {
    /// Starts an attempt. `resumed` is the session that it continues.
    pub fn start_attempt(&self, lane: (&UnitKey, u32), resumed: Option<&str>) {
        let mut all = self.attempts();
        let attempts = all.entry(lane.0.clone()).or_default();
        let mut bill = AttemptCost::default();
        if let Some(resumed) = resumed {
            let before = attempts.iter().filter(|before| before.session.as_deref() == Some(resumed));
            bill.resume(spending::session_cost(before.map(|before| before.bill.cost())));
        }
        attempts.push(MeteredAttempt { attempt: lane.1, session: None, bill });
    }

    /// Observes a recorded line of an attempt. Returns the cost of the run if the line changed it.
    pub fn observe_line(&self, lane: (&UnitKey, u32), line: &[u8]) -> Option<f64> {
        let head = line.get(..line.len().min(HEAD_BYTES))?;
        if MARKERS.iter().all(|sign| memmem::find(head, sign).is_none()) {
            return None;
        }
        let line = decode::decode_line(line);
        let mut all = self.attempts();
        let attempt = all.get_mut(lane.0)?.iter_mut().find(|spending| spending.attempt == lane.1)?;
        match &line.body {
            decode::LineBody::Init(init) => {
                attempt.bill.release(init.version.as_deref());
                attempt.session = attempt.session.take().or_else(|| line.session_id.as_deref().map(str::to_owned));
                None
            }
            decode::LineBody::Result(result) => {
                let before = attempt.bill.cost();
                attempt.bill.result(result);
                (attempt.bill.cost() != before).then(|| sum(&all))
            }
            _ => None,
        }
    }

    /// The known cost of the run so far, in US dollars.
    pub fn total_usd(&self) -> f64 {
        sum(&self.attempts())
    }

    /// The map stays valid if a thread panics while it holds the lock.
    fn attempts(&self) -> MutexGuard<'_, HashMap<UnitKey, Vec<MeteredAttempt>>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sum(attempts: &HashMap<UnitKey, Vec<MeteredAttempt>>) -> f64 {
    attempts.values().flatten().filter_map(|spending| spending.bill.cost()).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn init(session: &str, version: &str) -> Value {
        json!({"type": "system", "subtype": "init", "session_id": session, "claude_code_version": version})
    }

    fn result(cost: &Value) -> Value {
        json!({"type": "result", "subtype": "success", "total_cost_usd": cost})
    }

    fn observe(meter: &CostMeter, unit: &str, attempt: u32, line: &Value) -> Option<f64> {
        meter.observe_line((&unit.into(), attempt), line.to_string().as_bytes())
    }

    #[test]
    fn meter_adds_up_the_costs_of_results() {
        let meter = CostMeter::default();
        meter.start_attempt((&"a".into(), 1), None);
        meter.start_attempt((&"b".into(), 1), None);
        assert_eq!(observe(&meter, "a", 1, &init("s", "2.1.330")), None);
        assert_eq!(observe(&meter, "a", 1, &json!({"type": "assistant", "message": {"content": []}})), None);
        assert_eq!(observe(&meter, "a", 1, &result(&json!(0.5))), Some(0.5));
        assert_eq!(observe(&meter, "b", 1, &result(&json!(0.25))), Some(0.75));
        // A later result of the same attempt contains its total cost.
        assert_eq!(observe(&meter, "b", 1, &result(&json!(0.5))), Some(1.0));
        assert_eq!(observe(&meter, "b", 1, &result(&json!(null))), None);
        assert_eq!(observe(&meter, "from nowhere", 1, &result(&json!(9))), None);
        assert!((meter.total_usd() - 1.0).abs() < 1e-9);
    }

    /// A line of a real agent has its type after all other members.
    #[test]
    fn meter_recognises_result_with_type_at_the_end() {
        let capture = include_str!("../../tests/fixtures/captures/success_tools.jsonl");
        let meter = CostMeter::default();
        meter.start_attempt((&"a".into(), 1), None);
        let costs: Vec<f64> =
            capture.lines().filter_map(|line| meter.observe_line((&"a".into(), 1), line.as_bytes())).collect();
        assert_eq!(costs, [0.001_866]);
    }

    #[test]
    fn resumed_session_is_not_counted_twice() {
        for (version, expected) in [("2.1.330", 0.75), ("2.1.223", 1.25)] {
            let meter = CostMeter::default();
            meter.start_attempt((&"a".into(), 1), None);
            observe(&meter, "a", 1, &init("s", version));
            observe(&meter, "a", 1, &result(&json!(0.5)));
            meter.start_attempt((&"a".into(), 2), Some("s"));
            observe(&meter, "a", 2, &init("s", version));
            assert_eq!(observe(&meter, "a", 2, &result(&json!(0.75))), Some(expected), "{version}");
        }
    }
}
