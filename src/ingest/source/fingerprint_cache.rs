//! A cache of fingerprints, so that unchanged files are not read again.
//!
//! The cache is stored in `.ktx/ingestdeck/prints` if that folder's parent exists: a plan does not create files in a
//! project without runs. Losing the cache costs time, never correctness. This module must not know how plans use it.

use std::{collections::HashMap, path::Path, time::SystemTime};

use serde::{Deserialize, Serialize};

use super::{
    file_stamp::{FileStamp, Fingerprint},
    fingerprint::KnownFingerprints,
    tree::SourceTree,
};
use ingestdeck_os::scoped_dir::{PRIVATE_MODE, ScopedDir};

/// Directory of this program, relative to the project.
const STATE_DIR: &str = ".ktx/ingestdeck";
/// Largest cache that is read, in bytes.
const MAX_CACHE_BYTES: u64 = 64 * 1024 * 1024;
/// Version of the format. It also changes when the meaning of a fingerprint changes.
const CACHE_VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct FingerprintCacheFile {
    version: u32,
    files: HashMap<String, (FileStamp, String)>,
}

/// The cached fingerprints of `connection`.
pub(crate) fn load(project: &Path, connection: &str) -> KnownFingerprints {
    let bytes = ScopedDir::open(project)
        .and_then(|folder| folder.read(&cache_path(connection), MAX_CACHE_BYTES));
    let memo = bytes
        .ok()
        .and_then(|bytes| serde_json::from_slice::<FingerprintCacheFile>(&bytes).ok());
    let files = memo
        .filter(|memo| memo.version == CACHE_VERSION)
        .map(|memo| memo.files)
        .unwrap_or_default();
    files
        .into_iter()
        .filter_map(|(path, (stamp, print))| Some((path, (stamp, Fingerprint::parse(&print)?))))
        .collect()
}

/// Stores the fingerprints of `tree`, whose files were all read, unless `known` contains them all. Recently changed
/// files are left out, because they could change again without a difference in their timestamps.
pub(crate) fn save(project: &Path, connection: &str, tree: &SourceTree, known: &KnownFingerprints) {
    let now = SystemTime::now();
    let settled = || tree.files.iter().filter(|file| file.stamp.is_settled(now));
    if settled().all(|file| {
        known
            .get(&file.path)
            .is_some_and(|(stamp, _)| *stamp == file.stamp)
    }) {
        return;
    }
    let Ok(project) = ScopedDir::open(project) else {
        return;
    };
    if !project
        .dir_if_exists(STATE_DIR)
        .is_ok_and(|deck| deck.is_some())
    {
        return;
    }
    let files = settled()
        .filter_map(|file| {
            Some((
                file.path.clone(),
                (file.stamp, file.fingerprint?.to_string()),
            ))
        })
        .collect();
    let Ok(bytes) = serde_json::to_vec(&FingerprintCacheFile {
        version: CACHE_VERSION,
        files,
    }) else {
        return;
    };
    let kept = project.write(&cache_path(connection), &bytes, PRIVATE_MODE, 0o600);
    if let Err(error) = kept {
        tracing::warn!(%error, connection, "cannot save the fingerprints; the next plan reads the files again");
    }
}

fn cache_path(connection: &str) -> String {
    format!("{STATE_DIR}/prints/{connection}.json")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::source::{fingerprint, tests::tree_of};

    /// Like [`tree_of`], with files that changed long ago.
    fn old_tree(dir: &Path) -> SourceTree {
        let mut tree = SourceTree::walk(dir, &|_| true).unwrap();
        fingerprint::fingerprint_tree(&mut tree, &KnownFingerprints::new());
        tree.files.iter_mut().for_each(|file| file.stamp.backdate());
        tree
    }

    #[test]
    fn fingerprints_are_cached_once_the_project_has_run() {
        let (dir, _) = tree_of(&[("a.md", "one"), ("b.md", "two")]);
        let project = tempfile::tempdir().unwrap();
        let tree = old_tree(dir.path());
        save(project.path(), "c", &tree, &KnownFingerprints::new());
        assert_eq!(
            fs::read_dir(project.path()).unwrap().count(),
            0,
            "no file is created in a project without runs"
        );
        fs::create_dir_all(project.path().join(STATE_DIR)).unwrap();
        save(project.path(), "c", &tree, &KnownFingerprints::new());
        let known = load(project.path(), "c");
        assert_eq!(known.len(), 2);
        assert_eq!(
            known.get("a.md").map(|(_, print)| *print),
            Some(Fingerprint::from_bytes(b"one"))
        );
        assert!(load(project.path(), "other").is_empty());
    }

    #[test]
    fn recently_changed_files_are_not_cached() {
        let (_dir, tree) = tree_of(&[("a.md", "one")]);
        let project = tempfile::tempdir().unwrap();
        fs::create_dir_all(project.path().join(STATE_DIR)).unwrap();
        save(project.path(), "c", &tree, &KnownFingerprints::new());
        assert!(load(project.path(), "c").is_empty());
    }

    #[test]
    fn broken_cache_is_ignored() {
        let project = tempfile::tempdir().unwrap();
        fs::create_dir_all(project.path().join(STATE_DIR).join("prints")).unwrap();
        for text in [
            "",
            "{",
            "[]",
            r#"{"version":2,"files":{}}"#,
            r#"{"version":1,"files":{"a":[{"device":1},"x"]}}"#,
        ] {
            fs::write(project.path().join(cache_path("c")), text).unwrap();
            assert!(load(project.path(), "c").is_empty(), "{text}");
        }
    }
}
