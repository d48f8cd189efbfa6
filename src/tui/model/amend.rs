//! The form for the amendment of the next attempt: feedback for the model, another model or turn budget, and whether to
//! resume the session.
//!
//! It validates the amendment and must not send it.

use std::sync::Arc;

use crossterm::event::KeyCode;
use ratatui::style::{Modifier, Style};
use tui_textarea::{TextArea, WrapMode};

use super::text_keys;
use crate::key::KeyPress;
use ingestdeck_core::{
    control::{MAX_FEEDBACK_CHARS, MAX_MODEL_CHARS, MAX_TURNS},
    diagnostic::Problem,
    run::state::{RunState, UnitState},
    tape::{UnitKey, note::Amendment},
    text,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AmendField {
    /// Feedback for the model.
    #[default]
    Feedback,
    /// Name of the model.
    Model,
    Budget,
    /// A new session, or the session of the last attempt.
    Session,
}

#[derive(Clone, Debug)]
pub(crate) struct AmendForm {
    /// The units of the next attempts; at least one.
    pub units: Vec<UnitKey>,
    /// Feedback for the model.
    pub feedback: TextArea<'static>,
    /// Name of the model; empty for the planned one.
    pub model: TextArea<'static>,
    /// Number of turns; empty for the planned number.
    pub budget: TextArea<'static>,
    /// The session of the last attempt, if it is known.
    pub session: Option<Arc<str>>,
    /// True to resume that session.
    pub resume: bool,
    /// The field that has the focus.
    pub field: AmendField,
    /// Why the form cannot be submitted.
    pub problem: Option<String>,
    planned: (Option<String>, Option<u32>),
}

impl AmendForm {
    /// A form with the amendment of the last attempt at `unit`. It also applies to `others`, each in a new session.
    pub(crate) fn new(unit: &UnitState, others: &[&UnitState], state: &RunState) -> Self {
        let last = unit.latest();
        let plan = state.planned.as_deref();
        let planned = (
            plan.and_then(|plan| plan.model.clone()),
            plan.map(|plan| plan.step_budget)
                .filter(|budget| *budget > 0),
        );
        let feedback = last
            .and_then(|last| last.setup.amendment()?.feedback.clone())
            .unwrap_or_default();
        let model = last
            .and_then(|last| last.setup.requested_model.as_deref().map(str::to_owned))
            .or_else(|| planned.0.clone());
        let budget = last.and_then(|last| last.setup.step_budget).or(planned.1);
        let mut form = Self {
            units: [unit]
                .into_iter()
                .chain(others.iter().copied())
                .map(|unit| unit.key.clone())
                .collect(),
            feedback: area(&feedback),
            model: area(&model.unwrap_or_default()),
            budget: area(&budget.map(|budget| budget.to_string()).unwrap_or_default()),
            session: last
                .filter(|_| others.is_empty())
                .and_then(|last| last.setup.session.clone()),
            resume: false,
            field: AmendField::Feedback,
            problem: None,
            planned,
        };
        form.focus(AmendField::Feedback);
        form
    }

    /// Focuses the next or the previous field.
    pub(crate) fn next_field(&mut self, forward: bool) {
        let fields = [
            AmendField::Feedback,
            AmendField::Model,
            AmendField::Budget,
            AmendField::Session,
        ];
        let fields = if self.session.is_some() {
            &fields[..]
        } else {
            &fields[..3]
        };
        let at = fields
            .iter()
            .position(|field| *field == self.field)
            .unwrap_or_default();
        let next = if forward {
            at + 1
        } else {
            at + fields.len() - 1
        };
        self.focus(fields[next % fields.len()]);
    }

    /// Passes a key to the focused field.
    pub(crate) fn handle_key(&mut self, key: KeyPress) {
        self.problem = None;
        match (self.field, key.code) {
            (
                AmendField::Session,
                KeyCode::Char(' ' | 'h' | 'l') | KeyCode::Left | KeyCode::Right,
            ) => {
                self.resume = !self.resume;
            }
            (AmendField::Model | AmendField::Budget | AmendField::Session, KeyCode::Enter) => {
                self.next_field(true)
            }
            (AmendField::Session, _) => {}
            _ if key.typed().is_some_and(text::is_hidden) => {}
            (AmendField::Model | AmendField::Budget, KeyCode::Char('m' | 'j'))
                if key.typed().is_none() => {}
            _ => {
                if let Some(area) = self.area() {
                    text_keys::edit(area, key);
                }
            }
        }
    }

    /// Replaces the feedback, which then has the focus.
    pub(crate) fn replace_feedback(&mut self, text: &str) {
        self.focus(AmendField::Feedback);
        self.feedback.select_all();
        self.feedback.cut();
        self.paste(text);
    }

    /// Inserts text from the clipboard without invisible characters.
    pub(crate) fn paste(&mut self, pasted: &str) {
        self.problem = None;
        let one_row = self.field != AmendField::Feedback;
        let pasted = pasted
            .replace("\r\n", "\n")
            .replace('\r', "\n")
            .replace('\t', "  ");
        let kept: String = text::classified_chars(&pasted)
            .filter(|(char, is_safe)| *is_safe || (*char == '\n' && !one_row))
            .map(|(char, _)| char)
            .take(MAX_FEEDBACK_CHARS + 1)
            .collect();
        if let Some(area) = self.area() {
            area.insert_str(kept);
        }
    }

    /// The amendment that the form describes.
    ///
    /// # Errors
    /// When a field is invalid. That field then has the focus.
    pub(crate) fn amendment(&mut self) -> Result<Amendment, Problem> {
        let judged = self.validate();
        judged.map_err(|(field, problem)| {
            self.focus(field);
            problem
        })
    }

    fn validate(&self) -> Result<Amendment, (AmendField, Problem)> {
        let feedback = self.feedback.lines().join("\n").trim().to_owned();
        let length = feedback.chars().count();
        if length > MAX_FEEDBACK_CHARS {
            let problem = format!(
                "feedback too long: {length} characters; the limit is {MAX_FEEDBACK_CHARS}"
            );
            return Err((AmendField::Feedback, problem.into()));
        }
        let model = self.model.lines().concat().trim().to_owned();
        if model.chars().count() > MAX_MODEL_CHARS || model.contains(char::is_whitespace) {
            return Err((
                AmendField::Model,
                Problem::new(
                    "invalid model name; expected a name without spaces, such as opus, or nothing for the planned model",
                ),
            ));
        }
        let budget = self.budget.lines().concat().trim().to_owned();
        let turns = match budget.parse::<u32>() {
            _ if budget.is_empty() => None,
            Ok(turns @ 1..=MAX_TURNS) => Some(turns),
            Ok(_) | Err(_) => {
                let problem = format!(
                    "invalid turn budget; expected 1 to {MAX_TURNS}, or nothing for the planned number"
                );
                return Err((AmendField::Budget, problem.into()));
            }
        };
        let (planned_model, planned_turns) = &self.planned;
        Ok(Amendment {
            message: None,
            feedback: (!feedback.is_empty()).then_some(feedback),
            model: Some(model)
                .filter(|model| !model.is_empty() && planned_model.as_ref() != Some(model)),
            step_budget: turns.filter(|turns| Some(turns) != planned_turns.as_ref()),
            resume: self
                .session
                .as_deref()
                .filter(|_| self.resume)
                .map(str::to_owned),
        })
    }

    fn area(&mut self) -> Option<&mut TextArea<'static>> {
        match self.field {
            AmendField::Feedback => Some(&mut self.feedback),
            AmendField::Model => Some(&mut self.model),
            AmendField::Budget => Some(&mut self.budget),
            AmendField::Session => None,
        }
    }

    /// Moves the focus. Only the focused field shows a cursor.
    fn focus(&mut self, field: AmendField) {
        for area in [&mut self.feedback, &mut self.model, &mut self.budget] {
            area.set_cursor_style(Style::default());
        }
        self.field = field;
        if let Some(area) = self.area() {
            area.set_cursor_style(Style::default().add_modifier(Modifier::REVERSED));
        }
    }
}

fn area(content: &str) -> TextArea<'static> {
    let safe: String = text::classified_chars(content)
        .filter(|(char, is_safe)| *is_safe || *char == '\n')
        .map(|(char, _)| char)
        .collect();
    let mut area = TextArea::new(safe.lines().map(str::to_owned).collect());
    area.set_wrap_mode(WrapMode::WordOrGlyph);
    area.set_cursor_line_style(Style::default());
    area.set_tab_length(2);
    area.move_cursor(tui_textarea::CursorMove::Bottom);
    area.move_cursor(tui_textarea::CursorMove::End);
    area
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key;
    use ingestdeck_core::{
        run::state::{AttemptBasis, AttemptSetup, AttemptState, HoldMode, UnitStatus},
        tape::note::RunPlanned,
    };

    fn form(last: AttemptState) -> AmendForm {
        let plan = RunPlanned {
            model: Some("sonnet".into()),
            step_budget: 40,
            ..RunPlanned::default()
        };
        let state = RunState {
            planned: Some(Arc::new(plan)),
            ..RunState::default()
        };
        let unit = UnitState {
            key: "u".into(),
            planned: None,
            status: UnitStatus::Failed,
            attempts: vec![last],
            retry_at: None,
            hold_mode: HoldMode::Off,
        };
        AmendForm::new(&unit, &[], &state)
    }

    fn typed(mut form: AmendForm, keys: &str) -> AmendForm {
        key::parse(keys)
            .unwrap()
            .into_iter()
            .for_each(|key| form.handle_key(key));
        form
    }

    fn last() -> AttemptState {
        let amendment = Amendment {
            feedback: Some("shorter".into()),
            ..Amendment::default()
        };
        AttemptState {
            setup: AttemptSetup {
                session: Some("5e55".into()),
                requested_model: Some("opus".into()),
                step_budget: Some(60),
                basis: Some(Arc::new(AttemptBasis {
                    amendment: Some(amendment),
                    ..AttemptBasis::default()
                })),
                ..AttemptSetup::default()
            },
            ..AttemptState::default()
        }
    }

    #[test]
    fn form_shows_last_attempt_and_sends_only_differences() {
        let mut form = form(last());
        let same = Amendment {
            message: None,
            feedback: Some("shorter".into()),
            model: Some("opus".into()),
            step_budget: Some(60),
            resume: None,
        };
        assert_eq!(form.amendment(), Ok(same));
        let mut form = super::tests::form(AttemptState {
            setup: AttemptSetup {
                requested_model: Some("sonnet".into()),
                ..AttemptSetup::default()
            },
            ..AttemptState::default()
        });
        assert_eq!(form.budget.lines(), ["40"]);
        assert_eq!(form.amendment(), Ok(Amendment::default()));
    }

    #[test]
    fn session_can_be_resumed_only_when_known() {
        let mut form = form(last());
        for field in [AmendField::Model, AmendField::Budget, AmendField::Session] {
            form.next_field(true);
            assert_eq!(form.field, field);
        }
        let mut form = typed(form, "<right>");
        assert_eq!(form.amendment().unwrap().resume.as_deref(), Some("5e55"));
        let mut form = typed(form, "x<space><space><left><right>");
        assert_eq!(form.amendment().unwrap().resume.as_deref(), Some("5e55"));
        form.next_field(true);
        assert_eq!(form.field, AmendField::Feedback);
        let mut form = super::tests::form(AttemptState::default());
        form.next_field(false);
        assert_eq!(
            form.field,
            AmendField::Budget,
            "without a session, that field is skipped"
        );
    }

    #[test]
    fn invalid_field_is_reported_and_focused() {
        for (field, text, word) in [
            (AmendField::Budget, "0", "expected 1 to 10000"),
            (AmendField::Budget, "10001", "expected 1 to 10000"),
            (AmendField::Budget, "many", "expected 1 to 10000"),
            (AmendField::Model, "opus or sonnet", "without spaces"),
            (
                AmendField::Feedback,
                &"x".repeat(MAX_FEEDBACK_CHARS + 1),
                "the limit is 20000",
            ),
        ] {
            let mut form = form(AttemptState::default());
            form.focus(field);
            if let Some(area) = form.area() {
                area.select_all();
                area.cut();
            }
            form.paste(text);
            form.focus(AmendField::Feedback);
            let problem = form.amendment().unwrap_err();
            assert!(problem.to_string().contains(word), "{problem}");
            assert_eq!(form.field, field);
        }
    }

    #[test]
    fn pasted_text_loses_invisible_characters() {
        let mut form = form(AttemptState::default());
        form.paste("a\u{1b}[31m\u{202e}b\r\nc\td");
        assert_eq!(form.feedback.lines(), ["a[31mb", "c  d"]);
        form.focus(AmendField::Model);
        form.model.select_all();
        form.paste("op\nus");
        assert_eq!(form.model.lines(), ["opus"]);
    }
}
