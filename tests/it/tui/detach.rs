//! Runs that continue without their screen: detaching, attaching, and screens that disappear.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    process::Stdio,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use super::pty_session::PtySession;
use crate::{
    commands::test_dir::{DEADLINE, TestDir, tape},
    support::sshd::SshServer,
};

const PAGE: &str = r##"[[part]]
steps = [
    { call = { tool = "read_raw_file", with = { path = "one.md" } } },
    { call = { tool = "record_verification_ledger", with = { summary = "Read it." } } },
    { call = { tool = "wiki_write", with = { key = "one", summary = "One", content = "# One\n" } } },
    { say = "done" },
]"##;

/// A project with one unit, whose run continues in the background.
struct BackgroundRun {
    place: TestDir,
    claude: String,
}

impl BackgroundRun {
    /// A project without a run.
    fn new(script: &str) -> Self {
        let place = TestDir::new();
        place.notes(&["one"]);
        let claude = place.scripted_claude(script).display().to_string();
        Self { place, claude }
    }

    /// A run whose first call waits for approval. Its screen was left.
    fn held() -> Self {
        let run = Self::new(PAGE);
        let mut screen = run.screen(&["step", "docs-one"], "continue");
        screen.shows("read_raw_file waits for you");
        screen.press("D");
        screen.shows("continues; `ingestdeck attach");
        assert_eq!(screen.end(), 0);
        run
    }

    fn screen(&self, args: &[&str], on_disconnect: &str) -> PtySession {
        let (project, runtime) = (self.place.path(""), self.place.sockets());
        let runtime = runtime.parent().unwrap().to_str().unwrap();
        let all = [
            args,
            &[
                "--project-dir",
                project.to_str().unwrap(),
                "--claude-bin",
                &self.claude,
            ],
        ]
        .concat();
        let variables = [
            ("XDG_RUNTIME_DIR", runtime),
            ("INGESTDECK_UI_ON_DISCONNECT", on_disconnect),
        ];
        PtySession::with(&all, &variables)
    }

    fn attached(&self, on_disconnect: &str) -> PtySession {
        let screen = self.screen(&["attach"], on_disconnect);
        screen.shows("read_raw_file waits for you");
        screen
    }

    fn ctl(&self, args: &[&str]) -> Vec<Value> {
        let args: Vec<&str> = ["ctl"]
            .iter()
            .chain(args)
            .chain(&["--ui", "json"])
            .copied()
            .collect();
        let output = self.place.run(&args);
        output
            .expect_success()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Entries of the tape.
    fn entries(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(tape(&self.place.path(""))).unwrap();
        let whole = &text[..=text.rfind('\n').unwrap()];
        whole
            .lines()
            .skip(1)
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn notes(&self, kind: &str) -> Vec<Value> {
        self.entries()
            .into_iter()
            .map(|entry| entry["note"].clone())
            .filter(|note| note["kind"] == kind)
            .collect()
    }

    fn wait_for_note(&self, kind: &str) -> Value {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(note) = self.notes(kind).pop() {
                return note;
            }
            assert!(
                Instant::now() < deadline,
                "no {kind}: {:?}",
                self.entries().last()
            );
            crate::support::pause_before_check();
        }
    }

    /// Changes the concurrency and back over one connection.
    fn change_concurrency(&self) {
        let path = self
            .place
            .sockets()
            .read_dir()
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        let mut stream = UnixStream::connect(path).unwrap();
        for by in [1, -1] {
            let command = json!({"command": "adjust_concurrency", "by": by});
            let request = json!({"version": 1, "id": 1, "command": command});
            writeln!(stream, "{request}").unwrap();
        }
        let mut replies = BufReader::new(stream).lines().take(2);
        assert!(replies.all(|line| line.unwrap().contains("accepted")));
    }

    /// The end of the run while screens show it.
    fn end_without_screens(&self) -> Value {
        let ended = self.wait_for_note("run_ended");
        let deadline = Instant::now() + DEADLINE;
        while self
            .place
            .processes(0)
            .iter()
            .any(|words| words.contains("--run-as-engine"))
        {
            assert!(Instant::now() < deadline, "the engine stays");
            crate::support::pause_before_check();
        }
        ended
    }

    /// The end of the run, after which no process of it remains.
    fn end(&self) -> Value {
        let ended = self.wait_for_note("run_ended");
        #[cfg(target_os = "linux")]
        self.place.wait_until_no_process_left();
        let seqs: Vec<_> = self
            .entries()
            .iter()
            .map(|entry| entry["seq"].as_u64().unwrap())
            .collect();
        assert!(
            seqs.windows(2).all(|pair| pair[1] == pair[0] + 1),
            "no entry is missing: {seqs:?}"
        );
        ended
    }
}

#[test]
fn killed_screens_do_not_affect_the_run() {
    let run = BackgroundRun::held();
    for signal in [
        Signal::SIGKILL,
        Signal::SIGHUP,
        Signal::SIGTERM,
        Signal::SIGKILL,
    ] {
        let screen = run.attached("continue");
        screen.signal(signal);
        drop(screen);
        assert_eq!(run.ctl(&["approvals"])[0]["tool"], "read_raw_file");
    }
    assert_eq!(
        run.ctl(&["allow", "docs-one", "--reason", "harmless"])[0]["reply"],
        "accepted"
    );
    run.ctl(&["release", "docs-one"]);
    assert_eq!(run.end()["succeeded"], 1);
    assert!(run.place.path("wiki/global/one.md").is_file());
    let allowed = run.notes("command").remove(0);
    assert_eq!(
        (&allowed["command"], &allowed["client"]),
        (&json!("decide"), &json!("ctl"))
    );
    assert_eq!(
        (&allowed["reason"], &allowed["units"]),
        (&json!("harmless"), &json!(["docs-one"]))
    );
}

#[test]
fn killed_screens_at_any_moment_lose_nothing() {
    let run = BackgroundRun::held();
    for delay in 0..30 {
        let screen = run.screen(&["attach"], "continue");
        let until = Instant::now() + Duration::from_millis(delay * 7);
        while Instant::now() < until {
            std::thread::park_timeout(until.saturating_duration_since(Instant::now()));
        }
        screen.signal(Signal::SIGKILL);
    }
    let mut screen = run.attached("continue");
    for next in [
        "record_verification_ledger waits for you",
        "wiki_write waits for you",
        "1 succeeded",
    ] {
        screen.press("s");
        screen.shows(next);
    }
    screen.press("q");
    assert_eq!(screen.end(), 0);
    assert_eq!(run.end()["succeeded"], 1);
}

/// A screen at the other end of a connection.
fn attach_over_ssh(server: &SshServer, run: &BackgroundRun) -> PtySession {
    let (project, runtime) = (run.place.path(""), run.place.sockets());
    let remote = format!(
        "env XDG_RUNTIME_DIR='{}' INGESTDECK_UI_ON_DISCONNECT=continue '{}' attach --project-dir '{}'",
        runtime.parent().unwrap().display(),
        crate::support::program(),
        project.display(),
    );
    let (port, address) = (server.port.to_string(), server.address());
    let mut args = vec!["-tt".to_owned(), "-p".to_owned(), port];
    args.extend(server.options());
    args.extend([address, remote]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    PtySession::run("/usr/bin/ssh", &args, &[])
}

#[test]
#[ignore = "needs sshd"]
fn dropped_ssh_connections_do_not_affect_the_run() {
    let run = BackgroundRun::held();
    let server = SshServer::start(&run.place.path("../ssh"));
    for _ in 0..5 {
        let screen = attach_over_ssh(&server, &run);
        screen.shows("read_raw_file waits for you");
        screen.signal(Signal::SIGKILL);
    }
    assert_eq!(run.ctl(&["approvals"])[0]["tool"], "read_raw_file");
    let mut screen = attach_over_ssh(&server, &run);
    screen.shows("read_raw_file waits for you");
    screen.press("s");
    screen.shows("record_verification_ledger waits for you");
    screen.signal(Signal::SIGKILL);
    drop(server);
    run.ctl(&["release", "docs-one"]);
    assert_eq!(run.wait_for_note("run_ended")["succeeded"], 1);
}

/// A screen that starts a run is killed while the engine plans, hands over or works: afterwards there is either no run,
/// or one that ends in order.
#[test]
fn killed_launches_leave_no_process() {
    let mut ended_runs = 0;
    for delay in (0..600).step_by(40) {
        let run = BackgroundRun::new(PAGE);
        let mut screen = run.screen(&["run"], "stop");
        let until = Instant::now() + Duration::from_millis(delay);
        while Instant::now() < until {
            std::thread::park_timeout(until.saturating_duration_since(Instant::now()));
        }
        screen.signal(Signal::SIGKILL);
        screen.child.wait().unwrap();
        run.place.wait_until_no_process_left();
        let runs = run.place.path(".ktx/ingestdeck/runs");
        if runs.read_dir().is_ok_and(|mut runs| runs.next().is_some()) {
            assert_eq!(run.notes("run_ended").len(), 1, "after {delay} ms");
            ended_runs += 1;
        }
    }
    assert!(
        ended_runs > 0,
        "some screens were killed after the hand-over"
    );
}

#[test]
fn stopped_screen_catches_up_when_it_continues() {
    let run = BackgroundRun::held();
    let mut screen = run.attached("stop");
    screen.signal(Signal::SIGSTOP);
    run.ctl(&["release", "docs-one"]);
    run.wait_for_note("run_ended");
    // More growth than a socket can hold while its client does not read.
    for _ in 0..2_000 {
        run.change_concurrency();
    }
    screen.signal(Signal::SIGCONT);
    screen.shows("1 succeeded");
    screen.press("q");
    assert_eq!(screen.end(), 0);
    assert!(
        run.notes("command")
            .iter()
            .all(|note| note["command"] != "stop_all"),
        "the run was not stopped"
    );
}

#[test]
fn terminated_engine_does_not_wait_for_its_screens() {
    let run = BackgroundRun::held();
    let mut screen = run.attached("continue");
    kill(engine_pid(&run), Signal::SIGTERM).unwrap();
    assert_eq!(run.end_without_screens()["stopped"], 1);
    screen.shows("1 stopped");
    screen.press("q");
    screen.end();
}

#[test]
fn other_clients_do_not_lock_commands_out() {
    let run = BackgroundRun::held();
    let path = run
        .place
        .sockets()
        .read_dir()
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let mut clients: Vec<_> = (0..100)
        .map(|_| UnixStream::connect(&path).unwrap())
        .collect();
    // Some of them have sent half a request.
    clients
        .iter_mut()
        .step_by(2)
        .for_each(|client| drop(client.write_all(b"{\"version\":1,")));
    let reply = |client: &UnixStream| {
        client.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut line = String::new();
        BufReader::new(client).read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    let attach = || {
        let mut client = UnixStream::connect(&path).unwrap();
        client
            .write_all(b"{\"version\":1,\"id\":1,\"attach\":{\"on_disconnect\":\"continue\"}}\n")
            .unwrap();
        let reply = reply(&client);
        (client, reply)
    };
    let attached: Vec<_> = (0..64).map(|_| attach()).collect();
    assert!(
        attached
            .iter()
            .all(|(_, reply)| reply["reply"] == "attached")
    );
    assert_eq!(
        attach().1["reason"],
        json!({"kind": "too_many_clients", "limit": 64})
    );
    run.ctl(&["pause"]);
    run.ctl(&["resume"]);
    run.ctl(&["release", "docs-one"]);
    drop((clients, attached));
    assert_eq!(run.end()["succeeded"], 1);
}

#[test]
fn stop_on_disconnect_ends_the_run_in_order() {
    let run = BackgroundRun::held();
    let other = run.attached("continue");
    run.attached("stop").signal(Signal::SIGKILL);
    let screen = run.attached("stop");
    drop(other);
    assert_eq!(
        run.ctl(&["approvals"])[0]["tool"],
        "read_raw_file",
        "one screen remains"
    );
    screen.signal(Signal::SIGKILL);
    assert_eq!(run.end()["stopped"], 1);
    let command = run.notes("command").pop().unwrap();
    assert_eq!(
        (&command["command"], &command["client"]),
        (&json!("stop_all"), &json!("engine"))
    );
}

#[test]
fn two_screens_show_the_same_run() {
    let run = BackgroundRun::held();
    let (mut first, mut second) = (run.attached("continue"), run.attached("continue"));
    first.press("s");
    first.shows("record_verification_ledger waits for you");
    second.shows("record_verification_ledger waits for you");
    second.press("s");
    for screen in [&first, &second] {
        screen.shows("wiki_write waits for you");
    }
    first.press("s");
    for screen in [&first, &second] {
        screen.shows("1 succeeded");
    }
    // The run stays open for commands until the last screen is left.
    first.press("q");
    assert_eq!(first.end(), 0);
    second.press("r");
    second.shows("New attempt at docs-one?");
    second.press("y");
    second.shows("read_raw_file waits for you");
    second.press("x");
    second.shows("Stop docs-one?");
    second.press("y");
    second.shows("1 stopped");
    second.press("q");
    second.end();
    run.wait_for_note("run_ended");
    let clients: Vec<_> = run
        .notes("command")
        .iter()
        .map(|note| note["command"].clone())
        .collect();
    assert_eq!(clients, ["decide", "decide", "decide", "retry", "stop"]);
}

#[test]
fn quitting_can_stop_a_run_that_would_continue() {
    let run = BackgroundRun::held();
    let mut screen = run.attached("continue");
    screen.press("q");
    screen.shows("leave; the run continues");
    screen.press("S");
    screen.shows("1 stopped");
    assert_eq!(screen.end(), 100);
    assert_eq!(run.end()["stopped"], 1);
}

#[test]
fn stopping_screen_prints_the_summary_next_to_another() {
    let run = BackgroundRun::held();
    let (mut first, mut second) = (run.attached("continue"), run.attached("continue"));
    first.press("q");
    first.shows("leave; the run continues");
    first.press("S");
    first.shows("1 stopped");
    assert_eq!(first.end(), 100);
    // The other screen can still request more.
    second.shows("1 stopped");
    second.press("q");
    second.end();
    assert_eq!(run.end()["stopped"], 1);
}

#[test]
fn detached_run_prints_its_launch_record() {
    let run = BackgroundRun::new(PAGE);
    let output = run.place.run(&[
        "run",
        "--detach",
        "--ui",
        "json",
        "--claude-bin",
        &run.claude,
    ]);
    let record: Value = serde_json::from_str(output.expect_success()).unwrap();
    assert_eq!(record["type"], "launched");
    assert_eq!(
        record["tape"],
        tape(&run.place.path(""))
            .canonicalize()
            .unwrap()
            .to_str()
            .unwrap()
    );
    assert!(
        record["pid"].as_u64().is_some() && record["socket"].as_str().unwrap().ends_with(".sock"),
        "{record}"
    );
    // The reconcile step calls a tool that it does not have, which does not fail it.
    assert_eq!(run.end()["succeeded"], 2);
    assert!(
        !std::path::Path::new(record["log"].as_str().unwrap()).exists(),
        "it had nothing to report"
    );
}

#[test]
fn detached_run_that_cannot_start_is_an_error() {
    let run = BackgroundRun::new(PAGE);
    let output = run
        .place
        .run(&["run", "--detach", "--claude-bin", "./missing/claude"]);
    assert!(
        output.expect_refusal(96).contains("there is no program"),
        "{output:?}"
    );
}

#[test]
fn killed_engine_is_reported_to_its_screens() {
    let run = BackgroundRun::held();
    let engine = run
        .place
        .processes(0)
        .into_iter()
        .find(|words| words.contains("--run-as-engine"));
    assert!(engine.is_some());
    let mut screen = run.attached("continue");
    kill(engine_pid(&run), Signal::SIGKILL).unwrap();
    screen.shows("writer gone");
    screen.press("q");
    assert_ne!(screen.end(), 0);
    run.place.wait_until_no_process_left();
    let over = run.screen(&["attach", "latest"], "continue");
    over.shows("is not active");
    assert_eq!(over.end(), 4);
}

/// The process that holds the lock of the run.
fn engine_pid(run: &BackgroundRun) -> Pid {
    let lock = std::fs::read_to_string(run.place.path(".ktx/ingestdeck/ingest.lock")).unwrap();
    Pid::from_raw(lock.trim().parse().unwrap())
}

#[test]
fn engine_ends_with_a_client_that_does_not_confirm() {
    let run = BackgroundRun::new(PAGE);
    let mut command = run
        .place
        .command(&["--run-as-engine", "run", "--claude-bin", &run.claude]);
    command.stdin(Stdio::null());
    let ended = run.place.ran(command);
    assert_eq!(ended.code, Some(130), "{ended:?}");
    run.place.wait_until_no_process_left();
}

#[test]
fn second_run_names_the_active_one() {
    let run = BackgroundRun::held();
    let output = run.place.run(&["run", "--claude-bin", &run.claude]);
    let text = output.expect_refusal(2);
    assert!(
        text.contains("ingestdeck attach") && text.contains("ingestdeck ctl stop-all"),
        "{text}"
    );
    run.ctl(&["stop-all"]);
    run.end();
}
