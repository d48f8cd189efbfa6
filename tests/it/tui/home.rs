//! The home screen: `ingestdeck` without a command.

use std::{fs, path::Path, process::Stdio};

use ingestdeck_core::run::Timeline;
use ingestdeck_records::replay::FileSource;
use ingestdeck_tui::{
    ExitReason, FirstPage, HomeChoice, HomeContent, HomeLine, HomeRun, HomeRunState, HomeSession,
    HomeSessionState, HomeSources, TuiExit,
};

use super::{
    pty_session::PtySession,
    screens::SIZES,
    scripted_host::{ScriptedHost, options, play},
};

fn run(short: &str, state: HomeRunState, outcome: &str, units: &str) -> HomeLine {
    HomeLine::Run(HomeRun {
        id: format!("0198-{short}"),
        short: short.to_owned(),
        state,
        outcome: outcome.to_owned(),
        age: "2h ago".to_owned(),
        units: units.to_owned(),
        cost: "$1.64".to_owned(),
        is_scripted: false,
    })
}

/// A project with an active run, three earlier ones and two sessions.
pub(super) fn content() -> HomeContent {
    let heading = |text: &str| HomeLine::Heading(text.to_owned());
    let session = |title: &str, size: &str| {
        HomeLine::Session(HomeSession {
            path: Path::new("/home/dev/.claude/projects/-home-dev-orbit").join(size),
            title: title.to_owned(),
            age: "3d ago".to_owned(),
            size: size.to_owned(),
            cost: "$0.20".to_owned(),
            state: title.contains('再').then_some(HomeSessionState::Running),
            needs: String::new(),
            background: None,
        })
    };
    HomeContent {
        name: "orbit".to_owned(),
        path: "/home/dev/orbit".to_owned(),
        is_project: true,
        record_word: None,
        lines: vec![
            heading("active"),
            run("841906", HomeRunState::Active, "running", "3/24 done"),
            heading("runs"),
            run(
                "556478",
                HomeRunState::Incomplete,
                "partial",
                "17/24 done, 7 failed",
            ),
            run(
                "0a11ce",
                HomeRunState::Interrupted,
                "interrupted",
                "3/24 done",
            ),
            run("c0ffee", HomeRunState::Succeeded, "done", "24/24 done"),
            heading("Claude Code sessions in this directory"),
            session(
                "Explain how refunds reach the \u{1b}[31mrevenue mart",
                "35.1 KB",
            ),
            session("再計算 the monthly cohorts", "2.4 MB"),
        ],
        unlisted_runs: 0,
        selected: 0,
    }
}

/// The same project without an active run.
pub(super) fn idle() -> HomeContent {
    HomeContent {
        lines: content().lines.split_off(2),
        ..content()
    }
}

#[test]
fn header_counts_runs_that_have_no_row() {
    let (before, after) = (
        content(),
        HomeContent {
            unlisted_runs: 800,
            ..content()
        },
    );
    let header = |content| {
        home(content, "", (120, 24))
            .0
            .text()
            .lines()
            .nth(1)
            .unwrap()
            .to_owned()
    };
    let runs = |header: String| -> usize {
        let words: Vec<&str> = header.split_whitespace().collect();
        let at = words
            .iter()
            .position(|word| word.starts_with("run"))
            .unwrap();
        words[at - 1].parse().unwrap()
    };
    assert_eq!(runs(header(after)), runs(header(before)) + 800);
}

fn home(content: HomeContent, keys: &str, size: (u16, u16)) -> (ScriptedHost, TuiExit) {
    let timeline = Timeline::new(Box::new(FileSource::open(Path::new("/dev/null")).unwrap()));
    let mut options = options();
    options.first_page = FirstPage::Home(HomeSources {
        content: tokio::sync::watch::channel(content).1,
        search: None,
    });
    play(timeline, None, options, ScriptedHost::new(keys, size))
}

fn choice(keys: &str) -> Option<HomeChoice> {
    choice_of(content(), keys)
}

fn choice_of(content: HomeContent, keys: &str) -> Option<HomeChoice> {
    match home(content, keys, (120, 36)).1.reason {
        ExitReason::Chosen(choice) => Some(choice),
        _ => None,
    }
}

#[test]
fn home_is_rendered_at_every_size() {
    for size in SIZES {
        let name = format!("home_{}x{}", size.0, size.1);
        insta::assert_snapshot!(name, home(content(), "", size).0.text());
    }
    insta::assert_snapshot!("home_resume", home(idle(), "r", (80, 24)).0.text());
    insta::assert_snapshot!("home_compare", home(content(), "j=j", (80, 24)).0.text());
}

#[test]
fn typed_path_is_opened() {
    let path = |keys: &str| match choice(keys) {
        Some(HomeChoice::File(path)) => path.to_str().map(str::to_owned),
        _ => None,
    };
    assert_eq!(
        path("o~/one<space>two.jsonl<space><enter>").as_deref(),
        Some("~/one two.jsonl")
    );
    assert_eq!(path("o<enter>"), None);
    assert_eq!(path("o/tmp<esc>"), None);
    let screen = home(content(), "o/tmp/a", (80, 24)).0.text();
    assert!(screen.contains("file or directory: /tmp/a"), "{screen}");
}

#[test]
fn demo_and_left_out_files_are_opened() {
    let lines = || {
        vec![
            HomeLine::Heading("runs".to_owned()),
            HomeLine::Command(HomeChoice::Demo, "ingestdeck demo".to_owned()),
            HomeLine::Command(HomeChoice::Init, "ingestdeck init".to_owned()),
            HomeLine::Heading("1 left out".to_owned()),
            HomeLine::LeftOut {
                path: "/tmp/README.md".into(),
                reason: "README.md: it contains no line of JSON".to_owned(),
            },
        ]
    };
    let chosen = |keys: &str| {
        let content = HomeContent {
            lines: lines(),
            ..content()
        };
        choice_of(content, keys)
    };
    assert_eq!(chosen("<enter>"), Some(HomeChoice::Demo));
    assert_eq!(chosen("j<enter>"), Some(HomeChoice::Init));
    assert_eq!(
        chosen("jj<enter>"),
        Some(HomeChoice::File("/tmp/README.md".into()))
    );
}

#[test]
fn enter_opens_what_is_selected() {
    assert_eq!(
        choice("<enter>"),
        Some(HomeChoice::Watch("0198-841906".to_owned()))
    );
    assert_eq!(
        choice("j<enter>"),
        Some(HomeChoice::Replay("0198-556478".to_owned()))
    );
    let path = Path::new("/home/dev/.claude/projects/-home-dev-orbit/2.4 MB");
    assert_eq!(choice("G<enter>"), Some(HomeChoice::File(path.to_owned())));
}

#[test]
fn resume_and_start_need_a_yes() {
    let resume = Some(HomeChoice::Resume("0198-556478".to_owned()));
    let chosen = ["r", "rn", "ry"].map(|keys| choice_of(idle(), keys));
    assert_eq!(chosen, [None, None, resume]);
    // A complete run, and one whose outcome is unknown.
    assert_eq!(choice_of(idle(), "jjry"), None);
    let unknown = vec![run("facade", HomeRunState::Unknown, "finished", "?")];
    assert_eq!(
        choice_of(
            HomeContent {
                lines: unknown,
                ..content()
            },
            "ry"
        ),
        None
    );
    assert_eq!(choice_of(idle(), "gny"), Some(HomeChoice::Start));
    assert_eq!(
        choice_of(
            HomeContent {
                is_project: false,
                ..idle()
            },
            "gny"
        ),
        None
    );
    // While a run is active, the units of another one could run twice.
    assert_eq!(
        (choice("ry"), choice("jry"), choice("gny")),
        (None, None, None)
    );
}

#[test]
fn diff_compares_the_earlier_with_the_later_run() {
    let diff = Some(HomeChoice::Diff(
        "0198-0a11ce".to_owned(),
        "0198-c0ffee".to_owned(),
    ));
    assert_eq!((choice("jj=j="), choice("jjj=k=")), (diff.clone(), diff));
    // The same run again, or Esc, takes the mark away.
    assert_eq!((choice("jj=="), choice("jj=<esc>j=")), (None, None));
}

#[test]
fn keys_of_a_run_do_nothing_at_home() {
    for keys in [
        "v", "C", "L", "R", "x", "t", "/", ":", "F", "i", "z", "B", "<space>", "w",
    ] {
        let (script, exit) = home(content(), keys, (120, 36));
        assert_eq!(exit.reason, ExitReason::Closed, "{keys}");
        assert_eq!(
            script.text(),
            home(content(), "", (120, 36)).0.text(),
            "{keys}"
        );
    }
    let help = home(content(), "??", (120, 36)).0.text();
    assert!(help.contains("start a run of the project"), "{help}");
    let header = |text: &str| text.lines().take(2).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        header(&help),
        header(&home(content(), "", (120, 36)).0.text())
    );
    assert_eq!(
        home(content(), "?<esc>", (120, 36)).0.text(),
        home(content(), "", (120, 36)).0.text()
    );
}

/// A session in the background that waits for an answer, and one that is idle.
fn background() -> HomeContent {
    let session = |id: &str, state, age: &str, needs: &str| {
        HomeLine::Session(HomeSession {
            path: Path::new("/home/dev/.claude/projects/-home-dev-orbit").join(id),
            title: "compare the formats".to_owned(),
            age: age.to_owned(),
            size: "101 KB".to_owned(),
            cost: "$?".to_owned(),
            state: Some(state),
            needs: needs.to_owned(),
            background: Some(id.to_owned()),
        })
    };
    HomeContent {
        lines: vec![
            HomeLine::Heading("Claude Code sessions in this directory".to_owned()),
            session(
                "d69b0163",
                HomeSessionState::NeedsYou,
                "needs you",
                "answer: Which format? (Table · List)",
            ),
            session("8892eeb9", HomeSessionState::Idle, "idle", ""),
        ],
        ..content()
    }
}

#[test]
fn background_sessions_are_watched_answered_and_stopped() {
    for size in [(80, 24), (120, 36)] {
        let name = format!("home_background_{}x{}", size.0, size.1);
        insta::assert_snapshot!(name, home(background(), "", size).0.text());
    }
    let id = || "d69b0163".to_owned();
    let path = Path::new("/home/dev/.claude/projects/-home-dev-orbit/d69b0163");
    let chosen = ["<enter>", "m", "x", "xn", "xy"].map(|keys| choice_of(background(), keys));
    assert_eq!(
        chosen,
        [
            Some(HomeChoice::File(path.to_owned())),
            Some(HomeChoice::Watch(id())),
            None,
            None,
            Some(HomeChoice::StopSession(id())),
        ]
    );
}

#[test]
fn home_without_anything_can_be_left() {
    let (script, exit) = home(HomeContent::default(), "j<enter>rkGq", (40, 12));
    assert_eq!(exit.reason, ExitReason::Quit);
    assert!(script.text().contains("0 runs"), "{}", script.text());
    // A message does not cover the counts.
    let lines = vec![
        HomeLine::Heading("runs".to_owned()),
        HomeLine::Text("no runs yet".to_owned()),
    ];
    let text = home(
        HomeContent {
            lines,
            ..HomeContent::default()
        },
        "gn",
        (80, 24),
    )
    .0
    .text();
    assert!(
        text.contains("0 Claude Code sessions") && text.contains("there is no ktx.yaml here"),
        "{text}"
    );
    assert!(!text.contains("Enter open"), "{text}");
}

/// A project with a recorded run and a session.
pub(super) fn project(dir: &Path) {
    let tape = fs::read(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/tapes/harbor.jsonl"
    ))
    .unwrap();
    let header: serde_json::Value =
        serde_json::from_slice(tape.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    let run = dir
        .join(".ktx/ingestdeck/runs")
        .join(header["run"].as_str().unwrap());
    fs::create_dir_all(&run).unwrap();
    fs::write(run.join("tape.jsonl"), tape).unwrap();
    fs::write(dir.join("ktx.yaml"), "connections: {}\n").unwrap();
}

/// The directory of Claude Code in which `text` is the file about the process of a session of `orbit`.
fn write_process(claude: &Path, orbit: &Path, state: &str) {
    let process = serde_json::json!({"pid": std::process::id(), "sessionId": "s", "cwd": orbit, "jobId": "d69b0163"});
    let text = process.to_string().replacen('{', &format!("{{{state},"), 1);
    fs::create_dir_all(claude.join("sessions")).unwrap();
    fs::write(claude.join("sessions/new"), text).unwrap();
    fs::rename(claude.join("sessions/new"), claude.join("sessions/1.json")).unwrap();
}

#[test]
fn home_follows_the_state_of_running_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let (orbit, claude) = (dir.path().join("orbit"), dir.path().join("claude"));
    fs::create_dir(&orbit).unwrap();
    let orbit = orbit.canonicalize().unwrap();
    project(&orbit);
    let name = orbit
        .to_str()
        .unwrap()
        .replace(|char: char| !char.is_ascii_alphanumeric(), "-");
    let sessions = claude.join("projects").join(name);
    fs::create_dir_all(&sessions).unwrap();
    let prompt =
        r#"{"type":"user","sessionId":"s","message":{"role":"user","content":"Explain refunds"}}"#;
    fs::write(sessions.join("s.jsonl"), format!("{prompt}\n")).unwrap();
    write_process(&claude, &orbit, r#""status":"busy""#);
    let variables = [("CLAUDE_CONFIG_DIR", claude.to_str().unwrap())];
    let mut session = PtySession::with(&["--project-dir", orbit.to_str().unwrap()], &variables);
    // What runs comes first.
    session.shows("active");
    session.shows("running  Explain refunds");
    write_process(
        &claude,
        &orbit,
        r#""status":"waiting","waitingFor":"a permission""#,
    );
    session.shows("needs you  a permission  Explain refunds");
    session.shows("1 needs you");
    session.press("q");
    assert_eq!(session.end(), 0);
}

#[test]
fn viewers_return_home() {
    let dir = tempfile::tempdir().unwrap();
    let (orbit, claude) = (dir.path().join("orbit"), dir.path().join("claude"));
    fs::create_dir(&orbit).unwrap();
    let orbit = orbit.canonicalize().unwrap();
    project(&orbit);
    let name: String = orbit
        .to_str()
        .unwrap()
        .replace(|char: char| !char.is_ascii_alphanumeric(), "-");
    let sessions = claude.join("projects").join(name);
    fs::create_dir_all(&sessions).unwrap();
    let capture = fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/captures/ondisk_session.jsonl"
    ))
    .unwrap();
    let prompt =
        r#"{"type":"user","sessionId":"s","message":{"role":"user","content":"Explain refunds"}}"#;
    fs::write(sessions.join("s.jsonl"), format!("{prompt}\n{capture}")).unwrap();
    let variables = [("CLAUDE_CONFIG_DIR", claude.to_str().unwrap())];
    let mut session = PtySession::with(&["--project-dir", orbit.to_str().unwrap()], &variables);
    session.shows("1 Claude Code session");
    session.shows("Explain refunds");
    session.press("\r");
    session.shows("harbor  run");
    session.press("q");
    session.shows("1 Claude Code session");
    session.press("j\r");
    session.shows("session file");
    session.press("q");
    session.shows("1 Claude Code session");
    session.press("q");
    assert_eq!(session.end(), 0);
}

#[test]
fn missing_command_without_a_terminal_prints_help() {
    let output = std::process::Command::new(crate::support::program())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(
        printed.starts_with("Watch, replay and step through")
            && printed.contains("Usage: ingestdeck"),
        "{printed}"
    );
    assert!(output.stdout.is_empty());
    let lines = std::process::Command::new(crate::support::program())
        .args(["--ui", "lines"])
        .output()
        .unwrap();
    assert_eq!(
        (lines.status.code(), lines.stderr),
        (Some(2), printed.into_bytes())
    );
}
