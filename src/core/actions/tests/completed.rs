//! Tests the end of a run and the events just before it.

use super::*;

#[test]
fn denials_are_warnings_before_completed() {
    let done = |denials: &str| {
        format!(
            r#"{{"type":"result","is_error":false,"result":"ok","session_id":"s","permission_denials":{denials}}}"#
        )
    };
    let events = run(&[
        INIT,
        &done(r#"[{"tool_name":"Bash","tool_use_id":"t","tool_input":{"command":"x"}}]"#),
    ]);
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
    assert_eq!(
        (outline(&events)[2].as_str(), events[2]["ok"].as_bool()),
        ("completed", Some(true))
    );

    let titles = |denials: &str| -> Vec<(String, String)> {
        let events = run(&[INIT, &done(denials)]);
        let of = |event: &Value, key: &str| event["action"][key].as_str().unwrap().to_owned();
        events[1..events.len() - 1]
            .iter()
            .map(|event| (of(event, "id"), of(event, "title")))
            .collect()
    };
    let pair = |id: &str, title: &str| (format!("claude.permission.{id}"), title.to_owned());
    assert_eq!(titles("null"), []);
    assert_eq!(titles(r#""odd""#), []);
    assert_eq!(
        titles(
            r#"["Bash","Write",null,{},[],{"tool_use_id":"t"},{"tool_use_id":"t"},{"tool_use_id":"9"}]"#
        ),
        [
            pair("0", "permission denied: Bash"),
            pair("1", "permission denied: Write"),
            pair("t", "permission denied"),
            pair("9", "permission denied")
        ]
    );
}

#[test]
fn live_denial_is_reported_immediately_and_once() {
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
        let mut translator = one_prompt();
        let events = push(&mut translator, &[line, "", " \r", line]);
        let title = if decode::is_json(line.as_bytes()) {
            "line without a type or message; ignoring it"
        } else {
            "invalid JSON from claude; ignoring line"
        };
        assert_eq!(
            events[0],
            json!({
                "type": "action", "engine": ENGINE, "phase": "completed", "ok": false, "level": "warning",
                "message": title,
                "action": {
                    "id": "claude.note.1", "kind": "warning", "title": title,
                    "detail": {"line": shown},
                },
            })
        );
        assert_eq!(outline(&events[1..]), ["completed claude.note.2"]);
        assert_eq!(
            outline(&push(&mut translator, &[INIT, OK])),
            ["started", "completed"]
        );
    }
    let bytes = b"\xff\xfe\0";
    let mut shown = Value::Null;
    one_prompt().push(&decode::decode_line(bytes), bytes, &mut |event| {
        shown = to_json(&event)
    });
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
fn first_result_completes_and_later_lines_are_ignored() {
    let events = run(&[
        INIT,
        OK,
        &OK.replace("\"ok\"", "\"again\""),
        "not json",
        &call("t", "X", "{}"),
        INIT,
    ]);
    assert_eq!(outline(&events), ["started", "completed"]);
    assert_eq!(last(&events)["answer"], "ok");
    let mut translator = one_prompt();
    push(&mut translator, &[INIT, OK]);
    assert!(translator.translator.is_complete());
    assert_eq!(
        end(
            &mut translator,
            &StreamEnd {
                exit_code: Some(1),
                ..StreamEnd::default()
            }
        ),
        [] as [Value; 0]
    );
}

#[test]
fn all_turns_are_reported_before_completed() {
    let first = OK.replace("\"ok\"", "\"one\"");
    let second = OK.replace("\"ok\"", "\"two\"");
    let turn = [call("t", "X", "{}"), result("t", "")];
    let lines = [
        INIT, &first, INIT, &turn[0], &turn[1], &second, "not json", &first,
    ];
    let mut translator = TranslatedStream::new(TurnTracker::default());
    let events = push(&mut translator, &lines);
    assert_eq!(outline(&events), ["started", "started t", "completed t"]);
    let end = end(&mut translator, &StreamEnd::default());
    assert_eq!(
        (outline(&end).len(), last(&end)["answer"].as_str()),
        (1, Some("two"))
    );
    // A process with one prompt has one turn.
    assert_eq!(outline(&run(&lines)), ["started", "completed"]);
}

#[test]
fn an_empty_answer_falls_back_to_the_last_text() {
    let nested = text("of the sub-agent").replacen('{', r#"{"parent_tool_use_id":"p","#, 1);
    let done = |fields: &str| format!(r#"{{"type":"result","session_id":"s",{fields}}}"#);
    for (lines, answer) in [
        (
            vec![
                text("a"),
                text("b"),
                text(" "),
                nested.clone(),
                done(r#""result":"""#),
            ],
            "b",
        ),
        (vec![text("a"), done(r#""is_error":true"#)], "a"),
        (
            vec![text("a"), done(r#""result":null,"is_error":false"#)],
            "a",
        ),
        (
            vec![nested.clone(), done(r#""is_error":false"#)],
            "of the sub-agent",
        ),
        (vec![text("a"), done(r#""result":"r""#)], "r"),
        (
            vec![
                text("a").replace("assistant", "user"),
                done(r#""is_error":false"#),
            ],
            "",
        ),
    ] {
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        assert_eq!(last(&run(&lines))["answer"], answer, "{lines:?}");
    }
}

#[test]
fn the_error_text_is_the_first_that_is_there() {
    for (fields, error) in [
        (
            r#""error":"E","errors":["a"],"result":"r","subtype":"x""#,
            "E",
        ),
        (
            r#""error":"","errors":["a",{"message":"b"}],"result":"r""#,
            "a; b",
        ),
        (r#""error":{"a":1},"errors":[],"result":"r""#, "r"),
        (
            r#""result":"","subtype":"error_max_turns""#,
            "claude run failed (error_max_turns)",
        ),
        (r#""result":null"#, "claude run failed"),
    ] {
        let events = run(&[&format!(
            r#"{{"type":"result","session_id":"s","is_error":true,{fields}}}"#
        )]);
        assert_eq!(last(&events)["error"], error, "{fields}");
    }
}

#[test]
fn a_stream_without_a_result_is_a_failure() {
    let code = |exit_code| StreamEnd {
        exit_code: Some(exit_code),
        ..StreamEnd::default()
    };
    let signal = |signal| StreamEnd {
        signal: Some(signal),
        ..StreamEnd::default()
    };
    let exited = |exit_code, stderr: &str| StreamEnd {
        stderr: Some(stderr.to_owned()),
        ..code(exit_code)
    };
    for (ended, with_id, without_id, warned) in [
        (
            code(0),
            "claude finished without a result event",
            "claude finished but no session_id was captured",
            false,
        ),
        (
            StreamEnd::default(),
            "claude finished without a result event",
            "claude finished but no session_id was captured",
            false,
        ),
        (
            code(1),
            "claude failed (rc=1).",
            "claude failed (rc=1).",
            true,
        ),
        (
            exited(127, " not found \n"),
            "claude failed (rc=127). not found",
            "claude failed (rc=127). not found",
            true,
        ),
        (
            exited(1, ""),
            "claude failed (rc=1).",
            "claude failed (rc=1).",
            true,
        ),
        (
            signal(9),
            "claude failed (killed by signal 9).",
            "claude failed (killed by signal 9).",
            true,
        ),
    ] {
        for (lines, error) in [
            (vec![INIT.to_owned(), text("half")], with_id),
            (vec![], without_id),
        ] {
            let mut translator = one_prompt();
            let lines: Vec<_> = lines.iter().map(String::as_str).collect();
            push(&mut translator, &lines);
            let events = end(&mut translator, &ended);
            let completed = last(&events);
            assert_eq!(
                (completed["ok"].as_bool(), completed["error"].as_str()),
                (Some(false), Some(error))
            );
            assert_eq!(
                completed["answer"],
                if lines.is_empty() { "" } else { "half" }
            );
            assert_eq!(completed.get("resume").is_some(), !lines.is_empty());
            assert_eq!(events.len(), 1 + usize::from(warned));
            if warned {
                assert_eq!(
                    (
                        events[0]["action"]["title"].as_str(),
                        events[0]["level"].as_str()
                    ),
                    (Some(error), Some("warning"))
                );
            }
            assert_eq!(end(&mut translator, &ended), [] as [Value; 0]);
        }
    }
    // `resume` contains the requested session even if no session answered.
    let events = run_with(resuming("A", false), &[]);
    assert_eq!(last(&events)["resume"]["value"], "A");
}

#[test]
fn start_failure_is_the_completed_error() {
    let why = "Claude Code could not be started: there is no program /no/claude";
    let mut translator = one_prompt();
    let events = end(
        &mut translator,
        &StreamEnd {
            not_started: Some(why.into()),
            ..StreamEnd::default()
        },
    );
    assert_eq!(events.len(), 1);
    assert_eq!(
        (
            last(&events)["ok"].as_bool(),
            last(&events)["error"].as_str()
        ),
        (Some(false), Some(why))
    );
}

#[test]
fn calls_that_are_open_at_the_end_are_closed() {
    let open = [
        call("b", "X", "{}"),
        call("a", "Bash", r#"{"command":"ls"}"#),
        call("c", "Y", "{}"),
        result("c", ""),
    ];
    let lines: Vec<_> = open.iter().map(String::as_str).chain([OK]).collect();
    let events = run(&lines);
    assert_eq!(
        outline(&events)[5..],
        ["completed b", "completed a", "completed"]
    );
    let closed = &events[6];
    assert_eq!(
        (closed["ok"].as_bool(), closed["message"].as_str()),
        (Some(false), Some("no result before the run ended"))
    );
    assert_eq!(
        (closed["action"]["title"].as_str(), closed.get("level")),
        (Some("ls"), None)
    );
    assert_eq!(
        closed["action"]["detail"]["tool_input"],
        json!({"command": "ls"})
    );
}

#[test]
fn a_background_task_lets_a_result_end_a_turn_only() {
    let background = r#"{"type":"system","subtype":"task_started","session_id":"s","task_id":"x","is_backgrounded":true}"#;
    let unsaid = background.replace(r#","is_backgrounded":true"#, "");
    let first = OK.replace("\"ok\"", "\"one\"");
    let second = OK.replace("\"ok\"", "\"two\"");
    let answer = |lines: &[&str]| {
        let events = run(lines);
        assert_eq!(outline(&events), ["started", "completed"]);
        last(&events)["answer"].as_str().unwrap().to_owned()
    };
    assert_eq!(answer(&[INIT, background, INIT, &first, &second]), "two");
    // The second turn has no result.
    assert_eq!(answer(&[INIT, background, INIT, &first]), "one");
    // The second turn may begin before or after the result of the first.
    assert_eq!(answer(&[INIT, background, &first, INIT, &second]), "two");
    // Older releases do not report whether a task is in the background.
    assert_eq!(answer(&[INIT, &unsaid, INIT, &first, &second]), "two");
    assert_eq!(answer(&[INIT, &unsaid, &first, INIT, &second]), "two");
    // A task in the foreground ends with its turn.
    assert_eq!(
        answer(&[INIT, &background.replace("true", "false"), &first, &second]),
        "one"
    );
    // A turn that was cut off has no answer.
    let cut = run(&[INIT, background, &first, INIT, &text("half")]);
    assert_eq!(
        (last(&cut)["ok"].as_bool(), last(&cut)["answer"].as_str()),
        (Some(false), Some("half"))
    );
    // Calls of the second turn are still translated.
    let events = run(&[
        INIT,
        background,
        INIT,
        &first,
        &call("t", "X", "{}"),
        &result("t", ""),
        &second,
    ]);
    assert_eq!(
        outline(&events),
        ["started", "started t", "completed t", "completed"]
    );
}

#[test]
fn a_session_file_ends_as_its_last_message_did() {
    let user = r#"{"type":"user","sessionId":"s","message":{"content":"go"}}"#;
    let message = |stop: &str, rest: &str| {
        format!(
            r#"{{"type":"assistant","sessionId":"s"{rest},"message":{{"model":"m","stop_reason":{stop},"content":[{{"type":"text","text":"hi"}}]}}}}"#
        )
    };
    let underway = "the session file ends before the agent has answered";
    let report = r#"{"type":"user","sessionId":"s","message":{"content":"Unknown skill: x"}}"#;
    for (lines, error) in [
        (vec![user, &message("\"end_turn\"", "")], None),
        (vec![user, &message("\"tool_use\"", "")], Some(underway)),
        (
            vec![user, &message("\"end_turn\"", ""), user],
            Some(underway),
        ),
        (
            vec![
                user,
                &message(
                    "\"stop_sequence\"",
                    r#","error":"server_error","isApiErrorMessage":true"#,
                ),
            ],
            Some("hi"),
        ),
        (vec![user], Some(underway)),
        (vec![user, &message("null", ""), report], None),
    ] {
        let events = run(&lines);
        let prompts = lines.iter().filter(|line| **line == user).count();
        let notes: Vec<_> = events
            .iter()
            .filter(|event| event["type"] == "action")
            .map(|event| &event["action"])
            .collect();
        assert_eq!(
            (outline(&events)[0].as_str(), events.len(), notes.len()),
            ("started", 2 + prompts, prompts)
        );
        assert!(
            notes
                .iter()
                .all(|note| note["title"] == "prompt: go" && note["detail"]["prompt"] == "go"),
            "{notes:?}"
        );
        assert_eq!(
            events[0]["title"],
            if lines.len() == 1 { "claude" } else { "m" }
        );
        assert_eq!(
            last(&events).get("error").and_then(Value::as_str),
            error,
            "{lines:?}"
        );
        assert_eq!(last(&events)["ok"], error.is_none());
    }
}

#[test]
fn a_session_file_with_commands_only_has_no_prompt() {
    let command = r#"{"type":"user","sessionId":"s","message":{"content":"<command-name>/exit</command-name>"}}"#;
    for lines in [
        vec![command],
        vec![r#"{"type":"mode","mode":"normal","sessionId":"s"}"#],
    ] {
        let events = run(&lines);
        assert_eq!(
            last(&events)["error"],
            "the session file contains no prompt",
            "{lines:?}"
        );
    }
}

#[test]
fn large_inputs_are_not_repeated() {
    let huge = format!(r#"{{"content":"{}"}}"#, "x".repeat(70_000));
    let events = run(&[&call("t", "X", &huge), &result("t", ""), OK]);
    assert!(events[1]["action"]["detail"].get("tool_input").is_some());
    assert_eq!(events[2]["action"]["detail"].get("tool_input"), None);
    // A stream that never closes its calls.
    let mut translator = one_prompt();
    let big = format!(r#"{{"content":"{}"}}"#, "x".repeat(60_000));
    for n in 0..100 {
        push(&mut translator, &[&call(&n.to_string(), "X", &big)]);
    }
    let kept = end(&mut translator, &StreamEnd::default());
    let repeated = kept
        .iter()
        .filter(|event| event["action"]["detail"].get("tool_input").is_some())
        .count();
    assert!((1..100).contains(&repeated), "{repeated}");
}
