//! Units on workers over NATS, with a real server: joins, restarts of the server, lost workers and engines, logins.

use std::{
    collections::{BTreeSet, HashSet},
    fs,
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Instant,
};

use futures_util::StreamExt as _;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{
    end_to_end::git,
    test_dir::{CommandOutput, DEADLINE, RunningCommand, TestDir, tape},
    workers::{
        UNITS, assert_complete, claude_of, last_attempts, local_result, notes, project,
        run_command, wait_for_lines,
    },
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
        let store = place.temporary().parent().unwrap().join("jetstream");
        let jetstream = format!("jetstream: {{ store_dir: \"{}\" }}", store.display());
        Self::start_with(place, &format!("{jetstream}\n{settings}"))
    }

    fn start_with(place: &TestDir, settings: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let config = place.temporary().parent().unwrap().join("nats.conf");
        fs::write(
            &config,
            format!("host: 127.0.0.1\nport: {port}\n{settings}\n"),
        )
        .unwrap();
        Self {
            process: Self::spawn(&config, port),
            port,
            config,
        }
    }

    fn spawn(config: &PathBuf, port: u16) -> Child {
        let server = std::env::var_os(SERVER).expect("the path of a nats-server");
        let mut command = Command::new(server);
        let process = command
            .arg("-c")
            .arg(config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + DEADLINE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "nats-server does not listen");
            crate::support::pause_before_check();
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
    let mut command = place.command(&["worker", "--insecure", "--nats", url, "--claude-bin"]);
    command.arg(claude).args(more);
    let mut running = place.start(command);
    running.wait_for("stderr", "waiting for runs");
    running
}

fn run(place: &TestDir, url: &str, more: &[&str]) -> Command {
    run_command(place, &[&["--insecure", "--nats", url][..], more].concat())
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
    let output = running.end();
    assert_complete(&place, &output);
    assert_eq!(
        (
            last_attempts(&output),
            git(&place, &["rev-parse", "HEAD:wiki"])
        ),
        local_result()
    );
    assert!(
        notes(&place, "worker_left").is_empty(),
        "no worker was lost"
    );
}

/// A worker that is started again shows that its attempts are lost.
#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn units_of_a_killed_worker_run_elsewhere() {
    let place = project();
    let claude = claude_of(&place, "ann", "script.toml");
    let server = NatsTestServer::start(&place, "");
    let killed = worker(&place, &server.url(), &claude, &["--name", "first"]);
    let running = place.start(run(&place, &server.url(), &[]));
    wait_for_lines(&place, 20);
    killed.signal(Signal::SIGKILL);
    let _again = worker(&place, &server.url(), &claude, &["--name", "first"]);
    let output = running.end();
    assert_complete(&place, &output);
    assert_eq!(
        (
            last_attempts(&output),
            git(&place, &["rev-parse", "HEAD:wiki"])
        ),
        local_result()
    );
    let left = notes(&place, "worker_left");
    assert_eq!(
        (left.len(), &left[0]["note"]["lost"]),
        (1, &true.into()),
        "{left:?}"
    );
}

/// A project of which two units end soon, and two take a while.
pub(super) fn project_with_slow_units(wait_ms: u32) -> TestDir {
    let place = project();
    let script = fs::read_to_string(place.path("script.toml")).unwrap();
    let (quick, slow) = script
        .split_once("[[part]]\nunit = \"docs-juice\"")
        .unwrap();
    let slow = slow.replace(
        "{ say = \"Done.\" }",
        &format!("{{ wait = {wait_ms} }}, {{ say = \"Done.\" }}"),
    );
    place.write(
        "script.toml",
        format!("{quick}[[part]]\nunit = \"docs-juice\"{slow}"),
    );
    place
}

/// The agents that run.
fn agents(place: &TestDir) -> usize {
    let processes = place.processes(0).into_iter();
    processes
        .filter(|words| words.contains("scripted-agent"))
        .count()
}

/// Kills the engine while two units run, and resumes its run once `is_time`. Returns both tapes and the result.
pub(super) fn resume_after_a_kill(
    place: &TestDir,
    run: impl Fn(&[&str]) -> Command,
    is_time: impl Fn() -> bool,
) -> ([String; 2], CommandOutput) {
    let mut running = place.start(run(&[]));
    for unit in ["docs-crates", "docs-growers"] {
        let ended = ended_attempt(place, unit);
        assert_eq!(ended["note"]["verdict"]["outcome"], "succeeded", "{ended}");
    }
    for unit in ["docs-juice", "docs-payments"] {
        running.wait_for(
            "stdout",
            &format!(r#""unit":"{unit}","try":1,"event":{{"type":"started""#),
        );
    }
    running.signal(Signal::SIGKILL);
    let killed = tape(&place.path(""));
    running.end();
    let deadline = Instant::now() + DEADLINE;
    while !is_time() {
        assert!(
            Instant::now() < deadline,
            "the agents do not end: {:?}",
            place.processes(0)
        );
        crate::support::pause_before_check();
    }
    let killed_run = killed.parent().unwrap().file_name().unwrap();
    let killed_run = killed_run.to_str().unwrap().to_owned();
    let resumed = place.ran(run(&["--resume-run", &killed_run]));
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    let runs = fs::read_dir(place.path(".ktx/ingestdeck/runs")).unwrap();
    let mut tapes: Vec<PathBuf> = runs
        .map(|run| run.unwrap().path().join("tape.jsonl"))
        .collect();
    tapes.sort_unstable();
    let tapes = tapes.iter().map(|tape| fs::read_to_string(tape).unwrap());
    (tapes.collect::<Vec<_>>().try_into().unwrap(), resumed)
}

/// The sessions of these units in events or entries.
fn sessions(lines: &str, units: &[&str]) -> BTreeSet<String> {
    let entries = lines
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    entries
        .filter(|entry| {
            units.iter().any(|unit| entry["unit"] == *unit) && entry["out"]["subtype"] == "init"
        })
        .map(|entry| entry["out"]["session_id"].to_string())
        .collect()
}

/// What the agents of a killed engine do is complete, paid once, and saved once.
pub(super) fn assert_collected(place: &TestDir, tapes: &[String; 2], resumed: &CommandOutput) {
    let (events, pages) = local_result();
    let slow = ["docs-juice", "docs-payments"];
    let mut collected = last_attempts(resumed);
    collected.retain(|_, events| !events.iter().any(|event| event.contains("\"reused\"")));
    assert!(
        collected.keys().eq(slow),
        "only these continue: {collected:#?}"
    );
    for unit in slow {
        assert_eq!(collected[unit], events[unit], "{unit}");
    }
    let [known, continued] = tapes.each_ref().map(|tape| sessions(tape, &slow));
    assert_eq!(known.len(), 2);
    assert_eq!(continued, known, "no session begins again: {resumed:?}");
    for (unit, _) in UNITS {
        let is_integrated = |line: &&str| {
            line.contains("\"patch_integrated\"") && line.contains(&format!("\"unit\":\"{unit}\""))
        };
        let integrated = tapes.iter().flat_map(|tape| tape.lines());
        assert_eq!(integrated.filter(is_integrated).count(), 1, "{unit}");
    }
    assert_eq!(git(place, &["rev-list", "--count", "HEAD"]).trim(), "2");
    assert_eq!(git(place, &["rev-parse", "HEAD:wiki"]), pages);
}

#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn results_wait_for_the_run_that_resumes() {
    let place = project_with_slow_units(2_000);
    let claude = claude_of(&place, "ann", "script.toml");
    let server = NatsTestServer::start(&place, "");
    let waiting = worker(&place, &server.url(), &claude, &["--slots", "2"]);
    let run = |more: &[&str]| run(&place, &server.url(), more);
    let (tapes, resumed) = resume_after_a_kill(&place, run, || agents(&place) == 0);
    assert_collected(&place, &tapes, &resumed);
    waiting.signal(Signal::SIGTERM);
    assert_eq!(waiting.end().code, Some(0));
}

#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn running_agents_go_over_to_the_run_that_resumes() {
    let place = project_with_slow_units(8_000);
    let claude = claude_of(&place, "ann", "script.toml");
    let server = NatsTestServer::start(&place, "");
    let _waiting = worker(&place, &server.url(), &claude, &["--slots", "2"]);
    let run = |more: &[&str]| run(&place, &server.url(), more);
    let (tapes, resumed) = resume_after_a_kill(&place, run, || true);
    assert_collected(&place, &tapes, &resumed);
}

/// A worker that was asked to leave still hears its engine: the calls of its last attempt wait for it.
#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn leaving_worker_finishes_its_attempts() {
    let place = project();
    let script = fs::read_to_string(place.path("script.toml")).unwrap();
    place.write(
        "script.toml",
        script.replace("steps = [", "steps = [ { wait = 3000 },"),
    );
    let claude = claude_of(&place, "ann", "script.toml");
    let server = NatsTestServer::start(&place, "");
    let leaving = worker(&place, &server.url(), &claude, &[]);
    let mut running = place.start(run(&place, &server.url(), &[]));
    running.wait_for("stdout", r#""event":{"type":"started""#);
    leaving.signal(Signal::SIGTERM);
    let _other = worker(&place, &server.url(), &claude, &["--slots", "3"]);
    assert_complete(&place, &running.end());
    assert_eq!(
        notes(&place, "attempt_started").len(),
        UNITS.len(),
        "no attempt is repeated"
    );
    assert_eq!(leaving.end().code, Some(0));
}

/// A worker serves all runs of its pool, also while one of them waits for a person.
#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn two_runs_share_a_worker() {
    let places = [
        project_with_slow_units(3_000),
        project_with_slow_units(3_000),
    ];
    let claude = claude_of(&places[0], "ann", "script.toml");
    let server = NatsTestServer::start(&places[0], "");
    let _worker = worker(&places[0], &server.url(), &claude, &[]);
    let running = places
        .each_ref()
        .map(|place| place.start(run(place, &server.url(), &[])));
    for (place, running) in places.iter().zip(running) {
        assert_complete(place, &running.end());
        let others = notes(place, "pool_use");
        let is_known = |entry: &Value| {
            let runs = entry["note"]["runs"].as_object();
            runs.is_some_and(|runs| runs.values().any(|run| run["project"] == "work"))
        };
        assert!(others.iter().any(is_known), "{others:?}");
    }
}

/// Waits for the end of an attempt at `unit`.
fn ended_attempt(place: &TestDir, unit: &str) -> Value {
    let deadline = Instant::now() + DEADLINE;
    wait_for_lines(place, 1);
    loop {
        if let Some(ended) = notes(place, "attempt_ended")
            .into_iter()
            .find(|entry| entry["unit"] == unit)
        {
            return ended;
        }
        assert!(
            Instant::now() < deadline,
            "the attempt at {unit} does not end"
        );
        crate::support::pause_before_check();
    }
}

/// Another client repeats every message, cuts it off, and publishes something else on its subject.
#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn hostile_messages_change_nothing() {
    let place = project();
    let claude = claude_of(&place, "ann", "script.toml");
    let server = NatsTestServer::start(&place, "");
    let url = server.url();
    let (listening, is_listening) = mpsc::channel();
    // Ends with the server.
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let client = async_nats::connect(url).await.unwrap();
            let mut messages = client.subscribe("ingestdeck.>").await.unwrap();
            client.flush().await.unwrap();
            listening.send(()).unwrap();
            let mut known = HashSet::new();
            while let Some(message) = messages.next().await {
                if !known.insert(message.payload.clone()) {
                    continue;
                }
                let cut = message.payload.slice(..message.payload.len() / 2);
                for payload in [
                    message.payload.clone(),
                    cut,
                    vec![0; 17].into(),
                    b"null".to_vec().into(),
                ] {
                    known.insert(payload.clone());
                    client
                        .publish(message.subject.clone(), payload)
                        .await
                        .unwrap();
                }
                client.flush().await.unwrap();
            }
        });
    });
    is_listening.recv().unwrap();
    let _worker = worker(&place, &server.url(), &claude, &["--slots", "2"]);
    let output = place.ran(run(&place, &server.url(), &[]));
    assert_complete(&place, &output);
    assert_eq!(
        (
            last_attempts(&output),
            git(&place, &["rev-parse", "HEAD:wiki"])
        ),
        local_result()
    );
    assert_eq!(
        notes(&place, "attempt_started").len(),
        UNITS.len(),
        "no attempt is repeated"
    );
}

/// Writes keys for an engine and two workers, and starts a server that knows them. Returns the directory of the keys.
fn server_with_keys(place: &TestDir) -> (NatsTestServer, PathBuf) {
    let keys = place.temporary().parent().unwrap().join("keys");
    let made = place.run(&["worker", "keys", keys.to_str().unwrap(), "first", "second"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let server = NatsTestServer::start(place, "include \"keys/users.conf\"");
    (server, keys)
}

/// A worker of the pool with its own key.
fn worker_with_key(
    place: &TestDir,
    (server, keys): &(NatsTestServer, PathBuf),
    name: &str,
    claude: &std::path::Path,
) -> RunningCommand {
    let key = keys.join(format!("{name}.nk"));
    let mut command = place.command(&["worker", "--nats", &server.url(), "--name", name]);
    command.arg("--nats-nkey").arg(key);
    command.arg("--claude-bin").arg(claude);
    let mut running = place.start(command);
    running.wait_for("stderr", "waiting for runs");
    running
}

fn run_with_key(place: &TestDir, (server, keys): &(NatsTestServer, PathBuf)) -> Command {
    let key = keys.join("engine.nk");
    run_command(
        place,
        &[
            "--nats",
            &server.url(),
            "--nats-nkey",
            key.to_str().unwrap(),
        ],
    )
}

/// What a client with the key of a worker may not do: act as another worker or as an engine, listen to them, or change
/// what the server keeps.
fn forbidden(run: &str) -> [Vec<String>; 2] {
    let publish = [
        "ingestdeck.default.runs".to_owned(),
        format!("ingestdeck.default.up.first.{run}.link"),
        format!("ingestdeck.default.hello.first.{run}.link"),
        format!("ingestdeck.default.order.first.{run}.link"),
        format!("ingestdeck.default.order.second.{run}.link"),
        format!("ingestdeck.default.down.first.{run}.link"),
        format!("ingestdeck.default.down.second.{run}.link"),
        "$JS.API.STREAM.CREATE.mine".to_owned(),
        "$JS.API.STREAM.UPDATE.ingestdeck_default_orders".to_owned(),
        "$JS.API.STREAM.DELETE.ingestdeck_default_entries".to_owned(),
        "$JS.API.STREAM.PURGE.ingestdeck_default_orders".to_owned(),
        "$JS.API.STREAM.MSG.GET.ingestdeck_default_orders".to_owned(),
        "$JS.API.STREAM.MSG.DELETE.ingestdeck_default_orders".to_owned(),
        "$JS.API.DIRECT.GET.ingestdeck_default_entries".to_owned(),
        "$JS.API.DIRECT.GET.KV_ingestdeck_default_leases".to_owned(),
        "$JS.API.CONSUMER.CREATE.ingestdeck_default_orders".to_owned(),
        "$JS.API.CONSUMER.CREATE.ingestdeck_default_orders.order_second".to_owned(),
        "$JS.API.CONSUMER.DURABLE.CREATE.ingestdeck_default_orders.order_second".to_owned(),
        "$JS.API.CONSUMER.DELETE.ingestdeck_default_orders.order_first".to_owned(),
        "$JS.API.CONSUMER.MSG.NEXT.ingestdeck_default_orders.order_first".to_owned(),
        "$JS.API.CONSUMER.MSG.NEXT.ingestdeck_default_orders.down_first".to_owned(),
        "$JS.ACK.ingestdeck_default_orders.order_first.1.1.1.1.0".to_owned(),
        format!("$JS.ACK.ingestdeck_default_entries.run_{run}.1.1.1.1.0"),
        format!("$KV.ingestdeck_default_leases.{run}.x"),
        "$O.ingestdeck_default_files.M.x".to_owned(),
        "$O.ingestdeck_default_files.C.x".to_owned(),
    ];
    let subscribe = [
        "ingestdeck.>",
        "ingestdeck.default.up.>",
        "_INBOX.>",
        "_INBOX_first.>",
        "_INBOX_engine.>",
        "$JS.API.>",
        "$KV.>",
        "$O.>",
        "$SYS.>",
        ">",
    ];
    [publish.into(), subscribe.map(str::to_owned).into()]
}

#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn key_of_a_worker_is_for_that_worker_only() {
    let place = project_with_slow_units(1_500);
    let claude = claude_of(&place, "ann", "script.toml");
    let pool = server_with_keys(&place);
    let _worker = worker_with_key(&place, &pool, "first", &claude);
    let running = place.start(run_with_key(&place, &pool));
    wait_for_lines(&place, 12);
    let tape = tape(&place.path(""));
    let run = tape
        .parent()
        .unwrap()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap();
    let [publish, subscribe] = forbidden(run);
    let tried = publish.len() + subscribe.len();
    let (url, seed) = (
        pool.0.url(),
        fs::read_to_string(pool.1.join("second.nk")).unwrap(),
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let refused = runtime.block_on(async {
        let (refused, mut refusals) = tokio::sync::mpsc::unbounded_channel();
        let options = async_nats::ConnectOptions::with_nkey(seed.trim().to_owned());
        let options = options.event_callback(move |event| {
            let refused = refused.clone();
            async move {
                if event
                    .to_string()
                    .to_lowercase()
                    .contains("permissions violation")
                {
                    refused.send(event.to_string()).unwrap();
                }
            }
        });
        let client = options.connect(url).await.unwrap();
        for subject in publish {
            client.publish(subject, "{}".into()).await.unwrap();
        }
        let mut subscriptions = Vec::new();
        for subject in subscribe {
            subscriptions.push(client.subscribe(subject).await.unwrap());
        }
        client.flush().await.unwrap();
        let mut all = HashSet::new();
        let counting = async {
            while all.len() < tried {
                all.insert(refusals.recv().await.unwrap());
            }
        };
        let counted = tokio::time::timeout(DEADLINE, counting).await;
        assert!(counted.is_ok(), "{} of {tried}: {all:#?}", all.len());
        all.len()
    });
    assert_eq!(refused, tried);
    assert_complete(&place, &running.end());
    assert_eq!(
        notes(&place, "attempt_started").len(),
        UNITS.len(),
        "no attempt is repeated"
    );
}

/// Two processes with one name would take the orders of each other.
#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn second_worker_with_a_name_gives_way() {
    let place = project_with_slow_units(1_500);
    let claude = claude_of(&place, "ann", "script.toml");
    let pool = server_with_keys(&place);
    let _first = worker_with_key(&place, &pool, "first", &claude);
    let running = place.start(run_with_key(&place, &pool));
    wait_for_lines(&place, 20);
    let second = worker_with_key(&place, &pool, "first", &claude).end();
    assert_eq!(second.code, Some(96), "{second:?}");
    assert!(second.stderr.contains("another worker with the name first"));
    assert_complete(&place, &running.end());
    assert_eq!(notes(&place, "attempt_started").len(), UNITS.len());
}

/// A worker with the key of another one, or without any, joins nothing.
#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn worker_needs_the_key_of_its_name() {
    let place = project();
    let claude = claude_of(&place, "ann", "script.toml");
    let pool = server_with_keys(&place);
    let refused = place.run(&[
        "worker",
        "--nats",
        &pool.0.url(),
        "--claude-bin",
        claude.to_str().unwrap(),
    ]);
    assert_eq!(refused.code, Some(96), "{refused:?}");
    let mut command = place.command(&["worker", "--nats", &pool.0.url(), "--name", "first"]);
    command.arg("--nats-nkey").arg(pool.1.join("second.nk"));
    command.arg("--claude-bin").arg(&claude);
    let _false_name = place.start(command);
    let _second = worker_with_key(&place, &pool, "second", &claude);
    assert_complete(&place, &place.ran(run_with_key(&place, &pool)));
    assert_eq!(notes(&place, "worker_joined").len(), 1);
}

#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn garbage_of_runs_that_are_over_is_deleted() {
    let place = project();
    let claude = claude_of(&place, "ann", "script.toml");
    let pool = server_with_keys(&place);
    let _worker = worker_with_key(&place, &pool, "first", &claude);
    let running = place.start(run_with_key(&place, &pool));
    wait_for_lines(&place, 20);
    running.signal(Signal::SIGKILL);
    running.end();
    let key = pool.1.join("engine.nk");
    let clean = |age: &str| {
        let cleaned = place.run(&[
            "worker",
            "gc",
            "--nats",
            &pool.0.url(),
            "--nats-nkey",
            key.to_str().unwrap(),
            "--older-than",
            age,
        ]);
        assert_eq!(cleaned.code, Some(0), "{cleaned:?}");
        cleaned.stdout
    };
    assert!(
        clean("1h").contains("deleted 0 messages, 0 leases and 0 files"),
        "what is young stays"
    );
    let cleaned = clean("1s");
    assert!(
        !cleaned.contains("0 leases") && !cleaned.contains("0 files"),
        "{cleaned}"
    );
}

#[test]
#[ignore = "needs INGESTDECK_TEST_NATS"]
fn logins_and_limits_of_the_server_are_checked() {
    let place = project();
    let seed = place.write("seed.nk", SEED);
    let server = NatsTestServer::start(
        &place,
        &format!("authorization: {{ users: [ {{ nkey: {PUBLIC_KEY} }} ] }}"),
    );
    let seed = seed.to_str().unwrap();
    let found = place.run(&["doctor", "--nats", &server.url(), "--nats-nkey", seed]);
    assert!(found.stdout.contains("nats-server 2"), "{found:?}");
    let refused = place.run(&["doctor", "--nats", &server.url()]);
    assert!(refused.stdout.contains("--nats-nkey"), "{refused:?}");
    let unreadable = place.run(&[
        "doctor",
        "--nats",
        &server.url(),
        "--nats-creds",
        "none.creds",
    ]);
    assert!(
        unreadable
            .stdout
            .contains("cannot read the credentials file none.creds"),
        "{unreadable:?}"
    );
    let claude = claude_of(&place, "ann", "script.toml");
    let _worker = worker(&place, &server.url(), &claude, &["--nats-nkey", seed]);
    assert_complete(
        &place,
        &place.ran(run(&place, &server.url(), &["--nats-nkey", seed])),
    );
    let url = server.url();
    drop(server);
    let gone = place.run(&["doctor", "--nats", &url]);
    assert!(gone.stdout.contains("cannot connect to"), "{gone:?}");
    let plain = NatsTestServer::start_with(&place, "");
    let refused = place.run(&["doctor", "--nats", &plain.url()]);
    assert!(refused.stdout.contains("nats-server -js"), "{refused:?}");
    drop(plain);
    let small = NatsTestServer::start(&place, "max_payload: 2000");
    let refused = place.run(&["doctor", "--nats", &small.url()]);
    assert!(refused.stdout.contains("raise max_payload"), "{refused:?}");
    let open = NatsTestServer::start(&place, "");
    for command in [
        &["doctor"][..],
        &["run", "--full", "--concurrency", "0"],
        &["worker", "--claude-bin", claude.to_str().unwrap()],
    ] {
        let refused = place.run(&[command, &["--nats", &open.url()]].concat());
        let text = format!("{}{}", refused.stdout, refused.stderr);
        assert!(
            text.contains("requires no login") && text.contains("--insecure"),
            "{text}"
        );
        assert_eq!(refused.code, Some(96), "{refused:?}");
    }
    let used = place.run(&["doctor", "--insecure", "--nats", &open.url()]);
    assert!(used.stdout.contains("nats-server 2"), "{used:?}");
    let login = "authorization: { user: ann, password: s3cret }";
    let server = NatsTestServer::start(&place, login);
    let url = server.url().replace("nats://", "nats://ann:s3cret@");
    let found = place.run(&["doctor", "--nats", &url]);
    assert!(
        found.stdout.contains("nats-server 2") && found.stderr.contains("INGESTDECK_NATS_URL"),
        "{found:?}"
    );
    let mut command = place.command(&["doctor"]);
    command.env("INGESTDECK_NATS_URL", url);
    let found = place.ran(command);
    assert!(
        found.stdout.contains("nats-server 2") && !found.stderr.contains("visible"),
        "{found:?}"
    );
    drop(server);
    // Clients without a login are one of its users.
    let users =
        "accounts: { A: { users: [ { user: ann, password: s3cret } ] } }\nno_auth_user: ann";
    let lenient = NatsTestServer::start(&place, users);
    let refused = place.run(&["doctor", "--nats", &lenient.url()]);
    assert!(refused.stdout.contains("requires no login"), "{refused:?}");
}
