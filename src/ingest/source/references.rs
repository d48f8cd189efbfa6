//! References between the files of a source: the names that a file defines, and the names that it refers to.
//!
//! Adapters read both; `plan` compares them with the files that changed. A name is `kind:name`, such as `model:orders`,
//! so that `m1` is not `m10` and a model is not a metric. This module must not know which files changed.

use std::collections::BTreeSet;

pub(super) mod calls;
pub(super) mod dbt_yaml;

use super::UnitChunk;

/// Most names of one file.
const MAX_NAMES: usize = 20_000;
/// Longest name, in bytes.
const MAX_NAME_BYTES: usize = 500;

/// What a file refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileReferences {
    pub(crate) names: BTreeSet<String>,
    /// Names that a file outside the source may define, too.
    pub(crate) open_names: BTreeSet<String>,
    /// Packages whose objects the file names.
    pub(crate) packages: BTreeSet<String>,
    /// True if the file may refer to anything, because it cannot be read or computes a name.
    pub(crate) is_unknown: bool,
}

impl FileReferences {
    pub(super) fn unknown() -> Self {
        Self {
            is_unknown: true,
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, kind: &str, name: &str) {
        self.is_unknown |= !add_name(&mut self.names, kind, name);
    }

    pub(super) fn add_open(&mut self, kind: &str, name: &str) {
        self.is_unknown |= !add_name(&mut self.open_names, kind, name);
    }

    pub(super) fn add_package(&mut self, name: &str) {
        if name.len() <= MAX_NAME_BYTES && self.packages.len() < MAX_NAMES {
            self.packages.insert(name.to_owned());
        }
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.is_unknown |= other.is_unknown;
        self.names.extend(other.names);
        self.open_names.extend(other.open_names);
        self.packages.extend(other.packages);
    }
}

/// Reads what the files of a source refer to.
pub trait ReferenceReader {
    /// What `path`, a raw file of `unit`, refers to.
    fn references(&mut self, unit: &UnitChunk, path: &str) -> FileReferences;

    /// Whether a name in the file `from`, which has these `references`, can be one that the file `to` defines.
    fn may_see(&self, _from: &str, _references: &FileReferences, _to: &str) -> bool {
        true
    }

    /// True if a file refers to an object that no file of the source defines.
    fn refers_to_undefined(&mut self, references: &FileReferences) -> bool;
}

/// The name of a file as a whole.
pub(crate) fn file_name(path: &str) -> String {
    format!("file:{path}")
}

/// Adds a name to names of a file. False if it does not fit.
pub(super) fn add_name(names: &mut BTreeSet<String>, kind: &str, name: &str) -> bool {
    let fits = names.len() < MAX_NAMES && name.len() <= MAX_NAME_BYTES;
    if fits && !name.is_empty() {
        names.insert(format!("{kind}:{name}"));
    }
    fits
}
