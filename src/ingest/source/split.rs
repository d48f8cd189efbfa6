//! Splits units whose raw files are too large for the context of a model: between files, and a single large file along its
//! headings, items or blocks.
//!
//! It must not know the kind of the source, nor which units run.

use std::{collections::BTreeSet, mem};

use super::{AssignedLines, SourceTree, UnitChunk, add_dependencies, tree::has_extension};
use crate::slug::short_hash;
use ingestdeck_core::units::token_estimate::BYTES_PER_TOKEN;

/// Largest raw files of a unit that is not split, in bytes: a quarter of the smallest context of a current model.
pub(crate) const DEFAULT_UNIT_BYTES: u64 = 50_000 * BYTES_PER_TOKEN;
/// Ends the key of a unit with lines of a file, before their numbers.
const LINES_MARK: &str = "-lines-";
/// Most files of the other parts that the agent of a part may read.
const MAX_OTHER_FILES: usize = 300;

/// A part of a unit.
#[derive(Default)]
struct UnitPart {
    raw_files: Vec<String>,
    lines: Option<AssignedLines>,
}

/// True for the key of a unit with a part of a file. Its record is about these lines only.
pub(crate) fn is_part_key(key: &str) -> bool {
    let numbers = key.rsplit_once(LINES_MARK).map(|(_, lines)| lines);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    numbers
        .and_then(|lines| lines.split_once('-'))
        .is_some_and(|(first, last)| is_number(first) && is_number(last))
}

/// Splits the units with more than `limit` bytes of raw files. A line is never split.
pub(super) fn split_large_units(
    tree: &SourceTree,
    units: Vec<UnitChunk>,
    limit: u64,
) -> Vec<UnitChunk> {
    let bytes_of = |path: &str| tree.get(path).map_or(0, |file| file.bytes);
    let is_large = |unit: &UnitChunk| {
        let bytes: u64 = unit.raw_files.iter().map(|path| bytes_of(path)).sum();
        unit.assigned_lines.is_none() && bytes > limit
    };
    if !units.iter().any(is_large) {
        return units;
    }
    let mut keys: BTreeSet<String> = units.iter().map(|unit| unit.key.clone()).collect();
    let mut split = Vec::new();
    for unit in units {
        let parts = match is_large(&unit) {
            true => parts_of(tree, &unit.raw_files, limit),
            false => Vec::new(),
        };
        if parts.len() < 2 {
            split.push(unit);
            continue;
        }
        let count = parts.len();
        for (number, part) in (1..).zip(parts) {
            let end = match &part.lines {
                Some(lines) => format!("{LINES_MARK}{}-{}", lines.first, lines.last),
                None => format!("-part-{number}"),
            };
            let (mut start, mut key) = (unit.key.clone(), format!("{}{end}", unit.key));
            while !keys.insert(key.clone()) {
                // Another unit has this key, because its file is named so.
                start = format!("{start}-{}", short_hash(&start, 12));
                key = format!("{start}{end}");
            }
            split.push(part.into_unit(key, (number, count), &unit));
        }
    }
    split
}

impl UnitPart {
    fn into_unit(
        self,
        key: String,
        (number, count): (usize, usize),
        whole: &UnitChunk,
    ) -> UnitChunk {
        let name = whole.label.as_ref().unwrap_or(&whole.key);
        let note = match &self.lines {
            Some(AssignedLines { path, first, last, .. }) => format!(
                "Only a part of this file: read lines {first}-{last} of {path} with read_raw_span. Other units ingest its other lines."
            ),
            None => "Only a part of the files of this source that belong together: other units ingest the other files, which you may read.".to_owned(),
        };
        let notes = [Some(note), whole.notes.clone()];
        let mut unit = UnitChunk {
            key,
            label: Some(format!("{name} (part {number} of {count})")),
            raw_files: self.raw_files,
            notes: Some(notes.into_iter().flatten().collect::<Vec<_>>().join(" ")),
            assigned_lines: self.lines,
            ..whole.clone()
        };
        let others = whole.raw_files.iter().take(MAX_OTHER_FILES).cloned();
        add_dependencies(&mut unit, others);
        unit
    }
}

/// The parts of a unit with these `files`, in their order. A part ends earlier where the folder changes.
fn parts_of(tree: &SourceTree, files: &[String], limit: u64) -> Vec<UnitPart> {
    let folder = |path: &str| path.rsplit_once('/').map(|(folder, _)| folder.to_owned());
    let mut parts = Vec::new();
    let (mut open, mut size) = (UnitPart::default(), 0);
    for path in files {
        let bytes = tree.get(path).map_or(0, |file| file.bytes);
        let is_other_folder = open
            .raw_files
            .last()
            .is_some_and(|last| folder(last) != folder(path));
        let is_full = size + bytes > limit || is_other_folder && size > limit / 2;
        if is_full && !open.raw_files.is_empty() {
            parts.push(mem::take(&mut open));
            size = 0;
        }
        if bytes > limit {
            let text = tree.read_text(path).unwrap_or_default();
            let ranges = line_ranges(path, &text, limit);
            let is_whole = ranges.len() < 2;
            let whole = is_whole.then_some(None).into_iter();
            let lines = ranges.into_iter().filter(|_| !is_whole).map(Some);
            parts.extend(whole.chain(lines).map(|lines| UnitPart {
                raw_files: vec![path.clone()],
                lines,
            }));
            continue;
        }
        open.raw_files.push(path.clone());
        size += bytes;
    }
    if !open.raw_files.is_empty() {
        parts.push(open);
    }
    parts
}

/// Ranges of lines of at most `limit` bytes, unless a single line is longer. They have about the same size and begin at
/// headings, items or blocks.
fn line_ranges(path: &str, text: &str, limit: u64) -> Vec<AssignedLines> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let lines: Vec<&str> = text.split('\n').collect();
    let ranks = if has_extension(path, &["md", "mdx", "markdown"]) {
        heading_ranks(&lines)
    } else {
        block_ranks(&lines)
    };
    let size = |line: &str| line.len() as u64 + 1;
    let total: u64 = lines.iter().map(|line| size(line)).sum();
    let target = total / total.div_ceil(limit).max(1);
    let mut ranges = Vec::new();
    let mut first = 0;
    while first < lines.len() {
        let (mut bytes, mut best) = (0, None);
        let mut next = first;
        while let Some(line) = lines.get(next)
            && (bytes + size(line) <= limit || next == first)
        {
            bytes += size(line);
            next += 1;
            if bytes >= target / 2
                && let Some(rank) = ranks.get(next)
            {
                let border = (*rank, bytes.abs_diff(target), next, bytes);
                best = Some(best.map_or(border, |best| border.min(best)));
            }
        }
        let is_rest = next == lines.len();
        let (end, bytes) = match best.filter(|_| !is_rest) {
            Some((_, _, end, bytes)) => (end, bytes),
            None => (next, bytes),
        };
        ranges.push(AssignedLines {
            path: path.to_owned(),
            first: first + 1,
            last: end,
            bytes,
        });
        first = end;
    }
    ranges
}

/// Rank of a line at which no part should begin.
const NO_BORDER: usize = 10_000;

/// For each line, how well a part begins there; the lowest rank is best: headings by level, then paragraphs.
fn heading_ranks(lines: &[&str]) -> Vec<usize> {
    const PARAGRAPH: usize = 100;
    let mut fence: Option<&str> = None;
    let mut is_after_blank = true;
    let rank = |line: &&str| {
        let text = line.trim_start();
        let mark = ["```", "~~~"]
            .into_iter()
            .find(|mark| text.starts_with(mark));
        let level = line.len() - line.trim_start_matches('#').len();
        let after = line.get(level..).unwrap_or_default();
        let is_heading = (1..=6).contains(&level) && after.starts_with([' ', '\t']);
        let is_fenced = fence.is_some();
        let rank = match (fence, mark) {
            (Some(open), _) => {
                fence = fence.filter(|_| mark != Some(open));
                NO_BORDER
            }
            (None, Some(_)) if is_after_blank => PARAGRAPH,
            (None, None) if is_heading => level,
            (None, None) if is_after_blank && !text.is_empty() => PARAGRAPH,
            (None, _) => NO_BORDER,
        };
        if !is_fenced {
            fence = mark;
        }
        is_after_blank = text.is_empty();
        rank
    };
    lines.iter().map(rank).collect()
}

/// As [`heading_ranks`], for structured text: by indentation, keys and list items before other lines. Comments belong to
/// the line after them.
fn block_ranks(lines: &[&str]) -> Vec<usize> {
    const PLAIN_TEXT: usize = 1_000;
    let mut comment_indent = None;
    let rank = |line: &&str| {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        let is_comment = text.starts_with('#') || text.starts_with("--") && text != "---";
        let is_own_border = comment_indent != Some(indent);
        comment_indent = is_comment.then_some(indent);
        let word = text.trim_start_matches(|c: char| c.is_alphanumeric() || "_\"'+-.".contains(c));
        let has_key = text.len() > word.len() && word.starts_with(':');
        let is_border = is_comment || has_key || text.starts_with("- ") || text == "---";
        match text.chars().next() {
            None | Some('}' | ']' | ')' | ';') => NO_BORDER,
            Some(_) if !is_own_border => NO_BORDER,
            Some(_) if is_border => indent,
            Some(_) => PLAIN_TEXT + indent,
        }
    };
    lines.iter().map(rank).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::source::{SourceAdapter, docs, tests::tree_of};

    fn unit(key: &str, files: &[&str]) -> UnitChunk {
        UnitChunk {
            key: key.into(),
            raw_files: files.iter().map(|path| (*path).to_owned()).collect(),
            ..UnitChunk::default()
        }
    }

    /// The first lines of the parts of a file.
    fn starts(path: &str, text: &str, limit: u64) -> Vec<String> {
        let lines: Vec<&str> = text.lines().collect();
        line_ranges(path, text, limit)
            .iter()
            .map(|of| lines[of.first - 1].to_owned())
            .collect()
    }

    #[test]
    fn files_are_packed_and_parts_end_with_the_folder() {
        let text = "x".repeat(100);
        let paths = ["a/1.md", "a/2.md", "b/1.md", "b/2.md", "b/3.md", "b/4.md"];
        let (_dir, tree) = tree_of(&paths.map(|path| (path, text.as_str())));
        let whole = UnitChunk {
            notes: Some("Notes.".into()),
            ..unit("all", &paths)
        };
        let units = split_large_units(&tree, vec![whole.clone(), unit("b", &["b/1.md"])], 350);
        let found: Vec<(&str, usize)> = units
            .iter()
            .map(|unit| (unit.key.as_str(), unit.raw_files.len()))
            .collect();
        assert_eq!(
            found,
            [
                ("all-part-1", 2),
                ("all-part-2", 3),
                ("all-part-3", 1),
                ("b", 1)
            ]
        );
        assert_eq!(units[0].label.as_deref(), Some("all (part 1 of 3)"));
        assert_eq!(units[0].dependency_paths, &paths[2..]);
        assert!(units[2].notes.as_deref().unwrap().ends_with("Notes."));
        assert_eq!(split_large_units(&tree, vec![whole.clone()], 600), [whole]);
    }

    #[test]
    fn parts_of_a_file_are_distinct_from_other_units() {
        let text = "para\n\n".repeat(100);
        let (_dir, tree) = tree_of(&[("a.md", &text), ("a-lines-1-100.md", "x")]);
        let whole = docs::DocsAdapter
            .chunk(&tree, crate::source::tests::anywhere())
            .unwrap()
            .units;
        let units = split_large_units(&tree, whole, 400);
        let keys: BTreeSet<&str> = units.iter().map(|unit| unit.key.as_str()).collect();
        assert_eq!((units.len(), keys.len()), (3, 3), "{keys:?}");
        assert!(keys.iter().all(|key| is_part_key(key)), "{keys:?}");
        assert!(keys.contains("docs-a-lines-101-200"), "{keys:?}");
        let parts = units.iter().filter_map(|unit| unit.assigned_lines.as_ref());
        assert_eq!(parts.map(|lines| lines.bytes).sum::<u64>(), 600);
    }

    #[test]
    fn documents_are_split_at_the_highest_headings() {
        let body = "word word word\n".repeat(10);
        let text = format!(
            "# T\n{body}## A\n{body}```sh\n# no heading\n```\n## B\n{body}### C\n{body}## D\n{body}"
        );
        assert_eq!(starts("a.md", &text, 340), ["# T", "## B", "## D"]);
        let open = format!("```\n# x\n{body}# y\n{body}");
        assert_eq!(starts("a.md", &open, 200).len(), 2);
    }

    #[test]
    fn structured_files_are_split_at_items() {
        let fields = "    description: a text of some length\n    columns: []\n".repeat(3);
        let yaml: String = (0..8)
            .map(|n| format!("  # about {n}\n  - name: m{n}\n{fields}"))
            .collect();
        let found = starts("m.yml", &format!("models:\n{yaml}"), 900);
        assert_eq!(found, ["models:", "  # about 4"]);
        let views: String = (0..6)
            .map(|n| format!("view: v{n} {{\n  dimension: x {{\nsql: a\n;;\n  }}\n}}\n"))
            .collect();
        let found = starts("v.lkml", &views, 120);
        assert_eq!(found, ["view: v0 {", "view: v2 {", "view: v4 {"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn parts_cover_every_line_once(
            lines in prop::collection::vec("(#{1,3} |- |  [a-z]{1,3}: |```|)[a-z }]{0,40}", 1..60),
            limit in 20..600_u64,
            name in prop::sample::select(vec!["a.md", "a.yml"]),
        ) {
            let text = lines.join("\n") + "\n";
            let ranges = line_ranges(name, &text, limit);
            let covered: Vec<usize> = ranges.iter().flat_map(|of| of.first..=of.last).collect();
            prop_assert_eq!(covered, (1..=text.lines().count()).collect::<Vec<_>>());
            prop_assert_eq!(ranges.iter().map(|of| of.bytes).sum::<u64>(), text.len() as u64);
            for of in &ranges {
                prop_assert!(of.bytes <= limit || of.first == of.last, "{of:?}");
            }
        }
    }
}
