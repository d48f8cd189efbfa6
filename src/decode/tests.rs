//! What the decoder makes of good, odd and hostile lines.

use std::borrow::Cow;

use proptest::prelude::*;
use serde_json::{Value, json, value::RawValue};

use super::{
    Block, Body, Chat, Kind, Line, Raw, content_text, is_json, kind, line,
    line::{Delta, Denial, System},
};

fn body(text: &str) -> Body<'_> {
    line(text.as_bytes()).body
}

fn chat(text: &str) -> Chat<'_> {
    match body(text) {
        Body::Assistant(chat) | Body::User(chat) => chat,
        other => panic!("{other:?}"),
    }
}

fn result_of<'a>(text: &'a str) -> Box<super::ResultLine<'a>> {
    match body(text) {
        Body::Result(result) => result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_an_object_with_a_text_type_is_a_line() {
    for text in [
        "",
        " ",
        "\r",
        "not json",
        "[]",
        "42",
        "null",
        "\"type\"",
        "{}",
        "{",
        "{\"type\"",
        "{\"type\":",
        "{\"type\":\"user\"",
        "{\"type\":\"user\",",
        "{\"type\":\"user\",}",
        "{\"type\":\"user\"}}",
        "{\"type\":\"user\"} x",
        "{\"type\":\"user\" \"a\":1}",
        "{\"type\":\"user\",\"a\":}",
        "{\"type\":\"user\",\"a\":[1,]}",
        "{\"type\":\"user\",\"a\":[1}}",
        "{\"type\":\"user\",\"a\":01}",
        "{\"type\":\"user\",\"a\":1.}",
        "{\"type\":\"user\",\"a\":nul}",
        "{\"type\":\"user\",\"a\":\"open}",
        "{\"type\":\"user\",a:1}",
        "{\"type\":7}",
        "{\"type\":null}",
        "{\"no\":\"type\"}",
        "\0\0\0",
    ] {
        assert_eq!(body(text), Body::Malformed, "{text}");
    }
}

#[test]
fn white_space_byte_order_mark_and_carriage_return_do_not_matter() {
    let text = "\u{feff} { \"type\" : \"keep_alive\" , \"a\" : [ ] , \"b\" : { } }\r\n";
    assert_eq!(body(text).kind(), Kind::Control);
}

#[test]
fn the_type_may_stand_anywhere_and_keys_may_be_escaped() {
    let first = result_of(r#"{"type":"result","subtype":"success","is_error":false,"result":"ok"}"#);
    let last = result_of(r#"{"result":"ok","is_error":false,"subtype":"success","\u0074ype":"result"}"#);
    assert_eq!(first, last);
    assert_eq!(first.result.as_deref(), Some("ok"));
}

#[test]
fn the_first_type_and_the_last_value_of_a_field_count() {
    let decoded = line(br#"{"type":"user","session_id":"a","type":"result","session_id":"b"}"#);
    assert_eq!(decoded.body.kind(), Kind::User);
    assert_eq!(decoded.session_id.as_deref(), Some("b"));
}

#[test]
fn a_field_of_the_wrong_type_costs_only_itself() {
    let found = result_of(
        r#"{"type":"result","subtype":7,"is_error":"yes","num_turns":"3","usage":[1],"result":{"a":1},
            "errors":"none","permission_denials":{"a":1},"total_cost_usd":0.5,"duration_ms":12.7,"duration_api_ms":-1}"#,
    );
    assert_eq!((found.subtype.clone(), found.is_error, found.num_turns), (None, None, None));
    assert_eq!((found.result.clone(), found.errors.len(), found.denials.len()), (None, 0, 0));
    assert_eq!((found.usage, found.total_cost_usd), (Some(Raw("[1]")), Some(0.5)));
    assert_eq!((found.duration_ms, found.duration_api_ms), (Some(12), None));

    let found = chat(
        r#"{"type":"assistant","parent_tool_use_id":9,"message":{"id":false,"model":"m","content":[
            {"type":"text","text":5},{"type":"tool_use","id":1,"name":null,"input":null},3,null,"plain",
            {"text":"no type"},{"type":"new_block","x":[{}]},{"type":"tool_result","is_error":"true","content":null}]}}"#,
    );
    assert_eq!((found.message_id.clone(), found.model.as_deref()), (None, Some("m")));
    let shapes: Vec<_> = found
        .blocks
        .iter()
        .map(|block| match block {
            Block::Text(text) => format!("text {text:?}"),
            Block::ToolUse(call) => format!("call {:?} {:?} {:?}", call.id, call.name, call.input),
            Block::ToolResult(result) => format!("result {:?} {:?}", result.content, result.is_error),
            Block::Unknown(kind) => format!("unknown {kind}"),
            Block::Thinking(_) | Block::Image(_) => "?".to_owned(),
        })
        .collect();
    assert_eq!(shapes, ["text \"\"", "call \"\" \"\" None", "text \"plain\"", "unknown new_block", "result None None"]);
}

#[test]
fn content_may_be_a_string_an_object_or_beside_the_message() {
    for text in [
        r#"{"type":"user","message":{"content":"hi"}}"#,
        r#"{"type":"user","message":{"content":{"type":"text","text":"hi"}}}"#,
        r#"{"type":"user","message":{"content":["hi"]}}"#,
        r#"{"type":"user","message":"hi"}"#,
        r#"{"type":"assistant_message","content":[{"type":"text","text":"hi"}]}"#,
    ] {
        assert_eq!(chat(text).blocks, [Block::Text("hi".into())], "{text}");
    }
    assert!(chat(r#"{"type":"user","message":null}"#).blocks.is_empty());
    assert!(chat(r#"{"type":"user"}"#).blocks.is_empty());
}

#[test]
fn top_level_calls_and_results_are_messages_of_one_block() {
    let text = r#"{"type":"tool_use","id":"t1","name":"read_file","input":{"a":[1,2]},"session_id":"s"}"#;
    let decoded = line(text.as_bytes());
    assert_eq!((decoded.session_id.as_deref(), decoded.body.kind()), (Some("s"), Kind::Assistant));
    let Block::ToolUse(call) = &chat(text).blocks[0] else { panic!() };
    assert_eq!((&*call.id, &*call.name, call.input), ("t1", "read_file", Some(Raw(r#"{"a":[1,2]}"#))));

    let found =
        chat(r#"{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"x"}],"is_error":true}"#);
    let Block::ToolResult(result) = &found.blocks[0] else { panic!() };
    assert_eq!((&*result.tool_use_id, &*result.text(), result.is_error), ("t1", "x", Some(true)));
}

#[test]
fn refusals_are_known_by_the_meta_and_in_session_files_by_the_line() {
    let line_with = |meta: &str| {
        format!(
            r#"{{"type":"user","message":{{"content":[{{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":"no"}}]}},{meta}}}"#
        )
    };
    for (meta, refused) in [
        (r#""tool_result_meta":[{"id":"t1","non_execution_kind":"user-rejected"}]"#, true),
        (r#""tool_result_meta":[{"id":"t1","permission_decision":{"decision":"reject","source":"hook"}}]"#, true),
        (r#""tool_result_meta":[{"id":"t1","permission_decision":"reject"}]"#, true),
        (r#""toolDenialKind":"permission-rule""#, true),
        (r#""permissionDecision":{"decision":"reject"}"#, true),
        (r#""tool_result_meta":[{"id":"t1","permission_decision":{"decision":"accept"}}]"#, false),
        (r#""tool_result_meta":[{"id":"t1"}]"#, false),
        (r#""tool_result_meta":[{"non_execution_kind":"interrupted"}]"#, false),
        (r#""tool_result_meta":"odd""#, false),
        (r#""permissionDecision":{"decision":"accept"}"#, false),
    ] {
        let text = line_with(meta);
        let ids: &[Cow<'_, str>] = if refused { &[Cow::Borrowed("t1")] } else { &[] };
        assert_eq!(chat(&text).refused, ids, "{meta}");
    }
}

#[test]
fn marks_beside_the_message_are_read_in_both_spellings() {
    for text in [
        r#"{"type":"assistant","error":"rate_limit","api_error":"usage_limit_reached","api_error_status":429,"aborted":true,"message":{"stop_reason":"stop_sequence"}}"#,
        r#"{"type":"assistant","error":{"message":"rate_limit"},"apiError":"usage_limit_reached","apiErrorStatus":429,"isAbortedMidStream":true,"message":{"stop_reason":"stop_sequence"}}"#,
    ] {
        let found = chat(text);
        assert_eq!(
            (found.error.as_deref(), found.api_error.as_deref(), found.api_error_status, found.aborted),
            (Some("rate_limit"), Some("usage_limit_reached"), Some(429), true)
        );
        assert_eq!(found.stop_reason.as_deref(), Some("stop_sequence"));
    }
    assert!(chat(r#"{"type":"user","isSynthetic":true}"#).synthetic);
    assert!(chat(r#"{"type":"user","isMeta":true}"#).synthetic);
}

#[test]
fn lines_of_a_session_file_say_so() {
    let decoded = line(br#"{"type":"user","sessionId":"s","timestamp":"2026-11-21T23:48:18.877Z"}"#);
    assert!(decoded.on_disk);
    assert_eq!(decoded.session_id.as_deref(), Some("s"));
    assert_eq!(decoded.timestamp.as_deref(), Some("2026-11-21T23:48:18.877Z"));
    assert_eq!(line(br#"{"type":"user","session_id":""}"#).session_id, None);
}

#[test]
fn system_lines_are_told_apart_wherever_the_subtype_stands() {
    let cases: [(&str, System<'_>); 8] = [
        (
            r#"{"type":"system","tool_name":"Bash","tool_use_id":"t","message":"no","subtype":"permission_denied"}"#,
            System::PermissionDenied { tool_name: "Bash".into(), tool_use_id: "t".into(), message: Some("no".into()) },
        ),
        (
            r#"{"type":"system","subtype":"api_retry","attempt":2,"max_retries":10,"retry_delay_ms":613.5,"error_status":null,"error":"unknown"}"#,
            System::ApiRetry {
                attempt: Some(2),
                max_retries: Some(10),
                delay_ms: Some(613.5),
                status: None,
                error: Some("unknown".into()),
            },
        ),
        (
            r#"{"type":"system","subtype":"api_error","retryAttempt":1,"maxRetries":2,"retryInMs":613,"error":{"status":500,"formatted":"500 oops","message":"long"}}"#,
            System::ApiRetry {
                attempt: Some(1),
                max_retries: Some(2),
                delay_ms: Some(613.0),
                status: Some(500),
                error: Some("500 oops".into()),
            },
        ),
        (
            r#"{"type":"system","subtype":"compact_boundary","compact_metadata":{"trigger":"auto","pre_tokens":985107}}"#,
            System::Compacted { trigger: Some("auto".into()), pre_tokens: Some(985_107) },
        ),
        (
            r#"{"type":"system","subtype":"model_fallback","original_model":"a","fallback_model":"b"}"#,
            System::ModelFallback { from: Some("a".into()), to: Some("b".into()) },
        ),
        (
            r#"{"type":"system","subtype":"task_updated","task_id":"x","patch":{"status":"completed"}}"#,
            System::Task {
                subtype: "task_updated".into(),
                task_id: Some("x".into()),
                tool_use_id: None,
                backgrounded: false,
                status: Some("completed".into()),
            },
        ),
        (
            r#"{"type":"system","subtype":"notification","text":"look","priority":"immediate"}"#,
            System::Notice { text: "look".into(), level: Some("immediate".into()) },
        ),
        (
            r#"{"type":"system","subtype":"thinking_tokens","estimated_tokens":1}"#,
            System::Other("thinking_tokens".into()),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(body(text), Body::System(expected), "{text}");
    }
    assert_eq!(body(r#"{"type":"system"}"#), Body::System(System::Other("".into())));
}

#[test]
fn init_keeps_what_it_has() {
    let Body::Init(init) = body(
        r#"{"type":"system","subtype":"init","tools":["a",1,"b"],"mcp_servers":[{"name":"ktx","status":"failed"},{"status":"x"},7],
            "plugins":[{"name":"p","path":"builtin"}],"model":null,"cwd":"/p","skills":"odd"}"#,
    ) else {
        panic!()
    };
    assert_eq!(init.tools, ["a", "b"]);
    assert_eq!(init.tools_raw, Some(Raw(r#"["a",1,"b"]"#)));
    assert_eq!(init.mcp_servers, [("ktx".into(), "failed".into())]);
    assert_eq!(init.plugins, [("p".into(), "builtin".into())]);
    assert_eq!((init.model.as_deref(), init.cwd.as_deref(), init.skills.len()), (None, Some("/p"), 0));
    let Body::Init(init) = body(r#"{"type":"system","subtype":"init"}"#) else { panic!() };
    assert_eq!(*init, super::line::Init::default());
}

#[test]
fn progress_names_the_call_itself() {
    for (id, expected) in [
        ("t1-heartbeat-0", "t1"),
        ("t1-heartbeat-12", "t1"),
        ("t1", "t1"),
        ("a-heartbeat-b-heartbeat-3", "a-heartbeat-b"),
        ("t1-heartbeat-x", "t1-heartbeat-x"),
        ("-heartbeat-1", "-heartbeat-1"),
    ] {
        let text = format!(
            r#"{{"type":"tool_progress","tool_use_id":"{id}","parent_tool_use_id":"t1","elapsed_time_seconds":30}}"#
        );
        let decoded = line(text.as_bytes());
        let parent = if expected == "t1" { None } else { Some("t1") };
        assert_eq!(decoded.parent_tool_use_id.as_deref(), parent);
        assert_eq!(decoded.body, Body::ToolProgress { tool_use_id: expected.into(), elapsed_seconds: 30.0 });
    }
}

#[test]
fn reset_times_are_seconds() {
    for (written, expected) in
        [("1795311594", Some(1_795_311_594)), ("1795311594123", Some(1_795_311_594)), ("\"soon\"", None), ("-4", None)]
    {
        let text = format!(
            r#"{{"type":"rate_limit_event","rate_limit_info":{{"status":"rejected","resetsAt":{written},"rateLimitType":"five_hour","utilization":0.93}}}}"#
        );
        let Body::RateLimit(limit) = body(&text) else { panic!() };
        assert_eq!((limit.resets_at, limit.utilization), (expected, Some(0.93)));
        assert_eq!((&*limit.status, limit.limit.as_deref()), ("rejected", Some("five_hour")));
    }
}

#[test]
fn control_frames_keep_their_payload() {
    let text = r#"{"type":"control_request","request_id":"r","request":{"subtype":"mcp_message","message":{"id":1}}}"#;
    let payload = Raw(r#"{"subtype":"mcp_message","message":{"id":1}}"#);
    assert_eq!(
        body(text),
        Body::Control {
            kind: "control_request".into(),
            subtype: "mcp_message".into(),
            request_id: "r".into(),
            payload: Some(payload)
        }
    );
    let Body::Control { subtype, request_id, payload, .. } =
        body(r#"{"type":"control_response","response":{"subtype":"success","request_id":"q"}}"#)
    else {
        panic!()
    };
    assert_eq!((&*subtype, &*request_id), ("success", "q"));
    assert_eq!(payload.and_then(|payload| payload.get("response")), None);
    let Body::Control { subtype, request_id, .. } =
        body(r#"{"type":"command_lifecycle","command_uuid":"u","state":"queued"}"#)
    else {
        panic!()
    };
    assert_eq!((&*subtype, &*request_id), ("queued", "u"));
}

#[test]
fn partial_messages_add_text_or_thinking() {
    for (event, expected) in [
        (r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}"#, Delta::Text("a".into())),
        (r#"{"type":"content_block_delta","delta":{"thinking":"b"}}"#, Delta::Thinking("b".into())),
        (r#"{"type":"message_stop"}"#, Delta::Other("message_stop".into())),
        (r#""odd""#, Delta::Other("".into())),
    ] {
        let text = format!(r#"{{"type":"stream_event","event":{event}}}"#);
        assert_eq!(body(&text), Body::StreamEvent(expected));
    }
}

#[test]
fn denials_may_be_names_and_errors_may_be_objects() {
    let found = result_of(
        r#"{"type":"result","permission_denials":["Bash",{"tool_name":"Write","tool_use_id":"t","tool_input":{"a":1}},{},null,4],
            "errors":["one",{"message":"two"},{"error":"three"},{},5]}"#,
    );
    assert_eq!(found.errors, ["one", "two", "three"]);
    assert_eq!(
        found.denials,
        [
            Denial { tool_name: Some("Bash".into()), tool_use_id: None, tool_input: None },
            Denial {
                tool_name: Some("Write".into()),
                tool_use_id: Some("t".into()),
                tool_input: Some(Raw(r#"{"a":1}"#))
            },
        ]
    );
    assert!(result_of(r#"{"type":"result","permission_denials":null}"#).denials.is_empty());
}

#[test]
fn text_that_is_no_text_is_repaired() {
    for (inside, expected) in [
        (r"a\ud800b", "a\u{fffd}b"),
        (r"\udc00\ud83d\ude00", "\u{fffd}😀"),
        (r"\ud83dx\ude00", "\u{fffd}x\u{fffd}"),
        (r"\ud83d\n", "\u{fffd}\n"),
        (r"\ud83d\ud83d\ude00", "\u{fffd}😀"),
        (r"\u0000\u001b[0m\u202e", "\0\u{1b}[0m\u{202e}"),
        (r"\q\u12", "\u{fffd}\u{fffd}12"),
        (r"\é", "\u{fffd}"),
        (r#"\"\\\/\b\f\n\r\t"#, "\"\\/\u{8}\u{c}\n\r\t"),
        ("raw\ttab", "raw\ttab"),
    ] {
        let text = format!(r#"{{"type":"user","message":"{inside}"}}"#);
        assert_eq!(chat(&text).blocks, [Block::Text(expected.into())], "{inside}");
    }
    let bytes = b"{\"type\":\"user\",\"message\":\"a\xff\\n\xc3b\"}";
    let Body::User(chat) = line(bytes).body else { panic!() };
    assert_eq!(chat.blocks, [Block::Text("a\u{fffd}\n\u{fffd}b".into())]);
}

#[test]
fn a_raw_value_is_valid_json_or_says_that_it_is_not() {
    let content_of = |inside: &[u8]| {
        let mut text = br#"{"type":"tool_result","tool_use_id":"t","content":"#.to_vec();
        text.extend_from_slice(inside);
        text.push(b'}');
        let Body::User(chat) = line(&text).body else { panic!("{}", String::from_utf8_lossy(&text)) };
        let Block::ToolResult(result) = &chat.blocks[0] else { panic!() };
        assert_eq!(result.tool_use_id, "t");
        result.content.map(|content| content.0.to_owned())
    };
    for good in [r#""a\ud800""#, r#"["\u00e9\\\"",{"k\n":-1.5e+3}]"#, "0", "true"] {
        assert_eq!(content_of(good.as_bytes()).as_deref(), Some(good));
    }
    let long = "x".repeat(200);
    for bad in [
        "\"tab\tinside\"",
        "\"nul\0\"",
        r#""\q""#,
        r#""\u12g4""#,
        r#"[1,{"\q":2}]"#,
        &format!("\"{long}\\q{long}\""),
        &format!("\"{long}\t{long}\""),
    ] {
        assert_eq!(content_of(bad.as_bytes()).as_deref(), Some(Raw::UNREADABLE.0), "{bad}");
    }
    assert_eq!(content_of(b"\"\xff\"").as_deref(), Some(Raw::UNREADABLE.0));
    assert_eq!(content_of(b"null"), None);
}

#[test]
fn the_second_copy_of_a_result_is_passed_over_whatever_it_is() {
    for (content, copy) in [
        (r#"[{"type":"text","text":"same"}]"#, r#"[{"type":"text","text":"same"}]"#),
        (r#""same""#, r#""same but longer""#),
        ("12", "123"),
        ("[]", "[]"),
        (r#""x""#, r#"{"other":[1,2]}"#),
    ] {
        let text = format!(
            r#"{{"type":"user","message":{{"content":[{{"type":"tool_result","tool_use_id":"t","content":{content}}}]}},"tool_use_result":{copy},"session_id":"s"}}"#
        );
        assert_eq!(line(text.as_bytes()).session_id.as_deref(), Some("s"), "{text}");
        let broken = text.replace(",\"session_id\"", "\"session_id\"");
        assert_eq!(body(&broken), Body::Malformed);
    }
}

#[test]
fn depth_and_length_cost_no_stack() {
    for depth in [1, 63, 64, 65, 127, 128, 129, 200, 1_000_000] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]")] {
            let nested = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            let text = format!(r#"{{"type":"tool_result","content":{nested},"session_id":"s"}}"#);
            let decoded = line(text.as_bytes());
            assert_eq!(decoded.session_id.as_deref(), Some("s"), "{depth} {open}");
            let wrong = text.replace(&format!("1{close}"), "1");
            assert_eq!(body(&wrong), Body::Malformed);
        }
        let open_only = "[".repeat(depth);
        assert_eq!(body(&format!(r#"{{"type":"user","a":{open_only}"#)), Body::Malformed);
    }
    let long = "a\\n\\\"".repeat(2_000_000);
    let text = format!(r#"{{"type":"assistant","message":{{"content":[{{"type":"text","text":"{long}"}}]}}}}"#);
    let Block::Text(found) = &chat(&text).blocks[0] else { panic!() };
    assert_eq!(found.len(), 6_000_000);
}

#[test]
fn kinds_are_guessed_from_a_prefix_or_not_at_all() {
    for (prefix, expected) in [
        (r#"{"type":"user","mess"#, Some(Kind::User)),
        (r#"{"type": "assistant""#, Some(Kind::Assistant)),
        (r#"{"type":"system","subtype":"init","cw"#, Some(Kind::Init)),
        (r#"{"type":"system","subtype":"status"#, None),
        (r#"{"type":"system","subtype":"status","x"#, Some(Kind::System)),
        (r#"{"type":"system"}"#, Some(Kind::System)),
        (r#"{"subtype":"init","type":"system","uuid":"1"}"#, Some(Kind::Init)),
        (r#"{"duration_api_ms":4,"is_error":false,"type":"result","#, Some(Kind::Result)),
        (r#"{"duration_api_ms":4,"usage":{"input_tok"#, None),
        (r#"{"type":"queue-operation"}"#, Some(Kind::Other)),
        (r#"{"type":"control_response""#, Some(Kind::Control)),
        ("not json", None),
        ("", None),
        (r#"{"type":4}"#, None),
    ] {
        assert_eq!(kind(prefix.as_bytes()), expected, "{prefix}");
    }
}

#[test]
fn content_is_shown_as_text() {
    for (content, expected) in [
        (r#""plain\n""#, "plain\n"),
        (r#"[{"type":"text","text":"a"},{"type":"text","text":"b\u0041"}]"#, "a\nbA"),
        (r#"[{"type":"image","source":{}},"c",{"type":"resource"},{"x":1}]"#, "[image]\nc\n[resource]\n{\"x\":1}"),
        (r#"{"a":1}"#, "{\"a\":1}"),
        ("12.5", "12.5"),
        ("[]", ""),
    ] {
        assert_eq!(content_text(Raw(content)), expected);
    }
}

#[test]
fn raw_values_are_read_piecewise() {
    let raw = Raw(r#"{"a":1,"b":"x\ud800","c":null,"a":[2]}"#);
    assert_eq!(raw.pick(["b", "a", "c", "d"]), [Some(Raw(r#""x\ud800""#)), Some(Raw("[2]")), None, None]);
    assert_eq!(raw.get("b").and_then(Raw::as_str).as_deref(), Some("x\u{fffd}"));
    assert_eq!(raw.value(), json!({"a": [2], "b": "x\u{fffd}", "c": null}));
    assert_eq!(Raw("7").as_u64(), Some(7));
    assert_eq!(Raw("\"7\"").as_u64(), None);
    assert_eq!(Raw("[1,null,{}]").items(), [Raw("1"), Raw("{}")]);
    assert_eq!(Raw(&"[".repeat(300)).value(), Value::Null);
}

/// JSON values with every kind of oddity, as text.
fn any_json() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("type"),
        Just("subtype"),
        Just("message"),
        Just("content"),
        Just("id"),
        Just("tool_use_id"),
        Just("input"),
        Just("name"),
        Just("text"),
        Just("user"),
        Just("assistant"),
        Just("system"),
        Just("result"),
        Just("tool_use"),
        Just("tool_result"),
        Just("init"),
        Just("request"),
        Just("response"),
        Just("errors"),
        Just("permission_denials"),
        Just("usage"),
        Just("tool_result_meta"),
        Just("tool_use_result"),
        Just("patch"),
        Just("\\ud800"),
        Just("a\\\\"),
        Just("\\\""),
        Just("é☃"),
        Just(""),
    ]
    .prop_map(|word| format!("\"{word}\""));
    let long = "[ -~é\n]{0,150}".prop_map(|text| serde_json::to_string(&text).unwrap());
    let leaf = prop_oneof![
        word.clone(),
        long,
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<f64>().prop_filter("JSON has no infinity", |n| n.is_finite()).prop_map(|n| n.to_string()),
        any::<i64>().prop_map(|n| n.to_string()),
    ];
    leaf.prop_recursive(5, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec((word.clone(), inner), 0..8).prop_map(|fields| {
                let fields: Vec<_> = fields.into_iter().map(|(key, value)| format!("{key} : {value}")).collect();
                format!("{{{}}}", fields.join(" , "))
            }),
        ]
    })
}

fn any_line() -> impl Strategy<Value = String> {
    let kinds = prop::sample::select(vec![
        "user",
        "assistant",
        "system",
        "result",
        "stream_event",
        "tool_progress",
        "rate_limit_event",
        "tool_use",
        "tool_result",
        "control_request",
        "control_response",
        "assistant_message",
        "future",
    ]);
    let keys = prop::sample::select(vec![
        "message",
        "content",
        "subtype",
        "session_id",
        "sessionId",
        "parent_tool_use_id",
        "tool_use_result",
        "usage",
        "tool_result_meta",
        "event",
        "rate_limit_info",
        "request",
        "response",
        "errors",
        "permission_denials",
        "tools",
        "mcp_servers",
        "patch",
        "error",
        "is_error",
        "result",
        "tool_use_id",
        "type",
    ]);
    (kinds, prop::collection::vec((keys, any_json()), 0..8)).prop_map(|(kind, fields)| {
        let mut text = format!("{{\"type\":\"{kind}\"");
        for (key, value) in fields {
            text.push_str(&format!(",\"{key}\":{value}"));
        }
        text.push('}');
        text
    })
}

/// Every raw value of a line.
fn raws<'a>(line: &Line<'a>) -> Vec<Raw<'a>> {
    let mut found = Vec::new();
    match &line.body {
        Body::Assistant(chat) | Body::User(chat) => {
            for block in &chat.blocks {
                match block {
                    Block::ToolUse(call) => found.extend(call.input),
                    Block::ToolResult(result) => found.extend(result.content),
                    _ => {}
                }
            }
        }
        Body::Result(result) => {
            found.extend(result.usage);
            found.extend(result.model_usage);
            found.extend(result.denials.iter().filter_map(|denial| denial.tool_input));
        }
        Body::Init(init) => found.extend([init.tools_raw, init.mcp_servers_raw].into_iter().flatten()),
        Body::Control { payload, .. } => found.extend(payload),
        _ => {}
    }
    found
}

#[test]
fn what_is_json_is_told_to_the_letter() {
    for json in ["{}", " [1, -2.5e3 ,true]\r\n", "\"\\ud800\"", "null", "0"] {
        assert!(is_json(json.as_bytes()), "{json}");
    }
    let broken: [&[u8]; 12] = [
        b"", b" ", b"{} {}", b"{\"a\":1,}", b"\xEF\xBB\xBF{}", b"\"\xff\"", b"\"a\tb\"", b"\"\\x\"", b"01", b"{\"a\"}",
        b"nul", b"[1",
    ];
    for json in broken {
        assert!(!is_json(json), "{}", String::from_utf8_lossy(json));
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = (line(&bytes), kind(&bytes));
    }

    #[test]
    fn valid_lines_are_never_malformed_and_the_guess_is_right(text in any_line()) {
        let decoded = line(text.as_bytes());
        prop_assert!(serde_json::from_str::<&RawValue>(&text).is_ok());
        prop_assert_ne!(&decoded.body, &Body::Malformed);
        prop_assert_eq!(kind(text.as_bytes()), Some(decoded.body.kind()));
        for raw in raws(&decoded) {
            prop_assert!(serde_json::from_str::<&RawValue>(raw.0).is_ok(), "{}", raw.0);
        }
    }

    #[test]
    fn it_is_json_if_others_take_it_for_json(
        text in any_line(), at in any::<prop::sample::Index>(), byte in prop_oneof![Just(None), any::<u8>().prop_map(Some)],
        long in any::<bool>(),
    ) {
        let mut bytes = text.into_bytes();
        if long {
            // Longer texts are checked in another order.
            let end = bytes.len() - 1;
            bytes.splice(end..end, format!(",\"pad\":\"{}\"", "é ".repeat(3000)).into_bytes());
        }
        let at = at.index(bytes.len());
        match byte {
            Some(byte) => bytes[at] = byte,
            None => drop(bytes.remove(at)),
        }
        prop_assert_eq!(is_json(&bytes), serde_json::from_slice::<&RawValue>(&bytes).is_ok());
    }

    #[test]
    fn damage_never_panics_and_never_makes_a_raw_value_invalid(
        text in any_line(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        for bytes in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
            for raw in raws(&line(bytes)) {
                prop_assert!(serde_json::from_str::<&RawValue>(raw.0).is_ok(), "{}", raw.0);
            }
        }
    }

    #[test]
    fn a_torn_line_is_malformed(text in any_line(), cut in any::<prop::sample::Index>()) {
        let torn = &text.as_bytes()[..cut.index(text.len())];
        prop_assert_eq!(line(torn).body, Body::Malformed);
    }

    #[test]
    fn text_survives_the_round_trip(text in any::<String>(), ascii in any::<bool>()) {
        let mut quoted = serde_json::to_string(&text).unwrap();
        if ascii {
            let units = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect::<String>();
            quoted = format!("\"{units}\"");
        }
        let whole = format!(r#"{{"type":"assistant","message":{{"content":[{{"text":{quoted},"type":"text"}}]}}}}"#);
        prop_assert_eq!(&chat(&whole).blocks, &[Block::Text(text.into())]);
    }

    #[test]
    fn known_messages_survive_the_round_trip(
        id in "[a-zA-Z0-9_é\"\\\\]{1,40}", name in ".{1,20}", input in any_json(), is_error in any::<Option<bool>>(),
    ) {
        let (id_text, name_text) = (json!(id).to_string(), json!(name).to_string());
        let call = format!(r#"{{"type":"assistant","message":{{"content":[{{"type":"tool_use","id":{id_text},"name":{name_text},"input":{input}}}]}}}}"#);
        let found = chat(&call);
        let Block::ToolUse(found) = &found.blocks[0] else { panic!() };
        prop_assert_eq!((&*found.id, &*found.name), (&*id, &*name));
        prop_assert_eq!(found.input.map_or("null", |input| input.0), &input);

        let flag = json!(is_error).to_string();
        let result = format!(r#"{{"type":"user","message":{{"content":[{{"is_error":{flag},"content":{input},"tool_use_id":{id_text},"type":"tool_result"}}]}},"tool_use_result":{input}}}"#);
        let found = chat(&result);
        let Block::ToolResult(found) = &found.blocks[0] else { panic!() };
        prop_assert_eq!((&*found.tool_use_id, found.is_error), (&*id, is_error));
        prop_assert_eq!(found.content.map_or("null", |content| content.0), &input);
    }

    #[test]
    fn escapes_are_found_as_a_naive_reader_finds_them(text in "[\\\\\"a]{0,200}") {
        use super::bits::{BLOCK, Bits};
        let bytes = text.as_bytes();
        let mut naive = vec![false; bytes.len() + 1];
        for at in 0..bytes.len() {
            naive[at + 1] = bytes[at] == b'\\' && !naive[at];
        }
        let mut carry = false;
        for block in (0..bytes.len()).step_by(BLOCK) {
            let bits = Bits::at(bytes, block);
            let escaped = bits.escaped(&mut carry);
            for at in block..bytes.len().min(block + BLOCK) {
                let bit = 1 << (at - block);
                prop_assert_eq!(escaped & bit != 0, naive[at]);
                prop_assert_eq!(bits.quotes & bit != 0, bytes[at] == b'"');
            }
        }
    }
}
