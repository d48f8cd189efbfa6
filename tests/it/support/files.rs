//! Snapshots of a directory's content, for comparison before and after a test.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
};

/// File type, without following links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    File,
    Directory,
    Link,
    Special,
}

/// All entries below `dir` by relative path: type, and the bytes of a file or the target of a link.
pub(crate) fn tree_snapshot(dir: &Path) -> BTreeMap<PathBuf, (EntryKind, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(inner) = open.pop() {
        for entry in fs::read_dir(&inner).unwrap() {
            let path = entry.unwrap().path();
            let kind = path.symlink_metadata().unwrap().file_type();
            let content = if kind.is_file() {
                (EntryKind::File, fs::read(&path).unwrap())
            } else if kind.is_symlink() {
                (
                    EntryKind::Link,
                    fs::read_link(&path).unwrap().into_os_string().into_vec(),
                )
            } else if kind.is_dir() {
                open.push(path.clone());
                (EntryKind::Directory, Vec::new())
            } else {
                (EntryKind::Special, Vec::new())
            };
            found.insert(path.strip_prefix(dir).unwrap().to_path_buf(), content);
        }
    }
    found
}
