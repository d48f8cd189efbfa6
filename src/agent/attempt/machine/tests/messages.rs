//! Messages of a person to a running agent.

use super::*;

/// The messages of a person among the effects.
fn sent(effects: &[AttemptEffect]) -> Vec<String> {
    let content = |frame: Value| Some(frame["message"]["content"].as_str()?.to_owned());
    frames(effects).into_iter().filter_map(content).collect()
}

fn is_warning(effect: &AttemptEffect) -> bool {
    matches!(
        effect,
        AttemptEffect::RecordNote(Note::Message {
            level: Severity::Warning,
            ..
        })
    )
}

#[test]
fn message_waits_for_the_next_call() {
    let mut machine = proved();
    assert_eq!(
        machine.handle_command(AttemptCommand::Message("use euros".into())),
        []
    );
    let effects = asked(&mut machine, "mcp__ktx__a", "dontAsk");
    assert_eq!(sent(&effects), ["use euros"]);
    assert!(
        matches!(effects.last(), Some(AttemptEffect::RequestApproval(..))),
        "the message comes first: {effects:?}"
    );
    let notes = effects
        .iter()
        .filter(|effect| matches!(effect, AttemptEffect::RecordNote(Note::MessageSent { .. })));
    assert_eq!(notes.count(), 1);
    // A call is open now.
    assert_eq!(
        sent(&machine.handle_command(AttemptCommand::Message("and cents".into()))),
        ["and cents"]
    );
}

#[test]
fn message_after_the_last_call_is_reported_as_undelivered() {
    let mut machine = proved();
    machine.handle_command(AttemptCommand::Message("use euros".into()));
    let effects = line(
        &mut machine,
        r#"{"type":"result","subtype":"success","is_error":false,"result":"done"}"#,
    );
    assert_eq!(sent(&effects), [""; 0]);
    assert_eq!(
        effects.iter().filter(|effect| is_warning(effect)).count(),
        1,
        "{effects:?}"
    );
    assert!(effects.contains(&AttemptEffect::CloseStdin));
    let late = machine.handle_command(AttemptCommand::Message("hello".into()));
    assert!(late.len() == 1 && is_warning(&late[0]), "{late:?}");
}

#[test]
fn message_is_not_sent_at_the_turn_limit() {
    let proof = IsolationProof::new(["mcp__ktx__a"]);
    let task = UnitTask {
        proof,
        prompt: "the prompt".into(),
        max_turns: 1,
        resume: None,
    };
    let mut machine =
        AttemptMachine::for_unit(AttemptFacts::default(), task, ProcessTimeouts::default());
    machine.start();
    reply(&mut machine, 1, json!({}));
    reply(&mut machine, 2, json!({"sources": []}));
    line(&mut machine, INIT);
    machine.handle_command(AttemptCommand::Message("use euros".into()));
    line(
        &mut machine,
        r#"{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"Reading."}]}}"#,
    );
    for effects in [
        asked(&mut machine, "mcp__ktx__a", "dontAsk"),
        machine.handle_command(AttemptCommand::Message("and cents".into())),
    ] {
        assert_eq!(sent(&effects), [""; 0]);
        assert!(effects.iter().any(is_warning), "{effects:?}");
    }
    assert!(
        !line(&mut machine, RESULT).iter().any(is_warning),
        "each message is reported once"
    );
}

#[test]
fn turn_after_the_result_is_ended_and_changes_nothing() {
    let mut machine = proved();
    line(&mut machine, RESULT);
    let effects = line(&mut machine, INIT);
    assert!(
        is_warning(&effects[0]) && effects[1] == AttemptEffect::SignalGroup(Signal::SIGTERM),
        "{effects:?}"
    );
    let call = json!({"type": "control_request", "request_id": "c", "request": {"subtype": "mcp_message",
        "server_name": "ktx", "message": {"id": 3, "method": "tools/call"}}});
    let effects = line(&mut machine, &call.to_string());
    assert_eq!(
        frames(&effects)[0]["response"]["response"]["mcp_response"]["error"]["code"],
        -32600
    );
    machine.handle_stdout_closed();
    let facts = machine.into_facts();
    assert_eq!(facts.isolation, IsolationStatus::Verified);
    assert!(facts.reported.result.is_some());
}
