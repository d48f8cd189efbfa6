//! `ingestdeck mcp`, used through a client of the official SDK.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use rmcp::{
    RoleClient, ServiceExt as _,
    model::{CallToolRequestParams, Tool},
    service::RunningService,
    transport::TokioChildProcess,
};
use serde_json::{Value, json};

use crate::commands::test_dir::TestDir;

mod sql;
pub(crate) mod warehouse;

/// Longest wait for one answer.
const LIMIT: Duration = Duration::from_secs(60);

/// The server's tools, and its process id.
struct McpClient(RunningService<RoleClient, ()>, u32);

impl McpClient {
    async fn start(place: &TestDir, args: &[&str]) -> Self {
        Self::start_command(place.command(&[&["mcp"], args].concat())).await
    }

    async fn start_command(command: std::process::Command) -> Self {
        let mut command = tokio::process::Command::from(command);
        command.kill_on_drop(true);
        let child = TokioChildProcess::new(command).unwrap();
        let pid = child.id().unwrap();
        Self(
            tokio::time::timeout(LIMIT, ().serve(child))
                .await
                .unwrap()
                .unwrap(),
            pid,
        )
    }

    async fn tools(&self) -> BTreeMap<String, Tool> {
        let tools = tokio::time::timeout(LIMIT, self.0.list_all_tools())
            .await
            .unwrap()
            .unwrap();
        tools
            .into_iter()
            .map(|tool| (tool.name.to_string(), tool))
            .collect()
    }

    /// The text of the answer, and whether the call failed.
    async fn call(&self, name: &'static str, arguments: Value) -> (String, bool) {
        let Value::Object(arguments) = arguments else {
            panic!("no object")
        };
        let params = CallToolRequestParams::new(name).with_arguments(arguments);
        let result = tokio::time::timeout(LIMIT, self.0.call_tool(params))
            .await
            .unwrap()
            .unwrap();
        let text = result
            .content
            .first()
            .and_then(|block| block.as_text())
            .unwrap()
            .text
            .clone();
        (text, result.is_error == Some(true))
    }

    async fn good(&self, name: &'static str, arguments: Value) -> String {
        let (text, failed) = self.call(name, arguments).await;
        assert!(!failed && !text.starts_with("Error"), "{name}: {text}");
        text
    }
}

/// A project with two pages of notes and a database.
fn place() -> TestDir {
    let place = TestDir::new();
    place.notes(&["one", "two"]);
    let settings = fs::read_to_string(place.path("ktx.yaml")).unwrap();
    let more = "connections:\n  shop:\n    driver: sqlite\n    path: shop.db\n";
    place.write("ktx.yaml", settings.replace("connections:\n", more));
    let database = rusqlite::Connection::open(place.path("shop.db")).unwrap();
    database
        .execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY, total REAL); INSERT INTO orders VALUES (1, 9.5)")
        .unwrap();
    place
}

fn files(below: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![below.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)
            .into_iter()
            .flatten()
            .map(Result::unwrap)
        {
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false => found.push(
                    entry
                        .path()
                        .strip_prefix(below)
                        .unwrap()
                        .to_string_lossy()
                        .into_owned(),
                ),
            }
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn client_reads_a_unit_and_writes_into_its_workspace() {
    let place = place();
    let before = files(&place.path(""));
    let work = tempfile::tempdir().unwrap();
    let args = [
        "--unit",
        "docs-one",
        "--workspace",
        work.path().to_str().unwrap(),
    ];
    let client = McpClient::start(&place, &args).await;
    assert_eq!(
        client
            .0
            .peer_info()
            .unwrap()
            .server_info
            .as_ref()
            .map(|info| info.name.as_str()),
        Some("ktx")
    );

    let tools = client.tools().await;
    for (name, read_only) in [
        ("sl_discover", true),
        ("sql_execution", true),
        ("sl_write_source", false),
        ("wiki_write", false),
    ] {
        assert_eq!(
            tools[name]
                .annotations
                .as_ref()
                .and_then(|hints| hints.read_only_hint),
            Some(read_only),
            "{name}"
        );
        assert_eq!(tools[name].input_schema["type"], "object", "{name}");
    }

    assert_eq!(
        client
            .good("read_raw_file", json!({"path": "one.md"}))
            .await,
        "# one\n"
    );
    let (other, _) = client
        .call("read_raw_file", json!({"path": "two.md"}))
        .await;
    assert!(
        other.starts_with("Error: `two.md` is not available"),
        "{other}"
    );
    let rows = client
        .good(
            "sql_execution",
            json!({"connectionId": "shop", "sql": "SELECT total FROM orders"}),
        )
        .await;
    assert!(rows.contains("| 9.5 |"), "{rows}");
    let source = json!({"name": "orders", "table": "orders", "grain": ["id"], "columns": [{"name": "id", "type": "number"}]});
    let write = json!({"connectionId": "shop", "sourceName": "orders", "source": source});
    let (locked, failed) = client.call("sl_write_source", write.clone()).await;
    assert!(
        failed && locked.contains("record_verification_ledger"),
        "{locked}"
    );
    client
        .good(
            "record_verification_ledger",
            json!({"summary": "asked the database"}),
        )
        .await;
    client.good("sl_write_source", write).await;
    client
        .good(
            "wiki_write",
            json!({"key": "orders", "summary": "Orders", "content": "# Orders", "rawPaths": ["one.md"]}),
        )
        .await;
    let (wrong, failed) = client
        .call("sl_edit_source", json!({"connectionId": "shop"}))
        .await;
    assert!(
        failed && wrong.contains("`sourceName` is missing"),
        "{wrong}"
    );
    client.0.cancel().await.unwrap();

    let written: Vec<String> = files(work.path())
        .into_iter()
        .filter(|name| !name.starts_with('.'))
        .collect();
    assert_eq!(
        written,
        ["semantic-layer/shop/orders.yaml", "wiki/global/orders.md"]
    );
    assert_eq!(files(&place.path("")), before, "the project is as it was");

    // A second session continues where the first one ended.
    let again = McpClient::start(&place, &args).await;
    assert!(
        again
            .good("wiki_search", json!({"query": "orders"}))
            .await
            .contains("- orders: Orders")
    );
    assert!(
        again
            .good("sl_discover", json!({}))
            .await
            .contains("**orders** [shop]")
    );
    again.0.cancel().await.unwrap();
}

#[tokio::test]
async fn mcp_without_a_workspace_writes_nothing() {
    let place = place();
    let before = files(&place.path(""));
    let client = McpClient::start(&place, &["--connection", "notes"]).await;
    assert_eq!(
        client
            .good("read_raw_file", json!({"path": "two.md"}))
            .await,
        "# two\n"
    );
    client
        .good("record_verification_ledger", json!({"summary": "x"}))
        .await;
    let (refused, failed) = client
        .call(
            "wiki_write",
            json!({"key": "a", "summary": "s", "content": "c"}),
        )
        .await;
    assert!(
        failed && refused.contains("these tools were started without a workspace"),
        "{refused}"
    );
    client.0.cancel().await.unwrap();
    assert_eq!(files(&place.path("")), before);
}

#[test]
fn unservable_unit_is_refused_with_one_message() {
    let place = place();
    for (args, code, sentence) in [
        (
            &["--unit", "docs-three"][..],
            4,
            "no unit matches `docs-three`; name one of the units: docs-one, docs-two",
        ),
        (
            &["--connection", "ghost"],
            4,
            "ktx.yaml has no connection `ghost`; name one of its connections: shop, notes",
        ),
        (
            &["--workspace", "wiki"],
            2,
            "cannot write to wiki: it is a part of the project; choose a separate directory; see --workspace",
        ),
    ] {
        assert_eq!(
            place.run(&[&["mcp"], args].concat()).expect_refusal(code),
            sentence
        );
    }
    assert_eq!(
        place.run(&["mcp"]).expect_success(),
        "",
        "a client that disconnects immediately is not an error"
    );
}

#[test]
fn malformed_messages_are_ignored() {
    use std::io::Write as _;

    let place = place();
    let mut child = place.command(&["mcp"]);
    child
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "hand", "version": "1"}}});
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "sql_execution", "arguments": {"connectionId": "shop", "sql": "SELECT total FROM orders"}}});
    let lines = [
        hello.to_string().into_bytes(),
        ready.to_string().into_bytes(),
        b"not json".to_vec(),
        b"\xff\xfe{\"jsonrpc\"".to_vec(),
        vec![b'['; 100_000],
        vec![b'x'; 17 * 1024 * 1024],
        br#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":5}}"#.to_vec(),
        call.to_string().into_bytes(),
    ];
    for line in lines {
        stdin.write_all(&line).unwrap();
        stdin.write_all(b"\n").unwrap();
    }
    drop(stdin);
    // Requests are answered even after the client has closed its side.
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let answers: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |id: u64| answers.iter().find(|answer| answer["id"] == id).unwrap();
    assert_eq!(of(0)["result"]["protocolVersion"], "2025-06-18");
    assert!(of(9)["error"]["code"].is_i64());
    assert!(
        of(1)["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("| 9.5 |")
    );
}
