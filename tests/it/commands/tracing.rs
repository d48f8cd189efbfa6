//! OpenTelemetry: spans of live runs and of tapes, checked by the rules of OTLP's JSON encoding.

use std::{
    collections::{HashMap, HashSet},
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use serde_json::Value;

use super::test_dir::{CommandOutput, DEADLINE, TestDir};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// One unit that fails a call, and another that succeeds.
const SCRIPT: &str = r#"
[usd_per_million]
input = 1000.0
output = 1000.0
[[part]]
unit = "docs-one"
steps = [{ call = { tool = "wiki_write", with = { nonsense = "secret text" } } }, { say = "done" }]
[[part]]
unit = "docs-two"
steps = [
  { call = { tool = "record_verification_ledger", with = { summary = "Read it." } } },
  { call = { tool = "wiki_write", with = { key = "two", summary = "s", content = "Text." } } },
]"#;

/// Reads one request, and answers it. Returns its head and body.
fn answer(mut stream: TcpStream) -> (String, Value) {
    let mut request = Vec::new();
    let read = loop {
        let mut part = [0; 4096];
        let count = stream.read(&mut part).unwrap();
        request.extend_from_slice(&part[..count]);
        let text = String::from_utf8_lossy(&request);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let head = head.to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            break (head.clone(), serde_json::from_str(body).unwrap());
        }
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
    )
    .unwrap();
    read
}

/// A collector: its address, and the requests that it receives.
fn collector() -> (String, mpsc::Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (received, requests) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            if received.send(answer(stream.unwrap())).is_err() {
                break;
            }
        }
    });
    (url, requests)
}

fn attributes(span: &Value) -> HashMap<&str, &Value> {
    let list = span["attributes"].as_array().unwrap();
    let map: HashMap<&str, &Value> = list
        .iter()
        .map(|attribute| {
            let value = attribute["value"].as_object().unwrap();
            assert_eq!(value.len(), 1, "{attribute}");
            (
                attribute["key"].as_str().unwrap(),
                value.values().next().unwrap(),
            )
        })
        .collect();
    assert_eq!(map.len(), list.len(), "keys are unique: {span}");
    map
}

/// Checks the encoding of a request, and returns its spans.
fn checked_spans(request: &Value) -> Vec<Value> {
    let is_hex = |value: &Value, length: usize| {
        let text = value.as_str().unwrap();
        text.len() == length
            && text
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase())
            && text.bytes().any(|byte| byte != b'0')
    };
    let resource = &request["resourceSpans"][0];
    assert_eq!(
        resource["schemaUrl"],
        "https://opentelemetry.io/schemas/1.41.0"
    );
    assert_eq!(
        attributes(&resource["resource"])["service.name"],
        "ingestdeck"
    );
    let spans = resource["scopeSpans"][0]["spans"]
        .as_array()
        .unwrap()
        .clone();
    assert!(!spans.is_empty());
    for span in &spans {
        assert!(
            is_hex(&span["traceId"], 32) && is_hex(&span["spanId"], 16),
            "{span}"
        );
        assert!(
            span["parentSpanId"].is_null() || is_hex(&span["parentSpanId"], 16),
            "{span}"
        );
        let time = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
        let (start, end) = (time("startTimeUnixNano"), time("endTimeUnixNano"));
        assert!(start <= end && start > 1_600_000_000_000_000_000, "{span}");
        assert!(
            span["kind"] == 1 && [0, 2].contains(&span["status"]["code"].as_u64().unwrap()),
            "{span}"
        );
        for attribute in span["attributes"].as_array().unwrap() {
            if let Some(number) = attribute["value"].get("intValue") {
                number.as_str().unwrap().parse::<i64>().unwrap();
            }
        }
        assert_eq!(
            attributes(span).contains_key("error.type"),
            span["status"]["code"] == 2,
            "{span}"
        );
    }
    spans
}

/// The spans of a recorded run, by id.
fn exported(place: &TestDir, more: &[&str]) -> HashMap<String, Value> {
    let ran = place.run(&[&["runs", "export", "latest", "--format", "otlp"], more].concat());
    by_id(
        ran.expect_success()
            .lines()
            .flat_map(|line| checked_spans(&serde_json::from_str(line).unwrap())),
    )
}

fn by_id(spans: impl IntoIterator<Item = Value>) -> HashMap<String, Value> {
    let mut found = HashMap::new();
    for span in spans {
        let id = span["spanId"].as_str().unwrap().to_owned();
        assert!(found.insert(id, span).is_none(), "ids are unique");
    }
    found
}

/// Every span has a parent in the trace, except the run.
fn assert_tree(spans: &HashMap<String, Value>, parent: Option<&str>) {
    let traces: HashSet<&Value> = spans.values().map(|span| &span["traceId"]).collect();
    assert_eq!(traces.len(), 1);
    for span in spans.values() {
        let operation = attributes(span)["gen_ai.operation.name"];
        let above = span["parentSpanId"].as_str();
        let expected = match operation.as_str().unwrap() {
            "invoke_workflow" => {
                assert_eq!(above, parent, "{span}");
                continue;
            }
            "invoke_agent" => "invoke_workflow",
            "execute_tool" => "invoke_agent",
            other => panic!("{other}"),
        };
        let above = &spans[above.unwrap()];
        assert_eq!(
            attributes(above)["gen_ai.operation.name"],
            expected,
            "{span}"
        );
        assert!(
            span["name"]
                .as_str()
                .unwrap()
                .starts_with(operation.as_str().unwrap()),
            "{span}"
        );
    }
}

fn run(place: &TestDir, variables: &[(&str, &str)]) -> CommandOutput {
    place.notes(&["one", "two"]);
    let script = place.write("script.toml", SCRIPT);
    let (exe, log) = (crate::support::program(), place.path("traceparent"));
    let claude = place.claude(&format!(
        "echo \"$TRACEPARENT\" >> '{}'\nexec '{exe}' scripted-agent --script '{}' -- \"$@\"",
        log.display(),
        script.display()
    ));
    let mut command = place.command(&[
        "run",
        "--ui",
        "none",
        "--claude-bin",
        claude.to_str().unwrap(),
    ]);
    command.envs(variables.iter().copied());
    let ran = place.ran(command);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    ran
}

#[test]
fn spans_of_a_tape_form_a_tree_without_content() {
    let place = TestDir::new();
    run(&place, &[]);
    let spans = exported(&place, &[]);
    assert_tree(&spans, None);
    let named = |name: &str| -> Vec<&Value> {
        spans.values().filter(|span| span["name"] == name).collect()
    };
    let [run] = named("invoke_workflow work")[..] else {
        panic!("{spans:?}")
    };
    let run_id = fs::read_dir(place.path(".ktx/ingestdeck/runs"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .file_name();
    let run_id = run_id.to_str().unwrap();
    assert_eq!(attributes(run)["ingestdeck.run"], run_id);
    assert_eq!(run["traceId"], run_id.replace('-', ""));
    assert_eq!(attributes(run)["error.type"], "failed_units");
    let attempts = named("invoke_agent claude");
    assert!(attempts.len() >= 2, "{attempts:?}");
    // The reconcile step has no part in the script, so it costs nothing.
    for attempt in attempts
        .into_iter()
        .filter(|attempt| attributes(attempt)["ingestdeck.unit"] != "reconcile")
    {
        let attributes = attributes(attempt);
        let cost = attributes["ingestdeck.cost_usd"].as_f64().unwrap();
        assert!(
            cost > 0.0 && attributes["gen_ai.provider.name"] == "anthropic",
            "{attempt}"
        );
        assert!(
            attributes["gen_ai.usage.input_tokens"]
                .as_str()
                .unwrap()
                .parse::<u64>()
                .unwrap()
                > 0,
            "{attempt}"
        );
        assert!(
            attributes.contains_key("gen_ai.conversation.id"),
            "{attempt}"
        );
    }
    let writes = named("execute_tool wiki_write");
    assert_eq!(
        writes
            .iter()
            .filter(|call| attributes(call).contains_key("error.type"))
            .count(),
        1,
        "{writes:?}"
    );
    assert!(!format!("{spans:?}").contains("secret text"));
    let with_content = exported(&place, &["--content"]);
    assert!(format!("{with_content:?}").contains("secret text"));
    assert_eq!(with_content.len(), spans.len());
    assert_eq!(
        fs::read_to_string(place.path("traceparent"))
            .unwrap()
            .trim(),
        "",
        "nothing is traced"
    );
}

#[test]
#[ignore = "needs curl"]
fn live_spans_equal_those_of_the_tape() {
    let place = TestDir::new();
    let (url, requests) = collector();
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-key=a%20b"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-other=c"),
        ("TRACEPARENT", &parent),
    ];
    run(&place, &variables);
    let expected = exported(&place, &[]);
    assert_tree(&expected, Some(PARENT));
    assert!(expected.values().all(|span| span["traceId"] == TRACE));
    let mut live = Vec::new();
    while live.len() < expected.len() {
        let (head, body) = requests
            .recv_timeout(DEADLINE)
            .expect("the rest of the spans");
        assert!(
            head.starts_with("post /v1/traces ") && head.contains("x-key: a b"),
            "{head}"
        );
        assert!(!head.contains("x-other"), "{head}");
        live.extend(checked_spans(&body));
    }
    assert_eq!(by_id(live), expected);

    let given = fs::read_to_string(place.path("traceparent")).unwrap();
    let attempts: HashSet<String> = expected
        .values()
        .filter(|span| span["name"] == "invoke_agent claude")
        .map(|span| format!("00-{TRACE}-{}-01", span["spanId"].as_str().unwrap()))
        .collect();
    assert_eq!(
        given.lines().map(str::to_owned).collect::<HashSet<_>>(),
        attempts
    );

    // The same spans can be sent later.
    let ran = place.run(&["runs", "export", "--format", "otlp", "--endpoint", &url]);
    assert_eq!(ran.expect_success(), "");
    let mut again = Vec::new();
    while again.len() < expected.len() {
        again.extend(checked_spans(&requests.recv_timeout(DEADLINE).unwrap().1));
    }
    assert_eq!(by_id(again), expected);
}

#[test]
fn absent_collector_does_not_affect_the_run() {
    let place = TestDir::new();
    // The port is free once the listener is dropped.
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    run(
        &place,
        &[("INGESTDECK_OTEL_ENDPOINT", &format!("http://{address}"))],
    );
    let ran = place.run(&[
        "runs",
        "export",
        "--format",
        "otlp",
        "--endpoint",
        &format!("http://{address}"),
    ]);
    assert!(
        ran.expect_refusal(1)
            .contains("cannot send the spans to the collector"),
        "{ran:?}"
    );
}

#[test]
fn collector_that_never_answers_does_not_affect_the_run() {
    let place = TestDir::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    run(&place, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &url)]);
    drop(listener);
}

#[test]
fn invalid_tracing_options_are_refused() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let claude = place
        .scripted_claude("[[part]]\nsteps = [{ say = \"yes\" }]")
        .display()
        .to_string();
    let mut command = place.command(&["run", "--ui", "none", "--claude-bin", &claude]);
    command.env("INGESTDECK_OTEL_ENDPOINT", "file:///etc/passwd");
    let ran = place.ran(command);
    let refusal = ran.expect_refusal(2);
    assert!(
        refusal.contains("expected http:// or https://") && refusal.contains("INGESTDECK_OTEL"),
        "{refusal}"
    );
    for (args, expected) in [
        (
            &["--endpoint", "http://x"][..],
            "--endpoint needs --format otlp",
        ),
        (&["--content"], "--content needs --format otlp"),
    ] {
        let ran = place.run(&[&["runs", "export", "latest"], args].concat());
        assert!(ran.expect_refusal(2).contains(expected), "{ran:?}");
    }
}

#[test]
fn unusable_standard_variables_only_warn() {
    for (variables, cause) in [
        (
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317")][..],
            "expected http:// or https://",
        ),
        (
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317"),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ],
            "the protocol `grpc` is not supported",
        ),
    ] {
        let place = TestDir::new();
        let ran = run(&place, variables);
        assert!(
            ran.stderr.contains("no spans are exported") && ran.stderr.contains(cause),
            "{ran:?}"
        );
        assert_eq!(
            fs::read_to_string(place.path("traceparent"))
                .unwrap()
                .trim(),
            "",
            "nothing is traced"
        );
    }
}

#[test]
fn damaged_traceparent_starts_a_new_trace() {
    let place = TestDir::new();
    run(&place, &[("TRACEPARENT", "00-not-a-trace")]);
    let spans = exported(&place, &[]);
    assert_tree(&spans, None);
    let agents = fs::read_to_string(place.path("traceparent")).unwrap();
    let trace = spans.values().next().unwrap()["traceId"].as_str().unwrap();
    assert!(
        agents
            .lines()
            .all(|line| line.starts_with(&format!("00-{trace}-"))),
        "{agents}"
    );
}
