//! The inspector: attempts and panels as tabs, and actions next to the details of the selected one.

use ratatui::{buffer::Buffer, layout::Rect};

use super::InspectPage;
use super::InspectPanel;
use super::state::InspectSide;
use crate::page::DrawContext;
use crate::widgets::{RowWriter, document_view, pane, stream};
use crate::{layout, model::ClickAction, theme::StyleRole};
use ingestdeck_core::{run::state::UnitState, tape::UnitKey, text};

/// Columns of the list of actions from which it shows their times.
const MIN_TIMED: u16 = 48;

pub(crate) fn draw(scene: &DrawContext<'_>, view: &InspectPage, area: Rect, buf: &mut Buffer) {
    let rows = view
        .attempt_id(scene.run_view)
        .map_or(&[][..], |attempt_id| scene.run_view.rows(attempt_id));
    let shown = view.shown(scene.run_view).map(|(index, _)| index);
    frame(
        scene,
        &view.unit,
        shown,
        Some(view.panel),
        &place(view, rows.len()),
        area,
        buf,
    );
    let areas = view.areas(area);
    if let Some(list) = areas.actions {
        actions(scene, view, list, buf);
    }
    if let Some(rule) = areas.rule {
        let [.., side, flat] = scene.theme.glyphs.frame;
        for y in rule.y..rule.bottom() {
            let sign = if rule.width == 1 { side } else { flat };
            let mut pen = RowWriter::row(
                scene,
                buf,
                Rect {
                    y,
                    height: 1,
                    ..rule
                },
            );
            pen.repeat(StyleRole::Border, sign, usize::from(rule.width));
        }
    }
    if let Some(detail) = areas.detail.filter(|_| !scene.is_side_pane_kept) {
        let focus = !view.is_list();
        match scene.cache.document().filter(|_| view.document.lines > 0) {
            Some(document) => {
                let selected = focus.then_some(view.lines.selected);
                document_view::draw(
                    scene,
                    document,
                    view.lines.offset,
                    selected,
                    view.match_line,
                    detail,
                    buf,
                );
            }
            None if rows.is_empty() => {
                RowWriter::row(scene, buf, detail).put(StyleRole::Dim, "no output yet")
            }
            None => {}
        }
    }
}

/// Paints what all panels share: the title, the attempts and the panels. `panel` is `None` for the wire.
pub(crate) fn frame(
    scene: &DrawContext<'_>,
    key: &UnitKey,
    shown: Option<usize>,
    panel: Option<InspectPanel>,
    place: &str,
    area: Rect,
    buf: &mut Buffer,
) {
    let unit = scene
        .run_view
        .state
        .units
        .iter()
        .find(|unit| unit.key == *key);
    let key = text::printable(key, 60);
    let attempt =
        unit.and_then(|unit| shown.and_then(|shown| Some((shown, unit.attempts.get(shown)?))));
    let (role, sign, state) = unit.map_or((StyleRole::Text, "", String::new()), |unit| {
        stream::state(scene, unit, attempt)
    });
    let title = [
        (role, sign),
        (StyleRole::Text, " "),
        (StyleRole::Strong, key.as_ref()),
        (StyleRole::Text, " "),
        (role, state.as_str()),
        (StyleRole::Dim, " inspector"),
    ];
    pane(scene, area, true, &title, &[(StyleRole::Dim, place)], buf);
    let [attempts, panels, _] = layout::inspector_areas(area);
    if panels.height == 0 {
        return;
    }
    if let Some(unit) = unit {
        self::attempts(scene, unit, shown, attempts, buf);
    }
    self::panels(scene, panel, panels, buf);
}

/// Paints the attempts of a unit as tabs with the signs of their states, and the session of the shown one.
fn attempts(
    scene: &DrawContext<'_>,
    unit: &UnitState,
    shown: Option<usize>,
    area: Rect,
    buf: &mut Buffer,
) {
    let mut pen = RowWriter::row(scene, buf, area);
    for (index, attempt) in unit.attempts.iter().enumerate() {
        // The title has the state of the only one.
        let sign = match unit.attempts.len() {
            1 => String::new(),
            _ => format!("{} ", stream::state(scene, unit, Some((index, attempt))).1),
        };
        let text = format!("{sign}try {}", attempt.number);
        let area = tab(&mut pen, Some(index) == shown, &text);
        scene.targets.add(area, ClickAction::Attempt(index));
    }
    let session = shown
        .and_then(|index| unit.attempts.get(index))
        .and_then(|attempt| attempt.setup.session.as_deref());
    if let Some(session) = session {
        let session = text::printable(session, 40);
        pen.end_with(&[(StyleRole::Dim, "session "), (StyleRole::Dim, &session)]);
    }
}

/// Paints a tab, and returns its area. The selected one also differs in its text, since a terminal may have no colours.
pub(super) fn tab(pen: &mut RowWriter<'_>, is_selected: bool, text: &str) -> Rect {
    let start = pen.next_column();
    match is_selected {
        true => pen.put(StyleRole::Badge, &format!("[{text}]")),
        false => pen.put(StyleRole::Dim, &format!(" {text} ")),
    }
    let area = pen.area_since(start);
    pen.skip(1);
    area
}

/// Position in the actions or in the lines.
fn place(view: &InspectPage, rows: usize) -> String {
    let more = if view.document.complete { "" } else { "+" };
    let lines = format!(
        "line {}/{}{more}",
        (view.lines.selected + 1).min(view.document.lines),
        view.document.lines
    );
    match (view.panel, view.side) {
        (InspectPanel::Actions, _) if rows == 0 => String::new(),
        (InspectPanel::Actions, InspectSide::Detail) => {
            format!(" {}/{rows} · {lines} ", view.actions.selected + 1)
        }
        (InspectPanel::Actions, InspectSide::Actions) => match view.actions.new_rows(rows) {
            0 => format!(" {}/{rows} ", view.actions.selected + 1),
            new_rows => format!(" {}/{rows} · {new_rows} new ", view.actions.selected + 1),
        },
        (
            InspectPanel::Prompt
            | InspectPanel::Isolation
            | InspectPanel::Stderr
            | InspectPanel::Verdict,
            _,
        ) => {
            format!(" {lines} ")
        }
    }
}

fn panels(scene: &DrawContext<'_>, selected: Option<InspectPanel>, area: Rect, buf: &mut Buffer) {
    let mut pen = RowWriter::row(scene, buf, area);
    let tabs = || {
        InspectPanel::ALL
            .into_iter()
            .map(|panel| (Some(panel), panel.label()))
            .chain([(None, "wire")])
    };
    // With little room, only the keys and the name of the current panel are shown.
    let is_short =
        tabs().map(|(_, label)| label.len() + 5).sum::<usize>() > usize::from(area.width);
    for (number, (panel, label)) in (1..).zip(tabs()) {
        let is_selected = panel == selected;
        let text = if is_short && !is_selected {
            number.to_string()
        } else {
            format!("{number} {label}")
        };
        scene.targets.add(
            tab(&mut pen, is_selected, &text),
            ClickAction::Panel(number - 1),
        );
    }
}

fn actions(scene: &DrawContext<'_>, view: &InspectPage, area: Rect, buf: &mut Buffer) {
    let rows = view
        .attempt_id(scene.run_view)
        .map_or(&[][..], |attempt_id| scene.run_view.rows(attempt_id));
    if rows.is_empty() {
        RowWriter::row(scene, buf, area).put(StyleRole::Dim, "no output yet");
    }
    let attempt = view.shown(scene.run_view).map(|(_, attempt)| attempt);
    let bookmarked = attempt
        .map(|attempt| stream::bookmarked_rows(scene, attempt))
        .unwrap_or_default();
    for (y, (index, row)) in
        (area.y..area.bottom()).zip(rows.iter().enumerate().skip(view.actions.offset))
    {
        let line = Rect {
            y,
            height: 1,
            ..area
        };
        let flags = (bookmarked.contains(&index), area.width >= MIN_TIMED);
        stream::timed_row(scene, row, flags, line, buf);
        if index == view.actions.selected {
            let role = if view.is_list() {
                StyleRole::Selected
            } else {
                StyleRole::Resting
            };
            buf.set_style(line, scene.theme.style(role));
        }
    }
}
