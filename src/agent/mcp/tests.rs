//! The tool server, with tools that answer, fail, panic and hang.

use parking_lot::Mutex;

use super::*;

/// `echo` returns its arguments, `fail` fails, `stick` waits until it is released, `break` panics.
#[derive(Debug, Default)]
pub(crate) struct FakeTools {
    pub(crate) calls: Mutex<Vec<ToolCall>>,
    pub(crate) latch: Mutex<Option<std::sync::mpsc::Receiver<()>>>,
}

impl Toolset for FakeTools {
    fn specs(&self) -> Vec<ToolSpec> {
        [
            ("echo", true),
            ("fail", false),
            ("stick", false),
            ("break", false),
        ]
        .map(|(name, read_only)| spec(name, read_only))
        .into()
    }

    fn call(&self, call: &ToolCall) -> ToolReply {
        self.calls.lock().push(call.clone());
        match call.name.as_str() {
            "echo" => ToolReply {
                markdown: call.arguments.to_string(),
                structured: Some(json!({"private": true})),
                ..ToolReply::default()
            },
            "stick" => {
                let latch = self.latch.lock().take();
                assert!(latch.unwrap().recv().is_err(), "the other end is dropped");
                ToolReply::text("let go")
            }
            "break" => panic!("on purpose"),
            other => ToolReply::error(format!("{other} failed")),
        }
    }
}

pub(crate) fn spec(name: &'static str, read_only: bool) -> ToolSpec {
    let Value::Object(input_schema) = json!({"type": "object", "properties": {}}) else {
        unreachable!()
    };
    ToolSpec {
        name,
        description: format!("the tool {name}"),
        input_schema: input_schema.into(),
        read_only,
    }
}

async fn message(server: &mut ToolServer) -> Value {
    loop {
        match server.next_event().await.unwrap() {
            ServerEvent::Message(message) => return message,
            ServerEvent::CallFinished { .. } => {}
        }
    }
}

async fn start_initialized(tools: Arc<FakeTools>) -> ToolServer {
    let mut server = ToolServer::start(tools);
    let hello = json!({"method": "initialize", "jsonrpc": "2.0", "id": 0, "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "claude-code", "version": "2"}}});
    server.send_message(hello).unwrap();
    let answer = message(&mut server).await;
    assert_eq!(answer["id"], 0);
    assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(answer["result"]["serverInfo"]["name"], "ktx");
    assert!(answer["result"]["capabilities"]["tools"].is_object());
    server
        .send_message(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        .unwrap();
    server
}

fn call(id: u64, name: &str, arguments: Value) -> Value {
    json!({"method": "tools/call", "jsonrpc": "2.0", "id": id, "params": {
        "name": name, "arguments": arguments,
        "_meta": {"claudecode/toolUseId": format!("t{id}"), "progressToken": id}}})
}

#[tokio::test]
async fn tools_are_listed_with_their_hints() {
    let mut server = start_initialized(Arc::default()).await;
    server
        .send_message(json!({"method": "tools/list", "jsonrpc": "2.0", "id": 1}))
        .unwrap();
    let answer = message(&mut server).await;
    assert_eq!(
        answer["result"]["tools"][0],
        json!({
            "name": "echo",
            "description": "the tool echo",
            "inputSchema": {"type": "object", "properties": {}},
            "annotations": {"readOnlyHint": true},
            "_meta": {"anthropic/maxResultSizeChars": 500_000},
        })
    );
    assert_eq!(answer["result"]["tools"].as_array().map(Vec::len), Some(4));
}

#[tokio::test]
async fn only_the_text_of_a_reply_reaches_the_model() {
    let toys = Arc::<FakeTools>::default();
    let mut server = start_initialized(Arc::clone(&toys)).await;
    server
        .send_message(call(7, "echo", json!({"a": "\u{fffd}"})))
        .unwrap();
    let called = server.next_event().await.unwrap();
    assert_eq!(
        called,
        ServerEvent::CallFinished {
            tool: "echo".into(),
            tool_use_id: Some("t7".into()),
            effect: CallEffect::Neutral,
            failure: None,
            declined: None,
        }
    );
    let answer = message(&mut server).await;
    assert_eq!(answer["id"], 7);
    assert_eq!(
        answer["result"]["content"],
        json!([{"type": "text", "text": "{\"a\":\"\u{fffd}\"}"}])
    );
    assert!(!answer.to_string().contains("private"));
    assert_eq!(toys.calls.lock()[0].tool_use_id.as_deref(), Some("t7"));
}

#[tokio::test]
async fn failures_and_panics_become_error_results() {
    let mut server = start_initialized(Arc::default()).await;
    for (name, text) in [
        ("fail", "fail failed"),
        ("break", "break broke down"),
        ("unknown", "unknown failed"),
    ] {
        server.send_message(call(1, name, json!({}))).unwrap();
        let Some(ServerEvent::CallFinished {
            failure: Some(failure),
            ..
        }) = server.next_event().await
        else {
            panic!("{name}")
        };
        assert!(failure.starts_with(text), "{failure}");
        assert_eq!(message(&mut server).await["result"]["isError"], true);
    }
}

#[tokio::test]
async fn malformed_messages_are_refused_without_ending_the_server() {
    let mut server = start_initialized(Arc::default()).await;
    assert_eq!(server.send_message(json!({"jsonrpc": "2.0"})), Err(None));
    let Err(Some(refusal)) = server.send_message(json!({"id": "x", "method": 5})) else {
        panic!("not refused")
    };
    assert_eq!(
        (&refusal["id"], &refusal["error"]["code"]),
        (&json!("x"), &json!(-32600))
    );
    server
        .send_message(json!({"method": "nonsense/ask", "jsonrpc": "2.0", "id": 3}))
        .unwrap();
    assert_eq!(message(&mut server).await["error"]["code"], -32601);
    server.send_message(call(4, "echo", json!({}))).unwrap();
    assert_eq!(message(&mut server).await["id"], 4);
}

#[tokio::test]
async fn drain_gives_up_on_a_stuck_call() {
    let (held, latch) = std::sync::mpsc::channel();
    let toys = Arc::new(FakeTools {
        latch: Mutex::new(Some(latch)),
        ..FakeTools::default()
    });
    let mut server = start_initialized(Arc::clone(&toys)).await;
    server.send_message(call(1, "echo", json!({}))).unwrap();
    message(&mut server).await;
    server.send_message(call(2, "stick", json!({}))).unwrap();
    while toys.calls.lock().len() < 2 {
        ingestdeck_test_support::pause_task_before_check().await;
    }
    assert!(!server.drain(Duration::from_millis(20)).await);
    drop(held);
    let idle = start_initialized(toys).await;
    assert!(idle.drain(Duration::from_secs(10)).await);
}

#[test]
fn unfit_tools_are_refused() {
    let fit = spec("echo", true);
    assert_eq!(validate_tools(&[fit.clone(), spec("fail", false)]), Ok(()));
    assert_eq!(
        validate_tools(&[fit.clone(), fit.clone()]),
        Err(InvalidTool::DuplicateName("echo".into()))
    );
    assert_eq!(
        validate_tools(&[spec("has space", true)]),
        Err(InvalidTool::InvalidName("has space".into()))
    );
    let mut list = fit;
    Arc::make_mut(&mut list.input_schema).insert("type".into(), "array".into());
    assert_eq!(
        validate_tools(&[list]),
        Err(InvalidTool::InvalidSchema("echo".into()))
    );
}
