//! The translator of one attempt: lines in, events out, in the order of the stream.
//!
//! Owns the rules of the contract: one `started`, stable ids, warnings before the one `completed`, nothing after it.
//! It must not know where lines come from; what a process did at its end it is told by [`Ended`].

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use super::{
    calls::{Call, Calls, owned},
    event::{
        Action, ActionEvent, ActionKind, Completed, Detail, Event, EventLevel, Json, Meta, Phase, ResultDetail,
        Started, ToolDetail,
    },
    identity::{Identity, Sighting},
    outcome::{Ended, Outcome, SessionFile},
    title,
    turns::{Part, Turns},
};
use crate::decode::{
    Block, Body, Chat, Line, Prose, ResultLine, ToolResult, ToolUse,
    line::{Denial, Init, System},
};

/// Longest content of a result that is handed on, in bytes of its JSON.
const LONGEST_CONTENT: usize = 64 << 10;

/// Longest title of a thought, in characters.
const LONGEST_THOUGHT_TITLE: usize = 300;

/// Longest piece of a malformed line that is shown, in bytes.
const LONGEST_BAD_LINE: usize = 1024;

/// Model name of messages that the CLI wrote itself.
const SYNTHETIC: &str = "<synthetic>";

type Emit<'e, 'a> = &'e mut dyn FnMut(Event<'a>);

/// State of one attempt's translation. Cheap to clone: what it remembers is shared or small.
#[derive(Clone, Debug, Default)]
pub struct Translator {
    identity: Identity,
    turns: Turns,
    /// The last result, which completes if no other turn follows.
    outcome: Option<Outcome>,
    silent_thoughts: bool,
    /// Model of an `init` that had no session id.
    model: Option<Arc<str>>,
    started: bool,
    done: bool,
    notes: u32,
    thoughts: u32,
    nameless: u32,
    calls: Calls,
    /// Ids of denials that were told, without their prefix.
    denied: Arc<HashSet<Box<str>>>,
    text: Arc<Prose<'static>>,
    nested_text: Arc<Prose<'static>>,
    file: SessionFile,
}

impl Translator {
    /// A translator of an attempt that takes `turns`.
    pub fn new(turns: Turns) -> Self {
        Self { turns, ..Self::default() }
    }

    /// The attempt continues an earlier session. To be called before the first line.
    pub fn resume(&mut self, identity: Identity) {
        self.identity = identity;
    }

    /// Thinking gives no notes.
    pub fn without_thinking(mut self) -> Self {
        self.silent_thoughts = true;
        self
    }

    /// The session that answered, or the one that was asked for.
    pub fn session(&self) -> Option<&str> {
        self.identity.session()
    }

    /// Last text of the model, of the main loop if it said any; empty before the first.
    pub fn last_text(&self) -> Cow<'_, str> {
        if self.text.is_empty() { self.nested_text.read() } else { self.text.read() }
    }

    /// Calls without a result.
    pub fn open_calls(&self) -> usize {
        self.calls.open_count()
    }

    /// The session that answered.
    pub fn seen(&self) -> Option<&str> {
        self.identity.seen()
    }

    /// The sentence about another session that answered than the one that was asked for.
    pub fn mismatch(&self) -> Option<&str> {
        self.identity.mismatch()
    }

    /// True for a line by whose session the run is over: nothing it says belongs to the run.
    pub fn is_mismatch(&self, line: &Line<'_>) -> bool {
        self.identity.is_mismatch(line)
    }

    /// True after `completed`.
    pub fn is_complete(&self) -> bool {
        self.done
    }

    /// Translates one stdout line. `bytes` is the undecoded line, for the warning about a malformed one.
    pub fn push<'a>(&mut self, line: &'a Line<'a>, bytes: &'a [u8], emit: &mut dyn FnMut(Event<'a>)) {
        if self.done || self.turns.push(line) == Part::Trailing || !self.identify(line, emit) {
            return;
        }
        match &line.body {
            Body::Init(init) => self.init(init, emit),
            Body::Assistant(chat) => {
                self.start(chat.model.as_ref(), emit);
                self.chat(line, chat, true, emit);
            }
            Body::User(chat) => {
                // Session files begin with the prompt, which knows no model yet.
                if !line.on_disk {
                    self.start(None, emit);
                }
                self.chat(line, chat, false, emit);
            }
            Body::StreamEvent(_) => self.start(None, emit),
            Body::ToolProgress { tool_use_id, elapsed_seconds } => {
                self.progress(tool_use_id.clone(), *elapsed_seconds, emit)
            }
            Body::System(System::PermissionDenied { tool_name, tool_use_id, .. }) => {
                let text = |text: &Cow<'a, str>| (!text.is_empty()).then(|| text.clone());
                let input = self.calls.get(tool_use_id).and_then(|call| call.input.clone()).map(Json::Kept);
                self.deny(text(tool_name), text(tool_use_id), input, self.denied.len(), emit);
            }
            Body::Result(result) => self.result(result, emit),
            Body::Malformed => self.malformed(bytes, emit),
            Body::System(_) | Body::RateLimit(_) | Body::Control { .. } | Body::Other(_) => {}
        }
    }

    /// The stream is over. Emits what is missing: open actions closed, and the one `completed`.
    pub fn end<'a>(&mut self, ended: &Ended, emit: &mut dyn FnMut(Event<'a>)) {
        if self.done {
            return;
        }
        self.start(None, emit);
        // A turn that was cut off has no result, whatever came of those before it.
        let last = self.outcome.take().filter(|_| !self.turns.is_underway());
        let outcome = match (last, ended.failure()) {
            (Some(outcome), _) => outcome,
            (None, Some(failure)) => {
                self.warn(failure.clone(), Detail::Empty, emit);
                Outcome::failure(failure, &self.last_text())
            }
            (None, None) => match &ended.not_started {
                Some(why) => Outcome::failure(why.clone(), ""),
                None => Outcome::without_result(self.identity.seen().is_some(), &self.file, &self.last_text()),
            },
        };
        self.complete(outcome, emit);
    }

    /// Learns the session of a line. False if the line must not be translated, because the run is over by it.
    fn identify<'a>(&mut self, line: &Line<'a>, emit: Emit<'_, 'a>) -> bool {
        let outcome = match (self.identity.push(line), &line.body) {
            (Sighting::Refused, Body::Result(result)) => Outcome::of(result, &self.last_text()),
            (Sighting::Mismatch(text), _) => Outcome::failure(text, &self.last_text()),
            (Sighting::Tolerated(text), _) => {
                self.warn(text, Detail::Empty, emit);
                return true;
            }
            (Sighting::Known | Sighting::Refused, _) => return true,
        };
        self.complete(outcome, emit);
        false
    }

    fn init<'a>(&mut self, init: &Init<'a>, emit: Emit<'_, 'a>) {
        if self.started {
            return;
        }
        let Some(session) = self.identity.seen() else {
            self.model = init.model.as_deref().map(Arc::from);
            return;
        };
        let meta = Meta {
            cwd: init.cwd.clone(),
            tools: init.tools_raw,
            permission_mode: init.permission_mode.clone(),
            output_style: init.output_style.clone(),
            api_key_source: init.api_key_source.clone(),
            mcp_servers: init.mcp_servers_raw,
        };
        let resume = owned(session);
        let title = init.model.clone().unwrap_or_else(|| self.fallback_title());
        self.started = true;
        emit(Event::Started(Started { resume, title, meta: Some(Box::new(meta)) }));
    }

    /// Emits `started` without an `init`, once the session is known.
    fn start<'a>(&mut self, model: Option<&Cow<'a, str>>, emit: Emit<'_, 'a>) {
        if self.started {
            return;
        }
        let Some(session) = self.identity.seen() else { return };
        let model = model.filter(|model| *model != SYNTHETIC).cloned();
        let title = model.unwrap_or_else(|| self.fallback_title());
        self.started = true;
        emit(Event::Started(Started { resume: owned(session), title, meta: None }));
    }

    fn fallback_title<'a>(&self) -> Cow<'a, str> {
        owned(self.model.as_deref().unwrap_or(super::event::ENGINE))
    }

    fn chat<'a>(&mut self, line: &Line<'a>, chat: &'a Chat<'a>, of_model: bool, emit: Emit<'_, 'a>) {
        let parent = line.parent_tool_use_id.as_ref();
        for block in &chat.blocks {
            match block {
                Block::Text(text) if of_model && !text.is_blank() => {
                    let last = if parent.is_some() { &mut self.nested_text } else { &mut self.text };
                    Arc::make_mut(last).keep(text);
                }
                Block::Thinking(text) if of_model => self.thought(text, parent, emit),
                Block::ToolUse(call) => self.call(call, chat.message_id.as_ref(), parent, emit),
                Block::ToolResult(result) => self.call_result(result, chat.message_id.as_ref(), parent, emit),
                Block::Text(_) | Block::Thinking(_) | Block::Image(_) | Block::Unknown(_) => {}
            }
        }
        if line.on_disk {
            self.file = SessionFile::after(chat, of_model);
        }
    }

    fn thought<'a>(&mut self, text: &'a Prose<'a>, parent: Option<&Cow<'a, str>>, emit: Emit<'_, 'a>) {
        let Some(title) = title_of(text) else { return };
        if self.silent_thoughts {
            return;
        }
        self.thoughts += 1;
        let action = Action {
            id: Cow::Owned(format!("claude.thinking.{}", self.thoughts)),
            kind: ActionKind::Note,
            title: Cow::Owned(title),
            detail: Detail::Thinking { text: text.borrowed(), parent_tool_use_id: parent.cloned() },
        };
        emit(action_event(action, Phase::Completed, Some(true), None, None));
    }

    fn call<'a>(
        &mut self,
        call: &ToolUse<'a>,
        message_id: Option<&Cow<'a, str>>,
        parent: Option<&Cow<'a, str>>,
        emit: Emit<'_, 'a>,
    ) {
        let id = self.named(&call.id);
        let titled = title::of(&call.name, call.input);
        let mut open = Call::new(titled.kind, &call.name, &titled.title);
        open.change = titled.change;
        open.message_id = message_id.map(|id| Arc::from(&**id));
        open.parent = parent.map(|id| Arc::from(&**id));
        self.calls.open(&id, open, call.input.map(|input| input.0));
        let detail = ToolDetail {
            tool_name: Some(call.name.clone()),
            tool_input: call.input.map(Json::Line),
            message_id: message_id.cloned(),
            parent_tool_use_id: parent.cloned(),
            changes: titled.change.map(|change| (titled.title.clone(), change)),
            ..ToolDetail::default()
        };
        let action = Action { id, kind: titled.kind, title: titled.title, detail: Detail::Tool(Box::new(detail)) };
        emit(action_event(action, Phase::Started, None, None, None));
    }

    fn call_result<'a>(
        &mut self,
        result: &ToolResult<'a>,
        message_id: Option<&Cow<'a, str>>,
        parent: Option<&Cow<'a, str>>,
        emit: Emit<'_, 'a>,
    ) {
        let is_error = result.is_error == Some(true);
        let length = result.content.map_or(0, |content| content.len());
        let truncated = length > LONGEST_CONTENT;
        let found = ResultDetail {
            tool_use_id: result.tool_use_id.clone(),
            content: result.content.filter(|_| !truncated),
            result_len: length,
            truncated,
            is_error,
        };
        let (kind, title, mut detail) = match self.calls.finish(&result.tool_use_id) {
            Some(call) => (call.kind, owned(&call.title), remembered(&call)),
            None => match self.calls.past(&result.tool_use_id) {
                Some(past) => {
                    let detail = ToolDetail { tool_name: Some(owned(past.name)), ..ToolDetail::default() };
                    (past.kind, owned(past.title), detail)
                }
                None => (ActionKind::Tool, Cow::Borrowed("tool result"), ToolDetail::default()),
            },
        };
        detail.message_id = message_id.cloned().or(detail.message_id);
        detail.parent_tool_use_id = parent.cloned().or(detail.parent_tool_use_id);
        detail.result = Some(found);
        let id = self.named(&result.tool_use_id);
        let action = Action { id, kind, title, detail: Detail::Tool(Box::new(detail)) };
        emit(action_event(action, Phase::Completed, Some(!is_error), None, None));
    }

    /// The id of a call, or one made up for a call without one.
    fn named<'a>(&mut self, id: &Cow<'a, str>) -> Cow<'a, str> {
        if !id.is_empty() {
            return id.clone();
        }
        self.nameless += 1;
        Cow::Owned(format!("claude.tool.{}", self.nameless))
    }

    fn progress<'a>(&self, id: Cow<'a, str>, elapsed_seconds: f64, emit: Emit<'_, 'a>) {
        let Some(call) = self.calls.get(&id) else { return };
        let detail = ToolDetail { elapsed_seconds: Some(elapsed_seconds), ..remembered(call) };
        let action = Action { id, kind: call.kind, title: owned(&call.title), detail: Detail::Tool(Box::new(detail)) };
        let message = Cow::Owned(format!("running for {elapsed_seconds} s"));
        emit(action_event(action, Phase::Updated, None, Some(message), None));
    }

    /// Warns of a denial, unless its call was told before. `index` numbers one that names no call.
    fn deny<'a>(
        &mut self,
        tool_name: Option<Cow<'a, str>>,
        tool_use_id: Option<Cow<'a, str>>,
        tool_input: Option<Json<'a>>,
        index: usize,
        emit: Emit<'_, 'a>,
    ) {
        let denied = Arc::make_mut(&mut self.denied);
        let key = match &tool_use_id {
            Some(id) => id.to_string(),
            None => (index..).map(|n| n.to_string()).find(|n| !denied.contains(n.as_str())).unwrap_or_default(),
        };
        if !denied.insert(key.as_str().into()) {
            return;
        }
        let action = Action {
            id: Cow::Owned(format!("claude.permission.{key}")),
            kind: ActionKind::Warning,
            title: match &tool_name {
                Some(name) => Cow::Owned(format!("permission denied: {name}")),
                None => Cow::Borrowed("permission denied"),
            },
            detail: Detail::Denial { tool_name, tool_use_id, tool_input },
        };
        emit(action_event(action, Phase::Completed, Some(false), None, Some(EventLevel::Warning)));
    }

    fn malformed<'a>(&mut self, bytes: &'a [u8], emit: Emit<'_, 'a>) {
        let bytes = bytes.trim_ascii();
        if bytes.is_empty() {
            return;
        }
        let line = cut(bytes, LONGEST_BAD_LINE);
        self.warn("invalid JSON from claude; ignoring line".to_owned(), Detail::Line(line), emit);
    }

    fn warn<'a>(&mut self, text: String, detail: Detail<'a>, emit: Emit<'_, 'a>) {
        self.notes += 1;
        let action = Action {
            id: Cow::Owned(format!("claude.note.{}", self.notes)),
            kind: ActionKind::Warning,
            title: Cow::Owned(text.clone()),
            detail,
        };
        emit(action_event(action, Phase::Completed, Some(false), Some(Cow::Owned(text)), Some(EventLevel::Warning)));
    }

    fn result<'a>(&mut self, result: &ResultLine<'a>, emit: Emit<'_, 'a>) {
        self.start(None, emit);
        for (index, denial) in result.denials.iter().enumerate() {
            let Denial { tool_name, tool_use_id, tool_input } = denial;
            self.deny(tool_name.clone(), tool_use_id.clone(), tool_input.map(Json::Line), index, emit);
        }
        let outcome = Outcome::of(result, &self.last_text());
        if self.turns.is_closed() {
            self.complete(outcome, emit);
        } else {
            self.outcome = Some(outcome);
        }
    }

    fn complete<'a>(&mut self, outcome: Outcome, emit: Emit<'_, 'a>) {
        for (id, call) in self.calls.drain() {
            let action = Action {
                id: owned(&id),
                kind: call.kind,
                title: owned(&call.title),
                detail: Detail::Tool(Box::new(remembered(&call))),
            };
            let message = Cow::Borrowed("no result before the run ended");
            emit(action_event(action, Phase::Completed, Some(false), Some(message), None));
        }
        self.done = true;
        emit(Event::Completed(Box::new(Completed {
            ok: outcome.ok,
            answer: Cow::Owned(outcome.answer),
            resume: self.identity.session().map(owned),
            error: outcome.error.map(Cow::Owned),
            usage: outcome.usage.map(Json::Kept),
        })));
    }
}

/// The first line of a thought, as far as it fits into a title; `None` if it is blank.
fn title_of(thought: &Prose<'_>) -> Option<String> {
    // Most begin with a short line. A longer start is looked at only if this one ends before a title would.
    let (start, whole) = thought.start(2 * LONGEST_THOUGHT_TITLE);
    let title = |text: &str| {
        let first = text.lines().map(str::trim).find(|line| !line.is_empty())?;
        Some(first.chars().take(LONGEST_THOUGHT_TITLE).collect::<String>())
    };
    let found = title(&start);
    let is_sure = |found: &String| found.chars().count() == LONGEST_THOUGHT_TITLE || start.trim_start().contains('\n');
    if whole || found.as_ref().is_some_and(is_sure) { found } else { title(&thought.read()) }
}

/// The detail of a call, as far as it is remembered.
fn remembered<'a>(call: &Call) -> ToolDetail<'a> {
    ToolDetail {
        tool_name: Some(owned(&call.name)),
        tool_input: call.input.clone().map(Json::Kept),
        message_id: call.message_id.as_deref().map(owned),
        parent_tool_use_id: call.parent.as_deref().map(owned),
        changes: call.change.map(|change| (owned(&call.title), change)),
        ..ToolDetail::default()
    }
}

fn action_event<'a>(
    action: Action<'a>,
    phase: Phase,
    ok: Option<bool>,
    message: Option<Cow<'a, str>>,
    level: Option<EventLevel>,
) -> Event<'a> {
    Event::Action(Box::new(ActionEvent { action, phase, ok, message, level }))
}

/// The first `longest` bytes as text, without a torn character at the end.
fn cut(bytes: &[u8], longest: usize) -> Cow<'_, str> {
    let Some(start) = bytes.get(..longest) else { return String::from_utf8_lossy(bytes) };
    let torn = match std::str::from_utf8(start) {
        Err(error) if error.error_len().is_none() => longest - error.valid_up_to(),
        _ => 0,
    };
    String::from_utf8_lossy(&start[..longest - torn])
}
