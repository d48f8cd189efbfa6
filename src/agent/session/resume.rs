//! Resume lines: the command that continues a session, and finding such a line in a text. Pure. A session id is any
//! text without blanks and backticks.

use std::sync::LazyLock;

use regex_lite::Regex;

/// Prompt that replaces a text of nothing but resume lines.
const CONTINUE_PROMPT: &str = "continue";

/// The command that continues `session` in a terminal, in backticks for chats.
pub fn resume_line(session: &str) -> String {
    format!("`claude --resume {session}`")
}

/// The session of the last resume line in `text`.
pub(crate) fn find_session(text: &str) -> Option<&str> {
    resume_line_regex()?
        .captures_iter(text)
        .last()?
        .name("token")
        .map(|token| token.as_str())
}

/// Splits a prompt into the text without resume lines and the session of the last one. If no text remains, it is
/// `continue`; a prompt without a resume line is unchanged.
pub(crate) fn split_prompt(prompt: &str) -> (String, Option<&str>) {
    let Some(session) = find_session(prompt) else {
        return (prompt.to_owned(), None);
    };
    let rest = resume_line_regex()
        .map_or_else(|| prompt.into(), |pattern| pattern.replace_all(prompt, ""));
    let rest = rest.trim();
    (
        if rest.is_empty() {
            CONTINUE_PROMPT.to_owned()
        } else {
            rest.to_owned()
        },
        Some(session),
    )
}

/// `None` only if the pattern is invalid, which a test rules out.
fn resume_line_regex() -> Option<&'static Regex> {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?im)^\s*`?claude\s+(?:--resume|-r)\s+(?P<token>[^`\s]+)`?\s*$").ok()
    });
    PATTERN.as_ref()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn resume_lines_are_found_in_text() {
        let table = [
            ("`claude --resume sid`", Some("sid")),
            ("claude -r other", Some("other")),
            ("CLAUDE --Resume SiD", Some("SiD")),
            ("  \t`claude --resume sid`  ", Some("sid")),
            ("`claude --resume sid", Some("sid")),
            ("claude --resume sid`", Some("sid")),
            ("claude --resume sid\r\nmore", Some("sid")),
            ("claude --resume 'sid'", Some("'sid'")),
            ("claude\n--resume\nsid", Some("sid")),
            ("claude --resume a\ntext\n`claude -r b`", Some("b")),
            (
                "before\n`claude --resume session_01`\nafter",
                Some("session_01"),
            ),
            ("claude --resume é€", Some("é€")),
            ("claude --resume=sid", None),
            ("claude --resume sid extra", None),
            ("claude --resume sid --fork-session", None),
            ("run claude --resume sid", None),
            ("> claude --resume sid", None),
            ("``claude --resume sid``", None),
            ("claude --continue", None),
            ("codex resume sid", None),
        ];
        for (text, named) in table {
            assert_eq!(find_session(text), named, "{text:?}");
        }
    }

    #[test]
    fn resume_lines_do_not_reach_the_model() {
        assert_eq!(
            split_prompt("`claude --resume a`"),
            ("continue".into(), Some("a"))
        );
        assert_eq!(
            split_prompt("fix it\n`claude --resume a`\n"),
            ("fix it".into(), Some("a"))
        );
        assert_eq!(
            split_prompt("claude -r a\none\n\nclaude -r b\ntwo"),
            ("one\n\ntwo".into(), Some("b"))
        );
        assert_eq!(split_prompt("  no line  "), ("  no line  ".into(), None));
        assert_eq!(
            split_prompt("claude --resume a b"),
            ("claude --resume a b".into(), None)
        );
    }

    proptest! {
        #[test]
        fn every_line_that_we_print_is_found(session in "[^`\\s]{1,60}", before in ".{0,20}") {
            let line = resume_line(&session);
            prop_assert_eq!(find_session(&line), Some(session.as_str()));
            let text = format!("{before}\n{line}");
            prop_assert_eq!(split_prompt(&text).1, Some(session.as_str()));
        }

        #[test]
        fn split_prompt_never_panics(text in "(claude|--resume|-r|`|\\s|\\PC){0,40}") {
            let (rest, named) = split_prompt(&text);
            prop_assert!(named.is_none() || !rest.is_empty());
        }
    }
}
