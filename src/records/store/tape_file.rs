//! The growing tape of a live run: one owner, append-only, one `write(2)` per record.
//!
//! Owns the stamp (`seq`, `at`), the file and its durability. It must not know the meaning of entries or the location
//! of run directories.

use std::{
    fmt,
    fs::File,
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::watch;

use ingestdeck_core::{
    run::entry_source::{NewEntry, RecordError, Recorder},
    tape::{
        Header, Millis, Seq, TapeEntry,
        shared_value::{self, SharedValues},
    },
};

/// Interval between syncs: a power failure loses at most this much of a run, except partial messages, which are synced
/// together with the complete message. A crash of the program loses nothing.
const SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// A write buffer larger than this many bytes is freed after the entry that needed it.
const MAX_RETAINED_BUFFER: usize = 1 << 20;

/// Returns the time of an entry in milliseconds since the start of the run; never decreases.
type TapeClock = Box<dyn Fn() -> Millis + Send + Sync>;

/// The writer of one tape.
///
/// Shared by reference or [`Arc`]; [`record`](Recorder::record) may be called from any thread. The first error is final
/// and returned by all later calls, because a tape must not have gaps.
pub struct TapeWriter {
    shared: Arc<TapeWriterInner>,
    syncer: Option<JoinHandle<()>>,
}

struct TapeWriterInner {
    path: PathBuf,
    clock: TapeClock,
    tape: Mutex<TapeWriterState>,
    wake_syncer: Condvar,
    length_tx: watch::Sender<u64>,
}

struct TapeWriterState {
    file: File,
    next: Seq,
    last_at: Millis,
    bytes: u64,
    buffer: Vec<u8>,
    shared_values: SharedValues,
    is_dirty: bool,
    is_closing: bool,
    error: Option<RecordError>,
}

impl TapeWriter {
    /// Writes `header` as the first line of the empty, private `file` at `path`. Time 0 is now.
    pub(super) fn start(file: File, path: &Path, header: &Header) -> Result<Self, RecordError> {
        let start = Instant::now();
        let clock = move || Millis(u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX));
        Self::start_with_clock(file, path, header, clock)
    }

    fn start_with_clock(
        mut file: File,
        path: &Path,
        header: &Header,
        clock: impl Fn() -> Millis + Send + Sync + 'static,
    ) -> Result<Self, RecordError> {
        let failed = |error: io::Error| RecordError::new(path.display(), &error);
        let line = header.to_line();
        file.write_all(&line)
            .and_then(|()| file.sync_all())
            .map_err(failed)?;
        let sync_file = file.try_clone().map_err(failed)?;
        let bytes = line.len() as u64;
        let shared = Arc::new(TapeWriterInner {
            path: path.to_owned(),
            clock: Box::new(clock),
            tape: Mutex::new(TapeWriterState {
                file,
                next: Seq(0),
                last_at: Millis(0),
                bytes,
                buffer: Vec::new(),
                shared_values: SharedValues::default(),
                is_dirty: false,
                is_closing: false,
                error: None,
            }),
            wake_syncer: Condvar::new(),
            length_tx: watch::channel(bytes).0,
        });
        let syncing = Arc::clone(&shared);
        let syncer = thread::Builder::new()
            .name("tape-sync".into())
            .spawn(move || syncing.sync_until_closed(&sync_file))
            .map_err(failed)?;
        Ok(Self {
            shared,
            syncer: Some(syncer),
        })
    }

    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Notifies readers in this process when the tape has grown; the value is its length in bytes. The channel closes
    /// with the writer.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.shared.length_tx.subscribe()
    }
}

impl Recorder for TapeWriter {
    fn record(&self, items: &[NewEntry<'_>]) -> Result<(), RecordError> {
        let bytes = self.shared.append(items)?;
        // Two threads may arrive here in either order; the length never shrinks.
        self.shared.length_tx.send_if_modified(|length| {
            let grown = bytes > *length;
            *length = bytes.max(*length);
            grown
        });
        Ok(())
    }
}

impl Drop for TapeWriter {
    fn drop(&mut self) {
        let Some(syncer) = self.syncer.take() else {
            return;
        };
        self.shared.lock().is_closing = true;
        self.shared.wake_syncer.notify_all();
        // The thread does not panic; if it did, there would be nothing left to sync.
        let _ = syncer.join();
    }
}

impl fmt::Debug for TapeWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TapeWriter")
            .field("path", &self.shared.path)
            .finish_non_exhaustive()
    }
}

impl TapeWriterInner {
    fn lock(&self) -> MutexGuard<'_, TapeWriterState> {
        self.tape.lock()
    }

    fn error(&self, cause: &io::Error) -> RecordError {
        RecordError::new(self.path.display(), cause)
    }

    /// Stamps and writes `items`; returns the length of the tape afterwards.
    fn append(&self, items: &[NewEntry<'_>]) -> Result<u64, RecordError> {
        let mut tape = self.lock();
        if let Some(error) = &tape.error {
            return Err(error.clone());
        }
        if items.is_empty() {
            return Ok(tape.bytes);
        }
        let at = (self.clock)().max(tape.last_at);
        let mut buffer = std::mem::take(&mut tape.buffer);
        for (seq, item) in (tape.next.0..).map(Seq).zip(items) {
            let attempt_id = item
                .attempt
                .map(|(unit, attempt)| (unit.as_str().into(), attempt));
            let shortened = tape.shared_values.shorten(seq, &item.body);
            let body = shortened
                .as_deref()
                .map(|short| shared_value::with_json(&item.body, short));
            let body = body.unwrap_or_else(|| item.body.clone());
            TapeEntry {
                seq,
                at,
                attempt: attempt_id,
                body,
            }
            .write(&mut buffer);
        }
        if let Err(error) = tape.file.write_all(&buffer) {
            let error = self.error(&error);
            tape.error = Some(error.clone());
            return Err(error);
        }
        tape.next.0 += items.len() as u64;
        tape.last_at = at;
        tape.bytes += buffer.len() as u64;
        buffer.clear();
        buffer.shrink_to(MAX_RETAINED_BUFFER);
        tape.buffer = buffer;
        let wakes = !tape.is_dirty && items.iter().any(|item| !item.body.is_stream_event());
        tape.is_dirty |= wakes;
        let bytes = tape.bytes;
        // Release the lock before waking readers that need it.
        drop(tape);
        if wakes {
            self.wake_syncer.notify_all();
        }
        Ok(bytes)
    }

    /// Body of the sync thread: waits for writes, and syncs at most once per interval.
    fn sync_until_closed(&self, file: &File) {
        loop {
            let mut tape = self.lock();
            while !tape.is_dirty && !tape.is_closing {
                self.wake_syncer.wait(&mut tape);
            }
            if !tape.is_closing {
                let is_open = |tape: &mut TapeWriterState| !tape.is_closing;
                self.wake_syncer
                    .wait_while_for(&mut tape, is_open, SYNC_INTERVAL);
            }
            let closing = tape.is_closing;
            tape.is_dirty = false;
            drop(tape);
            if let Err(error) = sync_to_disk(file) {
                self.lock().error.get_or_insert_with(|| self.error(&error));
            }
            if closing {
                return;
            }
        }
    }
}

/// Syncs the data to disk, and fails if the file was deleted.
fn sync_to_disk(file: &File) -> io::Result<()> {
    file.sync_data()?;
    if file.metadata()?.nlink() == 0 {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "the file was deleted while the run was recorded",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, OpenOptions},
        sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    };

    use super::*;
    use ingestdeck_core::tape::{EntryBody, FORMAT_VERSION, RunId, UnitKey};

    fn header() -> Header {
        Header {
            tape: FORMAT_VERSION,
            program: "ingestdeck test".into(),
            run: RunId(uuid::Uuid::from_u128(1)),
            started_at: "2026-01-01T00:00:00Z".parse().unwrap(),
            project: None,
            scripted: false,
            agent: None,
        }
    }

    fn create(path: &Path) -> TapeWriter {
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .open(path)
            .unwrap();
        TapeWriter::start(file, path, &header()).unwrap()
    }

    fn create_with_clock(
        path: &Path,
        clock: impl Fn() -> Millis + Send + Sync + 'static,
    ) -> TapeWriter {
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .open(path)
            .unwrap();
        TapeWriter::start_with_clock(file, path, &header(), clock).unwrap()
    }

    fn out(json: &[u8]) -> NewEntry<'_> {
        NewEntry {
            attempt: None,
            body: EntryBody::Stdout(json),
        }
    }

    #[test]
    fn tape_file_starts_with_the_header() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tape.jsonl");
        let _writer = create(&path);
        assert_eq!(fs::read(&path).unwrap(), header().to_line());
    }

    #[test]
    fn record_returns_after_the_entry_is_in_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tape.jsonl");
        let ticks = AtomicU64::new(10);
        // A clock that runs backwards must not make the times of entries decrease.
        let clock = move || Millis(ticks.fetch_sub(1, Ordering::Relaxed));
        let writer = create_with_clock(&path, clock);
        let unit = UnitKey::from("u");
        let grown = writer.subscribe();
        writer
            .record(&[
                NewEntry {
                    attempt: Some((&unit, 2)),
                    body: EntryBody::Stderr("x".into()),
                },
                out(b"{}"),
            ])
            .unwrap();
        writer.record(&[out(b"[1]")]).unwrap();
        writer.record(&[]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let entries: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            entries,
            [
                r#"{"seq":0,"at":10,"unit":"u","try":2,"err":"x"}"#,
                r#"{"seq":1,"at":10,"out":{}}"#,
                r#"{"seq":2,"at":10,"out":[1]}"#
            ]
        );
        assert_eq!(*grown.borrow(), text.len() as u64);
        drop(writer);
        assert!(
            grown.has_changed().is_err(),
            "the channel closes with the writer"
        );
    }

    #[test]
    fn clock_that_jumps_does_not_disorder_a_tape() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tape.jsonl");
        let jumps = [5_000, 7_200_000, 0, 3, 1 << 40, 12, 7_200_001];
        let next = AtomicUsize::new(0);
        let clock = move || Millis(jumps[next.fetch_add(1, Ordering::Relaxed) % jumps.len()]);
        let writer = create_with_clock(&path, clock);
        for _ in 0..20 {
            writer.record(&[out(b"{}")]).unwrap();
        }
        drop(writer);
        let text = fs::read(&path).unwrap();
        let lines = text.trim_ascii_end().split(|byte| *byte == b'\n').skip(1);
        let times: Vec<u64> = lines
            .map(|line| TapeEntry::parse(line).unwrap().at.0)
            .collect();
        assert_eq!(times.len(), 20);
        assert!(times.is_sorted(), "{times:?}");
    }

    #[test]
    fn concurrent_records_form_a_dense_sequence() {
        const THREADS: u32 = 8;
        const EACH: usize = 200;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tape.jsonl");
        let writer = create(&path);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let writer = &writer;
                scope.spawn(move || {
                    let unit = UnitKey::new(format!("unit-{thread}"));
                    for step in 0..EACH {
                        let json = format!(r#"{{"n":{step},"pad":"{}"}}"#, "x".repeat(step * 7));
                        let body = EntryBody::Stdout(json.as_bytes());
                        let item = NewEntry {
                            attempt: Some((&unit, 1)),
                            body,
                        };
                        // Pairs must stay together.
                        writer.record(&[item.clone(), item]).unwrap();
                    }
                });
            }
        });
        drop(writer);

        let text = fs::read(&path).unwrap();
        let mut steps = vec![0_usize; THREADS as usize];
        let mut last = None;
        for (position, line) in text
            .split(|byte| *byte == b'\n')
            .skip(1)
            .filter(|line| !line.is_empty())
            .enumerate()
        {
            let entry = TapeEntry::parse(line).unwrap();
            assert_eq!(entry.seq, Seq(position as u64));
            let EntryBody::Stdout(json) = entry.body else {
                unreachable!("only stdout was recorded")
            };
            let value: serde_json::Value = serde_json::from_slice(json).unwrap();
            let unit = entry.attempt.unwrap().0.into_owned();
            let thread: usize = unit.trim_start_matches("unit-").parse().unwrap();
            if position % 2 == 0 {
                assert_eq!(value["n"], steps[thread], "order inside one thread");
                steps[thread] += 1;
                last = Some((unit, value));
            } else {
                assert_eq!(last, Some((unit, value)), "one record call is contiguous");
            }
        }
        assert_eq!(steps, vec![EACH; THREADS as usize]);
    }

    #[test]
    fn deleted_tape_fails_every_later_record() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tape.jsonl");
        let writer = create(&path);
        fs::remove_file(&path).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let error = loop {
            if let Err(error) = writer.record(&[out(b"{}")]) {
                break error;
            }
            assert!(Instant::now() < deadline, "the deletion was never noticed");
            ingestdeck_test_support::pause_before_check();
        };
        assert!(error.cause.contains("deleted"), "{error}");
        assert_eq!(writer.record(&[out(b"{}")]), Err(error.clone()));
    }

    #[test]
    fn full_disk_fails_every_later_record() {
        let path = Path::new("/dev/full");
        if !path.exists() {
            return;
        }
        let file = OpenOptions::new().append(true).open(path).unwrap();
        let shared = TapeWriterInner {
            path: path.to_owned(),
            clock: Box::new(|| Millis(0)),
            tape: Mutex::new(TapeWriterState {
                file,
                next: Seq(0),
                last_at: Millis(0),
                bytes: 0,
                buffer: Vec::new(),
                shared_values: SharedValues::default(),
                is_dirty: false,
                is_closing: false,
                error: None,
            }),
            wake_syncer: Condvar::new(),
            length_tx: watch::channel(0).0,
        };
        let first = shared.append(&[out(b"{}")]).unwrap_err();
        assert!(
            first
                .to_string()
                .starts_with("cannot write /dev/full: No space left"),
            "{first}"
        );
        assert_eq!(shared.append(&[]), Err(first));
    }
}
