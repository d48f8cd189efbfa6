//! The course of an attempt, without a process.

use serde_json::json;

use super::*;
use crate::decode;

const INIT: &str = r#"{"type":"system","subtype":"init","session_id":"s","tools":["mcp__ktx__a"],
    "mcp_servers":[{"name":"ktx","status":"connected"}],"plugins":[{"name":"p","path":"builtin"}]}"#;
const RESULT: &str = r#"{"type":"result","subtype":"success","is_error":false,"result":"done"}"#;

fn course() -> Course {
    let allowed = Allowed::new(["mcp__ktx__a"], ["ktx"]);
    Course::new(Facts::default(), allowed, true, "the prompt".into(), None, Patience::default())
}

fn line(course: &mut Course, text: &str) -> Vec<Step> {
    let one_line = text.replace('\n', " ");
    course.line(&decode::line(one_line.as_bytes()))
}

fn reply(course: &mut Course, id: u32, response: Value) -> Vec<Step> {
    let body = json!({"subtype": "success", "request_id": format!("deck-{id}"), "response": response});
    line(course, &json!({"type": "control_response", "response": body}).to_string())
}

/// Frames of the steps as JSON, other steps as they are.
fn frames(steps: &[Step]) -> Vec<Value> {
    let frames = steps.iter().filter_map(|step| match step {
        Step::Write(frame) => Some(serde_json::from_slice(&frame.0).unwrap()),
        _ => None,
    });
    frames.collect()
}

fn asks(steps: &[Step], subtype: &str) -> bool {
    frames(steps).iter().any(|frame| frame["request"]["subtype"] == subtype)
}

/// A course whose prompt was sent.
fn working() -> Course {
    let mut course = course();
    course.open();
    reply(&mut course, 1, json!({}));
    let steps = reply(&mut course, 2, json!({"sources": []}));
    assert_eq!(frames(&steps)[0]["message"]["content"], "the prompt");
    course
}

/// A course that has announced its turn, and nothing was wrong with it.
fn proved() -> Course {
    let mut course = working();
    assert!(line(&mut course, INIT).contains(&Step::Started));
    course
}

#[test]
fn nothing_is_asked_of_the_model_before_the_settings_are_known() {
    let mut course = course();
    assert!(asks(&course.open(), "initialize"));
    let steps = reply(&mut course, 1, json!({"models": []}));
    assert!(asks(&steps, "get_settings"));
    assert_eq!(steps[1..], [Step::Wake(Alarm::Unanswered)]);
    let steps = reply(&mut course, 2, json!({"effective": {}, "sources": []}));
    assert_eq!(frames(&steps)[0]["type"], "user");
    let note = Note::IsolationChecked(IsolationChecked { breach: None, settings_sources: Some(vec![]) });
    assert_eq!(line(&mut course, INIT), [Step::Record(note), Step::Started]);
    assert_eq!(line(&mut course, RESULT), [Step::Close, Step::Wake(Alarm::Lingered)]);
    let facts = course.into_facts();
    assert_eq!(facts.result.unwrap().text.as_deref(), Some("done"));
    assert_eq!(facts.isolation, Isolation::Proved);
}

#[test]
fn an_agent_that_does_not_say_its_settings_does_not_work() {
    for refuses in [true, false] {
        let mut course = course();
        course.open();
        reply(&mut course, 1, json!({}));
        let steps = if refuses {
            let body = json!({"subtype": "error", "request_id": "deck-2", "error": "unsupported"});
            line(&mut course, &json!({"type": "control_response", "response": body}).to_string())
        } else {
            course.alarm(Alarm::Unanswered)
        };
        assert!(matches!(&steps[0], Step::Record(Note::IsolationChecked(check)) if check.breach.is_some()));
        assert_eq!(steps[1..], [Step::Close, Step::Wake(Alarm::Unmoved)], "refuses: {refuses}");
        assert!(course.into_facts().breach().is_some_and(|sentence| sentence.contains("does not say which settings")));
    }
}

#[test]
fn no_call_is_taken_before_the_agent_has_said_what_it_offers() {
    let hook = json!({"type": "control_request", "request_id": "h", "request": {"subtype": "hook_callback",
        "callback_id": "pre_tool_use", "input": {"tool_name": "mcp__ktx__a", "tool_input": {}, "tool_use_id": "t"}}});
    let message = |id: &str, method: &str| {
        let message = json!({"id": 3, "method": method});
        json!({"type": "control_request", "request_id": id, "request": {"subtype": "mcp_message",
            "server_name": "ktx", "message": message}})
    };
    let mut course = working();
    assert!(matches!(line(&mut course, &message("l", "tools/list").to_string())[..], [Step::Serve(_)]));
    let steps = line(&mut course, &message("c", "tools/call").to_string());
    assert_eq!(frames(&steps)[0]["response"]["response"]["mcp_response"]["error"]["code"], -32600);
    let steps = line(&mut course, &hook.to_string());
    assert_eq!(frames(&steps)[0]["response"]["response"]["hookSpecificOutput"]["permissionDecision"], "deny");
    line(&mut course, INIT);
    assert!(matches!(line(&mut course, &message("d", "tools/call").to_string())[..], [Step::Serve(_)]));
    assert!(matches!(line(&mut course, &hook.to_string())[..], [Step::Hold(..)]));
}

#[test]
fn a_result_without_an_announcement_proves_nothing() {
    let mut course = working();
    line(&mut course, RESULT);
    assert_eq!(course.into_facts().isolation, Isolation::Unproved);

    // Whoever announces before it is asked is proved by its answer.
    let mut course = self::course();
    course.open();
    line(&mut course, INIT);
    assert_eq!(course.gather.facts.isolation, Isolation::Unproved);
    reply(&mut course, 1, json!({}));
    reply(&mut course, 2, json!({"sources": []}));
    assert_eq!(course.into_facts().isolation, Isolation::Proved);
}

#[test]
fn an_agent_that_does_not_begin_is_ended() {
    let mut silent = course();
    assert_eq!(silent.open()[1..], [Step::Wake(Alarm::Unopened)]);
    assert_eq!(silent.alarm(Alarm::Unopened), [Step::Close, Step::Wake(Alarm::Unmoved)]);
    assert_eq!(reply(&mut silent, 1, json!({})), [], "it is too late");
    let error = silent.into_facts().spawn_error;
    assert_eq!(error.as_deref(), Some("claude did not open the conversation within 120 s"));

    let mut idle = working();
    let steps = idle.alarm(Alarm::Unopened);
    assert!(asks(&steps, "interrupt") && steps.contains(&Step::Wake(Alarm::Unmoved)));
    assert_eq!(idle.into_facts().spawn_error.as_deref(), Some("claude did not begin to work within 120 s"));

    let mut busy = proved();
    assert_eq!(busy.alarm(Alarm::Unopened), []);
    assert_eq!(busy.into_facts().spawn_error, None);
}

#[test]
fn settings_that_were_read_end_the_attempt_before_it_works() {
    let mut course = course();
    course.open();
    reply(&mut course, 1, json!({}));
    let steps = reply(&mut course, 2, json!({"sources": ["userSettings"]}));
    assert!(matches!(&steps[0], Step::Record(Note::IsolationChecked(check)) if check.breach.is_some()));
    assert_eq!(steps[1..], [Step::Close, Step::Wake(Alarm::Unmoved)]);
    assert_eq!(
        course.into_facts().breach(),
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
    assert!(course.into_facts().breach().is_some_and(|sentence| sentence.contains("permission_mode=acceptEdits")));
}

#[test]
fn a_breach_interrupts_and_no_call_gets_through() {
    let mut course = working();
    let steps = line(&mut course, &INIT.replace("mcp__ktx__a", "mcp__ktx__a\",\"Bash"));
    assert!(matches!(&steps[0], Step::Record(Note::IsolationChecked(check)) if check.breach.is_some()));
    assert!(asks(&steps, "interrupt") && !steps.contains(&Step::Started));

    let hook = json!({"type": "control_request", "request_id": "h", "request": {"subtype": "hook_callback",
        "callback_id": "pre_tool_use", "input": {"tool_name": "Bash", "tool_input": {}, "tool_use_id": "t"}}});
    let steps = line(&mut course, &hook.to_string());
    assert_eq!(frames(&steps)[0]["response"]["response"]["hookSpecificOutput"]["permissionDecision"], "deny");
    let call = json!({"type": "control_request", "request_id": "c", "request": {"subtype": "mcp_message",
        "server_name": "ktx", "message": {"id": 3, "method": "tools/call"}}});
    let steps = line(&mut course, &call.to_string());
    assert_eq!(frames(&steps)[0]["response"]["response"]["mcp_response"]["error"]["code"], -32600);
    assert!(course.into_facts().breach().unwrap().contains("tools=Bash"));
}

#[test]
fn a_later_turn_is_proved_too() {
    let mut course = working();
    line(&mut course, INIT);
    let steps = line(&mut course, INIT);
    assert!(asks(&steps, "get_settings") && !steps.contains(&Step::Started));
    let steps = reply(&mut course, 3, json!({"sources": ["user"]}));
    assert!(asks(&steps, "interrupt"));
}

#[test]
fn the_ladder_is_climbed_one_step_at_a_time() {
    let mut course = working();
    let steps = course.command(Command::Interrupt);
    assert!(asks(&steps, "interrupt") && steps.contains(&Step::Wake(Alarm::Unmoved)));
    assert_eq!(course.command(Command::Interrupt), []);
    assert_eq!(course.alarm(Alarm::Unmoved), [Step::Signal(Signal::SIGTERM), Step::Wake(Alarm::Unmoved)]);
    assert_eq!(course.alarm(Alarm::Unmoved), [Step::Signal(Signal::SIGKILL), Step::Wake(Alarm::Unmoved)]);
    assert_eq!(course.alarm(Alarm::Unmoved), [Step::Leave]);
    assert_eq!(course.into_facts().stopped, Some(StopHow::Stop));
}

#[test]
fn an_interrupted_turn_that_ends_closes_stdin_and_keeps_the_ladder() {
    let mut course = working();
    course.command(Command::Interrupt);
    assert_eq!(line(&mut course, RESULT), [Step::Close]);
    assert_eq!(course.alarm(Alarm::Unmoved)[0], Step::Signal(Signal::SIGTERM));
}

#[test]
fn kill_skips_the_interrupt() {
    let mut course = working();
    course.command(Command::Interrupt);
    assert_eq!(course.command(Command::Kill)[0], Step::Signal(Signal::SIGTERM));
    assert_eq!(course.alarm(Alarm::Unmoved)[0], Step::Signal(Signal::SIGKILL));
    assert_eq!(course.into_facts().stopped, Some(StopHow::Kill));
}

#[test]
fn before_the_work_begins_an_interrupt_only_closes_stdin() {
    let mut course = course();
    course.open();
    assert_eq!(course.command(Command::Interrupt), [Step::Close, Step::Wake(Alarm::Unmoved)]);
    // Another alarm would take the place of the ladder's, and nobody would ever climb it.
    assert_eq!(reply(&mut course, 1, json!({})), []);
    assert_eq!(course.alarm(Alarm::Unmoved), [Step::Signal(Signal::SIGTERM), Step::Wake(Alarm::Unmoved)]);
}

#[test]
fn what_has_its_result_is_not_called_stopped() {
    let mut course = working();
    line(&mut course, RESULT);
    assert_eq!(course.command(Command::Interrupt)[0], Step::Signal(Signal::SIGTERM));
    let facts = course.into_facts();
    assert_eq!(facts.stopped, None);
    assert!(facts.result.is_some());
}

#[test]
fn a_process_that_lingers_is_ended() {
    let mut course = working();
    line(&mut course, RESULT);
    assert_eq!(course.alarm(Alarm::Lingered)[0], Step::Signal(Signal::SIGTERM));
    assert_eq!(course.alarm(Alarm::Unmoved)[0], Step::Signal(Signal::SIGKILL));
}

#[test]
fn once_it_is_gone_only_its_pipes_are_waited_for() {
    let mut course = working();
    assert_eq!(course.exited(Ended { code: Some(1), signal: None }), [Step::Wake(Alarm::Drained)]);
    assert_eq!(line(&mut course, RESULT), [Step::Close]);
    assert_eq!(course.command(Command::Kill), []);
    assert_eq!(course.alarm(Alarm::Drained), [Step::Leave]);
    assert_eq!(course.into_facts().exit_code, Some(1));
}

#[test]
fn a_refused_opening_is_a_failed_start() {
    let mut course = course();
    course.open();
    let body = json!({"subtype": "error", "request_id": "deck-1", "error": "no hooks here"});
    let steps = line(&mut course, &json!({"type": "control_response", "response": body}).to_string());
    assert_eq!(steps[0], Step::Close);
    assert!(course.into_facts().spawn_error.unwrap().ends_with("no hooks here"));
}

#[test]
fn without_a_tape_the_process_is_killed() {
    let mut course = working();
    assert_eq!(course.unrecorded("disk full".into())[0], Step::Signal(Signal::SIGTERM));
    assert_eq!(course.unrecorded("again".into()), []);
    assert_eq!(course.into_facts().record_error.as_deref(), Some("disk full"));
}

#[test]
fn a_failure_is_noted_once_whoever_reports_it_first() {
    let called = |id: &str| FromServer::Called {
        tool: "a".into(),
        tool_use_id: Some(id.into()),
        effect: crate::units::Effect::Rejected(None),
        failure: Some("no".into()),
        declined: None,
    };
    let mut course = working();
    let declined = FromServer::Called {
        tool: "a".into(),
        tool_use_id: Some("t0".into()),
        effect: crate::units::Effect::Plain,
        failure: None,
        declined: Some("Error: no such file".into()),
    };
    assert!(matches!(course.server(Some(declined))[..], [Step::Record(Note::ToolDeclined { .. })]), "and no failure");
    assert!(matches!(course.server(Some(called("t1")))[..], [Step::Record(Note::ToolFailed { .. })]));
    assert_eq!(course.server(Some(called("t1"))), []);
    let hook = json!({"type": "control_request", "request_id": "h", "request": {"subtype": "hook_callback",
        "callback_id": "post_tool_use_failure", "input": {"tool_name": "mcp__ktx__a", "tool_use_id": "t2", "error": "no"}}});
    line(&mut course, &hook.to_string());
    assert_eq!(course.server(Some(called("t2"))), []);
    assert_eq!(course.into_facts().tally.calls().len(), 2);
}

#[test]
fn garbage_changes_nothing() {
    let mut course = working();
    for garbage in ["", "not json", "[]", "{\"type\":\"unheard_of\"}", "{\"type\":\"control_request\"}"] {
        let steps = line(&mut course, garbage);
        assert!(steps.iter().all(|step| matches!(step, Step::Write(_))), "{garbage}: {steps:?}");
    }
}

/// A call at the gate.
/// A call is held. How many of the attempt had failed before it.
fn held(course: &mut Course, request: &str, id: &str) -> usize {
    let hook = json!({"subtype": "hook_callback", "callback_id": "pre_tool_use", "tool_use_id": id,
        "input": {"tool_name": "mcp__ktx__a", "tool_use_id": id, "tool_input": {}}});
    let steps = line(course, &json!({"type": "control_request", "request_id": request, "request": hook}).to_string());
    let [Step::Hold(_, call)] = &steps[..] else { panic!("{steps:?}") };
    call.failures
}

#[test]
fn what_a_person_denies_is_no_failure_and_what_we_refuse_is() {
    for (decision, failed) in [(Decision::Deny("no".into()), 0), (Decision::Refuse("broken".into()), 1)] {
        let mut course = proved();
        line(
            &mut course,
            r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t1","name":"mcp__ktx__a","input":{}}]}}"#,
        );
        held(&mut course, "r1", "t1");
        assert_eq!(frames(&course.decided("r1", decision)).len(), 1);
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
fn a_held_call_knows_how_many_failed_before_it() {
    let mut course = proved();
    assert_eq!(held(&mut course, "r1", "t1"), 0);
    line(
        &mut course,
        r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":"no"}]}}"#,
    );
    assert_eq!(held(&mut course, "r2", "t2"), 1);
}

#[test]
fn another_session_than_the_one_to_resume_ends_the_attempt() {
    for (resume, strayed) in [("s", None), ("other", Some("claude emitted session id s but expected other"))] {
        let allowed = Allowed::new(["mcp__ktx__a"], ["ktx"]);
        let resume = Some(resume.into());
        let mut course = Course::new(Facts::default(), allowed, true, "the prompt".into(), resume, Patience::default());
        course.open();
        reply(&mut course, 1, json!({}));
        reply(&mut course, 2, json!({"sources": []}));
        let steps = line(&mut course, INIT);
        assert_eq!(asks(&steps, "interrupt"), strayed.is_some(), "{steps:?}");
        assert_eq!(course.into_facts().session_mismatch.as_deref(), strayed);
    }
}

/// A hook that asks about a call of `tool`.
fn asked(course: &mut Course, tool: &str, mode: &str) -> Vec<Step> {
    let hook = json!({"subtype": "hook_callback", "callback_id": "pre_tool_use", "input": {
        "tool_name": tool, "tool_use_id": "t", "tool_input": {}, "permission_mode": mode}});
    line(course, &json!({"type": "control_request", "request_id": "h", "request": hook}).to_string())
}

#[test]
fn call_of_a_foreign_tool_or_mode_is_denied_and_ends_the_attempt() {
    for (tool, mode, part) in [("Bash", "dontAsk", "tool `Bash`"), ("mcp__ktx__a", "auto", "permission_mode=auto")] {
        let mut course = proved();
        let steps = asked(&mut course, tool, mode);
        let output = &frames(&steps)[0]["response"]["response"]["hookSpecificOutput"];
        assert_eq!(output["permissionDecision"], "deny");
        assert!(output["permissionDecisionReason"].as_str().is_some_and(|reason| reason.contains(part)), "{output}");
        assert!(asks(&steps, "interrupt"));
        assert!(!steps.iter().any(|step| matches!(step, Step::Hold(..))), "nobody is asked");
        assert!(course.into_facts().breach().is_some_and(|sentence| sentence.contains(part)));
    }
    assert!(matches!(asked(&mut proved(), "mcp__ktx__a", "dontAsk")[..], [Step::Hold(..)]));
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
    assert!(course.into_facts().breach().is_some_and(|sentence| sentence.contains("it ran `Bash`")));

    // What the agent answers when the model asks for a tool that is not there.
    let mut course = proved();
    line(&mut course, CALL);
    assert_eq!(line(&mut course, &DONE.replace(r#""content":"done""#, r#""content":"no","is_error":true"#)), []);
    line(&mut course, RESULT);
    let facts = course.into_facts();
    assert_eq!((facts.breach(), facts.tally.calls().len()), (None, 1));
}

#[test]
fn later_question_for_the_settings_has_the_limit_of_the_first() {
    let mut course = proved();
    let steps = line(&mut course, INIT);
    assert!(asks(&steps, "get_settings") && steps.contains(&Step::Wake(Alarm::Unanswered)));
    let patience = Patience::default();
    assert_eq!(Alarm::Unanswered.after(&patience), patience.answer);
    let steps = course.alarm(Alarm::Unanswered);
    assert!(asks(&steps, "interrupt"));
    assert!(course.into_facts().breach().is_some_and(|sentence| sentence.contains("does not say which settings")));

    let mut answered = proved();
    line(&mut answered, INIT);
    assert_eq!(reply(&mut answered, 3, json!({"sources": []})), []);
    assert_eq!(answered.alarm(Alarm::Unanswered), [], "the alarm is too late");
    assert_eq!(answered.into_facts().isolation, Isolation::Proved);
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
    assert_eq!(reply(&mut answered, 3, json!({"sources": []})), [Step::Close, Step::Wake(Alarm::Lingered)]);
    assert_eq!(answered.into_facts().isolation, Isolation::Proved);
    let mut refused = open();
    reply(&mut refused, 3, json!({"sources": ["user"]}));
    assert!(refused.into_facts().breach().is_some());
    for end in [|course: &mut Course| course.alarm(Alarm::Unanswered), |course: &mut Course| course.silent()] {
        let mut silent = open();
        assert!(end(&mut silent).contains(&Step::Close));
        assert!(silent.into_facts().breach().is_some());
    }
}

#[test]
fn oversized_line_is_noted_once_and_interrupts() {
    let mut course = proved();
    let steps = course.oversized(100);
    assert!(matches!(&steps[0], Step::Record(Note::Said { level: Level::Error, .. })) && asks(&steps, "interrupt"));
    assert_eq!(course.oversized(100), []);
    assert_eq!(course.into_facts().oversized_line, Some(100));
}

#[test]
fn agent_that_does_not_read_is_not_asked_to_stop() {
    let mut course = proved();
    assert_eq!(course.unread(100), [Step::Signal(Signal::SIGTERM), Step::Wake(Alarm::Unmoved)]);
    assert_eq!(course.unread(100), []);
    assert_eq!(course.into_facts().unread, Some(100));
}
