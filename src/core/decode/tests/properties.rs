//! Properties of the decoder for arbitrary lines, complete, damaged and truncated.

use super::*;

/// Generates JSON texts with all kinds of unusual values.
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
        any::<f64>()
            .prop_filter("JSON has no infinity", |n| n.is_finite())
            .prop_map(|n| n.to_string()),
        any::<i64>().prop_map(|n| n.to_string()),
    ];
    leaf.prop_recursive(5, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8)
                .prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec((word.clone(), inner), 0..8).prop_map(|fields| {
                let fields: Vec<_> = fields
                    .into_iter()
                    .map(|(key, value)| format!("{key} : {value}"))
                    .collect();
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

/// Returns all raw values of a line.
fn raws<'a>(line: &AgentLine<'a>) -> Vec<RawJson<'a>> {
    let mut found = Vec::new();
    match &line.body {
        LineBody::Assistant(chat) | LineBody::User(chat) => {
            for block in &chat.blocks {
                match block {
                    MessageBlock::ToolUse(call) => found.extend(call.input),
                    MessageBlock::ToolResult(result) => found.extend(result.content),
                    _ => {}
                }
            }
        }
        LineBody::Result(result) => {
            found.extend(result.usage);
            found.extend(result.model_usage);
            found.extend(result.denials.iter().filter_map(|denial| denial.tool_input));
        }
        LineBody::Init(init) => {
            found.extend([init.tools_raw, init.mcp_servers_raw].into_iter().flatten())
        }
        LineBody::Control { payload, .. } => found.extend(payload),
        _ => {}
    }
    found
}

#[test]
fn is_json_accepts_exactly_valid_json() {
    for json in ["{}", " [1, -2.5e3 ,true]\r\n", "\"\\ud800\"", "null", "0"] {
        assert!(is_json(json.as_bytes()), "{json}");
    }
    let broken: [&[u8]; 12] = [
        b"",
        b" ",
        b"{} {}",
        b"{\"a\":1,}",
        b"\xEF\xBB\xBF{}",
        b"\"\xff\"",
        b"\"a\tb\"",
        b"\"\\x\"",
        b"01",
        b"{\"a\"}",
        b"nul",
        b"[1",
    ];
    for json in broken {
        assert!(!is_json(json), "{}", String::from_utf8_lossy(json));
    }
}

proptest! {
    #[test]
    fn decode_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = (decode_line(&bytes), guess_kind(&bytes));
    }

    #[test]
    fn valid_lines_are_never_malformed_and_the_guess_is_right(text in any_line()) {
        let decoded = decode_line(text.as_bytes());
        prop_assert!(serde_json::from_str::<&RawValue>(&text).is_ok());
        prop_assert_ne!(&decoded.body, &LineBody::Malformed);
        prop_assert_eq!(guess_kind(text.as_bytes()), Some(decoded.body.kind()));
        for raw in raws(&decoded) {
            prop_assert!(serde_json::from_str::<&RawValue>(raw.0).is_ok(), "{}", raw.0);
        }
    }

    #[test]
    fn is_json_agrees_with_serde_json(
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
            for raw in raws(&decode_line(bytes)) {
                prop_assert!(serde_json::from_str::<&RawValue>(raw.0).is_ok(), "{}", raw.0);
            }
        }
    }

    #[test]
    fn a_torn_line_is_malformed(text in any_line(), cut in any::<prop::sample::Index>()) {
        let torn = &text.as_bytes()[..cut.index(text.len())];
        prop_assert_eq!(decode_line(torn).body, LineBody::Malformed);
    }

    #[test]
    fn text_survives_the_round_trip(text in any::<String>(), ascii in any::<bool>()) {
        let mut quoted = serde_json::to_string(&text).unwrap();
        if ascii {
            let units = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect::<String>();
            quoted = format!("\"{units}\"");
        }
        let whole = format!(r#"{{"type":"assistant","message":{{"content":[{{"text":{quoted},"type":"text"}}]}}}}"#);
        prop_assert_eq!(&*chat(&whole).blocks, &[MessageBlock::Text(text.into())]);
    }

    #[test]
    fn known_messages_survive_the_round_trip(
        id in "[a-zA-Z0-9_é\"\\\\]{1,40}", name in ".{1,20}", input in any_json(), is_error in any::<Option<bool>>(),
    ) {
        let (id_text, name_text) = (json!(id).to_string(), json!(name).to_string());
        let call = format!(r#"{{"type":"assistant","message":{{"content":[{{"type":"tool_use","id":{id_text},"name":{name_text},"input":{input}}}]}}}}"#);
        let found = chat(&call);
        let MessageBlock::ToolUse(found) = &found.blocks[0] else { panic!() };
        prop_assert_eq!((&*found.id, &*found.name), (&*id, &*name));
        prop_assert_eq!(found.input.map_or("null", |input| input.0), &input);

        let flag = json!(is_error).to_string();
        let result = format!(r#"{{"type":"user","message":{{"content":[{{"is_error":{flag},"content":{input},"tool_use_id":{id_text},"type":"tool_result"}}]}},"tool_use_result":{input}}}"#);
        let found = chat(&result);
        let MessageBlock::ToolResult(found) = &found.blocks[0] else { panic!() };
        prop_assert_eq!((&*found.tool_use_id, found.is_error), (&*id, is_error));
        prop_assert_eq!(found.content.map_or("null", |content| content.0), &input);
    }

    #[test]
    fn escape_masks_match_a_naive_scan(text in "[\\\\\"a]{0,200}") {
        use super::super::byte_masks::{BLOCK, ByteMasks};
        let bytes = text.as_bytes();
        let mut naive = vec![false; bytes.len() + 1];
        for at in 0..bytes.len() {
            naive[at + 1] = bytes[at] == b'\\' && !naive[at];
        }
        let mut carry = false;
        for block in (0..bytes.len()).step_by(BLOCK) {
            let bits = ByteMasks::from_bytes_at(bytes, block);
            let escaped = bits.escaped(&mut carry);
            for at in block..bytes.len().min(block + BLOCK) {
                let bit = 1 << (at - block);
                prop_assert_eq!(escaped & bit != 0, naive[at]);
                prop_assert_eq!(bits.quotes & bit != 0, bytes[at] == b'"');
            }
        }
    }
}

#[test]
fn fuzzed_lines_never_panic() {
    let captures = [
        include_str!("../../../../tests/fixtures/captures/success_tools.jsonl"),
        include_str!("../../../../tests/fixtures/captures/partial_messages.jsonl"),
        include_str!("../../../../tests/fixtures/captures/permission_denied_dontask.jsonl"),
        include_str!("../../../../tests/fixtures/captures/subagent_foreground.jsonl"),
        include_str!("../../../../tests/fixtures/captures/ondisk_session.jsonl"),
    ];
    let corpus: Vec<Vec<u8>> = captures
        .iter()
        .flat_map(|text| text.lines())
        .map(|line| line.as_bytes().to_vec())
        .collect();
    ingestdeck_test_support::fuzz::fuzz("decoder", &corpus, |bytes| {
        drop(decode_line(bytes));
        let _ = guess_kind(bytes);
        let Ok(text) = std::str::from_utf8(bytes) else {
            return;
        };
        let is_json_elsewhere = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        assert!(
            !is_json_elsewhere || is_json(bytes),
            "JSON must remain JSON on the tape"
        );
    });
}
