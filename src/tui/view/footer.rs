//! The footer: hints for the available keys, and the position in time.

use std::borrow::Cow;

use ratatui::{buffer::Buffer, layout::Rect};

use crate::page::DrawContext;
use crate::widgets::{RowWriter, key_names};
use crate::{
    action::UserAction,
    actions::{answer, dialogs, hints, hold},
    layout,
    model::{ClickAction, ConfirmQuestion, FILTER_SYNTAX, InputPurpose},
    pages::artifacts::ArtifactsPage,
    playback::Playback,
    theme::StyleRole,
};
use ingestdeck_core::{
    run::state::UnitStatus,
    tape::Millis,
    text::{self, clock},
};

/// Paints the typed text, or hints and the position.
pub(crate) fn draw(scene: &DrawContext<'_>, area: Rect, buf: &mut Buffer) {
    let model = scene.model;
    let mut pen = RowWriter::row(scene, buf, area);
    pen.skip(1);
    if let Some(typed) = &model.dialogs.line_input {
        let filters_artifacts = model.top::<ArtifactsPage>().is_some();
        let ended = hold::ended_subject(model, scene.run_view, &typed.purpose);
        match &typed.purpose {
            _ if ended.is_some() => {
                let reason = ended.unwrap_or_default();
                pen.put(
                    StyleRole::Warning,
                    &format!("{}: ", text::printable(&reason, (pen.room() / 2).max(30))),
                );
            }
            InputPurpose::Search => pen.put(StyleRole::Key, "/"),
            purpose @ (InputPurpose::Deny(_) | InputPurpose::DenyNext(_)) => {
                let call = hold::denied_call(scene.run_view, purpose);
                let prompt = call.map_or("deny the next call because: ", |call| {
                    answer::deny_prompt(scene.run_view, &call)
                });
                pen.put(StyleRole::Key, prompt)
            }
            InputPurpose::Say(_) => pen.put(StyleRole::Key, "message to the agent: "),
            InputPurpose::Command => pen.put(StyleRole::Key, ":"),
            InputPurpose::OpenPath => pen.put(StyleRole::Key, "file or directory: "),
            InputPurpose::FindInRecords => pen.put(StyleRole::Key, "find: "),
            InputPurpose::Reject(_) => pen.put(StyleRole::Key, "reject because (optional): "),
            InputPurpose::SendBack(_) => pen.put(StyleRole::Key, "what to change: "),
            InputPurpose::FilterUnits if filters_artifacts => {
                pen.put(StyleRole::Key, "only artifacts with: ")
            }
            InputPurpose::FilterUnits => pen.put(StyleRole::Key, "only units with: "),
            InputPurpose::Bookmark(_) => pen.put(StyleRole::Key, "note of the bookmark: "),
        }
        // Keep the end of the typed text visible.
        let room = pen.room().saturating_sub(30).max(8);
        let shown = end_of(&typed.text, room);
        pen.put(StyleRole::Strong, &shown);
        pen.put(StyleRole::Key, "▏");
        pen.skip(1);
        match typed.purpose {
            InputPurpose::Search => put_match_summary(scene, &mut pen),
            InputPurpose::FilterUnits if typed.text.is_empty() && !filters_artifacts => {
                pen.put(StyleRole::Dim, FILTER_SYNTAX);
                pen.skip(2);
            }
            InputPurpose::FilterUnits if !filters_artifacts => {
                if let Some(error) = model.units_view.listing.text.error() {
                    pen.put(StyleRole::Warning, &error.to_string());
                    pen.skip(2);
                }
            }
            _ => {}
        }
        let can_complete =
            typed.purpose == InputPurpose::Command || dialogs::searched_text(model).is_some();
        let complete = can_complete.then_some(UserAction::Complete);
        let hints: Vec<_> = [UserAction::Accept, UserAction::Dismiss]
            .into_iter()
            .chain(complete)
            .collect();
        self::hints(scene, &mut pen, &hints);
        return;
    }
    if let Some(question) = &model.dialogs.question {
        answers(scene, &mut pen, question);
        return;
    }
    if model.dialogs.is_editing() {
        self::hints(
            scene,
            &mut pen,
            &[
                UserAction::Send,
                UserAction::NextField,
                UserAction::EditText,
                UserAction::Discard,
            ],
        );
        return;
    }
    // A timeline bar of two lines already shows the position.
    let is_position_shown = model.layout().bar.height > 1 || model.is_home;
    let position = if is_position_shown {
        Vec::new()
    } else {
        position(scene)
    };
    let pieces: Vec<_> = position
        .iter()
        .map(|(role, text)| (*role, text.as_str()))
        .collect();
    pen.end_with(&pieces);
    if let Some(query) = model.shown_query(scene.run_view) {
        pen.put(
            StyleRole::Match,
            &format!("/{}", text::printable(query, 24)),
        );
        pen.skip(1);
        put_match_summary(scene, &mut pen);
    }
    if model.is_too_low_to_decide() {
        let missing = format!("{} rows to decide", layout::MIN_DIALOG_ROWS);
        pen.put(StyleRole::Warning, &missing);
        pen.skip(2);
    }
    hints(scene, &mut pen, &hints::hints(model, scene.run_view));
}

/// Writes which match is selected, and how many there are.
/// The last columns of a text, after a sign if it is longer.
fn end_of(typed: &str, columns: usize) -> Cow<'_, str> {
    let typed = text::printable(typed, usize::MAX);
    if text::width(&typed) <= columns {
        return typed;
    }
    let mut start = typed.len();
    for (at, _) in typed.char_indices().rev() {
        if text::width(&typed[at..]) >= columns {
            break;
        }
        start = at;
    }
    format!("…{}", &typed[start..]).into()
}

fn put_match_summary(scene: &DrawContext<'_>, pen: &mut RowWriter<'_>) {
    let summary = match scene.model.match_summary(scene.run_view) {
        Some(_) if scene.model.search.is_running => "searching".to_owned(),
        Some(summary) => summary,
        None => return,
    };
    pen.put(StyleRole::Strong, &summary);
    pen.skip(2);
}

/// The keys of an answer; Enter is one of those of the harmless answer.
pub(super) fn answer_keys(
    scene: &DrawContext<'_>,
    question: &ConfirmQuestion,
    action: UserAction,
) -> String {
    let keymap = &scene.model.keymap;
    let enter = keymap
        .first(UserAction::HarmlessAnswer)
        .filter(|_| question.harmless_action() == action);
    let keys = keymap.first(action).into_iter().chain(enter);
    keys.map(|key| key_names(scene, &key).into_owned())
        .collect::<Vec<_>>()
        .join("/")
}

/// Writes all answers of a question. None is left out, so that no key has a hidden meaning.
fn answers(scene: &DrawContext<'_>, pen: &mut RowWriter<'_>, question: &ConfirmQuestion) {
    for action in question.actions() {
        let start = pen.next_column();
        pen.put(StyleRole::Key, &answer_keys(scene, question, action));
        pen.put(StyleRole::Text, " ");
        pen.put(
            StyleRole::Dim,
            action.spec().hint(scene.model, scene.run_view),
        );
        scene
            .targets
            .add(pen.area_since(start), ClickAction::Perform(action));
        pen.skip(2);
    }
}

fn hints(scene: &DrawContext<'_>, pen: &mut RowWriter<'_>, actions: &[UserAction]) {
    let model = scene.model;
    let word = |action: UserAction| action.spec().hint(model, scene.run_view);
    let hint = |action: UserAction| {
        model
            .keymap
            .first(action)
            .map(|key| (key_names(scene, &key).into_owned(), word(action)))
    };
    let width = |(key, word): &(String, &str)| text::width(key) + text::width(word) + 3;
    // The form for an answer may have one field.
    let is_offered = |action: &UserAction| {
        *action != UserAction::NextField || action.spec().is_available(model, scene.run_view)
    };
    let mut hints: Vec<_> = actions
        .iter()
        .filter(|action| is_offered(action))
        .filter_map(|action| Some((*action, hint(*action)?)))
        .collect();
    // Drop the hints before help and quit from the end, then quit, then help; the first hint is kept.
    while hints.iter().map(|(_, hint)| width(hint)).sum::<usize>() > pen.room() + 1
        && hints.len() > 1
    {
        let place = if hints.len() > 3 {
            hints.len() - 3
        } else {
            hints.len() - 1
        };
        hints.remove(place);
    }
    for (action, (key, word)) in hints {
        let start = pen.next_column();
        pen.put(StyleRole::Key, &key);
        pen.put(StyleRole::Text, " ");
        pen.put(StyleRole::Dim, word);
        scene
            .targets
            .add(pen.area_since(start), ClickAction::Perform(action));
        pen.skip(2);
    }
}

/// `● LIVE`, or the position in the tape.
fn position(scene: &DrawContext<'_>) -> Vec<(StyleRole, String)> {
    let (model, run_view, source) = (scene.model, scene.run_view, scene.source);
    let glyphs = scene.theme.glyphs;
    let mut pieces = match model.playhead.playback {
        Playback::Follow if model.connection.recording_failure.is_some() => {
            return vec![(
                StyleRole::Failed,
                format!("{} BROKEN ", glyphs.status(UnitStatus::Failed)),
            )];
        }
        _ if model.playhead.bounds.seeking_to.is_some() => {
            vec![(StyleRole::Live, format!("{} seeking ", glyphs.playing))]
        }
        Playback::Follow if source.is_catching_up => {
            let percent = source.percent_read().unwrap_or_default();
            vec![(StyleRole::Paused, format!("reading {percent} % "))]
        }
        Playback::Follow if model.connection.is_live && run_view.state.ended.is_some() => {
            let of_others = if model.connection.is_watching {
                ", read only"
            } else {
                ""
            };
            vec![(
                StyleRole::Live,
                format!("{} ENDED{of_others} ", glyphs.live),
            )]
        }
        Playback::Unthrottled => vec![(StyleRole::Live, format!("{} ×max ", glyphs.playing))],
        Playback::Paused if model.connection.is_live => {
            let behind = clock(model.playhead.bounds.now.since(model.playhead.time));
            vec![(
                StyleRole::Paused,
                format!("{} -{behind} behind live ", glyphs.paused),
            )]
        }
        Playback::Follow if model.connection.is_watching => {
            vec![(StyleRole::Live, format!("{} LIVE, read only ", glyphs.live))]
        }
        Playback::Follow if model.connection.is_live => {
            vec![(StyleRole::Live, format!("{} LIVE ", glyphs.live))]
        }
        Playback::Follow => vec![(StyleRole::Live, "REPLAY ".to_owned())],
        Playback::Speed(speed) => {
            let skipped = match model.playhead.skipped {
                Millis(0) => String::new(),
                skipped => format!("skipped {skipped} "),
            };
            vec![(
                StyleRole::Live,
                format!("{} ×{speed} {skipped}", glyphs.playing),
            )]
        }
        Playback::Paused => vec![(StyleRole::Paused, format!("{} PAUSED ", glyphs.paused))],
    };
    if model.connection.is_live && model.playhead.playback == Playback::Follow {
        return pieces;
    }
    let (entries, known) = (
        run_view.state.entries,
        source.known_entries.max(run_view.state.entries),
    );
    let more = if source.at_end { "" } else { "+" };
    pieces.push((StyleRole::Text, format!("{entries}/{known}{more} ")));
    pieces
}
