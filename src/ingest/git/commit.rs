//! Names of commits.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The full id of a commit, which git cannot confuse with an option, a range or a reference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CommitId(String);

/// The text is not a full commit id.
#[derive(Debug, thiserror::Error)]
#[error("invalid commit `{}`; expected 40 or 64 hexadecimal digits in lower case", .0.escape_debug())]
pub struct InvalidCommitId(String);

impl CommitId {
    /// Parses 40 digits of SHA-1 or 64 of SHA-256.
    pub fn parse(text: &str) -> Result<Self, InvalidCommitId> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if matches!(text.len(), 40 | 64) && text.bytes().all(is_digit) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidCommitId(text.chars().take(80).collect()))
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for CommitId {
    type Error = InvalidCommitId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<CommitId> for String {
    fn from(commit: CommitId) -> Self {
        commit.0
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_full_names_are_commits() {
        for length in [40, 64] {
            let name = "0a".repeat(length / 2);
            assert_eq!(CommitId::parse(&name).unwrap().as_str(), name);
            assert!(CommitId::parse(&format!("{name}\n")).is_err());
            assert!(CommitId::parse(&name.to_uppercase()).is_err());
        }
        for text in [
            "",
            "HEAD",
            "0a",
            "--output=/home/me/.profile",
            &"g".repeat(40),
            &"0".repeat(41),
        ] {
            assert!(CommitId::parse(text).is_err(), "{text}");
            assert!(
                serde_json::from_value::<CommitId>(text.into()).is_err(),
                "{text}"
            );
        }
    }
}
