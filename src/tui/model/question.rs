//! A question in the middle of the screen and its answers.
//!
//! An answer has a meaning, and the meaning has the key: the same letter means the same in every question.

use crate::{action::UserAction, effect::ScreenEffect};
use ingestdeck_core::{tape::UnitKey, text};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ConfirmQuestion {
    pub text: String,
    /// Facts for the decision, one per line.
    pub details: Vec<String>,
    /// The answers that change something; leaving everything as it is is always possible.
    /// Empty once the question no longer applies.
    pub answers: Vec<QuestionAnswer>,
}

impl ConfirmQuestion {
    /// Rows of the question with its border on a screen of this width, at most.
    pub(crate) fn rows(&self, width: u16) -> usize {
        const MAX_COLUMNS: u16 = 76;
        const KEY_COLUMNS: usize = 14;
        let inside = usize::from(width.min(MAX_COLUMNS).saturating_sub(4)).max(1);
        let labels = inside.saturating_sub(KEY_COLUMNS).max(1);
        let lines = [&self.text].into_iter().chain(&self.details);
        let lines: usize = lines.map(|line| text::wrap(line, inside).len()).sum();
        let answers = self.answers.iter().map(|answer| &answer.label);
        let answers: usize = answers.map(|label| text::wrap(label, labels).len()).sum();
        // The answer that changes nothing, and the border.
        lines + answers + 3
    }
}

/// An answer that changes something.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QuestionAnswer {
    pub meaning: AnswerMeaning,
    /// What it does, in one line.
    pub label: String,
    pub then: Vec<ScreenEffect>,
}

/// Meaning of an answer in all questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerMeaning {
    /// Do what the question asks about.
    Confirm,
    /// Leave the screen, while the run continues.
    Leave,
    /// Stop the run, and leave the screen.
    Stop,
}

impl AnswerMeaning {
    pub(crate) fn action(self) -> UserAction {
        match self {
            Self::Confirm => UserAction::Confirm,
            Self::Leave => UserAction::LeaveRun,
            Self::Stop => UserAction::StopRun,
        }
    }
}

pub(crate) fn listed_keys(units: &[UnitKey]) -> Vec<String> {
    const MOST: usize = 5;
    let mut lines: Vec<_> = units
        .iter()
        .take(MOST)
        .map(|unit| unit.as_str().to_owned())
        .collect();
    if units.len() > MOST {
        lines.push(format!("and {} more", units.len() - MOST));
    }
    lines
}

impl ConfirmQuestion {
    /// A question whose confirmation has the effects `then`.
    pub(crate) fn new(
        text: impl Into<String>,
        details: Vec<String>,
        then: Vec<ScreenEffect>,
    ) -> Self {
        let answer = QuestionAnswer {
            meaning: AnswerMeaning::Confirm,
            label: "yes".to_owned(),
            then,
        };
        Self {
            text: text.into(),
            details,
            answers: vec![answer],
        }
    }

    pub(crate) fn has(&self, meaning: AnswerMeaning) -> bool {
        self.answers.iter().any(|answer| answer.meaning == meaning)
    }

    /// All effects that some answer has.
    pub(crate) fn effects(&self) -> impl Iterator<Item = &ScreenEffect> {
        self.answers.iter().flat_map(|answer| &answer.then)
    }

    /// The effects of one answer.
    pub(crate) fn into_effects(self, meaning: AnswerMeaning) -> Vec<ScreenEffect> {
        let answer = self
            .answers
            .into_iter()
            .find(|answer| answer.meaning == meaning);
        answer.map(|answer| answer.then).unwrap_or_default()
    }

    /// The answer of Enter, which changes and costs nothing.
    pub(crate) fn harmless_action(&self) -> UserAction {
        if self.has(AnswerMeaning::Leave) {
            UserAction::LeaveRun
        } else {
            UserAction::Cancel
        }
    }

    /// The actions that answer the question, in the order in which they are shown.
    pub(crate) fn actions(&self) -> Vec<UserAction> {
        self.answers
            .iter()
            .map(|answer| answer.meaning.action())
            .chain([UserAction::Cancel])
            .collect()
    }

    /// What [`UserAction::Cancel`] does here, in a word.
    pub(crate) fn cancel_word(&self) -> &'static str {
        match self.answers.as_slice() {
            [] => "close",
            [answer] if answer.meaning == AnswerMeaning::Confirm => "no",
            _ => "stay",
        }
    }

    /// Removes the answers, because they no longer apply. The question stays open, so that a key that was meant for it
    /// does not reach the page below.
    pub(crate) fn withdraw(&mut self, reason: &str) {
        self.answers.clear();
        self.details = vec![format!("No longer possible: {reason}.")];
    }
}
