//! What a run has cost so far, read off the lines as they are recorded.
//!
//! It counts as the fold does, without folding: the schedule and the gates ask while lines arrive. What an attempt costs
//! is known with its results and not before.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use memchr::memmem;

use crate::{
    decode,
    run::spent::{self, Bill},
    tape::UnitKey,
};

/// Bytes of a line in which it shows what it is. The type of a result comes last, its cost early.
const HEAD: usize = 512;

/// What a line that matters here has in its head.
const SIGNS: [&[u8]; 3] = [b"\"total_cost_usd\"", b"\"result\"", b"\"init\""];

/// The costs of a run's attempts.
#[derive(Debug, Default)]
pub struct Meter {
    attempts: Mutex<HashMap<UnitKey, Vec<Spending>>>,
}

/// What an attempt cost.
#[derive(Debug)]
struct Spending {
    attempt: u32,
    session: Option<String>,
    bill: Bill,
}

impl Meter {
    /// An attempt begins, in the session `resumed` if it goes on with one.
    pub fn begins(&self, lane: (&UnitKey, u32), resumed: Option<&str>) {
        let mut all = self.attempts();
        let attempts = all.entry(lane.0.clone()).or_default();
        let mut bill = Bill::default();
        if let Some(resumed) = resumed {
            let before = attempts.iter().filter(|before| before.session.as_deref() == Some(resumed));
            bill.resume(spent::paid(before.map(|before| before.bill.cost())));
        }
        attempts.push(Spending { attempt: lane.1, session: None, bill });
    }

    /// A line of an attempt was recorded. What the run has cost by now, if the line changed it.
    pub fn line(&self, lane: (&UnitKey, u32), line: &[u8]) -> Option<f64> {
        let head = line.get(..line.len().min(HEAD))?;
        if SIGNS.iter().all(|sign| memmem::find(head, sign).is_none()) {
            return None;
        }
        let line = decode::line(line);
        let mut all = self.attempts();
        let attempt = all.get_mut(lane.0)?.iter_mut().find(|spending| spending.attempt == lane.1)?;
        match &line.body {
            decode::Body::Init(init) => {
                attempt.bill.release(init.version.as_deref());
                attempt.session = attempt.session.take().or_else(|| line.session_id.as_deref().map(str::to_owned));
                None
            }
            decode::Body::Result(result) => {
                let before = attempt.bill.cost();
                attempt.bill.result(result);
                (attempt.bill.cost() != before).then(|| sum(&all))
            }
            _ => None,
        }
    }

    /// What the run has cost so far, in US dollars, as far as it is known.
    pub fn spent(&self) -> f64 {
        sum(&self.attempts())
    }

    /// A thread that panicked while it held the lock left bills that are still bills.
    fn attempts(&self) -> MutexGuard<'_, HashMap<UnitKey, Vec<Spending>>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sum(attempts: &HashMap<UnitKey, Vec<Spending>>) -> f64 {
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

    fn told(meter: &Meter, unit: &str, attempt: u32, line: &Value) -> Option<f64> {
        meter.line((&unit.into(), attempt), line.to_string().as_bytes())
    }

    #[test]
    fn attempts_add_up_and_only_results_say_what_they_cost() {
        let meter = Meter::default();
        meter.begins((&"a".into(), 1), None);
        meter.begins((&"b".into(), 1), None);
        assert_eq!(told(&meter, "a", 1, &init("s", "2.1.330")), None);
        assert_eq!(told(&meter, "a", 1, &json!({"type": "assistant", "message": {"content": []}})), None);
        assert_eq!(told(&meter, "a", 1, &result(&json!(0.5))), Some(0.5));
        assert_eq!(told(&meter, "b", 1, &result(&json!(0.25))), Some(0.75));
        // A later result of the same attempt has the whole of it.
        assert_eq!(told(&meter, "b", 1, &result(&json!(0.5))), Some(1.0));
        assert_eq!(told(&meter, "b", 1, &result(&json!(null))), None);
        assert_eq!(told(&meter, "from nowhere", 1, &result(&json!(9))), None);
        assert!((meter.spent() - 1.0).abs() < 1e-9);
    }

    /// The line of a real agent, whose type stands behind whatever it has to say.
    #[test]
    fn a_result_is_known_wherever_its_type_stands() {
        let capture = include_str!("../../tests/fixtures/captures/success_tools.jsonl");
        let meter = Meter::default();
        meter.begins((&"a".into(), 1), None);
        let costs: Vec<f64> =
            capture.lines().filter_map(|line| meter.line((&"a".into(), 1), line.as_bytes())).collect();
        assert_eq!(costs, [0.001_866]);
    }

    #[test]
    fn a_session_that_goes_on_is_not_paid_twice() {
        for (version, expected) in [("2.1.330", 0.75), ("2.1.223", 1.25)] {
            let meter = Meter::default();
            meter.begins((&"a".into(), 1), None);
            told(&meter, "a", 1, &init("s", version));
            told(&meter, "a", 1, &result(&json!(0.5)));
            meter.begins((&"a".into(), 2), Some("s"));
            told(&meter, "a", 2, &init("s", version));
            assert_eq!(told(&meter, "a", 2, &result(&json!(0.75))), Some(expected), "{version}");
        }
    }
}
