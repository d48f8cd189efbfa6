//! Tape format 1: the header, every kind of entry, every note with and without its optional keys, and every value that
//! a note can contain. Each is written by the program's writer and read back equal.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use ingestdeck_core::tape::{
    AgentName, EntryBody, FORMAT_VERSION, Header, Millis, Note, RunId, Seq, TapeEntry, UnitKey,
    note::{
        Amendment, AttemptEnded, AttemptOutcome, AttemptOutput, AttemptStarted, BlockedFile,
        CallDecision, CommandReceived, ContentDigests, ContinuedRun, ContinuedWork, CountedFailure,
        DiffCounts, FetchedRepository, FileRead, FilesEvicted, IntegrationAdvanced,
        IntegrationStarted, IsolationChecked, KeptDocument, LimitChanged, PatchIntegrated,
        PatchResult, PatchWritten, PlannedUnit, PoolRun, PoolUse, PriorUnitSummary,
        ProjectionCause, ReusedSuccess, ReviewDecided, ReviewDecision, ReviewRequested,
        ReviewedFile, RunEnded, RunPlanned, RunSaved, RunStarter, SaveFailed, Severity,
        SharedWrite, SkippedConnection, SlRefRepair, SlRefsRepaired, SourceRead, SourcesProjected,
        StopMode, StopReason, UnitSelection, Verdict, VerdictCause, WorkerDrained, WorkerJoined,
        WorkerLeft,
        attempt_output::{
            ArtifactChange, ArtifactTarget, LineEdit, MemoryAction, PartialRead, ReadUnit,
            RecordedWrite, UnmappedFile, UnreadFile, UnsourcedIdentifier,
        },
        verification::{ArtifactVerification, ContradictedIdentifier, VerificationRecord},
    },
};
use serde_json::{Value, json};

use super::golden::assert_published;

/// The known kinds, and the kind of a note. A new variant does not compile until it is added here.
macro_rules! kinds {
    ($($pattern:pat => $kind:literal,)+) => {
        const KINDS: &[&str] = &[$($kind),+];

        fn kind(note: &Note) -> &'static str {
            match note {
                $($pattern => $kind,)+
                Note::Unknown { .. } => panic!("the program writes no unknown note"),
            }
        }
    };
}

kinds! {
    Note::RunPlanned(_) => "run_planned",
    Note::SourceRead(_) => "source_read",
    Note::FilesEvicted(_) => "evicted",
    Note::SourcesProjected(_) => "projected",
    Note::WorkContinued(_) => "continued",
    Note::AttemptStarted(_) => "attempt_started",
    Note::IsolationChecked(_) => "isolation_checked",
    Note::AttemptEnded(_) => "attempt_ended",
    Note::CommandReceived(_) => "command",
    Note::RetryScheduled { .. } => "retry_scheduled",
    Note::RetryRequested { .. } => "retry_requested",
    Note::StopRequested { .. } => "stop_requested",
    Note::HoldRequested => "hold_requested",
    Note::HoldReleased => "hold_released",
    Note::RunUntil { .. } => "run_until",
    Note::MessageSent { .. } => "message_sent",
    Note::CallHeld { .. } => "call_held",
    Note::CallDecided { .. } => "call_decided",
    Note::LimitPaused { .. } => "limit_paused",
    Note::LimitLifted => "limit_lifted",
    Note::Throttled { .. } => "throttled",
    Note::ConcurrencyChanged { .. } => "concurrency_changed",
    Note::LimitChanged(_) => "limit_changed",
    Note::DecisionAwaited { .. } => "decision_awaited",
    Note::ResultAccepted => "result_accepted",
    Note::RunPaused => "paused",
    Note::RunResumed => "resumed",
    Note::Published { .. } => "published",
    Note::PatchWritten(_) => "patch_written",
    Note::IntegrationAdvanced(_) => "integration_advanced",
    Note::IntegrationStarted(_) => "integrating",
    Note::PatchIntegrated(_) => "patch_integrated",
    Note::ReviewRequested(_) => "review_requested",
    Note::ReviewDecided(_) => "review_decided",
    Note::ReviewFinished { .. } => "review_finished",
    Note::BranchSelected { .. } => "branch_selected",
    Note::ReviewPlanned => "review_planned",
    Note::CommittedReviewPlanned { .. } => "committed_review_planned",
    Note::WorkerJoined(_) => "worker_joined",
    Note::WorkerLeft(_) => "worker_left",
    Note::WorkerDrained(_) => "worker_drained",
    Note::PoolUse(_) => "pool_use",
    Note::WorkersAwaited { .. } => "workers_awaited",
    Note::WorkerWaitEnded => "worker_wait_ended",
    Note::RunSaved(_) => "saved",
    Note::SlRefsRepaired(_) => "sl_refs_repaired",
    Note::SaveFailed(_) => "save_failed",
    Note::ToolFailed { .. } => "tool_failed",
    Note::ToolDeclined { .. } => "tool_declined",
    Note::LinesSetAside { .. } => "lines_set_aside",
    Note::Message { .. } => "said",
    Note::RunEnded(_) => "run_ended",
}

/// Every value of an enum. A new variant does not compile until it is added here.
macro_rules! every {
    ($type:ident { $($variant:ident),+ $(,)? }) => {{
        let _exhaustive = |value: &$type| match value { $($type::$variant => (),)+ };
        vec![$($type::$variant),+]
    }};
}

pub(super) fn every_cause() -> Vec<VerdictCause> {
    let _exhaustive = |cause: &VerdictCause| match cause {
        VerdictCause::Completed
        | VerdictCause::Budget
        | VerdictCause::PromptTooLarge
        | VerdictCause::Isolation
        | VerdictCause::Cancelled => (),
        VerdictCause::ContextOverflow
        | VerdictCause::UsageLimit { .. }
        | VerdictCause::RateLimited
        | VerdictCause::Transient => (),
        VerdictCause::Network
        | VerdictCause::SilenceTimeout
        | VerdictCause::UnitTimeout
        | VerdictCause::ApprovalTimeout
        | VerdictCause::Auth
        | VerdictCause::Credit => (),
        VerdictCause::Model
        | VerdictCause::Crashed
        | VerdictCause::ToolFailures
        | VerdictCause::NothingDone
        | VerdictCause::UnreadFiles
        | VerdictCause::DanglingReferences
        | VerdictCause::Validation => (),
        VerdictCause::Conflict
        | VerdictCause::Policy
        | VerdictCause::OversizedLine
        | VerdictCause::LoopError
        | VerdictCause::WorkerLost
        | VerdictCause::StartFailed
        | VerdictCause::OpenFiles => (),
        VerdictCause::ProgramMissing | VerdictCause::Internal | VerdictCause::Other(_) => (),
    };
    vec![
        VerdictCause::Completed,
        VerdictCause::Budget,
        VerdictCause::PromptTooLarge,
        VerdictCause::Isolation,
        VerdictCause::Cancelled,
        VerdictCause::ContextOverflow,
        VerdictCause::UsageLimit {
            resets_at: Some(1_700_000_000),
        },
        VerdictCause::UsageLimit { resets_at: None },
        VerdictCause::RateLimited,
        VerdictCause::Transient,
        VerdictCause::Network,
        VerdictCause::SilenceTimeout,
        VerdictCause::UnitTimeout,
        VerdictCause::ApprovalTimeout,
        VerdictCause::Auth,
        VerdictCause::Credit,
        VerdictCause::Model,
        VerdictCause::Crashed,
        VerdictCause::ToolFailures,
        VerdictCause::NothingDone,
        VerdictCause::UnreadFiles,
        VerdictCause::DanglingReferences,
        VerdictCause::Validation,
        VerdictCause::Conflict,
        VerdictCause::Policy,
        VerdictCause::OversizedLine,
        VerdictCause::LoopError,
        VerdictCause::StartFailed,
        VerdictCause::OpenFiles,
        VerdictCause::ProgramMissing,
        VerdictCause::Internal,
        VerdictCause::Other("from_a_later_program".into()),
    ]
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

fn run(number: u128) -> RunId {
    RunId(uuid::Uuid::from_u128(number))
}

fn unit(key: &str) -> UnitKey {
    UnitKey::from(key)
}

fn verdict(
    outcome: AttemptOutcome,
    stop: StopReason,
    cause: VerdictCause,
    remedy: Option<&str>,
) -> Verdict {
    Verdict {
        outcome,
        stop,
        cause,
        reason: "the reason".into(),
        remedy: remedy.map(str::to_owned),
    }
}

fn content() -> ContentDigests {
    ContentDigests {
        combined: text("k"),
        raw_files: text("r"),
        dependencies: text("d"),
        prompt: text("p"),
        tools: text("t"),
        model: Some(text("opus")),
        algorithm_version: 3,
        skills: texts(&["wiki_capture"]),
    }
}

fn action(target: ArtifactTarget, change: ArtifactChange) -> MemoryAction {
    MemoryAction {
        target,
        change,
        key: text("orders"),
        detail: text("One row per order"),
        target_connection_id: Some(text("warehouse")),
        raw_paths: Some(texts(&["orders.md"])),
    }
}

fn bare_action() -> MemoryAction {
    MemoryAction {
        target: ArtifactTarget::Wiki,
        change: ArtifactChange::Created,
        key: text("orders"),
        detail: String::new(),
        target_connection_id: None,
        raw_paths: None,
    }
}

fn unsourced(declared: bool) -> UnsourcedIdentifier {
    UnsourcedIdentifier {
        path: text("wiki/global/arr.md"),
        line: 7,
        name: text("fct_arr"),
        declared,
    }
}

fn work() -> AttemptOutput {
    let changes = every!(ArtifactChange {
        Created,
        Updated,
        Removed
    });
    let actions = every!(ArtifactTarget {
        Wiki,
        SemanticLayer
    })
    .into_iter();
    let actions =
        actions.flat_map(|target| changes.iter().map(move |change| action(target, *change)));
    let unmapped = |detail| UnmappedFile {
        raw_path: text("odd.md"),
        reason: text("parse_error"),
        detail,
        fallback: text("flagged"),
    };
    AttemptOutput {
        writes: vec![RecordedWrite {
            call: Some("toolu_1".into()),
            path: "wiki/global/arr.md".into(),
            edits: vec![LineEdit {
                start: 0,
                removed: 1,
                added: 3,
            }],
        }],
        discarded: vec![text("wiki/global/old.md")],
        unsourced: Some([false, true].map(unsourced).to_vec()),
        dangling: Some(vec![text("orders -> refunds")]),
        verification: Some(VerificationRecord {
            artifacts: vec![ArtifactVerification {
                path: text("semantic-layer/wh/orders.yaml"),
                verified: vec![text("public.orders")],
                unverified: vec![text("public.refunds")],
                contradicted: vec![ContradictedIdentifier {
                    name: text("public.orders.total"),
                    found: text("the table has no such column"),
                }],
            }],
            unproven: vec![text("fct_arr")],
            unchecked: vec![text("bi")],
        }),
        actions: actions.chain([bare_action()]).collect(),
        unmapped: vec![unmapped(Some(text("line 3"))), unmapped(None)],
        conflicts: vec![json!({"unitKey": "docs-orders"})],
        evictions: vec![json!({"rawPath": "gone.md"})],
        resolutions: vec![json!({"artifactKey": "orders"})],
        transcript: Some(text(".ktx/ingest-transcripts/local-1/docs-orders.jsonl")),
        fatal_failures: Some(1),
        unread: vec![
            UnreadFile {
                path: text("a.md"),
                part: None,
            },
            UnreadFile {
                path: text("b.md"),
                part: Some(PartialRead {
                    read: 2,
                    of: 5,
                    unit: ReadUnit::Pages,
                }),
            },
            UnreadFile {
                path: text("c.md"),
                part: Some(PartialRead {
                    read: 7,
                    of: 9,
                    unit: ReadUnit::Lines,
                }),
            },
        ],
        nothing_written: true,
    }
}

fn review_requested() -> ReviewRequested {
    let file = ReviewedFile {
        path: text("wiki/global/arr.md"),
        change: ArtifactChange::Updated,
        units: vec!["docs-orders".into()],
        diff: text("@@ -1 +1 @@\n-# MRR\n+# ARR\n"),
        before: None,
        omitted: None,
    };
    let long = ReviewedFile {
        diff: String::new(),
        before: None,
        omitted: Some(text("c0ffee")),
        ..file.clone()
    };
    let decided = ReviewDecided {
        path: file.path.clone(),
        decision: ReviewDecision::Accepted,
        ..ReviewDecided::default()
    };
    let evicted = Vec::new();
    ReviewRequested {
        base: text("c0ffee"),
        files: vec![file, long],
        decided: vec![decided],
        evicted,
    }
}

fn blocked() -> BlockedFile {
    BlockedFile {
        path: text("wiki/global/mine.md"),
        reason: text("exists, but is not in the last commit"),
    }
}

fn amendment() -> Amendment {
    Amendment {
        message: None,
        feedback: Some(text("Name the owner.")),
        model: Some(text("opus")),
        step_budget: Some(60),
        resume: Some(text("s-1")),
    }
}

fn planned() -> RunPlanned {
    let earlier = |reused| PriorUnitSummary {
        run: run(1),
        attempts: 2,
        cost_usd: Some(0.25),
        reused,
    };
    let reused = ReusedSuccess {
        attempt: 2,
        is_budget_exhausted: true,
        content: content(),
        pending_patch: Some(text("a.patch")),
        output: work(),
    };
    let bare = ReusedSuccess {
        attempt: 1,
        is_budget_exhausted: false,
        content: content(),
        pending_patch: None,
        output: AttemptOutput::default(),
    };
    let untried = PriorUnitSummary {
        run: run(1),
        attempts: 1,
        cost_usd: None,
        reused: None,
    };
    RunPlanned {
        job: text("local-1"),
        units: vec![
            PlannedUnit {
                unit: unit("docs-orders-2"),
                ktx_key: Some(unit("docs-orders")),
                connection: text("notes"),
                adapter: text("docs"),
                label: Some(text("orders.md")),
                raw_files: texts(&["orders.md"]),
                dependency_paths: texts(&["terms.md"]),
                why: text("new"),
                bytes: Some(6),
                sl_disallowed: Some(text("lookml_connection_mismatch")),
                peer_files: Some(4),
                text: None,
            },
            PlannedUnit {
                unit: unit("docs-terms"),
                ktx_key: None,
                connection: text("notes"),
                adapter: text("docs"),
                label: None,
                raw_files: Vec::new(),
                dependency_paths: Vec::new(),
                why: text("new"),
                bytes: None,
                sl_disallowed: None,
                peer_files: None,
                text: None,
            },
            PlannedUnit {
                unit: unit("text-arr-is-annual-a3b8d8f4"),
                adapter: text("external_ingest"),
                label: Some(text("\"ARR is annual.\"")),
                why: text("the text was given to the run"),
                bytes: Some(14),
                text: Some(text("ARR is annual.")),
                ..PlannedUnit::default()
            },
        ],
        starter: RunStarter {
            traceparent: Some(text(
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            )),
            user: Some(text("ada")),
            job_url: Some(text("https://github.com/o/r/actions/runs/1")),
        },
        skipped: vec![
            SkippedConnection {
                connection: text("bi"),
                why: text("no adapter"),
                fault: true,
            },
            SkippedConnection {
                connection: text("wh"),
                why: text("no files"),
                fault: false,
            },
        ],
        concurrency: 4,
        step_budget: 40,
        failure_mode: text("continue"),
        tool_failures: text("strict"),
        model: Some(text("sonnet")),
        scripted: true,
        run_budget_usd: Some(2.5),
        instructions: texts(&["1 pin"]),
        continues: Some(ContinuedRun {
            run: run(1),
            outcome: Some(text("limit")),
            cost_usd: Some(0.5),
            units: BTreeMap::from([
                (unit("docs-a"), earlier(Some(reused))),
                (unit("docs-b"), earlier(Some(bare))),
                (unit("docs-c"), untried),
            ]),
            unreconciled: BTreeMap::from([(unit("docs-d"), text("d.patch"))]),
        }),
        silence_after_ms: Some(60_000),
        selection: Some(UnitSelection {
            connections: texts(&["notes"]),
            only: texts(&["docs-*"]),
            full: true,
            neighbours: true,
            unread: true,
        }),
    }
}

fn notes_of_the_plan() -> Vec<Note> {
    let continues = ContinuedRun {
        run: run(1),
        outcome: None,
        cost_usd: None,
        units: BTreeMap::new(),
        unreconciled: BTreeMap::new(),
    };
    let read = SourceRead {
        connection: text("notes"),
        adapter: text("docs"),
        staged: Some(text(".ktx/cache/local-ingest/local-1/upload/notes")),
        stage_ms: Some(9),
        diff: DiffCounts {
            added: 1,
            modified: 2,
            deleted: 3,
            unchanged: 4,
        },
        files: vec![FileRead {
            path: text("orders.md"),
            sha256: "ab".repeat(32),
            bytes: 6,
            defines: Some(texts(&["model:orders"])),
        }],
        deleted: texts(&["gone.md"]),
        repository: Some(FetchedRepository {
            url: text("https://example.com/dbt.git"),
            branch: Some(text("main")),
            commit: "c1".repeat(20),
        }),
        left_for_later_runs: texts(&["later.md"]),
        is_complete: true,
    };
    let projected = SourcesProjected {
        connection: Some(text("warehouse")),
        actions: vec![action(
            ArtifactTarget::SemanticLayer,
            ArtifactChange::Created,
        )],
        left_out: texts(&["orders has no table"]),
        commit: Some("c0".repeat(20)),
        paths: texts(&["semantic-layer/warehouse/orders.yaml"]),
        patch: None,
        reason: Some(text("the disk is full")),
        ..SourcesProjected::default()
    };
    let evicted = FilesEvicted {
        connection: text("notes"),
        adapter: text("docs"),
        paths: texts(&["gone.md"]),
    };
    vec![
        Note::RunPlanned(Box::new(planned())),
        Note::RunPlanned(Box::new(RunPlanned {
            continues: Some(continues),
            ..RunPlanned::default()
        })),
        Note::RunPlanned(Box::new(RunPlanned {
            selection: Some(UnitSelection::default()),
            ..RunPlanned::default()
        })),
        Note::RunPlanned(Box::default()),
        Note::SourceRead(Box::new(read)),
        Note::SourceRead(Box::default()),
        Note::FilesEvicted(Box::new(evicted)),
        Note::FilesEvicted(Box::default()),
        Note::SourcesProjected(Box::new(projected)),
        Note::SourcesProjected(Box::default()),
    ]
}

fn notes_of_an_attempt() -> Vec<Note> {
    let started = AttemptStarted {
        argv: texts(&["claude", "-p"]),
        cwd: text("/p"),
        env_set: texts(&["TMPDIR"]),
        env_stripped: texts(&["AWS_PROFILE"]),
        env_passed: texts(&["ANTHROPIC_API_KEY"]),
        env_inherited: texts(&["HOME"]),
        model: Some(text("sonnet")),
        step_budget: 40,
        system_prompt: text("You are careful."),
        prompt: text("Read it."),
        tools: texts(&["mcp__ktx__wiki_read"]),
        pid: Some(4711),
        scripted: true,
        amendment: Some(amendment()),
        tolerates_mismatch: true,
        content: Some(content()),
        worker: Some(text("build-2")),
    };
    let ended = AttemptEnded {
        verdict: verdict(
            AttemptOutcome::Failed,
            StopReason::Error,
            VerdictCause::ToolFailures,
            Some("retry it"),
        ),
        tool_failures: 2,
        failed_call: Some(CountedFailure {
            tool: text("wiki_write"),
            message: text("no ledger"),
        }),
        exit_code: Some(1),
        signal: Some(9),
        stderr_tail: texts(&["oh"]),
        wrote: texts(&["wiki/global/orders.md"]),
        work: work(),
        extra: serde_json::Map::from_iter([("later".to_owned(), Value::from(1))]),
    };
    let checked = IsolationChecked {
        breach: Some(text("a plugin is loaded")),
        settings_sources: Some(texts(&["user"])),
    };
    let mut notes = vec![
        Note::AttemptStarted(Box::new(started)),
        Note::AttemptStarted(Box::new(AttemptStarted {
            amendment: Some(Amendment::default()),
            content: Some(ContentDigests::default()),
            ..AttemptStarted::default()
        })),
        Note::AttemptStarted(Box::default()),
        Note::IsolationChecked(checked),
        Note::IsolationChecked(IsolationChecked::default()),
        Note::AttemptEnded(Box::new(ended)),
    ];
    let outcomes = every!(AttemptOutcome {
        Succeeded,
        Failed,
        Stopped
    })
    .into_iter();
    let outcomes = outcomes.map(|outcome| (outcome, StopReason::Natural, VerdictCause::Completed));
    let stops = every!(StopReason {
        Budget,
        Natural,
        Error
    })
    .into_iter();
    let stops = stops.map(|stop| (AttemptOutcome::Succeeded, stop, VerdictCause::Completed));
    let causes = every_cause()
        .into_iter()
        .map(|cause| (AttemptOutcome::Failed, StopReason::Error, cause));
    notes.extend(
        outcomes
            .chain(stops)
            .chain(causes)
            .map(|(outcome, stop, cause)| {
                Note::AttemptEnded(Box::new(AttemptEnded {
                    verdict: verdict(outcome, stop, cause, None),
                    tool_failures: 0,
                    failed_call: None,
                    exit_code: None,
                    signal: None,
                    stderr_tail: Vec::new(),
                    wrote: Vec::new(),
                    work: AttemptOutput::default(),
                    extra: serde_json::Map::new(),
                }))
            }),
    );
    notes.extend([
        Note::CommandReceived(Box::new(CommandReceived {
            command: "stop".into(),
            units: vec!["dbt-all".into()],
            client: Some("ctl".into()),
            user: Some("anna".into()),
            reason: Some("too slow".into()),
        })),
        Note::CommandReceived(Box::new(CommandReceived {
            command: "drain".into(),
            ..CommandReceived::default()
        })),
        Note::RetryScheduled {
            next: 2,
            delay_ms: 1_000,
            cause: VerdictCause::Network,
        },
        Note::RetryScheduled {
            next: 2,
            delay_ms: 0,
            cause: VerdictCause::UsageLimit { resets_at: None },
        },
        Note::Published {
            paths: texts(&["wiki/global/orders.md"]),
        },
        Note::ToolFailed {
            tool: text("wiki_write"),
            tool_use_id: Some(text("t1")),
            message: text("no ledger"),
        },
        Note::ToolFailed {
            tool: text("wiki_write"),
            tool_use_id: None,
            message: text("no ledger"),
        },
        Note::ToolDeclined {
            tool: text("wiki_read"),
            tool_use_id: Some(text("t1")),
            message: text("no page"),
        },
        Note::ToolDeclined {
            tool: text("wiki_read"),
            tool_use_id: None,
            message: text("no page"),
        },
    ]);
    notes
}

fn notes_of_people() -> Vec<Note> {
    let mut notes = vec![
        Note::RetryRequested {
            next: 2,
            amendment: Some(amendment()),
        },
        Note::RetryRequested {
            next: 2,
            amendment: None,
        },
        Note::HoldRequested,
        Note::HoldReleased,
        Note::RunUntil {
            condition: text("tool wiki_*, failure"),
        },
        Note::CallHeld {
            needs_decision: false,
            tool: text("wiki_write"),
            tool_use_id: Some(text("t1")),
            input: json!({"key": "orders"}),
            reached: Some(text("tool wiki_*")),
        },
        Note::CallHeld {
            needs_decision: false,
            tool: text("wiki_write"),
            tool_use_id: None,
            input: Value::Null,
            reached: None,
        },
        Note::CallDecided {
            rule: None,
            tool_use_id: Some(text("t1")),
            decision: CallDecision::Edited,
            input: Some(json!({"key": "sales"})),
            reason: Some(text("not now")),
        },
        Note::ConcurrencyChanged {
            slots: 2,
            old: None,
        },
        Note::ConcurrencyChanged {
            slots: 2,
            old: Some(4),
        },
        Note::LimitChanged(LimitChanged {
            limit: "run_budget".into(),
            old: Value::Null,
            new: json!(2.5),
        }),
        Note::DecisionAwaited {
            units: vec!["docs-orders".into()],
        },
        Note::ResultAccepted,
        Note::ReviewRequested(Arc::new(review_requested())),
        Note::ReviewFinished {
            sent_back: vec!["docs-orders".into()],
        },
        Note::ReviewFinished {
            sent_back: Vec::new(),
        },
        Note::RunPaused,
        Note::RunResumed,
        Note::MessageSent {
            text: "use euros".into(),
        },
    ];
    notes.extend(
        every!(StopMode { Drain, Stop, Kill })
            .into_iter()
            .map(|how| Note::StopRequested { how }),
    );
    let decisions = every!(ReviewDecision {
        Open,
        Accepted,
        Rejected,
        Edited,
        SentBack
    })
    .into_iter();
    notes.extend(decisions.map(|decision| {
        Note::ReviewDecided(Box::new(ReviewDecided {
            path: text("wiki/global/arr.md"),
            hunk: (decision == ReviewDecision::Rejected).then(|| text("0123456789")),
            decision,
            text: (decision == ReviewDecision::Edited).then(|| text("# ARR\n")),
            feedback: (decision == ReviewDecision::SentBack).then(|| text("Name the owner.")),
            reason: (decision == ReviewDecision::Rejected).then(|| text("wrong source")),
        }))
    }));
    let decisions = every!(CallDecision {
        Allowed,
        Edited,
        Answered,
        Cancelled,
        Denied,
        Released,
        Withdrawn
    })
    .into_iter();
    notes.extend(decisions.map(|decision| Note::CallDecided {
        rule: None,
        tool_use_id: None,
        decision,
        input: None,
        reason: None,
    }));
    notes
}

fn notes_of_the_run() -> Vec<Note> {
    let shared = |merged| SharedWrite {
        path: text("wiki/global/orders.md"),
        earlier_writers: vec![unit("docs-a")],
        was_merged: merged,
    };
    let saved = RunSaved {
        commit: Some("c0".repeat(20)),
        branch: Some(text("main")),
        subject: text("ingest(docs): local-1"),
        paths: texts(&["wiki/global/orders.md"]),
        unreconciled: vec![unit("docs-a")],
        blocked: vec![blocked()],
    };
    let repair = |scope: Option<&str>| SlRefRepair {
        page_key: text("orders"),
        scope_id: scope.map(str::to_owned),
        removed_refs: texts(&["warehouse.gone"]),
    };
    let patch = PatchWritten {
        base: "ba".repeat(20),
        path: Some(text(".ktx/ingest-patches/local-1/0000-docs-orders.patch")),
        paths: texts(&["wiki/global/orders.md"]),
    };
    let integrated = PatchIntegrated {
        result: PatchResult::TextualConflict,
        commit: Some("c0".repeat(20)),
        paths: texts(&["wiki/global/orders.md"]),
        shared: vec![shared(true), shared(false)],
        verdict: Some(verdict(
            AttemptOutcome::Failed,
            StopReason::Natural,
            VerdictCause::Conflict,
            None,
        )),
    };
    let ended = RunEnded {
        outcome: "partial".into(),
        succeeded: 1,
        budget: 2,
        failed: 3,
        stopped: 4,
        not_run: 5,
        unsaved: 6,
        reused: 7,
    };
    let limit = || text("five_hour");
    let mut notes = vec![
        Note::LimitPaused {
            until: Some(Millis(9_000)),
            limit: limit(),
            wait_ms: Some(5_000),
        },
        Note::LimitPaused {
            until: None,
            limit: limit(),
            wait_ms: None,
        },
        Note::LimitLifted,
        Note::Throttled {
            slots: Some(1),
            limit: limit(),
        },
        Note::Throttled {
            slots: None,
            limit: limit(),
        },
        Note::PatchWritten(patch),
        Note::PatchWritten(PatchWritten::default()),
        Note::IntegrationStarted(IntegrationStarted {
            onto: "ba".repeat(20),
            units: vec![unit("docs-a")],
        }),
        Note::IntegrationStarted(IntegrationStarted::default()),
        Note::PatchIntegrated(Box::new(integrated)),
        Note::RunSaved(saved),
        Note::RunSaved(RunSaved::default()),
        Note::SlRefsRepaired(SlRefsRepaired {
            repairs: vec![repair(Some("ada")), repair(None)],
        }),
        Note::SlRefsRepaired(SlRefsRepaired::default()),
        Note::SaveFailed(SaveFailed {
            reason: text("the branch moved"),
            review_open: false,
            blocked: vec![blocked()],
        }),
        Note::RunEnded(ended),
    ];
    let results = every!(PatchResult {
        Accepted,
        Noop,
        TextualConflict,
        SemanticConflict,
        ForbiddenPaths,
        PatchUnreadable
    })
    .into_iter();
    notes.extend(results.map(|result| {
        Note::PatchIntegrated(Box::new(PatchIntegrated {
            result,
            ..PatchIntegrated::default()
        }))
    }));
    let levels = every!(Severity {
        Debug,
        Info,
        Warning,
        Error
    })
    .into_iter();
    notes.extend(levels.map(|level| Note::Message {
        level,
        text: "done".into(),
    }));
    // Fixed words that the program stores as texts.
    let outcomes = ["done", "partial", "error", "limit", "stopped", "unusable"];
    notes.extend(outcomes.map(|outcome| {
        Note::RunEnded(RunEnded {
            outcome: outcome.into(),
            ..RunEnded::default()
        })
    }));
    notes.push(Note::BranchSelected {
        branch: Some(text("ingest/docs")),
    });
    let patch = Some(text(
        ".ktx/ingest-patches/local-1/projection-warehouse.patch",
    ));
    notes.push(Note::SourcesProjected(Box::new(SourcesProjected {
        patch,
        ..SourcesProjected::default()
    })));
    let evicted = FilesEvicted {
        connection: text("notes"),
        adapter: text("docs"),
        paths: texts(&["gone.md"]),
    };
    let request = ReviewRequested {
        evicted: vec![evicted],
        ..ReviewRequested::default()
    };
    notes.push(Note::ReviewRequested(request.into()));
    notes.extend([Note::BranchSelected { branch: None }, Note::ReviewPlanned]);
    notes.push(Note::CommittedReviewPlanned { run: run(7) });
    notes.push(Note::WorkerJoined(WorkerJoined {
        worker: text("build-2"),
        slots: 4,
        account: text("ann@example.com"),
        agent_release: text("2.1.330"),
        clock_ms: 1_700_000_000_000,
    }));
    let reason = text("it has been silent for 30 s");
    notes.push(Note::WorkerLeft(WorkerLeft {
        worker: text("build-2"),
        reason,
        is_lost: true,
        attempts: 2,
    }));
    notes.push(Note::WorkerDrained(WorkerDrained {
        worker: text("build-2"),
        reason: text("drain-worker"),
        is_undone: false,
    }));
    notes.push(Note::WorkerDrained(WorkerDrained {
        worker: text("build-1"),
        reason: String::new(),
        is_undone: true,
    }));
    notes.push(Note::PoolUse(PoolUse {
        runs: BTreeMap::from([(
            text("0a1b2c"),
            PoolRun {
                project: text("orbit"),
                user: text("ann@build-1"),
            },
        )]),
        slots: BTreeMap::from([(text("build-1"), 2)]),
    }));
    notes.extend([
        Note::WorkersAwaited { wait_ms: 7_200_000 },
        Note::WorkerWaitEnded,
    ]);
    let document = |path: &str, refused: Option<&str>| KeptDocument {
        path: text(path),
        page: text("orders"),
        refused: refused.map(text),
    };
    notes.push(Note::SourcesProjected(Box::new(SourcesProjected {
        connection: Some(text("notes")),
        cause: ProjectionCause::Verbatim,
        documents: vec![
            document("orders.md", None),
            document("old.md", Some("it was edited")),
        ],
        ..SourcesProjected::default()
    })));
    notes.push(Note::LinesSetAside { lines: 2 });
    let work = ContinuedWork {
        attempt: 1,
        turns: 3,
        tokens: 34_200,
        active_ms: 61_000,
        ..ContinuedWork::default()
    };
    notes.push(Note::WorkContinued(ContinuedWork {
        run: Some(run(7)),
        cost_usd: Some(0.25),
        ..work.clone()
    }));
    notes.push(Note::WorkContinued(work));
    notes.extend([(120, 1), (50, 0)].map(|(patches, refused)| {
        Note::IntegrationAdvanced(IntegrationAdvanced { patches, refused })
    }));
    notes
}

fn header(is_full: bool) -> Header {
    Header {
        tape: FORMAT_VERSION,
        program: text("ingestdeck 0.1.0"),
        run: run(7),
        started_at: "2026-11-22T01:02:03.456789012Z".parse().unwrap(),
        project: is_full.then(|| text("orbit")),
        scripted: is_full,
        agent: is_full.then_some(AgentName::Scripted),
    }
}

fn written(seq: u64, lane: Option<(&'static str, u32)>, body: EntryBody<'_>) -> String {
    let lane = lane.map(|(unit, attempt)| (Cow::Borrowed(unit), attempt));
    let entry = TapeEntry {
        seq: Seq(seq),
        at: Millis(seq * 10),
        attempt: lane,
        body,
    };
    let mut line = Vec::new();
    entry.write(&mut line);
    assert_eq!(
        TapeEntry::parse(line.strip_suffix(b"\n").unwrap()),
        Ok(entry),
        "{}",
        String::from_utf8_lossy(&line)
    );
    String::from_utf8(line).unwrap()
}

#[test]
fn tape_of_every_entry_and_note_is_as_published() {
    let mut tape = String::new();
    for header in [header(true), header(false)] {
        let line = header.to_line();
        assert_eq!(Header::parse(&line), Ok(header));
        tape.push_str(&String::from_utf8(line).unwrap());
    }
    let mut seq = 0;
    let mut push = |lane, body: EntryBody<'_>| {
        tape.push_str(&written(seq, lane, body));
        seq += 1;
    };
    let lane = Some(("docs-orders", 1));
    push(
        lane,
        EntryBody::Stdout(br#"{"type":"result",  "odd":"\ud800"}"#),
    );
    push(lane, EntryBody::Stdin(br#"{"type":"user"}"#));
    push(lane, EntryBody::Stderr("a \"line\" of\ttext".into()));
    push(lane, EntryBody::StdoutRaw(b"not json".into()));
    push(lane, EntryBody::StdoutRaw(b"not text \xff".into()));
    push(Some(("docs \"quoted\"", 12)), EntryBody::Stdout(b"{}"));
    let of_attempts = [notes_of_an_attempt(), notes_of_people()].concat();
    let notes = [notes_of_the_plan(), of_attempts, notes_of_the_run()].concat();
    for note in &notes {
        let json = note.to_json();
        assert_eq!(
            Note::parse(&json),
            *note,
            "{}",
            String::from_utf8_lossy(&json)
        );
        let value: Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(value["kind"], kind(note));
        push(None, EntryBody::Note(&json));
    }
    for known in KINDS {
        assert!(
            notes.iter().any(|note| kind(note) == *known),
            "no note of kind {known}"
        );
    }
    assert_published("tape.jsonl", &tape);
}

/// Older programs wrote fewer keys, so a key that was added later is never required.
#[test]
fn published_notes_are_read_and_written_unchanged() {
    let published = super::golden::read("tape.jsonl");
    let mut count = 0;
    for line in published.lines().skip(2) {
        let entry = TapeEntry::parse(line.as_bytes()).unwrap();
        let mut again = Vec::new();
        entry.write(&mut again);
        assert_eq!(String::from_utf8(again).unwrap().trim_end(), line);
        if let EntryBody::Note(json) = entry.body {
            assert_eq!(
                String::from_utf8(Note::parse(json).to_json()).unwrap(),
                String::from_utf8_lossy(json)
            );
            count += 1;
        }
    }
    assert!(count > KINDS.len(), "{count} notes");
}
