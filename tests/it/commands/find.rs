//! `find`: words of recorded runs and sessions, its filters, what it leaves out, and hostile databases.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::{
    test_dir::{CommandOutput, TestDir},
    workers::{claude_of, project},
};

/// A project with a run in which every unit writes a page.
fn recorded() -> TestDir {
    let place = project();
    ingest(&place);
    place
}

fn ingest(place: &TestDir) {
    let claude = claude_of(place, "ann", "script.toml");
    let run = place.run(&[
        "run",
        "--full",
        "--no-reconcile",
        "--ui",
        "none",
        "--claude-bin",
        claude.to_str().unwrap(),
    ]);
    assert_eq!(run.code, Some(0), "{run:?}");
}

/// The entries, and what is left out.
fn output(found: &CommandOutput) -> (Vec<Value>, Value) {
    assert_eq!(found.code, Some(0), "{found:?}");
    let lines = found.stdout.lines();
    let mut rows: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let last = rows.pop().unwrap();
    (rows, last["left_out"].clone())
}

fn find(place: &TestDir, args: &[&str]) -> Vec<Value> {
    output(&place.run(&[&["find", "--ui", "json"], args].concat())).0
}

#[test]
fn entries_are_found_and_selected() {
    let place = recorded();
    let found = find(&place, &["growers.md"]);
    let kinds = |kind: &str| found.iter().filter(|row| row["kind"] == kind).count();
    assert!(kinds("call") > 0, "{found:#?}");
    for row in &found {
        assert!(row["text"].as_str().unwrap().contains("growers"), "{row}");
    }
    let calls = find(&place, &["growers.md", "--tool", "read_raw_file"]);
    assert!(!calls.is_empty());
    assert!(
        calls
            .iter()
            .all(|row| row["tool"] == "mcp__ktx__read_raw_file"),
        "{calls:#?}"
    );
    let of_unit = find(&place, &["mcp__ktx__wiki_write", "--unit", "docs-gr*"]);
    assert!(!of_unit.is_empty() && of_unit.iter().all(|row| row["unit"] == "docs-growers"));
    assert_eq!(
        find(&place, &["growers.md", "nosuchword"]),
        [Value::Null; 0]
    );
    assert_eq!(find(&place, &["growers.md", "--failed"]), [Value::Null; 0]);
    assert_eq!(
        find(&place, &["growers.md", "--until", "2020-01-01"]),
        [Value::Null; 0]
    );
    assert_eq!(find(&place, &["growers.md", "--limit", "1"]).len(), 1);
    let beginnings = find(&place, &["grow*"]);
    assert!(beginnings.len() >= found.len(), "{beginnings:#?}");
}

/// What SQLite would take for an operator is a text.
#[test]
fn texts_are_no_query_language() {
    let place = recorded();
    for text in ["growers OR nosuchword", "body:growers", "NOT growers"] {
        assert_eq!(find(&place, &[text]), [Value::Null; 0], "{text}");
    }
    let refused = place.run(&["find", "***"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
}

/// The tapes of all fixtures, as runs of one project. Returns the ids and the tapes.
fn of_fixtures(place: &TestDir) -> Vec<(String, String)> {
    place.write("ktx.yaml", "connections: {}\n");
    let tapes = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tapes");
    let mut tapes: Vec<_> = fs::read_dir(tapes)
        .unwrap()
        .map(|tape| fs::read_to_string(tape.unwrap().path()).unwrap())
        .map(|tape| {
            let header: Value = serde_json::from_str(tape.lines().next().unwrap()).unwrap();
            (header["run"].as_str().unwrap().to_owned(), tape)
        })
        .collect();
    tapes.sort();
    for (run, tape) in &tapes {
        place.write(&format!(".ktx/ingestdeck/runs/{run}/tape.jsonl"), tape);
    }
    tapes
}

/// What is recorded in the lines of a tape, without their frames and the fragments of streamed messages.
fn recorded_texts(tape: &str) -> Vec<&str> {
    let body = |line| {
        let names = ["out", "in", "note", "raw", "err"].map(|name| format!(",\"{name}\":"));
        let ends = names.iter().filter_map(|name: &String| {
            let at = str::find(line, name)?;
            Some(at + name.len())
        });
        ends.min().map(|start| &line[start..])
    };
    let lines = tape.lines().skip(1).filter_map(body);
    lines
        .filter(|body| !body.starts_with("{\"type\":\"stream_event\""))
        .collect()
}

fn is_in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// A plain search through bytes, as `rg --word-regexp` does it.
fn has_word(text: &str, word: &str) -> bool {
    let is_exact = word.bytes().any(|byte| byte.is_ascii_uppercase());
    let lower = text.to_ascii_lowercase();
    let text = if is_exact { text } else { lower.as_str() };
    text.match_indices(word).any(|(at, _)| {
        let before = text.as_bytes()[..at].last();
        let after = text.as_bytes().get(at + word.len());
        !before
            .into_iter()
            .chain(after)
            .any(|byte| is_in_word(*byte))
    })
}

/// Each run in which a plain search through its bytes finds one of 100 random words is found, unless it is excluded.
#[test]
fn words_that_a_plain_search_finds_are_found() {
    let place = TestDir::new();
    let tapes = of_fixtures(&place);
    let (excluded, _) = tapes[0].clone();
    let settings = place.write(
        "find.toml",
        format!("[find]\nexclude = [\"run:{excluded}\"]\n"),
    );
    let config = settings.to_str().unwrap();
    let texts: Vec<(&str, Vec<&str>)> = tapes[1..]
        .iter()
        .map(|(run, tape)| (run.as_str(), recorded_texts(tape)))
        .collect();
    let mut words: Vec<&str> = texts
        .iter()
        .flat_map(|(_, bodies)| bodies)
        .flat_map(|body| body.split(|char: char| !(char.is_ascii_alphanumeric() || char == '_')))
        .filter(|word| !word.is_empty())
        .collect();
    words.sort_unstable();
    words.dedup();
    place
        .run(&["find", "x", "--all", "--config", config])
        .expect_success();
    // The numbers of Lehmer, so that a failure is repeated.
    let mut random = 20_261_201_u64;
    for _ in 0..100 {
        random = random * 48_271 % 0x7fff_ffff;
        let word = words[usize::try_from(random).unwrap() % words.len()];
        let expected: HashSet<&str> = texts
            .iter()
            .filter(|(_, bodies)| bodies.iter().any(|body| has_word(body, word)))
            .map(|(run, _)| *run)
            .collect();
        let args = [word, "--limit", "1000000", "--config", config];
        let found = find(&place, &args);
        let runs: HashSet<&str> = found
            .iter()
            .map(|row| row["run"].as_str().unwrap())
            .collect();
        assert_eq!(runs, expected, "{word}");
    }
}

/// A project with the fixtures and two sessions, and the variable with the directory of Claude Code.
fn with_sessions(place: &TestDir) -> (Vec<(String, String)>, PathBuf) {
    let tapes = of_fixtures(place);
    let project = place.path("").canonicalize().unwrap();
    let name = project
        .to_str()
        .unwrap()
        .trim_end_matches('/')
        .replace(|char: char| !char.is_ascii_alphanumeric(), "-");
    let line = |content: &str| {
        format!(
            r#"{{"type":"user","sessionId":"s","timestamp":"2026-11-01T10:00:00Z","message":{{"role":"user","content":{content}}}}}"#
        )
    };
    let call = r#"{"type":"assistant","sessionId":"s","timestamp":"2026-11-01T10:00:01Z","message":{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"grep zanzibar"}}]}}"#;
    let result = line(
        r#"[{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":"no zanzibar here"}]"#,
    );
    let first = format!("{}\n{call}\n{result}\n", line("\"Where is zanzibar?\""));
    place.write(&format!("claude/projects/{name}/first.jsonl"), first);
    let secret = format!("{}\n", line("\"My secret zanzibar.\""));
    place.write(&format!("claude/projects/{name}/secret.jsonl"), secret);
    (tapes, place.path("claude"))
}

fn find_in(place: &TestDir, claude: &Path, args: &[&str]) -> (Vec<Value>, Value) {
    let mut command = place.command(&[&["find", "--ui", "json"], args].concat());
    command.env("CLAUDE_CONFIG_DIR", claude);
    output(&place.ran(command))
}

#[test]
fn sessions_are_found_and_left_out() {
    let place = TestDir::new();
    let (_, claude) = with_sessions(&place);
    let (found, left_out) = find_in(&place, &claude, &["zanzibar"]);
    let mut kinds: Vec<_> = found
        .iter()
        .map(|row| (row["kind"].as_str().unwrap(), row["tool"].as_str()))
        .collect();
    kinds.sort_unstable();
    assert_eq!(
        kinds,
        [
            ("call", Some("Bash")),
            ("prompt", None),
            ("prompt", None),
            ("result", Some("Bash"))
        ]
    );
    for row in &found {
        assert!(
            row["run"].is_null() && row["session"].as_str().unwrap().ends_with(".jsonl"),
            "{row}"
        );
    }
    assert_eq!(left_out["excluded"], 0);
    let of_tool = find_in(&place, &claude, &["zanzibar", "--tool", "Ba*", "--failed"]).0;
    assert!(
        of_tool.len() == 1 && of_tool[0]["kind"] == "result",
        "{of_tool:#?}"
    );
    assert_eq!(
        find_in(&place, &claude, &["zanzibar", "--no-sessions"]).0,
        [Value::Null; 0]
    );
    assert_eq!(
        find_in(&place, &claude, &["zanzibar", "--run", "latest"]).0,
        [Value::Null; 0]
    );
    // The database may come from elsewhere and name any file.
    let other = place.path("claude-of-another");
    fs::create_dir_all(&other).unwrap();
    assert_eq!(find_in(&place, &other, &["zanzibar"]).0, [Value::Null; 0]);
}

/// Excluded words are not found, are counted, and leave the file.
#[test]
fn excluded_texts_leave_the_index() {
    let place = TestDir::new();
    let (tapes, claude) = with_sessions(&place);
    let words = || {
        let file = fs::read(place.path(".ktx/ingestdeck/text.sqlite")).unwrap();
        move |word: &str| file.windows(word.len()).any(|part| part == word.as_bytes())
    };
    let exclude = |patterns: &str| {
        let settings = place.write("find.toml", format!("[find]\nexclude = [{patterns}]\n"));
        settings.to_str().unwrap().to_owned()
    };
    let all = find_in(&place, &claude, &["churn", "--limit", "1000000"]).0;
    let units: HashSet<&str> = all.iter().filter_map(|row| row["unit"].as_str()).collect();
    assert!(units.contains("docs-churn-definition"), "{units:?}");
    assert!(words()("zanzibar") && words()("churn"));
    let config = exclude("\"session:secret\"");
    let (found, left_out) = find_in(&place, &claude, &["zanzibar", "--config", &config]);
    assert_eq!((found.len(), &left_out["excluded"]), (3, &json!(1)));
    let config = exclude("\"session:*\", \"unit:*churn*\"");
    let (found, left_out) = find_in(
        &place,
        &claude,
        &["churn", "--limit", "1000000", "--config", &config],
    );
    assert!(
        found
            .iter()
            .all(|row| row["unit"] != "docs-churn-definition"),
        "{found:#?}"
    );
    assert_eq!(left_out["excluded"], 2);
    assert!(
        left_out["excluded_entries"].as_u64().unwrap() > 5,
        "{left_out}"
    );
    assert!(!words()("zanzibar"));
    let runs: Vec<String> = tapes
        .iter()
        .map(|(run, _)| format!("\"run:{run}\""))
        .collect();
    let config = exclude(&runs[1..].join(", "));
    let (_, left_out) = find_in(&place, &claude, &["type", "--config", &config]);
    assert_eq!(left_out["excluded"], tapes.len() - 1);
    let warned = place.run(&["find", "type", "--config", &config]);
    assert!(
        warned
            .stderr
            .contains("4 runs and sessions excluded by find.exclude"),
        "{warned:?}"
    );
    let config = exclude("\"docs-*\"");
    let refused = place.run(&["find", "type", "--config", &config]);
    assert!(
        refused.expect_refusal(2).contains("unit:docs-*"),
        "{refused:?}"
    );
    assert!(
        !find_in(&place, &claude, &["zanzibar"]).0.is_empty(),
        "no longer excluded"
    );
}

/// Runs with many different words. Returns their ids, oldest first.
fn with_many_words(place: &TestDir) -> Vec<String> {
    place.write("ktx.yaml", "connections: {}\n");
    let mut random = 7_u64;
    let mut word = || {
        random = random * 48_271 % 0x7fff_ffff;
        format!("w{random:08x} ")
    };
    let ids = (0..5).map(|number| format!("01a2{number:04x}-0000-7000-8000-000000000001"));
    ids.map(|id| {
        let words: String = (0..40_000).map(|_| word()).collect();
        let header =
            json!({"tape": 1, "program": "test", "run": id, "started_at": "2026-11-25T16:59:09Z"});
        let note = json!({"seq": 0, "at": 1, "note": {"kind": "message", "text": words}});
        place.write(
            &format!(".ktx/ingestdeck/runs/{id}/tape.jsonl"),
            format!("{header}\n{note}\n"),
        );
        id
    })
    .collect()
}

/// The oldest records leave an index that is full, are counted, and return once there is room.
#[test]
fn oldest_runs_leave_a_full_index() {
    let place = TestDir::new();
    let ids = with_many_words(&place);
    let small = place.write("small.toml", "[find]\nmax_index_mb = 1\n");
    let large = place.write("large.toml", "[find]\nmax_index_mb = 100\n");
    let runs = |config: &Path| {
        let args = ["message", "--all", "--config", config.to_str().unwrap()];
        let (rows, left_out) = find_in(&place, &place.path("claude"), &args);
        let runs = rows
            .iter()
            .map(|row| row["run"].as_str().unwrap().to_owned());
        (
            runs.collect::<Vec<_>>(),
            left_out["beyond_size"].as_u64().unwrap(),
        )
    };
    let newest = |count: usize| ids.iter().rev().take(count).cloned().collect::<Vec<_>>();
    for _ in 0..2 {
        let (found, dropped) = runs(&small);
        assert!(dropped > 0 && !found.is_empty(), "{found:?}");
        assert_eq!(found, newest(ids.len() - usize::try_from(dropped).unwrap()));
        let size = fs::metadata(place.path(".ktx/ingestdeck/text.sqlite"))
            .unwrap()
            .len();
        assert!(size <= 1 << 20, "{size}");
    }
    assert_eq!(runs(&large), (newest(ids.len()), 0));
    let (found, dropped) = runs(&small);
    assert!(dropped > 0, "{found:?}");
    assert_eq!(found, newest(found.len()));
    let warned = place.run(&["find", "message", "--config", small.to_str().unwrap()]);
    assert!(warned.stderr.contains("index full, oldest"), "{warned:?}");
}

/// Two processes that fill the index find the same.
#[test]
fn processes_fill_the_index_concurrently() {
    let place = TestDir::new();
    of_fixtures(&place);
    let start = || {
        place.start(place.command(&[
            "find",
            "--ui",
            "json",
            "wiki_write",
            "--all",
            "--limit",
            "100000",
        ]))
    };
    let running = [start(), start(), start()];
    let found = running.map(|process| output(&process.end()).0);
    let again = find(&place, &["wiki_write", "--limit", "100000"]);
    assert!(!again.is_empty());
    for found in found {
        assert!(found.iter().all(|row| again.contains(row)));
    }
}

#[test]
fn words_of_pruned_runs_are_deleted() {
    let place = project();
    let file = "handbook/growers.md";
    let content = fs::read_to_string(place.path(file)).unwrap();
    place.write(file, format!("{content}\nGrowers in Zanzibar.\n"));
    ingest(&place);
    assert!(!find(&place, &["zanzibar"]).is_empty());
    let words = || fs::read(place.path(".ktx/ingestdeck/text.sqlite")).unwrap();
    let has_word = |file: &[u8]| file.windows(8).any(|part| part == b"zanzibar");
    assert!(has_word(&words()));
    // The newest run is needed.
    place.write(file, content);
    ingest(&place);
    place
        .run(&["runs", "prune", "--keep", "0"])
        .expect_success();
    assert_eq!(find(&place, &["zanzibar"]), [Value::Null; 0]);
    assert!(!find(&place, &["growers"]).is_empty());
    assert!(!has_word(&words()));
}

/// A clone may contain any file in the place of the database.
#[test]
fn foreign_databases_are_refused_or_replaced() {
    let place = recorded();
    let file = ".ktx/ingestdeck/text.sqlite";
    place.write(file, "not a database");
    assert!(!find(&place, &["growers.md"]).is_empty());
    fs::remove_file(place.path(file)).unwrap();
    let victim = place.write("victim", "mine");
    std::os::unix::fs::symlink(&victim, place.path(file)).unwrap();
    let refused = place.run(&["find", "growers.md"]);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert_eq!(fs::read_to_string(victim).unwrap(), "mine");
}
