//! Records that make a run change or remove things: journals of unfinished work, and the ledger of worktrees.
//!
//! Such a file is only followed where it was written. A clone, an archive or a copy can bring along a file in the same
//! place, so every record is bound to the machine and to the very directory of the project. The number of the device is
//! not part of that: it may differ after a restart, which is when records are needed. This module must not know what the
//! records say.

use std::{io, path::Path};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};

use super::workspace::Hex;
use crate::scoped_dir::ScopedDir;

/// Version of what is written. Version 1 was not bound to anything.
const VERSION: u32 = 2;

/// A record as it is stored.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored<T> {
    version: u32,
    /// Where it is valid.
    project: String,
    content: T,
}

/// Why a record is not followed.
#[derive(Debug, thiserror::Error)]
pub enum ForeignRecord {
    /// It is none of this version.
    #[error("this version did not write it; an earlier one did, or it came with the project")]
    Unknown,
    /// It belongs elsewhere.
    #[error("it was written on another machine or in another copy of the project")]
    Elsewhere,
    /// It is part of the repository.
    #[error("git tracks it, so it came with the project")]
    Tracked,
    /// It names something that the program does not change.
    #[error("it names `{}`, which a run never writes", .0.escape_debug())]
    Forbidden(String),
    /// Its commits are missing.
    #[error("its commits cannot be compared ({0})")]
    Commits(String),
}

/// A journal that is not followed, with the way out.
#[derive(Debug, thiserror::Error)]
#[error("`{path}` is not followed: {why}; {remedy}, then delete it")]
pub struct RefusedJournal {
    /// Relative to the project.
    pub(super) path: &'static str,
    /// Why.
    pub(super) why: ForeignRecord,
    /// What to do before it is deleted.
    pub(super) remedy: &'static str,
}

/// `content` as a record of the project in `project`.
pub(super) fn encode<T: Serialize>(project: &ScopedDir, content: T) -> io::Result<Vec<u8>> {
    let stored = Stored { version: VERSION, project: identity(project)?, content };
    Ok(serde_json::to_vec(&stored)?)
}

/// What a record of the project in `project` says.
pub(super) fn decode<T: DeserializeOwned>(project: &ScopedDir, bytes: &[u8]) -> Result<T, ForeignRecord> {
    let stored: Stored<T> = serde_json::from_slice(bytes).map_err(|_| ForeignRecord::Unknown)?;
    if stored.version != VERSION {
        return Err(ForeignRecord::Unknown);
    }
    match identity(project) {
        Ok(identity) if identity == stored.project => Ok(stored.content),
        _ => Err(ForeignRecord::Elsewhere),
    }
}

/// What no other directory has, on this machine or another one. A hash, because others are not to learn the machine's id.
fn identity(project: &ScopedDir) -> io::Result<String> {
    let mut hash = Sha256::new();
    hash.update(b"ingestdeck project\0");
    hash.update(machine());
    hash.update(project.inode()?.to_be_bytes());
    Ok(Hex(Some(hash.finalize().into())).to_string())
}

/// The machine's id where it has one (Linux), else its name.
fn machine() -> Vec<u8> {
    let id = ScopedDir::open(Path::new("/etc")).and_then(|etc| etc.read("machine-id", 4096)).unwrap_or_default();
    if id.trim_ascii().is_empty() {
        nix::unistd::gethostname().map(|name| name.into_encoded_bytes()).unwrap_or_default()
    } else {
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Content {
        branch: String,
    }

    fn project() -> (tempfile::TempDir, ScopedDir) {
        let dir = tempfile::tempdir().unwrap();
        let project = ScopedDir::open(dir.path()).unwrap();
        (dir, project)
    }

    fn content() -> Content {
        Content { branch: "main".into() }
    }

    #[test]
    fn records_are_read_where_they_were_written() {
        let (_dir, project) = project();
        let bytes = encode(&project, content()).unwrap();
        assert_eq!(decode::<Content>(&project, &bytes).unwrap(), content());
    }

    #[test]
    fn records_of_another_copy_are_foreign() {
        let ((_dir, project), (_other, copy)) = (project(), project());
        let bytes = encode(&project, content()).unwrap();
        assert!(matches!(decode::<Content>(&copy, &bytes), Err(ForeignRecord::Elsewhere)));
    }

    #[test]
    fn anything_else_is_foreign() {
        let (_dir, project) = project();
        let good = String::from_utf8(encode(&project, content()).unwrap()).unwrap();
        for bad in [
            String::new(),
            r#"{"version":1,"branch":"main"}"#.into(),
            good.replace("\"version\":2", "\"version\":3"),
            good.replace("\"branch\"", "\"more\":1,\"branch\""),
            good.replacen('{', "{\"more\":1,", 1),
            good.replace("\"main\"", "1"),
        ] {
            assert!(matches!(decode::<Content>(&project, bad.as_bytes()), Err(ForeignRecord::Unknown)), "{bad}");
        }
    }
}
