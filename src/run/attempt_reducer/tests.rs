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
        format!(r#"{{"type":"rate_limit_event","rate_limit_info":{{"status":"{status}","resetsAt":{at}}}}}"#)
    };
    let (warned, rejected, allowed) =
        (limit("allowed_warning", 1_700_000_001), limit("rejected", 1_700_000_002), limit("allowed", 1_700_000_003));
    assert_eq!(reported(&[&warned]).limit_resets_at, None);
    assert_eq!(reported(&[&warned, &rejected, &allowed]).limit_resets_at, Some(1_700_000_002));
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
    assert_eq!(text(&[init, task, &first, init, &second]).as_deref(), Some("second"));
}

#[test]
fn result_errors_follow_the_stream_contract() {
    let errors = |fields: &str| {
        let line = format!(r#"{{"type":"result","is_error":true,{fields}}}"#);
        reported(&[&line]).result.and_then(|result| result.errors)
    };
    assert_eq!(errors(r#""errors":["f","g"],"result":"r""#).as_deref(), Some("f; g"));
    assert_eq!(errors(r#""error":"e","errors":["f"]"#).as_deref(), Some("e"));
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
    assert_eq!(counted(&[call, failed], false, unnamed), (1, 0), "it is the call that failed");
    assert_eq!(counted(&[call], false, unnamed), (1, 1));
    assert_eq!(counted(&[call], true, named), (0, 0));
    assert_eq!(counted(&[call], true, unnamed), (0, 0));
}
