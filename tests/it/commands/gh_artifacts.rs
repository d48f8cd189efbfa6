//! `--failed-from` with artifacts of GitHub Actions, which a script in the place of `gh` hands out.

use std::fs;

use super::resume::{claude, part, place, run, writes};
use super::test_dir::{CommandOutput, TestDir};

/// A zip archive of files that are stored.
fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, text) in files {
        let at = u32::try_from(bytes.len()).unwrap().to_le_bytes();
        let size = u32::try_from(text.len()).unwrap().to_le_bytes();
        let length = u16::try_from(name.len()).unwrap().to_le_bytes();
        let common: Vec<u8> = [0; 12]
            .into_iter()
            .chain(size)
            .chain(size)
            .chain(length)
            .chain([0, 0])
            .collect();
        bytes.extend(b"PK\x03\x04\x14\0".iter().chain(&common));
        bytes.extend(name.as_bytes().iter().chain(*text));
        directory.extend(b"PK\x01\x02\x14\0\x14\0".iter().chain(&common));
        directory.extend([0; 10].into_iter().chain(at));
        directory.extend(name.as_bytes());
    }
    let count = u16::try_from(files.len()).unwrap().to_le_bytes();
    let (at, size) = (bytes.len(), directory.len());
    bytes.extend(directory);
    bytes.extend(b"PK\x05\x06\0\0\0\0".iter().chain(&count).chain(&count));
    bytes.extend(u32::try_from(size).unwrap().to_le_bytes());
    bytes.extend(u32::try_from(at).unwrap().to_le_bytes());
    bytes.extend([0, 0]);
    bytes
}

/// Plans what failed in `record`, with a `gh` that runs `body`.
fn plan(here: &TestDir, body: &str, record: &str) -> CommandOutput {
    let gh = here.script("gh", body);
    let mut command = here.command(&["plan", "--ui", "json", "--failed-from", record]);
    let bin = gh.parent().unwrap().display();
    command.env("PATH", format!("{bin}:/usr/bin:/bin"));
    here.ran(command)
}

/// The tape of a run in which two units failed.
fn failed_tape() -> Vec<u8> {
    let there = place();
    let bad = part(
        "docs-t*",
        "{ call = { tool = \"wiki_list_tags\", with = { path = 1 } } }, { say = \"tried\" }",
    );
    let ran = run(&there, &claude(&there, &[writes("docs-one"), bad]), &[]);
    assert_eq!(ran.code, Some(100), "{ran:?}");
    fs::read(super::test_dir::tape(&there.path(""))).unwrap()
}

#[test]
fn failed_units_are_planned_from_an_artifact() {
    let (here, tape) = (place(), failed_tape());
    let files: &[(&str, &[u8])] = &[
        ("report.md", b"# Run"),
        ("events.jsonl", b"{\"v\":1}\n"),
        ("../../../tape.jsonl", &tape),
    ];
    let archive = here.write("a.zip", zip(files));
    let other = here.write("b.zip", zip(&[("log.txt", b"x")]));
    let log = here.path("gh.log");
    let body = format!(
        r#"echo "$@" >> {log}
case "$*" in
  *artifacts/42/zip) cat {archive} ;;
  *artifacts/43/zip) cat {other} ;;
  *) echo '{{"artifacts":[{{"id":41,"name":"old","expired":true}},{{"id":42,"name":"run"}},{{"id":43,"name":"logs"}}]}}' ;;
esac"#,
        log = log.display(),
        archive = archive.display(),
        other = other.display(),
    );
    let run = "https://github.com/o/r/actions/runs/7";
    for (record, asked) in [
        (
            run.to_owned(),
            "api --hostname github.com repos/o/r/actions/runs/7/artifacts?per_page=100\n\
             api --hostname github.com repos/o/r/actions/artifacts/42/zip\n\
             api --hostname github.com repos/o/r/actions/artifacts/43/zip\n",
        ),
        (
            format!("{run}/artifacts/42"),
            "api --hostname github.com repos/o/r/actions/artifacts/42/zip\n",
        ),
        (
            "42".to_owned(),
            "api repos/{owner}/{repo}/actions/artifacts/42/zip\n",
        ),
    ] {
        let _ = fs::remove_file(&log);
        let planned = plan(&here, &body, &record);
        let text = planned.expect_success();
        assert!(
            text.contains("docs-three") && text.contains("docs-two"),
            "{planned:?}"
        );
        assert!(!text.contains("\"unit\":\"docs-one\""), "{planned:?}");
        assert_eq!(fs::read_to_string(&log).unwrap(), asked);
    }
    let left = fs::read_dir(here.temporary()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    let is_download = |name: &&std::ffi::OsString| name.to_string_lossy().contains("download");
    assert_eq!(left.iter().find(is_download), None);
    assert!(!here.path("../tape.jsonl").exists());
    // A file of that name has priority.
    here.write("42", &tape);
    let _ = fs::remove_file(&log);
    plan(&here, &body, "42").expect_success();
    assert!(!log.exists());
}

#[test]
fn failures_of_gh_have_remedies() {
    let here = place();
    let tape = failed_tape();
    let twice = here.write("two.zip", zip(&[("a.jsonl", &tape), ("b.jsonl", &tape)]));
    let none = here.write("none.zip", zip(&[("a.jsonl", b"{}")]));
    let cut = here.write("cut.zip", &tape);
    let cat = |path: &std::path::Path| format!("cat {}", path.display());
    let url = "https://github.com/o/r/actions/runs/7/artifacts/42";
    let run = "https://github.com/o/r/actions/runs/7";
    let expired = r#"echo '{"artifacts":[{"id":1,"name":"a","expired":true}]}'"#;
    let says = |text: &str, code: u8| format!("echo '{text}' >&2; exit {code}");
    for (body, record, code, problem, help) in [
        (
            says("please run: gh auth login", 4),
            url,
            1,
            "please run",
            "`gh auth login`",
        ),
        (
            says("gh: Not Found (HTTP 404)", 1),
            url,
            1,
            "Not Found",
            "`gh auth status`",
        ),
        (
            says("gh: Artifact has expired (HTTP 410)", 1),
            url,
            1,
            "has expired",
            "newer run",
        ),
        (
            says("no git remotes found", 1),
            "42",
            1,
            "no git remotes",
            "artifacts/ID",
        ),
        (
            expired.to_owned(),
            run,
            4,
            "no artifacts left: 1 artifact expired",
            "newer run",
        ),
        (
            r#"echo '{"artifacts":[]}'"#.to_owned(),
            run,
            4,
            "has no artifacts",
            "upload",
        ),
        (
            "echo '<html>'".to_owned(),
            run,
            1,
            "cannot read the answer",
            "",
        ),
        (
            cat(&twice),
            url,
            2,
            "2 tapes match: 42/a.jsonl, 42/b.jsonl",
            "download",
        ),
        (
            cat(&none),
            url,
            4,
            "no tape is in artifact 42",
            "tape.jsonl",
        ),
        (cat(&cut), url, 1, "not a complete zip archive", "download"),
        (
            "cat /dev/zero".to_owned(),
            run,
            1,
            "larger than 4 MiB",
            "download",
        ),
    ] {
        let refused = plan(&here, &body, record);
        assert_eq!(refused.code, Some(code), "{body}: {refused:?}");
        assert!(
            refused.stderr.contains(problem) && refused.stderr.contains(help),
            "{body}: {refused:?}"
        );
    }
    let mut command = here.command(&["plan", "--failed-from", url]);
    let bin = here.path("only-git");
    fs::create_dir_all(&bin).unwrap();
    std::os::unix::fs::symlink("/usr/bin/git", bin.join("git")).unwrap();
    command.env("PATH", &bin);
    let missing = here.ran(command);
    assert!(missing.expect_refusal(4).contains("https://cli.github.com"));
}
