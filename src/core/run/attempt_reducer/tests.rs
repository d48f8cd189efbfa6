//! Tests of the reducer.

use super::*;
use crate::decode;

fn reported(lines: &[&str]) -> ReportedFacts {
    let mut reducer = AttemptReducer::new(TurnTracker::for_one_prompt());
    for line in lines {
        reducer.push(&decode::decode_line(line.as_bytes()));
    }
    reducer.reported_facts()
}

#[test]
fn error_line_is_kept_against_later_text() {
    let limit = r#"{"type":"assistant","error":"rate_limit","api_error":"usage_limit_reached","api_error_status":429,"message":{"content":[{"type":"text","text":"You've hit your limit"}]}}"#;
    let later = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"more"}]}}"#;
    assert_eq!(reported(&[later]).last_text.as_deref(), Some("more"));
    let facts = reported(&[later, limit, later]);
    assert_eq!(facts.last_text.as_deref(), Some("You've hit your limit"));
    assert_eq!(facts.error_class.as_deref(), Some("rate_limit"));
    assert_eq!(facts.api_error.as_deref(), Some("usage_limit_reached"));
    assert_eq!(facts.api_status, Some(429));
}

#[test]
fn only_a_rejected_window_sets_the_reset_time() {
    let limit = |status: &str, at: i64| {
        format!(
            r#"{{"type":"rate_limit_event","rate_limit_info":{{"status":"{status}","resetsAt":{at}}}}}"#
        )
    };
    let (warned, rejected, allowed) = (
        limit("allowed_warning", 1_700_000_001),
        limit("rejected", 1_700_000_002),
        limit("allowed", 1_700_000_003),
    );
    assert_eq!(reported(&[&warned]).limit_resets_at, None);
    assert_eq!(
        reported(&[&warned, &rejected, &allowed]).limit_resets_at,
        Some(1_700_000_002)
    );
}

#[test]
fn result_of_an_earlier_turn_does_not_decide() {
    let init = r#"{"type":"system","subtype":"init"}"#;
    let task = r#"{"type":"system","subtype":"task_started","task_id":"t"}"#;
    let result = |text: &str| format!(r#"{{"type":"result","is_error":false,"result":"{text}"}}"#);
    let (first, second) = (result("first"), result("second"));
    let text = |lines: &[&str]| reported(lines).result.and_then(|result| result.text);
    assert_eq!(text(&[init, &first, &second]).as_deref(), Some("first"));
    assert_eq!(text(&[init, task, &first, init]), None);
    assert_eq!(
        text(&[init, task, &first, init, &second]).as_deref(),
        Some("second")
    );
}

#[test]
fn result_errors_follow_the_stream_contract() {
    let errors = |fields: &str| {
        let line = format!(r#"{{"type":"result","is_error":true,{fields}}}"#);
        reported(&[&line]).result.and_then(|result| result.errors)
    };
    assert_eq!(
        errors(r#""errors":["f","g"],"result":"r""#).as_deref(),
        Some("f; g")
    );
    assert_eq!(
        errors(r#""error":"e","errors":["f"]"#).as_deref(),
        Some("e")
    );
    assert_eq!(errors(r#""errors":[],"result":"r""#), None);
}

/// Failures and denials of an attempt whose result lists these denials after the lines.
fn counted(lines: &[&str], interrupt: bool, denials: &str) -> (u32, u32) {
    let mut reducer = AttemptReducer::new(TurnTracker::for_one_prompt());
    let result = format!(r#"{{"type":"result","is_error":false,"permission_denials":{denials}}}"#);
    for (index, line) in lines.iter().copied().chain([result.as_str()]).enumerate() {
        if interrupt && index == lines.len() {
            reducer.mark_interrupted();
        }
        reducer.push(&decode::decode_line(line.as_bytes()));
    }
    (reducer.counts().failures, reducer.counts().denials)
}

#[test]
fn denials_count_once_and_not_for_interrupted_calls() {
    let call = r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t","name":"Bash","input":{}}]}}"#;
    let failed = r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","is_error":true,"content":"no"}]}}"#;
    let named = r#"[{"tool_name":"Bash","tool_use_id":"t"}]"#;
    let unnamed = r#"[{"tool_name":"Bash"}]"#;
    assert_eq!(counted(&[call, failed], false, named), (1, 1));
    assert_eq!(
        counted(&[call, failed], false, unnamed),
        (1, 0),
        "it is the call that failed"
    );
    assert_eq!(counted(&[call], false, unnamed), (1, 1));
    assert_eq!(counted(&[call], true, named), (0, 0));
    assert_eq!(counted(&[call], true, unnamed), (0, 0));
}

/// The tokens of the main loop after these lines.
fn tokens(lines: &[&str]) -> TokenCounts {
    let mut reducer = AttemptReducer::new(TurnTracker::for_one_prompt());
    for line in lines {
        reducer.push(&decode::decode_line(line.as_bytes()));
    }
    reducer.counts().tokens
}

#[test]
fn final_counts_of_messages_replace_their_estimates() {
    let message = |id: &str, parent: &str| {
        format!(
            r#"{{"type":"assistant","message":{{"id":"{id}","usage":{{"input_tokens":7,"output_tokens":1}},"content":[]}},"parent_tool_use_id":{parent}}}"#
        )
    };
    let end = |id: &str, parent: &str, output: u64| {
        format!(
            r#"{{"type":"stream_event","event":{{"type":"message_delta","usage":{{"output_tokens":{output}}}}},"parent_tool_use_id":{parent},"api_message_id":{id}}}"#
        )
    };
    let main = message("m", "null");
    let output =
        |lines: &[String]| tokens(&lines.iter().map(String::as_str).collect::<Vec<_>>()).output;
    assert_eq!(output(&[main.clone(), end(r#""m""#, "null", 40)]), 40);
    assert_eq!(
        output(&[main.clone(), end("null", "null", 40)]),
        40,
        "older releases do not name the message"
    );
    assert_eq!(
        output(&[end("null", "null", 40), main.clone()]),
        1,
        "no message yet"
    );
    assert_eq!(output(&[main.clone(), end(r#""other""#, "null", 40)]), 1);
    assert_eq!(
        output(&[main.clone(), end(r#""m""#, r#""t""#, 40)]),
        1,
        "the message of a subagent"
    );
    let lines: Vec<_> = (0..40)
        .flat_map(|id| [message(&format!("m{id}"), "null"), end("null", "null", 10)])
        .collect();
    assert_eq!(
        output(&lines),
        400,
        "also of messages that are no longer kept one by one"
    );
    assert_eq!(tokens(&[&main, &end(r#""m""#, "null", 40)]).input, 7);
}

#[test]
fn capture_that_ends_without_a_result_has_its_tokens() {
    let capture = include_str!("../../../../tests/fixtures/captures/partial_messages.jsonl");
    let lines: Vec<_> = capture.lines().collect();
    let cut: Vec<_> = lines
        .iter()
        .copied()
        .filter(|line| !line.contains(r#""type":"result""#))
        .collect();
    assert!(cut.len() < lines.len());
    assert_eq!(tokens(&cut), tokens(&lines));
    assert_eq!(tokens(&cut).output, 84);
}

#[test]
fn tokens_of_all_turns_of_a_process_count() {
    let message = |id: &str, input: u64| {
        format!(
            r#"{{"type":"assistant","message":{{"id":"{id}","usage":{{"input_tokens":{input}}},"content":[]}},"session_id":"s"}}"#
        )
    };
    let result = |input: u64| {
        format!(
            r#"{{"type":"result","subtype":"success","is_error":false,"usage":{{"input_tokens":{input}}},"session_id":"s"}}"#
        )
    };
    let task = r#"{"type":"system","subtype":"task_started","task_id":"t","is_backgrounded":true}"#;
    let lines = [
        task.to_owned(),
        message("a", 7),
        result(8),
        message("b", 20),
        result(21),
    ];
    let input = |count: usize| {
        let lines: Vec<_> = lines.iter().take(count).map(String::as_str).collect();
        tokens(&lines).input
    };
    assert_eq!([2, 3, 4, 5].map(input), [7, 8, 28, 29]);
}

#[test]
fn context_is_known_from_the_window_of_its_model() {
    let message = |model: &str, read: u64| {
        format!(
            r#"{{"type":"assistant","message":{{"id":"m{model}{read}","model":"{model}","content":[{{"type":"text","text":"x"}}],"usage":{{"input_tokens":1000,"cache_read_input_tokens":{read},"output_tokens":9}}}},"session_id":"s"}}"#
        )
    };
    let nested = message("small", 5).replace(
        "\"session_id\"",
        "\"parent_tool_use_id\":\"t\",\"session_id\"",
    );
    let result = r#"{"type":"result","subtype":"success","session_id":"s","modelUsage":{"small":{"contextWindow":7},"big[1m]":{"contextWindow":100000}}}"#;
    let init = r#"{"type":"system","subtype":"init","session_id":"s"}"#;
    let compacted = r#"{"type":"system","subtype":"compact_boundary","session_id":"s"}"#;
    let cases = [
        (init.to_owned(), None),
        (message("big", 41_000), None),
        (result.to_owned(), Some(42)),
        (init.to_owned(), Some(42)),
        (nested, Some(42)),
        (message("big", 499_000), Some(100)),
        (compacted.to_owned(), None),
        (message("big", 0), Some(1)),
        (message("other", 41_000), None),
        (result.to_owned(), None),
    ];
    let mut reducer = AttemptReducer::default();
    for (line, expected) in cases {
        reducer.push(&crate::decode::decode_line(line.as_bytes()));
        assert_eq!(reducer.counts().context.percent(), expected, "{line}");
    }
}

/// The reported cost and the estimate after these lines.
fn costs(lines: &[&str]) -> (Option<f64>, Option<f64>) {
    let mut reducer = AttemptReducer::new(TurnTracker::default());
    for line in lines {
        reducer.push(&decode::decode_line(line.as_bytes()));
    }
    let counts = reducer.counts();
    (counts.cost_usd, counts.estimated_usd)
}

/// A line of a message with so many input tokens of `model`.
fn message(id: &str, model: &str, input: u64, fields: &str) -> String {
    format!(
        r#"{{"type":"assistant","message":{{"id":"{id}","model":"{model}","usage":{{"input_tokens":{input}}},"content":[]}}{fields}}}"#
    )
}

const OPUS: &str = "claude-opus-5-5";

#[test]
fn messages_after_the_last_report_are_estimated_once() {
    let (one, two) = (
        message("a", OPUS, 1_000_000, ""),
        message("b", OPUS, 500_000, ""),
    );
    let nested = message("n", OPUS, 250_000, r#","parent_tool_use_id":"t""#);
    let result = r#"{"type":"result","subtype":"success","total_cost_usd":4.5}"#;
    assert_eq!(costs(&[&one, &one]), (None, Some(4.0)));
    assert_eq!(costs(&[&one, &two, &one]), (None, Some(6.0)));
    assert_eq!(costs(&[&one, &nested, &nested]), (None, Some(5.0)));
    assert_eq!(costs(&[&one, &nested, result]), (Some(4.5), None));
    let init = r#"{"type":"system","subtype":"init"}"#;
    assert_eq!(costs(&[&one, result, init, &two]), (Some(4.5), Some(6.5)));
    let failed = r#"{"type":"result","subtype":"error","total_cost_usd":0}"#;
    assert_eq!(costs(&[&one, failed]), (Some(0.0), Some(4.0)));
    let many: Vec<String> = (0..100)
        .map(|id| message(&format!("m{id}"), OPUS, 1_000_000, ""))
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(costs(&many), (None, Some(400.0)));
}

#[test]
fn answers_to_several_requests_with_one_id_count_each() {
    let line = |request: &str| message("same", OPUS, 1_000_000, request);
    let (one, two) = (line(r#","requestId":"r1""#), line(r#","requestId":"r2""#));
    assert_eq!(costs(&[&one, &one, &two, &two]), (None, Some(8.0)));
    // A release repeated a message without its request when a session was resumed.
    assert_eq!(costs(&[&one, &line("")]), (None, Some(4.0)));
}

#[test]
fn session_total_replaces_the_estimate() {
    let total = |usd: &str| {
        format!(
            r#"{{"type":"cost-state","sessionId":"s","totalCostUSD":{usd},"hasUnknownModelCost":false}}"#
        )
    };
    let (one, two) = (
        message("a", OPUS, 1_000_000, r#","sessionId":"s""#),
        message("b", OPUS, 500_000, r#","sessionId":"s""#),
    );
    assert_eq!(costs(&[&one, &total("4.1")]), (Some(4.1), None));
    assert_eq!(costs(&[&one, &total("4.1"), &two]), (Some(4.1), Some(6.1)));
    assert_eq!(
        costs(&[&one, &total("4.1"), &two, &total("6.2")]),
        (Some(6.2), None)
    );
}

#[test]
fn message_of_an_unknown_model_leaves_the_cost_unknown() {
    let (known, unknown) = (
        message("a", OPUS, 1_000, ""),
        message("b", "claude-opus-6", 1_000, ""),
    );
    assert_eq!(costs(&[&unknown]), (None, None));
    assert_eq!(costs(&[&known, &unknown]), (None, None));
    let nothing = message("c", "claude-opus-6", 0, "");
    assert_eq!(costs(&[&known, &nothing]), (None, Some(0.004)));
}

#[test]
fn cost_of_each_message_in_an_old_file_is_reported() {
    let (one, two) = (
        message("a", "claude-opus-6", 9, r#","costUSD":0.25"#),
        message("b", OPUS, 1_000_000, r#","costUSD":0.5"#),
    );
    let open = message("c", OPUS, 1_000_000, "");
    assert_eq!(costs(&[&one, &one, &two]), (Some(0.75), None));
    assert_eq!(costs(&[&one, &open]), (None, Some(4.25)));
}

#[test]
fn kinds_of_tokens_of_a_message_are_decoded() {
    let line = r#"{"type":"assistant","message":{"id":"a","usage":{"input_tokens":1,"cache_creation_input_tokens":9,
        "cache_creation":{"ephemeral_5m_input_tokens":2,"ephemeral_1h_input_tokens":7},
        "server_tool_use":{"web_search_requests":3,"web_fetch_requests":1},"speed":"fast","inference_geo":"us"}}}"#;
    let line = decode::decode_line(line.as_bytes());
    let LineBody::Assistant(chat) = &line.body else {
        panic!("{line:?}")
    };
    let usage = Usage {
        input: 1,
        cache_write: 9,
        cache_write_1h: 7,
        web_searches: 3,
        is_fast: true,
        is_us_only: true,
        ..Usage::default()
    };
    assert_eq!(chat.usage, Some(usage));
}
