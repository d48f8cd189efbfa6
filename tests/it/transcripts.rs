//! Transcripts as people have them: of old releases, with repeated and abandoned lines, damaged, and re-written.

use std::{
    fs,
    path::{Path, PathBuf},
};

use ingestdeck_core::run::{
    PollStatus, SinkEvent, Timeline,
    state::{RowKind, RunView, UnitStatus},
};
use ingestdeck_core::tape::Seq;
use ingestdeck_records::replay::{FileSource, OpenError, claude_sessions};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

/// The whole record, and one line per message and end of an attempt.
fn replay(path: &Path) -> (Timeline, Vec<String>) {
    let mut reported = Vec::new();
    let mut timeline = Timeline::new(Box::new(FileSource::open(path).unwrap()));
    let mut emit = |event: SinkEvent<'_>| match event {
        SinkEvent::Message { text, .. } => reported.push(text.to_owned()),
        SinkEvent::Agent { event, .. } => {
            let mut json = Vec::new();
            event.write_json(&mut json);
            let event: serde_json::Value = serde_json::from_slice(&json).unwrap();
            if event["type"] == "completed" {
                reported.push(format!(
                    "completed {} {}",
                    event["ok"],
                    event["error"]
                        .as_str()
                        .or(event["answer"].as_str())
                        .unwrap()
                ));
            }
        }
        _ => {}
    };
    while timeline.advance(1 << 20, &mut emit).unwrap() != PollStatus::End {}
    (timeline, reported)
}

/// Turns, calls and input tokens of the first unit.
fn counts(view: &RunView) -> (u32, u32, u64) {
    let counts = view.state.units[0].latest().unwrap().counts;
    (counts.turns, counts.calls, counts.tokens.input)
}

fn prompts(view: &RunView) -> usize {
    let attempt = view.state.units[0].latest().unwrap();
    view.rows(attempt.id)
        .iter()
        .filter(|row| row.kind == RowKind::Prompt)
        .count()
}

#[test]
fn finished_sessions_of_every_release_have_an_answer() {
    for release in [
        "1.0.98", "1.0.128", "2.0.77", "2.1.29", "2.1.100", "2.1.160", "2.1.332",
    ] {
        let path = fixture(&format!("sessions/releases/{release}.jsonl"));
        let (timeline, reported) = replay(&path);
        let view = timeline.view();
        assert_eq!(
            reported,
            ["completed true The berths are documented."],
            "{release}"
        );
        assert_eq!(
            view.state.units[0].status,
            UnitStatus::Succeeded,
            "{release}"
        );
        assert_eq!(counts(view), (2, 1, 8), "{release}");
        assert_eq!(
            (
                view.state.loss_counts.malformed,
                view.state.loss_counts.unknown
            ),
            (0, 0),
            "{release}"
        );
    }
}

#[test]
fn unfinished_sessions_of_every_release_are_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    for release in ["1.0.98", "2.1.29", "2.1.332"] {
        let path = fixture(&format!("sessions/releases/{release}.jsonl"));
        let text = fs::read_to_string(path).unwrap();
        let end = text.find("The berths are documented").unwrap();
        let end = text[..end].rfind('\n').unwrap() + 1;
        let cut = dir.path().join("cut.jsonl");
        fs::write(&cut, &text[..end]).unwrap();
        let (timeline, reported) = replay(&cut);
        assert_eq!(
            reported,
            ["completed false the session file ends before the agent has answered"],
            "{release}"
        );
        assert_eq!(
            timeline.view().state.units[0].status,
            UnitStatus::Interrupted,
            "{release}"
        );
    }
}

#[test]
fn a_session_resumed_under_another_id_is_one_unit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("later.jsonl");
    let line = |kind: &str, session: &str, uuid: &str, parent: &str, text: &str| {
        format!(
            r#"{{"type":"{kind}","sessionId":"{session}","uuid":"{uuid}","parentUuid":{parent},"message":{{"id":"{uuid}","content":"{text}"}}}}"#
        )
    };
    let asked = line("user", "earlier", "u1", "null", "Which berth?");
    let answered = line("assistant", "later", "a1", "\"u1\"", "The third.");
    fs::write(&path, format!("{asked}\n{answered}\n")).unwrap();
    let (timeline, reported) = replay(&path);
    assert_eq!(reported, ["completed true The third."]);
    let units = &timeline.view().state.units;
    assert_eq!((units.len(), units[0].key.as_str()), (1, "later"));
    let session = units[0].latest().unwrap().setup.session.as_deref();
    assert_eq!(session, Some("later"));
    assert_eq!(units[0].status, UnitStatus::Succeeded);

    let another = line("assistant", "later", "a2", "null", "Another session.");
    fs::write(&path, format!("{asked}\n{another}\n")).unwrap();
    assert_eq!(replay(&path).0.view().state.units.len(), 2);
}

#[test]
fn repeated_lines_of_several_agents_set_aside_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let line = |kind: &str, uuid: &str, parent: &str, is_sidechain: bool| {
        format!(
            r#"{{"type":"{kind}","sessionId":"s","uuid":"{uuid}","parentUuid":"{parent}","isSidechain":{is_sidechain},"message":{{"role":"{kind}","id":"m-{uuid}","content":[{{"type":"text","text":"text of {uuid}"}}]}}}}"#
        )
    };
    let begin = [
        line("user", "a", "", false),
        line("assistant", "b", "a", false),
        line("user", "sa", "", true),
        line("assistant", "sb", "sa", true),
        line("user", "c", "b", false),
        line("assistant", "d", "c", false),
    ];
    let end = [
        line("user", "e", "d", false),
        line("assistant", "f", "e", false),
        line("user", "g", "f", false),
        line("assistant", "h", "g", false),
    ];
    let counted = |lines: &[String]| {
        fs::write(&path, lines.join("\n")).unwrap();
        let (timeline, _) = replay(&path);
        let units = timeline.view().state.units.iter();
        let turns: Vec<u32> = units
            .map(|unit| unit.latest().unwrap().counts.turns)
            .collect();
        (turns, prompts(timeline.view()))
    };
    let repeated = [&begin[..], &begin[1..5], &end[..]].concat();
    let once = [&begin[..], &end[..]].concat();
    assert_eq!(counted(&repeated), counted(&once));
}

#[test]
fn a_copy_that_begins_with_the_open_file_replaces_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let line = |kind: &str, uuid: &str, parent: &str, text: &str| {
        format!(
            r#"{{"type":"{kind}","sessionId":"s","uuid":"{uuid}","parentUuid":{parent},"message":{{"id":"{uuid}","content":[{{"type":"text","text":"{text}"}}]}}}}"#
        )
    };
    let open = "<ide_opened_file>berths.sql</ide_opened_file>";
    let lines = [
        line("user", "u1", "null", "Which berth?"),
        line("assistant", "a1", "\"u1\"", "The third."),
        line("user", "o2", "null", open),
        line("user", "u2", "\"o2\"", "Which berth?"),
        line("assistant", "a2", "\"u2\"", "The third."),
    ];
    fs::write(&path, lines.join("\n")).unwrap();
    let (timeline, _) = replay(&path);
    assert_eq!(
        (counts(timeline.view()).0, prompts(timeline.view())),
        (1, 1),
        "the open file is not a prompt"
    );
}

#[test]
fn a_session_without_a_prompt_was_not_tried() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let command = r#"{"type":"user","sessionId":"s","uuid":"u","message":{"content":"<command-name>/exit</command-name>"}}"#;
    fs::write(&path, format!("{command}\n")).unwrap();
    let (timeline, reported) = replay(&path);
    assert_eq!(
        reported,
        ["completed false the session file contains no prompt"]
    );
    assert_eq!(
        timeline.view().state.units[0].status,
        UnitStatus::NotStarted
    );
}

#[test]
fn damaged_lines_before_the_session_belong_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes.jsonl");
    let asked = r#"{"type":"user","sessionId":"s","uuid":"u","message":{"content":"go"}}"#;
    fs::write(&path, format!("// shortened by hand\n{asked}\n")).unwrap();
    let mut units = Vec::new();
    let mut timeline = Timeline::new(Box::new(FileSource::open(&path).unwrap()));
    let mut emit = |event: SinkEvent<'_>| {
        if let SinkEvent::Agent { unit, .. } = event {
            units.push(unit.to_string());
        }
    };
    while timeline.advance(1 << 20, &mut emit).unwrap() != PollStatus::End {}
    units.dedup();
    assert_eq!(units, ["s"]);
}

#[test]
fn answers_that_end_early_have_their_own_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let text = fs::read_to_string(fixture("sessions/releases/2.1.160.jsonl")).unwrap();
    for (stop, reason) in [
        (
            "max_tokens",
            "the answer reached the limit of output tokens",
        ),
        ("refusal", "the model refused to answer"),
        (
            "model_context_window_exceeded",
            "the answer reached the limit of the context window",
        ),
    ] {
        fs::write(&path, text.replace("\"end_turn\"", &format!("\"{stop}\""))).unwrap();
        let (timeline, reported) = replay(&path);
        assert_eq!(reported, [format!("completed false {reason}")], "{stop}");
        let unit = &timeline.view().state.units[0];
        assert_eq!(unit.status, UnitStatus::Failed, "{stop}");
        let shown = unit.latest().unwrap().failure_reason().unwrap();
        assert!(shown.contains(reason), "{shown}");
    }
}

#[test]
fn interrupts_and_compactions_are_messages() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let lines = [
        r#"{"type":"user","uuid":"1","sessionId":"s","message":{"content":"go"}}"#,
        r#"{"type":"assistant","uuid":"2","parentUuid":"1","sessionId":"s","message":{"id":"m","model":"m","stop_reason":null,"content":[{"type":"text","text":"I begin"}]}}"#,
        r#"{"type":"system","subtype":"compact_boundary","uuid":"3","sessionId":"s","compactMetadata":{"trigger":"auto","preTokens":900}}"#,
        r#"{"type":"user","uuid":"4","sessionId":"s","message":{"content":[{"type":"text","text":"[Request interrupted by user]"}]}}"#,
    ];
    fs::write(&path, lines.join("\n")).unwrap();
    let (timeline, reported) = replay(&path);
    assert_eq!(
        reported,
        [
            "context compacted (auto) at 900 tokens",
            "Request interrupted by user",
            "completed false a person interrupted the agent"
        ]
    );
    assert_eq!(
        timeline.view().state.units[0].status,
        UnitStatus::Interrupted
    );
}

#[test]
fn notices_of_the_screen_are_also_messages() {
    let (_, reported) = replay(&fixture("transcripts/new-messages-2.1.33x.jsonl"));
    assert_eq!(
        reported,
        [
            "Claude Code could not save lines of its session, which a resumed session will miss (ENOSPC)",
            "The model declined to answer.",
            "the conversation was reset; the session is now 00000000-0000-4000-8000-000000000047",
            "completed true The page is written."
        ]
    );
}

#[test]
fn lines_that_a_compaction_repeats_count_once() {
    let (timeline, reported) = replay(&fixture(
        "transcripts/session-compaction-replays-history.jsonl",
    ));
    let view = timeline.view();
    assert_eq!(counts(view), (3, 1, 18));
    assert_eq!(prompts(view), 2);
    assert_eq!(
        reported,
        [
            "context compacted (manual) at 150000 tokens",
            "6 lines repeated after a compaction",
            "completed true Continuing."
        ]
    );
    // The lines are still in the transcript.
    let lines = 16;
    assert_eq!(
        view.entries(view.state.units[0].latest().unwrap().id).len(),
        lines + 2
    );
}

#[test]
fn repeated_lines_count_once_in_a_growing_session() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let text = fs::read_to_string(fixture(
        "transcripts/session-compaction-replays-history.jsonl",
    ))
    .unwrap();
    let half = text.find("compact_boundary").unwrap() + 400;
    fs::write(&path, &text[..half]).unwrap();
    let (source, follower) = FileSource::follow_session(&path).unwrap().unwrap();
    let mut timeline = Timeline::new(Box::new(source));
    fs::write(&path, &text).unwrap();
    follower.finish();
    while timeline.advance(1 << 20, &mut |_| {}).unwrap() != PollStatus::End {
        crate::support::pause_before_check();
    }
    assert_eq!(counts(timeline.view()), (3, 1, 18));
}

#[test]
fn branches_that_were_taken_back_do_not_count() {
    let path = fixture("transcripts/session-rewound-branch.jsonl");
    let (mut timeline, reported) = replay(&path);
    assert_eq!(
        reported,
        [
            "1 turn taken back",
            "completed true Answer on the live branch."
        ]
    );
    assert_eq!(counts(timeline.view()), (2, 0, 12));
    assert_eq!(prompts(timeline.view()), 2);
    let end = timeline.view().state.clone();
    for moment in (0..end.entries).rev() {
        timeline.seek(moment).unwrap();
    }
    timeline.seek(end.entries).unwrap();
    assert_eq!(counts(timeline.view()), (2, 0, 12));
}

#[test]
fn reported_total_covers_the_sub_agents_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let message = |second: u32, agent: Option<&str>| {
        let agent = agent.map_or_else(String::new, |agent| {
            format!(r#""isSidechain":true,"agentId":"{agent}","#)
        });
        format!(
            r#"{{"type":"assistant","uuid":"a{second}","sessionId":"s",{agent}"timestamp":"2026-01-01T00:00:{second:02}.000Z","message":{{"id":"m{second}","model":"claude-sonnet-4-5","role":"assistant","content":[{{"type":"text","text":"x"}}],"stop_reason":"end_turn","usage":{{"output_tokens":1000000}}}}}}"#
        )
    };
    let total = r#"{"type":"cost-state","sessionId":"s","totalCostUSD":20}"#;
    let path = dir.path().join("s.jsonl");
    let agents = dir.path().join("s/subagents");
    fs::create_dir_all(&agents).unwrap();
    let shown = |main: &[&str], before: bool, after: bool| {
        fs::write(&path, main.join("\n")).unwrap();
        for (agent, second, exists) in [("x", 1, before), ("y", 9, after)] {
            let file = agents.join(format!("agent-{agent}.jsonl"));
            match exists {
                true => fs::write(file, message(second, Some(agent))).unwrap(),
                false => drop(fs::remove_file(file)),
            }
        }
        let state = replay(&path).0.view().state.clone();
        state.cost_figure().to_string()
    };
    let (first, last) = (message(2, None), message(10, None));
    assert_eq!(shown(&[&first], true, false), "~$30.00");
    assert_eq!(shown(&[&first, total], true, false), "$20.00");
    assert_eq!(shown(&[&first, total], true, true), "~$35.00");
    assert_eq!(shown(&[&first, total, &last], true, true), "~$50.00");
}

/// A session file that is too large to be read before its beginning is shown: it has repeated lines and a branch that was
/// taken back in its beginning, and a sub-agent if `has_agent`.
pub(crate) fn large_session(dir: &Path, has_agent: bool) -> PathBuf {
    let mut lines = vec![
        line("u1", "", "\"first\""),
        line("a1", "u1", &text("one")),
        line("u2", "a1", "\"second\""),
        line("a2", "u2", &text("two")),
        line("u3", "a1", "\"third\""),
        line("u1", "", "\"first\""),
        line("a1", "u1", &text("one")),
        line("a3", "u3", &text("three")),
    ];
    let mut before = "a3".to_owned();
    for turn in 4..64 {
        let (prompt, answer) = (format!("u{turn}"), format!("a{turn}"));
        lines.push(line(&prompt, &before, "\"more\""));
        lines.push(line(&answer, &prompt, &text(&"long ".repeat(20_000))));
        before = answer;
    }
    let timed = |(second, line): (usize, &String)| {
        let (minute, second) = (second / 60, second % 60);
        let time = format!("{{\"timestamp\":\"2026-01-01T00:{minute:02}:{second:02}.000Z\",");
        line.replacen('{', &time, 1)
    };
    let timed_lines: Vec<String> = lines.iter().enumerate().map(timed).collect();
    let path = dir.join("s.jsonl");
    fs::write(&path, timed_lines.concat()).unwrap();
    if has_agent {
        let agents = dir.join("s/subagents");
        fs::create_dir_all(&agents).unwrap();
        let lines = line("u", "", "\"look\"") + &line("a", "u", &text("seen"));
        let lines = lines.replace(
            "\"isSidechain\":false",
            "\"isSidechain\":true,\"agentId\":\"x\"",
        );
        let timed_lines = lines
            .lines()
            .map(|line| timed((4, &line.to_owned())) + "\n")
            .collect::<String>();
        fs::write(agents.join("agent-x.jsonl"), timed_lines).unwrap();
    }
    path
}

#[test]
fn beginning_of_a_large_session_is_shown_early() {
    for has_agent in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let path = large_session(dir.path(), has_agent);
        let mut timeline = Timeline::new(Box::new(FileSource::open_early(&path).unwrap()));
        assert!(timeline.is_provisional());
        // It never ends before the rest is known, and does not show the rest.
        while timeline.advance(1 << 20, &mut |_| {}).unwrap() == PollStatus::More {}
        assert_eq!(
            timeline.advance(1 << 20, &mut |_| {}).unwrap(),
            PollStatus::Waiting
        );
        let early = timeline.known_entries();
        assert!((8..120).contains(&early), "{early}");
        assert_eq!(
            prompts(timeline.view()),
            4 + (early as usize - 8).div_ceil(2)
        );
        let body = |timeline: &mut Timeline, seq: u64| {
            let mut body = Vec::new();
            timeline
                .read(Seq(seq), &mut |entry| body = entry.body.bytes().to_vec())
                .unwrap();
            body
        };
        let lines: Vec<Vec<u8>> = (0..early).map(|seq| body(&mut timeline, seq)).collect();
        // The moment after the second prompt is shown when the rest is known.
        timeline.seek(3).unwrap();
        let (before, numbers) = loop {
            match timeline.settle().unwrap() {
                Some(settled) => break settled,
                None => crate::support::pause_before_check(),
            }
        };
        assert!(!timeline.is_provisional() && timeline.settle().unwrap().is_none());
        assert_eq!(before.state.entries, 3);
        assert_eq!(timeline.view().state.entries, numbers[2].0 + 1);
        timeline.seek(u64::MAX).unwrap();
        for (line, seq) in lines.iter().zip(&numbers) {
            assert_eq!(*line, body(&mut timeline, seq.0));
        }
        let (whole, _) = replay(&path);
        assert_eq!(timeline.view().state, whole.view().state);
        for unit in &whole.view().state.units {
            let id = unit.latest().unwrap().id;
            assert_eq!(timeline.view().rows(id), whole.view().rows(id));
            assert_eq!(timeline.view().entries(id), whole.view().entries(id));
        }
        assert_eq!(counts(timeline.view()).0, 62);
        assert_eq!(
            timeline.view().state.units.len(),
            1 + usize::from(has_agent)
        );
    }
}

#[test]
fn small_sessions_are_whole_at_first() {
    let path = fixture("transcripts/session-rewound-branch.jsonl");
    let timeline = Timeline::new(Box::new(FileSource::open_early(&path).unwrap()));
    assert!(!timeline.is_provisional());
    assert!(FileSource::open_early(Path::new("missing.jsonl")).is_err());
}

/// A line of a session: its id, the line before it, and its text. The author follows from the id.
fn line(uuid: &str, parent: &str, content: &str) -> String {
    let (kind, id) = if uuid.starts_with('a') {
        (
            "assistant",
            format!("\"id\":\"{uuid}\",\"model\":\"m\",\"stop_reason\":\"end_turn\","),
        )
    } else {
        ("user", String::new())
    };
    let parent = if parent.is_empty() {
        "null".to_owned()
    } else {
        format!("\"{parent}\"")
    };
    format!(
        "{{\"type\":\"{kind}\",\"sessionId\":\"s\",\"uuid\":\"{uuid}\",\"parentUuid\":{parent},\"isSidechain\":false,\"message\":{{{id}\"content\":{content}}}}}\n"
    )
}

fn text(text: &str) -> String {
    format!("[{{\"type\":\"text\",\"text\":\"{text}\"}}]")
}

#[test]
fn every_shape_of_a_branch_is_recognized() {
    let call = |id: &str| {
        format!("[{{\"type\":\"tool_use\",\"id\":\"{id}\",\"name\":\"Read\",\"input\":{{}}}}]")
    };
    let result = |id: &str| {
        format!("[{{\"type\":\"tool_result\",\"tool_use_id\":\"{id}\",\"content\":\"x\"}}]")
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let facts = |lines: &[String]| {
        fs::write(&path, lines.concat()).unwrap();
        let (timeline, mut reported) = replay(&path);
        reported.pop();
        let (turns, calls, _) = counts(timeline.view());
        (turns, calls, reported.join("; "))
    };
    // Calls that run in parallel.
    let parallel = [
        line("u1", "", "\"go\""),
        line("a1", "u1", &call("t1")).replace("end_turn", "tool_use"),
        line("a2", "a1", &call("t2"))
            .replace("end_turn", "tool_use")
            .replace("\"id\":\"a2\"", "\"id\":\"a1\""),
        line("u2", "a1", &result("t1")),
        line("u3", "a2", &result("t2")),
        line("a3", "u3", &text("done")),
    ];
    assert_eq!(facts(&parallel), (2, 2, String::new()));
    // The branch that was left has calls, and was left twice.
    let twice = [
        line("u1", "", "\"go\""),
        line("a1", "u1", &text("yes")),
        line("u2", "a1", "\"one\""),
        line("a2", "u2", &call("t1")),
        line("u3", "a2", &result("t1")),
        line("a3", "u3", &text("one")),
        line("u4", "a1", "\"two\""),
        line("a4", "u4", &text("two")),
        line("u5", "a1", "\"three\""),
        line("a5", "u5", &text("three")),
    ];
    assert_eq!(
        facts(&twice),
        (2, 0, "2 turns taken back; 1 turn taken back".to_owned())
    );
    // The first prompt was replaced.
    let first = [
        line("u1", "", "\"go\""),
        line("a1", "u1", &text("yes")),
        line("u2", "", "\"go again\""),
        line("a2", "u2", &text("yes again")),
    ];
    assert_eq!(facts(&first), (1, 0, "1 turn taken back".to_owned()));
    // A person returned to the branch that was left.
    let returned = [
        line("u1", "", "\"go\""),
        line("a1", "u1", &text("yes")),
        line("u2", "a1", "\"one\""),
        line("a2", "u2", &text("one")),
        line("u3", "a1", "\"two\""),
        line("a3", "u3", &text("two")),
        line("u4", "a2", "\"more of one\""),
        line("a4", "u4", &text("more")),
    ];
    assert_eq!(facts(&returned), (3, 0, "1 turn taken back".to_owned()));
    // Lines without links, and a cycle.
    let unlinked = [
        line("u1", "", "\"go\""),
        line("a1", "", &text("yes")),
        line("u2", "", "\"more\""),
        line("a2", "", &text("more")),
    ];
    assert_eq!(facts(&unlinked), (2, 0, String::new()));
    let cycle = [
        line("u1", "a1", "\"go\""),
        line("a1", "u1", &text("yes")),
        line("u2", "u2", "\"more\""),
        line("a2", "u2", &text("more")),
    ];
    assert_eq!(facts(&cycle), (2, 0, String::new()));
    // Only a prompt.
    let unanswered = [
        line("u1", "", "\"go\""),
        line("a1", "u1", &text("yes")),
        line("u2", "a1", "\"one\""),
        line("u3", "a1", "\"two\""),
        line("a3", "u3", &text("two")),
    ];
    assert_eq!(facts(&unanswered), (2, 0, "1 prompt taken back".to_owned()));
}

#[test]
fn records_of_damaged_lines_are_not_lost() {
    for (name, recovered) in [("two-records-one-line", 1), ("nul-prefix-before-record", 1)] {
        let (timeline, reported) = replay(&fixture(&format!("transcripts/{name}.jsonl")));
        let view = timeline.view();
        assert_eq!(reported, ["completed true The page is written."], "{name}");
        assert_eq!(
            view.state.units[0].latest().unwrap().counts.calls,
            1,
            "{name}"
        );
        assert_eq!(
            (
                view.state.loss_counts.malformed,
                timeline.source().info().recovered
            ),
            (0, recovered),
            "{name}"
        );
    }
    let (timeline, _) = replay(&fixture("transcripts/message-as-character-map.jsonl"));
    assert_eq!(timeline.view().state.loss_counts.malformed, 1);
}

#[test]
fn lists_and_utf_16_open_like_their_lines() {
    for name in ["json-array-pretty.json", "utf16le-bom.jsonl"] {
        let (timeline, reported) = replay(&fixture(&format!("transcripts/{name}")));
        assert_eq!(reported, ["completed true The page is written."], "{name}");
        assert_eq!(
            timeline.view().state.units[0].status,
            UnitStatus::Succeeded,
            "{name}"
        );
        assert_eq!(timeline.source().info().recovered, 0, "{name}");
    }
}

#[test]
fn result_that_is_cut_shows_the_whole_answer() {
    let (_, reported) = replay(&fixture("transcripts/result-text-cut.jsonl"));
    assert_eq!(
        reported,
        [r#"completed true {"pages": ["berths", "pilots"]}"#]
    );
}

#[test]
fn record_that_ends_at_a_question_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let lines = [
        r#"{"type":"system","subtype":"init","session_id":"s","model":"m"}"#,
        r#"{"type":"assistant","session_id":"s","message":{"id":"m1","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{}}]}}"#,
        r#"{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","tool_name":"Bash","tool_use_id":"t1","input":{}}}"#,
    ];
    fs::write(&path, lines.join("\n")).unwrap();
    let (_, reported) = replay(&path);
    assert_eq!(
        reported,
        ["completed false the record ends while a call waits for an answer"]
    );
}

#[test]
fn transcripts_of_other_agents_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    for (line, agent) in [
        (
            r#"{"timestamp":"2026-01-01T00:00:00Z","type":"session_meta","payload":{"id":"x"}}"#,
            "Codex",
        ),
        (
            r#"{"type":"step_start","timestamp":1,"sessionID":"ses_1","part":{"type":"step-start"}}"#,
            "OpenCode",
        ),
        (
            r#"{"type":"session","version":3,"id":"x","timestamp":"2026-01-01T00:00:00Z","cwd":"/w"}"#,
            "Pi",
        ),
    ] {
        fs::write(&path, format!("{line}\n{line}\n")).unwrap();
        let Err(OpenError::Unsupported { refusal, .. }) = FileSource::open(&path) else {
            panic!("{agent}");
        };
        assert_eq!(
            refusal.to_string(),
            format!("it looks like a transcript of {agent}, which is not supported")
        );
    }
}

#[test]
fn forks_have_their_own_title_and_cost() {
    let listed = |folder: &Path| {
        let list = claude_sessions::records_in(folder, 9).unwrap();
        let mut files: Vec<_> = list
            .files
            .into_iter()
            .map(|file| {
                let cost = format!("{:.6}", file.cost_usd.unwrap());
                let fork = file
                    .fork_of
                    .map(|id| id.chars().take(4).collect::<String>());
                (file.title.unwrap(), cost, fork)
            })
            .collect();
        files.sort();
        files
    };
    let expected = |parent: &str| {
        [
            (
                "forked question".to_owned(),
                "0.001244".to_owned(),
                Some("1111".to_owned()),
            ),
            ("please DELEGATE".to_owned(), parent.to_owned(), None),
        ]
    };
    let folder = fixture("sessions/-home-dev-forks");
    assert_eq!(listed(&folder), expected("0.009980"));
    // The parent went on after the fork.
    let dir = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let mut text = fs::read_to_string(&path).unwrap();
            if path
                .file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("1111")
            {
                let last = text.lines().last().unwrap().replace("0.00998", "0.0102");
                text += &line("u9", "", "\"more\"");
                text += &(last + "\n");
            }
            fs::write(dir.path().join(path.file_name().unwrap()), text).unwrap();
        }
    }
    assert_eq!(listed(dir.path()), expected("0.010200"));
}

#[test]
fn agents_of_agents_are_named_after_their_callers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    fs::write(&path, line("u1", "", "\"go\"")).unwrap();
    let agents = dir.path().join("s/subagents");
    fs::create_dir_all(&agents).unwrap();
    let agent = |id: &str, content: &str, meta: &str| {
        let text = line("u1", "", "\"go\"") + &line("a1", "u1", content);
        let text = text.replace(
            "\"isSidechain\":false",
            &format!("\"isSidechain\":true,\"agentId\":\"{id}\""),
        );
        fs::write(agents.join(format!("agent-{id}.jsonl")), text).unwrap();
        if !meta.is_empty() {
            fs::write(agents.join(format!("agent-{id}.meta.json")), meta).unwrap();
        }
    };
    let call = r#"[{"type":"tool_use","id":"t2","name":"Agent","input":{}}]"#;
    agent(
        "aa2",
        &text("x"),
        r#"{"description":"count","toolUseId":"t2","spawnDepth":2}"#,
    );
    agent(
        "ab1",
        call,
        r#"{"description":"look","toolUseId":"t1","spawnDepth":1}"#,
    );
    agent("acompact-0f", &text("x"), "");
    let (timeline, _) = replay(&path);
    let mut names: Vec<_> = timeline
        .view()
        .state
        .units
        .iter()
        .map(|unit| unit.key.as_str())
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "Claude Code: compact (acompact-0f)",
            "look",
            "look › count",
            "s"
        ]
    );
}
