//! Every capture of the real CLI, decoded and translated into events.

use std::{collections::BTreeSet, fmt::Write, fs, path::PathBuf};

use ingestdeck_agent::facts_collector::AttemptFactsCollector;
use ingestdeck_core::{
    actions::{AgentEvent, EventTranslator, StreamEnd, StreamState, TurnTracker},
    decode::{self, LineBody, LineKind},
    tape::note::{Verdict, VerdictCause},
    units::verdict::{AttemptFacts, FailureRule, judge_attempt},
};
use serde_json::Value;

/// Every capture, as (name, lines). For a two-way transcript, the lines are the frames that the CLI sent.
fn captures() -> Vec<(String, Vec<Vec<u8>>)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/captures");
    let mut files = Vec::new();
    for folder in [root.clone(), root.join("versions")] {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path
                .extension()
                .is_some_and(|extension| extension == "jsonl")
            {
                files.push(path);
            }
        }
    }
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let bytes = fs::read(&path).unwrap();
            let lines = bytes
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
                .filter_map(from_cli);
            (name, lines.collect())
        })
        .collect()
}

/// The line itself, or the frame inside a line of a two-way transcript.
fn from_cli(line: &[u8]) -> Option<Vec<u8>> {
    let value: Value = serde_json::from_slice(line).unwrap();
    match (value.get("dir").and_then(Value::as_str), value.get("msg")) {
        (Some("<-" | "out"), Some(message)) => Some(serde_json::to_vec(message).unwrap()),
        (Some(_), Some(_)) => None,
        _ => Some(line.to_vec()),
    }
}

#[test]
fn real_cli_lines_are_well_formed_and_heads_agree() {
    let captures = captures();
    assert!(captures.len() > 100);
    for (name, lines) in &captures {
        for line in lines {
            let decoded = decode::decode_line(line);
            let shown = String::from_utf8_lossy(line);
            assert_ne!(decoded.body, LineBody::Malformed, "{name}: {shown}");
            assert_eq!(
                decode::guess_kind(line),
                Some(decoded.body.kind()),
                "{name}: {shown}"
            );
            let value: Value = serde_json::from_slice(line).unwrap();
            let session = value
                .get("session_id")
                .or(value.get("sessionId"))
                .and_then(Value::as_str);
            assert_eq!(
                decoded.session_id.as_deref(),
                session.filter(|id| !id.is_empty()),
                "{name}: {shown}"
            );
        }
    }
    assert!(captures.iter().any(|(_, lines)| {
        lines
            .iter()
            .any(|line| decode::guess_kind(line) == Some(LineKind::Control))
    }));
}

/// The events of a capture.
fn events(lines: &[Vec<u8>]) -> Vec<Value> {
    let mut events = Vec::new();
    let mut emit = |event: AgentEvent<'_>| {
        let mut direct = Vec::new();
        event.write_json(&mut direct);
        events.push(serde_json::from_slice(&direct).unwrap());
    };
    let (mut translator, mut stream) = (
        EventTranslator::default(),
        StreamState::new(TurnTracker::default()),
    );
    for bytes in lines {
        let line = decode::decode_line(bytes);
        let role = stream.push(&line);
        translator.push((&line, role), bytes, &stream, &mut emit);
    }
    translator.finish(&StreamEnd::default(), &stream, &mut emit);
    events
}

#[test]
fn every_capture_keeps_the_event_contract() {
    for (name, lines) in captures() {
        let events = events(&lines);
        let count = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
        let completed = events.last().unwrap();
        assert_eq!(
            (count("completed"), &completed["type"]),
            (1, &Value::from("completed")),
            "{name}"
        );
        let identified = lines
            .iter()
            .any(|line| decode::decode_line(line).session_id.is_some());
        assert_eq!(count("started"), usize::from(identified), "{name}");
        if let Some(started) = events.iter().find(|event| event["type"] == "started") {
            assert_eq!(started["resume"], completed["resume"], "{name}");
        }
        assert_eq!(
            completed["ok"].as_bool().unwrap(),
            completed.get("error").is_none(),
            "{name}"
        );
        let mut open = BTreeSet::new();
        for event in events.iter().filter(|event| event["type"] == "action") {
            let id = event["action"]["id"].as_str().unwrap();
            match event["phase"].as_str().unwrap() {
                "started" => assert!(open.insert(id), "{name}: {id} twice"),
                "updated" => assert!(open.contains(id), "{name}: {id}"),
                _ => {
                    let known = open.remove(id) || id.starts_with("claude.");
                    assert!(known, "{name}: {id} was never started");
                }
            }
        }
        assert!(open.is_empty(), "{name}: {open:?}");
        assert!(
            events
                .iter()
                .all(|event| event["action"]["title"] != "invalid JSON from claude; ignoring line")
        );
    }
}

#[test]
fn events_contain_exactly_the_calls_of_the_capture() {
    for (name, lines) in captures() {
        let finds = |value: &Value, kind: &str| {
            let content = value["message"]["content"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            content.iter().filter(|block| block["type"] == kind).count()
        };
        let parsed = lines
            .iter()
            .map(|line| serde_json::from_slice::<Value>(line).unwrap());
        let expected: usize = parsed.map(|value| finds(&value, "tool_use")).sum();
        let started = events(&lines)
            .iter()
            .filter(|event| event["phase"] == "started")
            .count();
        assert_eq!(started, expected, "{name}");
    }
}

/// One line per event, with the fields that matter to a reader.
fn outline(events: &[Value]) -> String {
    let text = |value: &Value| {
        value
            .as_str()
            .map(|text| text.chars().take(90).collect::<String>())
            .unwrap_or_default()
    };
    let mut outline = String::new();
    for event in events {
        let action = &event["action"];
        match event["type"].as_str().unwrap() {
            "started" => writeln!(outline, "started {}", text(&event["title"])),
            "completed" => writeln!(
                outline,
                "completed ok={} answer={:?} error={:?} usage={}",
                event["ok"],
                text(&event["answer"]),
                text(&event["error"]),
                event.get("usage").is_some()
            ),
            _ => {
                let keys: Vec<_> = action["detail"]
                    .as_object()
                    .unwrap()
                    .keys()
                    .map(String::as_str)
                    .collect();
                writeln!(
                    outline,
                    "{} {} [{}] {:?} ok={} {} ({})",
                    text(&event["phase"]),
                    text(&action["id"]),
                    text(&action["kind"]),
                    text(&action["title"]),
                    event.get("ok").map_or("-".to_owned(), Value::to_string),
                    text(&event["message"]),
                    keys.join(" ")
                )
            }
        }
        .unwrap();
    }
    outline
}

#[test]
fn selected_captures_match_their_event_snapshots() {
    let captures = captures();
    for wanted in [
        "success_tools",
        "permission_denied_dontask",
        "subagent_foreground",
        "isolation_none_hostile",
        "background_bash",
        "2.1.200_background_agent",
        "tool_progress_heartbeat",
        "thinking_tool_image_builtin_denied",
        "max_turns",
        "api_401",
        "killed_sigterm_tool",
        "interrupted_sigint_streaming",
        "huge_result_400k_inline_meta",
        "parallel_readonly_tools",
        "partial_messages",
        "control_close_stdin_pending_tool.transcript",
        "ondisk_subagent_parent",
        "ondisk_denied",
        "ondisk_api_error",
        "1.0.128_resume_unknown",
        "2.1.0_resume_unknown",
        "1.0.128_max_turns",
        "2.1.332_workflow_two_agents",
        "2.1.332_compact_command",
        "startup_failure_config",
    ] {
        let (_, lines) = captures.iter().find(|(name, _)| name == wanted).unwrap();
        insta::assert_snapshot!(wanted, outline(&events(lines)));
    }
}

/// The verdict of an attempt whose stdout is the lines of a capture.
fn verdict(lines: &[Vec<u8>]) -> Verdict {
    let mut gather = AttemptFactsCollector::new(AttemptFacts::default());
    lines.iter().for_each(|line| {
        gather.push_line(&decode::decode_line(line));
    });
    let mut facts = gather.into_facts();
    facts.process.exit_code = Some(1);
    judge_attempt(&"unit".into(), &facts, FailureRule::Strict)
}

#[test]
fn refused_start_names_the_damaged_file_and_its_backup() {
    let captures = captures();
    let (_, lines) = captures
        .iter()
        .find(|(name, _)| name == "startup_failure_config")
        .unwrap();
    let verdict = verdict(lines);
    assert_eq!(verdict.cause, VerdictCause::StartFailed);
    assert_eq!(
        verdict.reason,
        "Claude Code did not start: /home/a/.claude.json is not valid JSON"
    );
    let remedy = verdict.remedy.unwrap();
    assert!(
        remedy.contains("`cp /home/a/.claude.json.backup /home/a/.claude.json`"),
        "{remedy}"
    );
}

#[test]
fn usage_windows_of_a_capture_are_decoded() {
    let captures = captures();
    let (_, lines) = captures
        .iter()
        .find(|(name, _)| name == "2.1.332_rate_limit_rejected")
        .unwrap();
    let windows: Vec<_> = lines
        .iter()
        .filter_map(|line| match decode::decode_line(line).body {
            LineBody::RateLimit(limit) => Some(
                limit
                    .windows
                    .iter()
                    .map(|it| it.name.to_string())
                    .collect::<Vec<_>>(),
            ),
            _ => None,
        })
        .collect();
    assert_eq!(windows, [["five_hour"]]);
}

#[test]
fn unreachable_api_is_a_network_failure_on_every_release() {
    let is_about = |name: &str, what: &[&str]| what.iter().any(|what| name.ends_with(what));
    let (mut unreachable, mut empty) = (0, 0);
    for (name, lines) in captures() {
        if is_about(
            &name,
            &["connection_refused", "dns_failure", "connection_dropped"],
        ) {
            assert_eq!(verdict(&lines).cause, VerdictCause::Network, "{name}");
            unreachable += 1;
        } else if is_about(
            &name,
            &[
                "empty_stream",
                "sse_empty",
                "sse_garbage",
                "html_instead_of_api",
            ],
        ) {
            let verdict = verdict(&lines);
            assert_eq!(verdict.cause, VerdictCause::Transient, "{name}");
            assert!(
                !verdict.reason.contains("ede_diagnostic"),
                "{name}: {}",
                verdict.reason
            );
            empty += 1;
        }
    }
    assert_eq!((unreachable, empty), (12, 6));
}
