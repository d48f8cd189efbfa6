//! Tasks in the background on the screen: their rows, the agents of a workflow, the list, and the size of the context.

use std::path::Path;

use ingestdeck_core::run::Timeline;
use ingestdeck_records::replay::FileSource;

use super::screens::shown;

fn capture(name: &str) -> Timeline {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/captures")
        .join(name);
    Timeline::new(Box::new(FileSource::open(&path).unwrap()))
}

fn workflow() -> Timeline {
    capture("versions/2.1.332_workflow_two_agents.jsonl")
}

#[test]
fn workflow_and_its_agents_are_rows() {
    for size in [(80, 24), (120, 36)] {
        let name = format!("workflow_{}x{}", size.0, size.1);
        insta::assert_snapshot!(name, shown(workflow(), "", size));
    }
    let call = shown(workflow(), "<enter>ggj", (120, 36));
    insta::assert_snapshot!("workflow_call", call);
}

#[test]
fn tasks_are_listed_and_lead_to_their_rows() {
    let list = ":tasks<enter>";
    for size in [(80, 24), (120, 36)] {
        let name = format!("tasks_{}x{}", size.0, size.1);
        insta::assert_snapshot!(name, shown(workflow(), list, size));
    }
    let row = shown(
        capture("background_bash.jsonl"),
        ":tasks<enter><enter>",
        (120, 36),
    );
    assert!(
        row.contains("sleep 3; echo done") && !row.contains("tasks in the background"),
        "{row}"
    );
    let none = shown(capture("success_tools.jsonl"), list, (80, 24));
    assert!(
        none.contains("none: no command, sub-agent or workflow"),
        "{none}"
    );
    let past = shown(
        capture("background_bash.jsonl"),
        "0......:tasks<enter>",
        (120, 36),
    );
    assert!(
        past.contains("0 running of 0") || past.contains("1 running of 1"),
        "{past}"
    );
}

#[test]
fn header_shows_the_context_only_where_its_window_is_known() {
    let known = shown(capture("success_tools.jsonl"), "", (120, 36));
    assert!(
        known.lines().next().unwrap().contains("context "),
        "{known}"
    );
    let unknown = shown(capture("ondisk_session.jsonl"), "", (120, 36));
    assert!(!unknown.contains("context "), "{unknown}");
}
