//! A scripted Messages API on 127.0.0.1, with routes by text in the request and a list of turns per route. It records
//! every request. Supports only the parts of HTTP/1.1 and server-sent events that the CLI uses.
//!
//! ```ignore
//! let api = Api::start([
//!     Route::on("## WorkUnit: a", [ApiTurn::calls([tool("mcp__ktx__wiki_write", json!({}))]), ApiTurn::answer("done")]),
//!     Route::any([ApiTurn::error(529, "overloaded_error", "Overloaded")]),
//! ]);
//! ```

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

pub(crate) fn thinking(text: &str) -> Value {
    json!({"type": "thinking", "thinking": text})
}

/// A call of the tool `name`. A string as `input` is sent unchanged, to test arguments that do not parse.
pub(crate) fn tool(name: &str, input: Value) -> Value {
    json!({"type": "tool_use", "name": name, "input": input})
}

/// The turns for requests that contain a given text.
#[derive(Debug)]
pub(crate) struct ApiRoute {
    needle: String,
    turns: Vec<ApiTurn>,
}

impl ApiRoute {
    /// A route for requests whose body contains `needle` as JSON text, so without quotes or newlines. The first
    /// matching route applies.
    pub(crate) fn on(needle: &str, turns: impl IntoIterator<Item = ApiTurn>) -> Self {
        Self {
            needle: needle.into(),
            turns: turns.into_iter().collect(),
        }
    }

    /// Sets the `usage` of the turns, in order.
    pub(crate) fn with_usage(mut self, usages: &[Value]) -> Self {
        for (turn, usage) in self.turns.iter_mut().zip(usages) {
            turn.usage = Some(usage.clone());
        }
        self
    }

    /// A route for all requests.
    pub(crate) fn any(turns: impl IntoIterator<Item = ApiTurn>) -> Self {
        Self::on("", turns)
    }
}

/// The response to one request. The last turn of a route repeats.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiTurn {
    blocks: Vec<Value>,
    error: Option<(u16, Value)>,
    headers: Vec<(String, String)>,
    /// Seconds from the response until the usage window resets.
    resets_in: Option<i64>,
    delay: Duration,
    chunk_delay: Duration,
    stop_reason: Option<String>,
    usage: Option<Value>,
    fault: Option<ApiFault>,
}

/// A failure below the HTTP level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiFault {
    /// Closes the connection without a response.
    Close,
    /// Sends no response until the API is dropped.
    Stall,
    /// Stops after the second delta and keeps the connection open.
    StallMidway,
    /// Closes the connection after the second delta.
    Truncate,
    /// Sends an `error` event after the second delta.
    ErrorEvent,
    /// Sends a stream without events.
    Empty,
    /// Sends an event that is not JSON.
    Garbage,
    /// Sends an HTML page with status 200.
    Html,
}

impl ApiTurn {
    /// Responds with these blocks.
    pub(crate) fn blocks(blocks: impl IntoIterator<Item = Value>) -> Self {
        Self {
            blocks: blocks.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Responds with one text block.
    pub(crate) fn answer(words: &str) -> Self {
        Self::blocks([text(words)])
    }

    /// Responds with an HTTP error.
    pub(crate) fn error(status: u16, kind: &str, message: &str) -> Self {
        let body = json!({"type": "error", "error": {"type": kind, "message": message}});
        Self {
            error: Some((status, body)),
            ..Self::default()
        }
    }

    /// Responds with 401, as for an invalid key.
    pub(crate) fn unauthorized() -> Self {
        Self::error(401, "authentication_error", "invalid x-api-key")
    }

    /// Responds with 429 and `retry-after`.
    pub(crate) fn rate_limited(retry_after_seconds: u32) -> Self {
        Self::error(
            429,
            "rate_limit_error",
            "This request would exceed your rate limit.",
        )
        .header("retry-after", &retry_after_seconds.to_string())
    }

    /// Responds with 429 and the headers of an exhausted five-hour window that resets `resets_in` seconds later.
    pub(crate) fn usage_limit(resets_in: i64) -> Self {
        let mut turn = Self::error(
            429,
            "rate_limit_error",
            "This request would exceed your account's rate limit.",
        )
        .header("anthropic-ratelimit-unified-status", "rejected")
        .header(
            "anthropic-ratelimit-unified-representative-claim",
            "five_hour",
        )
        .header("anthropic-ratelimit-unified-5h-status", "rejected")
        .header("anthropic-ratelimit-unified-5h-utilization", "1.0");
        turn.resets_in = Some(resets_in);
        turn
    }

    /// Adds a header to the response.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(crate) fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Delays every delta of a streamed response.
    pub(crate) fn slowly(mut self, delay: Duration) -> Self {
        self.chunk_delay = delay;
        self
    }

    /// Sets the stop reason; the default is `tool_use` or `end_turn`.
    pub(crate) fn stop_reason(mut self, reason: &str) -> Self {
        self.stop_reason = Some(reason.into());
        self
    }

    /// Replaces fields of `usage`.
    pub(crate) fn usage(mut self, usage: Value) -> Self {
        self.usage = Some(usage);
        self
    }

    pub(crate) fn fault(mut self, fault: ApiFault) -> Self {
        self.fault = Some(fault);
        self
    }

    fn is_call(&self) -> bool {
        self.blocks.iter().any(|block| block["type"] == "tool_use")
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ApiRequest {
    pub(crate) path: String,
    /// Names are in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl ApiRequest {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    /// The system prompt that the model reads.
    pub(crate) fn system(&self) -> String {
        let system = &self.json()["system"];
        let blocks = system
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|block| block["text"].as_str());
        system
            .as_str()
            .into_iter()
            .chain(blocks)
            .collect::<Vec<_>>()
            .join("\n")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// Names of the tools in the request, sorted.
    pub(crate) fn tool_names(&self) -> Vec<String> {
        let body = self.json();
        let tools = body["tools"].as_array().cloned().unwrap_or_default();
        let mut names: Vec<String> = tools
            .iter()
            .filter_map(|tool| Some(tool["name"].as_str()?.to_owned()))
            .collect();
        names.sort();
        names
    }
}

#[derive(Debug, Default)]
struct ApiState {
    requests: Vec<ApiRequest>,
    used: Vec<usize>,
    stopped: bool,
}

#[derive(Debug)]
struct ApiServer {
    routes: Vec<ApiRoute>,
    state: Mutex<ApiState>,
    changed: Condvar,
}

/// A running API. Dropping it closes all stalled connections.
#[derive(Debug)]
pub(crate) struct FakeApi {
    address: SocketAddr,
    shared: Arc<ApiServer>,
}

impl FakeApi {
    /// Listens on a free port.
    pub(crate) fn start(routes: impl IntoIterator<Item = ApiRoute>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let routes: Vec<ApiRoute> = routes.into_iter().collect();
        assert!(
            routes.iter().all(|route| !route.turns.is_empty()),
            "a route without turns answers nothing"
        );
        let state = Mutex::new(ApiState {
            used: vec![0; routes.len()],
            ..ApiState::default()
        });
        let shared = Arc::new(ApiServer {
            routes,
            state,
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.state().stopped {
                    return;
                }
                let serving = Arc::clone(&accepting);
                // Ignore errors: in many tests the client disconnects early.
                thread::spawn(move || stream.and_then(|stream| serving.connection(stream)));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All `POST /v1/messages` requests so far except token counts, oldest first.
    pub(crate) fn requests(&self) -> Vec<ApiRequest> {
        self.shared.state().requests.clone()
    }

    /// Waits until `count` requests have arrived. Panics after `limit`.
    pub(crate) fn wait_for_requests(&self, count: usize, limit: Duration) -> Vec<ApiRequest> {
        let state = self.shared.state();
        let (state, timeout) = self
            .shared
            .changed
            .wait_timeout_while(state, limit, |state| state.requests.len() < count)
            .expect("no test thread panicked");
        assert!(
            !timeout.timed_out(),
            "{} of {count} requests after {limit:?}",
            state.requests.len()
        );
        state.requests.clone()
    }
}

impl Drop for FakeApi {
    fn drop(&mut self) {
        self.shared.state().stopped = true;
        self.shared.changed.notify_all();
        // Wakes the accepting thread; if that fails, the thread ends with the test process.
        let _ = TcpStream::connect(self.address);
    }
}

impl ApiServer {
    fn state(&self) -> MutexGuard<'_, ApiState> {
        // After the panic of a test, this is also called while its values are dropped.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pause(&self, time: Duration) {
        if !time.is_zero() {
            drop(
                self.changed
                    .wait_timeout_while(self.state(), time, |state| !state.stopped),
            );
        }
    }

    fn stall(&self) {
        drop(
            self.changed
                .wait_while(self.state(), |state| !state.stopped),
        );
    }

    /// The turn for a request, and the number of requests that the route has answered before.
    fn choose(&self, request: &ApiRequest) -> Option<(ApiTurn, usize)> {
        let mut state = self.state();
        state.requests.push(request.clone());
        self.changed.notify_all();
        let index = self
            .routes
            .iter()
            .position(|route| request.body.contains(&route.needle))?;
        let turns = &self.routes[index].turns;
        let number = state.used[index];
        state.used[index] += 1;
        Some((turns[number.min(turns.len() - 1)].clone(), number))
    }

    fn connection(&self, stream: TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut writer = stream;
        while let Some((method, request)) = read_request(&mut reader)? {
            let goes_on = match method.as_str() {
                "HEAD" => respond(&mut writer, 200, "application/json", &[], b"").is_ok(),
                "POST" if request.path.contains("count_tokens") => respond(
                    &mut writer,
                    200,
                    "application/json",
                    &[],
                    br#"{"input_tokens":10}"#,
                )
                .is_ok(),
                "POST" if request.path.starts_with("/v1/messages") => {
                    self.message(&mut writer, &request)?
                }
                _ => respond(&mut writer, 404, "application/json", &[], b"{}").is_ok(),
            };
            if !goes_on {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Responds to one request for a message. Returns false if the connection must be closed.
    fn message(&self, writer: &mut TcpStream, request: &ApiRequest) -> io::Result<bool> {
        let Some((turn, number)) = self.choose(request) else {
            let body = json!({"type": "error", "error": {"type": "not_found_error", "message": "no route for this"}});
            respond(
                writer,
                400,
                "application/json",
                &[],
                body.to_string().as_bytes(),
            )?;
            return Ok(true);
        };
        self.pause(turn.delay);
        match turn.fault {
            Some(ApiFault::Close) => return Ok(false),
            Some(ApiFault::Stall) => {
                self.stall();
                return Ok(false);
            }
            Some(ApiFault::Html) => {
                respond(
                    writer,
                    200,
                    "text/html",
                    &[],
                    b"<html><body>502 Bad Gateway</body></html>",
                )?;
                return Ok(true);
            }
            _ => {}
        }
        if let Some((status, body)) = &turn.error {
            let mut headers = turn.headers.clone();
            if let Some(seconds) = turn.resets_in {
                let at = (Timestamp::now().as_second() + seconds).to_string();
                headers.extend(
                    [
                        "anthropic-ratelimit-unified-reset",
                        "anthropic-ratelimit-unified-5h-reset",
                    ]
                    .map(|name| (name.to_owned(), at.clone())),
                );
            }
            respond(
                writer,
                *status,
                "application/json",
                &headers,
                body.to_string().as_bytes(),
            )?;
            return Ok(true);
        }
        let body = request.json();
        let message = skeleton(&turn, number, &body["model"]);
        if body["stream"] == true {
            return self.stream(writer, &turn, message);
        }
        let mut message = message;
        message["content"] = turn.blocks.iter().map(with_id).collect();
        message["stop_reason"] = stop_reason(&turn).into();
        respond(
            writer,
            200,
            "application/json",
            &turn.headers,
            message.to_string().as_bytes(),
        )?;
        Ok(true)
    }

    fn stream(&self, writer: &mut TcpStream, turn: &ApiTurn, message: Value) -> io::Result<bool> {
        let mut head = String::from(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nrequest-id: req_test\r\n",
        );
        for (name, value) in &turn.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += "transfer-encoding: chunked\r\n\r\n";
        writer.write_all(head.as_bytes())?;
        match turn.fault {
            Some(ApiFault::Empty) => return end_stream(writer),
            Some(ApiFault::Garbage) => {
                chunk(writer, b"event: message_start\ndata: {not json at all\n\n")?;
                return end_stream(writer);
            }
            _ => {}
        }
        let output = turn
            .usage
            .as_ref()
            .and_then(|usage| usage["output_tokens"].as_u64())
            .unwrap_or(42);
        event(writer, json!({"type": "message_start", "message": message}))?;
        let mut deltas = 0;
        for (index, block) in turn.blocks.iter().enumerate() {
            let (start, parts) = pieces(block);
            event(
                writer,
                json!({"type": "content_block_start", "index": index, "content_block": start}),
            )?;
            for part in parts {
                event(
                    writer,
                    json!({"type": "content_block_delta", "index": index, "delta": part}),
                )?;
                self.pause(turn.chunk_delay);
                deltas += 1;
                match turn.fault.filter(|_| deltas == 2) {
                    Some(ApiFault::StallMidway) => {
                        self.stall();
                        return Ok(false);
                    }
                    Some(ApiFault::Truncate) => return Ok(false),
                    Some(ApiFault::ErrorEvent) => {
                        let error = json!({"type": "overloaded_error", "message": "Overloaded"});
                        event(writer, json!({"type": "error", "error": error}))?;
                        return end_stream(writer);
                    }
                    _ => {}
                }
            }
            event(
                writer,
                json!({"type": "content_block_stop", "index": index}),
            )?;
        }
        let delta = json!({"stop_reason": stop_reason(turn), "stop_sequence": null});
        event(
            writer,
            json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": output}}),
        )?;
        event(writer, json!({"type": "message_stop"}))?;
        end_stream(writer)
    }
}

fn stop_reason(turn: &ApiTurn) -> String {
    turn.stop_reason.clone().unwrap_or_else(|| {
        if turn.is_call() {
            "tool_use"
        } else {
            "end_turn"
        }
        .into()
    })
}

fn skeleton(turn: &ApiTurn, number: usize, model: &Value) -> Value {
    let mut usage = json!({
        "input_tokens": 100 + number, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 5,
    });
    for (key, value) in turn.usage.iter().filter_map(Value::as_object).flatten() {
        usage[key] = value.clone();
    }
    json!({
        "id": format!("msg_{}", uuid::Uuid::new_v4().simple()), "type": "message", "role": "assistant",
        "model": model, "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage,
    })
}

/// Adds an id to a tool call unless the test set one.
fn with_id(block: &Value) -> Value {
    let mut block = block.clone();
    if block["type"] == "tool_use" && block["id"].is_null() {
        block["id"] = format!("toolu_{}", uuid::Uuid::new_v4().simple()).into();
    }
    block
}

/// The start of a block, and its deltas.
fn pieces(block: &Value) -> (Value, Vec<Value>) {
    let words = |key: &str| block[key].as_str().unwrap_or_default().to_owned();
    match block["type"].as_str() {
        Some("text") => {
            let letters: Vec<char> = words("text").chars().collect();
            let deltas = letters
                .chunks(20)
                .map(|part| json!({"type": "text_delta", "text": String::from_iter(part)}));
            (json!({"type": "text", "text": ""}), deltas.collect())
        }
        Some("thinking") => (
            json!({"type": "thinking", "thinking": "", "signature": ""}),
            vec![
                json!({"type": "thinking_delta", "thinking": words("thinking")}),
                json!({"type": "signature_delta", "signature": "c2ln"}),
            ],
        ),
        Some("tool_use") => {
            let mut start = with_id(block);
            let arguments = match start["input"].take() {
                Value::String(text) => text,
                input => input.to_string(),
            };
            start["input"] = json!({});
            (
                start,
                vec![json!({"type": "input_json_delta", "partial_json": arguments})],
            )
        }
        _ => (block.clone(), Vec::new()),
    }
}

fn event(writer: &mut TcpStream, data: Value) -> io::Result<()> {
    chunk(
        writer,
        format!(
            "event: {}\ndata: {data}\n\n",
            data["type"].as_str().unwrap_or_default()
        )
        .as_bytes(),
    )
}

fn chunk(writer: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
    framed.extend_from_slice(bytes);
    framed.extend_from_slice(b"\r\n");
    writer.write_all(&framed)
}

fn end_stream(writer: &mut TcpStream) -> io::Result<bool> {
    writer.write_all(b"0\r\n\r\n")?;
    Ok(true)
}

fn respond(
    writer: &mut TcpStream,
    status: u16,
    kind: &str,
    headers: &[(String, String)],
    body: &[u8],
) -> io::Result<()> {
    let mut head =
        format!("HTTP/1.1 {status} Scripted\r\ncontent-type: {kind}\r\nrequest-id: req_test\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("content-length: {}\r\n\r\n", body.len());
    writer.write_all(&[head.as_bytes(), body].concat())
}

/// Reads method and request; `None` at the end of the connection.
fn read_request(reader: &mut impl BufRead) -> io::Result<Option<(String, ApiRequest)>> {
    let mut first = String::new();
    if reader.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let mut words = first.split_whitespace();
    let (method, path) = (
        words.next().unwrap_or_default().to_owned(),
        words.next().unwrap_or_default().to_owned(),
    );
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.push((name.trim().to_lowercase(), value.trim().to_owned()));
        }
    }
    let mut request = ApiRequest {
        path,
        headers,
        body: String::new(),
    };
    let length = request
        .header("content-length")
        .and_then(|length| length.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    request.body = String::from_utf8_lossy(&body).into_owned();
    Ok(Some((method, request)))
}
