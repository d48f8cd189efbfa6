//! Tests calls and their results: opening, closing, naming.

use super::*;

#[test]
fn results_settle_their_call() {
    for (rest, ok) in [
        (r#","is_error":true"#, false),
        (r#","is_error":false"#, true),
        (r#","is_error":null"#, true),
        (r#","is_error":"true""#, true),
        ("", true),
    ] {
        let events = run(&[
            &call("t", "Bash", r#"{"command":"x"}"#),
            &result("t", rest),
            OK,
        ]);
        let settled = &events[2];
        assert_eq!(
            (settled["phase"].as_str(), settled["ok"].as_bool()),
            (Some("completed"), Some(ok)),
            "{rest}"
        );
        assert_eq!(
            (
                settled["action"]["kind"].as_str(),
                settled["action"]["title"].as_str()
            ),
            (Some("command"), Some("x"))
        );
        assert_eq!(settled["action"]["detail"]["is_error"], !ok);
    }
}

#[test]
fn a_repeated_result_keeps_kind_and_title() {
    let mut translator = one_prompt();
    let open = call("first", "Bash", r#"{"command":"make"}"#);
    push(&mut translator, &[&open, &result("first", "")]);
    for n in 0..3000 {
        push(
            &mut translator,
            &[
                &call(&format!("t{n}"), "mcp__ktx__x", "{}"),
                &result(&format!("t{n}"), ""),
            ],
        );
    }
    let copy = translator.clone();
    for mut translator in [translator, copy] {
        let events = push(
            &mut translator,
            &[&result("first", r#","is_error":true"#), &result("t7", "")],
        );
        assert_eq!(events[0]["action"]["title"], "make");
        assert_eq!(events[0]["action"]["kind"], "command");
        assert_eq!(events[0]["action"]["detail"]["tool_name"], "Bash");
        assert_eq!(
            (
                events[0]["ok"].as_bool(),
                events[1]["action"]["title"].as_str()
            ),
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
    for content in [
        r#""s""#,
        r#"[{"type":"image","source":{"data":"x"}},{"type":"text","text":"\ud800"}]"#,
        r#"{"a":1}"#,
        "3",
    ] {
        let line = result("t", &format!(",\"content\":{content}"));
        let mut written = String::new();
        one_prompt().push(
            &decode::decode_line(line.as_bytes()),
            line.as_bytes(),
            &mut |event| {
                let mut bytes = Vec::new();
                event.write_json(&mut bytes);
                written = String::from_utf8(bytes).unwrap();
            },
        );
        assert!(
            written.contains(&format!(
                "\"content\":{content},\"result_len\":{}",
                content.len()
            )),
            "{written}"
        );
    }
    let events = run(&[&result("t", r#","content":null"#), &result("u", "")]);
    assert_eq!(events[1]["action"]["detail"].get("content"), None);
    assert_eq!(events[2]["action"]["detail"]["result_len"], 0);
    for (length, truncated) in [
        (64 * 1024 - 2, false),
        (64 * 1024 - 1, true),
        (1 << 20, true),
    ] {
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
        (
            "KillShell",
            r#"{"shell_id":"1"}"#,
            "command",
            "KillShell",
            None,
        ),
        ("Bash", "{}", "command", "Bash", None),
        ("Bash", r#"{"command":7}"#, "command", "Bash", None),
        (
            "Write",
            r#"{"file_path":"/a/b.md","content":"x"}"#,
            "file_change",
            "/a/b.md",
            Some("update"),
        ),
        (
            "Edit",
            r#"{"path":"b.md"}"#,
            "file_change",
            "b.md",
            Some("update"),
        ),
        (
            "NotebookEdit",
            r#"{"notebook_path":"n.ipynb"}"#,
            "file_change",
            "n.ipynb",
            Some("update"),
        ),
        (
            "MultiEdit",
            r#"{"file_path":"a","path":"b"}"#,
            "file_change",
            "a",
            Some("update"),
        ),
        (
            "Write",
            r#"{"file_path":"a","create":true}"#,
            "file_change",
            "a",
            Some("add"),
        ),
        (
            "Write",
            r#"{"file_path":"a","create":"true"}"#,
            "file_change",
            "a",
            Some("update"),
        ),
        ("Write", r#"{"content":"x"}"#, "file_change", "Write", None),
        ("Read", r#"{"file_path":"a.md"}"#, "tool", "Read a.md", None),
        ("Read", r#"{"path":"a.md"}"#, "tool", "Read a.md", None),
        ("Read", "{}", "tool", "Read", None),
        ("WebSearch", r#"{"query":"q"}"#, "web_search", "q", None),
        ("WebSearch", "{}", "web_search", "WebSearch", None),
        ("WebFetch", r#"{"url":"u"}"#, "tool", "WebFetch", None),
        ("Task", r#"{"description":"d"}"#, "tool", "Task", None),
        ("Glob", r#"{"pattern":"*"}"#, "tool", "Glob", None),
        (
            "mcp__ktx__read_raw_span",
            r#"{"path":"p"}"#,
            "tool",
            "mcp__ktx__read_raw_span",
            None,
        ),
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
            assert_eq!(
                action["detail"].get("changes"),
                changes.as_ref(),
                "{name} {input}"
            );
            assert_eq!(
                action["detail"]["tool_input"].to_string(),
                RawJson(input).value().to_string()
            );
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
    let thought = r#"{"type":"assistant","session_id":"s","message":{"content":[{"type":"thinking","thinking":"hm"}]}}"#;
    let events = run(&[
        &nested(call("t", "X", "{}")),
        &nested(thought.to_owned()),
        &nested(result("t", "")),
    ]);
    for event in &events[1..4] {
        assert_eq!(
            event["action"]["detail"]["parent_tool_use_id"], "p",
            "{event}"
        );
    }
}

#[test]
fn parallel_calls_settle_in_the_order_of_their_results() {
    let events = run(&[
        &call("a", "X", "{}"),
        &call("b", "Y", "{}"),
        &result("b", ""),
        &result("a", ""),
        OK,
    ]);
    assert_eq!(
        outline(&events),
        [
            "started",
            "started a",
            "started b",
            "completed b",
            "completed a",
            "completed"
        ]
    );
}

#[test]
fn an_id_that_is_used_again_opens_again() {
    let events = run(&[
        &call("a", "X", "{}"),
        &call("a", "X", "{}"),
        &result("a", ""),
        &call("a", "Z", "{}"),
        OK,
    ]);
    assert_eq!(
        outline(&events),
        [
            "started",
            "started a",
            "started a",
            "completed a",
            "started a",
            "completed a",
            "completed"
        ]
    );
    assert_eq!(events[5]["action"]["title"], "Z");
}

#[test]
fn calls_without_an_id_get_one() {
    let events = run(&[
        &call("", "X", "{}"),
        &call("", "Y", "{}"),
        &result("", ""),
        OK,
    ]);
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
    let events = run(&[
        beat,
        &call("t", "Bash", r#"{"command":"x"}"#),
        beat,
        &result("t", ""),
        beat,
        OK,
    ]);
    assert_eq!(
        outline(&events),
        [
            "started",
            "started t",
            "updated t",
            "completed t",
            "completed"
        ]
    );
    assert_eq!(events[2]["message"], "running for 30 s");
    assert_eq!(events[2]["action"]["title"], "x");
    assert_eq!(events[2]["action"]["detail"]["elapsed_seconds"], 30.0);
}
