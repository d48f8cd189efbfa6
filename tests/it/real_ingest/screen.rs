//! The screen on a real terminal while the real CLI works.

use std::{
    io::{Read as _, Write},
    num::NonZero,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use ingestdeck_core::tape::{Note, note::CallDecision};
use portable_pty::{Child, CommandBuilder, ExitStatus, PtySize, native_pty_system};
use serde_json::json;

use super::{
    all_gone,
    test_project::{LIMIT, TestProject, all_good, asked_by, good_turns, ktx},
};
use crate::support::{
    api::{ApiFault, ApiRequest, ApiRoute, ApiTurn},
    cli::{BILLS_WHOLE_SESSION, claude_version},
};

const ROWS: u16 = 30;
const COLUMNS: u16 = 120;

/// The program on a terminal.
pub(super) struct TestTerminal {
    screen: Arc<Mutex<vt100::Parser>>,
    keys: Option<Box<dyn Write + Send>>,
    hung_up: Arc<AtomicBool>,
    reader: thread::JoinHandle<()>,
    child: Box<dyn Child + Send + Sync>,
}

impl TestTerminal {
    pub(super) fn open(deck: &TestProject, args: &[&str]) -> Self {
        // A test that fails must not leave a run behind.
        Self::open_with(deck, args, "stop")
    }

    fn open_with(deck: &TestProject, args: &[&str], on_disconnect: &str) -> Self {
        let size = PtySize {
            rows: ROWS,
            cols: COLUMNS,
            pixel_width: 0,
            pixel_height: 0,
        };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(crate::support::program());
        command.args(args);
        command.cwd(deck.home.project());
        command.env_clear();
        deck.env()
            .iter()
            .for_each(|(name, value)| command.env(name, value));
        command.env("TERM", "xterm-256color");
        command.env("INGESTDECK_UI_ON_DISCONNECT", on_disconnect);
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let [rows, columns] = [ROWS, COLUMNS].map(|cells| NonZero::new(cells).unwrap());
        let (mut output, keys) = (
            pair.master.try_clone_reader().unwrap(),
            pair.master.take_writer().unwrap(),
        );
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let hung_up = Arc::new(AtomicBool::new(false));
        let (drawn, hangs_up) = (Arc::clone(&screen), Arc::clone(&hung_up));
        let reader = thread::spawn(move || {
            // The reader keeps the terminal open.
            let _master = pair.master;
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                if hangs_up.load(Ordering::SeqCst) {
                    return;
                }
                drawn.lock().unwrap().process(&bytes[..count]);
            }
        });
        Self {
            screen,
            keys: Some(keys),
            hung_up,
            reader,
            child,
        }
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Waits for a row of the unit table that starts with `glyph` and `unit`.
    fn sees_unit(&self, glyph: char, unit: &str) {
        self.sees(&[&format!("│{glyph} {unit} ")]);
    }

    /// Waits for a line that contains all `parts`.
    pub(super) fn sees(&self, parts: &[&str]) {
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            if self
                .text()
                .lines()
                .any(|line| parts.iter().all(|part| line.contains(part)))
            {
                return;
            }
            thread::park_timeout(Duration::from_millis(20));
        }
        panic!("no line with {parts:?}:\n{}", self.text());
    }

    pub(super) fn press(&mut self, keys: &str) {
        let writer = self.keys.as_mut().unwrap();
        writer.write_all(keys.as_bytes()).unwrap();
        writer.flush().unwrap();
    }

    /// Closes the window. The program notices it at the next frame, which the clock on the screen causes once per
    /// second.
    fn hang_up(&mut self) {
        self.hung_up.store(true, Ordering::SeqCst);
        self.keys = None;
    }

    fn ends(&mut self) -> ExitStatus {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it stays:\n{}", self.text());
            thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// Waits for the program to exit, which must restore the terminal.
    pub(super) fn leaves(&mut self) -> ExitStatus {
        let status = self.ends();
        let deadline = Instant::now() + LIMIT;
        while !self.reader.is_finished() && Instant::now() < deadline {
            thread::park_timeout(Duration::from_millis(20));
        }
        let screen = self.screen.lock().unwrap();
        assert!(
            !screen.screen().alternate_screen() && !screen.screen().hide_cursor(),
            "the terminal is restored"
        );
        status
    }
}

impl Drop for TestTerminal {
    fn drop(&mut self) {
        // The program has already exited if the test passed.
        let _ = self.child.kill();
    }
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn retry_key_retries_only_the_failed_unit() {
    let bad = ktx("wiki_write", json!({"key": 5}));
    let turns = [
        ApiTurn::blocks([bad]),
        ApiTurn::answer("It did not work."),
        ApiTurn::answer("I give up."),
    ]
    .into_iter();
    let mut routes = vec![asked_by(
        "docs-crates",
        turns.chain(good_turns("docs-crates", "crates.md")),
    )];
    routes.extend(all_good());
    let deck = TestProject::new(routes);
    let mut terminal = TestTerminal::open(
        &deck,
        &["run", "--ui", "tui", "--only", "docs-{crates,juice}"],
    );
    terminal.sees_unit('✗', "docs-crates");
    terminal.sees_unit('✓', "docs-juice");

    // Moves to the failure and retries it.
    terminal.press("]ry");
    terminal.sees_unit('✓', "docs-crates");
    terminal.sees_unit('✓', "docs-juice");
    terminal.press("q");
    assert_eq!(terminal.leaves().exit_code(), 0);
    assert_eq!(
        deck.names("wiki/global"),
        ["page-docs-crates.md", "page-docs-juice.md"]
    );
    let attempts: Vec<String> = deck
        .started()
        .iter()
        .map(|started| started.argv.last().unwrap().clone())
        .collect();
    assert_eq!(
        attempts.len(),
        3,
        "only failed units run again: {attempts:?}"
    );
    let replayed = deck.play(&["replay", "latest", "--ui", "json"]);
    let states = replayed.states("docs-crates");
    assert_eq!(
        states.iter().filter(|state| *state == "running").count(),
        2,
        "{states:?}"
    );
    assert_eq!(states.last().map(String::as_str), Some("integrated"));
}

/// Feedback for a failed unit goes to its own session, with another budget; the cost of the new attempt counts once.
#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn failed_unit_resumes_its_session_with_feedback() {
    let lost = ApiTurn::blocks([ktx("wiki_write", json!({"title": "lost"}))]);
    let turns = [
        lost,
        ApiTurn::answer("There is no such file."),
        ApiTurn::answer("I give up."),
    ]
    .into_iter()
    .chain(good_turns("docs-crates", "crates.md"));
    let deck = TestProject::new([asked_by("docs-crates", turns)]);
    let mut terminal = TestTerminal::open(&deck, &["run", "--ui", "tui", "--only", "docs-crates"]);
    terminal.sees_unit('✗', "docs-crates");
    terminal.press("e");
    terminal.sees(&["new attempt at docs-crates"]);
    terminal.press("The file is crates.md.\t\t\x01\x0b33\t \x13");
    terminal.sees_unit('✓', "docs-crates");
    terminal.sees(&["continues the session · requested: 33 turns, feedback"]);
    terminal.press("q");
    assert_eq!(terminal.leaves().exit_code(), 0);
    assert_eq!(deck.names("wiki/global"), ["page-docs-crates.md"]);

    let [first, second] = deck.started().try_into().unwrap();
    let word = |argv: &[String], flag: &str| {
        argv.iter()
            .find_map(|word| word.strip_prefix(flag).map(str::to_owned))
    };
    let session = word(&first.argv, "--session-id=");
    assert!(
        session.is_some() && session == word(&second.argv, "--resume="),
        "{:?}",
        second.argv
    );
    let wanted = second.amendment.unwrap();
    assert_eq!(
        (wanted.resume, wanted.step_budget, second.step_budget),
        (session, Some(33), 33)
    );
    assert_eq!(wanted.feedback.as_deref(), Some("The file is crates.md."));
    let asked = deck.api.requests().pop().unwrap();
    for words in [
        "lost",
        "There is no such file.",
        "Continue with the following feedback: The file is crates.md.",
    ] {
        assert!(asked.body.contains(words), "the session remembers {words}");
    }
    let bills: Vec<f64> = deck
        .entries()
        .iter()
        .filter_map(|entry| entry["out"]["total_cost_usd"].as_f64())
        .collect();
    let replayed = deck.play(&["replay", "latest", "--ui", "json"]);
    let summary: serde_json::Value =
        serde_json::from_str(replayed.stdout.lines().last().unwrap()).unwrap();
    let cost = summary["event"]["cost_usd"].as_f64().unwrap();
    assert_eq!(bills.len(), 2);
    let whole = if claude_version() >= BILLS_WHOLE_SESSION {
        bills[1]
    } else {
        bills[0] + bills[1]
    };
    assert!(
        bills[0] > 0.0 && (cost - whole).abs() < 1e-9,
        "{cost} of {bills:?}"
    );
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn quit_while_running_asks_and_leaves_no_process() {
    let deck = TestProject::new([ApiRoute::any([ApiTurn::answer("").fault(ApiFault::Stall)])]);
    let mut terminal = TestTerminal::open(
        &deck,
        &["run", "--ui", "tui", "--only", "docs-{crates,juice}"],
    );
    deck.api.wait_for_requests(2, LIMIT);
    terminal.sees_unit('▶', "docs-juice");
    terminal.press("q");
    terminal.sees(&["2", "running"]);
    terminal.press("S");
    assert_eq!(terminal.leaves().exit_code(), 100);
    let pids: Vec<u32> = deck
        .started()
        .iter()
        .filter_map(|started| started.pid)
        .collect();
    assert_eq!(pids.len(), 2);
    all_gone(&deck, &pids);
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn busy_service_is_shown() {
    let turns = [ApiTurn::rate_limited(1)]
        .into_iter()
        .chain(good_turns("docs-crates", "crates.md"));
    let deck = TestProject::new([asked_by("docs-crates", turns)]);
    let mut terminal = TestTerminal::open(&deck, &["run", "--ui", "tui", "--only", "docs-crates"]);
    terminal.sees(&["retry", "429"]);
    terminal.sees_unit('✓', "docs-crates");
    terminal.press("q");
    assert_eq!(terminal.leaves().exit_code(), 0);
}

/// The first Ctrl-C starts nothing more, the second stops running units.
#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn interrupts_drain_then_stop() {
    let deck = TestProject::new([ApiRoute::any([ApiTurn::answer("").fault(ApiFault::Stall)])]);
    let mut terminal = TestTerminal::open(&deck, &["run", "--ui", "tui", "--concurrency", "1"]);
    deck.api.wait_for_requests(1, LIMIT);
    terminal.sees_unit('▶', "dbt-all");
    terminal.press("\x03");
    deck.wait_for("the first stop", |deck| deck.asked_to_stop(1));
    terminal.sees_unit('▶', "dbt-all");
    terminal.press("\x03");
    deck.wait_for("the second stop", |deck| deck.asked_to_stop(2));
    let pids: Vec<u32> = deck
        .started()
        .iter()
        .filter_map(|started| started.pid)
        .collect();
    all_gone(&deck, &pids);
    assert_eq!(pids.len(), 1, "nothing else was started");
    terminal.sees_unit('■', "dbt-all");
    terminal.press("q");
    assert_eq!(terminal.leaves().exit_code(), 130);
}

/// One call is edited, one allowed, one denied, and the others are released.
#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn stepped_unit_replays_its_decisions() {
    let [read, ledger, page, last] = good_turns("docs-crates", "crates.md");
    let lost = ApiTurn::blocks([ktx("read_raw_file", json!({"path": "lost.md"}))]);
    let draft = json!({"key": "draft", "summary": "A draft", "content": "# Draft\n", "rawPaths": ["crates.md"]});
    let turns = [
        lost,
        read,
        ApiTurn::blocks([ktx("wiki_write", draft)]),
        ledger,
        page,
        last,
    ];
    let deck = TestProject::new([asked_by("docs-crates", turns)]);
    let mut terminal = TestTerminal::open(&deck, &["step", "docs-crates"]);
    terminal.sees(&["read_raw_file waits for you"]);
    terminal.sees(&["\"path\": \"lost.md\""]);
    terminal.press("e");
    terminal.sees(&["arguments of read_raw_file"]);
    terminal.press(&"\x15".repeat(4));
    terminal.press(&"\x0b".repeat(8));
    terminal.press("{\"path\": \"crates.md\"}\x13");
    terminal.sees(&["\"path\": \"crates.md\"", "│"]);
    deck.wait_for("the edited call", |deck| {
        decided(deck, CallDecision::Edited)
    });
    terminal.press("s");
    deck.wait_for("the allowed call", |deck| {
        decided(deck, CallDecision::Allowed)
    });
    terminal.sees(&["wiki_write waits for you"]);
    terminal.press("dno drafts please\r");
    deck.wait_for("the denied call", |deck| {
        decided(deck, CallDecision::Denied)
    });
    terminal.sees(&["record_verification_ledger waits for you"]);
    terminal.press(" y");
    terminal.sees_unit('✓', "docs-crates");
    terminal.press("q");
    assert_eq!(terminal.leaves().exit_code(), 0);

    let asked: Vec<String> = deck
        .api
        .requests()
        .iter()
        .map(|request| request.json().to_string())
        .collect();
    assert!(
        asked
            .iter()
            .any(|request| request.contains("no drafts please")),
        "the model reads the reason"
    );
    assert_eq!(
        deck.names("wiki/global"),
        ["page-docs-crates.md"],
        "the denied call wrote nothing"
    );
    let jobs = deck.names(".ktx/ingest-transcripts");
    let [job] = &jobs
        .iter()
        .filter(|name| *name != ".gitignore")
        .collect::<Vec<_>>()[..]
    else {
        panic!("{jobs:?}")
    };
    let transcript = deck.read(&format!(".ktx/ingest-transcripts/{job}/docs-crates.jsonl"));
    assert!(
        !transcript.contains("lost.md"),
        "the tool saw the edited call alone: {transcript}"
    );
    let replayed = deck.play(&["replay", "latest", "--ui", "json"]);
    let states = replayed.states("docs-crates");
    let held = ["held", "running"].repeat(4);
    assert_eq!(
        states,
        [
            &["queued", "running"][..],
            &held,
            &["succeeded", "integrated"]
        ]
        .concat()
    );
}

/// A held unit runs to its next failure, then to a tool; each time, the call that meets the condition waits.
#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn held_unit_runs_to_a_failure_and_to_a_tool() {
    let [read, ledger, page, last] = good_turns("docs-crates", "crates.md");
    let lost = ApiTurn::blocks([ktx("wiki_write", json!({"title": "lost"}))]);
    let deck = TestProject::new([asked_by("docs-crates", [lost, read, ledger, page, last])]);
    let mut terminal = TestTerminal::open(&deck, &["step", "docs-crates"]);
    terminal.sees(&["\"title\": \"lost\""]);
    terminal.press("w");
    terminal.sees(&["read_raw_file waits for you · failure"]);
    terminal.press(":until tool wiki_*\r");
    terminal.sees(&["wiki_write waits for you · tool wiki_*"]);
    terminal.press(" y");
    terminal.sees_unit('✗', "docs-crates");
    terminal.press("q");
    assert_eq!(terminal.leaves().exit_code(), 100);
    let reached = deck.notes().into_iter().filter_map(|note| match note {
        Note::CallHeld { tool, reached, .. } => Some((tool, reached)),
        _ => None,
    });
    let held = |tool: &str, reached: Option<&str>| (tool.to_owned(), reached.map(str::to_owned));
    let expected = [
        held("wiki_write", None),
        held("read_raw_file", Some("failure")),
        held("wiki_write", Some("tool wiki_*")),
    ];
    assert_eq!(reached.collect::<Vec<_>>(), expected);
}

fn decided(deck: &TestProject, wanted: CallDecision) -> Option<()> {
    let is_it =
        |note: &Note| matches!(note, Note::CallDecided { decision, .. } if *decision == wanted);
    deck.notes().iter().any(is_it).then_some(())
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn stepping_an_unknown_unit_is_an_error() {
    let deck = TestProject::new([ApiRoute::any([ApiTurn::answer("")])]);
    let mut terminal = TestTerminal::open(&deck, &["step", "docs-{crates"]);
    assert_eq!(terminal.leaves().exit_code(), 4);
    assert!(
        terminal.text().contains("docs-crates"),
        "it names those that do:\n{}",
        terminal.text()
    );
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn run_continues_without_its_screen() {
    let deck = TestProject::new([asked_by(
        "docs-crates",
        good_turns("docs-crates", "crates.md"),
    )]);
    let mut terminal = TestTerminal::open(&deck, &["step", "docs-crates"]);
    terminal.sees(&["read_raw_file", "waits for you"]);
    terminal.press("D");
    assert_eq!(terminal.ends().exit_code(), 0);
    for round in 0..30 {
        let mut terminal = TestTerminal::open_with(&deck, &["attach"], "continue");
        if round % 3 == 0 {
            // At any moment of its start.
            thread::park_timeout(Duration::from_millis(9 * round));
            terminal.child.kill().unwrap();
            continue;
        }
        terminal.sees(&["read_raw_file", "waits for you"]);
        if round % 3 == 1 {
            terminal.child.kill().unwrap();
        } else {
            terminal.hang_up();
            assert_eq!(terminal.ends().exit_code(), 129);
        }
    }
    let pid = deck.started().iter().find_map(|started| started.pid);
    assert_eq!(
        deck.play(&["ctl", "say", "docs-crates", "Amounts are in euros."])
            .code,
        Some(0)
    );
    assert_eq!(deck.play(&["ctl", "allow", "docs-crates"]).code, Some(0));
    assert_eq!(deck.play(&["ctl", "release", "docs-crates"]).code, Some(0));
    let terminal = TestTerminal::open_with(&deck, &["attach"], "continue");
    terminal.sees_unit('✓', "docs-crates");
    terminal.sees(&["commit"]);
    drop(terminal);
    all_gone(&deck, &pid.into_iter().collect::<Vec<_>>());
    let shown = deck.play(&["runs", "show"]);
    assert!(
        shown.stdout.contains("1 succeeded") && shown.stdout.contains("commit"),
        "{shown:#?}"
    );
    assert_eq!(deck.started().len(), 1, "one agent for the whole run");
    let received =
        |request: &ApiRequest| request.json().to_string().contains("Amounts are in euros.");
    assert!(
        deck.api.requests().iter().any(received),
        "the agent got the message"
    );
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn closed_window_ends_the_run_in_order() {
    let deck = TestProject::new([ApiRoute::any([ApiTurn::answer("").fault(ApiFault::Stall)])]);
    let mut terminal = TestTerminal::open(
        &deck,
        &["run", "--ui", "tui", "--only", "docs-{crates,juice}"],
    );
    deck.api.wait_for_requests(2, LIMIT);
    terminal.sees_unit('▶', "docs-juice");
    terminal.hang_up();
    assert_eq!(terminal.ends().exit_code(), 129);
    let pids: Vec<u32> = deck
        .started()
        .iter()
        .filter_map(|started| started.pid)
        .collect();
    all_gone(&deck, &pids);
    // The engine ends after its screen.
    let deadline = Instant::now() + LIMIT;
    let shown = loop {
        let shown = deck.play(&["runs", "show"]);
        if shown.stdout.contains("finished") || Instant::now() > deadline {
            break shown;
        }
        thread::park_timeout(Duration::from_millis(20));
    };
    assert!(
        shown.stdout.contains("finished") && shown.stdout.contains("2 stopped"),
        "{shown:#?}"
    );
}
