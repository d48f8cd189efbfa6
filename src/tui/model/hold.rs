//! State for decisions about held calls: the call, the line that is being typed, and the editor for its arguments.

use std::sync::Arc;

use crossterm::event::KeyEvent;
use serde_json::{Map, Value};
use tui_textarea::{TextArea, WrapMode};

use crate::{
    run::state::{HeldCallState, UnitState},
    tape::UnitKey,
    text,
    tui::key::KeyPress,
};

/// Largest arguments that can be edited on the screen, in bytes.
const MAX_EDITED_BYTES: usize = 256 * 1024;

/// Maximum number of calls that the question about a release lists.
const MAX_LISTED_CALLS: usize = 5;

/// A tool call that waits for a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallId {
    pub unit: UnitKey,
    /// Id of the call, if known.
    pub call: Option<Arc<str>>,
}

/// What the release of a held unit runs, one line per call that waits. Empty if none does.
pub(crate) fn release_consequences(unit: &UnitState) -> Vec<String> {
    let held = unit.latest().map_or(&[][..], |attempt| &attempt.held_calls);
    let mut lines: Vec<String> = held
        .iter()
        .take(MAX_LISTED_CALLS)
        .map(|call| text::one_row(&format!("{} {} runs", call.tool, call.input), 120))
        .collect();
    if held.len() > MAX_LISTED_CALLS {
        lines.push(format!("and {} more", held.len() - MAX_LISTED_CALLS));
    }
    if !held.is_empty() {
        lines.push("Later calls do not wait.".to_owned());
    }
    lines
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LineInput {
    pub text: String,
    pub purpose: InputPurpose,
}

/// Purpose of a typed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InputPurpose {
    /// Text to search for.
    Search,
    /// Reason for denying a call.
    Deny(CallId),
    /// A command of the command line.
    Command,
    /// Text that listed units contain.
    FilterUnits,
}

impl LineInput {
    pub(crate) fn new(purpose: InputPurpose) -> Self {
        Self { text: String::new(), purpose }
    }
}

/// An editor for the arguments of a held call.
#[derive(Clone, Debug)]
pub(crate) struct ArgumentsEditor {
    pub call: CallId,
    pub tool: Arc<str>,
    /// The text. All of it is safe to draw.
    pub area: TextArea<'static>,
    /// Why the text cannot be sent.
    pub problem: Option<String>,
}

impl ArgumentsEditor {
    /// An editor for the arguments of `held`.
    ///
    /// # Errors
    /// When the arguments are too long.
    pub(crate) fn new(call: CallId, held: &HeldCallState) -> Result<Self, String> {
        if held.input.len() > MAX_EDITED_BYTES {
            let (size, most) = (text::size(held.input.len() as u64), text::size(MAX_EDITED_BYTES as u64));
            return Err(format!("the arguments have {size}, but at most {most} can be edited here; deny the call"));
        }
        let pretty = serde_json::from_str::<Value>(&held.input)
            .and_then(|value| serde_json::to_string_pretty(&value))
            .map_err(|error| error.to_string())?;
        let mut area = TextArea::new(escaped(&pretty).lines().map(str::to_owned).collect());
        area.set_wrap_mode(WrapMode::WordOrGlyph);
        area.set_cursor_line_style(ratatui::style::Style::default());
        area.set_tab_length(2);
        Ok(Self { call, tool: Arc::clone(&held.tool), area, problem: None })
    }

    /// Passes a key to the text area.
    pub(crate) fn handle_key(&mut self, key: KeyPress) {
        self.problem = None;
        if key.typed().is_none_or(|char| !text::is_hidden(char)) {
            self.area.input(KeyEvent::new(key.code, key.modifiers));
        }
    }

    /// Inserts text from the clipboard.
    pub(crate) fn paste(&mut self, pasted: &str) {
        self.problem = None;
        self.area.insert_str(escaped(&pasted.replace("\r\n", "\n").replace('\r', "\n").replace('\t', "  ")));
    }

    /// Replaces the whole text by what another program left.
    pub(crate) fn replace(&mut self, text: &str) {
        self.area.select_all();
        self.paste(text);
    }

    /// Parses the edited arguments.
    ///
    /// # Errors
    /// When the text is not a JSON object.
    pub(crate) fn input(&self) -> Result<Map<String, Value>, String> {
        serde_json::from_str(&self.area.lines().join("\n")).map_err(|error| format!("not a JSON object: {error}"))
    }
}

/// Writes control, bidi and zero-width characters in JSON as JSON escapes: the same value, safe to draw.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for (char, is_safe) in text::classified_chars(json) {
        if char == '\n' || is_safe {
            out.push(char);
        } else {
            let mut units = [0; 2];
            char.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn editor(input: &Value) -> Result<ArgumentsEditor, String> {
        let held = HeldCallState {
            since: crate::tape::Millis(0),
            tool: "wiki_write".into(),
            tool_use_id: None,
            input: input.to_string().into(),
            reached: None,
        };
        ArgumentsEditor::new(CallId { unit: "u".into(), call: None }, &held)
    }

    #[test]
    fn hostile_arguments_round_trip_through_escapes() {
        let input = json!({"key": "a\u{202e}b\u{200b}c\u{e0041}\u{7f}", "text": "línea\n\t✓", "zalgo": format!("a{}", "\u{301}".repeat(40)), "n": [1, {"x": null}]});
        let editor = editor(&input).unwrap();
        assert!(
            editor.area.lines().iter().all(|line| text::classified_chars(line).all(|(_, is_safe)| is_safe)),
            "{:?}",
            editor.area.lines()
        );
        assert_eq!(Value::Object(editor.input().unwrap()), input);
    }

    #[test]
    fn non_object_arguments_are_rejected() {
        let mut editor = editor(&json!({"a": 1})).unwrap();
        editor.area.select_all();
        editor.paste("[1,\r\n2]\u{1b}");
        assert!(editor.input().unwrap_err().starts_with("not a JSON object: "));
        editor.area.select_all();
        editor.paste("{\"b\": 2}");
        assert_eq!(Value::Object(editor.input().unwrap()), json!({"b": 2}));
    }

    #[test]
    fn oversized_arguments_are_not_edited() {
        let error = editor(&json!({"content": "x".repeat(MAX_EDITED_BYTES)})).unwrap_err();
        assert!(error.contains("deny the call"), "{error}");
    }
}
