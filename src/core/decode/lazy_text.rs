//! Text in the escaped form of its line. Most texts are passed on or counted, so they are unescaped only on demand.

use std::borrow::Cow;

use super::{
    byte_masks::{BLOCK, ByteMasks},
    text,
};

/// A text of the model or the user.
#[derive(Clone, Debug, Default)]
pub struct LazyText<'a> {
    /// The bytes between the quotes.
    escaped: Cow<'a, str>,
    /// True if it may contain escapes.
    is_escaped: bool,
}

impl<'a> LazyText<'a> {
    pub(super) fn new(inside: Cow<'a, str>, is_escaped: bool) -> Self {
        Self {
            escaped: inside,
            is_escaped,
        }
    }

    /// Returns the unescaped text.
    pub fn text(&self) -> Cow<'_, str> {
        let inside = Cow::Borrowed(&*self.escaped);
        if self.is_escaped {
            text::unescape(inside)
        } else {
            inside
        }
    }

    /// Returns the beginning of the text, from its first `most` escaped bytes, and whether this is the whole text.
    pub fn prefix(&self, most: usize) -> (Cow<'_, str>, bool) {
        if self.escaped.len() <= most {
            return (self.text(), true);
        }
        let start = &self.escaped[..text::escape_boundary(&self.escaped, most)];
        (
            if self.is_escaped {
                text::unescape(Cow::Borrowed(start))
            } else {
                Cow::Borrowed(start)
            },
            false,
        )
    }

    pub fn is_empty(&self) -> bool {
        self.escaped.is_empty()
    }

    /// True if the text is empty or only white space.
    pub fn is_blank(&self) -> bool {
        let rest = self.escaped.trim_start();
        rest.is_empty()
            || self.is_escaped && rest.starts_with('\\') && self.text().trim_start().is_empty()
    }

    /// Returns the escaped text, if a JSON writer would produce exactly this form.
    pub(crate) fn canonical_escaped(&self) -> Option<&str> {
        let bytes = self.escaped.as_bytes();
        let mut carry = false;
        let is_usual = |block: usize| {
            let bits = ByteMasks::from_bytes_at(bytes, block);
            let mut rare = bits.escaped(&mut carry) & !bits.common_escapes();
            while rare != 0 {
                let letter = bytes.get(block + rare.trailing_zeros() as usize);
                if !matches!(letter, Some(b'r' | b't' | b'b' | b'f')) {
                    return false;
                }
                rare &= rare - 1;
            }
            bits.controls == 0
        };
        let usual = self.is_escaped && (0..bytes.len()).step_by(BLOCK).all(is_usual);
        (usual && !carry).then_some(&self.escaped)
    }

    /// Returns a copy that borrows from this text.
    pub fn borrowed(&self) -> LazyText<'_> {
        LazyText {
            escaped: Cow::Borrowed(&self.escaped),
            is_escaped: self.is_escaped,
        }
    }
}

impl LazyText<'static> {
    /// Replaces the text by `other` and reuses the allocation.
    pub(crate) fn assign(&mut self, other: &LazyText<'_>) {
        let mut inside = std::mem::take(&mut self.escaped).into_owned();
        inside.clear();
        inside.push_str(&other.escaped);
        *self = Self {
            escaped: Cow::Owned(inside),
            is_escaped: other.is_escaped,
        };
    }
}

impl<'a> From<&'a str> for LazyText<'a> {
    fn from(text: &'a str) -> Self {
        Self::new(Cow::Borrowed(text), false)
    }
}

impl From<String> for LazyText<'_> {
    fn from(text: String) -> Self {
        Self::new(Cow::Owned(text), false)
    }
}

/// Compares the unescaped texts.
impl PartialEq for LazyText<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl PartialEq<str> for LazyText<'_> {
    fn eq(&self, other: &str) -> bool {
        self.text() == other
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decode::{LineBody, MessageBlock, decode_line};

    /// Calls `look` with the text of a message whose escaped form is `inside`.
    fn prose<T>(inside: &str, look: impl FnOnce(&LazyText<'_>) -> T) -> T {
        let json = format!(
            r#"{{"type":"assistant","message":{{"content":[{{"type":"text","text":"{inside}"}}]}}}}"#
        );
        let line = decode_line(json.as_bytes());
        let LineBody::Assistant(chat) = &line.body else {
            panic!("{json}")
        };
        let [MessageBlock::Text(prose)] = &*chat.blocks else {
            panic!("{json}")
        };
        look(prose)
    }

    #[test]
    fn only_canonical_escapes_are_passed_on() {
        for (inside, usual) in [
            (r"a\nb", true),
            (r#"\"\\\n\r\t\b\f"#, true),
            (r"\/", false),
            (r"\u0041", false),
            (r"\ud800", false),
            (r"\q", false),
            ("tab\tand\\n", false),
            ("plain", false),
        ] {
            prose(inside, |prose| {
                assert_eq!(prose.canonical_escaped().is_some(), usual, "{inside}")
            });
        }
    }

    #[test]
    fn escaped_white_space_is_blank() {
        for (inside, blank) in [
            ("", true),
            (" ", true),
            (r" \n\t", true),
            (r"\u0020\n", true),
            (r"\nx", false),
            (r" \\n", false),
            ("x", false),
        ] {
            prose(inside, |prose| {
                assert_eq!(prose.is_blank(), blank, "{inside:?}")
            });
        }
    }

    proptest! {
        #[test]
        fn passed_text_and_prefix_equal_the_decoded_text(
            text in r#"([a-z "\\\n\r\téあ😀\u{1}]|[a-z]{30}){0,80}"#,
            most in 0_usize..200,
        ) {
            let json = serde_json::to_string(&text).unwrap();
            let inside = &json[1..json.len() - 1];
            prose(inside, |prose| {
                prop_assert_eq!(prose, text.as_str());
                prop_assert_eq!(prose.is_blank(), text.trim().is_empty());
                if let Some(written) = prose.canonical_escaped() {
                    prop_assert_eq!(written, inside);
                }
                let (start, whole) = prose.prefix(most);
                prop_assert!(text.starts_with(&*start), "{start:?} of {text:?}");
                prop_assert!(!whole || start == text);
                prop_assert!(whole || start.len() + 12 >= most.min(text.len()) / 6);
                let mut kept = LazyText::from(String::from("before"));
                kept.assign(prose);
                prop_assert_eq!(&kept, prose);
                Ok(())
            })?;
        }

        #[test]
        fn prefix_ends_between_escapes(
            pieces in prop::collection::vec(prop::sample::select(vec![r"\n", r"\\", r"\u00e9", r"\ud83d\ude00", r"\ud800", r"\q", "é", "x"]), 0..40),
            most in 0_usize..120,
        ) {
            let inside = pieces.concat();
            prose(&inside, |prose| {
                let (start, _) = prose.prefix(most);
                let text = prose.text();
                prop_assert!(text.starts_with(&*start), "{start:?} of {text:?}");
                Ok(())
            })?;
        }
    }
}
