//! Session files of Claude Code with the transcripts of their sub-agents: what a real one shows, growth, and damage.

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use ingestdeck_core::run::{
    PollStatus, RunState, Timeline,
    state::{RowKind, RunView, UnitStatus},
};
use ingestdeck_records::replay::{FileSource, claude_sessions};

const SESSION: &str = "5e551011-4a4a-4b4b-8c8c-0123456789ab";

/// The project folder with a session of the real CLI, shortened.
fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sessions/-home-dev-project")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to)
        } else {
            fs::copy(entry.path(), to).map(|_| ()).unwrap()
        }
    }
}

/// A copy of the project folder, and the session file in it.
fn scratch() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    copy(&fixture(), dir.path());
    let path = dir.path().join(SESSION).with_extension("jsonl");
    (dir, path)
}

fn advance(timeline: &mut Timeline) -> PollStatus {
    loop {
        match timeline.advance(1 << 16, &mut |_| {}).unwrap() {
            PollStatus::More => {}
            status => return status,
        }
    }
}

fn timeline(path: &Path) -> Timeline {
    let mut timeline = Timeline::new(Box::new(FileSource::open(path).unwrap()));
    assert_eq!(advance(&mut timeline), PollStatus::End);
    timeline
}

/// Unit, status, and number of attempts.
fn units(state: &RunState) -> Vec<(&str, UnitStatus, usize)> {
    state
        .units
        .iter()
        .map(|unit| (unit.key.as_str(), unit.status, unit.attempts.len()))
        .collect()
}

fn messages(view: &RunView) -> Vec<&str> {
    view.messages()
        .iter()
        .map(|message| message.text.as_str())
        .collect()
}

fn kinds(view: &RunView, unit: usize) -> Vec<RowKind> {
    let attempt = view.state.units[unit].latest().unwrap();
    view.rows(attempt.id).iter().map(|row| row.kind).collect()
}

#[test]
fn session_has_its_agents_as_units() {
    let path = fixture().join(SESSION).with_extension("jsonl");
    let timeline = timeline(&path);
    let (view, source) = (timeline.view(), timeline.source().info());
    let succeeded = UnitStatus::Succeeded;
    let expected = [
        (SESSION, succeeded, 1),
        ("read the refund rules", succeeded, 1),
        ("check the cohorts", succeeded, 1),
        ("refund-audit: orders", succeeded, 1),
        ("refund-audit: payments", succeeded, 2),
    ];
    assert_eq!(units(&view.state), expected);
    assert_eq!(
        (source.title.as_deref(), source.format),
        (Some("Refund rules"), "session file")
    );
    assert_eq!(
        view.state.loss_counts,
        ingestdeck_core::run::state::LossCounts::default()
    );
    assert_eq!(messages(view), [""; 0]);
    let main = view.state.units[0].latest().unwrap();
    assert_eq!(main.setup.model.as_deref(), Some("claude-sonnet-5-5"));
    // The totals that the CLI reported in its own results.
    assert_eq!(main.counts.cost_usd, Some(1.982_232));
    assert!(
        (view.state.spent_usd - 1.982_232).abs() < 1e-9,
        "{}",
        view.state.spent_usd
    );
    let of = |kind| {
        kinds(view, 0)
            .into_iter()
            .filter(|each| *each == kind)
            .count()
    };
    assert_eq!(
        (of(RowKind::Prompt), of(RowKind::Tool), of(RowKind::Warning)),
        (4, 6, 0)
    );
    let payments = &view.state.units[4].attempts;
    assert_eq!((payments[0].number, payments[1].number), (1, 2));
    let reason = payments[0].failure_reason().unwrap();
    assert!(reason.contains("payments agent was refused"), "{reason}");
    assert_eq!(
        kinds(view, 1),
        [
            RowKind::Prompt,
            RowKind::Tool,
            RowKind::Text,
            RowKind::Completed
        ]
    );
}

#[test]
fn every_earlier_moment_equals_a_fresh_replay() {
    let path = fixture().join(SESSION).with_extension("jsonl");
    let entries = timeline(&path).view().state.entries;
    let mut stepped = timeline(&path);
    for moment in (0..entries).rev() {
        stepped.seek(moment).unwrap();
        let mut fresh = Timeline::new(Box::new(FileSource::open(&path).unwrap()));
        fresh.seek(moment).unwrap();
        assert_eq!(stepped.view().state, fresh.view().state, "entry {moment}");
    }
}

#[test]
fn growing_session_ends_like_a_finished_one() {
    let (dir, path) = scratch();
    let whole = fs::read(&path).unwrap();
    let agents = dir.path().join(SESSION);
    let later = dir.path().join("later");
    fs::rename(&agents, &later).unwrap();
    // Cut within a line.
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let (source, follower) = FileSource::follow_session(&path).unwrap().unwrap();
    let mut followed = Timeline::new(Box::new(source));
    assert_eq!(advance(&mut followed), PollStatus::Waiting);
    let units = followed.view().state.units.len();
    assert_eq!((units, followed.view().state.loss_counts.malformed), (1, 0));
    File::options()
        .append(true)
        .open(&path)
        .unwrap()
        .write_all(&whole[whole.len() / 2..])
        .unwrap();
    fs::rename(&later, &agents).unwrap();
    follower.finish();
    while advance(&mut followed) == PollStatus::Waiting {
        crate::support::pause_before_check();
    }
    let finished = timeline(&path);
    let facts = |timeline: &Timeline| {
        let state = &timeline.view().state;
        let mut units: Vec<_> = state
            .units
            .iter()
            .map(|unit| (unit.key.clone(), unit.status, unit.latest().unwrap().counts))
            .collect();
        units.sort_by(|one, other| one.0.cmp(&other.0));
        (state.entries, units)
    };
    assert_eq!(facts(&followed), facts(&finished));
}

#[test]
fn deleted_and_replaced_sessions_keep_what_was_read() {
    let (dir, path) = scratch();
    let (source, follower) = FileSource::follow_session(&path).unwrap().unwrap();
    let mut followed = Timeline::new(Box::new(source));
    advance(&mut followed);
    let before = followed.view().state.entries;
    fs::remove_dir_all(dir.path().join(SESSION)).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "{}\n").unwrap();
    follower.finish();
    while advance(&mut followed) == PollStatus::Waiting {
        crate::support::pause_before_check();
    }
    assert_eq!(followed.view().state.entries, before + 1);
    assert_eq!(
        messages(followed.view()),
        ["the session file was replaced by another file; open the session again"]
    );

    let (_dir, path) = scratch();
    let (source, follower) = FileSource::follow_session(&path).unwrap().unwrap();
    let mut followed = Timeline::new(Box::new(source));
    advance(&mut followed);
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(10)
        .unwrap();
    follower.finish();
    while advance(&mut followed) == PollStatus::Waiting {
        crate::support::pause_before_check();
    }
    let text = messages(followed.view()).join("\n");
    assert!(text.contains("shrank while it was open"), "{text}");
}

#[test]
fn links_and_missing_transcripts_are_reported() {
    let (dir, path) = scratch();
    let run = dir
        .path()
        .join(SESSION)
        .join("subagents/workflows/wf_acd6e91d-7ec");
    fs::remove_file(run.join("agent-a9febf7aa29091292.jsonl")).unwrap();
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::write(
        outside.path(),
        "{\"type\":\"user\",\"sessionId\":\"s\",\"message\":{\"content\":\"secret\"}}\n",
    )
    .unwrap();
    symlink(
        outside.path(),
        dir.path().join(SESSION).join("subagents/agent-link.jsonl"),
    )
    .unwrap();
    symlink(
        dir.path(),
        dir.path().join(SESSION).join("subagents/workflows/wf_loop"),
    )
    .unwrap();
    let timeline = timeline(&path);
    let expected = [
        "the transcript of sub-agent `link` is a symbolic link, so it is not shown",
        "the transcript of `refund-audit: payments` is missing",
    ];
    assert_eq!(messages(timeline.view()), expected);
    let payments = timeline
        .view()
        .state
        .units
        .iter()
        .find(|unit| unit.key.as_str() == "refund-audit: payments");
    assert_eq!(
        payments
            .unwrap()
            .attempts
            .iter()
            .map(|attempt| attempt.number)
            .collect::<Vec<_>>(),
        [2]
    );
    // The whole directory may be a link, too.
    let aside = tempfile::tempdir().unwrap();
    let moved = aside.path().join("agents");
    fs::rename(dir.path().join(SESSION), &moved).unwrap();
    symlink(&moved, dir.path().join(SESSION)).unwrap();
    assert_eq!(self::timeline(&path).view().state.units.len(), 1);
}

fn line(kind: &str, uuid: &str, parent: &str, more: &str, content: &str) -> String {
    let more = if more.is_empty() {
        "\"isSidechain\":false,"
    } else {
        more
    };
    format!(
        "{{\"type\":\"{kind}\",\"sessionId\":\"s\",\"uuid\":\"{uuid}\",\"parentUuid\":\"{parent}\",{more}\"message\":{{\"id\":\"m{uuid}\",\"model\":\"m\",\"stop_reason\":\"end_turn\",\"content\":{content}}}}}\n"
    )
}

#[test]
fn damaged_lines_cost_only_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let side = "\"isSidechain\":true,";
    let huge = format!("\"{}\"", "x".repeat(10 << 20));
    let lines = [
        line("user", "1", "2", "", "\"cycle\""),
        "garbage\n".to_owned(),
        "\u{0}\u{1}\n".to_owned(),
        "{\"type\":\"attachment\",\"attachment\":\n".to_owned(),
        // A cycle of two sub-agents, and one that is its own parent.
        line("user", "a", "b", side, "\"first\""),
        line(
            "assistant",
            "b",
            "a",
            side,
            "[{\"type\":\"text\",\"text\":\"one\"}]",
        ),
        line("user", "c", "c", side, "\"second\""),
        line("user", "3", "1", "", &huge),
        line(
            "assistant",
            "2",
            "3",
            "",
            "[{\"type\":\"text\",\"text\":\"answer\"}]",
        ),
        "{\"type\":\"never-heard-of\",\"sessionId\":\"s\"}\n".to_owned(),
        "{\"type\":\"assis".to_owned(),
    ];
    fs::write(&path, lines.concat()).unwrap();
    let mut timeline = timeline(&path);
    let view = timeline.view();
    assert_eq!(
        units(&view.state),
        [
            ("s", UnitStatus::Succeeded, 1),
            ("sub-agent 1", UnitStatus::Succeeded, 1),
            ("sub-agent 2", UnitStatus::Interrupted, 1)
        ]
    );
    assert_eq!(
        (
            view.state.loss_counts.malformed,
            view.state.loss_counts.unknown
        ),
        (4, 1)
    );
    assert_eq!(view.state.units[0].latest().unwrap().counts.cost_usd, None);
    let entries = view.state.entries;
    assert_eq!(entries, 11);
    for moment in (0..entries).rev() {
        timeline.seek(moment).unwrap();
    }
}

#[test]
fn transcript_of_an_agent_opens_alone() {
    let path = fixture()
        .join(SESSION)
        .join("subagents/agent-ab67a6f478ef1ccbc.jsonl");
    let timeline = timeline(&path);
    let state = &timeline.view().state;
    let unit = &state.units[0];
    assert_eq!((state.units.len(), unit.status), (1, UnitStatus::Succeeded));
    assert_eq!(
        (
            unit.latest().unwrap().counts.turns,
            unit.latest().unwrap().counts.calls
        ),
        (2, 1)
    );
}

#[test]
fn thousands_of_agents_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    fs::write(&path, line("user", "1", "", "", "\"go\"")).unwrap();
    let agents = dir.path().join("s/subagents");
    fs::create_dir_all(&agents).unwrap();
    for number in 0..1100 {
        let text = line("user", "1", "", "\"isSidechain\":true,", "\"same name\"");
        fs::write(agents.join(format!("agent-{number}.jsonl")), text).unwrap();
    }
    let timeline = timeline(&path);
    assert_eq!(timeline.view().state.units.len(), 1001);
    assert_eq!(
        messages(timeline.view()),
        ["only 1000 sub-agents are shown"]
    );
}

#[test]
fn fixture_is_listed_with_title_and_cost() {
    let list = claude_sessions::records_in(&fixture(), 9).unwrap();
    let listed: Vec<_> = list
        .files
        .iter()
        .map(|file| (file.title.as_deref(), file.cost_usd))
        .collect();
    assert_eq!(listed, [(Some("Refund rules"), Some(1.982_232))]);
}

/// Plays a followed session to its end.
fn finish(timeline: &mut Timeline) {
    while advance(timeline) == PollStatus::Waiting {
        crate::support::pause_before_check();
    }
}

#[test]
fn transcript_after_its_journal_entry_is_not_missing() {
    let (dir, path) = scratch();
    let agent = dir
        .path()
        .join(SESSION)
        .join("subagents/workflows/wf_acd6e91d-7ec/agent-a9febf7aa29091292.jsonl");
    let later = dir.path().join("later");
    fs::rename(&agent, &later).unwrap();
    let (source, follower) = FileSource::follow_session(&path).unwrap().unwrap();
    let mut followed = Timeline::new(Box::new(source));
    advance(&mut followed);
    fs::rename(&later, &agent).unwrap();
    follower.finish();
    finish(&mut followed);
    assert_eq!(messages(followed.view()), [""; 0]);
    assert_eq!(
        followed.view().state.entries,
        timeline(&path).view().state.entries
    );
}

#[test]
fn session_in_a_pipe_is_whole() {
    let (dir, path) = scratch();
    let whole = fs::read(&path).unwrap();
    let pipe = dir.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (opened, wait) = std::sync::mpsc::channel();
    let (to, bytes) = (pipe.clone(), whole.clone());
    let writer = std::thread::spawn(move || {
        let mut pipe = File::options().write(true).open(to).unwrap();
        let first = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        pipe.write_all(&bytes[..first]).unwrap();
        wait.recv().unwrap();
        pipe.write_all(&bytes[first..]).unwrap();
    });
    let mut piped = Timeline::new(Box::new(FileSource::open(&pipe).unwrap()));
    opened.send(()).unwrap();
    finish(&mut piped);
    writer.join().unwrap();
    let lines = whole
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .count();
    assert_eq!(
        (piped.view().state.units.len(), piped.view().state.entries),
        (1, lines as u64)
    );
}

#[test]
fn session_that_grows_too_large_ends_with_an_error() {
    let (_dir, path) = scratch();
    let (source, _follower) = FileSource::follow_session(&path).unwrap().unwrap();
    let mut followed = Timeline::new(Box::new(source));
    // A hole occupies no space.
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(600 << 20)
        .unwrap();
    let error = loop {
        match followed.advance(1 << 16, &mut |_| {}) {
            Ok(PollStatus::End) => panic!("it ended without an error"),
            Ok(PollStatus::Waiting) => crate::support::pause_before_check(),
            Ok(_) => {}
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("its files exceed 512"), "{error}");
    assert!(FileSource::follow_session(&path).unwrap().is_none());
}

#[test]
fn inline_agents_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let name = "a".repeat(80);
    let side = |number: usize| format!("\"isSidechain\":true,\"agentId\":\"{name}{number}\",");
    let agents = (0..20_000).map(|number| line("user", "1", "", &side(number), "\"go\""));
    fs::write(
        &path,
        line("user", "0", "", "", "\"go\"") + &agents.collect::<String>(),
    )
    .unwrap();
    let timeline = timeline(&path);
    let units = &timeline.view().state.units;
    assert_eq!(
        (units.len(), units[1001].key.as_str()),
        (1002, "more sub-agents")
    );
}

#[test]
fn runs_of_one_workflow_have_separate_units() {
    let (dir, path) = scratch();
    let session = dir.path().join(SESSION);
    let runs = session.join("subagents/workflows");
    copy(&runs.join("wf_acd6e91d-7ec"), &runs.join("wf_b"));
    fs::copy(
        session.join("workflows/wf_acd6e91d-7ec.json"),
        session.join("workflows/wf_b.json"),
    )
    .unwrap();
    let timeline = timeline(&path);
    let units = units(&timeline.view().state);
    let attempts = |name: &str| units.iter().find(|unit| unit.0 == name).map(|unit| unit.2);
    assert_eq!(units.len(), 7, "{units:?}");
    assert_eq!(
        (
            attempts("refund-audit: payments"),
            attempts("refund-audit: payments (2)")
        ),
        (Some(2), Some(2))
    );
}

#[test]
fn only_work_begins_a_turn_after_the_last_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let status = |lines: &[String]| {
        fs::write(&path, lines.concat()).unwrap();
        timeline(&path).view().state.units[0].status
    };
    let answer = line(
        "assistant",
        "2",
        "1",
        "",
        "[{\"type\":\"text\",\"text\":\"answer\"}]",
    );
    let mut lines = vec![line("user", "1", "", "", "\"go\""), answer.clone()];
    lines.push(line(
        "user",
        "3",
        "2",
        "",
        "\"<command-name>/exit</command-name>\"",
    ));
    lines.push(line(
        "user",
        "4",
        "3",
        "",
        "\"<bash-input>ls</bash-input>\"",
    ));
    assert_eq!(status(&lines), UnitStatus::Succeeded);
    lines.push(line("user", "5", "4", "\"isMeta\":true,", "\"continue\""));
    assert_eq!(status(&lines), UnitStatus::Succeeded);
    let call = "[{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"Read\",\"input\":{}}]";
    lines.push(line("assistant", "6", "5", "", call).replace("end_turn", "tool_use"));
    assert_eq!(status(&lines), UnitStatus::Interrupted);
    let again = answer.replace("\"m2\"", "\"m7\"").replace("\"2\"", "\"7\"");
    lines.push(again);
    assert_eq!(status(&lines), UnitStatus::Succeeded);
}

#[test]
fn unreadable_parts_and_both_limits_are_reported() {
    let (dir, path) = scratch();
    let agents = dir.path().join(SESSION).join("subagents");
    for number in 0..1000 {
        fs::write(agents.join(format!("agent-{number}.jsonl")), "").unwrap();
    }
    let journal = agents.join("workflows/wf_acd6e91d-7ec/journal.jsonl");
    fs::rename(&journal, dir.path().join("journal")).unwrap();
    symlink(dir.path().join("journal"), &journal).unwrap();
    for number in 0..100 {
        fs::create_dir(agents.join(format!("workflows/wf_x{number}"))).unwrap();
    }
    let timeline = timeline(&path);
    let text = messages(timeline.view()).join("\n");
    for part in [
        "only 1000 sub-agents are shown",
        "only 100 of 101 workflow runs are shown",
        "journal.jsonl`: ",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn times_begin_with_the_first_line_that_has_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let timed = |uuid: &str, second: u32, side: &str| {
        line(
            "user",
            uuid,
            "",
            &format!("\"timestamp\":\"2026-01-31T23:59:{second}.000Z\",{side}"),
            "\"go\"",
        )
    };
    let long = format!("\"{}\"", "x".repeat(70 << 10));
    let lines = [
        line("user", "1", "", "", &long),
        timed("2", 10, ""),
        timed("3", 40, "\"isSidechain\":true,"),
    ];
    fs::write(&path, lines.concat()).unwrap();
    let timeline = timeline(&path);
    let last = timeline.view().state.last_entry_at.0;
    assert!((30_000..31_000).contains(&last), "{last}");
}

#[test]
fn prompts_above_the_limit_are_marked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let prompts = (0..20).map(|number| {
        line(
            "user",
            &number.to_string(),
            "",
            "",
            &format!("\"prompt {number}\""),
        )
    });
    let answer = line(
        "assistant",
        "a",
        "",
        "",
        "[{\"type\":\"text\",\"text\":\"answer\"}]",
    );
    fs::write(&path, prompts.collect::<String>() + &answer).unwrap();
    let mut timeline = Timeline::new(Box::new(FileSource::open(&path).unwrap()));
    let mut events = String::new();
    while timeline
        .advance(1 << 16, &mut |event| events += &format!("{event:?}\n"))
        .unwrap()
        != PollStatus::End
    {}
    assert_eq!(
        events
            .matches("title: \"prompt: … more prompts before the first answer")
            .count(),
        1,
        "{events}"
    );
}
