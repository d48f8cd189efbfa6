//! `ctl approvals` and `ctl answer`: what waiting calls ask, and the answer of a script.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{exit::CliError, output};
use ingestdeck_core::{
    actions::input_form::{FieldAnswer, InputForm, plan_text},
    diagnostic::Diagnostic as _,
    run::state::{HeldCallState, RunState, UnitState},
    text,
};

/// Maximum width of a text from outside the program, in columns.
const MAX_TEXT_WIDTH: usize = 160;

/// Adds what a waiting call asks to its JSON and text.
pub(super) fn add_content(call: &HeldCallState, json: &mut Value, line: &mut String) {
    let one_row = |text: &str| {
        let width = output::max_width(MAX_TEXT_WIDTH);
        text::printable(text, width).into_owned()
    };
    if let Some(form) = InputForm::of_call(&call.tool, &call.input) {
        json["questions"] = form.fields.iter().map(field_json(&form)).collect();
        if !form.message.is_empty() {
            line.push_str(&format!("\n  {}", one_row(&form.message)));
        }
        for (number, field) in form.fields.iter().enumerate() {
            let prompt = if field.prompt.is_empty() {
                &field.header
            } else {
                &field.prompt
            };
            line.push_str(&format!("\n  {}. {}", number + 1, one_row(prompt)));
            for (option_number, option) in field.options.iter().enumerate() {
                let mut row = format!("{}.{} {}", number + 1, option_number + 1, option.label);
                if !option.description.is_empty() {
                    row.push_str(&format!(": {}", option.description));
                }
                line.push_str(&format!("\n    {}", one_row(&row)));
            }
        }
    } else if let Some(plan) = plan_text(&call.tool, &call.input) {
        for row in plan.lines() {
            line.push_str(&format!("\n  {}", one_row(row)));
        }
        json["plan"] = plan.into();
    }
}

fn field_json(
    form: &InputForm,
) -> impl Fn(&ingestdeck_core::actions::input_form::InputField) -> Value {
    let message = form.message.clone();
    move |field| {
        let options = field
            .options
            .iter()
            .map(|option| json!({"label": option.label, "description": option.description}));
        json!({
            "message": message, "header": field.header, "question": field.prompt, "options": options.collect::<Value>(),
            "multiple": field.is_multiple, "text": field.text.is_some(), "required": field.is_required,
        })
    }
}

/// The id of a call, and the answer to it.
type CallAnswer = (Option<Arc<str>>, Map<String, Value>);

/// Finds the call of `unit` that is meant, and makes the answer to it.
///
/// # Errors
/// If no such call asks for an answer, or the options and texts do not answer it.
pub(super) fn answer(
    state: &RunState,
    unit: &str,
    call: Option<&str>,
    choose: &[String],
    texts: &[String],
) -> Result<CallAnswer, CliError> {
    let known = state.units.iter().find(|known| known.key.as_str() == unit);
    let known =
        known.ok_or_else(|| CliError::not_found(format!("the run has no unit `{unit}`")))?;
    let held = known
        .latest()
        .map_or(&[][..], |attempt| attempt.held_calls.as_slice());
    let waiting = match call {
        Some(id) => held
            .iter()
            .find(|held| held.tool_use_id.as_deref() == Some(id)),
        None => UnitState::oldest_held_call(known),
    };
    let asked = waiting
        .and_then(|held| Some((held, InputForm::of_call(&held.tool, &held.input)?)))
        .ok_or_else(|| {
            CliError::not_found(format!("{unit}: no call waits for an answer"))
                .with_help("see `ingestdeck ctl approvals --content`")
        })?;
    let (held, form) = asked;
    let answer =
        form.answer(&field_answers(&form, choose, texts)?)
            .map_err(|(number, problem)| {
                CliError::usage(format!("question {}: {}", number + 1, problem.to_line()))
                    .with_help("answer every question with --choose or --text")
            })?;
    Ok((held.tool_use_id.clone(), answer))
}

/// The answer to each field of the form.
fn field_answers(
    form: &InputForm,
    choose: &[String],
    texts: &[String],
) -> Result<Vec<FieldAnswer>, CliError> {
    let mut answers = vec![FieldAnswer::default(); form.fields.len()];
    for word in choose {
        let (question, option) = word.split_once('.').unwrap_or(("1", word));
        let number = |text: &str| text.parse::<usize>().ok()?.checked_sub(1);
        let place = number(question).zip(number(option)).filter(|place| {
            form.fields
                .get(place.0)
                .is_some_and(|field| place.1 < field.options.len())
        });
        let Some((answer, option)) =
            place.and_then(|(question, option)| Some((answers.get_mut(question)?, option)))
        else {
            return Err(CliError::usage(format!("unknown option `{word}`"))
                .with_help("see `ingestdeck ctl approvals --content`"));
        };
        answer.chosen.push(option);
    }
    let mut open = answers
        .iter_mut()
        .zip(&form.fields)
        .filter(|(answer, field)| answer.chosen.is_empty() && field.text.is_some());
    for text in texts {
        let Some((answer, _)) = open.next() else {
            return Err(CliError::usage(
                "there are more texts than questions that take one",
            ));
        };
        answer.text.clone_from(text);
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingestdeck_core::{
        actions::input_form::QUESTION_TOOL,
        run::state::{AttemptState, HoldMode, UnitStatus},
        tape::Millis,
    };

    fn asking() -> RunState {
        let options =
            json!([{"label": "Table", "description": "rows\u{1b}[2J"}, {"label": "List"}]);
        let input = json!({"questions": [
            {"question": "Which format?", "options": options},
            {"question": "What else?", "options": options, "multiSelect": true},
            {"question": "Whose name?"},
        ]});
        let call = HeldCallState {
            since: Millis(7),
            tool: QUESTION_TOOL.into(),
            tool_use_id: Some("t1".into()),
            input: input.to_string().into(),
            reached: None,
        };
        let attempt = AttemptState {
            held_calls: vec![call],
            ..AttemptState::default()
        };
        let unit = UnitState {
            key: "session".into(),
            planned: None,
            status: UnitStatus::Running,
            attempts: vec![attempt],
            retry_at: None,
            hold_mode: HoldMode::Off,
        };
        RunState {
            units: vec![unit],
            ..RunState::default()
        }
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn options_and_texts_answer_their_questions() {
        let (call, answer) = answer(
            &asking(),
            "session",
            None,
            &words(&["2", "2.1", "2.2"]),
            &words(&["Ada"]),
        )
        .unwrap();
        assert_eq!(call.as_deref(), Some("t1"));
        assert_eq!(
            Value::Object(answer),
            json!({"Which format?": "List", "What else?": "Table, List", "Whose name?": "Ada"})
        );
    }

    #[test]
    fn wrong_answers_are_usage_errors() {
        let problem = |unit: &str, choose: &[&str], texts: &[&str]| {
            answer(&asking(), unit, None, &words(choose), &words(texts))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(problem("other", &["1"], &[]), "the run has no unit `other`");
        for bad in ["0", "3", "4.1", "x", "1.", "-1"] {
            assert_eq!(
                problem("session", &[bad], &[]),
                format!("unknown option `{bad}`")
            );
        }
        assert_eq!(
            problem("session", &["1", "2.1"], &[]),
            "question 3: this field needs an answer"
        );
        assert_eq!(
            problem("session", &["1", "2.1"], &["a", "b"]),
            "there are more texts than questions that take one"
        );
    }

    #[test]
    fn questions_are_printed_with_their_numbers() {
        let state = asking();
        let unit = state.units.first().unwrap();
        let call = unit.oldest_held_call().unwrap();
        let (mut json, mut line) = (json!({}), "waits".to_owned());
        add_content(call, &mut json, &mut line);
        assert!(
            line.starts_with("waits\n  1. Which format?\n    1.1 Table: rows\\e[2J\n    1.2 List"),
            "{line}"
        );
        assert_eq!(json["questions"][1]["multiple"], true);
    }
}
