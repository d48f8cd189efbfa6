//! A Messages API on the loopback interface that answers with what models answered in a record, for the real Claude Code.
//!
//! It knows nothing of what a model would answer to another request: where the answers of tools differ from those of the record, the
//! record ends. Supports only the parts of HTTP/1.1 and server-sent events that Claude Code uses.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Read as _, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    normal_text::NormalText,
    record::{RecordedAnswer, RecordedMessage, RecordedModel},
};
use ingestdeck_core::tape::UnitKey;

/// Largest request, in bytes.
const MAX_REQUEST: u64 = 64 << 20;
/// Longest line of its head, in bytes, and most of these lines.
const MAX_HEAD_LINE: u64 = 64 << 10;
const MAX_HEADERS: usize = 200;

/// Where the record of a unit ended before its attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordEnd {
    /// Number of the call whose answer differs, from 1; `None` if the attempt asked for more than was recorded.
    pub call: Option<usize>,
    /// The tool of this call.
    pub tool: Option<String>,
    /// The answer in the record.
    pub then: String,
    /// The answer in the rehearsal.
    pub now: String,
}

/// A running API. It ends with this value.
#[derive(Debug)]
pub(crate) struct RecordedApi {
    address: SocketAddr,
    /// The key of requests: other users of this machine may connect, too.
    key: String,
    shared: Arc<ApiRecord>,
}

#[derive(Debug)]
struct ApiRecord {
    attempts: BTreeMap<UnitKey, RecordedModel>,
    /// The key of KTX in the heading of a prompt, by unit.
    headings: BTreeMap<UnitKey, String>,
    normal: NormalText,
    key: String,
    ends: Mutex<BTreeMap<UnitKey, RecordEnd>>,
    is_over: AtomicBool,
}

impl RecordedApi {
    /// Listens on a free port. `headings` are the keys of the units in their prompts.
    ///
    /// # Errors
    /// If there is no free port.
    pub(crate) fn start(
        attempts: BTreeMap<UnitKey, RecordedModel>,
        headings: BTreeMap<UnitKey, String>,
        normal: NormalText,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let key = uuid::Uuid::new_v4().simple().to_string();
        let shared = Arc::new(ApiRecord {
            attempts,
            headings,
            normal,
            key: key.clone(),
            ends: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.is_over.load(Ordering::SeqCst) {
                    return;
                }
                let serving = Arc::clone(&accepting);
                // A client may disconnect at any time.
                thread::spawn(move || stream.and_then(|stream| serving.serve(&stream)));
            }
        });
        Ok(Self {
            address,
            key,
            shared,
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The key that requests must have.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// The units whose record ended before their attempt.
    pub(crate) fn ends(&self) -> BTreeMap<UnitKey, RecordEnd> {
        self.shared.ends.lock().clone()
    }
}

impl Drop for RecordedApi {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // Wakes the accepting thread; if that fails, the thread ends with the process.
        let _ = TcpStream::connect(self.address);
    }
}

impl ApiRecord {
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        let mut writer = stream;
        while let Some(request) = read_request(&mut reader)? {
            let is_post = request.method == "POST";
            if request.method == "HEAD" {
                respond(&mut writer, 200, &json!({}))?;
            } else if request.key.as_deref() != Some(&self.key) {
                respond(&mut writer, 401, &json!({}))?;
            } else if is_post && request.path.contains("count_tokens") {
                respond(&mut writer, 200, &json!({"input_tokens": 1}))?;
            } else if is_post && request.path.starts_with("/v1/messages") {
                self.message(&mut writer, &request.body)?;
            } else {
                respond(&mut writer, 404, &json!({}))?;
            }
        }
        Ok(())
    }

    fn message(&self, writer: &mut impl Write, body: &[u8]) -> io::Result<()> {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let messages = body["messages"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let answered = messages
            .iter()
            .filter(|message| message["role"] == "assistant")
            .count();
        let Some((unit, attempt)) = self.attempt_of(messages) else {
            return refuse(writer, "no attempt of the record has this request");
        };
        if let Some(end) = self.difference(attempt, messages) {
            let text = format!("record ends at call {}", end.call.unwrap_or_default());
            self.ends.lock().entry(unit.clone()).or_insert(end);
            return refuse(writer, &text);
        }
        let Some(message) = attempt.messages.get(answered) else {
            let end = RecordEnd {
                call: None,
                tool: None,
                then: "the attempt ended".to_owned(),
                now: "another message is needed".to_owned(),
            };
            self.ends.lock().entry(unit.clone()).or_insert(end);
            return refuse(writer, "record ends after its last message");
        };
        let head = json!({
            "id": format!("msg_{}", uuid::Uuid::new_v4().simple()), "type": "message", "role": "assistant",
            "model": body["model"], "content": [], "stop_reason": null, "stop_sequence": null, "usage": message.usage,
        });
        if body["stream"] == true {
            return stream_message(writer, message, head);
        }
        let mut whole = head;
        whole["content"] = message.blocks.clone().into();
        whole["stop_reason"] = stop_reason(message).into();
        respond(writer, 200, &whole)
    }

    /// The unit of a request, by the heading of its first message.
    fn attempt_of(&self, messages: &[Value]) -> Option<(&UnitKey, &RecordedModel)> {
        let first = messages.first()?.to_string();
        let (unit, _) = self.headings.iter().find(|(_, key)| {
            let heading = json!(format!("## WorkUnit: {key}\n")).to_string();
            first.contains(heading.trim_matches('"'))
        })?;
        self.attempts.get_key_value(unit)
    }

    /// The first answer of a tool that differs from that in the record.
    fn difference(&self, attempt: &RecordedModel, messages: &[Value]) -> Option<RecordEnd> {
        let calls = attempt.calls();
        let blocks = messages
            .iter()
            .filter_map(|message| message["content"].as_array())
            .flatten();
        for block in blocks.filter(|block| block["type"] == "tool_result") {
            let id = block["tool_use_id"].as_str().unwrap_or_default();
            let now = RecordedAnswer::of_block(block);
            let then = attempt.answers.get(id).cloned().unwrap_or_default();
            let texts = [&then.text, &now.text].map(|text| self.normal.of(text));
            if then.is_error != now.is_error || texts[0] != texts[1] {
                let call = calls.get(id);
                return Some(RecordEnd {
                    call: call.map(|(number, _)| *number),
                    tool: call.map(|(_, tool)| (*tool).to_owned()),
                    then: then.text,
                    now: now.text,
                });
            }
        }
        None
    }
}

fn refuse(writer: &mut impl Write, text: &str) -> io::Result<()> {
    let error = json!({"type": "invalid_request_error", "message": text});
    respond(writer, 400, &json!({"type": "error", "error": error}))
}

fn stop_reason(message: &RecordedMessage) -> &'static str {
    let calls = message
        .blocks
        .iter()
        .any(|block| block["type"] == "tool_use");
    if calls { "tool_use" } else { "end_turn" }
}

fn stream_message(
    writer: &mut impl Write,
    message: &RecordedMessage,
    head: Value,
) -> io::Result<()> {
    let mut text = String::new();
    let mut event = |data: Value| {
        let kind = data["type"].as_str().unwrap_or_default();
        text.push_str(&format!("event: {kind}\ndata: {data}\n\n"));
    };
    event(json!({"type": "message_start", "message": head}));
    for (index, block) in message.blocks.iter().enumerate() {
        let mut start = block.clone();
        let deltas = match block["type"].as_str() {
            Some("text") => {
                start["text"] = "".into();
                vec![json!({"type": "text_delta", "text": block["text"]})]
            }
            Some("thinking") => {
                (start["thinking"], start["signature"]) = ("".into(), "".into());
                vec![
                    json!({"type": "thinking_delta", "thinking": block["thinking"]}),
                    json!({"type": "signature_delta", "signature": block["signature"]}),
                ]
            }
            Some("tool_use") => {
                start["input"] = json!({});
                let input = block["input"].to_string();
                vec![json!({"type": "input_json_delta", "partial_json": input})]
            }
            _ => Vec::new(),
        };
        event(json!({"type": "content_block_start", "index": index, "content_block": start}));
        for delta in deltas {
            event(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        event(json!({"type": "content_block_stop", "index": index}));
    }
    let delta = json!({"stop_reason": stop_reason(message), "stop_sequence": null});
    let usage = json!({"output_tokens": message.usage["output_tokens"]});
    event(json!({"type": "message_delta", "delta": delta, "usage": usage}));
    event(json!({"type": "message_stop"}));
    write_response(writer, 200, "text/event-stream", text.as_bytes())
}

fn respond(writer: &mut impl Write, status: u16, body: &Value) -> io::Result<()> {
    write_response(
        writer,
        status,
        "application/json",
        body.to_string().as_bytes(),
    )
}

fn write_response(writer: &mut impl Write, status: u16, kind: &str, body: &[u8]) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status} Recorded\r\ncontent-type: {kind}\r\nrequest-id: req_recorded\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    writer.write_all(&[head.as_bytes(), body].concat())
}

/// A request of Claude Code.
struct ApiRequest {
    method: String,
    path: String,
    key: Option<String>,
    body: Vec<u8>,
}

/// Reads a request; `None` at the end of the connection.
fn read_request(reader: &mut impl BufRead) -> io::Result<Option<ApiRequest>> {
    let Some(first) = read_head_line(reader)? else {
        return Ok(None);
    };
    let mut words = first.split_whitespace().map(str::to_owned);
    let (method, path) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let (mut length, mut key) = (0, None);
    for _ in 0..MAX_HEADERS {
        let line = read_head_line(reader)?.unwrap_or_default();
        if line.trim().is_empty() {
            break;
        }
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap_or(0),
            "x-api-key" => key = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    if length > MAX_REQUEST {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut body = Vec::new();
    reader.take(length).read_to_end(&mut body)?;
    Ok(Some(ApiRequest {
        method,
        path,
        key,
        body,
    }))
}

/// Reads a line of the head of a request; `None` at the end of the connection.
fn read_head_line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    let length = reader.take(MAX_HEAD_LINE).read_line(&mut line)?;
    Ok((length > 0).then_some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status and body of the answer to a request with these messages.
    fn ask(api: &RecordedApi, key: &str, messages: &Value) -> (u16, Value) {
        let body = json!({"model": "m", "messages": messages}).to_string();
        let mut stream = TcpStream::connect(api.address).unwrap();
        let head = format!(
            "POST /v1/messages HTTP/1.1\r\nX-Api-Key: {key}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream
            .write_all(&[head.as_bytes(), body.as_bytes()].concat())
            .unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    /// An attempt at `docs-a` that read a file and ended.
    fn attempt() -> RecordedModel {
        let call = json!({"type": "tool_use", "id": "t1", "name": "mcp__ktx__read_raw_file", "input": {"path": "a.md"}});
        let message = |block: Value| RecordedMessage {
            blocks: vec![block],
            ..RecordedMessage::default()
        };
        let text = "read /old/project/a.md".to_owned();
        let answer = RecordedAnswer {
            text,
            is_error: false,
        };
        RecordedModel {
            messages: vec![
                message(call),
                message(json!({"type": "text", "text": "Done."})),
            ],
            answers: [("t1".to_owned(), answer)].into(),
            ..RecordedModel::default()
        }
    }

    #[test]
    fn record_is_played_until_an_answer_differs() {
        let unit = UnitKey::from("docs-a");
        let api = RecordedApi::start(
            [(unit.clone(), attempt())].into(),
            [(unit.clone(), "docs-a".to_owned())].into(),
            NormalText::new(["/old/project".into(), "/new".into()]),
        )
        .unwrap();
        let prompt = json!({"role": "user", "content": "## WorkUnit: docs-a\nRead."});
        let first = json!([prompt]);
        assert_eq!(ask(&api, "other", &first).0, 401, "another user");
        let (status, message) = ask(&api, api.key(), &first);
        assert_eq!((status, &message["stop_reason"]), (200, &json!("tool_use")));
        let answered = |text: &str| {
            let result = json!({"type": "tool_result", "tool_use_id": "t1", "content": text});
            json!([
                prompt,
                {"role": "assistant", "content": message["content"]},
                {"role": "user", "content": [result]},
            ])
        };
        let (status, last) = ask(&api, api.key(), &answered("read /new/a.md"));
        assert_eq!(
            (status, &last["content"][0]["text"]),
            (200, &json!("Done."))
        );
        assert!(api.ends().is_empty());
        let (status, error) = ask(&api, api.key(), &answered("there is no a.md"));
        assert_eq!(
            (status, &error["error"]["message"]),
            (400, &json!("record ends at call 1"))
        );
        let ends = api.ends();
        assert_eq!(
            (ends[&unit].call, ends[&unit].now.as_str()),
            (Some(1), "there is no a.md")
        );
        let other = json!([{"role": "user", "content": "## WorkUnit: docs-b\n"}]);
        assert_eq!(ask(&api, api.key(), &other).0, 400);
    }
}
