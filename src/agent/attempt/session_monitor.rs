//! Facts that the lines of a session report about it: its id, its permission mode, whether tools have run, and whether
//! it is complete. Pure.

use super::work_log::WorkLog;
use ingestdeck_core::{
    actions::{LineRole, SessionCheck, SessionIdentity, TurnTracker},
    config::MismatchPolicy,
    control::AgentRequest,
    decode::{AgentLine, LineBody, MessageBlock, line::SystemLine},
    tape::note::Severity,
};

/// Permission mode in which every tool runs.
pub(crate) const BYPASS_PERMISSION_MODE: &str = "bypassPermissions";
/// Permission mode in which the model may only read and write its plan.
const PLAN_MODE: &str = "plan";

/// Result of evaluating a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SessionLineFinding {
    Nothing,
    /// A message for people.
    Message(Severity, String),
    /// The session is not the requested one, and the policy makes that fatal.
    Mismatch(String),
    /// The session has more permissions than requested, which is fatal.
    Breach(String),
}

/// What a person changed in a session; later turns keep it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionChanges {
    pub model: Option<String>,
    pub permission_mode: Option<String>,
}

/// Tracks the ids, results and permission modes of one session, by the rules of the contract.
#[derive(Debug)]
pub(crate) struct SessionMonitor {
    identity: SessionIdentity,
    turns: TurnTracker,
    mismatch_policy: MismatchPolicy,
    /// The requested permission mode.
    expected_mode: String,
    /// The last permission mode that it reported.
    reported_mode: Option<String>,
    /// Modes that a person asked for during the turn, and plan mode once the model begins to plan.
    requested_modes: Vec<String>,
    changes: SessionChanges,
    breach: Option<String>,
    /// The session that is locked, or is being locked.
    locked: Option<String>,
    /// False once locking has failed: it would fail again.
    can_lock: bool,
    has_begun: bool,
    tools_ran: bool,
    work: WorkLog,
}

impl SessionMonitor {
    /// Expects the resumed `session`, if any, and the permission mode `mode`.
    pub(crate) fn new(session: Option<String>, rule: MismatchPolicy, mode: &str) -> Self {
        let resuming =
            |session: String| SessionIdentity::resuming(&session, rule == MismatchPolicy::Warn);
        Self {
            locked: session.clone(),
            can_lock: true,
            identity: session.map(resuming).unwrap_or_default(),
            turns: TurnTracker::for_one_prompt(),
            mismatch_policy: rule,
            expected_mode: mode.to_owned(),
            reported_mode: None,
            requested_modes: Vec::new(),
            changes: SessionChanges::default(),
            breach: None,
            has_begun: false,
            tools_ran: false,
            work: WorkLog::default(),
        }
    }

    /// A person asks for this permission mode, or the model for plan mode, so it may be reported.
    pub(crate) fn expect_mode(&mut self, mode: &str) {
        if !self.requested_modes.iter().any(|asked| asked == mode) {
            self.requested_modes.push(mode.to_owned());
        }
    }

    /// The agent has carried out a request, which later turns repeat.
    pub(crate) fn record_change(&mut self, request: AgentRequest) {
        match request {
            AgentRequest::Model(model) => self.changes.model = Some(model),
            AgentRequest::PermissionMode(mode) => self.changes.permission_mode = Some(mode),
            AgentRequest::Context | AgentRequest::Usage | AgentRequest::StopTask(_) => {}
        }
    }

    /// What a person changed during the turn.
    pub(crate) fn changes(&self) -> &SessionChanges {
        &self.changes
    }

    /// The session id, once it is known.
    pub(crate) fn session(&self) -> Option<&str> {
        self.identity.session()
    }

    /// The session that has to be locked from now on: the running one, even if another one was requested.
    pub(crate) fn take_session_to_lock(&mut self) -> Option<String> {
        let session = self.identity.session().filter(|_| self.can_lock)?;
        if self.locked.as_deref() == Some(session) {
            return None;
        }
        self.locked = Some(session.to_owned());
        self.locked.clone()
    }

    pub(crate) fn stop_locking(&mut self) {
        self.can_lock = false;
    }

    /// Message about a fatal mismatch.
    pub(crate) fn mismatch(&self) -> Option<&str> {
        self.identity
            .mismatch()
            .filter(|_| self.mismatch_policy == MismatchPolicy::Error)
    }

    /// Message about a permission mode that was not requested.
    pub(crate) fn breach(&self) -> Option<&str> {
        self.breach.as_deref()
    }

    /// The session has announced a turn, or ended one.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Tools may have run. An announced call counts, because it may have run even if no result follows.
    pub(crate) fn tools_ran(&self) -> bool {
        self.tools_ran
    }

    /// True after the result, unless a background task will start another turn.
    pub(crate) fn is_complete(&self) -> bool {
        self.turns.is_complete()
    }

    /// What the session has done.
    pub(crate) fn work(&self) -> &WorkLog {
        &self.work
    }

    pub(crate) fn push_line(&mut self, line: &AgentLine<'_>) -> SessionLineFinding {
        self.work.push_line(line);
        self.tools_ran |= may_run_tools(&line.body);
        self.has_begun |= matches!(line.body, LineBody::Init(_) | LineBody::Result(_));
        if self.turns.push(line) == LineRole::Trailing {
            return SessionLineFinding::Nothing;
        }
        if begins_plan(&line.body) {
            self.expect_mode(PLAN_MODE);
        }
        let mode = match &line.body {
            LineBody::Init(init) => init.permission_mode.as_deref(),
            LineBody::System(SystemLine::Status { permission_mode }) => permission_mode.as_deref(),
            _ => None,
        };
        let of_mode = mode.map_or(SessionLineFinding::Nothing, |mode| {
            self.check_permission_mode(mode)
        });
        let of_id = self.check_session_id(line);
        match (of_mode, of_id) {
            (breach @ SessionLineFinding::Breach(_), _) => breach,
            (mode, SessionLineFinding::Nothing) => mode,
            (_, id) => id,
        }
    }

    fn check_permission_mode(&mut self, mode: &str) -> SessionLineFinding {
        if self.breach.is_some()
            || self.reported_mode.replace(mode.to_owned()).as_deref() == Some(mode)
        {
            return SessionLineFinding::Nothing;
        }
        let expected = self.expected_mode.as_str();
        match mode {
            _ if mode == expected => SessionLineFinding::Nothing,
            _ if self.requested_modes.iter().any(|asked| asked == mode) => {
                SessionLineFinding::Nothing
            }
            // These modes allow less.
            "default" | PLAN_MODE | "dontAsk" => {
                let text =
                    format!("Claude Code runs in permission mode `{mode}` instead of `{expected}`");
                SessionLineFinding::Message(Severity::Warning, text)
            }
            // The requested mode already allows everything.
            _ if expected == BYPASS_PERMISSION_MODE => SessionLineFinding::Nothing,
            _ => {
                let text = format!(
                    "Claude Code runs in permission mode `{mode}` instead of `{expected}`, in which tools run that \
                     are not allowed"
                );
                self.breach = Some(text.clone());
                SessionLineFinding::Breach(text)
            }
        }
    }

    fn check_session_id(&mut self, line: &AgentLine<'_>) -> SessionLineFinding {
        match self.identity.push(line) {
            SessionCheck::Unchanged | SessionCheck::UnknownSession => SessionLineFinding::Nothing,
            SessionCheck::Tolerated(text) => SessionLineFinding::Message(Severity::Warning, text),
            SessionCheck::Mismatch(text) => SessionLineFinding::Mismatch(text),
        }
    }
}

/// True if the model calls the tool that changes the session to plan mode.
fn begins_plan(body: &LineBody<'_>) -> bool {
    let LineBody::Assistant(chat) = body else {
        return false;
    };
    chat.blocks
        .iter()
        .any(|block| matches!(block, MessageBlock::ToolUse(call) if call.name == "EnterPlanMode"))
}

/// True for a line about a call or a background task, and for one that may hide a call.
fn may_run_tools(body: &LineBody<'_>) -> bool {
    match body {
        LineBody::Assistant(chat) | LineBody::User(chat) => chat.blocks.iter().any(|block| {
            matches!(
                block,
                MessageBlock::ToolUse(_) | MessageBlock::ToolResult(_) | MessageBlock::Unknown(_)
            )
        }),
        LineBody::ToolProgress { .. }
        | LineBody::System(SystemLine::Task(_) | SystemLine::PermissionDenied { .. }) => true,
        LineBody::Malformed => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingestdeck_core::decode;

    fn watch(
        resumed: Option<&str>,
        rule: MismatchPolicy,
        lines: &[&str],
    ) -> (SessionMonitor, Vec<SessionLineFinding>) {
        let mut watch = SessionMonitor::new(resumed.map(str::to_owned), rule, "default");
        let seen = lines
            .iter()
            .map(|line| watch.push_line(&decode::decode_line(line.as_bytes())))
            .collect();
        (watch, seen)
    }

    const INIT_A: &str = r#"{"type":"system","subtype":"init","session_id":"a"}"#;
    const RESULT_A: &str =
        r#"{"is_error":false,"type":"result","subtype":"success","session_id":"a"}"#;
    const RESULT_B: &str =
        r#"{"is_error":false,"type":"result","subtype":"success","session_id":"b"}"#;

    #[test]
    fn a_resumed_session_keeps_its_id_or_ends() {
        let (same, seen) = watch(Some("a"), MismatchPolicy::Error, &[INIT_A, RESULT_A]);
        assert_eq!(
            (same.session(), same.mismatch(), seen),
            (
                Some("a"),
                None,
                vec![SessionLineFinding::Nothing, SessionLineFinding::Nothing]
            )
        );

        let (other, seen) = watch(Some("a"), MismatchPolicy::Error, &[RESULT_B, RESULT_B]);
        let text = "claude emitted session id b but expected a";
        assert_eq!((other.session(), other.mismatch()), (Some("a"), Some(text)));
        assert_eq!(
            seen,
            [
                SessionLineFinding::Mismatch(text.into()),
                SessionLineFinding::Nothing
            ],
            "reported once"
        );

        let (warned, seen) = watch(Some("a"), MismatchPolicy::Warn, &[RESULT_B, RESULT_B]);
        assert_eq!((warned.session(), warned.mismatch()), (Some("b"), None));
        assert_eq!(
            seen,
            [
                SessionLineFinding::Message(Severity::Warning, text.into()),
                SessionLineFinding::Nothing
            ]
        );
    }

    #[test]
    fn a_new_session_takes_the_first_id_from_any_line() {
        let hook = r#"{"type":"system","subtype":"hook_started","session_id":"a"}"#;
        let (new, seen) = watch(
            None,
            MismatchPolicy::Error,
            &[
                "not json",
                r#"{"type":"x","session_id":""}"#,
                hook,
                RESULT_B,
            ],
        );
        assert_eq!((new.session(), new.mismatch()), (Some("a"), None));
        assert!(seen.iter().all(|seen| *seen == SessionLineFinding::Nothing));
    }

    fn init(mode: &str) -> String {
        format!(
            r#"{{"type":"system","subtype":"init","session_id":"a","permissionMode":"{mode}"}}"#
        )
    }

    #[test]
    fn permission_mode_that_allows_more_than_asked_is_a_breach() {
        for mode in ["auto", "acceptEdits", "bypassPermissions", "of tomorrow"] {
            let (watch, seen) = watch(None, MismatchPolicy::Error, &[&init(mode), &init(mode)]);
            let breach = watch.breach().unwrap();
            assert!(
                breach.contains(&format!("`{mode}` instead of `default`")),
                "{breach}"
            );
            assert_eq!(
                seen,
                [
                    SessionLineFinding::Breach(breach.to_owned()),
                    SessionLineFinding::Nothing
                ],
                "reported once"
            );
        }
        let status = r#"{"type":"system","subtype":"status","status":null,"permissionMode":"auto","session_id":"a"}"#;
        for changed in [&init("auto"), status] {
            let (changed, seen) = watch(None, MismatchPolicy::Error, &[&init("default"), changed]);
            assert!(
                changed.breach().is_some()
                    && matches!(
                        &seen[..],
                        [SessionLineFinding::Nothing, SessionLineFinding::Breach(_)]
                    ),
                "{seen:?}"
            );
        }
    }

    #[test]
    fn permission_mode_that_allows_less_than_asked_is_a_warning() {
        for mode in ["plan", "dontAsk"] {
            let (watch, seen) = watch(None, MismatchPolicy::Error, &[&init(mode), &init(mode)]);
            assert!(
                matches!(&seen[..], [SessionLineFinding::Message(Severity::Warning, text), SessionLineFinding::Nothing] if text.contains(mode))
            );
            assert_eq!(watch.breach(), None);
        }
        for line in [init("default"), INIT_A.to_owned()] {
            assert_eq!(
                watch(None, MismatchPolicy::Error, &[&line]).1,
                [SessionLineFinding::Nothing]
            );
        }
        let mut bypassed = SessionMonitor::new(None, MismatchPolicy::Error, BYPASS_PERMISSION_MODE);
        for mode in ["bypassPermissions", "auto", "acceptEdits"] {
            assert_eq!(
                bypassed.push_line(&decode::decode_line(init(mode).as_bytes())),
                SessionLineFinding::Nothing,
                "{mode}"
            );
        }
    }

    #[test]
    fn plan_mode_that_the_model_enters_is_expected() {
        let call = r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t","name":"EnterPlanMode","input":{}}]}}"#;
        let status = |mode: &str| {
            format!(
                r#"{{"type":"system","subtype":"status","status":null,"permissionMode":"{mode}","session_id":"a"}}"#
            )
        };
        let lines = [&init("default"), call, &status("plan"), &status("default")];
        let (_, seen) = watch(None, MismatchPolicy::Error, &lines);
        assert!(
            seen.iter().all(|it| *it == SessionLineFinding::Nothing),
            "{seen:?}"
        );
        // Other modes are still compared.
        let (monitor, _) = watch(None, MismatchPolicy::Error, &[call, &status("auto")]);
        assert!(monitor.breach().is_some());
    }

    #[test]
    fn lines_that_may_be_about_a_call_count_as_tools_that_ran() {
        let ran = |line: &str| watch(None, MismatchPolicy::Error, &[line]).0.tools_ran();
        let block = |kind: &str, block: &str| {
            format!(r#"{{"type":"{kind}","message":{{"role":"{kind}","content":[{block}]}}}}"#)
        };
        for line in [
            block(
                "assistant",
                r#"{"type":"tool_use","id":"t","name":"Bash","input":{}}"#,
            ),
            block("assistant", r#"{"type":"block_of_tomorrow"}"#),
            block(
                "user",
                r#"{"type":"tool_result","tool_use_id":"t","content":"x"}"#,
            ),
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
        let (resumed, seen) = watch(Some("a"), MismatchPolicy::Error, &[unknown]);
        assert_eq!(
            (resumed.mismatch(), seen),
            (None, vec![SessionLineFinding::Nothing])
        );
        assert!(resumed.is_complete());
    }

    #[test]
    fn a_result_completes_unless_a_task_runs_in_the_background() {
        let started =
            r#"{"type":"system","subtype":"task_started","task_id":"t","is_backgrounded":true}"#;
        let notified =
            r#"{"type":"system","subtype":"task_notification","task_id":"t","status":"completed"}"#;
        assert!(
            watch(None, MismatchPolicy::Error, &[INIT_A, RESULT_A])
                .0
                .is_complete()
        );
        assert!(
            !watch(None, MismatchPolicy::Error, &[INIT_A, started, RESULT_A])
                .0
                .is_complete()
        );
        assert!(
            watch(
                None,
                MismatchPolicy::Error,
                &[INIT_A, started, RESULT_A, notified, INIT_A, RESULT_A]
            )
            .0
            .is_complete()
        );
    }
}
