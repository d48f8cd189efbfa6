//! Wiki pages: their keys, their text format, and the wiki as seen by one attempt.
//!
//! A page consists of YAML between `---` lines and a Markdown body, with the fields that KTX writes; unknown fields are
//! preserved. This module must not know about tools or prompts.

use std::{collections::HashMap, io, sync::LazyLock};

use regex_lite::Regex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    slug,
    workspace::Workspace,
    yaml::{self, QuotingStyle},
};

/// Directory of the shared pages.
const SHARED_PAGES_DIR: &str = "wiki/global";
/// Longest summary in characters.
pub(crate) const MAX_SUMMARY_CHARS: usize = 200;
/// Longest key in characters.
pub(crate) const MAX_KEY_CHARS: usize = 120;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WikiPage {
    pub(crate) frontmatter: Frontmatter,
    pub(crate) body: String,
}

/// The frontmatter, with fields in KTX's order. A list that is `None` is not written; an empty list is written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Frontmatter {
    pub(crate) summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage_mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sort_order: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tags: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refs: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sl_refs: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) intent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tables: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) representative_sql: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fingerprints: Option<Vec<String>>,
    /// Unknown fields, in their order.
    #[serde(flatten)]
    pub(crate) other_fields: Map<String, Value>,
}

/// The text of a page cannot be parsed or rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PageError {
    #[error("it is not UTF-8 text")]
    NotText,
    #[error("its frontmatter is not closed by a line `---`")]
    UnclosedFrontmatter,
    #[error("its frontmatter is not valid: {0}")]
    InvalidFrontmatter(String),
    #[error("its text could not be read again ({0}); make its fields simpler")]
    Unreadable(String),
}

/// Whether `key` is a valid page key: letters, digits, `-` and `_`, no folders.
pub(crate) fn is_page_key(key: &str) -> bool {
    static PATTERN: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new("^[a-zA-Z0-9][a-zA-Z0-9_-]*$").ok());
    key.len() <= MAX_KEY_CHARS
        && PATTERN
            .as_ref()
            .is_some_and(|pattern| pattern.is_match(key))
}

/// Why no new page may have this key, as a clause; `None` if it may.
pub(crate) fn reserved_key_reason(key: &str) -> Option<&'static str> {
    const INSTRUCTION_FILES: [&str; 3] = ["claude", "agents", "gemini"];
    if slug::is_device_name(key) {
        return Some("some systems keep that name for a device; choose another key");
    }
    let is_read = INSTRUCTION_FILES
        .iter()
        .any(|name| name.eq_ignore_ascii_case(key));
    is_read.then_some("coding agents read a file of that name as instructions; choose another key")
}

/// Why the new page `key` must not be created, if the pages have the keys `known`, by their lower-case form.
pub(crate) fn conflict_with_keys(key: &str, known: &HashMap<String, String>) -> Option<String> {
    if let Some(why) = reserved_key_reason(key) {
        return Some(why.into());
    }
    let other = known.get(&key.to_ascii_lowercase())?;
    (other != key).then(|| {
        format!("it differs from the page `{other}` only in case; use that key, or choose another")
    })
}

/// Path of the page `key`, relative to the project.
pub(crate) fn page_path(key: &str) -> String {
    format!("{SHARED_PAGES_DIR}/{key}.md")
}

/// Key of the page at `path`; `None` if it is not the path of a page.
pub(crate) fn page_key(path: &str) -> Option<&str> {
    path.strip_prefix(SHARED_PAGES_DIR)?
        .strip_prefix('/')?
        .strip_suffix(".md")
}

impl WikiPage {
    /// Parses a page. Without frontmatter, the whole text is the body.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, PageError> {
        let text = std::str::from_utf8(bytes).map_err(|_| PageError::NotText)?;
        let text = text
            .strip_prefix('\u{feff}')
            .unwrap_or(text)
            .replace("\r\n", "\n");
        let Some(rest) = text.strip_prefix("---\n") else {
            return Ok(Self {
                frontmatter: Frontmatter::default(),
                body: text.trim().to_owned(),
            });
        };
        // A `---` directly after the opening line closes an empty frontmatter.
        let rest = format!("\n{rest}\n");
        let (front, body) = rest
            .split_once("\n---\n")
            .ok_or(PageError::UnclosedFrontmatter)?;
        let front = match front.trim() {
            "" => Frontmatter::default(),
            front => yaml::from_str(front)
                .map_err(|error| PageError::InvalidFrontmatter(error.to_string()))?,
        };
        Ok(Self {
            frontmatter: front,
            body: body.trim().to_owned(),
        })
    }

    /// Renders the page in the style of KTX.
    pub(crate) fn render(&self) -> Result<String, PageError> {
        let front = serde_json::to_value(&self.frontmatter)
            .map_err(|error| PageError::InvalidFrontmatter(error.to_string()))?;
        let text = |quoting| {
            format!(
                "---\n{}---\n\n{}\n",
                yaml::render(&front, quoting),
                self.body.trim()
            )
        };
        // KTX quotes too little for some YAML parsers, including the one used here.
        for quoting in [QuotingStyle::Yaml12, QuotingStyle::Yaml11] {
            let text = text(quoting);
            if Self::parse(text.as_bytes()).is_ok_and(|page| page.frontmatter == self.frontmatter) {
                return Ok(text);
            }
        }
        let text = text(QuotingStyle::All);
        match Self::parse(text.as_bytes()) {
            Ok(_) => Ok(text),
            Err(PageError::InvalidFrontmatter(why)) => Err(PageError::Unreadable(why)),
            Err(error) => Err(error),
        }
    }
}

/// The wiki as seen by one attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wiki<'a>(pub(crate) &'a Workspace);

impl Wiki<'_> {
    /// Keys of all pages, sorted.
    pub(crate) fn keys(self) -> io::Result<Vec<String>> {
        let names = self.0.names(SHARED_PAGES_DIR, ".md")?;
        Ok(names
            .iter()
            .filter_map(|name| name.strip_suffix(".md"))
            .filter(|key| is_page_key(key))
            .map(str::to_owned)
            .collect())
    }

    /// Why the new page `key` must not be created: it would not be a separate file on every system, or its key is
    /// reserved. `None` if it may.
    pub(crate) fn key_conflict(self, key: &str) -> io::Result<Option<String>> {
        Ok(conflict_with_keys(key, &self.keys_by_lower_case()?))
    }

    /// Keys of all pages by their lower-case form.
    pub(crate) fn keys_by_lower_case(self) -> io::Result<HashMap<String, String>> {
        let keys = self.keys()?.into_iter();
        Ok(keys.map(|key| (key.to_ascii_lowercase(), key)).collect())
    }

    /// The text of the page `key`. Records that the attempt has seen it.
    pub(crate) fn read_text(self, key: &str) -> io::Result<Option<Vec<u8>>> {
        self.0.read(&page_path(key))
    }

    /// All readable pages by key. Skips unreadable ones instead of failing.
    pub(crate) fn pages(self) -> io::Result<Vec<(String, WikiPage)>> {
        let read = |key: String| {
            let page = self.0.peek(&page_path(&key)).ok()??;
            Some((key, WikiPage::parse(&page).ok()?))
        };
        Ok(self.keys()?.into_iter().filter_map(read).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hand_written_pages_are_parsed() {
        let page = WikiPage::parse(
            "\u{feff}---\r\nsummary: 'ARR: how'\r\nowner: maya\r\ntags: [a]\r\n---\r\n# ARR\r\n\r\n---\r\nmore\r\n"
                .as_bytes(),
        )
        .unwrap();
        assert_eq!(page.frontmatter.summary, "ARR: how");
        assert_eq!(page.frontmatter.other_fields["owner"], "maya");
        assert_eq!(page.body, "# ARR\n\n---\nmore");
        assert_eq!(WikiPage::parse(b"just words\n").unwrap().body, "just words");
        assert_eq!(WikiPage::parse(b"---\n---\nbody").unwrap().body, "body");
        assert_eq!(WikiPage::parse(b""), Ok(WikiPage::default()));
    }

    #[test]
    fn broken_page_error_names_the_cause() {
        assert_eq!(
            WikiPage::parse(b"---\nsummary: x\n"),
            Err(PageError::UnclosedFrontmatter)
        );
        assert_eq!(WikiPage::parse(b"\xff"), Err(PageError::NotText));
        assert!(matches!(
            WikiPage::parse(b"---\nsummary: [x]\n---\n"),
            Err(PageError::InvalidFrontmatter(_))
        ));
    }

    #[test]
    fn page_is_rendered_like_ktx() {
        let front = Frontmatter {
            summary: "Annual recurring revenue: yes. ".repeat(6),
            tags: Some(vec!["revenue".into(), "no".into()]),
            refs: Some(Vec::new()),
            usage_mode: Some("auto".into()),
            sort_order: Some(0),
            representative_sql: Some("select 1\nfrom t\n".into()),
            ..Frontmatter::default()
        };
        let page = WikiPage {
            frontmatter: front,
            body: "# ARR\n\nText.".into(),
        };
        insta::assert_snapshot!(page.render().unwrap());
    }

    #[test]
    fn keys_are_flat() {
        for key in ["a", "A-b_9"] {
            assert!(is_page_key(key));
        }
        for key in [
            "",
            "-a",
            "a/b",
            "..",
            "a.b",
            "ä",
            "a b",
            &"a".repeat(121),
            "a\n",
        ] {
            assert!(!is_page_key(key), "{key:?}");
        }
        assert_eq!(page_key(&page_path("arr")), Some("arr"));
        assert_eq!(page_key("semantic-layer/x.yaml"), None);
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[ -~é\n]{0,12}".prop_map(Value::from)
        ];
        leaf.prop_recursive(2, 12, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z]{1,4}", inner, 0..4).prop_map(Value::from_iter),
            ]
        })
    }

    proptest! {
        #[test]
        fn frontmatter_survives_its_text(
            summary in any::<String>(),
            tags in prop::option::of(prop::collection::vec("[ -~\u{e0}-\u{ff}]{0,12}|true|no|null|~|1e3|0x1f|- a|#x|[|]|2026-01-01", 0..4)),
            source in prop::option::of("\\PC{0,20}"),
            sql in prop::option::of("[ -~\n\t]{0,40}"),
            usage in prop::option::of(prop::collection::btree_map("[a-z]{1,4}", json(), 0..3).prop_map(Value::from_iter)),
            body in "[ -~\n]{0,60}",
        ) {
            let front = Frontmatter { summary, tags, source, representative_sql: sql, usage, sort_order: Some(3), ..Frontmatter::default() };
            let page = WikiPage { frontmatter: front, body: body.trim().to_owned() };
            let text = page.render().unwrap();
            prop_assert_eq!(WikiPage::parse(text.as_bytes()).map_err(|error| format!("{error}\n{text}")), Ok(page));
        }

        #[test]
        fn no_bytes_are_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..200), front in "[ -~\n]{0,80}") {
            let _ = WikiPage::parse(&bytes);
            let _ = WikiPage::parse(format!("---\n{front}\n---\nx").as_bytes());
        }
    }
}
