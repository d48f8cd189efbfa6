//! Recognizes the transcripts of other agents, which are refused by name instead of being shown as unknown lines.

use serde::{Deserialize, de::IgnoredAny};

/// Fields that distinguish the lines of several agents.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ForeignLine<'a> {
    #[serde(borrow)]
    r#type: std::borrow::Cow<'a, str>,
    #[serde(rename = "session_id")]
    stream_session: Option<IgnoredAny>,
    session_id: Option<IgnoredAny>,
    uuid: Option<IgnoredAny>,
    /// From here on fields of Codex.
    payload: Option<IgnoredAny>,
    #[serde(rename = "thread_id")]
    thread: Option<IgnoredAny>,
    item: Option<IgnoredAny>,
    /// From here on fields of OpenCode.
    #[serde(rename = "sessionID")]
    open_code_session: Option<IgnoredAny>,
    part: Option<IgnoredAny>,
    /// From here on fields of Pi.
    id: Option<IgnoredAny>,
    cwd: Option<IgnoredAny>,
    parent_id: Option<IgnoredAny>,
    message: Option<IgnoredAny>,
    assistant_message_event: Option<IgnoredAny>,
}

/// The agent that wrote most of the lines, if it is a known one and no line belongs to Claude Code.
pub(super) fn foreign_agent<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<&'static str> {
    let mut agents: Vec<&'static str> = Vec::new();
    for line in lines {
        let Ok(line) = serde_json::from_slice::<ForeignLine<'_>>(line) else {
            continue;
        };
        if line.stream_session.is_some() || line.session_id.is_some() || line.uuid.is_some() {
            return None;
        }
        agents.extend(line.agent());
    }
    let count = |agent: &&str| agents.iter().filter(|other| other == &agent).count();
    agents.iter().max_by_key(|agent| count(agent)).copied()
}

impl ForeignLine<'_> {
    fn agent(&self) -> Option<&'static str> {
        let has = |field: &Option<IgnoredAny>| field.is_some();
        Some(match &*self.r#type {
            "session_meta" | "response_item" | "event_msg" | "turn_context" | "compacted"
                if has(&self.payload) =>
            {
                "Codex"
            }
            "thread.started" if has(&self.thread) => "Codex",
            "turn.started" | "turn.completed" | "turn.failed" => "Codex",
            "item.started" | "item.updated" | "item.completed" if has(&self.item) => "Codex",
            _ if has(&self.open_code_session) || has(&self.part) => "OpenCode",
            "session" if has(&self.id) && has(&self.cwd) => "Pi",
            "message" | "model_change" | "thinking_level_change" | "compaction"
                if has(&self.parent_id) || has(&self.id) && has(&self.message) =>
            {
                "Pi"
            }
            "agent_start"
            | "agent_end"
            | "turn_start"
            | "turn_end"
            | "message_start"
            | "message_end"
            | "tool_execution_start"
            | "tool_execution_update"
            | "tool_execution_end" => "Pi",
            "message_update" if has(&self.assistant_message_event) => "Pi",
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(text: &str) -> Option<&'static str> {
        foreign_agent(text.lines().map(str::as_bytes))
    }

    #[test]
    fn agents_are_known_by_their_lines() {
        let cases = [
            (
                r#"{"timestamp":"t","type":"session_meta","payload":{"id":"x"}}"#,
                Some("Codex"),
            ),
            (
                r#"{"type": "thread.started", "thread_id": "x"}"#,
                Some("Codex"),
            ),
            (
                r#"{"type":"item.completed","item":{"id":"item_0"}}"#,
                Some("Codex"),
            ),
            (
                r#"{"type":"step_start","timestamp":1,"sessionID":"ses_1","part":{}}"#,
                Some("OpenCode"),
            ),
            (
                r#"{"type":"session","version":3,"id":"x","timestamp":"t","cwd":"/w"}"#,
                Some("Pi"),
            ),
            (
                r#"{"type":"message","id":"a","parentId":null,"message":{"role":"user"}}"#,
                Some("Pi"),
            ),
            (r#"{"type":"agent_start"}"#, Some("Pi")),
            (r#"{"type":"user","message":{}}"#, None),
            (r#"{"type":"message_start","session_id":"s"}"#, None),
            ("not json", None),
        ];
        for (line, expected) in cases {
            assert_eq!(agent(line), expected, "{line}");
        }
        let mixed = format!("{}\n{}", cases[0].0, r#"{"type":"user","session_id":"s"}"#);
        assert_eq!(agent(&mixed), None);
    }
}
