//! Cloned repositories that contain an attack. Whatever they contain, commands change nothing outside the clone, end,
//! print no escape sequence, and every refusal names the cause and the remedy.
//!
//! Each case is planted in an origin repository and reaches the clone through git if git can carry it. What only an
//! archive carries (named pipes, `.git` itself) is planted in the clone.

mod programs;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileTypeExt as _, symlink},
    },
    path::PathBuf,
    process::{Command, Stdio},
};

use nix::sys::stat::Mode;

use crate::{
    commands::test_dir::{CommandOutput, TestDir},
    support::git::git,
};

/// Steps that read the file, write a page and succeed.
const SCRIPT: &str = r#"
[[part]]
steps = [
  { call = { tool = "record_verification_ledger", with = { summary = "read", verifiedIdentifiers = [], unverifiedIdentifiers = [] } } },
  { call = { tool = "wiki_write", with = { key = "page", summary = "s", content = "text" } } },
  { say = "done" },
]
"#;

/// A run id for which clones contain records.
const RUN: &str = "01900000-0000-7000-8000-000000000001";

/// OSC 52 sets the clipboard, CSI clears the screen, the others reorder or hide text.
const ESCAPES: &str = "\u{1b}]52;c;UFdO\u{7}\u{1b}[2J\u{9b}1m\u{202e}\u{2066}";

/// The start of every case: an origin, a clone of it, and files of the user next to both.
struct HostileClone {
    place: TestDir,
    claude: String,
}

impl HostileClone {
    fn new() -> Self {
        let place = TestDir::new();
        let claude = place.scripted_claude(SCRIPT).to_str().unwrap().to_owned();
        let scene = Self { place, claude };
        scene.origin("sources/docs/a.md", "# a\n");
        scene.origin("wiki/global/tracked.md", "x");
        scene.origin(
            "ktx.yaml",
            "connections:\n  notes:\n    driver: docs\n    source_dir: sources/docs\n",
        );
        scene.git("origin", &["init", "--quiet", "--initial-branch=main"]);
        for file in [
            ".profile",
            ".bashrc",
            "b.key",
            "thesis.txt",
            ".ssh/id_rsa",
            "wiki/global/a.md",
            "tape.jsonl",
        ] {
            scene.write(&format!("victim/{file}"), "precious\n");
        }
        fs::create_dir_all(scene.path("../home/.local/state/ingestdeck")).unwrap();
        let cookies = rusqlite::Connection::open(scene.path("victim/cookies.db")).unwrap();
        cookies
            .execute_batch("CREATE TABLE cookies (value); INSERT INTO cookies VALUES ('precious')")
            .unwrap();
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        self.place.write(name, bytes);
    }

    fn origin(&self, name: &str, bytes: impl AsRef<[u8]>) {
        self.write(&format!("origin/{name}"), bytes);
    }

    /// A link in the origin. Relative targets lead out of the clone, too, because both are in the same directory.
    fn link(&self, target: &str, name: &str) {
        let path = self.path(&format!("origin/{name}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_dir_all(&path);
        symlink(target, path).unwrap();
    }

    fn pipe(&self, name: &str) {
        let path = self.path(&format!("clone/{name}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
    }

    fn git(&self, dir: &str, args: &[&str]) -> String {
        git(&self.path(dir), args)
    }

    fn clone_origin(&self) {
        self.git("origin", &["add", "--all", "--force"]);
        self.git("origin", &["commit", "--quiet", "-m", "all"]);
        self.git(
            "",
            &[
                "clone",
                "--quiet",
                "--recurse-submodules",
                "origin",
                "clone",
            ],
        );
    }

    fn run(&self, args: &[&str]) -> CommandOutput {
        let mut command = self.place.command(args);
        command.current_dir(self.path("clone")).stdin(Stdio::null());
        self.place.ran(command)
    }
}

/// Every file next to the clone, with its content. The user's own state directory may grow.
fn outside(scene: &HostileClone) -> BTreeMap<PathBuf, Vec<u8>> {
    let root = scene.path("");
    let (mut open, mut found) = (
        vec![root.clone(), root.parent().unwrap().join("home")],
        BTreeMap::new(),
    );
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let kind = path.symlink_metadata().unwrap().file_type();
            if path == scene.path("clone") || path.ends_with("home/.local/state/ingestdeck") {
                continue;
            } else if kind.is_dir() {
                open.push(path.clone());
            }
            let content = if kind.is_file() {
                fs::read(&path).unwrap()
            } else if kind.is_symlink() {
                fs::read_link(&path)
                    .unwrap()
                    .as_os_str()
                    .as_bytes()
                    .to_vec()
            } else {
                format!("dir {} pipe {}", kind.is_dir(), kind.is_fifo()).into_bytes()
            };
            found.insert(path, content);
        }
    }
    found
}

/// Asserts that the output has no sequence that a terminal obeys, and none that hides or reorders text.
fn assert_inert(case: &str, args: &[&str], ran: &CommandOutput) {
    for (stream, text) in [("stdout", &ran.stdout), ("stderr", &ran.stderr)] {
        let bad = text.chars().find(|c| {
            (c.is_control() && !"\n\t".contains(*c))
                || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        });
        assert_eq!(
            bad, None,
            "{case}: {args:?} printed it to {stream}: {ran:?}"
        );
    }
}

/// Plants `plant` in the origin and `unpack` in the clone, and runs the commands there. If `refusal` is given, the
/// output of `run` must contain it: what is refused and what to do about it.
fn attack(
    case: &str,
    plant: impl FnOnce(&HostileClone),
    unpack: impl FnOnce(&HostileClone),
    refusal: &[&str],
) -> Option<i32> {
    let scene = HostileClone::new();
    plant(&scene);
    scene.clone_origin();
    unpack(&scene);
    let before = outside(&scene);
    let claude = scene.claude.clone();
    let mut run_code = None;
    let runs: [&[&str]; 8] = [
        &["plan"],
        &["doctor", "--claude-bin", &claude],
        &["runs", "list"],
        &["bench", "--repeat", "1", "--claude-bin", &claude],
        &["run", "--claude-bin", &claude],
        &["session", "--claude-bin", &claude, "--", "hello"],
        &["report", "latest"],
        &["runs", "prune", "--keep", "0"],
    ];
    for args in runs {
        let ran = scene.run(args);
        assert_inert(case, args, &ran);
        assert!(ran.code.is_some(), "{case}: {args:?} was killed: {ran:?}");
        assert!(
            !ran.stderr.contains("panicked"),
            "{case}: {args:?}: {ran:?}"
        );
        if ran.code != Some(0) {
            let output = format!("{}{}", ran.stdout, ran.stderr);
            assert!(
                !output.trim().is_empty(),
                "{case}: {args:?} failed without a message: {ran:?}"
            );
        }
        if args[0] == "run" {
            run_code = ran.code;
            let output = format!("{}{}", ran.stdout, ran.stderr);
            for part in refusal {
                assert!(
                    output.contains(part),
                    "{case}: `run` does not print {part:?}: {ran:?}"
                );
            }
        }
        let after = outside(&scene);
        let changed: Vec<_> = before
            .iter()
            .filter(|(path, content)| after.get(*path) != Some(content))
            .collect();
        let new: Vec<_> = after
            .keys()
            .filter(|path| !before.contains_key(*path))
            .collect();
        assert!(
            changed.is_empty() && new.is_empty(),
            "{case}: {args:?} changed {changed:?}, made {new:?}: {ran:?}"
        );
    }
    run_code
}

/// Nothing to add to the clone.
fn nothing(_: &HostileClone) {}

/// A case that git carries.
fn clone_case(case: &str, plant: impl FnOnce(&HostileClone), refusal: &[&str]) -> Option<i32> {
    attack(case, plant, nothing, refusal)
}

/// A case that only an archive carries.
fn archive_case(case: &str, unpack: impl FnOnce(&HostileClone), refusal: &[&str]) -> Option<i32> {
    attack(case, |_| (), unpack, refusal)
}

#[test]
fn links_in_program_directories_are_not_followed() {
    let places = [
        ".ktx",
        ".ktx/ingestdeck",
        ".ktx/ingestdeck/runs",
        ".ktx/ingestdeck/locks",
        ".ktx/ingestdeck/worktrees",
        ".ktx/ingestdeck/repository.git",
        ".ktx/ingestdeck/prints",
        ".ktx/worktrees",
        ".ktx/cache",
        ".ktx/cache/local-ingest",
        ".ktx/ingest-transcripts",
        ".ktx/ingest-traces",
        ".ktx/ingest-patches",
        ".ktx/prompts",
        ".ktx/skills",
        "wiki",
        "wiki/global",
        "semantic-layer",
        "raw-sources",
    ];
    for place in places {
        let up = "../".repeat(place.matches('/').count() + 1);
        clone_case(
            place,
            |scene| scene.link(&format!("{up}victim"), place),
            &[],
        );
    }
}

#[test]
fn links_in_place_of_program_files_are_not_followed() {
    let places = [
        "db.sqlite",
        "db.sqlite-wal",
        "db.sqlite-journal",
        "ingest.lock",
        ".gitignore",
        &format!("runs/{RUN}"),
        &format!("locks/{RUN}"),
        &format!("runs/{RUN}/tape.jsonl"),
    ];
    for (place, target) in places
        .into_iter()
        .flat_map(|place| [(place, "cookies.db"), (place, "nothing")])
    {
        let up = "../".repeat(place.matches('/').count() + 3);
        let plant = |scene: &HostileClone| {
            scene.link(
                &format!("{up}victim/{target}"),
                &format!(".ktx/ingestdeck/{place}"),
            )
        };
        clone_case(&format!("{place} -> {target}"), plant, &[]);
    }
}

#[test]
fn named_pipes_hang_no_command() {
    let places = [
        ".ktx/ingestdeck/db.sqlite".to_owned(),
        ".ktx/ingestdeck/ingest.lock".to_owned(),
        format!(".ktx/ingestdeck/locks/{RUN}"),
        format!(".ktx/ingestdeck/runs/{RUN}/tape.jsonl"),
        ".ktx/prompts/skills.md".to_owned(),
        "sources/docs/b.md".to_owned(),
        "wiki/global/b.md".to_owned(),
        "ktx.yaml".to_owned(),
        ".git/config.worktree".to_owned(),
        ".git/ORIG_HEAD".to_owned(),
        ".gitattributes".to_owned(),
        "wiki/.gitignore".to_owned(),
        "raw-sources/notes/.gitattributes".to_owned(),
    ];
    for place in places {
        archive_case(&place, |scene| scene.pipe(&place), &[]);
    }
    let plant = |scene: &HostileClone| {
        let commit = scene.git("clone", &["rev-parse", "HEAD"]);
        let (directory, name) = commit.trim_end().split_at(2);
        scene.pipe(&format!(".git/objects/{directory}/{name}"));
    };
    assert_eq!(
        archive_case(
            "an object",
            plant,
            &["is not a regular file, and git would wait for it"]
        ),
        Some(2)
    );
}

#[test]
fn foreign_databases_are_left_unchanged() {
    let place = ".ktx/ingestdeck/db.sqlite";
    let scene = HostileClone::new();
    scene.origin(".ktx/ingestdeck/.keep", "");
    let path = scene.path(&format!("origin/{place}"));
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch("CREATE TABLE photos (x); PRAGMA user_version = 7")
        .unwrap();
    let tape = include_str!("../fixtures/tapes/demo.jsonl");
    scene.origin(&format!(".ktx/ingestdeck/runs/{RUN}/tape.jsonl"), tape);
    scene.clone_origin();
    let before = fs::read(scene.path(&format!("clone/{place}"))).unwrap();
    for args in [
        &["plan"][..],
        &["runs", "list"],
        &["doctor"],
        &["run", "--claude-bin", &scene.claude],
    ] {
        let ran = scene.run(args);
        assert_inert("foreign database", args, &ran);
        assert_eq!(
            fs::read(scene.path(&format!("clone/{place}"))).unwrap(),
            before,
            "{args:?}: {ran:?}"
        );
    }
}

#[test]
fn escape_sequences_of_a_project_are_not_printed() {
    let yaml = |connection: &str| {
        let text: String = ESCAPES
            .chars()
            .map(|c| format!("\\U{:08x}", u32::from(c)))
            .collect();
        format!(
            "connections:\n  notes:\n    driver: docs\n    source_dir: sources/docs\n  bad:\n{}",
            connection.replace("ESC", &text)
        )
    };
    let configs = [
        "    driver: docs\n    source_dir: \"ESC\"\n",
        "    driver: sqlite\n    path: \"ESC\"\n",
        "    driver: \"ESC\"\n",
        "    driver: manifest\n    path: \"ESC\"\n    source_dir: sources/docs\n",
        "    driver: dbt\n    repoUrl: \"ESC\"\n",
        "    driver: notion\n    page: \"ESC\"\n    \"ESC\": 1\n",
        "    driver: docs\n    source_dir: sources/docs\n  \"ESC\":\n    driver: docs\n    source_dir: none\n",
    ];
    for config in configs {
        clone_case(config, |scene| scene.origin("ktx.yaml", yaml(config)), &[]);
    }
    let names = |scene: &HostileClone| {
        scene.origin(&format!("sources/docs/{ESCAPES}.md"), "# x\n");
        scene.origin(&format!(".ktx/prompts/{ESCAPES}.md"), "x");
        scene.origin(&format!(".ktx/skills/{ESCAPES}/SKILL.md"), "x");
        scene.origin(
            &format!("wiki/global/{ESCAPES}.md"),
            format!("---\nsummary: {ESCAPES}\n---\n# {ESCAPES}\n"),
        );
        scene.origin("sources/docs/b.md", format!("# {ESCAPES}\n"));
    };
    clone_case("file names and texts", names, &[]);
    let units = format!(
        r#"[{{"unitKey":"x{}","rawFiles":["a.md"],"notes":"{}"}}]"#,
        "\\u001b]0;t\\u0007", "\\u001b[2J"
    );
    let manifest = |scene: &HostileClone| {
        scene.origin("units.json", &units);
        let yaml = "connections:\n  notes:\n    driver: manifest\n    path: units.json\n    source_dir: sources/docs\n";
        scene.origin("ktx.yaml", yaml);
    };
    clone_case("unit keys", manifest, &[]);
}

#[test]
fn shipped_records_reach_nothing_outside() {
    let hostile = include_str!("../fixtures/tapes/demo.jsonl")
        .replace(".ktx/ingest-patches/", "../../victim/")
        .replace("\"docs-", "\"\\u001b]52;c;UFdO\\u0007docs-");
    let plant = |scene: &HostileClone| {
        scene.origin(&format!(".ktx/ingestdeck/runs/{RUN}/tape.jsonl"), &hostile)
    };
    clone_case("a record", plant, &[]);
    let torn = |scene: &HostileClone| {
        scene.origin(
            &format!(".ktx/ingestdeck/runs/{RUN}/tape.jsonl"),
            &hostile.as_bytes()[..hostile.len() / 2],
        );
        scene.origin(".ktx/ingestdeck/runs/.leaving-x/a", "");
    };
    clone_case("a torn record", torn, &[]);
}

/// A clone may contain the record of a run that seems to have ingested everything, so that changed files are never
/// ingested.
#[test]
fn unit_skipped_by_a_foreign_record_is_reported() {
    const NAMED: &str =
        "1 unit is unchanged according to a record that this installation did not write";
    let scene = HostileClone::new();
    scene.clone_origin();
    let run: &[&str] = &["run", "--claude-bin", &scene.claude];
    assert_eq!(scene.run(run).code, Some(0));
    for args in [&["plan"][..], run] {
        let ran = scene.run(args);
        assert!(
            ran.code == Some(0) && !ran.stderr.contains("did not write"),
            "{args:?}: {ran:?}"
        );
    }
    fs::rename(scene.path("clone"), scene.path("first")).unwrap();
    let copied = Command::new("cp")
        .args(["-r", "first", "clone"])
        .current_dir(scene.path(""))
        .status()
        .unwrap();
    assert!(copied.success());
    for args in [&["plan"][..], run] {
        let ran = scene.run(args);
        assert!(
            ran.code == Some(0) && ran.stderr.contains(NAMED),
            "{args:?}: {ran:?}"
        );
        assert!(
            ran.stderr
                .contains("run all units with `ingestdeck run --full`, which ends this warning"),
            "{args:?}: {ran:?}"
        );
    }
    let ran = scene.run(&[run, &["--full"]].concat());
    assert!(
        ran.code == Some(0) && !ran.stderr.contains("did not write"),
        "{ran:?}"
    );
    let ran = scene.run(&["plan"]);
    assert!(
        ran.code == Some(0) && !ran.stderr.contains("did not write"),
        "{ran:?}"
    );
}

#[test]
fn files_outside_the_project_are_not_read_silently() {
    let cases = [
        ("    driver: docs\n    source_dir: ../victim\n", "victim"),
        (
            "    driver: manifest\n    path: units.json\n    source_dir: ../victim\n",
            "victim",
        ),
        ("    driver: docs\n    source_dir: linked\n", "victim"),
    ];
    for (connection, named) in cases {
        let scene = HostileClone::new();
        scene.origin(
            "units.json",
            r#"[{"unitKey":"handbook","rawFiles":[".ssh/id_rsa"]}]"#,
        );
        scene.link("../victim", "linked");
        scene.origin("ktx.yaml", format!("connections:\n  notes:\n{connection}"));
        scene.clone_origin();
        for args in [
            &["plan"][..],
            &["doctor"],
            &["run", "--claude-bin", &scene.claude],
        ] {
            let ran = scene.run(args);
            let output = format!("{}{}", ran.stdout, ran.stderr);
            assert!(
                output.contains(named) && output.contains("notes"),
                "{connection}: {args:?}: {ran:?}"
            );
        }
        let grep = Command::new("grep")
            .args(["-rl", "precious", "."])
            .current_dir(scene.path("clone"))
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&grep.stdout),
            "",
            "{connection}: the user's files are copied"
        );
    }
}

#[test]
fn database_outside_the_project_is_refused() {
    let plant = |scene: &HostileClone| {
        let yaml = "connections:\n  notes:\n    driver: docs\n    source_dir: sources/docs\n  wh:\n    driver: sqlite\n    path: ../victim/cookies.db\n";
        scene.origin("ktx.yaml", yaml);
    };
    clone_case("sqlite outside", plant, &["cookies.db", "wh"]);
}

#[test]
fn debug_log_follows_no_link() {
    let scene = HostileClone::new();
    scene.link("../victim/.profile", "ingestdeck-debug.log");
    scene.clone_origin();
    let ran = scene.run(&["plan", "--debug"]);
    assert_eq!(
        fs::read_to_string(scene.path("victim/.profile")).unwrap(),
        "precious\n",
        "{ran:?}"
    );
    assert!(ran.stderr.contains("ingestdeck-debug.log"), "{ran:?}");
}

#[test]
fn shipped_gitignore_does_not_publish_tapes() {
    let scene = HostileClone::new();
    scene.origin(".ktx/ingestdeck/.gitignore", "!*\n");
    scene.clone_origin();
    let ran = scene.run(&["run", "--claude-bin", &scene.claude]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    scene.git("clone", &["add", "--all"]);
    let staged = scene.git("clone", &["ls-files"]);
    assert!(
        !staged.contains("tape.jsonl") && !staged.contains("db.sqlite"),
        "{staged}"
    );
}

/// The name of the directory comes from the archive.
#[test]
fn directory_name_with_escapes_is_not_printed() {
    let scene = HostileClone::new();
    scene.clone_origin();
    let odd = scene.path(&format!("x{ESCAPES}"));
    fs::rename(scene.path("clone"), &odd).unwrap();
    for args in [
        &["plan"][..],
        &["doctor"],
        &["runs", "list"],
        &["run", "--claude-bin", &scene.claude],
        &["report"],
    ] {
        let mut command = scene.place.command(args);
        command.current_dir(&odd);
        assert_inert("directory name", args, &scene.place.ran(command));
    }
}

/// Only worktrees that this installation recorded are removed: an archive may contain a directory of a similar name.
#[test]
fn worktrees_of_killed_runs_without_git_are_removed() {
    let place = TestDir::new();
    place.notes(&["a"]);
    let claude = place.scripted_claude("[[part]]\nsteps = [{ say = \"now\" }, \"hang\"]");
    let run: &[&str] = &[
        "run",
        "--ui",
        "lines",
        "--no-reconcile",
        "--claude-bin",
        claude.to_str().unwrap(),
    ];
    let mut running = place.start(place.command(run));
    running.wait_for("stdout", "● session");
    running.signal(nix::sys::signal::Signal::SIGKILL);
    running.end();
    let shipped = place.write(".ktx/worktrees/session-local-1/mine.md", "mine");
    let worktrees = || fs::read_dir(place.path(".ktx/worktrees")).unwrap().count();
    let before = worktrees();
    place.scripted_claude(SCRIPT);
    let ran = place.run(run);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stderr.contains("removed 1 worktree that it had left"),
        "{ran:?}"
    );
    assert!(worktrees() == before - 1 && shipped.is_file(), "{ran:?}");
}

/// Kills the program during a git call whose arguments match `pattern`, and waits until that call has ended. It runs
/// `replacement` instead, which must print something and name the directory of the test in its command line.
#[cfg(target_os = "linux")]
fn assert_git_ends_with_program(
    scene: &HostileClone,
    args: &[&str],
    pattern: &str,
    replacement: &str,
) {
    scene.clone_origin();
    let waiting = scene.path("WAITING");
    let git = format!(
        "case \"$*\" in {pattern}) exec > '{}'; {replacement};; esac\nexec /usr/bin/git \"$@\"",
        waiting.display()
    );
    let bin = scene.place.script("git", &git).parent().unwrap().to_owned();
    let mut command = scene.place.command(args);
    command
        .current_dir(scene.path("clone"))
        .env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    let running = scene.place.start(command);
    let deadline = std::time::Instant::now() + crate::commands::test_dir::DEADLINE;
    while fs::read_to_string(&waiting)
        .unwrap_or_default()
        .trim()
        .is_empty()
    {
        assert!(
            std::time::Instant::now() < deadline,
            "git was not called as expected: {running:?}"
        );
        crate::support::pause_before_check();
    }
    running.signal(nix::sys::signal::Signal::SIGKILL);
    running.end();
    scene.place.wait_until_no_process_left();
}

/// A call that blocks for ever, for example on a pipe, would outlive the program.
#[cfg(target_os = "linux")]
#[test]
fn git_ends_with_a_killed_run() {
    let scene = HostileClone::new();
    let run = ["run", "--ui", "lines", "--claude-bin", &scene.claude];
    // Its mark shows that the guard knew the call before it started.
    let replacement = "echo \"$INGESTDECK_COMMAND\"; tail -f \"$0\" > /dev/null";
    assert_git_ends_with_program(&scene, &run, "*'worktree add'*", replacement);
}

/// Without a guard, the kernel ends git, but not the child processes of git.
#[cfg(target_os = "linux")]
#[test]
fn git_ends_with_a_killed_plan() {
    assert_git_ends_with_program(
        &HostileClone::new(),
        &["plan"],
        "*rev-parse*",
        "exec tail -f \"$0\"",
    );
}
