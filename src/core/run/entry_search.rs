//! Search for a text in the content of entries: the text in its forms, and the entries that are searched in one go.
//!
//! Pure: an [`EntrySource`](super::EntrySource) reads the entries. The caller decides the order in
//! which matches are visited.

use std::fmt::Write as _;

use regex::bytes::{Regex, RegexBuilder};

use crate::tape::Seq;

/// A text to search for, as typed and as JSON may escape it.
#[derive(Clone, Debug)]
pub struct TextMatcher {
    regex: Regex,
    longest_form: usize,
}

impl TextMatcher {
    /// Smart case: the search ignores the case of ASCII letters unless `text` contains capitals.
    ///
    /// # Errors
    /// If the text is too long.
    pub fn new(text: &str) -> Result<Self, regex::Error> {
        let escaped = serde_json::to_string(text).unwrap_or_default();
        let escaped = escaped.get(1..escaped.len() - 1).unwrap_or_default();
        let is_case_sensitive = text.chars().any(char::is_uppercase);
        let mut forms = vec![
            text.to_owned(),
            escaped.to_owned(),
            escape_non_ascii(escaped, |unit| format!("{unit:04x}")),
        ];
        if is_case_sensitive {
            forms.push(escape_non_ascii(escaped, |unit| format!("{unit:04X}")));
        }
        forms.sort();
        forms.dedup();
        let longest_form = forms.iter().map(String::len).max().unwrap_or_default();
        let patterns: Vec<String> = forms.iter().map(|form| regex::escape(form)).collect();
        let regex = RegexBuilder::new(&patterns.join("|"))
            .unicode(false)
            .case_insensitive(!is_case_sensitive)
            .build()?;
        Ok(Self {
            regex,
            longest_form,
        })
    }

    pub fn is_in(&self, content: &[u8]) -> bool {
        self.regex.is_match(content)
    }

    /// Start of the first occurrence at or after `from`.
    pub fn find_from(&self, bytes: &[u8], from: usize) -> Option<usize> {
        Some(self.regex.find_at(bytes, from)?.start())
    }

    /// Length of the longest occurrence in bytes.
    pub fn longest_form(&self) -> usize {
        self.longest_form
    }
}

/// The form of writers that escape all non-ASCII characters.
fn escape_non_ascii(escaped: &str, hex: impl Fn(u16) -> String) -> String {
    let mut text = String::with_capacity(escaped.len());
    for char in escaped.chars() {
        if char.is_ascii() {
            text.push(char);
        } else {
            for unit in char.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(text, "\\u{}", hex(*unit));
            }
        }
    }
    text
}

/// Entries that are searched, and those of them that match. A search may stop at any entry and continue later.
#[derive(Clone, Debug, Default)]
pub struct EntryBatch {
    /// Ascending and without duplicates.
    entries: Vec<Seq>,
    /// Number of entries that were searched.
    searched: usize,
    /// Number of bytes that were searched of the next entry.
    skip: u64,
    matches: Vec<Seq>,
}

impl EntryBatch {
    pub fn new(mut entries: Vec<Seq>) -> Self {
        entries.sort_unstable();
        entries.dedup();
        Self {
            entries,
            ..Self::default()
        }
    }

    /// The entries that are not completely searched.
    pub fn remaining(&self) -> &[Seq] {
        &self.entries[self.searched..]
    }

    pub fn is_complete(&self) -> bool {
        self.remaining().is_empty()
    }

    /// Records the result for the next entry.
    pub fn record(&mut self, is_match: bool) {
        if let Some(seq) = self.entries.get(self.searched) {
            self.searched += 1;
            self.skip = 0;
            if is_match {
                self.matches.push(*seq);
            }
        }
    }

    /// Number of bytes of the next entry that need not be searched again.
    pub fn skip(&self) -> u64 {
        self.skip
    }

    /// Records that the text does not begin in the first `skip` bytes of the next entry.
    pub fn set_skip(&mut self, skip: u64) {
        self.skip = skip;
    }

    /// True if `seq` was searched and matches.
    pub fn is_match(&self, seq: Seq) -> bool {
        self.matches.binary_search(&seq).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_in(query: &str, content: &str) -> bool {
        TextMatcher::new(query).unwrap().is_in(content.as_bytes())
    }

    #[test]
    fn capitals_make_the_search_case_sensitive() {
        assert!(is_in("arr", r#"{"x":"Mart_ARR"}"#));
        assert!(!is_in("Arr", r#"{"x":"Mart_ARR"}"#));
        assert!(is_in("ARR", r#"{"x":"Mart_ARR"}"#));
        assert!(!is_in("long text", "short"));
    }

    #[test]
    fn text_is_found_as_typed_and_as_json_escapes_it() {
        for content in [r#"print "hi""#, r#"{"x":"print \"hi\""}"#] {
            assert!(is_in("print \"hi\"", content), "{content}");
        }
        for content in ["a café", r"a caf\u00e9", r"a caf\u00E9"] {
            assert!(
                is_in("café", content) && is_in("café", content),
                "{content}"
            );
            assert!(!is_in("cafés", content), "{content}");
        }
        assert!(
            is_in("Zoë", r"Zo\u00EB") && is_in("Zoë", r"Zo\u00eb") && !is_in("Zoë", r"zo\u00eb")
        );
        assert!(is_in("🦊", r"\ud83e\udd8a") && is_in("漢", "漢"));
        assert!(is_in("a.c|(", "xa.c|(x") && !is_in("a.c|(", "abc|("));
    }

    #[test]
    fn batch_continues_where_it_stopped() {
        let mut batch = EntryBatch::new(vec![Seq(7), Seq(2), Seq(7), Seq(4)]);
        assert_eq!(batch.remaining(), [Seq(2), Seq(4), Seq(7)]);
        batch.record(true);
        batch.set_skip(100);
        assert_eq!(
            (batch.remaining(), batch.skip()),
            (&[Seq(4), Seq(7)][..], 100)
        );
        batch.record(false);
        assert_eq!(batch.skip(), 0);
        batch.record(true);
        assert!(batch.is_complete());
        assert_eq!(
            [2, 4, 7, 9].map(|seq| batch.is_match(Seq(seq))),
            [true, false, true, false]
        );
    }
}
