//! Fingerprints of raw files: their SHA-256, and whether they can be given to an agent.
//!
//! Each file is read once, from the first byte to the last. The result is stored with the state of the file on disk
//! ([`FileStamp`]), so that an unchanged file is not read again. This module must not know the purpose of the files.

use std::{
    collections::HashMap,
    io::{self, Read},
    num::NonZero,
};

use super::{
    file_stamp::{FileStamp, Fingerprint},
    tree::{RawFile, SourceTree},
};
use ingestdeck_os::scoped_dir::ScopedDir;

/// Largest raw file, in bytes. Larger ones are data, not documentation.
pub const MAX_FILE_BYTES: u64 = 8 * 1024 * 1024;
/// Number of files from which several threads read.
const PARALLEL_THRESHOLD: usize = 64;
/// Most threads that read concurrently.
const MAX_THREADS: usize = 4;

/// State and fingerprint of files that were read before, by path.
pub(crate) type KnownFingerprints = HashMap<String, (FileStamp, Fingerprint)>;

/// Computes the fingerprint of every file in `tree`. Removes files that cannot be given to an agent, with a warning.
pub(crate) fn fingerprint_tree(tree: &mut SourceTree, known: &KnownFingerprints) {
    let folder = match ScopedDir::open(&tree.root) {
        Ok(folder) => folder,
        Err(error) => {
            tree.warnings
                .push(format!("{} cannot be read: {error}", tree.root.display()).into());
            tree.unreadable_paths.push(String::new());
            tree.files.clear();
            return;
        }
    };
    let mut files = std::mem::take(&mut tree.files);
    let mut fresh: Vec<&mut RawFile> = Vec::new();
    for file in &mut files {
        match known.get(&file.path) {
            Some((stamp, print)) if *stamp == file.stamp => file.fingerprint = Some(*print),
            _ => fresh.push(file),
        }
    }
    let unsuitable = fingerprint_files(&folder, fresh);
    for (path, why) in unsuitable {
        tree.skip(path, &why);
    }
    files.retain(|file| file.fingerprint.is_some());
    tree.files = files;
}

/// Reads `files` and returns those that cannot be used, with the reason.
fn fingerprint_files(folder: &ScopedDir, mut files: Vec<&mut RawFile>) -> Vec<(String, String)> {
    let threads = if files.len() < PARALLEL_THRESHOLD {
        1
    } else {
        std::thread::available_parallelism()
            .map_or(1, NonZero::get)
            .min(MAX_THREADS)
    };
    let count = files.len();
    let share = count.div_ceil(threads).max(1);
    let read = |files: &mut [&mut RawFile]| -> Vec<(String, String)> {
        let mut reader = FingerprintReader {
            folder,
            open: None,
            buffer: Vec::new(),
        };
        files
            .iter_mut()
            .filter_map(|file| reader.read(file).err().map(|why| (file.path.clone(), why)))
            .collect()
    };
    let (mine, others) = files.split_at_mut(share.min(count));
    std::thread::scope(|scope| {
        let others: Vec<_> = others
            .chunks_mut(share)
            .map(|files| scope.spawn(|| read(files)))
            .collect();
        let mut unsuitable = read(mine);
        // A thread that panicked leaves files without a fingerprint, which are then not used.
        unsuitable.extend(
            others
                .into_iter()
                .filter_map(|thread| thread.join().ok())
                .flatten(),
        );
        unsuitable
    })
}

/// Reads files one after another, grouped by folder.
struct FingerprintReader<'a> {
    folder: &'a ScopedDir,
    open: Option<(String, ScopedDir)>,
    buffer: Vec<u8>,
}

impl FingerprintReader<'_> {
    fn read(&mut self, file: &mut RawFile) -> Result<(), String> {
        if file.bytes > MAX_FILE_BYTES {
            return Err(too_large(file.bytes));
        }
        let (parent, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
        if self.open.as_ref().is_none_or(|(open, _)| open != parent) {
            let folder = self
                .folder
                .dir(parent, None)
                .map_err(|error| error.to_string())?;
            self.open = Some((parent.to_owned(), folder));
        }
        let folder = self.open.as_ref().map_or(self.folder, |(_, folder)| folder);
        let (mut opened, _) = folder.open_entry(name).map_err(|error| error.to_string())?;
        let before = opened.metadata().map_err(|error| error.to_string())?;
        self.buffer.clear();
        let read = io::Read::by_ref(&mut opened)
            .take(MAX_FILE_BYTES + 1)
            .read_to_end(&mut self.buffer);
        read.map_err(|error| error.to_string())?;
        if self.buffer.len() as u64 > MAX_FILE_BYTES {
            return Err(too_large(self.buffer.len() as u64));
        }
        if let Some(why) = unsuitable_reason(&self.buffer) {
            return Err(why.to_owned());
        }
        file.bytes = self.buffer.len() as u64;
        file.fingerprint = Some(Fingerprint::from_bytes(&self.buffer));
        file.stamp = FileStamp::from_metadata(&before);
        Ok(())
    }
}

/// Why this content cannot be given to an agent.
pub(crate) fn unsuitable_reason(bytes: &[u8]) -> Option<&'static str> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        Some("it is empty")
    } else if memchr::memchr(0, bytes).is_some() {
        Some("it is not text")
    } else if simdutf8::basic::from_utf8(bytes).is_err() {
        Some("it is not UTF-8 text; save it as UTF-8")
    } else {
        None
    }
}

fn too_large(bytes: u64) -> String {
    format!("it has {bytes} bytes, the limit is {MAX_FILE_BYTES}; split it")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tree(dir: &std::path::Path) -> SourceTree {
        SourceTree::walk(dir, &|_| true).unwrap()
    }

    #[test]
    fn unsuitable_files_are_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("binary.md"), b"PNG\0\0").unwrap();
        fs::write(dir.path().join("latin.md"), b"caf\xe9").unwrap();
        fs::write(dir.path().join("empty.md"), " \n").unwrap();
        let mut late = vec![b'x'; 100_000];
        late.push(0xff);
        fs::write(dir.path().join("late.md"), late).unwrap();
        fs::write(dir.path().join("good.md"), "é and more").unwrap();
        fs::File::create(dir.path().join("huge.md"))
            .unwrap()
            .set_len(MAX_FILE_BYTES + 1)
            .unwrap();
        let mut tree = tree(dir.path());
        fingerprint_tree(&mut tree, &KnownFingerprints::new());
        assert_eq!(
            tree.files
                .iter()
                .map(|file| file.path.as_str())
                .collect::<Vec<_>>(),
            ["good.md"]
        );
        assert_eq!(
            tree.files[0].fingerprint,
            Some(Fingerprint::from_bytes("é and more".as_bytes()))
        );
        assert!(
            tree.may_contain("latin.md"),
            "an unusable file still exists"
        );
        tree.warnings.sort();
        insta::assert_snapshot!(ingestdeck_core::diagnostic::to_lines(&tree.warnings).join("\n"));
    }

    #[test]
    fn parallel_reading_matches_sequential() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..200 {
            let folder = dir.path().join(format!("f{}", n % 7));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(format!("{n}.md")), format!("text {n}")).unwrap();
        }
        let mut tree = tree(dir.path());
        fingerprint_tree(&mut tree, &KnownFingerprints::new());
        assert_eq!(tree.files.len(), 200);
        for file in &tree.files {
            let bytes = fs::read(dir.path().join(&file.path)).unwrap();
            assert_eq!(file.fingerprint, Some(Fingerprint::from_bytes(&bytes)));
        }
        assert!(tree.files.is_sorted_by(|a, b| a.path < b.path));
    }

    #[test]
    fn file_with_known_stamp_is_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.md"), "one").unwrap();
        fs::write(dir.path().join("b.md"), "two").unwrap();
        let mut first = tree(dir.path());
        fingerprint_tree(&mut first, &KnownFingerprints::new());
        let lie = Fingerprint::from_bytes(b"never read");
        let known: KnownFingerprints = first
            .files
            .iter()
            .map(|file| (file.path.clone(), (file.stamp, lie)))
            .collect();
        fs::write(dir.path().join("b.md"), "two and more").unwrap();
        let mut second = tree(dir.path());
        fingerprint_tree(&mut second, &known);
        assert_eq!(second.files[0].fingerprint, Some(lie));
        assert_eq!(
            second.files[1].fingerprint,
            Some(Fingerprint::from_bytes(b"two and more"))
        );
    }

    #[test]
    fn only_rendered_fingerprints_parse() {
        let print = Fingerprint::from_bytes(b"");
        assert_eq!(
            print.to_string(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(Fingerprint::parse(&print.to_string()), Some(print));
        for text in ["", "é", &"g".repeat(64), &"é".repeat(32), &"a".repeat(63)] {
            assert_eq!(Fingerprint::parse(text), None, "{text}");
        }
    }
}
