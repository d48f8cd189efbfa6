//! The search of the home screen: a thread that searches for each text as it is typed, and reads records meanwhile that are not
//! searched yet.

use std::{
    thread,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use tokio::sync::{mpsc, watch};

use super::{
    super::{args::GlobalArgs, exit::CliError, period::age, project},
    FindQuery, FindTerms, FoundMoment, RecordFinder, short_name,
};
use ingestdeck_core::{diagnostic::Diagnostic as _, text, units::failure_tally::bare_name};
use ingestdeck_records::store::text_record::TextRecord;
use ingestdeck_report::redact::Redactor;
use ingestdeck_tui::{OpenSearch, RecordMatch, RecordMatches, RecordSearchChannel};

/// Maximum number of rows.
const MAX_ROWS: usize = 500;
/// How often rows are shown while more are found.
const SHOW_INTERVAL: Duration = Duration::from_millis(60);
/// How long records are read before the text is searched in them.
const READ_TIME: Duration = Duration::from_secs(2);
/// After this time, records may have changed.
const FRESH_TIME: Duration = Duration::from_secs(10);
/// Characters from which a word that is being typed finds the words that begin with it.
const MIN_PREFIX: usize = 3;

/// Starts the thread. It ends with the screen.
pub(crate) fn start(global: &GlobalArgs, reopened: Option<Box<OpenSearch>>) -> RecordSearchChannel {
    let (queries, received) = mpsc::unbounded_channel();
    let (shown, found) = watch::channel(RecordMatches::default());
    let search = LiveSearch {
        global: global.clone(),
        queries: received,
        shown,
        finder: None,
        fresh_since: None,
    };
    // Without a thread, the screen shows that the search has ended.
    let _ = thread::Builder::new()
        .name("find".to_owned())
        .spawn(move || search.run());
    RecordSearchChannel {
        queries,
        found,
        reopened,
    }
}

struct LiveSearch {
    global: GlobalArgs,
    queries: mpsc::UnboundedReceiver<String>,
    shown: watch::Sender<RecordMatches>,
    finder: Option<RecordFinder>,
    /// When all records had been read.
    fresh_since: Option<Instant>,
}

impl LiveSearch {
    fn run(mut self) {
        let mut next = self.queries.blocking_recv();
        while let Some(mut text) = next {
            while let Ok(later) = self.queries.try_recv() {
                text = later;
            }
            if let Err(error) = self.search(&text) {
                // A damaged index is replaced when it is opened.
                self.finder = None;
                self.shown.send_replace(RecordMatches {
                    query: text,
                    problem: error.to_line(),
                    ..RecordMatches::default()
                });
            }
            if self.shown.is_closed() {
                return;
            }
            next = self.queries.blocking_recv();
        }
    }

    /// Searches for one text until everything is searched or another one is typed.
    fn search(&mut self, text: &str) -> Result<(), CliError> {
        let answer = RecordMatches {
            query: text.to_owned(),
            ..RecordMatches::default()
        };
        if text.trim().is_empty() {
            self.shown.send_replace(answer);
            return Ok(());
        }
        // A line is always terms.
        let mut terms: FindTerms = text.parse().unwrap_or_default();
        let is_typed = !text.ends_with([' ', '"', '*']);
        if let Some(last) = terms.texts.last_mut().filter(|_| is_typed)
            && last
                .chars()
                .rev()
                .take_while(|char| char.is_alphanumeric() || *char == '_')
                .count()
                >= MIN_PREFIX
        {
            last.push('*');
        }
        let mut is_fresh = self
            .fresh_since
            .is_some_and(|since| since.elapsed() < FRESH_TIME);
        // Settings and sessions may have changed as well.
        if self.finder.is_none() || !is_fresh {
            self.finder = RecordFinder::open(&self.global)?;
        }
        let Some(finder) = &mut self.finder else {
            self.shown.send_replace(RecordMatches {
                problem: "no runs yet; `ingestdeck run` records one".to_owned(),
                ..answer
            });
            return Ok(());
        };
        let answer = RecordMatches {
            texts: terms.plain_texts().map(str::to_owned).collect(),
            ..answer
        };
        let query = match FindQuery::new(&finder.store, &terms) {
            Ok(query) => query,
            Err(error) => {
                // A filter may be incomplete.
                let problem = error
                    .to_line()
                    .replace("--since", "since:")
                    .replace("--until", "until:");
                self.shown.send_replace(RecordMatches { problem, ..answer });
                return Ok(());
            }
        };
        let mut redactor =
            Redactor::for_process(project::resolve_directory(&self.global).ok().as_deref());
        let (queries, shown) = (&self.queries, &self.shown);
        let is_over = || !queries.is_empty() || shown.is_closed();
        let mut progress = match is_fresh {
            true => "searching".to_owned(),
            false => "looking for new runs".to_owned(),
        };
        loop {
            let mut found = RecordMatches {
                progress: progress.clone(),
                ..answer.clone()
            };
            let mut last_shown = None::<Instant>;
            let now = Timestamp::now();
            let problems = finder.find(&query, &is_over, &mut |moment| {
                if found.rows.len() >= MAX_ROWS {
                    found.has_more = true;
                    return false;
                }
                found.rows.push(to_match(&moment, now, &mut redactor));
                if last_shown.is_none_or(|last| last.elapsed() >= SHOW_INTERVAL) {
                    last_shown = Some(Instant::now());
                    shown.send_replace(found.clone());
                }
                true
            })?;
            if is_over() {
                return Ok(());
            }
            let left_out = finder.left_out()?;
            // Before they were looked for, they are not left out.
            let waiting =
                left_out.waiting_problem("they are read by another process; search again later");
            let waiting = waiting.filter(|_| is_fresh);
            let problems = problems
                .into_iter()
                .chain(waiting)
                .chain(left_out.problems());
            found.left_out = problems.map(|problem| problem.to_line()).collect();
            if is_fresh {
                found.progress.clear();
            }
            shown.send_replace(found.clone());
            if is_fresh {
                return Ok(());
            }
            let deadline = Instant::now() + READ_TIME;
            finder.refresh(&mut |read, all| {
                progress = format!("indexing {} of {all} runs and sessions", read + 1);
                found.progress.clone_from(&progress);
                shown.send_replace(found.clone());
                Instant::now() < deadline && !is_over()
            })?;
            if is_over() {
                return Ok(());
            }
            // What another process reads now is left to the next text.
            is_fresh = !finder.has_waiting() || Instant::now() < deadline;
            if is_fresh {
                self.fresh_since = Some(Instant::now());
            }
        }
    }
}

fn to_match(moment: &FoundMoment, now: Timestamp, redactor: &mut Redactor) -> RecordMatch {
    let at = moment
        .at
        .and_then(|at| Timestamp::from_millisecond(at).ok());
    let (run, session) = match &moment.record {
        TextRecord::Run(id) => (id.to_string(), Default::default()),
        TextRecord::Session(path) => (String::new(), path.clone()),
    };
    let unit = match (&moment.unit, moment.attempt) {
        (Some(unit), Some(attempt)) => format!("{unit} #{attempt}"),
        _ if run.is_empty() => "session".to_owned(),
        _ => String::new(),
    };
    RecordMatch {
        run,
        session,
        entry: moment.seq.0,
        short: short_name(&moment.record),
        unit: text::printable(&unit, 200).into_owned(),
        kind: moment.kind.trim_start_matches("control_").to_owned(),
        tool: moment
            .tool
            .as_deref()
            .map(bare_name)
            .unwrap_or_default()
            .to_owned(),
        has_failed: moment.has_failed,
        age: at.map(|at| age(now, at.into())).unwrap_or_default(),
        text: redactor.text(&moment.text).to_string(),
    }
}
