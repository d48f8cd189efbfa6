//! Files that a project must not read without permission: files outside of it, hidden files, and files of git and KTX.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    commands::test_dir::{CommandOutput, TestDir},
    support::git::git,
};

/// Steps that write one page for each unit.
const SCRIPT: &str = r#"
[[part]]
unit = "docs-inside"
steps = [
  { call = { tool = "record_verification_ledger", with = { summary = "Read it." } } },
  { call = { tool = "wiki_write", with = { key = "inside", summary = "s", content = "Text." } } },
]
[[part]]
unit = "docs-secret"
steps = [
  { call = { tool = "record_verification_ledger", with = { summary = "Read it." } } },
  { call = { tool = "wiki_write", with = { key = "outside", summary = "s", content = "Text." } } },
]
[[part]]
steps = [{ say = "read" }]
"#;

/// A project next to a directory `data` with one document, and the canonical path of that directory.
fn project() -> (TestDir, PathBuf) {
    let place = TestDir::new();
    place.write("../data/docs/secret.md", "# secret\n");
    place.write("notes/inside.md", "# inside\n");
    let data = place.path("../data/docs").canonicalize().unwrap();
    (place, data)
}

fn connections(place: &TestDir, lines: &[&str]) {
    place.write(
        "ktx.yaml",
        format!("connections:\n  {}\n", lines.join("\n  ")),
    );
}

/// Sets the user's setting that allows `paths`.
fn allow(place: &TestDir, paths: &[&Path]) {
    let paths: Vec<_> = paths.iter().map(|path| json!(path).to_string()).collect();
    let text = format!("[ingest]\nallow_paths = [{}]\n", paths.join(", "));
    place.write("../home/.config/ingestdeck/config.toml", text);
}

fn units(ran: &CommandOutput) -> Vec<Value> {
    ran.expect_success()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Result and text of the finding of `doctor` about `connection`.
fn examined(place: &TestDir, connection: &str) -> (String, String) {
    let ran = place.run(&["doctor", "--ui", "json"]);
    let found = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |value: &Value, key: &str| value[key].as_str().unwrap().to_owned();
    found
        .map(|finding| (text(&finding, "result"), text(&finding, "text")))
        .find(|(_, text)| {
            let rest = text
                .strip_prefix("connection ")
                .and_then(|text| text.strip_prefix(connection));
            rest.is_some_and(|rest| rest.starts_with([' ', ':']))
        })
        .unwrap()
}

#[test]
fn outside_source_is_refused_with_the_line_that_allows_it() {
    let (place, data) = project();
    symlink("../data/docs", place.path("link")).unwrap();
    let absolute = format!("x: {{driver: docs, source_dir: {}}}", data.display());
    let address = format!(
        "x: {{driver: docs, repoUrl: \"file://{}\"}}",
        data.display()
    );
    let manifest = format!(
        "x: {{driver: manifest, source_dir: {}, path: units.json}}",
        data.display()
    );
    place.write(
        "units.json",
        r#"[{"unitKey": "u", "rawFiles": ["secret.md"]}]"#,
    );
    for line in [
        "x: {driver: docs, source_dir: ../data/docs}",
        "x: {driver: docs, source_dir: notes, path: ../../data/docs}",
        "x: {driver: docs, source_dir: link}",
        "x: {driver: fake, source_dir: ../data/docs}",
        &absolute,
        &address,
        &manifest,
    ] {
        connections(&place, &[line]);
        let expected = format!(
            "connection x is skipped: `{0}` is outside the project; to allow it, write `allow_paths = [\"{0}\"]` below \
             `[ingest]` in your settings",
            data.display()
        );
        let ran = place.run(&["plan"]);
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (Some(2), "0 units planned\n"),
            "{line}: {ran:?}"
        );
        assert!(ran.stderr.contains(&expected), "{line}: {ran:?}");
        assert!(
            place
                .run(&["run", "--ui", "none"])
                .expect_refusal(2)
                .contains(&expected),
            "{line}"
        );
        let (result, text) = examined(&place, "x");
        assert!(
            result == "fail" && text.starts_with(&expected),
            "{line}: {result} {text}"
        );
        assert!(
            place
                .run(&["plan", "x"])
                .expect_refusal(2)
                .contains(&expected),
            "{line}"
        );
    }
}

#[test]
fn outside_manifest_is_refused() {
    let (place, data) = project();
    let units = place.write(
        "../data/units.json",
        r#"[{"unitKey": "u", "rawFiles": ["inside.md"]}]"#,
    );
    connections(
        &place,
        &["x: {driver: manifest, source_dir: notes, path: ../data/units.json}"],
    );
    let ran = place.run(&["plan"]);
    let expected = format!(
        "`{}` is outside the project",
        units.canonicalize().unwrap().display()
    );
    assert!(
        ran.code == Some(2) && ran.stderr.contains(&expected),
        "{ran:?}"
    );
    allow(&place, &[data.parent().unwrap()]);
    assert_eq!(units_of(&place), ["u"]);
}

fn units_of(place: &TestDir) -> Vec<String> {
    let planned = units(&place.run(&["plan", "--ui", "json"]));
    planned
        .iter()
        .map(|unit| unit["unit"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn refused_connection_leaves_the_others_planned() {
    let (place, _) = project();
    connections(
        &place,
        &[
            "x: {driver: docs, source_dir: ../data/docs}",
            "n: {driver: docs, source_dir: notes}",
        ],
    );
    let ran = place.run(&["plan", "--ui", "json"]);
    assert_eq!(units(&ran).len(), 1);
    assert!(
        ran.stderr.contains("warning: connection x is skipped: `"),
        "{ran:?}"
    );
    assert_eq!(place.run(&["plan", "n"]).stderr, "");
}

#[test]
fn allowed_outside_source_is_planned_and_shown() {
    let (place, data) = project();
    connections(&place, &["x: {driver: docs, source_dir: ../data/docs}"]);
    let shown = format!(
        "its files are outside the project, in `{}`, and are not committed",
        data.display()
    );
    for allowed in [data.as_path(), data.parent().unwrap()] {
        allow(&place, &[allowed]);
        let table = place.run(&["plan"]);
        assert!(
            table.expect_success().contains(&format!("\n  {shown}\n")),
            "{table:?}"
        );
        let planned = units(&place.run(&["plan", "--ui", "json"]));
        assert_eq!(planned[0]["outsideProject"], json!(data));
        let (result, text) = examined(&place, "x");
        assert_eq!(
            (result.as_str(), text),
            ("note", format!("connection x gives 1 unit; {shown}"))
        );
    }
    // A sibling path is not covered, and neither is one that only the project claims to be allowed.
    allow(&place, &[&data.with_file_name("doc")]);
    assert_eq!(place.run(&["plan"]).code, Some(2));
    let mut command = place.command(&["plan", "--ui", "none"]);
    command.env("INGESTDECK_INGEST_ALLOW_PATHS", &data);
    place.ran(command).expect_success();
    let mut command = place.command(&["plan"]);
    command.env("INGESTDECK_INGEST_ALLOW_PATHS", "../data");
    assert!(
        place
            .ran(command)
            .expect_refusal(2)
            .contains("must be a list of absolute paths")
    );
}

#[test]
fn home_of_the_user_may_be_written_as_a_tilde() {
    let (place, _) = project();
    place.write("../home/dbt/a.md", "# a\n");
    connections(&place, &["x: {driver: docs, source_dir: ../home/dbt}"]);
    allow(&place, &[Path::new("~/dbt")]);
    assert_eq!(units_of(&place), ["docs-a"]);
    // Without a home directory the path is invalid; it is not resolved below the current directory.
    place.write("~/dbt/a.md", "# a\n");
    let config = place.path("../home/.config/ingestdeck/config.toml");
    let mut command = place.command(&["plan", "--config", config.to_str().unwrap()]);
    command.env_remove("HOME");
    assert_eq!(place.ran(command).code, Some(2));
}

#[test]
fn project_cannot_allow_outside_paths_itself() {
    let (place, data) = project();
    let (data, line) = (
        data.display(),
        "x: {driver: docs, source_dir: ../data/docs}",
    );
    for claim in ["allow_paths", "allowPaths", "allowHidden"] {
        let claim = format!("\ningest: {{{claim}: [\"{data}\", \"../data\"]}}");
        connections(&place, &[&format!("{line}{claim}")]);
        let ran = place.run(&["plan"]);
        assert!(
            ran.code == Some(2) && ran.stderr.contains("is outside the project"),
            "{claim}: {ran:?}"
        );
    }
}

#[test]
fn outside_raw_files_are_not_committed() {
    let (place, data) = project();
    connections(
        &place,
        &[
            "x: {driver: docs, source_dir: ../data/docs}",
            "n: {driver: docs, source_dir: notes}",
        ],
    );
    allow(&place, &[&data]);
    let claude = place.scripted_claude(SCRIPT);
    git(
        &place.path(""),
        &["init", "--quiet", "--initial-branch=main"],
    );
    git(&place.path(""), &["add", "--all"]);
    git(&place.path(""), &["commit", "--quiet", "-m", "first"]);
    let ran = place.run(&[
        "run",
        "--claude-bin",
        claude.to_str().unwrap(),
        "--ui",
        "none",
        "--no-reconcile",
    ]);
    ran.expect_success();
    assert!(
        ran.stderr
            .contains("connection x: its files are outside the project, in `"),
        "{ran:?}"
    );
    let committed = git(
        &place.path(""),
        &["show", "--name-only", "--format=", "HEAD"],
    );
    let mut committed: Vec<&str> = committed
        .lines()
        .map(|path| path.rsplit('/').next().unwrap())
        .collect();
    committed.sort_unstable();
    assert_eq!(
        committed,
        ["inside.md", "inside.md", "outside.md"],
        "two pages, and the raw file inside the project"
    );
}

#[test]
fn manifest_files_that_are_hidden_or_internal_are_refused() {
    let (place, _) = project();
    connections(&place, &["x: {driver: manifest, path: units.jsonl}"]);
    for path in [
        ".ssh/id_rsa",
        ".env",
        "a/.npmrc",
        ".git/config",
        ".ktx/db.sqlite",
        "wiki/global/a.md",
        "KTX.yaml",
    ] {
        place.write(path, "secret: 1\n");
    }
    for (path, why) in [
        (
            ".ssh/id_rsa",
            "`.ssh/id_rsa` is hidden; to allow it, write `allowHidden: [\".ssh\"]` below `ingest` in ktx.yaml",
        ),
        (
            ".env",
            "`.env` is hidden; to allow it, write `allow_paths = ",
        ),
        (
            "a/.npmrc",
            "`a/.npmrc` is hidden; to allow it, write `allow_paths = ",
        ),
        (".git/config", "/.git/config` belongs to git or KTX"),
        (".ktx/db.sqlite", "/.ktx/db.sqlite` belongs to git or KTX"),
        ("ktx.yaml", "/ktx.yaml` belongs to git or KTX"),
        ("KTX.yaml", "/KTX.yaml` belongs to git or KTX"),
        ("wiki/global/a.md", "`wiki/global/a.md` is where runs write"),
    ] {
        let unit =
            |key: &str, files: [&str; 1]| json!({"unitKey": key, "rawFiles": files}).to_string();
        place.write(
            "units.jsonl",
            format!(
                "{}\n{}\n",
                unit("a", ["notes/inside.md"]),
                unit("b", [path])
            ),
        );
        let ran = place.run(&["plan"]);
        assert_eq!(ran.code, Some(2), "{path}: {ran:?}");
        assert!(
            ran.stderr.contains("units.jsonl line 2: `") && ran.stderr.contains(why),
            "{path}: {ran:?}"
        );
    }
}

#[test]
fn hidden_source_is_refused_until_it_is_allowed_by_name() {
    let (place, _) = project();
    place.write(".github/docs/a.md", "# a\n");
    let line = "x: {driver: docs, source_dir: .github/docs}";
    connections(&place, &[line]);
    let ran = place.run(&["plan"]);
    let expected = "`.github/docs` is hidden; to allow it, write `allowHidden: [\".github\"]` below `ingest` in ktx.yaml";
    assert!(
        ran.code == Some(2) && ran.stderr.contains(expected),
        "{ran:?}"
    );
    connections(
        &place,
        &[&format!("{line}\ningest: {{allowHidden: [\".github\"]}}")],
    );
    let ran = place.run(&["plan", "--ui", "json"]);
    assert_eq!((units(&ran).len(), ran.stderr.as_str()), (1, ""));
    // A link to a directory of git does not make it less hidden.
    place.write(".git/notes/a.md", "# a\n");
    symlink(".git/notes", place.path("plain")).unwrap();
    connections(
        &place,
        &["x: {driver: docs, source_dir: plain}\ningest: {allowHidden: [.git]}"],
    );
    assert!(
        place
            .run(&["plan"])
            .stderr
            .contains("/.git/notes` belongs to git or KTX")
    );
}

#[test]
fn outside_database_is_refused_until_it_is_allowed() {
    let (place, data) = project();
    let file = data.with_file_name("cookies.db");
    let database = rusqlite::Connection::open(&file).unwrap();
    database
        .execute_batch("CREATE TABLE cookies (name)")
        .unwrap();
    symlink(&file, place.path("linked.db")).unwrap();
    for path in [
        "../data/cookies.db",
        "linked.db",
        "sqlite:../data/cookies.db",
        file.to_str().unwrap(),
    ] {
        connections(
            &place,
            &[
                &format!("w: {{driver: sqlite, path: \"{path}\"}}"),
                "n: {driver: docs, source_dir: notes}",
            ],
        );
        let _ = fs::remove_file(place.path("../home/.config/ingestdeck/config.toml"));
        let refused = format!(
            "connection w is skipped: `{}` is outside the project",
            file.display()
        );
        let ran = place.run(&["plan"]);
        assert!(
            ran.code == Some(0) && ran.stderr.contains(&refused),
            "{path}: {ran:?}"
        );
        assert_eq!(examined(&place, "w").0, "warn");
        allow(&place, &[&file]);
        let shown = format!("it is a database outside the project, `{}`", file.display());
        let ran = place.run(&["plan"]);
        assert!(
            ran.expect_success().contains(&shown) && ran.stderr.is_empty(),
            "{path}: {ran:?}"
        );
        let (result, text) = examined(&place, "w");
        assert!(
            result == "ok" && text.starts_with("connection w: SQLite, 1 table"),
            "{result}: {text}"
        );
    }
}

#[test]
fn refused_names_cannot_steer_the_terminal() {
    let (place, data) = project();
    let name = "x\u{1b}]52;c;UFdO\u{7}\u{202e}";
    fs::create_dir(data.with_file_name(name)).unwrap();
    connections(
        &place,
        &[r#"x: {driver: docs, source_dir: "../data/x\e]52;c;UFdO\a\u202e"}"#],
    );
    let ran = place.run(&["plan"]);
    assert!(
        ran.stderr.contains("is outside the project") && ran.stderr.contains("x\\u{1b}]52"),
        "{ran:?}"
    );
    assert!(
        !ran.stderr.contains(['\u{1b}', '\u{7}', '\u{202e}']),
        "{ran:?}"
    );
    let (_, text) = examined(&place, "x");
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
}

#[test]
fn settings_are_a_raw_file_of_no_adapter() {
    let place = TestDir::new();
    place.write("dbt_project.yml", "name: w\n");
    place.write("models/metrics.yml", "semantic_models: [{name: orders}]\n");
    place.write("models/nested/ktx.yaml", "connections: {}\n");
    for adapter in ["dbt", "metricflow", "fake"] {
        connections(
            &place,
            &[
                &format!("x: {{driver: {adapter}, source_dir: \".\"}}"),
                "wh: {driver: postgres, url: 'postgres://admin:hunter2secret@h/x'}",
            ],
        );
        let planned = units(&place.run(&["plan", "--ui", "json"]));
        let files: Vec<&Value> = planned
            .iter()
            .filter_map(|unit| unit["rawFiles"].as_array())
            .flatten()
            .collect();
        assert!(!files.is_empty(), "{adapter}");
        let is_settings = |path: &&&Value| path.as_str().unwrap().ends_with("ktx.yaml");
        assert_eq!(files.iter().find(is_settings), None, "{adapter}");
    }
}

#[test]
fn changed_settings_plan_nothing_again() {
    let place = TestDir::new();
    place.write("dbt_project.yml", "name: w\n");
    connections(&place, &["x: {driver: dbt, source_dir: \".\"}"]);
    let claude = place.scripted_claude(SCRIPT);
    place
        .run(&[
            "run",
            "--claude-bin",
            claude.to_str().unwrap(),
            "--ui",
            "none",
        ])
        .expect_success();
    connections(
        &place,
        &[
            "x: {driver: dbt, source_dir: \".\"}",
            "wh: {driver: postgres}",
        ],
    );
    let ran = place.run(&["plan"]);
    assert!(
        ran.expect_success().contains("0 units planned")
            && ran.stdout.contains("its one unit is unchanged"),
        "{ran:?}"
    );
}

#[test]
fn settings_behind_a_link_are_refused() {
    let (place, _) = project();
    let text = "connections:\n  n: {driver: docs, source_dir: notes}\n";
    place.write("../data/ktx.yaml", text);
    symlink("../data/ktx.yaml", place.path("ktx.yaml")).unwrap();
    let ran = place.run(&["plan"]);
    assert!(
        ran.expect_refusal(2)
            .contains("ktx.yaml: it is a symbolic link; replace it with the file itself"),
        "{ran:?}"
    );
}
