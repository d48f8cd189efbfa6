//! The editor for the arguments of a held call: all of them as JSON, or one long text as plain text.
//!
//! It checks the form of the arguments. Which fields a tool has is decided by the check that the caller passes.

use std::sync::Arc;

use ratatui::style::Style;
use serde_json::{Map, Value};
use tui_textarea::{CursorMove, TextArea, WrapMode};

use super::{CallId, text_keys};
use crate::key::KeyPress;
use ingestdeck_core::{
    actions::sql_query::SqlQuery, diagnostic::Problem, run::state::HeldCallState, text,
};

/// Largest arguments that can be edited on the screen, in bytes.
const MAX_EDITED_BYTES: usize = 256 * 1024;
/// Minimum characters of a text without line breaks that can be edited as plain text.
const MIN_LONG_TEXT_CHARS: usize = 60;

/// Reports what is wrong with the arguments of a tool; empty for a tool that is not known.
pub type ArgumentsCheck = fn(&str, &Value) -> Vec<String>;

/// Why a text is invalid, and the row and column of the place if it is known.
type TextProblem = (String, Option<(usize, usize)>);

/// An editor for the arguments of a held call.
#[derive(Clone, Debug)]
pub struct ArgumentsEditor {
    pub call: CallId,
    pub tool: Arc<str>,
    /// The text. All of it is safe to draw.
    pub area: TextArea<'static>,
    /// The arguments as the agent wrote them.
    pub original: Map<String, Value>,
    /// Why the text cannot be sent.
    pub problem: Option<String>,
    /// JSON pointer of the string that is edited as plain text, and the arguments before the changes to it.
    field: Option<(String, Value)>,
}

impl ArgumentsEditor {
    /// An editor for the arguments of `held`. It begins with the SQL of a query.
    ///
    /// # Errors
    /// When the arguments are too long.
    pub(crate) fn new(call: CallId, held: &HeldCallState) -> Result<Self, Problem> {
        if held.input.len() > MAX_EDITED_BYTES {
            let (size, most) = (
                text::size(held.input.len() as u64),
                text::size(MAX_EDITED_BYTES as u64),
            );
            let problem =
                format!("the arguments have {size}, but at most {most} can be edited here");
            return Err(Problem::new(problem).with_help("deny the call"));
        }
        let value: Value =
            serde_json::from_str(&held.input).map_err(|error| Problem::new(error.to_string()))?;
        let mut area = area(&escaped(&pretty(&value)));
        let (row, column) = first_value(&value);
        area.move_cursor(CursorMove::Jump(row, column));
        let original = if let Value::Object(object) = value {
            object
        } else {
            Map::new()
        };
        let mut editor = Self {
            call,
            tool: Arc::clone(&held.tool),
            area,
            original,
            problem: None,
            field: None,
        };
        if SqlQuery::parse(&held.tool, &held.input).is_some_and(|query| is_plain(&query.sql)) {
            editor.show_field("/sql", Value::Object(editor.original.clone()));
        }
        Ok(editor)
    }

    /// Passes a key to the text area.
    pub(crate) fn handle_key(&mut self, key: KeyPress) {
        self.problem = None;
        if key.typed().is_none_or(|char| !text::is_hidden(char)) {
            text_keys::edit(&mut self.area, key);
        }
    }

    /// Inserts text from the clipboard.
    pub(crate) fn paste(&mut self, pasted: &str) {
        self.problem = None;
        let pasted = pasted.replace("\r\n", "\n").replace('\r', "\n");
        if self.field.is_none() {
            self.area.insert_str(escaped(&pasted.replace('\t', "  ")));
            return;
        }
        // Plain text has no escapes, so invisible characters cannot be kept.
        let kept: String = text::classified_chars(&pasted)
            .filter(|(char, is_safe)| *is_safe || matches!(char, '\n' | '\t'))
            .map(|(char, _)| char)
            .collect();
        let removed = pasted.chars().count() - kept.chars().count();
        if removed > 0 {
            let what = text::pluralize(removed, "invisible character");
            self.problem = Some(format!(
                "left out {what}; the JSON text can have them as escapes"
            ));
        }
        self.area.insert_str(kept);
    }

    /// The text for another program. It ends with a line break, as editors expect.
    pub(crate) fn exported(&self) -> String {
        self.area.lines().join("\n") + "\n"
    }

    /// Replaces the whole text by what another program left.
    pub(crate) fn replace(&mut self, text: &str) {
        self.area.select_all();
        self.area.cut();
        self.paste(
            text.strip_suffix("\r\n")
                .or_else(|| text.strip_suffix('\n'))
                .unwrap_or(text),
        );
    }

    /// Name of the text that is edited as plain text.
    pub(crate) fn field_name(&self) -> Option<String> {
        self.field.as_ref().map(|(pointer, _)| field_name(pointer))
    }

    /// Names of the texts that can be edited as plain text; empty while the JSON is invalid.
    pub(crate) fn text_fields(&self) -> Vec<String> {
        let object = self.object().map(Value::Object).unwrap_or_default();
        text_fields(&object)
            .iter()
            .map(|pointer| field_name(pointer))
            .collect()
    }

    /// Shows the next or the previous long text as plain text, or all arguments as JSON after the last one. In JSON, the
    /// text of the line with the cursor is the next one.
    pub(crate) fn next_field(&mut self, forward: bool) {
        let object = match self.object() {
            Ok(object) => Value::Object(object),
            Err((problem, place)) => return self.reject(problem, place),
        };
        let fields = text_fields(&object);
        let here = self
            .field
            .as_ref()
            .and_then(|(current, _)| fields.iter().position(|field| field == current));
        let next = match (&self.field, here) {
            (None, _) if fields.is_empty() => {
                self.problem = Some("no argument is a long text".to_owned());
                return;
            }
            (None, _) if forward => Some(self.field_of_line(&object, &fields).unwrap_or(0)),
            (None, _) => Some(fields.len() - 1),
            (Some(_), Some(here)) if forward => Some(here + 1).filter(|next| *next < fields.len()),
            (Some(_), Some(here)) => here.checked_sub(1),
            // The text is short now.
            (Some(_), None) => None,
        };
        match next.and_then(|next| fields.get(next)) {
            Some(pointer) => self.show_field(pointer, object),
            None => self.show_json(&object),
        }
        self.problem = None;
    }

    /// Parses the edited arguments and checks them. If they are invalid, moves the cursor to the place.
    pub(crate) fn input(&mut self, check: ArgumentsCheck) -> Option<Map<String, Value>> {
        let object = match self.object() {
            Ok(object) => object,
            Err((problem, place)) => {
                self.reject(problem, place);
                return None;
            }
        };
        let value = Value::Object(object);
        let problems = check(&self.tool, &value);
        if let Some(first) = problems.first() {
            if self.field.is_some() {
                self.show_json(&value);
            }
            let place = self.line_of_problem(&value, first);
            self.reject(problems.join("; "), place);
            return None;
        }
        match value {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The edited arguments; otherwise the problem, and its row and column in the text.
    fn object(&self) -> Result<Map<String, Value>, TextProblem> {
        if let Some((pointer, object)) = &self.field {
            let mut object = object.clone();
            if let Some(text) = object.pointer_mut(pointer) {
                *text = Value::String(self.area.lines().join("\n"));
            }
            return match object {
                Value::Object(object) => Ok(object),
                _ => Ok(Map::new()),
            };
        }
        serde_json::from_str(&self.area.lines().join("\n")).map_err(|error| {
            let row = error.line().saturating_sub(1);
            let line = self.area.lines().get(row).map_or("", String::as_str);
            // The parser counts bytes.
            let column = line
                .char_indices()
                .take_while(|(at, _)| *at + 1 < error.column())
                .count();
            (
                format!("not a JSON object: {error}"),
                (error.column() > 0).then_some((row, column)),
            )
        })
    }

    fn reject(&mut self, problem: String, place: Option<(usize, usize)>) {
        self.problem = Some(problem);
        if let Some((row, column)) = place {
            let limited = |at: usize| u16::try_from(at).unwrap_or(u16::MAX);
            self.area.cancel_selection();
            self.area
                .move_cursor(CursorMove::Jump(limited(row), limited(column)));
        }
    }

    /// Shows one text as plain text.
    fn show_field(&mut self, pointer: &str, object: Value) {
        let text = object.pointer(pointer).and_then(Value::as_str);
        self.area = area(text.unwrap_or_default());
        self.field = Some((pointer.to_owned(), object));
    }

    /// Shows all arguments, with the cursor at the text that was edited.
    fn show_json(&mut self, object: &Value) {
        self.area = area(&escaped(&pretty(object)));
        if let Some((pointer, _)) = self.field.take()
            && let Some(row) = self.line_of_field(object, &pointer)
        {
            self.area
                .move_cursor(CursorMove::Jump(u16::try_from(row).unwrap_or(u16::MAX), 0));
        }
    }

    /// The first of `fields` that begins in the line of the cursor.
    fn field_of_line(&self, value: &Value, fields: &[String]) -> Option<usize> {
        let row = self.area.cursor().0;
        fields
            .iter()
            .position(|field| self.line_of_field(value, field) == Some(row))
    }

    /// The line of the JSON text with a member, or with the list that contains an element. Several members may have the
    /// same name; their order in the text is that in `value`.
    fn line_of_field(&self, value: &Value, pointer: &str) -> Option<usize> {
        let mut member = pointer;
        while let Some((list, index)) = member.rsplit_once('/')
            && !list.is_empty()
            && index.parse::<usize>().is_ok()
        {
            member = list;
        }
        let name = unescape(member.rsplit('/').next()?);
        let mut members = Vec::new();
        collect_members(value, &mut String::new(), &name, &mut members);
        let place = members
            .iter()
            .position(|known| known == member)
            .unwrap_or_default();
        let key = format!("{}:", Value::from(name));
        let mut lines = self
            .area
            .lines()
            .iter()
            .enumerate()
            .filter(|(_, line)| line.trim_start().starts_with(&key));
        lines.nth(place).map(|(row, _)| row)
    }

    /// Where the field is that the description of a problem names first, such as `edits[1].newText`.
    fn line_of_problem(&self, value: &Value, problem: &str) -> Option<(usize, usize)> {
        let named = problem.split('`').nth(1)?;
        let pointer = format!("/{}", named.replace(['.', '['], "/").replace(']', ""));
        let row = self.line_of_field(value, &pointer)?;
        let indent = self.area.lines()[row]
            .chars()
            .take_while(|char| char.is_whitespace())
            .count();
        Some((row, indent))
    }
}

/// Collects the JSON pointers of all members with a name, in their order.
fn collect_members(value: &Value, pointer: &mut String, name: &str, members: &mut Vec<String>) {
    let len = pointer.len();
    let mut visit = |part: &str, value: &Value, is_named: bool| {
        pointer.push('/');
        pointer.push_str(&escape(part));
        if is_named {
            members.push(pointer.clone());
        }
        collect_members(value, pointer, name, members);
        pointer.truncate(len);
    };
    match value {
        Value::Object(object) => object
            .iter()
            .for_each(|(key, value)| visit(key, value, key == name)),
        Value::Array(list) => {
            list.iter()
                .enumerate()
                .for_each(|(index, value)| visit(&index.to_string(), value, false));
        }
        _ => {}
    }
}

fn area(content: &str) -> TextArea<'static> {
    let mut area = TextArea::new(content.split('\n').map(str::to_owned).collect());
    area.set_wrap_mode(WrapMode::WordOrGlyph);
    area.set_cursor_line_style(Style::default());
    area.set_tab_length(2);
    area
}

/// Row and column of the first value in the JSON text; of its first character, if it is a string.
fn first_value(value: &Value) -> (u16, u16) {
    const INDENT: usize = 2;
    let first = value.as_object().and_then(|object| object.iter().next());
    let Some((key, value)) = first else {
        return (0, 0);
    };
    let key = escaped(&Value::from(key.as_str()).to_string());
    let column = INDENT + key.chars().count() + ": ".len() + usize::from(value.is_string());
    (1, u16::try_from(column).unwrap_or(u16::MAX))
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// JSON pointers of the strings that are easier to edit as plain text and can be drawn as such, in their order.
fn text_fields(value: &Value) -> Vec<String> {
    let mut fields = Vec::new();
    collect_text_fields(value, &mut String::new(), &mut fields);
    fields
}

fn collect_text_fields(value: &Value, pointer: &mut String, fields: &mut Vec<String>) {
    let len = pointer.len();
    let mut visit = |name: &str, value: &Value, fields: &mut Vec<String>| {
        pointer.push('/');
        pointer.push_str(name);
        collect_text_fields(value, pointer, fields);
        pointer.truncate(len);
    };
    match value {
        Value::String(text) => {
            let is_long = text.contains('\n') || text.chars().count() >= MIN_LONG_TEXT_CHARS;
            if is_long && is_plain(text) {
                fields.push(pointer.clone());
            }
        }
        Value::Object(members) => {
            members
                .iter()
                .for_each(|(name, value)| visit(&escape(name), value, fields));
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, value)| visit(&index.to_string(), value, fields));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// True for a text that can be drawn unchanged.
fn is_plain(text: &str) -> bool {
    text::classified_chars(text).all(|(char, is_safe)| is_safe || matches!(char, '\n' | '\t'))
}

fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn unescape(name: &str) -> String {
    name.replace("~1", "/").replace("~0", "~")
}

fn field_name(pointer: &str) -> String {
    unescape(pointer.strip_prefix('/').unwrap_or(pointer))
}

/// Writes control, bidi and zero-width characters in JSON as JSON escapes: the same value, safe to draw.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for (char, is_safe) in text::classified_chars(json) {
        if char == '\n' || is_safe {
            out.push(char);
        } else {
            let mut units = [0; 2];
            char.encode_utf16(&mut units)
                .iter()
                .for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use ingestdeck_core::diagnostic::Diagnostic as _;
    use serde_json::json;

    use super::*;

    fn editor(input: &Value) -> Result<ArgumentsEditor, Problem> {
        let held = HeldCallState {
            since: ingestdeck_core::tape::Millis(0),
            tool: "wiki_write".into(),
            tool_use_id: None,
            input: input.to_string().into(),
            reached: None,
        };
        ArgumentsEditor::new(
            CallId {
                unit: "u".into(),
                call: None,
            },
            &held,
        )
    }

    fn any(_: &str, _: &Value) -> Vec<String> {
        Vec::new()
    }

    fn cursor(editor: &ArgumentsEditor) -> (usize, usize) {
        let cursor = editor.area.cursor();
        (cursor.0, cursor.1)
    }

    fn input(editor: &mut ArgumentsEditor) -> Value {
        editor.input(any).map(Value::Object).unwrap_or_default()
    }

    #[test]
    fn hostile_arguments_round_trip_through_escapes() {
        let hostile = json!({"key": "a\u{202e}b\u{200b}c\u{e0041}\u{7f}", "text": "línea\n\t✓", "zalgo": format!("a{}", "\u{301}".repeat(40)), "n": [1, {"x": null}]});
        let mut editor = editor(&hostile).unwrap();
        assert!(
            editor
                .area
                .lines()
                .iter()
                .all(|line| text::classified_chars(line).all(|(_, is_safe)| is_safe)),
            "{:?}",
            editor.area.lines()
        );
        assert_eq!(input(&mut editor), hostile);
    }

    #[test]
    fn invalid_json_moves_the_cursor_to_its_place() {
        let mut editor = editor(&json!({"a": 1})).unwrap();
        editor.area.select_all();
        editor.paste("[1,\r\n2]\u{1b}");
        assert_eq!(editor.input(any), None);
        assert!(
            editor
                .problem
                .as_deref()
                .unwrap()
                .starts_with("not a JSON object: "),
            "{:?}",
            editor.problem
        );
        editor.replace("{\n  \"é\": \"ok\",\n  \"é\" 1\n}\n");
        assert_eq!(editor.input(any), None);
        assert!(
            editor
                .problem
                .as_deref()
                .unwrap()
                .contains("line 3 column 8"),
            "{:?}",
            editor.problem
        );
        assert_eq!(cursor(&editor), (2, 6));
        editor.replace("{\"b\": 2}");
        assert_eq!(input(&mut editor), json!({"b": 2}));
    }

    #[test]
    fn unknown_field_moves_the_cursor_to_its_line() {
        let check = |_: &str, _: &Value| {
            vec![
                "`text` is not a field".to_owned(),
                "`key` is missing".to_owned(),
            ]
        };
        let mut editor = editor(&json!({"summary": "x", "text": "two\nlines"})).unwrap();
        editor.next_field(true);
        assert_eq!(editor.input(check), None);
        assert_eq!(
            editor.problem.as_deref(),
            Some("`text` is not a field; `key` is missing")
        );
        assert_eq!((editor.field_name(), cursor(&editor)), (None, (2, 2)));
    }

    #[test]
    fn members_with_the_same_name_are_told_apart() {
        let long = |text: &str| text.repeat(MIN_LONG_TEXT_CHARS);
        let edits = json!({"edits": [{"new": long("a"), "n1": 1}, {"new": long("b"), "n1": 2}], "new": long("c")});
        let mut editor = editor(&edits).unwrap();
        let line = editor
            .area
            .lines()
            .iter()
            .position(|line| line.contains("bbb"))
            .unwrap();
        editor
            .area
            .move_cursor(CursorMove::Jump(u16::try_from(line).unwrap(), 0));
        editor.next_field(true);
        assert_eq!(editor.field_name().as_deref(), Some("edits/1/new"));
        let check = |_: &str, _: &Value| vec!["`edits[1].n1` must be text".to_owned()];
        assert_eq!(editor.input(check), None);
        assert!(
            editor.area.lines()[cursor(&editor).0].contains("\"n1\": 2"),
            "{:?}",
            cursor(&editor)
        );
    }

    #[test]
    fn long_texts_are_edited_as_plain_text() {
        let long = "x".repeat(MIN_LONG_TEXT_CHARS);
        let arguments = json!({"key": "k", "content": "# T\n\n\tcode\n", "edits": [{"a/b": long}], "cr": "a\r\nb"});
        let mut editor = editor(&arguments).unwrap();
        assert_eq!(editor.text_fields(), ["content", "edits/0/a/b"]);
        editor.next_field(true);
        assert_eq!(
            (editor.field_name().as_deref(), editor.exported().as_str()),
            (Some("content"), "# T\n\n\tcode\n\n")
        );
        assert_eq!(
            input(&mut editor),
            arguments,
            "an unchanged text is the same"
        );
        let exported = editor.exported();
        editor.replace(&exported);
        assert_eq!(
            input(&mut editor),
            arguments,
            "also after another program saved it"
        );
        editor.replace("# \"New\"\u{202e}\r\nline\n");
        assert_eq!(
            editor
                .problem
                .as_deref()
                .map(|problem| problem.contains("1 invisible character")),
            Some(true)
        );
        editor.next_field(true);
        assert_eq!(
            (editor.field_name().as_deref(), editor.area.lines()),
            (Some("edits/0/a/b"), &[long][..])
        );
        editor.next_field(true);
        assert_eq!(editor.field_name(), None);
        assert_eq!(input(&mut editor)["content"], "# \"New\"\nline");
        // The text of the line with the cursor is the next one.
        editor.area.move_cursor(CursorMove::Jump(2, 0));
        editor.next_field(true);
        assert_eq!(editor.field_name().as_deref(), Some("content"));
        editor.next_field(false);
        assert_eq!((editor.field_name(), cursor(&editor).0), (None, 2));
    }

    #[test]
    fn editor_begins_at_the_first_value() {
        let at = |value: Value| cursor(&editor(&value).unwrap());
        assert_eq!(at(json!({"a\u{200b}\": b": "text", "c": 1})), (1, 19));
        assert_eq!(at(json!({"n": 5})), (1, 7));
        assert_eq!(at(json!({})), (0, 0));
    }

    #[test]
    fn without_long_texts_the_json_stays() {
        let mut editor = editor(&json!({"key": "short"})).unwrap();
        editor.next_field(true);
        assert_eq!(
            (editor.field_name(), editor.problem.as_deref()),
            (None, Some("no argument is a long text"))
        );
        editor.replace("{");
        editor.next_field(true);
        assert!(
            editor
                .problem
                .as_deref()
                .unwrap()
                .starts_with("not a JSON object")
        );
    }

    #[test]
    fn oversized_arguments_are_not_edited() {
        let error = editor(&json!({"content": "x".repeat(MAX_EDITED_BYTES)})).unwrap_err();
        assert_eq!(error.help().as_deref(), Some("deny the call"));
    }
}
