//! Published schemas of JSON output, and real output that is read with the types that they are made from.

use std::{fs, path::PathBuf};

use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    events::{RUNS, recorded},
    golden::{assert_published, is_message, json_lines, lines_without},
};
use crate::commands::test_dir::TestDir;

/// A tool call in the output of `audit`.
#[derive(Serialize, Deserialize, JsonSchema)]
struct AuditLine {
    v: u64,
    /// Time of the call, RFC 3339.
    at: String,
    project: Option<String>,
    run: String,
    agent: Option<String>,
    connection: Option<String>,
    unit: String,
    attempt: u32,
    session: Option<String>,
    model: Option<String>,
    #[serde(flatten)]
    call: AuditCallPart,
}

/// An entry in the output of `find`.
#[derive(Serialize, Deserialize, JsonSchema)]
struct FindLine {
    v: u64,
    /// Time of the entry, RFC 3339.
    at: String,
    /// Missing for an entry of a session.
    run: Option<String>,
    /// Path of the session file; missing for an entry of a run.
    session: Option<String>,
    /// Missing for an entry of the run itself.
    unit: Option<String>,
    attempt: Option<u32>,
    /// Number of the entry, for `replay --entry`.
    seq: u64,
    /// `call`, `result`, `answer`, `prompt`, `stderr`, `stdout`, `note`, or the type of the line.
    kind: String,
    /// The tool of a call or a result.
    tool: Option<String>,
    /// True for the result of a failed call.
    failed: bool,
    /// The text, and what is around it.
    text: String,
}

/// The last object in the output of `find`: what was not searched.
#[derive(Serialize, Deserialize, JsonSchema)]
struct FindEnd {
    v: u64,
    left_out: FindLeftOut,
}

/// Numbers of runs and sessions, or of entries, that were not searched.
#[derive(Serialize, Deserialize, JsonSchema)]
struct FindLeftOut {
    /// Runs and sessions that were not read yet.
    waiting: u64,
    /// Runs and sessions that cannot be read.
    unreadable: u64,
    /// The oldest runs and sessions, for which the index has no room.
    beyond_size: u64,
    /// Sessions beyond the 10,000 newest.
    beyond_count: u64,
    /// Runs and sessions that `find.exclude` names.
    excluded: u64,
    /// Entries of units that `find.exclude` names.
    excluded_entries: u64,
    /// Entries of more than 1 MiB, which are searched at the beginning.
    long_entries: u64,
}

/// The fields of the call itself.
#[derive(Serialize, Deserialize, JsonSchema)]
struct AuditCallPart {
    turn_number: u32,
    tool_use_id: String,
    parent_tool_use_id: Option<String>,
    tool: String,
    /// Arguments as JSON, shortened unless `--full` is given.
    input: Option<String>,
    status: AuditStatus,
    error: Option<String>,
    output_bytes: Option<u64>,
    /// Result as JSON; exists with `--results`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output: Option<String>,
    duration_ms: Option<u64>,
    waited_ms: Option<u64>,
    decision: AuditRuling,
    decided_by: Option<String>,
    decision_reason: Option<String>,
    seq: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum AuditStatus {
    Open,
    Complete,
    Error,
    Denied,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum AuditRuling {
    Allowed,
    Edited,
    Answered,
    Cancelled,
    Denied,
    Released,
    Withdrawn,
    Held,
}

/// A line of the output of `costs`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CostLine {
    v: u64,
    by: CostKey,
    /// Null for the total.
    key: Option<String>,
    attempts: u64,
    unknown_attempts: u64,
    input_tokens: u64,
    output_tokens: u64,
    cache_read_tokens: u64,
    cache_write_tokens: u64,
    model_usage_usd: Option<f64>,
    total_cost_usd: Option<f64>,
    difference_usd: Option<f64>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum CostKey {
    Day,
    Connection,
    Model,
    Unit,
    Run,
}

/// A line of the output of `run --rehearse`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RehearsalLine {
    v: u64,
    unit: String,
    result: RehearsedResult,
    /// Cause and reason of the recorded verdict.
    then: Option<String>,
    /// Those of the verdict with the program of today.
    now: Option<String>,
    /// Number of the call where the record ends, from 1.
    call: Option<u64>,
    tool: Option<String>,
    /// The answer in the record, and the one now.
    difference: Option<String>,
    /// What differs in the requests of the model.
    request: Option<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum RehearsedResult {
    Changes,
    #[serde(rename = "record ends")]
    RecordEnds,
    #[serde(rename = "not planned")]
    NotPlanned,
    Same,
}

/// Compares a schema file in `assets` with the types.
pub(super) fn assert_schemas(name: &str, schemas: &Value) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("assets")
        .join(name);
    let text = format!("{schemas:#}\n");
    if std::env::var_os("INGESTDECK_WRITE_FORMATS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        text,
        "INGESTDECK_WRITE_FORMATS=1 updates {name}"
    );
}

/// Reads objects as `T`, which must keep every key and value.
pub(super) fn assert_conforms<T: Serialize + DeserializeOwned>(objects: &[Value]) {
    for object in objects {
        let read: T = serde_json::from_value(object.clone())
            .unwrap_or_else(|error| panic!("{error}: {object}"));
        assert_eq!(&serde_json::to_value(&read).unwrap(), object);
    }
}

fn objects(place: &TestDir, args: &[&str]) -> Vec<Value> {
    json_lines(place.run(args).expect_success())
}

/// A page or source in the output of `artifacts`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ArtifactLine {
    v: u64,
    r#type: ArtifactLineType,
    /// Path relative to the project.
    path: String,
    /// Null for a file that is neither a page nor a source.
    kind: Option<ArtifactKind>,
    /// Null if it is not recorded.
    change: Option<ArtifactChangeWord>,
    state: ArtifactStateWord,
    /// Commit that contains it.
    commit: Option<String>,
    /// Number of calls that wrote it; null if they are not recorded.
    calls: Option<u64>,
    lines: Option<LineCountsPart>,
    /// Number of identifiers that the agents never received.
    unsourced: u64,
    raw_files: Vec<RawFilePart>,
    /// Null without a review, and if the parts of the file have different decisions.
    review: Option<ReviewDecisionWord>,
    shared: Option<SharedPart>,
    /// Every attempt that wrote it, oldest first.
    writers: Vec<ArtifactWriterPart>,
    /// Exists if tables and columns of the artifact were compared with answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    verification: Option<VerificationPart>,
    /// The change of each writer; exists with `--diff`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    diffs: Option<Vec<ArtifactDiffPart>>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ArtifactLineType {
    Artifact,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ArtifactKind {
    Wiki,
    Sl,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ArtifactChangeWord {
    Created,
    Updated,
    Removed,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ArtifactStateWord {
    Pending,
    Integrated,
    Unchanged,
    Conflict,
    Policy,
    Lost,
    Saved,
    Replaced,
    Discarded,
    Rejected,
}

/// The decision of a reviewer.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ReviewDecisionWord {
    Open,
    Accepted,
    Rejected,
    Edited,
    SentBack,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LineCountsPart {
    added: u64,
    removed: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RawFilePart {
    connection: String,
    /// Path relative to the source.
    path: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SharedPart {
    units: Vec<String>,
    /// True if git merged different texts; false if the texts are the same.
    merged: bool,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ArtifactWriterPart {
    unit: String,
    /// 0 for an attempt of a prior run, and for projected sources.
    attempt: u32,
    state: ArtifactStateWord,
    /// Why the change is not part of the result.
    reason: Option<String>,
    change: Option<ArtifactChangeWord>,
    calls: Option<u64>,
    lines: Option<LineCountsPart>,
    unsourced: Vec<UnsourcedPart>,
    /// Patch file relative to the project.
    patch: Option<String>,
}

/// The tables and columns of an artifact by what answers prove about them.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct VerificationPart {
    verified: Vec<String>,
    unverified: Vec<String>,
    contradicted: Vec<ContradictedPart>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ContradictedPart {
    name: String,
    /// What the answer has instead.
    found: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UnsourcedPart {
    line: u32,
    name: String,
    /// True if the agent declared the name as unverified.
    declared: bool,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ArtifactDiffPart {
    unit: String,
    attempt: u32,
    /// Null if the patch is not available.
    hunks: Option<String>,
    error: Option<String>,
}

/// A raw file in the output of `artifacts --coverage`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CoverageLine {
    v: u64,
    r#type: CoverageLineType,
    connection: String,
    adapter: String,
    /// Path relative to the source.
    path: String,
    /// Compared with the runs before; null if they are not known.
    change: Option<RawFileChangeWord>,
    state: CoverageStateWord,
    /// Paths of the artifacts that rest on the file.
    artifacts: Vec<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum CoverageLineType {
    RawFile,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum RawFileChangeWord {
    New,
    Changed,
    Unchanged,
    Deleted,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum CoverageStateWord {
    Covered,
    Stale,
    Uncovered,
}

#[test]
fn artifacts_schemas_are_current() {
    let schemas =
        json!({"artifact": schema_for!(ArtifactLine), "raw_file": schema_for!(CoverageLine)});
    assert_schemas("artifacts.schema.json", &schemas);
}

#[test]
fn artifacts_output_matches_schema_and_golden_file() {
    let place = recorded();
    let mut all = Vec::new();
    for (run, _) in RUNS {
        let artifacts = objects(&place, &["artifacts", run, "--ui", "json", "--diff"]);
        assert_conforms::<ArtifactLine>(&artifacts);
        let coverage = objects(&place, &["artifacts", run, "--ui", "json", "--coverage"]);
        assert_conforms::<CoverageLine>(&coverage);
        all.extend(artifacts.into_iter().chain(coverage));
    }
    for word in ["saved", "conflict", "pending", "covered", "uncovered"] {
        assert!(
            all.iter().any(|line| line["state"] == word),
            "no line is {word}"
        );
    }
    assert_published("artifacts.jsonl", &lines_without(all, &is_message));
}

#[test]
fn audit_schemas_are_current() {
    let schemas = json!({
        "audit": schema_for!(AuditLine),
        "costs": schema_for!(CostLine),
        "find": schema_for!(FindLine),
        "find_end": schema_for!(FindEnd),
    });
    assert_schemas("audit.schema.json", &schemas);
}

#[test]
fn rehearsal_schema_is_current() {
    assert_schemas(
        "rehearsal.schema.json",
        &json!({"rehearsal": schema_for!(RehearsalLine)}),
    );
}

#[test]
fn audit_output_matches_its_schema_and_golden_file() {
    let place = recorded();
    let short = objects(&place, &["audit", "--ui", "json"]);
    assert_conforms::<AuditLine>(&short);
    assert!(
        short.iter().all(|call| call.get("output").is_none()),
        "results need --results"
    );
    let mut all = objects(
        &place,
        &["audit", "--format", "json", "--results", "--full"],
    );
    all.iter_mut()
        .filter(|call| call["output"].is_null())
        .for_each(|call| {
            call.as_object_mut().unwrap().remove("output");
        });
    assert_conforms::<AuditLine>(&all);
    for word in ["complete", "error", "denied", "edited", "allowed"] {
        assert!(
            all.iter()
                .any(|call| call["status"] == word || call["decision"] == word),
            "no call is {word}"
        );
    }
    assert_published("audit.jsonl", &lines_without(all, &is_message));
}

#[test]
fn found_entries_match_their_schema_and_golden_file() {
    let place = recorded();
    let mut found = objects(&place, &["find", "mcp__ktx__wiki_write", "--ui", "json"]);
    let end = found.split_off(found.len() - 1);
    assert_conforms::<FindLine>(&found);
    assert_conforms::<FindEnd>(&end);
    assert!(found.iter().any(|entry| entry["kind"] == "call"));
    found.extend(end);
    assert_published("find.jsonl", &lines_without(found, &is_message));
}

#[test]
fn costs_output_matches_its_schema_and_golden_file() {
    let place = recorded();
    let mut all = Vec::new();
    for by in ["day", "connection", "model", "unit", "run"] {
        let lines = objects(&place, &["costs", "--by", by, "--ui", "json"]);
        let total = lines.last().unwrap();
        assert!(
            total["key"].is_null()
                && lines.iter().filter(|line| line["key"].is_null()).count() == 1
        );
        all.extend(lines);
    }
    assert_conforms::<CostLine>(&all);
    let totals: Vec<&Value> = all.iter().filter(|line| line["key"].is_null()).collect();
    for key in [
        "attempts",
        "total_cost_usd",
        "model_usage_usd",
        "input_tokens",
    ] {
        assert!(
            totals.iter().all(|total| total[key] == totals[0][key]),
            "{key} differs: {totals:?}"
        );
    }
    assert_published("costs.jsonl", &lines_without(all, &is_message));
}

/// An event of an attempt with `--events agent`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type")]
enum AgentSdkEvent {
    #[serde(rename = "stream:token")]
    Token {
        text: String,
        accumulated: String,
        #[serde(flatten)]
        stamp: EventStamp,
    },
    #[serde(rename = "agent:turn")]
    Turn {
        turn: u32,
        content: Vec<TextBlock>,
        #[serde(flatten)]
        stamp: EventStamp,
    },
    #[serde(rename = "tool:invoke", rename_all = "camelCase")]
    Invoke {
        tool_id: String,
        tool: Option<String>,
        input: Value,
        #[serde(flatten)]
        stamp: EventStamp,
    },
    #[serde(rename = "tool:start")]
    Start {
        tool: Option<String>,
        input: Value,
        #[serde(flatten)]
        stamp: EventStamp,
    },
    #[serde(rename = "tool:result")]
    Result {
        tool: Option<String>,
        input: Value,
        output: ToolOutput,
        /// Milliseconds since the call; null if the call is not known.
        duration: Option<u64>,
        #[serde(flatten)]
        stamp: EventStamp,
    },
    #[serde(rename = "agent:complete")]
    Complete {
        result: String,
        turns: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        #[serde(flatten)]
        stamp: EventStamp,
    },
    #[serde(rename = "state:update", rename_all = "camelCase")]
    State {
        status: AgentStatus,
        /// Key of the unit.
        task_id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        #[serde(flatten)]
        stamp: EventStamp,
    },
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct EventStamp {
    session_id: Option<String>,
    /// Milliseconds since the beginning of 1970.
    timestamp: Option<i64>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
enum TextBlock {
    Text { text: String },
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct ToolOutput {
    content: Value,
    is_error: bool,
    /// The content is longer than 64 KiB and left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    truncated: Option<bool>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum AgentStatus {
    Idle,
    Running,
    Paused,
    Completed,
    Error,
}

#[test]
fn agent_event_schema_is_current() {
    assert_schemas(
        "agent-events.schema.json",
        &json!({"event": schema_for!(AgentSdkEvent)}),
    );
}

#[test]
fn agent_events_match_their_schema_and_golden_file() {
    let place = TestDir::new();
    let tape = |name: &str| super::golden::path(name).to_str().unwrap().to_owned();
    let captures = [
        "partial_messages.jsonl",
        "success_tools.jsonl",
        "subagent_foreground.jsonl",
        "permission_denied_dontask.jsonl",
    ];
    let captures = captures.map(|name| {
        format!(
            "{}/tests/fixtures/captures/{name}",
            env!("CARGO_MANIFEST_DIR")
        )
    });
    let tapes = ["run.jsonl", "run-unsaved.jsonl", "run-failed.jsonl"].map(tape);
    let mut golden = Vec::new();
    let mut seen = Vec::new();
    for file in tapes.iter().chain(&captures) {
        let args = ["replay", file, "--ui", "json", "--events", "agent"];
        let lines = objects(&place, &args);
        assert!(
            lines
                .iter()
                .enumerate()
                .all(|(index, line)| line["seq"] == index && line["v"] == 1),
            "{file}"
        );
        assert_eq!(lines.last().unwrap()["event"]["state"], "summary", "{file}");
        let own = |line: &&Value| {
            line["event"]["type"]
                .as_str()
                .is_some_and(|kind| kind.contains(':'))
        };
        let events: Vec<Value> = lines
            .iter()
            .filter(own)
            .map(|line| line["event"].clone())
            .collect();
        assert_conforms_in_any_order::<AgentSdkEvent>(&events);
        seen.extend(
            events
                .iter()
                .map(|event| event["type"].as_str().unwrap().to_owned()),
        );
        for line in lines.iter().filter(own) {
            let needs_id =
                ["tool:start", "tool:result"].contains(&line["event"]["type"].as_str().unwrap());
            assert_eq!(line["tool_use_id"].is_string(), needs_id, "{line}");
        }
        if tapes.contains(file) {
            golden.extend(lines);
        }
    }
    for kind in [
        "stream:token",
        "agent:turn",
        "tool:invoke",
        "tool:start",
        "tool:result",
        "agent:complete",
        "state:update",
    ] {
        assert!(seen.iter().any(|seen| seen == kind), "no event is {kind}");
    }
    assert_published("agent-events.jsonl", &lines_without(golden, &is_message));
}

/// Like [`assert_conforms`]; the order of keys is not compared.
fn assert_conforms_in_any_order<T: Serialize + DeserializeOwned>(objects: &[Value]) {
    for object in objects {
        let read: T = serde_json::from_value(object.clone())
            .unwrap_or_else(|error| panic!("{error}: {object}"));
        let again = serde_json::to_value(&read).unwrap();
        assert_eq!(
            again.as_object().map(serde_json::Map::len),
            object.as_object().map(serde_json::Map::len),
            "{object}"
        );
        object
            .as_object()
            .unwrap()
            .iter()
            .for_each(|(key, value)| assert_eq!(&again[key], value, "{key}: {object}"));
    }
}

#[test]
fn agent_vocabulary_needs_json() {
    let place = TestDir::new();
    let ran = place.run(&["replay", "x.jsonl", "--events", "agent"]);
    assert_eq!(
        ran.expect_refusal(2),
        "--events agent needs --ui json; add --ui json, or leave it out"
    );
}
