//! Hints for the keys that matter here, and where we are in time.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{Pen, Scene, clock, pressed};
use crate::run::state::UnitStatus;
use crate::tui::{
    action::Action,
    command,
    model::{Pace, Pane, Purpose, View, is_failure},
    text,
    theme::Role,
    update::hold,
};

/// Paints the footer. Gives the room of the hints if a message may cover them for a while.
pub fn draw(scene: &Scene<'_>, area: Rect, buf: &mut Buffer) -> Option<Rect> {
    let model = scene.model;
    let mut pen = Pen::row(scene, buf, area);
    pen.skip(1);
    if let Some(typed) = &model.typing {
        match &typed.purpose {
            Purpose::Search => pen.put(Role::Key, "/"),
            Purpose::Deny(_) => pen.put(Role::Key, "deny because: "),
            Purpose::Command => pen.put(Role::Key, ":"),
            Purpose::FilterUnits => pen.put(Role::Key, "only units with: "),
        }
        // The end of what is typed stays visible.
        let room = pen.room().saturating_sub(30).max(8);
        let shown = text::wrap(&typed.text, room).pop().unwrap_or_default();
        pen.put(Role::Strong, &shown);
        pen.put(Role::Key, "▏");
        pen.skip(1);
        if typed.purpose == Purpose::Command && !typed.text.is_empty() {
            let offers = command::complete(&typed.text).offers;
            if !offers.is_empty() {
                let offers = text::safe(&offers.join(" "), pen.room().saturating_sub(1)).into_owned();
                pen.put(Role::Dim, &offers);
                return None;
            }
        }
        let complete = (typed.purpose == Purpose::Command).then_some(Action::Complete);
        let hints: Vec<_> = [Action::Accept, Action::Dismiss].into_iter().chain(complete).collect();
        self::hints(scene, &mut pen, &hints);
        return None;
    }
    if model.question.is_some() {
        self::hints(scene, &mut pen, &[Action::Confirm, Action::Cancel]);
        return None;
    }
    if model.amending.is_some() {
        self::hints(scene, &mut pen, &[Action::Send, Action::NextField, Action::Discard]);
        return None;
    }
    if model.editor.is_some() {
        self::hints(scene, &mut pen, &[Action::Send, Action::Discard]);
        return None;
    }
    // The bar says it where it takes two lines.
    let told = model.plan(scene.story).bar.height > 1;
    let position = if told { Vec::new() } else { position(scene) };
    let pieces: Vec<_> = position.iter().map(|(role, text)| (*role, text.as_str())).collect();
    pen.right(&pieces);
    let free = u16::try_from(pen.room()).unwrap_or(area.width).saturating_add(1).min(area.width);
    if !model.toasts.is_empty() {
        return Some(Rect { width: free, ..area });
    }
    if let Some(query) = &model.search {
        let state = if model.searching { "searching " } else { "/" };
        pen.put(Role::Match, &format!("{state}{}", text::safe(query, 24)));
        pen.skip(2);
    }
    hints(scene, &mut pen, &actions(scene));
    None
}

/// The actions worth a hint, the most useful first.
fn actions(scene: &Scene<'_>) -> Vec<Action> {
    let model = scene.model;
    let failed = model.unit(scene.story).is_some_and(|unit| unit.status.is_unfinished());
    let over = model.unit(scene.story).is_some_and(|unit| unit.status.is_over());
    let silent = model.unit(scene.story).is_some_and(|unit| unit.status == UnitStatus::Silent);
    let mut actions = match model.views.last() {
        Some(View::Help(_)) => vec![Action::Back],
        Some(View::Grid) => {
            let order = if failed { Action::Retry } else { Action::Stop };
            let order = (model.takes_orders() && !model.looks_back() && (failed || !over)).then_some(order);
            let rest = [Action::NextPane, Action::Zoom, Action::NextFailure];
            [Action::Back, Action::Open].into_iter().chain(order).chain(rest).collect()
        }
        Some(View::Breakpoints(_)) => vec![Action::Back, Action::Open, Action::Stop, Action::CommandLine],
        Some(View::Causes(_)) => {
            let any = scene.story.state.units.iter().any(|unit| unit.status.is_unfinished());
            let retry = (any && model.takes_orders() && !model.looks_back()).then_some(Action::Retry);
            let next = any.then_some(Action::NextFailure);
            let open = any.then_some(Action::Open);
            [Action::Back].into_iter().chain(open).chain(retry).chain(next).chain([Action::Search]).collect()
        }
        Some(View::Log(_)) => vec![Action::Back, Action::Open, Action::Search, Action::NextFailure],
        Some(View::Transcript(view)) => {
            let unit = scene.story.state.units.iter().find(|unit| unit.key == view.unit);
            let several = unit.is_some_and(|unit| unit.attempts.len() > 1);
            let attempts = several.then_some(Action::Right);
            let rest = [Action::Search, Action::NextFailure, Action::Copy];
            [Action::Back, Action::Open].into_iter().chain(attempts).chain(rest).collect()
        }
        Some(View::Compare(_)) => {
            vec![Action::Back, Action::Open, Action::Left, Action::NextPane, Action::Copy]
        }
        Some(View::Inspect(view)) => {
            let several = view.unit(scene.story).is_some_and(|unit| unit.attempts.len() > 1);
            let attempts = several.then_some(Action::Right);
            let rest = [Action::Counterpart, Action::Search, Action::NextFailure, Action::Copy, Action::NextPane];
            [Action::Back, Action::Open].into_iter().chain(attempts).chain(rest).collect()
        }
        Some(View::Entry(_)) => vec![Action::Back, Action::Right, Action::Search, Action::Copy, Action::NextFailure],
        None if !model.live => vec![Action::Open, Action::Inspect, Action::Play, Action::StepForward, Action::NextPane],
        None if model.looks_back() => {
            vec![Action::Play, Action::StepForward, Action::Open, Action::Inspect, Action::NextPane]
        }
        None if model.watching => vec![Action::Open, Action::Inspect, Action::NextPane, Action::NextFailure],
        None if failed => vec![
            Action::Retry,
            Action::RetryWith,
            Action::Inspect,
            Action::RetryFailed,
            Action::Open,
            Action::NextPane,
            Action::NextFailure,
        ],
        None if over => vec![Action::Open, Action::Inspect, Action::Retry, Action::RetryWith, Action::NextPane],
        None if model.unit(scene.story).is_none() => Vec::new(),
        // Nothing else helps a unit that hangs; once it is stopped, it can be retried.
        None if silent => vec![Action::Stop, Action::Inspect, Action::Open, Action::NextPane],
        None => vec![Action::Open, Action::Inspect, Action::Stop, Action::NextPane],
    };
    if model.views.is_empty() {
        if model.deck.listing.is_filtered() || model.search.is_some() {
            actions.insert(0, Action::Back);
        }
        if scene.story.state.paused.is_some() && model.takes_orders() && !model.looks_back() {
            actions.insert(0, Action::LiftLimit);
        }
        if is_unsaved(scene) && model.takes_orders() && !model.looks_back() {
            actions.insert(0, Action::RetryFailed);
        }
        if model.looks_back() {
            actions.insert(0, Action::ToEnd);
        }
        if model.deck.focus == Pane::Stream && !model.deck.stream.follow {
            actions.insert(0, Action::Bottom);
        }
        actions.extend([Action::Search, Action::Filter, Action::Log]);
    }
    if let Some(unit) = hold::subject(model, scene.story) {
        let mut own = Vec::new();
        if hold::waiting(model, scene.story).is_some() {
            own.extend([Action::AllowOnce, Action::EditCall, Action::DenyCall, Action::RunOn]);
        }
        own.push(if unit.is_held() { Action::LetGo } else { Action::Hold });
        // Whoever has to decide needs nothing else first.
        let at = if unit.is_held() { 0 } else { 1.min(actions.len()) };
        actions.splice(at..at, own);
    }
    actions.extend([Action::Help, Action::Quit]);
    actions
}

/// Nothing failed but saving.
fn is_unsaved(scene: &Scene<'_>) -> bool {
    let state = &scene.story.state;
    state.unsaved.is_some() && state.ended.is_some() && !state.units.iter().any(|unit| is_failure(unit.status))
}

fn hints(scene: &Scene<'_>, pen: &mut Pen<'_>, actions: &[Action]) {
    let (model, unsaved) = (scene.model, is_unsaved(scene));
    let listed = matches!(model.views.last(), Some(View::Breakpoints(_)));
    let word = |action: Action| match action {
        Action::Open if listed => "on or off",
        Action::Stop if listed => "delete",
        Action::RetryFailed if unsaved => "save again",
        action => action.hint(),
    };
    let hint = |action: Action| model.keymap.first(action).map(|key| (pressed(scene, &key).into_owned(), word(action)));
    let width = |(key, word): &(String, &str)| text::width(key) + text::width(word) + 3;
    let mut hints: Vec<_> = actions.iter().filter_map(|action| hint(*action)).collect();
    // The first hint and the help stay longest, then leaving; what goes is what stands before them.
    while hints.iter().map(width).sum::<usize>() > pen.room() + 1 && hints.len() > 1 {
        let place = if hints.len() > 3 { hints.len() - 3 } else { hints.len() - 1 };
        hints.remove(place);
    }
    for (key, word) in hints {
        pen.put(Role::Key, &key);
        pen.put(Role::Text, " ");
        pen.put(Role::Dim, word);
        pen.skip(2);
    }
}

/// `● LIVE`, or where a record stands.
fn position(scene: &Scene<'_>) -> Vec<(Role, String)> {
    let (model, story, source) = (scene.model, scene.story, scene.source);
    let glyphs = scene.theme.glyphs;
    let mut pieces = match model.pace {
        Pace::Follow if model.broken.is_some() => {
            return vec![(Role::Failed, format!("{} BROKEN ", glyphs.status(UnitStatus::Failed)))];
        }
        _ if model.extent.going.is_some() => vec![(Role::Live, format!("{} going on ", glyphs.playing))],
        Pace::Follow if model.live && story.state.ended.is_some() => {
            let of_others = if model.watching { ", read only" } else { "" };
            vec![(Role::Live, format!("{} ENDED{of_others} ", glyphs.live))]
        }
        Pace::Full => vec![(Role::Live, format!("{} ×max ", glyphs.playing))],
        Pace::Hold if model.live => {
            let behind = clock(model.extent.now.since(model.time));
            vec![(Role::Paused, format!("{} -{behind} behind live ", glyphs.paused))]
        }
        Pace::Follow if model.watching => vec![(Role::Live, format!("{} LIVE, read only ", glyphs.live))],
        Pace::Follow if model.live => vec![(Role::Live, format!("{} LIVE ", glyphs.live))],
        Pace::Follow => vec![(Role::Live, "REPLAY ".to_owned())],
        Pace::Scaled(speed) => vec![(Role::Live, format!("{} ×{speed} ", glyphs.playing))],
        Pace::Hold => vec![(Role::Paused, format!("{} PAUSED ", glyphs.paused))],
    };
    if model.live && model.pace == Pace::Follow {
        return pieces;
    }
    let (entries, known) = (story.state.entries, source.known.max(story.state.entries));
    let more = if source.at_end { "" } else { "+" };
    pieces.push((Role::Text, format!("{entries}/{known}{more} ")));
    pieces
}
