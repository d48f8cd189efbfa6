//! A review of changes that the branch contains already.

use super::*;
use crate::committed_changes::{CommittedRun, LeftOut, RunCommit};
use ingestdeck_core::{
    run::review::ReviewState,
    tape::{
        RunId,
        note::{ReviewDecided, ReviewDecision},
    },
};

#[test]
fn committed_changes_are_taken_back_hunk_by_hunk() {
    let text = |first: &str, last: &str| {
        let middle: String = (1..=9).map(|line| format!("Line {line}.\n")).collect();
        page(&format!("{first}\n{middle}{last}"), &[])
    };
    let (long, path) = (text("First.", "Last."), "wiki/global/long.md");
    let run = IntegrationFixture::with(&[(path, &long)]);
    let (update, new) = (text("First, new.", "Last, new."), page("new", &[]));
    let (mut integration, _) = run.integrate(&[run.patch(
        "a",
        &[(path, Some(&update)), ("wiki/global/new.md", Some(&new))],
    )]);
    let SavedIntegration { commit, paths, .. } = integration.save(&message("ingest"), &[]).unwrap();
    drop(integration);
    let commits = vec![RunCommit {
        id: commit.unwrap(),
        paths: paths.into_iter().collect(),
    }];
    let writers = [(path.to_owned(), vec![UnitKey::from("a")])].into();
    let committed = CommittedRun {
        run: RunId(uuid::Uuid::nil()),
        commits,
        writers,
    };

    let begin = || {
        let (mut integration, _) = run.integrate(&[]);
        assert!(integration.add_committed(&committed).unwrap().is_empty());
        let review = ReviewState::new(integration.review_request().unwrap().into(), None);
        (integration, review)
    };
    let (mut integration, mut review) = begin();
    let decide = |review: &mut ReviewState, path: &str, hunk: Option<&str>, decision| {
        let hunk = hunk.map(str::to_owned);
        let path = path.to_owned();
        assert!(review.decide(&ReviewDecided {
            path,
            hunk,
            decision,
            ..ReviewDecided::default()
        }));
    };
    let hunks: Vec<String> = review.files[0]
        .hunks
        .iter()
        .map(|hunk| hunk.id.to_string())
        .collect();
    assert_eq!((review.files.len(), hunks.len()), (2, 2));
    decide(&mut review, path, Some(&hunks[0]), ReviewDecision::Accepted);
    decide(&mut review, path, Some(&hunks[1]), ReviewDecision::Rejected);
    decide(
        &mut review,
        "wiki/global/new.md",
        None,
        ReviewDecision::Rejected,
    );
    let before = integration.apply_review(&review).unwrap();
    // A save that fails leaves the review as it was.
    integration.undo_review(before).unwrap();
    integration.apply_review(&review).unwrap();
    let taken_back = integration.save(&message("review"), &[]).unwrap();
    assert_eq!(taken_back.paths, [path, "wiki/global/new.md"]);
    assert_eq!(
        (run.read(path), run.read("wiki/global/new.md")),
        (Some(text("First, new.", "Last.")), None)
    );
    drop(integration);

    // What was taken back has changed since, so nothing is left to review.
    let (mut integration, _) = run.integrate(&[]);
    let left_out = [path, "wiki/global/new.md"].map(|path| (path.to_owned(), LeftOut::Changed));
    assert_eq!(
        integration.add_committed(&committed).unwrap(),
        left_out.into()
    );
    assert!(integration.review_request().unwrap().files.is_empty());
    assert_eq!(
        integration.save(&message("review"), &[]).unwrap().commit,
        None
    );
    drop(integration);
    run.assert_tidy();
}
