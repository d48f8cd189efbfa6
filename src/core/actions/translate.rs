//! The translator of one attempt: it converts lines to events, in the order of the stream.
//!
//! Owns the rules of the contract: one `started`, stable ids, warnings before the one `completed`, nothing after it. It
//! must not depend on the source of lines; the caller reports the end of the process as [`StreamEnd`].

mod prompts;

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use super::{
    call_history::{CallHistory, OngoingCall},
    call_title,
    completion::{CompletionResult, SessionFileState, StreamEnd, is_turn_end},
    event::{
        ActionDetail, ActionEvent, ActionKind, ActionPhase, AgentAction, AgentEvent,
        CompletedEvent, JsonText, ResultDetail, StartedEvent, StartedMeta, ToolDetail,
    },
    session_identity::{SessionCheck, SessionIdentity},
    stream_state::StreamState,
    turn_tracker::LineRole,
};
use crate::decode::{
    self, AgentLine, ChatLine, LazyText, LineBody, MessageBlock, RawJson, ResultLine, ToolResult,
    ToolUse,
    line::{InitLine, PermissionDenial, SYNTHETIC_MODEL, SessionFileLine, SystemLine},
};

/// Maximum size of a result's content in an event, in bytes of its JSON.
const MAX_CONTENT_BYTES: usize = 64 << 10;

/// Maximum length of a thought's title in characters.
const MAX_THOUGHT_TITLE_CHARS: usize = 300;

/// Maximum number of bytes of a malformed line that are shown.
const MAX_MALFORMED_LINE_BYTES: usize = 1024;

/// Receives events, which borrow from the line and from the state of the translator.
type EmitEvent<'e> = &'e mut dyn FnMut(AgentEvent<'_>);

/// State of one attempt's translation. Cheap to clone: its parts are shared or small.
#[derive(Clone, Debug, Default)]
pub struct EventTranslator {
    identity: SessionIdentity,
    /// The last result. It becomes `completed` if no other turn follows.
    outcome: Option<CompletionResult>,
    /// Model of an `init` that had no session id.
    model: Option<Arc<str>>,
    started: bool,
    is_complete: bool,
    note_count: u32,
    thought_count: u32,
    unnamed_call_count: u32,
    calls: CallHistory,
    /// Ids of reported denials, without their prefix.
    reported_denials: Arc<HashSet<Box<str>>>,
    session_file: SessionFileState,
    /// Prompts that wait for the start of the session.
    waiting_prompts: Arc<Vec<Arc<str>>>,
}

impl EventTranslator {
    /// The attempt continues an earlier session. Must be called before the first line.
    pub(crate) fn set_identity(&mut self, identity: SessionIdentity) {
        self.identity = identity;
    }

    /// The session that answered, or else the requested one.
    pub(crate) fn session(&self) -> Option<&str> {
        self.identity.session()
    }

    pub(crate) fn observed_session(&self) -> Option<&str> {
        self.identity.observed()
    }

    /// The message about a session that answered instead of the requested one.
    pub(crate) fn mismatch(&self) -> Option<&str> {
        self.identity.mismatch()
    }

    /// True for a line whose session ends the run: its content does not belong to the run.
    pub(crate) fn is_mismatch(&self, line: &AgentLine<'_>) -> bool {
        self.identity.is_mismatch(line)
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Translates one stdout line. `stream` is the state after the line, which has this `role` in it; `bytes` is the
    /// undecoded line, for the warning about a malformed one.
    pub fn push(
        &mut self,
        (line, role): (&AgentLine<'_>, LineRole),
        bytes: &[u8],
        stream: &StreamState,
        emit: EmitEvent<'_>,
    ) {
        if self.is_complete || role == LineRole::Trailing || !self.identify(line, stream, emit) {
            return;
        }
        if line.is_session_file {
            self.session_file.begin();
        }
        match &line.body {
            LineBody::Init(init) => self.init(init, emit),
            LineBody::Assistant(chat) => {
                self.emit_started(chat.model.as_ref(), emit);
                self.chat(line, chat, true, emit);
            }
            LineBody::User(chat) => {
                // Session files begin with the prompt, before the model is known.
                if !line.is_session_file {
                    self.emit_started(None, emit);
                }
                self.chat(line, chat, false, emit);
            }
            LineBody::StreamEvent(_) => self.emit_started(None, emit),
            LineBody::ToolProgress {
                tool_use_id,
                elapsed_seconds,
            } => self.emit_progress(tool_use_id.clone(), *elapsed_seconds, emit),
            LineBody::System(SystemLine::PermissionDenied {
                tool_name,
                tool_use_id,
                ..
            }) => {
                let input = self
                    .calls
                    .get(tool_use_id)
                    .and_then(|call| call.input.clone())
                    .map(JsonText::Shared);
                let [tool_name, tool_use_id] =
                    [tool_name, tool_use_id].map(|text| Some(text).filter(|text| !text.is_empty()));
                self.emit_denial(
                    tool_name.cloned(),
                    tool_use_id.cloned(),
                    input,
                    self.reported_denials.len(),
                    emit,
                );
            }
            LineBody::Result(result) => self.result(result, stream, emit),
            LineBody::SessionFile(SessionFileLine::QueuedText(author, text)) => {
                self.prompt(*author, text, emit)
            }
            LineBody::Malformed => self.emit_malformed(bytes, emit),
            LineBody::System(SystemLine::Other(subtype))
                if line.is_session_file && is_turn_end(subtype) =>
            {
                self.session_file.end_turn();
            }
            LineBody::Control {
                kind,
                subtype,
                payload: Some(payload),
                ..
            } if kind == "control_request" && subtype == "can_use_tool" => {
                if let Some(id) = payload.get("tool_use_id").and_then(RawJson::as_str) {
                    self.calls.mark_waiting(&id);
                }
            }
            LineBody::System(_)
            | LineBody::RateLimit(_)
            | LineBody::Control { .. }
            | LineBody::SessionFile(_)
            | LineBody::Other(_) => {}
        }
    }

    /// True for a session file in which nothing was asked.
    pub(crate) fn has_no_turn(&self) -> bool {
        self.session_file.has_no_turn()
    }

    /// Handles the end of the stream: closes open actions and emits the one `completed`.
    pub fn finish(&mut self, ended: &StreamEnd, stream: &StreamState, emit: EmitEvent<'_>) {
        if self.is_complete {
            return;
        }
        self.emit_started(None, emit);
        // A turn that was cut off has no result, regardless of the turns before it.
        let last = self.outcome.take().filter(|_| !stream.turns().is_in_turn());
        let outcome = match (last, ended.failure_message()) {
            (Some(outcome), _) => outcome,
            (None, Some(failure)) => {
                self.emit_warning(failure.clone(), ActionDetail::Empty, emit);
                CompletionResult::failure(failure, &stream.last_text())
            }
            (None, None) => match &ended.not_started {
                Some(why) => CompletionResult::failure(why.clone(), ""),
                None if self.calls.has_waiting() => CompletionResult::failure(
                    "the record ends while a call waits for an answer".to_owned(),
                    &stream.last_text(),
                ),
                None => CompletionResult::without_result(
                    self.identity.observed().is_some(),
                    &self.session_file,
                    &stream.last_text(),
                ),
            },
        };
        self.complete(outcome, emit);
    }

    /// Determines the session of a line. Returns false if the line must not be translated, because its session ends the
    /// run.
    fn identify(
        &mut self,
        line: &AgentLine<'_>,
        stream: &StreamState,
        emit: EmitEvent<'_>,
    ) -> bool {
        let outcome = match (self.identity.push(line), &line.body) {
            (SessionCheck::UnknownSession, LineBody::Result(result)) => {
                CompletionResult::from_result(result, stream)
            }
            (SessionCheck::Mismatch(text), _) => {
                CompletionResult::failure(text, &stream.last_text())
            }
            (SessionCheck::Tolerated(text), _) => {
                self.emit_warning(text, ActionDetail::Empty, emit);
                return true;
            }
            (SessionCheck::Unchanged | SessionCheck::UnknownSession, _) => return true,
        };
        self.complete(outcome, emit);
        false
    }

    fn init(&mut self, init: &InitLine<'_>, emit: EmitEvent<'_>) {
        if self.started {
            return;
        }
        let Some(session) = self.identity.observed() else {
            self.model = init.model.as_deref().map(Arc::from);
            return;
        };
        let meta = StartedMeta {
            cwd: init.cwd.clone(),
            tools: init.tools_raw,
            permission_mode: init.permission_mode.clone(),
            output_style: init.output_style.clone(),
            api_key_source: init.api_key_source.clone(),
            mcp_servers: init.mcp_servers_raw,
        };
        self.started = true;
        let title = init.model.clone().unwrap_or_else(|| self.fallback_title());
        emit(AgentEvent::Started(StartedEvent {
            resume: session.into(),
            title,
            meta: Some(Box::new(meta)),
        }));
    }

    /// Emits `started` without an `init`, once the session is known.
    fn emit_started(&mut self, model: Option<&Cow<'_, str>>, emit: EmitEvent<'_>) {
        if self.started {
            return;
        }
        let Some(session) = self.identity.observed() else {
            return;
        };
        self.started = true;
        let model = model.filter(|model| *model != SYNTHETIC_MODEL).cloned();
        let title = model.unwrap_or_else(|| self.fallback_title());
        emit(AgentEvent::Started(StartedEvent {
            resume: session.into(),
            title,
            meta: None,
        }));
        self.emit_waiting_prompts(emit);
    }

    fn fallback_title(&self) -> Cow<'_, str> {
        self.model.as_deref().unwrap_or(super::event::ENGINE).into()
    }

    fn chat(
        &mut self,
        line: &AgentLine<'_>,
        chat: &ChatLine<'_>,
        of_model: bool,
        emit: EmitEvent<'_>,
    ) {
        let parent = line.parent_tool_use_id.as_ref();
        for block in &chat.blocks {
            match block {
                MessageBlock::Thinking(text) if of_model => self.emit_thought(text, parent, emit),
                MessageBlock::ToolUse(call) => {
                    self.call(call, chat.message_id.as_ref(), parent, emit)
                }
                MessageBlock::ToolResult(result) => {
                    self.call_result(result, chat.message_id.as_ref(), parent, emit)
                }
                MessageBlock::Text(text)
                    if line.is_session_file && !of_model && !chat.synthetic =>
                {
                    self.prompt(chat.author, text, emit);
                }
                MessageBlock::Text(_)
                | MessageBlock::Thinking(_)
                | MessageBlock::Image(_)
                | MessageBlock::Unknown(_) => {}
            }
        }
        if line.is_session_file {
            if of_model {
                self.session_file = SessionFileState::after_answer(chat);
            } else {
                self.session_file.push_user(chat);
            }
        } else if self.session_file.has_no_turn() {
            // Other programs leave out the session in most lines.
            self.session_file = SessionFileState::InProgress;
        }
    }

    fn emit_thought(
        &mut self,
        text: &LazyText<'_>,
        parent: Option<&Cow<'_, str>>,
        emit: EmitEvent<'_>,
    ) {
        let Some(title) = thought_title(text) else {
            return;
        };
        self.thought_count += 1;
        let action = AgentAction {
            id: Cow::Owned(format!("claude.thinking.{}", self.thought_count)),
            kind: ActionKind::Note,
            title: Cow::Owned(title),
            detail: ActionDetail::Thinking {
                text: text.borrowed(),
                parent_tool_use_id: parent.cloned(),
            },
        };
        emit(action_event(
            action,
            ActionPhase::Completed,
            Some(true),
            None,
        ));
    }

    fn call(
        &mut self,
        call: &ToolUse<'_>,
        message_id: Option<&Cow<'_, str>>,
        parent: Option<&Cow<'_, str>>,
        emit: EmitEvent<'_>,
    ) {
        let id = self.call_id_or_new(&call.id);
        let titled = call_title::call_title(&call.name, call.input);
        let mut open = OngoingCall::new(titled.kind, &call.name, &titled.title);
        open.file_change = titled.change;
        open.message_id = message_id.map(|id| Arc::from(&**id));
        open.parent_tool_use_id = parent.map(|id| Arc::from(&**id));
        self.calls.open(&id, open, call.input.map(|input| input.0));
        let detail = ToolDetail {
            tool_name: Some(call.name.clone()),
            tool_input: call.input.map(JsonText::Line),
            message_id: message_id.cloned(),
            parent_tool_use_id: parent.cloned(),
            changes: titled.change.map(|change| (titled.title.clone(), change)),
            ..ToolDetail::default()
        };
        let action = AgentAction {
            id,
            kind: titled.kind,
            title: titled.title,
            detail: ActionDetail::Tool(Box::new(detail)),
        };
        emit(action_event(action, ActionPhase::Started, None, None));
    }

    fn call_result(
        &mut self,
        result: &ToolResult<'_>,
        message_id: Option<&Cow<'_, str>>,
        parent: Option<&Cow<'_, str>>,
        emit: EmitEvent<'_>,
    ) {
        let is_error = result.is_error == Some(true);
        let length = result.content_len;
        let truncated = length > MAX_CONTENT_BYTES;
        let found = ResultDetail {
            tool_use_id: result.tool_use_id.clone(),
            content: result.content.filter(|_| !truncated),
            result_len: length,
            truncated,
            is_error,
        };
        let id = self.call_id_or_new(&result.tool_use_id);
        let finished = self.calls.finish(&result.tool_use_id);
        let (kind, title, mut detail) = match &finished {
            Some(call) => (call.kind, Cow::Borrowed(&*call.title), call_detail(call)),
            None => match self.calls.finished(&result.tool_use_id) {
                Some(past) => {
                    let detail = ToolDetail {
                        tool_name: Some(past.name.into()),
                        ..ToolDetail::default()
                    };
                    (past.kind, past.title.into(), detail)
                }
                None => (
                    ActionKind::Tool,
                    Cow::Borrowed("tool result"),
                    ToolDetail::default(),
                ),
            },
        };
        detail.message_id = message_id.cloned().or(detail.message_id);
        detail.parent_tool_use_id = parent.cloned().or(detail.parent_tool_use_id);
        detail.result = Some(found);
        let action = AgentAction {
            id,
            kind,
            title,
            detail: ActionDetail::Tool(Box::new(detail)),
        };
        emit(action_event(
            action,
            ActionPhase::Completed,
            Some(!is_error),
            None,
        ));
    }

    /// Returns the id of a call, or a generated one for a call without an id.
    fn call_id_or_new<'a>(&mut self, id: &Cow<'a, str>) -> Cow<'a, str> {
        if !id.is_empty() {
            return id.clone();
        }
        self.unnamed_call_count += 1;
        Cow::Owned(format!("claude.tool.{}", self.unnamed_call_count))
    }

    fn emit_progress(&self, id: Cow<'_, str>, elapsed_seconds: f64, emit: EmitEvent<'_>) {
        let Some(call) = self.calls.get(&id) else {
            return;
        };
        let detail = ToolDetail {
            elapsed_seconds: Some(elapsed_seconds),
            ..call_detail(call)
        };
        let action = AgentAction {
            id,
            kind: call.kind,
            title: Cow::Borrowed(&call.title),
            detail: ActionDetail::Tool(Box::new(detail)),
        };
        let message = Cow::Owned(format!("running for {elapsed_seconds} s"));
        emit(action_event(
            action,
            ActionPhase::Updated,
            None,
            Some(message),
        ));
    }

    /// Emits a warning about a denial, unless its call already reported it. `index` numbers denials without a call id.
    fn emit_denial(
        &mut self,
        tool_name: Option<Cow<'_, str>>,
        tool_use_id: Option<Cow<'_, str>>,
        tool_input: Option<JsonText<'_>>,
        index: usize,
        emit: EmitEvent<'_>,
    ) {
        let denied = Arc::make_mut(&mut self.reported_denials);
        let key = match &tool_use_id {
            Some(id) => id.to_string(),
            None => (index..)
                .map(|n| n.to_string())
                .find(|n| !denied.contains(n.as_str()))
                .unwrap_or_default(),
        };
        if !denied.insert(key.as_str().into()) {
            return;
        }
        let action = AgentAction {
            id: Cow::Owned(format!("claude.permission.{key}")),
            kind: ActionKind::Warning,
            title: match &tool_name {
                Some(name) => Cow::Owned(format!("permission denied: {name}")),
                None => Cow::Borrowed("permission denied"),
            },
            detail: ActionDetail::Denial {
                tool_name,
                tool_use_id,
                tool_input,
            },
        };
        emit(action_event(
            action,
            ActionPhase::Completed,
            Some(false),
            None,
        ));
    }

    fn emit_malformed(&mut self, bytes: &[u8], emit: EmitEvent<'_>) {
        let bytes = bytes.trim_ascii();
        if bytes.is_empty() {
            return;
        }
        let line = truncate_lossy(bytes, MAX_MALFORMED_LINE_BYTES);
        let text = if decode::is_json(bytes) {
            "line without a type or message; ignoring it"
        } else {
            "invalid JSON from claude; ignoring line"
        };
        self.emit_warning(text.to_owned(), ActionDetail::MalformedLine(line), emit);
    }

    fn emit_warning(&mut self, text: String, detail: ActionDetail<'_>, emit: EmitEvent<'_>) {
        self.note_count += 1;
        let action = AgentAction {
            id: Cow::Owned(format!("claude.note.{}", self.note_count)),
            kind: ActionKind::Warning,
            title: Cow::Owned(text.clone()),
            detail,
        };
        emit(action_event(
            action,
            ActionPhase::Completed,
            Some(false),
            Some(Cow::Owned(text)),
        ));
    }

    fn result(&mut self, result: &ResultLine<'_>, stream: &StreamState, emit: EmitEvent<'_>) {
        self.emit_started(None, emit);
        for (index, denial) in result.denials.iter().enumerate() {
            let PermissionDenial {
                tool_name,
                tool_use_id,
                tool_input,
            } = denial;
            self.emit_denial(
                tool_name.clone(),
                tool_use_id.clone(),
                tool_input.map(JsonText::Line),
                index,
                emit,
            );
        }
        let outcome = CompletionResult::from_result(result, stream);
        if stream.turns().is_closed() {
            self.complete(outcome, emit);
        } else {
            self.outcome = Some(outcome);
        }
    }

    fn complete(&mut self, outcome: CompletionResult, emit: EmitEvent<'_>) {
        for (id, call) in self.calls.drain() {
            let action = AgentAction {
                id: Cow::Borrowed(&id),
                kind: call.kind,
                title: Cow::Borrowed(&call.title),
                detail: ActionDetail::Tool(Box::new(call_detail(&call))),
            };
            let message = Cow::Borrowed(if call.waits_for_answer {
                "it waited for an answer when the record ended"
            } else {
                "no result before the run ended"
            });
            emit(action_event(
                action,
                ActionPhase::Completed,
                Some(false),
                Some(message),
            ));
        }
        self.is_complete = true;
        emit(AgentEvent::Completed(Box::new(CompletedEvent {
            ok: outcome.ok,
            answer: Cow::Owned(outcome.answer),
            resume: self.identity.session().map(Cow::Borrowed),
            error: outcome.error.map(Cow::Owned),
            usage: outcome.usage.map(JsonText::Shared),
        })));
    }
}

/// Returns the first line of a thought, cut to the length of a title; `None` if it is blank.
fn thought_title(thought: &LazyText<'_>) -> Option<String> {
    // Most thoughts begin with a short line. A longer prefix is used only if this one ends before a full title.
    let (start, whole) = thought.prefix(2 * MAX_THOUGHT_TITLE_CHARS);
    let title = |text: &str| {
        let first = text.lines().map(str::trim).find(|line| !line.is_empty())?;
        Some(
            first
                .chars()
                .take(MAX_THOUGHT_TITLE_CHARS)
                .collect::<String>(),
        )
    };
    let found = title(&start);
    let is_sure = |found: &String| {
        found.chars().count() == MAX_THOUGHT_TITLE_CHARS || start.trim_start().contains('\n')
    };
    if whole || found.as_ref().is_some_and(is_sure) {
        found
    } else {
        title(&thought.text())
    }
}

/// Returns the detail of a call from its stored parts.
fn call_detail(call: &OngoingCall) -> ToolDetail<'_> {
    ToolDetail {
        tool_name: Some(Cow::Borrowed(&call.name)),
        tool_input: call.input.clone().map(JsonText::Shared),
        message_id: call.message_id.as_deref().map(Cow::Borrowed),
        parent_tool_use_id: call.parent_tool_use_id.as_deref().map(Cow::Borrowed),
        changes: call
            .file_change
            .map(|change| (Cow::Borrowed(&*call.title), change)),
        ..ToolDetail::default()
    }
}

fn action_event<'a>(
    action: AgentAction<'a>,
    phase: ActionPhase,
    ok: Option<bool>,
    message: Option<Cow<'a, str>>,
) -> AgentEvent<'a> {
    AgentEvent::Action(Box::new(ActionEvent {
        action,
        phase,
        ok,
        message,
    }))
}

/// Converts the first `longest` bytes to text, without a partial character at the end.
fn truncate_lossy(bytes: &[u8], longest: usize) -> Cow<'_, str> {
    let Some(start) = bytes.get(..longest) else {
        return String::from_utf8_lossy(bytes);
    };
    let torn = match std::str::from_utf8(start) {
        Err(error) if error.error_len().is_none() => longest - error.valid_up_to(),
        _ => 0,
    };
    String::from_utf8_lossy(&start[..longest - torn])
}
