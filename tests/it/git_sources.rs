//! Connections whose files git fetches. A script in the place of ssh starts the other side on this machine.

use std::{fs, process::Command};

use serde_json::Value;

use crate::{
    commands::test_dir::{CommandOutput, TestDir},
    support::git::git,
};

/// Starts the command of git here, and writes its own arguments into a file.
const SSH: &str = r#"echo "$@" >> "$HOME/ssh.log"
for last; do :; done
exec sh -c "$last""#;

/// A project with the dbt connection `wh` of a repository that is reached by ssh.
struct SshProject {
    place: TestDir,
    url: String,
}

impl SshProject {
    fn new() -> Self {
        let place = TestDir::new();
        place.write("../origin/dbt_project.yml", "name: shop\n");
        place.write("../origin/models/orders.yml", "models: [{name: orders}]\n");
        let origin = place.path("../origin").canonicalize().unwrap();
        git(&origin, &["init", "--quiet", "--initial-branch=main"]);
        let url = format!("git@example.com:{}", origin.display());
        place.script("ssh", SSH);
        let project = Self { place, url };
        project.commit();
        project.connect("");
        project
    }

    fn commit(&self) -> String {
        let origin = self.place.path("../origin");
        git(&origin, &["add", "--all"]);
        git(&origin, &["commit", "--quiet", "-m", "models"]);
        git(&origin, &["rev-parse", "HEAD"]).trim().to_owned()
    }

    fn connect(&self, keys: &str) {
        self.place.write(
            "ktx.yaml",
            format!(
                "connections:\n  wh: {{driver: dbt, repo_url: \"{}\"{keys}}}\n",
                self.url
            ),
        );
    }

    fn allow(&self) {
        allow(&self.place, &self.url);
    }

    fn command(&self, args: &[&str]) -> Command {
        with_programs(&self.place, args)
    }

    fn run(&self, args: &[&str]) -> CommandOutput {
        self.place.ran(self.command(args))
    }

    /// Number of times that ssh was started.
    fn connections(&self) -> usize {
        let log = fs::read_to_string(self.place.path("../home/ssh.log")).unwrap_or_default();
        log.lines().count()
    }

    /// Makes ssh print `message` and fail.
    fn fail(&self, message: &str) {
        self.place
            .script("ssh", &format!("echo '{message}' >&2\nexit 255"));
    }
}

/// The program with the programs of the test first on its PATH.
fn with_programs(place: &TestDir, args: &[&str]) -> Command {
    let mut command = place.command(args);
    let bin = place.path("../bin").canonicalize().unwrap();
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    command
}

/// Sets the user's setting that allows git to fetch `repository`.
fn allow(place: &TestDir, repository: &str) {
    place.write(
        "../home/.config/ingestdeck/config.toml",
        format!("[ingest]\nallow_git = [\"{repository}\"]\n"),
    );
}

/// The text of the finding of `doctor` about `wh`.
fn examined(output: &CommandOutput) -> (String, String) {
    let findings = output
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let texts = findings.map(|finding| {
        let text = |key: &str| finding[key].as_str().unwrap().to_owned();
        (text("result"), text("text"))
    });
    texts
        .into_iter()
        .find(|(_, text)| text.starts_with("connection wh "))
        .unwrap()
}

#[test]
fn repository_is_fetched_only_with_permission() {
    let project = SshProject::new();
    let remedy = format!(
        "to allow it, write `allow_git = [\"{}\"]` below `[ingest]` in your settings",
        project.url
    );
    // The project cannot allow it.
    let yaml = fs::read_to_string(project.place.path("ktx.yaml")).unwrap();
    for claim in ["allow_git", "allowGit", "allow_paths"] {
        project.place.write(
            "ktx.yaml",
            format!("{yaml}ingest: {{{claim}: [\"{}\"]}}\n", project.url),
        );
        for args in [
            &["plan"][..],
            &["plan", "--fetch"],
            &["run", "--ui", "none"],
            &["plan", "wh"],
        ] {
            let ran = project.run(args);
            assert_eq!(ran.code, Some(2), "{ran:?}");
            assert!(
                ran.stderr.contains("is not on this machine yet; ") && ran.stderr.contains(&remedy),
                "{ran:?}"
            );
        }
        let (result, text) = examined(&project.run(&["doctor", "--ui", "json"]));
        assert!(result == "fail" && text.contains(&remedy), "{text}");
    }
    // Permission for another address is none.
    for other in [
        format!("{}/", project.url),
        project.url.replace("git@", "x@"),
        format!("{} env:T", project.url),
    ] {
        allow(&project.place, &other);
        assert_eq!(project.run(&["plan", "--fetch"]).code, Some(2));
    }
    assert_eq!(project.connections(), 0);
    assert!(!project.place.path(".ktx/cache/dbt/wh").exists());
}

#[test]
fn run_fetches_once_and_plan_only_when_asked() {
    let project = SshProject::new();
    project.allow();
    let ran = project.run(&["plan"]);
    assert!(
        ran.stderr
            .contains("is not on this machine yet; fetch it with `ingestdeck plan --fetch`"),
        "{ran:?}"
    );
    let (result, text) = examined(&project.run(&["doctor", "--ui", "json"]));
    assert!(
        result == "fail" && text.contains("is not on this machine yet; fetch it with"),
        "{text}"
    );
    assert_eq!(project.connections(), 0);

    let fetched = project.run(&["plan", "--fetch"]);
    assert!(
        fetched.expect_success().ends_with("1 unit planned\n"),
        "{fetched:?}"
    );
    let first = git(&project.place.path("../origin"), &["rev-parse", "HEAD"])
        .trim()
        .to_owned();
    let line = format!(
        "commit {} of branch main of {}, fetched less than a minute ago",
        &first[..12],
        project.url
    );
    assert!(fetched.stdout.contains(&line), "{fetched:?}");
    assert_eq!(project.connections(), 2, "one to look, one to fetch");
    let log = fs::read_to_string(project.place.path("../home/ssh.log")).unwrap();
    assert!(
        log.lines()
            .all(|line| line.starts_with("-o BatchMode=yes -o ForwardAgent=no ")),
        "{log}"
    );

    // A new commit is fetched by `run` and by nothing else.
    project
        .place
        .write("../origin/models/more.yml", "models: [{name: more}]\n");
    let second = project.commit();
    let planned = project.run(&["plan", "--ui", "json"]);
    let unit: Value = serde_json::from_str(planned.expect_success().trim()).unwrap();
    assert_eq!(unit["commit"], first.as_str());
    let (result, text) = examined(&project.run(&["doctor", "--ui", "json"]));
    assert!(
        result == "ok" && text.contains(&format!("from commit {}", &first[..12])),
        "{text}"
    );
    assert_eq!(project.connections(), 2);
    let claude = project.place.scripted_claude(
        "[[part]]\nsteps = [{ call = { tool = \"record_verification_ledger\", with = { summary = \"Read it.\" } } }, { say = \"read\" }]",
    );
    let run = [
        "run",
        "--ui",
        "json",
        "--claude-bin",
        claude.to_str().unwrap(),
    ];
    let ran = project.run(&run);
    assert_eq!(project.connections(), 4, "{ran:?}");
    let runs = fs::read_dir(project.place.path(".ktx/ingestdeck/runs")).unwrap();
    let tape = runs
        .map(|run| run.unwrap().path().join("tape.jsonl"))
        .find(|tape| tape.exists())
        .unwrap();
    let tape = fs::read_to_string(tape).unwrap();
    let note = format!(
        "\"repository\":{{\"url\":\"{}\",\"branch\":\"main\",\"commit\":\"{second}\"}}",
        project.url
    );
    assert!(tape.contains(&note), "{tape}");
    // A run that continues another one reads what that one has read.
    project.run(&[
        "run",
        "--ui",
        "none",
        "--resume-run",
        "latest",
        "--claude-bin",
        claude.to_str().unwrap(),
    ]);
    assert_eq!(project.connections(), 4);
    // A clone is replaced without a new commit, too: it may have come with the project.
    project.run(&["plan", "--fetch"]).expect_success();
    assert_eq!(project.connections(), 6);
}

/// git reads the list of folders that end its search for a repository as separated by `:`.
#[test]
fn repository_above_a_path_with_a_colon_leads_nowhere() {
    let project = SshProject::new();
    project.allow();
    let above = project.place.path("");
    git(&above, &["init", "--quiet"]);
    let trap = project.place.path("trap");
    let sprung = format!("touch {}; false", trap.display());
    git(&above, &["config", "core.sshCommand", &sprung]);
    let settings = fs::read_to_string(project.place.path("ktx.yaml")).unwrap();
    project.place.write("a:b/ktx.yaml", settings);
    let ran = project.run(&["plan", "--fetch", "--project-dir", "a:b"]);
    assert!(!trap.exists(), "{ran:?}");
    let cloned = project
        .place
        .path("a:b/.ktx/cache/dbt/wh/models/orders.yml");
    assert!(cloned.is_file(), "{ran:?}");
    assert_eq!(project.connections(), 2);
}

#[test]
fn failed_fetch_names_its_cause_and_remedy() {
    let project = SshProject::new();
    project.allow();
    let fetch = ["plan", "--fetch"];
    project.connect(", branch: dev");
    let missing = project.run(&fetch);
    assert!(
        missing
            .expect_refusal_after_messages(96)
            .contains("has no branch `dev`; set `branch: main`, its default branch"),
        "{missing:?}"
    );
    project.connect("");
    let failures = [
        (
            "git@example.com: Permission denied (publickey).",
            "`example.com` refused the login",
            "ssh-add",
        ),
        (
            "Host key verification failed.",
            "the key of the host `example.com` is not known",
            "connect once with `ssh git@example.com`",
        ),
        (
            "Host key for example.com has changed and you have requested strict checking.",
            "the key of the host `example.com` is another one than ssh knows",
            "that the key was replaced",
        ),
        (
            "ssh: Could not resolve hostname example.com: x",
            "cannot reach `example.com`",
            "check the network",
        ),
        (
            "strange \u{1b}[2J",
            "cannot fetch `git@example.com:",
            "strange",
        ),
    ];
    for (message, cause, remedy) in failures {
        project.fail(message);
        let ran = project.run(&fetch);
        let error = ran.expect_refusal_after_messages(96);
        assert!(
            error.starts_with("connection wh: ") && error.contains(cause) && error.contains(remedy),
            "{error}"
        );
        assert!(!error.contains('\u{1b}'));
    }
    // With a clone, only the network may fail.
    project.place.script("ssh", SSH);
    project.run(&fetch).expect_success();
    for (message, cause, remedy) in failures {
        project.fail(message);
        let ran = project.run(&fetch);
        if cause.starts_with("cannot reach") {
            ran.expect_success();
            let warning = format!("warning: connection wh is not fetched: {cause}");
            assert!(
                ran.stderr.contains(&warning)
                    && ran.stderr.contains("; its clone is used (commit "),
                "{ran:?}"
            );
            assert!(ran.stderr.contains(remedy), "{ran:?}");
        } else {
            assert!(
                ran.expect_refusal_after_messages(96).contains(cause),
                "{ran:?}"
            );
        }
    }
    // A clone that may not be fetched again is used, too.
    allow(&project.place, "git@example.com:other");
    let ran = project.run(&fetch);
    ran.expect_success();
    assert!(
        ran.stderr
            .contains("warning: connection wh is not fetched: ")
            && ran.stderr.contains("allow_git"),
        "{ran:?}"
    );
    let (result, text) = examined(&project.run(&["doctor", "--ui", "json"]));
    assert!(
        result == "note"
            && text.contains("git does not fetch it again; to allow it, write `allow_git"),
        "{text}"
    );
}

/// Passes all calls to git, but those that use the network.
fn network_git(place: &TestDir, answer: &str) {
    place.script(
        "git",
        &format!(
            r#"case " $* " in
*" ls-remote "*)
    echo "$@" >> "$HOME/arguments.log"
    env >> "$HOME/environment.log"
    {answer}
    exit 128;;
esac
exec /usr/bin/git "$@""#
        ),
    );
}

#[test]
fn token_is_only_in_the_environment_of_git() {
    const TOKEN: &str = "ghp_S3cretS3cret";
    /// Base64 of `x-token-auth:` and the token.
    const ENCODED: &str = "eC10b2tlbi1hdXRoOmdocF9TM2NyZXRTM2NyZXQ=";
    let place = TestDir::new();
    let url = "https://github.com/org/dbt.git";
    place.write(
        "ktx.yaml",
        format!("connections:\n  wh: {{driver: dbt, repo_url: \"{url}\", auth_token_ref: \"env:MY_TOKEN\"}}\n"),
    );
    network_git(
        &place,
        &format!("echo \"fatal: Authentication failed for '{url}' ({TOKEN})\" >&2"),
    );
    let fetch = |token: Option<&str>| {
        let mut command = with_programs(&place, &["plan", "--fetch", "--debug"]);
        if let Some(token) = token {
            command.env("MY_TOKEN", token);
        }
        place.ran(command)
    };
    allow(&place, url);
    let ran = fetch(Some(TOKEN));
    assert!(
        ran.stderr.contains(&format!(
            "write `allow_git = [\"{url}\", \"{url} env:MY_TOKEN\"]`"
        )),
        "{ran:?}"
    );
    assert!(!place.path("../home/arguments.log").exists());

    allow(&place, &format!("{url} env:MY_TOKEN"));
    let missing = fetch(None);
    assert!(
        missing
            .expect_refusal_after_messages(96)
            .contains("the variable MY_TOKEN, which contains no token; set MY_TOKEN"),
        "{missing:?}"
    );
    let ran = fetch(Some(TOKEN));
    let error = ran.expect_refusal_after_messages(96);
    assert!(
        error.contains("refused the login")
            && error.contains("check that the token of `auth_token_ref`"),
        "{error}"
    );
    let arguments = fs::read_to_string(place.path("../home/arguments.log")).unwrap();
    assert!(
        arguments.contains(&format!(" -- {url} HEAD refs/heads/main")),
        "{arguments}"
    );
    for setting in [
        "http.followRedirects=false",
        "fetch.fsckObjects=true",
        "core.hooksPath=/dev/null",
        "transfer.bundleURI=false",
    ] {
        assert!(arguments.contains(setting), "{setting}");
    }
    let environment = fs::read_to_string(place.path("../home/environment.log")).unwrap();
    let header = format!("=Authorization: Basic {ENCODED}\n");
    assert!(environment.contains(&header), "the token is sent");
    for line in ["GIT_ALLOW_PROTOCOL=https:ssh\n", "GIT_TERMINAL_PROMPT=0\n"] {
        assert!(environment.contains(line), "{line}");
    }
    // Neither the messages, nor the log, nor a file of the project has it.
    let found = Command::new("/usr/bin/grep")
        .args(["-rlE", &format!("{TOKEN}|{ENCODED}")])
        .arg(place.path(""))
        .arg(place.temporary())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
    for text in [&ran.stderr, &ran.stdout, &arguments] {
        assert!(!text.contains(TOKEN) && !text.contains(ENCODED), "{text}");
    }
}

#[test]
fn redirects_are_not_followed() {
    let place = TestDir::new();
    let url = "https://example.com/dbt.git";
    place.write(
        "ktx.yaml",
        format!("connections:\n  wh: {{driver: lookml, repoUrl: \"{url}\"}}\n"),
    );
    allow(&place, url);
    network_git(
        &place,
        &format!(
            "echo \"fatal: unable to access '{url}/': The requested URL returned error: 301\" >&2"
        ),
    );
    let ran = place.ran(with_programs(&place, &["plan", "--fetch"]));
    let error = ran.expect_refusal_after_messages(96);
    assert!(
        error.contains("redirects to another address; write the new address"),
        "{error}"
    );
}

#[test]
fn dangerous_addresses_never_reach_git() {
    let place = TestDir::new();
    network_git(&place, "");
    for url in [
        "ext::sh -c touch% trap",
        "http://example.com/x",
        "git://example.com/x",
        "ssh://-oProxyCommand=touch%20trap/x",
        "git@-oProxyCommand=x:y",
        "--upload-pack=touch trap",
        "https://me:secret@example.com/x",
        "https://example.com/x%0ahost=evil",
    ] {
        let quoted = serde_json::to_string(url).unwrap();
        place.write(
            "ktx.yaml",
            format!("connections:\n  wh: {{driver: dbt, repo_url: {quoted}}}\n"),
        );
        allow(&place, url);
        for args in [&["plan", "--fetch"][..], &["run", "--ui", "none"]] {
            let ran = place.ran(with_programs(&place, args));
            assert_eq!(ran.code, Some(2), "{url}: {ran:?}");
            assert!(
                ran.stderr
                    .contains("connection wh is skipped: its repository address "),
                "{ran:?}"
            );
            assert!(!ran.stderr.contains("secret"), "{ran:?}");
        }
    }
    assert!(!place.path("../home/arguments.log").exists() && !place.path("trap").exists());
}

#[test]
fn errors_of_several_connections_are_a_list() {
    let place = TestDir::new();
    place.write(
        "ktx.yaml",
        "connections:\n  a: {driver: dbt, repo_url: \"https://h/a\"}\n  b: {driver: dbt, source_dir: /nowhere/b}\n  c: {driver: docs, source_dir: gone}\n",
    );
    for args in [&["plan"][..], &["run", "--ui", "none"]] {
        let ran = place.run(args);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        let lines: Vec<&str> = ran.stderr.lines().collect();
        assert_eq!(lines.len(), 7, "{ran:?}");
        assert_eq!(lines[0], "error: nothing is planned:");
        for (at, connection, help) in [
            (1, "a", "to allow it, write"),
            (3, "b", "correct"),
            (5, "c", "correct source_dir"),
        ] {
            assert!(
                lines[at].starts_with(&format!("  connection {connection} is skipped: ")),
                "{ran:?}"
            );
            assert!(
                lines[at + 1].starts_with(&format!("  help: {help}")),
                "{ran:?}"
            );
        }
    }
}
