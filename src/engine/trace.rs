//! KTX's trace of a run, written while its tape grows. The run and its display do not depend on the trace: a slow or
//! failed trace does not affect them.

#![expect(clippy::disallowed_methods, reason = "the tape of this run")]

mod line_splitter;

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
};

use self::line_splitter::LineSplitter;
use ingestdeck_agent::caught_panics;
use ingestdeck_core::{
    run::trace::{TRACES_DIR, TraceLevel, TraceWriter, trace_path},
    tape::{Header, TapeEntry},
};
use ingestdeck_os::scoped_dir::{self, ScopedDir};

/// The variable with the trace level.
const LEVEL_VAR: &str = "KTX_INGEST_TRACE_LEVEL";

/// How long entries are collected before they are traced: traces need no low latency, and each time wakes two threads.
const COALESCE_DELAY: Duration = Duration::from_secs(4);

/// Bytes that are read at a time.
const READ_BLOCK_BYTES: u64 = 256 << 10;

/// Longest line that is traced. Longer lines are tool results, which no trace contains.
const MAX_LINE_BYTES: usize = 64 << 20;

/// A trace that is being written.
#[derive(Debug)]
pub(crate) struct TraceTask {
    complete: oneshot::Sender<()>,
    writer: JoinHandle<io::Result<()>>,
}

impl TraceTask {
    /// Follows the tape at `tape`, which `changed` reports on, and writes the traces of `project`. Needs a runtime.
    ///
    /// # Errors
    /// If the tape cannot be read.
    pub(crate) fn follow(
        tape: &Path,
        project: &Path,
        changed: watch::Receiver<u64>,
    ) -> io::Result<Self> {
        let level = TraceLevel::parse(&std::env::var(LEVEL_VAR).unwrap_or_default());
        let follower = TraceFollower::open(tape, project, level)?;
        let (complete, is_complete) = oneshot::channel();
        Ok(Self {
            complete,
            writer: tokio::spawn(run_follower(follower, changed, is_complete)),
        })
    }

    /// Writes the rest of the trace once the tape is complete.
    ///
    /// # Errors
    /// If the trace could not be written.
    pub(crate) async fn finish(self) -> io::Result<()> {
        // The receiver is gone if the trace could not be written.
        let _ = self.complete.send(());
        self.writer.await.map_err(io::Error::other)?
    }
}

async fn run_follower(
    mut follower: TraceFollower,
    mut changed: watch::Receiver<u64>,
    mut is_complete: oneshot::Receiver<()>,
) -> io::Result<()> {
    let mut last = false;
    loop {
        follower =
            caught_panics::spawn_blocking_caught(move || follower.advance().map(|()| follower))
                .await
                .map_err(io::Error::other)??;
        if last {
            return Ok(());
        }
        tokio::select! {
            _ = &mut is_complete => last = true,
            changed = changed.changed() => match changed {
                // Entries are collected, but the end of the run does not wait for more of them.
                Ok(()) => tokio::select! {
                    () = tokio::time::sleep(COALESCE_DELAY) => {}
                    _ = &mut is_complete => last = true,
                },
                // The writer is gone, so the tape is complete.
                Err(_) => last = true,
            },
        }
    }
}

/// Reads the lines of a growing tape.
#[derive(Debug)]
struct TraceFollower {
    /// Its position is the end of what the splitter has.
    tape: File,
    splitter: LineSplitter,
    project: PathBuf,
    level: TraceLevel,
    trace: Option<TraceWriter>,
    file: Option<File>,
}

impl TraceFollower {
    fn open(tape: &Path, project: &Path, level: TraceLevel) -> io::Result<Self> {
        let tape = File::open(tape)?;
        let project = project.to_owned();
        Ok(Self {
            tape,
            splitter: LineSplitter::new(MAX_LINE_BYTES),
            project,
            level,
            trace: None,
            file: None,
        })
    }

    /// Traces all lines that are on the tape.
    fn advance(&mut self) -> io::Result<()> {
        let mut block = Vec::new();
        loop {
            block.clear();
            if (&self.tape)
                .take(READ_BLOCK_BYTES)
                .read_to_end(&mut block)?
                == 0
            {
                return Ok(());
            }
            let (trace, level, mut out) = (&mut self.trace, self.level, Vec::new());
            self.splitter.feed(&block, &mut |line| match trace {
                None => {
                    *trace = Header::parse(line)
                        .ok()
                        .map(|header| TraceWriter::new(header, level))
                }
                Some(trace) => {
                    if let Ok(entry) = TapeEntry::parse(line) {
                        trace.write_entry(&entry, &mut out);
                    }
                }
            });
            self.write(&out)?;
        }
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let Some(job) = self
            .trace
            .as_ref()
            .and_then(TraceWriter::job)
            .filter(|_| !lines.is_empty())
        else {
            return Ok(());
        };
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(create(&self.project, job)?),
        };
        file.write_all(lines)
    }
}

/// Creates private files that git ignores, because transcripts and traces contain secrets.
fn create(project: &Path, job: &str) -> io::Result<File> {
    if job.contains(['/', '\\']) || job.starts_with('.') {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("the job {job:?} is not a valid file name"),
        ));
    }
    scoped_dir::create_ignored_dir(project, &project.join(TRACES_DIR))?;
    ScopedDir::open(project)?.append_to(&trace_path(job))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    const TAPE: &str = include_str!("../../tests/fixtures/tapes/demo.jsonl");

    fn traced(project: &Path) -> String {
        let job = fs::read_dir(project.join(".ktx/ingest-traces"))
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let job = job.into_iter().find(|path| path.is_dir()).unwrap();
        let trace = job.join("trace.jsonl");
        assert_eq!(
            fs::metadata(&trace).unwrap().permissions().mode() & 0o777,
            0o600
        );
        fs::read_to_string(trace).unwrap()
    }

    #[test]
    fn trace_is_independent_of_how_the_tape_is_chunked() {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let traces = directories.each_ref().map(|directory| {
            let tape = directory.path().join("tape.jsonl");
            let mut file = File::create(&tape).unwrap();
            let pieces = if directory.path() == directories[0].path() {
                1
            } else {
                700
            };
            let mut follower =
                TraceFollower::open(&tape, directory.path(), TraceLevel::Debug).unwrap();
            for piece in TAPE.as_bytes().chunks(TAPE.len() / pieces + 1) {
                file.write_all(piece).unwrap();
                follower.advance().unwrap();
            }
            traced(directory.path())
        });
        assert_eq!(traces[0], traces[1]);
        assert!(traces[0].lines().count() > 30);
    }

    #[tokio::test]
    async fn trace_includes_entries_written_before_finish() {
        let directory = tempfile::tempdir().unwrap();
        let tape = directory.path().join("tape.jsonl");
        fs::write(&tape, "").unwrap();
        let (_grown, changed) = watch::channel(0);
        let tracing = TraceTask::follow(&tape, directory.path(), changed).unwrap();
        fs::write(&tape, TAPE).unwrap();
        tracing.finish().await.unwrap();
        assert!(traced(directory.path()).contains("\"event\":\"ingest_finished\""));
    }

    #[tokio::test]
    async fn trace_dir_that_is_a_link_is_refused() {
        let (project, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(project.path().join(".ktx")).unwrap();
        std::os::unix::fs::symlink(outside.path(), project.path().join(".ktx/ingest-traces"))
            .unwrap();
        let tape = project.path().join("tape.jsonl");
        fs::write(&tape, TAPE).unwrap();
        let (_grown, changed) = watch::channel(0);
        let tracing = TraceTask::follow(&tape, project.path(), changed).unwrap();
        assert!(
            tracing
                .finish()
                .await
                .unwrap_err()
                .to_string()
                .contains("is a symbolic link")
        );
    }
}
