//! The attempt state machine, without a process.

use serde_json::json;

use super::*;
use ingestdeck_core::{
    config::MismatchPolicy,
    decode,
    tape::{
        UnitKey,
        note::{IsolationChecked, VerdictCause},
    },
    units::verdict::{FailureRule, judge_attempt},
};

mod escalation;
mod messages;
mod requests;
mod stop;

const INIT: &str = r#"{"type":"system","subtype":"init","session_id":"s","tools":["mcp__ktx__a"],
    "mcp_servers":[{"name":"ktx","status":"connected"}],"plugins":[{"name":"p","path":"builtin"}]}"#;
const RESULT: &str = r#"{"type":"result","subtype":"success","is_error":false,"result":"done"}"#;

fn machine() -> AttemptMachine {
    machine_resuming(None)
}

fn machine_resuming(session: Option<&str>) -> AttemptMachine {
    let resume = session.map(|id| ContinuedSession {
        id: id.to_owned(),
        paid_usd: None,
    });
    let proof = IsolationProof::new(["mcp__ktx__a"]);
    let task = UnitTask {
        proof,
        prompt: "the prompt".into(),
        max_turns: 40,
        resume,
    };
    AttemptMachine::for_unit(AttemptFacts::default(), task, ProcessTimeouts::default())
}

fn line(machine: &mut AttemptMachine, text: &str) -> Vec<AttemptEffect> {
    let one_line = text.replace('\n', " ");
    machine.handle_line(&decode::decode_line(one_line.as_bytes()))
}

fn reply(machine: &mut AttemptMachine, id: u32, response: Value) -> Vec<AttemptEffect> {
    let body =
        json!({"subtype": "success", "request_id": format!("deck-{id}"), "response": response});
    line(
        machine,
        &json!({"type": "control_response", "response": body}).to_string(),
    )
}

/// Frames of the effects as JSON, other effects in debug format.
fn frames(effects: &[AttemptEffect]) -> Vec<Value> {
    let frames = effects.iter().filter_map(|effect| match effect {
        AttemptEffect::WriteFrame(frame) => Some(serde_json::from_slice(&frame.0).unwrap()),
        _ => None,
    });
    frames.collect()
}

fn asks(effects: &[AttemptEffect], subtype: &str) -> bool {
    frames(effects)
        .iter()
        .any(|frame| frame["request"]["subtype"] == subtype)
}

#[test]
fn release_below_the_minimum_is_stopped() {
    let mut machine = working();
    let old = INIT.replace(
        r#""session_id":"s","#,
        r#""session_id":"s","claude_code_version":"2.1.159","#,
    );
    let effects = line(&mut machine, &old);
    assert!(asks(&effects, "interrupt"), "{effects:?}");
    let (reason, remedy) = machine
        .into_facts()
        .interruption
        .unsupported_release
        .expect("it is not supported");
    assert!(
        reason.contains("2.1.159 is too old") && remedy.is_some(),
        "{reason}"
    );
}

#[test]
fn scripted_agent_is_no_old_release() {
    let mut machine = working();
    let scripted = INIT.replace(
        r#""session_id":"s","#,
        r#""session_id":"s","claude_code_version":"0.0.0 (scripted)","#,
    );
    line(&mut machine, &scripted);
    assert_eq!(machine.into_facts().interruption.unsupported_release, None);
}

/// A machine whose prompt was sent.
fn working() -> AttemptMachine {
    let mut machine = machine();
    machine.start();
    reply(&mut machine, 1, json!({}));
    let effects = reply(&mut machine, 2, json!({"sources": []}));
    assert_eq!(frames(&effects)[0]["message"]["content"], "the prompt");
    machine
}

/// A machine that has announced its turn without a breach.
fn proved() -> AttemptMachine {
    let mut machine = working();
    assert!(line(&mut machine, INIT).contains(&AttemptEffect::StartupFinished));
    machine
}

#[test]
fn prompt_is_not_sent_before_settings_are_known() {
    let mut machine = machine();
    assert!(asks(&machine.start(), "initialize"));
    let effects = reply(&mut machine, 1, json!({"models": []}));
    assert!(asks(&effects, "get_settings"));
    assert_eq!(
        effects[1..],
        [AttemptEffect::SetTimer(AttemptTimer::Settings)]
    );
    let effects = reply(&mut machine, 2, json!({"effective": {}, "sources": []}));
    assert_eq!(frames(&effects)[0]["type"], "user");
    let note = Note::IsolationChecked(IsolationChecked {
        breach: None,
        settings_sources: Some(vec![]),
    });
    assert_eq!(
        line(&mut machine, INIT),
        [
            AttemptEffect::RecordNote(note),
            AttemptEffect::StartupFinished
        ]
    );
    assert_eq!(
        line(&mut machine, RESULT),
        [
            AttemptEffect::CloseStdin,
            AttemptEffect::SetTimer(AttemptTimer::Exit)
        ]
    );
    let facts = machine.into_facts();
    assert_eq!(facts.reported.result.unwrap().text.as_deref(), Some("done"));
    assert_eq!(facts.isolation, IsolationStatus::Verified);
}

#[test]
fn missing_settings_reply_ends_the_attempt() {
    for refuses in [true, false] {
        let mut machine = machine();
        machine.start();
        reply(&mut machine, 1, json!({}));
        let effects = if refuses {
            let body = json!({"subtype": "error", "request_id": "deck-2", "error": "unsupported"});
            line(
                &mut machine,
                &json!({"type": "control_response", "response": body}).to_string(),
            )
        } else {
            machine.handle_timer(AttemptTimer::Settings)
        };
        assert!(
            matches!(&effects[0], AttemptEffect::RecordNote(Note::IsolationChecked(check)) if check.breach.is_some())
        );
        assert_eq!(
            effects[1..],
            [
                AttemptEffect::CloseStdin,
                AttemptEffect::SetTimer(AttemptTimer::Escalation)
            ],
            "refuses: {refuses}"
        );
        assert!(
            machine
                .into_facts()
                .isolation_breach()
                .is_some_and(|sentence| sentence.contains("does not report which settings"))
        );
    }
}

#[test]
fn calls_before_init_are_refused() {
    let hook = json!({"type": "control_request", "request_id": "h", "request": {"subtype": "hook_callback",
        "callback_id": "pre_tool_use", "input": {"tool_name": "mcp__ktx__a", "tool_input": {}, "tool_use_id": "t"}}});
    let message = |id: &str, method: &str| {
        let message = json!({"id": 3, "method": method});
        json!({"type": "control_request", "request_id": id, "request": {"subtype": "mcp_message",
            "server_name": "ktx", "message": message}})
    };
    let mut machine = working();
    assert!(matches!(
        line(&mut machine, &message("l", "tools/list").to_string())[..],
        [AttemptEffect::ForwardToServer(_)]
    ));
    let effects = line(&mut machine, &message("c", "tools/call").to_string());
    assert_eq!(
        frames(&effects)[0]["response"]["response"]["mcp_response"]["error"]["code"],
        -32600
    );
    let effects = line(&mut machine, &hook.to_string());
    assert_eq!(
        frames(&effects)[0]["response"]["response"]["hookSpecificOutput"]["permissionDecision"],
        "deny"
    );
    line(&mut machine, INIT);
    assert!(matches!(
        line(&mut machine, &message("d", "tools/call").to_string())[..],
        [AttemptEffect::ForwardToServer(_)]
    ));
    assert!(matches!(
        line(&mut machine, &hook.to_string())[..],
        [AttemptEffect::RequestApproval(..)]
    ));
}

#[test]
fn result_without_init_leaves_isolation_unverified() {
    let mut machine = working();
    line(&mut machine, RESULT);
    assert_eq!(machine.into_facts().isolation, IsolationStatus::Unverified);

    // An announcement before the settings reply is verified by that reply.
    let mut machine = self::machine();
    machine.start();
    line(&mut machine, INIT);
    assert_eq!(machine.stats.facts.isolation, IsolationStatus::Unverified);
    reply(&mut machine, 1, json!({}));
    reply(&mut machine, 2, json!({"sources": []}));
    assert_eq!(machine.into_facts().isolation, IsolationStatus::Verified);
}

#[test]
fn startup_timeout_ends_the_attempt() {
    let mut silent = machine();
    assert_eq!(
        silent.start()[1..],
        [AttemptEffect::SetTimer(AttemptTimer::Startup)]
    );
    assert_eq!(
        silent.handle_timer(AttemptTimer::Startup),
        [
            AttemptEffect::CloseStdin,
            AttemptEffect::SetTimer(AttemptTimer::Escalation)
        ]
    );
    assert_eq!(reply(&mut silent, 1, json!({})), [], "it is too late");
    let error = silent.into_facts().process.start_error;
    assert_eq!(
        error.as_deref(),
        Some("claude did not open the conversation within 120 s")
    );

    let mut idle = working();
    let effects = idle.handle_timer(AttemptTimer::Startup);
    assert!(
        asks(&effects, "interrupt")
            && effects.contains(&AttemptEffect::SetTimer(AttemptTimer::Escalation))
    );
    assert_eq!(
        idle.into_facts().process.start_error.as_deref(),
        Some("claude did not begin to work within 120 s")
    );

    let mut busy = proved();
    assert_eq!(busy.handle_timer(AttemptTimer::Startup), []);
    assert_eq!(busy.into_facts().process.start_error, None);
}

#[test]
fn loaded_settings_end_the_attempt_before_the_prompt() {
    let mut machine = machine();
    machine.start();
    reply(&mut machine, 1, json!({}));
    let effects = reply(&mut machine, 2, json!({"sources": ["userSettings"]}));
    assert!(
        matches!(&effects[0], AttemptEffect::RecordNote(Note::IsolationChecked(check)) if check.breach.is_some())
    );
    assert_eq!(
        effects[1..],
        [
            AttemptEffect::CloseStdin,
            AttemptEffect::SetTimer(AttemptTimer::Escalation)
        ]
    );
    assert_eq!(
        machine.into_facts().isolation_breach(),
        Some("Claude Code runtime isolation failed: setting_sources=userSettings")
    );
}

#[test]
fn permission_mode_that_changes_later_is_a_breach() {
    let status = |mode: &str| {
        format!(r#"{{"type":"system","subtype":"status","status":null,"permissionMode":"{mode}"}}"#)
    };
    let mut machine = proved();
    assert_eq!(
        line(
            &mut machine,
            r#"{"type":"system","subtype":"status","status":"requesting"}"#
        ),
        []
    );
    assert_eq!(line(&mut machine, &status("dontAsk")), []);
    assert!(asks(
        &line(&mut machine, &status("acceptEdits")),
        "interrupt"
    ));
    assert!(
        machine
            .into_facts()
            .isolation_breach()
            .is_some_and(|sentence| sentence.contains("permission_mode=acceptEdits"))
    );
}

#[test]
fn breach_interrupts_and_refuses_calls() {
    let mut machine = working();
    let effects = line(
        &mut machine,
        &INIT.replace("mcp__ktx__a", "mcp__ktx__a\",\"Bash"),
    );
    assert!(
        matches!(&effects[0], AttemptEffect::RecordNote(Note::IsolationChecked(check)) if check.breach.is_some())
    );
    assert!(asks(&effects, "interrupt") && !effects.contains(&AttemptEffect::StartupFinished));

    let hook = json!({"type": "control_request", "request_id": "h", "request": {"subtype": "hook_callback",
        "callback_id": "pre_tool_use", "input": {"tool_name": "Bash", "tool_input": {}, "tool_use_id": "t"}}});
    let effects = line(&mut machine, &hook.to_string());
    assert_eq!(
        frames(&effects)[0]["response"]["response"]["hookSpecificOutput"]["permissionDecision"],
        "deny"
    );
    let call = json!({"type": "control_request", "request_id": "c", "request": {"subtype": "mcp_message",
        "server_name": "ktx", "message": {"id": 3, "method": "tools/call"}}});
    let effects = line(&mut machine, &call.to_string());
    assert_eq!(
        frames(&effects)[0]["response"]["response"]["mcp_response"]["error"]["code"],
        -32600
    );
    assert!(
        machine
            .into_facts()
            .isolation_breach()
            .unwrap()
            .contains("tools=Bash")
    );
}

#[test]
fn later_turn_is_verified_too() {
    let mut machine = working();
    line(&mut machine, INIT);
    let effects = line(&mut machine, INIT);
    assert!(asks(&effects, "get_settings") && !effects.contains(&AttemptEffect::StartupFinished));
    let effects = reply(&mut machine, 3, json!({"sources": ["user"]}));
    assert!(asks(&effects, "interrupt"));
}

#[test]
fn refused_initialize_is_a_start_error() {
    let mut machine = machine();
    machine.start();
    let body = json!({"subtype": "error", "request_id": "deck-1", "error": "no hooks here"});
    let effects = line(
        &mut machine,
        &json!({"type": "control_response", "response": body}).to_string(),
    );
    assert_eq!(effects[0], AttemptEffect::CloseStdin);
    assert!(
        machine
            .into_facts()
            .process
            .start_error
            .unwrap()
            .ends_with("no hooks here")
    );
}

#[test]
fn record_error_kills_the_process() {
    let mut machine = working();
    assert_eq!(
        machine.handle_record_error("disk full".into())[0],
        AttemptEffect::SignalGroup(Signal::SIGTERM)
    );
    assert_eq!(machine.handle_record_error("again".into()), []);
    assert_eq!(
        machine.into_facts().interruption.record_error.as_deref(),
        Some("disk full")
    );
}

#[test]
fn failure_reported_twice_is_noted_once() {
    let called = |id: &str| ServerEvent::CallFinished {
        tool: "a".into(),
        tool_use_id: Some(id.into()),
        effect: ingestdeck_core::units::call_effect::CallEffect::Rejected(None),
        failure: Some("no".into()),
        declined: None,
    };
    let mut machine = working();
    let declined = ServerEvent::CallFinished {
        tool: "a".into(),
        tool_use_id: Some("t0".into()),
        effect: ingestdeck_core::units::call_effect::CallEffect::Neutral,
        failure: None,
        declined: Some("Error: no such file".into()),
    };
    assert!(
        matches!(
            machine.handle_server_event(Some(declined))[..],
            [AttemptEffect::RecordNote(Note::ToolDeclined { .. })]
        ),
        "and no failure"
    );
    assert!(matches!(
        machine.handle_server_event(Some(called("t1")))[..],
        [AttemptEffect::RecordNote(Note::ToolFailed { .. })]
    ));
    assert_eq!(machine.handle_server_event(Some(called("t1"))), []);
    let hook = json!({"type": "control_request", "request_id": "h", "request": {"subtype": "hook_callback",
        "callback_id": "post_tool_use_failure", "input": {"tool_name": "mcp__ktx__a", "tool_use_id": "t2", "error": "no"}}});
    line(&mut machine, &hook.to_string());
    assert_eq!(machine.handle_server_event(Some(called("t2"))), []);
    assert_eq!(machine.into_facts().work.tally.calls().len(), 2);
}

#[test]
fn malformed_lines_change_nothing() {
    let mut machine = working();
    for garbage in [
        "",
        "not json",
        "[]",
        "{\"type\":\"unheard_of\"}",
        "{\"type\":\"control_request\"}",
    ] {
        let effects = line(&mut machine, garbage);
        assert!(
            effects
                .iter()
                .all(|effect| matches!(effect, AttemptEffect::WriteFrame(_))),
            "{garbage}: {effects:?}"
        );
    }
}

/// Holds a call at the gate. Returns the number of failures before it.
fn held(machine: &mut AttemptMachine, request: &str, id: &str) -> usize {
    let hook = json!({"subtype": "hook_callback", "callback_id": "pre_tool_use", "tool_use_id": id,
        "input": {"tool_name": "mcp__ktx__a", "tool_use_id": id, "tool_input": {}}});
    let effects = line(
        machine,
        &json!({"type": "control_request", "request_id": request, "request": hook}).to_string(),
    );
    let [AttemptEffect::RequestApproval(_, call)] = &effects[..] else {
        panic!("{effects:?}")
    };
    call.earlier_failures
}

#[test]
fn user_denial_is_not_a_failure_but_policy_denial_is() {
    for (decision, failed) in [
        (ApprovalDecision::Deny("no".into()), 0),
        (ApprovalDecision::DenyByPolicy("broken".into()), 1),
    ] {
        let mut machine = proved();
        line(
            &mut machine,
            r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t1","name":"mcp__ktx__a","input":{}}]}}"#,
        );
        held(&mut machine, "r1", "t1");
        assert_eq!(frames(&machine.handle_decision("r1", decision)).len(), 1);
        line(
            &mut machine,
            r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":"no"}]}}"#,
        );
        line(
            &mut machine,
            r#"{"type":"result","subtype":"success","is_error":false,"result":"done","permission_denials":[{"tool_name":"mcp__ktx__a","tool_use_id":"t1"}]}"#,
        );
        let tally = machine.into_facts().work.tally;
        assert_eq!(
            (tally.calls().len(), tally.refusals().len()),
            (failed, 1 - failed)
        );
    }
}

#[test]
fn held_call_carries_the_earlier_failure_count() {
    let mut machine = proved();
    assert_eq!(held(&mut machine, "r1", "t1"), 0);
    line(
        &mut machine,
        r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":"no"}]}}"#,
    );
    assert_eq!(held(&mut machine, "r2", "t2"), 1);
}

#[test]
fn resumed_session_with_other_id_ends_the_attempt() {
    for (resume, strayed) in [
        ("s", None),
        (
            "other",
            Some("claude emitted session id s but expected other"),
        ),
    ] {
        let mut machine = machine_resuming(Some(resume));
        machine.start();
        reply(&mut machine, 1, json!({}));
        reply(&mut machine, 2, json!({"sources": []}));
        let effects = line(&mut machine, INIT);
        assert_eq!(
            asks(&effects, "interrupt"),
            strayed.is_some(),
            "{effects:?}"
        );
        assert_eq!(
            machine
                .into_facts()
                .interruption
                .session_mismatch
                .as_deref(),
            strayed
        );
    }
}

/// A hook that asks about a call of `tool`.
fn asked(machine: &mut AttemptMachine, tool: &str, mode: &str) -> Vec<AttemptEffect> {
    let hook = json!({"subtype": "hook_callback", "callback_id": "pre_tool_use", "input": {
        "tool_name": tool, "tool_use_id": "t", "tool_input": {}, "permission_mode": mode}});
    line(
        machine,
        &json!({"type": "control_request", "request_id": "h", "request": hook}).to_string(),
    )
}

#[test]
fn foreign_tool_or_mode_is_denied_and_ends_the_attempt() {
    for (tool, mode, part) in [
        ("Bash", "dontAsk", "tool `Bash`"),
        ("mcp__ktx__a", "auto", "permission_mode=auto"),
    ] {
        let mut machine = proved();
        let effects = asked(&mut machine, tool, mode);
        let output = &frames(&effects)[0]["response"]["response"]["hookSpecificOutput"];
        assert_eq!(output["permissionDecision"], "deny");
        assert!(
            output["permissionDecisionReason"]
                .as_str()
                .is_some_and(|reason| reason.contains(part)),
            "{output}"
        );
        assert!(asks(&effects, "interrupt"));
        assert!(
            !effects
                .iter()
                .any(|effect| matches!(effect, AttemptEffect::RequestApproval(..))),
            "no approval is requested"
        );
        assert!(
            machine
                .into_facts()
                .isolation_breach()
                .is_some_and(|sentence| sentence.contains(part))
        );
    }
    assert!(matches!(
        asked(&mut proved(), "mcp__ktx__a", "dontAsk")[..],
        [AttemptEffect::RequestApproval(..)]
    ));
}

#[test]
fn foreign_tool_that_succeeds_ends_the_attempt() {
    const CALL: &str = r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t","name":"Bash","input":{}}]}}"#;
    const DONE: &str = r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":"done"}]}}"#;
    let mut machine = proved();
    assert_eq!(line(&mut machine, CALL), []);
    assert!(asks(&line(&mut machine, DONE), "interrupt"));
    assert!(
        machine
            .into_facts()
            .isolation_breach()
            .is_some_and(|sentence| sentence.contains("it ran `Bash`"))
    );

    // The agent's reply when the model calls a tool that does not exist.
    let mut machine = proved();
    line(&mut machine, CALL);
    assert_eq!(
        line(
            &mut machine,
            &DONE.replace(r#""content":"done""#, r#""content":"no","is_error":true"#)
        ),
        []
    );
    line(&mut machine, RESULT);
    let facts = machine.into_facts();
    assert_eq!(
        (facts.isolation_breach(), facts.work.tally.calls().len()),
        (None, 1)
    );
}

#[test]
fn later_settings_request_has_the_same_timeout() {
    let mut machine = proved();
    let effects = line(&mut machine, INIT);
    assert!(
        asks(&effects, "get_settings")
            && effects.contains(&AttemptEffect::SetTimer(AttemptTimer::Settings))
    );
    let timeouts = ProcessTimeouts::default();
    assert_eq!(AttemptTimer::Settings.duration(&timeouts), timeouts.reply);
    let effects = machine.handle_timer(AttemptTimer::Settings);
    assert!(asks(&effects, "interrupt"));
    assert!(
        machine
            .into_facts()
            .isolation_breach()
            .is_some_and(|sentence| sentence.contains("does not report which settings"))
    );

    let mut answered = proved();
    line(&mut answered, INIT);
    assert_eq!(reply(&mut answered, 3, json!({"sources": []})), []);
    assert_eq!(
        answered.handle_timer(AttemptTimer::Settings),
        [],
        "the alarm is too late"
    );
    assert_eq!(answered.into_facts().isolation, IsolationStatus::Verified);
}

#[test]
fn result_of_a_later_turn_waits_for_its_settings() {
    let open = || {
        let mut machine = proved();
        line(&mut machine, INIT);
        assert_eq!(
            line(&mut machine, RESULT),
            [],
            "its stdin stays open for the answer"
        );
        machine
    };
    let mut answered = open();
    assert_eq!(
        reply(&mut answered, 3, json!({"sources": []})),
        [
            AttemptEffect::CloseStdin,
            AttemptEffect::SetTimer(AttemptTimer::Exit)
        ]
    );
    assert_eq!(answered.into_facts().isolation, IsolationStatus::Verified);
    let mut refused = open();
    reply(&mut refused, 3, json!({"sources": ["user"]}));
    assert!(refused.into_facts().isolation_breach().is_some());
    for end in [
        |machine: &mut AttemptMachine| machine.handle_timer(AttemptTimer::Settings),
        |machine: &mut AttemptMachine| machine.handle_stdout_closed(),
    ] {
        let mut silent = open();
        assert!(end(&mut silent).contains(&AttemptEffect::CloseStdin));
        assert!(silent.into_facts().isolation_breach().is_some());
    }
}

#[test]
fn oversized_line_is_noted_once_and_interrupts() {
    let mut machine = proved();
    let effects = machine.handle_oversized_line(100);
    assert!(
        matches!(
            &effects[0],
            AttemptEffect::RecordNote(Note::Message {
                level: Severity::Error,
                ..
            })
        ) && asks(&effects, "interrupt")
    );
    assert_eq!(machine.handle_oversized_line(100), []);
    assert_eq!(machine.into_facts().interruption.oversized_line, Some(100));
}

#[test]
fn unread_stdin_terminates_without_interrupt() {
    let mut machine = proved();
    assert_eq!(
        machine.handle_unread_input(100),
        [
            AttemptEffect::SignalGroup(Signal::SIGTERM),
            AttemptEffect::SetTimer(AttemptTimer::Escalation)
        ]
    );
    assert_eq!(machine.handle_unread_input(100), []);
    assert_eq!(machine.into_facts().interruption.unread_stdin, Some(100));
}

/// Tools of Claude Code have their own time limits, and write nothing while they run.
#[test]
fn session_in_a_call_does_not_count_as_silent() {
    let stats = AttemptFactsCollector::new(AttemptFacts::default());
    let monitor = SessionMonitor::new(None, MismatchPolicy::Error, "default");
    let mut machine =
        AttemptMachine::for_session(stats, monitor, String::new(), ProcessTimeouts::default());
    machine.start();
    line(
        &mut machine,
        r#"{"type":"system","subtype":"init","session_id":"s","permissionMode":"default"}"#,
    );
    assert_eq!(machine.waits_for(), WaitReason::Agent);
    let call = json!({"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "make"}});
    let message = json!({"id": "m", "role": "assistant", "content": [call]});
    line(
        &mut machine,
        &json!({"type": "assistant", "session_id": "s", "message": message}).to_string(),
    );
    assert_eq!(machine.waits_for(), WaitReason::Tool);
    let result = json!({"type": "tool_result", "tool_use_id": "t", "content": "made"});
    let message = json!({"role": "user", "content": [result]});
    line(
        &mut machine,
        &json!({"type": "user", "session_id": "s", "message": message}).to_string(),
    );
    assert_eq!(machine.waits_for(), WaitReason::Agent);
}
