//! Fetches the repositories of connections before they are planned, and describes their clones.
//!
//! The user's own settings must allow each repository. On a terminal, the user is asked instead, for this time only.

use std::{
    io::{self, BufRead as _},
    time::SystemTime,
};

use super::{
    args::{GlobalArgs, SelectArgs, Ui},
    exit::{self, CliError, Exit},
    output, playback_output, project, settings,
};
use ingestdeck_core::{
    diagnostic::{Diagnostic as _, Problem},
    text::pluralize,
};
use ingestdeck_ingest::{
    git_source::{CloneState, GitSource, GitSourceError, TransferLimits},
    project::Project,
};

/// Digits of a commit id that are shown.
const SHOWN_DIGITS: usize = 12;

/// Fetches the repositories of the selected connections. A run that continues another one uses the files of that one.
///
/// # Errors
/// If one of them is allowed and cannot be fetched. A network that does not work is only a warning if there is a clone.
pub(crate) fn fetch(global: &GlobalArgs, select: &SelectArgs) -> Result<(), CliError> {
    let is_continued = select.resume.resume_run.is_some() || select.resume.failed.is_some();
    // A project that cannot be read is reported by what follows.
    let directory = project::resolve_directory(global)?;
    let Some(project) = project::read(&directory).ok().filter(|_| !is_continued) else {
        return Ok(());
    };
    let (permissions, _) = settings::permissions(global)?;
    let project = project.with_permissions(permissions);
    let mut failures = Vec::new();
    for (id, source) in project.git_sources(&select.connections) {
        // The plan names what is wrong with an address.
        let Ok(source) = source else { continue };
        let is_confirmed = !source.is_permitted() && ask(global, id, &source)?;
        if source.is_permitted() || is_confirmed {
            let (url, branch) = (source.url(), source.branch());
            inform(&format!(
                "connection {id}: fetching branch {branch} of {url}"
            ));
        }
        match source.fetch(is_confirmed, &TransferLimits::default()) {
            Ok(commit) => inform(&format!(
                "connection {id}: fetched commit {}",
                short(commit.as_str())
            )),
            Err(error) => match source.clone_state() {
                Ok(clone) if is_harmless(&error) => {
                    let used = format!("; its clone is used ({})", describe_clone(&clone));
                    let problem =
                        Problem::new(format!("connection {id} is not fetched: {error}{used}"));
                    exit::print_warning(&match error.help() {
                        Some(help) => problem.with_help(help),
                        None => problem,
                    });
                }
                // The plan names the connection and the remedy.
                Err(_) if matches!(error, GitSourceError::NotPermitted { .. }) => {}
                _ => failures
                    .push(Problem::from_error(&error).prefixed(format_args!("connection {id}: "))),
            },
        }
    }
    match failures.as_slice() {
        [] => Ok(()),
        [failure] => Err(CliError::from_error(Exit::Setup, failure)),
        _ => Err(
            CliError::new(Exit::Setup, "cannot fetch the repositories of connections")
                .with_list(failures),
        ),
    }
}

/// Whether the files of an earlier fetch may be used after this error.
fn is_harmless(error: &GitSourceError) -> bool {
    matches!(
        error,
        GitSourceError::NotPermitted { .. } | GitSourceError::Offline { .. } | GitSourceError::Busy
    )
}

/// Asks whether git may fetch the repository this time. Without a terminal, the answer is no.
fn ask(global: &GlobalArgs, id: &str, source: &GitSource<'_>) -> Result<bool, CliError> {
    if global.ui == Ui::Json || global.ui == Ui::None || !output::can_ask() {
        return Ok(false);
    }
    let secret = source
        .token_reference()
        .map(|token| format!(", and send the token in {token} to it"))
        .unwrap_or_default();
    inform(&format!(
        "connection {id} names the repository {}, which your settings do not allow yet",
        source.url()
    ));
    playback_output::print_stderr(&format!("fetch it this time{secret}? [y/N] "));
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| CliError::failed("cannot read the answer").with_cause(error))?;
    let is_yes = matches!(answer.trim(), "y" | "Y" | "yes");
    if is_yes {
        inform(&source.permission_remedy());
    }
    Ok(is_yes)
}

fn inform(text: &str) {
    playback_output::print_stderr(&format!("ingestdeck: {text}"));
}

fn short(commit: &str) -> &str {
    commit.get(..SHOWN_DIGITS).unwrap_or(commit)
}

/// The sentence about the clone that the files of a connection are in.
pub(crate) fn describe_clone(clone: &CloneState) -> String {
    let commit = short(clone.commit.as_str());
    let branch = clone.branch.as_ref().map_or_else(
        || "a detached HEAD".to_owned(),
        |branch| format!("branch {branch}"),
    );
    let fetched = clone
        .fetched
        .and_then(|at| SystemTime::now().duration_since(at).ok())
        .map(|age| format!(", fetched {}", age_text(age.as_secs())))
        .unwrap_or_default();
    format!("commit {commit} of {branch} of {}{fetched}", clone.url)
}

/// Why git does not fetch the repository of the connection `id`, although it has a clone of it.
pub(crate) fn permission_problem(project: &Project, id: &str) -> Option<String> {
    let ids = [id.to_owned()];
    let (_, source) = project.git_sources(&ids).next()?;
    let source = source.ok().filter(|source| !source.is_permitted())?;
    Some(format!(
        "git does not fetch it again; {}",
        source.permission_remedy()
    ))
}

/// For example `2 days ago`.
pub(crate) fn age_text(seconds: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(86_400, "day"), (3_600, "hour"), (60, "minute")];
    UNITS
        .iter()
        .find(|(length, _)| seconds >= *length)
        .map_or_else(
            || "less than a minute ago".to_owned(),
            |(length, name)| {
                format!(
                    "{} ago",
                    pluralize(
                        usize::try_from(seconds / length).unwrap_or(usize::MAX),
                        name
                    )
                )
            },
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_has_one_unit() {
        for (seconds, text) in [
            (0, "less than a minute ago"),
            (60, "1 minute ago"),
            (7_199, "1 hour ago"),
            (200_000, "2 days ago"),
        ] {
            assert_eq!(age_text(seconds), text);
        }
    }
}
