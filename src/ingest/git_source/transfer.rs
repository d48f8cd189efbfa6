//! Fetching a repository into its clone in the cache.
//!
//! git never uses the network inside a repository that was there before: each fetch fills a new repository next to the clone,
//! with a configuration that this module writes, and replaces the clone at the end, also without a new commit. So neither a
//! clone that came with the project nor one that is half written can lead git anywhere, or pass for a commit. Every call names
//! its repository (`--git-dir`), so that git searches for none above it.

use std::{env, ffi::OsString, io, os::unix::ffi::OsStringExt as _, path::Path, time::Duration};

use uuid::Uuid;

use super::{
    CACHE_DIR, GitSource, GitSourceError, RepositoryPlace, address::Transport, is_branch_name,
    token::Token,
};
use crate::{
    git::{CommitId, Git, GitError, network::NetworkAccess, shallow_copy},
    untrusted_text::visible_path,
};
use ingestdeck_os::scoped_dir::{self, FileKind, PRIVATE_MODE, ScopedDir, TEMP_PREFIX};

/// What a repository may need.
#[derive(Clone, Copy, Debug)]
pub struct TransferLimits {
    /// Most bytes that the server sends.
    pub packed_bytes: u64,
    /// Most bytes of all files.
    pub bytes: u64,
    /// Most files of the commit.
    pub files: usize,
    pub time: Duration,
}

impl Default for TransferLimits {
    fn default() -> Self {
        Self {
            packed_bytes: 1 << 30,
            bytes: 4 << 30,
            files: 200_000,
            time: Duration::from_secs(600),
        }
    }
}

/// Parts of messages of git and ssh about a network or host that does not answer.
const OFFLINE: [&str; 13] = [
    "Could not resolve host",
    "Could not resolve hostname",
    "Failed to connect to",
    "Couldn't connect to server",
    "Connection refused",
    "Connection timed out",
    "Connection reset",
    "Network is unreachable",
    "No route to host",
    "Operation timed out",
    "Operation too slow",
    "Temporary failure in name resolution",
    "Timeout was reached",
];
/// Parts of messages about the key of a host that is another one than ssh knows.
const CHANGED_KEY: [&str; 2] = [
    "REMOTE HOST IDENTIFICATION HAS CHANGED",
    "has changed and you have requested strict checking",
];
/// Parts of messages about a login that is missing or not accepted. Hosts hide private repositories as missing ones.
const REFUSED: [&str; 9] = [
    "Authentication failed",
    "could not read Username",
    "could not read Password",
    "Permission denied",
    "Access denied",
    "returned error: 401",
    "returned error: 403",
    "returned error: 404",
    "not found",
];

/// Greatest depth of the folders of a repository. Walks of sources visit no deeper ones, and deeper ones cannot be removed.
const MAX_FOLDER_DEPTH: usize = 64;
/// Largest configuration of a new repository, in bytes.
const MAX_CONFIG_BYTES: u64 = 4096;
/// How each call names the new repository.
const DRAFT_LOCATION: &[&str] = &["--git-dir=.git"];
/// Files of a bare repository that make git read other repositories.
const OUTWARD_FILES: [&str; 3] = [
    "commondir",
    "objects/info/alternates",
    "objects/info/http-alternates",
];
/// Files of a bare repository whose lines messages of git may quote, so that none may be a link.
const UNLINKED_FILES: [&str; 2] = ["packed-refs", "shallow"];

/// A repository that is being filled.
struct NewClone<'a> {
    source: &'a GitSource<'a>,
    /// The directory of all clones of the adapter.
    parent: ScopedDir,
    /// Its name in there.
    name: String,
    limits: TransferLimits,
    token: Option<Token>,
}

pub(super) fn fetch(
    source: &GitSource<'_>,
    limits: &TransferLimits,
) -> Result<CommitId, GitSourceError> {
    let failed = |cause| GitSourceError::Io {
        dir: source.dir.clone(),
        cause,
    };
    let (cache, id) = source
        .dir
        .rsplit_once('/')
        .unwrap_or((CACHE_DIR, &source.dir));
    let open = || {
        scoped_dir::create_ignored_dir(source.project, &source.project.join(cache))?;
        ScopedDir::open(source.project)?.dir(cache, None)
    };
    let parent = open().map_err(failed)?;
    let Some(_lock) = parent.try_lock(".lock").map_err(failed)? else {
        return Err(GitSourceError::Busy);
    };
    remove_drafts(&parent);
    let name = format!("{TEMP_PREFIX}{}", Uuid::new_v4().simple());
    parent.dir(&name, Some(PRIVATE_MODE)).map_err(failed)?;
    let new = NewClone {
        source,
        parent,
        name,
        limits: *limits,
        token: source
            .token
            .as_ref()
            .map(|token| token.read())
            .transpose()
            .map_err(GitSourceError::Token)?,
    };
    let fetched = new.fill(id);
    // What is left is removed by the next fetch if this fails.
    let _ = new.parent.remove_dir_all(&new.name);
    fetched
}

/// Removes what ended fetches left. What cannot be removed, such as very deep folders that came with the project, is left.
fn remove_drafts(parent: &ScopedDir) {
    for (name, _) in parent.entries().unwrap_or_default() {
        if let Some(name) = name.to_str().filter(|name| name.starts_with(TEMP_PREFIX)) {
            let _ = parent.remove_dir_all(name);
        }
    }
}

/// The first file of a bare repository that may lead git out of it.
fn outward_file(repository: &Path) -> io::Result<Option<String>> {
    let dir = ScopedDir::open(repository)?;
    let mut open = vec!["objects".to_owned(), "refs".to_owned()];
    while let Some(folder) = open.pop() {
        let is_too_deep = folder.split('/').count() > MAX_FOLDER_DEPTH;
        for (name, kind) in dir.dir(&folder, None)?.entries()? {
            let path = format!("{folder}/{}", name.to_string_lossy());
            match kind {
                FileKind::File => {}
                FileKind::Directory if name.to_str().is_some() && !is_too_deep => open.push(path),
                _ => return Ok(Some(path)),
            }
        }
    }
    for name in OUTWARD_FILES {
        if dir.kind(name)?.is_some() {
            return Ok(Some(name.to_owned()));
        }
    }
    for name in UNLINKED_FILES {
        if dir.kind(name)?.is_some_and(|kind| kind != FileKind::File) {
            return Ok(Some(name.to_owned()));
        }
    }
    Ok(None)
}

/// `text` between the quotes of a value in a configuration of git.
fn escape_config_value(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

impl NewClone<'_> {
    /// Fetches the branch, and replaces the clone `id`.
    fn fill(&self, id: &str) -> Result<CommitId, GitSourceError> {
        self.check_local()?;
        let dir = self
            .parent
            .dir(&self.name, None)
            .map_err(|cause| self.io(cause))?;
        self.create_repository(&dir, None)
            .map_err(|cause| self.io(cause))?;
        let mut commit = self.newest_commit()?;
        // Only now the format of its objects is known.
        self.create_repository(&dir, Some(&commit))
            .map_err(|cause| self.io(cause))?;
        let git = self.open()?.with_time_limit(self.limits.time);
        match &self.source.place {
            RepositoryPlace::Remote(address) => {
                let branch = self.source.branch;
                let refspec = format!("+refs/heads/{branch}:refs/remotes/origin/{branch}");
                let options = [
                    "fetch",
                    "--quiet",
                    "--no-tags",
                    "--depth=1",
                    "--no-recurse-submodules",
                ];
                self.call(&[&options[..], &["--", address.url(), &refspec]].concat())?;
                // There may be a newer commit meanwhile.
                let fetched = format!("refs/remotes/origin/{branch}^{{commit}}");
                commit =
                    git.run_for_commit(&["rev-parse", "--verify", "--end-of-options", &fetched])?;
            }
            RepositoryPlace::Local(_) => self.copy_objects(&git, &dir, &commit)?,
        }
        self.check_size(&git, &commit)?;
        let head = format!("refs/heads/{}", self.source.branch);
        git.run(&["update-ref", &head, commit.as_str()])?;
        git.run(&["symbolic-ref", "HEAD", &head])?;
        git.run(&["reset", "--hard", "--quiet"])?;
        self.note_fetch(&dir, &commit)
            .map_err(|cause| self.io(cause))?;
        self.replace(id).map_err(|cause| self.io(cause))?;
        Ok(commit)
    }

    /// Refuses a repository on this machine that may lead git to files that the project may not read.
    fn check_local(&self) -> Result<(), GitSourceError> {
        let RepositoryPlace::Local(path) = &self.source.place else {
            return Ok(());
        };
        let failed = |cause: String| GitSourceError::Failed {
            url: self.source.url(),
            cause,
        };
        match outward_file(path) {
            Ok(None) => Ok(()),
            Ok(Some(file)) => Err(failed(format!(
                "its file `{}` may lead git to other repositories",
                visible_path(&file)
            ))),
            Err(cause) => Err(failed(format!("it cannot be read: {cause}"))),
        }
    }

    fn io(&self, cause: io::Error) -> GitSourceError {
        GitSourceError::Io {
            dir: self.source.dir.clone(),
            cause,
        }
    }

    /// git in the new directory, without the network.
    fn open(&self) -> Result<Git, GitSourceError> {
        let path = self.source.clone_path().with_file_name(&self.name);
        Ok(Git::open_at(&path, DRAFT_LOCATION)?)
    }

    /// Stdout of a call that uses the network.
    fn call(&self, args: &[&str]) -> Result<Vec<u8>, GitSourceError> {
        let RepositoryPlace::Remote(address) = &self.source.place else {
            return Ok(Vec::new());
        };
        let git = self.open()?;
        let ssh = match env::var_os("GIT_SSH_COMMAND").filter(|command| !command.is_empty()) {
            Some(command) => Some(command),
            None => {
                let set = git.try_run(&["config", "--get", "core.sshCommand"])?.stdout;
                let line: Vec<u8> = set
                    .split(|byte| *byte == b'\n')
                    .next()
                    .unwrap_or_default()
                    .to_vec();
                Some(OsString::from_vec(line)).filter(|line| !line.is_empty())
            }
        };
        let settings = self
            .token
            .as_ref()
            .map(|token| token.settings(address))
            .unwrap_or_default();
        let access = NetworkAccess::new(ssh, settings, self.limits.packed_bytes, self.limits.time);
        let url = address.url().to_owned();
        match git.with_network(access).try_run(args) {
            Ok(answer) if answer.success => Ok(answer.stdout),
            Ok(answer) => {
                let redact = |text: &str| {
                    self.token
                        .as_ref()
                        .map_or_else(|| text.to_owned(), |token| token.redact(text, address))
                };
                Err(self.explain(redact(&answer.stderr)))
            }
            Err(GitError::TimedOut { limit, .. }) => Err(GitSourceError::Offline {
                host: address.host().to_owned(),
                cause: format!("no end within {} s", limit.as_secs()),
            }),
            Err(GitError::OutputTooLarge { .. }) => Err(GitSourceError::Failed {
                url,
                cause: "the server sends too many messages".into(),
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// The error for what git printed when it failed.
    fn explain(&self, cause: String) -> GitSourceError {
        let url = self.source.url();
        let RepositoryPlace::Remote(address) = &self.source.place else {
            return GitSourceError::Failed { url, cause };
        };
        let has = |texts: &[&str]| texts.iter().any(|text| cause.contains(text));
        let host = address.host().to_owned();
        if has(&CHANGED_KEY) {
            GitSourceError::ChangedHostKey { host }
        } else if has(&["Host key verification failed"]) {
            let login = address.ssh_arguments();
            GitSourceError::UnknownHost { host, login }
        } else if has(&["returned error: 30"]) {
            GitSourceError::Redirected { url }
        } else if has(&["died of signal 25", "File too large"]) {
            let what = format!("it sends more than {} MiB", self.limits.packed_bytes >> 20);
            GitSourceError::TooLarge { url, what }
        } else if has(&["couldn't find remote ref"]) {
            GitSourceError::NoBranch {
                url,
                branch: self.source.branch.to_owned(),
                default: None,
            }
        } else if has(&OFFLINE) {
            GitSourceError::Offline { host, cause }
        } else if has(&REFUSED) {
            GitSourceError::LoginRefused {
                url,
                host,
                cause,
                is_ssh: address.transport() == Transport::Ssh,
                has_token: self.token.is_some(),
            }
        } else {
            GitSourceError::Failed { url, cause }
        }
    }

    /// The newest commit of the branch, without its files.
    fn newest_commit(&self) -> Result<CommitId, GitSourceError> {
        let head = format!("refs/heads/{}", self.source.branch);
        let missing = |default: Option<&str>| GitSourceError::NoBranch {
            url: self.source.url(),
            branch: self.source.branch.to_owned(),
            default: default
                .filter(|name| is_branch_name(name))
                .map(str::to_owned),
        };
        let address = match &self.source.place {
            RepositoryPlace::Remote(address) => address,
            RepositoryPlace::Local(path) => {
                let git = Git::open_at(path, &["--git-dir=."])?;
                let named = format!("{head}^{{commit}}");
                let found = git.try_run(&[
                    "rev-parse",
                    "--verify",
                    "--quiet",
                    "--end-of-options",
                    &named,
                ])?;
                if !found.success {
                    let default = git.try_run(&["symbolic-ref", "--quiet", "HEAD"])?.stdout;
                    let default = String::from_utf8_lossy(&default).into_owned();
                    return Err(missing(default.trim_end().strip_prefix("refs/heads/")));
                }
                return self.parse_commit(String::from_utf8_lossy(&found.stdout).trim_end());
            }
        };
        let listed = self.call(&["ls-remote", "--symref", "--", address.url(), "HEAD", &head])?;
        let listed = String::from_utf8_lossy(&listed);
        let entries = || listed.lines().filter_map(|line| line.split_once('\t'));
        match entries().find(|(_, name)| *name == head) {
            Some((commit, _)) => self.parse_commit(commit),
            None => {
                let target =
                    entries().find(|(target, name)| *name == "HEAD" && target.starts_with("ref: "));
                Err(missing(target.and_then(|(target, _)| {
                    target.strip_prefix("ref: refs/heads/")
                })))
            }
        }
    }

    fn parse_commit(&self, text: &str) -> Result<CommitId, GitSourceError> {
        CommitId::parse(text).map_err(|error| GitSourceError::Failed {
            url: self.source.url(),
            cause: error.to_string(),
        })
    }

    /// Writes the file that git writes for each fetch. Its time shows how old the clone is.
    fn note_fetch(&self, clone: &ScopedDir, commit: &CommitId) -> io::Result<()> {
        let text = format!(
            "{commit}\t\tbranch '{}' of {}\n",
            self.source.branch,
            self.source.url()
        );
        clone.write(".git/FETCH_HEAD", text.as_bytes(), PRIVATE_MODE, 0o600)
    }

    /// Creates a repository for `commit` with the settings that KTX expects in its cache, or changes its format.
    fn create_repository(&self, dir: &ScopedDir, commit: Option<&CommitId>) -> io::Result<()> {
        shallow_copy::create_repository(dir, commit)?;
        let branch = self.source.branch;
        let url = escape_config_value(&self.source.url());
        let mut config = dir.read(".git/config", MAX_CONFIG_BYTES)?;
        config.extend_from_slice(
            format!(
                "[core]\n\tsymlinks = true\n\tprotectHFS = true\n\tprotectNTFS = true\n[remote \"origin\"]\n\turl = \"{url}\"\n\tfetch = \"+refs/heads/{branch}:refs/remotes/origin/{branch}\"\n\
                 [branch \"{branch}\"]\n\tremote = origin\n\tmerge = \"refs/heads/{branch}\"\n"
            )
            .as_bytes(),
        );
        dir.write(".git/config", &config, PRIVATE_MODE, 0o600)
    }

    /// Copies the objects of `commit` from a repository on this machine. Unlike a fetch, this starts no program that the
    /// configuration of that repository names.
    fn copy_objects(
        &self,
        git: &Git,
        dir: &ScopedDir,
        commit: &CommitId,
    ) -> Result<(), GitSourceError> {
        let RepositoryPlace::Local(path) = &self.source.place else {
            return Ok(());
        };
        let shallow = format!("{commit}\n");
        dir.write(".git/shallow", shallow.as_bytes(), PRIVATE_MODE, 0o600)
            .map_err(|cause| self.io(cause))?;
        let original = Git::open_at(path, &["--git-dir=."])?.with_time_limit(self.limits.time);
        let new = self.source.clone_path().with_file_name(&self.name);
        let new = new.to_str().ok_or_else(|| GitSourceError::Failed {
            url: self.source.url(),
            cause: "the path of the project is not UTF-8".into(),
        })?;
        shallow_copy::copy_objects(&original, commit, new)?;
        let remote = format!("refs/remotes/origin/{}", self.source.branch);
        git.run(&["update-ref", &remote, commit.as_str()])?;
        Ok(())
    }

    /// Refuses a commit with too many, too large or too deep files before they are written. A small repository may contain
    /// the same file or folder a million times.
    fn check_size(&self, git: &Git, commit: &CommitId) -> Result<(), GitSourceError> {
        let too_large = |what: String| GitSourceError::TooLarge {
            url: self.source.url(),
            what,
        };
        let listed = match git.run(&[
            "ls-tree",
            "-r",
            "-l",
            "-z",
            "--end-of-options",
            commit.as_str(),
        ]) {
            Err(GitError::OutputTooLarge { .. } | GitError::TimedOut { .. }) => {
                return Err(too_large("it has too many files".into()));
            }
            other => other?,
        };
        let (mut files, mut bytes) = (0, 0_u64);
        for entry in listed
            .split(|byte| *byte == 0)
            .filter(|entry| !entry.is_empty())
        {
            let mut fields = entry.splitn(2, |byte| *byte == b'\t');
            let size = String::from_utf8_lossy(fields.next().unwrap_or_default());
            let path = fields.next().unwrap_or_default();
            if path.iter().filter(|byte| **byte == b'/').count() > MAX_FOLDER_DEPTH {
                let what = format!("its folders are more than {MAX_FOLDER_DEPTH} deep");
                return Err(too_large(what));
            }
            let size = size
                .split_whitespace()
                .nth(3)
                .and_then(|size| size.parse::<u64>().ok());
            files += 1;
            bytes = bytes.saturating_add(size.unwrap_or(0));
        }
        if files > self.limits.files {
            return Err(too_large(format!(
                "it has more than {} files",
                self.limits.files
            )));
        }
        if bytes > self.limits.bytes {
            return Err(too_large(format!(
                "its files have more than {} MiB",
                self.limits.bytes >> 20
            )));
        }
        Ok(())
    }

    /// Puts the new clone in the place of the old one.
    fn replace(&self, id: &str) -> io::Result<()> {
        let old = format!("{TEMP_PREFIX}{}", Uuid::new_v4().simple());
        match self.parent.rename(id, &self.parent, &old, PRIVATE_MODE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            moved => moved?,
        }
        self.parent
            .rename(&self.name, &self.parent, id, PRIVATE_MODE)?;
        // The next fetch removes it if this fails.
        let _ = self.parent.remove_dir_all(&old);
        Ok(())
    }
}
