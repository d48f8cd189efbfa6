//! A text as it stands in its line: most are passed on or counted, and unescaped only if somebody reads them.

use std::borrow::Cow;

use super::{
    bits::{BLOCK, Bits},
    text,
};

/// A text of the model or the user.
#[derive(Clone, Debug, Default)]
pub struct Prose<'a> {
    /// What stands between the quotes.
    inside: Cow<'a, str>,
    /// There may be escapes in it.
    is_escaped: bool,
}

impl<'a> Prose<'a> {
    pub(super) fn new(inside: Cow<'a, str>, is_escaped: bool) -> Self {
        Self { inside, is_escaped }
    }

    /// The text.
    pub fn read(&self) -> Cow<'_, str> {
        let inside = Cow::Borrowed(&*self.inside);
        if self.is_escaped { text::unescape(inside) } else { inside }
    }

    /// The beginning of the text, made of its first `most` bytes as they stand in the line, and whether that is all.
    pub(crate) fn start(&self, most: usize) -> (Cow<'_, str>, bool) {
        if self.inside.len() <= most {
            return (self.read(), true);
        }
        let start = &self.inside[..text::whole_escapes(&self.inside, most)];
        (if self.is_escaped { text::unescape(Cow::Borrowed(start)) } else { Cow::Borrowed(start) }, false)
    }

    /// True if there is nothing.
    pub fn is_empty(&self) -> bool {
        self.inside.is_empty()
    }

    /// True if there is nothing but white space.
    pub fn is_blank(&self) -> bool {
        let rest = self.inside.trim_start();
        rest.is_empty() || self.is_escaped && rest.starts_with('\\') && self.read().trim_start().is_empty()
    }

    /// What stands between the quotes, if that is how it would be written again.
    pub(crate) fn as_written(&self) -> Option<&str> {
        let bytes = self.inside.as_bytes();
        let mut carry = false;
        let is_usual = |block: usize| {
            let bits = Bits::at(bytes, block);
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
        (usual && !carry).then_some(&self.inside)
    }

    /// The same, for as long as this lives.
    pub fn borrowed(&self) -> Prose<'_> {
        Prose { inside: Cow::Borrowed(&self.inside), is_escaped: self.is_escaped }
    }
}

impl Prose<'static> {
    /// Becomes `other`, in the memory that it has.
    pub(crate) fn keep(&mut self, other: &Prose<'_>) {
        let mut inside = std::mem::take(&mut self.inside).into_owned();
        inside.clear();
        inside.push_str(&other.inside);
        *self = Self { inside: Cow::Owned(inside), is_escaped: other.is_escaped };
    }
}

impl<'a> From<&'a str> for Prose<'a> {
    fn from(text: &'a str) -> Self {
        Self::new(Cow::Borrowed(text), false)
    }
}

impl From<String> for Prose<'_> {
    fn from(text: String) -> Self {
        Self::new(Cow::Owned(text), false)
    }
}

/// Two are the same if they read the same.
impl PartialEq for Prose<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.read() == other.read()
    }
}

impl PartialEq<str> for Prose<'_> {
    fn eq(&self, other: &str) -> bool {
        self.read() == other
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decode::{Block, Body, line};

    /// The text of a message whose text stands as `inside` in its line.
    fn prose<T>(inside: &str, look: impl FnOnce(&Prose<'_>) -> T) -> T {
        let json = format!(r#"{{"type":"assistant","message":{{"content":[{{"type":"text","text":"{inside}"}}]}}}}"#);
        let line = line(json.as_bytes());
        let Body::Assistant(chat) = &line.body else { panic!("{json}") };
        let [Block::Text(prose)] = chat.blocks.as_slice() else { panic!("{json}") };
        look(prose)
    }

    #[test]
    fn only_what_would_be_written_alike_is_passed_on() {
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
            prose(inside, |prose| assert_eq!(prose.as_written().is_some(), usual, "{inside}"));
        }
    }

    #[test]
    fn white_space_is_blank_however_it_is_written() {
        for (inside, blank) in [
            ("", true),
            (" ", true),
            (r" \n\t", true),
            (r"\u0020\n", true),
            (r"\nx", false),
            (r" \\n", false),
            ("x", false),
        ] {
            prose(inside, |prose| assert_eq!(prose.is_blank(), blank, "{inside:?}"));
        }
    }

    proptest! {
        #[test]
        fn what_is_passed_on_and_what_is_begun_says_what_the_text_says(
            text in r#"([a-z "\\\n\r\téあ😀\u{1}]|[a-z]{30}){0,80}"#,
            most in 0_usize..200,
        ) {
            let json = serde_json::to_string(&text).unwrap();
            let inside = &json[1..json.len() - 1];
            prose(inside, |prose| {
                prop_assert_eq!(prose, text.as_str());
                prop_assert_eq!(prose.is_blank(), text.trim().is_empty());
                if let Some(written) = prose.as_written() {
                    prop_assert_eq!(written, inside);
                }
                let (start, whole) = prose.start(most);
                prop_assert!(text.starts_with(&*start), "{start:?} of {text:?}");
                prop_assert!(!whole || start == text);
                prop_assert!(whole || start.len() + 12 >= most.min(text.len()) / 6);
                let mut kept = Prose::from(String::from("before"));
                kept.keep(prose);
                prop_assert_eq!(&kept, prose);
                Ok(())
            })?;
        }

        #[test]
        fn a_start_ends_between_escapes(
            pieces in prop::collection::vec(prop::sample::select(vec![r"\n", r"\\", r"\u00e9", r"\ud83d\ude00", r"\ud800", r"\q", "é", "x"]), 0..40),
            most in 0_usize..120,
        ) {
            let inside = pieces.concat();
            prose(&inside, |prose| {
                let (start, _) = prose.start(most);
                let text = prose.read();
                prop_assert!(text.starts_with(&*start), "{start:?} of {text:?}");
                Ok(())
            })?;
        }
    }
}
