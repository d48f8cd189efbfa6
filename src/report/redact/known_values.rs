//! Secret values of the environment of this process and of the project's `ktx.yaml`. They are masked everywhere, also
//! URL-encoded, escaped for JSON, or as base64.
//!
//! Values leave this module only as patterns.

#![expect(
    clippy::disallowed_methods,
    reason = "whether a value of the environment is a path"
)]

use std::{
    collections::{BTreeSet, HashMap},
    ffi::OsString,
    fmt::Write as _,
    ops::Range,
    path::Path,
};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD as BASE64};
use regex::bytes::{Regex, RegexBuilder};

use super::{
    json,
    names::{self, NamedValue},
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

/// Patterns of known values.
#[derive(Clone, Default)]
pub(super) struct KnownValues {
    /// The values as they are, and escaped.
    plain: Option<Regex>,
    /// Base64 of a text that contains a value.
    base64: Option<Regex>,
}

/// Prints no pattern, as patterns contain the values.
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
            let named = NamedValue {
                text: value,
                is_delimited: true,
            };
            let is_secret = names::kind_of(name)
                .is_some_and(|kind| is_structured || names::secret(kind, name, named).is_some());
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
        let values: Vec<String> = values
            .into_iter()
            .filter(|value| is_distinctive(value))
            .collect();
        let mut plain: Vec<String> = values.iter().flat_map(|value| forms(value)).collect();
        let mut base64: Vec<String> = values
            .iter()
            .flat_map(|value| base64_cores(value))
            .collect();
        let pattern = |forms: &mut Vec<String>| {
            // The first alternative that matches wins, so the longest form comes first.
            forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
            forms.dedup();
            let escaped: Vec<String> = forms.iter().map(|form| regex::escape(form)).collect();
            let mut builder = RegexBuilder::new(&escaped.join("|"));
            (!forms.is_empty())
                .then(|| builder.size_limit(64 << 20).unicode(false).build().ok())
                .flatten()
        };
        Self {
            plain: pattern(&mut plain),
            base64: pattern(&mut base64),
        }
    }

    /// Adds the ranges of known values in `text`.
    pub(super) fn find(&self, text: &str, spans: &mut Vec<Range<usize>>) {
        let bytes = text.as_bytes();
        spans.extend(
            self.plain
                .iter()
                .flat_map(|plain| plain.find_iter(bytes))
                .map(|found| found.range()),
        );
        let is_code = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
        spans.extend(
            self.base64
                .iter()
                .flat_map(|base64| base64.find_iter(bytes))
                .map(|found| {
                    let before = bytes[..found.start()]
                        .iter()
                        .rev()
                        .take_while(is_code)
                        .count();
                    let after = bytes[found.end()..].iter().take_while(is_code).count();
                    found.start() - before..found.end() + after
                }),
        );
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

/// A value, and its encodings in addresses and in JSON.
fn forms(value: &str) -> Vec<String> {
    let encoded = |is_upper: bool| {
        value.bytes().fold(String::new(), |mut out, byte| {
            // Writing to a string cannot fail.
            let _ = match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                    write!(out, "{}", char::from(byte))
                }
                byte if is_upper => write!(out, "%{byte:02X}"),
                byte => write!(out, "%{byte:02x}"),
            };
            out
        })
    };
    let escaped = json::quoted(value);
    let escaped = &escaped[1..escaped.len() - 1];
    let twice = json::quoted(escaped);
    let mut forms = vec![
        value.to_owned(),
        encoded(true),
        encoded(false),
        escaped.to_owned(),
        escaped.replace('/', "\\/"),
    ];
    forms.push(twice[1..twice.len() - 1].to_owned());
    forms.sort();
    forms.dedup();
    forms
}

/// The base64 of a value at each of the three alignments, without the characters that depend on the text around it.
fn base64_cores(value: &str) -> Vec<String> {
    let cores = [0, 1, 2].map(|before| {
        let mut bytes = vec![0; before];
        bytes.extend_from_slice(value.as_bytes());
        let code = BASE64.encode(&bytes);
        let end = if bytes.len() % 3 == 0 {
            code.len()
        } else {
            code.len() - 1
        };
        code[[0, 2, 3][before]..end].to_owned()
    });
    let url_safe = cores
        .clone()
        .map(|core| core.replace('+', "-").replace('/', "_"));
    cores.into_iter().chain(url_safe).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn masked(known: &KnownValues, text: &str) -> String {
        let mut spans = Vec::new();
        known.find(text, &mut spans);
        spans
            .into_iter()
            .rev()
            .fold(text.to_owned(), |mut text, span| {
                text.replace_range(span, "#");
                text
            })
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
