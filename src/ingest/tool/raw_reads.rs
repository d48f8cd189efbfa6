//! Which raw files of a unit its agent has read, and the question about those that it left.
//!
//! A file counts as read if answers contained all of its lines. Files that the agent recorded as unmapped are decided,
//! whether they were read or not. The module must not judge the unit: [`verdict`](ingestdeck_core::units::verdict) does.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::pagination;
use crate::{source::AssignedLines, untrusted_text::one_line};
use ingestdeck_core::tape::note::attempt_output::{PartialRead, ReadUnit, UnreadFile};

/// Maximum number of files that a question names.
const MAX_ASKED: usize = 20;

/// The parts of raw files that answers contained, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawReads {
    files: BTreeMap<String, FileReads>,
    /// The agent continues a session whose reads are not known.
    is_incomplete: bool,
}

/// The lines of one file that answers contained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FileReads {
    /// Number of lines of the file.
    total: usize,
    /// Numbers of these lines, counted from 1, as disjoint ranges by their first line.
    ranges: BTreeMap<usize, usize>,
    /// Last lines of the pages of a file that does not fit into one answer; empty if that is not known.
    page_ends: Vec<usize>,
}

/// The part of a transcript line that reads need.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadCall {
    tool_name: String,
    output: Option<ReadOutput>,
}

#[derive(Deserialize)]
struct ReadOutput {
    structured: Option<ReadSpan>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadSpan {
    path: String,
    start_line: usize,
    end_line: usize,
    total_lines: usize,
}

impl RawReads {
    /// Records an answer with lines `start` to `last` (from 1, inclusive; `last` is less than `start` for an empty file).
    pub(super) fn record(&mut self, path: &str, lines: &[&str], start: usize, last: usize) {
        let file = self.files.entry(path.to_owned()).or_default();
        file.add(lines.len(), start, last);
        if file.page_ends.is_empty() && !file.is_complete() {
            file.page_ends = page_ends(lines);
        }
    }

    /// Adds the reads in a transcript of earlier attempts in the same session. They are not known if it has none.
    pub(crate) fn add_transcript(&mut self, transcript: &[u8]) {
        self.add_calls(transcript);
        self.is_incomplete |= self.files.is_empty();
    }

    /// Adds the reads in lines of a transcript. Lines that are not valid are skipped.
    pub(super) fn add_calls(&mut self, transcript: &[u8]) {
        for line in transcript.split(|byte| *byte == b'\n') {
            let Ok(call) = serde_json::from_slice::<ReadCall>(line) else {
                continue;
            };
            if let (
                "read_raw_file" | "read_raw_span",
                Some(ReadOutput {
                    structured: Some(span),
                }),
            ) = (&*call.tool_name, call.output)
            {
                self.files.entry(span.path).or_default().add(
                    span.total_lines,
                    span.start_line,
                    span.end_line,
                );
            }
        }
    }

    /// The reads of earlier attempts in the same session cannot be known.
    pub(crate) fn mark_incomplete(&mut self) {
        self.is_incomplete = true;
    }

    /// True if one of `raw_files` was read at least in part, or may have been read earlier in the session.
    pub(crate) fn has_read_any(&self, raw_files: &[String]) -> bool {
        self.is_incomplete
            || raw_files
                .iter()
                .any(|path| self.files.get(path).is_some_and(FileReads::is_begun))
    }

    /// Those of `raw_files` that were not read completely and are not `decided`, in their order. Only the `assigned` lines
    /// of a file count, if there are any. Empty if earlier reads in the session are not known.
    pub(crate) fn unread(
        &self,
        raw_files: &[String],
        decided: &BTreeSet<&str>,
        assigned: Option<&AssignedLines>,
    ) -> Vec<UnreadFile> {
        if self.is_incomplete {
            return Vec::new();
        }
        let left = raw_files
            .iter()
            .filter(|path| !decided.contains(path.as_str()));
        let unread = |path: &String| {
            let part = match (
                self.files.get(path),
                assigned.filter(|lines| lines.path == *path),
            ) {
                (Some(file), _) if file.is_complete() => return None,
                (Some(file), Some(lines)) => match file.part_of(lines) {
                    part if part.read >= part.of => return None,
                    part => Some(part).filter(|part| part.read > 0),
                },
                (Some(file), None) => Some(file.part()),
                (None, _) => None,
            };
            Some(UnreadFile {
                path: path.clone(),
                part,
            })
        };
        left.filter_map(unread).collect()
    }
}

impl FileReads {
    fn add(&mut self, total: usize, start: usize, last: usize) {
        self.total = total;
        let (mut start, mut last) = (start.max(1), last.min(total));
        if start > last {
            return;
        }
        // Ranges that overlap or touch become one.
        while let Some((&first, &end)) = self
            .ranges
            .range(..=last + 1)
            .next_back()
            .filter(|(_, end)| **end + 1 >= start)
        {
            self.ranges.remove(&first);
            (start, last) = (start.min(first), last.max(end));
        }
        self.ranges.insert(start, last);
    }

    /// True if an answer contained a line of it. An answer about lines beyond the end of a file contains none.
    fn is_begun(&self) -> bool {
        self.total == 0 || !self.ranges.is_empty()
    }

    fn is_complete(&self) -> bool {
        self.total == 0 || self.ranges.get(&1) == Some(&self.total)
    }

    /// The read part of these lines.
    fn part_of(&self, AssignedLines { first, last, .. }: &AssignedLines) -> PartialRead {
        let last = (*last).min(self.total);
        let within =
            |(start, end): (&usize, &usize)| (last.min(*end) + 1).saturating_sub(*start.max(first));
        let read: usize = self.ranges.iter().map(within).sum();
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        PartialRead {
            read: count(read),
            of: count((last + 1).saturating_sub(*first)),
            unit: ReadUnit::Lines,
        }
    }

    /// The part that was read: complete pages, or lines if the file has one page.
    fn part(&self) -> PartialRead {
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        if self.page_ends.len() > 1 {
            let starts = std::iter::once(1).chain(self.page_ends.iter().map(|end| end + 1));
            let is_read = |start: usize, end: usize| {
                self.ranges
                    .range(..=start)
                    .next_back()
                    .is_some_and(|(_, last)| *last >= end)
            };
            let read = starts
                .zip(&self.page_ends)
                .filter(|(start, end)| is_read(*start, **end))
                .count();
            if read > 0 {
                return PartialRead {
                    read: count(read),
                    of: count(self.page_ends.len()),
                    unit: ReadUnit::Pages,
                };
            }
        }
        let read = self
            .ranges
            .iter()
            .map(|(start, last)| last + 1 - start)
            .sum();
        PartialRead {
            read: count(read),
            of: count(self.total),
            unit: ReadUnit::Lines,
        }
    }
}

/// The last lines of the pages of a text.
fn page_ends(lines: &[&str]) -> Vec<usize> {
    let mut ends = Vec::new();
    while ends.last().copied().unwrap_or_default() < lines.len() {
        let start = ends.last().copied().unwrap_or_default() + 1;
        ends.push(
            pagination::paginate(lines, start, lines.len())
                .last_line
                .max(start),
        );
    }
    ends
}

/// The question to an agent that is about to end although it left files.
pub(super) fn question(unread: &[UnreadFile]) -> Option<String> {
    let names: Vec<String> = unread
        .iter()
        .take(MAX_ASKED)
        .map(|file| format!("`{}`{}", one_line(&file.path), file.part_note()))
        .collect();
    let more = match unread.len().saturating_sub(MAX_ASKED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let count = if unread.len() == 1 {
        "1 raw file".to_owned()
    } else {
        format!("{} raw files", unread.len())
    };
    (!unread.is_empty()).then(|| {
        format!(
            "You have not read {count} of this work unit: {}{more}. Read what is left with read_raw_file or \
             read_raw_span and write what it requires, or record a file that cannot be mapped with \
             emit_unmapped_fallback. Then end.",
            names.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn paths(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn unread(reads: &RawReads, names: &[&str]) -> Vec<String> {
        let unread = reads.unread(&paths(names), &BTreeSet::new(), None);
        unread
            .iter()
            .map(|file| format!("{}{}", file.path, file.part_note()))
            .collect()
    }

    #[test]
    fn span_beyond_the_end_is_no_read() {
        let mut reads = RawReads::default();
        reads.record("a", &["x", "y"], 1_000, 2);
        assert!(!reads.has_read_any(&paths(&["a"])));
        assert_eq!(unread(&reads, &["a"]), ["a (0 of 2 lines read)"]);
        reads.record("a", &["x", "y"], 2, 2);
        assert!(reads.has_read_any(&paths(&["a"])));
        let mut reads = RawReads::default();
        reads.record("empty", &[], 1, 0);
        assert!(reads.has_read_any(&paths(&["empty"])));
        let line = r#"{"toolName":"read_raw_span","output":{"structured":{"path":"a","startLine":9,"endLine":9,"totalLines":2}}}"#;
        let mut reads = RawReads::default();
        reads.add_transcript(line.as_bytes());
        assert!(!reads.has_read_any(&paths(&["a"])));
    }

    #[test]
    fn question_names_long_paths_completely() {
        let path = format!("models/{}/it's.yml", "x".repeat(200));
        let unread = vec![UnreadFile {
            path: path.clone(),
            part: None,
        }];
        assert!(question(&unread).is_some_and(|text| text.contains(&format!("`{path}`"))));
    }

    #[test]
    fn file_is_read_once_all_its_lines_were_answered() {
        let lines: Vec<&str> = vec!["x"; 10];
        let mut reads = RawReads::default();
        assert_eq!(unread(&reads, &["a", "b"]), ["a", "b"]);
        assert!(!reads.has_read_any(&paths(&["a", "b"])));
        reads.record("a", &lines, 1, 4);
        reads.record("a", &lines, 8, 10);
        reads.record("other", &lines, 1, 10);
        assert_eq!(unread(&reads, &["a", "b"]), ["a (7 of 10 lines read)", "b"]);
        assert!(reads.has_read_any(&paths(&["a", "b"])));
        reads.record("a", &lines, 4, 8);
        assert_eq!(unread(&reads, &["a", "b"]), ["b"]);
        assert!(
            reads
                .unread(&paths(&["a", "b"]), &BTreeSet::from(["b"]), None)
                .is_empty(),
            "b is decided"
        );
    }

    #[test]
    fn empty_file_is_read_by_one_call() {
        let mut reads = RawReads::default();
        reads.record("empty", &[], 1, 0);
        assert!(unread(&reads, &["empty"]).is_empty());
    }

    #[test]
    fn long_file_is_counted_in_pages() {
        let long = "x".repeat(20_000);
        let lines: Vec<&str> = vec![&long; 5];
        let mut reads = RawReads::default();
        reads.record("a", &lines, 1, 2);
        assert_eq!(unread(&reads, &["a"]), ["a (1 of 3 pages read)"]);
        reads.record("a", &lines, 3, 5);
        assert!(unread(&reads, &["a"]).is_empty());
        let mut reads = RawReads::default();
        reads.record("a", &lines, 2, 2);
        assert_eq!(
            unread(&reads, &["a"]),
            ["a (1 of 5 lines read)"],
            "no page was read completely"
        );
    }

    #[test]
    fn only_assigned_lines_of_a_shared_file_count() {
        let lines: Vec<&str> = vec!["x"; 10];
        let assigned = AssignedLines {
            path: "a".into(),
            first: 4,
            last: 6,
            bytes: 0,
        };
        let mut reads = RawReads::default();
        let unread = |reads: &RawReads| -> Vec<String> {
            let unread = reads.unread(&paths(&["a", "b"]), &BTreeSet::new(), Some(&assigned));
            unread
                .iter()
                .map(|file| format!("{}{}", file.path, file.part_note()))
                .collect()
        };
        reads.record("a", &lines, 1, 3);
        assert_eq!(
            unread(&reads),
            ["a", "b"],
            "these lines are those of another unit"
        );
        reads.record("a", &lines, 1, 5);
        assert_eq!(unread(&reads), ["a (2 of 3 lines read)", "b"]);
        reads.record("a", &lines, 6, 6);
        assert_eq!(unread(&reads), ["b"]);
    }

    #[test]
    fn reads_of_earlier_attempts_come_from_the_transcript() {
        let transcript = br#"{"toolName":"read_raw_file","output":{"markdown":"x","structured":{"path":"a","startLine":1,"endLine":2,"totalLines":2}}}
{"toolName":"read_raw_file","error":{"message":"no","name":"ToolError"}}
{"toolName":"wiki_read","output":{"markdown":"x","structured":{"path":"b","startLine":1,"endLine":2,"totalLines":2}}}
not JSON"#;
        let mut reads = RawReads::default();
        reads.add_transcript(transcript);
        assert_eq!(unread(&reads, &["a", "b"]), ["b"]);
        let mut unknown = RawReads::default();
        unknown.add_transcript(b"");
        assert!(unknown.has_read_any(&paths(&["a"])) && unread(&unknown, &["a"]).is_empty());
    }

    #[test]
    fn question_names_a_bounded_number_of_files() {
        assert_eq!(question(&[]), None);
        let many: Vec<UnreadFile> = (0..400)
            .map(|number| UnreadFile {
                path: format!("{number}.md"),
                part: None,
            })
            .collect();
        let asked = question(&many).unwrap();
        assert!(
            asked.starts_with("You have not read 400 raw files of this work unit: `0.md`, "),
            "{asked}"
        );
        assert!(
            asked.contains("`19.md` and 380 more. Read what is left"),
            "{asked}"
        );
        assert!(
            question(&many[..1])
                .unwrap()
                .starts_with("You have not read 1 raw file of this work unit: `0.md`. ")
        );
    }

    proptest! {
        #[test]
        fn ranges_are_the_union_of_all_answers(spans in prop::collection::vec((1usize..30, 0usize..30), 0..12)) {
            let lines = vec!["x"; 25];
            let mut reads = RawReads::default();
            let mut seen = BTreeSet::new();
            for (start, last) in &spans {
                reads.record("a", &lines, *start, *last);
                seen.extend((*start..=*last).filter(|line| *line <= 25));
            }
            let file = reads.files.get("a").cloned().unwrap_or_default();
            let ranges: BTreeSet<usize> = file.ranges.iter().flat_map(|(start, last)| *start..=*last).collect();
            prop_assert_eq!(&ranges, &seen);
            let ends: Vec<_> = file.ranges.iter().collect();
            prop_assert!(ends.windows(2).all(|pair| *pair[0].1 + 1 < *pair[1].0), "{:?}", ends);
            prop_assert_eq!(file.is_complete(), spans.is_empty() || seen.len() == 25);
        }
    }
}
