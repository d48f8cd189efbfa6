//! The page of artifacts: one row each with change, state, lines, flags and writers, or the document of one.

use ratatui::{buffer::Buffer, layout::Rect};

use super::ArtifactsPage;
use super::state::ArtifactDocument;
use crate::page::DrawContext;
use crate::theme::StyleRole;
use crate::widgets::{RowWriter, document_view, pane};
use ingestdeck_core::{
    run::artifacts::{ArtifactStatus, RunArtifact},
    tape::note::{PatchResult, attempt_output::ArtifactChange},
    text::{self, pluralize},
};

/// Columns of a row besides the path and the writers: change, state, lines and flags.
const CHANGE_WIDTH: usize = 8;
const STATE_WIDTH: usize = 11;
const LINES_WIDTH: usize = 12;
const FLAGS_WIDTH: usize = 6;
/// Narrowest row with lines, and with writers.
const MIN_WIDTH_WITH_LINES: usize = 70;
const MIN_WIDTH_WITH_UNITS: usize = 90;
/// Narrowest list next to a document: it has the column of lines.
const MIN_LIST_WIDTH: u16 = 72;
/// Narrowest page with the document of the selected artifact at the right of the list.
const MIN_WIDTH_WITH_PREVIEW: u16 = 110;

pub(crate) fn draw(scene: &DrawContext<'_>, view: &ArtifactsPage, area: Rect, buf: &mut Buffer) {
    match &view.document {
        Some(document) => draw_document(scene, view, document, area, buf),
        None => {
            let (list, preview) = split(area);
            draw_list(scene, view, list, buf);
            if let Some(preview) = preview {
                draw_preview(scene, view, preview, buf);
            }
        }
    }
}

/// The areas of the list and, if there is room, of the document of the selected artifact.
pub(crate) fn split(area: Rect) -> (Rect, Option<Rect>) {
    if area.width < MIN_WIDTH_WITH_PREVIEW {
        return (area, None);
    }
    let width = (area.width / 2).max(MIN_LIST_WIDTH);
    let list = Rect { width, ..area };
    let preview = Rect {
        x: list.right(),
        width: area.width - width,
        ..area
    };
    (list, Some(preview))
}

/// The beginning of the document of the selected artifact.
fn draw_preview(scene: &DrawContext<'_>, view: &ArtifactsPage, area: Rect, buf: &mut Buffer) {
    let path = view.selected().map_or("", |artifact| &artifact.path);
    let path = text::fit_middle(path, usize::from(area.width) / 2, scene.theme.glyphs.cut);
    let title = [(StyleRole::Text, path.as_ref())];
    let inside = pane(scene, area, false, &title, &[], buf);
    if let (Some(document), Some(_)) = (scene.cache.document(), view.selected()) {
        document_view::draw(scene, document, 0, None, None, inside, buf);
    }
}

fn draw_document(
    scene: &DrawContext<'_>,
    view: &ArtifactsPage,
    shown: &ArtifactDocument,
    area: Rect,
    buf: &mut Buffer,
) {
    let path = view
        .selected()
        .map(|artifact| text::printable(&artifact.path, 80).into_owned())
        .unwrap_or_default();
    let rows = usize::from(area.height.saturating_sub(2));
    let last = (shown.scroll + rows).min(shown.lines);
    let place = match shown.lines > rows {
        true => format!(
            " {}-{last}/{} {} % ",
            shown.scroll + 1,
            shown.lines,
            last * 100 / shown.lines
        ),
        false => format!(" {} ", pluralize(shown.lines, "line")),
    };
    let inside = pane(
        scene,
        area,
        true,
        &[(StyleRole::Strong, &path)],
        &[(StyleRole::Dim, &place)],
        buf,
    );
    if let Some(document) = scene.cache.document() {
        document_view::draw(
            scene,
            document,
            shown.scroll,
            None,
            shown.match_line,
            inside,
            buf,
        );
    }
}

fn draw_list(scene: &DrawContext<'_>, view: &ArtifactsPage, area: Rect, buf: &mut Buffer) {
    let flags: usize = view
        .listed
        .iter()
        .map(|artifact| artifact.unsourced().count())
        .sum();
    let filter = view
        .filter
        .label()
        .map(|label| format!(" · {label}"))
        .unwrap_or_default();
    let typed = if view.text.is_empty() {
        String::new()
    } else {
        format!(" · {}", text::printable(&view.text, 40))
    };
    let flagged = if flags > 0 {
        format!(" · {}", pluralize(flags, "unsourced identifier"))
    } else {
        String::new()
    };
    let count = format!(" {} of {}{filter}{typed}", view.listed.len(), view.total());
    let title = [
        (StyleRole::Strong, "artifacts"),
        (StyleRole::Dim, count.as_str()),
        (StyleRole::Warning, flagged.as_str()),
    ];
    let place = match view.listed.len() {
        0 => String::new(),
        len => format!(" {}/{len} ", view.list.selected + 1),
    };
    let inside = pane(scene, area, true, &title, &[(StyleRole::Dim, &place)], buf);
    if view.listed.is_empty() {
        let text = if view.is_filtered() {
            "no artifact matches the filter"
        } else {
            "no artifact yet"
        };
        RowWriter::row(scene, buf, inside).put(StyleRole::Dim, text);
    }
    for (y, (index, artifact)) in
        (inside.y..inside.bottom()).zip(view.listed.iter().enumerate().skip(view.list.offset))
    {
        let line = Rect {
            y,
            height: 1,
            ..inside
        };
        row(scene, artifact, line, buf);
        if index == view.list.selected {
            buf.set_style(line, scene.theme.style(StyleRole::Selected));
        }
    }
}

fn row(scene: &DrawContext<'_>, artifact: &RunArtifact, area: Rect, buf: &mut Buffer) {
    let width = usize::from(area.width);
    let has_lines = width >= MIN_WIDTH_WITH_LINES;
    let has_units = width >= MIN_WIDTH_WITH_UNITS;
    let fixed = CHANGE_WIDTH + STATE_WIDTH + FLAGS_WIDTH + if has_lines { LINES_WIDTH } else { 0 };
    let room = width.saturating_sub(fixed + 1);
    let path_width = if has_units { room * 3 / 5 } else { room };
    let mut pen = RowWriter::row(scene, buf, area);
    let (role, change) = match artifact.change {
        Some(ArtifactChange::Created) => (StyleRole::Succeeded, "created"),
        Some(ArtifactChange::Updated) => (StyleRole::Text, "updated"),
        Some(ArtifactChange::Removed) => (StyleRole::Failed, "removed"),
        None => (StyleRole::Dim, "?"),
    };
    pen.cell(role, change, CHANGE_WIDTH);
    let path = if has_lines {
        &artifact.path
    } else {
        short_path(&artifact.path)
    };
    let path = text::fit_middle(path, path_width, scene.theme.glyphs.cut);
    pen.cell(StyleRole::Text, &path, path_width);
    pen.skip(1);
    pen.cell(
        state_role(artifact.state),
        artifact.state.label(),
        STATE_WIDTH,
    );
    if has_lines {
        let lines = artifact.lines().map_or_else(
            || "?".to_owned(),
            |it| format!("+{} -{}", it.added, it.removed),
        );
        pen.cell(StyleRole::Dim, &lines, LINES_WIDTH);
    }
    let flags = artifact.unsourced().count();
    let flags = if flags > 0 {
        format!("! {flags}")
    } else {
        String::new()
    };
    pen.cell(StyleRole::Warning, &flags, FLAGS_WIDTH);
    if has_units {
        let units: Vec<String> = artifact
            .effective_writers()
            .map(|writer| format!("{}#{}", writer.unit, writer.attempt))
            .collect();
        pen.put(StyleRole::Dim, &text::one_row(&units.join(", "), 300));
    }
}

/// The path without its first directories, which are the same for all pages and all sources.
fn short_path(path: &str) -> &str {
    ["wiki/global/", "semantic-layer/"]
        .iter()
        .find_map(|folder| path.strip_prefix(folder))
        .unwrap_or(path)
}

/// The role in which a state is drawn.
pub(crate) fn state_role(state: ArtifactStatus) -> StyleRole {
    match state {
        ArtifactStatus::Pending => StyleRole::Queued,
        ArtifactStatus::Integration(PatchResult::Accepted | PatchResult::Noop) => {
            StyleRole::Running
        }
        ArtifactStatus::Integration(_) | ArtifactStatus::Discarded | ArtifactStatus::Rejected => {
            StyleRole::Failed
        }
        ArtifactStatus::Saved => StyleRole::Succeeded,
        ArtifactStatus::Replaced => StyleRole::Dim,
    }
}
