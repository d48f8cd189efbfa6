//! JSON schemas of tool arguments and of semantic layer sources, and validation against them.
//!
//! Claude Code passes arguments without validation, so this is the only check. The same schema is sent to the model and
//! used for validation. It must not know any tool.

use std::sync::{Arc, LazyLock};

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value};

use super::{spelling::did_you_mean_in_brackets, untrusted_text::excerpt};

/// A schema of type object.
pub(crate) type ToolInputSchema = Map<String, Value>;

/// The schema of a tool, which is created when it is needed first.
pub(crate) type LazyToolInputSchema = LazyLock<Arc<ToolInputSchema>>;

/// The schema of `T` for a static.
pub(crate) const fn lazy_schema_for<T: JsonSchema>() -> LazyToolInputSchema {
    LazyLock::new(|| Arc::new(schema_for::<T>()))
}

/// The schema of `T`, with all references inlined.
pub(crate) fn schema_for<T: JsonSchema>() -> ToolInputSchema {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    simplify(&mut schema);
    let mut schema = match schema {
        Value::Object(schema) => schema,
        _ => ToolInputSchema::new(),
    };
    // The tool has its own description, which is more specific than that of the type.
    schema.shift_remove("description");
    schema
        .entry("properties")
        .or_insert_with(|| Value::Object(Map::new()));
    schema
}

/// Removes parts that a model does not need: titles, number formats, and `null` as an alternative type of an optional
/// field.
fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            map.remove("title");
            map.remove("format");
            if map.get("default").is_some_and(Value::is_null) {
                map.remove("default");
            }
            if let Some(Value::Array(choices)) = map.get_mut("enum") {
                choices.retain(|choice| !choice.is_null());
            }
            if let Some(Value::Array(types)) = map.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    map.insert("type".into(), only);
                }
            }
            for (key, value) in map.iter_mut() {
                match value {
                    // Names of fields are not keywords: a field may be called `title`.
                    Value::Object(fields) if key == "properties" => {
                        fields.values_mut().for_each(simplify)
                    }
                    other => simplify(other),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(simplify),
        _ => {}
    }
}

/// Validates `value` and returns it without absent fields. The error lists every violation of `schema` with its field.
pub(crate) fn validate(schema: &ToolInputSchema, value: &Value) -> Result<Value, Vec<String>> {
    // Some clients send nothing for a tool without required fields, and null for omitted fields.
    let mut value = if value.is_null() {
        Value::Object(Map::new())
    } else {
        value.clone()
    };
    if let Value::Object(fields) = &mut value {
        fields.retain(|_, value| !value.is_null());
    }
    let mut problems = Vec::new();
    validate_value(schema, &value, "the arguments", &mut problems);
    if problems.is_empty() {
        Ok(value)
    } else {
        Err(problems)
    }
}

fn validate_value(schema: &ToolInputSchema, value: &Value, at: &str, problems: &mut Vec<String>) {
    if let Some(expected) = schema.get("type").and_then(Value::as_str)
        && !has_type(value, expected)
    {
        problems.push(format!(
            "{at} must be {}, not {}",
            type_label(expected),
            kind(value)
        ));
        return;
    }
    if let Some(choices) = schema.get("enum").and_then(Value::as_array)
        && !choices.contains(value)
    {
        let choices: Vec<_> = choices
            .iter()
            .map(|choice| choice.as_str().unwrap_or("?"))
            .collect();
        problems.push(format!("{at} must be one of {}", choices.join(", ")));
    }
    let limit = |keyword: &str| schema.get(keyword).and_then(Value::as_u64);
    match value {
        Value::String(text) => check_bounds(
            text.chars().count(),
            limit("minLength"),
            limit("maxLength"),
            at,
            "characters",
            problems,
        ),
        Value::Array(items) => {
            check_bounds(
                items.len(),
                limit("minItems"),
                limit("maxItems"),
                at,
                "items",
                problems,
            );
            if let Some(Value::Object(schema)) = schema.get("items") {
                for (index, item) in items.iter().enumerate() {
                    validate_value(
                        schema,
                        item,
                        &format!("`{}[{index}]`", at.trim_matches('`')),
                        problems,
                    );
                }
            }
        }
        Value::Number(number) => {
            let bound = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
            let number = number.as_f64().unwrap_or(f64::NAN);
            if bound("minimum").is_some_and(|least| number < least)
                || bound("maximum").is_some_and(|most| number > most)
            {
                let side = |keyword| {
                    bound(keyword).map_or_else(|| "any".into(), |bound: f64| bound.to_string())
                };
                problems.push(format!(
                    "{at} must be between {} and {}, not {number}",
                    side("minimum"),
                    side("maximum")
                ));
            }
        }
        Value::Object(fields) => object(schema, fields, at, problems),
        Value::Null | Value::Bool(_) => {}
    }
}

fn object(
    schema: &ToolInputSchema,
    fields: &Map<String, Value>,
    at: &str,
    problems: &mut Vec<String>,
) {
    let properties = schema.get("properties").and_then(Value::as_object);
    let known: Vec<&str> = properties
        .into_iter()
        .flat_map(Map::keys)
        .map(String::as_str)
        .collect();
    let prefix = if at.starts_with("the ") {
        String::new()
    } else {
        format!("{}.", at.trim_matches('`'))
    };
    let required = required(schema);
    for name in required.iter().filter(|name| !fields.contains_key(**name)) {
        problems.push(format!("`{prefix}{name}` is missing"));
    }
    // Null means that the field is omitted.
    let given = fields
        .iter()
        .filter(|(name, value)| !value.is_null() || required.contains(&name.as_str()));
    for (name, value) in given {
        match properties.and_then(|properties| properties.get(name)) {
            Some(Value::Object(schema)) => {
                validate_value(schema, value, &format!("`{prefix}{name}`"), problems)
            }
            Some(_) => {}
            None if is_closed(schema) => problems.push(unknown_field(&prefix, name, &known)),
            None => {
                if let Some(Value::Object(schema)) = schema.get("additionalProperties") {
                    validate_value(
                        schema,
                        value,
                        &format!("`{prefix}{}`", excerpt(name)),
                        problems,
                    );
                }
            }
        }
    }
}

/// True if objects of `schema` have no further fields.
fn is_closed(schema: &ToolInputSchema) -> bool {
    schema.get("additionalProperties") == Some(&Value::Bool(false))
}

fn unknown_field(prefix: &str, name: &str, known: &[&str]) -> String {
    let hint = did_you_mean_in_brackets(name, known);
    format!("`{prefix}{}` is not a field{hint}", excerpt(name))
}

/// Removes the fields that `schema` does not permit. Returns a sentence about each.
pub(crate) fn remove_unknown_fields(schema: &ToolInputSchema, value: &mut Value) -> Vec<String> {
    let mut found = Vec::new();
    visit_objects(schema, value, "", &mut |schema, fields, prefix| {
        let properties = schema.get("properties").and_then(Value::as_object);
        let known: Vec<&str> = properties
            .into_iter()
            .flat_map(Map::keys)
            .map(String::as_str)
            .collect();
        fields.retain(|name, _| {
            let is_known = !is_closed(schema) || known.contains(&name.as_str());
            if !is_known {
                found.push(unknown_field(prefix, name, &known));
            }
            is_known
        });
    });
    found
}

/// The fields of `value` that are null although `schema` gives them a type, a sentence about each.
pub(crate) fn null_fields(schema: &ToolInputSchema, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    visit_objects(
        schema,
        &mut value.clone(),
        "",
        &mut |schema, fields, prefix| {
            let properties = schema.get("properties").and_then(Value::as_object);
            let is_typed = |name: &String| {
                properties
                    .is_some_and(|all| all.get(name).is_some_and(|of| of.get("type").is_some()))
            };
            let nulls = fields
                .iter()
                .filter(|(name, value)| value.is_null() && is_typed(name));
            found.extend(nulls.map(|(name, _)| format!("`{prefix}{name}` is empty; leave it out")));
        },
    );
    found
}

/// Calls `visit` with every object that `schema` describes, and the prefix of the paths of its fields.
fn visit_objects(
    schema: &ToolInputSchema,
    value: &mut Value,
    at: &str,
    visit: &mut impl FnMut(&ToolInputSchema, &mut Map<String, Value>, &str),
) {
    match value {
        Value::Object(fields) => {
            let prefix = if at.is_empty() {
                String::new()
            } else {
                format!("{at}.")
            };
            visit(schema, fields, &prefix);
            let properties = schema.get("properties").and_then(Value::as_object);
            for (name, value) in fields.iter_mut() {
                if let Some(Value::Object(schema)) =
                    properties.and_then(|properties| properties.get(name))
                {
                    visit_objects(schema, value, &format!("{prefix}{name}"), visit);
                }
            }
        }
        Value::Array(items) => {
            let Some(Value::Object(schema)) = schema.get("items") else {
                return;
            };
            for (index, item) in items.iter_mut().enumerate() {
                visit_objects(schema, item, &format!("{at}[{index}]"), visit);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Describes the fields of a schema as text: `key (text, required), limit (whole number)`.
pub(crate) fn describe_fields(schema: &ToolInputSchema) -> String {
    let required = required(schema);
    let properties = schema.get("properties").and_then(Value::as_object);
    let words = properties.into_iter().flatten().map(|(name, schema)| {
        let kind = schema
            .get("type")
            .and_then(Value::as_str)
            .map_or("value", type_label);
        let must = if required.contains(&name.as_str()) {
            ", required"
        } else {
            ""
        };
        format!("{name} ({kind}{must})")
    });
    let words: Vec<_> = words.collect();
    if words.is_empty() {
        "none".into()
    } else {
        words.join(", ")
    }
}

fn required(schema: &ToolInputSchema) -> Vec<&str> {
    schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

fn check_bounds(
    size: usize,
    least: Option<u64>,
    most: Option<u64>,
    at: &str,
    what: &str,
    problems: &mut Vec<String>,
) {
    let size = size as u64;
    if least.is_some_and(|least| size < least) {
        problems.push(format!("{at} must not be empty"));
    }
    if let Some(most) = most.filter(|most| size > *most) {
        problems.push(format!(
            "{at} has {size} {what}, at most {most} are allowed"
        ));
    }
}

fn has_type(value: &Value, expected: &str) -> bool {
    match expected {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}

fn type_label(kind: &str) -> &str {
    match kind {
        "string" => "text",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "array" => "a list",
        "object" => "an object",
        other => other,
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
