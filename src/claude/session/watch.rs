//! What the lines of a session say about the session itself: which it is, and whether it is complete. Pure.

use std::collections::HashSet;

use crate::{
    config::Mismatch,
    decode::{Body, Line, line::System},
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

/// Follows the ids and the results of one session.
#[derive(Debug)]
pub(super) struct Watch {
    session: Option<String>,
    resumed: bool,
    rule: Mismatch,
    mismatch: Option<String>,
    /// Background tasks that have not reported back.
    background: HashSet<String>,
    complete: bool,
}

impl Watch {
    /// Expects `session`, if one goes on.
    pub(super) fn new(session: Option<String>, rule: Mismatch) -> Self {
        let resumed = session.is_some();
        Self { session, resumed, rule, mismatch: None, background: HashSet::new(), complete: false }
    }

    /// The session, once it is known.
    pub(super) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// The sentence of a fatal mismatch.
    pub(super) fn mismatch(&self) -> Option<&str> {
        self.mismatch.as_deref()
    }

    /// True from the result on, unless a background task will start another turn.
    pub(super) fn is_complete(&self) -> bool {
        self.complete && self.background.is_empty()
    }

    /// Takes in a line.
    pub(super) fn line(&mut self, line: &Line<'_>) -> Seen {
        match &line.body {
            Body::Result(_) => self.complete = true,
            Body::Init(_) => self.complete = false,
            Body::System(System::Task { subtype, task_id: Some(task), backgrounded, .. }) => match subtype.as_ref() {
                "task_started" if *backgrounded => {
                    self.background.insert(task.to_string());
                }
                "task_notification" => {
                    self.background.remove(task.as_ref());
                }
                _ => {}
            },
            _ => {}
        }
        match line.session_id.as_deref() {
            Some(id) if !id.is_empty() => self.id(id),
            _ => Seen::Nothing,
        }
    }

    fn id(&mut self, id: &str) -> Seen {
        let Some(known) = &self.session else {
            self.session = Some(id.to_owned());
            return Seen::Nothing;
        };
        if known == id || self.mismatch.is_some() {
            return Seen::Nothing;
        }
        // A new session that changes its mind keeps its first id.
        if !self.resumed {
            return Seen::Nothing;
        }
        let text = format!("claude emitted session id {id} but expected {known}");
        match self.rule {
            Mismatch::Error => {
                self.mismatch = Some(text.clone());
                Seen::Mismatch(text)
            }
            Mismatch::Warn => {
                self.session = Some(id.to_owned());
                Seen::Said(Level::Warning, text)
            }
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
        assert!(!watch(None, Mismatch::Error, &[INIT_A, RESULT_A, INIT_A]).0.is_complete());
        assert!(!watch(None, Mismatch::Error, &[INIT_A, started, RESULT_A]).0.is_complete());
        assert!(watch(None, Mismatch::Error, &[INIT_A, started, RESULT_A, notified, INIT_A, RESULT_A]).0.is_complete());
    }
}
