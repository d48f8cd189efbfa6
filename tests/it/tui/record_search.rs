//! The search of all runs and sessions on the home screen.

use std::{fs, path::Path};

use ingestdeck_core::run::Timeline;
use ingestdeck_records::replay::FileSource;
use ingestdeck_tui::{
    ChosenMoment, ExitReason, FirstPage, HomeChoice, HomeSources, OpenSearch, RecordMatch,
    RecordMatches, RecordSearchChannel, TuiExit,
};
use tokio::sync::{mpsc, watch};

use super::{
    home,
    pty_session::PtySession,
    screens::SIZES,
    scripted_host::{ScriptedHost, options, play},
};

/// Matches in two runs and a session, with hostile texts.
fn found(query: &str) -> RecordMatches {
    let row = |short: &str, unit: &str, kind: &str, tool: &str, text: &str| RecordMatch {
        run: format!("0198-{short}"),
        entry: 25,
        short: short.to_owned(),
        unit: unit.to_owned(),
        kind: kind.to_owned(),
        tool: tool.to_owned(),
        has_failed: text.contains("no such"),
        age: "2h ago".to_owned(),
        text: text.to_owned(),
        ..RecordMatch::default()
    };
    let session = RecordMatch {
        run: String::new(),
        session: "/home/dev/.claude/projects/-home-dev-orbit/d69b0163.jsonl".into(),
        ..row(
            "d69b0163",
            "session",
            "prompt",
            "",
            "再計算 how do orders reach the mart",
        )
    };
    let long = format!("…{} orders {}…", "before ".repeat(8), "after ".repeat(18));
    RecordMatches {
        query: query.to_owned(),
        texts: vec!["orders".to_owned()],
        rows: vec![
            row(
                "841906",
                "docs-growers #1",
                "call",
                "wiki_write",
                "wiki/orders.md",
            ),
            row(
                "841906",
                "docs-growers #1",
                "result",
                "query",
                "no such table: orders",
            ),
            session,
            row(
                "556478",
                "dbt-models-staging-and-a-very-long-name #12",
                "answer",
                "",
                &long,
            ),
            row(
                "556478",
                "",
                "note",
                "",
                "\u{1b}[31morders\u{7} of \u{202e}units",
            ),
        ],
        has_more: false,
        progress: String::new(),
        problem: String::new(),
        left_out: vec![
            "index full, oldest 3 runs and sessions not searched (raise find.max_index_mb)"
                .to_owned(),
        ],
    }
}

/// The screen after `keys`, and how it was left. `answer` is known before the first key; the texts that were searched are
/// returned, too.
fn search(
    reopened: Option<RecordMatches>,
    answer: Option<RecordMatches>,
    keys: &str,
    size: (u16, u16),
) -> (ScriptedHost, TuiExit, Vec<String>) {
    let timeline = Timeline::new(Box::new(FileSource::open(Path::new("/dev/null")).unwrap()));
    let (queries, mut received) = mpsc::unbounded_channel();
    let (shown, found) = watch::channel(RecordMatches::default());
    answer
        .into_iter()
        .for_each(|answer| shown.send(answer).unwrap());
    let mut options = options();
    options.first_page = FirstPage::Home(HomeSources {
        content: watch::channel(home::content()).1,
        search: Some(RecordSearchChannel {
            queries,
            found,
            reopened: reopened.map(|found| Box::new(OpenSearch { found, selected: 1 })),
        }),
    });
    let (script, exit) = play(timeline, None, options, ScriptedHost::new(keys, size));
    let mut searched = Vec::new();
    while let Ok(text) = received.try_recv() {
        searched.push(text);
    }
    (script, exit, searched)
}

#[test]
fn found_entries_are_rendered_at_every_size() {
    for size in SIZES {
        let name = format!("record_search_{}x{}", size.0, size.1);
        let screen = search(Some(found("orders")), None, "", size).0.text();
        insta::assert_snapshot!(name, screen);
    }
    let text = |reopened: Option<RecordMatches>, keys: &str| {
        search(reopened, None, keys, (80, 24)).0.text()
    };
    insta::assert_snapshot!("record_search_empty_text", text(None, "/"));
    let nothing = RecordMatches {
        rows: Vec::new(),
        left_out: Vec::new(),
        ..found("orders")
    };
    insta::assert_snapshot!("record_search_nothing", text(Some(nothing.clone()), ""));
    let problem = "cannot use text.sqlite: disk I/O error (delete .ktx/ingestdeck/text.sqlite; the next search makes it again)";
    let unusable = RecordMatches {
        problem: problem.to_owned(),
        ..nothing.clone()
    };
    insta::assert_snapshot!("record_search_problem", text(Some(unusable), ""));
    let indexing = RecordMatches {
        progress: "indexing 12 of 40 runs and sessions".to_owned(),
        ..nothing
    };
    let screen = text(Some(indexing), "");
    assert!(
        screen.contains("indexing 12 of 40 runs and sessions"),
        "{screen}"
    );
    assert!(
        screen.contains("searching") && !screen.contains("nothing contains"),
        "{screen}"
    );
}

/// Each text is searched as it is typed, and the answer to the last one can be opened.
#[test]
fn typed_text_is_searched_and_a_match_opened() {
    let (_, exit, searched) = search(None, Some(found("ord")), "/ord", (80, 24));
    assert_eq!(
        (exit.reason, searched),
        (
            ExitReason::Closed,
            ["o", "or", "ord"].map(str::to_owned).to_vec()
        )
    );
    let opened = |keys: &str| match search(Some(found("orders")), None, keys, (120, 36))
        .1
        .reason
    {
        ExitReason::Chosen(HomeChoice::Moment(moment)) => *moment,
        reason => panic!("{reason:?}"),
    };
    let ChosenMoment {
        run, entry, search, ..
    } = opened("<enter>");
    assert_eq!(
        (run.as_str(), entry, search.selected),
        ("0198-841906", 25, 1)
    );
    // What is found later can be looked through while the text is typed.
    let ChosenMoment {
        run,
        session,
        search,
        ..
    } = opened("/<down><enter>");
    assert_eq!(
        (run.as_str(), search.selected, search.found),
        ("", 2, found("orders"))
    );
    assert!(session.ends_with("d69b0163.jsonl"), "{session:?}");
    assert_eq!(opened("G<enter>").search.selected, 4);
}

#[test]
fn steps_back_lead_from_the_text_to_the_list() {
    let screen = |keys: &str| search(Some(found("orders")), None, keys, (80, 24)).0.text();
    assert!(screen("/").contains("find: orders"), "{}", screen("/"));
    let list = screen("/<esc>");
    assert!(
        !list.contains("find: ") && list.contains("5 entries"),
        "{list}"
    );
    let home = screen("<esc>");
    assert!(home.contains("┤ home") || home.contains(" home"), "{home}");
    assert!(!home.contains("5 entries"), "{home}");
    // Rows of another text are not opened.
    let (_, exit, searched) = search(Some(found("orders")), None, "/x<enter>", (80, 24));
    assert_eq!(
        (exit.reason, searched),
        (
            ExitReason::Closed,
            ["orders", "ordersx"].map(str::to_owned).to_vec()
        )
    );
}

/// A project with a recorded run, and a session of it.
fn recorded(dir: &Path) -> (String, String) {
    let (orbit, claude) = (dir.join("orbit"), dir.join("claude"));
    fs::create_dir(&orbit).unwrap();
    let orbit = orbit.canonicalize().unwrap();
    home::project(&orbit);
    let name: String = orbit
        .to_str()
        .unwrap()
        .replace(|char: char| !char.is_ascii_alphanumeric(), "-");
    let sessions = claude.join("projects").join(name);
    fs::create_dir_all(&sessions).unwrap();
    let prompt = r#"{"type":"user","sessionId":"s","timestamp":"2026-11-01T10:00:00Z","message":{"role":"user","content":"Explain zanzibar refunds"}}"#;
    fs::write(sessions.join("s.jsonl"), format!("{prompt}\n")).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    (text(&orbit), text(&claude))
}

#[test]
fn found_moments_open_and_return_to_the_results() {
    let dir = tempfile::tempdir().unwrap();
    let (orbit, claude) = recorded(dir.path());
    let variables = [("CLAUDE_CONFIG_DIR", claude.as_str())];
    let mut session = PtySession::with(&["--project-dir", &orbit], &variables);
    session.shows("1 run");
    session.press("/zanzi");
    session.shows("1 entry");
    session.shows("Explain zanzibar refunds");
    session.press("\r");
    session.shows("session file");
    // From the moment to the units of the session, and from there to the results.
    session.press("\u{1b}");
    session.shows("Enter inspect");
    session.press("\u{1b}");
    session.shows("1 entry");
    session.press("/\u{15}wiki_write");
    session.shows("wiki_write");
    session.shows("entries");
    session.press("\r");
    session.shows("harbor");
    // Leaving the replay returns, too.
    session.press("q");
    session.shows("find wiki_write");
    session.press("\u{1b}");
    session.shows("home");
    session.press("q");
    assert_eq!(session.end(), 0);
}
