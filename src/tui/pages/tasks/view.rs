//! The list of tasks: state, kind, id, title and what came of each.

use ratatui::{buffer::Buffer, layout::Rect};

use super::tasks;
use crate::page::DrawContext;
use crate::widgets::{RowWriter, pane};
use crate::{model::ScrollList, theme::StyleRole};
use ingestdeck_core::{
    actions::system_notice::task_end,
    run::state::{AgentTask, RowKind, RowOutcome, TaskState},
    text::{self, latency},
};

const STATE_WIDTH: usize = 11;
const TIME_WIDTH: usize = 8;
const KIND_WIDTH: usize = 10;
const ID_WIDTH: usize = 19;

pub(super) fn draw(scene: &DrawContext<'_>, list: &ScrollList, area: Rect, buf: &mut Buffer) {
    let all: Vec<_> = tasks(scene.run_view).collect();
    let running = all
        .iter()
        .filter(|(_, task)| task.state == TaskState::Running);
    let count = format!(" {} running of {} ", running.count(), all.len());
    let inside = pane(
        scene,
        area,
        true,
        &[(StyleRole::Strong, "tasks in the background")],
        &[(StyleRole::Dim, &count)],
        buf,
    );
    let line = |y| Rect {
        y,
        height: 1,
        ..inside
    };
    if all.is_empty() {
        RowWriter::row(scene, buf, line(inside.y)).put(
            StyleRole::Dim,
            "none: no command, sub-agent or workflow runs, or ran, in the background",
        );
    }
    for (y, (index, (_, task))) in
        (inside.y..inside.bottom()).zip(all.iter().enumerate().skip(list.offset))
    {
        let mut pen = RowWriter::row(scene, buf, line(y));
        row(scene, task, &mut pen);
        if index == list.selected {
            buf.set_style(line(y), scene.theme.style(StyleRole::Selected));
        }
    }
}

fn row(scene: &DrawContext<'_>, task: &AgentTask, pen: &mut RowWriter<'_>) {
    let (role, end) = match task.state {
        TaskState::Running => (StyleRole::Running, RowOutcome::Open),
        TaskState::Completed => (StyleRole::Succeeded, RowOutcome::Ok),
        TaskState::Failed => (StyleRole::Failed, RowOutcome::Failed),
        TaskState::Stopped => (StyleRole::Stopped, RowOutcome::Aborted),
    };
    let until = task.ended_at.unwrap_or(scene.model.playhead.time);
    let took = match scene.source.origin.has_times {
        true => latency(until.since(task.started_at)),
        false => String::new(),
    };
    pen.cell(role, scene.theme.glyphs.row(RowKind::Task, end), 2);
    pen.cell(role, task.state.as_str(), STATE_WIDTH);
    pen.cell_right(StyleRole::Dim, &took, TIME_WIDTH);
    pen.skip(1);
    pen.cell(StyleRole::Text, &task.kind, KIND_WIDTH);
    pen.cell(StyleRole::Dim, &task.id, ID_WIDTH);
    let summary = task.agent_counts().into_iter();
    // A stopped task has its title as its summary.
    let end = task
        .summary
        .as_deref()
        .filter(|summary| *summary != &*task.title);
    let summary = summary.chain(end.map(|end| task_end(end).to_owned()));
    let summary = summary.collect::<Vec<_>>().join(", ");
    let room = match summary.is_empty() {
        true => pen.room(),
        false => pen.room() / 2,
    };
    let title_width = text::width(&task.title).min(room);
    pen.cell(StyleRole::Strong, &task.title, title_width);
    pen.skip(2);
    pen.put(StyleRole::Dim, &text::one_row(&summary, 300));
}
