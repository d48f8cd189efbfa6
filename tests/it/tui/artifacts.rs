//! The page of artifacts: the list, its filters, and the document of an artifact.

use serde_json::json;

use super::{
    screens::{SIZES, shown},
    tape::TapeFixture,
};
use ingestdeck_core::tape::{
    Note,
    note::{
        AttemptEnded, AttemptOutcome, AttemptOutput, PatchIntegrated, PatchResult, PatchWritten,
        RunSaved, StopReason, Verdict, VerdictCause,
        attempt_output::{
            ArtifactChange, ArtifactTarget, LineEdit, MemoryAction, RecordedWrite,
            UnsourcedIdentifier,
        },
    },
};

/// An attempt that writes a page with one call; `unsourced` are names in it that its agent never received.
fn write(
    tape: &mut TapeFixture,
    unit: &str,
    attempt: u32,
    key: &str,
    unsourced: &[&str],
    failed: bool,
) {
    let path = format!("wiki/global/{key}.md");
    let id = format!("w{attempt}{key}");
    tape.start(unit, attempt).wait(500);
    let content = format!("# Revenue\n\nNet revenue of `fct_{key}` by day.\n");
    tape.call(
        unit,
        attempt,
        &id,
        "wiki_write",
        &json!({"key": key, "summary": "s", "content": content}),
    );
    tape.wait(40)
        .result(unit, attempt, &id, "Wiki page written.", false)
        .wait(300);
    let lane = Some((unit, attempt));
    let action = MemoryAction {
        target: ArtifactTarget::Wiki,
        change: ArtifactChange::Created,
        key: key.into(),
        detail: "s".into(),
        target_connection_id: None,
        raw_paths: Some(vec![format!("models/{key}.yml")]),
    };
    let edits = vec![LineEdit {
        start: 0,
        removed: 0,
        added: 7,
    }];
    let flag = |name: &&str| UnsourcedIdentifier {
        path: path.clone(),
        line: 7,
        name: (*name).into(),
        declared: false,
    };
    let unsourced = Some(unsourced.iter().map(flag).collect());
    let work = match failed {
        true => AttemptOutput {
            discarded: vec![path.clone()],
            unsourced,
            ..AttemptOutput::default()
        },
        false => AttemptOutput {
            actions: vec![action],
            writes: vec![RecordedWrite {
                call: Some(id),
                path: path.clone(),
                edits,
            }],
            unsourced,
            ..AttemptOutput::default()
        },
    };
    if !failed {
        let patch = Some(format!(".ktx/ingest-patches/local-1/{unit}.patch"));
        tape.note(
            lane,
            &Note::PatchWritten(PatchWritten {
                base: "b".into(),
                path: patch,
                paths: vec![path],
            }),
        );
    }
    let (outcome, cause, reason) = match failed {
        true => (
            AttemptOutcome::Failed,
            VerdictCause::Validation,
            "validation failed for: wiki page has no summary",
        ),
        false => (
            AttemptOutcome::Succeeded,
            VerdictCause::Completed,
            "completed",
        ),
    };
    let verdict = Verdict {
        outcome,
        stop: StopReason::Natural,
        cause,
        reason: reason.into(),
        remedy: None,
    };
    let ended = AttemptEnded {
        verdict,
        tool_failures: 0,
        failed_call: None,
        exit_code: Some(0),
        signal: None,
        stderr_tail: Vec::new(),
        wrote: Vec::new(),
        work,
        extra: serde_json::Map::default(),
    };
    tape.note(lane, &Note::AttemptEnded(Box::new(ended)))
        .wait(100);
}

/// Three pages: one after a failed attempt, one with flags, and one in conflict.
pub(super) fn artifacts() -> TapeFixture {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["dbt-marts", "docs-pricing", "docs-revenue-and-refunds"]);
    write(&mut tape, "dbt-marts", 1, "revenue", &[], true);
    write(
        &mut tape,
        "dbt-marts",
        2,
        "revenue",
        &["fct_revenue", "churn_flag"],
        false,
    );
    write(&mut tape, "docs-pricing", 1, "pricing", &[], false);
    write(
        &mut tape,
        "docs-revenue-and-refunds",
        1,
        "revenue",
        &[],
        false,
    );
    let integrated = |result: PatchResult| {
        let verdict = (!result.keeps_success()).then(|| Verdict {
            outcome: AttemptOutcome::Failed,
            stop: StopReason::Natural,
            cause: VerdictCause::Conflict,
            reason: "textual conflict in wiki/global/revenue.md with dbt-marts".into(),
            remedy: None,
        });
        Note::PatchIntegrated(Box::new(PatchIntegrated {
            result,
            verdict,
            ..PatchIntegrated::default()
        }))
    };
    tape.note(Some(("dbt-marts", 2)), &integrated(PatchResult::Accepted));
    tape.note(
        Some(("docs-revenue-and-refunds", 1)),
        &integrated(PatchResult::TextualConflict),
    );
    let paths = vec!["wiki/global/revenue.md".into()];
    let commit = Some("0123456789abcdef0123456789abcdef01234567".into());
    tape.note(
        None,
        &Note::RunSaved(RunSaved {
            commit,
            paths,
            ..RunSaved::default()
        }),
    );
    tape.run_ended(2, 1);
    tape
}

#[test]
fn artifacts_are_rendered_at_every_size() {
    for size in SIZES {
        let (width, height) = size;
        insta::assert_snapshot!(
            format!("artifacts_{width}x{height}"),
            shown(artifacts().timeline(), "c", size)
        );
        let opened = shown(artifacts().timeline(), "cj<enter>", size);
        insta::assert_snapshot!(format!("artifact_{width}x{height}"), opened);
    }
}

#[test]
fn artifacts_are_filtered_by_state_and_text() {
    let shown = |keys: &str| shown(artifacts().timeline(), keys, (120, 36));
    assert!(
        shown("cf").contains("1 of 2 · unsourced"),
        "{}",
        shown("cf")
    );
    assert!(shown("cff").contains("no artifact matches the filter"));
    let typed = shown("cFpricing<enter>");
    assert!(
        typed.contains("1 of 2 · pricing") && !typed.contains("revenue.md"),
        "{typed}"
    );
    assert!(
        shown("cFpricing<enter><esc>").contains(" 2 of 2"),
        "the first Esc clears the filter"
    );
    assert!(
        shown("cFpricing<enter><esc><esc>").contains("docs-pricing"),
        "the next one closes the page"
    );
    assert!(shown("cF").contains("only artifacts with: "));
}

#[test]
fn artifact_leads_to_its_unit_and_neighbour() {
    let shown = |keys: &str| shown(artifacts().timeline(), keys, (120, 36));
    let inspected = shown("cj<enter>i");
    assert!(
        inspected.contains("dbt-marts") && inspected.contains("attempt 2"),
        "{inspected}"
    );
    let next = shown("c<enter>l");
    assert!(
        next.contains("wiki/global/revenue.md") && next.contains("+ # Revenue"),
        "{next}"
    );
    assert!(shown("cj<enter><esc>").contains("artifacts 2 of 2"));
    assert!(
        shown("c/revenue<enter>").contains("revenue"),
        "the list can be searched"
    );
    assert!(
        shown("cj<enter>/churn<enter>").contains("1/1"),
        "the document can be searched"
    );
    assert!(shown("c]").contains("2/2"), "from flag to flag");
}
