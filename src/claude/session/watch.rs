//! What the lines of a session say about the session itself: which it is, which permissions it has, whether tools have run,
//! and whether it is complete. Pure.

use super::order;
use crate::{
    actions::{Identity, Part, Sighting, Turns},
    config::Mismatch,
    decode::{Block, Body, Line, line::System},
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
    /// It may do more than was asked for, and that is fatal.
    Breach(String),
}

/// Follows the ids, results and permission modes of one session, by the rules of the contract.
#[derive(Debug)]
pub(super) struct Watch {
    identity: Identity,
    turns: Turns,
    rule: Mismatch,
    /// Permission mode that was asked for.
    mode: &'static str,
    /// The last permission mode that it reported.
    reported: Option<String>,
    breach: Option<String>,
    begun: bool,
    tools_ran: bool,
}

impl Watch {
    /// Expects `session`, if one is resumed, in the permission mode `mode`.
    pub(super) fn new(session: Option<String>, rule: Mismatch, mode: &'static str) -> Self {
        let resuming = |session: String| Identity::resuming(&session, rule == Mismatch::Warn);
        Self {
            identity: session.map(resuming).unwrap_or_default(),
            turns: Turns::of_one_prompt(),
            rule,
            mode,
            reported: None,
            breach: None,
            begun: false,
            tools_ran: false,
        }
    }

    /// The session, once it is known.
    pub(super) fn session(&self) -> Option<&str> {
        self.identity.session()
    }

    /// The sentence of a fatal mismatch.
    pub(super) fn mismatch(&self) -> Option<&str> {
        self.identity.mismatch().filter(|_| self.rule == Mismatch::Error)
    }

    /// The sentence about a permission mode that nobody asked for.
    pub(super) fn breach(&self) -> Option<&str> {
        self.breach.as_deref()
    }

    /// It has announced a turn, or ended one.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Tools may have run. A call counts when it is announced: whether it ran cannot be known if nothing follows.
    pub(super) fn tools_ran(&self) -> bool {
        self.tools_ran
    }

    /// True from the result on, unless a background task will start another turn.
    pub(super) fn is_complete(&self) -> bool {
        self.turns.is_complete()
    }

    /// Takes in a line.
    pub(super) fn line(&mut self, line: &Line<'_>) -> Seen {
        self.tools_ran |= may_run_tools(&line.body);
        self.begun |= matches!(line.body, Body::Init(_) | Body::Result(_));
        if self.turns.push(line) == Part::Trailing {
            return Seen::Nothing;
        }
        let mode = match &line.body {
            Body::Init(init) => init.permission_mode.as_deref(),
            Body::System(System::Status { permission_mode }) => permission_mode.as_deref(),
            _ => None,
        };
        let of_mode = mode.map_or(Seen::Nothing, |mode| self.permission_mode(mode));
        let of_id = self.id(line);
        match (of_mode, of_id) {
            (breach @ Seen::Breach(_), _) => breach,
            (mode, Seen::Nothing) => mode,
            (_, id) => id,
        }
    }

    fn permission_mode(&mut self, mode: &str) -> Seen {
        if self.breach.is_some() || self.reported.replace(mode.to_owned()).as_deref() == Some(mode) {
            return Seen::Nothing;
        }
        let expected = self.mode;
        match mode {
            _ if mode == expected => Seen::Nothing,
            // These allow less.
            "default" | "plan" | "dontAsk" => {
                let text = format!("Claude Code runs in permission mode `{mode}` instead of `{expected}`");
                Seen::Said(Level::Warning, text)
            }
            // Nothing allows more than this one.
            _ if expected == order::BYPASS_MODE => Seen::Nothing,
            _ => {
                let text = format!(
                    "Claude Code runs in permission mode `{mode}` instead of `{expected}`, in which tools run that \
                     are not allowed"
                );
                self.breach = Some(text.clone());
                Seen::Breach(text)
            }
        }
    }

    fn id(&mut self, line: &Line<'_>) -> Seen {
        match self.identity.push(line) {
            Sighting::Known | Sighting::Refused => Seen::Nothing,
            Sighting::Tolerated(text) => Seen::Said(Level::Warning, text),
            Sighting::Mismatch(text) => Seen::Mismatch(text),
        }
    }
}

/// True for a line about a call or a background task, and for one that may hide a call.
fn may_run_tools(body: &Body<'_>) -> bool {
    match body {
        Body::Assistant(chat) | Body::User(chat) => chat
            .blocks
            .iter()
            .any(|block| matches!(block, Block::ToolUse(_) | Block::ToolResult(_) | Block::Unknown(_))),
        Body::ToolProgress { .. } | Body::System(System::Task { .. } | System::PermissionDenied { .. }) => true,
        Body::Malformed => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode;

    fn watch(resumed: Option<&str>, rule: Mismatch, lines: &[&str]) -> (Watch, Vec<Seen>) {
        let mut watch = Watch::new(resumed.map(str::to_owned), rule, "default");
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

    fn init(mode: &str) -> String {
        format!(r#"{{"type":"system","subtype":"init","session_id":"a","permissionMode":"{mode}"}}"#)
    }

    #[test]
    fn permission_mode_that_allows_more_than_asked_is_a_breach() {
        for mode in ["auto", "acceptEdits", "bypassPermissions", "of tomorrow"] {
            let (watch, seen) = watch(None, Mismatch::Error, &[&init(mode), &init(mode)]);
            let breach = watch.breach().unwrap();
            assert!(breach.contains(&format!("`{mode}` instead of `default`")), "{breach}");
            assert_eq!(seen, [Seen::Breach(breach.to_owned()), Seen::Nothing], "told once");
        }
        let status = r#"{"type":"system","subtype":"status","status":null,"permissionMode":"auto","session_id":"a"}"#;
        for changed in [&init("auto"), status] {
            let (changed, seen) = watch(None, Mismatch::Error, &[&init("default"), changed]);
            assert!(changed.breach().is_some() && matches!(&seen[..], [Seen::Nothing, Seen::Breach(_)]), "{seen:?}");
        }
    }

    #[test]
    fn permission_mode_that_allows_less_than_asked_is_a_warning() {
        for mode in ["plan", "dontAsk"] {
            let (watch, seen) = watch(None, Mismatch::Error, &[&init(mode), &init(mode)]);
            assert!(matches!(&seen[..], [Seen::Said(Level::Warning, text), Seen::Nothing] if text.contains(mode)));
            assert_eq!(watch.breach(), None);
        }
        for line in [init("default"), INIT_A.to_owned()] {
            assert_eq!(watch(None, Mismatch::Error, &[&line]).1, [Seen::Nothing]);
        }
        let mut bypassed = Watch::new(None, Mismatch::Error, order::BYPASS_MODE);
        for mode in ["bypassPermissions", "auto", "acceptEdits"] {
            assert_eq!(bypassed.line(&decode::line(init(mode).as_bytes())), Seen::Nothing, "{mode}");
        }
    }

    #[test]
    fn lines_that_may_be_about_a_call_count_as_tools_that_ran() {
        let ran = |line: &str| watch(None, Mismatch::Error, &[line]).0.tools_ran();
        let block = |kind: &str, block: &str| {
            format!(r#"{{"type":"{kind}","message":{{"role":"{kind}","content":[{block}]}}}}"#)
        };
        for line in [
            block("assistant", r#"{"type":"tool_use","id":"t","name":"Bash","input":{}}"#),
            block("assistant", r#"{"type":"block_of_tomorrow"}"#),
            block("user", r#"{"type":"tool_result","tool_use_id":"t","content":"x"}"#),
            r#"{"type":"tool_progress","tool_use_id":"t","elapsed_time_seconds":3}"#.into(),
            r#"{"type":"system","subtype":"task_started","task_id":"t"}"#.into(),
            r#"{"type":"assistant","message":{"content":[{"type":"tool_u"#.into(),
        ] {
            assert!(ran(&line), "{line}");
        }
        for line in [
            INIT_A.to_owned(),
            RESULT_A.to_owned(),
            block("assistant", r#"{"type":"text","text":"I will run Bash"}"#),
            block("assistant", r#"{"type":"thinking","thinking":"tool_use"}"#),
            r#"{"type":"system","subtype":"api_retry","attempt":1}"#.into(),
            r#"{"type":"rate_limit_event","rate_limit_info":{"status":"rejected"}}"#.into(),
        ] {
            assert!(!ran(&line), "{line}");
        }
    }

    #[test]
    fn result_that_knows_no_session_names_none() {
        let unknown = r#"{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"made-up","errors":["No conversation found with session ID: a"]}"#;
        let (resumed, seen) = watch(Some("a"), Mismatch::Error, &[unknown]);
        assert_eq!((resumed.mismatch(), seen), (None, vec![Seen::Nothing]));
        assert!(resumed.is_complete());
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
