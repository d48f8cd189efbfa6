//! JSON output of the end of a review. The objects of `review --list` are tested in `src/cli/review.rs`.

use std::sync::Arc;

use super::golden::{assert_published, is_message, lines_without};
use ingestdeck::finished_json;
use ingestdeck_core::{
    run::{review::ReviewState, state::Publication},
    tape::note::{BlockedFile, ReviewRequested, ReviewedFile, attempt_output::ArtifactChange},
};

#[test]
fn end_of_a_review_is_as_published() {
    let file = |path: &str, units: &[&str]| ReviewedFile {
        path: path.into(),
        change: ArtifactChange::Created,
        units: units.iter().map(|unit| (*unit).into()).collect(),
        diff: "@@ -0,0 +1 @@\n+a\n".into(),
        before: None,
        omitted: None,
    };
    let files = vec![
        file("wiki/global/blocked.md", &["docs-a"]),
        file("wiki/global/shared.md", &["docs-a", "docs-b"]),
        file("wiki/global/of-b.md", &["docs-b"]),
        file("wiki/global/free.md", &["docs-c"]),
    ];
    let request = ReviewRequested {
        base: "c0ffee".into(),
        files,
        ..ReviewRequested::default()
    };
    let review = Some(Arc::new(ReviewState::new(request.into(), None)));
    let open = Publication {
        review,
        ..Publication::default()
    };
    let blocked = BlockedFile {
        path: "wiki/global/blocked.md".into(),
        reason: "exists already".into(),
    };
    let partly = Publication {
        blocked: [blocked].into(),
        ..open.clone()
    };
    let refused = Publication {
        save_error: Some("files block".into()),
        ..partly.clone()
    };
    let ends = [
        finished_json(&open, Some("c0ffee"), Some("ingest/docs"), &[]),
        finished_json(&open, None, None, &["docs-a".into()]),
        finished_json(&partly, Some("c0ffee"), None, &[]),
        // Nothing is left out of no commit.
        finished_json(&refused, None, None, &[]),
    ];
    assert_published("review.jsonl", &lines_without(ends.into(), &is_message));
}
