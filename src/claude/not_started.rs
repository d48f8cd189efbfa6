//! Why a program could not be started, from the error of the system and from what is on the disk. Judges nothing else.

use std::{fs::File, io, io::Read as _, path::Path};

use nix::errno::Errno;

use crate::{scoped_dir::is_out_of_files, units::verdict::StartFault};

/// Bytes of a script among which the end of its first line is looked for.
const FIRST_LINE: u64 = 512;

/// Why there is no process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotStarted {
    /// What kind of fault it is.
    pub(super) fault: StartFault,
    /// One sentence.
    pub(super) sentence: String,
}

impl NotStarted {
    /// What `error` means, with which starting `exe` in `cwd` failed. The system says "not found" of a missing program, of
    /// a missing directory and of a missing interpreter alike.
    pub(super) fn explain(exe: &Path, cwd: &Path, error: &io::Error) -> Self {
        let (name, missing) = (exe.display(), StartFault::ProgramMissing);
        let (fault, sentence) = if is_out_of_files(error) {
            (StartFault::OpenFiles, format!("{name}: {error}"))
        } else if !cwd.is_dir() {
            (StartFault::Other, format!("the working directory {} does not exist", cwd.display()))
        } else if error.kind() == io::ErrorKind::NotFound {
            not_found(exe)
        } else if error.kind() == io::ErrorKind::ArgumentListTooLong {
            (StartFault::Other, format!("the environment is too large to start {name}"))
        } else if is_unfinished(error) {
            (missing, format!("{name} cannot be executed: {error}"))
        } else {
            (StartFault::Other, format!("{name}: {error}"))
        };
        Self { fault, sentence }
    }
}

/// An update that is in progress may have written the file only in part, or not have made it executable yet.
fn is_unfinished(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw);
    matches!(code, Some(Errno::ETXTBSY | Errno::ENOEXEC | Errno::EACCES))
}

fn not_found(exe: &Path) -> (StartFault, String) {
    let name = exe.display();
    if !exe.is_file() {
        return (StartFault::ProgramMissing, format!("there is no program {name}"));
    }
    let interpreter = interpreter(exe).unwrap_or_else(|| "program loader".to_owned());
    (StartFault::InterpreterMissing, format!("{name} needs {interpreter}, which is not installed"))
}

/// The interpreter that a script names.
fn interpreter(exe: &Path) -> Option<String> {
    let mut head = Vec::new();
    File::open(exe).ok()?.take(FIRST_LINE).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    Some(line.split_whitespace().next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

    use super::*;
    use crate::claude::process::{self, Order};

    async fn explained(exe: PathBuf) -> NotStarted {
        let cwd = std::env::temp_dir();
        let order = Order { exe: exe.clone(), args: Vec::new(), cwd: cwd.clone(), env: Vec::new(), stdin: false };
        NotStarted::explain(&exe, &cwd, &process::spawn(order).await.unwrap_err())
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
        let why = explained(program(directory.path(), "#! /opt/no/such/node --flag\n1\n", 0o755)).await;
        assert_eq!(why.fault, StartFault::InterpreterMissing);
        assert!(why.sentence.ends_with("claude needs /opt/no/such/node, which is not installed"), "{why:?}");
    }

    #[tokio::test]
    async fn program_that_is_missing_or_not_executable_counts_as_missing() {
        let directory = tempfile::tempdir().unwrap();
        let why = explained(directory.path().join("claude")).await;
        assert_eq!(why.fault, StartFault::ProgramMissing);
        assert!(why.sentence.starts_with("there is no program "), "{why:?}");
        let why = explained(program(directory.path(), "#!/bin/sh\n", 0o644)).await;
        assert_eq!(why.fault, StartFault::ProgramMissing, "{why:?}");
        assert!(why.sentence.contains("cannot be executed"), "{why:?}");
    }

    #[test]
    fn missing_directory_is_not_a_missing_program() {
        let why = NotStarted::explain(Path::new("/bin/sh"), Path::new("/no/such"), &io::ErrorKind::NotFound.into());
        assert_eq!(why.sentence, "the working directory /no/such does not exist");
        assert_eq!(why.fault, StartFault::Other);
    }
}
