//! Questions and typed texts, and what remains of a text that the run could not take.

use super::{AmendForm, ArgumentsEditor, CommandHistory, ConfirmQuestion, InputPurpose, LineInput};
use crate::control::RunCommand;

/// Questions and text input on top of the view. At most one of them has the keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dialogs {
    /// The confirmation that is open.
    pub question: Option<ConfirmQuestion>,
    /// The line that is being typed.
    pub line_input: Option<LineInput>,
    /// Editor for the arguments of a held call.
    pub editor: Option<ArgumentsEditor>,
    /// Form for the amendment of the next attempt at a unit.
    pub amend_form: Option<AmendForm>,
    /// Path of the changed file that is open in an editor.
    pub edited_review: Option<String>,
    /// Text of such a file that the review could not take, with its path.
    pub kept_edit: Option<(String, String)>,
    /// A typed text that the run could not take. The next question for a text begins with it.
    kept_text: Option<String>,
    /// The text of the last command, until another one is sent.
    sent_text: Option<String>,
    /// History of the command line.
    pub history: CommandHistory,
}

impl Dialogs {
    /// Lets the user type a text. It begins with a text that the run could not take.
    pub(crate) fn ask_text(&mut self, purpose: InputPurpose) {
        self.line_input = Some(LineInput { text: self.kept_text.take().unwrap_or_default(), purpose });
    }

    /// The kept text, for a form.
    pub(crate) fn take_kept_text(&mut self) -> Option<String> {
        self.kept_text.take()
    }

    /// Keeps a typed text for the next question for one.
    pub(crate) fn keep_text(&mut self, text: String) {
        if !text.trim().is_empty() {
            self.kept_text = Some(text);
        }
    }

    /// Remembers the text of a command that is sent.
    pub(crate) fn command_sent(&mut self, command: &RunCommand) {
        self.sent_text = command.typed_text().map(str::to_owned);
    }

    /// Keeps the text of the last command, which was refused. Returns false if it had none.
    pub(crate) fn command_refused(&mut self) -> bool {
        let sent = self.sent_text.take();
        let had_text = sent.is_some();
        sent.into_iter().for_each(|text| self.keep_text(text));
        had_text
    }

    /// True while a dialog covers the view.
    pub(crate) fn covers_view(&self) -> bool {
        self.question.is_some() || self.editor.is_some() || self.amend_form.is_some()
    }
}
