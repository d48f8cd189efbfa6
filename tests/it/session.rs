//! Plain sessions with real processes: the scripted agent for possible faults of a program, the real CLI for its actual
//! behaviour.

use std::{
    ffi::OsString,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use ingestdeck_agent::{
    Agent, AgentProgram,
    attempt::{AttemptCommand, AttemptContext, time_limits::AttemptTimeouts},
    claude::availability::{
        ClaudeInvocation, Installation, LoginStatus, ProbeResult, check_availability, probe,
    },
    process::{ProcessTimeouts, StreamLimits},
    session::{ClaudeSessionArgs, SessionEnd, SessionLaunch, resume_line, run_session_with_env},
    session_lock::{SessionLocks, TryLockOutcome},
};
use ingestdeck_core::{
    config::MismatchPolicy,
    run::entry_source::{NewEntry, RecordError, Recorder},
    tape::{
        EntryBody, Note, UnitKey,
        note::{AttemptOutcome, Verdict, VerdictCause},
    },
};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::support::{
    api::{ApiFault, ApiRoute, ApiTurn, FakeApi, text, tool},
    cli::{TestHome, claude_bin},
    missing,
};

const LIMIT: Duration = Duration::from_secs(60);
const QUICK: ProcessTimeouts = ProcessTimeouts {
    escalation_step: Duration::from_millis(300),
    exit: Duration::from_millis(300),
    pipe_drain: Duration::from_millis(500),
    reply: Duration::from_millis(500),
    startup: Duration::from_secs(10),
};

/// A tape in memory that notifies at each entry.
#[derive(Debug, Default)]
struct SessionMemoryRecorder {
    entries: Mutex<Vec<(char, String)>>,
    bell: Notify,
    full_after: Option<usize>,
}

impl Recorder for SessionMemoryRecorder {
    fn record(&self, items: &[NewEntry<'_>]) -> Result<(), RecordError> {
        let mut entries = self.entries.lock().unwrap();
        for item in items {
            if self.full_after.is_some_and(|count| entries.len() >= count) {
                return Err(RecordError::new(
                    "tape.jsonl",
                    &std::io::ErrorKind::StorageFull.into(),
                ));
            }
            let owned = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            entries.push(match &item.body {
                EntryBody::Stdout(bytes) => ('o', owned(bytes)),
                EntryBody::StdoutRaw(bytes) => ('r', owned(bytes)),
                EntryBody::Stdin(bytes) => ('i', owned(bytes)),
                EntryBody::Stderr(text) => ('e', text.clone().into_owned()),
                EntryBody::Note(bytes) => ('n', owned(bytes)),
            });
        }
        self.bell.notify_waiters();
        Ok(())
    }
}

impl SessionMemoryRecorder {
    fn has(&self, kind: char, part: &str) -> bool {
        self.entries
            .lock()
            .unwrap()
            .iter()
            .any(|(found, text)| *found == kind && text.contains(part))
    }

    async fn wait_for(&self, kind: char, part: &str) {
        let waiting = async {
            loop {
                let rung = self.bell.notified();
                if self.has(kind, part) {
                    return;
                }
                rung.await;
            }
        };
        let came = tokio::time::timeout(LIMIT, waiting).await;
        assert!(
            came.is_ok(),
            "no {kind} with {part}: {:#?}",
            self.entries.lock().unwrap()
        );
    }

    fn argv(&self) -> Vec<String> {
        let entries = self.entries.lock().unwrap();
        let notes = entries
            .iter()
            .filter(|(kind, _)| *kind == 'n')
            .map(|(_, text)| Note::parse(text.as_bytes()));
        let mut started = notes.filter_map(|note| match note {
            Note::AttemptStarted(started) => Some(started.argv),
            _ => None,
        });
        started.next().expect("an attempt was started")
    }
}

/// One session and everything around it.
struct SessionFixture {
    home: TestHome,
    tape: Arc<SessionMemoryRecorder>,
    launch: SessionLaunch,
    env: Vec<(OsString, OsString)>,
    patience: ProcessTimeouts,
}

impl SessionFixture {
    fn new(program: AgentProgram, prompt: &str) -> Self {
        let home = TestHome::new();
        let tape = Arc::new(SessionMemoryRecorder::default());
        let launch = SessionLaunch {
            conversation: None,
            context: AttemptContext {
                worker: None,
                agent: Arc::new(Agent::from(program)),
                unit: UnitKey::from("session"),
                attempt: 1,
                cwd: home.project(),
                limits: StreamLimits::default(),
                recorder: Arc::clone(&tape) as Arc<dyn Recorder>,
                observer: None,
                amendment: None,
                paid_usd: None,
                traceparent: None,
            },
            prompt: prompt.into(),
            args: ClaudeSessionArgs::default(),
            use_api_billing: true,
            mismatch: MismatchPolicy::Error,
            locks: SessionLocks::new(home.project().join(".locks")),
            time_limits: watch::channel(AttemptTimeouts::default()).1,
        };
        let env = env_of(home.env_offline());
        Self {
            home,
            tape,
            launch,
            env,
            patience: QUICK,
        }
    }

    /// A session with the scripted agent.
    fn scripted(script: &str, prompt: &str) -> Self {
        let exe = crate::support::program().into();
        let mut desk = Self::new(
            AgentProgram {
                exe,
                prefix: Vec::new(),
            },
            prompt,
        );
        let file = desk.home.path().join("script.toml");
        std::fs::write(&file, script).unwrap();
        let prefix = vec![
            "scripted-agent".into(),
            "--script".into(),
            file.into(),
            "--".into(),
        ];
        desk.launch.context.agent = Arc::new(Agent::from(AgentProgram {
            exe: crate::support::program().into(),
            prefix,
        }));
        desk
    }

    /// A session with the real CLI.
    fn real(api: &FakeApi, prompt: &str) -> Option<Self> {
        let mut desk = Self::new(
            AgentProgram {
                exe: claude_bin()?,
                prefix: Vec::new(),
            },
            prompt,
        );
        desk.launch.args.allowed_tools = vec!["Read".into()];
        desk.env = env_of(desk.home.env(api));
        desk.patience = ProcessTimeouts::default();
        Some(desk)
    }

    async fn run(&self) -> SessionEnd {
        let (_commands, listens) = mpsc::channel(1);
        self.run_with(listens).await
    }

    async fn run_with(&self, commands: mpsc::Receiver<AttemptCommand>) -> SessionEnd {
        let running = run_session_with_env(
            self.env.clone(),
            self.patience,
            self.launch.clone(),
            commands,
            oneshot::channel().0,
        );
        let end = tokio::time::timeout(LIMIT, running).await;
        end.unwrap_or_else(|_| panic!("no end: {:#?}", self.tape.entries.lock().unwrap()))
    }

    fn is_free(&self, session: &str) -> bool {
        matches!(
            self.launch.locks.try_lock(session).unwrap(),
            TryLockOutcome::Acquired(_)
        )
    }
}

fn env_of(env: Vec<(String, String)>) -> Vec<(OsString, OsString)> {
    env.into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

fn outcome(end: &SessionEnd) -> (AttemptOutcome, VerdictCause) {
    let verdict = verdict(end);
    (verdict.outcome, verdict.cause)
}

fn verdict(end: &SessionEnd) -> Verdict {
    end.verdict(&UnitKey::from("session"))
}

const HELLO: &str = "[[part]]\nsteps = [{ call = { tool = \"Bash\" } }, { say = \"hello\" }]\n";

#[tokio::test]
async fn session_is_recorded_and_resumable() {
    let desk = SessionFixture::scripted(HELLO, "--print hello");
    let end = desk.run().await;
    assert_eq!(
        outcome(&end),
        (AttemptOutcome::Succeeded, VerdictCause::Completed),
        "{end:?}"
    );
    let session = end.session.expect("an id");
    assert_eq!(
        resume_line(&session),
        format!("`claude --resume {session}`")
    );
    assert!(desk.tape.has('o', "\"result\":\"hello\"") && desk.is_free(&session));
    let argv = desk.tape.argv();
    let mode = ["--permission-mode", "default"];
    let expected = [
        &["-p", "--output-format", "stream-json", "--verbose"][..],
        &mode,
        &["--", "--print hello"],
    ]
    .concat();
    assert_eq!(argv[5..], expected);
}

#[tokio::test]
async fn session_without_a_program_reports_it_as_missing() {
    let program = AgentProgram {
        exe: missing("claude").into(),
        prefix: Vec::new(),
    };
    let end = SessionFixture::new(program, "go").run().await;
    assert_eq!(
        outcome(&end),
        (AttemptOutcome::Failed, VerdictCause::ProgramMissing),
        "{end:?}"
    );
    let verdict = verdict(&end);
    assert!(
        verdict
            .remedy
            .is_some_and(|remedy| remedy.starts_with("wait for the end of a Claude Code update"))
    );
}

#[tokio::test]
async fn session_that_outlives_its_stdout_is_terminated() {
    let script = "exec >&- 2>&-; while :; do sleep 0.05; done";
    let program = AgentProgram {
        exe: "/bin/sh".into(),
        prefix: vec!["-c".into(), script.into()],
    };
    let end = SessionFixture::new(program, "go").run().await;
    assert!(end.facts.process.terminated_by_us, "{end:?}");
    let reason = verdict(&end).reason;
    assert!(
        reason.contains("it closed its output, did not exit and was terminated"),
        "{reason}"
    );
}

#[tokio::test]
async fn session_with_a_line_beyond_the_limit_is_ended() {
    let script = "head -c 1000000 /dev/zero | tr '\\0' x; while :; do sleep 0.05; done";
    let program = AgentProgram {
        exe: "/bin/sh".into(),
        prefix: vec!["-c".into(), script.into()],
    };
    let mut desk = SessionFixture::new(program, "go");
    desk.launch.context.limits.line = 256 * 1024;
    let end = desk.run().await;
    assert_eq!(
        outcome(&end),
        (AttemptOutcome::Failed, VerdictCause::OversizedLine),
        "{end:?}"
    );
}

/// A shell instead of Claude Code.
fn shell(script: &str) -> AgentProgram {
    AgentProgram {
        exe: "/bin/sh".into(),
        prefix: vec!["-c".into(), script.into()],
    }
}

#[tokio::test]
async fn silent_session_is_ended() {
    let mut desk = SessionFixture::new(shell("sleep 600 & wait"), "go");
    desk.patience.startup = Duration::from_millis(300);
    let end = desk.run().await;
    assert_eq!(
        end.facts.process.start_error.as_deref(),
        Some("claude did not begin to work within 0 s"),
        "{end:?}"
    );
    assert_eq!(outcome(&end).0, AttemptOutcome::Failed);
}

#[tokio::test]
async fn session_that_has_begun_may_be_silent_for_longer() {
    let init = r#"{"type":"system","subtype":"init","session_id":"s1"}"#;
    let done = r#"{"type":"result","subtype":"success","is_error":false,"result":"done","session_id":"s1"}"#;
    let mut desk = SessionFixture::new(
        shell(&format!("echo '{init}'; sleep 2.2; echo '{done}'")),
        "go",
    );
    desk.patience.startup = Duration::from_secs(2);
    let end = desk.run().await;
    assert_eq!(
        outcome(&end),
        (AttemptOutcome::Succeeded, VerdictCause::Completed),
        "{end:?}"
    );
}

#[tokio::test]
async fn session_in_a_narrower_permission_mode_is_warned_about() {
    let init = r#"{"type":"system","subtype":"init","session_id":"s1","permissionMode":"plan"}"#;
    let done = r#"{"type":"result","subtype":"success","is_error":false,"result":"done","session_id":"s1"}"#;
    let desk = SessionFixture::new(shell(&format!("echo '{init}'; echo '{done}'")), "go");
    let end = desk.run().await;
    assert_eq!(
        outcome(&end),
        (AttemptOutcome::Succeeded, VerdictCause::Completed),
        "{end:?}"
    );
    assert!(
        desk.tape
            .has('n', "permission mode `plan` instead of `default`")
    );
}

#[tokio::test]
async fn session_in_a_wider_permission_mode_is_ended() {
    let init = r#"{"type":"system","subtype":"init","session_id":"s1","permissionMode":"bypassPermissions"}"#;
    let mut desk = SessionFixture::new(shell(&format!("echo '{init}'; sleep 600 & wait")), "go");
    let end = desk.run().await;
    assert_eq!(
        (outcome(&end), end.facts.process.signal),
        ((AttemptOutcome::Failed, VerdictCause::Isolation), Some(15)),
        "{end:?}"
    );
    assert!(!end.tools_ran);
    desk = SessionFixture::new(shell(&format!("echo '{init}'; exit 3")), "go");
    desk.launch.args.bypass_permissions = true;
    assert_eq!(
        outcome(&desk.run().await).1,
        VerdictCause::Crashed,
        "the mode was requested"
    );
}

#[tokio::test]
async fn kill_lets_the_agent_end_its_children() {
    let init = r#"{"type":"system","subtype":"init","session_id":"s1"}"#;
    let desk = SessionFixture::new(
        shell(&format!(
            "trap 'echo clean >&2; exit 143' TERM; echo '{init}'; sleep 600 & wait"
        )),
        "go",
    );
    let (commands, listens) = mpsc::channel(1);
    let kill = async {
        desk.tape.wait_for('o', "\"subtype\":\"init\"").await;
        commands.send(AttemptCommand::Kill).await.unwrap();
    };
    let (end, ()) = tokio::join!(desk.run_with(listens), kill);
    assert_eq!(
        (end.facts.process.exit_code, end.facts.process.signal),
        (Some(143), None),
        "{end:?}"
    );
    assert!(desk.tape.has('e', "clean"));
}

#[tokio::test]
async fn resume_line_in_prompt_selects_session_and_is_removed() {
    let desk = SessionFixture::scripted(HELLO, "continue\n`claude --resume abc`");
    let end = desk.run().await;
    assert_eq!(end.session.as_deref(), Some("abc"));
    let argv = desk.tape.argv();
    let expected = [
        "--resume",
        "abc",
        "--permission-mode",
        "default",
        "--",
        "continue",
    ];
    assert_eq!(argv[argv.len() - 6..], expected);

    let mut forked = SessionFixture::scripted(HELLO, "claude -r abc");
    forked.launch.args.fork = true;
    let end = forked.run().await;
    assert_eq!(end.forked_from.as_deref(), Some("abc"));
    assert_ne!(end.session.as_deref(), Some("abc"));
    assert_eq!(
        forked.tape.argv().last().map(String::as_str),
        Some("continue")
    );
}

#[tokio::test]
async fn session_with_other_id_than_resumed_ends() {
    let script =
        "[[part]]\nsession_id = \"other\"\nsteps = [{ ignore = [\"sigterm\"] }, \"hang\"]\n";
    let mut desk = SessionFixture::scripted(script, "hi");
    desk.launch.args.resume = Some("abc".into());
    let end = desk.run().await;
    let text = "claude emitted session id other but expected abc";
    assert_eq!(
        (end.mismatch.as_deref(), end.session.as_deref()),
        (Some(text), Some("abc"))
    );
    assert_eq!(verdict(&end).reason, text);
    assert_eq!(outcome(&end).0, AttemptOutcome::Failed);
    assert!(desk.tape.has('n', text));
    assert_eq!(
        end.facts.process.signal,
        Some(9),
        "it ignored the milder signal"
    );

    let mut desk = SessionFixture::scripted(&script.replace("\"hang\"", "{ say = \"x\" }"), "hi");
    desk.launch.args.resume = Some("abc".into());
    desk.launch.mismatch = MismatchPolicy::Warn;
    let end = desk.run().await;
    assert_eq!(
        (end.mismatch.as_deref(), end.session.as_deref()),
        (None, Some("other"))
    );
    assert_eq!(outcome(&end).0, AttemptOutcome::Succeeded);
    assert!(desk.tape.has('n', text));
}

#[tokio::test]
async fn large_prompts_arrive_whole() {
    let large = format!("{}the last words", "x".repeat(3_000_000));
    let script = "[[part]]\nprompt = \"the last words\"\nsteps = [{ say = \"all of it\" }]\n";
    let desk = SessionFixture::scripted(script, &large);
    let end = desk.run().await;
    assert_eq!(
        outcome(&end).0,
        AttemptOutcome::Succeeded,
        "{:?}",
        end.facts
    );
    assert!(desk.tape.argv().iter().any(|word| word == "--input-format"));
}

#[tokio::test]
async fn invalid_prompt_is_refused_before_start() {
    for (prompt, text) in [
        ("/compact", "put a space before the slash"),
        (" ", "the prompt is empty"),
    ] {
        let end = SessionFixture::scripted(HELLO, prompt).run().await;
        assert!(
            end.facts
                .process
                .start_error
                .as_deref()
                .is_some_and(|why| why.contains(text)),
            "{end:?}"
        );
    }
    let mut desk = SessionFixture::scripted(HELLO, "hi");
    desk.launch.context.agent = Arc::new(Agent::from(AgentProgram {
        exe: missing("claude").into(),
        prefix: Vec::new(),
    }));
    let expected = format!("there is no program {}", missing("claude"));
    assert_eq!(desk.run().await.facts.process.start_error, Some(expected));
    let mut desk = SessionFixture::scripted(HELLO, "hi");
    desk.launch.context.cwd = missing("place").into();
    assert!(
        desk.run()
            .await
            .facts
            .process
            .start_error
            .is_some_and(|why| why.contains(&missing("place")))
    );
}

#[tokio::test]
async fn session_in_use_is_waited_for() {
    let mut desk = SessionFixture::scripted(HELLO, "hi");
    desk.launch.args.resume = Some("abc".into());
    let TryLockOutcome::Acquired(held) = desk.launch.locks.try_lock("abc").unwrap() else {
        panic!("it is free")
    };
    let tape = Arc::clone(&desk.tape);
    let release = async move {
        tape.wait_for('n', "session abc is in use by process").await;
        assert!(
            !tape.has('n', "attempt_started"),
            "nothing starts while another process has it"
        );
        drop(held);
    };
    let (end, ()) = tokio::join!(desk.run(), release);
    assert_eq!(outcome(&end).0, AttemptOutcome::Succeeded);
}

#[tokio::test]
async fn new_session_is_locked_once_it_has_an_id() {
    let script = "[[part]]\nsession_id = \"mine\"\nsteps = [\"hang\"]\n";
    let desk = SessionFixture::scripted(script, "hi");
    let (commands, listens) = mpsc::channel(1);
    let look = async {
        desk.tape.wait_for('o', "\"subtype\":\"init\"").await;
        let deadline = tokio::time::Instant::now() + LIMIT;
        while desk.is_free("mine") && tokio::time::Instant::now() < deadline {
            crate::support::pause_task_before_check().await;
        }
        let locked = !desk.is_free("mine");
        commands.send(AttemptCommand::Interrupt).await.unwrap();
        locked
    };
    let (end, locked) = tokio::join!(desk.run_with(listens), look);
    assert!(locked && desk.is_free("mine"));
    assert_eq!(
        outcome(&end),
        (AttemptOutcome::Stopped, VerdictCause::Cancelled)
    );
    assert!(
        desk.tape.has('o', "aborted_streaming"),
        "it could still report its progress"
    );
}

#[tokio::test]
async fn running_session_is_locked_instead_of_the_requested_one() {
    let mut desk = SessionFixture::scripted(
        "[[part]]\nsession_id = \"other\"\nsteps = [\"hang\"]\n",
        "hi",
    );
    desk.launch.args.resume = Some("abc".into());
    desk.launch.mismatch = MismatchPolicy::Warn;
    let (commands, listens) = mpsc::channel(1);
    let look = async {
        let deadline = tokio::time::Instant::now() + LIMIT;
        while (desk.is_free("other") || !desk.is_free("abc"))
            && tokio::time::Instant::now() < deadline
        {
            crate::support::pause_task_before_check().await;
        }
        let locked = !desk.is_free("other") && desk.is_free("abc");
        commands.send(AttemptCommand::Interrupt).await.unwrap();
        locked
    };
    let (end, locked) = tokio::join!(desk.run_with(listens), look);
    assert!(locked && desk.is_free("other"));
    assert_eq!(end.session.as_deref(), Some("other"));
}

#[tokio::test]
async fn unlockable_session_is_reported_once() {
    let mut desk = SessionFixture::scripted(
        "[[part]]\nsteps = [{ ignore = [\"sigterm\", \"sigint\"] }, \"hang\"]\n",
        "hi",
    );
    let file = desk.home.path().join("file");
    std::fs::write(&file, "").unwrap();
    desk.launch.locks = SessionLocks::new(&file);
    let end = desk.run().await;
    assert_eq!(
        end.facts.process.signal,
        Some(9),
        "it is ended, by SIGKILL if necessary"
    );
    assert!(
        end.facts
            .process
            .start_error
            .is_some_and(|why| why.starts_with("cannot lock a session: "))
    );
    let entries = desk.tape.entries.lock().unwrap();
    assert_eq!(
        entries
            .iter()
            .filter(|(_, text)| text.contains("cannot lock a session"))
            .count(),
        1,
        "{entries:?}"
    );
}

#[tokio::test]
async fn interrupt_after_result_does_not_mark_stopped() {
    let lingers = "[[part]]\nsteps = [{ result = { text = \"done\" } }, { ignore = [\"sigint\"] }, \"hang\"]\n";
    let mut desk = SessionFixture::scripted(lingers, "hi");
    desk.patience.exit = LIMIT;
    let (commands, listens) = mpsc::channel(1);
    let leave = async {
        desk.tape.wait_for('o', "\"result\":\"done\"").await;
        commands.send(AttemptCommand::Interrupt).await.unwrap();
    };
    let (end, ()) = tokio::join!(desk.run_with(listens), leave);
    assert_eq!(
        outcome(&end),
        (AttemptOutcome::Succeeded, VerdictCause::Completed)
    );
    assert_eq!(end.facts.interruption.stopped, None);
}

#[tokio::test]
async fn session_that_closes_stdout_and_lingers_is_ended() {
    let mut desk = SessionFixture::scripted(HELLO, "hi");
    let program = AgentProgram {
        exe: "/bin/sh".into(),
        prefix: vec!["-c".into(), "exec >&-; sleep 600".into()],
    };
    desk.launch.context.agent = Arc::new(Agent::from(program));
    let end = desk.run().await;
    assert_eq!(
        (end.facts.process.signal, outcome(&end)),
        (Some(15), (AttemptOutcome::Failed, VerdictCause::Crashed))
    );
}

#[tokio::test]
async fn lingering_and_stubborn_sessions_are_ended() {
    let lingers = "[[part]]\nsteps = [{ result = { text = \"done\" } }, { ignore = [\"sigterm\", \"sigint\"] }, \"hang\"]\n";
    let end = SessionFixture::scripted(lingers, "hi").run().await;
    assert_eq!(
        outcome(&end),
        (AttemptOutcome::Succeeded, VerdictCause::Completed),
        "the result counts"
    );
    assert_eq!(end.facts.process.signal, Some(9));

    let resists = "[[part]]\nsteps = [{ ignore = [\"sigterm\", \"sigint\"] }, { say = \"ready\" }, \"hang\"]\n";
    let resists = SessionFixture::scripted(resists, "hi");
    let (commands, listens) = mpsc::channel(1);
    let stop = async {
        resists.tape.wait_for('o', "\"text\":\"ready\"").await;
        commands.send(AttemptCommand::Interrupt).await.unwrap();
    };
    let (end, ()) = tokio::join!(resists.run_with(listens), stop);
    assert_eq!(
        (end.facts.process.signal, outcome(&end).0),
        (Some(9), AttemptOutcome::Stopped)
    );
}

#[tokio::test]
async fn crash_and_full_disk_have_separate_verdicts() {
    let script = "[[part]]\nsteps = [{ stderr = \"out of memory\" }, { line = \"half a li\" }, { exit = 7 }]\n";
    let desk = SessionFixture::scripted(script, "hi");
    let end = desk.run().await;
    assert_eq!(
        outcome(&end),
        (AttemptOutcome::Failed, VerdictCause::Crashed)
    );
    assert_eq!(
        (
            end.facts.process.exit_code,
            end.facts.process.stderr_tail.as_slice()
        ),
        (Some(7), ["out of memory".to_owned()].as_slice())
    );
    assert!(desk.tape.has('r', "half a li"));

    let mut full = SessionFixture::scripted("[[part]]\nsteps = [\"hang\"]\n", "hi");
    full.launch.context.recorder = Arc::new(SessionMemoryRecorder {
        full_after: Some(1),
        ..SessionMemoryRecorder::default()
    });
    let end = full.run().await;
    assert!(
        end.facts
            .interruption
            .record_error
            .is_some_and(|why| why.contains("no storage space")),
        "it does not continue without a tape"
    );
}

#[tokio::test]
async fn claude_resumes_its_own_session() {
    let api = FakeApi::start([
        ApiRoute::on("second question", [ApiTurn::answer("second answer")]),
        ApiRoute::any([
            ApiTurn::blocks([tool(
                "Read",
                serde_json::json!({"file_path": missing("file")}),
            )]),
            ApiTurn::answer("first answer"),
        ]),
    ]);
    let Some(mut desk) = SessionFixture::real(&api, "--first question") else {
        return;
    };
    let end = desk.run().await;
    assert_eq!(
        outcome(&end),
        (AttemptOutcome::Succeeded, VerdictCause::Completed),
        "{:?}",
        end.facts
    );
    let session = end.session.expect("an id");

    desk.launch.prompt = format!("second question\n{}", resume_line(&session));
    let end = desk.run().await;
    assert_eq!(
        (end.session.as_deref(), end.mismatch.as_deref()),
        (Some(session.as_str()), None)
    );
    let last = api.requests().pop().expect("a request");
    for part in ["--first question", "first answer", "second question"] {
        assert!(last.body.contains(part), "the history has `{part}`");
    }
    assert!(
        !last.body.contains("claude --resume"),
        "the resume line is not for the model"
    );

    desk.launch.prompt = format!(
        "third\n{}",
        resume_line("00000000-0000-4000-8000-000000000000")
    );
    let end = desk.run().await;
    assert_eq!(
        outcome(&end).0,
        AttemptOutcome::Failed,
        "there is no such session"
    );
}

#[tokio::test]
async fn claude_reads_large_and_slash_prompts_from_stdin() {
    let api = FakeApi::start([ApiRoute::any([ApiTurn::answer("read it")])]);
    let large = format!("{}the last words", "word ".repeat(40_000));
    let Some(mut desk) = SessionFixture::real(&api, &large) else {
        return;
    };
    assert_eq!(outcome(&desk.run().await).0, AttemptOutcome::Succeeded);
    desk.launch.prompt = " /compact".into();
    assert_eq!(outcome(&desk.run().await).0, AttemptOutcome::Succeeded);
    let requests = api.requests();
    assert!(requests[0].body.contains("the last words") && requests[1].body.contains("/compact"));
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_is_interrupted_while_its_stream_stalls() {
    let stalls = ApiTurn::blocks([text(&"word ".repeat(30))])
        .slowly(Duration::from_millis(5))
        .fault(ApiFault::StallMidway);
    let api = FakeApi::start([ApiRoute::any([stalls])]);
    let Some(desk) = SessionFixture::real(&api, "hi") else {
        return;
    };
    let (commands, listens) = mpsc::channel(1);
    let api = &api;
    let stop = async {
        desk.tape.wait_for('o', "\"subtype\":\"init\"").await;
        tokio::task::block_in_place(|| api.wait_for_requests(1, LIMIT));
        commands.send(AttemptCommand::Interrupt).await.unwrap();
    };
    let (end, ()) = tokio::join!(desk.run_with(listens), stop);
    assert_eq!(
        outcome(&end),
        (AttemptOutcome::Stopped, VerdictCause::Cancelled)
    );
    assert_eq!(end.facts.process.exit_code, Some(0), "{:?}", end.facts);
}

async fn asked(home: &TestHome, env: Vec<(String, String)>) -> Option<ClaudeInvocation> {
    let program = AgentProgram {
        exe: claude_bin()?,
        prefix: Vec::new(),
    };
    Some(ClaudeInvocation {
        program,
        cwd: home.project(),
        env: env_of(env),
    })
}

#[tokio::test]
async fn claude_login_is_probed() {
    let home = TestHome::new();
    let Some(with_key) = asked(&home, home.env_offline()).await else {
        return;
    };
    let report = check_availability(&with_key).await;
    assert!(
        matches!(report.installation, Installation::Version(_)),
        "{report:?}"
    );
    assert!(
        matches!(&report.login, LoginStatus::LoggedIn { method, .. } if method == "api_key"),
        "{report:?}"
    );
    let mut without = with_key;
    without.env.retain(|(name, _)| name != "ANTHROPIC_API_KEY");
    assert_eq!(
        check_availability(&without).await.login,
        LoginStatus::LoggedOut
    );
}

#[tokio::test]
async fn probe_distinguishes_bad_key_from_limit() {
    let home = TestHome::new();
    for (turn, expected) in [
        (ApiTurn::answer("ok"), None),
        (
            ApiTurn::unauthorized(),
            Some((
                VerdictCause::Auth,
                "Claude Code authentication is not usable: ",
            )),
        ),
        (
            ApiTurn::error(
                400,
                "invalid_request_error",
                "Your credit balance is too low to access the API.",
            ),
            Some((
                VerdictCause::Credit,
                "Claude Code is logged in, but its account has no credit: ",
            )),
        ),
        (
            ApiTurn::rate_limited(300),
            Some((
                VerdictCause::RateLimited,
                "Claude Code is logged in, but the service",
            )),
        ),
        (
            ApiTurn::error(404, "not_found_error", "model: nosuch"),
            Some((
                VerdictCause::Model,
                "Claude Code is logged in, but may not use this model: ",
            )),
        ),
    ] {
        let api = FakeApi::start([ApiRoute::any([turn])]);
        let Some(asked) = asked(&home, home.env(&api)).await else {
            return;
        };
        match (probe(&asked, None).await, expected) {
            (ProbeResult::Usable, None) => assert!(api.requests()[0].tool_names().is_empty()),
            (ProbeResult::Unusable { cause, problem }, Some((expected, start))) => {
                assert_eq!(cause, expected);
                assert!(problem.to_string().starts_with(start), "{problem}");
            }
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }
}

#[test]
fn scripted_agent_answers_the_probes_of_doctor() {
    let ask = |words: &[&str]| {
        let output = std::process::Command::new(Path::new(crate::support::program()))
            .args(["scripted-agent", "--script", "none"])
            .args(words)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(ask(&["--version"]), "0.0.0 (scripted)\n");
    assert!(ask(&["auth", "status"]).contains("\"loggedIn\":true"));
}
