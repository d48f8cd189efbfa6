//! A large session on the screen before it has been read: its beginning is shown, and positions stay on their rows when
//! the rest is known.

use std::{path::Path, time::Duration};

use ingestdeck_core::{
    run::{
        EntrySource, PollStatus, SourceInfo, Timeline,
        entry_source::{EntryRef, EntrySourceError},
    },
    tape::Seq,
};
use ingestdeck_records::replay::FileSource;
use ingestdeck_tui::FirstPage;
use tokio::time::Instant;

use super::scripted_host::{ScriptedHost, options, play};
use crate::transcripts::large_session;

const SIZE: (u16, u16) = (120, 36);

/// A session whose rest becomes known after the keys of the script, and before its late keys.
struct GatedSource {
    source: FileSource,
    /// `None` before the screen opens.
    opened: Option<Instant>,
}

/// The script presses a key in each millisecond, and late keys after 100.
const GATE: Duration = Duration::from_millis(60);

impl EntrySource for GatedSource {
    fn info(&self) -> &SourceInfo {
        self.source.info()
    }

    fn poll(
        &mut self,
        max_bytes: usize,
        sink: &mut dyn FnMut(EntryRef<'_>),
    ) -> Result<PollStatus, EntrySourceError> {
        self.source.poll(max_bytes, sink)
    }

    fn rewind(&mut self, seq: Seq) -> Result<(), EntrySourceError> {
        self.source.rewind(seq)
    }

    fn read(
        &mut self,
        seq: Seq,
        sink: &mut dyn FnMut(EntryRef<'_>),
    ) -> Result<bool, EntrySourceError> {
        self.source.read(seq, sink)
    }

    fn position(&self) -> (u64, Option<u64>) {
        self.source.position()
    }

    fn is_provisional(&self) -> bool {
        self.source.is_provisional()
    }

    fn settle(&mut self) -> Option<Vec<Seq>> {
        let opened = *self.opened.get_or_insert_with(Instant::now);
        if opened.elapsed() < GATE {
            return None;
        }
        loop {
            if let Some(numbers) = self.source.settle() {
                return Some(numbers);
            }
            crate::support::pause_before_check();
        }
    }
}

fn open(path: &Path) -> Timeline {
    Timeline::new(Box::new(GatedSource {
        source: FileSource::open_early(path).unwrap(),
        opened: None,
    }))
}

/// The screen after `keys` while the beginning is shown, and `late` ones when the rest is known.
fn screen(path: &Path, keys: &str, late: Option<&str>) -> String {
    let mut options = options();
    options.first_page = FirstPage::Session;
    let host = ScriptedHost::new(keys, SIZE);
    let host = match late {
        Some(late) => host
            .keys_after_growth(late)
            .keep_open_for(Duration::from_millis(300)),
        None => host.keep_open_for(GATE / 2),
    };
    play(open(path), None, options, host).0.text()
}

/// The header and the first lines of the page.
fn first_lines(screen: &str) -> String {
    screen.lines().take(12).collect::<Vec<_>>().join("\n")
}

#[test]
fn first_screen_folds_once_the_tree_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let path = large_session(dir.path(), false);
    let early = screen(&path, "", None);
    // Nothing is set aside yet.
    for text in ["first", "one", "second", "two", "third"] {
        assert!(early.contains(text), "{text}:\n{early}");
    }
    assert!(!early.contains("taken back"), "{early}");
    let whole = screen(&path, "", Some(""));
    assert!(whole.contains("1 turn taken back"), "{whole}");
    assert!(
        whole.contains("2 lines repeated after a compaction"),
        "{whole}"
    );
    assert!(!whole.contains("two"), "{whole}");
    let direct = Timeline::new(Box::new(FileSource::open(&path).unwrap()));
    let mut plain = options();
    plain.first_page = FirstPage::Session;
    let direct = play(direct, None, plain, ScriptedHost::new("", SIZE))
        .0
        .text();
    assert_eq!(first_lines(&whole), first_lines(&direct));
}

#[test]
fn early_keys_act_on_the_same_unit_and_row() {
    let dir = tempfile::tempdir().unwrap();
    for has_agent in [false, true] {
        let path = large_session(dir.path(), has_agent);
        // The third prompt, which is the second one after the branch before it has folded.
        for (then, shown) in [("", "third"), ("<enter>", "third"), ("<esc>", "units")] {
            let early = screen(&path, "<tab><tab>", Some(then));
            let late = screen(&path, "", Some(&format!("<tab>{then}")));
            assert!(early.contains(shown), "{then}:\n{early}");
            assert_eq!(first_lines(&early), first_lines(&late), "{then}");
        }
        // A page that was opened early shows the same row.
        let early = screen(&path, "<tab><tab><enter>", Some(""));
        let late = screen(&path, "", Some("<tab><enter>"));
        assert_eq!(first_lines(&early), first_lines(&late));
        // A prompt that was taken back: the nearest row before it.
        let gone = screen(&path, "<tab><enter>", Some(""));
        assert!(!gone.contains("second"), "{gone}");
    }
}

#[test]
fn goals_beyond_the_beginning_wait_for_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let path = large_session(dir.path(), false);
    let waiting = screen(&path, ":#100<enter>", None);
    assert!(
        waiting.contains("seeking") || waiting.contains("entry 100"),
        "{waiting}"
    );
    let reached = screen(&path, ":#100<enter>", Some(""));
    assert!(!reached.contains("no entry"), "{reached}");
}

#[test]
fn bookmarks_wait_for_the_numbers_of_entries() {
    let dir = tempfile::tempdir().unwrap();
    let path = large_session(dir.path(), false);
    let refused = screen(&path, "b", None);
    assert!(
        refused.contains("the session is still being read"),
        "{refused}"
    );
    let asked = screen(&path, "", Some("b"));
    assert!(!asked.contains("still being read"), "{asked}");
}
