//! The review page: the changed files with their decisions, and the diff of the selected one.

use std::collections::BTreeSet;

use ratatui::{buffer::Buffer, layout::Rect};

use super::ReviewLine;
use super::ReviewPage;
use super::state::DIFF_INDENT;
use super::state::DiffRow;
use super::state::decision_of;
use super::state::diff_rows;
use super::state::shown_rows;
use crate::page::DrawContext;
use crate::theme::StyleRole;
use crate::widgets::{RowWriter, pane};
use ingestdeck_core::{
    run::{
        artifacts::{action_raw_files, is_action_of},
        review::ReviewState,
        state::RunState,
        verification::file_verification,
    },
    tape::note::{ReviewDecision, ReviewedFile},
    text::{self, pluralize},
};

/// Columns of the number of a line.
const NUMBER_WIDTH: usize = DIFF_INDENT - 3;

pub(crate) fn draw(scene: &DrawContext<'_>, view: &ReviewPage, area: Rect, buf: &mut Buffer) {
    let Some(review) = scene.run_view.state.publication.review.as_deref() else {
        let inside = pane(
            scene,
            area,
            true,
            &[(StyleRole::Strong, "review")],
            &[],
            buf,
        );
        RowWriter::row(scene, buf, inside).put(StyleRole::Dim, "no changes wait for a review");
        return;
    };
    let [list, diff] = view.areas(area);
    draw_list(scene, view, review, list, buf);
    draw_diff(scene, view, review, diff, buf);
}

fn draw_list(
    scene: &DrawContext<'_>,
    view: &ReviewPage,
    review: &ReviewState,
    area: Rect,
    buf: &mut Buffer,
) {
    let counts = review.counts();
    let files = pluralize(review.files.len(), "file");
    let state = match review.is_waiting {
        true => format!(" {files} · {} open", counts.open),
        false if scene.run_view.state.is_review_interrupted() => {
            format!(" {files} · continues after the retry")
        }
        false => format!(" {files} · over"),
    };
    let position = format!(
        " {}/{} ",
        (view.list.selected + 1).min(view.lines.len()),
        view.lines.len()
    );
    let title = [(StyleRole::Strong, "review"), (StyleRole::Dim, &*state)];
    let inside = pane(
        scene,
        area,
        !view.in_diff,
        &title,
        &[(StyleRole::Dim, &position)],
        buf,
    );
    for (y, (index, line)) in
        (inside.y..inside.bottom()).zip(view.lines.iter().enumerate().skip(view.list.offset))
    {
        let row = Rect {
            y,
            height: 1,
            ..inside
        };
        draw_line(scene, review, *line, row, buf);
        if index == view.list.selected {
            buf.set_style(row, scene.theme.style(StyleRole::Selected));
        }
    }
}

fn draw_line(
    scene: &DrawContext<'_>,
    review: &ReviewState,
    line: ReviewLine,
    area: Rect,
    buf: &mut Buffer,
) {
    let Some(file) = review.request.files.get(line.file()) else {
        return;
    };
    let decision = decision_of(review, line);
    let (role, mark) = decision_mark(scene, decision);
    let mut pen = RowWriter::row(scene, buf, area);
    let blocked = scene
        .run_view
        .state
        .publication
        .blocked_reason(&file.path)
        .filter(|_| review.is_waiting);
    let feedback = feedback_of(review, line).filter(|_| blocked.is_none());
    match line {
        ReviewLine::File(_) => {
            pen.cell(role, mark, 2);
            let (added, removed) = changed_lines(file);
            let figures = format!(" +{added} -{removed}");
            // The reason is worth more than the middle of a path.
            let taken = if blocked.is_some() {
                usize::from(area.width) / 2
            } else {
                0
            };
            let width = usize::from(area.width).saturating_sub(2 + figures.len() + taken);
            pen.put(
                StyleRole::Text,
                &text::fit_middle(&file.path, width, scene.theme.glyphs.cut),
            );
            pen.put(StyleRole::Dim, &figures);
        }
        ReviewLine::Hunk { file: index, hunk } => {
            pen.skip(4);
            pen.cell(role, mark, 2);
            let rows = diff_rows(&file.diff);
            let first = rows
                .iter()
                .find(|row| row.hunk == hunk && matches!(row.marker, '+' | '-'));
            let of = review.files.get(index).map_or(0, |file| file.hunks.len());
            pen.put(StyleRole::Dim, &format!("{}/{of} ", hunk + 1));
            pen.put(
                StyleRole::Text,
                &text::one_row(first.map_or("", |row| row.text), 200),
            );
        }
    }
    if let (Some(reason), ReviewLine::File(_)) = (blocked, line) {
        pen.put(StyleRole::Failed, &format!("  blocked: {reason}"));
    }
    if let Some(feedback) = feedback {
        pen.put(
            StyleRole::Dim,
            &format!("  {}", text::one_row(&feedback, 200)),
        );
    }
}

fn feedback_of(review: &ReviewState, line: ReviewLine) -> Option<String> {
    let hunks = &review.files.get(line.file())?.hunks;
    let hunk = match line {
        ReviewLine::File(_) => hunks.first().filter(|_| hunks.len() == 1)?,
        ReviewLine::Hunk { hunk, .. } => hunks.get(hunk)?,
    };
    if let Some(feedback) = hunk.ignored_feedback() {
        return Some(format!("unchanged since it was sent back: {feedback}"));
    }
    let text = hunk.reason.as_ref().or(hunk.feedback.as_ref())?;
    Some(text.to_string())
}

fn decision_mark(
    scene: &DrawContext<'_>,
    decision: Option<ReviewDecision>,
) -> (StyleRole, &'static str) {
    let ascii = scene.theme.glyphs.is_ascii();
    let sign = |plain, glyph| if ascii { plain } else { glyph };
    match decision {
        Some(ReviewDecision::Open) => (StyleRole::Warning, sign("?", "○")),
        Some(ReviewDecision::Accepted) => (StyleRole::Succeeded, sign("v", "✓")),
        Some(ReviewDecision::Rejected) => (StyleRole::Failed, sign("x", "✗")),
        Some(ReviewDecision::Edited) => (StyleRole::Succeeded, sign("e", "✎")),
        Some(ReviewDecision::SentBack) => (StyleRole::Warning, sign("<", "↩")),
        None => (StyleRole::Dim, sign("~", "◐")),
    }
}

/// Numbers of added and removed lines.
fn changed_lines(file: &ReviewedFile) -> (usize, usize) {
    let rows = diff_rows(&file.diff);
    let count = |marker| rows.iter().filter(|row| row.marker == marker).count();
    (count('+'), count('-'))
}

fn draw_diff(
    scene: &DrawContext<'_>,
    view: &ReviewPage,
    review: &ReviewState,
    area: Rect,
    buf: &mut Buffer,
) {
    let line = view.selected();
    let file = line.and_then(|line| review.request.files.get(line.file()));
    let Some((line, file)) = line.zip(file) else {
        return;
    };
    let units: Vec<&str> = file.units.iter().map(|unit| unit.as_str()).collect();
    let title = format!(
        " {} by {}",
        file.change.as_str(),
        text::one_row(&units.join(", "), 200)
    );
    let path = text::fit_middle(
        &file.path,
        usize::from(area.width / 2),
        scene.theme.glyphs.cut,
    );
    let inside = pane(
        scene,
        area,
        view.in_diff,
        &[(StyleRole::Strong, &path), (StyleRole::Dim, &title)],
        &[],
        buf,
    );
    let inside = draw_basis(scene, file, inside, buf);
    let is_edited = review
        .files
        .get(line.file())
        .is_some_and(|file| file.edited.is_some());
    let rows = shown_rows(review, line.file());
    if rows.is_empty() {
        let why = if file.omitted.is_some() {
            "the diff is too long to be shown"
        } else {
            "the file is empty"
        };
        RowWriter::row(scene, buf, inside).put(StyleRole::Dim, why);
    }
    let mut y = inside.y;
    for (index, row) in rows.iter().enumerate().skip(view.diff_offset) {
        if y >= inside.bottom() {
            break;
        }
        let is_other =
            !is_edited && matches!(line, ReviewLine::Hunk { hunk, .. } if hunk != row.hunk);
        let top = y;
        y = draw_row(
            scene,
            row,
            is_other,
            Rect {
                y,
                height: inside.bottom() - y,
                ..inside
            },
            buf,
        );
        if view.in_diff && index == view.diff_row {
            buf.set_style(
                Rect {
                    y: top,
                    height: y - top,
                    ..inside
                },
                scene.theme.style(StyleRole::Selected),
            );
        }
    }
}

/// Paints what the change of a file rests on, the identifiers that its agents never received, and what answers prove about
/// its tables and columns. Returns the area below.
fn draw_basis(scene: &DrawContext<'_>, file: &ReviewedFile, area: Rect, buf: &mut Buffer) -> Rect {
    let state = &scene.run_view.state;
    let (raw_files, unsourced) = basis(state, file);
    let names = file_verification(state, file);
    let contradicted = names.contradictions().collect();
    let lines = [
        (StyleRole::Text, "rests on", raw_files),
        (StyleRole::Warning, "unsourced", unsourced),
        (StyleRole::Warning, "contradicted", contradicted),
        (StyleRole::Text, "unverified", names.unverified),
        (StyleRole::Text, "verified", names.verified),
    ];
    let mut rest = area;
    for (role, label, names) in lines.into_iter().filter(|(.., names)| !names.is_empty()) {
        if rest.height < 7 {
            break;
        }
        let mut pen = RowWriter::row(scene, buf, Rect { height: 1, ..rest });
        pen.put(StyleRole::Dim, &format!("{label} "));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        pen.put(role, &text::one_row(&names.join(", "), 300));
        (rest.y, rest.height) = (rest.y + 1, rest.height - 1);
    }
    rest
}

/// The raw files that the change of `file` rests on, and its unsourced identifiers.
fn basis(state: &RunState, file: &ReviewedFile) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut raw_files, mut unsourced) = (BTreeSet::new(), BTreeSet::new());
    for unit in state
        .units
        .iter()
        .filter(|unit| file.units.contains(&unit.key))
    {
        let Some(work) = state.work(unit).or_else(|| state.committed_work(unit)) else {
            continue;
        };
        for action in work
            .actions
            .iter()
            .filter(|action| is_action_of(action, &file.path))
        {
            raw_files.extend(
                action_raw_files(unit, action)
                    .into_iter()
                    .map(|(_, path)| path.to_owned()),
            );
        }
        let names = work
            .unsourced
            .iter()
            .flatten()
            .filter(|identifier| identifier.path == file.path);
        unsourced.extend(names.map(|identifier| identifier.name.clone()));
    }
    (raw_files, unsourced)
}

/// Paints a row of the diff, wrapped. Returns the next free row.
fn draw_row(
    scene: &DrawContext<'_>,
    row: &DiffRow<'_>,
    is_other: bool,
    area: Rect,
    buf: &mut Buffer,
) -> u16 {
    let role = match row.marker {
        _ if is_other => StyleRole::Dim,
        '+' | '=' => StyleRole::Succeeded,
        '-' => StyleRole::Failed,
        _ => StyleRole::Dim,
    };
    if row.marker == '@' {
        RowWriter::row(scene, buf, area)
            .put(role, &format!("{:>NUMBER_WIDTH$}", scene.theme.glyphs.cut));
        return area.y + 1;
    }
    let width = usize::from(area.width).saturating_sub(DIFF_INDENT).max(1);
    let mut y = area.y;
    for (index, line) in text::wrap(row.text, width).iter().enumerate() {
        if y >= area.bottom() {
            break;
        }
        let mut pen = RowWriter::row(
            scene,
            buf,
            Rect {
                y,
                height: 1,
                ..area
            },
        );
        if index == 0 {
            pen.put(StyleRole::Dim, &format!("{:>NUMBER_WIDTH$} ", row.line));
            pen.put(role, &format!("{} {line}", row.marker));
        } else {
            pen.skip(DIFF_INDENT);
            pen.put(role, line);
        }
        y += 1;
    }
    // An empty line takes a row, too.
    if y == area.y {
        RowWriter::row(scene, buf, area).put(
            StyleRole::Dim,
            &format!("{:>NUMBER_WIDTH$} {}", row.line, row.marker),
        );
        y += 1;
    }
    y
}
