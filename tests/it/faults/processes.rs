//! The fault table for processes, signals, terminals and the service: one row per fault, with the test that injects it.
//!
//! After every fault, each whole entry is still on the tape, the exit code is a documented one, cause and remedy are on
//! the tape, no process of the run is left after [`GONE`], a terminal that still exists is restored, and the next run
//! finishes the work. Tests under `real_ingest` need the real CLI.
//!
//! | fault | test |
//! |---|---|
//! | SIGKILL to an agent before its `init` | `faults::killed_agent_fails_only_its_attempt` |
//! | SIGKILL to an agent between calls | [`killed_agents_lose_no_line_and_only_their_attempt`] |
//! | SIGKILL to an agent with an open call | [`killed_agents_lose_no_line_and_only_their_attempt`] |
//! | SIGKILL to an agent whose call is held | [`killed_agent_withdraws_its_held_call`] |
//! | SIGKILL to an agent after its result | [`killed_agents_lose_no_line_and_only_their_attempt`] |
//! | SIGKILL to an agent while it ends | [`killed_agents_lose_no_line_and_only_their_attempt`] |
//! | SIGKILL to an agent that waits for the API | `real_ingest::run_ends::externally_killed_agent_is_a_crash_and_run_continues` |
//! | SIGKILL to ingestdeck, units live | `faults::killed_run_is_finished_by_the_next_one`, `demo_runs::killed_run_leaves_no_process_and_a_readable_tape` |
//! | SIGKILL to ingestdeck, a call held | [`killed_program_with_a_held_call_is_resumed`] |
//! | SIGKILL to ingestdeck, planning | [`killed_program_is_settled_by_the_next_run`] |
//! | SIGKILL to ingestdeck, copying a worktree | [`killed_program_is_settled_by_the_next_run`] |
//! | SIGKILL to ingestdeck, integrating | [`killed_program_is_settled_by_the_next_run`] |
//! | SIGKILL to ingestdeck, updating the branch | [`killed_program_is_settled_by_the_next_run`], `branch_update::tests::crash_at_any_step_leaves_old_or_new_state` |
//! | SIGKILL to ingestdeck, anywhere in a run without git | [`killed_run_without_git_is_settled_wherever_it_stops`] |
//! | SIGKILL to a watched ingestdeck | `commands::watch::watch_reports_a_dead_writer` |
//! | API down (closed port) | [`service_faults_are_reported_with_their_remedy`], `real_ingest::service` |
//! | API without an answer | `commands::unfinished::silent_attempt_ends_and_is_retried`, `real_ingest::service` |
//! | API overloaded (529) on every request | [`service_faults_are_reported_with_their_remedy`], `real_ingest::service` |
//! | API refuses the login (401) | [`service_faults_are_reported_with_their_remedy`], `real_ingest::run_ends::bad_api_key_fails_all_units_quickly_with_a_remedy` |
//! | credit too low | [`service_faults_are_reported_with_their_remedy`], `real_ingest::service` |
//! | unknown model (404) | [`service_faults_are_reported_with_their_remedy`], `real_ingest::service` |
//! | usage limit | `real_ingest::limits::used_up_window_pauses_the_run_without_a_retry` |
//! | CLI removed in mid-run, and installed again | `commands::agents::units_wait_for_a_program_that_is_being_updated` |
//! | CLI removed in mid-run, SIGTERM while waiting for it | [`removed_program_does_not_delay_the_end`] |
//! | CLI removed in mid-run for good | [`program_removed_for_good_ends_the_run`] |
//! | terminal gone, units | [`lost_terminal_ends_units_and_sessions`], `real_ingest::screen::closed_window_ends_the_run_in_order` |
//! | terminal gone, session | [`lost_terminal_ends_units_and_sessions`] |
//! | terminal gone, replay | `tui::pty::lost_terminal_ends_the_program_without_a_signal` |
//! | SIGINT once, units | `demo_runs::first_sigint_lets_running_units_end` |
//! | SIGINT twice and three times, units | `commands::agents::hanging_agent_is_stopped_and_stubborn_one_killed` |
//! | SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, units without a screen | `demo_runs::terminated_run_leaves_no_process` |
//! | SIGTERM, SIGQUIT, SIGUSR1, units on a screen | [`signals_end_units_and_restore_the_terminal`] |
//! | SIGINT once, session | `commands::records::first_sigint_stops_the_session_and_is_recorded` |
//! | SIGTERM, SIGHUP, SIGQUIT, SIGKILL, SIGINT twice, session with a shell command | `commands::sessions::processes_of_a_session_end_with_it`, `real_ingest::session::shell_command_of_a_session_ends_with_it` |
//! | SIGINT three times, session with a shell command that ignores it | [`third_interrupt_of_a_session_leaves_no_process`] |

use std::{
    fs,
    io::Read as _,
    path::Path,
    process::{Command, ExitStatus},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use super::{CommandOutput, FaultProject, files, script};
use crate::{
    commands::test_dir::{DEADLINE, RunningCommand, TestDir},
    support::open_terminal,
    tui::pty_session::{PtySession, cells},
};

/// Longest time from the end of the program to the end of its last process: SIGKILL is sent after two seconds.
const GONE: Duration = Duration::from_secs(3);
/// The environment variable that marks the processes of agents.
const MARK: &[u8] = b"INGESTDECK_AGENT=";

/// Processes that name the directory in their arguments, or that carry the agent marker and name it in their
/// environment or work in it.
fn survivors(place: &TestDir) -> Vec<String> {
    let root = place.path("..").canonicalize().unwrap();
    let has = |bytes: &[u8], text: &[u8]| memchr::memmem::find(bytes, text).is_some();
    let names = |bytes: &[u8]| has(bytes, root.as_os_str().as_encoded_bytes());
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    pids.filter(|pid| pid.parse::<u32>().is_ok())
        .filter_map(|pid| {
            let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let (words, variables) = (read("cmdline"), read("environ"));
            let works_there = || {
                fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(&root))
            };
            let is_agent = has(&variables, MARK) && (names(&variables) || works_there());
            (is_agent || names(&words))
                .then(|| format!("{pid}: {}", String::from_utf8_lossy(&words)))
        })
        .collect()
}

fn assert_gone(fault: &str, place: &TestDir) {
    let deadline = Instant::now() + GONE;
    loop {
        let left = survivors(place);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{fault}: still there: {left:?}");
        crate::support::pause_before_check();
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} never came");
        crate::support::pause_before_check();
    }
}

/// Sends a signal to a child, which may have exited.
fn send(running: &RunningCommand, signal: Signal) {
    let _ = kill(Pid::from_raw(i32::try_from(running.id()).unwrap()), signal);
}

/// The arguments that name the project and the program.
fn args<'a>(verb: &[&'a str], project: &'a Path, claude: &'a str) -> Vec<&'a str> {
    [
        verb,
        &[
            "--project-dir",
            project.to_str().unwrap(),
            "--claude-bin",
            claude,
        ],
    ]
    .concat()
}

impl FaultProject {
    fn play(&self, script: &str) {
        fs::write(self.place.path("../bin/script.toml"), script).unwrap();
    }

    /// The text of the newest tape, without a torn last line.
    fn newest_tape(&self) -> String {
        let (_, tape) = self.tapes_now().pop_last().unwrap();
        let whole = memchr::memrchr(b'\n', &tape).map_or(0, |at| at + 1);
        String::from_utf8(tape[..whole].to_vec()).unwrap()
    }

    fn entries(&self) -> Vec<Value> {
        self.newest_tape()
            .lines()
            .skip(1)
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Notes of a kind, each with its unit.
    fn notes(&self, kind: &str) -> Vec<(String, Value)> {
        let of_kind = self
            .entries()
            .into_iter()
            .filter(|entry| entry["note"]["kind"] == kind);
        of_kind
            .map(|mut entry| {
                (
                    entry["unit"].as_str().unwrap_or_default().to_owned(),
                    entry["note"].take(),
                )
            })
            .collect()
    }

    /// The last verdict of a unit.
    fn verdict(&self, unit: &str) -> Value {
        let ended = self
            .notes("attempt_ended")
            .into_iter()
            .rfind(|(of, _)| of == unit);
        ended
            .unwrap_or_else(|| panic!("no verdict of {unit}: {}", self.newest_tape()))
            .1["verdict"]
            .take()
    }

    fn assert_cause(&self, fault: &str, unit: &str, cause: &str, remedy: &str) {
        let verdict = self.verdict(unit);
        assert_eq!(
            (&verdict["outcome"], &verdict["cause"]),
            (&"failed".into(), &cause.into()),
            "{fault}: {verdict}"
        );
        assert!(
            verdict["remedy"]
                .as_str()
                .is_some_and(|text| text.contains(remedy)),
            "{fault}: {verdict}"
        );
    }

    /// Asserts that the newest tape still starts with `before`.
    fn assert_grown(&self, fault: &str, before: &str) {
        assert!(
            self.newest_tape().starts_with(before),
            "{fault}: the tape lost entries"
        );
    }
}

/// The output of a screen or a signal, in the form that [`FaultProject::assert_kept`] expects.
fn ended(text: String) -> CommandOutput {
    CommandOutput {
        code: None,
        stdout: String::new(),
        stderr: text,
    }
}

/// Steps that call `wiki_write`, after the verification ledger that it needs.
fn writes(page: &str) -> String {
    format!(
        "{{ call = {{ tool = \"record_verification_ledger\", with = {{ summary = \"read\" }} }} }},
         {{ call = {{ tool = \"wiki_write\", with = {{ key = \"{page}\", summary = \"s\", content = \"text\" }} }} }},"
    )
}

fn part(unit: &str, steps: &str) -> String {
    format!("[[part]]\nunit = \"docs-{unit}\"\nsteps = [{steps}]\n")
}

/// The agent kills its process group after it has printed a message with `KILL-NOW`, or when it ends after one with
/// `KILL-AT-END`. Its output is also in `bin/printed`.
fn kill_at_words(bench: &FaultProject) {
    let stub = fs::read_to_string(&bench.claude).unwrap();
    let (head, command) = stub.trim_end().rsplit_once("\nexec ").unwrap();
    let watch = r#"{
end=0
while IFS= read -r line; do
  printf '%s\n' "$line" >> 'PRINTED'
  printf '%s\n' "$line"
  case "$line" in
    *'"type":"stream_event"'*) ;;
    *KILL-NOW*) kill -9 0;;
    *KILL-AT-END*) end=1;;
  esac
done
[ $end = 0 ] || kill -9 0
}"#;
    let watch = watch.replace(
        "PRINTED",
        bench.place.path("../bin/printed").to_str().unwrap(),
    );
    fs::write(&bench.claude, format!("{head}\n{command} | {watch}\n")).unwrap();
}

#[test]
fn killed_agents_lose_no_line_and_only_their_attempt() {
    let bench = FaultProject::new();
    bench.place.notes(&["four"]);
    let stub = fs::read(&bench.claude).unwrap();
    kill_at_words(&bench);
    let open = "{ call = { tool = \"wiki_write\", with = { key = \"KILL-NOW\", summary = \"s\", content = \"text\" } } }";
    let parts = [
        part(
            "one",
            &format!("{} {{ say = \"KILL-NOW\" }}, {open}", writes("junk")),
        ),
        part("two", &format!("{open}, {{ say = \"done\" }}")),
        part(
            "three",
            &format!(
                "{} {{ say = \"done\" }}, {{ result = {{ text = \"KILL-NOW\" }} }}",
                writes("three")
            ),
        ),
        part(
            "four",
            &format!("{} {{ say = \"KILL-AT-END\" }}", writes("four")),
        ),
    ];
    bench.play(&(parts.concat() + "[[part]]\nsteps = [{ say = \"nothing to do\" }]\n"));
    let ran = bench.place.ran(bench.command());
    assert_eq!(ran.code, Some(100), "{ran:?}");
    assert_gone("killed agents", &bench.place);
    bench.assert_kept("killed agents", &ran);
    for unit in ["docs-one", "docs-two"] {
        bench.assert_cause("killed agents", unit, "crashed", "`ingestdeck doctor`");
        assert!(
            bench.verdict(unit)["reason"]
                .as_str()
                .unwrap()
                .ends_with("(ended by SIGKILL)"),
            "{ran:?}"
        );
    }
    for unit in ["docs-three", "docs-four"] {
        assert_eq!(
            bench.verdict(unit)["outcome"],
            "succeeded",
            "{unit}: its result decides: {ran:?}"
        );
    }
    let printed = fs::read_to_string(bench.place.path("../bin/printed")).unwrap();
    let tape = bench.newest_tape();
    let is_message = |line: &&str| {
        let line: Value = serde_json::from_str(line).unwrap();
        ["assistant", "user", "result"]
            .iter()
            .any(|kind| line["type"] == *kind)
    };
    let messages: Vec<&str> = printed.lines().filter(is_message).collect();
    assert!(
        messages
            .iter()
            .filter(|line| line.contains("KILL-"))
            .count()
            >= 4,
        "{printed}"
    );
    for line in messages {
        assert!(tape.contains(line), "not on the tape: {line}");
    }
    let pages = super::git(&bench.place.path(""), &["ls-files", "wiki"]);
    assert!(
        pages.contains("three.md") && pages.contains("four.md") && !pages.contains("junk"),
        "{pages}"
    );
    fs::write(&bench.claude, stub).unwrap();
    bench.play(&script());
    bench.assert_recovers("killed agents");
}

/// `step docs-one` on a terminal, held at its first call. It uses the home of the test directory, because runs of
/// another home are foreign.
fn held(bench: &FaultProject) -> PtySession {
    let (project, home) = (
        bench.place.path(""),
        format!("HOME={}", bench.place.path("../home").display()),
    );
    let words = args(&["step", "docs-one"], &project, &bench.claude);
    let session = PtySession::run(
        "/usr/bin/env",
        &[&[&home, crate::support::program()], &words[..]].concat(),
        &[],
    );
    session.shows("record_verification_ledger waits for you");
    wait_until("the held call", || !bench.notes("call_held").is_empty());
    session
}

/// The process that runs the units: the one that locks the project.
fn engine(bench: &FaultProject) -> Pid {
    let holder = fs::read_to_string(bench.place.path(".ktx/ingestdeck/ingest.lock")).unwrap();
    Pid::from_raw(holder.trim().parse().unwrap())
}

#[test]
fn killed_agent_withdraws_its_held_call() {
    let bench = FaultProject::new();
    let mut session = held(&bench);
    let before = bench.newest_tape();
    let (_, started) = bench.notes("attempt_started").pop().unwrap();
    kill(
        Pid::from_raw(i32::try_from(started["pid"].as_i64().unwrap()).unwrap()),
        Signal::SIGKILL,
    )
    .unwrap();
    session.shows("✗ docs-one");
    session.press("q");
    let text = session.text();
    assert_eq!(session.end(), 100, "{text}");
    assert_gone("held agent killed", &bench.place);
    bench.assert_grown("held agent killed", &before);
    bench.assert_kept("held agent killed", &ended(text));
    bench.assert_cause(
        "held agent killed",
        "docs-one",
        "crashed",
        "`ingestdeck doctor`",
    );
    let decided = bench.notes("call_decided");
    assert!(
        decided.len() == 1 && decided[0].1["decision"] == "withdrawn",
        "{decided:?}"
    );
    bench.assert_recovers("held agent killed");
}

#[test]
fn killed_program_with_a_held_call_is_resumed() {
    let bench = FaultProject::new();
    let mut session = held(&bench);
    let before = bench.newest_tape();
    assert!(
        survivors(&bench.place)
            .iter()
            .any(|words| words.contains("scripted-agent")),
        "the agent is found"
    );
    kill(engine(&bench), Signal::SIGKILL).unwrap();
    session.shows("writer gone");
    session.press("q");
    session.child.wait().unwrap();
    assert_gone("killed with a held call", &bench.place);
    bench.assert_grown("killed with a held call", &before);
    bench.assert_kept("killed with a held call", &ended(session.text()));
    let shown = bench.place.run(&["runs", "show"]);
    assert!(
        shown.expect_success().contains("1 interrupted"),
        "{shown:?}"
    );
    let resumed = bench.place.run(&[
        "run",
        "--resume-run",
        "latest",
        "--claude-bin",
        &bench.claude,
    ]);
    assert!(
        resumed
            .expect_success()
            .contains("docs-one#1               ✓ succeeded"),
        "{resumed:?}"
    );
    bench.assert_recovers("killed with a held call");
}

/// The run is killed by SIGKILL when it calls git with arguments that match `pattern`: before or after git has run.
fn run_killed_at_git_call(bench: &FaultProject, pattern: &str, after: bool) -> CommandOutput {
    let real = "/usr/bin/git \"$@\"";
    let act = if after {
        format!("{real}; kill -9 $PPID; exit")
    } else {
        "kill -9 $PPID; exit 1".to_owned()
    };
    let body = format!("case \" $* \" in {pattern}) {act};; esac\nexec {real}");
    let git = bench.place.script("git", &body);
    let mut command = bench.command();
    command.env(
        "PATH",
        format!("{}:/usr/bin:/bin", git.parent().unwrap().display()),
    );
    let ran = bench.place.ran(command);
    fs::remove_file(git).unwrap();
    ran
}

#[test]
fn killed_program_is_settled_by_the_next_run() {
    let moments = [
        ("planning", "*' rev-parse '*", false),
        ("copying a worktree", "*' worktree add '*", true),
        ("integrating", "*' apply --3way '*", true),
        (
            "updating files",
            "*' read-tree -m -u '*' HEAD '*) exec /usr/bin/git \"$@\";; *' read-tree -m -u '*",
            true,
        ),
        ("updating the branch", "*' update-ref -m '*", false),
    ];
    for (has_git, (fault, pattern, after)) in [true, false]
        .into_iter()
        .flat_map(|kind| moments.map(|of| (kind, of)))
    {
        let bench = FaultProject::with_git(has_git);
        let head = bench.git(&["rev-parse", "HEAD"]);
        let ran = run_killed_at_git_call(&bench, pattern, after);
        assert_eq!(
            ran.code, None,
            "{fault}: it did not reach that step: {ran:?}"
        );
        assert_gone(fault, &bench.place);
        bench.assert_kept(fault, &ran);
        assert_eq!(bench.git(&["rev-parse", "HEAD"]), head, "{fault}");
        bench.assert_recovers(fault);
    }
}

/// The run of a project without git is killed before or after every eighth call of git, from the creation of the
/// private repository to the end.
#[test]
fn killed_run_without_git_is_settled_wherever_it_stops() {
    let calls = |bench: &FaultProject, then: &str| {
        let calls = bench.place.path("../calls");
        let _ = fs::remove_file(&calls);
        let body = format!(
            "echo >> '{0}'; N=$(wc -l < '{0}'); {then}\nexec /usr/bin/git \"$@\"",
            calls.display()
        );
        let git = bench.place.script("git", &body);
        let mut command = bench.command();
        command.env(
            "PATH",
            format!("{}:/usr/bin:/bin", git.parent().unwrap().display()),
        );
        let ran = bench.place.ran(command);
        fs::remove_file(git).unwrap();
        (ran, fs::read_to_string(calls).unwrap().len())
    };
    let (ran, all) = calls(&FaultProject::with_git(false), ":");
    assert!(ran.code == Some(0) && all > 40, "{all} calls: {ran:?}");
    for stop in (1..all).step_by(8) {
        let bench = FaultProject::with_git(false);
        let page = bench.place.write(
            "wiki/global/mine.md",
            "---\nsummary: Mine\n---\n\nby hand\n",
        );
        if stop % 16 == 1 {
            fs::remove_dir_all(bench.place.path(".ktx/ingestdeck/repository.git")).unwrap();
        }
        let act = if stop % 16 == 1 {
            "kill -9 $PPID; exit 1"
        } else {
            "/usr/bin/git \"$@\"; kill -9 $PPID; exit"
        };
        let (ran, _) = calls(&bench, &format!("[ $N -lt {stop} ] || {{ {act}; }}"));
        let fault = format!("killed at call {stop} of git");
        assert_eq!(ran.code, None, "{fault}: {ran:?}");
        bench.assert_kept(&fault, &ran);
        bench.assert_recovers(&fault);
        assert!(
            fs::read_to_string(page).unwrap().ends_with("by hand\n"),
            "{fault}"
        );
    }
}

#[test]
fn service_faults_are_reported_with_their_remedy() {
    let bench = FaultProject::new();
    let faults = [
        (
            "error = \"server_error\", api_error = \"connection_failed\", text = \"Unable to connect to API\"",
            (96, 2, "network", "check the connection and proxy settings"),
        ),
        (
            "status = 529, error = \"overloaded\", text = \"API Error: 529 Overloaded\"",
            (100, 2, "transient", "the service is busy"),
        ),
        (
            "status = 401, error = \"authentication_failed\", text = \"invalid x-api-key\"",
            (96, 1, "auth", "/login"),
        ),
        (
            "status = 400, error = \"billing_error\", text = \"Credit balance is too low\"",
            (96, 1, "credit", "add credit to the account"),
        ),
        (
            "status = 404, error = \"model_not_found\", text = \"no such model\"",
            (2, 1, "model", "llm.models"),
        ),
    ];
    for (error, (code, attempts, cause, remedy)) in faults {
        bench.play(&format!(
            "[[part]]\nsteps = [{{ api_error = {{ {error} }} }}]"
        ));
        let mut command = bench.command();
        command
            .env("INGESTDECK_RETRY_MAX_RETRIES", "1")
            .env("INGESTDECK_RETRY_INITIAL_DELAY_MS", "1");
        let ran = bench.place.ran(command);
        assert_eq!(ran.code, Some(code), "{cause}: {ran:?}");
        assert!(ran.stdout.contains(remedy), "{cause}: {ran:?}");
        let ended = bench.notes("attempt_ended");
        let unit = ended[0].0.clone();
        assert_eq!(
            ended.iter().filter(|(of, _)| *of == unit).count(),
            attempts,
            "{cause}: {ended:?}"
        );
        bench.assert_cause(cause, &unit, cause, remedy);
        assert_gone(cause, &bench.place);
        bench.assert_kept(cause, &ran);
    }
    bench.play(&script());
    bench.assert_recovers("service");
}

/// Plays a run whose first agent removes its own program. A SIGTERM ends the wait for the program, or the wait times
/// out.
fn ends_without_its_program(signal: Option<Signal>, code: i32) {
    let bench = FaultProject::new();
    let stub = fs::read(&bench.claude).unwrap();
    bench.run_before_agent(&format!("rm -f '{}'", bench.claude));
    let words = ["run", "--claude-bin", &bench.claude, "--concurrency", "1"];
    let mut running = bench.place.start(bench.place.command(&words));
    running.wait_for("stdout", "the agent's program is missing");
    let before = bench.newest_tape();
    if let Some(signal) = signal {
        running.signal(signal);
    }
    let ran = running.end();
    assert_eq!(ran.code, Some(code), "{ran:?}");
    assert_gone("program removed", &bench.place);
    bench.assert_grown("program removed", &before);
    bench.assert_kept("program removed", &ran);
    let failed = bench
        .notes("attempt_ended")
        .into_iter()
        .find(|(_, note)| note["verdict"]["outcome"] == "failed");
    let (unit, _) = failed.unwrap();
    bench.assert_cause(
        "program removed",
        &unit,
        "program_missing",
        "npm install -g @anthropic-ai/claude-code",
    );
    fs::write(&bench.claude, stub).unwrap();
    make_executable(&bench.claude);
    bench.assert_recovers("program removed");
}

#[test]
fn removed_program_does_not_delay_the_end() {
    ends_without_its_program(Some(Signal::SIGTERM), 143);
}

/// Takes 40 s, the whole time that the program waits.
#[test]
fn program_removed_for_good_ends_the_run() {
    ends_without_its_program(None, 96);
}

fn make_executable(path: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs `command` on its own controlling terminal, which is closed as soon as `is_ready`.
fn on_lost_terminal(command: &Command, is_ready: impl Fn() -> bool) -> ExitStatus {
    let (mut master, slave) = open_terminal();
    let [stdin, stdout, stderr, sized] = [(); 4].map(|()| slave.try_clone().unwrap());
    drop(slave);
    assert!(
        Command::new("stty")
            .args(["rows", "30", "cols", "100"])
            .stdin(sized)
            .status()
            .unwrap()
            .success()
    );
    let mut on_terminal = Command::new("setsid");
    on_terminal
        .arg("--ctty")
        .arg(command.get_program())
        .args(command.get_args())
        .env_clear();
    on_terminal.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    on_terminal
        .current_dir(command.get_current_dir().unwrap())
        .env("TERM", "xterm-256color");
    let mut child = on_terminal
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
        .unwrap();
    drop(on_terminal);
    let mut screen = vt100::Parser::new(cells(30), cells(100), 0);
    wait_until("the screen", || {
        let mut buffer = [0; 4096];
        // The clock on the screen causes a frame every second.
        let count = master.read(&mut buffer).unwrap();
        screen.process(&buffer[..count]);
        screen.screen().alternate_screen() && is_ready()
    });
    drop(master);
    let deadline = Instant::now() + DEADLINE;
    loop {
        match child.try_wait().unwrap() {
            Some(status) => return status,
            None if Instant::now() < deadline => crate::support::pause_before_check(),
            None => {
                child.kill().unwrap();
                panic!(
                    "it still runs without a terminal: {command:?}\n{}",
                    screen.screen().contents()
                );
            }
        }
    }
}

#[test]
fn lost_terminal_ends_units_and_sessions() {
    let bench = FaultProject::new();
    bench.run_before_agent("touch \"$P/../bin/works\"; exec sleep 600");
    let works = bench.place.path("../bin/works");
    let mut command = bench.command();
    command.env("INGESTDECK_UI_ON_DISCONNECT", "stop");
    let status = on_lost_terminal(&command, || works.exists());
    assert_eq!(status.code(), Some(129), "{status}");
    assert_gone("units without a terminal", &bench.place);
    bench.assert_kept("units without a terminal", &ended(String::new()));
    assert_eq!(bench.verdict("docs-one")["outcome"], "stopped");
    assert_eq!(bench.notes("run_ended").len(), 1, "it ended in order");
    bench.assert_recovers("units without a terminal");

    let place = TestDir::new();
    let claude = shell_command(&place);
    let command = place.command(&["session", "--claude-bin", &claude, "--", "go"]);
    let works = place.path("works");
    let status = on_lost_terminal(&command, || works.exists());
    assert_eq!(status.code(), Some(129), "{status}");
    assert_gone("session without a terminal", &place);
    let tapes: Vec<Vec<u8>> = files(&place.path(".."))
        .into_iter()
        .filter(|(path, _)| path.ends_with("tape.jsonl"))
        .map(|(_, tape)| tape)
        .collect();
    assert_eq!(tapes.len(), 1);
    let has = |text: &str| memchr::memmem::find(&tapes[0], text.as_bytes()).is_some();
    assert!(
        has("\"run_ended\"") && has("\"stopped\"") && has("\"command\":\"pay\""),
        "{}",
        String::from_utf8_lossy(&tapes[0])
    );
}

/// A `claude` in a session whose shell command runs in another session. Both end only on SIGKILL.
fn shell_command(place: &TestDir) -> String {
    let detached = place.script(
        "detached",
        "trap '' HUP INT TERM\nwhile :; do sleep 1; done",
    );
    let init = r#"{"type":"system","subtype":"init","session_id":"s1","model":"m","permissionMode":"default"}"#;
    let call = r#"{"type":"assistant","session_id":"s1","message":{"id":"m1","role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"pay"}}]}}"#;
    let body = format!(
        "trap '' HUP INT TERM\n( setsid '{}' >/dev/null 2>&1 & )\necho '{init}'\necho '{call}'\ntouch '{}'\nwhile :; do sleep 1; done",
        detached.display(),
        place.path("works").display(),
    );
    place.claude(&body).to_str().unwrap().to_owned()
}

#[test]
fn third_interrupt_of_a_session_leaves_no_process() {
    let place = TestDir::new();
    let claude = shell_command(&place);
    let mut running = place.start(place.command(&["session", "--claude-bin", &claude, "--", "go"]));
    running.wait_for("stdout", "session s1");
    wait_until("the shell command", || place.path("works").exists());
    assert!(
        survivors(&place)
            .iter()
            .any(|words| words.contains("detached")),
        "{:?}",
        survivors(&place)
    );
    for answer in ["stopping running units", "killing running units"] {
        running.signal(Signal::SIGINT);
        running.wait_for("stderr", answer);
    }
    send(&running, Signal::SIGINT);
    let ran = running.end();
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert_gone("three interrupts", &place);
    let tape = ran
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("recorded in "));
    let shown = place.run(&["replay", tape.unwrap_or("latest"), "--ui", "lines"]);
    assert!(shown.stdout.contains("pay"), "{shown:?}");
}

#[test]
fn signals_end_units_and_restore_the_terminal() {
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGQUIT, 131),
        (Signal::SIGUSR1, 138),
    ] {
        let place = TestDir::new();
        place.notes(&["one"]);
        let claude = place
            .scripted_claude("[[part]]\nsteps = [{ say = \"thinking\" }, \"hang\"]")
            .display()
            .to_string();
        let session = PtySession::open(&args(&["run"], &place.path(""), &claude));
        session.shows("thinking");
        session.signal(signal);
        assert_eq!(session.end(), code, "{signal}");
        assert_gone(signal.as_str(), &place);
        place.scripted_claude("[[part]]\nsteps = [{ say = \"done\" }]");
        let resumed = place.run(&["run", "--resume-run", "latest", "--claude-bin", &claude]);
        assert!(
            resumed.expect_success().contains("1 succeeded"),
            "{signal}: {resumed:?}"
        );
    }
}
