//! Escape sequences outside the screen content: title, clipboard, notifications, progress. Text in, bytes out.
//!
//! All text inside a sequence passes [`sanitized`], whatever its origin.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};

use crate::notification::TerminalProgress;

/// Removes the progress indicator.
pub(super) const CLEAR_PROGRESS: &str = "\x1b]9;4;0;\x1b\\";

/// Removes all characters from `text` that could end a sequence or start another one.
fn sanitized(text: &str) -> String {
    text.chars().filter(|char| !char.is_control()).collect()
}

pub(super) fn title(text: &str) -> String {
    format!("\x1b]2;{}\x1b\\", sanitized(text))
}

pub(super) fn clipboard(text: &str) -> String {
    format!("\x1b]52;c;{}\x1b\\", BASE64.encode(text))
}

pub(super) fn osc9(title: &str, text: &str) -> String {
    // Some terminals interpret `9;` and a number as another command; a title is never a number.
    format!("\x1b]9;{}: {}\x1b\\", sanitized(title), sanitized(text))
}

pub(super) fn osc777(title: &str, text: &str) -> String {
    format!(
        "\x1b]777;notify;{};{}\x1b\\",
        sanitized(title).replace(';', ","),
        sanitized(text)
    )
}

pub(super) fn progress(gauge: TerminalProgress) -> String {
    match gauge {
        TerminalProgress::None => CLEAR_PROGRESS.to_owned(),
        TerminalProgress::Percent { percent, failed } => {
            format!("\x1b]9;4;{};{percent}\x1b\\", if failed { 2 } else { 1 })
        }
    }
}

/// Wraps a sequence so that tmux forwards it to the outer terminal; requires `allow-passthrough`.
pub(super) fn through_tmux(sequence: &str) -> String {
    format!("\x1bPtmux;{}\x1b\\", sequence.replace('\x1b', "\x1b\x1b"))
}

/// True for terminals that are known to draw progress. Others may show the sequence as a notification.
pub fn supports_progress(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    if set("TMUX") || set("STY") {
        return false;
    }
    let program = variable("TERM_PROGRAM").unwrap_or_default();
    set("WT_SESSION")
        || variable("ConEmuANSI").as_deref() == Some("ON")
        || matches!(program.to_ascii_lowercase().as_str(), "wezterm" | "ghostty")
        || variable("TERM").as_deref() == Some("xterm-ghostty")
        || (program == "iTerm.app"
            && is_version_at_least(
                &variable("TERM_PROGRAM_VERSION").unwrap_or_default(),
                (3, 6, 6),
            ))
}

fn is_version_at_least(version: &str, least: (u32, u32, u32)) -> bool {
    let mut parts = version
        .split('.')
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let mut part = || parts.next().unwrap_or(0);
    (part(), part(), part()) >= least
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sequences_have_the_documented_form() {
        assert_eq!(title("orbit: 1/4 done"), "\x1b]2;orbit: 1/4 done\x1b\\");
        assert_eq!(osc9("ingestdeck", "done"), "\x1b]9;ingestdeck: done\x1b\\");
        assert_eq!(osc777("a;b", "c;d"), "\x1b]777;notify;a,b;c;d\x1b\\");
        assert_eq!(
            progress(TerminalProgress::Percent {
                percent: 40,
                failed: true
            }),
            "\x1b]9;4;2;40\x1b\\"
        );
        assert_eq!(progress(TerminalProgress::None), "\x1b]9;4;0;\x1b\\");
        assert_eq!(
            through_tmux("\x1b]9;x\x1b\\"),
            "\x1bPtmux;\x1b\x1b]9;x\x1b\x1b\\\x1b\\"
        );
    }

    #[test]
    fn progress_is_sent_to_known_terminals_only() {
        let draws = |set: &[(&str, &str)]| {
            supports_progress(|name| {
                set.iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| (*value).to_owned())
            })
        };
        assert!(!draws(&[("TERM", "xterm-256color")]));
        assert!(draws(&[("WT_SESSION", "1")]) && draws(&[("TERM_PROGRAM", "WezTerm")]));
        assert!(!draws(&[
            ("WT_SESSION", "1"),
            ("TMUX", "/tmp/tmux-0/default,1,0")
        ]));
        assert!(draws(&[
            ("TERM_PROGRAM", "iTerm.app"),
            ("TERM_PROGRAM_VERSION", "3.10.0")
        ]));
        assert!(!draws(&[
            ("TERM_PROGRAM", "iTerm.app"),
            ("TERM_PROGRAM_VERSION", "3.5.14")
        ]));
    }

    proptest! {
        /// One sequence in, one out: text cannot end its sequence or start another one.
        #[test]
        fn text_cannot_escape_its_sequence(text in any::<String>(), other in any::<String>()) {
            for sequence in [title(&text), osc9(&text, &other), osc777(&text, &other), clipboard(&text)] {
                let inside = sequence.strip_prefix("\x1b]").and_then(|rest| rest.strip_suffix("\x1b\\"));
                prop_assert!(inside.is_some_and(|inside| !inside.chars().any(char::is_control)), "{sequence:?}");
            }
        }
    }
}
