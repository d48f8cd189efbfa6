//! Verdicts of attempts with too little evidence of work.

use super::*;
use crate::tape::note::attempt_output::{PartialRead, ReadUnit};

/// Facts of an agent that ended by itself after `turns` messages.
fn with_evidence(turns: u32, evidence: WorkEvidence) -> AttemptFacts {
    let mut facts = good();
    facts.reported.turns = turns;
    facts.work.evidence = Some(evidence);
    facts
}

fn unread(path: &str) -> UnreadFile {
    UnreadFile {
        path: path.into(),
        part: None,
    }
}

#[test]
fn success_needs_a_message_and_a_raw_file() {
    let used = WorkEvidence {
        has_used_files: true,
        raw_files: 1,
        ..WorkEvidence::default()
    };
    assert_eq!(strict(&with_evidence(1, used.clone())).reason, "completed");
    for facts in [
        with_evidence(0, used),
        with_evidence(3, WorkEvidence::default()),
    ] {
        let verdict = strict(&facts);
        assert_eq!(
            (verdict.outcome, verdict.cause),
            (AttemptOutcome::Failed, VerdictCause::NothingDone)
        );
        assert!(
            verdict
                .remedy
                .is_some_and(|remedy| remedy.contains("feedback"))
        );
    }
}

#[test]
fn spent_budget_and_failed_calls_come_before_missing_evidence() {
    let mut facts = with_evidence(3, WorkEvidence::default());
    facts.reported.result = Some(result("error_max_turns", true, Some("max_turns")));
    assert_eq!(strict(&facts).cause, VerdictCause::Budget);
    let mut facts = with_evidence(3, WorkEvidence::default());
    facts
        .work
        .tally
        .record_failure("wiki_write", Some("t1"), "no");
    assert_eq!(strict(&facts).cause, VerdictCause::ToolFailures);
    let mut facts = with_evidence(3, WorkEvidence::default());
    facts.work.dangling_refs = vec!["a -> b".into()];
    assert_eq!(
        strict(&facts).cause,
        VerdictCause::NothingDone,
        "before dangling references"
    );
}

#[test]
fn unread_files_are_named_and_fail_only_on_request() {
    let part = PartialRead {
        read: 2,
        of: 5,
        unit: ReadUnit::Pages,
    };
    let files = vec![
        unread("a.md"),
        UnreadFile {
            path: "b.md".into(),
            part: Some(part),
        },
    ];
    let left = WorkEvidence {
        has_used_files: true,
        raw_files: 7,
        unread: files,
        ..WorkEvidence::default()
    };
    let verdict = strict(&with_evidence(2, left.clone()));
    assert_eq!(verdict.outcome, AttemptOutcome::Succeeded);
    assert_eq!(
        verdict.reason,
        "completed; 2 of 7 raw files unread: a.md, b.md (2 of 5 pages read)"
    );
    let verdict = strict(&with_evidence(
        2,
        WorkEvidence {
            unread_fails: true,
            ..left
        },
    ));
    assert_eq!(
        (verdict.outcome, verdict.cause),
        (AttemptOutcome::Failed, VerdictCause::UnreadFiles)
    );
    assert_eq!(
        verdict.reason,
        "2 of 7 raw files unread: a.md, b.md (2 of 5 pages read)"
    );
}

#[test]
fn many_unread_files_make_a_bounded_reason() {
    let files = (0..400)
        .map(|number| unread(&format!("{number}.md")))
        .collect();
    let left = WorkEvidence {
        has_used_files: true,
        raw_files: 400,
        unread: files,
        ..WorkEvidence::default()
    };
    let reason = strict(&with_evidence(2, left)).reason;
    assert_eq!(
        reason,
        "completed; 400 of 400 raw files unread: 0.md, 1.md, 2.md, 3.md, 4.md and 395 more"
    );
}

#[test]
fn success_without_a_change_is_marked() {
    let idle = WorkEvidence {
        has_used_files: true,
        raw_files: 1,
        nothing_written: true,
        ..WorkEvidence::default()
    };
    assert_eq!(
        strict(&with_evidence(2, idle)).reason,
        "completed; read, nothing written"
    );
}
