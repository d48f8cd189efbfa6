//! The form that answers a held call: the questions of a model or the fields of a tool server, one after another.
//!
//! It holds what is chosen and typed. Whether the answer is valid is decided by [`InputForm`].

use crossterm::event::KeyCode;
use ratatui::style::{Modifier, Style};
use serde_json::{Map, Value};
use tui_textarea::{CursorMove, TextArea, WrapMode};

use super::{CallId, text_keys};
use crate::key::KeyPress;
use ingestdeck_core::{
    actions::input_form::{FieldAnswer, InputField, InputForm, MAX_ANSWER_CHARS},
    diagnostic::Diagnostic as _,
    text,
};

/// The form for the answer to a held call.
#[derive(Clone, Debug)]
pub(crate) struct AnswerForm {
    pub call: CallId,
    pub form: InputForm,
    /// What is chosen and typed, by field.
    states: Vec<FieldState>,
    /// Number of the field that is shown.
    pub field: usize,
    /// The row with the cursor: an option, or the text below the options.
    pub row: usize,
    /// Why the answer cannot be sent.
    pub problem: Option<String>,
}

/// What is chosen and typed for one field.
#[derive(Clone, Debug)]
struct FieldState {
    /// Numbers of options, in ascending order.
    chosen: Vec<usize>,
    text: TextArea<'static>,
}

/// What a key of the form asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormStep {
    /// The form shows the change.
    Stay,
    Send,
    /// Answer nothing, with a reason.
    Decline,
}

impl AnswerForm {
    pub(crate) fn new(call: CallId, form: InputForm) -> Self {
        let state = FieldState {
            chosen: Vec::new(),
            text: area(""),
        };
        let states = vec![state; form.fields.len()];
        let mut form = Self {
            call,
            form,
            states,
            field: 0,
            row: 0,
            problem: None,
        };
        form.move_to(0);
        form
    }

    /// The field that is shown.
    pub(crate) fn current(&self) -> Option<&InputField> {
        self.form.fields.get(self.field)
    }

    /// The text of the field that is shown.
    pub(crate) fn text(&self) -> Option<&TextArea<'static>> {
        self.states.get(self.field).map(|state| &state.text)
    }

    /// True if this option of the field that is shown is chosen.
    pub(crate) fn is_chosen(&self, option: usize) -> bool {
        let state = self.states.get(self.field);
        state.is_some_and(|state| state.chosen.contains(&option))
    }

    /// True while keys are text.
    pub(crate) fn is_typing(&self) -> bool {
        self.current()
            .is_some_and(|field| field.text.is_some() && self.row >= field.options.len())
    }

    /// Passes a key to the field that is shown.
    pub(crate) fn handle_key(&mut self, key: KeyPress) -> FormStep {
        self.problem = None;
        let Some(field) = self.current() else {
            return FormStep::Stay;
        };
        let options = field.options.len();
        let rows = options + usize::from(field.text.is_some());
        if self.is_typing() {
            return self.type_key(key, options);
        }
        match (key.code, key.typed()) {
            (_, Some(char @ '1'..='9')) => {
                let row = "123456789".find(char).unwrap_or_default();
                if row < options {
                    self.choose(row);
                } else if row < rows {
                    self.move_to(row);
                }
            }
            (KeyCode::Down, _) | (_, Some('j')) => {
                self.move_to((self.row + 1).min(rows.saturating_sub(1)));
            }
            (KeyCode::Up, _) | (_, Some('k')) => self.move_to(self.row.saturating_sub(1)),
            (_, Some(' ')) => self.choose(self.row),
            (_, Some('o')) if rows > options => self.move_to(options),
            (_, Some('d')) => return FormStep::Decline,
            (KeyCode::Enter, _) => {
                let is_open = self
                    .states
                    .get(self.field)
                    .is_some_and(|state| state.chosen.is_empty() && !has_text(&state.text));
                if is_open && field_needs_choice(self.current()) {
                    self.choose(self.row);
                }
                return self.confirm();
            }
            _ => {}
        }
        FormStep::Stay
    }

    fn type_key(&mut self, key: KeyPress, options: usize) -> FormStep {
        let field = self.field;
        let is_multiple = self.current().is_some_and(|field| field.is_multiple);
        let Some(state) = self.states.get_mut(field) else {
            return FormStep::Stay;
        };
        match key.code {
            KeyCode::Enter => return self.confirm(),
            KeyCode::Up if options > 0 && state.text.cursor().0 == 0 => {
                self.move_to(options - 1);
                return FormStep::Stay;
            }
            _ if key.typed().is_some_and(text::is_hidden) => {}
            _ => {
                text_keys::edit(&mut state.text, key);
                if !is_multiple && has_text(&state.text) {
                    state.chosen.clear();
                }
            }
        }
        FormStep::Stay
    }

    /// Shows the next field, or sends the answer after the last one.
    fn confirm(&mut self) -> FormStep {
        if self.field + 1 >= self.form.fields.len() {
            return FormStep::Send;
        }
        self.show_field(self.field + 1);
        FormStep::Stay
    }

    /// Chooses an option, or takes back the choice where several can be chosen.
    pub(crate) fn choose(&mut self, option: usize) {
        let Some(field) = self.current() else { return };
        let (count, is_multiple) = (field.options.len(), field.is_multiple);
        if option >= count {
            return;
        }
        if let Some(state) = self.states.get_mut(self.field) {
            match state.chosen.binary_search(&option) {
                Ok(at) if is_multiple => {
                    state.chosen.remove(at);
                }
                Err(at) if is_multiple => state.chosen.insert(at, option),
                Ok(_) | Err(_) => state.chosen = vec![option],
            }
        }
        self.move_to(option);
    }

    /// Shows the next or the previous field.
    pub(crate) fn next_field(&mut self, forward: bool) {
        let count = self.form.fields.len().max(1);
        let by = if forward { 1 } else { count - 1 };
        self.show_field((self.field + by) % count);
    }

    fn show_field(&mut self, field: usize) {
        self.move_to(usize::MAX);
        self.field = field;
        let first = self.states.get(field).and_then(|state| {
            let own = has_text(&state.text).then_some(usize::MAX);
            state.chosen.first().copied().or(own)
        });
        let last = self.current().map_or(0, |field| {
            (field.options.len() + usize::from(field.text.is_some())).saturating_sub(1)
        });
        self.move_to(first.unwrap_or(0).min(last));
    }

    /// Moves the cursor. Only a text that is being typed shows one.
    fn move_to(&mut self, row: usize) {
        self.row = row;
        let is_typing = self.is_typing() && row != usize::MAX;
        if let Some(state) = self.states.get_mut(self.field) {
            state.text.set_cursor_style(if is_typing {
                Style::default().add_modifier(Modifier::REVERSED)
            } else {
                Style::default()
            });
        }
    }

    /// Inserts text from the clipboard without invisible characters.
    pub(crate) fn paste(&mut self, pasted: &str) {
        self.problem = None;
        if !self.is_typing() {
            self.problem = Some("move to the text first, then paste".to_owned());
            return;
        }
        let is_multiple = self.current().is_some_and(|field| field.is_multiple);
        if let Some(state) = self.states.get_mut(self.field) {
            state.text.insert_str(safe(pasted));
            if !is_multiple && has_text(&state.text) {
                state.chosen.clear();
            }
        }
    }

    /// Replaces the text by what another program left.
    pub(crate) fn replace(&mut self, text: &str) {
        let Some(field) = self.current() else { return };
        if field.text.is_none() {
            self.problem = Some("this field takes no text".to_owned());
            return;
        }
        let row = field.options.len();
        if let Some(state) = self.states.get_mut(self.field) {
            state.text = area(text.trim_end_matches(['\r', '\n']));
        }
        self.move_to(row);
    }

    /// The answer to all fields. `None` if one is missing or invalid; it is then shown with the reason.
    pub(crate) fn answer(&mut self) -> Option<Map<String, Value>> {
        let answers: Vec<_> = self
            .states
            .iter()
            .map(|state| FieldAnswer {
                chosen: state.chosen.clone(),
                text: state.text.lines().join("\n"),
            })
            .collect();
        match self.form.answer(&answers) {
            Ok(answer) => Some(answer),
            Err((field, problem)) => {
                self.show_field(field);
                self.problem = Some(problem.to_line());
                None
            }
        }
    }
}

/// True for a field of which Enter chooses the option with the cursor.
fn field_needs_choice(field: Option<&InputField>) -> bool {
    field.is_some_and(|field| field.is_required)
}

fn has_text(area: &TextArea<'_>) -> bool {
    area.lines().iter().any(|line| !line.trim().is_empty())
}

fn safe(pasted: &str) -> String {
    let pasted = pasted
        .replace("\r\n", "\n")
        .replace('\r', "\n")
        .replace('\t', "  ");
    text::classified_chars(&pasted)
        .filter(|(char, is_safe)| *is_safe || *char == '\n')
        .map(|(char, _)| char)
        .take(MAX_ANSWER_CHARS + 1)
        .collect()
}

fn area(content: &str) -> TextArea<'static> {
    let mut area = TextArea::new(safe(content).split('\n').map(str::to_owned).collect());
    area.set_wrap_mode(WrapMode::WordOrGlyph);
    area.set_cursor_line_style(Style::default());
    area.set_cursor_style(Style::default());
    area.move_cursor(CursorMove::Bottom);
    area.move_cursor(CursorMove::End);
    area
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::key;
    use ingestdeck_core::actions::input_form::QUESTION_TOOL;

    fn form(questions: &Value) -> AnswerForm {
        let input = json!({"questions": questions}).to_string();
        AnswerForm::new(
            CallId {
                unit: "session".into(),
                call: None,
            },
            InputForm::of_call(QUESTION_TOOL, &input).unwrap(),
        )
    }

    fn press(form: &mut AnswerForm, keys: &str) -> FormStep {
        let steps = key::parse(keys).unwrap();
        let steps: Vec<_> = steps.into_iter().map(|key| form.handle_key(key)).collect();
        *steps.last().unwrap()
    }

    fn two() -> AnswerForm {
        let options = json!([{"label": "Table"}, {"label": "List"}]);
        form(&json!([
            {"question": "Which?", "options": options},
            {"question": "What else?", "options": options, "multiSelect": true},
        ]))
    }

    fn answer(form: &mut AnswerForm) -> Value {
        form.answer().map(Value::Object).unwrap_or_default()
    }

    #[test]
    fn digits_choose_and_enter_continues() {
        let mut form = two();
        assert_eq!(press(&mut form, "12<enter>"), FormStep::Stay);
        assert_eq!(press(&mut form, "12<enter>"), FormStep::Send);
        let expected = json!({"Which?": "List", "What else?": "Table, List"});
        assert_eq!(answer(&mut form), expected);
        // Enter chooses the option with the cursor; a second digit takes a choice back.
        let mut form = two();
        assert_eq!(press(&mut form, "j<enter>122<enter>"), FormStep::Send);
        let expected = json!({"Which?": "List", "What else?": "Table"});
        assert_eq!(answer(&mut form), expected);
        assert_eq!(press(&mut two(), "d"), FormStep::Decline);
    }

    #[test]
    fn own_words_replace_a_single_choice() {
        let mut form = two();
        assert_eq!(press(&mut form, "13d1<space>x<enter>"), FormStep::Stay);
        assert_eq!(press(&mut form, "1oand<space>more<enter>"), FormStep::Send);
        let expected = json!({"Which?": "d1 x", "What else?": "Table, and more"});
        assert_eq!(answer(&mut form), expected);
        // A choice after the text counts.
        form.next_field(true);
        assert_eq!(press(&mut form, "<up>1"), FormStep::Stay);
        assert_eq!(answer(&mut form)["Which?"], "Table");
    }

    #[test]
    fn missing_answer_is_shown_with_its_field() {
        let mut form = two();
        form.next_field(true);
        press(&mut form, "1");
        assert_eq!(form.answer(), None);
        assert_eq!(
            (form.field, form.problem.as_deref()),
            (0, Some("this field needs an answer"))
        );
    }

    #[test]
    fn question_without_options_takes_text() {
        let mut form = form(&json!([{"question": "Name?"}]));
        assert!(form.is_typing());
        form.paste("A\u{1b}[2J\u{202e}da");
        assert_eq!(press(&mut form, "<enter>"), FormStep::Send);
        assert_eq!(answer(&mut form), json!({"Name?": "A[2Jda"}));
    }
}
