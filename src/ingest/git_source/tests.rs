//! Clones of repositories on this machine, harmless and hostile ones. `tests/it/git_sources.rs` has those with ssh.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use super::*;
use crate::{
    path_policy::UserPermissions,
    plan::{UnitSelection, plan},
    project::Project,
    test_projects::{start_group_guard, write},
};

/// A project with the connection `wh` of the bare repository `origin.git` next to it, and the working tree of that.
struct Fixture {
    dir: tempfile::TempDir,
    project: Project,
}

impl Fixture {
    fn new(keys: &str) -> Self {
        start_group_guard();
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let url = format!("file://{}/origin.git", base.display());
        let settings = format!("connections:\n  wh: {{driver: dbt, repo_url: \"{url}\"{keys}}}\n");
        write(&base.join("project"), "ktx.yaml", &settings);
        let project = Project::open(&base.join("project")).unwrap();
        let fixture = Self { dir, project };
        fixture.git(&[
            "init",
            "--quiet",
            "--initial-branch=main",
            "--template=",
            "work",
        ]);
        write(&fixture.work(), "dbt_project.yml", "name: shop\n");
        write(
            &fixture.work(),
            "models/orders.yml",
            "models: [{name: orders}]\n",
        );
        fixture.commit("first");
        fixture.allow(&[&url])
    }

    fn allow(mut self, repositories: &[&str]) -> Self {
        let permissions = UserPermissions {
            paths: vec![self.base()],
            repositories: repositories.iter().map(|url| (*url).to_owned()).collect(),
            settings_file: "~/settings.toml".into(),
            ..UserPermissions::default()
        };
        self.project = self.project.with_permissions(permissions);
        self
    }

    fn base(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    fn work(&self) -> PathBuf {
        self.base().join("work")
    }

    fn clone(&self) -> PathBuf {
        self.project.root.join(".ktx/cache/dbt/wh")
    }

    fn run(&self, dir: &Path, args: &[&str], input: &[u8]) -> String {
        use std::io::Write as _;
        let mut command = Command::new(ingestdeck_os::program_path::find("git").unwrap());
        for (key, value) in [
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
        ] {
            command.env(key, value);
        }
        let settings = [
            "-c",
            "user.name=x",
            "-c",
            "user.email=x@x",
            "-c",
            "core.protectNTFS=false",
        ];
        let mut child = command
            .current_dir(dir)
            .args(settings)
            .args(args)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{args:?}");
        String::from_utf8(output.stdout)
            .unwrap()
            .trim_end()
            .to_owned()
    }

    fn git(&self, args: &[&str]) -> String {
        self.run(&self.base(), args, b"")
    }

    /// Commits the working tree, and makes `origin.git` a bare copy of its repository.
    fn commit(&self, message: &str) -> String {
        self.run(&self.work(), &["add", "--all"], b"");
        self.run(
            &self.work(),
            &["commit", "--quiet", "--allow-empty", "-m", message],
            b"",
        );
        self.publish()
    }

    fn publish(&self) -> String {
        let _ = fs::remove_dir_all(self.base().join("origin.git"));
        self.git(&[
            "clone",
            "--quiet",
            "--bare",
            "--template=",
            "work",
            "origin.git",
        ]);
        self.run(&self.work(), &["rev-parse", "HEAD"], b"")
    }

    /// Publishes a commit of the tree with these entries, each `MODE TYPE ID<tab>NAME`.
    fn commit_tree(&self, entries: &[String]) -> String {
        let list: String = entries.iter().map(|entry| format!("{entry}\0")).collect();
        let tree = self.run(&self.work(), &["mktree", "-z"], list.as_bytes());
        let commit = self.run(&self.work(), &["commit-tree", "-m", "hostile", &tree], b"");
        self.run(
            &self.work(),
            &["update-ref", "refs/heads/main", &commit],
            b"",
        );
        self.publish()
    }

    fn blob(&self, text: &str) -> String {
        self.run(
            &self.work(),
            &["hash-object", "-w", "--stdin"],
            text.as_bytes(),
        )
    }

    fn source(&self) -> GitSource<'_> {
        self.project.git_sources(&[]).next().unwrap().1.unwrap()
    }

    fn fetch(&self) -> Result<CommitId, GitSourceError> {
        self.source().fetch(false, &TransferLimits::default())
    }

    /// Files of the clone, without those of git, sorted.
    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.clone()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name != ".git").collect();
        names.sort();
        names
    }
}

#[test]
fn each_fetch_replaces_the_clone() {
    let fixture = Fixture::new("");
    let first = fixture.run(&fixture.work(), &["rev-parse", "HEAD"], b"");
    assert_eq!(fixture.fetch().unwrap().as_str(), first);
    assert_eq!(fixture.files(), ["dbt_project.yml", "models"]);
    // Nothing else is left, and git does not see the clone.
    let parent = fixture.clone().with_file_name("");
    let mut others: Vec<_> = fs::read_dir(parent)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    others.sort();
    assert_eq!(others, [".gitignore", ".lock", "wh"]);
    // As in a clone of KTX, so that KTX can pull in it.
    for (key, value) in [
        ("remote.origin.url", fixture.source().url()),
        ("branch.main.merge", "refs/heads/main".into()),
    ] {
        assert_eq!(fixture.run(&fixture.clone(), &["config", key], b""), value);
    }
    assert_eq!(
        fixture.run(&fixture.clone(), &["status", "--porcelain"], b""),
        ""
    );

    let mark = fixture.clone().join(".git/mark");
    fs::write(&mark, "").unwrap();
    assert_eq!(fixture.fetch().unwrap().as_str(), first);
    assert!(!mark.exists(), "an unchanged clone is replaced, too");
    write(
        &fixture.work(),
        "models/more.yml",
        "models: [{name: more}]\n",
    );
    let second = fixture.commit("second");
    assert_eq!(fixture.fetch().unwrap().as_str(), second);
    assert!(fixture.clone().join("models/more.yml").is_file());
    let state = fixture.source().clone_state().unwrap();
    assert_eq!(
        (state.commit.as_str(), state.branch.as_deref()),
        (second.as_str(), Some("main"))
    );
    assert!(state.fetched.is_some());
    // A clone whose files differ from its commit is not taken for the commit, even if git reports no difference.
    let hidden = ["update-index", "--assume-unchanged", "models/more.yml"];
    fixture.run(&fixture.clone(), &hidden, b"");
    fs::write(fixture.clone().join("models/more.yml"), "edited").unwrap();
    fixture.fetch().unwrap();
    let text = fs::read_to_string(fixture.clone().join("models/more.yml")).unwrap();
    assert!(text.contains("more"));
}

#[test]
fn clone_gives_the_units_of_its_folder() {
    let fixture = Fixture::new(", path: shop");
    write(&fixture.work(), "shop/dbt_project.yml", "name: shop\n");
    write(
        &fixture.work(),
        "shop/models/a.yml",
        "models: [{name: a}]\n",
    );
    let commit = fixture.commit("shop");
    let problem = &plan(&fixture.project, &UnitSelection::default())
        .unwrap()
        .skipped[0]
        .problem;
    assert!(
        problem
            .to_line()
            .contains("is not on this machine yet; fetch it with"),
        "{problem}"
    );
    fixture.fetch().unwrap();
    let planned = plan(&fixture.project, &UnitSelection::default()).unwrap();
    let files: Vec<_> = planned.units[0]
        .planned
        .raw_files
        .iter()
        .map(String::as_str)
        .collect();
    assert_eq!(files, ["dbt_project.yml", "models/a.yml"]);
    let source = &planned.sources[0];
    assert!(source.external_dir.is_none() && source.version.branch_mismatch.is_none());
    assert_eq!(source.to_note().repository.unwrap().commit, commit);
}

#[test]
fn nothing_is_fetched_without_permission() {
    let fixture = Fixture::new("").allow(&["file:///other", "https://h/x"]);
    let error = fixture.fetch().unwrap_err();
    let expected = format!(
        "its repository `file://{0}/origin.git` may not be fetched yet; to allow it, write `allow_git = [\"file:///other\", \
         \"https://h/x\", \"file://{0}/origin.git\"]` below `[ingest]` in your settings (~/settings.toml)",
        fixture.base().display()
    );
    assert_eq!(error.to_line(), expected);
    assert!(!fixture.project.root.join(".ktx").exists());
    fixture
        .source()
        .fetch(true, &TransferLimits::default())
        .unwrap();
}

#[test]
fn permission_names_the_token_that_is_sent() {
    let permission = |keys: &str| {
        let dir = tempfile::tempdir().unwrap();
        write(
            dir.path(),
            "ktx.yaml",
            &format!("connections:\n  wh: {{{keys}}}\n"),
        );
        let project = Project::open(dir.path()).unwrap();
        project
            .git_sources(&[])
            .next()
            .unwrap()
            .1
            .map(|source| source.permission())
    };
    let url = "driver: lookml, repoUrl: \"https://h/x.git\"";
    assert_eq!(permission(url).unwrap(), "https://h/x.git");
    let token = permission(&format!("{url}, auth_token_ref: \"env:TOKEN\"")).unwrap();
    assert_eq!(token, "https://h/x.git env:TOKEN");
    let nested =
        "driver: metricflow, metricflow: {repoUrl: \"https://h/x\", auth_token_ref: \"file:/t\"}";
    assert_eq!(permission(nested).unwrap(), "https://h/x file:/t");
    // Logins of ssh are those of the user.
    let ssh = "driver: dbt, repo_url: \"git@h:x\", auth_token_ref: \"env:TOKEN\"";
    assert_eq!(permission(ssh).unwrap(), "git@h:x");
    for keys in [
        &format!("{url}, auth_token_ref: ghp_secret"),
        &format!("{url}, branch: \"--upload-pack=id\""),
        &format!("{url}, branch: \"a:refs/heads/b\""),
        &format!("{url}, branch: \"a\\nb\""),
        &format!("{url}, branch: \"../../x\""),
    ] {
        let error = permission(keys).unwrap_err().to_line();
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn missing_branch_is_explained_with_the_default_branch() {
    let fixture = Fixture::new(", branch: dev");
    let error = fixture.fetch().unwrap_err().to_line();
    assert!(
        error.contains("has no branch `dev`; set `branch: main`, its default branch"),
        "{error}"
    );
    assert!(!fixture.clone().exists());
}

#[test]
fn clone_of_another_repository_or_branch_is_not_used_silently() {
    let fixture = Fixture::new("");
    fixture.fetch().unwrap();
    fixture.run(
        &fixture.clone(),
        &["checkout", "--quiet", "-b", "other"],
        b"",
    );
    let planned = plan(&fixture.project, &UnitSelection::default()).unwrap();
    let mismatch = planned.sources[0]
        .version
        .branch_mismatch
        .as_ref()
        .unwrap()
        .to_line();
    assert!(
        mismatch.contains("its clone is of branch `other`, not of branch `main`"),
        "{mismatch}"
    );
    fixture.run(
        &fixture.clone(),
        &["config", "remote.origin.url", "https://h/x"],
        b"",
    );
    let planned = plan(&fixture.project, &UnitSelection::default()).unwrap();
    assert!(
        planned.skipped[0]
            .problem
            .to_line()
            .contains("is of another repository than")
    );
    fixture.fetch().unwrap();
    assert_eq!(
        fixture.source().clone_state().unwrap().branch.as_deref(),
        Some("main")
    );
}

/// A clone that came with the project cannot lead git anywhere, and links in the cache are not followed.
#[test]
fn hostile_clone_in_the_cache_is_replaced() {
    let fixture = Fixture::new("");
    fixture.fetch().unwrap();
    let trap = fixture.base().join("trap");
    let sprung = format!("!touch {}", trap.display());
    for (key, value) in [
        ("core.sshCommand", &*sprung),
        ("core.fsmonitor", sprung.trim_start_matches('!')),
        ("remote.origin.uploadpack", sprung.trim_start_matches('!')),
        ("filter.x.clean", sprung.trim_start_matches('!')),
        ("filter.x.smudge", sprung.trim_start_matches('!')),
        ("credential.helper", &*sprung),
        ("url.ext::sh.insteadOf", "file:"),
        ("protocol.ext.allow", "always"),
    ] {
        fixture.run(&fixture.clone(), &["config", key, value], b"");
    }
    fs::create_dir_all(fixture.clone().join(".git/hooks")).unwrap();
    fs::write(fixture.clone().join(".gitattributes"), "* filter=x\n").unwrap();
    fs::write(fixture.clone().join("dbt_project.yml"), "name: changed\n").unwrap();
    plan(&fixture.project, &UnitSelection::default()).unwrap();
    fixture.fetch().unwrap();
    assert!(!trap.exists());
    assert_eq!(fixture.files(), ["dbt_project.yml", "models"]);
    let config = fs::read_to_string(fixture.clone().join(".git/config")).unwrap();
    assert!(
        !config.contains("trap") && !config.contains("insteadOf"),
        "{config}"
    );

    // The clone, its `.git` and the cache are links.
    let outside = fixture.base().join("outside");
    fs::rename(fixture.clone(), &outside).unwrap();
    symlink(&outside, fixture.clone()).unwrap();
    let problem = plan(&fixture.project, &UnitSelection::default())
        .unwrap()
        .skipped
        .remove(0)
        .problem;
    assert!(
        problem.to_line().contains("is a symbolic link"),
        "{problem}"
    );
    fixture.fetch().unwrap();
    assert!(!fixture.clone().is_symlink() && outside.join("dbt_project.yml").is_file());
    fs::remove_dir_all(fixture.clone().join(".git")).unwrap();
    symlink(outside.join(".git"), fixture.clone().join(".git")).unwrap();
    assert!(matches!(
        fixture.source().clone_state(),
        Err(GitSourceError::NotCloned { .. })
    ));
    fixture.fetch().unwrap();
    fs::rename(
        fixture.project.root.join(".ktx/cache"),
        fixture.base().join("cache"),
    )
    .unwrap();
    symlink(
        fixture.base().join("cache"),
        fixture.project.root.join(".ktx/cache"),
    )
    .unwrap();
    assert!(matches!(fixture.fetch(), Err(GitSourceError::Io { .. })));
    assert!(matches!(
        fixture.source().clone_state(),
        Err(GitSourceError::InvalidClone { .. })
    ));
}

#[test]
fn files_outside_the_clone_are_not_read() {
    for (path, link) in [
        ("out", "../../../../../secret"),
        ("out", "/etc"),
        ("up", ".."),
        ("git", ".git"),
    ] {
        let fixture = Fixture::new(&format!(", path: {path}"));
        write(&fixture.base(), "secret/dbt_project.yml", "name: secret\n");
        symlink(link, fixture.work().join(path)).unwrap();
        fixture.commit("link");
        fixture.fetch().unwrap();
        let planned = plan(&fixture.project, &UnitSelection::default()).unwrap();
        let problem = planned.skipped[0].problem.to_line();
        assert!(
            problem.contains("is outside its repository")
                || problem.contains("belongs to git or KTX")
                || problem.contains("does not exist"),
            "{problem}"
        );
    }
    let fixture = Fixture::new(", path: ../../../..");
    fixture.fetch().unwrap();
    let planned = plan(&fixture.project, &UnitSelection::default()).unwrap();
    assert!(
        planned.skipped[0]
            .problem
            .to_line()
            .contains("is outside its repository")
    );
    // A file behind a link is skipped.
    let fixture = Fixture::new("");
    write(&fixture.base(), "secret.yml", "models: [{name: secret}]\n");
    symlink(
        "../../../../../../secret.yml",
        fixture.work().join("models/secret.yml"),
    )
    .unwrap();
    fixture.commit("link");
    fixture.fetch().unwrap();
    let planned = plan(&fixture.project, &UnitSelection::default()).unwrap();
    let files: Vec<_> = planned.units[0]
        .planned
        .raw_files
        .iter()
        .map(String::as_str)
        .collect();
    assert_eq!(files, ["dbt_project.yml", "models/orders.yml"]);
}

#[test]
fn programs_of_the_repository_do_not_run() {
    let fixture = Fixture::new("");
    let trap = fixture.base().join("trap");
    let sprung = format!("touch {}", trap.display());
    write(
        &fixture.work(),
        ".gitattributes",
        "* filter=x diff=x merge=x\n",
    );
    write(
        &fixture.work(),
        ".gitmodules",
        &format!("[submodule \"s\"]\n\tpath = s\n\turl = ext::{sprung}\n\tupdate = !{sprung}\n"),
    );
    fixture.commit("hostile");
    let origin = fixture.base().join("origin.git");
    for key in [
        "filter.x.smudge",
        "filter.x.clean",
        "filter.x.process",
        "uploadpack.packObjectsHook",
        "core.fsmonitor",
    ] {
        fixture.run(&origin, &["config", key, &sprung], b"");
    }
    fs::create_dir_all(origin.join("hooks")).unwrap();
    for hook in [
        "post-checkout",
        "post-update",
        "reference-transaction",
        "post-index-change",
    ] {
        let path = origin.join("hooks").join(hook);
        fs::write(&path, format!("#!/bin/sh\n{sprung}\n")).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    fixture.fetch().unwrap();
    assert!(!trap.exists());
    assert!(!fixture.clone().join(".git/hooks").exists());
    assert_eq!(
        fixture.files(),
        [".gitattributes", ".gitmodules", "dbt_project.yml", "models"]
    );
}

#[test]
fn names_of_git_are_not_written() {
    for name in [".git", ".GIT", ".git ", "git~1", ".g\u{200c}it", ".."] {
        let fixture = Fixture::new("");
        let inner = fixture.run(
            &fixture.work(),
            &["mktree", "-z"],
            format!(
                "100644 blob {}\tconfig\0",
                fixture.blob("[core]\nfsmonitor = touch trap\n")
            )
            .as_bytes(),
        );
        fixture.commit_tree(&[format!("040000 tree {inner}\t{name}")]);
        assert!(fixture.fetch().is_err(), "{name}");
        assert!(!fixture.clone().exists(), "{name}");
    }
}

#[test]
fn names_that_differ_in_case_are_files_of_their_own_or_one() {
    let fixture = Fixture::new("");
    let (first, second) = (fixture.blob("name: a\n"), fixture.blob("name: b\n"));
    fixture.commit_tree(&[
        format!("100644 blob {first}\tDBT_project.yml"),
        format!("100644 blob {second}\tdbt_project.yml"),
    ]);
    fixture.fetch().unwrap();
    assert!(
        fixture
            .files()
            .iter()
            .all(|name| name.eq_ignore_ascii_case("dbt_project.yml"))
    );
}

/// One blob and ten trees, which are ten billion files.
#[test]
fn repository_that_unfolds_to_many_files_is_refused() {
    let fixture = Fixture::new("");
    let mut entry = format!("100644 blob {}\t", fixture.blob("x"));
    for _ in 0..10 {
        let list: String = (0..10).map(|name| format!("{entry}{name}\0")).collect();
        let tree = fixture.run(&fixture.work(), &["mktree", "-z"], list.as_bytes());
        entry = format!("040000 tree {tree}\t");
    }
    fixture.commit_tree(&[format!("{entry}top")]);
    let error = fixture.fetch().unwrap_err();
    assert!(matches!(error, GitSourceError::TooLarge { .. }), "{error}");
    assert!(!fixture.clone().exists());
}

/// What is left of a fetch could not be removed if it were deeper.
#[test]
fn too_deep_folders_are_refused_and_stop_no_later_fetch() {
    let fixture = Fixture::new("");
    let mut entry = format!("100644 blob {}\tx", fixture.blob("x"));
    for _ in 0..65 {
        let tree = fixture.run(
            &fixture.work(),
            &["mktree", "-z"],
            format!("{entry}\0").as_bytes(),
        );
        entry = format!("040000 tree {tree}\td");
    }
    fixture.commit_tree(&[entry]);
    let error = fixture.fetch().unwrap_err();
    assert!(matches!(error, GitSourceError::TooLarge { .. }), "{error}");

    let fixture = Fixture::new("");
    let cache = fixture.clone().with_file_name("");
    fs::create_dir_all(cache.join(format!(".draft-x{}", "/d".repeat(200)))).unwrap();
    fixture.fetch().unwrap();
}

/// Such a repository in the project would let git read one that the project may not read.
#[test]
fn bare_repository_that_leads_elsewhere_is_refused() {
    let refused = |fixture: &Fixture, file: &str| {
        let error = fixture.fetch().unwrap_err().to_line();
        assert!(error.contains(&format!("`{file}`")), "{error}");
        assert!(!fixture.clone().exists());
    };
    for file in [
        "commondir",
        "objects/info/alternates",
        "objects/info/http-alternates",
    ] {
        let fixture = Fixture::new("");
        write(&fixture.base().join("origin.git"), file, "/elsewhere\n");
        refused(&fixture, file);
    }
    for link in ["refs/heads/other", "objects/ff", "packed-refs"] {
        let fixture = Fixture::new("");
        let path = fixture.base().join("origin.git").join(link);
        // A file or folder of this name may be there.
        let _ = fs::remove_file(&path);
        let _ = fs::remove_dir_all(&path);
        symlink("/elsewhere", &path).unwrap();
        refused(&fixture, link);
    }
}

#[test]
fn too_large_repository_leaves_the_clone_as_it_is() {
    let fixture = Fixture::new("");
    let first = fixture.fetch().unwrap();
    write(&fixture.work(), "large.yml", &"a: b\n".repeat(1000));
    fixture.commit("large");
    for limits in [
        TransferLimits {
            bytes: 4999,
            ..TransferLimits::default()
        },
        TransferLimits {
            files: 2,
            ..TransferLimits::default()
        },
    ] {
        let error = fixture.source().fetch(false, &limits).unwrap_err();
        assert!(matches!(error, GitSourceError::TooLarge { .. }), "{error}");
        assert_eq!(fixture.source().clone_state().unwrap().commit, first);
    }
    fixture.fetch().unwrap();
}

#[test]
fn head_is_read_from_loose_and_packed_refs() {
    let fixture = Fixture::new("");
    let commit = fixture.fetch().unwrap();
    let read = || read_head(&ScopedDir::open(&fixture.clone()).unwrap());
    assert_eq!(read(), Some((commit.clone(), Some("main".into()))));
    fixture.run(&fixture.clone(), &["pack-refs", "--all"], b"");
    assert_eq!(read(), Some((commit.clone(), Some("main".into()))));
    let head = fixture.clone().join(".git/HEAD");
    fs::write(&head, format!("{commit}\n")).unwrap();
    assert_eq!(read(), Some((commit, None)));
    for text in [
        "ref: refs/heads/../../../x\n",
        "ref: /etc/passwd\n",
        "ref: refs/heads/gone\n",
        "x\n",
        "",
    ] {
        fs::write(&head, text).unwrap();
        assert_eq!(read(), None, "{text:?}");
    }
}
