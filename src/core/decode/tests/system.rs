//! Tests `system` lines, control frames and partial messages.

use super::*;

#[test]
fn system_subtype_may_be_anywhere() {
    let cases: [(&str, SystemLine<'_>); 13] = [
        (
            r#"{"type":"system","tool_name":"Bash","tool_use_id":"t","message":"no","subtype":"permission_denied"}"#,
            SystemLine::PermissionDenied {
                tool_name: "Bash".into(),
                tool_use_id: "t".into(),
                message: Some("no".into()),
            },
        ),
        (
            r#"{"type":"system","subtype":"api_retry","attempt":2,"max_retries":10,"retry_delay_ms":613.5,"error_status":null,"error":"unknown"}"#,
            SystemLine::ApiRetry {
                attempt: Some(2),
                max_retries: Some(10),
                delay_ms: Some(613.5),
                status: None,
                error: Some("unknown".into()),
            },
        ),
        (
            r#"{"type":"system","subtype":"api_error","retryAttempt":1,"maxRetries":2,"retryInMs":613,"error":{"status":500,"formatted":"500 oops","message":"long"}}"#,
            SystemLine::ApiRetry {
                attempt: Some(1),
                max_retries: Some(2),
                delay_ms: Some(613.0),
                status: Some(500),
                error: Some("500 oops".into()),
            },
        ),
        (
            r#"{"type":"system","subtype":"compact_boundary","compact_metadata":{"trigger":"auto","pre_tokens":985107}}"#,
            SystemLine::Compacted {
                trigger: Some("auto".into()),
                pre_tokens: Some(985_107),
            },
        ),
        (
            r#"{"type":"system","subtype":"model_fallback","original_model":"a","fallback_model":"b"}"#,
            SystemLine::ModelFallback {
                from: Some("a".into()),
                to: Some("b".into()),
                refused: false,
            },
        ),
        (
            r#"{"type":"system","subtype":"task_updated","task_id":"x","patch":{"status":"completed"}}"#,
            SystemLine::Task(Box::new(TaskLine {
                subtype: "task_updated".into(),
                task_id: Some("x".into()),
                status: Some("completed".into()),
                ..TaskLine::default()
            })),
        ),
        (
            r#"{"type":"system","subtype":"notification","text":"look","priority":"immediate"}"#,
            SystemLine::Notice {
                text: "look".into(),
                level: Some("immediate".into()),
            },
        ),
        (
            r#"{"type":"system","subtype":"model_refusal_fallback","trigger":"refusal","original_model":"a","fallback_model":"b"}"#,
            SystemLine::ModelFallback {
                from: Some("a".into()),
                to: Some("b".into()),
                refused: true,
            },
        ),
        (
            r#"{"type":"system","error_code":"ENOSPC","lost":["transcript"],"subtype":"session_writes_lost"}"#,
            SystemLine::WritesLost {
                code: Some("ENOSPC".into()),
                lost: vec!["transcript".into()],
            },
        ),
        (
            r#"{"type":"auth_status","isAuthenticating":false,"output":[],"error":"expired"}"#,
            SystemLine::AuthStatus {
                error: Some("expired".into()),
            },
        ),
        (
            r#"{"type":"conversation_reset","new_conversation_id":"s2","session_id":"s1"}"#,
            SystemLine::ConversationReset {
                session: Some("s2".into()),
            },
        ),
        (
            r#"{"type":"system","subtype":"from_a_later_release"}"#,
            SystemLine::Unknown("from_a_later_release".into()),
        ),
        (
            r#"{"type":"system","subtype":"thinking_tokens","estimated_tokens":1}"#,
            SystemLine::Other("thinking_tokens".into()),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(body(text), LineBody::System(expected), "{text}");
        assert_eq!(
            guess_kind(text.as_bytes()),
            Some(LineKind::System),
            "{text}"
        );
    }
    assert_eq!(
        body(r#"{"type":"system"}"#),
        LineBody::System(SystemLine::Unknown("".into()))
    );
}

#[test]
fn init_fields_are_read() {
    let LineBody::Init(init) = body(
        r#"{"type":"system","subtype":"init","tools":["a",1,"b"],"mcp_servers":[{"name":"ktx","status":"failed"},{"status":"x"},7],
            "plugins":[{"name":"p","path":"builtin"}],"model":null,"cwd":"/p","skills":"odd"}"#,
    ) else {
        panic!()
    };
    assert_eq!(init.tools, ["a", "b"]);
    assert_eq!(init.tools_raw, Some(RawJson(r#"["a",1,"b"]"#)));
    assert_eq!(init.mcp_servers, [("ktx".into(), "failed".into())]);
    assert_eq!(init.plugins, [("p".into(), "builtin".into())]);
    assert_eq!(
        (
            init.model.as_deref(),
            init.cwd.as_deref(),
            init.skills.len()
        ),
        (None, Some("/p"), 0)
    );
    let LineBody::Init(init) = body(r#"{"type":"system","subtype":"init"}"#) else {
        panic!()
    };
    assert_eq!(*init, crate::decode::line::InitLine::default());
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
        let decoded = decode_line(text.as_bytes());
        let parent = if expected == "t1" { None } else { Some("t1") };
        assert_eq!(decoded.parent_tool_use_id.as_deref(), parent);
        assert_eq!(
            decoded.body,
            LineBody::ToolProgress {
                tool_use_id: expected.into(),
                elapsed_seconds: 30.0
            }
        );
    }
}

#[test]
fn reset_times_are_seconds() {
    for (written, expected) in [
        ("1795311594", Some(1_795_311_594)),
        ("1795311594123", Some(1_795_311_594)),
        ("\"soon\"", None),
        ("-4", None),
    ] {
        let text = format!(
            r#"{{"type":"rate_limit_event","rate_limit_info":{{"status":"rejected","resetsAt":{written},"rateLimitType":"five_hour","utilization":0.93}}}}"#
        );
        let LineBody::RateLimit(limit) = body(&text) else {
            panic!()
        };
        assert_eq!((limit.resets_at, limit.utilization), (expected, Some(0.93)));
        assert_eq!(
            (&*limit.status, limit.limit.as_deref()),
            ("rejected", Some("five_hour"))
        );
    }
}

#[test]
fn control_frames_keep_their_payload() {
    let text = r#"{"type":"control_request","request_id":"r","request":{"subtype":"mcp_message","message":{"id":1}}}"#;
    let payload = RawJson(r#"{"subtype":"mcp_message","message":{"id":1}}"#);
    assert_eq!(
        body(text),
        LineBody::Control {
            kind: "control_request".into(),
            subtype: "mcp_message".into(),
            request_id: "r".into(),
            payload: Some(payload)
        }
    );
    let LineBody::Control {
        subtype,
        request_id,
        payload,
        ..
    } = body(r#"{"type":"control_response","response":{"subtype":"success","request_id":"q"}}"#)
    else {
        panic!()
    };
    assert_eq!((&*subtype, &*request_id), ("success", "q"));
    assert_eq!(payload.and_then(|payload| payload.get("response")), None);
    let LineBody::Control {
        subtype,
        request_id,
        ..
    } = body(r#"{"type":"command_lifecycle","command_uuid":"u","state":"queued"}"#)
    else {
        panic!()
    };
    assert_eq!((&*subtype, &*request_id), ("queued", "u"));
}

#[test]
fn partial_messages_add_text_or_thinking() {
    for (event, expected) in [
        (
            r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}"#,
            StreamDelta::Text("a".into()),
        ),
        (
            r#"{"type":"content_block_delta","delta":{"thinking":"b"}}"#,
            StreamDelta::Thinking("b".into()),
        ),
        (
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":42}}"#,
            StreamDelta::Usage {
                message_id: None,
                usage: Usage {
                    output: 42,
                    ..Usage::default()
                },
            },
        ),
        (
            r#"{"type":"message_delta","usage":"odd"}"#,
            StreamDelta::Other("message_delta".into()),
        ),
        (
            r#"{"type":"message_stop"}"#,
            StreamDelta::Other("message_stop".into()),
        ),
        (r#""odd""#, StreamDelta::Other("".into())),
    ] {
        let text = format!(r#"{{"type":"stream_event","event":{event}}}"#);
        assert_eq!(body(&text), LineBody::StreamEvent(expected));
    }
}
