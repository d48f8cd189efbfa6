//! Escapes untrusted text inside reports. Pure.
//!
//! A report is first written as a draft, which contains each text as it is. Its secrets are masked before the text is
//! shortened and escaped: a search would not recognise parts of them. All text is made printable as on the screen, so
//! that no control or direction character reaches a file. Then it is escaped for the format.

use super::redact::MASK;
use ingestdeck_core::text;

// A draft has these noncharacters around each text and its form; [`draft`] replaces them in the text.
const FORM: char = '\u{fdd0}';
const TEXT: char = '\u{fdd1}';
const END: char = '\u{fdd2}';

const PLAIN: &str = "plain";
const CODE: &str = "code";
const MARKUP: &str = "markup";
const MARKUP_LINES: &str = "markup lines";
const PROPERTY: &str = "property";
const COMMAND_LINES: &str = "command lines";

fn draft(form: &str, text: &str, most: usize) -> String {
    let text = text.replace([FORM, TEXT, END], "\u{fffd}");
    format!("{FORM}{form}{TEXT}{most}{TEXT}{text}{END}")
}

/// At most `most` columns of text as plain Markdown, also inside a table, without mentions and links.
pub(super) fn markdown_text(text: &str, most: usize) -> String {
    draft(PLAIN, text, most)
}

/// At most `most` columns of text as Markdown code, also inside a table.
pub(super) fn markdown_code(text: &str, most: usize) -> String {
    draft(CODE, text, most)
}

/// One line of at most `most` columns as the content of an element or of a quoted attribute, in XML and in HTML.
pub(super) fn markup_line(text: &str, most: usize) -> String {
    draft(MARKUP, text, most)
}

/// Several lines as the content of an element.
pub(super) fn markup_lines(text: &str) -> String {
    draft(MARKUP_LINES, text, usize::MAX)
}

/// One line of at most `most` columns as a property of a workflow command of GitHub Actions.
pub(super) fn command_property(text: &str, most: usize) -> String {
    draft(PROPERTY, text, most)
}

/// Several lines of at most `most` characters as the message of a workflow command.
pub(super) fn command_lines(text: &str, most: usize) -> String {
    draft(COMMAND_LINES, text, most)
}

/// Completes a draft. `mask` returns a text without its secrets.
pub(super) fn finish(draft: &str, mask: &mut dyn FnMut(&str) -> String) -> String {
    let mut pieces = draft.split([FORM, END]);
    let mut out = pieces.next().unwrap_or_default().to_owned();
    // A text and what follows it alternate.
    while let (Some(piece), Some(after)) = (pieces.next(), pieces.next()) {
        let mut parts = piece.splitn(3, TEXT);
        let mut part = || parts.next().unwrap_or_default();
        let (form, most, text) = (part(), part().parse().unwrap_or(0), part());
        let text = mask(text);
        out.push_str(&match form {
            PLAIN => finished_text(&text, most),
            CODE => finished_code(&text, most),
            MARKUP => markup(&single_line(&text, most)),
            PROPERTY => command(&single_line(&text, most))
                .replace(':', "%3A")
                .replace(',', "%2C"),
            COMMAND_LINES => {
                let text = safe_lines(&text);
                let end = text
                    .char_indices()
                    .nth(most)
                    .map_or(text.len(), |(end, _)| end);
                command(text.get(..end).unwrap_or_default())
            }
            _ => markup(&safe_lines(&text)),
        });
        out.push_str(after);
    }
    out
}

/// Returns one line of at most `most` columns.
fn single_line(text: &str, most: usize) -> String {
    text::printable(&text::one_row(text, most.saturating_mul(4)), most).into_owned()
}

/// Returns several lines, each printable.
fn safe_lines(text: &str) -> String {
    let safe = text.lines().map(|line| text::printable(line, usize::MAX));
    safe.collect::<Vec<_>>().join("\n")
}

/// Printable text as the message of a workflow command, which is one line.
fn command(safe: &str) -> String {
    safe.replace('%', "%25").replace('\n', "%0A")
}

/// Printable text as the content of an element or of a quoted attribute, in XML and in HTML.
fn markup(safe: &str) -> String {
    let mut out = String::with_capacity(safe.len());
    for char in safe.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(char),
            // XML cannot represent these characters, escaped or not.
            char if char.is_control() || matches!(char, '\u{fffe}' | '\u{ffff}') => {
                out.push('\u{fffd}')
            }
            char => out.push(char),
        }
    }
    out
}

fn finished_text(text: &str, most: usize) -> String {
    let mut out = String::new();
    for char in single_line(text, most).chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '!' | '$' => {
                out.push('\\');
                out.push(char);
            }
            // A renderer then does not turn the following text into a mention, issue number or address.
            '@' | '#' | ':' => {
                out.push(char);
                out.push_str("<!-- -->");
            }
            char => out.push(char),
        }
    }
    // A colon makes a link only before slashes; elsewhere the mark would only be a nuisance.
    unescape_masks(&unmark_plain_colons(&out))
}

/// Writes the mark of a masked secret without backslashes, unless it could be the text of a link.
fn unescape_masks(markdown: &str) -> String {
    let escaped = MASK.replace('[', "\\[").replace(']', "\\]");
    let mut parts = markdown.split(&escaped);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(if part.starts_with(['(', ':']) {
            &escaped
        } else {
            MASK
        });
        out.push_str(part);
    }
    out
}

fn unmark_plain_colons(marked: &str) -> String {
    let mut out = String::with_capacity(marked.len());
    let mut rest = marked;
    while let Some(at) = rest.find(":<!-- -->") {
        let (before, from) = rest.split_at(at);
        let after = &from[":<!-- -->".len()..];
        out.push_str(before);
        out.push_str(if after.starts_with("//") {
            ":<!-- -->"
        } else {
            ":"
        });
        rest = after;
    }
    out.push_str(rest);
    out
}

fn finished_code(text: &str, most: usize) -> String {
    let safe = single_line(text, most);
    if !safe.contains(['`', '|', '\\', '<']) && !safe.is_empty() && safe.trim() == safe {
        return format!("`{safe}`");
    }
    let mut out = String::from("<code>");
    for char in safe.chars() {
        if char.is_alphanumeric() || " -.,=/".contains(char) {
            out.push(char);
        } else {
            out.push_str(&format!("&#{};", u32::from(char)));
        }
    }
    out + "</code>"
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn markdown_text_and_code_are_escaped() {
        assert_eq!(
            finished_text("docs-a: 3 of 4 failed", 80),
            "docs-a: 3 of 4 failed"
        );
        assert_eq!(
            finished_text("[x](http://e) @all #1 <b>|", 80),
            r"\[x\](http:<!-- -->//e) @<!-- -->all #<!-- -->1 &lt;b&gt;\|"
        );
        assert_eq!(
            finished_text("[masked] [masked](x) [masked]:", 80),
            r"[masked] \[masked\](x) \[masked\]:"
        );
        assert_eq!(finished_code("docs-a", 80), "`docs-a`");
        assert_eq!(
            finished_code("a|`b`", 80),
            "<code>a&#124;&#96;b&#96;</code>"
        );
        assert_eq!(
            single_line("a\u{202e}b\n\nc\u{1b}[31m", 80),
            "a\\u{202e}b ⏎ c\\e[31m"
        );
    }

    #[test]
    fn texts_are_masked_before_they_are_shortened_and_escaped() {
        let text = "see postgres://svc:hunter2@db";
        let draft = format!(
            "<{}|{}|{}>",
            markdown_text(text, 90),
            markup_line(text, 24),
            markdown_code(text, 24)
        );
        let mut mask = |text: &str| text.replace("hunter2", "[masked]");
        let expected = r"<see postgres:<!-- -->//svc:[masked]@<!-- -->db|see postgres://svc:[mas…|`see postgres://svc:[mas…`>";
        assert_eq!(finish(&draft, &mut mask), expected);
        let odd = markup_lines("a\u{fdd2}b\u{fdd0}<\n") + "end";
        assert_eq!(
            finish(&odd, &mut |text| text.to_owned()),
            "a\u{fffd}b\u{fffd}&lt;end"
        );
    }

    proptest! {
        #[test]
        fn markup_cannot_be_broken_out_of(text in "\\PC{0,40}|[<>&\"'\u{0}-\u{1f}\u{fffe}\u{ffff}]{0,40}") {
            let written = markup(&safe_lines(&text));
            prop_assert!(!written.contains(['<', '>', '"', '\'']), "{}", written);
            prop_assert!(written.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'), "{:?}", written);
            for (at, _) in written.match_indices('&') {
                let entity = written[at..].split_once(';').map(|(entity, _)| entity);
                prop_assert!(["&amp", "&lt", "&gt", "&quot", "&#39"].map(Some).contains(&entity), "{}", written);
            }
        }

        #[test]
        fn markdown_table_keeps_its_columns(text in "[|`\\\\\n a<>-]{0,30}") {
            for cell in [finished_text(&text, 100), finished_code(&text, 100)] {
                let bars = cell.match_indices('|').filter(|(at, _)| !cell[..*at].ends_with('\\'));
                prop_assert_eq!(bars.count(), 0, "{}", &cell);
                prop_assert!(!cell.contains('\n'));
            }
        }
    }
}
