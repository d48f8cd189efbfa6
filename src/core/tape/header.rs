//! The first line of a tape: format, program and run. Knows no files.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::RunId;
use crate::diagnostic::{Diagnostic, Problem};

/// The tape format that this program writes, and the newest that it reads.
pub const FORMAT_VERSION: u64 = 1;

/// First line of a tape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
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
    /// The agent that wrote the lines; it determines how they are decoded. Absent on tapes of older versions, which means
    /// Claude Code or the scripted agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
}

/// An agent, as a tape names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentName {
    #[serde(rename = "claude")]
    ClaudeCode,
    #[serde(rename = "scripted")]
    Scripted,
    /// An agent of a later version. Its lines cannot be decoded.
    #[serde(untagged)]
    Unknown(String),
}

/// Why a first line is not a usable header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
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
    pub fn parse(line: &[u8]) -> Result<Self, HeaderError> {
        #[derive(Deserialize)]
        struct FormatProbe {
            tape: Option<u64>,
        }
        let probe: FormatProbe = serde_json::from_slice(line).map_err(|_| HeaderError::NotATape)?;
        match probe.tape {
            None => Err(HeaderError::NotATape),
            Some(newer) if newer > FORMAT_VERSION => Err(HeaderError::NewerFormat(newer)),
            Some(_) => serde_json::from_slice(line)
                .map_err(|error| HeaderError::Damaged(error.to_string())),
        }
    }

    /// The problem if the lines of the tape cannot be decoded.
    pub fn agent_problem(&self) -> Option<Problem> {
        let Some(AgentName::Unknown(name)) = &self.agent else {
            return None;
        };
        let text = format!(
            "the tape was recorded with the agent `{}`, which this program does not know; its lines are not decoded",
            name.escape_debug()
        );
        Some(Problem::new(text).with_help("use a newer ingestdeck"))
    }

    /// The line, with its newline.
    pub fn to_line(&self) -> Vec<u8> {
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
        assert_eq!(
            Header::parse(br#"{"tape":2,"shape":"unknown"}"#),
            Err(HeaderError::NewerFormat(2))
        );
        assert_eq!(
            Header::parse(br#"{"type":"system"}"#),
            Err(HeaderError::NotATape)
        );
        assert!(matches!(
            Header::parse(br#"{"tape":1}"#),
            Err(HeaderError::Damaged(_))
        ));
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
            agent: Some(AgentName::Scripted),
        };
        assert!(
            header
                .to_line()
                .ends_with(b",\"scripted\":true,\"agent\":\"scripted\"}\n")
        );
        assert_eq!(Header::parse(&header.to_line()), Ok(header.clone()));
        for agent in [
            None,
            Some(AgentName::ClaudeCode),
            Some(AgentName::Unknown("codex".into())),
        ] {
            let header = Header {
                agent,
                ..header.clone()
            };
            assert_eq!(Header::parse(&header.to_line()), Ok(header));
        }
    }
}
