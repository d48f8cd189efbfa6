//! Decisions about hunks, with diffs of a known program as the reference.

use proptest::prelude::*;
use similar::TextDiff;

use super::*;

/// A changed file with the diff that git would print.
fn file(path: &str, before: &str, after: &str) -> ReviewedFile {
    let diff = TextDiff::from_lines(before, after);
    let diff = diff.unified_diff().context_radius(1).to_string();
    let change = match (before, after) {
        ("", _) => ArtifactChange::Created,
        (_, "") => ArtifactChange::Removed,
        _ => ArtifactChange::Updated,
    };
    ReviewedFile {
        path: path.into(),
        change,
        units: vec!["docs".into()],
        diff,
        before: None,
        omitted: None,
    }
}

fn review(files: Vec<ReviewedFile>) -> ReviewState {
    ReviewState::new(
        Arc::new(ReviewRequested {
            base: "c0ffee".into(),
            files,
            ..ReviewRequested::default()
        }),
        None,
    )
}

fn decided(path: &str, hunk: Option<&str>, decision: ReviewDecision) -> ReviewDecided {
    let hunk = hunk.map(str::to_owned);
    ReviewDecided {
        path: path.into(),
        hunk,
        decision,
        ..ReviewDecided::default()
    }
}

const BEFORE: &str = "a\nb\nc\nd\ne\nf\ng\n";
const AFTER: &str = "a\nB\nc\nd\ne\nf\nG\nh\n";

fn ids(review: &ReviewState, path: &str) -> Vec<String> {
    review
        .file(path)
        .unwrap()
        .1
        .hunks
        .iter()
        .map(|hunk| hunk.id.to_string())
        .collect()
}

#[test]
fn accepted_hunks_are_applied_and_others_left_out() {
    let mut review = review(vec![file("wiki/global/a.md", BEFORE, AFTER)]);
    let ids = ids(&review, "wiki/global/a.md");
    assert_eq!(ids.len(), 2);
    let resolve = |review: &ReviewState| {
        let (file, decisions) = review.by_path().next().unwrap();
        decisions.resolve(file, Some(BEFORE)).unwrap()
    };
    assert_eq!(
        resolve(&review),
        FileResolution::AsBefore,
        "open changes are not in the commit"
    );
    assert!(review.decide(&decided(
        "wiki/global/a.md",
        Some(&ids[1]),
        ReviewDecision::Accepted
    )));
    assert!(review.decide(&decided(
        "wiki/global/a.md",
        Some(&ids[0]),
        ReviewDecision::Rejected
    )));
    assert_eq!(
        resolve(&review),
        FileResolution::Text("a\nb\nc\nd\ne\nf\nG\nh\n".into())
    );
    assert!(review.decide(&decided("wiki/global/a.md", None, ReviewDecision::Accepted)));
    assert_eq!(resolve(&review), FileResolution::AsWritten);
}

#[test]
fn unknown_files_and_hunks_change_nothing() {
    let mut review = review(vec![file("wiki/global/a.md", BEFORE, AFTER)]);
    let before = review.clone();
    for (path, hunk) in [
        ("wiki/global/b.md", None),
        ("wiki/global/a.md", Some("0123456789")),
    ] {
        assert!(!review.decide(&decided(path, hunk, ReviewDecision::Accepted)));
    }
    assert!(
        !review.decide(&decided("wiki/global/a.md", None, ReviewDecision::Edited)),
        "without a text"
    );
    assert_eq!(review, before);
}

#[test]
fn equal_changes_keep_their_decisions() {
    let mut first = review(vec![
        file("wiki/global/a.md", BEFORE, AFTER),
        file("wiki/global/b.md", "", "new\n"),
    ]);
    let ids = ids(&first, "wiki/global/a.md");
    first.decide(&decided(
        "wiki/global/a.md",
        Some(&ids[0]),
        ReviewDecision::Rejected,
    ));
    let sent = ReviewDecided {
        feedback: Some("name the owner".into()),
        ..decided("wiki/global/b.md", None, ReviewDecision::SentBack)
    };
    first.decide(&sent);
    assert_eq!(
        first.units_sent_back(|_| false),
        [("docs".into(), "wiki/global/b.md: name the owner".into())]
    );
    let again = [
        file("wiki/global/a.md", BEFORE, "a\nB\nc\nd\ne\nf\nX\n"),
        file("wiki/global/b.md", "", "new\n"),
    ];
    let request = ReviewRequested {
        base: "beef".into(),
        files: again.to_vec(),
        ..ReviewRequested::default()
    };
    let request = Arc::new(request);
    // Nothing was made again before the review was finished.
    for (is_finished, of_sent_back) in [
        (false, ReviewDecision::SentBack),
        (true, ReviewDecision::Open),
    ] {
        first.is_finished = is_finished;
        let second = ReviewState::new(Arc::clone(&request), Some(&first));
        let decisions: Vec<_> = second
            .files
            .iter()
            .flat_map(|file| &file.hunks)
            .map(|hunk| hunk.decision)
            .collect();
        assert_eq!(
            decisions,
            [ReviewDecision::Rejected, ReviewDecision::Open, of_sent_back]
        );
        let sent_back = &second.files[1].hunks[0];
        assert_eq!(
            sent_back.feedback.as_deref(),
            Some("name the owner"),
            "the reviewer sees what was asked for"
        );
        let ignored = sent_back.ignored_feedback();
        assert_eq!(ignored, is_finished.then_some("name the owner"));
        assert_eq!(second.files[0].hunks[1].ignored_feedback(), None);
    }
}

#[test]
fn feedback_withdrawn_before_it_is_sent_is_forgotten() {
    let path = "wiki/global/a.md";
    for decision in [ReviewDecision::Open, ReviewDecision::Accepted] {
        let mut review = review(vec![file(path, BEFORE, AFTER)]);
        let feedback = Some("shorter".to_owned());
        review.decide(&ReviewDecided {
            feedback,
            ..decided(path, None, ReviewDecision::SentBack)
        });
        review.decide(&decided(path, None, ReviewDecision::SentBack));
        assert_eq!(
            review.files[0].hunks[0].feedback.as_deref(),
            Some("shorter"),
            "it is sent back again"
        );
        review.decide(&decided(path, None, decision));
        let left: Vec<_> = review.files[0]
            .hunks
            .iter()
            .map(|hunk| (hunk.decision, hunk.feedback.as_deref()))
            .collect();
        assert_eq!(left, [(decision, None), (decision, None)]);
    }
}

#[test]
fn edited_text_counts_for_the_same_changes_only() {
    let files = vec![file("wiki/global/a.md", BEFORE, AFTER)];
    let mut first = review(files.clone());
    let edit = ReviewDecided {
        text: Some("mine\n".into()),
        ..decided("wiki/global/a.md", None, ReviewDecision::Edited)
    };
    assert!(first.decide(&edit));
    assert_eq!(
        first.counts(),
        ReviewCounts {
            edited: 2,
            ..ReviewCounts::default()
        }
    );
    let again = |files| {
        ReviewState::new(
            Arc::new(ReviewRequested {
                base: String::new(),
                files,
                ..ReviewRequested::default()
            }),
            Some(&first),
        )
    };
    assert_eq!(again(files).files[0].edited.as_deref(), Some("mine\n"));
    let other = again(vec![file("wiki/global/a.md", BEFORE, "a\n")]);
    assert_eq!(
        (other.files[0].edited.clone(), other.counts().open),
        (None, other.files[0].hunks.len())
    );
    let ids = ids(&first, "wiki/global/a.md");
    first.decide(&decided(
        "wiki/global/a.md",
        Some(&ids[0]),
        ReviewDecision::Accepted,
    ));
    assert_eq!(
        first.counts(),
        ReviewCounts {
            accepted: 1,
            open: 1,
            ..ReviewCounts::default()
        }
    );
}

#[test]
fn next_attempt_learns_what_was_not_accepted() {
    let mut review = review(vec![
        file("wiki/global/a.md", BEFORE, AFTER),
        file("wiki/global/b.md", "", "new\n"),
    ]);
    let unit = "docs".into();
    assert_eq!(review.remarks(&unit), None);
    let ids = ids(&review, "wiki/global/a.md");
    review.decide(&decided(
        "wiki/global/a.md",
        Some(&ids[1]),
        ReviewDecision::Rejected,
    ));
    review.decide(&ReviewDecided {
        text: Some("mine\n".into()),
        ..decided("wiki/global/b.md", None, ReviewDecision::Edited)
    });
    let remarks = review.remarks(&unit).unwrap();
    assert!(
        remarks.contains("wiki/global/a.md, rejected:\n-g\n+G\n+h\n"),
        "{remarks}"
    );
    assert!(
        remarks.contains("wiki/global/b.md was replaced by:\nmine\n") && !remarks.contains("+B"),
        "{remarks}"
    );
    assert_eq!(review.remarks(&"other".into()), None);
}

#[test]
fn recorded_decisions_restore_the_review() {
    let files = vec![
        file("wiki/global/a.md", BEFORE, AFTER),
        file("wiki/global/b.md", "old\n", ""),
    ];
    let mut first = review(files.clone());
    let ids = ids(&first, "wiki/global/a.md");
    first.decide(&decided(
        "wiki/global/a.md",
        Some(&ids[1]),
        ReviewDecision::Accepted,
    ));
    first.decide(&ReviewDecided {
        feedback: Some("why?".into()),
        ..decided("wiki/global/b.md", None, ReviewDecision::SentBack)
    });
    let mut second = review(files);
    assert!(first.decisions().iter().all(|note| second.decide(note)));
    assert_eq!(second, first);
}

#[test]
fn diff_of_another_text_is_refused() {
    let mut review = review(vec![file("wiki/global/a.md", BEFORE, AFTER)]);
    let ids = ids(&review, "wiki/global/a.md");
    review.decide(&decided(
        "wiki/global/a.md",
        Some(&ids[1]),
        ReviewDecision::Accepted,
    ));
    let (file, decisions) = review.by_path().next().unwrap();
    for text in ["", "a\n", "x\nx\nx\nx\nx\nx\nx\n"] {
        assert!(decisions.resolve(file, Some(text)).is_err(), "{text:?}");
    }
}

proptest! {
    #[test]
    fn any_part_of_a_diff_can_be_accepted(
        before in "([abc]\n){0,20}[abc]?", after in "([abcx]\n){0,20}[abc]?", picks in proptest::collection::vec(any::<bool>(), 24),
    ) {
        let file = file("wiki/global/a.md", &before, &after);
        let hunks = parse_hunks(&file.diff);
        let picked: Vec<_> = hunks.iter().zip(&picks).filter(|(_, pick)| **pick).map(|(hunk, _)| hunk).collect();
        let made = hunk::apply_hunks(&before, picked.iter().copied());
        let made = made.expect("the hunks fit their own text");
        if picked.is_empty() {
            prop_assert_eq!(made, before);
        } else if picked.len() == hunks.len() {
            prop_assert_eq!(made, after);
        } else {
            // What is accepted is the difference to the old text, and the rest the difference to the new one.
            let rest = TextDiff::from_lines(&made, &after).ops().len();
            prop_assert!(rest > 0);
            let added: usize = picked.iter().map(|hunk| hunk.marked_lines().filter(|(marker, _)| *marker == '+').count()).sum();
            let removed: usize = picked.iter().map(|hunk| hunk.marked_lines().filter(|(marker, _)| *marker == '-').count()).sum();
            let lines = |text: &str| text.split_inclusive('\n').count();
            prop_assert_eq!(lines(&made) + removed, lines(&before) + added);
        }
    }

    #[test]
    fn parsing_never_fails(text in "(@@ -[0-9]{0,3}(,[0-9]{0,2})? \\+[0-9]{0,3} @@\n|[ +\\-\\\\]?[ab@]{0,3}\n){0,12}") {
        let file = ReviewedFile { diff: text.clone(), ..file("a", "a\n", "b\n") };
        prop_assert_eq!(hunk::hunk_ids(&file).len(), parse_hunks(&text).len().max(1));
        let hunks = parse_hunks(&text);
        let _ = hunk::apply_hunks("a\nb\n", hunks.iter());
    }
}

#[test]
fn undo_restores_the_state_before_the_last_act() {
    let files = vec![
        file("wiki/global/a.md", BEFORE, AFTER),
        file("wiki/global/b.md", "", "new\n"),
    ];
    let mut review = review(files);
    let paths = ["wiki/global/a.md", "wiki/global/b.md"];
    let first = ids(&review, paths[0]).remove(0);
    let edit = ReviewDecided {
        text: Some("mine\n".into()),
        ..decided(paths[1], None, ReviewDecision::Edited)
    };
    let rejected = ReviewDecided {
        reason: Some("stale".into()),
        ..decided(paths[0], Some(&first), ReviewDecision::Rejected)
    };
    let all: Vec<ReviewDecided> = paths
        .iter()
        .map(|path| decided(path, None, ReviewDecision::Accepted))
        .collect();
    let back = ReviewDecided {
        feedback: Some("why?".into()),
        ..decided(paths[0], None, ReviewDecision::SentBack)
    };
    let acts: [&[ReviewDecided]; 5] = [
        &[edit],
        &[rejected],
        &all,
        &[back],
        &[decided(paths[1], None, ReviewDecision::Open)],
    ];
    let mut before = Vec::new();
    for act in acts {
        before.push(review.files.clone());
        review.begin_act();
        assert!(act.iter().all(|note| review.decide(note)));
    }
    // A command that was refused has no decisions.
    review.begin_act();
    review.begin_act();
    assert_eq!(review.act_count(), acts.len());
    while let Some(expected) = before.pop() {
        let notes = review.undo_decisions();
        // A reader that knows no undo gets the same decisions.
        let mut plain = review.clone();
        assert!(notes.iter().all(|note| plain.decide(note)));
        review.begin_undo();
        assert!(notes.iter().all(|note| review.decide(note)));
        assert_eq!((&review.files, &plain.files), (&expected, &expected));
    }
    assert_eq!(review.act_count(), 0);
    assert_eq!(review.undo_decisions(), Vec::new());
}

#[test]
fn rejection_reason_reaches_the_next_attempt_and_ends_with_it() {
    let mut review = review(vec![file("wiki/global/b.md", "", "new\n")]);
    let unit = review.request.files[0].units[0].clone();
    let reject = ReviewDecided {
        reason: Some("wrong source".into()),
        ..decided("wiki/global/b.md", None, ReviewDecision::Rejected)
    };
    review.decide(&reject);
    assert!(
        review
            .remarks(&unit)
            .unwrap()
            .contains("rejected:\nbecause: wrong source\n+new\n")
    );
    assert_eq!(
        review.decisions(),
        [ReviewDecided {
            hunk: Some(ids(&review, "wiki/global/b.md").remove(0)),
            ..reject
        }]
    );
    review.decide(&decided("wiki/global/b.md", None, ReviewDecision::Accepted));
    assert_eq!(review.files[0].hunks[0].reason, None);
}
