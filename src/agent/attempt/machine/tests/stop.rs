//! An agent that is about to end its turn is asked once to continue, if its tools have a question.

use super::*;
use ingestdeck_core::config::schema::MismatchPolicy;

fn stop(machine: &mut AttemptMachine, id: &str) -> Vec<AttemptEffect> {
    let request = json!({"subtype": "hook_callback", "callback_id": "stop", "input": {"hook_event_name": "Stop"}});
    line(
        machine,
        &json!({"type": "control_request", "request_id": id, "request": request}).to_string(),
    )
}

/// The answers of the frames to a request for the end of the turn.
fn answers(effects: &[AttemptEffect]) -> Vec<Value> {
    frames(effects)
        .into_iter()
        .map(|mut frame| frame["response"]["response"].take())
        .collect()
}

#[test]
fn question_is_asked_once() {
    let mut machine = proved();
    assert_eq!(
        stop(&mut machine, "1"),
        [AttemptEffect::AskToolsBeforeStop("1".into())]
    );
    let asked = machine.handle_stop_question("1", Some("read a.md".into()));
    assert!(
        matches!(&asked[0], AttemptEffect::RecordNote(Note::Message { text, .. }) if text.ends_with("read a.md"))
    );
    assert_eq!(
        answers(&asked),
        [json!({"decision": "block", "reason": "read a.md"})]
    );
    assert_eq!(
        answers(&stop(&mut machine, "2")),
        [json!({})],
        "not a second time"
    );
}

#[test]
fn agent_without_a_question_may_end() {
    let mut machine = proved();
    stop(&mut machine, "1");
    assert_eq!(
        answers(&machine.handle_stop_question("1", None)),
        [json!({})]
    );
    assert_eq!(
        stop(&mut machine, "2"),
        [AttemptEffect::AskToolsBeforeStop("2".into())],
        "it may have a question later"
    );
}

#[test]
fn agent_at_its_turn_limit_is_not_asked() {
    let mut machine = proved();
    let message = |id: u32| {
        let content = json!([{"type": "text", "text": "x"}]);
        let message =
            json!({"id": format!("m{id}"), "role": "assistant", "model": "m", "content": content});
        json!({"type": "assistant", "message": message, "parent_tool_use_id": null}).to_string()
    };
    for id in 0..38 {
        line(&mut machine, &message(id));
    }
    assert_eq!(
        stop(&mut machine, "1"),
        [AttemptEffect::AskToolsBeforeStop("1".into())],
        "two of 40 turns are left"
    );
    line(&mut machine, &message(38));
    assert_eq!(answers(&stop(&mut machine, "2")), [json!({})]);
}

#[test]
fn agent_that_is_being_stopped_is_not_asked() {
    let mut machine = proved();
    machine.handle_command(AttemptCommand::Interrupt);
    assert_eq!(answers(&stop(&mut machine, "1")), [json!({})]);
}

#[test]
fn only_units_announce_the_hook() {
    let hooks =
        |machine: &mut AttemptMachine| frames(&machine.start())[0]["request"]["hooks"].clone();
    assert!(hooks(&mut machine()).get("Stop").is_some());
    let stats = AttemptFactsCollector::new(AttemptFacts::default());
    let monitor = SessionMonitor::new(None, MismatchPolicy::Error, "default");
    let mut conversation = AttemptMachine::for_conversation(
        stats,
        monitor,
        "hello".into(),
        Vec::new(),
        ProcessTimeouts::default(),
    );
    assert!(hooks(&mut conversation).get("Stop").is_none());
}
