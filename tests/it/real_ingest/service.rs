//! A service that is down, does not answer, or refuses every request; part of the table in `faults::processes`.

use std::{
    net::{Ipv4Addr, TcpListener},
    process::Output,
};

use super::{
    all_gone,
    test_project::{TestProject, all_good},
};
use crate::support::api::{ApiFault, ApiRoute, ApiTurn, FakeApi};

/// `run` of one unit with the API at `url`.
fn run(deck: &TestProject, url: &str, more: &[&str]) -> Output {
    let words = [&["run", "--ui", "json", "--only", "docs-crates"][..], more].concat();
    deck.command(words)
        .env("ANTHROPIC_BASE_URL", url)
        .output()
        .unwrap()
}

/// A local address that no process listens on.
fn closed() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn service_faults_have_a_cause_and_a_remedy_and_lose_no_work() {
    let credit = "Your credit balance is too low to access the Anthropic API.";
    let faults = [
        (
            None,
            &[][..],
            (96, "network", "check the connection and proxy settings"),
        ),
        (
            Some(ApiTurn::answer("").fault(ApiFault::Stall)),
            &["--silence-timeout", "3s"],
            (100, "silence_timeout", "silence_timeout"),
        ),
        (
            Some(ApiTurn::error(529, "overloaded_error", "Overloaded")),
            &[],
            (100, "transient", "the service is busy"),
        ),
        (
            Some(ApiTurn::error(400, "invalid_request_error", credit)),
            &[],
            (96, "credit", "add credit"),
        ),
        (
            Some(ApiTurn::error(404, "not_found_error", "model: unknown")),
            &[],
            (2, "model", "llm.models"),
        ),
    ];
    for (turn, more, (code, cause, remedy)) in faults {
        let url = turn.is_none().then(closed);
        let deck = TestProject::new([ApiRoute::any([turn.unwrap_or_default()])])
            .set("[retry]\nmax_retries = 0\n");
        let ran = run(&deck, &url.unwrap_or_else(|| deck.api.url()), more);
        assert_eq!(ran.status.code(), Some(code), "{cause}: {ran:?}");
        let agents: Vec<u32> = deck
            .started()
            .iter()
            .filter_map(|started| started.pid)
            .collect();
        all_gone(&deck, &agents);
        let before = std::fs::read(&deck.tapes()[0]).unwrap();
        let entries = deck.entries();
        let verdict = entries
            .iter()
            .find_map(|entry| entry["note"].get("verdict"))
            .unwrap();
        assert_eq!(verdict["cause"], cause, "{verdict}");
        assert!(
            verdict["remedy"]
                .as_str()
                .is_some_and(|text| text.contains(remedy)),
            "{verdict}"
        );

        let well = FakeApi::start(all_good());
        let resumed = run(&deck, &well.url(), &["--resume-run", "latest"]);
        assert_eq!(resumed.status.code(), Some(0), "{cause}: {resumed:?}");
        assert_eq!(
            deck.names("wiki/global"),
            ["page-docs-crates.md"],
            "{cause}"
        );
        assert_eq!(std::fs::read(&deck.tapes()[0]).unwrap(), before, "{cause}");
    }
}
