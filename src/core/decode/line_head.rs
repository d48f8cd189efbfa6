//! Fields that lines of every type may have. Must not know the types.

use std::borrow::Cow;

use super::json_scanner::{JsonScanner, ScanResult};

/// Fields that every line may have, and the reading position.
#[derive(Debug, Default)]
pub(super) struct LineHead<'a> {
    pub(super) session_id: Option<Cow<'a, str>>,
    pub(super) parent_tool_use_id: Option<Cow<'a, str>>,
    pub(super) timestamp: Option<Cow<'a, str>>,
    pub(super) on_disk: bool,
    pub(super) is_sidechain: bool,
    pub(super) agent_id: Option<Cow<'a, str>>,
}

impl<'a> LineHead<'a> {
    /// Reads a field that the reader of the body does not use.
    pub(super) fn read_field(&mut self, scan: &mut JsonScanner<'a>, key: &[u8]) -> ScanResult<()> {
        match key {
            b"session_id" => self.session_id = scan.non_empty_text()?,
            b"sessionId" => {
                self.session_id = scan.non_empty_text()?;
                self.on_disk = true;
            }
            b"parent_tool_use_id" => self.parent_tool_use_id = scan.non_empty_text()?,
            b"isSidechain" => self.is_sidechain = scan.boolean()? == Some(true),
            b"agentId" => self.agent_id = scan.non_empty_text()?,
            b"timestamp" => self.timestamp = scan.non_empty_text()?,
            _ => scan.skip()?,
        }
        Ok(())
    }
}

/// Reads a string, or the `message` (else `error`) of an object.
pub(super) fn error_text<'a>(scan: &mut JsonScanner<'a>) -> ScanResult<Option<Cow<'a, str>>> {
    if scan.peek()? != b'{' {
        return scan.non_empty_text();
    }
    let (mut message, mut error) = (None, None);
    scan.object(|scan, key| {
        match key {
            b"message" => message = scan.non_empty_text()?,
            b"error" => error = scan.non_empty_text()?,
            _ => scan.skip()?,
        }
        Ok(())
    })?;
    Ok(message.or(error))
}
