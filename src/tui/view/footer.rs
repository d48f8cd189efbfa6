//! The footer: hints for the available keys, and the position in time.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{DrawContext, RowWriter, key_names};
use crate::tui::{
    action::UserAction,
    actions::units::is_only_unsaved,
    layout::Pane,
    model::{InputPurpose, OverlayView, ScreenModel},
    playback::Playback,
    theme::StyleRole,
};
use crate::{
    run::state::{RunView, UnitStatus},
    tape::Millis,
    text::{self, clock},
};

/// Paints the typed text, or hints and the position.
pub(crate) fn draw(scene: &DrawContext<'_>, area: Rect, buf: &mut Buffer) {
    let model = scene.model;
    let mut pen = RowWriter::row(scene, buf, area);
    pen.skip(1);
    if let Some(typed) = &model.dialogs.line_input {
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
        let complete = (typed.purpose == InputPurpose::Command).then_some(UserAction::Complete);
        let hints: Vec<_> = [UserAction::Accept, UserAction::Dismiss].into_iter().chain(complete).collect();
        self::hints(scene, &mut pen, &hints);
        return;
    }
    if model.dialogs.question.is_some() {
        self::hints(scene, &mut pen, &[UserAction::Confirm, UserAction::Cancel]);
        return;
    }
    if model.dialogs.amend_form.is_some() {
        self::hints(
            scene,
            &mut pen,
            &[UserAction::Send, UserAction::NextField, UserAction::EditText, UserAction::Discard],
        );
        return;
    }
    if model.dialogs.editor.is_some() {
        self::hints(scene, &mut pen, &[UserAction::Send, UserAction::EditText, UserAction::Discard]);
        return;
    }
    // A timeline bar of two lines already shows the position.
    let is_position_shown = model.layout().bar.height > 1 || model.is_home();
    let position = if is_position_shown { Vec::new() } else { position(scene) };
    let pieces: Vec<_> = position.iter().map(|(role, text)| (*role, text.as_str())).collect();
    pen.end_with(&pieces);
    if let Some(query) = &model.search.query {
        let state = if model.search.is_running { "searching " } else { "/" };
        pen.put(StyleRole::Match, &format!("{state}{}", text::printable(query, 24)));
        pen.skip(2);
    }
    hints(scene, &mut pen, &actions(model, scene.run_view));
}

/// The actions that can be shown as hints in this situation, most useful first.
fn candidates(model: &ScreenModel, run_view: &RunView) -> &'static [UserAction] {
    use UserAction::*;
    let status = model.unit(run_view).map(|unit| unit.status);
    let failed = status.is_some_and(UnitStatus::is_retryable);
    match model.views.last() {
        Some(OverlayView::Help(_)) => &[Back],
        Some(OverlayView::Grid) if failed => &[Back, Open, Retry, NextPane, Zoom, NextFailure],
        Some(OverlayView::Grid) => &[Back, Open, Stop, NextPane, Zoom, NextFailure],
        Some(OverlayView::Breakpoints(_)) => &[Back, Open, Stop, CommandLine],
        Some(OverlayView::Find(_)) => &[Back, Open, Search],
        Some(OverlayView::Lanes(_)) => &[Back, Open, Down, Right],
        Some(OverlayView::Home(_)) => &[Open, ResumeRun, DiffRuns, StartRun],
        Some(OverlayView::FailureGroups(_)) => &[Back, Open, Retry, RetryWith, NextFailure, Search],
        Some(OverlayView::Log(_)) => &[Back, Open, Search, NextFailure],
        Some(OverlayView::Transcript(_)) => &[Back, Open, Retry, NextAttempt, Search, NextFailure, Copy],
        Some(OverlayView::Compare(_)) => &[Back, Open, Left, NextPane, Copy],
        Some(OverlayView::Inspect(_)) => &[Back, NextPane, Retry, NextAttempt, Counterpart, Search, NextFailure, Copy],
        Some(OverlayView::Entry(_)) => &[Back, Right, Search, Copy, NextFailure],
        None if !model.units_view.marked.is_empty() && model.connection.accepts_commands() => {
            &[Retry, RetryWith, Stop, Mark, Back]
        }
        None if model.heading().is_some() => &[Open, Retry, RetryWith, RetryFailed, Causes],
        None if !model.connection.is_live => &[Open, Play, StepForward, NextPane],
        None if model.is_in_past() => &[Play, StepForward, Open, NextPane],
        None if model.connection.is_watching => &[Open, NextPane, NextFailure],
        None if failed => &[Retry, RetryWith, Open, RetryFailed, NextPane, NextFailure],
        None if status.is_some_and(UnitStatus::is_finished) => &[Open, Retry, RetryWith, NextPane],
        None if status.is_none() => &[],
        // A silent unit can only be stopped and then retried.
        None if status == Some(UnitStatus::Silent) => &[Stop, Open, NextPane],
        None => &[Open, Stop, NextPane],
    }
}

/// The actions to show as hints, most useful first.
fn actions(model: &ScreenModel, run_view: &RunView) -> Vec<UserAction> {
    let available = |action: &UserAction| action.spec().is_available(model, run_view);
    let mut actions = candidates(model, run_view).to_vec();
    if model.views.is_empty() {
        let view = &model.units_view;
        let urgent = [
            (UserAction::Bottom, view.focus == Pane::Stream && !view.stream.follow),
            (UserAction::ToEnd, model.is_in_past()),
            (UserAction::RetryFailed, is_only_unsaved(&run_view.state)),
            (UserAction::LiftLimit, true),
            (UserAction::Back, view.listing.is_filtered() || model.search.query.is_some()),
        ];
        actions.splice(0..0, urgent.into_iter().filter(|(_, is_urgent)| *is_urgent).map(|(action, _)| action));
        actions.extend([UserAction::Search, UserAction::Filter, UserAction::Log]);
    }
    actions.retain(available);
    // A pending approval comes first.
    let decisions = [UserAction::AllowOnce, UserAction::EditCall, UserAction::DenyCall, UserAction::RunOn];
    let decisions = if available(&UserAction::AllowOnce) { &decisions[..] } else { &[] };
    let at = if available(&UserAction::LetGo) { 0 } else { 1.min(actions.len()) };
    let hold = [UserAction::LetGo, UserAction::Hold].into_iter();
    actions.splice(at..at, decisions.iter().copied().chain(hold).filter(available));
    actions.extend([UserAction::Help, UserAction::Quit]);
    actions
}

fn hints(scene: &DrawContext<'_>, pen: &mut RowWriter<'_>, actions: &[UserAction]) {
    let model = scene.model;
    let word = |action: UserAction| action.spec().hint(model, scene.run_view);
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
    let mut pieces = match model.playhead.playback {
        Playback::Follow if model.connection.recording_failure.is_some() => {
            return vec![(StyleRole::Failed, format!("{} BROKEN ", glyphs.status(UnitStatus::Failed)))];
        }
        _ if model.playhead.bounds.seeking_to.is_some() => {
            vec![(StyleRole::Live, format!("{} seeking ", glyphs.playing))]
        }
        Playback::Follow if model.connection.is_live && run_view.state.ended.is_some() => {
            let of_others = if model.connection.is_watching { ", read only" } else { "" };
            vec![(StyleRole::Live, format!("{} ENDED{of_others} ", glyphs.live))]
        }
        Playback::Unthrottled => vec![(StyleRole::Live, format!("{} ×max ", glyphs.playing))],
        Playback::Paused if model.connection.is_live => {
            let behind = clock(model.playhead.bounds.now.since(model.playhead.time));
            vec![(StyleRole::Paused, format!("{} -{behind} behind live ", glyphs.paused))]
        }
        Playback::Follow if model.connection.is_watching => {
            vec![(StyleRole::Live, format!("{} LIVE, read only ", glyphs.live))]
        }
        Playback::Follow if model.connection.is_live => vec![(StyleRole::Live, format!("{} LIVE ", glyphs.live))],
        Playback::Follow => vec![(StyleRole::Live, "REPLAY ".to_owned())],
        Playback::Speed(speed) => {
            let skipped = match model.playhead.skipped {
                Millis(0) => String::new(),
                skipped => format!("skipped {skipped} "),
            };
            vec![(StyleRole::Live, format!("{} ×{speed} {skipped}", glyphs.playing))]
        }
        Playback::Paused => vec![(StyleRole::Paused, format!("{} PAUSED ", glyphs.paused))],
    };
    if model.connection.is_live && model.playhead.playback == Playback::Follow {
        return pieces;
    }
    let (entries, known) = (run_view.state.entries, source.known_entries.max(run_view.state.entries));
    let more = if source.at_end { "" } else { "+" };
    pieces.push((StyleRole::Text, format!("{entries}/{known}{more} ")));
    pieces
}
