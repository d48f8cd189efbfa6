//! Notifications about a run without an attached screen.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use serde_json::Value;

use super::test_dir::TestDir;

const FAILS: &str = r#"[[part]]
steps = [{ call = { tool = "wiki_write", with = { nonsense = "secret text" } } }, { say = "done" }]"#;

/// Answers one request with `status`, and returns its body.
fn answer(mut stream: TcpStream, status: &str) -> Value {
    let mut request = Vec::new();
    let body = loop {
        let mut part = [0; 4096];
        let count = stream.read(&mut part).unwrap();
        request.extend_from_slice(&part[..count]);
        let text = String::from_utf8_lossy(&request);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head.lines().find_map(|line| {
            line.to_lowercase()
                .strip_prefix("content-length: ")?
                .parse()
                .ok()
        });
        assert!(head.starts_with("POST /hook?token=1 "), "{head}");
        assert!(
            head.to_lowercase()
                .contains("content-type: application/json"),
            "{head}"
        );
        if body.len() >= length.unwrap_or(0) {
            break serde_json::from_str(body).unwrap();
        }
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    body
}

fn run(place: &TestDir, url: &str, command: Option<&str>) {
    place.notes(&["one"]);
    let claude = place.scripted_claude(FAILS).display().to_string();
    let mut command_line = place.command(&["run", "--ui", "none", "--claude-bin", &claude]);
    command_line.env("INGESTDECK_NOTIFY_URL", url);
    if let Some(command) = command {
        command_line
            .env("INGESTDECK_UI_NOTIFY", "command")
            .env("INGESTDECK_UI_NOTIFY_COMMAND", command);
    }
    let ran = place.ran(command_line);
    assert_eq!(ran.code, Some(100), "{ran:?}");
}

#[test]
#[ignore = "needs curl"]
fn webhook_and_command_receive_failure_and_end() {
    let place = TestDir::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook?token=1", listener.local_addr().unwrap());
    let (received, bodies) = mpsc::channel();
    std::thread::spawn(move || {
        // The first answer is an error that curl retries.
        for (stream, status) in listener
            .incoming()
            .zip(["503 Busy", "200 OK", "200 OK", "200 OK"])
        {
            let _ = received.send(answer(stream.unwrap(), status));
        }
    });
    let log = place.path("notified");
    let notify = place.script("notify", &format!("echo \"$@\" >> '{}'", log.display()));
    run(&place, &url, Some(notify.to_str().unwrap()));
    let events: Vec<Value> = bodies.try_iter().collect();
    let names: Vec<&str> = events
        .iter()
        .filter_map(|event| event["event"].as_str())
        .collect();
    assert!(
        names.contains(&"first_failure") && names.contains(&"ended"),
        "{events:?}"
    );
    let failure = events
        .iter()
        .find(|event| event["event"] == "first_failure")
        .unwrap();
    assert_eq!(failure["unit"], "docs-one");
    assert!(!failure.to_string().contains("secret text"), "{failure}");
    let lines = std::fs::read_to_string(log).unwrap();
    assert!(
        lines.contains("ingestdeck work docs-one failed") && lines.contains("1 of 1 units failed"),
        "{lines}"
    );
}

#[test]
fn unreachable_webhook_does_not_affect_the_run() {
    let place = TestDir::new();
    // The port is free once the listener is dropped.
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    run(&place, &format!("http://{address}/hook"), None);
}

#[test]
fn webhook_must_be_an_http_address() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let claude = place.scripted_claude(FAILS).display().to_string();
    let mut command = place.command(&["run", "--ui", "none", "--claude-bin", &claude]);
    command.env("INGESTDECK_NOTIFY_URL", "file:///etc/passwd");
    let text = place.ran(command);
    assert!(text.expect_refusal(2).contains("notify.url"), "{text:?}");
}
