//! Messages → changes of the state and wishes to the world. Synchronous, total, and the only place that decides.
//!
//! It must not read a clock, a file or a terminal: what it needs comes in the message, what it wants goes out as data.

use super::{
    action::{Action, Scope},
    effect::{Command, Effect, Step},
    key::Key,
    keymap::Lookup,
    layout,
    model::{EntryView, List, Model, Pace, Pane, Question, Subject, Transcript, View, is_failure},
    msg::Msg,
};
use crate::{
    run::state::{LaneId, RowEnd, RowKind, Story, Unit, UnitStatus},
    tape::UnitKey,
};

pub(super) mod find;

/// Rows that a turn of the wheel moves.
const WHEEL: isize = 3;
/// Slowest and fastest pace.
const PACES: (f64, f64) = (0.25, 64.0);

/// Takes one message.
pub fn update(model: &mut Model, story: &Story, msg: Msg) -> Vec<Effect> {
    let effects = match msg {
        Msg::Key(key) => press(model, story, key),
        Msg::Paste(text) => {
            if let Some(typed) = &mut model.typing {
                typed.extend(text.chars().filter(|char| !char.is_control()).take(200));
            }
            Vec::new()
        }
        Msg::Click { x, y } => click(model, story, x, y),
        Msg::Wheel { x, y, down } => wheel(model, story, x, y, down),
        Msg::Resize { width, height } => {
            model.size = (width, height);
            Vec::new()
        }
        Msg::Tick { now, time } => {
            model.now = now;
            model.time = time;
            model.toasts.retain(|toast| toast.until > now);
            Vec::new()
        }
        Msg::Found(place) => {
            find::found(model, story, place);
            Vec::new()
        }
        Msg::Say(text) => {
            model.say(text);
            Vec::new()
        }
    };
    model.settle(story);
    effects
}

fn scope(model: &Model) -> Scope {
    if model.question.is_some() {
        Scope::Question
    } else if model.typing.is_some() {
        Scope::Typing
    } else {
        Scope::View
    }
}

fn press(model: &mut Model, story: &Story, key: Key) -> Vec<Effect> {
    let scope = scope(model);
    model.pending.push(key);
    let found = match model.keymap.lookup(scope, &model.pending) {
        // The end of no chord may still begin another one.
        Lookup::Nothing if model.pending.len() > 1 => {
            model.pending = vec![key];
            model.keymap.lookup(scope, &model.pending)
        }
        found => found,
    };
    match found {
        Lookup::Action(action) => {
            model.pending.clear();
            act(model, story, action)
        }
        Lookup::Pending => Vec::new(),
        Lookup::Nothing => {
            model.pending.clear();
            // Ctrl-C and the like work whatever is open.
            if scope != Scope::View
                && let Lookup::Action(action @ (Action::Interrupt | Action::Suspend | Action::Redraw)) =
                    model.keymap.lookup(Scope::View, &[key])
            {
                return act(model, story, action);
            }
            if let (Some(typed), Some(char)) = (&mut model.typing, key.typed())
                && typed.len() < 200
            {
                typed.push(char);
            }
            Vec::new()
        }
    }
}

fn act(model: &mut Model, story: &Story, action: Action) -> Vec<Effect> {
    let page = isize::try_from(page(model, story)).unwrap_or(1).max(1);
    match action {
        Action::Down => step(model, story, 1),
        Action::Up => step(model, story, -1),
        Action::HalfDown => step(model, story, (page / 2).max(1)),
        Action::HalfUp => step(model, story, -(page / 2).max(1)),
        Action::PageDown => step(model, story, page),
        Action::PageUp => step(model, story, -page),
        Action::Top => ends(model, story, false),
        Action::Bottom => ends(model, story, true),
        Action::Right => sideways(model, story, 1),
        Action::Left => sideways(model, story, -1),
        Action::NextPane | Action::PreviousPane => {
            if model.views.is_empty() {
                model.deck.focus = other(model.deck.focus);
            }
        }
        Action::Zoom => model.deck.zoom = !model.deck.zoom,
        Action::Open => open(model, story),
        Action::Back => back(model, story),
        Action::NextFailure => find::failure(model, story, true),
        Action::PreviousFailure => find::failure(model, story, false),
        Action::Search => model.typing = Some(String::new()),
        Action::NextMatch => return find::again(model, story, true),
        Action::PreviousMatch => return find::again(model, story, false),
        Action::Filter => {
            model.deck.filter = model.deck.filter.next();
            model.refilter(&story.state);
            model.say(format!("units: {}", model.deck.filter.word()));
        }
        Action::Help => toggle(model, View::Help(List::default()), |view| matches!(view, View::Help(_))),
        Action::Log => toggle(model, View::Log(List::following()), |view| matches!(view, View::Log(_))),
        Action::Retry => return retry(model, story),
        Action::RetryFailed => return retry_failed(model, story),
        Action::Stop => return stop(model, story),
        Action::Play => return play(model),
        Action::StepForward => return moved(model, Effect::Step(Step::Entry { forward: true })),
        Action::StepBack => return moved(model, Effect::Step(Step::Entry { forward: false })),
        Action::TurnForward => return turn(model, true),
        Action::TurnBack => return turn(model, false),
        Action::Faster => return speed(model, 2.0),
        Action::Slower => return speed(model, 0.5),
        Action::ToStart => return moved(model, Effect::Seek(0)),
        Action::ToEnd => {
            model.pace = Pace::Follow;
            return vec![Effect::SetPace(Pace::Follow), Effect::Step(Step::End)];
        }
        Action::Copy => return copy(model, story),
        Action::CopyName => return copy_name(model, story),
        Action::Mouse => {
            model.mouse = !model.mouse;
            model.say(if model.mouse { "mouse on" } else { "mouse off: the terminal selects text" });
            return vec![Effect::Mouse(model.mouse)];
        }
        Action::Redraw => return vec![Effect::Redraw],
        Action::Suspend => return vec![Effect::Suspend],
        Action::Quit => return quit(model),
        Action::Interrupt => return interrupt(model),
        Action::Confirm => return model.question.take().map(|question| question.then).unwrap_or_default(),
        Action::Cancel => model.question = None,
        Action::Accept => return find::accept(model, story),
        Action::Dismiss => model.typing = None,
        Action::Erase => {
            if let Some(typed) = &mut model.typing
                && typed.pop().is_none()
            {
                model.typing = None;
            }
        }
        Action::EraseAll => {
            if let Some(typed) = &mut model.typing {
                typed.clear();
            }
        }
    }
    Vec::new()
}

fn other(pane: Pane) -> Pane {
    match pane {
        Pane::Units => Pane::Stream,
        Pane::Stream => Pane::Units,
    }
}

/// Rows of the pane with the focus.
fn page(model: &Model, story: &Story) -> usize {
    let plan = model.plan(story);
    match (model.views.last(), model.deck.focus) {
        (Some(_), _) => usize::from(plan.body_rows()),
        (None, Pane::Units) => plan.unit_rows(),
        (None, Pane::Stream) => plan.stream_rows(model.attempt(story).map(|(_, attempt)| attempt)),
    }
}

fn step(model: &mut Model, story: &Story, by: isize) {
    match model.views.last_mut() {
        Some(View::Transcript(view)) => {
            let len = view.lane(story).map_or(0, |lane| story.entries(lane).len());
            view.list.step(by, len);
        }
        Some(View::Entry(view)) => view.scroll = view.scroll.saturating_add_signed(by),
        Some(View::Log(list)) => list.step(by, story.remarks().len()),
        Some(View::Help(list)) => list.offset = list.offset.saturating_add_signed(by),
        None if model.deck.focus == Pane::Units => {
            let row = model.unit_row().saturating_add_signed(by);
            choose(model, story, row);
        }
        None => {
            let len = model.deck.lane.map_or(0, |lane| story.rows(lane).len());
            model.deck.stream.step(by, len);
        }
    }
}

/// Selects a row of the unit table.
fn choose(model: &mut Model, story: &Story, row: usize) {
    model.deck.auto = false;
    let row = row.min(model.listed(story).saturating_sub(1));
    if let Some(unit) = model.listed_unit(row)
        && unit != model.deck.unit
    {
        model.deck.unit = unit;
        model.deck.attempt = None;
    }
}

fn ends(model: &mut Model, story: &Story, last: bool) {
    let go = |list: &mut List, len: usize| if last { list.end(len) } else { list.select(0, len) };
    match model.views.last_mut() {
        Some(View::Transcript(view)) => {
            let len = view.lane(story).map_or(0, |lane| story.entries(lane).len());
            go(&mut view.list, len);
        }
        Some(View::Entry(view)) => view.scroll = if last { view.lines } else { 0 },
        Some(View::Log(list)) => go(list, story.remarks().len()),
        Some(View::Help(list)) => list.offset = if last { usize::MAX } else { 0 },
        None if model.deck.focus == Pane::Units => choose(model, story, if last { usize::MAX } else { 0 }),
        None => {
            let len = model.deck.lane.map_or(0, |lane| story.rows(lane).len());
            go(&mut model.deck.stream, len);
        }
    }
}

/// Attempts of a unit, or neighbours of an entry.
fn sideways(model: &mut Model, story: &Story, by: isize) {
    match model.views.last_mut() {
        Some(View::Transcript(view)) => {
            if let Some((index, _)) = view.attempt(story) {
                let next = index.saturating_add_signed(by);
                if next != view.attempt {
                    view.attempt = next;
                    view.list = List::following();
                }
            }
        }
        Some(View::Entry(view)) => view.turn(story, by),
        Some(View::Help(_) | View::Log(_)) => {}
        None => {
            model.deck.auto = false;
            if let (Some((index, _)), Some(unit)) = (model.attempt(story), model.unit(story)) {
                let next = index.saturating_add_signed(by).min(unit.attempts.len().saturating_sub(1));
                // At the newest one, newer ones are shown as they come.
                model.deck.attempt = (next + 1 < unit.attempts.len()).then_some(next);
            }
        }
    }
}

fn open(model: &mut Model, story: &Story) {
    let view = match model.views.last() {
        Some(View::Transcript(view)) => {
            let Some(lane) = view.lane(story).filter(|lane| !story.entries(*lane).is_empty()) else { return };
            View::Entry(EntryView::new(view.unit.clone(), lane, Subject::Entry(view.list.selected)))
        }
        Some(View::Entry(_) | View::Help(_)) => return,
        Some(View::Log(list)) => {
            // To the unit that the remark is about.
            let about = story.remarks().get(list.selected).and_then(|remark| remark.unit.clone());
            if let Some(place) = about.and_then(|key| story.state.units.iter().position(|unit| unit.key == key)) {
                model.views.pop();
                model.deck.auto = false;
                (model.deck.unit, model.deck.attempt) = (place, None);
            }
            return;
        }
        None => {
            model.deck.auto = false;
            let Some(unit) = model.unit(story) else { return };
            let Some((index, attempt)) = model.attempt(story) else {
                let text = format!("{} has not run yet", unit.key);
                model.say(text);
                return;
            };
            match model.deck.focus {
                Pane::Units => {
                    View::Transcript(Transcript { unit: unit.key.clone(), attempt: index, list: List::following() })
                }
                Pane::Stream if story.rows(attempt.lane).is_empty() => return,
                Pane::Stream => View::Entry(EntryView::new(
                    unit.key.clone(),
                    attempt.lane,
                    Subject::Row(model.deck.stream.selected),
                )),
            }
        }
    };
    model.views.push(view);
}

fn back(model: &mut Model, story: &Story) {
    model.pending.clear();
    if model.views.pop().is_some() {
        return;
    }
    if model.search.take().is_some() {
        model.searching = false;
    } else if model.deck.filter != super::model::Filter::All {
        model.deck.filter = super::model::Filter::All;
        model.refilter(&story.state);
    } else if model.deck.zoom {
        model.deck.zoom = false;
    } else {
        model.deck.focus = Pane::Units;
    }
}

fn toggle(model: &mut Model, view: View, is_it: impl Fn(&View) -> bool) {
    if model.views.last().is_some_and(&is_it) {
        model.views.pop();
    } else {
        model.views.retain(|view| !is_it(view));
        model.views.push(view);
    }
}

/// The unit that an order is about.
fn target<'a>(model: &Model, story: &'a Story) -> Option<&'a Unit> {
    match model.views.last() {
        Some(View::Transcript(Transcript { unit, .. }) | View::Entry(EntryView { unit, .. })) => {
            story.state.units.iter().find(|known| known.key == *unit)
        }
        _ => model.unit(story),
    }
}

const RECORDED: &str = "this is a record: `ingestdeck run --resume-run` runs its units again";

fn retry(model: &mut Model, story: &Story) -> Vec<Effect> {
    model.deck.auto = false;
    let Some(unit) = target(model, story) else { return Vec::new() };
    let refusal = match unit.status {
        _ if !model.live => RECORDED.to_owned(),
        UnitStatus::Running => format!("{} is running; stop it first", unit.key),
        UnitStatus::Queued => format!("{} is queued; it runs by itself", unit.key),
        UnitStatus::Waiting
        | UnitStatus::Succeeded
        | UnitStatus::Budget
        | UnitStatus::Failed
        | UnitStatus::Stopped
        | UnitStatus::Interrupted => {
            let unit = unit.key.clone();
            model.say(format!("new attempt at {unit}"));
            return vec![Effect::Command(Command::Retry { unit })];
        }
    };
    model.say(refusal);
    Vec::new()
}

fn retry_failed(model: &mut Model, story: &Story) -> Vec<Effect> {
    let failed = story.state.units.iter().filter(|unit| is_failure(unit.status));
    let units: Vec<UnitKey> = failed.map(|unit| unit.key.clone()).collect();
    if !model.live {
        model.say(RECORDED);
    } else if units.is_empty() {
        model.say("no unit has failed");
    } else {
        model.question = Some(Question {
            text: format!("Retry {}?", counted(units.len(), "failed unit")),
            details: listed(&units),
            then: vec![Effect::Command(Command::RetryFailed { units })],
        });
    }
    Vec::new()
}

fn stop(model: &mut Model, story: &Story) -> Vec<Effect> {
    model.deck.auto = false;
    let Some(unit) = target(model, story) else { return Vec::new() };
    let key = unit.key.clone();
    if !model.live {
        model.say("this is a record: there is nothing to stop");
    } else if unit.status.is_over() {
        model.say(format!("{key} is over: {}", unit.status.word()));
    } else {
        model.question = Some(Question {
            text: format!("Stop {key}?"),
            details: vec!["What the attempt wrote is dropped; its record stays.".to_owned()],
            then: vec![Effect::Command(Command::Stop { unit: key })],
        });
    }
    Vec::new()
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn listed(units: &[UnitKey]) -> Vec<String> {
    const MOST: usize = 5;
    let mut lines: Vec<_> = units.iter().take(MOST).map(|unit| unit.as_str().to_owned()).collect();
    if units.len() > MOST {
        lines.push(format!("and {} more", units.len() - MOST));
    }
    lines
}

fn play(model: &mut Model) -> Vec<Effect> {
    model.pace = match model.pace {
        Pace::Hold if model.live => Pace::Follow,
        Pace::Hold => Pace::Scaled(1.0),
        Pace::Follow | Pace::Scaled(_) => Pace::Hold,
    };
    vec![Effect::SetPace(model.pace)]
}

fn moved(model: &mut Model, effect: Effect) -> Vec<Effect> {
    model.pace = Pace::Hold;
    model.deck.auto = false;
    vec![Effect::SetPace(Pace::Hold), effect]
}

fn turn(model: &mut Model, forward: bool) -> Vec<Effect> {
    let unit = model.deck.unit;
    moved(model, Effect::Step(Step::Turn { unit, forward }))
}

fn speed(model: &mut Model, factor: f64) -> Vec<Effect> {
    let now = match model.pace {
        Pace::Scaled(speed) => speed * factor,
        // The first press plays at the speed of the record.
        Pace::Follow | Pace::Hold => 1.0,
    };
    model.pace = Pace::Scaled(now.clamp(PACES.0, PACES.1));
    vec![Effect::SetPace(model.pace)]
}

fn quit(model: &mut Model) -> Vec<Effect> {
    let active = model.totals.active();
    if !model.live || active == 0 {
        return vec![Effect::Quit];
    }
    model.question = Some(Question {
        text: format!("{} still running. Stop and leave?", counted(active, "unit")),
        details: vec!["The record stays; `ingestdeck run --resume-run latest` goes on from it.".to_owned()],
        then: vec![Effect::Command(Command::StopAll), Effect::Quit],
    });
    Vec::new()
}

fn interrupt(model: &mut Model) -> Vec<Effect> {
    let (active, queued) = (model.totals.active(), model.totals.count(UnitStatus::Queued));
    if !model.live || active + queued == 0 {
        return vec![Effect::Quit];
    }
    model.question = None;
    model.interrupts = model.interrupts.saturating_add(1);
    match model.interrupts {
        1 => {
            model.say(format!("{} finishing, nothing new starts; again to stop them", counted(active, "unit")));
            vec![Effect::Command(Command::Drain)]
        }
        2 => {
            model.say("stopping all; again to kill and leave");
            vec![Effect::Command(Command::StopAll)]
        }
        _ => vec![Effect::Command(Command::KillAll), Effect::Quit],
    }
}

fn copy(model: &Model, story: &Story) -> Vec<Effect> {
    match model.views.last() {
        Some(View::Entry(view)) => {
            let seqs = view.parts.iter().map(|part| part.seq).collect();
            vec![Effect::CopyEntries { seqs, what: "entry".to_owned() }]
        }
        Some(View::Transcript(view)) => {
            let Some(lane) = view.lane(story) else { return Vec::new() };
            copy_entry(story, lane, view.list.selected)
        }
        Some(View::Log(list)) => story.remarks().get(list.selected).map_or_else(Vec::new, |remark| {
            vec![Effect::Copy { text: remark.text.clone(), what: "remark".to_owned() }]
        }),
        Some(View::Help(_)) => Vec::new(),
        None if model.deck.focus == Pane::Units => copy_name(model, story),
        None => {
            let Some(lane) = model.deck.lane else { return Vec::new() };
            let Some(row) = story.rows(lane).get(model.deck.stream.selected) else { return Vec::new() };
            let mut seqs = vec![row.first()];
            seqs.extend(row.last(story.state.entries).filter(|last| *last != row.first()));
            let what = if row.kind == RowKind::Tool { "call and result" } else { "entry" };
            vec![Effect::CopyEntries { seqs, what: what.to_owned() }]
        }
    }
}

fn copy_entry(story: &Story, lane: LaneId, index: usize) -> Vec<Effect> {
    let Some(seq) = story.entries(lane).get(index) else { return Vec::new() };
    let seqs = vec![crate::tape::Seq(u64::from(*seq))];
    vec![Effect::CopyEntries { seqs, what: "entry".to_owned() }]
}

fn copy_name(model: &Model, story: &Story) -> Vec<Effect> {
    let Some(unit) = target(model, story) else { return Vec::new() };
    let session = match model.views.last() {
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

fn click(model: &mut Model, story: &Story, x: u16, y: u16) -> Vec<Effect> {
    let plan = model.plan(story);
    let at = ratatui::layout::Position { x, y };
    if model.question.is_some() || plan.too_small() {
        return Vec::new();
    }
    let clicked = |rows: ratatui::layout::Rect| rows.contains(at).then(|| usize::from(y - rows.y));
    match model.views.last_mut() {
        Some(View::Transcript(view)) => {
            let mut rows = layout::inner(plan.body);
            (rows.y, rows.height) = (rows.y + 1, rows.height.saturating_sub(1));
            if let Some(row) = clicked(rows) {
                let len = view.lane(story).map_or(0, |lane| story.entries(lane).len());
                view.list.select(view.list.offset + row, len);
            }
        }
        Some(View::Log(list)) => {
            if let Some(row) = clicked(layout::inner(plan.body)) {
                list.select(list.offset + row, story.remarks().len());
            }
        }
        Some(View::Entry(_) | View::Help(_)) => {}
        None => {
            if let Some(pane) = plan.units.filter(|pane| pane.contains(at)) {
                model.deck.focus = Pane::Units;
                if let Some(row) =
                    clicked(layout::unit_list(pane)).filter(|row| model.deck.offset + row < model.listed(story))
                {
                    choose(model, story, model.deck.offset + row);
                }
            } else if let Some(pane) = plan.stream.filter(|pane| pane.contains(at)) {
                model.deck.focus = Pane::Stream;
                let rows = layout::stream_list(pane, model.attempt(story).map(|(_, attempt)| attempt)).0;
                let len = model.deck.lane.map_or(0, |lane| story.rows(lane).len());
                if let Some(row) = clicked(rows).map(|row| model.deck.stream.offset + row).filter(|row| *row < len) {
                    model.deck.stream.select(row, len);
                }
            }
        }
    }
    Vec::new()
}

fn wheel(model: &mut Model, story: &Story, x: u16, y: u16, down: bool) -> Vec<Effect> {
    if model.question.is_some() {
        return Vec::new();
    }
    let plan = model.plan(story);
    let at = ratatui::layout::Position { x, y };
    if model.views.is_empty() {
        let under = [(plan.units, Pane::Units), (plan.stream, Pane::Stream)];
        let Some((_, pane)) = under.into_iter().find(|(area, _)| area.is_some_and(|area| area.contains(at))) else {
            return Vec::new();
        };
        // The wheel scrolls what it is over; the focus stays where the keys are.
        let focus = std::mem::replace(&mut model.deck.focus, pane);
        step(model, story, if down { WHEEL } else { -WHEEL });
        model.deck.focus = focus;
    } else {
        step(model, story, if down { WHEEL } else { -WHEEL });
    }
    Vec::new()
}

/// True for rows that a person has to look at.
fn is_bad(end: RowEnd) -> bool {
    matches!(end, RowEnd::Failed | RowEnd::Denied)
}
