//! The contract, rule by rule.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Ended, Event, Translator, event::ENGINE, label};
use crate::decode::{self, Raw};

/// Events of these lines as JSON, each written both ways.
fn push(translator: &mut Translator, lines: &[&str]) -> Vec<Value> {
    let mut events = Vec::new();
    for line in lines {
        translator.push(&decode::line(line.as_bytes()), line.as_bytes(), &mut |event| events.push(to_json(&event)));
    }
    events
}

fn end(translator: &mut Translator, ended: &Ended) -> Vec<Value> {
    let mut events = Vec::new();
    translator.end(ended, &mut |event| events.push(to_json(&event)));
    events
}

fn to_json(event: &Event<'_>) -> Value {
    let mut direct = Vec::new();
    event.write_json(&mut direct);
    let direct = String::from_utf8(direct).unwrap();
    assert_eq!(direct, serde_json::to_string(event).unwrap());
    Raw(&direct).value()
}

/// Events of a whole stream that ends in order.
fn run(lines: &[&str]) -> Vec<Value> {
    run_with(Translator::new(None, None), lines)
}

fn run_with(mut translator: Translator, lines: &[&str]) -> Vec<Value> {
    let mut events = push(&mut translator, lines);
    events.extend(end(&mut translator, &Ended::default()));
    events
}

/// One word an event: `started`, the phase of an action with its id, `completed`.
fn outline(events: &[Value]) -> Vec<String> {
    events
        .iter()
        .map(|event| match event["type"].as_str().unwrap() {
            "action" => format!("{} {}", event["phase"].as_str().unwrap(), event["action"]["id"].as_str().unwrap()),
            other => other.to_owned(),
        })
        .collect()
}

fn last(events: &[Value]) -> &Value {
    events.last().unwrap()
}

const INIT: &str = r#"{"type":"system","subtype":"init","session_id":"s","model":"m"}"#;
const OK: &str = r#"{"type":"result","subtype":"success","is_error":false,"result":"ok","session_id":"s"}"#;

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
    format!(r#"{{"type":"assistant","session_id":"s","message":{{"content":[{{"type":"text","text":{text}}}]}}}}"#)
}

#[test]
fn a_run_in_full() {
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
fn keys_stand_in_the_order_of_the_contract() {
    let mut translator = Translator::new(None, None);
    let mut written = Vec::new();
    for line in [INIT, OK] {
        translator.push(&decode::line(line.as_bytes()), line.as_bytes(), &mut |event| {
            event.write_json(&mut written);
            written.push(b'\n');
        });
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
    let limit = r#"{"type":"rate_limit_event","session_id":"s","rate_limit_info":{"status":"allowed"}}"#;
    let mut translator = Translator::new(None, None);
    assert!(push(&mut translator, &[hook, limit]).is_empty());
    assert_eq!((translator.session(), translator.is_started()), (Some("s"), false));
    let events = push(&mut translator, &[INIT]);
    assert_eq!((outline(&events), events[0]["title"].as_str()), (vec!["started".into()], Some("m")));

    for first in
        [text("x"), result("t", ""), r#"{"type":"stream_event","session_id":"s","event":{}}"#.to_owned(), OK.to_owned()]
    {
        let events = run(&[hook, &first, INIT]);
        assert_eq!(events[0]["title"], "claude", "{first}");
        assert_eq!(events[0].get("meta"), None);
        let started = outline(&events).iter().filter(|event| *event == "started").count();
        assert_eq!(started, 1);
    }
    // Nothing but system lines: at the end it is said that there was a session.
    assert_eq!(outline(&run(&[hook])), ["started", "completed"]);
}

#[test]
fn the_title_is_the_model_else_the_configured_one() {
    let titled = |title, line: &str| {
        run_with(Translator::new(None, title), &[line])[0]["title"].as_str().map(str::to_owned).unwrap()
    };
    let bare = r#"{"type":"system","subtype":"init","session_id":"s"}"#;
    assert_eq!(titled(Some("opus"), INIT), "m");
    assert_eq!(titled(Some("opus"), bare), "opus");
    assert_eq!(titled(None, bare), "claude");
    let said = r#"{"type":"assistant","session_id":"s","message":{"model":"big","content":[]}}"#;
    assert_eq!(titled(Some("opus"), said), "big");
    assert_eq!(titled(Some("opus"), &said.replace("big", "<synthetic>")), "opus");
    // An init without a session id still knows the model.
    let events = run(&[r#"{"type":"system","subtype":"init","model":"m"}"#, &text("x")]);
    assert_eq!(events[0]["title"], "m");
}

#[test]
fn a_second_init_is_ignored_in_a_new_run() {
    for id in ["s", "other"] {
        let again = INIT.replace("\"s\"", &format!("\"{id}\""));
        let events = run(&[INIT, &again, &call("t", "X", "{}").replace("\"s\"", &format!("\"{id}\"")), OK]);
        assert_eq!(outline(&events), ["started", "started t", "completed t", "completed"]);
        assert_eq!(last(&events)["resume"]["value"], "s");
    }
}

#[test]
fn another_session_than_the_resumed_one_is_fatal() {
    let other_init = INIT.replace("\"s\"", "\"B\"");
    let other_text = text("x").replace("\"s\"", "\"B\"");
    let other_result = OK.replace("\"s\"", "\"B\"");
    let mine = INIT.replace("\"s\"", "\"A\"");
    let open = call("t", "X", "{}").replace("\"s\"", "\"A\"");
    for (lines, expected) in [
        (vec![&*other_init, &*other_text, OK], vec!["completed"]),
        (vec![&*other_text], vec!["completed"]),
        (vec![&*other_result], vec!["completed"]),
        (vec![&*mine, &*open, &*other_text, &*other_result], vec!["started", "started t", "completed t", "completed"]),
    ] {
        let events = run_with(Translator::new(Some("A"), None), &lines);
        assert_eq!(outline(&events), expected);
        let completed = last(&events);
        assert_eq!((completed["ok"].as_bool(), completed["resume"]["value"].as_str()), (Some(false), Some("A")));
        assert_eq!(completed["error"], "claude emitted session id B but expected A");
    }
    let events = run_with(Translator::new(Some("s"), None), &[INIT, OK]);
    assert_eq!(outline(&events), ["started", "completed"]);
}

#[test]
fn a_resumed_session_that_does_not_exist_is_said_in_the_words_of_the_cli() {
    let gone = r#"{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"B","errors":["No conversation found with session ID: A"]}"#;
    let events = run_with(Translator::new(Some("A"), None), &[gone]);
    assert_eq!(outline(&events), ["completed"]);
    assert_eq!(last(&events)["error"], "No conversation found with session ID: A");
    assert_eq!(last(&events)["resume"]["value"], "A");
}

#[test]
fn a_tolerated_mismatch_is_one_warning() {
    let other = [INIT, &text("x"), OK].map(|line| line.replace("\"s\"", "\"B\""));
    let lines: Vec<_> = other.iter().map(String::as_str).collect();
    let events = run_with(Translator::new(Some("A"), None).tolerate_mismatch(), &lines);
    assert_eq!(outline(&events), ["completed claude.note.1", "started", "completed"]);
    assert_eq!(events[0]["action"]["title"], "claude emitted session id B but expected A");
    assert_eq!(events[1]["resume"], last(&events)["resume"]);
    assert_eq!(last(&events)["resume"]["value"], "B");
}

#[test]
fn a_fork_takes_the_first_id_seen() {
    let events = run_with(Translator::new(Some("A"), None).forked(), &[INIT, OK]);
    assert_eq!((outline(&events).len(), last(&events)["resume"]["value"].as_str()), (2, Some("s")));
}

// Calls.

#[test]
fn results_settle_their_call() {
    for (rest, ok) in [
        (r#","is_error":true"#, false),
        (r#","is_error":false"#, true),
        (r#","is_error":null"#, true),
        (r#","is_error":"true""#, true),
        ("", true),
    ] {
        let events = run(&[&call("t", "Bash", r#"{"command":"x"}"#), &result("t", rest), OK]);
        let settled = &events[2];
        assert_eq!((settled["phase"].as_str(), settled["ok"].as_bool()), (Some("completed"), Some(ok)), "{rest}");
        assert_eq!(
            (settled["action"]["kind"].as_str(), settled["action"]["title"].as_str()),
            (Some("command"), Some("x"))
        );
        assert_eq!(settled["action"]["detail"]["is_error"], !ok);
    }
}

#[test]
fn a_repeated_result_keeps_kind_and_title() {
    let mut translator = Translator::new(None, None);
    let open = call("first", "Bash", r#"{"command":"make"}"#);
    push(&mut translator, &[&open, &result("first", "")]);
    for n in 0..3000 {
        push(&mut translator, &[&call(&format!("t{n}"), "mcp__ktx__x", "{}"), &result(&format!("t{n}"), "")]);
    }
    let copy = translator.clone();
    for mut translator in [translator, copy] {
        let events = push(&mut translator, &[&result("first", r#","is_error":true"#), &result("t7", "")]);
        assert_eq!(events[0]["action"]["title"], "make");
        assert_eq!(events[0]["action"]["kind"], "command");
        assert_eq!(events[0]["action"]["detail"]["tool_name"], "Bash");
        assert_eq!(
            (events[0]["ok"].as_bool(), events[1]["action"]["title"].as_str()),
            (Some(false), Some("mcp__ktx__x"))
        );
    }
}

#[test]
fn an_orphan_result_is_a_tool_result() {
    let events = run(&[&result("t", r#","content":"x""#), OK]);
    assert_eq!(events[1]["action"]["title"], "tool result");
    assert_eq!(events[1]["action"]["kind"], "tool");
    assert_eq!(
        events[1]["action"]["detail"],
        json!({"tool_use_id": "t", "content": "x", "result_len": 3, "truncated": false, "is_error": false})
    );
}

#[test]
fn result_content_is_handed_on_raw_up_to_64_kib() {
    for content in
        [r#""s""#, r#"[{"type":"image","source":{"data":"x"}},{"type":"text","text":"\ud800"}]"#, r#"{"a":1}"#, "3"]
    {
        let line = result("t", &format!(",\"content\":{content}"));
        let mut written = String::new();
        Translator::new(None, None).push(&decode::line(line.as_bytes()), line.as_bytes(), &mut |event| {
            let mut bytes = Vec::new();
            event.write_json(&mut bytes);
            written = String::from_utf8(bytes).unwrap();
        });
        assert!(written.contains(&format!("\"content\":{content},\"result_len\":{}", content.len())), "{written}");
    }
    let events = run(&[&result("t", r#","content":null"#), &result("u", "")]);
    assert_eq!(events[1]["action"]["detail"].get("content"), None);
    assert_eq!(events[2]["action"]["detail"]["result_len"], 0);
    for (length, truncated) in [(64 * 1024 - 2, false), (64 * 1024 - 1, true), (1 << 20, true)] {
        let content = format!(",\"content\":\"{}\"", "x".repeat(length));
        let detail = &run(&[&result("t", &content)])[1]["action"]["detail"];
        assert_eq!(
            (detail["truncated"].as_bool(), detail["result_len"].as_u64()),
            (Some(truncated), Some(length as u64 + 2))
        );
        assert_eq!(detail.get("content").is_none(), truncated);
    }
}

#[test]
fn kinds_and_titles() {
    for (name, input, kind, title, changes) in [
        ("Bash", r#"{"command":"ls -l"}"#, "command", "ls -l", None),
        ("Shell", r#"{"command":"a\nb"}"#, "command", "a\nb", None),
        ("KillShell", r#"{"shell_id":"1"}"#, "command", "KillShell", None),
        ("Bash", "{}", "command", "Bash", None),
        ("Bash", r#"{"command":7}"#, "command", "Bash", None),
        ("Write", r#"{"file_path":"/a/b.md","content":"x"}"#, "file_change", "/a/b.md", Some("update")),
        ("Edit", r#"{"path":"b.md"}"#, "file_change", "b.md", Some("update")),
        ("NotebookEdit", r#"{"notebook_path":"n.ipynb"}"#, "file_change", "n.ipynb", Some("update")),
        ("MultiEdit", r#"{"file_path":"a","path":"b"}"#, "file_change", "a", Some("update")),
        ("Write", r#"{"file_path":"a","create":true}"#, "file_change", "a", Some("add")),
        ("Write", r#"{"file_path":"a","create":"true"}"#, "file_change", "a", Some("update")),
        ("Write", r#"{"content":"x"}"#, "file_change", "Write", None),
        ("Read", r#"{"file_path":"a.md"}"#, "tool", "Read a.md", None),
        ("Read", r#"{"path":"a.md"}"#, "tool", "Read a.md", None),
        ("Read", "{}", "tool", "Read", None),
        ("WebSearch", r#"{"query":"q"}"#, "web_search", "q", None),
        ("WebSearch", "{}", "web_search", "WebSearch", None),
        ("WebFetch", r#"{"url":"u"}"#, "tool", "WebFetch", None),
        ("Task", r#"{"description":"d"}"#, "tool", "Task", None),
        ("Glob", r#"{"pattern":"*"}"#, "tool", "Glob", None),
        ("mcp__ktx__read_raw_span", r#"{"path":"p"}"#, "tool", "mcp__ktx__read_raw_span", None),
        ("", "{}", "tool", "tool", None),
    ] {
        let events = run(&[&call("t", name, input), &result("t", "")]);
        let changes = changes.map(|kind| json!([{"path": title, "kind": kind}]));
        for event in &events[1..3] {
            let action = &event["action"];
            assert_eq!(
                (action["kind"].as_str(), action["title"].as_str()),
                (Some(kind), Some(title)),
                "{name} {input}"
            );
            assert_eq!(action["detail"].get("changes"), changes.as_ref(), "{name} {input}");
            assert_eq!(action["detail"]["tool_input"].to_string(), Raw(input).value().to_string());
            assert_eq!(action["detail"]["input"], action["detail"]["tool_input"]);
            assert_eq!(action["detail"]["tool_name"], name);
        }
    }
    let events = run(&[&call("t", "Bash", "null")]);
    assert_eq!(events[1]["action"]["detail"].get("tool_input"), None);
}

#[test]
fn a_sub_agent_is_named_in_the_detail() {
    let nested = |line: String| line.replacen('{', r#"{"parent_tool_use_id":"p","#, 1);
    let thought =
        r#"{"type":"assistant","session_id":"s","message":{"content":[{"type":"thinking","thinking":"hm"}]}}"#;
    let events = run(&[&nested(call("t", "X", "{}")), &nested(thought.to_owned()), &nested(result("t", ""))]);
    for event in &events[1..4] {
        assert_eq!(event["action"]["detail"]["parent_tool_use_id"], "p", "{event}");
    }
}

#[test]
fn parallel_calls_settle_in_the_order_of_their_results() {
    let events = run(&[&call("a", "X", "{}"), &call("b", "Y", "{}"), &result("b", ""), &result("a", ""), OK]);
    assert_eq!(outline(&events), ["started", "started a", "started b", "completed b", "completed a", "completed"]);
}

#[test]
fn an_id_that_is_used_again_opens_again() {
    let events = run(&[&call("a", "X", "{}"), &call("a", "X", "{}"), &result("a", ""), &call("a", "Z", "{}"), OK]);
    assert_eq!(
        outline(&events),
        ["started", "started a", "started a", "completed a", "started a", "completed a", "completed"]
    );
    assert_eq!(events[5]["action"]["title"], "Z");
}

#[test]
fn calls_without_an_id_get_one() {
    let events = run(&[&call("", "X", "{}"), &call("", "Y", "{}"), &result("", ""), OK]);
    assert_eq!(
        outline(&events),
        [
            "started",
            "started claude.tool.1",
            "started claude.tool.2",
            "completed claude.tool.3",
            "completed claude.tool.1",
            "completed claude.tool.2",
            "completed"
        ]
    );
}

#[test]
fn progress_updates_an_open_call_only() {
    let beat = r#"{"type":"tool_progress","session_id":"s","tool_use_id":"t-heartbeat-0","elapsed_time_seconds":30}"#;
    let events = run(&[beat, &call("t", "Bash", r#"{"command":"x"}"#), beat, &result("t", ""), beat, OK]);
    assert_eq!(outline(&events), ["started", "started t", "updated t", "completed t", "completed"]);
    assert_eq!(events[2]["message"], "running for 30 s");
    assert_eq!(events[2]["action"]["title"], "x");
    assert_eq!(events[2]["action"]["detail"]["elapsed_seconds"], 30.0);
}

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
    assert_eq!(outline(&events), ["started", "started t", "completed t", "completed"]);
    assert_eq!((last(&events)["ok"].as_bool(), last(&events)["answer"].as_str()), (Some(true), Some("hi")));
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
    let events = run(&[&thought("\n  first \nsecond"), &thought(""), &thought(" \n"), &thought(&long), OK]);
    assert_eq!(
        outline(&events),
        ["started", "completed claude.thinking.1", "completed claude.thinking.2", "completed"]
    );
    let note = &events[1];
    assert_eq!((note["ok"].as_bool(), note["action"]["kind"].as_str()), (Some(true), Some("note")));
    assert_eq!(note["action"]["title"], "first");
    assert_eq!(note["action"]["detail"], json!({"text": "\n  first \nsecond"}));
    assert_eq!(events[2]["action"]["title"].as_str().unwrap().chars().count(), 300);
    assert_eq!(events[2]["action"]["detail"]["text"], long);
    let silent = run_with(Translator::new(None, None).without_thinking(), &[&thought("x"), OK]);
    assert_eq!(outline(&silent), ["started", "completed"]);
    // What a user line holds was not thought by the model.
    let events = run(&[&thought("x").replace("assistant", "user"), OK]);
    assert_eq!(outline(&events), ["started", "completed"]);
}

#[test]
fn denials_are_warnings_before_completed() {
    let done = |denials: &str| {
        format!(r#"{{"type":"result","is_error":false,"result":"ok","session_id":"s","permission_denials":{denials}}}"#)
    };
    let events = run(&[INIT, &done(r#"[{"tool_name":"Bash","tool_use_id":"t","tool_input":{"command":"x"}}]"#)]);
    assert_eq!(
        events[1],
        json!({
            "type": "action", "engine": ENGINE, "phase": "completed", "ok": false, "level": "warning",
            "action": {
                "id": "claude.permission.t", "kind": "warning", "title": "permission denied: Bash",
                "detail": {"tool_name": "Bash", "tool_use_id": "t", "tool_input": {"command": "x"}},
            },
        })
    );
    assert_eq!((outline(&events)[2].as_str(), events[2]["ok"].as_bool()), ("completed", Some(true)));

    let titles = |denials: &str| -> Vec<(String, String)> {
        let events = run(&[INIT, &done(denials)]);
        let of = |event: &Value, key: &str| event["action"][key].as_str().unwrap().to_owned();
        events[1..events.len() - 1].iter().map(|event| (of(event, "id"), of(event, "title"))).collect()
    };
    let pair = |id: &str, title: &str| (format!("claude.permission.{id}"), title.to_owned());
    assert_eq!(titles("null"), []);
    assert_eq!(titles(r#""odd""#), []);
    assert_eq!(
        titles(r#"["Bash","Write",null,{},[],{"tool_use_id":"t"},{"tool_use_id":"t"},{"tool_use_id":"9"}]"#),
        [
            pair("0", "permission denied: Bash"),
            pair("1", "permission denied: Write"),
            pair("t", "permission denied"),
            pair("9", "permission denied")
        ]
    );
}

#[test]
fn a_live_denial_is_told_at_once_and_once() {
    let denied = r#"{"type":"system","subtype":"permission_denied","session_id":"s","tool_name":"Bash","tool_use_id":"t","message":"no"}"#;
    let done = r#"{"type":"result","is_error":false,"session_id":"s","permission_denials":[{"tool_name":"Bash","tool_use_id":"t","tool_input":{"command":"x"}},{"tool_name":"Write","tool_use_id":"u"}]}"#;
    let events = run(&[
        INIT,
        &call("t", "Bash", r#"{"command":"x"}"#),
        denied,
        denied,
        &result("t", r#","is_error":true"#),
        done,
    ]);
    assert_eq!(
        outline(&events),
        [
            "started",
            "started t",
            "completed claude.permission.t",
            "completed t",
            "completed claude.permission.u",
            "completed"
        ]
    );
    assert_eq!(
        events[2]["action"]["detail"],
        json!({"tool_name": "Bash", "tool_use_id": "t", "tool_input": {"command": "x"}})
    );
}

#[test]
fn invalid_lines_are_warnings() {
    let long = "ü".repeat(600);
    for (line, shown) in [
        ("not json", "not json"),
        ("{\"type\":\"user\"", "{\"type\":\"user\""),
        ("[]", "[]"),
        ("42\r", "42"),
        ("{\"a\":1}", "{\"a\":1}"),
        (&*long, &*"ü".repeat(512)),
        (&*format!("a{long}"), &*format!("a{}", "ü".repeat(511))),
    ] {
        let mut translator = Translator::new(None, None);
        let events = push(&mut translator, &[line, "", " \r", line]);
        assert_eq!(
            events[0],
            json!({
                "type": "action", "engine": ENGINE, "phase": "completed", "ok": false, "level": "warning",
                "message": "invalid JSON from claude; ignoring line",
                "action": {
                    "id": "claude.note.1", "kind": "warning", "title": "invalid JSON from claude; ignoring line",
                    "detail": {"line": shown},
                },
            })
        );
        assert_eq!(outline(&events[1..]), ["completed claude.note.2"]);
        assert_eq!(outline(&push(&mut translator, &[INIT, OK])), ["started", "completed"]);
    }
    let bytes = b"\xff\xfe\0";
    let mut shown = Value::Null;
    Translator::new(None, None).push(&decode::line(bytes), bytes, &mut |event| shown = to_json(&event));
    assert_eq!(shown["action"]["detail"]["line"], "\u{fffd}\u{fffd}\0");
}

// The end.

#[test]
fn ok_is_the_opposite_of_is_error() {
    for (fields, ok) in [
        (r#""subtype":"success","is_error":false"#, true),
        (r#""subtype":"success","is_error":true"#, false),
        (r#""subtype":"success""#, true),
        (r#""subtype":"completion""#, true),
        (r#""subtype":"error_max_turns""#, false),
        (r#""subtype":"error_max_turns","is_error":false"#, true),
        (r#""is_error":null"#, true),
    ] {
        let events = run(&[&format!(r#"{{"type":"result","session_id":"s",{fields}}}"#)]);
        assert_eq!(last(&events)["ok"], ok, "{fields}");
        assert_eq!(last(&events).get("error").is_none(), ok, "{fields}");
    }
}

#[test]
fn the_first_result_wins_and_nothing_follows_it() {
    let events = run(&[INIT, OK, &OK.replace("\"ok\"", "\"again\""), "not json", &call("t", "X", "{}"), INIT]);
    assert_eq!(outline(&events), ["started", "completed"]);
    assert_eq!(last(&events)["answer"], "ok");
    let mut translator = Translator::new(None, None);
    push(&mut translator, &[INIT, OK]);
    assert!(translator.is_complete());
    assert_eq!(end(&mut translator, &Ended { exit_code: Some(1), ..Ended::default() }), [] as [Value; 0]);
}

#[test]
fn an_empty_answer_falls_back_to_the_last_text() {
    let nested = text("of the sub-agent").replacen('{', r#"{"parent_tool_use_id":"p","#, 1);
    let done = |fields: &str| format!(r#"{{"type":"result","session_id":"s",{fields}}}"#);
    for (lines, answer) in [
        (vec![text("a"), text("b"), text(" "), nested.clone(), done(r#""result":"""#)], "b"),
        (vec![text("a"), done(r#""is_error":true"#)], "a"),
        (vec![text("a"), done(r#""result":null,"is_error":false"#)], "a"),
        (vec![nested.clone(), done(r#""is_error":false"#)], "of the sub-agent"),
        (vec![text("a"), done(r#""result":"r""#)], "r"),
        (vec![text("a").replace("assistant", "user"), done(r#""is_error":false"#)], ""),
    ] {
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        assert_eq!(last(&run(&lines))["answer"], answer, "{lines:?}");
    }
}

#[test]
fn the_error_text_is_the_first_that_is_there() {
    for (fields, error) in [
        (r#""error":"E","errors":["a"],"result":"r","subtype":"x""#, "E"),
        (r#""error":"","errors":["a",{"message":"b"}],"result":"r""#, "a; b"),
        (r#""error":{"a":1},"errors":[],"result":"r""#, "r"),
        (r#""result":"","subtype":"error_max_turns""#, "claude run failed (error_max_turns)"),
        (r#""result":null"#, "claude run failed"),
    ] {
        let events = run(&[&format!(r#"{{"type":"result","session_id":"s","is_error":true,{fields}}}"#)]);
        assert_eq!(last(&events)["error"], error, "{fields}");
    }
}

#[test]
fn a_stream_without_a_result_is_a_failure() {
    let code = |exit_code| Ended { exit_code: Some(exit_code), ..Ended::default() };
    let signal = |signal| Ended { signal: Some(signal), ..Ended::default() };
    let said = |exit_code, stderr: &str| Ended { stderr: Some(stderr.to_owned()), ..code(exit_code) };
    for (ended, with_id, without_id, warned) in [
        (code(0), "claude finished without a result event", "claude finished but no session_id was captured", false),
        (
            Ended::default(),
            "claude finished without a result event",
            "claude finished but no session_id was captured",
            false,
        ),
        (code(1), "claude failed (rc=1).", "claude failed (rc=1).", true),
        (said(127, " not found \n"), "claude failed (rc=127). not found", "claude failed (rc=127). not found", true),
        (said(1, ""), "claude failed (rc=1).", "claude failed (rc=1).", true),
        (signal(9), "claude failed (killed by signal 9).", "claude failed (killed by signal 9).", true),
    ] {
        for (lines, error) in [(vec![INIT.to_owned(), text("half")], with_id), (vec![], without_id)] {
            let mut translator = Translator::new(None, None);
            let lines: Vec<_> = lines.iter().map(String::as_str).collect();
            push(&mut translator, &lines);
            let events = end(&mut translator, &ended);
            let completed = last(&events);
            assert_eq!((completed["ok"].as_bool(), completed["error"].as_str()), (Some(false), Some(error)));
            assert_eq!(completed["answer"], if lines.is_empty() { "" } else { "half" });
            assert_eq!(completed.get("resume").is_some(), !lines.is_empty());
            assert_eq!(events.len(), 1 + usize::from(warned));
            if warned {
                assert_eq!(
                    (events[0]["action"]["title"].as_str(), events[0]["level"].as_str()),
                    (Some(error), Some("warning"))
                );
            }
            assert_eq!(end(&mut translator, &ended), [] as [Value; 0]);
        }
    }
    // The session that was asked for is named even when nothing answered.
    let events = run_with(Translator::new(Some("A"), None), &[]);
    assert_eq!(last(&events)["resume"]["value"], "A");
}

#[test]
fn calls_that_are_open_at_the_end_are_closed() {
    let open = [call("b", "X", "{}"), call("a", "Bash", r#"{"command":"ls"}"#), call("c", "Y", "{}"), result("c", "")];
    let lines: Vec<_> = open.iter().map(String::as_str).chain([OK]).collect();
    let events = run(&lines);
    assert_eq!(outline(&events)[5..], ["completed b", "completed a", "completed"]);
    let closed = &events[6];
    assert_eq!(
        (closed["ok"].as_bool(), closed["message"].as_str()),
        (Some(false), Some("no result before the run ended"))
    );
    assert_eq!((closed["action"]["title"].as_str(), closed.get("level")), (Some("ls"), None));
    assert_eq!(closed["action"]["detail"]["tool_input"], json!({"command": "ls"}));
}

#[test]
fn a_background_agent_lets_a_result_end_a_turn_only() {
    let background =
        r#"{"type":"system","subtype":"task_started","session_id":"s","task_id":"x","is_backgrounded":true}"#;
    let first = OK.replace("\"ok\"", "\"one\"");
    let second = OK.replace("\"ok\"", "\"two\"");
    let answer = |lines: &[&str]| {
        let events = run(lines);
        assert_eq!(outline(&events), ["started", "completed"]);
        last(&events)["answer"].as_str().unwrap().to_owned()
    };
    assert_eq!(answer(&[INIT, background, INIT, &first, &second]), "two");
    // No second result ever came.
    assert_eq!(answer(&[INIT, background, INIT, &first]), "one");
    // Without a second init the first result completes, as it does without a background agent.
    assert_eq!(answer(&[INIT, background, &first, INIT, &second]), "one");
    assert_eq!(answer(&[INIT, &background.replace("true", "false"), INIT, &first, &second]), "one");
    // Calls of the second turn are still translated.
    let events = run(&[INIT, background, INIT, &first, &call("t", "X", "{}"), &result("t", ""), &second]);
    assert_eq!(outline(&events), ["started", "started t", "completed t", "completed"]);
}

#[test]
fn a_session_file_ends_as_its_last_message_did() {
    let user = r#"{"type":"user","sessionId":"s","message":{"content":"go"}}"#;
    let said = |stop: &str, rest: &str| {
        format!(
            r#"{{"type":"assistant","sessionId":"s"{rest},"message":{{"model":"m","stop_reason":{stop},"content":[{{"type":"text","text":"hi"}}]}}}}"#
        )
    };
    let underway = "the session file ends before the agent has answered";
    for (lines, error) in [
        (vec![user, &said("\"end_turn\"", "")], None),
        (vec![user, &said("\"tool_use\"", "")], Some(underway)),
        (vec![user, &said("\"end_turn\"", ""), user], Some(underway)),
        (vec![user, &said("\"stop_sequence\"", r#","error":"server_error","isApiErrorMessage":true"#)], Some("hi")),
        (vec![user], Some(underway)),
    ] {
        let events = run(&lines);
        assert_eq!(outline(&events), ["started", "completed"]);
        assert_eq!(events[0]["title"], if lines.len() == 1 { "claude" } else { "m" });
        assert_eq!(last(&events).get("error").and_then(Value::as_str), error, "{lines:?}");
        assert_eq!(last(&events)["ok"], error.is_none());
    }
}

#[test]
fn arguments_that_would_fill_the_memory_are_not_repeated() {
    let huge = format!(r#"{{"content":"{}"}}"#, "x".repeat(70_000));
    let events = run(&[&call("t", "X", &huge), &result("t", ""), OK]);
    assert!(events[1]["action"]["detail"].get("tool_input").is_some());
    assert_eq!(events[2]["action"]["detail"].get("tool_input"), None);
    // A stream that never closes its calls.
    let mut translator = Translator::new(None, None);
    let big = format!(r#"{{"content":"{}"}}"#, "x".repeat(60_000));
    for n in 0..100 {
        push(&mut translator, &[&call(&n.to_string(), "X", &big)]);
    }
    let kept = end(&mut translator, &Ended::default());
    let repeated = kept.iter().filter(|event| event["action"]["detail"].get("tool_input").is_some()).count();
    assert!((1..100).contains(&repeated), "{repeated}");
}

// Labels.

#[test]
fn labels_follow_the_table() {
    for (name, input, kind, text) in [
        ("Bash", r#"{"command":"cat /p/a.md\n  | wc"}"#, "command", "cat a.md | wc"),
        ("bash", "{}", "command", "bash"),
        ("killshell", "{}", "command", "killshell"),
        ("Write", r#"{"file_path":"/p/x/a.md"}"#, "file_change", "x/a.md"),
        ("edit", r#"{"path":"/other/a.md"}"#, "file_change", "/other/a.md"),
        ("NotebookEdit", "{}", "file_change", "NotebookEdit"),
        ("Read", r#"{"file_path":"/p/a.md"}"#, "tool", "read: `a.md`"),
        ("read", "{}", "tool", "read"),
        ("Glob", r#"{"pattern":"*.md"}"#, "tool", "glob: `*.md`"),
        ("Grep", r#"{"pattern":"x y"}"#, "tool", "grep: x y"),
        ("find", "{}", "tool", "find"),
        ("LS", r#"{"path":"/p/d"}"#, "tool", "ls: `d`"),
        ("WebSearch", r#"{"query":"q"}"#, "web_search", "q"),
        ("web_search", "{}", "web_search", "search"),
        ("WebFetch", r#"{"url":"u"}"#, "web_search", "u"),
        ("web_fetch", "{}", "web_search", "fetch"),
        ("TodoWrite", r#"{"todos":[]}"#, "note", "update todos"),
        ("TodoRead", "{}", "note", "read todos"),
        ("AskUserQuestion", "{}", "note", "ask user"),
        ("Task", r#"{"description":"d","prompt":"p"}"#, "subagent", "d"),
        ("Agent", r#"{"prompt":"p"}"#, "subagent", "p"),
        ("agent", "{}", "subagent", "agent"),
        ("mcp__ktx__read_raw_file", r#"{"path":"schema.yml"}"#, "tool", "read_raw_file schema.yml"),
        ("mcp__ktx__wiki_search", r#"{"limit":3,"query":"arr"}"#, "tool", "wiki_search \"arr\""),
        ("mcp__ktx__sl_write_source", r#"{"connectionId":"c","sourceName":"mart"}"#, "tool", "sl_write_source mart"),
        ("mcp__ktx__wiki_list_tags", "{}", "tool", "wiki_list_tags"),
        ("mcp__a__b__c", r#"{"key":7}"#, "tool", "b__c 7"),
        ("mcp__odd", r#"{"path":{"a":1}}"#, "tool", "mcp__odd"),
        ("Skill", "[]", "tool", "Skill"),
    ] {
        let label = label::call(name, Some(Raw(input)), Some("/p/"));
        assert_eq!((label.kind.word(), &*label.text), (kind, text), "{name} {input}");
    }
    assert_eq!(label::call("Bash", None, None).text, "Bash");
}

#[test]
fn the_label_of_an_action_knows_its_call() {
    let mut labels = Vec::new();
    let mut translator = Translator::new(None, None);
    for line in [call("t", "mcp__ktx__wiki_read", r#"{"key":"a\nb"}"#), result("t", ""), result("u", ""), "x".into()] {
        translator.push(&decode::line(line.as_bytes()), line.as_bytes(), &mut |event| {
            if let Event::Action(action) = &event {
                labels.push(label::of(&action.action).to_string());
            }
        });
    }
    assert_eq!(labels, ["wiki_read a b", "wiki_read a b", "tool result", "invalid JSON from claude; ignoring line"]);
}

#[test]
fn results_are_summed_up() {
    let lines = format!("\"{}\"", "line\\n".repeat(12));
    let long = format!("\"{}\"", "x".repeat(16_077));
    for (content, fact) in [
        (None, "empty"),
        (Some("\"\""), "empty"),
        (Some("[]"), "empty"),
        (Some("\"one line\""), "8 B"),
        (Some(&*lines), "12 lines"),
        (Some(&*long), "15.7 KB"),
        (Some(r#"[{"type":"text","text":"a\nb"},{"type":"text","text":"c"}]"#), "3 lines"),
        (Some(r#"[{"type":"image","source":{}}]"#), "1 image"),
        (Some(r#"[{"type":"image"},{"type":"image"},{"type":"text","text":"x"}]"#), "2 images"),
    ] {
        assert_eq!(label::result_fact(content.map(Raw)), fact, "{content:?}");
    }
    for (bytes, shown) in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KB"),
        (1024 * 1024 - 1, "1.0 MB"),
        (5 * 1024 * 1024 * 1024, "5.0 GB"),
        (5 << 40, "5120.0 GB"),
    ] {
        assert_eq!(label::size(bytes), shown);
    }
}

// Whatever comes.

/// Lines that mean something, some that do not.
fn any_stream() -> impl Strategy<Value = Vec<String>> {
    let id = prop::sample::select(vec!["a", "b", "c", "", "é\\n"]);
    let session = prop::sample::select(vec!["s", "s", "s", "other", ""]);
    let line = prop_oneof![
        Just(INIT.to_owned()),
        Just(OK.to_owned()),
        Just(
            r#"{"type":"result","is_error":true,"session_id":"s","permission_denials":["Bash",{"tool_use_id":"a"}]}"#
                .to_owned()
        ),
        Just(r#"{"type":"system","subtype":"task_started","is_backgrounded":true}"#.to_owned()),
        Just("{".to_owned()),
        ".{0,40}",
        id.clone().prop_map(|id| call(id, "Bash", r#"{"command":"x\u0007"}"#)),
        id.clone().prop_map(|id| call(id, "Write", r#"{"path":"\ud800"}"#)),
        id.clone().prop_map(|id| result(id, r#","content":["x"],"is_error":true"#)),
        id.clone()
            .prop_map(|id| format!(r#"{{"type":"tool_progress","tool_use_id":"{id}","elapsed_time_seconds":1.5}}"#)),
        id.prop_map(|id| format!(r#"{{"type":"system","subtype":"permission_denied","tool_use_id":"{id}"}}"#)),
        any::<String>().prop_map(|said| text(&said)),
    ];
    let line = (line, session).prop_map(|(line, session)| line.replace("\"s\"", &format!("\"{session}\"")));
    prop::collection::vec(line, 0..30)
}

proptest! {
    #[test]
    fn every_stream_obeys_the_contract(lines in any_stream(), resume in any::<bool>(), tolerant in any::<bool>()) {
        let mut translator = Translator::new(resume.then_some("s"), None);
        if tolerant {
            translator = translator.tolerate_mismatch();
        }
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        let events = run_with(translator, &lines);
        check(&events);
    }

    #[test]
    fn a_clone_goes_on_as_the_original_does(lines in any_stream(), at in any::<prop::sample::Index>()) {
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        let (before, after) = lines.split_at(at.index(lines.len() + 1));
        let mut translator = Translator::new(None, None);
        push(&mut translator, before);
        prop_assert_eq!(run_with(translator.clone(), after), run_with(translator, after));
    }
}

/// What holds for the events of every run.
fn check(events: &[Value]) {
    let outline = outline(events);
    assert_eq!(outline.last().map(String::as_str), Some("completed"));
    assert_eq!(outline.iter().filter(|event| *event == "completed").count(), 1);
    assert!(outline.iter().filter(|event| *event == "started").count() <= 1);
    if let Some(started) = events.iter().find(|event| event["type"] == "started") {
        assert_eq!(started["resume"], last(events)["resume"]);
    }
    let mut open = std::collections::BTreeMap::new();
    for event in events.iter().filter(|event| event["type"] == "action") {
        let (id, title) = (event["action"]["id"].as_str().unwrap(), &event["action"]["title"]);
        assert!(!id.is_empty());
        match event["phase"].as_str().unwrap() {
            "started" => {
                open.insert(id, title);
            }
            "updated" => assert_eq!(open.get(id), Some(&title)),
            _ => {
                if let Some(opened) = open.remove(id) {
                    assert_eq!(opened, title);
                }
            }
        }
    }
    assert!(open.is_empty(), "never settled: {open:?}");
}
