//! Notes between the lines of a session file that is read alone: which of the lines do not count. They are entries, as
//! on the tape of a session that is merged, so the numbers of the lines after them are higher.

use ingestdeck_core::{
    run::entry_source::{EntryRef, EntryScope},
    tape::{EntryBody, Millis, Note, Seq, UnitKey, note::Severity},
};

use super::conversation_tree::SetAside;

/// The notes of one file, and the position among those before the next line.
#[derive(Debug, Default)]
pub(super) struct InsertedNotes {
    /// Each is one note, or two if it has a text.
    runs: Vec<SetAside>,
    /// Number of the first note of each.
    entries: Vec<u64>,
    /// The unit of lines without a session.
    fallback_unit: Option<UnitKey>,
    /// The unit of all lines, whatever session they name.
    only_unit: Option<UnitKey>,
    /// After a rewind: the next line, and the number of notes before it that are not emitted again.
    skipped: Option<(u64, u64)>,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineOrNote {
    /// The line with this number.
    Line(u64),
    /// The note with this number before a line.
    Note { line: u64, number: u64 },
}

fn notes_of(run: &SetAside) -> u64 {
    1 + u64::from(run.text().is_some())
}

impl InsertedNotes {
    pub(super) fn new(runs: Vec<SetAside>, fallback_unit: UnitKey) -> Self {
        let mut notes = 0;
        let entries = runs.iter().map(|run| {
            let entry = run.first + notes;
            notes += notes_of(run);
            entry
        });
        Self {
            entries: entries.collect(),
            runs,
            fallback_unit: Some(fallback_unit),
            only_unit: None,
            skipped: None,
        }
    }

    /// Assigns all lines to one unit.
    pub(super) fn with_only_unit(self, only_unit: Option<UnitKey>) -> Self {
        Self { only_unit, ..self }
    }

    /// True if entries have the numbers of their lines.
    pub(super) fn has_no_notes(&self) -> bool {
        self.runs.is_empty()
    }

    /// True if the lines are passed on unchanged.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.only_unit.is_none()
    }

    /// The entry with a line, as entry `seq`.
    pub(super) fn assign<'a>(&'a self, entry: EntryRef<'a>, seq: Seq) -> EntryRef<'a> {
        let scope = match &self.only_unit {
            Some(unit) => EntryScope::Attempt(unit.as_str(), 1),
            None => entry.scope,
        };
        EntryRef {
            seq,
            scope,
            ..entry
        }
    }

    /// The run that begins at or before a line, and the number of its first note.
    fn run_before(&self, line: u64) -> Option<(&SetAside, u64)> {
        let before = self.runs.partition_point(|run| run.first <= line);
        let place = before.checked_sub(1)?;
        Some((self.runs.get(place)?, *self.entries.get(place)?))
    }

    /// The number of the entry with a line.
    pub(super) fn entry_of(&self, line: u64) -> Seq {
        Seq(match self.run_before(line) {
            Some((run, entry)) => entry + notes_of(run) + (line - run.first),
            None => line,
        })
    }

    /// Number of entries with this number of lines.
    pub(super) fn entry_count(&self, lines: u64) -> u64 {
        lines
            .checked_sub(1)
            .map_or(0, |last| self.entry_of(last).0 + 1)
    }

    pub(super) fn locate(&self, seq: Seq) -> LineOrNote {
        let before = self.entries.partition_point(|entry| *entry <= seq.0);
        let run = before
            .checked_sub(1)
            .and_then(|place| Some((self.runs.get(place)?, *self.entries.get(place)?)));
        let Some((run, entry)) = run else {
            return LineOrNote::Line(seq.0);
        };
        let number = seq.0 - entry;
        match number.checked_sub(notes_of(run)) {
            Some(after) => LineOrNote::Line(run.first + after),
            None => LineOrNote::Note {
                line: run.first,
                number,
            },
        }
    }

    /// Continues at an entry. Returns the line to continue with.
    pub(super) fn rewind(&mut self, seq: Seq) -> Seq {
        let (line, skipped) = match self.locate(seq) {
            LineOrNote::Line(line) => (line, u64::MAX),
            LineOrNote::Note { line, number } => (line, number),
        };
        self.skipped = Some((line, skipped));
        Seq(line)
    }

    /// The content of a note before a line.
    pub(super) fn content(&self, line: u64, number: u64) -> Vec<u8> {
        let Some((run, _)) = self.run_before(line) else {
            return Vec::new();
        };
        let note = match run.text().filter(|_| number == 0) {
            Some(text) => Note::Message {
                level: Severity::Info,
                text,
            },
            None => Note::LinesSetAside { lines: run.lines },
        };
        note.to_json()
    }

    /// Passes on a note before the line in `entry`. `at` is the time of the entry before it.
    pub(super) fn emit_note(
        &self,
        entry: &EntryRef<'_>,
        number: u64,
        at: Millis,
        sink: &mut dyn FnMut(EntryRef<'_>),
    ) {
        let line = entry.seq.0;
        let session = entry.decoded.and_then(|line| line.session_id.as_deref());
        let unit = self
            .only_unit
            .as_ref()
            .map(UnitKey::as_str)
            .or(session.filter(|id| !id.is_empty()))
            .or(self.fallback_unit.as_ref().map(UnitKey::as_str))
            .unwrap_or_default();
        let entry_of_note = self.run_before(line).map_or(0, |(_, entry)| entry) + number;
        sink(EntryRef {
            seq: Seq(entry_of_note),
            at,
            scope: EntryScope::Attempt(unit, 1),
            body: EntryBody::Note(&self.content(line, number)),
            is_well_formed: true,
            decoded: None,
        });
    }

    /// Passes on the entry with a line, after the notes before it. `at` is the time of the entry before them.
    pub(super) fn emit(
        &mut self,
        entry: EntryRef<'_>,
        at: Millis,
        sink: &mut dyn FnMut(EntryRef<'_>),
    ) {
        let line = entry.seq.0;
        let skipped = self.skipped.take().filter(|(next, _)| *next == line);
        let skipped = skipped.map_or(0, |(_, notes)| notes);
        let notes = self
            .run_before(line)
            .filter(|(run, _)| run.first == line)
            .map_or(0, |(run, _)| notes_of(run));
        for number in skipped..notes {
            self.emit_note(&entry, number, at, sink);
        }
        sink(self.assign(entry, self.entry_of(line)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::conversation_tree::SetAsideReason;

    #[test]
    fn entries_are_lines_or_notes_in_order() {
        let run = |first, lines, reason| SetAside {
            first,
            lines,
            reason,
        };
        let notes = InsertedNotes::new(
            vec![
                run(2, 3, SetAsideReason::Repeated(4)),
                run(6, 1, SetAsideReason::Continued),
                run(9, 1, SetAsideReason::TakenBack(0)),
            ],
            UnitKey::from("s"),
        );
        let located: Vec<LineOrNote> = (0..16).map(|seq| notes.locate(Seq(seq))).collect();
        let note = |line, number| LineOrNote::Note { line, number };
        let mut expected = Vec::new();
        for line in 0..11 {
            match line {
                2 | 9 => expected.extend([note(line, 0), note(line, 1)]),
                6 => expected.push(note(line, 0)),
                _ => {}
            }
            assert_eq!(notes.entry_of(line), Seq(expected.len() as u64), "{line}");
            expected.push(LineOrNote::Line(line));
            assert_eq!(notes.entry_count(line + 1), expected.len() as u64);
        }
        assert_eq!(located, expected);
        assert_eq!(notes.entry_count(0), 0);
    }
}
