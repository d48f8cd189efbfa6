//! Tests the decoder with valid, unusual and hostile lines.

use std::borrow::Cow;

use proptest::prelude::*;
use serde_json::{Value, json, value::RawValue};

use super::{
    AgentLine, ChatLine, LineBody, LineKind, MessageBlock, RawJson, content_text, decode_line,
    guess_kind, is_json,
    line::{PermissionDenial, StreamDelta, SystemLine, TaskLine, Usage},
};

mod properties;
mod system;

fn body(text: &str) -> LineBody<'_> {
    decode_line(text.as_bytes()).body
}

fn chat(text: &str) -> ChatLine<'_> {
    match body(text) {
        LineBody::Assistant(chat) | LineBody::User(chat) => chat,
        other => panic!("{other:?}"),
    }
}

fn result_of<'a>(text: &'a str) -> Box<super::ResultLine<'a>> {
    match body(text) {
        LineBody::Result(result) => result,
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
        assert_eq!(body(text), LineBody::Malformed, "{text}");
    }
}

#[test]
fn white_space_bom_and_cr_are_ignored() {
    let text = "\u{feff} { \"type\" : \"keep_alive\" , \"a\" : [ ] , \"b\" : { } }\r\n";
    assert_eq!(body(text).kind(), LineKind::Control);
}

#[test]
fn type_key_may_be_anywhere_and_escaped() {
    let first =
        result_of(r#"{"type":"result","subtype":"success","is_error":false,"result":"ok"}"#);
    let last =
        result_of(r#"{"result":"ok","is_error":false,"subtype":"success","\u0074ype":"result"}"#);
    assert_eq!(first, last);
    assert_eq!(first.result.as_deref(), Some("ok"));
}

#[test]
fn the_first_type_and_the_last_value_of_a_field_count() {
    let decoded =
        decode_line(br#"{"type":"user","session_id":"a","type":"result","session_id":"b"}"#);
    assert_eq!(decoded.body.kind(), LineKind::User);
    assert_eq!(decoded.session_id.as_deref(), Some("b"));
}

#[test]
fn results_before_1_0_have_other_names_for_the_cost() {
    let cost = |fields: &str| result_of(&format!(r#"{{"type":"result",{fields}}}"#)).total_cost_usd;
    assert_eq!(cost(r#""cost_usd":0.25"#), Some(0.25));
    assert_eq!(cost(r#""total_cost":0.5,"duration_ms":1"#), Some(0.5));
    assert_eq!(cost(r#""cost_usd":0.25,"total_cost_usd":0.5"#), Some(0.5));
    assert_eq!(cost(r#""total_cost_usd":0.5,"cost_usd":0.25"#), Some(0.5));
}

#[test]
fn early_notices_have_no_subtype() {
    let notice = |fields: &str| {
        let line = format!(r#"{{"type":"system","sessionId":"s",{fields}}}"#);
        match decode_line(line.as_bytes()).body {
            LineBody::System(SystemLine::Notice { text, level }) => {
                Some(format!("{text} {level:?}"))
            }
            _ => None,
        }
    };
    assert_eq!(
        notice(r#""content":"\u001b[1mLimit\u001b[22m reached","level":"warning""#),
        Some(r#"Limit reached Some("warning")"#.to_owned())
    );
    assert_eq!(notice(r#""level":"warning""#), None);
}

#[test]
fn field_of_the_wrong_type_is_absent() {
    let found = result_of(
        r#"{"type":"result","subtype":7,"is_error":"yes","num_turns":"3","usage":[1],"result":{"a":1},
            "errors":"none","permission_denials":{"a":1},"total_cost_usd":0.5,"duration_ms":12.7,"duration_api_ms":-1}"#,
    );
    assert_eq!(
        (found.subtype.clone(), found.is_error, found.num_turns),
        (None, None, None)
    );
    assert_eq!(
        (
            found.result.clone(),
            found.errors.len(),
            found.denials.len()
        ),
        (None, 0, 0)
    );
    assert_eq!(
        (found.usage, found.total_cost_usd),
        (Some(RawJson("[1]")), Some(0.5))
    );
    assert_eq!((found.duration_ms, found.duration_api_ms), (Some(12), None));

    let found = chat(
        r#"{"type":"assistant","parent_tool_use_id":9,"message":{"id":false,"model":"m","content":[
            {"type":"text","text":5},{"type":"tool_use","id":1,"name":null,"input":null},3,null,"plain",
            {"text":"no type"},{"type":"new_block","x":[{}]},{"type":"tool_result","is_error":"true","content":null}]}}"#,
    );
    assert_eq!(
        (found.message_id.clone(), found.model.as_deref()),
        (None, Some("m"))
    );
    let shapes: Vec<_> = found
        .blocks
        .iter()
        .map(|block| match block {
            MessageBlock::Text(text) => format!("text {:?}", text.text()),
            MessageBlock::ToolUse(call) => {
                format!("call {:?} {:?} {:?}", call.id, call.name, call.input)
            }
            MessageBlock::ToolResult(result) => {
                format!("result {:?} {:?}", result.content, result.is_error)
            }
            MessageBlock::Unknown(kind) => format!("unknown {kind}"),
            MessageBlock::Thinking(_) | MessageBlock::Image(_) => "?".to_owned(),
        })
        .collect();
    assert_eq!(
        shapes,
        [
            "text \"\"",
            "call \"\" \"\" None",
            "text \"plain\"",
            "unknown new_block",
            "result None None"
        ]
    );
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
        assert_eq!(
            *chat(text).blocks,
            [MessageBlock::Text("hi".into())],
            "{text}"
        );
    }
    assert!(chat(r#"{"type":"user","message":null}"#).blocks.is_empty());
    assert!(chat(r#"{"type":"user"}"#).blocks.is_empty());
}

#[test]
fn top_level_calls_and_results_are_messages_of_one_block() {
    let text =
        r#"{"type":"tool_use","id":"t1","name":"read_file","input":{"a":[1,2]},"session_id":"s"}"#;
    let decoded = decode_line(text.as_bytes());
    assert_eq!(
        (decoded.session_id.as_deref(), decoded.body.kind()),
        (Some("s"), LineKind::Assistant)
    );
    let MessageBlock::ToolUse(call) = &chat(text).blocks[0] else {
        panic!()
    };
    assert_eq!(
        (&*call.id, &*call.name, call.input),
        ("t1", "read_file", Some(RawJson(r#"{"a":[1,2]}"#)))
    );

    let found = chat(
        r#"{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"x"}],"is_error":true}"#,
    );
    let MessageBlock::ToolResult(result) = &found.blocks[0] else {
        panic!()
    };
    assert_eq!(
        (&*result.tool_use_id, &*result.text(), result.is_error),
        ("t1", "x", Some(true))
    );
}

#[test]
fn refusals_are_read_from_meta_or_session_file_line() {
    let line_with = |meta: &str| {
        format!(
            r#"{{"type":"user","message":{{"content":[{{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":"no"}}]}},{meta}}}"#
        )
    };
    for (meta, refused) in [
        (
            r#""tool_result_meta":[{"id":"t1","non_execution_kind":"user-rejected"}]"#,
            true,
        ),
        (
            r#""tool_result_meta":[{"id":"t1","permission_decision":{"decision":"reject","source":"hook"}}]"#,
            true,
        ),
        (
            r#""tool_result_meta":[{"id":"t1","permission_decision":"reject"}]"#,
            true,
        ),
        (r#""toolDenialKind":"permission-rule""#, true),
        (r#""permissionDecision":{"decision":"reject"}"#, true),
        (
            r#""tool_result_meta":[{"id":"t1","permission_decision":{"decision":"accept"}}]"#,
            false,
        ),
        (r#""tool_result_meta":[{"id":"t1"}]"#, false),
        (
            r#""tool_result_meta":[{"non_execution_kind":"interrupted"}]"#,
            false,
        ),
        (r#""tool_result_meta":"odd""#, false),
        (r#""permissionDecision":{"decision":"accept"}"#, false),
    ] {
        let text = line_with(meta);
        let ids: &[Cow<'_, str>] = if refused { &[Cow::Borrowed("t1")] } else { &[] };
        assert_eq!(chat(&text).refused, ids, "{meta}");
    }
}

#[test]
fn message_flags_are_read_in_both_spellings() {
    for text in [
        r#"{"type":"assistant","error":"rate_limit","api_error":"usage_limit_reached","api_error_status":429,"aborted":true,"message":{"stop_reason":"stop_sequence"}}"#,
        r#"{"type":"assistant","error":{"message":"rate_limit"},"apiError":"usage_limit_reached","apiErrorStatus":429,"isAbortedMidStream":true,"message":{"stop_reason":"stop_sequence"}}"#,
    ] {
        let found = chat(text);
        assert_eq!(
            (
                found.error.as_deref(),
                found.api_error.as_deref(),
                found.api_error_status,
                found.aborted
            ),
            (
                Some("rate_limit"),
                Some("usage_limit_reached"),
                Some(429),
                true
            )
        );
        assert_eq!(found.stop_reason.as_deref(), Some("stop_sequence"));
    }
    assert!(chat(r#"{"type":"user","isSynthetic":true}"#).synthetic);
    assert!(chat(r#"{"type":"user","isMeta":true}"#).synthetic);
}

#[test]
fn session_file_lines_are_recognised() {
    let decoded =
        decode_line(br#"{"type":"user","sessionId":"s","timestamp":"2026-11-21T23:48:18.877Z"}"#);
    assert!(decoded.is_session_file);
    assert_eq!(decoded.session_id.as_deref(), Some("s"));
    assert_eq!(
        decoded.timestamp.as_deref(),
        Some("2026-11-21T23:48:18.877Z")
    );
    assert_eq!(
        decode_line(br#"{"type":"user","session_id":""}"#).session_id,
        None
    );
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
            PermissionDenial {
                tool_name: Some("Bash".into()),
                tool_use_id: None,
                tool_input: None
            },
            PermissionDenial {
                tool_name: Some("Write".into()),
                tool_use_id: Some("t".into()),
                tool_input: Some(RawJson(r#"{"a":1}"#))
            },
        ]
    );
    assert!(
        result_of(r#"{"type":"result","permission_denials":null}"#)
            .denials
            .is_empty()
    );
}

#[test]
fn invalid_utf8_and_escapes_are_replaced() {
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
        assert_eq!(
            *chat(&text).blocks,
            [MessageBlock::Text(expected.into())],
            "{inside}"
        );
    }
    let bytes = b"{\"type\":\"user\",\"message\":\"a\xff\\n\xc3b\"}";
    let LineBody::User(chat) = decode_line(bytes).body else {
        panic!()
    };
    assert_eq!(
        *chat.blocks,
        [MessageBlock::Text("a\u{fffd}\n\u{fffd}b".into())]
    );
}

#[test]
fn raw_value_is_valid_json_or_the_placeholder() {
    let content_of = |inside: &[u8]| {
        let mut text = br#"{"type":"tool_result","tool_use_id":"t","content":"#.to_vec();
        text.extend_from_slice(inside);
        text.push(b'}');
        let LineBody::User(chat) = decode_line(&text).body else {
            panic!("{}", String::from_utf8_lossy(&text))
        };
        let MessageBlock::ToolResult(result) = &chat.blocks[0] else {
            panic!()
        };
        assert_eq!(result.tool_use_id, "t");
        result.content.map(|content| content.0.to_owned())
    };
    for good in [
        r#""a\ud800""#,
        r#"["\u00e9\\\"",{"k\n":-1.5e+3}]"#,
        "0",
        "true",
    ] {
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
        assert_eq!(
            content_of(bad.as_bytes()).as_deref(),
            Some(RawJson::UNREADABLE.0),
            "{bad}"
        );
    }
    assert_eq!(
        content_of(b"\"\xff\"").as_deref(),
        Some(RawJson::UNREADABLE.0)
    );
    assert_eq!(content_of(b"null"), None);
}

#[test]
fn second_copy_of_a_result_is_skipped() {
    for (content, copy) in [
        (
            r#"[{"type":"text","text":"same"}]"#,
            r#"[{"type":"text","text":"same"}]"#,
        ),
        (r#""same""#, r#""same but longer""#),
        ("12", "123"),
        ("[]", "[]"),
        (r#""x""#, r#"{"other":[1,2]}"#),
    ] {
        let text = format!(
            r#"{{"type":"user","message":{{"content":[{{"type":"tool_result","tool_use_id":"t","content":{content}}}]}},"tool_use_result":{copy},"session_id":"s"}}"#
        );
        assert_eq!(
            decode_line(text.as_bytes()).session_id.as_deref(),
            Some("s"),
            "{text}"
        );
        let broken = text.replace(",\"session_id\"", "\"session_id\"");
        assert_eq!(body(&broken), LineBody::Malformed);
    }
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    for depth in [1, 63, 64, 65, 127, 128, 129, 200, 1_000_000] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]")] {
            let nested = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            let text = format!(r#"{{"type":"tool_result","content":{nested},"session_id":"s"}}"#);
            let decoded = decode_line(text.as_bytes());
            assert_eq!(decoded.session_id.as_deref(), Some("s"), "{depth} {open}");
            let wrong = text.replace(&format!("1{close}"), "1");
            assert_eq!(body(&wrong), LineBody::Malformed);
        }
        let open_only = "[".repeat(depth);
        assert_eq!(
            body(&format!(r#"{{"type":"user","a":{open_only}"#)),
            LineBody::Malformed
        );
    }
    let long = "a\\n\\\"".repeat(2_000_000);
    let text = format!(
        r#"{{"type":"assistant","message":{{"content":[{{"type":"text","text":"{long}"}}]}}}}"#
    );
    let MessageBlock::Text(found) = &chat(&text).blocks[0] else {
        panic!()
    };
    assert_eq!(found.text().len(), 6_000_000);
}

#[test]
fn kinds_are_guessed_from_a_prefix_or_not_at_all() {
    for (prefix, expected) in [
        (r#"{"type":"user","mess"#, Some(LineKind::User)),
        (r#"{"type": "assistant""#, Some(LineKind::Assistant)),
        (
            r#"{"type":"system","subtype":"init","cw"#,
            Some(LineKind::Init),
        ),
        (r#"{"type":"system","subtype":"status"#, None),
        (
            r#"{"type":"system","subtype":"status","x"#,
            Some(LineKind::System),
        ),
        (r#"{"type":"system"}"#, Some(LineKind::System)),
        (
            r#"{"subtype":"init","type":"system","uuid":"1"}"#,
            Some(LineKind::Init),
        ),
        (
            r#"{"duration_api_ms":4,"is_error":false,"type":"result","#,
            Some(LineKind::Result),
        ),
        (r#"{"duration_api_ms":4,"usage":{"input_tok"#, None),
        (r#"{"type":"queue-operation"}"#, Some(LineKind::Other)),
        (r#"{"type":"control_response""#, Some(LineKind::Control)),
        ("not json", None),
        ("", None),
        (r#"{"type":4}"#, None),
    ] {
        assert_eq!(guess_kind(prefix.as_bytes()), expected, "{prefix}");
    }
}

#[test]
fn content_is_shown_as_text() {
    for (content, expected) in [
        (r#""plain\n""#, "plain\n"),
        (
            r#"[{"type":"text","text":"a"},{"type":"text","text":"b\u0041"}]"#,
            "a\nbA",
        ),
        (
            r#"[{"type":"image","source":{}},"c",{"type":"resource"},{"x":1}]"#,
            "[image]\nc\n[resource]\n{\"x\":1}",
        ),
        (r#"{"a":1}"#, "{\"a\":1}"),
        ("12.5", "12.5"),
        ("[]", ""),
    ] {
        assert_eq!(content_text(RawJson(content)), expected);
    }
}

#[test]
fn raw_values_are_read_piecewise() {
    let raw = RawJson(r#"{"a":1,"b":"x\ud800","c":null,"a":[2]}"#);
    assert_eq!(
        raw.pick(["b", "a", "c", "d"]),
        [
            Some(RawJson(r#""x\ud800""#)),
            Some(RawJson("[2]")),
            None,
            None
        ]
    );
    assert_eq!(
        raw.get("b").and_then(RawJson::as_str).as_deref(),
        Some("x\u{fffd}")
    );
    assert_eq!(raw.value(), json!({"a": [2], "b": "x\u{fffd}", "c": null}));
    assert_eq!(
        RawJson("[1,null,{}]").items(),
        [RawJson("1"), RawJson("{}")]
    );
    assert_eq!(RawJson(&"[".repeat(300)).value(), Value::Null);
}
