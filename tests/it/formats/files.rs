//! The files of a run in a project, afterwards and while it is running: names, permissions, pages, sources,
//! transcripts, patches, commits, refs and locks. With git and without.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use regex_lite::Regex;
use rusqlite::Connection;

use super::{
    events::recorded,
    golden::{assert_published, json_lines, lines_without, without_ids},
};
use crate::{
    commands::test_dir::TestDir,
    support::{
        files::{EntryKind, tree_snapshot},
        git::git,
    },
};
use ingestdeck_core::{
    run::bookmark::{self, Bookmark},
    tape::{Millis, Seq},
};

/// A unit that writes a page and a source and cannot map its file, and a reconcile step that reviews its artifacts.
const SCRIPT: &str = r##"
[[part]]
unit = "docs-one"
steps = [
  { call = { tool = "wiki_write", with = { key = "orders", summary = "About orders", content = "Too early." } } },
  { call = { tool = "read_raw_file", with = { path = "one.md" } } },
  { call = { tool = "wiki_read", with = { key = "nowhere" } } },
  { call = { tool = "record_verification_ledger", with = { summary = "Read it.", verifiedIdentifiers = ["orders", "orders.id"], notes = "none" } } },
  { call = { tool = "wiki_write", with = { key = "orders", summary = "About orders", content = "# Orders\n\nText.", tags = ["sales"], rawPaths = ["one.md"] } } },
  { call = { tool = "sl_write_source", with = { connectionId = "shop", sourceName = "orders", rawPaths = ["one.md"], source = { name = "orders", table = "orders", grain = ["id"], columns = [{ name = "id", type = "number" }], measures = [{ name = "count", expr = "count(*)" }] } } } },
  { call = { tool = "emit_unmapped_fallback", with = { rawPath = "one.md", reason = "parse_error", fallback = "flagged", clarification = "a table" } } },
  { call = { tool = "wiki_write", with = { key = "terms", summary = "About terms", content = "Text.", refs = ["orders"], sl_refs = ["orders"] } } },
  { say = "Done." },
]
[[part]]
prompt = "# Stage Index"
steps = [{ call = { tool = "stage_list" } }, { say = "All is well." }]
"##;

/// The files while the first unit ran, as its agent saw them.
const SEEN: &str = "seen";

fn project() -> (TestDir, String) {
    let place = TestDir::new();
    place.notes(&["one"]);
    let settings = fs::read_to_string(place.path("ktx.yaml")).unwrap();
    let shop = "connections:\n  shop:\n    driver: sqlite\n    url: sqlite:shop.db\n";
    place.write("ktx.yaml", settings.replace("connections:\n", shop));
    let database = Connection::open(place.path("shop.db")).unwrap();
    database
        .execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        .unwrap();
    place.write(".gitignore", "script.toml\n");
    let script = place.write("script.toml", SCRIPT);
    let (work, root) = (place.path(""), place.path(".."));
    let (work, root, script) = (work.display(), root.display(), script.display());
    let claude = place.claude(&format!(
        r#"if mkdir '{root}/{SEEN}' 2>/dev/null; then
  (cd '{work}' && find .ktx -print && [ ! -d .git ] || find .git/ingestdeck -print) > '{root}/{SEEN}/project'
  (cd '{root}/home' && find . -print) > '{root}/{SEEN}/home'
  (cd '{work}' && [ ! -d .git ] || git for-each-ref --format='%(refname)') > '{root}/{SEEN}/refs'
  cat '{work}'/.git/ingestdeck/worktrees/* > '{root}/{SEEN}/ledger' 2>/dev/null
fi
exec '{exe}' scripted-agent --script '{script}' -- "$@""#,
        exe = crate::support::program(),
    ));
    (place, claude.display().to_string())
}

/// Names of everything below `dir` except what `is_left_out`, with permissions where the program chooses them.
fn names(dir: &Path, is_left_out: &dyn Fn(&Path) -> bool) -> Vec<String> {
    let shown = |(path, (kind, _)): (PathBuf, (EntryKind, Vec<u8>))| {
        let mode = fs::symlink_metadata(dir.join(&path))
            .unwrap()
            .permissions()
            .mode()
            & 0o777;
        let slash = if kind == EntryKind::Directory {
            "/"
        } else {
            ""
        };
        let is_ours = [".ktx", ".git", ".local"]
            .iter()
            .any(|ours| path.starts_with(ours))
            && !path.ends_with(".gitignore");
        let mode = if is_ours {
            format!("{mode:o} ")
        } else {
            String::new()
        };
        (!is_left_out(&path)).then(|| format!("{mode}{}{slash}", path.display()))
    };
    tree_snapshot(dir).into_iter().filter_map(shown).collect()
}

/// Each line once and in order, without ids.
fn stable(lines: impl IntoIterator<Item = String>, place: &TestDir) -> String {
    let lines: BTreeSet<String> = lines.into_iter().map(|line| ids(&line, place)).collect();
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

fn ids(text: &str, place: &TestDir) -> String {
    let root = place.path("").canonicalize().unwrap();
    let hash = Regex::new("-[0-9a-f]{24}\\.lock").unwrap();
    let text = hash.replace_all(text, "-<hash>.lock");
    without_ids(&text, root.to_str().unwrap().trim_end_matches('/'))
}

fn seen(place: &TestDir, name: &str) -> Vec<String> {
    let text = fs::read_to_string(place.path("..").join(SEEN).join(name)).unwrap();
    // The names inside a worktree come from the project.
    let is_copy = |line: &&str| {
        line.strip_prefix(".ktx/worktrees/session-")
            .is_some_and(|inner| inner.contains('/'))
    };
    text.lines()
        .filter(|line| !is_copy(line) && !is_of_git(Path::new(line)))
        .map(str::to_owned)
        .collect()
}

/// Whether git itself chooses the name `path`.
fn is_of_git(path: &Path) -> bool {
    match path.strip_prefix(".ktx/ingestdeck/repository.git") {
        Ok(inner) => inner
            .iter()
            .next()
            .is_some_and(|name| name != "created-here" && name != "ingestdeck"),
        Err(_) => path.starts_with(".git") && !path.starts_with(".git/ingestdeck"),
    }
}

fn layout(place: &TestDir) -> String {
    let mut out = String::from("# while a unit runs\n");
    out.push_str(&stable(seen(place, "project"), place));
    out.push_str("\n# in the home directory while a unit runs\n");
    out.push_str(&stable(seen(place, "home"), place));
    out.push_str("\n# afterwards\n");
    out.push_str(&stable(names(&place.path(""), &is_of_git), place));
    out.push_str("\n# in the home directory afterwards\n");
    out.push_str(&stable(names(&place.path("../home"), &|_| false), place));
    out
}

/// The only file below `dir` whose name ends with `ending`.
fn only(dir: &Path, ending: &str) -> String {
    let files = tree_snapshot(dir)
        .into_iter()
        .filter(|(path, _)| path.to_str().unwrap().ends_with(ending));
    let files: Vec<_> = files
        .map(|(_, (_, bytes))| String::from_utf8(bytes).unwrap())
        .collect();
    let [file] = &files[..] else {
        panic!("{} files end in {ending}", files.len())
    };
    file.clone()
}

fn section(name: &str, text: &str) -> String {
    format!("# {name}\n{text}\n")
}

/// A run leaves the index to the first command that reads it.
fn read_index(place: &TestDir) {
    let index = place.path(".ktx/ingestdeck/db.sqlite");
    assert!(!index.exists());
    place.run(&["runs", "list"]).expect_success();
    assert!(index.exists());
}

#[test]
fn run_in_a_git_project_leaves_what_is_published() {
    let (place, claude) = project();
    git(
        &place.path(""),
        &["init", "--quiet", "--initial-branch=main"],
    );
    git(&place.path(""), &["add", "--all"]);
    git(&place.path(""), &["commit", "--quiet", "-m", "first"]);
    let ran = place.run(&["run", "--ui", "json", "--claude-bin", &claude]);
    ran.expect_success();
    read_index(&place);
    assert_published("project-git.txt", &layout(&place));

    let root = place.path("");
    let time = Regex::new(r"> \d+ \+0000").unwrap();
    let commit = git(&root, &["cat-file", "commit", "HEAD"]);
    let mut out = section("commit", &time.replace_all(&commit, "> <seconds> +0000"));
    out.push_str(&section(
        "files",
        &git(&root, &["show", "--format=", "--name-status", "HEAD"]),
    ));
    out.push_str(&section(
        "reflog",
        &git(&root, &["log", "-1", "-g", "--format=%gs", "HEAD"]),
    ));
    out.push_str(&section(
        "refs while a unit runs",
        &seen(&place, "refs").join("\n"),
    ));
    out.push_str(&section(
        "refs afterwards",
        &git(&root, &["for-each-ref", "--format=%(refname)"]),
    ));
    out.push_str(&section(
        "entry of the ledger of worktrees",
        &seen(&place, "ledger").join("\n"),
    ));
    let index = Regex::new("index [0-9a-f]+\\.\\.[0-9a-f]+").unwrap();
    let patch = only(&root.join(".ktx/ingest-patches"), "docs-one.patch");
    out.push_str(&section(
        "patch of a unit",
        &index.replace_all(&patch, "index <blobs>"),
    ));
    out.push_str(&section(
        "page",
        &fs::read_to_string(root.join("wiki/global/orders.md")).unwrap(),
    ));
    out.push_str(&section(
        "source",
        &fs::read_to_string(root.join("semantic-layer/shop/orders.yaml")).unwrap(),
    ));
    out.push_str(&section(
        "mark of a run",
        &only(&root.join(".ktx/ingestdeck/runs"), "written-here"),
    ));
    out.push_str(&section(
        "id of the installation",
        &only(&place.path("../home"), "installation-id"),
    ));
    assert_published("commit.txt", &ids(&out, &place));

    let transcript = only(&root.join(".ktx/ingest-transcripts"), "docs-one.jsonl");
    let is_time = |key: &str| matches!(key, "ts" | "durationMs" | "toolCallId");
    let lines = lines_without(json_lines(&ids(&transcript, &place)), &is_time);
    assert_published("transcript.jsonl", &lines);
}

#[test]
fn run_without_git_leaves_what_is_published() {
    let (place, claude) = project();
    let ran = place.run(&["run", "--ui", "json", "--claude-bin", &claude]);
    ran.expect_success();
    read_index(&place);
    assert_published("project.txt", &layout(&place));
}

#[test]
fn bookmarks_are_as_published() {
    let bookmark = |entry, unit: Option<&str>, attempt, note: &str| Bookmark {
        entry: Seq(entry),
        at: Millis(entry * 100),
        unit: unit.map(Into::into),
        attempt,
        note: note.into(),
    };
    let list = [
        bookmark(0, None, None, ""),
        bookmark(7, Some("docs-orders"), None, "before the retry"),
        bookmark(12, Some("docs \"quoted\""), Some(2), "a \u{1b}[31m note"),
    ];
    let lines = bookmark::to_lines(&list);
    assert_eq!(bookmark::parse(lines.as_bytes()), (list.to_vec(), 0));
    assert_published("bookmarks.jsonl", &lines);
}

#[test]
fn index_has_the_published_tables() {
    let place = recorded();
    place.run(&["runs", "list"]).expect_success();
    let index = Connection::open(place.path(".ktx/ingestdeck/db.sqlite")).unwrap();
    let version: u32 = index
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    let mut schema = index
        .prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type DESC, name")
        .unwrap();
    let tables = schema.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let tables: Vec<String> = tables.map(Result::unwrap).collect();
    let mut out = format!("-- user_version {version}\n{};\n", tables.join(";\n"));
    // Words that rows contain.
    for (table, column) in [
        ("units", "status"),
        ("tool_calls", "status"),
        ("raw_files", "state"),
        ("artifacts", "target"),
    ] {
        let mut words = index
            .prepare(&format!("SELECT DISTINCT {column} FROM {table} ORDER BY 1"))
            .unwrap();
        let words = words.query_map([], |row| row.get::<_, String>(0)).unwrap();
        let words: Vec<String> = words.map(Result::unwrap).collect();
        out.push_str(&format!("-- {table}.{column}: {}\n", words.join(", ")));
    }
    assert_published("index.sql", &out);
}
