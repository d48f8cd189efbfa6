//! The first line of a tape: format, program and run. Knows no files.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::RunId;
use crate::diagnostic::Diagnostic;

/// The tape format that this program writes, and the newest that it reads.
pub(crate) const FORMAT_VERSION: u64 = 1;

/// First line of a tape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// Major version of the format.
    pub tape: u64,
    /// Program and version that wrote the tape.
    pub program: String,
    /// Identity of the run.
    pub run: RunId,
    /// Wall-clock time of `at` 0.
    pub started_at: Timestamp,
    /// Name of the project, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// True if a scripted agent plays the model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scripted: bool,
}

/// Why a first line is not a usable header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeaderError {
    /// The line has another format.
    #[error("not a tape")]
    NotATape,
    /// A later version wrote the tape.
    #[error("tape format {0} is newer than this program reads ({FORMAT_VERSION})")]
    NewerFormat(u64),
    /// The header of the tape is incomplete.
    #[error("the tape's header is damaged: {0}")]
    Damaged(String),
}

impl Diagnostic for HeaderError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::NewerFormat(_) => "use a newer ingestdeck".into(),
            Self::NotATape | Self::Damaged(_) => return None,
        })
    }
}

impl Header {
    /// Parses the first line of a tape.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, HeaderError> {
        #[derive(Deserialize)]
        struct FormatProbe {
            tape: Option<u64>,
        }
        let probe: FormatProbe = serde_json::from_slice(line).map_err(|_| HeaderError::NotATape)?;
        match probe.tape {
            None => Err(HeaderError::NotATape),
            Some(newer) if newer > FORMAT_VERSION => Err(HeaderError::NewerFormat(newer)),
            Some(_) => serde_json::from_slice(line).map_err(|error| HeaderError::Damaged(error.to_string())),
        }
    }

    /// The line, with its newline.
    pub(crate) fn to_line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_format_is_refused_with_its_number() {
        assert_eq!(Header::parse(br#"{"tape":2,"shape":"unknown"}"#), Err(HeaderError::NewerFormat(2)));
        assert_eq!(Header::parse(br#"{"type":"system"}"#), Err(HeaderError::NotATape));
        assert!(matches!(Header::parse(br#"{"tape":1}"#), Err(HeaderError::Damaged(_))));
    }

    #[test]
    fn header_round_trips() {
        let header = Header {
            tape: FORMAT_VERSION,
            program: "ingestdeck 0.1.0".into(),
            run: RunId(uuid::Uuid::from_u128(7)),
            started_at: "2026-11-22T01:02:03Z".parse().unwrap(),
            project: Some("orbit".into()),
            scripted: true,
        };
        assert_eq!(Header::parse(&header.to_line()), Ok(header));
    }
}
