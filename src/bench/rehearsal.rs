//! Rehearsals: the recorded answers of models for the real Claude Code, with today's tools, policies, rules and validators.
//!
//! A rehearsal is a run of this program in a temporary clone of the commit that the recorded run began from. Its Claude Code has no
//! login and asks `recorded_api`. It shows what the program does with recorded calls, not what a model would answer now.

mod normal_text;
mod record;
mod recorded_api;

use std::{
    collections::BTreeMap,
    fs::File,
    path::Path,
    process::{Command, Stdio},
};

use nix::sys::signal::Signal;

pub use self::recorded_api::RecordEnd;
use self::{
    normal_text::NormalText,
    record::{RecordedModel, read_attempts},
    recorded_api::RecordedApi,
};
use super::{BenchError, CloneDir};
use ingestdeck_agent::private_dir::{BENCH_PREFIX, PrivateDir};
use ingestdeck_core::{
    exit::Exit,
    tape::{UnitKey, note::Verdict},
    text,
};
use ingestdeck_engine::recorded_tapes;
use ingestdeck_ingest::project_snapshot::ProjectSnapshot;
use ingestdeck_os::{
    group_guard,
    scoped_dir::{PRIVATE_MODE, ScopedDir},
};
use ingestdeck_records::store::{RecordedRun, RunStore};

/// Largest file of the project that a rehearsal takes from the working tree, in bytes.
const MAX_FILE: u64 = 4 << 20;
/// Variables that the agent of a rehearsal gets: where the recorded answers are, and the key for them.
const AGENT_VARIABLES: &str = "ANTHROPIC_BASE_URL,ANTHROPIC_API_KEY";
/// Logins that it must not have.
const LOGINS: [&str; 3] = [
    "CLAUDE_CODE_OAUTH_TOKEN",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
];

/// What to rehearse, and with what.
#[derive(Debug)]
pub struct Rehearsal<'a> {
    /// Directory of the project.
    pub project: &'a Path,
    pub run: &'a RecordedRun,
    /// The units to rehearse.
    pub units: &'a [UnitKey],
    /// Files of the working tree that replace those of the commit, relative to the project.
    pub current_files: &'a [&'a str],
    /// The settings file that the user names.
    pub config: Option<&'a Path>,
    pub claude: &'a Path,
}

/// A unit after its rehearsal.
#[derive(Clone, Debug, PartialEq)]
pub struct RehearsedUnit {
    pub unit: UnitKey,
    /// Number of the recorded attempt.
    pub attempt: u32,
    /// Its verdict in the record.
    pub then: Option<Verdict>,
    /// Its verdict with the program of today; `None` if it did not run.
    pub now: Option<Verdict>,
    /// Where the record no longer fits, if it does not.
    pub end: Option<RecordEnd>,
    /// How its requests differ from those in the record. What a model answers to them is not known.
    pub request: RequestDifference,
    result: RehearsalResult,
}

/// How the requests of an attempt differ from those in the record, apart from answers of tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestDifference {
    /// The system prompt or a skill is another one.
    pub has_other_instructions: bool,
    /// Added and removed lines of the prompt.
    pub prompt_lines: (usize, usize),
}

impl RequestDifference {
    fn new(then: &RecordedModel, now: &RecordedModel, normal: &NormalText) -> Self {
        let digest = |attempt: &RecordedModel| {
            let content = attempt.content.as_ref();
            content.map(|content| content.prompt.clone())
        };
        let [old, new] = [then, now].map(|attempt| normal.of(&attempt.prompt));
        let changes = text::line_changes(&text::lines(&old), &text::lines(&new));
        let prompt_lines = changes.iter().fold((0, 0), |(added, removed), change| {
            (added + change.new.len(), removed + change.old.len())
        });
        Self {
            has_other_instructions: digest(then) != digest(now),
            prompt_lines,
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a rehearsal shows about a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RehearsalResult {
    /// Its verdict would be another one.
    Changes,
    /// The record ended before the attempt.
    RecordEnds,
    /// It did not run.
    NotPlanned,
    Same,
}

impl RehearsalResult {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Changes => "changes",
            Self::RecordEnds => "record ends",
            Self::NotPlanned => "not planned",
            Self::Same => "same",
        }
    }
}

impl RehearsedUnit {
    fn new(
        (unit, then): (UnitKey, RecordedModel),
        now: Option<&RecordedModel>,
        end: Option<RecordEnd>,
        normal: &NormalText,
    ) -> Self {
        let request = now.map(|now| RequestDifference::new(&then, now, normal));
        let verdict = now.and_then(|now| now.verdict.clone());
        let key = |verdict: &Verdict| {
            let reason = normal.of(&verdict.reason);
            (verdict.outcome, verdict.cause.clone(), reason)
        };
        let result = match &verdict {
            _ if end.is_some() => RehearsalResult::RecordEnds,
            None => RehearsalResult::NotPlanned,
            Some(now) if then.verdict.as_ref().map(key) == Some(key(now)) => RehearsalResult::Same,
            Some(_) => RehearsalResult::Changes,
        };
        Self {
            unit,
            attempt: then.number,
            then: then.verdict,
            now: verdict,
            end,
            request: request.unwrap_or_default(),
            result,
        }
    }

    pub fn result(&self) -> RehearsalResult {
        self.result
    }
}

impl Rehearsal<'_> {
    /// Rehearses the selected units, and returns them: those that would change first. Changes nothing in the project.
    ///
    /// # Errors
    /// If the record or the project cannot be used, or the rehearsal cannot run.
    pub fn run(&self) -> Result<Vec<RehearsedUnit>, BenchError> {
        let store = RunStore::new(self.project);
        let (attempts, base) = self.recorded_attempts(&store, self.run)?;
        let state = recorded_tapes::fold(&store, self.run)?;
        let planned = state.units.iter().filter_map(|unit| unit.planned.clone());
        let headings: BTreeMap<UnitKey, String> = planned
            .filter(|unit| attempts.contains_key(&unit.unit))
            .map(|unit| (unit.unit.clone(), unit.ktx_key().to_string()))
            .collect();
        if headings.is_empty() {
            let message = "the record has no answers of a model for these units";
            return Err(BenchError::new(Exit::NotFound, message.to_owned()));
        }
        let snapshot = ProjectSnapshot::at(self.project, base.as_deref())?;
        let clone = CloneDir::create(&snapshot, false)?;
        self.copy_current_files(clone.path())?;
        let normal = NormalText::new([self.project.to_path_buf(), clone.path().to_path_buf()]);
        let selected: BTreeMap<UnitKey, RecordedModel> = attempts
            .into_iter()
            .filter(|(unit, _)| headings.contains_key(unit))
            .collect();
        let failed = |error| BenchError::failed("cannot answer from the record", error);
        let api = RecordedApi::start(selected.clone(), headings, normal.clone()).map_err(failed)?;
        self.run_child(clone.path(), &api, selected.keys())?;
        let mut ends = api.ends();
        drop(api);
        let rehearsed = RunStore::new(clone.path());
        let now = match rehearsed.list()?.first() {
            Some(run) => self.recorded_attempts(&rehearsed, run)?.0,
            None => BTreeMap::new(),
        };
        let mut units: Vec<RehearsedUnit> = selected
            .into_iter()
            .map(|(unit, then)| {
                let (now, end) = (now.get(&unit), ends.remove(&unit));
                RehearsedUnit::new((unit, then), now, end, &normal)
            })
            .collect();
        units.sort_by_key(|unit| unit.result);
        Ok(units)
    }

    fn recorded_attempts(
        &self,
        store: &RunStore,
        run: &RecordedRun,
    ) -> Result<(BTreeMap<UnitKey, RecordedModel>, Option<String>), BenchError> {
        let mut source = recorded_tapes::open_source(store, run)?;
        let failed = |error| BenchError::failed("cannot read the record", error);
        read_attempts(&mut source, self.units).map_err(failed)
    }

    /// Rules and settings are those of today.
    fn copy_current_files(&self, clone: &Path) -> Result<(), BenchError> {
        let failed = |error| BenchError::failed("cannot use a clone of the project", error);
        let (from, to) = (
            ScopedDir::open(self.project).map_err(failed)?,
            ScopedDir::open(clone).map_err(failed)?,
        );
        for file in self.current_files {
            if let Some(bytes) = from.read_if_exists(file, MAX_FILE).map_err(failed)? {
                to.write(file, &bytes, PRIVATE_MODE, 0o600)
                    .map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Runs this program in the clone, without a login, and waits for its end.
    fn run_child<'u>(
        &self,
        clone: &Path,
        api: &RecordedApi,
        units: impl Iterator<Item = &'u UnitKey>,
    ) -> Result<(), BenchError> {
        let failed = |error: std::io::Error| BenchError::failed("cannot start a rehearsal", error);
        let exe = std::env::current_exe().map_err(failed)?;
        if let Err(error) = group_guard::start(&exe) {
            tracing::warn!(%error, "cannot start the group guard");
        }
        // Claude Code keeps sessions and settings there.
        let home = PrivateDir::new(BENCH_PREFIX).map_err(failed)?;
        let mut command = Command::new(exe);
        command
            .args(["run", "--full", "--no-reconcile", "--ui", "none"])
            .arg("--project-dir")
            .arg(clone)
            .arg("--claude-bin")
            .arg(self.claude);
        if let Some(config) = self.config {
            command
                .arg("--config")
                .arg(std::path::absolute(config).map_err(failed)?);
        }
        for unit in units {
            command.arg(format!("--only={}", escape_glob(unit.as_str())));
        }
        LOGINS.iter().for_each(|name| _ = command.env_remove(name));
        command
            .env("ANTHROPIC_BASE_URL", api.url())
            .env("ANTHROPIC_API_KEY", api.key())
            .env("NO_PROXY", "127.0.0.1")
            .env("no_proxy", "127.0.0.1")
            .env("CLAUDE_CONFIG_DIR", home.path())
            .env("INGESTDECK_CLAUDE_USE_API_BILLING", "true")
            .env("INGESTDECK_CLAUDE_PASS_ENV", AGENT_VARIABLES)
            .env("INGESTDECK_RETRY_MAX_RETRIES", "0")
            .env("INGESTDECK_INGEST_CONTINUE", "never")
            .env("INGESTDECK_INGEST_REVIEW", "false")
            .env("INGESTDECK_INGEST_PROBE", "false")
            // Nothing that happens in a rehearsal is news. The API refuses notifications.
            .env("INGESTDECK_UI_NOTIFY", "off")
            .env("INGESTDECK_NOTIFY_URL", api.url())
            .env("OTEL_SDK_DISABLED", "true")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        group_guard::set_parent_death_signal(&mut command, Signal::SIGTERM);
        let log = tempfile::tempfile().map_err(failed)?;
        command.stderr(log.try_clone().map_err(failed)?);
        let status = command.status().map_err(failed)?;
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        match code.and_then(Exit::from_code) {
            Some(Exit::Ok | Exit::UnitFailed | Exit::Limit) => Ok(()),
            exit => {
                let reason = last_error(log).unwrap_or_else(|| format!("it ended with {status}"));
                let exit = exit.unwrap_or(Exit::Internal);
                Err(BenchError::new(
                    exit,
                    format!("the rehearsal failed: {reason}"),
                ))
            }
        }
    }
}

/// The last error that a child printed.
fn last_error(log: File) -> Option<String> {
    use std::io::{Read as _, Seek as _};

    let (mut log, mut text) = (log, String::new());
    log.rewind().ok()?;
    log.take(MAX_FILE).read_to_string(&mut text).ok()?;
    let mut errors = text.lines().filter_map(|line| line.strip_prefix("error: "));
    errors.next_back().map(str::to_owned)
}

/// A pattern that matches only `key`.
fn escape_glob(key: &str) -> String {
    let mut pattern = String::new();
    for char in key.chars() {
        if "?*[]{}!\\".contains(char) {
            pattern.extend(['[', char, ']']);
        } else {
            pattern.push(char);
        }
    }
    pattern
}
