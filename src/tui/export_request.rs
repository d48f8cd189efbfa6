//! Which part of the tape is exported to an editor or a pager, or copied.

use crate::{
    effect::{ExportRequest, ExportTool, PagerContent, ScreenEffect},
    entry_part::{EntryPart, PartContent, row_parts},
};
use ingestdeck_core::{
    run::state::{AttemptId, RowKind, RunView, StreamRow},
    tape::Seq,
};

/// Exports a whole attempt: all lines for an editor, messages and calls for a pager.
pub(crate) fn attempt(
    run_view: &RunView,
    attempt_id: AttemptId,
    at: Option<usize>,
    tool: ExportTool,
) -> ExportRequest {
    let entries = run_view
        .entries(attempt_id)
        .iter()
        .map(|seq| Seq(u64::from(*seq)))
        .collect();
    let rows = 0..if tool == ExportTool::Pager {
        run_view.rows(attempt_id).len()
    } else {
        0
    };
    let parts = rows
        .flat_map(|row| without_raw_lines(row_parts(run_view, attempt_id, row)))
        .collect();
    ExportRequest {
        tool,
        what: "transcript".into(),
        entries,
        pager_content: PagerContent::Parts(parts),
        selected: at,
    }
}

/// Removes the raw lines below parts that already show their content.
fn without_raw_lines(mut parts: Vec<EntryPart>) -> Vec<EntryPart> {
    if parts.iter().any(|part| part.content != PartContent::Line) {
        parts.retain(|part| part.content != PartContent::Line);
    }
    parts
}

/// Exports a row of an attempt; `None` if it has no content.
pub(crate) fn row(
    run_view: &RunView,
    attempt_id: AttemptId,
    index: usize,
    tool: ExportTool,
) -> Option<ExportRequest> {
    let parts = row_parts(run_view, attempt_id, index);
    (!parts.is_empty()).then(|| of_parts("action", &parts, tool))
}

pub(crate) fn of_parts(what: &str, parts: &[EntryPart], tool: ExportTool) -> ExportRequest {
    let lines = parts
        .iter()
        .filter(|part| part.content == PartContent::Line);
    ExportRequest {
        tool,
        what: what.to_owned(),
        entries: lines.map(|part| part.seq).collect(),
        pager_content: PagerContent::Parts(parts.to_vec()),
        selected: None,
    }
}

/// Copies the raw lines of a row.
pub(crate) fn copy_row(run_view: &RunView, row: &StreamRow) -> Vec<ScreenEffect> {
    let seqs: Vec<_> = run_view.row_entries(row).into_iter().flatten().collect();
    let what = match row.kind {
        RowKind::Tool => "call and result",
        _ if seqs.len() > 1 => "entries",
        _ => "entry",
    };
    vec![ScreenEffect::CopyEntries {
        seqs,
        what: what.to_owned(),
    }]
}

pub(crate) fn copy_entry(seqs: Vec<Seq>) -> Vec<ScreenEffect> {
    vec![ScreenEffect::CopyEntries {
        seqs,
        what: "entry".to_owned(),
    }]
}
