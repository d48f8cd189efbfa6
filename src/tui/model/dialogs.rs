//! Questions and typed texts, and what remains of a text that the run could not take.

use std::{
    collections::{BTreeMap, VecDeque},
    path::PathBuf,
};

use super::{
    AmendForm, AnswerForm, ArgumentsEditor, CommandHistory, ConfirmQuestion, InputPurpose,
    KeptTexts, LineInput, TableSettings, TextPurpose, WrittenText,
};
use crate::stream_frame::HeldChanges;
use ingestdeck_core::{
    control::{CommandOutcome, RunCommand},
    run::state::{AttemptId, AttemptState, RunView},
    tape::UnitKey,
};

/// Questions and text input on top of the page. At most one of them has the keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dialogs {
    /// The confirmation that is open.
    pub question: Option<ConfirmQuestion>,
    /// The line that is being typed.
    pub line_input: Option<LineInput>,
    /// Editor for the arguments of a held call.
    pub editor: Option<ArgumentsEditor>,
    /// Form for the answer to a held call.
    pub answer_form: Option<AnswerForm>,
    /// Form for the amendment of the next attempt at a unit.
    pub amend_form: Option<AmendForm>,
    /// Texts that the run could not take.
    pub kept_texts: KeptTexts,
    /// Files with texts of an editor that are not accepted, by the path of the changed file.
    pub unused_files: BTreeMap<String, PathBuf>,
    /// The commands without an answer, oldest first: the text that a person wrote in each.
    unanswered: VecDeque<Option<WrittenText>>,
    /// Messages that their agents have not received yet, oldest first.
    awaited_messages: Vec<AwaitedMessage>,
    /// History of the command line.
    pub history: CommandHistory,
    /// What the calls that wait would change.
    pub held_changes: HeldChanges,
    /// True if the page shows a call or a change that waits for a decision, which must be seen.
    pub awaits_decision: bool,
    /// Units whose hold was requested and is not in the record yet.
    pub requested_holds: Vec<UnitKey>,
    /// Arrangements of the table that commands show, by name.
    pub views: BTreeMap<String, TableSettings>,
    /// Reasons for denying the next call of a unit, written before there was one.
    pub next_denials: BTreeMap<UnitKey, String>,
}

/// A message to the agent of a unit that the agent has not received yet.
#[derive(Clone, Debug)]
struct AwaitedMessage {
    unit: UnitKey,
    attempt: AttemptId,
    /// Number of the message among those that the attempt receives.
    number: u32,
    text: String,
}

impl Dialogs {
    /// Remembers a message for the agent of a running attempt until it is received.
    pub(crate) fn message_sent(&mut self, unit: &UnitKey, attempt: &AttemptState, text: String) {
        let before = self
            .awaited_messages
            .iter()
            .filter(|message| message.attempt == attempt.id)
            .count();
        let number = attempt
            .counts
            .messages_sent
            .saturating_add(u32::try_from(before).unwrap_or(u32::MAX))
            .saturating_add(1);
        self.awaited_messages.push(AwaitedMessage {
            unit: unit.clone(),
            attempt: attempt.id,
            number,
            text,
        });
    }

    /// A message will not be received, so later ones for its attempt have a lower number.
    fn message_refused(&mut self, unit: &UnitKey, text: &str) {
        let is_refused = |message: &AwaitedMessage| message.unit == *unit && message.text == text;
        let Some(at) = self.awaited_messages.iter().position(is_refused) else {
            return;
        };
        let refused = self.awaited_messages.remove(at);
        for later in self.awaited_messages[at..]
            .iter_mut()
            .filter(|later| later.attempt == refused.attempt)
        {
            later.number = later.number.saturating_sub(1);
        }
    }

    /// Keeps the text of messages whose attempt ended before its agent received them. Returns what to report.
    pub(crate) fn settle_messages(&mut self, run_view: &RunView) -> Vec<String> {
        let mut reports = Vec::new();
        for message in std::mem::take(&mut self.awaited_messages) {
            let unit = run_view
                .state
                .units
                .iter()
                .find(|unit| unit.key == message.unit);
            let Some(unit) = unit else { continue };
            let attempt = unit
                .attempts
                .iter()
                .find(|attempt| attempt.id == message.attempt);
            let is_current = unit
                .latest()
                .is_some_and(|latest| latest.id == message.attempt);
            let key = &message.unit;
            if attempt.is_some_and(|attempt| attempt.counts.messages_sent >= message.number) {
                reports.push(format!(
                    "{key} receives the message with the result of its call"
                ));
            } else if is_current && unit.status.is_in_flight() {
                self.awaited_messages.push(message);
            } else {
                let written = WrittenText {
                    purpose: TextPurpose::Feedback(vec![message.unit.clone()]),
                    text: message.text,
                };
                let reason = format!("{key} ended before the message reached it");
                reports.push(self.refused(&reason, Some(written)));
            }
        }
        reports
    }

    /// Lets the user type a text. It begins with a text that the run could not take.
    pub(crate) fn ask_text(&mut self, purpose: InputPurpose) {
        let kept =
            TextPurpose::of_input(&purpose).and_then(|purpose| self.kept_texts.take(&purpose));
        self.line_input = Some(LineInput {
            text: kept.unwrap_or_default(),
            purpose,
        });
    }

    /// Remembers the text of a command that is sent.
    pub(crate) fn command_sent(&mut self, command: &RunCommand) {
        self.unanswered.push_back(WrittenText::of_command(command));
    }

    /// Handles the answer to the oldest command without one. Returns what to show about a refusal, whose text is kept.
    pub(crate) fn command_answered(&mut self, outcome: CommandOutcome) -> Option<String> {
        let written = self.unanswered.pop_front().flatten();
        if outcome.is_err() {
            // It may be the answer to one of them.
            self.requested_holds.clear();
        }
        if let (
            Err(_),
            Some(WrittenText {
                purpose: TextPurpose::Message(unit),
                text,
            }),
        ) = (&outcome, &written)
        {
            self.message_refused(unit, text);
        }
        outcome
            .err()
            .map(|reason| self.refused(&reason.to_string(), written))
    }

    /// Keeps the text that was not accepted. Returns `reason`, with where the text is offered again.
    pub(crate) fn refused(&mut self, reason: &str, written: Option<WrittenText>) -> String {
        match written.and_then(|written| self.kept_texts.keep(written)) {
            Some(question) => format!("{reason}; your text is kept for {question}"),
            None => reason.to_owned(),
        }
    }

    /// True while a form or an editor has the keys.
    pub(crate) fn is_editing(&self) -> bool {
        self.editor.is_some() || self.amend_form.is_some() || self.answer_form.is_some()
    }

    /// True while a dialog covers the page. A line that is typed has its place in the footer.
    pub(crate) fn covers_view(&self) -> bool {
        self.question.is_some() || self.is_editing()
    }

    /// True while a dialog needs more rows than a small screen has: all of a form, and a question that does not fit.
    pub(crate) fn needs_rows(&self, (width, height): (u16, u16)) -> bool {
        // Header, timeline bar and footer remain.
        let rows = usize::from(height.saturating_sub(3));
        let question = self.question.as_ref();
        question.is_some_and(|question| question.rows(width) > rows) || self.is_editing()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ReviewTarget;
    use ingestdeck_core::{
        control::{RefusalReason, ReviewOrder, ReviewVerdict},
        tape::note::Amendment,
    };

    fn decided(verdict: ReviewVerdict) -> RunCommand {
        RunCommand::Review {
            decisions: vec![ReviewOrder {
                path: "wiki/global/arr.md".into(),
                hunk: None,
                verdict,
                reason: None,
            }],
        }
    }

    fn refusal() -> CommandOutcome {
        Err(RefusalReason::NotInReview)
    }

    #[test]
    fn refused_text_is_offered_to_its_question_only() {
        let target = |path: &str| ReviewTarget {
            path: path.into(),
            hunk: None,
        };
        let mut dialogs = Dialogs::default();
        let mut sent = |command: &RunCommand| dialogs.command_sent(command);
        sent(&decided(ReviewVerdict::SendBack("name the owner".into())));
        sent(&decided(ReviewVerdict::Accept));
        sent(&RunCommand::Say {
            unit: "docs".into(),
            text: "hurry".into(),
        });
        // The answers belong to the commands in their order.
        let shown = dialogs.command_answered(refusal()).unwrap();
        assert!(
            shown.ends_with("your text is kept for sending wiki/global/arr.md back"),
            "{shown}"
        );
        assert_eq!(dialogs.command_answered(Ok(())), None);
        let shown = dialogs.command_answered(refusal()).unwrap();
        assert!(
            shown.ends_with("your text is kept for the next message to docs"),
            "{shown}"
        );
        let mut offered = |purpose| {
            dialogs.ask_text(purpose);
            dialogs.line_input.take().unwrap().text
        };
        for other in [
            InputPurpose::Say("other".into()),
            InputPurpose::Reject(target("wiki/global/arr.md")),
            InputPurpose::SendBack(target("wiki/global/other.md")),
            InputPurpose::Command,
            InputPurpose::Search,
        ] {
            assert_eq!(offered(other.clone()), "", "{other:?}");
        }
        let hunk = ReviewTarget {
            hunk: Some("5f".into()),
            ..target("wiki/global/arr.md")
        };
        assert_eq!(offered(InputPurpose::SendBack(hunk)), "name the owner");
        assert_eq!(
            offered(InputPurpose::SendBack(target("wiki/global/arr.md"))),
            "",
            "once"
        );
        assert_eq!(offered(InputPurpose::Say("docs".into())), "hurry");
    }

    #[test]
    fn refused_message_is_the_only_one_not_awaited() {
        let mut dialogs = Dialogs::default();
        for (unit, id) in [("a", 1), ("b", 2), ("b", 2)] {
            let attempt = AttemptState {
                id: AttemptId(id),
                ..AttemptState::default()
            };
            dialogs.command_sent(&RunCommand::Say {
                unit: unit.into(),
                text: "hurry".into(),
            });
            dialogs.message_sent(&unit.into(), &attempt, "hurry".to_owned());
        }
        let awaited = |dialogs: &Dialogs| -> Vec<(String, u32)> {
            dialogs
                .awaited_messages
                .iter()
                .map(|message| (message.unit.to_string(), message.number))
                .collect()
        };
        assert_eq!(
            awaited(&dialogs),
            [("a".into(), 1), ("b".into(), 1), ("b".into(), 2)]
        );
        assert_eq!(dialogs.command_answered(Ok(())), None);
        assert!(dialogs.command_answered(refusal()).is_some());
        assert_eq!(awaited(&dialogs), [("a".into(), 1), ("b".into(), 1)]);
    }

    #[test]
    fn texts_for_the_same_question_are_all_kept() {
        let mut dialogs = Dialogs::default();
        for text in ["first", "second", " "] {
            dialogs.command_sent(&RunCommand::Say {
                unit: "docs".into(),
                text: text.into(),
            });
        }
        for _ in 0..3 {
            assert!(dialogs.command_answered(refusal()).is_some());
        }
        for text in ["second", "first", ""] {
            dialogs.ask_text(InputPurpose::Say("docs".into()));
            assert_eq!(dialogs.line_input.take().unwrap().text, text);
        }
        assert!(
            dialogs.command_answered(refusal()).is_some(),
            "a refusal without a command"
        );
    }

    #[test]
    fn feedback_is_kept_for_each_of_its_units() {
        let mut dialogs = Dialogs::default();
        let amendment = Amendment {
            feedback: Some("cite".into()),
            ..Amendment::default()
        };
        let units = vec!["a".into(), "b".into()];
        dialogs.command_sent(&RunCommand::RetryUnits {
            units,
            amendment: Some(amendment),
        });
        dialogs.command_answered(refusal());
        assert_eq!(
            dialogs
                .kept_texts
                .take(&TextPurpose::Feedback(vec!["c".into()])),
            None
        );
        assert_eq!(
            dialogs
                .kept_texts
                .take(&TextPurpose::Feedback(vec!["b".into()]))
                .as_deref(),
            Some("cite")
        );
    }

    #[test]
    fn refused_edit_is_kept_for_its_file() {
        let mut dialogs = Dialogs::default();
        dialogs.command_sent(&decided(ReviewVerdict::Edit("# ARR".into())));
        assert!(dialogs.command_answered(refusal()).is_some());
        dialogs.command_sent(&decided(ReviewVerdict::Accept));
        assert!(dialogs.command_answered(refusal()).is_some());
        let file = TextPurpose::File("wiki/global/arr.md".into());
        assert_eq!(dialogs.kept_texts.find(&file), Some("# ARR"));
    }
}
