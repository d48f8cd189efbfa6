//! KTX's trace of a run, written while its tape grows. The run and its display do not depend on the trace: a failed trace
//! does not affect them.

use std::{
    fs::File,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use ingestdeck_core::{
    run::{
        EntryRef, EntryScope,
        trace::{TRACES_DIR, TraceLevel, TraceWriter, trace_path},
    },
    tape::{Header, TapeEntry},
};
use ingestdeck_os::scoped_dir::{self, ScopedDir};

/// The variable with the trace level.
const LEVEL_VAR: &str = "KTX_INGEST_TRACE_LEVEL";

/// A trace that is being written.
#[derive(Debug)]
pub(super) struct TraceSink {
    project: PathBuf,
    trace: TraceWriter,
    /// Lines that are not in the file yet.
    lines: Vec<u8>,
    file: Option<File>,
    has_failed: bool,
}

impl TraceSink {
    /// The trace of the run of `header` in `project`.
    pub(super) fn new(header: &Header, project: &Path) -> Self {
        let level = TraceLevel::parse(&std::env::var(LEVEL_VAR).unwrap_or_default());
        Self {
            project: project.to_owned(),
            trace: TraceWriter::new(header.clone(), level),
            lines: Vec::new(),
            file: None,
            has_failed: false,
        }
    }

    pub(super) fn add(&mut self, entry: &EntryRef<'_>) {
        if self.has_failed || !entry.is_well_formed {
            return;
        }
        let entry = TapeEntry {
            seq: entry.seq,
            at: entry.at,
            attempt: match entry.scope {
                EntryScope::Attempt(unit, attempt) => Some((unit.into(), attempt)),
                EntryScope::Run | EntryScope::BySession => None,
            },
            body: entry.body.clone(),
        };
        self.trace.write_entry(&entry, &mut self.lines);
    }

    /// Writes what was added. After a failure, the trace ends.
    pub(super) fn write(&mut self) {
        if let Err(error) = self.try_write() {
            self.has_failed = true;
            tracing::warn!(%error, "the trace is not complete");
        }
        self.lines.clear();
    }

    fn try_write(&mut self) -> io::Result<()> {
        let (false, Some(job)) = (self.lines.is_empty(), self.trace.job()) else {
            return Ok(());
        };
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(create(&self.project, job)?),
        };
        file.write_all(&self.lines)
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

    use tokio::sync::watch;

    use super::*;
    use crate::{
        attached_clients::AttachedClients,
        tape_follower::{TapeFollower, TapeSinks},
    };

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

    /// Follows a tape that grows by `pieces` to `TAPE`.
    async fn trace_in(project: &Path, pieces: usize) -> TapeSinks {
        let path = project.join("tape.jsonl");
        let mut file = File::create(&path).unwrap();
        let header = TAPE.find('\n').unwrap() + 1;
        file.write_all(&TAPE.as_bytes()[..header]).unwrap();
        let (grown, changed) = watch::channel(0);
        let follower = TapeFollower::start(&path, changed, &AttachedClients::new(), |header| {
            let trace = Some(TraceSink::new(header, project));
            TapeSinks {
                trace,
                ..TapeSinks::default()
            }
        })
        .unwrap();
        let rest = &TAPE.as_bytes()[header..];
        for piece in rest.chunks(rest.len() / pieces + 1) {
            file.write_all(piece).unwrap();
            grown.send_replace(0);
            tokio::time::advance(std::time::Duration::from_secs(5)).await;
        }
        follower.finish().await
    }

    #[tokio::test(start_paused = true)]
    async fn trace_is_independent_of_how_the_tape_grows() {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        for (directory, pieces) in directories.iter().zip([1, 700]) {
            trace_in(directory.path(), pieces).await;
        }
        let traces = directories.each_ref().map(|it| traced(it.path()));
        assert_eq!(traces[0], traces[1]);
        assert!(
            traces[0].lines().count() > 30 && traces[0].contains("\"event\":\"ingest_finished\"")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn trace_dir_that_is_a_link_is_refused() {
        let (project, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(project.path().join(".ktx")).unwrap();
        std::os::unix::fs::symlink(outside.path(), project.path().join(".ktx/ingest-traces"))
            .unwrap();
        let sinks = trace_in(project.path(), 1).await;
        assert!(sinks.trace.unwrap().has_failed);
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }
}
