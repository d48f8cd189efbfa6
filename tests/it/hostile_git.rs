//! Clones and directories that attack the user who plans, examines or runs them. Nothing outside of them changes, and
//! none of their programs runs.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    commands::test_dir::{CommandOutput, TestDir},
    support::{
        files::{EntryKind, tree_snapshot},
        git::git,
    },
};

const SCRIPT: &str = "[[part]]\nsteps = [{ say = \"nothing to do\" }]";

/// A clone, and other files of the user.
struct HostileRepository {
    place: TestDir,
    claude: String,
}

fn write(root: &Path, path: &str, bytes: impl AsRef<[u8]>) {
    fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
    fs::write(root.join(path), bytes).unwrap();
}

impl HostileRepository {
    /// A clone of a project in which `plant` changed something. Names must be valid for git.
    fn of(plant: impl FnOnce(&Path)) -> Self {
        let place = TestDir::new();
        let claude = place.scripted_claude(SCRIPT).to_str().unwrap().to_owned();
        let origin = place.path("origin");
        write(&origin, "sources/docs/a.md", "# a\n");
        write(&origin, "wiki/global/.keep", "x");
        let yaml = "connections:\n  notes:\n    driver: docs\n    source_dir: sources/docs\nllm:\n  provider:\n    backend: claude-code\n";
        write(&origin, "ktx.yaml", yaml);
        git(&origin, &["init", "--quiet", "--initial-branch=main", "."]);
        git(&origin, &["add", "--all"]);
        git(&origin, &["commit", "--quiet", "-m", "first"]);
        write(&origin, "wiki/global/a.md", "a\n");
        plant(&origin);
        git(&origin, &["add", "--force", "--all"]);
        git(&origin, &["commit", "--quiet", "-m", "second"]);
        for (path, text) in [
            ("thesis.txt", "years"),
            (".bashrc", "alias"),
            ("session-mine/b.key", "key"),
            ("mine", "m"),
        ] {
            write(&place.path("victim"), path, text);
        }
        git(&place.path(""), &["clone", "--quiet", "origin", "clone"]);
        Self { place, claude }
    }

    fn root(&self) -> PathBuf {
        self.place.path("clone")
    }

    /// A program that creates a proof file next to the clone.
    fn trap(&self) -> PathBuf {
        self.place.script(
            "trap",
            &format!("touch '{}'\ncat", self.place.path("PWNED").display()),
        )
    }

    fn configure(&self, bytes: &[u8]) {
        let path = self.root().join(".git/config");
        let config = [fs::read(&path).unwrap(), bytes.to_vec()].concat();
        fs::write(path, config).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.command(args);
        command.current_dir(self.root());
        command
    }

    fn run(&self) -> CommandOutput {
        self.place
            .ran(self.command(&["run", "--ui", "lines", "--claude-bin", &self.claude]))
    }

    /// All files that are not in the clone.
    fn outside(&self) -> BTreeMap<PathBuf, (EntryKind, Vec<u8>)> {
        let mut all = tree_snapshot(&self.place.path(".."));
        // Locks of sessions are below the home directory.
        let is_ours = |path: &Path| {
            ["work/clone", "tmp", "home/.local"]
                .iter()
                .any(|ours| path.starts_with(ours))
        };
        all.retain(|path, _| !is_ours(path));
        all
    }

    /// Paths outside of the clone that have changed.
    fn changed(&self, before: &BTreeMap<PathBuf, (EntryKind, Vec<u8>)>) -> Vec<PathBuf> {
        let after = self.outside();
        let paths = before
            .keys()
            .chain(after.keys())
            .filter(|path| before.get(*path) != after.get(*path));
        paths.cloned().collect()
    }

    /// Plans, examines and runs it twice: files of a first run must not help a second one.
    fn run_all_commands(&self) -> [CommandOutput; 3] {
        let before = self.outside();
        let look = |args: &[&str]| self.place.ran(self.command(args));
        let plan = look(&["plan", "--ui", "lines"]);
        let doctor = look(&["doctor", "--ui", "lines", "--claude-bin", &self.claude]);
        let ran = self.run();
        self.run();
        assert_eq!(
            self.changed(&before),
            [""; 0].map(PathBuf::from),
            "{plan:?} {doctor:?} {ran:?}"
        );
        [plan, doctor, ran]
    }
}

/// Records of unfinished work are in `.git/ingestdeck`, which no clone carries.
#[test]
fn shipped_files_that_look_like_records_are_ignored() {
    let records = [
        ".ktx/ingestdeck/landing.json",
        ".ktx/ingestdeck/branch-update.json",
    ];
    let texts = [
        r#"{"version":1,"old":"--output=../victim/.bashrc","new":"HEAD"}"#,
        r#"{"version":1,"old":"HEAD~1","new":"HEAD"}"#,
    ];
    for text in texts {
        let clone = HostileRepository::of(|origin| {
            records
                .iter()
                .for_each(|record| write(origin, record, text))
        });
        let [.., ran] = clone.run_all_commands();
        assert!(
            ran.expect_success().contains("1 succeeded") && !ran.stderr.contains("warning"),
            "{ran:?}"
        );
        assert!(
            records
                .iter()
                .all(|record| clone.root().join(record).is_file())
        );
    }
}

/// An archive has no `.git`, but may contain a private repository with programs, and a nested one.
#[test]
fn shipped_private_repository_is_replaced() {
    let clone = HostileRepository::of(|_| {});
    let (root, trap) = (clone.root(), clone.trap());
    let private = root.join(".ktx/ingestdeck/repository.git");
    fs::create_dir_all(private.parent().unwrap()).unwrap();
    let trap = trap.display();
    let config = format!(
        "[core]\n\tfsmonitor = {trap}\n\thooksPath = hooks\n\tworktree = ../../../../victim\n[filter \"x\"]\n\tclean = {trap}\n\t\
         smudge = {trap}\n\tprocess = {trap}\n[merge \"x\"]\n\tdriver = {trap}\n[diff \"x\"]\n\ttextconv = {trap}\n"
    );
    clone.configure(config.as_bytes());
    for hook in [
        "post-index-change",
        "reference-transaction",
        "post-checkout",
        "pre-commit",
    ] {
        write(
            &root,
            &format!(".git/hooks/{hook}"),
            format!("#!/bin/sh\n{trap}\n"),
        );
        fs::set_permissions(
            root.join(".git/hooks").join(hook),
            fs::Permissions::from_mode(0o755),
        )
        .unwrap();
    }
    write(
        &root,
        ".git/objects/info/alternates",
        clone.place.path("victim").display().to_string(),
    );
    write(&root, ".git/created-here", "0".repeat(64));
    write(&root, ".gitattributes", "* filter=x merge=x diff=x\n");
    write(&root, "wiki/.gitattributes", "* filter=x merge=x diff=x\n");
    let copied = Command::new("cp")
        .arg("-R")
        .args([root.join(".git"), root.join("wiki/.git")])
        .status()
        .unwrap();
    assert!(copied.success());
    fs::rename(root.join(".git"), &private).unwrap();
    let [plan, doctor, ran] = clone.run_all_commands();
    assert!(
        plan.expect_success().contains("no git repository")
            && doctor.stdout.contains("no git repository")
    );
    assert!(ran.expect_success().contains("1 succeeded"), "{ran:?}");
    assert!(
        ran.stderr
            .contains("`.ktx/ingestdeck/repository.git` was not created here, so it was replaced"),
        "{ran:?}"
    );
    assert!(!clone.place.path("PWNED").exists() && !private.join("hooks").exists());
    assert!(
        !clone.run().stderr.contains("was not created here"),
        "once is enough"
    );
}

/// A journal in a private repository of another place is the only information about an interrupted update.
#[test]
fn shipped_private_journal_changes_nothing() {
    let clone = HostileRepository::of(|_| {});
    fs::remove_dir_all(clone.root().join(".git")).unwrap();
    let journal = ".ktx/ingestdeck/repository.git/ingestdeck/branch-update.json";
    write(
        &clone.root(),
        journal,
        r#"{"version":2,"project":"x","content":{"old":"HEAD","new":"HEAD"}}"#,
    );
    let [plan, doctor, ran] = clone.run_all_commands();
    let words = "`.ktx/ingestdeck/repository.git` is not trusted: ";
    assert!(
        plan.stderr.contains(words) && doctor.stdout.contains(words),
        "{plan:?} {doctor:?}"
    );
    let sentence = ran.expect_refusal(2);
    assert!(
        sentence.contains("`.ktx/ingestdeck/repository.git` is not trusted: "),
        "{ran:?}"
    );
    assert!(
        sentence.ends_with("then delete `.ktx/ingestdeck/repository.git`"),
        "{ran:?}"
    );
    fs::remove_dir_all(clone.root().join(".ktx/ingestdeck/repository.git")).unwrap();
    assert!(clone.run().expect_success().contains("1 succeeded"));
}

#[test]
fn shipped_links_remove_nothing() {
    let links = [
        (".ktx/ingestdeck/worktrees", "../../../victim"),
        (".ktx/worktrees", "../../victim"),
        (".ktx/ingest-patches", "../../victim"),
        (".ktx/ingestdeck", "../../victim"),
        (".ktx", "../victim"),
    ];
    for (link, target) in links {
        let clone = HostileRepository::of(|origin| {
            fs::create_dir_all(origin.join(link).parent().unwrap()).unwrap();
            symlink(target, origin.join(link)).unwrap();
            if link == ".ktx/worktrees" {
                write(origin, ".ktx/ingestdeck/worktrees/mine", "");
            }
        });
        git(&clone.root(), &["branch", "--quiet", "session/mine"]);
        let [.., ran] = clone.run_all_commands();
        let is_used = link != ".ktx/ingestdeck/worktrees";
        assert_eq!(ran.code != Some(0), is_used, "{link}: {ran:?}");
        assert_eq!(
            ran.stderr.contains("is a symbolic link; replace it"),
            is_used,
            "{link}: {ran:?}"
        );
        git(&clone.root(), &["rev-parse", "--verify", "session/mine"]);
    }
}

#[test]
fn shipped_ledger_removes_nothing() {
    let clone = HostileRepository::of(|origin| {
        write(origin, ".ktx/ingestdeck/worktrees/local-1", "");
        write(origin, ".ktx/worktrees/session-local-1/mine.md", "mine");
    });
    git(&clone.root(), &["branch", "--quiet", "session/local-1"]);
    let [.., ran] = clone.run_all_commands();
    assert!(ran.expect_success().contains("1 succeeded"), "{ran:?}");
    git(&clone.root(), &["rev-parse", "--verify", "session/local-1"]);
    assert!(
        clone
            .root()
            .join(".ktx/worktrees/session-local-1/mine.md")
            .exists()
    );
}

#[test]
fn programs_of_the_project_are_not_found_by_path() {
    let clone = HostileRepository::of(|origin| {
        for name in ["git", "claude", "ssh", "bin/git", "bin/claude"] {
            write(origin, name, "#!/bin/sh\ntouch ../PWNED\nexit 1\n");
            fs::set_permissions(origin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
    });
    let before = clone.outside();
    for path in [
        ".:bin:/usr/bin:/bin",
        ":/usr/bin:/bin",
        "./:/usr/bin:/bin",
        "bin:/usr/bin::/bin:",
    ] {
        for args in [
            &["plan"][..],
            &["doctor"],
            &["run"],
            &["session", "--", "hello"],
        ] {
            let mut command = clone.command(args);
            command.env("PATH", path);
            let ran = clone.place.ran(command);
            assert!(args[0] == "plan" || ran.code == Some(96), "{path}: {ran:?}");
        }
    }
    // A program that the user named gets no such PATH either.
    let mut command = clone.command(&["run", "--claude-bin", &clone.claude]);
    command.env("PATH", ".:bin:/usr/bin:/bin");
    assert!(
        clone
            .place
            .ran(command)
            .expect_success()
            .contains("1 succeeded")
    );
    assert_eq!(clone.changed(&before), [""; 0].map(PathBuf::from));
}

#[test]
fn programs_of_the_repository_do_not_run() {
    let clone = HostileRepository::of(|origin| {
        let sub = origin.join("wiki/sub");
        write(&sub, "f", "f");
        git(&sub, &["init", "--quiet", "--initial-branch=main", "."]);
        git(&sub, &["add", "--all"]);
        git(&sub, &["commit", "--quiet", "-m", "sub"]);
        write(
            origin,
            ".gitmodules",
            "[submodule \"sub\"]\n path = wiki/sub\n url = ./wiki/sub\n ignore = none\n",
        );
    });
    let (root, trap) = (clone.root(), clone.trap());
    let trap = trap.display();
    let sub = root.join("wiki/sub");
    fs::remove_dir_all(&sub).unwrap();
    git(
        &clone.place.path(""),
        &["clone", "--quiet", "origin/wiki/sub", "clone/wiki/sub"],
    );
    let evil = format!("[filter \"evil\"]\n\tclean = {trap}\n\tsmudge = {trap}\n");
    write(
        &sub,
        ".git/config",
        [
            fs::read(sub.join(".git/config")).unwrap(),
            evil.into_bytes(),
        ]
        .concat(),
    );
    write(&sub, ".git/info/attributes", "* filter=evil\n");
    write(&sub, "f", "f");
    for name in [&b"e\xff"[..], b"plain"] {
        let section = [b"[filter \"", name, b"\"]\n"].concat();
        clone.configure(&section);
        clone.configure(
            format!("\tclean = {trap}\n\tsmudge = {trap}\n\tprocess = {trap}\n").as_bytes(),
        );
    }
    clone.configure(
        format!("[core]\n\tfsmonitor = {trap}\n\tsshCommand = {trap}\n\thooksPath = hooks\n")
            .as_bytes(),
    );
    clone.configure(
        format!("[hook \"h\"]\n\tevent = post-index-change\n\tcommand = {trap}\n").as_bytes(),
    );
    clone.configure(
        format!("[diff \"d\"]\n\ttextconv = {trap}\n[merge \"m\"]\n\tdriver = {trap}\n").as_bytes(),
    );
    write(
        &root,
        ".git/info/attributes",
        b"* filter=plain\n*.md filter=e\xff diff=d merge=m\n",
    );
    for hook in [
        "post-index-change",
        "reference-transaction",
        "post-checkout",
        "post-commit",
    ] {
        for dir in ["hooks", ".git/hooks"] {
            write(
                &root,
                &format!("{dir}/{hook}"),
                format!("#!/bin/sh\n{trap}\n"),
            );
            fs::set_permissions(root.join(dir).join(hook), fs::Permissions::from_mode(0o755))
                .unwrap();
        }
    }
    // The size is the one in git's index, but the file is newer, so git compares its content through the filters. The
    // same for the file of the submodule.
    write(&root, "wiki/global/a.md", "a\n");
    let [_, _, ran] = clone.run_all_commands();
    assert!(
        ran.expect_refusal(2)
            .contains("goes through the git filter"),
        "{ran:?}"
    );
    write(
        &root,
        ".git/info/attributes",
        "sources/** filter=plain\n*.md diff=d merge=m\n",
    );
    write(&root, "wiki/global/a.md", "a\n");
    let [_, doctor, ran] = clone.run_all_commands();
    assert!(ran.expect_success().contains("1 succeeded"), "{ran:?}");
    let line = doctor
        .stdout
        .lines()
        .find(|line| line.contains("a run does not start"))
        .expect(&doctor.stdout);
    assert!(
        line.starts_with("note")
            && line.contains("filter `e\u{fffd}`, filter `plain`, diff driver `d`"),
        "{line}"
    );
    for named in [
        "hook `h`",
        "hooks in `hooks` (core.hooksPath)",
        "core.fsmonitor",
        "core.sshCommand",
    ] {
        assert!(line.contains(named), "{line}");
    }
}

#[test]
fn partial_clone_fetches_and_runs_nothing() {
    let clone = HostileRepository::of(|_| {});
    let (root, trap) = (clone.root(), clone.trap());
    let blob = git(&root, &["rev-parse", "HEAD:wiki/global/a.md"]);
    fs::remove_file(
        root.join(".git/objects")
            .join(&blob[..2])
            .join(blob[2..].trim_end()),
    )
    .unwrap();
    let trap = trap.display();
    clone.configure(
        format!(
            "[core]\n\trepositoryFormatVersion = 1\n[extensions]\n\tpartialClone = x\n[protocol \"ext\"]\n\tallow = always\n\
             [remote \"x\"]\n\tpromisor = true\n\turl = ext::{trap}\n"
        )
        .as_bytes(),
    );
    write(&root, "wiki/global/a.md", "b\n");
    let [_, _, ran] = clone.run_all_commands();
    assert!(
        ran.expect_refusal(2)
            .contains("wiki/global/a.md is not committed"),
        "{ran:?}"
    );
    git(
        &root,
        &["update-index", "--assume-unchanged", "wiki/global/a.md"],
    );
    let [_, _, ran] = clone.run_all_commands();
    assert_ne!(
        ran.code,
        Some(0),
        "no worktree can be created for the units: {ran:?}"
    );
}

#[test]
fn repository_with_external_files_is_refused() {
    let other = "../victim/repository";
    type HarmfulChange = (&'static str, fn(&Path));
    const ELSEWHERE: &str = "has its files elsewhere";
    let harm: [HarmfulChange; 8] = [
        (ELSEWHERE, |git| {
            fs::write(git.join("commondir"), "../../origin/.git").unwrap()
        }),
        ("`.git/refs` is a symbolic link", |git| {
            fs::rename(git.join("refs"), git.join("../../victim/refs")).unwrap();
            symlink("../../victim/refs", git.join("refs")).unwrap();
        }),
        ("`.git/logs/HEAD` is a symbolic link", |git| {
            fs::write(git.join("../../victim/profile"), "precious").unwrap();
            fs::remove_file(git.join("logs/HEAD")).unwrap();
            symlink("../../../victim/profile", git.join("logs/HEAD")).unwrap();
        }),
        ("`.git/index` is a symbolic link", |git| {
            fs::rename(git.join("index"), git.join("../../victim/index")).unwrap();
            symlink("../../victim/index", git.join("index")).unwrap();
        }),
        ("`.git/refs/heads` is a symbolic link", |git| {
            fs::rename(git.join("refs/heads"), git.join("../../victim/heads")).unwrap();
            symlink("../../../victim/heads", git.join("refs/heads")).unwrap();
        }),
        ("`.git/index` is not a regular file", |git| {
            fs::remove_file(git.join("index")).unwrap();
            nix::unistd::mkfifo(&git.join("index"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        }),
        ("`.git/worktrees` is a symbolic link", |git| {
            symlink("../../victim", git.join("worktrees")).unwrap()
        }),
        (ELSEWHERE, |git| {
            let config = git.join("config");
            let text = fs::read_to_string(&config).unwrap();
            fs::write(config, format!("{text}[core]\n\tworktree = ../../victim\n")).unwrap();
        }),
    ];
    for (words, harm) in harm {
        let clone = HostileRepository::of(|_| {});
        fs::create_dir_all(clone.root().join(other)).unwrap();
        harm(&clone.root().join(".git"));
        let [_, doctor, ran] = clone.run_all_commands();
        assert!(ran.expect_refusal(2).contains(words), "{words}: {ran:?}");
        assert!(doctor.stdout.contains("FAIL"), "{words}: {doctor:?}");
    }
}

#[test]
fn repository_with_unused_sockets_and_links_is_accepted() {
    let clone = HostileRepository::of(|_| {});
    let git_dir = clone.root().join(".git");
    git(
        &clone.root(),
        &["worktree", "add", "--quiet", "--detach", "../other"],
    );
    for dir in [git_dir.clone(), git_dir.join("worktrees/other")] {
        drop(std::os::unix::net::UnixListener::bind(dir.join("fsmonitor--daemon.ipc")).unwrap());
    }
    for name in ["lfs", "annex"] {
        symlink("../../victim", git_dir.join(name)).unwrap();
    }
    let [.., ran] = clone.run_all_commands();
    assert!(ran.expect_success().contains("1 succeeded"), "{ran:?}");
}

#[test]
fn head_that_is_a_link_is_refused_with_a_remedy() {
    let clone = HostileRepository::of(|_| {});
    let root = clone.root();
    git(&root, &["config", "core.preferSymlinkRefs", "true"]);
    fs::remove_file(root.join(".git/HEAD")).unwrap();
    symlink("refs/heads/main", root.join(".git/HEAD")).unwrap();
    assert_eq!(git(&root, &["symbolic-ref", "HEAD"]), "refs/heads/main\n");
    let [.., ran] = clone.run_all_commands();
    let sentence = ran.expect_refusal(2);
    let commands: Vec<&str> = sentence
        .split('`')
        .filter(|words| words.starts_with("git "))
        .collect();
    assert_eq!(commands.len(), 2, "{sentence}");
    for command in commands {
        assert!(
            Command::new("sh")
                .args(["-c", command])
                .current_dir(&root)
                .status()
                .unwrap()
                .success(),
            "{command}"
        );
    }
    assert!(clone.run().expect_success().contains("1 succeeded"));
}

#[test]
fn configuration_with_thousands_of_programs_is_refused() {
    let clone = HostileRepository::of(|_| {});
    let sections: String = (0..20_000)
        .map(|n| format!("[filter \"{n}\"]\nclean = cat\n"))
        .collect();
    clone.configure(sections.as_bytes());
    let [plan, doctor, ran] = clone.run_all_commands();
    let words = "the git configuration names too many filters, drivers and hooks";
    assert!(ran.expect_refusal(2).contains(words), "{ran:?}");
    assert!(
        plan.stderr.contains(words) && doctor.stdout.contains(words),
        "{plan:?} {doctor:?}"
    );
}

#[test]
fn removed_lock_file_still_excludes_other_runs() {
    let clone = HostileRepository::of(|_| {});
    clone
        .place
        .scripted_claude("[[part]]\nsteps = [{ say = \"now\" }, \"hang\"]");
    let mut running =
        clone
            .place
            .start(clone.command(&["run", "--ui", "lines", "--claude-bin", &clone.claude]));
    running.wait_for("stdout", "● session");
    fs::remove_file(clone.root().join(".ktx/ingestdeck/ingest.lock")).unwrap();
    let second = clone.run();
    assert!(
        second.expect_refusal(2).contains("is being ingested by"),
        "{second:?}"
    );
    assert_eq!(git(&clone.root(), &["worktree", "list"]).lines().count(), 2);
    running.signal(nix::sys::signal::Signal::SIGTERM);
    running.end();
}

/// With the driver disabled, a run would commit the content of a page where the pointer of Git LFS belongs.
#[test]
fn filter_on_what_a_run_writes_is_refused_with_a_remedy() {
    let cases = [
        ("wiki/** filter=lfs\n", "wiki/global/a.md"),
        ("wiki/**/n*.md filter=lfs\n", "wiki/global/notes.md"),
        ("*.yaml filter=lfs\n", "semantic-layer/notes/*.yaml"),
        (
            "raw-sources/** filter=lfs\n",
            "raw-sources/notes/docs/*/a.md",
        ),
        (
            "a.md filter=lfs\nwiki/** -filter\n",
            "raw-sources/notes/docs/*/a.md",
        ),
    ];
    for (attributes, path) in cases {
        let clone = HostileRepository::of(|origin| {
            write(origin, ".gitattributes", attributes);
            write(origin, "wiki/global/notes.md", "n\n");
        });
        clone.configure(
            format!(
                "[filter \"lfs\"]\n\tclean = {0}\n\tsmudge = {0}\n",
                clone.trap().display()
            )
            .as_bytes(),
        );
        let [plan, doctor, ran] = clone.run_all_commands();
        let sentence = ran.expect_refusal(2);
        assert!(
            sentence.contains(&format!("`{path}` goes through the git filter `lfs`")),
            "{attributes}: {ran:?}"
        );
        assert!(
            sentence.contains("exempt wiki/, semantic-layer/ and raw-sources/"),
            "{attributes}: {ran:?}"
        );
        assert!(
            plan.stderr.contains("git filter `lfs`"),
            "{attributes}: {plan:?}"
        );
        assert!(
            doctor.stdout.contains("git filter `lfs`"),
            "{attributes}: {doctor:?}"
        );
        let exempt = "wiki/** -filter\nsemantic-layer/** -filter\nraw-sources/** -filter\n";
        write(
            &clone.root(),
            ".gitattributes",
            format!("{attributes}{exempt}"),
        );
        assert!(
            clone.run().expect_success().contains("1 succeeded"),
            "{attributes}"
        );
    }
}

/// With it, git would check out the pages in another encoding.
#[test]
fn other_encoding_of_what_a_run_writes_is_refused() {
    let cases = [
        (
            "*.md working-tree-encoding=ISO-8859-1\n",
            Some("ISO-8859-1"),
        ),
        ("*.md working-tree-encoding=utf-8\n", None),
        ("*.txt working-tree-encoding=ISO-8859-1\n", None),
        (
            "*.md working-tree-encoding=ISO-8859-1\n*.md !working-tree-encoding\n",
            None,
        ),
    ];
    for (attributes, encoding) in cases {
        let clone = HostileRepository::of(|origin| write(origin, ".gitattributes", attributes));
        let [plan, doctor, ran] = clone.run_all_commands();
        let Some(encoding) = encoding else {
            assert!(
                ran.expect_success().contains("1 succeeded"),
                "{attributes}: {ran:?}"
            );
            continue;
        };
        let sentence = format!(
            "has the git attribute `working-tree-encoding={encoding}`, and a run writes UTF-8"
        );
        assert!(
            ran.expect_refusal(2).contains(&sentence),
            "{attributes}: {ran:?}"
        );
        assert!(
            ran.stderr
                .contains("from this attribute with `!working-tree-encoding`"),
            "{attributes}: {ran:?}"
        );
        assert!(
            plan.stderr.contains(&sentence) && doctor.stdout.contains(&sentence),
            "{plan:?} {doctor:?}"
        );
    }
}

/// Only files that a run writes matter: images of the wiki may be in Git LFS, and so may file types without an adapter.
#[test]
fn filter_on_what_a_run_does_not_write_is_accepted() {
    let clone = HostileRepository::of(|origin| {
        write(
            origin,
            ".gitattributes",
            "*.png filter=lfs\n*.yml filter=lfs\nraw-sources/**/*.sql filter=lfs\n",
        );
        write(origin, "wiki/global/logo.png", "pointer\n");
    });
    clone.configure(
        format!(
            "[filter \"lfs\"]\n\tclean = {0}\n\trequired\n",
            clone.trap().display()
        )
        .as_bytes(),
    );
    // The content after the filter. git treats it as changed, and a refused run must not change that.
    write(&clone.root(), "wiki/global/logo.png", "picture\n");
    let [plan, doctor, ran] = clone.run_all_commands();
    assert!(ran.expect_success().contains("1 succeeded"), "{ran:?}");
    assert!(
        !plan.stderr.contains("lfs") && !doctor.stdout.contains("git filter `lfs`"),
        "{plan:?} {doctor:?}"
    );
    assert_eq!(
        fs::read_to_string(clone.root().join("wiki/global/logo.png")).unwrap(),
        "picture\n"
    );
}
