//! Which releases of `claude` this program works with. Pure: reads the text of `claude --version`.

use std::fmt;

/// A release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32, pub u32, pub u32);

/// Below it a held call runs when the hold times out, and user settings may leak in.
pub const OLDEST: Version = Version(2, 1, 160);
/// First release with everything that tells failures apart.
pub const RECOMMENDED: Version = Version(2, 1, 223);
/// Newest release that was tested.
pub const NEWEST_TESTED: Version = Version(2, 1, 330);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl Version {
    /// Reads `X.Y.Z (Claude Code)`; anything after the number is ignored. `None` if there is no such number.
    pub fn parse(text: &str) -> Option<Self> {
        let word = text.split_whitespace().next()?;
        let word = word.split_once(['-', '+']).map_or(word, |(number, _)| number);
        let mut parts = word.split('.').map(|part| part.parse().ok());
        let version = Self(parts.next()??, parts.next()??, parts.next()??);
        parts.next().is_none().then_some(version)
    }

    /// Whether units may run on it.
    pub fn standing(self) -> Standing {
        if self < OLDEST {
            Standing::Refused
        } else if self < RECOMMENDED {
            Standing::Old
        } else if self <= NEWEST_TESTED {
            Standing::Tested
        } else {
            Standing::Newer
        }
    }
}

/// What this program says to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Units do not run on it.
    Refused,
    /// Works, but failures are told apart less well.
    Old,
    /// In the tested range.
    Tested,
    /// Newer than any that was tested; works as far as we know.
    Newer,
}

impl Standing {
    /// One sentence with the remedy, unless all is well.
    pub fn remark(self, version: Version) -> Option<String> {
        match self {
            Self::Refused => Some(format!(
                "claude {version} is too old: a held tool call may run by itself; update it to {RECOMMENDED} or newer"
            )),
            Self::Old => Some(format!(
                "claude {version} works, but reports denials and API errors less exactly; {RECOMMENDED} or newer is better"
            )),
            Self::Tested => None,
            Self::Newer => Some(format!("claude {version} is newer than the newest tested release, {NEWEST_TESTED}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_the_cli_is_read() {
        assert_eq!(Version::parse("2.1.330 (Claude Code)\n"), Some(Version(2, 1, 330)));
        assert_eq!(Version::parse("2.2.0-beta.1 (Claude Code)"), Some(Version(2, 2, 0)));
        for odd in ["", "Claude Code", "2.1", "2.1.x (Claude Code)", "2.1.330.4", "99999999999.1.1"] {
            assert_eq!(Version::parse(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn releases_are_judged_at_their_borders() {
        let standing = |patch| Version(2, 1, patch).standing();
        assert_eq!(standing(159), Standing::Refused);
        assert_eq!(standing(160), Standing::Old);
        assert_eq!(standing(222), Standing::Old);
        assert_eq!(standing(223), Standing::Tested);
        assert_eq!(standing(330), Standing::Tested);
        assert_eq!(standing(331), Standing::Newer);
        assert_eq!(Version(1, 0, 128).standing(), Standing::Refused);
        assert_eq!(Version(3, 0, 0).standing(), Standing::Newer);
        assert_eq!(Standing::Tested.remark(NEWEST_TESTED), None);
    }
}
