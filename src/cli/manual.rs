//! Shell completions and manual pages for packages. Both are generated from the table of commands, so they always match
//! `--help`.

#![expect(
    clippy::disallowed_methods,
    reason = "the directory that --out names; completions and manual pages contain only fixed text, and roff needs control characters"
)]

use std::{
    fs,
    io::{self, Write as _},
    path::Path,
};

use clap::Command;
use clap_mangen::Man;

use super::{
    args::{CompletionsArgs, ManArgs},
    exit::{CliError, Exit},
    output,
};

/// Prints the completions for a shell.
///
/// # Errors
/// If stdout cannot be written.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<Exit, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::command(), "ingestdeck", &mut script);
    print(&script)
}

/// Prints the manual page, or writes the pages of all commands to a directory.
///
/// # Errors
/// If stdout or a file cannot be written.
pub(crate) fn man(args: &ManArgs) -> Result<Exit, CliError> {
    let mut root = super::command();
    // Propagates the global options to every command.
    root.build();
    match &args.out {
        None => print(&page(root).map_err(CliError::internal)?),
        Some(directory) => pages(root, directory).map(|()| Exit::Ok),
    }
}

fn pages(root: Command, directory: &Path) -> Result<(), CliError> {
    let failed = |path: &Path, error: &io::Error| {
        CliError::failed(format!("cannot write {}: {error}", path.display()))
    };
    fs::create_dir_all(directory).map_err(|error| failed(directory, &error))?;
    let mut waiting = vec![root];
    while let Some(command) = waiting.pop() {
        waiting.extend(
            command
                .get_subcommands()
                .filter(|sub| is_shown(sub))
                .cloned(),
        );
        let name = command
            .get_display_name()
            .unwrap_or(command.get_name())
            .to_owned();
        let path = directory.join(format!("{name}.1"));
        page(command)
            .and_then(|text| fs::write(&path, text))
            .map_err(|error| failed(&path, &error))?;
    }
    Ok(())
}

fn is_shown(command: &Command) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}

fn page(command: Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    Man::new(command)
        .source(concat!("ingestdeck ", env!("CARGO_PKG_VERSION")))
        .render(&mut text)?;
    Ok(text)
}

fn print(text: &[u8]) -> Result<Exit, CliError> {
    match output::raw_stdout().write_all(text) {
        // A closed pipe is not an error: the reader has enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Exit::Ok),
        Err(error) => Err(CliError::failed(format!("cannot write to stdout: {error}"))),
        Ok(()) => Ok(Exit::Ok),
    }
}
