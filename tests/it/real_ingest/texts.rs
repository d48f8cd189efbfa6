//! Texts that the user gives to a run, with the real CLI.

use serde_json::json;

use super::test_project::{TestProject, ktx};
use crate::support::api::{ApiRoute, ApiTurn, text};

const FIRST: &str = "NRR stands for net revenue retention.";
const SECOND: &str = "Treat a grower as lost after 90 days without a delivery.";

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn texts_are_captured_with_their_own_tools() {
    let page =
        |key: &str| json!({"key": key, "summary": format!("About {key}"), "content": "Text."});
    let load = |skill: &str| ktx("load_skill", json!({"name": skill}));
    let routes = [
        ApiRoute::on(
            FIRST,
            [
                ApiTurn::blocks([text("I load the skill."), load("wiki_capture")]),
                ApiTurn::blocks([ktx("wiki_write", page("nrr"))]),
                ApiTurn::answer("Captured."),
            ],
        ),
        ApiRoute::on(
            SECOND,
            [
                ApiTurn::blocks([load("sl_capture"), ktx("wiki_read", json!({"key": "nrr"}))]),
                ApiTurn::blocks([ktx("wiki_write", page("lost-grower"))]),
                ApiTurn::answer("Captured."),
            ],
        ),
    ];
    let deck = TestProject::new(routes).with_reconcile_step();
    let first = deck.play(&["run", "--ui", "json", "--text", FIRST, "--text", "ok"]);
    assert_eq!(first.code, Some(0), "{first:#?}");
    assert_eq!(
        first.summary()["units"],
        json!({"succeeded": 1}),
        "{first:#?}"
    );
    let second = deck.play(&["run", "--ui", "json", "orchard-handbook", "--text", SECOND]);
    assert_eq!(second.code, Some(0), "{second:#?}");
    assert_eq!(deck.names("wiki/global"), ["lost-grower.md", "nrr.md"]);
    let requests = deck.api.requests();
    let tools = |needle: &str| {
        let of_it = requests
            .iter()
            .find(|request| request.json().to_string().contains(needle));
        let mut names = of_it.unwrap().tool_names();
        names
            .iter_mut()
            .for_each(|name| *name = name.trim_start_matches("mcp__ktx__").to_owned());
        names.sort();
        names
    };
    let pages = [
        "load_skill",
        "wiki_list_tags",
        "wiki_read",
        "wiki_remove",
        "wiki_search",
        "wiki_write",
    ];
    assert_eq!(tools(FIRST), pages);
    let with_sources = tools(SECOND);
    assert!(
        pages
            .iter()
            .chain(&["sl_write_source"])
            .all(|name| with_sources.iter().any(|tool| tool == name))
    );
    assert!(
        !with_sources
            .iter()
            .any(|tool| tool == "read_raw_file" || tool == "record_verification_ledger")
    );
    let body = requests
        .iter()
        .map(|request| request.json().to_string())
        .find(|body| body.contains(FIRST))
        .unwrap();
    assert!(
        body.contains("## Assistant Response") && body.contains("into ktx memory."),
        "{body}"
    );
}
