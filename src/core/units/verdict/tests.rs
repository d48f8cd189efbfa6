//! Tables of attempt ends and their verdicts.

use proptest::prelude::*;

use super::*;

mod evidence;

fn unit() -> UnitKey {
    UnitKey::from("dbt-all")
}

fn result(subtype: &str, is_error: bool, terminal_reason: Option<&str>) -> ResultFacts {
    ResultFacts {
        subtype: Some(subtype.into()),
        failed: is_error,
        terminal_reason: terminal_reason.map(Into::into),
        ..ResultFacts::default()
    }
}

fn good() -> AttemptFacts {
    AttemptFacts {
        reported: ReportedFacts {
            result: Some(result("success", false, Some("completed"))),
            ..ReportedFacts::default()
        },
        ..AttemptFacts::default()
    }
}

fn strict(facts: &AttemptFacts) -> Verdict {
    judge_attempt(&unit(), facts, FailureRule::Strict)
}

fn api_failure(
    error_class: &str,
    api_error: Option<&str>,
    status: Option<u64>,
    text: &str,
) -> AttemptFacts {
    AttemptFacts {
        reported: ReportedFacts {
            result: Some(ResultFacts {
                text: Some(text.into()),
                ..result("success", true, Some("api_error"))
            }),
            error_class: Some(error_class.into()),
            api_error: api_error.map(Into::into),
            api_status: status,
            last_text: Some(text.into()),
            ..ReportedFacts::default()
        },
        ..AttemptFacts::default()
    }
}

#[test]
fn a_natural_end_succeeds() {
    let verdict = strict(&good());
    assert_eq!(
        (verdict.outcome, verdict.stop, verdict.cause),
        (
            AttemptOutcome::Succeeded,
            StopReason::Natural,
            VerdictCause::Completed
        )
    );
    assert_eq!(verdict.remedy, None);
}

#[test]
fn stop_reason_follows_each_release() {
    let stop_reason_field = ResultFacts {
        stop_reason: Some("max_turns".into()),
        ..result("success", false, None)
    };
    let table = [
        (
            result("error_max_turns", true, Some("max_turns")),
            StopReason::Budget,
        ),
        (result("error_max_turns", false, None), StopReason::Budget),
        (
            result("success", false, Some("max_turns")),
            StopReason::Budget,
        ),
        (stop_reason_field, StopReason::Budget),
        (
            result("error_max_budget_usd", true, Some("budget_exhausted")),
            StopReason::Budget,
        ),
        (
            result("error_max_budget_usd", false, None),
            StopReason::Budget,
        ),
        (
            result("success", false, Some("completed")),
            StopReason::Natural,
        ),
        (result("success", false, None), StopReason::Natural),
        (
            result("success", true, Some("completed")),
            StopReason::Error,
        ),
        (
            result("success", true, Some("api_error")),
            StopReason::Error,
        ),
        (
            result("success", false, Some("stop_hook_prevented")),
            StopReason::Error,
        ),
        (
            result("error_during_execution", false, None),
            StopReason::Error,
        ),
        (
            result("error_of_tomorrow", false, Some("completed")),
            StopReason::Error,
        ),
        (ResultFacts::default(), StopReason::Natural),
        (result("completion", false, None), StopReason::Natural),
        (result("completion", true, None), StopReason::Error),
    ];
    for (facts, expected) in table {
        assert_eq!(stop_reason(&facts), expected, "{facts:?}");
    }
}

#[test]
fn result_that_names_an_error_without_failing_is_stopped() {
    for (result, word) in [
        (
            result("error_during_execution", false, None),
            "error_during_execution",
        ),
        (
            result("success", false, Some("stop_hook_prevented")),
            "stop_hook_prevented",
        ),
    ] {
        let verdict = strict(&AttemptFacts {
            reported: ReportedFacts {
                result: Some(result),
                ..ReportedFacts::default()
            },
            ..AttemptFacts::default()
        });
        assert_eq!(
            (verdict.outcome, verdict.stop),
            (AttemptOutcome::Stopped, StopReason::Error)
        );
        assert_eq!(
            verdict.reason,
            format!("Claude Code ended before it was done ({word})")
        );
    }
}

#[test]
fn spent_budget_is_a_success_with_a_reason() {
    let facts = AttemptFacts {
        reported: ReportedFacts {
            result: Some(result("error_max_turns", true, Some("max_turns"))),
            ..ReportedFacts::default()
        },
        ..AttemptFacts::default()
    };
    let verdict = strict(&facts);
    assert_eq!(
        (verdict.outcome, verdict.stop, verdict.cause),
        (
            AttemptOutcome::Succeeded,
            StopReason::Budget,
            VerdictCause::Budget
        )
    );
    assert!(verdict.remedy.unwrap().contains("stepBudget"));
}

#[test]
fn checks_apply_in_order() {
    let mut tally = FailureTally::default();
    tally.record_failure("wiki_write", Some("t1"), "no");
    tally.record_failure("wiki_read", Some("t2"), "no");
    let mut facts = AttemptFacts {
        prompt_chars: 240_001,
        isolation: IsolationStatus::Breached(
            "Claude Code runtime isolation failed: tools=Bash".into(),
        ),
        interruption: InterruptionFacts {
            stopped: Some(StopMode::Stop),
            record_error: Some("disk full".into()),
            ..InterruptionFacts::default()
        },
        process: ProcessFacts {
            start_error: Some("no such file".into()),
            ..ProcessFacts::default()
        },
        reported: ReportedFacts {
            result: Some(result("error_during_execution", true, None)),
            ..ReportedFacts::default()
        },
        work: WorkFacts {
            tally,
            dangling_refs: vec!["a -> b".into(), "c -> d".into()],
            invalid_artifacts: vec!["wiki page orders: no summary".into()],
            patch_error: Some("permission denied".into()),
            ..WorkFacts::default()
        },
    };
    let mut seen = Vec::new();
    let mut step = |facts: &AttemptFacts| seen.push(strict(facts).reason);
    step(&facts);
    facts.prompt_chars = MAX_PROMPT_CHARS;
    step(&facts);
    facts.isolation = IsolationStatus::Unverified;
    step(&facts);
    facts.interruption.stopped = Some(StopMode::Drain);
    step(&facts);
    facts.interruption.record_error = None;
    step(&facts);
    facts.process.start_error = None;
    step(&facts);
    facts.reported.result = good().reported.result;
    step(&facts);
    facts.isolation = IsolationStatus::Verified;
    step(&facts);
    facts.work.tally = FailureTally::default();
    step(&facts);
    facts.work.dangling_refs.clear();
    step(&facts);
    facts.work.invalid_artifacts.clear();
    step(&facts);
    facts.work.patch_error = None;
    step(&facts);
    insta::assert_snapshot!(seen.join("\n"), @r"
    prompt too large for WorkUnit dbt-all: 240001 chars exceeds 240000
    Claude Code runtime isolation failed: tools=Bash
    stopped before it was done
    the tape could not be written: disk full
    Claude Code could not be started: no such file
    Claude Code query failed (error_during_execution)
    Claude Code runtime isolation failed: the agent never announced its tools
    2 tool call(s) failed during WorkUnit dbt-all
    wiki references target missing page(s): a -> b, c -> d
    validation failed for: wiki page orders: no summary
    its changes could not be saved as a patch: permission denied
    completed
    ");
}

#[test]
fn a_stop_by_a_person_is_neither_success_nor_failure() {
    for how in [StopMode::Stop, StopMode::Kill] {
        let verdict = strict(&AttemptFacts {
            interruption: InterruptionFacts {
                stopped: Some(how),
                ..good().interruption
            },
            ..good()
        });
        assert_eq!(
            (verdict.outcome, verdict.cause),
            (AttemptOutcome::Stopped, VerdictCause::Cancelled)
        );
    }
}

#[test]
fn success_without_isolation_proof_fails() {
    let unproved = |facts| {
        strict(&AttemptFacts {
            isolation: IsolationStatus::Unverified,
            ..facts
        })
        .cause
    };
    let budget = AttemptFacts {
        reported: ReportedFacts {
            result: Some(result("error_max_turns", true, Some("max_turns"))),
            ..ReportedFacts::default()
        },
        ..AttemptFacts::default()
    };
    assert_eq!(
        [unproved(good()), unproved(budget)],
        [VerdictCause::Isolation, VerdictCause::Isolation]
    );
    assert_eq!(
        unproved(AttemptFacts::default()),
        VerdictCause::Crashed,
        "a failed attempt keeps its own cause"
    );
}

#[test]
fn service_failures_have_distinct_causes() {
    let until = |facts: AttemptFacts| AttemptFacts {
        reported: ReportedFacts {
            limit_resets_at: Some(1_700_000_000),
            ..facts.reported
        },
        ..facts
    };
    let limit = VerdictCause::UsageLimit {
        resets_at: Some(1_700_000_000),
    };
    let table = [
        (
            until(api_failure(
                "rate_limit",
                Some("usage_limit_reached"),
                Some(429),
                "You've hit your 5-hour limit",
            )),
            limit.clone(),
        ),
        (
            until(api_failure("rate_limit", None, Some(429), "slow down")),
            limit,
        ),
        (
            api_failure("rate_limit", None, Some(429), "slow down"),
            VerdictCause::RateLimited,
        ),
        (
            api_failure("overloaded", None, Some(529), "Overloaded"),
            VerdictCause::Transient,
        ),
        (
            api_failure("server_error", None, Some(500), "Internal server error"),
            VerdictCause::Transient,
        ),
        (
            api_failure("unknown", None, Some(529), "?"),
            VerdictCause::Transient,
        ),
        (
            api_failure(
                "server_error",
                Some("connection_failed"),
                None,
                "Connection error.",
            ),
            VerdictCause::Network,
        ),
        (
            api_failure("authentication_failed", None, Some(401), "Invalid API key"),
            VerdictCause::Auth,
        ),
        (
            api_failure(
                "authentication_failed",
                None,
                None,
                "Not logged in · Please run /login",
            ),
            VerdictCause::Auth,
        ),
        (
            api_failure(
                "billing_error",
                None,
                Some(400),
                "Credit balance is too low",
            ),
            VerdictCause::Credit,
        ),
        (
            api_failure(
                "model_not_found",
                None,
                Some(404),
                "There's an issue with the selected model",
            ),
            VerdictCause::Model,
        ),
        (
            api_failure(
                "invalid_request",
                None,
                Some(400),
                "prompt is too long: 250000 tokens",
            ),
            VerdictCause::ContextOverflow,
        ),
        (
            api_failure("unknown", None, Some(400), "unknown error"),
            VerdictCause::LoopError,
        ),
        (
            api_failure("max_output_tokens", Some("max_output_tokens"), None, "cut"),
            VerdictCause::LoopError,
        ),
    ];
    for (facts, expected) in table {
        let verdict = strict(&facts);
        assert_eq!(
            (verdict.outcome, &verdict.cause),
            (AttemptOutcome::Failed, &expected),
            "{facts:?}"
        );
        assert!(verdict.remedy.is_some(), "{facts:?}");
    }
}

#[test]
fn old_releases_are_classified_by_message() {
    let old = |text: &str| AttemptFacts {
        reported: ReportedFacts {
            result: Some(ResultFacts {
                text: Some(text.into()),
                ..result("success", true, Some("completed"))
            }),
            ..ReportedFacts::default()
        },
        ..AttemptFacts::default()
    };
    let table = [
        ("Invalid API key · Please run /login", VerdictCause::Auth),
        (
            "Claude AI usage limit reached|1700000000",
            VerdictCause::UsageLimit {
                resets_at: Some(1_700_000_000),
            },
        ),
        (
            "You've hit your session limit · resets 10:50pm",
            VerdictCause::UsageLimit { resets_at: None },
        ),
        (
            "API Error: 529 {\"type\":\"error\"}",
            VerdictCause::Transient,
        ),
        ("API Error: 503", VerdictCause::Transient),
        ("Rate limit exceeded", VerdictCause::RateLimited),
        ("connect ECONNREFUSED 127.0.0.1:9", VerdictCause::Network),
        ("Request timed out", VerdictCause::Network),
        ("Credit balance is too low", VerdictCause::Credit),
        ("context length exceeded", VerdictCause::ContextOverflow),
        ("page 14290 of 4291", VerdictCause::LoopError),
    ];
    for (text, expected) in table {
        assert_eq!(strict(&old(text)).cause, expected, "{text}");
    }
}

#[test]
fn model_text_is_not_an_error() {
    let facts = AttemptFacts {
        reported: ReportedFacts {
            result: Some(ResultFacts {
                errors: Some("[ede_diagnostic] odd".into()),
                ..result("error_during_execution", true, None)
            }),
            last_text: Some("The docs list: rate limit 429, invalid API key, usage limit".into()),
            ..ReportedFacts::default()
        },
        ..AttemptFacts::default()
    };
    let verdict = strict(&facts);
    assert_eq!(verdict.cause, VerdictCause::LoopError);
    assert_eq!(
        verdict.reason,
        "Claude Code query failed (error_during_execution): the agent's loop was cut short"
    );
}

#[test]
fn answer_without_content_is_transient() {
    let diagnostic =
        "[ede_diagnostic] result_type=assistant last_content_type=none stop_reason=end_turn";
    let facts = AttemptFacts {
        reported: ReportedFacts {
            result: Some(ResultFacts {
                errors: Some(diagnostic.into()),
                ..result("error_during_execution", true, Some("completed"))
            }),
            ..ReportedFacts::default()
        },
        ..AttemptFacts::default()
    };
    let verdict = strict(&facts);
    assert_eq!(verdict.cause, VerdictCause::Transient);
    assert_eq!(
        verdict.reason,
        "Claude Code query failed (error_during_execution): the API answered without content"
    );
}

#[test]
fn process_terminated_by_us_is_not_reported_as_crashed() {
    let facts = AttemptFacts {
        process: ProcessFacts {
            signal: Some(15),
            terminated_by_us: true,
            ..ProcessFacts::default()
        },
        ..AttemptFacts::default()
    };
    let reason = strict(&facts).reason;
    assert!(
        reason.contains("closed its output, did not exit and was terminated"),
        "{reason}"
    );
    assert!(
        strict(&AttemptFacts {
            process: ProcessFacts {
                signal: Some(15),
                ..ProcessFacts::default()
            },
            ..AttemptFacts::default()
        })
        .reason
        .contains("SIGTERM")
    );
}

#[test]
fn start_faults_have_their_own_remedies() {
    let judge = |start_fault| {
        let verdict = strict(&AttemptFacts {
            process: ProcessFacts {
                start_error: Some("why".into()),
                start_fault,
                ..ProcessFacts::default()
            },
            ..AttemptFacts::default()
        });
        (verdict.cause, verdict.remedy.unwrap())
    };
    let (cause, remedy) = judge(AgentStartFault::ProgramMissing);
    assert!(
        cause == VerdictCause::ProgramMissing && remedy.contains("update"),
        "{remedy}"
    );
    let (cause, remedy) = judge(AgentStartFault::InterpreterMissing);
    assert!(
        cause == VerdictCause::ProgramMissing && remedy.starts_with("install the interpreter"),
        "{remedy}"
    );
    assert_eq!(judge(AgentStartFault::OpenFiles).0, VerdictCause::OpenFiles);
    assert_eq!(judge(AgentStartFault::Other).0, VerdictCause::Internal);
}

#[test]
fn terminal_reasons_name_cancelling_and_a_full_context() {
    for (terminal, expected, reason) in [
        (
            "aborted_streaming",
            VerdictCause::Cancelled,
            "Claude Code was interrupted (aborted_streaming)",
        ),
        (
            "aborted_tools",
            VerdictCause::Cancelled,
            "Claude Code was interrupted (aborted_tools)",
        ),
        (
            "prompt_too_long",
            VerdictCause::ContextOverflow,
            "Claude Code query failed (prompt_too_long)",
        ),
        (
            "malformed_tool_use_exhausted",
            VerdictCause::LoopError,
            "Claude Code query failed (malformed_tool_use_exhausted)",
        ),
        (
            "completed",
            VerdictCause::LoopError,
            "Claude Code query failed",
        ),
    ] {
        let facts = AttemptFacts {
            reported: ReportedFacts {
                result: Some(result("success", true, Some(terminal))),
                ..ReportedFacts::default()
            },
            ..AttemptFacts::default()
        };
        let verdict = strict(&facts);
        assert_eq!(
            (verdict.outcome, verdict.cause, verdict.reason.as_str()),
            (AttemptOutcome::Failed, expected, reason)
        );
    }
}

#[test]
fn crash_without_result_quotes_stderr() {
    let judge = |exit_code, signal, stderr: &[&str]| {
        let stderr_tail = stderr.iter().map(|line| (*line).to_owned()).collect();
        let verdict = strict(&AttemptFacts {
            process: ProcessFacts {
                exit_code,
                signal,
                stderr_tail,
                ..ProcessFacts::default()
            },
            ..AttemptFacts::default()
        });
        format!("{:?}: {}", verdict.cause, verdict.reason)
    };
    let ends = [
        judge(
            Some(3),
            None,
            &["node:internal", "Error: boom at app.js:500:12", "  "],
        ),
        judge(None, Some(9), &[]),
        judge(None, Some(77), &[]),
        judge(None, None, &[]),
        judge(Some(1), None, &["connect ECONNREFUSED 127.0.0.1:443"]),
    ];
    insta::assert_snapshot!(ends.join("\n"), @r"
    Crashed: Claude Code query returned no result message (exit code 3): Error: boom at app.js:500:12
    Crashed: Claude Code query returned no result message (ended by SIGKILL)
    Crashed: Claude Code query returned no result message (ended by signal 77)
    Crashed: Claude Code query returned no result message (end unknown)
    Network: Claude Code query returned no result message (exit code 1): connect ECONNREFUSED 127.0.0.1:443
    ");
}

#[test]
fn recovered_failures_name_the_setting() {
    let mut facts = good();
    facts
        .work
        .tally
        .record_failure("wiki_write", Some("t1"), "ledger first");
    assert!(!strict(&facts).remedy.unwrap().contains("recoverable"));
    facts.work.tally.record_success("wiki_write", Some("t2"));
    let verdict = strict(&facts);
    assert_eq!(
        verdict.reason,
        "1 tool call(s) failed during WorkUnit dbt-all"
    );
    assert!(
        verdict
            .remedy
            .unwrap()
            .contains("tool_failures = \"recoverable\"")
    );
    assert_eq!(
        judge_attempt(&unit(), &facts, FailureRule::Recoverable).outcome,
        AttemptOutcome::Succeeded
    );
}

#[test]
fn foreign_text_is_quoted_on_one_bounded_line() {
    let verdict = strict(&AttemptFacts {
        process: ProcessFacts {
            start_error: Some("a\r\nb\t".repeat(1000)),
            ..ProcessFacts::default()
        },
        ..AttemptFacts::default()
    });
    assert!(!verdict.reason.contains(['\n', '\r', '\t']));
    assert!(verdict.reason.chars().count() < MAX_QUOTE_CHARS + 60);
}

proptest! {
    /// Only good or budget-limited results with clean work succeed, and every failure has a remedy.
    #[test]
    fn success_needs_every_check(
        subtype in prop::option::of(prop::sample::select(vec!["success", "error_max_turns", "error_during_execution", "x"])),
        is_error in any::<bool>(),
        terminal in prop::option::of(prop::sample::select(vec!["completed", "max_turns", "api_error", "y"])),
        failed in 0..2usize,
        dangling in any::<bool>(),
        publish in any::<bool>(),
        text in ".{0,80}",
    ) {
        let mut facts = AttemptFacts { reported: ReportedFacts { result: Some(ResultFacts {
                subtype: subtype.map(Into::into),
                failed: is_error,
                terminal_reason: terminal.map(Into::into),
                text: Some(text),
                ..ResultFacts::default()
            }), ..ReportedFacts::default() }, ..AttemptFacts::default() };
        for _ in 0..failed { facts.work.tally.record_failure("t", None, "x"); }
        if dangling { facts.work.dangling_refs.push("a -> b".into()); }
        if publish { facts.work.patch_error = Some("x".into()); }
        let verdict = strict(&facts);
        let clean = failed == 0 && !dangling && !publish;
        let stop = facts.reported.result.as_ref().map(stop_reason).unwrap();
        prop_assert_eq!(verdict.outcome == AttemptOutcome::Succeeded, clean && stop != StopReason::Error);
        prop_assert_eq!(verdict.stop, stop);
        prop_assert!(verdict.outcome == AttemptOutcome::Succeeded || verdict.remedy.is_some());
    }
}

#[test]
fn denied_call_does_not_fail_the_unit() {
    let mut facts = AttemptFacts {
        reported: ReportedFacts {
            result: Some(ResultFacts {
                subtype: Some("success".into()),
                ..ResultFacts::default()
            }),
            ..ReportedFacts::default()
        },
        ..AttemptFacts::default()
    };
    facts
        .work
        .tally
        .record_refusal("wiki_write", Some("t1"), "not this page");
    facts
        .work
        .tally
        .record_failure("wiki_write", Some("t1"), "permission denied");
    let verdict = judge_attempt(&"u".into(), &facts, FailureRule::Strict);
    assert_eq!(verdict.outcome, AttemptOutcome::Succeeded);
    assert_eq!(verdict.reason, "completed; a person denied 1 call");
}

#[test]
fn session_that_cannot_resume_suggests_a_new_one() {
    let gone = ResultFacts {
        subtype: Some("error_during_execution".into()),
        failed: true,
        errors: Some("No conversation found with session ID: 0199".into()),
        ..ResultFacts::default()
    };
    for facts in [
        AttemptFacts {
            reported: ReportedFacts {
                result: Some(gone),
                ..ReportedFacts::default()
            },
            ..AttemptFacts::default()
        },
        AttemptFacts {
            interruption: InterruptionFacts {
                session_mismatch: Some("claude emitted session id a but expected b".into()),
                ..InterruptionFacts::default()
            },
            ..AttemptFacts::default()
        },
    ] {
        let verdict = judge_attempt(&"u".into(), &facts, FailureRule::Strict);
        assert_eq!(
            (verdict.outcome, verdict.cause),
            (AttemptOutcome::Failed, VerdictCause::LoopError)
        );
        assert_eq!(
            verdict.remedy.as_deref(),
            Some("retry it with a fresh attempt, in a new session")
        );
    }
}

#[test]
fn time_limit_takes_precedence_over_the_final_message() {
    let interrupted = ResultFacts {
        subtype: Some("error_during_execution".into()),
        ..ResultFacts::default()
    };
    let judged = |timed_out| {
        let facts = AttemptFacts {
            interruption: InterruptionFacts {
                timed_out: Some(timed_out),
                ..InterruptionFacts::default()
            },
            reported: ReportedFacts {
                result: Some(interrupted.clone()),
                ..ReportedFacts::default()
            },
            ..AttemptFacts::default()
        };
        judge_attempt(&"u".into(), &facts, FailureRule::Strict)
    };
    let silent = judged(TimeLimit::Silence(Millis(90_000)));
    assert_eq!(
        (silent.outcome, silent.cause),
        (AttemptOutcome::Failed, VerdictCause::SilenceTimeout)
    );
    assert_eq!(
        silent.reason,
        "Claude Code wrote nothing for 1m 30s (silence timeout)"
    );
    let held = judged(TimeLimit::Approval(Millis(3_600_000)));
    assert_eq!(
        (held.outcome, held.cause),
        (AttemptOutcome::Stopped, VerdictCause::ApprovalTimeout)
    );
    assert_eq!(
        held.reason,
        "a call waited for a decision for 1h 00m (approval timeout)"
    );
    let slow = judged(TimeLimit::Attempt(Millis(600_000)));
    assert_eq!(slow.cause, VerdictCause::UnitTimeout);
    assert!(
        slow.remedy
            .is_some_and(|remedy| remedy.contains("unit_timeout")),
        "the key that sets it"
    );
}
