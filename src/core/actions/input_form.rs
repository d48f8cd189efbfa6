//! What a held call asks a person for: the questions of a model, or the fields that a tool server requests.
//!
//! Parses untrusted arguments within limits, and builds the typed answer. It must not know how a form is shown.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{diagnostic::Problem, text};

/// Claude Code's tool that asks the user.
pub const QUESTION_TOOL: &str = "AskUserQuestion";
/// Claude Code's tool that asks for the approval of a plan.
pub const PLAN_TOOL: &str = "ExitPlanMode";
/// Name of a request of a tool server for input, in place of a tool.
pub const ELICITATION: &str = "elicitation";

/// Longest arguments that are read as a form, in bytes.
const MAX_INPUT_BYTES: usize = 256 * 1024;
/// Maximum number of fields of a form.
const MAX_FIELDS: usize = 20;
/// Maximum number of options of a field.
const MAX_OPTIONS: usize = 200;
/// Maximum length of a written answer, in characters.
pub const MAX_ANSWER_CHARS: usize = 20_000;

/// The fields that a held call asks for; at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct InputForm {
    /// Who asks, if that is not the model.
    pub server: Option<String>,
    /// Text above all fields; may be empty.
    pub message: String,
    pub fields: Vec<InputField>,
}

/// One question, or one field of a tool server.
#[derive(Clone, Debug, PartialEq)]
pub struct InputField {
    /// Key of the answer.
    key: String,
    /// Short label; may be empty.
    pub header: String,
    pub prompt: String,
    pub options: Vec<InputOption>,
    /// Several options can be chosen.
    pub is_multiple: bool,
    /// The kind of text that can be written; `None` if only options can be chosen.
    pub text: Option<TextKind>,
    pub is_required: bool,
}

/// An option of a field.
#[derive(Clone, Debug, PartialEq)]
pub struct InputOption {
    pub label: String,
    /// Explanation of the label; may be empty.
    pub description: String,
    value: Value,
}

/// What can be written into a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TextKind {
    Any,
    Number,
    Integer,
}

/// What a person chose and wrote for one field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldAnswer {
    /// Numbers of options, from 0.
    pub chosen: Vec<usize>,
    /// Own words; blank for none.
    pub text: String,
}

impl InputForm {
    /// The form of a held call. `None` for other tools, and for arguments that are not a form of known shape and size.
    pub fn of_call(tool: &str, input: &str) -> Option<Self> {
        if input.len() > MAX_INPUT_BYTES {
            return None;
        }
        match tool {
            QUESTION_TOOL => Self::of_questions(serde_json::from_str(input).ok()?),
            ELICITATION => Self::of_elicitation(&serde_json::from_str(input).ok()?).ok(),
            _ => None,
        }
    }

    fn of_questions(asked: AskedQuestions) -> Option<Self> {
        let count = asked.questions.len();
        let is_bounded = |question: &AskedQuestion| question.options.len() <= MAX_OPTIONS;
        if count == 0 || count > MAX_FIELDS || !asked.questions.iter().all(is_bounded) {
            return None;
        }
        let fields = asked.questions.into_iter().map(|question| InputField {
            key: question.question.clone(),
            header: question.header,
            prompt: question.question,
            options: question
                .options
                .into_iter()
                .map(|option| InputOption {
                    value: option.label.as_str().into(),
                    label: option.label,
                    description: option.description,
                })
                .collect(),
            is_multiple: question.multi_select,
            text: Some(TextKind::Any),
            is_required: true,
        });
        Some(Self {
            server: None,
            message: String::new(),
            fields: fields.collect(),
        })
    }

    /// The form of a request of a tool server.
    ///
    /// # Errors
    /// Why the request cannot be shown: it is not a form, it is too large, or a field has an unknown shape.
    pub fn of_elicitation(request: &Value) -> Result<Self, Problem> {
        let text = |key: &str| request.get(key).and_then(Value::as_str).unwrap_or_default();
        if request.get("mode").and_then(Value::as_str) == Some("url") {
            let url = text::printable(text("url"), 200);
            return Err(format!("it asks to open {url}").into());
        }
        let schema = request.get("requested_schema").unwrap_or(&Value::Null);
        let Some(Value::Object(properties)) = schema.get("properties") else {
            return Err(Problem::new("it has no fields"));
        };
        if request.to_string().len() > MAX_INPUT_BYTES {
            let most = text::size(MAX_INPUT_BYTES as u64);
            return Err(format!("its form is larger than {most}").into());
        }
        if properties.is_empty() || properties.len() > MAX_FIELDS {
            let count = text::pluralize(properties.len(), "field");
            return Err(format!("it has {count}; at most {MAX_FIELDS} can be shown").into());
        }
        let required = schema.get("required").and_then(Value::as_array);
        let is_required =
            |key: &str| required.is_some_and(|names| names.iter().any(|name| name == key));
        let order = request.get("property_order").and_then(Value::as_array);
        let place = |key: &str| order.and_then(|order| order.iter().position(|name| name == key));
        let mut properties: Vec<_> = properties.iter().collect();
        properties.sort_by_key(|(key, _)| place(key).unwrap_or(usize::MAX));
        let fields = properties
            .iter()
            .map(|(key, field)| InputField::of_property(key, field, is_required(key)));
        Ok(Self {
            server: Some(text("mcp_server_name").to_owned()),
            message: text("message").to_owned(),
            fields: fields.collect::<Result<_, _>>()?,
        })
    }

    /// The answer to all fields, as the asker reads it.
    ///
    /// # Errors
    /// The number of the first field whose answer is missing or invalid, and what is wrong.
    pub fn answer(&self, answers: &[FieldAnswer]) -> Result<Map<String, Value>, (usize, Problem)> {
        let mut all = Map::new();
        let none = FieldAnswer::default();
        for (number, field) in self.fields.iter().enumerate() {
            let answer = answers.get(number).unwrap_or(&none);
            let value = if self.server.is_none() {
                field.answer_to_model(answer)
            } else {
                field.answer_to_server(answer)
            };
            match value.map_err(|problem| (number, problem))? {
                Some(value) => {
                    all.insert(field.key.clone(), value);
                }
                None if field.is_required => {
                    return Err((number, Problem::new("this field needs an answer")));
                }
                None => {}
            }
        }
        Ok(all)
    }
}

/// The plan of a call that asks for its approval, in Markdown.
pub fn plan_text(tool: &str, input: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct PlanInput {
        plan: String,
    }
    if tool != PLAN_TOOL || input.len() > MAX_INPUT_BYTES {
        return None;
    }
    let input: PlanInput = serde_json::from_str(input).ok()?;
    Some(input.plan).filter(|plan| !plan.trim().is_empty())
}

/// True for a call that a person answers.
pub fn takes_answer(tool: &str) -> bool {
    matches!(tool, QUESTION_TOOL | ELICITATION)
}

/// The arguments or content that a call continues with after an answer. `None` if the call asks for none.
pub fn answered_input(tool: &str, input: Value, answer: Map<String, Value>) -> Option<Value> {
    match (tool, input) {
        (QUESTION_TOOL, Value::Object(mut input)) => {
            input.insert("answers".to_owned(), Value::Object(answer));
            Some(Value::Object(input))
        }
        (ELICITATION, _) => Some(Value::Object(answer)),
        _ => None,
    }
}

impl InputField {
    fn of_property(key: &str, field: &Value, is_required: bool) -> Result<Self, Problem> {
        let text = |name: &str| field.get(name).and_then(Value::as_str).unwrap_or_default();
        let unknown = || {
            let key = text::printable(key, 60);
            Problem::new(format!("its field `{key}` has an unknown shape"))
        };
        let items = field.get("items").unwrap_or(&Value::Null);
        let (options, written, is_multiple) = match text("type") {
            "string" => match enum_options(field, "oneOf")? {
                Some(options) => (options, None, false),
                None => (Vec::new(), Some(TextKind::Any), false),
            },
            "number" => (Vec::new(), Some(TextKind::Number), false),
            "integer" => (Vec::new(), Some(TextKind::Integer), false),
            "boolean" => {
                let option = |label: &str, value: bool| InputOption {
                    label: label.to_owned(),
                    description: String::new(),
                    value: value.into(),
                };
                (vec![option("yes", true), option("no", false)], None, false)
            }
            "array" => {
                let options = enum_options(items, "anyOf")?.ok_or_else(unknown)?;
                (options, None, true)
            }
            _ => return Err(unknown()),
        };
        let title = text("title");
        Ok(Self {
            key: key.to_owned(),
            header: if title.is_empty() { key } else { title }.to_owned(),
            prompt: text("description").to_owned(),
            options,
            is_multiple,
            text: written,
            is_required,
        })
    }

    fn chosen<'a>(&'a self, answer: &'a FieldAnswer) -> impl Iterator<Item = &'a InputOption> {
        let count = if self.is_multiple { usize::MAX } else { 1 };
        let chosen = answer.chosen.iter().take(count);
        chosen.filter_map(|number| self.options.get(*number))
    }

    /// Labels and own words in one text, as Claude Code writes the answer to a question.
    fn answer_to_model(&self, answer: &FieldAnswer) -> Result<Option<Value>, Problem> {
        let mut parts: Vec<&str> = Vec::new();
        for option in self.chosen(answer) {
            if !parts.contains(&option.label.as_str()) {
                parts.push(&option.label);
            }
        }
        let own = checked_text(&answer.text)?;
        if !own.is_empty() && (parts.is_empty() || self.is_multiple) {
            parts.push(own);
        } else if parts.len() > 1 && parts.iter().any(|label| label.contains(',')) {
            // In one text, these labels could not be distinguished.
            return Ok(Some(parts.into()));
        }
        Ok((!parts.is_empty()).then(|| parts.join(", ").into()))
    }

    fn answer_to_server(&self, answer: &FieldAnswer) -> Result<Option<Value>, Problem> {
        let Some(kind) = self.text else {
            let mut values = self.chosen(answer).map(|option| option.value.clone());
            return Ok(if self.is_multiple {
                let values: Vec<Value> = values.collect();
                (!values.is_empty()).then(|| values.into())
            } else {
                values.next()
            });
        };
        let own = checked_text(&answer.text)?;
        if own.is_empty() {
            return Ok(None);
        }
        let number = own.parse::<f64>().ok().filter(|number| number.is_finite());
        Ok(Some(match (kind, own.parse::<i64>(), number) {
            (TextKind::Any, ..) => own.into(),
            (TextKind::Number | TextKind::Integer, Ok(whole), _) => whole.into(),
            (TextKind::Number, Err(_), Some(number)) => number.into(),
            (TextKind::Number, ..) => return Err(Problem::new("expected a number")),
            (TextKind::Integer, ..) => return Err(Problem::new("expected a whole number")),
        }))
    }
}

/// The options of an enumeration, with titles under `titled`. `None` for other fields.
fn enum_options(field: &Value, titled: &str) -> Result<Option<Vec<InputOption>>, Problem> {
    let option = |label: &str, value: &str| InputOption {
        label: label.to_owned(),
        description: String::new(),
        value: value.into(),
    };
    let names = field.get("enumNames").and_then(Value::as_array);
    let options: Option<Vec<_>> = match (field.get("enum"), field.get(titled)) {
        (Some(Value::Array(values)), _) => values
            .iter()
            .enumerate()
            .map(|(number, value)| {
                let name = names.and_then(|names| names.get(number)?.as_str());
                value
                    .as_str()
                    .map(|value| option(name.unwrap_or(value), value))
            })
            .collect(),
        (None, Some(Value::Array(values))) => values
            .iter()
            .map(|value| {
                let name = value.get("title").and_then(Value::as_str);
                let value = value.get("const")?.as_str()?;
                Some(option(name.unwrap_or(value), value))
            })
            .collect(),
        _ => return Ok(None),
    };
    match options {
        Some(options) if !options.is_empty() && options.len() <= MAX_OPTIONS => Ok(Some(options)),
        Some(options) => Err(Problem::new(format!(
            "a field has {} options; 1 to {MAX_OPTIONS} can be shown",
            options.len()
        ))),
        None => Err(Problem::new("an option of a field is not text")),
    }
}

fn checked_text(text: &str) -> Result<&str, Problem> {
    let text = text.trim();
    let length = text.chars().count();
    if length > MAX_ANSWER_CHARS {
        return Err(Problem::new(format!(
            "answer too long: {length} characters; the limit is {MAX_ANSWER_CHARS}"
        )));
    }
    Ok(text)
}

/// The arguments of [`QUESTION_TOOL`].
#[derive(Deserialize)]
struct AskedQuestions {
    questions: Vec<AskedQuestion>,
}

#[derive(Deserialize)]
struct AskedQuestion {
    question: String,
    #[serde(default)]
    header: String,
    #[serde(default)]
    options: Vec<AskedOption>,
    #[serde(default, rename = "multiSelect")]
    multi_select: bool,
}

#[derive(Deserialize)]
struct AskedOption {
    label: String,
    #[serde(default)]
    description: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn questions(questions: &Value) -> Option<InputForm> {
        InputForm::of_call(QUESTION_TOOL, &json!({"questions": questions}).to_string())
    }

    fn choice(chosen: &[usize], text: &str) -> FieldAnswer {
        FieldAnswer {
            chosen: chosen.to_vec(),
            text: text.to_owned(),
        }
    }

    fn options(labels: &[&str]) -> Value {
        labels
            .iter()
            .map(|label| json!({"label": label, "description": "why"}))
            .collect()
    }

    #[test]
    fn answers_have_the_text_of_their_questions() {
        let form = questions(&json!([
            {"question": "Which?", "header": "Format", "options": options(&["Table", "List"])},
            {"question": "What else?", "header": "More", "options": options(&["a", "b", "a"]), "multiSelect": true},
            {"question": "Name?"},
        ]))
        .unwrap();
        let answers = [
            choice(&[1], "ignored"),
            choice(&[0, 1, 2], " and c "),
            choice(&[7], "Ada"),
        ];
        let answer = form.answer(&answers).unwrap();
        let expected = json!({"Which?": "List", "What else?": "a, b, and c", "Name?": "Ada"});
        assert_eq!(Value::Object(answer.clone()), expected);
        let input = answered_input(
            QUESTION_TOOL,
            json!({"questions": [], "x": 1}),
            answer.clone(),
        );
        assert_eq!(
            input,
            Some(json!({"questions": [], "x": 1, "answers": expected}))
        );
        assert_eq!(answered_input("Bash", json!({}), answer), None);
        let commas =
            json!([{"question": "?", "options": options(&["a, b", "c"]), "multiSelect": true}]);
        let commas = questions(&commas).unwrap();
        let both = commas.answer(&[choice(&[0, 1], "")]).unwrap();
        assert_eq!(both["?"], json!(["a, b", "c"]));
        let (number, problem) = form.answer(&answers[..2]).unwrap_err();
        assert_eq!(
            (number, problem.to_string().as_str()),
            (2, "this field needs an answer")
        );
    }

    #[test]
    fn hostile_questions_are_bounded() {
        let labels: Vec<String> = (0..50)
            .map(|number| format!("\u{1b}[31m{number}{}", "x".repeat(1000)))
            .collect();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let form = questions(&json!([{"question": "?", "options": options(&labels)}])).unwrap();
        assert_eq!(form.fields[0].options.len(), 50);
        let answer = form.answer(&[choice(&[49], "")]).unwrap();
        assert_eq!(answer["?"], labels[49], "the answer is not escaped");
        let long = choice(&[], &"x".repeat(MAX_ANSWER_CHARS + 1));
        assert!(form.answer(&[long]).is_err());
        let many = json!([{"question": "?", "options": options(&["x"; MAX_OPTIONS + 1])}]);
        let questions_of = |count: usize| vec![json!({"question": "?"}); count];
        for bad in [
            many,
            json!([]),
            json!([{"header": "no question"}]),
            json!([{"question": "?", "options": [1]}]),
            json!("text"),
            questions_of(MAX_FIELDS + 1).into(),
            json!([{"question": "x".repeat(MAX_INPUT_BYTES)}]),
        ] {
            assert_eq!(questions(&bad), None);
        }
    }

    fn elicitation(properties: &Value) -> Result<InputForm, Problem> {
        InputForm::of_elicitation(&json!({
            "mcp_server_name": "booking", "message": "Which seat?",
            "requested_schema": {"type": "object", "properties": properties, "required": ["name"]},
        }))
    }

    #[test]
    fn fields_of_a_server_have_typed_answers() {
        let form = elicitation(&json!({
            "name": {"type": "string", "title": "Name", "description": "Who travels"},
            "age": {"type": "integer"},
            "weight": {"type": "number"},
            "aisle": {"type": "boolean"},
            "class": {"type": "string", "enum": ["e", "b"], "enumNames": ["Economy", "Business"]},
            "meal": {"type": "string", "oneOf": [{"const": "v", "title": "Vegan"}]},
            "extras": {"type": "array", "items": {"type": "string", "enum": ["bag", "wifi"]}},
            "empty": {"type": "string"},
        }))
        .unwrap();
        let by_key = |key: &str| match key {
            "name" => choice(&[], "Ada"),
            "age" => choice(&[], "36"),
            "weight" => choice(&[], "61.5"),
            "aisle" | "class" => choice(&[1], ""),
            "meal" => choice(&[0], ""),
            "extras" => choice(&[0, 1], ""),
            _ => FieldAnswer::default(),
        };
        let answers: Vec<_> = form.fields.iter().map(|field| by_key(&field.key)).collect();
        assert_eq!(
            Value::Object(form.answer(&answers).unwrap()),
            json!({"name": "Ada", "age": 36, "weight": 61.5, "aisle": false, "class": "b", "meal": "v", "extras": ["bag", "wifi"]})
        );
        let name = form
            .fields
            .iter()
            .find(|field| field.key == "name")
            .unwrap();
        assert!(name.is_required && name.header == "Name" && name.prompt == "Who travels");
        let wrong = |key: &str, text: &str| {
            let answers: Vec<_> = form
                .fields
                .iter()
                .map(|field| match field.key == key {
                    true => choice(&[], text),
                    false => by_key(&field.key),
                })
                .collect();
            let (number, problem) = form.answer(&answers).unwrap_err();
            (form.fields[number].key.clone(), problem.to_string())
        };
        assert_eq!(
            wrong("age", "1.5"),
            ("age".to_owned(), "expected a whole number".to_owned())
        );
        assert_eq!(
            wrong("weight", "NaN"),
            ("weight".to_owned(), "expected a number".to_owned())
        );
    }

    #[test]
    fn unknown_requests_of_a_server_have_a_reason() {
        let reason = |request: &Value| InputForm::of_elicitation(request).unwrap_err().to_string();
        assert_eq!(reason(&json!({"message": "?"})), "it has no fields");
        assert_eq!(
            reason(&json!({"mode": "url", "url": "https://x.example/\u{1b}[2J"})),
            "it asks to open https://x.example/\\e[2J"
        );
        let shape = |properties: &Value| elicitation(properties).unwrap_err().to_string();
        assert_eq!(
            shape(&json!({"a": {"type": "object"}})),
            "its field `a` has an unknown shape"
        );
        assert_eq!(
            shape(&json!({"a": {"type": "string", "enum": []}})),
            "a field has 0 options; 1 to 200 can be shown"
        );
        assert_eq!(
            shape(&json!({"a": {"type": "string", "enum": [1]}})),
            "an option of a field is not text"
        );
        let large = json!({"a": {"type": "string", "description": "x".repeat(1 << 20)}});
        assert_eq!(shape(&large), "its form is larger than 256.0 KB");
        let many: Map<String, Value> = (0..=MAX_FIELDS)
            .map(|number| (number.to_string(), json!({"type": "string"})))
            .collect();
        assert!(shape(&Value::Object(many)).starts_with("it has 21 fields"));
    }
}
