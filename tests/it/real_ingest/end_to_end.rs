//! A complete ingest of a realistic project: dashboards, models and documents in one repository, up to the commit. It
//! has a limit halfway, a killed program, a resumed run, and two units that write the same page.

use std::{fs, process::Command};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use super::{
    all_gone,
    test_project::{TestProject, UNITS, asked_by, good_turns, ktx},
};
use crate::support::api::{ApiFault, ApiRoute, ApiTurn};

/// Units of the connection with dashboards, each with one of its raw files.
const BOARDS: [(&str, &str); 3] = [
    ("lookml-orphans", "harvest.view.lkml"),
    ("lookml-dashboard-frost", "frost.dashboard.lookml"),
    ("lookml-dashboard-prices", "prices.dashboard.lookml"),
];

const DASHBOARD: &str = "- dashboard: NAME\n  title: NAME\n  elements:\n    - name: all\n      explore: NAME\n      type: table\n";

/// The unit that runs when the program is killed.
const LAST: (&str, &str) = ("docs-varieties", "varieties.md");

/// Two units that write the same page, in plan order.
const RIVALS: [&str; 2] = ["docs-juice", "docs-payments"];

fn git(deck: &TestProject, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command
        .args(args)
        .current_dir(deck.home.project())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("HOME", deck.home.path());
    for (name, value) in [("NAME", "Somebody"), ("EMAIL", "somebody@example.com")] {
        command
            .env(format!("GIT_AUTHOR_{name}"), value)
            .env(format!("GIT_COMMITTER_{name}"), value);
    }
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn subjects(deck: &TestProject) -> Vec<String> {
    git(deck, &["log", "--format=%s"])
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Asserts that only hidden files of the program are left in the project.
fn is_clean(deck: &TestProject) {
    assert_eq!(git(deck, &["status", "--porcelain"]), "");
    assert_eq!(git(deck, &["worktree", "list"]).lines().count(), 1);
    assert_eq!(git(deck, &["branch", "--list"]).lines().count(), 1);
}

/// The project with readable dashboards and an initial commit.
fn repository(routes: impl IntoIterator<Item = ApiRoute>) -> TestProject {
    let deck = TestProject::new(routes).subscribed().with_reconcile_step();
    let place = deck.home.project();
    let settings = deck
        .read("ktx.yaml")
        .replace("driver: looker", "driver: lookml");
    fs::write(place.join("ktx.yaml"), settings).unwrap();
    for board in ["frost", "prices"] {
        let file = place.join(format!("sources/bi/{board}.dashboard.lookml"));
        fs::write(file, DASHBOARD.replace("NAME", board)).unwrap();
    }
    git(&deck, &["init", "--quiet", "--initial-branch=main"]);
    git(&deck, &["add", "--all"]);
    git(&deck, &["commit", "--quiet", "--message=Begin"]);
    deck
}

/// The calls of a unit: it reads, and writes its own page; the rivals write the same one.
fn turns(unit: &str, file: &str) -> Vec<ApiTurn> {
    if !RIVALS.contains(&unit) {
        return good_turns(unit, file).into();
    }
    let [read, ledger, _, end] = good_turns(unit, file);
    vec![read, ledger, terms(&format!("As {unit} has it.")), end]
}

fn terms(content: &str) -> ApiTurn {
    ApiTurn::blocks([ktx(
        "wiki_write",
        json!({"key": "terms", "summary": "Terms of sale", "content": content}),
    )])
}

fn routes() -> Vec<ApiRoute> {
    let units = UNITS.into_iter().chain(BOARDS).map(|(unit, file)| {
        let before = match unit {
            "docs-crates" => Some(ApiTurn::usage_limit(5)),
            _ if unit == LAST.0 => Some(ApiTurn::answer("").fault(ApiFault::Stall)),
            _ => None,
        };
        let mut turns: Vec<ApiTurn> = before.into_iter().chain(turns(unit, file)).collect();
        if unit == RIVALS[1] {
            // The same once more, after the other unit's patch was integrated.
            let [read, ledger, _, end] = good_turns(unit, file);
            turns.extend([read, ledger, terms("As both have it."), end]);
        }
        asked_by(unit, turns)
    });
    let pass = ApiRoute::on(
        "# Stage Index",
        [
            ApiTurn::blocks([ktx("stage_list", json!({}))]),
            ApiTurn::answer("There is nothing to put together."),
        ],
    );
    // The route of the reconcile step is first, because its prompt names the units.
    [pass].into_iter().chain(units).collect()
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn run_with_limit_kill_and_conflict_loses_nothing() {
    let deck = repository(routes());
    let plan = deck.play(&["plan", "--ui", "json"]);
    let planned = plan
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let planned: Vec<String> = planned
        .filter_map(|line| Some(line["unit"].as_str()?.to_owned()))
        .collect();
    assert_eq!(planned.len(), UNITS.len() + BOARDS.len(), "{planned:?}");
    assert!(
        BOARDS
            .iter()
            .all(|(unit, _)| planned.iter().any(|planned| planned == unit)),
        "{planned:?}"
    );

    let mut running = deck
        .command(["run", "--ui", "none", "--concurrency", "4"])
        .spawn()
        .unwrap();
    deck.wait_for("the end of all units except one", |deck| {
        let entries = deck.entries();
        let good = |entry: &&Value| {
            entry["note"]["kind"] == "attempt_ended"
                && entry["note"]["verdict"]["outcome"] == "succeeded"
        };
        (entries.iter().filter(good).count() == planned.len() - 1).then_some(())
    });
    deck.wait_for("the request that is not answered", |deck| {
        let asked = format!("## WorkUnit: {}", LAST.0);
        deck.api
            .requests()
            .iter()
            .any(|request| request.body.contains(&asked))
            .then_some(())
    });
    let agents: Vec<u32> = deck
        .started()
        .iter()
        .filter_map(|started| started.pid)
        .collect();
    kill(
        Pid::from_raw(i32::try_from(running.id()).unwrap()),
        Signal::SIGKILL,
    )
    .unwrap();
    running.wait().unwrap();
    all_gone(&deck, &agents);
    let kinds: Vec<String> = deck
        .entries()
        .iter()
        .filter_map(|entry| Some(entry["note"]["kind"].as_str()?.to_owned()))
        .collect();
    assert!(
        kinds.iter().any(|kind| kind == "limit_lifted"),
        "the limit was met and waited for: {kinds:?}"
    );
    assert_eq!(subjects(&deck), ["Begin"]);
    assert!(
        deck.names("wiki/global").is_empty(),
        "no patch is partly applied"
    );

    let resumed = deck.play(&["run", "--ui", "json", "--resume-run", "latest"]);
    assert_eq!(
        resumed.code,
        Some(100),
        "one of the rivals conflicts: {resumed:#?}"
    );
    let reused = planned.len() - 2;
    assert_eq!(
        resumed.summary()["units"],
        json!({"reused": reused, "succeeded": 2, "failed": 1})
    );
    assert_eq!(resumed.states(RIVALS[0]), ["reused", "integrated"]);
    assert_eq!(resumed.states(RIVALS[1]).last().unwrap(), "conflict");
    assert_eq!(
        resumed.states("reconcile").last().unwrap(),
        "unchanged",
        "the reconcile step ran and wrote nothing"
    );
    let subjects_now = subjects(&deck);
    assert!(
        subjects_now.len() == 2 && subjects_now[0].ends_with(", 1 failed"),
        "{subjects_now:?}"
    );
    assert_eq!(
        deck.names("wiki/global").len(),
        planned.len() - 1,
        "one page per unit, and one for both rivals"
    );
    assert!(
        deck.read("wiki/global/terms.md")
            .contains("As docs-juice has it.")
    );
    is_clean(&deck);
    assert_eq!(
        deck.play(&["replay", "latest", "--ui", "json"]).stdout,
        resumed.stdout
    );
    let report = deck.play(&["report", "latest", "--format", "md"]);
    for sentence in [
        "wiki/global/terms.md with docs-juice",
        "wiki `page-docs-crates` created by `docs-crates`",
    ] {
        assert!(
            report.stdout.contains(sentence),
            "`{sentence}` is missing: {}",
            report.stdout
        );
    }

    let mended = deck.play(&["run", "--ui", "json", "--failed"]);
    assert_eq!(mended.code, Some(0), "{mended:#?}");
    assert!(
        deck.read("wiki/global/terms.md")
            .contains("As both have it.")
    );
    assert_eq!(subjects(&deck).len(), 3);
    is_clean(&deck);
    let nothing = deck.play(&["run", "--ui", "json"]);
    assert!(
        nothing.code == Some(0) && nothing.stderr.contains("nothing to do"),
        "{nothing:#?}"
    );
}
