//! Renders the screen as a pure function of its state. One file for each part.
//!
//! Views read and paint. They change no state and know no clock and no terminal; their cost depends on the visible
//! content, not on the size of the run. All text goes through [`RowWriter`], the only way to write to a cell, which
//! escapes it.

pub(crate) mod amend;
pub(crate) mod artifacts;
pub(crate) mod bookmarks;
pub(crate) mod breakpoints;
pub(crate) mod compare;
pub(crate) mod dialog;
pub(crate) mod document_view;
pub(crate) mod entry;
pub(crate) mod failure_groups;
pub(crate) mod find;
pub(crate) mod footer;
pub(crate) mod grid;
pub(crate) mod header;
pub(crate) mod help;
pub(crate) mod home;
pub(crate) mod inspect;
pub(crate) mod lanes;
pub(crate) mod log;
pub(crate) mod review;
pub(crate) mod row_writer;
mod search_marks;
pub(crate) mod stream;
pub(crate) mod timeline_bar;
pub(crate) mod transcript;
pub(crate) mod units;
mod wide_cells;

use ratatui::{buffer::Buffer, layout::Rect, style::Style};

pub(crate) use row_writer::RowWriter;
use row_writer::key_names;
pub use wide_cells::{WideRows, close_wide_cells};

use super::{
    actions::screen,
    cache::ScreenCache,
    layout::{self, ScreenLayout},
    model::{ClickTargets, InputPurpose, OverlayView, ScreenModel},
    theme::{StyleRole, Theme},
};
use ingestdeck_core::{
    run::{ActivityIndex, SourceInfo, state::RunView},
    text,
};

/// Everything that a draw reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrawContext<'a> {
    pub model: &'a ScreenModel,
    pub run_view: &'a RunView,
    /// Activity of the run over time.
    pub activity: &'a ActivityIndex,
    /// Loaded bodies of the visible entries.
    pub cache: &'a ScreenCache,
    pub theme: &'a Theme,
    pub source: &'a SourceStatus,
    /// Receives what the mouse can act on.
    pub targets: &'a ClickTargets,
    /// Receives the rows with wide characters; a widget that writes text must add its area.
    pub wide_rows: &'a WideRows,
    /// True while the pane next to the list keeps its previous content. It must not be painted then.
    pub is_side_pane_kept: bool,
}

/// Facts about the source of the entries.
#[derive(Clone, Debug)]
pub(crate) struct SourceStatus {
    pub origin: SourceInfo,
    /// Number of entries read so far.
    pub known_entries: u64,
    /// Bytes read, and total bytes if known.
    pub position: (u64, Option<u64>),
    /// True if no more entries are available now.
    pub at_end: bool,
    /// True while a live run is read up to its present: the moment that is shown is an old one.
    pub is_catching_up: bool,
    /// True if no more entries will follow.
    pub ended: bool,
    /// Why reading failed, if it did.
    pub read_error: Option<String>,
}

impl SourceStatus {
    /// The share of the source that is read, in percent; `None` if all of it is read, or its size is unknown.
    pub(crate) fn percent_read(&self) -> Option<u64> {
        let (read, total) = self.position;
        let total = total.filter(|total| !self.at_end && *total > 0)?;
        Some(read.min(total).saturating_mul(100) / total)
    }
}

pub(crate) fn draw(scene: &DrawContext<'_>, buf: &mut Buffer) {
    let plan = scene.model.layout();
    let area = plan.area.intersection(buf.area);
    if area.is_empty() {
        return;
    }
    let style = scene.theme.style(StyleRole::Text);
    if style != Style::default() {
        for cell in &mut buf.content {
            cell.set_style(style);
        }
    }
    paint(scene, area, &plan, buf);
    close_wide_cells(buf, scene.wide_rows.take());
}

fn paint(scene: &DrawContext<'_>, area: Rect, plan: &ScreenLayout, buf: &mut Buffer) {
    if plan.is_too_small() {
        too_small_notice(scene, area, buf);
        return;
    }
    match scene.model.views.first() {
        Some(OverlayView::Home(view)) => home::draw_header(scene, view, plan.header, buf),
        _ => header::draw(scene, plan.header, buf),
    }
    match scene.model.views.last() {
        None => {
            if let Some(area) = plan.units {
                units::draw(scene, area, buf);
            }
            if let Some(area) = plan.stream.filter(|_| !scene.is_side_pane_kept) {
                stream::draw(scene, area, buf);
            }
        }
        Some(OverlayView::Transcript(view)) => transcript::draw(scene, view, plan.body, buf),
        Some(OverlayView::Entry(view)) => entry::draw(scene, view, plan.body, buf),
        Some(OverlayView::Compare(view)) => compare::draw(scene, view, plan.body, buf),
        Some(OverlayView::Inspect(view)) => inspect::draw(scene, view, plan.body, buf),
        Some(OverlayView::Help(view)) => help::draw(scene, view, plan.body, buf),
        Some(OverlayView::Log(list)) => log::draw(scene, list, plan.body, buf),
        Some(OverlayView::Grid) => grid::draw(scene, plan.body, buf),
        Some(OverlayView::Breakpoints(list)) => breakpoints::draw(scene, list, plan.body, buf),
        Some(OverlayView::Bookmarks(list)) => bookmarks::draw(scene, list, plan.body, buf),
        Some(OverlayView::FailureGroups(view)) => failure_groups::draw(scene, view, plan.body, buf),
        Some(OverlayView::Find(view)) => find::draw(scene, view, plan.body, buf),
        Some(OverlayView::Home(view)) => home::draw(scene, view, plan.body, buf),
        Some(OverlayView::Lanes(view)) => lanes::draw(scene, view, plan.body, buf),
        Some(OverlayView::Review(view)) => review::draw(scene, view, plan.body, buf),
        Some(OverlayView::Artifacts(view)) => artifacts::draw(scene, view, plan.body, buf),
    }
    search_marks::draw(scene, plan, buf);
    timeline_bar::draw(scene, plan.bar, buf);
    footer::draw(scene, plan.footer, buf);
    if let Some(typed) = scene
        .model
        .dialogs
        .line_input
        .as_ref()
        .filter(|typed| typed.purpose == InputPurpose::Command)
    {
        dialog::commands(scene, &typed.text, plan.body, buf);
    }
    dialog::message(scene, plan, buf);
    if let Some(editor) = &scene.model.dialogs.editor {
        dialog::editor(scene, editor, plan.body, buf);
    }
    if let Some(form) = &scene.model.dialogs.amend_form {
        amend::draw(scene, form, plan.body, buf);
    }
    if let Some(question) = &scene.model.dialogs.question {
        dialog::question(scene, question, plan.body, buf);
    }
}

/// Paints which size is missing, and the keys that work without it: as much of that as fits.
fn too_small_notice(scene: &DrawContext<'_>, area: Rect, buf: &mut Buffer) {
    let ((width, height), (least_width, least_height)) = (scene.model.size, layout::MIN_SIZE);
    let keymap = &scene.model.keymap;
    let keys: Vec<String> = screen::unseen_hints(scene.model, scene.run_view)
        .into_iter()
        .filter_map(|(action, effect)| {
            Some(format!(
                "{} {effect}",
                key_names(scene, &keymap.first(action)?)
            ))
        })
        .collect();
    let first = keys.first().map_or("", String::as_str);
    let notices = [
        format!(
            "terminal too small: {width}×{height}, least {least_width}×{least_height}; {}",
            keys.join("; ")
        ),
        format!("too small; {}", keys.join("; ")),
        format!("too small; {first}"),
        first.split(';').next().unwrap_or_default().to_owned(),
    ];
    let wrapped = |notice: &String| text::wrap(notice, usize::from(area.width));
    let fits = |rows: &Vec<_>| rows.len() <= usize::from(area.height);
    let rows = notices
        .iter()
        .map(wrapped)
        .find(fits)
        .or_else(|| notices.last().map(wrapped));
    for (y, row) in (area.y..area.bottom()).zip(rows.unwrap_or_default()) {
        RowWriter::row(
            scene,
            buf,
            Rect {
                y,
                height: 1,
                ..area
            },
        )
        .put(StyleRole::Warning, &row);
    }
}

/// Paints a progress bar of `width` columns. A part that is not empty is visible.
fn progress(
    scene: &DrawContext<'_>,
    done: usize,
    total: usize,
    width: usize,
    pen: &mut RowWriter<'_>,
) {
    let [full, rest, ..] = scene.theme.glyphs.progress;
    let filled = (width * done).checked_div(total).unwrap_or_default();
    let filled = filled
        .max(usize::from(done > 0))
        .min(width - usize::from(done < total).min(width));
    pen.repeat(StyleRole::Succeeded, full, filled);
    pen.repeat(StyleRole::Border, rest, width - filled);
}

/// Paints a border with a title at the left and one at the right end. Returns the area inside.
pub(crate) fn pane(
    scene: &DrawContext<'_>,
    area: Rect,
    focus: bool,
    title: &[(StyleRole, &str)],
    right: &[(StyleRole, &str)],
    buf: &mut Buffer,
) -> Rect {
    if area.width < 2 || area.height < 2 {
        return Rect {
            width: 0,
            height: 0,
            ..area
        };
    }
    let role = if focus {
        StyleRole::Focus
    } else {
        StyleRole::Border
    };
    let [top_left, top_right, bottom_left, bottom_right, side, flat] = scene.theme.glyphs.frame;
    let last = area.bottom() - 1;
    for (y, left, end) in [
        (area.y, top_left, top_right),
        (last, bottom_left, bottom_right),
    ] {
        let mut pen = RowWriter::row(
            scene,
            buf,
            Rect {
                y,
                height: 1,
                ..area
            },
        );
        pen.repeat(role, left, 1);
        pen.repeat(role, flat, usize::from(area.width) - 2);
        pen.repeat(role, end, 1);
    }
    for y in area.y + 1..last {
        let mut pen = RowWriter::row(
            scene,
            buf,
            Rect {
                y,
                height: 1,
                ..area
            },
        );
        pen.repeat(role, side, 1);
        pen.skip(usize::from(area.width) - 2);
        pen.repeat(role, side, 1);
    }
    let mut line = RowWriter::row(
        scene,
        buf,
        Rect {
            x: area.x + 1,
            width: area.width - 2,
            height: 1,
            y: area.y,
        },
    );
    line.end_with(right);
    if !title.is_empty() {
        line.put(role, " ");
        for (role, text) in title {
            line.put(*role, text);
        }
        line.put(role, " ");
    }
    layout::inner(area)
}
