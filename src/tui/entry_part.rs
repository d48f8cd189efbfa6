//! Parts of entries that a document shows: which entry, and what of it.

use ingestdeck_core::{
    run::state::{AttemptId, RowKind, RowOutcome, RunView},
    tape::Seq,
};

/// Title of what a person wrote.
pub(crate) const PROMPT: &str = "prompt";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EntryPart {
    pub title: &'static str,
    /// The entry that contains the part.
    pub seq: Seq,
    /// The selected content of the entry.
    pub content: PartContent,
}

/// Content of an entry that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PartContent {
    /// The whole entry as it was recorded.
    Line,
    /// The text or the arguments of the block with this index.
    Block(u8),
    /// The result of the preceding call.
    Result,
}

/// Parts of a row: its content first, then the entries that it was made from.
pub(crate) fn row_parts(run_view: &RunView, attempt_id: AttemptId, index: usize) -> Vec<EntryPart> {
    let entries = run_view.state.entries;
    let Some(row) = run_view.rows(attempt_id).get(index) else {
        return Vec::new();
    };
    let title = match row.kind {
        RowKind::Tool => "call",
        RowKind::Text => "text",
        RowKind::Thinking => "thinking",
        RowKind::Prompt => PROMPT,
        RowKind::Denial
        | RowKind::Task
        | RowKind::Warning
        | RowKind::Notice
        | RowKind::Started
        | RowKind::Completed
        | RowKind::Note => {
            let lines = run_view.row_entries(row).into_iter().flatten();
            return lines
                .map(|seq| EntryPart {
                    title: "line",
                    seq,
                    content: PartContent::Line,
                })
                .collect();
        }
    };
    let mut parts = vec![EntryPart {
        title,
        seq: row.first(),
        content: PartContent::Block(row.block),
    }];
    let background = run_view.background_result(row);
    let last = row.last(entries).filter(|last| *last != row.first());
    if let Some(seq) = background.or(last) {
        let title = match row.end(entries) {
            _ if background.is_some() => "result",
            RowOutcome::Failed => "result, failed",
            RowOutcome::Denied => "result, denied",
            RowOutcome::Aborted => "result, cut short",
            RowOutcome::Declined => "result, declined",
            RowOutcome::Open | RowOutcome::Ok => "result",
        };
        parts.push(EntryPart {
            title,
            seq,
            content: PartContent::Result,
        });
    }
    let lines = run_view.row_entries(row).into_iter().flatten();
    parts.extend(lines.map(|seq| EntryPart {
        title: "line",
        seq,
        content: PartContent::Line,
    }));
    parts
}
