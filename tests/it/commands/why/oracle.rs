//! The answers of `why` on whole runs, compared with an oracle that knows nothing of tapes: the files are copied from the
//! worktree of an attempt after each of its calls, committed one by one to another repository, merged as in the run, and
//! `git blame` names the commit of each line.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use rusqlite::Connection;
use serde_json::{Value, json};

use super::super::{end_to_end::newest_tape, test_dir::TestDir};
use crate::support::git::git;
use ingestdeck_core::run::state::RECONCILE_KEY;

/// Directories that attempts change.
const WRITTEN: [&str; 2] = ["wiki", "semantic-layer"];

/// A `claude` that plays `script` and copies the worktree before each answer of a tool reaches the agent, as
/// `snaps/<process>/<number of the line>`. It counts the processes of each worktree, and so the attempts at its unit.
fn copying_claude(place: &TestDir, script: &str) -> String {
    let script = place.write("../script.toml", script);
    for dir in ["../snaps", "../attempts"] {
        fs::create_dir_all(place.path(dir)).unwrap();
    }
    let body = format!(
        r#"d='{snaps}'/$$; mkdir "$d"; n=0
count='{attempts}'/$(cd .ktx/worktrees && echo session-*); echo x >> "$count"
while IFS= read -r line; do
  n=$((n+1))
  case "$line" in *mcp_response*) cp -r .ktx/worktrees "$d/$n";; esac
  printf '%s\n' "$line"
done | '{exe}' scripted-agent --speed 200 --script '{script}' --attempt "$(grep -c x "$count")" -- "$@""#,
        snaps = place.path("../snaps").display(),
        attempts = place.path("../attempts").display(),
        exe = crate::support::program(),
        script = script.display(),
    );
    place.claude(&body).display().to_string()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        let to = to.join(from.file_name().unwrap());
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).unwrap();
        }
    }
}

/// An attempt that the message of a commit names.
struct MergedAttempt {
    unit: String,
    number: u64,
}

impl MergedAttempt {
    fn parse_all(message: &str) -> Vec<Self> {
        let values = |key: &'static str| {
            message
                .lines()
                .filter_map(move |line| line.strip_prefix(key).map(str::to_owned))
        };
        let numbers = values("Ingest-Attempt: ").map(|number| number.parse().unwrap());
        values("Ingest-Unit: ")
            .zip(numbers)
            .map(|(unit, number)| Self { unit, number })
            .collect()
    }

    /// Its process, and the call that each line of the process's input answers, from the tape.
    fn calls_by_input(&self, tape: &str) -> (u64, BTreeMap<usize, String>) {
        let (mut process, mut requests, mut inputs, mut calls) =
            (None, BTreeMap::new(), 0, BTreeMap::new());
        for line in tape.lines().skip(1) {
            let entry: Value = serde_json::from_str(line).unwrap();
            if entry["unit"] != self.unit || entry["try"] != self.number {
                continue;
            }
            process = process.or(entry["note"]["pid"].as_u64());
            if let Some(call) =
                entry["out"]["request"]["message"]["params"]["_meta"]["claudecode/toolUseId"]
                    .as_str()
            {
                requests.insert(
                    entry["out"]["request_id"].as_str().unwrap().to_owned(),
                    call.to_owned(),
                );
            }
            if let Some(input) = entry.get("in") {
                inputs += 1;
                if let Some(call) = input["response"]["request_id"]
                    .as_str()
                    .and_then(|id| requests.get(id))
                {
                    calls.insert(inputs, call.clone());
                }
            }
        }
        (process.unwrap(), calls)
    }
}

/// `script` with all its identifiers in each verification ledger, so that no write is refused because of them.
fn with_full_ledger(script: &str) -> String {
    fn visit(value: &mut Value, names: &Value) {
        if value.is_object() && value["tool"] == "record_verification_ledger" {
            value["with"]["verifiedIdentifiers"] = names.clone();
        }
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| visit(item, names)),
            Value::Object(fields) => fields.values_mut().for_each(|field| visit(field, names)),
            _ => {}
        }
    }
    let mut value: Value = toml::from_str(script).unwrap();
    visit(&mut value, &json!([script]));
    toml::to_string(&value).unwrap()
}

/// The expected or answered origin of a line: unit, attempt and call. `None` for a line that no attempt wrote.
type Origin = Option<(String, u64, String)>;

/// A project whose runs are repeated in another repository, one commit for each call.
struct Oracle<'a> {
    place: &'a TestDir,
    repository: PathBuf,
}

impl<'a> Oracle<'a> {
    /// Commits the files of the project.
    fn new(place: &'a TestDir) -> Self {
        git(
            &place.path(""),
            &["init", "--quiet", "--initial-branch=main"],
        );
        git(&place.path(""), &["add", "--all"]);
        git(&place.path(""), &["commit", "--quiet", "-m", "start"]);
        git(
            &place.path(".."),
            &[
                "clone",
                "--quiet",
                place.path("").to_str().unwrap(),
                "oracle",
            ],
        );
        Self {
            place,
            repository: place.path("../oracle"),
        }
    }

    fn git(&self, args: &[&str]) -> String {
        git(&self.repository, args)
    }

    /// Commits the pages and sources below `from` as the content of the oracle.
    fn commit(&self, from: &Path, message: &str) {
        for name in WRITTEN {
            let _ = fs::remove_dir_all(self.repository.join(name));
            if from.join(name).is_dir() {
                copy(&from.join(name), &self.repository.join(name));
            }
        }
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "-m", message]);
    }

    /// Commits what the test changed in the project, as its user.
    fn commit_by_user(&self) {
        git(&self.place.path(""), &["add", "--all"]);
        git(
            &self.place.path(""),
            &["commit", "--quiet", "-m", "by hand"],
        );
        self.commit(&self.place.path(""), "by hand");
    }

    /// Runs the project and repeats its attempts: every call is a commit `unit attempt call` on the commit before the
    /// run, and the attempts are merged in the order of the run. Returns their number.
    fn run(&self, script: &str) -> usize {
        let script = &with_full_ledger(script);
        let (place, claude) = (self.place, copying_claude(self.place, script));
        place.write("../config.toml", "[retry]\ninitial_delay_ms = 1\n");
        let args = [
            "run",
            "--ui",
            "none",
            "--concurrency",
            "1",
            "--config",
            "../config.toml",
            "--claude-bin",
            &claude,
        ];
        let ran = place.run(&args);
        assert!(matches!(ran.code, Some(0 | 100)), "{ran:?}");
        let attempts =
            MergedAttempt::parse_all(&git(&place.path(""), &["log", "-1", "--format=%B"]));
        let tape = newest_tape(place);
        self.git(&["tag", "--force", "base"]);
        for attempt in &attempts {
            let MergedAttempt { unit, number } = attempt;
            self.git(&[
                "checkout",
                "--quiet",
                "-B",
                unit,
                if unit == RECONCILE_KEY {
                    "main"
                } else {
                    "base"
                },
            ]);
            let (process, calls) = attempt.calls_by_input(&tape);
            let snaps = place.path("../snaps").join(process.to_string());
            for (input, call) in calls {
                let trees = fs::read_dir(snaps.join(input.to_string()))
                    .unwrap()
                    .map(|tree| tree.unwrap().path());
                let of_unit =
                    |tree: &PathBuf| tree.to_str().unwrap().ends_with(&format!("-{unit}"));
                self.commit(
                    &trees.into_iter().find(of_unit).unwrap(),
                    &format!("{unit} {number} {call}"),
                );
            }
            self.git(&["checkout", "--quiet", "main"]);
            self.git(&["merge", "--quiet", "--no-ff", "-m", "merge", unit]);
        }
        attempts.len()
    }

    /// The origin of each line of `file`.
    fn expected(&self, file: &str) -> Vec<Origin> {
        let blamed = self.git(&["blame", "--line-porcelain", "main", "--", file]);
        let summaries = blamed
            .lines()
            .filter_map(|line| line.strip_prefix("summary "));
        let origin = |summary: &str| {
            let (attempt, call) = summary.rsplit_once(' ')?;
            let (unit, number) = attempt.rsplit_once(' ')?;
            Some((unit.to_owned(), number.parse().ok()?, call.to_owned()))
        };
        summaries.map(origin).collect()
    }

    /// The same of the answers of `why`.
    fn answered(&self, file: &str) -> Vec<Origin> {
        let ran = self.place.run(&["why", file, "--ui", "json"]);
        let mut lines = Vec::new();
        for line in ran.expect_success().lines() {
            let group: Value = serde_json::from_str(line).unwrap();
            assert_eq!(
                group["first_line"].as_u64().unwrap() as usize,
                lines.len() + 1,
                "{group}"
            );
            let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
            let answer = match group["origin"].as_str() {
                Some("commit") => None,
                _ => {
                    let attempt = &group["attempt"];
                    let number = attempt["attempt"].as_u64().unwrap_or_default();
                    Some((text(&attempt["unit"]), number, text(&group["call"]["id"])))
                }
            };
            lines.resize(group["last_line"].as_u64().unwrap() as usize, answer);
        }
        lines
    }

    /// Asserts that at least 98 % of the lines of all pages and sources, without those of `except`, have the right
    /// answer, and that at least `least` lines were compared.
    fn assert_agreement(&self, least: usize, except: Option<&str>) {
        let (mut wrong, mut all) = (Vec::new(), 0);
        let files = self.git(&["ls-files", "--", "wiki", "semantic-layer"]);
        for file in files.lines().filter(|file| except != Some(file)) {
            let committed = fs::read_to_string(self.place.path(file)).unwrap();
            let repeated = fs::read_to_string(self.repository.join(file)).unwrap();
            assert_eq!(repeated, committed, "the oracle has another text of {file}");
            let (expected, answered) = (self.expected(file), self.answered(file));
            assert_eq!(expected.len(), answered.len(), "{file}");
            all += expected.len();
            for (line, (expected, answered)) in expected.iter().zip(&answered).enumerate() {
                if expected != answered {
                    wrong.push(format!(
                        "{file}:{}: expected {expected:?}, but got {answered:?}",
                        line + 1
                    ));
                }
            }
        }
        let right = all - wrong.len();
        let share = format!(
            "{right} of {all} lines have the right attempt and call\n{}",
            wrong.join("\n")
        );
        eprintln!("{share}");
        assert!(all >= least, "only {all} lines were compared");
        assert!(right * 100 >= all * 98, "{share}");
    }
}

#[test]
fn why_agrees_with_blame_on_the_demo_project() {
    let place = TestDir::new();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/demo");
    copy(&demo.join("project"), &place.path(""));
    place.write(".gitignore", ".ktx/\n");
    let oracle = Oracle::new(&place);
    assert!(oracle.run(&fs::read_to_string(demo.join("script.toml")).unwrap()) > 1);
    oracle.assert_agreement(150, None);
}

/// Units that write their files several times, change the same page and source, and remove and create a page again, and
/// a reconcile step that changes their lines.
#[test]
fn why_agrees_with_blame_on_merged_writes() {
    let place = TestDir::new();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/projects/orchard/sources/handbook");
    for file in ["crates.md", "growers.md", "juice.md", "payments.md"] {
        place.write(
            &format!("handbook/{file}"),
            fs::read(fixture.join(file)).unwrap(),
        );
    }
    let settings = "connections:\n  shop:\n    driver: sqlite\n    url: sqlite:shop.db\n  orchard:\n    driver: docs\n    source_dir: handbook\nllm:\n  provider:\n    backend: claude-code\n";
    place.write("ktx.yaml", settings);
    place.write(".gitignore", ".ktx/\nshop.db\n");
    let database = Connection::open(place.path("shop.db")).unwrap();
    database
        .execute_batch(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, total INTEGER, crates INTEGER)",
        )
        .unwrap();
    let shared: String = (1..=40)
        .map(|number| format!("Line {number} of the handbook.\n"))
        .collect();
    let front = "---\nsummary: Shared\nusage_mode: auto\nsort_order: 0\n---\n\n";
    place.write("wiki/global/shared.md", format!("{front}{shared}"));
    let least = shared.lines().count() + 80;
    let oracle = Oracle::new(&place);
    assert_eq!(oracle.run(include_str!("script.toml")), 5);
    oracle.assert_agreement(least, None);
}

/// Metrics of the glossary of the project in `tests/fixtures/projects/orbit`, before its first run.
const METRICS: [&str; 7] = [
    "arr",
    "net_revenue",
    "gross_revenue",
    "net_revenue_retention",
    "activated_accounts",
    "contract_arr_band",
    "segment",
];

/// Two runs of a project with models, dashboards and documents: five units of the first change a glossary that was
/// written by hand, units of the second change pages of the first, and in both an attempt fails and is repeated. One
/// unit fails in the first run and succeeds in the second, and the user edits a page and the files in between.
///
/// One page is removed and written again by the same attempt. Its unchanged lines belong to that attempt for an oracle
/// which sees the removal, but the commit of the run does not contain them.
#[test]
fn why_agrees_with_blame_on_the_orbit_project() {
    let place = TestDir::new();
    copy(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/projects/orbit"),
        &place.path(""),
    );
    place.write(".gitignore", ".ktx/\n");
    let metrics: String = METRICS
        .iter()
        .map(|metric| format!("\n## {metric}\n\nNot described yet.\n"))
        .collect();
    let front = "---\nsummary: Governed metrics of Orbit\nusage_mode: auto\nsort_order: 0\n---\n";
    place.write(
        "wiki/global/orbit-metrics.md",
        format!("{front}\n# Metrics\n{metrics}"),
    );
    let oracle = Oracle::new(&place);
    assert_eq!(
        oracle.run(include_str!("orbit/first.toml")),
        12,
        "eleven units and the reconcile step"
    );
    oracle.assert_agreement(330, None);

    let edit = |file: &str, from: &str, to: &str| {
        let text = fs::read_to_string(place.path(file)).unwrap();
        assert!(text.contains(from), "{from} is not in {text}");
        place.write(file, text.replace(from, to));
    };
    let notes = "sources/notion";
    edit(
        &format!("{notes}/revenue-reporting-policy.md"),
        "Owner: Rina Patel",
        "Reviewed every month. Owner: Rina Patel",
    );
    let grain = "Reactivations within 30 days";
    edit(
        &format!("{notes}/retention-and-nrr-definition-notes.md"),
        grain,
        "Reactivations within 60 days",
    );
    edit(
        "sources/bi/revenue_exec.dashboard.lookml",
        "Credits",
        "Credits and Refunds",
    );
    fs::remove_file(place.path(&format!("{notes}/analyst-onboarding.md"))).unwrap();
    edit(
        "wiki/global/segments.md",
        "- commercial\n",
        "- commercial, also named mid market\n",
    );
    oracle.commit_by_user();
    assert_eq!(
        oracle.run(include_str!("orbit/second.toml")),
        5,
        "four units and the reconcile step"
    );
    let again = "wiki/global/dashboard-revenue-exec.md";
    oracle.assert_agreement(360, Some(again));
    let attempts: Vec<u64> = oracle
        .answered(again)
        .into_iter()
        .map(|origin| origin.unwrap().1)
        .collect();
    let (first, second) = attempts.split_at(13);
    assert_eq!(
        (first, second),
        (&[2; 13][..], &[1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2][..]),
        "the second run added a section"
    );
}
