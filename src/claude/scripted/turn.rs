//! One turn: plays the steps of a part, one after the other, until they end or somebody interrupts.

use std::{io, time::Duration};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    actor::Actor,
    call::Outcome,
    host::Tool,
    script::{ApiError, ApiRetry, Call, Ending, Part, RateLimit, Step, Tokens},
    wire::{self, MODEL, VERSION},
};

/// Why a turn breaks off.
#[derive(Debug)]
pub(super) enum Cut {
    /// Somebody interrupted it.
    Interrupted,
    /// The script says so.
    Exit(u8),
    /// Nobody reads our lines any more.
    Deaf,
}

impl From<io::Error> for Cut {
    fn from(_: io::Error) -> Self {
        Self::Deaf
    }
}

/// The message that is being made.
#[derive(Debug)]
struct Message {
    id: String,
    blocks: usize,
    letters: usize,
    tokens: Tokens,
}

/// One turn on its way.
pub(super) struct Turn<'a> {
    actor: &'a Actor,
    part: &'a Part,
    token: CancellationToken,
    started: Instant,
    message: Option<Message>,
    messages: u32,
    results: u32,
    /// The last text, which is the answer.
    said: String,
    /// The text that is being said.
    partial: String,
    /// Calls without a result, in call order.
    open: Vec<String>,
    denials: Vec<Value>,
    /// Tokens that the model has in its context, and those that came since it last answered.
    context: u64,
    fresh: u64,
    spent: Tokens,
    over: bool,
}

impl<'a> Turn<'a> {
    /// A turn that has not said anything yet.
    pub(super) fn new(actor: &'a Actor, part: &'a Part, token: CancellationToken, prompt: &str) -> Self {
        // System prompt and tool descriptions, which the script cannot see.
        const UNSEEN: u64 = 2_600;
        Self {
            actor,
            part,
            token,
            started: Instant::now(),
            message: None,
            messages: 0,
            results: 0,
            said: String::new(),
            partial: String::new(),
            open: Vec::new(),
            denials: Vec::new(),
            context: 0,
            fresh: UNSEEN + tokens_of(prompt.chars().count()),
            spent: Tokens::default(),
            over: false,
        }
    }

    /// From the init line to the result line.
    pub(super) async fn play(&mut self) -> Result<(), Cut> {
        // What a part ignores from its start, it ignores before anybody can hear of it.
        for step in self.part.steps.iter().take_while(|step| matches!(step, Step::Ignore(_))) {
            self.step(step).await?;
        }
        self.actor.wire.stamped(self.init()).await?;
        for step in &self.part.steps {
            if self.token.is_cancelled() {
                return Err(Cut::Interrupted);
            }
            self.step(step).await?;
        }
        if !self.over {
            self.end_message("end_turn").await?;
            self.result(&Ending::default()).await?;
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<(), Cut> {
        let wire = &self.actor.wire;
        match step {
            // After the result only what has no place in a conversation still happens.
            Step::Think(_) | Step::Say(_) | Step::Call(_) | Step::Calls(_) | Step::Deny(_) if self.over => {}
            Step::Think(text) => self.stream("thinking", text).await?,
            Step::Say(text) => self.stream("text", text).await?,
            Step::Call(call) => self.calls(std::slice::from_ref(call), false).await?,
            Step::Calls(calls) => self.calls(calls, false).await?,
            Step::Deny(call) => self.calls(std::slice::from_ref(call), true).await?,
            Step::Line(text) => wire.bytes(format!("{text}\n").as_bytes()).await?,
            Step::Bytes(bytes) => wire.bytes(&bytes.0).await?,
            Step::Stderr(text) => wire.stderr(text).await?,
            Step::Wait(ms) => self.nap(*ms).await?,
            Step::ApiRetry(retry) => self.api_retry(retry).await?,
            Step::RateLimit(limit) => wire.stamped(rate_limit(limit)).await?,
            Step::ApiError(error) => self.api_error(error).await?,
            Step::Result(ending) => {
                self.end_message("end_turn").await?;
                self.result(ending).await?;
            }
            Step::Hang => {
                self.token.cancelled().await;
                return Err(Cut::Interrupted);
            }
            Step::Ignore(what) => self.actor.cues.ignore(what),
            Step::Exit(code) => return Err(Cut::Exit(*code)),
        }
        Ok(())
    }

    fn init(&self) -> Value {
        let actor = self.actor;
        let tools = actor.host.as_ref().map(|host| host.tools()).unwrap_or_default();
        let tools: Vec<String> = tools.iter().map(Tool::id).collect();
        let cwd = std::env::current_dir().unwrap_or_default();
        json!({
            "type": "system", "subtype": "init", "cwd": cwd, "session_id": "", "tools": tools,
            "mcp_servers": actor.host.as_ref().map_or_else(|| json!([]), |host| host.servers()),
            "model": MODEL, "permissionMode": actor.run.permission_mode.as_deref().unwrap_or("default"),
            "slash_commands": [], "apiKeySource": "none", "claude_code_version": VERSION, "output_style": "default",
            "agents": [], "skills": [], "plugins": [], "capabilities": ["interrupt_receipt_v1"],
        })
    }

    /// Silence, unless somebody interrupts.
    async fn nap(&self, ms: u64) -> Result<(), Cut> {
        // Milliseconds of a script are far below 2^52.
        #[expect(clippy::cast_precision_loss, reason = "exact for every wait that ends in a lifetime")]
        let time = Duration::try_from_secs_f64(ms as f64 / 1_000.0 / self.actor.speed).unwrap_or(Duration::MAX);
        tokio::select! {
            biased;
            () = self.token.cancelled() => Err(Cut::Interrupted),
            () = tokio::time::sleep(time) => Ok(()),
        }
    }

    /// A `stream_event` line, if they are wanted.
    async fn event(&self, event: Value) -> io::Result<()> {
        if !self.actor.run.partial {
            return Ok(());
        }
        let id = self.message.as_ref().map_or("", |message| message.id.as_str());
        let line = json!({"type": "stream_event", "event": event, "session_id": "", "parent_tool_use_id": null,
            "api_message_id": id});
        self.actor.wire.stamped(line).await
    }

    async fn begin_message(&mut self) -> Result<(), Cut> {
        if self.message.is_some() {
            return Ok(());
        }
        self.nap(self.actor.script.pace.message_ms).await?;
        let estimate =
            Tokens { input: 4, output: 1, cache_read: self.context, cache_write: std::mem::take(&mut self.fresh) };
        self.context += estimate.cache_write;
        // The stream's first word on output is a guess; the true figure comes at the end.
        let tokens = self.part.tokens.map_or(estimate, |tokens| Tokens { output: 1, ..tokens });
        let id = format!("msg_{}", Uuid::new_v4().simple());
        self.messages += 1;
        let start = json!({"id": id, "type": "message", "role": "assistant", "model": MODEL, "content": [],
            "stop_reason": null, "stop_sequence": null, "usage": wire::usage(tokens)});
        self.message = Some(Message { id, blocks: 0, letters: 0, tokens });
        self.event(json!({"type": "message_start", "message": start})).await?;
        Ok(())
    }

    async fn end_message(&mut self, stop_reason: &str) -> io::Result<()> {
        let Some(message) = &self.message else { return Ok(()) };
        let output = self.part.tokens.map_or_else(|| 12 + tokens_of(message.letters), |tokens| tokens.output);
        let delta = json!({"stop_reason": stop_reason, "stop_sequence": null});
        self.event(json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": output}})).await?;
        self.event(json!({"type": "message_stop"})).await?;
        if let Some(message) = self.message.take() {
            add(&mut self.spent, Tokens { output, ..message.tokens });
        }
        self.fresh += output;
        Ok(())
    }

    /// A block of the current message: its `assistant` line comes before its stop event, as in the real stream.
    async fn block(&mut self, block: Value, letters: usize, more: Option<(&str, Value)>) -> io::Result<()> {
        let Some(message) = &mut self.message else { return Ok(()) };
        message.letters += letters;
        let index = message.blocks;
        message.blocks += 1;
        let mut line = wire::assistant(&message.id, block, message.tokens);
        if let Some((key, value)) = more {
            line[key] = value;
        }
        self.actor.wire.chat(line).await?;
        self.event(json!({"type": "content_block_stop", "index": index})).await
    }

    async fn stream(&mut self, kind: &str, text: &str) -> Result<(), Cut> {
        self.begin_message().await?;
        let index = self.message.as_ref().map_or(0, |message| message.blocks);
        let empty = json!({"type": kind, kind: ""});
        self.event(json!({"type": "content_block_start", "index": index, "content_block": empty})).await?;
        let letters: Vec<char> = text.chars().collect();
        let delta_kind = format!("{kind}_delta");
        for chunk in letters.chunks(self.actor.script.pace.chunk_chars.max(1)) {
            let piece = String::from_iter(chunk);
            let delta = json!({"type": delta_kind, kind: piece});
            self.event(json!({"type": "content_block_delta", "index": index, "delta": delta})).await?;
            if kind == "text" {
                self.partial.push_str(&piece);
            }
            self.nap(self.actor.script.pace.chunk_ms).await?;
        }
        self.partial.clear();
        let mut block = json!({"type": kind, kind: text});
        if kind == "thinking" {
            block["signature"] = "c2NyaXB0ZWQ=".into();
        } else {
            text.clone_into(&mut self.said);
        }
        self.block(block, letters.len(), None).await?;
        Ok(())
    }

    async fn calls(&mut self, calls: &[Call], denied: bool) -> Result<(), Cut> {
        self.begin_message().await?;
        let mut asked = Vec::with_capacity(calls.len());
        for call in calls {
            let ready = self.actor.prepare(call, denied);
            let index = self.message.as_ref().map_or(0, |message| message.blocks);
            let start = json!({"type": "tool_use", "id": ready.id, "name": ready.name, "input": {}});
            let delta = json!({"type": "input_json_delta", "partial_json": ready.arguments_text()});
            self.event(json!({"type": "content_block_start", "index": index, "content_block": start})).await?;
            self.event(json!({"type": "content_block_delta", "index": index, "delta": delta})).await?;
            let block = json!({"type": "tool_use", "id": ready.id, "name": ready.name, "input": ready.input});
            self.open.push(ready.id.clone());
            let letters = ready.arguments_text().chars().count();
            self.block(block, letters, ready.meta().map(|meta| ("tool_use_meta", meta))).await?;
            asked.push(ready);
        }
        self.end_message("tool_use").await?;
        let (actor, token) = (self.actor, self.token.clone());
        let together = asked.iter().all(|call| call.read_only);
        let mut waiting = asked.into_iter();
        let mut running = FuturesUnordered::new();
        loop {
            while running.is_empty() || together {
                match waiting.next() {
                    Some(call) => running.push(actor.carry_out(call)),
                    None => break,
                }
            }
            let outcome = tokio::select! {
                biased;
                () = token.cancelled() => return Err(Cut::Interrupted),
                outcome = running.next() => outcome,
            };
            match outcome {
                Some(outcome) => self.settle(outcome?).await?,
                None => break,
            }
        }
        if self.actor.run.max_turns.is_some_and(|most| self.messages >= most) {
            self.out_of_turns().await?;
        }
        Ok(())
    }

    async fn settle(&mut self, outcome: Outcome) -> io::Result<()> {
        self.open.retain(|id| *id != outcome.id);
        self.results += 1;
        self.fresh += tokens_of(outcome.letters);
        if let Some(notice) = outcome.notice {
            self.actor.wire.stamped(notice).await?;
        }
        self.denials.extend(outcome.denial);
        self.actor.wire.chat(outcome.line).await
    }

    async fn api_retry(&self, retry: &ApiRetry) -> Result<(), Cut> {
        let line = json!({"type": "system", "subtype": "api_retry", "attempt": retry.attempt,
            "max_retries": retry.max_retries, "retry_delay_ms": retry.delay_ms, "error_status": retry.status,
            "error": retry.error});
        self.actor.wire.stamped(line).await?;
        self.nap(retry.delay_ms).await
    }

    async fn api_error(&mut self, error: &ApiError) -> Result<(), Cut> {
        let mut line = wire::synthetic(&error.text);
        line["error"] = error.error.clone().into();
        line["api_error_status"] = error.status.into();
        if let Some(finer) = &error.api_error {
            line["api_error"] = finer.clone().into();
        }
        self.actor.wire.chat(line).await?;
        let ending = Ending {
            is_error: true,
            terminal_reason: error.terminal_reason.clone(),
            stop_reason: Some("stop_sequence".into()),
            text: Some(error.text.clone()),
            ..Ending::default()
        };
        let mut line = self.result_line(&ending);
        line["api_error_status"] = error.status.into();
        self.conclude(line, &ending).await?;
        Ok(())
    }

    async fn out_of_turns(&mut self) -> io::Result<()> {
        let ending = Ending {
            subtype: "error_max_turns".into(),
            is_error: true,
            terminal_reason: "max_turns".into(),
            stop_reason: Some("tool_use".into()),
            errors: vec![format!("Reached maximum number of turns ({})", self.messages)],
            ..Ending::default()
        };
        // It counts messages here, and results elsewhere.
        self.results = self.messages;
        self.result(&ending).await
    }

    async fn result(&mut self, ending: &Ending) -> io::Result<()> {
        let line = self.result_line(ending);
        self.conclude(line, ending).await
    }

    async fn conclude(&mut self, line: Value, ending: &Ending) -> io::Result<()> {
        self.over = true;
        self.actor.totals(|totals| {
            totals.results += 1;
            totals.failed = ending.is_error;
        });
        self.actor.wire.stamped(line).await
    }

    fn result_line(&mut self, ending: &Ending) -> Value {
        let spent = std::mem::take(&mut self.spent);
        let rates = self.actor.script.usd_per_million;
        // Token counts are far below 2^52.
        #[expect(clippy::cast_precision_loss, reason = "exact for every count that a context can hold")]
        let price = |count: u64, rate: f64| count as f64 * rate / 1_000_000.0;
        let cost = ending.cost_usd.unwrap_or_else(|| {
            price(spent.input, rates.input)
                + price(spent.output, rates.output)
                + price(spent.cache_read, rates.cache_read)
                + price(spent.cache_write, rates.cache_write)
        });
        let (all, total_cost, index) = self.actor.totals(|totals| {
            add(&mut totals.tokens, spent);
            totals.cost_usd += cost;
            (totals.tokens, totals.cost_usd, totals.results)
        });
        let per_model = json!({MODEL: {
            "inputTokens": all.input, "outputTokens": all.output, "cacheReadInputTokens": all.cache_read,
            "cacheCreationInputTokens": all.cache_write, "webSearchRequests": 0, "costUSD": total_cost,
        }});
        let elapsed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut line = json!({
            "duration_api_ms": elapsed, "stop_reason": ending.stop_reason, "session_id": "",
            "total_cost_usd": total_cost, "usage": wire::usage(spent), "modelUsage": per_model,
            "permission_denials": self.denials,
        });
        if !ending.terminal_reason.is_empty() {
            line["terminal_reason"] = ending.terminal_reason.clone().into();
        }
        line["is_error"] = ending.is_error.into();
        line["num_turns"] = (1 + self.results).into();
        line["subtype"] = ending.subtype.clone().into();
        if ending.subtype == "success" {
            line["result"] = ending.text.as_deref().unwrap_or(&self.said).into();
        } else {
            line["errors"] = ending.errors.clone().into();
        }
        line["type"] = "result".into();
        line["duration_ms"] = elapsed.into();
        line["result_index"] = index.into();
        line
    }

    /// The end after an interrupt: what was said so far, a failed result for every open call, and the result line.
    pub(super) async fn aborted(&mut self) -> Result<(), Cut> {
        if self.over {
            return Ok(());
        }
        let in_tools = !self.open.is_empty();
        if in_tools {
            for id in std::mem::take(&mut self.open) {
                let text = "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it \
                    was a file edit, the new_string was NOT written to the file). STOP what you are doing and wait for \
                    the user to tell you how to proceed.";
                self.actor.wire.chat(wire::tool_error(&id, text, wire::Decision::Interrupted)).await?;
            }
        } else if !self.partial.is_empty() {
            let block = json!({"type": "text", "text": std::mem::take(&mut self.partial)});
            self.block(block, 0, Some(("aborted", true.into()))).await?;
        }
        let (mark, reason) = if in_tools {
            ("[Request interrupted by user for tool use]", "aborted_tools")
        } else {
            ("[Request interrupted by user]", "aborted_streaming")
        };
        self.actor.wire.chat(wire::user_text(mark)).await?;
        let ending = Ending {
            subtype: "error_during_execution".into(),
            is_error: true,
            terminal_reason: reason.into(),
            stop_reason: None,
            errors: vec!["[ede_diagnostic] result_type=user last_content_type=n/a stop_reason=null".into()],
            ..Ending::default()
        };
        self.result(&ending).await?;
        Ok(())
    }
}

fn rate_limit(limit: &RateLimit) -> Value {
    let resets_at = jiff::Timestamp::now().as_second() + limit.resets_in_s;
    let mut info = json!({"status": limit.status, "resetsAt": resets_at, "rateLimitType": limit.limit});
    if let Some(utilization) = limit.utilization {
        info["utilization"] = utilization.into();
    }
    info["isUsingOverage"] = false.into();
    json!({"type": "rate_limit_event", "rate_limit_info": info})
}

/// The usual rule of thumb: four characters are a token.
fn tokens_of(letters: usize) -> u64 {
    u64::try_from(letters.div_ceil(4)).unwrap_or(u64::MAX)
}

fn add(sum: &mut Tokens, more: Tokens) {
    sum.input += more.input;
    sum.output += more.output;
    sum.cache_read += more.cache_read;
    sum.cache_write += more.cache_write;
}
