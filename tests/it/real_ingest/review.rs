//! A review with the real CLI: a change that is sent back is made again in its session.

use serde_json::{Value, json};

use super::test_project::{TestProject, asked_by, good_turns, ktx};
use crate::support::{
    api::{ApiRequest, ApiRoute, ApiTurn},
    git::git,
};
use ingestdeck_core::tape::{Note, note::ReviewDecision};

const OWNER: &str = "The orchard team owns it.";

/// The lines of `review --list`, once the run waits for a review.
fn listed(deck: &TestProject) -> Vec<Value> {
    loop {
        let shown = deck.play(&["review", "--list", "--ui", "json"]);
        if shown.code == Some(103) {
            return shown
                .stdout
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
        }
        assert_eq!(shown.code, Some(4), "{shown:#?}");
    }
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn page_sent_back_is_written_again_in_its_session() {
    let ledger =
        json!({"summary": "Read it.", "verifiedIdentifiers": [], "unverifiedIdentifiers": []});
    let page = json!({
        "key": "page-docs-juice", "summary": "Juice", "content": format!("# Juice\n\n{OWNER}\n"), "rawPaths": ["juice.md"],
    });
    let again = [
        ApiTurn::blocks([ktx("record_verification_ledger", ledger)]),
        ApiTurn::blocks([ktx("wiki_write", page)]),
        ApiTurn::answer("It names the owner now."),
    ];
    let juice = good_turns("docs-juice", "juice.md")
        .into_iter()
        .chain(again);
    let routes = [
        asked_by("docs-juice", juice),
        asked_by("docs-crates", good_turns("docs-crates", "crates.md")),
    ];
    let deck = TestProject::new(routes);
    let args = [
        "run",
        "--review",
        "--detach",
        "--ui",
        "json",
        "--only",
        "docs-juice",
        "--only",
        "docs-crates",
    ];
    let launched = deck.play(&args);
    assert_eq!(launched.code, Some(0), "{launched:#?}");
    assert_eq!(listed(&deck).len(), 3, "two changes and their counts");
    let back = [
        "review",
        "--send-back",
        "unit:docs-juice",
        "--feedback",
        "Name the owner.",
        "--accept",
        "*",
    ];
    let sent = deck.play(&back);
    // The new attempt may have ended already, so that the run waits again.
    assert!(matches!(sent.code, Some(0 | 103)), "{sent:#?}");
    assert_eq!(
        deck.names("wiki/global"),
        Vec::<String>::new(),
        "nothing is committed yet"
    );
    let lines = listed(&deck);
    let decision =
        |path: &str| lines.iter().find(|line| line["path"] == path).unwrap()["decision"].clone();
    assert_eq!(decision("wiki/global/page-docs-crates.md"), "accepted");
    assert_eq!(decision("wiki/global/page-docs-juice.md"), "open");
    let saved = deck.play(&["review", "--accept", "*/page-docs-juice.md"]);
    assert_eq!(saved.code, Some(0), "{saved:#?}");
    assert!(deck.read("wiki/global/page-docs-juice.md").contains(OWNER));
    assert_eq!(deck.names("wiki/global").len(), 2);

    let started = deck.started();
    let of_juice: Vec<_> = started
        .iter()
        .filter(|started| started.argv.iter().any(|arg| arg.starts_with("--resume=")))
        .collect();
    assert_eq!(
        (started.len(), of_juice.len()),
        (3, 1),
        "the second attempt resumed the session"
    );
    let notes = deck.notes();
    let saved = notes
        .iter()
        .filter(|note| matches!(note, Note::RunSaved(saved) if saved.commit.is_some()));
    assert_eq!(saved.count(), 1, "one commit");
    let sent_back = |note: &&Note| matches!(note, Note::ReviewDecided(decided) if decided.decision == ReviewDecision::SentBack);
    assert_eq!(notes.iter().filter(sent_back).count(), 1);
    let requests = deck.api.requests();
    assert!(
        requests
            .iter()
            .any(|request| request.json().to_string().contains("Name the owner."))
    );
}

const POLICY: &str = "docs-revenue-reporting-policy";
const POLICY_PAGE: &str = "wiki/global/revenue-policy.md";
const RECONCILIATION: &str =
    "February 2026: gross revenue 213000000 cents, net revenue 168400000 cents.";

/// A unit of the project `orbit` that reads `file` and writes a page, and then the turns of its next attempt.
fn orbit_unit(
    unit: &str,
    file: &str,
    page: &Value,
    next: impl IntoIterator<Item = ApiTurn>,
) -> ApiRoute {
    let ledger = || {
        ktx(
            "record_verification_ledger",
            json!({"summary": "Read the file."}),
        )
    };
    let first = [
        ApiTurn::blocks([ktx("read_raw_file", json!({"path": file}))]),
        ApiTurn::blocks([ledger()]),
        ApiTurn::blocks([ktx("wiki_write", page.clone())]),
        ApiTurn::answer("The page has what the file describes."),
    ];
    asked_by(unit, first.into_iter().chain(next))
}

/// Models, dashboards and documents: one page is sent back, its unit makes it again in its session, and the review of the
/// new attempt ends in one commit.
#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn orbit_page_sent_back_ends_in_one_commit() {
    let policy =
        "Gross revenue includes paid subscription, seat, usage, and addon invoice line items.";
    let page = json!({"key": "revenue-policy", "summary": "Gross and net revenue", "content": format!("# Revenue\n\n{policy}\n"),
        "rawPaths": ["revenue-reporting-policy.md"]});
    let change = json!({"key": "revenue-policy", "summary": "Gross and net revenue",
        "replacements": [{"oldText": policy, "newText": format!("{policy}\n\n{RECONCILIATION}")}]});
    let next = [
        ApiTurn::blocks([ktx(
            "record_verification_ledger",
            json!({"summary": "Read the file."}),
        )]),
        ApiTurn::blocks([ktx("wiki_write", page.clone())]),
        ApiTurn::blocks([ktx("wiki_write", change)]),
        ApiTurn::answer("The page has the reconciliation now."),
    ];
    let dashboard = json!({"key": "dashboard-revenue-exec", "summary": "Revenue dashboard", "rawPaths": ["revenue_exec.dashboard.lookml"],
        "content": "# Gross and Net Revenue Executive Dashboard\n\n- `revenue.gross_revenue`\n- `revenue.net_revenue`\n"});
    let mart = json!({"key": "mart-revenue-daily", "summary": "Daily revenue", "rawPaths": ["schema.yml"],
        "content": "# Daily revenue\n\n`mart_revenue_daily` reconciles gross, credits, refunds, and net revenue.\n"});
    let deck = TestProject::with_project(
        "orbit",
        [
            orbit_unit(POLICY, "revenue-reporting-policy.md", &page, next),
            orbit_unit(
                "lookml-dashboard-revenue_exec",
                "revenue_exec.dashboard.lookml",
                &dashboard,
                [],
            ),
            orbit_unit("dbt-all", "schema.yml", &mart, []),
        ],
    );
    let root = deck.home.project();
    git(&root, &["init", "--quiet", "--initial-branch=main"]);
    git(&root, &["add", "--all"]);
    git(&root, &["commit", "--quiet", "-m", "start"]);
    let only = [
        "--only",
        POLICY,
        "--only",
        "lookml-dashboard-revenue_exec",
        "--only",
        "dbt-all",
    ];
    let launched =
        deck.play(&[&["run", "--review", "--detach", "--ui", "json"], &only[..]].concat());
    assert_eq!(launched.code, Some(0), "{launched:#?}");
    assert_eq!(listed(&deck).len(), 4, "three changes and their counts");

    let feedback = "Add the reconciliation of February.";
    let sent = deck.play(&[
        "review",
        "--send-back",
        POLICY_PAGE,
        "--feedback",
        feedback,
        "--accept",
        "*",
    ]);
    assert!(matches!(sent.code, Some(0 | 103)), "{sent:#?}");
    let open: Vec<Value> = listed(&deck)
        .into_iter()
        .filter(|line| line["decision"] == "open")
        .collect();
    assert_eq!(
        (open.len(), &open[0]["path"]),
        (1, &json!(POLICY_PAGE)),
        "{open:?}"
    );
    let shown = deck.play(&["review", "--list", "--diff"]);
    assert!(
        shown.stdout.contains(&format!("+{RECONCILIATION}")),
        "{shown:#?}"
    );
    let commits = || git(&root, &["log", "--format=%H"]).lines().count();
    assert_eq!(
        (commits(), deck.names("wiki/global").len()),
        (1, 0),
        "nothing is committed before the end of the review"
    );
    let saved = deck.play(&["review", "--accept", POLICY_PAGE]);
    assert_eq!(saved.code, Some(0), "{saved:#?}");

    assert_eq!(
        (commits(), git(&root, &["status", "--porcelain"]).as_str()),
        (2, "")
    );
    assert_eq!(deck.names("wiki/global").len(), 3);
    let message = git(&root, &["log", "-1", "--format=%B"]);
    assert!(
        message.contains(&format!("Ingest-Unit: {POLICY}\nIngest-Attempt: 2\n")),
        "{message}"
    );
    let started = deck.started();
    let flag = |flag: &str| -> Vec<String> {
        let words = started.iter().flat_map(|started| &started.argv);
        words
            .filter_map(|word| word.strip_prefix(flag).map(str::to_owned))
            .collect()
    };
    let (new, resumed) = (flag("--session-id="), flag("--resume="));
    assert_eq!(
        (new.len(), resumed.len()),
        (3, 1),
        "only the second attempt continues a session"
    );
    assert!(
        new.contains(&resumed[0]),
        "the session of the first attempt"
    );
    let last = started.last().unwrap();
    assert!(last.prompt.contains(feedback));
    let requests = deck.api.requests();
    let (resumed, first): (Vec<_>, Vec<_>) = requests
        .iter()
        .partition(|request| request.body.contains(feedback));
    assert!(!last.system_prompt.is_empty() && !resumed.is_empty());
    assert!(
        resumed
            .iter()
            .all(|request| request.system().contains(&last.system_prompt)),
        "as on the tape"
    );
    let taped = |request: &ApiRequest| {
        started
            .iter()
            .any(|it| request.system().contains(&it.system_prompt))
    };
    assert!(first.into_iter().all(taped), "as on the tape");

    let line = deck
        .read(POLICY_PAGE)
        .lines()
        .position(|line| line == RECONCILIATION)
        .unwrap()
        + 1;
    let why = deck.play(&["why", &format!("{POLICY_PAGE}:{line}"), "--ui", "json"]);
    let answer: Value = serde_json::from_str(&why.stdout).unwrap();
    assert_eq!(
        (&answer["attempt"]["unit"], &answer["attempt"]["attempt"]),
        (&json!(POLICY), &json!(2)),
        "{answer}"
    );
}
