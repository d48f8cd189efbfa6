//! Runs an editor or a pager in the foreground, with the job control of a shell.
//!
//! The program gets its own process group, so its Ctrl-C does not reach this process, and background work receives no
//! signals.

#![expect(
    clippy::disallowed_methods,
    reason = "the terminal, private copies for the editor, and files of the project that it opens"
)]

use std::{
    fs::{File, OpenOptions, Permissions},
    io::{self, IsTerminal as _, Read as _, Write as _},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use nix::{
    sys::{
        signal::{self, SigSet, SigmaskHow, Signal as Unix},
        termios::{self, SetArg},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{self, Pid},
};
use tempfile::{NamedTempFile, TempPath};

use super::TerminalSignals;
use crate::{edited_text::UnusableEdit, effect::ExportTool, export::Export, host::HostInput};
use ingestdeck_core::{control::MAX_EDITED_BYTES, diagnostic::Problem};
use ingestdeck_os::{open_file_limit, program_path};

/// Time for the program to exit after a termination signal.
const GRACE: Duration = Duration::from_secs(2);

/// The user's editor and pager from the environment, as command lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolPrograms {
    /// Value of `$VISUAL` or `$EDITOR`.
    pub editor: Option<String>,
    pub pager: Option<String>,
}

impl ToolPrograms {
    /// Reads the command lines from the environment; `variable` looks up a name.
    pub fn from_env(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        Self {
            editor: set("VISUAL").or_else(|| set("EDITOR")),
            pager: set("PAGER"),
        }
    }

    /// Splits the command line of the pager into words.
    ///
    /// # Errors
    ///
    /// If `$PAGER` is not a valid command line.
    pub fn pager_words(&self) -> Result<Vec<String>, Problem> {
        self.command_words(ExportTool::Pager)
    }

    /// Words of the command line for a tool.
    fn command_words(&self, tool: ExportTool) -> Result<Vec<String>, Problem> {
        let (set, usual, names) = match tool {
            ExportTool::Editor => (&self.editor, "vi", "VISUAL or EDITOR"),
            ExportTool::Pager => (&self.pager, "less", "PAGER"),
        };
        let line = set.as_deref().unwrap_or(usual);
        let words = shlex::split(line).filter(|words| !words.is_empty());
        words.ok_or_else(|| {
            Problem::new(format!("invalid command line `{line}`"))
                .with_help(format!("correct {names}"))
        })
    }
}

/// How the program ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ForegroundEnd {
    Exited(i32),
    Killed(Unix),
    /// An input that must end the screen arrived meanwhile.
    Interrupted(HostInput),
}

/// Writes a private temporary file with an export.
pub(super) fn write_private_copy(export: &Export) -> io::Result<NamedTempFile> {
    if let Some(path) = &export.unused_file {
        return Ok(NamedTempFile::from_parts(
            File::open(path)?,
            TempPath::try_from_path(path)?,
        ));
    }
    // Readable only by its owner, and deleted when dropped.
    let mut file = tempfile::Builder::new()
        .prefix("ingestdeck-")
        .suffix(export.extension)
        .tempfile()?;
    file.write_all(&export.bytes)?;
    file.flush()?;
    if export.written.is_some() {
        // Changes to the copy would be lost.
        file.as_file()
            .set_permissions(Permissions::from_mode(0o400))?;
    }
    Ok(file)
}

/// The text that an editor left in `file`, which it may have replaced.
///
/// # Errors
/// If it cannot be used. The file is kept.
pub(super) fn edited_text(file: NamedTempFile) -> Result<String, UnusableEdit> {
    let mut bytes = Vec::new();
    let read = File::open(file.path()).and_then(|opened| {
        opened
            .take(MAX_EDITED_BYTES as u64 + 1)
            .read_to_end(&mut bytes)
    });
    let reason = match (read, String::from_utf8(bytes)) {
        (Err(error), _) if error.kind() == io::ErrorKind::NotFound => {
            return Err(UnusableEdit {
                reason: "the editor deleted the text".to_owned(),
                file: None,
            });
        }
        (Err(error), _) => format!("the edited text cannot be read: {error}"),
        (Ok(_), Ok(text)) if text.len() <= MAX_EDITED_BYTES => return Ok(text),
        (Ok(length), _) if length > MAX_EDITED_BYTES => {
            format!(
                "the edited text is longer than {} KiB",
                MAX_EDITED_BYTES / 1024
            )
        }
        (Ok(_), _) => "the edited text is not UTF-8".to_owned(),
    };
    Err(UnusableEdit {
        reason,
        file: keep_file(file),
    })
}

/// Keeps the text in `file` if a person changed it, although it is not used. Returns where it is.
pub(super) fn keep_changed_file(export: &Export, file: NamedTempFile) -> Option<PathBuf> {
    let mut bytes = Vec::new();
    let limit = export.bytes.len() as u64 + 1;
    let read =
        File::open(file.path()).and_then(|opened| opened.take(limit).read_to_end(&mut bytes));
    let is_changed = read.is_ok() && (bytes != export.bytes || export.unused_file.is_some());
    (export.edits.is_some() && is_changed)
        .then(|| keep_file(file))
        .flatten()
}

fn keep_file(file: NamedTempFile) -> Option<PathBuf> {
    file.keep().ok().map(|(_, path)| path)
}

/// The command that opens `file`.
pub(super) fn command(
    programs: &ToolPrograms,
    export: &Export,
    file: &NamedTempFile,
) -> Result<Command, Problem> {
    let words = programs.command_words(export.tool)?;
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| Problem::new("no program"))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("PATH", program_path::search_path());
    if let Some(line) = export
        .line
        .filter(|line| *line > 1 && supports_start_line(program))
    {
        command.arg(format!("+{line}"));
    }
    command.arg(written_path(export).unwrap_or_else(|| file.path().to_owned()));
    open_file_limit::restore_limit_in(&mut command);
    Ok(command)
}

/// The written file, if it is still in the project with the text of the export, which may follow front matter. Links
/// that lead out of the project are not followed.
fn written_path(export: &Export) -> Option<PathBuf> {
    let written = export.written.as_ref()?;
    let project = written.project.as_ref()?.canonicalize().ok()?;
    let has_text = |path: &PathBuf| {
        let mut bytes = Vec::new();
        // Opening a named pipe would wait.
        let is_file = path.starts_with(&project) && path.is_file();
        let opened = is_file.then(|| File::open(path).ok()).flatten();
        let read = opened.and_then(|file| {
            file.take(MAX_EDITED_BYTES as u64)
                .read_to_end(&mut bytes)
                .ok()
        });
        let text = export.bytes.trim_ascii_end();
        read.is_some()
            && bytes.trim_ascii_end().ends_with(text)
            && (!text.is_empty() || bytes.is_empty())
    };
    written
        .paths
        .iter()
        .filter_map(|path| project.join(path).canonicalize().ok())
        .find(has_text)
}

/// True for programs that accept a start line as `+N`.
fn supports_start_line(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    matches!(
        name,
        "vi" | "vim"
            | "nvim"
            | "view"
            | "nano"
            | "emacs"
            | "emacsclient"
            | "micro"
            | "kak"
            | "less"
            | "more"
    )
}

/// Runs `command` in the foreground until it exits or a terminating input arrives.
pub(super) async fn foreground(
    mut command: Command,
    signals: &mut TerminalSignals,
) -> io::Result<ForegroundEnd> {
    let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty")?;
    if !io::stdin().is_terminal() {
        // Stdin of this process may be a piped tape instead of keys.
        command.stdin(Stdio::from(terminal.try_clone()?));
    }
    let modes = termios::tcgetattr(&terminal).ok();
    let child = command.process_group(0).spawn()?;
    let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    resume_in_foreground(&terminal, pid);
    let end = wait_in_foreground(pid, &terminal, signals).await;
    set_foreground_group(&terminal, unistd::getpgrp());
    if let Some(modes) = modes {
        // Restore the modes that the program may have changed.
        let _ = termios::tcsetattr(&terminal, SetArg::TCSADRAIN, &modes);
    }
    end
}

async fn wait_in_foreground(
    pid: Pid,
    terminal: &File,
    signals: &mut TerminalSignals,
) -> io::Result<ForegroundEnd> {
    let mut interruption = None;
    loop {
        let waiting =
            tokio::task::spawn_blocking(move || waitpid(pid, Some(WaitPidFlag::WUNTRACED)));
        tokio::pin!(waiting);
        let status = loop {
            tokio::select! {
                status = &mut waiting => break status.map_err(io::Error::other)??,
                input = signals.next() => if let HostInput::Signal(number) = input
                    && number != super::INTERRUPT
                {
                    interruption = Some(HostInput::Signal(number));
                    let _ = signal::killpg(pid, Unix::SIGTERM);
                    let _ = signal::killpg(pid, Unix::SIGCONT);
                },
                () = tokio::time::sleep(GRACE), if interruption.is_some() => {
                    let _ = signal::killpg(pid, Unix::SIGKILL);
                }
            }
        };
        match status {
            // The program used the terminal before it was in the foreground.
            WaitStatus::Stopped(_, Unix::SIGTTIN | Unix::SIGTTOU) => {
                resume_in_foreground(terminal, pid)
            }
            WaitStatus::Stopped(..) => {
                // Ctrl-Z in the program: stop and continue both processes together.
                set_foreground_group(terminal, unistd::getpgrp());
                signals.stop_job().await?;
                resume_in_foreground(terminal, pid);
            }
            WaitStatus::Exited(_, code) => {
                return Ok(
                    interruption.map_or(ForegroundEnd::Exited(code), ForegroundEnd::Interrupted)
                );
            }
            WaitStatus::Signaled(_, signal, _) => {
                return Ok(
                    interruption.map_or(ForegroundEnd::Killed(signal), ForegroundEnd::Interrupted)
                );
            }
            _ => {}
        }
    }
}

/// Puts a group into the foreground and continues it.
fn resume_in_foreground(terminal: &File, group: Pid) {
    set_foreground_group(terminal, group);
    let _ = signal::killpg(group, Unix::SIGCONT);
}

/// Gives the terminal to a process group. Does nothing without job control.
fn set_foreground_group(terminal: &File, group: Pid) {
    // A background process would be stopped by this call, so SIGTTOU is blocked.
    let mut stops = SigSet::empty();
    stops.add(Unix::SIGTTOU);
    if let Ok(before) = stops.thread_swap_mask(SigmaskHow::SIG_BLOCK) {
        let _ = unistd::tcsetpgrp(terminal, group);
        let _ = before.thread_set_mask();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{edited_text::EditTarget, export::WrittenFile};
    use ingestdeck_core::diagnostic::Diagnostic as _;

    fn export(line: Option<usize>) -> Export {
        Export {
            tool: ExportTool::Editor,
            bytes: b"{}\xff\n".to_vec(),
            extension: ".jsonl",
            line,
            is_truncated: false,
            edits: None,
            unused_file: None,
            written: None,
        }
    }

    fn programs(editor: &str) -> ToolPrograms {
        ToolPrograms::from_env(|name| (name == "EDITOR").then(|| editor.to_owned()))
    }

    #[test]
    fn written_file_is_opened_in_the_project_only() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("project");
        std::fs::create_dir_all(project.join("wiki")).unwrap();
        std::fs::write(project.join("wiki/a.md"), "---\nsummary: a\n---\ntext").unwrap();
        std::fs::write(project.join("wiki/other.md"), "newer text of someone").unwrap();
        nix::unistd::mkfifo(&project.join("wiki/pipe.md"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::fs::write(dir.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), project.join("wiki/link.md"))
            .unwrap();
        let opened = |path: &str| {
            let written = WrittenFile {
                project: Some(project.clone()),
                paths: vec![path.into()],
            };
            let export = Export {
                written: Some(written),
                bytes: b"text\n".to_vec(),
                ..export(None)
            };
            let file = write_private_copy(&export).unwrap();
            assert_eq!(
                file.as_file().metadata().unwrap().permissions().mode() & 0o777,
                0o400
            );
            let command = command(&programs("vim"), &export, &file).unwrap();
            let opened = command.get_args().last().unwrap().to_owned();
            (opened != file.path()).then_some(opened)
        };
        let page = project.join("wiki/a.md").canonicalize().unwrap();
        assert_eq!(opened("wiki/a.md"), Some(page.into_os_string()));
        for elsewhere in [
            "wiki/other.md",
            "wiki/pipe.md",
            "wiki/link.md",
            "wiki/gone.md",
            "wiki",
            "../secret",
        ] {
            assert_eq!(opened(elsewhere), None, "{elsewhere}");
        }
    }

    #[test]
    fn private_copy_is_exact_and_removed_afterwards() {
        let file = write_private_copy(&export(None)).unwrap();
        let path = file.path().to_owned();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"{}\xff\n");
        drop(file);
        assert!(!path.exists());
    }

    /// What an editor that is replaced by `edit` leaves.
    fn edited(edit: impl Fn(&std::path::Path)) -> Result<String, UnusableEdit> {
        let file = write_private_copy(&export(None)).unwrap();
        edit(file.path());
        edited_text(file)
    }

    #[test]
    fn edited_text_is_read_unless_it_is_too_long_or_binary() {
        // Some editors replace the file.
        let replaced = edited(|path| {
            let other = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(other.path(), "shorter\n").unwrap();
            std::fs::rename(other.path(), path).unwrap();
        });
        assert_eq!(replaced.as_deref(), Ok("shorter\n"));
        let longest = "x".repeat(MAX_EDITED_BYTES);
        assert_eq!(
            edited(|path| std::fs::write(path, &longest).unwrap()).as_ref(),
            Ok(&longest)
        );
        let deleted = edited(|path| std::fs::remove_file(path).unwrap()).unwrap_err();
        assert_eq!(
            (deleted.file, &*deleted.reason),
            (None, "the editor deleted the text")
        );
        let long = longest + "é";
        for (text, reason) in [
            (&b"{}\xff\n"[..], "the edited text is not UTF-8"),
            (long.as_bytes(), "the edited text is longer than 256 KiB"),
            (
                &long.as_bytes()[..=MAX_EDITED_BYTES],
                "the edited text is longer than 256 KiB",
            ),
        ] {
            let edit = edited(|path| std::fs::write(path, text).unwrap()).unwrap_err();
            let file = edit.file.unwrap();
            assert_eq!(
                (&*edit.reason, std::fs::read(&file).unwrap().as_slice()),
                (reason, text)
            );
            // The next editor opens it, and leaves it in place until it is used.
            let export = Export {
                unused_file: Some(file.clone()),
                edits: Some(EditTarget::Form),
                ..export(None)
            };
            let again = write_private_copy(&export).unwrap();
            assert_eq!(again.path(), file);
            assert_eq!(keep_changed_file(&export, again), Some(file.clone()));
            std::fs::write(&file, "short").unwrap();
            assert_eq!(
                edited_text(write_private_copy(&export).unwrap()).as_deref(),
                Ok("short")
            );
            assert!(!file.exists());
        }
    }

    #[test]
    fn changed_text_of_a_failed_editor_is_kept() {
        let export = Export {
            edits: Some(EditTarget::Form),
            ..export(None)
        };
        let file = write_private_copy(&export).unwrap();
        let path = file.path().to_owned();
        assert_eq!(keep_changed_file(&export, file), None);
        assert!(!path.exists());
        let file = write_private_copy(&export).unwrap();
        std::fs::write(file.path(), "{}\n# mine").unwrap();
        let kept = keep_changed_file(&export, file).unwrap();
        assert_eq!(std::fs::read(&kept).unwrap(), b"{}\n# mine");
        std::fs::remove_file(kept).unwrap();
    }

    #[test]
    fn tool_command_has_arguments_and_start_line() {
        let words = |editor: &str, line| {
            let (export, file) = (export(line), write_private_copy(&export(line)).unwrap());
            let command = command(&programs(editor), &export, &file).unwrap();
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            let words: Vec<String> = words
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            assert_eq!(words.last().unwrap(), &*file.path().to_string_lossy());
            words[..words.len() - 1].to_vec()
        };
        assert_eq!(
            words("code --wait 'a b'", Some(7)),
            ["code", "--wait", "a b"]
        );
        assert_eq!(
            words("/usr/bin/vim -R", Some(7)),
            ["/usr/bin/vim", "-R", "+7"]
        );
        assert_eq!(words("vim", Some(1)), ["vim"]);
        assert_eq!(words("  ", None), ["vi"]);
    }

    #[test]
    fn the_visual_editor_comes_first() {
        let both = ToolPrograms::from_env(|name| Some(name.to_ascii_lowercase()));
        assert_eq!(
            (both.editor.as_deref(), both.pager.as_deref()),
            (Some("visual"), Some("pager"))
        );
        assert!(
            programs("vi 'open")
                .command_words(ExportTool::Editor)
                .unwrap_err()
                .to_line()
                .contains("correct VISUAL or EDITOR")
        );
    }
}
