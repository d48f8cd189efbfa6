//! A unit's attempt with real processes: the two-way protocol with the real CLI and a scripted API, and the handling of
//! programs that violate it.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Output,
    sync::{Arc, Mutex},
    time::Duration,
};

use ingestdeck_agent::{
    Agent, AgentProgram,
    attempt::{
        ApprovalDecision, ApprovalGate, ApprovalRequest, AttemptCommand, AttemptContext,
        time_limits::AttemptTimeouts,
    },
    claude::version::ClaudeVersion,
    line_reader::{LineReader, MAX_LINE_BYTES},
    mcp,
    process::{self, Child, ProcessTimeouts, SpawnRequest, StreamLimits},
    unit::{UnitLaunch, run_unit_with_env},
};
use ingestdeck_core::{
    config::Config,
    run::{
        RunOptions,
        entry_source::{NewEntry, RecordError, Recorder},
    },
    tape::{
        EntryBody, Millis, Note, UnitKey,
        note::{
            Amendment, AttemptOutcome, AttemptStarted, IsolationChecked, StopMode, StopReason,
            VerdictCause,
        },
    },
    units::{
        ToolCall, ToolReply, ToolSpec, Toolset,
        failure_tally::FailureRule,
        verdict::{AttemptFacts, IsolationStatus, judge_attempt, stop_reason},
    },
};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::support::{
    api::{ApiRoute, ApiTurn, FakeApi, text, tool},
    cli::{BILLS_WHOLE_SESSION, TestHome, claude_bin, claude_version},
    hostile, missing,
};

const LIMIT: Duration = Duration::from_secs(60);

/// A tape in memory that notifies at each entry.
#[derive(Debug, Default)]
struct MemoryRecorder {
    entries: Mutex<Vec<(char, Vec<u8>)>>,
    bell: Notify,
    /// Number of entries after which every write fails.
    full_after: Option<usize>,
}

impl Recorder for MemoryRecorder {
    fn record(&self, items: &[NewEntry<'_>]) -> Result<(), RecordError> {
        let mut entries = self.entries.lock().unwrap();
        for item in items {
            assert_eq!(item.attempt, Some((&UnitKey::from("docs-a"), 1)));
            if self.full_after.is_some_and(|count| entries.len() >= count) {
                return Err(RecordError::new(
                    "tape.jsonl",
                    &std::io::ErrorKind::StorageFull.into(),
                ));
            }
            entries.push(match &item.body {
                EntryBody::Stdout(bytes) => ('o', bytes.to_vec()),
                EntryBody::StdoutRaw(bytes) => ('r', bytes.to_vec()),
                EntryBody::Stdin(bytes) => ('i', bytes.to_vec()),
                EntryBody::Stderr(text) => ('e', text.as_bytes().to_vec()),
                EntryBody::Note(bytes) => ('n', bytes.to_vec()),
            });
        }
        drop(entries);
        self.bell.notify_one();
        Ok(())
    }
}

impl MemoryRecorder {
    fn of(&self, kind: char) -> Vec<Vec<u8>> {
        let entries = self.entries.lock().unwrap();
        entries
            .iter()
            .filter(|(other, _)| *other == kind)
            .map(|(_, bytes)| bytes.clone())
            .collect()
    }

    fn notes(&self) -> Vec<Note> {
        self.of('n').iter().map(|json| Note::parse(json)).collect()
    }

    fn started(&self) -> AttemptStarted {
        let first = self.notes().into_iter().next();
        let started = first.and_then(|note| {
            if let Note::AttemptStarted(started) = note {
                Some(*started)
            } else {
                None
            }
        });
        started.expect("the first note describes the start of the attempt")
    }

    fn checks(&self) -> Vec<IsolationChecked> {
        let notes = self.notes().into_iter();
        notes
            .filter_map(|note| {
                if let Note::IsolationChecked(check) = note {
                    Some(check)
                } else {
                    None
                }
            })
            .collect()
    }

    /// Waits until an entry that was read or written contains `needle`.
    async fn wait_for(&self, needle: &str) {
        let seen = async {
            loop {
                let rung = self.bell.notified();
                let holds = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(needle);
                if self
                    .entries
                    .lock()
                    .unwrap()
                    .iter()
                    .any(|(_, bytes)| holds(bytes))
                {
                    return;
                }
                rung.await;
            }
        };
        assert!(
            tokio::time::timeout(LIMIT, seen).await.is_ok(),
            "never saw {needle}"
        );
    }
}

/// A wiki with three tools, and a list of their calls.
#[derive(Debug, Default)]
struct FakeWiki {
    calls: Mutex<Vec<ToolCall>>,
}

impl Toolset for FakeWiki {
    fn specs(&self) -> Vec<ToolSpec> {
        let spec = |name, read_only| {
            let Value::Object(input_schema) = json!({"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]})
            else {
                unreachable!()
            };
            ToolSpec {
                name,
                description: format!("{name} of the wiki"),
                input_schema: input_schema.into(),
                read_only,
            }
        };
        vec![
            spec("wiki_read", true),
            spec("wiki_write", false),
            spec("wiki_remove", false),
        ]
    }

    fn call(&self, call: &ToolCall) -> ToolReply {
        self.calls.lock().unwrap().push(call.clone());
        match (call.name.as_str(), call.arguments["key"].as_str()) {
            (_, None) => ToolReply::error("key is required and must be a string"),
            ("wiki_remove", Some(key)) => ToolReply::error(format!("there is no page {key}")),
            ("wiki_read", Some(key)) => ToolReply {
                markdown: format!("# {key}"),
                structured: Some(json!({"secret": "only for the transcript"})),
                ..ToolReply::default()
            },
            (_, Some(key)) => ToolReply::text(format!("wrote {key}")),
        }
    }
}

impl FakeWiki {
    fn called(&self) -> Vec<(String, Value)> {
        self.calls
            .lock()
            .unwrap()
            .iter()
            .map(|call| (call.name.clone(), call.arguments["key"].clone()))
            .collect()
    }
}

#[derive(Debug)]
struct AllowAllGate;

impl ApprovalGate for AllowAllGate {
    fn decide(
        &self,
        _call: ApprovalRequest,
    ) -> futures_util::future::BoxFuture<'_, ApprovalDecision> {
        Box::pin(std::future::ready(ApprovalDecision::Pass))
    }
}

struct AttemptFixture {
    home: TestHome,
    tape: Arc<MemoryRecorder>,
    wiki: Arc<FakeWiki>,
    gate: Arc<dyn ApprovalGate>,
    patience: ProcessTimeouts,
}

impl AttemptFixture {
    fn new() -> Self {
        Self {
            home: TestHome::new(),
            tape: Arc::default(),
            wiki: Arc::default(),
            gate: Arc::new(AllowAllGate),
            patience: ProcessTimeouts::default(),
        }
    }

    fn launch(&self, exe: impl Into<PathBuf>, prefix: &[&str]) -> UnitLaunch {
        let prefix = prefix.iter().map(OsString::from).collect();
        let variables = [
            "ANTHROPIC_BASE_URL",
            "ANTHROPIC_API_KEY",
            "CLAUDE_CODE_MAX_RETRIES",
        ];
        let mut options = RunOptions::from_config(&Config::default(), 10);
        options.pass_env = variables.map(String::from).into();
        options.ingest.partial_messages.value = false;
        UnitLaunch {
            context: AttemptContext {
                worker: None,
                agent: Arc::new(Agent::from(AgentProgram {
                    exe: exe.into(),
                    prefix,
                })),
                unit: "docs-a".into(),
                attempt: 1,
                cwd: self.home.project(),
                limits: StreamLimits::default(),
                recorder: Arc::clone(&self.tape) as Arc<dyn Recorder>,
                observer: None,
                amendment: None,
                paid_usd: None,
                traceparent: None,
            },
            options: Arc::new(options),
            timeouts: watch::channel(AttemptTimeouts::default()).1,
            system_prompt: "You keep the wiki.".into(),
            prompt: "## WorkUnit: docs-a\nGo.".into(),
            new_session: uuid::Uuid::new_v4().to_string(),
            model: Some("sonnet".into()),
            step_budget: 10,
            tools: Arc::clone(&self.wiki) as Arc<dyn Toolset>,
            gate: Arc::clone(&self.gate),
            content: None,
        }
    }

    /// An attempt with the real CLI.
    fn claude(&self) -> UnitLaunch {
        self.launch(
            claude_bin().expect("INGESTDECK_TEST_CLAUDE names the CLI"),
            &[],
        )
    }

    fn env(&self, api: Option<&FakeApi>) -> Vec<(OsString, OsString)> {
        let vars = api.map_or_else(|| self.home.env_offline(), |api| self.home.env(api));
        vars.into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    /// Runs to the end, undisturbed. The second value is true if start-up was completed.
    async fn run(&self, launch: UnitLaunch, api: Option<&FakeApi>) -> (AttemptFacts, bool) {
        let (_commands, orders) = mpsc::channel(1);
        let (ready, started) = oneshot::channel();
        let run = run_unit_with_env(self.env(api), self.patience, launch, orders, ready);
        let facts = tokio::time::timeout(LIMIT, run)
            .await
            .expect("the attempt ends");
        (facts, started.await.is_ok())
    }

    /// Runs until the tape contains `needle`, then sends `command`.
    async fn stopped_at(
        &self,
        needle: &str,
        command: AttemptCommand,
        launch: UnitLaunch,
        api: Option<&FakeApi>,
    ) -> AttemptFacts {
        let (commands, orders) = mpsc::channel(1);
        let (ready, _started) = oneshot::channel();
        let run = tokio::spawn(run_unit_with_env(
            self.env(api),
            self.patience,
            launch,
            orders,
            ready,
        ));
        self.tape.wait_for(needle).await;
        commands.send(command).await.unwrap();
        tokio::time::timeout(LIMIT, run)
            .await
            .expect("the attempt ends")
            .unwrap()
    }
}

fn gone(pid: Option<u32>) -> bool {
    let stat = Path::new("/proc")
        .join(pid.unwrap().to_string())
        .join("stat");
    !std::fs::read_to_string(stat).is_ok_and(|stat| !stat.contains(") Z "))
}

fn failures(facts: &AttemptFacts) -> Vec<(&str, &str)> {
    facts
        .work
        .tally
        .calls()
        .iter()
        .map(|call| (call.tool.as_str(), call.message.as_str()))
        .collect()
}

fn reads_and_writes() -> FakeApi {
    let read = tool("mcp__ktx__wiki_read", json!({"key": "arr"}));
    let write = tool("mcp__ktx__wiki_write", json!({"key": "arr"}));
    FakeApi::start([ApiRoute::any([
        ApiTurn::blocks([text("I read first."), read]),
        ApiTurn::blocks([write]),
        ApiTurn::answer("All written."),
    ])])
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
async fn unit_that_reads_and_writes_succeeds() {
    let (scene, api) = (AttemptFixture::new(), reads_and_writes());
    let (facts, ready) = scene.run(scene.claude(), Some(&api)).await;
    assert!(ready);
    assert_eq!(
        scene.wiki.called(),
        [
            ("wiki_read".into(), json!("arr")),
            ("wiki_write".into(), json!("arr"))
        ]
    );
    let ids: Vec<_> = scene
        .wiki
        .calls
        .lock()
        .unwrap()
        .iter()
        .map(|call| call.tool_use_id.is_some())
        .collect();
    assert_eq!(ids, [true, true], "calls carry their id");
    let result = facts.reported.result.as_ref().unwrap();
    assert_eq!(result.text.as_deref(), Some("All written."));
    assert_eq!(stop_reason(result), StopReason::Natural);
    assert_eq!(
        (facts.process.exit_code, facts.process.signal),
        (Some(0), None)
    );
    assert_eq!(failures(&facts), []);
    assert_eq!(
        scene.tape.checks(),
        [IsolationChecked {
            breach: None,
            settings_sources: Some(vec![])
        }]
    );

    let started = scene.tape.started();
    assert!(gone(started.pid));
    assert_eq!(started.tools.len(), 3);
    assert!(
        started
            .env_set
            .contains(&"CLAUDE_CODE_DISABLE_CLAUDE_MDS".to_owned())
    );
    assert!(
        started
            .env_passed
            .contains(&"ANTHROPIC_BASE_URL".to_owned())
    );
    let asked = api.requests();
    assert_eq!(
        asked[0].tool_names(),
        [
            "mcp__ktx__wiki_read",
            "mcp__ktx__wiki_remove",
            "mcp__ktx__wiki_write"
        ]
    );
    assert!(asked[0].body.contains("You keep the wiki."));
    assert!(
        !asked
            .iter()
            .any(|request| request.body.contains("only for the transcript"))
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
async fn failing_denied_unknown_and_malformed_calls_count_once_each() {
    let scene = AttemptFixture::new();
    let api = FakeApi::start([ApiRoute::any([
        ApiTurn::blocks([tool("mcp__ktx__wiki_remove", json!({"key": "gone"}))]),
        ApiTurn::blocks([tool("Bash", json!({"command": "touch pwned"}))]),
        ApiTurn::blocks([tool("mcp__ktx__wiki_read", json!({"page": 7}))]),
        ApiTurn::blocks([tool("mcp__ktx__wiki_write", json!("{\"key\": "))]),
        ApiTurn::answer("I gave up."),
    ])]);
    let (facts, _) = scene.run(scene.claude(), Some(&api)).await;
    let failures = failures(&facts);
    let tools: Vec<&str> = failures.iter().map(|(tool, _)| *tool).collect();
    assert_eq!(
        tools,
        ["wiki_remove", "Bash", "wiki_read", "wiki_write"],
        "{failures:?}"
    );
    assert_eq!(failures[0].1, "there is no page gone");
    assert!(failures[1].1.contains("No such tool"), "{}", failures[1].1);
    assert_eq!(failures[2].1, "key is required and must be a string");
    assert!(!scene.home.project().join("pwned").exists());
    let noted = scene
        .tape
        .notes()
        .into_iter()
        .filter(|note| matches!(note, Note::ToolFailed { .. }))
        .count();
    // 2.1.160 passes arguments that are not JSON to the tool.
    let refused = if claude_version() < ClaudeVersion(2, 1, 200) {
        3
    } else {
        2
    };
    assert_eq!(noted, refused, "calls that the program's tools refused");
    assert_eq!(
        stop_reason(facts.reported.result.as_ref().unwrap()),
        StopReason::Natural
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
async fn turn_budget_ends_the_turn_and_the_process() {
    let scene = AttemptFixture::new();
    let api = FakeApi::start([ApiRoute::any([ApiTurn::blocks([tool(
        "mcp__ktx__wiki_read",
        json!({"key": "x"}),
    )])])]);
    let launch = UnitLaunch {
        step_budget: 2,
        ..scene.claude()
    };
    let (facts, _) = scene.run(launch, Some(&api)).await;
    assert_eq!(
        stop_reason(facts.reported.result.as_ref().unwrap()),
        StopReason::Budget
    );
    assert_eq!(scene.wiki.called().len(), 2);
    assert_eq!(
        (facts.process.exit_code, facts.process.signal),
        (Some(1), None)
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
async fn service_error_has_its_own_cause() {
    for (turn, class, status) in [
        (ApiTurn::unauthorized(), "authentication_failed", 401),
        (ApiTurn::rate_limited(300), "rate_limit", 429),
        (
            ApiTurn::error(500, "api_error", "Internal server error"),
            "server_error",
            500,
        ),
    ] {
        let scene = AttemptFixture::new();
        let api = FakeApi::start([ApiRoute::any([turn])]);
        let (facts, ready) = scene.run(scene.claude(), Some(&api)).await;
        assert!(ready);
        assert_eq!(facts.reported.error_class.as_deref(), Some(class));
        let names_status = claude_version() >= ClaudeVersion(2, 1, 300);
        assert!(
            facts.reported.api_status == Some(status)
                || !names_status && facts.reported.api_status.is_none(),
            "{facts:?}"
        );
        assert_eq!(
            stop_reason(facts.reported.result.as_ref().unwrap()),
            StopReason::Error,
            "{class}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
async fn interrupt_ends_the_turn_with_a_result() {
    let scene = AttemptFixture::new();
    let slow = ApiTurn::answer(&"word ".repeat(2_000)).slowly(Duration::from_millis(50));
    let api = FakeApi::start([ApiRoute::any([slow])]);
    let mut launch = scene.claude();
    Arc::make_mut(&mut launch.options)
        .ingest
        .partial_messages
        .value = true;
    let facts = scene
        .stopped_at("text_delta", AttemptCommand::Interrupt, launch, Some(&api))
        .await;
    assert_eq!(facts.interruption.stopped, Some(StopMode::Stop));
    let result = facts
        .reported
        .result
        .expect("an interrupted turn has a result");
    assert_eq!(result.terminal_reason.as_deref(), Some("aborted_streaming"));
    assert_eq!(facts.process.signal, None, "it ended without a signal");
    assert!(gone(scene.tape.started().pid));
}

/// With a turn budget of one, no request to the model follows the call, and a message would start another turn.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
async fn message_starts_no_further_turn() {
    for (budget, messages) in [(2, 1), (1, 0)] {
        let scene = AttemptFixture::new();
        let read = ApiTurn::blocks([tool("mcp__ktx__wiki_read", json!({"key": "x"}))]);
        let api = FakeApi::start([ApiRoute::any([
            read.delay(Duration::from_millis(500)),
            ApiTurn::answer("Done."),
        ])]);
        let launch = UnitLaunch {
            step_budget: budget,
            ..scene.claude()
        };
        let message = AttemptCommand::Message("Amounts are in euros.".into());
        let facts = scene
            .stopped_at("\"init\"", message, launch, Some(&api))
            .await;
        assert_eq!(facts.isolation, IsolationStatus::Verified, "{budget}");
        let asked = api.requests();
        assert_eq!(asked.len(), usize::try_from(budget).unwrap());
        assert_eq!(
            asked
                .iter()
                .filter(|request| request.body.contains("euros"))
                .count(),
            messages
        );
        assert_eq!(
            scene
                .tape
                .notes()
                .iter()
                .filter(|note| matches!(note, Note::MessageSent { .. }))
                .count(),
            messages
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
async fn killed_attempt_has_no_result() {
    let scene = AttemptFixture::new();
    let slow = ApiTurn::answer(&"word ".repeat(2_000)).slowly(Duration::from_millis(50));
    let api = FakeApi::start([ApiRoute::any([slow])]);
    let mut launch = scene.claude();
    Arc::make_mut(&mut launch.options)
        .ingest
        .partial_messages
        .value = true;
    let facts = scene
        .stopped_at("text_delta", AttemptCommand::Kill, launch, Some(&api))
        .await;
    assert_eq!(facts.interruption.stopped, Some(StopMode::Kill));
    assert_eq!(
        facts.process.exit_code,
        Some(143),
        "it could end its children"
    );
    let reason = facts
        .reported
        .result
        .and_then(|result| result.terminal_reason);
    assert!(
        reason
            .as_deref()
            .is_none_or(|reason| reason == "aborted_streaming"),
        "{reason:?}"
    );
    assert!(gone(scene.tape.started().pid));
}

/// Edits the first call and denies the second.
#[derive(Debug, Default)]
struct EditThenDenyGate {
    held: Mutex<Vec<ApprovalRequest>>,
}

impl ApprovalGate for EditThenDenyGate {
    fn decide(
        &self,
        call: ApprovalRequest,
    ) -> futures_util::future::BoxFuture<'_, ApprovalDecision> {
        let mut held = self.held.lock().unwrap();
        held.push(call);
        let decision = match held.len() {
            1 => ApprovalDecision::AllowEdited(json!({"key": "edited"})),
            _ => ApprovalDecision::Deny("not today".into()),
        };
        Box::pin(async {
            // A person takes longer than one turn of the loop.
            tokio::task::yield_now().await;
            decision
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
async fn gate_edits_and_denies_calls() {
    let gate = Arc::<EditThenDenyGate>::default();
    let scene = AttemptFixture {
        gate: Arc::clone(&gate) as Arc<dyn ApprovalGate>,
        ..AttemptFixture::new()
    };
    let api = reads_and_writes();
    let (facts, _) = scene.run(scene.claude(), Some(&api)).await;
    assert_eq!(scene.wiki.called(), [("wiki_read".into(), json!("edited"))]);
    assert_eq!(gate.held.lock().unwrap()[1].tool, "wiki_write");
    assert_eq!(failures(&facts), [], "a denied call is not a failure");
    let [denied] = facts.work.tally.refusals() else {
        panic!("one call: {:?}", facts.work.tally)
    };
    assert_eq!(
        (denied.tool.as_str(), denied.message.as_str()),
        ("wiki_write", "not today")
    );
    assert_eq!(
        stop_reason(facts.reported.result.as_ref().unwrap()),
        StopReason::Natural
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
async fn hostile_project_and_home_change_nothing() {
    let scene = AttemptFixture::new();
    hostile::plant(&scene.home);
    assert!(
        hostile::harms_the_unprotected(&scene.home),
        "the attack does not work, so the test would prove nothing"
    );
    let api = FakeApi::start([ApiRoute::any([
        ApiTurn::blocks([
            tool("Bash", json!({"command": "touch pwned"})),
            tool(
                "Write",
                json!({"file_path": scene.home.project().join("pwned"), "content": "x"}),
            ),
            tool("Skill", json!({"skill": "evil"})),
            tool(
                "Task",
                json!({"subagent_type": "evil", "description": "x", "prompt": "x"}),
            ),
            tool("mcp__evil__x", json!({})),
        ]),
        ApiTurn::answer("Nothing worked."),
    ])]);
    let (facts, _) = scene.run(scene.claude(), Some(&api)).await;
    assert_eq!(facts.isolation, IsolationStatus::Verified);
    assert_eq!(
        scene.tape.checks(),
        [IsolationChecked {
            breach: None,
            settings_sources: Some(vec![])
        }]
    );
    assert!(
        !scene.home.project().join("pwned").exists(),
        "a hostile program ran"
    );
    assert_eq!(facts.work.tally.calls().len(), 5);
    for request in api.requests() {
        // Requests repeat the model's own calls. No other part may contain the text.
        assert!(
            !request.body.contains("HOSTILE-TEXT"),
            "hostile text reached the model"
        );
        assert_eq!(request.header("x-hostile"), None);
        assert_eq!(request.tool_names().len(), 3);
        assert!(
            request.json()["model"]
                .as_str()
                .is_some_and(|model| model.contains("sonnet"))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
async fn prompt_that_looks_like_a_command_reaches_the_model() {
    let scene = AttemptFixture::new();
    let api = FakeApi::start([ApiRoute::any([ApiTurn::answer("read it")])]);
    let launch = UnitLaunch {
        prompt: "/compact is what the feedback began with".into(),
        ..scene.claude()
    };
    let (facts, _) = scene.run(launch, Some(&api)).await;
    assert_eq!(
        facts.reported.result.unwrap().text.as_deref(),
        Some("read it")
    );
    assert!(
        api.requests()[0]
            .body
            .contains("/compact is what the feedback began with")
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
async fn session_is_resumed_under_its_id() {
    let scene = AttemptFixture::new();
    let api = FakeApi::start([ApiRoute::any([
        ApiTurn::answer("first answer"),
        ApiTurn::answer("second answer"),
    ])]);
    scene.run(scene.claude(), Some(&api)).await;
    let id = scene
        .tape
        .started()
        .argv
        .iter()
        .find_map(|word| word.strip_prefix("--session-id=").map(str::to_owned));
    let resume = |resume| {
        Some(Amendment {
            resume,
            ..Amendment::default()
        })
    };
    let mut launch = UnitLaunch {
        prompt: "Continue.".into(),
        ..scene.claude()
    };
    launch.context.amendment = resume(id);
    let (facts, _) = scene.run(launch, Some(&api)).await;
    assert_eq!(
        facts.reported.result.unwrap().text.as_deref(),
        Some("second answer")
    );
    let last = api.requests().pop().unwrap();
    assert!(last.body.contains("first answer") && last.body.contains("Continue."));
    let mut launch = scene.claude();
    launch.context.amendment = resume(Some(uuid::Uuid::nil().to_string()));
    let (facts, ready) = scene.run(launch, Some(&api)).await;
    assert!(!ready);
    assert!(
        facts
            .reported
            .result
            .unwrap()
            .errors
            .unwrap()
            .contains("No conversation found")
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
async fn resumed_session_sends_the_system_prompt_of_its_tape() {
    let scene = AttemptFixture::new();
    let api = FakeApi::start([ApiRoute::any([
        ApiTurn::answer("first"),
        ApiTurn::answer("second"),
    ])]);
    let with_prompt = |prompt: &str| UnitLaunch {
        system_prompt: prompt.into(),
        ..scene.claude()
    };
    scene.run(with_prompt("You are ALPHA."), Some(&api)).await;
    let id = scene
        .tape
        .started()
        .argv
        .iter()
        .find_map(|word| word.strip_prefix("--session-id=").map(str::to_owned));
    let mut launch = with_prompt("You are BETA.");
    launch.context.amendment = Some(Amendment {
        resume: id,
        ..Amendment::default()
    });
    let (facts, _) = scene.run(launch, Some(&api)).await;
    assert_eq!(
        facts.reported.result.unwrap().text.as_deref(),
        Some("second")
    );
    let taped: Vec<String> = scene
        .tape
        .notes()
        .into_iter()
        .filter_map(|note| {
            if let Note::AttemptStarted(started) = note {
                Some(started.system_prompt)
            } else {
                None
            }
        })
        .collect();
    assert_eq!(taped, ["You are ALPHA.", "You are BETA."]);
    let requests = api.requests();
    let sends = |of: usize| {
        taped
            .iter()
            .map(|taped| requests[of].system().contains(taped))
            .collect::<Vec<_>>()
    };
    assert_eq!([sends(0), sends(1)], [[true, false], [false, true]]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
async fn resumed_session_has_a_separate_budget() {
    let scene = AttemptFixture::new();
    let read = || ApiTurn::blocks([tool("mcp__ktx__wiki_read", json!({"key": "x"}))]);
    let api = FakeApi::start([ApiRoute::any([
        read(),
        read(),
        read(),
        ApiTurn::answer("first"),
        read(),
        ApiTurn::answer("second"),
        read(),
    ])]);
    scene.run(scene.claude(), Some(&api)).await;
    let bill = |tape: &MemoryRecorder| -> f64 {
        let lines = tape
            .of('o')
            .into_iter()
            .filter_map(|line| serde_json::from_slice::<Value>(&line).ok());
        lines
            .filter_map(|line| line["total_cost_usd"].as_f64())
            .next_back()
            .unwrap()
    };
    let first = bill(&scene.tape);
    let id = scene
        .tape
        .started()
        .argv
        .iter()
        .find_map(|word| word.strip_prefix("--session-id=").map(str::to_owned));
    let launch = |dollars| {
        let mut launch = UnitLaunch {
            prompt: "Continue.".into(),
            ..scene.claude()
        };
        launch.context.amendment = Some(Amendment {
            resume: id.clone(),
            ..Amendment::default()
        });
        Arc::make_mut(&mut launch.options).max_budget_usd = Some(dollars);
        launch
    };
    // Less than the cost of the session so far, more than the cost of its continuation.
    let (facts, _) = scene.run(launch(first * 0.9), Some(&api)).await;
    assert_eq!(
        facts.reported.result.unwrap().text.as_deref(),
        Some("second")
    );
    assert_eq!(
        bill(&scene.tape) > first,
        claude_version() >= BILLS_WHOLE_SESSION,
        "whether its bill includes both"
    );
    let (facts, _) = scene.run(launch(first / 100.0), Some(&api)).await;
    assert_eq!(
        stop_reason(&facts.reported.result.unwrap()),
        StopReason::Budget
    );
}

/// Short timeouts for programs that are expected to misbehave.
const QUICK: ProcessTimeouts = ProcessTimeouts {
    // Includes the time that a busy machine needs to deliver a SIGKILL, or to end an idle process.
    escalation_step: Duration::from_secs(1),
    exit: Duration::from_secs(1),
    pipe_drain: Duration::from_millis(500),
    reply: Duration::from_millis(200),
    startup: Duration::from_secs(10),
};

fn shell(scene: &AttemptFixture, script: &str) -> UnitLaunch {
    scene.launch("/bin/sh", &["-c", script, "agent"])
}

fn limited(launch: UnitLaunch, limits: StreamLimits) -> UnitLaunch {
    UnitLaunch {
        context: AttemptContext {
            limits,
            ..launch.context
        },
        ..launch
    }
}

fn quick() -> AttemptFixture {
    AttemptFixture {
        patience: QUICK,
        ..AttemptFixture::new()
    }
}

#[tokio::test]
async fn start_failure_is_explained() {
    let scene = quick();
    let program = missing("claude");
    let (facts, ready) = scene.run(scene.launch(&program, &[]), None).await;
    assert!(!ready);
    assert_eq!(
        facts.process.start_error,
        Some(format!("there is no program {program}"))
    );
    assert_eq!(scene.tape.started().pid, None);

    let mut nowhere = scene.launch("/bin/sh", &[]);
    nowhere.context.cwd = missing("project").into();
    let (facts, _) = scene.run(nowhere, None).await;
    let expected = format!(
        "the working directory {} does not exist",
        missing("project")
    );
    assert_eq!(facts.process.start_error, Some(expected));

    let huge = "x".repeat(4 * 1024 * 1024);
    let (facts, _) = scene.run(scene.launch("/bin/sh", &[&huge]), None).await;
    assert!(
        facts
            .process
            .start_error
            .is_some_and(|error| error.contains("too large"))
    );
}

#[tokio::test]
async fn prompt_beyond_the_limit_starts_no_process() {
    let scene = quick();
    let launch = UnitLaunch {
        prompt: "é".repeat(240_001),
        ..shell(&scene, "touch started")
    };
    let (facts, _) = scene.run(launch, None).await;
    assert!(facts.prompt_chars > 240_000 && facts.process.start_error.is_none());
    assert!(!scene.home.project().join("started").exists());
    assert_eq!(scene.tape.notes().len(), 1);
}

#[tokio::test]
async fn crashed_program_leaves_its_stderr_tail() {
    let scene = quick();
    let script = "echo 'error: unknown option --x' >&2; printf 'half a li'; exit 1";
    let (facts, ready) = scene.run(shell(&scene, script), None).await;
    assert!(!ready);
    assert_eq!(
        (facts.process.exit_code, facts.reported.result.is_none()),
        (Some(1), true)
    );
    assert_eq!(facts.process.stderr_tail, ["error: unknown option --x"]);
    assert_eq!(scene.tape.of('r'), [b"half a li".to_vec()]);
    assert_eq!(scene.tape.of('e'), [b"error: unknown option --x".to_vec()]);
}

#[tokio::test]
async fn system_prompt_is_a_private_temporary_file() {
    let scene = quick();
    // The argument after the flag. The script prints the file's mode and content on stderr.
    let script = r#"while [ "$1" != --system-prompt-file ]; do shift; done
        stat -c %a "$2" >&2; cat "$2" >&2; echo >&2; echo "$TMPDIR" >&2; stat -c %a "$TMPDIR" >&2"#;
    let (facts, _) = scene.run(shell(&scene, script), None).await;
    assert_eq!(
        facts.process.stderr_tail[..2],
        ["600", "You keep the wiki."]
    );
    assert_eq!(facts.process.stderr_tail[3], "700");
    assert!(!Path::new(&facts.process.stderr_tail[2]).exists());
}

#[tokio::test]
async fn program_that_ignores_signals_is_killed_in_time() {
    let scene = quick();
    let script = "trap '' INT TERM; echo '{\"type\":\"hello\"}'; while :; do sleep 0.05; done";
    let facts = scene
        .stopped_at(
            "hello",
            AttemptCommand::Interrupt,
            shell(&scene, script),
            None,
        )
        .await;
    assert_eq!(
        (facts.interruption.stopped, facts.process.signal),
        (Some(StopMode::Stop), Some(9))
    );
    assert!(gone(scene.tape.started().pid));
}

#[tokio::test]
async fn program_that_never_reads_does_not_deadlock() {
    let scene = quick();
    // More than both pipes can hold, in both directions.
    let ask = r#"{"type":"control_request","request_id":"r","request":{"subtype":"mcp_message","server_name":"ktx","message":{"jsonrpc":"2.0","method":"notifications/initialized"}}}"#;
    let script = format!("i=0; while [ $i -lt 3000 ]; do echo '{ask}'; i=$((i+1)); done; exit 5");
    let (facts, _) = scene.run(shell(&scene, &script), None).await;
    assert_eq!(facts.process.exit_code, Some(5));
    assert_eq!(scene.tape.of('o').len(), 3000);
    assert_eq!(
        scene.tape.of('i').len(),
        3001,
        "every request was answered, after the initial one"
    );
}

#[tokio::test]
async fn line_beyond_the_limit_ends_the_attempt() {
    const LIMIT: usize = 256 * 1024;
    let scene = quick();
    let script = "echo first; head -c 1000000 /dev/zero | tr '\\0' x; while :; do sleep 0.05; done";
    let limits = StreamLimits {
        line: LIMIT,
        ..StreamLimits::default()
    };
    let (facts, _) = scene
        .run(limited(shell(&scene, script), limits), None)
        .await;
    assert_eq!(
        (facts.interruption.oversized_line, facts.process.signal),
        (Some(LIMIT), Some(15))
    );
    let verdict = judge_attempt(&"docs-a".into(), &facts, FailureRule::Strict);
    assert_eq!(
        (verdict.outcome, &verdict.cause),
        (AttemptOutcome::Failed, &VerdictCause::OversizedLine)
    );
    assert_eq!(
        verdict.reason,
        "Claude Code wrote a line longer than 262144 bytes"
    );
    let pieces = scene.tape.of('r');
    assert_eq!(pieces[0], b"first");
    assert!(
        pieces[1..].iter().all(|piece| piece.len() <= LIMIT / 8),
        "in pieces"
    );
    let recorded: usize = pieces[1..].iter().map(Vec::len).sum();
    assert!((LIMIT..=1_000_000).contains(&recorded), "{recorded}");
    let is_message = |note: &Note| matches!(note, Note::Message { text, .. } if text.contains("recorded in pieces"));
    assert_eq!(
        scene
            .tape
            .notes()
            .iter()
            .filter(|note| is_message(note))
            .count(),
        1
    );
}

#[tokio::test]
async fn long_line_of_stderr_is_recorded_in_pieces() {
    let scene = quick();
    let script = "head -c 1000000 /dev/zero | tr '\\0' x >&2; echo >&2; echo last >&2; exit 5";
    let limits = StreamLimits {
        stderr_line: 256 * 1024,
        ..StreamLimits::default()
    };
    let (facts, _) = scene
        .run(limited(shell(&scene, script), limits), None)
        .await;
    assert_eq!(
        (facts.process.exit_code, facts.interruption.oversized_line),
        (Some(5), None)
    );
    let lines = scene.tape.of('e');
    assert_eq!(lines.iter().map(Vec::len).sum::<usize>(), 1_000_004);
    assert!(lines.len() > 8 && lines.last().unwrap() == b"last");
}

#[tokio::test]
async fn stderr_beyond_the_limit_is_counted_and_not_recorded() {
    let scene = quick();
    let script = "i=0; while [ $i -lt 2000 ]; do echo 'the same error again' >&2; i=$((i+1)); done; echo last >&2; exit 5";
    let limits = StreamLimits {
        stderr: 21_000,
        ..StreamLimits::default()
    };
    let (facts, _) = scene
        .run(limited(shell(&scene, script), limits), None)
        .await;
    assert_eq!(scene.tape.of('e').len(), 1050);
    assert_eq!(
        facts.process.stderr_tail.last().unwrap(),
        "last",
        "the verdict has the end of it"
    );
    let messages: Vec<_> = scene
        .tape
        .notes()
        .into_iter()
        .filter_map(|note| {
            if let Note::Message { text, .. } = note {
                Some(text)
            } else {
                None
            }
        })
        .collect();
    assert_eq!(
        messages,
        [
            "stderr exceeds 21000 bytes; the lines after this are not recorded",
            "951 lines of stderr (19004 bytes) were not recorded"
        ]
    );
}

#[tokio::test]
async fn agent_that_calls_without_reading_is_ended() {
    let scene = quick();
    let ask = r#"{"type":"control_request","request_id":"r","request":{"subtype":"mcp_message","server_name":"ktx","message":{"jsonrpc":"2.0","method":"notifications/initialized"}}}"#;
    let limits = StreamLimits {
        unread_stdin: 64 * 1024,
        ..StreamLimits::default()
    };
    let launch = limited(shell(&scene, &format!("exec yes '{ask}'")), limits);
    let (facts, _) = scene.run(launch, None).await;
    assert_eq!(
        (facts.interruption.unread_stdin, facts.process.signal),
        (Some(64 * 1024), Some(15))
    );
    let verdict = judge_attempt(&"docs-a".into(), &facts, FailureRule::Strict);
    assert_eq!(
        verdict.reason,
        "Claude Code stopped reading: more than 65536 bytes of input is unread"
    );
}

#[tokio::test]
async fn pipe_held_open_by_an_orphan_is_not_waited_for() {
    let scene = quick();
    // In its own session, so that killing the group does not reach it.
    let script = "setsid sh -c 'echo $$ > runaway; exec sleep 600' & while [ ! -s runaway ]; do sleep 0.01; done; exit 0";
    let (facts, _) = scene.run(shell(&scene, script), None).await;
    assert_eq!(facts.process.exit_code, Some(0));
    let runaway = std::fs::read_to_string(scene.home.project().join("runaway")).unwrap();
    let killed = std::process::Command::new("kill")
        .arg(runaway.trim())
        .status()
        .unwrap();
    assert!(killed.success(), "it was still running");
}

#[tokio::test]
async fn unwritable_tape_ends_the_attempt() {
    for full_after in [0, 3] {
        let tape = Arc::new(MemoryRecorder {
            full_after: Some(full_after),
            ..MemoryRecorder::default()
        });
        let scene = AttemptFixture { tape, ..quick() };
        let script = "while :; do echo '{\"type\":\"hello\"}'; sleep 0.01; done";
        let (facts, _) = scene.run(shell(&scene, script), None).await;
        assert_eq!(
            facts.interruption.record_error.as_deref(),
            Some("cannot write tape.jsonl: no storage space")
        );
        assert_eq!(scene.tape.entries.lock().unwrap().len(), full_after);
    }
}

#[tokio::test]
async fn program_that_never_opens_the_conversation_is_ended() {
    let scene = AttemptFixture {
        patience: ProcessTimeouts {
            startup: Duration::from_millis(200),
            ..QUICK
        },
        ..AttemptFixture::new()
    };
    // The program does not exit when its stdin is closed, either.
    let (facts, ready) = scene
        .run(shell(&scene, "while :; do sleep 0.05; done"), None)
        .await;
    assert!(!ready);
    assert_eq!(
        facts.process.start_error.as_deref(),
        Some("claude did not open the conversation within 0 s")
    );
    assert_eq!(facts.process.signal, Some(15));
}

#[tokio::test]
async fn dropping_an_attempt_kills_its_process() {
    let scene = quick();
    let (_commands, orders) = mpsc::channel(1);
    let (ready, _started) = oneshot::channel();
    let launch = shell(
        &scene,
        "trap '' INT TERM; echo '{\"type\":\"hello\"}'; while :; do sleep 0.05; done",
    );
    let run = tokio::spawn(run_unit_with_env(
        scene.env(None),
        QUICK,
        launch,
        orders,
        ready,
    ));
    scene.tape.wait_for("hello").await;
    run.abort();
    assert!(run.await.unwrap_err().is_cancelled());
    let pid = scene.tape.started().pid;
    let deadline = std::time::Instant::now() + LIMIT;
    while !gone(pid) {
        assert!(std::time::Instant::now() < deadline, "it is still running");
        crate::support::pause_task_before_check().await;
    }
}

/// Set in the second process of the tests below, which plays an ingestdeck that ends or is killed: the file for the ids
/// of its children.
const ALONE: &str = "INGESTDECK_TEST_ALONE";

/// Runs `test` in a second process, where it starts three children. Returns whether all of them are gone, and how the
/// process ended.
fn second_process(test: &str) -> (bool, Output) {
    let ids = tempfile::NamedTempFile::new().unwrap();
    let run = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            &format!("unit_protocol::{test}"),
            "--exact",
            "--nocapture",
            "--include-ignored",
        ])
        .env(ALONE, ids.path())
        .output()
        .unwrap();
    let text = std::fs::read_to_string(ids.path()).unwrap();
    let children: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(
        children.len(),
        3,
        "{}",
        String::from_utf8_lossy(&run.stdout)
    );
    let deadline = std::time::Instant::now() + LIMIT;
    while std::time::Instant::now() < deadline {
        if children.iter().all(|pid| gone(Some(*pid))) {
            return (true, run);
        }
        crate::support::pause_before_check();
    }
    (false, run)
}

async fn three_children() -> Vec<Child> {
    let mut children = Vec::new();
    for _ in 0..3 {
        let order = SpawnRequest {
            exe: "/bin/sh".into(),
            args: vec![
                "-c".into(),
                "trap '' INT TERM HUP; while :; do sleep 0.05; done".into(),
            ],
            cwd: std::env::temp_dir(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            stdin: false,
        };
        children.push(process::spawn(order).await.unwrap());
    }
    let ids: String = children
        .iter()
        .map(|child| format!("{}\n", child.pid()))
        .collect();
    std::fs::write(std::env::var_os(ALONE).unwrap(), ids).unwrap();
    children
}

#[tokio::test]
async fn kill_all_kills_every_group() {
    if std::env::var_os(ALONE).is_none() {
        assert!(second_process("kill_all_kills_every_group").0);
        return;
    }
    let mut children = three_children().await;
    process::kill_all();
    for child in &mut children {
        assert_eq!(child.wait().await.signal, Some(9));
    }
    // Nothing is dropped, so the call alone must have killed the groups.
    std::mem::forget(children);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn children_die_with_a_killed_program() {
    if std::env::var_os(ALONE).is_none() {
        assert!(second_process("children_die_with_a_killed_program").0);
        return;
    }
    let children = three_children().await;
    let us = nix::unistd::getpid();
    nix::sys::signal::kill(us, nix::sys::signal::Signal::SIGKILL).unwrap();
    std::mem::forget(children);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn group_of_an_agent_dies_with_a_killed_program() {
    if std::env::var_os(ALONE).is_none() {
        assert!(second_process("group_of_an_agent_dies_with_a_killed_program").0);
        return;
    }
    ingestdeck_os::group_guard::start(Path::new(crate::support::program())).unwrap();
    let (mut children, mut ids) = (Vec::new(), String::new());
    for _ in 0..3 {
        let order = SpawnRequest {
            exe: "/bin/sh".into(),
            // The shell itself gets the parent-death signal, its child does not.
            args: vec![
                "-c".into(),
                "(trap '' INT TERM HUP; while :; do sleep 0.05; done) & echo $!; wait".into(),
            ],
            cwd: std::env::temp_dir(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            stdin: false,
        };
        let mut child = process::spawn(order).await.unwrap();
        let mut lines = LineReader::with_limit(child.stdout.take().unwrap(), MAX_LINE_BYTES);
        lines.fill().await.unwrap();
        ids += &format!(
            "{}\n",
            String::from_utf8_lossy(lines.take_lines().lines().next().unwrap())
        );
        children.push(child);
    }
    std::fs::write(std::env::var_os(ALONE).unwrap(), ids).unwrap();
    let us = nix::unistd::getpid();
    nix::sys::signal::kill(us, nix::sys::signal::Signal::SIGKILL).unwrap();
    std::mem::forget(children);
}

/// A tool that panics.
#[derive(Debug)]
struct PanickingTools;

impl Toolset for PanickingTools {
    fn specs(&self) -> Vec<ToolSpec> {
        FakeWiki::default().specs()
    }

    fn call(&self, _call: &ToolCall) -> ToolReply {
        panic!("on purpose")
    }
}

/// Plays the scripted agent, which continues after the call.
fn calls_once(scene: &AttemptFixture) -> UnitLaunch {
    let script = scene.home.project().join("script.toml");
    let text = r#"
        [pace]
        chunk_ms = 0
        [[part]]
        steps = [{ call = { tool = "wiki_read", with = { key = "arr" } } }, { say = "Done." }]"#;
    std::fs::write(&script, text).unwrap();
    let words = [
        "scripted-agent",
        "--script",
        script.to_str().unwrap(),
        "--unit",
        "docs-a",
        "--attempt",
        "1",
    ];
    scene.launch(crate::support::program(), &words)
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn tool_panic_fails_its_call_and_other_panics_end_agents() {
    if std::env::var_os(ALONE).is_none() {
        let (gone, run) = second_process("tool_panic_fails_its_call_and_other_panics_end_agents");
        assert!(
            gone && run.status.success(),
            "{}",
            String::from_utf8_lossy(&run.stderr)
        );
        return;
    }
    // In the same way as the program does it.
    ingestdeck::install_panic_hooks(false);
    let mut children = three_children().await;
    let scene = quick();
    let (facts, _) = scene
        .run(
            UnitLaunch {
                tools: Arc::new(PanickingTools),
                ..calls_once(&scene)
            },
            None,
        )
        .await;
    assert_eq!(failures(&facts)[0].0, "wiki_read");
    assert_eq!(
        facts.reported.result.unwrap().text.as_deref(),
        Some("Done."),
        "the agent of the call continues"
    );
    for child in &mut children {
        let ended = tokio::time::timeout(Duration::ZERO, child.wait()).await;
        assert!(ended.is_err(), "the agents of other units continue");
    }
    assert!(tokio::spawn(async { panic!("on purpose") }).await.is_err());
    for child in &mut children {
        assert_eq!(child.wait().await.signal, Some(9));
    }
}

/// A tool and a gate that never answer.
#[derive(Debug)]
struct StuckTools {
    /// Calls block until this is dropped.
    latch: Mutex<Option<std::sync::mpsc::Receiver<()>>>,
    /// Is notified when a call blocks.
    hangs: Notify,
}

impl ApprovalGate for StuckTools {
    fn decide(
        &self,
        _call: ApprovalRequest,
    ) -> futures_util::future::BoxFuture<'_, ApprovalDecision> {
        Box::pin(std::future::pending())
    }
}

impl Toolset for StuckTools {
    fn specs(&self) -> Vec<ToolSpec> {
        FakeWiki::default().specs()
    }

    fn call(&self, _call: &ToolCall) -> ToolReply {
        self.hangs.notify_one();
        let latch = self.latch.lock().unwrap().take();
        assert!(latch.unwrap().recv().is_err(), "the other end is dropped");
        ToolReply::text("at last")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stuck_tool_and_gate_do_not_block_the_end() {
    let (held, latch) = std::sync::mpsc::channel();
    let stuck = Arc::new(StuckTools {
        latch: Mutex::new(Some(latch)),
        hangs: Notify::new(),
    });
    let scene = AttemptFixture {
        gate: Arc::clone(&stuck) as Arc<dyn ApprovalGate>,
        ..quick()
    };
    let request = |id: u32, request: Value| {
        json!({"type": "control_request", "request_id": id.to_string(), "request": request})
            .to_string()
    };
    let message = |id, message: Value| {
        request(
            id,
            json!({"subtype": "mcp_message", "server_name": "ktx", "message": message}),
        )
    };
    let client = json!({"name": "agent", "version": "1"});
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
    let reply = |id: &str, response: Value| {
        let response = json!({"subtype": "success", "request_id": id, "response": response});
        json!({"type": "control_response", "response": response}).to_string()
    };
    let tools = mcp::tool_ids(&stuck.specs());
    let servers = json!([{"name": mcp::SERVER_NAME, "status": "connected"}]);
    let init = json!({"type": "system", "subtype": "init", "tools": tools, "mcp_servers": servers, "plugins": []});
    let lines = [
        // After the proof of isolation, it may call tools.
        reply("deck-1", json!({})),
        reply("deck-2", json!({"sources": []})),
        init.to_string(),
        request(
            1,
            json!({"subtype": "hook_callback", "callback_id": "pre_tool_use", "input": {"tool_name": tools[0]}}),
        ),
        message(
            2,
            json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}),
        ),
        message(
            3,
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "wiki_read", "arguments": {}}}),
        ),
    ];
    let script = format!(
        "cat <<'END'\n{}\nEND\nwhile :; do sleep 0.05; done",
        lines.join("\n")
    );
    let launch = UnitLaunch {
        tools: Arc::clone(&stuck) as Arc<dyn Toolset>,
        ..shell(&scene, &script)
    };
    let (commands, orders) = mpsc::channel(1);
    let (ready, _started) = oneshot::channel();
    let run = tokio::spawn(run_unit_with_env(
        scene.env(None),
        scene.patience,
        launch,
        orders,
        ready,
    ));
    tokio::time::timeout(LIMIT, stuck.hangs.notified())
        .await
        .unwrap();
    commands.send(AttemptCommand::Kill).await.unwrap();
    let facts = tokio::time::timeout(LIMIT, run).await.unwrap().unwrap();
    assert_eq!(
        (facts.interruption.stopped, facts.process.signal),
        (Some(StopMode::Kill), Some(15))
    );
    let is_reported =
        scene.tape.notes().iter().any(
            |note| matches!(note, Note::Message { text, .. } if text.contains("was abandoned")),
        );
    assert!(is_reported, "{:?}", scene.tape.notes());
    drop(held);
}

#[tokio::test]
async fn time_limit_reaches_a_running_attempt() {
    use ingestdeck_core::units::verdict::TimeLimit;
    let scene = quick();
    let (limits, timeouts) = watch::channel(AttemptTimeouts::default());
    let mut launch = shell(
        &scene,
        "trap '' INT TERM; echo '{}'; while :; do sleep 0.05; done",
    );
    launch.timeouts = timeouts;
    let tape = Arc::clone(&scene.tape);
    let limiting = tokio::spawn(async move {
        while tape.notes().is_empty() {
            crate::support::pause_task_before_check().await;
        }
        limits.send_modify(|limits| limits.silence = Some(Duration::from_millis(300)));
        limits
    });
    let (facts, _) = scene.run(launch, None).await;
    assert_eq!(
        facts.interruption.timed_out,
        Some(TimeLimit::Silence(Millis(300)))
    );
    drop(limiting.await);
}

#[tokio::test]
async fn agent_that_writes_nothing_is_ended() {
    use ingestdeck_core::units::verdict::TimeLimit;
    let scene = quick();
    let limit = Duration::from_millis(300);
    for (silence, attempt, expected) in [
        (Some(limit), None, TimeLimit::Silence(Millis(300))),
        (None, Some(limit), TimeLimit::Attempt(Millis(300))),
    ] {
        let timeouts = AttemptTimeouts {
            silence,
            total: attempt,
            approval: None,
        };
        let script = "trap '' INT TERM; echo '{}'; while :; do sleep 0.05; done";
        let mut launch = shell(&scene, script);
        launch.timeouts = watch::channel(timeouts).1;
        let (facts, _) = scene.run(launch, None).await;
        assert_eq!(
            (facts.interruption.timed_out, facts.process.signal),
            (Some(expected), Some(9))
        );
        assert!(gone(scene.tape.started().pid));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scripted_agent_passes_the_isolation_proof() {
    let scene = quick();
    let script = scene.home.project().join("script.toml");
    let text = r#"
        [pace]
        chunk_ms = 0
        [[part]]
        unit = "docs-*"
        steps = [
          { say = "I read first." },
          { call = { tool = "wiki_read", with = { key = "arr" } } },
          { call = { tool = "wiki_remove", with = { key = "gone" } } },
          { say = "Done." },
        ]"#;
    std::fs::write(&script, text).unwrap();
    let words = [
        "scripted-agent",
        "--script",
        script.to_str().unwrap(),
        "--unit",
        "docs-a",
        "--attempt",
        "1",
    ];
    let (facts, ready) = scene
        .run(scene.launch(crate::support::program(), &words), None)
        .await;
    assert!(ready, "{facts:?}");
    assert_eq!(facts.isolation, IsolationStatus::Verified);
    assert_eq!(
        scene.wiki.called(),
        [
            ("wiki_read".into(), json!("arr")),
            ("wiki_remove".into(), json!("gone"))
        ]
    );
    assert_eq!(failures(&facts), [("wiki_remove", "there is no page gone")]);
    let result = facts.reported.result.as_ref().unwrap();
    assert_eq!(
        (stop_reason(result), result.text.as_deref()),
        (StopReason::Natural, Some("Done."))
    );
    assert_eq!(scene.tape.checks().len(), 1);
}
