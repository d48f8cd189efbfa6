//! What a session has done so far, for a new session that continues without its context. Pure and bounded.

use std::collections::VecDeque;

use ingestdeck_core::{
    actions::label,
    decode::{AgentLine, LineBody, MessageBlock},
};

/// Number of calls that are kept, the newest ones.
const MAX_CALLS: usize = 100;
/// Most characters of a call.
const MAX_CALL_CHARS: usize = 200;
/// Most characters of the last message, and of the task.
const MAX_TEXT_CHARS: usize = 8_000;

/// The newest calls and the last message of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkLog {
    calls: VecDeque<String>,
    /// Number of calls, including those that are not kept.
    call_count: usize,
    last_message: String,
}

impl WorkLog {
    pub(crate) fn push_line(&mut self, line: &AgentLine<'_>) {
        let LineBody::Assistant(chat) = &line.body else {
            return;
        };
        for block in &chat.blocks {
            match block {
                MessageBlock::Text(text) => self.last_message = head(&text.text(), MAX_TEXT_CHARS),
                MessageBlock::ToolUse(call) => {
                    if self.calls.len() == MAX_CALLS {
                        self.calls.pop_front();
                    }
                    let label = label::call_label(&call.name, call.input, None).to_string();
                    self.calls.push_back(head(&label, MAX_CALL_CHARS));
                    self.call_count += 1;
                }
                _ => {}
            }
        }
    }

    /// The first message for a new session that continues with `task`.
    pub(crate) fn continuation_prompt(&self, task: &str) -> String {
        let mut text = format!(
            "An earlier session with this task ran out of context, so you continue in a new one. The task was:\n\n{}\n",
            head(task, MAX_TEXT_CHARS)
        );
        if self.call_count > 0 {
            text.push_str(&format!(
                "\nThe earlier session made {} tool calls",
                self.call_count
            ));
            text.push_str(if self.call_count > self.calls.len() {
                ". The last ones:\n"
            } else {
                ":\n"
            });
            self.calls
                .iter()
                .for_each(|call| text.push_str(&format!("- {call}\n")));
        }
        if !self.last_message.is_empty() {
            text.push_str(&format!(
                "\nIts last message was:\n\n{}\n",
                self.last_message
            ));
        }
        text.push_str(
            "\nCheck the current state before you repeat anything, and read large files in parts.",
        );
        text
    }
}

fn head(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingestdeck_core::decode;

    #[test]
    fn prompt_has_the_task_the_calls_and_the_last_message() {
        let mut log = WorkLog::default();
        for line in [
            r#"{"type":"assistant","message":{"content":[{"type":"text","text":"First."}]}}"#,
            r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"a","name":"Bash","input":{"command":"ls src"}}]}}"#,
            r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"a","content":"lib.rs"}]}}"#,
            r#"{"type":"assistant","message":{"content":[{"type":"text","text":"There is one file."}]}}"#,
            "garbage",
        ] {
            log.push_line(&decode::decode_line(line.as_bytes()));
        }
        insta::assert_snapshot!(log.continuation_prompt("Count the files."), @r"
        An earlier session with this task ran out of context, so you continue in a new one. The task was:

        Count the files.

        The earlier session made 1 tool calls:
        - ls src

        Its last message was:

        There is one file.

        Check the current state before you repeat anything, and read large files in parts.
        ");
    }

    #[test]
    fn long_sessions_are_cut() {
        let mut log = WorkLog::default();
        let call = format!(
            r#"{{"type":"assistant","message":{{"content":[{{"type":"tool_use","id":"a","name":"Bash","input":{{"command":"{}"}}}}]}}}}"#,
            "x".repeat(10_000)
        );
        (0..500).for_each(|_| log.push_line(&decode::decode_line(call.as_bytes())));
        let prompt = log.continuation_prompt(&"y".repeat(1_000_000));
        assert!(
            prompt.contains("made 500 tool calls. The last ones"),
            "{}",
            head(&prompt, 9_000)
        );
        assert!(prompt.chars().count() < MAX_CALLS * (MAX_CALL_CHARS + 4) + 2 * MAX_TEXT_CHARS);
    }
}
