//! Identities: runs, units and positions on a tape. Opaque to other modules; no I/O.

use std::{borrow::Borrow, fmt, ops::Deref, sync::Arc};

use serde::{Deserialize, Serialize};

/// Position of an entry in its source: 0 is the first entry after the header.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Unit key of the reconcile step.
pub const RECONCILE_KEY: &str = "reconcile";
/// Unit key of a conversation, which is not an ingest.
pub const SESSION_KEY: &str = "session";
/// Name of the writer of sources that were projected before any unit ran, in place of a unit key.
pub const PROJECTION_KEY: &str = "projection";
/// Name of the writer of pages that are documents kept verbatim, in place of a unit key.
pub const VERBATIM_KEY: &str = "verbatim";

/// Name of a work unit, unique in its run. For a bare capture it is the session id, or the file's stem.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnitKey(Arc<str>);

impl UnitKey {
    /// Wraps `key` without trimming or escaping it.
    pub fn new(key: impl Into<Arc<str>>) -> Self {
        Self(key.into())
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True for a writer that has no attempt: the run itself derived the artifact from raw files.
    pub fn is_without_attempt(&self) -> bool {
        [PROJECTION_KEY, VERBATIM_KEY].contains(&self.as_str())
    }
}

impl Deref for UnitKey {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for UnitKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UnitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl From<&str> for UnitKey {
    fn from(key: &str) -> Self {
        Self::new(key)
    }
}

/// Identity of a run: a UUIDv7, so that ids sort by start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub uuid::Uuid);

impl RunId {
    /// Parses the hyphenated or plain hexadecimal form.
    pub fn parse(text: &str) -> Option<Self> {
        uuid::Uuid::try_parse(text).ok().map(Self)
    }

    /// Start time of the run by its clock, in milliseconds since 1970. Ids are ordered by it.
    pub fn started_at_ms(&self) -> u64 {
        let [a, b, c, d, e, f, ..] = *self.0.as_bytes();
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// This id, or one that is later than `newest`: a clock that was set back must not change the order of runs.
    #[must_use]
    pub fn later_than(self, newest: Self) -> Self {
        if self > newest {
            return self;
        }
        let [_, _, time @ ..] = newest.started_at_ms().saturating_add(1).to_be_bytes();
        let mut bytes = *self.0.as_bytes();
        bytes[..6].copy_from_slice(&time);
        let later = Self(uuid::Uuid::from_bytes(bytes));
        // No id is later than the last millisecond that an id can represent.
        if later > newest { later } else { self }
    }

    /// The part that distinguishes runs for people: the random tail, because the head of a UUIDv7 is a clock and the
    /// same for hours.
    pub fn short(&self) -> String {
        let text = self.0.simple().to_string();
        text.chars().skip(text.len() - 6).collect()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
