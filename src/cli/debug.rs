//! What is told when the program itself fails: a short sentence, and a log only when it is asked for.

use std::{fs::OpenOptions, os::unix::fs::OpenOptionsExt as _, path::Path, sync::Mutex};

use color_eyre::config::HookBuilder;
use tracing_subscriber::EnvFilter;

use super::exit::Failure;
use crate::{
    claude::{contained, process},
    tui::terminal,
};

/// Where `--debug` writes. In the current directory, because whoever asks for it stands there and looks for it.
pub const LOG: &str = "ingestdeck-debug.log";

/// Installs the hooks of a process that is about to run, and with `debug` its log.
///
/// # Errors
/// When the log cannot be written.
pub fn install(debug: bool) -> Result<(), Failure> {
    let (panics, errors) = HookBuilder::default()
        .display_env_section(debug)
        .panic_section("this is a bug of ingestdeck; what was recorded is safe, and --debug writes more about it")
        .into_hooks();
    // An error hook may be there already in a test process; the first one serves as well.
    let _ = errors.install();
    let panics = panics.into_panic_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if contained::is_contained() {
            tracing::error!(%panic, "contained");
            return;
        }
        // Agents of a program that is falling apart must not run on.
        process::kill_all();
        terminal::restore();
        panics(panic);
    }));
    if debug { log(Path::new(LOG)) } else { Ok(()) }
}

/// Starts the log. It may hold parts of prompts and results, so nobody else may read it.
fn log(path: &Path) -> Result<(), Failure> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path).map_err(|error| {
        Failure::usage(format!("cannot write {}: {error}; leave out --debug, or go elsewhere", path.display()))
    })?;
    let filter = EnvFilter::try_from_env("INGESTDECK_LOG").unwrap_or_else(|_| EnvFilter::new("ingestdeck=debug"));
    // Only the first subscriber of a process counts.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(Mutex::new(file)).try_init();
    Ok(())
}
