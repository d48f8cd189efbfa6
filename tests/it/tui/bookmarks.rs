//! Bookmarks: where they point, how they are listed, changed and kept, and where their sign is drawn.

use std::sync::{Arc, Mutex};

use ingestdeck_core::{
    diagnostic::Problem,
    run::bookmark::{Bookmark, BookmarkChange, BookmarkStore},
    tape::{Millis, Seq},
};
use ingestdeck_tui::{Bookmarks, ColorLevel, LiveHandle, Options, Theme, TuiExit};
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    screens::SIZES,
    scripted_host::{ScriptedHost, live_handle, options, play},
    tape,
};

/// A store in memory, which may refuse every change.
#[derive(Debug, Default)]
struct MemoryStore {
    changes: Mutex<Vec<BookmarkChange>>,
    is_full: bool,
}

impl BookmarkStore for MemoryStore {
    fn change(&self, change: &BookmarkChange) -> Result<(), Problem> {
        self.changes.lock().unwrap().push(change.clone());
        if self.is_full {
            Err(Problem::new("cannot save bookmarks: no space left"))
        } else {
            Ok(())
        }
    }
}

fn bookmark(entry: u64, at: u64, unit: &str, note: &str) -> Bookmark {
    Bookmark {
        entry: Seq(entry),
        at: Millis(at),
        unit: Some(unit.into()),
        attempt: Some(1),
        note: note.into(),
    }
}

/// Two bookmarks: the failed call of a unit, and a later moment of another one.
fn two() -> Vec<Bookmark> {
    vec![
        bookmark(
            6,
            2250,
            "notion-revenue-policy",
            "the page has no title; \u{1b}[31mtry another model",
        ),
        bookmark(12, 5650, "lookml-orphans", ""),
    ]
}

fn with(list: Vec<Bookmark>, store: &Arc<MemoryStore>) -> Options {
    let store: Arc<dyn BookmarkStore> = Arc::clone(store) as _;
    Options {
        bookmarks: Bookmarks {
            list,
            store: Some(store),
            has_reported_loss: false,
        },
        ..options()
    }
}

/// A record with these bookmarks after some keys, and the changes that were kept.
fn record(
    keys: &str,
    list: Vec<Bookmark>,
    size: (u16, u16),
) -> (ScriptedHost, TuiExit, Vec<BookmarkChange>) {
    let store = Arc::new(MemoryStore::default());
    let (script, exit) = play(
        tape::running().timeline(),
        None,
        with(list, &store),
        ScriptedHost::new(keys, size),
    );
    let changes = store.changes.lock().unwrap().clone();
    (script, exit, changes)
}

const SIZE: (u16, u16) = (120, 36);

#[test]
fn list_of_bookmarks_is_rendered() {
    for size in SIZES {
        let (script, ..) = record("'", two(), size);
        insta::assert_snapshot!(format!("list_{}x{}", size.0, size.1), script.text());
    }
    insta::assert_snapshot!("no_bookmarks", record("'", Vec::new(), (60, 20)).0.text());
}

#[test]
fn selected_action_is_bookmarked_with_a_note() {
    // The failed call of the stream.
    let (script, _, changes) = record("kkk<tab>[bno title<enter>", Vec::new(), SIZE);
    let expected = bookmark(6, 2250, "notion-revenue-policy", "no title");
    assert_eq!(
        changes,
        [BookmarkChange::Set(expected)],
        "{}",
        script.text()
    );
    assert!(
        script.text().contains("✗ ★ wiki_write revenue"),
        "{}",
        script.text()
    );
    assert!(script.text().contains("★ 1 bookmark"), "{}", script.text());
    // The marks of the timeline have a row, in which the bookmark is above its moment.
    let lines: Vec<_> = script.text().lines().map(str::to_owned).collect();
    assert!(lines[lines.len() - 4].contains('★'), "{}", script.text());
    // In the inspector, too.
    let (script, _, changes) = record("kkk<enter>bno title<enter>", Vec::new(), SIZE);
    assert_eq!(changes.len(), 1);
    assert!(
        script.text().contains("✗ ★ wiki_write"),
        "{}",
        script.text()
    );
}

#[test]
fn shown_moment_is_bookmarked_with_the_selected_unit() {
    let (script, exit, changes) = record(":#7<enter>b<enter>", Vec::new(), SIZE);
    let shown = exit.timeline.view().state.entries;
    assert_eq!(shown, 7);
    let [BookmarkChange::Set(added)] = &changes[..] else {
        panic!("{changes:?}: {}", script.text())
    };
    assert_eq!((added.entry, added.note.as_str()), (Seq(6), ""));
    assert!(
        added.unit.is_some() && added.at == Millis(2250),
        "{added:?}"
    );
    assert!(
        script.text().contains("bookmark added; ' lists all"),
        "{}",
        script.text()
    );
    // A lower terminal has no row of marks.
    let (script, ..) = record(":#9<enter>b<enter>:#3<enter>", Vec::new(), (80, 24));
    let strip = script.text().lines().rev().nth(2).unwrap().to_owned();
    assert!(strip.contains('★'), "{}", script.text());
}

#[test]
fn bookmark_at_the_same_place_is_edited() {
    let (script, _, changes) = record("kkk<tab>[b<backspace>l, later<enter>", two(), SIZE);
    let [BookmarkChange::Set(changed)] = &changes[..] else {
        panic!("{changes:?}")
    };
    assert!(
        changed.note.ends_with("another model, later") && changed.at == Millis(2250),
        "{changed:?}"
    );
    assert!(
        script.text().contains("bookmark changed"),
        "{}",
        script.text()
    );
    // The key of the list edits, too, and a discarded text changes nothing.
    let (_, _, changes) = record("'e<c-u>shorter<enter>", two(), SIZE);
    assert_eq!(
        changes,
        [BookmarkChange::Set(bookmark(
            6,
            2250,
            "notion-revenue-policy",
            "shorter"
        ))]
    );
    assert!(record("'e<c-u>shorter<esc>", two(), SIZE).2.is_empty());
}

#[test]
fn bookmark_is_deleted_from_the_list() {
    let (script, _, changes) = record("'jx", two(), SIZE);
    assert_eq!(changes, [BookmarkChange::Remove(two()[1].clone())]);
    assert!(
        script.text().contains(" 1 ┐") && !script.text().contains("lookml-orphans  no note"),
        "{}",
        script.text()
    );
    let (script, _, changes) = record("'xxxe<enter>", two(), SIZE);
    assert_eq!(changes.len(), 2, "nothing is left to delete or to edit");
    assert!(
        script.text().contains("none yet; b bookmarks"),
        "{}",
        script.text()
    );
}

#[test]
fn open_bookmark_shows_its_moment_and_unit() {
    let (script, exit, changes) = record("'<enter>", two(), SIZE);
    assert_eq!(exit.timeline.view().state.entries, 7, "{}", script.text());
    assert!(changes.is_empty());
    assert!(
        script.text().contains("notion-revenue-policy running"),
        "{}",
        script.text()
    );
    // From any view, and even if a filter hides the unit.
    let (script, exit, _) = record("Fdbt<enter>L'j<enter>", two(), SIZE);
    assert_eq!(exit.timeline.view().state.entries, 13);
    assert!(
        script.text().contains("▶ lookml-orphans running"),
        "{}",
        script.text()
    );
    // A moment that the record does not have.
    let beyond = vec![bookmark(u64::MAX, 0, "gone", "of another record")];
    let (script, ..) = record("'<enter>", beyond, SIZE);
    assert!(
        script.text().contains("this is the end"),
        "{}",
        script.text()
    );
}

#[test]
fn command_line_adds_and_lists_bookmarks() {
    let (script, _, changes) = record(
        ":#9<enter>:bookmark before the retry<enter>:bookmarks<enter>",
        Vec::new(),
        SIZE,
    );
    assert!(
        matches!(&changes[..], [BookmarkChange::Set(added)] if added.entry == Seq(8)),
        "{changes:?}"
    );
    assert!(
        script.text().contains("before the retry") && script.text().contains("┌ bookmarks "),
        "{}",
        script.text()
    );
    let (script, _, changes) = record("?:bookmark here<enter>", Vec::new(), SIZE);
    assert!(changes.is_empty(), "{}", script.text());
}

#[test]
fn live_and_watched_runs_can_be_bookmarked() {
    for is_watching in [false, true] {
        let growing = tape::running().growing();
        let (commands, mut orders) = mpsc::channel(8);
        let (_grows, changed) = watch::channel(0);
        let (_gone, broken) = oneshot::channel();
        let live = if is_watching {
            LiveHandle::watching(changed, broken)
        } else {
            live_handle(commands, changed)
        };
        let store = Arc::new(MemoryStore::default());
        let script = ScriptedHost::new("bnow<enter>'<enter>", SIZE);
        let (script, exit) = play(
            growing.timeline,
            Some(live),
            with(Vec::new(), &store),
            script,
        );
        let entries = tape::running().entries();
        assert!(
            matches!(&store.changes.lock().unwrap()[..], [BookmarkChange::Set(added)] if added.entry.0 + 1 == entries)
        );
        assert_eq!(
            exit.timeline.view().state.entries,
            entries,
            "{}",
            script.text()
        );
        assert!(
            orders.try_recv().is_err(),
            "a bookmark sends nothing to the run"
        );
    }
}

#[test]
fn bookmarks_that_cannot_be_kept_are_reported_once() {
    let store = Arc::new(MemoryStore {
        is_full: true,
        ..MemoryStore::default()
    });
    let play = |keys: &str, options| {
        play(
            tape::running().timeline(),
            None,
            options,
            ScriptedHost::new(keys, SIZE),
        )
        .0
    };
    let script = play("bone<enter>", with(Vec::new(), &store));
    assert!(
        script
            .text()
            .contains("cannot save bookmarks: no space left"),
        "{}",
        script.text()
    );
    let script = play("bone<enter>,btwo<enter>'", with(Vec::new(), &store));
    assert!(
        script.text().contains("one") && script.text().contains("two"),
        "{}",
        script.text()
    );
    assert!(
        !script.text().contains("no space left"),
        "{}",
        script.text()
    );
    // Input without a name has no store.
    let script = play("bone<enter>", options());
    assert!(
        script
            .text()
            .contains("bookmarks of this record are lost when you quit"),
        "{}",
        script.text()
    );
}

#[test]
fn sign_of_a_bookmark_has_an_ascii_form() {
    let theme = Theme::new("dark", ColorLevel::Plain, true).unwrap();
    let options = Options {
        theme,
        ..with(two(), &Arc::default())
    };
    let (script, _) = play(
        tape::running().timeline(),
        None,
        options,
        ScriptedHost::new("kkk", SIZE),
    );
    let text = script.text();
    assert!(
        text.is_ascii()
            && text.contains("x & wiki_write revenue")
            && text.contains("& 2 bookmarks"),
        "{text}"
    );
}
