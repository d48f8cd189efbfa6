//! Which part of the record is handed to an editor or a pager: what is selected, or opened.

use super::orders;
use crate::{
    run::state::{LaneId, Story, Unit},
    tape::Seq,
    tui::{
        effect::Effect,
        handout::{Reading, Tool, Wish},
        model::{EntryView, Model, Of, Pane, Panel, Part, Subject, View, row_parts},
    },
};

pub(super) fn hand_out(model: &mut Model, story: &Story, tool: Tool) -> Vec<Effect> {
    let wish = match model.views.last() {
        Some(View::Help(_)) => {
            let text = model.keymap.markdown();
            Some(Wish { tool, what: "help".into(), entries: Vec::new(), reading: Reading::Text(text), at: None })
        }
        Some(View::Log(_)) => Some(log(story, tool)),
        Some(View::Breakpoints(_)) => {
            let lines = model.breakpoints.iter().map(|breakpoint| format!("{}\n", breakpoint.condition));
            let text = lines.collect();
            Some(Wish { tool, what: "breakpoints".into(), entries: Vec::new(), reading: Reading::Text(text), at: None })
        }
        Some(View::Transcript(view)) => {
            view.lane(story).map(|lane| attempt(story, lane, Some(view.list.selected), tool))
        }
        Some(View::Entry(view)) => Some(entry(view, tool)),
        Some(View::Causes(_) | View::Grid) => {
            let latest = orders::target(model, story).and_then(Unit::latest);
            latest.map(|shown| attempt(story, shown.lane, None, tool))
        }
        Some(View::Compare(view)) => super::compare::chosen(view).and_then(|(side, index)| {
            let lane = view.attempts(story)?[side].lane;
            row(story, lane, index, tool)
        }),
        Some(View::Inspect(view)) if view.panel == Panel::Actions => {
            view.lane(story).and_then(|lane| row(story, lane, view.actions.selected, tool))
        }
        Some(View::Inspect(view)) => Some(Wish {
            tool,
            what: view.panel.word().into(),
            entries: Vec::new(),
            reading: Reading::Document,
            at: Some(view.lines.selected),
        }),
        None if model.deck.focus == Pane::Units => {
            model.attempt(story).map(|(_, shown)| attempt(story, shown.lane, None, tool))
        }
        None => model.deck.lane.and_then(|lane| row(story, lane, model.deck.stream.selected, tool)),
    };
    match wish {
        Some(wish) => vec![Effect::HandOut(wish)],
        None => {
            let Some(unit) = orders::target(model, story) else { return orders::nobody(model) };
            let text = format!("{} has no transcript yet", unit.key);
            model.say(text);
            Vec::new()
        }
    }
}

/// A whole attempt: every line for an editor, what was said and done for a pager.
fn attempt(story: &Story, lane: LaneId, at: Option<usize>, tool: Tool) -> Wish {
    let entries = story.entries(lane).iter().map(|seq| Seq(u64::from(*seq))).collect();
    let rows = 0..if tool == Tool::Pager { story.rows(lane).len() } else { 0 };
    let parts = rows.flat_map(|row| readable(row_parts(story, lane, row))).collect();
    Wish { tool, what: "transcript".into(), entries, reading: Reading::Parts(parts), at }
}

/// Without the raw lines that stand below what they say.
fn readable(mut parts: Vec<Part>) -> Vec<Part> {
    if parts.iter().any(|part| part.of != Of::Line) {
        parts.retain(|part| part.of != Of::Line);
    }
    parts
}

fn entry(view: &EntryView, tool: Tool) -> Wish {
    let what = match view.subject {
        Subject::Row(_) => "action",
        Subject::Entry(_) => "line",
    };
    of_parts(what, &view.parts, tool)
}

fn row(story: &Story, lane: LaneId, index: usize, tool: Tool) -> Option<Wish> {
    let parts = row_parts(story, lane, index);
    (!parts.is_empty()).then(|| of_parts("action", &parts, tool))
}

pub(super) fn of_parts(what: &str, parts: &[Part], tool: Tool) -> Wish {
    let lines = parts.iter().filter(|part| part.of == Of::Line);
    Wish {
        tool,
        what: what.to_owned(),
        entries: lines.map(|part| part.seq).collect(),
        reading: Reading::Parts(parts.to_vec()),
        at: None,
    }
}

fn log(story: &Story, tool: Tool) -> Wish {
    let line = |remark: &crate::run::state::Remark| {
        let unit = remark.unit.as_ref().map(|unit| format!("{unit}: ")).unwrap_or_default();
        format!("+{} {}{}\n", remark.at, unit, remark.text)
    };
    let text = story.remarks().iter().map(line).collect();
    Wish { tool, what: "log".into(), entries: Vec::new(), reading: Reading::Text(text), at: None }
}
