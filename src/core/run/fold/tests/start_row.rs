//! The row of the start of an attempt: which entries it covers, and which ones keep a row.

use proptest::prelude::*;

use super::*;
use crate::tape::note::{AttemptStarted, IsolationChecked};

/// An entry at the start of an attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
enum StartEntry {
    Note,
    AmendedNote,
    /// The announcement, with all servers connected or not.
    Init(bool),
    /// The check of the isolation, which holds or not.
    Isolation(bool),
    Stderr,
    Call,
    /// An entry without a row.
    Quiet,
}

const ALL: [StartEntry; 9] = [
    StartEntry::Note,
    StartEntry::AmendedNote,
    StartEntry::Init(true),
    StartEntry::Init(false),
    StartEntry::Isolation(true),
    StartEntry::Isolation(false),
    StartEntry::Stderr,
    StartEntry::Call,
    StartEntry::Quiet,
];

fn text(entry: StartEntry, seq: usize) -> (char, String) {
    let note = |note: Note| ('n', String::from_utf8(note.to_json()).unwrap());
    let started = |amendment| {
        note(Note::AttemptStarted(Box::new(AttemptStarted {
            amendment,
            ..AttemptStarted::default()
        })))
    };
    match entry {
        StartEntry::Note => started(None),
        StartEntry::AmendedNote => started(Some(Default::default())),
        StartEntry::Init(is_connected) => {
            let status = if is_connected { "connected" } else { "failed" };
            (
                'o',
                format!(
                    r#"{{"type":"system","subtype":"init","session_id":"s","model":"m","tools":["a"],"mcp_servers":[{{"name":"ktx","status":"{status}"}}]}}"#
                ),
            )
        }
        StartEntry::Isolation(holds) => {
            let breach = (!holds).then(|| "another tool".to_owned());
            note(Note::IsolationChecked(IsolationChecked {
                breach,
                settings_sources: None,
            }))
        }
        StartEntry::Stderr => ('e', "a warning".into()),
        StartEntry::Call => call(&format!("c{seq}")),
        StartEntry::Quiet => ('i', INTERRUPT.replace("interrupt", "initialize")),
    }
}

fn fold(entries: &[StartEntry]) -> RunView {
    let (mut fold, mut view) = (Fold::new("?".into()), RunView::default());
    for (seq, entry) in entries.iter().enumerate() {
        let (kind, text) = text(*entry, seq);
        let body = match kind {
            'i' => EntryBody::Stdin(text.as_bytes()),
            'n' => EntryBody::Note(text.as_bytes()),
            'e' => EntryBody::Stderr(text.into()),
            _ => EntryBody::Stdout(text.as_bytes()),
        };
        let scope = EntryScope::Attempt("u", 1);
        let seq = seq as u64;
        let entry = EntryRef {
            seq: Seq(seq),
            at: Millis(seq),
            scope,
            body,
            is_well_formed: true,
            decoded: None,
        };
        fold.apply(&mut view, &entry, &mut |_| {});
    }
    view
}

/// The entries of each row, at the moment after `entries` entries.
fn entries_of_rows(view: &mut RunView, entries: usize) -> Vec<Vec<u64>> {
    view.state.entries = entries as u64;
    let id = view.state.units[0].attempts[0].id;
    let rows = view.rows(id).iter();
    rows.map(|row| {
        view.row_entries(row)
            .into_iter()
            .flatten()
            .map(|seq| seq.0)
            .collect()
    })
    .collect()
}

#[test]
fn one_row_covers_a_start_without_problems() {
    use StartEntry::{AmendedNote, Call, Init, Isolation, Note, Quiet, Stderr};
    let rows = |entries: &[StartEntry]| entries_of_rows(&mut fold(entries), entries.len());
    assert_eq!(
        rows(&[Note, Quiet, Init(true), Isolation(true), Call]),
        [vec![0, 2, 3], vec![4]]
    );
    assert_eq!(
        rows(&[Note, Isolation(true), Init(true)]),
        [vec![0, 2], vec![1]]
    );
    assert_eq!(
        rows(&[Note, Init(true), Isolation(true), Isolation(true)]),
        [vec![0, 1, 2], vec![3]]
    );
    assert_eq!(
        rows(&[AmendedNote, Init(true), Isolation(true)]),
        [vec![0, 1, 2], vec![0]]
    );
    assert_eq!(
        rows(&[Note, Stderr, Init(true), Isolation(true)]),
        [vec![0, 2, 3], vec![1]]
    );
    // What is wrong has a row.
    assert_eq!(
        rows(&[Note, Init(false), Isolation(true)]),
        [vec![0], vec![1], vec![2]]
    );
    assert_eq!(
        rows(&[Note, Init(true), Isolation(false)]),
        [vec![0, 1], vec![2]]
    );
    // A capture has no notes.
    assert_eq!(rows(&[Init(false), Call]), [vec![0], vec![1]]);
    let view = fold(&[Note, Init(false), Isolation(false)]);
    let shown = view
        .rows(view.state.units[0].attempts[0].id)
        .iter()
        .map(|row| (row.kind, row.end(9)));
    let expected = [
        (RowKind::Note, RowOutcome::Ok),
        (RowKind::Warning, RowOutcome::Ok),
        (RowKind::Note, RowOutcome::Failed),
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
}

#[test]
fn row_of_the_start_grows_with_the_moment() {
    use StartEntry::{Init, Isolation, Note};
    let mut view = fold(&[Note, Init(true), Isolation(true)]);
    assert_eq!(entries_of_rows(&mut view, 1), [[0]]);
    assert_eq!(entries_of_rows(&mut view, 2), [[0, 1]]);
    assert_eq!(entries_of_rows(&mut view, 3), [[0, 1, 2]]);
}

proptest! {
    /// A row may cover several entries, but none that needs a row is without one, and none has two.
    #[test]
    fn every_entry_with_a_row_keeps_one(entries in prop::collection::vec(prop::sample::select(ALL.to_vec()), 1..12)) {
        let entries: Vec<_> = [StartEntry::Note].into_iter().chain(entries).collect();
        let rows = entries_of_rows(&mut fold(&entries), entries.len());
        let mut covered: Vec<u64> = rows.into_iter().flatten().collect();
        covered.sort_unstable();
        // An amended start has a second row for the same entry.
        let is_amended = |seq: &u64| entries[*seq as usize] == StartEntry::AmendedNote;
        for pair in covered.windows(2) {
            prop_assert!(pair[0] != pair[1] || is_amended(&pair[0]), "{entries:?}: {covered:?}");
        }
        let first_session = entries.iter().position(|entry| matches!(entry, StartEntry::Init(_) | StartEntry::Call));
        for (seq, entry) in entries.iter().enumerate() {
            let needs_row = match entry {
                StartEntry::Quiet => false,
                // Only the first announcement begins the session, which a call may have begun before.
                StartEntry::Init(_) => first_session == Some(seq),
                _ => true,
            };
            prop_assert!(!needs_row || covered.contains(&(seq as u64)), "{seq} of {entries:?}: {covered:?}");
        }
    }
}
