//! Patches that are integrated while other units still run.

use std::fs;

use serde_json::{Value, json};

use super::{
    end_to_end::newest_tape,
    test_dir::{CommandOutput, TestDir, parse_json_events},
};
use crate::support::git::git;

/// The units with their pages and texts; the page of `b` conflicts with that of `a`.
const UNITS: [(&str, &str, &str); 6] = [
    ("a", "shared", "of a"),
    ("b", "shared", "of b"),
    ("c", "c", "of c"),
    ("d", "d", "of d"),
    ("e", "e", "of e"),
    ("f", "f", "of f"),
];

/// A project with these units, and the log of applied patches.
struct AheadProject {
    place: TestDir,
    claude: String,
    path: String,
}

/// The notes of a kind in the newest record.
fn notes(place: &TestDir, kind: &str) -> Vec<Value> {
    let tape = newest_tape(place);
    let entries = tape
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    entries
        .filter(|entry: &Value| entry["note"]["kind"] == kind)
        .collect()
}

impl AheadProject {
    /// Before an agent works, it executes `wait`, in which `$P` is the directory above the project.
    fn new(wait: &str) -> Self {
        let place = TestDir::new();
        let part = |(unit, page, text): &(&str, &str, &str)| {
            format!(
                r#"
[[part]]
unit = "docs-{unit}"
steps = [
  {{ call = {{ tool = "record_verification_ledger", with = {{ summary = "read", verifiedIdentifiers = [], unverifiedIdentifiers = [] }} }} }},
  {{ call = {{ tool = "wiki_write", with = {{ key = "{page}", summary = "s", content = "{text}" }} }} }},
  {{ say = "done" }},
]
"#
            )
        };
        let script = UNITS.iter().map(part).collect::<String>()
            + "[[part]]\nsteps = [{ say = \"nothing to do\" }]\n";
        let claude = place.scripted_claude(&script);
        let stub = fs::read_to_string(&claude).unwrap();
        let above = place.path("..");
        let line = format!("\nesac\nP='{}'; {wait}\n", above.display());
        fs::write(&claude, stub.replace("\nesac\n", &line)).unwrap();
        place.notes(&UNITS.map(|(unit, ..)| unit));
        place.write(".gitignore", "script.toml\n");
        for args in [
            &["init", "--quiet", "--initial-branch=main"][..],
            &["add", "--all"],
            &["commit", "--quiet", "-m", "first"],
        ] {
            git(&place.path(""), args);
        }
        let log = place.path("../applied");
        fs::write(&log, "").unwrap();
        let body = format!(
            "case \" $* \" in *' apply --3way '*) echo x >> '{}';; esac\nexec /usr/bin/git \"$@\"",
            log.display()
        );
        let git = place.script("git", &body);
        Self {
            path: format!("{}:/usr/bin:/bin", git.parent().unwrap().display()),
            claude: claude.to_str().unwrap().to_owned(),
            place,
        }
    }

    fn run(&self, more: &[&str]) -> CommandOutput {
        let args = ["run", "--claude-bin", &self.claude, "--concurrency", "1"];
        let mut command = self.place.command(&[&args[..], more].concat());
        command.env("PATH", &self.path);
        self.place.ran(command)
    }

    fn applied(&self) -> usize {
        fs::read_to_string(self.place.path("../applied"))
            .unwrap()
            .lines()
            .count()
    }

    /// The results of the patches, in their order.
    fn results(&self) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut results = notes(&self.place, "patch_integrated");
        results.retain(|entry| entry["unit"] != "reconcile");
        results
            .iter()
            .map(|entry| {
                let reason = text(&entry["note"]["verdict"]["reason"]);
                let (unit, result) = (text(&entry["unit"]), text(&entry["note"]["result"]));
                format!("{unit} {result} {reason}").trim_end().to_owned()
            })
            .collect()
    }
}

/// What an integration at the end reports about these units.
const RESULTS: [&str; 6] = [
    "docs-a accepted",
    "docs-b textual_conflict textual conflict in wiki/global/shared.md with docs-a",
    "docs-c accepted",
    "docs-d accepted",
    "docs-e accepted",
    "docs-f accepted",
];

#[test]
fn finished_units_are_integrated_while_others_run() {
    // Each agent waits until the patches of all units before it are applied.
    let project = AheadProject::new(
        "touch \"$P/begun\"; N=$(wc -l < \"$P/begun\"); echo x >> \"$P/begun\"; I=0; \
         while [ $(wc -l < \"$P/applied\") -lt $N ]; do I=$((I+1)); [ $I -gt 200 ] && exit 9; sleep 0.1; done",
    );
    let ran = project.run(&[]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    assert_eq!(project.results(), RESULTS);
    assert_eq!(project.applied(), UNITS.len(), "none is applied again");
    let place = project.place.path("");
    assert_eq!(git(&place, &["rev-list", "--count", "HEAD"]).trim(), "2");
    let shared = fs::read_to_string(place.join("wiki/global/shared.md")).unwrap();
    assert!(shared.ends_with("of a\n"), "{shared}");
    assert_eq!(git(&place, &["worktree", "list"]).lines().count(), 1);
    assert_progress_is_reported(&project.place);
}

/// Long runs have notes about the progress, which are printed.
fn assert_progress_is_reported(place: &TestDir) {
    let tape = newest_tape(place);
    let last: Value = serde_json::from_str(tape.lines().last().unwrap()).unwrap();
    let advanced = json!({"kind": "integration_advanced", "patches": 120, "refused": 1});
    let (seq, at) = (last["seq"].as_u64().unwrap() + 1, &last["at"]);
    let entry = format!("{{\"seq\":{seq},\"at\":{at},\"note\":{advanced}}}\n");
    let tape = place.write("longer.jsonl", tape + &entry);
    let replay = |ui| place.run(&["replay", tape.to_str().unwrap(), "--ui", ui]);
    let lines = replay("lines");
    let text = "120 patches integrated so far, 1 of them refused";
    assert!(lines.expect_success().contains(text), "{lines:?}");
    let events = parse_json_events(replay("json").expect_success());
    let wanted = json!({"type": "run", "state": "integrating_ahead", "patches": 120, "refused": 1});
    assert!(events.iter().any(|line| line["event"] == wanted));
}

/// A commit of a person during the run changes what the patches apply to.
#[test]
fn commit_during_the_run_is_what_patches_apply_to() {
    let project = AheadProject::new(
        "echo x >> \"$P/begun\"; N=$(wc -l < \"$P/begun\"); I=0; \
         while [ $N = 6 ] && [ $(wc -l < \"$P/applied\") -lt 5 ]; do I=$((I+1)); [ $I -gt 200 ] && exit 9; sleep 0.1; done; \
         if [ $N = 6 ]; then cd \"$P/work\"; mkdir -p wiki/global; printf -- '---\\nsummary: s\\n---\\n\\nmine\\n' > wiki/global/c.md; \
         /usr/bin/git -c user.name=a -c user.email=a@b add wiki; \
         /usr/bin/git -c user.name=a -c user.email=a@b commit -qm mine > /dev/null; fi",
    );
    let ran = project.run(&[]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    let mut wanted = RESULTS.map(str::to_owned);
    wanted[2] =
        "docs-c textual_conflict textual conflict in wiki/global/c.md with the current state of the branch"
            .into();
    assert_eq!(project.results(), wanted);
    assert_eq!(project.applied(), 5 + UNITS.len());
}

/// The engine is killed at each step of an integration in the background, while another unit runs.
#[test]
fn killed_integration_ahead_loses_and_doubles_nothing() {
    let moments = [
        ("*' apply --numstat '*", false),
        ("*' apply --3way '*", true),
        ("*' diff-index --cached --raw '*", false),
        ("*' write-tree '*", true),
        ("*' commit-tree -p HEAD '*", true),
        ("*' update-ref --end-of-options HEAD '*", false),
        ("*' update-ref --end-of-options HEAD '*", true),
    ];
    for (pattern, after) in moments {
        let project = AheadProject::new(
            "if [ -e \"$P/begun\" ] && [ -e \"$P/kill\" ]; then sleep 20; fi; echo x > \"$P/begun\"",
        );
        let place = &project.place;
        fs::write(place.path("../kill"), "").unwrap();
        let real = fs::read_to_string(place.path("../bin/git")).unwrap();
        let act = match after {
            true => "/usr/bin/git \"$@\"; kill -9 $PPID; exit",
            false => "kill -9 $PPID; exit 1",
        };
        place.script(
            "git",
            &format!("case \" $* \" in {pattern}) {act};; esac\nexec /usr/bin/git \"$@\""),
        );
        let head = git(&place.path(""), &["rev-parse", "HEAD"]);
        let killed = project.run(&[]);
        assert_eq!(killed.code, None, "{pattern}: {killed:?}");
        assert_eq!(notes(place, "integrating"), [] as [Value; 0], "{pattern}");
        assert_eq!(git(&place.path(""), &["rev-parse", "HEAD"]), head);
        fs::write(place.path("../bin/git"), real).unwrap();
        fs::remove_file(place.path("../kill")).unwrap();
        let resumed = project.run(&["--resume-run", "latest"]);
        assert_eq!(resumed.code, Some(100), "{pattern}: {resumed:?}");
        assert_eq!(project.results(), RESULTS, "{pattern}");
        // The first unit is reused, and the reconcile step is one more attempt.
        assert_eq!(
            notes(place, "attempt_ended").len(),
            UNITS.len(),
            "{pattern}"
        );
        let root = place.path("");
        assert_eq!(git(&root, &["rev-list", "--count", "HEAD"]).trim(), "2");
        assert_eq!(git(&root, &["worktree", "list"]).lines().count(), 1);
        assert_eq!(git(&root, &["branch"]).lines().count(), 1, "{pattern}");
    }
}
