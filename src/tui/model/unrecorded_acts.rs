//! Decisions of this screen about the changes of a review that are not on the tape yet, so that the next undo knows what
//! is the last one.

use std::collections::VecDeque;

use ingestdeck_core::{
    control::{CommandOutcome, RunCommand},
    run::state::Publication,
};

/// The commands about decisions that this screen sent and has not read from the tape.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnrecordedActs {
    acts: VecDeque<UnrecordedAct>,
    /// Number of such commands on the tape, of all clients, when `acts` was last changed.
    recorded: u32,
    /// Whether each command without an answer is about decisions, oldest first.
    unanswered: VecDeque<bool>,
}

#[derive(Clone, Debug)]
enum UnrecordedAct {
    /// Decisions about the files with these paths.
    Decide(Vec<String>),
    Undo,
}

/// The last act that can be undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastAct<'a> {
    /// Number of acts up to it, which is at least 1.
    pub count: usize,
    /// Paths of the files that it decided about.
    pub paths: Vec<&'a str>,
}

impl UnrecordedActs {
    /// Adds a command that was sent. Those that are not about decisions change no act.
    pub(crate) fn sent(&mut self, command: &RunCommand, publication: &Publication) {
        let act = match command {
            RunCommand::Review { decisions } => {
                let mut paths: Vec<String> =
                    decisions.iter().map(|order| order.path.clone()).collect();
                paths.dedup();
                UnrecordedAct::Decide(paths)
            }
            RunCommand::UndoReview { .. } => UnrecordedAct::Undo,
            _ => {
                self.unanswered.push_back(false);
                return;
            }
        };
        self.unanswered.push_back(true);
        self.acts.drain(..self.recorded_count(publication));
        self.recorded = publication.review_commands;
        self.acts.push_back(act);
    }

    /// Handles the answer to the oldest command without one. What follows a refused decision may have another effect
    /// than expected, so nothing is expected.
    pub(crate) fn answered(&mut self, outcome: &CommandOutcome) {
        let is_about_decisions = self.unanswered.pop_front().unwrap_or(true);
        if outcome.is_err() && is_about_decisions {
            self.acts.clear();
        }
    }

    /// Number of `acts` that are on the tape. Those of other clients count too: after them, the engine refuses an undo.
    fn recorded_count(&self, publication: &Publication) -> usize {
        let recorded = publication.review_commands.saturating_sub(self.recorded);
        usize::try_from(recorded)
            .unwrap_or(usize::MAX)
            .min(self.acts.len())
    }

    /// The act that the next undo withdraws once all commands are carried out; `None` if there is none.
    pub(crate) fn last_act<'a>(&'a self, publication: &'a Publication) -> Option<LastAct<'a>> {
        let review = publication.review.as_deref()?;
        let (mut on_tape, mut unrecorded) = (review.act_count(), Vec::new());
        for act in self.acts.iter().skip(self.recorded_count(publication)) {
            match act {
                UnrecordedAct::Decide(paths) => unrecorded.push(paths),
                UnrecordedAct::Undo if unrecorded.pop().is_none() => {
                    on_tape = on_tape.saturating_sub(1)
                }
                UnrecordedAct::Undo => {}
            }
        }
        let paths = match unrecorded.last() {
            Some(paths) => paths.iter().map(String::as_str).collect(),
            None => review.act_paths(on_tape.checked_sub(1)?).collect(),
        };
        Some(LastAct {
            count: on_tape + unrecorded.len(),
            paths,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingestdeck_core::{
        control::{RefusalReason, ReviewOrder, ReviewVerdict},
        run::review::ReviewState,
    };

    fn publication(review_commands: u32) -> Publication {
        Publication {
            review: Some(ReviewState::default().into()),
            review_commands,
            ..Publication::default()
        }
    }

    fn decide(path: &str) -> RunCommand {
        let verdict = ReviewVerdict::Accept;
        RunCommand::Review {
            decisions: vec![ReviewOrder {
                path: path.into(),
                hunk: None,
                verdict,
                reason: None,
            }],
        }
    }

    #[test]
    fn refused_command_is_not_the_last_act() {
        let (mut acts, publication) = (UnrecordedActs::default(), publication(0));
        acts.sent(&decide("a.md"), &publication);
        acts.sent(&RunCommand::Drain, &publication);
        assert_eq!(
            acts.last_act(&publication),
            Some(LastAct {
                count: 1,
                paths: vec!["a.md"]
            })
        );
        let refused = Err(RefusalReason::NotInReview);
        acts.sent(&decide("b.md"), &publication);
        for (answer, count) in [
            (Ok(()), Some(2)),
            (refused.clone(), Some(2)),
            (refused, None),
        ] {
            acts.answered(&answer);
            assert_eq!(
                acts.last_act(&publication).map(|last| last.count),
                count,
                "{answer:?}"
            );
        }
        assert_eq!(acts.last_act(&Publication::default()), None, "no review");
    }

    #[test]
    fn commands_on_the_tape_are_no_longer_expected() {
        let mut acts = UnrecordedActs::default();
        for path in ["a.md", "b.md"] {
            acts.sent(&decide(path), &publication(0));
        }
        let count = |acts: &UnrecordedActs, recorded| {
            acts.last_act(&publication(recorded)).map(|last| last.count)
        };
        // The state of these publications has no acts, so only the expected ones count.
        assert_eq!(
            [0, 1, 2, 9].map(|recorded| count(&acts, recorded)),
            [Some(2), Some(1), None, None]
        );
        acts.sent(&decide("c.md"), &publication(1));
        assert_eq!(
            [1, 2, 3].map(|recorded| count(&acts, recorded)),
            [Some(2), Some(1), None]
        );
        // An undo of more than there is.
        for _ in 0..4 {
            acts.sent(&RunCommand::UndoReview { known: None }, &publication(3));
        }
        acts.sent(&decide("d.md"), &publication(3));
        assert_eq!(count(&acts, 3), Some(1));
    }
}
