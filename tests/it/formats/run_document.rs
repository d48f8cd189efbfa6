//! The document of `report --format run`: its published schema, and documents of recorded and real runs that have its types.

use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

use super::{
    events::{RUNS, recorded},
    golden::{assert_published, is_message, pretty_without},
    schemas::{assert_conforms, assert_schemas},
};

/// One JSON document about a run, in the output of `report --format run`. Unknown values are null.
#[derive(Serialize, Deserialize, JsonSchema)]
struct RunDocument {
    #[serde(flatten)]
    head: DocumentHead,
    #[serde(flatten)]
    content: DocumentContent,
}

/// Which run it is, and how it ended.
#[derive(Serialize, Deserialize, JsonSchema)]
struct DocumentHead {
    /// 1. Keys may be added; the others keep their meaning.
    v: u64,
    r#type: DocumentType,
    run: Option<String>,
    project: Option<String>,
    /// Program and version that recorded the run.
    program: Option<String>,
    /// True if a script played the model: its costs and tokens are invented.
    scripted: bool,
    job: Option<String>,
    /// Time of the start, RFC 3339.
    started_at: Option<String>,
    /// Null while the run is active, and if its record breaks off.
    ended_at: Option<String>,
    duration_ms: u64,
    outcome: DocumentOutcome,
    /// Exit code that the record determines; null while the run is active, and if its record breaks off.
    exit_code: Option<u8>,
    started_by: Option<StarterPart>,
    /// The earlier run that it continues.
    continues: Option<String>,
    /// The later run that finished its review.
    reviewed_by: Option<String>,
}

/// What the run was, did and left.
#[derive(Serialize, Deserialize, JsonSchema)]
struct DocumentContent {
    settings: Option<SettingsPart>,
    totals: TotalsPart,
    /// The figures of quality, by name.
    quality: BTreeMap<String, Option<serde_json::Number>>,
    /// Groups of units that need a person, largest first.
    failures: Vec<FailurePart>,
    limits: LimitsPart,
    publication: PublicationPart,
    /// In plan order; the reconcile step is the last.
    units: Vec<UnitPart>,
    artifacts: Vec<DocumentArtifact>,
    /// Connections that have no units.
    skipped: Vec<SkippedPart>,
    /// The first warnings and errors of the run itself.
    warnings: Vec<WarningPart>,
    /// Number of warnings that are left out.
    more_warnings: u64,
    lost: LostPart,
    links: LinksPart,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum DocumentType {
    RunReport,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum DocumentOutcome {
    Running,
    Done,
    Partial,
    Error,
    Unusable,
    Limit,
    Stopped,
    WaitingApproval,
    Reviewed,
    Interrupted,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StarterPart {
    /// Login name of the user.
    user: Option<String>,
    /// Address of the job of GitHub Actions, GitLab or Jenkins.
    job_url: Option<String>,
    traceparent: Option<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SettingsPart {
    model: Option<String>,
    concurrency: u32,
    step_budget: u32,
    run_budget_usd: Option<f64>,
    failure_mode: String,
    tool_failures: String,
    silence_after_ms: Option<u64>,
    /// True if nothing is saved before a review.
    review: bool,
    /// The project's own prompts, skills and pins.
    instructions: Vec<String>,
    connections: Option<Vec<String>>,
    only: Option<Vec<String>>,
    full: Option<bool>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct TotalsPart {
    units: u64,
    /// Number of units by state; states without units are missing.
    states: BTreeMap<String, u64>,
    nothing_written: u64,
    attempts: u64,
    retries: u64,
    turns: u64,
    tool_calls: u64,
    failed_calls: u64,
    denied_calls: u64,
    worked_ms: u64,
    #[serde(flatten)]
    cost: CostPart,
    tokens: Option<TokensPart>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct CostPart {
    /// US dollars of the attempts that reported a cost.
    cost_usd: Option<f64>,
    /// True if some attempt did not report its cost.
    cost_partial: bool,
    /// The cost with an estimate of what no report covers; null without such a part.
    cost_estimate_usd: Option<f64>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TokensPart {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    total: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FailurePart {
    cause: String,
    reason: String,
    remedy: Option<String>,
    units: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LimitsPart {
    count: u64,
    /// The first limits that the run waited for.
    waits: Vec<LimitWaitPart>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LimitWaitPart {
    at_ms: u64,
    limit: String,
    until: Option<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PublicationPart {
    /// The commit that the changes are based on.
    commit_before: Option<String>,
    /// The last commit of the run.
    commit_after: Option<String>,
    branch: Option<String>,
    subject: Option<String>,
    paths: Vec<String>,
    commits: Vec<CommitPart>,
    /// Why the changes are in no commit.
    save_error: Option<String>,
    blocked: Vec<BlockedPart>,
    unreconciled: Vec<String>,
    shared_files: Vec<SharedFilePart>,
    review: Option<ReviewPart>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CommitPart {
    commit: String,
    branch: Option<String>,
    files: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BlockedPart {
    path: String,
    reason: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SharedFilePart {
    path: String,
    units: Vec<String>,
    merged: bool,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReviewPart {
    state: ReviewStateWord,
    files: u64,
    open: u64,
    accepted: u64,
    rejected: u64,
    edited: u64,
    sent_back: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ReviewStateWord {
    Waiting,
    Finished,
    Saved,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct UnitPart {
    #[serde(flatten)]
    plan: UnitPlanPart,
    #[serde(flatten)]
    result: UnitResultPart,
}

/// The unit as it was planned.
#[derive(Serialize, Deserialize, JsonSchema)]
struct UnitPlanPart {
    unit: String,
    kind: UnitKind,
    connection: Option<String>,
    adapter: Option<String>,
    label: Option<String>,
    why: Option<String>,
    raw_files: Vec<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum UnitKind {
    Unit,
    Reconcile,
}

/// What became of it. `unread`, `unsourced` and `dangling` are those of its last attempt.
#[derive(Serialize, Deserialize, JsonSchema)]
struct UnitResultPart {
    state: String,
    cause: Option<String>,
    reason: Option<String>,
    remedy: Option<String>,
    #[serde(flatten)]
    saving: SavingPart,
    worked_ms: u64,
    #[serde(flatten)]
    cost: CostPart,
    attempts: Vec<AttemptPart>,
    artifacts: Vec<UnitArtifactPart>,
    #[serde(flatten)]
    files: UnitFilesPart,
    warnings: Vec<WarningPart>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct SavingPart {
    /// Whether the changes are in the project; null for a unit without success.
    saved: Option<bool>,
    /// Result of integrating its patch.
    integration: Option<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct UnitFilesPart {
    unread: Vec<UnreadPart>,
    unmapped: Vec<UnmappedPart>,
    /// Number of identifiers that the agent never received; null if they were not looked for.
    unsourced: Option<u64>,
    /// Number of references that do not resolve; null if they were not checked.
    dangling: Option<u64>,
    nothing_written: bool,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UnreadPart {
    path: String,
    /// The part that was read; missing if nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    part: Option<PartialReadPart>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PartialReadPart {
    read: u64,
    of: u64,
    /// Either `pages` or `lines`.
    unit: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UnmappedPart {
    path: String,
    reason: String,
    fallback: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UnitArtifactPart {
    path: String,
    /// `wiki` or `sl`; null for another file.
    kind: Option<String>,
    change: Option<String>,
    state: String,
    /// Why the change does not count.
    reason: Option<String>,
    /// 0 for an attempt of a prior run.
    attempt: u32,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WarningPart {
    at_ms: u64,
    text: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct AttemptPart {
    #[serde(flatten)]
    start: AttemptStartPart,
    #[serde(flatten)]
    result: AttemptResultPart,
}

/// How it started, and where.
#[derive(Serialize, Deserialize, JsonSchema)]
struct AttemptStartPart {
    attempt: u32,
    started_at: Option<String>,
    at_ms: u64,
    model: Option<String>,
    /// Release of the agent.
    release: Option<String>,
    session: Option<String>,
    /// Null for the machine of the run itself.
    worker: Option<String>,
    /// Whose usage limits apply to the worker.
    account: Option<String>,
    /// The effort of earlier attempts that it continues.
    continued: Option<ContinuedPart>,
}

/// What it took and left.
#[derive(Serialize, Deserialize, JsonSchema)]
struct AttemptResultPart {
    /// Null if it has no verdict.
    outcome: Option<String>,
    cause: Option<String>,
    reason: Option<String>,
    duration_ms: u64,
    turns: u64,
    cost_usd: Option<f64>,
    cost_estimate_usd: Option<f64>,
    tokens: Option<TokensPart>,
    #[serde(flatten)]
    calls: CallsPart,
    /// Patch file, relative to the project.
    patch: Option<String>,
    /// Tool transcript, relative to the project.
    transcript: Option<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct CallsPart {
    tool_calls: u64,
    failed_call_count: u64,
    denied_call_count: u64,
    /// The first of them with their errors.
    failed_calls: Vec<FailedCallPart>,
    tools: BTreeMap<String, ToolPart>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FailedCallPart {
    at_ms: u64,
    tool_call_id: String,
    tool: String,
    error: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ToolPart {
    calls: u64,
    failed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    declined: Option<u64>,
    /// Calls without a result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cut_short: Option<u64>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ContinuedPart {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    attempt: u32,
    turns: u32,
    tokens: u64,
    active_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cost_usd: Option<f64>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DocumentArtifact {
    path: String,
    kind: Option<String>,
    change: Option<String>,
    state: String,
    commit: Option<String>,
    review: Option<String>,
    lines: Option<AddedRemoved>,
    unsourced: u64,
    units: Vec<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AddedRemoved {
    added: u64,
    removed: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SkippedPart {
    connection: String,
    reason: String,
    /// True for a fault that a person should fix.
    fault: bool,
}

/// Entries and lines that could not be read.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LostPart {
    malformed: u64,
    unknown: u64,
    unknown_notes: u64,
    torn: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LinksPart {
    /// Path of the tape; null for a record that is not a run of the project.
    tape: Option<String>,
    /// KTX's trace, relative to the project.
    trace: Option<String>,
    /// The branch for a pull request, if the run does not commit to the current one.
    branch: Option<String>,
}

/// Compares a document with the types of the schema. Returns it.
pub(crate) fn assert_run_document(text: &str) -> Value {
    assert_eq!(text.matches('\n').count(), 1, "one line: {text}");
    let document: Value = serde_json::from_str(text).unwrap();
    assert_conforms::<RunDocument>(std::slice::from_ref(&document));
    document
}

#[test]
fn run_document_schema_is_current() {
    let schemas = json!({"run_report": schema_for!(RunDocument)});
    assert_schemas("run-report.schema.json", &schemas);
}

#[test]
fn run_documents_match_schema_and_golden_file() {
    let place = recorded();
    let root = place.path("").canonicalize().unwrap();
    let mut all = String::new();
    for (run, _) in RUNS {
        let ran = place.run(&["report", run, "--format", "run"]);
        let mut document = assert_run_document(ran.expect_success());
        assert_eq!(document["run"], run);
        let tape = document["links"]["tape"].as_str().unwrap();
        document["links"]["tape"] = tape
            .replace(root.to_str().unwrap().trim_end_matches('/'), "<project>")
            .into();
        all += &pretty_without(document, &is_message);
    }
    assert_published("run-report.json", &all);
}
