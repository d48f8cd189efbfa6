//! Holds, decisions, leashes, pauses and rules of the approval queue.

use std::time::Duration;

use serde_json::{Map, json};
use tokio::time::timeout;

use super::*;
use ingestdeck_agent::attempt::LineObserver as _;
use ingestdeck_core::{
    actions::TurnTracker, control::NamePattern, decode, run::attempt_reducer::AttemptReducer,
};

#[derive(Debug, Default)]
struct NoteTape(Mutex<Vec<(UnitKey, u32, Note)>>, Mutex<bool>);

impl Recorder for NoteTape {
    fn record(&self, items: &[NewEntry<'_>]) -> Result<(), RecordError> {
        if *self.1.lock() {
            return Err(RecordError::new(
                "tape.jsonl",
                &std::io::ErrorKind::StorageFull.into(),
            ));
        }
        for item in items {
            let (Some((unit, attempt)), EntryBody::Note(json)) = (item.attempt, &item.body) else {
                panic!("a note")
            };
            self.0
                .lock()
                .push((unit.clone(), attempt, Note::parse(json)));
        }
        Ok(())
    }
}

impl NoteTape {
    /// Kinds of notes with their decisions.
    fn words(&self) -> Vec<String> {
        let notes = self.0.lock();
        let word = |note: &Note| match note {
            Note::HoldRequested => "hold".to_owned(),
            Note::HoldReleased => "let go".to_owned(),
            Note::RunUntil { condition } => format!("until {condition}"),
            Note::CallHeld {
                tool,
                reached: Some(condition),
                ..
            } => format!("held {tool} at {condition}"),
            Note::CallHeld { tool, .. } => format!("held {tool}"),
            Note::CallDecided {
                tool_use_id,
                decision,
                ..
            } => format!("{decision:?} {}", tool_use_id.as_deref().unwrap_or("?")).to_lowercase(),
            other => panic!("{other:?}"),
        };
        notes
            .iter()
            .map(|(unit, attempt, note)| format!("{}#{attempt} {}", unit.as_str(), word(note)))
            .collect()
    }
}

fn approvals() -> (Arc<ApprovalQueue>, Arc<NoteTape>) {
    let tape = Arc::new(NoteTape::default());
    let meter = Arc::new(RunMeter::new(tokio::sync::mpsc::channel(1).0.downgrade()));
    (
        Arc::new(ApprovalQueue::new(
            Arc::clone(&tape) as Arc<dyn Recorder>,
            meter,
        )),
        tape,
    )
}

fn call(id: &str) -> ApprovalRequest {
    ApprovalRequest {
        tool: "wiki_write".into(),
        tool_use_id: Some(id.into()),
        input: json!({"key": "a"}),
        earlier_failures: 0,
        asks_permission: false,
    }
}

fn unit() -> UnitKey {
    "u".into()
}

/// Asks the gate about a call in a separate task.
fn ask(gate: &Arc<dyn ApprovalGate>, id: &str) -> tokio::task::JoinHandle<ApprovalDecision> {
    let (gate, call) = (Arc::clone(gate), call(id));
    tokio::spawn(async move { gate.decide(call).await })
}

async fn until(tape: &NoteTape, word: &str) {
    while !tape.words().iter().any(|known| known.ends_with(word)) {
        tokio::task::yield_now().await;
    }
}

async fn last(tape: &NoteTape, word: &str) {
    while !tape
        .words()
        .last()
        .is_some_and(|known| known.ends_with(word))
    {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn call_of_unheld_unit_passes_without_a_note() {
    let (approvals, tape) = approvals();
    assert_eq!(
        approvals.gate(&unit(), 1).decide(call("a")).await,
        ApprovalDecision::Pass
    );
    approvals.release(&unit());
    assert!(!approvals.decide_call(&unit(), Some("a"), UserDecision::Allow));
    assert_eq!(tape.words(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn step_allows_one_call_and_holds_the_next() {
    let (approvals, tape) = approvals();
    approvals.hold(&unit());
    let gate = approvals.gate(&unit(), 1);
    let first = ask(&gate, "a");
    until(&tape, "held wiki_write").await;
    assert!(approvals.decide_call(&unit(), Some("a"), UserDecision::Allow));
    assert_eq!(first.await.unwrap(), ApprovalDecision::Allow);
    let mut second = ask(&gate, "b");
    assert!(
        timeout(Duration::from_secs(3 * 3600), &mut second)
            .await
            .is_err(),
        "it waits"
    );
    approvals.release(&unit());
    assert_eq!(second.await.unwrap(), ApprovalDecision::Pass);
    assert_eq!(gate.decide(call("c")).await, ApprovalDecision::Pass);
    let expected = [
        "u#0 hold",
        "u#1 held wiki_write",
        "u#1 allowed a",
        "u#1 held wiki_write",
        "u#1 let go",
        "u#1 released b",
    ];
    assert_eq!(tape.words(), expected);
}

#[tokio::test(start_paused = true)]
async fn pause_holds_all_units_until_it_ends() {
    let (approvals, tape) = approvals();
    let (held, other) = (unit(), UnitKey::from("other"));
    approvals.hold(&held);
    approvals.pause();
    let calls = [
        ask(&approvals.gate(&held, 1), "a"),
        ask(&approvals.gate(&other, 1), "b"),
    ];
    while tape
        .words()
        .iter()
        .filter(|word| word.ends_with("held wiki_write"))
        .count()
        < 2
    {
        tokio::task::yield_now().await;
    }
    assert!(
        approvals.waiting_tool(&other, Some("b")).is_some()
            && approvals.waiting_tool(&other, Some("a")).is_none()
    );
    approvals.resume();
    let [mut first, second] = calls;
    assert_eq!(second.await.unwrap(), ApprovalDecision::Pass);
    assert!(
        timeout(Duration::from_secs(3600), &mut first)
            .await
            .is_err(),
        "its unit is held"
    );
    assert_eq!(
        approvals.gate(&other, 1).decide(call("c")).await,
        ApprovalDecision::Pass
    );
}

#[tokio::test(start_paused = true)]
async fn leash_holds_every_third_call() {
    let (approvals, tape) = approvals();
    let gate = approvals.gate(&unit(), 1);
    approvals.leash(&unit(), 3);
    for round in 0..2 {
        for id in ["a", "b"] {
            assert_eq!(
                gate.decide(call(id)).await,
                ApprovalDecision::Pass,
                "round {round}"
            );
        }
        let third = ask(&gate, "c");
        until(&tape, "held wiki_write at every 3 calls").await;
        while !approvals.decide_call(&unit(), Some("c"), UserDecision::Allow) {
            tokio::task::yield_now().await;
        }
        assert_eq!(third.await.unwrap(), ApprovalDecision::Allow);
    }
    let words = tape.words();
    assert_eq!(
        words
            .iter()
            .filter(|word| word.ends_with("until every 3 calls"))
            .count(),
        3,
        "{words:?}"
    );
    approvals.release(&unit());
    for id in ["d", "e", "f", "g"] {
        assert_eq!(gate.decide(call(id)).await, ApprovalDecision::Pass);
    }
}

#[tokio::test(start_paused = true)]
async fn resume_keeps_calls_that_met_a_condition() {
    let (approvals, tape) = approvals();
    let gate = approvals.gate(&unit(), 1);
    approvals.pause();
    let mut waiting = ask(&gate, "a");
    until(&tape, "held wiki_write").await;
    approvals.run_until(&unit(), None, vec![tool("wiki_*")]);
    approvals.resume();
    assert!(
        timeout(Duration::from_secs(3600), &mut waiting)
            .await
            .is_err(),
        "it waits for a person"
    );
}

#[tokio::test(start_paused = true)]
async fn resume_keeps_calls_that_a_leash_holds() {
    let (approvals, tape) = approvals();
    let gate = approvals.gate(&unit(), 1);
    approvals.leash(&unit(), 2);
    approvals.pause();
    let first = ask(&gate, "a");
    until(&tape, "held wiki_write").await;
    approvals.resume();
    assert_eq!(
        first.await.unwrap(),
        ApprovalDecision::Pass,
        "the leash lets it pass"
    );
    let mut second = ask(&gate, "b");
    until(&tape, "at every 2 calls").await;
    approvals.resume();
    assert!(
        timeout(Duration::from_secs(3600), &mut second)
            .await
            .is_err(),
        "it waits for a person"
    );
}

#[tokio::test(start_paused = true)]
async fn pause_does_not_end_a_run_until() {
    let (approvals, tape) = approvals();
    let gate = approvals.gate(&unit(), 1);
    approvals.run_until(&unit(), None, vec![tool("sl_*")]);
    approvals.pause();
    let waiting = ask(&gate, "a");
    until(&tape, "held wiki_write").await;
    approvals.resume();
    assert_eq!(waiting.await.unwrap(), ApprovalDecision::Pass);
    assert_eq!(gate.decide(call("b")).await, ApprovalDecision::Pass);
    let met = called("c", "sl_read_source", json!({}), 0);
    let stopped = tokio::spawn(async move { gate.decide(met).await });
    until(&tape, "held sl_read_source at tool sl_*").await;
    stopped.abort();
}

fn tool(name: &str) -> BreakCondition {
    BreakCondition::Tool(NamePattern::new(name).unwrap())
}

fn called(id: &str, tool: &str, input: Value, failures: usize) -> ApprovalRequest {
    ApprovalRequest {
        tool: tool.into(),
        tool_use_id: Some(id.into()),
        input,
        earlier_failures: failures,
        asks_permission: false,
    }
}

#[tokio::test(start_paused = true)]
async fn run_until_holds_at_the_first_matching_call() {
    let (approvals, tape) = approvals();
    approvals.hold(&unit());
    let gate = approvals.gate(&unit(), 1);
    let first = ask(&gate, "a");
    until(&tape, "held wiki_write").await;
    let path = BreakCondition::Path(NamePattern::new("*.sql").unwrap());
    approvals.run_until(&unit(), Some("a"), vec![tool("sl_*"), path]);
    assert_eq!(
        first.await.unwrap(),
        ApprovalDecision::Allow,
        "the current call passes"
    );
    for passes in [
        called("b", "wiki_write", json!({}), 0),
        called("c", "read", json!({"path": "a.yml"}), 3),
    ] {
        assert_eq!(gate.decide(passes).await, ApprovalDecision::Pass);
    }
    let met = called("d", "read", json!({"path": "models/a.sql"}), 3);
    let waits = tokio::spawn({
        let gate = Arc::clone(&gate);
        async move { gate.decide(met).await }
    });
    until(&tape, "held read at path *.sql").await;
    // From here on the unit is held at every call again.
    assert!(approvals.decide_call(&unit(), Some("d"), UserDecision::Deny("no".into())));
    assert_eq!(waits.await.unwrap(), ApprovalDecision::Deny("no".into()));
    let next = ask(&gate, "e");
    last(&tape, "held wiki_write").await;
    approvals.release(&unit());
    assert_eq!(next.await.unwrap(), ApprovalDecision::Pass);
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
async fn run_until_failure_counts_from_release_and_ends_on_hold() {
    let (approvals, tape) = approvals();
    let gate = approvals.gate(&unit(), 1);
    assert_eq!(
        gate.decide(called("a", "read", json!({}), 2)).await,
        ApprovalDecision::Pass
    );
    approvals.run_until(&unit(), None, vec![BreakCondition::Failure]);
    assert_eq!(
        gate.decide(called("b", "read", json!({}), 2)).await,
        ApprovalDecision::Pass
    );
    // The next attempt starts without failed calls.
    let gate = approvals.gate(&unit(), 2);
    assert_eq!(
        gate.decide(called("c", "read", json!({}), 0)).await,
        ApprovalDecision::Pass
    );
    let waits = tokio::spawn(async move { gate.decide(called("d", "read", json!({}), 1)).await });
    until(&tape, "held read at failure").await;
    approvals.release(&unit());
    assert_eq!(waits.await.unwrap(), ApprovalDecision::Pass);
    approvals.run_until(&unit(), None, vec![BreakCondition::Failure]);
    approvals.hold(&unit());
    let gate = approvals.gate(&unit(), 3);
    let _waits = ask(&gate, "e");
    until(&tape, "u#3 held wiki_write").await;
    let last = [
        "u#2 let go",
        "u#2 released d",
        "u#2 until failure",
        "u#2 hold",
        "u#3 held wiki_write",
    ];
    assert_eq!(tape.words()[2..], last);
}

#[tokio::test(start_paused = true)]
async fn run_until_cost_holds_once_the_cost_is_reached() {
    let (approvals, tape) = approvals();
    let gate = approvals.gate(&unit(), 1);
    approvals.run_until(&unit(), None, vec![BreakCondition::Cost(0.5)]);
    assert_eq!(gate.decide(call("a")).await, ApprovalDecision::Pass);
    let line = decode::decode_line(br#"{"type":"result","total_cost_usd":0.5}"#);
    let mut reducer = AttemptReducer::new(TurnTracker::for_one_prompt());
    reducer.push(&line);
    approvals
        .meter
        .observe((&"other".into(), 1), &line, &reducer);
    let _waits = ask(&gate, "b");
    until(&tape, "held wiki_write at cost $0.5").await;
}

#[tokio::test(start_paused = true)]
async fn run_until_releases_other_waiting_calls_unless_they_match() {
    let (approvals, tape) = approvals();
    approvals.hold(&unit());
    let gate = approvals.gate(&unit(), 1);
    let (a, b) = (ask(&gate, "a"), ask(&gate, "b"));
    let c = tokio::spawn({
        let gate = Arc::clone(&gate);
        async move { gate.decide(called("c", "sl_edit", json!({}), 0)).await }
    });
    while tape.words().len() < 4 {
        tokio::task::yield_now().await;
    }
    approvals.run_until(&unit(), Some("a"), vec![tool("sl_edit")]);
    assert_eq!(
        (a.await.unwrap(), b.await.unwrap()),
        (ApprovalDecision::Allow, ApprovalDecision::Pass)
    );
    assert!(
        !tape.words().iter().any(|word| word.contains("until")),
        "it is there already: {:?}",
        tape.words()
    );
    assert!(
        approvals.decide_call(&unit(), Some("c"), UserDecision::Allow),
        "it still waits"
    );
    c.await.unwrap();
    // The current call passes even if it meets the condition.
    let d = ask(&gate, "d");
    until(&tape, "allowed c").await;
    last(&tape, "held wiki_write").await;
    approvals.run_until(&unit(), Some("d"), vec![tool("wiki_write")]);
    assert_eq!(d.await.unwrap(), ApprovalDecision::Allow);
    let _e = ask(&gate, "e");
    until(&tape, "held wiki_write at tool wiki_write").await;
}

#[tokio::test(start_paused = true)]
async fn decision_reaches_its_call() {
    let (approvals, tape) = approvals();
    let gate = approvals.gate(&unit(), 2);
    approvals.hold(&unit());
    approvals.hold(&unit());
    let (a, b) = (ask(&gate, "a"), ask(&gate, "b"));
    while tape.words().len() < 3 {
        tokio::task::yield_now().await;
    }
    let Value::Object(edited) = json!({"key": "b"}) else {
        unreachable!()
    };
    assert!(approvals.decide_call(&unit(), Some("b"), UserDecision::Edit(edited.clone())));
    assert!(
        !approvals.decide_call(&unit(), Some("b"), UserDecision::Allow),
        "once is enough"
    );
    assert!(!approvals.decide_call(&"other".into(), Some("a"), UserDecision::Allow));
    assert!(approvals.decide_call(
        &unit(),
        Some("a"),
        UserDecision::Deny("not this page".into())
    ));
    assert_eq!(
        b.await.unwrap(),
        ApprovalDecision::AllowEdited(Value::Object(edited.clone()))
    );
    assert_eq!(
        a.await.unwrap(),
        ApprovalDecision::Deny("not this page".into())
    );
    let notes = tape.0.lock();
    let decided = |id: &str| {
        notes.iter().find_map(|(.., note)| match note {
            Note::CallDecided {
                tool_use_id,
                input,
                reason,
                ..
            } if tool_use_id.as_deref() == Some(id) => Some((input.clone(), reason.clone())),
            _ => None,
        })
    };
    assert_eq!(decided("b"), Some((Some(Value::Object(edited)), None)));
    assert_eq!(decided("a"), Some((None, Some("not this page".into()))));
}

#[tokio::test(start_paused = true)]
async fn ended_attempt_withdraws_its_pending_approval() {
    let (approvals, tape) = approvals();
    approvals.hold(&unit());
    let gate = approvals.gate(&unit(), 1);
    let waiting = ask(&gate, "a");
    until(&tape, "held wiki_write").await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert!(!approvals.decide_call(&unit(), Some("a"), UserDecision::Allow));
    assert_eq!(
        tape.words().last().map(String::as_str),
        Some("u#1 withdrawn a")
    );
}

#[tokio::test(start_paused = true)]
async fn unrecordable_held_call_is_refused() {
    let (approvals, tape) = approvals();
    approvals.hold(&unit());
    *tape.1.lock() = true;
    let ApprovalDecision::DenyByPolicy(why) = approvals.gate(&unit(), 1).decide(call("a")).await
    else {
        panic!("it passed")
    };
    assert!(why.contains("tape.jsonl"), "{why}");
}

fn held_by_policy(can_ask: bool) -> (Arc<ApprovalQueue>, Arc<NoteTape>) {
    let tape = Arc::new(NoteTape::default());
    let meter = Arc::new(RunMeter::new(tokio::sync::mpsc::channel(1).0.downgrade()));
    let rules = |text: &str| vec![text.parse().unwrap()];
    let policy = CallPolicy {
        deny: rules("sl_*"),
        hold: rules("wiki_write arg:^a$"),
        allow: rules("wiki_write arg:^b$"),
        ..CallPolicy::default()
    };
    let queue = ApprovalQueue::new(Arc::clone(&tape) as Arc<dyn Recorder>, meter)
        .with_policy(policy, can_ask);
    (Arc::new(queue), tape)
}

fn rules_of(tape: &NoteTape) -> Vec<String> {
    let notes = tape.0.lock();
    notes
        .iter()
        .filter_map(|(.., note)| match note {
            Note::CallDecided { rule, .. } => rule.clone(),
            Note::CallHeld { reached, .. } => reached.clone(),
            _ => None,
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn rule_denies_or_allows_without_a_person() {
    let (approvals, tape) = held_by_policy(true);
    let gate = approvals.gate(&unit(), 1);
    let denied = gate.decide(called("a", "sl_edit", json!({}), 0)).await;
    assert_eq!(
        denied,
        ApprovalDecision::DenyByPolicy("The policy denies this call (rule `sl_*`).".into())
    );
    let allowed = ApprovalRequest {
        asks_permission: true,
        ..called("b", "wiki_write", json!({"key": "b"}), 0)
    };
    assert_eq!(gate.decide(allowed).await, ApprovalDecision::Allow);
    assert_eq!(
        gate.decide(called("c", "read", json!({}), 0)).await,
        ApprovalDecision::Pass
    );
    assert_eq!(rules_of(&tape), ["rule sl_*", "rule wiki_write arg:^b$"]);
}

#[tokio::test(start_paused = true)]
async fn held_call_waits_for_its_decision_only() {
    let (approvals, tape) = held_by_policy(true);
    let gate = approvals.gate(&unit(), 1);
    let mut waiting = ask(&gate, "a");
    until(&tape, "held wiki_write at rule wiki_write arg:^a$").await;
    approvals.hold(&unit());
    approvals.release(&unit());
    approvals.run_until(&unit(), None, vec![tool("nothing")]);
    approvals.pause();
    approvals.resume();
    assert!(
        timeout(Duration::from_secs(3600), &mut waiting)
            .await
            .is_err(),
        "it still waits"
    );
    assert!(approvals.decide_call(&unit(), Some("a"), UserDecision::Allow));
    assert_eq!(waiting.await.unwrap(), ApprovalDecision::Allow);
}

#[tokio::test(start_paused = true)]
async fn held_call_is_denied_if_no_person_watches() {
    let (approvals, tape) = held_by_policy(false);
    let denied = approvals.gate(&unit(), 1).decide(call("a")).await;
    let refusal = "The call needs the approval of a person (rule `wiki_write arg:^a$`).";
    assert_eq!(denied, ApprovalDecision::DenyByPolicy(refusal.into()));
    assert_eq!(rules_of(&tape), ["rule wiki_write arg:^a$"]);
}

#[tokio::test(start_paused = true)]
async fn permission_request_waits_in_a_unit_that_is_not_held() {
    let (approvals, tape) = approvals();
    let gate = approvals.gate(&unit(), 1);
    let request = ApprovalRequest {
        asks_permission: true,
        ..call("a")
    };
    let waiting = tokio::spawn(async move { gate.decide(request).await });
    until(&tape, "held wiki_write at permission request").await;
    assert!(approvals.decide_call(&unit(), Some("a"), UserDecision::Deny("no".into())));
    assert_eq!(waiting.await.unwrap(), ApprovalDecision::Deny("no".into()));
}

#[tokio::test(start_paused = true)]
async fn allowed_call_of_a_held_unit_waits() {
    let (approvals, tape) = held_by_policy(true);
    approvals.hold(&unit());
    let gate = approvals.gate(&unit(), 1);
    let request = called("b", "wiki_write", json!({"key": "b"}), 0);
    let waiting = tokio::spawn(async move { gate.decide(request).await });
    until(&tape, "held wiki_write").await;
    approvals.release(&unit());
    assert_eq!(waiting.await.unwrap(), ApprovalDecision::Pass);
}

#[tokio::test(start_paused = true)]
async fn answer_is_added_to_the_questions_of_the_call() {
    let (approvals, tape) = approvals();
    let gate = approvals.gate(&unit(), 1);
    let asked = |tool: &str| ApprovalRequest {
        tool: tool.into(),
        input: json!({"questions": [{"question": "Which?"}], "answers": {"Which?": "of the model"}}),
        asks_permission: true,
        ..call("a")
    };
    for (tool, expected) in [
        (
            "AskUserQuestion",
            json!({"questions": [{"question": "Which?"}], "answers": {"Which?": "Table"}}),
        ),
        ("elicitation", json!({"Which?": "Table"})),
    ] {
        let (gate, call) = (Arc::clone(&gate), asked(tool));
        let waiting = tokio::spawn(async move { gate.decide(call).await });
        last(&tape, &format!("held {tool} at permission request")).await;
        let answer = Map::from_iter([("Which?".to_owned(), json!("Table"))]);
        assert!(approvals.decide_call(&unit(), None, UserDecision::Answer(answer.clone())));
        assert_eq!(
            waiting.await.unwrap(),
            ApprovalDecision::AllowEdited(expected)
        );
        let notes = tape.0.lock();
        let (.., last) = notes.last().unwrap();
        let Note::CallDecided {
            decision, input, ..
        } = last
        else {
            panic!("{last:?}")
        };
        assert_eq!(
            (*decision, input),
            (CallDecision::Answered, &Some(Value::Object(answer)))
        );
    }
    let waiting = tokio::spawn(async move { gate.decide(asked("elicitation")).await });
    last(&tape, "held elicitation at permission request").await;
    assert!(approvals.decide_call(&unit(), None, UserDecision::Cancel));
    assert_eq!(waiting.await.unwrap(), ApprovalDecision::Cancel);
    assert_eq!(
        tape.words().last().map(String::as_str),
        Some("u#1 cancelled a")
    );
}
