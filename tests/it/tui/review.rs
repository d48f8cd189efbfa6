//! The review page: its look, and the commands that its keys send.

use std::{sync::Arc, time::Duration};

use crate::{
    control::{ReviewOrder, ReviewVerdict, RunCommand},
    replay::FileSource,
    run::Timeline,
    tape::{
        Note,
        note::{ReviewDecided, ReviewDecision, ReviewRequested, ReviewedFile, attempt_output::ArtifactChange},
    },
};
use tokio::sync::{mpsc, watch};

use super::{
    scripted_host::{ScriptedHost, live_handle, options, play},
    tape::TapeFixture,
};

const SIZES: [(u16, u16); 5] = [(40, 12), (60, 20), (80, 24), (120, 36), (200, 60)];

fn created(path: &str, lines: &[&str]) -> ReviewedFile {
    let body: String = lines.iter().map(|line| format!("+{line}\n")).collect();
    ReviewedFile {
        path: path.into(),
        change: ArtifactChange::Created,
        units: vec!["docs-orders".into()],
        diff: format!("@@ -0,0 +1,{} @@\n{body}", lines.len()),
        before: None,
        omitted: None,
    }
}

/// A run that waits for the review of these files.
fn waiting(files: Vec<ReviewedFile>) -> TapeFixture {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["docs-orders", "docs-refunds"]);
    for unit in ["docs-orders", "docs-refunds"] {
        tape.start(unit, 1).wait(1000).end(unit, 1, 0);
    }
    let request = ReviewRequested { base: "c0ffee".into(), files, ..ReviewRequested::default() };
    tape.wait(200).note(None, &Note::ReviewRequested(Arc::new(request)));
    tape
}

/// An updated file with two hunks between two new ones. A line is longer than the pane, and one is hostile.
fn three_files() -> Vec<ReviewedFile> {
    let long = "Refunds count on the day of the order, and never on the day on which the money was returned to the \
                customer, as finance reports them that way.";
    let updated = ReviewedFile {
        path: "wiki/global/net-revenue.md".into(),
        change: ArtifactChange::Updated,
        units: vec!["docs-refunds".into(), "reconcile".into()],
        diff: format!(
            "@@ -3,3 +3,3 @@\n # Net revenue\n-Old.\n+{long}\n \n@@ -20 +20,2 @@\n-End.\n+End\u{202e}.\n+More.\n"
        ),
        before: None,
        omitted: None,
    };
    let source = ReviewedFile {
        change: ArtifactChange::Removed,
        diff: "@@ -1,2 +0,0 @@\n-name: orders\n-table: orders\n".into(),
        ..created("semantic-layer/shop/orders.yaml", &[])
    };
    vec![source, updated, created("wiki/global/order-states.md", &["---", "summary: States", "---", "", "# States"])]
}

/// The screen after `keys`, and the commands that they sent.
fn live(tape: &TapeFixture, keys: &str, size: (u16, u16)) -> (ScriptedHost, Vec<RunCommand>) {
    let growing = tape.growing();
    let (commands, mut orders) = mpsc::channel(200);
    let (_grows, changed) = watch::channel(0);
    let script = ScriptedHost::new(keys, size).after(Duration::from_secs(4));
    let (script, _) = play(growing.timeline, Some(live_handle(commands, changed)), options(), script);
    (script, std::iter::from_fn(|| orders.try_recv().ok()).collect())
}

fn decided(path: &str, decision: ReviewDecision) -> Note {
    let (hunk, text) = (None, (decision == ReviewDecision::Edited).then(|| "Mine.\nAll of it.\n".to_owned()));
    let feedback = (decision == ReviewDecision::SentBack).then(|| "Name the owner.".to_owned());
    Note::ReviewDecided(Box::new(ReviewDecided { path: path.into(), hunk, decision, text, feedback }))
}

#[test]
fn review_page_is_rendered() {
    let tape = waiting(three_files());
    for size in SIZES {
        let (width, height) = size;
        insta::assert_snapshot!(format!("review_{width}x{height}"), live(&tape, "", size).0.text());
    }
    insta::assert_snapshot!("review_hunk_120x36", live(&tape, "jjj", (120, 36)).0.text());
    let mut tape = waiting(three_files());
    for (file, decision) in
        three_files().iter().zip([ReviewDecision::Rejected, ReviewDecision::Edited, ReviewDecision::SentBack])
    {
        tape.note(None, &decided(&file.path, decision));
    }
    insta::assert_snapshot!("review_decided_120x36", live(&tape, "j", (120, 36)).0.text());
    insta::assert_snapshot!("review_question_80x24", live(&tape, "c", (80, 24)).0.text());
}

#[test]
fn keys_decide_about_the_selected_change() {
    let tape = waiting(three_files());
    let sent = |keys: &str| live(&tape, keys, (120, 36)).1;
    let order = |path: &str, hunk: Option<&str>, verdict| RunCommand::Review {
        decisions: vec![ReviewOrder { path: path.into(), hunk: hunk.map(str::to_owned), verdict }],
    };
    let source = "semantic-layer/shop/orders.yaml";
    assert_eq!(sent("a"), [order(source, None, ReviewVerdict::Accept)]);
    assert_eq!(sent("d"), [order(source, None, ReviewVerdict::Reject)]);
    let back = ReviewVerdict::SendBack("keep it".into());
    assert_eq!(sent("bkeep it<enter>"), [order(source, None, back)]);
    let [RunCommand::Review { decisions }] = &*sent("jjja") else { panic!() };
    assert!(decisions[0].hunk.is_some() && decisions[0].path == "wiki/global/net-revenue.md", "{decisions:?}");
    let [RunCommand::Review { decisions }] = &*sent("A") else { panic!() };
    assert_eq!(decisions.len(), 4, "every hunk");
    assert_eq!(sent("c"), [], "changes are open");
    assert_eq!(sent("e"), [], "a deleted file cannot be edited");
    assert_eq!(sent(":changes reject unit:docs-refunds<enter>").len(), 1);
    assert_eq!(sent(":changes reject other/*<enter>"), []);
}

#[test]
fn finished_review_sends_its_end_once() {
    let mut tape = waiting(three_files());
    for file in three_files() {
        tape.note(None, &decided(&file.path, ReviewDecision::Accepted));
    }
    assert_eq!(live(&tape, "cy", (120, 36)).1, [RunCommand::FinishReview { branch: None }]);
    assert_eq!(live(&tape, "cn", (120, 36)).1, []);
}

/// A run that waits for a review does not end by itself.
#[test]
fn quit_during_a_review_asks_and_stops_the_run() {
    let tape = waiting(three_files());
    let (host, sent) = live(&tape, "qn", (120, 36));
    assert!(host.text().contains("review 3 files"), "{}", host.text());
    assert_eq!(sent, []);
    assert_eq!(live(&tape, "qy", (120, 36)).1, [RunCommand::StopAll]);
    assert_eq!(live(&tape, "<c-c>", (120, 36)).1, [RunCommand::StopAll]);
    insta::assert_snapshot!("review_quit_80x24", live(&tape, "q", (80, 24)).0.text());
}

#[test]
fn record_of_a_review_cannot_be_decided() {
    let tape = waiting(three_files());
    let (host, _) = play(tape.timeline(), None, options(), ScriptedHost::new("Va", (120, 36)));
    let text = host.text();
    assert!(text.contains("review 3 files") && text.contains("this is a record"), "{text}");
}

/// Of sixty files, three are sent back and the others accepted.
#[test]
fn sixty_files_need_few_keys() {
    let files: Vec<_> = (0..60).map(|n| created(&format!("wiki/global/page-{n:02}.md"), &["# Page"])).collect();
    let tape = waiting(files);
    let keys =
        "/-17<enter>b|add the owner|<enter>/-31<enter>b|add the owner|<enter>/-58<enter>b|add the owner|<enter>A";
    // The feedback is the reviewer's text; all other characters are keys.
    let count = |keys: &str| {
        let typed: String = keys.split('|').step_by(2).collect();
        typed.replace("<enter>", "!").len()
    };
    let (_, commands) = live(&tape, &keys.replace('|', ""), (120, 36));
    assert!(count(keys) + "cy".len() <= 75, "{} keys", count(keys));
    let [first, .., rest] = commands.as_slice() else { panic!("{commands:?}") };
    let RunCommand::Review { decisions } = first else { panic!("{first:?}") };
    assert_eq!(decisions[0].path, "wiki/global/page-17.md");
    // The commands have no effect on this tape, so all sixty are still open.
    let RunCommand::Review { decisions } = rest else { panic!("{rest:?}") };
    assert_eq!((commands.len(), decisions.len()), (4, 60));
}

/// The recorded review in the fixtures, at its end.
fn recorded(keys: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tapes/review.jsonl");
    let timeline = Timeline::new(Box::new(FileSource::open(&path).unwrap()));
    play(timeline, None, options(), ScriptedHost::new(&format!("${keys}"), (120, 36))).0.text()
}

#[test]
fn line_of_a_diff_leads_to_the_call_that_wrote_it() {
    let text = recorded("V<tab>jjjjgw");
    assert!(text.contains("attempt 1, wrote line 5; what its agent read is above it"), "{text}");
    assert!(text.contains("inspector") && text.contains("✓ read_raw_file subscription"), "{text}");
    let text = recorded("cgw");
    assert!(text.contains("was the last one to write the file"), "{text}");
    // The unit of this page worked again after the review, so the second attempt wrote the page.
    let text = recorded("V/metric-changes<enter>gw");
    assert!(text.contains("attempt 2, wrote line 1"), "{text}");
}

#[test]
fn diff_has_its_own_selection() {
    insta::assert_snapshot!("review_diff_row_120x36", recorded("V<tab>jjj"));
    let tape = waiting(three_files());
    // In the diff, keys about changes still mean the selected change of the list.
    let [RunCommand::Review { decisions }] = &*live(&tape, "<tab>Ga", (80, 24)).1 else { panic!() };
    assert_eq!(decisions[0].path, "semantic-layer/shop/orders.yaml");
    let (host, _) = live(&tape, "j<tab>G", (80, 24));
    assert!(host.text().contains("More."), "{}", host.text());
    let (host, _) = live(&tape, "j<tab>ggjgw", (80, 24));
    assert!(host.text().contains("the run did not change this line"), "{}", host.text());
}

#[test]
fn end_of_a_review_can_name_a_branch() {
    let mut tape = waiting(three_files());
    for file in three_files() {
        tape.note(None, &decided(&file.path, ReviewDecision::Accepted));
    }
    let (host, sent) = live(&tape, ":finish-review ingest/orbit<enter>", (120, 36));
    assert!(host.text().contains("Commit the accepted changes to branch ingest/orbit?"), "{}", host.text());
    assert_eq!(sent, []);
    let sent = live(&tape, ":finish-review ingest/orbit<enter>y", (120, 36)).1;
    assert_eq!(sent, [RunCommand::FinishReview { branch: Some("ingest/orbit".into()) }]);
}
