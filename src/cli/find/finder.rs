//! Searches all runs and sessions of a project: the index names entries that contain all words, and each is read in its record
//! and compared, so that everything found is there.

use std::{
    cell::OnceCell,
    collections::{HashMap, HashSet, hash_map::Entry},
    path::PathBuf,
    time::SystemTime,
};

use serde_json::{Value, json};

use super::{
    super::{args::GlobalArgs, exit::CliError, runs, settings},
    query::{FindQuery, FoundMoment},
};
use ingestdeck_core::{
    diagnostic::{Diagnostic as _, Problem},
    run::{EntrySource as _, PollStatus},
    tape::{EntryBody, Seq},
    text::pluralize,
};
use ingestdeck_engine::recorded_tapes;
use ingestdeck_os::{scoped_dir::ScopedDir, user_dirs};
use ingestdeck_records::{
    replay::{FileSource, claude_sessions::session_paths},
    store::{
        Db, RunStore,
        db::{IndexFilter, IndexView},
        text_exclusions::TextExclusions,
        text_index::{TextIndex, UnindexedTexts},
        text_record::TextRecord,
        text_refresh::{SessionPlace, TextRefreshReport, TextScope},
    },
};

/// Bytes of a tape in which entries are looked for together.
const SLICE: usize = 16 << 20;
/// Entries before a result in which its call is looked for.
const MAX_CALL_DISTANCE: u64 = 2_000;

/// The search of one project.
pub(crate) struct RecordFinder {
    pub store: RunStore,
    texts: TextIndex,
    scope: TextScope,
    /// The index over the runs, which has the tools of their calls, once it was needed and if it can be used.
    db: OnceCell<Option<Db>>,
    /// Records that could not be opened when something was found in them.
    gone: HashMap<TextRecord, Problem>,
    report: TextRefreshReport,
    /// Number of sessions beyond those that are searched.
    omitted_sessions: usize,
}

/// What a search leaves out.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftOutRecords {
    /// Runs and sessions that were not read yet, are excluded, or are beyond the maximum number.
    waiting: usize,
    excluded: usize,
    omitted_sessions: usize,
    unreadable: Vec<(TextRecord, String)>,
    unindexed: UnindexedTexts,
}

impl RecordFinder {
    /// Opens the index. `None` if nothing is recorded in the project.
    ///
    /// # Errors
    /// If the settings are invalid, or the index cannot be used.
    pub(crate) fn open(global: &GlobalArgs) -> Result<Option<Self>, CliError> {
        let config = settings::load_quietly(global)?;
        let store = runs::resolve_store(global)?;
        let exclude = &config.find.exclude;
        let exclusions = TextExclusions::parse(exclude).map_err(|cause| {
            CliError::usage(format!("find.exclude: {cause}"))
                .with_location(&exclude.origin)
                .with_help("write patterns such as unit:docs-*, run:019a* and session:*")
        })?;
        let directory = store.project();
        let has_runs = !store.list()?.is_empty();
        // Elsewhere, nothing is written for a search.
        if !has_runs
            && !ScopedDir::open(directory).is_ok_and(|directory| directory.is_file("ktx.yaml"))
        {
            return Ok(None);
        }
        let (mut sessions, omitted_sessions) = user_dirs::claude_dir()
            .map(|claude| session_paths(&claude, directory))
            .unwrap_or_default();
        if has_runs && !sessions.is_empty() {
            // What attempts did is found on their tapes, without what is excluded. Without exclusions, an index that lacks
            // the newest runs is enough.
            let index = match exclusions.has_runs_or_units() {
                true => recorded_tapes::open_updated_index(&store).map(|(db, _)| db)?,
                false => store.open_database().map_err(unusable)?,
            };
            let of_attempts = index.attempt_sessions().map_err(unusable)?;
            let is_of_person = |path: &PathBuf| {
                let id = path.file_stem().and_then(|id| id.to_str());
                !id.is_some_and(|id| of_attempts.contains(id))
            };
            sessions.retain(|(path, _)| is_of_person(path));
        }
        if !has_runs && sessions.is_empty() {
            return Ok(None);
        }
        let sessions = sessions.into_iter().map(|(path, modified)| SessionPlace {
            path,
            modified_ms: since_1970(modified).unsigned_abs(),
        });
        let scope = TextScope {
            exclusions,
            max_bytes: u64::from(*config.find.max_index_mb) << 20,
            sessions: sessions.collect(),
        };
        let texts = store.open_text_index().map_err(unusable)?;
        Ok(Some(Self {
            store,
            texts,
            scope,
            db: OnceCell::new(),
            gone: HashMap::new(),
            report: TextRefreshReport::default(),
            omitted_sessions,
        }))
    }

    /// Reads the words of records that changed. `proceed` receives how many of how many were read, and ends it with false. Returns
    /// how many were read.
    ///
    /// # Errors
    /// If the index cannot be used.
    pub(crate) fn refresh(
        &mut self,
        proceed: &mut dyn FnMut(usize, usize) -> bool,
    ) -> Result<usize, CliError> {
        let report =
            recorded_tapes::refresh_texts(&self.store, &mut self.texts, &self.scope, proceed);
        self.report = report.map_err(|error| match error.help() {
            Some(_) => CliError::from(error),
            None => CliError::from(error).with_help(REMEDY),
        })?;
        Ok(self.report.indexed)
    }

    /// True if records have not been read yet.
    pub(crate) fn has_waiting(&self) -> bool {
        self.report.waiting > 0
    }

    /// What a search leaves out now.
    ///
    /// # Errors
    /// If the index cannot be used.
    pub(crate) fn left_out(&self) -> Result<LeftOutRecords, CliError> {
        Ok(LeftOutRecords {
            waiting: self.report.waiting,
            excluded: self.report.excluded,
            omitted_sessions: self.omitted_sessions,
            unreadable: self.report.unreadable.clone(),
            unindexed: self.texts.unindexed().map_err(unusable)?,
        })
    }

    /// Calls `visit` with each entry that `query` looks for, newest first, until it returns false, and `is_cancelled` in
    /// between. Returns the problems of records that cannot be read.
    ///
    /// # Errors
    /// If the index cannot be used.
    pub(crate) fn find(
        &mut self,
        query: &FindQuery,
        is_cancelled: &dyn Fn() -> bool,
        visit: &mut dyn FnMut(FoundMoment) -> bool,
    ) -> Result<Vec<Problem>, CliError> {
        let known: HashSet<&PathBuf> = self
            .scope
            .sessions
            .iter()
            .map(|session| &session.path)
            .collect();
        let known_problems: Vec<Problem> = self.gone.values().cloned().collect();
        let (mut problems, mut tape) = (known_problems, None::<SearchedTape>);
        let (store, db, scope, gone) = (&self.store, &self.db, &self.scope, &mut self.gone);
        let mut check = |record: TextRecord, seq: Seq| {
            // The database may be from elsewhere, so only the paths of sessions that were listed are opened.
            let is_known = match &record {
                TextRecord::Run(_) => true,
                TextRecord::Session(path) => known.contains(path),
            };
            let is_left_out = scope.exclusions.excludes(&record) || gone.contains_key(&record);
            if !is_known || is_left_out || !query.wants(&record) {
                return true;
            }
            let mut opened = match tape.take() {
                Some(opened) if opened.record == record => opened,
                _ => match SearchedTape::open(store, scope, &record) {
                    Ok(opened) => opened,
                    Err(problem) => {
                        problems.push(problem.clone());
                        gone.insert(record, problem);
                        return true;
                    }
                },
            };
            let read = match query.reaches(opened.modified) {
                true => opened.read(seq, query, &|| {
                    // An index that lacks the newest calls is enough: their tools are also looked for on the tape.
                    let open = || store.open_database().ok();
                    db.get_or_init(open).as_ref()
                }),
                false => Ok(None),
            };
            tape = Some(opened);
            match read {
                Ok(Some(moment)) => visit(moment),
                Ok(None) => true,
                Err(problem) => {
                    problems.push(problem.clone());
                    gone.insert(record, problem);
                    true
                }
            }
        };
        self.texts
            .candidates(&query.words, &mut |candidate| {
                !is_cancelled() && check(candidate.record, candidate.seq)
            })
            .map_err(unusable)?;
        Ok(problems)
    }
}

const REMEDY: &str = "delete .ktx/ingestdeck/text.sqlite; the next search makes it again";

fn unusable(error: ingestdeck_records::store::db::DbError) -> CliError {
    match error.help() {
        Some(_) => CliError::from(error),
        None => CliError::from(error).with_help(REMEDY),
    }
}

/// The time in milliseconds since 1970.
fn since_1970(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let ms = since.unwrap_or_default().as_millis();
    i64::try_from(ms).unwrap_or(i64::MAX)
}

/// What a record is called in messages.
pub(crate) fn record_name(record: &TextRecord) -> String {
    match record {
        TextRecord::Run(id) => format!("run {}", id.short()),
        TextRecord::Session(_) => format!("session {}", short_name(record)),
    }
}

/// The short id of a run or a session.
pub(crate) fn short_name(record: &TextRecord) -> String {
    match record {
        TextRecord::Run(id) => id.short(),
        TextRecord::Session(path) => {
            let id = path.file_stem().unwrap_or_default().to_string_lossy();
            id.chars().take(8).collect()
        }
    }
}

fn records(count: usize) -> String {
    match count {
        1 => "1 run or session".to_owned(),
        count => format!("{count} runs and sessions"),
    }
}

impl LeftOutRecords {
    /// What was not read yet, if anything, with a remedy.
    pub(crate) fn waiting_problem(&self, remedy: &str) -> Option<Problem> {
        let text = format!("{} not searched yet", records(self.waiting));
        (self.waiting > 0).then(|| Problem::new(text).with_help(remedy))
    }

    /// One problem for each other kind of what is left out.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems: Vec<Problem> = Vec::new();
        for (record, cause) in &self.unreadable {
            let text = format!("{} is left out: {cause}", record_name(record));
            problems.push(Problem::new(text));
        }
        let entries = |count: u64| match count {
            1 => "1 entry".to_owned(),
            count => format!("{count} entries"),
        };
        let UnindexedTexts {
            dropped,
            long_entries,
            excluded_entries,
        } = self.unindexed;
        if dropped > 0 {
            let dropped = usize::try_from(dropped).unwrap_or(usize::MAX);
            let text = format!("index full, oldest {} not searched", records(dropped));
            problems.push(Problem::new(text).with_help("raise find.max_index_mb"));
        }
        if self.omitted_sessions > 0 {
            let omitted = pluralize(self.omitted_sessions, "older session");
            problems.push(Problem::new(format!("{omitted} not searched")));
        }
        if self.excluded > 0 {
            let text = format!("{} excluded by find.exclude", records(self.excluded));
            problems.push(Problem::new(text));
        }
        if excluded_entries > 0 {
            let text = format!(
                "{} of units excluded by find.exclude",
                entries(excluded_entries)
            );
            problems.push(Problem::new(text));
        }
        if long_entries > 0 {
            let text = format!(
                "{} of more than 1 MiB searched at the beginning only",
                entries(long_entries)
            );
            problems.push(Problem::new(text));
        }
        problems
    }

    /// The same, as the last object of the output for programs.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "waiting": self.waiting,
            "unreadable": self.unreadable.len(),
            "beyond_size": self.unindexed.dropped,
            "beyond_count": self.omitted_sessions,
            "excluded": self.excluded,
            "excluded_entries": self.unindexed.excluded_entries,
            "long_entries": self.unindexed.long_entries,
        })
    }
}

/// A run or a session in which entries are read.
struct SearchedTape {
    record: TextRecord,
    source: FileSource,
    /// When it was written last, in milliseconds since 1970.
    modified: i64,
    /// The tool of each call, once one was needed.
    tools: Option<HashMap<String, String>>,
    is_scanned: bool,
}

impl SearchedTape {
    fn open(store: &RunStore, scope: &TextScope, record: &TextRecord) -> Result<Self, Problem> {
        let failed =
            |cause: String| Problem::new(format!("{} is left out: {cause}", record_name(record)));
        let (path, file) = match record {
            TextRecord::Run(id) => {
                let run = store.recorded_run(*id);
                let file = recorded_tapes::open_file(store, &run);
                (run.tape, file.map_err(|error| failed(error.to_line()))?)
            }
            TextRecord::Session(path) => {
                let mut sessions = scope.sessions.iter();
                let session = sessions.find(|session| session.path == *path);
                let session = session.ok_or_else(|| failed("it is not a session".to_owned()))?;
                let file = session.open().map_err(|error| failed(error.to_string()))?;
                (path.clone(), file)
            }
        };
        let modified = file.metadata().and_then(|metadata| metadata.modified());
        let modified = since_1970(modified.map_err(|error| failed(error.to_string()))?);
        let source = FileSource::from_file(&path, file);
        let source = source.map_err(|error| failed(Problem::from_error(&error).to_line()))?;
        Ok(Self {
            record: record.clone(),
            source,
            modified,
            tools: None,
            is_scanned: false,
        })
    }

    /// The entry, if it is what the query looks for.
    fn read<'a>(
        &mut self,
        seq: Seq,
        query: &FindQuery,
        db: &dyn Fn() -> Option<&'a Db>,
    ) -> Result<Option<FoundMoment>, Problem> {
        let name = record_name(&self.record);
        let failed = |error: &dyn std::fmt::Display| {
            Problem::new(format!("{name} cannot be read to its end: {error}"))
        };
        if !self.is_scanned {
            while self
                .source
                .scan_ahead(SLICE)
                .map_err(|error| failed(&error))?
                == PollStatus::More
            {}
            self.is_scanned = true;
        }
        let began = self.source.info().started_at.map(|at| at.as_millisecond());
        let record = (&self.record, began);
        let (tools, mut found, mut unknown) = (&self.tools, None, None);
        let read = self.source.read(seq, &mut |entry| {
            found = FoundMoment::new(&entry, record, query, &mut |call| {
                let tool = tools.as_ref().and_then(|tools| tools.get(call)).cloned();
                if tool.is_none() {
                    unknown = Some(call.to_owned());
                    // It may be the one that is looked for.
                    return Some(String::new());
                }
                tool
            });
        });
        read.map_err(|error| failed(&error))?;
        let Some(call) = unknown else {
            return Ok(found);
        };
        let mut tools = match self.tools.take() {
            Some(tools) => tools,
            None => self.indexed_tools(db),
        };
        if let Entry::Vacant(entry) = tools.entry(call.clone()) {
            entry.insert(self.find_tool(&call, seq).unwrap_or_default());
        }
        let (tools, mut found) = (&*self.tools.insert(tools), None);
        let record = (&self.record, began);
        let read = self.source.read(seq, &mut |entry| {
            found = FoundMoment::new(&entry, record, query, &mut |call| {
                let tool = tools.get(call).cloned();
                tool.filter(|tool| !tool.is_empty())
            });
        });
        read.map_err(|error| failed(&error))?;
        Ok(found)
    }

    /// The tools of the calls that the index knows.
    fn indexed_tools<'a>(&self, db: &dyn Fn() -> Option<&'a Db>) -> HashMap<String, String> {
        let mut tools = HashMap::new();
        let TextRecord::Run(run) = &self.record else {
            return tools;
        };
        let Some(db) = db() else {
            return tools;
        };
        let filter = IndexFilter {
            run: Some(*run),
            ..IndexFilter::default()
        };
        // Without them, they are looked for on the tape.
        let _ = db.rows(IndexView::Audit, &filter, &mut |row| {
            let [id, tool] =
                ["tool_use_id", "tool"].map(|name| row.get(name).and_then(Value::as_str));
            tools.extend(
                id.zip(tool)
                    .map(|(id, tool)| (id.to_owned(), tool.to_owned())),
            );
            true
        });
        tools
    }

    /// The tool of a call among the entries before its result.
    fn find_tool(&mut self, call: &str, result: Seq) -> Option<String> {
        let quoted = serde_json::to_string(call).ok()?;
        for distance in 1..=MAX_CALL_DISTANCE.min(result.0) {
            let mut tool = None;
            let read = self.source.read(Seq(result.0 - distance), &mut |entry| {
                if let EntryBody::Stdout(json) = &entry.body
                    && memchr::memmem::find(json, quoted.as_bytes()).is_some()
                    && let Ok(value) = serde_json::from_slice::<Value>(json)
                {
                    tool = name_of_call(&value, call);
                }
            });
            if read.is_err() || tool.is_some() {
                return tool;
            }
        }
        None
    }
}

/// The tool of the call with this id in a message.
fn name_of_call(message: &Value, call: &str) -> Option<String> {
    let mut blocks = message.pointer("/message/content")?.as_array()?.iter();
    let block = blocks.find(|block| block["type"] == "tool_use" && block["id"] == call)?;
    block["name"].as_str().map(str::to_owned)
}
