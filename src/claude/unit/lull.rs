//! When to leave lines in the pipe for a moment, to take several at once: while the model speaks, a line comes with
//! every word or two, and waking up for each costs more than all that is done with it.
//!
//! Only a piece of text or thinking makes a lull. Before anybody can be asked or told anything, the text has to end,
//! which is a line of another kind: requests and results are waited for as always. It must not know pipes.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::decode::{Body, line::Delta};

/// How long lines are left alone: longer than a growing screen rests between two frames, so that each shows all.
const LULL: Duration = Duration::from_millis(100);

/// Bytes at once from which on nothing is left in the pipe: it holds four times as much, and must never be full.
const FLOOD: usize = 16 * 1024;

/// Until when nothing is taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lull(Option<Instant>);

impl Lull {
    /// After lines of `size` bytes in all, of which this was the last.
    pub(super) fn after(last: &Body<'_>, size: usize) -> Self {
        let speaks = matches!(last, Body::StreamEvent(Delta::Text(_) | Delta::Thinking(_)));
        Self((speaks && size < FLOOD).then(|| Instant::now() + LULL))
    }

    /// True if something is left in the pipe for a while.
    pub(super) fn is_some(self) -> bool {
        self.0.is_some()
    }

    /// Does `next` once the lull is over. May be dropped if `next` may.
    pub(super) async fn then<T>(self, next: impl Future<Output = T>) -> T {
        if let Some(end) = self.0 {
            sleep_until(end).await;
        }
        next.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode;

    fn rests(line: &str, size: usize) -> bool {
        Lull::after(&decode::line(line.as_bytes()).body, size).0.is_some()
    }

    #[test]
    fn only_a_piece_of_text_makes_a_lull() {
        let piece = |delta: &str| {
            format!(r#"{{"type":"stream_event","event":{{"type":"content_block_delta","index":0,"delta":{delta}}}}}"#)
        };
        assert!(rests(&piece(r#"{"type":"text_delta","text":"fox"}"#), 300));
        assert!(rests(&piece(r#"{"type":"thinking_delta","thinking":"hm"}"#), 300));
        assert!(!rests(&piece(r#"{"type":"text_delta","text":"fox"}"#), FLOOD), "the pipe must not fill up");
        for other in [
            &piece(r#"{"type":"input_json_delta","partial_json":"{"}"#),
            r#"{"type":"stream_event","event":{"type":"content_block_stop","index":0}}"#,
            r#"{"type":"assistant","message":{"content":[{"type":"text","text":"fox"}]}}"#,
            r#"{"type":"control_request","request_id":"r","request":{"subtype":"hook_callback"}}"#,
            r#"{"type":"result","subtype":"success","is_error":false}"#,
            "not JSON",
        ] {
            assert!(!rests(other, 300), "{other}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_next_waits_for_the_end_of_the_lull_and_no_longer() {
        let begun = Instant::now();
        Lull(Some(begun + LULL)).then(async {}).await;
        assert_eq!(begun.elapsed(), LULL);
        Lull::default().then(async {}).await;
        assert_eq!(begun.elapsed(), LULL);
    }
}
