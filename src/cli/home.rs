//! The home screen: `ingestdeck` without a command on a terminal. It lists the runs of the project and recent Claude
//! Code sessions, and does what the command of the same name would do with the chosen one.

#![expect(
    clippy::disallowed_methods,
    reason = "whether a directory is a project"
)]

use std::{
    io::{self, BufRead as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use clap::Parser as _;
use jiff::Timestamp;

use tokio::sync::watch;

use super::{
    args::{Cli, CliCommand, GlobalArgs, Ui},
    exit::{CliError, Exit},
    find,
    home_activity::Activity,
    period::age,
    playback_output, project, runs, screen, session_files, settings,
};
use ingestdeck_core::{
    diagnostic::Diagnostic as _,
    run::{
        Timeline,
        outcome::{REVIEWED, column_text},
    },
    text::{self, commands::shell_quote, dollars, dollars_of_sum, pluralize},
};
use ingestdeck_engine::{continued_runs::ContinuedRuns, launch::runtime, recorded_tapes};
use ingestdeck_os::user_dirs;
use ingestdeck_records::{
    replay::{FileSource, SessionFile, SessionStatus, claude_sessions::recent_sessions},
    store::{RunStatus, RunStore, db::IndexedRun},
};
use ingestdeck_tui::{
    self as tui, ExitReason, HomeChoice, HomeContent, HomeLine, HomeRun, HomeRunState, HomeSession,
    HomeSessionState,
};

/// How often the list is compared with what runs.
const ACTIVITY_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of runs and sessions in the list.
const MAX_RUNS: usize = 200;
const MAX_SESSIONS: usize = 30;

/// True if the home screen can be shown, so that a missing command means the home screen.
pub(crate) fn is_available(global: &GlobalArgs) -> bool {
    playback_output::resolve_ui(global.ui) == Ui::Tui
}

/// Shows the home screen, and what the user opens there, until the user quits or a command ends the program.
///
/// # Errors
/// If the terminal cannot be used, or a chosen command fails.
pub(crate) fn home(
    global: &GlobalArgs,
    run: fn(&Cli) -> Result<Exit, CliError>,
) -> Result<Exit, CliError> {
    browse(global, Listing::Home, run)
}

/// Shows the records in `folder`, and the one that the user opens there, until the user quits.
///
/// # Errors
/// If the folder contains no record, or the terminal cannot be used.
pub(super) fn choose_session(
    global: &GlobalArgs,
    folder: &Path,
    run: fn(&Cli) -> Result<Exit, CliError>,
) -> Result<Exit, CliError> {
    browse(global, Listing::Folder(folder.to_owned()), run)
}

/// What the screen lists.
#[derive(Clone, Debug)]
enum Listing {
    /// The runs and sessions of the project.
    Home,
    /// The records in a directory.
    Folder(PathBuf),
}

impl Listing {
    /// What the screen lists, and what could not be read.
    fn collect(&self, global: &GlobalArgs) -> Result<(HomeContent, Vec<String>), CliError> {
        match self {
            Self::Home => collect(global),
            Self::Folder(folder) => collect_sessions(folder),
        }
    }

    /// What runs now. The list of a directory does not follow it.
    fn activity(&self, global: &GlobalArgs) -> Activity {
        match self {
            Self::Home => Activity::in_project(global),
            Self::Folder(_) => Activity::default(),
        }
    }
}

/// Lists the content again as what runs changes. Returns once nothing runs or the screen is closed.
async fn follow_activity(
    global: GlobalArgs,
    listing: Listing,
    mut known: Activity,
    shown: watch::Sender<HomeContent>,
) {
    while !known.is_empty() {
        tokio::select! {
            () = shown.closed() => return,
            () = tokio::time::sleep(ACTIVITY_INTERVAL) => {}
        }
        let now = listing.activity(&global);
        if now != known
            && let Ok((content, _)) = listing.collect(&global)
        {
            known = now;
            shown.send_replace(content);
        }
    }
}

fn browse(
    global: &GlobalArgs,
    listing: Listing,
    run: fn(&Cli) -> Result<Exit, CliError>,
) -> Result<Exit, CliError> {
    let (mut selected, mut messages) = (0, Vec::new());
    let mut reopened = None;
    loop {
        // What changes while the list is read is found by the next look.
        let activity = listing.activity(global);
        let (content, problems) = listing.collect(global)?;
        messages.extend(problems);
        let shown = HomeContent {
            selected,
            ..content
        };
        let follow = |shown| follow_activity(global.clone(), listing.clone(), activity, shown);
        let search =
            matches!(listing, Listing::Home).then(|| find::live::start(global, reopened.take()));
        let startup = (std::mem::take(&mut messages), search);
        let (reason, shown) = show(global, shown, startup, follow)?;
        let ExitReason::Chosen(choice) = reason else {
            return Ok(screen::exit_after(&reason, Exit::Ok));
        };
        selected = shown
            .lines
            .iter()
            .position(|line| is_chosen(line, &choice))
            .unwrap_or_default();
        match choice {
            HomeChoice::Moment(moment) => {
                let mut cli = parse(global, &HomeChoice::Moment(moment.clone()))?;
                if let Some(CliCommand::Replay(args)) = &mut cli.command {
                    args.is_from_home = true;
                }
                reopened = Some(Box::new(moment.search));
                match run(&cli) {
                    Ok(exit @ Exit::Signal(_)) => return Ok(exit),
                    Ok(_) => {}
                    Err(failure) if matches!(failure.exit, Exit::Signal(_)) => return Err(failure),
                    Err(failure) => messages.push(failure.to_line()),
                }
            }
            // A record that cannot be shown does not end the program.
            HomeChoice::Replay(_)
            | HomeChoice::Watch(_)
            | HomeChoice::File(_)
            | HomeChoice::StopSession(_) => match run(&parse(global, &choice)?) {
                Ok(exit @ Exit::Signal(_)) => return Ok(exit),
                Ok(_) => {
                    if let HomeChoice::StopSession(id) = &choice {
                        messages.push(format!("background session {id} was stopped"));
                    }
                }
                Err(failure) if matches!(failure.exit, Exit::Signal(_)) => return Err(failure),
                Err(failure) => messages.push(failure.to_line()),
            },
            // Another process may have started a run since the list was read.
            HomeChoice::Resume(_) | HomeChoice::Start | HomeChoice::RunUnits { .. }
                if runs::find_active(global)?.is_some() =>
            {
                messages.push(
                    "a run of this project is active now; open it, or stop it first".to_owned(),
                );
            }
            HomeChoice::Diff(..) => match run(&parse(global, &choice)?) {
                Ok(exit) => {
                    playback_output::print_stderr("press Enter for the list of runs");
                    let mut line = String::new();
                    // Without an input, the text is all that is shown.
                    if io::stdin().lock().read_line(&mut line).unwrap_or(0) == 0 {
                        return Ok(exit);
                    }
                }
                Err(failure) => messages.push(failure.to_line()),
            },
            HomeChoice::Demo
            | HomeChoice::Init
            | HomeChoice::Resume(_)
            | HomeChoice::Start
            | HomeChoice::RunUnits { .. } => {
                return run(&parse(global, &choice)?);
            }
        }
    }
}

/// Starts the run that the user chose in the replay of another one.
///
/// # Errors
/// If another run of the project is active, or the run cannot be started.
pub(super) fn start_chosen(
    global: &GlobalArgs,
    choice: &HomeChoice,
    run: fn(&Cli) -> Result<Exit, CliError>,
) -> Result<Exit, CliError> {
    // The feedback was typed for this run.
    let command: Vec<String> = run_units_args(choice)
        .iter()
        .map(|word| shell_quote(word))
        .collect();
    let keep = |failure: CliError| {
        if matches!(
            choice,
            HomeChoice::RunUnits {
                feedback: Some(_),
                ..
            }
        ) && !matches!(failure.exit, Exit::Signal(_))
        {
            playback_output::print_stderr(&format!(
                "ingestdeck: the run was not started; try again with: ingestdeck {}",
                command.join(" ")
            ));
        }
        failure
    };
    if let Some(active) = runs::find_active(global)? {
        let id = active.id.short();
        return Err(keep(CliError::usage(format!("run {id} of this project is active")).with_help(format!(
            "show it with `ingestdeck attach {id}`, or stop it with `ingestdeck ctl stop-all`; then try again"
        ))));
    }
    run(&parse(global, choice)?).map_err(keep)
}

/// The arguments of the command that runs the chosen units; empty for another choice. A value may begin with a hyphen.
fn run_units_args(choice: &HomeChoice) -> Vec<String> {
    let HomeChoice::RunUnits {
        units,
        feedback,
        model,
        step_budget,
        review,
        branch,
    } = choice
    else {
        return Vec::new();
    };
    let turns = step_budget.map(|turns| turns.to_string());
    let options = [
        ("feedback", feedback),
        ("model", model),
        ("step-budget", &turns),
        ("branch", branch),
    ];
    let only = units
        .iter()
        .map(|unit| format!("--only={}", globset::escape(unit)));
    let given = options
        .iter()
        .filter_map(|(option, value)| Some(format!("--{option}={}", value.as_ref()?)));
    let flags = review.then(|| "--review".to_owned());
    ["run", "--full"]
        .into_iter()
        .map(str::to_owned)
        .chain(only)
        .chain(given)
        .chain(flags)
        .collect()
}

/// The arguments of the command that does what was chosen, with the options of this call.
fn parse(global: &GlobalArgs, choice: &HomeChoice) -> Result<Cli, CliError> {
    let (path, given, entry);
    let words: Vec<&str> = match choice {
        HomeChoice::Replay(run) => vec!["replay", run],
        HomeChoice::Moment(moment) => {
            entry = moment.entry.to_string();
            path = match moment.run.is_empty() {
                true => moment.session.to_string_lossy().into_owned(),
                false => moment.run.clone(),
            };
            vec!["replay", "--entry", &entry, "--", &path]
        }
        HomeChoice::Watch(run) => vec!["attach", run],
        HomeChoice::StopSession(id) => vec!["ctl", "--run", id, "stop-all"],
        HomeChoice::File(file) => {
            path = with_home_directory(file);
            vec!["replay", "--", &path]
        }
        HomeChoice::Demo => vec!["demo"],
        HomeChoice::Init => vec!["init"],
        HomeChoice::Diff(earlier, later) => vec!["diff", earlier, later],
        HomeChoice::Resume(run) => vec!["run", "--resume-run", run],
        HomeChoice::Start => vec!["run"],
        HomeChoice::RunUnits { .. } => {
            given = run_units_args(choice);
            given.iter().map(String::as_str).collect()
        }
    };
    let parsed = Cli::try_parse_from(std::iter::once("ingestdeck").chain(words.iter().copied()));
    let parsed = parsed.map_err(|error| CliError::usage(error.to_string()))?;
    // The text of a diff is the same with and without a screen.
    let ui = if matches!(choice, HomeChoice::Diff(..)) {
        Ui::Auto
    } else {
        global.ui
    };
    let words = global
        .option_words()
        .into_iter()
        .chain(words.iter().map(Into::into))
        .collect();
    Ok(Cli {
        global: GlobalArgs {
            ui,
            words,
            ..global.clone()
        },
        ..parsed
    })
}

/// The path, with the directory of the user in place of `~`, as a shell does it.
fn with_home_directory(path: &Path) -> String {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let below_home = home.zip(path.strip_prefix("~").ok());
    let path = below_home.map_or_else(|| path.to_owned(), |(home, rest)| home.join(rest));
    path.to_string_lossy().into_owned()
}

fn is_chosen(line: &HomeLine, choice: &HomeChoice) -> bool {
    match (line, choice) {
        (
            HomeLine::Run(run),
            HomeChoice::Replay(id) | HomeChoice::Watch(id) | HomeChoice::Diff(_, id),
        ) => run.id == *id,
        (HomeLine::Session(session), HomeChoice::File(path)) => session.path == *path,
        (HomeLine::Run(run), HomeChoice::Moment(moment)) => run.id == moment.run,
        (HomeLine::Session(session), HomeChoice::Moment(moment)) => session.path == moment.session,
        (HomeLine::Session(session), HomeChoice::Watch(id) | HomeChoice::StopSession(id)) => {
            session.background.as_ref() == Some(id)
        }
        _ => false,
    }
}

/// Shows the screen until it closes. Returns the reason, and the content at that moment.
fn show<F: Future<Output = ()> + Send + 'static>(
    global: &GlobalArgs,
    content: HomeContent,
    (messages, search): (Vec<String>, Option<tui::RecordSearchChannel>),
    follow: impl FnOnce(watch::Sender<HomeContent>) -> F,
) -> Result<(ExitReason, HomeContent), CliError> {
    let config = settings::load(global)?;
    let mut options = settings::screen_options(global, &config)?;
    options.startup_messages = messages;
    let (sender, shown) = watch::channel(content);
    options.first_page = tui::FirstPage::Home(tui::HomeSources {
        content: shown.clone(),
        search,
    });
    // The screen always has a record; this one is empty.
    let timeline = Timeline::new(Box::new(FileSource::open(Path::new("/dev/null"))?));
    let runtime = runtime(1)?;
    let following = follow(sender);
    let left = runtime.block_on(async {
        let following = tokio::spawn(following);
        let left = tui::run(timeline, None, options).await;
        following.abort();
        left
    });
    // The reader of a closed terminal may block forever.
    runtime.shutdown_background();
    let content = shown.borrow().clone();
    left.map(|left| (left.reason, content))
        .map_err(|error| screen::terminal_error(&error))
}

/// What the home screen lists, and what could not be read.
fn collect(global: &GlobalArgs) -> Result<(HomeContent, Vec<String>), CliError> {
    let directory = project::resolve_directory(global)?;
    let directory = directory.canonicalize().unwrap_or(directory);
    let store = runs::resolve_store(global)?;
    let is_project = directory.join("ktx.yaml").is_file();
    let name = directory
        .file_name()
        .map_or_else(|| "/".into(), |name| name.to_string_lossy());
    let mut content = HomeContent {
        name: text::printable(&name, 60).into_owned(),
        path: text::printable(&directory.to_string_lossy(), 300).into_owned(),
        is_project,
        ..HomeContent::default()
    };
    let now = Timestamp::now();
    let mut problems = Vec::new();
    let listed = list_runs(&store, now, &mut problems)?;
    let (active, ended): (Vec<_>, Vec<_>) = listed
        .iter()
        .partition(|run| run.state == HomeRunState::Active);
    let mut add = |heading: &str, lines: Vec<HomeLine>| {
        if !content.lines.is_empty() {
            content.lines.push(HomeLine::Text(String::new()));
        }
        content.lines.push(HomeLine::Heading(heading.to_owned()));
        content.lines.extend(lines);
    };
    let lines = |runs: &[&HomeRun]| {
        runs.iter()
            .map(|run| HomeLine::Run((*run).clone()))
            .collect::<Vec<_>>()
    };
    let (running, sessions): (Vec<_>, Vec<_>) = sessions(&directory, now)
        .into_iter()
        .partition(|line| matches!(line, HomeLine::Session(session) if session.state.is_some()));
    if !active.is_empty() || !running.is_empty() {
        add(
            "active",
            lines(&active).into_iter().chain(running).collect(),
        );
    }
    let mut rest = lines(&ended[..ended.len().min(MAX_RUNS)]);
    let unlisted_runs = ended.len().saturating_sub(MAX_RUNS);
    if unlisted_runs > 0 {
        rest.push(HomeLine::Text(format!(
            "{unlisted_runs} more: ingestdeck runs list"
        )));
    }
    if rest.is_empty() {
        let help = match (is_project, active.is_empty()) {
            (true, true) => "no runs yet",
            (true, false) => "no other runs",
            (false, _) => "no ktx.yaml here, and no runs",
        };
        rest.push(HomeLine::Text(help.to_owned()));
    }
    if listed.is_empty() {
        let demo = "ingestdeck demo    runs a bundled project with a scripted agent";
        rest.push(HomeLine::Command(HomeChoice::Demo, demo.to_owned()));
    }
    if listed.is_empty() && !is_project {
        let init = "ingestdeck init    writes a first ktx.yaml for the sources in this directory";
        rest.push(HomeLine::Command(HomeChoice::Init, init.to_owned()));
    }
    add("runs", rest);
    content.unlisted_runs = unlisted_runs;
    if !sessions.is_empty() {
        add("Claude Code sessions in this directory", sessions);
    }
    Ok((content, problems))
}

/// The runs of the store, newest first.
fn list_runs(
    store: &RunStore,
    now: Timestamp,
    problems: &mut Vec<String>,
) -> Result<Vec<HomeRun>, CliError> {
    let found = store.list()?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let (indexed, continued) = match recorded_tapes::open_updated_index(store) {
        Ok((db, unreadable)) => {
            problems.extend(unreadable);
            (
                db.list().unwrap_or_default(),
                ContinuedRuns::from_index(&db, store.project()).unwrap_or_default(),
            )
        }
        Err(error) => {
            problems.push(error.to_string());
            Default::default()
        }
    };
    let mut listed = Vec::new();
    for run in &found {
        match store.status(run) {
            Ok(status) => {
                let known = indexed.iter().find(|known| known.id == run.id);
                let started =
                    SystemTime::UNIX_EPOCH + Duration::from_millis(run.id.started_at_ms());
                listed.push(HomeRun {
                    id: run.id.to_string(),
                    short: run.id.short(),
                    age: age(now, started),
                    ..home_run(status, known, continued.reviewed_by(run.id).is_some())
                });
            }
            // One unreadable run must not hide the others.
            Err(error) => problems.push(format!("run {}: {error}", run.id.short())),
        }
    }
    Ok(listed)
}

/// The columns that depend on the index: a run that is not in it has no counts.
fn home_run(status: RunStatus, known: Option<&IndexedRun>, is_reviewed: bool) -> HomeRun {
    let outcome = known.and_then(|known| known.outcome.as_deref());
    let outcome = if is_reviewed { Some(REVIEWED) } else { outcome };
    let is_done =
        |known: &IndexedRun| (is_reviewed || outcome == Some("done")) && known.failed == 0;
    let state = match status {
        RunStatus::Running => HomeRunState::Active,
        RunStatus::Interrupted => HomeRunState::Interrupted,
        RunStatus::Finished => match known {
            None => HomeRunState::Unknown,
            Some(known) if is_done(known) && known.budget == 0 => HomeRunState::Succeeded,
            Some(known) if is_done(known) => HomeRunState::OutOfBudget,
            Some(known) if known.failed == 0 => HomeRunState::Stopped,
            Some(_) => HomeRunState::Incomplete,
        },
    };
    let word = outcome
        .filter(|_| status == RunStatus::Finished)
        .unwrap_or(status.as_str());
    let units = known.map(|known| {
        let parts = [
            (known.failed, "failed"),
            (known.budget, "out of budget"),
            (known.reused, "reused"),
        ];
        let parts = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!(", {count} {word}"));
        format!(
            "{}/{} done{}",
            known.succeeded,
            known.units,
            parts.collect::<String>()
        )
    });
    HomeRun {
        id: String::new(),
        short: String::new(),
        state,
        outcome: text::printable(column_text(word), 11).into_owned(),
        age: String::new(),
        units: units.unwrap_or_else(|| "?".to_owned()),
        cost: dollars_of_sum(
            known.and_then(|known| known.cost_usd),
            known.is_some_and(|known| known.is_cost_partial),
        ),
        is_scripted: known.is_some_and(|known| known.scripted),
    }
}

/// The newest sessions of Claude Code in this directory.
fn sessions(directory: &Path, now: Timestamp) -> Vec<HomeLine> {
    let Some(claude) = user_dirs::claude_dir() else {
        return Vec::new();
    };
    let found = recent_sessions(&claude, directory, MAX_SESSIONS);
    let folder = found
        .files
        .first()
        .and_then(|file| file.path.parent())
        .map(Path::to_owned);
    let mut lines: Vec<_> = found
        .files
        .iter()
        .map(|file| HomeLine::Session(home_session(file, now)))
        .collect();
    if let (Some(folder), 1..) = (folder, found.omitted) {
        let folder = text::printable(&folder.to_string_lossy(), 300).into_owned();
        lines.push(HomeLine::Text(format!(
            "{} more: ingestdeck replay {folder}",
            found.omitted
        )));
    }
    lines
}

fn home_session(file: &SessionFile, now: Timestamp) -> HomeSession {
    let needs = file
        .active
        .as_ref()
        .and_then(|active| active.needs.as_deref());
    let needs = needs.map(|needs| text::printable(&text::one_row(needs, 200), 200).into_owned());
    HomeSession {
        title: session_files::title(file, 200),
        age: match &file.active {
            Some(active) => active.status.label().to_owned(),
            None => age(now, file.modified),
        },
        size: text::size(file.bytes),
        cost: dollars(file.cost_usd),
        state: match &file.active {
            Some(active) => Some(match active.status {
                SessionStatus::Running => HomeSessionState::Running,
                SessionStatus::Idle => HomeSessionState::Idle,
                SessionStatus::Waiting => HomeSessionState::NeedsYou,
            }),
            None => file.has_failed.then_some(HomeSessionState::Failed),
        },
        needs: needs.unwrap_or_default(),
        background: file
            .active
            .as_ref()
            .and_then(|active| active.background.clone()),
        path: file.path.clone(),
    }
}

/// The list of the records in `folder`.
fn collect_sessions(folder: &Path) -> Result<(HomeContent, Vec<String>), CliError> {
    let list = session_files::list_directory(folder)?;
    let path = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let name = path
        .file_name()
        .map_or_else(|| "/".into(), |name| name.to_string_lossy());
    let now = Timestamp::now();
    let is_sessions_only = list.files.iter().all(SessionFile::is_session);
    let record_word = match is_sessions_only {
        true => "Claude Code session",
        false => "record",
    };
    let mut lines = vec![HomeLine::Heading(format!("{record_word}s, newest first"))];
    lines.extend(list.files.iter().map(|file| {
        let mut session = home_session(file, now);
        if !file.is_session() {
            let name = file.path.file_name().unwrap_or(file.path.as_os_str());
            let name = text::printable(&name.to_string_lossy(), 60).into_owned();
            session.title = format!("{name}  {}", session.title);
        }
        HomeLine::Session(session)
    }));
    if list.omitted > 0 {
        lines.push(HomeLine::Text(
            pluralize(list.omitted, "older record") + " left out",
        ));
    }
    if !list.left_out.is_empty() {
        let count = list.left_out.len();
        lines.push(HomeLine::Text(String::new()));
        lines.push(HomeLine::Heading(format!("{count} left out")));
        lines.extend(list.left_out.iter().map(|file| HomeLine::LeftOut {
            path: file.path.clone(),
            reason: session_files::left_out(file),
        }));
    }
    let content = HomeContent {
        name: text::printable(&name, 60).into_owned(),
        path: text::printable(&path.to_string_lossy(), 300).into_owned(),
        lines,
        record_word: Some(record_word),
        ..HomeContent::default()
    };
    Ok((content, Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_runs_have_the_sign_of_their_outcome() {
        for (outcome, budget, failed, expected) in [
            ("waiting_approval", 0, 0, HomeRunState::Stopped),
            ("reviewed", 0, 0, HomeRunState::Succeeded),
            ("reviewed", 1, 0, HomeRunState::OutOfBudget),
            ("reviewed", 0, 1, HomeRunState::Incomplete),
            ("done", 0, 0, HomeRunState::Succeeded),
            ("done", 1, 0, HomeRunState::OutOfBudget),
            ("partial", 1, 1, HomeRunState::Incomplete),
            ("stopped", 0, 0, HomeRunState::Stopped),
            ("stopped", 0, 1, HomeRunState::Incomplete),
            ("limit", 1, 0, HomeRunState::Stopped),
            ("error", 0, 2, HomeRunState::Incomplete),
        ] {
            let known = IndexedRun {
                id: ingestdeck_core::tape::RunId(uuid::Uuid::nil()),
                started_at: String::new(),
                project: None,
                scripted: false,
                // The record of a run whose review a later one finished states that it waits.
                outcome: Some(outcome.replace(REVIEWED, "waiting_approval")),
                duration_ms: 0,
                units: 2,
                succeeded: 0,
                budget,
                reused: 0,
                failed,
                cost_usd: None,
                is_cost_partial: false,
                is_active: false,
                tape_bytes: 0,
            };
            let shown = home_run(RunStatus::Finished, Some(&known), outcome == REVIEWED);
            assert_eq!(shown.state, expected, "{outcome}, {budget}, {failed}");
            assert_eq!(shown.outcome, column_text(outcome));
        }
    }

    #[test]
    fn new_run_of_units_has_the_options_of_the_earlier_one() {
        let global = Cli::try_parse_from(["ingestdeck"]).unwrap().global;
        let choice = HomeChoice::RunUnits {
            units: vec!["docs-[a]*".to_owned(), "-odd".to_owned()],
            feedback: Some("- do not use 'lists'".to_owned()),
            model: Some("opus".to_owned()),
            step_budget: Some(60),
            review: true,
            branch: Some("ingest/docs".to_owned()),
        };
        let Some(CliCommand::Run(args)) = parse(&global, &choice).unwrap().command else {
            panic!()
        };
        let patterns = args
            .select
            .only
            .iter()
            .map(|only| globset::Glob::new(only).unwrap().compile_matcher());
        let matched: Vec<bool> = patterns
            .zip(["docs-[a]*", "-odd"])
            .map(|(glob, unit)| glob.is_match(unit))
            .collect();
        assert_eq!(matched, [true, true]);
        assert_eq!(args.feedback.as_deref(), Some("- do not use 'lists'"));
        assert_eq!(
            (args.attempt.model.as_deref(), args.attempt.step_budget),
            (Some("opus"), Some(60))
        );
        assert_eq!(
            (args.review, args.branch.as_deref(), args.select.full),
            (true, Some("ingest/docs"), true)
        );
    }

    #[test]
    fn choices_are_commands_with_the_given_options() {
        let global = Cli::try_parse_from(["ingestdeck", "--ascii", "--ui", "tui", "demo"])
            .unwrap()
            .global;
        let choices = [
            HomeChoice::Replay("0198".to_owned()),
            HomeChoice::Watch("0198".to_owned()),
            HomeChoice::StopSession("d69b0163".to_owned()),
            HomeChoice::File(PathBuf::from("-odd name.jsonl")),
            HomeChoice::Resume("0198".to_owned()),
            HomeChoice::Start,
            HomeChoice::Demo,
            HomeChoice::Init,
        ];
        for choice in &choices {
            let cli = parse(&global, choice).unwrap();
            assert!(cli.global.ascii && cli.global.ui == Ui::Tui, "{choice:?}");
            let is_right = match (&cli.command, choice) {
                (Some(CliCommand::Replay(args)), HomeChoice::Replay(run)) => args.what == *run,
                (Some(CliCommand::Replay(args)), HomeChoice::File(path)) => {
                    Path::new(&args.what) == path
                }
                (Some(CliCommand::Attach(args)), HomeChoice::Watch(run)) => {
                    args.run.as_ref() == Some(run)
                }
                (Some(CliCommand::Ctl(args)), HomeChoice::StopSession(id)) => {
                    args.run.as_ref() == Some(id)
                }
                (Some(CliCommand::Run(args)), HomeChoice::Resume(run)) => {
                    args.select.resume.resume_run.as_deref() == Some(run)
                }
                (Some(CliCommand::Run(args)), HomeChoice::Start) => {
                    args.select.resume.resume_run.is_none()
                }
                (Some(CliCommand::Demo(_)), HomeChoice::Demo)
                | (Some(CliCommand::Init(_)), HomeChoice::Init) => true,
                _ => false,
            };
            assert!(is_right, "{choice:?}");
        }
        let diff = parse(&global, &HomeChoice::Diff("1".to_owned(), "2".to_owned())).unwrap();
        assert!(diff.global.ui == Ui::Auto && matches!(diff.command, Some(CliCommand::Diff(_))));
    }
}
