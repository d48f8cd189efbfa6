//! Every output about the end of an attempt must agree: the contract, the verdict, the state of the unit, the lines,
//! the JSON stream, the report and the exit code.

use std::{collections::BTreeMap, fs, path::Path};

use super::{
    args::EventVocabulary,
    exit::Exit,
    json::JsonWriter,
    lines::{LineFormat, LinesWriter},
    summary::RunSummary,
};
use ingestdeck_core::{
    actions::{SessionCheck, SessionIdentity, TurnTracker},
    decode,
    run::{
        EntrySource as _, PollStatus, RunReport, Timeline, attempt_reducer::AttemptReducer,
        report::ReportBuilder, state::RunState, state::UnitStatus,
    },
    tape::{
        Note,
        note::{AttemptEnded, AttemptOutcome, AttemptStarted, StopReason, Verdict, VerdictCause},
    },
    units::verdict::{AttemptFacts, FailureRule, ProcessFacts, judge_attempt},
};
use ingestdeck_records::replay::FileSource;
use proptest::prelude::*;
use serde_json::{Value, json};

/// All outputs for one record.
struct RecordOutputs {
    json: Vec<Value>,
    lines: String,
    report: RunReport,
    state: RunState,
    exit: Exit,
}

fn record_outputs(path: &Path) -> RecordOutputs {
    let source = FileSource::open(path).unwrap();
    let origin = source.info().clone();
    let (mut json, mut lines, mut gathering) = (Vec::new(), Vec::new(), ReportBuilder::default());
    let (mut to_json, mut to_lines) = (
        JsonWriter::new(&mut json, &origin, EventVocabulary::Takopi),
        LinesWriter::new(&mut lines, LineFormat::TERMINAL),
    );
    let mut timeline = Timeline::new_forward_only(Box::new(source));
    while timeline
        .advance(1 << 20, &mut |emitted| {
            to_json.write_event(&emitted);
            to_lines.write_event(&emitted);
            gathering.observe(&emitted);
        })
        .unwrap()
        != PollStatus::End
    {}
    let state = timeline.view().state.clone();
    let summary = RunSummary::from_state(&state);
    to_json.finish(&state, &summary).unwrap();
    to_lines.finish(&summary.to_text(&origin, &state)).unwrap();
    let json = String::from_utf8(json).unwrap();
    let parse = |line: &str| {
        // Lone surrogates are rejected here, as strict JSON readers do.
        assert!(
            !line.contains("\\ud") || serde_json::from_str::<Value>(line).is_ok(),
            "{line}"
        );
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    };
    let json = json.lines().map(parse).collect();
    let report = gathering.finish(&origin, timeline.view(), false);
    RecordOutputs {
        json,
        lines: String::from_utf8(lines).unwrap(),
        report,
        state,
        exit: summary.exit(),
    }
}

/// Names the session of a capture, so that no line comes before it.
const FIRST: &str = r#"{"type":"system","subtype":"hook_started","session_id":"s"}"#;

/// The events of one attempt in the JSON stream.
#[derive(Default)]
struct AttemptOutputs {
    started: usize,
    calls: usize,
    completed: Vec<(bool, String)>,
    after: usize,
    state: String,
    reason: String,
}

fn of_attempts(json: &[Value]) -> BTreeMap<(String, u64), AttemptOutputs> {
    let mut all: BTreeMap<(String, u64), AttemptOutputs> = BTreeMap::new();
    for line in json {
        let (Some(unit), Some(attempt)) = (line["unit"].as_str(), line["try"].as_u64()) else {
            continue;
        };
        let (event, of) = (
            &line["event"],
            all.entry((unit.to_owned(), attempt)).or_default(),
        );
        match event["type"].as_str().unwrap() {
            "started" => {
                of.started += 1;
                of.after += of.completed.len();
            }
            "action" => {
                of.after += of.completed.len();
                of.calls += usize::from(event["phase"] == "started");
            }
            "completed" => of
                .completed
                .push((event["ok"].as_bool().unwrap(), event["answer"].to_string())),
            // The result of the integration of its changes is not an outcome of the attempt.
            "unit" if event["state"] != "integrated" => {
                of.state = event["state"].as_str().unwrap().to_owned();
                of.reason = event["reason"].as_str().unwrap_or_default().to_owned();
            }
            _ => {}
        }
    }
    all
}

/// Fails if time goes backwards within an attempt. Only captures with their own times may do that.
fn in_order(json: &[Value]) {
    let mut times: BTreeMap<String, u64> = BTreeMap::new();
    for line in json.iter().filter(|line| line["unit"].is_string()) {
        let at = line["at"].as_u64().unwrap();
        let before = times.insert(format!("{}#{}", line["unit"], line["try"]), at);
        assert!(before <= Some(at), "time goes back: {line}");
    }
}

/// Quoted results that only one result has, such as `answer 7`.
fn answers(text: &str) -> Vec<&str> {
    text.match_indices("answer-")
        .map(|(at, _)| {
            text[at..]
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
                .next()
                .unwrap()
        })
        .collect()
}

/// Fails if two of the outputs contradict each other.
fn assert_outputs_agree(name: &str, outputs: &RecordOutputs) {
    for ((unit, attempt), of) in of_attempts(&outputs.json) {
        let name = format!("{name}: {unit}#{attempt}");
        let fold = outputs
            .state
            .units
            .iter()
            .find(|found| found.key.as_str() == unit)
            .unwrap();
        let Some(folded) = fold
            .attempts
            .iter()
            .find(|found| u64::from(found.number) == attempt)
        else {
            continue;
        };
        assert_eq!(
            (of.completed.len(), of.after),
            (1, 0),
            "{name}: one completed event, and nothing after it"
        );
        assert!(of.started <= 1, "{name}");
        let (ok, answer) = &of.completed[0];
        assert_eq!(folded.reported_ok, Some(*ok), "{name}");
        match of.state.as_str() {
            "succeeded" => assert!(ok, "{name}: {}", of.reason),
            // The agent succeeded, but its files do not pass the checks of an ingest.
            "failed"
                if folded
                    .verdict
                    .as_ref()
                    .is_some_and(|verdict| verdict.stop == StopReason::Natural) => {}
            "failed" => assert!(!ok, "{name}: {}", of.reason),
            "budget" | "stopped" | "interrupted" => {}
            // An attempt that was followed by another one.
            "running" | "queued" | "waiting" => {
                assert_ne!(fold.attempts.last(), Some(folded), "{name}")
            }
            other => panic!("{name}: {other}"),
        }
        if let (Some(verdict), Some(true)) = (
            &folded.verdict,
            fold.attempts.last().map(|last| last == folded),
        ) {
            let outcome = match verdict.outcome {
                AttemptOutcome::Succeeded if verdict.cause == VerdictCause::Budget => "budget",
                AttemptOutcome::Succeeded => "succeeded",
                AttemptOutcome::Failed => "failed",
                AttemptOutcome::Stopped => "stopped",
            };
            assert_eq!(outcome, of.state, "{name}: {}", verdict.reason);
        }
        // A quoted answer must be the one that decided.
        if let [decided] = answers(answer)[..] {
            assert!(
                answers(&of.reason).iter().all(|quoted| *quoted == decided),
                "{name}: {answer} {}",
                of.reason
            );
        }
        assert_eq!(of.calls, folded.counts.calls as usize, "{name}");
        let report = outputs
            .report
            .units
            .iter()
            .find(|report| report.key.as_str() == unit)
            .unwrap();
        let reported = report
            .attempts
            .iter()
            .find(|report| u64::from(report.state.number) == attempt)
            .unwrap();
        assert_eq!(reported.state.verdict, folded.verdict, "{name}");
        if fold.attempts.last() == Some(folded) {
            assert_eq!(
                (report.status.as_str(), fold.status.as_str()),
                (&*of.state, &*of.state),
                "{name}"
            );
        }
    }
    if let [unit] = &outputs.state.units[..]
        && let [attempt] = &unit.attempts[..]
        && attempt.reported_ok.is_some()
    {
        let glyphs: Vec<char> = ['✓', '✗', '◆', '■']
            .into_iter()
            .filter(|glyph| outputs.lines.contains(&format!("{glyph} completed:")))
            .collect();
        let expected: &[char] = match unit.status {
            UnitStatus::Succeeded => &['✓'],
            UnitStatus::Failed | UnitStatus::Interrupted => &['✗'],
            UnitStatus::BudgetExhausted => &['✓', '◆'],
            _ => &['✓', '✗', '■'],
        };
        assert!(
            matches!(glyphs[..], [glyph] if expected.contains(&glyph)),
            "{name}: {glyphs:?} of {}\n{}",
            unit.status.as_str(),
            outputs.lines
        );
        let exit = if matches!(
            unit.status,
            UnitStatus::Succeeded | UnitStatus::BudgetExhausted
        ) {
            Exit::Ok
        } else {
            outputs.exit
        };
        assert_eq!(outputs.exit, exit, "{name}");
        assert_eq!(
            outputs.exit == Exit::Ok,
            matches!(
                unit.status,
                UnitStatus::Succeeded | UnitStatus::BudgetExhausted
            ),
            "{name}"
        );
    }
    let summary = &outputs.json.last().unwrap()["event"];
    let costs: Vec<f64> = outputs
        .state
        .units
        .iter()
        .flat_map(|unit| &unit.attempts)
        .filter_map(|attempt| attempt.counts.cost_usd)
        .collect();
    // A record without attempts cost nothing.
    let has_attempts = outputs
        .state
        .units
        .iter()
        .any(|unit| !unit.attempts.is_empty());
    let cost = (!costs.is_empty() || !has_attempts).then(|| costs.iter().sum::<f64>());
    let near = |a: Option<f64>, b: Option<f64>| {
        a.unwrap_or_default()
            .mul_add(-1.0, b.unwrap_or_default())
            .abs()
            < 1e-9
            && a.is_some() == b.is_some()
    };
    assert!(near(summary["cost_usd"].as_f64(), cost), "{name}");
    assert!(near(outputs.report.totals.cost, cost), "{name}");
    assert!(
        (outputs.state.spent_usd - cost.unwrap_or_default()).abs() < 1e-9,
        "{name}"
    );
    let calls: u64 = outputs
        .state
        .units
        .iter()
        .flat_map(|unit| &unit.attempts)
        .map(|attempt| u64::from(attempt.counts.calls))
        .sum();
    assert_eq!(summary["calls"], calls, "{name}");
}

#[test]
fn all_outputs_agree_on_captures() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut seen = 0;
    for folder in ["captures", "captures/versions", "ktx", "tapes"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let is_refused = name.starts_with("request_") || name.ends_with(".meta.json");
            if path.is_file() && name.contains(".json") && !is_refused {
                assert_outputs_agree(&name, &record_outputs(&path));
                seen += 1;
            }
        }
    }
    assert!(seen > 150, "{seen}");
}

#[test]
fn background_work_counts_up_to_its_last_result() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/captures");
    for (name, answer, calls) in [
        ("background_bash.jsonl", "I wrote second.txt", 2),
        ("background_agent.jsonl", "the agent said: sub done", 2),
        (
            "versions/2.1.223_background_bash.jsonl",
            "I wrote second.txt",
            2,
        ),
        (
            "versions/2.1.223_background_agent.jsonl",
            "the agent said: sub done",
            2,
        ),
        (
            "versions/2.1.200_background_agent.jsonl",
            "the agent said: sub done",
            2,
        ),
        (
            "versions/2.1.160_background_agent.jsonl",
            "the agent said: sub done",
            2,
        ),
    ] {
        let lines = fs::read_to_string(root.join(name)).unwrap();
        let lines: Vec<&str> = lines.lines().collect();
        let scratch = tempfile::tempdir().unwrap();
        let live = recorded(scratch.path(), &lines, None);
        for (kind, outputs) in [
            ("capture", record_outputs(&root.join(name))),
            ("tape", record_outputs(&live)),
        ] {
            assert_outputs_agree(name, &outputs);
            let of = of_attempts(&outputs.json).into_values().next().unwrap();
            assert_eq!(
                of.completed,
                [(true, Value::from(answer).to_string())],
                "{name} as a {kind}"
            );
            assert_eq!(
                (of.calls, of.state.as_str()),
                (calls, "succeeded"),
                "{name} as a {kind}"
            );
        }
    }
}

#[test]
fn background_calls_and_the_ends_of_their_tasks_are_events() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/captures");
    let events = |name: &str| {
        let outputs = record_outputs(&root.join(name));
        let of = |line: &Value| match line["event"]["type"].as_str()? {
            "action" if line["event"]["phase"] == "completed" => Some(json!([
                line["event"]["action"]["id"],
                line["background"],
                line["event"]["ok"]
            ])),
            "task" => {
                let event = &line["event"];
                Some(json!([
                    event["kind"],
                    event["phase"],
                    event["ok"],
                    event["agent"]["name"]
                ]))
            }
            _ => None,
        };
        (
            outputs.json.iter().filter_map(of).collect::<Vec<_>>(),
            outputs.lines,
        )
    };
    let (json, lines) = events("background_bash.jsonl");
    assert_eq!(
        json,
        [
            json!(["command", "started", null, null]),
            json!(["b1", true, true]),
            json!(["command", "completed", true, null]),
            json!(["w1", null, true]),
        ]
    );
    assert!(lines.contains("in the background"), "{lines}");
    assert!(
        lines.contains("task completed: command wait (bmzyn6zpv): Background command"),
        "{lines}"
    );
    let (json, lines) = events("versions/2.1.332_workflow_two_agents.jsonl");
    assert_eq!(
        json,
        [
            json!(["workflow", "started", null, null]),
            json!(["wf1", true, true]),
            json!(["workflow", "updated", null, "one"]),
            json!(["workflow", "updated", null, "two"]),
            json!(["workflow", "completed", true, null]),
        ]
    );
    assert!(
        lines.contains("two-look: Look: one · 105 tokens, 0 calls"),
        "{lines}"
    );
}

#[test]
fn resumed_sessions_cost_what_they_spent_themselves() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/captures");
    for (name, expected) in [
        ("resume_same_id.jsonl", Some(0.000_62)),
        ("versions/2.1.300_resume.jsonl", None),
        ("versions/2.1.223_resume.jsonl", Some(0.001_55)),
    ] {
        let lines = fs::read_to_string(root.join(name)).unwrap();
        let lines: Vec<&str> = lines.lines().collect();
        let session = decode::decode_line(lines[0].as_bytes())
            .session_id
            .unwrap()
            .into_owned();
        let scratch = tempfile::tempdir().unwrap();
        let outputs = record_outputs(&recorded(
            scratch.path(),
            &lines,
            Some(ResumedFrom {
                session: &session,
                tolerant: false,
            }),
        ));
        assert_outputs_agree(name, &outputs);
        let cost = outputs.state.units[0].attempts[0].counts.cost_usd;
        assert_eq!(cost.is_some(), expected.is_some(), "{name}: {cost:?}");
        assert!(
            (cost.unwrap_or_default() - expected.unwrap_or_default()).abs() < 1e-6,
            "{name}: {cost:?}"
        );
    }
}

/// A session that an attempt continues.
#[derive(Clone, Copy, Debug)]
struct ResumedFrom<'a> {
    session: &'a str,
    tolerant: bool,
}

/// A tape of a plain session that printed `lines`, with the verdict of the running program.
fn recorded(folder: &Path, lines: &[&str], resume: Option<ResumedFrom<'_>>) -> std::path::PathBuf {
    let mut argv = vec!["claude".to_owned(), "-p".to_owned()];
    if let Some(resume) = resume {
        argv.extend(["--resume".to_owned(), resume.session.to_owned()]);
    }
    argv.extend(["--".to_owned(), "go".to_owned()]);
    let tolerates_mismatch = resume.is_some_and(|resume| resume.tolerant);
    let started = Note::AttemptStarted(Box::new(AttemptStarted {
        argv,
        tolerates_mismatch,
        ..AttemptStarted::default()
    }));
    let verdict = judged(lines, resume);
    let ended = Note::AttemptEnded(Box::new(AttemptEnded {
        verdict,
        tool_failures: 0,
        failed_call: None,
        exit_code: Some(0),
        signal: None,
        stderr_tail: Vec::new(),
        wrote: Vec::new(),
        work: Default::default(),
        extra: serde_json::Map::default(),
    }));
    let header = json!({"tape": 1, "program": "ingestdeck", "run": "00000000-0000-7000-8000-000000000007", "started_at": "2026-01-01T00:00:00Z"});
    let mut tape = header.to_string();
    let mut entry = |body: &str, value: &str| {
        let seq = tape.matches('\n').count();
        tape.push_str(&format!(
            "\n{{\"seq\":{seq},\"at\":{seq},\"unit\":\"session\",\"try\":1,\"{body}\":{value}}}"
        ));
    };
    entry("note", std::str::from_utf8(&started.to_json()).unwrap());
    for line in lines {
        match decode::is_json(line.as_bytes()) {
            true => entry("out", line),
            false => entry("raw", &json!(line).to_string()),
        }
    }
    entry("note", std::str::from_utf8(&ended.to_json()).unwrap());
    tape.push('\n');
    let path = folder.join("tape.jsonl");
    fs::write(&path, tape).unwrap();
    path
}

/// The verdict of the running program on these lines.
fn judged(lines: &[&str], resume: Option<ResumedFrom<'_>>) -> Verdict {
    let mut reported = AttemptReducer::new(TurnTracker::for_one_prompt());
    let mut identity = resume
        .map(|resume| SessionIdentity::resuming(resume.session, resume.tolerant))
        .unwrap_or_default();
    let mut facts = AttemptFacts {
        process: ProcessFacts {
            exit_code: Some(0),
            ..ProcessFacts::default()
        },
        ..AttemptFacts::default()
    };
    for line in lines {
        let line = decode::decode_line(line.as_bytes());
        if facts.interruption.session_mismatch.is_none() && !reported.stream().turns().is_closed() {
            match identity.push(&line) {
                SessionCheck::Mismatch(sentence) => {
                    facts.interruption.session_mismatch = Some(sentence)
                }
                _ => _ = reported.push(&line),
            }
        }
    }
    facts.reported = reported.reported_facts();
    judge_attempt(&"session".into(), &facts, FailureRule::Strict)
}

/// Results of every kind, each with a distinct answer.
fn any_result() -> impl Strategy<Value = Value> {
    let subtype = prop::option::of(prop::sample::select(vec![
        "success",
        "completion",
        "error_during_execution",
        "error_max_turns",
        "error_max_budget_usd",
    ]));
    let terminal = prop::option::of(prop::sample::select(vec![
        "completed",
        "aborted_tools",
        "max_turns",
        "api_error",
    ]));
    let is_error = prop::option::of(any::<bool>());
    let cost = prop::option::of(0.0..1.0f64);
    let numbers = (0..1000u32, cost.clone(), cost, any::<bool>(), any::<bool>());
    (subtype, is_error, terminal, numbers).prop_map(|(subtype, is_error, terminal, numbers)| {
        let (number, total, since, in_errors, denied) = numbers;
        let mut line = json!({"type": "result"});
        let mut set = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                line[key] = value;
            }
        };
        set("subtype", subtype.map(Value::from));
        set("is_error", is_error.map(Value::from));
        set("terminal_reason", terminal.map(Value::from));
        set("total_cost_usd", total.map(Value::from));
        set(
            "model_usage_since_last_result",
            since.map(|cost| json!({"m": {"costUSD": cost}})),
        );
        set("result", Some(json!(format!("answer-{number}"))));
        set(
            "errors",
            in_errors.then(|| json!([format!("answer-{number}")])),
        );
        set(
            "permission_denials",
            denied.then(|| json!([{"tool_name": "Bash", "tool_use_id": format!("d{number}")}])),
        );
        line
    })
}

/// A few lines that belong together.
fn any_lines() -> impl Strategy<Value = Vec<String>> {
    let chat = |kind: &str, block: Value| json!({"type": kind, "message": {"content": [block]}});
    let version = prop::sample::select(vec!["2.1.330", "2.1.300", "2.1.223", ""]);
    let id = 0..100_000u32;
    prop_oneof![
        3 => version.prop_map(|version| vec![json!({"type": "system", "subtype": "init", "claude_code_version": version})]),
        4 => any_result().prop_map(|line| vec![line]),
        3 => (id.clone(), prop::option::of(any::<bool>()), any::<bool>()).prop_map(move |(id, is_error, answered)| {
            let call = chat("assistant", json!({"type": "tool_use", "id": format!("t{id}"), "name": "Bash", "input": {"command": "ls"}}));
            let result = chat("user", json!({"type": "tool_result", "tool_use_id": format!("t{id}"), "content": "x", "is_error": is_error}));
            if answered { vec![call, result] } else { vec![call] }
        }),
        2 => "[a-z \u{e9}]{0,20}".prop_map(move |text| vec![chat("assistant", json!({"type": "text", "text": text}))]),
        2 => (0..4u32, prop::option::of(any::<bool>())).prop_map(|(id, backgrounded)| {
            let mut task = json!({"type": "system", "subtype": "task_started", "task_id": format!("x{id}")});
            if let Some(backgrounded) = backgrounded {
                task["is_backgrounded"] = backgrounded.into();
            }
            vec![task]
        }),
        2 => (0..4u32).prop_map(|id| vec![json!({"type": "system", "subtype": "task_notification", "task_id": format!("x{id}")})]),
        1 => Just(vec![json!({"type": "assistant", "error": "rate_limit", "message": {"model": "<synthetic>", "content": [{"type": "text", "text": "limit"}]}})]),
        1 => Just(vec![json!({"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1_900_000_000}})]),
    ]
    .prop_map(|lines| lines.iter().map(Value::to_string).collect())
}

/// A stream of one session, with some lines of another session and some that are not JSON.
fn any_stream() -> impl Strategy<Value = Vec<String>> {
    let noise = prop_oneof![8 => Just(None), 1 => Just(Some("not json".to_owned())), 1 => Just(Some("{\"a\":\"\\ud800".to_owned()))];
    let session = prop_oneof![12 => Just("s"), 1 => Just("other"), 1 => Just("")];
    let lines = (any_lines(), session, noise).prop_map(|(lines, session, noise)| {
        let named = lines.into_iter().map(move |line| match session {
            "" => line,
            session => line.replacen('{', &format!("{{\"session_id\":\"{session}\","), 1),
        });
        named.chain(noise).collect::<Vec<_>>()
    });
    prop::collection::vec(lines, 0..12).prop_map(|lines| lines.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn all_outputs_agree_on_generated_captures(lines in any_stream()) {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("capture.jsonl");
        fs::write(&path, format!("{FIRST}\n{}\n", lines.join("\n"))).unwrap();
        let outputs = record_outputs(&path);
        in_order(&outputs.json);
        assert_outputs_agree("a capture", &outputs);
    }

    #[test]
    fn all_outputs_agree_on_generated_sessions(
        lines in any_stream(), resumed in prop::option::of(any::<bool>()),
    ) {
        let scratch = tempfile::tempdir().unwrap();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let resume = resumed.map(|tolerant| ResumedFrom { session: "s", tolerant });
        let outputs = record_outputs(&recorded(scratch.path(), &lines, resume));
        in_order(&outputs.json);
        assert_outputs_agree("a session", &outputs);
    }
}
