//! A run in a git project: its patches are integrated, one of them conflicts, and the others are committed.

use ingestdeck_core::tape::{
    Note,
    note::{
        AttemptOutcome, IntegrationAdvanced, IntegrationStarted, PatchIntegrated, PatchResult,
        PatchWritten, RunSaved, SaveFailed, StopReason, Verdict, VerdictCause,
    },
};

use super::{
    screens::{SIZES, live, shown},
    tape::TapeFixture,
};

const ONTO: &str = "5f2d0c1b9a8e7d6c5b4a39281706f5e4d3c2b1a0";

/// Two units are done, and the patch of the first one is integrated.
fn integrating() -> TapeFixture {
    let units = ["dbt-all", "docs-revenue"];
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&units);
    for (index, unit) in units.iter().enumerate() {
        tape.start(unit, 1).wait(900);
        tape.call(
            unit,
            1,
            "w",
            "wiki_write",
            &serde_json::json!({"key": "revenue"}),
        )
        .wait(40);
        tape.result(unit, 1, "w", "Wiki page `revenue` written.", false)
            .wait(300);
        tape.note(
            Some((unit, 1)),
            &Note::PatchWritten(PatchWritten {
                base: ONTO.into(),
                path: Some(format!(
                    ".ktx/ingest-patches/local-1/000{index}-{unit}.patch"
                )),
                paths: vec!["wiki/global/revenue.md".into()],
            }),
        );
        tape.end(unit, 1, 0).wait(100);
    }
    let units = units.map(Into::into).into();
    tape.note(
        None,
        &Note::IntegrationStarted(IntegrationStarted {
            onto: ONTO.into(),
            units,
        }),
    )
    .wait(30);
    let accepted = PatchIntegrated {
        result: PatchResult::Accepted,
        commit: Some(ONTO.into()),
        paths: vec!["wiki/global/revenue.md".into()],
        ..PatchIntegrated::default()
    };
    tape.note(
        Some(("dbt-all", 1)),
        &Note::PatchIntegrated(Box::new(accepted)),
    )
    .wait(30);
    tape
}

/// The second patch conflicts, and the first one is on the branch.
fn saved() -> TapeFixture {
    let mut tape = integrating();
    let conflict = PatchIntegrated {
        result: PatchResult::TextualConflict,
        commit: None,
        paths: vec!["wiki/global/revenue.md".into()],
        verdict: Some(Verdict {
            outcome: AttemptOutcome::Failed,
            stop: StopReason::Natural,
            cause: VerdictCause::Conflict,
            reason: "textual conflict in wiki/global/revenue.md with dbt-all".into(),
            remedy: Some("retry it: it will see what the others wrote".into()),
        }),
        shared: Vec::new(),
    };
    tape.note(
        Some(("docs-revenue", 1)),
        &Note::PatchIntegrated(Box::new(conflict)),
    )
    .wait(30);
    let saved = RunSaved {
        commit: Some("0123456789abcdef0123456789abcdef01234567".into()),
        branch: Some("main".into()),
        subject: "ingest(dbt,docs): local-1 syncId=x diff=+3/~0/-0/=0; failed WUs: docs-revenue"
            .into(),
        paths: vec!["wiki/global/revenue.md".into()],
        ..RunSaved::default()
    };
    tape.note(None, &Note::RunSaved(saved));
    tape.run_ended(1, 1);
    tape
}

macro_rules! at_every_size {
    ($name:literal, $draw:expr) => {
        for size in SIZES {
            let text: String = $draw(size);
            insta::assert_snapshot!(format!("{}_{}x{}", $name, size.0, size.1), text);
        }
    };
}

#[test]
fn integration_is_shown() {
    at_every_size!("integrating", |size| live(&integrating(), "", size).text());
}

#[test]
fn patches_are_counted_while_units_run() {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["docs-a", "docs-b"]);
    tape.start("docs-a", 1).wait(900);
    tape.end("docs-a", 1, 0).start("docs-b", 1).wait(900);
    let advanced = IntegrationAdvanced {
        patches: 120,
        refused: 1,
    };
    tape.note(None, &Note::IntegrationAdvanced(advanced));
    let counted = "120 patches integrated so far, 1 of them refused";
    let screen = |tape: &TapeFixture| live(tape, "", (200, 50)).text();
    assert!(screen(&tape).contains(counted), "{}", screen(&tape));
    tape.end("docs-b", 1, 0);
    let started = IntegrationStarted::default();
    tape.note(None, &Note::IntegrationStarted(started));
    assert!(!screen(&tape).contains(counted), "{}", screen(&tape));
}

#[test]
fn commit_and_conflict_are_shown() {
    at_every_size!("saved", |size| shown(saved().timeline(), "<down>", size));
    at_every_size!("conflict_causes", |size| shown(
        saved().timeline(),
        "C",
        size
    ));
    let log = shown(saved().timeline(), "L", (120, 36));
    assert!(log.contains("commit 01234567 on main"), "{log}");
}

#[test]
fn failed_save_is_shown() {
    let mut tape = integrating();
    tape.note(
        None,
        &Note::SaveFailed(SaveFailed {
            reason: "files in the project are in the way".into(),
            review_open: false,
            ..SaveFailed::default()
        }),
    );
    tape.run_ended(2, 0);
    let text = shown(tape.timeline(), "", (120, 36));
    assert!(
        text.contains("NOT SAVED: files in the project are in the way"),
        "{text}"
    );
}

#[test]
fn past_before_the_commit_does_not_show_it() {
    let text = shown(saved().timeline(), "0", (120, 36));
    assert!(
        !text.contains("commit 0123") && !text.contains("conflict"),
        "{text}"
    );
}
