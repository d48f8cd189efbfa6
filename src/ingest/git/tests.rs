//! Environment and configuration of git calls, and attacks by a hostile repository.

use std::{fs, os::unix::fs::PermissionsExt as _};

use super::*;
use crate::test_projects::{project, write};

/// A program that leaves a proof file when it runs.
struct Trap {
    program: PathBuf,
    proof: PathBuf,
}

impl Trap {
    fn new(dir: &Path) -> Self {
        let (program, proof) = (dir.join("trap"), dir.join("proof"));
        fs::write(
            &program,
            format!("#!/bin/sh\necho \"$0 $@\" >> '{}'\ncat\n", proof.display()),
        )
        .unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Self { program, proof }
    }

    fn assert_unsprung(&self) {
        assert!(
            !self.proof.exists(),
            "{}",
            fs::read_to_string(&self.proof).unwrap()
        );
    }
}

/// Appends bytes to the configuration of the repository in `root`.
fn configure(root: &Path, bytes: &[u8]) {
    let path = root.join(".git/config");
    let mut config = fs::read(&path).unwrap();
    config.extend_from_slice(bytes);
    fs::write(path, config).unwrap();
}

/// Makes every git call that planning and running make.
fn use_everything(root: &Path) {
    let git = Git::open(root).unwrap();
    write(root, "wiki/global/a.md", "b\n");
    git.try_run(&["update-index", "-q", "--refresh"]).unwrap();
    git.run(&["add", "--all", "--", "wiki"]).unwrap();
    git.run(&["commit", "--quiet", "--no-verify", "-m", "second"])
        .unwrap();
    git.run(&["diff", "--no-ext-diff", "--no-textconv", "HEAD~1", "HEAD"])
        .unwrap();
    git.run(&["checkout", "--quiet", "HEAD~1", "--", "wiki"])
        .unwrap();
    git.run(&[
        "status",
        "--porcelain",
        "--ignore-submodules=all",
        "--",
        "wiki",
    ])
    .unwrap();
    git.run(&[
        "worktree", "add", "--quiet", "-b", "other", "--", "../other", "HEAD",
    ])
    .unwrap();
    git.run(&["worktree", "remove", "--force", "--", "../other"])
        .unwrap();
    git.run(&["log", "-1"]).unwrap();
}

#[test]
fn git_that_does_not_answer_is_named() {
    let help = GitError::VersionTimedOut {
        limit: CONFIG_LIMITS.time,
    }
    .help()
    .unwrap();
    assert!(help.contains("first on the PATH: /"), "{help}");
}

#[test]
fn programs_of_a_configuration_do_not_run() {
    for name in [&b"evil"[..], b"e\xff", b"a=b", b"a\\\"b", b"\x1b[2j"] {
        let attributes = [
            b"*.md filter=",
            name,
            b" diff=",
            name,
            b" merge=",
            name,
            b"\n",
        ]
        .concat();
        let (dir, root) = project(&[("wiki/global/a.md", "a\n")]);
        let trap = Trap::new(dir.path());
        fs::create_dir_all(root.join(".git/info")).unwrap();
        fs::write(root.join(".git/info/attributes"), attributes).unwrap();
        let program = trap.program.to_str().unwrap();
        let of = |section: &str, variables: &[&str]| {
            let escaped = name.iter().flat_map(|byte| match byte {
                b'"' | b'\\' => vec![b'\\', *byte],
                byte => vec![*byte],
            });
            let head = [
                format!("[{section} \"").as_bytes(),
                &escaped.collect::<Vec<_>>(),
                b"\"]\n",
            ]
            .concat();
            let lines: String = variables
                .iter()
                .map(|name| format!("{name} = {program}\n"))
                .collect();
            [head, lines.into_bytes()].concat()
        };
        configure(&root, &of("filter", &["clean", "smudge", "process"]));
        configure(&root, b"required = true\n");
        configure(&root, &of("diff", &["command", "textconv"]));
        configure(&root, &of("merge", &["driver"]));
        // Releases before 2.54 ignore such hooks, so with them this section only proves that it is listed.
        configure(&root, &of("hook", &["command"]));
        configure(
            &root,
            b"event = post-index-change\nevent = reference-transaction\nevent = post-commit\n",
        );
        use_everything(&root);
        trap.assert_unsprung();
        assert_eq!(
            fs::read_to_string(root.join("wiki/global/a.md")).unwrap(),
            "a\n"
        );
        assert_eq!(
            Git::open(&root).unwrap().disabled_programs().count(),
            4,
            "each kind is listed"
        );
    }
}

#[test]
fn hooks_and_helpers_of_a_repository_do_not_run() {
    let (dir, root) = project(&[("wiki/global/a.md", "a\n")]);
    let trap = Trap::new(dir.path());
    let hooks = root.join(".git/hooks");
    fs::create_dir_all(&hooks).unwrap();
    for hook in [
        "pre-commit",
        "post-checkout",
        "post-commit",
        "reference-transaction",
        "post-index-change",
    ] {
        fs::copy(&trap.program, hooks.join(hook)).unwrap();
    }
    let plain = Git::open(&root).unwrap();
    let keys = [
        "core.fsmonitor",
        "core.pager",
        "core.editor",
        "core.sshCommand",
        "core.gitProxy",
        "core.askPass",
        "core.alternateRefsCommand",
        "credential.helper",
        "diff.external",
        "gpg.program",
        "gpg.ssh.program",
        "interactive.diffFilter",
        "sequence.editor",
        "trailer.x.command",
        "trailer.x.cmd",
        "uploadpack.packObjectsHook",
        "pager.log",
        "pager.status",
    ];
    for key in keys {
        plain
            .run(&["config", key, trap.program.to_str().unwrap()])
            .unwrap();
    }
    for (key, value) in [
        ("commit.gpgsign", "true"),
        ("log.showSignature", "true"),
        ("gc.auto", "1"),
    ] {
        plain.run(&["config", key, value]).unwrap();
    }
    use_everything(&root);
    trap.assert_unsprung();
    let listed: Vec<String> = Git::open(&root)
        .unwrap()
        .disabled_programs()
        .map(ToString::to_string)
        .collect();
    let expected = [
        "core.askPass",
        "core.fsmonitor",
        "core.gitProxy",
        "core.sshCommand",
        "credential.helper",
        "diff.external",
        "gpg.program",
        "gpg.ssh.program",
    ];
    assert_eq!(listed, expected);
    let author = Git::open(&root)
        .unwrap()
        .run_for_line(&["log", "-1", "--format=%an <%ae> %cn <%ce>"])
        .unwrap();
    assert_eq!(
        author,
        "ktx Local <local@ktx.local> ktx Local <local@ktx.local>"
    );
}

#[test]
fn programs_of_a_submodule_do_not_run() {
    let (dir, root) = project(&[("wiki/global/a.md", "a\n")]);
    let trap = Trap::new(dir.path());
    let git = Git::open(&root).unwrap();
    let sub = root.join("wiki/sub");
    write(&sub, "f", "f\n");
    let inner = Git::open(&sub).unwrap();
    inner
        .run(&["init", "--quiet", "--initial-branch=main"])
        .unwrap();
    inner.run(&["add", "--all"]).unwrap();
    inner.run(&["commit", "--quiet", "-m", "sub"]).unwrap();
    write(
        &root,
        ".gitmodules",
        "[submodule \"sub\"]\n path = wiki/sub\n url = ./sub\n ignore = none\n",
    );
    git.run(&["add", "--all"]).unwrap();
    git.run(&["commit", "--quiet", "-m", "with a submodule"])
        .unwrap();
    configure(
        &sub,
        format!("[filter \"evil\"]\nclean = {}\n", trap.program.display()).as_bytes(),
    );
    fs::create_dir_all(sub.join(".git/info")).unwrap();
    fs::write(sub.join(".git/info/attributes"), "* filter=evil\n").unwrap();
    write(&sub, "f", "g\n");
    let repository = super::super::repository::Repository::find(&root)
        .unwrap()
        .unwrap();
    repository.check_ready(&[], false).unwrap();
    trap.assert_unsprung();
}

/// Releases before 2.44 ignore the setting and fetch anyway.
#[test]
fn a_partial_clone_fetches_nothing() {
    for url in ["ext::TRAP", "ssh://host/x", "file:///x", "/x"] {
        let (dir, root) = project(&[("wiki/global/a.md", "a\n")]);
        let trap = Trap::new(dir.path());
        let git = Git::open(&root).unwrap();
        let blob = git
            .run_for_line(&["rev-parse", "HEAD:wiki/global/a.md"])
            .unwrap();
        fs::remove_file(root.join(".git/objects").join(&blob[..2]).join(&blob[2..])).unwrap();
        let program = trap.program.to_str().unwrap();
        for (key, value) in [
            ("core.repositoryFormatVersion", "1"),
            ("extensions.partialClone", "origin"),
            ("remote.origin.promisor", "true"),
            ("remote.origin.url", &url.replace("TRAP", program)),
            ("remote.origin.uploadpack", program),
            ("core.sshCommand", program),
            ("protocol.allow", "always"),
            ("protocol.ext.allow", "always"),
        ] {
            git.run(&["config", key, value]).unwrap();
        }
        assert!(
            Git::open(&root)
                .unwrap()
                .run(&["cat-file", "blob", &blob])
                .is_err()
        );
        trap.assert_unsprung();
    }
}

/// Releases before 2.54 ignore such hooks, so with them only the environment can be asserted.
#[test]
fn hooks_of_a_configuration_are_disabled_in_every_call() {
    let (_dir, root) = project(&[]);
    configure(
        &root,
        b"[hook \"a b\"]\nevent = post-commit\ncommand = touch x\n[hook]\njobs = 4\n",
    );
    let command = Git::open(&root).unwrap().command(&["status"], false);
    let variables: std::collections::BTreeMap<_, _> = command.get_envs().collect();
    let value = |name: &str| {
        variables
            .get(std::ffi::OsStr::new(name))
            .copied()
            .flatten()
            .and_then(|value| value.to_str())
    };
    assert_eq!(value("GIT_CONFIG_COUNT"), Some("1"));
    assert_eq!(
        (value("GIT_CONFIG_KEY_0"), value("GIT_CONFIG_VALUE_0")),
        (Some("hook.a b.enabled"), Some("false"))
    );
    assert!(Path::new(command.get_program()).is_absolute());
    assert!(std::env::split_paths(value("PATH").unwrap()).all(|entry| entry.is_absolute()));
}

#[test]
fn releases_that_are_too_old_are_refused() {
    for (said, is_refused) in [
        ("git version 2.25.1", true),
        ("git version 1.99.0", true),
        ("git version 2.30.9.windows.1", true),
        ("git version 2.31.0", false),
        ("git version 2.39.5 (Apple Git-154)", false),
        ("git version 3.0.0-rc1", false),
        ("git version of my own", false),
        ("", false),
    ] {
        assert_eq!(check_version(said).is_err(), is_refused, "{said}");
    }
    let error = check_version("git version 2.25.1").unwrap_err();
    assert_eq!(
        error.to_line(),
        "git 2.31 or newer is needed, this is 2.25.1; update git"
    );
}

#[test]
fn a_configuration_with_too_many_programs_is_refused() {
    let (_dir, root) = project(&[]);
    let sections: String = (0..5_000)
        .map(|n| format!("[filter \"{n}\"]\nclean = cat\n"))
        .collect();
    configure(&root, sections.as_bytes());
    assert!(matches!(Git::open(&root), Err(GitError::TooManyPrograms)));
}

#[test]
fn a_configuration_that_cannot_be_read_is_an_error() {
    let (dir, root) = project(&[]);
    let pipe = dir.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    configure(
        &root,
        format!("[include]\npath = {}\n", pipe.display()).as_bytes(),
    );
    let limits = GitCallLimits {
        time: Duration::from_millis(50),
        ..CONFIG_LIMITS
    };
    let error = Git::open_with(program().unwrap(), &root, &[], limits).unwrap_err();
    assert!(matches!(error, GitError::ConfigTimedOut { .. }), "{error}");
    fs::write(root.join(".git/config"), "[core\n").unwrap();
    assert!(matches!(Git::open(&root), Err(GitError::Failed { .. })));
}

#[test]
fn failed_call_reports_stderr_and_hung_call_is_ended() {
    let (_dir, root) = project(&[]);
    let git = Git::open(&root).unwrap();
    let error = git
        .run(&["rev-parse", "--verify", "no-such-branch"])
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "git rev-parse failed: fatal: Needed a single revision"
    );
    git.run(&["config", "alias.hang", "!sleep 600"]).unwrap();
    let error = within(&git, Duration::from_millis(50))
        .run(&["hang"])
        .unwrap_err();
    assert!(matches!(error, GitError::TimedOut { .. }), "{error}");
}

#[test]
fn lines_of_stderr_become_one_line() {
    let stderr = "fatal: detected dubious ownership\nTo add an exception, call:\n\n\tgit config safe.directory x\nend\n";
    let joined = "fatal: detected dubious ownership; To add an exception, call: git config safe.directory x; end";
    assert_eq!(stderr_tail(stderr.as_bytes()), joined);
}

fn within(git: &Git, time: Duration) -> Git {
    Git {
        limits: GitCallLimits { time, ..LIMITS },
        ..git.clone()
    }
}

#[test]
fn a_call_that_takes_too_long_may_remove_its_lock_files() {
    let (dir, root) = project(&[]);
    let git = Git::open(&root).unwrap();
    let (lock, ended) = (dir.path().join("lock"), dir.path().join("ended"));
    let script = format!(
        "!trap 'rm {0}; touch {1}; exit 1' TERM; touch {0}; sleep 600",
        lock.display(),
        ended.display()
    );
    git.run(&["config", "alias.hang", &script]).unwrap();
    // On a busy machine the program may not have started within the first limits.
    let mut limit = Duration::from_millis(50);
    while !lock.exists() && !ended.exists() {
        limit *= 2;
        let error = within(&git, limit).run(&["hang"]).unwrap_err();
        assert!(matches!(error, GitError::TimedOut { .. }), "{error}");
    }
    assert!(ended.exists() && !lock.exists());
}

#[test]
fn a_call_that_ignores_the_request_to_end_is_killed() {
    let (_dir, root) = project(&[]);
    let git = Git::open(&root).unwrap();
    git.run(&["config", "alias.hang", "!trap '' TERM; sleep 600"])
        .unwrap();
    let error = within(&git, Duration::from_millis(50))
        .run(&["hang"])
        .unwrap_err();
    assert!(matches!(error, GitError::TimedOut { .. }), "{error}");
}

#[test]
fn output_is_read_up_to_a_limit() {
    let (_dir, root) = project(&[]);
    let git = Git::open(&root).unwrap();
    for (name, script) in [("out", "!cat /dev/zero"), ("err", "!cat /dev/zero >&2")] {
        git.run(&["config", &format!("alias.{name}"), script])
            .unwrap();
        let error = Git {
            limits: GitCallLimits {
                output: 1 << 20,
                ..LIMITS
            },
            ..git.clone()
        }
        .run(&[name])
        .unwrap_err();
        let words = format!(
            "git {name} printed more than 1 MiB; remove very large or very many files from the repository"
        );
        assert_eq!(error.to_line(), words);
    }
    configure(
        &root,
        format!("[x]\ny = {}\n", "z".repeat(5 << 20)).as_bytes(),
    );
    let error = Git::open(&root).unwrap_err();
    assert!(matches!(error, GitError::ConfigTooLarge { .. }), "{error}");
    assert!(
        error
            .to_line()
            .starts_with("the git configuration has more than 4 MiB; remove"),
        "{error}"
    );
}

/// A replacement for git that runs `body` and then executes git.
fn wrapper(dir: &Path, body: &str) -> &'static Path {
    let path = dir.join("git");
    // A child writes it: a process that another test starts meanwhile would inherit the open file, and the system
    // executes no file that is open for writing.
    let mut tee = Command::new("tee")
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    write!(
        tee.stdin.take().unwrap(),
        "#!/bin/sh\n{body}\nexec {} \"$@\"\n",
        program().unwrap().display()
    )
    .unwrap();
    assert!(tee.wait().unwrap().success());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    Box::leak(path.into_boxed_path())
}

#[test]
fn git_ignoring_overrides_is_rejected() {
    let (dir, root) = project(&[]);
    Git::open_with(wrapper(dir.path(), ":"), &root, &[], CONFIG_LIMITS).unwrap();
    configure(&root, b"[ingestdeck]\noverride = arrives\n");
    let error = Git::open_with(
        wrapper(dir.path(), "unset GIT_CONFIG_COUNT"),
        &root,
        &[],
        CONFIG_LIMITS,
    )
    .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("git ignores settings in its environment (GIT_CONFIG_COUNT), so"),
        "{error}"
    );
}

#[test]
fn named_pipes_that_a_configuration_names_are_not_opened() {
    let (dir, root) = project(&[("wiki/global/a.md", "a\n")]);
    let pipe = dir.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    configure(
        &root,
        format!(
            "[core]\nexcludesFile = {0}\nattributesFile = {0}\n",
            pipe.display()
        )
        .as_bytes(),
    );
    let git = within(&Git::open(&root).unwrap(), Duration::from_secs(10));
    write(&root, "wiki/global/b.md", "b\n");
    assert_eq!(
        git.run_for_line(&["status", "--porcelain", "--", "wiki"])
            .unwrap(),
        "?? wiki/global/b.md"
    );
    assert!(
        git.run(&["check-attr", "-z", "--all", "--", "wiki/global/a.md"])
            .unwrap()
            .is_empty()
    );
}

#[test]
fn replaced_objects_are_not_read() {
    let (_dir, root) = project(&[("wiki/global/a.md", "a\n")]);
    let git = Git::open(&root).unwrap();
    let blob = git
        .run_for_line(&["rev-parse", "HEAD:wiki/global/a.md"])
        .unwrap();
    let other = git
        .run_with_input(&["hash-object", "-w", "--stdin"], b"replaced\n")
        .unwrap();
    let other = String::from_utf8(other).unwrap();
    git.run(&["update-ref", &format!("refs/replace/{blob}"), other.trim()])
        .unwrap();
    write(&root, ".git/info/grafts", "\n");
    let shown = git.try_run(&["show", "HEAD:wiki/global/a.md"]).unwrap();
    assert_eq!(
        (shown.stdout.as_slice(), shown.stderr.as_str()),
        (&b"a\n"[..], "")
    );
    assert_eq!(
        git.try_run(&["log", "-1", "--format=%s"]).unwrap().stderr,
        "",
        "no hint about grafts"
    );
}
