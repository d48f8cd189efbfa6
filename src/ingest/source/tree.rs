//! The files below a source directory in a fixed order, and the skipped files with the reasons.
//!
//! Nothing is read through a symbolic link. A link that leads to a file or folder of the source is recorded, because that
//! is read under its own path; other links are skipped. Names that could be mistaken for part of a prompt are rejected.
//! This module must not know the purpose or the content of the files.

#![expect(
    clippy::disallowed_methods,
    reason = "resolves the path of a link, and reads nothing there"
)]

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use nix::{libc::mode_t, sys::stat::FileStat};

use super::file_stamp::{FileStamp, Fingerprint};
use crate::untrusted_text::{is_presentable, visible_path};
use ingestdeck_core::diagnostic::Problem;
use ingestdeck_os::scoped_dir::{FileKind, ScopedDir};

/// Most files of one source.
const MAX_FILES: usize = 100_000;
/// Greatest depth of a directory that is visited.
const MAX_DEPTH: usize = 64;
/// Why a file is skipped that may be one of the user's outside the source.
const HARD_LINK_REASON: &str =
    "it has another name, by a hard link, and other rights than its folder; copy it";
/// Access of group and others.
const SHARED_BITS: mode_t = 0o077;
/// Why a symbolic link is skipped.
const LINK_REASON: &str = "it is a symbolic link; only files inside the source are read";
/// Why a link to nothing is skipped.
const BROKEN_LINK_REASON: &str = "it is a symbolic link to a file that does not exist";
/// Why a link to one of the folders above it is skipped.
const CYCLE_REASON: &str = "it is a symbolic link to a folder that contains it";
/// Largest file whose text an adapter reads, in bytes.
const MAX_TEXT_BYTES: u64 = 8 * 1024 * 1024;

/// The files of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceTree {
    pub root: PathBuf,
    /// Files, sorted by path.
    pub files: Vec<RawFile>,
    /// Skipped files, one sentence each.
    pub warnings: Vec<Problem>,
    /// Paths of skipped symbolic links, each of which also has a warning.
    pub skipped_links: Vec<String>,
    /// Symbolic links to files and folders of the source, each with the path that it leads to.
    pub(crate) links: Vec<(String, String)>,
    /// Files and folders that exist and cannot be read; the empty path means the whole source.
    pub unreadable_paths: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawFile {
    /// Path relative to the source, with `/`.
    pub path: String,
    pub bytes: u64,
    /// Hash of the content; `None` until the file is read.
    pub fingerprint: Option<Fingerprint>,
    /// The state of the file that `bytes` and `fingerprint` belong to.
    pub(crate) stamp: FileStamp,
}

impl RawFile {
    /// A file that is not read yet.
    pub(super) fn new(path: String, stamp: FileStamp) -> Self {
        Self {
            path,
            bytes: stamp.bytes(),
            fingerprint: None,
            stamp,
        }
    }
}

/// Which paths a walk includes.
#[derive(Clone, Copy)]
pub(super) struct WalkFilter<'a> {
    pub(super) accepts_file: &'a dyn Fn(&str) -> bool,
    pub(super) accepts_dir: &'a dyn Fn(&str) -> bool,
}

impl SourceTree {
    /// Lists the files below `root` that `takes` accepts. Hidden files and folders are skipped without a warning;
    /// links, special files and names that cannot be shown are skipped with one.
    pub fn walk(root: &Path, takes: &dyn Fn(&str) -> bool) -> io::Result<Self> {
        Self::walk_filtered(
            root,
            WalkFilter {
                accepts_file: takes,
                accepts_dir: &|_| true,
            },
        )
    }

    /// Like [`walk`](Self::walk), and skips unwanted folders without a warning.
    pub(super) fn walk_filtered(root: &Path, wanted: WalkFilter<'_>) -> io::Result<Self> {
        let mut tree = Self {
            root: root.to_path_buf(),
            ..Self::default()
        };
        let dir = ScopedDir::open(root)?;
        tree.visit("", &dir, dir.entries()?, 0, wanted);
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        tree.report_unread_targets(wanted);
        tree.warnings.sort();
        tree.skipped_links.sort();
        tree.links.sort();
        Ok(tree)
    }

    fn visit(
        &mut self,
        prefix: &str,
        dir: &ScopedDir,
        mut entries: Vec<(OsString, FileKind)>,
        depth: usize,
        wanted: WalkFilter<'_>,
    ) {
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        for (name, kind) in entries {
            let Some(name) = name.to_str().filter(|name| is_presentable(name)) else {
                let path = format!("{prefix}{}", name.to_string_lossy());
                self.warnings.push(
                    Problem::new(format!(
                        "{} is skipped: its name cannot be shown safely",
                        visible_path(&path)
                    ))
                    .with_help("rename it"),
                );
                continue;
            };
            if name.starts_with('.') {
                continue;
            }
            if self.files.len() >= MAX_FILES {
                self.warnings.push(
                    Problem::new(format!("only the first {MAX_FILES} files are read"))
                        .with_help("point source_dir at fewer"),
                );
                self.unreadable_paths.push(String::new());
                return;
            }
            self.add_entry(format!("{prefix}{name}"), dir, (name, kind), depth, wanted);
        }
    }

    fn add_entry(
        &mut self,
        path: String,
        dir: &ScopedDir,
        (name, kind): (&str, FileKind),
        depth: usize,
        wanted: WalkFilter<'_>,
    ) {
        match kind {
            FileKind::Directory if !(wanted.accepts_dir)(&path) => {}
            FileKind::Directory if depth < MAX_DEPTH => {
                let opened = dir
                    .dir(name, None)
                    .and_then(|inner| Ok((inner.entries()?, inner)));
                match opened {
                    Ok((entries, inner)) => {
                        self.visit(&format!("{path}/"), &inner, entries, depth + 1, wanted)
                    }
                    Err(error) => self.skip(path, &error.to_string()),
                }
            }
            FileKind::Directory => self.skip(path, "it is nested too deeply"),
            FileKind::File if !(wanted.accepts_file)(&path) => {}
            FileKind::File => match dir.entry_stat(name) {
                Ok(stat) if hard_link_refusal(&stat, || dir.entry_stat(".")).is_some() => {
                    self.skip(path, HARD_LINK_REASON);
                }
                Ok(stat) => self
                    .files
                    .push(RawFile::new(path, FileStamp::from_stat(&stat))),
                Err(error) => self.skip(path, &error.to_string()),
            },
            FileKind::Symlink => match self.link_target(&path) {
                Ok(target) => self.links.push((path, target)),
                Err(why) => {
                    if why == LINK_REASON {
                        self.skipped_links.push(path.clone());
                    }
                    self.skip(path, why);
                }
            },
            FileKind::Socket | FileKind::Special => self.skip(path, "it is not a regular file"),
        }
    }

    /// The path in the source that the link at `path` leads to. The error is the reason why it is skipped.
    fn link_target(&self, path: &str) -> Result<String, &'static str> {
        let link = self.root.join(path);
        let target = match link.canonicalize() {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(BROKEN_LINK_REASON);
            }
            Err(_) => return Err(LINK_REASON),
        };
        let root = self.root.canonicalize().map_err(|_| LINK_REASON)?;
        let inside = target.strip_prefix(&root).map_err(|_| LINK_REASON)?;
        if link.parent().is_some_and(|folder| {
            folder
                .canonicalize()
                .is_ok_and(|folder| folder.starts_with(&target))
        }) {
            return Err(CYCLE_REASON);
        }
        inside.to_str().map(str::to_owned).ok_or(LINK_REASON)
    }

    /// Skips links to files and folders of the source that are not read under their own path.
    fn report_unread_targets(&mut self, wanted: WalkFilter<'_>) {
        let links = std::mem::take(&mut self.links);
        let is_visited = |path: &str| {
            let ends = path.match_indices('/').map(|(at, _)| at);
            ends.chain([path.len()]).all(|end| {
                let dir = path.get(..end).unwrap_or_default();
                let name = dir.rsplit('/').next().unwrap_or_default();
                !name.starts_with('.') && (wanted.accepts_dir)(dir)
            })
        };
        let is_read = |(link, target): &(String, String)| {
            if self.root.join(target).is_dir() {
                return is_visited(target);
            }
            self.get(target).is_some() || !(wanted.accepts_file)(link)
        };
        let (links, unread): (Vec<_>, Vec<_>) = links.into_iter().partition(is_read);
        self.links = links;
        for (link, target) in unread {
            let target = visible_path(&target);
            self.skip(
                link,
                &format!("it is a symbolic link to `{target}`, which is not read"),
            );
        }
    }

    /// Adds a warning about a file or folder that exists and is skipped.
    pub(super) fn skip(&mut self, path: String, why: &str) {
        self.warnings.push(skipped(&path, why));
        self.unreadable_paths.push(path);
    }

    /// True if `path` may exist although it is not among the files.
    pub(crate) fn may_contain(&self, path: &str) -> bool {
        self.unreadable_paths.iter().any(|unseen| {
            unseen.is_empty()
                || path
                    .strip_prefix(unseen.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    pub(crate) fn get(&self, path: &str) -> Option<&RawFile> {
        self.files
            .binary_search_by(|file| file.path.as_str().cmp(path))
            .ok()
            .and_then(|at| self.files.get(at))
    }

    /// True if `path` is a regular file that is reached without links.
    pub(super) fn is_file(&self, path: &str) -> bool {
        ScopedDir::open(&self.root).is_ok_and(|root| root.is_file(path))
    }

    /// The text of `path`. The error continues a sentence about the file.
    pub(crate) fn read_text(&self, path: &str) -> io::Result<String> {
        let bytes = ScopedDir::open(&self.root)?.read(path, MAX_TEXT_BYTES)?;
        String::from_utf8(bytes)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
    }
}

/// Why `file`, an entry of `folder`, is not read although it is a regular file; `None` if it may be read.
///
/// A hard link gives a file outside the source, such as a private key, a name inside it. Checkouts, package managers and
/// backups make such links, too, and then the file has the owner and the rights of its folder.
pub(super) fn hard_link_refusal(
    file: &FileStat,
    folder: impl FnOnce() -> io::Result<FileStat>,
) -> Option<&'static str> {
    let is_alike = |folder: FileStat| {
        let is_shared = |stat: &FileStat| stat.st_mode & SHARED_BITS != 0;
        file.st_uid == folder.st_uid && (is_shared(file) || !is_shared(&folder))
    };
    (file.st_nlink > 1 && !folder().is_ok_and(is_alike)).then_some(HARD_LINK_REASON)
}

fn skipped(path: &str, why: &str) -> Problem {
    Problem::new(format!("{} is skipped: {why}", visible_path(path)))
}

pub(crate) fn skipped_link_warning(path: &str) -> Problem {
    skipped(path, LINK_REASON)
}

/// Whether `path` ends with one of `extensions` (lower case, without the dot), ignoring case.
pub(crate) fn has_extension(path: &str, extensions: &[&str]) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    extension.is_some_and(|extension| {
        extensions
            .iter()
            .any(|known| extension.eq_ignore_ascii_case(known))
    })
}

#[cfg(test)]
mod tests {
    use std::{
        ffi::OsStr,
        fs,
        os::unix::{
            ffi::OsStrExt,
            fs::{PermissionsExt as _, symlink},
        },
    };

    use super::*;

    #[test]
    fn unsafe_files_are_skipped_with_warnings() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("b/deep")).unwrap();
        fs::create_dir(at(".git")).unwrap();
        fs::write(at(".git/config.md"), "x").unwrap();
        fs::write(at("b/deep/z.MD"), "x").unwrap();
        fs::write(at("a.md"), "x").unwrap();
        fs::write(at("bad\nname.md"), "x").unwrap();
        fs::write(at("rtl\u{202e}dm.md"), "x").unwrap();
        fs::write(dir.path().join(OsStr::from_bytes(b"latin\xe9.md")), "x").unwrap();
        fs::write(outside.path().join("s.md"), "x").unwrap();
        fs::write(at("b/linked-too.md"), "x").unwrap();
        fs::hard_link(at("b/linked-too.md"), at("b/deep/y.md")).unwrap();
        fs::write(outside.path().join("id_rsa"), "x").unwrap();
        for (path, mode) in [(dir.path(), 0o755), (&outside.path().join("id_rsa"), 0o600)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::hard_link(outside.path().join("id_rsa"), at("key.md")).unwrap();
        symlink(outside.path(), at("linked")).unwrap();
        symlink(outside.path().join("s.md"), at("s.md")).unwrap();
        symlink("nowhere", at("dangling.md")).unwrap();
        symlink(".", at("b/loop")).unwrap();
        nix::unistd::mkfifo(&at("pipe.md"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let tree = SourceTree::walk(dir.path(), &|_| true).unwrap();
        let paths: Vec<_> = tree.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(
            paths,
            ["a.md", "b/deep/y.md", "b/deep/z.MD", "b/linked-too.md"]
        );
        assert!(paths.iter().all(|path| has_extension(path, &["md"])));
        assert!(
            tree.may_contain("linked/x.md")
                && tree.may_contain("s.md")
                && !tree.may_contain("gone.md")
        );
        assert_eq!(tree.get("b/deep/z.MD").map(|file| file.bytes), Some(1));
        insta::assert_snapshot!(ingestdeck_core::diagnostic::to_lines(&tree.warnings).join("\n"));
    }
}
