//! What identifies the content of a file: its hash, and its state on disk.

use std::{
    fmt,
    fs::Metadata,
    os::unix::fs::MetadataExt as _,
    time::{Duration, SystemTime},
};

use nix::sys::stat::FileStat;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A file that changed within this time may change again without a difference in its timestamps.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// SHA-256 of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub(super) [u8; 32]);

impl Fingerprint {
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Parses 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digit = |at: usize| {
                pair.get(at)
                    .and_then(|digit| char::from(*digit).to_digit(16))
            };
            *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
        }
        Some(Self(bytes))
    }
}

/// Formats the hash as 64 hexadecimal digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The state of a file on disk. Every change of the content changes one of these fields; programs cannot set the change
/// time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    pub(crate) fn from_metadata(meta: &Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            bytes: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }

    /// Like [`from_metadata`](Self::from_metadata), from the `stat` of a directory entry.
    pub(crate) fn from_stat(stat: &FileStat) -> Self {
        Self {
            device: stat.st_dev as _,
            inode: stat.st_ino as _,
            bytes: stat.st_size.try_into().unwrap_or(0),
            modified: (stat.st_mtime as _, stat.st_mtime_nsec as _),
            changed: (stat.st_ctime as _, stat.st_ctime_nsec as _),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sets the timestamps to a time long ago.
    #[cfg(test)]
    pub(super) fn backdate(&mut self) {
        self.modified.0 -= 3_600;
        self.changed.0 -= 3_600;
    }

    /// False while a further change could keep the same timestamps.
    pub(crate) fn is_settled(&self, now: SystemTime) -> bool {
        let now = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let last = self.modified.0.max(self.changed.0);
        u64::try_from(last).is_ok_and(|last| {
            now.checked_sub(Duration::from_secs(last))
                .is_some_and(|age| age > SETTLE_TIME)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recently_changed_file_is_not_settled() {
        let now = SystemTime::now();
        let second = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_secs() as i64;
        let at = |second| FileStamp {
            modified: (second, 0),
            changed: (second, 0),
            ..FileStamp::default()
        };
        assert!(!at(second).is_settled(now) && !at(second + 60).is_settled(now));
        assert!(at(second - 10).is_settled(now));
    }
}
