//! The document of an artifact: what became of it, its history, unsourced and verified identifiers, and the changes by its
//! calls.

use std::collections::BTreeSet;

use super::{blocks, bytes, call_as_run, edited, file_change, read};
use crate::{document::DocumentBlock, pages::artifacts::view::state_role, theme::StyleRole};
use ingestdeck_core::{
    decode::{self, MessageBlock},
    run::{
        Timeline,
        artifacts::{ArtifactWriter, RunArtifact},
        state::{AttemptId, RowKind, RowOutcome, StreamRow},
        verification::VerifiedNames,
    },
    tape::note::attempt_output::{ArtifactChange, UnsourcedIdentifier},
};

/// Rows of an attempt that are searched for its writing calls.
const MAX_ROWS: usize = 4_000;
/// Characters of a commit that are shown.
const SHORT_COMMIT_CHARS: usize = 12;
/// Bytes that are read in that search.
const MAX_BYTES: usize = 16 * 1024 * 1024;

pub(super) fn artifact_blocks(
    timeline: &mut Timeline,
    artifact: &RunArtifact,
) -> Vec<DocumentBlock> {
    let mut pieces = facts(artifact);
    let unsourced: Vec<_> = artifact.unsourced().collect();
    if !unsourced.is_empty() {
        pieces.push(DocumentBlock::BlankLine);
        pieces.push(DocumentBlock::section("unsourced identifiers", None));
        let line = |flag: &&UnsourcedIdentifier| {
            let declared = if flag.declared {
                ", declared as unverified"
            } else {
                ""
            };
            let text = format!("! line {}: {}{declared}", flag.line, flag.name);
            DocumentBlock::line(StyleRole::Warning, text)
        };
        pieces.extend(unsourced.iter().map(line));
    }
    pieces.extend(verification(&artifact.verification()));
    pieces.push(DocumentBlock::BlankLine);
    pieces.push(DocumentBlock::section("attempts", None));
    pieces.extend(artifact.writers.iter().flat_map(history));
    for writer in artifact.effective_writers() {
        pieces.extend(changes(timeline, artifact, writer));
    }
    pieces
}

/// The tables and columns by what answers prove about them.
fn verification(names: &VerifiedNames) -> Vec<DocumentBlock> {
    if names.is_empty() {
        return Vec::new();
    }
    let list = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
    let mut pieces = vec![
        DocumentBlock::BlankLine,
        DocumentBlock::section("tables and columns", None),
    ];
    let contradictions = names.contradictions();
    pieces.extend(
        contradictions.map(|it| DocumentBlock::fact("contradicted", StyleRole::Warning, it)),
    );
    for (state, names) in [
        ("unverified", &names.unverified),
        ("verified", &names.verified),
    ] {
        if !names.is_empty() {
            pieces.push(DocumentBlock::fact(state, StyleRole::Text, list(names)));
        }
    }
    pieces
}

fn facts(artifact: &RunArtifact) -> Vec<DocumentBlock> {
    let mut title = vec![(
        state_role(artifact.state),
        artifact.state.label().to_owned(),
    )];
    title.extend(
        artifact
            .change
            .map(|change| (StyleRole::Text, change.as_str().to_owned())),
    );
    if let Some(lines) = artifact.lines() {
        title.push((StyleRole::Succeeded, format!("+{}", lines.added)));
        title.push((StyleRole::Failed, format!("-{}", lines.removed)));
    }
    let mut pieces = vec![DocumentBlock::titled(
        "artifact",
        artifact.path.clone(),
        title,
        None,
    )];
    let mut fact =
        |name: &str, role, text: String| pieces.push(DocumentBlock::fact(name, role, text));
    if let Some(commit) = &artifact.commit {
        fact(
            "commit",
            StyleRole::Text,
            commit.chars().take(SHORT_COMMIT_CHARS).collect(),
        );
    }
    let files: Vec<String> = artifact
        .raw_files
        .iter()
        .map(|file| format!("{}/{}", file.connection, file.path))
        .collect();
    let files = if files.is_empty() {
        "none on record".to_owned()
    } else {
        files.join(", ")
    };
    fact("raw files", StyleRole::Text, files);
    if let Some(shared) = &artifact.shared {
        let role = if shared.was_merged {
            StyleRole::Warning
        } else {
            StyleRole::Text
        };
        fact("shared", role, shared.to_string());
    }
    pieces
}

fn history(writer: &ArtifactWriter) -> Vec<DocumentBlock> {
    let name = match writer.attempt {
        0 => writer.unit.to_string(),
        number => format!("{}, attempt {number}", writer.unit),
    };
    let mut runs = vec![
        (StyleRole::Text, format!("  {name}  ")),
        (state_role(writer.state), writer.state.label().to_owned()),
    ];
    let change = writer.change.map_or("", ArtifactChange::as_str);
    let lines = writer
        .lines
        .map(|lines| format!(" +{} -{}", lines.added, lines.removed))
        .unwrap_or_default();
    runs.push((StyleRole::Dim, format!("  {change}{lines}")));
    let mut pieces = vec![DocumentBlock::Spans {
        indent: 0,
        hang: 4,
        runs,
    }];
    if let Some(reason) = &writer.reason {
        let runs = vec![(StyleRole::Failed, reason.clone())];
        pieces.push(DocumentBlock::Spans {
            indent: 4,
            hang: 4,
            runs,
        });
    }
    pieces
}

/// The changes by each call of an attempt that wrote the artifact.
fn changes(
    timeline: &mut Timeline,
    artifact: &RunArtifact,
    writer: &ArtifactWriter,
) -> Vec<DocumentBlock> {
    let units = &timeline.view().state.units;
    let unit = units.iter().find(|unit| unit.key == writer.unit);
    let attempt = unit.and_then(|unit| {
        unit.attempts
            .iter()
            .find(|attempt| attempt.number == writer.attempt)
    });
    let Some(attempt_id) = attempt.map(|attempt| attempt.id) else {
        return Vec::new();
    };
    let mut pieces = Vec::new();
    for WritingRow { row, write, .. } in writing_calls(timeline, attempt_id, artifact, writer) {
        let is_new = pieces.is_empty() && writer.change == Some(ArtifactChange::Created);
        let original = is_new.then(String::new);
        pieces.push(DocumentBlock::BlankLine);
        pieces.extend(file_change::write_blocks(
            timeline,
            attempt_id,
            row,
            &write,
            RowOutcome::Ok,
            original,
        ));
    }
    if pieces.is_empty() {
        pieces.push(DocumentBlock::BlankLine);
        pieces.push(DocumentBlock::line(
            StyleRole::Dim,
            "the calls that wrote it are not on this record",
        ));
    }
    pieces
}

/// A successful call that wrote an artifact.
pub(super) struct WritingRow {
    /// Index of its row in the attempt.
    pub(super) row: usize,
    /// Id of the call in the stream.
    pub(super) id: String,
    pub(super) write: file_change::FileWrite,
}

/// The successful calls of an attempt that wrote the artifact: by their ids, or on tapes without ids by their target.
pub(super) fn writing_calls(
    timeline: &mut Timeline,
    attempt_id: AttemptId,
    artifact: &RunArtifact,
    writer: &ArtifactWriter,
) -> Vec<WritingRow> {
    let entries = timeline.view().state.entries;
    let rows: Vec<_> = timeline
        .view()
        .rows(attempt_id)
        .iter()
        .copied()
        .enumerate()
        .collect();
    let is_call = |row: &StreamRow| row.kind == RowKind::Tool && row.end(entries) == RowOutcome::Ok;
    let name = artifact
        .path
        .rsplit('/')
        .next()
        .and_then(|file| file.rsplit_once('.'))
        .map_or("", |(stem, _)| stem);
    let (mut found, mut spent) = (Vec::new(), 0);
    for (index, row) in rows
        .into_iter()
        .filter(|(_, row)| is_call(row))
        .take(MAX_ROWS)
    {
        if spent > MAX_BYTES {
            break;
        }
        let edited = edited(timeline, row.first(), row.block);
        let write = read(timeline, row.first(), |arrived| {
            let raw = bytes(&arrived.body);
            spent += raw.len();
            let line = decode::decode_line(raw);
            let Some(MessageBlock::ToolUse(call)) = blocks(&line).get(usize::from(row.block))
            else {
                return None;
            };
            let is_recorded = writer.call_ids.iter().any(|id| *id == call.id);
            let write = file_change::write_of(&call_as_run(call, edited.as_deref()))?;
            let is_target = || write.target.rsplit('/').next() == Some(name);
            let is_wanted = is_recorded || writer.call_ids.is_empty() && is_target();
            is_wanted.then(|| WritingRow {
                row: index,
                id: call.id.to_string(),
                write,
            })
        });
        found.extend(write.ok().flatten());
    }
    found
}
