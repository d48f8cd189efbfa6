//! Why a program could not be started, from the system's error and the files on disk.

#![expect(
    clippy::disallowed_methods,
    reason = "the program that could not be started, and its directory"
)]

use std::{fs::File, io, io::Read as _, path::Path};

use nix::errno::Errno;

use ingestdeck_core::units::verdict::AgentStartFault;
use ingestdeck_os::scoped_dir::is_out_of_files;

/// Maximum length of the first line of a script, in bytes.
const MAX_SHEBANG_BYTES: u64 = 512;

/// Why the process could not be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StartError {
    /// Kind of the failure.
    pub(super) fault: AgentStartFault,
    pub(super) message: String,
}

impl StartError {
    /// Explains `error`, with which starting `exe` in `cwd` failed. The system reports "not found" for a missing
    /// program, a missing directory and a missing interpreter.
    pub(super) fn from_io_error(exe: &Path, cwd: &Path, error: &io::Error) -> Self {
        let (name, missing) = (exe.display(), AgentStartFault::ProgramMissing);
        let (fault, sentence) = if is_out_of_files(error) {
            (AgentStartFault::OpenFiles, format!("{name}: {error}"))
        } else if !cwd.is_dir() {
            (
                AgentStartFault::Other,
                format!("the working directory {} does not exist", cwd.display()),
            )
        } else if error.kind() == io::ErrorKind::NotFound {
            missing_file_error(exe)
        } else if error.kind() == io::ErrorKind::ArgumentListTooLong {
            (
                AgentStartFault::Other,
                format!("the environment is too large to start {name}"),
            )
        } else if is_incomplete_executable(error) {
            (missing, format!("{name} cannot be executed: {error}"))
        } else {
            (AgentStartFault::Other, format!("{name}: {error}"))
        };
        Self {
            fault,
            message: sentence,
        }
    }
}

/// An update in progress may have written the file partially, or not made it executable yet.
fn is_incomplete_executable(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw);
    matches!(code, Some(Errno::ETXTBSY | Errno::ENOEXEC | Errno::EACCES))
}

fn missing_file_error(exe: &Path) -> (AgentStartFault, String) {
    let name = exe.display();
    if !exe.is_file() {
        return (
            AgentStartFault::ProgramMissing,
            format!("there is no program {name}"),
        );
    }
    let interpreter = shebang_interpreter(exe).unwrap_or_else(|| "program loader".to_owned());
    (
        AgentStartFault::InterpreterMissing,
        format!("{name} needs {interpreter}, which is not installed"),
    )
}

/// The interpreter that a script names.
fn shebang_interpreter(exe: &Path) -> Option<String> {
    let mut head = Vec::new();
    File::open(exe)
        .ok()?
        .take(MAX_SHEBANG_BYTES)
        .read_to_end(&mut head)
        .ok()?;
    let line = head
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let line = String::from_utf8_lossy(line);
    Some(line.split_whitespace().next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

    use super::*;
    use crate::process::{self, SpawnRequest};

    async fn start_error_of(exe: PathBuf) -> StartError {
        let cwd = std::env::temp_dir();
        let order = SpawnRequest {
            exe: exe.clone(),
            args: Vec::new(),
            cwd: cwd.clone(),
            env: Vec::new(),
            stdin: false,
        };
        StartError::from_io_error(&exe, &cwd, &process::spawn(order).await.unwrap_err())
    }

    fn program(directory: &Path, text: &str, mode: u32) -> PathBuf {
        let path = directory.join("claude");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[tokio::test]
    async fn missing_interpreter_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let why = start_error_of(program(
            directory.path(),
            "#! /opt/no/such/node --flag\n1\n",
            0o755,
        ))
        .await;
        assert_eq!(why.fault, AgentStartFault::InterpreterMissing);
        assert!(
            why.message
                .ends_with("claude needs /opt/no/such/node, which is not installed"),
            "{why:?}"
        );
    }

    #[tokio::test]
    async fn program_that_is_missing_or_not_executable_counts_as_missing() {
        let directory = tempfile::tempdir().unwrap();
        let why = start_error_of(directory.path().join("claude")).await;
        assert_eq!(why.fault, AgentStartFault::ProgramMissing);
        assert!(why.message.starts_with("there is no program "), "{why:?}");
        let why = start_error_of(program(directory.path(), "#!/bin/sh\n", 0o644)).await;
        assert_eq!(why.fault, AgentStartFault::ProgramMissing, "{why:?}");
        assert!(why.message.contains("cannot be executed"), "{why:?}");
    }

    #[test]
    fn missing_directory_is_not_a_missing_program() {
        let why = StartError::from_io_error(
            Path::new("/bin/sh"),
            Path::new("/no/such"),
            &io::ErrorKind::NotFound.into(),
        );
        assert_eq!(why.message, "the working directory /no/such does not exist");
        assert_eq!(why.fault, AgentStartFault::Other);
    }
}
