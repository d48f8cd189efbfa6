//! What the user keeps out of the index of words: runs, units and session files, by pattern.

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde_json::Value;

use ingestdeck_core::{
    run::{EntryRef, EntryScope},
    tape::{EntryBody, RunId},
};

use super::text_record::TextRecord;

/// Patterns of what is not searched.
#[derive(Clone, Debug, Default)]
pub struct TextExclusions {
    /// As in the settings. They are in the index, too, whose words must follow a change of them.
    patterns: Vec<String>,
    runs: GlobSet,
    units: GlobSet,
    sessions: GlobSet,
}

impl TextExclusions {
    /// Parses patterns such as `unit:docs-*`, `run:019a*` and `session:*`.
    ///
    /// # Errors
    /// The first pattern that is invalid, with the reason.
    pub fn parse(patterns: &[String]) -> Result<Self, String> {
        let mut sets = [const { Vec::new() }; 3];
        for pattern in patterns {
            let wrong = |cause: String| format!("`{}` {cause}", pattern.escape_debug());
            let (place, glob) = match pattern.split_once(':') {
                Some(("run", glob)) => (0, glob),
                Some(("unit", glob)) => (1, glob),
                Some(("session", glob)) => (2, glob),
                _ => {
                    return Err(wrong(
                        "begins with none of run:, unit: and session:".to_owned(),
                    ));
                }
            };
            let glob = Glob::new(glob).map_err(|error| wrong(format!("is invalid: {error}")))?;
            sets[place].push(glob);
        }
        let build = |globs: Vec<Glob>| {
            let mut set = GlobSetBuilder::new();
            for glob in globs {
                set.add(glob);
            }
            set.build().map_err(|error| error.to_string())
        };
        let [runs, units, sessions] = sets;
        Ok(Self {
            patterns: patterns.to_vec(),
            runs: build(runs)?,
            units: build(units)?,
            sessions: build(sessions)?,
        })
    }

    /// The patterns of units, which decide about single entries of a record.
    pub(super) fn unit_patterns(&self) -> String {
        let mut units: Vec<&str> = self.patterns.iter().map(String::as_str).collect();
        units.retain(|pattern| pattern.starts_with("unit:"));
        units.sort_unstable();
        units.join("\n")
    }

    /// True for a record none of whose entries are searched. A pattern may name a run by its short id, and a session by
    /// its id or its path.
    pub fn excludes(&self, record: &TextRecord) -> bool {
        match record {
            TextRecord::Run(id) => self.excludes_run(*id),
            TextRecord::Session(path) => {
                let id = path.file_stem();
                self.sessions.is_match(path) || id.is_some_and(|id| self.sessions.is_match(id))
            }
        }
    }

    fn excludes_run(&self, id: RunId) -> bool {
        self.runs.is_match(id.to_string()) || self.runs.is_match(id.short())
    }

    /// True for an entry that is not searched: one of an excluded unit, or a note of the run that names such a unit.
    pub(super) fn excludes_entry(&self, entry: &EntryRef<'_>) -> bool {
        match (entry.scope, &entry.body) {
            (EntryScope::Attempt(unit, _), _) => self.units.is_match(unit),
            (EntryScope::Run, EntryBody::Note(json)) if !self.units.is_empty() => {
                serde_json::from_slice(json).is_ok_and(|note| self.names_unit(&note))
            }
            _ => false,
        }
    }

    fn names_unit(&self, note: &Value) -> bool {
        match note {
            Value::Object(fields) => fields.iter().any(|(name, value)| match name.as_str() {
                "unit" | "units" | "sent_back" | "unreconciled" => {
                    self.has_unit(value) || self.names_unit(value)
                }
                "text" | "reason" => value.as_str().is_some_and(|text| {
                    let is_part = |char: char| char.is_alphanumeric() || "-_./".contains(char);
                    text.split(|char| !is_part(char))
                        .any(|word| self.units.is_match(word.trim_end_matches('.')))
                }),
                _ => self.names_unit(value),
            }),
            Value::Array(values) => values.iter().any(|value| self.names_unit(value)),
            _ => false,
        }
    }

    /// True if `value` is the name of such a unit, or a list or a table of names with one.
    fn has_unit(&self, value: &Value) -> bool {
        match value {
            Value::String(unit) => self.units.is_match(unit),
            Value::Array(units) => units.iter().any(|unit| self.has_unit(unit)),
            Value::Object(units) => units.keys().any(|unit| self.units.is_match(unit)),
            _ => false,
        }
    }

    /// True if attempts may be excluded, whose sessions then are as well.
    pub fn has_runs_or_units(&self) -> bool {
        !self.units.is_empty() || !self.runs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_runs_units_and_sessions() {
        let patterns = ["unit:docs-*", "run:019a*", "session:*secret*"].map(str::to_owned);
        let exclusions = TextExclusions::parse(&patterns).unwrap();
        let names = |note: &str| exclusions.names_unit(&serde_json::from_str(note).unwrap());
        assert!(names(
            r#"{"units":[{"unit":"dbt"},{"unit":"docs-growers"}]}"#
        ));
        assert!(!names(r#"{"unit":"dbt","path":"docs-growers"}"#));
        for note in [
            r#"{"files":[{"path":"p","units":["docs-growers"],"diff":"d"}]}"#,
            r#"{"kind":"message","text":"unit docs-growers: it failed."}"#,
            r#"{"unreconciled":{"docs-growers":"d.patch"}}"#,
        ] {
            assert!(names(note), "{note}");
        }
        let run = |id: &str| TextRecord::parse(id).unwrap();
        assert!(exclusions.excludes(&run("019a0000-0000-7000-8000-000000000001")));
        assert!(!exclusions.excludes(&run("019b0000-0000-7000-8000-000000000001")));
        assert!(exclusions.excludes(&run("/home/dev/my-secret/0a.jsonl")));
        assert!(!exclusions.excludes(&run("/home/dev/open/0a.jsonl")));
        assert_eq!(exclusions.unit_patterns(), "unit:docs-*");
    }

    #[test]
    fn other_patterns_are_refused_with_their_text() {
        for pattern in ["docs-*", "units:docs", "unit:[", ""] {
            let refused = TextExclusions::parse(&[pattern.to_owned()]).unwrap_err();
            assert!(refused.contains(pattern), "{refused}");
        }
    }
}
