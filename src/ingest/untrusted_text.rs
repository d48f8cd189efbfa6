//! Text from files and names that the project does not control, made safe for prompts, messages and the screen.
//!
//! It must not know where a text comes from.

/// Characters that some reader treats as the end of a line.
const LINE_BREAKS: [char; 7] = [
    '\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}',
];

/// Longest excerpt of a text that only has to be recognised.
const MAX_EXCERPT_CHARS: usize = 80;

/// Whether a prompt or a screen can show the name without misleading the reader.
pub(super) fn is_presentable(name: &str) -> bool {
    let deceptive = |c: char| {
        c.is_control()
            || matches!(
                c,
                '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
                    | '\u{e0000}'..='\u{e007f}'
            )
    };
    !name.chars().any(deceptive)
}

/// `text` with every character escaped that is not [`is_presentable`].
pub(super) fn escape_unpresentable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            if is_presentable(c.encode_utf8(&mut [0; 4])) {
                vec![c]
            } else {
                c.escape_unicode().collect()
            }
        })
        .collect()
}

/// A path for a message; the empty path is the source itself.
pub(super) fn visible_path(path: &str) -> String {
    if path.is_empty() {
        "the source".into()
    } else {
        escape_unpresentable(path)
    }
}

/// Escapes a `#` at the beginning of a line, so that no line of an untrusted text opens a section.
pub(super) fn escape_headings(text: &str) -> String {
    let line = |line: &str| match escape_unpresentable(line.trim_end()) {
        line if line.trim_start().starts_with('#') => format!("\\{}", line.trim_start()),
        line => line,
    };
    text.split(LINE_BREAKS)
        .map(line)
        .collect::<Vec<_>>()
        .join("\n")
        .trim()
        .to_owned()
}

/// Replaces line breaks, so that untrusted text cannot open a section. Keeps spaces, which are significant in file
/// names.
pub(super) fn one_line(text: &str) -> String {
    escape_unpresentable(
        &text
            .split(LINE_BREAKS)
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(" "),
    )
}

/// Like [`one_line`], with every run of spaces replaced by one.
pub(super) fn squeezed_line(text: &str) -> String {
    escape_unpresentable(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Shortens untrusted text and puts it on one line. A name that its reader has to use needs [`one_line`].
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(MAX_EXCERPT_CHARS) {
        Some((end, _)) => format!("{}…", text[..end].escape_debug()),
        None => text.escape_debug().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_of_a_long_text_ends_in_an_ellipsis() {
        let text = "x".repeat(MAX_EXCERPT_CHARS);
        assert_eq!(excerpt(&text), text);
        assert_eq!(excerpt(&format!("{text}y")), format!("{text}…"));
    }

    #[test]
    fn untrusted_headings_are_escaped() {
        let text = "# one\n  ## two\n- item # kept\u{2028}### three\n```sql\n-- note\n```\n";
        assert_eq!(
            escape_headings(text),
            "\\# one\n\\## two\n- item # kept\n\\### three\n```sql\n-- note\n```"
        );
    }
}
