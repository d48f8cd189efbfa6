//! Makes the changes of an earlier attempt again, for one that continues its session: calls that changed or recorded
//! something are repeated from the transcript, and each must have the same answer as then.
//!
//! Calls that only read are not repeated: the session contains their answers. The module must not know sessions.

use serde::Deserialize;
use serde_json::Value;

use super::{AttemptTools, memory_actions};
use ingestdeck_core::units::ToolCall;

/// The changes of an earlier attempt cannot be made again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RestoreError {
    /// The project is no longer as it was.
    #[error("{0} has another answer now")]
    OtherAnswer(String),
    /// A line of the transcript is damaged, so that a change may be missing.
    #[error("a line of its transcript is damaged")]
    DamagedLine,
}

/// The part of a transcript line that shows a call and its answer.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RestorableCall {
    /// Number of the attempt; absent for the first.
    attempt: Option<u32>,
    tool_call_id: Option<String>,
    tool_name: String,
    #[serde(default)]
    input: Value,
    output: Option<RestorableAnswer>,
}

#[derive(Deserialize)]
struct RestorableAnswer {
    markdown: String,
    #[serde(default)]
    structured: Value,
}

impl AttemptTools {
    /// Repeats the changes of attempt number `attempt` in `transcript`, and records what its agent received.
    pub(crate) fn restore(&self, transcript: &[u8], attempt: u32) -> Result<(), RestoreError> {
        // The agent never received the answer of a call whose line was cut off.
        let lines = transcript.split_inclusive(|byte| *byte == b'\n');
        for line in lines.filter(|line| line.ends_with(b"\n")) {
            let call: RestorableCall =
                serde_json::from_slice(line).map_err(|_| RestoreError::DamagedLine)?;
            if call.attempt.unwrap_or(1) != attempt {
                continue;
            }
            self.restore_call(call)?;
            let mut records = self.context.records();
            records.reads.add_calls(line);
            if let Some(received) = &mut records.received {
                received.add_transcript(line);
            }
        }
        Ok(())
    }

    /// Repeats a call that changed or recorded something.
    fn restore_call(&self, recorded: RestorableCall) -> Result<(), RestoreError> {
        let changes = self
            .offered_tools
            .iter()
            .any(|tool| tool.name == recorded.tool_name && !tool.is_read_only);
        let Some(answer) = recorded
            .output
            .filter(|answer| changes && answer.structured["success"] == true)
        else {
            return Ok(());
        };
        let call = ToolCall {
            name: recorded.tool_name,
            arguments: recorded.input,
            tool_use_id: recorded.tool_call_id,
        };
        let reply = self.answer(&call);
        if reply.markdown != answer.markdown {
            return Err(RestoreError::OtherAnswer(call.name));
        }
        memory_actions::record_call(&mut self.context.records().actions, &call, &reply);
        Ok(())
    }
}
