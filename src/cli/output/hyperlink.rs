//! Clickable paths in plain output (OSC 8), if the terminal supports them. The module must not know the files.

use ingestdeck_core::text;
use std::{borrow::Cow, os::unix::ffi::OsStrExt as _, path::Path};

/// Returns escaped `text` with a link at every mention of `path`, if stdout is a terminal that supports links.
pub(super) fn with_hyperlinks<'a>(text: &'a str, path: &Path) -> Cow<'a, str> {
    if !supports_hyperlinks::on(supports_hyperlinks::Stream::Stdout) {
        return Cow::Borrowed(text);
    }
    let host = nix::unistd::gethostname()
        .ok()
        .and_then(|host| host.into_string().ok())
        .unwrap_or_default();
    Cow::Owned(insert_hyperlinks(text, path, &host))
}

/// Links only absolute paths without hidden characters, because escaping changes the others.
fn insert_hyperlinks(text: &str, path: &Path, host: &str) -> String {
    match path.to_str() {
        Some(shown) if path.is_absolute() && !shown.chars().any(text::is_hidden) => {
            let address = format!(
                "file://{}{}",
                text::percent_encoded(host.as_bytes()),
                text::percent_encoded(path.as_os_str().as_bytes())
            );
            text.replace(
                shown,
                &format!("\u{1b}]8;;{address}\u{1b}\\{shown}\u{1b}]8;;\u{1b}\\"),
            )
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_path_becomes_a_file_hyperlink() {
        let text = "recorded in /my runs/tape.jsonl\n";
        let expected = "recorded in \u{1b}]8;;file://host/my%20runs/tape.jsonl\u{1b}\\/my runs/tape.jsonl\u{1b}]8;;\u{1b}\\\n";
        assert_eq!(
            insert_hyperlinks(text, Path::new("/my runs/tape.jsonl"), "host"),
            expected
        );
    }

    #[test]
    fn relative_or_hidden_path_gets_no_hyperlink() {
        for path in [
            "relative/tape.jsonl",
            "/evil\u{1b}]8;;x\u{7}/tape",
            "/line\nbreak",
            "/over\u{202e}ride",
        ] {
            assert_eq!(
                insert_hyperlinks(&format!("in {path}"), Path::new(path), "host"),
                format!("in {path}")
            );
        }
    }
}
