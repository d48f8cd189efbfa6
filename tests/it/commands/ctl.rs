//! `ctl`: commands to a run of another process over its control socket.

use std::{
    fs::{self, Permissions},
    io::{BufRead as _, BufReader, Write as _},
    os::unix::{fs::PermissionsExt as _, net::UnixStream, process::CommandExt as _},
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::test_dir::{DEADLINE, RunningCommand, TestDir, tape};

/// Two calls. The second one waits for [`proceed`].
const TWO_CALLS: &str = r#"[[part]]
steps = [
    { call = { tool = "read_raw_file", with = { path = "one.md" } } },
    { call = { tool = "wiki_list_tags", with = {} } }, { say = "done" },
]"#;

fn start(place: &TestDir, script: &str) -> RunningCommand {
    place.notes(&["one"]);
    let scripted = place.scripted_claude(script);
    let inner = scripted.with_file_name("inner");
    fs::rename(&scripted, &inner).unwrap();
    let claude = place.claude(&format!(
        r#"'{}' "$@" | while IFS= read -r line; do
  case "$line" in *tool_use*wiki_*) until [ -e '{}' ]; do sleep 0.02; done;; esac
  printf '%s\n' "$line"
done"#,
        inner.display(),
        place.path("../proceed").display(),
    ));
    let claude = claude.display().to_string();
    let mut running = place.start(place.command(&["run", "--ui", "json", "--claude-bin", &claude]));
    running.wait_for("stdout", "\"phase\":\"completed\"");
    running
}

/// Lets the agent make its second call.
fn proceed(place: &TestDir) {
    place.write("../proceed", "");
}

/// The rows of a `ctl` command, once there is one.
fn rows(place: &TestDir, args: &[&str]) -> Vec<Value> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let args: Vec<&str> = ["ctl"]
            .iter()
            .chain(args)
            .chain(&["--ui", "json"])
            .copied()
            .collect();
        let output = place.run(&args);
        let rows: Vec<Value> = output
            .expect_success()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        if !rows.is_empty() {
            return rows;
        }
        assert!(Instant::now() < deadline, "no row");
    }
}

fn socket(place: &TestDir) -> PathBuf {
    place
        .sockets()
        .read_dir()
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path()
}

#[test]
fn message_from_another_process_is_part_of_the_turn() {
    let place = TestDir::new();
    let running = start(&place, TWO_CALLS);
    place
        .run(&["ctl", "say", "docs-one", "Amounts are in euros."])
        .expect_success();
    proceed(&place);
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let recorded = fs::read_to_string(tape(&place.path(""))).unwrap();
    let count = |needle: &str| {
        recorded
            .lines()
            .filter(|line| line.contains(needle))
            .count()
    };
    assert_eq!(
        (count("message_sent"), count(r#""subtype":"init""#)),
        (1, 1),
        "{recorded}"
    );
}

#[test]
fn run_is_named_before_or_after_the_verb() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let claude = place
        .scripted_claude("[[part]]\nsteps = [{ say = \"done\" }]\n")
        .display()
        .to_string();
    place.run(&["run", "--ui", "none", "--claude-bin", &claude]);
    for args in [
        ["ctl", "--run", "latest", "status"],
        ["ctl", "status", "--run", "latest"],
    ] {
        assert!(
            place.run(&args).expect_success().contains("1 unit"),
            "{args:?}"
        );
    }
    for verb in ["status", "units", "retry", "set", "stop-all"] {
        assert!(
            place
                .run(&["ctl", verb, "--help"])
                .expect_success()
                .contains("--run <RUN>"),
            "{verb}"
        );
    }
}

#[test]
fn hidden_flags_and_commands_are_not_suggested() {
    let place = TestDir::new();
    for args in [
        &["plan", "--run", "x"][..],
        &["plan", "--run-as-engin"],
        &["screenshots"],
        &["watch", "--unti", "frame"],
    ] {
        let refused = place.run(args);
        let stderr = &refused.stderr;
        assert_eq!(refused.code, Some(2), "{args:?}: {stderr}");
        assert!(
            !stderr.contains("as-engine'") && !stderr.contains("'screenshot'"),
            "{args:?}: {stderr}"
        );
        assert!(!stderr.contains("--until"), "{args:?}: {stderr}");
    }
    assert!(
        place.run(&["paln"]).stderr.contains("'plan'"),
        "other suggestions are shown"
    );
}

#[test]
fn held_call_is_allowed_from_another_process() {
    let place = TestDir::new();
    let running = start(&place, TWO_CALLS);
    place.run(&["ctl", "hold", "docs-one"]).expect_success();
    proceed(&place);
    let approvals = rows(&place, &["approvals"]);
    assert_eq!(
        (&approvals[0]["unit"], &approvals[0]["tool"]),
        (&json!("docs-one"), &json!("wiki_list_tags"))
    );
    let events = rows(&place, &["events"]);
    let summary = &events.last().unwrap()["event"];
    assert_eq!(
        (&summary["state"], &summary["units"]),
        (&json!("summary"), &json!({"held": 1})),
        "{events:?}"
    );
    assert!(
        !events
            .iter()
            .any(|line| line["event"]["type"] == "completed"),
        "nothing is over: {events:?}"
    );
    let mistaken = place.run(&["ctl", "edit", "docs-one", "--input", r#"{"tags":1}"#]);
    assert!(
        mistaken.expect_refusal(4).contains("`tags` is not a field"),
        "{mistaken:?}"
    );
    assert_eq!(
        rows(&place, &["approvals"]),
        approvals,
        "the call still waits"
    );
    let status = rows(&place, &["status"]);
    assert_eq!(status[0]["approvals"], json!(approvals));
    assert_eq!(rows(&place, &["units"])[0]["state"], "held");
    place.run(&["ctl", "allow", "docs-one"]).expect_success();
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        !socket_dir_has_files(&place),
        "the socket is removed with the run"
    );
}

#[test]
fn edited_call_is_shown_with_its_new_arguments() {
    let place = TestDir::new();
    let script = TWO_CALLS.replace(
        "wiki_list_tags\", with = {}",
        "wiki_read\", with = { key = \"orig\" }",
    );
    let running = start(&place, &script);
    place.run(&["ctl", "hold", "docs-one"]).expect_success();
    proceed(&place);
    rows(&place, &["approvals"]);
    place
        .run(&["ctl", "edit", "docs-one", "--input", r#"{"key":"edited"}"#])
        .expect_success();
    place.run(&["ctl", "release", "docs-one"]).expect_success();
    running.end();
    let lines = place.run(&["replay", "latest", "--ui", "lines"]);
    assert!(
        lines.stdout.contains(" wiki_read edited (edited)")
            && !lines.stdout.contains("wiki_read orig"),
        "{lines:?}"
    );
}

fn socket_dir_has_files(place: &TestDir) -> bool {
    place.sockets().read_dir().unwrap().next().is_some()
}

#[test]
fn denied_call_gets_the_reason() {
    let place = TestDir::new();
    let running = start(&place, TWO_CALLS);
    place.run(&["ctl", "hold", "docs-one"]).expect_success();
    proceed(&place);
    rows(&place, &["approvals"]);
    let late = place.run(&["ctl", "allow", "docs-one", "--call", "toolu_none"]);
    assert!(
        late.expect_refusal(4).contains("the call no longer waits"),
        "{late:?}"
    );
    place
        .run(&["ctl", "deny", "docs-one", "--reason", "not needed"])
        .expect_success();
    place.run(&["ctl", "release", "docs-one"]).expect_success();
    let ended = running.end();
    assert!(ended.stdout.contains("not needed"), "{ended:?}");
}

#[test]
fn unusable_commands_are_refused() {
    let place = TestDir::new();
    place.notes(&["one"]);
    assert!(
        place
            .run(&["ctl", "status"])
            .expect_refusal(4)
            .contains("no run is active")
    );
    let running = start(&place, TWO_CALLS);
    assert!(
        place
            .run(&["ctl", "stop", "other"])
            .expect_refusal(4)
            .contains("no unit `other`")
    );
    assert!(
        place
            .run(&["ctl", "allow", "docs-one"])
            .expect_refusal(4)
            .contains("no call waits for approval")
    );
    assert!(
        place
            .run(&["ctl", "edit", "docs-one", "--input", "[1]"])
            .expect_refusal(2)
            .contains("--input")
    );
    proceed(&place);
    assert_eq!(running.end().code, Some(0));
    let over = place.run(&["ctl", "--run", "latest", "drain"]);
    assert!(
        over.expect_refusal(4).contains("does not accept commands"),
        "{over:?}"
    );
    let status = place.run(&["ctl", "--run", "latest", "status"]);
    assert!(
        status.expect_success().contains("done after ") && !status.stdout.contains("running"),
        "{status:?}"
    );
}

#[test]
fn paused_run_resumes_from_another_process() {
    let place = TestDir::new();
    let running = start(&place, TWO_CALLS);
    place
        .run(&["ctl", "pause", "--reason", "lunch"])
        .expect_success();
    proceed(&place);
    let approvals = rows(&place, &["approvals"]);
    assert_eq!(approvals[0]["tool"], "wiki_list_tags");
    let status = |key: &str| rows(&place, &["status"])[0][key].clone();
    assert_eq!(
        (status("paused"), status("cost_partial")),
        (json!(true), json!(true))
    );
    assert_eq!(status("cost_usd"), json!(null));
    let active = "of this project is active; `ingestdeck attach ";
    assert!(place.run(&["plan"]).stderr.contains(active));
    assert!(place.run(&["doctor"]).stdout.contains(active));
    assert!(place.run(&["runs", "list"]).expect_success().contains("$?"));
    place.run(&["ctl", "resume"]).expect_success();
    assert_eq!(status("paused"), false);
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.stdout.contains("paused: nothing starts") && ended.stdout.contains("resumed"),
        "{ended:?}"
    );
    assert!(!place.run(&["plan"]).stderr.contains(active));
}

#[test]
fn limits_are_set_from_another_process() {
    let place = TestDir::new();
    let running = start(&place, TWO_CALLS);
    for set in [
        ["concurrency", "3"],
        ["concurrency", "-1"],
        ["run-budget", "2.5"],
        ["run-budget", "none"],
        ["turns", "30"],
        ["retries", "0"],
        ["tool-failures", "recoverable"],
        ["silence-timeout", "5m"],
    ] {
        place.run(&["ctl", "set", set[0], set[1]]).expect_success();
    }
    for set in [["concurrency", "0"], ["run-budget", "-1"], ["turns", "0"]] {
        assert!(
            place
                .run(&["ctl", "set", set[0], set[1]])
                .expect_refusal(4)
                .contains("expected"),
            "{set:?}"
        );
    }
    for set in [
        ["concurrency", "many"],
        ["turns", "-1"],
        ["tool-failures", "lax"],
        ["silence-timeout", "1ms"],
    ] {
        place.run(&["ctl", "set", set[0], set[1]]).expect_refusal(2);
    }
    proceed(&place);
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.stdout.contains("concurrency is now 3")
            && ended.stdout.contains("concurrency is now 2"),
        "{ended:?}"
    );
    let tape = std::fs::read_to_string(super::test_dir::tape(&place.path(""))).unwrap();
    let entries = tape
        .lines()
        .skip(1)
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let changed: Vec<_> = entries
        .filter(|entry| entry["note"]["kind"] == "limit_changed")
        .map(|entry| {
            json!([
                entry["note"]["limit"],
                entry["note"]["old"],
                entry["note"]["new"]
            ])
        })
        .collect();
    let expected = json!([
        ["run_budget", null, 2.5],
        ["run_budget", 2.5, null],
        ["turns", 40, 30],
        ["retries", 3, 0],
        ["tool_failures", "strict", "recoverable"],
        ["silence_timeout", 600_000, 300_000],
    ]);
    assert_eq!(json!(changed), expected);
}

#[test]
fn events_contain_no_text_of_agents() {
    let place = TestDir::new();
    let running = start(&place, TWO_CALLS);
    let mut followed = place.start(place.command(&["ctl", "events", "--follow"]));
    followed.wait_for("stdout", "read_raw_file");
    proceed(&place);
    assert_eq!(running.end().code, Some(0));
    let followed = followed.end();
    let events: Vec<Value> = followed
        .expect_success()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let tools: Vec<_> = events
        .iter()
        .filter_map(|event| event["event"]["action"]["tool"].as_str())
        .collect();
    assert!(
        tools.iter().any(|tool| tool.ends_with("wiki_list_tags")),
        "{tools:?}"
    );
    assert_eq!(events.last().unwrap()["event"]["state"], "summary");
    assert!(!followed.stdout.contains("one.md"), "{followed:?}");
    let content = place.run(&["ctl", "--run", "latest", "events", "--content"]);
    assert!(content.expect_success().contains("one.md"), "{content:?}");
}

#[test]
fn run_is_stopped_from_another_process() {
    let place = TestDir::new();
    let hang = "[[part]]\nsteps = [{ call = { tool = \"read_raw_file\", with = { path = \"one.md\" } } }, \"hang\"]";
    let running = start(&place, hang);
    place.run(&["ctl", "stop-all", "--kill"]).expect_success();
    let ended = running.end();
    assert_eq!(ended.code, Some(100), "{ended:?}");
}

/// The reply to a line on the socket; `None` if the connection was closed.
fn reply(stream: &mut BufReader<UnixStream>, line: &[u8]) -> Option<Value> {
    stream.get_mut().write_all(line).unwrap();
    let mut reply = String::new();
    match stream.read_line(&mut reply) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(serde_json::from_str(&reply).unwrap()),
    }
}

#[test]
fn garbage_on_the_socket_does_not_affect_the_run() {
    let place = TestDir::new();
    let running = start(&place, TWO_CALLS);
    let connect = || {
        let stream = UnixStream::connect(socket(&place)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        BufReader::new(stream)
    };
    let mut stream = connect();
    assert_eq!(
        reply(&mut stream, b"GET / HTTP/1.1\n").unwrap()["reply"],
        "invalid"
    );
    let newer = reply(
        &mut stream,
        b"{\"version\":9,\"id\":1,\"command\":{\"command\":\"drain\"}}\n",
    )
    .unwrap();
    assert_eq!(
        (&newer["reply"], &newer["id"]),
        (&json!("invalid"), &json!(1))
    );
    assert!(
        newer["message"].as_str().unwrap().contains("supported: 1"),
        "{newer}"
    );
    let valid = b"{\"version\":1,\"id\":2,\"command\":{\"command\":\"lift_limit\"}}\n";
    assert_eq!(
        reply(&mut stream, valid).unwrap(),
        json!({"version": 1, "id": 2, "reply": "accepted"})
    );
    // A line without an end is refused at the limit, and only its client is disconnected.
    let mut endless = connect();
    let long = vec![b'x'; (1 << 20) + 2];
    assert_eq!(reply(&mut endless, &long).unwrap()["reply"], "invalid");
    // Clients that never write or read do not hinder others.
    let _silent: Vec<_> = (0..40).map(|_| connect()).collect();
    assert_eq!(reply(&mut stream, valid).unwrap()["reply"], "accepted");
    proceed(&place);
    assert_eq!(running.end().code, Some(0));
}

#[test]
#[ignore = "needs root and perl"]
fn commands_of_another_user_are_ignored() {
    let place = TestDir::new();
    let running = start(&place, TWO_CALLS);
    // Its permissions alone keep other users away, so grant them access.
    let socket = socket(&place);
    let sockets = place.sockets();
    let root = sockets.ancestors().nth(2).unwrap();
    let private = socket.ancestors().take_while(|path| path.starts_with(root));
    private.for_each(|path| fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap());
    let send = r#"$SIG{PIPE} = "IGNORE"; $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die "$!";
        $s->autoflush(1); print $s "$ARGV[1]\n"; print <$s> // """#;
    let kill = r#"{"version":1,"id":1,"command":{"command":"kill_all"}}"#;
    let reply_to = |user: u32| {
        let mut command = Command::new("perl");
        command
            .args(["-MIO::Socket::UNIX", "-e", send])
            .arg(&socket)
            .arg(kill)
            .uid(user)
            .gid(user)
            .current_dir("/");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{user}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(reply_to(65534), "");
    assert!(reply_to(0).contains("accepted"));
    assert_eq!(running.end().code, Some(100));
}
