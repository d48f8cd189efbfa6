//! Programs that a cloned repository would make git run: none of them runs, while plain git runs each of them.
//!
//! `hook.<name>.command` is not included, because releases before 2.54 do not support such hooks. Unit tests of
//! `ingest::git` assert the environment that disables them.

use std::{fs, process::Command};

use super::{HostileClone, archive_case, attack};

/// Two units that each change a paragraph of the same page, so git has to merge the texts.
const MERGING: &str = r#"
[[part]]
unit = "docs-a"
steps = [
  { call = { tool = "wiki_read", with = { key = "shared" } } },
  { call = { tool = "record_verification_ledger", with = { summary = "read", verifiedIdentifiers = [], unverifiedIdentifiers = [] } } },
  { call = { tool = "wiki_write", with = { key = "shared", summary = "s", content = "ONE\n\nb\n\nc\n\nd\n\ntwo" } } },
]
[[part]]
unit = "docs-b"
steps = [
  { call = { tool = "wiki_read", with = { key = "shared" } } },
  { call = { tool = "record_verification_ledger", with = { summary = "read", verifiedIdentifiers = [], unverifiedIdentifiers = [] } } },
  { call = { tool = "wiki_write", with = { key = "shared", summary = "s", content = "one\n\nb\n\nc\n\nd\n\nTWO" } } },
]
[[part]]
steps = [{ say = "done" }]
"#;

/// A page in the form that a run writes.
const SHARED: &str = "---\nsummary: s\nusage_mode: auto\nsort_order: 0\ntags: []\nrefs: []\nsl_refs: []\n---\n\none\n\nb\n\nc\n\nd\n\ntwo\n";

/// Commands that make git merge two changes of the page.
const MERGE: &str = "git checkout -q -b other && sed -i s/one/ONE/ wiki/global/shared.md && git commit -qam 1 && \
                     git checkout -q main && sed -i s/two/TWO/ wiki/global/shared.md && git commit -qam 2 && git merge other";

/// A program that creates a file next to the clone, named after `trap`.
fn trap(scene: &HostileClone, trap: &str) -> String {
    let body = format!(
        "touch '{}'\ncat",
        scene.path(&format!("PWNED-{trap}")).display()
    );
    scene
        .place
        .script(&format!("trap-{trap}"), &body)
        .to_str()
        .unwrap()
        .to_owned()
}

/// Adds to the configuration of the clone and touches a page, so that git reads it through the filters.
fn configure(scene: &HostileClone, text: impl AsRef<[u8]>) {
    let path = scene.path("clone/.git/config");
    let bytes = [&fs::read(&path).unwrap(), text.as_ref()].concat();
    fs::write(path, bytes).unwrap();
    scene.write("clone/wiki/global/tracked.md", "x");
}

/// Proves in a copy of the clone that plain git runs the program `trap` on `commands`.
fn assert_armed(scene: &HostileClone, trap: &str, commands: &str) {
    let copy = Command::new("cp")
        .args(["-a", "clone", "control"])
        .current_dir(scene.path(""))
        .status()
        .unwrap();
    assert!(copy.success());
    let mut shell = Command::new("sh");
    shell
        .args(["-c", commands])
        .current_dir(scene.path("control"))
        .env_clear()
        .env("PATH", "/usr/bin:/bin");
    shell
        .env("HOME", scene.path("missing"))
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("EMAIL", "me@example.com");
    let output = shell
        .env("GIT_AUTHOR_NAME", "me")
        .env("GIT_COMMITTER_NAME", "me")
        .output()
        .unwrap();
    assert!(
        scene.path(&format!("PWNED-{trap}")).exists(),
        "{trap} does not work: {output:?}"
    );
    for entry in fs::read_dir(scene.path("")).unwrap() {
        let path = entry.unwrap().path();
        if path
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("PWNED-")
        {
            fs::remove_file(path).unwrap();
        }
    }
    fs::remove_dir_all(scene.path("control")).unwrap();
}

#[test]
fn filters_of_a_repository_do_not_run() {
    for name in [&b"plain"[..], b"with.dots", b"e\xff"] {
        let shown = String::from_utf8_lossy(name).into_owned();
        let code = archive_case(
            &shown,
            |scene| {
                let (clean, smudge, process) = (
                    trap(scene, "clean"),
                    trap(scene, "smudge"),
                    trap(scene, "process"),
                );
                let section = [b"[filter \"", name, b"\"]\n"].concat();
                configure(
                    scene,
                    [
                        &section,
                        format!("\tclean = {clean}\n\tsmudge = {smudge}\n").as_bytes(),
                    ]
                    .concat(),
                );
                scene.write(
                    "clone/.git/info/attributes",
                    [b"*.md filter=", name, b"\n"].concat(),
                );
                assert_armed(scene, "clean", "git status");
                assert_armed(
                    scene,
                    "smudge",
                    "rm wiki/global/tracked.md; git checkout -- wiki",
                );
                configure(
                    scene,
                    [&section, format!("\tprocess = {process}\n").as_bytes()].concat(),
                );
                assert_armed(scene, "process", "git status");
            },
            &[&format!("git filter `{shown}`"), ".gitattributes"],
        );
        assert_eq!(code, Some(2), "{shown}: the filter is refused");
    }
}

#[test]
fn drivers_of_a_repository_do_not_run() {
    for name in ["plain", "with.dots"] {
        let plant = |scene: &HostileClone| {
            scene.origin("sources/docs/b.md", "# b\n");
            scene.origin("wiki/global/shared.md", SHARED);
            scene.place.scripted_claude(MERGING);
        };
        let unpack = |scene: &HostileClone| {
            let section = |kind: &str, variables: &[&str]| {
                let lines = variables
                    .iter()
                    .map(|variable| format!("\t{variable} = {}\n", trap(scene, variable)));
                configure(
                    scene,
                    format!("[{kind} \"{name}\"]\n{}", lines.collect::<String>()),
                );
            };
            section("filter", &["clean", "smudge"]);
            section("diff", &["command", "textconv"]);
            section("merge", &["driver"]);
            let attributes = format!("sources/** filter={name}\n*.md diff={name} merge={name}\n");
            scene.write("clone/.git/info/attributes", attributes);
            scene.write("clone/sources/docs/a.md", "# a\n");
            assert_armed(scene, "clean", "git status");
            assert_armed(
                scene,
                "smudge",
                "rm sources/docs/a.md; git checkout -- sources",
            );
            assert_armed(
                scene,
                "command",
                "echo y >> wiki/global/tracked.md; git diff",
            );
            assert_armed(
                scene,
                "textconv",
                "echo y >> wiki/global/tracked.md; git diff --no-ext-diff",
            );
            assert_armed(scene, "driver", MERGE);
        };
        let merged = "docs-a also wrote wiki/global/shared.md: git merged the texts";
        assert_eq!(
            attack(name, plant, unpack, &[merged]),
            Some(0),
            "{name}: the run is completed"
        );
    }
}

#[test]
fn hooks_and_helpers_of_a_repository_do_not_run() {
    const COMMIT: &str = "git -c commit.gpgSign=false commit -q --allow-empty -m x";
    const HOOKS: &[(&str, &str)] = &[
        ("post-checkout", "git checkout -q -b x"),
        ("pre-commit", COMMIT),
        ("prepare-commit-msg", COMMIT),
        ("commit-msg", COMMIT),
        ("post-commit", COMMIT),
        (
            "post-index-change",
            "echo y > wiki/global/y.md; git add wiki",
        ),
        ("reference-transaction", "git branch x"),
    ];
    let code = archive_case(
        "hooks and helpers",
        |scene| {
            let helpers = [
                ("core.fsmonitor", "git status"),
                (
                    "diff.external",
                    "echo y >> wiki/global/tracked.md; git diff",
                ),
                (
                    "gpg.program",
                    "git -c core.hooksPath=/dev/null commit --allow-empty -m x",
                ),
            ];
            for (key, _) in helpers {
                let (section, name) = key.split_once('.').unwrap();
                configure(
                    scene,
                    format!("[{section}]\n\t{name} = {}\n", trap(scene, key)),
                );
            }
            configure(scene, "[commit]\n\tgpgSign = true\n");
            for (hook, _) in HOOKS {
                let path = scene.path(&format!("clone/.git/hooks/{hook}"));
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::copy(trap(scene, hook), path).unwrap();
            }
            for (name, commands) in helpers.iter().chain(HOOKS) {
                assert_armed(scene, name, commands);
            }
        },
        &[],
    );
    assert_eq!(code, Some(0), "the run is completed");
}

#[test]
fn programs_of_a_submodule_do_not_run() {
    let plant = |scene: &HostileClone| {
        scene.write("sub/f.md", "f\n");
        scene.git("sub", &["init", "--quiet"]);
        scene.git("sub", &["add", "--all"]);
        scene.git("sub", &["commit", "--quiet", "-m", "sub"]);
        scene.git(
            "origin",
            &["submodule", "--quiet", "add", "../sub", "wiki/sub"],
        );
        scene.git(
            "origin",
            &[
                "config",
                "-f",
                ".gitmodules",
                "submodule.wiki/sub.ignore",
                "none",
            ],
        );
    };
    let unpack = |scene: &HostileClone| {
        let path = scene.path("clone/.git/modules/wiki/sub/config");
        let filter = format!("[filter \"evil\"]\n\tclean = {}\n", trap(scene, "clean"));
        let text = fs::read_to_string(&path).unwrap() + &filter;
        fs::write(path, text).unwrap();
        scene.write(
            "clone/.git/modules/wiki/sub/info/attributes",
            "* filter=evil\n",
        );
        scene.write("clone/wiki/sub/f.md", "f\n");
        assert_armed(scene, "clean", "git status");
    };
    assert_eq!(
        attack("submodule", plant, unpack, &[]),
        Some(0),
        "the run is completed"
    );
}
