//! What is looked for: texts and filters, from the command line or from one typed line.

use std::str::FromStr;

use super::super::args::{FindArgs, PeriodArgs};

/// The texts and filters of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FindTerms {
    /// An entry must contain all of them. A `*` at the end of the last one makes it the beginning of words.
    pub texts: Vec<String>,
    pub run: Option<String>,
    pub unit: Option<String>,
    pub tool: Option<String>,
    pub only_failed: bool,
    pub without_sessions: bool,
    pub since: Option<String>,
    pub until: Option<String>,
}

impl From<&FindArgs> for FindTerms {
    fn from(args: &FindArgs) -> Self {
        Self {
            texts: args.text.clone(),
            run: args.run.clone(),
            unit: args.unit.clone(),
            tool: args.tool.clone(),
            only_failed: args.failed,
            without_sessions: args.no_sessions,
            since: args.period.since.clone(),
            until: args.period.until.clone(),
        }
    }
}

/// A typed line has the options of the command as words: `tool:X` for `--tool X`, and `failed` for `--failed`. What is between
/// quotes is one text.
impl FromStr for FindTerms {
    type Err = std::convert::Infallible;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let mut terms = Self::default();
        let mut rest = line.trim_start();
        while !rest.is_empty() {
            if let Some(quoted) = rest.strip_prefix('"') {
                // While a line is typed, its last quote is missing.
                let (text, after) = quoted.split_once('"').unwrap_or((quoted, ""));
                if !text.trim().is_empty() {
                    terms.texts.push(text.to_owned());
                }
                rest = after.trim_start();
                continue;
            }
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            rest = after.trim_start();
            let filter = match word.split_once(':') {
                Some(("run", value)) => Some((&mut terms.run, value)),
                Some(("unit", value)) => Some((&mut terms.unit, value)),
                Some(("tool", value)) => Some((&mut terms.tool, value)),
                Some(("since", value)) => Some((&mut terms.since, value)),
                Some(("until", value)) => Some((&mut terms.until, value)),
                _ => None,
            };
            match (filter, word) {
                // Without a value, it is still being typed.
                (Some((_, "")), _) => {}
                (Some((filter, value)), _) => *filter = Some(value.to_owned()),
                (None, "failed") => terms.only_failed = true,
                (None, "no-sessions") => terms.without_sessions = true,
                (None, text) => terms.texts.push(text.to_owned()),
            }
        }
        Ok(terms)
    }
}

impl FindTerms {
    /// The period of the entries.
    pub(super) fn period(&self) -> PeriodArgs {
        PeriodArgs {
            since: self.since.clone(),
            until: self.until.clone(),
        }
    }

    /// Without the sign that makes the last text a beginning.
    pub(super) fn plain_texts(&self) -> impl Iterator<Item = &str> {
        let plain = |text: &String| text.strip_suffix('*').unwrap_or(text).len();
        self.texts.iter().map(move |text| &text[..plain(text)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(line: &str) -> FindTerms {
        line.parse().unwrap()
    }

    #[test]
    fn typed_line_has_options_as_words() {
        let all = terms(
            "tool:wiki_* failed \"no such table\" unit:docs-* run:latest since:7d until:12h no-sessions x",
        );
        let text = |text: &str| Some(text.to_owned());
        let expected = FindTerms {
            texts: vec!["no such table".to_owned(), "x".to_owned()],
            run: text("latest"),
            unit: text("docs-*"),
            tool: text("wiki_*"),
            only_failed: true,
            without_sessions: true,
            since: text("7d"),
            until: text("12h"),
        };
        assert_eq!(all, expected);
    }

    #[test]
    fn other_words_are_texts() {
        let texts = |line: &str| terms(line).texts;
        assert_eq!(
            texts("body:x \"failed\" a:b:c"),
            ["body:x", "failed", "a:b:c"]
        );
        assert_eq!(texts("\"tool:x\" tool: since:"), ["tool:x"]);
        assert_eq!(texts("\"not closed yet "), ["not closed yet "]);
        assert_eq!(texts("\"\" \"  \"  "), [""; 0]);
        assert_eq!(texts("a\u{3000}b\tc"), ["a", "b", "c"]);
    }
}
