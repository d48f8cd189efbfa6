//! Fetches the tape in an artifact of GitHub Actions with the user's own `gh`, for `--failed-from`.
//!
//! `gh` knows logins and hosts; this module passes it fixed arguments without a shell. Everything that it returns is
//! untrusted: sizes, times and names are bounded, and nothing of an archive is written under a name of the archive.

use std::{
    io::Read,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use serde::Deserialize;

use super::{exit::CliError, zip_entries::ZipArchive};
use ingestdeck_agent::private_dir::{DOWNLOAD_PREFIX, PrivateDir};
use ingestdeck_core::{
    tape::Header,
    text::{one_row, pluralize, printable},
};
use ingestdeck_os::{open_file_limit, program_path, scoped_dir::ScopedDir};

/// Largest artifact in bytes, packed, and largest tape in it.
const MAX_ARCHIVE: u64 = 256 << 20;
const MAX_TAPE: usize = 512 << 20;
/// Most bytes that are unpacked of all files together.
const MAX_UNPACKED: usize = 2 << 30;
/// Largest answer about a run, and most bytes of a message of `gh`.
const MAX_LIST: u64 = 4 << 20;
const MAX_MESSAGE: u64 = 64 << 10;
/// Most artifacts of a run that are searched for a tape.
const MAX_ARTIFACTS: usize = 10;
/// Longest time for all calls together.
const TIME_LIMIT: Duration = Duration::from_secs(300);
/// Most columns of a foreign text in an error, and most names.
const MAX_SHOWN: usize = 200;
const MAX_NAMED: usize = 6;

/// An artifact of GitHub Actions, or a run with artifacts, as an argument names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ArtifactAddress {
    /// Host and repository; `None` for the one that `gh` finds for the project.
    place: Option<(String, String)>,
    target: ArtifactRequest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArtifactRequest {
    Artifact(u64),
    Run(u64),
}

/// A tape in a private directory, which is deleted with this value.
#[derive(Debug)]
pub(super) struct FetchedTape {
    pub path: PathBuf,
    _dir: PrivateDir,
}

/// An artifact in the answer about a run.
#[derive(Deserialize)]
struct ListedArtifact {
    id: u64,
    name: String,
    #[serde(default)]
    expired: bool,
}

#[derive(Deserialize)]
struct ArtifactList {
    artifacts: Vec<ListedArtifact>,
}

impl ArtifactAddress {
    /// Parses `https://HOST/OWNER/REPO/actions/runs/RUN[/artifacts/ID]` or an id; `None` for anything else.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| digits)
        };
        if let Some(id) = number(text) {
            let target = ArtifactRequest::Artifact(id);
            return Some(Self {
                place: None,
                target,
            });
        }
        let address = text.strip_prefix("https://")?;
        let address = address.split(['?', '#']).next()?.trim_end_matches('/');
        let parts: Vec<&str> = address.split('/').collect();
        let ([host, owner, repository, "actions", "runs", run], rest) =
            (parts.first_chunk::<6>()?, parts.get(6..)?)
        else {
            return None;
        };
        let is_name = |name: &&&str| {
            !name.is_empty()
                && !name.starts_with(['-', '.'])
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        [host, owner, repository]
            .iter()
            .all(is_name)
            .then_some(())?;
        let target = match rest {
            [] | ["attempts" | "job", _] => ArtifactRequest::Run(number(run)?),
            ["artifacts", id] => ArtifactRequest::Artifact(number(id)?),
            _ => return None,
        };
        number(run)?;
        let place = Some(((*host).to_owned(), format!("{owner}/{repository}")));
        Some(Self { place, target })
    }

    /// True for an id, which may also be the name of a file or a run.
    pub(super) fn is_bare(&self) -> bool {
        self.place.is_none()
    }

    /// Fetches the one tape in it.
    ///
    /// # Errors
    /// If `gh` is missing or fails, or if there is not exactly one tape.
    pub(super) fn fetch(&self, project: &std::path::Path) -> Result<FetchedTape, CliError> {
        let gh = program_path::find("gh").ok_or_else(|| {
            CliError::not_found("`gh` is not installed; it fetches artifacts of GitHub Actions")
                .with_help("install it from https://cli.github.com, or download the artifact and name its tape")
        })?;
        let gh = GhProgram {
            path: gh,
            address: self,
            project,
            deadline: Instant::now() + TIME_LIMIT,
        };
        let artifacts = match self.target {
            ArtifactRequest::Artifact(id) => vec![(id, None)],
            ArtifactRequest::Run(run) => gh.artifacts(run)?,
        };
        let (mut found, mut tape) = (Vec::new(), Vec::new());
        // An archive may name the same content often.
        let mut left = MAX_UNPACKED;
        for (id, name) in &artifacts {
            let packed = gh.call(&format!("actions/artifacts/{id}/zip"), MAX_ARCHIVE)?;
            let label = name
                .as_deref()
                .map_or_else(|| id.to_string(), str::to_owned);
            let archive = ZipArchive::parse(&packed).map_err(|why| unusable(&label, why))?;
            for entry in archive
                .entries
                .iter()
                .filter(|it| it.name.ends_with(".jsonl"))
            {
                let text = archive
                    .read(entry, MAX_TAPE.min(left))
                    .map_err(|why| unusable(&label, why))?;
                left -= text.len();
                let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
                if Header::parse(first).is_ok() {
                    found.push(format!("{label}/{}", entry.name));
                    tape = text;
                }
            }
        }
        match found.as_slice() {
            [_] => keep(&tape),
            [] => Err(CliError::not_found(format!(
                "no tape is in {}",
                match self.target {
                    ArtifactRequest::Artifact(id) => format!("artifact {id}"),
                    ArtifactRequest::Run(run) => format!(
                        "the {} of run {run}",
                        pluralize(artifacts.len(), "artifact")
                    ),
                }
            ))
            .with_help("name an artifact that has the `tape.jsonl` of a run")),
            found => {
                let names = found.iter().take(MAX_NAMED).map(|name| shown(name));
                let names: Vec<String> = names.collect();
                let more = match found.len().saturating_sub(MAX_NAMED) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                Err(CliError::usage(format!(
                    "{} match: {}{more}",
                    pluralize(found.len(), "tape"),
                    names.join(", ")
                ))
                .with_help(
                    "name the artifact by its address, or download it and name one of its files",
                ))
            }
        }
    }
}

/// Writes the tape to a private file.
fn keep(text: &[u8]) -> Result<FetchedTape, CliError> {
    const NAME: &str = "tape.jsonl";
    let write = || {
        let dir = PrivateDir::new(DOWNLOAD_PREFIX)?;
        ScopedDir::open(dir.path())?.write(NAME, text, 0o700, 0o600)?;
        Ok(FetchedTape {
            path: dir.path().join(NAME),
            _dir: dir,
        })
    };
    write().map_err(|error: std::io::Error| {
        CliError::failed(format!(
            "cannot keep the tape in a temporary directory: {error}"
        ))
    })
}

fn shown(text: &str) -> String {
    printable(&one_row(text, 4 * MAX_SHOWN), MAX_SHOWN).into_owned()
}

fn unusable(label: &str, why: &str) -> CliError {
    CliError::failed(format!(
        "the archive of artifact {} is unusable: {why}",
        shown(label)
    ))
    .with_help("download it and name its tape")
}

/// `gh`, and what it is asked about.
struct GhProgram<'a> {
    path: PathBuf,
    address: &'a ArtifactAddress,
    project: &'a std::path::Path,
    deadline: Instant,
}

impl GhProgram<'_> {
    /// The artifacts of a run that still exist, with their names.
    fn artifacts(&self, run: u64) -> Result<Vec<(u64, Option<String>)>, CliError> {
        let answer = self.call(
            &format!("actions/runs/{run}/artifacts?per_page=100"),
            MAX_LIST,
        )?;
        let list: ArtifactList = serde_json::from_slice(&answer).map_err(|error| {
            CliError::failed(format!(
                "cannot read the answer of `gh`: {}",
                shown(&error.to_string())
            ))
        })?;
        let all = list.artifacts.len();
        let left: Vec<ListedArtifact> = list
            .artifacts
            .into_iter()
            .filter(|it| !it.expired)
            .collect();
        if left.is_empty() {
            let (problem, help) = match all {
                0 => (
                    "has no artifacts".to_owned(),
                    "upload the tape in the job, as the action of ingestdeck does",
                ),
                all => (
                    format!(
                        "has no artifacts left: {} expired",
                        pluralize(all, "artifact")
                    ),
                    EXPIRED,
                ),
            };
            return Err(CliError::not_found(format!("run {run} {problem}")).with_help(help));
        }
        if left.len() > MAX_ARTIFACTS {
            return Err(CliError::usage(format!(
                "run {run} has {} artifacts; at most {MAX_ARTIFACTS} are searched for a tape",
                left.len()
            ))
            .with_help("name the artifact by its address"));
        }
        Ok(left.into_iter().map(|it| (it.id, Some(it.name))).collect())
    }

    /// The answer to a request about the repository, at most `limit` bytes.
    fn call(&self, path: &str, limit: u64) -> Result<Vec<u8>, CliError> {
        let mut command = Command::new(&self.path);
        open_file_limit::restore_limit_in(&mut command);
        command.arg("api");
        let repository = match &self.address.place {
            Some((host, repository)) => {
                command.args(["--hostname", host]);
                repository.as_str()
            }
            None => "{owner}/{repo}",
        };
        if !self.is_own_host() {
            // `gh` would give them to any host that is not github.com.
            command
                .env_remove("GH_ENTERPRISE_TOKEN")
                .env_remove("GITHUB_ENTERPRISE_TOKEN");
        }
        let failed = |error: std::io::Error| CliError::failed(format!("cannot run `gh`: {error}"));
        let mut child = command
            .arg(format!("repos/{repository}/{path}"))
            .current_dir(self.project)
            .env("PATH", program_path::search_path())
            .env("GH_PROMPT_DISABLED", "1")
            .env("GH_NO_UPDATE_NOTIFIER", "1")
            .env("NO_COLOR", "1")
            .env_remove("GH_DEBUG")
            .env_remove("GH_FORCE_TTY")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let answer = self.answer(&mut child, limit);
        // Ends a process that still writes; one that has ended is not affected.
        let _ = child.kill();
        let status = child.wait().map_err(failed)?;
        let (body, message) = answer?;
        if status.success() {
            return Ok(body);
        }
        Err(self.refusal(status.code(), &String::from_utf8_lossy(&message)))
    }

    /// True for a host that the environment names as the one of its tokens.
    fn is_own_host(&self) -> bool {
        let Some((host, _)) = &self.address.place else {
            return true;
        };
        let is_named = |variable: &str| {
            std::env::var(variable).is_ok_and(|value| {
                value.trim_start_matches("https://").trim_end_matches('/') == host.as_str()
            })
        };
        is_named("GH_HOST") || is_named("GITHUB_SERVER_URL")
    }

    /// Reads both outputs up to their ends.
    fn answer(&self, child: &mut Child, limit: u64) -> Result<(Vec<u8>, Vec<u8>), CliError> {
        let (done, ends) = mpsc::channel();
        let read = |source: Option<Box<dyn Read + Send>>, limit: u64, is_body: bool| {
            let done = done.clone();
            thread::spawn(move || {
                let mut text = Vec::new();
                let source = source.into_iter();
                let read: std::io::Result<usize> = source
                    .map(|from| from.take(limit + 1).read_to_end(&mut text))
                    .sum();
                // The receiver is gone after the time limit.
                let _ = done.send((is_body, read.map(|_| text)));
            });
        };
        let body = child.stdout.take().map(|from| Box::new(from) as _);
        let message = child.stderr.take().map(|from| Box::new(from) as _);
        read(body, limit, true);
        read(message, MAX_MESSAGE, false);
        let (mut body, mut message) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let left = self.deadline.saturating_duration_since(Instant::now());
            let (is_body, text) = ends.recv_timeout(left).map_err(|_| {
                CliError::failed(format!("`gh` took longer than {} s", TIME_LIMIT.as_secs()))
                    .with_help("download the artifact and name its tape")
            })?;
            let text =
                text.map_err(|error| CliError::failed(format!("cannot read from `gh`: {error}")))?;
            if is_body && text.len() as u64 > limit {
                return Err(CliError::failed(format!(
                    "the answer of `gh` is larger than {} MiB",
                    limit >> 20
                ))
                .with_help("download the artifact and name its tape"));
            }
            *(if is_body { &mut body } else { &mut message }) = text;
        }
        Ok((body, message))
    }

    /// The error after `gh` failed with a message.
    fn refusal(&self, code: Option<i32>, message: &str) -> CliError {
        let has = |word: &str| message.contains(word);
        let help = if code == Some(AUTH_REQUIRED) || has("HTTP 401") || has("gh auth login") {
            Some("sign in with `gh auth login`")
        } else if has("HTTP 410") || has("expired") {
            Some(EXPIRED)
        } else if has("HTTP 404") {
            Some(
                "check the address, and whether your login of `gh` may read the repository (`gh auth status`)",
            )
        } else if self.address.is_bare()
            && (has("remote") || has("placeholder") || has("repository"))
        {
            Some(
                "name the artifact by its address: https://github.com/OWNER/REPO/actions/runs/RUN/artifacts/ID",
            )
        } else {
            None
        };
        let error = CliError::failed(format!("`gh` cannot fetch it: {}", shown(message)));
        match help {
            Some(help) => error.with_help(help),
            None => error,
        }
    }
}

/// Exit code of `gh` without a login.
const AUTH_REQUIRED: i32 = 4;

/// What to do about an artifact that GitHub has deleted.
const EXPIRED: &str =
    "GitHub deletes artifacts after some time; name a newer run, or a copy of the tape";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_artifacts_and_runs_are_recognized() {
        let place = |host: &str| Some((host.to_owned(), "o/r.x".to_owned()));
        for (text, expected) in [
            ("42", Some((None, ArtifactRequest::Artifact(42)))),
            (
                "https://github.com/o/r.x/actions/runs/7/artifacts/42",
                Some((place("github.com"), ArtifactRequest::Artifact(42))),
            ),
            (
                "https://ghe.example/o/r.x/actions/runs/7/?pr=1",
                Some((place("ghe.example"), ArtifactRequest::Run(7))),
            ),
            (
                "https://github.com/o/r.x/actions/runs/7/attempts/2",
                Some((place("github.com"), ArtifactRequest::Run(7))),
            ),
            ("http://github.com/o/r/actions/runs/7", None),
            ("https://github.com/o/../actions/runs/7", None),
            ("https://github.com/o/-r/actions/runs/7", None),
            ("https://github.com/o/r/actions/runs/x", None),
            ("https://github.com/o/r/actions/runs/+7", None),
            ("https://github.com/o/r/pull/7", None),
            ("https://u@github.com/o/r/actions/runs/7", None),
            ("+42", None),
            ("", None),
            ("tape.jsonl", None),
        ] {
            let found = ArtifactAddress::parse(text).map(|it| (it.place, it.target));
            assert_eq!(found, expected, "{text}");
        }
    }
}
