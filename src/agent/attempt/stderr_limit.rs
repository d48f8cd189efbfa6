//! Limits the recorded stderr of an agent. An agent that repeats an error for hours would fill the disk.
//!
//! Lines up to the limit are recorded unchanged. Later lines are counted, and the tape has the counts. The verdict
//! always has the last lines.

use ingestdeck_core::tape::{Note, note::Severity};

/// The stderr of one attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct StderrLimit {
    limit: usize,
    recorded: usize,
    dropped_lines: u64,
    dropped_bytes: u64,
}

impl StderrLimit {
    /// Records up to `limit` bytes.
    pub(super) const fn new(limit: usize) -> Self {
        Self {
            limit,
            recorded: 0,
            dropped_lines: 0,
            dropped_bytes: 0,
        }
    }

    /// Returns whether to record the next line, of `bytes` bytes. After the first dropped line, all lines are dropped.
    pub(super) fn admits(&mut self, bytes: usize) -> bool {
        if self.dropped_lines == 0 && self.recorded + bytes <= self.limit {
            self.recorded += bytes;
            return true;
        }
        self.dropped_lines += 1;
        self.dropped_bytes += bytes as u64;
        false
    }

    /// The note about the first dropped line; `None` before it, or if `had_dropped` is true.
    pub(super) fn limit_reached_note(&self, had_dropped: bool) -> Option<Note> {
        let text = format!(
            "stderr exceeds {} bytes; the lines after this are not recorded",
            self.limit
        );
        (!had_dropped && self.has_dropped()).then_some(Note::Message {
            level: Severity::Warning,
            text,
        })
    }

    /// True once a line was dropped.
    pub(super) fn has_dropped(&self) -> bool {
        self.dropped_lines > 0
    }

    /// The note for the end of the attempt.
    pub(super) fn summary_note(&self) -> Option<Note> {
        let Self {
            dropped_lines,
            dropped_bytes,
            ..
        } = self;
        let text =
            format!("{dropped_lines} lines of stderr ({dropped_bytes} bytes) were not recorded");
        self.has_dropped().then_some(Note::Message {
            level: Severity::Warning,
            text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_limit_are_counted() {
        let mut stderr = StderrLimit::new(10);
        assert!(stderr.admits(6) && stderr.admits(4));
        assert_eq!(
            (stderr.limit_reached_note(false), stderr.summary_note()),
            (None, None)
        );
        assert!(
            !stderr.admits(1) && !stderr.admits(0),
            "no line is recorded after a gap"
        );
        assert!(
            stderr.limit_reached_note(false).is_some() && stderr.limit_reached_note(true).is_none()
        );
        let Some(Note::Message { text, .. }) = stderr.summary_note() else {
            panic!()
        };
        assert_eq!(text, "2 lines of stderr (1 bytes) were not recorded");
    }
}
