//! What a call counts as that was answered after we had ended the attempt.

use super::*;
use crate::{run::state::RowEnd, tape::note::StopHow};

const CALL: &str = r#"{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"ID","name":"mcp__ktx__wiki_read","input":{}}]},"session_id":"s"}"#;
const ANSWER: &str = r#"{"type":"user","message":{"role":"user","content":[{"type":"tool_result","content":"The user doesn't want to proceed with this tool use.","is_error":true,"tool_use_id":"ID"}]},"session_id":"s","tool_use_result":"User rejected tool use","tool_result_meta":[{"id":"ID","non_execution_kind":"user-rejected"}]}"#;
const RESULT: &str = r#"{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"s"}"#;
const INTERRUPT: &str = r#"{"type":"control_request","request_id":"deck-3","request":{"subtype":"interrupt"}}"#;

/// Folds entries of one attempt; its failures, its denials, and how its calls ended.
fn folded(entries: &[(char, String)]) -> (u32, u32, Vec<RowEnd>) {
    let (mut fold, mut story) = (Fold::new("?".into()), Story::default());
    let started = Note::AttemptStarted(Box::default()).to_json();
    let started = ('n', String::from_utf8(started).unwrap());
    for (seq, (kind, text)) in std::iter::once(&started).chain(entries).enumerate() {
        let body = match kind {
            'i' => Body::In(text.as_bytes()),
            'n' => Body::Note(text.as_bytes()),
            _ => Body::Out(text.as_bytes()),
        };
        let lane = Address::Attempt("u", 1);
        let seq = seq as u64;
        let arrived = Arrived { seq: Seq(seq), at: Millis(seq), lane, body, intact: true, line: None };
        fold.apply(&mut story, &arrived, &mut |_| {});
    }
    let attempt = &story.state.units[0].attempts[0];
    let rows = story.rows(attempt.lane).iter().filter(|row| row.kind == crate::run::state::RowKind::Tool);
    let ends = rows.map(|row| row.end(story.state.entries)).collect();
    (attempt.failures, attempt.denials, ends)
}

fn call(id: &str) -> (char, String) {
    ('o', CALL.replace("ID", id))
}

fn answer(id: &str) -> (char, String) {
    ('o', ANSWER.replace("ID", id))
}

#[test]
fn a_call_that_our_interrupt_cuts_short_neither_failed_nor_was_denied() {
    let end = [('i', INTERRUPT.to_owned()), answer("b"), ('o', RESULT.to_owned())];
    let told = [vec![call("a"), answer("a"), call("b"), call("c")], end.to_vec()].concat();
    assert_eq!(folded(&told), (1, 1, vec![RowEnd::Denied, RowEnd::Cut, RowEnd::Cut]));
}

#[test]
fn a_call_that_a_stop_cuts_short_neither_failed_nor_was_denied() {
    for (how, counted, end) in
        [(StopHow::Stop, 0, RowEnd::Cut), (StopHow::Kill, 0, RowEnd::Cut), (StopHow::Drain, 1, RowEnd::Denied)]
    {
        let stop = ('n', String::from_utf8(Note::StopRequested { how }.to_json()).unwrap());
        assert_eq!(folded(&[call("a"), stop, answer("a")]), (counted, counted, vec![end]), "{how:?}");
    }
}

#[test]
fn what_else_is_written_to_the_agent_ends_nothing() {
    for written in [INTERRUPT.replace("interrupt", "get_settings"), "interrupt".into(), "{}".into(), String::new()] {
        assert_eq!(folded(&[call("a"), ('i', written), answer("a")]), (1, 1, vec![RowEnd::Denied]));
    }
}
