//! The scripted agent, driven over in-memory pipes: the protocol from the side of the host.

use std::sync::Arc;

use ingestdeck_agent::scripted::{
    AgentSignal, ScriptedAgentOptions,
    args::{ScriptedAgentArgs, ScriptedCommand},
    play_script,
    script::AgentScript,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream},
    sync::mpsc,
    task::JoinHandle,
};

const UNIT: &str = "-p --input-format stream-json --output-format stream-json --verbose --permission-mode dontAsk \
    --allowedTools mcp__ktx__read,mcp__ktx__write,mcp__ktx__fail --session-id 0b0b0b0b-1111-4222-8333-444444444444";

type Responder = Arc<dyn Fn(&Value) -> Option<Value> + Send + Sync>;

/// One agent and its host.
struct AgentHarness {
    stdin: Option<DuplexStream>,
    stdout: BufReader<DuplexStream>,
    stderr: DuplexStream,
    signals: mpsc::Sender<AgentSignal>,
    agent: JoinHandle<u8>,
    /// Answers hooks and tool calls; `None` leaves a request without an answer.
    reply: Responder,
    seen: Vec<Value>,
}

impl AgentHarness {
    fn open(script: &str, argv: &str) -> Self {
        let words = format!("--script x {argv}");
        let args = ScriptedAgentArgs::parse(words.split_whitespace().map(str::to_owned))
            .expect("arguments");
        let ScriptedCommand::Run(run) = args.request else {
            panic!("not a run")
        };
        let casting = ScriptedAgentOptions {
            attempt: args.attempt,
            unit: args.unit,
            speed: args.speed,
            run: *run,
        };
        let script = AgentScript::parse(script).expect("a script");
        let (stdin, its_stdin) = tokio::io::duplex(1 << 16);
        // Much smaller than a line, so that concurrent writers meet.
        let (its_stdout, stdout) = tokio::io::duplex(64);
        let (its_stderr, stderr) = tokio::io::duplex(1 << 16);
        let (signals, its_signals) = mpsc::channel(4);
        let agent = tokio::spawn(play_script(
            script,
            casting,
            its_stdin,
            its_stdout,
            its_stderr,
            its_signals,
        ));
        let stdout = BufReader::new(stdout);
        Self {
            stdin: Some(stdin),
            stdout,
            stderr,
            signals,
            agent,
            reply: Arc::new(default_reply),
            seen: Vec::new(),
        }
    }

    fn replying(mut self, reply: impl Fn(&Value) -> Option<Value> + Send + Sync + 'static) -> Self {
        self.reply = Arc::new(reply);
        self
    }

    async fn send(&mut self, value: &Value) {
        self.send_raw(&format!("{value}\n")).await;
    }

    async fn send_raw(&mut self, text: &str) {
        self.stdin
            .as_mut()
            .expect("stdin is open")
            .write_all(text.as_bytes())
            .await
            .expect("the agent reads stdin");
    }

    async fn ask(&mut self, id: &str, request: Value) -> Value {
        self.send(&json!({"type": "control_request", "request_id": id, "request": request}))
            .await;
        let line = self
            .until(|line| {
                line["type"] == "control_response" && line["response"]["request_id"] == id
            })
            .await;
        line["response"].clone()
    }

    async fn initialize(&mut self) -> Value {
        let hooks: serde_json::Map<String, Value> =
            ["PreToolUse", "PostToolUse", "PostToolUseFailure"]
                .into_iter()
                .map(|event| {
                    (
                        event.to_owned(),
                        json!([{"hookCallbackIds": [event], "timeout": 60}]),
                    )
                })
                .collect();
        self.ask(
            "init",
            json!({"subtype": "initialize", "hooks": hooks, "sdkMcpServers": ["ktx"]}),
        )
        .await
    }

    async fn prompt(&mut self, text: &str) {
        self.send(&json!({"type": "user", "message": {"role": "user", "content": text}}))
            .await;
    }

    /// Sends the handshake and the prompt.
    async fn begin(&mut self, unit: &str) {
        self.initialize().await;
        self.prompt(&format!("# Wiki Index\n\n## WorkUnit: {unit}\n"))
            .await;
    }

    /// The next line as bytes; empty at the end.
    async fn raw(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        self.stdout
            .read_until(b'\n', &mut line)
            .await
            .expect("stdout can be read");
        line
    }

    /// Reads lines and answers requests until `wanted` arrives.
    async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let raw = self.raw().await;
            assert!(!raw.is_empty(), "stdout ended; seen: {:#?}", self.seen);
            let Ok(line) = serde_json::from_slice::<Value>(&raw) else {
                continue;
            };
            self.seen.push(line.clone());
            if line["type"] == "control_request"
                && let Some(payload) = (self.reply)(&line["request"])
            {
                let response = json!({"subtype": "success", "request_id": line["request_id"], "response": payload});
                self.send(&json!({"type": "control_response", "response": response}))
                    .await;
            }
            if wanted(&line) {
                return line;
            }
        }
    }

    async fn result(&mut self) -> Value {
        self.until(|line| line["type"] == "result").await
    }

    fn lines(&self, kind: &str) -> Vec<&Value> {
        self.seen
            .iter()
            .filter(|line| line["type"] == kind || line["subtype"] == kind)
            .collect()
    }

    fn hooks(&self) -> Vec<String> {
        let hooks = self
            .seen
            .iter()
            .filter(|line| line["request"]["subtype"] == "hook_callback");
        hooks
            .map(|line| {
                line["request"]["callback_id"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            })
            .collect()
    }

    fn tool_results(&self) -> Vec<&Value> {
        let results = self
            .lines("user")
            .into_iter()
            .map(|line| &line["message"]["content"][0]);
        results
            .filter(|block| block["type"] == "tool_result")
            .collect()
    }

    /// Closes stdin and waits for the exit code.
    async fn leave(mut self) -> u8 {
        drop(self.stdin.take());
        let mut rest = Vec::new();
        self.stdout
            .read_to_end(&mut rest)
            .await
            .expect("stdout can be read");
        self.agent.await.expect("no panic")
    }
}

/// A host whose tools all succeed.
fn default_reply(request: &Value) -> Option<Value> {
    let message = &request["message"];
    let result = match (request["subtype"].as_str(), message["method"].as_str()) {
        (Some("mcp_message"), Some("initialize")) => json!({
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "ktx", "version": "1"},
        }),
        (Some("mcp_message"), Some("tools/list")) => {
            let tool = |name: &str, read_only: bool| {
                json!({"name": name, "description": name, "inputSchema": {"type": "object"},
                    "annotations": {"readOnlyHint": read_only}})
            };
            json!({"tools": [tool("write", false), tool("read", true), tool("fail", false), tool("secret", false)]})
        }
        (Some("mcp_message"), Some("tools/call")) => {
            let name = message["params"]["name"].as_str().unwrap_or_default();
            let text = format!("{name} {}", message["params"]["arguments"]);
            json!({"content": [{"type": "text", "text": text}], "isError": name == "fail"})
        }
        (Some("mcp_message"), _) => {
            return Some(json!({"mcp_response": {"jsonrpc": "2.0", "result": {}}}));
        }
        _ => return Some(json!({})),
    };
    Some(json!({"mcp_response": {"jsonrpc": "2.0", "id": message["id"], "result": result}}))
}

fn part(steps: &str) -> String {
    format!(
        "[pace]\nchunk_chars = 4\n[usd_per_million]\noutput = 10.0\n[[part]]\nunit = \"u\"\nsteps = [{steps}]\n"
    )
}

#[tokio::test(start_paused = true)]
async fn unit_runs_from_handshake_to_result() {
    let mut stage = AgentHarness::open(
        &part(
            r#"{ think = "hm" }, { say = "first" }, { call = { tool = "read", with = { path = "a.md" } } },
               { say = "The answer." }"#,
        ),
        UNIT,
    );
    let reply = stage.initialize().await;
    assert_eq!(reply["response"]["models"][0]["value"], "scripted");
    stage.prompt("## WorkUnit: u").await;
    let result = stage.result().await;

    let init = stage.lines("init")[0].clone();
    assert_eq!(
        init["tools"],
        json!([
            "mcp__ktx__fail",
            "mcp__ktx__read",
            "mcp__ktx__secret",
            "mcp__ktx__write"
        ])
    );
    assert_eq!(
        init["mcp_servers"],
        json!([{"name": "ktx", "status": "connected", "source": "sdk"}])
    );
    assert_eq!(
        (&init["model"], &init["plugins"]),
        (&json!("scripted"), &json!([]))
    );
    assert_eq!(init["claude_code_version"], "0.0.0 (scripted)");
    assert_eq!(init["session_id"], "0b0b0b0b-1111-4222-8333-444444444444");

    let texts: Vec<(&str, &Value)> = stage
        .lines("assistant")
        .iter()
        .map(|line| {
            let kind = line["message"]["content"][0]["type"]
                .as_str()
                .unwrap_or_default();
            (kind, &line["message"]["id"])
        })
        .collect();
    assert_eq!(
        texts.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(),
        ["thinking", "text", "tool_use", "text"]
    );
    assert!(
        texts[0].1 == texts[2].1 && texts[2].1 != texts[3].1,
        "one id per message: {texts:?}"
    );

    assert_eq!(
        stage.tool_results()[0]["content"],
        json!([{"type": "text", "text": "read {\"path\":\"a.md\"}"}])
    );
    assert_eq!(stage.hooks(), ["PreToolUse", "PostToolUse"]);
    assert_eq!(
        stage.lines("stream_event").len(),
        0,
        "deltas only when requested"
    );
    assert_eq!(result["result"], "The answer.");
    assert_eq!(
        (&result["is_error"], &result["terminal_reason"]),
        (&json!(false), &json!("completed"))
    );
    assert_eq!(result["num_turns"], 2);
    let output = result["usage"]["output_tokens"].as_u64().expect("a count");
    let cost = result["total_cost_usd"].as_f64().expect("a cost");
    assert!(
        output > 0 && (cost - output as f64 * 10.0 / 1e6).abs() < 1e-12,
        "{output} tokens cost {cost}"
    );
    assert_eq!(result["modelUsage"]["scripted"]["outputTokens"], output);
    assert_eq!(stage.leave().await, 0);
}

#[tokio::test(start_paused = true)]
async fn deltas_add_up_to_the_text() {
    let mut stage = AgentHarness::open(
        &part(r#"{ say = "grüße, 世界!" }"#),
        &format!("{UNIT} --include-partial-messages"),
    );
    stage.begin("u").await;
    stage.result().await;
    let events: Vec<&Value> = stage
        .lines("stream_event")
        .iter()
        .map(|line| &line["event"])
        .collect();
    let text: String = events
        .iter()
        .filter_map(|event| event["delta"]["text"].as_str())
        .collect();
    assert_eq!(text, "grüße, 世界!");
    let kinds: Vec<&str> = events
        .iter()
        .filter_map(|event| event["type"].as_str())
        .collect();
    assert_eq!(
        (kinds[0], kinds[kinds.len() - 1]),
        ("message_start", "message_stop")
    );
}

#[tokio::test(start_paused = true)]
async fn failures_have_the_shapes_of_the_real_program() {
    let mut stage = AgentHarness::open(
        &part(
            r#"{ call = { tool = "fail" } }, { call = { tool = "write", garbled = "{\"a" } },
               { call = { tool = "nope" } }, { deny = { tool = "Bash", with = { command = "ls" } } },
               { call = { tool = "secret" } }, { say = "x" }"#,
        ),
        UNIT,
    );
    stage.begin("u").await;
    let result = stage.result().await;
    let results = stage.tool_results();
    let texts: Vec<&str> = results
        .iter()
        .filter_map(|block| block["content"].as_str())
        .collect();
    assert_eq!(texts[0], "fail {}");
    assert!(
        texts[1].starts_with("<tool_use_error>InputValidationError"),
        "{}",
        texts[1]
    );
    assert_eq!(
        texts[2],
        "<tool_use_error>Error: No such tool available: nope</tool_use_error>"
    );
    assert!(
        texts[3].starts_with("Permission to use Bash has been denied"),
        "{}",
        texts[3]
    );
    assert!(
        texts[4].starts_with("Permission to use mcp__ktx__secret has been denied"),
        "not in --allowedTools"
    );
    assert!(results.iter().all(|block| block["is_error"] == true));
    assert_eq!(stage.lines("permission_denied").len(), 2);
    let denied: Vec<&Value> = result["permission_denials"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(
        (&denied[0]["tool_name"], &denied[1]["tool_name"]),
        (&json!("Bash"), &json!("mcp__ktx__secret"))
    );
    let metas: Vec<&Value> = stage
        .lines("user")
        .iter()
        .map(|line| &line["tool_result_meta"][0])
        .collect();
    let kinds: Vec<&Value> = metas
        .iter()
        .map(|meta| &meta["non_execution_kind"])
        .collect();
    assert_eq!(
        kinds,
        [
            &Value::Null,
            &Value::Null,
            &Value::Null,
            &json!("permission-rule"),
            &json!("permission-rule")
        ]
    );
    assert_eq!(
        stage.hooks(),
        ["PreToolUse", "PostToolUseFailure", "PreToolUse"],
        "no hook is called for an unknown tool"
    );
    assert_eq!(result["is_error"], false, "the model continued");
}

#[tokio::test(start_paused = true)]
async fn hooks_deny_and_edit_calls() {
    let steps = r#"{ call = { tool = "write", with = { n = 1 } } }, { call = { tool = "write", with = { n = 2 } } }"#;
    let mut stage = AgentHarness::open(&part(steps), UNIT).replying(|request| {
        if request["callback_id"] != "PreToolUse" {
            return default_reply(request);
        }
        let output = if request["input"]["tool_input"]["n"] == 1 {
            json!({"permissionDecision": "deny", "permissionDecisionReason": "not today"})
        } else {
            json!({"permissionDecision": "allow", "updatedInput": {"n": 99}})
        };
        Some(json!({"hookSpecificOutput": output}))
    });
    stage.begin("u").await;
    let result = stage.result().await;
    assert_eq!(
        stage.tool_results()[0]["content"],
        "PreToolUse:mcp__ktx__write hook error: not today"
    );
    assert_eq!(
        stage.tool_results()[1]["content"][0]["text"],
        "write {\"n\":99}"
    );
    assert_eq!(
        result["permission_denials"][0]["tool_input"],
        json!({"n": 1})
    );
    let last = stage.lines("assistant")[1];
    assert_eq!(
        last["message"]["content"][0]["input"],
        json!({"n": 2}),
        "the line keeps the arguments of the model"
    );
}

#[tokio::test(start_paused = true)]
async fn hold_past_its_timeout_does_not_run_the_call() {
    let mut stage =
        AgentHarness::open(&part(r#"{ call = { tool = "write" } }"#), UNIT).replying(|request| {
            if request["callback_id"] == "PreToolUse" {
                None
            } else {
                default_reply(request)
            }
        });
    stage.begin("u").await;
    stage.result().await;
    assert!(
        stage.tool_results()[0]["content"]
            .as_str()
            .is_some_and(|text| text.contains("not executed"))
    );
    assert!(
        !stage
            .seen
            .iter()
            .any(|line| line["request"]["message"]["method"] == "tools/call")
    );
}

#[tokio::test(start_paused = true)]
async fn only_read_only_calls_run_concurrently() {
    let both = |tool: &str| {
        part(&format!(
            r#"{{ calls = [{{ tool = "{tool}" }}, {{ tool = "{tool}" }}] }}"#
        ))
    };
    for (tool, expected) in [
        ("read", ["call", "call", "result", "result"]),
        ("write", ["call", "result", "call", "result"]),
    ] {
        let mut stage = AgentHarness::open(&both(tool), UNIT);
        stage.begin("u").await;
        stage.result().await;
        let order: Vec<&str> = stage
            .seen
            .iter()
            .filter_map(|line| {
                match (
                    line["type"].as_str(),
                    line["request"]["message"]["method"].as_str(),
                ) {
                    (_, Some("tools/call")) => Some("call"),
                    (Some("user"), _) => Some("result"),
                    _ => None,
                }
            })
            .collect();
        assert_eq!(order, expected, "{tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_do_not_deadlock() {
    let calls = r#"{ tool = "read" }, "#.repeat(12);
    let mut stage = AgentHarness::open(
        &part(&format!("{{ calls = [{calls}] }}, {{ say = \"done\" }}")),
        UNIT,
    );
    stage.begin("u").await;
    let result = tokio::time::timeout(std::time::Duration::from_secs(60), stage.result()).await;
    assert_eq!(result.expect("no deadlock")["result"], "done");
    assert_eq!(stage.tool_results().len(), 12);
}

#[tokio::test(start_paused = true)]
async fn interrupt_leaves_no_partial_line() {
    let calls = r#"{ tool = "read", with = { text = "a long argument that does not fit into the pipe as a whole" } }, "#;
    let mut stage = AgentHarness::open(
        &part(&format!("{{ calls = [{}] }}", calls.repeat(12))),
        UNIT,
    );
    stage.begin("u").await;
    stage
        .until(|line| line["request"]["message"]["method"] == "tools/call")
        .await;
    stage.send(&json!({"type": "control_request", "request_id": "i", "request": {"subtype": "interrupt"}})).await;
    while let raw = stage.raw().await
        && !raw.is_empty()
    {
        let line: Value = serde_json::from_slice(&raw).expect("whole lines");
        if line["type"] == "result" {
            assert_eq!(line["terminal_reason"], "aborted_tools");
            return;
        }
    }
    panic!("no result");
}

#[tokio::test(start_paused = true)]
async fn interrupt_ends_a_call_and_the_next_prompt_works() {
    let script = r#"
        [[part]]
        prompt = "again"
        steps = [{ say = "second answer" }]
        [[part]]
        steps = [{ call = { tool = "write" } }, { say = "never" }]
    "#;
    let mut stage = AgentHarness::open(script, UNIT).replying(|request| {
        if request["message"]["method"] == "tools/call" {
            None
        } else {
            default_reply(request)
        }
    });
    stage.begin("u").await;
    stage
        .until(|line| line["request"]["message"]["method"] == "tools/call")
        .await;
    let reply = stage.ask("stop", json!({"subtype": "interrupt"})).await;
    assert_eq!(reply["response"], json!({"still_queued": []}));
    let result = stage.result().await;
    assert_eq!(
        (&result["terminal_reason"], &result["is_error"]),
        (&json!("aborted_tools"), &json!(true))
    );
    assert_eq!(
        stage.lines("user")[0]["tool_result_meta"][0]["non_execution_kind"],
        "user-rejected"
    );
    stage.prompt("again").await;
    assert_eq!(stage.result().await["result"], "second answer");
    assert_eq!(stage.lines("init").len(), 2, "one per turn");
    assert!(
        stage
            .seen
            .iter()
            .any(|line| line["request"]["message"]["method"] == "notifications/cancelled")
    );
    assert_eq!(stage.leave().await, 0);
}

#[tokio::test(start_paused = true)]
async fn interrupt_while_streaming_keeps_partial_text() {
    let mut stage = AgentHarness::open(
        &part(r#"{ say = "a long text that the test does not wait for" }"#),
        &format!("{UNIT} --include-partial-messages"),
    );
    stage.begin("u").await;
    stage
        .until(|line| line["event"]["type"] == "content_block_delta")
        .await;
    stage.send(&json!({"type": "control_request", "request_id": "i", "request": {"subtype": "interrupt"}})).await;
    let result = stage.result().await;
    assert_eq!(result["terminal_reason"], "aborted_streaming");
    let partial = stage.lines("assistant")[0];
    assert_eq!(partial["aborted"], true);
    assert!(
        partial["message"]["content"][0]["text"]
            .as_str()
            .is_some_and(|text| text.starts_with("a lo"))
    );
    assert_eq!(stage.leave().await, 1, "the last result was an error");
}

#[tokio::test(start_paused = true)]
async fn signals_have_the_same_effect_as_on_claude() {
    for (signal, code) in [(AgentSignal::Interrupt, 0), (AgentSignal::Terminate, 143)] {
        let mut stage = AgentHarness::open(&part(r#""hang""#), UNIT);
        stage.begin("u").await;
        stage.until(|line| line["subtype"] == "init").await;
        stage.signals.send(signal).await.expect("the agent listens");
        if signal == AgentSignal::Interrupt {
            assert_eq!(stage.result().await["terminal_reason"], "aborted_streaming");
        }
        assert!(stage.raw().await.is_empty(), "nothing more");
        assert_eq!(stage.leave().await, code);
    }
}

#[tokio::test(start_paused = true)]
async fn stubborn_agent_ends_only_on_sigkill() {
    let mut stage = AgentHarness::open(
        &part(r#"{ ignore = ["sigint", "sigterm", "interrupt", "eof"] }, { say = "x" }"#),
        UNIT,
    );
    stage.begin("u").await;
    stage.result().await;
    stage
        .signals
        .send(AgentSignal::Terminate)
        .await
        .expect("the agent listens");
    stage
        .signals
        .send(AgentSignal::Interrupt)
        .await
        .expect("the agent listens");
    drop(stage.stdin.take());
    // One hour of the test's paused clock, which takes no real time.
    let ended = tokio::time::timeout(std::time::Duration::from_secs(3_600), &mut stage.agent).await;
    assert!(ended.is_err(), "it ended without SIGKILL: {ended:?}");
    stage.agent.abort();
}

#[tokio::test(start_paused = true)]
async fn turn_budget_ends_after_the_last_tool_results() {
    let steps = r#"{ call = { tool = "read" } }, "#.repeat(5);
    let mut stage = AgentHarness::open(&part(&steps), &format!("{UNIT} --max-turns 3"));
    stage.begin("u").await;
    let result = stage.result().await;
    assert_eq!(
        (&result["subtype"], &result["terminal_reason"]),
        (&json!("error_max_turns"), &json!("max_turns"))
    );
    assert_eq!(
        result["errors"],
        json!(["Reached maximum number of turns (3)"])
    );
    assert_eq!(
        (&result["num_turns"], result.get("result")),
        (&json!(4), None)
    );
    assert_eq!(stage.tool_results().len(), 3);
    assert_eq!(stage.leave().await, 1);
}

#[tokio::test(start_paused = true)]
async fn every_other_kind_of_line_can_be_scripted() {
    let mut stage = AgentHarness::open(
        &part(
            r#"{ api_retry = { status = 529, delay_ms = 400 } },
               { rate_limit = { status = "allowed_warning", utilization = 0.62, resets_in_s = 60 } },
               { line = "not json" }, { bytes = "//4K" }, { stderr = "a warning" },
               { api_error = { error = "authentication_failed", status = 401, text = "Invalid API key" } }"#,
        ),
        UNIT,
    );
    stage.begin("u").await;
    let mut raw = Vec::new();
    while !raw.windows(13).any(|bytes| bytes == b"\"type\":\"resul") {
        let line = stage.raw().await;
        assert!(!line.is_empty(), "{}", String::from_utf8_lossy(&raw));
        if let Ok(value) = serde_json::from_slice::<Value>(&line) {
            if value["type"] == "control_request" {
                let payload = default_reply(&value["request"]);
                let response = json!({"subtype": "success", "request_id": value["request_id"], "response": payload});
                stage
                    .send(&json!({"type": "control_response", "response": response}))
                    .await;
            }
            stage.seen.push(value);
        }
        raw.extend(line);
    }
    assert!(raw.windows(9).any(|bytes| bytes == b"not json\n"));
    assert!(raw.windows(3).any(|bytes| bytes == b"\xff\xfe\n"));
    assert_eq!(stage.lines("api_retry")[0]["error_status"], 529);
    assert_eq!(
        stage.lines("rate_limit_event")[0]["rate_limit_info"]["utilization"],
        0.62
    );
    assert_eq!(
        stage.lines("assistant")[0]["error"],
        "authentication_failed"
    );
    let result = stage.lines("result")[0];
    assert_eq!(
        (&result["terminal_reason"], &result["api_error_status"]),
        (&json!("api_error"), &json!(401))
    );
    let mut warning = [0; 10];
    stage.stderr.read_exact(&mut warning).await.expect("stderr");
    assert_eq!(&warning, b"a warning\n");
}

#[tokio::test(start_paused = true)]
async fn crash_leaves_no_result() {
    let mut stage = AgentHarness::open(&part(r#"{ say = "so far" }, { exit = 7 }"#), UNIT);
    stage.begin("u").await;
    stage.until(|line| line["type"] == "assistant").await;
    assert!(stage.raw().await.is_empty());
    assert_eq!(stage.leave().await, 7);
}

#[tokio::test(start_paused = true)]
async fn attempts_use_their_parts_and_missing_parts_fail() {
    let script = "[[part]]\nunit = \"u\"\nattempt = 2\nsteps = [{ say = \"better\" }]";
    let mut stage = AgentHarness::open(script, &format!("--attempt 2 {UNIT}"));
    stage.begin("u").await;
    assert_eq!(stage.result().await["result"], "better");

    let mut stage = AgentHarness::open(script, &format!("--attempt 1 {UNIT}"));
    stage.begin("u").await;
    assert_eq!(
        stage.result().await["errors"],
        json!(["the script has no part for unit `u`, attempt 1"])
    );
    assert_eq!(stage.leave().await, 1);
}

#[tokio::test(start_paused = true)]
async fn requests_of_the_host_are_answered() {
    let mut stage = AgentHarness::open(&part(""), UNIT);
    stage.initialize().await;
    assert_eq!(
        stage.ask("s", json!({"subtype": "get_settings"})).await["response"]["sources"],
        json!([])
    );
    assert_eq!(
        stage.ask("i", json!({"subtype": "interrupt"})).await["subtype"],
        "success",
        "fine when idle"
    );
    let unknown = stage.ask("x", json!({"subtype": "make_coffee"})).await;
    assert_eq!(
        (&unknown["subtype"], &unknown["error_code"]),
        (&json!("error"), &json!("unsupported_request"))
    );
    stage.prompt("## WorkUnit: u").await;
    stage.result().await;
    let status = stage.ask("m", json!({"subtype": "mcp_status"})).await;
    assert_eq!(
        status["response"]["mcpServers"][0]["tools"]
            .as_array()
            .map(Vec::len),
        Some(4)
    );
}

#[tokio::test(start_paused = true)]
async fn invalid_json_ends_the_agent_and_unknown_input_does_not() {
    let mut stage = AgentHarness::open(&part(r#""hang""#), UNIT);
    stage
        .send_raw("\n{\"type\":\"keep_alive\"}\n{\"type\":\"from_the_future\"}\n")
        .await;
    stage.begin("u").await;
    stage.until(|line| line["subtype"] == "init").await;
    stage.send_raw("garbage\n").await;
    assert!(stage.raw().await.is_empty());
    assert_eq!(stage.leave().await, 1);
}

#[tokio::test(start_paused = true)]
async fn closed_stdin_lets_the_turn_end() {
    let mut stage = AgentHarness::open(
        &part(r#"{ call = { tool = "write" } }, { say = "went on" }"#),
        UNIT,
    )
    .replying(|request| {
        if request["message"]["method"] == "tools/call" {
            None
        } else {
            default_reply(request)
        }
    });
    stage.begin("u").await;
    stage
        .until(|line| line["request"]["message"]["method"] == "tools/call")
        .await;
    drop(stage.stdin.take());
    let result = stage.result().await;
    assert_eq!(
        stage.lines("user")[0]["tool_result_meta"][0]["non_execution_kind"],
        "interrupted"
    );
    assert_eq!(result["result"], "went on");
    assert_eq!(stage.leave().await, 0);
}

#[tokio::test(start_paused = true)]
async fn one_shot_mode_plays_the_prompt_of_the_command_line() {
    let base = "-p --output-format stream-json --verbose";
    let script = "[[part]]\nsteps = [{ call = { tool = \"Bash\" } }, { say = \"hello\" }]";
    let mut stage = AgentHarness::open(script, &format!("{base} --resume abc -- hi"));
    let result = stage.result().await;
    assert_eq!(
        (&result["result"], &result["session_id"]),
        (&json!("hello"), &json!("abc"))
    );
    assert!(
        stage.tool_results()[0]["content"]
            .as_str()
            .is_some_and(|text| text.contains("No such tool"))
    );
    assert_eq!(stage.leave().await, 0);

    let mut stage =
        AgentHarness::open(script, &format!("{base} --resume abc --fork-session -- hi"));
    assert_ne!(stage.result().await["session_id"], "abc");

    let mut stage = AgentHarness::open(
        "[[part]]\nsession_id = \"other\"\nsteps = []",
        &format!("{base} --resume abc -- hi"),
    );
    assert_eq!(stage.result().await["session_id"], "other");
}
