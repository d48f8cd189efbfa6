//! Flattens the TOML of the settings file into keys with line numbers. Validates no value.

use std::path::Path;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    ConfigError,
    schema::{self, CHORDS_SECTION},
    value::{SettingValue, escape_excerpt},
};
use crate::diagnostic::Problem;

/// Maximum size of the file, in bytes.
pub const MAX_BYTES: u64 = 1024 * 1024;

/// The parsed content of a settings file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SettingsFileContent {
    /// Settings in the order of the file.
    pub entries: Vec<FileSetting>,
    /// Chords with their actions.
    pub chords: Vec<(String, ActionChords)>,
    /// Warnings about unknown sections.
    pub warnings: Vec<Problem>,
}

/// A setting of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct FileSetting {
    pub key: String,
    pub value: SettingValue,
    /// Line number, counted from 1.
    pub line: usize,
}

/// Chords of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionChords {
    /// In the order of the file; an empty list unbinds the action.
    pub chords: Vec<String>,
    /// Line number, counted from 1.
    pub line: usize,
}

/// Flattens a file. `path` is used in messages only.
pub fn parse(path: &Path, text: &str) -> Result<SettingsFileContent, ConfigError> {
    // Find the line ends once: a hostile file may have many lines with a key on each.
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let line_of = |offset: usize| ends.partition_point(|end| *end < offset) + 1;
    let place = |line: usize| format!("{}:{line}", path.display());
    let root = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
        place: place(error.span().map_or(1, |span| line_of(span.start))),
        cause: error.message().replace('\n', " "),
    })?;
    let mut content = SettingsFileContent::default();
    for (name, value) in by_position(root.get_ref()) {
        let section = name.get_ref().as_ref();
        let line = line_of(name.span().start);
        if !schema::is_section(section) {
            let hint =
                schema::suggest_section(section).map(|near| format!("; did you mean [{near}]?"));
            let hint = hint.unwrap_or_default();
            let text = format!(
                "{}: unknown section {} is ignored{hint}",
                place(line),
                escape_excerpt(section)
            );
            content.warnings.push(text.into());
            continue;
        }
        let DeValue::Table(table) = value.get_ref() else {
            return Err(invalid_value(
                place(line),
                section,
                "a section",
                value.get_ref(),
            ));
        };
        for (name, value) in by_position(table) {
            let line = line_of(name.span().start);
            let name = name.get_ref().as_ref();
            if section == CHORDS_SECTION {
                let chords = chords(value.get_ref()).ok_or_else(|| {
                    let key = format!("{CHORDS_SECTION}.{}", escape_excerpt(name));
                    invalid_value(
                        place(line),
                        &key,
                        "a key in quotes or a list of them",
                        value.get_ref(),
                    )
                })?;
                content
                    .chords
                    .push((name.to_owned(), ActionChords { chords, line }));
            } else {
                let value = flatten(value.get_ref());
                content.entries.push(FileSetting {
                    key: format!("{section}.{name}"),
                    value,
                    line,
                });
            }
        }
    }
    Ok(content)
}

/// Entries of a table in the order of the file.
fn by_position<'a, 'i>(
    table: &'a DeTable<'i>,
) -> Vec<(
    &'a Spanned<std::borrow::Cow<'i, str>>,
    &'a Spanned<DeValue<'i>>,
)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    entries
}

fn invalid_value(place: String, key: &str, expected: &str, found: &DeValue<'_>) -> ConfigError {
    let found = match found {
        DeValue::Table(_) => "a section",
        DeValue::Array(_) => "a list",
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "a switch",
        DeValue::Datetime(_) => "a date",
    };
    ConfigError::InvalidValue {
        place,
        key: key.to_owned(),
        expected: expected.to_owned(),
        found: found.to_owned(),
    }
}

fn chords(value: &DeValue<'_>) -> Option<Vec<String>> {
    match value {
        DeValue::String(chord) => Some(vec![chord.to_string()]),
        DeValue::Array(_) => texts(value),
        _ => None,
    }
}

fn texts(value: &DeValue<'_>) -> Option<Vec<String>> {
    value
        .as_array()?
        .iter()
        .map(|item| item.get_ref().as_str().map(str::to_owned))
        .collect()
}

fn flatten(value: &DeValue<'_>) -> SettingValue {
    match value {
        DeValue::String(text) => SettingValue::Text(text.to_string()),
        DeValue::Boolean(value) => SettingValue::Bool(*value),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).map_or(
            SettingValue::Other("a number beyond 64 bits"),
            SettingValue::Integer,
        ),
        DeValue::Float(number) => number
            .as_str()
            .parse()
            .map_or(SettingValue::Other("not a number"), SettingValue::Float),
        DeValue::Array(_) => texts(value).map_or(
            SettingValue::Other("a list of other things"),
            SettingValue::List,
        ),
        DeValue::Datetime(_) => SettingValue::Other("a date"),
        DeValue::Table(_) => SettingValue::Other("a section"),
    }
}
