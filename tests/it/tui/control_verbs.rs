//! Everything that a key does to a run can be done by a script, unless a reason is written here.

use ingestdeck_tui::{KeyOverrides, Keymap, actions};

/// What a script uses instead of an action.
enum ScriptForm {
    /// A verb of `ctl`.
    Verb(&'static str),
    /// The run has no counterpart, for this reason.
    None(&'static str),
}

use ScriptForm::{None as Without, Verb};

/// Actions that change a run.
const CHANGES: &[(&str, ScriptForm)] = &[
    ("retry", Verb("retry")),
    ("retry-with", Verb("retry")),
    ("retry-failed", Verb("retry-failed")),
    ("stop", Verb("stop")),
    ("more-at-once", Verb("set")),
    ("fewer-at-once", Verb("set")),
    ("go-on", Verb("lift-limit")),
    ("pause", Verb("pause")),
    ("hold", Verb("hold")),
    ("let-go", Verb("release")),
    ("run-on", Verb("run-until")),
    ("say", Verb("say")),
    ("allow-once", Verb("allow")),
    ("edit", Verb("edit")),
    ("deny", Verb("deny")),
    ("interrupt", Verb("drain")),
    (
        "send",
        Without("it submits the form of retry-with, edit or answer"),
    ),
    (
        "confirm",
        Without("it answers the question of another action"),
    ),
    (
        "leave-run",
        Without("it answers the question of another action"),
    ),
    (
        "stop-run",
        Without("it answers the question of another action"),
    ),
    (
        "harmless-answer",
        Without("it answers the question of another action"),
    ),
    (
        "accept",
        Without("it submits the text of deny, or a command"),
    ),
    ("quit", Verb("stop-all")),
    (
        "detach",
        Without("a script is not attached, so it has nothing to leave"),
    ),
    ("start-run", Without("`ingestdeck run` starts a run")),
    (
        "accept-change",
        Without("`ingestdeck review --accept` does it"),
    ),
    (
        "reject-change",
        Without("`ingestdeck review --reject` does it"),
    ),
    (
        "send-back",
        Without("`ingestdeck review --send-back` does it"),
    ),
    (
        "edit-change",
        Without("the protocol has the command `review` with an edited text"),
    ),
    (
        "undo-decision",
        Without("the protocol has the command `undo_review`"),
    ),
    (
        "reopen-change",
        Without("the protocol has the command `review` with `reopen`"),
    ),
    (
        "accept-rest",
        Without("`ingestdeck review --accept '*'` does it"),
    ),
    (
        "finish-review",
        Without("`ingestdeck review` ends the review once every change has a decision"),
    ),
    (
        "resume-run",
        Without("`ingestdeck run --resume-run` resumes a run"),
    ),
];

/// Actions that only change what the screen shows, copy it, or open it elsewhere.
const VIEWS: &[&str] = &[
    "review",
    "why",
    "why-line",
    "down",
    "up",
    "top",
    "bottom",
    "half-down",
    "half-up",
    "page-down",
    "page-up",
    "right",
    "left",
    "next-attempt",
    "previous-attempt",
    "scroll-down",
    "scroll-up",
    "next-pane",
    "previous-pane",
    "zoom",
    "open",
    "inspect",
    "read",
    "open-path",
    "find-text",
    "compare",
    "tab",
    "counterpart",
    "back",
    "causes",
    "mark",
    "next-failure",
    "previous-failure",
    "search",
    "next-match",
    "previous-match",
    "filter",
    "filter-text",
    "sort",
    "reverse",
    "group",
    "play",
    "step-forward",
    "step-back",
    "action-forward",
    "action-back",
    "turn-forward",
    "turn-back",
    "run-to-failure",
    "back-to-failure",
    "faster",
    "slower",
    "skip-idle",
    "to-start",
    "to-end",
    "breakpoints",
    "bookmark",
    "bookmarks",
    "lanes",
    "last",
    "wall-clock",
    "command",
    "help",
    "grid",
    "log",
    "artifacts",
    "copy",
    "copy-name",
    "open-file",
    "editor",
    "pager",
    "mouse",
    "redraw",
    "suspend",
    "diff-runs",
    "cancel",
    "complete",
    "older",
    "newer",
    "dismiss",
    "erase",
    "erase-all",
    "next-field",
    "previous-field",
    "edit-text",
    "discard",
];

#[test]
fn actions_that_change_a_run_have_a_verb() {
    let command = ingestdeck::command();
    let ctl = command.find_subcommand("ctl").unwrap();
    for spec in &actions::ALL {
        let change = CHANGES.iter().find(|(name, _)| *name == spec.name);
        let is_view = VIEWS.contains(&spec.name);
        assert!(
            change.is_some() != is_view,
            "{} must be in one of the two tables",
            spec.name
        );
        match change {
            Some((_, Verb(verb))) => assert!(
                ctl.find_subcommand(verb).is_some(),
                "ctl has no verb {verb}"
            ),
            Some((_, Without(reason))) => assert!(!reason.is_empty()),
            None => {}
        }
    }
    let known = CHANGES.len() + VIEWS.len();
    assert_eq!(known, actions::ALL.len(), "no entry names a missing action");
}

/// Actions with the same meaning, which may have the same key.
const SAME_MEANING: &[&[&str]] = &[
    &["retry", "resume-run"],
    &["retry-with", "edit", "edit-change"],
    &["say", "send-back"],
    &["hold", "let-go"],
];

/// Decisions of a review. They change nothing before the review ends.
const DECISIONS: &[&str] = &[
    "accept-change",
    "reject-change",
    "send-back",
    "edit-change",
    "undo-decision",
    "reopen-change",
    "accept-rest",
];

/// Moving through a list or through time.
const NAVIGATION: &[&str] = &[
    "next-match",
    "previous-match",
    "play",
    "run-to-failure",
    "back-to-failure",
];

#[test]
fn letters_that_change_a_run_mean_nothing_else() {
    let keymap = Keymap::new(&KeyOverrides::new()).unwrap();
    // A question shows its letters with their meanings, and typed text is text.
    let of_pages = ["View", "Home", "Review", "Live", "Held"];
    let specs = || {
        let specs = actions::ALL.iter();
        specs.filter(|spec| of_pages.contains(&format!("{:?}", spec.scope).as_str()))
    };
    let changes = |name: &str| {
        let is_change = CHANGES.iter().any(|(known, _)| *known == name);
        is_change && !DECISIONS.contains(&name)
    };
    let is_same = |one: &str, other: &str| {
        let mut groups = SAME_MEANING.iter();
        groups.any(|group| group.contains(&one) && group.contains(&other))
    };
    let mut compared = 0;
    for change in specs().filter(|spec| changes(spec.name)) {
        for other in specs().filter(|spec| spec.name != change.name) {
            let shared = keymap
                .chords(change.action)
                .find(|keys| keymap.chords(other.action).any(|known| known == *keys));
            let is_harmless = is_same(change.name, other.name) || NAVIGATION.contains(&other.name);
            compared += 1;
            assert!(
                shared.is_none() || is_harmless,
                "{shared:?} is {} and {}",
                change.name,
                other.name
            );
        }
    }
    assert!(compared > 1000);
}
