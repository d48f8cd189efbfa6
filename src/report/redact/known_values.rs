//! Secret values of the environment of this process and of the project's `ktx.yaml`. They are masked everywhere, also
//! escaped for JSON, or as base64.
//!
//! Values leave this module only as patterns.

#![expect(
    clippy::disallowed_methods,
    reason = "whether a value of the environment is a path"
)]

use std::{
    collections::{BTreeSet, HashMap},
    ffi::OsString,
    ops::Range,
    path::Path,
};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD as BASE64};
use regex::bytes::Regex;

use super::{
    json, names,
    rules::{self, RuleMatches},
};
use ingestdeck_ingest::project;
use ingestdeck_os::scoped_dir::ScopedDir;

/// Bytes of the shortest value that is masked everywhere.
const SHORTEST: usize = 6;

/// Shorter values of letters or digits only are ordinary words and numbers.
const LONG_WORD: usize = 12;
const LONG_NUMBER: usize = 8;

/// Bytes of `ktx.yaml` that are read.
const LARGEST_FILE: u64 = 1 << 20;

/// Suffixes of names of variables that hold secrets, in addition to those of [`names`].
const ENDS: &[&str] = &[
    "_KEY",
    "_KEY_ID",
    "_TOKEN",
    "_SECRET",
    "_PASSWORD",
    "_PASS",
    "_PWD",
    "_CREDENTIALS",
    "_AUTH",
];

/// Suffixes of names of variables whose values contain secrets.
const HOLDERS: &[&str] = &[
    "_URL",
    "_URI",
    "_DSN",
    "_HEADERS",
    "_BODY",
    "_CONNECTION_STRING",
    "_CONNSTR",
];

/// The pattern of the known values.
#[derive(Clone, Default)]
pub(super) struct KnownValues(Option<Regex>);

/// Prints no pattern, as it contains the values.
impl std::fmt::Debug for KnownValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KnownValues")
    }
}

impl KnownValues {
    /// Collects the values of `variables`, and of the `ktx.yaml` in `project`.
    pub(super) fn gather(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        project: Option<&Path>,
    ) -> Self {
        let text = |(name, value): (OsString, OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let variables: HashMap<String, String> = variables.into_iter().filter_map(text).collect();
        let mut values = BTreeSet::new();
        for (name, value) in &variables {
            let upper = name.to_ascii_uppercase();
            let is_structured = value.contains("://") || value.trim_start().starts_with(['{', '[']);
            let is_secret = names::kind_of(name).is_some_and(|kind| {
                is_structured
                    || names::secret(kind, name, value, names::ValueEnd::Delimiter).is_some()
            });
            if is_secret || ENDS.iter().any(|end| upper.ends_with(end)) {
                add(value, &mut values);
            }
            if HOLDERS.iter().any(|end| upper.ends_with(end)) {
                add_found(value, &mut values);
                values.extend(
                    value
                        .lines()
                        .filter_map(|line| Some(line.split_once(": ")?.1.trim().to_owned())),
                );
            }
        }
        let settings = project.and_then(|project| {
            let bytes = ScopedDir::open(project)
                .ok()?
                .read(project::PROJECT_FILE, LARGEST_FILE)
                .ok()?;
            String::from_utf8(bytes).ok()
        });
        if let Some(settings) = settings {
            add_found(&settings, &mut values);
            for reference in settings.split("env:").skip(1) {
                let end =
                    reference.find(|char: char| !(char.is_ascii_alphanumeric() || char == '_'));
                if let Some(value) = variables.get(&reference[..end.unwrap_or(reference.len())]) {
                    add(value, &mut values);
                }
            }
        }
        Self::new(values)
    }

    fn new(values: BTreeSet<String>) -> Self {
        let values = values.iter().filter(|value| is_distinctive(value));
        let mut forms: Vec<String> = values.flat_map(|value| forms(value)).collect();
        // The first alternative that matches wins, so the longest form comes first.
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        let pattern = forms
            .iter()
            .map(|form| regex::escape(form))
            .collect::<Vec<_>>()
            .join("|");
        Self(
            (!forms.is_empty())
                .then(|| rules::regex(&pattern).ok())
                .flatten(),
        )
    }

    /// Adds the ranges of known values in `text`.
    pub(super) fn find(&self, text: &str, spans: &mut Vec<Range<usize>>) {
        let found = self
            .0
            .iter()
            .flat_map(|values| values.find_iter(text.as_bytes()));
        spans.extend(found.map(|found| found.range()));
    }
}

/// Adds the lines of a secret value. Of an address, adds only its secrets.
fn add(value: &str, values: &mut BTreeSet<String>) {
    if value.contains("://") || value.trim_start().starts_with('{') {
        add_found(value, values);
    } else if !(value.starts_with('/') && Path::new(value).exists()) {
        values.extend(value.lines().map(|line| line.trim().to_owned()));
    }
}

/// Adds the secrets in `text`.
fn add_found(text: &str, values: &mut BTreeSet<String>) {
    let mut spans = Vec::new();
    RuleMatches::new(text).find(text, false, &mut spans);
    names::find(text, &mut spans);
    for span in spans {
        values.extend(text[span].lines().map(|line| line.trim().to_owned()));
    }
}

/// True for a value that does not occur in ordinary text.
fn is_distinctive(value: &str) -> bool {
    let all = |is: fn(&u8) -> bool| value.as_bytes().iter().all(is);
    let distinct: BTreeSet<u8> = value.bytes().collect();
    value.len() >= SHORTEST
        && distinct.len() >= 4
        && !rules::is_placeholder(value)
        && (value.len() >= LONG_WORD || !all(u8::is_ascii_alphabetic))
        && (value.len() >= LONG_NUMBER || !all(u8::is_ascii_digit))
}

/// A value, and as it is in JSON and in base64. [`encodings`](super::encodings) undoes other encodings, and base64 of
/// longer texts.
fn forms(value: &str) -> [String; 4] {
    let quoted = json::quoted(value);
    let escaped = quoted[1..quoted.len() - 1].to_owned();
    let slashes = escaped.replace('/', "\\/");
    [value.to_owned(), escaped, slashes, BASE64.encode(value)]
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::redact::{MASK, Redactor};

    fn masked(known: &KnownValues, text: &str) -> String {
        Redactor::new(known.clone()).text(text).replace(MASK, "#")
    }

    fn known(variables: &[(&str, &str)], settings: &str) -> KnownValues {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(project::PROJECT_FILE), settings).unwrap();
        let variables = variables
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        KnownValues::gather(variables, Some(dir.path()))
    }

    #[test]
    fn values_of_the_environment_are_masked_in_every_form() {
        let known = known(
            &[
                ("SOME_TOKEN", "a/b+\"c d9"),
                ("HOME", "/home/dev1"),
                ("DATABASE_URL", "postgres://u:hunter+22@h/d"),
            ],
            "",
        );
        for (text, expected) in [
            ("x a/b+\"c d9 y", "x # y"),
            ("x a%2Fb%2B%22c%20d9 y", "x # y"),
            ("x a%2fb%2b%22c%20d9 y", "x # y"),
            (r#"x a/b+\"c d9 y"#, "x # y"),
            (r#"x a\/b+\"c d9 y"#, "x # y"),
            ("/home/dev1 u h postgres", "/home/dev1 u h postgres"),
            ("so hunter+22 it is", "so # it is"),
        ] {
            assert_eq!(masked(&known, text), expected);
        }
        for before in ["", "u", "u:"] {
            let code = BASE64.encode(format!("{before}a/b+\"c d9 and more"));
            assert_eq!(masked(&known, &format!("<{code}>")), "<#>");
        }
    }

    #[test]
    fn values_of_the_settings_are_masked() {
        let settings = "connections:\n  w:\n    url: postgres://admin:hunter2secret@db/x\n    api_key: \"k3y-of-w\"\n    ref: env:ODD_NAME\n";
        let known = known(&[("ODD_NAME", "odd-value-1")], settings);
        assert_eq!(
            masked(&known, "hunter2secret k3y-of-w odd-value-1 admin"),
            "# # # admin"
        );
    }

    #[test]
    fn common_words_and_numbers_are_not_masked() {
        let variables = [
            ("A_TOKEN", "token"),
            ("B_PASSWORD", "postgres"),
            ("C_KEY", "123456"),
            ("D_KEY", "aaaaaaaa"),
            ("E_TOKEN", ""),
        ];
        let known = known(&variables, "ref: env:NOT_SET\n");
        let text = "token postgres 123456 aaaaaaaa";
        assert_eq!(masked(&known, text), text);
        assert!(!format!("{known:?}").contains("postgres"));
    }
}
