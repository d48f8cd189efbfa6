//! Carrying out what the state wants done: what the timeline and the cache can answer at once, the rest goes out as acts.

use tokio::sync::mpsc;

use super::{Act, App};
use crate::tui::{
    effect::{Command, Effect},
    handout, load, seek, text,
};

/// Most bytes that a terminal takes for its clipboard.
const CLIPBOARD: usize = 74_000;

impl App {
    pub(super) fn perform(&mut self, effect: Effect) -> Option<Act> {
        match effect {
            Effect::Quit => return Some(Act::Quit),
            Effect::Suspend => return Some(Act::Suspend),
            Effect::Mouse(ours) => return Some(Act::Mouse(ours)),
            Effect::Redraw => return Some(Act::Clear),
            Effect::Copy { text, what } => return self.copy(text, &what),
            Effect::CopyEntries { seqs, what } => {
                let lines = seqs.iter().map(|seq| {
                    load::read(&mut self.timeline, *seq, |arrived| {
                        String::from_utf8_lossy(load::bytes(&arrived.body)).into_owned()
                    })
                });
                match lines.collect::<Result<Vec<_>, _>>() {
                    Ok(lines) => return self.copy(lines.join("\n"), &what),
                    Err(error) => self.model.say(error),
                }
            }
            Effect::CopySection { line } => {
                let section = self.cache.document().and_then(|document| document.section(line));
                match section.and_then(|section| Some((section.what, section.text.clone()?))) {
                    Some((what, text)) => return self.copy(text.to_string(), what),
                    None => self.model.say("there is nothing to copy here"),
                }
            }
            Effect::CopyName { row, text, what } => {
                let named = row.and_then(|(seq, block)| load::named(&mut self.timeline, seq, block));
                return match named {
                    Some((what, text)) => self.copy(text, what),
                    None => self.copy(text, what),
                };
            }
            Effect::HandOut(wish) => match handout::collect(&mut self.timeline, &wish, self.cache.document()) {
                Ok(handout) => {
                    if handout.cut {
                        self.model.say(format!("{} was too long; only its beginning was handed out", wish.what));
                    }
                    return Some(Act::HandOut(handout));
                }
                Err(error) => self.model.say(error),
            },
            Effect::Command(command) => self.command(command),
            Effect::Go(moment) => self.go(moment),
            Effect::Scrub(moment) => self.scrub = Some(moment),
            Effect::Step(step) => self.step(&step),
            Effect::Until(condition) => self.until(condition),
            Effect::SetPace(pace) => self.set_pace(pace),
            Effect::Find(find) => self.search = Some(seek::Search::new(find)),
        }
        None
    }

    fn copy(&mut self, text: String, what: &str) -> Option<Act> {
        let size = text::size(text.len() as u64);
        if text.len() > CLIPBOARD {
            self.model.say(format!("{what} is too large for the clipboard: {size}"));
            return None;
        }
        self.model.say(format!("copied {what}, {size}"));
        Some(Act::Copy(text))
    }

    fn command(&mut self, command: Command) {
        let Some(commands) = &self.commands else { return };
        match commands.try_send(command) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => self.model.say("the run is busy; try again"),
            Err(mpsc::error::TrySendError::Closed(_)) => self.model.say("the run is over; it takes no more orders"),
        }
    }
}
