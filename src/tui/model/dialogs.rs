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
    /// The file that the last command replaced, and its text.
    sent_edit: Option<(String, String)>,
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
        self.sent_edit = command.edited_file();
    }

    /// Keeps the text of the last command, which was refused. Returns false if it had none.
    pub(crate) fn command_refused(&mut self) -> bool {
        let (sent, edit) = (self.sent_text.take(), self.sent_edit.take());
        let had_text = sent.is_some() || edit.is_some();
        self.kept_edit = edit.or_else(|| self.kept_edit.take());
        sent.into_iter().for_each(|text| self.keep_text(text));
        had_text
    }

    /// True while a dialog covers the view.
    pub(crate) fn covers_view(&self) -> bool {
        self.question.is_some() || self.editor.is_some() || self.amend_form.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{ReviewOrder, ReviewVerdict};

    fn decided(verdict: ReviewVerdict) -> RunCommand {
        RunCommand::Review {
            decisions: vec![ReviewOrder { path: "wiki/global/arr.md".into(), hunk: None, verdict, reason: None }],
        }
    }

    #[test]
    fn refused_command_leaves_its_text_for_the_next_question() {
        let mut dialogs = Dialogs::default();
        dialogs.command_sent(&decided(ReviewVerdict::SendBack("name the owner".into())));
        assert!(dialogs.command_refused() && !dialogs.command_refused(), "once");
        dialogs.ask_text(InputPurpose::Say("docs".into()));
        assert_eq!(dialogs.line_input.take().unwrap().text, "name the owner");
        dialogs.ask_text(InputPurpose::Say("docs".into()));
        assert_eq!(dialogs.line_input.unwrap().text, "");
    }

    #[test]
    fn refused_edit_is_kept_for_its_file() {
        let mut dialogs = Dialogs::default();
        dialogs.command_sent(&decided(ReviewVerdict::Edit("# ARR".into())));
        assert!(dialogs.command_refused());
        assert_eq!(dialogs.kept_edit, Some(("wiki/global/arr.md".to_owned(), "# ARR".to_owned())));
        dialogs.command_sent(&decided(ReviewVerdict::Accept));
        assert!(!dialogs.command_refused() && dialogs.kept_edit.is_some());
    }
}
