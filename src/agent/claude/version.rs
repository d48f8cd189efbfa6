//! The releases of `claude` that this program supports. Pure: parses the output of `claude --version`.

use std::fmt;

use ingestdeck_core::diagnostic::Problem;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaudeVersion(pub u32, pub u32, pub u32);

/// Before this release, a held call runs when the hold times out, and user settings may leak in.
pub(crate) const OLDEST_SUPPORTED: ClaudeVersion = ClaudeVersion(2, 1, 160);
/// First release with all fields that distinguish failures.
pub(crate) const RECOMMENDED: ClaudeVersion = ClaudeVersion(2, 1, 223);
/// Newest release that was tested.
pub(crate) const NEWEST_TESTED: ClaudeVersion = ClaudeVersion(2, 1, 332);
/// First release whose restricted mode was tested with units. Releases from about 2.1.250 have it, too.
pub(crate) const FIRST_TESTED_RESTRICTED: ClaudeVersion = ClaudeVersion(2, 1, 330);
/// First release that was observed to record the system prompt of a session, and to have a flag against it.
pub const FIRST_PROMPT_SNAPSHOT: ClaudeVersion = ClaudeVersion(2, 1, 257);

impl fmt::Display for ClaudeVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// The end of the version of the scripted agent, whose numbers have no meaning.
pub(crate) const SCRIPTED_SUFFIX: &str = "(scripted)";

impl ClaudeVersion {
    /// The release that an agent announces in its stream; `None` for the scripted agent.
    pub(crate) fn parse_announced(text: &str) -> Option<Self> {
        (!text.trim_end().ends_with(SCRIPTED_SUFFIX)).then(|| Self::parse(text))?
    }

    /// Parses `X.Y.Z (Claude Code)`; text after the number is ignored. Returns `None` without such a number.
    pub fn parse(text: &str) -> Option<Self> {
        let word = text.split_whitespace().next()?;
        let word = word
            .split_once(['-', '+'])
            .map_or(word, |(number, _)| number);
        let mut parts = word.split('.').map(|part| part.parse().ok());
        let version = Self(parts.next()??, parts.next()??, parts.next()??);
        parts.next().is_none().then_some(version)
    }

    /// Whether units may run on it.
    pub fn support(self) -> ReleaseSupport {
        if self < OLDEST_SUPPORTED {
            ReleaseSupport::Unsupported
        } else if self < RECOMMENDED {
            ReleaseSupport::Degraded
        } else if self <= NEWEST_TESTED {
            ReleaseSupport::Tested
        } else {
            ReleaseSupport::Untested
        }
    }
}

/// How well a release is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseSupport {
    /// Units do not run on it.
    Unsupported,
    /// It works, but some failures cannot be distinguished.
    Degraded,
    /// In the tested range.
    Tested,
    /// Newer than the tested releases; probably works.
    Untested,
}

impl ReleaseSupport {
    /// What to know about `version`, unless it was tested.
    pub fn problem(self, version: ClaudeVersion) -> Option<Problem> {
        match self {
            Self::Unsupported => Some(
                Problem::new(format!(
                    "claude {version} is too old: a held tool call may run without approval"
                ))
                .with_help(format!("update it to {RECOMMENDED} or newer")),
            ),
            Self::Degraded => Some(
                Problem::new(format!(
                    "claude {version} works, but reports denials and API errors with less detail"
                ))
                .with_help(format!("{RECOMMENDED} or newer is recommended")),
            ),
            Self::Tested => None,
            Self::Untested => Some(Problem::new(format!(
                "claude {version} is newer than the newest tested release, {NEWEST_TESTED}"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_the_cli_is_read() {
        assert_eq!(
            ClaudeVersion::parse("2.1.330 (Claude Code)\n"),
            Some(ClaudeVersion(2, 1, 330))
        );
        assert_eq!(
            ClaudeVersion::parse("2.2.0-beta.1 (Claude Code)"),
            Some(ClaudeVersion(2, 2, 0))
        );
        for odd in [
            "",
            "Claude Code",
            "2.1",
            "2.1.x (Claude Code)",
            "2.1.330.4",
            "99999999999.1.1",
        ] {
            assert_eq!(ClaudeVersion::parse(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn support_changes_at_the_boundary_releases() {
        let standing = |patch| ClaudeVersion(2, 1, patch).support();
        assert_eq!(standing(159), ReleaseSupport::Unsupported);
        assert_eq!(standing(160), ReleaseSupport::Degraded);
        assert_eq!(standing(222), ReleaseSupport::Degraded);
        assert_eq!(standing(223), ReleaseSupport::Tested);
        assert_eq!(standing(332), ReleaseSupport::Tested);
        assert_eq!(standing(333), ReleaseSupport::Untested);
        assert_eq!(
            ClaudeVersion(1, 0, 128).support(),
            ReleaseSupport::Unsupported
        );
        assert_eq!(ClaudeVersion(3, 0, 0).support(), ReleaseSupport::Untested);
        assert_eq!(ReleaseSupport::Tested.problem(NEWEST_TESTED), None);
    }
}
