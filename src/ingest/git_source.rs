//! Sources that git fetches: connections whose `repoUrl` is the address of another machine, or a bare repository here.
//!
//! Each has a clone in KTX's cache, which both programs use. [`address`] decides what git may be given, [`transfer`] fetches.
//! Planning only reads the clone; `run` and `plan --fetch` fetch first, if the user's own settings allow exactly this address.
//! What is in the cache may have come with the project, so it is as untrusted as the project. Read [`address`] next.

#![expect(
    clippy::disallowed_methods,
    reason = "resolves the path of a repository to decide whether it may be read"
)]

pub(crate) mod address;
mod token;
mod transfer;

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

pub use self::transfer::TransferLimits;
use self::{
    address::{AddressError, RemoteAddress, Transport},
    token::TokenReference,
};
use crate::{
    connection::{Connection, SourceLocation, local_path, without_login},
    git::{CommitId, Git, GitError},
    path_policy::{PathPolicy, PathRefusal},
    untrusted_text::visible_path,
};
use ingestdeck_core::{
    diagnostic::{Diagnostic, Problem},
    tape::note::FetchedRepository,
};
use ingestdeck_os::scoped_dir::{FileKind, ScopedDir};

/// KTX's cache, relative to the project.
const CACHE_DIR: &str = ".ktx/cache";
/// The branch of a connection that names none, as in KTX.
const DEFAULT_BRANCH: &str = "main";
/// Largest `HEAD`, and file of one branch, in bytes.
const MAX_REF_BYTES: u64 = 4096;
/// Largest file of all branches, in bytes.
const MAX_PACKED_REFS_BYTES: u64 = 8 << 20;

/// Where a repository is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RepositoryPlace {
    Remote(RemoteAddress),
    /// A bare repository on this machine, absolute and without links.
    Local(PathBuf),
}

/// What an adapter determines about the repositories of its connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RepositoryKeys {
    /// Directory of its clones below KTX's cache.
    pub(crate) clone_dir: &'static str,
    /// The section of a connection with the keys of the repository.
    pub(crate) section: Option<&'static str>,
}

/// The repository of a connection.
#[derive(Clone, Debug)]
pub struct GitSource<'a> {
    project: &'a Path,
    policy: &'a PathPolicy,
    place: RepositoryPlace,
    branch: &'a str,
    token: Option<TokenReference>,
    /// Its clone, relative to the project.
    dir: String,
}

/// The commit that the files of a connection belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceVersion {
    /// Why they may belong to another branch than `ktx.yaml` names, as a sentence about the connection.
    pub branch_mismatch: Option<Problem>,
    /// The clone that contains them, if git fetches them.
    pub clone: Option<CloneState>,
}

/// A clone as it is on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneState {
    /// The address of its repository, without a login.
    pub url: String,
    /// The commit that is checked out.
    pub commit: CommitId,
    /// `None` for a detached HEAD.
    pub branch: Option<String>,
    /// When it was fetched last, if that is known.
    pub fetched: Option<SystemTime>,
}

impl CloneState {
    /// The entry for the tape.
    pub(crate) fn to_note(&self) -> FetchedRepository {
        FetchedRepository {
            url: self.url.clone(),
            branch: self.branch.clone(),
            commit: self.commit.to_string(),
        }
    }
}

/// Why the files of a repository cannot be read or fetched. Continues a sentence about the connection.
#[derive(Debug, thiserror::Error)]
pub enum GitSourceError {
    #[error("{error}: `{}`", visible_path(url))]
    Address { error: AddressError, url: String },
    #[error(transparent)]
    NotAllowed(#[from] PathRefusal),
    #[error("its repository `{url}` is not on this machine yet")]
    NotCloned { url: String, remedy: String },
    /// The clone in the cache is of another repository.
    #[error("its clone {dir} is of another repository than `{url}`")]
    OtherRepository {
        dir: String,
        url: String,
        remedy: String,
    },
    #[error("its clone {dir} cannot be read: {cause}")]
    InvalidClone {
        dir: String,
        cause: String,
        remedy: String,
    },
    #[error("its repository `{url}` may not be fetched yet")]
    NotPermitted { url: String, remedy: String },
    #[error("its branch `{}` is not a valid name of a branch", visible_path(.0))]
    InvalidBranch(String),
    #[error("its repository `{url}` has no branch `{branch}`")]
    NoBranch {
        url: String,
        branch: String,
        /// The default branch of the repository.
        default: Option<String>,
    },
    #[error("{0}")]
    Token(Problem),
    #[error("`{host}` refused the login for `{url}`: {cause}")]
    LoginRefused {
        url: String,
        host: String,
        cause: String,
        is_ssh: bool,
        has_token: bool,
    },
    #[error("the key of the host `{host}` is not known to ssh")]
    UnknownHost {
        host: String,
        /// Arguments with which ssh connects to it.
        login: String,
    },
    #[error("the key of the host `{host}` is another one than ssh knows")]
    ChangedHostKey { host: String },
    /// The network or the host does not answer.
    #[error("cannot reach `{host}`: {cause}")]
    Offline { host: String, cause: String },
    #[error("`{url}` redirects to another address")]
    Redirected { url: String },
    #[error("its repository `{url}` is too large: {what}")]
    TooLarge { url: String, what: String },
    #[error("another process fetches it")]
    Busy,
    #[error("cannot fetch `{url}`: {cause}")]
    Failed { url: String, cause: String },
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("cannot write its clone {dir}: {cause}")]
    Io { dir: String, cause: io::Error },
}

impl Diagnostic for GitSourceError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::Address { error, .. } => error.help().into(),
            Self::NotAllowed(refusal) => return refusal.help(),
            Self::NotCloned { remedy, .. }
            | Self::OtherRepository { remedy, .. }
            | Self::InvalidClone { remedy, .. }
            | Self::NotPermitted { remedy, .. } => remedy.clone(),
            Self::InvalidBranch(_) => "correct `branch` in ktx.yaml".into(),
            Self::NoBranch { default: Some(default), .. } => {
                format!("set `branch: {default}`, its default branch, in ktx.yaml")
            }
            Self::NoBranch { .. } => "correct `branch` in ktx.yaml".into(),
            Self::Token(problem) => return problem.help(),
            Self::LoginRefused { is_ssh: true, .. } => {
                "add your key to the agent (`ssh-add`), and to your account there".into()
            }
            Self::LoginRefused { has_token: true, .. } => {
                "check that the token of `auth_token_ref` is valid and may read this repository".into()
            }
            Self::LoginRefused { .. } => {
                "check the address; for a private repository set `auth_token_ref: env:NAME` in ktx.yaml, or a credential \
                 helper of git"
                    .into()
            }
            Self::UnknownHost { login, .. } => {
                format!("connect once with `ssh {login}`, and compare the key that it shows")
            }
            Self::ChangedHostKey { .. } => {
                "check with its owner that the key was replaced, before you remove the known one with `ssh-keygen -R`"
                    .into()
            }
            Self::Offline { .. } => "check the network and the address".into(),
            Self::Redirected { .. } => "write the new address in ktx.yaml; redirects are not followed".into(),
            Self::TooLarge { .. } => "clone what you need of it yourself, and set source_dir to that folder".into(),
            Self::Busy => "wait for its end".into(),
            Self::Git(error) => return error.help(),
            Self::Io { cause, .. } => return ingestdeck_os::scoped_dir::remedy(cause).map(str::to_owned),
            Self::Failed { .. } => return None,
        })
    }
}

impl<'a> GitSource<'a> {
    /// The repository of a connection; `None` if git does not fetch its files.
    pub(crate) fn find(
        project: &'a Path,
        policy: &'a PathPolicy,
        connection: &'a Connection,
        keys: RepositoryKeys,
    ) -> Result<Option<Self>, GitSourceError> {
        let Some(SourceLocation::Url(url)) = &connection.source else {
            return Ok(None);
        };
        let place = match local_path(url) {
            Some(path) => match bare_repository(project, policy, &project.join(path))? {
                Some(path) => RepositoryPlace::Local(path),
                None => return Ok(None),
            },
            None => RepositoryPlace::Remote(RemoteAddress::parse(url).map_err(|error| {
                GitSourceError::Address {
                    error,
                    url: without_login(url).into_owned(),
                }
            })?),
        };
        let branch = connection.branch.as_deref().unwrap_or(DEFAULT_BRANCH);
        if !is_branch_name(branch) {
            return Err(GitSourceError::InvalidBranch(branch.to_owned()));
        }
        let in_section = keys
            .section
            .and_then(|section| connection.text(&format!("/{section}/auth_token_ref")));
        let token = connection.text("/auth_token_ref").or(in_section);
        let is_https = matches!(&place, RepositoryPlace::Remote(address) if address.transport() == Transport::Https);
        let token = token
            .filter(|_| is_https)
            .map(TokenReference::parse)
            .transpose()
            .map_err(GitSourceError::Token)?;
        Ok(Some(Self {
            project,
            policy,
            place,
            branch,
            token,
            dir: format!("{CACHE_DIR}/{}/{}", keys.clone_dir, connection.id),
        }))
    }

    /// The address, without a login.
    pub fn url(&self) -> String {
        match &self.place {
            RepositoryPlace::Remote(address) => address.url().to_owned(),
            RepositoryPlace::Local(path) => {
                format!("file://{}", visible_path(&path.to_string_lossy()))
            }
        }
    }

    /// The name of its branch.
    pub fn branch(&self) -> &str {
        self.branch
    }

    /// The entry of the user's settings that allows git to fetch the repository: its address, and the reference to the
    /// token that its host gets.
    fn permission(&self) -> String {
        let url = self.url();
        match &self.token {
            Some(token) => format!("{url} {token}"),
            None => url,
        }
    }

    /// Whether the user's settings allow git to fetch it.
    pub fn is_permitted(&self) -> bool {
        self.policy.allows_repository(&self.permission())
    }

    /// The reference to the token that its host gets.
    pub fn token_reference(&self) -> Option<String> {
        self.token.as_ref().map(ToString::to_string)
    }

    /// How to allow git to fetch it.
    pub fn permission_remedy(&self) -> String {
        self.policy.repository_remedy(&self.permission())
    }

    fn check_permission(&self) -> Result<(), GitSourceError> {
        if self.is_permitted() {
            return Ok(());
        }
        Err(GitSourceError::NotPermitted {
            url: self.url(),
            remedy: self.permission_remedy(),
        })
    }

    /// Fetches the branch into a new clone in the cache, and returns its newest commit. `is_permitted` is the answer of the
    /// user, if the settings do not allow it.
    ///
    /// # Errors
    /// If it is not allowed, the repository cannot be fetched, or it exceeds `limits`. A clone that is there is not changed
    /// then.
    pub fn fetch(
        &self,
        is_permitted: bool,
        limits: &TransferLimits,
    ) -> Result<CommitId, GitSourceError> {
        if !is_permitted {
            self.check_permission()?;
        }
        transfer::fetch(self, limits)
    }

    /// Path of the clone, whether or not it exists.
    pub(crate) fn clone_path(&self) -> PathBuf {
        self.project.join(&self.dir)
    }

    /// The clone as it is; an error if there is none of this repository.
    ///
    /// # Errors
    /// If there is no clone of it.
    pub fn clone_state(&self) -> Result<CloneState, GitSourceError> {
        let fetch = || {
            let command = "`ingestdeck plan --fetch` or `ingestdeck run`";
            match self.is_permitted() {
                true => format!("fetch it with {command}"),
                false => format!("{}; then fetch it with {command}", self.permission_remedy()),
            }
        };
        let invalid = |cause: &dyn std::fmt::Display| GitSourceError::InvalidClone {
            dir: self.dir.clone(),
            cause: cause.to_string(),
            remedy: fetch(),
        };
        let dir = ScopedDir::open(self.project)
            .and_then(|project| project.dir_if_exists(&self.dir))
            .map_err(|cause| invalid(&cause))?;
        let Some(dir) = dir.filter(|dir| matches!(dir.kind(".git"), Ok(Some(FileKind::Directory))))
        else {
            return Err(GitSourceError::NotCloned {
                url: self.url(),
                remedy: fetch(),
            });
        };
        let (commit, branch) = read_head(&dir).ok_or_else(|| invalid(&"it has no commit"))?;
        let git = Git::open(&self.clone_path()).map_err(|cause| invalid(&cause))?;
        let origin = git
            .try_run(&["config", "--get", "remote.origin.url"])
            .map_err(|cause| invalid(&cause))?;
        let origin = String::from_utf8_lossy(&origin.stdout)
            .trim_end_matches('\n')
            .to_owned();
        if *without_login(&origin) != *without_login(&self.url()) {
            return Err(GitSourceError::OtherRepository {
                dir: self.dir.clone(),
                url: self.url(),
                remedy: fetch(),
            });
        }
        let changed = |name: &str| {
            let seconds = dir
                .dir(".git", None)
                .and_then(|git| git.entry_stat(name))
                .ok()?
                .st_mtime;
            Some(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).ok()?))
        };
        Ok(CloneState {
            url: self.url(),
            commit,
            branch,
            fetched: changed("FETCH_HEAD").or_else(|| changed("HEAD")),
        })
    }

    /// The commit of its files, without the network.
    pub(crate) fn version(&self) -> SourceVersion {
        let clone = self.clone_state().ok();
        SourceVersion {
            branch_mismatch: clone.as_ref().and_then(|state| self.branch_mismatch(state)),
            clone,
        }
    }

    /// Why the clone is not of the branch that `ktx.yaml` names.
    fn branch_mismatch(&self, state: &CloneState) -> Option<Problem> {
        let branch = state.branch.as_deref();
        (branch != Some(self.branch)).then(|| {
            let found = branch.map_or_else(
                || "a detached HEAD".to_owned(),
                |name| format!("branch `{}`", visible_path(name)),
            );
            Problem::new(format!(
                "its clone is of {found}, not of branch `{}`",
                visible_path(self.branch)
            ))
            .with_help("fetch it with `ingestdeck plan --fetch` or `ingestdeck run`")
        })
    }
}

/// The commit and the branch of the clone in `dir`.
fn read_head(dir: &ScopedDir) -> Option<(CommitId, Option<String>)> {
    let read = |path: &str, limit| {
        let bytes = dir.read(&format!(".git/{path}"), limit).ok()?;
        String::from_utf8(bytes).ok()
    };
    let head = read("HEAD", MAX_REF_BYTES)?;
    let Some(name) = head.trim_end().strip_prefix("ref: ") else {
        return Some((CommitId::parse(head.trim_end()).ok()?, None));
    };
    let branch = name
        .strip_prefix("refs/heads/")
        .filter(|name| is_branch_name(name))?;
    let loose = read(name, MAX_REF_BYTES);
    let packed = || {
        let packed = read("packed-refs", MAX_PACKED_REFS_BYTES)?;
        let mut lines = packed.lines().filter_map(|line| line.split_once(' '));
        Some(lines.find(|(_, known)| *known == name)?.0.to_owned())
    };
    let commit = loose.or_else(packed)?;
    Some((
        CommitId::parse(commit.trim_end()).ok()?,
        Some(branch.to_owned()),
    ))
}

/// Whether git accepts `name` as the name of a branch. Stricter than git, so that the name needs no quotes anywhere.
fn is_branch_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || "-._/+#@=,%&()!".contains(c);
    let is_component = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && !part.ends_with(".lock")
            && !part.ends_with('.')
    };
    name.len() <= 240
        && name != "@"
        && name != "HEAD"
        && !name.starts_with('-')
        && !name.contains("..")
        && name.chars().all(is_plain)
        && name.split('/').all(is_component)
}

/// The path of the bare repository at `path`, absolute and without links; `None` if files are read there as they are.
fn bare_repository(
    project: &Path,
    policy: &PathPolicy,
    path: &Path,
) -> Result<Option<PathBuf>, GitSourceError> {
    // What is not there is reported when its files are read.
    let Ok(real) = path.canonicalize() else {
        return Ok(None);
    };
    let Ok(dir) = ScopedDir::open(&real) else {
        return Ok(None);
    };
    let is = |name: &str, kind: FileKind| dir.kind(name).is_ok_and(|found| found == Some(kind));
    let is_bare = is("HEAD", FileKind::File)
        && is("objects", FileKind::Directory)
        && is("refs", FileKind::Directory)
        && is("config", FileKind::File);
    if !is_bare {
        return Ok(None);
    }
    policy.check(project, &real)?;
    Ok(Some(real))
}

#[cfg(test)]
mod tests;
