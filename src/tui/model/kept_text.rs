//! Texts that a person wrote and the run could not take. The next question of the same kind about the same subject
//! begins with its text.

use super::InputPurpose;
use ingestdeck_core::{
    control::{ReviewOrder, ReviewVerdict, RunCommand, UserDecision},
    tape::UnitKey,
    text,
};

/// What a text was written for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TextPurpose {
    /// A message to the agent of a unit.
    Message(UnitKey),
    /// Why a call of a unit is denied.
    Denial(UnitKey),
    /// Feedback for the next attempts at units.
    Feedback(Vec<UnitKey>),
    /// What the unit of a changed file should change.
    SendBack(String),
    /// Why a change of a file is rejected.
    Rejection(String),
    /// The text of a changed file.
    File(String),
}

impl TextPurpose {
    /// The purpose of a typed line; `None` if it is not for the run.
    pub(crate) fn of_input(purpose: &InputPurpose) -> Option<Self> {
        Some(match purpose {
            InputPurpose::Say(unit) => Self::Message(unit.clone()),
            InputPurpose::Deny(call) => Self::Denial(call.unit.clone()),
            InputPurpose::DenyNext(unit) => Self::Denial(unit.clone()),
            InputPurpose::SendBack(target) => Self::SendBack(target.path.clone()),
            InputPurpose::Reject(target) => Self::Rejection(target.path.clone()),
            InputPurpose::Search
            | InputPurpose::Command
            | InputPurpose::FilterUnits
            | InputPurpose::OpenPath
            | InputPurpose::FindInRecords
            | InputPurpose::Bookmark(_) => {
                return None;
            }
        })
    }

    /// True if a text for `self` suits a question for `asked`.
    fn suits(&self, asked: &Self) -> bool {
        match (self, asked) {
            (Self::Feedback(kept), Self::Feedback(asked)) => {
                kept.iter().any(|unit| asked.contains(unit))
            }
            _ => self == asked,
        }
    }

    /// What offers the text again.
    pub(crate) fn question(&self) -> String {
        match self {
            Self::Message(unit) => format!("the next message to {unit}"),
            Self::Denial(unit) => format!("the next denial of a call of {unit}"),
            Self::Feedback(units) => {
                let names: Vec<&str> = units.iter().map(UnitKey::as_str).collect();
                format!("the next retry of {}", text::list_some(&names))
            }
            Self::SendBack(path) => format!("sending {path} back"),
            Self::Rejection(path) => format!("rejecting {path}"),
            Self::File(path) => format!("editing {path}"),
        }
    }
}

/// A text with its purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrittenText {
    pub purpose: TextPurpose,
    pub text: String,
}

impl WrittenText {
    /// The text in a command that a person wrote.
    pub(crate) fn of_command(command: &RunCommand) -> Option<Self> {
        let (purpose, text) = match command {
            RunCommand::Say { unit, text } => (TextPurpose::Message(unit.clone()), text),
            RunCommand::Decide {
                unit,
                decision: UserDecision::Deny(reason),
                ..
            } => (TextPurpose::Denial(unit.clone()), reason),
            RunCommand::Retry {
                unit,
                amendment: Some(amendment),
            } => (
                TextPurpose::Feedback(vec![unit.clone()]),
                amendment.feedback.as_ref()?,
            ),
            RunCommand::RetryUnits {
                units,
                amendment: Some(amendment),
            } => (
                TextPurpose::Feedback(units.clone()),
                amendment.feedback.as_ref()?,
            ),
            // The texts of patterns are in the history of the command line.
            RunCommand::Review { decisions } => match decisions.as_slice() {
                [
                    ReviewOrder {
                        path,
                        verdict,
                        reason,
                        ..
                    },
                    ..,
                ] => match verdict {
                    ReviewVerdict::SendBack(feedback) => {
                        (TextPurpose::SendBack(path.clone()), feedback)
                    }
                    ReviewVerdict::Edit(text) => (TextPurpose::File(path.clone()), text),
                    _ => (TextPurpose::Rejection(path.clone()), reason.as_ref()?),
                },
                [] => return None,
            },
            _ => return None,
        };
        Some(Self {
            purpose,
            text: text.clone(),
        })
    }
}

/// The texts that the run could not take, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptTexts {
    texts: Vec<WrittenText>,
}

impl KeptTexts {
    /// Keeps a text, unless it is blank. Returns where it is offered again.
    pub(crate) fn keep(&mut self, written: WrittenText) -> Option<String> {
        let question = (!written.text.trim().is_empty()).then(|| written.purpose.question());
        if question.is_some() {
            self.texts.push(written);
        }
        question
    }

    /// The newest text for a question, which stays here.
    pub(crate) fn find(&self, asked: &TextPurpose) -> Option<&str> {
        self.texts
            .iter()
            .rfind(|kept| kept.purpose.suits(asked))
            .map(|kept| kept.text.as_str())
    }

    /// The newest text for a question.
    pub(crate) fn take(&mut self, asked: &TextPurpose) -> Option<String> {
        let place = self
            .texts
            .iter()
            .rposition(|kept| kept.purpose.suits(asked))?;
        Some(self.texts.remove(place).text)
    }
}
