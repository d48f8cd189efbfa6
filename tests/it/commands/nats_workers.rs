//! Units on workers over NATS, with a real server: joins, restarts of the server, lost workers and engines, logins.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::Instant,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    test_dir::{DEADLINE, RunningCommand, TestDir},
    workers::{assert_complete, claude_of, notes, project, run_command, wait_for_lines, worker_processes},
};

/// Variable that names a nats-server.
const SERVER: &str = "INGESTDECK_TEST_NATS";

/// An nkey of NATS's documentation: a seed and its public key.
const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
const PUBLIC_KEY: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

/// A server that can be restarted at the same address.
struct NatsTestServer {
    process: Child,
    port: u16,
    config: PathBuf,
}

impl NatsTestServer {
    fn start(place: &TestDir, settings: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = place.temporary().parent().unwrap().join("nats.conf");
        fs::write(&config, format!("host: 127.0.0.1\nport: {port}\n{settings}\n")).unwrap();
        Self { process: Self::spawn(&config, port), port, config }
    }

    fn spawn(config: &PathBuf, port: u16) -> Child {
        let server = std::env::var_os(SERVER).expect("the path of a nats-server");
        let mut command = Command::new(server);
        let process = command.arg("-c").arg(config).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + DEADLINE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "nats-server does not listen");
            thread::yield_now();
        }
        process
    }

    fn restart(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.process = Self::spawn(&self.config, self.port);
    }

    fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}

impl Drop for NatsTestServer {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A worker that waits for runs.
fn worker(place: &TestDir, url: &str, claude: &std::path::Path, more: &[&str]) -> RunningCommand {
    let mut command = place.command(&["worker", "--nats", url, "--claude-bin"]);
    command.arg(claude).args(more);
    let mut running = place.start(command);
    running.wait_for("stderr", "waiting for runs");
    running
}

fn run(place: &TestDir, url: &str, more: &[&str]) -> Command {
    run_command(place, &[&["--nats", url][..], more].concat())
}

#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn waiting_workers_serve_one_run_after_the_other() {
    let place = project();
    let claude = claude_of(&place, "ann", "script.toml");
    let server = NatsTestServer::start(&place, "");
    let mut first = worker(&place, &server.url(), &claude, &[]);
    let _second = worker(&place, &server.url(), &claude, &["--slots", "2"]);
    assert_complete(&place, &place.ran(run(&place, &server.url(), &[])));
    assert!(!notes(&place, "worker_joined").is_empty());
    first.wait_for("stderr", "is over");
    // The next run finds them again.
    fs::remove_dir_all(place.path(".ktx/ingestdeck/runs")).unwrap();
    let again = place.ran(run(&place, &server.url(), &["--full"]));
    assert_eq!(again.code, Some(0), "{again:?}");
    first.signal(Signal::SIGTERM);
    assert_eq!(first.end().code, Some(0));
}

#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn restarts_of_the_server_lose_nothing() {
    let place = project();
    let claude = claude_of(&place, "ann", "script.toml");
    // Small messages, so that most are sent in fragments.
    let mut server = NatsTestServer::start(&place, "max_payload: 5000");
    let _worker = worker(&place, &server.url(), &claude, &[]);
    let running = place.start(run(&place, &server.url(), &[]));
    for lines in [12, 30, 48, 66, 84] {
        wait_for_lines(&place, lines);
        server.restart();
    }
    assert_complete(&place, &running.end());
    assert!(notes(&place, "worker_left").is_empty(), "no worker was lost");
}

/// The lease of a killed worker ends after 30 s.
#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn units_of_a_killed_worker_run_elsewhere() {
    let place = project();
    let claude = claude_of(&place, "ann", "script.toml");
    let server = NatsTestServer::start(&place, "");
    let killed = worker(&place, &server.url(), &claude, &[]);
    let running = place.start(run(&place, &server.url(), &[]));
    wait_for_lines(&place, 20);
    killed.signal(Signal::SIGKILL);
    let _other = worker(&place, &server.url(), &claude, &[]);
    assert_complete(&place, &running.end());
    let left = notes(&place, "worker_left");
    assert_eq!((left.len(), &left[0]["note"]["lost"]), (1, &true.into()), "{left:?}");
}

/// A worker whose engine is gone stops its agents, and serves the next run.
#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn agents_of_a_killed_engine_end() {
    let place = project();
    place.write("hangs.toml", "[[part]]\nsteps = [{ say = \"Wait.\" }, \"hang\"]\n");
    let claude = claude_of(&place, "ann", "hangs.toml");
    let server = NatsTestServer::start(&place, "");
    let mut waiting = worker(&place, &server.url(), &claude, &[]);
    let running = place.start(run(&place, &server.url(), &[]));
    wait_for_lines(&place, 12);
    running.signal(Signal::SIGKILL);
    waiting.wait_for("stderr", "the engine has been silent for 30 s");
    let agents = place.processes(0).into_iter().filter(|words| words.contains("hangs.toml")).count();
    assert_eq!(agents, 0);
    assert_eq!(worker_processes(&place).len(), 1, "it waits for the next run");
    for pid in worker_processes(&place) {
        kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    }
    assert_eq!(waiting.end().code, Some(0));
}

#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn logins_and_limits_of_the_server_are_checked() {
    let place = project();
    let seed = place.write("seed.nk", SEED);
    let server = NatsTestServer::start(&place, &format!("authorization: {{ users: [ {{ nkey: {PUBLIC_KEY} }} ] }}"));
    let seed = seed.to_str().unwrap();
    let found = place.run(&["doctor", "--nats", &server.url(), "--nats-nkey", seed]);
    assert!(found.stdout.contains("nats-server 2"), "{found:?}");
    let refused = place.run(&["doctor", "--nats", &server.url()]);
    assert!(refused.stdout.contains("--nats-nkey"), "{refused:?}");
    let unreadable = place.run(&["doctor", "--nats", &server.url(), "--nats-creds", "none.creds"]);
    assert!(unreadable.stdout.contains("cannot read the credentials file none.creds"), "{unreadable:?}");
    let claude = claude_of(&place, "ann", "script.toml");
    let _worker = worker(&place, &server.url(), &claude, &["--nats-nkey", seed]);
    assert_complete(&place, &place.ran(run(&place, &server.url(), &["--nats-nkey", seed])));
    let url = server.url();
    drop(server);
    let gone = place.run(&["doctor", "--nats", &url]);
    assert!(gone.stdout.contains("cannot connect to"), "{gone:?}");
    let small = NatsTestServer::start(&place, "max_payload: 2000");
    let refused = place.run(&["doctor", "--nats", &small.url()]);
    assert!(refused.stdout.contains("raise max_payload"), "{refused:?}");
}
