//! One turn: plays the steps of a part in order, until they end or an interrupt arrives.

use std::{io, time::Duration};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::scripted::{
    agent::ScriptedAgent,
    agent::call::ScriptedCallOutcome,
    host::{HookDecision, HostTool},
    output::{self, MODEL, VERSION},
    script::{
        ApiErrorStep, ApiRetryStep, MessageTokens, RateLimitStep, ScriptPart, ScriptStep,
        ScriptedCall, ScriptedResult,
    },
};

/// Why a turn ends early.
#[derive(Debug)]
pub(super) enum TurnAbort {
    Interrupted,
    /// The script has an exit step.
    Exit(u8),
    /// The output is closed.
    OutputClosed,
}

impl From<io::Error> for TurnAbort {
    fn from(_: io::Error) -> Self {
        Self::OutputClosed
    }
}

/// The message that is being written.
#[derive(Debug)]
struct MessageInProgress {
    id: String,
    blocks: usize,
    char_count: usize,
    tokens: MessageTokens,
}

/// A turn in progress.
pub(super) struct ScriptedTurn<'a> {
    actor: &'a ScriptedAgent,
    part: &'a ScriptPart,
    cancellation: CancellationToken,
    started: Instant,
    message: Option<MessageInProgress>,
    messages: u32,
    results: u32,
    /// The last text, which is the answer.
    last_text: String,
    /// The text that is not written completely yet.
    unsent_text: String,
    /// Calls without a result, in call order.
    open_calls: Vec<String>,
    denials: Vec<Value>,
    /// Tokens in the context of the model, and those added since its last message.
    context: u64,
    new_tokens: u64,
    spent: MessageTokens,
    progress: TurnProgress,
}

/// How far a turn is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TurnProgress {
    Playing,
    /// The host was asked whether the turn may end.
    Asked,
    /// The result was written.
    Finished,
}

impl<'a> ScriptedTurn<'a> {
    /// A turn before its first line.
    pub(super) fn new(
        actor: &'a ScriptedAgent,
        part: &'a ScriptPart,
        token: CancellationToken,
        prompt: &str,
    ) -> Self {
        // System prompt and tool descriptions, which the script cannot see.
        const UNSEEN: u64 = 2_600;
        Self {
            actor,
            part,
            cancellation: token,
            started: Instant::now(),
            message: None,
            messages: 0,
            results: 0,
            last_text: String::new(),
            unsent_text: String::new(),
            open_calls: Vec::new(),
            denials: Vec::new(),
            context: 0,
            new_tokens: UNSEEN + estimate_tokens(prompt.chars().count()),
            spent: MessageTokens::default(),
            progress: TurnProgress::Playing,
        }
    }

    /// Plays from the init line to the result line.
    pub(super) async fn run(&mut self) -> Result<(), TurnAbort> {
        // Ignored events must be set before a signal can arrive.
        for step in self
            .part
            .steps
            .iter()
            .take_while(|step| matches!(step, ScriptStep::Ignore(_)))
        {
            self.run_step(step).await?;
        }
        self.actor.output.write_stamped(self.init_line()).await?;
        for step in &self.part.steps {
            if self.cancellation.is_cancelled() {
                return Err(TurnAbort::Interrupted);
            }
            self.run_step(step).await?;
        }
        if !self.is_finished() {
            self.end_turn(&ScriptedResult::default()).await?;
        }
        Ok(())
    }

    /// Ends the turn with this result. As in the real program, the host can ask to continue before a success.
    async fn end_turn(&mut self, ending: &ScriptedResult) -> Result<(), TurnAbort> {
        self.end_message("end_turn").await?;
        if !ending.is_error
            && ending.terminal_reason == "completed"
            && std::mem::replace(&mut self.progress, TurnProgress::Asked) == TurnProgress::Playing
            && let Some(host) = &self.actor.host
            && let HookDecision::Deny(question) = host
                .run_hooks(
                    "Stop",
                    json!({"hook_event_name": "Stop", "stop_hook_active": false}),
                )
                .await?
        {
            let text = format!("Stop hook feedback:\n{question}");
            self.new_tokens += estimate_tokens(text.chars().count());
            self.actor
                .output
                .write_chat(output::user_text_line(&text))
                .await?;
            match &self.part.if_asked {
                Some(steps) => {
                    for step in steps {
                        if self.cancellation.is_cancelled() {
                            return Err(TurnAbort::Interrupted);
                        }
                        Box::pin(self.run_step(step)).await?;
                    }
                }
                None => self.run_calls(&read_calls(&question), false).await?,
            }
            if self.is_finished() {
                return Ok(());
            }
            self.end_message("end_turn").await?;
        }
        Ok(self.write_result(ending).await?)
    }

    fn is_finished(&self) -> bool {
        self.progress == TurnProgress::Finished
    }

    async fn run_step(&mut self, step: &ScriptStep) -> Result<(), TurnAbort> {
        let lines = &self.actor.output;
        match step {
            // After the result, only steps outside of the conversation are played.
            ScriptStep::Think(_)
            | ScriptStep::Say(_)
            | ScriptStep::Call(_)
            | ScriptStep::Calls(_)
            | ScriptStep::Deny(_)
                if self.is_finished() => {}
            ScriptStep::Think(text) => self.stream_text("thinking", text).await?,
            ScriptStep::Say(text) => self.stream_text("text", text).await?,
            ScriptStep::Call(call) => self.run_calls(std::slice::from_ref(call), false).await?,
            ScriptStep::Calls(calls) => self.run_calls(calls, false).await?,
            ScriptStep::Deny(call) => self.run_calls(std::slice::from_ref(call), true).await?,
            ScriptStep::Line(text) => lines.write_bytes(format!("{text}\n").as_bytes()).await?,
            ScriptStep::Bytes(bytes) => lines.write_bytes(&bytes.0).await?,
            ScriptStep::Stderr(text) => lines.write_stderr(text).await?,
            ScriptStep::Wait(ms) => self.sleep(*ms).await?,
            ScriptStep::ApiRetry(retry) => self.write_api_retry(retry).await?,
            ScriptStep::RateLimit(limit) => lines.write_stamped(rate_limit_line(limit)).await?,
            ScriptStep::ApiError(error) => self.write_api_error(error).await?,
            ScriptStep::Result(ending) => {
                self.end_turn(ending).await?;
            }
            ScriptStep::Hang => {
                self.cancellation.cancelled().await;
                return Err(TurnAbort::Interrupted);
            }
            ScriptStep::Ignore(what) => self.actor.turn_control.ignore(what),
            ScriptStep::Exit(code) => return Err(TurnAbort::Exit(*code)),
        }
        Ok(())
    }

    fn init_line(&self) -> Value {
        let actor = self.actor;
        let tools = actor
            .host
            .as_ref()
            .map(|host| host.tools())
            .unwrap_or_default();
        let tools: Vec<String> = tools.iter().map(HostTool::id).collect();
        let cwd = std::env::current_dir()
            .unwrap_or_default()
            .display()
            .to_string();
        json!({
            "type": "system", "subtype": "init", "cwd": cwd, "session_id": "", "tools": tools,
            "mcp_servers": actor.host.as_ref().map_or_else(|| json!([]), |host| host.servers()),
            "model": MODEL, "permissionMode": actor.run.permission_mode.as_deref().unwrap_or("default"),
            "slash_commands": [], "apiKeySource": "none", "claude_code_version": VERSION, "output_style": "default",
            "agents": [], "skills": [], "plugins": [], "capabilities": ["interrupt_receipt_v1"],
        })
    }

    /// Waits, unless the turn is interrupted.
    async fn sleep(&self, ms: u64) -> Result<(), TurnAbort> {
        // Milliseconds of a script are far below 2^52.
        #[expect(
            clippy::cast_precision_loss,
            reason = "exact for every wait that ends in a lifetime"
        )]
        let time = Duration::try_from_secs_f64(ms as f64 / 1_000.0 / self.actor.speed)
            .unwrap_or(Duration::MAX);
        // The timer rounds up to a millisecond, which is too long for no wait.
        tokio::select! {
            biased;
            () = self.cancellation.cancelled() => Err(TurnAbort::Interrupted),
            () = async { if !time.is_zero() { tokio::time::sleep(time).await } } => Ok(()),
        }
    }

    /// Writes a `stream_event` line, if partial messages are requested.
    async fn write_stream_event(&self, event: Value) -> io::Result<()> {
        if !self.actor.run.partial_messages {
            return Ok(());
        }
        let id = self
            .message
            .as_ref()
            .map_or("", |message| message.id.as_str());
        let line = json!({"type": "stream_event", "event": event, "session_id": "", "parent_tool_use_id": null,
            "api_message_id": id});
        self.actor.output.write_stamped(line).await
    }

    async fn begin_message(&mut self) -> Result<(), TurnAbort> {
        if self.message.is_some() {
            return Ok(());
        }
        self.sleep(self.actor.script.pace.message_ms).await?;
        let estimate = MessageTokens {
            input: 4,
            output: 1,
            cache_read: self.context,
            cache_write: std::mem::take(&mut self.new_tokens),
        };
        self.context += estimate.cache_write;
        // The first output token count of the stream is an estimate; the exact number comes at the end.
        let tokens = self.part.tokens.map_or(estimate, |tokens| MessageTokens {
            output: 1,
            ..tokens
        });
        let id = format!("msg_{}", Uuid::new_v4().simple());
        self.messages += 1;
        let start = json!({"id": id, "type": "message", "role": "assistant", "model": MODEL, "content": [],
            "stop_reason": null, "stop_sequence": null, "usage": output::usage_json(tokens)});
        self.message = Some(MessageInProgress {
            id,
            blocks: 0,
            char_count: 0,
            tokens,
        });
        self.write_stream_event(json!({"type": "message_start", "message": start}))
            .await?;
        Ok(())
    }

    async fn end_message(&mut self, stop_reason: &str) -> io::Result<()> {
        let Some(message) = &self.message else {
            return Ok(());
        };
        let output = self.part.tokens.map_or_else(
            || 12 + estimate_tokens(message.char_count),
            |tokens| tokens.output,
        );
        let delta = json!({"stop_reason": stop_reason, "stop_sequence": null});
        self.write_stream_event(
            json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": output}}),
        )
        .await?;
        self.write_stream_event(json!({"type": "message_stop"}))
            .await?;
        if let Some(message) = self.message.take() {
            add_tokens(
                &mut self.spent,
                MessageTokens {
                    output,
                    ..message.tokens
                },
            );
        }
        self.new_tokens += output;
        Ok(())
    }

    /// Writes a block of the current message: its `assistant` line comes before its stop event, as in the real stream.
    async fn write_block(
        &mut self,
        block: Value,
        letters: usize,
        more: Option<(&str, Value)>,
    ) -> io::Result<()> {
        let Some(message) = &mut self.message else {
            return Ok(());
        };
        message.char_count += letters;
        let index = message.blocks;
        message.blocks += 1;
        let mut line = output::assistant_line(&message.id, block, message.tokens);
        if let Some((key, value)) = more {
            line[key] = value;
        }
        self.actor.output.write_chat(line).await?;
        self.write_stream_event(json!({"type": "content_block_stop", "index": index}))
            .await
    }

    async fn stream_text(&mut self, kind: &str, text: &str) -> Result<(), TurnAbort> {
        self.begin_message().await?;
        let index = self.message.as_ref().map_or(0, |message| message.blocks);
        let empty = json!({"type": kind, kind: ""});
        self.write_stream_event(
            json!({"type": "content_block_start", "index": index, "content_block": empty}),
        )
        .await?;
        let letters: Vec<char> = text.chars().collect();
        let delta_kind = format!("{kind}_delta");
        for chunk in letters.chunks(self.actor.script.pace.chunk_chars.max(1)) {
            let piece = String::from_iter(chunk);
            let delta = json!({"type": delta_kind, kind: piece});
            self.write_stream_event(
                json!({"type": "content_block_delta", "index": index, "delta": delta}),
            )
            .await?;
            if kind == "text" {
                self.unsent_text.push_str(&piece);
            }
            self.sleep(self.actor.script.pace.chunk_ms).await?;
        }
        self.unsent_text.clear();
        let mut block = json!({"type": kind, kind: text});
        if kind == "thinking" {
            block["signature"] = "c2NyaXB0ZWQ=".into();
        } else {
            text.clone_into(&mut self.last_text);
        }
        self.write_block(block, letters.len(), None).await?;
        Ok(())
    }

    async fn run_calls(&mut self, calls: &[ScriptedCall], denied: bool) -> Result<(), TurnAbort> {
        self.begin_message().await?;
        let mut asked = Vec::with_capacity(calls.len());
        for call in calls {
            let ready = self.actor.prepare_call(call, denied);
            let index = self.message.as_ref().map_or(0, |message| message.blocks);
            let start =
                json!({"type": "tool_use", "id": ready.id, "name": ready.name, "input": {}});
            let delta = json!({"type": "input_json_delta", "partial_json": ready.raw_arguments()});
            self.write_stream_event(
                json!({"type": "content_block_start", "index": index, "content_block": start}),
            )
            .await?;
            self.write_stream_event(
                json!({"type": "content_block_delta", "index": index, "delta": delta}),
            )
            .await?;
            let block = json!({"type": "tool_use", "id": ready.id, "name": ready.name, "input": ready.input});
            self.open_calls.push(ready.id.clone());
            let letters = ready.raw_arguments().chars().count();
            self.write_block(
                block,
                letters,
                ready.meta().map(|meta| ("tool_use_meta", meta)),
            )
            .await?;
            asked.push(ready);
        }
        self.end_message("tool_use").await?;
        let (actor, token) = (self.actor, self.cancellation.clone());
        let together = asked.iter().all(|call| call.read_only);
        let mut waiting = asked.into_iter();
        let mut running = FuturesUnordered::new();
        loop {
            while running.is_empty() || together {
                match waiting.next() {
                    Some(call) => running.push(actor.execute_call(call)),
                    None => break,
                }
            }
            let outcome = tokio::select! {
                biased;
                () = token.cancelled() => return Err(TurnAbort::Interrupted),
                outcome = running.next() => outcome,
            };
            match outcome {
                Some(outcome) => self.write_call_outcome(outcome?).await?,
                None => break,
            }
        }
        // As in the real program, messages at the turn limit start another turn.
        if self
            .actor
            .run
            .max_turns
            .is_some_and(|most| self.messages >= most)
        {
            return Ok(self.write_max_turns_result().await?);
        }
        // Messages that arrived before the results are part of the next request to the model.
        while let Ok(text) = self.actor.prompts.lock().await.try_recv() {
            self.new_tokens += estimate_tokens(text.chars().count());
        }
        Ok(())
    }

    async fn write_call_outcome(&mut self, outcome: ScriptedCallOutcome) -> io::Result<()> {
        self.open_calls.retain(|id| *id != outcome.id);
        self.results += 1;
        self.new_tokens += estimate_tokens(outcome.char_count);
        if let Some(notice) = outcome.preceding_line {
            self.actor.output.write_stamped(notice).await?;
        }
        self.denials.extend(outcome.denial);
        self.actor.output.write_chat(outcome.line).await
    }

    async fn write_api_retry(&self, retry: &ApiRetryStep) -> Result<(), TurnAbort> {
        let line = json!({"type": "system", "subtype": "api_retry", "attempt": retry.attempt,
            "max_retries": retry.max_retries, "retry_delay_ms": retry.delay_ms, "error_status": retry.status,
            "error": retry.error});
        self.actor.output.write_stamped(line).await?;
        self.sleep(retry.delay_ms).await
    }

    async fn write_api_error(&mut self, error: &ApiErrorStep) -> Result<(), TurnAbort> {
        let mut line = output::api_error_message_line(&error.text);
        line["error"] = error.error.clone().into();
        line["api_error_status"] = error.status.into();
        if let Some(finer) = &error.api_error {
            line["api_error"] = finer.clone().into();
        }
        self.actor.output.write_chat(line).await?;
        let ending = ScriptedResult {
            is_error: true,
            terminal_reason: error.terminal_reason.clone(),
            stop_reason: Some("stop_sequence".into()),
            text: Some(error.text.clone()),
            ..ScriptedResult::default()
        };
        let mut line = self.result_line(&ending);
        line["api_error_status"] = error.status.into();
        self.write_result_line(line, &ending).await?;
        Ok(())
    }

    async fn write_max_turns_result(&mut self) -> io::Result<()> {
        let ending = ScriptedResult {
            subtype: "error_max_turns".into(),
            is_error: true,
            terminal_reason: "max_turns".into(),
            stop_reason: Some("tool_use".into()),
            errors: vec![format!(
                "Reached maximum number of turns ({})",
                self.messages
            )],
            ..ScriptedResult::default()
        };
        // This result reports the number of messages as `num_turns`.
        self.results = self.messages;
        self.write_result(&ending).await
    }

    async fn write_result(&mut self, ending: &ScriptedResult) -> io::Result<()> {
        let line = self.result_line(ending);
        self.write_result_line(line, ending).await
    }

    async fn write_result_line(&mut self, line: Value, ending: &ScriptedResult) -> io::Result<()> {
        self.progress = TurnProgress::Finished;
        self.actor.with_totals(|totals| {
            totals.results += 1;
            totals.last_failed = ending.is_error;
        });
        self.actor.output.write_stamped(line).await
    }

    fn result_line(&mut self, ending: &ScriptedResult) -> Value {
        let spent = std::mem::take(&mut self.spent);
        let rates = self.actor.script.usd_per_million;
        // Token counts are far below 2^52.
        #[expect(
            clippy::cast_precision_loss,
            reason = "exact for every count that a context can hold"
        )]
        let price = |count: u64, rate: f64| count as f64 * rate / 1_000_000.0;
        let cost = ending.cost_usd.unwrap_or_else(|| {
            price(spent.input, rates.input)
                + price(spent.output, rates.output)
                + price(spent.cache_read, rates.cache_read)
                + price(spent.cache_write, rates.cache_write)
        });
        let (all, total_cost, index) = self.actor.with_totals(|totals| {
            add_tokens(&mut totals.tokens, spent);
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
            "total_cost_usd": total_cost, "usage": output::usage_json(spent), "modelUsage": per_model,
            "permission_denials": self.denials,
        });
        if !ending.terminal_reason.is_empty() {
            line["terminal_reason"] = ending.terminal_reason.clone().into();
        }
        line["is_error"] = ending.is_error.into();
        line["num_turns"] = (1 + self.results).into();
        line["subtype"] = ending.subtype.clone().into();
        if ending.subtype == "success" {
            line["result"] = ending.text.as_deref().unwrap_or(&self.last_text).into();
        } else {
            line["errors"] = ending.errors.clone().into();
        }
        line["type"] = "result".into();
        line["duration_ms"] = elapsed.into();
        line["result_index"] = index.into();
        line
    }

    /// Ends an interrupted turn: the text so far, a failed result for every open call, and the result line.
    pub(super) async fn write_aborted_turn(&mut self) -> Result<(), TurnAbort> {
        if self.is_finished() {
            return Ok(());
        }
        let in_tools = !self.open_calls.is_empty();
        if in_tools {
            for id in std::mem::take(&mut self.open_calls) {
                let text = "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it \
                    was a file edit, the new_string was NOT written to the file). STOP what you are doing and wait for \
                    the user to tell you how to proceed.";
                self.actor
                    .output
                    .write_chat(output::tool_error_line(
                        &id,
                        text,
                        output::PermissionDecision::Interrupted,
                    ))
                    .await?;
            }
        } else if !self.unsent_text.is_empty() {
            let block = json!({"type": "text", "text": std::mem::take(&mut self.unsent_text)});
            self.write_block(block, 0, Some(("aborted", true.into())))
                .await?;
        }
        let (mark, reason) = if in_tools {
            (
                "[Request interrupted by user for tool use]",
                "aborted_tools",
            )
        } else {
            ("[Request interrupted by user]", "aborted_streaming")
        };
        self.actor
            .output
            .write_chat(output::user_text_line(mark))
            .await?;
        let ending = ScriptedResult {
            subtype: "error_during_execution".into(),
            is_error: true,
            terminal_reason: reason.into(),
            stop_reason: None,
            errors: vec![
                "[ede_diagnostic] result_type=user last_content_type=n/a stop_reason=null".into(),
            ],
            ..ScriptedResult::default()
        };
        self.write_result(&ending).await?;
        Ok(())
    }
}

/// Calls that read the files that a question names between backquotes.
fn read_calls(question: &str) -> Vec<ScriptedCall> {
    let names = question.split('`').skip(1).step_by(2);
    let call = |name: &str| {
        let arguments = std::iter::once(("path".to_owned(), name.into())).collect();
        ScriptedCall {
            tool: "read_raw_file".into(),
            arguments,
            ..ScriptedCall::default()
        }
    };
    names.map(call).collect()
}

fn rate_limit_line(limit: &RateLimitStep) -> Value {
    let resets_at = jiff::Timestamp::now().as_second() + limit.resets_in_s;
    let mut info =
        json!({"status": limit.status, "resetsAt": resets_at, "rateLimitType": limit.limit});
    if let Some(utilization) = limit.utilization {
        info["utilization"] = utilization.into();
    }
    info["isUsingOverage"] = false.into();
    json!({"type": "rate_limit_event", "rate_limit_info": info})
}

/// Estimates four characters per token.
fn estimate_tokens(letters: usize) -> u64 {
    u64::try_from(letters.div_ceil(4)).unwrap_or(u64::MAX)
}

fn add_tokens(sum: &mut MessageTokens, more: MessageTokens) {
    sum.input += more.input;
    sum.output += more.output;
    sum.cache_read += more.cache_read;
    sum.cache_write += more.cache_write;
}
