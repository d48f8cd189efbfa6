//! Messages of a person to a running agent.

use super::*;

/// The messages of a person among the effects.
fn sent(effects: &[AttemptEffect]) -> Vec<String> {
    let content = |frame: Value| Some(frame["message"]["content"].as_str()?.to_owned());
    frames(effects).into_iter().filter_map(content).collect()
}

#[test]
fn message_waits_for_the_next_call() {
    let mut machine = proved();
    assert_eq!(machine.handle_command(AttemptCommand::Message("use euros".into())), []);
    let effects = asked(&mut machine, "mcp__ktx__a", "dontAsk");
    assert_eq!(sent(&effects), ["use euros"]);
    assert!(matches!(effects.last(), Some(AttemptEffect::RequestApproval(..))), "the message comes first: {effects:?}");
    let notes = effects.iter().filter(|effect| matches!(effect, AttemptEffect::RecordNote(Note::MessageSent { .. })));
    assert_eq!(notes.count(), 1);
    // A call is open now.
    assert_eq!(sent(&machine.handle_command(AttemptCommand::Message("and cents".into()))), ["and cents"]);
}

#[test]
fn message_after_the_last_call_is_reported_as_undelivered() {
    let mut machine = proved();
    machine.handle_command(AttemptCommand::Message("use euros".into()));
    let effects = line(&mut machine, r#"{"type":"result","subtype":"success","is_error":false,"result":"done"}"#);
    assert_eq!(sent(&effects), [""; 0]);
    let is_warning = |effect: &AttemptEffect| {
        matches!(effect, AttemptEffect::RecordNote(Note::Message { level: Severity::Warning, .. }))
    };
    assert_eq!(effects.iter().filter(|effect| is_warning(effect)).count(), 1, "{effects:?}");
    assert!(effects.contains(&AttemptEffect::CloseStdin));
    let late = machine.handle_command(AttemptCommand::Message("hello".into()));
    assert!(late.len() == 1 && is_warning(&late[0]), "{late:?}");
}
