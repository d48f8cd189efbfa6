//! The schema of the output of `why`, and real output that is read with the types that it is made from.

use std::fs;

use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    golden::{assert_published, json_lines, lines_without},
    schemas::{assert_conforms, assert_schemas},
};
use crate::{
    commands::{
        test_dir::TestDir,
        verbatim,
        why::{PAGE, project_with_page},
    },
    support::git::git,
};

/// Consecutive lines of a file with the same origin, in the output of `why`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WhyLine {
    v: u64,
    /// Path relative to the project.
    file: String,
    /// Number of the first line, from 1.
    first_line: u64,
    last_line: u64,
    origin: WhyOrigin,
    /// The commit of the lines; null if they are not committed.
    commit: Option<WhyCommit>,
    /// The run that made the commit.
    run: Option<String>,
    /// The attempt that wrote the lines.
    attempt: Option<WhyAttempt>,
    /// At most 20 attempts, one of which wrote the lines, if the record does not show which.
    candidates: Vec<WhyAttempt>,
    /// The call that wrote the lines.
    call: Option<WhyCall>,
    /// Decisions of reviewers about the file, oldest first, at most 20; null if no run made the commit.
    review: Option<Vec<WhyDecision>>,
    /// What the record does not contain, one sentence each.
    missing: Vec<String>,
    /// The command that shows the moment of the call.
    replay: Option<String>,
    /// The document that the page is; only for lines of the origin `verbatim`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    document: Option<WhyDocument>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WhyDocument {
    /// Null for a text of the command line.
    connection: Option<String>,
    /// Path in the source, or the label of the text.
    path: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum WhyOrigin {
    /// The lines are not in the last commit.
    Uncommitted,
    /// A commit that no run made.
    Commit,
    /// An attempt of a run.
    Attempt,
    /// One of several attempts of a run.
    UnknownAttempt,
    /// A reviewer, who edited the file in the review of a run.
    Reviewer,
    /// A run that kept a document verbatim.
    Verbatim,
    /// A run without an attempt: merged, repaired, projected or copied.
    Run,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WhyCommit {
    id: String,
    author: String,
    /// Time of the author, RFC 3339; null if the commit is damaged.
    at: Option<String>,
    subject: String,
    /// Path of the file in the commit.
    path: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WhyAttempt {
    /// The run of the attempt, which may be prior to that of the commit.
    run: String,
    unit: String,
    attempt: u32,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WhyCall {
    tool: String,
    id: String,
    /// Turn of the model, from 1.
    turn: u32,
    /// Entry of the tape, for `replay --entry`.
    entry: u64,
    /// Time of the call, RFC 3339.
    at: Option<String>,
    edited_by_person: bool,
    /// Raw files that the agent named as the basis of its change.
    raw_paths: Vec<String>,
    /// What the agent had read before, newest first; at most 20.
    reads: Vec<WhyRead>,
    /// Number of earlier reads that are not listed.
    more_reads: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WhyDecision {
    /// `accepted`, `rejected`, `edited` or `sent_back`.
    decision: String,
    /// Id of the change; null for the whole file.
    hunk: Option<String>,
    /// What the unit should change.
    feedback: Option<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WhyRead {
    kind: WhyReadKind,
    /// Path, key, name or query.
    target: String,
    /// The lines that the agent asked for; null for all.
    first_line: Option<u64>,
    last_line: Option<u64>,
    tool: String,
    entry: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum WhyReadKind {
    RawFile,
    Page,
    Source,
    Query,
    Tables,
    Search,
    Stage,
}

#[test]
fn why_schema_is_current() {
    assert_schemas("why.schema.json", &json!({"why": schema_for!(WhyLine)}));
}

/// Lines of every origin.
fn answers() -> Vec<Value> {
    let place = project_with_page();
    let objects = |place: &TestDir, args: &[&str]| json_lines(place.run(args).expect_success());
    let page = fs::read_to_string(place.path(PAGE)).unwrap();
    let raw = git(&place.path(""), &["ls-files", "raw-sources"]);
    let raw = raw.lines().next().unwrap();
    let mut answers = objects(&place, &["why", &format!("{raw}:1"), "--ui", "json"]);
    git(&place.path(""), &["clone", "--quiet", ".", "../clone"]);
    let two = git(&place.path(""), &["log", "-1", "--format=%B"]).replace(
        "Ingest-Attempt: 1",
        "Ingest-Attempt: 1\nIngest-Unit: docs-b\nIngest-Attempt: 2",
    );
    git(
        &place.path("../clone"),
        &["commit", "--quiet", "--amend", "-m", &two],
    );
    answers.extend(objects(
        &place,
        &["why", PAGE, "--ui", "json", "--project-dir", "../clone"],
    ));
    place.write(PAGE, format!("{page}By hand.\n"));
    git(
        &place.path(""),
        &["commit", "--quiet", "--all", "-m", "Correct it"],
    );
    place.write(PAGE, format!("{page}By hand.\nLater.\n"));
    answers.extend(objects(&place, &["why", PAGE, "--ui", "json"]));
    let documents = verbatim::handbook();
    verbatim::run(&documents, &[]).expect_success();
    let line = "wiki/global/refunds.md:9";
    answers.extend(objects(&documents, &["why", line, "--ui", "json"]));
    answers
}

#[test]
fn why_output_matches_its_schema_and_golden_file() {
    let answers = answers();
    assert_conforms::<WhyLine>(&answers);
    for origin in [
        "uncommitted",
        "commit",
        "attempt",
        "unknown_attempt",
        "run",
        "verbatim",
    ] {
        assert!(
            answers.iter().any(|answer| answer["origin"] == origin),
            "no answer has the origin {origin}"
        );
    }
    let answers = answers.into_iter().map(|mut answer| {
        // The path contains the time of the run.
        for path in ["/file", "/commit/path"] {
            if let Some(path) = answer
                .pointer_mut(path)
                .filter(|path| path.as_str().unwrap().starts_with("raw-sources"))
            {
                *path = "<raw copy>".into();
            }
        }
        answer
    });
    let is_volatile =
        |key: &str| matches!(key, "id" | "at" | "subject" | "run" | "replay" | "entry");
    assert_published("why.jsonl", &lines_without(answers.collect(), &is_volatile));
}
