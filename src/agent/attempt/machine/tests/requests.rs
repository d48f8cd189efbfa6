//! Requests of a person to the agent of a session.

use ingestdeck_core::control::AgentRequest;

use super::*;

/// A session whose turn runs.
fn session() -> AttemptMachine {
    let stats = AttemptFactsCollector::new(AttemptFacts::default());
    let monitor = SessionMonitor::new(None, MismatchPolicy::Error, "default");
    let mut machine = AttemptMachine::for_conversation(
        stats,
        monitor,
        "hello".into(),
        Vec::new(),
        ProcessTimeouts::default(),
    );
    machine.start();
    reply(&mut machine, 1, json!({}));
    line(&mut machine, &init("default"));
    machine
}

fn init(mode: &str) -> String {
    json!({"type": "system", "subtype": "init", "session_id": "s", "permissionMode": mode})
        .to_string()
}

fn ask(machine: &mut AttemptMachine, request: AgentRequest) -> Vec<AttemptEffect> {
    machine.handle_command(AttemptCommand::Request(request))
}

/// The texts of the messages.
fn messages(effects: &[AttemptEffect]) -> Vec<&str> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            AttemptEffect::RecordNote(Note::Message { text, .. }) => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

#[test]
fn requested_permission_mode_is_not_a_breach() {
    let mut machine = session();
    let sent = ask(
        &mut machine,
        AgentRequest::PermissionMode("acceptEdits".into()),
    );
    assert_eq!(
        frames(&sent)[0]["request"],
        json!({"subtype": "set_permission_mode", "mode": "acceptEdits"})
    );
    let status = json!({"type": "system", "subtype": "status", "session_id": "s", "permissionMode": "acceptEdits"});
    assert_eq!(line(&mut machine, &status.to_string()), []);
    let changed = reply(&mut machine, 2, json!({"mode": "acceptEdits"}));
    assert_eq!(
        messages(&changed),
        ["the permission mode is now acceptEdits"]
    );
    ask(&mut machine, AgentRequest::Model("opus".into()));
    let changed = reply(&mut machine, 3, json!({"model": "claude-opus-5-5"}));
    assert_eq!(messages(&changed), ["the model is now claude-opus-5-5"]);
    let changes = machine.session().unwrap().changes();
    assert_eq!(
        (changes.model.as_deref(), changes.permission_mode.as_deref()),
        (Some("opus"), Some("acceptEdits"))
    );
    // A mode that was not requested still ends the session.
    let breach = line(&mut machine, &init("bypassPermissions"));
    assert!(messages(&breach)[0].contains("`bypassPermissions`"));
}

#[test]
fn refused_request_is_shown_with_its_reason() {
    let mut machine = session();
    ask(&mut machine, AgentRequest::PermissionMode("fast".into()));
    let refusal = json!({"type": "control_response", "response": {
        "subtype": "error", "request_id": "deck-2", "error": "Cannot set permission mode", "error_code": "invalid_mode",
    }});
    let shown = line(&mut machine, &refusal.to_string());
    assert_eq!(
        messages(&shown),
        ["cannot set permission mode (invalid_mode)"]
    );
    assert_eq!(machine.session().unwrap().changes().permission_mode, None);
}

#[test]
fn units_take_no_requests() {
    let mut machine = proved();
    let effects = ask(&mut machine, AgentRequest::Context);
    assert_eq!(
        messages(&effects),
        ["the agent takes no requests now, so the context is unchanged and unknown"]
    );
}
