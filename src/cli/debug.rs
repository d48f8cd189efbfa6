//! Reports of failures of the program itself: a short sentence, and a log with `--debug`.

#![expect(
    clippy::disallowed_methods,
    reason = "the log in the current directory, opened without following links"
)]

use std::{
    fs::{File, OpenOptions, Permissions},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
    sync::Mutex,
};

use color_eyre::config::{HookBuilder, Theme};
use nix::{errno::Errno, fcntl::OFlag, unistd::Uid};
use tracing_subscriber::EnvFilter;

use super::{exit::CliError, output};
use ingestdeck_agent::{caught_panics, process};
use ingestdeck_report::redact::Redactor;
use ingestdeck_tui::terminal;

/// The log file of `--debug`, in the current directory, where the user finds it.
pub(crate) const LOG_FILE: &str = "ingestdeck-debug.log";

/// Installs the panic hooks of a process and, with `debug`, its log.
///
/// # Errors
/// If the log cannot be written.
pub(crate) fn install(debug: bool) -> Result<(), CliError> {
    install_panic_hooks(debug);
    if debug {
        start_log(Path::new(LOG_FILE))
    } else {
        Ok(())
    }
}

/// Installs the hooks that restore the terminal, end the agents and report the panic; with `debug`, reports name the
/// environment.
pub fn install_panic_hooks(debug: bool) {
    let (panics, errors) = HookBuilder::default()
        .display_env_section(debug)
        .theme(Theme::new())
        .panic_section("this is a bug of ingestdeck; the records are safe, and --debug writes a log with details")
        .into_hooks();
    // In a test process an error hook may be installed already; the first one is sufficient.
    let _ = errors.install();
    std::panic::set_hook(Box::new(move |panic| {
        if caught_panics::is_panic_caught() {
            tracing::error!(%panic, "contained");
            return;
        }
        terminal::restore();
        // The agents of a panicking program must not continue.
        process::kill_all();
        // A panic message may quote untrusted data.
        output::print_stderr(&panics.panic_report(panic).to_string());
    }));
}

/// Starts the log: versions, git calls, started agents, verdicts and warnings. Secrets of known kinds are masked. Only
/// the user may read the file, because it may contain other secrets.
fn start_log(path: &Path) -> Result<(), CliError> {
    let file = open_private(path).map_err(|error| {
        let path = path.display();
        CliError::usage(format!("cannot write `{path}`: {error}"))
            .with_help("remove it, leave out --debug, or change to another directory")
    })?;
    let filter = EnvFilter::try_from_env("INGESTDECK_LOG")
        .unwrap_or_else(|_| EnvFilter::new("ingestdeck=debug"));
    let project = std::env::current_dir().ok();
    let masked = MaskingWriter {
        file,
        mask: Redactor::for_process(project.as_deref()),
    };
    // Only the first subscriber of a process takes effect.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(Mutex::new(masked))
        .try_init();
    Ok(())
}

/// Masks the secrets in each event. An event is one write.
struct MaskingWriter<W> {
    file: W,
    mask: Redactor,
}

impl<W: io::Write> io::Write for MaskingWriter<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let event_text = String::from_utf8_lossy(event);
        let masked = self.mask.text(&event_text);
        self.file.write_all(masked.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Opens a private file of this user for appending and creates it if necessary. Refuses anything else that a cloned
/// project may have put at the path, such as a link to another file.
fn open_private(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let mut options = OpenOptions::new();
    let opened = options
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(flags.bits())
        .open(path);
    let file = opened.map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ELOOP | Errno::EMLINK) => io::Error::other("it is a symbolic link"),
        Some(Errno::ENXIO) => io::Error::other("it is not a regular file"),
        _ => error,
    })?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if metadata.uid() != Uid::effective().as_raw() {
        return Err(io::Error::other("it belongs to another user"));
    }
    if metadata.nlink() > 1 {
        return Err(io::Error::other("it has another name, by a hard link"));
    }
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn debug_log_is_a_private_file_of_the_user() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(LOG_FILE);
        fs::write(&path, "before\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        io::Write::write_all(&mut open_private(&path).unwrap(), b"after\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "before\nafter\n");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn debug_log_masks_secrets() {
        let mut writer = MaskingWriter {
            file: Vec::new(),
            mask: Redactor::for_process(None),
        };
        let token = format!("ghp_{}", "aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA1cD3eF5");
        io::Write::write_all(&mut writer, format!("message=\"{token}\"\n").as_bytes()).unwrap();
        let text = String::from_utf8(writer.file).unwrap();
        assert!(
            text.starts_with("message=") && text.ends_with('\n') && !text.contains(&token[8..]),
            "{text}"
        );
    }

    #[test]
    fn debug_log_refuses_links_and_special_files() {
        let dir = tempfile::tempdir().unwrap();
        let (target, path) = (dir.path().join("target"), dir.path().join(LOG_FILE));
        fs::write(&target, "").unwrap();
        let refused = || open_private(&path).unwrap_err().to_string();
        symlink(&target, &path).unwrap();
        assert_eq!(refused(), "it is a symbolic link");
        fs::remove_file(&path).unwrap();
        fs::hard_link(&target, &path).unwrap();
        assert_eq!(refused(), "it has another name, by a hard link");
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(refused(), "it is not a regular file");
        fs::remove_file(&path).unwrap();
        symlink(dir.path().join("nowhere"), &path).unwrap();
        assert_eq!(refused(), "it is a symbolic link");
        assert!(!dir.path().join("nowhere").exists());
    }
}
