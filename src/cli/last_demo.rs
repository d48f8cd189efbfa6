//! The project of the last demo, which is kept in the user's state directory until the next one. In commands, `demo` names
//! its run, or that of a later demo with a temporary project, while there is one.

#![expect(
    clippy::disallowed_methods,
    reason = "the directory of the last demo, and whether an argument is a path"
)]

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read as _},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use super::{
    args::{Cli, CliCommand, RunsCommand},
    exit::CliError,
};
use ingestdeck_os::user_dirs::UserDirs;
use ingestdeck_records::store::{RecordedRun, RunStore};

/// The name of its run in commands.
pub(crate) const NAME: &str = "demo";
/// Name of the directory of its project, which the screen shows.
const PROJECT: &str = "lantern";
/// Name of the file that is locked while a demo runs there.
const LOCK_FILE: &str = "lock";
/// Name of the file with the path of the temporary project of a demo that began while another one ran.
const TEMPORARY_FILE: &str = "temporary";
/// Maximum length of that path.
const MAX_PATH_BYTES: u64 = 4096;

/// The place of a demo that will be kept. Another demo cannot replace it before this value is dropped.
#[derive(Debug)]
pub(crate) struct KeptDemo {
    pub(crate) project: PathBuf,
    _lock: File,
}

/// Deletes the last demo, and returns the place for the next one.
///
/// # Errors
/// If there is no state directory, another demo runs there, or the last one cannot be deleted.
pub(crate) fn replace() -> io::Result<KeptDemo> {
    let directory = UserDirs::from_environment().demo();
    let directory = directory.ok_or(io::ErrorKind::NotFound)?;
    fs::create_dir_all(&directory)?;
    let mut options = File::options();
    let lock = options.create(true).truncate(false).write(true);
    let lock = lock.open(directory.join(LOCK_FILE))?;
    lock.try_lock().map_err(io::Error::from)?;
    let project = directory.join(PROJECT);
    match fs::remove_dir_all(&project) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(KeptDemo {
            project,
            _lock: lock,
        }),
    }
}

/// Lets `demo` name the run in this temporary project while it exists.
///
/// # Errors
/// If the path cannot be recorded.
pub(crate) fn name_temporary(project: &Path) -> io::Result<()> {
    let directory = UserDirs::from_environment().demo();
    let directory = directory.ok_or(io::ErrorKind::NotFound)?;
    fs::write(
        directory.join(TEMPORARY_FILE),
        project.as_os_str().as_bytes(),
    )
}

/// The project and the run that `demo` names: those of the newest demo.
fn newest() -> Option<(PathBuf, RecordedRun)> {
    newest_in(&UserDirs::from_environment().demo()?)
}

fn newest_in(directory: &Path) -> Option<(PathBuf, RecordedRun)> {
    let temporary = || {
        let mut path = Vec::new();
        let file = File::open(directory.join(TEMPORARY_FILE)).ok()?;
        file.take(MAX_PATH_BYTES).read_to_end(&mut path).ok()?;
        Some(PathBuf::from(OsString::from_vec(path)))
    };
    let newest_of = |project: PathBuf| {
        let runs = RunStore::new(&project).list().ok()?;
        Some((project, runs.into_iter().next()?))
    };
    let projects = [Some(directory.join(PROJECT)), temporary()];
    let found = projects.into_iter().flatten().filter_map(newest_of);
    found.max_by_key(|(_, run)| run.id)
}

/// True if `demo` names the run with this tape.
pub(crate) fn is_named(tape: &Path) -> bool {
    newest().is_some_and(|(_, run)| run.tape == tape)
}

/// The project of the demo with this tape, if it is kept.
pub(crate) fn kept_project(tape: &Path) -> Option<PathBuf> {
    let project = UserDirs::from_environment().demo()?.join(PROJECT);
    tape.starts_with(&project).then_some(project)
}

/// Replaces the name `demo` in the arguments of a command by the run of the last demo and its project. A file with this
/// name, and a project that is named, have precedence.
///
/// # Errors
/// If no demo is kept.
pub(crate) fn resolve_name(cli: &mut Cli) -> Result<(), CliError> {
    let is_diff = matches!(cli.command, Some(CliCommand::Diff(_)));
    let takes_path = !matches!(
        cli.command,
        Some(CliCommand::Attach(_) | CliCommand::Ctl(_))
    );
    let is_replay = matches!(cli.command, Some(CliCommand::Replay(_)));
    let runs: Vec<&mut String> = match &mut cli.command {
        Some(CliCommand::Replay(args)) => vec![&mut args.what],
        Some(CliCommand::Screenshot(args)) => vec![&mut args.what],
        Some(CliCommand::Watch(args)) => vec![&mut args.run],
        Some(CliCommand::Attach(args)) => args.run.iter_mut().collect(),
        Some(CliCommand::Ctl(args)) => args.run.iter_mut().collect(),
        Some(CliCommand::Report(args)) => vec![&mut args.run],
        Some(CliCommand::Artifacts(args)) => vec![&mut args.run],
        Some(CliCommand::Diff(args)) => [&mut args.before]
            .into_iter()
            .chain(&mut args.after)
            .collect(),
        Some(CliCommand::Runs { command }) => match command {
            RunsCommand::Show { run } => vec![run],
            RunsCommand::Export(args) => vec![&mut args.run],
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    let mut named = runs
        .into_iter()
        .filter(|run| run.as_str() == NAME)
        .peekable();
    let file = Path::new(NAME);
    let is_path = takes_path && (file.is_file() || is_replay && file.exists());
    let is_other = cli.global.project_dir.is_some() || is_path;
    if named.peek().is_none() || is_other {
        return Ok(());
    }
    let Some((project, newest)) = newest() else {
        return Err(CliError::not_found("no demo is kept").with_help("run one: `ingestdeck demo`"));
    };
    for run in named {
        // A comparison may be with a run of the user's project.
        *run = match is_diff {
            true => newest.tape.to_string_lossy().into_owned(),
            false => "latest".to_owned(),
        };
    }
    if !is_diff {
        cli.global.project_dir = Some(project);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_demo_has_the_name_while_it_exists() {
        let state = tempfile::tempdir().unwrap();
        let run = |project: &Path, id: &str| {
            let tape = project.join(format!(".ktx/ingestdeck/runs/{id}/tape.jsonl"));
            fs::create_dir_all(tape.parent().unwrap()).unwrap();
            let header = format!(
                r#"{{"tape":1,"program":"x","run":"{id}","started_at":"2026-11-25T16:59:09Z"}}"#
            );
            fs::write(tape, header + "\n").unwrap();
        };
        let kept = state.path().join(PROJECT);
        run(&kept, "01a22e05-5d6c-73f2-aef6-8314ab162001");
        let other = tempfile::tempdir().unwrap();
        run(other.path(), "01a22e06-05d5-75c4-a4fb-dd511ed76d78");
        let named = || newest_in(state.path()).map(|(project, _)| project);
        assert_eq!(named().as_ref(), Some(&kept));
        let path = other.path().as_os_str().as_bytes();
        fs::write(state.path().join(TEMPORARY_FILE), path).unwrap();
        assert_eq!(named().as_deref(), Some(other.path()));
        drop(other);
        assert_eq!(named(), Some(kept));
    }
}
