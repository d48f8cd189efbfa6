//! Orders to the run, leaving, and copying: what reaches beyond the screen, and the questions before it.

use crate::{
    run::{
        outlook::Outlook,
        state::{LaneId, Row, RowKind, Story, Unit, UnitStatus},
    },
    tape::{Seq, UnitKey},
    tui::{
        action::Action,
        effect::{Command, Effect},
        model::{About, EntryView, Model, Of, Pane, Question, Transcript, View, is_failure},
        text::one_row,
        view::{causes::forecast_words, clock},
    },
    units::schedule::SLOTS,
};

/// The unit that an order is about.
pub(super) fn target<'a>(model: &Model, story: &'a Story) -> Option<&'a Unit> {
    match model.views.last() {
        Some(View::Transcript(Transcript { unit, .. }) | View::Entry(EntryView { unit, .. })) => {
            story.state.units.iter().find(|known| known.key == *unit)
        }
        Some(View::Causes(view)) => story.state.units.get(view.unit()?),
        Some(View::Inspect(view)) => view.unit(story),
        Some(View::Compare(view)) => view.unit(story),
        _ => model.unit(story),
    }
}

const RECORDED: &str = "this is a record, so nothing runs; `ingestdeck run --only UNIT` runs a unit again";
const WATCHED: &str = "another process runs this and takes no orders from here; give them there";

/// Why a run takes no orders from here.
pub(super) fn closed(model: &Model) -> &'static str {
    if model.watching { WATCHED } else { RECORDED }
}

/// Orders are for the present. True, and said so, if `action` is one and another moment is shown.
pub(super) fn is_too_late(model: &mut Model, action: Action) -> bool {
    let orders = matches!(
        action,
        Action::Retry
            | Action::RetryWith
            | Action::RetryFailed
            | Action::Stop
            | Action::LiftLimit
            | Action::More
            | Action::Fewer
    );
    let late = orders && model.looks_back() && !matches!(model.views.last(), Some(View::Breakpoints(_)));
    if late {
        let order = action.hint();
        let key = model.keymap.first(Action::ToEnd).unwrap_or_else(|| ":live".to_owned());
        let behind = clock(model.extent.now.since(model.time));
        model.say(format!("this is the past, {behind} behind live: {key} goes back to LIVE, then {order}"));
    }
    late
}

pub(super) fn retry(model: &mut Model, story: &Story) -> Vec<Effect> {
    model.deck.auto = false;
    let Some(unit) = target(model, story) else { return nobody(model) };
    if let Some(refusal) = refusal(model, story, unit) {
        model.say(refusal);
        return Vec::new();
    }
    let unit = unit.key.clone();
    model.say(format!("new attempt at {unit}"));
    vec![Effect::Command(Command::Retry { unit, amendment: None })]
}

pub(super) fn nobody(model: &mut Model) -> Vec<Effect> {
    model.say("no unit is selected");
    Vec::new()
}

/// Why there can be no new attempt at a unit now.
pub(super) fn refusal(model: &Model, story: &Story, unit: &Unit) -> Option<String> {
    match unit.status {
        _ if !model.takes_orders() => Some(closed(model).to_owned()),
        UnitStatus::Running | UnitStatus::Silent | UnitStatus::Held => {
            Some(format!("{} is {}; stop it first", unit.key, unit.word()))
        }
        UnitStatus::Queued if story.state.stopping => {
            Some(format!("{} has no turn any more: the run is ending; retry it once it has ended", unit.key))
        }
        UnitStatus::Queued => Some(format!("{} is queued; it runs by itself", unit.key)),
        UnitStatus::Untried
        | UnitStatus::Waiting
        | UnitStatus::Succeeded
        | UnitStatus::Budget
        | UnitStatus::Failed
        | UnitStatus::Stopped
        | UnitStatus::Interrupted
        | UnitStatus::Reused => None,
    }
}

/// New attempts at whatever the schedule will retry: units that are not done, and after an end that was none of theirs, units without a
/// turn. Where there are none, another try to save what the units wrote.
pub(super) fn retry_failed(model: &mut Model, story: &Story) -> Vec<Effect> {
    if !model.takes_orders() {
        model.say(closed(model));
        return Vec::new();
    }
    let state = &story.state;
    let ended = state.ended.as_ref().map(|ended| ended.outcome.as_str());
    let of = |wanted: fn(UnitStatus) -> bool| -> Vec<usize> {
        (0..state.units.len()).filter(|unit| wanted(state.units[*unit].status)).collect()
    };
    let mut places = of(UnitStatus::is_unfinished);
    let failed = places.len();
    if of(is_failure).is_empty() || matches!(ended, Some("limit" | "unusable")) {
        places.extend(of(|status| status == UnitStatus::Untried));
    }
    let untried = places.len() - failed;
    let all_failed = places.iter().take(failed).all(|unit| is_failure(state.units[*unit].status));
    let what = if all_failed { "failed unit" } else { "unfinished unit" };
    let units: Vec<UnitKey> = places.iter().map(|unit| state.units[*unit].key.clone()).collect();
    let text = match (failed, untried) {
        (0, 0) => return save_again(model, story),
        (0, _) => format!("Run {}?", counted(untried, "untried unit")),
        (_, 0) => format!("Retry {}?", counted(failed, what)),
        _ => format!("Retry {}, and run {}?", counted(failed, what), counted(untried, "untried unit")),
    };
    let forecast = forecast_words(&Outlook::of_retrying(state, &places));
    model.question = Some(Question {
        text,
        details: [forecast].into_iter().chain(listed(&units)).collect(),
        then: vec![Effect::Command(Command::RetryAll)],
    });
    Vec::new()
}

fn save_again(model: &mut Model, story: &Story) -> Vec<Effect> {
    let state = &story.state;
    let unsaved: Vec<UnitKey> =
        state.units.iter().filter(|unit| state.is_unsaved(unit)).map(|unit| unit.key.clone()).collect();
    if state.ended.is_none() || unsaved.is_empty() {
        model.say("no unit has failed");
    } else {
        let why = state.unsaved.as_deref().unwrap_or("it was kept back");
        model.question = Some(Question {
            text: format!("Save what {} wrote?", counted(unsaved.len(), "unit")),
            details: [one_row(why, 200)].into_iter().chain(listed(&unsaved)).collect(),
            then: vec![Effect::Command(Command::RetryAll)],
        });
    }
    Vec::new()
}

/// Whoever knows better than the service does not wait for its limit.
pub(super) fn lift(model: &mut Model, story: &Story) -> Vec<Effect> {
    if model.watching {
        model.say(WATCHED);
    } else if !model.live {
        model.say("this is a record: nothing waits");
    } else if story.state.paused.is_none() {
        model.say("the run waits for no limit");
    } else {
        model.say("going on without waiting for the limit");
        return vec![Effect::Command(Command::LiftLimit)];
    }
    Vec::new()
}

/// Another number of units at once. The run decides; the note that comes back shows in the header.
pub(super) fn slots(model: &mut Model, story: &Story, by: i32) -> Vec<Effect> {
    let now = story.state.planned.as_ref().map(|plan| plan.concurrency);
    if model.watching {
        model.say(WATCHED);
    } else if !model.live {
        model.say("this is a record: what it ran at once is what it ran");
    } else if by > 0 && now.is_some_and(|now| now >= *SLOTS.end()) {
        model.say(format!("{} units at once is the most", SLOTS.end()));
    } else if by < 0 && now.is_some_and(|now| now <= *SLOTS.start()) {
        model.say("one unit at once is the least; drain or stop the run instead");
    } else {
        return vec![Effect::Command(Command::Slots { by })];
    }
    Vec::new()
}

/// What a stop means for files.
const STOPS_ATTEMPT: &str = "What the attempt wrote is dropped; its record stays.";
const STOPS_SESSION: &str = "Files that it changed stay changed; it can be continued later.";

pub(super) fn stop(model: &mut Model, story: &Story) -> Vec<Effect> {
    model.deck.auto = false;
    let Some(unit) = target(model, story) else { return nobody(model) };
    let key = unit.key.clone();
    if model.watching {
        model.say(WATCHED);
    } else if !model.live {
        model.say("this is a record: there is nothing to stop");
    } else if unit.status.is_over() {
        model.say(format!("{key} is over: {}", unit.word()));
    } else if unit.status == UnitStatus::Queued && story.state.stopping {
        model.say(format!("{key} has no turn any more: the run is ending"));
    } else {
        model.question = Some(Question {
            text: format!("Stop {key}?"),
            details: vec![if model.is_session() { STOPS_SESSION } else { STOPS_ATTEMPT }.to_owned()],
            then: vec![Effect::Command(Command::Stop { unit: key })],
        });
    }
    Vec::new()
}

pub(super) fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

pub(super) fn listed(units: &[UnitKey]) -> Vec<String> {
    const MOST: usize = 5;
    let mut lines: Vec<_> = units.iter().take(MOST).map(|unit| unit.as_str().to_owned()).collect();
    if units.len() > MOST {
        lines.push(format!("and {} more", units.len() - MOST));
    }
    lines
}

pub(super) fn quit(model: &mut Model) -> Vec<Effect> {
    let active = model.extent.present.active();
    if !model.takes_orders() || active == 0 {
        return vec![Effect::Quit];
    }
    model.question = Some(Question {
        text: format!("{} still running. Stop and leave?", counted(active, "unit")),
        details: vec!["What runs is stopped; what it did so far is on the tape.".to_owned()],
        then: vec![Effect::Command(Command::StopAll), Effect::Quit],
    });
    Vec::new()
}

pub(super) fn interrupt(model: &mut Model) -> Vec<Effect> {
    let (active, queued) = (model.extent.present.active(), model.extent.present.count(UnitStatus::Queued));
    if !model.takes_orders() || active + queued == 0 {
        return vec![Effect::Quit];
    }
    model.question = None;
    model.interrupts = model.interrupts.saturating_add(1);
    match model.interrupts {
        1 => {
            let finishing = format!("{} finishing, nothing new starts; again to stop them", counted(active, "unit"));
            model.say_about(About::Ending, finishing);
            vec![Effect::Command(Command::Drain)]
        }
        2 => {
            model.say_about(About::Ending, "stopping all; again to kill and leave");
            vec![Effect::Command(Command::StopAll)]
        }
        _ => vec![Effect::Command(Command::KillAll), Effect::Quit],
    }
}

pub(super) fn copy(model: &Model, story: &Story) -> Vec<Effect> {
    match model.views.last() {
        Some(View::Entry(view)) => {
            let lines = view.parts.iter().filter(|part| part.of == Of::Line);
            let seqs = lines.map(|part| part.seq).collect();
            vec![Effect::CopyEntries { seqs, what: "entry".to_owned() }]
        }
        Some(View::Transcript(view)) => {
            let Some(lane) = view.lane(story) else { return Vec::new() };
            copy_entry(story, lane, view.list.selected)
        }
        Some(View::Log(list)) => story.remarks().get(list.selected).map_or_else(Vec::new, |remark| {
            vec![Effect::Copy { text: remark.text.clone(), what: "remark".to_owned() }]
        }),
        Some(View::Causes(view)) => view.failures().map_or_else(Vec::new, |failures| {
            vec![Effect::Copy { text: failures.example.clone(), what: "error".to_owned() }]
        }),
        Some(View::Inspect(view)) => super::inspect::copy(view, story),
        Some(View::Compare(view)) => super::compare::copy(view, story),
        Some(View::Help(_) | View::Breakpoints(_)) => Vec::new(),
        Some(View::Grid) => copy_name(model, story),
        None if model.deck.focus == Pane::Units => copy_name(model, story),
        None => {
            let Some(lane) = model.deck.lane else { return Vec::new() };
            let Some(row) = story.rows(lane).get(model.deck.stream.selected) else { return Vec::new() };
            copy_row(story, row)
        }
    }
}

/// The lines behind a row.
pub(super) fn copy_row(story: &Story, row: &Row) -> Vec<Effect> {
    let mut seqs = vec![row.first()];
    seqs.extend(row.last(story.state.entries).filter(|last| *last != row.first()));
    let what = if row.kind == RowKind::Tool { "call and result" } else { "entry" };
    vec![Effect::CopyEntries { seqs, what: what.to_owned() }]
}

fn copy_entry(story: &Story, lane: LaneId, index: usize) -> Vec<Effect> {
    let Some(seq) = story.entries(lane).get(index) else { return Vec::new() };
    let seqs = vec![Seq(u64::from(*seq))];
    vec![Effect::CopyEntries { seqs, what: "entry".to_owned() }]
}

pub(super) fn copy_name(model: &Model, story: &Story) -> Vec<Effect> {
    let Some(unit) = target(model, story) else { return Vec::new() };
    let session = match model.views.last() {
        Some(View::Inspect(view)) => return super::inspect::copy_name(view, story),
        Some(View::Transcript(view)) => view.attempt(story).and_then(|(_, attempt)| attempt.session.clone()),
        _ => None,
    };
    match session {
        Some(session) => {
            vec![Effect::Copy { text: format!("claude --resume {session}"), what: "resume line".to_owned() }]
        }
        None => vec![Effect::Copy { text: unit.key.as_str().to_owned(), what: "unit key".to_owned() }],
    }
}
