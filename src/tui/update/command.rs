//! Carrying out typed commands: places become moments, names become actions, and what cannot be says why.

use jiff::{SignedDuration, civil, tz::TimeZone};

use super::{
    hold,
    keys::{act, scopes},
    time,
};
use crate::{
    run::{Moment, state::Story},
    tape::Millis,
    tui::{
        action::{Action, Scope},
        breakpoint::{Breakpoint, Condition},
        command::{self, Place, Request},
        effect::Effect,
        model::{List, Model, Pace, Purpose, Typing, View},
        view::clock,
    },
};

/// Breakpoints that are kept.
const MOST_BREAKPOINTS: usize = 50;

/// A command was typed.
pub(super) fn accept(model: &mut Model, story: &Story, text: String) -> Vec<Effect> {
    let done = match command::parse(&text) {
        Ok(request) => {
            model.history.keep(&text);
            carry_out(model, story, request)
        }
        Err(error) => Err(error.to_string()),
    };
    done.unwrap_or_else(|error| {
        model.say(error);
        // What was typed can be mended.
        model.typing = Some(Typing { text, purpose: Purpose::Command });
        Vec::new()
    })
}

fn carry_out(model: &mut Model, story: &Story, request: Request) -> Result<Vec<Effect>, String> {
    Ok(match request {
        Request::Go(Place::Start) => time::moved(model, Effect::Go(Moment::Entries(0))),
        Request::Go(Place::End) | Request::Live => time::to_end(model),
        Request::Go(place) => {
            let moment = moment(model, story, place)?;
            let ahead = match moment {
                Moment::Time(at) => at > model.extent.last.max(model.extent.now),
                Moment::Entries(entries) => entries > model.extent.known.max(story.state.entries),
            };
            if model.live && ahead {
                return Err("that moment has not come yet".to_owned());
            }
            time::moved(model, Effect::Go(moment))
        }
        Request::Speed(speed) => time::set_speed(model, speed.map_or(Pace::Full, Pace::Scaled)),
        Request::Until(condition) => until(model, story, condition)?,
        Request::Break(condition) => {
            add(model, condition)?;
            Vec::new()
        }
        Request::Breaks => act(model, story, Action::Breakpoints),
        Request::Act(action) if scopes(model, story).contains(&action.scope()) => act(model, story, action),
        Request::Act(action) => {
            let what = match action.scope() {
                Scope::Held => "a unit that you hold",
                Scope::Live => "a unit that runs and can be held",
                _ => "something that is not on the screen",
            };
            return Err(format!("`{}` is for {what}; select one first", action.name()));
        }
    })
}

/// Of a record, time goes on until then; of a run that goes on, the selected unit does.
fn until(model: &mut Model, story: &Story, condition: Condition) -> Result<Vec<Effect>, String> {
    if !model.live || model.pace != Pace::Follow {
        return Ok(time::moved(model, Effect::Until(condition)));
    }
    let silent = matches!(condition, Condition::Silence(_));
    match hold::subject(model, story) {
        Some(unit) if silent => Err(format!(
            "{} can be held at a call, which no silence is; write failure, tool NAME, path GLOB or cost $0.50",
            unit.key
        )),
        Some(_) => Ok(hold::run_until(model, story, condition)),
        None => {
            Err(format!("this is LIVE and no unit is selected that runs until {condition}; select one, or step back"))
        }
    }
}

fn add(model: &mut Model, condition: Condition) -> Result<(), String> {
    if let Some(known) = model.breakpoints.iter_mut().find(|known| known.condition == condition) {
        known.on = true;
        model.say(format!("there is a breakpoint for {condition} already; it is on"));
        return Ok(());
    }
    if model.breakpoints.len() >= MOST_BREAKPOINTS {
        return Err(format!("there are {MOST_BREAKPOINTS} breakpoints already; delete one in the list first"));
    }
    let number = model.breakpoints.len() + 1;
    model.say(format!("breakpoint {number}: {condition}"));
    model.breakpoints.push(Breakpoint { condition, on: true });
    Ok(())
}

/// The moment that people mean by a place.
fn moment(model: &Model, story: &Story, place: Place) -> Result<Moment, String> {
    let (now, last) = (story.state.now, model.extent.last);
    let at = match place {
        Place::Start => Millis(0),
        Place::End => last,
        Place::Time(at) => at,
        Place::Later(by) => Millis(now.0.saturating_add(by.0)),
        Place::Earlier(by) => Millis(now.0.saturating_sub(by.0)),
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        Place::Percent(share) => Millis((last.0 as f64 * share / 100.0).round() as u64),
        Place::Entry(entries) => return Ok(Moment::Entries(entries)),
        Place::Clock(hours, minutes, seconds) => {
            let minutes = hours.saturating_mul(60).saturating_add(u64::from(minutes));
            let at = Millis(minutes.saturating_mul(60).saturating_add(u64::from(seconds)).saturating_mul(1000));
            match u8::try_from(hours) {
                // A run that is not as long as that cannot be meant.
                Ok(hours @ 0..24) if at > last && model.extent.started_at.is_some() => {
                    let minutes = u8::try_from(minutes % 60).unwrap_or_default();
                    on_the_wall(model, hours, minutes, seconds)?
                }
                _ => at,
            }
        }
        Place::Wall(hours, minutes, seconds) => on_the_wall(model, hours, minutes, seconds)?,
    };
    if !model.extent.has_times {
        return Err("this record has no times; go to an entry such as #120, or to a share such as 50%".to_owned())
            .or_else(|error| if matches!(place, Place::Percent(_)) { Ok(Moment::Time(at)) } else { Err(error) });
    }
    Ok(Moment::Time(at))
}

/// The first time after the beginning at which a clock on the wall shows that.
fn on_the_wall(model: &Model, hours: u8, minutes: u8, seconds: u8) -> Result<Millis, String> {
    let extent = &model.extent;
    let start = extent.started_at.filter(|_| extent.has_times);
    let start =
        start.ok_or("this record does not say when it began; write a time since its beginning, such as 12m30s")?;
    let start = start.to_zoned(extent.zone.clone());
    let fields = [hours, minutes, seconds].map(|field| i8::try_from(field).unwrap_or_default());
    let shown = || format!("{hours:02}:{minutes:02}:{seconds:02}");
    let found = civil::Time::new(fields[0], fields[1], fields[2], 999_000_000).ok().and_then(|time| {
        let today = start.date().to_datetime(time).to_zoned(start.time_zone().clone()).ok()?;
        let there = if today < start { today.tomorrow().ok()? } else { today };
        u64::try_from(start.duration_until(&there).as_millis()).ok().map(Millis)
    });
    let at = found.ok_or_else(|| format!("{} is no time of that day", shown()))?;
    if at.0 > extent.last.0.saturating_add(1000) {
        let from = wall(start.timestamp(), Millis(0), &extent.zone).unwrap_or_default();
        let to = wall(start.timestamp(), extent.last, &extent.zone).unwrap_or_default();
        let length = clock(extent.last);
        return Err(format!("{} is not in this record, which goes from {from} to {to}, {length} long", shown()));
    }
    Ok(at)
}

/// What a clock on the wall showed at a time of a run.
pub(in crate::tui) fn wall(start: jiff::Timestamp, at: Millis, zone: &TimeZone) -> Option<String> {
    let passed = SignedDuration::from_millis(i64::try_from(at.0).ok()?);
    let zoned = start.checked_add(passed).ok()?.to_zoned(zone.clone());
    Some(zoned.strftime("%H:%M:%S").to_string())
}

/// Goes on with the word that is typed, as far as there is no choice.
pub(super) fn complete(model: &mut Model) {
    if let Some(Typing { text, purpose: Purpose::Command }) = &mut model.typing {
        *text = command::complete(text).text;
    }
}

/// Shows an older line, or a newer one.
pub(super) fn recall(model: &mut Model, older: bool) {
    if let Some(Typing { text, purpose: Purpose::Command }) = &mut model.typing {
        let line = if older { model.history.older(text) } else { model.history.newer() };
        if let Some(line) = line {
            *text = line;
        }
    }
}

/// Opens the command line.
pub(super) fn open(model: &mut Model) {
    model.history.leave();
    model.typing = Some(Typing::new(Purpose::Command));
}

/// The list of breakpoints.
pub(super) fn list() -> View {
    View::Breakpoints(List::default())
}
