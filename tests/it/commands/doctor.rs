//! Refusals and warnings: `doctor` reports a failure where a run refuses, with the same text, and each remedy works.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    os::unix::{
        fs::{PermissionsExt as _, symlink},
        process::CommandExt as _,
    },
    path::Path,
    thread,
};

use nix::unistd::Uid;
use serde_json::Value;

use super::test_dir::{CommandOutput, TestDir};
use crate::support::git::git;

/// A script with a model cost and a unit that fails.
const SCRIPT: &str = r#"
[usd_per_million]
input = 1000.0
output = 1000.0
[[part]]
unit = "docs-bad"
steps = [{ call = { tool = "wiki_write", with = { key = "../x", summary = "s", content = "c" } } }]
"#;

/// A script part that writes the page `key`.
fn part(unit: &str, key: &str) -> String {
    format!(
        r#"
[[part]]
unit = "{unit}"
steps = [
  {{ call = {{ tool = "record_verification_ledger", with = {{ summary = "Read it." }} }} }},
  {{ call = {{ tool = "wiki_write", with = {{ key = "{key}", summary = "s", content = "Text." }} }} }},
]"#
    )
}

/// A project of one unit and the `claude` that plays it.
fn project() -> (TestDir, String) {
    let place = TestDir::new();
    place.notes(&["one"]);
    let script = format!(
        "{}\n[[part]]\nsteps = [{{ say = \"nothing to do\" }}]",
        part("docs-one", "page")
    );
    let claude = place.scripted_claude(&script).to_str().unwrap().to_owned();
    (place, claude)
}

fn commit(root: &Path) {
    git(root, &["init", "--quiet", "--initial-branch=main"]);
    git(root, &["add", "--all"]);
    git(root, &["commit", "--quiet", "-m", "first"]);
}

/// The texts of the failed checks.
fn failures(doctor: &CommandOutput) -> Vec<String> {
    let findings = doctor
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    findings
        .filter(|finding| finding["result"] == "fail")
        .map(|finding| finding["text"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn doctor_fails_where_a_run_cannot_write() {
    type HarmfulState = (&'static str, fn(&Path));
    let harms: [HarmfulState; 6] = [
        (".ktx is a file", |root| {
            fs::write(root.join(".ktx"), "").unwrap()
        }),
        (".ktx/ingestdeck is a file", |root| {
            fs::create_dir(root.join(".ktx")).unwrap();
            fs::write(root.join(".ktx/ingestdeck"), "").unwrap();
        }),
        ("runs is a file", |root| {
            fs::create_dir_all(root.join(".ktx/ingestdeck")).unwrap();
            fs::write(root.join(".ktx/ingestdeck/runs"), "").unwrap();
        }),
        ("the lock is a directory", |root| {
            fs::create_dir_all(root.join(".ktx/ingestdeck/ingest.lock")).unwrap()
        }),
        ("the state directory is a link", |root| {
            fs::create_dir(root.join(".ktx")).unwrap();
            symlink("..", root.join(".ktx/ingestdeck")).unwrap();
        }),
        ("the directory in .git is a file", |root| {
            fs::write(root.join(".git/ingestdeck"), "").unwrap()
        }),
    ];
    for (what, harm) in harms {
        let (place, claude) = project();
        commit(&place.path(""));
        harm(&place.path(""));
        let doctor = place.run(&["doctor", "--ui", "json", "--claude-bin", &claude]);
        let ran = place.run(&["run", "--ui", "none", "--claude-bin", &claude]);
        assert_ne!(ran.code, Some(0), "{what}: {ran:?}");
        let sentence = ran
            .stderr
            .lines()
            .last()
            .unwrap()
            .trim_start_matches("error: ");
        assert_eq!(
            (doctor.code, failures(&doctor)),
            (Some(96), vec![sentence.to_owned()]),
            "{what}"
        );
    }
}

#[test]
#[ignore = "needs curl"]
fn doctor_asks_for_updates_only_on_request() {
    let (place, claude) = project();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let option = format!("--updates=http://{}/newest", listener.local_addr().unwrap());
    let answers = [
        (
            "200 OK",
            r#"{"tag_name":"v99.0.1"}"#,
            "99.0.1 is newer than this",
        ),
        (
            "200 OK",
            r#"{"tag_name":"v0.0.1"}"#,
            "no newer release than this",
        ),
        (
            "200 OK",
            r#"{"tag_name":"main\u001b[2J"}"#,
            "is not a version",
        ),
        (
            "200 OK",
            "<html>",
            "does not name a release: expected value",
        ),
        ("404 Not Found", "", "does not name a release: curl: (22)"),
    ];
    let server = thread::spawn(move || {
        for (status, body, _) in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
            write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
        }
    });
    for (_, _, expected) in answers {
        let doctor = place.run(&["doctor", "--ui", "json", "--claude-bin", &claude, &option]);
        let finding = doctor.stdout.lines().last().unwrap().to_owned();
        assert!(
            finding.contains(r#""check":"updates""#) && finding.contains(expected),
            "{expected}: {finding}"
        );
        assert_eq!(doctor.code, Some(0), "{expected}");
    }
    server.join().unwrap();
    let refused = place.run(&["doctor", "--claude-bin", &claude, &option]);
    assert!(
        refused
            .stdout
            .contains("does not name a release: curl: (7)"),
        "{refused:?}"
    );
    let unasked = place.run(&["doctor", "--ui", "json", "--claude-bin", &claude]);
    assert!(!unasked.stdout.contains("updates"), "{unasked:?}");
}

#[test]
fn doctor_ends_with_its_conclusion() {
    let (place, claude) = project();
    commit(&place.path(""));
    let last = |doctor: CommandOutput| doctor.stdout.lines().last().unwrap().to_owned();
    let ask = || place.run(&["doctor", "--claude-bin", &claude]);
    assert!(last(ask()).starts_with("ready"), "{:?}", ask());
    fs::write(place.path(".ktx"), "").unwrap();
    let failed = ask();
    let checks = failed.stdout.lines().count() - 2;
    assert_eq!(
        last(failed),
        format!("not ready: 1 of {checks} checks failed")
    );
}

#[test]
fn doctor_fails_in_a_directory_that_the_user_cannot_write() {
    let (place, claude) = project();
    // The superuser may write everywhere, so run as another user.
    let unprivileged = Uid::effective().is_root().then_some(65534);
    for path in ["..", "../home", "../tmp", "../bin"] {
        fs::set_permissions(place.path(path), fs::Permissions::from_mode(0o777)).unwrap();
    }
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o555)).unwrap();
    let run = |args: &[&str]| {
        let mut command = place.command(args);
        if let Some(id) = unprivileged {
            command.uid(id).gid(id);
        }
        command
    };
    if unprivileged.is_some() && run(&["--version"]).output().is_err() {
        println!("not checked: another user cannot execute the program");
        return;
    }
    let doctor = place.ran(run(&["doctor", "--ui", "json", "--claude-bin", &claude]));
    let ran = place.ran(run(&["run", "--ui", "none", "--claude-bin", &claude]));
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let sentence = ran.expect_refusal(1);
    assert!(
        sentence.starts_with("cannot lock the project: "),
        "{sentence}"
    );
    assert!(
        sentence.ends_with("; make the directory writable"),
        "{sentence}"
    );
    assert!(
        failures(&doctor).iter().any(|failure| failure == sentence),
        "{doctor:?}"
    );
}

#[test]
fn project_in_a_larger_repository_runs_after_the_remedy() {
    let (place, claude) = project();
    fs::create_dir(place.path("data")).unwrap();
    for name in ["ktx.yaml", "notes"] {
        fs::rename(place.path(name), place.path("data").join(name)).unwrap();
    }
    let (top, root) = (place.path(""), place.path("data"));
    commit(&top);
    let run = |args: &[&str]| {
        let mut command = place.command(args);
        command.current_dir(&root);
        place.ran(command)
    };
    let ran = run(&["run", "--claude-bin", &claude]);
    let remedy = "git init && git add -A && git commit -m start";
    assert!(
        ran.expect_refusal(2)
            .contains(&format!("`{remedy}` in the project")),
        "{ran:?}"
    );
    for words in remedy.split(" && ") {
        git(&root, &words.split(' ').skip(1).collect::<Vec<_>>());
    }
    assert!(
        run(&["run", "--ui", "lines", "--claude-bin", &claude])
            .expect_success()
            .contains("2 succeeded")
    );
    assert!(
        git(&top, &["status", "--porcelain", "--untracked-files=all"])
            .contains("data/wiki/global/page.md")
    );
    git(&top, &["add", "--all"]);
    assert!(git(&top, &["ls-files"]).contains("data/wiki/global/page.md"));
}

#[test]
fn linked_worktree_gets_the_commit_of_a_clone() {
    let (place, claude) = project();
    commit(&place.path(""));
    git(
        &place.path(""),
        &["worktree", "add", "--quiet", "-b", "side", "../linked tree"],
    );
    let (linked, clone) = (
        place.path("../linked tree").canonicalize().unwrap(),
        place.path("../clone"),
    );
    let run = |root: &Path| {
        let mut command = place.command(&["run", "--ui", "lines", "--claude-bin", &claude]);
        command.current_dir(root);
        place.ran(command)
    };
    let refused = run(&linked);
    let remedy = format!(
        "`git clone '{}' DIR`, run in DIR, then `git pull DIR` here",
        linked.display()
    );
    assert!(refused.expect_refusal(2).contains(&remedy), "{refused:?}");
    let clone_name = clone.to_str().unwrap();
    git(
        &linked,
        &["clone", "--quiet", linked.to_str().unwrap(), clone_name],
    );
    let ran = run(&clone);
    assert!(ran.expect_success().contains("2 succeeded"), "{ran:?}");
    git(&linked, &["pull", "--quiet", clone_name]);
    assert!(linked.join("wiki/global/page.md").exists());
}

#[test]
fn relative_entries_of_the_path_are_named() {
    let place = TestDir::new();
    place.notes(&["one"]);
    let with_path = |args: &[&str]| {
        let mut command = place.command(args);
        command.env("PATH", "/usr/bin:.:node_modules/.bin:/bin:");
        place.ran(command)
    };
    let named = "`.`, `node_modules/.bin`, an empty one; write them as absolute paths";
    let ran = with_path(&["run"]);
    assert!(
        ran.stderr.contains("claude is not on the PATH") && ran.stderr.contains(named),
        "{ran:?}"
    );
    let doctor = with_path(&["doctor", "--ui", "lines"]);
    assert!(
        doctor
            .stdout
            .lines()
            .any(|line| line.starts_with("note") && line.ends_with(named)),
        "{doctor:?}"
    );
}

#[test]
fn skipped_links_are_folded_except_for_programs() {
    let place = TestDir::new();
    place.notes(&["one"]);
    for name in ["b.md", "c.md", "d.md", "e.md"] {
        symlink("../ktx.yaml", place.path("notes").join(name)).unwrap();
    }
    let plan = place.run(&["plan"]);
    plan.expect_success();
    let folded = "warning: connection notes: 4 symbolic links are skipped: b.md, c.md, d.md and 1 more; only \
                  files inside the source are read\n";
    assert_eq!(plan.stderr, folded);
    let json = place.run(&["plan", "--ui", "json"]);
    json.expect_success();
    assert_eq!(
        json.stderr.matches("it is a symbolic link").count(),
        4,
        "{json:?}"
    );
}

#[test]
fn a_branch_that_is_not_checked_out_is_named() {
    let place = TestDir::new();
    place.write(
        "ktx.yaml",
        "connections:\n  bi: {driver: docs, repoUrl: \"file:bi\", branch: dev}\n",
    );
    place.write("bi/a.md", "# a\n");
    git(
        &place.path("bi"),
        &["init", "--quiet", "--initial-branch=main"],
    );
    let remark = "branch `dev` has no effect: a local repository is read as it is checked out, on branch `main`";
    let plan = place.run(&["plan"]);
    plan.expect_success();
    assert!(
        plan.stderr
            .contains(&format!("warning: connection bi: {remark}")),
        "{plan:?}"
    );
    let doctor = place.run(&["doctor", "--ui", "lines"]);
    let found = doctor
        .stdout
        .lines()
        .find(|line| line.contains("connection bi"))
        .unwrap();
    assert!(
        found.starts_with("note  connection bi gives 1 unit; ") && found.contains(remark),
        "{doctor:?}"
    );
    git(
        &place.path("bi"),
        &["symbolic-ref", "HEAD", "refs/heads/dev"],
    );
    assert_eq!(place.run(&["plan"]).stderr, "");
}

#[test]
fn allowed_paths_name_the_real_settings_file() {
    let place = TestDir::new();
    place.write(
        "ktx.yaml",
        "connections:\n  x: {driver: docs, source_dir: ../data}\n",
    );
    place.write("../data/a.md", "# a\n");
    let plan = place.run(&["plan"]);
    assert!(
        plan.stderr
            .contains("in your settings (~/.config/ingestdeck/config.toml)"),
        "{plan:?}"
    );
    let mut command = place.command(&["plan"]);
    command.env("XDG_CONFIG_HOME", place.path("../tmp"));
    let elsewhere = place.ran(command);
    let file = place.path("../tmp/ingestdeck/config.toml");
    assert!(
        elsewhere.stderr.contains(&format!("({})", file.display())),
        "{elsewhere:?}"
    );
    let missing = crate::support::missing("data");
    let settings = place.write(
        "settings.toml",
        format!("[ingest]\nallow_paths = [\"{missing}\"]\n"),
    );
    let settings = settings.to_str().unwrap();
    let plan = place.run(&["plan", "--config", settings]);
    assert!(
        plan.stderr
            .contains(&format!("in your settings ({settings})")),
        "{plan:?}"
    );
    let warning = format!(
        "`{missing}` does not exist, so ingest.allow_paths allows nothing there; correct or remove it"
    );
    assert!(
        plan.stderr.contains(&format!("warning: {warning} (")),
        "{plan:?}"
    );
    let doctor = place.run(&["doctor", "--config", settings]);
    assert!(
        doctor.stdout.contains(&format!("note  {warning} (")),
        "{doctor:?}"
    );
}

#[test]
fn dash_as_out_is_stdout() {
    let (place, claude) = project();
    place
        .run(&["run", "--ui", "none", "--claude-bin", &claude])
        .expect_success();
    for command in [&["report"][..], &["runs", "export"]] {
        let plain = place.run(command);
        let dash = place.run(&[command, &["--out", "-"]].concat());
        assert_eq!(plain.expect_success(), dash.expect_success());
        assert!(!plain.stdout.is_empty() && !place.path("-").exists());
    }
}

#[test]
fn debug_log_has_the_report_of_a_failure() {
    let (place, _) = project();
    let ran = place.run(&["runs", "show", "nosuch", "--debug"]);
    assert!(ran.expect_refusal(4).contains("nosuch"), "{ran:?}");
    let log = fs::read_to_string(place.path("ingestdeck-debug.log")).unwrap();
    assert!(
        log.contains("failed report=") && log.contains("nosuch"),
        "{log}"
    );
    assert!(log.contains("   0: no run matches \"nosuch\""), "{log}");
}

#[test]
fn debug_log_lists_commands_without_secrets() {
    let (place, claude) = project();
    commit(&place.path(""));
    let mut command = place.command(&["run", "--debug", "--ui", "none", "--claude-bin", &claude]);
    command
        .env("GITHUB_TOKEN", "aVerySecretValue1234")
        .env("CLAUDE_CODE_OAUTH_TOKEN", "oauth-secret-5678-abcd");
    place.ran(command).expect_success();
    let path = place.path("ingestdeck-debug.log");
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let log = fs::read_to_string(path).unwrap();
    for part in [
        concat!("started version=\"", env!("CARGO_PKG_VERSION")),
        "command=\"run\"",
        "git ended command=\"status\" ms=",
        "code=0",
        "--strict-mcp-config",
        "unit=\"docs-one\" attempt=1 outcome=Succeeded cause=\"completed\"",
        "ended exit=Ok",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert!(
        !log.contains("aVerySecretValue") && !log.contains("oauth-secret"),
        "{log}"
    );
    assert!(!log.contains("Read it."), "{log}");
}

#[test]
fn forecast_leaves_out_reused_units() {
    let place = TestDir::new();
    place.notes(&["a", "b", "c", "bad"]);
    let script = format!(
        "{SCRIPT}{}",
        ["a", "b", "c"]
            .map(|name| part(&format!("docs-{name}"), name))
            .concat()
    );
    let claude = place.scripted_claude(&script).to_str().unwrap().to_owned();
    assert_eq!(
        place
            .run(&["run", "--ui", "none", "--claude-bin", &claude])
            .code,
        Some(100)
    );
    let plan = place.run(&["plan", "--resume-run", "latest", "--ui", "json"]);
    let units: Vec<Value> = plan
        .expect_success()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let costs = |reused: bool| -> Vec<f64> {
        let units = units
            .iter()
            .filter(|unit| (unit["reused"] == true) == reused);
        units
            .map(|unit| unit["forecast"]["costUsd"]["p90"].as_f64().unwrap())
            .collect()
    };
    assert_eq!(costs(true), [0.0; 3], "{plan:?}");
    let [rest] = costs(false)[..] else {
        panic!("{plan:?}")
    };
    assert!(rest > 0.0);
    let table = place.run(&["plan", "--resume-run", "latest"]);
    // A range whose ends are equal is one value.
    let amount = |line: &str| {
        line.split(',')
            .next()
            .unwrap()
            .rsplit('$')
            .next()
            .unwrap()
            .to_owned()
    };
    let line = |start: &str| {
        table
            .expect_success()
            .lines()
            .find(|line| line.starts_with(start))
            .unwrap()
    };
    assert_eq!(
        amount(line("docs-bad")),
        amount(line("forecast: ")),
        "{table:?}"
    );
    assert!(line("docs-a ").contains("  reused  "), "{table:?}");
}
