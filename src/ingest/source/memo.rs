//! What was read before, so that a file in the same state need not be read again.
//!
//! Kept in `.ktx/ingestdeck/prints`, once there is such a folder: a plan leaves nothing in a project that never ran
//! anything. Losing it costs time, never truth. It must not know what a plan does with it.

use std::{collections::HashMap, path::Path, time::SystemTime};

use serde::{Deserialize, Serialize};

use super::{
    print::{Fingerprint, Known, Stamp},
    tree::Tree,
};
use crate::scoped_dir::{PRIVATE, ScopedDir};

/// Directory of this program, relative to the project.
const DECK: &str = ".ktx/ingestdeck";
/// Largest memory that is read, in bytes.
const LARGEST: u64 = 64 * 1024 * 1024;
/// What the memory is worth changes with what a fingerprint says about a file.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Memo {
    version: u32,
    files: HashMap<String, (Stamp, String)>,
}

/// What is remembered of the files of `connection`.
pub(crate) fn recall(project: &Path, connection: &str) -> Known {
    let bytes = ScopedDir::open(project).and_then(|folder| folder.read(&place(connection), LARGEST));
    let memo = bytes.ok().and_then(|bytes| serde_json::from_slice::<Memo>(&bytes).ok());
    let files = memo.filter(|memo| memo.version == VERSION).map(|memo| memo.files).unwrap_or_default();
    files.into_iter().filter_map(|(path, (stamp, print))| Some((path, (stamp, Fingerprint::parse(&print)?)))).collect()
}

/// Remembers the files of `tree`, every one of which was read, unless `known` has them all. Files that changed a moment
/// ago are left out: they could change again without a trace.
pub(crate) fn keep(project: &Path, connection: &str, tree: &Tree, known: &Known) {
    let now = SystemTime::now();
    let settled = || tree.files.iter().filter(|file| file.stamp.is_settled(now));
    if settled().all(|file| known.get(&file.path).is_some_and(|(stamp, _)| *stamp == file.stamp)) {
        return;
    }
    let Ok(project) = ScopedDir::open(project) else { return };
    if !project.dir_if_there(DECK).is_ok_and(|deck| deck.is_some()) {
        return;
    }
    let files = settled().filter_map(|file| Some((file.path.clone(), (file.stamp, file.print?.to_string())))).collect();
    let Ok(bytes) = serde_json::to_vec(&Memo { version: VERSION, files }) else { return };
    let kept = project.write(&place(connection), &bytes, PRIVATE, 0o600);
    if let Err(error) = kept {
        tracing::warn!(%error, connection, "what was read is not remembered; the next plan reads it again");
    }
}

fn place(connection: &str) -> String {
    format!("{DECK}/prints/{connection}.json")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::ingest::source::{print, tests::tree_of};

    /// As [`tree_of`], long ago.
    fn old_tree(dir: &Path) -> Tree {
        let mut tree = Tree::walk(dir, &|_| true).unwrap();
        print::read(&mut tree, &Known::new());
        tree.files.iter_mut().for_each(|file| file.stamp.age());
        tree
    }

    #[test]
    fn what_was_kept_is_recalled_once_the_project_has_run() {
        let (dir, _) = tree_of(&[("a.md", "one"), ("b.md", "two")]);
        let project = tempfile::tempdir().unwrap();
        let tree = old_tree(dir.path());
        keep(project.path(), "c", &tree, &Known::new());
        assert_eq!(fs::read_dir(project.path()).unwrap().count(), 0, "nothing is left in a project that never ran");
        fs::create_dir_all(project.path().join(DECK)).unwrap();
        keep(project.path(), "c", &tree, &Known::new());
        let known = recall(project.path(), "c");
        assert_eq!(known.len(), 2);
        assert_eq!(known.get("a.md").map(|(_, print)| *print), Some(Fingerprint::of(b"one")));
        assert!(recall(project.path(), "other").is_empty());
    }

    #[test]
    fn what_changed_a_moment_ago_is_not_remembered() {
        let (_dir, tree) = tree_of(&[("a.md", "one")]);
        let project = tempfile::tempdir().unwrap();
        fs::create_dir_all(project.path().join(DECK)).unwrap();
        keep(project.path(), "c", &tree, &Known::new());
        assert!(recall(project.path(), "c").is_empty());
    }

    #[test]
    fn a_broken_memory_is_none() {
        let project = tempfile::tempdir().unwrap();
        fs::create_dir_all(project.path().join(DECK).join("prints")).unwrap();
        for text in ["", "{", "[]", r#"{"version":2,"files":{}}"#, r#"{"version":1,"files":{"a":[{"device":1},"x"]}}"#]
        {
            fs::write(project.path().join(place("c")), text).unwrap();
            assert!(recall(project.path(), "c").is_empty(), "{text}");
        }
    }
}
