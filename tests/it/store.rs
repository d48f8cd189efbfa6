//! Run directories, their names and locks, and the index that is rebuilt from tapes.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use ingestdeck_core::{
    diagnostic::Problem,
    run::entry_source::{EntrySource, NewEntry, Recorder},
    tape::{
        EntryBody, FORMAT_VERSION, Header, Note, RunId, UnitKey,
        note::{
            AttemptEnded, AttemptOutcome, CallDecision, CommandReceived, PlannedUnit, RunEnded,
            RunPlanned, StopReason, Verdict, VerdictCause,
        },
    },
};
use ingestdeck_records::{
    replay::FileSource,
    store::{
        Db, RecordedRun, RunStatus, RunStore, db::QueryLimits, index_rows::RunIndexRows,
        runs::NewRun, runs::RunStoreError,
    },
};
use serde_json::json;

fn header(run: RunId) -> Header {
    Header {
        tape: FORMAT_VERSION,
        program: "ingestdeck test".into(),
        run,
        started_at: "2026-01-01T00:00:00Z".parse().unwrap(),
        project: Some("orbit".into()),
        scripted: true,
        agent: None,
    }
}

fn open(tape: &Path, file: fs::File) -> Result<Box<dyn EntrySource>, Problem> {
    match FileSource::from_file(tape, file) {
        Ok(source) => Ok(Box::new(source)),
        Err(error) => Err(Problem::new(error.to_string())),
    }
}

fn note(run: &NewRun, lane: Option<(&UnitKey, u32)>, note: &Note) {
    run.tape
        .record(&[NewEntry {
            attempt: lane,
            body: EntryBody::Note(&note.to_json()),
        }])
        .unwrap();
}

/// The first lines of a capture of the real CLI, as an attempt of `unit`.
fn lines(run: &NewRun, unit: &str, capture: &str, most: usize) {
    let unit = UnitKey::from(unit);
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/captures")
        .join(capture);
    let text = fs::read(path).unwrap();
    for line in text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .take(most)
    {
        run.tape
            .record(&[NewEntry {
                attempt: Some((&unit, 1)),
                body: EntryBody::Stdout(line),
            }])
            .unwrap();
    }
}

fn attempt_ended(verdict: Verdict) -> Note {
    Note::AttemptEnded(Box::new(AttemptEnded {
        verdict,
        tool_failures: 0,
        failed_call: None,
        exit_code: Some(0),
        signal: None,
        stderr_tail: vec![],
        wrote: vec![],
        work: Default::default(),
        extra: serde_json::Map::default(),
    }))
}

/// Records one unit that plays a whole capture.
fn play(run: &NewRun, unit: &str, capture: &str, outcome: AttemptOutcome) {
    lines(run, unit, capture, usize::MAX);
    let unit = UnitKey::from(unit);
    let verdict = Verdict {
        outcome,
        stop: StopReason::Natural,
        cause: VerdictCause::Completed,
        reason: "done".into(),
        remedy: None,
    };
    note(run, Some((&unit, 1)), &attempt_ended(verdict));
}

fn plan(run: &NewRun, units: &[&str]) {
    let units = units.iter().map(|unit| PlannedUnit {
        unit: UnitKey::from(*unit),
        connection: "warehouse".into(),
        adapter: "dbt".into(),
        ..PlannedUnit::default()
    });
    note(
        run,
        None,
        &Note::RunPlanned(Box::new(RunPlanned {
            units: units.collect(),
            ..RunPlanned::default()
        })),
    );
}

fn end(run: &NewRun) {
    let ended = RunEnded {
        outcome: "done".into(),
        succeeded: 1,
        ..RunEnded::default()
    };
    note(run, None, &Note::RunEnded(ended));
}

#[test]
fn run_is_private_running_then_finished() {
    let project = tempfile::tempdir().unwrap();
    let runs = RunStore::new(project.path());
    assert!(matches!(runs.resolve("latest"), Err(RunStoreError::Empty)));

    let run = runs.create(None, header).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (
            mode(run.tape.path().parent().unwrap()),
            mode(run.tape.path())
        ),
        (0o700, 0o600)
    );
    assert_eq!(mode(runs.root()), 0o700);
    assert_eq!(
        fs::read_to_string(runs.root().join(".gitignore")).unwrap(),
        "*\n"
    );
    let found = runs.resolve("latest").unwrap();
    assert_eq!((found.id, found.tape.as_path()), (run.id, run.tape.path()));
    assert_eq!(runs.status(&found).unwrap(), RunStatus::Running);

    drop(run);
    assert_eq!(runs.status(&found).unwrap(), RunStatus::Interrupted);

    let run = runs.create(None, header).unwrap();
    end(&run);
    let (tape, lock) = run.into_parts();
    drop(tape);
    let found = runs.resolve("latest").unwrap();
    assert_eq!(
        runs.status(&found).unwrap(),
        RunStatus::Running,
        "the lock is still held"
    );
    drop(lock);
    assert_eq!(runs.status(&found).unwrap(), RunStatus::Finished);
    assert_eq!(fs::read_dir(runs.root().join("locks")).unwrap().count(), 0);
}

#[test]
fn run_killed_in_a_late_retry_is_interrupted() {
    let project = tempfile::tempdir().unwrap();
    let runs = RunStore::new(project.path());
    let run = runs.create(None, header).unwrap();
    let unit = UnitKey::from("u");
    end(&run);
    note(
        &run,
        Some((&unit, 1)),
        &Note::RetryRequested {
            next: 2,
            amendment: None,
        },
    );
    note(
        &run,
        Some((&unit, 2)),
        &Note::AttemptStarted(Box::default()),
    );
    drop(run);
    let found = runs.resolve("latest").unwrap();
    assert_eq!(runs.status(&found).unwrap(), RunStatus::Interrupted);
}

#[test]
fn unheld_lock_file_is_removed() {
    let project = tempfile::tempdir().unwrap();
    let runs = RunStore::new(project.path());
    drop(runs.create(None, header).unwrap());
    let found = runs.resolve("latest").unwrap();
    fs::write(runs.root().join("locks").join(found.id.to_string()), "").unwrap();
    assert_eq!(runs.status(&found).unwrap(), RunStatus::Interrupted);
}

fn with_ids(ids: &[&str]) -> (tempfile::TempDir, RunStore) {
    let project = tempfile::tempdir().unwrap();
    let runs = RunStore::new(project.path());
    for id in ids {
        let directory = runs.root().join("runs").join(id);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("tape.jsonl"), "").unwrap();
    }
    (project, runs)
}

#[test]
fn run_id_prefix_selects_a_run() {
    const OLD: &str = "01900000-0000-7000-8000-0000004a11c3";
    const NEW: &str = "01900000-0001-7000-8000-0000004affff";
    let (_project, runs) = with_ids(&[OLD, NEW]);
    fs::create_dir_all(runs.root().join("runs/not-a-run")).unwrap();
    fs::create_dir_all(
        runs.root()
            .join("runs/01900000-0002-7000-8000-000000000000"),
    )
    .unwrap();
    let resolve = |text: &str| runs.resolve(text).map(|run| run.id.to_string());
    for text in [OLD, "4a11c3", "4A11", "019000000000", "01900000-0000"] {
        assert_eq!(resolve(text).unwrap(), OLD, "{text}");
    }
    assert_eq!(resolve("latest").unwrap(), NEW);
    assert_eq!(resolve("4aff").unwrap(), NEW);
    for text in ["4a", "0190"] {
        let error = resolve(text).unwrap_err();
        let shown = error.to_string();
        assert!(
            matches!(error, RunStoreError::Ambiguous { count: 2, .. }),
            "{shown}"
        );
        assert!(shown.contains(OLD) && shown.contains(NEW), "{shown}");
    }
    for text in ["", "zz", "4a11c4", "../..", "11c3"] {
        assert!(
            matches!(resolve(text), Err(RunStoreError::NotFound(_))),
            "{text}"
        );
    }
}

#[test]
fn short_run_id_takes_precedence_over_a_prefix() {
    let (_project, runs) = with_ids(&[
        "01900000-0000-7000-8000-000000019000",
        "01900000-0001-7000-8000-00000000abcd",
    ]);
    let run = runs.resolve("019000").unwrap();
    assert_eq!(run.id.short(), "019000");
}

/// All rows of the index as text in a fixed order, one line per row.
fn dump(runs: &RunStore) -> String {
    let index = rusqlite::Connection::open(runs.root().join("db.sqlite")).unwrap();
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name";
    let tables: Vec<String> = index
        .prepare(tables)
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let mut text = String::new();
    for table in tables {
        let mut statement = index
            .prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2, 3, 4"))
            .unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let values: Vec<String> = (0..columns)
                .map(|column| format!("{:?}", row.get_ref(column).unwrap()))
                .collect();
            text.push_str(&format!("{table}\t{}\n", values.join("\t")));
        }
    }
    text
}

#[test]
fn index_is_rebuilt_from_tapes_alone() {
    let project = tempfile::tempdir().unwrap();
    let runs = RunStore::new(project.path());
    let mut db = runs.open_database().unwrap();

    let first = runs.create(None, header).unwrap();
    plan(&first, &["good", "never"]);
    play(
        &first,
        "good",
        "success_tools.jsonl",
        AttemptOutcome::Succeeded,
    );
    assert_eq!(runs.refresh(&mut db, &open).unwrap().indexed, 1);
    play(
        &first,
        "denied",
        "permission_denied_dontask.jsonl",
        AttemptOutcome::Failed,
    );
    end(&first);
    drop(first);
    let second = runs.create(None, header).unwrap();
    play(
        &second,
        "cut",
        "killed_sigterm_tool.jsonl",
        AttemptOutcome::Stopped,
    );
    drop(second);

    assert_eq!(runs.refresh(&mut db, &open).unwrap().indexed, 2);
    assert_eq!(
        runs.refresh(&mut db, &open).unwrap().indexed,
        0,
        "nothing has changed"
    );
    let grown = dump(&runs);
    assert!(grown.lines().count() > 6, "{grown}");
    drop(db);

    let mut db = runs.recreate_database().unwrap();
    assert_eq!(dump(&runs), "");
    runs.refresh(&mut db, &open).unwrap();
    assert_eq!(dump(&runs), grown);

    let listed = db.list().unwrap();
    assert_eq!(listed.len(), 2);
    assert!(listed[0].id > listed[1].id, "newest first");
    assert_eq!(
        (listed[0].outcome.as_deref(), listed[1].outcome.as_deref()),
        (None, Some("done"))
    );
    assert_eq!(
        (listed[1].units, listed[1].succeeded, listed[1].failed),
        (3, 1, 1)
    );

    // A deleted run is removed from the index. A broken one is reported and does not affect the others.
    fs::remove_dir_all(runs.root().join("runs").join(listed[0].id.to_string())).unwrap();
    let broken = "01900000-0000-7000-8000-000000000001";
    fs::create_dir_all(runs.root().join("runs").join(broken)).unwrap();
    fs::write(
        runs.root().join("runs").join(broken).join("tape.jsonl"),
        "{\"tape\":7}\n",
    )
    .unwrap();
    let refreshed = runs.refresh(&mut db, &open).unwrap();
    assert_eq!((refreshed.indexed, refreshed.unreadable.len()), (0, 1));
    assert!(refreshed.unreadable[0].1.contains("newer"), "{refreshed:?}");
    assert_eq!(db.list().unwrap().len(), 1);
}

#[test]
fn torn_tape_is_indexed_once_and_grown_tape_again() {
    let project = tempfile::tempdir().unwrap();
    let runs = RunStore::new(project.path());
    let run = runs.create(None, header).unwrap();
    play(
        &run,
        "cut",
        "success_tools.jsonl",
        AttemptOutcome::Succeeded,
    );
    let tape = run.tape.path().to_owned();
    drop(run);
    let append = |text: &str| {
        use std::io::Write as _;
        fs::OpenOptions::new()
            .append(true)
            .open(&tape)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    };
    append("{\"seq\":99,\"at\":5,\"unit\":\"c");
    let mut db = runs.open_database().unwrap();
    let indexed = |db: &mut Db| runs.refresh(db, &open).unwrap().indexed;
    assert_eq!((indexed(&mut db), indexed(&mut db)), (1, 0));
    append("ut");
    assert_eq!((indexed(&mut db), indexed(&mut db)), (1, 0));
}

#[test]
fn units_work_in_the_index_until_the_engine_is_gone() {
    let project = tempfile::tempdir().unwrap();
    let runs = RunStore::new(project.path());
    let run = runs.create(None, header).unwrap();
    note(
        &run,
        Some((&"cut".into(), 1)),
        &Note::AttemptStarted(Box::default()),
    );
    lines(&run, "cut", "killed_sigterm_tool.jsonl", 2);
    let mut db = runs.open_database().unwrap();
    let mut statuses = || {
        runs.refresh(&mut db, &open).unwrap();
        let sql = "SELECT a.status, u.status FROM agents a JOIN units u ON (u.run, u.unit) = (a.run, a.task)";
        let limits = QueryLimits {
            rows: 9,
            time: Duration::from_secs(60),
        };
        let mut rows = Vec::new();
        db.query(sql, limits, &mut |_| {}, &mut |row| {
            rows.push(row);
            true
        })
        .unwrap();
        rows
    };
    assert_eq!(statuses(), [["running", "running"]]);
    drop(run);
    assert_eq!(statuses(), [["interrupted", "interrupted"]]);
    assert_eq!(
        runs.refresh(&mut db, &open).unwrap().indexed,
        0,
        "nothing has changed"
    );
}

#[test]
fn index_of_an_earlier_version_is_rebuilt() {
    let project = tempfile::tempdir().unwrap();
    let runs = RunStore::new(project.path());
    let run = runs.create(None, header).unwrap();
    play(
        &run,
        "done",
        "success_tools.jsonl",
        AttemptOutcome::Succeeded,
    );
    let unit = UnitKey::from("spent");
    let capture = "success_tools.jsonl";
    lines(&run, "spent", capture, 3);
    let verdict = Verdict {
        outcome: AttemptOutcome::Succeeded,
        stop: StopReason::Budget,
        cause: VerdictCause::Completed,
        reason: "12 of 12 turns".into(),
        remedy: None,
    };
    note(&run, Some((&unit, 1)), &attempt_ended(verdict));
    drop(run);

    let old = rusqlite::Connection::open(runs.database()).unwrap();
    old.execute_batch(
        "CREATE TABLE runs (run TEXT PRIMARY KEY, tape_bytes INTEGER) STRICT, WITHOUT ROWID",
    )
    .unwrap();
    let id = runs.resolve("latest").unwrap().id.to_string();
    let length = fs::metadata(runs.resolve("latest").unwrap().tape)
        .unwrap()
        .len();
    old.execute(
        "INSERT INTO runs VALUES (?1, ?2)",
        rusqlite::params![id, i64::try_from(length).unwrap()],
    )
    .unwrap();
    old.pragma_update(None, "user_version", 1).unwrap();
    drop(old);

    let mut db = runs.open_database().unwrap();
    assert_eq!(runs.refresh(&mut db, &open).unwrap().indexed, 1);
    let listed = &db.list().unwrap()[0];
    assert_eq!(
        (listed.units, listed.succeeded, listed.budget, listed.failed),
        (2, 1, 1, 0)
    );
}

#[test]
fn calls_are_indexed_with_their_results() {
    let project = tempfile::tempdir().unwrap();
    let runs = RunStore::new(project.path());
    let run = runs.create(None, header).unwrap();
    play(
        &run,
        "good",
        "parallel_readonly_tools.jsonl",
        AttemptOutcome::Succeeded,
    );
    play(
        &run,
        "failing",
        "rpc_error_result.jsonl",
        AttemptOutcome::Failed,
    );
    play(
        &run,
        "denied",
        "permission_denied_dontask.jsonl",
        AttemptOutcome::Failed,
    );
    lines(&run, "cut", "killed_sigterm_tool.jsonl", 2);
    let tape: PathBuf = run.tape.path().to_owned();
    drop(run);

    let rows = RunIndexRows::from_source(
        open(&tape, fs::File::open(&tape).unwrap()).unwrap(),
        7,
        false,
    )
    .unwrap();
    assert_eq!(rows.run.tape_bytes, 7);
    let of = |unit: &str| {
        rows.calls
            .iter()
            .filter(|call| call.unit == unit)
            .cloned()
            .collect::<Vec<_>>()
    };
    let good = of("good");
    assert!(!good.is_empty());
    for (position, call) in good.iter().enumerate() {
        assert_eq!(call.status.as_str(), "complete", "{call:?}");
        assert_eq!(call.turn_number as usize, position + 1);
        assert!(call.result_seq.unwrap() > call.seq);
        assert!(
            call.input.is_some() && call.output.is_some() && call.error.is_none(),
            "{call:?}"
        );
    }
    let failing = of("failing");
    assert_eq!(failing[0].status.as_str(), "error");
    assert!(
        failing[0]
            .error
            .as_deref()
            .is_some_and(|text| !text.is_empty()),
        "{failing:?}"
    );
    assert!(
        of("denied")
            .iter()
            .any(|call| call.status.as_str() == "denied"),
        "{:?}",
        of("denied")
    );
    let cut = &of("cut")[0];
    assert_eq!((cut.status.as_str(), cut.result_seq), ("error", None));
    assert_eq!(cut.error.as_deref(), Some("no result before the run ended"));
    for unit in ["good", "failing", "denied"] {
        let attempt = rows
            .attempts
            .iter()
            .find(|attempt| attempt.unit == unit)
            .unwrap();
        assert_eq!(attempt.calls as usize, of(unit).len(), "{unit}");
    }
}

/// Creates `path`, and its parents, as a file type that the store does not expect there.
fn plant(path: &Path, what: &str, outside: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    match what {
        "link" => std::os::unix::fs::symlink(outside, path).unwrap(),
        "pipe" => nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
        other => panic!("{other}"),
    }
}

#[test]
fn links_and_pipes_in_the_state_directory_are_refused() {
    let run = RunId(uuid::Uuid::now_v7());
    let of_run = [format!("locks/{run}"), format!("runs/{run}")];
    let places = [
        "",
        "runs",
        "locks",
        "db.sqlite",
        "db.sqlite-wal",
        "db.sqlite-journal",
        &of_run[0],
        &of_run[1],
    ];
    for (place, what) in places
        .iter()
        .flat_map(|place| [(*place, "link"), (*place, "pipe")])
    {
        let (project, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("tape.jsonl"), header(run).to_line()).unwrap();
        let runs = RunStore::new(project.path());
        let planted = format!(".ktx/ingestdeck/{place}");
        plant(
            &project.path().join(planted.trim_end_matches('/')),
            what,
            outside.path(),
        );

        let found = RecordedRun {
            id: run,
            tape: runs.root().join(format!("runs/{run}/tape.jsonl")),
        };
        let _ = (
            runs.list().map(|listed| assert_eq!(listed, [])),
            runs.is_alive(run),
            runs.lock_holder_pid(run),
            runs.size(&found),
        );
        let _ = (
            runs.finish_removals(),
            runs.remove(&found),
            runs.status(&found).is_ok(),
        );
        assert!(runs.open_tape(&found).is_err(), "{place} {what}");
        let is_used_by_create = ["", "runs", "locks"].contains(&place);
        assert_eq!(
            runs.create(None, header).is_err(),
            is_used_by_create,
            "{place} {what}"
        );
        let is_used_by_index = place.is_empty() || place.starts_with("db.sqlite");
        assert_eq!(
            runs.open_database().is_err(),
            is_used_by_index,
            "{place} {what}"
        );
        assert_eq!(
            fs::read_dir(outside.path()).unwrap().count(),
            1,
            "{place} {what}"
        );
    }
}

#[test]
fn indexed_call_has_the_arguments_that_ran() {
    let project = tempfile::tempdir().unwrap();
    let run = RunStore::new(project.path()).create(None, header).unwrap();
    plan(&run, &["unit"]);
    let unit = UnitKey::from("unit");
    let call = |id: &str| {
        let block = json!({"type": "tool_use", "id": id, "name": "mcp__ktx__wiki_write", "input": {"key": "model"}});
        let line = json!({"type": "assistant", "message": {"id": "m1", "role": "assistant", "content": [block]}});
        run.tape
            .record(&[NewEntry {
                attempt: Some((&unit, 1)),
                body: EntryBody::Stdout(line.to_string().as_bytes()),
            }])
            .unwrap();
    };
    ["t1", "t2"].into_iter().for_each(call);
    let decided = Note::CallDecided {
        rule: None,
        tool_use_id: Some("t2".into()),
        decision: CallDecision::Edited,
        input: Some(json!({"key": "person"})),
        reason: None,
    };
    note(&run, Some((&unit, 1)), &decided);
    end(&run);
    let tape = run.tape.path().to_owned();
    drop(run);
    let rows = RunIndexRows::from_source(
        open(&tape, fs::File::open(&tape).unwrap()).unwrap(),
        0,
        false,
    )
    .unwrap();
    let inputs: Vec<_> = rows
        .calls
        .iter()
        .map(|call| call.input.as_deref().unwrap())
        .collect();
    assert_eq!(inputs, [r#"{"key":"model"}"#, r#"{"key":"person"}"#]);
}

#[test]
fn indexed_call_names_who_decided_it_and_why() {
    let project = tempfile::tempdir().unwrap();
    let run = RunStore::new(project.path()).create(None, header).unwrap();
    plan(&run, &["unit"]);
    let unit = UnitKey::from("unit");
    let of_attempt = |body: EntryBody<'_>| {
        run.tape
            .record(&[NewEntry {
                attempt: Some((&unit, 1)),
                body,
            }])
            .unwrap()
    };
    let call = |id: &str| {
        let block = json!({"type": "tool_use", "id": id, "name": "mcp__ktx__wiki_write", "input": {"key": "model"}});
        let line = json!({"type": "assistant", "parent_tool_use_id": (id == "t4").then_some("t1"),
            "message": {"id": "m1", "role": "assistant", "content": [block]}});
        of_attempt(EntryBody::Stdout(line.to_string().as_bytes()));
    };
    let held = |id: &str| {
        let (tool, reached) = (
            "wiki_write".to_owned(),
            (id == "t5").then(|| "tool wiki_*".to_owned()),
        );
        let held = Note::CallHeld {
            needs_decision: false,
            tool,
            tool_use_id: Some(id.into()),
            input: json!({}),
            reached,
        };
        of_attempt(EntryBody::Note(&held.to_json()));
    };
    let decided = |id: &str, decision, reason: Option<&str>| {
        let (input, reason) = (None, reason.map(str::to_owned));
        let decided = Note::CallDecided {
            tool_use_id: Some(id.into()),
            decision,
            input,
            reason,
            rule: None,
        };
        of_attempt(EntryBody::Note(&decided.to_json()));
    };
    let command = |units: &[&str], user: &str| {
        let (client, user) = (Some("ctl".to_owned()), Some(user.to_owned()));
        let units: Vec<UnitKey> = units.iter().map(|unit| UnitKey::from(*unit)).collect();
        let reason = (units == [UnitKey::from("other")]).then(|| "unrelated".to_owned());
        let reason = reason.or_else(|| units.is_empty().then(|| "all clear".to_owned()));
        let received = CommandReceived {
            command: "decide".into(),
            units,
            client,
            user,
            reason,
        };
        note(&run, None, &Note::CommandReceived(Box::new(received)));
    };
    ["t1", "t2", "t3", "t4", "t5", "t6"]
        .into_iter()
        .for_each(call);
    ["t2", "t3", "t4", "t5"].into_iter().for_each(held);
    command(&["unit"], "anna");
    decided("t2", CallDecision::Denied, Some("not now"));
    command(&["other"], "berta");
    decided("t3", CallDecision::Allowed, None);
    command(&[], "carla");
    decided("t4", CallDecision::Released, None);
    decided("t6", CallDecision::Withdrawn, None);
    end(&run);
    let tape = run.tape.path().to_owned();
    drop(run);
    let rows = RunIndexRows::from_source(
        open(&tape, fs::File::open(&tape).unwrap()).unwrap(),
        0,
        false,
    )
    .unwrap();
    let rulings: Vec<_> = rows
        .calls
        .iter()
        .map(|call| {
            let (by, reason) = (
                call.ruling.decided_by.as_deref(),
                call.ruling.reason.as_deref(),
            );
            (
                call.ruling.decision.as_str(),
                by,
                reason,
                call.times.waited.is_some(),
            )
        })
        .collect();
    let expected = [
        ("allowed", Some("rule"), None, false),
        ("denied", Some("anna (ctl)"), Some("not now"), true),
        ("allowed", Some("anna (ctl)"), None, true),
        ("released", Some("carla (ctl)"), Some("all clear"), true),
        ("held", None, Some("tool wiki_*"), false),
        ("withdrawn", None, None, true),
    ];
    assert_eq!(rulings, expected);
    assert_eq!(rows.calls[3].parent_tool_use_id.as_deref(), Some("t1"));
}

/// The id of a run that started that many milliseconds from now.
fn run_at(milliseconds: i64) -> RunId {
    let mut bytes = uuid::Uuid::now_v7().into_bytes();
    let now = i64::from_be_bytes([
        0, 0, bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5],
    ]);
    bytes[..6].copy_from_slice(&(now + milliseconds).to_be_bytes()[2..]);
    RunId(uuid::Uuid::from_bytes(bytes))
}

#[test]
fn new_run_id_follows_the_newest_run_of_a_clock_that_was_ahead() {
    const HOUR: i64 = 3_600_000;
    for ahead in [0, 1, HOUR, 100 * 24 * HOUR] {
        let project = tempfile::tempdir().unwrap();
        let runs = RunStore::new(project.path());
        let newest = run_at(ahead);
        let run = runs.create(Some(newest), header).unwrap();
        assert!(run.id > newest, "{ahead} ms ahead");
        assert_eq!(run.id.0.get_version_num(), 7);
        assert!(
            run.id <= run_at(ahead + HOUR),
            "it follows the newest id closely"
        );
    }
    let project = tempfile::tempdir().unwrap();
    let runs = RunStore::new(project.path());
    assert_eq!(runs.newest(u64::MAX, |_| true).unwrap(), None);
    let ids = [
        run_at(-HOUR),
        run_at(HOUR),
        run_at(100 * 24 * HOUR),
        RunId(uuid::Uuid::max()),
    ];
    for id in ids {
        let directory = runs.root().join(format!("runs/{id}"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("tape.jsonl"), "").unwrap();
    }
    let tomorrow = run_at(24 * HOUR).started_at_ms();
    assert_eq!(
        runs.newest(tomorrow, |_| false).unwrap(),
        Some(ids[1]),
        "foreign records from the far future do not count"
    );
    assert_eq!(
        runs.newest(tomorrow, |id| id == ids[2]).unwrap(),
        Some(ids[2]),
        "records of this installation do"
    );

    let run = runs.create(Some(run_at(-HOUR)), header).unwrap();
    assert!(
        run.id > run_at(-HOUR / 2) && run.id < run_at(HOUR / 2),
        "a correct clock is used"
    );
    assert!(
        runs.create(Some(RunId(uuid::Uuid::max())), header).is_ok(),
        "the largest id has no successor"
    );
}
