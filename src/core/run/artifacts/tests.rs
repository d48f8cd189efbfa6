//! Artifacts of runs that are folded from notes.

use super::*;
use crate::{
    run::{EntryRef, EntryScope, Fold, state::RunView},
    tape::{
        EntryBody, Millis, Note, PROJECTION_KEY, Seq,
        note::{
            AttemptEnded, AttemptOutput, PatchIntegrated, PatchWritten, PlannedUnit, RunPlanned,
            RunSaved, SourcesProjected, Verdict,
            attempt_output::{LineEdit, RecordedWrite},
            verification::{ContradictedIdentifier, VerificationRecord},
        },
    },
    units::verdict,
};

const PAGE: &str = "wiki/global/arr.md";

/// Folds notes with the attempts that they belong to.
fn folded(notes: &[(Option<(&str, u32)>, Note)]) -> Vec<RunArtifact> {
    let (mut fold, mut view) = (Fold::new("?".into()), RunView::default());
    for (seq, (attempt, note)) in (0..).zip(notes) {
        let json = note.to_json();
        let scope = attempt.map_or(EntryScope::Run, |(unit, attempt)| {
            EntryScope::Attempt(unit, attempt)
        });
        let body = EntryBody::Note(&json);
        let entry = EntryRef {
            seq: Seq(seq),
            at: Millis(seq),
            scope,
            body,
            is_well_formed: true,
            decoded: None,
        };
        fold.apply(&mut view, &entry, &mut |_| {});
    }
    run_artifacts(&view.state)
}

fn planned(units: &[&str]) -> (Option<(&'static str, u32)>, Note) {
    let unit = |key: &&str| PlannedUnit {
        unit: (*key).into(),
        connection: "notes".into(),
        raw_files: vec![format!("{key}.md")],
        ..PlannedUnit::default()
    };
    let units = units.iter().map(unit).collect();
    (
        None,
        Note::RunPlanned(Box::new(RunPlanned {
            units,
            ..RunPlanned::default()
        })),
    )
}

fn action(target: ArtifactTarget, change: ArtifactChange, key: &str) -> MemoryAction {
    let connection = (target == ArtifactTarget::SemanticLayer).then(|| "wh".to_owned());
    MemoryAction {
        target,
        change,
        key: key.into(),
        detail: String::new(),
        target_connection_id: connection,
        raw_paths: None,
    }
}

/// What the attempt at a unit recorded about the identifiers of the page: `a` verified one that others left unverified,
/// and `b` found that one is wrong.
fn compared(unit: &str) -> ArtifactVerification {
    let wrong = ContradictedIdentifier {
        name: "orders.total".into(),
        found: "the table has no such column".into(),
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let (verified, unverified, contradicted) = match unit {
        "a" => (
            names(&["orders", "orders.total"]),
            names(&["refunds"]),
            Vec::new(),
        ),
        _ => (Vec::new(), names(&["orders"]), vec![wrong]),
    };
    ArtifactVerification {
        path: PAGE.into(),
        verified,
        unverified,
        contradicted,
    }
}

/// The notes of an attempt that succeeded and wrote these files.
fn success<'a>(
    unit: &'a str,
    attempt: u32,
    change: ArtifactChange,
    paths: &[&str],
) -> Vec<(Option<(&'a str, u32)>, Note)> {
    let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
    let writes = paths.iter().map(|path| RecordedWrite {
        call: Some("toolu_1".into()),
        path: path.clone(),
        edits: vec![LineEdit {
            start: 0,
            removed: 1,
            added: 4,
        }],
    });
    let unsourced = UnsourcedIdentifier {
        path: PAGE.into(),
        line: 3,
        name: "fct_arr".into(),
        declared: false,
    };
    let output = AttemptOutput {
        actions: vec![
            action(ArtifactTarget::Wiki, change, "arr"),
            action(ArtifactTarget::SemanticLayer, change, "Weekly Orders"),
        ],
        writes: writes.collect(),
        unsourced: Some(vec![unsourced]),
        verification: Some(VerificationRecord {
            artifacts: vec![compared(unit)],
            ..VerificationRecord::default()
        }),
        ..AttemptOutput::default()
    };
    let path = Some(format!(".ktx/ingest-patches/job/{unit}.{attempt}.patch"));
    vec![
        (Some((unit, attempt)), Note::AttemptStarted(Box::default())),
        (
            Some((unit, attempt)),
            Note::PatchWritten(PatchWritten {
                path,
                paths,
                ..PatchWritten::default()
            }),
        ),
        ended(unit, attempt, AttemptOutcome::Succeeded, output),
    ]
}

fn ended(
    unit: &str,
    attempt: u32,
    outcome: AttemptOutcome,
    work: AttemptOutput,
) -> (Option<(&str, u32)>, Note) {
    let verdict = verdict::integration_failure(
        crate::tape::note::VerdictCause::Validation,
        "it has no summary".into(),
    );
    let verdict = Verdict { outcome, ..verdict };
    let ended = AttemptEnded {
        work,
        ..ended_with(verdict)
    };
    (Some((unit, attempt)), Note::AttemptEnded(Box::new(ended)))
}

fn ended_with(verdict: Verdict) -> AttemptEnded {
    AttemptEnded {
        verdict,
        tool_failures: 0,
        failed_call: None,
        exit_code: None,
        signal: None,
        stderr_tail: Vec::new(),
        wrote: Vec::new(),
        work: AttemptOutput::default(),
        extra: serde_json::Map::default(),
    }
}

fn integrated(unit: &str, attempt: u32, result: PatchResult) -> (Option<(&str, u32)>, Note) {
    let verdict = (!result.keeps_success()).then(|| {
        verdict::integration_failure(crate::tape::note::VerdictCause::Conflict, "conflict".into())
    });
    (
        Some((unit, attempt)),
        Note::PatchIntegrated(Box::new(PatchIntegrated {
            result,
            verdict,
            ..PatchIntegrated::default()
        })),
    )
}

fn saved(commit: &str, paths: &[&str]) -> (Option<(&'static str, u32)>, Note) {
    let paths = paths.iter().map(|path| (*path).to_owned()).collect();
    (
        None,
        Note::RunSaved(RunSaved {
            commit: Some(commit.into()),
            paths,
            ..RunSaved::default()
        }),
    )
}

fn states(artifact: &RunArtifact) -> Vec<(&str, u32, &str)> {
    artifact
        .writers
        .iter()
        .map(|it| (it.unit.as_str(), it.attempt, it.state.label()))
        .collect()
}

#[test]
fn artifact_has_the_history_of_all_attempts() {
    let failed = AttemptOutput {
        discarded: vec![PAGE.into()],
        ..AttemptOutput::default()
    };
    let mut notes = vec![planned(&["a", "b"])];
    notes.push((Some(("a", 1)), Note::AttemptStarted(Box::default())));
    notes.push(ended("a", 1, AttemptOutcome::Failed, failed));
    notes.extend(success("a", 2, ArtifactChange::Created, &[PAGE]));
    notes.extend(success(
        "b",
        1,
        ArtifactChange::Updated,
        &[PAGE, "semantic-layer/wh/weekly_orders-0123abcd.yaml"],
    ));
    let pending = folded(&notes);
    let [source, page] = &pending[..] else {
        panic!("two artifacts: {pending:?}")
    };
    assert_eq!(
        states(page),
        [
            ("a", 1, "discarded"),
            ("a", 2, "pending"),
            ("b", 1, "pending")
        ]
    );
    assert_eq!(
        page.findings()
            .map(|(_, attempt, why)| (attempt, why))
            .collect::<Vec<_>>(),
        [(1, "it has no summary")]
    );
    assert_eq!(
        (page.change, page.lines().unwrap(), page.calls()),
        (
            Some(ArtifactChange::Created),
            LineCounts {
                added: 8,
                removed: 2
            },
            Some(2)
        )
    );
    assert_eq!(
        (page.unsourced().count(), source.unsourced().count()),
        (2, 0)
    );
    assert_eq!(
        page.verification().sentence(),
        "1 contradicted (`orders.total`: the table has no such column); 1 unverified (refunds); 1 verified (orders)"
    );
    assert!(source.verification().is_empty());
    let raw_files = |artifact: &RunArtifact| {
        artifact
            .raw_files
            .iter()
            .map(|file| file.path.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (raw_files(page), raw_files(source)),
        (vec!["a.md".into(), "b.md".into()], vec!["b.md".into()])
    );
    assert_eq!(
        (source.change, source.state),
        (Some(ArtifactChange::Updated), ArtifactStatus::Pending)
    );

    notes.push(integrated("a", 2, PatchResult::Accepted));
    notes.push(integrated("b", 1, PatchResult::TextualConflict));
    notes.push(saved("0123456789", &[PAGE]));
    let done = folded(&notes);
    assert_eq!(
        states(&done[1]),
        [
            ("a", 1, "discarded"),
            ("a", 2, "saved"),
            ("b", 1, "conflict")
        ]
    );
    assert_eq!(
        (done[1].state.label(), done[1].commit.as_deref()),
        ("saved", Some("0123456789"))
    );
    assert_eq!(
        (done[0].state.label(), done[0].commit.as_deref()),
        ("conflict", None)
    );
    assert_eq!(
        (raw_files(&done[0]), raw_files(&done[1])),
        (vec!["b.md".into()], vec!["a.md".into()])
    );
}

#[test]
fn later_attempt_replaces_a_pending_one() {
    let mut notes = vec![planned(&["a"])];
    notes.extend(success("a", 1, ArtifactChange::Created, &[PAGE]));
    notes.extend(success("a", 2, ArtifactChange::Created, &[PAGE]));
    assert_eq!(
        states(&folded(&notes)[0]),
        [("a", 1, "replaced"), ("a", 2, "pending")]
    );
}

#[test]
fn projected_source_is_an_artifact_without_attempt() {
    let projected = SourcesProjected {
        connection: Some("wh".into()),
        actions: vec![action(
            ArtifactTarget::SemanticLayer,
            ArtifactChange::Created,
            "orders",
        )],
        commit: Some("c0ffee".into()),
        paths: vec!["semantic-layer/wh/orders.yaml".into()],
        ..SourcesProjected::default()
    };
    let found = folded(&[
        planned(&[]),
        (None, Note::SourcesProjected(Box::new(projected))),
    ]);
    assert_eq!(states(&found[0]), [(PROJECTION_KEY, 0, "saved")]);
    assert_eq!(
        (found[0].commit.as_deref(), found[0].lines()),
        (Some("c0ffee"), None)
    );
}

#[test]
fn page_created_and_removed_is_unchanged() {
    let mut notes = vec![planned(&["a", "b"])];
    notes.extend(success("a", 1, ArtifactChange::Created, &[PAGE]));
    notes.extend(success("b", 1, ArtifactChange::Removed, &[PAGE]));
    for unit in ["a", "b"] {
        notes.push(integrated(unit, 1, PatchResult::Accepted));
    }
    notes.push(saved("0123456789", &[PAGE]));
    let found = folded(&notes);
    assert_eq!(
        (found[0].state.label(), found[0].change),
        ("unchanged", None)
    );
    assert!(
        found[0].commit.is_none() && found[0].raw_files.is_empty(),
        "{found:?}"
    );
}

#[test]
fn hostile_output_is_read_once_for_each_path() {
    let mut notes = vec![planned(&["a"])];
    let paths: Vec<String> = (0..20_000)
        .flat_map(|page| vec![format!("wiki/global/{page}.md"); 2])
        .collect();
    notes.extend(success(
        "a",
        1,
        ArtifactChange::Created,
        &paths.iter().map(String::as_str).collect::<Vec<_>>(),
    ));
    let actions = (0..20_000)
        .map(|_| action(ArtifactTarget::Wiki, ArtifactChange::Updated, "1"))
        .collect();
    let flag = UnsourcedIdentifier {
        path: "wiki/global/1.md".into(),
        line: 1,
        name: "x".into(),
        declared: false,
    };
    let work = AttemptOutput {
        actions,
        unsourced: Some(vec![flag; 20_000]),
        ..AttemptOutput::default()
    };
    notes.push(ended("a", 1, AttemptOutcome::Succeeded, work));
    let found = folded(&notes);
    let page = found
        .iter()
        .find(|page| page.path == "wiki/global/1.md")
        .unwrap();
    assert_eq!(
        (found.len(), page.writers.len(), page.unsourced().count()),
        (10_000, 1, 200)
    );
}
