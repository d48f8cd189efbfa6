//! The files below a source directory, in a fixed order, with what was left out and why.
//!
//! Nothing is followed that leads elsewhere, and no name gets through that could pose as part of a prompt. It must not
//! know what the files are for.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use crate::ingest::beneath::Folder;

/// Most files of one source.
const MOST_FILES: usize = 100_000;
/// Deepest directory that is visited.
const DEEPEST: usize = 64;
/// Largest raw file, in bytes. Larger ones are data, not documentation.
const LARGEST: u64 = 8 * 1024 * 1024;
/// How much of a file is looked at to tell text from binary, in bytes.
const HEAD: u64 = 64 * 1024;

/// The files of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The directory.
    pub root: PathBuf,
    /// Files, sorted by path.
    pub files: Vec<RawFile>,
    /// What was left out, one sentence each.
    pub warnings: Vec<String>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawFile {
    /// Path relative to the source, with `/`.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
}

impl Tree {
    /// Lists the files below `root`. Hidden files and folders are passed over in silence; links, special files and
    /// names that cannot be shown with a warning.
    pub fn walk(root: &Path) -> std::io::Result<Self> {
        let mut tree = Self { root: root.to_path_buf(), ..Self::default() };
        let entries = std::fs::read_dir(root)?;
        tree.visit("", entries, 0);
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        tree.warnings.sort();
        Ok(tree)
    }

    fn visit(&mut self, prefix: &str, entries: std::fs::ReadDir, depth: usize) {
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.warnings.push(format!("a part of {} cannot be listed: {error}", shown(prefix)));
                    continue;
                }
            };
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| presentable(name)) else {
                let path = format!("{prefix}{}", name.to_string_lossy());
                self.warnings.push(format!("{} is skipped: its name cannot be shown safely; rename it", shown(&path)));
                continue;
            };
            if name.starts_with('.') {
                continue;
            }
            if self.files.len() >= MOST_FILES {
                self.warnings
                    .push(format!("only the first {MOST_FILES} files are looked at; point source_dir at less"));
                return;
            }
            self.take(format!("{prefix}{name}"), &entry, depth);
        }
    }

    fn take(&mut self, path: String, entry: &std::fs::DirEntry, depth: usize) {
        let kind = match entry.file_type() {
            Ok(kind) => kind,
            Err(error) => return self.warnings.push(format!("{} is skipped: {error}", shown(&path))),
        };
        if kind.is_dir() && depth < DEEPEST {
            match std::fs::read_dir(entry.path()) {
                Ok(entries) => self.visit(&format!("{path}/"), entries, depth + 1),
                Err(error) => self.warnings.push(format!("{} is skipped: {error}", shown(&path))),
            }
        } else if kind.is_file() {
            match entry.metadata() {
                Ok(meta) => self.files.push(RawFile { path, bytes: meta.len() }),
                Err(error) => self.warnings.push(format!("{} is skipped: {error}", shown(&path))),
            }
        } else {
            let why = if kind.is_symlink() {
                "it is a symbolic link; only files inside the source are read"
            } else if kind.is_dir() {
                "it lies too deep"
            } else {
                "it is not a regular file"
            };
            self.warnings.push(format!("{} is skipped: {why}", shown(&path)));
        }
    }

    /// Files whose name ends with one of `extensions` (lower case, without the dot), whatever their case.
    pub fn with_extension<'a>(&'a self, extensions: &'a [&str]) -> impl Iterator<Item = &'a RawFile> {
        self.files.iter().filter(|file| {
            let name = file.path.rsplit('/').next().unwrap_or_default();
            let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
            extension.is_some_and(|extension| extensions.contains(&extension.as_str()))
        })
    }

    /// The readable text files among `files`; the others become warnings.
    pub fn texts<'a>(
        &'a self,
        files: impl Iterator<Item = &'a RawFile>,
        warnings: &mut Vec<String>,
    ) -> Vec<&'a RawFile> {
        let folder = match Folder::open(&self.root) {
            Ok(folder) => folder,
            Err(error) => {
                warnings.push(format!("{} cannot be read: {error}", self.root.display()));
                return Vec::new();
            }
        };
        files
            .filter(|file| match unsuitable(&folder, file) {
                None => true,
                Some(why) => {
                    warnings.push(format!("{} is skipped: {why}", shown(&file.path)));
                    false
                }
            })
            .collect()
    }
}

/// Why `file` cannot be given to an agent.
fn unsuitable(folder: &Folder, file: &RawFile) -> Option<String> {
    if file.bytes > LARGEST {
        return Some(format!("it has {} bytes, the limit is {LARGEST}; split it", file.bytes));
    }
    let mut head = Vec::new();
    let read = folder.open_file(&file.path).and_then(|(file, _)| file.take(HEAD).read_to_end(&mut head));
    if let Err(error) = read {
        return Some(error.to_string());
    }
    if head.iter().all(u8::is_ascii_whitespace) {
        return Some("it is empty".into());
    }
    if head.contains(&0) {
        return Some("it is not text".into());
    }
    let cut_short = head.len() as u64 == HEAD;
    match std::str::from_utf8(&head) {
        Err(error) if !(cut_short && error.error_len().is_none()) => {
            Some("it is not UTF-8 text; save it as UTF-8".into())
        }
        _ => None,
    }
}

/// Whether a name can stand in a prompt and on a screen without posing as something else.
fn presentable(name: &str) -> bool {
    let deceptive = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    !name.chars().any(deceptive)
}

fn shown(path: &str) -> String {
    let escaped: String = path
        .chars()
        .flat_map(|c| if presentable(c.encode_utf8(&mut [0; 4])) { vec![c] } else { c.escape_unicode().collect() })
        .collect();
    if escaped.is_empty() { "the source".into() } else { escaped }
}

#[cfg(test)]
mod tests {
    use std::{
        ffi::OsStr,
        fs,
        os::unix::{ffi::OsStrExt, fs::symlink},
    };

    use super::*;

    #[test]
    fn only_honest_files_are_listed_and_the_rest_is_named() {
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
        symlink(outside.path(), at("linked")).unwrap();
        symlink(outside.path().join("s.md"), at("s.md")).unwrap();
        symlink("nowhere", at("dangling.md")).unwrap();
        symlink(".", at("b/loop")).unwrap();
        nix::unistd::mkfifo(&at("pipe.md"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let tree = Tree::walk(dir.path()).unwrap();
        let paths: Vec<_> = tree.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["a.md", "b/deep/z.MD"]);
        assert_eq!(tree.with_extension(&["md"]).count(), 2);
        insta::assert_snapshot!(tree.warnings.join("\n"));
    }

    #[test]
    fn unsuitable_files_are_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("binary.md"), b"PNG\0\0").unwrap();
        fs::write(dir.path().join("latin.md"), b"caf\xe9").unwrap();
        fs::write(dir.path().join("empty.md"), " \n").unwrap();
        let mut long = vec![b'x'; HEAD as usize - 1];
        long.extend("é and more".as_bytes());
        fs::write(dir.path().join("cut.md"), long).unwrap();
        fs::File::create(dir.path().join("huge.md")).unwrap().set_len(LARGEST + 1).unwrap();
        let tree = Tree::walk(dir.path()).unwrap();
        let mut warnings = Vec::new();
        let kept = tree.texts(tree.files.iter(), &mut warnings);
        assert_eq!(kept.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["cut.md"]);
        insta::assert_snapshot!(warnings.join("\n"));
    }
}
