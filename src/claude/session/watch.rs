//! What the lines of a session say about the session itself: which it is, and whether it is complete. Pure.

use crate::{
    actions::{Identity, Part, Sighting, Turns},
    config::Mismatch,
    decode::Line,
    tape::note::Level,
};

/// What a line told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Nothing about the session.
    Nothing,
    /// Something worth a remark.
    Said(Level, String),
    /// The session is not the one that was asked for, and that is fatal.
    Mismatch(String),
}

/// Follows the ids and the results of one session, by the rules of the contract.
#[derive(Debug)]
pub(super) struct Watch {
    identity: Identity,
    turns: Turns,
    rule: Mismatch,
}

impl Watch {
    /// Expects `session`, if one goes on.
    pub(super) fn new(session: Option<String>, rule: Mismatch) -> Self {
        let resuming = |session: String| Identity::resuming(&session, rule == Mismatch::Warn);
        let identity = session.map(resuming).unwrap_or_default();
        Self { identity, turns: Turns::of_one_prompt(), rule }
    }

    /// The session, once it is known.
    pub(super) fn session(&self) -> Option<&str> {
        self.identity.session()
    }

    /// The sentence of a fatal mismatch.
    pub(super) fn mismatch(&self) -> Option<&str> {
        self.identity.mismatch().filter(|_| self.rule == Mismatch::Error)
    }

    /// True from the result on, unless a background task will start another turn.
    pub(super) fn is_complete(&self) -> bool {
        self.turns.is_complete()
    }

    /// Takes in a line.
    pub(super) fn line(&mut self, line: &Line<'_>) -> Seen {
        if self.turns.push(line) == Part::Trailing {
            return Seen::Nothing;
        }
        match self.identity.push(line) {
            Sighting::Known | Sighting::Refused => Seen::Nothing,
            Sighting::Tolerated(text) => Seen::Said(Level::Warning, text),
            Sighting::Mismatch(text) => Seen::Mismatch(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode;

    fn watch(resumed: Option<&str>, rule: Mismatch, lines: &[&str]) -> (Watch, Vec<Seen>) {
        let mut watch = Watch::new(resumed.map(str::to_owned), rule);
        let seen = lines.iter().map(|line| watch.line(&decode::line(line.as_bytes()))).collect();
        (watch, seen)
    }

    const INIT_A: &str = r#"{"type":"system","subtype":"init","session_id":"a"}"#;
    const RESULT_A: &str = r#"{"is_error":false,"type":"result","subtype":"success","session_id":"a"}"#;
    const RESULT_B: &str = r#"{"is_error":false,"type":"result","subtype":"success","session_id":"b"}"#;

    #[test]
    fn a_resumed_session_keeps_its_id_or_ends() {
        let (same, seen) = watch(Some("a"), Mismatch::Error, &[INIT_A, RESULT_A]);
        assert_eq!((same.session(), same.mismatch(), seen), (Some("a"), None, vec![Seen::Nothing, Seen::Nothing]));

        let (other, seen) = watch(Some("a"), Mismatch::Error, &[RESULT_B, RESULT_B]);
        let text = "claude emitted session id b but expected a";
        assert_eq!((other.session(), other.mismatch()), (Some("a"), Some(text)));
        assert_eq!(seen, [Seen::Mismatch(text.into()), Seen::Nothing], "told once");

        let (warned, seen) = watch(Some("a"), Mismatch::Warn, &[RESULT_B, RESULT_B]);
        assert_eq!((warned.session(), warned.mismatch()), (Some("b"), None));
        assert_eq!(seen, [Seen::Said(Level::Warning, text.into()), Seen::Nothing]);
    }

    #[test]
    fn a_new_session_takes_the_first_id_from_any_line() {
        let hook = r#"{"type":"system","subtype":"hook_started","session_id":"a"}"#;
        let (new, seen) =
            watch(None, Mismatch::Error, &["not json", r#"{"type":"x","session_id":""}"#, hook, RESULT_B]);
        assert_eq!((new.session(), new.mismatch()), (Some("a"), None));
        assert!(seen.iter().all(|seen| *seen == Seen::Nothing));
    }

    #[test]
    fn a_result_completes_unless_a_task_runs_in_the_background() {
        let started = r#"{"type":"system","subtype":"task_started","task_id":"t","is_backgrounded":true}"#;
        let notified = r#"{"type":"system","subtype":"task_notification","task_id":"t","status":"completed"}"#;
        assert!(watch(None, Mismatch::Error, &[INIT_A, RESULT_A]).0.is_complete());
        assert!(!watch(None, Mismatch::Error, &[INIT_A, started, RESULT_A]).0.is_complete());
        assert!(watch(None, Mismatch::Error, &[INIT_A, started, RESULT_A, notified, INIT_A, RESULT_A]).0.is_complete());
    }
}
