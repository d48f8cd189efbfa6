//! Tests the rules of the contract one by one.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    AgentEvent, EventTranslator, SessionIdentity, StreamEnd, StreamState, TurnTracker,
    event::ENGINE, label,
};
use crate::decode::{self, AgentLine, RawJson};

mod calls;
mod completed;
mod labels;
mod properties;

/// A translator with the state of its stream.
#[derive(Clone)]
struct TranslatedStream {
    translator: EventTranslator,
    stream: StreamState,
}

impl TranslatedStream {
    fn new(turns: TurnTracker) -> Self {
        Self {
            translator: EventTranslator::default(),
            stream: StreamState::new(turns),
        }
    }

    fn push(&mut self, line: &AgentLine<'_>, bytes: &[u8], emit: &mut dyn FnMut(AgentEvent<'_>)) {
        let role = self.stream.push(line);
        self.translator
            .push((line, role), bytes, &self.stream, emit);
    }
}

/// Returns the events of these lines as JSON. Each event is written by both writers.
fn push(translated: &mut TranslatedStream, lines: &[&str]) -> Vec<Value> {
    let mut events = Vec::new();
    for line in lines {
        let decoded = decode::decode_line(line.as_bytes());
        translated.push(&decoded, line.as_bytes(), &mut |event| {
            events.push(to_json(&event))
        });
    }
    events
}

fn end(translated: &mut TranslatedStream, ended: &StreamEnd) -> Vec<Value> {
    let mut events = Vec::new();
    translated
        .translator
        .finish(ended, &translated.stream, &mut |event| {
            events.push(to_json(&event))
        });
    events
}

fn to_json(event: &AgentEvent<'_>) -> Value {
    let mut direct = Vec::new();
    event.write_json(&mut direct);
    assert!(
        decode::is_json(&direct),
        "{}",
        String::from_utf8_lossy(&direct)
    );
    RawJson(std::str::from_utf8(&direct).unwrap()).value()
}

/// The translator of a process with one prompt.
fn one_prompt() -> TranslatedStream {
    TranslatedStream::new(TurnTracker::for_one_prompt())
}

/// The translator of a process that resumes a session.
fn resuming(session: &str, tolerant: bool) -> TranslatedStream {
    let mut translated = one_prompt();
    translated
        .translator
        .set_identity(SessionIdentity::resuming(session, tolerant));
    translated
}

/// Returns the events of a whole stream that ends regularly.
fn run(lines: &[&str]) -> Vec<Value> {
    run_with(one_prompt(), lines)
}

fn run_with(mut translator: TranslatedStream, lines: &[&str]) -> Vec<Value> {
    let mut events = push(&mut translator, lines);
    events.extend(end(&mut translator, &StreamEnd::default()));
    events
}

/// Summarizes each event in one word: `started`, the phase of an action with its id, `completed`.
fn outline(events: &[Value]) -> Vec<String> {
    events
        .iter()
        .map(|event| match event["type"].as_str().unwrap() {
            "action" => format!(
                "{} {}",
                event["phase"].as_str().unwrap(),
                event["action"]["id"].as_str().unwrap()
            ),
            other => other.to_owned(),
        })
        .collect()
}

fn last(events: &[Value]) -> &Value {
    events.last().unwrap()
}

const INIT: &str = r#"{"type":"system","subtype":"init","session_id":"s","model":"m"}"#;
const OK: &str =
    r#"{"type":"result","subtype":"success","is_error":false,"result":"ok","session_id":"s"}"#;

fn call(id: &str, name: &str, input: &str) -> String {
    format!(
        r#"{{"type":"assistant","session_id":"s","message":{{"id":"msg","content":[{{"type":"tool_use","id":"{id}","name":"{name}","input":{input}}}]}}}}"#
    )
}

fn result(id: &str, rest: &str) -> String {
    format!(
        r#"{{"type":"user","session_id":"s","message":{{"content":[{{"type":"tool_result","tool_use_id":"{id}"{rest}}}]}}}}"#
    )
}

fn text(text: &str) -> String {
    let text = json!(text);
    format!(
        r#"{{"type":"assistant","session_id":"s","message":{{"content":[{{"type":"text","text":{text}}}]}}}}"#
    )
}

#[test]
fn complete_run_gives_all_events() {
    let lines = [
        r#"{"type":"system","subtype":"init","session_id":"s","model":"m","cwd":"/p","tools":["Bash"],"permissionMode":"default","output_style":"default","apiKeySource":"none","mcp_servers":[{"name":"ktx","status":"connected"}]}"#,
        &text("Looking."),
        &call("t1", "Bash", r#"{"command":"ls"}"#),
        &result("t1", r#","content":[{"type":"text","text":"a"}]"#),
        r#"{"type":"result","subtype":"success","is_error":false,"result":"Done.","session_id":"s","usage":{"input_tokens":3,"nested":{"a":[1]}},"total_cost_usd":1}"#,
    ];
    let detail = json!({
        "tool_name": "Bash", "tool_input": {"command": "ls"}, "name": "Bash", "input": {"command": "ls"},
        "message_id": "msg",
    });
    let mut settled = detail.clone();
    for (key, value) in [
        ("tool_use_id", json!("t1")),
        ("content", json!([{"type": "text", "text": "a"}])),
        ("result_len", json!(28)),
        ("truncated", json!(false)),
        ("is_error", json!(false)),
    ] {
        settled[key] = value;
    }
    assert_eq!(
        run(&lines),
        [
            json!({
                "type": "started", "engine": "claude", "resume": {"engine": "claude", "value": "s"}, "title": "m",
                "meta": {
                    "cwd": "/p", "tools": ["Bash"], "permissionMode": "default", "output_style": "default",
                    "apiKeySource": "none", "mcp_servers": [{"name": "ktx", "status": "connected"}],
                },
            }),
            json!({
                "type": "action", "engine": "claude", "phase": "started",
                "action": {"id": "t1", "kind": "command", "title": "ls", "detail": detail},
            }),
            json!({
                "type": "action", "engine": "claude", "phase": "completed", "ok": true,
                "action": {"id": "t1", "kind": "command", "title": "ls", "detail": settled},
            }),
            json!({
                "type": "completed", "engine": "claude", "ok": true, "answer": "Done.",
                "resume": {"engine": "claude", "value": "s"}, "usage": {"input_tokens": 3, "nested": {"a": [1]}},
            }),
        ]
    );
}

#[test]
fn json_keys_follow_the_contract_order() {
    let mut translator = one_prompt();
    let mut written = Vec::new();
    for line in [INIT, OK] {
        translator.push(
            &decode::decode_line(line.as_bytes()),
            line.as_bytes(),
            &mut |event| {
                event.write_json(&mut written);
                written.push(b'\n');
            },
        );
    }
    assert_eq!(
        String::from_utf8(written).unwrap(),
        "{\"type\":\"started\",\"engine\":\"claude\",\"resume\":{\"engine\":\"claude\",\"value\":\"s\"},\"title\":\"m\",\"meta\":{}}\n\
         {\"type\":\"completed\",\"engine\":\"claude\",\"ok\":true,\"answer\":\"ok\",\"resume\":{\"engine\":\"claude\",\"value\":\"s\"}}\n"
    );
}

// Sessions.

#[test]
fn session_ids_are_opaque() {
    for id in ["session_01", "é€", "0", "a b"] {
        let events = run(&[&OK.replace("\"s\"", &json!(id).to_string())]);
        assert_eq!(events[0]["resume"]["value"], id);
        assert_eq!(last(&events)["resume"]["value"], id);
    }
}

#[test]
fn started_waits_for_init_while_only_system_lines_came() {
    let hook = r#"{"type":"system","subtype":"hook_started","session_id":"s"}"#;
    let limit =
        r#"{"type":"rate_limit_event","session_id":"s","rate_limit_info":{"status":"allowed"}}"#;
    let mut translator = one_prompt();
    assert!(push(&mut translator, &[hook, limit]).is_empty());
    assert_eq!(translator.translator.session(), Some("s"));
    let events = push(&mut translator, &[INIT]);
    assert_eq!(
        (outline(&events), events[0]["title"].as_str()),
        (vec!["started".into()], Some("m"))
    );

    for first in [
        text("x"),
        result("t", ""),
        r#"{"type":"stream_event","session_id":"s","event":{}}"#.to_owned(),
        OK.to_owned(),
    ] {
        let events = run(&[hook, &first, INIT]);
        assert_eq!(events[0]["title"], "claude", "{first}");
        assert_eq!(events[0].get("meta"), None);
        let started = outline(&events)
            .iter()
            .filter(|event| *event == "started")
            .count();
        assert_eq!(started, 1);
    }
    // With `system` lines only, `started` is emitted at the end.
    assert_eq!(outline(&run(&[hook])), ["started", "completed"]);
}

#[test]
fn title_is_the_model_or_the_agent() {
    let titled = |line: &str| {
        run(&[line])[0]["title"]
            .as_str()
            .map(str::to_owned)
            .unwrap()
    };
    let bare = r#"{"type":"system","subtype":"init","session_id":"s"}"#;
    assert_eq!(titled(INIT), "m");
    assert_eq!(titled(bare), "claude");
    let line = r#"{"type":"assistant","session_id":"s","message":{"model":"big","content":[]}}"#;
    assert_eq!(titled(line), "big");
    assert_eq!(titled(&line.replace("big", "<synthetic>")), "claude");
    // An `init` without a session id still determines the model.
    let events = run(&[
        r#"{"type":"system","subtype":"init","model":"m"}"#,
        &text("x"),
    ]);
    assert_eq!(events[0]["title"], "m");
}

#[test]
fn a_second_init_is_ignored_in_a_new_run() {
    for id in ["s", "other"] {
        let again = INIT.replace("\"s\"", &format!("\"{id}\""));
        let events = run(&[
            INIT,
            &again,
            &call("t", "X", "{}").replace("\"s\"", &format!("\"{id}\"")),
            OK,
        ]);
        assert_eq!(
            outline(&events),
            ["started", "started t", "completed t", "completed"]
        );
        assert_eq!(last(&events)["resume"]["value"], "s");
    }
}

#[test]
fn resumed_session_with_other_id_is_fatal() {
    let other_init = INIT.replace("\"s\"", "\"B\"");
    let other_text = text("x").replace("\"s\"", "\"B\"");
    let other_result = OK.replace("\"s\"", "\"B\"");
    let mine = INIT.replace("\"s\"", "\"A\"");
    let open = call("t", "X", "{}").replace("\"s\"", "\"A\"");
    for (lines, expected) in [
        (vec![&*other_init, &*other_text, OK], vec!["completed"]),
        (vec![&*other_text], vec!["completed"]),
        (vec![&*other_result], vec!["completed"]),
        (
            vec![&*mine, &*open, &*other_text, &*other_result],
            vec!["started", "started t", "completed t", "completed"],
        ),
    ] {
        let events = run_with(resuming("A", false), &lines);
        assert_eq!(outline(&events), expected);
        let completed = last(&events);
        assert_eq!(
            (
                completed["ok"].as_bool(),
                completed["resume"]["value"].as_str()
            ),
            (Some(false), Some("A"))
        );
        assert_eq!(
            completed["error"],
            "claude emitted session id B but expected A"
        );
    }
    let events = run_with(resuming("s", false), &[INIT, OK]);
    assert_eq!(outline(&events), ["started", "completed"]);
}

#[test]
fn unknown_resumed_session_reports_the_cli_error() {
    let gone = r#"{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"B","errors":["No conversation found with session ID: A"]}"#;
    let events = run_with(resuming("A", false), &[gone]);
    assert_eq!(outline(&events), ["completed"]);
    assert_eq!(
        last(&events)["error"],
        "No conversation found with session ID: A"
    );
    assert_eq!(last(&events)["resume"]["value"], "A");
}

#[test]
fn a_tolerated_mismatch_is_one_warning() {
    let other = [INIT, &text("x"), OK].map(|line| line.replace("\"s\"", "\"B\""));
    let lines: Vec<_> = other.iter().map(String::as_str).collect();
    let events = run_with(resuming("A", true), &lines);
    assert_eq!(
        outline(&events),
        ["completed claude.note.1", "started", "completed"]
    );
    assert_eq!(
        events[0]["action"]["title"],
        "claude emitted session id B but expected A"
    );
    assert_eq!(events[1]["resume"], last(&events)["resume"]);
    assert_eq!(last(&events)["resume"]["value"], "B");
}

// Calls.

#[test]
fn other_lines_and_blocks_give_no_events() {
    let events = run(&[
        INIT,
        r#"{"type":"system","subtype":"api_retry","session_id":"s","attempt":1}"#,
        r#"{"type":"system","subtype":"compact_boundary","session_id":"s"}"#,
        r#"{"type":"conversation_reset","session_id":"s"}"#,
        r#"{"type":"control_request","request_id":"r","request":{"subtype":"hook_callback"}}"#,
        r#"{"type":"rate_limit_event","session_id":"s","rate_limit_info":{"status":"rejected"}}"#,
        r#"{"type":"assistant","session_id":"s","message":{"content":[{"type":"redacted_thinking","data":"x"},{"type":"text","text":"hi"},{"type":"tool_use","id":"t","name":"X","input":{}}]}}"#,
        r#"{"type":"user","session_id":"s","message":{"content":[{"type":"image","source":{}},{"type":"tool_result","tool_use_id":"t"}]}}"#,
        r#"{"type":"result","session_id":"s"}"#,
    ]);
    assert_eq!(
        outline(&events),
        ["started", "started t", "completed t", "completed"]
    );
    assert_eq!(
        (
            last(&events)["ok"].as_bool(),
            last(&events)["answer"].as_str()
        ),
        (Some(true), Some("hi"))
    );
}

// Notes and warnings.

#[test]
fn thinking_is_a_note() {
    let thought = |thinking: &str| {
        let thinking = json!(thinking);
        format!(
            r#"{{"type":"assistant","session_id":"s","message":{{"content":[{{"type":"thinking","thinking":{thinking}}}]}}}}"#
        )
    };
    let long = "é".repeat(400);
    let events = run(&[
        &thought("\n  first \nsecond"),
        &thought(""),
        &thought(" \n"),
        &thought(&long),
        OK,
    ]);
    assert_eq!(
        outline(&events),
        [
            "started",
            "completed claude.thinking.1",
            "completed claude.thinking.2",
            "completed"
        ]
    );
    let note = &events[1];
    assert_eq!(
        (note["ok"].as_bool(), note["action"]["kind"].as_str()),
        (Some(true), Some("note"))
    );
    assert_eq!(note["action"]["title"], "first");
    assert_eq!(
        note["action"]["detail"],
        json!({"text": "\n  first \nsecond"})
    );
    assert_eq!(
        events[2]["action"]["title"]
            .as_str()
            .unwrap()
            .chars()
            .count(),
        300
    );
    assert_eq!(events[2]["action"]["detail"]["text"], long);
    // A thinking block in a user line is not from the model.
    let events = run(&[&thought("x").replace("assistant", "user"), OK]);
    assert_eq!(outline(&events), ["started", "completed"]);
}
