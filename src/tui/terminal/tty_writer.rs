//! Output to the terminal.
//!
//! A terminal that does not accept output, for example after a broken connection, must not block the agents, whose
//! output is read by the same threads. It must not know what is written.

#![expect(clippy::disallowed_methods, reason = "the terminal")]

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt as _,
};

use nix::{fcntl::OFlag, unistd};
use tokio::task::block_in_place;

/// Writes to the terminal of stdout.
#[derive(Debug)]
pub(super) struct TtyWriter {
    /// The same terminal, opened non-blocking. A separate file description keeps other processes' descriptors blocking.
    nonblocking: Option<File>,
}

impl TtyWriter {
    /// Opens the terminal without writing to it.
    pub(super) fn open() -> Self {
        let path = unistd::ttyname(io::stdout()).ok();
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let again = |path| {
            OpenOptions::new()
                .write(true)
                .custom_flags(flags.bits())
                .open(path)
                .ok()
        };
        Self {
            nonblocking: path.and_then(again),
        }
    }

    /// Writes all bytes, blocking if the terminal is slow.
    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let taken = self
            .nonblocking
            .as_mut()
            .map_or(0, |terminal| write_nonblocking(terminal, bytes));
        let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) else {
            return Ok(());
        };
        // `block_in_place` costs a thread switch, so it is used only if the terminal does not accept the whole frame.
        block_in_place(|| {
            let mut out = io::stdout().lock();
            out.write_all(rest).and_then(|()| out.flush())
        })
    }
}

/// Writes without blocking; returns the number of bytes written. An error is reported by the blocking write that
/// follows.
fn write_nonblocking(terminal: &mut impl Write, bytes: &[u8]) -> usize {
    let mut taken = 0;
    while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
        match terminal.write(rest) {
            Ok(0) => break,
            Ok(more) => taken += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A terminal that accepts these numbers of bytes, or fails with these errors.
    struct Slow(VecDeque<io::Result<usize>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let next = self.0.pop_front().unwrap_or(Ok(usize::MAX));
            next.map(|most| most.min(bytes.len()))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nonblocking_write_counts_accepted_bytes() {
        let fails = |kind: io::ErrorKind| Err(kind.into());
        for (answers, taken) in [
            (vec![], 10),
            (vec![Ok(4), Ok(3)], 10),
            (vec![Ok(4), fails(io::ErrorKind::Interrupted), Ok(6)], 10),
            (vec![Ok(4), fails(io::ErrorKind::WouldBlock)], 4),
            (vec![fails(io::ErrorKind::WouldBlock)], 0),
            (vec![Ok(9), Ok(0)], 9),
            (vec![Ok(2), fails(io::ErrorKind::Other)], 2),
        ] {
            assert_eq!(
                write_nonblocking(&mut Slow(answers.into()), b"0123456789"),
                taken
            );
        }
    }
}
