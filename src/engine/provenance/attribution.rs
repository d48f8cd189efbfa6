//! Finds the origin of the lines that `git blame` assigned to commits: first the attempt, then its call.
//!
//! A line belongs to the attempt whose patch added it. Its call follows from the writes that the tape records. Lines that
//! no patch added were made by the run itself, by merging or repairing.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
    sync::Arc,
};

use super::{
    FileCommit, LineOrigin, MAX_CANDIDATES, NamedAttempt, RecordedWriter, RunLineOrigin,
    WritingCall,
    run_record::{AttemptCallRecord, AttemptKey, RecordedAttempt, RunRecord},
};
use ingestdeck_core::{
    diagnostic::Problem,
    run::{
        commit_trailers::{NOTES_REF, RunTrailers},
        line_owners::{AttemptText, LineWriter, line_owners, line_writers},
        state::RECONCILE_KEY,
    },
    tape::{
        RunId,
        note::{ReviewDecision, attempt_output::RecordedWrite},
    },
    text::{self, file_patch},
};
use ingestdeck_ingest::{
    git::{CommitId, GitError},
    line_history::BlamedLine,
    repository::{PATCHES_DIR, Repository},
};
use ingestdeck_os::scoped_dir::ScopedDir;
use ingestdeck_records::store::RunStore;

/// Largest patch of an attempt that is read, in bytes.
const MAX_PATCH_BYTES: u64 = 64 << 20;
/// Most commits of runs whose records are read for one question.
const MAX_COMMITS: usize = 64;
/// Most records that are opened for one question.
const MAX_RECORDS: usize = 64;
/// Most attempts of a commit whose texts are compared.
const MAX_CONTRIBUTORS: usize = 1_000;
/// Most bytes of the patches and texts of attempts that are read for one question.
const MAX_ATTEMPT_BYTES: usize = 128 << 20;
/// Most sentences about what the record of a line lacks.
const MAX_PROBLEMS: usize = 20;
/// Most reads of one call that are named.
const MAX_READS: usize = 20;

/// Reads commits and records for one question, each once.
#[derive(Debug)]
pub(super) struct Attribution<'a> {
    root: &'a Path,
    runs: &'a RunStore,
    repository: &'a Repository,
    /// Records by run and path of the file, or why they cannot be read.
    records: HashMap<(RunId, String), Result<RunRecord, Problem>>,
    calls: HashMap<(RunId, AttemptKey), Result<AttemptCallRecord, String>>,
    /// Number of commits of runs so far.
    commits: usize,
    /// Bytes of patches and texts that were read so far.
    attempt_bytes: usize,
}

/// An attempt whose patch changes the file, and the text that it wrote.
struct Contributor {
    attempt: NamedAttempt,
    /// The text, or why it is not known.
    text: Result<AttemptText, String>,
    /// Why its calls are not known.
    problem: Option<String>,
}

/// The attempts of a commit that may have written its lines.
struct CommitAttempts {
    /// Those whose patches change the file, in the order in which they are compared.
    contributors: Vec<Contributor>,
    /// Those whose records cannot be read.
    unread: Vec<NamedAttempt>,
    /// Number of those whose names are missing.
    unnamed: usize,
    /// Why the records cannot be read, each sentence once.
    problems: MissingParts,
}

/// Sentences about what a record lacks, each once.
#[derive(Default)]
struct MissingParts {
    seen: HashSet<String>,
    listed: Vec<String>,
}

impl MissingParts {
    fn push(&mut self, problem: &str) {
        if self.seen.insert(problem.to_owned()) && self.listed.len() < MAX_PROBLEMS {
            self.listed.push(problem.to_owned());
        }
    }

    /// The first sentences, and the number of the others.
    fn into_sentences(self) -> Vec<String> {
        let more = self.seen.len() - self.listed.len();
        let more = (more > 0).then(|| {
            format!(
                "{} about the records",
                text::pluralize(more, "more problem")
            )
        });
        self.listed.into_iter().chain(more).collect()
    }
}

/// The origin of a line of a commit. Lines with the same source have the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LineSource {
    Writer(LineWriter),
    /// One of the attempts about which too little is known.
    Unknown,
    Run,
}

impl<'a> Attribution<'a> {
    pub(super) fn new(root: &'a Path, runs: &'a RunStore, repository: &'a Repository) -> Self {
        Self {
            root,
            runs,
            repository,
            records: HashMap::new(),
            calls: HashMap::new(),
            commits: 0,
            attempt_bytes: 0,
        }
    }

    /// The origin of each line of `path`. Lines with the same origin share it.
    ///
    /// # Errors
    /// If git fails.
    pub(super) fn origins(
        &mut self,
        path: &str,
        blamed: &[BlamedLine],
    ) -> Result<Vec<LineOrigin>, GitError> {
        let mut lines_by_commit: BTreeMap<&CommitId, Vec<usize>> = BTreeMap::new();
        for (place, line) in blamed.iter().enumerate() {
            if let Some(commit) = &line.commit {
                lines_by_commit.entry(commit).or_default().push(place);
            }
        }
        let ids: Vec<CommitId> = lines_by_commit.keys().map(|id| (*id).clone()).collect();
        let mut records = self.repository.commit_records(&ids)?;
        let mut origins = vec![LineOrigin::Uncommitted { has_commit: true }; blamed.len()];
        // The records of the newest commits are read if there are many.
        let mut lines_by_commit: Vec<_> = lines_by_commit.into_iter().collect();
        lines_by_commit
            .sort_by_key(|(id, _)| Reverse(records.get(id).and_then(|record| record.at)));
        for (id, places) in lines_by_commit {
            let path_there = places
                .first()
                .and_then(|place| blamed[*place].path_in_commit.clone());
            let record = records.remove(id).unwrap_or_default();
            let mut runs = RunTrailers::parse_all(&record.message);
            let without_note = self.add_noted_attempts(id, &mut runs)?;
            let path = path_there.unwrap_or_else(|| path.to_owned());
            let is_cut =
                places.iter().any(|place| blamed[*place].is_boundary) && !record.parents.is_empty();
            let commit = Arc::new(FileCommit {
                id: id.clone(),
                record,
                path,
                is_cut,
            });
            let Some(run) = runs.last().map(|trailers| trailers.run) else {
                places
                    .iter()
                    .for_each(|place| origins[*place] = LineOrigin::Commit(Arc::clone(&commit)));
                continue;
            };
            let mut attempts = self.commit_attempts(&commit, &runs)?;
            if without_note > 0 {
                attempts.unnamed = without_note as usize;
                attempts.problems.push(&format!(
                    "{} of the commit are named in its note in {NOTES_REF}, which is not in this repository; \
                     `git fetch origin {NOTES_REF}:{NOTES_REF}` fetches the notes",
                    text::pluralize(without_note as usize, "attempt")
                ));
            }
            let (review, document) = self
                .record(run, &commit.path)
                .map(|record| (record.decisions.clone(), record.document.clone()))
                .unwrap_or_default();
            let has_attempts = runs
                .last()
                .is_some_and(|trailers| !trailers.attempts.is_empty());
            let is_taken_back = review
                .iter()
                .any(|decided| decided.decision == ReviewDecision::Rejected);
            let is_edited = review
                .back()
                .is_some_and(|decided| decided.decision == ReviewDecision::Edited);
            let is_of_reviewer = is_edited || (is_taken_back && !has_attempts);
            let writers = self.writers(&commit, &mut attempts)?;
            let mut answers: BTreeMap<LineSource, LineOrigin> = BTreeMap::new();
            for place in places {
                let line = blamed[place].line_in_commit.wrapping_sub(1);
                let source = attempts.line_source(writers.get(line).copied().flatten());
                let answer = answers.entry(source).or_insert_with(|| {
                    let (writer, missing) = match source {
                        LineSource::Run if is_of_reviewer => (RecordedWriter::Reviewer, Vec::new()),
                        LineSource::Run if let Some((connection, path)) = document.clone() => {
                            (RecordedWriter::Document { connection, path }, Vec::new())
                        }
                        source => self.writer(&commit.path, &attempts, source),
                    };
                    let (commit, review) = (Arc::clone(&commit), review.iter().cloned().collect());
                    LineOrigin::Run(Arc::new(RunLineOrigin {
                        commit,
                        run,
                        writer,
                        review,
                        missing,
                    }))
                });
                origins[place] = answer.clone();
            }
        }
        Ok(origins)
    }

    /// Adds the attempts in the note of the commit. Returns how many should be there and are not.
    fn add_noted_attempts(
        &self,
        commit: &CommitId,
        runs: &mut [RunTrailers],
    ) -> Result<u32, GitError> {
        let Some(expected) = runs.iter().filter_map(|run| run.noted).max() else {
            return Ok(0);
        };
        let note = self.repository.note(commit)?.unwrap_or_default();
        let noted = RunTrailers::parse_all(&note);
        let mut missing = 0;
        for run in runs.iter_mut().filter(|run| run.noted.is_some()) {
            match noted.iter().find(|noted| noted.run == run.run) {
                Some(noted) => run.attempts.extend(noted.attempts.iter().cloned()),
                None => missing = expected,
            }
        }
        Ok(missing)
    }

    /// The attempts that the trailers name, and what they wrote to the file.
    ///
    /// If only one attempt changed it, its text is that of the commit, even without its patch.
    fn commit_attempts(
        &mut self,
        commit: &FileCommit,
        runs: &[RunTrailers],
    ) -> Result<CommitAttempts, GitError> {
        self.commits += 1;
        let mut all = CommitAttempts {
            contributors: Vec::new(),
            unread: Vec::new(),
            unnamed: 0,
            problems: MissingParts::default(),
        };
        let mut seen = HashSet::new();
        for (trailers, named) in runs
            .iter()
            .flat_map(|run| run.attempts.iter().map(move |named| (run, named)))
        {
            let run = named.prior_run.unwrap_or(trailers.run);
            if !seen.insert((run, named.unit.as_str(), named.attempt)) {
                continue;
            }
            let attempt = NamedAttempt {
                run,
                unit: named.unit.clone(),
                attempt: named.attempt,
            };
            let key = (named.unit.clone(), named.attempt);
            match self
                .record(run, &commit.path)
                .and_then(|record| record.attempt(&key))
            {
                Ok(Some(_)) if all.contributors.len() == MAX_CONTRIBUTORS => {
                    all.problems.push(&format!(
                        "only {MAX_CONTRIBUTORS} attempts of a commit are compared"
                    ));
                    all.unread.push(attempt);
                }
                Ok(Some(recorded)) => {
                    let (text, problem) = self.attempt_text(&commit.path, &recorded)?;
                    all.contributors.push(Contributor {
                        attempt,
                        text,
                        problem,
                    });
                }
                Ok(None) => {}
                Err(problem) => {
                    all.unread.push(attempt);
                    all.problems.push(&problem.to_string());
                }
            }
        }
        if let (
            [
                Contributor {
                    text: text @ Err(_),
                    problem,
                    attempt,
                },
            ],
            [],
        ) = (all.contributors.as_mut_slice(), all.unread.as_slice())
        {
            let parent = commit.record.parents.first();
            let base = parent
                .map(|parent| self.repository.text_at(parent, &commit.path))
                .transpose()?
                .flatten();
            let (base, written) = (
                base.unwrap_or_default(),
                self.repository.text_at(&commit.id, &commit.path)?,
            );
            let key = (attempt.unit.clone(), attempt.attempt);
            let record = self
                .records
                .get(&(attempt.run, commit.path.clone()))
                .and_then(|record| record.as_ref().ok());
            if let (Some(written), Some(recorded)) =
                (written, record.and_then(|record| record.attempts.get(&key)))
            {
                let (owners, why) = owners(&base, &written, &commit.path, recorded);
                (*text, *problem) = (
                    Ok(AttemptText {
                        base,
                        written,
                        owners,
                    }),
                    why,
                );
            }
        }
        // The reconcile step works on the merged patches of the others, so what it did not change is theirs.
        all.contributors
            .sort_by_key(|contributor| contributor.attempt.unit != RECONCILE_KEY);
        Ok(all)
    }

    fn record(&mut self, run: RunId, path: &str) -> Result<&mut RunRecord, Problem> {
        if self.commits > MAX_COMMITS {
            return Err(Problem::new(format!(
                "only the records of {MAX_COMMITS} commits are read; ask for fewer lines"
            )));
        }
        let key = (run, path.to_owned());
        if self.records.len() == MAX_RECORDS && !self.records.contains_key(&key) {
            return Err(Problem::new(format!(
                "only {MAX_RECORDS} records are read; ask for fewer lines"
            )));
        }
        let record = self
            .records
            .entry(key)
            .or_insert_with(|| RunRecord::open(self.runs, run, path));
        record.as_mut().map_err(|problem| problem.clone())
    }

    /// The file before and after an attempt, or why it is not known, and why its writes are not known.
    fn attempt_text(
        &mut self,
        path: &str,
        recorded: &RecordedAttempt,
    ) -> Result<(Result<AttemptText, String>, Option<String>), GitError> {
        if self.attempt_bytes > MAX_ATTEMPT_BYTES {
            let problem = format!(
                "only {} MiB of the patches and texts of attempts are compared",
                MAX_ATTEMPT_BYTES >> 20
            );
            return Ok((Err(problem), None));
        }
        let base = match CommitId::parse(&recorded.patch.base) {
            Ok(base) => self.repository.text_at(&base, path)?.unwrap_or_default(),
            Err(_) => String::new(),
        };
        self.attempt_bytes += base.len();
        let patch = match self.read_patch(recorded) {
            Ok(patch) => patch,
            Err(problem) => return Ok((Err(problem), None)),
        };
        self.attempt_bytes += patch.len();
        let written = match file_patch::patched_file(&patch, path, &base) {
            Ok(written) => written.unwrap_or_default(),
            Err(error) => {
                return Ok((
                    Err(format!("the patch of the attempt cannot be used: {error}")),
                    None,
                ));
            }
        };
        let (owners, problem) = owners(&base, &written, path, recorded);
        self.attempt_bytes += written.len() + owners.as_deref().map_or(0, size_of_val);
        Ok((
            Ok(AttemptText {
                base,
                written,
                owners,
            }),
            problem,
        ))
    }

    /// Reads the patch of an attempt. Its path comes from a tape, so it must be in the directory of patches.
    fn read_patch(&self, recorded: &RecordedAttempt) -> Result<String, String> {
        let path = recorded.patch.path.as_deref().unwrap_or_default();
        let is_patch = path
            .strip_prefix(PATCHES_DIR)
            .is_some_and(|rest| rest.starts_with('/'));
        let read = is_patch
            .then(|| ScopedDir::open(self.root).and_then(|root| root.read(path, MAX_PATCH_BYTES)));
        match read {
            Some(Ok(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Some(Err(error)) => Err(format!(
                "the patch `{path}` of the attempt cannot be read: {error}"
            )),
            None => Err("the record names no patch of the attempt".to_owned()),
        }
    }

    /// The attempt that wrote each line of the committed file.
    fn writers(
        &self,
        commit: &FileCommit,
        attempts: &mut CommitAttempts,
    ) -> Result<Vec<Option<LineWriter>>, GitError> {
        if attempts.contributors.is_empty() {
            return Ok(Vec::new());
        }
        let Some(committed) = self.repository.text_at(&commit.id, &commit.path)? else {
            let problem = "the file of the commit is missing or too large to be compared";
            attempts
                .contributors
                .iter_mut()
                .for_each(|contributor| contributor.text = Err(problem.to_owned()));
            return Ok(Vec::new());
        };
        Ok(line_writers(
            &committed,
            attempts
                .contributors
                .iter()
                .map(|contributor| contributor.text.as_ref().ok()),
        ))
    }

    /// Who wrote the lines of `source`, and what the record lacks.
    fn writer(
        &mut self,
        path: &str,
        attempts: &CommitAttempts,
        source: LineSource,
    ) -> (RecordedWriter, Vec<String>) {
        match source {
            LineSource::Run => (RecordedWriter::Run, Vec::new()),
            LineSource::Unknown => attempts.candidates(),
            LineSource::Writer(LineWriter { attempt, write }) => {
                let Contributor {
                    attempt, problem, ..
                } = &attempts.contributors[attempt];
                let mut missing: Vec<String> = problem.iter().cloned().collect();
                let call = match write {
                    Some(write) => self
                        .writing_call(path, attempt, write, &mut missing)
                        .unwrap_or_else(|problem| {
                            missing.push(problem);
                            None
                        }),
                    None if missing.is_empty() => {
                        missing.push("the record names no call that wrote the line".to_owned());
                        None
                    }
                    None => None,
                };
                (
                    RecordedWriter::Attempt {
                        attempt: attempt.clone(),
                        call: call.map(Box::new),
                    },
                    missing,
                )
            }
        }
    }

    /// The call of the write with this index, and what its agent had read before.
    fn writing_call(
        &mut self,
        path: &str,
        attempt: &NamedAttempt,
        write: usize,
        missing: &mut Vec<String>,
    ) -> Result<Option<WritingCall>, String> {
        let (run, key) = (attempt.run, (attempt.unit.clone(), attempt.attempt));
        // Borrowed apart from the calls, which are read from it.
        let record = self
            .records
            .get_mut(&(run, path.to_owned()))
            .and_then(|record| record.as_mut().ok());
        let Some(record) = record else {
            return Ok(None);
        };
        let Some(recorded) = record.attempts.get(&key).cloned() else {
            return Ok(None);
        };
        let id = writes_to(path, &recorded)
            .nth(write)
            .and_then(|write| write.call.clone());
        let id = id.ok_or("the record does not name the call of the write")?;
        let calls = self.calls.entry((run, key)).or_insert_with(|| {
            let read = record.read_calls(&recorded.unit, attempt.attempt);
            read.map_err(|error| {
                format!("the calls of the attempt cannot be read: {}", error.cause)
            })
        });
        let calls = calls.as_ref().map_err(|problem| problem.clone())?;
        let call = calls
            .calls
            .call(&id)
            .ok_or_else(|| format!("the record does not contain the call `{id}`"))?
            .clone();
        if calls.is_resumed {
            missing.push(
                "the attempt continued a session; what that had read before is not listed"
                    .to_owned(),
            );
        }
        if record.is_active {
            missing.push(format!(
                "run {run} is still active, so its record may not be complete"
            ));
        }
        let reads = calls.calls.reads_before(&call);
        let more_reads = reads.len().saturating_sub(MAX_READS);
        let reads = reads.into_iter().take(MAX_READS).cloned().collect();
        Ok(Some(WritingCall {
            at: record.wall_time(call.at),
            call,
            reads,
            more_reads,
        }))
    }
}

impl CommitAttempts {
    fn line_source(&self, writer: Option<LineWriter>) -> LineSource {
        let is_incomplete = || {
            self.unnamed > 0
                || !self.unread.is_empty()
                || self.contributors.iter().any(|of| of.text.is_err())
        };
        match writer {
            Some(writer) => LineSource::Writer(writer),
            None if is_incomplete() => LineSource::Unknown,
            None => LineSource::Run,
        }
    }

    /// The attempts that may have written a line that no known text contains.
    fn candidates(&self) -> (RecordedWriter, Vec<String>) {
        let without_text = self
            .contributors
            .iter()
            .filter(|contributor| contributor.text.is_err());
        let problems = without_text
            .clone()
            .filter_map(|contributor| contributor.text.as_ref().err());
        let mut missing = MissingParts::default();
        self.problems
            .listed
            .iter()
            .chain(problems)
            .chain(&self.problems.seen)
            .for_each(|problem| missing.push(problem));
        let missing = missing.into_sentences();
        let all = without_text
            .map(|contributor| &contributor.attempt)
            .chain(&self.unread);
        let attempts: Vec<NamedAttempt> = all.clone().take(MAX_CANDIDATES).cloned().collect();
        let more = all.count() - attempts.len() + self.unnamed;
        let writer = match attempts.as_slice() {
            [attempt] if more == 0 => RecordedWriter::Attempt {
                attempt: attempt.clone(),
                call: None,
            },
            _ => RecordedWriter::OneOf { attempts, more },
        };
        (writer, missing)
    }
}

fn writes_to<'a>(
    path: &'a str,
    recorded: &'a RecordedAttempt,
) -> impl Iterator<Item = &'a RecordedWrite> {
    let writes = recorded
        .output
        .as_ref()
        .map(|output| output.writes.as_slice())
        .unwrap_or_default();
    writes.iter().filter(move |write| write.path == path)
}

/// The write of each line of `written`, or why it is not known.
fn owners(
    base: &str,
    written: &str,
    path: &str,
    recorded: &RecordedAttempt,
) -> (Option<Vec<Option<usize>>>, Option<String>) {
    if recorded.output.is_none() {
        return (
            None,
            Some(
                "the record ends before the end of the attempt, so the call is not known"
                    .to_owned(),
            ),
        );
    }
    if writes_to(path, recorded).next().is_none() {
        return (
            None,
            Some("the record does not contain the writes, so the call is not known".to_owned()),
        );
    }
    let writes = writes_to(path, recorded).map(|write| write.edits.as_slice());
    match line_owners(text::lines(base).len(), writes) {
        Ok(owners) if owners.len() == text::lines(written).len() => (Some(owners), None),
        _ => (
            None,
            Some("the recorded writes do not fit the patch, so the call is not known".to_owned()),
        ),
    }
}
