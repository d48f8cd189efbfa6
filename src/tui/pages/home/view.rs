//! The home screen: runs and sessions, one row each.

use ratatui::{buffer::Buffer, layout::Rect};

use super::HomeLine;
use super::HomePage;
use super::HomeRun;
use super::HomeRunState;
use super::HomeSession;
use super::HomeSessionState;
use crate::page::DrawContext;
use crate::theme::{StyleRole, status_role};
use crate::widgets::{RowWriter, pane};
use ingestdeck_core::{
    run::state::UnitStatus,
    text::{self, pluralize},
};

/// Width from which rows show the outcome as a word, and from which they show the cost.
const MEDIUM: u16 = 56;
const WIDE: u16 = 72;
/// Width of the age of a run or a session.
const AGE: usize = 8;

pub(crate) fn draw_header(scene: &DrawContext<'_>, view: &HomePage, area: Rect, buf: &mut Buffer) {
    let mut pen = RowWriter::row(
        scene,
        buf,
        Rect {
            height: area.height.min(1),
            ..area
        },
    );
    pen.skip(1);
    pen.put(StyleRole::Strong, "ingestdeck");
    pen.skip(2);
    let room = pen.room().saturating_sub(2);
    pen.put(
        StyleRole::Strong,
        &text::fit_middle(&view.content.name, room, scene.theme.glyphs.cut),
    );
    pen.skip(2);
    let room = pen.room().saturating_sub(1);
    pen.put(
        StyleRole::Dim,
        &text::fit_middle(&view.content.path, room, scene.theme.glyphs.cut),
    );
    if area.height < 2 {
        return;
    }
    let mut pen = RowWriter::row(
        scene,
        buf,
        Rect {
            y: area.y + 1,
            height: 1,
            ..area
        },
    );
    pen.skip(1);
    let is_run = |line: &HomeLine, state: Option<HomeRunState>| matches!(line, HomeLine::Run(run) if state.is_none_or(|state| run.state == state));
    let active = view.count(|line| is_run(line, Some(HomeRunState::Active)));
    if active > 0 {
        pen.put(
            StyleRole::Running,
            &format!(
                "{} {active} active",
                scene.theme.glyphs.status(HomeRunState::Active.status())
            ),
        );
        pen.skip(2);
    }
    let word = view.content.record_word;
    if word.is_none() {
        let runs = view.count(|line| is_run(line, None)) + view.content.unlisted_runs;
        pen.put(StyleRole::Dim, &pluralize(runs, "run"));
        pen.skip(2);
    }
    let files = view.count(|line| matches!(line, HomeLine::Session(_)));
    let word = word.unwrap_or("Claude Code session");
    pen.put(StyleRole::Dim, &pluralize(files, word));
    let needs_you = |line: &HomeLine| matches!(line, HomeLine::Session(session) if session.state == Some(HomeSessionState::NeedsYou));
    let waiting = view.count(needs_you);
    if waiting > 0 {
        let glyph = scene.theme.glyphs.status(UnitStatus::Held);
        let verb = if waiting == 1 { "needs" } else { "need" };
        pen.skip(2);
        pen.put(StyleRole::Paused, &format!("{glyph} {waiting} {verb} you"));
    }
}

pub(crate) fn draw(scene: &DrawContext<'_>, view: &HomePage, area: Rect, buf: &mut Buffer) {
    let lines = &view.content.lines;
    let inside = pane(scene, area, true, &[(StyleRole::Strong, "home")], &[], buf);
    for (y, (index, line)) in
        (inside.y..inside.bottom()).zip(lines.iter().enumerate().skip(view.list.offset))
    {
        let row = Rect {
            y,
            height: 1,
            ..inside
        };
        match line {
            HomeLine::Heading(heading) => {
                RowWriter::row(scene, buf, row).put(StyleRole::Strong, heading)
            }
            HomeLine::Text(text)
            | HomeLine::Command(_, text)
            | HomeLine::LeftOut { reason: text, .. } => {
                let role = match line {
                    HomeLine::Command(..) => StyleRole::Text,
                    _ => StyleRole::Dim,
                };
                let mut pen = RowWriter::row(scene, buf, row);
                pen.skip(2);
                pen.put(role, text);
            }
            HomeLine::Run(run) => draw_run(
                scene,
                run,
                view.compared.as_ref() == Some(&run.id),
                row,
                buf,
            ),
            HomeLine::Session(session) => draw_session(scene, session, row, buf),
        }
        if index == view.list.selected && view.line().is_some() {
            buf.set_style(row, scene.theme.style(StyleRole::Selected));
        }
    }
}

fn draw_run(
    scene: &DrawContext<'_>,
    run: &HomeRun,
    is_compared: bool,
    area: Rect,
    buf: &mut Buffer,
) {
    let mut pen = RowWriter::row(scene, buf, area);
    let status = run.state.status();
    pen.cell(status_role(status), scene.theme.glyphs.status(status), 2);
    pen.cell(StyleRole::Text, &run.short, 8);
    if area.width >= MEDIUM {
        pen.cell(status_role(status), &run.outcome, 12);
    }
    pen.cell_right(StyleRole::Dim, &run.age, AGE);
    pen.skip(2);
    let note = match (is_compared, run.is_scripted) {
        (true, _) => " to compare ",
        (false, true) => " scripted ",
        (false, false) => "",
    };
    let cost = if area.width >= WIDE {
        format!("{:>9} ", run.cost)
    } else {
        String::new()
    };
    let note_role = if is_compared {
        StyleRole::Match
    } else {
        StyleRole::Dim
    };
    pen.end_with(&[(note_role, note), (StyleRole::Dim, &cost)]);
    pen.put(StyleRole::Text, &run.units);
}

fn draw_session(scene: &DrawContext<'_>, session: &HomeSession, area: Rect, buf: &mut Buffer) {
    let mut pen = RowWriter::row(scene, buf, area);
    let status = session.state.map(|state| match state {
        HomeSessionState::Running => UnitStatus::Running,
        HomeSessionState::Idle => UnitStatus::Queued,
        HomeSessionState::NeedsYou => UnitStatus::Held,
        HomeSessionState::Failed => UnitStatus::Failed,
    });
    match status {
        Some(status) => pen.cell(status_role(status), scene.theme.glyphs.status(status), 2),
        None => pen.skip(2),
    }
    // The longest state is longer than an age.
    if area.width >= WIDE {
        pen.cell_right(StyleRole::Dim, &session.size, 17);
        pen.skip(1);
    } else if area.width >= MEDIUM {
        pen.skip(18);
    } else {
        pen.skip(6);
    }
    let role = match session.state {
        Some(HomeSessionState::NeedsYou) => StyleRole::Paused,
        _ => StyleRole::Dim,
    };
    pen.cell_right(role, &session.age, AGE + 2);
    pen.skip(2);
    if area.width >= WIDE {
        pen.end_with(&[(StyleRole::Dim, &format!("{:>9} ", session.cost))]);
    }
    if !session.needs.is_empty() {
        let room = pen.room() * 2 / 3;
        pen.put_in(StyleRole::Paused, &session.needs, room);
        pen.skip(2);
    }
    let room = pen.room();
    pen.put_in(StyleRole::Text, &session.title, room);
}
