//! Escapes untrusted text inside reports. Pure.
//!
//! All text is first made printable as on the screen, so that no control or direction character reaches a file. Then it
//! is escaped for the format.

use crate::text;

/// Returns one line of at most `most` columns.
pub(super) fn single_line(text: &str, most: usize) -> String {
    text::printable(&text::one_row(text, most.saturating_mul(4)), most).into_owned()
}

/// Returns several lines, each printable.
pub(super) fn safe_lines(text: &str) -> String {
    let safe = text.lines().map(|line| text::printable(line, usize::MAX));
    safe.collect::<Vec<_>>().join("\n")
}

/// Printable text as the content of an element or of a quoted attribute, in XML and in HTML.
pub(super) fn markup(safe: &str) -> String {
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
            char if char.is_control() || matches!(char, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            char => out.push(char),
        }
    }
    out
}

/// At most `most` columns of text as plain Markdown, also inside a table, without mentions and links.
pub(super) fn markdown_text(text: &str, most: usize) -> String {
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
    unmark_plain_colons(&out)
}

fn unmark_plain_colons(marked: &str) -> String {
    let mut out = String::with_capacity(marked.len());
    let mut rest = marked;
    while let Some(at) = rest.find(":<!-- -->") {
        let (before, from) = rest.split_at(at);
        let after = &from[":<!-- -->".len()..];
        out.push_str(before);
        out.push_str(if after.starts_with("//") { ":<!-- -->" } else { ":" });
        rest = after;
    }
    out.push_str(rest);
    out
}

/// At most `most` columns of text as Markdown code, also inside a table.
pub(super) fn markdown_code(text: &str, most: usize) -> String {
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
        assert_eq!(markdown_text("docs-a: 3 of 4 failed", 80), "docs-a: 3 of 4 failed");
        assert_eq!(
            markdown_text("[x](http://e) @all #1 <b>|", 80),
            r"\[x\](http:<!-- -->//e) @<!-- -->all #<!-- -->1 &lt;b&gt;\|"
        );
        assert_eq!(markdown_code("docs-a", 80), "`docs-a`");
        assert_eq!(markdown_code("a|`b`", 80), "<code>a&#124;&#96;b&#96;</code>");
        assert_eq!(single_line("a\u{202e}b\n\nc\u{1b}[31m", 80), "a\\u{202e}b ⏎ c\\e[31m");
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
            for cell in [markdown_text(&text, 100), markdown_code(&text, 100)] {
                let bars = cell.match_indices('|').filter(|(at, _)| !cell[..*at].ends_with('\\'));
                prop_assert_eq!(bars.count(), 0, "{}", &cell);
                prop_assert!(!cell.contains('\n'));
            }
        }
    }
}
