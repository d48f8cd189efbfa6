//! Reports of real records and of hostile ones.

use std::{
    fs,
    path::{Path, PathBuf},
};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use ingestdeck_core::{
    run::{
        RunOutcome,
        report::{AttemptReport, FailedCallReport, ToolCallCounts, UnitReport},
        shared_files::SharedFile,
        spending::{CostFigure, UnitSpending},
        state::{
            AttemptBasis, AttemptCounts, AttemptDelivery, AttemptSetup, AttemptState, UnitStatus,
        },
    },
    tape::{
        Millis,
        note::{
            Amendment, AttemptOutcome, AttemptOutput, ContentDigests, PatchResult, PatchWritten,
            PlannedUnit, RunPlanned, StopReason, Verdict, VerdictCause,
            attempt_output::{ArtifactChange, ArtifactTarget, MemoryAction, UnmappedFile},
        },
    },
};
use ingestdeck_records::replay::FileSource;

mod connections;
mod github;
mod quality;
mod reconcile;

const FORMATS: [ReportFormat; 5] = [
    ReportFormat::Md,
    ReportFormat::Json,
    ReportFormat::Junit,
    ReportFormat::Html,
    ReportFormat::Github,
];

fn fixture(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .join("tests/fixtures")
        .join(path)
}

fn report_of(path: &str) -> RunReport {
    fold_report(FileSource::open(&fixture(path)).unwrap(), false, None).unwrap()
}

/// Every format of the report, each checked for its syntax.
fn written(report: &RunReport) -> [String; 5] {
    let context = ReportContext {
        is_traced: true,
        ..ReportContext::default()
    };
    let all = FORMATS.map(|format| render(report, format, &context, &mut |text| text.to_owned()));
    for line in all[1].lines() {
        valid(&serde_json::from_str(line).unwrap());
    }
    well_formed(&all[2], &[]);
    well_formed(&all[3], &["meta"]);
    assert!(
        !all[3].contains("<script") && !all[3].contains("src="),
        "{}",
        all[3]
    );
    for line in all[4].lines() {
        github::workflow_command(line);
    }
    all
}

/// The checks of KTX's validator.
fn valid(snapshot: &Value) {
    let text = |value: &Value| {
        assert!(
            value.as_str().is_some_and(|text| !text.is_empty()),
            "{value} in {snapshot}"
        )
    };
    for key in [
        "id",
        "runId",
        "jobId",
        "connectionId",
        "sourceKey",
        "createdAt",
    ] {
        text(&snapshot[key]);
    }
    let body = &snapshot["body"];
    text(&body["syncId"]);
    for key in ["added", "modified", "deleted", "unchanged"] {
        assert!(body["diffSummary"][key].is_u64());
    }
    assert!(body["commitSha"].is_null() || body["commitSha"].is_string());
    assert!(body["reconciliationSkipped"].is_boolean());
    for eviction in body["evictionsApplied"].as_array().unwrap() {
        assert_eq!(
            eviction["action"], "removed",
            "the only word that its schema knows"
        );
        assert!(["wiki", "sl"].contains(&eviction["artifactKind"].as_str().unwrap()));
        ["rawPath", "artifactKey", "reason"]
            .into_iter()
            .for_each(|key| text(&eviction[key]));
    }
    for key in [
        "failedWorkUnits",
        "evictionInputs",
        "conflictsResolved",
        "evictionsApplied",
        "unresolvedCards",
    ] {
        assert!(body[key].is_array(), "{key}");
    }
    let action = |action: &Value| {
        assert!(["wiki", "sl"].contains(&action["target"].as_str().unwrap()));
        assert!(["created", "updated", "removed"].contains(&action["type"].as_str().unwrap()));
        assert!(action["key"].is_string() && action["detail"].is_string());
        assert!(action["targetConnectionId"].is_null() || action["targetConnectionId"].is_string());
    };
    for unit in body["workUnits"].as_array().unwrap() {
        text(&unit["unitKey"]);
        assert!(["success", "failed"].contains(&unit["status"].as_str().unwrap()));
        assert_eq!(unit["status"] == "failed", unit["reason"].is_string());
        assert!(
            unit["rawFiles"]
                .as_array()
                .unwrap()
                .iter()
                .all(Value::is_string)
        );
        unit["actions"].as_array().unwrap().iter().for_each(action);
        for source in unit["touchedSlSources"].as_array().unwrap() {
            text(&source["connectionId"]);
            text(&source["sourceName"]);
        }
    }
    for row in body["provenanceRows"].as_array().unwrap() {
        text(&row["actionType"]);
        assert!(row["rawPath"].is_string());
    }
    for transcript in body["toolTranscripts"].as_array().unwrap() {
        assert!(transcript["toolCallCount"].is_u64() && transcript["errorCount"].is_u64());
        assert!(transcript["toolNames"].is_array());
    }
    for file in body["unmappedFallbacks"].as_array().unwrap() {
        assert!(snapshot::VALID_REASONS.contains(&file["reason"].as_str().unwrap()));
    }
}

/// Elements open and close in order, and there is no other `<` or stray `&`.
fn well_formed(text: &str, void: &[&str]) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let end = rest[at..]
            .find('>')
            .map(|end| at + end)
            .unwrap_or_else(|| panic!("unclosed: {}", &rest[at..]));
        let tag = &rest[at + 1..end];
        let name = tag
            .trim_start_matches('/')
            .split([' ', '/'])
            .next()
            .unwrap();
        match tag.as_bytes()[0] {
            b'?' | b'!' => {}
            b'/' => assert_eq!(open.pop(), Some(name), "in {text}"),
            _ if tag.ends_with('/') || void.contains(&name) => {}
            _ => open.push(name),
        }
        assert!(tag.matches('"').count().is_multiple_of(2), "{tag}");
        rest = &rest[end + 1..];
    }
    assert_eq!(open, Vec::<&str>::new());
    assert!(
        text.chars()
            .all(|c| !c.is_control() || c == '\n' || c == '\t')
    );
}

#[test]
fn every_record_has_its_report() {
    for folder in ["captures", "captures/versions", "tapes"] {
        for entry in fs::read_dir(fixture(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path
                .extension()
                .is_some_and(|extension| extension == "jsonl")
            {
                written(&fold_report(FileSource::open(&path).unwrap(), false, None).unwrap());
            }
        }
    }
}

#[test]
fn a_run_is_reported_in_all_formats() {
    let [md, json, junit, html, github] = written(&report_of("tapes/real.jsonl"));
    insta::assert_snapshot!("real_md", md);
    insta::assert_snapshot!("real_junit", junit);
    insta::assert_snapshot!("real_html", html);
    insta::assert_snapshot!("real_github", github);
    let first: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    insta::assert_json_snapshot!("real_json", first);
}

#[test]
fn releases_that_differ_are_named_per_unit() {
    let mut report = report_of("tapes/real.jsonl");
    report.units[0].attempts[0].state.setup.release = Some("2.1.332".into());
    report.units[1].attempts[0].state.setup.release = None;
    let [md, json, _, html, _] = written(&report);
    let list = "2.1.332 (1 attempt), 2.1.330 (6 attempts)";
    assert!(md.contains(&format!("* agent release {list}\n")), "{md}");
    let table: Vec<&str> = md
        .lines()
        .filter(|line| line.starts_with("| "))
        .take(4)
        .collect();
    assert!(table[0].ends_with("| model | release |"), "{table:?}");
    let releases: Vec<&str> = table[1..]
        .iter()
        .filter_map(|row| row.rsplit("| ").next())
        .collect();
    assert_eq!(releases, ["`2.1.332` |", "`?` |", "`2.1.330` |"]);
    assert!(
        json.contains(r#""release":"2.1.332""#) && json.contains(r#""release":null"#),
        "{json}"
    );
    assert!(
        html.contains(list) && html.contains("release 2.1.332"),
        "{html}"
    );
}

#[test]
fn report_lists_units_out_of_budget() {
    let report = report_of("tapes/demo.jsonl");
    let [md, json, ..] = written(&report);
    assert!(
        md.starts_with("## Ingest done, 1 unit out of budget: lantern"),
        "{md}"
    );
    assert!(md.contains("### Budgets that ran out"));
    assert!(json.contains(r#""stopReason":"budget""#));
}

#[test]
fn report_of_one_connection_has_its_own_totals() {
    let report = report_of("tapes/demo.jsonl");
    let all = report.units.len();
    let known = report.clone().into_connection("nowhere").unwrap_err();
    assert!(
        known.join(", ").contains("warehouse-dbt, handbook"),
        "{known:?}"
    );
    let one = report.into_connection("handbook").unwrap();
    assert_eq!(
        (
            one.units.len(),
            one.totals
                .statuses
                .iter()
                .map(|(_, count)| count)
                .sum::<usize>()
        ),
        (all - 1, all - 1)
    );
    assert_eq!(written(&one)[1].lines().count(), 1);
}

#[test]
fn active_or_broken_off_run_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tape.jsonl");
    let tape = fs::read_to_string(fixture("tapes/demo.jsonl")).unwrap();
    let half: Vec<&str> = tape.lines().take(300).collect();
    fs::write(&path, half.join("\n") + "\n").unwrap();
    let live = fold_report(FileSource::follow(&path).unwrap().0, true, None).unwrap();
    assert_eq!(live.outcome, RunOutcome::Running);
    for text in [&written(&live)[0], &written(&live)[2], &written(&live)[3]] {
        assert!(text.contains("The run is still active"), "{text}");
    }
    let broken = fold_report(FileSource::open(&path).unwrap(), false, None).unwrap();
    assert_eq!(broken.outcome, RunOutcome::Interrupted);
    let [md, json, junit, ..] = written(&broken);
    assert!(md.contains("The record breaks off"), "{md}");
    assert!(
        json.contains(r#""runOutcome":"interrupted""#) && !json.contains(r#""status":"completed""#)
    );
    assert!(junit.contains("<error message="), "{junit}");
}

#[test]
fn snapshot_outcome_follows_ktx_rule() {
    let unit = |status, saved| UnitReport {
        status,
        ..hostile("k", saved)
    };
    let word = |units: &[UnitReport]| snapshot::outcome(&units.iter().collect::<Vec<_>>(), false);
    let good = UnitStatus::Succeeded;
    assert_eq!(word(&[]), "done");
    assert_eq!(
        word(&[unit(good, true), unit(UnitStatus::BudgetExhausted, false)]),
        "done"
    );
    assert_eq!(
        word(&[unit(good, true), unit(UnitStatus::Failed, true)]),
        "partial"
    );
    assert_eq!(
        word(&[unit(good, false), unit(UnitStatus::Queued, false)]),
        "error",
        "nothing was saved"
    );
    assert_eq!(
        word(&[unit(UnitStatus::Failed, true)]),
        "error",
        "what a failed unit wrote does not count"
    );
}

#[test]
fn prior_patch_is_counted_in_the_run_that_saves_it() {
    let mut report = report_of("tapes/real.jsonl");
    let unit = &mut report.units[0];
    let key = unit.key.clone();
    let work = AttemptOutput {
        actions: hostile("page", true).attempts[0].actions().to_vec(),
        ..AttemptOutput::default()
    };
    (unit.status, unit.attempts, unit.integration) =
        (UnitStatus::Reused, Vec::new(), Some(PatchResult::Accepted));
    unit.prior_work = Some(Box::new(work));
    let planned = unit.planned.clone();
    report.units.insert(
        1,
        UnitReport {
            planned,
            ..hostile("other", false)
        },
    );
    let body = |report: &RunReport| {
        let json = written(report)[1].lines().next().unwrap().to_owned();
        serde_json::from_str::<Value>(&json).unwrap()["body"].take()
    };
    let saved = body(&report);
    assert_eq!(saved["ingestdeck"]["outcome"], "partial");
    assert_eq!(saved["isolatedDiff"]["acceptedPatches"], 1);
    assert_eq!(
        saved["workUnits"][0]["actions"].as_array().unwrap().len(),
        1
    );
    assert_eq!(saved["provenanceRows"][0]["artifactKey"], "page");
    assert!(
        written(&report)[0].contains(&format!("sl `page/page` created by `{key}`")),
        "{}",
        written(&report)[0]
    );
    report.units[0].is_unsaved = true;
    let left = body(&report);
    assert_eq!(
        (&left["ingestdeck"]["outcome"], &left["provenanceRows"]),
        (&json!("error"), &json!([]))
    );
}

#[test]
fn content_already_on_the_branch_is_no_change() {
    let mut report = report_of("tapes/real.jsonl");
    report.publication.saved = None;
    report.units = vec![UnitReport {
        status: UnitStatus::Succeeded,
        ..hostile("page", true)
    }];
    let sections = |report: &RunReport| {
        let [md, _, _, html, _] = written(report);
        (
            html.contains("<dd>1 change, in no commit</dd>"),
            html.contains("Saved (1)"),
            md.contains("Saved (1)"),
        )
    };
    assert_eq!(sections(&report), (true, true, true));
    report.units[0].integration = Some(PatchResult::Noop);
    assert_eq!(sections(&report), (false, false, false));
    assert!(written(&report)[3].contains("<dd>nothing</dd>"));
    report.units[0].integration = None;
    report.units[0].attempts[0].state.delivery.patch = Some(PatchWritten::default().into());
    assert_eq!(sections(&report), (false, false, false));
}

#[test]
fn unsaved_units_are_not_reported_as_passed() {
    let mut report = report_of("tapes/real.jsonl");
    report.publication.save_error = Some("no disk".into());
    for unit in &mut report.units {
        (unit.status, unit.is_unsaved) = (UnitStatus::Succeeded, true);
    }
    let [md, _, junit, html, github] = written(&report);
    let count = report.units.len();
    assert!(
        junit.contains(&format!(
            "tests=\"{count}\" failures=\"0\" errors=\"{count}\""
        )),
        "{junit}"
    );
    assert!(
        junit
            .contains("<error message=\"its changes were not saved: no disk\" type=\"not saved\">"),
        "{junit}"
    );
    for text in [&md, &html] {
        assert!(
            text.contains("succeeded, not saved") && text.contains("--resume-run"),
            "{text}"
        );
    }
    let unsaved = format!("::error title={count} units not saved::units: ");
    assert!(github.contains(&unsaved), "{github}");
    report.outcome = RunOutcome::Running;
    let [md, _, junit, _, github] = written(&report);
    assert!(
        !junit.contains("<error") && !md.contains("--resume-run"),
        "it may still be saved: {junit}"
    );
    assert!(!github.contains("not saved"), "{github}");
}

#[test]
fn html_and_markdown_have_the_same_sections() {
    let mut report = report_of("tapes/real.jsonl");
    let good = UnitReport {
        status: UnitStatus::Succeeded,
        ..hostile("a<b", true)
    };
    let conflict = UnitReport {
        integration: Some(PatchResult::TextualConflict),
        ..hostile("odd", false)
    };
    report.units = vec![good, conflict];
    report.lost.corrupt_entries = 3;
    report.shared_files = vec![SharedFile {
        path: "wiki/x.md".into(),
        units: vec!["a<b".into(), "odd".into()],
        was_merged: true,
    }];
    let [md, _, _, html, _] = written(&report);
    for section in [
        "Units",
        "Saved (1)",
        "Not mapped (1)",
        "Written by several units (1)",
        "Tools",
        "Remarks",
    ] {
        assert!(md.contains(&format!("### {section}\n")), "{section}: {md}");
        assert!(
            html.contains(&format!("<h2>{section}</h2>")),
            "{section}: {html}"
        );
    }
    for text in [&md, &html] {
        assert!(
            text.contains("3 torn")
                && text.contains("git merged their versions")
                && text.contains("conflict"),
            "{text}"
        );
    }
}

/// A unit with `text` in every field.
fn hostile(text: &str, saved: bool) -> UnitReport {
    let own = || text.to_owned();
    let verdict = Verdict {
        outcome: AttemptOutcome::Failed,
        stop: StopReason::Error,
        cause: VerdictCause::Other(own()),
        reason: own(),
        remedy: Some(own()),
    };
    let action = MemoryAction {
        target: ArtifactTarget::SemanticLayer,
        change: ArtifactChange::Created,
        key: own(),
        detail: own(),
        target_connection_id: Some(own()),
        raw_paths: Some(vec![own()]),
    };
    let output = AttemptOutput {
        actions: if saved { vec![action] } else { Vec::new() },
        unmapped: vec![UnmappedFile {
            raw_path: own(),
            reason: own(),
            detail: Some(own()),
            fallback: own(),
        }],
        transcript: Some(own()),
        ..AttemptOutput::default()
    };
    let setup = AttemptSetup {
        session: Some(text.into()),
        model: Some(text.into()),
        basis: Some(
            AttemptBasis {
                amendment: Some(Amendment {
                    feedback: Some(own()),
                    ..Amendment::default()
                }),
                ..AttemptBasis::default()
            }
            .into(),
        ),
        content: Some(
            ContentDigests {
                skills: vec![own()],
                ..ContentDigests::default()
            }
            .into(),
        ),
        ..AttemptSetup::default()
    };
    let counts = AttemptCounts {
        turns: 1,
        calls: 1,
        failures: 1,
        cost_usd: Some(f64::MAX),
        ..AttemptCounts::default()
    };
    let delivery = AttemptDelivery {
        published: vec![own()],
        output: Some(output.into()),
        ..AttemptDelivery::default()
    };
    let attempt = AttemptReport {
        state: AttemptState {
            number: 1,
            started_at: Millis(u64::MAX),
            verdict: Some(verdict),
            setup,
            counts,
            delivery,
            ..AttemptState::default()
        },
        duration: Millis(3),
        tools: [(
            own(),
            ToolCallCounts {
                total: 4,
                failed: 1,
                declined: 1,
                aborted: 1,
            },
        )]
        .into(),
        failed_calls: vec![FailedCallReport {
            at: Millis(7),
            id: own(),
            tool: own(),
            error: own(),
        }],
        worker: None,
    };
    let planned = PlannedUnit {
        unit: text.into(),
        connection: own(),
        adapter: own(),
        label: Some(own()),
        raw_files: vec![own()],
        dependency_paths: Vec::new(),
        why: own(),
        ..PlannedUnit::default()
    };
    UnitReport {
        key: text.into(),
        planned: Some(planned.into()),
        status: UnitStatus::Failed,
        reason: Some(own()),
        remedy: Some(own()),
        cause: Some(own()),
        attempts: vec![attempt],
        spending: UnitSpending {
            cost: Some(0.5),
            partial: true,
            shown: CostFigure {
                usd: Some(0.5),
                is_estimate: false,
                is_partial: true,
            },
            active_time: Millis(3),
        },
        is_unsaved: false,
        rejected_paths: std::sync::Arc::default(),
        prior_work: None,
        integration: None,
        warnings: vec![(Millis(2), own())],
    }
}

#[test]
fn secrets_are_masked_in_every_format() {
    let token = "ghp_aB3dE5gH7jK9mN1pQ3sT5vX7zA2cE4gI6kM8";
    let mut report = report_of("captures/api_401.jsonl");
    let mut unit = hostile("docs", true);
    let reason = "cannot reach postgres://svc:hunter2@db.example.com/app";
    unit.reason = Some(reason.to_owned());
    report.failure_groups[0].example = reason.to_owned();
    // Shortened texts end within the token.
    let label = format!("{} token {token}", "x".repeat(80));
    unit.planned = Some(
        PlannedUnit {
            connection: label.clone(),
            raw_files: vec![label],
            ..PlannedUnit::default()
        }
        .into(),
    );
    report.units = vec![unit];
    // The lines of a key are separate texts.
    let line = "MIIEpAIBAAKCAQEA7bq1kR3v9xW2ZcYp4LkQmN8tUoJdHsFgEiVwXyBzPaTnRqSe";
    let key = [
        "-----BEGIN RSA PRIVATE KEY-----",
        line,
        "-----END RSA PRIVATE KEY-----",
    ];
    report.log.messages = key.map(|line| (Millis(1), line.to_owned())).to_vec();
    let context = ReportContext::default();
    for format in FORMATS.into_iter().chain([ReportFormat::Run]) {
        let (text, masked) = render_masked(&report, format, &context, None);
        for secret in ["hunter2", &token[..8], line] {
            assert!(!text.contains(secret), "{format:?}: {secret}\n{text}");
        }
        assert!(masked > 0 && text.contains("masked"), "{format:?}\n{text}");
    }
}

proptest! {
    #[test]
    fn hostile_text_is_escaped_in_every_format(
        text in "\\PC{1,30}|[<>&\"'|`\\[\\]()#@\u{0}-\u{1f}\u{202a}-\u{202e}\u{fffe}\u{ffff}a-]{1,30}|]]>|--><script>",
        good in any::<bool>(),
    ) {
        let mut report = report_of("captures/api_401.jsonl");
        let unit = hostile(&text, true);
        let status = if good { UnitStatus::BudgetExhausted } else { UnitStatus::Failed };
        report.origin.name = text.clone();
        report.outcome = RunOutcome::Error;
        report.planned = Some(RunPlanned { job: text.clone(), failure_mode: "abort".into(), ..RunPlanned::default() }.into());
        report.failure_groups[0].cause = text.clone();
        report.failure_groups[0].example = text.clone();
        report.failure_groups[0].remedy = Some(text.clone());
        report.units = vec![UnitReport { status, ..unit }];
        report.log.messages = vec![(Millis(1), text.clone())];
        report.log.more_messages = 3;
        let [md, json, ..] = written(&report);
        prop_assert!(!md.contains("<script"), "{}", md);
        prop_assert!(md.chars().all(|c| !c.is_control() || c == '\n'));
        let first: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
        prop_assert_eq!(&first["body"]["workUnits"][0]["unitKey"], &json!(text));
    }
}
