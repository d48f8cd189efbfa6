//! What repositories, attributes and patches must not do to an integration.

use super::*;

#[test]
fn pages_are_text_whatever_the_attributes_say() {
    let all = [
        "wiki/** -diff\n",
        "*.md binary\n",
        "* -text -diff\n",
        "*.md diff=odd\n",
    ];
    let places = [".gitattributes", "wiki/.gitattributes"];
    for (place, attributes) in places
        .iter()
        .flat_map(|place| all.map(|attributes| (*place, attributes)))
    {
        let run = IntegrationFixture::with(&[(place, attributes)]);
        run.git(&["config", "diff.odd.binary", "true"]);
        let old = run.read("wiki/global/old.md").unwrap();
        let patches = [
            run.patch("a", &[("wiki/global/new.md", Some(&page("new", &[])))]),
            run.patch(
                "b",
                &[(
                    "wiki/global/old.md",
                    Some(&old.replace("second", "changed")),
                )],
            ),
            run.patch("c", &[("wiki/global/fan.md", None)]),
        ];
        let (mut integration, results) = run.integrate(&patches);
        assert!(
            results
                .iter()
                .all(|result| matches!(result, PatchOutcome::Accepted { .. })),
            "{attributes}: {results:?}"
        );
        assert_eq!(
            integration.save(&message("all"), &[]).unwrap().paths.len(),
            3
        );
        drop(integration);
        assert!(run.read("wiki/global/old.md").unwrap().contains("changed"));
        run.assert_tidy();
    }
}

#[test]
fn binary_or_oversized_write_is_declined() {
    let run = IntegrationFixture::new();
    let base = run.trees.base();
    let space = Workspace::from_worktree(run.trees.open(Some("a"), &base).unwrap(), base);
    let error = space.write("wiki/global/new.md", b"a\0b").unwrap_err();
    assert!(error.to_string().contains("NUL"), "{error}");
    let error = space
        .write("wiki/global/new.md", &vec![b'a'; 1024 * 1024 + 1])
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("would have 1048577 bytes, more than the limit of 1048576"),
        "{error}"
    );
    assert!(space.changes().is_empty());
}

#[test]
fn worktree_config_programs_do_not_run() {
    use std::os::unix::fs::PermissionsExt as _;
    for condition in [
        "onbranch:session/**",
        "gitdir:**/worktrees/**",
        "onbranch:main",
    ] {
        let run = IntegrationFixture::with(&[(
            ".gitattributes",
            "*.md filter=evil diff=evil merge=evil\n",
        )]);
        let (proof, trap, more) = (
            run.root.join("../proof"),
            run.root.join("../trap"),
            run.root.join("../more"),
        );
        fs::write(
            &trap,
            format!("#!/bin/sh\necho \"$0 $@\" >> '{}'\ncat\n", proof.display()),
        )
        .unwrap();
        fs::set_permissions(&trap, fs::Permissions::from_mode(0o755)).unwrap();
        let trap = trap.display();
        fs::write(
            &more,
            format!(
                "[filter \"evil\"]\nclean = {trap}\nsmudge = {trap}\nrequired = true\n\
                 [diff \"evil\"]\ntextconv = {trap}\ncommand = {trap}\n[merge \"evil\"]\ndriver = {trap} %A\n"
            ),
        )
        .unwrap();
        run.git(&[
            "config",
            &format!("includeIf.{condition}.path"),
            &more.to_string_lossy(),
        ]);
        let old = run.read("wiki/global/old.md").unwrap();
        let patches = [
            run.patch("a", &[("wiki/global/new.md", Some(&page("new", &[])))]),
            run.patch(
                "b",
                &[(
                    "wiki/global/old.md",
                    Some(&old.replace("second", "changed")),
                )],
            ),
            // This one requires a merge by a program that must not run.
            run.patch(
                "c",
                &[("wiki/global/old.md", Some(&old.replace("fourth", "other")))],
            ),
        ];
        let (mut integration, results) = run.integrate(&patches);
        let fit = results
            .iter()
            .take(2)
            .all(|result| matches!(result, PatchOutcome::Accepted { .. }));
        assert!(fit, "{condition}: {results:?}");
        assert!(
            matches!(
                integration.save(&message("all"), &[]),
                Err(IntegrationError::ConvertedFile(_))
            ),
            "{condition}"
        );
        drop(integration);
        assert!(
            !proof.exists(),
            "{condition}: {}",
            fs::read_to_string(&proof).unwrap()
        );
    }
}

#[test]
fn worktree_checks_out_writable_dirs_only() {
    let run = IntegrationFixture::new();
    let tree = run.trees.open(Some("a"), &run.trees.base()).unwrap();
    assert!(tree.dir().ends_with(".ktx/worktrees/session-local-1-a"));
    assert!(tree.dir().join("wiki/global/old.md").exists());
    assert!(!tree.dir().join("raw-sources").exists());
    assert_eq!(
        run.git(&["branch", "--list", "session/*", "--format=%(refname:short)"]),
        "session/local-1-a\n"
    );
    let again = run.trees.open(Some("a"), &run.trees.base()).unwrap();
    assert_ne!(tree.dir(), again.dir(), "an existing name is not reused");
    drop((tree, again));
    run.assert_tidy();
}

#[test]
fn a_patch_may_only_be_what_a_unit_can_write() {
    let run = IntegrationFixture::new();
    let new = |path: &str, mode: &str| {
        format!(
            "diff --git a/{path} b/{path}\nnew file mode {mode}\nindex 0000000..1\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"
        )
    };
    let chmod =
        "diff --git a/wiki/global/old.md b/wiki/global/old.md\nold mode 100644\nnew mode 100755\n";
    let binary = "diff --git a/wiki/x b/wiki/x\nnew file mode 100644\nindex 0000000000000000000000000000000000000000..f76dd238ade08917e6712764a16a22005a50573d\nGIT binary patch\nliteral 1\nIcmZPo000310RR91\n\nliteral 0\nHcmV?d00001\n\n";
    for (name, patch) in [
        ("outside", new("ktx.yaml2", "100644")),
        ("climbing", new("wiki/../x", "100644")),
        ("hidden", new(".git/hooks/post-commit", "100644")),
        ("executable", new("wiki/global/x.md", "100755")),
        ("link", new("wiki/global/x.md", "120000")),
        ("mode", chmod.to_owned()),
        ("binary", binary.to_owned()),
        (
            "binary by its bytes",
            new("wiki/global/x.md", "100644").replace("+x", "+x\0"),
        ),
        ("garbage", "not a patch".to_owned()),
    ] {
        let (integration, results) = run.integrate(&[run.raw_patch(name, patch.as_bytes())]);
        assert!(
            matches!(results[0], PatchOutcome::PolicyViolation { .. }),
            "{name}: {results:?}"
        );
        assert_eq!(
            integration
                .worktree()
                .unwrap()
                .git
                .run(&["status", "--porcelain"])
                .unwrap(),
            b"",
            "{name}"
        );
    }
    let mut layer = run.patch("layer", &[("semantic-layer/w/x.yaml", Some("x"))]);
    layer.source_connections.clear();
    let (_, results) = run.integrate(&[layer]);
    assert!(
        matches!(&results[0], PatchOutcome::PolicyViolation { reason: why } if why.contains("may not change the semantic")),
        "{results:?}"
    );
}

/// A patch that creates `path` with this text.
fn creating(path: &str, text: &str) -> String {
    format!(
        "diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{text}\n"
    )
}

#[test]
fn patch_with_a_file_that_no_tool_writes_is_refused() {
    let files = [
        ("wiki/global/Old Page.md", page("free", &[])),
        ("wiki/user/ann/a.md", page("hers", &[])),
        ("semantic-layer/w/_schema/s.yaml", "tables: {}\n".to_owned()),
    ];
    let run =
        IntegrationFixture::with(&files.each_ref().map(|(path, text)| (*path, text.as_str())));
    let long = "a".repeat(121);
    let unusual = [
        "wiki/.claude/settings.json",
        "wiki/.envrc",
        "wiki/.vscode/tasks.json",
        "wiki/CLAUDE.md",
        "wiki/global/CLAUDE.md",
        "wiki/global/agents.md",
        "wiki/evil.sh",
        "wiki/index.html",
        "wiki/.gitattributes",
        "wiki/.gitignore",
        "wiki/.gitmodules",
        "wiki/global/.hidden.md",
        "wiki/global/.claude/x.md",
        "wiki/global/-rf.md",
        "wiki/global/x.md.sh",
        "wiki/global/x.MD",
        "wiki/global/x.md ",
        "wiki/global/x .md",
        "wiki/global/x..md",
        "wiki/global/sub/x.md",
        "wiki/global/con.md",
        "wiki/global/\u{202e}x.md",
        "wiki/global/\u{1b}x.md",
        "wiki/global/é.md",
        "wiki/global.md",
        "wiki/x.md",
        "wiki/user/ann/b.md",
        "wiki/.GIT/config.md",
        "Wiki/global/x.md",
        "semantic-layer/.gitattributes",
        "semantic-layer/notes/evil.py",
        "semantic-layer/x.yaml",
        "semantic-layer/other/x.yaml",
        "semantic-layer/W/x.yaml",
        "semantic-layer/w/.x.yaml",
        "semantic-layer/w/_schema/public.yaml",
        "semantic-layer/w/deep/x.yaml",
        "semantic-layer/w/x.yml",
        "semantic-layer/w/X.yaml",
        "semantic-layer/w/x y.yaml",
        "semantic-layer/w/con.yaml",
        "semantic-layer/w/y.yaml",
    ];
    let refused = |name: &str, patch: &str| {
        let good = run.patch("good", &[("wiki/global/good.md", Some(&page("good", &[])))]);
        let (_, results) = run.integrate(&[run.raw_patch("bad", patch.as_bytes()), good]);
        assert!(
            matches!(results[0], PatchOutcome::PolicyViolation { .. }),
            "{name}: {results:?}"
        );
        assert!(
            matches!(results[1], PatchOutcome::Accepted { .. }),
            "{name}: {results:?}"
        );
    };
    for path in unusual
        .into_iter()
        .chain([&*format!("wiki/global/{long}.md")])
    {
        let quoted = path.escape_default().to_string() == path;
        if quoted {
            refused(path, &creating(path, "name: x"));
        } else {
            let why = path_rules::forbidden_reason(
                path,
                PatchContent::Unit {
                    source_connections: &["w".into()],
                },
            );
            assert!(
                why.is_some_and(|why| !why.contains(['\u{1b}', '\u{202e}'])),
                "{path:?}"
            );
        }
    }
    let remove = |path: &str, text: &str| {
        let lines: String = text.lines().map(|line| format!("-{line}\n")).collect();
        let count = text.lines().count();
        format!(
            "diff --git a/{path} b/{path}\ndeleted file mode 100644\n--- a/{path}\n+++ /dev/null\n@@ -1,{count} +0,0 @@\n{lines}"
        )
    };
    for (path, text) in &files {
        refused(path, &remove(path, text));
    }
    let rename = |from: &str, to: &str| {
        format!(
            "diff --git a/{from} b/{to}\nsimilarity index 100%\nrename from {from}\nrename to {to}\n"
        )
    };
    refused("renamed out", &rename("wiki/global/old.md", "wiki/evil.sh"));
    refused(
        "renamed in",
        &rename("raw-sources/x/big.txt", "wiki/global/big.md"),
    );
    refused(
        "renamed in from a page of a person",
        &rename("wiki/user/ann/a.md", "wiki/global/a.md"),
    );
    let submodule = "diff --git a/wiki/global/m.md b/wiki/global/m.md\nnew file mode 160000\n--- /dev/null\n+++ b/wiki/global/m.md\n@@ -0,0 +1 @@\n+Subproject commit 0123456701234567012345670123456701234567\n";
    refused("submodule", submodule);
}

#[test]
fn existing_source_of_any_name_may_change() {
    let text = "name: Orders\ntable: orders\ngrain: [id]\ncolumns:\n  - {name: id, type: number}\n";
    let run = IntegrationFixture::with(&[
        ("semantic-layer/w/Meine Orders.yml", text),
        (
            "semantic-layer/w/Kunden \u{202e}x.yaml",
            &text.replace("Orders", "Kunden"),
        ),
    ]);
    let changed = text.replace("number", "string");
    let patches = [
        run.patch(
            "edit",
            &[("semantic-layer/w/Meine Orders.yml", Some(&changed))],
        ),
        run.patch(
            "remove",
            &[("semantic-layer/w/Kunden \u{202e}x.yaml", None)],
        ),
    ];
    let (mut integration, results) = run.integrate(&patches);
    assert!(
        results
            .iter()
            .all(|result| matches!(result, PatchOutcome::Accepted { .. })),
        "{results:?}"
    );
    integration.save(&message("m"), &[]).unwrap();
    assert_eq!(run.read("semantic-layer/w/Meine Orders.yml"), Some(changed));
}
