//! The demo from its first line to its tape, and what remains when it is interrupted.

use std::{
    fs,
    path::{Path, PathBuf},
};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::commands::test_dir::{TestDir, parse_json_events, tape};

fn objects(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(
        text.ends_with('\n'),
        "{} does not end with a line feed",
        path.display()
    );
    text.lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

/// Names in a directory, except hidden ones.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let shown = entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    let mut files: Vec<PathBuf> = shown.map(|entry| entry.path()).collect();
    files.sort();
    files
}

#[test]
fn demo_prints_its_lines() {
    let place = TestDir::new();
    let ran = place.run(&["demo", "--speed", "20"]);
    let stdout = ran.expect_success();
    assert_eq!(ran.stderr, "");
    for line in [
        "● 8 units planned, concurrency 4, scripted agent",
        "▲ connection cafe-dashboards is skipped: there is no adapter for driver `metabase` yet",
        "▲ permission denied: Bash",
        "✗ wiki_write landed-cost",
        "`text` is not a field",
        "/8]: `text` is not a field (wiki_write)",
        "✗ docs-bean-contracts: `text` is not a field (wiki_write)",
        "/8]: ran out of turns (12/12)",
        "8 units: 6 succeeded, 1 failed, 1 budget",
        "(scripted agent: invented numbers)",
        "kept until the next demo:\n  ingestdeck replay demo\n",
    ] {
        assert!(stdout.contains(line), "{line} is missing in\n{stdout}");
    }
    let glyphs: Vec<usize> = stdout
        .lines()
        .filter(|line| line.contains("▸ running"))
        .filter_map(|line| line.find('▸'))
        .collect();
    assert!(
        glyphs.len() == 8 && glyphs.iter().all(|at| *at == glyphs[0]),
        "columns: {glyphs:?}"
    );
    assert_eq!(
        place
            .run(&["demo", "--speed", "20", "--ui", "none"])
            .expect_success(),
        ""
    );
}

/// The directory of the last demo.
fn kept(place: &TestDir) -> PathBuf {
    place.path("../home/.local/state/ingestdeck/demo")
}

#[test]
fn last_demo_is_kept_until_the_next_one() {
    let place = TestDir::new();
    let refusal = place.run(&["replay", "demo"]);
    let expected = "no demo is kept; run one: `ingestdeck demo`";
    assert_eq!(refusal.expect_refusal(4).trim_end(), expected);
    let demo = |more: &[&str]| {
        let ran = place.run(&[&["demo", "--speed", "20", "--ui", "json"], more].concat());
        let lines = parse_json_events(ran.expect_success());
        (lines[0]["run"].as_str().unwrap().to_owned(), ran.stdout)
    };
    let (first, _) = demo(&[]);
    let (second, live) = demo(&[]);
    let replayed = place.run(&["replay", "demo", "--ui", "json"]);
    assert!(replayed.expect_success() == live, "the stream differs");
    let shown = place.run(&["runs", "show", "demo", "--ui", "json"]);
    let shown = shown.expect_success();
    assert!(
        shown.contains(&second) && !shown.contains(&first),
        "{shown}"
    );
    for words in [
        &["report", "demo"][..],
        &["artifacts", "demo"],
        &["runs", "export", "demo"],
        &["diff", "demo", "demo"],
    ] {
        place.run(words).expect_success();
    }
    let watched = place.run(&["watch", "demo", "--ui", "json"]);
    assert!(watched.stdout == live, "the stream differs");
    let refusal = place.run(&["ctl", "--run", "demo", "stop-all"]);
    assert!(
        !refusal.stderr.contains("no run matches"),
        "{}",
        refusal.stderr
    );
    // It is in no other list of runs.
    let listed = place.run(&["runs", "list"]);
    assert!(listed.expect_success().contains("no runs yet"));
}

#[test]
fn demo_next_to_a_running_one_is_temporary() {
    let place = TestDir::new();
    let kept = kept(&place);
    fs::create_dir_all(&kept).unwrap();
    let lock = fs::File::create(kept.join("lock")).unwrap();
    lock.lock().unwrap();
    let ran = place.run(&["demo", "--speed", "20"]);
    let advice = "the record was temporary; `ingestdeck demo --keep DIR` keeps it";
    assert!(ran.expect_success().contains(advice), "{ran:?}");
    assert_eq!(files(&kept), [kept.join("lock"), kept.join("temporary")]);
}

#[test]
fn replay_prints_the_live_output() {
    let place = TestDir::new();
    let live = place.run(&["demo", "--speed", "20", "--ui", "json", "--keep", "kept"]);
    let lines = parse_json_events(live.expect_success());
    let project = place.path("kept");
    let tape = tape(&project);

    for words in [
        &["replay", "latest", "--project-dir", "kept"][..],
        &["replay", tape.to_str().unwrap()],
    ] {
        let replayed = place.run(&[words, &["--ui", "json"]].concat());
        assert!(
            replayed.expect_success() == live.stdout,
            "the stream differs after {words:?}"
        );
    }
    let mut piped = place.command(&["replay", "-", "--ui", "json"]);
    piped.stdin(fs::File::open(&tape).unwrap());
    assert!(
        place.ran(piped).expect_success() == live.stdout,
        "the stream from stdin differs"
    );

    assert_tape_format(&objects(&tape), &lines);
    assert_transcripts_name_calls(&project);
    assert_only_successful_units_wrote(&project);
    assert_runs_are_listed(&place, lines[0]["run"].as_str().unwrap());
}

fn assert_tape_format(tape: &[Value], lines: &[Value]) {
    let (header, entries) = tape.split_first().unwrap();
    assert_eq!(
        (&header["tape"], &header["run"]),
        (&1.into(), &lines[0]["run"])
    );
    assert_eq!(header["scripted"], true);
    for (seq, entry) in entries.iter().enumerate() {
        assert_eq!(entry["seq"], seq, "{entry}");
        assert!(entry["at"].is_u64(), "{entry}");
        assert_eq!(
            entry.get("unit").is_some(),
            entry.get("try").is_some(),
            "{entry}"
        );
        let bodies = ["out", "raw", "in", "err", "note"]
            .iter()
            .filter(|body| entry.get(**body).is_some())
            .count();
        assert_eq!(bodies, 1, "{entry}");
        let keys: Vec<&str> = entry
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert!(keys.starts_with(&["seq", "at"]), "{entry}");
    }
    // `jq -c 'select(.unit=="dbt-all").out'` extracts the agent's own stream.
    let stream: Vec<&Value> = entries
        .iter()
        .filter(|entry| entry["unit"] == "dbt-all")
        .filter_map(|entry| entry.get("out"))
        .collect();
    let init = stream
        .iter()
        .find(|line| line["type"] == "system" && line["subtype"] == "init")
        .expect("an init line");
    assert!(
        stream
            .iter()
            .any(|line| line["type"] == "result" && line["session_id"] == init["session_id"])
    );
}

fn assert_transcripts_name_calls(project: &Path) {
    let job = files(&project.join(".ktx/ingest-transcripts")).remove(0);
    let transcripts = files(&job);
    assert_eq!(transcripts.len(), 8);
    for transcript in transcripts {
        let unit = transcript.file_stem().unwrap().to_str().unwrap().to_owned();
        let calls = objects(&transcript);
        assert!(!calls.is_empty(), "{unit}");
        for call in calls {
            assert_eq!(call["wuKey"], unit.as_str(), "{call}");
            assert!(
                call["toolCallId"].as_str().is_some_and(|id| !id.is_empty()),
                "{call}"
            );
        }
    }
}

fn assert_only_successful_units_wrote(project: &Path) {
    let pages: Vec<String> = files(&project.join("wiki/global"))
        .iter()
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert!(pages.iter().any(|page| page == "net-revenue"), "{pages:?}");
    assert!(
        !pages.iter().any(|page| page == "landed-cost"),
        "the failed unit wrote: {pages:?}"
    );
    let run = tape(project);
    assert!(
        !run.parent().unwrap().join("work").exists(),
        "workspaces are deleted"
    );
}

fn assert_runs_are_listed(place: &TestDir, run: &str) {
    let on_kept = |words: &[&str]| place.run(&[words, &["--project-dir", "kept"]].concat());
    let list = on_kept(&["runs", "list"]);
    assert!(
        list.expect_success().contains("  partial  ") && list.stdout.contains("8 units"),
        "{list:?}"
    );
    let show = on_kept(&["runs", "show"]);
    assert!(
        show.expect_success()
            .starts_with(&format!("run {run}  finished\n")),
        "{show:?}"
    );
    let short = run.get(run.len() - 6..).unwrap();
    assert!(
        show.stdout
            .contains(&format!("ingestdeck replay {short} --project-dir kept")),
        "{show:?}"
    );
    assert_eq!(
        on_kept(&["runs", "reindex"]).expect_success(),
        "indexed 1 run\n"
    );
    assert_eq!(on_kept(&["runs", "list"]).expect_success(), list.stdout);
}

/// A demo whose agents are running.
fn begun(place: &TestDir, speed: &str) -> crate::commands::test_dir::RunningCommand {
    let mut running = place.start(place.command(&["demo", "--keep", "kept", "--speed", speed]));
    running.wait_for("stdout", "✓ read_raw_file");
    running
}

#[test]
fn first_sigint_lets_running_units_end() {
    let place = TestDir::new();
    let mut running = begun(&place, "4");
    running.signal(Signal::SIGINT);
    running.wait_for("stderr", "draining: nothing new starts");
    let ran = running.end();
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(
        ran.stdout.contains("4 untried") && ran.stdout.contains("2 succeeded"),
        "{ran:?}"
    );
    assert!(ran.stdout.contains("run ended: stopped"), "{ran:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn terminated_run_leaves_no_process() {
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGHUP, 129),
        (Signal::SIGQUIT, 131),
        (Signal::SIGUSR1, 138),
    ] {
        let place = TestDir::new();
        let running = begun(&place, "1");
        assert!(
            !place.processes(running.id()).is_empty(),
            "agents are running"
        );
        running.signal(signal);
        let ran = running.end();
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stdout.contains("4 stopped, 4 untried"), "{ran:?}");
        place.wait_until_no_process_left();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn killed_run_leaves_no_process_and_a_readable_tape() {
    let place = TestDir::new();
    let running = begun(&place, "1");
    assert!(
        !place.processes(running.id()).is_empty(),
        "agents are running"
    );
    let alive = place.run(&["runs", "show", "--project-dir", "kept"]);
    assert!(
        alive.expect_success().contains("  running\n") && alive.stdout.contains("still running"),
        "{alive:?}"
    );
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end().code, None);
    place.wait_until_no_process_left();

    let show = place.run(&["runs", "show", "--project-dir", "kept"]);
    assert!(
        show.expect_success().contains("  interrupted\n"),
        "{show:?}"
    );
    assert!(show.stdout.contains("4 interrupted, 4 untried"), "{show:?}");
    let list = place.run(&["runs", "list", "--project-dir", "kept"]);
    assert!(list.expect_success().contains("interrupted"), "{list:?}");
    let replayed = place.run(&["replay", "latest", "--project-dir", "kept", "--ui", "json"]);
    let lines = parse_json_events(replayed.expect_success());
    assert_eq!(lines.last().unwrap()["event"]["units"]["interrupted"], 4);

    // A tape that is cut anywhere in its last line still replays, and the lost line is counted.
    let whole = fs::read(tape(&place.path("kept"))).unwrap();
    place.write("torn.jsonl", &whole[..whole.len() - 7]);
    let torn = place.run(&["replay", "torn.jsonl", "--ui", "json"]);
    assert_eq!(
        parse_json_events(torn.expect_success()).last().unwrap()["event"]["lost"]["torn"],
        1
    );
}
