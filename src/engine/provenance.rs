//! Who wrote the lines of a file: the commit, the run, the attempt and the call, and what the agent had read before.
//!
//! Connects the repository (`ingest::line_history`), the trailers of commits and the tapes of runs (`run_record`); the
//! attempt and the call of a line are found in `attribution`. What is missing is named in the answer and is not an
//! error. Nothing is written. It must not know how an answer is shown.

mod attribution;
mod run_record;

use std::{io, path::Path, sync::Arc};

use jiff::Timestamp;

use self::attribution::Attribution;
use ingestdeck_core::{
    diagnostic::Diagnostic,
    run::provenance::ProvenanceCall,
    tape::{RunId, note::ReviewDecided},
    text,
};
use ingestdeck_ingest::{
    git::{CommitId, GitError},
    line_history::CommitRecord,
    repository::{Repository, RepositoryError},
};
use ingestdeck_os::scoped_dir::{FileKind, ScopedDir};
use ingestdeck_records::store::RunStore;

/// Largest file whose lines are explained, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Bytes at the beginning of a file in which a NUL marks it as binary, as in git.
const BINARY_PROBE_BYTES: usize = 8000;
/// Most attempts that are named where the record does not show which one wrote a line.
const MAX_CANDIDATES: usize = 20;

/// Why a question about a file has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProvenanceError {
    #[error("there is no file `{path}`")]
    FileNotFound { path: String },
    #[error("`{path}` is not a regular file")]
    NotAFile { path: String },
    #[error("`{path}` is larger than {} MiB", MAX_FILE_BYTES >> 20)]
    FileTooLarge { path: String },
    #[error("`{path}` is a binary file, which has no lines")]
    Binary { path: String },
    #[error("`{path}` has {}, and line {line} was asked for", text::pluralize(*lines, "line"))]
    NoSuchLine {
        path: String,
        line: usize,
        lines: usize,
    },
    #[error("the project has no git repository, so its files have no history")]
    NoRepository,
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("cannot read `{path}`: {cause}")]
    Io { path: String, cause: io::Error },
}

impl Diagnostic for ProvenanceError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::NoRepository => "`ingestdeck run` records the history of pages and sources".into(),
            Self::Repository(error) => return error.help(),
            Self::Git(error) => return error.help(),
            Self::FileNotFound { .. } | Self::NotAFile { .. } | Self::Binary { .. } => {
                "name a page or source by its path, such as wiki/global/orders.md; `ingestdeck artifacts latest` lists \
                 those of the newest run"
                    .into()
            }
            Self::FileTooLarge { .. } | Self::NoSuchLine { .. } | Self::Io { .. } => return None,
        })
    }
}

/// The origin of lines of a file.
#[derive(Clone, Debug)]
pub struct FileProvenance {
    /// Relative to the project.
    pub path: String,
    /// Consecutive lines with the same origin, from top to bottom.
    pub groups: Vec<LineGroup>,
}

/// Consecutive lines with the same origin.
#[derive(Clone, Debug)]
pub struct LineGroup {
    /// Number of the first line, from 1.
    pub first: usize,
    pub last: usize,
    pub origin: LineOrigin,
}

/// The origin of a line.
#[derive(Clone, Debug)]
pub enum LineOrigin {
    /// It is not in the last commit. Either the file was changed afterwards, or the commit does not contain the file.
    Uncommitted { has_commit: bool },
    /// A commit that no run made.
    Commit(Arc<FileCommit>),
    /// A commit of a run.
    Run(Arc<RunLineOrigin>),
}

/// A commit, and the path of the file in it.
#[derive(Clone, Debug)]
pub struct FileCommit {
    pub id: CommitId,
    pub record: CommitRecord,
    pub path: String,
    /// True if its parents are not in this clone, so that an earlier commit may have made the lines.
    pub is_cut: bool,
}

impl FileCommit {
    /// What is missing in the repository, as a sentence.
    pub fn missing(&self) -> Option<&'static str> {
        self.is_cut.then_some(
            "the commits before this one are not in this clone; one of them may have made the line",
        )
    }
}

/// Who wrote a line that a run committed.
#[derive(Clone, Debug)]
pub struct RunLineOrigin {
    pub commit: Arc<FileCommit>,
    /// The run of the commit.
    pub run: RunId,
    pub writer: RecordedWriter,
    /// Decisions of reviewers about the file in this run, oldest first.
    pub review: Vec<ReviewDecided>,
    /// What the record does not contain, one sentence each.
    pub missing: Vec<String>,
}

/// Who wrote a line, as far as it is recorded.
#[derive(Clone, Debug)]
pub enum RecordedWriter {
    /// An attempt, and its call if that is recorded.
    Attempt {
        attempt: NamedAttempt,
        call: Option<Box<WritingCall>>,
    },
    /// One of these attempts; the number of those that are not listed follows.
    OneOf {
        attempts: Vec<NamedAttempt>,
        more: usize,
    },
    /// A reviewer, who edited the file.
    Reviewer,
    /// The run itself, without an agent: the page is this document, kept verbatim.
    Document {
        /// The connection of the raw file; `None` for a text of the command line.
        connection: Option<String>,
        /// Path of the raw file, or the label of the text.
        path: String,
    },
    /// The run itself, without an agent: by merging, repairing or projecting.
    Run,
}

/// An attempt of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedAttempt {
    /// The run that made it, which may be prior to that of the commit.
    pub run: RunId,
    pub unit: String,
    pub attempt: u32,
}

/// The call that wrote a line, and what its agent had read before.
#[derive(Clone, Debug)]
pub struct WritingCall {
    pub call: ProvenanceCall,
    /// Wall clock time of the call.
    pub at: Option<Timestamp>,
    /// The reads before it, newest first.
    pub reads: Vec<ProvenanceCall>,
    /// Number of earlier reads that are not listed.
    pub more_reads: usize,
}

/// The origin of the lines `first` to `last` of `path`, or of all lines. `path` is relative to the project at `root`.
///
/// # Errors
/// If there is no such file or line, or git fails. A missing or damaged record of a run is not an error.
pub fn explain_lines(
    root: &Path,
    runs: &RunStore,
    path: &str,
    lines: Option<(usize, usize)>,
) -> Result<FileProvenance, ProvenanceError> {
    let count = count_lines(root, path)?;
    if let Some(line) = lines.map(|(_, last)| last).filter(|last| *last > count) {
        return Err(ProvenanceError::NoSuchLine {
            path: path.to_owned(),
            line,
            lines: count,
        });
    }
    let repository = Repository::find_for_reading(root)?.ok_or(ProvenanceError::NoRepository)?;
    let (first, last) = lines.unwrap_or((1, count));
    let mut file = FileProvenance {
        path: path.to_owned(),
        groups: Vec::new(),
    };
    if count == 0 {
        return Ok(file);
    }
    let Some(blamed) = repository.blame(path, lines)? else {
        file.groups.push(LineGroup {
            first,
            last,
            origin: LineOrigin::Uncommitted { has_commit: false },
        });
        return Ok(file);
    };
    let origins = Attribution::new(root, runs, &repository).origins(path, &blamed)?;
    for (line, origin) in (first..).zip(origins) {
        match file
            .groups
            .last_mut()
            .filter(|group| group.origin.is_same(&origin))
        {
            Some(group) => group.last = line,
            None => file.groups.push(LineGroup {
                first: line,
                last: line,
                origin,
            }),
        }
    }
    Ok(file)
}

/// Number of lines of the file.
fn count_lines(root: &Path, path: &str) -> Result<usize, ProvenanceError> {
    let failed = |cause| ProvenanceError::Io {
        path: path.to_owned(),
        cause,
    };
    let project = ScopedDir::open(root).map_err(failed)?;
    match project.kind(path) {
        Ok(Some(FileKind::File)) => {}
        Ok(Some(_)) => {
            return Err(ProvenanceError::NotAFile {
                path: path.to_owned(),
            });
        }
        Ok(None) => {
            return Err(ProvenanceError::FileNotFound {
                path: path.to_owned(),
            });
        }
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Err(ProvenanceError::FileNotFound {
                path: path.to_owned(),
            });
        }
        Err(error) => return Err(failed(error)),
    }
    let (file, size) = project.open_file(path).map_err(failed)?;
    drop(file);
    if size > MAX_FILE_BYTES {
        return Err(ProvenanceError::FileTooLarge {
            path: path.to_owned(),
        });
    }
    let bytes = project.read(path, MAX_FILE_BYTES).map_err(failed)?;
    if bytes.iter().take(BINARY_PROBE_BYTES).any(|byte| *byte == 0) {
        return Err(ProvenanceError::Binary {
            path: path.to_owned(),
        });
    }
    let ends = memchr::memchr_iter(b'\n', &bytes).count();
    Ok(ends + usize::from(bytes.last().is_some_and(|byte| *byte != b'\n')))
}

impl LineOrigin {
    /// True for the same origin. Origins of runs are shared, see [`Attribution`].
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Uncommitted { .. }, Self::Uncommitted { .. }) => true,
            (Self::Commit(a), Self::Commit(b)) => Arc::ptr_eq(a, b),
            (Self::Run(a), Self::Run(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}
