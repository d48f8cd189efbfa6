//! The footer: hints for the available keys, and the position in time.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{DrawContext, RowWriter, key_names};
use crate::tui::{
    action::UserAction,
    command,
    model::{InputPurpose, OverlayView, Pane, Playback, is_failure},
    theme::StyleRole,
    update::hold,
};
use crate::{
    run::state::UnitStatus,
    text::{self, clock},
};

/// Paints the footer. Returns the area of the hints if a message may cover them temporarily.
pub(crate) fn draw(scene: &DrawContext<'_>, area: Rect, buf: &mut Buffer) -> Option<Rect> {
    let model = scene.model;
    let mut pen = RowWriter::row(scene, buf, area);
    pen.skip(1);
    if let Some(typed) = &model.line_input {
        match &typed.purpose {
            InputPurpose::Search => pen.put(StyleRole::Key, "/"),
            InputPurpose::Deny(_) => pen.put(StyleRole::Key, "deny because: "),
            InputPurpose::Command => pen.put(StyleRole::Key, ":"),
            InputPurpose::FilterUnits => pen.put(StyleRole::Key, "only units with: "),
        }
        // Keep the end of the typed text visible.
        let room = pen.room().saturating_sub(30).max(8);
        let shown = text::wrap(&typed.text, room).pop().unwrap_or_default();
        pen.put(StyleRole::Strong, &shown);
        pen.put(StyleRole::Key, "▏");
        pen.skip(1);
        if typed.purpose == InputPurpose::Command && !typed.text.is_empty() {
            let offers = command::complete(&typed.text).candidates;
            if !offers.is_empty() {
                let offers = text::printable(&offers.join(" "), pen.room().saturating_sub(1)).into_owned();
                pen.put(StyleRole::Dim, &offers);
                return None;
            }
        }
        let complete = (typed.purpose == InputPurpose::Command).then_some(UserAction::Complete);
        let hints: Vec<_> = [UserAction::Accept, UserAction::Dismiss].into_iter().chain(complete).collect();
        self::hints(scene, &mut pen, &hints);
        return None;
    }
    if model.question.is_some() {
        self::hints(scene, &mut pen, &[UserAction::Confirm, UserAction::Cancel]);
        return None;
    }
    if model.amend_form.is_some() {
        self::hints(scene, &mut pen, &[UserAction::Send, UserAction::NextField, UserAction::Discard]);
        return None;
    }
    if model.editor.is_some() {
        self::hints(scene, &mut pen, &[UserAction::Send, UserAction::Discard]);
        return None;
    }
    // A timeline bar of two lines already shows the position.
    let is_position_shown = model.layout(scene.run_view).bar.height > 1;
    let position = if is_position_shown { Vec::new() } else { position(scene) };
    let pieces: Vec<_> = position.iter().map(|(role, text)| (*role, text.as_str())).collect();
    pen.end_with(&pieces);
    let free = u16::try_from(pen.room()).unwrap_or(area.width).saturating_add(1).min(area.width);
    if !model.toasts.is_empty() {
        return Some(Rect { width: free, ..area });
    }
    if let Some(query) = &model.search {
        let state = if model.is_searching { "searching " } else { "/" };
        pen.put(StyleRole::Match, &format!("{state}{}", text::printable(query, 24)));
        pen.skip(2);
    }
    hints(scene, &mut pen, &actions(scene));
    None
}

/// The actions to show as hints, most useful first.
fn actions(scene: &DrawContext<'_>) -> Vec<UserAction> {
    let model = scene.model;
    let failed = model.unit(scene.run_view).is_some_and(|unit| unit.status.is_retryable());
    let over = model.unit(scene.run_view).is_some_and(|unit| unit.status.is_finished());
    let silent = model.unit(scene.run_view).is_some_and(|unit| unit.status == UnitStatus::Silent);
    let mut actions = match model.views.last() {
        Some(OverlayView::Help(_)) => vec![UserAction::Back],
        Some(OverlayView::Grid) => {
            let order = if failed { UserAction::Retry } else { UserAction::Stop };
            let order = (model.accepts_commands() && !model.is_in_past() && (failed || !over)).then_some(order);
            let rest = [UserAction::NextPane, UserAction::Zoom, UserAction::NextFailure];
            [UserAction::Back, UserAction::Open].into_iter().chain(order).chain(rest).collect()
        }
        Some(OverlayView::Breakpoints(_)) => {
            vec![UserAction::Back, UserAction::Open, UserAction::Stop, UserAction::CommandLine]
        }
        Some(OverlayView::FailureGroups(_)) => {
            let any = scene.run_view.state.units.iter().any(|unit| unit.status.is_retryable());
            let retry = (any && model.accepts_commands() && !model.is_in_past()).then_some(UserAction::Retry);
            let next = any.then_some(UserAction::NextFailure);
            let open = any.then_some(UserAction::Open);
            [UserAction::Back].into_iter().chain(open).chain(retry).chain(next).chain([UserAction::Search]).collect()
        }
        Some(OverlayView::Log(_)) => {
            vec![UserAction::Back, UserAction::Open, UserAction::Search, UserAction::NextFailure]
        }
        Some(OverlayView::Transcript(view)) => {
            let unit = scene.run_view.state.units.iter().find(|unit| unit.key == view.unit);
            let several = unit.is_some_and(|unit| unit.attempts.len() > 1);
            let attempts = several.then_some(UserAction::Right);
            let rest = [UserAction::Search, UserAction::NextFailure, UserAction::Copy];
            [UserAction::Back, UserAction::Open].into_iter().chain(attempts).chain(rest).collect()
        }
        Some(OverlayView::Compare(_)) => {
            vec![UserAction::Back, UserAction::Open, UserAction::Left, UserAction::NextPane, UserAction::Copy]
        }
        Some(OverlayView::Inspect(view)) => {
            let several = view.unit(scene.run_view).is_some_and(|unit| unit.attempts.len() > 1);
            let attempts = several.then_some(UserAction::Right);
            let rest = [
                UserAction::Counterpart,
                UserAction::Search,
                UserAction::NextFailure,
                UserAction::Copy,
                UserAction::NextPane,
            ];
            [UserAction::Back, UserAction::Open].into_iter().chain(attempts).chain(rest).collect()
        }
        Some(OverlayView::Entry(_)) => {
            vec![UserAction::Back, UserAction::Right, UserAction::Search, UserAction::Copy, UserAction::NextFailure]
        }
        None if !model.is_live => {
            vec![UserAction::Open, UserAction::Inspect, UserAction::Play, UserAction::StepForward, UserAction::NextPane]
        }
        None if model.is_in_past() => {
            vec![UserAction::Play, UserAction::StepForward, UserAction::Open, UserAction::Inspect, UserAction::NextPane]
        }
        None if model.is_watching => {
            vec![UserAction::Open, UserAction::Inspect, UserAction::NextPane, UserAction::NextFailure]
        }
        None if failed => vec![
            UserAction::Retry,
            UserAction::RetryWith,
            UserAction::Inspect,
            UserAction::RetryFailed,
            UserAction::Open,
            UserAction::NextPane,
            UserAction::NextFailure,
        ],
        None if over => {
            vec![UserAction::Open, UserAction::Inspect, UserAction::Retry, UserAction::RetryWith, UserAction::NextPane]
        }
        None if model.unit(scene.run_view).is_none() => Vec::new(),
        // A silent unit can only be stopped and then retried.
        None if silent => vec![UserAction::Stop, UserAction::Inspect, UserAction::Open, UserAction::NextPane],
        None => vec![UserAction::Open, UserAction::Inspect, UserAction::Stop, UserAction::NextPane],
    };
    if model.views.is_empty() {
        if model.units_view.listing.is_filtered() || model.search.is_some() {
            actions.insert(0, UserAction::Back);
        }
        if scene.run_view.state.limits.pause.is_some() && model.accepts_commands() && !model.is_in_past() {
            actions.insert(0, UserAction::LiftLimit);
        }
        if is_unsaved(scene) && model.accepts_commands() && !model.is_in_past() {
            actions.insert(0, UserAction::RetryFailed);
        }
        if model.is_in_past() {
            actions.insert(0, UserAction::ToEnd);
        }
        if model.units_view.focus == Pane::Stream && !model.units_view.stream.follow {
            actions.insert(0, UserAction::Bottom);
        }
        actions.extend([UserAction::Search, UserAction::Filter, UserAction::Log]);
    }
    if let Some(unit) = hold::subject(model, scene.run_view) {
        let mut own = Vec::new();
        if hold::waiting(model, scene.run_view).is_some() {
            own.extend([UserAction::AllowOnce, UserAction::EditCall, UserAction::DenyCall, UserAction::RunOn]);
        }
        own.push(if unit.is_held() { UserAction::LetGo } else { UserAction::Hold });
        // A pending approval comes first.
        let at = if unit.is_held() { 0 } else { 1.min(actions.len()) };
        actions.splice(at..at, own);
    }
    actions.extend([UserAction::Help, UserAction::Quit]);
    actions
}

/// True if only saving the results failed.
fn is_unsaved(scene: &DrawContext<'_>) -> bool {
    let state = &scene.run_view.state;
    state.publication.save_error.is_some()
        && state.ended.is_some()
        && !state.units.iter().any(|unit| is_failure(unit.status))
}

fn hints(scene: &DrawContext<'_>, pen: &mut RowWriter<'_>, actions: &[UserAction]) {
    let (model, unsaved) = (scene.model, is_unsaved(scene));
    let listed = matches!(model.views.last(), Some(OverlayView::Breakpoints(_)));
    let word = |action: UserAction| match action {
        UserAction::Open if listed => "on or off",
        UserAction::Stop if listed => "delete",
        UserAction::RetryFailed if unsaved => "save again",
        action => action.hint(),
    };
    let hint =
        |action: UserAction| model.keymap.first(action).map(|key| (key_names(scene, &key).into_owned(), word(action)));
    let width = |(key, word): &(String, &str)| text::width(key) + text::width(word) + 3;
    let mut hints: Vec<_> = actions.iter().filter_map(|action| hint(*action)).collect();
    // Drop the hints before help and quit from the end, then quit, then help; the first hint is kept.
    while hints.iter().map(width).sum::<usize>() > pen.room() + 1 && hints.len() > 1 {
        let place = if hints.len() > 3 { hints.len() - 3 } else { hints.len() - 1 };
        hints.remove(place);
    }
    for (key, word) in hints {
        pen.put(StyleRole::Key, &key);
        pen.put(StyleRole::Text, " ");
        pen.put(StyleRole::Dim, word);
        pen.skip(2);
    }
}

/// `● LIVE`, or the position in the tape.
fn position(scene: &DrawContext<'_>) -> Vec<(StyleRole, String)> {
    let (model, run_view, source) = (scene.model, scene.run_view, scene.source);
    let glyphs = scene.theme.glyphs;
    let mut pieces = match model.playback {
        Playback::Follow if model.recording_failure.is_some() => {
            return vec![(StyleRole::Failed, format!("{} BROKEN ", glyphs.status(UnitStatus::Failed)))];
        }
        _ if model.bounds.seeking_to.is_some() => vec![(StyleRole::Live, format!("{} seeking ", glyphs.playing))],
        Playback::Follow if model.is_live && run_view.state.ended.is_some() => {
            let of_others = if model.is_watching { ", read only" } else { "" };
            vec![(StyleRole::Live, format!("{} ENDED{of_others} ", glyphs.live))]
        }
        Playback::Unthrottled => vec![(StyleRole::Live, format!("{} ×max ", glyphs.playing))],
        Playback::Paused if model.is_live => {
            let behind = clock(model.bounds.now.since(model.time));
            vec![(StyleRole::Paused, format!("{} -{behind} behind live ", glyphs.paused))]
        }
        Playback::Follow if model.is_watching => vec![(StyleRole::Live, format!("{} LIVE, read only ", glyphs.live))],
        Playback::Follow if model.is_live => vec![(StyleRole::Live, format!("{} LIVE ", glyphs.live))],
        Playback::Follow => vec![(StyleRole::Live, "REPLAY ".to_owned())],
        Playback::Speed(speed) => vec![(StyleRole::Live, format!("{} ×{speed} ", glyphs.playing))],
        Playback::Paused => vec![(StyleRole::Paused, format!("{} PAUSED ", glyphs.paused))],
    };
    if model.is_live && model.playback == Playback::Follow {
        return pieces;
    }
    let (entries, known) = (run_view.state.entries, source.known_entries.max(run_view.state.entries));
    let more = if source.at_end { "" } else { "+" };
    pieces.push((StyleRole::Text, format!("{entries}/{known}{more} ")));
    pieces
}
