//! Carrying out what the state wants done: what the timeline and the cache can answer at once, the rest goes out as acts.

use tokio::sync::mpsc;

use super::{Act, App};
use crate::{
    tape::Seq,
    tui::{
        effect::{Command, Effect},
        handout, load, seek, text,
    },
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
            Effect::CopyEntries { seqs, what } => return self.copy_entries(&seqs, &what),
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

    fn copy_entries(&mut self, seqs: &[Seq], what: &str) -> Option<Act> {
        let (mut lines, mut all) = (Vec::new(), 0);
        for seq in seqs {
            let line = load::read_head(&mut self.timeline, *seq, CLIPBOARD, |arrived, size| {
                all += size;
                // Of what is too large nothing is kept.
                (all <= CLIPBOARD as u64).then(|| String::from_utf8_lossy(arrived.body.bytes()).into_owned())
            });
            match line {
                Ok(line) => lines.extend(line),
                Err(error) => {
                    self.model.say(error);
                    return None;
                }
            }
        }
        if all > CLIPBOARD as u64 { self.refuse(what, all) } else { self.copy(lines.join("\n"), what) }
    }

    fn refuse(&mut self, what: &str, size: u64) -> Option<Act> {
        let size = text::size(size);
        self.model.say(format!("{what} is too large for the clipboard: {size}"));
        None
    }

    fn copy(&mut self, text: String, what: &str) -> Option<Act> {
        let size = text::size(text.len() as u64);
        if text.len() > CLIPBOARD {
            return self.refuse(what, text.len() as u64);
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
