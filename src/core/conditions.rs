//! Conditions as a person types them, such as `cost>0.5 cause:tool_failures file:models/**`: words, not what they are about.
//!
//! A table of fields decides which conditions there are; the caller compares values. Parsing is total: what is invalid is an
//! error with its word, and the other conditions remain, so that a list can follow while its filter is typed. A number or a
//! word ends with a space, a text at the next condition, and quotes enclose both.

use globset::{GlobBuilder, GlobMatcher};

use crate::{config::value::parse_duration, diagnostic::Diagnostic, text};

/// Maximum width of a word in an error, in columns.
const MAX_WORD_WIDTH: usize = 40;

/// A name that begins a condition.
#[derive(Clone, Copy, Debug)]
pub struct ConditionField {
    pub name: &'static str,
    pub kind: ConditionKind,
}

/// The values of a field.
#[derive(Clone, Copy, Debug)]
pub enum ConditionKind {
    /// A text that the value contains; `*` is any text.
    Text,
    /// A part of a path, or a pattern for the whole of it.
    Path,
    /// US dollars above or below a limit.
    Dollars,
    /// A duration above or below a limit.
    Duration,
    /// One of these words, or several between commas.
    Words(&'static [&'static str]),
    /// A word that a function accepts, with an example.
    Checked(fn(&str) -> bool, &'static str),
}

impl ConditionField {
    /// The condition as an example, for prompts and errors.
    fn example(&self) -> String {
        let name = self.name;
        match self.kind {
            ConditionKind::Text => format!("{name}:TEXT"),
            ConditionKind::Path => format!("{name}:models/**"),
            ConditionKind::Dollars => format!("{name}>0.50"),
            ConditionKind::Duration => format!("{name}>5m"),
            ConditionKind::Words(words) => format!("{name}:{}", words.first().unwrap_or(&"WORD")),
            ConditionKind::Checked(_, example) => format!("{name}:{example}"),
        }
    }

    fn parse(&self, comparison: LimitSign, value: &str) -> Result<ConditionTest, Option<String>> {
        match self.kind {
            ConditionKind::Text if comparison.is_plain() => {
                Ok(ConditionTest::Text(value.to_owned()))
            }
            ConditionKind::Path if comparison.is_plain() => PathPattern::parse(value)
                .map(ConditionTest::Path)
                .ok_or_else(|| Some("a path or a pattern such as models/**".to_owned())),
            ConditionKind::Dollars => value
                .trim_start_matches('$')
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite())
                .map(|number| ConditionTest::Number(comparison, number))
                .ok_or_else(|| Some("a number of dollars such as 0.50".to_owned())),
            ConditionKind::Duration => parse_duration(value)
                .map(|time| ConditionTest::Number(comparison, time.as_secs_f64()))
                .ok_or_else(|| Some("a duration such as 90s, 5m or 1h30m".to_owned())),
            ConditionKind::Words(allowed) if comparison.is_plain() => {
                let words: Vec<&str> = value.split(',').filter(|word| !word.is_empty()).collect();
                match words.iter().all(|word| allowed.contains(word)) && !words.is_empty() {
                    true => Ok(ConditionTest::Words(
                        words.into_iter().map(str::to_owned).collect(),
                    )),
                    false => Err(Some(allowed.join(", "))),
                }
            }
            ConditionKind::Checked(check, example) if comparison.is_plain() => match check(value) {
                true => Ok(ConditionTest::Text(value.to_owned())),
                false => Err(Some(format!("a value such as {example}"))),
            },
            _ => Err(None),
        }
    }
}

/// How a number is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitSign {
    /// Without a sign after the colon: at least the limit, for numbers.
    Plain,
    Above,
    AtLeast,
    Below,
    AtMost,
}

impl LimitSign {
    fn is_plain(self) -> bool {
        self == Self::Plain
    }

    /// The comparison at the beginning of `text`, and what follows it.
    fn strip(text: &str) -> (Self, &str) {
        let signs = [
            (">=", Self::AtLeast),
            ("<=", Self::AtMost),
            (">", Self::Above),
            ("<", Self::Below),
            ("=", Self::Plain),
        ];
        signs
            .into_iter()
            .find_map(|(sign, comparison)| Some((comparison, text.strip_prefix(sign)?)))
            .unwrap_or((Self::Plain, text))
    }

    fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Self::Plain | Self::AtLeast => value >= limit,
            Self::Above => value > limit,
            Self::Below => value < limit,
            Self::AtMost => value <= limit,
        }
    }
}

/// What a condition demands of the value of its field.
#[derive(Clone, Debug)]
pub enum ConditionTest {
    Text(String),
    Path(PathPattern),
    Number(LimitSign, f64),
    Words(Vec<String>),
}

impl ConditionTest {
    /// True if the number is within the limit. An unknown number is not within any.
    pub fn is_within(&self, number: Option<f64>) -> bool {
        match (self, number) {
            (Self::Number(comparison, limit), Some(number)) => comparison.holds(number, *limit),
            _ => false,
        }
    }

    /// True if the text is one that the condition accepts.
    pub fn accepts(&self, value: &str) -> bool {
        match self {
            Self::Text(pattern) => contains(value, pattern),
            Self::Path(pattern) => pattern.accepts(value),
            Self::Words(words) => words.iter().any(|word| word == value),
            Self::Number(..) => false,
        }
    }

    /// The text of a [`ConditionKind::Text`] or [`ConditionKind::Checked`].
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Path(_) | Self::Number(..) | Self::Words(_) => None,
        }
    }
}

/// A part of a path, or a glob for all of it or, without a slash, for its last name.
#[derive(Clone, Debug)]
pub enum PathPattern {
    Part(String),
    Glob { matcher: GlobMatcher, is_name: bool },
}

impl PathPattern {
    fn parse(text: &str) -> Option<Self> {
        if !text.contains(['*', '?', '[', '{']) {
            return Some(Self::Part(text.to_owned()));
        }
        let glob = GlobBuilder::new(text)
            .case_insensitive(!is_exact(text))
            .build()
            .ok()?;
        Some(Self::Glob {
            matcher: glob.compile_matcher(),
            is_name: !text.contains('/'),
        })
    }

    fn accepts(&self, path: &str) -> bool {
        match self {
            Self::Part(part) => contains(path, part),
            Self::Glob { matcher, is_name } => {
                let name = path.rsplit('/').next().filter(|_| *is_name);
                matcher.is_match(path) || name.is_some_and(|name| matcher.is_match(name))
            }
        }
    }
}

/// Smart case: capitals in a pattern make it exact.
fn is_exact(pattern: &str) -> bool {
    pattern.chars().any(char::is_uppercase)
}

/// True if the parts of `pattern` between `*` are in `text`, in this order.
pub fn contains(text: &str, pattern: &str) -> bool {
    let text = match is_exact(pattern) {
        true => text.to_owned(),
        false => text.to_lowercase(),
    };
    let mut rest = text.as_str();
    pattern.split('*').all(|part| {
        let found = rest.find(part).and_then(|at| rest.get(at + part.len()..));
        rest = found.unwrap_or_default();
        found.is_some()
    })
}

/// Conditions, all of which must hold.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// The text without a field, if there is one.
    pub plain: Option<String>,
    /// Conditions by the names of their fields.
    pub tests: Vec<(&'static str, ConditionTest)>,
}

/// Why a word is not a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// There is no field with that name.
    #[error("`{word}` is not a condition; expected {expected}")]
    UnknownField { word: String, expected: String },
    /// The value is not one of the field.
    #[error("`{word}` is not a condition; expected {expected}")]
    InvalidValue { word: String, expected: String },
    /// Nothing follows the name.
    #[error("`{word}` has no value")]
    NoValue { word: String, example: String },
}

impl Diagnostic for ConditionError {
    fn help(&self) -> Option<String> {
        match self {
            Self::UnknownField { word, .. } if word.contains([':', '<', '>', '=']) => {
                Some("put a text with such a sign in quotes".to_owned())
            }
            Self::NoValue { example, .. } => Some(format!("write, for example, {example}")),
            Self::UnknownField { .. } | Self::InvalidValue { .. } => None,
        }
    }
}

/// The conditions as examples.
pub fn list_examples(fields: &[ConditionField]) -> String {
    let examples: Vec<String> = fields.iter().map(ConditionField::example).collect();
    match examples.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

impl Conditions {
    /// The valid conditions of `text`, and the first error.
    pub fn parse(text: &str, fields: &[ConditionField]) -> (Self, Option<ConditionError>) {
        let mut parsed = Self::default();
        let mut error = None;
        let words = split_words(text);
        let mut rest = words.as_slice();
        while let Some((word, after)) = rest.split_first() {
            rest = after;
            let Some((name, value)) = word.as_condition() else {
                push_word(parsed.plain.get_or_insert_default(), &word.text);
                continue;
            };
            let Some(field) = fields.iter().find(|field| field.name == name) else {
                error.get_or_insert(ConditionError::UnknownField {
                    word: excerpt(&word.text),
                    expected: list_examples(fields),
                });
                continue;
            };
            let written = &word.text;
            let (mut comparison, mut value) = LimitSign::strip(value);
            // `cost: > 5` is `cost:>5`.
            if let Some((next, after)) = rest.split_first()
                && value.is_empty()
                && next.as_condition().is_none()
            {
                rest = after;
                value = &next.text;
                if comparison.is_plain() && !next.is_quoted {
                    (comparison, value) = LimitSign::strip(value);
                }
                if let Some((next, after)) = rest.split_first()
                    && value.is_empty()
                    && next.as_condition().is_none()
                {
                    (rest, value) = (after, &next.text);
                }
            }
            let mut value = value.to_owned();
            if matches!(field.kind, ConditionKind::Text | ConditionKind::Path) {
                while let Some((next, after)) = rest.split_first()
                    && !word.is_quoted
                    && next.as_condition().is_none()
                {
                    push_word(&mut value, &next.text);
                    rest = after;
                }
            }
            if value.is_empty() {
                error.get_or_insert(ConditionError::NoValue {
                    word: excerpt(written),
                    example: field.example(),
                });
                continue;
            }
            match field.parse(comparison, &value) {
                Ok(test) => parsed.tests.push((field.name, test)),
                Err(expected) => {
                    let word = match written.contains(&value) {
                        true => excerpt(written),
                        false => excerpt(&format!("{written} {value}")),
                    };
                    let expected = expected.unwrap_or_else(|| field.example());
                    error.get_or_insert(ConditionError::InvalidValue { word, expected });
                }
            }
        }
        (parsed, error)
    }
}

fn push_word(text: &mut String, word: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(word);
}

fn excerpt(word: &str) -> String {
    text::printable(word, MAX_WORD_WIDTH).into_owned()
}

/// A word of the typed text.
struct TypedWord {
    text: String,
    /// True if a part of it is in quotes.
    is_quoted: bool,
    /// Number of bytes before the first quote: only they can be the name of a field.
    name_end: usize,
}

impl TypedWord {
    /// The name of a field and what follows it, with the sign of a comparison.
    fn as_condition(&self) -> Option<(&str, &str)> {
        let sign = self.text.find([':', '<', '>', '='])?;
        let (name, rest) = self.text.split_at_checked(sign)?;
        let is_name = sign < self.name_end
            && !name.is_empty()
            && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        // A URL or a path is a text.
        (is_name && !rest.starts_with("://"))
            .then(|| (name, rest.strip_prefix(':').unwrap_or(rest)))
    }
}

/// The words of `text`. A quote that is not closed ends with the text.
fn split_words(text: &str) -> Vec<TypedWord> {
    let mut words = Vec::new();
    let mut word: Option<TypedWord> = None;
    let mut is_inside = false;
    for c in text.chars() {
        if c.is_whitespace() && !is_inside {
            words.extend(word.take());
            continue;
        }
        let word = word.get_or_insert_with(|| TypedWord {
            text: String::new(),
            is_quoted: false,
            name_end: usize::MAX,
        });
        if c == '"' {
            is_inside = !is_inside;
            word.is_quoted = true;
            word.name_end = word.name_end.min(word.text.len());
        } else {
            word.text.push(c);
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIELDS: [ConditionField; 6] = [
        ConditionField {
            name: "file",
            kind: ConditionKind::Path,
        },
        ConditionField {
            name: "cause",
            kind: ConditionKind::Text,
        },
        ConditionField {
            name: "state",
            kind: ConditionKind::Words(&["failed", "held"]),
        },
        ConditionField {
            name: "cost",
            kind: ConditionKind::Dollars,
        },
        ConditionField {
            name: "duration",
            kind: ConditionKind::Duration,
        },
        ConditionField {
            name: "since",
            kind: ConditionKind::Checked(|text| text.ends_with('d'), "7d"),
        },
    ];

    /// The conditions as text, and the error.
    fn parsed(text: &str) -> (String, Option<String>) {
        let (conditions, error) = Conditions::parse(text, &FIELDS);
        let tests = conditions.tests.iter().map(|(name, test)| {
            let test = match test {
                ConditionTest::Text(text) | ConditionTest::Path(PathPattern::Part(text)) => {
                    format!("\"{text}\"")
                }
                ConditionTest::Path(PathPattern::Glob { matcher, .. }) => {
                    format!("glob {}", matcher.glob())
                }
                ConditionTest::Number(comparison, limit) => format!("{comparison:?} {limit}"),
                ConditionTest::Words(words) => words.join("|"),
            };
            format!("{name} {test}")
        });
        let plain = conditions.plain.map(|plain| format!("\"{plain}\""));
        let all: Vec<String> = plain.into_iter().chain(tests).collect();
        (all.join("; "), error.map(|error| error.to_line()))
    }

    #[test]
    fn conditions_are_combined() {
        for (text, expected) in [
            ("", ""),
            ("stg orders", "\"stg orders\""),
            (
                "cost>0.5 cause:tool_failures file:models/** duration>10m state:failed",
                "cost Above 0.5; cause \"tool_failures\"; file glob models/**; duration Above 600; state failed",
            ),
            (
                "cause:not a field cost>=1",
                "cause \"not a field\"; cost AtLeast 1",
            ),
            ("cause:\"a b\" orders", "\"orders\"; cause \"a b\""),
            ("cost: > $5 orders", "\"orders\"; cost Above 5"),
            ("cost:5", "cost Plain 5"),
            ("cost <=5 x", "\"cost <=5 x\""),
            ("\"cost>5\" \"odd:name\"", "\"cost>5 odd:name\""),
            ("file: wiki/", "file \"wiki/\""),
            (
                "state:failed,held since:7d",
                "state failed|held; since \"7d\"",
            ),
            ("https://a/b Orbit:Orders", "\"https://a/b Orbit:Orders\""),
            ("cause:name \"cost>5", "cause \"name cost>5\""),
        ] {
            assert_eq!(parsed(text), (expected.to_owned(), None), "{text}");
        }
    }

    #[test]
    fn errors_name_the_word_and_what_is_allowed() {
        let all =
            "expected file:models/**, cause:TEXT, state:failed, cost>0.50, duration>5m or since:7d";
        for (text, rest, error) in [
            (
                "orders prise>5 cost>1",
                "\"orders\"; cost Above 1",
                format!("`prise>5` is not a condition; {all}; put a text with such a sign in quotes"),
            ),
            (
                "state:broken",
                "",
                "`state:broken` is not a condition; expected failed, held".to_owned(),
            ),
            (
                "cost>much orders",
                "\"orders\"",
                "`cost>much` is not a condition; expected a number of dollars such as 0.50".to_owned(),
            ),
            (
                "duration: > soon",
                "",
                "`duration: soon` is not a condition; expected a duration such as 90s, 5m or 1h30m"
                    .to_owned(),
            ),
            (
                "cost> state:held",
                "state held",
                "`cost>` has no value; write, for example, cost>0.50".to_owned(),
            ),
            (
                "file:models/[",
                "",
                "`file:models/[` is not a condition; expected a path or a pattern such as models/**"
                    .to_owned(),
            ),
            (
                "state>held",
                "",
                "`state>held` is not a condition; expected state:failed".to_owned(),
            ),
            (
                "since:never",
                "",
                "`since:never` is not a condition; expected a value such as 7d".to_owned(),
            ),
        ] {
            assert_eq!(parsed(text), (rest.to_owned(), Some(error)), "{text}");
        }
    }

    #[test]
    fn paths_match_a_part_or_a_pattern() {
        for (pattern, expected) in [
            ("global/ord", true),
            ("wiki/**", true),
            ("wiki/*.md", true),
            ("global/**", false),
            ("**/global/*", true),
            ("orders.*", true),
            ("*.MD", false),
            ("*.yaml", false),
            ("{wiki,raw}/**", true),
        ] {
            let pattern = PathPattern::parse(pattern).unwrap();
            assert_eq!(
                pattern.accepts("wiki/global/orders.md"),
                expected,
                "{pattern:?}"
            );
        }
    }

    #[test]
    fn stars_of_a_text_match_any_text() {
        for (pattern, expected) in [
            ("*.md", true),
            ("w*ORD*", false),
            ("w*ord*", true),
            ("*", true),
        ] {
            assert_eq!(
                contains("wiki/global/orders.md", pattern),
                expected,
                "{pattern}"
            );
        }
        assert!(
            !contains("wiki/global/orders.md", "orders*wiki"),
            "the order counts"
        );
    }

    proptest! {
        #[test]
        fn any_text_is_parsed(text in "(cost|state|cause|file|:|>|<|=|\"| |[a-z*\\[]|\\PC){0,30}") {
            let _ = Conditions::parse(&text, &FIELDS);
        }

        #[test]
        fn an_invalid_word_leaves_the_others(
            before in prop::collection::vec(0..4_usize, 0..4), after in prop::collection::vec(0..4_usize, 0..4),
        ) {
            const WORDS: [&str; 4] = ["cost>1", "state:held", "duration<5m", "file:wiki/*"];
            let words = |picked: &[usize]| picked.iter().map(|word| WORDS[*word]).collect::<Vec<_>>().join(" ");
            let text = format!("{} luck:7 {}", words(&before), words(&after));
            let (conditions, error) = Conditions::parse(&text, &FIELDS);
            prop_assert_eq!(conditions.tests.len(), before.len() + after.len());
            let is_named = matches!(error, Some(ConditionError::UnknownField { word, .. }) if word == "luck:7");
            prop_assert!(is_named);
        }

        #[test]
        fn quoted_text_is_one_text(text in "[^\"]{0,20}") {
            let (conditions, error) = Conditions::parse(&format!("\"{text}\""), &FIELDS);
            prop_assert_eq!(error, None);
            prop_assert_eq!(conditions.plain.as_deref(), Some(text.as_str()));
        }
    }
}
