//! Types are small: no struct outside the wire formats has more than [`MAX_FIELDS`] fields.

use super::{report, rust_files};

const MAX_FIELDS: usize = 15;

/// Types that mirror a format of others or of the tape, field by field.
const WIRE_FORMATS: &[(&str, &str)] = &[
    ("AttemptStarted", "a note of the tape"),
    ("ResultLine", "the result line of the agent"),
    ("SystemFields", "the fields of the agent's system lines"),
    ("SourceDefinition", "a semantic-layer source of KTX"),
];

/// The structs of a text with their numbers of named fields.
fn structs(code: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        let declared = line
            .trim_start()
            .trim_start_matches("pub(crate) ")
            .trim_start_matches("pub(super) ");
        let Some(rest) = declared.trim_start_matches("pub ").strip_prefix("struct ") else {
            continue;
        };
        if !line.trim_end().ends_with('{') {
            continue;
        }
        let name: String = rest
            .chars()
            .take_while(|char| char.is_alphanumeric())
            .collect();
        let end = format!("{}}}", " ".repeat(indent));
        let is_field = |line: &&str| {
            let depth = line.len() - line.trim_start().len();
            let field = line
                .trim_start()
                .trim_start_matches("pub(crate) ")
                .trim_start_matches("pub(super) ");
            let name = field
                .trim_start_matches("pub ")
                .split(": ")
                .next()
                .unwrap_or_default();
            depth == indent + 4
                && !name.is_empty()
                && name
                    .chars()
                    .all(|char| char.is_alphanumeric() || "_#".contains(char))
        };
        let fields = lines
            .by_ref()
            .take_while(|line| *line != end)
            .filter(is_field)
            .count();
        found.push((name, fields));
    }
    found
}

#[test]
fn types_have_few_fields() {
    let mut problems = Vec::new();
    for source in rust_files("src") {
        for (name, fields) in structs(&source.code) {
            let is_wire = WIRE_FORMATS.iter().any(|(wire, _)| *wire == name);
            if fields > MAX_FIELDS && !is_wire {
                problems.push(format!(
                    "{}: {name} has {fields} fields, the limit is {MAX_FIELDS}",
                    source.path
                ));
            } else if fields <= MAX_FIELDS && is_wire {
                problems.push(format!("{}: {name} needs no exception", source.path));
            }
        }
    }
    report("types with many fields", &problems);
}

#[test]
fn field_counter_counts_named_fields() {
    let code = "pub(crate) struct A<'a> {\n    pub one: u8,\n    #[serde(default)]\n    pub(crate) two: &'a str,\n    r#type: u8,\n}\nstruct B(u8);\nstruct C {\n    x: (u8, u8),\n}\n";
    assert_eq!(structs(code), [("A".to_owned(), 3), ("C".to_owned(), 1)]);
}
