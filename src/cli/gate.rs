//! Holding units: tool calls that wait for a person, and what a person says about them.
//!
//! One [`Holds`] serves every attempt of a run. Whatever is asked and decided is on the tape before it takes effect. It
//! must not know how calls reach it or who decides.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use self::until::Until;
use super::meter::Meter;
use crate::{
    claude::unit::{Decision, Gate, HeldCall},
    run::{Item, Recorder, source::RecordError},
    tape::{Body, Note, UnitKey, note::CallDecision},
    tui::breakpoint::Condition,
};

mod until;

/// What a person says about a call that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// It may be made; the next one waits again.
    Allow,
    /// It may be made with these arguments.
    Edit(Map<String, Value>),
    /// It may not be made; the model reads why.
    Deny(String),
}

/// Which units of a run are held, and which of their calls wait.
#[derive(Debug)]
pub struct Holds {
    recorder: Arc<dyn Recorder>,
    meter: Arc<Meter>,
    units: Mutex<HashMap<UnitKey, Hold>>,
}

#[derive(Default)]
struct Hold {
    held: bool,
    /// Calls pass although the unit is held, until one of them meets this.
    until: Option<Until>,
    /// Calls of the attempt that had failed when it last made one.
    failures: usize,
    /// The attempt that runs or ran last; 0 before the first.
    attempt: u32,
    waiting: Vec<Waiting>,
    /// Number of the next call that waits.
    next: u64,
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { held, until, waiting, .. } = self;
        let waiting = waiting.len();
        f.debug_struct("Hold")
            .field("held", held)
            .field("until", until)
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}

struct Waiting {
    number: u64,
    call: HeldCall,
    answer: oneshot::Sender<Said>,
}

/// A call that has begun to wait.
struct Entered {
    number: u64,
    /// The condition that it met, if the unit ran until one.
    reached: Option<String>,
    said: oneshot::Receiver<Said>,
}

enum Said {
    Ruling(Ruling),
    LetGo,
}

impl Holds {
    /// Nothing is held; notes go to `recorder`, and `meter` knows what the run has cost.
    pub fn new(recorder: Arc<dyn Recorder>, meter: Arc<Meter>) -> Self {
        Self { recorder, meter, units: Mutex::default() }
    }

    /// The gate of an attempt.
    pub fn gate(self: &Arc<Self>, unit: &UnitKey, attempt: u32) -> Arc<dyn Gate> {
        let mut units = self.units();
        let hold = units.entry(unit.clone()).or_default();
        (hold.attempt, hold.failures) = (attempt, 0);
        if let Some(until) = &mut hold.until {
            until.begin_again();
        }
        drop(units);
        Arc::new(HeldUnit { holds: Arc::clone(self), unit: unit.clone(), attempt })
    }

    /// Holds `unit` at its next tool call.
    pub fn hold(&self, unit: &UnitKey) {
        let mut units = self.units();
        let hold = units.entry(unit.clone()).or_default();
        if hold.until.take().is_some() || !hold.held {
            hold.held = true;
            self.note_or_log(unit, hold.attempt, &Note::HoldRequested);
        }
    }

    /// Lets `unit` run until a call meets one of `conditions`; that one waits. The call `from` is where it stands, and
    /// passes. What waits beside it passes as well, unless it is such a call: then the unit is there already.
    pub fn run_until(&self, unit: &UnitKey, from: Option<&str>, conditions: Vec<Condition>) {
        let mut units = self.units();
        let hold = units.entry(unit.clone()).or_default();
        let until = Until::new(conditions, hold.failures);
        let spent = self.meter.spent();
        let stays = |waiting: &Waiting| {
            waiting.call.tool_use_id.as_deref() != from && until.reached(&waiting.call, spent).is_some()
        };
        let (there, gone): (Vec<_>, Vec<_>) = hold.waiting.drain(..).partition(stays);
        hold.waiting = there;
        hold.held = true;
        if hold.waiting.is_empty() {
            self.note_or_log(unit, hold.attempt, &Note::RunUntil { condition: until.words() });
            hold.until = Some(until);
        }
        for waiting in gone {
            // A closed end means that nobody waits any more.
            let _ = waiting.answer.send(Said::Ruling(Ruling::Allow));
        }
    }

    /// No longer holds `unit`: calls that wait go on as they are.
    pub fn let_go(&self, unit: &UnitKey) {
        let mut units = self.units();
        let Some(hold) = units.get_mut(unit).filter(|hold| hold.held) else { return };
        (hold.held, hold.until) = (false, None);
        self.note_or_log(unit, hold.attempt, &Note::HoldReleased);
        for waiting in hold.waiting.drain(..) {
            // A closed end means that nobody waits any more.
            let _ = waiting.answer.send(Said::LetGo);
        }
    }

    /// Rules over the call of that id. False if it waits no longer: the ruling then has no effect.
    pub fn rule(&self, unit: &UnitKey, tool_use_id: Option<&str>, ruling: Ruling) -> bool {
        let mut units = self.units();
        let Some(hold) = units.get_mut(unit) else { return false };
        let place = hold.waiting.iter().position(|waiting| waiting.call.tool_use_id.as_deref() == tool_use_id);
        place.is_some_and(|place| hold.waiting.remove(place).answer.send(Said::Ruling(ruling)).is_ok())
    }

    /// Queues a call of a held unit. `None` if it may pass.
    fn enter(&self, unit: &UnitKey, call: &HeldCall) -> Option<Entered> {
        let mut units = self.units();
        let hold = units.get_mut(unit)?;
        hold.failures = call.failures;
        if !hold.held {
            return None;
        }
        let reached = match &hold.until {
            Some(until) => Some(until.reached(call, self.meter.spent())?.to_string()),
            None => None,
        };
        hold.until = None;
        let (answer, said) = oneshot::channel();
        let number = hold.next;
        hold.next += 1;
        hold.waiting.push(Waiting { number, call: call.clone(), answer });
        Some(Entered { number, reached, said })
    }

    fn leave(&self, unit: &UnitKey, number: u64) {
        if let Some(hold) = self.units().get_mut(unit) {
            hold.waiting.retain(|waiting| waiting.number != number);
        }
    }

    /// A thread that panicked while it held the lock left a list that is still a list.
    fn units(&self) -> MutexGuard<'_, HashMap<UnitKey, Hold>> {
        self.units.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, unit: &UnitKey, attempt: u32, note: &Note) -> Result<(), RecordError> {
        let json = note.to_json();
        self.recorder.record(&[Item { lane: Some((unit, attempt)), body: Body::Note(&json) }])
    }

    /// A note that cannot be written ends the attempt soon: its next record fails the same way.
    fn note_or_log(&self, unit: &UnitKey, attempt: u32, note: &Note) {
        if let Err(error) = self.note(unit, attempt, note) {
            tracing::error!(%error, "a note is lost");
        }
    }
}

/// The gate of one attempt.
#[derive(Debug)]
struct HeldUnit {
    holds: Arc<Holds>,
    unit: UnitKey,
    attempt: u32,
}

impl Gate for HeldUnit {
    fn decide(&self, call: HeldCall) -> BoxFuture<'_, Decision> {
        Box::pin(self.wait(call))
    }
}

impl HeldUnit {
    async fn wait(&self, call: HeldCall) -> Decision {
        let Some(Entered { number, reached, said }) = self.holds.enter(&self.unit, &call) else {
            return Decision::Allow;
        };
        let HeldCall { tool, tool_use_id, input, .. } = call;
        let mut wait = Wait { gate: self, number, tool_use_id: tool_use_id.clone(), decided: false };
        let held = Note::CallHeld { tool, tool_use_id, input, reached };
        if let Err(error) = self.holds.note(&self.unit, self.attempt, &held) {
            wait.decided = true;
            return Decision::Refuse(format!("the call cannot be held: {error}"));
        }
        // The other end is dropped only with an answer, or with the whole run.
        let Ok(said) = said.await else { return Decision::Refuse("the run is over".into()) };
        let (decision, outcome) = match said {
            Said::LetGo => (CallDecision::Released, Decision::Allow),
            Said::Ruling(Ruling::Allow) => (CallDecision::Allowed, Decision::Allow),
            Said::Ruling(Ruling::Edit(input)) => (CallDecision::Edited, Decision::AllowEdited(Value::Object(input))),
            Said::Ruling(Ruling::Deny(reason)) => (CallDecision::Denied, Decision::Deny(reason)),
        };
        match wait.end(decision, &outcome) {
            Ok(()) => outcome,
            Err(error) => Decision::Refuse(format!("the decision cannot be recorded: {error}")),
        }
    }
}

/// A call that waits. Dropped without a decision, it leaves the queue and says so on the tape.
struct Wait<'a> {
    gate: &'a HeldUnit,
    number: u64,
    tool_use_id: Option<String>,
    decided: bool,
}

impl Wait<'_> {
    fn end(mut self, decision: CallDecision, outcome: &Decision) -> Result<(), RecordError> {
        self.decided = true;
        let (input, reason) = match outcome {
            Decision::Allow => (None, None),
            Decision::AllowEdited(input) => (Some(input.clone()), None),
            Decision::Deny(reason) | Decision::Refuse(reason) => (None, Some(reason.clone())),
        };
        let note = Note::CallDecided { tool_use_id: self.tool_use_id.take(), decision, input, reason };
        self.gate.holds.note(&self.gate.unit, self.gate.attempt, &note)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let HeldUnit { holds, unit, attempt } = self.gate;
        holds.leave(unit, self.number);
        if !self.decided {
            let note = Note::CallDecided {
                tool_use_id: self.tool_use_id.take(),
                decision: CallDecision::Withdrawn,
                input: None,
                reason: None,
            };
            holds.note_or_log(unit, *attempt, &note);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use tokio::time::timeout;

    use crate::tui::breakpoint::Pattern;

    use super::*;

    #[derive(Debug, Default)]
    struct Tape(Mutex<Vec<(UnitKey, u32, Note)>>, Mutex<bool>);

    impl Recorder for Tape {
        fn record(&self, items: &[Item<'_>]) -> Result<(), RecordError> {
            if *self.1.lock().unwrap() {
                return Err(RecordError::new("tape.jsonl", &std::io::ErrorKind::StorageFull.into()));
            }
            for item in items {
                let (Some((unit, attempt)), Body::Note(json)) = (item.lane, &item.body) else { panic!("a note") };
                self.0.lock().unwrap().push((unit.clone(), attempt, Note::parse(json)));
            }
            Ok(())
        }
    }

    impl Tape {
        /// Kinds of notes, with what was decided.
        fn words(&self) -> Vec<String> {
            let notes = self.0.lock().unwrap();
            let word = |note: &Note| match note {
                Note::HoldRequested => "hold".to_owned(),
                Note::HoldReleased => "let go".to_owned(),
                Note::RunUntil { condition } => format!("until {condition}"),
                Note::CallHeld { tool, reached: Some(condition), .. } => format!("held {tool} at {condition}"),
                Note::CallHeld { tool, .. } => format!("held {tool}"),
                Note::CallDecided { tool_use_id, decision, .. } => {
                    format!("{decision:?} {}", tool_use_id.as_deref().unwrap_or("?")).to_lowercase()
                }
                other => panic!("{other:?}"),
            };
            notes.iter().map(|(unit, attempt, note)| format!("{}#{attempt} {}", unit.as_str(), word(note))).collect()
        }
    }

    fn holds() -> (Arc<Holds>, Arc<Tape>) {
        let tape = Arc::new(Tape::default());
        (Arc::new(Holds::new(Arc::clone(&tape) as Arc<dyn Recorder>, Arc::default())), tape)
    }

    fn call(id: &str) -> HeldCall {
        HeldCall { tool: "wiki_write".into(), tool_use_id: Some(id.into()), input: json!({"key": "a"}), failures: 0 }
    }

    fn unit() -> UnitKey {
        "u".into()
    }

    /// A call that is asked about beside the test.
    fn ask(gate: &Arc<dyn Gate>, id: &str) -> tokio::task::JoinHandle<Decision> {
        let (gate, call) = (Arc::clone(gate), call(id));
        tokio::spawn(async move { gate.decide(call).await })
    }

    async fn until(tape: &Tape, word: &str) {
        while !tape.words().iter().any(|known| known.ends_with(word)) {
            tokio::task::yield_now().await;
        }
    }

    async fn last(tape: &Tape, word: &str) {
        while !tape.words().last().is_some_and(|known| known.ends_with(word)) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_held_passes_and_leaves_no_trace() {
        let (holds, tape) = holds();
        assert_eq!(holds.gate(&unit(), 1).decide(call("a")).await, Decision::Allow);
        holds.let_go(&unit());
        assert!(!holds.rule(&unit(), Some("a"), Ruling::Allow));
        assert_eq!(tape.words(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_lets_one_call_pass_and_holds_the_next_for_hours() {
        let (holds, tape) = holds();
        holds.hold(&unit());
        let gate = holds.gate(&unit(), 1);
        let first = ask(&gate, "a");
        until(&tape, "held wiki_write").await;
        assert!(holds.rule(&unit(), Some("a"), Ruling::Allow));
        assert_eq!(first.await.unwrap(), Decision::Allow);
        let mut second = ask(&gate, "b");
        assert!(timeout(Duration::from_secs(3 * 3600), &mut second).await.is_err(), "it waits");
        holds.let_go(&unit());
        assert_eq!(second.await.unwrap(), Decision::Allow);
        assert_eq!(gate.decide(call("c")).await, Decision::Allow);
        let expected =
            ["u#0 hold", "u#1 held wiki_write", "u#1 allowed a", "u#1 held wiki_write", "u#1 let go", "u#1 released b"];
        assert_eq!(tape.words(), expected);
    }

    fn tool(name: &str) -> Condition {
        Condition::Tool(Pattern::new(name).unwrap())
    }

    fn called(id: &str, tool: &str, input: Value, failures: usize) -> HeldCall {
        HeldCall { tool: tool.into(), tool_use_id: Some(id.into()), input, failures }
    }

    #[tokio::test(start_paused = true)]
    async fn a_unit_runs_until_a_call_meets_a_condition() {
        let (holds, tape) = holds();
        holds.hold(&unit());
        let gate = holds.gate(&unit(), 1);
        let first = ask(&gate, "a");
        until(&tape, "held wiki_write").await;
        let path = Condition::Path(Pattern::new("*.sql").unwrap());
        holds.run_until(&unit(), Some("a"), vec![tool("sl_*"), path]);
        assert_eq!(first.await.unwrap(), Decision::Allow, "where it stands passes");
        for passes in [called("b", "wiki_write", json!({}), 0), called("c", "read", json!({"path": "a.yml"}), 3)] {
            assert_eq!(gate.decide(passes).await, Decision::Allow);
        }
        let met = called("d", "read", json!({"path": "models/a.sql"}), 3);
        let waits = tokio::spawn({
            let gate = Arc::clone(&gate);
            async move { gate.decide(met).await }
        });
        until(&tape, "held read at path *.sql").await;
        // From here on it is held at every call again.
        assert!(holds.rule(&unit(), Some("d"), Ruling::Deny("no".into())));
        assert_eq!(waits.await.unwrap(), Decision::Deny("no".into()));
        let next = ask(&gate, "e");
        last(&tape, "held wiki_write").await;
        holds.let_go(&unit());
        assert_eq!(next.await.unwrap(), Decision::Allow);
        let words = [
            "u#1 until tool sl_*, path *.sql",
            "u#1 allowed a",
            "u#1 held read at path *.sql",
            "u#1 denied d",
            "u#1 held wiki_write",
            "u#1 let go",
            "u#1 released e",
        ];
        assert_eq!(tape.words()[2..], words);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_count_from_the_moment_it_was_let_run_and_a_hold_ends_it() {
        let (holds, tape) = holds();
        let gate = holds.gate(&unit(), 1);
        assert_eq!(gate.decide(called("a", "read", json!({}), 2)).await, Decision::Allow);
        holds.run_until(&unit(), None, vec![Condition::Failure]);
        assert_eq!(gate.decide(called("b", "read", json!({}), 2)).await, Decision::Allow);
        // The next attempt begins without any.
        let gate = holds.gate(&unit(), 2);
        assert_eq!(gate.decide(called("c", "read", json!({}), 0)).await, Decision::Allow);
        let waits = tokio::spawn(async move { gate.decide(called("d", "read", json!({}), 1)).await });
        until(&tape, "held read at failure").await;
        holds.let_go(&unit());
        assert_eq!(waits.await.unwrap(), Decision::Allow);
        holds.run_until(&unit(), None, vec![Condition::Failure]);
        holds.hold(&unit());
        let gate = holds.gate(&unit(), 3);
        let _waits = ask(&gate, "e");
        until(&tape, "u#3 held wiki_write").await;
        let last = ["u#2 let go", "u#2 released d", "u#2 until failure", "u#2 hold", "u#3 held wiki_write"];
        assert_eq!(tape.words()[2..], last);
    }

    #[tokio::test(start_paused = true)]
    async fn a_unit_runs_until_the_run_has_cost_so_much() {
        let (holds, tape) = holds();
        let gate = holds.gate(&unit(), 1);
        holds.run_until(&unit(), None, vec![Condition::Cost(0.5)]);
        assert_eq!(gate.decide(call("a")).await, Decision::Allow);
        holds.meter.begins((&"other".into(), 1), None);
        holds.meter.line((&"other".into(), 1), br#"{"type":"result","total_cost_usd":0.5}"#);
        let _waits = ask(&gate, "b");
        until(&tape, "held wiki_write at cost $0.5").await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_beside_the_call_passes_unless_it_is_what_is_run_to() {
        let (holds, tape) = holds();
        holds.hold(&unit());
        let gate = holds.gate(&unit(), 1);
        let (a, b) = (ask(&gate, "a"), ask(&gate, "b"));
        let c = tokio::spawn({
            let gate = Arc::clone(&gate);
            async move { gate.decide(called("c", "sl_edit", json!({}), 0)).await }
        });
        while tape.words().len() < 4 {
            tokio::task::yield_now().await;
        }
        holds.run_until(&unit(), Some("a"), vec![tool("sl_edit")]);
        assert_eq!((a.await.unwrap(), b.await.unwrap()), (Decision::Allow, Decision::Allow));
        assert!(!tape.words().iter().any(|word| word.contains("until")), "it is there already: {:?}", tape.words());
        assert!(holds.rule(&unit(), Some("c"), Ruling::Allow), "it still waits");
        c.await.unwrap();
        // The call that it stands at passes even if it is of that kind.
        let d = ask(&gate, "d");
        until(&tape, "allowed c").await;
        last(&tape, "held wiki_write").await;
        holds.run_until(&unit(), Some("d"), vec![tool("wiki_write")]);
        assert_eq!(d.await.unwrap(), Decision::Allow);
        let _e = ask(&gate, "e");
        until(&tape, "held wiki_write at tool wiki_write").await;
    }

    #[tokio::test(start_paused = true)]
    async fn rulings_reach_the_call_that_they_are_about() {
        let (holds, tape) = holds();
        let gate = holds.gate(&unit(), 2);
        holds.hold(&unit());
        holds.hold(&unit());
        let (a, b) = (ask(&gate, "a"), ask(&gate, "b"));
        while tape.words().len() < 3 {
            tokio::task::yield_now().await;
        }
        let Value::Object(edited) = json!({"key": "b"}) else { unreachable!() };
        assert!(holds.rule(&unit(), Some("b"), Ruling::Edit(edited.clone())));
        assert!(!holds.rule(&unit(), Some("b"), Ruling::Allow), "once is enough");
        assert!(!holds.rule(&"other".into(), Some("a"), Ruling::Allow));
        assert!(holds.rule(&unit(), Some("a"), Ruling::Deny("not this page".into())));
        assert_eq!(b.await.unwrap(), Decision::AllowEdited(Value::Object(edited.clone())));
        assert_eq!(a.await.unwrap(), Decision::Deny("not this page".into()));
        let notes = tape.0.lock().unwrap();
        let decided = |id: &str| {
            notes.iter().find_map(|(.., note)| match note {
                Note::CallDecided { tool_use_id, input, reason, .. } if tool_use_id.as_deref() == Some(id) => {
                    Some((input.clone(), reason.clone()))
                }
                _ => None,
            })
        };
        assert_eq!(decided("b"), Some((Some(Value::Object(edited)), None)));
        assert_eq!(decided("a"), Some((None, Some("not this page".into()))));
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_ends_drops_the_wait() {
        let (holds, tape) = holds();
        holds.hold(&unit());
        let gate = holds.gate(&unit(), 1);
        let waiting = ask(&gate, "a");
        until(&tape, "held wiki_write").await;
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        assert!(!holds.rule(&unit(), Some("a"), Ruling::Allow));
        assert_eq!(tape.words().last().map(String::as_str), Some("u#1 withdrawn a"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_recorded_is_not_let_through() {
        let (holds, tape) = holds();
        holds.hold(&unit());
        *tape.1.lock().unwrap() = true;
        let Decision::Refuse(why) = holds.gate(&unit(), 1).decide(call("a")).await else { panic!("it passed") };
        assert!(why.contains("tape.jsonl"), "{why}");
    }
}
