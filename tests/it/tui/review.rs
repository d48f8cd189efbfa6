//! The review page: its look, and the commands that its keys send.

use std::{sync::Arc, time::Duration};

use ingestdeck_core::{
    control::{ReviewOrder, ReviewVerdict, RunCommand},
    run::Timeline,
    tape::{
        Note,
        note::{
            BlockedFile, CommandReceived, ReviewDecided, ReviewDecision, ReviewRequested,
            ReviewedFile, RunEndOutcome, RunEnded, SaveFailed, attempt_output::ArtifactChange,
        },
    },
};
use ingestdeck_records::replay::FileSource;
use ingestdeck_tui::{
    edited_text::{EditTarget, UnusableEdit},
    host::{HostInput, ToolExit},
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
pub(super) fn waiting(files: Vec<ReviewedFile>) -> TapeFixture {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["docs-orders", "docs-refunds"]);
    for unit in ["docs-orders", "docs-refunds"] {
        tape.start(unit, 1).wait(1000).end(unit, 1, 0);
    }
    let request = ReviewRequested {
        base: "c0ffee".into(),
        files,
        ..ReviewRequested::default()
    };
    tape.wait(200)
        .note(None, &Note::ReviewRequested(Arc::new(request)));
    tape
}

/// An updated file with two hunks between two new ones. A line is longer than the pane, and one is hostile.
pub(super) fn three_files() -> Vec<ReviewedFile> {
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
    vec![
        source,
        updated,
        created(
            "wiki/global/order-states.md",
            &["---", "summary: States", "---", "", "# States"],
        ),
    ]
}

/// The screen after `keys`, and the commands that they sent.
fn live(tape: &TapeFixture, keys: &str, size: (u16, u16)) -> (ScriptedHost, Vec<RunCommand>) {
    let growing = tape.growing();
    let (commands, mut orders) = mpsc::channel(200);
    let (_grows, changed) = watch::channel(0);
    let script = ScriptedHost::new(keys, size).after(Duration::from_secs(4));
    let (script, _) = play(
        growing.timeline,
        Some(live_handle(commands, changed)),
        options(),
        script,
    );
    (
        script,
        std::iter::from_fn(|| orders.try_recv().ok()).collect(),
    )
}

fn decided(path: &str, decision: ReviewDecision) -> Note {
    let (hunk, text) = (
        None,
        (decision == ReviewDecision::Edited).then(|| "Mine.\nAll of it.\n".to_owned()),
    );
    let feedback = (decision == ReviewDecision::SentBack).then(|| "Name the owner.".to_owned());
    Note::ReviewDecided(Box::new(ReviewDecided {
        path: path.into(),
        hunk,
        decision,
        text,
        feedback,
        reason: None,
    }))
}

/// The review of three files with the same decision about each.
pub(super) fn decided_as(decision: ReviewDecision) -> TapeFixture {
    let mut tape = waiting(three_files());
    for file in three_files() {
        tape.note(None, &decided(&file.path, decision));
    }
    tape
}

#[test]
fn review_page_is_rendered() {
    let tape = waiting(three_files());
    for size in SIZES {
        let (width, height) = size;
        insta::assert_snapshot!(
            format!("review_{width}x{height}"),
            live(&tape, "", size).0.text()
        );
    }
    insta::assert_snapshot!("review_hunk_120x36", live(&tape, "jjj", (120, 36)).0.text());
    let mut tape = waiting(three_files());
    for (file, decision) in three_files().iter().zip([
        ReviewDecision::Rejected,
        ReviewDecision::Edited,
        ReviewDecision::SentBack,
    ]) {
        tape.note(None, &decided(&file.path, decision));
    }
    insta::assert_snapshot!(
        "review_decided_120x36",
        live(&tape, "j", (120, 36)).0.text()
    );
    insta::assert_snapshot!("review_question_80x24", live(&tape, "g", (80, 24)).0.text());
}

#[test]
fn ended_run_takes_no_decisions() {
    let mut tape = waiting(three_files());
    let ended = RunEnded {
        outcome: RunEndOutcome::WaitingApproval,
        succeeded: 2,
        unsaved: 2,
        ..RunEnded::default()
    };
    tape.wait(100).note(None, &Note::RunEnded(ended));
    let (screen, commands) = live(&tape, "Vyg", (120, 36));
    let text = screen.text();
    assert!(text.contains("‖ waits for review"), "{text}");
    assert!(!text.contains("g commit"), "{text}");
    assert_eq!(commands, []);
}

#[test]
fn keys_decide_about_the_selected_change() {
    let tape = waiting(three_files());
    let sent = |keys: &str| live(&tape, keys, (120, 36)).1;
    let order = |path: &str, hunk: Option<&str>, verdict| RunCommand::Review {
        decisions: vec![ReviewOrder {
            path: path.into(),
            hunk: hunk.map(str::to_owned),
            verdict,
            reason: None,
        }],
    };
    let source = "semantic-layer/shop/orders.yaml";
    assert_eq!(sent("y"), [order(source, None, ReviewVerdict::Accept)]);
    assert_eq!(sent("X"), [], "it asks for a reason");
    let typed = live(&waiting(three_files()), "X", (120, 36)).0.text();
    assert!(typed.contains("Enter reject"), "{typed}");
    assert_eq!(
        sent("X<enter>"),
        [order(source, None, ReviewVerdict::Reject)]
    );
    let [RunCommand::Review { decisions }] = &*sent("Xwrong source<enter>") else {
        panic!()
    };
    assert_eq!(decisions[0].reason.as_deref(), Some("wrong source"));
    assert_eq!(sent("Xwrong<esc>"), []);
    let back = ReviewVerdict::SendBack("keep it".into());
    assert_eq!(sent("mkeep it<enter>"), [order(source, None, back)]);
    let [RunCommand::Review { decisions }] = &*sent("jjjy") else {
        panic!()
    };
    assert!(
        decisions[0].hunk.is_some() && decisions[0].path == "wiki/global/net-revenue.md",
        "{decisions:?}"
    );
    let [RunCommand::Review { decisions }] = &*sent("Y") else {
        panic!()
    };
    assert_eq!(decisions.len(), 3, "every file");
    assert_eq!(sent("g"), [], "changes are open");
    assert_eq!(sent("e"), [], "a deleted file cannot be edited");
    assert_eq!(sent(":changes reject unit:docs-refunds<enter>").len(), 1);
    assert_eq!(sent(":changes reject other/*<enter>"), []);
}

#[test]
fn finished_review_sends_its_end_once() {
    let tape = decided_as(ReviewDecision::Accepted);
    assert_eq!(
        live(&tape, "gy", (120, 36)).1,
        [RunCommand::FinishReview {
            branch: None,
            leave_blocked: false
        }]
    );
    assert_eq!(live(&tape, "gn", (120, 36)).1, []);
}

/// A run that waits for a review does not end by itself.
#[test]
fn quit_during_a_review_asks_and_stops_the_run() {
    let tape = waiting(three_files());
    let (host, sent) = live(&tape, "qn", (120, 36));
    assert!(host.text().contains("review 3 files"), "{}", host.text());
    assert_eq!(sent, []);
    assert_eq!(live(&tape, "qS", (120, 36)).1, [RunCommand::StopAll]);
    assert_eq!(live(&tape, "<c-c>", (120, 36)).1, [RunCommand::StopAll]);
    insta::assert_snapshot!("review_quit_80x24", live(&tape, "q", (80, 24)).0.text());
}

#[test]
fn record_of_a_review_cannot_be_decided() {
    let tape = waiting(three_files());
    let (host, _) = play(
        tape.timeline(),
        None,
        options(),
        ScriptedHost::new("Vy", (120, 36)),
    );
    let text = host.text();
    assert!(
        text.contains("review 3 files") && text.contains("this is a record"),
        "{text}"
    );
}

/// Of sixty files, three are sent back and the others accepted.
#[test]
fn sixty_files_need_few_keys() {
    let files: Vec<_> = (0..60)
        .map(|n| created(&format!("wiki/global/page-{n:02}.md"), &["# Page"]))
        .collect();
    let tape = waiting(files);
    let keys = "/-17<enter>m|add the owner|<enter>/-31<enter>m|add the owner|<enter>/-58<enter>m|add the owner|<enter>Y";
    // The feedback is the reviewer's text; all other characters are keys.
    let count = |keys: &str| {
        let typed: String = keys.split('|').step_by(2).collect();
        typed.replace("<enter>", "!").len()
    };
    let (_, commands) = live(&tape, &keys.replace('|', ""), (120, 36));
    assert!(count(keys) + "gy".len() <= 75, "{} keys", count(keys));
    let [first, .., rest] = commands.as_slice() else {
        panic!("{commands:?}")
    };
    let RunCommand::Review { decisions } = first else {
        panic!("{first:?}")
    };
    assert_eq!(decisions[0].path, "wiki/global/page-17.md");
    // The commands have no effect on this tape, so all sixty are still open.
    let RunCommand::Review { decisions } = rest else {
        panic!("{rest:?}")
    };
    assert_eq!((commands.len(), decisions.len()), (4, 60));
}

/// The recorded review in the fixtures, at its end.
fn recorded(keys: &str) -> String {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tapes/review.jsonl");
    let timeline = Timeline::new(Box::new(FileSource::open(&path).unwrap()));
    play(
        timeline,
        None,
        options(),
        ScriptedHost::new(&format!("${keys}"), (120, 36)),
    )
    .0
    .text()
}

#[test]
fn line_of_a_diff_leads_to_the_call_that_wrote_it() {
    let text = recorded("V<tab>jjjjW");
    assert!(
        text.contains("attempt 1, wrote line 5; what its agent read is above it"),
        "{text}"
    );
    assert!(
        text.contains("inspector") && text.contains("✓ read_raw_file subscript"),
        "{text}"
    );
    let text = recorded("cgw");
    assert!(
        text.contains("was the last one to write the file"),
        "{text}"
    );
    // The unit of this page worked again after the review, so the second attempt wrote the page.
    let text = recorded("V/metric-changes<enter>W");
    assert!(text.contains("attempt 2, wrote line 1"), "{text}");
}

#[test]
fn diff_has_its_own_selection() {
    insta::assert_snapshot!("review_diff_row_120x36", recorded("V<tab>jjj"));
    let tape = waiting(three_files());
    // In the diff, keys about changes still mean the selected change of the list.
    let [RunCommand::Review { decisions }] = &*live(&tape, "<tab>Gy", (80, 24)).1 else {
        panic!()
    };
    assert_eq!(decisions[0].path, "semantic-layer/shop/orders.yaml");
    let (host, _) = live(&tape, "j<tab>G", (80, 24));
    assert!(host.text().contains("More."), "{}", host.text());
    let (host, _) = live(&tape, "j<tab><home>jW", (80, 24));
    assert!(
        host.text().contains("the run did not change this line"),
        "{}",
        host.text()
    );
}

#[test]
fn end_of_a_review_can_name_a_branch() {
    let tape = decided_as(ReviewDecision::Accepted);
    let (host, sent) = live(&tape, ":finish-review ingest/orbit<enter>", (120, 36));
    assert!(
        host.text()
            .contains("Commit the accepted changes to branch ingest/orbit?"),
        "{}",
        host.text()
    );
    assert_eq!(sent, []);
    let sent = live(&tape, ":finish-review ingest/orbit<enter>y", (120, 36)).1;
    assert_eq!(
        sent,
        [RunCommand::FinishReview {
            branch: Some("ingest/orbit".into()),
            leave_blocked: false
        }]
    );
}

/// A run that continues after `before`, with `keys` before and after.
fn grown(
    before: &TapeFixture,
    after: &TapeFixture,
    keys: (&str, &str),
) -> (ScriptedHost, Vec<RunCommand>) {
    let growing = before.growing();
    let (commands, mut orders) = mpsc::channel(200);
    let (grows, changed) = watch::channel(0);
    let script = ScriptedHost::new(keys.0, (120, 36))
        .after(Duration::from_secs(20))
        .grows(growing.more(before, after), grows)
        .keys_after_growth(keys.1);
    let (script, _) = play(
        growing.timeline,
        Some(live_handle(commands, changed)),
        options(),
        script,
    );
    (
        script,
        std::iter::from_fn(|| orders.try_recv().ok()).collect(),
    )
}

#[test]
fn keys_of_a_review_are_off_while_a_unit_works_again() {
    let before = waiting(three_files());
    let mut after = waiting(three_files());
    after.start("docs-refunds", 2);
    for keys in ["y", "X", "m", "Y", "g", "<backspace>", "e"] {
        let (host, sent) = grown(&before, &after, ("", keys));
        assert_eq!(sent, [], "{keys}");
        assert!(
            host.text()
                .contains("a unit works again; the review continues after it"),
            "{keys}: {}",
            host.text()
        );
    }
    let text = grown(&before, &after, ("", "")).0.text();
    assert!(
        text.contains("retry runs; review continues after it"),
        "{text}"
    );
    insta::assert_snapshot!("review_interrupted_120x36", text);
}

#[test]
fn text_of_a_review_that_ended_is_offered_again() {
    let before = waiting(three_files());
    let mut after = waiting(three_files());
    after.start("docs-refunds", 2);
    let (host, sent) = grown(&before, &after, ("mname the own", "er<enter>"));
    assert_eq!(sent, []);
    assert!(host.text().contains("your text is kept"), "{}", host.text());
    after.end("docs-refunds", 2, 0);
    let request = ReviewRequested {
        base: "c0ffee".into(),
        files: three_files(),
        ..ReviewRequested::default()
    };
    after.note(None, &Note::ReviewRequested(Arc::new(request)));
    let (host, _) = grown(&before, &after, ("mname the own", "er"));
    assert!(
        host.text().contains("name the owner"),
        "the question stays open: {}",
        host.text()
    );
}

fn received(command: &str) -> Note {
    let client = Some("screen".into());
    Note::CommandReceived(Box::new(CommandReceived {
        command: command.into(),
        client,
        ..CommandReceived::default()
    }))
}

/// A run with a decision about each of three files, by one command each.
fn decided_one_by_one() -> TapeFixture {
    let mut tape = waiting(three_files());
    for file in three_files() {
        tape.note(None, &received("review"))
            .note(None, &decided(&file.path, ReviewDecision::Accepted));
    }
    tape
}

/// The screen has read none of the effects when the next key is pressed.
#[test]
fn fast_undos_are_applied_one_after_the_other() {
    let undo = |known| RunCommand::UndoReview { known: Some(known) };
    let (host, sent) = live(
        &decided_one_by_one(),
        "<backspace><backspace><backspace><backspace>",
        (120, 36),
    );
    assert_eq!(sent, [undo(3), undo(2), undo(1)]);
    assert!(
        host.text().contains("no decision to undo"),
        "{}",
        host.text()
    );
    let (host, _) = live(&decided_one_by_one(), "<backspace><backspace>", (120, 36));
    assert!(
        host.text()
            .contains("undone: the last decision, about wiki/global/net-revenue.md"),
        "{}",
        host.text()
    );
    // A decision on its way is the last one.
    let (host, sent) = live(&decided_one_by_one(), "Gy<backspace><backspace>", (120, 36));
    assert_eq!(sent[1..], [undo(4), undo(3)]);
    assert!(
        host.text().contains("about wiki/global/order-states.md"),
        "{}",
        host.text()
    );
    assert_eq!(
        live(&waiting(three_files()), "y<backspace>", (120, 36)).1[1..],
        [undo(1)]
    );
    assert_eq!(
        live(
            &decided_one_by_one(),
            "<backspace>:changes undo<enter>",
            (120, 36)
        )
        .1,
        [undo(3), undo(2)]
    );
}

#[test]
fn undo_after_its_effect_continues_with_the_one_before() {
    let (before, mut after) = (decided_one_by_one(), decided_one_by_one());
    after.note(None, &received("undo_review"));
    after.note(
        None,
        &decided("wiki/global/order-states.md", ReviewDecision::Open),
    );
    let undo = |known| RunCommand::UndoReview { known: Some(known) };
    assert_eq!(
        grown(&before, &after, ("<backspace>", "<backspace>")).1,
        [undo(3), undo(2)]
    );
    // The tape has one of two.
    assert_eq!(
        grown(&before, &after, ("<backspace><backspace>", "<backspace>")).1,
        [undo(3), undo(2), undo(1)]
    );
    // Another client decides: the engine refuses the first, and the next one is about what the screen shows.
    let mut after = decided_one_by_one();
    after.note(None, &received("review"));
    after.note(
        None,
        &decided("wiki/global/order-states.md", ReviewDecision::Rejected),
    );
    assert_eq!(
        grown(&before, &after, ("<backspace>", "<backspace>")).1,
        [undo(3), undo(4)]
    );
}

/// The text of the last file is opened in an editor that leaves `edited`, with `keys` afterwards.
fn edited(edited: Result<&str, UnusableEdit>, keys: &str) -> (ScriptedHost, Vec<RunCommand>) {
    let growing = waiting(three_files()).growing();
    let (commands, mut orders) = mpsc::channel(200);
    let (_grows, changed) = watch::channel(0);
    let mut script =
        ScriptedHost::new(&format!("Ge{keys}"), (120, 36)).after(Duration::from_secs(4));
    script.opened = Ok(ToolExit {
        signal: None,
        edited: Some(edited.map(str::to_owned)),
    });
    let (script, _) = play(
        growing.timeline,
        Some(live_handle(commands, changed)),
        options(),
        script,
    );
    (
        script,
        std::iter::from_fn(|| orders.try_recv().ok()).collect(),
    )
}

#[test]
fn unusable_text_of_an_editor_is_opened_again() {
    const PATH: &str = "wiki/global/order-states.md";
    let file = tempfile::NamedTempFile::new().unwrap();
    let limit = "the edited text is longer than 256 KiB";
    let unusable = || UnusableEdit {
        reason: limit.into(),
        file: Some(file.path().to_owned()),
    };
    let (host, sent) = edited(Err(unusable()), "e");
    assert_eq!(sent, []);
    let shown: String = host.text().replace('│', "").split_whitespace().collect();
    let wanted = format!("{PATH}: {}; e opens it again", unusable());
    assert!(shown.contains(&wanted.replace(' ', "")), "{}", host.text());
    let files: Vec<_> = host
        .handouts
        .iter()
        .map(|export| export.unused_file.clone())
        .collect();
    assert_eq!(files, [None, Some(file.path().to_owned())]);
    assert!(
        host.handouts
            .iter()
            .all(|export| export.edits == Some(EditTarget::Reviewed(PATH.into())))
    );
    // A file that was deleted meanwhile is not opened.
    let gone = UnusableEdit {
        file: Some("/nowhere/text.md".into()),
        ..unusable()
    };
    let (host, _) = edited(Err(gone), "e");
    assert_eq!(host.handouts[1], host.handouts[0]);
    // Another file is opened as it is, and a deleted text is not offered.
    let (host, _) = edited(Err(unusable()), "<c-u>kke");
    assert!(
        host.handouts[1..]
            .iter()
            .all(|export| export.unused_file.is_none()),
        "{:?}",
        host.handouts
    );
    let (host, _) = edited(
        Err(UnusableEdit {
            file: None,
            ..unusable()
        }),
        "e",
    );
    assert!(
        !host.text().contains("opens it again") && host.handouts[1].unused_file.is_none(),
        "{}",
        host.text()
    );
}

#[test]
fn typed_line_shows_what_does_not_fit() {
    let growing = waiting(three_files()).growing();
    let (commands, mut orders) = mpsc::channel(8);
    let (_grows, changed) = watch::channel(0);
    let pasted = format!("a\r\nb\u{7}\n{}", "é".repeat(196));
    let script = ScriptedHost::new("m", (120, 36))
        .input(HostInput::Paste(pasted))
        .keys("z<enter>");
    let script = script.after(Duration::from_secs(4));
    let (host, _) = play(
        growing.timeline,
        Some(live_handle(commands, changed)),
        options(),
        script,
    );
    let RunCommand::Review { decisions } = orders.try_recv().unwrap() else {
        panic!()
    };
    assert_eq!(
        decisions[0].verdict,
        ReviewVerdict::SendBack(format!("a b {}", "é".repeat(196))),
        "lines are joined"
    );
    drop(host);
    let script = ScriptedHost::new("m", (120, 36)).input(HostInput::Paste("x".repeat(201)));
    let growing = waiting(three_files()).growing();
    let (commands, _orders) = mpsc::channel(8);
    let (_grows, changed) = watch::channel(0);
    let (host, _) = play(
        growing.timeline,
        Some(live_handle(commands, changed)),
        options(),
        script,
    );
    assert!(
        host.text()
            .contains("at most 200 characters; the rest was not added"),
        "{}",
        host.text()
    );
}

#[test]
fn text_of_an_editor_replaces_its_file() {
    let (host, sent) = edited(Ok("# Mine\n"), "");
    let [RunCommand::Review { decisions }] = sent.as_slice() else {
        panic!("{sent:?}")
    };
    assert_eq!(decisions[0].verdict, ReviewVerdict::Edit("# Mine\n".into()));
    assert_eq!(
        (&*decisions[0].path, host.handouts[0].extension),
        ("wiki/global/order-states.md", ".md")
    );
}

#[test]
fn undo_names_the_last_act_wherever_the_selection_is() {
    let mut tape = waiting(three_files());
    assert_eq!(
        live(&tape, "<backspace>", (120, 36)).1,
        [],
        "nothing is decided"
    );
    tape.note(None, &received("review"));
    tape.note(
        None,
        &decided("wiki/global/order-states.md", ReviewDecision::Rejected),
    );
    tape.note(None, &received("review"));
    for file in &three_files()[..2] {
        tape.note(None, &decided(&file.path, ReviewDecision::Accepted));
    }
    let (host, sent) = live(&tape, "G<backspace>", (120, 36));
    assert_eq!(sent, [RunCommand::UndoReview { known: Some(2) }]);
    assert!(
        host.text()
            .contains("undone: the last decision, about 2 files"),
        "{}",
        host.text()
    );
    assert_eq!(live(&tape, ":changes undo<enter>", (120, 36)).1.len(), 1);
    tape.note(None, &received("undo_review"));
    for file in &three_files()[..2] {
        tape.note(None, &decided(&file.path, ReviewDecision::Open));
    }
    let (host, sent) = live(&tape, "<backspace>", (120, 36));
    assert_eq!(sent, [RunCommand::UndoReview { known: Some(1) }]);
    assert!(
        host.text().contains("about wiki/global/order-states.md"),
        "{}",
        host.text()
    );
}

#[test]
fn review_key_does_not_close_the_open_review() {
    let tape = waiting(three_files());
    let (host, _) = live(&tape, "V", (120, 36));
    assert!(
        host.text().contains("review 3 files") && host.text().contains("Esc leaves it"),
        "{}",
        host.text()
    );
    let (host, _) = live(&tape, "<esc>V", (120, 36));
    assert!(host.text().contains("review 3 files"), "{}", host.text());
}

#[test]
fn other_keys_of_the_deck_do_nothing_in_a_review() {
    let tape = waiting(three_files());
    for keys in ["<space>", "x", "u", "b", "a", "A", "d", "s", "o", "t", "f"] {
        let (host, sent) = live(&tape, keys, (120, 36));
        assert_eq!(sent, [], "{keys}");
        let text = host.text();
        assert!(
            text.contains("review 3 files · 4 open") && !text.contains("PAST"),
            "{keys}: {text}"
        );
        assert!(!text.contains("note of the bookmark"), "{keys}: {text}");
    }
}

#[test]
fn blocked_file_is_marked_and_the_others_can_be_committed() {
    let blocked = |path: &str| BlockedFile {
        path: path.into(),
        reason: "exists, but is not in the last commit".into(),
    };
    let mut tape = decided_as(ReviewDecision::Accepted);
    let failed = |blocked| SaveFailed {
        reason: "files in the project block the update".into(),
        review_open: true,
        blocked,
    };
    tape.note(
        None,
        &Note::ReviewFinished {
            sent_back: Vec::new(),
        },
    );
    tape.note(
        None,
        &Note::SaveFailed(failed(vec![blocked("wiki/global/order-states.md")])),
    );
    let again = ReviewRequested {
        base: "c0ffee".into(),
        files: three_files(),
        ..ReviewRequested::default()
    };
    tape.note(None, &Note::ReviewRequested(Arc::new(again)));
    for size in [(80, 24), (120, 36), (200, 60)] {
        let (host, sent) = live(&tape, "g", size);
        assert_eq!(sent, []);
        let text = host.text();
        assert!(
            text.contains("1 file blocks; commit 1 without it?"),
            "{text}"
        );
        insta::assert_snapshot!(format!("review_blocked_{}x{}", size.0, size.1), text);
    }
    let (host, _) = live(&tape, "", (120, 36));
    assert!(host.text().contains("blocked: exists"), "{}", host.text());
    assert_eq!(
        live(&tape, "gy", SIZES[3]).1,
        [RunCommand::FinishReview {
            branch: None,
            leave_blocked: true
        }]
    );
    // A file that is rejected blocks nothing.
    tape.note(
        None,
        &decided("wiki/global/order-states.md", ReviewDecision::Rejected),
    );
    assert_eq!(
        live(&tape, "gy", SIZES[3]).1,
        [RunCommand::FinishReview {
            branch: None,
            leave_blocked: false
        }]
    );
}

#[test]
fn deck_of_a_waiting_run_names_the_review_key() {
    let tape = waiting(three_files());
    for size in SIZES {
        let text = live(&tape, "<esc>", size).0.text();
        let footer = text
            .lines()
            .last()
            .unwrap_or_default()
            .trim_start()
            .to_owned();
        assert!(footer.starts_with("V review"), "{size:?}: {text}");
    }
    let mut blocked = waiting(three_files());
    blocked.note(
        None,
        &Note::ReviewFinished {
            sent_back: Vec::new(),
        },
    );
    let reason = "files in the project block the update (wiki/global/order-states.md: exists, but is not in the last commit); \
                  commit or stash them, then try again";
    let failed = SaveFailed {
        reason: reason.into(),
        review_open: true,
        blocked: Vec::new(),
    };
    blocked.note(None, &Note::SaveFailed(failed));
    let again = ReviewRequested {
        base: "c0ffee".into(),
        files: three_files(),
        ..ReviewRequested::default()
    };
    blocked.note(None, &Note::ReviewRequested(Arc::new(again)));
    for size in SIZES {
        let text = live(&blocked, "<esc>", size).0.text();
        insta::assert_snapshot!(format!("deck_blocked_{}x{}", size.0, size.1), text);
        assert!(text.contains("NOT SAVED") && text.contains("(L"), "{text}");
        // The log has the whole sentence.
        let text = live(&blocked, "<esc>LGk", size)
            .0
            .text()
            .replace(['\n', '│', ' '], "");
        if size.0 > 60 {
            assert!(text.contains("commitorstashthem,thentryagain"), "{text}");
        }
    }
}
