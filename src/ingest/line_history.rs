//! The history of the lines of a file, from the project's repository: `git blame`, commits and their files.
//!
//! Reads only. The repository may come from anywhere, so programs that it names are disabled as for every call of git.
//! This module must not know what the commits contain.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;

use super::{
    git::{CommitId, GitError},
    repository::{Repository, RepositoryError},
};
use ingestdeck_core::run::commit_trailers::NOTES_REF;

/// Most characters of a field of a commit that are kept.
const MAX_FIELD_CHARS: usize = 400;
/// Largest file of a commit that is read, in bytes.
const MAX_BLOB_BYTES: u64 = 16 << 20;

/// A line of a file, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlamedLine {
    /// The commit that made the line; `None` if it is not committed.
    pub commit: Option<CommitId>,
    /// Number of the line in the file of that commit, from 1.
    pub line_in_commit: usize,
    /// Path of the file in that commit, if git printed it without quotes.
    pub path_in_commit: Option<String>,
    /// True if git did not look at the parents of the commit: it has none, or the clone does not have them.
    pub is_boundary: bool,
}

/// What a commit records about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitRecord {
    /// Name of the author.
    pub author: String,
    /// When the author made it; `None` if the commit is damaged.
    pub at: Option<Timestamp>,
    /// The beginning of the first line of the message.
    pub subject: String,
    pub message: String,
    pub parents: Vec<CommitId>,
}

impl Repository {
    /// Opens the repository of the project at `root` for reading: its own, or the private one of this installation.
    /// `None` without either.
    ///
    /// # Errors
    /// If there is a repository that must not be used.
    pub fn find_for_reading(root: &std::path::Path) -> Result<Option<Self>, RepositoryError> {
        match Self::find(root)? {
            Some(own) => Ok(Some(own)),
            None => Self::find_private(root),
        }
    }

    /// The commit of each line of `path`, or of the lines `first` to `last`, which must exist. `None` if the file is
    /// not in the last commit.
    ///
    /// # Errors
    /// If git fails.
    pub fn blame(
        &self,
        path: &str,
        lines: Option<(usize, usize)>,
    ) -> Result<Option<Vec<BlamedLine>>, GitError> {
        let range = lines.map(|(first, last)| format!("-L{first},{last}"));
        let args = [
            "blame",
            "--porcelain",
            "--no-textconv",
            "--ignore-revs-file=",
        ];
        let args: Vec<&str> = args
            .into_iter()
            .chain(range.as_deref())
            .chain(["--", path])
            .collect();
        let answer = self.git.try_run(&args)?;
        if answer.success {
            return Ok(Some(parse_blame(&String::from_utf8_lossy(&answer.stdout))));
        }
        // The sentences of git for a file, and for a repository, without a commit.
        if answer.stderr.contains("no such path") || answer.stderr.contains("no such ref") {
            return Ok(None);
        }
        // Of a long line, only the end is left.
        if answer.stderr.contains("invalid object name") || !answer.stderr.contains("fatal: ") {
            return Err(GitError::InvalidIgnoreRevsFile);
        }
        Err(GitError::Failed {
            subcommand: "blame".into(),
            stderr: answer.stderr,
        })
    }

    /// The records of these commits. Those that are missing or damaged are left out.
    ///
    /// # Errors
    /// If git fails.
    pub fn commit_records(
        &self,
        commits: &[CommitId],
    ) -> Result<BTreeMap<CommitId, CommitRecord>, GitError> {
        if commits.is_empty() {
            return Ok(BTreeMap::new());
        }
        let input: String = commits.iter().map(|commit| format!("{commit}\n")).collect();
        let output = self
            .git
            .run_with_input(&["cat-file", "--batch"], input.as_bytes())?;
        Ok(parse_commits(&output))
    }

    /// The note of the commit about its attempts; `None` without one, or if it is larger than 16 MiB.
    ///
    /// # Errors
    /// If git cannot be called.
    pub fn note(&self, commit: &CommitId) -> Result<Option<String>, GitError> {
        let listed = self
            .git
            .try_run(&["notes", "--ref", NOTES_REF, "list", commit.as_str()])?;
        let blob = str::from_utf8(&listed.stdout)
            .ok()
            .and_then(|blob| CommitId::parse(blob.trim()).ok());
        blob.map_or(Ok(None), |blob| self.blob_text(blob.as_str()))
    }

    /// The text of `path` in `commit`; `None` if either does not exist, or the file is larger than 16 MiB.
    ///
    /// # Errors
    /// If git cannot be called.
    pub fn text_at(&self, commit: &CommitId, path: &str) -> Result<Option<String>, GitError> {
        self.blob_text(&format!("{commit}:{path}"))
    }

    fn blob_text(&self, name: &str) -> Result<Option<String>, GitError> {
        let size = self
            .git
            .try_run(&["cat-file", "-s", "--end-of-options", name])?;
        let size = str::from_utf8(&size.stdout)
            .ok()
            .and_then(|size| size.trim().parse::<u64>().ok());
        if size.is_none_or(|size| size > MAX_BLOB_BYTES) {
            return Ok(None);
        }
        let answer = self
            .git
            .try_run(&["cat-file", "blob", "--end-of-options", name])?;
        Ok(answer
            .success
            .then(|| String::from_utf8_lossy(&answer.stdout).into_owned()))
    }
}

/// Parses the output of `blame --porcelain`.
fn parse_blame(output: &str) -> Vec<BlamedLine> {
    let mut blamed = Vec::new();
    let mut paths: HashMap<&str, &str> = HashMap::new();
    let mut boundaries: HashSet<&str> = HashSet::new();
    let mut current: Option<(&str, usize)> = None;
    // The content of a line, after a tab, may contain anything but a line feed.
    for line in output.split('\n') {
        if line.starts_with('\t') {
            if let Some((commit, line_in_commit)) = current.take() {
                let path = paths.get(commit).filter(|path| !path.starts_with('"'));
                blamed.push(BlamedLine {
                    commit: CommitId::parse(commit)
                        .ok()
                        .filter(|id| id.as_str().contains(|c| c != '0')),
                    line_in_commit,
                    path_in_commit: path.map(|path| (*path).to_owned()),
                    is_boundary: boundaries.contains(commit),
                });
            }
        } else if let (Some((commit, _)), Some(path)) = (current, line.strip_prefix("filename ")) {
            paths.insert(commit, path);
        } else if let (Some((commit, _)), "boundary") = (current, line) {
            boundaries.insert(commit);
        } else if current.is_none() {
            let mut fields = line.split(' ');
            current = fields
                .next()
                .zip(fields.next().and_then(|number| number.parse().ok()));
        }
    }
    blamed
}

/// Parses the output of `cat-file --batch`.
fn parse_commits(output: &[u8]) -> BTreeMap<CommitId, CommitRecord> {
    let (mut records, mut rest) = (BTreeMap::new(), output);
    while let Some(end) = memchr::memchr(b'\n', rest) {
        let (head, after) = (
            String::from_utf8_lossy(&rest[..end]).into_owned(),
            &rest[end + 1..],
        );
        let mut fields = head.split(' ');
        let (id, kind, size) = (
            fields.next(),
            fields.next(),
            fields.next().and_then(|size| size.parse::<usize>().ok()),
        );
        let (Some(id), Some(size)) = (id.and_then(|id| CommitId::parse(id).ok()), size) else {
            // An object that does not exist has one line.
            rest = after;
            continue;
        };
        let Some(body) = after.get(..size) else { break };
        if kind == Some("commit") {
            records.insert(id, parse_commit(&String::from_utf8_lossy(body)));
        }
        rest = after.get(size + 1..).unwrap_or_default();
    }
    records
}

fn parse_commit(body: &str) -> CommitRecord {
    let (head, message) = body.split_once("\n\n").unwrap_or((body, ""));
    let subject = message
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(MAX_FIELD_CHARS)
        .collect();
    let mut record = CommitRecord {
        subject,
        message: message.to_owned(),
        ..CommitRecord::default()
    };
    for line in head.lines() {
        match line.split_once(' ') {
            Some(("parent", id)) => record.parents.extend(CommitId::parse(id)),
            Some(("author", author)) => {
                let (name, rest) = author.split_once('<').unwrap_or((author, ""));
                record.author = name.trim().chars().take(MAX_FIELD_CHARS).collect();
                let seconds = rest
                    .split_once("> ")
                    .and_then(|(_, time)| time.split(' ').next()?.parse().ok());
                record.at = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
            }
            _ => {}
        }
    }
    record
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn blamed_lines_name_commit_and_path() {
        let zero = "0".repeat(40);
        let output = format!(
            "{ID} 7 1 2\nauthor A\nsummary s\nboundary\nfilename wiki/old.md\n\tfilename x\n{ID} 8 2\n\t\n{zero} 3 3 1\nauthor Not\nfilename \"wiki/a\\\"b.md\"\n\tz\n"
        );
        let lines = parse_blame(&output);
        let line = |commit: Option<&str>, line_in_commit, path: Option<&str>| BlamedLine {
            commit: commit.map(|commit| CommitId::parse(commit).unwrap()),
            line_in_commit,
            path_in_commit: path.map(str::to_owned),
            is_boundary: commit.is_some(),
        };
        let old = Some("wiki/old.md");
        assert_eq!(
            lines,
            [
                line(Some(ID), 7, old),
                line(Some(ID), 8, old),
                line(None, 3, None)
            ]
        );
    }

    #[test]
    fn commits_of_a_batch_are_parsed() {
        let body =
            format!("tree {ID}\nparent {ID}\nauthor A. <b@c> 1700000000 +0100\n\nOne\n\nTwo: 2\n");
        let output = format!(
            "{ID} missing\n{ID} commit {}\n{body}\n{ID} tree 0\n\n",
            body.len()
        );
        let records = parse_commits(output.as_bytes());
        let id = CommitId::parse(ID).unwrap();
        let record = &records[&id];
        assert_eq!(
            (
                record.author.as_str(),
                record.subject.as_str(),
                &record.parents
            ),
            ("A.", "One", &vec![id.clone()])
        );
        assert_eq!(record.at.unwrap().as_second(), 1_700_000_000);
        assert!(record.message.ends_with("\n\nTwo: 2\n"));
    }

    proptest! {
        #[test]
        fn any_output_is_parsed(output in "([0-9a-f]{40} [0-9]{1,3}( commit [0-9]{1,2})?|filename .?|\t.?|author .{0,9}|\n){0,12}") {
            let _ = parse_blame(&output);
            let _ = parse_commits(output.as_bytes());
        }
    }
}
