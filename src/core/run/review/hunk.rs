//! Hunks of a unified diff: parsing, identity, and applying some of them.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use crate::tape::note::ReviewedFile;

/// Digits of the id of a hunk, and of the digest of a text.
const ID_DIGITS: usize = 16;

/// One hunk of a unified diff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiffHunk<'a> {
    /// Number of lines before it in the old text.
    pub old_start: usize,
    /// Number of lines before it in the new text.
    pub new_start: usize,
    /// The lines after its header, each with its marker.
    pub lines: &'a str,
}

impl<'a> DiffHunk<'a> {
    /// Its lines without line breaks: the marker and the text of each.
    pub fn marked_lines(&self) -> impl Iterator<Item = (char, &'a str)> + use<'a> {
        self.lines.split_inclusive('\n').filter_map(|line| {
            let marker = line.chars().next()?;
            Some((
                marker,
                line.strip_suffix('\n')
                    .unwrap_or(line)
                    .get(marker.len_utf8()..)?,
            ))
        })
    }

    /// Removed and added lines with their markers.
    pub fn changed_lines(&self) -> String {
        let changed = self
            .lines
            .split_inclusive('\n')
            .filter(|line| line.starts_with(['-', '+']));
        changed.collect()
    }
}

/// The hunks of a unified diff. Lines that belong to none are ignored.
pub fn parse_hunks(diff: &str) -> Vec<DiffHunk<'_>> {
    let mut hunks: Vec<DiffHunk<'_>> = Vec::new();
    let (mut at, mut body_start) = (0, None);
    for line in diff.split_inclusive('\n') {
        let end = at + line.len();
        if let Some((old_start, new_start)) = parse_header(line) {
            hunks.push(DiffHunk {
                old_start,
                new_start,
                lines: "",
            });
            body_start = Some(end);
        } else if let (Some(start), Some(hunk)) = (body_start, hunks.last_mut()) {
            hunk.lines = &diff[start..end];
        }
        at = end;
    }
    hunks
}

/// The starts in the old and the new text: `@@ -12,3 +12,4 @@`.
fn parse_header(line: &str) -> Option<(usize, usize)> {
    let (ranges, _) = line.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let start = |range: &str| -> Option<usize> {
        let (start, length) = range.split_once(',').unwrap_or((range, "1"));
        let (start, length): (usize, usize) = (start.parse().ok()?, length.parse().ok()?);
        // An empty range names the line before it.
        Some(if length == 0 {
            start
        } else {
            start.checked_sub(1)?
        })
    };
    Some((start(old)?, start(new)?))
}

/// The ids of the hunks of a file. A file without hunks has the id of an empty one.
pub(super) fn hunk_ids(file: &ReviewedFile) -> Vec<String> {
    let hunks = parse_hunks(&file.diff);
    // The lines around a change distinguish it from an equal one in another place.
    let changes = hunks
        .iter()
        .map(|hunk| hunk.lines)
        .chain(hunks.is_empty().then_some(""));
    let mut occurrences: HashMap<&str, u32> = HashMap::new();
    changes
        .map(|lines| {
            let occurrence = occurrences.entry(lines).or_default();
            *occurrence += 1;
            let omitted = file.omitted.as_deref().unwrap_or_default();
            let parts = [&file.path, file.change.as_str(), lines, omitted].map(str::as_bytes);
            short_digest(parts.into_iter().chain([&occurrence.to_le_bytes()[..]]))
        })
        .collect()
}

/// The beginning of a digest of these parts.
pub(super) fn short_digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    digest
        .finalize()
        .iter()
        .take(ID_DIGITS / 2)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The text that results from these hunks of its diff, in their order. `None` if one does not fit `text`.
pub(super) fn apply_hunks<'a>(
    text: &str,
    hunks: impl Iterator<Item = &'a DiffHunk<'a>>,
) -> Option<String> {
    let old: Vec<&str> = text.split_inclusive('\n').collect();
    let (mut made, mut at) = (String::with_capacity(text.len()), 0);
    for hunk in hunks {
        made.extend(old.get(at..hunk.old_start)?.iter().copied());
        at = hunk.old_start;
        let mut lines = hunk.marked_lines().peekable();
        while let Some((marker, line)) = lines.next() {
            // `\ No newline at end of file` describes the line before it.
            let has_break = lines.next_if(|(marker, _)| *marker == '\\').is_none();
            match marker {
                ' ' | '-' => {
                    let present = *old.get(at)?;
                    if present.strip_suffix('\n').unwrap_or(present) != line {
                        return None;
                    }
                    at += 1;
                    if marker == ' ' {
                        made.push_str(present);
                    }
                }
                '+' => {
                    made.push_str(line);
                    if has_break {
                        made.push('\n');
                    }
                }
                _ => return None,
            }
        }
    }
    made.extend(old.get(at..)?.iter().copied());
    Some(made)
}
