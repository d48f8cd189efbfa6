//! Calls whose result does not show how they ended: declined by their tool, refused, or cut short by a stop. Also the
//! failure sign, and pages that several units wrote.

use std::path::Path;

use ingestdeck_core::{
    run::Timeline,
    tape::{
        Note,
        note::{CallDecision, PatchIntegrated, PatchResult, SharedWrite, StopMode},
    },
};
use ingestdeck_records::replay::FileSource;
use serde_json::json;

use super::{
    screens::{live, shown},
    tape::TapeFixture,
};

/// A unit with one declined call and one call that still runs.
fn at_work() -> TapeFixture {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["dbt-all"]);
    tape.start("dbt-all", 1).wait(100);
    tape.call(
        "dbt-all",
        1,
        "t1",
        "read_raw_file",
        &json!({"path": "../ktx.yaml"}),
    )
    .wait(40);
    let message = "Error: `../ktx.yaml` is not available\u{202e}".to_owned();
    let declined = Note::ToolDeclined {
        tool: "read_raw_file".into(),
        tool_use_id: Some("t1".into()),
        message: message.clone(),
    };
    tape.note(Some(("dbt-all", 1)), &declined);
    tape.result("dbt-all", 1, "t1", &message, false).wait(40);
    tape.call("dbt-all", 1, "t2", "wiki_search", &json!({"query": "arr"}))
        .wait(40);
    tape
}

#[test]
fn declined_call_has_its_own_sign_and_text() {
    let text = live(&at_work(), "", (120, 24)).text();
    assert!(
        text.contains("△ read_raw_file ../ktx.yaml ")
            && text.contains(r"declined: `../ktx.yaml` is not available\u{202e}"),
        "{text}"
    );
    assert!(text.contains(" △1 "), "{text}");
    assert!(!text.contains("✗1"), "it is not a failure: {text}");
    let opened = live(&at_work(), "<tab>gg<down><enter>", (120, 24)).text();
    assert!(
        opened.contains("result · declined: the tool did not perform the call"),
        "{opened}"
    );
}

#[test]
fn stopping_the_run_marks_calls_as_cut_short() {
    let mut tape = at_work();
    tape.note(
        None,
        &Note::StopRequested {
            how: StopMode::Stop,
        },
    );
    tape.end("dbt-all", 1, 0).run_ended(0, 0);
    let text = shown(tape.timeline(), "", (120, 24));
    assert!(
        text.contains("■ wiki_search") && !text.contains("✗ wiki_search"),
        "{text}"
    );
}

#[test]
fn page_of_several_units_is_logged() {
    let mut tape = at_work();
    tape.end("dbt-all", 1, 0);
    let shared = vec![SharedWrite {
        path: "wiki/global/arr.md".into(),
        earlier_writers: vec!["docs-arr".into()],
        was_merged: true,
    }];
    let integrated = PatchIntegrated {
        result: PatchResult::Accepted,
        shared,
        ..PatchIntegrated::default()
    };
    tape.note(
        Some(("dbt-all", 1)),
        &Note::PatchIntegrated(Box::new(integrated)),
    )
    .run_ended(1, 0);
    let text = shown(tape.timeline(), "L", (120, 24));
    assert!(
        text.contains(
            "warning dbt-all docs-arr also wrote wiki/global/arr.md: git merged the texts"
        ),
        "{text}"
    );
}

#[test]
fn failure_sign_is_shown_unless_a_row_above_has_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/captures/versions/1.0.128_api_401.jsonl");
    let text = shown(
        Timeline::new(Box::new(FileSource::open(&path).unwrap())),
        "",
        (120, 24),
    );
    assert!(text.contains("✗ failed · $0.00"), "{text}");
    assert!(
        text.contains("» Invalid API key · Fix external API key"),
        "{text}"
    );

    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["dbt-all"]).start("dbt-all", 1);
    let failed = json!({"type": "result", "subtype": "error_during_execution", "is_error": true, "session_id": "s"});
    tape.stdout_line("dbt-all", 1, &failed);
    let text = live(&tape, "", (120, 24)).text();
    assert!(text.contains("✗ error during execution"), "{text}");
}

#[test]
fn refused_calls_are_shown_next_to_failures() {
    let mut tape = at_work();
    let unit = Some(("dbt-all", 1));
    tape.result("dbt-all", 1, "t2", "no such index", true)
        .wait(40);
    for id in ["t3", "t4"] {
        tape.call("dbt-all", 1, id, "wiki_write", &json!({"key": "arr"}));
        let tool_use_id = Some(id.to_owned());
        let decision = CallDecision::Denied;
        tape.note(
            unit,
            &Note::CallDecided {
                rule: None,
                tool_use_id,
                decision,
                input: None,
                reason: None,
            },
        )
        .wait(40);
        tape.result("dbt-all", 1, id, "denied by the person who watches", true)
            .wait(40);
    }
    let text = live(&tape, "", (120, 24)).text();
    assert!(text.contains(" ✗1 ") && text.contains(" ▲2 "), "{text}");
}

#[test]
fn inspector_lists_refusal_without_a_call() {
    let mut tape = at_work();
    let refused = |id: &str, tool: &str| {
        json!({"type": "system", "subtype": "permission_denied", "tool_name": tool, "tool_use_id": id,
            "message": "not in the allow list", "session_id": "s"})
    };
    tape.stdout_line("dbt-all", 1, &refused("t2", "wiki_search"));
    tape.result("dbt-all", 1, "t2", "not in the allow list", true)
        .wait(40);
    tape.stdout_line("dbt-all", 1, &refused("t9", "WebFetch"));
    let text = live(&tape, "i5", (120, 60)).text();
    assert!(text.contains("permission denied: WebFetch"), "{text}");
}

#[test]
fn api_retry_of_unknown_cause_is_explained() {
    let mut tape = at_work();
    let retry = json!({"type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 10, "error_status": null,
        "error": "unknown", "session_id": "s"});
    tape.stdout_line("dbt-all", 1, &retry);
    let text = live(&tape, "", (120, 24)).text();
    assert!(
        text.contains("API retry 1 of 10 after an unknown error"),
        "{text}"
    );
}
