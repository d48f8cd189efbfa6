//! Secrets in what leaves the project: found by their shape or by the name that stands before them, and masked. Pure.
//!
//! Works on text and keeps JSON valid: only the characters of a secret are replaced, and a secret holds none that JSON
//! would miss.

use std::{borrow::Cow, sync::LazyLock};

use regex_lite::{Captures, Regex};

/// What stands in the place of a secret.
const MASK: &str = "[masked]";

/// Tokens that tell themselves by their shape.
const SHAPES: &[&str] = &[
    r"\bsk-[A-Za-z0-9_-]{16,}",
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}",
    r"\bgh[pousr]_[A-Za-z0-9]{30,}",
    r"\bgithub_pat_[A-Za-z0-9_]{30,}",
    r"\bglpat-[A-Za-z0-9_-]{18,}",
    r"\bxox[abposr]-[A-Za-z0-9-]{10,}",
    r"\bAIza[0-9A-Za-z_-]{35}",
    r"\b(?:secret|ntn)_[A-Za-z0-9]{30,}",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[A-Za-z0-9+/=\\rn\s]*(?:-----END [A-Z ]*PRIVATE KEY-----)?",
];

/// What follows `Bearer` or `Basic`, the password in an address, and the value of a name that says what it is. The
/// groups are what stays, and the secret.
const NAMED: &[&str] = &[
    r"(?i)(\b(?:Bearer|Basic)\s+)([A-Za-z0-9._~+/=-]{12,})",
    r#"([a-zA-Z][a-zA-Z0-9+.-]*://[^\s/@:"'\\]*:)([^\s/@"'\\]+)@"#,
    r#"(?i)((?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|client[_-]?secret|credentials?)\\*["']?\s*[:=]\s*\\*["']?)([^\s"'\\,;&<>(){}\[\]]{6,})"#,
];

static SHAPED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(&SHAPES.join("|")).ok());
static AFTER_A_NAME: LazyLock<Vec<Regex>> =
    LazyLock::new(|| NAMED.iter().filter_map(|pattern| Regex::new(pattern).ok()).collect());

/// Masks secrets, and counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Redactor {
    /// How many were masked.
    pub(super) masked: usize,
}

impl Redactor {
    /// `text` without its secrets.
    pub(super) fn text<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        let mut masked = 0;
        let shaped = SHAPED.as_ref().map_or(Cow::Borrowed(text), |shaped| {
            shaped.replace_all(text, |_: &Captures<'_>| {
                masked += 1;
                MASK
            })
        });
        let mut text = shaped;
        for pattern in AFTER_A_NAME.iter() {
            let found = pattern.replace_all(&text, |found: &Captures<'_>| {
                let (whole, before, secret) = (&found[0], &found[1], &found[2]);
                if is_no_secret(secret) {
                    return whole.to_owned();
                }
                masked += 1;
                let after = &whole[before.len() + secret.len()..];
                format!("{before}{MASK}{after}")
            });
            if let Cow::Owned(found) = found {
                text = Cow::Owned(found);
            }
        }
        self.masked += masked;
        text
    }
}

/// Numbers and words of JSON are values of names like `token` too; where a secret comes from is none.
fn is_no_secret(value: &str) -> bool {
    // The ids of calls are tokens to the protocol, and its variables are named, not told.
    let known = ["[masked", "toolu_", "env:", "file:", "$"];
    known.iter().any(|start| value.starts_with(start))
        || value.parse::<f64>().is_ok()
        || matches!(value, "false" | "string" | "required" | "undefined")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn redacted(text: &str) -> (String, usize) {
        let mut redactor = Redactor::default();
        let text = redactor.text(text).into_owned();
        (text, redactor.masked)
    }

    #[test]
    fn secrets_are_masked_and_counted() {
        let key = format!("sk-ant-{}", "a1B2".repeat(8));
        for (text, expected) in [
            (format!("the key {key} was"), "the key [masked] was"),
            ("password: hunter22".into(), "password: [masked]"),
            ("DB_PASSWORD=hunter22 next".into(), "DB_PASSWORD=[masked] next"),
            (r#"{\"api_key\": \"abcdef123\", \"x\": 1}"#.into(), r#"{\"api_key\": \"[masked]\", \"x\": 1}"#),
            (r#"{"accessToken":"abcdef123"}"#.into(), r#"{"accessToken":"[masked]"}"#),
            ("postgres://ada:s3cret@db:5432/x".into(), "postgres://ada:[masked]@db:5432/x"),
            ("Authorization: Bearer abcdefghijklmnop".into(), "Authorization: Bearer [masked]"),
            (format!("AKIA{} x", "ABCD".repeat(4)), "[masked] x"),
        ] {
            assert_eq!(redacted(&text), (expected.to_owned(), 1), "{text}");
        }
    }

    #[test]
    fn words_about_secrets_are_none() {
        for text in [
            r#"{"input_tokens":123456,"cache_read_input_tokens":7890123}"#,
            r#"{"token":1234567,"secret":null,"password":false}"#,
            "auth_token_ref: env:NOTION_TOKEN",
            r#"{"progressToken":"toolu_059d3db6ff6e4870b731db19b353bb6a"}"#,
            "password=${DB_PASSWORD}",
            "a token is a word; the secret of coffee is freshness",
            "https://example.com/a/b:c",
            "task-list and risk-management-of-larger-things",
        ] {
            assert_eq!(redacted(text), (text.to_owned(), 0));
        }
    }

    proptest! {
        #[test]
        fn json_stays_json(
            name in "password|api_key|note|token",
            value in "\\PC{0,20}|[a-z\"\\\\\n=:;]{0,30}|sk-[a-zA-Z0-9]{20}",
            nested in any::<bool>(),
        ) {
            let object = json!({ (name): value });
            let object = if nested { json!({"text": object.to_string()}) } else { object };
            let (text, _) = redacted(&object.to_string());
            prop_assert!(serde_json::from_str::<Value>(&text).is_ok(), "{}", text);
            prop_assert_eq!(redacted(&text).0, text, "twice is once");
        }
    }
}
