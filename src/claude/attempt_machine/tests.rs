//! The course of an attempt, without a process.

use serde_json::json;

use super::*;
use crate::decode;

const INIT: &str = r#"{"type":"system","subtype":"init","session_id":"s","tools":["mcp__ktx__a"],
    "mcp_servers":[{"name":"ktx","status":"connected"}],"plugins":[{"name":"p","path":"builtin"}]}"#;
const RESULT: &str = r#"{"type":"result","subtype":"success","is_error":false,"result":"done"}"#;

fn course() -> AttemptMachine {
    let allowed = AllowedTools::new(["mcp__ktx__a"], ["ktx"]);
    AttemptMachine::new(AttemptFacts::default(), allowed, true, "the prompt".into(), None, ProcessTimeouts::default())
}

fn line(course: &mut AttemptMachine, text: &str) -> Vec<AttemptEffect> {
    let one_line = text.replace('\n', " ");
    course.handle_line(&decode::decode_line(one_line.as_bytes()))
}

fn reply(course: &mut AttemptMachine, id: u32, response: Value) -> Vec<AttemptEffect> {
    let body = json!({"subtype": "success", "request_id": format!("deck-{id}"), "response": response});
    line(course, &json!({"type": "control_response", "response": body}).to_string())
}

/// Frames of the steps as JSON, other steps as they are.
fn frames(steps: &[AttemptEffect]) -> Vec<Value> {
    let frames = steps.iter().filter_map(|step| match step {
        AttemptEffect::WriteFrame(frame) => Some(serde_json::from_slice(&frame.0).unwrap()),
        _ => None,
    });
    frames.collect()
}

fn asks(steps: &[AttemptEffect], subtype: &str) -> bool {
    frames(steps).iter().any(|frame| frame["request"]["subtype"] == subtype)
}

/// A course whose prompt was sent.
fn working() -> AttemptMachine {
    let mut course = course();
    course.start();
    reply(&mut course, 1, json!({}));
    let steps = reply(&mut course, 2, json!({"sources": []}));
    assert_eq!(frames(&steps)[0]["message"]["content"], "the prompt");
    course
}

/// A course that has announced its turn, and nothing was wrong with it.
fn proved() -> AttemptMachine {
    let mut course = working();
    assert!(line(&mut course, INIT).contains(&AttemptEffect::StartupFinished));
    course
}

#[test]
fn prompt_is_not_sent_before_settings_are_known() {
    let mut course = course();
    assert!(asks(&course.start(), "initialize"));
    let steps = reply(&mut course, 1, json!({"models": []}));
    assert!(asks(&steps, "get_settings"));
    assert_eq!(steps[1..], [AttemptEffect::SetTimer(AttemptTimer::SettingsTimeout)]);
    let steps = reply(&mut course, 2, json!({"effective": {}, "sources": []}));
    assert_eq!(frames(&steps)[0]["type"], "user");
    let note = Note::IsolationChecked(IsolationChecked { breach: None, settings_sources: Some(vec![]) });
    assert_eq!(line(&mut course, INIT), [AttemptEffect::RecordNote(note), AttemptEffect::StartupFinished]);
    assert_eq!(
        line(&mut course, RESULT),
        [AttemptEffect::CloseStdin, AttemptEffect::SetTimer(AttemptTimer::ExitTimeout)]
    );
    let facts = course.into_facts();
    assert_eq!(facts.result.unwrap().text.as_deref(), Some("done"));
    assert_eq!(facts.isolation, IsolationStatus::Verified);
}

#[test]
fn missing_settings_reply_ends_the_attempt() {
    for refuses in [true, false] {
        let mut course = course();
        course.start();
        reply(&mut course, 1, json!({}));
        let steps = if refuses {
            let body = json!({"subtype": "error", "request_id": "deck-2", "error": "unsupported"});
            line(&mut course, &json!({"type": "control_response", "response": body}).to_string())
        } else {
            course.handle_timer(AttemptTimer::SettingsTimeout)
        };
        assert!(
            matches!(&steps[0], AttemptEffect::RecordNote(Note::IsolationChecked(check)) if check.breach.is_some())
        );
        assert_eq!(
            steps[1..],
            [AttemptEffect::CloseStdin, AttemptEffect::SetTimer(AttemptTimer::EscalationTimeout)],
            "refuses: {refuses}"
        );
        assert!(
            course
                .into_facts()
                .isolation_breach()
                .is_some_and(|sentence| sentence.contains("does not say which settings"))
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
    let mut course = working();
    assert!(matches!(
        line(&mut course, &message("l", "tools/list").to_string())[..],
        [AttemptEffect::ForwardToServer(_)]
    ));
    let steps = line(&mut course, &message("c", "tools/call").to_string());
    assert_eq!(frames(&steps)[0]["response"]["response"]["mcp_response"]["error"]["code"], -32600);
    let steps = line(&mut course, &hook.to_string());
    assert_eq!(frames(&steps)[0]["response"]["response"]["hookSpecificOutput"]["permissionDecision"], "deny");
    line(&mut course, INIT);
    assert!(matches!(
        line(&mut course, &message("d", "tools/call").to_string())[..],
        [AttemptEffect::ForwardToServer(_)]
    ));
    assert!(matches!(line(&mut course, &hook.to_string())[..], [AttemptEffect::RequestApproval(..)]));
}

#[test]
fn result_without_init_leaves_isolation_unverified() {
    let mut course = working();
    line(&mut course, RESULT);
    assert_eq!(course.into_facts().isolation, IsolationStatus::Unverified);

    // Whoever announces before it is asked is proved by its answer.
    let mut course = self::course();
    course.start();
    line(&mut course, INIT);
    assert_eq!(course.stats.facts.isolation, IsolationStatus::Unverified);
    reply(&mut course, 1, json!({}));
    reply(&mut course, 2, json!({"sources": []}));
    assert_eq!(course.into_facts().isolation, IsolationStatus::Verified);
}

#[test]
fn startup_timeout_ends_the_attempt() {
    let mut silent = course();
    assert_eq!(silent.start()[1..], [AttemptEffect::SetTimer(AttemptTimer::StartupTimeout)]);
    assert_eq!(
        silent.handle_timer(AttemptTimer::StartupTimeout),
        [AttemptEffect::CloseStdin, AttemptEffect::SetTimer(AttemptTimer::EscalationTimeout)]
    );
    assert_eq!(reply(&mut silent, 1, json!({})), [], "it is too late");
    let error = silent.into_facts().start_error;
    assert_eq!(error.as_deref(), Some("claude did not open the conversation within 120 s"));

    let mut idle = working();
    let steps = idle.handle_timer(AttemptTimer::StartupTimeout);
    assert!(asks(&steps, "interrupt") && steps.contains(&AttemptEffect::SetTimer(AttemptTimer::EscalationTimeout)));
    assert_eq!(idle.into_facts().start_error.as_deref(), Some("claude did not begin to work within 120 s"));

    let mut busy = proved();
    assert_eq!(busy.handle_timer(AttemptTimer::StartupTimeout), []);
    assert_eq!(busy.into_facts().start_error, None);
}

#[test]
fn loaded_settings_end_the_attempt_before_the_prompt() {
    let mut course = course();
    course.start();
    reply(&mut course, 1, json!({}));
    let steps = reply(&mut course, 2, json!({"sources": ["userSettings"]}));
    assert!(matches!(&steps[0], AttemptEffect::RecordNote(Note::IsolationChecked(check)) if check.breach.is_some()));
    assert_eq!(steps[1..], [AttemptEffect::CloseStdin, AttemptEffect::SetTimer(AttemptTimer::EscalationTimeout)]);
    assert_eq!(
        course.into_facts().isolation_breach(),
        Some("Claude Code runtime isolation failed: setting_sources=userSettings")
    );
}

#[test]
fn permission_mode_that_changes_later_is_a_breach() {
    let status =
        |mode: &str| format!(r#"{{"type":"system","subtype":"status","status":null,"permissionMode":"{mode}"}}"#);
    let mut course = proved();
    assert_eq!(line(&mut course, r#"{"type":"system","subtype":"status","status":"requesting"}"#), []);
    assert_eq!(line(&mut course, &status("dontAsk")), []);
    assert!(asks(&line(&mut course, &status("acceptEdits")), "interrupt"));
    assert!(
        course.into_facts().isolation_breach().is_some_and(|sentence| sentence.contains("permission_mode=acceptEdits"))
    );
}

#[test]
fn breach_interrupts_and_refuses_calls() {
    let mut course = working();
    let steps = line(&mut course, &INIT.replace("mcp__ktx__a", "mcp__ktx__a\",\"Bash"));
    assert!(matches!(&steps[0], AttemptEffect::RecordNote(Note::IsolationChecked(check)) if check.breach.is_some()));
    assert!(asks(&steps, "interrupt") && !steps.contains(&AttemptEffect::StartupFinished));

    let hook = json!({"type": "control_request", "request_id": "h", "request": {"subtype": "hook_callback",
        "callback_id": "pre_tool_use", "input": {"tool_name": "Bash", "tool_input": {}, "tool_use_id": "t"}}});
    let steps = line(&mut course, &hook.to_string());
    assert_eq!(frames(&steps)[0]["response"]["response"]["hookSpecificOutput"]["permissionDecision"], "deny");
    let call = json!({"type": "control_request", "request_id": "c", "request": {"subtype": "mcp_message",
        "server_name": "ktx", "message": {"id": 3, "method": "tools/call"}}});
    let steps = line(&mut course, &call.to_string());
    assert_eq!(frames(&steps)[0]["response"]["response"]["mcp_response"]["error"]["code"], -32600);
    assert!(course.into_facts().isolation_breach().unwrap().contains("tools=Bash"));
}

#[test]
fn later_turn_is_verified_too() {
    let mut course = working();
    line(&mut course, INIT);
    let steps = line(&mut course, INIT);
    assert!(asks(&steps, "get_settings") && !steps.contains(&AttemptEffect::StartupFinished));
    let steps = reply(&mut course, 3, json!({"sources": ["user"]}));
    assert!(asks(&steps, "interrupt"));
}

#[test]
fn escalation_takes_one_step_at_a_time() {
    let mut course = working();
    let steps = course.handle_stop_command(StopCommand::Interrupt);
    assert!(asks(&steps, "interrupt") && steps.contains(&AttemptEffect::SetTimer(AttemptTimer::EscalationTimeout)));
    assert_eq!(course.handle_stop_command(StopCommand::Interrupt), []);
    assert_eq!(
        course.handle_timer(AttemptTimer::EscalationTimeout),
        [AttemptEffect::SignalGroup(Signal::SIGTERM), AttemptEffect::SetTimer(AttemptTimer::EscalationTimeout)]
    );
    assert_eq!(
        course.handle_timer(AttemptTimer::EscalationTimeout),
        [AttemptEffect::SignalGroup(Signal::SIGKILL), AttemptEffect::SetTimer(AttemptTimer::EscalationTimeout)]
    );
    assert_eq!(course.handle_timer(AttemptTimer::EscalationTimeout), [AttemptEffect::StopWaiting]);
    assert_eq!(course.into_facts().stopped, Some(StopMode::Stop));
}

#[test]
fn interrupted_turn_end_closes_stdin_and_keeps_escalation() {
    let mut course = working();
    course.handle_stop_command(StopCommand::Interrupt);
    assert_eq!(line(&mut course, RESULT), [AttemptEffect::CloseStdin]);
    assert_eq!(course.handle_timer(AttemptTimer::EscalationTimeout)[0], AttemptEffect::SignalGroup(Signal::SIGTERM));
}

#[test]
fn kill_skips_the_interrupt() {
    let mut course = working();
    course.handle_stop_command(StopCommand::Interrupt);
    assert_eq!(course.handle_stop_command(StopCommand::Kill)[0], AttemptEffect::SignalGroup(Signal::SIGTERM));
    assert_eq!(course.handle_timer(AttemptTimer::EscalationTimeout)[0], AttemptEffect::SignalGroup(Signal::SIGKILL));
    assert_eq!(course.into_facts().stopped, Some(StopMode::Kill));
}

#[test]
fn interrupt_before_prompt_only_closes_stdin() {
    let mut course = course();
    course.start();
    assert_eq!(
        course.handle_stop_command(StopCommand::Interrupt),
        [AttemptEffect::CloseStdin, AttemptEffect::SetTimer(AttemptTimer::EscalationTimeout)]
    );
    // Another alarm would take the place of the ladder's, and nobody would ever climb it.
    assert_eq!(reply(&mut course, 1, json!({})), []);
    assert_eq!(
        course.handle_timer(AttemptTimer::EscalationTimeout),
        [AttemptEffect::SignalGroup(Signal::SIGTERM), AttemptEffect::SetTimer(AttemptTimer::EscalationTimeout)]
    );
}

#[test]
fn stop_after_result_does_not_mark_stopped() {
    let mut course = working();
    line(&mut course, RESULT);
    assert_eq!(course.handle_stop_command(StopCommand::Interrupt)[0], AttemptEffect::SignalGroup(Signal::SIGTERM));
    let facts = course.into_facts();
    assert_eq!(facts.stopped, None);
    assert!(facts.result.is_some());
}

#[test]
fn process_that_does_not_exit_is_terminated() {
    let mut course = working();
    line(&mut course, RESULT);
    assert_eq!(course.handle_timer(AttemptTimer::ExitTimeout)[0], AttemptEffect::SignalGroup(Signal::SIGTERM));
    assert_eq!(course.handle_timer(AttemptTimer::EscalationTimeout)[0], AttemptEffect::SignalGroup(Signal::SIGKILL));
}

#[test]
fn after_exit_only_pipes_are_drained() {
    let mut course = working();
    assert_eq!(
        course.handle_exit(ProcessExit { code: Some(1), signal: None }),
        [AttemptEffect::SetTimer(AttemptTimer::DrainTimeout)]
    );
    assert_eq!(line(&mut course, RESULT), [AttemptEffect::CloseStdin]);
    assert_eq!(course.handle_stop_command(StopCommand::Kill), []);
    assert_eq!(course.handle_timer(AttemptTimer::DrainTimeout), [AttemptEffect::StopWaiting]);
    assert_eq!(course.into_facts().exit_code, Some(1));
}

#[test]
fn refused_initialize_is_a_start_error() {
    let mut course = course();
    course.start();
    let body = json!({"subtype": "error", "request_id": "deck-1", "error": "no hooks here"});
    let steps = line(&mut course, &json!({"type": "control_response", "response": body}).to_string());
    assert_eq!(steps[0], AttemptEffect::CloseStdin);
    assert!(course.into_facts().start_error.unwrap().ends_with("no hooks here"));
}

#[test]
fn record_error_kills_the_process() {
    let mut course = working();
    assert_eq!(course.handle_record_error("disk full".into())[0], AttemptEffect::SignalGroup(Signal::SIGTERM));
    assert_eq!(course.handle_record_error("again".into()), []);
    assert_eq!(course.into_facts().record_error.as_deref(), Some("disk full"));
}

#[test]
fn failure_reported_twice_is_noted_once() {
    let called = |id: &str| ServerEvent::CallFinished {
        tool: "a".into(),
        tool_use_id: Some(id.into()),
        effect: crate::units::CallEffect::Rejected(None),
        failure: Some("no".into()),
        declined: None,
    };
    let mut course = working();
    let declined = ServerEvent::CallFinished {
        tool: "a".into(),
        tool_use_id: Some("t0".into()),
        effect: crate::units::CallEffect::Neutral,
        failure: None,
        declined: Some("Error: no such file".into()),
    };
    assert!(
        matches!(
            course.handle_server_event(Some(declined))[..],
            [AttemptEffect::RecordNote(Note::ToolDeclined { .. })]
        ),
        "and no failure"
    );
    assert!(matches!(
        course.handle_server_event(Some(called("t1")))[..],
        [AttemptEffect::RecordNote(Note::ToolFailed { .. })]
    ));
    assert_eq!(course.handle_server_event(Some(called("t1"))), []);
    let hook = json!({"type": "control_request", "request_id": "h", "request": {"subtype": "hook_callback",
        "callback_id": "post_tool_use_failure", "input": {"tool_name": "mcp__ktx__a", "tool_use_id": "t2", "error": "no"}}});
    line(&mut course, &hook.to_string());
    assert_eq!(course.handle_server_event(Some(called("t2"))), []);
    assert_eq!(course.into_facts().tally.calls().len(), 2);
}

#[test]
fn malformed_lines_change_nothing() {
    let mut course = working();
    for garbage in ["", "not json", "[]", "{\"type\":\"unheard_of\"}", "{\"type\":\"control_request\"}"] {
        let steps = line(&mut course, garbage);
        assert!(steps.iter().all(|step| matches!(step, AttemptEffect::WriteFrame(_))), "{garbage}: {steps:?}");
    }
}

/// A call at the gate.
/// A call is held. How many of the attempt had failed before it.
fn held(course: &mut AttemptMachine, request: &str, id: &str) -> usize {
    let hook = json!({"subtype": "hook_callback", "callback_id": "pre_tool_use", "tool_use_id": id,
        "input": {"tool_name": "mcp__ktx__a", "tool_use_id": id, "tool_input": {}}});
    let steps = line(course, &json!({"type": "control_request", "request_id": request, "request": hook}).to_string());
    let [AttemptEffect::RequestApproval(_, call)] = &steps[..] else { panic!("{steps:?}") };
    call.earlier_failures
}

#[test]
fn user_denial_is_not_a_failure_but_policy_denial_is() {
    for (decision, failed) in
        [(ApprovalDecision::Deny("no".into()), 0), (ApprovalDecision::DenyByPolicy("broken".into()), 1)]
    {
        let mut course = proved();
        line(
            &mut course,
            r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t1","name":"mcp__ktx__a","input":{}}]}}"#,
        );
        held(&mut course, "r1", "t1");
        assert_eq!(frames(&course.handle_decision("r1", decision)).len(), 1);
        line(
            &mut course,
            r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":"no"}]}}"#,
        );
        line(
            &mut course,
            r#"{"type":"result","subtype":"success","is_error":false,"result":"done","permission_denials":[{"tool_name":"mcp__ktx__a","tool_use_id":"t1"}]}"#,
        );
        let tally = course.into_facts().tally;
        assert_eq!((tally.calls().len(), tally.refusals().len()), (failed, 1 - failed));
    }
}

#[test]
fn held_call_carries_the_earlier_failure_count() {
    let mut course = proved();
    assert_eq!(held(&mut course, "r1", "t1"), 0);
    line(
        &mut course,
        r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":"no"}]}}"#,
    );
    assert_eq!(held(&mut course, "r2", "t2"), 1);
}

#[test]
fn resumed_session_with_other_id_ends_the_attempt() {
    for (resume, strayed) in [("s", None), ("other", Some("claude emitted session id s but expected other"))] {
        let allowed = AllowedTools::new(["mcp__ktx__a"], ["ktx"]);
        let resume = Some(resume.into());
        let mut course = AttemptMachine::new(
            AttemptFacts::default(),
            allowed,
            true,
            "the prompt".into(),
            resume,
            ProcessTimeouts::default(),
        );
        course.start();
        reply(&mut course, 1, json!({}));
        reply(&mut course, 2, json!({"sources": []}));
        let steps = line(&mut course, INIT);
        assert_eq!(asks(&steps, "interrupt"), strayed.is_some(), "{steps:?}");
        assert_eq!(course.into_facts().session_mismatch.as_deref(), strayed);
    }
}

/// A hook that asks about a call of `tool`.
fn asked(course: &mut AttemptMachine, tool: &str, mode: &str) -> Vec<AttemptEffect> {
    let hook = json!({"subtype": "hook_callback", "callback_id": "pre_tool_use", "input": {
        "tool_name": tool, "tool_use_id": "t", "tool_input": {}, "permission_mode": mode}});
    line(course, &json!({"type": "control_request", "request_id": "h", "request": hook}).to_string())
}

#[test]
fn foreign_tool_or_mode_is_denied_and_ends_the_attempt() {
    for (tool, mode, part) in [("Bash", "dontAsk", "tool `Bash`"), ("mcp__ktx__a", "auto", "permission_mode=auto")] {
        let mut course = proved();
        let steps = asked(&mut course, tool, mode);
        let output = &frames(&steps)[0]["response"]["response"]["hookSpecificOutput"];
        assert_eq!(output["permissionDecision"], "deny");
        assert!(output["permissionDecisionReason"].as_str().is_some_and(|reason| reason.contains(part)), "{output}");
        assert!(asks(&steps, "interrupt"));
        assert!(!steps.iter().any(|step| matches!(step, AttemptEffect::RequestApproval(..))), "nobody is asked");
        assert!(course.into_facts().isolation_breach().is_some_and(|sentence| sentence.contains(part)));
    }
    assert!(matches!(asked(&mut proved(), "mcp__ktx__a", "dontAsk")[..], [AttemptEffect::RequestApproval(..)]));
}

#[test]
fn foreign_tool_that_succeeds_ends_the_attempt() {
    const CALL: &str =
        r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t","name":"Bash","input":{}}]}}"#;
    const DONE: &str =
        r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":"done"}]}}"#;
    let mut course = proved();
    assert_eq!(line(&mut course, CALL), []);
    assert!(asks(&line(&mut course, DONE), "interrupt"));
    assert!(course.into_facts().isolation_breach().is_some_and(|sentence| sentence.contains("it ran `Bash`")));

    // What the agent answers when the model asks for a tool that is not there.
    let mut course = proved();
    line(&mut course, CALL);
    assert_eq!(line(&mut course, &DONE.replace(r#""content":"done""#, r#""content":"no","is_error":true"#)), []);
    line(&mut course, RESULT);
    let facts = course.into_facts();
    assert_eq!((facts.isolation_breach(), facts.tally.calls().len()), (None, 1));
}

#[test]
fn later_settings_request_has_the_same_timeout() {
    let mut course = proved();
    let steps = line(&mut course, INIT);
    assert!(asks(&steps, "get_settings") && steps.contains(&AttemptEffect::SetTimer(AttemptTimer::SettingsTimeout)));
    let patience = ProcessTimeouts::default();
    assert_eq!(AttemptTimer::SettingsTimeout.duration(&patience), patience.reply);
    let steps = course.handle_timer(AttemptTimer::SettingsTimeout);
    assert!(asks(&steps, "interrupt"));
    assert!(
        course.into_facts().isolation_breach().is_some_and(|sentence| sentence.contains("does not say which settings"))
    );

    let mut answered = proved();
    line(&mut answered, INIT);
    assert_eq!(reply(&mut answered, 3, json!({"sources": []})), []);
    assert_eq!(answered.handle_timer(AttemptTimer::SettingsTimeout), [], "the alarm is too late");
    assert_eq!(answered.into_facts().isolation, IsolationStatus::Verified);
}

#[test]
fn result_of_a_later_turn_waits_for_its_settings() {
    let open = || {
        let mut course = proved();
        line(&mut course, INIT);
        assert_eq!(line(&mut course, RESULT), [], "its stdin stays open for the answer");
        course
    };
    let mut answered = open();
    assert_eq!(
        reply(&mut answered, 3, json!({"sources": []})),
        [AttemptEffect::CloseStdin, AttemptEffect::SetTimer(AttemptTimer::ExitTimeout)]
    );
    assert_eq!(answered.into_facts().isolation, IsolationStatus::Verified);
    let mut refused = open();
    reply(&mut refused, 3, json!({"sources": ["user"]}));
    assert!(refused.into_facts().isolation_breach().is_some());
    for end in [
        |course: &mut AttemptMachine| course.handle_timer(AttemptTimer::SettingsTimeout),
        |course: &mut AttemptMachine| course.handle_stdout_closed(),
    ] {
        let mut silent = open();
        assert!(end(&mut silent).contains(&AttemptEffect::CloseStdin));
        assert!(silent.into_facts().isolation_breach().is_some());
    }
}

#[test]
fn oversized_line_is_noted_once_and_interrupts() {
    let mut course = proved();
    let steps = course.handle_oversized_line(100);
    assert!(
        matches!(&steps[0], AttemptEffect::RecordNote(Note::Message { level: Severity::Error, .. }))
            && asks(&steps, "interrupt")
    );
    assert_eq!(course.handle_oversized_line(100), []);
    assert_eq!(course.into_facts().oversized_line, Some(100));
}

#[test]
fn unread_stdin_terminates_without_interrupt() {
    let mut course = proved();
    assert_eq!(
        course.handle_unread_input(100),
        [AttemptEffect::SignalGroup(Signal::SIGTERM), AttemptEffect::SetTimer(AttemptTimer::EscalationTimeout)]
    );
    assert_eq!(course.handle_unread_input(100), []);
    assert_eq!(course.into_facts().unread_stdin, Some(100));
}
